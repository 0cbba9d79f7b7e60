//! What happens between client and servers in a step: handshakes end, requests are answered, bytes
//! arrive. The other half of the simulation; `world` moves time and drives the planner.

use std::time::Duration;

use swath_model::{LaneId, Range, Requests, SourceId};
use swath_plan::{Event, Loss};

use super::lane::{Answer, HEAD_BYTES, Segment, SimLane};
use super::server::Mood;
use super::world::World;

impl World<'_> {
    pub(super) fn finish_handshakes(&mut self) {
        let due: Vec<LaneId> = self
            .lanes
            .values()
            .filter(|l| l.connects.as_ref().is_some_and(|c| c.0 <= self.now))
            .map(|l| l.id)
            .collect();
        for id in due {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            let Some((_, fate)) = lane.connects.take() else { continue };
            lane.last_progress = self.now;
            let source = &mut self.sources[lane.source];
            match fate {
                Ok(()) => {
                    source.link.open(id);
                    lane.pipelines = !source.no_pipelining;
                    let rtt = Duration::from_secs_f64(source.link.rtt_s());
                    let requests = Requests::pipelined_if(lane.pipelines);
                    self.tell(Event::LaneUp { lane: id, rtt, requests });
                }
                Err(loss) => self.lose(id, loss),
            }
        }
    }

    pub(super) fn serve_requests(&mut self) {
        let mut broken = Vec::new();
        let size_bytes = self.scenario.size_bytes;
        for lane in self.lanes.values_mut() {
            let source = &mut self.sources[lane.source];
            let unreachable = source.mood == Mood::Unreachable || source.link.is_silent();
            while let Some(&(at, range)) = lane.requests.front() {
                if at > self.now || unreachable {
                    break;
                }
                lane.requests.pop_front();
                if lane.server_done {
                    continue;
                }
                if source.spec.breaks_pipelining && lane.pipelines && !lane.requests.is_empty() {
                    source.no_pipelining = true;
                    broken.push(lane.id);
                    break;
                }
                let range = Range::new(range.start.min(size_bytes), range.end.min(size_bytes));
                let (answer, body_bytes) = match source.mood {
                    Mood::Busy(wait) => (Answer::Busy(wait), 0),
                    Mood::Missing => (Answer::Missing, 0),
                    Mood::Closes => {
                        lane.answer(Segment::End(Loss::Clean));
                        lane.server_done = true;
                        continue;
                    }
                    _ if source.spec.ranges => (Answer::Partial, range.len()),
                    _ => (Answer::Whole, size_bytes),
                };
                lane.answer(Segment::Head { answer, size_bytes });
                if matches!(answer, Answer::Partial | Answer::Whole) {
                    lane.answer(Segment::Body { left_bytes: body_bytes });
                }
                source.link.send(lane.id, HEAD_BYTES + body_bytes);
                lane.answers += 1;
                if source.spec.requests_max.is_some_and(|max| lane.answers >= max) {
                    lane.answer(Segment::End(Loss::Clean));
                    lane.server_done = true;
                }
                lane.server_done |= answer == Answer::Whole;
            }
        }
        for lane in broken {
            self.lose(lane, Loss::Broken);
        }
    }

    pub(super) fn carry_bytes(&mut self) {
        let step_s = self.scenario.step_s;
        let mut arrived = std::mem::take(&mut self.arrived);
        for source in &mut self.sources {
            if !source.link.is_idle() {
                source.link.step(self.now, step_s, &mut self.rng, &mut arrived);
            }
        }
        for (id, bytes) in arrived.drain(..) {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            let mut heard = std::mem::take(&mut self.heard);
            lane.receive(bytes, self.now, &mut heard);
            self.hear(id, heard);
        }
        self.arrived = arrived;
        let closing: Vec<LaneId> =
            self.lanes.values().filter(|l| l.server_done || l.is_paused()).map(|l| l.id).collect();
        for id in closing {
            let mut heard = std::mem::take(&mut self.heard);
            if let Some(lane) = self.lanes.get_mut(&id) {
                lane.read(&mut heard);
                self.sources[lane.source].link.pause(id, lane.is_paused());
            }
            self.hear(id, heard);
        }
        let resets: Vec<LaneId> = self
            .lanes
            .values()
            .filter(|lane| lane.is_up() && self.sources[lane.source].spec.resets_per_s > 0.0)
            .map(|lane| lane.id)
            .collect();
        for id in resets {
            let Some(lane) = self.lanes.get(&id) else { continue };
            if self.rng.f64() < self.sources[lane.source].spec.resets_per_s * step_s {
                self.lose(id, Loss::Broken);
            }
        }
    }

    pub(super) fn connect(&mut self, source: SourceId, lane: LaneId) {
        let at = source.index();
        let state = &self.sources[at];
        let open = self.lanes.values().filter(|lane| lane.source == at).count();
        let full = state.spec.connections_max.is_some_and(|max| open as u32 >= max);
        let rtt_s = state.link.rtt_s();
        let connects = match state.mood {
            _ if state.link.is_silent() => {
                (self.now.plus_secs(CONNECT_TIMEOUT_S), Err(Loss::Broken))
            }
            Mood::Unreachable => (self.now.plus_secs(CONNECT_TIMEOUT_S), Err(Loss::Broken)),
            Mood::Refuses => (self.now.plus_secs(rtt_s), Err(Loss::Broken)),
            _ if full => (self.now.plus_secs(rtt_s), Err(Loss::Broken)),
            _ => (self.now.plus_secs(rtt_s), Ok(())),
        };
        let pipelines = !state.no_pipelining;
        self.lanes.insert(lane, SimLane::new(lane, at, self.now, connects, pipelines));
    }
}

/// How long the executor waits for a connection.
const CONNECT_TIMEOUT_S: f64 = 3.0;
