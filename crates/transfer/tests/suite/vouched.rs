//! Blocks that somebody vouches for, and the sources that are blamed for others.

use std::sync::{Arc, Mutex};

use swath_model::Range;
use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_source::{MemorySource, Source};
use swath_transfer::observe::Verified;
use swath_transfer::{
    CameFrom, Discovery, Engine, EngineOptions, Judgement, Request, VerifiedContent, Voucher,
};
use tokio::sync::mpsc;

/// Finds one source, and vouches for hashes.
#[derive(Debug)]
struct Cluster {
    other: Arc<dyn Source>,
    vouched: Mutex<Vec<Option<Digest>>>,
    convicted: Mutex<Vec<String>>,
    named: Mutex<Vec<u64>>,
    verified: Mutex<Vec<Range>>,
}

const BLOCK_BYTES: u64 = 1 << 18;
const BLOCKS: u64 = 16;

impl Cluster {
    fn new(other: Arc<dyn Source>, vouched: &[u8]) -> Arc<Cluster> {
        let hash = |block: &[u8]| Some(Hasher::digest(Algorithm::Blake3, block));
        Arc::new(Cluster {
            other,
            vouched: Mutex::new(vouched.chunks(BLOCK_BYTES as usize).map(hash).collect()),
            convicted: Mutex::default(),
            named: Mutex::default(),
            verified: Mutex::default(),
        })
    }

    fn convicted(&self) -> Vec<String> {
        self.convicted.lock().unwrap().clone()
    }
}

impl Discovery for Cluster {
    fn sources(&self) -> mpsc::Receiver<Arc<dyn Source>> {
        let (sender, sources) = mpsc::channel(1);
        sender.try_send(Arc::clone(&self.other)).unwrap();
        sources
    }

    fn begun(&self, _: Arc<dyn VerifiedContent>) {}

    fn verified(&self, range: Range) {
        self.verified.lock().unwrap().push(range);
    }

    fn convicted(&self, source: &dyn Source, _: Range, _: &str) {
        self.convicted.lock().unwrap().push(source.name().to_string());
    }

    fn voucher(self: Arc<Self>) -> Option<Arc<dyn Voucher>> {
        Some(self)
    }
}

impl Voucher for Cluster {
    fn block_bytes(&self) -> u64 {
        BLOCK_BYTES
    }

    fn judge(&self, block: u64, actual: Digest, from: CameFrom) -> Judgement {
        if from == CameFrom::Named {
            self.named.lock().unwrap().push(block);
            return Judgement::Right;
        }
        let vouched = &mut self.vouched.lock().unwrap()[block as usize];
        match *vouched {
            Some(vouched) if vouched == actual => Judgement::Right,
            Some(_) => Judgement::Wrong,
            None => {
                // The second time it is believed.
                *vouched = Some(actual);
                Judgement::Unknown
            }
        }
    }
}

fn content() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(3);
    let mut bytes = vec![0; (BLOCKS * BLOCK_BYTES - 77) as usize];
    random.fill(&mut bytes);
    bytes
}

/// Fetches from `origin`, beside the cluster.
async fn fetch(origin: Arc<dyn Source>, cluster: &Arc<Cluster>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let engine = Engine::start(EngineOptions::default()).unwrap();
    let mut request = Request::to_file(&path).source(origin);
    request.discovery = Some(Arc::clone(cluster) as Arc<dyn Discovery>);
    let summary = engine.get(request).await.unwrap();
    assert_eq!(summary.verified, Verified::None, "vouching proves nothing");
    std::fs::read(path).unwrap()
}

#[tokio::test]
async fn a_source_that_delivers_what_nobody_vouched_for_is_left() {
    let right = content();
    let mut wrong = right.clone();
    wrong.iter_mut().step_by(BLOCK_BYTES as usize).for_each(|byte| *byte ^= 1);
    // Both have all of it: whoever delivers a block first is judged.
    let (origin, liar) =
        (MemorySource::of("origin", right.clone()), MemorySource::of("liar", wrong));
    let cluster = Cluster::new(liar, &right);
    assert!(fetch(origin, &cluster).await == right);
    assert!(cluster.convicted().iter().all(|name| name == "liar"), "{:?}", cluster.convicted());
    let verified: swath_model::RangeSet =
        cluster.verified.lock().unwrap().iter().copied().collect();
    assert!(verified.covers(Range::new(0, right.len() as u64)), "all of it is passed on");
}

#[tokio::test]
async fn the_origin_is_believed_and_not_who_vouched_for_something_else() {
    let right = content();
    let mut wrong = right.clone();
    wrong.iter_mut().step_by(BLOCK_BYTES as usize).for_each(|byte| *byte ^= 1);
    // The other one has nothing to deliver, and vouched for nonsense.
    let (other, _holds) = MemorySource::growing("other", right.clone());
    let cluster = Cluster::new(other, &wrong);
    assert!(fetch(MemorySource::of("origin", right.clone()), &cluster).await == right);
    assert!(cluster.convicted().is_empty(), "{:?}", cluster.convicted());
    assert_eq!(cluster.named.lock().unwrap().len() as u64, BLOCKS);
}

#[tokio::test]
async fn what_nobody_knows_is_fetched_again_and_nobody_is_blamed() {
    let right = content();
    let other = MemorySource::of("other", right.clone());
    let cluster = Cluster::new(other, &right);
    cluster.vouched.lock().unwrap().fill(None);
    // All of it must come from the one that was found.
    let (origin, _holds) = MemorySource::growing("origin", right.clone());
    assert!(fetch(origin, &cluster).await == right);
    assert!(cluster.convicted().is_empty(), "{:?}", cluster.convicted());
}
