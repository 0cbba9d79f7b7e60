//! What is known of the relays: trust in their reports, back-off after failures, suspect edges.
//! `verdict` finds out which relays change data.

use std::collections::{BTreeMap, BTreeSet};

use super::config::Mode;
use super::event::{Fault, RouteAction};
use super::name::{ReplicaId, Route, RoutedId, SiteId};
use super::routed_source::RoutedSource;
use super::router::Router;
use super::verdict::Verdict;
use super::view::{RoutedState, Why};

/// The state of one relay in this transfer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// It changed data and is never used again in this transfer.
    pub barred: bool,
    /// It is one of several that may have changed data.
    pub suspected: bool,
    /// It does not answer.
    pub lost: bool,
    /// Its reports were false; they are ignored from now on.
    pub disbelieved: bool,
    /// A route over it fell silent: other relays are preferred until this time.
    pub shy_until_s: f64,
    /// Silences in a row.
    pub silences: u32,
    /// False reports in a row.
    pub strikes: u32,
    /// Since when an answer is awaited; `None`: it was not asked.
    pub asked_s: Option<f64>,
    /// When it last answered that it is well.
    pub answered_s: f64,
    /// It did not answer in time although others did or data arrived: it is left out until this
    /// time, or until it answers.
    pub mute_until_s: Option<f64>,
    /// Missing answers in a row.
    pub mutes: u32,
}

impl Standing {
    /// Returns whether data may pass through it.
    pub fn is_usable(&self) -> bool {
        !self.barred && !self.suspected && !self.lost && self.mute_until_s.is_none()
    }
}

/// Back-off of a failed route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub until_s: f64,
    /// Failures in a row.
    pub times: u32,
}

/// An edge on which something broke: its rate is capped for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspect {
    pub until_s: f64,
    pub times: u32,
    pub rate: f64,
    /// A site refused the request.
    pub refused: bool,
}

/// All relays, and which of them are under suspicion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Relays {
    pub standings: BTreeMap<SiteId, Standing>,
    pub verdicts: Vec<Verdict>,
    /// The suspect of corruption that may be used at present.
    pub on_probation: Option<SiteId>,
    pub next_probation_s: f64,
}

impl Relays {
    /// Returns the state of a relay.
    pub fn standing(&self, site: SiteId) -> Standing {
        self.standings.get(&site).copied().unwrap_or_default()
    }
}

impl Router {
    pub(crate) fn relay_up(&mut self, site: SiteId) {
        let standing = self.relays.standings.entry(site).or_default();
        (standing.lost, standing.mute_until_s) = (false, None);
        let is_usable = standing.is_usable();
        if is_usable {
            self.beliefs.graph.set_relay(site, true);
        }
    }

    pub(crate) fn relay_lost(&mut self, site: SiteId) {
        self.relays.standings.entry(site).or_default().lost = true;
        self.beliefs.graph.set_relay(site, false);
        if matches!(self.config.mode, Mode::Fixed(_)) {
            // Routes that the user named are left only when they fail themselves.
            return;
        }
        for routed_id in self.routed_sources.those(|routed| routed.route.contains(site)) {
            self.lose(routed_id, Why::RelayLost, true);
        }
    }

    /// Asks the relays of a silent route whether they are well.
    pub(crate) fn ask(&mut self, relays: &[SiteId]) {
        for &site in relays {
            let standing = self.relays.standings.entry(site).or_default();
            if standing.asked_s.is_none() {
                standing.asked_s = Some(self.times.now_s);
                self.actions.push_back(RouteAction::Ask { site });
            }
        }
    }

    /// Handles a relay's answer. If it was silent before, all back-offs of it and its routes are
    /// cleared: after a site was away for some seconds, pauses that grew with each failure would
    /// keep it out of use for minutes.
    pub(crate) fn relay_answered(&mut self, site: SiteId, was_silent: bool) {
        let now_s = self.times.now_s;
        let standing = self.relays.standings.entry(site).or_default();
        (standing.asked_s, standing.answered_s, standing.mutes) = (None, now_s, 0);
        if !was_silent {
            self.hear(site);
            self.trust_who_answered();
            return;
        }
        (standing.silences, standing.shy_until_s) = (0, 0.0);
        self.relay_up(site);
        self.beliefs.suspects.retain(|&(from, to), _| from != site && to != site);
        self.rests.retain(|(_, route), rest| !route.contains(site) || rest.until_s.is_infinite());
        for routed in
            self.routed_sources.open.values_mut().filter(|routed| routed.route.contains(site))
        {
            // Open routes over it get the full time to come back.
            routed.low_since_s = routed.low_since_s.map(|_| self.times.now_s);
        }
        self.trials.begin_anew(self.times.now_s);
        self.trials.next_known_s = self.times.now_s;
        self.open_instead();
    }

    /// Records that it is not mute.
    fn hear(&mut self, site: SiteId) {
        let standing = self.relays.standings.entry(site).or_default();
        if standing.mute_until_s.take().is_some() {
            let is_usable = standing.is_usable();
            self.beliefs.graph.set_relay(site, is_usable);
            self.trials.next_known_s = self.times.now_s;
        }
    }

    /// Leaves out relays that neither answered in time nor bring data, for a while: each is dead,
    /// or only we cannot reach it. If nobody answers and nothing arrives, our own network may be
    /// down and no relay is blamed.
    pub(crate) fn tell_mute(&mut self) {
        let now_s = self.times.now_s;
        let asked = |(&site, it): (&SiteId, &Standing)| Some((site, it.asked_s?, *it));
        let asked: Vec<(SiteId, f64, Standing)> =
            self.relays.standings.iter().filter_map(asked).collect();
        let comes_since = |routed: &RoutedSource, since_s: f64| {
            routed.mean((now_s - HEARD_S).max(since_s.min(now_s)), now_s) > 0.0
        };
        for (site, asked_s, standing) in asked {
            let mut over_it =
                self.routed_sources.open.values().filter(|it| it.route.contains(site));
            if over_it.any(|routed| comes_since(routed, asked_s)) {
                self.hear(site);
                self.relays.standings.entry(site).or_default().asked_s = Some(now_s);
                continue;
            }
            if let Some(until_s) = standing.mute_until_s {
                if now_s >= until_s {
                    // Others may reach it. It stays doubted and gets time to bring something.
                    self.hear(site);
                    let standing = self.relays.standings.entry(site).or_default();
                    standing.asked_s = Some(now_s + MUTE_S);
                    standing.shy_until_s = now_s + MUTE_S;
                    standing.silences += 1;
                }
                continue;
            }
            let patience_s = ANSWER_S + ANSWER_TRIPS * self.beliefs.rtt_s(&Route::direct(), site);
            let others_are_heard =
                self.routed_sources.open.values().any(|routed| comes_since(routed, asked_s))
                    || self.relays.standings.values().any(|it| it.answered_s >= asked_s);
            if now_s - asked_s >= patience_s && others_are_heard {
                self.leave_out(site);
            }
        }
        self.trust_who_answered();
    }

    fn leave_out(&mut self, site: SiteId) {
        let standing = self.relays.standings.entry(site).or_default();
        let wait_s = (MUTE_S * 2f64.powi(standing.mutes.min(10) as i32)).min(REST_MAX_S);
        (standing.mute_until_s, standing.mutes) =
            (Some(self.times.now_s + wait_s), standing.mutes + 1);
        self.beliefs.graph.set_relay(site, false);
        let by_it = self.routed_sources.those(|it| it.route.contains(site));
        if !by_it.is_empty() {
            // Trials over it would keep others from being tried, and replacements need not wait.
            self.trials.next_s = self.times.now_s;
            self.trials.next_known_s = self.times.now_s;
        }
        for routed_id in by_it {
            if self
                .routed_sources
                .open
                .get(&routed_id)
                .is_some_and(|it| it.state != RoutedState::InUse)
            {
                self.lose(routed_id, Why::Silent, true);
            }
        }
    }

    /// Clears the relays that answered, and the edges between them, once another relay is known to
    /// be mute: that one was the cause.
    fn trust_who_answered(&mut self) {
        let mute = self.relays.standings.values().filter(|it| it.mute_until_s.is_some());
        let Some(since_s) = mute.filter_map(|it| it.asked_s).reduce(f64::min) else { return };
        let answered = |it: &Standing| it.asked_s.is_none() && it.answered_s >= since_s;
        let well: BTreeSet<SiteId> = self
            .relays
            .standings
            .iter_mut()
            .filter(|(_, it)| answered(it))
            .map(|(&site, it)| {
                (it.silences, it.shy_until_s) = (0, 0.0);
                site
            })
            .chain(self.replicas.values().copied())
            .chain([SiteId::HERE])
            .collect();
        // Clears suspicion from silence only, not what a relay reported or refused.
        self.beliefs.suspects.retain(|(from, to), it| {
            it.rate > 0.0 || it.refused || !(well.contains(from) && well.contains(to))
        });
    }

    /// Handles a route that the executor reported as gone.
    pub(crate) fn route_failed(&mut self, routed_id: RoutedId, fault: Fault, at: Option<SiteId>) {
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        let (route, edges) = (routed.route.clone(), routed.edges().collect::<Vec<_>>());
        match fault {
            Fault::Final => {
                let never = Rest { until_s: f64::INFINITY, times: 0 };
                self.enter_rest((routed.replica, route), never);
                self.forget(routed_id, Why::Failed);
                return;
            }
            Fault::Corrupt => self.bar(routed_id, at),
            Fault::Broken => {
                for &(from, to) in &edges {
                    // If the place is unknown, suspect all edges that no other route uses.
                    let there = at.is_none_or(|at| at == from || at == to);
                    if !route.is_direct()
                        && there
                        && !self.routed_sources.is_carried_by_others(
                            routed_id,
                            (from, to),
                            self.times.now_s,
                        )
                    {
                        self.suspect((from, to), 0.0);
                    }
                }
                let mut relays = route.relays().to_vec();
                relays.retain(|&relay| {
                    !self.routed_sources.is_alive(routed_id, relay, self.times.now_s)
                });
                self.ask(&relays);
            }
            Fault::Refused => {
                // A site that refuses this route may accept others: shut only the edge to it.
                if let Some(&edge) = edges.iter().find(|(from, _)| Some(*from) == at) {
                    self.suspect(edge, 0.0);
                    if let Some(suspect) = self.beliefs.suspects.get_mut(&edge) {
                        suspect.refused = true;
                    }
                }
            }
        }
        let why = if fault == Fault::Corrupt { Why::Corrupt } else { Why::Failed };
        let young =
            |routed: &&RoutedSource| !route.is_direct() && routed.state != RoutedState::InUse;
        let tried = self.routed_sources.open.get(&routed_id).filter(young).map(|routed| routed.why);
        self.lose(routed_id, why, false);
        if let Some(opened_for) = tried {
            self.trial_failed(opened_for);
        }
    }

    /// Takes a route out of use, backs off from it and opens the next best in its place.
    pub(crate) fn lose(&mut self, routed_id: RoutedId, why: Why, tell: bool) {
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        let key = (routed.replica, routed.route.clone());
        let missed = routed.state == RoutedState::InUse && !routed.replaced && routed.settled > 0.0;
        let direct = routed.route.is_direct();
        self.rest(key, if direct { DIRECT_REST_S } else { REST_S });
        if tell {
            self.close(routed_id, why);
        } else {
            self.forget(routed_id, why);
        }
        if missed && !direct {
            self.open_instead();
        }
    }

    /// Backs off from a route, longer each time.
    pub(crate) fn rest(&mut self, key: (ReplicaId, Route), seconds: f64) {
        let times = self.rests.get(&key).map_or(0, |rest| rest.times);
        let wait_s = (seconds * 2f64.powi(times.min(10) as i32)).min(REST_MAX_S);
        let until_s = self.times.now_s + self.about(wait_s);
        self.enter_rest(key, Rest { until_s, times: times + 1 });
    }

    fn enter_rest(&mut self, key: (ReplicaId, Route), rest: Rest) {
        if self.rests.len() >= RESTS_MAX
            && let Some(first) = self
                .rests
                .iter()
                .min_by(|a, b| a.1.until_s.total_cmp(&b.1.until_s))
                .map(|(key, _)| key.clone())
        {
            self.rests.remove(&first);
        }
        self.rests.insert(key, rest);
    }

    pub(crate) fn is_resting(&self, replica: ReplicaId, route: &Route) -> bool {
        self.rests
            .get(&(replica, route.clone()))
            .is_some_and(|rest| rest.until_s > self.times.now_s)
    }

    /// Caps the rate of an edge for a while, longer each time.
    pub(crate) fn suspect(&mut self, edge: (SiteId, SiteId), rate: f64) {
        let times = self.beliefs.suspects.get(&edge).map_or(0, |it| {
            // Old failures are forgiven.
            if self.times.now_s - it.until_s > FORGIVEN_S { 0 } else { it.times }
        });
        let wait_s = (SUSPECT_S * 2f64.powi(times.min(10) as i32)).min(REST_MAX_S);
        let until_s = self.times.now_s + self.about(wait_s);
        self.beliefs
            .suspects
            .insert(edge, Suspect { until_s, times: times + 1, rate, refused: false });
    }
}

/// Time to answer, plus round trips: we may have to connect to the relay first.
const ANSWER_S: f64 = 0.2;
const ANSWER_TRIPS: f64 = 5.0;
/// A route that brought something within this time is not silent.
const HEARD_S: f64 = 0.5;
/// First time for which a relay that did not answer is left out; doubled each time.
const MUTE_S: f64 = 5.0;
/// First back-off of a relay route that failed; doubled each time.
const REST_S: f64 = 2.0;
/// The same for direct. It is shorter because everything else falls back to direct.
const DIRECT_REST_S: f64 = 1.0;
/// Longest back-off.
const REST_MAX_S: f64 = 60.0;
/// Most back-offs remembered: bounds memory with hundreds of relays.
const RESTS_MAX: usize = 512;
/// First time for which an edge is avoided after something broke on it.
const SUSPECT_S: f64 = 2.0;
/// How long after that time an edge's failures are forgotten.
const FORGIVEN_S: f64 = 30.0;
