//! How well forecasts of simulated transfers come true: before they begin, while they run, and what
//! could be known at all.

use swath_formats::transfer_log::{FACTS, LoggedTransfer};
use swath_model::observe::Eta;

use super::replay::{Compared, replay};
use super::scores::Scores;
use super::world::{MARKS, Simulated, World, run};

/// Lets the transfers of a world happen, and returns what is to be said of their forecasts, one line
/// for each thing.
///
/// # Errors
/// As [`run`].
pub fn simulate(world: &World) -> Result<Vec<String>, String> {
    let done = run(world)?;
    let judged = done.len() * LEARNED_TENTHS / 10..;
    let before = replay(&logged(world, &done));
    let scores = Scores::of(&before[judged.clone()]);
    let mut lines = vec![
        format!("before the begin: {}", scores.line()),
        format!("  median ratio of upper to lower end {:.2}", scores.width),
    ];
    let judged = &done[judged];
    for (number, part) in MARKS.into_iter().enumerate().skip(1) {
        let while_running: Vec<Compared> =
            judged.iter().filter_map(|one| by_its_own(one, number)).collect();
        let line = Scores::of(&while_running).line();
        lines.push(format!("after {:.0} % of the bytes: {line}", part * 100.0));
    }
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

/// Returns what a transfer itself forecast at a mark.
fn by_its_own(one: &Simulated, mark: usize) -> Option<Compared> {
    let mark = one.marks[mark]?;
    let [low_s, likely_s, high_s] =
        [mark.eta.low_s, mark.eta.likely_s, mark.eta.high_s].map(|left_s| mark.at_s + left_s);
    Some(Compared { takes: Eta { low_s, likely_s, high_s }, took_s: one.took_s })
}

/// Returns the forecast of an oracle. It knows how much the transfer gets of whatever its links offer,
/// and takes what they will offer for a (geometric) mean of what they offer now, with this weight, and
/// what they offer on average. Without a mark it does so at the begin.
fn by_oracle(one: &Simulated, mark: Option<usize>, weight: f64) -> Option<Compared> {
    let [begin, end] = one.offers;
    let (at_s, offer) = match mark {
        None => (one.ready_s, begin),
        Some(mark) => one.marks[mark].map(|mark| (mark.at_s, mark.offer))?,
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
