//! One file: bars, summary, report, words at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use swath_report::Recorder;
use swath_source::TlsFault;
use swath_store::{FileKind, FinishError, OpenError};
use swath_transfer::observe::{Event, Observer};
use swath_transfer::{Destination, Engine, GetError, Mirror, Reason, Request, Stop};
use url::Url;

use super::inputs::{self, Inputs, Place};
use super::many::Manner;
use crate::args::Get;
use crate::exit::{self, Exit};
use crate::progress::{Fanout, Progress, units};
use crate::{hints, report, say};

/// Fetch one file and say how it went.
pub async fn run(
    get: &Get,
    engine: &Engine,
    request: Request,
    progress: &Progress,
    stop: &Stop,
) -> Exit {
    let mut request = request;
    // The same all along, so that nothing is shown twice.
    let mut observers = Fanout(vec![progress.observer()]);
    loop {
        if let Destination::File(path) = &request.destination
            && let Some(failure) = report::clash(get.report.as_deref(), path)
        {
            progress.clear();
            return failure.tell();
        }
        let recorder = Recorder::new();
        let name = request.destination_name();
        let mirrors = request.mirrors.clone();
        let kept = Kept::default();
        observers.0.truncate(1);
        observers.0.push(Box::new(kept.clone()));
        if get.report.is_some() {
            observers.0.push(Box::new(recorder.clone()));
        }
        let result = engine.get_observed(request, &mut observers, stop).await;
        let exit = match result {
            Ok(_) => Exit::Done,
            Err(GetError::Metalink { url }) => {
                progress.clear();
                let next = tokio::select! {
                    next = with_metalink(get, engine, progress, mirrors, &url) => next,
                    () = stop.wait() => {
                        let words = "stopped before anything was fetched";
                        return exit::fail(Exit::Interrupted, words);
                    }
                };
                match next {
                    Inputs::One(next) => {
                        request = *next;
                        continue;
                    }
                    Inputs::Many(many) => {
                        return super::many::run(Manner::of(get), engine, many, progress, stop)
                            .await;
                    }
                }
            }
            Err(error) => {
                progress.clear();
                complain(&name, &error, kept.bytes());
                exit::of(&error, kept.come_bytes())
            }
        };
        let silent = get.quiet || get.json;
        return report::write(get.report.as_deref(), silent, recorder.recording(), exit);
    }
}

/// A server answered with a Metalink, or named one: what there is to fetch with its help. Without
/// it, if it is of no use.
async fn with_metalink(
    get: &Get,
    engine: &Engine,
    progress: &Progress,
    mirrors: Vec<Mirror>,
    url: &Url,
) -> Inputs {
    let is_instead = mirrors.iter().any(|mirror| mirror.url == *url);
    let place = if is_instead { Place::Instead } else { Place::Beside };
    match inputs::metalink_of(get, engine, progress, url, place).await {
        Ok(Inputs::One(mut next)) => {
            if !is_instead {
                next.destination = inputs::destination_again(get, &mirrors);
                next.beneath = None;
            }
            // The user's own addresses stay first among equals.
            let found = std::mem::replace(&mut next.mirrors, mirrors);
            for mirror in found {
                if !next.mirrors.iter().any(|known| known.url == mirror.url) {
                    next.mirrors.push(mirror);
                }
            }
            Inputs::One(next)
        }
        Ok(many) if is_instead => many,
        Ok(Inputs::Many(_)) => {
            let shown = swath_source::display_name(url);
            progress.note(&format!("{shown} describes several files and is not used"), true);
            Inputs::One(Box::new(inputs::request_again(get, mirrors)))
        }
        Err(failure) => {
            progress.note(&format!("{failure}; going on without it"), true);
            Inputs::One(Box::new(inputs::request_again(get, mirrors)))
        }
    }
}

/// What happened, what was kept, what to do next.
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

/// Remembers how a transfer failed.
#[derive(Clone, Default)]
pub struct Kept(Arc<Shared>);

#[derive(Default)]
struct Shared {
    bytes: AtomicU64,
    come_bytes: AtomicU64,
    told: AtomicBool,
}

impl Kept {
    /// Bytes kept for the next run.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// The same, if anybody has told.
    pub fn known_bytes(&self) -> Option<u64> {
        self.is_told().then(|| self.bytes())
    }

    /// Bytes that came or were there, whether a later run can make use of them or not.
    pub fn come_bytes(&self) -> u64 {
        self.0.come_bytes.load(Ordering::Relaxed).max(self.bytes())
    }

    /// Whether its failure was an event that all observers heard.
    pub fn is_told(&self) -> bool {
        self.0.told.load(Ordering::Relaxed)
    }
}

impl Observer for Kept {
    fn observe(&mut self, event: &Event) {
        let come_bytes = match event {
            Event::Opened { resumed_bytes, kept_bytes, .. } => resumed_bytes + kept_bytes,
            Event::Progress(now) => now.done_bytes,
            Event::Failed { kept_bytes, summary, .. } => {
                self.0.bytes.store(*kept_bytes, Ordering::Relaxed);
                self.0.told.store(true, Ordering::Relaxed);
                summary.fetched_bytes
            }
            _ => 0,
        };
        self.0.come_bytes.fetch_max(come_bytes, Ordering::Relaxed);
    }
}
