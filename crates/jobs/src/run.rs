//! Runs jobs, in the caller's task or in the background.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_model::digest::Digest;
use swath_source::{Bearer, NetOptions, Secret, ServerAccess};
use swath_transfer::observe::{Event, Summary};
use swath_transfer::{Engine, EngineOptions, Request, RouteOptions, Sample};

use crate::control::Control;
use crate::copy::Copied;
use crate::environment::{Environment, Streams};
use crate::error::{FileCounts, JobError};
use crate::event::{JobEvent, JobObserver, Note};
use crate::handle::JobHandle;
use crate::history::{Historian, first_lanes};
use crate::options::{Network, Plan};
use crate::secret::{SecretError, SecretRef};
use crate::spec::{GetSpec, GetTo, JobSpec, Ssh, Work};
use crate::ssh::SshOptions;
use crate::{copy, get};

/// Runs jobs in one environment; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    pub(crate) environment: Arc<Environment>,
}

/// The result of a successful job.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// One complete file.
    File(Box<Summary>),
    /// A copy, or the plan of one.
    Copied(Box<Copied>),
    /// The plan of fetching a web folder.
    Planned {
        /// Whether the filter selects anything.
        matches: bool,
    },
    /// Complete files of a list.
    Files(FileCounts),
    /// A copy that a server carries out.
    Begun {
        /// Its name there.
        job: String,
        /// The address of its destination, without secrets.
        at: String,
    },
}

/// A job before its engine is started.
#[derive(Clone, Copy)]
pub(crate) struct JobContext<'a> {
    pub spec: &'a JobSpec,
    pub streams: &'a Streams,
    pub observer: &'a Arc<dyn JobObserver>,
    pub control: &'a Control,
}

impl<'a> JobContext<'a> {
    pub fn with(self, engine: Engine) -> Job<'a> {
        let JobContext { spec, streams, observer, control } = self;
        Job { spec, engine, streams, observer, control }
    }
}

/// A running job.
pub(crate) struct Job<'a> {
    pub spec: &'a JobSpec,
    pub engine: Engine,
    pub streams: &'a Streams,
    pub observer: &'a Arc<dyn JobObserver>,
    pub control: &'a Control,
}

impl Job<'_> {
    /// Returns what tells the job's observer of a transfer.
    pub fn transfer_observer(&self) -> impl FnMut(&Event) + Send + 'static {
        let observer = Arc::clone(self.observer);
        move |event| observer.observe(JobEvent::Transfer(event.clone()))
    }

    /// Runs a short transfer whose bytes go nowhere; see [`Engine::sample`].
    pub async fn sample(&self, request: Request, lasts: Duration) -> Sample {
        let mut observer = self.transfer_observer();
        self.engine.sample(request, lasts, &mut observer, &self.control.stop()).await
    }
}

/// Requirements of a job on its engine.
#[derive(Default)]
pub(crate) struct EngineNeeds {
    /// More connections per host than usual.
    pub connections_per_host: Option<u32>,
    /// Whether to ask for Metalinks.
    pub metalinks: bool,
    /// Whether the parts of files come from many machines, in no order.
    pub wants_blake3_first: bool,
    /// Whether the output is written in order.
    pub is_ordered: bool,
    pub has_routes: bool,
    /// The token and the fingerprint of a server that was started for this job.
    pub own_server: Option<(Bearer, Digest)>,
    /// What opens several such servers.
    pub servers: Vec<ServerAccess>,
}

impl EngineNeeds {
    /// Returns those of a job that fetches.
    pub fn of_get(spec: &JobSpec, get: &GetSpec) -> EngineNeeds {
        let plan = &spec.plan;
        let connections =
            [plan.connections, plan.connections_in_all, get.files_at_once.map(u32::from)];
        EngineNeeds {
            connections_per_host: connections.into_iter().flatten().max(),
            metalinks: get.discover,
            wants_blake3_first: get.cluster_token.is_some(),
            is_ordered: get.to == GetTo::Stream,
            has_routes: true,
            own_server: None,
            servers: Vec::new(),
        }
    }
}

impl Jobs {
    /// Returns a runner of jobs in this environment.
    pub fn new(environment: Environment) -> Jobs {
        Jobs { environment: Arc::new(environment) }
    }

    /// Starts a job in the background; must be called within a tokio runtime.
    pub fn start(&self, spec: JobSpec) -> JobHandle {
        JobHandle::start(self.clone(), spec)
    }

    /// Runs a job to its end, and sends its events to `observer`.
    ///
    /// # Errors
    /// [`JobError`]; durable data is kept for the next run of the same job.
    pub fn run<'a>(
        &'a self,
        spec: &'a JobSpec,
        streams: &'a Streams,
        observer: &'a Arc<dyn JobObserver>,
        control: &'a Control,
    ) -> BoxFuture<'a, Result<Outcome, JobError>> {
        Box::pin(async move {
            let history = self.environment.history.clone();
            let is_watched = history.is_some() || spec.deadline_s.is_some();
            let watched = is_watched.then(|| -> Arc<dyn JobObserver> {
                Arc::new(Historian::new(history, spec, Arc::clone(observer)))
            });
            let observer = watched.as_ref().unwrap_or(observer);
            let plan =
                Plan { first_connections: self.first_lanes(spec).await, ..spec.plan.clone() };
            let spec = &JobSpec { plan, ..spec.clone() };
            let context = JobContext { spec, streams, observer, control };
            match &spec.work {
                Work::Get(get) => Box::pin(self.get(context, get)).await,
                Work::Copy(copy) => Box::pin(copy::run(self, context, copy)).await,
            }
        })
    }

    /// Returns the lanes that a job begins with, if the history says so soon.
    async fn first_lanes(&self, spec: &JobSpec) -> Option<u32> {
        let (history, spec) = (self.environment.history.clone()?, spec.clone());
        let told = tokio::task::spawn_blocking(move || first_lanes(&history, &spec));
        tokio::time::timeout(HISTORY_WAIT, told).await.ok()?.ok()?
    }

    async fn get(&self, context: JobContext<'_>, get: &GetSpec) -> Result<Outcome, JobError> {
        get::one_value_each(&get.digests)?;
        let token = get.cluster_token.as_ref();
        let token = token.map(|token| self.secret(token)).transpose()?;
        let engine = self.engine(context.spec, EngineNeeds::of_get(context.spec, get))?;
        let io_began_as = engine.io_name();
        let job = context.with(engine);
        let ended = get::run(&job, get, token).await;
        // The disk engine falls back to threads if the kernel cannot run io_uring.
        if job.engine.io_name() != io_began_as {
            job.observer.observe(JobEvent::Note(Note::DiskThreads));
        }
        ended
    }

    /// Returns a secret of the environment, or of a file.
    pub(crate) fn secret(&self, which: &SecretRef) -> Result<Secret, SecretError> {
        self.environment.secret(which)
    }

    /// Returns the options of ssh.
    pub(crate) fn ssh_options(&self, ssh: &Ssh, network: &Network) -> SshOptions {
        SshOptions {
            command: ssh.command.clone(),
            bootstrap: ssh.bootstrap.then(|| self.environment.program.clone()),
            patience: network.timeout(),
            runtime: self.environment.runtime.clone(),
        }
    }

    pub(crate) fn engine(&self, spec: &JobSpec, needs: EngineNeeds) -> Result<Engine, JobError> {
        let memory_bytes = usize::try_from(spec.disk.memory_bytes).unwrap_or(usize::MAX);
        let mut net = NetOptions {
            connections_per_host: Some(
                needs.connections_per_host.unwrap_or(0).max(CONNECTIONS_PER_HOST),
            ),
            metalinks: needs.metalinks,
            wants_blake3_first: needs.wants_blake3_first,
            ..self.environment.net_options(&spec.network)?
        };
        if let Some((bearer, fingerprint)) = needs.own_server {
            net.bearer = Some(bearer);
            net.fingerprints.push(fingerprint);
        }
        net.servers.extend(needs.servers);
        let routes = match needs.has_routes {
            true => self.environment.route_options(&spec.routes)?,
            false => RouteOptions::default(),
        };
        let (memory_bytes, buffer_bytes) = match needs.is_ordered {
            true => (memory_bytes.min(ORDERED_MEMORY_BYTES), ORDERED_BUFFER_BYTES),
            false => (memory_bytes, EngineOptions::default().buffer_bytes),
        };
        let io = spec.disk.io;
        let options = EngineOptions { net, routes, io, memory_bytes, buffer_bytes };
        Ok(Engine::start(options)?.granted(self.environment.grant.clone()))
    }
}

/// Most connections to one host by default: what its owner may find acceptable.
pub const CONNECTIONS_PER_HOST: u32 = 8;

/// A job waits no longer for what the history knows.
const HISTORY_WAIT: Duration = Duration::from_millis(200);
/// Buffers of an ordered transfer, so that the program stays below 128 MiB.
const ORDERED_MEMORY_BYTES: usize = 96 << 20;
/// Smaller than for a disk: waiting data is counted in whole buffers.
const ORDERED_BUFFER_BYTES: usize = 128 << 10;
