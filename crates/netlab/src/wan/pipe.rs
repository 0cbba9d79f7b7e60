//! One direction of a link as a pure state machine: a drop-tail queue, a transmitter, a wire.
//!
//! A packet is offered at a time, waits in the queue, is serialised at the rate, may be lost,
//! travels for the delay and comes out. Times are nanoseconds on the caller's clock and never go
//! backwards. Serialisation is exact: each packet starts where the one before it ended, however
//! late the caller polls, so the long-run rate has no error. A change of rate applies to the
//! rest of the packet in the transmitter and to all behind it. Order is kept, also when the
//! delay shrinks.

use std::collections::VecDeque;
use std::time::Duration;

/// How much a direction holds back before it drops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// As much as the link carries in this time at its present rate.
    Time(Duration),
    /// This many bytes, IP headers included.
    Bytes(u64),
}

/// What one direction of a link does to packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Bits a second on the wire, IP header included.
    pub rate_bits_per_s: u64,
    /// From the end of serialisation to arrival.
    pub one_way_delay: Duration,
    /// Probability that a packet is lost after it was sent, 0 to 1.
    pub loss: f64,
    /// Limit of the queue; a packet is always taken while fewer than two wait.
    pub queue: Queue,
    /// Everything inside and everything offered disappears.
    pub silent: bool,
}

impl Shape {
    /// Returns a clean link with a queue of 100 ms.
    pub fn new(rate_bits_per_s: u64, one_way_delay: Duration) -> Self {
        Self {
            rate_bits_per_s,
            one_way_delay,
            loss: 0.0,
            queue: Queue::Time(Duration::from_millis(100)),
            silent: false,
        }
    }

    fn serialisation_ns(&self, length_bytes: usize) -> u64 {
        (length_bytes as u64 * 8 * NS_PER_S) / self.rate_bits_per_s.max(1)
    }

    fn queue_limit_bytes(&self) -> u64 {
        match self.queue {
            Queue::Bytes(limit_bytes) => limit_bytes,
            Queue::Time(limit) => {
                (u128::from(self.rate_bits_per_s) * limit.as_nanos() / 8 / u128::from(NS_PER_S))
                    as u64
            }
        }
    }
}

/// How a packet leaves a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit<P> {
    /// It arrives now.
    Arrived(P),
    /// It was lost on the wire; the buffer may be used again.
    Lost(P),
}

/// One direction of a link. `P` is whatever carries a packet's bytes.
#[derive(Debug)]
pub struct Pipe<P> {
    shape: Shape,
    waiting: VecDeque<(P, usize)>,
    waiting_bytes: u64,
    /// When the packet at the head of `waiting` is wholly on the wire.
    head_sent_ns: u64,
    travelling: VecDeque<Travelling<P>>,
    last_arrival_ns: u64,
    random: fastrand::Rng,
}

#[derive(Debug)]
struct Travelling<P> {
    arrival_ns: u64,
    packet: P,
    lost: bool,
}

impl<P> Pipe<P> {
    /// An empty pipe; `seed` decides which packets are lost.
    pub fn new(shape: Shape, seed: u64) -> Self {
        Self {
            shape,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            head_sent_ns: 0,
            travelling: VecDeque::new(),
            last_arrival_ns: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Returns what the pipe does at present.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Offers a packet at `now_ns`; gives it back when the queue is full or the link silent.
    pub fn offer(&mut self, now_ns: u64, packet: P, length_bytes: usize) -> Result<(), P> {
        if self.shape.silent {
            return Err(packet);
        }
        self.transmit_until(now_ns);
        let filled_bytes = self.waiting_bytes + length_bytes as u64;
        if self.waiting.len() >= 2 && filled_bytes > self.shape.queue_limit_bytes() {
            return Err(packet);
        }
        if self.waiting.is_empty() {
            self.head_sent_ns = now_ns + self.shape.serialisation_ns(length_bytes);
        }
        self.waiting.push_back((packet, length_bytes));
        self.waiting_bytes = filled_bytes;
        Ok(())
    }

    /// Returns the next packet that leaves at or before `now_ns`.
    pub fn poll(&mut self, now_ns: u64) -> Option<Exit<P>> {
        self.transmit_until(now_ns);
        if self.travelling.front()?.arrival_ns > now_ns {
            return None;
        }
        let Travelling { packet, lost, .. } = self.travelling.pop_front()?;
        Some(if lost { Exit::Lost(packet) } else { Exit::Arrived(packet) })
    }

    /// Returns when [`poll`](Self::poll) next has something, if nothing else happens.
    pub fn next_exit_ns(&self) -> Option<u64> {
        if let Some(first) = self.travelling.front() {
            return Some(first.arrival_ns);
        }
        (!self.waiting.is_empty()).then(|| self.arrival_after(self.head_sent_ns))
    }

    /// Changes what the pipe does from `now_ns` on.
    pub fn reshape(&mut self, now_ns: u64, shape: Shape) {
        self.transmit_until(now_ns);
        if shape.silent {
            self.waiting.clear();
            self.waiting_bytes = 0;
            self.travelling.clear();
        }
        if !self.waiting.is_empty() {
            let rest_ns = u128::from(self.head_sent_ns.saturating_sub(now_ns));
            let old_rate = u128::from(self.shape.rate_bits_per_s.max(1));
            let new_rate = u128::from(shape.rate_bits_per_s.max(1));
            self.head_sent_ns = now_ns + (rest_ns * old_rate / new_rate) as u64;
        }
        self.shape = shape;
    }

    /// Moves every packet that is wholly sent by `now_ns` from the queue to the wire.
    fn transmit_until(&mut self, now_ns: u64) {
        while self.head_sent_ns <= now_ns {
            let Some((packet, length_bytes)) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= length_bytes as u64;
            let arrival_ns = self.arrival_after(self.head_sent_ns);
            self.last_arrival_ns = arrival_ns;
            let lost = self.shape.loss > 0.0 && self.random.f64() < self.shape.loss;
            self.travelling.push_back(Travelling { arrival_ns, packet, lost });
            if let Some((_, next_bytes)) = self.waiting.front() {
                self.head_sent_ns += self.shape.serialisation_ns(*next_bytes);
            }
        }
    }

    fn arrival_after(&self, sent_ns: u64) -> u64 {
        let delay_ns = self.shape.one_way_delay.as_nanos() as u64;
        (sent_ns + delay_ns).max(self.last_arrival_ns)
    }
}

const NS_PER_S: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// 12 Mbit/s: a packet of 1,500 bytes takes 1 ms.
    fn shape() -> Shape {
        Shape::new(12_000_000, Duration::from_millis(10))
    }

    fn drain(pipe: &mut Pipe<u32>, now_ns: u64) -> Vec<u32> {
        let mut out = Vec::new();
        while let Some(exit) = pipe.poll(now_ns) {
            if let Exit::Arrived(packet) = exit {
                out.push(packet);
            }
        }
        out
    }

    #[test]
    fn a_packet_takes_serialisation_plus_delay() {
        let mut pipe = Pipe::new(shape(), 1);
        pipe.offer(0, 7, 1500).unwrap();
        pipe.offer(0, 8, 1500).unwrap();
        assert_eq!(pipe.next_exit_ns(), Some(11 * MS));
        assert_eq!(drain(&mut pipe, 11 * MS - 1), []);
        assert_eq!(drain(&mut pipe, 11 * MS), [7]);
        assert_eq!(pipe.next_exit_ns(), Some(12 * MS));
        assert_eq!(drain(&mut pipe, 12 * MS), [8]);
        assert_eq!(pipe.next_exit_ns(), None);
    }

    #[test]
    fn late_polling_does_not_slow_the_link() {
        let mut pipe = Pipe::new(shape(), 1);
        for packet in 0..50 {
            pipe.offer(0, packet, 1500).unwrap();
        }
        // Nobody polls for 40 ms; the packets due by then are out at once, and the others keep
        // their place.
        assert_eq!(drain(&mut pipe, 40 * MS).len(), 30);
        assert_eq!(drain(&mut pipe, 60 * MS).len(), 20);
    }

    #[test]
    fn the_queue_drops_its_tail_at_the_limit() {
        let mut pipe = Pipe::new(shape(), 1);
        let taken = (0..300).filter(|&packet| pipe.offer(0, packet, 1500).is_ok()).count();
        assert_eq!(taken, 100, "100 ms at 1 ms a packet");
        // 30 ms later thirty places are free.
        let taken = (0..300).filter(|&packet| pipe.offer(30 * MS, packet, 1500).is_ok()).count();
        assert_eq!(taken, 30);
    }

    #[test]
    fn a_new_rate_applies_to_what_already_waits() {
        let mut pipe = Pipe::new(shape(), 1);
        pipe.offer(0, 1, 1500).unwrap();
        pipe.offer(0, 2, 1500).unwrap();
        // Half of the first packet is out when the rate falls to a tenth.
        pipe.reshape(MS / 2, Shape { rate_bits_per_s: 1_200_000, ..shape() });
        assert_eq!(drain(&mut pipe, 15 * MS + MS / 2), [1]);
        assert_eq!(drain(&mut pipe, 25 * MS + MS / 2), [2]);
    }

    #[test]
    fn a_shorter_delay_keeps_the_order() {
        let mut pipe = Pipe::new(shape(), 1);
        pipe.offer(0, 1, 1500).unwrap();
        pipe.reshape(2 * MS, Shape { one_way_delay: Duration::ZERO, ..shape() });
        pipe.offer(2 * MS, 2, 1500).unwrap();
        assert_eq!(drain(&mut pipe, 5 * MS), []);
        assert_eq!(drain(&mut pipe, 11 * MS), [1, 2]);
    }

    #[test]
    fn silence_swallows_everything_and_ends() {
        let mut pipe = Pipe::new(shape(), 1);
        pipe.offer(0, 1, 1500).unwrap();
        pipe.reshape(MS, Shape { silent: true, ..shape() });
        assert_eq!(pipe.offer(2 * MS, 2, 1500), Err(2));
        assert_eq!(pipe.next_exit_ns(), None);
        pipe.reshape(3 * MS, shape());
        pipe.offer(3 * MS, 3, 1500).unwrap();
        assert_eq!(drain(&mut pipe, 100 * MS), [3]);
    }

    #[test]
    fn loss_is_near_its_probability_and_repeats_with_its_seed() {
        let run = |seed| {
            let mut pipe =
                Pipe::new(Shape { loss: 0.02, queue: Queue::Bytes(u64::MAX), ..shape() }, seed);
            for packet in 0..20_000 {
                pipe.offer(0, packet, 1500).unwrap();
            }
            drain(&mut pipe, u64::MAX / 2)
        };
        let arrived = run(5);
        assert!((19_500..19_700).contains(&arrived.len()), "{} arrived", arrived.len());
        assert_eq!(arrived, run(5));
        assert_ne!(arrived, run(6));
    }
}
