//! The proof of the file, and its results.

pub(super) mod agree;
pub(super) mod audit;
pub(super) mod disputes;
pub(super) mod in_order;
pub(super) mod late;
pub(super) mod peers;
pub(super) mod samples;
pub(super) mod suspect;
pub(super) mod verdicts;
pub(super) mod witness;

use swath_model::digest::Digest;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::executor::coverage::Coverage;
use crate::executor::integrity::agree::{Agreement, without_digest};
use crate::executor::integrity::in_order::InOrder;
use crate::executor::integrity::late::LateDigest;
use crate::executor::integrity::samples::Samples;
use crate::request::Request;
use crate::verify::{Proof, Report, VerifierHandle};

/// The proof of the file.
pub(crate) struct Integrity {
    /// The expected digests.
    pub proof: Proof,
    /// Whether they came from a source's answer.
    pub digests_offered: bool,
    /// Whether they came by relays, which could have changed them with the bytes, and the source
    /// itself has not confirmed them.
    pub word_of_relays: bool,
    /// The proof in words for the user.
    pub verification: String,
    pub verifier: Option<VerifierHandle>,
    /// Written buffers that wait for a hash from front to back.
    pub in_order: Option<InOrder>,
    /// Receives the verifier's reports.
    pub reports: UnboundedReceiver<Report>,
    /// Sends the verifier's reports.
    pub report_sender: UnboundedSender<Report>,
    /// Digests of the whole: (wanted, actual).
    pub wholes: Vec<(Digest, Digest)>,
    /// The digest of the whole, once it matches.
    pub digest: Option<Digest>,
    /// Comparisons of samples of what relays forwarded.
    pub samples: Samples,
    /// The question for a digest that did not come with the first answer.
    pub late: LateDigest,
}

impl Integrity {
    /// Starts with the proof that the request brings; sources add theirs later.
    pub fn new(request: &Request) -> Integrity {
        let (report_sender, reports) = unbounded_channel();
        Integrity {
            proof: proof_of(request),
            digests_offered: false,
            word_of_relays: false,
            verification: String::new(),
            verifier: None,
            in_order: None,
            reports,
            report_sender,
            wholes: Vec::new(),
            digest: None,
            samples: Samples::default(),
            late: LateDigest::default(),
        }
    }

    /// Drops the digests that a source offered as proof.
    pub fn forget_offers(&mut self, request: &mut Request) {
        if std::mem::take(&mut self.digests_offered) {
            request.told_digests.clear();
        }
        self.word_of_relays = false;
        self.proof = proof_of(request);
    }

    /// Starts again. Late reports of the old verifier are dropped: they are about other bytes.
    pub fn reset(&mut self, request: &mut Request) {
        self.forget_offers(request);
        *self = Integrity::new(request);
    }

    /// Stores the `actual` digest of the whole in place of that of an earlier try.
    pub fn whole_told(&mut self, wanted: Digest, actual: Digest) {
        self.wholes.retain(|&(known, _)| known != wanted);
        self.wholes.push((wanted, actual));
    }

    /// Takes (wanted, actual) of a wrong digest, else of the first, once every digest of the whole
    /// is there.
    pub fn take_whole(&mut self) -> Option<(Digest, Digest)> {
        if self.wholes.is_empty() || self.wholes.len() < self.proof.wholes.len() {
            return None;
        }
        let told = std::mem::take(&mut self.wholes);
        let first = self.proof.wholes.first();
        let wrong = told.iter().find(|(wanted, actual)| wanted != actual);
        wrong.or_else(|| told.iter().find(|(wanted, _)| Some(wanted) == first)).copied()
    }

    /// Returns whether the digest of the whole is still to come.
    pub fn awaits_whole(&self) -> bool {
        !self.proof.wholes.is_empty() && self.digest.is_none()
    }

    /// Returns how many bytes are yet to be judged before the whole is.
    pub fn unjudged_bytes(&self, coverage: &Coverage) -> u64 {
        match (self.proof.judges_parts(), coverage.size_bytes) {
            (true, Some(size)) => size.saturating_sub(coverage.verified.total_bytes()),
            _ => 0,
        }
    }
}

/// Returns the proof that a request brings.
fn proof_of(request: &Request) -> Proof {
    let voucher = request.discovery.clone().and_then(|discovery| discovery.voucher());
    Proof { wholes: Vec::new(), pieces: request.pieces.clone(), voucher }
}

/// Returns the words for the user on how the file is proved.
pub(crate) fn describe(proof: &Proof, agreement: Option<Agreement>) -> String {
    let wholes: Vec<&str> = proof.wholes.iter().map(|whole| whole.algorithm().name()).collect();
    let wholes = wholes.join(" and ");
    match &proof.pieces {
        Some(pieces) if wholes.is_empty() => {
            format!("{} pieces by {}", pieces.count(), pieces.algorithm())
        }
        Some(pieces) => {
            format!("{} pieces by {}, the whole by {wholes}", pieces.count(), pieces.algorithm())
        }
        None if wholes.is_empty() && proof.voucher.is_some() => {
            "no digest of it is known; the machines that fetched its parts vouch for them"
                .to_owned()
        }
        None if wholes.is_empty() => without_digest(agreement).to_owned(),
        None => wholes,
    }
}
