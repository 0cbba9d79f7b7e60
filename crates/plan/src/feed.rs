//! Gives lanes their next swaths.

use swath_model::{LaneId, Range, RangeSet, SourceId, SwathId, Time};

use crate::event::Action;
use crate::lane::{Lane, LaneState, Slot};
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
            if !lane.is_up() || lane.parked || lane.silent || lane.dropping {
                return;
            }
            let Some(source) = self.sources.get(lane.source.index()) else { return };
            if !source.is_usable()
                || source.rests
                || source.quiet_until > now
                || (lane.streams && lane.queue.len() > 1)
            {
                return;
            }
            let source_id = lane.source;
            if lane.streams {
                self.feed_stream(id, now);
                return;
            }
            let view = LaneView {
                source: source_id,
                rate_bytes_per_s: lane.rate,
                brought_bytes: lane.brought_bytes(),
                peer_rate_bytes_per_s: source.best_rate / source.lanes.len().max(1) as f64,
                rtt_s: lane.trip_s(),
                stop_s: lane.stop_s,
                queued: lane.queue.len(),
                backlog_bytes: lane.coming_bytes(),
                backlog_s: lane.backlog_s(now),
                pipelines: lane.pipelines,
                ramping: lane.ramping(now),
                on_probation: source.on_probation(),
                requests_max: source.request_limit,
                paced: lane.pace().is_some(),
                answer_least_bytes: lane.answer_least_bytes(),
            };
            let whole = self.whole_view(now);
            let Some(bytes) = self.policy.next(&view, &whole) else { return };
            let range = match view.paced && self.config.window_bytes.is_none() {
                true => self.find_long(source_id, bytes),
                false => self.find(source_id, 0, bytes),
            };
            let Some(range) = range else {
                if self.manners.repeats_chunks && view.queued == 0 {
                    self.repeat_chunk(id, now);
                }
                return;
            };
            self.take(range);
            self.assign(id, range, now);
        }
    }

    /// A source that sends only the whole file is worth what lies ahead of where its answer
    /// stands: it gets its whole share in one piece, and nothing that others bring sooner than it
    /// could skip up to it.
    fn feed_stream(&mut self, id: LaneId, now: Time) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let able = |lane: &Lane| {
            lane.state != LaneState::Closing && !lane.silent && !lane.parked && !lane.streams
        };
        let others = self.lanes.values().any(able);
        let (source, rate, idle) = (lane.source, lane.rate, lane.queue.is_empty());
        // Behind what it is asked for already, or where its answer stands.
        let at = lane.queue.back().map_or(lane.stream_at(), |slot| slot.asked_end);
        let whole = self.whole_view(now);
        let share = match rate {
            _ if !others => u64::MAX,
            Some(rate) if whole.time_left_s.is_finite() => (rate * whole.time_left_s) as u64,
            _ => whole.undelivered_bytes / whole.sources.max(1) as u64,
        };
        let share = if others { share.saturating_sub(lane.pipe_bytes()) } else { share };
        // Ahead of where it stands, else from the beginning.
        for from in if idle { [Some(at), Some(0)] } else { [Some(at), None] }.into_iter().flatten()
        {
            let Some(range) = self.find(source, from, share) else { continue };
            let skip_bytes = match range.start.checked_sub(at) {
                _ if !others => 0,
                Some(ahead_bytes) => ahead_bytes,
                None => range.start,
            };
            let useful = share.saturating_sub(skip_bytes).min(range.len());
            if useful >= self.config.grid_bytes.min(range.len()) {
                let range = Range::new(range.start, self.cut(range, useful));
                self.take(range);
                self.assign(id, range, now);
                return;
            }
        }
    }

    /// Give an idle lane the next range that it may be asked for, whatever its policy thinks;
    /// answers whether there was one.
    pub(crate) fn feed_anyhow(&mut self, id: LaneId, now: Time) -> bool {
        let Some(lane) = self.lanes.get(&id) else { return false };
        let (source_id, rate) = (lane.source, lane.rate.unwrap_or(0.0));
        let free =
            lane.is_up() && !lane.parked && !lane.silent && !lane.dropping && lane.queue.is_empty();
        let Some(source) = self.sources.get(source_id.index()) else { return false };
        if !free || !source.is_usable() || source.rests || source.quiet_until > now {
            return false;
        }
        let bytes = (rate * ANYHOW_S) as u64;
        let Some(range) = self.find(source_id, 0, bytes.max(self.config.grid_bytes)) else {
            return false;
        };
        self.take(range);
        self.assign(id, range, now);
        true
    }

    /// While the size is unknown the first lane that is up asks for the first bytes; the others
    /// wait for what that teaches.
    fn feed_probe(&mut self, id: LaneId, now: Time) {
        let asked = self.lanes.values().any(|lane| {
            !lane.queue.is_empty() && now.secs_since(lane.last_progress) < lane.silence_s()
        });
        let Some(lane) = self.lanes.get(&id) else { return };
        let quiet_until =
            self.sources.get(lane.source.index()).map_or(Time::ZERO, |source| source.quiet_until);
        if asked || !lane.is_up() || !lane.queue.is_empty() || lane.silent || quiet_until > now {
            return;
        }
        let bytes =
            self.config.initial_chunk_bytes.min(PROBE_MAX_BYTES).max(self.config.grid_bytes);
        let bytes = bytes.min(self.config.window_bytes.unwrap_or(u64::MAX)).max(1);
        let range = Range::of_len(self.first_gap.start, bytes.min(self.first_gap.len()));
        let Some(source) = self.sources.get(lane.source.index()) else { return };
        // One that has only some of the file tells as much of it by what it has.
        let first = source.forbidden.gaps_within(range).into_iter().next().or_else(|| {
            let all = Range::new(0, u64::MAX);
            let own = source.lacks.gaps_within(all).into_iter().next()?;
            (!source.lacks.is_empty()).then(|| Range::of_len(own.start, bytes.min(own.len())))
        });
        if let Some(range) = first {
            self.assign(id, range, now);
        }
    }

    /// The next `bytes` bytes or fewer at or after `from` that this source may be asked for: open
    /// ones first, then those that a silent lane owes.
    fn find(&self, source: SourceId, from: u64, bytes: u64) -> Option<Range> {
        let limit = self.reach();
        let forbidden = &self.sources.get(source.index())?.forbidden;
        let find = |set: &RangeSet| {
            let mut from = from;
            while let Some(run) = set.first_from(from).filter(|run| run.start < limit) {
                let end = match forbidden.first_from(run.start) {
                    // Nothing before the end of what is forbidden needs to be looked at.
                    Some(bad) if bad.start == run.start => {
                        from = bad.end;
                        continue;
                    }
                    Some(bad) => bad.start.min(run.end),
                    None => run.end,
                };
                return Some(Range::new(
                    run.start,
                    self.cut(Range::new(run.start, end), bytes).min(limit),
                ));
            }
            None
        };
        find(&self.open).or_else(|| find(&self.doubtful))
    }

    /// As [`Planner::find`], but the longest of the ranges that would do rather than the first one.
    fn find_long(&self, source: SourceId, bytes: u64) -> Option<Range> {
        let mut best = self.find(source, 0, bytes)?;
        let mut from = best.end;
        while best.len() < bytes {
            let Some(next) = self.find(source, from, bytes).filter(|next| next.start >= from)
            else {
                break;
            };
            from = next.end;
            if next.len() > best.len() {
                best = next;
            }
        }
        Some(best)
    }

    /// A range found by [`Planner::find`] is about to be asked for.
    fn take(&mut self, range: Range) {
        if self.open.remove(range) == 0 {
            self.doubtful.remove(range);
            self.shared.insert(range);
        }
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
        if down > run.start {
            down
        } else {
            (run.start / grid + 1).saturating_mul(grid).min(run.end)
        }
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
                trailing_bytes: 0,
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
        let Some(forbidden) = self.sources.get(own.index()).map(|source| &source.forbidden) else {
            return;
        };
        let candidate = self
            .lanes
            .values()
            .filter(|lane| lane.source != own)
            .flat_map(|lane| {
                lane.positions().map(|(slot, at)| Range::new(self.unit_at(at), slot.end))
            })
            .filter_map(|range| self.undelivered.within(range).last())
            .filter(|range| {
                self.shared.bytes_within(*range) == 0 && forbidden.bytes_within(*range) == 0
            })
            .max_by_key(|range| range.len());
        if let Some(range) = candidate {
            self.shared.insert(range);
            self.hedged_bytes += range.len();
            self.assign(id, range, now);
        }
    }
}

/// Most swaths handed to one lane in one go.
pub(crate) const FEED_MAX: usize = 8;
/// A lane that takes work because no other can gets this much at once.
const ANYHOW_S: f64 = 0.3;
/// Most bytes of the first request, whose answer also tells the size.
const PROBE_MAX_BYTES: u64 = 4 << 20;
