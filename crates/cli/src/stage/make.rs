//! Stages a file: progress, the two files, and a table at the end.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use serde_json::json;
use swath_source::display_name;
use swath_transfer::stage::{StageError, StageRequest, Staged, StagedDepot, release, stage};
use swath_transfer::{Reason, Stop};
use url::Url;

use super::args::Stage;
use super::files::{self, Draft, KeyFile, Keys, keys_of};
use super::source::{self, Source};
use super::{hints, manage};
use crate::config::Relay;
use crate::exit::{Exit, fail};
use crate::get::log_to;
use crate::progress::{Mode, Progress, units};
use crate::{say, signals};

/// Runs the command.
pub async fn run(args: Stage) -> Result<Exit, Failure> {
    swath_jobs::one_value_each(&args.digest)?;
    let depots: Vec<Url> = args.at.iter().map(|relay| relay.url.clone()).collect();
    for (at, relay) in args.at.iter().enumerate() {
        if args.at[..at].iter().any(|other| other.site() == relay.site()) {
            return Err(Failure::usage(format!("--at names {} twice", relay.site())));
        }
    }
    let replicas = usize::from(args.replicas);
    if replicas > depots.len() {
        let named = depots.len();
        let text = format!("--replicas {replicas} needs as many depots, and --at names {named}");
        return Err(Failure::usage(text));
    }
    let progress = Progress::new(Mode::choose(args.json, args.quiet));
    log_to(&progress, false);
    let stop = Stop::default();
    signals::watch(&stop);
    let net = super::net(&args.net, &args.at)?;
    let source = tokio::select! {
        biased;
        () = stop.wait() => return Err(Failure::new(Exit::Interrupted, "stopped before anything was staged".to_owned())),
        source = source::read(&args, &net) => source?,
    };
    let output = args.output.clone().unwrap_or_else(|| {
        let name = source.name.as_str();
        PathBuf::from(format!("{}.meta4", name.rsplit('/').next().unwrap_or(name)))
    });
    if output.as_os_str() == "-" {
        let text =
            "-o needs a file name for the Metalink and its keys (use ./- for a file called -)";
        return Err(Failure::usage(text.to_owned()));
    }
    // Before anything is leased.
    let metalink = Draft::begin(&output, args.overwrite)?;
    let keys = Draft::begin(&keys_of(&output), args.overwrite)?;
    let request = StageRequest {
        mirrors: source.mirrors.clone(),
        size_bytes: source.size_bytes,
        digests: source.digests.clone(),
        depots,
        length: args.length.unwrap_or_default(),
        replicas,
        name: source.name.as_str().to_owned(),
        stall_s: args.net.timeout.as_secs_f64(),
    };
    // Kept until the final key file is written or the leases are released.
    let mut kept = None;
    let mut leased = |size_bytes, depots: Vec<StagedDepot>| {
        let keys = files::keys(&source, size_bytes, &depots);
        // A failure to write it is reported at the end.
        kept = (!depots.is_empty()).then(|| KeyFile::new(&output, &keys).ok()).flatten();
    };
    let staged = stage(&net, &request, &mut *progress.observer(), &mut leased, &stop).await;
    progress.clear();
    let staged = match staged {
        Ok(staged) => staged,
        Err(failed) => {
            let exit = complain(source.name.as_str(), &failed.error, &args.at);
            tell_left(&source, failed.size_bytes, &failed.unreached, &output, kept);
            return Ok(exit);
        }
    };
    // With unreachable depots, which may come back before their leases end.
    let leased = || staged.depots.iter().chain(&staged.unreached);
    let keys_text = files::keys(&source, staged.size_bytes, leased()).text();
    let earlier = match replace(&output, keys, &keys_text, metalink, &source, &staged) {
        Ok(earlier) => earlier,
        Err(why) => {
            let unreached = release(&net, leased().cloned()).await;
            let exit = fail(why.exit, &format!("{why}; nothing was staged"));
            tell_left(&source, staged.size_bytes, &unreached, &output, kept);
            return Ok(exit);
        }
    };
    if let Some(kept) = kept {
        kept.remove();
    }
    if let Some((earlier, kept)) = earlier {
        give_up(&args, earlier, kept, &output, &stop).await;
    }
    if args.json {
        return Ok(say::out(json(&staged, &output).as_bytes(), Exit::Done));
    }
    if !args.quiet {
        words(source.name.as_str(), &staged, &output).lines().for_each(say::err);
    }
    Ok(Exit::Done)
}

/// Writes both files. The replaced keys of an earlier staging are first saved in another file.
fn replace(
    output: &Path,
    mut keys: Draft,
    keys_text: &str,
    mut metalink: Draft,
    source: &Source,
    staged: &Staged,
) -> Result<Option<(Keys, KeyFile)>, Failure> {
    let earlier = match files::earlier(output) {
        Some(earlier) => {
            let kept = KeyFile::new(output, &earlier)?;
            Some((earlier, kept))
        }
        None => None,
    };
    let written = keys
        .write(keys_text)
        .and_then(|()| metalink.write(&files::metalink(source, staged)))
        .and_then(|()| files::name_both(&keys, &metalink));
    match written {
        Ok(()) => Ok(earlier),
        Err(error) => {
            if let Some((_, kept)) = earlier {
                kept.remove();
            }
            let text = format!("cannot write {}: {error}", output.display());
            Err(Failure::new(Exit::Target, text))
        }
    }
}

/// Releases the leases of an earlier staging with the same name.
async fn give_up(args: &Stage, earlier: Keys, kept: KeyFile, output: &Path, stop: &Stop) {
    let left = tokio::select! {
        biased;
        () = stop.wait() => {
            earlier.depots.iter().map(|key| (key.clone(), "stopped".to_owned())).collect()
        }
        left = manage::give_up(&args.net, &args.at, &earlier.depots) => left,
    };
    if left.is_empty() {
        return kept.remove();
    }
    for (key, why) in &left {
        let name = display_name(&key.relay);
        say::err(&format!("warning: {name} did not release the earlier lease: {why}"));
    }
    let depots = left.into_iter().map(|(key, _)| key).collect();
    let fewer = KeyFile::new(output, &Keys { depots, ..earlier });
    // The old file lists released leases too, which is better than nothing.
    tell_kept(match fewer {
        Ok(fewer) => {
            kept.remove();
            Ok(fewer)
        }
        Err(_) => Ok(kept),
    });
}

/// Returns the text for people.
fn words(name: &str, staged: &Staged, output: &Path) -> String {
    let size_bytes = staged.size_bytes;
    let depots = match staged.depots.len() {
        1 => "one depot".to_owned(),
        count => format!("{count} depots"),
    };
    let mut text = format!(
        "{name}: {} in {depots}, {}\n",
        units::bytes(size_bytes),
        units::duration(staged.elapsed_s)
    );
    let rows = staged.depots.iter().map(|depot| manage::Row {
        name: display_name(&depot.relay),
        is_ok: true,
        held_bytes: Some(depot.held.total_bytes()),
        size_bytes,
        left: Some(depot.left),
        state: match &depot.reason {
            Some(reason) => reason.clone(),
            None if depot.held.total_bytes() == size_bytes => "whole".to_owned(),
            None => "partial".to_owned(),
        },
    });
    text += &manage::table(&rows.collect::<Vec<_>>());
    for Reason { of, why } in &staged.left_out {
        text += &format!("  {of} holds nothing: {why}\n");
    }
    text += &format!(
        "fetch it with 'swath get {0}'; {1} contains the keys to extend and release it\n",
        say::word(output),
        keys_of(output).display()
    );
    text
}

/// Returns the last line of JSON.
fn json(staged: &Staged, output: &Path) -> String {
    let depots: Vec<_> = staged
        .depots
        .iter()
        .map(|depot| {
            json!({
                "depot": display_name(&depot.relay),
                "held_bytes": depot.held.total_bytes(),
                "lease_s": depot.left.as_secs_f64(),
                "reason": depot.reason,
            })
        })
        .collect();
    let left_out: Vec<_> = staged
        .left_out
        .iter()
        .map(|it| json!({"depot": it.of.to_string(), "reason": it.why.to_string()}))
        .collect();
    let line = json!({
        "event": "staged",
        "size_bytes": staged.size_bytes,
        "elapsed_s": staged.elapsed_s,
        "metalink": output.display().to_string(),
        "depots": depots,
        "left_out": left_out,
    });
    format!("{line}\n")
}

/// Prints the error, and what happened to the leases.
fn complain(name: &str, error: &StageError, at: &[Relay]) -> Exit {
    let released = "the leases were released";
    let (exit, text, reasons) = match error {
        StageError::NoSource { reasons } => (Exit::Sources, error.to_string(), Some(reasons)),
        StageError::TooFew { reasons, .. } => {
            (Exit::Sources, format!("{error}; {released}"), Some(reasons))
        }
        StageError::NoRoom { free_bytes, wanted_bytes, reasons } => {
            let [free, wanted] = [*free_bytes, *wanted_bytes].map(units::bytes);
            let text =
                format!("the depots have room for only {free} of {wanted}; nothing was fetched");
            (Exit::Sources, text, Some(reasons))
        }
        StageError::NoPlace { lacking_bytes, reasons } => {
            let text = format!("{} could not be stored; {released}", units::bytes(*lacking_bytes));
            (Exit::Sources, text, Some(reasons))
        }
        StageError::Stalled { reasons, .. } => {
            (Exit::Sources, format!("{error}; {released}"), Some(reasons))
        }
        StageError::Stopped => (Exit::Interrupted, format!("stopped; {released}"), None),
        error => (Exit::Input, error.to_string(), None),
    };
    let exit = fail(exit, &format!("{name}: {text}"));
    for Reason { of, why } in reasons.into_iter().flatten() {
        say::hint(&format!("{of}: {why}"));
    }
    let hints = match (error, reasons) {
        (StageError::NoSource { .. }, Some(reasons)) => hints::of_sources(reasons),
        (_, Some(reasons)) => hints::of_depots(reasons, at),
        _ => Vec::new(),
    };
    hints.iter().for_each(|hint| say::hint(hint));
    exit
}

/// Lists the depots whose leases could not be released, and how to release them later.
fn tell_left(
    source: &Source,
    size_bytes: u64,
    unreached: &[StagedDepot],
    output: &Path,
    kept: Option<KeyFile>,
) {
    if unreached.is_empty() {
        return kept.map_or((), KeyFile::remove);
    }
    for depot in unreached {
        say::err(&format!(
            "  {} did not release its lease: {} (it expires in {})",
            display_name(&depot.relay),
            depot.reason.as_deref().unwrap_or("no answer"),
            units::duration(depot.left.as_secs_f64())
        ));
    }
    let keys = files::keys(source, size_bytes, unreached);
    tell_kept(match kept {
        Some(kept) => kept.reduced_to(&keys),
        None => KeyFile::new(output, &keys),
    });
}

/// Prints how to release the remaining leases.
fn tell_kept(kept: Result<KeyFile, Failure>) {
    let last = match kept {
        Ok(kept) => {
            let file = say::word(&kept.file);
            format!("run 'swath stage release {file}' later")
        }
        Err(error) => format!("they can only expire: {error}"),
    };
    say::hint(&last);
}
