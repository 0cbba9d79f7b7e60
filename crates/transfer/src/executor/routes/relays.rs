//! Asks relays about themselves while a transfer runs.
//!
//! When routes may be worth it, or a route needs a relay's key, swath asks each relay what it is
//! and for its round trips to all other sites. For a replica found later swath asks again, and it
//! retries relays that did not answer from time to time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::reason::Why;
use swath_model::{SourceId, Time, counted};
use swath_plan::Event as PlanEvent;
use swath_plan::routes::{Fault, ReplicaId, Route, RouteEvent, RoutedId, SiteId};
use swath_source::AboutRelay;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use crate::executor::routes::Routing;
use crate::executor::state::Run;
use crate::observe::SourceState;

/// A report about a relay.
pub(crate) enum RelayReport {
    /// Its answer, or why there was none.
    About(About),
    /// It works, again if it `was_silent`.
    Well { relay: SiteId, was_silent: bool },
}

/// A relay's answer, or why there was none.
pub(crate) struct About {
    relay: SiteId,
    /// The sites that it was asked about, in the order of its hops.
    about: Vec<SiteId>,
    told: Result<AboutRelay, Why>,
    /// Whether the question was only about another site: silence then does not count against it.
    is_further: bool,
}

/// What relays have reported.
pub(crate) struct Relays {
    pub(crate) words: UnboundedReceiver<RelayReport>,
    sender: UnboundedSender<RelayReport>,
    has_asked: bool,
    /// When relays were last asked what they are.
    asked_at: Time,
    /// Number of sites when relays were last asked about all of them.
    asked_sites: usize,
    /// Questions without an answer yet.
    unheard: usize,
    /// Relays that did not answer.
    unreached: BTreeSet<SiteId>,
    /// Relays that cannot be used, and why.
    pub(crate) lost: BTreeMap<SiteId, Why>,
    /// Why a relay (first) does not reach another site; `None` if it does.
    said: BTreeMap<(SiteId, SiteId), Option<String>>,
    /// Until when the router may still find a route over relays that answered lately.
    hope_until: Time,
}

impl Default for Relays {
    fn default() -> Relays {
        let (sender, words) = unbounded_channel();
        Relays {
            words,
            sender,
            has_asked: false,
            asked_at: Time::ZERO,
            asked_sites: 0,
            unheard: 0,
            unreached: BTreeSet::new(),
            lost: BTreeMap::new(),
            said: BTreeMap::new(),
            hope_until: Time::ZERO,
        }
    }
}

impl Relays {
    /// Returns whether relays have yet to answer, or the router has yet to use their answers.
    pub(crate) fn may_bring_more(&self, now: Time) -> bool {
        self.unheard > 0 || now < self.hope_until
    }
}

impl Run<'_> {
    /// Asks all relays what they are and for their round trips to all other sites.
    pub(crate) fn ask_relays(&mut self) {
        let now = self.now();
        let Some(routing) = &mut self.routing else { return };
        if std::mem::replace(&mut routing.relays.has_asked, true) {
            return;
        }
        routing.relays.asked_at = now;
        let relays: Vec<SiteId> =
            routing.routes.relays().iter().map(|url| routing.sites.number_of(url)).collect();
        routing.relays.asked_sites = routing.sites.len();
        for relay in relays {
            self.ask_relay(relay, None);
        }
        if let Some(routing) = &mut self.routing {
            routing.remember(now);
        }
    }

    /// Asks the relays that were asked before about a new replica at `site`.
    pub(crate) fn ask_about(&mut self, site: SiteId) {
        let Some(routing) = &mut self.routing else { return };
        if !routing.relays.has_asked || site.0 as usize <= routing.relays.asked_sites {
            return;
        }
        routing.relays.asked_sites = routing.sites.len();
        let relays: Vec<SiteId> =
            routing.routes.relays().iter().map(|url| routing.sites.number_of(url)).collect();
        for relay in relays {
            if self
                .routing
                .as_ref()
                .is_some_and(|routing| !routing.relays.unreached.contains(&relay))
            {
                self.ask_relay(relay, Some(site));
            }
        }
    }

    /// Asks relays again that did not answer.
    pub(crate) fn ask_lost_relays(&mut self) {
        let now = self.now();
        let Some(routing) = &mut self.routing else { return };
        if routing.relays.unreached.is_empty()
            || routing.relays.unheard > 0
            || now.since(routing.relays.asked_at) < ASK_AGAIN
        {
            return;
        }
        routing.relays.asked_at = now;
        for relay in routing.relays.unreached.clone() {
            self.ask_relay(relay, None);
        }
    }

    /// Asks a relay about one site, or about itself and all sites.
    fn ask_relay(&mut self, relay: SiteId, about: Option<SiteId>) {
        let Some(routing) = &mut self.routing else { return };
        let Some(url) = routing.sites.get(relay).map(|site| site.url.clone()) else { return };
        let is_further = about.is_some();
        let mut about = match about {
            Some(site) => vec![site],
            None => (1..=routing.sites.len() as u32)
                .map(SiteId)
                .filter(|other| *other != relay)
                .collect(),
        };
        about.retain(|&other| routing.routes.may_tell(relay, other));
        if is_further && about.is_empty() {
            return;
        }
        let to: Vec<Url> =
            about.iter().filter_map(|&site| Some(routing.sites.get(site)?.url.clone())).collect();
        let (net, words) = (self.engine.net.clone(), routing.relays.sender.clone());
        routing.relays.unheard += 1;
        tokio::spawn(async move {
            let told = net.about_relay(&url, &to).await;
            let names_port = url.port().is_some();
            let told = told.map_err(|error| Why::NoRelay { names_port, error: Box::new(error) });
            let _ = words.send(RelayReport::About(About { relay, about, told, is_further }));
        });
    }

    /// Asks a relay until it answers or the transfer is over, because its route fell silent. A
    /// relay that was suspended finds the question when it continues.
    pub(crate) fn ask_until_well(&mut self, relay: SiteId) {
        let Some(routing) = &mut self.routing else { return };
        let Some(url) = routing.sites.get(relay).map(|site| site.url.clone()) else { return };
        let (net, words) = (self.engine.net.clone(), routing.relays.sender.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            let mut has_failed = false;
            while !words.is_closed() {
                match timeout(WELL_WITHIN, net.about_relay(&url, &[])).await {
                    Ok(Ok(_)) => {
                        let was_silent = has_failed || began.elapsed() >= SILENT;
                        let _ = words.send(RelayReport::Well { relay, was_silent });
                        return;
                    }
                    Ok(Err(_)) => sleep(WELL_AGAIN).await,
                    Err(_) => {}
                }
                has_failed = true;
            }
        });
    }

    /// Retries failed open routes over a relay at once, because it works again.
    fn retry_routes_over(&mut self, relay: SiteId) {
        let now = self.now();
        let Some(routing) = &self.routing else { return };
        let over_it = |at: &&usize| {
            let own = self.sources.get(**at).and_then(|entry| entry.on_route.as_ref());
            own.is_some_and(|own| own.route.contains(relay))
        };
        let sources: Vec<usize> = routing.routed.open.values().filter(over_it).copied().collect();
        for at in sources {
            let source = SourceId(at as u32);
            if !self.sources.is_bad(at)
                && self.planner.source(source).is_some_and(|view| view.failing)
            {
                self.planner.handle(PlanEvent::SourceAgain { source }, now);
            }
        }
    }

    /// Handles a report about a relay.
    pub(crate) fn relay_told(&mut self, word: RelayReport) {
        let now = self.now();
        let About { relay: site, about, told, is_further } = match word {
            RelayReport::About(about) => about,
            RelayReport::Well { relay: site, was_silent } => {
                if was_silent && let Some(routing) = &mut self.routing {
                    routing.relays.unreached.remove(&site);
                    routing.relays.lost.remove(&site);
                }
                self.tell_router(RouteEvent::RelayAnswered { site, was_silent });
                self.retry_routes_over(site);
                return;
            }
        };
        let Some(routing) = &mut self.routing else { return };
        routing.relays.unheard = routing.relays.unheard.saturating_sub(1);
        let name = routing.sites.name(site).to_owned();
        let url = routing.sites.get(site).map(|site| site.url.clone());
        if let Some(url) = url.filter(|_| !is_further) {
            routing.sites.memory.met(&url, told.as_ref().err().map(Why::to_string));
        }
        let told = match told {
            Ok(told) => told,
            Err(_) if is_further => return,
            Err(why) => {
                routing.router.handle(RouteEvent::RelayLost { site }, now);
                routing.relays.unreached.insert(site);
                routing.relays.lost.insert(site, why.clone());
                let (lost, others): (Vec<_>, Vec<_>) = std::mem::take(&mut routing.routed.deferred)
                    .into_iter()
                    .partition(|(_, _, route, _)| route.contains(site));
                for (routed_id, ..) in lost {
                    let fault = Fault::Broken;
                    routing
                        .router
                        .handle(RouteEvent::RoutedFailed { routed_id, fault, at: Some(site) }, now);
                }
                let is_news = routing.routes.note_lost(&name);
                if is_news {
                    self.note(format!("the relay {name} is not used: {why}"), false);
                }
                self.tell_unreached();
                // These still wait for other relays' keys.
                for (routed_id, replica, route, on_trial) in others {
                    self.open_routed(routed_id, replica, route, on_trial);
                }
                return;
            }
        };
        let rtt_s = Some(told.rtt.as_secs_f64());
        let here = RouteEvent::RoundTrip { from: site, to: SiteId::HERE, rtt_s };
        routing.router.handle(here, now);
        for (&other, rtt) in about.iter().zip(&told.hops) {
            let rtt_s = rtt.as_ref().ok().map(Duration::as_secs_f64);
            routing.router.handle(RouteEvent::RoundTrip { from: other, to: site, rtt_s }, now);
            routing.relays.said.insert((site, other), rtt.as_ref().err().cloned());
        }
        if !is_further {
            if routing.relays.unreached.remove(&site) {
                routing.relays.lost.remove(&site);
            }
            routing.router.handle(RouteEvent::RelayUp { site }, now);
        }
        if routing.is_seeking() {
            routing.relays.hope_until = now.plus_secs(ROUTER_WITHIN_S);
        }
        for (routed_id, replica, route, on_trial) in std::mem::take(&mut routing.routed.deferred) {
            self.open_routed(routed_id, replica, route, on_trial);
        }
        self.tell_unreached();
        self.route();
    }

    /// Reports relays that reach no source, not even by other relays, once for each source.
    fn tell_unreached(&mut self) {
        let Some(routing) = &self.routing else { return };
        if !routing.is_seeking() {
            return;
        }
        let relays: Vec<SiteId> = (1..=routing.routes.relays().len() as u32).map(SiteId).collect();
        // Depots are on relays, which need not reach one another.
        let sources: BTreeSet<SiteId> = routing
            .routed
            .origins
            .values()
            .copied()
            .filter(|site| !relays.contains(site))
            .collect();
        let mut notes = Vec::new();
        for &relay in &relays {
            let whys: Option<Vec<(SiteId, &str)>> = sources
                .iter()
                .map(|&source| Some((source, routing.why_unreached(relay, source)?)))
                .collect();
            let names = |site| routing.sites.name(site);
            let name = names(relay);
            let mut news = whys.unwrap_or_default();
            news.retain(|(site, _)| {
                routing.routes.note_lost(&format!("{name} for {}", names(*site)))
            });
            if let Some((source, why)) = news.first() {
                let others = match news.len() - 1 {
                    0 => String::new(),
                    others => format!(" and {} more", counted(others as u64, "source")),
                };
                let source = names(*source);
                notes.push(format!("the relay {name} is not used for {source}{others}: {why}"));
            }
        }
        for text in notes {
            self.note(text, false);
        }
    }

    /// Makes a route wait for the keys of its relays, and asks for them if that was not done.
    pub(crate) fn defer(
        &mut self,
        routed_id: RoutedId,
        replica: ReplicaId,
        route: Route,
        on_trial: bool,
    ) {
        let now = self.now();
        let Some(routing) = &mut self.routing else { return };
        let silent =
            route.relays().iter().find(|relay| routing.relays.unreached.contains(relay)).copied();
        if let Some(site) = silent {
            let fault = Fault::Broken;
            routing
                .router
                .handle(RouteEvent::RoutedFailed { routed_id, fault, at: Some(site) }, now);
            return;
        }
        routing.routed.deferred.push((routed_id, replica, route, on_trial));
        self.ask_relays();
    }

    /// Returns whether a new route may yet deliver the missing bytes, which no open source can.
    pub(crate) fn waits_for_routes(&mut self) -> bool {
        let now = self.now();
        if self.routing.as_ref().is_some_and(|routing| routing.is_seeking()) {
            self.ask_relays();
        }
        let Some(routing) = &mut self.routing else { return false };
        routing.is_exhausted = routing.may_bring_more(now);
        routing.is_exhausted
    }

    /// Returns whether that wait ended in vain.
    pub(crate) fn waited_for_routes(&mut self) -> bool {
        let now = self.now();
        let Some(routing) = &mut self.routing else { return false };
        let is_over = routing.is_exhausted && !routing.may_bring_more(now);
        routing.is_exhausted &= !is_over;
        let is_bad = |at: &usize| {
            self.sources.get(*at).is_none_or(|source| source.state == SourceState::Bad)
        };
        is_over && routing.routed.open.values().all(is_bad)
    }
}

impl Routing {
    /// Returns why this relay does not reach the source, not even by other relays, as far as they
    /// reported; `None` if it does or may.
    fn why_unreached(&self, relay: SiteId, source: SiteId) -> Option<&str> {
        let why = self.relays.said.get(&(relay, source))?.as_deref()?;
        let (mut known, mut at) = (vec![relay], 0);
        while let Some(&by) = known.get(at) {
            let comes = match self.relays.said.get(&(by, source)) {
                Some(why) => why.is_none(),
                None => !self.relays.unreached.contains(&by),
            };
            if comes {
                return None;
            }
            let reached = self.relays.said.range((by, SiteId::HERE)..=(by, SiteId(u32::MAX)));
            for (&(_, other), why) in reached {
                let is_relay = other.0 as usize <= self.routes.relays().len();
                if why.is_none() && is_relay && !known.contains(&other) {
                    known.push(other);
                }
            }
            at += 1;
        }
        Some(why)
    }
}

/// Covers the router's longest wait for direct (`STUCK_S`, 1.2 s) and its interval of 0.1 s.
const ROUTER_WITHIN_S: f64 = 1.5;
/// A relay that takes longer to answer was silent.
const SILENT: Duration = Duration::from_secs(1);
/// Wait for an answer before the next question.
const WELL_WITHIN: Duration = Duration::from_secs(3);
/// Pause after a question that failed.
const WELL_AGAIN: Duration = Duration::from_millis(500);
/// Pause before a relay that did not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(60);
