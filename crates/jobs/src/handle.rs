//! A job in the background.

use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver, WeakSender};
use tokio::task::JoinHandle;

use crate::control::Control;
use crate::environment::Streams;
use crate::error::JobError;
use crate::event::{JobEvent, JobObserver};
use crate::run::{Jobs, Outcome};
use crate::spec::{GetTo, JobSpec, Work};

/// A job in the background. Dropping it lets the job go on.
#[derive(Debug)]
pub struct JobHandle {
    control: Control,
    can_pause: bool,
    /// What the first stream of events is made of: it has all of them.
    first: Option<Receiver<Arc<JobEvent>>>,
    events: WeakSender<Arc<JobEvent>>,
    task: JoinHandle<Result<Outcome, JobError>>,
}

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It runs.
    Running,
    /// It asks for nothing more, and keeps what has come.
    Paused,
    /// It has ended, well or not.
    Ended,
}

/// What cannot be paused: a job that writes in order to a stream, which cannot be taken up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a job that writes in order to a stream cannot be paused")]
pub struct CannotPause;

impl JobHandle {
    pub(crate) fn start(jobs: Jobs, spec: JobSpec) -> JobHandle {
        let (sender, first) = broadcast::channel(EVENTS_MAX);
        let control = Control::default();
        let can_pause = !matches!(&spec.work, Work::Get(get) if get.to == GetTo::Stream);
        let (events, controls) = (sender.downgrade(), control.clone());
        let task = tokio::spawn(async move {
            let observer: Arc<dyn JobObserver> = Arc::new(move |event: JobEvent| {
                // Nobody need listen.
                let _ = sender.send(Arc::new(event));
            });
            jobs.run(&spec, &Streams::default(), &observer, &controls).await
        });
        JobHandle { control, can_pause, first: Some(first), events, task }
    }

    /// Returns a stream of what happens. The first one begins with the job, further ones begin now.
    /// All of them end with the job.
    pub fn events(&mut self) -> Events {
        let receiver = self.first.take();
        let receiver = receiver.or_else(|| self.events.upgrade().map(|it| it.subscribe()));
        Events { receiver }
    }

    /// Asks for no more, and keeps what has come.
    ///
    /// # Errors
    /// [`CannotPause`].
    pub fn pause(&self) -> Result<(), CannotPause> {
        match self.can_pause {
            true => {
                self.control.pause();
                Ok(())
            }
            false => Err(CannotPause),
        }
    }

    /// Goes on from what has come.
    pub fn resume(&self) {
        self.control.resume();
    }

    /// Ends the job in good order: what has come is kept for the next run of the same job.
    pub fn cancel(&self) {
        self.control.cancel();
    }

    /// Returns what the job is doing.
    pub fn state(&self) -> JobState {
        match (self.task.is_finished(), self.control.is_paused()) {
            (true, _) => JobState::Ended,
            (false, true) => JobState::Paused,
            (false, false) => JobState::Running,
        }
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// As [`Jobs::run`].
    ///
    /// # Panics
    /// If the job did.
    pub async fn wait(self) -> Result<Outcome, JobError> {
        match self.task.await {
            Ok(ended) => ended,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// What happens in a job, as a stream.
#[derive(Debug)]
pub struct Events {
    receiver: Option<Receiver<Arc<JobEvent>>>,
}

/// What a stream of events brings.
#[derive(Clone, Debug)]
pub enum Seen {
    /// This happened.
    Event(Arc<JobEvent>),
    /// Whoever reads the stream was so slow that this many events are lost to it.
    Missed(u64),
}

impl Events {
    /// Waits for what happens next; `None` when the job has ended.
    pub async fn next(&mut self) -> Option<Seen> {
        match self.receiver.as_mut()?.recv().await {
            Ok(event) => Some(Seen::Event(event)),
            Err(RecvError::Lagged(count)) => Some(Seen::Missed(count)),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Events that a stream keeps for a slow reader.
const EVENTS_MAX: usize = 1024;
