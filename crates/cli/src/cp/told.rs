//! How a copy went, in words.

use serde::Serialize;
use swath_jobs::copy::Copied;
use swath_model::path::visible;
use swath_transfer::sending::Received;
use swath_transfer::{Spare, Spared, Unremoved};

use super::args::Cp;
use super::dry::Plan;
use crate::exit::{Exit, fail};
use crate::progress::units;
use crate::say;

/// Say how fast it was where all went through ssh.
pub fn told_rate(cp: &Cp, copied: &Copied) {
    let tree = &copied.received;
    if copied.through_ssh && tree.transfer.fetched_bytes > 0 && !cp.quiet && !cp.json && !cp.dry_run
    {
        let rate = units::rate(tree.transfer.rate_bytes_per_s);
        say::err(&format!("by ssh: {rate}"));
    }
}

/// A line of JSON for what no event of the transfer tells.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    /// An entry that is not there.
    NotCopied { path: &'a str, reason: &'a str },
    /// An entry that lacks extended attributes.
    WithoutXattrs { path: &'a str, reason: &'a str },
    /// What `--delete` did not remove.
    NotRemoved { path: &'a str, entries: u64, reason: Spare },
    /// What `--delete` could not remove: all of it, and the first with the reasons.
    #[serde(rename = "not_removed")]
    Unremoved { path: &'a str, entries: u64, reason: &'a str, first: Vec<Entry<'a>> },
    /// It ended before, or without, a transfer.
    Failed {
        path: &'a str,
        error: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        kept_bytes: Option<u64>,
    },
}

/// An entry, and what is the matter with it.
#[derive(Serialize)]
struct Entry<'a> {
    path: &'a str,
    reason: &'a str,
}

fn tell(line: &Line<'_>) {
    let line = serde_json::to_string(line).unwrap_or_default() + "\n";
    let _ = say::out(line.as_bytes(), Exit::Done);
}

/// Tell programs that a copy failed, unless an event has (`is_told`); and what is kept of it, if
/// anybody here knows.
pub fn failed(cp: &Cp, is_told: bool, path: &str, error: &str, kept_bytes: Option<u64>) {
    if cp.json && !is_told {
        tell(&Line::Failed { path, error, kept_bytes });
    }
}

/// Say what the tree holds, and what of it is not there.
pub fn told(cp: &Cp, plan: &Plan, tree: &Received, destination: &str) -> Exit {
    let matches = tree.counts.iter().any(|&count| count > 0) || !selects(cp);
    if cp.dry_run {
        told_lacking(cp, tree);
        let end = plan.end(matches);
        return match tree.spared {
            _ if end != Exit::Done => end,
            Some(spared) => told_spared(cp, spared, destination),
            None if tree.unremoved.count > 0 => told_unremoved(cp, &tree.unremoved, destination),
            None if tree.is_whole => end,
            None => told_partial(cp, tree, destination),
        };
    }
    if !cp.quiet && !cp.json {
        say::err(&counts(cp, tree, matches));
    }
    told_lacking(cp, tree);
    let has_xattrs = !cp.preserve().xattrs || told_xattrs(cp, tree, destination);
    if tree.is_whole {
        let exit = if has_xattrs { Exit::Done } else { Exit::Some };
        let exit = match tree.unremoved.count {
            0 => exit,
            _ => told_unremoved(cp, &tree.unremoved, destination),
        };
        return tree.spared.map_or(exit, |spared| told_spared(cp, spared, destination));
    }
    told_partial(cp, tree, destination)
}

/// Name what is not there.
fn told_lacking(cp: &Cp, tree: &Received) {
    let lines = tree
        .changed
        .iter()
        .map(|path| (path, "it changed while it was copied, twice"))
        .chain(tree.absent.iter().map(|(path, why)| (path, why.as_str())));
    if cp.json {
        lines.clone().for_each(|(path, reason)| tell(&Line::NotCopied { path, reason }));
    }
    for (path, why) in lines.take(NAMED_MAX) {
        let path = visible(path);
        say::err(&format!("not copied: {path}: {why}"));
    }
    let all = tree.changed.len() + tree.absent.len();
    if all > NAMED_MAX {
        say::err(&format!("not copied: {} more", all - NAMED_MAX));
    }
}

/// Say that not all is there, or would be.
fn told_partial(cp: &Cp, tree: &Received, destination: &str) -> Exit {
    if cp.delete {
        // What was in the way of something that is there had to go.
        let what = match (cp.dry_run, tree.removed) {
            (true, _) => "nothing would be removed",
            (false, 0) => "nothing was removed",
            (false, _) => "nothing else was removed",
        };
        say::err(&format!("{what}: --delete waits until all of the tree is there"));
    }
    let is = if cp.dry_run { "would be" } else { "is" };
    let entries = match tree.changed.len() + tree.absent.len() {
        1 if cp.dry_run => "1 entry would not be".to_owned(),
        1 => "1 entry is not".to_owned(),
        many if cp.dry_run => format!("{many} entries would not be"),
        many => format!("{many} entries are not"),
    };
    fail(Exit::Some, &format!("{destination}: {entries} there; all else {is}"))
}

/// Say what `--delete` does not remove, and what to do about it.
fn told_spared(cp: &Cp, Spared { entries, why }: Spared, destination: &str) -> Exit {
    if cp.json {
        tell(&Line::NotRemoved { path: destination, entries, reason: why });
    }
    let (entries, stay) = match entries {
        1 => ("1 entry".to_owned(), "stays"),
        many => (format!("{} entries", units::count(many)), "stay"),
    };
    let message = match why {
        Spare::Dropped => format!(
            "{destination}: {entries} {stay}: the source has listed less than when this copy began; if that is right, the same command again removes what it lacks then"
        ),
        Spare::Empty => {
            let lacks = if selects(cp) {
                "nothing in the source matches"
            } else {
                "there is no file in the source"
            };
            format!(
                "{destination}: nothing is removed: {lacks}, and --delete would remove {entries}; if that is right, add --allow-empty"
            )
        }
    };
    fail(Exit::Some, &message)
}

/// Name what could not be removed, or may not be.
fn told_unremoved(cp: &Cp, unremoved: &Unremoved, destination: &str) -> Exit {
    let Unremoved { count, first } = unremoved;
    if cp.json {
        let first = first.iter().map(|(path, reason)| Entry { path, reason }).collect();
        tell(&Line::Unremoved { path: destination, entries: *count, reason: "refused", first });
    }
    for (path, why) in first.iter().take(NAMED_MAX) {
        let path = visible(path);
        say::err(&format!("not removed: {path}: {why}"));
    }
    let (entries, it) = match count {
        1 => ("1 entry that is not in the tree".to_owned(), "it"),
        many => (format!("{} entries that are not in the tree", units::count(*many)), "them"),
    };
    let (stay, is) = match (cp.dry_run, count) {
        (true, _) => ("would stay", "would be"),
        (false, 1) => ("stays", "is"),
        (false, _) => ("stay", "is"),
    };
    let message = format!(
        "{destination}: {entries} {stay}: the system does not let {it} go; all of the tree {is} there"
    );
    fail(Exit::Some, &message)
}

/// Say what has lost its extended attributes; whether nothing has.
fn told_xattrs(cp: &Cp, tree: &Received, destination: &str) -> bool {
    let Some(losses) = &tree.xattrs else {
        say::err(&format!(
            "swath: {destination}: its server knows no extended attributes: none were copied"
        ));
        return false;
    };
    if cp.json {
        losses.first.iter().for_each(|(path, reason)| tell(&Line::WithoutXattrs { path, reason }));
    }
    for (path, why) in &losses.first {
        let path = visible(path);
        say::err(&format!("without its extended attributes: {path}: {why}"));
    }
    let named = losses.first.len() as u64;
    if losses.count > named {
        let more = units::count(losses.count - named);
        say::err(&format!("without its extended attributes: {more} more"));
    }
    if losses.count > 0 {
        let entries = match losses.count {
            1 => "1 entry lacks".to_owned(),
            many => format!("{} entries lack", units::count(many)),
        };
        say::err(&format!("swath: {destination}: {entries} extended attributes of the original"));
    }
    losses.count == 0
}

/// What the tree holds, in one line.
fn counts(cp: &Cp, tree: &Received, matches: bool) -> String {
    let further = match cp.preserve().links {
        true => ("hard link", "hard links"),
        false => ("hard link as a file of its own", "hard links as files of their own"),
    };
    let names = [("file", "files"), ("folder", "folders"), ("link", "links"), further];
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
        // The first of the counts is that of the files.
        1 if tree.counts[0] == 1 => " (it was there already)".to_owned(),
        1 => " (1 of the files was there already)".to_owned(),
        kept => format!(" ({} of the files were there already)", units::count(kept)),
    };
    let removed = match tree.removed {
        0 => String::new(),
        removed => format!(", {} removed", units::count(removed)),
    };
    match parts.is_empty() {
        true if !matches => format!("nothing matches{removed}"),
        true => format!("nothing is in it{removed}"),
        false => parts.join(", ") + &stayed + &removed,
    }
}

/// Whether only a part of a tree is wanted.
fn selects(cp: &Cp) -> bool {
    !cp.include.is_empty() || !cp.exclude.is_empty()
}

/// Most entries that are named one by one.
const NAMED_MAX: usize = 50;
