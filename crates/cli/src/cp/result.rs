//! Results of copies, in words.

use serde::Serialize;
use swath_jobs::copy::Copied;
use swath_model::path::visible;
use swath_transfer::sending::Received;
use swath_transfer::{Spare, Spared, Unremoved};

use super::args::Cp;
use super::dry::DryRun;
use crate::exit::{Exit, fail};
use crate::progress::units;
use crate::say;

/// Prints the rate of a copy through ssh.
pub fn print_rate(cp: &Cp, copied: &Copied) {
    let received = &copied.received;
    if copied.through_ssh
        && received.transfer.fetched_bytes > 0
        && !cp.transfer.quiet
        && !cp.transfer.json
        && !cp.dry_run
    {
        let rate = units::rate(received.transfer.rate_bytes_per_s);
        say::err(&format!("rate through ssh: {rate}"));
    }
}

/// A line of JSON that is no event of the transfer.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    /// An entry that was not copied.
    NotCopied { path: &'a str, reason: &'a str },
    /// An entry without its extended attributes.
    WithoutXattrs { path: &'a str, reason: &'a str },
    /// Entries that `--delete` kept.
    NotRemoved { path: &'a str, entries: u64, reason: Spare },
    /// Entries that `--delete` could not remove: their number, and the first with reasons.
    #[serde(rename = "not_removed")]
    Unremoved { path: &'a str, entries: u64, reason: &'a str, first: Vec<Entry<'a>> },
    /// A server carries out the copy.
    Begun { job: &'a str, server: &'a str },
    /// The copy failed before, or without, a transfer.
    Failed {
        path: &'a str,
        error: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        kept_bytes: Option<u64>,
    },
}

/// An entry and its error.
#[derive(Serialize)]
struct Entry<'a> {
    path: &'a str,
    reason: &'a str,
}

fn print_line(line: &Line<'_>) {
    let line = serde_json::to_string(line).unwrap_or_default() + "\n";
    let _ = say::out(line.as_bytes(), Exit::Done);
}

/// Prints the name of a copy that goes on alone.
pub fn print_begun(cp: &Cp, job: &str, server: &str) -> Exit {
    if cp.transfer.json {
        print_line(&Line::Begun { job, server });
        return Exit::Done;
    }
    let exit = say::out(format!("{job}@{server}\n").as_bytes(), Exit::Done);
    if !cp.transfer.quiet {
        say::err("the copy goes on there: 'swath attach' shows it, 'swath cancel' ends it");
    }
    exit
}

/// Prints a failed copy as JSON, unless an event has (`is_reported`).
pub fn print_failed_event(
    cp: &Cp,
    is_reported: bool,
    path: &str,
    error: &str,
    kept_bytes: Option<u64>,
) {
    if cp.transfer.json && !is_reported {
        print_line(&Line::Failed { path, error, kept_bytes });
    }
}

/// Prints what was copied and what was not.
pub fn print(cp: &Cp, plan: &DryRun, received: &Received, destination: &str) -> Exit {
    let matches = received.counts.iter().any(|&count| count > 0) || !selects(cp);
    if cp.dry_run {
        print_not_copied(cp, received);
        let end = plan.end(matches);
        return match received.spared {
            _ if end != Exit::Done => end,
            Some(spared) => print_kept(cp, spared, destination),
            None if received.unremoved.count > 0 => {
                print_unremoved(cp, &received.unremoved, destination)
            }
            None if received.is_whole => end,
            None => print_partial(cp, received, destination),
        };
    }
    if !cp.transfer.quiet && !cp.transfer.json {
        say::err(&counts(cp, received, matches));
    }
    print_not_copied(cp, received);
    let has_xattrs = !cp.preserve().xattrs || print_xattrs(cp, received, destination);
    if received.is_whole {
        let exit = if has_xattrs { Exit::Done } else { Exit::Some };
        let exit = match received.unremoved.count {
            0 => exit,
            _ => print_unremoved(cp, &received.unremoved, destination),
        };
        return received.spared.map_or(exit, |spared| print_kept(cp, spared, destination));
    }
    print_partial(cp, received, destination)
}

/// Lists what was not copied.
fn print_not_copied(cp: &Cp, received: &Received) {
    let lines = received
        .changed
        .iter()
        .map(|path| (path, "it changed twice during the copy"))
        .chain(received.absent.iter().map(|(path, why)| (path, why.as_str())));
    if cp.transfer.json {
        lines.clone().for_each(|(path, reason)| print_line(&Line::NotCopied { path, reason }));
    }
    for (path, why) in lines.take(NAMED_MAX) {
        let path = visible(path);
        say::err(&format!("not copied: {path}: {why}"));
    }
    let all = received.changed.len() + received.absent.len();
    if all > NAMED_MAX {
        say::err(&format!("not copied: {} more", all - NAMED_MAX));
    }
}

/// Prints that the copy is partial, or would be.
fn print_partial(cp: &Cp, received: &Received, destination: &str) -> Exit {
    if cp.delete {
        // Entries in the way of copied ones had to be removed.
        let what = match (cp.dry_run, received.removed) {
            (true, _) => "nothing would be removed",
            (false, 0) => "nothing was removed",
            (false, _) => "nothing else was removed",
        };
        say::err(&format!("{what}: --delete needs a complete copy"));
    }
    let entries = entries((received.changed.len() + received.absent.len()) as u64);
    let not_copied = if cp.dry_run { "cannot be copied" } else { "not copied" };
    fail(Exit::Some, &format!("{destination}: {entries} {not_copied}"))
}

/// Prints which entries `--delete` kept, and why.
fn print_kept(cp: &Cp, Spared { entries, why }: Spared, destination: &str) -> Exit {
    if cp.transfer.json {
        print_line(&Line::NotRemoved { path: destination, entries, reason: why });
    }
    let entries = self::entries(entries);
    let message = match why {
        Spare::Dropped => format!(
            "{destination}: {entries} kept: the source now lists fewer files than when this copy began; if that is correct, run the same command again to remove them"
        ),
        Spare::Empty => {
            let lacks = match selects(cp) {
                true => "no file of the source matches",
                false => "the source has no file",
            };
            format!(
                "{destination}: nothing was removed: {lacks}, and --delete would remove {entries}; if that is intended, add --allow-empty"
            )
        }
    };
    fail(Exit::Some, &message)
}

/// Lists what could not be removed.
fn print_unremoved(cp: &Cp, unremoved: &Unremoved, destination: &str) -> Exit {
    let Unremoved { count, first } = unremoved;
    if cp.transfer.json {
        let first = first.iter().map(|(path, reason)| Entry { path, reason }).collect();
        print_line(&Line::Unremoved {
            path: destination,
            entries: *count,
            reason: "refused",
            first,
        });
    }
    for (path, why) in first.iter().take(NAMED_MAX) {
        let path = visible(path);
        say::err(&format!("not removed: {path}: {why}"));
    }
    let entries = entries(*count);
    let could = if cp.dry_run { "cannot be" } else { "could not be" };
    let message = format!("{destination}: {entries} {could} removed; everything else is done");
    fail(Exit::Some, &message)
}

/// Lists entries without their extended attributes; returns whether there are none.
fn print_xattrs(cp: &Cp, received: &Received, destination: &str) -> bool {
    let Some(losses) = &received.xattrs else {
        say::error(&format!(
            "{destination}: no extended attributes were copied: the server does not support them"
        ));
        return false;
    };
    if cp.transfer.json {
        losses
            .first
            .iter()
            .for_each(|(path, reason)| print_line(&Line::WithoutXattrs { path, reason }));
    }
    for (path, why) in &losses.first {
        let path = visible(path);
        say::err(&format!("extended attributes not copied: {path}: {why}"));
    }
    let named = losses.first.len() as u64;
    if losses.count > named {
        let more = units::count(losses.count - named);
        say::err(&format!("extended attributes not copied: {more} more"));
    }
    if losses.count > 0 {
        let entries = entries(losses.count);
        say::error(&format!("{destination}: {entries} without the original extended attributes"));
    }
    losses.count == 0
}

/// Returns the counts of the copy in one line.
fn counts(cp: &Cp, received: &Received, matches: bool) -> String {
    let further = match cp.preserve().links {
        true => ("hard link", "hard links"),
        false => ("hard link as a separate file", "hard links as separate files"),
    };
    let names = [("file", "files"), ("folder", "folders"), ("link", "links"), further];
    let parts: Vec<String> = received
        .counts
        .iter()
        .zip(names)
        .filter(|(count, _)| **count > 0)
        .map(|(&count, (one, many))| {
            format!("{} {}", units::count(count), if count == 1 { one } else { many })
        })
        .collect();
    let stayed = match received.kept_files {
        0 => String::new(),
        // The first count is that of the files.
        1 if received.counts[0] == 1 => " (already up to date)".to_owned(),
        1 => " (1 of the files already up to date)".to_owned(),
        kept => format!(" ({} of the files already up to date)", units::count(kept)),
    };
    let removed = match received.removed {
        0 => String::new(),
        removed => format!(", {} removed", units::count(removed)),
    };
    match parts.is_empty() {
        true if !matches => format!("nothing matches{removed}"),
        true => format!("the source is empty{removed}"),
        false => parts.join(", ") + &stayed + &removed,
    }
}

/// Whether filters select a part of the tree.
fn selects(cp: &Cp) -> bool {
    !cp.include.is_empty() || !cp.exclude.is_empty()
}

/// `1 entry`, `1,204 entries`.
fn entries(count: u64) -> String {
    format!("{} {}", units::count(count), if count == 1 { "entry" } else { "entries" })
}

/// Most entries that are listed.
const NAMED_MAX: usize = 50;
