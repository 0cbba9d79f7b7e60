//! How long a job would take, before anything of it moves: `swath forecast`.
//!
//! How much there is to transfer is asked for as the job itself would: a copy is planned, a file's
//! servers are asked for its size. How long that takes is known from the history of transfers; if it has
//! none between these places, a short transfer measures the rate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_plan::forecast::{Cost, Forecast};
use swath_state::{HERE, History, PastTransfer, Transfer};
use swath_transfer::observe::{Eta, LimitedBy};
use swath_transfer::{Request, Sample};

use crate::address::Address;
use crate::control::Control;
use crate::copy::{self, CopyError, CopyKind, CopyOption};
use crate::environment::Streams;
use crate::error::JobError;
use crate::event::{JobEvent, JobObserver, Note};
use crate::get;
use crate::history::{Deadline, Forecasts, Sites, is_set_by_limit, later};
use crate::options::Network;
use crate::run::{EngineNeeds, JobContext, Jobs};
use crate::spec::{CopySpec, GetFrom, GetSpec, GetTo, JobSpec, Work};

/// How long a job would take.
#[derive(Debug)]
pub struct JobForecast {
    /// Bytes to transfer.
    pub bytes: u64,
    /// Files to transfer.
    pub files: u64,
    /// Files of a list whose sizes no server told; they are not in the others.
    pub unknown_files: u64,
    /// The sites that send, with blanks between them.
    pub from: String,
    /// The site that receives.
    pub to: String,
    /// How long it takes.
    pub takes: Eta,
    /// The job's deadline, if it has one.
    pub deadline: Option<Deadline>,
    /// Transfers between these places in the history.
    pub outcomes: u32,
    /// What a short transfer measured, if the history has none.
    pub sample: Option<Sample>,
    /// What limits it: what limited the last transfer between these places, or the short one.
    pub limited_by: LimitedBy,
}

/// How much there is to transfer.
#[derive(Debug, Default)]
pub(crate) struct Size {
    pub bytes: u64,
    pub files: u64,
    pub unknown_files: u64,
    /// The addresses of the sources, as far as the job does not name them.
    pub sources: Vec<String>,
    /// A part of it that shows the rate.
    pub sample: Option<Box<Request>>,
}

impl Size {
    pub fn add_sources(&mut self, addresses: impl Iterator<Item = String>) {
        for address in addresses {
            if self.sources.len() < SOURCES_MAX && !self.sources.contains(&address) {
                self.sources.push(address);
            }
        }
    }
}

impl Jobs {
    /// Returns how long a job would take that begins at `at_s`, in seconds since 1970. Nothing is
    /// transferred but short samples, which are thrown away, and nothing is written.
    ///
    /// # Errors
    /// [`JobError`], as the job itself.
    pub fn forecast<'a>(
        &'a self,
        spec: &'a JobSpec,
        streams: &'a Streams,
        observer: &'a Arc<dyn JobObserver>,
        control: &'a Control,
        at_s: f64,
    ) -> BoxFuture<'a, Result<JobForecast, JobError>> {
        Box::pin(async move {
            // The limit is accounted for later; held back by it, samples would take long and tell nothing.
            let network = Network { limit_bytes_per_s: None, ..spec.network.clone() };
            let unlimited = JobSpec { network, ..spec.clone() };
            let context = JobContext { spec: &unlimited, streams, observer, control };
            let needs = match &spec.work {
                Work::Get(get) => EngineNeeds::of_get(spec, get),
                Work::Copy(_) => EngineNeeds { has_routes: true, ..EngineNeeds::default() },
            };
            let job = context.with(self.engine(&unlimited, needs)?);
            let size = match &spec.work {
                Work::Get(get) => Box::pin(get::size::size(&job, get)).await?,
                Work::Copy(copy) => Box::pin(self.size_of_copy(context, copy)).await?,
            };
            let sites = Sites::of(spec);
            let transfer = Transfer {
                begun_s: at_s,
                kind: sites.kind.to_owned(),
                from: sites.from(&size.sources),
                to: sites.to,
                bytes: size.bytes,
                files: size.files,
                limit_bytes_per_s: spec.network.limit_bytes_per_s,
                forecast: None,
            };
            let history = self.history(observer);
            let mut forecasts = Forecasts::learn(&history);
            let prior = (transfer.from == HERE && transfer.to == HERE).then_some(OF_DISKS);
            let mut forecast = forecasts.forecast(&transfer, prior);
            let mut limited_by = limited_by(&history, &transfer).unwrap_or_default();
            let mut sample = None;
            if let Some(request) = size.sample.filter(|_| forecast.outcomes == 0 && size.bytes > 0)
            {
                let range = swath_transfer::Range::of_len(0, sample_bytes(size.bytes));
                let part = request.sample_of(range);
                let short = job.sample(part, SAMPLE_LASTS).await;
                forecast = forecasts.forecast(&transfer, cost_of(&short));
                if let Some(summary) = &short.summary {
                    limited_by = summary.limited_by.clone();
                }
                if spec.network.limit_bytes_per_s.is_some()
                    && is_set_by_limit(forecast.low_s, forecast.likely_s)
                {
                    limited_by = LimitedBy::RateLimit;
                }
                sample = Some(short);
            }
            if control.is_cancelled() {
                return Err(JobError::Stopped);
            }
            let Forecast { low_s, likely_s, high_s, outcomes, .. } = forecast;
            let takes = match size.bytes {
                0 => Eta { low_s: 0.0, likely_s: 0.0, high_s: 0.0 },
                _ => Eta { low_s, likely_s, high_s },
            };
            let is_known = outcomes > 0;
            let later = || later(&mut forecasts, &transfer, &forecast).filter(|_| is_known);
            let deadline = Deadline::of(spec, size.bytes, takes, later);
            Ok(JobForecast {
                bytes: size.bytes,
                files: size.files,
                unknown_files: size.unknown_files,
                from: transfer.from,
                to: transfer.to,
                takes,
                deadline,
                outcomes,
                sample,
                limited_by,
            })
        })
    }

    /// Reads the history; without one there is nothing to learn from.
    fn history(&self, observer: &Arc<dyn JobObserver>) -> Vec<PastTransfer> {
        let path = self.environment.history.as_ref().filter(|path| path.exists());
        let Some(path) = path else { return Vec::new() };
        History::open(path).and_then(|history| history.all()).unwrap_or_else(|error| {
            observer.observe(JobEvent::Note(Note::NoHistory(error)));
            Vec::new()
        })
    }

    /// Returns how much a copy would transfer: it is planned.
    async fn size_of_copy(
        &self,
        context: JobContext<'_>,
        copy: &CopySpec,
    ) -> Result<Size, JobError> {
        if let Some(bytes) = single_file_bytes(&copy.kind) {
            return Ok(Size { bytes, files: 1, ..Size::default() });
        }
        let totals = Arc::new(Totals::new(Arc::clone(context.observer)));
        let observer: Arc<dyn JobObserver> = Arc::clone(&totals) as _;
        let copy = CopySpec { dry_run: true, detach: false, keep_index: None, ..copy.clone() };
        let spec = JobSpec { work: Work::Copy(copy.clone()), ..context.spec.clone() };
        let context = JobContext { spec: &spec, observer: &observer, ..context };
        match copy::run(self, context, &copy).await {
            Err(JobError::Copy(error)) if is_one_file_of_a_web_server(&error) => {
                let CopyKind::FetchNamed { from, .. } = copy.kind else {
                    return Err(JobError::Copy(error));
                };
                let get = GetSpec::new(GetFrom::Replicas(vec![from]), GetTo::Folder(".".into()));
                let engine = self.engine(&spec, EngineNeeds::of_get(&spec, &get))?;
                return Box::pin(get::size::size(&context.with(engine), &get)).await;
            }
            planned => planned?,
        };
        Ok(totals.size(&copy.kind))
    }
}

/// Returns the size of a single local file.
fn single_file_bytes(kind: &CopyKind) -> Option<u64> {
    let (CopyKind::SendFile { from, .. }
    | CopyKind::SendBySsh { from, file: Some(_), .. }
    | CopyKind::Local { from, single: Some(_), .. }) = kind
    else {
        return None;
    };
    from.metadata().ok().map(|file| file.len())
}

fn is_one_file_of_a_web_server(error: &CopyError) -> bool {
    matches!(error, CopyError::Option { option: CopyOption::OfFolders, .. })
}

/// Counts what a copy would transfer, and passes notes on.
struct Totals {
    observer: Arc<dyn JobObserver>,
    planned: Mutex<Planned>,
}

#[derive(Clone, Debug, Default)]
struct Planned {
    bytes: u64,
    files: u64,
    largest: u64,
    /// The path of the largest file.
    path: Vec<u8>,
}

impl Totals {
    fn new(observer: Arc<dyn JobObserver>) -> Totals {
        Totals { observer, planned: Mutex::default() }
    }

    fn size(&self, kind: &CopyKind) -> Size {
        let planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sample = sample_of(kind, &planned.path).filter(|_| planned.largest > 0).map(Box::new);
        Size { bytes: planned.bytes, files: planned.files, sample, ..Size::default() }
    }
}

impl JobObserver for Totals {
    fn observe(&self, event: JobEvent) {
        match event {
            JobEvent::Planned { bytes: Some(bytes), path, is_folder: false, further_of: None } => {
                let mut planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
                planned.files += 1;
                planned.bytes = planned.bytes.saturating_add(bytes);
                if bytes > planned.largest {
                    (planned.largest, planned.path) = (bytes, path);
                }
            }
            JobEvent::Note(_) => self.observer.observe(event),
            _ => {}
        }
    }
}

/// Returns a request for a file of a copied folder, from all its replicas.
fn sample_of(kind: &CopyKind, path: &[u8]) -> Option<Request> {
    let folders: Vec<&Address> = match kind {
        CopyKind::Fetch { from, .. } => from.iter().collect(),
        CopyKind::FetchNamed { from, .. } => vec![from],
        _ => return None,
    };
    let path = swath_formats::percent::encode(path);
    folders.into_iter().try_fold(Request::to_file(""), |request, folder| {
        // A folder without final `/` is the first part of the path.
        let url = folder.url().ok()?.join(&path).ok()?;
        request.url(url.as_str()).ok()
    })
}

/// Returns what limited the last complete transfer between the same places.
fn limited_by(history: &[PastTransfer], transfer: &Transfer) -> Option<LimitedBy> {
    let is_like = |past: &&PastTransfer| {
        (&past.transfer.from, &past.transfer.to) == (&transfer.from, &transfer.to)
            && past.ended.as_ref().is_some_and(|ended| ended.is_complete)
    };
    let likes = history.iter().rev().filter(is_like);
    let limits = likes.filter_map(|past| past.ended.as_ref()?.figures.limited_by.as_deref());
    let mut limits = limits.filter_map(|limit| serde_json::from_str(limit).ok());
    limits.find(|limit| *limit != LimitedBy::RateLimit || transfer.limit_bytes_per_s.is_some())
}

/// Returns the cost of a transfer whose first seconds these are.
fn cost_of(sample: &Sample) -> Option<Cost> {
    let usual = Cost::default();
    let rate = sample.rate_bytes_per_s?;
    Some(Cost {
        start_s: sample.first_byte_s.unwrap_or(usual.start_s),
        byte_s: 1.0 / rate,
        ..usual
    })
}

/// What a copy on this machine costs, if nothing is known: 500 MB/s.
const OF_DISKS: Cost = Cost { start_s: 0.05, byte_s: 2e-9, file_s: 5e-5 };

/// Returns how many bytes may be spent on a measurement.
fn sample_bytes(bytes: u64) -> u64 {
    (bytes / 100).max(SAMPLE_BYTES).min(bytes)
}

/// The bytes of a short transfer, if a hundredth of the job is less.
const SAMPLE_BYTES: u64 = 64_000_000;

/// Its longest duration.
const SAMPLE_LASTS: Duration = Duration::from_secs(3);

/// Addresses that tell where a list comes from.
const SOURCES_MAX: usize = 64;
