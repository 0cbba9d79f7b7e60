//! `swath follow`: keeps datasets up to date with a feed.

pub mod args;

use std::sync::Arc;

use swath_jobs::{
    Address, Control, FollowError, FollowSpec, JobError, JobObserver, Jobs, Look, Network,
};
use swath_transfer::Stop;

use crate::exit::{Exit, chain, fail};
use crate::failure::Failure;
use crate::progress::look::show_details;
use crate::progress::{Mode, Progress};
use crate::screen::JobScreen;
use crate::{get, keys, say, signals};
use args::Follow;

/// Runs the command until a signal ends it; with `--once`, for one look.
pub async fn run(follow: Follow) -> Result<Exit, Failure> {
    let transfer = &follow.transfer;
    if transfer.verbose > 0 {
        show_details();
    }
    if transfer.json && say::is_closed() {
        return Err(Failure::new(Exit::Target, say::CLOSED));
    }
    if follow.swarm.keep_seeding || follow.swarm.ratio.is_some() {
        let text = "--keep-seeding and --ratio are not for 'swath follow'";
        return Err(Failure::usage(text).hint("use 'swath seed' to seed what it fetches"));
    }
    if transfer.report.is_some() || transfer.no_resume {
        return Err(Failure::usage("--report and --no-resume are not for 'swath follow'"));
    }
    let progress = Progress::new(Mode::choose(transfer.json, transfer.quiet));
    get::log_to(&progress, transfer.verbose > 1);
    let stop = Stop::default();
    signals::watch(&stop);
    let control = Control::from(stop);
    let (mut environment, network) = crate::net::environment(&transfer.net)?;
    let spec = FollowSpec {
        feed: Address::new(&follow.feed),
        dir: follow.dir.clone(),
        datasets: follow.dataset.clone(),
        key: follow.trust.as_deref().map(keys::public_key).transpose()?,
        allows_older: follow.allow_older,
        network: Network { limit_bytes_per_s: transfer.limit_rate, ..network },
        routes: transfer.routes.spec(&mut environment)?,
        disk: transfer.disk(),
        plan: transfer.plan.spec(None),
        swarm: follow.swarm.spec(),
    };
    let is_verbose = transfer.verbose > 0;
    let screen =
        || Arc::new(JobScreen::new(progress.clone(), false, is_verbose)) as Arc<dyn JobObserver>;
    let mut follower = Jobs::new(environment).follow(spec).map_err(failure)?;
    loop {
        let looked = follower.look(&screen, &control).await;
        progress.clear();
        if control.is_cancelled() {
            let text = "stopped: the same command resumes";
            return Ok(match looked {
                Ok(look) if look.failed.is_empty() => Exit::Done,
                _ => fail(Exit::Interrupted, text),
            });
        }
        if follow.once {
            let look = looked.map_err(failure)?;
            let is_new = !look.installed.is_empty();
            let exit = told(look, |_| true);
            if exit == Exit::Done && !is_new {
                progress.note("nothing new", false);
            }
            return Ok(exit);
        }
        match looked {
            Ok(look) => _ = told(look, |text| follower.is_news(text)),
            Err(error) => {
                let failure = failure(error);
                if follower.is_news(&failure.what) {
                    failure.tell();
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(follower.pause(follow.every)) => {}
            () = control.cancelled() => return Ok(Exit::Done),
        }
    }
}

/// Prints the failures of a look that are news. Returns the exit code of the worst one.
fn told(look: Look, mut is_news: impl FnMut(&str) -> bool) -> Exit {
    let mut exit = Exit::Done;
    for (dataset, error) in look.failed {
        let failure = failure(error).of(&dataset);
        exit = exit.max(failure.exit);
        if is_news(&failure.what) {
            failure.tell();
        }
    }
    exit
}

fn failure(error: FollowError) -> Failure {
    let text = chain(&error);
    match error {
        FollowError::Job(JobError::Stopped) => Failure::new(Exit::Interrupted, text),
        FollowError::Job(error) => error.into(),
        FollowError::Locked(_) | FollowError::State { .. } | FollowError::Swap { .. } => {
            Failure::new(Exit::Target, text)
        }
        FollowError::InTheWay(_) => {
            Failure::new(Exit::Target, text).hint("move it away, or choose another folder with -d")
        }
        FollowError::OtherFeed => {
            Failure::new(Exit::Target, text).hint("choose another folder with -d")
        }
        FollowError::OtherKey { .. } => Failure::new(Exit::Mismatch, text)
            .hint("nothing was replaced; another folder (-d) starts with the new key"),
        FollowError::Signature { .. }
        | FollowError::OtherIndex(_)
        | FollowError::Mismatch { .. }
        | FollowError::Unsigned(_) => {
            Failure::new(Exit::Mismatch, text).hint("nothing was replaced")
        }
        FollowError::Older { .. } => Failure::new(Exit::Mismatch, text)
            .hint("nothing was installed; --allow-older installs it all the same"),
        FollowError::Index(_) => Failure::sources(text),
        _ => Failure::input(text),
    }
}
