//! Relays' reports on their hop to the next server, in `Server-Timing` (W3C): one entry for each
//! relay on the way, the one nearest to the origin first. Browsers and proxies keep the field, and
//! tools show it.
//!
//! `Server-Timing: hop;desc="r2.example:443";dur=48.2;rate=14534000;held=0.03;able=21000000`

use std::fmt::Write as _;

use crate::text::trim_blanks;

/// One relay's report.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Hop {
    /// Host and port of the next server.
    pub upstream: String,
    /// Round trip to it, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Recent rate from it in bytes per second, while data was expected.
    pub rate: Option<f64>,
    /// Part of that time, from 0 to 1, in which the relay could take no more because it could not
    /// send on what it had. Near 0 the rate is that of this hop and those behind it; near 1 they
    /// could be faster.
    pub held: Option<f64>,
    /// Highest rate over a while when it was not held up, in bytes per second.
    pub able: Option<f64>,
}

impl Hop {
    /// Formats an entry of `Server-Timing`.
    pub fn write(&self) -> String {
        // A valid name contains no quotes and no backslashes.
        let name: String = self
            .upstream
            .chars()
            .filter(|it| it.is_ascii_graphic() && !"\"\\".contains(*it))
            .collect();
        let mut text = format!("{NAME};desc=\"{name}\"");
        let mut member = |name: &str, value: Option<f64>, digits: usize| {
            if let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) {
                let _ = write!(text, ";{name}={value:.digits$}");
            }
        };
        member("dur", self.rtt_ms, 2);
        member("rate", self.rate, 0);
        member("held", self.held, 3);
        member("able", self.able, 0);
        text
    }

    /// Parses the relays' entries in one value of the field; skips other entries and members that
    /// are not numbers.
    pub fn parse(value: &str) -> Vec<Hop> {
        split(value, ',').filter_map(Hop::entry).take(ENTRIES_MAX).collect()
    }

    fn entry(text: &str) -> Option<Hop> {
        let mut members = split(text, ';');
        if trim_blanks(members.next()?) != NAME {
            return None;
        }
        let mut hop = Hop::default();
        for member in members.take(MEMBERS_MAX) {
            let (name, value) = member.split_once('=').unwrap_or((member, ""));
            let value = trim_blanks(value).trim_matches('"');
            let number = || value.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0);
            match trim_blanks(name) {
                "desc" => hop.upstream = value.chars().take(NAME_MAX).collect(),
                "dur" => hop.rtt_ms = number(),
                "rate" => hop.rate = number(),
                "held" => hop.held = number().map(|part| part.min(1.0)),
                "able" => hop.able = number(),
                _ => {}
            }
        }
        Some(hop)
    }
}

/// Returns the parts between `separator`s outside of quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |character| {
        is_quoted ^= character == '"';
        character == separator && !is_quoted
    })
}

const NAME: &str = "hop";
/// More relays than any route has.
const ENTRIES_MAX: usize = 16;
const MEMBERS_MAX: usize = 16;
/// No host name is longer.
const NAME_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read() {
        let first = Hop {
            upstream: "data.example.org:443".to_owned(),
            rtt_ms: Some(48.25),
            rate: Some(14_534_000.0),
            held: Some(0.031),
            able: None,
        };
        let text = first.write();
        assert_eq!(text, "hop;desc=\"data.example.org:443\";dur=48.25;rate=14534000;held=0.031");
        let second = Hop { upstream: "r1:80".to_owned(), ..Hop::default() };
        let value = format!("cache;dur=1, {text},{}", second.write());
        assert_eq!(Hop::parse(&value), [first, second]);
    }

    #[test]
    fn nonsense_is_passed_over() {
        let read = Hop::parse("hop;desc=\"a,b;c\";dur=NaN;rate=-1;held=7;able=x;new=1, hops;dur=1");
        let hop = Hop { upstream: "a,b;c".to_owned(), held: Some(1.0), ..Hop::default() };
        assert_eq!(read, [hop]);
        let hop = Hop { upstream: "a\"\r\nx: y".to_owned(), ..Hop::default() };
        assert_eq!(hop.write(), "hop;desc=\"ax:y\"");
        assert_eq!(Hop::parse(&"hop,".repeat(100)).len(), ENTRIES_MAX);
    }

    proptest! {
        #[test]
        fn no_value_can_do_harm(text in "\\PC{0,120}", members in "[a-z=;\", 0-9.e-]{0,120}") {
            Hop::parse(&text);
            for hop in Hop::parse(&format!("hop;{members}")) {
                prop_assert!(hop.rate.is_none_or(|rate| rate >= 0.0 && rate.is_finite()));
            }
        }
    }
}
