//! Compares the facts of a single file that came by relays with those of its source.
//!
//! A relay can change the bytes that it forwards, and with them their size, version and digest. So
//! if the user gave no digest and the first answer came by relays (by a route that the user chose,
//! or because the source was too slow), one more request asks the source directly. Its answer
//! counts, and relays that contradict it are dropped. If it does not answer, swath warns at the
//! end: a digest that came by relays proves only that nothing broke by accident.

use std::time::Duration;

use std::sync::Arc;
use swath_model::SourceId;
use swath_plan::Event as PlanEvent;
use swath_plan::routes::Fault;

use swath_source::Facts;

use crate::executor::Ended;
use crate::executor::integrity::agree::Version;
use crate::executor::integrity::samples::is_answer;
use crate::executor::jobs::JobDone;
use crate::executor::state::Run;
use crate::observe::{DigestFrom, Event};
use crate::request::Destination;
use swath_model::units;

impl Run<'_> {
    /// Asks the origin about the file if the first answer, which is from this source, came by
    /// relays.
    pub(crate) fn call_witness(&mut self, source: usize) {
        let entry = &self.sources[source];
        let is_wanted = !matches!(self.request.destination, Destination::Nowhere { .. });
        if !entry.is_exposed() || !is_wanted {
            return;
        }
        self.integrity.word_of_relays = self.integrity.digests_offered;
        if self.is_mute(source) {
            return;
        }
        let entry = &self.sources[source];
        self.integrity.samples.waits_for_digest = true;
        let origin = Arc::clone(&entry.source);
        self.jobs.add(async move {
            let told = tokio::time::timeout(ANSWERS_WITHIN, origin.describe()).await;
            let told = told.ok();
            let is_mute = !is_answer(told.as_ref());
            JobDone::Witnessed { source, is_mute, told: told.and_then(Result::ok).map(Box::new) }
        });
    }

    /// Handles the origin's own answer about its file, or that there is none.
    pub(crate) fn witnessed(
        &mut self,
        source: usize,
        is_mute: bool,
        told: Option<&Facts>,
    ) -> Result<(), Ended> {
        self.integrity.samples.waits_for_digest = false;
        if is_mute {
            self.note_mute(source);
        }
        let Some(told) = told else { return Ok(()) };
        let reference = self.sources.version();
        let is_other = match (reference, Version::of(told)) {
            (Some(ours), Some(theirs)) => {
                ours.admits(&theirs, self.integrity.digests_offered).is_err()
            }
            _ => false,
        };
        if is_other || self.integrity.digests_offered && self.contradicts_digest(told).is_some() {
            return self.leave_relays();
        }
        let is_told = |known| told.digests.contains(&known);
        if self.request.known_digests().all(is_told) {
            self.integrity.word_of_relays = false;
        }
        let is_withheld = self.integrity.proof.is_empty() && !told.digests.is_empty();
        if is_withheld && self.output.stream.is_none() && self.coverage.resumed_bytes == 0 {
            // The bytes so far are few and were not hashed.
            self.request.told_digests.clone_from(&told.digests);
            self.request.told_by = DigestFrom::Server;
            return Err(Ended::Restart);
        }
        Ok(())
    }

    /// Starts again without relays: they did not deliver what the source itself has.
    pub(crate) fn leave_relays(&mut self) -> Result<(), Ended> {
        let said = "relays delivered other bytes than the source has";
        for at in 0..self.sources.len() {
            if self.sources[at].accepted == Some(true) && self.sources[at].is_exposed() {
                let name = self.sources[at].source.name().to_string();
                self.note(format!("{name}: {said}; fetching without it"), true);
                self.sources[at].accepted = Some(false);
                self.sources[at].fault = Fault::Corrupt;
                self.drop_source(at, said);
            }
        }
        if self.output.stream.is_some() {
            // Written bytes cannot be taken back.
            let reasons = self.reasons();
            return Err(crate::GetError::Exhausted { has_some: true, reasons }.into());
        }
        Err(Ended::Restart)
    }

    /// Returns whether this source rests because a route that the user chose leads to it.
    pub(crate) fn rests_beside(&self, source: usize) -> bool {
        let replica = |at: usize| self.sources[at].on_route.as_ref().map(|own| own.replica);
        self.named_relays().is_some()
            && !self.sources[source].is_relayed()
            && (0..self.sources.len()).any(|at| {
                self.sources[at].is_relayed()
                    && replica(at) == replica(source)
                    && !self.sources.is_bad(at)
            })
    }

    /// Lets direct sources work again after the relays of the user's route delivered wrong data,
    /// which is worse than another route.
    pub(crate) fn wake_beside(&mut self) {
        let now = self.now();
        for at in 0..self.sources.len() {
            let is_direct = !self.sources[at].is_relayed();
            if self.named_relays().is_some() && is_direct && !self.rests_beside(at) {
                let source = SourceId(at as u32);
                self.planner.handle(PlanEvent::SourceRests { source, rests: false }, now);
            }
        }
    }

    /// Warns at the end that nothing proves what relays forwarded: not everybody sees the summary,
    /// which has only half a sentence on it.
    pub(crate) fn warn_of_relays(&mut self) {
        if self.is_proved() {
            return;
        }
        if let Some(words) = self.word_of_relays() {
            let text = format!(
                "NOT VERIFIED: {words}; to verify it, use --digest, --end-to-end (https:// sources) or --route direct"
            );
            let (at_s, unproved_bytes) = (self.at_s(), self.exposed_bytes());
            self.observer.observe(&Event::Note { at_s, text, warning: true, unproved_bytes });
        }
    }

    /// Warns at the end that nothing proves a file that came without relays.
    pub(crate) fn warn_unverified(&mut self) {
        let is_file = !matches!(self.request.destination, Destination::Nowhere { .. });
        if is_file && !self.is_proved() && self.exposed_bytes() == 0 {
            let (path, why) = (self.telemetry.name.clone(), self.verified_by());
            let (at_s, bytes) = (self.at_s(), self.coverage.have.total_bytes());
            self.observer.observe(&Event::Unverified { at_s, path, bytes, why });
        }
    }

    /// Returns whether a digest is required and nothing proves the file.
    pub(crate) fn lacks_digest(&self) -> bool {
        self.request.require_digest && !self.is_proved()
    }

    /// Returns how many bytes relays could have changed, in this run or an earlier one.
    fn exposed_bytes(&self) -> u64 {
        let brought =
            self.coverage.deliverers.iter().filter(|&(_, id)| self.persistence.is_exposed(id));
        brought.map(|(range, _)| range.len()).sum()
    }

    /// Returns the words for the user if nothing proves what relays forwarded.
    pub(crate) fn word_of_relays(&self) -> Option<String> {
        let bytes = self.exposed_bytes();
        if bytes == 0 {
            return None;
        }
        let bytes = units::bytes(bytes);
        let compared = match &self.word_of_samples() {
            Some(words) => format!(" ({words})"),
            None => String::new(),
        };
        Some(match self.integrity.proof.wholes.first() {
            Some(whole) => format!(
                "its {} and {bytes} of its data came by relays, which could have changed both{compared}",
                whole.algorithm().name()
            ),
            None => format!(
                "no digest of it is known, and relays could have changed the {bytes} that they delivered{compared}"
            ),
        })
    }
}

/// Longest wait for the source: it may be slow, or only relays may reach it.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
