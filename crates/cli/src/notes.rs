//! What a job notes about itself, as sentences.

use swath_jobs::{ListWarning, Note};

use crate::exit::chain;
use crate::progress::units;

/// The sentence, and whether it is a warning.
pub fn words(note: &Note) -> (String, bool) {
    match note {
        Note::WaitingForMetalink { name } => (format!("waiting for the Metalink {name}"), false),
        Note::Metalink { name, files, mirrors } => {
            (format!("{name} is a Metalink: {}", holds(*files, *mirrors)), false)
        }
        Note::MetalinkBeside { files, mirrors } => {
            (format!("its server names a Metalink of it: {}", holds(*files, *mirrors)), false)
        }
        Note::MetalinkSkipped { name, count, reason } => {
            (format!("{name}: left out {}: {reason}", counted(*count, "entry", "entries")), false)
        }
        Note::MetalinkPieces { name, files, reason } => {
            let what = counted(*files, "file", "files");
            (format!("{name}: the piece digests of {what} cannot be used ({reason})"), true)
        }
        Note::MetalinkOfSeveral { name } => {
            (format!("{name} describes several files and is not used"), true)
        }
        Note::WithoutMetalink { error } => (format!("{}; going on without it", chain(error)), true),
        Note::MetalinkElsewhere { error } => (chain(error), true),
        Note::Checksums { name, algorithms } => {
            let names: Vec<&str> = algorithms.iter().map(|algorithm| algorithm.name()).collect();
            (format!("the {} comes from {name}", names.join(" and ")), false)
        }
        Note::NoChecksums { name } => {
            (format!("no checksum file beside {name} names it (--checksums auto)"), true)
        }
        Note::Bootstrapped { host, path } => {
            (format!("{host}: this program was put there, as {path}"), false)
        }
        Note::OnlyBySsh { host, port, forwards } => {
            let forbids = if *forwards { "" } else { ", and sshd there forbids forwarding" };
            let words = "everything goes through one ssh connection, which is the slower way (how fast it was is said at the end)";
            (format!("{host}: port {port} cannot be reached from here{forbids}; {words}"), true)
        }
        _ => (DISK_THREADS.to_owned(), false),
    }
}

/// What of a list is passed over.
pub fn of_list(warning: &ListWarning) -> String {
    match warning {
        ListWarning::Option { name, line } => format!(
            "the list: the option '{name}' is not known here and is passed over (first for the file of line {line})"
        ),
        ListWarning::Mirror { mirror, line, reason } => format!(
            "the list: line {line}: the mirror {mirror} is passed over, as others like it are: {reason}"
        ),
        _ => "the list: something of it is passed over".to_owned(),
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

const DISK_THREADS: &str = "the kernel could not start workers for io_uring (a limit of processes, as of ulimit -u?): the disk was written with threads";
