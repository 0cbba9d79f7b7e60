//! One file: bars, summary, report, words at the end.

use std::io::Write as _;

use swath_transfer::observe::{Event, Observer};
use swath_transfer::report::{Recorder, render};
use swath_transfer::{Engine, GetError, Mirror, Request, Stop, Trust};
use url::Url;

use super::inputs::{self, Inputs};
use crate::args::Get;
use crate::exit::{self, Exit, chain};
use crate::progress::{Fanout, Progress, units};

/// Fetch one file and say how it went.
pub async fn run(
    get: &Get,
    engine: &Engine,
    request: Request,
    progress: &Progress,
    stop: &Stop,
) -> Exit {
    let recorder = Recorder::new();
    let mut request = request;
    loop {
        let name = request.destination_name();
        let mirrors = request.mirrors.clone();
        let kept = Kept::default();
        let mut observers: Vec<Box<dyn Observer>> =
            vec![progress.observer(), Box::new(kept.clone())];
        if get.report.is_some() {
            observers.push(Box::new(recorder.clone()));
        }
        let result = engine.get_observed(request, &mut Fanout(observers), stop).await;
        let exit = match result {
            Ok(_) => Exit::Done,
            Err(GetError::Metalink { url }) => {
                progress.clear();
                let next = tokio::select! {
                    next = with_metalink(get, engine, mirrors, &url) => next,
                    () = stop.wait() => return exit::fail(Exit::Interrupted, "stopped"),
                };
                match next {
                    Inputs::One(next) => {
                        request = *next;
                        continue;
                    }
                    Inputs::Many { title, count, requests } => {
                        return super::many::run(
                            get, engine, &title, count, requests, progress, stop,
                        )
                        .await;
                    }
                }
            }
            Err(error) => {
                progress.clear();
                complain(&name, &error, kept.bytes());
                exit::of(&error, kept.bytes())
            }
        };
        return write_report(get, &recorder, exit);
    }
}

/// A server answered with a Metalink, or named one: what there is to fetch with its help. Without
/// it, if it is of no use.
async fn with_metalink(get: &Get, engine: &Engine, mirrors: Vec<Mirror>, url: &Url) -> Inputs {
    let is_instead = mirrors.iter().any(|mirror| mirror.url == *url);
    match inputs::metalink_of(get, engine, url, Trust::Discovered).await {
        Ok(Inputs::One(mut next)) => {
            if !is_instead {
                next.destination = inputs::destination_again(get, &mirrors);
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
        Ok(Inputs::Many { .. }) => {
            eprintln!(
                "swath: {} describes several files and is not used",
                swath_source::display_name(url)
            );
            Inputs::One(Box::new(inputs::request_again(get, mirrors)))
        }
        Err((_, message)) => {
            eprintln!("swath: {message}; going on without it");
            Inputs::One(Box::new(inputs::request_again(get, mirrors)))
        }
    }
}

/// What happened, what was kept, what to do next.
pub fn complain(name: &str, error: &GetError, kept_bytes: u64) {
    let mut err = std::io::stderr().lock();
    if let GetError::Write { error, .. } = error
        && error.kind() == std::io::ErrorKind::BrokenPipe
    {
        let _ = writeln!(err, "swath: standard output was closed before the end");
        return;
    }
    let name = if name == "-" { "standard output" } else { name };
    let _ = writeln!(err, "swath: {name}: {}", chain(error));
    if let GetError::Exhausted { reasons } | GetError::Stalled { reasons, .. } = error {
        for (source, reason) in reasons {
            let _ = writeln!(err, "  {source}: {reason}");
        }
    }
    let hint = match error {
        GetError::Open(swath_store::OpenError::Exists(_)) => Some("use --overwrite to replace it, or -o for another name".to_owned()),
        GetError::Open(swath_store::OpenError::Locked(_)) => Some("wait for it, or choose another name with -o".to_owned()),
        GetError::Open(swath_store::OpenError::NoSpace { .. }) => Some(
            "make room, choose another folder with -d, or use --sparse if much of the file is zeros".to_owned(),
        ),
        GetError::Digest { .. } => Some("the data was not given its name".to_owned()),
        _ if kept_bytes > 0 => Some(format!(
            "{} are kept in {name}.swath.part: the same command goes on from there, also with other mirrors",
            units::bytes(kept_bytes)
        )),
        _ => None,
    };
    if let Some(hint) = hint {
        let _ = writeln!(err, "  {hint}");
    }
}

fn write_report(get: &Get, recorder: &Recorder, exit: Exit) -> Exit {
    let Some(path) = &get.report else { return exit };
    match std::fs::write(path, render(&recorder.recording())) {
        Ok(()) => {
            if !get.quiet && !get.json {
                eprintln!("report: {}", path.display());
            }
            exit
        }
        Err(error) => exit::fail(
            exit.max(Exit::Target),
            &format!("cannot write the report to {}: {error}", path.display()),
        ),
    }
}

/// Remembers how much a failed transfer has kept.
#[derive(Clone, Default)]
pub struct Kept(std::sync::Arc<std::sync::atomic::AtomicU64>);

impl Kept {
    /// Bytes kept for the next run.
    pub fn bytes(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Observer for Kept {
    fn observe(&mut self, event: &Event) {
        if let Event::Failed { kept_bytes, .. } = event {
            self.0.store(*kept_bytes, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
