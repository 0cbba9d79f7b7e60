//! Failures of swaths, lanes and whole sources, and of servers that allow only a few connections.

use swath_model::{LaneId, Range, SwathId};

use crate::event::Loss;
use crate::lane::Lane;
use crate::ledger::Ledger;
use crate::source_table::SourceKey;
use crate::view::SourceStatus;

/// Handles a swath whose answer was useless.
pub(crate) fn swath_failed(ledger: &mut Ledger, swath: SwathId, loss: Loss) {
    let now = ledger.now;
    let Some(id) = ledger.lanes.forget(swath) else { return };
    let Some(lane) = ledger.lanes.get_mut(id) else { return };
    let source = lane.source;
    let was_answered = lane.was_answered();
    lane.pauses.heard(now);
    let slot = lane.pipe.remove(swath);
    // It has answered, if only to refuse.
    ledger.speaks(id);
    if let Some(slot) = slot {
        ledger.give_back(Range::new(slot.delivered_to, slot.end));
    }
    if is_one_too_many(ledger, id, loss) {
        do_without(ledger, source, loss);
        ledger.close(id);
    } else if loss.is_break() && !was_answered && has_answered_lane(ledger, source) {
        turn_away(ledger, source);
        ledger.close(id);
    } else {
        charge(ledger, source, loss);
        ledger
            .sources
            .change(source, |source| source.backoff.quiet_until = source.backoff.retry_at);
        ledger.lanes.make_hungry(id);
    }
}

/// Handles a lost lane.
pub(crate) fn lane_lost(ledger: &mut Ledger, id: LaneId, loss: Loss) {
    let now = ledger.now;
    let spare = is_one_too_many(ledger, id, loss);
    let Some(lane) = ledger.lanes.remove(id) else { return };
    let key = lane.source;
    ledger.sources.change(key, |source| {
        if lane.duty.dropping {
            source.cut_short(now);
        }
        source.record.lane_rate = lane.speed.rate.or(source.record.lane_rate);
    });
    ledger.sources.lane_lost(key, id, now);
    for range in lane.pipe.undelivered() {
        ledger.give_back(range);
    }
    // A clean close without the answer it owed counts as broken, so that retries end.
    let unanswered = !lane.was_answered() && !lane.is_idle() && !lane.duty.dropping;
    let loss = if loss == Loss::Clean && unanswered { Loss::Broken } else { loss };
    if spare || (loss.is_break() && unanswered && delivers(ledger, key)) {
        do_without(ledger, key, loss);
    } else if loss.is_break() && unanswered && has_answered_lane(ledger, key) {
        turn_away(ledger, key);
    } else {
        charge(ledger, key, loss);
    }
}

/// Drops a source for good.
pub(crate) fn source_bad(ledger: &mut Ledger, key: SourceKey) {
    ledger.sources.change(key, |source| source.status = SourceStatus::Bad);
    ledger.close_all(key);
}

fn turn_away(ledger: &mut Ledger, key: SourceKey) {
    let (now, jitter) = (ledger.now, ledger.rng.f64());
    ledger.sources.change(key, |source| source.backoff.turned_away(now, jitter));
}

fn charge(ledger: &mut Ledger, key: SourceKey, loss: Loss) {
    let (now, jitter, give_up_s) = (ledger.now, ledger.rng.f64(), ledger.config.give_up_s);
    let is_bad = ledger.sources.change(key, |source| {
        source.lost(loss, now, jitter, give_up_s);
        if loss != Loss::Clean {
            source.tuner.reset(now);
        }
        !source.is_usable()
    });
    if is_bad == Some(true) {
        source_bad(ledger, key);
    }
}

/// Returns whether a failed lane is probably one more than its server allows: it brought nothing
/// while another lane of its source delivers.
fn is_one_too_many(ledger: &Ledger, id: LaneId, loss: Loss) -> bool {
    let Some(lane) = ledger.lanes.get(id) else { return false };
    (loss.is_break() || matches!(loss, Loss::Busy(_)))
        && !lane.was_answered()
        && delivers(ledger, lane.source)
}

/// Returns whether a source that may have several lanes has one that delivers.
fn delivers(ledger: &Ledger, source: SourceKey) -> bool {
    ledger.capabilities.tunes_lanes && has_answered_lane(ledger, source)
}

fn has_answered_lane(ledger: &Ledger, key: SourceKey) -> bool {
    let Some(source) = ledger.sources.get(key) else { return false };
    ledger.lanes_of(source).any(|lane| {
        // Servers that limit each answer pause for a second.
        let lives = !lane.silent || ledger.now.secs_since(lane.pauses.heard_at) < PAUSE_BORNE_S;
        lane.is_up() && lives && lane.was_answered()
    })
}

/// Lets the source continue with the lanes that work, without blame. Only new lanes wait, if the
/// server asked for patience.
fn do_without(ledger: &mut Ledger, key: SourceKey, loss: Loss) {
    let now = ledger.now;
    let Some(source) = ledger.sources.get(key) else { return };
    let works = |lane: &&Lane| lane.is_up() && lane.was_answered();
    let working = ledger.lanes_of(source).filter(works).count() as u32;
    ledger.sources.change(key, |source| {
        if let Loss::Busy(wish) = loss {
            source.backoff.busy(now + wish);
            source.backoff.wait_for_wish();
        }
        let said = matches!(loss, Loss::Busy(_));
        // The server may still count a connection that was just closed.
        let working = working.max(source.record.served_most).max(1);
        source.tuner.refused(working, said, now);
    });
}

/// A lane that brought something within this time counts as delivering.
const PAUSE_BORNE_S: f64 = 2.0;
