//! Mirrors that are compared with each other because no digest is known, in virtual time.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use swath_model::Range;
use swath_source::{
    Facts, Fault, FaultPeriod, Faults, LaneError, Limit, MemorySource, Pending, Source, Wrapped,
    Wrapper,
};
use swath_transfer::observe::{Event, Summary};
use swath_transfer::{Engine, EngineOptions, GetError, Request, Stop};
use tokio::time::{Instant, sleep, timeout};

use super::disk::FakeDisk;

const SIZE: usize = 2_000_000;

/// The same bytes for each number.
fn content(number: u64) -> Arc<[u8]> {
    let mut content = vec![0; SIZE];
    fastrand::Rng::with_seed(number).fill(&mut content);
    content.into()
}

/// A mirror of 1 MB/s, to which each of these faults happens from the given second on.
fn mirror(name: &str, held: &Arc<[u8]>, faults: Faults) -> Arc<dyn Source> {
    limited(MemorySource::of(name, Arc::clone(held)), faults)
}

fn limited(source: Arc<dyn Source>, faults: Faults) -> Arc<dyn Source> {
    Wrapped::around(Wrapped::around(source, faults), Limit::new(Some(1_000_000), None))
}

fn good() -> Faults {
    Faults { delay: Duration::from_millis(20), ..Faults::default() }
}

/// A fault between these seconds.
fn fault(fault: Fault, from_s: f64, to_s: f64) -> Faults {
    Faults { periods: vec![FaultPeriod { from_s, to_s, fault }], ..good() }
}

/// Gives a file an entity tag, so that a later run goes on with it.
#[derive(Debug)]
struct Tag;

impl Wrapper for Tag {
    const IS_OURS: bool = false;

    fn admit(&self, bytes: u64) -> Pending<'_, Result<u64, LaneError>> {
        Box::pin(async move { Ok(bytes) })
    }

    fn change_facts(&self, facts: &mut Facts) {
        facts.etag = Some("\"one\"".to_owned());
    }
}

struct Fetched {
    ended: Result<Summary, GetError>,
    /// The file, if there is one.
    file: Option<Vec<u8>>,
    /// All that users are told, one event a line.
    told: String,
    took_s: f64,
}

/// Fetches the file; `make` begins the lives of its mirrors.
fn fetch(make: impl FnOnce() -> Vec<Arc<dyn Source>>) -> Fetched {
    fetch_into(tempfile::tempdir().unwrap().path(), None, make)
}

/// The same into this folder, and stops after so long.
fn fetch_into(
    folder: &Path,
    stop_after: Option<Duration>,
    make: impl FnOnce() -> Vec<Arc<dyn Source>>,
) -> Fetched {
    fastrand::seed(7);
    let path = folder.join("data.bin");
    let disk = Arc::new(FakeDisk::default());
    disk.bears(None, None);
    let mut told = String::new();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let (ended, took_s) = runtime.block_on(async {
        let options = EngineOptions { buffer_bytes: 64 << 10, ..EngineOptions::default() };
        let engine = Engine::simulated(options, disk).unwrap();
        let request = make().into_iter().fold(Request::to_file(&path), Request::source);
        let mut observer = |event: &Event| {
            if matches!(event, Event::Note { .. } | Event::Source { .. }) {
                told.push_str(&format!("{}\n", serde_json::to_string(event).unwrap()));
            }
        };
        let stop = Stop::default();
        let began = Instant::now();
        let transfer = engine.get_observed(request, &mut observer, &stop);
        let transfer = timeout(Duration::from_secs(1000), transfer);
        let stopped = async {
            sleep(stop_after.unwrap_or(Duration::MAX)).await;
            stop.set();
            std::future::pending().await
        };
        let ended = tokio::select! {
            ended = transfer => ended.expect("an end"),
            () = stopped => unreachable!(),
        };
        (ended, began.elapsed().as_secs_f64())
    });
    Fetched { ended, file: fs::read(&path).ok(), told, took_s }
}

impl Fetched {
    fn is_the_file(&self, content: &[u8]) {
        assert!(self.ended.is_ok(), "{:?}\n{}", self.ended, self.told);
        assert!(self.file.as_deref() == Some(content), "another file\n{}", self.told);
    }

    fn is_undecided(&self) {
        let is_it = matches!(self.ended, Err(GetError::Disagreement { .. }));
        assert!(is_it && self.file.is_none(), "{:?}\n{}", self.ended, self.told);
    }

    fn blames(&self, name: &str) {
        let blame = "holds other bytes than two other mirrors";
        let blamed: Vec<&str> = self.told.lines().filter(|line| line.contains(blame)).collect();
        assert!(!blamed.is_empty() && blamed.iter().all(|it| it.contains(name)), "{}", self.told);
    }
}

/// Two mirrors differed and the third did not answer: after the wait for answers the mixture of both
/// got the file's name.
#[test]
fn a_dispute_that_nobody_decides_leaves_no_file() {
    let (right, wrong) = (content(1), content(2));
    fetch(|| {
        let gone = fault(Fault::Stalls, 0.3, 1e9);
        vec![mirror("a", &right, good()), mirror("b", &wrong, good()), mirror("c", &right, gone)]
    })
    .is_undecided();
}

/// The same if the third one answers in the end.
#[test]
fn a_third_mirror_may_take_some_time() {
    let (right, wrong) = (content(1), content(2));
    let fetched = fetch(|| {
        let late = fault(Fault::Stalls, 0.3, 8.0);
        vec![mirror("a", &right, good()), mirror("b", &wrong, good()), mirror("c", &right, late)]
    });
    fetched.is_the_file(&right);
    fetched.blames("memory:b");
}

/// A silent third mirror had 20 seconds, and then nobody waited for the fourth.
#[test]
fn a_silent_third_mirror_does_not_hold_up_a_fourth() {
    let (right, wrong) = (content(1), content(2));
    let fetched = fetch(|| {
        // The nearest would be asked first.
        let silent = Faults { delay: Duration::from_millis(5), ..fault(Fault::Stalls, 0.3, 1e9) };
        let far = Faults { delay: Duration::from_millis(200), ..Faults::default() };
        vec![
            mirror("a", &right, good()),
            mirror("b", &wrong, good()),
            mirror("c", &right, silent),
            mirror("d", &right, far),
        ]
    });
    fetched.is_the_file(&right);
    fetched.blames("memory:b");
    assert!(fetched.took_s < 15.0, "{}", fetched.took_s);
}

/// A mirror that brought wrong bytes and then refused, so that it was out, was never compared.
#[test]
fn a_mirror_that_is_out_by_the_end_is_compared_too() {
    let (right, wrong) = (content(1), content(2));
    let out = || fault(Fault::Refuses(404), 0.3, 1e9);
    let fetched = fetch(|| {
        vec![mirror("a", &right, good()), mirror("b", &wrong, out()), mirror("c", &right, good())]
    });
    fetched.is_the_file(&right);
    fetched.blames("memory:b");
    fetch(|| vec![mirror("a", &right, good()), mirror("b", &wrong, out())]).is_undecided();
}

/// Of a mirror that left, the same.
#[test]
fn a_mirror_that_has_left_is_compared_too() {
    let (right, wrong) = (content(1), content(2));
    let fetched = fetch(|| {
        let (leaves, holdings) = MemorySource::growing("b", Arc::clone(&wrong));
        holdings.send_modify(|held| _ = held.insert(Range::new(0, SIZE as u64)));
        tokio::spawn(async move {
            sleep(Duration::from_millis(300)).await;
            drop(holdings);
        });
        vec![mirror("a", &right, good()), limited(leaves, good()), mirror("c", &right, good())]
    });
    fetched.is_the_file(&right);
    fetched.blames("memory:b");
}

/// A mirror that has not even answered yet, or for which there was no place among those in use, was not
/// asked: the transfer ended without a file.
#[test]
fn a_mirror_that_was_not_needed_yet_can_decide() {
    let (right, wrong) = (content(1), content(2));
    let fetched = fetch(|| {
        let far = Faults { delay: Duration::from_secs(4), ..Faults::default() };
        vec![mirror("a", &right, good()), mirror("b", &wrong, good()), mirror("c", &right, far)]
    });
    fetched.is_the_file(&right);
    fetched.blames("memory:b");
}

/// A mirror that goes silent holds up the end for as long as is said, and no longer.
#[test]
fn a_silent_mirror_holds_up_the_end_for_ten_seconds() {
    let right = content(1);
    let fetched = fetch(|| {
        let silent = fault(Fault::Stalls, 0.3, 1e9);
        vec![mirror("a", &right, good()), mirror("b", &right, silent)]
    });
    fetched.is_the_file(&right);
    assert!(fetched.took_s < 13.0, "{}", fetched.took_s);
}

/// A mirror that asked for patience was asked twice at once, and then no more.
#[test]
fn a_busy_mirror_is_asked_when_it_wants_to_be() {
    let right = content(1);
    let fetched = fetch(|| {
        let busy = fault(Fault::Refuses(503), 0.5, 5.0);
        vec![mirror("a", &right, good()), mirror("b", &right, busy)]
    });
    fetched.is_the_file(&right);
    let summary = fetched.ended.unwrap();
    let compared = |at: usize| summary.sources[at].wasted_bytes;
    assert!(compared(0) > 0 && compared(1) > 0, "{summary:?}");
    assert!(fetched.took_s < 7.0, "{}", fetched.took_s);
}

/// What a mirror brought in an earlier run, which was stopped before anything was compared, was never
/// compared.
#[test]
fn what_came_in_an_earlier_run_is_compared_too() {
    let (right, wrong) = (content(1), content(2));
    let folder = tempfile::tempdir().unwrap();
    let tagged = |name: &str, held: &Arc<[u8]>, delay_ms: u64| {
        let source = Wrapped::around(MemorySource::of(name, Arc::clone(held)), Tag);
        let delay = Duration::from_millis(delay_ms);
        let source = Wrapped::around(source, Faults { delay, ..Faults::default() });
        Wrapped::around(source, Limit::new(Some(100_000), None))
    };
    let stopped = fetch_into(folder.path(), Some(Duration::from_secs(5)), || {
        vec![tagged("a", &right, 20), tagged("b", &wrong, 20)]
    });
    assert!(matches!(stopped.ended, Err(GetError::Stopped)), "{:?}", stopped.ended);
    // The wrong mirror answers first, so that what is left is held against itself; all else of it is
    // right.
    let files = fs::read_dir(folder.path()).unwrap().map(|file| fs::read(file.unwrap().path()));
    let part = files.map(Result::unwrap).max_by_key(Vec::len).unwrap();
    let came = part.iter().zip(right.iter().zip(wrong.iter()));
    let damaged = came.map(|(came, (right, wrong))| if came == wrong { *wrong } else { *right });
    let damaged: Arc<[u8]> = damaged.chain(right[part.len()..].iter().copied()).collect();
    assert!(damaged != right, "it brought nothing");
    let fetched = fetch_into(folder.path(), None, || {
        vec![tagged("a", &right, 200), tagged("b", &damaged, 0), tagged("c", &right, 200)]
    });
    fetched.is_the_file(&right);
    fetched.blames("memory:b");
    assert!(fetched.ended.unwrap().resumed_bytes > 0);
}

/// However a wrong mirror behaves, two that always answer find it out, and are blamed for nothing.
#[test]
fn two_right_mirrors_outvote_a_wrong_one() {
    let right = content(1);
    let wrong: Arc<[u8]> = right.iter().map(|byte| !byte).collect();
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let size = random.usize(300_000..SIZE);
        let (right, wrong) = (Arc::from(&right[..size]), Arc::from(&wrong[..size]));
        let random = &mut random;
        let fetched = fetch(|| {
            let kinds = [
                Fault::Stalls,
                Fault::Down,
                Fault::Short,
                Fault::Refuses(404),
                Fault::Refuses(503),
            ];
            let periods = (0..random.usize(..4)).map(|_| {
                let from_s = random.f64() * 2.0;
                let lasts_s = if random.bool() { 1e9 } else { random.f64() * 5.0 };
                let fault = kinds[random.usize(..kinds.len())];
                FaultPeriod { from_s, to_s: from_s + lasts_s, fault }
            });
            let liar = Faults { periods: periods.collect(), ..far(random) };
            let mut sources = vec![rated("liar", &wrong, liar, random)];
            for number in 0..random.usize(2..5) {
                let faults = far(random);
                sources.push(rated(&format!("good{number}"), &right, faults, random));
            }
            random.shuffle(&mut sources);
            sources
        });
        println!("seed {seed}: {} s", fetched.took_s);
        fetched.is_the_file(&right);
        assert!(fetched.took_s < 60.0, "seed {seed}: {} s", fetched.took_s);
        let blamed: Vec<&str> =
            fetched.told.lines().filter(|told| told.contains("other bytes")).collect();
        assert!(blamed.iter().all(|told| told.contains("memory:liar")), "seed {seed}: {blamed:?}");
    }
}

fn far(random: &mut fastrand::Rng) -> Faults {
    Faults { delay: Duration::from_secs_f64(random.f64() * 0.05), ..Faults::default() }
}

/// A mirror of some rate, and perhaps with a limit on its connections.
fn rated(
    name: &str,
    held: &Arc<[u8]>,
    faults: Faults,
    random: &mut fastrand::Rng,
) -> Arc<dyn Source> {
    let lanes = random.bool().then_some(1);
    let rate = random.u64(100_000..1_000_000);
    let source = Wrapped::around(MemorySource::of(name, Arc::clone(held)), faults);
    Wrapped::around(source, Limit::new(Some(rate), lanes))
}
