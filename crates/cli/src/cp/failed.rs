//! Errors of copies, in words, with hints.

use swath_jobs::copy::{
    CopyError, CopyOption, DisplayNames, LocationError, NotDelegated, SendProgress, Unfit,
};
use swath_jobs::ssh::{SshError, SshFault};
use swath_model::SourceName;
use swath_transfer::sending::Failed;
use swath_transfer::{GetError, LaneError, Party, PutError, Reason, RemoteCopyError, Why};

use super::args::Cp;
use super::dry::DryRun;
use super::result;
use crate::exit::{self, Exit, chain};
use crate::failure::Failure;
use crate::progress::units;
use crate::{hints, say};

/// Prints how a copy failed; returns the failure of one that had not begun.
pub fn say(cp: &Cp, plan: &DryRun, error: CopyError) -> Result<Exit, Failure> {
    Ok(match error {
        CopyError::Fetch { destination, error, kept, names } => {
            let text = names.shown(&exit::words_of_all(&error));
            result::print_failed_event(
                cp,
                kept.is_reported,
                &destination,
                &text,
                kept.known_bytes(),
            );
            complain(&destination, &error, kept.bytes, &names);
            exit::of(&error, kept.received_bytes)
        }
        CopyError::Receiver { destination, failed, is_single } => {
            receiver(cp, &destination, failed, is_single)
        }
        CopyError::Broken { destination, why, progress, names } => {
            broken(cp, &destination, &why, progress, &names)
        }
        CopyError::SendStopped { destination, has_something } => {
            let kept = if has_something { GOES_ON } else { "nothing was sent" };
            // The receiver cannot report what it keeps.
            result::print_failed_event(cp, false, &destination, "stopped", None);
            say::error(&format!("stopped; {kept}"));
            Exit::Interrupted
        }
        CopyError::StoppedLooking { destination } => {
            result::print_failed_event(cp, false, &destination, "stopped", None);
            say::error("stopped; the copy goes on there");
            Exit::Interrupted
        }
        CopyError::PlanIncomplete { matches } => match plan.end(matches) {
            Exit::Done => Exit::Some,
            exit => exit,
        },
        error => return Err(of(error)),
    })
}

/// Returns the failure of a copy that did not begin.
pub fn of(error: CopyError) -> Failure {
    match error {
        CopyError::Location(error) => place(error),
        CopyError::NoSshCommand => Failure::usage("--ssh: the command is empty"),
        CopyError::Ssh(error) => ssh(&error),
        CopyError::Offer(error) => Failure::input(chain(&error)),
        CopyError::Option { option, unfit, address } => {
            Failure::usage(unfitting(option, unfit, &address.unwrap_or_default()))
        }
        CopyError::Unreachable { destination, address, error } => {
            Failure::sources(format!("{destination}: no source could be used"))
                .hint(format!("{address}: {error}"))
        }
        CopyError::Put { address, error } => put(&address, &error),
        CopyError::Remote { address, error } => remote(&address, &error),
        CopyError::NoListing { address, why } => {
            Failure::sources(format!("{address}: no listing of the folder: {why}"))
        }
        CopyError::WebFolderThrough { address } => {
            let hint =
                "omit --through-here, --delete and filters, or copy it to a local folder first";
            Failure::usage(format!(
                "{address} is a folder of a plain web server, which is not copied as one tree"
            ))
            .hint(hint)
        }
        CopyError::NotDelegated { address, why } => {
            let hint = match why {
                NotDelegated::Short(_) => {
                    "give the source a longer token, such as 'swath serve' makes"
                }
                NotDelegated::Plain => "serve the source with TLS ('swath serve' without --plain)",
                _ => "use a token, or copy through a local folder",
            };
            Failure::usage(format!("{address}: {why}")).hint(hint)
        }
        CopyError::NoThirdParty { address, error } => {
            let is_refusal = error.code().is_some_and(|code| (400..500).contains(&code));
            let exit = if is_refusal { Exit::Target } else { Exit::Sources };
            // A swath server says itself what it lacks, and nobody else knows the request.
            let is_known = error.code().is_none_or(|code| matches!(code, 401 | 403));
            let other =
                "the destination must be a swath server, started with --write --third-party";
            Failure::new(exit, format!("{address}: {error}"))
                .hints(Some(other).filter(|_| !is_known))
                .hints(hints::of_trust(&error))
        }
        CopyError::Forbidden { address, error } => {
            Failure::new(Exit::Target, format!("{address}: {error}; {NOTHING}"))
        }
        error => Failure::usage(error.to_string()),
    }
}

/// Returns the failure of a source or destination.
pub fn place(error: LocationError) -> Failure {
    match error {
        LocationError::NoPlaces => {
            Failure::usage("a source and a destination are needed: swath cp SRC... DST")
        }
        LocationError::Missing { .. } | LocationError::Special(..) | LocationError::NoSizes(..) => {
            Failure::input(error.to_string())
        }
        error => Failure::usage(error.to_string()),
    }
}

fn unfitting(option: CopyOption, unfit: Unfit, address: &str) -> String {
    match (unfit, option) {
        (Unfit::Sending, _) => {
            "--keep-index is for fetching, and this machine sends ('swath verify --index URL' checks a copy)"
                .to_owned()
        }
        (Unfit::ThirdParty, _) => {
            "--keep-index is for copies to this machine, and another server fetches".to_owned()
        }
        (Unfit::Ssh, _) => {
            "--detach needs servers that stay: those started by ssh end with this command"
                .to_owned()
        }
        (Unfit::SingleFile, _) => {
            "--include, --exclude and --delete are for folders, and the source is a file".to_owned()
        }
        (Unfit::Put, CopyOption::Xattrs) => {
            "the server cannot store extended attributes: omit --preserve xattr"
                .to_owned()
        }
        (Unfit::Put, _) => {
            "the server cannot report what it has: omit --dry-run".to_owned()
        }
        (Unfit::NoFolder, CopyOption::Xattrs) => {
            format!("{address} is not a folder on a swath server: --preserve xattr is for folders")
        }
        (Unfit::NoFolder, CopyOption::Cluster) => {
            "--share is for fetching folders and files of a swath server ('swath get --share' fetches a file of any web server)"
                .to_owned()
        }
        (Unfit::NoFolder, _) => format!(
            "{address} is not a folder on a swath server: --include, --exclude, --dry-run, --delete and --keep-index are for folders"
        ),
        (Unfit::WebFolder, option) => {
            let option = match option {
                CopyOption::Delete => "--delete",
                CopyOption::Checksum => "--checksum",
                CopyOption::KeepIndex => "--keep-index",
                CopyOption::Cluster => "--share",
                _ => "--preserve xattr",
            };
            format!(
                "{option} needs a swath server, and {address} is a plain web server, which lists only names"
            )
        }
    }
}

/// Returns the failure of starting a server by ssh.
pub fn ssh(error: &SshError) -> Failure {
    let SshError { host, command, fault } = error;
    let fault = match fault {
        SshFault::NotPut(error) => &error.fault,
        fault => fault,
    };
    let has_to = format!("'{command} {host} echo ok' must print 'ok'");
    let hint = match fault {
        SshFault::TooMuch(..) => format!(
            "remove the output of .bashrc or .profile for non-interactive shells: {has_to} and little else"
        ),
        SshFault::Silent { .. } => "wait longer with --timeout TIME".to_owned(),
        SshFault::NotBegun { .. } => format!(
            "perhaps sshd forces another command (authorized_keys, ForceCommand), or a profile waits (see --timeout TIME): {has_to}"
        ),
        SshFault::NoShell { .. } => {
            format!("the account needs a login shell (not nologin) and no forced command: {has_to}")
        }
        SshFault::Missing => {
            return Failure::sources(format!(
                "{error}. Install it: scp {} {host}:bin/ (a folder in its PATH), or add --bootstrap",
                own_path(),
            ));
        }
        _ => return Failure::sources(error.to_string()),
    };
    Failure::sources(error.to_string()).hint(hint)
}

/// Returns the path of this program, quoted for a shell.
fn own_path() -> String {
    let own =
        std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok());
    own.map_or_else(|| "\"$(command -v swath)\"".to_owned(), |path| swath_jobs::ssh::quoted(&path))
}

/// Prints the error that a receiver sent.
fn receiver(cp: &Cp, shown: &str, failed: Failed, is_single: bool) -> Exit {
    let error = match failed.in_the_way {
        // A single file is never copied with --delete.
        Some(conflict) if !is_single => {
            format!("{}, and {}", failed.error, exit::advice_on(conflict))
        }
        _ => failed.error,
    };
    result::print_failed_event(cp, false, shown, &error, failed.kept_bytes);
    say::error(&exit::about(shown, &error));
    if is_single && failed.in_the_way.is_some_and(|conflict| conflict.is_folder) {
        say::hint(&format!("to copy into that folder: {shown}/"));
    }
    tell_kept(failed.kept_bytes.unwrap_or(0), exit::GOES_ON);
    Exit::of_code(failed.exit)
}

/// Prints that the connection to a receiver ended.
fn broken(cp: &Cp, shown: &str, why: &Why, progress: SendProgress, names: &DisplayNames) -> Exit {
    let error = names.shown(&format!("{shown}: {why}"));
    result::print_failed_event(cp, false, shown, &error, None);
    say::error(&error);
    let of = Party::Source(SourceName::direct(shown));
    if let Some(error) = why.lane_error() {
        hints::of_server(error).into_iter().for_each(say::hint);
        hints::of_https(&of, error).iter().for_each(|hint| say::hint(hint));
    }
    match progress {
        SendProgress::Refused => Exit::Target,
        SendProgress::Nothing => Exit::Sources,
        SendProgress::Some => {
            say::hint(GOES_ON);
            Exit::Incomplete
        }
    }
}

/// Returns the failure of a `PUT`.
fn put(shown: &str, error: &PutError) -> Failure {
    let exit = match error {
        PutError::Read { .. } => Exit::Input,
        PutError::Stopped => Exit::Interrupted,
        PutError::Server(error) if error.code().is_some_and(|code| code != 401) => Exit::Target,
        PutError::Server(_) | PutError::Source { .. } => Exit::Sources,
        PutError::Differs { .. } | PutError::SourceDiffers { .. } | PutError::Missing { .. } => {
            Exit::Mismatch
        }
        PutError::Encoded { .. } | PutError::NoSize { .. } => Exit::Sources,
        // Other files of a list may be complete.
        _ => Exit::Some,
    };
    let PutError::Server(error) = error else {
        let text = match error {
            PutError::Stopped => format!("stopped; {NOTHING}"),
            error => chain(error),
        };
        return Failure::new(exit, text);
    };
    let hint = match error.code() {
        Some(404) => "; no such folder",
        Some(405 | 501) => "; it does not accept uploads ('swath serve --write' does)",
        Some(409) => "; to copy into a folder, end the URL with '/'; the folder must exist",
        Some(412) => "; the existing file, or what arrived, is not as expected",
        _ => "",
    };
    let https = hints::of_https(&Party::Source(SourceName::direct(shown)), error);
    Failure::new(exit, format!("{shown}: {error}{hint}; {NOTHING}")).hints(https)
}

/// Returns the failure of a copy that one of two servers carried out.
fn remote(shown: &str, error: &RemoteCopyError) -> Failure {
    let exit = match error {
        RemoteCopyError::Differs(_) => Exit::Mismatch,
        RemoteCopyError::Failed { .. } | RemoteCopyError::Unknown(_) => Exit::Incomplete,
        RemoteCopyError::Refused(error) if error.code().is_some_and(|code| code != 401) => {
            Exit::Target
        }
        RemoteCopyError::Stopped => Exit::Interrupted,
        _ => Exit::Sources,
    };
    let hint = match error {
        RemoteCopyError::Failed { .. } | RemoteCopyError::Unknown(_) => Some(
            "the same command begins again; --through-here copies without the two servers reaching each other",
        ),
        _ => None,
    };
    Failure::new(exit, format!("{shown}: {}", chain(error))).hints(hint)
}

fn complain(destination: &str, error: &GetError, kept_bytes: u64, names: &DisplayNames) {
    let what = exit::about(destination, &names.shown(&exit::words(error)));
    say::error(&what);
    let reasons = error.reasons();
    for Reason { of, why } in reasons {
        say::hint(&format!("{}: {why}", names.shown(&of.to_string())));
    }
    let mut errors = reasons.iter().filter_map(|reason| reason.why.lane_error());
    errors.find_map(|error: &LaneError| hints::of_trust(error)).into_iter().for_each(say::hint);
    hints::of(reasons).iter().for_each(|hint| say::hint(hint));
    tell_kept(kept_bytes, exit::what_next(error));
}

/// Prints how much is kept, if anything, and what the same command does with it.
fn tell_kept(kept_bytes: u64, what_next: &str) {
    if kept_bytes > 0 {
        let kept = units::bytes(kept_bytes);
        say::hint(&format!("kept {kept}: {what_next}"));
    }
}

const GOES_ON: &str = "the received data is kept: the same command resumes from there";
const NOTHING: &str = "nothing was written";
