//! Gives lanes their next swaths.

use swath_model::{LaneId, Range, RangeSet, SourceId, SwathId, Time};

use crate::event::Action;
use crate::lane::Slot;
use crate::planner::Planner;
use crate::view::{LaneView, SourceStatus};

impl Planner {
    /// Give `id` as many swaths as its policy wants it to have now.
    pub(crate) fn feed(&mut self, id: LaneId, now: Time) {
        if self.size_bytes.is_none() {
            self.feed_probe(id, now);
            return;
        }
        // The limit only guards against a policy that is never satisfied.
        for _ in 0..FEED_MAX {
            let Some(lane) = self.lanes.get(&id) else { return };
            if !lane.is_up() || lane.parked || lane.silent {
                return;
            }
            let Some(source) = self.sources.get(lane.source.index()) else { return };
            if !source.is_usable() || source.retry_at > now || (lane.streams && !lane.queue.is_empty()) {
                return;
            }
            let source_id = lane.source;
            let streams = lane.streams;
            let view = LaneView {
                source: source_id,
                rate_bytes_per_s: lane.rate,
                rtt_s: lane.rtt_s,
                queued: lane.queue.len(),
                backlog_bytes: lane.pipe_bytes(),
                backlog_s: lane.backlog_s(),
                pipelines: lane.pipelines,
                ramping: lane.ramping(now),
                on_probation: source.on_probation(),
                few_requests: source.request_limit.is_some_and(|limit| limit < FEW_REQUESTS),
            };
            let whole = self.whole_view(now);
            let Some(bytes) = self.policy.next(&view, &whole) else { return };
            let bytes = if streams { u64::MAX } else { bytes };
            let Some(range) = self.pick(source_id, bytes) else {
                if self.manners.repeats_chunks && view.queued == 0 {
                    self.repeat_chunk(id, now);
                }
                return;
            };
            self.assign(id, range, now);
        }
    }

    /// While the size is unknown the first lane that is up asks for the first bytes; the others
    /// wait for what that teaches.
    fn feed_probe(&mut self, id: LaneId, now: Time) {
        let asked = self.lanes.values().any(|lane| !lane.queue.is_empty() && now.secs_since(lane.last_progress) < lane.silence_s());
        let Some(lane) = self.lanes.get(&id) else { return };
        let retry_at = self.sources.get(lane.source.index()).map_or(Time::ZERO, |source| source.retry_at);
        if asked || !lane.is_up() || !lane.queue.is_empty() || lane.silent || retry_at > now {
            return;
        }
        let bytes = self.config.initial_chunk_bytes.min(PROBE_MAX_BYTES).max(self.config.grid_bytes);
        self.assign(id, Range::of_len(self.probe_start, bytes), now);
    }

    /// The next `bytes` bytes or fewer that this source may be asked for: open ones first, then
    /// those that a silent lane owes.
    fn pick(&mut self, source: SourceId, bytes: u64) -> Option<Range> {
        let limit = match self.config.window_bytes {
            Some(window) => self.consumed.saturating_add(window),
            None => u64::MAX,
        };
        let forbidden = &self.sources.get(source.index())?.forbidden;
        let find = |set: &RangeSet| {
            let mut from = 0;
            while let Some(run) = set.first_from(from).filter(|run| run.start < limit) {
                from = run.end;
                if let Some(run) = forbidden.gaps_within(run).into_iter().next() {
                    return Some(Range::new(run.start, self.cut(run, bytes).min(limit)));
                }
            }
            None
        };
        if let Some(range) = find(&self.open) {
            self.open.remove(range);
            return Some(range);
        }
        let range = find(&self.doubtful)?;
        self.doubtful.remove(range);
        self.shared.insert(range);
        Some(range)
    }

    /// Where a swath of about `bytes` bytes from the start of `run` ends: on the grid, and at the
    /// end of the run if hardly anything would be left of it.
    fn cut(&self, run: Range, bytes: u64) -> u64 {
        let grid = self.config.grid_bytes.max(1);
        let end = run.start.saturating_add(bytes);
        if end.saturating_add(grid / 2) >= run.end {
            return run.end;
        }
        let down = end / grid * grid;
        if down > run.start { down } else { (run.start / grid + 1).saturating_mul(grid).min(run.end) }
    }

    /// Ask for `range` on a lane.
    pub(crate) fn assign(&mut self, id: LaneId, range: Range, now: Time) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let swath = SwathId(self.next_swath);
        self.next_swath += 1;
        lane.push(
            Slot {
                swath,
                start: range.start,
                end: range.end,
                asked_end: range.end,
                asked_at: now,
                delivered_to: range.start,
            },
            now,
        );
        if let Some(source) = self.sources.get_mut(lane.source.index())
            && source.status == SourceStatus::Spare
        {
            source.status = SourceStatus::Probing;
        }
        self.swaths.insert(swath, id);
        self.actions.push_back(Action::Fetch { lane: id, swath, range });
    }

    /// The end game of the `fixed` policy: an idle lane asks for what another one still fetches.
    fn repeat_chunk(&mut self, id: LaneId, now: Time) {
        let Some(own) = self.lanes.get(&id).map(|lane| lane.source) else { return };
        let candidate = self
            .lanes
            .values()
            .filter(|lane| lane.source != own)
            .flat_map(|lane| lane.positions().map(|(slot, at)| Range::new(at, slot.end)))
            .filter(|range| !range.is_empty() && self.shared.bytes_within(*range) == 0)
            .max_by_key(|range| range.len());
        if let Some(range) = candidate {
            self.shared.insert(range);
            self.hedged_bytes += range.len();
            self.assign(id, range, now);
        }
    }
}

/// Most swaths handed to one lane in one go.
const FEED_MAX: usize = 8;
/// Fewer requests per connection than this, and swaths become longer.
const FEW_REQUESTS: u32 = 200;
/// Most bytes of the first request, whose answer also tells the size.
const PROBE_MAX_BYTES: u64 = 4 << 20;
