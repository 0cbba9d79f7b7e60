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
    /// The receiver of all events, for the first stream.
    first: Option<Receiver<Arc<JobEvent>>>,
    events: WeakSender<Arc<JobEvent>>,
    task: JoinHandle<Result<Outcome, JobError>>,
}

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Running.
    Running,
    /// Paused; the received data is kept.
    Paused,
    /// Finished or failed.
    Ended,
}

/// The job cannot be paused, because it writes in order to a stream, which cannot be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a job that writes to a stream cannot be paused")]
pub struct CannotPause;

impl JobHandle {
    pub(crate) fn start(jobs: Jobs, spec: JobSpec) -> JobHandle {
        let (sender, first) = broadcast::channel(EVENTS_MAX);
        let control = Control::default();
        let can_pause = !matches!(&spec.work, Work::Get(get) if get.to == GetTo::Stream);
        let (events, controls) = (sender.downgrade(), control.clone());
        let task = tokio::spawn(async move {
            let observer: Arc<dyn JobObserver> = Arc::new(move |event: JobEvent| {
                // There may be no listener.
                let _ = sender.send(Arc::new(event));
            });
            jobs.run(&spec, &Streams::default(), &observer, &controls).await
        });
        JobHandle { control, can_pause, first: Some(first), events, task }
    }

    /// Returns a stream of events. The first one starts with the job, further ones now; all end with it.
    pub fn events(&mut self) -> Events {
        let receiver = self.first.take();
        let receiver = receiver.or_else(|| self.events.upgrade().map(|it| it.subscribe()));
        Events { receiver }
    }

    /// Pauses the job; the received data is kept.
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

    /// Resumes the job.
    pub fn resume(&self) {
        self.control.resume();
    }

    /// Cancels the job; the received data is kept for the next run of the same job.
    pub fn cancel(&self) {
        self.control.cancel();
    }

    /// Returns the state of the job.
    pub fn state(&self) -> JobState {
        match (self.task.is_finished(), self.control.is_paused()) {
            (true, _) => JobState::Ended,
            (false, true) => JobState::Paused,
            (false, false) => JobState::Running,
        }
    }

    /// Waits for the end of the job.
    ///
    /// # Errors
    /// As [`Jobs::run`].
    ///
    /// # Panics
    /// If the job panicked.
    pub async fn wait(self) -> Result<Outcome, JobError> {
        match self.task.await {
            Ok(ended) => ended,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// A stream of the events of a job.
#[derive(Debug)]
pub struct Events {
    receiver: Option<Receiver<Arc<JobEvent>>>,
}

/// An item of a stream of events.
#[derive(Clone, Debug)]
pub enum StreamItem {
    /// An event.
    Event(Arc<JobEvent>),
    /// The reader was too slow and missed this many events.
    Missed(u64),
}

impl Events {
    /// Waits for the next item; `None` after the end of the job.
    pub async fn next(&mut self) -> Option<StreamItem> {
        match self.receiver.as_mut()?.recv().await {
            Ok(event) => Some(StreamItem::Event(event)),
            Err(RecvError::Lagged(count)) => Some(StreamItem::Missed(count)),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Events that a stream keeps for a slow reader.
const EVENTS_MAX: usize = 1024;
