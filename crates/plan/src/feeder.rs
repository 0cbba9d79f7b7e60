//! Gives lanes their next swaths: the picker says which range, the policy how much of it.

use swath_model::{LaneId, Range, RangeSet};

use crate::config::Config;
use crate::coverage::{cut, unit_at};
use crate::hedge::Hedges;
use crate::lane::{Lane, LaneState};
use crate::ledger::Ledger;
use crate::outlook::Outlook;
use crate::picker::{self, Picker};
use crate::policy::{self, Policy};
use crate::source::Source;
use crate::source_table::SourceKey;
use crate::view::{LaneView, WholeView};

/// Decides what a lane is asked for next.
pub(crate) struct Feeder {
    pub policy: Box<dyn Policy>,
    picker: Box<dyn Picker>,
}

impl Feeder {
    /// Returns a feeder with the configured policy and picker.
    pub fn new(config: &Config) -> Self {
        Self { policy: policy::of(config), picker: picker::of(config) }
    }

    /// Records that a source now has these ranges.
    pub fn gained(&mut self, ranges: impl IntoIterator<Item = Range>) {
        ranges.into_iter().for_each(|range| self.picker.count(range, true));
    }

    /// Records that a source does not have these ranges, or no longer.
    pub fn lost(&mut self, ranges: impl IntoIterator<Item = Range>) {
        ranges.into_iter().for_each(|range| self.picker.count(range, false));
    }

    /// Gives `id` as many swaths as the policy wants it to have now.
    pub fn feed(
        &mut self,
        id: LaneId,
        ledger: &mut Ledger,
        outlook: &Outlook,
        hedges: &mut Hedges,
    ) {
        if ledger.coverage.size_bytes.is_none() {
            feed_probe(id, ledger);
            return;
        }
        // The limit only guards against a policy that is never satisfied.
        for _ in 0..FEED_MAX {
            let Some((lane, source)) = takes_more(id, ledger) else { return };
            if lane.pipe.streams {
                if lane.pipe.queue.len() <= 1 {
                    feed_stream(id, ledger, outlook);
                }
                return;
            }
            let view = lane_view(lane, source, ledger);
            let whole = whole_view(ledger, outlook);
            let Some(bytes) = self.policy.next(&view, &whole) else { return };
            let (coverage, config) = (&ledger.coverage, &ledger.config);
            let chances = coverage.chances(config);
            let range = match view.paced && config.window_bytes.is_none() {
                // Most peers of a swarm have nothing for us, most of the time.
                _ if source.holds.has_nothing(chances) => {
                    debug_assert_eq!(coverage.find(&source.holds, 0, bytes, config), None);
                    None
                }
                true => coverage.find_long(&source.holds, bytes, config),
                false => self.pick(source, bytes, ledger),
            };
            let Some(range) = range else {
                let key = source.key;
                if let Some(source) = ledger.sources.get_mut(key) {
                    source.holds.note_nothing(chances);
                }
                if ledger.capabilities.repeats_chunks && view.queued == 0 {
                    hedges.bytes += repeat_chunk(id, ledger);
                }
                return;
            };
            ledger.take(id, range);
        }
    }

    /// Returns up to `bytes` bytes that a source may be asked for: open ones, otherwise ones that a
    /// silent lane owes.
    fn pick(&mut self, source: &Source, bytes: u64, ledger: &Ledger) -> Option<Range> {
        let Ledger { coverage, config, .. } = ledger;
        let limit = coverage.reach(config);
        let mut pick = |set: &RangeSet| self.picker.pick(set, &source.holds, limit);
        let run = pick(&coverage.open).or_else(|| pick(&coverage.doubtful))?;
        Some(coverage.begin(run, bytes, config))
    }
}

/// Returns a lane that may be given more, and its source.
fn takes_more(id: LaneId, ledger: &Ledger) -> Option<(&Lane, &Source)> {
    let lane = ledger.lanes.get(id)?;
    let source = ledger.source_of(lane)?;
    (lane.is_free() && ledger.may_be_asked(source)).then_some((lane, source))
}

fn lane_view(lane: &Lane, source: &Source, ledger: &Ledger) -> LaneView {
    LaneView {
        source: source.key.id,
        rate_bytes_per_s: lane.speed.rate,
        brought_bytes: lane.pipe.received,
        peer_rate_bytes_per_s: source.record.best_rate / source.lanes.len().max(1) as f64,
        rtt_s: lane.speed.trip_s(),
        stop_s: lane.pauses.stop_s,
        queued: lane.pipe.queue.len(),
        backlog_bytes: lane.pipe.coming_bytes(),
        backlog_s: lane.backlog_s(ledger.now),
        pipelines: lane.pipe.pipelines,
        ramping: lane.speed.ramping(ledger.now),
        on_probation: source.backoff.on_probation(),
        requests_max: source.usage.request_limit,
        paced: lane.speed.pace.found().is_some(),
        answer_least_bytes: lane.speed.pace.answer_least_bytes(),
    }
}

fn whole_view(ledger: &Ledger, outlook: &Outlook) -> WholeView {
    let Ledger { coverage, config, .. } = ledger;
    WholeView {
        size_bytes: coverage.size_bytes.unwrap_or(0),
        undelivered_bytes: coverage.undelivered.total_bytes(),
        open_bytes: coverage.open.total_bytes(),
        rate_bytes_per_s: outlook.rate,
        time_left_s: outlook.horizon_s(config, ledger.now).unwrap_or(f64::INFINITY),
        sources: outlook.usable_sources.min(config.max_sources),
        in_order: config.window_bytes.is_some(),
        grid_bytes: config.grid_bytes.max(1),
    }
}

/// Feeds a source that sends only the whole file. Only what lies ahead of its answer's position is
/// useful: it gets its whole share in one piece, and nothing that others bring sooner than it could
/// skip up to it.
fn feed_stream(id: LaneId, ledger: &mut Ledger, outlook: &Outlook) {
    let Some(lane) = ledger.lanes.get(id) else { return };
    let able = |lane: &Lane| {
        lane.state != LaneState::Closing && !lane.silent && !lane.duty.parked && !lane.pipe.streams
    };
    let others = ledger.lanes.iter().any(able);
    let (source, rate, idle) = (lane.source, lane.speed.rate, lane.is_idle());
    // Start behind its last request, or where its answer stands.
    let at = lane.pipe.queue.back().map_or(lane.pipe.stream_at(), |slot| slot.asked_end);
    let whole = whole_view(ledger, outlook);
    let share = match rate {
        _ if !others => u64::MAX,
        Some(rate) if whole.time_left_s.is_finite() => (rate * whole.time_left_s) as u64,
        _ => whole.undelivered_bytes / whole.sources.max(1) as u64,
    };
    let share = if others { share.saturating_sub(lane.pipe.pipe_bytes()) } else { share };
    // Search ahead of its position, then from the beginning.
    for from in if idle { [Some(at), Some(0)] } else { [Some(at), None] }.into_iter().flatten() {
        let Some(range) = find(source, from, share, ledger) else { continue };
        let skip_bytes = match range.start.checked_sub(at) {
            _ if !others => 0,
            Some(ahead_bytes) => ahead_bytes,
            None => range.start,
        };
        let useful = share.saturating_sub(skip_bytes).min(range.len());
        if useful >= ledger.config.grid_bytes.min(range.len()) {
            let range = Range::new(range.start, cut(range, useful, &ledger.config));
            ledger.take(id, range);
            return;
        }
    }
}

/// Gives an idle lane the next range that it may be asked for, against the policy. Returns whether
/// there was one.
pub(crate) fn feed_anyhow(id: LaneId, ledger: &mut Ledger) -> bool {
    let idle = takes_more(id, ledger).filter(|(lane, _)| lane.is_idle());
    let Some((lane, source)) = idle else { return false };
    let bytes = (lane.speed.rate.unwrap_or(0.0) * ANYHOW_S) as u64;
    let bytes = bytes.max(ledger.config.grid_bytes);
    let Some(range) = find(source.key, 0, bytes, ledger) else { return false };
    ledger.take(id, range);
    true
}

/// Requests the first bytes while the size is unknown, on the first connected lane. The others wait
/// for what the answer teaches.
fn feed_probe(id: LaneId, ledger: &mut Ledger) {
    let (config, now) = (&ledger.config, ledger.now);
    let asked = ledger.lanes.iter().any(|lane| {
        !lane.is_idle() && now.secs_since(lane.pauses.last_progress) < lane.speed.silence_s()
    });
    let Some(lane) = ledger.lanes.get(id) else { return };
    let Some(source) = ledger.source_of(lane) else { return };
    if asked || !lane.is_up() || !lane.is_idle() || lane.silent || source.backoff.quiet_until > now
    {
        return;
    }
    let bytes = config.initial_chunk_bytes.min(PROBE_MAX_BYTES).max(config.grid_bytes);
    let bytes = bytes.min(config.window_bytes.unwrap_or(u64::MAX)).max(1);
    let gap = ledger.coverage.first_gap;
    let range = Range::of_len(gap.start, bytes.min(gap.len()));
    // A source with only part of the file is asked for a part that it has.
    let own = || {
        let own = source.holds.first_held().filter(|_| !source.holds.lacks().is_empty())?;
        Some(Range::of_len(own.start, bytes.min(own.len())))
    };
    let free = source.holds.free_from(range.start).and_then(|free| free.intersect(range));
    if let Some(range) = free.or_else(own) {
        ledger.assign(id, range);
    }
}

/// Calls [`crate::coverage::Coverage::find`] for a source of the ledger.
fn find(source: SourceKey, from: u64, bytes: u64, ledger: &Ledger) -> Option<Range> {
    let holds = &ledger.sources.get(source)?.holds;
    ledger.coverage.find(holds, from, bytes, &ledger.config)
}

/// Runs the end game of the `fixed` policy: an idle lane requests what another one still fetches.
/// Returns the number of bytes.
fn repeat_chunk(id: LaneId, ledger: &mut Ledger) -> u64 {
    let Some(own) = ledger.lanes.get(id) else { return 0 };
    let Some(holds) = ledger.holds(own) else { return 0 };
    let candidate = ledger
        .lanes
        .iter()
        .filter(|lane| lane.source != own.source)
        .flat_map(|lane| lane.pipe.positions())
        .map(|(slot, at)| Range::new(unit_at(at, &ledger.config), slot.end))
        .filter_map(|range| ledger.coverage.undelivered.within(range).last())
        .filter(|range| ledger.coverage.shared.bytes_within(*range) == 0 && holds.may_all(*range))
        .max_by_key(|range| range.len());
    let Some(range) = candidate else { return 0 };
    ledger.ask_again(id, range);
    range.len()
}

/// Most swaths given to one lane at once.
pub(crate) const FEED_MAX: usize = 8;
/// Seconds of work for a lane that takes it because no other lane can.
const ANYHOW_S: f64 = 0.3;
/// Most bytes of the first request, whose answer also tells the size.
const PROBE_MAX_BYTES: u64 = 4 << 20;
