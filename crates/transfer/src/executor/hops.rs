//! What the router hears of the ways: what relays report of their hops, and what each way brings.

use std::time::Duration;

use swath_formats::Hop;
use swath_model::{SourceId, Time};
use swath_plan::SourceStatus;
use swath_plan::routes::{HopReport, RouteEvent, SiteId, WayId, WayNow};

use super::state::Run;

impl Run<'_> {
    /// The hops of each way: what its lanes report together.
    pub(super) fn report_hops(&mut self, now: Time) {
        let Some(ways) = &mut self.ways else { return };
        let lanes = &self.lanes;
        ways.hops.retain(|lane, (_, at, _)| lanes.contains_key(lane) && now.since(*at) < FRESH);
        let open: Vec<(WayId, usize)> = ways.open.iter().map(|(&way, &at)| (way, at)).collect();
        for (way, source) in open {
            let Some(own) = self.sources.get(source).and_then(|it| it.on_route.clone()) else {
                continue;
            };
            if own.route.is_direct() {
                continue;
            }
            let origin = ways.site(self.sources[source].source.url());
            let sites: Vec<SiteId> = own.route.relays().iter().copied().chain([origin]).collect();
            let told: Vec<&[Hop]> = ways
                .hops
                .values()
                .filter(|(of, ..)| *of == source)
                .map(|(_, _, hops)| hops.as_slice())
                .collect();
            let mut reports = Vec::new();
            for (relay, from) in sites.iter().zip(&sites[1..]) {
                let name = ways.of(*from).map(|site| site.name.as_str()).unwrap_or_default();
                // Each lane's report of just this hop.
                let of_hop =
                    told.iter().filter_map(|hops| hops.iter().find(|hop| hop.upstream == name));
                let sum = together(of_hop);
                if let Some(sum) = sum {
                    reports.push(HopReport { relay: *relay, from: *from, ..sum });
                }
            }
            if !reports.is_empty() {
                ways.router.handle(RouteEvent::Reported { way, hops: reports }, now);
            }
        }
    }

    pub(super) fn report_progress(&mut self, now: Time) {
        let left_bytes = self.size_bytes.map(|size| size.saturating_sub(self.have.total_bytes()));
        let Some(ways) = &mut self.ways else { return };
        let mut all = Vec::new();
        for (&way, &source) in &ways.open {
            let Some(view) = self.planner.source(SourceId(source as u32)) else { continue };
            all.push((
                way,
                WayNow {
                    rate_bytes_per_s: view.rate_bytes_per_s,
                    delivered_bytes: view.delivered_bytes,
                    silent: view.status == SourceStatus::Silent,
                    busy: view.busy,
                },
            ));
        }
        ways.router.handle(RouteEvent::Progress { ways: all, left_bytes }, now);
    }
}

/// What several lanes report of one hop, together.
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

/// A report older than this says nothing of now.
const FRESH: Duration = Duration::from_secs(3);
