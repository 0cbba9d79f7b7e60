//! Exit codes and the words for errors of transfers. The codes are documented in `docs/get.md` and do
//! not change.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use swath_model::path::visible;

use swath_model::units;
use swath_store::tree::{Conflict, PartialError};
use swath_store::{FileKind, FinishError, OpenError};
use swath_transfer::sending::InTheWay;
use swath_transfer::{GetError, LaneError};

use crate::failure::Failure;
pub use crate::progress::batch::about;

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Complete and verified.
    Done = 0,
    /// Internal error.
    Internal = 1,
    /// Wrong command line.
    Usage = 2,
    /// Incomplete; the received data is kept, and the same command resumes.
    Incomplete = 3,
    /// The data does not match its digest.
    Mismatch = 4,
    /// The target exists, is locked or cannot be written, or the disk is full.
    Target = 5,
    /// Cannot read a Metalink, a list or another input.
    Input = 6,
    /// No source could be used; nothing was received.
    Sources = 7,
    /// Some files of a list failed.
    Some = 8,
    /// Stopped by Ctrl-C or a signal; the received data is kept.
    Interrupted = 130,
}

impl Exit {
    /// Returns the exit with this code, which another swath sent.
    pub fn of_code(code: u8) -> Exit {
        let known = [
            Exit::Usage,
            Exit::Incomplete,
            Exit::Mismatch,
            Exit::Target,
            Exit::Input,
            Exit::Sources,
            Exit::Interrupted,
        ];
        known.into_iter().find(|exit| *exit as u8 == code).unwrap_or(Exit::Internal)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Prints an error.
pub fn fail(exit: Exit, message: &str) -> Exit {
    Failure::new(exit, message).tell()
}

/// Makes [`tell`] print errors as events too, for programs that read events on standard output.
pub fn tell_programs() {
    PROGRAMS.store(true, Ordering::Relaxed);
}

static PROGRAMS: AtomicBool = AtomicBool::new(false);

/// Prints an error as an event, if a program reads events.
pub fn tell(exit: Exit, error: &str) {
    if PROGRAMS.load(Ordering::Relaxed) {
        tell_program(exit, error);
    }
}

/// Prints an error as an event.
pub fn tell_program(exit: Exit, error: &str) {
    let event = serde_json::json!({"event": "error", "exit": exit as u8, "error": error.trim()});
    // A closed output has no reader to inform.
    let _ = writeln!(std::io::stdout(), "{event}");
}

/// Prints a warning.
pub fn warn(message: &str) {
    crate::say::err(&format!("warning: {message}"));
}

/// Returns the exit code of a transfer that failed after `received_bytes` bytes, of this run or an earlier one.
pub fn of(error: &GetError, received_bytes: u64) -> Exit {
    match error {
        GetError::NoSources => Exit::Usage,
        GetError::Tree(PartialError::OtherTree { .. }) => Exit::Incomplete,
        GetError::Open(_)
        | GetError::Present { .. }
        | GetError::Tree(_)
        | GetError::Remove(_)
        | GetError::Keep(_) => Exit::Target,
        GetError::Turned { .. } => Exit::Incomplete,
        GetError::Index { .. } | GetError::Forgotten if received_bytes > 0 => Exit::Incomplete,
        GetError::Index { .. } | GetError::Forgotten => Exit::Sources,
        GetError::Finish(FinishError::Incomplete { .. }) => Exit::Internal,
        GetError::Write(_)
        | GetError::Read(_)
        | GetError::Commit(_)
        | GetError::Output(_)
        | GetError::DiskFull { .. }
        | GetError::Finish(_) => Exit::Target,
        GetError::Exhausted { .. } | GetError::Stalled { .. } | GetError::NoTree { .. }
            if received_bytes > 0 =>
        {
            Exit::Incomplete
        }
        GetError::Exhausted { .. } | GetError::Stalled { .. } | GetError::NoTree { .. } => {
            Exit::Sources
        }
        GetError::Digest { .. }
        | GetError::Pieces(_)
        | GetError::NoDigest
        | GetError::Disagreement { .. } => Exit::Mismatch,
        GetError::Metalink { .. } | GetError::Contradiction { .. } => Exit::Input,
        GetError::Stopped => Exit::Interrupted,
        _ => Exit::Internal,
    }
}

/// Returns the error of a transfer in one line.
pub fn words(error: &GetError) -> String {
    match error {
        GetError::Open(OpenError::NoSpace { path, needed_bytes, available_bytes }) => format!(
            "{} needs {} more, but only {} are free",
            path.display(),
            units::bytes(*needed_bytes),
            units::bytes(*available_bytes)
        ),
        GetError::Tree(PartialError::NoRoom { path, needed_bytes, free_bytes }) => format!(
            "{} needs {} more, but only {} are free",
            path.display(),
            units::bytes(*needed_bytes),
            units::bytes(*free_bytes)
        ),
        GetError::Tree(error @ PartialError::OtherTree { .. }) => format!(
            "{error}; the copy is kept and resumes once the source has them again (--no-resume starts over)"
        ),
        GetError::Tree(PartialError::InTheWay { destination, conflicts }) => {
            let words = in_the_way(&destination.display().to_string(), conflicts);
            format!("{words}, and {}", advice_on(InTheWay::of(conflicts)))
        }
        GetError::Tree(PartialError::Alike { pairs, .. }) => {
            let other = pairs.first().map(|(_, other)| String::from_utf8_lossy(other));
            format!(
                "{}; nothing got its name: copy to another file system, or leave names out, for example with --exclude '/{}'",
                chain(error),
                visible(&other.unwrap_or_default())
            )
        }
        GetError::Tree(PartialError::Closed { destination, folders }) => {
            closed(&destination.display().to_string(), folders)
        }
        _ => chain(error),
    }
}

/// Describes destination folders without write permission.
fn closed(destination: &str, folders: &[Vec<u8>]) -> String {
    let text = |path: &Vec<u8>| -> String { visible(&String::from_utf8_lossy(path)) };
    let mut named: Vec<String> = folders.iter().take(CONFLICTS_NAMED).map(text).collect();
    if folders.len() > CONFLICTS_NAMED {
        named.push(format!("and {} more", folders.len() - CONFLICTS_NAMED));
    }
    let (first, named) = (text(&folders[0]), named.join(", "));
    format!(
        "cannot write into these folders of {destination}: permission denied: {named}; nothing was changed: ask for write permission, or skip them, for example with --exclude '/{first}'"
    )
}

/// Describes destination entries of another kind than in the source.
pub fn in_the_way(destination: &str, conflicts: &[Conflict]) -> String {
    let kind = |kind: FileKind| match kind {
        FileKind::Link => "link".to_owned(),
        kind => kind.to_string(),
    };
    let name = |conflict: &Conflict| {
        let path = String::from_utf8_lossy(&conflict.path);
        let (there, here) = (kind(conflict.there), kind(conflict.here));
        format!("{} (a {there} there, a {here} in the source)", visible(&path))
    };
    let mut named: Vec<String> = conflicts.iter().take(CONFLICTS_NAMED).map(name).collect();
    if conflicts.len() > CONFLICTS_NAMED {
        named.push(format!("and {} more", conflicts.len() - CONFLICTS_NAMED));
    }
    let named = named.join(", ");
    format!(
        "{destination} has entries of another kind than the source: {named}; nothing was copied"
    )
}

/// Returns the advice on such entries.
pub fn advice_on(in_the_way: InTheWay) -> &'static str {
    // With --delete only sheltered entries are refused.
    match in_the_way.is_sheltered {
        true => {
            "--delete does not replace entries that --include or --exclude skip, or partial copies, or folders that contain them"
        }
        false => "--delete would replace them",
    }
}

/// Entries that a message lists.
const CONFLICTS_NAMED: usize = 10;

/// Returns the error of a transfer in one line, with the reason of each source.
pub fn words_of_all(error: &GetError) -> String {
    match error {
        error if error.reasons().is_empty() => words(error),
        error => error.with_reasons(),
    }
}

/// Whether the kept data belongs to a file that has since changed at a source.
pub fn is_of_old_file(error: &GetError) -> bool {
    let changed = |error: &LaneError| matches!(error.last(), LaneError::Changed { .. });
    error.reasons().iter().any(|reason| reason.why.lane_error().is_some_and(changed))
}

/// Returns what the same command does with the kept data. If the file changed at a source, the data is
/// of the old version, which no remaining source has.
pub fn what_next(error: &GetError) -> &'static str {
    match is_of_old_file(error) {
        true => {
            "they are of the old version; the same command starts over with the new one, unless a source still has the old one"
        }
        false => GOES_ON,
    }
}

/// What the same command usually does with the kept data.
pub const GOES_ON: &str = "the same command resumes from there";

/// Returns an error with all its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let next_text = next.to_string();
        if !text.contains(&next_text) {
            text.push_str(": ");
            text.push_str(&next_text);
        }
        cause = next.source();
    }
    text
}
