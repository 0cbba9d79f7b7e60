//! Sources that are ways (one replica by some relays): how they are called, and when which of them
//! were in use.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use super::palette::colour;
use super::recording::{InUse, Recording};
use super::scene::{Scene, X_MAX};

/// Short names of relays, by `host:port`: the first part of the host's name, where no other relay has
/// that too.
pub(super) fn short_names(recording: &Recording) -> BTreeMap<String, String> {
    let sites = recording.sources.iter().flat_map(|name| &name.relays);
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

/// What changed with the `at`th change of the ways in use.
pub(super) fn change(scene: &Scene<'_>, at: usize) -> String {
    let ways = &scene.recording.ways;
    let now = ways.get(at).map_or(&[][..], |it| &it.sources);
    let before = match at.checked_sub(1) {
        Some(before) => ways.get(before).map_or(Vec::new(), |it| it.sources.clone()),
        None => at_first(scene),
    };
    let names = |some: &[u32], without: &[u32]| -> Vec<String> {
        let left = some.iter().filter(|one| !without.contains(one));
        left.map(|&one| format!("{} ({})", one + 1, scene.called(one as usize))).collect()
    };
    let mut parts = Vec::new();
    for (what, names) in
        [("now in use", names(now, &before)), ("no longer in use", names(&before, now))]
    {
        if !names.is_empty() {
            parts.push(format!("{what}: {}", names.join("; ")));
        }
    }
    if parts.is_empty() {
        "the ways in use were chosen anew".to_owned()
    } else {
        parts.join(" · ")
    }
}

/// In use before anything was told: what is there directly, if it is in use afterwards.
fn at_first(scene: &Scene<'_>) -> Vec<u32> {
    let recording = scene.recording;
    let first = recording.ways.first().map_or(&[][..], |it| &it.sources);
    let is_direct =
        |one: &u32| recording.sources.get(*one as usize).is_some_and(|name| !name.is_relayed());
    first.iter().copied().filter(is_direct).collect()
}

/// A lane with a line for each way, for as long as it was in use.
pub(super) fn lane(scene: &Scene<'_>) -> String {
    let ways = &scene.recording.ways;
    if ways.is_empty() {
        return String::new();
    }
    let begin = InUse { at_s: 0.0, sources: at_first(scene) };
    let all: Vec<&InUse> = std::iter::once(&begin).chain(ways).collect();
    let mut paths: BTreeMap<u32, String> = BTreeMap::new();
    for (at, spell) in all.iter().enumerate() {
        let end_s = all.get(at + 1).map_or(scene.end_s, |next| next.at_s);
        let (from, to) = (scene.x(spell.at_s), scene.x(end_s));
        for &source in &spell.sources {
            let path = paths.entry(source).or_default();
            let _ = write!(path, "M{from} LINEh{}v{WAY_PX}h-{}z", to - from, to - from);
        }
    }
    let mut drawn = String::new();
    for (line, (source, path)) in paths.iter().enumerate() {
        let top = line as i64 * (WAY_PX + GAP_PX) + GAP_PX;
        let path = path.replace("LINE", &top.to_string());
        let _ = write!(drawn, "<path class=\"way c{}\" d=\"{path}\"/>", colour(*source as usize));
    }
    let height = paths.len() as i64 * (WAY_PX + GAP_PX) + GAP_PX;
    let changes = match ways.len() {
        1 => "one change".to_owned(),
        many => format!("{many} changes"),
    };
    format!(
        "<div class=\"lab el\"><b>Ways in use</b><small>{changes}</small></div>\
         <div class=\"plot ways\" style=\"height:{height}px\"><svg class=\"tx\" viewBox=\"0 0 {X_MAX} {height}\" \
         data-h=\"{height}\" preserveAspectRatio=\"none\" role=\"img\"><title>Which ways were in use when; the \
         events tell it in words</title>{}{drawn}</svg></div>",
        scene.grid(height),
    )
}

/// Height of a way's line in pixels: eight of them, the most at a time, are as high as two lanes.
const WAY_PX: i64 = 4;
const GAP_PX: i64 = 2;

#[cfg(test)]
mod tests {
    use swath_model::SourceName;

    use super::*;

    #[test]
    fn relays_are_called_by_the_first_part_of_their_names_where_that_is_clear() {
        let by = |relays: &[&str]| SourceName {
            address: "https://data.example/f".to_owned(),
            relays: relays.iter().map(|&relay| relay.to_owned()).collect(),
        };
        let sources = vec![
            by(&[]),
            by(&["r1.a.example:8471", "denver.example:8471"]),
            by(&["r1.b.example:8471", "10.0.0.1:80", "[::1]:80"]),
            SourceName::direct("/home/ada/photos by bob/f"),
        ];
        let names = short_names(&Recording { sources, ..Recording::default() });
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
