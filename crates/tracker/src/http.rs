//! The tracker over HTTP: announces, scrapes, and pages for people and programs.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use swath_formats::percent;
use swath_formats::tracker::http as wire;
use swath_serve::http::{Answer, Content, Head, Make, Method, Response, Slot, Stream, serve};
use swath_serve::{Later, Life, LogLine, PlainHttp, Service, Traffic};

use crate::core::{Refusal, Requester};
use crate::page;
use crate::published::Published;
use crate::route::{Page, Route};
use crate::tracker::Tracker;

impl Tracker {
    /// Answers a request that only reads.
    pub(crate) fn respond(&self, head: &Head, peer: SocketAddr) -> Response {
        let route = Route::of(&head.raw_target);
        let from = Requester { ip: self.client(head, peer), passkey: route.passkey };
        match route.page {
            Page::Announce => self.announce(from, route.query),
            Page::Scrape => self.scrape(from, route.query),
            Page::Health => Response::text(200, "well"),
            Page::Metrics => {
                let is_allowed = self.core().lists().allow(from.ip);
                if is_allowed { page::metrics(self) } else { refused(Refusal::Network) }
            }
            Page::Top | Page::Stats => {
                let (checked, has_passkeys) = {
                    let core = self.core();
                    (core.check_reader(from), core.lists().passkeys.is_some())
                };
                match checked {
                    Err(refusal) => refused(refusal),
                    Ok(()) if route.passkey.is_some() && !has_passkeys => not_found(),
                    // Links of the page are relative.
                    Ok(()) if !route.is_folder && route.page == Page::Top => moved(&route),
                    Ok(()) if route.page == Page::Stats => page::stats(self),
                    Ok(()) => page::top(self),
                }
            }
            Page::Published | Page::Unknown => not_found(),
        }
    }

    /// Answers a request for a file of the catalogue's folder, to those who may read the page.
    async fn published(&self, head: &Head, route: &Route<'_>, from: Requester<'_>) -> Response {
        let (checked, has_passkeys) = {
            let core = self.core();
            (core.check_reader(from), core.lists().passkeys.is_some())
        };
        let Some(folder) = self.folder.clone() else { return not_found() };
        if let Err(refusal) = checked {
            return refused(refusal);
        }
        if route.passkey.is_some() && !has_passkeys {
            return not_found();
        }
        let Ok(name) = String::from_utf8(percent::decode(route.file)) else { return not_found() };
        let opened = tokio::task::spawn_blocking(move || Published::open(&folder, &name)).await;
        match opened {
            Ok(Ok(published)) => published.answer(&head.conditions()),
            Ok(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                Response::text(500, "the file cannot be read")
            }
            _ => not_found(),
        }
    }

    fn announce(&self, from: Requester<'_>, query: &str) -> Response {
        let announce = match wire::announce_query(query) {
            Ok(announce) => announce,
            Err(error) => return failure(&error.to_string()),
        };
        let answer = self.core().announce(self.now(), from, &announce);
        match answer {
            Ok(answer) => bencoded(wire::write_announce(&answer, announce.form)),
            Err(refusal) => failure(&refusal.to_string()),
        }
    }

    fn scrape(&self, from: Requester<'_>, query: &str) -> Response {
        let mut torrents = match wire::scrape_query(query) {
            Ok(torrents) if torrents.is_empty() => {
                return failure("a scrape must name its torrents");
            }
            Ok(torrents) => torrents,
            Err(error) => return failure(&error.to_string()),
        };
        torrents.sort_unstable();
        torrents.dedup();
        let counts = self.core().scrape(self.now(), from, &torrents);
        match counts {
            Ok(counts) => {
                let torrents: Vec<_> = torrents.into_iter().zip(counts).collect();
                bencoded(wire::write_scrape(&torrents))
            }
            Err(refusal) => failure(&refusal.to_string()),
        }
    }

    /// Returns the address of the client. A trusted proxy tells it as the last one of
    /// `X-Forwarded-For`: those before it are the client's own words.
    fn client(&self, head: &Head, peer: SocketAddr) -> IpAddr {
        let ip = peer.ip().to_canonical();
        if !self.proxies.iter().any(|proxy| proxy.contains(ip)) {
            return ip;
        }
        let told = head.fields("x-forwarded-for").last();
        let last = told.and_then(|it| it.rsplit(',').next()?.trim().parse::<IpAddr>().ok());
        last.map_or(ip, |it| it.to_canonical())
    }
}

fn bencoded(body: Vec<u8>) -> Response {
    Response::empty(200)
        .with("content-type", "text/plain")
        .with("cache-control", "no-store")
        .containing(Content::Bytes(body))
}

/// A refusal that clients show to their users: they read the reason with the status 200 only.
fn failure(reason: &str) -> Response {
    bencoded(wire::write_failure(reason))
}

fn refused(refusal: Refusal) -> Response {
    Response::text(403, refusal.to_string())
}

/// The address of a page that lacks the `/` at its end.
fn moved(route: &Route<'_>) -> Response {
    let to = format!("{}/", route.passkey.unwrap_or_default());
    Response::text(308, "the address of this page ends with /").with("location", to)
}

fn not_found() -> Response {
    Response::text(404, "this is a tracker: clients announce torrents at /announce")
}

impl Service for Tracker {
    fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    fn descriptors_per_connection(&self) -> usize {
        1
    }

    fn serve_connection<'a>(
        self: Arc<Self>,
        stream: Stream,
        peer: SocketAddr,
        slot: &'a Slot,
    ) -> Later<'a> {
        Box::pin(serve(stream, peer, self, slot))
    }

    fn serve_plain_http<'a>(
        self: Arc<Self>,
        stream: Stream,
        peer: SocketAddr,
        slot: &'a Slot,
    ) -> Later<'a> {
        Box::pin(serve(stream, peer, Arc::new(PlainHttp::server()), slot))
    }
}

impl Answer for Tracker {
    type PerConnection = ();
    const TAKES_ANY_TARGET: bool = true;

    async fn answer(&self, head: &Head, peer: SocketAddr, _: &mut dyn Make) -> Response {
        let route = Route::of(&head.raw_target);
        match head.method {
            Method::GET | Method::HEAD if route.page == Page::Published => {
                let from = Requester { ip: self.client(head, peer), passkey: route.passkey };
                self.published(head, &route, from).await
            }
            Method::GET | Method::HEAD => self.respond(head, peer),
            _ => Response::text(405, "GET and HEAD are possible here").with("allow", "GET, HEAD"),
        }
    }

    fn note(&self, head: &Head, peer: SocketAddr, status: u16, bytes: u64, took: Duration) {
        self.answers.count(status, took);
        if let Some(log) = &self.log {
            let target = Route::of(&head.raw_target).shown();
            let line = LogLine::of(head, peer, status, bytes, took);
            // The page before this one may have had a passkey in its address.
            log.note(&LogLine { target: &target, referer: None, ..line });
        }
    }

    fn is_ending(&self, _: bool) -> bool {
        *self.life.borrow() != Life::Open
    }

    async fn ending(&self, _: bool) {
        let mut life = self.life.clone();
        let _ = life.wait_for(|&life| life != Life::Open).await;
    }

    fn is_about_health(&self, head: &Head) -> bool {
        Route::of(&head.raw_target).page == Page::Health
    }
}
