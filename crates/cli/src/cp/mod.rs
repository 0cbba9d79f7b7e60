//! `swath cp`: turns the command line into one job for each copy, and prints the results.

pub mod args;

mod cluster;
mod dry;
mod failed;
mod result;

use std::path::PathBuf;
use std::sync::Arc;

use crate::exit::{Exit, fail};
use crate::failure::Failure;
use crate::progress::{Mode, Progress};
use crate::screen::JobScreen;
use crate::{report, say, signals};
use args::Cp;
use swath_jobs::copy::{self, CopyKind, MissingSource, is_here};
use swath_jobs::{
    Control, CopySpec, JobError, JobObserver, JobSpec, Jobs, Network, Outcome, Routes, Streams,
    Work,
};
use swath_transfer::Stop;

pub use dry::{DryRun, another_name};
pub use failed::{of as failure, ssh as ssh_failure};

/// Returns the local path whose disk matters: the destination, else the source.
pub fn near(places: &[String]) -> PathBuf {
    let here = places.iter().rev().find(|place| is_here(place));
    here.map(PathBuf::from).unwrap_or_default()
}

/// Runs the command.
pub async fn run(cp: Cp) -> Exit {
    let copies = copies(&cp);
    carry_out(cp, copies).await
}

/// Follows a copy that a server carries out.
pub async fn follow(cp: Cp, kind: CopyKind) -> Exit {
    let copies = vec![Ok(cp.spec(kind))];
    carry_out(cp, Ok(copies)).await
}

/// The copies of a command; one of several that cannot be made is an error of its own.
type Copies = Result<Vec<Result<CopySpec, MissingSource>>, Failure>;

async fn carry_out(cp: Cp, copies: Copies) -> Exit {
    if cp.transfer.verbose > 0 {
        crate::progress::look::show_details();
    }
    let refuse = |failure: Failure| {
        let to = cp.places.last().map(|to| copy::shown(to)).unwrap_or_default();
        refused(&cp, &to, &failure)
    };
    if cp.transfer.json && say::is_closed() {
        return fail(Exit::Target, say::CLOSED);
    }
    cp.compat.explain();
    let copies = match copies {
        Ok(copies) => copies,
        Err(failure) => return refuse(failure),
    };
    if let Err(failure) = report::check(cp.transfer.report.as_deref()) {
        return refuse(failure);
    }
    let progress = Progress::new(Mode::choose(cp.transfer.json, cp.transfer.quiet));
    crate::get::log_to(&progress, cp.transfer.verbose > 1);
    let stop = Stop::default();
    signals::watch(&stop);
    let to_a_server = |copy: &CopySpec| {
        copy.kind.sends_to_server() || matches!(copy.kind, CopyKind::ThirdParty { .. })
    };
    if copies.iter().flatten().any(to_a_server) && cp.transfer.routes.which.names_relays() {
        progress.note("--relay and --route are ignored when the destination is a server", true);
    }
    let (jobs, network, routes) = match ready(&cp, &copies) {
        Ok(ready) => ready,
        Err(failure) => return refuse(failure),
    };
    let mut exit = Exit::Done;
    for copy in copies {
        let ended = match copy {
            Ok(copy) => {
                let spec = spec_of(&cp, copy, &network, &routes);
                Box::pin(one(&cp, &jobs, &spec, &progress, &stop)).await
            }
            Err(MissingSource { why, to }) => refused(&cp, &to, &Failure::input(why.to_string())),
        };
        if exit == Exit::Done || ended == Exit::Interrupted {
            exit = ended;
        }
        if ended == Exit::Interrupted {
            break;
        }
    }
    exit
}

/// Returns the jobs of a command, and what runs them.
pub fn specs(cp: &Cp) -> Result<(Jobs, Vec<JobSpec>), Failure> {
    let copies = copies(cp)?;
    let (jobs, network, routes) = ready(cp, &copies)?;
    let specs = copies.into_iter().map(|copy| match copy {
        Ok(copy) => Ok(spec_of(cp, copy, &network, &routes)),
        Err(MissingSource { why, .. }) => Err(Failure::input(why.to_string())),
    });
    Ok((jobs, specs.collect::<Result<_, _>>()?))
}

fn spec_of(cp: &Cp, copy: CopySpec, network: &Network, routes: &Routes) -> JobSpec {
    JobSpec {
        work: Work::Copy(copy),
        network: network.clone(),
        routes: routes.clone(),
        disk: cp.transfer.disk(),
        plan: cp.transfer.plan.spec(None),
        deadline_s: cp.deadline.map(|deadline| deadline.as_secs().max(1)),
    }
}

/// Prints why nothing was copied.
fn refused(cp: &Cp, to: &str, failure: &Failure) -> Exit {
    result::print_failed_event(cp, false, to, &failure.to_string(), None);
    failure.tell()
}

/// Returns the copies in their order.
fn copies(cp: &Cp) -> Copies {
    if cp.preserves_none_and_more() {
        return Err(Failure::usage("--preserve none cannot be combined"));
    }
    let kinds = copy::copies(&cp.places).map_err(failed::place)?;
    if kinds.len() > 1 && (cp.transfer.report.is_some() || cp.keep_index.is_some()) {
        return Err(Failure::usage("--report and --keep-index need a single source"));
    }
    if kinds.len() > 1 && cp.cluster.share {
        return Err(Failure::usage("--share needs a single source, or replicas of one tree"));
    }
    let is_third_party = |kind: &CopyKind| {
        matches!(kind, CopyKind::ThirdParty { .. } | CopyKind::BetweenBySsh { .. })
    };
    if cp.detach && !kinds.iter().flatten().all(is_third_party) {
        return Err(Failure::usage("--detach is for copies between servers"));
    }
    if cp.through_here && !kinds.iter().flatten().all(is_third_party) {
        return Err(Failure::usage("--through-here is for copies between servers"));
    }
    if cp.detach && cp.transfer.report.is_some() {
        return Err(Failure::usage("--report needs the whole copy: use it with 'swath attach'"));
    }
    if cp.transfer.net.insecure && !cp.through_here && kinds.iter().flatten().any(is_third_party) {
        return Err(Failure::usage(
            "--insecure does not apply between servers: name their certificates with --fingerprint",
        ));
    }
    cp.cluster.check()?;
    cp.filter()?;
    let copies: Vec<_> = kinds.into_iter().map(|kind| kind.map(|kind| cp.spec(kind))).collect();
    for copy in copies.iter().flatten() {
        copy.check().map_err(failed::of)?;
    }
    Ok(copies)
}

/// Returns what all copies share.
fn ready(
    cp: &Cp,
    copies: &[Result<CopySpec, MissingSource>],
) -> Result<(Jobs, Network, Routes), Failure> {
    let (mut environment, network) = crate::net::environment(&cp.transfer.net)?;
    cp.cluster.provide(&mut environment);
    let is_routed = |copy: &CopySpec| {
        let by_ssh = matches!(
            copy.kind,
            CopyKind::FetchBySsh { .. }
                | CopyKind::SendBySsh { .. }
                | CopyKind::BetweenBySsh { .. }
        );
        !by_ssh && !matches!(copy.kind, CopyKind::Local { .. })
    };
    let routes = match copies.iter().flatten().any(is_routed) {
        true => cp.transfer.routes.spec(&mut environment)?,
        false => Routes::default(),
    };
    let network = Network { limit_bytes_per_s: cp.transfer.limit_rate, ..network };
    Ok((Jobs::new(environment), network, routes))
}

/// Runs one copy and prints the result.
async fn one(cp: &Cp, jobs: &Jobs, spec: &JobSpec, progress: &Progress, stop: &Stop) -> Exit {
    let Work::Copy(copy) = &spec.work else { return Exit::Internal };
    let plan = DryRun::new(cp.transfer.json, cp.transfer.quiet);
    let screen =
        JobScreen::new(progress.clone(), cp.transfer.report.is_some(), false).planning(&plan);
    let screen = Arc::new(screen);
    let observer: Arc<dyn JobObserver> = screen.clone();
    let control = Control::from(stop.clone());
    let ended = jobs.run(spec, &Streams::default(), &observer, &control).await;
    progress.clear();
    let exit = match ended {
        Ok(Outcome::Copied(copied)) => {
            result::print_rate(cp, &copied);
            result::print(cp, &plan, &copied.received, &copied.destination)
        }
        Ok(Outcome::Planned { matches }) => return plan.end(matches),
        Ok(Outcome::Begun { job, at }) => return result::print_begun(cp, &job, &at),
        Ok(_) => Exit::Done,
        Err(JobError::Files(files)) => screen.exit_of_list(files),
        Err(JobError::Copy(error)) => match failed::say(cp, &plan, *error) {
            Ok(exit) => exit,
            Err(failure) => return refused(cp, &copy.kind.destination(), &failure),
        },
        Err(JobError::Stopped) => {
            let failure = Failure::new(Exit::Interrupted, "stopped before anything was copied");
            return refused(cp, &copy.kind.destination(), &failure);
        }
        Err(error) => return refused(cp, &copy.kind.destination(), &Failure::from(error)),
    };
    report::write(cp.transfer.report.as_deref(), cp.transfer.is_quiet(), screen.recording(), exit)
}
