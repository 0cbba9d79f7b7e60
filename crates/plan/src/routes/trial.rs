//! Decides whether a route on trial stays. The whole counts, not the route's own rate.
//!
//! Two routes over one bottleneck bring no more than one: the first loses what the second brings.
//! So the losses of the routes in use during a trial are subtracted from the new route's rate.

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
        // The losses of others count against it. If the whole did not grow, it adds nothing, even
        // if the others were still coming up to speed and have lost nothing yet.
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

    /// Returns what the routes settled before a trial have lost since, in bytes per second.
    fn displaced(&self, began_s: f64, window_s: f64) -> f64 {
        let (mut before, mut after) = (0.0, 0.0);
        for routed in self.routed_sources.open.values() {
            // A route still climbing then had less to lose than now: its loss is estimated too
            // small, never too large.
            let settled =
                routed.state == RoutedState::InUse && routed.first_s < Some(began_s - BEFORE_S);
            if settled && routed.low_since_s.is_none() && routed.now.busy {
                before += routed.before(began_s, window_s);
                after += routed.rate(window_s, self.times.now_s);
            }
        }
        (before - after).max(0.0)
    }

    /// Returns how far the older routes swing by themselves during a trial: half the span of their
    /// rates, in bytes per second. A displaced route falls once and stays low.
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

    /// Judges a trial in `Widest` mode: the new route must be clearly wider than the current one.
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
        // If one edge limits both, closing the other route frees all of it.
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

    /// Ends a trial that failed.
    pub(crate) fn trial_ends(&mut self, routed_id: RoutedId, why: Why) {
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        let key = (routed.replica, routed.route.clone());
        let opened_for = routed.why;
        self.rest(key, TRIED_REST_S);
        self.close(routed_id, why);
        self.trial_failed(opened_for);
    }

    /// Delays the next trial, longer with each failure in a row. A substitute for a lost route does
    /// not count as a trial.
    pub(crate) fn trial_failed(&mut self, opened_for: Why) {
        if opened_for == Why::Instead {
            return;
        }
        let wait_s = (PAUSE_S * 2f64.powi(self.trials.failures.min(10) as i32)).min(PAUSE_MAX_S);
        self.trials.failures += 1;
        self.trials.next_s = self.trials.next_s.max(self.times.now_s + self.about(wait_s));
    }

    /// Blames an edge for a route that brought less than promised with nothing in its way. If no
    /// relay reported the narrow edge, the narrowest guess is corrected.
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

/// Round trips of a trial: eight of slow start, four to measure the result …
const TRIAL_TRIPS: f64 = 12.0;
/// … but at least this time: what a router, disk or queue does within a second is no trend.
const TRIAL_S: f64 = 1.0;
const TRIAL_MAX_S: f64 = 5.0;

/// A route that started less than this before a trial is no measure for it.
const BEFORE_S: f64 = 0.2;

/// A trial ends early if the route brings this part of its promise and this part of that is gain,
/// so others lose little.
const KEPT: f64 = 0.8;
const CLEAR: f64 = 0.6;

/// A route stays if this part of what it brings is gain …
const ADDS_PART: f64 = 0.25;
/// … and the gain is this part of the whole.
pub(crate) const ADDS_WHOLE: f64 = 0.02;
/// Between this part and `ADDS_PART` a swing may mislead: the trial is extended once.
const UNCLEAR: f64 = 0.05;
/// If the older routes swing by more than this part of the new route's rate, they may hide its
/// gain: the trial is extended, up to `LONGER_MAX` times. It takes nothing from others meanwhile.
const SWINGS: f64 = 0.4;
const LONGER_MAX: u32 = 3;
/// Parts into which a window is split to measure the swing.
const PARTS: u32 = 3;

/// First pause after a failed trial; doubled each time …
const PAUSE_S: f64 = 0.5;
/// … up to this.
const PAUSE_MAX_S: f64 = 60.0;
/// Pause after a route was replaced, so that not all places change hands in a row.
const REPLACED_S: f64 = 4.0;
/// First back-off of a route whose trial failed; doubled each time.
const TRIED_REST_S: f64 = 10.0;
