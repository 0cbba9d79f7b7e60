//! Sources whose connections end before anything useful has come.
//!
//! A block is useful only when all of it has come. If a server, or something on the route, cuts
//! each answer short or stops in the middle of it, bytes come for ever without progress. One
//! connection may break, or all of them at once if the network does. But after a few in a row, each
//! opened after the one before had ended, bytes from such a source no longer count as progress,
//! until it brings something useful.

use std::time::Duration;

use crate::reason::Why;
use swath_model::Time;
use swath_source::LaneError;

use crate::executor::lanes::LaneEntry;
use crate::executor::state::Run;

/// Useless connections of a source in a row.
#[derive(Debug, Default)]
pub(crate) struct NoProgress {
    /// Their number.
    count: u32,
    /// When the last one ended.
    last_at: Time,
    /// How it ended.
    why: Option<Why>,
}

impl NoProgress {
    /// Returns whether bytes from this source do not count as progress.
    pub fn is_it(&self) -> bool {
        self.count >= BORNE
    }

    /// Returns why they do not.
    pub fn why(&self) -> Option<&Why> {
        self.why.as_ref().filter(|_| self.is_it())
    }
}

impl Run<'_> {
    /// Notes that a lane of this source has brought something useful.
    pub(crate) fn made_progress(&mut self, source: usize) {
        if let Some(entry) = self.sources.get_mut(source) {
            entry.no_progress = NoProgress::default();
        }
    }

    /// Counts an ended lane if it was useless. It has an error unless swath closed it.
    pub(crate) fn ended_without_progress(
        &mut self,
        source: usize,
        lane: &LaneEntry,
        error: Option<&LaneError>,
    ) {
        let now = self.now();
        // A lane closed because others are faster may have been in the middle of a block.
        let broke = error.is_some() || now.since(lane.heard_at) >= SILENT;
        let came = lane.lane.meter().body_bytes() > 0;
        let Some(entry) = self.sources.get_mut(source) else { return };
        let follows = lane.opened_at >= entry.no_progress.last_at;
        if !broke || !came || lane.brought || !follows {
            return;
        }
        entry.no_progress.count += 1;
        entry.no_progress.last_at = now;
        let what =
            if self.dataset.proves_blocks() { "a block is complete" } else { "anything new comes" };
        let how = error.map_or_else(|| "the data stops".to_owned(), ToString::to_string);
        let words = format!("each answer ends before {what}: {how}");
        entry.no_progress.why = Some(words.clone().into());
        if entry.no_progress.count == BORNE {
            let name = entry.source.name().to_string();
            self.note(format!("{name}: {words}; they are useless"), true);
        }
    }
}

/// From this many on it is not bad luck, as with blocks that do not match their group hashes.
const BORNE: u32 = 3;
/// A connection that swath closes after this much silence is closed because of the silence.
const SILENT: Duration = Duration::from_secs(1);
