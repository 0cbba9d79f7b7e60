//! Which route to open next: the one likely to add most to the routes already open.
//!
//! The load of the open routes is subtracted from their edges. The candidate is the likeliest route
//! through what is left. This is flow augmentation, with guesses for unmeasured edges.

use std::collections::BTreeSet;

use super::config::Mode;
use super::graph::FlowPath;
use super::matrix::{Hop, Matrix};
use super::name::{ReplicaId, Route, SiteId};
use super::routed_source::RoutedSource;
use super::routed_sources::Flows;
use super::router::Router;
use super::trial::ADDS_WHOLE;
use super::view::{RoutedState, Why};

impl Router {
    /// Opens the next best route in place of one that was lost, without waiting for anything.
    pub(crate) fn open_instead(&mut self) {
        if !matches!(self.config.mode, Mode::Direct | Mode::Fixed(_)) {
            self.seek(true);
        }
    }

    /// Opens routes that promise enough: known ones (or any, if `urgent`) at once, guessed ones a
    /// few at a time when a trial is due.
    pub(crate) fn seek(&mut self, urgent: bool) {
        let now_s = self.times.now_s;
        let left_bytes = match self.left_bytes {
            Some(left_bytes) => left_bytes as f64,
            // The size is unknown. A server that only relays reach may report it.
            None if self.times.first_s.is_none() && self.has_waited() => f64::INFINITY,
            None => return,
        };
        let total = self.routed_sources.total(self.times.now_s);
        let left_s = left_bytes / total.max(1.0);
        if !urgent && self.direct.awaited > AWAITED {
            // Direct could bring more than we take.
            return;
        }
        let hurried = self.config.mode == Mode::Multi;
        let guesses = self.may_guess() && left_s >= if hurried { LEFT_MULTI_S } else { LEFT_S };
        if left_s < LEFT_KNOWN_S || (!urgent && !guesses && !self.wants_known()) {
            return;
        }
        self.beliefs.graph.age(now_s, &self.config.aging);
        self.beliefs.calibrate();
        let loads = self.loads();
        let load: f64 = self.load_of_all();
        let usual = self.usual();
        let mut matrix = self.matrix(&loads);
        let hops_max = self.config.hops_max.min(self.config.hops_tried_max);
        let mut urgent_left = if urgent { INSTEAD } else { 0 };
        for _ in 0..LOOKS {
            let Some(routed_id) = self.best(&matrix, hops_max) else { break };
            let worth = routed_id.rate_bytes_per_s;
            // Known edges limit how much the route can bring.
            let hoped = (worth * self.beliefs.hope()).min(matrix.known(&routed_id)).max(worth);
            if hoped < WORTH * ADDS_WHOLE * load.max(total) {
                break;
            }
            // The time it would save on the remaining bytes is too short.
            if !urgent && hoped.is_finite() && hoped * left_bytes < PAYS_S * usual.powi(2) {
                break;
            }
            let free = self.replicas_at(routed_id.source).find(|&replica| {
                !routed_id.route.is_direct()
                    && !self.routed_sources.is_open(replica, &routed_id.route)
                    && !self.is_resting(replica, &routed_id.route)
                    && self.may_open(replica, &routed_id.route)
                    && (urgent || self.is_wider(hoped))
            });
            let Some(replica) = free else {
                matrix.cut_narrowest(&routed_id);
                continue;
            };
            let known = self.is_known(&routed_id, &loads);
            let open = match () {
                () if urgent_left > 0 && self.has_place() => true,
                () if known && self.trials.failures == 0 && self.has_place() => true,
                () if !self.has_room(hoped) => false,
                () => guesses && self.trials_now() < self.trials_max(),
            };
            if !open {
                matrix.cut_narrowest(&routed_id);
                continue;
            }
            let why = match () {
                () if urgent_left > 0 => Why::Instead,
                () if known => Why::Measured,
                () => Why::Guessed,
            };
            let substitute = urgent_left > 0;
            urgent_left = urgent_left.saturating_sub(1);
            let id =
                self.open(replica, routed_id.source, routed_id.route.clone(), why, worth, !known);
            if let Some(routed) = self.routed_sources.open.get_mut(&id) {
                routed.waited = !substitute && (!known || self.trials.failures > 0);
            }
            if self.config.mode == Mode::Widest && urgent_left == 0 {
                break;
            }
            matrix.take(&routed_id);
            if urgent {
                // Nobody knows which relay is dead, so the next route must avoid these.
                matrix.drop_relays(
                    routed_id.route.relays().iter().copied().filter(|&it| self.is_shy(it)),
                );
            }
        }
    }

    /// Returns the likeliest route, or the surest one if that is nearly as good.
    fn best(&self, matrix: &Matrix, hops_max: usize) -> Option<FlowPath> {
        let wider = |one: FlowPath, other: FlowPath| {
            if other.rate_bytes_per_s > one.rate_bytes_per_s { other } else { one }
        };
        let parts = matrix.by_source();
        let likeliest = parts.iter().filter_map(|it| it.likeliest(hops_max, self.beliefs.shape()));
        let likeliest = likeliest.reduce(wider)?;
        let surest = parts.iter().filter_map(|it| it.surest(self.config.hops_max));
        surest
            .reduce(wider)
            .filter(|sure| sure.rate_bytes_per_s >= SURE * likeliest.rate_bytes_per_s)
            .or(Some(likeliest))
    }

    /// Returns whether the limit on tried routes allows this one, or it was tried before.
    fn may_open(&self, replica: ReplicaId, route: &Route) -> bool {
        self.routed_sources.tried.len() < self.config.routes_max
            || self.routed_sources.tried.contains(&(replica, route.clone()))
    }

    fn is_shy(&self, relay: SiteId) -> bool {
        self.relays.standing(relay).shy_until_s > self.times.now_s
    }

    /// Returns the factor by which a relay's promise is reduced after silence on its routes.
    fn doubt(&self, relay: SiteId) -> f64 {
        let standing = self.relays.standing(relay);
        if self.is_shy(relay) { DOUBT.powi(standing.silences.min(8) as i32) } else { 1.0 }
    }

    /// Returns whether guessed routes may be tried now: direct has shown its rate or is stuck, and
    /// a trial is due.
    fn may_guess(&mut self) -> bool {
        let now_s = self.times.now_s;
        let shown = |first_s: f64| now_s - first_s >= SHOWN_S;
        let direct_ripe =
            self.routed_sources.open.values().any(|it| it.route.is_direct() && it.is_ripe(now_s));
        (self.times.first_s.is_some_and(shown) && direct_ripe || self.has_waited())
            && now_s >= self.trials.next_s
            && self.trials_now() < self.trials_max()
    }

    /// Returns whether direct has had enough time to start.
    fn has_waited(&self) -> bool {
        self.times.began_s.is_some_and(|began_s| self.times.now_s - began_s >= STUCK_S)
    }

    /// Returns whether it is time to look for known routes again. A look is cheap, but ten a second
    /// are not needed.
    fn wants_known(&mut self) -> bool {
        let due = self.times.now_s >= self.trials.next_known_s;
        if due {
            self.trials.next_known_s = self.times.now_s + KNOWN_EVERY_S;
        }
        due
    }

    /// Returns whether a candidate promises enough more than the route in use (`Widest` only).
    fn is_wider(&self, worth: f64) -> bool {
        if self.config.mode != Mode::Widest {
            return true;
        }
        let now_s = self.times.now_s;
        let current = self
            .routed_sources
            .open
            .values()
            .filter(|routed| routed.state == RoutedState::InUse && !routed.replaced)
            .map(|routed| routed.rate(routed.window_s(), now_s).max(routed.settled))
            .fold(0.0, f64::max);
        worth > (1.0 + self.config.switch_gain) * current
    }

    /// Returns how many routes on trial count toward the limit.
    fn trials_now(&self) -> usize {
        let young =
            |it: &RoutedSource| matches!(it.state, RoutedState::Opening | RoutedState::OnTrial);
        self.routed_sources.open.values().filter(|routed| young(routed) && routed.waited).count()
    }

    /// Returns the most trials at once: fewer after failures, because each disturbs the transfer.
    fn trials_max(&self) -> usize {
        if self.config.mode == Mode::Widest {
            return 1;
        }
        match self.trials.failures {
            0 => self.config.trials_max,
            1 => self.config.trials_max.min(2),
            _ => 1,
        }
    }

    /// Returns whether one more route through relays may be open.
    fn has_place(&self) -> bool {
        self.routed_sources.relayed().count() < self.config.ways_max
    }

    /// Returns whether there is a place, or the candidate promises enough more than the weakest
    /// open route to be tried in its place.
    fn has_room(&self, worth: f64) -> bool {
        let least = self
            .routed_sources
            .relayed()
            .map(|routed| routed.settled)
            .fold(f64::INFINITY, f64::min);
        self.has_place()
            || self.routed_sources.relayed().count() < self.config.ways_max + self.config.trials_max
                && self.trials_now() == 0
                && worth > BETTER * least
    }

    fn replicas_at(&self, site: SiteId) -> impl Iterator<Item = ReplicaId> + '_ {
        self.replicas.iter().filter(move |(_, at)| **at == site).map(|(&replica, _)| replica)
    }

    /// Returns whether every edge was measured to carry most of what the route promises.
    fn is_known(&self, routed_id: &FlowPath, loads: &Flows) -> bool {
        let known = routed_id.route.edges(routed_id.source).map(|edge| {
            self.beliefs.known(edge.0, edge.1, self.times.now_s)
                - loads.get(&edge).copied().unwrap_or(0.0)
        });
        known.fold(f64::INFINITY, f64::min) >= KNOWN * routed_id.rate_bytes_per_s
    }

    /// Returns the load of each edge, including what young routes are expected to reach.
    fn loads(&self) -> Flows {
        let mut loads = Flows::new();
        if self.config.mode == Mode::Widest {
            return loads;
        }
        for routed in self.routed_sources.open.values() {
            let rate = self.load(routed);
            for edge in routed.edges() {
                *loads.entry(edge).or_default() += rate;
            }
        }
        loads
    }

    fn load(&self, routed: &RoutedSource) -> f64 {
        let rate = routed.rate(routed.window_s(), self.times.now_s);
        let young = !routed.is_ripe(self.times.now_s) && routed.promised.is_finite();
        if young { rate.max(routed.promised) } else { rate }
    }

    /// Returns the total rate, or the remembered direct rate while direct comes up to speed.
    fn usual(&self) -> f64 {
        let direct = || self.routed_sources.open.values().filter(|routed| routed.route.is_direct());
        if direct().any(|routed| routed.is_ripe(self.times.now_s)) {
            return self.routed_sources.total(self.times.now_s);
        }
        let sites: BTreeSet<SiteId> = direct().map(|routed| routed.source).collect();
        let edges = sites.iter().filter_map(|&site| self.beliefs.graph.edge(site, SiteId::HERE));
        let before: f64 = edges.filter_map(|edge| edge.reading).map(|noted| noted.rate).sum();
        before.max(self.routed_sources.total(self.times.now_s))
    }

    fn load_of_all(&self) -> f64 {
        self.routed_sources.open.values().map(|routed| self.load(routed)).sum()
    }

    fn matrix(&self, loads: &Flows) -> Matrix {
        let sources: BTreeSet<SiteId> = self.replicas.values().copied().collect();
        let sources: Vec<SiteId> = sources.into_iter().collect();
        // An edge that limits a route has no capacity left.
        let used = |routed: &&RoutedSource| routed.state == RoutedState::InUse && routed.now.busy;
        let limits: BTreeSet<(SiteId, SiteId)> = match self.config.mode {
            Mode::Widest => BTreeSet::new(),
            _ => self
                .routed_sources
                .open
                .values()
                .filter(used)
                .filter_map(|it| Some(self.routed_sources.limit(it.id, self.times.now_s)?.0))
                .collect(),
        };
        Matrix::new(&self.considered(&sources), &sources, |from, to| {
            let hop = self
                .beliefs
                .estimate(from, to, self.times.now_s)
                .filter(|_| !limits.contains(&(from, to)))?;
            let load = loads.get(&(from, to)).copied().unwrap_or(0.0);
            let doubt = self.doubt(from);
            let sure = if doubt < 1.0 { 0.0 } else { hop.least };
            let hop =
                Hop { rate: hop.rate * doubt, guess: hop.guess || doubt < 1.0, least: sure, ..hop };
            // The rest of a nearly full edge is noise.
            let rate = hop.rate - load;
            (rate > REST * hop.rate).then_some(Hop { rate, least: hop.least - load, ..hop })
        })
    }

    /// Returns the relays to search: of hundreds, those that promise most alone and those nearest
    /// to either end, where chains of short hops begin.
    fn considered(&self, sources: &[SiteId]) -> Vec<SiteId> {
        let relays: Vec<SiteId> = self.beliefs.graph.relays().collect();
        if relays.len() <= self.config.relays_max {
            return relays;
        }
        let rate = |from, to| {
            self.beliefs.estimate(from, to, self.times.now_s).map_or(0.0, |hop| hop.rate)
        };
        let ends: Vec<(SiteId, f64, f64)> = relays
            .iter()
            .map(|&relay| {
                let reached = sources.iter().map(|&source| rate(source, relay)).fold(0.0, f64::max);
                (relay, reached, rate(relay, SiteId::HERE))
            })
            .collect();
        let ranked = |worth: &dyn Fn(&(SiteId, f64, f64)) -> f64| {
            let mut ranked = ends.clone();
            ranked.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
            ranked.into_iter().map(|it| it.0).collect::<Vec<_>>()
        };
        let lists = [ranked(&|it| it.1.min(it.2)), ranked(&|it| it.1), ranked(&|it| it.2)];
        let mut chosen: BTreeSet<SiteId> = BTreeSet::new();
        for routed in self.routed_sources.open.values() {
            chosen.extend(
                routed.route.relays().iter().filter(|&&relay| self.beliefs.graph.is_relay(relay)),
            );
        }
        for at in 0..relays.len() {
            for list in &lists {
                if chosen.len() < self.config.relays_max {
                    chosen.insert(list[at]);
                }
            }
        }
        chosen.into_iter().collect()
    }
}

/// With less time left than this, nothing new is tried: a trial takes a second or two, and its gain
/// must pay for that.
const LEFT_S: f64 = 4.0;
/// The same limit in `Multi` mode.
const LEFT_MULTI_S: f64 = 2.0;
/// The same limit for routes known to be good.
const LEFT_KNOWN_S: f64 = 1.0;

/// Time that a route must save, if all it brings is gain: opening it costs some of that.
const PAYS_S: f64 = 0.2;
/// If direct waits for us this part of the time, other routes gain nothing.
const AWAITED: f64 = 0.5;

/// How long direct runs alone at first, so that its rate is known.
const SHOWN_S: f64 = 0.5;
/// Other routes are tried this long after the start if direct brings nothing.
const STUCK_S: f64 = 1.2;

/// A candidate must promise this many times what a route must bring to stay.
const WORTH: f64 = 1.5;
/// When all places are taken, a candidate must promise this many times the weakest route.
const BETTER: f64 = 1.5;
/// A route is known if its edges are known to carry this part of its promise.
const KNOWN: f64 = 0.8;
/// An edge with less than this part left has no room for another route.
const REST: f64 = 0.1;
/// Most candidates examined in one search.
const LOOKS: usize = 12;
/// Most routes opened in place of a lost one.
const INSTEAD: usize = 3;
/// Factor on the promises of each relay of a silent route: one is dead, nobody knows which.
const DOUBT: f64 = 0.7;
/// The surest route is preferred if it promises this part of the likeliest one.
const SURE: f64 = 0.9;
/// Interval between searches for known routes.
const KNOWN_EVERY_S: f64 = 0.5;
