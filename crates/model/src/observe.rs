//! What a transfer tells its observer: events as they happen, snapshots several times a second,
//! a summary at the end.
//!
//! Everything here is plain data with `serde` names that are stable: `swath get --json` prints
//! one [`Event`] a line. Times are seconds since the transfer began, sizes are bytes, rates are
//! bytes per second. No credential ever appears: URLs are shown without user, password and query.

use serde::{Deserialize, Serialize};

use crate::{Digest, SourceName};

/// Something that happened in a transfer.
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
    /// The staging of a file in depots begins, in place of [`Event::Started`]. What follows tells of
    /// depots as of sources.
    Staging {
        /// Name of the file.
        path: String,
        /// The depots, in the order of their numbers.
        depots: Vec<String>,
    },
    /// The size and what an earlier run left are known.
    Opened {
        /// Size of the file in bytes, where the source tells it.
        size_bytes: Option<u64>,
        /// Bytes that the journal vouches for, not fetched again.
        resumed_bytes: u64,
        /// Bytes of files that are at the destination already and stay as they are.
        #[serde(default)]
        kept_bytes: u64,
        /// How the result will be proved, in words a user reads (`sha-256`, `1024 pieces of 1 MiB`, …).
        verification: String,
    },
    /// A source changed its state.
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
        /// Why, in words a user reads.
        reason: Option<String>,
    },
    /// Which ways are in use has changed: these sources, of which some are others by way of relays.
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
    /// Something a user should read now (a corrupt block and who sent it, a mirror left out, …).
    Note {
        /// Seconds since the transfer began.
        at_s: f64,
        /// The sentence.
        text: String,
        /// Whether it is a warning rather than information.
        warning: bool,
        /// If it warns that nothing proves what relays passed on: how many bytes that is. Of a list
        /// this is told of all its files together.
        #[serde(default, skip_serializing_if = "is_zero")]
        unproved_bytes: u64,
    },
    /// The answer is a Metalink, or names one: whoever asked reads it and asks again with what it
    /// says. The end of this transfer, and no failure.
    Metalink {
        /// Seconds since the transfer began.
        at_s: f64,
        /// Where it is, credentials removed.
        url: String,
    },
    /// Nothing proves the bytes of a file that is complete: a warning, which the summary says too.
    Unverified {
        /// Seconds since the transfer began.
        at_s: f64,
        /// Final path of the file.
        path: String,
        /// How many bytes that is.
        bytes: u64,
        /// What there was to go by, in words.
        why: String,
    },
    /// A file has the final name already and is the one that is wanted: nothing is fetched.
    Present {
        /// Final path of the file.
        path: String,
        /// Seconds since the transfer began.
        at_s: f64,
        /// Its size in bytes.
        size_bytes: u64,
        /// What tells that it is the same file.
        same: SameBy,
    },
    /// The file is complete, verified and carries its final name.
    Finished(Summary),
    /// The transfer stopped before its end.
    Failed {
        /// Final path of the file.
        #[serde(default)]
        path: String,
        /// Seconds since the transfer began.
        at_s: f64,
        /// What happened.
        error: String,
        /// The user has stopped it.
        #[serde(default, skip_serializing_if = "is_false")]
        stopped: bool,
        /// Bytes kept for the next run.
        kept_bytes: u64,
        /// The same figures as for a finished transfer; nothing of it counts as proved.
        summary: Summary,
    },
}

impl Event {
    /// Something a user should read now.
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

/// What proved the bytes of a file or of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verified {
    /// A digest of the whole file.
    Digest,
    /// Digests of all its pieces.
    Pieces,
    /// Of a tree, the value of every block, computed where it was read; of what was at the
    /// destination already, its content.
    Blocks,
    /// Of a tree, the same for what came; what was at the destination already was compared by size
    /// and time alone.
    Partly,
    /// Nothing.
    #[default]
    None,
}

/// What tells that a file which is there already is the one that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SameBy {
    /// Its digests were computed and agree.
    Digest,
    /// The digests of its pieces were computed and agree.
    Pieces,
    /// Its digest agrees with the one that its server tells.
    ServersDigest,
    /// Its size and its time of modification are those that its server tells.
    SizeAndTime,
    /// Its name, and its size where that is known: nothing else was compared.
    Name,
}

/// What a source is doing, as shown to a user.
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
    /// Delivering at less than a quarter of what it did before.
    Slow,
    /// Nothing arrives although something was asked for; on probation.
    Silent,
    /// Nothing more to ask it for.
    Idle,
    /// Left out for good; the reason says why.
    Bad,
}

/// The state of a transfer at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Seconds since the transfer began.
    pub at_s: f64,
    /// What the transfer is busy with.
    pub phase: Phase,
    /// Size of the file where known.
    pub size_bytes: Option<u64>,
    /// Bytes here so far, earlier runs included.
    pub done_bytes: u64,
    /// Bytes of them that an earlier run left.
    pub resumed_bytes: u64,
    /// Bytes proved by a digest or piece hash so far; while sources dispute, those compared.
    pub verified_bytes: u64,
    /// What arrives now, over all sources.
    pub rate_bytes_per_s: f64,
    /// Time left, `None` while it cannot be said honestly.
    pub eta: Option<Eta>,
    /// Every source, by number.
    pub sources: Vec<SourceSnapshot>,
}

/// A forecast of the time left with its uncertainty.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Eta {
    /// Most likely, in seconds.
    pub likely_s: f64,
    /// Earliest credible (10th percentile), in seconds.
    pub low_s: f64,
    /// Latest credible (90th percentile), in seconds.
    pub high_s: f64,
}

/// What a transfer is busy with; every phase has a name so that nothing ever looks dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Asking the sources what they offer.
    Probing,
    /// Fetching (and verifying what arrived).
    Fetching,
    /// Depots fetch what they are to hold.
    Staging,
    /// Everything is here; hashing what is left.
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
    /// Its address as shown to a user (no credentials, no query), and the relays it is reached by.
    #[serde(flatten)]
    pub name: SourceName,
    /// What it is doing.
    pub state: SourceState,
    /// What arrives from it now.
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

/// One swath's life, told when it ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SwathRecord {
    /// Who was asked.
    pub source: u32,
    /// On which lane.
    pub lane: u32,
    /// First byte of the range.
    pub start: u64,
    /// Just after the last byte that this lane delivered.
    pub end: u64,
    /// Just after the last byte that was asked for at first.
    pub asked_end: u64,
    /// When the request left.
    pub asked_at_s: f64,
    /// When its first byte was here.
    pub first_byte_at_s: Option<f64>,
    /// When it ended.
    pub ended_at_s: f64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a swath ended; what a reader should not miss comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Delivered to its end.
    Done,
    /// Its tail was given to a faster lane.
    Trimmed,
    /// Another copy of it came first.
    Lost,
    /// The lane broke, fell silent or was refused.
    Failed,
}

/// What a finished (or stopped) transfer amounts to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Final path of the file.
    pub path: String,
    /// Size of the file.
    pub size_bytes: u64,
    /// Bytes fetched in this run (what was resumed is not in it; wasted bytes are not in it).
    pub fetched_bytes: u64,
    /// Bytes that an earlier run left.
    pub resumed_bytes: u64,
    /// Bytes of files that were at the destination already and stayed as they were …
    #[serde(default)]
    pub kept_bytes: u64,
    /// … and how many files that are.
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
    /// The same in words (`sha-256`, `12 pieces by sha-1`); where nothing did, what there was to go
    /// by.
    pub verified_by: String,
    /// Whether digests proved every byte of it.
    pub proved: bool,
    /// What limited the transfer.
    #[serde(default)]
    pub limited_by: LimitedBy,
    /// Digest of the file where one was computed.
    pub digest: Option<Digest>,
    /// Per source.
    pub sources: Vec<SourceSummary>,
    /// It went from here to somewhere else.
    #[serde(skip)]
    pub sent: bool,
}

impl Summary {
    /// The summary of a transfer that has fetched nothing.
    pub fn of_nothing(path: String) -> Summary {
        Summary { path, ..Summary::default() }
    }
}

/// What limited a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum LimitedBy {
    /// Nothing was fetched, so nothing limited it.
    #[default]
    Nothing,
    /// The rate limit that was asked for.
    RateLimit,
    /// The disk.
    Disk {
        /// The part of the time in which it was saturated, 0 to 1.
        part: f64,
    },
    /// Whoever reads the output.
    Output,
    /// Hashing.
    Hashing {
        /// How long it took, in seconds …
        busy_s: f64,
        /// … of so many in all.
        elapsed_s: f64,
    },
    /// This machine's processors.
    Processors,
    /// Sources were lost on the way.
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
    /// Reading what is copied, on this machine.
    Reading {
        /// Its name.
        name: String,
    },
    /// A connection by ssh.
    Ssh {
        /// The host that it leads to.
        host: String,
    },
    /// The links or servers of the sources: each delivered as fast as it could, to the end.
    Sources,
    /// There was too little for the connections to come up to speed.
    RoundTrips {
        /// It was a tree.
        is_tree: bool,
    },
    /// What the sources delivered changed while the transfer ran.
    Changes,
    /// The network or the receiver of an upload.
    Receiver,
}

impl LimitedBy {
    /// The same in words, as they follow "limited by"; empty where nothing was fetched.
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
            Self::Sources => {
                "the sources' links: each delivered as fast as it could, to the end".to_owned()
            }
            Self::RoundTrips { is_tree: true } => {
                "round trips: too little data for the connections to come up to speed".to_owned()
            }
            Self::RoundTrips { is_tree: false } => {
                "round trips: the file is too small for the connections to come up to speed"
                    .to_owned()
            }
            Self::Changes => "the sources: their speed varied".to_owned(),
            Self::Receiver => "the network or the receiving server".to_owned(),
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
    /// Its last state.
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
    /// Smallest round trip, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Bytes of it that were wasted.
    pub wasted_bytes: u64,
}

/// Whoever wants to know: a progress bar, a JSON printer, a recorder for the report.
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
