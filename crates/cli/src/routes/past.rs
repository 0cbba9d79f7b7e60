//! Old relays, which are hidden: silent for a week, and without a measured rate. Otherwise relays that
//! were only tried out would be listed forever.
//!
//! Configured and requested relays are never hidden.

use std::collections::BTreeSet;

use swath_state::{KnownEdge, KnownRelay};

use crate::progress::units;

/// Returns the old ones of these relays, except the `wanted` ones.
pub fn relays(
    relays: &[(String, Option<KnownRelay>)],
    edges: &[KnownEdge],
    wanted: &[String],
) -> BTreeSet<String> {
    let is_rated = |site: &String| {
        let own = edges.iter().filter(|edge| edge.from == *site || edge.to == *site);
        own.into_iter().any(|edge| edge.measured.is_some())
    };
    let is_heard = |known: &KnownRelay| {
        let error_s = known.error.as_ref().map(|(_, age_s)| *age_s);
        known.seen_age_s.into_iter().chain(error_s).any(|age_s| age_s < PAST_S)
    };
    let known = relays.iter().filter_map(|(site, known)| Some((site, known.as_ref()?)));
    known
        .filter(|(site, known)| !wanted.contains(site) && !is_heard(known) && !is_rated(site))
        .map(|(site, _)| site.clone())
        .collect()
}

/// Returns the line that counts them.
pub fn words(count: usize) -> String {
    let relays = if count == 1 { "relay" } else { "relays" };
    let count = units::count(count as u64);
    format!("  {count} {relays} not shown (silent for a week, no measured rate): see --all\n")
}

/// Relays that answered or failed within a week are shown.
const PAST_S: f64 = 7.0 * 86_400.0;

#[cfg(test)]
mod tests {
    use super::super::map::tests::edge;
    use super::super::{Memory, NetworkView};
    use super::*;
    use crate::config::{self, Config};

    fn shown(config: &Config, asked: &[Option<&str>], hides: bool) -> String {
        let relay = |name: &str, seen_d: f64, failed_d: Option<f64>| KnownRelay {
            url: format!("https://{name}.example"),
            public_key: None,
            seen_age_s: Some(seen_d * 86_400.0),
            error: failed_d.map(|days| ("no answer".to_owned(), days * 86_400.0)),
        };
        let far = |from: &str, to: &str| KnownEdge { measured: None, ..edge(from, to, 0.0) };
        let memory = Memory {
            edges: vec![
                edge("rated.example:443", "here", 59.9),
                edge("data.example:443", "rated.example:443", 60.0),
                far("old1.example:443", "old2.example:443"),
                far("old1.example:443", "rated.example:443"),
                far("lately.example:443", "rated.example:443"),
            ],
            relays: vec![
                relay("configured", 90.0, None),
                relay("failed", 90.0, Some(6.0)),
                relay("lately", 3.0, None),
                relay("old1", 90.0, Some(8.0)),
                relay("old2", 90.0, None),
                relay("rated", 90.0, None),
            ],
            is_read: true,
            nothing: String::new(),
        };
        let (from, to) = (asked.first().copied().flatten(), asked.get(1).copied().flatten());
        let mut shown = NetworkView::new(memory, config, from, to).unwrap();
        if hides {
            shown.hide_past(config, asked);
        }
        shown.words(from.is_some())
    }

    #[test]
    fn relays_that_are_past_are_counted_and_not_listed() {
        // Every relay that was ever named was listed for ever, with the distances to all others.
        let relays = vec![config::relay("https://configured.example").unwrap()];
        let config = Config { relays, ..Config::default() };
        let text = shown(&config, &[], true);
        assert!(text.ends_with(&words(2)) && !text.contains("old"), "{text}");
        for site in ["configured", "failed", "lately", "rated"] {
            assert!(text.contains(&format!("\n  {site}.example:443 ")), "{site}: {text}");
        }
        assert!(text.contains("lately.example:443  rated.example:443 "), "{text}");
        let all = shown(&config, &[], false);
        assert!(all.contains("\n  old1.example:443 ") && !all.contains("--all"), "{all}");
        assert!(all.contains("old1.example:443    old2.example:443 "), "{all}");
        // What is asked for is shown.
        let asked = shown(&config, &[Some("old1.example"), Some("old2.example")], true);
        assert!(asked.contains("\n  old1.example:443 ") && !asked.contains("--all"), "{asked}");
        let one = shown(&config, &[Some("old1.example")], true);
        assert!(one.ends_with(&words(1)), "{one}");
        // Nothing of what is no relay is ever hidden.
        assert!(text.contains("data.example:443"), "{text}");
    }
}
