//! Reports to the router: the hops that relays measure and what each route delivers. Also the state
//! of a route that outlives its planner or a failure of its source.

use std::time::Duration;

use swath_formats::Hop;
use swath_model::{SourceId, Time};
use swath_plan::routes::{HopReport, RouteEvent, RoutedId, RoutedNow, SiteId};
use swath_plan::{Config, Event as PlanEvent, Planner, SourceStatus};

use crate::executor::integrity::audit::Audit;
use crate::executor::routes::OnRoute;
use crate::executor::state::Run;
use crate::observe::SourceState;

impl Run<'_> {
    /// Reports the hops of each route, added up over its lanes.
    pub(crate) fn report_hops(&mut self, now: Time) {
        let Some(routing) = &mut self.routing else { return };
        let lanes = &self.lanes.open;
        routing.hops.retain(|lane, (_, at, _)| lanes.contains_key(lane) && now.since(*at) < FRESH);
        let open: Vec<(RoutedId, usize)> =
            routing.routed.open.iter().map(|(&routed_id, &at)| (routed_id, at)).collect();
        for (routed_id, source) in open {
            let Some(own) = self.sources.get(source).and_then(|it| it.on_route.clone()) else {
                continue;
            };
            if own.route.is_direct() {
                continue;
            }
            let origin = routing.sites.number_of(self.sources[source].source.url());
            let sites: Vec<SiteId> = own.route.relays().iter().copied().chain([origin]).collect();
            let told: Vec<&[Hop]> = routing
                .hops
                .values()
                .filter(|(of, ..)| *of == source)
                .map(|(_, _, hops)| hops.as_slice())
                .collect();
            let mut reports = Vec::new();
            for (relay, from) in sites.iter().zip(&sites[1..]) {
                let name =
                    routing.sites.get(*from).map(|site| site.name.as_str()).unwrap_or_default();
                // Each lane's report of this hop.
                let of_hop =
                    told.iter().filter_map(|hops| hops.iter().find(|hop| hop.upstream == name));
                let sum = together(of_hop);
                if let Some(sum) = sum {
                    reports.push(HopReport { relay: *relay, from: *from, ..sum });
                }
            }
            if !reports.is_empty() {
                routing.router.handle(RouteEvent::Reported { routed_id, hops: reports }, now);
            }
        }
    }

    pub(crate) fn report_progress(&mut self, now: Time) {
        // In a comparison everything is fetched once more, from other sources.
        let compared = self.comparison.running.as_ref().map(Audit::compared_bytes);
        let done_bytes = compared.unwrap_or_else(|| self.coverage.have.total_bytes());
        let left_bytes = self.coverage.size_bytes.map(|size| size.saturating_sub(done_bytes));
        let Some(routing) = &self.routing else { return };
        let now_of = |(&routed_id, &source): (&RoutedId, &usize)| {
            Some((routed_id, self.way_now(routed_id, source)?))
        };
        let all = routing.routed.open.iter().filter_map(now_of).collect();
        if let Some(routing) = &mut self.routing {
            routing.router.handle(RouteEvent::Progress { routed_sources: all, left_bytes }, now);
        }
    }

    /// Returns how a route is doing, without what its source delivered under a closed route.
    fn way_now(&self, routed_id: RoutedId, source: usize) -> Option<RoutedNow> {
        let view = self.planner.source(SourceId(source as u32))?;
        let begun_bytes = self.routing.as_ref()?.routed.begun.get(&routed_id).copied().unwrap_or(0);
        let is_limited = self.engine.limit_bytes_per_s.is_some();
        let is_held = self.lanes.of_source(source).any(|(_, lane)| lane.held_up);
        let delivered_bytes = self.brought_bytes(source).saturating_sub(begun_bytes);
        // It delivered something, and now requests fail: its relay may be gone.
        let is_out = delivered_bytes > 0 && view.failing;
        Some(RoutedNow {
            delivered_bytes,
            silent: is_out || view.status == SourceStatus::Silent,
            busy: is_out || view.busy,
            held: is_limited && is_held,
            awaits_us: is_held,
        })
    }

    /// Returns the bytes that a source has delivered, under all planners.
    pub(crate) fn brought_bytes(&self, source: usize) -> u64 {
        let view = self.planner.source(SourceId(source as u32));
        let before_bytes = self.sources.get(source).map_or(0, |entry| entry.planned_bytes);
        before_bytes + view.map_or(0, |view| view.delivered_bytes)
    }

    pub(crate) fn tell_router(&mut self, event: RouteEvent) {
        let now = self.now();
        if let Some(routing) = &mut self.routing {
            routing.router.handle(event, now);
        }
    }

    /// Limits the lanes of a source.
    pub(crate) fn limit_lanes(&mut self, at: usize, lanes: Option<u32>) {
        let (source, now) = (SourceId(at as u32), self.now());
        if let Some(entry) = self.sources.get_mut(at) {
            entry.lanes_max = lanes;
        }
        self.planner.handle(PlanEvent::LaneLimit { source, lanes }, now);
    }

    /// Retries a source that is out, because the router wants its route. Returns false, without a
    /// retry, if it is out for more than long silence.
    pub(crate) fn ask_again(&mut self, at: usize) -> bool {
        let (source, now) = (SourceId(at as u32), self.now());
        let Some(entry) = self.sources.get_mut(at).filter(|entry| entry.given_up) else {
            return false;
        };
        (entry.given_up, entry.asked_again) = (false, true);
        (entry.state, entry.failures, entry.short_lanes) = (SourceState::Waiting, 0, 0);
        self.planner.handle(PlanEvent::SourceAgain { source }, now);
        true
    }

    /// Tells the router that a replica is usable again.
    pub(crate) fn replica_is_back(&mut self, at: usize) {
        let direct = |own: &&OnRoute| own.route.is_direct();
        let own = self.sources[at].on_route.as_ref().filter(direct);
        let site =
            self.routing.as_ref().and_then(|routing| routing.routed.origins.get(&at).copied());
        if let (Some(replica), Some(site)) = (own.map(|own| own.replica), site) {
            self.tell_router(RouteEvent::ReplicaAdded { replica, site });
        }
    }

    /// Replaces the planner; the new one knows no source yet. The delivered bytes of routes count
    /// on.
    pub(crate) fn change_planner(&mut self, config: Config) {
        for (at, entry) in self.sources.iter_mut().enumerate() {
            let view = self.planner.source(SourceId(at as u32));
            entry.planned_bytes += view.map_or(0, |view| view.delivered_bytes);
        }
        self.planner = Planner::new(config);
    }

    /// Returns whether the router has closed the route of this source and the replica has another
    /// one. Then no planner may use it.
    pub(crate) fn is_closed_route(&self, at: usize) -> bool {
        let (Some(routing), Some(own)) = (&self.routing, &self.sources[at].on_route) else {
            return false;
        };
        let is_open = |at: usize| routing.routed.open.values().any(|&open| open == at);
        !own.route.is_direct()
            && !is_open(at)
            && self.sources.iter().enumerate().any(|(other, entry)| {
                let of_it = entry.on_route.as_ref().filter(|it| it.replica == own.replica);
                of_it.is_some_and(|it| it.route.is_direct() || is_open(other))
                    && !self.sources.is_bad(other)
            })
    }
}

/// Adds up what several lanes report of one hop.
fn together<'a>(hops: impl Iterator<Item = &'a Hop>) -> Option<HopReport> {
    let (mut rate, mut held, mut able, mut rtt_ms) = (0.0, 0.0, 0.0, f64::INFINITY);
    let (mut lanes, mut rated) = (0u32, 0u32);
    let mut are_able = true;
    for hop in hops {
        lanes += 1;
        rtt_ms = hop.rtt_ms.unwrap_or(f64::INFINITY).min(rtt_ms);
        if let Some(own) = hop.rate {
            rated += 1;
            rate += own;
            held += own * hop.held.unwrap_or(0.0);
        }
        match hop.able {
            Some(own) => able += own,
            None => are_able = false,
        }
    }
    if lanes == 0 {
        return None;
    }
    let is_rated = rated > 0 && rate > 0.0;
    Some(HopReport {
        relay: SiteId::HERE,
        from: SiteId::HERE,
        rtt_s: rtt_ms.is_finite().then_some(rtt_ms / 1e3),
        rate_bytes_per_s: is_rated.then_some(rate),
        held: is_rated.then(|| held / rate),
        able_bytes_per_s: are_able.then_some(able),
    })
}

/// Age from which a report is outdated.
const FRESH: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use swath_model::digest::{Algorithm, Hasher};
    use swath_model::{Range, RangeSet, Requests, SwathId};
    use swath_plan::routes::{Fault, ReplicaId, Route, RouteAction};
    use swath_plan::{Action, Lanes, Loss};
    use swath_source::RelayAccess;

    use super::*;
    use crate::engine::{Engine, EngineOptions};
    use crate::executor::integrity::audit::Hypothesis;
    use crate::executor::integrity::suspect::Try;
    use crate::executor::persistence::deliverer::Deliverer;
    use crate::observe::{Event, Observer};
    use crate::request::Request;
    use crate::routes::RouteOptions;

    /// Lanes that the planner opens to each source, all of which connect at once, and the first swath
    /// that each is asked for.
    fn planned(run: &mut Run<'_>) -> (Vec<u32>, BTreeMap<usize, (SwathId, Range)>) {
        let mut now = run.now();
        let missing = RangeSet::full(1 << 30);
        run.planner.handle(PlanEvent::Layout { size_bytes: 1 << 30, missing }, now);
        let (mut lanes, mut swaths) = (BTreeMap::new(), BTreeMap::new());
        let mut opened = vec![0; run.sources.len()];
        for _ in 0..25 {
            now = now.plus_secs(0.02);
            while let Some(action) = run.planner.poll(now) {
                match action {
                    Action::OpenLane { source, lane } => {
                        opened[source.index()] += 1;
                        lanes.insert(lane, source.index());
                        let rtt = Duration::from_millis(10);
                        run.planner.handle(
                            PlanEvent::LaneUp { lane, rtt, requests: Requests::Pipelined },
                            now,
                        );
                    }
                    Action::Fetch { lane, swath, range } => {
                        swaths.entry(lanes[&lane]).or_insert((swath, range));
                    }
                    _ => {}
                }
            }
        }
        (opened, swaths)
    }

    /// Knows two relays.
    fn engine() -> Engine {
        let relay = |port| RelayAccess {
            url: format!("http://127.0.0.1:{port}").parse().unwrap(),
            token: None,
            fingerprint: None,
        };
        let routes = RouteOptions { relays: vec![relay(7), relay(9)], ..RouteOptions::default() };
        Engine::start(EngineOptions { routes, ..EngineOptions::default() }).unwrap()
    }

    fn run<'a>(engine: &'a Engine, observer: &'a mut dyn Observer) -> Run<'a> {
        let request = Request::to_writer(tokio::io::sink());
        let mut request = request.url("http://127.0.0.1:8/f").unwrap();
        request.plan.lanes = Lanes::Fixed(4);
        Run::new(engine, request, observer)
    }

    fn by(relay: u32) -> Route {
        Route::through(vec![SiteId(relay)])
    }

    #[tokio::test]
    async fn another_planner_leaves_the_ways_as_they_are() {
        // After a restart, and while mirrors were compared, routes that the router had closed were used
        // again, those on trial without a limit, and what all of them had brought began at nothing:
        // their rates were negative, and the best of them were closed for that.
        let engine = engine();
        let mut observer = |_: &Event| {};
        let mut run = run(&engine, &mut observer);
        run.route();
        run.open_routed(RoutedId(100), ReplicaId(0), by(1), true);
        run.open_routed(RoutedId(101), ReplicaId(0), by(2), false);
        let (opened, swaths) = planned(&mut run);
        assert_eq!(opened, [4, 1, 4]);
        let (swath, range) = swaths[&0];
        let now = run.now().plus_secs(1.0);
        run.planner.handle(PlanEvent::Delivered { swath, range }, now);
        run.routing.as_mut().unwrap().routed.open.remove(&RoutedId(101));
        let told = |run: &mut Run<'_>| {
            run.report_progress(now);
            run.routing.as_ref().unwrap().router.views()[0].delivered_bytes
        };
        assert_eq!(told(&mut run), range.len());
        run.reset_books();
        assert_eq!(told(&mut run), range.len());
        assert_eq!(planned(&mut run).0, [4, 1, 0]);
        assert_eq!(told(&mut run), range.len());
    }

    #[tokio::test]
    async fn a_way_that_was_given_up_is_asked_again_when_the_router_wants_it() {
        // Once given up it was out for good. The router went on trying it, was told at once that it
        // had failed, and held that against other routes: a relay that was away for minutes never came
        // back, nor did direct.
        let engine = engine();
        let mut observer = |_: &Event| {};
        let mut run = run(&engine, &mut observer);
        run.route();
        run.open_routed(RoutedId(100), ReplicaId(0), by(1), true);
        run.open_routed(RoutedId(101), ReplicaId(0), by(2), true);
        let mut now = run.now();
        for at in 0..10_000 {
            now = now.plus_secs(0.1);
            while let Some(action) = run.planner.poll(now) {
                let Action::OpenLane { lane, .. } = action else { continue };
                run.planner.handle(PlanEvent::LaneLost { lane, loss: Loss::Broken }, now);
            }
            let view = run.planner.source(SourceId(1)).unwrap();
            if view.status == SourceStatus::Bad {
                break;
            }
            assert!(at < 9_999);
        }
        run.drop_source(2, "it brought something else");
        run.take_figures(now);
        let open = |run: &Run<'_>, routed_id| {
            run.routing.as_ref().unwrap().routed.open.contains_key(&RoutedId(routed_id))
        };
        assert!(run.sources.is_bad(1) && !open(&run, 100) && !open(&run, 101));
        run.open_routed(RoutedId(102), ReplicaId(0), by(1), true);
        run.open_routed(RoutedId(103), ReplicaId(0), by(2), true);
        assert!(!run.sources.is_bad(1) && open(&run, 102), "it may have been started again");
        assert!(run.sources.is_bad(2) && !open(&run, 103), "what it did was no accident");
        assert_eq!(planned(&mut run).0, [0, 1, 0]);
        // If another version is begun meanwhile, it has to say anew which one it has.
        run.sources[1].accepted = Some(true);
        (run.sources[1].state, run.sources[1].given_up) = (SourceState::Bad, true);
        run.reset_books();
        assert!(run.sources.is_bad(1) && run.sources[1].accepted.is_none());
        // What it is found to have done while it is away is no accident either.
        run.drop_source(1, "it brought something else");
        run.open_routed(RoutedId(104), ReplicaId(0), by(1), true);
        assert!(run.sources.is_bad(1) && !open(&run, 104));
    }

    #[tokio::test]
    async fn what_a_guilty_relays_ways_still_owe_is_not_waited_for() {
        // They were closed in good order: what they had been asked for came, and counted.
        let engine = engine();
        let mut observer = |_: &Event| {};
        let mut run = run(&engine, &mut observer);
        run.route();
        run.open_routed(RoutedId(100), ReplicaId(0), by(1), false);
        run.open_routed(RoutedId(101), ReplicaId(0), by(2), false);
        run.open_routed(
            RoutedId(102),
            ReplicaId(0),
            Route::through(vec![SiteId(2), SiteId(1)]),
            false,
        );
        let names = ["", " by r1", " by r2", " by r2, r1"];
        let deliverers = names.map(|by| Deliverer::parse(&format!("http://a.example/f{by}")));
        run.persistence.adopt(&[], deliverers.into_iter());
        planned(&mut run);
        let lanes = |run: &Run<'_>, at| run.planner.source(SourceId(at)).unwrap().lanes;
        assert!((0..4).all(|at| lanes(&run, at) > 0));
        run.condemn(1, "changed it".to_owned()).unwrap();
        let mut closed = Vec::new();
        while let Some(action) = run.planner.poll(run.now()) {
            if let Action::CloseLane { lane } = action {
                closed.push(lane);
            }
        }
        assert_eq!(closed.len(), 8, "those of the first and of the third, and no others");
        // One that is guilty for certain takes the blame for those beside it.
        assert_eq!(
            run.persistence.kin(3, &run.integrity.samples.guilty).into_iter().collect::<Vec<_>>(),
            [1, 3]
        );
    }

    #[tokio::test]
    async fn no_way_leads_to_a_replica_of_another_version() {
        // Routes to a stale mirror were tried on, and what came of that was held against the relays on
        // them. Should most others turn out to agree with it, it is as good as any again.
        let engine = engine();
        let mut observer = |_: &Event| {};
        let mut run = run(&engine, &mut observer);
        run.route();
        let wanted = |run: &mut Run<'_>| {
            let router = &mut run.routing.as_mut().unwrap().router;
            let later = Time::from_millis(100_000);
            let opens = |action| matches!(action, RouteAction::Open { .. });
            std::iter::from_fn(|| router.poll(later)).filter(|action| opens(action.clone())).count()
        };
        run.sources[0].accepted = Some(false);
        run.drop_source(0, "its file has another size");
        assert_eq!(wanted(&mut run), 0);
        run.sources[0].state = SourceState::Waiting;
        run.reset_books();
        assert_eq!(wanted(&mut run), 1);
    }

    #[tokio::test]
    async fn what_an_earlier_way_brought_is_not_that_of_the_one_in_its_place() {
        // A route that was opened again began with all that its source had ever brought: the whole seemed
        // to have been faster before it than with it, so that it was closed again and again.
        let engine = engine();
        let mut observer = |_: &Event| {};
        let mut run = run(&engine, &mut observer);
        run.route();
        run.open_routed(RoutedId(100), ReplicaId(0), by(1), false);
        run.sources[1].planned_bytes = 5 << 20;
        let brought =
            |run: &Run<'_>, routed_id| run.way_now(RoutedId(routed_id), 1).unwrap().delivered_bytes;
        assert_eq!(brought(&run, 100), 5 << 20);
        run.close_routed(RoutedId(100));
        run.open_routed(RoutedId(101), ReplicaId(0), by(1), false);
        run.sources[1].planned_bytes += 7;
        assert_eq!(brought(&run, 101), 7);
    }

    #[tokio::test]
    async fn who_judges_what_a_relay_brought_is_not_reached_by_it() {
        // Where all came by one relay and did not come to the digest, the router was told that nothing
        // was left to fetch, so it opened no other route and direct alone was asked for all of it. And
        // another route by the same relay was taken for somebody else: if that relay lied, both agreed.
        let engine = engine();
        let mut observer = |_: &Event| {};
        let mut run = run(&engine, &mut observer);
        run.route();
        run.open_routed(RoutedId(100), ReplicaId(0), by(1), false);
        run.open_routed(
            RoutedId(101),
            ReplicaId(0),
            Route::through(vec![SiteId(1), SiteId(2)]),
            false,
        );
        let all = Range::new(0, 1 << 30);
        let id = run.persistence.id_of(1);
        run.coverage.size_bytes = Some(all.len());
        run.coverage.deliverers.set(all, id);
        run.coverage.have.insert(all);
        run.comparison.running = Some(Audit::new());
        run.reset_planner();
        assert_eq!(planned(&mut run).0, [4, 0, 0]);
        let mut now = Time::from_millis(10_000);
        run.tell_router(RouteEvent::RelayUp { site: SiteId(2) });
        for _ in 0..30 {
            now = now.plus_secs(0.1);
            run.report_progress(now);
        }
        let router = &mut run.routing.as_mut().unwrap().router;
        let opened: Vec<Route> = std::iter::from_fn(|| router.poll(now))
            .filter_map(|action| match action {
                RouteAction::Open { route, .. } => Some(route),
                _ => None,
            })
            .collect();
        assert_eq!(opened, [by(2)]);
        // It takes part as soon as it is open; if nobody else is left, those are asked who are.
        run.open_routed(RoutedId(102), ReplicaId(0), by(2), false);
        assert_eq!(planned(&mut run).0[3], 4);
        run.drop_source(0, "it is away");
        run.drop_source(3, "it is away");
        run.reset_planner();
        assert_eq!(planned(&mut run).0, [0, 0, 4, 0]);
    }

    #[tokio::test]
    async fn a_way_that_is_closed_brings_what_nobody_else_may() {
        // With two in dispute each is suspected in turn. While what direct had brought was fetched
        // again over a relay, the router closed that route, which brought next to nothing: the transfer
        // ended, for nobody was left, though the next turn would have put it right.
        let engine = engine();
        let mut observer = |_: &Event| {};
        let mut run = run(&engine, &mut observer);
        run.route();
        run.open_routed(RoutedId(100), ReplicaId(0), by(1), false);
        run.comparison.hypotheses.push_back(Hypothesis::Liar(run.persistence.id_of(0)));
        run.comparison.replaced.push(Range::new(0, 1 << 30));
        run.comparison.mismatch = true;
        run.reset_planner();
        run.close_routed(RoutedId(100));
        assert_eq!(planned(&mut run).0, [0, 4]);
        run.reset_planner();
        assert_eq!(planned(&mut run).0, [0, 4]);
        run.comparison.mismatch = false;
        run.reset_planner();
        assert_eq!(planned(&mut run).0, [4, 0]);
    }

    #[tokio::test]
    async fn the_only_source_that_is_left_is_known_to_have_corrupted() {
        // It counted as broken: other routes over the relay that had done it were tried next.
        let engine = engine();
        let mut observer = |_: &Event| {};
        let mut run = run(&engine, &mut observer);
        run.route();
        run.open_routed(RoutedId(100), ReplicaId(0), by(1), false);
        run.drop_source(0, "nobody is there");
        for version in 0..4 {
            let actual = Hasher::digest(Algorithm::Blake3, &[version]);
            let deliverers = vec![run.persistence.id_of(1)];
            let bad = Try { deliverers, actual, parts: Vec::new() };
            assert!(!run.sources.is_bad(1), "{version}");
            run.suspect(Range::new(0, 1000), bad).unwrap();
        }
        assert!(run.sources.is_bad(1));
        assert_eq!(run.sources[1].fault, Fault::Corrupt);
    }
}
