//! The thread that carries packets between TUN devices.
//!
//! It wakes when a device has a packet or a packet is due, at most once every [`TURN`], so that
//! load comes in batches and an idle laboratory costs nothing. A turn applies what is asked or
//! scheduled, delivers what is due, and reads what waits. Packet buffers are recycled: the steady
//! state allocates nothing. The thread asks for real-time priority, so that what is measured
//! does not depend on what else the machine does; without the right to it, it runs as it is.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Change, Exit, LabError, MTU_BYTES, Pipe, Schedule, Shape, Step, Tun};

/// Two devices and the shape of the link between them, in both directions at first.
#[derive(Debug)]
pub struct Link {
    /// The device on the client's side.
    pub client: Tun,
    /// The device on the server's side.
    pub server: Tun,
    /// What each direction does to packets.
    pub shape: Shape,
}

/// What one direction has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipeCounters {
    /// Packets that arrived.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets dropped because the queue was full or the link silent.
    pub dropped: u64,
}

/// What one link has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// From server to client.
    pub down: PipeCounters,
    /// From client to server.
    pub up: PipeCounters,
}

/// The running emulator. Dropping it stops the thread and removes the devices.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    links: usize,
}

impl Engine {
    /// Starts carrying packets; `seed` decides which are lost.
    pub fn start(links: Vec<Link>, seed: u64) -> Result<Self, LabError> {
        // SAFETY: eventfd has no preconditions.
        let wake = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if wake < 0 {
            return Err(LabError::last_os("make an event descriptor"));
        }
        let count = links.len();
        let shared = Arc::new(Shared {
            orders: Mutex::new(Vec::new()),
            // SAFETY: the descriptor is fresh and owned by nobody else.
            wake: unsafe { OwnedFd::from_raw_fd(wake) },
            counters: (0..2 * count).map(|_| AtomicCounters::default()).collect(),
            cpu_ns: AtomicU64::new(0),
        });
        let carrier = Carrier::new(links, seed, Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("netlab-engine".to_owned())
            .spawn(move || carrier.run())
            .map_err(|e| LabError::system("start the engine's thread", e))?;
        Ok(Self { shared, thread: Some(thread), links: count })
    }

    /// Changes a link now; a link that does not exist is ignored.
    pub fn change(&self, link: usize, change: Change) {
        self.order(Order::Change(link, change));
    }

    /// Replaces whatever is still scheduled; the new schedule's clock starts now.
    pub fn play(&self, schedule: &Schedule) {
        self.order(Order::Play(schedule.steps().to_vec()));
    }

    /// What every link has done so far.
    pub fn counters(&self) -> Vec<LinkCounters> {
        let read = |index: usize| self.shared.counters[index].read();
        (0..self.links)
            .map(|link| LinkCounters { up: read(2 * link), down: read(2 * link + 1) })
            .collect()
    }

    /// Processor time the thread has used, delivery into the receiving kernel included.
    pub fn cpu_time(&self) -> Duration {
        Duration::from_nanos(self.shared.cpu_ns.load(Ordering::Relaxed))
    }

    fn order(&self, order: Order) {
        self.shared.orders().push(order);
        self.shared.wake();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by then and must not become a second one.
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
enum Order {
    Change(usize, Change),
    Play(Vec<Step>),
    Stop,
}

#[derive(Debug)]
struct Shared {
    orders: Mutex<Vec<Order>>,
    wake: OwnedFd,
    counters: Vec<AtomicCounters>,
    cpu_ns: AtomicU64,
}

impl Shared {
    fn orders(&self) -> MutexGuard<'_, Vec<Order>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight live bytes are read. A full counter means that a wake-up is pending.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn clear_wake(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight live, exclusive bytes are written at most.
        unsafe { libc::read(self.wake.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

#[derive(Debug, Default)]
struct AtomicCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    dropped: AtomicU64,
}

impl AtomicCounters {
    fn read(&self) -> PipeCounters {
        PipeCounters {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }
}

/// Counts on behalf of the one thread that writes, so a plain load and store suffices.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

struct Packet {
    bytes: Box<[u8; MTU_BYTES]>,
    length_bytes: usize,
}

/// The state of the engine's thread. Device and pipe `2 × link` belong to the client's side:
/// what is read there travels up and is written to device `2 × link + 1`, and the other way round.
struct Carrier {
    devices: Vec<Tun>,
    pipes: Vec<Pipe<Packet>>,
    spare: Vec<Packet>,
    polled: Vec<libc::pollfd>,
    scheduled: VecDeque<(u64, usize, Change)>,
    shared: Arc<Shared>,
    clock: Instant,
}

impl Carrier {
    fn new(links: Vec<Link>, seed: u64, shared: Arc<Shared>) -> Self {
        let mut devices = Vec::new();
        let mut pipes = Vec::new();
        for link in links {
            for device in [link.client, link.server] {
                let own_seed = seed.wrapping_add((pipes.len() as u64).wrapping_mul(SEED_STEP));
                pipes.push(Pipe::new(link.shape, own_seed));
                devices.push(device);
            }
        }
        let watch = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polled: Vec<_> = devices.iter().map(|device| watch(device.as_raw_fd())).collect();
        polled.push(watch(shared.wake.as_raw_fd()));
        let clock = Instant::now();
        Self {
            devices,
            pipes,
            spare: Vec::new(),
            polled,
            scheduled: VecDeque::new(),
            shared,
            clock,
        }
    }

    fn run(mut self) {
        ask_for_priority();
        let mut last_turn_ns = 0;
        let mut cpu_read_ns = 0;
        while self.obey() {
            self.follow_schedule();
            for index in 0..self.pipes.len() {
                self.deliver(index);
            }
            if last_turn_ns >= cpu_read_ns + CPU_READ_EVERY_NS {
                self.shared.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
                cpu_read_ns = last_turn_ns;
            }
            sleep_ns((last_turn_ns + TURN.as_nanos() as u64).saturating_sub(self.now_ns()));
            self.wait();
            last_turn_ns = self.now_ns();
            for index in 0..self.devices.len() {
                if self.polled[index].revents != 0 {
                    self.accept(index, last_turn_ns);
                }
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Carries out what other threads asked for; false when the end was among it.
    fn obey(&mut self) -> bool {
        if self.polled.last().is_some_and(|wake| wake.revents != 0) {
            self.shared.clear_wake();
        }
        let orders = std::mem::take(&mut *self.shared.orders());
        let now_ns = self.now_ns();
        for order in orders {
            match order {
                Order::Stop => return false,
                Order::Change(link, change) => self.reshape(now_ns, link, change),
                Order::Play(steps) => {
                    let planned = steps
                        .iter()
                        .map(|step| (now_ns + step.at.as_nanos() as u64, step.link, step.change));
                    self.scheduled = planned.collect();
                }
            }
        }
        true
    }

    fn follow_schedule(&mut self) {
        let now_ns = self.now_ns();
        while let Some(&(at_ns, link, change)) = self.scheduled.front()
            && at_ns <= now_ns
        {
            self.scheduled.pop_front();
            self.reshape(now_ns, link, change);
        }
    }

    fn reshape(&mut self, now_ns: u64, link: usize, change: Change) {
        for pipe in self.pipes.iter_mut().skip(2 * link).take(2) {
            pipe.reshape(now_ns, change.apply(*pipe.shape()));
        }
    }

    /// Writes every packet of one direction that is due to the device at its other end.
    fn deliver(&mut self, index: usize) {
        let now_ns = self.now_ns();
        let counters = &self.shared.counters[index];
        while let Some(exit) = self.pipes[index].poll(now_ns) {
            let packet = match exit {
                Exit::Lost(packet) => {
                    add(&counters.lost, 1);
                    packet
                }
                Exit::Arrived(packet) => {
                    let target = &self.devices[index ^ 1];
                    if target.send(&packet.bytes[..packet.length_bytes]) {
                        add(&counters.packets, 1);
                        add(&counters.bytes, packet.length_bytes as u64);
                    } else {
                        add(&counters.dropped, 1);
                    }
                    packet
                }
            };
            self.spare.push(packet);
        }
    }

    /// Reads what waits at one device into the pipe behind it.
    fn accept(&mut self, index: usize, now_ns: u64) {
        for _ in 0..PACKETS_PER_READ {
            let mut packet = self
                .spare
                .pop()
                .unwrap_or_else(|| Packet { bytes: Box::new([0; MTU_BYTES]), length_bytes: 0 });
            // A device that fails is one that goes away: nothing more will come from it.
            let Ok(Some(length_bytes)) = self.devices[index].receive(&mut packet.bytes[..]) else {
                self.spare.push(packet);
                return;
            };
            packet.length_bytes = length_bytes;
            if let Err(packet) = self.pipes[index].offer(now_ns, packet, length_bytes) {
                add(&self.shared.counters[index].dropped, 1);
                self.spare.push(packet);
            }
        }
    }

    /// Sleeps until a device is readable, an order came, or the next packet or step is due.
    fn wait(&mut self) {
        let exits = self.pipes.iter().filter_map(Pipe::next_exit_ns);
        let steps = self.scheduled.front().map(|&(at_ns, ..)| at_ns);
        let due_ns = exits.chain(steps).min();
        let timeout = due_ns.map(|due_ns| timespec(due_ns.saturating_sub(self.now_ns())));
        let timeout_pointer = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array is live and exclusive, its length right, and the timeout outlives
        // the call. An interrupted call leaves every revents at zero or as it was, which only
        // costs one empty read.
        unsafe {
            libc::ppoll(
                self.polled.as_mut_ptr(),
                self.polled.len() as libc::nfds_t,
                timeout_pointer,
                std::ptr::null(),
            );
        }
    }
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

fn sleep_ns(ns: u64) {
    if ns > 0 {
        let request = timespec(ns);
        // SAFETY: the request outlives the call, and no remainder is asked for.
        unsafe { libc::nanosleep(&request, std::ptr::null_mut()) };
    }
}

fn thread_cpu_ns() -> u64 {
    let mut time = timespec(0);
    // SAFETY: the pointer is to a live, exclusive timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn ask_for_priority() {
    // SAFETY: sched_param is plain data; both calls affect the calling thread alone.
    unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = PRIORITY;
        if libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) != 0 {
            // Without real-time priority, at least wake on time.
            let _: io::Error = io::Error::last_os_error();
        }
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong);
    }
}

/// Shortest time between two turns. Packets are late by at most this, far below any delay that
/// is emulated, and at high rates one turn moves several of them.
const TURN: Duration = Duration::from_micros(150);

/// Reads from one device before the others get their turn.
const PACKETS_PER_READ: usize = 256;

/// Low among real-time priorities: above everything ordinary, below the kernel's own threads.
const PRIORITY: libc::c_int = 5;

/// How often the published processor time is renewed.
const CPU_READ_EVERY_NS: u64 = 10_000_000;

/// Distance between the seeds of two pipes; any odd number far from small ones will do.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
