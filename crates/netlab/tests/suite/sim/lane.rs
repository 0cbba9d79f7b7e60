//! One simulated connection: what the client asked for on it, what the server has answered, and
//! how far the client has read.
//!
//! The client side behaves as the real executor's lanes do: answers come in the order of asking;
//! data is handed over in chunks that end at multiples of [`CHUNK_BYTES`] of the file, at the end
//! of a swath, or where a connection ends; a trimmed swath is done at its new end and the rest of
//! its answer is read and thrown away, or the connection given up.
//!
//! States: connecting → up → gone (removed by the world).

use std::collections::VecDeque;
use std::time::Duration;

use swath_model::{LaneId, Range, SwathId, Time};
use swath_plan::Loss;

/// Size of a pool buffer of the executor.
pub(super) const CHUNK_BYTES: u64 = 512 << 10;
/// Bytes of an answer's head on the wire.
pub(super) const HEAD_BYTES: u64 = 300;

/// A swath on its lane.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub swath: SwathId,
    /// Next byte to receive.
    pub position: u64,
    /// Everything before this was handed over.
    pub flushed: u64,
    pub end: u64,
    drop_lane: bool,
    reported: bool,
}

impl Ask {
    /// Returns what is asked for, still wanted and not handed over.
    pub fn outstanding(&self) -> Range {
        if self.reported {
            Range::new(self.end, self.end)
        } else {
            Range::new(self.flushed.min(self.end), self.end)
        }
    }
}

/// What the server puts on the wire, in order.
#[derive(Clone, Debug)]
pub(super) enum Segment {
    Head { answer: Answer, size_bytes: u64 },
    Body { left_bytes: u64 },
    End(Loss),
}

/// The kinds of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Partial,
    Whole,
    Busy(Duration),
    Missing,
}

/// What the client side of a lane has to say.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    Head(Answer),
    Chunk {
        swath: SwathId,
        range: Range,
    },
    Done(SwathId),
    Failed(SwathId, Loss),
    Lost(Loss),
    /// A new connection in place of the old one, and this is asked for first on it.
    Reconnected {
        first: Range,
    },
}

/// A connection.
#[derive(Debug)]
pub(super) struct SimLane {
    pub id: LaneId,
    pub source: usize,
    /// When the handshake ends and how; `None` once up.
    pub connects: Option<(Time, Result<(), Loss>)>,
    pub asks: VecDeque<Ask>,
    pub pipelines: bool,
    /// Body bytes received.
    pub meter_bytes: u64,
    /// What the planner was last told of them.
    pub told_bytes: u64,
    pub drained_bytes: u64,
    pub last_progress: Time,
    /// Sum of the gaps of more than [`GAP_S`] between two arrivals, in seconds.
    pub paused_s: f64,
    pub told_paused_s: f64,
    /// Nothing has arrived since the lane last had nothing to do.
    fresh: bool,
    /// When the last pause of more than [`PAUSE_S`] ended.
    pub resumed_at: Option<Time>,
    segments: VecDeque<Segment>,
    unread_bytes: u64,
    /// Position in the file of a source that sends it whole.
    stream_at: Option<u64>,
    /// Requests on their way to the server or waiting for its attention.
    pub requests: VecDeque<(Time, Range)>,
    /// Answers that the server has begun.
    pub answers: u32,
    /// The server will answer nothing more here.
    pub server_done: bool,
}

impl SimLane {
    pub fn new(
        id: LaneId,
        source: usize,
        now: Time,
        connects: (Time, Result<(), Loss>),
        pipelines: bool,
    ) -> Self {
        Self {
            id,
            source,
            connects: Some(connects),
            asks: VecDeque::new(),
            pipelines,
            meter_bytes: 0,
            told_bytes: 0,
            drained_bytes: 0,
            last_progress: now,
            paused_s: 0.0,
            told_paused_s: 0.0,
            fresh: true,
            resumed_at: None,
            segments: VecDeque::new(),
            unread_bytes: 0,
            stream_at: None,
            requests: VecDeque::new(),
            answers: 0,
            server_done: false,
        }
    }

    pub fn is_up(&self) -> bool {
        self.connects.is_none()
    }

    /// Asks for `range`; answers whether a request goes out (a whole-file answer that is under way
    /// serves whatever lies ahead in it).
    pub fn ask(&mut self, swath: SwathId, range: Range, now: Time) -> bool {
        if self.asks.iter().all(|ask| ask.reported) {
            self.last_progress = now;
            self.fresh = true;
        }
        self.asks.push_back(Ask {
            swath,
            position: range.start,
            flushed: range.start,
            end: range.end,
            drop_lane: false,
            reported: false,
        });
        self.stream_at.is_none()
    }

    /// The server appends to its answer.
    pub fn answer(&mut self, segment: Segment) {
        self.segments.push_back(segment);
    }

    /// Nobody reads: the whole-file answer waits for the next ask.
    pub fn is_paused(&self) -> bool {
        self.stream_at.is_some() && self.asks.is_empty()
    }

    /// `bytes` more have arrived.
    pub fn receive(&mut self, bytes: u64, now: Time, heard: &mut Vec<Heard>) {
        self.unread_bytes += bytes;
        let gap_s = now.secs_since(self.last_progress);
        if gap_s > GAP_S && !std::mem::replace(&mut self.fresh, false) {
            self.paused_s += gap_s;
        }
        if gap_s > PAUSE_S {
            self.resumed_at = Some(now);
        }
        self.last_progress = now;
        self.read(heard);
    }

    /// Makes what can be made of what has arrived.
    pub fn read(&mut self, heard: &mut Vec<Heard>) {
        loop {
            match self.segments.front_mut() {
                None => return,
                Some(Segment::End(loss)) => {
                    heard.push(Heard::Lost(*loss));
                    self.segments.pop_front();
                    return;
                }
                Some(Segment::Head { answer, size_bytes }) => {
                    if self.unread_bytes < HEAD_BYTES {
                        return;
                    }
                    self.unread_bytes -= HEAD_BYTES;
                    let (answer, size_bytes) = (*answer, *size_bytes);
                    self.segments.pop_front();
                    self.head(answer, size_bytes, heard);
                }
                Some(Segment::Body { left_bytes }) => {
                    let left = *left_bytes;
                    if self.stream_at.is_some() {
                        if !self.read_stream(left, heard) {
                            return;
                        }
                    } else {
                        let bytes = self.unread_bytes.min(left);
                        if bytes == 0 && left > 0 {
                            return;
                        }
                        self.unread_bytes -= bytes;
                        *left_bytes -= bytes;
                        let ended = left == bytes;
                        if self.advance(bytes, heard) {
                            return;
                        }
                        if ended {
                            self.segments.pop_front();
                            self.asks.pop_front();
                            // Its successor may have been cut to nothing, and the lane with it.
                            if self.asks.front().is_some_and(|ask| ask.reported && ask.drop_lane) {
                                heard.push(Heard::Lost(Loss::Clean));
                                return;
                            }
                        }
                    }
                }
            }
        }
    }

    fn head(&mut self, answer: Answer, size_bytes: u64, heard: &mut Vec<Heard>) {
        heard.push(Heard::Head(answer));
        match answer {
            Answer::Partial => {}
            Answer::Whole => self.stream_at = Some(0),
            Answer::Busy(_) | Answer::Missing => {
                let loss =
                    if let Answer::Busy(wait) = answer { Loss::Busy(wait) } else { Loss::Final };
                if let Some(ask) = self.asks.pop_front()
                    && !ask.reported
                {
                    heard.push(Heard::Failed(ask.swath, loss));
                }
                return;
            }
        }
        for ask in &mut self.asks {
            ask.end = ask.end.min(size_bytes).max(ask.flushed.min(size_bytes));
            ask.position = ask.position.min(size_bytes);
            ask.flushed = ask.flushed.min(size_bytes);
        }
    }

    /// The first ask gets `bytes` more; answers whether the lane is given up now.
    fn advance(&mut self, bytes: u64, heard: &mut Vec<Heard>) -> bool {
        self.meter_bytes += bytes;
        let Some(ask) = self.asks.front_mut() else { return false };
        ask.position += bytes;
        if ask.reported {
            self.drained_bytes += bytes;
            return false;
        }
        loop {
            let cut = ((ask.flushed / CHUNK_BYTES + 1) * CHUNK_BYTES).min(ask.end);
            if ask.position < cut {
                return false;
            }
            if cut > ask.flushed {
                heard.push(Heard::Chunk { swath: ask.swath, range: Range::new(ask.flushed, cut) });
                ask.flushed = cut;
            }
            if cut == ask.end {
                self.drained_bytes += ask.position - ask.end;
                ask.reported = true;
                heard.push(Heard::Done(ask.swath));
                if ask.drop_lane {
                    heard.push(Heard::Lost(Loss::Clean));
                }
                return ask.drop_lane;
            }
        }
    }

    /// Reads a whole-file answer; answers whether to go on.
    fn read_stream(&mut self, left_bytes: u64, heard: &mut Vec<Heard>) -> bool {
        let Some(at) = self.stream_at else { return false };
        let Some(ask) = self.asks.front() else { return false };
        if ask.position < at || (left_bytes == 0 && ask.position < ask.end) {
            // What is asked for has passed already: only a new connection brings it.
            let first = Range::new(ask.position, ask.end);
            self.segments.clear();
            self.requests.clear();
            self.unread_bytes = 0;
            self.stream_at = None;
            self.server_done = false;
            self.answers = 0;
            heard.push(Heard::Reconnected { first });
            return false;
        }
        let skip_bytes = (ask.position - at).min(self.unread_bytes);
        self.meter_bytes += skip_bytes;
        let bytes = (self.unread_bytes - skip_bytes).min(ask.end - ask.position);
        if skip_bytes + bytes == 0 && ask.position < ask.end {
            return false;
        }
        self.unread_bytes -= skip_bytes + bytes;
        self.stream_at = Some(at + skip_bytes + bytes);
        if let Some(Segment::Body { left_bytes }) = self.segments.front_mut() {
            *left_bytes -= skip_bytes + bytes;
        }
        if self.advance(bytes, heard) {
            return false;
        }
        if self.asks.front().is_some_and(|ask| ask.reported) {
            self.asks.pop_front();
        }
        true
    }

    /// Lets a swath end at `end`.
    pub fn trim(
        &mut self,
        swath: SwathId,
        end: u64,
        drop_lane: bool,
        keeps_surplus: bool,
        heard: &mut Vec<Heard>,
    ) {
        let Some(at) = self.asks.iter().position(|ask| ask.swath == swath && !ask.reported) else {
            return;
        };
        let ask = &mut self.asks[at];
        ask.end = ask.end.min(end.max(ask.flushed));
        ask.drop_lane |= drop_lane;
        if ask.position < ask.end {
            return;
        }
        let to = if keeps_surplus { ask.position } else { ask.end };
        if to > ask.flushed {
            heard.push(Heard::Chunk { swath, range: Range::new(ask.flushed, to) });
            ask.flushed = to;
        }
        self.drained_bytes += ask.position - to;
        ask.end = to;
        ask.reported = true;
        heard.push(Heard::Done(swath));
        if at == 0 && ask.drop_lane {
            heard.push(Heard::Lost(Loss::Clean));
        } else if self.stream_at.is_some() {
            self.asks.remove(at);
        }
    }

    /// The connection ends: what was received and not handed over yet.
    pub fn flush(&mut self, heard: &mut Vec<Heard>) {
        let Some(ask) = self.asks.front_mut().filter(|ask| !ask.reported) else { return };
        let to = ask.position.min(ask.end);
        if to > ask.flushed {
            heard.push(Heard::Chunk { swath: ask.swath, range: Range::new(ask.flushed, to) });
            ask.flushed = to;
        }
    }
}

/// A gap between two arrivals that counts as a pause of the sender, as in the real lanes.
const GAP_S: f64 = 0.005;
/// A connection that has brought nothing for this long may be taken for silent.
pub(super) const PAUSE_S: f64 = 0.1;
