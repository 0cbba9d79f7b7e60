//! Looks at all routes every 0.1 s: rates, routes that fell, routes that are not worth it.

use super::config::Mode;
use super::name::RoutedId;
use super::routed_source::RoutedSource;
use super::router::Router;
use super::view::{RoutedState, Why};

impl Router {
    pub(crate) fn look(&mut self) {
        let last_s = self.times.next_look_s - LOOK_S;
        self.times.next_look_s = self.times.now_s + LOOK_S;
        self.open_named();
        self.refresh((self.times.now_s - last_s).clamp(0.0, 1.0));
        let flows = self.routed_sources.flows(self.times.now_s);
        self.learn(&flows);
        self.watch();
        if matches!(self.config.mode, Mode::Direct | Mode::Fixed(_)) {
            return;
        }
        self.absolve();
        self.tell_mute();
        self.guard();
        self.judge_trials();
        self.prune();
        self.seek(false);
    }

    fn refresh(&mut self, passed_s: f64) {
        let now_s = self.times.now_s;
        let keeps = 0.5f64.powf(passed_s / SETTLED_S);
        let rtts: Vec<f64> = self
            .routed_sources
            .open
            .values()
            .map(|routed| self.beliefs.rtt_s(&routed.route, routed.source))
            .collect();
        for (routed, rtt_s) in self.routed_sources.open.values_mut().zip(rtts) {
            routed.rtt_s = rtt_s;
            let rate = routed.rate(routed.window_s().max(1.0), now_s);
            routed.settled = (routed.settled * keeps).max(rate);
            if routed.state == RoutedState::Opening && routed.first_s.is_some() {
                routed.enter(RoutedState::OnTrial, routed.why, now_s);
            }
        }
        let alive = self
            .routed_sources
            .open
            .values()
            .filter(|routed| routed.low_since_s.is_none() && routed.settled > 0.0);
        for relay in alive.flat_map(|routed| routed.route.relays()) {
            if let Some(standing) = self.relays.standings.get_mut(relay) {
                (standing.silences, standing.shy_until_s) = (0, 0.0);
            }
        }
        if self
            .routed_sources
            .open
            .values()
            .all(|routed| routed.route.is_direct() || routed.first_s.is_none())
        {
            // A mean, because packet loss makes the rate swing.
            self.direct.alone =
                self.routed_sources.open.values().map(|routed| routed.rate(ALONE_S, now_s)).sum();
        }
    }

    /// Finds routes that fell silent or to a fraction of their rate. The next best route is opened
    /// at once, beside a route that may yet recover.
    fn watch(&mut self) {
        let now_s = self.times.now_s;
        let ids: Vec<RoutedId> = self.routed_sources.open.keys().copied().collect();
        for id in ids {
            let Some(routed) = self.routed_sources.open.get_mut(&id) else { continue };
            let direct = routed.route.is_direct();
            if routed.first_s.is_none() {
                let patience_s = OPENING_S + OPENING_TRIPS * routed.rtt_s;
                let named = matches!(self.config.mode, Mode::Fixed(_));
                if !direct && !named && now_s - routed.opened_s > patience_s {
                    self.give_up(id);
                }
                continue;
            }
            let short = routed.rate((2.0 * routed.rtt_s).clamp(0.2, 1.0), now_s);
            let fell = routed.is_ripe(now_s) && short < FALLEN * routed.settled;
            if !routed.now.busy || !(routed.now.silent || fell) {
                routed.low_since_s = None;
                routed.replaced = false;
                continue;
            }
            let since_s = *routed.low_since_s.get_or_insert(now_s);
            let low_s = now_s - since_s;
            let silent = routed.now.silent || routed.rate(STILL_S, now_s) < STILL * routed.settled;
            if !routed.replaced
                && routed.state == RoutedState::InUse
                && routed.settled > 0.0
                && low_s >= LOW_S.max(routed.rtt_s)
            {
                routed.replaced = true;
                self.suspect_of(id, if silent { 0.0 } else { short });
                self.open_instead();
            }
            let gone_s = GONE_S
                + GONE_TRIPS * self.routed_sources.open.get(&id).map_or(0.0, |routed| routed.rtt_s);
            // Routes that the user named are given up by whoever waits for their bytes, not here.
            let named = matches!(self.config.mode, Mode::Fixed(_));
            if silent && !direct && !named && low_s >= gone_s {
                self.give_up(id);
            }
        }
    }

    /// Closes a route that brings nothing, and backs off from it.
    fn give_up(&mut self, routed_id: RoutedId) {
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        let (tried, opened_for) = (routed.state != RoutedState::InUse, routed.why);
        if !routed.replaced {
            self.suspect_of(routed_id, 0.0);
        }
        self.lose(routed_id, Why::Silent, true);
        if tried {
            self.trial_failed(opened_for);
        }
    }

    /// Suspects the edges of a route, except those that another route shows to be well.
    fn suspect_of(&mut self, routed_id: RoutedId, rate: f64) {
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        if routed.route.is_direct() {
            return;
        }
        let edges: Vec<_> = routed.edges().collect();
        if rate <= 0.0 {
            let mut relays = routed.route.relays().to_vec();
            relays
                .retain(|&relay| !self.routed_sources.is_alive(routed_id, relay, self.times.now_s));
            for &relay in &relays {
                let standing = self.relays.standings.entry(relay).or_default();
                standing.shy_until_s =
                    self.times.now_s + SHY_S * 2f64.powi(standing.silences.min(5) as i32);
                standing.silences += 1;
            }
            if !matches!(self.config.mode, Mode::Fixed(_)) {
                self.ask(&relays);
            }
        }
        // If relays report the slow edge, only that one is suspected.
        let limit = self
            .routed_sources
            .limit(routed_id, self.times.now_s)
            .map(|(edge, _)| edge)
            .filter(|_| rate > 0.0);
        for edge in edges {
            if limit.is_none_or(|limit| limit == edge)
                && !self.routed_sources.is_carried_by_others(routed_id, edge, self.times.now_s)
            {
                self.suspect(edge, rate);
            }
        }
    }

    /// Starvation guard: ends trials that take more from direct than they bring.
    fn guard(&mut self) {
        let now_s = self.times.now_s;
        let young = |state| matches!(state, RoutedState::Opening | RoutedState::OnTrial);
        let used = self
            .routed_sources
            .open
            .values()
            .any(|it| !it.route.is_direct() && it.state == RoutedState::InUse);
        let trials =
            self.routed_sources.those(|routed| young(routed.state) && routed.is_ripe(now_s));
        let total: f64 =
            self.routed_sources.open.values().map(|routed| routed.rate(1.0, now_s)).sum();
        if used || trials.is_empty() || total >= STARVED * self.direct.alone {
            return;
        }
        let began_s = trials.iter().filter_map(|id| self.routed_sources.open.get(id)?.first_s);
        let swing = self.swing(began_s.fold(now_s, f64::min), 1.0);
        if total + swing >= STARVED * self.direct.alone {
            // The rate swings that much by itself.
            return;
        }
        for routed_id in trials {
            self.trial_ends(routed_id, Why::AddsNothing);
        }
    }

    /// Closes routes that bring too little, and the newest of routes limited by one edge.
    fn prune(&mut self) {
        let now_s = self.times.now_s;
        let total: f64 =
            self.routed_sources.open.values().map(|routed| routed.rate(PRUNED_S, now_s)).sum();
        let little = self.routed_sources.those(|routed| {
            !routed.route.is_direct()
                && routed.state == RoutedState::InUse
                && routed.now.busy
                && now_s - routed.since_s > PRUNED_S
                && routed.rate(PRUNED_S, now_s) < NEGLIGIBLE * total
        });
        for routed_id in little {
            self.prune_one(routed_id, Why::Negligible);
        }
        let relayed =
            |routed: &RoutedSource| routed.state == RoutedState::InUse && !routed.route.is_direct();
        let twins = self.routed_sources.those(|routed| {
            relayed(routed) && self.routed_sources.has_twin(routed.id, self.times.now_s)
        });
        for routed in self.routed_sources.open.values_mut() {
            if twins.contains(&routed.id) {
                routed.twin_since_s.get_or_insert(now_s);
            } else {
                routed.twin_since_s = None;
            }
        }
        let long = self
            .routed_sources
            .those(|routed| routed.twin_since_s.is_some_and(|it| now_s - it > PRUNED_S));
        if let Some(&newest) = long.last() {
            self.prune_one(newest, Why::AddsNothing);
        }
    }

    fn prune_one(&mut self, routed_id: RoutedId, why: Why) {
        if let Some(routed) = self.routed_sources.open.get(&routed_id) {
            let key = (routed.replica, routed.route.clone());
            self.rest(key, PRUNED_REST_S);
            self.close(routed_id, why);
        }
    }
}

/// Interval between looks.
pub(crate) const LOOK_S: f64 = 0.1;
/// Half-life of a route's normal rate.
const SETTLED_S: f64 = 3.0;

/// A route has fallen if it brings less than this part of its normal rate …
const FALLEN: f64 = 0.25;
/// … for this time and a round trip: bursts are shorter.
const LOW_S: f64 = 0.15;
/// It counts as silent with less than this part of its normal rate, over the time below.
const STILL: f64 = 0.02;
const STILL_S: f64 = 0.15;
/// A silent route is closed after this time plus round trips: repairing a loss takes less.
const GONE_S: f64 = 1.5;
const GONE_TRIPS: f64 = 6.0;
/// First time for which the relays of a silent route are avoided: one of them is dead, nobody knows
/// which.
const SHY_S: f64 = 5.0;
/// Time to open a route, plus round trips: each relay in turn connects to the next.
const OPENING_S: f64 = 2.0;
const OPENING_TRIPS: f64 = 12.0;

/// Trials end if the whole falls below this part of what direct brought alone.
const STARVED: f64 = 0.9;
/// Time over which the rate of direct alone is averaged.
const ALONE_S: f64 = 2.0;

/// A route is closed if it brings less than this part of the whole, over the time below.
const NEGLIGIBLE: f64 = 0.01;
const PRUNED_S: f64 = 5.0;
const PRUNED_REST_S: f64 = 15.0;
