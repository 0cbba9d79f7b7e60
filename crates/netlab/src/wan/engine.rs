//! The thread that carries packets between TUN devices.
//!
//! It wakes when a device has a packet or a packet is due, at most once every [`TURN`], so that
//! load comes in batches and an idle laboratory costs nothing. A turn applies what is asked or
//! scheduled, delivers what is due, and reads what waits; links on which nothing happens have no
//! part in it. Buffers of single packets are recycled. The thread asks for real-time priority, so
//! that what is measured does not depend on what else the machine does; without the right to it, it
//! runs as it is.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{
    Change, Direction, Exit, LabError, MTU_BYTES, OnWire, Pipe, READ_BYTES_MAX, Schedule, Shape,
    Step, Target, Tun,
};

/// Two devices and what the link between them does to packets at first.
#[derive(Debug)]
pub struct Link {
    /// The device at the near end: a star's client.
    pub near: Tun,
    /// The device at the far end: a star's server.
    pub far: Tun,
    /// What happens to packets from the far end to the near one.
    pub down: Shape,
    /// What happens to packets from the near end to the far one.
    pub up: Shape,
}

/// The device of a site and what its link to the core does to packets at first.
#[derive(Debug)]
pub struct CoreLink {
    /// The device at the site.
    pub site: Tun,
    /// Where the other sites reach it.
    pub address: Ipv4Addr,
    /// What happens to packets from the core to the site.
    pub down: Shape,
    /// What happens to packets from the site to the core.
    pub up: Shape,
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
    /// From the far end to the near one.
    pub down: PipeCounters,
    /// From the near end to the far one.
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
        let count = links.len();
        let mut lines = Vec::new();
        for (link, Link { near, far, down, up }) in links.into_iter().enumerate() {
            let (up_pipe, down_pipe) = (2 * link, 2 * link + 1);
            lines.push(Line { device: Some(near), shape: up, end: End::Device(down_pipe) });
            lines.push(Line { device: Some(far), shape: down, end: End::Device(up_pipe) });
        }
        Self::start_lines(lines, count, seed)
    }

    /// Starts carrying packets between sites that each have one link to a core network, which is
    /// always fast enough: a packet goes up the link of its sender and down the link of the site
    /// that has its destination address. The near end of each link is the site.
    pub fn start_core(links: Vec<CoreLink>, seed: u64) -> Result<Self, LabError> {
        let count = links.len();
        let addresses: HashMap<Ipv4Addr, usize> =
            links.iter().enumerate().map(|(link, it)| (it.address, 2 * link + 1)).collect();
        let addresses = Arc::new(addresses);
        let mut lines = Vec::new();
        for (link, CoreLink { site, down, up, .. }) in links.into_iter().enumerate() {
            let core = End::Core(Arc::clone(&addresses));
            lines.push(Line { device: Some(site), shape: up, end: core });
            lines.push(Line { device: None, shape: down, end: End::Device(2 * link) });
        }
        Self::start_lines(lines, count, seed)
    }

    fn start_lines(lines: Vec<Line>, count: usize, seed: u64) -> Result<Self, LabError> {
        // SAFETY: eventfd has no preconditions.
        let wake = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if wake < 0 {
            return Err(LabError::last_os("make an event descriptor"));
        }
        let shared = Arc::new(Shared {
            orders: Mutex::new(Vec::new()),
            // SAFETY: the descriptor is fresh and owned by nobody else.
            wake: unsafe { OwnedFd::from_raw_fd(wake) },
            counters: (0..2 * count).map(|_| AtomicCounters::default()).collect(),
            cpu_ns: AtomicU64::new(0),
        });
        let carrier = Carrier::new(lines, seed, Arc::clone(&shared))?;
        let thread = std::thread::Builder::new()
            .name("netlab-engine".to_owned())
            .spawn(move || carrier.run())
            .map_err(|e| LabError::system("start the engine's thread", e))?;
        Ok(Self { shared, thread: Some(thread), links: count })
    }

    /// Changes a link now; a link that does not exist is ignored.
    pub fn change(&self, target: Target, change: Change) {
        self.order(Order::Change(target, change));
    }

    /// Replaces whatever is still scheduled; the new schedule's clock starts now.
    pub fn play(&self, schedule: &Schedule) {
        self.order(Order::Play(schedule.steps().to_vec()));
    }

    /// Returns what every link has done so far.
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
    Change(Target, Change),
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

/// A direction: the device whose packets enter it, if any, its pipe, and where the pipe ends.
struct Line {
    device: Option<Tun>,
    shape: Shape,
    end: End,
}

/// Where a pipe ends.
#[derive(Clone)]
enum End {
    /// At the device of this line.
    Device(usize),
    /// In the core, which knows the line to each address.
    Core(Arc<HashMap<Ipv4Addr, usize>>),
}

/// What was read from a device.
struct Packet {
    bytes: Vec<u8>,
    on_wire: OnWire,
    to: Option<Ipv4Addr>,
}

/// The state of the engine's thread. Device and pipe `2 × link` belong to the near end:
/// what is read there travels up and is written to device `2 × link + 1`, and the other way round.
/// In a core network pipe `2 × link` ends in the core, and `2 × link + 1` at device `2 × link`.
struct Carrier {
    devices: Vec<Option<Tun>>,
    ends: Vec<End>,
    pipes: Vec<Pipe<Packet>>,
    /// When each pipe next has something; `u64::MAX` for never.
    due_ns: Vec<u64>,
    spare: Vec<Vec<u8>>,
    room: Box<[u8]>,
    ready: Ready,
    scheduled: VecDeque<(u64, Target, Change)>,
    shared: Arc<Shared>,
    clock: Instant,
}

impl Carrier {
    fn new(lines: Vec<Line>, seed: u64, shared: Arc<Shared>) -> Result<Self, LabError> {
        let mut devices = Vec::new();
        let mut ends = Vec::new();
        let mut pipes = Vec::new();
        for Line { device, shape, end } in lines {
            let own_seed = seed.wrapping_add((pipes.len() as u64).wrapping_mul(SEED_STEP));
            pipes.push(Pipe::new(shape, own_seed));
            devices.push(device);
            ends.push(end);
        }
        let mut ready = Ready::new()?;
        for (index, device) in devices.iter().enumerate() {
            if let Some(device) = device {
                ready.watch(device.as_raw_fd(), index)?;
            }
        }
        ready.watch(shared.wake.as_raw_fd(), devices.len())?;
        Ok(Self {
            due_ns: vec![u64::MAX; pipes.len()],
            devices,
            ends,
            pipes,
            spare: Vec::new(),
            room: vec![0; READ_BYTES_MAX].into(),
            ready,
            scheduled: VecDeque::new(),
            shared,
            clock: Instant::now(),
        })
    }

    fn run(mut self) {
        ask_for_priority();
        let mut last_turn_ns = 0;
        let mut cpu_read_ns = 0;
        while self.obey() {
            self.follow_schedule();
            self.deliver_due();
            if last_turn_ns >= cpu_read_ns + CPU_READ_EVERY_NS {
                self.shared.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
                cpu_read_ns = last_turn_ns;
            }
            sleep_ns((last_turn_ns + TURN.as_nanos() as u64).saturating_sub(self.now_ns()));
            self.wait();
            last_turn_ns = self.now_ns();
            for position in 0..self.ready.count {
                match self.ready.index(position) {
                    index if index < self.devices.len() => self.accept(index, last_turn_ns),
                    _ => self.shared.clear_wake(),
                }
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Carries out what other threads asked for; false when the end was among it.
    fn obey(&mut self) -> bool {
        let orders = std::mem::take(&mut *self.shared.orders());
        let now_ns = self.now_ns();
        for order in orders {
            match order {
                Order::Stop => return false,
                Order::Change(target, change) => self.reshape(now_ns, target, change),
                Order::Play(steps) => {
                    let planned = steps
                        .iter()
                        .map(|step| (now_ns + step.at.as_nanos() as u64, step.target, step.change));
                    self.scheduled = planned.collect();
                }
            }
        }
        true
    }

    fn follow_schedule(&mut self) {
        let now_ns = self.now_ns();
        while let Some(&(at_ns, target, change)) = self.scheduled.front()
            && at_ns <= now_ns
        {
            self.scheduled.pop_front();
            self.reshape(now_ns, target, change);
        }
    }

    fn reshape(&mut self, now_ns: u64, target: Target, change: Change) {
        for (side, direction) in [Direction::Up, Direction::Down].into_iter().enumerate() {
            let index = 2 * target.link + side;
            if target.includes(direction)
                && let Some(pipe) = self.pipes.get_mut(index)
            {
                pipe.reshape(now_ns, change.apply(*pipe.shape()));
                self.note_due(index);
            }
        }
    }

    fn note_due(&mut self, index: usize) {
        self.due_ns[index] = self.pipes[index].next_exit_ns().unwrap_or(u64::MAX);
    }

    fn deliver_due(&mut self) {
        let now_ns = self.now_ns();
        for index in 0..self.pipes.len() {
            if self.due_ns[index] <= now_ns {
                self.deliver(index);
                self.note_due(index);
            }
        }
    }

    /// Hands on every packet of one direction that is due: to the device at its other end, or from
    /// the core into the pipe to its destination.
    fn deliver(&mut self, index: usize) {
        let now_ns = self.now_ns();
        while let Some(exit) = self.pipes[index].poll(now_ns) {
            let counters = &self.shared.counters[index];
            let packet = match exit {
                Exit::Lost(packet) => {
                    add(&counters.lost, packet.on_wire.packets as u64);
                    self.reuse(packet);
                    continue;
                }
                Exit::Arrived(packet) => packet,
            };
            let OnWire { packets, bytes } = packet.on_wire;
            let (has_arrived, spare) = match &self.ends[index] {
                End::Device(device) => {
                    let device = self.devices[*device].as_ref();
                    (device.is_some_and(|device| device.send(&packet.bytes)), Some(packet))
                }
                End::Core(lines) => match packet.to.and_then(|to| lines.get(&to).copied()) {
                    None => (false, Some(packet)),
                    Some(line) => {
                        let refused = self.pipes[line].offer(now_ns, packet, bytes);
                        if refused.is_err() {
                            add(&self.shared.counters[line].dropped, packets as u64);
                        }
                        self.note_due(line);
                        (true, refused.err())
                    }
                },
            };
            let counters = &self.shared.counters[index];
            if has_arrived {
                add(&counters.packets, packets as u64);
                add(&counters.bytes, bytes as u64);
            } else {
                add(&counters.dropped, packets as u64);
            }
            spare.into_iter().for_each(|packet| self.reuse(packet));
        }
    }

    /// Reads what waits at one device into the pipe behind it.
    fn accept(&mut self, index: usize, now_ns: u64) {
        self.read_from(index, now_ns);
        self.note_due(index);
    }

    fn read_from(&mut self, index: usize, now_ns: u64) {
        for _ in 0..PACKETS_PER_READ {
            // A device that fails is one that goes away: nothing more will come from it.
            let Some(device) = &self.devices[index] else { return };
            let Ok(Some(length_bytes)) = device.receive(&mut self.room) else { return };
            let read = &self.room[..length_bytes];
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.extend_from_slice(read);
            let on_wire = device.on_wire(read);
            let packet = Packet { bytes, on_wire, to: destination(device.packet(read)) };
            if let Err(packet) = self.pipes[index].offer(now_ns, packet, on_wire.bytes) {
                add(&self.shared.counters[index].dropped, on_wire.packets as u64);
                self.reuse(packet);
            }
        }
    }

    /// Keeps the memory of a packet; many segments are rare, and would be much memory.
    fn reuse(&mut self, packet: Packet) {
        let mut bytes = packet.bytes;
        if bytes.capacity() <= SPARE_BYTES_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// Sleeps until a device is readable, an order came, or the next packet or step is due.
    fn wait(&mut self) {
        let exit_ns = self.due_ns.iter().copied().min().unwrap_or(u64::MAX);
        let step_ns = self.scheduled.front().map_or(u64::MAX, |&(at_ns, ..)| at_ns);
        let due_ns = exit_ns.min(step_ns);
        let limit_ns = (due_ns < u64::MAX).then(|| due_ns.saturating_sub(self.now_ns()));
        self.ready.wait(limit_ns);
    }
}

/// Which of many descriptors are readable, at a cost that grows with those that are.
struct Ready {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
    /// How many of `events` the last wait has filled.
    count: usize,
}

impl Ready {
    fn new() -> Result<Self, LabError> {
        // SAFETY: epoll_create1 has no preconditions.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(LabError::last_os("make an epoll descriptor"));
        }
        // SAFETY: the descriptor is fresh and owned by nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { epoll, events: Vec::new(), count: 0 })
    }

    /// Watches a descriptor, which [`index`](Self::index) calls `index`.
    fn watch(&mut self, fd: RawFd, index: usize) -> Result<(), LabError> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: index as u64 };
        self.events.push(event);
        // SAFETY: both descriptors are open, and the event outlives the call.
        let result =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        if result < 0 { Err(LabError::last_os("watch a device")) } else { Ok(()) }
    }

    /// Waits until something is readable or the time is over.
    fn wait(&mut self, limit_ns: Option<u64>) {
        let timeout = limit_ns.map(timespec);
        let timeout_pointer = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let epoll = self.epoll.as_raw_fd();
        let mut any = libc::pollfd { fd: epoll, events: libc::POLLIN, revents: 0 };
        let room = libc::c_int::try_from(self.events.len()).unwrap_or(libc::c_int::MAX);
        // epoll by itself waits for whole milliseconds, so it is ppoll that waits.
        // SAFETY: one live, exclusive entry, a timeout that outlives the call, and an array of
        // the length that is told. What is interrupted finds nothing, which costs an empty turn.
        let count = unsafe {
            libc::ppoll(&mut any, 1, timeout_pointer, std::ptr::null());
            libc::epoll_wait(epoll, self.events.as_mut_ptr(), room, 0)
        };
        self.count = usize::try_from(count).unwrap_or(0);
    }

    /// Returns which descriptor the event at a position below `count` is about.
    fn index(&self, position: usize) -> usize {
        // The value is copied: the field may not be aligned.
        let event = self.events[position];
        event.u64 as usize
    }
}

/// Returns the destination address of an IPv4 packet (RFC 791, section 3.1).
fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    (packet[0] >> 4 == 4).then(|| Ipv4Addr::from(address))
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

/// Largest buffer that is used again.
const SPARE_BYTES_MAX: usize = 2 * MTU_BYTES;

/// Reads from one device before the others get their turn.
const PACKETS_PER_READ: usize = 256;

/// Low among real-time priorities: above everything ordinary, below the kernel's own threads.
const PRIORITY: libc::c_int = 5;

/// How often the published processor time is renewed.
const CPU_READ_EVERY_NS: u64 = 10_000_000;

/// Distance between the seeds of two pipes; any odd number far from small ones will do.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
