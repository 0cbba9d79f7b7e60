//! The end of a transfer that failed, in words.

use swath_jobs::Leftover;
use swath_source::TlsFault;
use swath_store::{FileKind, FinishError, OpenError};
use swath_transfer::{GetError, Reason};

use crate::exit::{self, Exit};
use crate::progress::units;
use crate::{hints, say};

/// Say what happened, what was kept, what to do next.
pub fn failed(name: &str, error: &GetError, kept: Leftover) -> Exit {
    complain(name, error, kept.bytes);
    exit::of(error, kept.come_bytes)
}

fn complain(name: &str, error: &GetError, kept_bytes: u64) {
    if let GetError::Output(error) = error
        && error.kind() == std::io::ErrorKind::BrokenPipe
    {
        say::err("swath: standard output was closed before the end");
        return;
    }
    let to_stdout = name == "-";
    let name = if to_stdout { "standard output" } else { name };
    say::err(&format!("swath: {}", exit::about(name, &exit::words(error))));
    let reasons = error.reasons();
    for Reason { of, why } in reasons {
        say::hint(&format!("{of}: {why}"));
    }
    hints::of(reasons).iter().for_each(|hint| say::hint(hint));
    let errors = reasons.iter().filter_map(|reason| reason.why.lane_error());
    let untrusted: Vec<TlsFault> = errors.filter_map(hints::untrusted_here).collect();
    let kept = || {
        let next = exit::what_next(error);
        let mirrors = if exit::is_of_old_file(error) { "" } else { ", also with other mirrors" };
        format!("{} are kept in {name}.swath.part: {next}{mirrors}", units::bytes(kept_bytes))
    };
    let hint = match error {
        GetError::Present { .. } => {
            Some("use --overwrite to replace it, or -o for another name".to_owned())
        }
        GetError::Finish(FinishError::Exists(_)) => Some(format!(
            "somebody made it meanwhile; what came is in {name}.swath.part: the same command with --overwrite puts it in its place"
        )),
        GetError::Open(OpenError::Locked(_)) => {
            Some("wait for it, or choose another name with -o".to_owned())
        }
        GetError::Open(OpenError::NoSpace { .. }) => Some(
            "make room, choose another folder with -d, or use --sparse if much of the file is zeros"
                .to_owned(),
        ),
        GetError::Digest { .. } | GetError::Disagreement { .. } if to_stdout => {
            Some("what was written to the output is wrong or not all of it: whoever read it must not use it".to_owned())
        }
        GetError::Disagreement { .. } => Some(
            "nothing of it is kept: give --digest, or fetch from one of them alone".to_owned(),
        ),
        GetError::NoDigest if kept_bytes == 0 => Some(
            "nothing was fetched: give --digest, or a Metalink or a list with digests".to_owned(),
        ),
        GetError::Open(OpenError::NotAFile { path, kind }) => Some(match *kind {
            FileKind::Link => "name the file that it leads to, or remove the link".to_owned(),
            _ => format!("only files are replaced; -o - > {} writes into it", path.display()),
        }),
        GetError::Open(OpenError::LinkOnTheWay { .. }) => Some(
            "the names of a list or a Metalink stay below that folder: remove the link, or name the folder that it leads to with -d"
                .to_owned(),
        ),
        GetError::Open(OpenError::Reserved(_)) => Some("choose another name with -o".to_owned()),
        GetError::Digest { .. } if kept_bytes > 0 => Some(format!(
            "the data was not given its name; {} are kept in {name}.swath.part: with the right --digest, or with other mirrors, the same command goes on from there, with --no-resume it fetches all of it again",
            units::bytes(kept_bytes)
        )),
        GetError::Digest { .. } => {
            Some("the data was not given its name".to_owned())
        }
        GetError::DiskFull { .. } if kept_bytes == 0 => {
            Some("nothing is kept: make room, or choose another folder with -d".to_owned())
        }
        GetError::Stopped if kept_bytes == 0 && !to_stdout => {
            Some("nothing had come yet that could be kept".to_owned())
        }
        _ if kept_bytes > 0 => Some(kept()),
        _ => None,
    };
    if let Some(hint) = hint {
        say::hint(&hint);
    }
    if untrusted.contains(&TlsFault::UnknownAuthority) {
        say::hint("--ca FILE trusts the authority in it, --insecure accepts any certificate");
    } else if !untrusted.is_empty() {
        say::hint("--insecure accepts any certificate");
    }
}
