//! The graph and its routes as text.

use swath_model::path::visible;
use swath_state::{By, Grade, KnownEdge, KnownRelay};
use unicode_width::UnicodeWidthStr as _;

use super::map::Path;
use crate::progress::look::Look;
use crate::say::columns;

/// Returns a line for each edge; those of `marked` routes have a star.
pub fn edges(edges: &[KnownEdge], marked: &[&Path]) -> String {
    let is_marked = |edge: &KnownEdge| {
        let edge = (edge.from.as_str(), edge.to.as_str());
        marked.iter().any(|path| path.edges().any(|it| it == edge))
    };
    let has_teller = edges.iter().any(|edge| teller(edge).is_some());
    let head = ["FROM", "TO", "Mbit/s", "ROUND TRIP", "MEASURED", "USED", "TOLD BY"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let none = || "-".to_owned();
    rows.extend(edges.iter().map(|edge| {
        vec![
            edge.from.clone(),
            edge.to.clone(),
            rate(edge),
            edge.rtt_s.map_or_else(none, round_trip),
            edge.measured.as_ref().map_or_else(none, |it| ago(it.age_s)),
            edge.used_age_s.map_or_else(none, ago),
            teller(edge).unwrap_or("us").to_owned(),
        ]
    }));
    if !has_teller {
        rows.iter_mut().for_each(|row| row.truncate(6));
    }
    let stars = [false].into_iter().chain(edges.iter().map(is_marked));
    let stars: Vec<bool> = stars.collect();
    let lines = columns(&rows, &[2, 3]).into_iter().zip(&stars);
    let prefix = |is_marked: bool| match is_marked {
        true => "* ",
        false if stars.contains(&true) => "  ",
        false => "",
    };
    lines.map(|(line, &is_marked)| format!("{}{line}\n", prefix(is_marked))).collect()
}

/// Returns a route and its limit: `59.9 Mbit/s  a → b → here`, below it `limited by b → here`.
pub fn path(path: &Path, look: Look) -> String {
    let arrow = look.either(" → ", " -> ");
    let (from, to) = path.limit();
    let rate = format!("{:>6} Mbit/s  ", mbit(path.rate_bytes_per_s));
    let limit = match path.sites.len() {
        2 => String::new(),
        _ => format!("{}limited by {from}{arrow}{to}\n", " ".repeat(rate.len())),
    };
    format!("{rate}{}\n{limit}", path.sites.join(arrow))
}

/// Returns the total rate of several routes.
pub fn together(bytes_per_s: f64, routes: usize) -> String {
    format!("{:>6} Mbit/s  over {routes} routes at once\n", mbit(bytes_per_s))
}

/// Returns a line for each known or configured relay.
pub fn relays(relays: &[(String, Option<KnownRelay>)]) -> String {
    let width = relays.iter().map(|(site, _)| site.width()).max().unwrap_or(0);
    let mut out = String::new();
    for (site, known) in relays {
        let said = match known {
            None => "never queried".to_owned(),
            Some(relay) => {
                let seen = relay.seen_age_s.map(|age_s| format!("answered {}", ago(age_s)));
                let error = relay
                    .error
                    .as_ref()
                    .map(|(error, age_s)| format!("failed {}: {}", ago(*age_s), visible(error)));
                let said: Vec<String> = seen.into_iter().chain(error).collect();
                said.join(", ")
            }
        };
        out += &format!("  {site}{}  {said}\n", " ".repeat(width - site.width()));
    }
    out
}

/// Returns the rate of an edge in Mbit/s: `59.9`, `>= 174`, `-`.
pub fn rate(edge: &KnownEdge) -> String {
    match &edge.measured {
        None => "-".to_owned(),
        Some(it) => {
            let sign = if it.grade == Grade::AtLeast { ">= " } else { "" };
            format!("{sign}{}", mbit(it.rate_bytes_per_s))
        }
    }
}

fn teller(edge: &KnownEdge) -> Option<&str> {
    match &edge.measured.as_ref()?.by {
        By::Us => None,
        By::Relay(name) => Some(name),
    }
}

/// Formats a rate in Mbit/s with at least three digits.
pub fn mbit(bytes_per_s: f64) -> String {
    let mbit = bytes_per_s * 8.0 / 1e6;
    match mbit {
        mbit if mbit >= 99.95 => format!("{mbit:.0}"),
        mbit if mbit >= 9.995 => format!("{mbit:.1}"),
        mbit => format!("{mbit:.2}"),
    }
}

fn round_trip(rtt_s: f64) -> String {
    let ms = rtt_s * 1e3;
    if ms < 9.95 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

/// Formats an age: `just now`, `40 s ago`, `3 min ago`, `5 h ago`, `12 d ago`.
pub fn ago(age_s: f64) -> String {
    let (number, unit) = match age_s {
        age_s if age_s < 5.0 => return "just now".to_owned(),
        age_s if age_s < 59.5 => (age_s, "s"),
        age_s if age_s < 3_570.0 => (age_s / 60.0, "min"),
        age_s if age_s < 84_600.0 => (age_s / 3600.0, "h"),
        age_s => (age_s / 86_400.0, "d"),
    };
    format!("{number:.0} {unit} ago")
}

#[cfg(test)]
mod tests {
    use swath_state::HERE;

    use super::super::map::{Map, tests::edge, tests::published};
    use super::*;

    #[test]
    fn the_table_is_as_it_was_read_and_agreed() {
        let mut known = vec![edge("ornl:443", HERE, 26.3), edge("ornl:443", "r1:443", 1174.4)];
        let told = known[1].measured.as_mut().unwrap();
        (told.grade, told.by, told.age_s) = (Grade::AtLeast, By::Relay("r1:443".into()), 7200.0);
        known[1].used_age_s = Some(2.0);
        known.push(KnownEdge { measured: None, rtt_s: Some(0.0012), ..edge("r1:443", HERE, 0.0) });
        let map = Map::new(known, Default::default());
        let widest = map.widest("ornl:443", HERE).unwrap();
        assert_eq!(
            edges(&map.edges, &[&widest]),
            "  FROM      TO       Mbit/s  ROUND TRIP  MEASURED   USED      TOLD BY\n\
             * ornl:443  here       26.3       20 ms  3 min ago  -         us\n  \
               ornl:443  r1:443  >= 1174       20 ms  2 h ago    just now  r1:443\n  \
               r1:443    here          -      1.2 ms  -          -         us\n"
        );
    }

    #[test]
    fn a_route_says_what_limits_it() {
        let widest = published().widest("ornl:443", HERE).unwrap();
        let said = path(&widest, Look::PLAIN);
        let (first, second) = said.split_once('\n').unwrap();
        assert!(first.starts_with("  59.9 Mbit/s  ornl:443 → atlanta:443 → "), "{said}");
        assert_eq!(second, "               limited by denver:443 → here\n");
        let direct = published().widest("washington:443", HERE).unwrap();
        let ascii = Look { unicode: false, ..Look::PLAIN };
        assert_eq!(path(&direct, ascii), "  32.3 Mbit/s  washington:443 -> here\n");
    }

    #[test]
    fn times_and_rates_never_round_into_the_next_unit() {
        for (age_s, said) in [
            (0.0, "just now"),
            (59.4, "59 s ago"),
            (59.6, "1 min ago"),
            (3569.0, "59 min ago"),
            (3571.0, "1 h ago"),
            (84_500.0, "23 h ago"),
            (86_400.0 * 12.0, "12 d ago"),
        ] {
            assert_eq!(ago(age_s), said);
        }
        let shown = [0.0, 0.5, 9.994, 9.996, 99.94, 99.96, 11740.4].map(|it| mbit(it * 125_000.0));
        assert_eq!(shown, ["0.00", "0.50", "9.99", "10.0", "99.9", "100", "11740"]);
    }
}
