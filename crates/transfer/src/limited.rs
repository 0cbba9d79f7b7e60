//! Finds what limited a transfer, from its measurements.

use swath_model::observe::LimitedBy;

/// Measurements of a transfer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub fetched_bytes: u64,
    /// Time until the last byte had come, in seconds.
    pub fetch_s: f64,
    /// Time until all was done.
    pub elapsed_s: f64,
    /// The rate limit, in bytes per second.
    pub rate_limit: Option<u64>,
    /// Time with a saturated disk, waiting for the output, and hashing, and processor time used.
    pub disk_s: f64,
    pub output_s: f64,
    pub hashing_s: f64,
    pub cpu_s: f64,
    pub cores: f64,
    /// Mean rate as a part of the sources' capacity, 0 to 1.
    pub efficiency: Option<f64>,
    pub is_tree: bool,
    /// Sources that delivered something.
    pub sources: Vec<Used>,
}

/// A source that delivered something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Used {
    pub name: String,
    /// Whether it is out, or lost its connections for good.
    pub is_lost: bool,
    /// Whether its server limits the rate of each answer.
    pub is_paced: bool,
    /// Its round trip, if it is known.
    pub rtt_s: Option<f64>,
}

impl Measured {
    /// Returns what limited the transfer: certain causes come before likely ones.
    pub fn judge(&self) -> LimitedBy {
        if self.fetched_bytes == 0 {
            return LimitedBy::Nothing;
        }
        let rate = self.fetched_bytes as f64 / self.fetch_s;
        if self.rate_limit.is_some_and(|limit| rate > NEAR * limit as f64) {
            return LimitedBy::RateLimit;
        }
        if self.disk_s > 0.5 * self.elapsed_s {
            return LimitedBy::Disk { part: (self.disk_s / self.elapsed_s).min(1.0) };
        }
        if self.output_s > 0.5 * self.elapsed_s {
            return LimitedBy::Output;
        }
        let is_hashed_behind = self.elapsed_s - self.fetch_s > 0.3 * self.elapsed_s;
        if self.hashing_s > NEAR * self.elapsed_s
            || is_hashed_behind && self.hashing_s > 0.5 * self.elapsed_s
        {
            return LimitedBy::Hashing { busy_s: self.hashing_s, elapsed_s: self.elapsed_s };
        }
        if self.cpu_s > NEAR * self.cores * self.elapsed_s {
            return LimitedBy::Processors;
        }
        let lost: Vec<String> =
            self.sources.iter().filter(|it| it.is_lost).map(|it| it.name.clone()).collect();
        if !lost.is_empty() {
            return LimitedBy::LostSources { names: lost };
        }
        if !self.sources.is_empty() && self.sources.iter().all(|it| it.is_paced) {
            return LimitedBy::Servers;
        }
        let is_full = self.efficiency.is_some_and(|efficiency| efficiency >= FULL);
        match self.sources.as_slice() {
            [only] if is_full => LimitedBy::OneSource { name: only.name.clone() },
            _ if is_full => LimitedBy::Sources,
            _ if self.fetch_s < SHORT_S && self.is_of_round_trips() => {
                LimitedBy::RoundTrips { is_tree: self.is_tree }
            }
            // Over before anything could be told from anything.
            _ if self.fetch_s < SHORT_S => LimitedBy::Nothing,
            _ => LimitedBy::Changes,
        }
    }

    /// Whether it took no longer than some round trips to the farthest source.
    fn is_of_round_trips(&self) -> bool {
        let farthest_s = self.sources.iter().filter_map(|it| it.rtt_s).max_by(f64::total_cmp);
        farthest_s.is_none_or(|rtt_s| rtt_s >= NEAR_S && self.fetch_s < ROUND_TRIPS * rtt_s)
    }
}

/// Part of a limit from which it counts as reached.
const NEAR: f64 = 0.85;
/// Part of the sources' capacity from which it counts as used.
const FULL: f64 = 0.75;
/// A transfer that connections spent coming up to speed has at most so many.
const ROUND_TRIPS: f64 = 30.0;
/// Shorter round trips, within a building, hold nothing up that a person could wait for.
const NEAR_S: f64 = 1e-3;
/// Time that connections need to come up to speed, in seconds.
const SHORT_S: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn used(name: &str) -> Used {
        Used { name: name.to_owned(), ..Used::default() }
    }

    fn usual() -> Measured {
        Measured {
            fetched_bytes: 1000,
            fetch_s: 10.0,
            elapsed_s: 10.0,
            cores: 2.0,
            efficiency: Some(0.9),
            sources: vec![used("a"), used("b")],
            ..Measured::default()
        }
    }

    /// Of three limited sources one was killed on the way, and the summary said that each had delivered
    /// as fast as it could.
    #[test]
    fn each_combination_has_its_words() {
        let lost = Used { is_lost: true, ..used("b") };
        let paced = |name| Used { is_paced: true, ..used(name) };
        let table: Vec<(Measured, &str)> = vec![
            (usual(), "the sources' links: each delivered as fast as it could"),
            (Measured { fetched_bytes: 0, ..usual() }, ""),
            (Measured { rate_limit: Some(100), ..usual() }, "the requested rate limit"),
            (
                Measured { rate_limit: Some(1000), ..usual() },
                "the sources' links: each delivered as fast as it could",
            ),
            (
                Measured { disk_s: 6.0, output_s: 9.0, ..usual() },
                "the disk: it was saturated 60 % of the time",
            ),
            (Measured { output_s: 9.0, ..usual() }, "the reader of the output"),
            (Measured { hashing_s: 9.0, ..usual() }, "hashing: it took 9.0 s of 10.0 s"),
            (
                Measured { hashing_s: 6.0, fetch_s: 5.0, ..usual() },
                "hashing: it took 6.0 s of 10.0 s",
            ),
            (
                Measured { hashing_s: 6.0, ..usual() },
                "the sources' links: each delivered as fast as it could",
            ),
            (Measured { cpu_s: 18.0, ..usual() }, "this machine's processors"),
            (
                Measured { sources: vec![used("a"), lost.clone()], ..usual() },
                "the loss of b on the way",
            ),
            (
                Measured { sources: vec![lost.clone(), lost.clone()], ..usual() },
                "the loss of 2 sources on the way",
            ),
            (
                Measured { sources: vec![lost.clone()], cpu_s: 18.0, ..usual() },
                "this machine's processors",
            ),
            (
                Measured { sources: vec![paced("a"), paced("b")], ..usual() },
                "the servers: they limit the rate of each connection",
            ),
            (
                Measured { sources: vec![paced("a"), used("b")], ..usual() },
                "the sources' links: each delivered as fast as it could",
            ),
            (Measured { sources: vec![used("a")], ..usual() }, "the link or the server of a"),
            (Measured { efficiency: Some(0.5), ..usual() }, "the sources: their speed varied"),
            (
                Measured { efficiency: None, fetch_s: 1.0, ..usual() },
                "round trips: the file is too small for the connections to come up to speed",
            ),
            // Its server was 0.02 ms away.
            (
                Measured {
                    efficiency: None,
                    fetch_s: 1.0,
                    sources: vec![Used { rtt_s: Some(0.000_02), ..used("a") }],
                    ..usual()
                },
                "",
            ),
            // The same, and it was over within a few of them.
            (
                Measured {
                    efficiency: None,
                    fetch_s: 0.000_3,
                    sources: vec![Used { rtt_s: Some(0.000_02), ..used("a") }],
                    ..usual()
                },
                "",
            ),
            (
                Measured { efficiency: None, fetch_s: 1.0, is_tree: true, ..usual() },
                "round trips: too little data for the connections to come up to speed",
            ),
        ];
        for (measured, words) in table {
            assert_eq!(measured.judge().words(), words, "{measured:?}");
        }
    }
}
