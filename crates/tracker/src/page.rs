//! What people and monitoring read of a tracker: a page of its torrents, the same as JSON, metrics.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Instant;

use maud::{Markup, html};
use serde_json::json;
use swath_formats::feed::{Entry, Feed};
use swath_formats::http_date;
use swath_model::path::visible;
use swath_serve::exposition::Page;
use swath_serve::http::{Content, Made, Make, Response};

use crate::core::{Refusal, Summary};
use crate::published::{ATOM, Published, RSS};
use crate::tracker::{Listed, Tracker};

/// Returns the page of all torrents: those with most peers first.
pub fn top(tracker: &Tracker) -> Response {
    let Some(listed) = listed(tracker) else { return being_made() };
    let torrents = &listed.torrents;
    let feed = tracker.core().lists().feed.clone().unwrap_or_default();
    let (count, left) = (torrents.len(), torrents.len().saturating_sub(ROWS_MAX));
    let peers = tracker.core().peers();
    let body = html! {
        p { (plural(count, "torrent")) ", " (plural(peers, "peer")) }
        @if count > 0 {
            table {
                thead { tr { th { "Torrent" } th { "Seeders" } th { "Completed" } th { "Leechers" } } }
                tbody {
                    @for torrent in torrents.iter().take(ROWS_MAX) {
                        tr {
                            td {
                                @if !torrent.name.is_empty() { (torrent.name) br; }
                                code { (torrent.info_hash) }
                            }
                            td { (torrent.counts.seeders) }
                            td { (torrent.counts.completed) }
                            td { (torrent.counts.leechers) }
                        }
                    }
                }
            }
        }
        @if left > 0 { p { "… and " (plural(left, "more torrent")) " in stats.json" } }
        p { "A peer with IPv4 and IPv6 counts twice." }
        @if !feed.entries.is_empty() { (datasets(&feed)) }
    };
    swath_serve::page(&format!("Tracker {}", tracker.name), &body)
}

/// Returns the datasets of a catalogue: each with its versions, the newest first.
fn datasets(feed: &Feed) -> Markup {
    let mut names: Vec<&str> = Vec::new();
    let mut versions: HashMap<&str, Vec<&Entry>> = HashMap::new();
    for entry in feed.entries.iter().take(ROWS_MAX) {
        let known = versions.entry(&entry.dataset).or_default();
        if known.is_empty() {
            names.push(&entry.dataset);
        }
        known.push(entry);
    }
    let left = feed.entries.len().saturating_sub(ROWS_MAX);
    html! {
        h2 { "Datasets" }
        p { "Feeds: " a href=(RSS) { "RSS" } ", " a href=(ATOM) { "Atom" } }
        table {
            thead { tr { th { "Dataset" } th { "Version" } th { "Published (UTC)" } th { "Files" } } }
            tbody {
                @for name in names {
                    @for (number, entry) in versions[name].iter().enumerate() {
                        tr {
                            td { @if number == 0 { (visible(name)) } }
                            td { (visible(entry.version.as_deref().unwrap_or(""))) }
                            td { (published(entry).unwrap_or_default()) }
                            td {
                                @for file in entry.files.iter().filter_map(|it| own_name(&it.href)) {
                                    a href={ "./" (file) } { (extension(file)) } " "
                                }
                            }
                        }
                    }
                }
            }
        }
        @if left > 0 { p { "… and " (plural(left, "older version")) " in the feeds" } }
    }
}

fn published(entry: &Entry) -> Option<String> {
    http_date::write_plain(i64::try_from(entry.published?).ok()?)
}

/// Returns the name of a file that this tracker serves, as it stands in addresses; wherever the feed
/// says that it is.
fn own_name(href: &str) -> Option<&str> {
    let name = href.rsplit('/').next()?;
    Published::is_name(name).then_some(name)
}

fn extension(name: &str) -> &str {
    match name.rsplit('.').next() {
        Some("minisig") => "signature",
        Some("meta4") => "Metalink",
        other => other.unwrap_or(name),
    }
}

/// Returns the torrents and their counts as JSON.
pub fn stats(tracker: &Tracker) -> Response {
    let Some(listed) = listed(tracker) else { return being_made() };
    let (peers, name) = (tracker.core().peers(), json!(tracker.name));
    let begin = format!("{{\"peers\":{peers},\"torrents\":[");
    let stats = Stats { listed, at: 0, begin, end: format!("],\"tracker\":{name}}}\n") };
    Response::empty(200)
        .with("content-type", "application/json")
        .with("cache-control", "no-store")
        .containing(Content::Made(Box::new(stats)))
}

/// All torrents as JSON, part by part.
struct Stats {
    listed: Arc<Listed>,
    at: usize,
    /// What is not told yet of what stands before the torrents, …
    begin: String,
    /// … and behind them.
    end: String,
}

impl Make for Stats {
    fn length(&self) -> Option<u64> {
        None
    }

    fn next(&mut self) -> Made<'_> {
        let mut part = std::mem::take(&mut self.begin);
        for torrent in self.listed.torrents.iter().skip(self.at).take(ROWS_MAX) {
            let comma = if self.at > 0 { "," } else { "" };
            let torrent = json!({
                "info_hash": torrent.info_hash.to_string(),
                "name": Some(&torrent.name).filter(|name| !name.is_empty()),
                "seeders": torrent.counts.seeders,
                "leechers": torrent.counts.leechers,
                "completed": torrent.counts.completed,
            });
            part.push_str(&format!("{comma}{torrent}"));
            self.at += 1;
        }
        if self.at == self.listed.torrents.len() {
            part.push_str(&std::mem::take(&mut self.end));
        }
        Box::pin(std::future::ready(Ok(part.into_bytes())))
    }
}

fn being_made() -> Response {
    Response::text(503, "the list of torrents is being made").with("retry-after", "2")
}

/// Returns the metrics in Prometheus' text format.
pub fn metrics(tracker: &Tracker) -> Response {
    let mut page = Page::default();
    page.answers(&tracker.answers);
    page.traffic(&tracker.traffic);
    figures(tracker, &mut page);
    page.response()
}

/// Adds the figures of the tracker itself, without those of its HTTP server.
pub fn figures(tracker: &Tracker, page: &mut Page) {
    let (counters, torrents, peers) = {
        let core = tracker.core();
        (core.counters().clone(), core.torrents(), core.peers())
    };
    let gauge = "gauge";
    page.one("swath_tracker_torrents", gauge, "Torrents with peers.", torrents as f64);
    page.one("swath_tracker_peers", gauge, "Peers of all torrents.", peers as f64);
    let mut counter = |name: &str, help: &str, value: u64| {
        page.one(&format!("swath_tracker_{name}_total"), "counter", help, value as f64);
    };
    counter("announces", "Announces accepted, by HTTP and UDP.", counters.announces);
    counter("scrapes", "Scrapes answered, by HTTP and UDP.", counters.scrapes);
    counter("peers_stopped", "Peers that left.", counters.stopped);
    counter("peers_expired", "Peers that fell silent.", counters.expired);
    counter("peers_dropped", "Peers that made room for others.", counters.dropped);
    let refused: Vec<(String, f64)> = Refusal::KINDS
        .iter()
        .zip(counters.refused)
        .map(|(kind, count)| (format!("{{reason=\"{kind}\"}}"), count as f64))
        .collect();
    let help = "Announces and scrapes refused.";
    page.family("swath_tracker_refused_total", "counter", help, &refused);
    let datagrams = &tracker.datagrams;
    for (name, help, value) in [
        ("received", "UDP packets received.", &datagrams.received),
        ("ignored", "UDP packets without a valid connection id.", &datagrams.ignored),
        ("answered", "UDP packets answered.", &datagrams.answered),
        ("unsent", "UDP answers that could not be sent.", &datagrams.unsent),
    ] {
        let value = value.load(Ordering::Relaxed) as f64;
        page.one(&format!("swath_tracker_udp_{name}_total"), "counter", help, value);
    }
}

/// Returns all torrents, those with most peers first. A list that took long to make is used for a
/// while, and one reader makes the next one while the others are given the last, so that readers of the
/// page cannot keep the tracker from announces. `None` while the first one is being made.
fn listed(tracker: &Tracker) -> Option<Arc<Listed>> {
    let known = || tracker.listed.read().unwrap_or_else(PoisonError::into_inner).clone();
    let is_fresh = |it: &Arc<Listed>| it.made.elapsed() < it.took * USED_FOR;
    let last = known();
    if last.as_ref().is_some_and(is_fresh) {
        return last;
    }
    let making = tracker.listing.try_lock();
    if matches!(making, Err(TryLockError::WouldBlock)) {
        return last;
    }
    let (began, mut torrents, mut next) = (Instant::now(), Vec::new(), Some(0));
    while let Some(from) = next {
        next = tracker.core().summaries(from, &mut torrents);
    }
    torrents.sort_by(|one, other| {
        let peers = |it: &Summary| u64::from(it.counts.seeders) + u64::from(it.counts.leechers);
        let by_peers = peers(other).cmp(&peers(one));
        by_peers.then_with(|| one.name.cmp(&other.name)).then(one.info_hash.cmp(&other.info_hash))
    });
    let (made, took) = (Instant::now(), began.elapsed());
    let listed = Arc::new(Listed { made, took, torrents });
    *tracker.listed.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&listed));
    Some(listed)
}

fn plural(count: usize, what: &str) -> String {
    swath_model::counted(count as u64, what)
}

/// A list is used for so many times as long as it took to make: that is at most a fiftieth of the
/// time.
const USED_FOR: u32 = 50;
/// Rows that a browser on a phone can show.
const ROWS_MAX: usize = 1_000;
