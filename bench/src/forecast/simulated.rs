//! How well forecasts of simulated transfers come true: before they begin, while they run, and what
//! could be known at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use swath_formats::transfer_log::{FACTS, LoggedTransfer};
use swath_model::observe::Eta;

use super::progress::{self, Mark, Marks, PARTS};
use super::replay::{Compared, replay_with};
use super::scores::Scores;
use super::world::{Simulated, World, run};

/// Lets the transfers of a world happen, and returns what is to be said of their forecasts, one line
/// for each thing. Keeps them in this folder, if there is one: as a log, and what they said while they
/// ran.
///
/// # Errors
/// As [`run`], or the file that cannot be written.
pub fn simulate(world: &World, keep: Option<&Path>) -> Result<Vec<String>, String> {
    let done = run(world)?;
    if let Some(folder) = keep {
        let fault = |error: io::Error| format!("{}: {error}", folder.display());
        write(world, &done, folder).map_err(fault)?;
    }
    let learned = done.len() * LEARNED_TENTHS / 10;
    let mut marks: Vec<Marks> = done.iter().map(|one| one.marks).collect();
    let before = replay_with(&logged(world, &done), &mut marks);
    let scores = Scores::of(&before[learned..]);
    let mut lines = vec![
        format!("before the start: {}", scores.line()),
        format!("  median ratio of upper to lower end {:.2}", scores.width),
    ];
    let alone: Vec<bool> = done.iter().map(|one| is_alone(one, &done)).collect();
    let judged = || (learned..done.len()).filter(|&at| alone[at]);
    let before: Vec<Compared> = judged().map(|at| before[at]).collect();
    let marked = |at: usize| (marks[at], done[at].took_s);
    lines.extend(progress::lines(&(learned..done.len()).map(marked).collect::<Vec<_>>()));
    let count = before.len();
    lines.push(format!("{count} transfers that shared no link with another of these"));
    lines.push(format!("  before the start: {}", Scores::of(&before).line()));
    let while_running = progress::lines(&judged().map(marked).collect::<Vec<_>>());
    lines.extend(while_running.iter().map(|line| format!("  {line}")));
    lines
        .push("an oracle that knows everything but the background to come, and expects".to_owned());
    for (when, mark) in [("before the start", None), ("after 10 % of the bytes", Some(1))] {
        for (expected, weight) in [("its mean", 0.0), ("no change", 1.0), ("half of each", 0.5)] {
            let oracle = |one: &Simulated| by_oracle(one, mark, weight);
            let all: Vec<Compared> = done[learned..].iter().filter_map(oracle).collect();
            lines.push(format!("  {expected}, {when}: {}", Scores::of(&all).errors()));
        }
    }
    Ok(lines)
}

/// Whether a transfer shared no link with another one.
fn is_alone(one: &Simulated, all: &[Simulated]) -> bool {
    let end_s = |one: &Simulated| one.plan.at_s + one.took_s;
    all.iter().all(|other| {
        std::ptr::eq(one, other)
            || other.plan.at_s >= end_s(one)
            || end_s(other) <= one.plan.at_s
            || other.plan.from.iter().all(|site| !one.plan.from.contains(site))
    })
}

/// Writes `SETTING.csv`, a log, and `SETTING-progress.csv`, a line for each mark of each transfer.
fn write(world: &World, done: &[Simulated], folder: &Path) -> io::Result<()> {
    let name = format!("{:?}", world.setting).to_lowercase();
    let mut log = BufWriter::new(File::create(folder.join(format!("{name}.csv")))?);
    writeln!(log, "start,took_s,bytes,files,from,to,kind,beside,beside_bytes,weekday")?;
    for one in logged(world, done) {
        let LoggedTransfer { start_s, took_s, bytes, files, from, to, kind, facts, .. } = one;
        let [beside, beside_bytes, weekday, ..] = facts;
        write!(log, "{start_s},{took_s},{bytes},{files},{from},{to},{kind},")?;
        writeln!(log, "{beside},{beside_bytes},{weekday}")?;
    }
    log.flush()?;
    let progress = folder.join(format!("{name}-progress.csv"));
    let mut progress = BufWriter::new(File::create(progress)?);
    writeln!(progress, "transfer,part,at_s,done_bytes,rate_bytes_per_s,low_s,likely_s,high_s")?;
    for (number, one) in done.iter().enumerate() {
        for (mark, part) in one.marks.iter().zip(PARTS) {
            let Some(Mark { at_s, done_bytes, rate_bytes_per_s, eta }) = mark else { continue };
            let Eta { low_s, likely_s, high_s } = eta;
            write!(progress, "{number},{part},{at_s},{done_bytes},{rate_bytes_per_s},")?;
            writeln!(progress, "{low_s},{likely_s},{high_s}")?;
        }
    }
    progress.flush()
}

/// Returns the transfers as a log has them. Its facts are those of the history that the program keeps:
/// how many transfers run at the start, with how many bytes, and the day of the week.
pub fn logged(world: &World, done: &[Simulated]) -> Vec<LoggedTransfer> {
    let each = done.iter().enumerate().map(|(number, Simulated { plan, took_s, .. })| {
        let runs = |other: &&Simulated| other.plan.at_s + other.took_s > plan.at_s;
        let beside: Vec<u64> =
            done[..number].iter().filter(runs).map(|other| other.plan.bytes).collect();
        let mut facts = [f32::NAN; FACTS];
        facts[0] = beside.len() as f32;
        facts[1] = (beside.iter().sum::<u64>() as f32).ln_1p();
        facts[2] = ((plan.at_s / 86_400.0) as u64 % 7) as f32;
        LoggedTransfer {
            start_s: plan.at_s,
            took_s: *took_s,
            bytes: plan.bytes,
            files: plan.files,
            from: world.from(plan),
            to: world.sites[plan.to].name.clone(),
            kind: plan.kind.name().to_owned(),
            limit_bytes_per_s: None,
            facts,
        }
    });
    each.collect()
}

/// Returns the forecast of an oracle. It knows how much the transfer gets of whatever its links offer,
/// and takes what they will offer for a (geometric) mean of what they offer now, with this weight, and
/// what they offer on average. Without a mark it does so at the start.
fn by_oracle(one: &Simulated, mark: Option<usize>, weight: f64) -> Option<Compared> {
    let [begin, end] = one.offers;
    let (at_s, offer) = match mark {
        None => (one.ready_s, begin),
        Some(mark) => (one.marks[mark]?.at_s, one.mark_offers[mark]?),
    };
    let seen_s = if mark.is_none() { one.took_s } else { one.took_s - at_s };
    let left_s = one.took_s - at_s;
    let offered_bytes_per_s = (end.bytes - offer.bytes) / seen_s;
    let taken_bytes_per_s =
        offer.bytes_per_s.powf(weight) * one.mean_offer_bytes_per_s.powf(1.0 - weight);
    let likely_s = at_s + left_s * offered_bytes_per_s / taken_bytes_per_s;
    let takes = Eta { low_s: likely_s, likely_s, high_s: likely_s };
    Some(Compared { takes, took_s: one.took_s })
}

/// From so many of ten transfers only is learned.
const LEARNED_TENTHS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::world::Setting;

    #[test]
    fn a_world_becomes_a_log_and_lines() {
        let world = World::of(Setting::Steady, 7, 12);
        let done = run(&world).unwrap();
        let log = logged(&world, &done);
        for (one, logged) in done.iter().zip(&log) {
            assert_eq!((logged.bytes, logged.took_s), (one.plan.bytes, one.took_s));
            // With the traffic of others known, nothing but noise is left.
            let oracle = by_oracle(one, None, 0.0).unwrap();
            let ratio = oracle.takes.likely_s / one.took_s;
            assert!((0.8..1.25).contains(&ratio), "{ratio}: {one:?}");
        }
        let beside = log.iter().filter(|one| one.facts[0] > 0.0).count();
        let shared = done.iter().filter(|one| !is_alone(one, &done)).count();
        assert!(beside < 12 && shared < 12 && shared != 1, "{beside} {shared}");
        let folder = tempfile::tempdir().unwrap();
        let lines = simulate(&world, Some(folder.path())).unwrap();
        assert!(lines[0].starts_with("before the start: median error"), "{lines:?}");
        let kept = std::fs::read(folder.path().join("steady.csv")).unwrap();
        let kept = swath_formats::transfer_log::TransferLog::new(kept.as_slice()).unwrap();
        for (kept, logged) in kept.zip(&log) {
            let kept = kept.unwrap();
            assert_eq!((&kept.from, kept.took_s), (&logged.from, logged.took_s));
            assert_eq!(kept.facts[..3], logged.facts[..3]);
        }
    }
}
