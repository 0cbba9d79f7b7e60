//! `swath cp`: whole trees.

pub mod args;

use std::path::{Path, PathBuf};

use swath_transfer::observe::Observer;
use swath_transfer::report::Recorder;
use swath_transfer::{Absence, GetError, Mirror, Stop, TreeRequest, TreeSummary, Trust};
use url::Url;

use crate::engine::{self, Wishes};
use crate::exit::{self, Exit, fail};
use crate::progress::{Fanout, Mode, Progress, units};
use crate::{report, say, signals};
use args::Cp;

/// Run the command.
pub async fn run(cp: Cp) -> Exit {
    let (sources, destination) = match places(&cp.places) {
        Ok(places) => places,
        Err(message) => return fail(Exit::Usage, &message),
    };
    if let Err((exit, message)) = report::check(cp.report.as_deref()) {
        return fail(exit, &message);
    }
    let progress = Progress::new(Mode::choose(cp.json, cp.quiet));
    crate::get::log_to(&progress);
    let stop = Stop::default();
    signals::watch(&stop);
    let wishes = Wishes {
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
    let request = TreeRequest {
        replicas: sources
            .into_iter()
            .map(|url| Mirror { url, priority: 1, trust: Trust::Named })
            .collect(),
        destination: destination.clone(),
        preserve: cp.preserve(),
        resume: !cp.no_resume,
        plan: cp.plan.config(),
        stall_s: cp.net.timeout.as_secs_f64(),
    };
    let recorder = Recorder::new();
    let kept = crate::get::Kept::default();
    let mut observers: Vec<Box<dyn Observer>> = vec![progress.observer(), Box::new(kept.clone())];
    if cp.report.is_some() {
        observers.push(Box::new(recorder.clone()));
    }
    let result = engine.copy(request, &mut Fanout(observers), &stop).await;
    progress.clear();
    let exit = match result {
        Ok(tree) => {
            if !cp.quiet && !cp.json {
                say::err(&counts(&tree));
            }
            missing(&tree, &destination)
        }
        Err(error) => {
            complain(&destination, &error, kept.bytes());
            exit::of(&error, kept.bytes())
        }
    };
    report::write(cp.report.as_deref(), cp.quiet || cp.json, &recorder.recording(), exit)
}

/// Sources and destination; the error is a sentence.
fn places(places: &[String]) -> Result<(Vec<Url>, PathBuf), String> {
    let Some((destination, sources)) = places.split_last() else {
        return Err("say where from and where to".to_owned());
    };
    if destination.contains("://") {
        return Err(format!("{destination}: only a local folder can be the destination"));
    }
    let sources = sources.iter().map(|text| source(text)).collect::<Result<Vec<Url>, String>>()?;
    Ok((sources, PathBuf::from(destination)))
}

fn source(text: &str) -> Result<Url, String> {
    if !text.contains("://") {
        return Err(format!("{text}: only addresses of swath servers can be sources"));
    }
    let url = crate::net::parse_url(text)?;
    if !url.path().ends_with('/') {
        let shown = swath_source::display_name(&url);
        return Err(format!("{shown}: the address of a folder ends with '/'"));
    }
    Ok(url)
}

/// What the tree holds, in one line.
fn counts(tree: &TreeSummary) -> String {
    let counts = &tree.counts;
    let of = |count: u64, one: &str, many: &str| {
        (count > 0)
            .then(|| format!("{} {}", units::count(count), if count == 1 { one } else { many }))
    };
    let parts: Vec<String> = [
        of(tree.files, "file", "files"),
        of(counts.folders, "folder", "folders"),
        of(counts.links, "link", "links"),
        of(counts.hard_links, "hard link", "hard links"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() { "nothing is in it".to_owned() } else { parts.join(", ") }
}

/// Name what is not there.
fn missing(tree: &TreeSummary, destination: &Path) -> Exit {
    let lost = tree.absent.iter().filter(|(_, absence)| *absence != Absence::Special).count();
    let special = tree.absent.len() - lost;
    let lines = tree
        .changed
        .iter()
        .map(|path| (path, "it changed while it was read, twice"))
        .chain(tree.absent.iter().map(|(path, absence)| (path, why(*absence))));
    for (path, why) in lines.take(NAMED_MAX) {
        say::err(&format!("not copied: {}: {why}", String::from_utf8_lossy(path)));
    }
    let all = tree.changed.len() + tree.absent.len();
    if all > NAMED_MAX {
        say::err(&format!("not copied: {} more", all - NAMED_MAX));
    }
    if tree.is_whole() {
        if special > 0 {
            say::err("devices, sockets and pipes are not copied");
        }
        return Exit::Done;
    }
    let count = tree.changed.len() + lost;
    let files = if count == 1 { "1 entry is".to_owned() } else { format!("{count} entries are") };
    fail(Exit::Some, &format!("{}: {files} not there; all else is", destination.display()))
}

fn why(absence: Absence) -> &'static str {
    match absence {
        Absence::Forbidden => "the server may not read it",
        Absence::Vanished => "it went away during the walk",
        Absence::Special => "it is no file, folder or link",
        Absence::Unreadable => "the server cannot read it",
        Absence::Elsewhere => "it is on another file system",
    }
}

fn complain(destination: &Path, error: &GetError, kept_bytes: u64) {
    let name = destination.display().to_string();
    say::err(&format!("swath: {}", exit::about(&name, &exit::words(error))));
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
