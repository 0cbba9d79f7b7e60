//! Why a copy failed, in words, with what helps.

use swath_jobs::copy::{CopyError, CopyOption, Names, PlaceError, SendProgress, Unfit};
use swath_jobs::ssh::{SshError, SshFault};
use swath_model::SourceName;
use swath_transfer::sending::Failed;
use swath_transfer::{GetError, LaneError, Party, PutError, Reason, Why};

use super::args::Cp;
use super::dry::Plan;
use super::told;
use crate::exit::{self, Exit, chain};
use crate::failure::Failure;
use crate::progress::units;
use crate::{hints, say};

/// Say how a copy that had begun failed; of another one its failure comes back.
pub fn say(cp: &Cp, plan: &Plan, error: CopyError) -> Result<Exit, Failure> {
    Ok(match error {
        CopyError::Fetch { destination, error, kept, names } => {
            let text = names.shown(&exit::words_of_all(&error));
            told::failed(cp, kept.is_told, &destination, &text, kept.known_bytes());
            complain(&destination, &error, kept.bytes, &names);
            exit::of(&error, kept.come_bytes)
        }
        CopyError::Receiver { destination, failed, is_single } => {
            receiver(cp, &destination, failed, is_single)
        }
        CopyError::Broken { destination, why, progress, names } => {
            broken(cp, &destination, &why, progress, &names)
        }
        CopyError::SendStopped { destination, has_something } => {
            let goes_on = if has_something { GOES_ON } else { "nothing was sent" };
            // What a receiver makes of that it has nobody to tell.
            told::failed(cp, false, &destination, "stopped", None);
            say::err(&format!("swath: stopped; {goes_on}"));
            Exit::Interrupted
        }
        CopyError::PlanIncomplete { matches } => match plan.end(matches) {
            Exit::Done => Exit::Some,
            exit => exit,
        },
        error => return Err(of(error)),
    })
}

/// What keeps a copy from beginning.
pub fn of(error: CopyError) -> Failure {
    match error {
        CopyError::Place(error) => place(error),
        CopyError::NoSshCommand => Failure::usage("--ssh: no command"),
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
        CopyError::Forbidden { address, error } => {
            Failure::new(Exit::Target, format!("{address}: {error}; {NOTHING}"))
        }
        error => Failure::usage(error.to_string()),
    }
}

/// What is wrong with a place.
pub fn place(error: PlaceError) -> Failure {
    match error {
        PlaceError::NoPlaces => Failure::usage("say where from and where to: swath cp SRC... DST"),
        PlaceError::Missing { .. } | PlaceError::Special { .. } | PlaceError::NoSizes { .. } => {
            Failure::input(error.to_string())
        }
        error => Failure::usage(error.to_string()),
    }
}

fn unfitting(option: CopyOption, unfit: Unfit, address: &str) -> String {
    match (unfit, option) {
        (Unfit::Sending, _) => {
            "--keep-index: this side only sends ('swath verify' takes a server's address too)"
                .to_owned()
        }
        (Unfit::SingleFile, _) => {
            "a single file is copied: --include, --exclude and --delete are for folders".to_owned()
        }
        (Unfit::Put, CopyOption::Xattrs) => {
            "the server takes files without extended attributes: leave out --preserve xattr"
                .to_owned()
        }
        (Unfit::Put, _) => {
            "the server takes files, and does not tell what it has: leave out --dry-run".to_owned()
        }
        (Unfit::NoFolder, CopyOption::Xattrs) => {
            format!("{address} is no folder of a swath server: --preserve xattr is for folders")
        }
        (Unfit::NoFolder, _) => format!(
            "{address} is no folder of a swath server: --include, --exclude, --dry-run, --delete and --keep-index are for folders"
        ),
        (Unfit::WebFolder, option) => {
            let option = match option {
                CopyOption::Delete => "--delete",
                CopyOption::Checksum => "--checksum",
                CopyOption::KeepIndex => "--keep-index",
                _ => "--preserve xattr",
            };
            format!(
                "{option} is for folders of swath servers: {address} is that of a plain web server, which tells names alone"
            )
        }
    }
}

/// Why a server could not be started by ssh, and what to do.
pub fn ssh(error: &SshError) -> Failure {
    let SshError { host, command, fault } = error;
    let fault = match fault {
        SshFault::NotPut(error) => &error.fault,
        fault => fault,
    };
    let has_to = format!("'{command} {host} echo ok' has to print 'ok'");
    let hint = match fault {
        SshFault::TooMuch { .. } => format!(
            "what it prints where there is no terminal has to go (.bashrc, .profile): {has_to} and little else"
        ),
        SshFault::Silent { .. } => "--timeout TIME waits longer".to_owned(),
        SshFault::NotBegun { .. } => format!(
            "perhaps another command is forced there (authorized_keys, ForceCommand), or a profile waits (--timeout TIME waits longer): {has_to}"
        ),
        SshFault::NoShell { .. } => format!(
            "it needs an account whose shell is none such as nologin, and to which no other command is forced: {has_to}"
        ),
        SshFault::Missing => {
            return Failure::sources(format!(
                "{error}. Put it there once: scp {} {host}:bin/ (a folder of its PATH), or let this command do it: --bootstrap",
                own_path(),
            ));
        }
        _ => return Failure::sources(error.to_string()),
    };
    Failure::sources(error.to_string()).hint(hint)
}

/// This very program, as a shell takes it; it need not be in the PATH, nor be called `swath`.
fn own_path() -> String {
    let own =
        std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok());
    own.map_or_else(|| "\"$(command -v swath)\"".to_owned(), |path| swath_jobs::ssh::quoted(&path))
}

/// A receiver has said why it ended.
fn receiver(cp: &Cp, shown: &str, failed: Failed, is_single: bool) -> Exit {
    let error = match failed.in_the_way {
        // A single file is never copied with --delete.
        Some(conflict) if !is_single => {
            format!("{}, and {}", failed.error, exit::advice_on(conflict))
        }
        _ => failed.error,
    };
    told::failed(cp, false, shown, &error, failed.kept_bytes);
    say::err(&format!("swath: {}", exit::about(shown, &error)));
    if is_single && failed.in_the_way.is_some_and(|conflict| conflict.is_folder) {
        say::hint(&format!("into that folder: {shown}/"));
    }
    tell_kept(failed.kept_bytes.unwrap_or(0), exit::GOES_ON);
    Exit::of_code(failed.exit)
}

/// The connection to a receiver has ended.
fn broken(cp: &Cp, shown: &str, why: &Why, progress: SendProgress, names: &Names) -> Exit {
    let error = names.shown(&format!("{shown}: {why}"));
    told::failed(cp, false, shown, &error, None);
    say::err(&format!("swath: {error}"));
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

/// A server did not take a single file.
fn put(shown: &str, error: &PutError) -> Failure {
    let exit = match error {
        PutError::Read { .. } => Exit::Input,
        PutError::Stopped => Exit::Interrupted,
        PutError::Server(error) if error.code().is_some_and(|code| code != 401) => Exit::Target,
        PutError::Server(_) => Exit::Sources,
        // The rest of a list may be complete; this one is not there.
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
        Some(404) => "; there is no such place",
        Some(405 | 501) => "; it takes no files ('swath serve --write' does)",
        Some(409) => "; a folder that is meant needs '/' at its end, and has to be there",
        Some(412) => "; what is there is not as the request supposes",
        _ => "",
    };
    let https = hints::of_https(&Party::Source(SourceName::direct(shown)), error);
    Failure::new(exit, format!("{shown}: {error}{hint}; {NOTHING}")).hints(https)
}

fn complain(destination: &str, error: &GetError, kept_bytes: u64, names: &Names) {
    let what = exit::about(destination, &names.shown(&exit::words(error)));
    say::err(&format!("swath: {what}"));
    let reasons = error.reasons();
    for Reason { of, why } in reasons {
        say::hint(&format!("{}: {why}", names.shown(&of.to_string())));
    }
    let mut errors = reasons.iter().filter_map(|reason| reason.why.lane_error());
    errors.find_map(|error: &LaneError| hints::of_trust(error)).into_iter().for_each(say::hint);
    hints::of(reasons).iter().for_each(|hint| say::hint(hint));
    tell_kept(kept_bytes, exit::what_next(error));
}

/// Say what is kept, if anything is, and what the same command makes of it.
fn tell_kept(kept_bytes: u64, what_next: &str) {
    if kept_bytes > 0 {
        let kept = units::bytes(kept_bytes);
        say::hint(&format!("{kept} are kept: {what_next}"));
    }
}

const GOES_ON: &str = "what is there is kept: the same command goes on from there";
const NOTHING: &str = "nothing of the file is there";
