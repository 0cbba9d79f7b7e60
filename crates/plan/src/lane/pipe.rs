//! The requests of a lane, and how far it has come.
//!
//! A lane answers in the order of requests. `received` is the meter of the real lane (every body
//! byte, drained ones too). The first slot began when it stood at `base`, so positions follow from
//! arithmetic and need no event per read.

use std::collections::VecDeque;

use swath_model::{Range, SwathId, Time};

/// One swath on a lane.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub swath: SwathId,
    pub start: u64,
    /// Where it ends now, after trimming.
    pub end: u64,
    /// End of the request that was sent.
    pub asked_end: u64,
    pub asked_at: Time,
    /// Everything before this was delivered by this slot (or was here already).
    pub delivered_to: u64,
    /// Bytes of swaths that ended before their turn, which must pass behind its own.
    pub trailing_bytes: u64,
}

/// The requests of one lane, and what has arrived for them.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub queue: VecDeque<Slot>,
    /// Whether a second request may leave before the first answer has ended.
    pub pipelines: bool,
    /// Every answer is the whole file: bytes before a range must be skipped.
    pub streams: bool,
    /// Bytes received so far, wanted or not.
    pub received: u64,
    /// The same, plus bytes that wait behind a loss.
    pub(super) reached: u64,
    pub(super) base: u64,
    /// Everything before `base` has passed: the last front of the queue was delivered to its end.
    settled: bool,
    /// The meter's value when the whole-file answer began.
    stream_base: u64,
    /// Whether bytes were received since the queue was last empty.
    pub(super) burst: bool,
    /// When it was last asked while idle, until that is answered.
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
            // The answer is past this point, so it begins anew.
            self.stream_base = self.received;
        }
        self.queue.push_back(slot);
    }

    /// Prepares for the meter to be at `total`: unwanted bytes expected before that may never have
    /// been sent.
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

    /// Returns, once, how long the server took to begin the answer to a request on the idle lane.
    /// Answers in a row say nothing of that.
    pub fn answer_took_s(&mut self, now: Time) -> Option<f64> {
        if self.awaits_answer() {
            return None;
        }
        self.asked_idle_at.take().map(|at| now.secs_since(at))
    }

    /// Returns whether the answer that is due now has not begun.
    pub fn awaits_answer(&self) -> bool {
        self.positions().next().is_some_and(|(slot, at)| at == slot.start && at < slot.asked_end)
    }

    /// Returns each slot and its position by the meter.
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

    /// Returns how far a whole-file answer has come.
    pub fn stream_at(&self) -> u64 {
        self.received - self.stream_base
    }

    /// Returns how many bytes must be skipped before the first swath begins.
    pub fn ahead_bytes(&self) -> u64 {
        match self.queue.front() {
            Some(slot) if self.streams => slot.start.saturating_sub(self.stream_at()),
            _ => 0,
        }
    }

    /// Returns how many unwanted bytes pass before the next wanted one.
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

    /// Returns how many requested bytes are still wanted and missing.
    pub fn wanted_bytes(&self) -> u64 {
        self.positions().map(|(slot, at)| slot.end.saturating_sub(at)).sum()
    }

    /// Returns how many bytes must cross the wire before a new request's answer could begin.
    pub fn pipe_bytes(&self) -> u64 {
        if self.streams {
            return self.ahead_bytes() + self.wanted_bytes();
        }
        let asked: u64 =
            self.queue.iter().map(|slot| slot.asked_end - slot.start + slot.trailing_bytes).sum();
        (self.base + asked).saturating_sub(self.received)
    }

    /// Returns whether the next byte is the first of an answer.
    pub(super) fn is_between_answers(&self) -> bool {
        let mut next = self.positions().skip_while(|(slot, at)| *at >= slot.asked_end);
        next.next().is_none_or(|(slot, at)| at == slot.start)
    }

    /// Returns how many bytes are here but wait behind a loss.
    pub fn out_of_order_bytes(&self) -> u64 {
        self.reached.saturating_sub(self.received)
    }

    /// Returns how many of those are wanted.
    pub fn wanted_out_of_order_bytes(&self) -> u64 {
        self.out_of_order_bytes().saturating_sub(self.drain_bytes())
    }

    /// Returns how many bytes must cross the wire before a new request's answer could begin,
    /// without those that only wait behind a loss.
    pub fn coming_bytes(&self) -> u64 {
        self.pipe_bytes().saturating_sub(self.out_of_order_bytes())
    }

    /// Records that `bytes` bytes wait behind a loss; returns whether that is news.
    pub(super) fn out_of_order(&mut self, bytes: u64) -> bool {
        let reached = self.received + bytes.min(self.pipe_bytes());
        let is_news = !self.streams && reached > self.reached;
        if is_news {
            self.reached = reached;
        }
        is_news
    }

    /// Takes a swath off the queue after it handed over its last byte. Returns whether it was the
    /// first there, too.
    pub(super) fn finish(&mut self, swath: SwathId) -> Option<(Slot, bool)> {
        let at = self.queue.iter().position(|slot| slot.swath == swath)?;
        let slot = self.queue.remove(at)?;
        self.leave(at, slot.asked_end - slot.start + slot.trailing_bytes);
        self.settled = at == 0 && slot.delivered_to == slot.asked_end && slot.trailing_bytes == 0;
        Some((slot, at == 0))
    }

    /// Records that `bytes` of the swath at `at` still pass unwanted.
    fn leave(&mut self, at: usize, bytes: u64) {
        self.settled &= bytes == 0;
        match at.checked_sub(1).and_then(|before| self.queue.get_mut(before)) {
            Some(before) => before.trailing_bytes += bytes,
            None => self.base += bytes,
        }
    }

    /// Removes a swath whose answer was useless and brought no body.
    pub fn remove(&mut self, swath: SwathId) -> Option<Slot> {
        let at = self.queue.iter().position(|slot| slot.swath == swath)?;
        let slot = self.queue.remove(at)?;
        self.leave(at, slot.trailing_bytes);
        Some(slot)
    }

    pub fn slot_mut(&mut self, swath: SwathId) -> Option<&mut Slot> {
        self.queue.iter_mut().find(|slot| slot.swath == swath)
    }

    /// Returns the requested parts that are not yet delivered to us.
    pub fn undelivered(&self) -> Vec<Range> {
        self.queue
            .iter()
            .map(|slot| Range::new(slot.delivered_to, slot.end))
            .filter(|r| !r.is_empty())
            .collect()
    }
}
