//! Exit codes. They are documented in `docs/get.md` and do not change.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use swath_model::path::visible;

use swath_store::tree::{Conflict, StageError};
use swath_store::{FinishError, OpenError};
use swath_transfer::GetError;
use swath_transfer::report::units;

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

/// Say what went wrong and how to go on.
pub fn fail(exit: Exit, message: &str) -> Exit {
    if PROGRAMS.load(Ordering::Relaxed) {
        tell_program(exit, message);
    }
    let mut lines = message.split(HINT);
    crate::say::err(&format!("swath: {}", lines.next().unwrap_or_default()));
    lines.for_each(|hint| crate::say::err(&format!("  {hint}")));
    exit
}

/// A program reads events on standard output: from now on it is told there as well what goes wrong.
pub fn tell_programs() {
    PROGRAMS.store(true, Ordering::Relaxed);
}

static PROGRAMS: AtomicBool = AtomicBool::new(false);

/// What goes wrong, as an event.
pub fn tell_program(exit: Exit, message: &str) {
    let error = message.replace(HINT, "; ");
    let event = serde_json::json!({"event": "error", "exit": exit as u8, "error": error.trim()});
    // Where nobody reads there is nobody to tell.
    let _ = writeln!(std::io::stdout(), "{event}");
}

/// Between a message and what to do about it, which has a line of its own.
const HINT: &str = "\n  ";

/// Say what is odd; it goes on all the same.
pub fn warn(message: &str) {
    crate::say::err(&format!("warning: {message}"));
}

/// The exit code of a transfer that failed after `come_bytes` bytes had come, in this run or before.
pub fn of(error: &GetError, come_bytes: u64) -> Exit {
    match error {
        GetError::NoSources => Exit::Usage,
        GetError::Tree(StageError::OtherTree { .. }) => Exit::Incomplete,
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
        GetError::Tree(StageError::NoRoom { path, needed_bytes, free_bytes }) => format!(
            "{} needs {} more, but only {} are free",
            path.display(),
            units::bytes(*needed_bytes),
            units::bytes(*free_bytes)
        ),
        GetError::Tree(error @ StageError::OtherTree { .. }) => format!(
            "{error}; it is kept, and the same command goes on once the source has them again (to begin anew without it: --no-resume)"
        ),
        GetError::Tree(StageError::InTheWay { destination, conflicts }) => {
            in_the_way(&destination.display().to_string(), conflicts)
        }
        GetError::Tree(StageError::Closed { destination, folders }) => {
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

/// What of another kind is at the destination, and what to do about it.
fn in_the_way(destination: &str, conflicts: &[Conflict]) -> String {
    let name = |conflict: &Conflict| {
        let path = String::from_utf8_lossy(&conflict.path);
        let path = visible(&path);
        format!("{path} ({} there, {} in the tree)", conflict.there, conflict.here)
    };
    let mut named: Vec<String> = conflicts.iter().take(CONFLICTS_NAMED).map(name).collect();
    if conflicts.len() > CONFLICTS_NAMED {
        named.push(format!("and {} more", conflicts.len() - CONFLICTS_NAMED));
    }
    // With --delete only those are refused.
    let what_to_do = match conflicts.iter().any(|conflict| conflict.is_sheltered) {
        true => {
            "--delete does not replace what --include and --exclude leave out or what an unfinished copy has left, or what holds such"
        }
        false => "--delete would replace what is there",
    };
    let named = named.join(", ");
    format!(
        "{destination} holds what is of another kind in the tree: {named}; nothing was copied, and {what_to_do}"
    )
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

/// What to do where a server wants another token than the one it was shown.
pub fn hint_of_token(reason: &str) -> Option<&'static str> {
    reason.contains(" answered 401 ").then_some(TOKEN_HINT)
}

/// What gives a token.
const TOKEN_HINT: &str = "  --token TOKEN gives the token that 'swath serve' prints, --token @FILE (or --bearer-file FILE) one from a file";

/// The same for all reasons of a transfer, by whom they are about: relays are shown other tokens than
/// sources.
pub fn hints_of_tokens(reasons: &[(String, String)]) -> impl Iterator<Item = &'static str> {
    let of = |of_relays: bool| {
        let mut own = reasons.iter().filter(move |(name, _)| is_a_relay(name) == of_relays);
        own.find_map(|(_, reason)| hint_of_token(reason))
    };
    let of_relay = of(true).map(|_| {
        "  token-file in the configuration opens a relay, and so does --relay https://any:TOKEN@HOST"
    });
    of(false).into_iter().chain(of_relay)
}

/// Whether what went wrong did so with a relay itself.
fn is_a_relay(name: &str) -> bool {
    name.starts_with("the relay ")
}

/// What to do where nothing is known that a server's certificate could be trusted by.
pub fn hint_of_trust(reason: &str) -> Option<&'static str> {
    let is_untrusted = is_untrusted_here(reason) && !reason.contains("its fingerprint is");
    is_untrusted.then_some(
        "  --fingerprint trusts the certificate that 'swath serve' prints, --ca FILE an authority",
    )
}

/// Whether it is us who do not trust a certificate, and not a relay on the way.
pub fn is_untrusted_here(reason: &str) -> bool {
    reason.contains(UNTRUSTED) && !is_said_by_a_relay(reason)
}

fn is_said_by_a_relay(reason: &str) -> bool {
    reason.contains(" passes nothing on: ")
}

/// How every complaint about a certificate begins.
const UNTRUSTED: &str = "certificate is not trusted";

/// What the same command makes of what is kept. If the file changed at a source, that is of the old one,
/// and no source that has this is left.
pub fn what_next(error: &GetError) -> &'static str {
    match error.reasons().iter().any(|(_, reason)| reason.contains(CHANGED)) {
        true => {
            "they are of the file as it was before, and the same command begins again with the new one, unless a source still has the old one"
        }
        false => GOES_ON,
    }
}

/// What it makes of them otherwise.
pub const GOES_ON: &str = "the same command goes on from there";
/// How sources say that.
const CHANGED: &str = "the file changed at the source";

/// What to do where relays pass nothing on: about the first reason of that kind, and, where nothing but
/// a route that was named has been tried, that there are others.
pub fn hints_of_relays(reasons: &[(String, String)]) -> Vec<String> {
    let says = |what: &str| reasons.iter().any(|(_, reason)| reason.contains(what));
    let is_of_relays = |name: &str| name.contains(" by ") || is_a_relay(name);
    let mut hints = Vec::new();
    if says("it lets others in") {
        hints.push(
            "  whoever runs it names who asks it (--clients: you, or the relay before it), or has given you a token (token-file in the configuration)",
        );
    }
    if says("(--upstream)") {
        hints.push("  whoever runs it names whom it asks (--upstream): the source, or the next relay, with the port");
    }
    if reasons.iter().any(|(_, reason)| is_said_by_a_relay(reason) && reason.contains(UNTRUSTED)) {
        hints.push(
            "  it is that relay which does not trust it: whoever runs it names the next one's certificate (--fingerprint or --ca of 'swath relay')",
        );
    }
    // Which relay it is that a reason tells of in these words.
    let relay_in = |name: &str, reason: &str, what: &str| -> Option<String> {
        let (_, rest) = reason.split_once(what)?;
        let (host, _) = rest.split_once(": ")?;
        let relays = name.split_once(" by ").map(|(_, relays)| relays).unwrap_or(name);
        (relays.contains(host) && is_of_relays(name)).then(|| host.to_owned())
    };
    let is_relays_own = |(name, reason): &(String, String)| {
        let host = relay_in(name, reason, "no secure connection to ");
        is_untrusted_here(reason) && host.is_some()
    };
    let is_elsewhere = |(name, reason): &(String, String)| {
        let host = relay_in(name, reason, "cannot connect to ").unwrap_or_default();
        let is_usual = host.ends_with(":80") || host.ends_with(":443");
        is_usual && !is_said_by_a_relay(reason) && !reason.contains("unless told otherwise")
    };
    if reasons.iter().any(is_elsewhere) {
        hints.push(
            "  'swath relay' listens on port 8471 unless told otherwise, and the address of this relay does not lead there",
        );
    }
    if reasons.iter().any(is_relays_own) {
        hints.push(
            "  a relay is known by the fingerprint that 'swath relay' prints: fingerprint in the configuration, beside its url",
        );
    }
    if !reasons.is_empty() && reasons.iter().all(|(name, _)| is_of_relays(name)) {
        hints.push("  nothing but the route that was named was tried: --route auto takes others, --route direct none");
    }
    hints.into_iter().map(str::to_owned).collect()
}

/// A sentence with what to do about these reasons, each in a line of its own.
pub fn with_hints(sentence: &str, reasons: &[impl AsRef<str>]) -> String {
    let first = |hint: fn(&str) -> Option<&'static str>| {
        reasons.iter().find_map(|reason| hint(reason.as_ref()))
    };
    let hints = [first(hint_of_token), first(hint_of_trust)];
    hints.into_iter().flatten().fold(sentence.to_owned(), |text, hint| text + "\n" + hint)
}

/// What to do where a server that speaks HTTPS, or a relay, was spoken to in plain HTTP.
pub fn hint_of_https(source: &str, reason: &str) -> Option<String> {
    if !reason.contains("speaks HTTPS") {
        return None;
    }
    let (source, relays) = match source.rsplit_once(" by ") {
        Some((source, relays)) => (source, relays),
        None => (source, source.strip_prefix("the relay ").unwrap_or_default()),
    };
    let rest = source.strip_prefix("http://");
    match reason.contains("this relay speaks HTTPS") {
        true if relays.contains(", ") => {
            Some(format!("  of these relays one is named by https://HOST: {relays}"))
        }
        true if !relays.is_empty() => Some(format!("  that relay is named by https://{relays}")),
        _ => rest.map(|rest| format!("  its address is https://{rest}")),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_whose_port_was_left_out_is_looked_for_at_another_one() {
        let is_hinted = |name: &str, reason: &str| {
            let hints = hints_of_relays(&[(name.to_owned(), reason.to_owned())]);
            hints.iter().any(|hint| hint.contains("8471"))
        };
        let source = "http://data.example/f";
        let by = |relay: &str| format!("{source} by {relay}");
        let refused = |host: &str| format!("cannot connect to {host}: Connection refused");
        assert!(is_hinted(&by("r1:443"), &refused("r1:443")));
        assert!(is_hinted("the relay r1:80", &refused("r1:80")));
        assert!(!is_hinted(&by("r1:8471"), &refused("r1:8471")));
        assert!(!is_hinted(source, &refused("data.example:80")));
        let told = format!("the relay r1 passes nothing on: {}", refused("data.example:80"));
        assert!(!is_hinted(&by("r1:443"), &told));
    }

    #[test]
    fn who_speaks_https_is_named_so() {
        // The source was advised to be asked by https://, with the relays as a part of its name.
        let hint = |name: &str, whose: &str| {
            hint_of_https(name, &format!("the server answered 400 this {whose} speaks HTTPS"))
        };
        let source = "http://data.example/f";
        let by = |relays: &str| format!("{source} by {relays}");
        let is = |hint: Option<String>, words: &str| assert_eq!(hint.as_deref(), Some(words));
        is(hint(source, "server"), "  its address is https://data.example/f");
        is(hint(&by("r1:8471"), "server"), "  its address is https://data.example/f");
        is(hint(&by("r1:8471"), "relay"), "  that relay is named by https://r1:8471");
        is(hint("the relay r1:8471", "relay"), "  that relay is named by https://r1:8471");
        let one = "  of these relays one is named by https://HOST: r1:8471, r2:8471";
        is(hint(&by("r1:8471, r2:8471"), "relay"), one);
        // A relay's own address as a source, as for a depot.
        is(hint("http://r1:8471/depot/", "relay"), "  its address is https://r1:8471/depot/");
        assert_eq!(hint_of_https(source, "no answer"), None);
    }

    #[test]
    fn relays_and_sources_are_opened_by_different_tokens() {
        // Where a relay refused, --bearer-file was advised, which no relay is ever shown.
        let reason =
            |name: &str| (name.to_owned(), "the server answered 401 Unauthorized".to_owned());
        let hints = |names: &[&str]| {
            let reasons: Vec<_> = names.iter().map(|name| reason(name)).collect();
            hints_of_tokens(&reasons).collect::<Vec<_>>().concat()
        };
        let source = hints(&["https://data.example/f"]);
        assert!(source.contains("--bearer-file") && !source.contains("token-file"), "{source}");
        let relay = hints(&["the relay r1.example:8471"]);
        assert!(relay.contains("token-file") && !relay.contains("--bearer-file"), "{relay}");
        let both = hints(&["the relay r1.example:8471", "https://data.example/f"]);
        assert!(both.contains("token-file") && both.contains("--bearer-file"), "{both}");
    }
}
