//! The routes of a transfer: the relays by which its replicas are reached.
//!
//! Each route is one more source to the planner. The router (`swath_plan::routes`) chooses the
//! routes. This module tells it what relays report of themselves and of their hops, and what each
//! route delivers, and carries out its decisions. Measurements go to the memory that all transfers
//! of this machine share.

pub(super) mod hops;
pub(super) mod relays;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use swath_formats::{Hop, relay};
use swath_model::{LaneId, SourceId, Time};
use swath_plan::Event as PlanEvent;
use swath_plan::routes::{
    Fault, ReplicaId, Route, RouteAction, RouteEvent, RoutedId, RoutedState, Router, SiteId,
};
use swath_source::{CanEncrypt, RelayMode};
use url::Url;

use crate::executor::routes::relays::{RelayReport, Relays};
use crate::executor::sources::SourceEntry;
use crate::executor::state::Run;
use crate::observe::Event;
use crate::routes::{Known, Learnt, Memory, RouteChoice, Routes};

/// The routes of one transfer.
pub(crate) struct Routing {
    pub(crate) router: Router,
    pub(crate) routes: Routes,
    pub(crate) sites: Sites,
    pub(crate) relays: Relays,
    pub(crate) routed: Routed,
    /// The last report on each lane.
    pub(crate) hops: HashMap<LaneId, (usize, Time, Vec<Hop>)>,
    pub(crate) looked_at: Time,
    pub(crate) saved_at: Time,
    /// Whether no source can deliver anything unless a new route opens.
    pub(crate) is_exhausted: bool,
    pub(crate) changes: u32,
}

/// The vertices of the graph, and remembered measurements of its edges.
pub(crate) struct Sites {
    /// Sites by their numbers, less one: `SiteId(0)` is this machine.
    list: Vec<Site>,
    /// Remembered edges of sites that have no number yet.
    unknown: Vec<Known>,
    pub(crate) memory: Memory,
}

/// Sources by routes.
#[derive(Default)]
pub(crate) struct Routed {
    /// The direct source of each replica, by the replica's number.
    pub(crate) replicas: Vec<usize>,
    /// The site of each of these sources.
    pub(crate) origins: HashMap<usize, SiteId>,
    pub(crate) open: BTreeMap<RoutedId, usize>,
    /// Bytes that the source of a route had delivered when the route was opened.
    pub(crate) begun: HashMap<RoutedId, u64>,
    /// Every source that ever had a route.
    pub(crate) known: HashMap<(ReplicaId, Route), usize>,
    /// Routes that wait for the keys of their relays.
    pub(crate) deferred: Vec<(RoutedId, ReplicaId, Route, bool)>,
}

/// A vertex of the graph.
pub(crate) struct Site {
    /// Host and port.
    pub name: String,
    /// Its address, with scheme.
    pub(crate) url: Url,
}

/// A source's place among the routes.
#[derive(Clone, Debug)]
pub(crate) struct OnRoute {
    pub replica: ReplicaId,
    pub route: Route,
}

impl Sites {
    /// Returns the number of sites.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the number of the site with this address, which is added if it is new.
    pub(crate) fn number_of(&mut self, url: &Url) -> SiteId {
        let name = relay::site(url).unwrap_or_default();
        if let Some(known) = self.named(&name) {
            return known;
        }
        let mut base = url.clone();
        base.set_path("/");
        base.set_query(None);
        base.set_fragment(None);
        self.list.push(Site { name, url: base });
        SiteId(self.list.len() as u32)
    }

    /// Returns the site with this number; none for this machine.
    pub(crate) fn get(&self, id: SiteId) -> Option<&Site> {
        self.list.get((id.0 as usize).checked_sub(1)?)
    }

    /// Returns host and port of a site; empty if there is none with this number.
    pub(crate) fn name(&self, id: SiteId) -> &str {
        self.get(id).map_or("", |site| &site.name)
    }

    fn named(&self, name: &str) -> Option<SiteId> {
        let at = self.list.iter().position(|site| site.name == name)?;
        Some(SiteId(at as u32 + 1))
    }
}

impl Routing {
    pub fn new(routes: Routes) -> Routing {
        Routing {
            router: Router::new(routes.config()),
            sites: Sites { list: Vec::new(), unknown: Vec::new(), memory: routes.memory() },
            routes,
            relays: Relays::default(),
            routed: Routed::default(),
            hops: HashMap::new(),
            looked_at: Time::ZERO,
            saved_at: Time::ZERO,
            is_exhausted: false,
            changes: 0,
        }
    }

    /// Waits for the next report of a relay; for ever if there are no relays.
    pub async fn word(routing: &mut Option<Box<Routing>>) -> RelayReport {
        match routing {
            Some(routing) => match routing.relays.words.recv().await {
                Some(word) => word,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Returns when the router must be polled again.
    pub fn wake_at(&self) -> Option<Time> {
        self.router.poll_timeout()
    }

    /// Returns whether routes may still open: relays have yet to answer, or the router to decide.
    pub(crate) fn may_bring_more(&self, now: Time) -> bool {
        self.relays.may_bring_more(now) || !self.routed.deferred.is_empty()
    }

    /// Returns whether the router looks for routes by itself.
    pub(crate) fn is_seeking(&self) -> bool {
        !matches!(self.routes.choice(), RouteChoice::Direct | RouteChoice::Fixed(_))
    }

    /// Tells the router what is remembered of hops between known sites, and what others measured.
    pub(crate) fn remember(&mut self, now: Time) {
        let mut known = std::mem::take(&mut self.sites.unknown);
        known.extend(self.sites.memory.news());
        let number = |name: &str| match name {
            Routes::HERE => Some(SiteId::HERE),
            name => self.sites.named(name),
        };
        let mut unknown = Vec::new();
        for known in known {
            let (Some(from), Some(to)) = (number(&known.from), number(&known.to)) else {
                // These sites may become known later.
                unknown.push(known);
                continue;
            };
            if let Some(reading) = known.reading {
                self.router.handle(RouteEvent::Remembered { from, to, reading }, now);
            }
            if let Some(rtt_s) = known.rtt_s {
                self.router.handle(RouteEvent::RoundTrip { from, to, rtt_s: Some(rtt_s) }, now);
            }
        }
        unknown.truncate(UNKNOWN_MAX);
        self.sites.unknown = unknown;
    }

    /// Saves measurements to the memory.
    fn save(&mut self) {
        let name = |id: SiteId| match id {
            SiteId::HERE => Some(Routes::HERE.to_owned()),
            id => self.sites.get(id).map(|site| site.name.clone()),
        };
        let mut used: Vec<(SiteId, SiteId)> = Vec::new();
        for view in self.router.views() {
            if view.state == RoutedState::InUse {
                let at = self.routed.replicas.get(view.replica.0 as usize);
                let origin = at.and_then(|at| self.routed.origins.get(at));
                used.extend(origin.into_iter().flat_map(|&site| view.route.edges(site)));
            }
        }
        let mut learnt = Vec::new();
        for (from, to, reading) in self.router.readings() {
            if let (Some(from_name), Some(to_name)) = (name(from), name(to)) {
                let rtt_s = self.router.graph().edge(from, to).and_then(|edge| edge.rtt_s);
                let is_used = used.contains(&(from, to));
                let (from, to, reading) = (from_name, to_name, Some(reading));
                learnt.push(Learnt { from, to, reading, rtt_s, is_used });
            }
        }
        self.sites.memory.learn(learnt);
    }
}

impl Run<'_> {
    /// Gives the relays their numbers, before any other site.
    pub(crate) fn name_relays(&mut self) {
        if let Some(routing) = &mut self.routing {
            for relay in routing.routes.relays() {
                routing.sites.number_of(&relay);
            }
        }
    }

    /// Tells the router of a new replica.
    pub(crate) fn route_replica(&mut self, at: usize) {
        let now = self.now();
        let Some(routing) = &mut self.routing else { return };
        let Some(entry) = self.sources.get_mut(at) else { return };
        // Relays reach only addresses with a host.
        if entry.source.url().host().is_none() {
            return;
        }
        let replica = ReplicaId(routing.routed.replicas.len() as u32);
        routing.routed.replicas.push(at);
        routing.routed.known.insert((replica, Route::direct()), at);
        entry.on_route = Some(OnRoute { replica, route: Route::direct() });
        let site = routing.sites.number_of(entry.source.url());
        routing.routed.origins.insert(at, site);
        if matches!(routing.routes.choice(), RouteChoice::Fixed(_)) {
            // It rests until the router opens it.
            let source = SourceId(at as u32);
            self.planner.handle(PlanEvent::SourceRests { source, rests: true }, now);
        }
        routing.router.handle(RouteEvent::ReplicaAdded { replica, site }, now);
        routing.remember(now);
        self.ask_about(site);
    }

    /// Returns whether a source has answered that it sends no ranges.
    fn comes_in_one_piece(&self, at: usize) -> bool {
        let facts = self.sources.get(at).and_then(|entry| entry.facts.as_ref());
        facts.is_some_and(|facts| !facts.ranges && facts.size_bytes != Some(0))
    }

    /// Drops the routes by relays if neither this source nor the direct one sends ranges: each
    /// route would start from the first byte, and no sample could be compared with the source.
    /// Returns whether this source was dropped.
    pub(crate) fn leave_further_routes(&mut self, source: usize) -> bool {
        let Some(routing) = &self.routing else { return false };
        let own = self.sources[source].on_route.as_ref().map(|own| own.replica);
        let direct = own.and_then(|own| routing.routed.replicas.get(own.0 as usize).copied());
        let is_named = matches!(routing.routes.choice(), RouteChoice::Fixed(_));
        let Some(direct) = direct.filter(|&it| !is_named && !self.sources.is_bad(it)) else {
            return false;
        };
        if !self.comes_in_one_piece(source) || !self.comes_in_one_piece(direct) {
            return false;
        }
        let further: Vec<usize> = (0..self.sources.len())
            .filter(|&at| at != direct && !self.sources.is_bad(at))
            .filter(|&at| {
                self.sources[at].on_route.as_ref().map(|on_route| on_route.replica) == own
            })
            .collect();
        for &at in &further {
            self.sources[at].fault = Fault::Final;
            let words = "the source sends no ranges, so the file is fetched directly";
            self.drop_source(at, words);
        }
        further.contains(&source)
    }

    /// Notes that a lane of this source is connected.
    pub(crate) fn route_up(&mut self, at: usize, rtt: Duration) {
        let now = self.now();
        let Some(routing) = &mut self.routing else { return };
        let entry = &self.sources[at];
        if routing.routed.open.values().any(|&source| source == at)
            && entry.on_route.as_ref().is_some_and(|own| own.route.is_direct())
        {
            let from = routing.sites.number_of(entry.source.url());
            let rtt_s = Some(rtt.as_secs_f64());
            routing.router.handle(RouteEvent::RoundTrip { from, to: SiteId::HERE, rtt_s }, now);
        }
    }

    /// Stores the hops that relays reported with an answer.
    pub(crate) fn hops_told(&mut self, lane: LaneId, at: usize, hops: Vec<Hop>) {
        let now = self.now();
        if let Some(routing) = &mut self.routing {
            routing.hops.insert(lane, (at, now, hops));
        }
    }

    /// Closes the route of a source that is out.
    pub(crate) fn route_failed(&mut self, at: usize) {
        let now = self.now();
        let Some(routing) = &mut self.routing else { return };
        let Some(entry) = self.sources.get(at) else { return };
        let routed_id = routing
            .routed
            .open
            .iter()
            .find(|(_, source)| **source == at)
            .map(|(&routed_id, _)| routed_id);
        // Another version of the file does not make a hop worse.
        let is_other = entry.accepted == Some(false);
        let fault = match entry.fault {
            Fault::Broken if is_other => Fault::Refused,
            fault => fault,
        };
        if let Some(routed_id) = routed_id {
            routing.routed.open.remove(&routed_id);
            routing.router.handle(RouteEvent::RoutedFailed { routed_id, fault, at: None }, now);
        }
        // The origin's answer about its file holds on all routes, its access rules do not.
        let own = entry.on_route.as_ref().filter(|own| own.route.is_direct());
        if let Some(own) = own
            && (is_other || entry.is_gone || entry.fault == Fault::Corrupt)
        {
            let replica = own.replica;
            routing.router.handle(RouteEvent::ReplicaLost { replica }, now);
        }
    }

    /// Tells the router how the routes are doing, and carries out its decisions.
    pub(crate) fn look_at_routes(&mut self) {
        let now = self.now();
        let Some(routing) = &mut self.routing else { return };
        if self.coverage.size_bytes.is_none()
            && now.as_secs_f64() >= UNREACHED_S
            && routing.is_seeking()
        {
            // Perhaps relays reach the source.
            self.ask_relays();
        }
        let Some(routing) = &mut self.routing else { return };
        let is_due = now.since(routing.looked_at) >= LOOK || routing.looked_at == Time::ZERO;
        if is_due {
            routing.looked_at = now;
            self.report_hops(now);
            self.report_progress(now);
        }
        self.route();
        let Some(routing) = &mut self.routing else { return };
        if now.since(routing.saved_at) >= SAVE {
            routing.saved_at = now;
            routing.save();
            routing.remember(now);
            for warning in routing.sites.memory.warnings() {
                self.note(warning, true);
            }
            self.ask_lost_relays();
        }
    }

    /// Saves measurements at the end of a transfer.
    pub(crate) fn keep_routes(&mut self) {
        if let Some(routing) = &mut self.routing {
            routing.save();
        }
    }

    /// Carries out the router's decisions.
    pub(crate) fn route(&mut self) {
        let now = self.now();
        loop {
            let Some(routing) = &mut self.routing else { return };
            let Some(action) = routing.router.poll(now) else { break };
            tracing::debug!(at_s = now.as_secs_f64(), ?action, "routed");
            match action {
                RouteAction::Open { routed_id, replica, route, on_trial } => {
                    self.open_routed(routed_id, replica, route, on_trial);
                }
                RouteAction::Use { routed_id } => {
                    if let Some(&at) = routing.routed.open.get(&routed_id) {
                        self.limit_lanes(at, None);
                    }
                }
                RouteAction::Ask { site } => self.ask_until_well(site),
                RouteAction::Close { routed_id } => self.close_routed(routed_id),
            }
        }
        self.tell_changes();
    }

    /// Stops requests over a route. But while a liar's bytes are replaced, every source that may
    /// deliver them is needed, however little it brings.
    pub(crate) fn close_routed(&mut self, routed_id: RoutedId) {
        let (now, is_replacing) = (self.now(), self.is_replacing());
        let closed =
            self.routing.as_mut().and_then(|routing| routing.routed.open.remove(&routed_id));
        if let Some(at) = closed.filter(|_| !is_replacing) {
            let source = SourceId(at as u32);
            self.planner.handle(PlanEvent::SourceRests { source, rests: true }, now);
        }
    }

    pub(crate) fn open_routed(
        &mut self,
        routed_id: RoutedId,
        replica: ReplicaId,
        route: Route,
        on_trial: bool,
    ) {
        // One lane until the trial is over.
        let lanes = on_trial.then_some(1);
        let now = self.now();
        let Some(routing) = &mut self.routing else { return };
        let key = (replica, route.clone());
        if let Some(&at) = routing.routed.known.get(&key) {
            if self.sources.is_bad(at) && !self.ask_again(at) {
                let failed = RouteEvent::RoutedFailed { routed_id, fault: Fault::Final, at: None };
                self.tell_router(failed);
                return;
            }
            let source = SourceId(at as u32);
            if self.planner.source(source).is_some_and(|view| view.failing) {
                // The router wants it, so it may work again.
                self.planner.handle(PlanEvent::SourceAgain { source }, now);
            }
            let begun_bytes = self.brought_bytes(at);
            let Some(routing) = &mut self.routing else { return };
            routing.routed.open.insert(routed_id, at);
            routing.routed.begun.retain(|routed_id, _| routing.routed.open.contains_key(routed_id));
            routing.routed.begun.insert(routed_id, begun_bytes);
            self.limit_lanes(at, lanes);
            self.planner.handle(PlanEvent::SourceRests { source, rests: false }, now);
            return;
        }
        let Some(&direct) = routing.routed.replicas.get(replica.0 as usize) else { return };
        let is_named = matches!(routing.routes.choice(), RouteChoice::Fixed(_));
        if !is_named && !self.sources.is_bad(direct) && self.comes_in_one_piece(direct) {
            self.tell_router(RouteEvent::RoutedFailed { routed_id, fault: Fault::Final, at: None });
            return;
        }
        let Some(routing) = &mut self.routing else { return };
        let urls: Option<Vec<Url>> = route
            .relays()
            .iter()
            .map(|&site| routing.sites.get(site).map(|site| site.url.clone()))
            .collect();
        let Some(urls) = urls else { return };
        let relay_mode = routing.routes.relay_mode();
        let end = self.sources[direct].source.url();
        if self.engine.net.awaits_keys(&urls, end, relay_mode) {
            self.defer(routed_id, replica, route, on_trial);
            return;
        }
        if relay_mode == RelayMode::Forward
            && self.sources[direct].source.has_secrets()
            && let Some(last) = urls.last()
        {
            match self.engine.net.can_encrypt_for(last) {
                CanEncrypt::Yes => {}
                CanEncrypt::NotYet => {
                    self.defer(routed_id, replica, route, on_trial);
                    return;
                }
                CanEncrypt::Never => {
                    let fault = Fault::Refused;
                    routing
                        .router
                        .handle(RouteEvent::RoutedFailed { routed_id, fault, at: None }, now);
                    let name = relay::site(last).unwrap_or_default();
                    if let Some(&site) = route.relays().last() {
                        routing.relays.lost.insert(site, "its key came unencrypted".into());
                    }
                    if routing.routes.note_lost(&format!("{name} unsealed")) {
                        let text = format!(
                            "credentials for the source are not sent through {name}, whose key came unencrypted (--end-to-end hides them from relays)"
                        );
                        self.note(text, true);
                    }
                    return;
                }
            }
        }
        let is_bare = relay_mode == RelayMode::Tunnel && !urls.is_empty() && end.scheme() == "http";
        let origin = routing.sites.number_of(end);
        let name = routing.sites.get(origin).map(|site| site.name.clone()).unwrap_or_default();
        let is_news = is_bare && routing.routes.note_lost(&format!("{name} bare"));
        // The round trips behind the first relay.
        let far_s: f64 = route
            .edges(origin)
            .skip(1)
            .filter_map(|(from, to)| routing.router.graph().edge(from, to)?.rtt_s)
            .sum();
        let id = SourceId(self.sources.len() as u32);
        let far = Duration::from_secs_f64(far_s.clamp(0.0, 60.0));
        let source = self.sources[direct].source.by_way_of(&urls, relay_mode, far);
        let Some(source) = source else {
            let failed = RouteEvent::RoutedFailed { routed_id, fault: Fault::Final, at: None };
            routing.router.handle(failed, now);
            return;
        };
        routing.routed.open.insert(routed_id, id.index());
        routing.routed.known.insert(key, id.index());
        let mut entry = SourceEntry::new(source);
        entry.lacks = self.sources[direct].lacks.clone();
        entry.lanes_max = lanes;
        entry.on_route = Some(OnRoute { replica, route });
        if is_news {
            let text = format!(
                "--end-to-end does not protect {name}: its address begins with http://, so relays can read and change the data"
            );
            self.note(text, true);
        }
        self.enter_source(entry);
        self.enter_tree_route(direct, id.index());
    }

    /// Copies to a route of a tree what its replica lacks.
    fn enter_tree_route(&mut self, direct: usize, at: usize) {
        let Some(tree) = self.dataset.tree_mut() else { return };
        let own = tree.source(direct);
        let (changed, void) = (own.changed.clone(), own.void.clone());
        let routed_id = tree.source(at);
        (routed_id.changed, routed_id.void) = (changed, void.clone());
        self.sources[at].accepted = Some(true);
        let (source, now) = (SourceId(at as u32), self.now());
        for range in void.iter() {
            self.planner.handle(PlanEvent::Forbidden { source, range }, now);
        }
    }

    /// Tells the observer when the routes in use change.
    fn tell_changes(&mut self) {
        let Some(routing) = &mut self.routing else { return };
        let changes = routing.router.changes();
        if changes == routing.changes {
            return;
        }
        routing.changes = changes;
        let views = routing.router.views();
        let in_use: Vec<u32> = views
            .iter()
            .filter(|view| view.state == RoutedState::InUse)
            .filter_map(|view| routing.routed.open.get(&view.routed_id).map(|&at| at as u32))
            .collect();
        let at_s = self.at_s();
        self.observer.observe(&Event::Routes { at_s, sources: in_use });
    }
}

/// Interval of the router's updates.
const LOOK: Duration = Duration::from_millis(100);
/// Interval of saving measurements.
const SAVE: Duration = Duration::from_secs(1);
/// Time without an answer of any source after which relays are asked whether they reach it.
const UNREACHED_S: f64 = 1.0;
/// Most remembered edges of sites without a number, to limit memory.
const UNKNOWN_MAX: usize = 4096;
