//! Routed sources: their names, and when they were in use.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use maud::{Markup, html};
use swath_model::SourceName;

use crate::moments::InUse;
use crate::palette::colour;
use crate::view::View;

/// Returns short names of relays by `host:port`: the first label of the host, if it is unique.
pub(crate) fn short_names(sources: &[SourceName]) -> BTreeMap<String, String> {
    let sites = sources.iter().flat_map(|name| &name.relays);
    let mut names: BTreeMap<String, String> =
        sites.map(|site| (site.clone(), first_part(site).to_owned())).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    names.values().for_each(|short| *counts.entry(short.clone()).or_default() += 1);
    for (site, short) in &mut names {
        if counts.get(short).is_some_and(|&count| count > 1) {
            short.clone_from(site);
        }
    }
    names
}

fn first_part(site: &str) -> &str {
    let host = site.rsplit_once(':').map_or(site, |(host, _)| host);
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    if is_address { host } else { host.split('.').next().unwrap_or(host) }
}

/// Describes the `at`th change of the sources in use.
pub(crate) fn change(view: &View<'_>, at: usize) -> String {
    let in_use = &view.recording.moments.in_use;
    let now = in_use.get(at).map_or(&[][..], |it| &it.sources);
    let before = match at.checked_sub(1) {
        Some(before) => in_use.get(before).map_or(Vec::new(), |it| it.sources.clone()),
        None => at_first(view),
    };
    let names = |some: &[u32], without: &[u32]| -> Vec<String> {
        let left = some.iter().filter(|one| !without.contains(one));
        left.map(|&one| format!("{} ({})", one + 1, view.called(one as usize))).collect()
    };
    let changes = [("now in use", names(now, &before)), ("no longer in use", names(&before, now))]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{what}: {}", names.join("; ")));
    let parts: Vec<String> = changes.collect();
    if parts.is_empty() {
        "the routes in use were chosen again".to_owned()
    } else {
        parts.join(" · ")
    }
}

/// Returns the sources in use before the first event: the direct ones that are in use later.
fn at_first(view: &View<'_>) -> Vec<u32> {
    let recording = view.recording;
    let first = recording.moments.in_use.first().map_or(&[][..], |it| &it.sources);
    let is_direct =
        |one: &u32| recording.sources.get(*one as usize).is_some_and(|name| !name.is_relayed());
    first.iter().copied().filter(is_direct).collect()
}

/// Returns a row with a line for each source, as long as it was in use.
pub(crate) fn row(view: &View<'_>) -> Markup {
    let in_use = &view.recording.moments.in_use;
    if in_use.is_empty() {
        return html! {};
    }
    let begin = InUse { at_s: 0.0, sources: at_first(view) };
    let all: Vec<&InUse> = std::iter::once(&begin).chain(in_use).collect();
    // The intervals of each source.
    let mut spells: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
    for (at, spell) in all.iter().enumerate() {
        let end_s = all.get(at + 1).map_or(view.end_s, |next| next.at_s);
        for &source in &spell.sources {
            spells.entry(source).or_default().push((view.x(spell.at_s), view.x(end_s)));
        }
    }
    let height = spells.len() as i64 * (LINE_PX + GAP_PX) + GAP_PX;
    let lines = spells.into_iter().zip(0..).map(|((source, spells), line)| {
        let top = line * (LINE_PX + GAP_PX) + GAP_PX;
        let mut path = String::new();
        for (from, to) in spells {
            let _ = write!(path, "M{from} {top}h{w}v{LINE_PX}h-{w}z", w = to - from);
        }
        html! { path class={ "way c" (colour(source as usize)) } d=(path) {} }
    });
    let drawn = html! { (view.grid(height)) @for line in lines { (line) } };
    let title = "Routes in use over time; see also the list of events";
    html! {
        div class="lab el" {
            b { "Routes in use" }
            small { @match in_use.len() { 1 => "one change", many => { (many) " changes" } } }
        }
        div class="plot ways" style={ "height:" (height) "px" } {
            (view.chart("tx", height, title, drawn))
        }
    }
}

/// Height of a source's line in pixels: eight of them, the most at a time, are as high as two lanes.
const LINE_PX: i64 = 4;
const GAP_PX: i64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_are_called_by_the_first_part_of_their_names_where_that_is_clear() {
        let by = |relays: &[&str]| SourceName::routed("https://data.example/f", relays.to_vec());
        let sources = [
            by(&[]),
            by(&["r1.a.example:8471", "denver.example:8471"]),
            by(&["r1.b.example:8471", "10.0.0.1:80", "[::1]:80"]),
            SourceName::direct("/home/ada/photos by bob/f"),
        ];
        let names = short_names(&sources);
        let short: Vec<(&str, &str)> =
            names.iter().map(|(site, short)| (site.as_str(), short.as_str())).collect();
        assert_eq!(
            short,
            [
                ("10.0.0.1:80", "10.0.0.1"),
                ("[::1]:80", "[::1]"),
                ("denver.example:8471", "denver"),
                ("r1.a.example:8471", "r1.a.example:8471"),
                ("r1.b.example:8471", "r1.b.example:8471"),
            ]
        );
    }
}
