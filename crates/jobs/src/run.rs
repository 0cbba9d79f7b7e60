//! Runs jobs: a specification, an environment, an observer; or a handle for a job in the background.

use std::sync::Arc;

use swath_model::digest::Digest;
use swath_source::{Bearer, NetOptions};
use swath_transfer::observe::Summary;
use swath_transfer::{Engine, EngineOptions, RouteOptions};

use crate::control::Control;
use crate::copy::Copied;
use crate::environment::{Environment, Streams};
use crate::error::{Files, JobError};
use crate::event::{JobEvent, JobObserver, Note};
use crate::handle::JobHandle;
use crate::options::Network;
use crate::spec::{GetSpec, GetTo, JobSpec, Ssh, Work};
use crate::ssh::{Session, SshOptions};
use crate::{copy, get};

/// Runs jobs in one environment; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    environment: Arc<Environment>,
}

/// What a job that ended well amounts to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// One file is there.
    File(Box<Summary>),
    /// A copy has come to its end, or was only planned.
    Copied(Box<Copied>),
    /// The files of a web folder that would be fetched were told.
    Planned {
        /// Whether anything takes part.
        matches: bool,
    },
    /// The files of a list are there.
    Files(Files),
}

/// What every job has.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub spec: &'a JobSpec,
    pub streams: &'a Streams,
    pub observer: &'a Arc<dyn JobObserver>,
    pub control: &'a Control,
}

impl<'a> Context<'a> {
    pub fn with(self, engine: Engine) -> Job<'a> {
        let Context { spec, streams, observer, control } = self;
        Job { spec, engine, streams, observer, control }
    }
}

/// A job that runs.
pub(crate) struct Job<'a> {
    pub spec: &'a JobSpec,
    pub engine: Engine,
    pub streams: &'a Streams,
    pub observer: &'a Arc<dyn JobObserver>,
    pub control: &'a Control,
}

/// What a job needs of its engine.
pub(crate) struct Needs {
    connections_per_host: u32,
    /// Ask for Metalinks.
    metalinks: bool,
    /// Everything is written in order.
    is_ordered: bool,
    has_routes: bool,
    /// A server that was started for this job: what opens it, and its certificate's fingerprint.
    own_server: Option<(Bearer, Digest)>,
}

impl Needs {
    fn of_get(spec: &JobSpec, get: &GetSpec) -> Needs {
        // More than is usual only where the specification asks for that.
        let asked = spec.plan.connections.into_iter().chain(spec.plan.connections_in_all);
        let asked = asked.chain(get.files_at_once.map(u32::from));
        Needs {
            connections_per_host: asked.fold(CONNECTIONS_PER_HOST, u32::max),
            metalinks: get.discover,
            is_ordered: get.to == GetTo::Stream,
            has_routes: true,
            own_server: None,
        }
    }

    pub fn of_copy(session: Option<&Session>, has_routes: bool) -> Needs {
        Needs {
            connections_per_host: CONNECTIONS_PER_HOST,
            metalinks: false,
            is_ordered: false,
            has_routes,
            own_server: session.map(|it| (it.bearer.clone(), it.fingerprint)),
        }
    }
}

impl Jobs {
    /// Runs jobs in this environment.
    pub fn new(environment: Environment) -> Jobs {
        Jobs { environment: Arc::new(environment) }
    }

    /// Starts a job in the background; must be called within a tokio runtime.
    pub fn start(&self, spec: JobSpec) -> JobHandle {
        JobHandle::start(self.clone(), spec)
    }

    /// Runs a job to its end, and tells `observer` what happens.
    ///
    /// # Errors
    /// [`JobError`]; what was fetched and is durable is kept for the next run of the same job.
    pub async fn run(
        &self,
        spec: &JobSpec,
        streams: &Streams,
        observer: &Arc<dyn JobObserver>,
        control: &Control,
    ) -> Result<Outcome, JobError> {
        let context = Context { spec, streams, observer, control };
        match &spec.work {
            Work::Get(get) => Box::pin(self.get(context, get)).await,
            Work::Copy(copy) => Box::pin(copy::run(self, context, copy)).await,
        }
    }

    async fn get(&self, context: Context<'_>, get: &GetSpec) -> Result<Outcome, JobError> {
        get::check(get)?;
        let engine = self.engine(context.spec, &Needs::of_get(context.spec, get))?;
        let io_began_as = engine.io_name();
        let job = context.with(engine);
        let ended = get::run(&job, get).await;
        // The disk engine changes by itself where the kernel cannot run it.
        if job.engine.io_name() != io_began_as {
            job.observer.observe(JobEvent::Note(Note::DiskThreads));
        }
        ended
    }

    /// How ssh is called.
    pub(crate) fn ssh_options(&self, ssh: &Ssh, network: &Network) -> SshOptions {
        SshOptions {
            command: ssh.command.clone(),
            bootstrap: ssh.bootstrap.then(|| self.environment.program.clone()),
            patience: network.timeout(),
            runtime: self.environment.runtime.clone(),
        }
    }

    pub(crate) fn engine(&self, spec: &JobSpec, needs: &Needs) -> Result<Engine, JobError> {
        let memory_bytes = usize::try_from(spec.disk.memory_bytes).unwrap_or(usize::MAX);
        let mut net = NetOptions {
            connections_per_host: Some(needs.connections_per_host),
            metalinks: needs.metalinks,
            ..self.environment.net_options(&spec.network)?
        };
        if let Some((bearer, fingerprint)) = &needs.own_server {
            net.bearer = Some(bearer.clone());
            net.fingerprints.push(*fingerprint);
        }
        let routes = match needs.has_routes {
            true => self.environment.route_options(&spec.routes)?,
            false => RouteOptions::default(),
        };
        let (memory_bytes, buffer_bytes) = match needs.is_ordered {
            true => (memory_bytes.min(ORDERED_MEMORY_BYTES), ORDERED_BUFFER_BYTES),
            false => (memory_bytes, EngineOptions::default().buffer_bytes),
        };
        let io = spec.disk.io;
        Ok(Engine::start(EngineOptions { net, routes, io, memory_bytes, buffer_bytes })?)
    }
}

/// Most connections to one host unless more are asked for: what its owner may take for decent.
pub const CONNECTIONS_PER_HOST: u32 = 8;
/// Buffers of an ordered transfer: with everything else the program stays below 128 MiB.
const ORDERED_MEMORY_BYTES: usize = 96 << 20;
/// Smaller ones than for a disk: what waits for its turn is counted in buffers, full or not.
const ORDERED_BUFFER_BYTES: usize = 128 << 10;
