//! How well forecasts of simulated transfers come true: before they begin, while they run, and what
//! could be known at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use swath_formats::transfer_log::{FACTS, LoggedTransfer};
use swath_model::observe::Eta;

use super::progress::{self, Mark, Marks, PARTS};
use super::replay::{Compared, replay};
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
    let judged = done.len() * LEARNED_TENTHS / 10..;
    let before = replay(&logged(world, &done));
    let scores = Scores::of(&before[judged.clone()]);
    let mut lines = vec![
        format!("before the begin: {}", scores.line()),
        format!("  median ratio of upper to lower end {:.2}", scores.width),
    ];
    let judged = &done[judged];
    let marked: Vec<(Marks, f64)> = judged.iter().map(|one| (one.marks, one.took_s)).collect();
    lines.extend(progress::lines(&marked));
    lines.push("Whoever knows all but the background to come, and takes it for".to_owned());
    for (name, mark) in [("before the begin", None), ("after 10 % of the bytes", Some(1))] {
        for (taken, weight) in [("its mean", 0.0), ("the present one", 1.0), ("half of each", 0.5)]
        {
            let all: Vec<Compared> =
                judged.iter().filter_map(|one| by_oracle(one, mark, weight)).collect();
            lines.push(format!("  {taken}, {name}: {}", Scores::of(&all).errors()));
        }
    }
    Ok(lines)
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
/// how many transfers run at the begin, with how many bytes, and the day of the week.
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
            line: number as u64 + 1,
            start_s: plan.at_s,
            took_s: *took_s,
            bytes: plan.bytes,
            files: plan.files,
            from: world.from(plan),
            to: world.sites[plan.to].name.clone(),
            kind: plan.kind.name().to_owned(),
            facts,
        }
    });
    each.collect()
}

/// Returns the forecast of an oracle. It knows how much the transfer gets of whatever its links offer,
/// and takes what they will offer for a (geometric) mean of what they offer now, with this weight, and
/// what they offer on average. Without a mark it does so at the begin.
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
