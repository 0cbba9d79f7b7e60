//! What an earlier run left, until the target is open: the reference that mirrors are held to.
//!
//! The rule between two runs is the one between two mirrors of one run. Whoever contradicts what
//! an earlier run began is put aside while others may yet have that version. If nobody has it:
//! where a digest says that it is the version wanted, the transfer ends and keeps what there is,
//! since a captive portal or a broken mirror must not cost a download; else the file has changed,
//! and it is begun again.

use swath_store::{Left, OpenError, Verdict};

use super::Ended;
use super::agree::Version;
use super::state::Run;
use crate::error::GetError;
use crate::observe::SourceState;

impl Run<'_> {
    /// Take up what was found at the target's place, if it can be of what is wanted.
    pub fn hold_to(&mut self, left: Left) {
        if !matches!(
            left.compare(&self.identity(None), self.request.size_bytes),
            Verdict::Different(_)
        ) {
            if let Some(gap) = left.first_missing() {
                // What is there already is not asked for while the mirrors are looked at.
                self.planner.begin_within(gap);
            }
            self.left = Some(left);
        }
    }

    /// Whether a digest says that what is left is of the file that is wanted.
    pub(super) fn left_is_proved(&self) -> bool {
        let identity = self.identity(None);
        identity.proves()
            && self.left.as_ref().is_some_and(|left| left.compare(&identity, None) == Verdict::Same)
    }

    /// Why a source's file cannot be the one that an earlier run began.
    pub(super) fn contradicts_left(&self, source: usize, version: &Version) -> Option<String> {
        let left = self.left.as_ref()?;
        let identity = self.identity(Some(source));
        match left.compare(&identity, Some(version.size_bytes)) {
            Verdict::Different(what) => {
                let way_on = if self.left_is_proved() {
                    "; --no-resume starts again without what is kept"
                } else {
                    ""
                };
                Some(format!("an earlier run began another version of the file: {what}{way_on}"))
            }
            Verdict::Unproven if !identity.proves() => {
                Some("nothing proves that its file is the one that an earlier run began".to_owned())
            }
            Verdict::Same | Verdict::Unproven => None,
        }
    }

    /// A source contradicts what an earlier run began: wait for what others say, if there are any.
    pub(super) fn put_aside(&mut self, source: usize, reason: String) -> Result<(), Ended> {
        self.sources[source].accepted = Some(false);
        self.sources[source].left_out_for_version = true;
        if !self.others_to_hear(source) && self.give_up_left() {
            return Err(Ended::Restart);
        }
        self.drop_source(source, reason);
        Ok(())
    }

    /// Whether a source other than this one has yet to say what its file is.
    pub(super) fn others_to_hear(&self, source: usize) -> bool {
        (0..self.sources.len())
            .any(|at| at != source && !self.is_bad(at) && self.sources[at].accepted.is_none())
    }

    /// Nobody has the version that an earlier run began: do without. False if there is none, or if
    /// that would throw away what a digest vouches for.
    pub(super) fn give_up_left(&mut self) -> bool {
        // Of a stream whose end nobody knew, and nobody knows now, nothing can be gone on with.
        let endless = self.left.as_ref().is_some_and(|left| left.size_bytes.is_none());
        if self.left.is_none()
            || (self.left_is_proved() && !endless)
            || !self.sources.iter().any(|entry| entry.left_out_for_version)
        {
            return false;
        }
        self.left = None;
        for entry in self.sources.iter_mut().filter(|entry| entry.left_out_for_version) {
            entry.left_out_for_version = false;
            entry.state = SourceState::Waiting;
            entry.reason = None;
        }
        true
    }

    /// The target could not be opened. Where the size is to blame and others may tell another one,
    /// whoever told this one is put aside.
    pub(super) fn not_opened(&mut self, source: usize, error: Ended) -> Result<(), Ended> {
        let Ended::Error(GetError::Open(error)) = error else { return Err(error) };
        let is_too_large = match &error {
            OpenError::NoSpace { .. } => true,
            OpenError::Io { source, .. } => source.kind() == std::io::ErrorKind::FileTooLarge,
            _ => false,
        };
        if !is_too_large || self.request.size_bytes.is_some() || !self.others_to_hear(source) {
            return Err(GetError::Open(error).into());
        }
        self.forget_proof();
        self.sources[source].accepted = Some(false);
        self.drop_source(source, error.to_string());
        self.too_large.get_or_insert(error);
        Ok(())
    }
}
