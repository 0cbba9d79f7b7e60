//! `swath cp`: whole trees.

pub mod args;

mod send;
pub mod ssh;
pub mod wire;

use std::path::PathBuf;

use swath_transfer::observe::{Event, Observer};
use swath_transfer::report::Recorder;
use swath_transfer::{Change, Engine, Filter, GetError, Mirror, Stop, TreeRequest, Trust};
use url::Url;

use crate::engine::{self, Wishes};
use crate::exit::{self, Exit, fail};
use crate::progress::{Fanout, Mode, Progress, units};
use crate::{report, say, signals};
use args::{Compare, Cp};
use send::Sent;
use ssh::{Remote, Session};
use wire::Received;

/// What is copied where.
#[derive(Debug, PartialEq, Eq)]
enum Job {
    /// A tree from its replicas.
    Fetch { from: Vec<Url>, to: PathBuf },
    /// A folder of ours to a server.
    Send { from: PathBuf, to: Url },
    /// A tree from a machine that ssh leads to.
    FetchBySsh { from: Remote, to: PathBuf },
    /// A folder of ours to such a machine.
    SendBySsh { from: PathBuf, to: Remote },
}

/// Run the command.
pub async fn run(cp: Cp) -> Exit {
    let job = match job(&cp.places) {
        Ok(job) => job,
        Err(message) => return fail(Exit::Usage, &message),
    };
    let filter = match cp.filter() {
        Ok(filter) => filter,
        Err(message) => return fail(Exit::Usage, &message),
    };
    if matches!(job, Job::Send { .. } | Job::SendBySsh { .. }) && cp.keep_index.is_some() {
        let words =
            "--keep-index: this side only sends ('swath verify' takes a server's address too)";
        return fail(Exit::Usage, words);
    }
    if let Err((exit, message)) = report::check(cp.report.as_deref()) {
        return fail(exit, &message);
    }
    let progress = Progress::new(Mode::choose(cp.json, cp.quiet));
    crate::get::log_to(&progress);
    let stop = Stop::default();
    signals::watch(&stop);
    let (job, session) = match by_ssh(&cp, job, &progress, &stop).await {
        Ok(ready) => ready,
        Err((exit, message)) => return fail(exit, &message),
    };
    let own_server = session.as_ref().map(|it| (it.bearer.clone(), it.fingerprint));
    let wishes = Wishes {
        own_server,
        net: &cp.net,
        limit_rate: cp.limit_rate,
        metalinks: false,
        io: cp.io,
        memory: cp.memory,
        to_stdout: false,
    };
    let engine = match engine::start(&wishes) {
        Ok(engine) => engine,
        Err((exit, message)) => return fail(exit, &message),
    };
    let recorder = Recorder::new();
    let kept = crate::get::Kept::default();
    let mut observers: Vec<Box<dyn Observer>> = vec![progress.observer(), Box::new(kept.clone())];
    if cp.report.is_some() {
        observers.push(Box::new(recorder.clone()));
    }
    let mut observer = Fanout(observers);
    let exit = match job {
        Job::FetchBySsh { .. } | Job::SendBySsh { .. } => Exit::Internal,
        Job::Fetch { from, to } => {
            let copied = fetch(&cp, filter, &engine, from, to.clone(), &mut observer, &stop).await;
            progress.clear();
            let shown = to.display().to_string();
            match copied {
                Ok(tree) => told(&cp, &tree, &shown),
                Err(error) => {
                    complain(&shown, &error, kept.bytes());
                    exit::of(&error, kept.bytes())
                }
            }
        }
        Job::Send { from, to } => {
            let query = query(&cp);
            let net = engine.net();
            let what = send::Load { folder: &from, filter, limit_bytes_per_s: cp.limit_rate };
            let sent = send::send(net, what, &to, &query, &mut observer, &stop).await;
            if let Sent::All(received) = &sent
                && !cp.dry_run
            {
                let mut summary = received.transfer.clone();
                summary.path = swath_source::display_name(&to);
                observer.observe(&Event::Finished(summary));
            }
            progress.clear();
            let shown = swath_source::display_name(&to);
            let goes_on = "what is there is kept: the same command goes on from there";
            match sent {
                Sent::All(received) => told(&cp, &received, &shown),
                Sent::Failed(failed) => {
                    say::err(&format!("swath: {}", exit::about(&shown, &failed.error)));
                    Exit::of_code(failed.exit)
                }
                Sent::Broken(exit, error) => {
                    say::err(&format!("swath: {error}"));
                    if exit == Exit::Incomplete {
                        say::err(&format!("  {goes_on}"));
                    }
                    exit
                }
                Sent::Stopped => {
                    say::err(&format!("swath: stopped; {goes_on}"));
                    Exit::Interrupted
                }
            }
        }
    };
    drop(session);
    report::write(cp.report.as_deref(), cp.quiet || cp.json, &recorder.recording(), exit)
}

/// Where ssh leads a server is started first; then it is like any other.
async fn by_ssh(
    cp: &Cp,
    job: Job,
    progress: &Progress,
    stop: &Stop,
) -> Result<(Job, Option<Session>), (Exit, String)> {
    let (remote, write) = match &job {
        Job::FetchBySsh { from, .. } => (from.clone(), false),
        Job::SendBySsh { to, .. } => (to.clone(), true),
        _ => return Ok((job, None)),
    };
    let ssh: Vec<String> = cp.ssh.split_whitespace().map(str::to_owned).collect();
    if ssh.is_empty() {
        return Err((Exit::Usage, "--ssh: no command".to_owned()));
    }
    let way = ssh::Way { ssh, bootstrap: cp.bootstrap };
    let session = tokio::select! {
        biased;
        () = stop.wait() => return Err((Exit::Interrupted, "stopped before anything was copied".to_owned())),
        session = ssh::start(&way, &remote, write, progress) => session,
    };
    let session = session.map_err(|message| (Exit::Sources, message))?;
    let url = session.url.clone();
    let job = match job {
        Job::FetchBySsh { to, .. } => Job::Fetch { from: vec![url], to },
        Job::SendBySsh { from, .. } => Job::Send { from, to: url },
        other => other,
    };
    Ok((job, Some(session)))
}

async fn fetch(
    cp: &Cp,
    filter: Filter,
    engine: &Engine,
    from: Vec<Url>,
    to: PathBuf,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<Received, GetError> {
    let mirror = |url| Mirror { url, priority: 1, trust: Trust::Named };
    let request = TreeRequest {
        replicas: from.into_iter().map(mirror).collect(),
        destination: to,
        filter,
        preserve: cp.preserve(),
        resume: !cp.no_resume,
        compare: match cp.comparison() {
            Compare::SizeMtime => swath_transfer::Compare::SizeAndTime,
            Compare::Checksum => swath_transfer::Compare::Content,
            Compare::None => swath_transfer::Compare::Nothing,
        },
        delete: cp.delete,
        keep_index: cp.keep_index.clone(),
        plan: cp.plan.config(),
        stall_s: cp.net.timeout.as_secs_f64(),
    };
    if cp.dry_run {
        let shown = cp.delete;
        let tell = move |change: Change, path: &[u8]| {
            let bytes = match change {
                Change::Copy { bytes } => Some(bytes),
                Change::Surplus if shown => None,
                Change::Surplus => return,
            };
            print_change(bytes, &String::from_utf8_lossy(path));
        };
        let counts = engine.differences(&request, tell).await?;
        return Ok(Received::planned(counts));
    }
    engine.copy(request, observer, stop).await.map(|tree| Received::of(&tree))
}

/// One line of a plan.
fn print_change(bytes: Option<u64>, path: &str) {
    let path: String = path.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let line = match bytes {
        Some(bytes) => format!("copy    {:>9}  {path}\n", units::bytes(bytes)),
        None => format!("remove  {:>9}  {path}\n", ""),
    };
    let _ = say::out(line.as_bytes(), Exit::Done);
}

/// What a receiver has to know of the command line.
fn query(cp: &Cp) -> String {
    let kept = cp.preserve();
    let names = [(kept.mode, "mode"), (kept.times, "times"), (kept.links, "links")];
    let names: Vec<&str> =
        names.iter().filter(|(keeps, _)| *keeps).map(|(_, name)| *name).collect();
    let resume = if cp.no_resume { "&resume=no" } else { "" };
    let compare = match cp.comparison() {
        Compare::SizeMtime => "",
        Compare::Checksum => "&compare=checksum",
        Compare::None => "&compare=no",
    };
    let delete = if cp.delete { "&delete=yes" } else { "" };
    let dry = if cp.dry_run { "&dry=yes" } else { "" };
    let named = |name: &'static str| move |value: &String| (name, value.clone());
    let include = cp.include.iter().map(named("include"));
    let all = include.chain(cp.exclude.iter().map(named("exclude")));
    let mut filter = url::form_urlencoded::Serializer::new(String::new());
    let filter = filter.extend_pairs(all).finish();
    let filter = if filter.is_empty() { filter } else { format!("&{filter}") };
    format!("&preserve={}{resume}{compare}{delete}{dry}{filter}", names.join(","))
}

/// What is copied where; the error is a sentence.
fn job(places: &[String]) -> Result<Job, String> {
    let Some((destination, sources)) = places.split_last() else {
        return Err("say where from and where to".to_owned());
    };
    let [folder] = sources else { return several(sources, destination) };
    match (Remote::parse(folder), Remote::parse(destination)) {
        (Some(_), Some(_)) => return Err("one of the two places must be here".to_owned()),
        (Some(mut from), None) if !destination.contains("://") => {
            let mut to = PathBuf::from(destination);
            // Without '/' at its end the folder itself is meant, not what lies in it.
            if !from.path.is_empty() && !from.path.ends_with('/') {
                to.push(last_name(&from.path)?);
                from.path.push('/');
            }
            return Ok(Job::FetchBySsh { from, to });
        }
        (None, Some(mut to)) if !folder.contains("://") => {
            let from = PathBuf::from(folder);
            if !folder.ends_with('/') {
                let whole = from.canonicalize().map_err(|error| format!("{folder}: {error}"))?;
                let name = last_name(&whole.to_string_lossy())?;
                if !to.path.is_empty() && !to.path.ends_with('/') {
                    to.path.push('/');
                }
                to.path.push_str(&name);
            }
            return Ok(Job::SendBySsh { from, to });
        }
        _ => {}
    }
    if !destination.contains("://") {
        let from = sources.iter().map(|text| source(text)).collect::<Result<Vec<Url>, String>>()?;
        return Ok(Job::Fetch { from, to: PathBuf::from(destination) });
    }
    if folder.contains("://") {
        return Err("one of the two places must be here".to_owned());
    }
    let mut to = crate::net::parse_url(destination)?;
    let from = PathBuf::from(folder);
    if let Ok(mut segments) = to.path_segments_mut() {
        segments.pop_if_empty();
        // Without '/' at its end the folder itself is meant, not what lies in it.
        if !folder.ends_with('/') {
            let name = from.canonicalize().map_err(|error| format!("{folder}: {error}"))?;
            let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
            segments.push(&name);
        }
        segments.push("");
    }
    Ok(Job::Send { from, to })
}

/// Replicas of one tree.
fn several(sources: &[String], destination: &str) -> Result<Job, String> {
    if destination.contains("://") || Remote::parse(destination).is_some() {
        return Err("one folder at a time can be sent".to_owned());
    }
    let from = sources.iter().map(|text| source(text)).collect::<Result<Vec<Url>, String>>()?;
    Ok(Job::Fetch { from, to: PathBuf::from(destination) })
}

fn last_name(path: &str) -> Result<String, String> {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match name {
        "" | "." | ".." | "~" => {
            Err(format!("'{path}' has no name: put '/' behind it to copy what lies in it"))
        }
        name => Ok(name.to_owned()),
    }
}

fn source(text: &str) -> Result<Url, String> {
    if !text.contains("://") {
        return Err(format!("{text}: one of the two places must be a swath server's"));
    }
    let url = crate::net::parse_url(text)?;
    if !url.path().ends_with('/') {
        let shown = swath_source::display_name(&url);
        return Err(format!("{shown}: the address of a folder ends with '/'"));
    }
    Ok(url)
}

/// Say what the tree holds, and what of it is not there.
fn told(cp: &Cp, tree: &Received, destination: &str) -> Exit {
    if cp.dry_run {
        return Exit::Done;
    }
    if !cp.quiet && !cp.json {
        say::err(&counts(tree));
    }
    let lines = tree
        .changed
        .iter()
        .map(|path| (path, "it changed while it was read, twice"))
        .chain(tree.absent.iter().map(|(path, why)| (path, why.as_str())));
    for (path, why) in lines.take(NAMED_MAX) {
        let path: String = path.chars().filter(|c| !c.is_control()).collect();
        say::err(&format!("not copied: {path}: {why}"));
    }
    let all = tree.changed.len() + tree.absent.len();
    if all > NAMED_MAX {
        say::err(&format!("not copied: {} more", all - NAMED_MAX));
    }
    if tree.is_whole {
        return Exit::Done;
    }
    let entries = if all == 1 { "1 entry is".to_owned() } else { format!("{all} entries are") };
    fail(Exit::Some, &format!("{destination}: {entries} not there; all else is"))
}

/// What the tree holds, in one line.
fn counts(tree: &Received) -> String {
    let names =
        [("file", "files"), ("folder", "folders"), ("link", "links"), ("hard link", "hard links")];
    let parts: Vec<String> = tree
        .counts
        .iter()
        .zip(names)
        .filter(|(count, _)| **count > 0)
        .map(|(&count, (one, many))| {
            format!("{} {}", units::count(count), if count == 1 { one } else { many })
        })
        .collect();
    let stayed = match tree.kept_files {
        0 => String::new(),
        kept => format!(" ({} of the files were there already)", units::count(kept)),
    };
    let removed = match tree.removed {
        0 => String::new(),
        removed => format!(", {} removed", units::count(removed)),
    };
    match parts.is_empty() {
        true => format!("nothing is in it{removed}"),
        false => parts.join(", ") + &stayed + &removed,
    }
}

fn complain(destination: &str, error: &GetError, kept_bytes: u64) {
    say::err(&format!("swath: {}", exit::about(destination, &exit::words(error))));
    if let GetError::Exhausted { reasons } | GetError::Stalled { reasons, .. } = error {
        for (source, reason) in reasons {
            say::err(&format!("  {source}: {reason}"));
        }
        if reasons.iter().any(|(_, reason)| reason.contains("certificate is not trusted")) {
            say::err(
                "  --fingerprint trusts the certificate that 'swath serve' prints, --ca FILE an authority",
            );
        }
    }
    if kept_bytes > 0 {
        let kept = units::bytes(kept_bytes);
        say::err(&format!("  {kept} are kept: the same command goes on from there"));
    }
}

/// Most entries that are named one by one.
const NAMED_MAX: usize = 50;
