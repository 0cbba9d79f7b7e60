//! What is fetched: a file, or the virtual file of a tree, whose index may still be growing.
//!
//! A tree is fetched in passes, in whole groups with their hashes.
//!
//! The executor, the planner and the lanes count in bytes of the sealed file, which holds the group
//! hashes too. The partial folder and the index count in bytes of the plain virtual file.

pub(super) mod joins;
pub(super) mod lacking;
pub(super) mod passed_on;
mod sealed_content;

use std::sync::{Arc, RwLock};

use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::index::{Index, Lack};
use swath_model::{Range, RangeSet, SwathId};
use swath_plan::Event as PlanEvent;
use swath_plan::routes::Fault;
use swath_source::{
    Class, GroupHash, LaneError, SealedLength, UNIT_BYTES, sealed_bytes, to_sealed,
};
use swath_store::Record;
use tokio::sync::mpsc::UnboundedReceiver;
use url::Url;

use crate::engine::{Engine, Stop};
use crate::error::GetError;
use crate::executor::Ended;
use crate::executor::dataset::joins::Undecided;
use crate::executor::dataset::passed_on::PassedOn;
use crate::executor::dataset::sealed_content::SealedContent;
use crate::executor::jobs::JobDone;
use crate::executor::sink::{Block, Checked, Checks, TreeSink, Written};
use crate::executor::state::Run;
use crate::observe::{Event, Observer, Phase, Summary};
use crate::request::Request;
use crate::tree::{Growth, Joined, Taking, read, units_around};

/// What is fetched.
pub(crate) enum Dataset {
    /// One file. Its sources report size and version; digests prove it if any are known.
    File,
    /// A tree. Its index has sizes and names, and each group comes with its hash.
    Tree(Box<Tree>),
}

impl Dataset {
    /// Returns whether every block can be checked when it arrives.
    pub fn proves_blocks(&self) -> bool {
        matches!(self, Dataset::Tree(_))
    }

    pub fn tree(&self) -> Option<&Tree> {
        match self {
            Dataset::File => None,
            Dataset::Tree(tree) => Some(tree),
        }
    }

    pub fn tree_mut(&mut self) -> Option<&mut Tree> {
        match self {
            Dataset::File => None,
            Dataset::Tree(tree) => Some(tree),
        }
    }

    /// Returns the length of the sealed file, for sources that deliver group hashes.
    pub fn length(&self) -> Option<Arc<SealedLength>> {
        self.tree().map(|tree| Arc::clone(&tree.pass.length))
    }

    /// Converts a range of the dataset to the range that planner and sources use.
    pub fn counted(&self, bytes: Range) -> Range {
        match self {
            Dataset::File => bytes,
            Dataset::Tree(_) => Range::new(to_sealed(bytes.start), sealed_bytes(bytes.end)),
        }
    }

    /// Returns whether written bytes may be journaled: those of a tree only with its whole index.
    pub fn may_commit(&self) -> bool {
        self.tree().is_none_or(|tree| tree.is_complete)
    }

    /// Returns the number of files, as far as known.
    pub fn files(&self) -> u64 {
        let of = |tree: &Tree| tree.pass.index.read().map_or(0, |index| index.counts().files);
        self.tree().map_or(1, of)
    }

    /// Waits for news of a tree; for ever if there will be none.
    pub async fn news(&mut self) -> TreeNews {
        match self {
            Dataset::File => std::future::pending().await,
            Dataset::Tree(tree) => tree.news().await,
        }
    }
}

/// The parts of one pass.
pub(crate) struct Pass {
    /// The part of the first replica's index that has come.
    pub index: Arc<RwLock<Index>>,
    /// The destination of the files.
    pub sink: Arc<TreeSink>,
    /// For the lanes.
    pub length: Arc<SealedLength>,
    /// The transfer of the index.
    pub taking: Taking,
    /// Receives further replicas.
    pub joins: UnboundedReceiver<Joined>,
    /// Bytes that earlier passes of this run fetched.
    pub fetched_before_bytes: u64,
}

/// How a pass ended.
pub(crate) enum PassEnd {
    /// Everything is in the partial folder, except the `changed` files, which differ from the
    /// index.
    Whole {
        /// Numbers in the index, ascending, and what each file lacks.
        changed: Vec<(u64, Lack)>,
        /// The figures.
        summary: Summary,
    },
    /// The source has forgotten its walk; received data is kept.
    Forgotten {
        /// Bytes in the journal now.
        kept_bytes: u64,
        /// The figures.
        summary: Summary,
    },
    /// The pass failed; received data is kept.
    Failed(GetError),
}

/// The tree in a [`Run`].
pub(crate) struct Tree {
    pub(crate) pass: Pass,
    /// Bytes of the sealed file that the planner knows.
    told_bytes: u64,
    /// Whether all of the index is here.
    is_complete: bool,
    /// State of each source.
    pub(crate) sources: Vec<TreeSource>,
    /// Whether a source has forgotten the walk.
    is_forgotten: bool,
    /// Whether no further replica can join.
    pub(crate) joins_ended: bool,
    /// Blocks that so far no source could read as the index says.
    pub(crate) undecided: Vec<Undecided>,
    /// Whether the user was told that these blocks wait.
    pub(crate) told_waiting: bool,
    /// Groups that relays forwarded, until the source itself has proved them.
    pub(crate) passed_on: PassedOn,
}

#[derive(Default)]
pub(crate) struct TreeSource {
    pub(crate) changed: Option<Url>,
    strikes: u32,
    /// Bytes of the sealed file that it could not read as its index said.
    pub(crate) void: RangeSet,
    /// Those of them that were written all the same, because no source has better ones.
    pub(crate) void_laid: RangeSet,
}

/// News about a tree from the rest of the program.
pub(crate) enum TreeNews {
    Grown(Growth),
    Joined(Joined),
    JoinsEnded,
}

impl Tree {
    pub fn new(pass: Pass) -> Tree {
        let joins_ended = pass.joins.is_closed() && pass.joins.is_empty();
        Tree {
            pass,
            told_bytes: 0,
            is_complete: false,
            sources: Vec::new(),
            is_forgotten: false,
            joins_ended,
            undecided: Vec::new(),
            told_waiting: false,
            passed_on: PassedOn::default(),
        }
    }

    /// Waits for news; for ever if there will be none.
    async fn news(&mut self) -> TreeNews {
        let Pass { taking, joins, .. } = &mut self.pass;
        loop {
            tokio::select! {
                changed = taking.growth.changed(), if !self.is_complete => {
                    let mut growth = taking.growth.borrow_and_update().clone();
                    if changed.is_err() && growth.ended.is_none() {
                        growth.ended = Some(Err("it broke off".to_owned()));
                    }
                    return TreeNews::Grown(growth);
                }
                joined = joins.recv(), if !self.joins_ended => {
                    return joined.map_or(TreeNews::JoinsEnded, TreeNews::Joined);
                }
                () = std::future::pending(), if self.is_complete && self.joins_ended => {}
            }
        }
    }

    pub(crate) fn source(&mut self, at: usize) -> &mut TreeSource {
        while self.sources.len() <= at {
            self.sources.push(TreeSource::default());
        }
        &mut self.sources[at]
    }
}

/// Fetches the files of one walk into the partial folder.
pub(crate) async fn run_pass(
    engine: &Engine,
    request: Request,
    pass: Pass,
    observer: &mut dyn Observer,
    stop: &Stop,
    is_first: bool,
) -> PassEnd {
    let changed_url = pass.taking.changed.clone();
    let mut run = Run::of_tree(engine, request, observer, Tree::new(pass));
    if let Some(tree) = run.dataset.tree_mut() {
        tree.source(0).changed = Some(changed_url);
    }
    if is_first {
        run.announce();
    }
    run.begin_tree();
    let result = match run.drive(stop).await {
        Ok(()) => run.changed_files().await.map_err(Ended::Error),
        Err(ended) => Err(ended),
    };
    match result {
        Ok(changed) => {
            run.phase = Phase::Finishing;
            run.close_lanes();
            run.vouch_for_laid(&changed);
            // For another pass, or for another run if the last steps are interrupted.
            if let Err(error) = run.keep_tree().await {
                return run.failed(error);
            }
            // Later versions of changed files must not reuse bytes of this one.
            if let Err(error) = run.forget(&changed).await {
                return run.failed(error);
            }
            PassEnd::Whole { changed, summary: run.summary() }
        }
        Err(Ended::Again) => match run.keep_tree().await {
            Ok(kept_bytes) => PassEnd::Forgotten { kept_bytes, summary: run.summary() },
            Err(error) => run.failed(error),
        },
        Err(Ended::Restart) => run.failed(GetError::Forgotten),
        Err(Ended::Error(error)) => {
            let _ = run.keep_tree().await;
            run.failed(error)
        }
    }
}

impl Run<'_> {
    fn failed(&mut self, error: GetError) -> PassEnd {
        let summary = self.summary();
        // A later run can use only journaled bytes.
        let durable = self.dataset.tree().map(|tree| tree.pass.sink.stage.durable_bytes());
        self.observer.observe(&error.event(durable.unwrap_or(0), summary));
        PassEnd::Failed(error)
    }

    /// Tells the planner what is known so far, once everything is ready.
    fn begin_tree(&mut self) {
        let Some(tree) = self.dataset.tree() else { return };
        let growth = tree.pass.taking.growth.borrow().clone();
        let resumed = tree.pass.sink.stage.present().clone();
        let size_bytes = growth.size_bytes;
        for range in resumed.iter() {
            self.coverage.have.insert(units_around(range, size_bytes));
        }
        let mut left = RangeSet::new();
        for range in tree.pass.sink.stage.resumed().iter() {
            left.insert(units_around(range, size_bytes));
        }
        // Bytes that this run fetched itself do not count as resumed.
        self.coverage.resumed_bytes =
            left.total_bytes().saturating_sub(tree.pass.fetched_before_bytes);
        self.coverage.kept_bytes =
            self.coverage.have.total_bytes().saturating_sub(left.total_bytes());
        self.coverage.resumed = self.coverage.have.clone();
        self.integrity.verification = "the checksum of every block".to_owned();
        for entry in self.sources.iter_mut() {
            entry.accepted = Some(true);
        }
        self.begin_to_pass_on();
        self.phase = Phase::Fetching;
        let now = self.now();
        self.planner.handle(PlanEvent::Layout { size_bytes: 0, missing: RangeSet::new() }, now);
        let none = PlanEvent::Grown { size_bytes: 0, missing: RangeSet::new(), more: true };
        self.planner.handle(none, now);
        let (resumed_bytes, kept_bytes) =
            (self.told(self.coverage.resumed_bytes), self.told(self.coverage.kept_bytes));
        let verification = self.integrity.verification.clone();
        let size_bytes = growth.ended.is_some().then_some(size_bytes);
        let opened = Event::Opened { size_bytes, resumed_bytes, kept_bytes, verification };
        self.observer.observe(&opened);
    }

    /// Tells whoever finds sources what there is to pass on.
    fn begin_to_pass_on(&self) {
        let Some(tree) = self.dataset.tree() else { return };
        let Some(discovery) = &self.request.discovery else { return };
        let (sink, plain_bytes) = (&tree.pass.sink, read(&tree.pass.index).size_bytes());
        // What the journal has was verified; what the destination had only looks the same.
        let (mut verified, mut unverified) = (RangeSet::new(), RangeSet::new());
        for range in sink.stage.present().iter() {
            for group in range.start / GROUP_BYTES..range.end.div_ceil(GROUP_BYTES) {
                let start = group * GROUP_BYTES;
                let plain = Range::new(start, (start + GROUP_BYTES).min(plain_bytes));
                let is_left = sink.stage.resumed().covers(plain);
                let set = if is_left { &mut verified } else { &mut unverified };
                set.insert(sealed_of(plain));
            }
        }
        match SealedContent::of(sink, plain_bytes) {
            Ok(content) => discovery.begun(Arc::new(content)),
            Err(error) => {
                tracing::debug!(%error, "nothing of this tree can be passed on");
                unverified =
                    std::mem::take(&mut verified).iter().chain(unverified.iter()).collect();
            }
        }
        unverified.iter().for_each(|range| discovery.unverified(range));
        verified.iter().for_each(|range| discovery.verified(range));
    }

    /// Handles news; the first is about the part of the index that is here already.
    pub(crate) fn tree_news(&mut self, news: TreeNews) -> Result<(), Ended> {
        match news {
            TreeNews::Grown(growth) => self.tree_grown(growth),
            TreeNews::Joined(joined) => {
                self.joined(joined);
                Ok(())
            }
            TreeNews::JoinsEnded => {
                self.joins_ended();
                Ok(())
            }
        }
    }

    /// Returns the bytes of the sealed file that a source could not read as its index said.
    pub(crate) fn tree_void(&self, at: usize) -> Option<&RangeSet> {
        self.dataset.tree().and_then(|tree| tree.sources.get(at)).map(|source| &source.void)
    }

    fn tree_grown(&mut self, growth: Growth) -> Result<(), Ended> {
        let Some(tree) = self.dataset.tree_mut() else { return Ok(()) };
        let plain_bytes = match growth.ended {
            Some(Ok(())) => {
                tree.is_complete = true;
                tree.pass.length.settle(growth.size_bytes);
                growth.size_bytes
            }
            Some(Err(reason)) => {
                let whose = tree.pass.taking.name.clone();
                return Err(GetError::Index { whose, reason }.into());
            }
            // The place of a group's hash is unknown while the group may grow.
            None => growth.size_bytes - growth.size_bytes % GROUP_BYTES,
        };
        let size_bytes = sealed_bytes(plain_bytes);
        let new = Range::new(tree.told_bytes.min(size_bytes), size_bytes);
        tree.told_bytes = size_bytes;
        let more = !tree.is_complete;
        if !more {
            self.coverage.size_bytes = Some(size_bytes);
            let left_bytes = size_bytes - self.coverage.have.total_bytes().min(size_bytes);
            let sink = Arc::clone(&tree.pass.sink);
            self.jobs.add(async move {
                let result = sink.work(move |stage| stage.check_space(left_bytes)).await;
                JobDone::RoomChecked { result }
            });
        }
        // A growing index counts as progress, too.
        self.clock.last_arrival = self.now();
        let missing: RangeSet = self.coverage.have.gaps_within(new).into_iter().collect();
        let grown = PlanEvent::Grown { size_bytes, missing, more };
        self.planner.handle(grown, self.now());
        Ok(())
    }

    /// Takes in groups with their hashes; `new` is in bytes of the sealed file.
    pub(crate) fn take_in_groups(
        &mut self,
        source: usize,
        swath: SwathId,
        new: Vec<Range>,
        mut block: Block,
        hashes: Vec<GroupHash>,
    ) {
        let now = self.now();
        let Some(tree) = self.dataset.tree() else { return };
        let bytes = self.dataset.counted(block.range()).len();
        let new_bytes: u64 = new.iter().map(|range| range.len()).sum();
        if let Some(entry) = self.sources.get_mut(source) {
            entry.figures.bytes += new_bytes;
            entry.figures.wasted_bytes += bytes - new_bytes;
        }
        self.coverage.wasted_bytes += bytes - new_bytes;
        for &range in &new {
            self.coverage.have.insert(range);
            self.planner.handle(PlanEvent::Delivered { swath, range }, now);
        }
        // Bytes that differ from the index are written only if no other source may have them.
        let mut takes_void: RangeSet = new.iter().copied().filter(|_| tree.joins_ended).collect();
        for at in (0..self.sources.len()).filter(|&at| self.is_other_replica(source, at)) {
            let void = tree.sources.get(at).map(|other| &other.void);
            takes_void = void.map_or_else(RangeSet::new, |void| {
                takes_void.iter().flat_map(|range| void.within(range)).collect()
            });
        }
        block.checks = Some(Checks { hashes, wanted: new, takes_void });
        self.store(source, block);
    }

    /// Handles the checked groups of a block.
    pub(crate) fn checked(&mut self, source: usize, checked: Checked) {
        let Checked { good, void, bad } = checked;
        let waits = self.waits_for_proof(source, &good);
        if !waits {
            self.coverage.verified_bytes += good.iter().map(|(range, ..)| range.len()).sum::<u64>();
            self.tell_verified(good.iter().map(|&(range, ..)| range));
            self.settle_disputed(&good);
        }
        let others = (0..self.sources.len()).any(|at| self.is_other_replica(source, at));
        let Some(tree) = self.dataset.tree_mut() else { return };
        if !waits {
            self.persistence.records.extend(good.into_iter().map(|(range, ..)| in_tree(range)));
        }
        let mut open = Vec::new();
        for (plain, is_written) in void {
            let range = sealed_of(plain);
            tree.source(source).void.insert(range);
            if is_written {
                tree.source(source).void_laid.insert(range);
                if let Some(discovery) = &self.request.discovery {
                    discovery.unverified(range);
                }
            } else {
                open.push(range);
            }
        }
        let strikes = &mut tree.source(source).strikes;
        *strikes += bad.len() as u32;
        let is_out = *strikes >= STRIKES_MAX;
        let last_bad = bad.last().copied();
        for range in open {
            self.void_came(source, range);
        }
        for plain in bad {
            self.open_again(source, sealed_of(plain), others);
        }
        if last_bad.is_some() {
            let name = self.sources[source].source.name().to_string();
            self.note(
                format!("{name} sent bytes that do not match their checksum; fetching them again"),
                true,
            );
        }
        if let Some(plain) = last_bad
            && self.sources[source].is_found
        {
            self.drop_corrupt(source, sealed_of(plain));
        } else if is_out && !self.sources.is_bad(source) {
            self.sources[source].fault = Fault::Corrupt;
            self.drop_source(source, "it sends bytes that do not match their checksums");
        }
    }

    /// Tells whoever finds sources that these groups are verified.
    pub(crate) fn tell_verified(&self, groups: impl Iterator<Item = Range>) {
        if let Some(discovery) = &self.request.discovery {
            groups.for_each(|group| discovery.verified(sealed_of(group)));
        }
    }

    /// Returns whether `at` is another source than `source` and may have what that one lacks. Those that
    /// were found have nothing that no replica has.
    fn is_other_replica(&self, source: usize, at: usize) -> bool {
        at != source && !self.sources.is_bad(at) && !self.sources[at].is_found
    }

    /// Returns whether the error says that a source has forgotten its walk.
    pub(crate) fn is_of_forgotten(&mut self, source: usize, error: &LaneError) -> bool {
        if self.sources.get(source).is_some_and(|entry| entry.is_found) {
            return false;
        }
        let Some(tree) = self.dataset.tree_mut() else { return false };
        if error.refusal().is_none_or(|refusal| refusal.class != Class::Gone) {
            return false;
        }
        if !std::mem::replace(&mut tree.is_forgotten, true) {
            self.tell_forgotten(source);
        }
        true
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        self.dataset.tree().is_some_and(|tree| tree.is_forgotten)
    }

    /// Journals what has come at the end of a pass. Returns how many bytes that makes in all.
    async fn keep_tree(&mut self) -> Result<u64, GetError> {
        self.close_lanes();
        if let Some(tree) = self.dataset.tree() {
            tree.passed_on.stop();
        }
        while !self.jobs.is_empty() {
            match self.jobs.next().await {
                JobDone::Written { source, result, .. } => {
                    if let Written::Checked(checked) = result? {
                        self.checked(source, checked);
                    }
                }
                JobDone::Committed { result } => {
                    self.persistence.committing = false;
                    result?;
                }
                _ => {}
            }
        }
        self.commit();
        while !self.jobs.is_empty() {
            if let JobDone::Committed { result } = self.jobs.next().await {
                result?;
            }
        }
        Ok(self.coverage.have.total_bytes())
    }
}

/// Returns the journal record of bytes of a tree, which does not tell sources apart.
pub(crate) fn in_tree(range: Range) -> Record {
    Record::Durable { range, source: 0 }
}

/// Returns the place of whole groups in the sealed file.
pub(crate) fn sealed_of(plain: Range) -> Range {
    debug_assert_eq!(plain.start % GROUP_BYTES, 0);
    debug_assert_eq!(to_sealed(plain.start) % UNIT_BYTES, 0);
    Range::new(to_sealed(plain.start), sealed_bytes(plain.end))
}

/// Groups that do not match their hashes, after which a source is dropped.
const STRIKES_MAX: u32 = 3;
