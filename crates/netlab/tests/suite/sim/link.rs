//! One network path: a rate, a delay, a queue, and the windows of the connections on it.
//!
//! A fluid model in small steps of virtual time. Each connection ([`Flow`]) may have a window of
//! bytes on the way; the window doubles every round trip from ten packets until the queue first
//! overflows or a packet is lost, then it is cut and grows slowly. All connections of a link share
//! one queue, drained at the link's rate. No byte is ever lost or reordered: a loss costs window,
//! and what comes behind it waits until the lost packet would have come again ([`Holes`]).

use std::collections::VecDeque;

use swath_model::{LaneId, Time};

use super::holes::Holes;

/// What a link is like.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// Payload bytes per second.
    pub rate_bytes_per_s: f64,
    /// One-way delay in seconds.
    pub delay_s: f64,
    /// Length of the queue in seconds at the initial rate.
    pub queue_s: f64,
    /// Largest window of one connection in bytes (a sender's or a receiver's buffer).
    pub window_cap_bytes: Option<u64>,
    /// Probability that a packet is lost; each loss cuts its connection's window and stops its
    /// receiver for a round trip.
    pub loss: f64,
}

/// One connection on a link, as its sender sees it.
#[derive(Debug)]
struct Flow {
    lane: LaneId,
    /// Handed to the sender, not sent yet.
    pending_bytes: u64,
    in_flight_bytes: u64,
    window_bytes: f64,
    threshold_bytes: f64,
    last_cut: Time,
    /// The receiver does not read.
    paused: bool,
    /// The window, not the application, was the limit at the last step.
    limited: bool,
    /// What its receiver has and cannot read.
    holes: Holes,
}

/// Some bytes of one connection on their way.
#[derive(Clone, Copy, Debug)]
struct Parcel {
    lane: LaneId,
    bytes: u64,
    /// Its first packet is lost, and the packet sent in its place as well if this is 2.
    losses: u32,
}

/// A link and everything on it.
#[derive(Debug)]
pub(super) struct Link {
    pub rate_bytes_per_s: f64,
    pub delay_s: f64,
    queue_limit_bytes: u64,
    window_cap_bytes: f64,
    loss: f64,
    silent_since: Option<Time>,
    flows: Vec<Flow>,
    queue: VecDeque<Parcel>,
    queued_bytes: u64,
    carry_bytes: f64,
    flight: VecDeque<(Time, Parcel)>,
    acks: VecDeque<(Time, LaneId, u64)>,
}

impl Link {
    pub fn new(spec: &LinkSpec) -> Self {
        Self {
            rate_bytes_per_s: spec.rate_bytes_per_s,
            delay_s: spec.delay_s,
            queue_limit_bytes: ((spec.rate_bytes_per_s * spec.queue_s) as u64)
                .max(20 * PACKET_BYTES),
            window_cap_bytes: spec.window_cap_bytes.map_or(f64::INFINITY, |cap| cap as f64),
            loss: spec.loss,
            silent_since: None,
            flows: Vec::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            carry_bytes: 0.0,
            flight: VecDeque::new(),
            acks: VecDeque::new(),
        }
    }

    pub fn rtt_s(&self) -> f64 {
        2.0 * self.delay_s
    }

    pub fn is_silent(&self) -> bool {
        self.silent_since.is_some()
    }

    /// Nothing passes any more, or everything goes on. After a longer silence the senders begin
    /// again with small windows, as they do after a retransmission time-out.
    pub fn set_silent(&mut self, silent: bool, now: Time) {
        match (silent, self.silent_since) {
            (true, None) => self.silent_since = Some(now),
            (false, Some(since)) => {
                self.silent_since = None;
                let lasted = now.since(since);
                for parcel in &mut self.flight {
                    parcel.0 = parcel.0 + lasted;
                }
                for ack in &mut self.acks {
                    ack.0 = ack.0 + lasted;
                }
                for flow in &mut self.flows {
                    flow.holes.delay(lasted);
                }
                if lasted.as_secs_f64() > TIMEOUT_S {
                    for flow in &mut self.flows {
                        flow.threshold_bytes = (flow.window_bytes / 2.0).max(FIRST_WINDOW_BYTES);
                        flow.window_bytes = FIRST_WINDOW_BYTES;
                    }
                }
            }
            _ => {}
        }
    }

    pub fn open(&mut self, lane: LaneId) {
        self.flows.push(Flow {
            lane,
            pending_bytes: 0,
            in_flight_bytes: 0,
            window_bytes: FIRST_WINDOW_BYTES.min(self.window_cap_bytes),
            threshold_bytes: f64::INFINITY,
            last_cut: Time::ZERO,
            paused: false,
            limited: false,
            holes: Holes::default(),
        });
    }

    /// A connection is gone; what it has on the way still crosses the link.
    pub fn close(&mut self, lane: LaneId) {
        self.flows.retain(|flow| flow.lane != lane);
        let (queued, landing) = (
            self.queue.iter_mut().map(|it| &mut it.lane),
            self.flight.iter_mut().map(|it| &mut it.1.lane),
        );
        for parcel in queued
            .chain(landing)
            .chain(self.acks.iter_mut().map(|it| &mut it.1))
            .filter(|it| **it == lane)
        {
            *parcel = NOBODY;
        }
    }

    /// The server hands `bytes` more to a connection.
    pub fn send(&mut self, lane: LaneId, bytes: u64) {
        if let Some(flow) = self.flows.iter_mut().find(|flow| flow.lane == lane) {
            flow.pending_bytes = flow.pending_bytes.saturating_add(bytes);
        }
    }

    pub fn pause(&mut self, lane: LaneId, paused: bool) {
        if let Some(flow) = self.flows.iter_mut().find(|flow| flow.lane == lane) {
            flow.paused = paused;
        }
    }

    /// Returns what of a connection has arrived and waits behind a loss.
    pub fn out_of_order_bytes(&self, lane: LaneId) -> u64 {
        self.flows.iter().find(|flow| flow.lane == lane).map_or(0, |flow| flow.holes.bytes())
    }

    /// Returns whether nothing would happen however long one waits.
    pub fn is_idle(&self) -> bool {
        let moving = self
            .flows
            .iter()
            .any(|flow| (flow.pending_bytes > 0 && !flow.paused) || !flow.holes.is_empty());
        self.silent_since.is_some()
            || (!moving && self.queue.is_empty() && self.flight.is_empty() && self.acks.is_empty())
    }

    /// The `step_s` seconds up to `now` pass; appends what arrived at the client to `arrived`.
    pub fn step(
        &mut self,
        now: Time,
        step_s: f64,
        rng: &mut fastrand::Rng,
        arrived: &mut Vec<(LaneId, u64)>,
    ) {
        if self.silent_since.is_some() {
            return;
        }
        self.take_acks(now);
        self.fill_queue(now, rng);
        self.drain_queue(now, step_s);
        for flow in &mut self.flows {
            let bytes = flow.holes.fill(now);
            if bytes > 0 {
                arrived.push((flow.lane, bytes));
            }
        }
        while let Some(&(at, Parcel { lane, bytes, losses })) = self.flight.front() {
            if at > now {
                break;
            }
            self.flight.pop_front();
            self.acks.push_back((now.plus_secs(self.delay_s), lane, bytes));
            let Some(flow) = self.flows.iter_mut().find(|flow| flow.lane == lane) else {
                arrived.push((lane, bytes));
                continue;
            };
            if losses > 0 {
                let queue_s = self.queued_bytes as f64 / self.rate_bytes_per_s.max(1.0);
                let repair_s = REPAIR_ROUND_TRIPS * 2.0 * self.delay_s + queue_s;
                flow.holes.open(now.plus_secs(f64::from(losses) * repair_s));
            }
            let bytes = flow.holes.arrive(bytes);
            if bytes > 0 {
                arrived.push((lane, bytes));
            }
        }
    }

    fn take_acks(&mut self, now: Time) {
        while let Some(&(at, lane, bytes)) = self.acks.front() {
            if at > now {
                break;
            }
            self.acks.pop_front();
            let cap_bytes = self.window_cap_bytes;
            let Some(flow) = self.flows.iter_mut().find(|flow| flow.lane == lane) else { continue };
            flow.in_flight_bytes = flow.in_flight_bytes.saturating_sub(bytes);
            if !flow.limited {
                continue;
            }
            let acked = bytes as f64;
            flow.window_bytes += if flow.window_bytes < flow.threshold_bytes {
                acked
            } else {
                acked * (AVOIDANCE + PACKET_BYTES as f64 / flow.window_bytes)
            };
            flow.window_bytes = flow.window_bytes.min(cap_bytes);
        }
    }

    fn fill_queue(&mut self, now: Time, rng: &mut fastrand::Rng) {
        let sendable = |flow: &Flow| {
            if flow.paused {
                return 0;
            }
            let window_bytes = flow.window_bytes as u64;
            flow.pending_bytes.min(window_bytes.saturating_sub(flow.in_flight_bytes))
        };
        let total_bytes: u64 = self.flows.iter().map(sendable).sum();
        let room_bytes = self.queue_limit_bytes.saturating_sub(self.queued_bytes);
        let rtt_s = self.rtt_s() + self.queued_bytes as f64 / self.rate_bytes_per_s.max(1.0);
        for flow in &mut self.flows {
            let want_bytes = sendable(flow);
            flow.limited = flow.pending_bytes > want_bytes;
            if want_bytes == 0 {
                continue;
            }
            let bytes = if total_bytes <= room_bytes {
                want_bytes
            } else {
                (want_bytes as f64 * room_bytes as f64 / total_bytes as f64) as u64
            };
            let packets = bytes as f64 / PACKET_BYTES as f64;
            let holed = self.loss > 0.0 && rng.f64() < 1.0 - (1.0 - self.loss).powf(packets);
            let losses = u32::from(holed) + u32::from(holed && rng.f64() < self.loss);
            if (bytes < want_bytes || holed) && now.secs_since(flow.last_cut) > rtt_s {
                flow.last_cut = now;
                flow.window_bytes = (CUT * flow.window_bytes).max(2.0 * PACKET_BYTES as f64);
                flow.threshold_bytes = flow.window_bytes;
            }
            if bytes > 0 {
                flow.pending_bytes -= bytes;
                flow.in_flight_bytes += bytes;
                self.queued_bytes += bytes;
                self.queue.push_back(Parcel { lane: flow.lane, bytes, losses });
            }
        }
    }

    fn drain_queue(&mut self, now: Time, step_s: f64) {
        self.carry_bytes += self.rate_bytes_per_s * step_s;
        let lands_at = now.plus_secs(self.delay_s);
        while let Some(parcel) = self.queue.front_mut() {
            let part = parcel.bytes.min(self.carry_bytes as u64);
            if part == 0 {
                return;
            }
            self.carry_bytes -= part as f64;
            self.queued_bytes -= part;
            self.flight.push_back((lands_at, Parcel { bytes: part, ..*parcel }));
            parcel.losses = 0;
            parcel.bytes -= part;
            if parcel.bytes == 0 {
                self.queue.pop_front();
            }
        }
        // An idle link saves no rate for later.
        self.carry_bytes = self.carry_bytes.min(PACKET_BYTES as f64);
    }
}

/// Whose parcels are that nobody waits for any more.
const NOBODY: LaneId = LaneId(u32::MAX);
/// Payload of a packet.
const PACKET_BYTES: u64 = 1448;
/// Ten packets, as Linux begins (RFC 6928).
const FIRST_WINDOW_BYTES: f64 = (10 * PACKET_BYTES) as f64;
/// What remains of a window after a loss (CUBIC, RFC 9438).
const CUT: f64 = 0.7;
/// Growth per round trip once slow start is over: between CUBIC's and BBR's probing.
const AVOIDANCE: f64 = 0.05;
/// After so many round trips a lost packet comes again: it is missed when the next ones have come.
const REPAIR_ROUND_TRIPS: f64 = 1.1;
/// Smallest retransmission time-out of Linux.
const TIMEOUT_S: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns bytes that one connection brings within `seconds`.
    fn carried(spec: &LinkSpec, seconds: f64) -> u64 {
        let mut link = Link::new(spec);
        let mut rng = fastrand::Rng::with_seed(1);
        link.open(LaneId(0));
        link.send(LaneId(0), u64::MAX / 2);
        let mut arrived = Vec::new();
        for step in 1..=(seconds * 1000.0) as u64 {
            link.step(Time::from_millis(step), 0.001, &mut rng, &mut arrived);
        }
        arrived.iter().map(|(_, bytes)| bytes).sum()
    }

    fn spec() -> LinkSpec {
        LinkSpec {
            rate_bytes_per_s: 10e6,
            delay_s: 0.02,
            queue_s: 0.1,
            window_cap_bytes: None,
            loss: 0.0,
        }
    }

    #[test]
    fn a_connection_ramps_up_and_then_fills_the_link() {
        let early = carried(&spec(), 0.1);
        assert!((28_000..150_000).contains(&early), "two or three doublings of 14 kB: {early}");
        let rate = (carried(&spec(), 10.0) - carried(&spec(), 2.0)) as f64 / 8.0;
        assert!((0.97e7..=1.001e7).contains(&rate), "{rate}");
    }

    #[test]
    fn a_window_cap_and_losses_limit_a_connection() {
        let capped =
            carried(&LinkSpec { window_cap_bytes: Some(64 << 10), ..spec() }, 5.0) as f64 / 5.0;
        assert!((1.2e6..1.7e6).contains(&capped), "64 KiB every 40 ms: {capped}");
        let lossy = carried(&LinkSpec { loss: 0.02, ..spec() }, 5.0) as f64 / 5.0;
        assert!(lossy < 5e6, "{lossy}");
    }
}
