//! The transfers of a log happen once more, one after the other.

use swath_formats::transfer_log::LoggedTransfer;
use swath_model::observe::Eta;
use swath_plan::forecast::{Forecast, Numbers, Outcome, Planned, Replay};

/// What was forecast for a transfer, and how long it took.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// The forecast of its whole duration.
    pub takes: Eta,
    /// How long it took, in seconds.
    pub took_s: f64,
}

/// Forecasts each transfer at its begin, from those that had ended by then. The transfers are in the
/// order of their begins, and so are the results.
pub fn replay(transfers: &[LoggedTransfer]) -> Vec<Compared> {
    let (mut pairs, mut kinds, mut places) =
        (Numbers::default(), Numbers::default(), Numbers::default());
    let mut replay = Replay::default();
    let each = transfers.iter().map(|transfer| {
        let &LoggedTransfer { start_s: at_s, took_s, .. } = transfer;
        replay.advance(at_s);
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
        let Forecast { low_s, likely_s, high_s, .. } =
            replay.begin(&planned, Outcome::Took { seconds: took_s });
        Compared { takes: Eta { low_s, likely_s, high_s }, took_s }
    });
    each.collect()
}
