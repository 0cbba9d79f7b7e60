//! Sources whose connections end before anything of use has come.
//!
//! What comes of a block is of use only with all of it: a server, or something on the way, that cuts
//! each answer short, or falls silent in the middle of it, brings bytes for ever and nothing else. A
//! connection may break, and all of them at once where a network does; after a few in a row, each of
//! them opened after the one before had ended, what such a source sends is no sign of progress any
//! more, until it brings something.

use std::time::Duration;

use crate::reason::Why;
use swath_model::Time;
use swath_source::LaneError;

use crate::executor::lanes::LaneEntry;
use crate::executor::state::Run;

/// How often in a row a source was of no use.
#[derive(Debug, Default)]
pub(crate) struct NoProgress {
    /// Connections.
    count: u32,
    /// When the last of them ended.
    last_at: Time,
    /// And how.
    why: Option<Why>,
}

impl NoProgress {
    /// What this source sends is no progress as long as nothing of use comes of it.
    pub fn is_it(&self) -> bool {
        self.count >= BORNE
    }

    /// Why it is not.
    pub fn why(&self) -> Option<&Why> {
        self.why.as_ref().filter(|_| self.is_it())
    }
}

impl Run<'_> {
    /// A lane of this source has brought something of use.
    pub(crate) fn made_progress(&mut self, source: usize) {
        if let Some(entry) = self.sources.get_mut(source) {
            entry.no_progress = NoProgress::default();
        }
    }

    /// A lane of this source has ended, with this error if it was not we who closed it.
    pub(crate) fn ended_without_progress(
        &mut self,
        source: usize,
        lane: &LaneEntry,
        error: Option<&LaneError>,
    ) {
        let now = self.now();
        // Whom we leave because others are faster may well have been in the middle of something.
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

/// So many may be bad luck, as blocks that do not fit their group hashes may.
const BORNE: u32 = 3;
/// A connection that has brought nothing for so long when we close it is closed for that.
const SILENT: Duration = Duration::from_secs(1);
