//! `--svg`: draws the graph.

use std::path::Path as FilePath;

use crate::failure::Failure;
use swath_report::graph::{Drawing, Kind, Line, Site, svg};
use swath_state::{Grade, HERE};

use super::map::{Map, Path};
use crate::exit::Exit;

/// Draws the graph with these routes to a file, with `to` at the right.
pub fn write(file: &FilePath, map: &Map, to: &str, routes: &[&Path]) -> Result<(), Failure> {
    std::fs::write(file, svg(&drawing(map, to, routes))).map_err(|error| {
        Failure::new(
            Exit::Target,
            format!("cannot write the picture to {}: {error}", file.display()),
        )
    })
}

fn drawing(map: &Map, to: &str, routes: &[&Path]) -> Drawing {
    if map.edges.is_empty() {
        return Drawing::default();
    }
    let origins = map.origins();
    // This machine is drawn only if it has an edge.
    let is_there = |name: &&String| map.edges.iter().any(|it| it.from == **name || it.to == **name);
    let names: Vec<&String> = map.sites().iter().filter(is_there).collect();
    let number = |name: &str| names.iter().position(|it| *it == name).unwrap_or(0);
    let kind = |name: &str| match name {
        HERE => Kind::Here,
        name if origins.contains(&name) => Kind::Source,
        _ => Kind::Relay,
    };
    let edges = map.edges.iter().map(|edge| {
        let measured = edge.measured.as_ref();
        let limits = |path: &&Path| path.limit() == (edge.from.as_str(), edge.to.as_str());
        Line {
            from: number(&edge.from),
            to: number(&edge.to),
            rate_bytes_per_s: measured.map(|it| it.rate_bytes_per_s),
            at_least: measured.is_some_and(|it| it.grade == Grade::AtLeast),
            age_s: measured.map_or(0.0, |it| it.age_s),
            rtt_s: edge.rtt_s,
            limits: routes.iter().any(limits),
        }
    });
    Drawing {
        edges: edges.collect(),
        routes: routes
            .iter()
            .map(|path| path.sites.iter().map(|name| number(name)).collect())
            .collect(),
        target: number(to),
        sites: names.iter().map(|name| Site { name: (*name).clone(), kind: kind(name) }).collect(),
    }
}
