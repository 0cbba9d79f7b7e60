//! Many files: a stream of requests, some at a time, one display.

use std::sync::Arc;

use swath_store::OpenError;
use swath_transfer::{Engine, GetError, Request, Stop};
use tokio::task::JoinSet;

use super::inputs::Requests;
use super::one::Kept;
use crate::args::Get;
use crate::exit::{self, Exit, chain};
use crate::progress::{Fanout, Files, Progress};

/// Fetch every file that `requests` yields.
pub async fn run(
    get: &Get,
    engine: &Engine,
    title: &str,
    count: u64,
    requests: Requests,
    progress: &Progress,
    stop: &Stop,
) -> Exit {
    let files = progress.files(title, count, None);
    let mut running: JoinSet<Exit> = JoinSet::new();
    let mut tally = Tally::default();
    let stop = Arc::new(stop.clone());
    for (number, next) in requests.enumerate() {
        if stop.is_set() {
            break;
        }
        let request = match next {
            Ok(request) => request,
            Err((name, error)) => {
                files.failed(&name, &error);
                tally.add(Exit::Input);
                continue;
            }
        };
        while running.len() >= usize::from(get.jobs) {
            match running.join_next().await {
                Some(Ok(exit)) => tally.add(exit),
                Some(Err(_)) => tally.add(Exit::Internal),
                None => break,
            }
        }
        running.spawn(one_of_many(
            engine.clone(),
            request,
            files.clone(),
            number as u64,
            Arc::clone(&stop),
        ));
    }
    while let Some(ended) = running.join_next().await {
        tally.add(ended.unwrap_or(Exit::Internal));
    }
    files.end();
    if stop.is_set() {
        return exit::fail(Exit::Interrupted, "stopped: the same command goes on where it was");
    }
    tally.exit()
}

async fn one_of_many(
    engine: Engine,
    request: Request,
    files: Files,
    number: u64,
    stop: Arc<Stop>,
) -> Exit {
    let name = request.destination_name();
    let kept = Kept::default();
    let mut observer = Fanout(vec![files.observer(number), Box::new(kept.clone())]);
    match engine.get_observed(request, &mut observer, &stop).await {
        Ok(_) => Exit::Done,
        Err(GetError::Stopped) => Exit::Interrupted,
        // What has its name was complete: the same list goes on where it was stopped.
        Err(GetError::Open(OpenError::Exists(_))) => {
            files.present();
            Exit::Done
        }
        Err(error) => {
            // Failures before the transfer began are no events of it.
            if matches!(error, GetError::Open(_) | GetError::NoSources) {
                files.failed(&name, &chain(&error));
            }
            exit::of(&error, kept.bytes())
        }
    }
}

#[derive(Default)]
struct Tally {
    done: u64,
    failed: u64,
    worst: Option<Exit>,
}

impl Tally {
    fn add(&mut self, exit: Exit) {
        if exit == Exit::Done {
            self.done += 1;
        } else {
            self.failed += 1;
            self.worst = Some(self.worst.map_or(exit, |worst| worst.max(exit)));
        }
    }

    fn exit(&self) -> Exit {
        match (self.done, self.worst) {
            (_, None) => Exit::Done,
            (0, Some(worst)) => worst,
            (_, Some(_)) => Exit::Some,
        }
    }
}
