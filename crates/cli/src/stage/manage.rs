//! `swath stage status`, `extend` and `release`.
//!
//! All depots are queried at the same time.

use std::time::Duration;

use crate::failure::Failure;
use serde_json::json;
use swath_source::{DepotError, DepotStatus, Net, display_name};
use tokio::task::JoinSet;
use url::Url;

use super::args::{Extend, Staged};
use super::files::{self, Key, Keys, keys_of};
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
    pub is_ok: bool,
    pub held_bytes: Option<u64>,
    pub size_bytes: u64,
    pub left: Option<Duration>,
    pub state: String,
}

/// `swath stage status`
pub async fn status(args: Staged) -> Result<Exit, Failure> {
    let keys = files::read(&args.file)?;
    let size_bytes = keys.size_bytes;
    let ask = move |net: Net, url: Url| async move { net.depot_status(&url, size_bytes).await };
    query(&args, &keys, ask, |status| {
        (Some(status.held.total_bytes()), Some(status.left), state(status))
    })
    .await
}

/// `swath stage extend`
pub async fn extend(args: Extend) -> Result<Exit, Failure> {
    let (length, args) = (args.length, args.staged);
    let keys = files::read(&args.file)?;
    check_keys(&args, &keys)?;
    let ask = move |net: Net, url: Url| async move { net.depot_extend(&url, length).await };
    query(&args, &keys, ask, |left| (None, Some(*left), "extended".to_owned())).await
}

/// `swath stage release`
pub async fn release(args: Staged) -> Result<Exit, Failure> {
    let text = std::fs::read_to_string(keys_of(&args.file)).ok();
    let keys = files::read(&args.file)?;
    check_keys(&args, &keys)?;
    let exit = query(&args, &keys, release_one, |was_there| {
        let state = if *was_there { "released" } else { "its lease had expired" };
        (None, None, state.to_owned())
    })
    .await?;
    if exit == Exit::Done && std::fs::read_to_string(keys_of(&args.file)).ok() == text {
        // The keys are useless now, unless the file was staged again meanwhile.
        let _ = std::fs::remove_file(keys_of(&args.file));
    }
    Ok(exit)
}

async fn release_one(net: Net, url: Url) -> Result<bool, DepotError> {
    net.depot_release(&url).await
}

/// Queries all depots of a staged file, and prints a row for each: held bytes, lease and state.
async fn query<T: Send + 'static, F>(
    args: &Staged,
    keys: &Keys,
    ask: impl Fn(Net, Url) -> F,
    shown: impl Fn(&T) -> (Option<u64>, Option<Duration>, String),
) -> Result<Exit, Failure>
where
    F: Future<Output = Result<T, DepotError>> + Send + 'static,
{
    let answers = each(&net(args, &keys.depots)?, &keys.depots, ask).await;
    let row = |(key, answer): &(Key, Result<T, DepotError>)| {
        let (held_bytes, left, state) = match answer {
            Ok(answer) => shown(answer),
            Err(error) => (None, None, error.to_string()),
        };
        let (name, size_bytes) = (display_name(&key.relay), keys.size_bytes);
        Row { name, is_ok: answer.is_ok(), held_bytes, size_bytes, left, state }
    };
    let rows: Vec<Row> = answers.iter().map(row).collect();
    let exit = match rows.iter().filter(|row| row.is_ok).count() {
        done if done == rows.len() => Exit::Done,
        0 => Exit::Sources,
        _ => Exit::Some,
    };
    let text = if args.json { rows.iter().map(line).collect() } else { table(&rows) };
    let exit = say::out(text.as_bytes(), exit);
    hint(&answers, &args.at);
    Ok(exit)
}

/// Releases these depots; returns those that failed, and why.
pub async fn give_up(args: &crate::args::Net, at: &[Relay], depots: &[Key]) -> Vec<(Key, String)> {
    let net = match super::net(args, at) {
        Ok(net) => net,
        Err(why) => return depots.iter().map(|key| (key.clone(), why.to_string())).collect(),
    };
    let answers = each(&net, depots, release_one);
    let left =
        |(key, answer): (Key, Result<bool, DepotError>)| Some((key, answer.err()?.to_string()));
    answers.await.into_iter().filter_map(left).collect()
}

/// Checks that the keys of all depots are known.
fn check_keys(args: &Staged, keys: &Keys) -> Result<(), Failure> {
    if keys.depots.iter().all(|key| key.manage.is_some()) {
        return Ok(());
    }
    let path = keys_of(&args.file);
    let words = "is missing: only its owner can extend or release the staged file";
    Err(Failure::input(format!("{} {words}", path.display())))
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
    ask: impl Fn(Net, Url) -> F,
) -> Vec<(Key, Result<T, DepotError>)>
where
    F: Future<Output = Result<T, DepotError>> + Send + 'static,
{
    let mut asked = JoinSet::new();
    for (at, key) in depots.iter().enumerate() {
        let answer = ask(net.clone(), key.manage.clone().unwrap_or_else(|| key.read.clone()));
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

/// Returns a line of JSON.
fn line(row: &Row) -> String {
    let line = json!({
        "depot": row.name,
        "held_bytes": row.held_bytes,
        "size_bytes": row.size_bytes,
        "lease_s": row.left.map(|left| left.as_secs_f64()),
        "ok": row.is_ok,
        "state": row.state,
    });
    format!("{line}\n")
}

/// Returns the table for people.
pub fn table(rows: &[Row]) -> String {
    let look = Look::of_lines();
    let has_held = rows.iter().any(|row| row.held_bytes.is_some());
    let has_left = rows.iter().any(|row| row.left.is_some());
    let none = || "-".to_owned();
    let cells = |name: String, held: [String; 2], left: String, state: String| {
        let mut cells = vec![name];
        cells.extend(held.into_iter().filter(|_| has_held));
        cells.extend(Some(left).filter(|_| has_left));
        cells.push(state);
        cells
    };
    let own = str::to_owned;
    let mut all = vec![cells(own("DEPOT"), [own("HELD"), own("")], own("LEASE"), own("STATE"))];
    all.extend(rows.iter().map(|row| {
        let part = row.held_bytes.map(|held| units::percent_done(held, row.size_bytes));
        cells(
            row.name.clone(),
            [row.held_bytes.map_or_else(none, units::bytes), part.unwrap_or_default()],
            row.left.map_or_else(none, |left| units::duration(left.as_secs_f64())),
            look.safe_words(&row.state),
        )
    }));
    let right: &[usize] = if has_held { &[1, 2] } else { &[] };
    let lines = say::columns(&all, right).into_iter();
    lines.map(|line| format!("  {line}\n")).collect()
}
