//! One transfer in the network: its router, its ways, and what is recorded of it.

use std::collections::{BTreeMap, VecDeque};

use swath_model::Time;
use swath_plan::routes::{
    Fault, HopReport, Reading, ReplicaId, Route, RouteAction, RouteEvent, RoutedId, RoutedNow,
    RoutedState, Router, RouterConfig, SiteId,
};

use super::net::{Mood, Net};
use super::outcome::TransferOutcome;

/// A way that is open, as the network sees it.
pub(super) struct Flowing {
    /// Positions of its edges, the nearest to us first.
    pub edges: Vec<usize>,
    /// Sites on it: ours, the relays, the origin.
    pub sites: Vec<usize>,
    /// When its first byte comes; infinite: never.
    pub up_s: f64,
    /// It fails at this moment.
    fails: Option<(f64, Fault, Option<usize>)>,
    /// What each hop's window lets through, bytes per second.
    ramps: Vec<f64>,
    pub rate: f64,
    /// The position of the edge that limits it.
    limit: usize,
    delivered: f64,
    brought_at_s: f64,
    reported_s: f64,
    /// Rates of the last second, every 0.1 s.
    recent: VecDeque<f64>,
    damage: f64,
}

pub(super) struct Transfer {
    pub router: Router,
    pub routed_sources: BTreeMap<RoutedId, Flowing>,
    pub left: f64,
    pub begins_s: f64,
    pub record: TransferOutcome,
    here: usize,
    /// Sites in the network by their numbers in the graph.
    sites: Vec<usize>,
    told: Vec<(f64, RouteEvent)>,
    rng: fastrand::Rng,
    /// The route whose use is waited for.
    pub awaited: Option<Route>,
    /// Since when these relays are asked whether they are well.
    asked: Vec<(f64, SiteId)>,
}

impl Transfer {
    pub fn new(
        net: &Net,
        (sources, here): (&[usize], usize),
        size_bytes: f64,
        config: RouterConfig,
        memory: &[(usize, usize, Reading)],
        begins_s: f64,
    ) -> Self {
        let mut rng = fastrand::Rng::with_seed(config.seed ^ 0xace);
        let mut sites = vec![here];
        sites.extend((0..net.names.len()).filter(|&site| site != here));
        let id = |site: usize| SiteId(sites.iter().position(|&it| it == site).unwrap_or(0) as u32);
        let mut told = Vec::new();
        for &(from, to, reading) in memory {
            told.push((0.0, RouteEvent::Remembered { from: id(from), to: id(to), reading }));
        }
        for (at, &source) in sources.iter().enumerate() {
            let replica = ReplicaId(at as u32);
            told.push((0.0, RouteEvent::ReplicaAdded { replica, site: id(source) }));
        }
        for edge in &net.edges {
            let (from, to) = (id(edge.from), id(edge.to));
            let rtt_s = Some(edge.rtt_s * (1.0 + 0.05 * rng.f64()));
            // A relay tells of itself when it has been asked, which takes two round trips.
            let asked_s = match net.edge(edge.to, here) {
                _ if edge.to == here => 1.5 * edge.rtt_s,
                Some(at) => 2.5 * net.edges[at].rtt_s + 1.5 * edge.rtt_s,
                None => continue,
            };
            if !sources.contains(&edge.to) {
                told.push((asked_s, RouteEvent::RoundTrip { from, to, rtt_s }));
            }
            if edge.to == here && !sources.contains(&edge.from) {
                told.push((2.5 * edge.rtt_s, RouteEvent::RelayUp { site: from }));
            }
        }
        // What no edge joins cannot be reached.
        for (from, to) in sites.iter().flat_map(|&a| sites.iter().map(move |&b| (a, b))) {
            if from != to && from != here && net.edge(from, to).is_none() {
                let (from, to) = (id(from), id(to));
                told.push((0.0, RouteEvent::RoundTrip { from, to, rtt_s: None }));
            }
        }
        told.sort_by(|a, b| b.0.total_cmp(&a.0));
        Self {
            router: Router::new(config),
            routed_sources: BTreeMap::new(),
            left: size_bytes,
            begins_s,
            record: TransferOutcome::default(),
            here,
            sites,
            told,
            rng,
            awaited: None,
            asked: Vec::new(),
        }
    }

    fn id(&self, site: usize) -> SiteId {
        SiteId(self.sites.iter().position(|&it| it == site).unwrap_or(0) as u32)
    }

    /// Returns what the router learnt, by sites of the network.
    pub fn learnt(&self) -> Vec<(usize, usize, Reading)> {
        let site = |id: SiteId| self.sites[id.0 as usize];
        self.router.readings().map(|(from, to, it)| (site(from), site(to), it)).collect()
    }

    /// What others have measured by now.
    pub fn hear(&mut self, heard: &[(usize, usize, Reading)], now_s: f64) {
        let now = Time::from_secs_f64(now_s - self.begins_s);
        for &(from, to, reading) in heard {
            let (from, to) = (self.id(from), self.id(to));
            self.router.handle(RouteEvent::Remembered { from, to, reading }, now);
        }
    }

    /// Answers, reports and progress that are due, and what the router makes of them.
    pub fn step(&mut self, net: &Net, now_s: f64, tenth: bool) {
        let own_s = now_s - self.begins_s;
        let now = Time::from_secs_f64(own_s);
        while self.told.last().is_some_and(|it| it.0 <= own_s) {
            let Some((_, event)) = self.told.pop() else { break };
            let silent = |site: SiteId| net.moods[self.sites[site.0 as usize]] != Mood::Well;
            let lost = match &event {
                RouteEvent::RelayUp { site } => silent(*site),
                RouteEvent::RoundTrip { from, to, .. } => silent(*from) || silent(*to),
                _ => false,
            };
            if !lost {
                self.router.handle(event, now);
            }
        }
        self.fail(net, now_s, now);
        self.answer(net, now_s, now);
        if tenth {
            self.report(net, now_s, now);
            self.progress(net, now_s, now);
        }
        self.obey(net, now_s, now);
    }

    /// Relays that were asked whether they are well answer when they are.
    fn answer(&mut self, net: &Net, now_s: f64, now: Time) {
        let sites = &self.sites;
        let rtt_s = |site: usize| net.edge(site, self.here).map(|at| net.edges[at].rtt_s);
        let answers = |&(since_s, id): &(f64, SiteId)| {
            let site = sites[id.0 as usize];
            net.moods[site] == Mood::Well
                && rtt_s(site).is_some_and(|it| now_s >= since_s + it + net.answers_s)
        };
        let (well, silent): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.asked).into_iter().partition(answers);
        self.asked = silent;
        for (since_s, site) in well {
            let was_silent = now_s - since_s >= 1.0;
            self.router.handle(RouteEvent::RelayAnswered { site, was_silent }, now);
        }
    }

    fn fail(&mut self, net: &Net, now_s: f64, now: Time) {
        let mut failed = Vec::new();
        for (&id, routed_id) in &mut self.routed_sources {
            let relays = routed_id.sites.iter().skip(1).rev().skip(1).rev();
            if let Some(&site) = relays.clone().find(|&&site| net.moods[site] == Mood::Refuses)
                && routed_id.fails.is_none()
            {
                let at = if routed_id.up_s <= now_s { None } else { Some(site) };
                let fault = if at.is_none() { Fault::Broken } else { Fault::Refused };
                routed_id.fails = Some((now_s + 0.1, fault, at));
            }
            if let Some((at_s, fault, at)) = routed_id.fails
                && at_s <= now_s
            {
                failed.push((id, fault, at));
            } else if relays.clone().any(|&site| net.corrupts[site]) && routed_id.damage >= DAMAGE {
                failed.push((id, Fault::Corrupt, None));
            }
        }
        for (routed_id, fault, at) in failed {
            if let Some(gone) = self.routed_sources.remove(&routed_id)
                && fault == Fault::Corrupt
            {
                self.left += gone.damage;
                self.record.corrupt_bytes += gone.damage;
            }
            let at = at.map(|site| self.id(site));
            self.router.handle(RouteEvent::RoutedFailed { routed_id, fault, at }, now);
        }
    }

    fn report(&mut self, net: &Net, now_s: f64, now: Time) {
        let mut reports = Vec::new();
        for (&id, routed_id) in &mut self.routed_sources {
            if routed_id.rate <= 0.0
                || now_s - routed_id.up_s < 0.6
                || now_s - routed_id.reported_s < 0.3
            {
                continue;
            }
            routed_id.reported_s = now_s;
            let rate = routed_id.recent.iter().sum::<f64>() / routed_id.recent.len().max(1) as f64;
            let mut hops = Vec::new();
            for at in 1..routed_id.edges.len() {
                let edge = &net.edges[routed_id.edges[at]];
                let is_held = (routed_id.limit < at) != net.misleads[edge.to];
                let held = if is_held { 0.95 } else { 0.05 };
                let mut noise = |part: f64| 1.0 + part * (2.0 * self.rng.f64() - 1.0);
                let lie = net.lies[edge.to];
                let able = edge.rate.min(2.0 * rate) * noise(0.2) * lie;
                hops.push((edge.from, edge.to, rate * noise(0.1) * lie, held * noise(0.05), able));
            }
            reports.push((id, hops));
        }
        for (routed_id, hops) in reports {
            let hops = hops.into_iter().map(|(from, to, rate, held, able)| HopReport {
                relay: self.id(to),
                from: self.id(from),
                rtt_s: None,
                rate_bytes_per_s: Some(rate),
                held: Some(held),
                able_bytes_per_s: Some(able),
            });
            let hops = hops.collect();
            self.router.handle(RouteEvent::Reported { routed_id, hops }, now);
        }
    }

    fn progress(&mut self, net: &Net, now_s: f64, now: Time) {
        let mut routed_sources = Vec::new();
        let mut total = 0.0;
        for (&id, routed_id) in &mut self.routed_sources {
            total += routed_id.rate;
            routed_id.recent.push_back(routed_id.rate);
            if routed_id.recent.len() > 10 {
                routed_id.recent.pop_front();
            }
            let rtt_s: f64 = routed_id.edges.iter().map(|&at| net.edges[at].rtt_s).sum();
            let waits_s = now_s - routed_id.brought_at_s.max(routed_id.up_s);
            routed_sources.push((
                id,
                RoutedNow {
                    delivered_bytes: routed_id.delivered as u64,
                    silent: routed_id.up_s <= now_s && waits_s > (3.0 * rtt_s).max(0.15),
                    busy: true,
                    held: false,
                    awaits_us: false,
                },
            ));
        }
        self.record.rates.push(total);
        let event = RouteEvent::Progress { routed_sources, left_bytes: Some(self.left as u64) };
        self.router.handle(event, now);
    }

    fn obey(&mut self, net: &Net, now_s: f64, now: Time) {
        while let Some(action) = self.router.poll(now) {
            self.record.actions.push((now_s - self.begins_s, action.clone()));
            match action {
                RouteAction::Open { routed_id, route, replica, .. } => {
                    if self.awaited.as_ref() == Some(&route) {
                        self.record.widest_attempt.get_or_insert(self.router.attempts());
                    }
                    let flowing = self.open(net, &route, replica, now_s);
                    self.routed_sources.insert(routed_id, flowing);
                }
                RouteAction::Use { .. } => {}
                RouteAction::Ask { site } => self.asked.push((now_s, site)),
                RouteAction::Close { routed_id } => {
                    self.routed_sources.remove(&routed_id);
                }
            }
        }
        let relayed =
            self.routed_sources.values().filter(|routed_id| routed_id.edges.len() > 1).count();
        self.record.ways_peak = self.record.ways_peak.max(relayed);
        if self.record.widest_used_s.is_none()
            && let Some(route) = &self.awaited
            && self
                .router
                .views()
                .iter()
                .any(|it| it.route == *route && it.state == RoutedState::InUse)
        {
            self.record.widest_used_s = Some(now_s - self.begins_s);
            self.record.widest_changes = Some(self.router.changes());
        }
    }

    fn open(&self, net: &Net, route: &Route, replica: ReplicaId, now_s: f64) -> Flowing {
        let source = self.record.sources[replica.0 as usize];
        let mut sites = vec![self.here];
        sites.extend(route.relays().iter().map(|id| self.sites[id.0 as usize]));
        sites.push(source);
        let (mut edges, mut up_s, mut fails) = (Vec::new(), now_s, None);
        for pair in sites.windows(2) {
            match net.edge(pair[1], pair[0]) {
                // To connect, and to ask.
                Some(at) => {
                    edges.push(at);
                    up_s += 2.0 * net.edges[at].rtt_s;
                }
                None => {
                    fails = Some((up_s + 0.01, Fault::Broken, Some(pair[0])));
                    break;
                }
            }
        }
        if fails.is_some() {
            up_s = f64::INFINITY;
        }
        Flowing {
            ramps: edges.iter().map(|&at| FIRST_WINDOW / net.edges[at].rtt_s).collect(),
            edges,
            sites,
            up_s,
            fails,
            rate: 0.0,
            limit: 0,
            delivered: 0.0,
            brought_at_s: 0.0,
            reported_s: 0.0,
            recent: VecDeque::new(),
            damage: 0.0,
        }
    }

    /// Lets what the network gave each way flow for a step.
    pub fn flow(&mut self, net: &Net, now_s: f64, step_s: f64) {
        for routed_id in self.routed_sources.values_mut().filter(|routed_id| routed_id.rate > 0.0) {
            let bytes = (routed_id.rate * step_s).min(self.left);
            self.left -= bytes;
            routed_id.delivered += bytes;
            routed_id.brought_at_s = now_s;
            if routed_id.sites.iter().any(|&site| net.corrupts[site]) {
                routed_id.damage += bytes;
            }
            if routed_id.edges.len() == 1 {
                self.record.direct_bytes += bytes;
            }
            for (ramp, &at) in routed_id.ramps.iter_mut().zip(&routed_id.edges) {
                if routed_id.rate > 0.7 * *ramp {
                    let edge = &net.edges[at];
                    let most = edge.connection.min(4.0 * edge.rate.max(1e3));
                    *ramp = (*ramp * 2f64.powf(step_s / edge.rtt_s)).min(most);
                }
            }
        }
    }

    pub fn is_done(&self) -> bool {
        self.left < 1.0
    }
}

impl Flowing {
    /// The most that its windows let through now; nothing before it is up, or through the dead.
    pub fn most(&self, net: &Net, now_s: f64) -> f64 {
        let dead = self.sites.iter().any(|&site| net.moods[site] != Mood::Well);
        if dead || self.up_s > now_s {
            return 0.0;
        }
        self.ramps.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Gives it a rate, and finds which of its edges is full.
    pub fn give(&mut self, rate: f64, headroom: &dyn Fn(usize) -> f64) {
        self.rate = rate;
        let room = |at: usize| (self.ramps[at] - rate).min(headroom(self.edges[at]));
        self.limit =
            (0..self.edges.len()).min_by(|&a, &b| room(a).total_cmp(&room(b))).unwrap_or(0);
    }
}

/// Ten segments, in bytes.
const FIRST_WINDOW: f64 = 14_600.0;

/// After so many bad bytes it is found out that they are.
const DAMAGE: f64 = 1e6;
