//! What a lane was asked for and how far it has come.
//!
//! A lane answers in the order of asking. `received` is the meter of the real lane (every body
//! byte, drained ones too); the first slot began when it stood at `base`, so positions follow
//! from arithmetic and need no event per read.

use std::collections::VecDeque;

use swath_model::{Range, SwathId, Time};

/// One swath on a lane.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub swath: SwathId,
    pub start: u64,
    /// Where it ends now, after trimming.
    pub end: u64,
    /// Where the request ends that was sent.
    pub asked_end: u64,
    pub asked_at: Time,
    /// Everything before this was delivered by this slot (or was here already).
    pub delivered_to: u64,
    /// Behind its own bytes so many of swaths that ended before their turn must pass.
    pub trailing_bytes: u64,
}

/// The requests of one lane, and what has come of them.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub queue: VecDeque<Slot>,
    /// Whether a second request may leave before the first answer has ended.
    pub pipelines: bool,
    /// Every answer is the whole file: what lies before a range has to be skipped.
    pub streams: bool,
    /// What has come so far, wanted or not.
    pub received: u64,
    /// The same with what waits behind a loss.
    pub(super) reached: u64,
    pub(super) base: u64,
    /// Everything before `base` has passed: what began the queue was delivered to its end.
    settled: bool,
    /// Where the meter stood when the whole-file answer began.
    stream_base: u64,
    /// Bytes were received since the queue was last empty.
    pub(super) burst: bool,
    /// When it was asked while it was idle, as long as that has not been answered.
    pub(super) asked_idle_at: Option<Time>,
}

impl Default for Pipe {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            pipelines: true,
            streams: false,
            received: 0,
            reached: 0,
            base: 0,
            settled: false,
            stream_base: 0,
            burst: false,
            asked_idle_at: None,
        }
    }
}

impl Pipe {
    pub(super) fn push(&mut self, slot: Slot, now: Time) {
        if self.queue.is_empty() {
            self.reached = self.received;
            self.burst = false;
            self.asked_idle_at = Some(now);
        }
        if self.streams && slot.start < self.stream_at() {
            // It has passed already: the answer begins anew.
            self.stream_base = self.received;
        }
        self.queue.push_back(slot);
    }

    /// The meter is about to stand at `total`: what was thought to pass for nobody before that may never
    /// have been sent.
    pub(super) fn settle(&mut self, total: u64) {
        if std::mem::take(&mut self.settled) {
            self.base = self.base.min(total);
        }
        if let Some(front) = self.queue.front().filter(|front| front.delivered_to > front.start)
            && !self.streams
        {
            self.base = self.base.min(total.saturating_sub(front.delivered_to - front.start));
        }
    }

    /// How long its server took to begin the answer to a request on the idle lane, once. Answers
    /// that follow on one another say nothing of that.
    pub fn answer_took_s(&mut self, now: Time) -> Option<f64> {
        if self.awaits_answer() {
            return None;
        }
        self.asked_idle_at.take().map(|at| now.secs_since(at))
    }

    /// Whether the answer that is due now has not begun.
    pub fn awaits_answer(&self) -> bool {
        self.positions().next().is_some_and(|(slot, at)| at == slot.start && at < slot.asked_end)
    }

    /// Where each slot stands by the meter: calls `each(slot, position)`.
    pub fn positions(&self) -> impl Iterator<Item = (&Slot, u64)> + '_ {
        let mut available = self.received.saturating_sub(self.base);
        let streams_at = self.streams.then(|| self.stream_at());
        self.queue.iter().map(move |slot| {
            let length = slot.asked_end - slot.start;
            let taken = available.min(length);
            available = (available - taken).saturating_sub(slot.trailing_bytes);
            let by_meter = match streams_at {
                Some(at) => at.clamp(slot.start, slot.asked_end),
                None => slot.start + taken,
            };
            (slot, by_meter.max(slot.delivered_to))
        })
    }

    /// How far a whole-file answer has come.
    pub fn stream_at(&self) -> u64 {
        self.received - self.stream_base
    }

    /// Returns bytes that must be skipped before the first swath begins.
    pub fn ahead_bytes(&self) -> u64 {
        match self.queue.front() {
            Some(slot) if self.streams => slot.start.saturating_sub(self.stream_at()),
            _ => 0,
        }
    }

    /// Returns bytes that pass for nobody before the next wanted one.
    pub fn drain_bytes(&self) -> u64 {
        let mut drain_bytes = self.base.saturating_sub(self.received);
        for (slot, at) in self.positions() {
            if at < slot.end {
                break;
            }
            drain_bytes += slot.asked_end - at + slot.trailing_bytes;
        }
        drain_bytes
    }

    /// Returns bytes asked for, still wanted and not here.
    pub fn wanted_bytes(&self) -> u64 {
        self.positions().map(|(slot, at)| slot.end.saturating_sub(at)).sum()
    }

    /// Bytes that must still cross the wire before a new request's answer could begin.
    pub fn pipe_bytes(&self) -> u64 {
        if self.streams {
            return self.ahead_bytes() + self.wanted_bytes();
        }
        let asked: u64 =
            self.queue.iter().map(|slot| slot.asked_end - slot.start + slot.trailing_bytes).sum();
        (self.base + asked).saturating_sub(self.received)
    }

    /// Whether what comes next is the first byte of an answer.
    pub(super) fn is_between_answers(&self) -> bool {
        let mut next = self.positions().skip_while(|(slot, at)| *at >= slot.asked_end);
        next.next().is_none_or(|(slot, at)| at == slot.start)
    }

    /// Returns what is here and waits behind a loss.
    pub fn out_of_order_bytes(&self) -> u64 {
        self.reached.saturating_sub(self.received)
    }

    /// Returns what of that is wanted.
    pub fn wanted_out_of_order_bytes(&self) -> u64 {
        self.out_of_order_bytes().saturating_sub(self.drain_bytes())
    }

    /// Bytes that must still cross the wire before a new request's answer could begin, without
    /// those that only wait for their turn.
    pub fn coming_bytes(&self) -> u64 {
        self.pipe_bytes().saturating_sub(self.out_of_order_bytes())
    }

    /// `bytes` bytes wait behind a loss; answers whether that is news.
    pub(super) fn out_of_order(&mut self, bytes: u64) -> bool {
        let reached = self.received + bytes.min(self.pipe_bytes());
        let is_news = !self.streams && reached > self.reached;
        if is_news {
            self.reached = reached;
        }
        is_news
    }

    /// A swath has handed over its last byte: takes it off the queue. The second answer is whether it was
    /// the first there.
    pub(super) fn finish(&mut self, swath: SwathId) -> Option<(Slot, bool)> {
        let at = self.queue.iter().position(|slot| slot.swath == swath)?;
        let slot = self.queue.remove(at)?;
        self.leave(at, slot.asked_end - slot.start + slot.trailing_bytes);
        self.settled = at == 0 && slot.delivered_to == slot.asked_end && slot.trailing_bytes == 0;
        Some((slot, at == 0))
    }

    /// `bytes` that belonged to the swath at `at` still pass, for nobody.
    fn leave(&mut self, at: usize, bytes: u64) {
        self.settled &= bytes == 0;
        match at.checked_sub(1).and_then(|before| self.queue.get_mut(before)) {
            Some(before) => before.trailing_bytes += bytes,
            None => self.base += bytes,
        }
    }

    /// A swath's answer was no use and brought no body.
    pub fn remove(&mut self, swath: SwathId) -> Option<Slot> {
        let at = self.queue.iter().position(|slot| slot.swath == swath)?;
        let slot = self.queue.remove(at)?;
        self.leave(at, slot.trailing_bytes);
        Some(slot)
    }

    pub fn slot_mut(&mut self, swath: SwathId) -> Option<&mut Slot> {
        self.queue.iter_mut().find(|slot| slot.swath == swath)
    }

    /// Returns the parts that are asked for and not yet delivered, by what is really in our hands.
    pub fn undelivered(&self) -> Vec<Range> {
        self.queue
            .iter()
            .map(|slot| Range::new(slot.delivered_to, slot.end))
            .filter(|r| !r.is_empty())
            .collect()
    }
}
