//! Exit codes. They are documented in `docs/get.md` and do not change.

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

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Everything asked for is there and verified.
    Done = 0,
    /// Something that should not happen.
    Internal = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Stopped before the end; what came is kept and the same command goes on.
    Incomplete = 3,
    /// The data is not what its digest says.
    Mismatch = 4,
    /// The target: it exists, is locked, cannot be written, the disk is full.
    Target = 5,
    /// A Metalink, a list or another input cannot be read.
    Input = 6,
    /// No source could be used and nothing came.
    Sources = 7,
    /// Some files of a list failed, others came.
    Some = 8,
    /// Ended by Ctrl-C or a signal; what came is kept.
    Interrupted = 130,
}

impl Exit {
    /// The one with this code, as another swath has told it.
    pub fn of_code(code: u8) -> Exit {
        let known = [
            Exit::Usage,
            Exit::Incomplete,
            Exit::Mismatch,
            Exit::Target,
            Exit::Input,
            Exit::Sources,
        ];
        known.into_iter().find(|exit| *exit as u8 == code).unwrap_or(Exit::Internal)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Say what went wrong.
pub fn fail(exit: Exit, message: &str) -> Exit {
    Failure::new(exit, message).tell()
}

/// A program reads events on standard output: from now on it is told there as well what goes wrong.
pub fn tell_programs() {
    PROGRAMS.store(true, Ordering::Relaxed);
}

static PROGRAMS: AtomicBool = AtomicBool::new(false);

/// What goes wrong, as an event, if a program reads them.
pub fn tell(exit: Exit, error: &str) {
    if PROGRAMS.load(Ordering::Relaxed) {
        tell_program(exit, error);
    }
}

/// What goes wrong, as an event.
pub fn tell_program(exit: Exit, error: &str) {
    let event = serde_json::json!({"event": "error", "exit": exit as u8, "error": error.trim()});
    // Where nobody reads there is nobody to tell.
    let _ = writeln!(std::io::stdout(), "{event}");
}

/// Say what is odd; it goes on all the same.
pub fn warn(message: &str) {
    crate::say::err(&format!("warning: {message}"));
}

/// The exit code of a transfer that failed after `come_bytes` bytes had come, in this run or before.
pub fn of(error: &GetError, come_bytes: u64) -> Exit {
    match error {
        GetError::NoSources => Exit::Usage,
        GetError::Tree(PartialError::OtherTree { .. }) => Exit::Incomplete,
        GetError::Open(_)
        | GetError::Present { .. }
        | GetError::Tree(_)
        | GetError::Remove(_)
        | GetError::Keep(_) => Exit::Target,
        GetError::Turned { .. } => Exit::Incomplete,
        GetError::Index { .. } | GetError::Forgotten if come_bytes > 0 => Exit::Incomplete,
        GetError::Index { .. } | GetError::Forgotten => Exit::Sources,
        GetError::Finish(FinishError::Incomplete { .. }) => Exit::Internal,
        GetError::Write(_)
        | GetError::Read(_)
        | GetError::Commit(_)
        | GetError::Output(_)
        | GetError::DiskFull { .. }
        | GetError::Finish(_) => Exit::Target,
        GetError::Exhausted { .. } | GetError::Stalled { .. } | GetError::NoTree { .. }
            if come_bytes > 0 =>
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

/// What went wrong with a transfer, as one line for people.
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
            "{error}; it is kept, and the same command goes on once the source has them again (to begin anew without it: --no-resume)"
        ),
        GetError::Tree(PartialError::InTheWay { destination, conflicts }) => {
            let words = in_the_way(&destination.display().to_string(), conflicts);
            format!("{words}, and {}", advice_on(InTheWay::of(conflicts)))
        }
        GetError::Tree(PartialError::Closed { destination, folders }) => {
            closed(&destination.display().to_string(), folders)
        }
        _ => chain(error),
    }
}

/// Folders at the destination that may not be written into, and what to do about them.
fn closed(destination: &str, folders: &[Vec<u8>]) -> String {
    let text = |path: &Vec<u8>| -> String { visible(&String::from_utf8_lossy(path)) };
    let mut named: Vec<String> = folders.iter().take(CONFLICTS_NAMED).map(text).collect();
    if folders.len() > CONFLICTS_NAMED {
        named.push(format!("and {} more", folders.len() - CONFLICTS_NAMED));
    }
    let (first, named) = (text(&folders[0]), named.join(", "));
    format!(
        "{destination} has folders that get something new, and you may not write into them: {named}; nothing is changed there: have them opened to you, or leave them out, as with --exclude '/{first}'"
    )
}

/// What of another kind is at the destination.
pub fn in_the_way(destination: &str, conflicts: &[Conflict]) -> String {
    let kind = |kind: FileKind| match kind {
        FileKind::Link => "link".to_owned(),
        kind => kind.to_string(),
    };
    let name = |conflict: &Conflict| {
        let path = String::from_utf8_lossy(&conflict.path);
        let (there, here) = (kind(conflict.there), kind(conflict.here));
        format!("{} (a {there} there, a {here} in the tree)", visible(&path))
    };
    let mut named: Vec<String> = conflicts.iter().take(CONFLICTS_NAMED).map(name).collect();
    if conflicts.len() > CONFLICTS_NAMED {
        named.push(format!("and {} more", conflicts.len() - CONFLICTS_NAMED));
    }
    let named = named.join(", ");
    format!("{destination} holds what is of another kind in the tree: {named}; nothing was copied")
}

/// What to do about that.
pub fn advice_on(in_the_way: InTheWay) -> &'static str {
    // With --delete only those are refused.
    match in_the_way.is_sheltered {
        true => {
            "--delete does not replace what --include and --exclude leave out or what an unfinished copy has left, or what holds such"
        }
        false => "--delete would replace what is there",
    }
}

/// So many things in the way are named one by one.
const CONFLICTS_NAMED: usize = 10;

/// The same, with what each source said.
pub fn words_of_all(error: &GetError) -> String {
    match error {
        error if error.reasons().is_empty() => words(error),
        error => error.with_reasons(),
    }
}

/// Whether what is kept is of a file that has changed at a source since.
pub fn is_of_old_file(error: &GetError) -> bool {
    let changed = |error: &LaneError| matches!(error, LaneError::Changed { .. });
    error.reasons().iter().any(|reason| reason.why.lane_error().is_some_and(changed))
}

/// What the same command makes of what is kept. If the file changed at a source, that is of the old one,
/// and no source that has this is left.
pub fn what_next(error: &GetError) -> &'static str {
    match is_of_old_file(error) {
        true => {
            "they are of the file as it was before, and the same command begins again with the new one, unless a source still has the old one"
        }
        false => GOES_ON,
    }
}

/// What it makes of them otherwise.
pub const GOES_ON: &str = "the same command goes on from there";

/// A sentence about a file that has the file's name in it once.
pub fn about(name: &str, sentence: &str) -> String {
    if sentence.starts_with(&format!("{name} ")) {
        sentence.to_owned()
    } else {
        format!("{name}: {sentence}")
    }
}

/// An error with all its causes, as one line.
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
