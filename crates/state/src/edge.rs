//! Edges as callers report and request them: sites by name, ages instead of times.

use crate::clock::Wall;

/// The name of the site that we are. In the file it stands with this machine's name, so that
/// machines that share a home do not take each other's edges for their own.
pub const HERE: &str = "here";

/// How exactly a rate is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// The edge could bring more: something behind it or before it was the limit.
    AtLeast,
    /// The edge was the limit.
    Exact,
}

/// Who measured a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// We did.
    Us,
    /// The relay of this name says so.
    Relay(String),
}

/// A rate of an edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Bytes per second; finite and not negative.
    pub rate_bytes_per_s: f64,
    /// How exactly.
    pub grade: Grade,
    /// Seconds since it was measured.
    pub age_s: f64,
    /// Who measured it.
    pub by: By,
}

/// News of an edge, from a running transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeReading {
    /// The site that sends, `host:port`; or [`HERE`].
    pub from: String,
    /// The site that receives; or [`HERE`].
    pub to: String,
    /// Its rate, where that was measured anew.
    pub measured: Option<Measured>,
    /// Its round trip in seconds, where that was measured anew.
    pub rtt_s: Option<f64>,
    /// It lies on a route that is in use now.
    pub is_used: bool,
}

/// What is remembered of an edge.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownEdge {
    /// The site that sends, `host:port`; or [`HERE`].
    pub from: String,
    /// The site that receives; or [`HERE`].
    pub to: String,
    /// The rate last measured.
    pub measured: Option<Measured>,
    /// The round trip last measured, in seconds.
    pub rtt_s: Option<f64>,
    /// Seconds since a route in use led over it, if one ever did.
    pub used_age_s: Option<f64>,
}

/// From one site to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) from: String,
    pub(crate) to: String,
}

impl Key {
    /// Whether an edge may have these ends.
    pub(crate) fn is_plausible(&self) -> bool {
        let is_name = |name: &str| {
            let is_odd = |c: char| c.is_control() || c.is_whitespace() || c == '@';
            (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(is_odd)
        };
        is_name(&self.from) && is_name(&self.to) && self.from != self.to
    }

    /// Whether one of its ends is this site, named with its port or without.
    pub(crate) fn touches(&self, site: &str) -> bool {
        is_site(&self.from, site) || is_site(&self.to, site)
    }
}

/// Returns whether `name`, the authority of a site, is what somebody calls `wanted`.
pub fn is_site(name: &str, wanted: &str) -> bool {
    let host = |name: &str| match name.rsplit_once(':') {
        // The colons of an IPv6 address stand in brackets.
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host.to_owned(),
        _ => name.to_owned(),
    };
    name.eq_ignore_ascii_case(wanted) || host(name).eq_ignore_ascii_case(wanted)
}

/// A rate as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rate {
    pub(crate) bytes_per_s: f64,
    pub(crate) grade: Grade,
    pub(crate) by: By,
    pub(crate) at: Wall,
}

/// All that is kept of an edge.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) rate: Option<Rate>,
    /// Seconds, and when they were measured.
    pub(crate) rtt: Option<(f64, Wall)>,
    pub(crate) used_at: Option<Wall>,
}

impl Row {
    /// A reading as a row, without what cannot be; `None` if nothing is left of it.
    pub(crate) fn of(reading: EdgeReading, now: Wall) -> Option<(Key, Row)> {
        let rate = reading.measured.map(|measured| Rate {
            bytes_per_s: measured.rate_bytes_per_s,
            grade: measured.grade,
            by: measured.by,
            at: now.back(measured.age_s),
        });
        let row = Row {
            rate,
            rtt: reading.rtt_s.map(|rtt_s| (rtt_s, now)),
            used_at: reading.is_used.then_some(now),
        };
        let (key, row) = (Key { from: reading.from, to: reading.to }, row.plausible());
        (key.is_plausible() && row != Row::default()).then_some((key, row))
    }

    /// Without what no measurement gives; the file may hold anything.
    pub(crate) fn plausible(self) -> Row {
        let is_number = |value: f64, max: f64| value.is_finite() && (0.0..=max).contains(&value);
        Row {
            rate: self.rate.filter(|rate| is_number(rate.bytes_per_s, RATE_MAX_BYTES_PER_S)),
            rtt: self.rtt.filter(|(rtt_s, _)| is_number(*rtt_s, RTT_MAX_S)),
            used_at: self.used_at,
        }
    }

    /// Two pieces of news about one edge: of each thing the younger one. Which of them came first
    /// makes no difference, but where they are of the same millisecond.
    pub(crate) fn merged(self, newer: Row, now: Wall) -> Row {
        let (old, new) = (self.clamped(now), newer.clamped(now));
        let younger = |old: Option<Wall>, new: Option<Wall>| new.is_some() && new >= old;
        let is_new_rate =
            younger(old.rate.as_ref().map(|rate| rate.at), new.rate.as_ref().map(|rate| rate.at));
        let is_new_rtt = younger(old.rtt.map(|(_, at)| at), new.rtt.map(|(_, at)| at));
        Row {
            rate: if is_new_rate { new.rate } else { old.rate },
            rtt: if is_new_rtt { new.rtt } else { old.rtt },
            used_at: old.used_at.max(new.used_at),
        }
    }

    /// With no time in the future.
    pub(crate) fn clamped(mut self, now: Wall) -> Row {
        if let Some(rate) = &mut self.rate {
            rate.at = rate.at.clamped(now);
        }
        self.rtt = self.rtt.map(|(rtt_s, at)| (rtt_s, at.clamped(now)));
        self.used_at = self.used_at.map(|at| at.clamped(now));
        self
    }

    /// Whether a transfer would plan otherwise for it.
    pub(crate) fn is_news_to(&self, other: &Row) -> bool {
        self.rate != other.rate || self.rtt != other.rtt
    }

    /// How much it is worth keeping: the time of its last news, and use counts for a month of it.
    /// What relays tell in great numbers thus drives out nothing that is used.
    pub(crate) fn worth(&self) -> Wall {
        let used = self.used_at.map(|at| Wall(at.0.saturating_add(USE_COUNTS_MS)));
        let rate = self.rate.as_ref().map(|rate| rate.at);
        used.max(rate).max(self.rtt.map(|(_, at)| at)).unwrap_or(Wall(0))
    }

    /// As callers are told of it.
    pub(crate) fn known(&self, key: &Key, now: Wall) -> KnownEdge {
        let measured = self.rate.as_ref().map(|rate| Measured {
            rate_bytes_per_s: rate.bytes_per_s,
            grade: rate.grade,
            age_s: rate.at.age_s(now),
            by: rate.by.clone(),
        });
        KnownEdge {
            from: key.from.clone(),
            to: key.to.clone(),
            measured,
            rtt_s: self.rtt.map(|(rtt_s, _)| rtt_s),
            used_age_s: self.used_at.map(|at| at.age_s(now)),
        }
    }
}

/// A host's name has at most 253 characters, with brackets and a port a few more.
pub(crate) const NAME_BYTES_MAX: usize = 272;
/// Ten terabytes a second: more than any network, so a mistake or a lie.
const RATE_MAX_BYTES_PER_S: f64 = 1e13;
/// What takes longer is no round trip but a time-out.
const RTT_MAX_S: f64 = 600.0;
/// Thirty days.
pub(crate) const USE_COUNTS_MS: i64 = 30 * 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(rate: f64, rtt_s: f64) -> EdgeReading {
        EdgeReading {
            from: "a:443".into(),
            to: HERE.into(),
            measured: Some(Measured {
                rate_bytes_per_s: rate,
                grade: Grade::Exact,
                age_s: 1.0,
                by: By::Us,
            }),
            rtt_s: Some(rtt_s),
            is_used: false,
        }
    }

    #[test]
    fn what_cannot_be_is_not_kept() {
        let now = Wall(1_800_000_000_000);
        for (rate, rtt_s) in [(f64::NAN, -1.0), (-1.0, f64::INFINITY), (1e14, 601.0)] {
            assert_eq!(Row::of(reading(rate, rtt_s), now), None);
        }
        let (_, row) = Row::of(reading(f64::NAN, 0.1), now).unwrap();
        assert_eq!((row.rate, row.rtt), (None, Some((0.1, now))));
        for name in ["", "here", "a\nb", "here@other", &"x".repeat(273)] {
            assert_eq!(Row::of(EdgeReading { from: name.into(), ..reading(1.0, 0.1) }, now), None);
        }
    }

    #[test]
    fn sites_are_called_with_their_port_or_without() {
        for (name, wanted, is) in [
            ("r1.example:443", "r1.example", true),
            ("r1.example:443", "R1.Example:443", true),
            ("r1.example:443", "r1.example:80", false),
            ("r1.example:443", "1.example", false),
            ("[::1]:443", "[::1]", true),
            ("[::1]", "[::1]", true),
            ("[::1]", "[:", false),
            (HERE, "here", true),
        ] {
            assert_eq!(is_site(name, wanted), is, "{name} {wanted}");
        }
    }

    #[test]
    fn of_each_thing_the_younger_news_holds_whichever_came_first() {
        let now = Wall(1_800_000_000_000);
        let rate = |bytes_per_s, at| {
            Some(Rate { bytes_per_s, grade: Grade::Exact, by: By::Us, at: Wall(now.0 - at) })
        };
        let one = Row { rate: rate(1.0, 50), rtt: Some((0.1, Wall(now.0 - 20))), used_at: None };
        let two = Row {
            rate: rate(2.0, 30),
            rtt: Some((0.2, Wall(now.0 - 40))),
            used_at: Some(Wall(now.0 - 9)),
        };
        let both = Row {
            rate: rate(2.0, 30),
            rtt: Some((0.1, Wall(now.0 - 20))),
            used_at: Some(Wall(now.0 - 9)),
        };
        assert_eq!(one.clone().merged(two.clone(), now), both);
        assert_eq!(two.merged(one, now), both);
        // A time that a wrong clock gave wins only until it is seen.
        let ahead = Row { rate: rate(9.0, -86_400_000), ..Row::default() };
        let merged = ahead.merged(Row { rate: rate(3.0, 0), ..Row::default() }, now);
        assert_eq!(merged.rate, rate(3.0, 0));
    }
}
