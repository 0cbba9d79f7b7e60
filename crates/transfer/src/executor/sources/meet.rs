//! A source's facts about its file: whether the others have the same file, which other mirrors it
//! names, and what happens if most sources disagree.

use swath_formats::metalink;
use swath_model::SourceId;
use swath_model::digest::Digest;
use swath_plan::Event as PlanEvent;
use swath_source::{Expected, Facts, LaneError};

use crate::error::GetError;
use crate::executor::Ended;
use crate::executor::integrity::agree::{Agreement, Version};
use crate::executor::integrity::audit::Comparison;
use crate::executor::state::Run;
use crate::observe::{Phase, SourceState};
use crate::request::Destination;

impl Run<'_> {
    /// Returns whether a web page came although the file has another type's name: perhaps a login
    /// page. (The lane has already judged an address with another type's name.)
    fn is_page_instead(&self, facts: &Facts) -> bool {
        let Destination::File(path) = &self.request.destination else { return false };
        let fits = self.request.size_bytes.is_some() && self.request.size_bytes == facts.size_bytes;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        facts.is_web_page() && !facts.ranges && !fits && !Facts::names_web_page(&name)
    }

    /// Returns whether the address is a folder: web servers redirect it to the address with a `/`,
    /// where they list it.
    fn is_folder_instead(&self, source: usize, facts: &Facts) -> bool {
        let Some(mirror) = self.request.mirrors.get(source) else { return false };
        let (asked, found) = (mirror.url.path(), facts.final_url.as_ref().map(url::Url::path));
        let bare = found.and_then(|found| found.strip_suffix('/'));
        let leads_on = !asked.ends_with('/') && bare.is_some();
        self.request.refuses_folders && leads_on && (bare == Some(asked) || facts.is_web_page())
    }

    /// Handles a source's facts about its file.
    pub(crate) async fn facts(&mut self, source: usize, facts: Facts) -> Result<(), Ended> {
        if self.sources.is_bad(source) {
            return Ok(());
        }
        if self.dataset.proves_blocks() {
            if !facts.ranges {
                self.drop_source(source, "it does not answer with ranges");
            }
            self.sources[source].facts = Some(facts);
            return Ok(());
        }
        if self.is_metalink_instead(source, &facts)? {
            return Ok(());
        }
        if self.is_folder_instead(source, &facts) {
            self.sources[source].accepted = Some(false);
            let reason = "it is a folder, and its server is no swath server: only its listing page would come";
            self.drop_source(source, reason);
            return Ok(());
        }
        if self.is_page_instead(&facts) {
            self.sources[source].accepted = Some(false);
            self.drop_source(source, LaneError::Html);
            return Ok(());
        }
        let id = SourceId(source as u32);
        if !facts.ranges && facts.size_bytes != Some(0) {
            self.planner.handle(PlanEvent::StreamOnly { source: id }, self.now());
        }
        let again = self.sources[source].facts.is_some();
        for oddity in facts.oddities.iter().filter(|_| !again) {
            let name = self.sources[source].source.name();
            self.note(format!("{name}: {oddity}"), true);
        }
        let accepted = self.sources[source].accepted;
        self.sources[source].facts = Some(facts.clone());
        if self.leave_further_routes(source) {
            return Ok(());
        }
        if again && accepted == Some(true) {
            return Ok(());
        }
        let Some(version) = Version::of(&facts) else {
            if self.sources.accepted().next().is_some() {
                self.drop_source(source, "it does not report the file size");
                return Ok(());
            }
            if self.persistence.left.is_some() {
                return self.put_aside(source, "it does not report the file size".to_owned());
            }
            self.sources[source].accepted = Some(true);
            return self.open(source, None).await;
        };
        if self.coverage.size_bytes.is_none() && self.phase == Phase::Fetching {
            return self.size_told_late(source, facts);
        }
        if version.size_bytes > SIZE_BYTES_MAX {
            self.sources[source].accepted = Some(false);
            let reason =
                format!("it reports a size of {} bytes, which no file has", version.size_bytes);
            self.drop_source(source, reason);
            return Ok(());
        }
        if let Some(reason) = self.contradicts_digest(&facts) {
            return self.reject(source, reason);
        }
        if let Some(pieces) = &self.integrity.proof.pieces
            && self.request.known_digests().next().is_none()
            && let Err(error) = pieces.check(version.size_bytes)
        {
            // Without the piece digests nothing would prove the file.
            return self
                .reject(source, format!("its file does not fit the piece digests: {error}"));
        }
        let expected = self.request.size_bytes.or(self.coverage.size_bytes);
        if let Some(expected) = expected.filter(|&expected| expected != version.size_bytes) {
            let reason =
                format!("its file has {} bytes, {expected} are expected", version.size_bytes);
            return self.reject(source, reason);
        }
        let reference = self.sources.version();
        let proved =
            !self.integrity.proof.is_empty() || self.request.known_digests().next().is_some();
        if let Some(reference) = &reference {
            match reference.admits(&version, proved) {
                Ok(agreement) => self.agreed(agreement),
                Err(unlike) => return self.reject(source, unlike.with_advice()),
            }
        } else if let Some(reason) = self.contradicts_left(source, &version) {
            return self.put_aside(source, reason);
        }
        self.sources[source].accepted = Some(true);
        if self.coverage.size_bytes.is_none()
            && let Err(error) = self.open(source, Some(version.size_bytes)).await
        {
            return self.not_opened(source, error);
        }
        let proved = !self.integrity.proof.is_empty();
        let expected = Expected { size_bytes: Some(version.size_bytes), proved };
        self.sources[source].source.expect(expected);
        self.discover(source, &facts);
        Ok(())
    }

    /// Notes the basis of using a mirror beside others, for the summary.
    fn agreed(&mut self, agreement: Agreement) {
        self.sources.agreement = self.sources.agreement.max(Some(agreement));
        if self.persistence.sink.is_some() {
            self.describe_proof();
        }
    }

    /// Handles a source that reports its size after one that does not has begun to deliver. Nothing
    /// shows whether they hold the same file, and the one that reports more is worth more.
    fn size_told_late(&mut self, source: usize, facts: Facts) -> Result<(), Ended> {
        if self.output.stream.is_some() {
            self.sources[source].accepted = Some(false);
            let reason =
                "its file cannot be compared with the one that is being written out already";
            self.drop_source(source, reason);
            return Ok(());
        }
        for at in 0..self.sources.len() {
            if self.sources[at].accepted == Some(true) {
                self.sources[at].accepted = Some(false);
                self.drop_source(at, "it does not report the file size, as others do".to_owned());
            }
        }
        let name = self.sources[source].source.name().to_string();
        let size = swath_model::units::bytes(facts.size_bytes.unwrap_or_default());
        self.note(
            format!("{name} reports the size of the file ({size}): starting again with it"),
            true,
        );
        Err(Ended::Restart)
    }

    /// Leaves a mirror out. If the mirrors left out so far agree with one another and outnumber
    /// those in use, and nothing else decides, swath starts again with that majority.
    fn reject(&mut self, source: usize, reason: String) -> Result<(), Ended> {
        self.sources[source].accepted = Some(false);
        // If the user gave no size, a digest may yet decide for this mirror.
        self.sources[source].left_out_for_version =
            self.request.size_bytes.is_none() && self.contradicts_digest_given(source).is_none();
        let own = self.sources[source].facts.clone().unwrap_or_default();
        let fits_own =
            |facts: &Option<Facts>| facts.as_ref().is_some_and(|facts| fits(&own, facts));
        // A digest does not show which of two sizes is right before the whole file is here. If the
        // majority turns out wrong, the others have their turn.
        let known = self.request.size_bytes.is_some()
            || self.integrity.proof.pieces.is_some()
            || self.persistence.resumed_by_digest
            || self.contradicts_digest_given(source).is_some();
        if !known && self.persistence.readable().is_some() {
            let mut in_use = self.sources.accepted().count();
            // The kept data of an earlier run counts like a mirror.
            in_use += usize::from(self.coverage.resumed_bytes > 0);
            let left_out = self
                .sources
                .iter()
                .filter(|entry| entry.accepted == Some(false) && fits_own(&entry.facts))
                .count();
            if left_out > in_use {
                for at in 0..self.sources.len() {
                    if self.sources[at].accepted == Some(true) {
                        self.sources[at].accepted = Some(false);
                        self.sources[at].left_out_for_version =
                            self.request.known_digests().next().is_some();
                        self.drop_source(
                            at,
                            "most other mirrors hold another version of the file".to_owned(),
                        );
                    }
                }
                for entry in self.sources.iter_mut() {
                    if entry.state == SourceState::Bad
                        && entry.accepted == Some(false)
                        && fits_own(&entry.facts)
                    {
                        entry.left_out_for_version = false;
                        entry.state = SourceState::Waiting;
                        entry.reason = None;
                    }
                }
                self.note("most mirrors hold another version than the first one that answered: starting again with them".to_owned(), true);
                return Err(Ended::Restart);
            }
        }
        self.drop_source(source, reason);
        Ok(())
    }

    /// Returns how a source's own digest contradicts the user's, if it does.
    fn contradicts_digest_given(&self, source: usize) -> Option<String> {
        let facts =
            self.sources[source].facts.as_ref().filter(|_| !self.integrity.digests_offered)?;
        self.contradicts_digest(facts)
    }

    /// Returns how a source's own digest contradicts the known ones, if it does.
    pub(crate) fn contradicts_digest(&self, facts: &Facts) -> Option<String> {
        for known in self.request.known_digests() {
            for theirs in
                facts.digests.iter().filter(|theirs| theirs.algorithm() == known.algorithm())
            {
                if *theirs != known {
                    return Some(format!("its file has the digest {theirs}, not {known}"));
                }
            }
        }
        None
    }

    /// Returns whether the answer is a Metalink and not the file. Ends the transfer if the caller
    /// wants Metalinks, be it in place of the file or beside it.
    fn is_metalink_instead(&mut self, source: usize, facts: &Facts) -> Result<bool, Ended> {
        let is_metalink = facts.content_type.as_deref().is_some_and(metalink::is_media_type);
        let entry = &mut self.sources[source];
        // An address with the usual name of a Metalink asks for the Metalink itself.
        let instead = is_metalink && !metalink::is_file_name(entry.source.url().path());
        let own = || facts.final_url.clone().unwrap_or_else(|| entry.source.url().clone());
        let beside = || {
            let link = facts.links.iter().find(|link| link.is_metalink())?;
            url::Url::parse(&link.target).ok()
        };
        if self.request.metalinks
            && self.coverage.size_bytes.is_none()
            && let Some(url) = if instead { Some(own()) } else { beside() }
        {
            return Err(GetError::Metalink { url }.into());
        }
        if instead && std::mem::replace(&mut entry.metalink_passed, true) {
            self.drop_source(source, "it answers with a Metalink and not with the file");
        }
        Ok(instead)
    }

    /// Starts to fetch the file of a source in one answer, because no two of its answers have the
    /// same version. Returns whether that is done.
    pub(crate) fn begins_in_one_answer(&mut self, source: usize) -> bool {
        let others = self.sources.iter().enumerate();
        let is_alone = !others.into_iter().any(|(at, entry)| {
            at != source && !self.sources.is_bad(at) && entry.accepted != Some(false)
        });
        if self.dataset.proves_blocks()
            || self.output.stream.is_some()
            || !is_alone
            || self.sources.is_bad(source)
        {
            return false;
        }
        let entry = &mut self.sources[source];
        if entry.one_answers >= ONE_ANSWERS_MAX {
            return false;
        }
        entry.one_answers += 1;
        entry.source.take_one_answer();
        let name = entry.source.name();
        let text = match entry.one_answers {
            1 => format!(
                "{name} reports another version of the file in each answer: fetching it in one answer, from the start"
            ),
            _ => format!(
                "{name}: the answer ended early, and the next one has another version: starting again"
            ),
        };
        self.note(text, true);
        true
    }

    /// Adds the mirrors named by `Link: rel=duplicate` (RFC 6249).
    fn discover(&mut self, source: usize, facts: &Facts) {
        if !self.request.discover {
            return;
        }
        let mut duplicates: Vec<_> =
            facts.links.iter().filter(|link| link.is_duplicate()).collect();
        duplicates.sort_by_key(|link| (!link.is_preferred, link.pri.unwrap_or(u32::MAX)));
        let mut found = 0;
        for link in duplicates {
            if self.sources.discovered >= DISCOVERED_MAX {
                break;
            }
            let Some(url) = url::Url::parse(&link.target)
                .ok()
                .filter(|url| matches!(url.scheme(), "http" | "https"))
            else {
                continue;
            };
            let priority = link.pri.map_or(DISCOVERED_PRIORITY, |pri| pri.max(2));
            let trust = swath_source::Trust::Discovered;
            let mirror = crate::request::Mirror { url, priority, trust, holds: None };
            if self.add_source(&mirror) {
                self.sources.discovered += 1;
                found += 1;
            }
        }
        if found > 0 {
            let name = self.sources[source].source.name().to_string();
            let mirrors = if found == 1 { "mirror" } else { "mirrors" };
            self.note(format!("{name} names {found} more {mirrors}"), false);
        }
    }

    /// Forgets everything about the content, but not about the sources.
    pub(crate) fn reset_books(&mut self) {
        self.integrity.reset(&mut self.request);
        self.coverage.reset();
        self.sources.agreement = None;
        self.blame.reset();
        self.comparison = Comparison::default();
        self.telemetry.fetch_ended_at = None;
        self.planner_done = false;
        self.phase = Phase::Probing;
        self.persistence.resumed_by_digest = false;
        self.persistence.committing = false;
        self.persistence.adopt(&[], self.sources.deliverers());
        self.change_planner(self.request.plan.clone());
        let now = self.now();
        for at in 0..self.sources.len() {
            let figures = &mut self.sources[at].figures;
            let bytes = std::mem::take(&mut figures.bytes);
            figures.wasted_bytes += bytes;
            self.coverage.wasted_bytes += bytes;
            let source = SourceId(at as u32);
            self.plan_source(at);
            if self.sources.is_bad(at) {
                self.planner.handle(PlanEvent::SourceBad { source }, now);
            } else if self.rests_beside(at) {
                self.planner.handle(PlanEvent::SourceRests { source, rests: true }, now);
            }
            if !self.sources.is_out(at) {
                // Renewed, so that it sends its facts again and old ones do not count.
                let entry = &mut self.sources[at];
                entry.source = entry.source.renewed();
                let source = std::sync::Arc::clone(&entry.source);
                self.promise_proof(&*source);
                let entry = &mut self.sources[at];
                entry.accepted = None;
                entry.facts = None;
                entry.metalink_passed = false;
                self.replica_is_back(at);
            }
        }
    }
}

/// Returns whether two answers can be about the same content.
fn fits(ours: &Facts, theirs: &Facts) -> bool {
    let contradicts = |digest: &Digest| {
        ours.digests.iter().any(|known| known.algorithm() == digest.algorithm() && known != digest)
    };
    match (Version::of(ours), Version::of(theirs)) {
        (Some(ours), Some(other)) => {
            ours.admits(&other, false).is_ok() && !theirs.digests.iter().any(contradicts)
        }
        _ => false,
    }
}

/// The kernel's offsets are signed; no file system has larger files.
const SIZE_BYTES_MAX: u64 = i64::MAX as u64 - (1 << 20);
/// Most attempts to fetch a file that the server generates for each answer.
const ONE_ANSWERS_MAX: u32 = 5;
/// Most mirrors added from answers.
const DISCOVERED_MAX: usize = 32;
/// Priority of mirrors that an answer names without one.
const DISCOVERED_PRIORITY: u32 = 10;
