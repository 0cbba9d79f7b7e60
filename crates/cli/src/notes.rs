//! Notes of a job, in words.

use std::sync::Arc;

use swath_jobs::{
    Deadline, Help, JobEvent, JobObserver, ListWarning, NotShared, Note, ThroughHere,
};
use swath_source::peer::PeerError;
use swath_transfer::observe::Event;

use crate::exit::{chain, warn};
use crate::progress::units;
use crate::say;

/// Returns the words for a deadline.
pub fn deadline(deadline: &Deadline) -> String {
    let within = units::duration(deadline.within_s);
    if deadline.is_safe() {
        return format!(
            "the deadline of {within} will be met: at least nine of ten such transfers end in time"
        );
    }
    let is_met = match deadline.chance {
        chance if chance < 0.1 => "will hardly be met",
        chance if chance < 0.5 => "is more likely missed than met",
        _ => "may be missed",
    };
    let mut text = format!("the deadline of {within} {is_met}: it takes {}", deadline.takes);
    let help: Vec<String> = deadline.help.iter().map(helps).collect();
    if !help.is_empty() {
        text.push_str(&format!("; it would help: {}", help.join("; ")));
    }
    text
}

fn helps(help: &Help) -> String {
    match help {
        Help::NoLimit => "a higher --limit-rate".to_owned(),
        Help::MoreSources => "more replicas".to_owned(),
        Help::Relay => "a relay on the way (--relay)".to_owned(),
        Help::Later { at_s, takes_s } => {
            let at = jiff::Timestamp::from_second(*at_s as i64).unwrap_or_default();
            let at = at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M");
            format!("to begin at {at}, when it takes {}", units::duration(*takes_s))
        }
    }
}

/// Returns an observer that shows notes, and nothing else.
pub fn observer() -> Arc<dyn JobObserver> {
    Arc::new(|event: JobEvent| {
        let (text, is_warning) = match event {
            JobEvent::Note(note) => words(&note),
            JobEvent::Transfer(Event::Note { text, warning, .. }) => (text, warning),
            _ => return,
        };
        match is_warning {
            true => warn(&text),
            false => say::err(&text),
        }
    })
}

/// Returns the text of a note, and whether it is a warning.
pub fn words(note: &Note) -> (String, bool) {
    match note {
        Note::WaitingForMetalink(name) => (format!("waiting for the Metalink {name}"), false),
        Note::Metalink { name, files, mirrors } => {
            (format!("{name} is a Metalink: {}", holds(*files, *mirrors)), false)
        }
        Note::WaitingForPeers { failed, last } => {
            let waits = "waiting for peers: none is connected yet";
            let why = last.as_ref().map(|(address, error)| {
                let count = if *failed > 1 {
                    format!("{failed} failed, the last: ")
                } else {
                    String::new()
                };
                match error {
                    // It names the address itself.
                    PeerError::Unreachable(error) => format!("; {count}{error}"),
                    error => format!("; {count}{address}: {error}"),
                }
            });
            (format!("{waits}{}", why.unwrap_or_default()), false)
        }
        Note::Deadline(late) => (deadline(late), true),
        Note::DeadlineMissed { within_s, took_s } => {
            let [within, took] = [within_s, took_s].map(|seconds| units::duration(*seconds));
            (format!("the deadline of {within} was missed: it took {took}"), true)
        }
        Note::NoHistory(error) => {
            (format!("no history of transfers, and no forecast: {}", chain(error)), true)
        }
        Note::NoTorrent => {
            let why = "no peers take part: this is no torrent with peers or trackers; the options for torrents have no effect";
            (why.to_owned(), true)
        }
        Note::Ordered { job, at, ran_already } => {
            let text = match ran_already {
                false => "goes on there if this machine leaves",
                true => {
                    "carries out this copy already; Ctrl-C cancels it, 'swath attach' only shows it"
                }
            };
            (format!("job {job}@{at} {text}"), false)
        }
        Note::ThroughHere(why) => {
            let means = "the data goes through this machine, at most as fast as its links";
            (format!("{}: {means}", through_here(why)), true)
        }
        Note::OneReplica { used } => {
            (format!("through this machine only one replica is used: {used}"), true)
        }
        Note::TokenGiven { given_to, opens } => {
            (format!("{given_to} is given the token that opens {opens}"), false)
        }
        Note::SameFolder { folder, same_as } => {
            (format!("{folder}/ is not copied: its links lead to {same_as}, which is copied"), true)
        }
        Note::PrivateTorrent => {
            let why =
                "the torrent is private: only its trackers name peers, and --peer has no effect";
            (why.to_owned(), true)
        }
        Note::WaitingForMetadata => {
            ("asking peers for the description of the torrent".to_owned(), false)
        }
        Note::OtherPort(error) => {
            let means =
                "another port is used, which trackers tell to peers; --listen ADDRESS chooses one";
            (format!("{}: {means}", chain(error)), true)
        }
        Note::WithoutPeers(error) => (format!("without peers: {}", chain(error)), true),
        Note::TrackerFailed { tracker, error } => (format!("{tracker}: {}", chain(error)), true),
        Note::TrackerWarns { tracker, text } => (format!("{tracker} says: {text}"), true),
        Note::WithoutMetafile(error) => (format!("{}; asking others", chain(error)), true),
        Note::TorrentUnused { name, unused } => {
            let all: Vec<String> = unused.iter().map(ToString::to_string).collect();
            (format!("{name}: not used: {}", all.join(", ")), false)
        }
        Note::OddNames { name, count } => {
            let names = counted(*count, "name is", "names are");
            (format!("{name}: {names} not UTF-8: other bytes are written as %XX"), true)
        }
        Note::PeerBanned { address, why } => {
            (format!("no peer at {address} is used any more: {why}"), true)
        }
        Note::Shared { address } => (format!("sharing with other machines, at {address}"), false),
        Note::NoSuchMachine { name, error } => {
            (format!("machine {name} is left out: {error}"), true)
        }
        Note::NobodyShares { has_fetched: false } => {
            ("everything was here already, and no other machine asked for it".to_owned(), false)
        }
        Note::NobodyShares { has_fetched: true } => {
            let why = "no other machine took part: all need the same token, address and filters, and must reach each other directly";
            (why.to_owned(), true)
        }
        Note::MachineBanned { address } => {
            let why = "it delivered or vouched for other bytes than the origin has";
            (format!("machine {address} is not used any more: {why}"), true)
        }
        Note::NotShared(why @ NotShared::Listen(_)) => {
            let means = "this machine fetches everything from the server itself and passes nothing on; --listen ADDRESS chooses another address";
            (format!("fetching without other machines: {}: {means}", chain(why)), true)
        }
        Note::NotShared(why) => (format!("fetching without other machines: {}", chain(why)), true),
        Note::PassingOn { machines } => {
            let machines = counted(*machines, "other machine", "other machines");
            (format!("complete; passing it on to {machines}, Ctrl-C ends that"), false)
        }
        Note::Seeding { ratio: Some(ratio) } => {
            (format!("seeding until {ratio} times its size was sent; Ctrl-C ends it"), false)
        }
        Note::Seeding { ratio: None } => ("seeding; Ctrl-C ends it".to_owned(), false),
        Note::Seeded { uploaded_bytes } => {
            (format!("sent {} to peers", units::bytes(*uploaded_bytes)), false)
        }
        Note::Announced { dataset, version } => {
            (format!("the newest version of {dataset} is {version}"), false)
        }
        Note::Torrent { name, files, selected, mirrors } => {
            let of = selected.map(|selected| format!("{selected} of ")).unwrap_or_default();
            (format!("{name} is a torrent: {of}{}", holds(*files, *mirrors)), false)
        }
        Note::Installed { dataset, version, place } => {
            (format!("{dataset}: version {version} is in {}", place.display()), false)
        }
        Note::FeedBackwards { dataset, version, installed } => {
            let text = format!(
                "{dataset}: the feed went back to version {version}; version {installed} stays, which has a later date (--allow-older replaces it)"
            );
            (text, true)
        }
        Note::OldFilesKept { dataset, files, place } => {
            let (files, place) = (counted(*files, "file", "files"), place.display());
            (
                format!("{dataset}: kept {files} that were added to the old version, in {place}"),
                true,
            )
        }
        Note::Unchanged { bytes, of_bytes } => {
            let (bytes, of_bytes) = (units::bytes(*bytes), units::bytes(*of_bytes));
            (
                format!("{bytes} of {of_bytes} are unchanged, and are copied from the old version"),
                false,
            )
        }
        Note::MetalinkBeside { files, mirrors } => {
            (format!("the server offers a Metalink: {}", holds(*files, *mirrors)), false)
        }
        Note::MetalinkSkipped { name, count, reason } => {
            (format!("{name}: skipped {}: {reason}", counted(*count, "entry", "entries")), false)
        }
        Note::MetalinkPieces { name, files, reason } => {
            let what = counted(*files, "file", "files");
            (format!("{name}: the piece digests of {what} cannot be used ({reason})"), true)
        }
        Note::MetalinkOfSeveral(name) => {
            (format!("not using {name}: it lists several files"), true)
        }
        Note::WithoutMetalink(error) => (format!("{}; continuing without it", chain(error)), true),
        Note::MetalinkElsewhere(error) => (chain(error), true),
        Note::Checksums { name, algorithms } => {
            let names: Vec<&str> = algorithms.iter().map(|algorithm| algorithm.name()).collect();
            (format!("the {} comes from {name}", names.join(" and ")), false)
        }
        Note::NoChecksums(name) => {
            (format!("no checksum file next to {name} lists it (--checksums auto)"), true)
        }
        Note::Bootstrapped { host, path } => {
            (format!("{host}: copied this program to {path}"), false)
        }
        Note::OnlyBySsh { host, port, forwards } => {
            let forbids = if *forwards { "" } else { ", and its sshd forbids forwarding" };
            let words = "all data goes through one ssh connection, which is slower";
            (format!("{host}: port {port} cannot be reached from here{forbids}; {words}"), true)
        }
        _ => (DISK_THREADS.to_owned(), false),
    }
}

/// Returns why servers do not copy from one another.
fn through_here(why: &ThroughHere) -> String {
    match why {
        ThroughHere::NotDelegated { address, why } => {
            format!("the other server cannot open {address} ({why})")
        }
        ThroughHere::NotOffered { address, error } => {
            format!("{address} does not copy from or to other servers ({error})")
        }
        ThroughHere::Failed { address, why } if why.is_empty() => {
            format!("{address} did not copy from or to the other server")
        }
        ThroughHere::Failed { address, why } => {
            format!("{address} did not copy from or to the other server ({why})")
        }
        ThroughHere::Neither(whys) => whys.iter().map(through_here).collect::<Vec<_>>().join("; "),
    }
}

/// Returns the text of a warning about a list.
pub fn of_list(warning: &ListWarning) -> String {
    match warning {
        ListWarning::Option { name, line } => format!(
            "the list: ignoring the unknown option '{name}' (first for the file of line {line})"
        ),
        ListWarning::Mirror { mirror, line, reason } => format!(
            "the list: line {line}: ignoring the mirror {mirror}, and others like it: {reason}"
        ),
        _ => "the list: ignoring an entry".to_owned(),
    }
}

fn holds(files: u64, mirrors: u64) -> String {
    let (files, mirrors) = (counted(files, "file", "files"), counted(mirrors, "mirror", "mirrors"));
    format!("{files}, {mirrors}")
}

/// `1 file`, `2 files`.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", units::count(count), if count == 1 { one } else { many })
}

const DISK_THREADS: &str = "the kernel could not start io_uring workers (process limit, see ulimit -u): the disk was written with threads";
