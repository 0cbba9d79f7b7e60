//! A thread that reads and writes the history of one job.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use swath_plan::forecast::Forecast;
use swath_state::{Ended, History, KeepError, Range, Transfer};
use swath_transfer::observe::{Eta, Event};

use super::deadline::{Deadline, later};
use super::forecasts::Forecasts;
use crate::event::{JobEvent, JobObserver, Note};
use crate::spec::JobSpec;

/// Tells the thread what happens; waits a moment for it when dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    told: Option<Sender<Told>>,
    forecast: Arc<OnceLock<Eta>>,
    /// Closed when the thread has written everything.
    written: Mutex<Receiver<()>>,
}

enum Told {
    /// At so many seconds since its begin.
    Begins(f64, Transfer),
    Ends(Ended),
}

impl Keeper {
    /// Starts the thread. It opens the file when a transfer begins, and tells `observer` the forecast.
    pub(super) fn new(path: PathBuf, spec: Arc<JobSpec>, observer: Arc<dyn JobObserver>) -> Keeper {
        let (told, tells) = channel();
        let forecast = Arc::new(OnceLock::new());
        let found = Arc::clone(&forecast);
        let (ends, written) = channel();
        std::thread::spawn(move || {
            // It is dropped at the end.
            let _ends: Sender<()> = ends;
            if let Err(error) = keep(&path, &spec, &tells, &*observer, &found) {
                observer.observe(JobEvent::Note(Note::NoHistory(error)));
            }
        });
        Keeper { told: Some(told), forecast, written: Mutex::new(written) }
    }

    /// Returns the forecast, once it is known.
    pub(super) fn forecast(&self) -> Option<Eta> {
        self.forecast.get().copied()
    }

    pub(super) fn begin(&self, at_s: f64, transfer: Transfer) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let begun_s = now.as_secs_f64() - at_s;
        self.tell(Told::Begins(at_s, Transfer { begun_s, ..transfer }));
    }

    pub(super) fn end(&self, ended: Ended) {
        self.tell(Told::Ends(ended));
    }

    fn tell(&self, told: Told) {
        if let Some(tell) = &self.told {
            // A thread that has failed has said so.
            let _ = tell.send(told);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.told = None;
        let written = self.written.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = written.recv_timeout(WRITE_WAIT);
    }
}

fn keep(
    path: &Path,
    spec: &JobSpec,
    tells: &Receiver<Told>,
    observer: &dyn JobObserver,
    found: &OnceLock<Eta>,
) -> Result<(), KeepError> {
    let mut open: Option<(History, i64)> = None;
    for told in tells {
        match (told, &open) {
            (Told::Begins(at_s, transfer), None) => {
                let history = History::open(path)?;
                let mut forecasts = Forecasts::learn(&history.all()?);
                let forecast = forecasts.forecast(&transfer, None);
                let Forecast { low_s, likely_s, high_s, .. } = forecast;
                // Without earlier transfers it is a guess.
                let range = (forecast.outcomes > 0).then_some(Range { low_s, likely_s, high_s });
                let id = history.begin(&Transfer { forecast: range, ..transfer.clone() })?;
                if range.is_some() {
                    let takes = Eta { low_s, likely_s, high_s };
                    let _ = found.set(takes);
                    observer.observe(JobEvent::Transfer(Event::Forecast { at_s, takes }));
                    let later = || later(&mut forecasts, &transfer, &forecast);
                    if let Some(deadline) = Deadline::of(spec, takes, later) {
                        observer.observe(JobEvent::Note(Note::Deadline(deadline)));
                    }
                }
                open = Some((history, id));
            }
            (Told::Ends(ended), Some((history, id))) => {
                history.end(*id, &ended)?;
                open = None;
            }
            (Told::Begins(..), Some(_)) | (Told::Ends(_), None) => {}
        }
    }
    Ok(())
}

/// A disk that does not answer holds up the end of the program for no longer.
const WRITE_WAIT: Duration = Duration::from_secs(2);
