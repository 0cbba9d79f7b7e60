//! Servers that compute the digest of a long file while it is fetched, in virtual time.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_model::{LaneId, Pool, Range, SourceName};
use swath_source::{
    Expected, Facts, Lane, LaneError, LaneEvent, Limit, MemorySource, Pending, Source, Trust,
    Wrapped,
};
use swath_transfer::observe::{DigestFrom, Event, Summary, Verified};
use swath_transfer::{Engine, EngineOptions, GetError, Request, Stop};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::disk::FakeDisk;

/// Too long for a digest at once; at [`RATE`] it takes 10 s.
const SIZE: usize = 10_000_000;
const RATE: u64 = 1_000_000;

/// A source that says its digest after so long, or none.
#[derive(Debug)]
struct Computes {
    inner: Arc<dyn Source>,
    digest: Option<Digest>,
    takes: Duration,
}

impl Source for Computes {
    fn name(&self) -> &SourceName {
        self.inner.name()
    }

    fn url(&self) -> &Url {
        self.inner.url()
    }

    fn trust(&self) -> Trust {
        self.inner.trust()
    }

    fn expect(&self, expected: Expected) {
        self.inner.expect(expected);
    }

    fn describe(&self) -> Pending<'_, Result<Facts, LaneError>> {
        self.inner.describe()
    }

    fn ask_for_digest(&self, _: Duration) -> Pending<'_, Result<Facts, LaneError>> {
        Box::pin(async {
            sleep(self.takes).await;
            let facts = self.inner.describe().await?;
            Ok(Facts { digests: self.digest.into_iter().collect(), ..facts })
        })
    }

    fn fetch_part(&self, range: Range) -> Pending<'_, Result<(Facts, Vec<u8>), LaneError>> {
        self.inner.fetch_part(range)
    }

    fn open_lane(
        self: Arc<Self>,
        lane: LaneId,
        pool: &Pool,
        events: UnboundedSender<LaneEvent>,
    ) -> Box<dyn Lane> {
        Arc::clone(&self.inner).open_lane(lane, pool, events)
    }

    fn renewed(&self) -> Arc<dyn Source> {
        let Computes { inner, digest, takes } = self;
        Arc::new(Computes { inner: inner.renewed(), digest: *digest, takes: *takes })
    }
}

fn content() -> Arc<[u8]> {
    let mut content = vec![0; SIZE];
    fastrand::Rng::with_seed(5).fill(&mut content);
    content.into()
}

struct Fetched {
    ended: Result<Summary, GetError>,
    file: Option<Vec<u8>>,
    notes: Vec<String>,
    took_s: f64,
}

/// Fetches the content from a source that says `digest` after `takes_s`.
fn fetch(digest: Option<Digest>, takes_s: f64, require_digest: bool) -> Fetched {
    fastrand::seed(7);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.bin");
    let disk = Arc::new(FakeDisk::default());
    disk.bears(None, None);
    let mut notes = Vec::new();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let (ended, took_s) = runtime.block_on(async {
        let options = EngineOptions { buffer_bytes: 64 << 10, ..EngineOptions::default() };
        let engine = Engine::simulated(options, disk).unwrap();
        let inner = MemorySource::of("a", content());
        let inner = Wrapped::around(inner, Limit::new(Some(RATE), None));
        let takes = Duration::from_secs_f64(takes_s);
        let mut request =
            Request::to_file(&path).source(Arc::new(Computes { inner, digest, takes }));
        request.require_digest = require_digest;
        let mut observer = |event: &Event| {
            if let Event::Note { text, .. } = event {
                notes.push(text.clone());
            }
        };
        let (began, stop) = (Instant::now(), Stop::default());
        let transfer = engine.get_observed(request, &mut observer, &stop);
        let ended = timeout(Duration::from_secs(1000), transfer).await.expect("an end");
        (ended, began.elapsed().as_secs_f64())
    });
    Fetched { ended, file: fs::read(&path).ok(), notes, took_s }
}

fn right() -> Option<Digest> {
    Some(Hasher::digest(Algorithm::Sha256, &content()))
}

/// The summary said that no digest was known, and the next transfer of the same file verified it.
#[test]
fn a_digest_proves_the_file_whenever_it_comes() {
    for (takes_s, waits) in [(0.0, false), (0.1, false), (5.0, false), (13.0, true)] {
        for require_digest in [false, true] {
            let fetched = fetch(right(), takes_s, require_digest);
            let end = fetched.ended.expect("the file");
            let proof = (end.verified, end.digest_from);
            assert_eq!(proof, (Verified::Digest, Some(DigestFrom::Server)), "after {takes_s} s");
            assert_eq!(end.proof(), "sha-256 from its server");
            assert!(fetched.file.as_deref() == Some(&*content()));
            let said = fetched.notes.iter().any(|it| it.contains("waiting at most 5.00 s for"));
            assert_eq!(said, waits, "{:?}", fetched.notes);
        }
    }
}

#[test]
fn a_file_that_is_not_that_of_the_late_digest_gets_no_name() {
    for takes_s in [0.1, 5.0, 13.0] {
        let wrong = Hasher::digest(Algorithm::Blake3, b"other");
        let fetched = fetch(Some(wrong), takes_s, false);
        assert!(matches!(fetched.ended, Err(GetError::Digest { .. })), "{:?}", fetched.ended);
        assert!(fetched.file.is_none());
    }
}

#[test]
fn nobody_waits_for_ever_for_a_digest() {
    let fetched = fetch(right(), 1e6, false);
    let end = fetched.ended.expect("the file");
    assert_eq!((end.verified, end.digest_from), (Verified::None, None));
    assert!((14.0..20.0).contains(&fetched.took_s), "{}", fetched.took_s);
    let fetched = fetch(right(), 1e6, true);
    assert!(matches!(fetched.ended, Err(GetError::NoDigest)), "{:?}", fetched.ended);
    assert!(fetched.file.is_none());
    // The answer that there is none ends the transfer before the file is here.
    let fetched = fetch(None, 0.5, true);
    assert!(matches!(fetched.ended, Err(GetError::NoDigest)), "{:?}", fetched.ended);
    assert!(fetched.took_s < 5.0, "{}", fetched.took_s);
}
