//! `swath cp`: whole trees.

pub mod args;

mod again;
mod away;
mod bootstrap;
mod check;
mod dry;
mod far;
mod hear;
mod here;
mod job;
mod put;
mod send;
pub mod ssh;
mod through;
mod told;
mod web;

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use swath_report::{Content, Recorder};
use swath_source::Download;
use swath_transfer::observe::{LimitedBy, Observer};
use swath_transfer::sending::Received;
use swath_transfer::{
    Change, Engine, Filter, FolderKind, GetError, Mirror, Overwrite, Reason, Request, Stop,
    TreeRequest, Trust, Why,
};
use url::Url;

use crate::engine::{self, CONNECTIONS_PER_HOST, Wishes};
use crate::exit::{self, Exit, fail};
use crate::get::Kept;
use crate::progress::{Fanout, Mode, Progress, units};
use crate::{hints, report, say, signals};
use args::{Compare, Cp};
use away::{Away, Foreign, Outgoing};
use check::{check, for_folders, for_put, for_trees};
use dry::Plan;
use here::{Here, Renamed};
use job::{Job, jobs};
use ssh::{Purpose, Session};
use told::{told, told_rate};

pub use dry::another_name;
pub use here::{offered, renamed};

/// What lies on the disk that counts: where it goes to if that is here, else what is sent.
pub fn near(places: &[String]) -> PathBuf {
    let here = places.iter().rev().find(|place| job::is_here(place));
    here.map(PathBuf::from).unwrap_or_default()
}

/// Run the command.
pub async fn run(cp: Cp) -> Exit {
    if cp.verbose > 0 {
        crate::progress::look::show_details();
    }
    let refuse = |failure: Failure| {
        let to = cp.places.last().map(|to| job::shown(to)).unwrap_or_default();
        told::failed(&cp, &Kept::default(), &to, &failure.to_string(), None);
        failure.tell()
    };
    if cp.json && say::is_closed() {
        return fail(Exit::Target, say::CLOSED);
    }
    cp.usual.explain();
    let jobs = match jobs(&cp.places) {
        Ok(jobs) => jobs,
        Err(failure) => return refuse(failure),
    };
    let filter = match cp.filter() {
        Ok(filter) => filter,
        Err(failure) => return refuse(failure),
    };
    if let Err(failure) = check(&cp, &jobs) {
        return refuse(failure);
    }
    if let Err(failure) = report::check(cp.report.as_deref()) {
        return refuse(failure);
    }
    let progress = Progress::new(Mode::choose(cp.json, cp.quiet));
    crate::get::log_to(&progress, cp.verbose > 1);
    let stop = Stop::default();
    signals::watch(&stop);
    let to_a_server = |job: &Job| matches!(job, Job::Send { .. } | Job::SendFile { .. });
    if jobs.iter().any(to_a_server) && cp.routes.which.names_relays() {
        progress.note("what is sent to a server goes there directly: relays are for what is fetched (--relay, --route)", true);
    }
    let mut exit = Exit::Done;
    for job in jobs {
        let ended = Box::pin(copy(&cp, &filter, job, &progress, &stop)).await;
        if exit == Exit::Done || ended == Exit::Interrupted {
            exit = ended;
        }
        if ended == Exit::Interrupted {
            break;
        }
    }
    exit
}

/// Copy one thing, and say how it went.
async fn copy(cp: &Cp, filter: &Filter, job: Job, progress: &Progress, stop: &Stop) -> Exit {
    let kept = Kept::default();
    let whole = job.destination();
    let refuse = |failure: Failure| {
        told::failed(cp, &kept, &whole, &failure.to_string(), None);
        failure.tell()
    };
    let fail = |exit, message: &str| refuse(Failure::new(exit, message));
    if let Err(failure) = job.check_source() {
        return refuse(failure);
    }
    let filter = filter.clone();
    // As its user has named it.
    let there = match &job {
        Job::SendBySsh { to, .. } => Some(format!("{}:{}", to.host, to.path)),
        _ => None,
    };
    let (job, session) = match by_ssh(cp, job, progress, stop).await {
        Ok(ready) => ready,
        Err(failure) => return refuse(failure),
    };
    let names = session.as_ref().map(|it| it.names.as_slice()).unwrap_or_default();
    let own_server = session.as_ref().map(|it| (it.bearer.clone(), it.fingerprint));
    // No relay leads to a disk of ours, nor to where ssh does.
    let has_routes = session.is_none() && !matches!(job, Job::Here { .. });
    let routes = match has_routes.then(|| cp.routes.options()).transpose() {
        Ok(routes) => routes.unwrap_or_default(),
        Err(failure) => return refuse(failure),
    };
    let wishes = Wishes {
        own_server,
        net: &cp.net,
        routes,
        limit_rate: cp.limit_rate,
        connections_per_host: CONNECTIONS_PER_HOST,
        metalinks: false,
        io: cp.io,
        memory: cp.memory,
        to_stdout: false,
    };
    let engine = match engine::start(wishes) {
        Ok(engine) => engine,
        Err(failure) => return refuse(failure),
    };
    let recorder = Recorder::new();
    let plan = Plan::new(cp.json, cp.quiet);
    let mut observers: Vec<Box<dyn Observer>> = vec![progress.observer(), Box::new(kept.clone())];
    if cp.report.is_some() {
        observers.push(Box::new(recorder.clone()));
    }
    let mut observer = Fanout(observers);
    let away = Away { cp, plan: &plan, kept: &kept, engine: &engine, session: session.as_ref() };
    let mut single_there = None;
    let job = match job {
        Job::Named { from, to, is_alone } => {
            match named(cp, &engine, from, &to, is_alone, stop).await {
                Ok(Thing::Folder(job)) => job,
                Ok(Thing::Single(job, there)) => {
                    single_there = Some(there);
                    job
                }
                Ok(Thing::File(from, name)) => {
                    let path = file_path(&to, &name, is_alone);
                    let exit = file(cp, &engine, from, &path, &mut observer, &kept, stop).await;
                    let silent = cp.quiet || cp.json;
                    return report::write(cp.report.as_deref(), silent, recorder.recording(), exit);
                }
                Err(failure) => return refuse(failure),
            }
        }
        other => other,
    };
    let content = if job.is_single() { Content::File } else { Content::Tree };
    let exit = match job {
        Job::FetchBySsh { .. }
        | Job::SendBySsh { .. }
        | Job::Named { .. }
        | Job::Missing { .. } => Exit::Internal,
        Job::Here { from, to, single } => {
            let shown = place(&to, single.as_deref());
            let opened =
                Here::open(&engine, &from, single.as_deref(), filter.clone(), cp.io.into());
            let mut here = match opened {
                Ok(here) => here,
                Err(failure) => return refuse(failure),
            };
            let url = here.url();
            let name = from.display().to_string();
            let names = here::names(&url, &name);
            let limit = Some(LimitedBy::Reading { name });
            let mut renamed = Renamed { observer: &mut observer, names: &names, limit };
            let copied = tokio::select! {
                copied = fetch((cp, &plan, None), filter, &engine, vec![url.clone()], (to, single, None), &mut renamed, stop) => copied,
                () = here.serve() => return Exit::Internal,
            };
            progress.clear();
            fetched(cp, &plan, copied, &shown, &kept, &|text| here::renamed(&names, text))
        }
        Job::Fetch { from, to, single } => {
            let shown = place(&to, single.as_deref());
            let limit = session.as_ref().and_then(|it| it.limit.clone());
            let mut renamed = Renamed { observer: &mut observer, names, limit };
            let lanes_max = session.as_ref().and_then(|it| it.lanes_max);
            let is_plain = session.is_none() && single.is_none();
            let mut copied = fetch(
                (cp, &plan, lanes_max),
                filter.clone(),
                &engine,
                from.clone(),
                (to.clone(), single, single_there),
                &mut renamed,
                stop,
            )
            .await;
            progress.clear();
            if let Err(GetError::NoTree { reasons }) = &mut copied
                && is_plain
            {
                let wanted = web::Wanted { cp, filter, replicas: from, to, plan: &plan };
                match web::copy(wanted, &engine, progress, stop).await {
                    Ok(exit) => return exit,
                    Err(web::Refused::Option(message)) => return fail(Exit::Usage, &message),
                    Err(web::Refused::NoListing(why)) => {
                        if let Some(Reason { why: first, .. }) = reasons.first_mut()
                            && *first != why
                        {
                            let more = format!("nor of a plain one: {why}");
                            *first = Why::And(Box::new(first.clone()), more);
                        }
                    }
                }
            }
            if let Ok(tree) = &copied {
                told_rate(cp, session.as_ref(), tree);
            }
            fetched(cp, &plan, copied, &shown, &kept, &|text| here::renamed(names, text))
        }
        Job::SendFile { from, to } => {
            let sent = match job::in_folder(&to) {
                None => Err(Foreign(None)),
                Some((folder, name)) => {
                    let shown = swath_source::display_name(&to);
                    let (from, single) = (from.clone(), Some(name));
                    let file = Outgoing { from, to: folder, single, shown };
                    away.send(file, filter, &mut observer, progress, stop).await
                }
            };
            match (sent, for_put(cp)) {
                (Ok(exit), _) => exit,
                // It is no swath server, and may take files all the same.
                (Err(_), None) => {
                    let sent = put::send(&engine, from, to, &mut observer, progress, stop).await;
                    sent.map_or_else(refuse, |()| Exit::Done)
                }
                (Err(Foreign(refusal)), Some(options)) => {
                    match put::forbidden(&to, refusal.as_ref()).filter(|_| cp.dry_run) {
                        Some(failure) => refuse(failure),
                        None => fail(Exit::Usage, options),
                    }
                }
            }
        }
        Job::Send { from, to, single } => {
            let name = single.as_deref().unwrap_or_default();
            let shown = there.unwrap_or_else(|| swath_source::display_name(&to) + name);
            let load = Outgoing { from, to, single, shown };
            let sent = away.send(load, filter, &mut observer, progress, stop).await;
            // Of a tree it is never foreign.
            sent.unwrap_or(Exit::Internal)
        }
    };
    drop(session);
    let mut recording = recorder.recording();
    recording.heading.content = content;
    report::write(cp.report.as_deref(), cp.quiet || cp.json, recording, exit)
}

/// A folder of ours, or a single file in it.
fn place(folder: &Path, single: Option<&str>) -> String {
    match single {
        None => folder.display().to_string(),
        Some(name) if folder == Path::new(".") => name.to_owned(),
        Some(name) => folder.join(name).display().to_string(),
    }
}

/// Say how fetching a tree went; names of sources are told by `words`.
fn fetched(
    cp: &Cp,
    plan: &Plan,
    copied: Result<Received, GetError>,
    shown: &str,
    kept: &Kept,
    words: &dyn Fn(&str) -> String,
) -> Exit {
    match copied {
        Ok(tree) => told(cp, plan, &tree, shown),
        Err(error) => {
            let text = words(&exit::words_of_all(&error));
            told::failed(cp, kept, shown, &text, kept.known_bytes());
            complain(shown, &error, kept.bytes(), words);
            exit::of(&error, kept.come_bytes())
        }
    }
}

/// What an address without `/` at its end is the name of.
enum Thing {
    /// A folder, and how it is copied.
    Folder(Job),
    /// A file that a swath server has, how it is copied, and what it is called there.
    Single(Job, String),
    /// A file, and its name.
    File(Url, PathBuf),
}

async fn named(
    cp: &Cp,
    engine: &Engine,
    from: Url,
    to: &Path,
    is_alone: bool,
    stop: &Stop,
) -> Result<Thing, Failure> {
    let shown = swath_source::display_name(&from);
    let name = job::name_there(&from)?;
    let name = PathBuf::from(name);
    let mut folder = from.clone();
    folder.set_path(&format!("{}/", from.path()));
    let asked = Mirror { url: folder.clone(), priority: 1, trust: Trust::Named, holds: None };
    let looked = async {
        match engine.folder_kind(&asked).await {
            FolderKind::Tree => true,
            FolderKind::Page => web::is_folder(engine.net(), &from).await,
            FolderKind::Nothing => false,
        }
    };
    let is_folder = tokio::select! {
        biased;
        () = stop.wait() => return Err(stopped()),
        is_folder = looked => is_folder,
    };
    if is_folder {
        let (from, to) = (vec![folder], to.join(name));
        return Ok(Thing::Folder(Job::Fetch { from, to, single: None }));
    }
    if let Some((above, there)) = job::in_folder(&from) {
        let asked = Mirror { url: above.clone(), priority: 1, trust: Trust::Named, holds: None };
        let is_file = tokio::select! {
            biased;
            () = stop.wait() => return Err(stopped()),
            is_file = engine.is_file(&asked, &there) => is_file,
        };
        let path = file_path(to, &name, is_alone);
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new(".")).to_owned();
        let here = path.file_name().and_then(|name| name.to_str());
        if let Some(here) = here.filter(|_| is_file) {
            for_trees(cp)?;
            let job = Job::Fetch { from: vec![above], to: folder, single: Some(here.to_owned()) };
            return Ok(Thing::Single(job, there));
        }
    }
    if let Some(options) = for_folders(cp) {
        let asked = Download::begin(engine.net(), &from, Trust::Named, "*/*");
        let answered = tokio::select! {
            biased;
            () = stop.wait() => return Err(stopped()),
            answered = asked => answered,
        };
        if let Err(error) = answered {
            let path = file_path(to, &name, is_alone);
            let path = path.display();
            return Err(Failure::sources(format!("{path}: no source could be used"))
                .hint(format!("{shown}: {error}")));
        }
        return Err(Failure::usage(format!("{shown} is no folder of a swath server: {options}")));
    }
    Ok(Thing::File(from, name))
}

fn stopped() -> Failure {
    Failure::new(Exit::Interrupted, "stopped before anything was copied".to_owned())
}

/// Where a single file goes: into a folder, or it has that name.
fn file_path(to: &Path, name: &Path, is_alone: bool) -> PathBuf {
    let is_folder = to.as_os_str().as_encoded_bytes().ends_with(b"/") || to.is_dir();
    if is_alone && !is_folder { to.to_owned() } else { to.join(name) }
}

/// Fetch a single file.
async fn file(
    cp: &Cp,
    engine: &Engine,
    from: Url,
    path: &Path,
    observer: &mut dyn Observer,
    kept: &Kept,
    stop: &Stop,
) -> Exit {
    let mut request = Request::to_file(path);
    request.mirrors = vec![Mirror { url: from, priority: 1, trust: Trust::Named, holds: None }];
    request.overwrite = match cp.comparison() {
        Compare::None => Overwrite::Always,
        Compare::SizeMtime | Compare::Checksum => Overwrite::IfOther,
    };
    request.refuses_folders = true;
    request.require_digest = cp.require_digest;
    request.resume = cp.resume || !cp.no_resume;
    request.plan = cp.plan.config();
    request.stall_s = cp.net.timeout.as_secs_f64();
    match engine.get_observed(request, observer, stop).await {
        Ok(_) => Exit::Done,
        Err(error) => {
            let shown = path.display().to_string();
            told::failed(cp, kept, &shown, &exit::words_of_all(&error), kept.known_bytes());
            complain(&shown, &error, kept.bytes(), &str::to_owned);
            exit::of(&error, kept.come_bytes())
        }
    }
}

/// Where ssh leads a server is started first; then it is like any other.
async fn by_ssh(
    cp: &Cp,
    job: Job,
    progress: &Progress,
    stop: &Stop,
) -> Result<(Job, Option<Session>), Failure> {
    let (remote, purpose) = match &job {
        Job::FetchBySsh { from, file, .. } => {
            let renamed = file.as_ref().filter(|file| file.is_new_name);
            let file_name = renamed.map(|file| file.name.as_str());
            (from.clone(), Purpose::Read { file_name })
        }
        Job::SendBySsh { to, file, .. } => {
            let file_name = file.as_ref().and_then(|file| ssh::new_name(to, file));
            (to.clone(), Purpose::Write { file_name })
        }
        _ => return Ok((job, None)),
    };
    let way = ssh::Way::of(&cp.ssh, cp.net.timeout)?;
    let session = tokio::select! {
        biased;
        () = stop.wait() => return Err(stopped()),
        session = ssh::start(&way, &remote, purpose, progress) => session,
    };
    let session = session?;
    let url = session.url.clone();
    let job = match job {
        Job::FetchBySsh { file: Some(file), .. } if session.is_file => {
            for_trees(cp)?;
            Job::Fetch { from: vec![url], to: file.folder, single: Some(file.name) }
        }
        Job::FetchBySsh { to, .. } => Job::Fetch { from: vec![url], to, single: None },
        Job::SendBySsh { from, to, file } => {
            let (to, single) = ssh::sent_to(url, &to, file);
            Job::Send { from, to, single }
        }
        other => other,
    };
    Ok((job, Some(session)))
}

async fn fetch(
    (cp, plan, lanes_max): (&Cp, &Plan, Option<u32>),
    filter: Filter,
    engine: &Engine,
    from: Vec<Url>,
    (to, single, single_there): (PathBuf, Option<String>, Option<String>),
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<Received, GetError> {
    let mirror = |url| Mirror { url, priority: 1, trust: Trust::Named, holds: None };
    let request = TreeRequest {
        replicas: from.into_iter().map(mirror).collect(),
        destination: to,
        single,
        single_there,
        filter,
        preserve: cp.preserve(),
        resume: cp.resume || !cp.no_resume,
        compare: comparison(cp),
        delete: cp.delete,
        allow_empty: cp.allow_empty,
        first_walk: None,
        keep_index: cp.keep_index.clone(),
        plan: cp.plan.config_within(lanes_max),
        stall_s: cp.net.timeout.as_secs_f64(),
        locked_s: 0.0,
    };
    if cp.dry_run {
        let (shown, plan) = (cp.delete, plan.clone());
        let tell = move |change: Change, path: &[u8]| match change {
            Change::Copy { bytes, further_of } => {
                plan.tell(Some(bytes), path, further_of.as_deref())
            }
            Change::Surplus | Change::InTheWay if shown => plan.tell(None, path, None),
            Change::Surplus | Change::InTheWay => {}
        };
        let planned = engine.differences(&request, tell).await?;
        return Ok(Received::planned(&planned));
    }
    engine.copy(request, observer, stop).await.map(|tree| Received::of(&tree))
}

fn comparison(cp: &Cp) -> swath_transfer::Compare {
    match cp.comparison() {
        Compare::SizeMtime => swath_transfer::Compare::SizeAndTime,
        Compare::Checksum => swath_transfer::Compare::Content,
        Compare::None => swath_transfer::Compare::Nothing,
    }
}

fn complain(destination: &str, error: &GetError, kept_bytes: u64, words: &dyn Fn(&str) -> String) {
    say::err(&format!("swath: {}", exit::about(destination, &words(&exit::words(error)))));
    let reasons = error.reasons();
    for Reason { of, why } in reasons {
        say::hint(&format!("{}: {why}", words(&of.to_string())));
    }
    let mut errors = reasons.iter().filter_map(|reason| reason.why.lane_error());
    errors.find_map(hints::of_trust).into_iter().for_each(say::hint);
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
