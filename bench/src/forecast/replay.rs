//! The transfers of a log happen once more, one after the other.

use swath_formats::transfer_log::LoggedTransfer;
use swath_model::observe::Eta;
use swath_plan::forecast::{Forecast, Numbers, Outcome, Planned, Replay};

use super::progress::Marks;

/// What was forecast for a transfer, and how long it took.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// The forecast of its whole duration.
    pub takes: Eta,
    /// How long it took, in seconds.
    pub took_s: f64,
}

/// Forecasts each transfer at its start, from those that had ended by then. The transfers are in the
/// order of their starts, and so are the results.
pub fn replay(transfers: &[LoggedTransfer]) -> Vec<Compared> {
    replay_with(transfers, &mut [])
}

/// As [`replay`]; while transfers run, replaces what they measure of the time left by what follows from
/// that and the forecast.
pub fn replay_with(transfers: &[LoggedTransfer], marks: &mut [Marks]) -> Vec<Compared> {
    let (mut pairs, mut kinds, mut places) =
        (Numbers::default(), Numbers::default(), Numbers::default());
    let mut replay = Replay::default();
    let begins = transfers.iter().enumerate().map(|(number, one)| (one.start_s, number, None));
    let marked = marks.iter().enumerate().flat_map(|(number, marks)| {
        let start_s = transfers[number].start_s;
        let each = marks.iter().enumerate();
        each.filter_map(move |(part, mark)| Some((start_s + (*mark)?.at_s, number, Some(part))))
    });
    let mut events: Vec<(f64, usize, Option<usize>)> = begins.chain(marked).collect();
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut compared = Vec::with_capacity(transfers.len());
    for (at_s, number, part) in events {
        replay.advance(at_s);
        let transfer = &transfers[number];
        if let Some(part) = part {
            let Some(mark) = &mut marks[number][part] else { continue };
            let done_part = mark.done_bytes as f64 / transfer.bytes.max(1) as f64;
            let forecaster = replay.forecaster();
            if let Some(left) = forecaster.left(number as u64, mark.at_s, done_part, &mark.eta) {
                mark.eta = left;
            }
            continue;
        }
        if replay.forecaster().is_due() {
            replay.forecaster().learn();
        }
        let planned = Planned {
            at_s,
            bytes: transfer.bytes as f64,
            files: transfer.files as f64,
            pair: pairs.of((&transfer.from, &transfer.to)),
            kind: kinds.of(&transfer.kind),
            from: transfer.from.split(' ').map(|place| places.of(place)).collect(),
            to: (!transfer.to.is_empty()).then(|| places.of(&transfer.to)),
            prior: None,
            traits: transfer.facts,
        };
        let took_s = transfer.took_s;
        let Forecast { low_s, likely_s, high_s, .. } =
            replay.begin(&planned, Outcome::Took { seconds: took_s });
        compared.push(Compared { takes: Eta { low_s, likely_s, high_s }, took_s });
    }
    compared
}
