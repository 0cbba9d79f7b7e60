//! `swath stage status`, `extend` and `release`.
//!
//! All depots are queried at the same time.

use std::time::Duration;

use crate::failure::Failure;
use serde_json::json;
use swath_source::{DepotError, DepotStatus, Net, display_name};
use tokio::task::JoinSet;
use unicode_width::UnicodeWidthStr as _;

use super::args::{Extend, Staged};
use super::files::{self, Key, keys_of};
use super::hints;
use crate::config::Relay;
use crate::exit::Exit;
use crate::hints::untrusted_here;
use crate::progress::look::Look;
use crate::progress::units;
use crate::say;

/// A line of a table of depots.
pub struct Row {
    pub name: String,
    pub held_bytes: Option<u64>,
    pub size_bytes: u64,
    pub left: Option<Duration>,
    pub state: String,
}

/// `swath stage status`
pub async fn status(args: Staged) -> Result<Exit, Failure> {
    let keys = files::read(&args.file)?;
    let net = net(&args, &keys.depots)?;
    let size_bytes = keys.size_bytes;
    let asked = each(&net, &keys.depots, move |net, key| async move {
        net.depot_status(key.manage.as_ref().unwrap_or(&key.read), size_bytes).await
    });
    let answers = asked.await;
    let rows: Vec<Row> = answers
        .iter()
        .map(|(key, answer)| {
            let name = display_name(&key.relay);
            let size_bytes = keys.size_bytes;
            match answer {
                Ok(status) => Row {
                    held_bytes: Some(status.held.total_bytes()),
                    left: Some(status.left),
                    state: state(status),
                    name,
                    size_bytes,
                },
                Err(error) => {
                    let state = error.to_string();
                    Row { held_bytes: None, left: None, state, name, size_bytes }
                }
            }
        })
        .collect();
    let is_done: Vec<bool> = answers.iter().map(|(_, answer)| answer.is_ok()).collect();
    let exit = told(&args, &rows, &is_done);
    hint(&answers, &args.at);
    Ok(exit)
}

/// `swath stage extend`
pub async fn extend(args: Extend) -> Result<Exit, Failure> {
    let (length, args) = (args.length, args.staged);
    let keys = files::read(&args.file)?;
    let depots = managed(&args, keys.depots)?;
    let net = net(&args, &depots)?;
    let answers = each(&net, &depots, move |net, key| async move {
        net.depot_extend(key.manage.as_ref().unwrap_or(&key.read), length).await
    });
    let answers = answers.await;
    let row = |(key, answer): &(Key, Result<Duration, DepotError>)| Row {
        name: display_name(&key.relay),
        held_bytes: None,
        size_bytes: keys.size_bytes,
        left: answer.as_ref().ok().copied(),
        state: answer.as_ref().map_or_else(ToString::to_string, |_| "extended".to_owned()),
    };
    let rows: Vec<Row> = answers.iter().map(row).collect();
    let is_done: Vec<bool> = answers.iter().map(|(_, answer)| answer.is_ok()).collect();
    let exit = told(&args, &rows, &is_done);
    hint(&answers, &args.at);
    Ok(exit)
}

/// `swath stage release`
pub async fn release(args: Staged) -> Result<Exit, Failure> {
    let text = std::fs::read_to_string(keys_of(&args.file)).ok();
    let keys = files::read(&args.file)?;
    let depots = managed(&args, keys.depots)?;
    let net = net(&args, &depots)?;
    let answers = each(&net, &depots, |net, key| async move {
        net.depot_release(key.manage.as_ref().unwrap_or(&key.read)).await
    });
    let answers = answers.await;
    let words = |was_there: &bool| match was_there {
        true => "released".to_owned(),
        false => "its lease had expired".to_owned(),
    };
    let row = |(key, answer): &(Key, Result<bool, DepotError>)| Row {
        name: display_name(&key.relay),
        held_bytes: None,
        size_bytes: keys.size_bytes,
        left: None,
        state: answer.as_ref().map_or_else(ToString::to_string, words),
    };
    let rows: Vec<Row> = answers.iter().map(row).collect();
    let is_done: Vec<bool> = answers.iter().map(|(_, answer)| answer.is_ok()).collect();
    let exit = told(&args, &rows, &is_done);
    hint(&answers, &args.at);
    if exit == Exit::Done && std::fs::read_to_string(keys_of(&args.file)).ok() == text {
        // The keys are useless now, unless the file was staged again meanwhile.
        let _ = std::fs::remove_file(keys_of(&args.file));
    }
    Ok(exit)
}

/// Releases these depots; returns those that failed, and why.
pub async fn give_up(args: &crate::args::Net, at: &[Relay], depots: &[Key]) -> Vec<(Key, String)> {
    let net = match super::net(args, at) {
        Ok(net) => net,
        Err(why) => return depots.iter().map(|key| (key.clone(), why.to_string())).collect(),
    };
    let answers = each(&net, depots, |net, key| async move {
        net.depot_release(key.manage.as_ref().unwrap_or(&key.read)).await
    });
    let left =
        |(key, answer): (Key, Result<bool, DepotError>)| Some((key, answer.err()?.to_string()));
    answers.await.into_iter().filter_map(left).collect()
}

/// Returns the depots, if their keys are known.
fn managed(args: &Staged, depots: Vec<Key>) -> Result<Vec<Key>, Failure> {
    if depots.iter().all(|key| key.manage.is_some()) {
        return Ok(depots);
    }
    let keys = keys_of(&args.file);
    let words = "is missing: only its owner can extend or release the staged file";
    Err(Failure::new(Exit::Input, format!("{} {words}", keys.display())))
}

fn net(args: &Staged, depots: &[Key]) -> Result<Net, Failure> {
    for named in &args.at {
        let is_there = |key: &Key| key.read.origin() == named.url.origin();
        if !depots.iter().any(is_there) {
            let at = format!("{}://{}", named.url.scheme(), named.site());
            return Err(Failure::usage(format!("--at: {at} holds nothing of this file")));
        }
    }
    super::net(&args.net, &args.at)
}

/// Prints hints on relays that need a token or are not trusted.
fn hint<T>(answers: &[(Key, Result<T, DepotError>)], at: &[Relay]) {
    let mut is_untrusted = false;
    for (key, answer) in answers {
        match answer {
            Err(DepotError::Refused { status: 401, .. }) => {
                say::hint(&hints::token(&key.relay, at))
            }
            Err(DepotError::Lane(error)) => {
                is_untrusted |= untrusted_here(error).is_some();
            }
            _ => {}
        }
    }
    if is_untrusted {
        say::hint(hints::TRUST_OF_US);
    }
}

/// Queries all depots at once; returns the answers in their order.
async fn each<T: Send + 'static, F>(
    net: &Net,
    depots: &[Key],
    ask: impl Fn(Net, Key) -> F,
) -> Vec<(Key, Result<T, DepotError>)>
where
    F: Future<Output = Result<T, DepotError>> + Send + 'static,
{
    let mut asked = JoinSet::new();
    for (at, key) in depots.iter().enumerate() {
        let answer = ask(net.clone(), key.clone());
        let key = key.clone();
        asked.spawn(async move { (at, key, answer.await) });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(at, ..)| *at);
    answers.into_iter().map(|(_, key, answer)| (key, answer)).collect()
}

fn state(status: &DepotStatus) -> String {
    let damaged_bytes = status.damaged.total_bytes();
    if damaged_bytes > 0 {
        return format!("{} damaged", units::bytes(damaged_bytes));
    }
    let is_whole = status.held.total_bytes() == status.size_bytes;
    if is_whole { "whole".to_owned() } else { "partial".to_owned() }
}

/// Prints all depots; returns the exit code.
fn told(args: &Staged, rows: &[Row], is_done: &[bool]) -> Exit {
    let done = is_done.iter().filter(|is_done| **is_done).count();
    let exit = match done {
        done if done == rows.len() => Exit::Done,
        0 => Exit::Sources,
        _ => Exit::Some,
    };
    let text = if args.json { lines(rows, is_done) } else { table(rows) };
    say::out(text.as_bytes(), exit)
}

fn lines(rows: &[Row], is_done: &[bool]) -> String {
    let line = |(row, is_done): (&Row, &bool)| {
        let line = json!({
            "depot": row.name,
            "held_bytes": row.held_bytes,
            "size_bytes": row.size_bytes,
            "lease_s": row.left.map(|left| left.as_secs_f64()),
            "ok": is_done,
            "state": row.state,
        });
        format!("{line}\n")
    };
    rows.iter().zip(is_done).map(line).collect()
}

/// Returns the table for people.
pub fn table(rows: &[Row]) -> String {
    let look = Look::of_lines();
    let has_held = rows.iter().any(|row| row.held_bytes.is_some());
    let has_left = rows.iter().any(|row| row.left.is_some());
    let none = || "-".to_owned();
    let mut cells = vec![["DEPOT", "HELD", "", "LEASE", "STATE"].map(str::to_owned)];
    for row in rows {
        let part = row.held_bytes.map(|held| units::percent_done(held, row.size_bytes));
        cells.push([
            row.name.clone(),
            row.held_bytes.map_or_else(none, units::bytes),
            part.unwrap_or_default(),
            row.left.map_or_else(none, |left| units::duration(left.as_secs_f64())),
            look.safe_words(&row.state),
        ]);
    }
    let shown = [true, has_held, has_held, has_left, true];
    let width = |column: usize| cells.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..shown.len()).map(width).collect();
    let mut out = String::new();
    for row in &cells {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate().filter(|(column, _)| shown[*column]) {
            let pad = " ".repeat(widths[column] - cell.width());
            // Figures are right-aligned.
            let is_figure = column == 1 || column == 2;
            line += &if is_figure { format!("{pad}{cell}") } else { format!("{cell}{pad}") };
            line += "  ";
        }
        out += &format!("  {}\n", line.trim_end());
    }
    out
}
