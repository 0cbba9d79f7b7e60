//! What a transfer reports to its observer: events as they happen, snapshots several times a
//! second, a summary at the end.
//!
//! Everything here is plain data with stable `serde` names: `swath get --json` prints one [`Event`]
//! per line. Times are seconds since the transfer began, sizes are bytes, rates are bytes per
//! second. No credential ever appears: URLs are shown without user, password and query.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Digest, SourceName, units};

/// An event of a transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A file's transfer begins; its size may not be known yet.
    Started {
        /// Final path of the file (`-` for standard output).
        path: String,
        /// The replicas, in the order of their numbers.
        sources: Vec<String>,
    },
    /// The staging of a file in depots begins, instead of [`Event::Started`]. Later events describe
    /// depots as sources.
    Staging {
        /// Name of the file.
        path: String,
        /// The depots, in the order of their numbers.
        depots: Vec<String>,
    },
    /// The size and what an earlier run left are known.
    Opened {
        /// Size of the file in bytes, if the source reports it.
        size_bytes: Option<u64>,
        /// Bytes that the journal vouches for; not fetched again.
        resumed_bytes: u64,
        /// Bytes of files already at the destination that stay as they are.
        #[serde(default)]
        kept_bytes: u64,
        /// How the result will be proved, for users (`sha-256`, `1024 pieces of 1 MiB`, …).
        verification: String,
    },
    /// How long the whole transfer will take, by earlier ones between the same places.
    Forecast {
        /// Seconds since the transfer began.
        at_s: f64,
        /// Its duration.
        #[serde(flatten)]
        takes: Eta,
    },
    /// The state of a source changed.
    Source {
        /// Seconds since the transfer began.
        at_s: f64,
        /// Its number.
        source: u32,
        /// Its name.
        #[serde(flatten)]
        name: SourceName,
        /// Its new state.
        state: SourceState,
        /// The reason, in words for users.
        reason: Option<String>,
    },
    /// The set of routed sources in use changed. Some of these reach a replica through relays.
    Routes {
        /// Seconds since the transfer began.
        at_s: f64,
        /// Their numbers.
        sources: Vec<u32>,
    },
    /// A swath ended; see [`SwathRecord`].
    Swath(SwathRecord),
    /// The state of everything, several times a second.
    Progress(Snapshot),
    /// Something that users should read now (a corrupt block and its sender, a skipped mirror, …).
    Note {
        /// Seconds since the transfer began.
        at_s: f64,
        /// The sentence.
        text: String,
        /// Whether it is a warning rather than information.
        warning: bool,
        /// If it warns that nothing proves data from relays: how many bytes. For a list, reported
        /// once for all its files.
        #[serde(default, skip_serializing_if = "is_zero")]
        unproved_bytes: u64,
    },
    /// The answer is a Metalink, or points to one: the caller reads it and starts a new transfer
    /// from it. Ends this transfer without failure.
    Metalink {
        /// Seconds since the transfer began.
        at_s: f64,
        /// Where it is, credentials removed.
        url: String,
    },
    /// Nothing proves the bytes of a complete file: a warning, repeated in the summary.
    Unverified {
        /// Seconds since the transfer began.
        at_s: f64,
        /// Final path of the file.
        path: String,
        /// Number of such bytes.
        bytes: u64,
        /// What was compared instead, in words.
        why: String,
    },
    /// A file has the final name already and is the requested one: nothing is fetched.
    Present {
        /// Final path of the file.
        path: String,
        /// Seconds since the transfer began.
        at_s: f64,
        /// Its size in bytes.
        size_bytes: u64,
        /// How the file was identified.
        same: SameBy,
    },
    /// The file is complete, verified and has its final name.
    Finished(Summary),
    /// The transfer stopped before its end.
    Failed {
        /// Final path of the file.
        #[serde(default)]
        path: String,
        /// Seconds since the transfer began.
        at_s: f64,
        /// The error.
        error: String,
        /// Whether the user stopped it.
        #[serde(default, skip_serializing_if = "is_false")]
        stopped: bool,
        /// Bytes kept for the next run.
        kept_bytes: u64,
        /// The same figures as for a finished transfer; nothing counts as proved.
        summary: Summary,
    },
}

impl Event {
    /// Returns a note for users.
    pub fn note(at_s: f64, text: String, warning: bool) -> Event {
        Event::Note { at_s, text, warning, unproved_bytes: 0 }
    }
}

fn is_false(it: &bool) -> bool {
    !it
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// What proved the bytes of a file or a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verified {
    /// A digest of the whole file.
    Digest,
    /// Digests of all pieces.
    Pieces,
    /// For a tree: the value of every block, computed at the source; for files already at the
    /// destination, their content.
    Blocks,
    /// For a tree: the same for fetched files; files already at the destination were compared by
    /// size and time only.
    Partly,
    /// Nothing.
    #[default]
    None,
}

/// Who named the digests that proved a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DigestFrom {
    /// The user, also by a list or by a publisher's checksums.
    User,
    /// A Metalink.
    Metalink,
    /// A torrent.
    Torrent,
    /// A server of the file: who changes the file there can change its digest, too.
    Server,
}

impl DigestFrom {
    /// Returns the words that follow the name of the digest.
    pub fn words(self) -> &'static str {
        match self {
            Self::User => " that you gave",
            Self::Metalink => " from the Metalink",
            Self::Torrent => " from the torrent",
            Self::Server => " from its server",
        }
    }
}

/// How an existing file was identified as the requested one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SameBy {
    /// Its computed digests match.
    Digest,
    /// The computed digests of its pieces match.
    Pieces,
    /// Its digest matches the one that its server reports.
    ServersDigest,
    /// Its size and modification time match those that its server reports.
    SizeAndTime,
    /// By its name, and its size if known: nothing else was compared.
    Name,
}

/// The state of a source, for users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    /// Known, not used yet.
    #[default]
    Waiting,
    /// Connecting, or being asked what it offers.
    Probing,
    /// Delivering.
    Running,
    /// Delivering at less than a quarter of its earlier rate.
    Slow,
    /// On probation: nothing arrives although something was requested.
    Silent,
    /// Nothing left to request from it.
    Idle,
    /// Out for good; the reason says why.
    Bad,
}

/// The state of a transfer at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Seconds since the transfer began.
    pub at_s: f64,
    /// The present phase.
    pub phase: Phase,
    /// Size of the file, if known.
    pub size_bytes: Option<u64>,
    /// Number of files to transfer, as far as known; 0 while unknown.
    #[serde(default)]
    pub files: u64,
    /// Bytes here so far, including those of earlier runs.
    pub done_bytes: u64,
    /// Bytes among them from an earlier run.
    pub resumed_bytes: u64,
    /// Bytes proved by a digest or piece hash so far; while sources dispute, bytes compared.
    pub verified_bytes: u64,
    /// Present rate of all sources together.
    pub rate_bytes_per_s: f64,
    /// Time left; `None` while there is no honest estimate.
    pub eta: Option<Eta>,
    /// Every source, by number.
    pub sources: Vec<SourceSnapshot>,
}

/// A forecast of the time left, or of a whole duration, with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Eta {
    /// Most likely, in seconds.
    pub likely_s: f64,
    /// Earliest credible (10th percentile), in seconds.
    pub low_s: f64,
    /// Latest credible (90th percentile), in seconds.
    pub high_s: f64,
}

impl Eta {
    /// Returns one with each of its times, in seconds, replaced.
    #[must_use]
    pub fn map(self, to: impl Fn(f64) -> f64) -> Eta {
        let Eta { likely_s, low_s, high_s } = self;
        Eta { likely_s: to(likely_s), low_s: to(low_s), high_s: to(high_s) }
    }
}

/// `46.0 s (41.0 s to 55.0 s)`
impl fmt::Display for Eta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [likely, low, high] = [self.likely_s, self.low_s, self.high_s].map(units::duration);
        write!(f, "{likely} ({low} to {high})")
    }
}

/// The phase of a transfer; every phase has a name, so that nothing ever looks dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Asking the sources what they offer.
    Probing,
    /// Fetching (and verifying what arrived).
    Fetching,
    /// Depots fetch their parts.
    Staging,
    /// Everything is here; the rest is being hashed.
    Verifying,
    /// The digest does not match; disputed ranges are fetched from other sources.
    Disputing,
    /// Syncing, naming, cleaning up.
    Finishing,
}

/// One source at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceSnapshot {
    /// Its number.
    pub source: u32,
    /// Its address for users (no credentials, no query), and the relays on the way to it.
    #[serde(flatten)]
    pub name: SourceName,
    /// Its state.
    pub state: SourceState,
    /// Present rate.
    pub rate_bytes_per_s: f64,
    /// Bytes it has delivered in this run.
    pub bytes: u64,
    /// Its part of all bytes delivered in this run, 0 to 1.
    pub share: f64,
    /// Smallest round trip seen, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Open lanes.
    pub lanes: u32,
    /// Requests sent so far.
    pub requests: u64,
}

/// The record of one swath, reported when it ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SwathRecord {
    /// The source.
    pub source: u32,
    /// The lane.
    pub lane: u32,
    /// First byte of the range.
    pub start: u64,
    /// Just after the last byte that this lane delivered.
    pub end: u64,
    /// Just after the last byte of the original request.
    pub asked_end: u64,
    /// When the request left.
    pub asked_at_s: f64,
    /// When its first byte arrived.
    pub first_byte_at_s: Option<f64>,
    /// When it ended.
    pub ended_at_s: f64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a swath ended, in ascending order of importance to readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Delivered to its end.
    Done,
    /// Its tail was given to a faster lane.
    Trimmed,
    /// Another copy arrived first.
    Lost,
    /// The lane broke, fell silent or was refused.
    Failed,
}

/// The result of a finished (or stopped) transfer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Final path of the file.
    pub path: String,
    /// Size of the file.
    pub size_bytes: u64,
    /// Bytes fetched in this run, without resumed and wasted bytes.
    pub fetched_bytes: u64,
    /// Bytes that an earlier run left.
    pub resumed_bytes: u64,
    /// Bytes of files already at the destination that stayed as they were …
    #[serde(default)]
    pub kept_bytes: u64,
    /// … and the number of these files.
    #[serde(default)]
    pub kept_files: u64,
    /// Wall time from the start to the final name.
    pub elapsed_s: f64,
    /// `fetched_bytes / elapsed_s`.
    pub rate_bytes_per_s: f64,
    /// Bytes that arrived a second time or were thrown away.
    pub wasted_bytes: u64,
    /// Mean rate over the sum of the sources' measured capacities, 0 to 1.
    pub efficiency: Option<f64>,
    /// What proved the file.
    #[serde(default)]
    pub verified: Verified,
    /// The same in words (`sha-256`, `12 pieces by sha-1`); if nothing proved it, what was compared
    /// instead.
    pub verified_by: String,
    /// Who named these digests, if digests of the whole or of pieces proved the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest_from: Option<DigestFrom>,
    /// Whether digests proved every byte of it.
    pub proved: bool,
    /// What limited the transfer.
    #[serde(default)]
    pub limited_by: LimitedBy,
    /// Digest of the file, if one was computed.
    pub digest: Option<Digest>,
    /// Per source.
    pub sources: Vec<SourceSummary>,
    /// What was forecast for `elapsed_s` when the transfer began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Eta>,
    /// Whether the data was sent from here to another place.
    #[serde(skip)]
    pub sent: bool,
}

impl Summary {
    /// Returns the summary of a transfer that has fetched nothing.
    pub fn of_nothing(path: String) -> Summary {
        Summary { path, ..Summary::default() }
    }

    /// Returns what proved the file, in words, with who named the digests.
    pub fn proof(&self) -> String {
        format!("{}{}", self.verified_by, self.digest_from.map_or("", DigestFrom::words))
    }

    /// Returns the forecast, if people want to read it.
    pub fn shown_forecast(&self) -> Option<Eta> {
        self.forecast.filter(|takes| takes.likely_s.max(self.elapsed_s) >= FORECAST_FROM_S)
    }
}

/// Forecasts of shorter transfers, in seconds, are of no use to people.
pub const FORECAST_FROM_S: f64 = 5.0;

/// What limited a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum LimitedBy {
    /// Nothing was fetched, or it was over before anything could be told.
    #[default]
    Nothing,
    /// The requested rate limit.
    RateLimit,
    /// The disk.
    Disk {
        /// The part of the time in which it was saturated, 0 to 1.
        part: f64,
    },
    /// The reader of the output.
    Output,
    /// Hashing.
    Hashing {
        /// Seconds that it took …
        busy_s: f64,
        /// … of this many seconds in all.
        elapsed_s: f64,
    },
    /// This machine's processors.
    Processors,
    /// Sources were lost during the transfer.
    LostSources {
        /// Their names.
        names: Vec<String>,
    },
    /// The servers, which limit the rate of each answer.
    Servers,
    /// The link or the server of the only source.
    OneSource {
        /// Its name.
        name: String,
    },
    /// Reading the copied files on this machine.
    Reading {
        /// Its name.
        name: String,
    },
    /// An ssh connection.
    Ssh {
        /// The host at its other end.
        host: String,
    },
    /// The links or servers of the sources: each delivered as fast as it could.
    Sources,
    /// Too little data for the connections to come up to speed.
    RoundTrips {
        /// Whether it was a tree.
        is_tree: bool,
    },
    /// The speed of the sources varied.
    Changes,
    /// The network or the receiver of an upload.
    Receiver,
    /// Two servers, or the network between them: one copied from the other.
    Between,
    /// This machine, through which everything went, or its links.
    ThroughHere,
}

impl LimitedBy {
    /// Returns the same in words that follow "limited by"; empty for [`LimitedBy::Nothing`].
    pub fn words(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::RateLimit => "the requested rate limit".to_owned(),
            Self::Disk { part } => {
                format!("the disk: it was saturated {:.0} % of the time", 100.0 * part)
            }
            Self::Output => "the reader of the output".to_owned(),
            Self::Hashing { busy_s, elapsed_s } => {
                format!("hashing: it took {busy_s:.1} s of {elapsed_s:.1} s")
            }
            Self::Processors => "this machine's processors".to_owned(),
            Self::LostSources { names } => match names.as_slice() {
                [one] => format!("the loss of {one} on the way"),
                several => format!("the loss of {} sources on the way", several.len()),
            },
            Self::Servers => "the servers: they limit the rate of each connection".to_owned(),
            Self::OneSource { name } => format!("the link or the server of {name}"),
            Self::Reading { name } => format!("reading {name}"),
            Self::Ssh { host } => format!("the ssh connection to {host}"),
            Self::Sources => "the sources' links: each delivered as fast as it could".to_owned(),
            Self::RoundTrips { is_tree: true } => {
                "round trips: too little data for the connections to come up to speed".to_owned()
            }
            Self::RoundTrips { is_tree: false } => {
                "round trips: the file is too small for the connections to come up to speed"
                    .to_owned()
            }
            Self::Changes => "the sources: their speed varied".to_owned(),
            Self::Receiver => "the network or the receiving server".to_owned(),
            Self::Between => "one of the two servers, or the network between them".to_owned(),
            Self::ThroughHere => "this machine or its links: everything went through it".to_owned(),
        }
    }
}

/// One source's part in a summary.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SourceSummary {
    /// Its number.
    pub source: u32,
    /// Its address as shown to a user, and the relays it is reached by.
    #[serde(flatten)]
    pub name: SourceName,
    /// Its address for users, and the relays on the way to it.
    pub state: SourceState,
    /// Why it was left out or lost, if it was.
    pub reason: Option<String>,
    /// Bytes it delivered.
    pub bytes: u64,
    /// Its part of all bytes, 0 to 1.
    pub share: f64,
    /// Mean rate over the time it was busy.
    pub rate_bytes_per_s: f64,
    /// Highest rate sustained over a second.
    pub capacity_bytes_per_s: f64,
    /// Requests sent to it.
    pub requests: u64,
    /// Most lanes open at once.
    pub lanes: u32,
    /// Lanes that it had in the end because they paid; 0 if that was not found out.
    #[serde(default)]
    pub settled_lanes: u32,
    /// Smallest round trip, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Bytes of it that were wasted.
    pub wasted_bytes: u64,
}

/// Receives a transfer's events: a progress bar, a JSON printer, a recorder for the report.
pub trait Observer: Send {
    /// Called from the executor for each event, in order; must return quickly.
    fn observe(&mut self, event: &Event);
}

impl<F: FnMut(&Event) + Send> Observer for F {
    fn observe(&mut self, event: &Event) {
        self(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_read_what_it_was_by_its_name() {
        let json = |limited: &LimitedBy| serde_json::to_value(limited).unwrap();
        assert_eq!(json(&LimitedBy::RateLimit)["by"], "rate_limit");
        let disk = json(&LimitedBy::Disk { part: 0.5 });
        assert_eq!((disk["by"].as_str(), disk["part"].as_f64()), (Some("disk"), Some(0.5)));
        let lost = LimitedBy::LostSources { names: vec!["a".to_owned()] };
        assert_eq!(serde_json::from_value::<LimitedBy>(json(&lost)).unwrap(), lost);
    }
}
