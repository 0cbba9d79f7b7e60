//! Edges as JSON, one object per line, as described in `docs/routes.md`. Members are only added.

use serde::Serialize;
use swath_state::{By, Grade, KnownEdge};

use super::map::Path;

#[derive(Serialize)]
struct Line<'a> {
    from: &'a str,
    to: &'a str,
    rate_bytes_per_s: Option<f64>,
    grade: Option<&'static str>,
    age_s: Option<f64>,
    told_by: Option<&'a str>,
    rtt_s: Option<f64>,
    used_age_s: Option<f64>,
    /// Whether it is part of a requested route.
    on_route: bool,
    /// Whether it is the slowest edge of a requested route.
    limits: bool,
}

/// Returns a line for each edge.
pub fn edges(edges: &[KnownEdge], routes: &[&Path]) -> serde_json::Result<String> {
    let mut out = String::new();
    for edge in edges {
        let it = (edge.from.as_str(), edge.to.as_str());
        let measured = edge.measured.as_ref();
        let line = Line {
            from: it.0,
            to: it.1,
            rate_bytes_per_s: measured.map(|measured| measured.rate_bytes_per_s),
            grade: measured.map(|measured| match measured.grade {
                Grade::AtLeast => "at_least",
                Grade::Exact => "exact",
            }),
            age_s: measured.map(|measured| measured.age_s),
            told_by: measured.and_then(|measured| match &measured.by {
                By::Us => None,
                By::Relay(name) => Some(name.as_str()),
            }),
            rtt_s: edge.rtt_s,
            used_age_s: edge.used_age_s,
            on_route: routes.iter().any(|path| path.edges().any(|edge| edge == it)),
            limits: routes.iter().any(|path| path.limit() == it),
        };
        out += &serde_json::to_string(&line)?;
        out.push('\n');
    }
    Ok(out)
}
