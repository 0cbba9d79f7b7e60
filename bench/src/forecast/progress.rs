//! What transfers say of their own end while they run.

use swath_model::observe::{Eta, Event, Phase};

use super::replay::Compared;
use super::scores::Scores;

/// What a transfer said of its progress.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Seconds since its start.
    pub at_s: f64,
    /// Bytes that had come.
    pub done_bytes: u64,
    /// Its rate.
    pub rate_bytes_per_s: f64,
    /// The time left.
    pub eta: Eta,
}

/// The first estimate of a transfer after each of [`PARTS`].
pub type Marks = [Option<Mark>; PARTS.len()];

/// Parts of the bytes of a transfer.
pub const PARTS: [f64; 4] = [0.0, 0.1, 0.25, 0.5];

/// Keeps what an event says, if it is a first estimate.
pub fn look(marks: &mut Marks, event: &Event) {
    let Event::Progress(now) = event else { return };
    let (Some(eta), Some(size_bytes), Phase::Fetching) = (now.eta, now.size_bytes, now.phase)
    else {
        return;
    };
    for (mark, part) in marks.iter_mut().zip(PARTS) {
        if mark.is_none() && now.done_bytes as f64 >= part * size_bytes as f64 {
            let (at_s, done_bytes) = (now.at_s, now.done_bytes);
            *mark = Some(Mark { at_s, done_bytes, rate_bytes_per_s: now.rate_bytes_per_s, eta });
        }
    }
}

/// Returns lines about the estimates of transfers, each with how long it took: one line for each of
/// [`PARTS`].
pub fn lines(transfers: &[(Marks, f64)]) -> Vec<String> {
    let each = PARTS.iter().enumerate().map(|(number, part)| {
        let predicted = |&(marks, took_s): &(Marks, f64)| {
            marks[number].map(|mark| whole(mark.at_s, mark.eta, took_s))
        };
        let predicted: Vec<Compared> = transfers.iter().filter_map(predicted).collect();
        let (count, line) = (predicted.len(), Scores::of(&predicted).line());
        format!("after {:.0} % of the bytes, {count} transfers: {line}", part * 100.0)
    });
    each.collect()
}

/// Returns what the time left, said at `at_s`, says of the whole duration.
pub fn whole(at_s: f64, left: Eta, took_s: f64) -> Compared {
    Compared { takes: left.map(|left_s| at_s + left_s), took_s }
}

#[cfg(test)]
mod tests {
    use swath_model::observe::Snapshot;

    use super::*;

    #[test]
    fn the_first_estimate_after_each_part_counts() {
        let mut marks = Marks::default();
        for (at_s, done_bytes) in [(1.0, 5), (2.0, 12), (3.0, 20), (4.0, 60)] {
            let left_s = 9.0 - at_s;
            look(
                &mut marks,
                &Event::Progress(Snapshot {
                    at_s,
                    phase: Phase::Fetching,
                    size_bytes: Some(100),
                    files: 1,
                    done_bytes,
                    resumed_bytes: 0,
                    verified_bytes: 0,
                    rate_bytes_per_s: 0.0,
                    eta: Some(Eta { low_s: left_s, likely_s: left_s, high_s: left_s }),
                    sources: Vec::new(),
                }),
            );
        }
        let at_s = marks.map(|mark| mark.map(|mark| mark.at_s));
        assert_eq!(at_s, [Some(1.0), Some(2.0), Some(4.0), Some(4.0)]);
        let tenth = &lines(&[(marks, 10.0)])[1];
        let expected = "after 10 % of the bytes, 1 transfers: median error 10.0 %, MAPE 10.0 %, ";
        assert!(tenth.starts_with(expected), "{tenth}");
    }
}
