//! Asks for the digest of a file whose server sent none with its first answer.
//!
//! Servers compute digests of long files only for clients that ask for nothing else (`HEAD` with
//! `Want-Repr-Digest`, RFC 9530), and that takes as long as reading the file. So the question goes out
//! when the transfer begins. When the answer comes, the bytes on the disk are read back and hashed, and
//! all further ones as they come. Once everything else is done the transfer waits for the answer, until
//! a slow disk would have read the file since the question.
//!
//! Of shorter files servers send a digest at once or never: these are asked about only if a digest is
//! required. What relays forwarded is the business of `witness`.

use std::sync::Arc;
use std::time::Duration;

use swath_model::{Time, units};
use swath_source::Facts;
use tokio::task::JoinSet;

use crate::error::GetError;
use crate::executor::Ended;
use crate::executor::integrity::agree::Version;
use crate::executor::integrity::in_order::InOrder;
use crate::executor::state::Run;
use crate::request::Destination;
use crate::verify::{Hashed, Verifier};

/// The question for a digest.
#[derive(Default)]
pub(crate) struct LateDigest {
    /// In flight, dropped with the transfer.
    asked: JoinSet<Option<Facts>>,
    source: usize,
    /// When the answer should be here.
    due: Time,
    /// Since when nothing else is missing, and whether the user knows that.
    waits_since: Option<Time>,
    is_said: bool,
}

impl LateDigest {
    /// Returns whether an answer is missing.
    pub fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Waits for the answer: the source, and what it says; for ever if nothing is asked.
    pub async fn answer(&mut self) -> (usize, Option<Facts>) {
        match self.asked.join_next().await {
            Some(told) => (self.source, told.ok().flatten()),
            None => std::future::pending().await,
        }
    }
}

impl Run<'_> {
    /// Asks this source, whose file is being opened, for a digest if it may have one yet. Returns
    /// whether it is asked.
    pub(crate) fn ask_for_digest(&mut self, source: usize, size_bytes: Option<u64>) -> bool {
        let entry = &self.sources[source];
        let is_wanted = self.integrity.proof.is_empty()
            && self.integrity.proof.voucher.is_none()
            && matches!(self.request.destination, Destination::File(_))
            && !entry.is_relayed()
            && entry.holdings.is_none();
        let is_long = |&size: &u64| size > TOLD_AT_ONCE_BYTES || self.request.require_digest;
        let Some(size_bytes) = size_bytes.filter(|_| is_wanted).filter(is_long) else {
            return false;
        };
        let work = Duration::from_secs(size_bytes / READS_BYTES_PER_S);
        let origin = Arc::clone(&entry.source);
        let due = self.now() + work + ANSWERS_WITHIN;
        let mut late = LateDigest { source, due, ..LateDigest::default() };
        late.asked.spawn(async move { origin.ask_for_digest(work).await.ok() });
        self.integrity.late = late;
        true
    }

    /// Handles the answer, or its absence.
    pub(crate) async fn digest_told(
        &mut self,
        source: usize,
        told: Option<Facts>,
    ) -> Result<(), Ended> {
        let ours = self.sources.version();
        let is_of_file = |facts: &Facts| {
            let both = ours.as_ref().zip(Version::of(facts));
            both.is_some_and(|(ours, theirs)| ours.admits(&theirs, false).is_ok())
        };
        let digests = told.filter(is_of_file).map(|facts| facts.digests).unwrap_or_default();
        if digests.is_empty() || self.sources.is_out(source) {
            if !self.request.require_digest || self.is_proved() {
                return Ok(());
            }
            // A refused file leaves nothing behind, unless much has come, which a digest may yet prove.
            let have = &self.coverage.have;
            if self.coverage.resumed_bytes == 0 && have.total_bytes() <= TOLD_AT_ONCE_BYTES {
                self.throw_away().await;
            }
            return Err(GetError::NoDigest.into());
        }
        if !self.integrity.proof.is_empty() {
            return Ok(());
        }
        self.integrity.digests_offered = true;
        self.request.told_digests = digests;
        self.integrity.proof.wholes = self.request.checked_digests();
        self.integrity.samples.peers.disputes.leave_to_digest();
        self.describe_proof();
        self.start_verifier(&Hashed::default());
        Ok(())
    }

    /// Returns whether the digest alone is missing and still waited for. The first call closes all lanes:
    /// a server that serves few connections may have to end one before it answers.
    pub(crate) fn waits_for_digest(&mut self) -> bool {
        if !self.integrity.late.is_asked() {
            return false;
        }
        let now = self.now();
        if self.integrity.late.waits_since.is_none() {
            self.lanes.open.values().for_each(|entry| entry.lane.close());
        }
        let late = &mut self.integrity.late;
        let since = *late.waits_since.get_or_insert(now);
        let due = late.due.max(since + ANSWERS_WITHIN);
        if now >= due {
            *late = LateDigest::default();
            return false;
        }
        if now.since(since) >= SILENCE_MAX && !std::mem::replace(&mut late.is_said, true) {
            let most = units::duration(due.since(since).as_secs_f64());
            let name = self.sources[late.source].source.name().to_string();
            self.note(format!("waiting at most {most} for {name} to compute the digest"), false);
        }
        true
    }

    /// Has the file hashed by what proves it; `left` was hashed before.
    pub(crate) fn start_verifier(&mut self, left: &Hashed) {
        if self.persistence.readable().is_none() || !self.integrity.proof.judges() {
            return;
        }
        let size_bytes = self.coverage.size_bytes.unwrap_or(u64::MAX);
        let share = self.engine.retained.share();
        let mut verifier = Verifier::new(&self.integrity.proof, size_bytes, share);
        // What is on its way to the disk is handed over when it is there.
        let mut written = self.coverage.have.clone();
        written.subtract(&self.integrity.samples.writing);
        verifier.resume(&written, left);
        self.integrity.in_order = verifier.goes_in_order().then(InOrder::default);
        let most_bytes = self.engine.read_pool.slot_bytes() as u64;
        let reports = self.integrity.report_sender.clone();
        self.integrity.verifier = Some(self.engine.hash.add(verifier, reports, most_bytes));
    }
}

/// Servers send the digests of files up to this size with the file itself, if they have any.
const TOLD_AT_ONCE_BYTES: u64 = 8 << 20;
/// A server reads the file at least so fast, others being served meanwhile.
const READS_BYTES_PER_S: u64 = 50_000_000;
/// The same wait without the reading: for a server that has just begun, or answers slowly.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Longest wait that is not mentioned.
const SILENCE_MAX: Duration = Duration::from_secs(1);
