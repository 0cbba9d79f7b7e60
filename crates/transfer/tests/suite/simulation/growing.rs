//! Sources that come to hold more while the transfer runs, and leave.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use swath_model::{Range, RangeSet};
use swath_source::{Limit, MemorySource, Source, Wrapped};
use swath_transfer::observe::{Event, SourceState, Summary};
use swath_transfer::{Engine, EngineOptions, GetError, Request, Stop};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::disk::FakeDisk;

const SIZE: u64 = 2_000_000;

/// The same in every run.
fn content() -> Arc<[u8]> {
    let mut content = vec![0; SIZE as usize];
    fastrand::Rng::with_seed(3).fill(&mut content);
    content.into()
}

/// A source of 1 MB/s that holds what the sender says.
fn peer(name: &str) -> (Arc<dyn Source>, watch::Sender<RangeSet>) {
    let (source, holdings) = MemorySource::growing(name, content());
    (Wrapped::around(source, Limit::new(Some(1_000_000), None)), holdings)
}

/// Fetches the file in virtual time while `meanwhile` goes on, and says which sources went out and how
/// long it took.
fn fetch(
    sources: Vec<Arc<dyn Source>>,
    meanwhile: impl Future<Output = ()>,
) -> (Result<Summary, GetError>, Vec<String>, f64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.bin");
    let mut out = Vec::new();
    let disk = Arc::new(FakeDisk::default());
    disk.bears(None, None);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let (ended, took_s) = runtime.block_on(async {
        let options = EngineOptions { buffer_bytes: 64 << 10, ..EngineOptions::default() };
        let engine = Engine::simulated(options, disk).unwrap();
        let request = sources.into_iter().fold(Request::to_file(&path), Request::source);
        let mut observer = |event: &Event| {
            if let Event::Source { name, state: SourceState::Bad, reason, .. } = event {
                out.push(format!("{name}: {}", reason.as_deref().unwrap_or_default()));
            }
        };
        let stop = Stop::default();
        let began = Instant::now();
        let transfer = engine.get_observed(request, &mut observer, &stop);
        let (ended, ()) = tokio::join!(timeout(Duration::from_secs(1000), transfer), meanwhile);
        (ended.expect("an end"), began.elapsed().as_secs_f64())
    });
    if ended.is_ok() {
        assert!(fs::read(&path).unwrap() == *content(), "another file");
    }
    (ended, out, took_s)
}

fn grow(holdings: &watch::Sender<RangeSet>, start: u64, end: u64) {
    holdings.send_modify(|held| _ = held.insert(Range::new(start, end)));
}

#[test]
fn what_a_source_comes_to_hold_is_fetched_of_it() {
    let ((first, has_first), (second, has_second)) = (peer("first"), peer("second"));
    let meanwhile = async {
        // Nobody holds anything at first, and that is no reason to give up.
        sleep(Duration::from_secs(3)).await;
        for part in 0..10 {
            grow(&has_first, part * SIZE / 20, (part + 1) * SIZE / 20);
            grow(&has_second, SIZE / 2 + part * SIZE / 20, SIZE / 2 + (part + 1) * SIZE / 20);
            sleep(Duration::from_secs(1)).await;
        }
    };
    let (ended, out, took_s) = fetch(vec![first, second], meanwhile);
    let summary = ended.unwrap();
    assert!(summary.sources.iter().all(|source| source.bytes == SIZE / 2), "{summary:?}");
    assert_eq!(out, [""; 0]);
    assert!((12.0..14.0).contains(&took_s), "{took_s}");
}

#[test]
fn a_source_that_leaves_is_replaced_by_one_that_grows() {
    let ((first, has_first), (second, has_second)) = (peer("first"), peer("second"));
    let meanwhile = async move {
        grow(&has_first, 0, SIZE);
        sleep(Duration::from_secs(1)).await;
        // Its connections break with it, and nothing more is asked of it.
        drop(has_first);
        sleep(Duration::from_secs(2)).await;
        grow(&has_second, 0, SIZE);
        sleep(Duration::from_secs(5)).await;
    };
    let (ended, out, _) = fetch(vec![first, second], meanwhile);
    let summary = ended.unwrap();
    assert!(summary.sources.iter().all(|source| source.bytes > SIZE / 5), "{summary:?}");
    assert_eq!(out, ["memory:first: it is no longer connected"]);
}

#[test]
fn when_all_have_left_nothing_is_waited_for() {
    let (source, holdings) = peer("only");
    let meanwhile = async move {
        grow(&holdings, 0, SIZE / 2);
        sleep(Duration::from_secs(5)).await;
    };
    let (ended, _, took_s) = fetch(vec![source], meanwhile);
    let error = ended.unwrap_err();
    assert!(matches!(error, GetError::Exhausted { has_some: true, .. }), "{error}");
    assert!((5.0..6.0).contains(&took_s), "{took_s}");
}
