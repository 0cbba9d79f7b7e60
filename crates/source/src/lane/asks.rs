//! What a lane was asked for: swaths in order, the first `sent` of them already requested.
//!
//! Life of an ask: waiting -> sent -> answered (at the front) -> done, failed or unfinished. An
//! ask whose answer was not begun goes back to waiting when the connection changes. A trimmed
//! ask may be done (`reported`) before its answer has passed; it then stays to have its body
//! thrown away.
//!
//! Where several files are read as one, a swath becomes an ask for each file that it touches, one
//! behind the other: what lies behind the end of a file is cut off when that file is asked for
//! ([`Asks::cut_waiting`]). All but the last one of a swath [continue](Ask::continues).

use std::collections::VecDeque;
use std::sync::Arc;

use swath_model::{Range, SwathId};

use super::AfterTrim;
use super::content::Part;
use crate::redirect::Visit;
use crate::target::Target;

/// One swath asked for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub swath: SwathId,
    /// The file that it is of, once known.
    pub part: Option<Part>,
    /// The swath goes on with the next ask, for the next file.
    pub continues: bool,
    /// The next byte to deliver.
    pub position: u64,
    /// Nothing from here on is delivered; `u64::MAX` stands for the end of the file.
    pub end: u64,
    /// What the request said, once sent.
    pub requested: Range,
    /// Where the request went, once sent.
    pub sent_to: Option<Arc<Target>>,
    /// How often tokens had been renewed before it was written.
    pub renewals: u64,
    /// What happens behind a trimmed end.
    pub then: AfterTrim,
    /// `Done` was reported already.
    pub reported: bool,
    /// It was sent while an earlier answer was outstanding.
    pub pipelined: bool,
    /// Redirects followed for it.
    pub visited: Vec<Visit>,
    /// The remembered redirect failed for it and the original address is tried again.
    pub went_back: bool,
    /// It was asked for without a range: only the whole file answers it.
    pub whole: bool,
    /// A relay could not open what the request showed, which was encrypted anew since.
    pub encrypted_anew: bool,
}

impl Ask {
    pub fn new(swath: SwathId, range: Range) -> Self {
        Self {
            swath,
            part: None,
            continues: false,
            position: range.start,
            end: range.end,
            requested: range,
            sent_to: None,
            renewals: 0,
            then: AfterTrim::Drain,
            reported: false,
            pipelined: false,
            visited: Vec::new(),
            went_back: false,
            whole: false,
            encrypted_anew: false,
        }
    }

    /// Returns how many of `limit_bytes` bytes are wanted of it from here on.
    pub fn left_bytes(&self, limit_bytes: u64) -> usize {
        let left = self.end.saturating_sub(self.position).min(limit_bytes);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Returns whether everything wanted of it is delivered.
    pub fn is_complete(&self) -> bool {
        self.position >= self.end
    }
}

/// The asks of a lane in the order of their requests.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    queue: VecDeque<Ask>,
    sent: usize,
}

/// What a trim did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trimmed {
    /// No such swath here (any more).
    Unknown,
    /// It will end earlier.
    Shortened,
    /// It is complete now; `Done` is due.
    Complete,
}

impl Asks {
    /// A new swath at the end of the line.
    pub fn push(&mut self, swath: SwathId, range: Range) {
        self.queue.push_back(Ask::new(swath, range));
    }

    /// Whether nothing is asked for, and no answer is still to pass.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many requests are out without their answer having passed.
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// The ask whose answer comes next or is passing now.
    pub fn front(&mut self) -> Option<&mut Ask> {
        self.queue.front_mut()
    }

    /// Returns the next ask that was not sent.
    pub fn next_waiting(&mut self) -> Option<&mut Ask> {
        self.queue.get_mut(self.sent)
    }

    /// Takes the next waiting ask out of the line.
    pub fn remove_waiting(&mut self) -> Option<Ask> {
        self.queue.remove(self.sent)
    }

    /// Ends the next waiting ask at `end`, where its file does; another ask continues it.
    pub fn cut_waiting(&mut self, end: u64) {
        let Some(ask) = self.queue.get_mut(self.sent).filter(|ask| ask.end > end) else { return };
        let mut rest = Ask::new(ask.swath, Range::new(end, ask.end));
        (rest.then, rest.continues) = (ask.then, ask.continues);
        (ask.end, ask.continues, ask.then) = (end, true, AfterTrim::Drain);
        self.queue.insert(self.sent + 1, rest);
    }

    /// Wants nothing more of `swath`: of what was sent, the answers still pass.
    pub fn give_up(&mut self, swath: SwathId) {
        let sent = self.sent;
        let mut at = 0;
        self.queue.retain(|ask| {
            at += 1;
            at <= sent || ask.swath != swath
        });
        for ask in self.queue.iter_mut().filter(|ask| ask.swath == swath) {
            ask.end = ask.position;
            ask.reported = true;
        }
    }

    /// The next waiting ask was sent to `target`, as one for the `whole` file perhaps.
    pub fn mark_sent(&mut self, target: &Arc<Target>, whole: bool) {
        if let Some(ask) = self.queue.get_mut(self.sent) {
            ask.whole = whole;
            ask.requested = Range::new(ask.position, ask.end);
            ask.sent_to = Some(Arc::clone(target));
            ask.pipelined = self.sent > 0;
            self.sent += 1;
        }
    }

    /// The front ask is being delivered, by a lane that sends no requests.
    pub fn begin_front(&mut self) {
        if let Some(ask) = self.queue.front_mut() {
            ask.requested = Range::new(ask.position, ask.end);
            self.sent = self.sent.max(1);
        }
    }

    /// The front ask's answer has passed (or it needs none).
    pub fn pop_front(&mut self) -> Option<Ask> {
        self.sent = self.sent.saturating_sub(1);
        self.queue.pop_front()
    }

    /// Puts the front ask, whose answer has passed, at the front of those that wait.
    pub fn ask_again(&mut self) {
        if self.sent > 0
            && let Some(ask) = self.queue.pop_front()
        {
            self.sent -= 1;
            let mut at = self.sent;
            // Not between the files of another swath.
            while at.checked_sub(1).is_some_and(|before| self.queue[before].continues) {
                at += 1;
            }
            self.queue.insert(at, ask);
        }
    }

    /// Only the front ask counts as sent: its answer will serve the others too.
    pub fn unsend_all_but_front(&mut self) {
        self.sent = self.sent.min(1);
        let mut is_front = true;
        self.queue.retain(|ask| std::mem::replace(&mut is_front, false) || !ask.reported);
    }

    /// Forgets that anything was sent: the connection is gone or another one is needed.
    pub fn unsend(&mut self) {
        self.sent = 0;
        self.queue.retain(|ask| !ask.reported);
    }

    /// Ends `swath` at `end`.
    pub fn trim(&mut self, swath: SwathId, end: u64, then: AfterTrim) -> Trimmed {
        let is_of_it = |ask: &Ask| ask.swath == swath && !ask.reported;
        let Some(first) = self.queue.iter().position(is_of_it) else { return Trimmed::Unknown };
        let mut last = self.queue.iter().rposition(is_of_it).unwrap_or(first);
        // Files that lie behind the new end altogether.
        while last > first && self.queue[last].position >= end {
            self.drop_ask(last);
            last = self.queue.iter().take(last).rposition(is_of_it).unwrap_or(first);
            self.queue[last].continues = false;
        }
        let ask = &mut self.queue[last];
        if then == AfterTrim::Drop {
            ask.then = then;
        }
        if end >= ask.end {
            return Trimmed::Shortened;
        }
        ask.end = end;
        if !ask.is_complete() {
            return Trimmed::Shortened;
        }
        self.drop_ask(last);
        Trimmed::Complete
    }

    /// Wants nothing of the ask at this place, whose answer still passes if it was sent.
    fn drop_ask(&mut self, at: usize) {
        if at >= self.sent {
            self.queue.remove(at);
            return;
        }
        let ask = &mut self.queue[at];
        ask.end = ask.end.min(ask.position);
        ask.reported = true;
    }

    /// Everything that is neither done nor failed.
    pub fn unfinished(&self) -> Vec<SwathId> {
        let open = self.queue.iter().filter(|ask| !ask.reported && !ask.continues);
        open.map(|ask| ask.swath).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    fn target() -> Arc<Target> {
        let net = crate::Net::new(crate::NetOptions::default()).unwrap();
        let url = Url::parse("http://a/").unwrap();
        Arc::new(Target::new(&net, &url, &url, crate::Trust::Named))
    }

    fn asks(sent: usize) -> Asks {
        let mut asks = Asks::default();
        for number in 0..4 {
            asks.push(SwathId(number), Range::of_len(number * 10, 10));
        }
        let target = target();
        for _ in 0..sent {
            asks.mark_sent(&target, false);
        }
        asks
    }

    #[test]
    fn trimming_follows_the_state_of_the_ask() {
        let mut asks = asks(2);
        assert_eq!(asks.trim(SwathId(1), 15, AfterTrim::Drain), Trimmed::Shortened);
        assert_eq!(asks.trim(SwathId(1), 10, AfterTrim::Drain), Trimmed::Complete);
        assert_eq!(
            asks.trim(SwathId(1), 10, AfterTrim::Drain),
            Trimmed::Unknown,
            "reported already"
        );
        assert_eq!(asks.trim(SwathId(3), 30, AfterTrim::Drop), Trimmed::Complete);
        assert_eq!(asks.trim(SwathId(9), 0, AfterTrim::Drop), Trimmed::Unknown);
        assert_eq!(asks.unfinished(), [SwathId(0), SwathId(2)]);
        assert_eq!(asks.sent(), 2, "a sent ask stays until its answer has passed");
        asks.unsend();
        assert_eq!(asks.unfinished(), [SwathId(0), SwathId(2)]);
        assert_eq!(asks.front().unwrap().swath, SwathId(0));
    }

    #[test]
    fn asking_again_keeps_the_order_of_what_is_out() {
        let mut asks = asks(2);
        asks.ask_again();
        let order: Vec<u64> = asks.unfinished().iter().map(|swath| swath.0).collect();
        assert_eq!(order, [1, 0, 2, 3]);
        assert_eq!(asks.sent(), 1);
        assert_eq!(asks.next_waiting().unwrap().swath, SwathId(0));
    }

    /// One swath over three files of ten bytes, of which `sent` were asked for, and another behind it.
    fn cut(sent: usize) -> Asks {
        let mut cut = asks(0);
        cut.queue.clear();
        cut.push(SwathId(7), Range::new(0, 30));
        cut.push(SwathId(8), Range::new(30, 40));
        let target = target();
        for at in 1..=sent as u64 {
            cut.cut_waiting(at * 10);
            cut.mark_sent(&target, false);
        }
        cut
    }

    #[test]
    fn a_swath_is_cut_where_files_end_and_counts_as_one() {
        let cut = cut(2);
        let ranges: Vec<_> = cut.queue.iter().map(|ask| (ask.position, ask.end)).collect();
        assert_eq!(ranges, [(0, 10), (10, 20), (20, 30), (30, 40)]);
        let continues: Vec<_> = cut.queue.iter().map(|ask| ask.continues).collect();
        assert_eq!(continues, [true, true, false, false]);
        assert_eq!(cut.unfinished(), [SwathId(7), SwathId(8)]);
    }

    #[test]
    fn trimming_a_cut_swath_drops_the_files_behind_its_end() {
        let mut one = cut(2);
        assert_eq!(one.trim(SwathId(7), 20, AfterTrim::Drain), Trimmed::Shortened);
        assert_eq!(one.queue.len(), 3, "what was not sent is gone");
        assert!(!one.queue[1].continues, "the swath ends with the second file");
        assert_eq!(one.trim(SwathId(7), 4, AfterTrim::Drop), Trimmed::Shortened);
        assert!(one.queue[1].reported && one.queue[1].is_complete(), "its answer still passes");
        let front = &one.queue[0];
        assert!(front.end == 4 && !front.continues && front.then == AfterTrim::Drop);
        assert_eq!(one.unfinished(), [SwathId(7), SwathId(8)]);
        assert_eq!(one.trim(SwathId(7), 0, AfterTrim::Drain), Trimmed::Complete);
        assert_eq!(one.unfinished(), [SwathId(8)]);
        // All but the last file has come.
        let mut other = cut(2);
        other.pop_front();
        other.pop_front();
        assert_eq!(other.trim(SwathId(7), 20, AfterTrim::Drain), Trimmed::Complete);
        assert_eq!(other.unfinished(), [SwathId(8)]);
    }

    /// The buffer of the swath that was parted from its next file went out as the other's.
    #[test]
    fn asking_again_does_not_part_the_files_of_another_swath() {
        let mut asks = asks(0);
        asks.queue.clear();
        asks.push(SwathId(6), Range::new(40, 50));
        asks.push(SwathId(7), Range::new(0, 30));
        let target = target();
        asks.mark_sent(&target, false);
        asks.cut_waiting(10);
        asks.mark_sent(&target, false);
        asks.ask_again();
        let order: Vec<u64> = asks.queue.iter().map(|ask| ask.swath.0).collect();
        assert_eq!((order, asks.sent()), (vec![7, 7, 6], 1));
    }

    #[test]
    fn what_is_given_up_is_asked_for_no_more() {
        let mut asks = cut(2);
        asks.give_up(SwathId(7));
        assert_eq!((asks.sent(), asks.queue.len()), (2, 3));
        assert_eq!(asks.unfinished(), [SwathId(8)]);
        // A whole file comes in place of a range: what nobody wants is not asked for again.
        asks.unsend_all_but_front();
        assert_eq!((asks.sent(), asks.queue.len()), (1, 2));
        assert_eq!(asks.next_waiting().map(|ask| ask.swath), Some(SwathId(8)));
    }
}
