//! The conversation on one connection: requests out, answers in, bodies into buffers.
//!
//! One loop. Each turn obeys orders, queues what requests may leave, and then does the next
//! thing that the stream of bytes asks for: understand a head (see `answers`), move payload,
//! or wait. While a whole file streams in (a server without ranges) the lane serves ask after
//! ask from it and leaves the rest in the socket while nobody wants it.

use std::time::Duration;

use swath_model::Range;
use swath_model::pool::Take;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::Instant;

use super::AfterTrim;
use super::event::LaneEventKind;
use super::own::{Next, OwnLane};
use super::talk::{Kind, TICK, Talk, Wake, Want};
use crate::error::LaneError;

/// More requests than this are never out at once.
const PIPELINE_LIMIT: usize = 64;

/// An answer that follows another within this time was not lost.
const LOST_AFTER: Duration = Duration::from_millis(100);

/// What the stream of bytes asks for next.
enum Turn {
    /// Payload for the front ask.
    Deliver(u64),
    /// Payload that nobody wants.
    Skip(u64),
    /// A head.
    Head,
    /// Framing within a body.
    Frame,
    /// The body is complete.
    Finish,
    /// Nothing until somebody asks for something.
    Rest,
    /// Go around once more.
    Again,
    Leave(Next),
}

impl OwnLane {
    /// Talk until the connection or the lane ends.
    pub async fn converse(&mut self, talk: &mut Talk) -> Next {
        // A place in the pool's line; given up as soon as no buffer is wanted, as an unused
        // place would hold up those behind it.
        let mut place: Option<Take> = None;
        loop {
            self.obey_all();
            if self.is_over() {
                self.note_lost_answers(talk);
                return Next::End(None);
            }
            if let Some(next) = self.send(talk) {
                return next;
            }
            talk.window.keep(talk.http.conn(), self.window_bytes);
            let turn = self.turn(talk);
            if !matches!(turn, Turn::Deliver(_)) {
                place = None;
            }
            let left = match turn {
                Turn::Again => None,
                Turn::Leave(next) => Some(next),
                Turn::Deliver(bytes) => self.deliver(talk, bytes, &mut place).await,
                Turn::Skip(bytes) => self.skip(talk, bytes).await,
                Turn::Finish => self.finish_answer(talk),
                Turn::Frame if !talk.http.has_input() => self.wait(talk, Want::Input(0)).await,
                Turn::Frame => self.frame(talk),
                Turn::Head => match talk.http.head(false) {
                    Ok(Some(head)) => self.on_head(talk, &head),
                    Ok(None) => self.wait(talk, Want::Input(0)).await,
                    Err(error) => Some(self.no_head(talk, &error)),
                },
                Turn::Rest => {
                    talk.last_progress = Instant::now();
                    let want = if talk.passing.is_some() { Want::Nothing } else { Want::Rest };
                    self.wait(talk, want).await
                }
            };
            if let Some(next) = left {
                return next;
            }
        }
    }

    /// A lane closed while a pipelined answer did not come: the server may have lost the request.
    fn note_lost_answers(&mut self, talk: &Talk) {
        let patience = (talk.http.conn().rtt * 3).max(LOST_AFTER);
        let waits = talk.passing.is_none()
            && !talk.http.has_input()
            && talk.last_progress.elapsed() > patience;
        if waits
            && talk.http.conn().answers > 0
            && self.asks.front().is_some_and(|front| front.pipelined)
        {
            self.pipeline_broke(talk);
        }
    }

    fn obey_all(&mut self) {
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.obey(Some(order)),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => return self.obey(None),
            }
        }
    }

    /// Queue every request that may leave now. `Some` if this connection takes no more.
    fn send(&mut self, talk: &mut Talk) -> Option<Next> {
        if let Some(passing) = &talk.passing
            && passing.kind == Kind::Stream
        {
            // The stream itself answers whatever is asked next.
            if self.asks.sent() == 0 {
                self.asks.mark_sent(&self.target, true);
            }
            return None;
        }
        while let Some(ask) = self.asks.next_waiting() {
            let (position, end) = (ask.position, ask.end);
            let out = self.asks.sent();
            if let Some(size_bytes) = self.source.known_size().filter(|&size| position >= size) {
                self.settle_behind_end(size_bytes);
                continue;
            }
            let quirks = self.source.quirks();
            let first = quirks.ranges.is_none();
            let whole = self.source.asks_whole();
            let first_or_whole = first || whole;
            if out > 0
                && (first_or_whole
                    || !quirks.pipelines
                    || out >= PIPELINE_LIMIT
                    || !talk.http.reusable)
            {
                return None;
            }
            let served = talk.http.conn().answers + out as u64;
            let exhausted = quirks.requests_per_connection.is_some_and(|limit| served >= limit)
                || talk.answers_left.is_some_and(|left| out as u64 >= left);
            if exhausted {
                // What is out is still answered; with nothing out there is no use in staying.
                talk.http.reusable &= out > 0;
                return (out == 0).then_some(Next::End(None));
            }
            let range = Range::new(position, end);
            let (accept, extra) = if first { self.source.first_wishes() } else { ("*/*", "") };
            if whole {
                self.target.append_whole(talk.http.output(), accept, extra);
            } else {
                self.target.append(talk.http.output(), range, accept, extra);
            }
            self.asks.mark_sent(&self.target, whole);
            self.out.meter.count_request();
            if out == 0 {
                talk.last_progress = Instant::now();
            }
        }
        None
    }

    /// The next waiting ask begins at or behind the end of the file: nobody need be asked.
    fn settle_behind_end(&mut self, size_bytes: u64) {
        let Some(ask) = self.asks.remove_waiting() else { return };
        if ask.position == size_bytes {
            self.out.done(ask.swath);
        } else {
            let error = LaneError::BeyondEnd { size_bytes };
            self.out.send(LaneEventKind::Failed { swath: ask.swath, error });
        }
    }

    fn turn(&mut self, talk: &mut Talk) -> Turn {
        let Some(passing) = &talk.passing else {
            return if self.asks.sent() > 0 { Turn::Head } else { Turn::Rest };
        };
        let body = talk.http.body();
        if body.is_done() {
            return Turn::Finish;
        }
        let payload = body.payload();
        if payload == 0 {
            return Turn::Frame;
        }
        if matches!(passing.kind, Kind::Settled | Kind::Again) {
            return if body.taken() > SETTLED_LIMIT_BYTES {
                Turn::Leave(self.left_with_rest(passing.kind))
            } else {
                Turn::Skip(payload)
            };
        }
        let announced = passing.ends_at.map_or(u64::MAX, |end| end.saturating_sub(passing.at));
        if announced == 0 {
            let error = LaneError::protocol("the body is longer than announced");
            return Turn::Leave(Next::End(Some(error)));
        }
        let Some(front) = self.asks.front() else { return Turn::Rest };
        if front.is_complete() {
            if !front.reported {
                front.reported = true;
                self.out.flush(front);
                self.out.done(front.swath);
            }
            if front.then == AfterTrim::Drop {
                return Turn::Leave(Next::End(None));
            }
            if passing.kind == Kind::Range {
                return Turn::Skip(payload);
            }
            self.asks.pop_front();
            return Turn::Again;
        }
        if front.position < passing.at && passing.kind == Kind::Range {
            let error = LaneError::protocol("the body has passed the range asked for");
            return Turn::Leave(Next::End(Some(error)));
        }
        if front.position < passing.at {
            // The stream has passed what is wanted now: begin anew.
            return Turn::Leave(Next::Reconnect);
        }
        if front.position > passing.at {
            return Turn::Skip(payload.min(front.position - passing.at));
        }
        Turn::Deliver(payload.min(announced).min(front.end - passing.at))
    }

    /// Move payload into the front ask's buffer.
    async fn deliver(
        &mut self,
        talk: &mut Talk,
        bytes: u64,
        place: &mut Option<Take>,
    ) -> Option<Next> {
        let bytes = match self.allowed(bytes) {
            Ok(bytes) => bytes,
            Err(due) => {
                *place = None;
                let wake = self.wait_for_us(talk, Want::Until(due)).await;
                return self.woken(talk, wake);
            }
        };
        if let Some(take) = place {
            let wake = self.wait_for_us(talk, Want::Buffer(take)).await;
            if matches!(wake, Wake::Buffer(_)) {
                *place = None;
            }
            return self.woken(talk, wake);
        }
        if !self.out.has_buffer() && talk.http.has_input() {
            self.want_buffer(place);
            return None;
        }
        if talk.http.has_input() {
            let front = self.asks.front()?;
            let room = self.out.room(front, bytes);
            let moved = talk.http.take_buffered(room);
            self.delivered(talk, moved);
            return None;
        }
        if !self.out.has_buffer() && !talk.http.conn().is_plain() {
            // Only reading shows whether TLS has something; a little comes by way of the input.
            return self.wait(talk, Want::Input(bytes)).await;
        }
        let front = self.asks.front()?;
        let wake = talk.wait(&mut self.orders, &mut self.out, Want::Payload(front, bytes)).await;
        match wake {
            Wake::Readable => {
                self.want_buffer(place);
                None
            }
            Wake::Read(Ok(moved)) if moved > 0 => {
                self.delivered(talk, moved);
                None
            }
            other => self.woken(talk, other),
        }
    }

    /// Take a buffer, or a place in the line for one.
    fn want_buffer(&mut self, place: &mut Option<Take>) {
        match self.out.try_take(self.asks.front().map(|front| &*front)) {
            Some(buffer) => self.out.supply(buffer),
            None => *place = Some(self.out.pool.take()),
        }
    }

    fn delivered(&mut self, talk: &mut Talk, bytes: usize) {
        self.spend(bytes);
        if let Some(passing) = &mut talk.passing {
            passing.at = passing.at.saturating_add(bytes as u64);
        }
        if let Some(front) = self.asks.front() {
            self.out.wrote(front, bytes);
        }
    }

    /// Throw payload away.
    async fn skip(&mut self, talk: &mut Talk, bytes: u64) -> Option<Next> {
        let bytes = match self.allowed(bytes) {
            Ok(bytes) => bytes,
            Err(due) => {
                let wake = self.wait_for_us(talk, Want::Until(due)).await;
                return self.woken(talk, wake);
            }
        };
        let skipped = if !talk.http.has_input() {
            match talk.wait(&mut self.orders, &mut self.out, Want::Skip(bytes)).await {
                Wake::Read(Ok(skipped)) if skipped > 0 => skipped,
                other => return self.woken(talk, other),
            }
        } else {
            talk.http.skip_buffered(bytes)
        };
        self.spend(skipped);
        self.out.meter.count_wasted(skipped as u64);
        if let Some(passing) = &mut talk.passing {
            passing.at = passing.at.saturating_add(skipped as u64);
        }
        None
    }

    fn frame(&mut self, talk: &mut Talk) -> Option<Next> {
        let error = talk.http.frame().err()?;
        Some(Next::End(Some(LaneError::protocol(error.to_string()))))
    }

    async fn wait(&mut self, talk: &mut Talk, want: Want<'_>) -> Option<Next> {
        let wake = talk.wait(&mut self.orders, &mut self.out, want).await;
        self.woken(talk, wake)
    }

    /// Wait for something of our own: no silence of the source, and no pause of the sender.
    async fn wait_for_us(&mut self, talk: &mut Talk, want: Want<'_>) -> Wake {
        self.out.meter.count_hold();
        let wake = talk.wait(&mut self.orders, &mut self.out, want).await;
        talk.last_progress = Instant::now();
        self.out.meter.count_hold();
        wake
    }

    /// What every wake-up has in common.
    fn woken(&mut self, talk: &mut Talk, wake: Wake) -> Option<Next> {
        match wake {
            Wake::Order(order) => {
                self.obey(order);
                None
            }
            Wake::Buffer(buffer) => {
                self.out.supply(buffer);
                None
            }
            Wake::Readable => None,
            // Nobody asked for anything, so nothing should come (some servers say 408 before
            // they close an idle connection).
            Wake::Read(Ok(bytes))
                if bytes > 0 && talk.passing.is_none() && self.asks.sent() == 0 =>
            {
                talk.http.reusable = false;
                // A relay that sends anything else has lost its place.
                let is_odd = self.source.is_passed() && !talk.http.input().starts_with(b"HTTP/");
                let error = is_odd.then(|| LaneError::protocol("bytes that nobody asked for"));
                Some(Next::End(error))
            }
            Wake::Read(Ok(bytes)) if bytes > 0 => None,
            // The library has told the end of a body.
            Wake::Read(Ok(_)) if talk.passing.is_some() && talk.http.body().is_done() => None,
            Wake::Read(Ok(_)) => Some(self.connection_ended(talk, None)),
            Wake::Read(Err(error)) => Some(self.connection_ended(talk, Some(&error))),
            Wake::Tick => self.look_around(talk),
        }
    }

    fn look_around(&mut self, talk: &mut Talk) -> Option<Next> {
        let silence = self.source.net().awake().silence(talk.last_progress);
        // A buffer must not lie around half full while others wait for one. (Of a sealed file only
        // whole groups can be handed over, and there nothing waits for its turn.)
        let slow = silence >= TICK || self.out.held_for() >= 2 * TICK;
        if slow && !self.out.is_sealed() && self.out.has_buffer() && self.out.pool.free_slots() == 0
        {
            self.hand_over();
        }
        let limit = self.source.net().timeout();
        let waits = self.asks.sent() > 0;
        (waits && silence >= limit).then(|| {
            talk.http.reusable = false;
            Next::End(Some(LaneError::Timeout { after: limit }))
        })
    }
}

/// An answer that is thrown away may be this long; beyond that a new connection is cheaper.
pub(super) const SETTLED_LIMIT_BYTES: u64 = 256 * 1024;
