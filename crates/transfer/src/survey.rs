//! Measures in advance what a transfer would have to find out first: which sites are reached from
//! where, the round trips between them, and the rates of routes.
//!
//! Rates are measured by a transfer like any other whose bytes go nowhere, with the same planner,
//! the same router and the same memory, until its time or its bytes are spent. So the results are
//! those of a real transfer.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::future::join_all;
use swath_formats::relay;
use swath_model::{Range, SourceName};
use swath_source::{AboutRelay, Trust};
use url::Url;

use crate::engine::{Engine, Stop};
use crate::error::GetError;
use crate::observe::{Event, SourceState};
use crate::request::{Destination, Mirror, Request};
use crate::routes::{Learnt, RouteChoice, Routes};
use crate::sample::Sample;

/// What to measure, and what that may cost.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Files to fetch from; also the sites to which distances are measured.
    pub sources: Vec<Url>,
    /// Bytes to fetch of all of them together. 0: nothing.
    pub bytes: u64,
    /// How long that may take, after the measurement of distances.
    pub lasts: Duration,
}

/// Results of a survey; the rates are in the memory.
#[derive(Debug)]
pub struct Surveyed {
    /// The relays, in their order.
    pub relays: Vec<Asked>,
    /// The sources, in their order.
    pub sources: Vec<Sampled>,
}

/// A relay that was asked about itself.
#[derive(Debug)]
pub struct Asked {
    /// Host and port.
    pub site: String,
    /// Why it did not answer.
    pub error: Option<String>,
    /// Sites that it cannot reach or may not, and why, in its words.
    pub unreached: Vec<(String, String)>,
    /// Round trip to it.
    near: Duration,
    /// Round trips from it to each site that it reaches.
    reached: Vec<(String, Duration)>,
}

impl Asked {
    /// Returns the round trip to that site over this relay.
    fn far(&self, site: &str) -> Duration {
        let behind = self.reached.iter().find(|(reached, _)| reached == site);
        self.near + behind.map_or(Duration::ZERO, |(_, rtt)| *rtt)
    }
}

/// A source that was fetched from.
#[derive(Debug, Default)]
pub struct Sampled {
    /// Host and port.
    pub site: String,
    /// Why it cannot be reached without relays.
    pub unreached: Option<String>,
    /// Its size, if any bytes came.
    pub size_bytes: Option<u64>,
    /// The routes taken, in the order in which they were tried.
    pub ways: Vec<Tried>,
    /// Relays for which no time or bytes were left.
    pub untried: Vec<String>,
    /// The last error, if nothing came.
    pub error: Option<GetError>,
}

/// A route by which a source was fetched.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The source and its relays, as shown to the user.
    pub name: SourceName,
    /// Bytes that came.
    pub bytes: u64,
    /// Why it was dropped, or brought nothing.
    pub error: Option<String>,
    /// Whether all allowed bytes came before its rate was known.
    pub was_brief: bool,
}

impl Sampled {
    /// Returns the bytes that came.
    pub fn bytes(&self) -> u64 {
        self.ways.iter().map(|way| way.bytes).sum()
    }

    fn enter(&mut self, tried: Tried) {
        match self.ways.iter_mut().find(|known| known.name == tried.name) {
            Some(known) => {
                known.bytes += tried.bytes;
                known.was_brief &= tried.was_brief;
                known.error = tried.error.or(known.error.take());
            }
            None if tried.bytes > 0 || tried.error.is_some() => self.ways.push(tried),
            None => {}
        }
    }
}

/// The bytes and time that may be spent.
struct ProbeBudget {
    bytes: u64,
    until: Instant,
    /// Where in the file the next range starts: a relay's cache may hold earlier ranges, of this
    /// survey or another.
    next: u64,
}

impl Engine {
    /// Asks all relays, measures all distances, and fetches from the sources, one after another
    /// with equal shares of the budget. Each failure is reported with its relay or source.
    pub fn survey<'a>(&'a self, survey: &'a Survey, stop: &'a Stop) -> BoxFuture<'a, Surveyed> {
        Box::pin(async move {
            let relays = self.routes.as_ref().map(Routes::relays).unwrap_or_default();
            let mut all: Vec<Url> = Vec::new();
            for url in relays.iter().chain(&survey.sources) {
                if !all.iter().any(|known| relay::site(known) == relay::site(url)) {
                    all.push(url.clone());
                }
            }
            let asked = join_all(relays.iter().map(|url| self.ask(url, &all)));
            let near = join_all(survey.sources.iter().map(|url| self.net.round_trip(url)));
            let ((asked, mut learnt), near) = tokio::join!(
                async {
                    let (asked, learnt): (Vec<Asked>, Vec<_>) = asked.await.into_iter().unzip();
                    (asked, learnt.concat())
                },
                near
            );
            let mut sources = Vec::new();
            for (url, near) in survey.sources.iter().zip(near) {
                let site = relay::site(url).unwrap_or_default();
                if let Ok(rtt) = near {
                    learnt.push(distance(&site, Routes::HERE, rtt));
                }
                let unreached = near.err().map(|error| error.to_string());
                sources.push(Sampled { site, unreached, ..Sampled::default() });
            }
            if let Some(routes) = &self.routes {
                routes.memory().learn(learnt);
            }
            let (mut bytes, until) = (survey.bytes, Instant::now() + survey.lasts);
            for (at, url) in survey.sources.iter().enumerate() {
                let rest = (survey.sources.len() - at) as u64;
                let lasts = until.saturating_duration_since(Instant::now()) / rest as u32;
                let until = Instant::now() + lasts;
                let mut budget = ProbeBudget { bytes: bytes / rest, until, next: 0 };
                let own = &mut sources[at];
                self.measure(url, &asked, &relays, &mut budget, stop, own).await;
                bytes -= own.bytes().min(bytes);
            }
            Surveyed { relays: asked, sources }
        })
    }

    /// Asks one relay about itself and its distances to the other sites.
    async fn ask(&self, url: &Url, all: &[Url]) -> (Asked, Vec<Learnt>) {
        let site = relay::site(url).unwrap_or_default();
        let others: Vec<Url> = all
            .iter()
            .filter(|other| relay::site(other).as_ref() != Some(&site))
            .cloned()
            .collect();
        let about = self.net.about_relay(url, &others).await;
        let error =
            about.as_ref().err().map(|error| AboutRelay::why_not(url.port().is_some(), error));
        if let Some(routes) = &self.routes {
            routes.memory().met(url, error.clone());
        }
        let near = about.as_ref().map_or(Duration::ZERO, |about| about.rtt);
        let mut asked = Asked { site, error, unreached: Vec::new(), near, reached: Vec::new() };
        let Ok(about) = about else { return (asked, Vec::new()) };
        let mut learnt = vec![distance(&asked.site, Routes::HERE, about.rtt)];
        for (other, told) in others.iter().zip(about.hops) {
            let other = relay::site(other).unwrap_or_default();
            match told {
                Ok(rtt) => {
                    learnt.push(distance(&other, &asked.site, rtt));
                    asked.reached.push((other, rtt));
                }
                Err(why) => asked.unreached.push((other, why)),
            }
        }
        (asked, learnt)
    }

    /// Fetches from a source without relays, then by each relay alone, so that nothing disturbs the
    /// measurement; then, with the rest of the budget, by the router's routes.
    async fn measure(
        &self,
        url: &Url,
        asked: &[Asked],
        relays: &[Url],
        budget: &mut ProbeBudget,
        stop: &Stop,
        of: &mut Sampled,
    ) {
        let mut alone: Vec<(RouteChoice, Option<&Asked>)> =
            vec![(RouteChoice::Fixed(vec![]), None)];
        for (at, relay) in asked.iter().enumerate().take(relays.len()) {
            let reaches = !relay.unreached.iter().any(|(site, _)| *site == of.site);
            if relay.error.is_none() && reaches && relay.site != of.site {
                alone.push((RouteChoice::Fixed(vec![at]), Some(relay)));
            }
        }
        // The nearest first: if time is short, these are the likeliest to be useful.
        alone.sort_by_key(|(_, relay)| relay.map(|it| it.far(&of.site)));
        let lasts = budget.until.saturating_duration_since(Instant::now());
        let alone_until = budget.until - lasts.mul_f64(ROUTER_PART);
        for at in 0..alone.len() {
            let (choice, relay) = &alone[at];
            let far = relay.map_or(Duration::ZERO, |it| it.far(&of.site));
            let lasts = SLICE + far * SLICE_TRIPS;
            let late = at > 0 && Instant::now() + lasts > alone_until;
            let share = budget.bytes / (alone.len() - at + 1) as u64;
            if late || share == 0 || stop.is_set() {
                of.untried.extend(
                    alone[at..].iter().filter_map(|(_, it)| Some(it.as_ref()?.site.clone())),
                );
                break;
            }
            let lasts = lasts.min(budget.until.saturating_duration_since(Instant::now()));
            self.measure_way(url, choice.clone(), share, lasts, budget, stop, of).await;
        }
        let lasts = budget.until.saturating_duration_since(Instant::now());
        let is_worth_it = alone.len() > 1 && of.bytes() > 0 && !lasts.is_zero();
        if is_worth_it && budget.bytes > 0 && !stop.is_set() {
            self.measure_way(url, RouteChoice::Multi, budget.bytes, lasts, budget, stop, of).await;
        }
        if of.bytes() > 0 {
            of.error = None;
        }
    }

    /// Fetches by these routes until `bytes` have come or the time `lasts` is over.
    #[expect(clippy::too_many_arguments, reason = "each is a separate limit or result")]
    async fn measure_way(
        &self,
        url: &Url,
        choice: RouteChoice,
        bytes: u64,
        lasts: Duration,
        budget: &mut ProbeBudget,
        stop: &Stop,
        of: &mut Sampled,
    ) {
        let is_single = choice != RouteChoice::Multi;
        let routes = self.routes.as_ref().map(|routes| routes.by(choice));
        let engine = Engine { routes, ..self.clone() };
        let fits = of.size_bytes.is_none_or(|size| budget.next + bytes <= size);
        let start = if fits { budget.next } else { 0 };
        let range = Range::of_len(start, bytes);
        let mut request = Request::to(Destination::Nowhere { range });
        request.mirrors =
            vec![Mirror { url: url.clone(), priority: 1, trust: Trust::Named, holds: None }];
        let request = request.costs_no_more();
        let Sample { result, summary, elapsed, .. } =
            { engine.sample(request, lasts, &mut |_: &Event| {}, stop).await };
        let Some(summary) = summary else { return };
        let came = summary.fetched_bytes;
        budget.bytes = budget.bytes.saturating_sub(came + summary.wasted_bytes);
        if came > 0 {
            budget.next = match of.size_bytes.replace(summary.size_bytes) {
                Some(_) => range.end,
                None => fastrand::u64(..=summary.size_bytes),
            };
        }
        // The end of the allowed time is no failure.
        let is_over = matches!(result, Err(GetError::Stopped));
        let was_brief = is_single && result.is_ok() && elapsed < BRIEF;
        for way in summary.sources {
            let is_out = matches!(way.state, SourceState::Bad | SourceState::Silent);
            let error = way.reason.filter(|_| is_out || way.bytes == 0);
            of.enter(Tried { name: way.name, bytes: way.bytes, error, was_brief });
        }
        if came == 0 && !(is_over && stop.is_set()) {
            of.error = result.err();
        }
    }
}

/// Makes the record of a distance in the direction of the data.
fn distance(from: &str, to: &str, rtt: Duration) -> Learnt {
    Learnt {
        from: from.to_owned(),
        to: to.to_owned(),
        reading: None,
        rtt_s: Some(rtt.as_secs_f64()),
        is_used: false,
    }
}

/// Time to measure one route: its rate climbs for a while, and counts from 0.6 s on.
const SLICE: Duration = Duration::from_millis(1300);
/// Round trips added to that time: some to connect, eight of slow start.
const SLICE_TRIPS: u32 = 12;
/// Part of the time for the router, which tries routes of several relays.
const ROUTER_PART: f64 = 0.4;
/// Shortest transfer that shows a rate.
const BRIEF: Duration = Duration::from_millis(1000);
