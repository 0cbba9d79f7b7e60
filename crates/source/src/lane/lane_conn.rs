//! One connection in use by a lane, and waiting for orders, data and time at once.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use swath_model::Buffer;
use swath_model::pool::Take;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Command;
use super::asks::Ask;
use super::delivery::Delivery;
use super::out_of_order::OutOfOrder;
use crate::host_table::Presence;
use crate::net::{Conn, Http1Conn};

/// A connection in use.
pub(super) struct LaneConn {
    pub http: Http1Conn,
    /// Writing failed; what the server still has to say is read nevertheless.
    pub write_broken: bool,
    /// Something came since this lane has the connection.
    pub heard: bool,
    /// The server said that it answers so many more requests, those already sent included.
    pub answers_left: Option<u64>,
    /// The body that is passing.
    pub passing: Option<Passing>,
    /// It counts as one to its host.
    pub presence: Option<Presence>,
    /// When this lane got the connection.
    pub begun: Instant,
    pub last_progress: Instant,
    out_of_order: OutOfOrder,
    /// Bytes come fast; what came since when.
    fast: bool,
    window_begin: Instant,
    window_bytes: u64,
    timer: Pin<Box<Sleep>>,
    scratch: Vec<u8>,
}

/// A body on its way through a lane.
pub(super) struct Passing {
    /// Offset in the file of the next payload byte.
    pub at: u64,
    /// Offset just after the announced data.
    pub ends_at: Option<u64>,
    pub kind: Kind,
}

/// What a body is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Exactly the front ask's range.
    Range,
    /// The whole file from its start: serves one ask after the other, as far as it goes.
    Stream,
    /// Thrown away; the front ask is settled.
    Settled,
    /// Thrown away; the front ask is to be asked again.
    Again,
}

/// What a lane waits for, besides orders and time.
pub(super) enum Want<'a> {
    /// Payload of this ask, at most so many bytes, straight into its buffer.
    Payload(&'a Ask, u64),
    /// So many bytes at most, to throw away.
    Skip(u64),
    /// Anything, to be understood; at least so many bytes are to come.
    Input(u64),
    /// The same where nothing is owed: the connection rests.
    Rest,
    /// A buffer of the pool.
    Buffer(&'a mut Take),
    /// This moment, because of the rate limit.
    Until(Instant),
    /// Nothing: the rest of a body is left where it is until somebody wants it.
    Nothing,
}

/// What woke a lane.
pub(super) enum Wake {
    /// An order; `None` if the handle is gone.
    Order(Option<Command>),
    /// Bytes were read (or thrown away) as wanted; 0 is the end of the connection.
    Read(io::Result<usize>),
    /// Bytes are there, but there is no buffer to read them into.
    Readable,
    /// The buffer waited for.
    Buffer(Buffer),
    /// Time has passed.
    Tick,
}

/// How often a waiting lane looks around.
pub(super) const TICK: Duration = Duration::from_millis(250);

impl LaneConn {
    pub fn new(conn: Conn) -> LaneConn {
        let now = Instant::now();
        LaneConn {
            out_of_order: OutOfOrder::new(&conn, now),
            http: Http1Conn::new(conn),
            write_broken: false,
            heard: false,
            answers_left: None,
            passing: None,
            presence: None,
            begun: now,
            last_progress: now,
            fast: false,
            window_begin: now,
            window_bytes: 0,
            timer: Box::pin(sleep_until(now + TICK)),
            scratch: Vec::new(),
        }
    }

    /// Sends what is queued and waits for an order, for what is wanted, or for time to pass.
    pub async fn wait(
        &mut self,
        orders: &mut UnboundedReceiver<Command>,
        out: &mut Delivery,
        mut want: Want<'_>,
    ) -> Wake {
        let mut listens = false;
        match want {
            Want::Until(due) => self.timer.as_mut().reset(due.min(Instant::now() + TICK)),
            Want::Payload(_, coming) | Want::Skip(coming) | Want::Input(coming) => {
                self.set_low_water(coming);
                listens = self.out_of_order.knows();
            }
            Want::Rest => self.set_low_water(0),
            Want::Buffer(_) | Want::Nothing => {}
        }
        // What stops short of the mark must not lie there for long: it would look like silence.
        if self.fast && self.timer.deadline() > self.last_progress + FAST_TICK {
            self.timer.as_mut().reset(self.last_progress + FAST_TICK);
        }
        if listens && self.timer.deadline() > self.out_of_order.due(self.last_progress) {
            self.timer.as_mut().reset(self.out_of_order.due(self.last_progress));
        }
        poll_fn(|cx| {
            if let Poll::Ready(order) = orders.poll_recv(cx) {
                return Poll::Ready(Wake::Order(order));
            }
            self.poll_send(cx);
            if let Poll::Ready(wake) = self.poll_want(cx, out, &mut want) {
                return Poll::Ready(wake);
            }
            if self.timer.as_mut().poll(cx).is_ready() {
                let now = Instant::now();
                if listens && now >= self.out_of_order.due(self.last_progress) {
                    self.out_of_order.look(self.http.conn(), now);
                    out.meter.note_out_of_order(self.out_of_order.bytes());
                }
                if self.fast && now.duration_since(self.last_progress) < SLOW_GAP {
                    self.timer.as_mut().reset(now + FAST_TICK);
                    return Poll::Ready(Wake::Tick);
                }
                self.timer.as_mut().reset(now + TICK);
                // What is below the mark must not stay in the socket.
                self.slow_down();
                return Poll::Ready(Wake::Tick);
            }
            Poll::Pending
        })
        .await
    }

    /// Before something is read of which at least `coming_bytes` are still to come: sleep until a
    /// good deal of it is there, if bytes come fast. Never until more than can come.
    fn set_low_water(&mut self, coming_bytes: u64) {
        // What TLS holds already does not come any more.
        let held = if self.http.conn().is_plain() { 0 } else { TLS_HOLDS_BYTES };
        let mark =
            if self.fast { LOW_WATER_BYTES.min(coming_bytes.saturating_sub(held)) } else { 1 };
        self.http.conn_mut().set_low_water(usize::try_from(mark).unwrap_or(1));
    }

    /// Every byte wakes the lane again.
    fn slow_down(&mut self) {
        self.fast = false;
        self.http.conn_mut().set_low_water(1);
    }

    /// `bytes` came: note when, and whether they come fast; answers how long nothing had come.
    fn progress(&mut self, bytes: usize) -> Duration {
        let now = Instant::now();
        self.heard = true;
        let paused = now.duration_since(self.last_progress);
        if now.duration_since(self.last_progress) > SLOW_GAP {
            self.fast = false;
            (self.window_begin, self.window_bytes) = (now, 0);
        }
        self.last_progress = now;
        self.window_bytes += bytes as u64;
        let window = now.duration_since(self.window_begin);
        if window >= WINDOW {
            self.fast = self.window_bytes as f64 >= FAST_BYTES_PER_S * window.as_secs_f64();
            (self.window_begin, self.window_bytes) = (now, 0);
        }
        paused
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) {
        let unsent_bytes = self.http.unsent_bytes();
        if unsent_bytes == 0 || self.write_broken {
            return;
        }
        self.write_broken = matches!(self.http.poll_send(cx), Poll::Ready(Err(_)));
        if self.http.unsent_bytes() < unsent_bytes {
            self.last_progress = Instant::now();
        }
    }

    fn poll_want(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Delivery,
        want: &mut Want<'_>,
    ) -> Poll<Wake> {
        let read = match want {
            Want::Nothing | Want::Until(_) => return Poll::Pending,
            Want::Buffer(take) => return Pin::new(&mut **take).poll(cx).map(Wake::Buffer),
            Want::Payload(..) if !out.has_buffer() => {
                return self.http.conn().poll_readable(cx).map(|result| match result {
                    Ok(()) => Wake::Readable,
                    Err(error) => Wake::Read(Err(error)),
                });
            }
            Want::Payload(ask, limit) => self.http.poll_payload(cx, out.room(ask, *limit)),
            Want::Skip(limit) => {
                if self.scratch.is_empty() && !self.http.conn().is_plain() {
                    self.scratch.resize(SCRATCH_BYTES, 0);
                }
                self.http.poll_skip(cx, &mut self.scratch, *limit)
            }
            Want::Input(_) | Want::Rest => self.http.poll_fill(cx),
        };
        read.map(|result| {
            if let Ok(bytes) = result
                && bytes > 0
            {
                let paused = self.progress(bytes);
                if paused > PAUSE {
                    out.meter.count_pause(paused);
                }
                self.out_of_order.read(self.http.conn(), self.last_progress);
                out.meter.note_out_of_order(self.out_of_order.bytes());
            }
            Wake::Read(result)
        })
    }
}

/// At high rates a lane sleeps until this much is there: about a sixth less CPU time for each
/// byte, measured over loopback.
const LOW_WATER_BYTES: u64 = 256 * 1024;
/// What lies between the socket and the reader of a TLS connection, at most.
const TLS_HOLDS_BYTES: u64 = 512 * 1024;
/// The rate is high from here on; it is looked at this often …
const FAST_BYTES_PER_S: f64 = 60e6;
const WINDOW: Duration = Duration::from_millis(2);
/// … and no longer high when nothing comes for so long.
const SLOW_GAP: Duration = Duration::from_millis(10);
/// How often a lane looks around while bytes come fast: well below the 150 ms that the planner
/// takes for silence.
const FAST_TICK: Duration = Duration::from_millis(30);

/// A gap between two reads that counts as a pause of the sender.
const PAUSE: Duration = Duration::from_millis(5);

/// Room for what is thrown away from a TLS connection.
const SCRATCH_BYTES: usize = 64 * 1024;
