//! The conversation on one connection: requests out, answers in, bodies into buffers.
//!
//! One loop. Each turn obeys orders, queues what requests may leave, and then does the next
//! thing that the stream of bytes asks for: understand a head (see `answers`), move payload,
//! or wait. While a whole file streams in (a server without ranges) the lane serves ask after
//! ask from it and leaves the rest in the socket while nobody wants it.

use std::sync::Arc;
use std::time::Duration;

use swath_model::Range;
use swath_model::pool::Take;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::Instant;

use super::AfterTrim;
use super::answers::is_short;
use super::content::{At, Part, to_file};
use super::event::LaneEventKind;
use super::lane_conn::{Kind, LaneConn, TICK, Wake, Want};
use super::own::{Next, OwnLane};
use crate::error::LaneError;
use crate::facts::Facts;
use crate::http::request::Lines;

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
    /// LaneConn until the connection or the lane ends.
    pub async fn drive(&mut self, lane_conn: &mut LaneConn) -> Next {
        // A place in the pool's line; given up as soon as no buffer is wanted, as an unused
        // place would hold up those behind it.
        let mut place: Option<Take> = None;
        loop {
            self.obey_all();
            if self.is_over() {
                self.note_lost_answers(lane_conn);
                return Next::End(None);
            }
            if let Some(next) = self.send(lane_conn) {
                return next;
            }
            self.turn_to_front();
            let turn = self.turn(lane_conn);
            if !matches!(turn, Turn::Deliver(_)) {
                place = None;
            }
            let left = match turn {
                Turn::Again => None,
                Turn::Leave(next) => Some(next),
                Turn::Deliver(bytes) => self.deliver(lane_conn, bytes, &mut place).await,
                Turn::Skip(bytes) => self.skip(lane_conn, bytes).await,
                Turn::Finish => self.finish_answer(lane_conn),
                Turn::Frame if !lane_conn.http.has_input() => {
                    self.wait(lane_conn, Want::Input(0)).await
                }
                Turn::Frame => self.frame(lane_conn),
                Turn::Head => match lane_conn.http.head(false) {
                    Ok(Some(head)) => self.on_head(lane_conn, &head),
                    Ok(None) => {
                        self.hand_over();
                        self.wait(lane_conn, Want::Input(0)).await
                    }
                    Err(error) => Some(self.no_head(lane_conn, &error)),
                },
                Turn::Rest => {
                    lane_conn.last_progress = Instant::now();
                    let want = if lane_conn.passing.is_some() { Want::Nothing } else { Want::Rest };
                    self.wait(lane_conn, want).await
                }
            };
            if let Some(next) = left {
                return next;
            }
        }
    }

    /// A lane closed while a pipelined answer did not come: the server may have lost the request.
    fn note_lost_answers(&mut self, lane_conn: &LaneConn) {
        let patience = (lane_conn.http.conn().rtt * 3).max(LOST_AFTER);
        let waits = lane_conn.passing.is_none()
            && !lane_conn.http.has_input()
            && lane_conn.last_progress.elapsed() > patience;
        if waits
            && lane_conn.http.conn().answers > 0
            && self.asks.front().is_some_and(|front| front.pipelined)
        {
            self.pipeline_broke(lane_conn);
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

    /// Queues every request that may leave now. `Some` if this connection takes no more.
    fn send(&mut self, lane_conn: &mut LaneConn) -> Option<Next> {
        while let Some(part) = self.place_waiting() {
            let is_same = Arc::ptr_eq(&part.file, &self.source);
            let out = self.asks.sent();
            if let Some(passing) = &lane_conn.passing
                && passing.kind == Kind::Stream
            {
                // The stream itself answers whatever is asked next of its file.
                if out == 0 && is_same {
                    self.asks.mark_sent(&self.target, true);
                }
                return None;
            }
            let target = if is_same { Arc::clone(&self.target) } else { part.file.target() };
            let is_joined = self.content.joined().is_some();
            if is_joined && target.origin.as_ref() != Some(&lane_conn.http.conn().origin) {
                // What is out is answered first.
                if out > 0 || lane_conn.passing.is_some() {
                    return None;
                }
                (self.source, self.base, self.target) = (part.file, part.base, target);
                return Some(Next::Reconnect);
            }
            let quirks = part.file.quirks();
            let first = quirks.ranges.is_none();
            let whole = part.file.asks_whole();
            // Of other files on a server that honours ranges the same is expected.
            let is_expected = is_joined && !self.redirects && part.file.honours_ranges();
            if out > 0
                && (whole
                    || first && !is_expected
                    || !quirks.pipelines
                    || part.file.strayed()
                    || out >= PIPELINE_LIMIT
                    || !lane_conn.http.reusable)
            {
                return None;
            }
            let served = lane_conn.http.conn().answers + out as u64;
            let exhausted = quirks.requests_per_connection.is_some_and(|limit| served >= limit)
                || lane_conn.answers_left.is_some_and(|left| out as u64 >= left);
            if exhausted {
                // What is out is still answered; with nothing out there is no use in staying.
                lane_conn.http.reusable &= out > 0;
                return (out == 0).then(|| self.after_connection());
            }
            let ask = self.asks.next_waiting()?;
            let range = part.in_file(Range::new(ask.position, ask.end));
            ask.renewals = part.file.net().token_renewals();
            let (accept, more) = match first && !is_joined {
                true => self.source.first_wishes(),
                false => ("*/*", Lines::NONE),
            };
            match target.get((!whole).then_some(range), accept, more) {
                Ok(request) => lane_conn.http.output().extend_from_slice(&request),
                Err(error) => return Some(Next::End(Some(error))),
            }
            self.asks.mark_sent(&target, whole);
            self.out.meter.count_request();
            if out == 0 {
                lane_conn.last_progress = Instant::now();
            }
        }
        None
    }

    /// Finds the file of the next waiting ask, which ends where that file does. Asks for what is not there
    /// are settled.
    fn place_waiting(&mut self) -> Option<Part> {
        while let Some(ask) = self.asks.next_waiting() {
            match self.content.at(ask.position) {
                Ok(At::Part(part)) => {
                    ask.part = Some(part.clone());
                    if let Some(joined) = self.content.joined() {
                        ask.end = ask.end.min(joined.size_bytes());
                        self.asks.cut_waiting(part.range.end);
                    }
                    return Some(part);
                }
                Ok(At::End { size_bytes }) => self.settle_behind_end(size_bytes),
                Err(error) => {
                    let swath = ask.swath;
                    self.hand_over();
                    self.asks.give_up(swath);
                    self.out.send(LaneEventKind::Failed { swath, error });
                }
            }
        }
        None
    }

    /// The next waiting ask begins at or behind the end of the file: nobody need be asked.
    fn settle_behind_end(&mut self, size_bytes: u64) {
        self.tell_of_whole(&Facts::default());
        let Some(ask) = self.asks.remove_waiting() else { return };
        if ask.position == size_bytes {
            self.out.done(ask.swath);
        } else {
            let error = LaneError::BeyondEnd { size_bytes };
            self.out.send(LaneEventKind::Failed { swath: ask.swath, error });
        }
    }

    /// Tells of the whole, if the file is one of several and nobody has told yet.
    pub(super) fn tell_of_whole(&self, facts: &Facts) {
        if let Some(facts) = self.content.joined().and_then(|whole| whole.untold_facts(facts)) {
            self.out.send(LaneEventKind::Facts(Box::new(facts)));
        }
    }

    fn turn(&mut self, lane_conn: &mut LaneConn) -> Turn {
        let Some(passing) = &lane_conn.passing else {
            return if self.asks.sent() > 0 { Turn::Head } else { Turn::Rest };
        };
        let body = lane_conn.http.body();
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
        // The rest of a stream, of which another file comes next.
        if self.asks.sent() == 0 && self.asks.next_waiting().is_some() {
            return match is_short(lane_conn.http.body()) {
                true => Turn::Skip(payload),
                false => Turn::Leave(Next::Reconnect),
            };
        }
        let announced = passing.ends_at.map_or(u64::MAX, |end| end.saturating_sub(passing.at));
        if announced == 0 {
            let error = LaneError::protocol("the body is longer than announced");
            return Turn::Leave(Next::End(Some(error)));
        }
        let Some(front) = self.asks.front() else { return Turn::Rest };
        if front.is_complete() {
            self.settle_done();
            let Some(front) = self.asks.front() else { return Turn::Rest };
            if front.then == AfterTrim::Drop {
                return Turn::Leave(Next::End(None));
            }
            if passing.kind == Kind::Range {
                return Turn::Skip(payload);
            }
            self.asks.pop_front();
            return Turn::Again;
        }
        let position = to_file(front.position, self.base);
        let end = to_file(front.end, self.base);
        if position < passing.at && passing.kind == Kind::Range {
            let error = LaneError::protocol("the body has passed the range asked for");
            return Turn::Leave(Next::End(Some(error)));
        }
        if position < passing.at {
            // The stream has passed what is wanted now: begin anew.
            return Turn::Leave(Next::Reconnect);
        }
        if position > passing.at {
            return Turn::Skip(payload.min(position - passing.at));
        }
        Turn::Deliver(payload.min(announced).min(end - passing.at))
    }

    /// Moves payload into the front ask's buffer.
    async fn deliver(
        &mut self,
        lane_conn: &mut LaneConn,
        bytes: u64,
        place: &mut Option<Take>,
    ) -> Option<Next> {
        let bytes = match self.allowed(bytes) {
            Ok(bytes) => bytes,
            Err(due) => {
                *place = None;
                let wake = self.wait_for_us(lane_conn, Want::Until(due)).await;
                return self.woken(lane_conn, wake);
            }
        };
        if let Some(take) = place {
            let wake = self.wait_for_us(lane_conn, Want::Buffer(take)).await;
            if matches!(wake, Wake::Buffer(_)) {
                *place = None;
            }
            return self.woken(lane_conn, wake);
        }
        if !self.out.has_buffer() && lane_conn.http.has_input() {
            self.want_buffer(place);
            return None;
        }
        if lane_conn.http.has_input() {
            let front = self.asks.front()?;
            let room = self.out.room(front, bytes);
            let moved = lane_conn.http.take_buffered(room);
            self.delivered(lane_conn, moved);
            return None;
        }
        if !self.out.has_buffer() && !lane_conn.http.conn().is_plain() {
            // Only reading shows whether TLS has something; a little comes by way of the input.
            return self.wait(lane_conn, Want::Input(bytes)).await;
        }
        let front = self.asks.front()?;
        let wake =
            lane_conn.wait(&mut self.orders, &mut self.out, Want::Payload(front, bytes)).await;
        match wake {
            Wake::Readable => {
                self.want_buffer(place);
                None
            }
            Wake::Read(Ok(moved)) if moved > 0 => {
                self.delivered(lane_conn, moved);
                None
            }
            other => self.woken(lane_conn, other),
        }
    }

    /// Takes a buffer, or a place in the line for one.
    fn want_buffer(&mut self, place: &mut Option<Take>) {
        match self.out.try_take(self.asks.front().map(|front| &*front)) {
            Some(buffer) => self.out.supply(buffer),
            None => *place = Some(self.out.pool.take()),
        }
    }

    fn delivered(&mut self, lane_conn: &mut LaneConn, bytes: usize) {
        self.spend(bytes);
        if let Some(passing) = &mut lane_conn.passing {
            passing.at = passing.at.saturating_add(bytes as u64);
        }
        if let Some(front) = self.asks.front() {
            self.out.wrote(front, bytes);
        }
    }

    /// Throws payload away.
    async fn skip(&mut self, lane_conn: &mut LaneConn, bytes: u64) -> Option<Next> {
        let bytes = match self.allowed(bytes) {
            Ok(bytes) => bytes,
            Err(due) => {
                let wake = self.wait_for_us(lane_conn, Want::Until(due)).await;
                return self.woken(lane_conn, wake);
            }
        };
        let skipped = if !lane_conn.http.has_input() {
            match lane_conn.wait(&mut self.orders, &mut self.out, Want::Skip(bytes)).await {
                Wake::Read(Ok(skipped)) if skipped > 0 => skipped,
                other => return self.woken(lane_conn, other),
            }
        } else {
            lane_conn.http.skip_buffered(bytes)
        };
        self.spend(skipped);
        if let Some(passing) = &mut lane_conn.passing {
            // Words of a refusal are no bytes of the file: the source has been silent.
            if matches!(passing.kind, Kind::Range | Kind::Stream) {
                self.out.meter.count_wasted(skipped as u64);
            }
            passing.at = passing.at.saturating_add(skipped as u64);
        }
        None
    }

    fn frame(&mut self, lane_conn: &mut LaneConn) -> Option<Next> {
        let error = lane_conn.http.frame().err()?;
        Some(Next::End(Some(LaneError::protocol(error.to_string()))))
    }

    async fn wait(&mut self, lane_conn: &mut LaneConn, want: Want<'_>) -> Option<Next> {
        let wake = lane_conn.wait(&mut self.orders, &mut self.out, want).await;
        self.woken(lane_conn, wake)
    }

    /// Waits for something of our own: no silence of the source, and no pause of the sender.
    async fn wait_for_us(&mut self, lane_conn: &mut LaneConn, want: Want<'_>) -> Wake {
        self.out.meter.count_hold();
        let wake = lane_conn.wait(&mut self.orders, &mut self.out, want).await;
        lane_conn.last_progress = Instant::now();
        self.out.meter.count_hold();
        wake
    }

    /// What every wake-up has in common.
    fn woken(&mut self, lane_conn: &mut LaneConn, wake: Wake) -> Option<Next> {
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
                if bytes > 0 && lane_conn.passing.is_none() && self.asks.sent() == 0 =>
            {
                lane_conn.http.reusable = false;
                // A relay that sends anything else has lost its place.
                let is_odd =
                    self.source.is_passed() && !lane_conn.http.input().starts_with(b"HTTP/");
                let error = is_odd.then(|| LaneError::protocol("bytes that nobody asked for"));
                Some(Next::End(error))
            }
            Wake::Read(Ok(bytes)) if bytes > 0 => None,
            // The library has told the end of a body.
            Wake::Read(Ok(_)) if lane_conn.passing.is_some() && lane_conn.http.body().is_done() => {
                None
            }
            Wake::Read(Ok(_)) => Some(self.connection_ended(lane_conn, None)),
            Wake::Read(Err(error)) => Some(self.connection_ended(lane_conn, Some(&error))),
            Wake::Tick => self.look_around(lane_conn),
        }
    }

    fn look_around(&mut self, lane_conn: &mut LaneConn) -> Option<Next> {
        let silence = self.source.net().awake().silence(lane_conn.last_progress);
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
            lane_conn.http.reusable = false;
            Next::End(Some(LaneError::Timeout { after: limit }))
        })
    }
}

/// An answer that is thrown away may be this long; beyond that a new connection is cheaper.
pub(super) const SETTLED_LIMIT_BYTES: u64 = 256 * 1024;
