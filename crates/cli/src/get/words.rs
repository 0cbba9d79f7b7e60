//! Errors of single transfers, in words.

use swath_jobs::KeptData;
use swath_source::TlsFault;
use swath_store::{FileKind, FinishError, OpenError};
use swath_transfer::{GetError, Reason, Unlike};

use crate::exit::{self, Exit};
use crate::progress::units;
use crate::{hints, say};

/// Prints the error, what is kept and what to do; returns the exit code.
pub fn failed(name: &str, error: &GetError, kept: KeptData) -> Exit {
    complain(name, error, kept.bytes);
    exit::of(error, kept.received_bytes)
}

fn complain(name: &str, error: &GetError, kept_bytes: u64) {
    if let GetError::Output(error) = error
        && error.kind() == std::io::ErrorKind::BrokenPipe
    {
        say::error("standard output was closed before the end");
        return;
    }
    let to_stdout = name == "-";
    let name = if to_stdout { "standard output" } else { name };
    say::error(&exit::about(name, &exit::words(error)));
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
        format!("kept {} in {name}.swath.part: {next}{mirrors}", units::bytes(kept_bytes))
    };
    let hint = match error {
        GetError::Present { unlike: Unlike::Link, .. } => {
            Some("remove the link, or choose another folder with -d".to_owned())
        }
        GetError::Present { .. } => {
            Some("use --overwrite to replace it, or choose another name with -o, or another folder with -d".to_owned())
        }
        GetError::Finish(FinishError::Exists(_)) => Some(format!(
            "the file was created meanwhile; the received data is in {name}.swath.part: add --overwrite to replace the file"
        )),
        GetError::Open(OpenError::Locked(_)) => {
            Some("wait for the other transfer, or choose another name with -o".to_owned())
        }
        GetError::Open(OpenError::NoSpace { .. }) => Some(
            "free some space, choose another folder with -d, or use --sparse if much of the file is zeros"
                .to_owned(),
        ),
        GetError::Digest { .. } | GetError::Disagreement { .. } if to_stdout => {
            Some("the output is wrong or incomplete: do not use it".to_owned())
        }
        GetError::Disagreement { .. } => Some(
            "nothing is kept: give --digest, or fetch from only one of them".to_owned(),
        ),
        GetError::NoDigest if kept_bytes == 0 => Some(
            "nothing was fetched: give --digest, or a Metalink or a list with digests".to_owned(),
        ),
        GetError::Open(OpenError::NotAFile { path, kind }) => Some(match *kind {
            FileKind::Link => "name the target of the link, or remove the link".to_owned(),
            _ => format!("to write into it, use -o - > {}", path.display()),
        }),
        GetError::Open(OpenError::LinkOnTheWay { .. }) => Some(
            "files of a list or a Metalink must stay below that folder: remove the link, or name its target with -d"
                .to_owned(),
        ),
        GetError::Open(OpenError::Reserved(_)) => Some("choose another name with -o".to_owned()),
        GetError::Digest { .. } if kept_bytes > 0 => Some(format!(
            "kept {} in {name}.swath.part: with the right --digest, or with other mirrors, the same command resumes; --no-resume fetches everything again",
            units::bytes(kept_bytes)
        )),
        GetError::Digest { .. } => {
            Some("nothing is kept".to_owned())
        }
        GetError::DiskFull { .. } if kept_bytes == 0 => {
            Some("nothing is kept: free some space, or choose another folder with -d".to_owned())
        }
        GetError::Stopped if kept_bytes == 0 && !to_stdout => {
            Some("nothing was received yet".to_owned())
        }
        _ if kept_bytes > 0 => Some(kept()),
        _ => None,
    };
    if let Some(hint) = hint {
        say::hint(&hint);
    }
    if untrusted.contains(&TlsFault::UnknownAuthority) {
        say::hint(hints::TRUST);
    }
    // Where a certificate is another one than the user expects, nothing advises to trust it.
    if !untrusted.is_empty() && !untrusted.contains(&TlsFault::OtherFingerprint) {
        say::hint("--insecure accepts any certificate");
    }
}
