//! Work with the sink: writes, read-backs, commits, the end.
//!
//! A buffer is written first, then hashed, then returned to the pool; it is never copied. About
//! once a second the written bytes are synced and then journaled.

use std::io;

use swath_model::{Buffer, Range};
use swath_store::{ReadError, Record};

use crate::error::GetError;
use crate::executor::Ended;
use crate::executor::jobs::JobDone;
use crate::executor::persistence::hash_record;
use crate::executor::sink::{Block, Written};
use crate::executor::state::Run;
use crate::observe::Phase;
use crate::verify::{Report, Verdict};

impl Run<'_> {
    /// Sends a block that `source` brought to its destination.
    pub(crate) fn store(&mut self, source: usize, block: Block) {
        let Some(sink) = self.persistence.sink.clone() else { return };
        let range = block.range();
        if sink.reads_back() {
            self.integrity.samples.begin(range);
            if let Some(in_order) = &mut self.integrity.in_order {
                in_order.begin(range);
            }
        }
        self.jobs.add(async move {
            JobDone::Written { source, range, result: sink.write(block).await }
        });
    }

    pub(crate) fn job_done(&mut self, done: JobDone) -> Result<(), Ended> {
        match done {
            JobDone::Written { source, range, result } => match result? {
                Written::Unproved(buffer) => self.written(range, buffer),
                Written::Checked(checked) => self.checked(source, checked),
                Written::HandedOver => {}
            },
            JobDone::ReadBack { read, range, result } => {
                let buffer = result?;
                if (buffer.len() as u64) < range.len() {
                    // Another read would not bring back bytes that were cut off.
                    return Err(Ended::from(ReadError {
                        path: self.request.destination_name().into(),
                        offset: range.start,
                        source: io::ErrorKind::UnexpectedEof.into(),
                    }));
                }
                if let Some(verifier) = &self.integrity.verifier {
                    let counts = self.coverage.have.covers(range);
                    verifier.accept_back(read, counts.then_some((range.start, buffer)));
                }
            }
            JobDone::Committed { result } => {
                self.persistence.committing = false;
                result?;
            }
            JobDone::RoomChecked { result } => result?,
            JobDone::Proved { batch, told } => self.proved(batch, told)?,
            JobDone::Witnessed { source, is_mute, told } => {
                self.witnessed(source, is_mute, told.as_deref())?;
            }
            JobDone::Compared { source, result } => self.compared(source, &result?),
            JobDone::Printed { piece, prints, bad } => self.printed(piece, prints, bad)?,
        }
        Ok(())
    }

    /// Handles a written block: it may be journaled and hashed.
    fn written(&mut self, range: Range, buffer: Buffer) {
        self.persistence.written(range, &self.coverage);
        self.integrity.samples.end(range);
        self.fetch_condemned_again();
        self.hash(range, buffer);
    }

    fn hash(&mut self, range: Range, buffer: Buffer) {
        let Some(verifier) = &self.integrity.verifier else { return };
        match &mut self.integrity.in_order {
            None => verifier.accept(range.start, buffer),
            Some(in_order) => {
                for (start, buffer) in in_order.end(range, buffer) {
                    verifier.accept(start, buffer);
                }
            }
        }
    }

    /// Handles a report of the verifier.
    pub(crate) fn hash_report(&mut self, report: Report) -> Result<(), Ended> {
        for (read, range) in report.wants {
            let Some(sink) = self.persistence.readable() else { break };
            let pool = self.engine.read_pool.clone();
            self.jobs.add(async move {
                let buffer = pool.take().await;
                let result = sink.read(range.start, range.len() as usize, buffer).await;
                JobDone::ReadBack { read, range, result }
            });
        }
        self.verdicts(report.verdicts)
    }

    /// Journals bytes written and hashed since the last commit.
    pub(crate) fn commit(&mut self) {
        let Some(sink) = self.persistence.sink.clone() else { return };
        if self.persistence.committing
            || self.persistence.records.is_empty()
            || self.phase == Phase::Disputing
            || !self.dataset.may_commit()
        {
            return;
        }
        self.persistence.committing = true;
        let mut records = std::mem::take(&mut self.persistence.records);
        if !self.dataset.proves_blocks() {
            records.insert(0, self.identity_record());
        }
        let save = self.integrity.verifier.as_ref().map(|verifier| verifier.ask_to_save());
        self.jobs.add(async move {
            if let Some(save) = save {
                for saved in save.await.unwrap_or_default() {
                    records.push(hash_record(saved));
                }
            }
            JobDone::Committed { result: sink.commit(records).await }
        });
    }

    /// Gives the verified file its final name.
    pub(crate) async fn finish(&mut self) -> Result<(), GetError> {
        self.phase = Phase::Finishing;
        self.close_lanes();
        let Some(sink) = self.persistence.sink.take() else { return Ok(()) };
        // The sink waits for its running jobs, and nothing would poll these any more.
        self.jobs.forget();
        let modified = self.request.modified.or_else(|| self.newest_modified());
        sink.finish(modified).await
    }

    /// Journals the received bytes of a transfer that ended early. Returns how many are kept.
    pub(crate) async fn keep(&mut self) -> u64 {
        self.close_lanes();
        let Some(sink) = self.persistence.sink.take() else { return 0 };
        // Writes under way may still finish.
        let deadline = tokio::time::Instant::now() + KEEP_WITHIN;
        while !self.jobs.is_empty() {
            match tokio::time::timeout_at(deadline, self.jobs.next()).await {
                Ok(JobDone::Written { range, result: Ok(Written::Unproved(buffer)), .. }) => {
                    self.persistence.written(range, &self.coverage);
                    self.hash(range, buffer);
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        self.jobs.forget();
        let mut hashes = Vec::new();
        if let Some(verifier) = self.integrity.verifier.take() {
            // The answer comes when all that was handed over is hashed; what is proved by then counts.
            let saved = tokio::time::timeout_at(deadline, verifier.ask_to_save()).await;
            hashes = saved.into_iter().flatten().flatten().map(hash_record).collect();
            while let Ok(report) = self.integrity.reports.try_recv() {
                self.keep_proved(report);
            }
        }
        self.void_condemned();
        let mut records = std::mem::take(&mut self.persistence.records);
        records.extend(hashes);
        if self.coverage.have.is_empty() {
            sink.discard().await;
            return 0;
        }
        records.insert(0, self.identity_record());
        if self.comparison.mismatch {
            records.push(Record::Mismatch);
        }
        // On a full disk this may fail; what was committed before is still there.
        let _ = sink.commit(records).await;
        sink.durable_bytes().await
    }

    /// Journals what a last report of the verifier proves.
    fn keep_proved(&mut self, report: Report) {
        for verdict in report.verdicts {
            match verdict {
                Verdict::Good(range) if self.integrity.proof.pieces.is_some() => {
                    self.persistence.verified(range);
                }
                // The next run finds out whose fault a bad piece was.
                _ => {}
            }
        }
    }

    fn identity_record(&self) -> Record {
        Record::Identity { size_bytes: self.coverage.size_bytes, identity: self.identity(None) }
    }
}

/// Ctrl-C must end the program within a second: bytes not on the disk by then are fetched again.
const KEEP_WITHIN: std::time::Duration = std::time::Duration::from_millis(600);

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::SystemTime;

    use swath_model::RangeSet;
    use swath_model::digest::{Algorithm, Hasher};
    use swath_model::pieces::Pieces;
    use swath_source::{MemorySource, Pending};

    use super::*;
    use crate::engine::{Engine, EngineOptions};
    use crate::executor::sink::Sink;
    use crate::observe::Event;
    use crate::request::Request;
    use crate::verify::{Hashed, Proof, Verifier};

    /// A file that takes every block.
    struct Takes;

    impl Sink for Takes {
        fn write(self: Arc<Self>, block: Block) -> Pending<'static, Result<Written, GetError>> {
            Box::pin(async { Ok(Written::Unproved(block.buffer)) })
        }

        fn reads_back(&self) -> bool {
            true
        }

        fn end_at(&self, _: u64) -> Result<(), GetError> {
            Ok(())
        }

        fn finish(&self, _: Option<SystemTime>) -> Pending<'_, Result<(), GetError>> {
            Box::pin(async { Ok(()) })
        }
    }

    /// Only relays were reckoned with: without them, the bytes of a mirror that stood alone were
    /// fetched again while some were on their way to the disk, where they could replace the right ones.
    #[tokio::test]
    async fn wrong_bytes_are_written_before_they_are_fetched_again() {
        let engine = Engine::start(EngineOptions::default()).unwrap();
        let mut observer = |_: &Event| {};
        let request = Request::to_writer(tokio::io::sink())
            .source(MemorySource::of("wrong", vec![0; 100]))
            .source(MemorySource::of("right", vec![1; 100]));
        let mut run = Run::new(&engine, request, &mut observer);
        run.persistence.sink = Some(Arc::new(Takes));
        let (id, range) = (run.persistence.id_of(0), Range::new(0, 100));
        let mut buffer = engine.pool.try_take_for(100).unwrap();
        buffer.push(&[0; 100]);
        run.coverage.take_in(range, id);
        run.store(0, Block { offset: 0, buffer, checks: None });

        run.condemn(id, "holds other bytes".to_owned()).unwrap();
        assert!(run.coverage.have.covers(range), "the write is under way");
        let done = run.jobs.next().await;
        run.job_done(done).unwrap();
        assert!(run.coverage.have.is_empty(), "now it can be fetched again");
    }

    /// Files of a torrent, of which only proved pieces are journaled.
    #[derive(Default)]
    struct Journals(Mutex<Vec<Record>>);

    impl Sink for Journals {
        fn write(self: Arc<Self>, block: Block) -> Pending<'static, Result<Written, GetError>> {
            Box::pin(async { Ok(Written::Unproved(block.buffer)) })
        }

        fn end_at(&self, _: u64) -> Result<(), GetError> {
            Ok(())
        }

        fn commit(&self, records: Vec<Record>) -> Pending<'_, Result<(), GetError>> {
            self.0.lock().unwrap().extend(records);
            Box::pin(async { Ok(()) })
        }

        fn finish(&self, _: Option<SystemTime>) -> Pending<'_, Result<(), GetError>> {
            Box::pin(async { Ok(()) })
        }
    }

    /// All that had come was fetched again where a transfer was stopped before the first commit.
    #[tokio::test]
    async fn pieces_that_come_just_before_the_end_are_kept() {
        let engine = Engine::start(EngineOptions::default()).unwrap();
        let mut observer = |_: &Event| {};
        let request =
            Request::to_writer(tokio::io::sink()).source(MemorySource::of("one", vec![0; 100]));
        let mut run = Run::new(&engine, request, &mut observer);
        let digests = [[0_u8; 40], [9; 40]].map(|piece| Hasher::digest(Algorithm::Sha256, &piece));
        let packed = digests.iter().flat_map(|digest| digest.as_bytes().to_vec()).collect();
        let pieces = Pieces::new(Algorithm::Sha256, 40, packed).unwrap();
        run.integrity.proof = Proof { pieces: Some(pieces), ..Proof::default() };
        let share = engine.retained.share();
        let mut verifier = Verifier::new(&run.integrity.proof, 80, share);
        verifier.resume(&RangeSet::new(), &Hashed::default());
        let reports = run.integrity.report_sender.clone();
        run.integrity.verifier = Some(engine.hash.add(verifier, reports, 4096));
        let journals = Arc::new(Journals::default());
        run.persistence.sink = Some(Arc::clone(&journals) as Arc<dyn Sink>);

        let (id, range) = (run.persistence.id_of(0), Range::new(0, 80));
        let mut buffer = engine.pool.try_take_for(80).unwrap();
        buffer.push(&[0; 80]);
        run.coverage.take_in(range, id);
        run.store(0, Block { offset: 0, buffer, checks: None });
        run.keep().await;

        let journaled = journals.0.lock().unwrap();
        let is_right = Record::Verified { range: Range::new(0, 40) };
        assert!(journaled.contains(&is_right), "{journaled:?}");
        let proved = journaled.iter().filter(|it| matches!(it, Record::Verified { .. }));
        assert_eq!(proved.count(), 1, "the second piece is wrong: {journaled:?}");
    }
}
