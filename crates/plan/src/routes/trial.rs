//! Whether a route on trial stays: what counts is the whole, not what comes over the route itself.
//!
//! Two routes over one bottleneck bring no more than one: what the second brings, the first loses.
//! So what the routes in use lose while another is tried is taken from what that one brings.

use super::config::Mode;
use super::graph::Grade;
use super::name::RoutedId;
use super::router::Router;
use super::view::{RoutedState, Why};

impl Router {
    pub(crate) fn judge_trials(&mut self) {
        for routed_id in self.routed_sources.those(|routed| routed.state == RoutedState::OnTrial) {
            self.judge(routed_id);
        }
    }

    fn judge(&mut self, routed_id: RoutedId) {
        let now_s = self.times.now_s;
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        let Some(first_s) = routed.first_s else { return };
        let length_s = (TRIAL_TRIPS * routed.rtt_s).clamp(TRIAL_S, TRIAL_MAX_S);
        let passed_s = now_s - first_s;
        if passed_s < length_s / 2.0 || !routed.now.busy {
            return;
        }
        let window_s = (0.4 * length_s * f64::from(1 + routed.longer)).max(routed.window_s());
        let own = routed.rate(window_s, now_s);
        let displaced = self.displaced(first_s, window_s);
        let trials: f64 = self
            .routed_sources
            .open
            .values()
            .filter(|other| {
                other.state != RoutedState::Opening && other.first_s >= Some(first_s - 0.5)
            })
            .map(|other| other.rate(window_s, now_s))
            .sum();
        let part = own / trials.max(own).max(1.0);
        // What others lose counts against it, and if the whole did not grow, it adds nothing, even
        // if those others were only coming up to speed and did not lose anything yet.
        let before_s = (first_s - window_s).max(self.times.first_s.unwrap_or(first_s));
        let grown = if first_s - before_s >= BEFORE_S {
            self.routed_sources.whole.mean(now_s - window_s, now_s)
                - self.routed_sources.whole.mean(before_s, first_s)
        } else {
            f64::INFINITY
        };
        let gain = own.min(grown * part).min(own - displaced * part);
        let over = passed_s >= length_s * f64::from(1 + routed.longer);
        let kept =
            routed.promised.is_finite() && own >= KEPT * routed.promised && gain >= CLEAR * own;
        if self.config.mode == Mode::Widest {
            if over {
                self.judge_widest(routed_id, own, displaced, first_s, window_s);
            }
            return;
        }
        let twin = self.routed_sources.has_twin(routed_id, self.times.now_s);
        let enough = !twin
            && gain >= ADDS_PART * own
            && gain >= ADDS_WHOLE * self.routed_sources.total(self.times.now_s);
        if enough && (over || kept) {
            self.trial_passed(routed_id);
        } else if over && !enough {
            let longer = routed.longer;
            let unclear = longer == 0 && gain >= UNCLEAR * own
                || longer < LONGER_MAX && self.swing(first_s, window_s) > SWINGS * own;
            if unclear && !twin && own >= ADDS_WHOLE * self.routed_sources.total(self.times.now_s) {
                if let Some(routed) = self.routed_sources.open.get_mut(&routed_id) {
                    routed.longer += 1;
                }
            } else {
                if !twin && own - gain < 0.5 * own {
                    self.blame(routed_id, own);
                }
                self.trial_ends(routed_id, Why::AddsNothing);
            }
        }
    }

    /// Returns what the routes that were settled before a trial began have lost since, in bytes per second.
    fn displaced(&self, began_s: f64, window_s: f64) -> f64 {
        let (mut before, mut after) = (0.0, 0.0);
        for routed in self.routed_sources.open.values() {
            // What was still climbing then had less to lose than it has now: its loss is thought
            // too small, never too large.
            let settled =
                routed.state == RoutedState::InUse && routed.first_s < Some(began_s - BEFORE_S);
            if settled && routed.low_since_s.is_none() && routed.now.busy {
                before += routed.before(began_s, window_s);
                after += routed.rate(window_s, self.times.now_s);
            }
        }
        (before - after).max(0.0)
    }

    /// How far that which was there before a trial swings by itself while the trial lasts: half of what
    /// lies between its least and its most, in bytes per second. Who is displaced falls once, and stays.
    pub(crate) fn swing(&self, began_s: f64, window_s: f64) -> f64 {
        let settled: Vec<_> = self
            .routed_sources
            .open
            .values()
            .filter(|routed| routed.state == RoutedState::InUse && routed.first_s < Some(began_s))
            .collect();
        let rate = |part: u32| {
            let from_s = self.times.now_s - window_s * f64::from(part + 1) / f64::from(PARTS);
            let to_s = from_s + window_s / f64::from(PARTS);
            settled.iter().map(|routed| routed.mean(from_s, to_s)).sum::<f64>()
        };
        let rates = || (0..PARTS).map(rate);
        (rates().fold(0.0, f64::max) - rates().fold(f64::INFINITY, f64::min)) / 2.0
    }

    /// One route at a time: the new one must be wider than what is in use by more than a little.
    fn judge_widest(
        &mut self,
        routed_id: RoutedId,
        own: f64,
        displaced: f64,
        began_s: f64,
        window_s: f64,
    ) {
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        let limit = self.routed_sources.limit(routed_id, self.times.now_s).map(|(edge, _)| edge);
        let shared = self.routed_sources.open.values().filter(|it| {
            it.state == RoutedState::InUse && it.edges().any(|edge| Some(edge) == limit)
        });
        // Where both are limited by one edge, all of it is to be had without the other.
        let both = own + shared.map(|it| it.rate(window_s, self.times.now_s)).sum::<f64>();
        let could = (own + displaced).max(both.min(routed.promised));
        let current = self
            .routed_sources
            .open
            .values()
            .filter(|routed| routed.state == RoutedState::InUse)
            .map(|routed| {
                routed.before(began_s, window_s).max(routed.rate(window_s, self.times.now_s))
            })
            .fold(0.0, f64::max);
        if could < (1.0 + self.config.switch_gain) * current {
            self.blame(routed_id, could);
            self.trial_ends(routed_id, Why::AddsNothing);
            return;
        }
        let others = self.routed_sources.those(|it| {
            it.id != routed_id && !it.route.is_direct() && it.state == RoutedState::InUse
        });
        self.trial_passed(routed_id);
        for other in others {
            self.close(other, Why::Replaced);
        }
    }

    fn trial_passed(&mut self, routed_id: RoutedId) {
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        let key = (routed.replica, routed.route.clone());
        self.rests.remove(&key);
        self.trials.begin_anew(self.times.now_s);
        let in_use =
            self.routed_sources.those(|it| !it.route.is_direct() && it.state == RoutedState::InUse);
        self.enter(routed_id, RoutedState::InUse, Why::AddsEnough);
        if in_use.len() >= self.config.ways_max
            && let Some(least) = in_use.into_iter().min_by(|a, b| {
                let rate =
                    |id| self.routed_sources.open.get(id).map_or(0.0, |routed| routed.settled);
                rate(a).total_cmp(&rate(b))
            })
        {
            self.close(least, Why::Replaced);
            self.trials.next_s = self.times.now_s + self.about(REPLACED_S);
        }
    }

    /// A trial came to nothing.
    pub(crate) fn trial_ends(&mut self, routed_id: RoutedId, why: Why) {
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        let key = (routed.replica, routed.route.clone());
        let opened_for = routed.why;
        self.rest(key, TRIED_REST_S);
        self.close(routed_id, why);
        self.trial_failed(opened_for);
    }

    /// The next trial waits, the longer the more came to nothing. What was opened in place of a route that
    /// was lost was no trial of ours.
    pub(crate) fn trial_failed(&mut self, opened_for: Why) {
        if opened_for == Why::Instead {
            return;
        }
        let wait_s = (PAUSE_S * 2f64.powi(self.trials.failures.min(10) as i32)).min(PAUSE_MAX_S);
        self.trials.failures += 1;
        self.trials.next_s = self.trials.next_s.max(self.times.now_s + self.about(wait_s));
    }

    /// Nothing else was in the way, and it brought less than was thought: if nobody has said which
    /// edge it was, it was the one of which most was only thought.
    fn blame(&mut self, routed_id: RoutedId, rate: f64) {
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        if self.routed_sources.limit(routed_id, self.times.now_s).is_some()
            || routed.is_held(self.times.now_s)
            || rate >= KEPT * routed.promised
        {
            return;
        }
        let weakest = routed
            .edges()
            .filter_map(|(from, to)| {
                Some(((from, to), self.beliefs.estimate(from, to, self.times.now_s)?))
            })
            .filter(|(_, hop)| hop.guess)
            .min_by(|a, b| a.1.rate.total_cmp(&b.1.rate));
        if let Some((edge, _)) = weakest {
            self.note(edge, rate, Grade::Exact, None);
        }
    }
}

/// A trial lasts a dozen round trips: eight of slow start, four to look at what that came to …
const TRIAL_TRIPS: f64 = 12.0;
/// … and at least this: what a router, a disk or a queue does within a second is no trend.
const TRIAL_S: f64 = 1.0;
const TRIAL_MAX_S: f64 = 5.0;

/// A route that came less than this before another went on trial says nothing about that one.
const BEFORE_S: f64 = 0.2;

/// A route that brings this part of what it promised, and takes little from others (this part is
/// gain), need not be looked at for longer.
const KEPT: f64 = 0.8;
const CLEAR: f64 = 0.6;

/// A route stays if this part of what it brings is gain …
const ADDS_PART: f64 = 0.25;
/// … and that is this part of the whole.
pub(crate) const ADDS_WHOLE: f64 = 0.02;
/// Between this part and that, rates that swing may have deceived us: the trial goes on once more.
const UNCLEAR: f64 = 0.05;
/// What swings by itself by more than this part of what a route brings may hide that it adds something:
/// the trial goes on, so many times as long at most. It takes nothing away meanwhile.
const SWINGS: f64 = 0.4;
const LONGER_MAX: u32 = 3;
/// Parts of the time over which rates are looked at, to see how they swing.
const PARTS: u32 = 3;

/// After a trial that came to nothing the next one waits so long, then twice as long …
const PAUSE_S: f64 = 0.5;
/// … and at last this.
const PAUSE_MAX_S: f64 = 60.0;
/// When all places are taken, they are not all taken by others one after the other.
const REPLACED_S: f64 = 4.0;
/// The same route is not tried again before this, then twice that.
const TRIED_REST_S: f64 = 10.0;
