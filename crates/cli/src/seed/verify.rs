//! Verifies the data before it is offered.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use swath_formats::peer::Bitfield;
use swath_model::path::visible;
use swath_model::{counted, units};
use swath_swarm::{Checked, Fault, check};

use super::torrents::Found;
use crate::exit::{chain, warn};
use crate::say;

/// Returns the pieces that are right, and warns of the files that are not. Without `verifies` all
/// pieces of files that are there and have their length count as right. `stop` ends it early.
pub async fn verified(
    found: &Found,
    verifies: bool,
    is_quiet: bool,
    stop: &Arc<AtomicBool>,
) -> Bitfield {
    let info = &found.metainfo.info;
    let name = visible(info.name().as_str());
    let pieces = info.piece_count() as u32;
    if !verifies {
        let mut have = Bitfield::all(pieces);
        for (range, error) in found.files.faults() {
            warn(&format!("{name}: {}: not offered", chain(&error)));
            for piece in range.start / info.piece_bytes()..range.end.div_ceil(info.piece_bytes()) {
                have.remove(swath_formats::peer::PieceIndex(piece as u32));
            }
        }
        return have;
    }
    let progress = Arc::new(AtomicU64::new(0));
    let checking = {
        let (metainfo, files) = (Arc::clone(&found.metainfo), Arc::clone(&found.files));
        let (progress, stop) = (Arc::clone(&progress), Arc::clone(stop));
        tokio::task::spawn_blocking(move || check(&metainfo, &files, &progress, &stop))
    };
    let begun = Instant::now();
    let shows = !is_quiet && io::stderr().is_terminal();
    while !checking.is_finished() {
        if shows {
            let done = progress.load(Ordering::Relaxed);
            let rate = units::rate(done as f64 / begun.elapsed().as_secs_f64().max(1e-3));
            let percent = units::percent_done(done, info.total_bytes());
            // The terminal may be gone; the work goes on.
            let _ = write!(io::stderr(), "\r\x1b[Kverifying {name}: {percent}, {rate}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    if shows {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    // A panic was reported; nothing is offered then.
    let Ok(Checked { have, faults }) = checking.await else { return Bitfield::none(pieces) };
    for (path, fault) in faults.iter().take(NAMED_MAX) {
        let what = match fault {
            Fault::File(error) => chain(error),
            Fault::Pieces(count) => {
                let are = if *count == 1 { "is" } else { "are" };
                format!("{} of {} {are} wrong", counted(*count, "piece"), visible(path))
            }
        };
        warn(&format!("{name}: {what}: not offered"));
    }
    if faults.len() > NAMED_MAX {
        let more = counted((faults.len() - NAMED_MAX) as u64, "more file");
        warn(&format!("{name}: {more} with wrong or missing data: not offered"));
    }
    if !is_quiet {
        let (right, all) = (u64::from(have.count()), counted(u64::from(pieces), "piece"));
        let took = units::duration(begun.elapsed().as_secs_f64());
        say::err(&format!(
            "verified {name}: {} of {all} are right, in {took}",
            units::count(right)
        ));
    }
    have
}

/// Short data is verified in less.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// More lines nobody reads.
const NAMED_MAX: usize = 20;
