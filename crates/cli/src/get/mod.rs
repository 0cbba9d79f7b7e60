//! `swath get`: turns the command line into a job, and prints the result.

mod swarm;
pub mod words;

pub use swarm::{SwarmArgs, tracker};

use std::io::{self, BufReader, IsTerminal as _};
use std::path::Path;
use std::sync::Arc;

use crate::args::Get;
use crate::cluster;
use crate::cp::args::Cp;
use crate::exit::{Exit, fail};
use crate::failure::Failure;
use crate::link;
use crate::net::shown_text;
use crate::progress::look::show_details;
use crate::progress::{Mode, Progress};
use crate::report;
use crate::say;
use crate::screen::JobScreen;
use crate::signals;
use swath_formats::torrent::Magnet;
use swath_jobs::{
    Address, ChecksumsFrom, Control, Environment, GetFrom, GetSpec, GetTo, JobError, JobObserver,
    JobSpec, Jobs, Network, Routes, SecretRef, ServerNames, Streams, TorrentAt, Work,
};
use swath_transfer::Stop;

/// Runs the command.
pub async fn run(get: Get) -> Result<Exit, Failure> {
    if get.transfer.verbose > 0 {
        show_details();
    }
    let to_stdout = get.output.as_deref().is_some_and(is_standard);
    if to_stdout && get.transfer.json {
        return Err(Failure::new(Exit::Usage, "--json and '-o -' both write to standard output"));
    }
    if (to_stdout || get.transfer.json) && say::is_closed() {
        return Err(Failure::new(Exit::Target, say::CLOSED));
    }
    if to_stdout && !get.force_terminal && io::stdout().is_terminal() {
        let text = "-o - would write the file to the terminal";
        let hint = "use -o FILE, or a pipe, or --force-terminal";
        return Err(Failure::usage(text).hint(hint));
    }
    get.compat.explain();
    check(&get)?;
    report::check(get.transfer.report.as_deref())?;
    let progress = Progress::new(Mode::choose(get.transfer.json, get.transfer.quiet));
    log_to(&progress, get.transfer.verbose > 1);
    let stop = Stop::default();
    signals::watch(&stop);
    let (spec, environment) = spec(&get)?;
    let streams = Streams {
        list: Some(Arc::new(|| Box::new(BufReader::new(io::stdin())))),
        output: Some(Arc::new(|| Box::new(tokio::io::stdout()))),
    };
    let screen = Arc::new(JobScreen::new(
        progress.clone(),
        get.transfer.report.is_some(),
        get.transfer.verbose > 0,
    ));
    let observer: Arc<dyn JobObserver> = screen.clone();
    let jobs = Jobs::new(environment);
    let ended = jobs.run(&spec, &streams, &observer, &Control::from(stop)).await;
    let exit = match ended {
        Ok(_) => Exit::Done,
        Err(JobError::Files(files)) if files.is_stopped => {
            fail(Exit::Interrupted, "stopped: the same command resumes")
        }
        Err(JobError::Files(files)) => screen.exit_of_list(files),
        Err(JobError::Transfer { name, error, kept }) => {
            progress.clear();
            words::failed(&name, &error, kept)
        }
        // No transfer has begun, so there is nothing to report.
        Err(error) => {
            progress.clear();
            return Err(Failure::from(error));
        }
    };
    let (page, is_quiet) = (get.transfer.report.as_deref(), get.transfer.is_quiet());
    Ok(report::write(page, is_quiet, screen.recording(), exit))
}

/// Whether the command names links to folders alone, and no option that only a file has: such links are
/// copied, as 'swath serve' prints one link for files and folders.
pub fn leads_to_folder(get: &Get) -> bool {
    let is_of_file = get.latest.is_some()
        || get.checksums.is_some()
        || get.output.as_deref().is_some_and(|path| is_standard(path) || path.to_str().is_none())
        || get.dir.as_deref().is_some_and(|path| path.to_str().is_none())
        || !(get.digest.is_empty() && get.select.is_empty());
    let mut sources = get.sources.iter();
    !is_of_file && !get.sources.is_empty() && sources.all(|it| link::folder_name(it).is_some())
}

/// Returns the command that copies the folder.
pub fn of_folder(get: Get) -> Cp {
    let Get { sources, output, dir, deadline, transfer, .. } = get;
    let name = sources.first().and_then(|it| link::folder_name(it)).unwrap_or_default();
    // With './' a colon in it does not make it another machine's.
    let to = Path::new("./").join(dir.unwrap_or_default()).join(output.unwrap_or(name.into()));
    let to = format!("{}/", to.display());
    if !transfer.is_quiet() {
        say::err(&format!("the link leads to a folder: copying it to {to}, as 'swath cp' does"));
    }
    let bare = Cp::bare(".".to_owned(), transfer);
    Cp { places: sources.into_iter().chain([to]).collect(), deadline, ..bare }
}

/// Checks the options before anything is read or contacted.
fn check(get: &Get) -> Result<(), Failure> {
    match &get.output {
        Some(path) if get.input.is_none() && is_a_folder(path) => {
            let path = path.display();
            let text = format!("-o {path} is a folder: use -d {path} to write into it");
            Err(Failure::usage(text))
        }
        _ => Ok(()),
    }
}

fn is_a_folder(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir()
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns the job and its environment.
pub fn spec(get: &Get) -> Result<(JobSpec, Environment), Failure> {
    let (mut environment, network) = crate::net::environment(&get.transfer.net)?;
    let routes = get.transfer.routes.spec(&mut environment)?;
    let mut job = of(get, network, routes)?;
    if let Work::Get(work) = &mut job.work {
        work.cluster_token = cluster_token(get, work, &mut environment)?;
    }
    Ok((job, environment))
}

fn of(get: &Get, network: Network, routes: Routes) -> Result<JobSpec, Failure> {
    let dir = get.dir.clone().unwrap_or_default();
    let to = match &get.output {
        Some(path) if is_standard(path) => GetTo::Stream,
        Some(path) => GetTo::File(dir.join(path)),
        None => GetTo::Folder(dir),
    };
    let work = GetSpec {
        digests: get.digest.clone(),
        checksums: get.checksums.as_deref().map(|which| match which {
            "auto" => ChecksumsFrom::Beside,
            which if which.contains("://") => ChecksumsFrom::Address(Address::new(which)),
            path => ChecksumsFrom::File(path.into()),
        }),
        require_digest: get.require_digest,
        overwrite: get.overwrite,
        resume: get.transfer.resumes(),
        sparse: get.sparse,
        server_names: match get.compat.takes_servers_name() {
            true => ServerNames::Always,
            false => get.server_names,
        },
        discover: !get.no_discover,
        files_at_once: get.jobs,
        reserved: get.transfer.report.iter().cloned().collect(),
        swarm: get.swarm.spec(),
        select: get.select.clone(),
        ..GetSpec::new(from(get)?, to)
    };
    Ok(JobSpec {
        work: Work::Get(work),
        network: Network { limit_bytes_per_s: get.transfer.limit_rate, ..network },
        routes,
        disk: get.transfer.disk(),
        plan: get.transfer.plan.spec(get.compat.split),
        deadline_s: get.deadline.map(|deadline| deadline.as_secs().max(1)),
    })
}

/// Returns where the token is, if the file is shared within a cluster.
fn cluster_token(
    get: &Get,
    work: &GetSpec,
    environment: &mut Environment,
) -> Result<Option<SecretRef>, Failure> {
    let Some(token) = &get.cluster_token else { return Ok(None) };
    if matches!(work.from, GetFrom::Torrent { .. } | GetFrom::Feed { .. }) {
        let text = "--share is for files without a torrent: peers share a torrent already";
        return Err(Failure::usage(text));
    }
    cluster::check(!get.swarm.peer.is_empty() || !get.swarm.tracker.is_empty())?;
    cluster::provide(token, environment);
    Ok(Some(cluster::token(token)))
}

fn from(get: &Get) -> Result<GetFrom, Failure> {
    match &get.input {
        Some(path) if is_standard(path) => return Ok(GetFrom::ListStream),
        Some(path) => return Ok(GetFrom::List(path.clone())),
        None => {}
    }
    if get.latest.is_some() || get.sources.iter().any(|text| has_ending(text, &[".rss", ".atom"])) {
        let [feed] = &get.sources[..] else {
            return Err(Failure::usage(
                "a feed (with --latest, or .rss, or .atom) must be the only source",
            ));
        };
        return Ok(GetFrom::Feed { feed: Address::new(feed), dataset: get.latest.clone() });
    }
    if let Some(text) = get.sources.iter().find(|text| is_torrent(text)) {
        return of_torrent(get, text);
    }
    let Some(text) = get.sources.iter().find(|text| !text.contains("://")) else {
        return Ok(GetFrom::Replicas(get.sources.iter().map(Address::new).collect()));
    };
    let shown = shown_text(text);
    if !Path::new(text).is_file() {
        let text = format!("{shown} is neither a URL nor a file");
        return Err(Failure::input(text).hints(hint_of_scheme(&shown)));
    }
    if get.sources.len() > 1 {
        return Err(Failure::usage(format!("{shown} is a Metalink: give it as the only source")));
    }
    Ok(GetFrom::Metalink(text.into()))
}

/// Returns whether a source is a torrent by its name.
fn is_torrent(text: &str) -> bool {
    Magnet::is_magnet(text) || has_ending(text, &[".torrent"])
}

/// Returns whether the path of a source, a URL or a file, ends so.
fn has_ending(text: &str, endings: &[&str]) -> bool {
    let path = text.split(['?', '#']).next().filter(|_| text.contains("://")).unwrap_or(text);
    let path = path.to_ascii_lowercase();
    endings.iter().any(|ending| path.ends_with(ending))
}

/// Returns a torrent, and its other mirrors.
fn of_torrent(get: &Get, text: &str) -> Result<GetFrom, Failure> {
    let mut others = get.sources.iter().filter(|other| *other != text);
    if let Some(other) = others.clone().find(|other| is_torrent(other) || !other.contains("://")) {
        let (torrent, other) = (shown_text(text), shown_text(other));
        let text =
            format!("{torrent} is a torrent: besides it, give URLs of mirrors only, not {other}");
        return Err(Failure::usage(text));
    }
    let torrent = match text.contains("://") {
        _ if Magnet::is_magnet(text) => TorrentAt::Magnet(text.to_owned()),
        true => TorrentAt::Address(Address::new(text)),
        false => TorrentAt::File(text.into()),
    };
    Ok(GetFrom::Torrent { torrent, mirrors: others.by_ref().map(Address::new).collect() })
}

/// Suggests a URL for an address without its scheme.
fn hint_of_scheme(text: &str) -> Option<String> {
    let (site, _) = text.split_once('/').unwrap_or((text, ""));
    let (host, port) = site.rsplit_once(':').unwrap_or((site, ""));
    let is_port = !port.is_empty() && port.parse::<u16>().is_ok();
    let is_host = host == "localhost" || host.contains('.') && text.contains('/');
    let fits = (is_port || is_host) && !host.starts_with('.') && !host.is_empty();
    let scheme = if port == "443" || port == "8470" { "https" } else { "http" };
    fits.then(|| format!("did you mean {scheme}://{text}?"))
}

/// Prints a debug log above the bars if `SWATH_LOG` is set (to `debug`, `swath_transfer=trace`, …) or
/// `is_wanted`.
pub fn log_to(progress: &Progress, is_wanted: bool) {
    let filter = match std::env::var_os("SWATH_LOG") {
        Some(_) => tracing_subscriber::EnvFilter::from_env("SWATH_LOG"),
        None if is_wanted => tracing_subscriber::EnvFilter::new(INSIDE),
        None => return,
    };
    let writer = progress.log_writer();
    let told = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .try_init();
    // A second subscriber would be a bug, but no reason to stop.
    debug_assert!(told.is_ok());
}

/// The debug log of `-vv`.
const INSIDE: &str =
    "swath=debug,swath_jobs=debug,swath_source=debug,swath_store=debug,swath_transfer=debug";
