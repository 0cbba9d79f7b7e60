//! Handles the events of lanes.

use std::sync::Arc;

use swath_model::digest::{Algorithm, Digest};
use swath_model::pieces::PiecesError;
use swath_model::{Buffer, LaneId, Range, RangeSet, SourceId, SwathId, Time};
use swath_plan::{Event as PlanEvent, Loss};
use swath_source::{Facts, GroupHash, LaneError, LaneEvent, LaneEventKind};
use swath_store::tree::{FileSet, TreePlace};
use swath_store::{Identity, Target, TargetSpec};

use super::Ended;
use super::integrity::agree::validators;
use super::integrity::describe;
use super::sink::{Block, FilesSink, Sink, Stream, whole_pieces};
use super::state::{Run, window_bytes};
use crate::discovery::SinkContent;
use crate::error::GetError;
use crate::observe::{DigestFrom, Event, Outcome, Phase};
use crate::request::{Destination, Overwrite};
use crate::verify::{Hashed, Proof, Saved};
use tokio::io::AsyncWrite;

impl Run<'_> {
    pub(super) async fn lane_event(&mut self, event: LaneEvent) -> Result<(), Ended> {
        let lane = event.lane;
        let Some(source) = self.lanes.source_of(lane) else { return Ok(()) };
        if let LaneEventKind::Chunk { .. } = event.kind {
            if let Some(entry) = self.lanes.open.get_mut(&lane) {
                entry.brought = true;
            }
            self.made_progress(source);
        }
        match event.kind {
            LaneEventKind::Up { rtt, requests, .. } => {
                // A connection does not end the silence: a server may accept many and send nothing.
                let was_up = self
                    .lanes
                    .open
                    .get_mut(&lane)
                    .is_some_and(|entry| std::mem::replace(&mut entry.up, true));
                if let Some(entry) = self.sources.get_mut(source) {
                    if !was_up {
                        entry.figures.lane_opened();
                    }
                    entry.ever_up = true;
                    entry.figures.round_trip(rtt);
                }
                self.planner.handle(PlanEvent::LaneUp { lane, rtt, requests }, self.now());
                self.route_up(source, rtt);
            }
            LaneEventKind::Facts(facts) => self.facts(source, *facts).await?,
            LaneEventKind::Hops(hops) => self.hops_told(lane, source, hops),
            LaneEventKind::Chunk { buffer, .. }
                if self.lanes.open.get(&lane).is_some_and(|entry| entry.is_void) =>
            {
                self.discard(source, buffer);
            }
            LaneEventKind::Chunk { swath, offset, buffer, group_hashes } => {
                self.chunk(source, swath, Block { offset, buffer, checks: None }, group_hashes);
            }
            LaneEventKind::Done { swath } => self.done(source, swath)?,
            LaneEventKind::Failed { error: LaneError::Unsteady { .. }, .. }
                if self.begins_in_one_answer(source) =>
            {
                return Err(Ended::Restart);
            }
            LaneEventKind::Failed { swath, error } => {
                self.close_swath(swath, Outcome::Failed);
                let loss = self.charge(source, lane, &error);
                if let LaneError::BeyondEnd { size_bytes } = &error
                    && self.coverage.size_bytes.is_none()
                    && !self.dataset.proves_blocks()
                {
                    let facts =
                        Facts { size_bytes: Some(*size_bytes), ranges: true, ..Facts::default() };
                    self.facts(source, facts).await?;
                }
                self.planner.handle(PlanEvent::SwathFailed { swath, loss }, self.now());
            }
            LaneEventKind::Closed { error, unfinished } => {
                let is_garbled = matches!(error, Some(LaneError::Protocol { .. }));
                self.closed(lane, source, error, unfinished);
                if is_garbled {
                    self.garbled(source)?;
                }
            }
        }
        Ok(())
    }

    fn closed(
        &mut self,
        lane: LaneId,
        source: usize,
        error: Option<LaneError>,
        unfinished: Vec<SwathId>,
    ) {
        let mut brought_bytes = 0;
        let loss = match &error {
            Some(error) => self.charge(source, lane, error),
            None => Loss::Clean,
        };
        let ended = self.lanes.open.remove(&lane);
        if let Some(ended) = &ended {
            self.ended_without_progress(source, ended, error.as_ref());
        }
        if loss.is_break() || loss == Loss::Clean && !unfinished.is_empty() {
            self.note_break(source, error.as_ref());
        }
        if let Some(entry) = ended
            && let id = SourceId(source as u32)
            && let Some(source) = self.sources.get_mut(source)
        {
            let meter = entry.lane.meter();
            source.figures.lane_ended(entry.up, meter);
            // The planner has not seen the bytes since the last look at the meters.
            let total_bytes = meter.body_bytes();
            let now = Time::ZERO + self.clock.began.elapsed();
            self.planner.handle(PlanEvent::Arrived { lane, total_bytes }, now);
            // If the limit turned out to be none, the planner must forget it too.
            let requests = source.source.limits().requests_per_connection.unwrap_or(u64::MAX);
            let requests = u32::try_from(requests).unwrap_or(u32::MAX);
            self.planner.handle(PlanEvent::RequestLimit { source: id, requests }, now);
            brought_bytes = total_bytes;
        }
        for swath in unfinished {
            self.close_swath(swath, Outcome::Failed);
        }
        for swath in self.lanes.swaths_of(lane) {
            self.close_swath(swath, Outcome::Failed);
        }
        let loss = self.patience_with(source, loss, brought_bytes);
        self.planner.handle(PlanEvent::LaneLost { lane, loss }, self.now());
    }

    /// Returns a growing pause for a source whose connections keep breaking after a few bytes: each
    /// of these bytes makes the planner forget the failures before it.
    fn patience_with(&mut self, source: usize, loss: Loss, brought_bytes: u64) -> Loss {
        let Some(entry) = self.sources.get_mut(source) else { return loss };
        if brought_bytes >= WORTH_A_CONNECTION_BYTES {
            entry.short_lanes = 0;
        } else if loss.is_break() && brought_bytes > 0 {
            entry.short_lanes += 1;
        }
        if !loss.is_break() || entry.short_lanes < SHORT_LANES_BORNE {
            return loss;
        }
        let doublings = (entry.short_lanes - SHORT_LANES_BORNE).min(6);
        Loss::Busy(SHORT_LANE_PAUSE * (1 << doublings))
    }

    /// Opens the target of the file, takes over the data of an earlier run, and tells the planner.
    pub(super) async fn open(
        &mut self,
        source: usize,
        size_bytes: Option<u64>,
    ) -> Result<(), Ended> {
        if self.request.known_digests().next().is_none() && self.request.pieces.is_none() {
            let offered = self.sources[source]
                .facts
                .as_ref()
                .map(|facts| facts.digests.clone())
                .unwrap_or_default();
            self.integrity.digests_offered = !offered.is_empty();
            self.request.told_digests = offered;
            self.call_witness(source);
        }
        self.integrity.proof.wholes = self.request.checked_digests();
        // If relays brought this answer, the source itself may still send a digest.
        if !self.ask_for_digest(source, size_bytes)
            && self.request.require_digest
            && self.integrity.proof.is_empty()
            && !self.sources[source].is_exposed()
        {
            return Err(GetError::NoDigest.into());
        }
        if let (Some(pieces), Some(size)) = (&self.integrity.proof.pieces, size_bytes)
            && let Err(error) = pieces.check(size)
        {
            let text = format!(
                "the piece digests do not fit the file and are not used, only {} proves it: {error}",
                describe(&Proof { pieces: None, ..self.integrity.proof.clone() }, None)
            );
            self.integrity.proof.pieces = None;
            self.note(text, true);
        }
        if matches!(self.request.destination, Destination::Nowhere { .. }) {
            self.integrity.proof = Proof::default();
        }
        self.describe_proof();
        let size = size_bytes.unwrap_or(UNKNOWN_SIZE);
        let mut resumed = swath_store::Resumed::default();
        if let Destination::File(path) = &self.request.destination {
            let spec = TargetSpec {
                path: path.clone(),
                beneath: self.request.beneath.clone(),
                grant: self.engine.grant.clone(),
                size_bytes,
                identity: self.identity(None),
                overwrite: self.request.overwrite != Overwrite::Never,
                resume: self.request.resume && size_bytes.is_some(),
                sparse: self.request.sparse,
            };
            let (target, found) = Target::open(&self.engine.disk, spec).await?;
            self.persistence.sink = Some(Arc::new(target));
            self.persistence.resumed_by_digest = found.durable.count() > 0 && self.left_is_proved();
            self.persistence.left = None;
            resumed = found;
            if size >= EARLY_COMMITS_FROM_BYTES {
                self.persistence.commit_every = super::COMMIT_FIRST;
                self.persistence.committed_at = self.now();
            }
        } else if let Destination::Files { folder, files } = &self.request.destination {
            let files = Arc::clone(files);
            let place = TreePlace {
                beneath: self.request.beneath.clone(),
                grant: self.engine.grant.of(folder),
                ..TreePlace::at(folder)
            };
            let resume = self.request.resume && !self.integrity.proof.is_empty();
            let opened = self
                .engine
                .disk
                .work(move || FileSet::open(&place, &files, resume, Arc::new(|| false)));
            let set = opened.await.map_err(GetError::Thread)??;
            if set.size_bytes() != size {
                let _ = set.give_up();
                return Err(GetError::Pieces(PiecesError::Size {
                    size_bytes: size,
                    torrent_bytes: set.size_bytes(),
                })
                .into());
            }
            if let Some(pieces) = &self.integrity.proof.pieces {
                resumed.verified = whole_pieces(pieces, &set.resumed(), size);
                for range in resumed.verified.iter() {
                    resumed.durable.set(range, AN_EARLIER_SOURCE);
                }
            }
            let disk = self.engine.disk.clone();
            self.persistence.sink = Some(Arc::new(FilesSink { set: Arc::new(set), disk }));
        } else if let Destination::Writer(_) = &self.request.destination {
            let empty = Destination::File(std::path::PathBuf::new());
            let Destination::Writer(writer) =
                std::mem::replace(&mut self.request.destination, empty)
            else {
                return Ok(());
            };
            self.start_stream(writer, size_bytes);
        }
        self.coverage.size_bytes = size_bytes;
        if let Some(note) = resumed.note.take() {
            self.note(note, true);
        }
        if !resumed.sources.is_empty() {
            self.persistence.adopt(&resumed.sources, self.sources.deliverers());
        }
        self.coverage.resume(&resumed.durable, &resumed.verified);
        self.choose_samples_of_left(source);
        self.begin_to_share();
        let saved = resumed.hash_states.into_iter().filter_map(|saved| {
            let algorithm = saved.algorithm.parse().ok()?;
            Some(Saved { algorithm, front: saved.front, state: saved.state })
        });
        let (saved, proved) = (saved.collect(), self.coverage.verified.iter().collect());
        self.start_verifier(&Hashed { proved, saved, groups: resumed.groups });
        self.phase = Phase::Fetching;
        if size >= ROUTES_FROM_BYTES {
            self.ask_relays();
        }
        // If nothing proves the file, the end of the transfer says so.
        let is_proved = !self.integrity.proof.is_empty();
        let from = self.digest_from().map_or("", DigestFrom::words);
        let verification = match is_proved {
            true => format!("{}{from}", self.integrity.verification),
            false => String::new(),
        };
        let resumed_bytes = self.coverage.resumed_bytes;
        self.observer.observe(&Event::Opened {
            size_bytes,
            resumed_bytes,
            kept_bytes: 0,
            verification,
        });
        let mut missing = match &self.request.destination {
            Destination::Nowhere { range } => {
                range.intersect(Range::new(0, size)).into_iter().collect()
            }
            _ => RangeSet::full(size),
        };
        missing.subtract(&self.coverage.have);
        self.planner.handle(PlanEvent::Layout { size_bytes: size, missing }, self.now());
        Ok(())
    }

    /// Tells whoever finds sources what there is to pass on.
    fn begin_to_share(&mut self) {
        if let Some(discovery) = &self.request.discovery
            && let Some(sink) = self.persistence.readable()
        {
            let pool = self.engine.read_pool.clone();
            discovery.begun(Arc::new(SinkContent { sink, pool }));
            self.coverage.verified.iter().for_each(|range| discovery.verified(range));
        }
    }

    /// Starts to send the file to a writer, in order.
    fn start_stream(&mut self, writer: Box<dyn AsyncWrite + Send + Unpin>, size: Option<u64>) {
        let window_bytes = window_bytes(&self.engine.pool);
        let reports = self.output.sender.clone();
        let stream = Stream::start(writer, &self.integrity.proof, size, window_bytes, reports);
        if let Some(pieces) =
            self.integrity.proof.pieces.as_ref().filter(|_| !stream.holds_pieces())
        {
            let length = swath_model::units::bytes(pieces.length_bytes());
            let text = format!(
                "pieces of {length} do not fit into the memory for buffers: each is written before it is proved, and a wrong one ends the transfer"
            );
            self.note(text, true);
        }
        let stream = Arc::new(stream);
        self.output.nanos = stream.writing_nanos();
        self.persistence.sink = Some(Arc::clone(&stream) as Arc<dyn Sink>);
        self.output.stream = Some(stream);
    }

    /// Returns the identity of the content for the journal; `also` is a source not accepted yet.
    pub(super) fn identity(&self, also: Option<usize>) -> Identity {
        let told =
            |at: usize| self.sources[at].facts.as_ref().map(|facts| facts.digests.as_slice());
        let mut digests: Vec<Digest> = self.request.known_digests().collect();
        if let Some(at) = also
            && digests.is_empty()
            && self.integrity.proof.pieces.is_none()
        {
            digests = told(at).unwrap_or_default().to_vec();
        }
        let versions = (0..self.sources.len())
            .filter(|&at| self.sources[at].accepted == Some(true) || also == Some(at))
            .filter_map(|at| {
                let entry = &self.sources[at];
                let facts = entry.facts.as_ref()?;
                let version = validators(facts);
                // The tag is from the server that answered, not from one that redirected there.
                let address = facts
                    .final_url
                    .as_ref()
                    .map_or_else(|| entry.source.name().to_string(), swath_source::display_name);
                (!version.is_empty()).then_some((address, version))
            })
            .collect();
        Identity {
            digests: digests
                .iter()
                .map(|digest| format!("{}:{}", digest.algorithm(), digest.to_hex()))
                .collect(),
            versions,
            pieces: self.integrity.proof.pieces.as_ref().map(|pieces| {
                let print = swath_model::digest::Hasher::digest(Algorithm::Blake3, pieces.packed());
                format!("{}:{}:{}", pieces.algorithm(), pieces.length_bytes(), print.to_hex())
            }),
        }
    }

    /// Handles received bytes; those of a tree come with group hashes.
    fn chunk(&mut self, source: usize, swath: SwathId, block: Block, hashes: Vec<GroupHash>) {
        let now = self.now();
        self.clock.last_arrival = now;
        let range = self.dataset.counted(block.range());
        if let Some(entry) = self.lanes.swaths.get_mut(&swath) {
            entry.first_byte_at.get_or_insert(now);
            entry.delivered_to = entry.delivered_to.max(range.end);
        }
        let proves_blocks = self.dataset.proves_blocks();
        let is_wanted = self.sources[source].accepted == Some(true) && !self.sources.is_bad(source);
        if !is_wanted && !proves_blocks {
            return self.discard(source, block.buffer);
        }
        self.sources[source].failures = 0;
        if self.comparison.running.is_some() {
            return self.audit_chunk(source, swath, range, block.buffer);
        }
        let new = self.coverage.have.gaps_within(range);
        match new.as_slice() {
            [] => self.discard(source, block.buffer),
            _ if proves_blocks => self.take_in_groups(source, swath, new, block, hashes),
            [whole] if *whole == range => self.take_in(source, swath, range, block.buffer),
            [parts @ .., last] => {
                let Block { offset, mut buffer, .. } = block;
                // Another lane brought a part of it first: only the rest is new.
                let mut new_bytes = last.len();
                for &part in parts {
                    new_bytes += self.take_in_copy(source, swath, part, offset, &buffer);
                }
                let from = (last.start - offset) as usize;
                buffer.copy_within(from..from + last.len() as usize, 0);
                buffer.truncate(last.len() as usize);
                buffer.shrink();
                self.take_in(source, swath, *last, buffer);
                self.coverage.wasted_bytes += range.len() - new_bytes;
            }
        }
    }

    /// Takes in a `part` of the block at `offset` as far as there are buffers, and returns how many
    /// bytes that is. The planner has the rest fetched again when the lane goes on behind it.
    fn take_in_copy(
        &mut self,
        source: usize,
        swath: SwathId,
        part: Range,
        offset: u64,
        block: &[u8],
    ) -> u64 {
        let mut rest = part;
        while !rest.is_empty()
            && let Some(mut copy) = self.engine.pool.try_take_for(rest.len() as usize)
        {
            let bytes = &block[(rest.start - offset) as usize..];
            let bytes = copy.push(&bytes[..rest.len() as usize]) as u64;
            self.take_in(source, swath, Range::of_len(rest.start, bytes), copy);
            rest = Range::new(rest.start + bytes, rest.end);
        }
        part.len() - rest.len()
    }

    /// Enters new bytes and sends them to the disk.
    fn take_in(&mut self, source: usize, swath: SwathId, range: Range, buffer: Buffer) {
        self.coverage.take_in(range, self.persistence.id_of(source));
        if let Some(entry) = self.sources.get_mut(source) {
            entry.figures.bytes += range.len();
        }
        self.planner.handle(PlanEvent::Delivered { swath, range }, self.now());
        self.look_at_sample(source, range.start, &buffer);
        self.look_at_peers(source, range.start, &buffer);
        self.store(source, Block { offset: range.start, buffer, checks: None });
    }

    fn done(&mut self, source: usize, swath: SwathId) -> Result<(), Ended> {
        let now = self.now();
        let end_of_stream = self
            .lanes
            .swaths
            .get(&swath)
            .filter(|entry| {
                self.coverage.size_bytes.is_none()
                    && !self.dataset.proves_blocks()
                    && entry.outcome.is_none()
                    && entry.delivered_to < entry.range.end
            })
            .map(|entry| entry.delivered_to);
        self.close_swath(swath, Outcome::Done);
        if let Some(entry) = self.sources.get_mut(source) {
            entry
                .figures
                .answered(now, self.lanes.swaths.values().any(|other| other.source == source));
        }
        self.planner.handle(PlanEvent::SwathDone { swath }, now);
        if let Some(size_bytes) = end_of_stream
            && self.phase != Phase::Probing
        {
            if let Some(pieces) = self
                .integrity
                .proof
                .pieces
                .as_ref()
                .filter(|_| self.integrity.proof.wholes.is_empty())
            {
                // Fewer pieces came than there are digests: each is right, but the end is missing.
                pieces.check(size_bytes).map_err(GetError::Pieces)?;
            }
            self.coverage.size_bytes = Some(size_bytes);
            if let Some(sink) = &self.persistence.sink {
                sink.end_at(size_bytes)?;
            }
            if let Some(verifier) = &self.integrity.verifier {
                verifier.end_at(size_bytes);
            }
            let mut missing = RangeSet::full(size_bytes);
            missing.subtract(&self.coverage.have);
            self.planner.handle(PlanEvent::Layout { size_bytes, missing }, now);
        }
        Ok(())
    }
}

/// Smallest file for which relays are asked: smaller ones of a list are not worth it.
const ROUTES_FROM_BYTES: u64 = 8 << 20;
/// From this size on, the bytes of the first second are worth a sync of their own; the store has a
/// journal for such files from the beginning.
const EARLY_COMMITS_FROM_BYTES: u64 = 16 << 20;
/// Stands for whoever delivered what an earlier run left, where the journal does not say.
const AN_EARLIER_SOURCE: u32 = u32::MAX;
/// Stands for the unknown size of a stream.
const UNKNOWN_SIZE: u64 = u64::MAX / 2;
/// A connection that brings less than this was not worth opening.
const WORTH_A_CONNECTION_BYTES: u64 = 64 * 1024;
/// This many such connections in a row may break before the source has to pause.
const SHORT_LANES_BORNE: u32 = 4;
/// First such pause. Each further one is twice as long, up to 16 s.
pub(super) const SHORT_LANE_PAUSE: std::time::Duration = std::time::Duration::from_millis(250);
