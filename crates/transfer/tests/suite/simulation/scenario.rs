//! One story: a file, its sources, its disk, and as many runs as it takes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs};

use swath_model::digest::Hasher;
use swath_source::{Fault, FaultPeriod, Faults, Limit, MemorySource, Source, Wrapped};
use swath_transfer::observe::{Event, Summary};
use swath_transfer::{Algorithm, Engine, EngineOptions, GetError, IoMode, Pieces, Request, Stop};
use tokio::time::{Instant, sleep, timeout};

use super::disk::FakeDisk;

/// See the module.
pub struct Scenario {
    seed: u64,
    content: Arc<[u8]>,
    proof: Proof,
    sources: Vec<Traits>,
    buffers: usize,
    runs: Vec<Fate>,
}

/// What a source is like.
#[derive(Clone, Debug)]
struct Traits {
    name: String,
    bytes_per_s: u64,
    faults: Faults,
}

/// What proves the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    Nothing,
    Digest(Algorithm),
    Pieces { length_bytes: u64, and_digest: bool },
}

/// What befalls a run.
#[derive(Clone, Debug, Default)]
struct Fate {
    /// The power is cut after so long.
    cut_after: Option<Duration>,
    /// The user stops it after so long.
    stop_after: Option<Duration>,
    /// The disk takes so many bytes.
    room_bytes: Option<u64>,
    /// One of its steps fails.
    fails_after_steps: Option<u64>,
}

impl Scenario {
    /// The story of this seed.
    pub fn of(seed: u64) -> Scenario {
        let mut random = fastrand::Rng::with_seed(seed);
        let size = match random.u32(..10) {
            0 => random.usize(..3),
            1 | 2 => random.usize(..100_000),
            _ => random.usize(..3_000_000),
        };
        let mut content = vec![0; size];
        random.fill(&mut content);
        let proof = match random.u32(..4) {
            0 => Proof::Nothing,
            1 => Proof::Digest(Algorithm::Sha256),
            2 => Proof::Digest(Algorithm::Md5),
            _ => Proof::Pieces { length_bytes: 1 << random.u32(14..19), and_digest: random.bool() },
        };
        // Digests of pieces tell each liar apart; of the whole, one among others that agree.
        let liars_max = match proof {
            Proof::Nothing => 0,
            Proof::Digest(_) => 1,
            Proof::Pieces { .. } => usize::MAX,
        };
        let mut liars = 0;
        let sources = (0..random.usize(1..6)).map(|number| {
            let lies = number > 0 && liars < liars_max && random.u32(..4) == 0;
            liars += usize::from(lies);
            let mut traits = traits(number, size as u64, !lies, &mut random);
            if lies && matches!(proof, Proof::Pieces { .. }) && random.u32(..8) == 0 {
                // What is said of the size is held against the pieces; of two who contradict each
                // other without them nobody could tell which is right.
                traits.faults.size_off_by = random.u64(1..9);
            }
            traits
        });
        let sources = sources.collect();
        let runs = (0..random.usize(..4)).map(|_| fate(size as u64, &mut random)).collect();
        let buffers = random.usize(8..40);
        Scenario { seed, content: content.into(), proof, sources, buffers, runs }
    }

    /// Lives it, and returns what was told.
    pub fn run(&self) -> Vec<String> {
        // A panic names its seed.
        match catch_unwind(AssertUnwindSafe(|| self.live())) {
            Ok(told) => told,
            Err(panic) => {
                eprintln!("SWATH_SIMULATION_SEED={}: {self:#?}", self.seed);
                resume_unwind(panic)
            }
        }
    }

    fn live(&self) -> Vec<String> {
        let mut told = Vec::new();
        let folder = tempfile::tempdir_in(in_memory()).unwrap();
        let path = folder.path().join("data.bin");
        let mut random = fastrand::Rng::with_seed(!self.seed);
        let disk = Arc::new(FakeDisk::default());
        for (number, fate) in self.runs.iter().enumerate() {
            let ended = self.run_once(number, fate, &disk, &path, &mut told);
            match ended {
                Some(Ok(summary)) => return self.is_right(&path, &summary, told),
                // The last step of all failed, or the power was cut behind it: the file is there.
                Some(Err(_)) | None if path.exists() => {
                    assert!(fs::read(&path).unwrap() == *self.content, "another file: {ended:?}");
                    return told;
                }
                Some(Err(_)) | None => {}
            }
            if ended.is_none() {
                disk.cut_power(folder.path(), &mut random);
            }
        }
        // With a good disk and all the time it takes the same command brings the file.
        match self.run_once(self.runs.len(), &Fate::default(), &disk, &path, &mut told) {
            Some(Ok(summary)) => self.is_right(&path, &summary, told),
            ended => {
                told.iter().for_each(|told| println!("{told}"));
                panic!("it never comes: {ended:?}");
            }
        }
    }

    /// One process: what its transfer came to, or `None` if the power was cut.
    fn run_once(
        &self,
        number: usize,
        fate: &Fate,
        disk: &Arc<FakeDisk>,
        path: &Path,
        told: &mut Vec<String>,
    ) -> Option<Result<Summary, GetError>> {
        disk.bears(fate.room_bytes, fate.fails_after_steps);
        fastrand::seed(self.seed.wrapping_add(number as u64));
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let options = EngineOptions {
                buffer_bytes: 64 << 10,
                memory_bytes: self.buffers * (64 << 10),
                io: IoMode::Buffered,
                ..EngineOptions::default()
            };
            let engine = Engine::simulated(options, Arc::clone(disk) as _).unwrap();
            let folder = path.parent().unwrap().display().to_string();
            let mut observer = |event: &Event| told.push(shown(event).replace(&folder, ""));
            let stop = Stop::default();
            let transfer = engine.get_observed(self.request(path), &mut observer, &stop);
            let transfer = timeout(NO_TRANSFER_TAKES, transfer);
            let never = Duration::from_secs(1 << 30);
            let stopped = async {
                sleep(fate.stop_after.unwrap_or(never)).await;
                stop.set();
                std::future::pending::<()>().await
            };
            tokio::select! {
                ended = transfer => Some(ended.expect("an end")),
                () = sleep(fate.cut_after.unwrap_or(never)) => None,
                () = stopped => None,
            }
        })
    }

    fn request(&self, path: &Path) -> Request {
        let mut request = Request::to_file(path);
        for traits in &self.sources {
            request = request.source(traits.source(&self.content));
        }
        let digest = |algorithm| Hasher::digest(algorithm, &self.content);
        match self.proof {
            Proof::Nothing => {}
            Proof::Digest(algorithm) => request.digests.push(digest(algorithm)),
            Proof::Pieces { length_bytes, and_digest } => {
                let pieces = self.content.chunks(length_bytes as usize);
                let packed = pieces
                    .flat_map(|piece| Hasher::digest(Algorithm::Sha1, piece).as_bytes().to_vec());
                request.pieces = Pieces::new(Algorithm::Sha1, length_bytes, packed.collect()).ok();
                request.size_bytes = Some(self.content.len() as u64);
                if and_digest {
                    request.digests.push(digest(Algorithm::Sha256));
                }
            }
        }
        request
    }

    fn is_right(&self, path: &Path, summary: &Summary, told: Vec<String>) -> Vec<String> {
        assert!(fs::read(path).unwrap() == *self.content, "another file: {summary:?}");
        let proved = self.proof != Proof::Nothing
            && !matches!(self.proof, Proof::Pieces { .. } if self.content.is_empty());
        assert!(summary.proved || !proved, "{summary:?}");
        let names: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
        // Unless the disk failed when it was to go.
        let may_stay = self.runs.iter().any(|fate| fate.fails_after_steps.is_some());
        assert!(names.len() == 1 || may_stay, "it stays beside the file: {names:?}");
        told
    }
}

impl Traits {
    /// A source of these traits, whose life begins now.
    fn source(&self, content: &Arc<[u8]>) -> Arc<dyn Source> {
        let source = MemorySource::of(&self.name, Arc::clone(content));
        let faults = Faults { since: Instant::now(), ..self.faults.clone() };
        Wrapped::around(Wrapped::around(source, faults), Limit::new(Some(self.bytes_per_s), None))
    }
}

/// One source among others.
fn traits(number: usize, size: u64, honest: bool, random: &mut fastrand::Rng) -> Traits {
    let period = |random: &mut fastrand::Rng| {
        let from_s = random.f64() * 4.0;
        let faults = [Fault::Stalls, Fault::Down, Fault::Short, Fault::Refuses(503)];
        let fault = faults[random.usize(..faults.len())];
        // The first source comes back before anybody gives up, and so does one that lies: of what it and
        // the only honest one brought, nobody else could tell which is right. Others may be gone for good.
        let longest_s = if number == 0 || !honest { 8.0 } else { 100_000.0 };
        FaultPeriod { from_s, to_s: from_s + random.f64().powi(4) * longest_s, fault }
    };
    let periods = (0..random.usize(..3)).map(|_| period(random)).collect();
    let wrong = if honest || size == 0 { 0 } else { random.usize(1..4) };
    let wrong_at = (0..wrong).map(|_| random.u64(..size)).collect();
    let bytes_per_s = 10_f64.powf(4.5 + random.f64() * 3.0) as u64;
    let delay = Duration::from_secs_f64(10_f64.powf(-3.5 + random.f64() * 2.8));
    let faults = Faults { since: Instant::now(), delay, periods, wrong_at, size_off_by: 0 };
    Traits { name: format!("s{number}"), bytes_per_s, faults }
}

fn fate(size: u64, random: &mut fastrand::Rng) -> Fate {
    let soon = |random: &mut fastrand::Rng| Duration::from_secs_f64(random.f64().powi(3) * 20.0);
    let mut fate = Fate::default();
    match random.u32(..4) {
        0 => fate.room_bytes = Some(random.u64(..=size)),
        1 => fate.fails_after_steps = Some(random.u64(..40)),
        2 => fate.stop_after = Some(soon(random)),
        _ => fate.cut_after = Some(soon(random)),
    }
    fate
}

/// An event as programs read it, without what depends on how fast this machine is.
fn shown(event: &Event) -> String {
    let mut event = serde_json::to_value(event).unwrap();
    for of in ["/limited_by", "/summary/limited_by"] {
        event.pointer_mut(of).map(serde_json::Value::take);
    }
    event.to_string()
}

fn in_memory() -> &'static Path {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory } else { Path::new(env!("CARGO_TARGET_TMPDIR")) }
}

/// Without the content.
impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario")
            .field("bytes", &self.content.len())
            .field("proof", &self.proof)
            .field("sources", &self.sources)
            .field("buffers", &self.buffers)
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}

/// In virtual time.
const NO_TRANSFER_TAKES: Duration = Duration::from_secs(24 * 3600);
