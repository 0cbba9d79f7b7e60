//! What relays have earned: trust in their word, rest after failures, suspicion of their edges.
//! Whether they change data: `verdict`.

use std::collections::{BTreeMap, BTreeSet};

use super::config::Mode;
use super::event::{Fault, RouteAction};
use super::name::{ReplicaId, Route, RoutedId, SiteId};
use super::routed_source::RoutedSource;
use super::router::Router;
use super::verdict::Verdict;
use super::view::{RoutedState, Why};

/// How a relay stands with us.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// It changed data: never again in this transfer.
    pub barred: bool,
    /// It, or another one, changed data.
    pub suspected: bool,
    /// It does not answer.
    pub lost: bool,
    /// What it said of its hops was not true: it is not listened to any more.
    pub disbelieved: bool,
    /// A route over it fell silent: until then others are preferred.
    pub shy_until_s: f64,
    /// How often in a row that was so.
    pub silences: u32,
    /// How often in a row what it said was not true.
    pub strikes: u32,
    /// Since when it is being asked whether it is well.
    pub asked_s: Option<f64>,
    /// When it last answered that it is.
    pub answered_s: f64,
    /// It has not answered in time, although others did or something came meanwhile: it is left out
    /// until then, or until it answers.
    pub mute_until_s: Option<f64>,
    /// How often in a row that was so.
    pub mutes: u32,
}

impl Standing {
    /// Returns whether data may pass over it.
    pub fn is_usable(&self) -> bool {
        !self.barred && !self.suspected && !self.lost && self.mute_until_s.is_none()
    }
}

/// A route that is left alone for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub until_s: f64,
    /// How often in a row it came to nothing.
    pub times: u32,
}

/// An edge on which something broke: for a while it counts for no more than this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspect {
    pub until_s: f64,
    pub times: u32,
    pub rate: f64,
    /// Somebody said so.
    pub refused: bool,
}

/// All relays, and who of them is under suspicion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Relays {
    pub standings: BTreeMap<SiteId, Standing>,
    pub verdicts: Vec<Verdict>,
    /// The one of those suspected of corruption that may be used.
    pub on_probation: Option<SiteId>,
    pub next_probation_s: f64,
}

impl Relays {
    /// How a relay stands with us.
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
            // Named routes are left when they fail, and not because of what is heard of a relay.
            return;
        }
        for routed_id in self.routed_sources.those(|routed| routed.route.contains(site)) {
            self.lose(routed_id, Why::RelayLost, true);
        }
    }

    /// Something that came by these relays is silent: one of them may be.
    pub(crate) fn ask(&mut self, relays: &[SiteId]) {
        for &site in relays {
            let standing = self.relays.standings.entry(site).or_default();
            if standing.asked_s.is_none() {
                standing.asked_s = Some(self.times.now_s);
                self.actions.push_back(RouteAction::Ask { site });
            }
        }
    }

    /// A relay answers. If it was silent, what was held against it and against routes over it is past:
    /// where a whole site was away for some seconds, pauses that grew with each failure would keep
    /// all of them out of use for minutes.
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
            // What is open over it still has as long to come back as if it had fallen silent now.
            routed.low_since_s = routed.low_since_s.map(|_| self.times.now_s);
        }
        self.trials.begin_anew(self.times.now_s);
        self.trials.next_known_s = self.times.now_s;
        self.open_instead();
    }

    /// It is not mute.
    fn hear(&mut self, site: SiteId) {
        let standing = self.relays.standings.entry(site).or_default();
        if standing.mute_until_s.take().is_some() {
            let is_usable = standing.is_usable();
            self.beliefs.graph.set_relay(site, is_usable);
            self.trials.next_known_s = self.times.now_s;
        }
    }

    /// Who has not answered in time, and brings nothing, is the one for which the others of its route were
    /// doubted. It is left out for a while: perhaps it is dead, and perhaps it is only we who do not
    /// reach it. (Where nobody answers and nothing comes it may be our own network, and nobody is blamed.)
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
                    // Others may reach it. It is doubted, and has time to bring something.
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
            // What was only tried over it keeps others from being tried, and what is to take the place
            // of the rest waits for nothing.
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

    /// Where one of those that were asked is mute, it was that one: who has answered is doubted no more,
    /// nor are edges between those.
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
        // What was suspected of a silent route, and not what a relay told, or refused.
        self.beliefs.suspects.retain(|(from, to), it| {
            it.rate > 0.0 || it.refused || !(well.contains(from) && well.contains(to))
        });
    }

    /// A route is gone, told by the executor.
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
                    // Nobody knows where: any edge of it, unless another route shows that it is well.
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
                // Who refuses this does not refuse every route; the edge to who refused is shut.
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

    /// Takes a route out of use, lets it rest and opens the next best instead of it.
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

    /// Lets a route rest, longer each time.
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

    /// An edge is to count for no more than this for a while, longer each time.
    pub(crate) fn suspect(&mut self, edge: (SiteId, SiteId), rate: f64) {
        let times = self.beliefs.suspects.get(&edge).map_or(0, |it| {
            // What went well for long since is not held against it.
            if self.times.now_s - it.until_s > FORGIVEN_S { 0 } else { it.times }
        });
        let wait_s = (SUSPECT_S * 2f64.powi(times.min(10) as i32)).min(REST_MAX_S);
        let until_s = self.times.now_s + self.about(wait_s);
        self.beliefs
            .suspects
            .insert(edge, Suspect { until_s, times: times + 1, rate, refused: false });
    }
}

/// To answer takes a relay so long and so many round trips: it may have to be connected to.
const ANSWER_S: f64 = 0.2;
const ANSWER_TRIPS: f64 = 5.0;
/// What brought something within so long is not silent.
const HEARD_S: f64 = 0.5;
/// Who did not answer is left out for so long, then twice as long …
const MUTE_S: f64 = 5.0;
/// A relayed route that failed is tried again after this, then after twice that …
const REST_S: f64 = 2.0;
/// Direct sooner: it is what everything else falls back to.
const DIRECT_REST_S: f64 = 1.0;
/// … and at last once in so long.
const REST_MAX_S: f64 = 60.0;
/// Most routes whose rest is remembered: a bound on memory with hundreds of relays.
const RESTS_MAX: usize = 512;
/// How long an edge on which something broke is avoided at first.
const SUSPECT_S: f64 = 2.0;
/// How long after its time an edge is as good as any other again.
const FORGIVEN_S: f64 = 30.0;
