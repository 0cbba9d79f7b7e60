//! What relays have earned: trust in their word, rest after failures, suspicion of their edges.

use super::event::Fault;
use super::name::{ReplicaId, Route, SiteId, WayId};
use super::router::Router;
use super::view::{WayState, Why};

/// How a relay stands with us.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// It changed data: never again in this transfer.
    pub barred: bool,
    /// It, or another one, changed data.
    pub suspected: bool,
    /// What it said of its hops was not true: it is not listened to any more.
    pub disbelieved: bool,
    /// A way over it fell silent: until then others are preferred.
    pub shy_until_s: f64,
    /// How often in a row that was so.
    pub silences: u32,
    /// How often in a row what it said was not true.
    pub strikes: u32,
}

/// A way that is left alone for a while.
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
}

impl Router {
    pub(crate) fn relay_up(&mut self, site: SiteId) {
        let standing = self.standing(site);
        if !standing.barred && !standing.suspected {
            self.graph.set_relay(site, true);
        }
    }

    pub(crate) fn relay_lost(&mut self, site: SiteId) {
        self.graph.set_relay(site, false);
        for way in self.those(|book| book.route.contains(site)) {
            self.lose(way, Why::RelayLost, false);
        }
    }

    pub(crate) fn standing(&self, site: SiteId) -> Standing {
        self.standings.get(&site).copied().unwrap_or_default()
    }

    /// A way is gone, told by the executor.
    pub(crate) fn way_failed(&mut self, way: WayId, fault: Fault, at: Option<SiteId>) {
        let Some(book) = self.ways.get(&way) else { return };
        let (route, edges) = (book.route.clone(), book.edges().collect::<Vec<_>>());
        match fault {
            Fault::Final => {
                let never = Rest { until_s: f64::INFINITY, times: 0 };
                self.enter_rest((book.replica, route), never);
                self.forget(way, Why::Failed);
                return;
            }
            Fault::Corrupt => self.bar(way, at),
            Fault::Broken => {
                for &(from, to) in &edges {
                    // Nobody knows where: any edge of it, unless another way shows that it is well.
                    let there = at.is_none_or(|at| at == from || at == to);
                    if !route.is_direct() && there && !self.is_carried_by_others(way, (from, to)) {
                        self.suspect((from, to), 0.0);
                    }
                }
            }
            Fault::Refused => {
                // Who refuses this does not refuse every route; the edge to who refused is shut.
                if let Some(&edge) = edges.iter().find(|(from, _)| Some(*from) == at) {
                    self.suspect(edge, 0.0);
                }
            }
        }
        let why = if fault == Fault::Corrupt { Why::Corrupt } else { Why::Failed };
        let tried =
            !route.is_direct() && self.ways.get(&way).is_some_and(|it| it.state != WayState::InUse);
        self.lose(way, why, false);
        if tried {
            self.trial_failed();
        }
    }

    /// Take a way out of use, let it rest and open the next best instead of it.
    pub(crate) fn lose(&mut self, way: WayId, why: Why, tell: bool) {
        let Some(book) = self.ways.get(&way) else { return };
        let key = (book.replica, book.route.clone());
        let missed = book.state == WayState::InUse && !book.replaced && book.settled > 0.0;
        let direct = book.route.is_direct();
        self.rest(key, if direct { DIRECT_REST_S } else { REST_S });
        if tell {
            self.close(way, why);
        } else {
            self.forget(way, why);
        }
        if missed && !direct {
            self.open_instead();
        }
    }

    /// Let a way rest, longer each time.
    pub(crate) fn rest(&mut self, key: (ReplicaId, Route), seconds: f64) {
        let times = self.rests.get(&key).map_or(0, |rest| rest.times);
        let wait_s = (seconds * 2f64.powi(times.min(10) as i32)).min(REST_MAX_S);
        let until_s = self.now_s + self.about(wait_s);
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
        self.rests.get(&(replica, route.clone())).is_some_and(|rest| rest.until_s > self.now_s)
    }

    /// An edge is to count for no more than this for a while, longer each time.
    pub(crate) fn suspect(&mut self, edge: (SiteId, SiteId), rate: f64) {
        let times = self.suspects.get(&edge).map_or(0, |it| {
            // What went well for long since is not held against it.
            if self.now_s - it.until_s > FORGIVEN_S { 0 } else { it.times }
        });
        let wait_s = (SUSPECT_S * 2f64.powi(times.min(10) as i32)).min(REST_MAX_S);
        let until_s = self.now_s + self.about(wait_s);
        self.suspects.insert(edge, Suspect { until_s, times: times + 1, rate });
    }

    /// Whether another way brings something over this edge.
    pub(crate) fn is_carried_by_others(&self, way: WayId, edge: (SiteId, SiteId)) -> bool {
        self.ways.values().any(|book| {
            book.id != way
                && book.edges().any(|other| other == edge)
                && book.low_since_s.is_none()
                && book.rate(book.window_s(), self.now_s) > 0.0
        })
    }

    /// Something that came over this way was not the data. Who did it is known, or it was one of
    /// the relays: the only one that can have been is never asked again, several are left out, and
    /// come back one at a time to show who it was.
    fn bar(&mut self, way: WayId, at: Option<SiteId>) {
        let Some(book) = self.ways.get(&way) else { return };
        let mut relays: Vec<SiteId> = match at {
            Some(at) if book.route.contains(at) => vec![at],
            // The origin itself is not judged here: that is the executor's business.
            Some(_) => return,
            None => book.route.relays().to_vec(),
        };
        let clear =
            |relay: &SiteId| !self.standing(*relay).suspected && self.is_vouched_for(way, *relay);
        if at.is_none() && !relays.iter().all(clear) {
            relays.retain(|relay| !clear(relay));
        }
        // Who is on probation was the only one that was not above suspicion.
        if let Some(relay) = self.on_probation.filter(|relay| relays.contains(relay)) {
            relays = vec![relay];
        }
        let certain = relays.len() == 1;
        for &relay in &relays {
            let standing = self.standings.entry(relay).or_default();
            standing.barred |= certain;
            standing.suspected = !certain;
            self.graph.set_relay(relay, false);
        }
        self.on_probation = self.on_probation.filter(|relay| !relays.contains(relay));
        for other in
            self.those(|book| book.id != way && relays.iter().any(|&it| book.route.contains(it)))
        {
            self.lose(other, Why::Corrupt, true);
        }
    }

    /// Let those that were left out because one of them corrupts show, one at a time, that it was
    /// another one.
    pub(crate) fn absolve(&mut self) {
        if let Some(relay) = self.on_probation {
            let brought = self.ways.values().filter(|book| book.route.contains(relay));
            if brought.map(|book| book.now.delivered_bytes).sum::<u64>() >= VOUCHED_BYTES {
                self.standings.entry(relay).or_default().suspected = false;
                self.on_probation = None;
            } else if self.now_s >= self.next_probation_s {
                // Nobody had a use for it.
                self.on_probation = None;
            }
        }
        if self.on_probation.is_none() && self.now_s >= self.next_probation_s {
            let suspected: Vec<SiteId> =
                self.standings.iter().filter(|it| it.1.suspected).map(|it| *it.0).collect();
            if suspected.is_empty() {
                return;
            }
            for &relay in &suspected {
                self.graph.set_relay(relay, false);
            }
            self.next_probation_s = self.now_s + self.about(PROBATION_S);
            let chosen = suspected[self.rng.usize(..suspected.len())];
            self.graph.set_relay(chosen, true);
            self.on_probation = Some(chosen);
        }
    }

    /// Whether another way through this relay has long brought what nobody complained about.
    fn is_vouched_for(&self, way: WayId, relay: SiteId) -> bool {
        self.ways.values().any(|book| {
            book.id != way
                && book.route.contains(relay)
                && book.state == WayState::InUse
                && book.now.delivered_bytes >= VOUCHED_BYTES
        })
    }
}

/// A relayed way that failed is tried again after this, then after twice that …
const REST_S: f64 = 2.0;
/// Direct sooner: it is what everything else falls back to.
const DIRECT_REST_S: f64 = 1.0;
/// … and at last once in so long.
const REST_MAX_S: f64 = 60.0;
/// Most ways whose rest is remembered: a bound on memory with hundreds of relays.
const RESTS_MAX: usize = 512;
/// How long an edge on which something broke is avoided at first.
const SUSPECT_S: f64 = 2.0;
/// How long after its time an edge is as good as any other again.
const FORGIVEN_S: f64 = 30.0;
/// What a relay has to have brought over another way to be above suspicion: blocks are proved by
/// the megabyte.
const VOUCHED_BYTES: u64 = 8 << 20;
/// How long one of those that are suspected may show that it is not the one.
const PROBATION_S: f64 = 15.0;
