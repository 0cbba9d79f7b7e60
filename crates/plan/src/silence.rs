//! Finds lanes that owe bytes but bring none.

use swath_model::{LaneId, Range};

use crate::lane::{Lane, LaneState};
use crate::ledger::Ledger;
use crate::source_table::SourceKey;
use crate::view::SourceStatus;

/// Marks lanes that owe bytes but bring none as silent: what they owe becomes doubtful. Closes
/// lanes that stay silent and puts their source on probation.
pub(crate) fn watch(ledger: &mut Ledger) {
    let mut given_up = Vec::new();
    let mut fell_silent: Vec<Range> = Vec::new();
    let (watches, now) = (ledger.capabilities.watches_silence, ledger.now);
    let delivers = |lane: &Lane| lane.is_up() && !lane.silent && lane.was_answered();
    let somebody_delivers = ledger.lanes.iter().any(delivers);
    for lane in ledger.lanes.iter_mut() {
        // A silent lane may owe nothing any more but still have bytes to drain.
        if !lane.is_up() || (lane.is_idle() && !lane.silent) {
            continue;
        }
        let Some(source) = ledger.sources.get(lane.source) else { continue };
        let waited_s = now.secs_since(lane.pauses.heard_at);
        let awaits_answer = lane.pipe.awaits_answer();
        let mut silence_s = if watches { lane.speed.silence_s() } else { PATIENCE_PLAIN_S };
        let mut patience_s = GIVE_UP_S + 4.0 * silence_s;
        if awaits_answer {
            silence_s = silence_s.max(ANSWER_SPREAD * source.answers.usual_s());
            patience_s = if watches { source.answers.patience_s } else { patience_s };
            patience_s = patience_s.max(silence_s);
        }
        if waited_s > silence_s && !lane.silent {
            lane.silent = true;
            fell_silent.extend(lane.pipe.undelivered());
        }
        // A late answer may still come; without other lanes that is better than nothing.
        let last_hope = awaits_answer && !lane.was_answered() && !somebody_delivers;
        if waited_s > patience_s && !last_hope {
            given_up.push((lane.id, lane.source, awaits_answer));
        }
    }
    if ledger.coverage.size_bytes.is_some() {
        for range in fell_silent {
            ledger.coverage.doubt(range, &ledger.lanes);
        }
    }
    for (lane, source, unanswered) in given_up {
        give_up(ledger, lane, source, unanswered);
    }
    for key in ledger.sources.engaged_keys() {
        show(ledger, key);
    }
}

/// Closes a lane that was silent for too long, and backs off from its source.
fn give_up(ledger: &mut Ledger, lane: LaneId, key: SourceKey, unanswered: bool) {
    ledger.close(lane);
    let (now, jitter) = (ledger.now, ledger.rng.f64());
    let Some(source) = ledger.sources.get(key) else { return };
    // One stuck lane of several says nothing of its source; several at once count once.
    let is_stuck = |lane: &Lane| lane.silent || lane.state == LaneState::Closing;
    if source.backoff.retry_at > now || !ledger.lanes_of(source).all(is_stuck) {
        return;
    }
    ledger.sources.change(key, |source| {
        source.tuner.reset(now);
        source.backoff.fell_silent(now, jitter);
        if unanswered {
            source.answers.missed();
        }
    });
}

/// Updates whether a source counts as silent.
fn show(ledger: &mut Ledger, key: SourceKey) {
    let Some(source) = ledger.sources.get(key).filter(|source| source.is_usable()) else { return };
    let owing = || ledger.lanes_of(source).filter(|lane| !lane.is_idle());
    let silent = owing().next().is_some() && owing().all(|lane| lane.silent);
    let Some(source) = ledger.sources.get_mut(key) else { return };
    source.status = match source.status {
        SourceStatus::Running | SourceStatus::Probing if silent => SourceStatus::Silent,
        SourceStatus::Running if source.backoff.on_probation() => SourceStatus::Silent,
        SourceStatus::Silent if !silent && !source.backoff.on_probation() => SourceStatus::Running,
        other => other,
    };
}

/// Factor on a source's usual answer time before an answer counts as late.
const ANSWER_SPREAD: f64 = 1.5;
/// A silent lane is closed after this plus four times its patience.
const GIVE_UP_S: f64 = 1.0;
/// Time-out for policies that do not watch for silence.
const PATIENCE_PLAIN_S: f64 = 10.0;
