//! A thread that reads and writes the history of one job.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use swath_plan::forecast::Forecast;
use swath_state::{Ended, History, KeepError, Range, Transfer};
use swath_transfer::observe::{Eta, Event, Snapshot};

use super::deadline::{Deadline, later};
use super::forecasts::Forecasts;
use crate::event::{JobEvent, JobObserver, Note};
use crate::spec::JobSpec;

/// Tells the thread what happens; waits a moment for it when dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    told: Option<Sender<Told>>,
    outlook: Arc<OnceLock<Outlook>>,
    /// Whether the transfer has ended. Locked while the forecast is reported, so that it never follows
    /// the end.
    has_ended: Arc<Mutex<bool>>,
    /// Closed when the thread has written everything.
    written: Mutex<Receiver<()>>,
}

/// What is forecast of the transfer.
#[derive(Debug)]
pub(super) struct Outlook {
    /// How long it takes, as was forecast before its start.
    pub(super) takes: Eta,
    id: i64,
    forecasts: Mutex<Forecasts>,
}

impl Outlook {
    /// Returns how long the transfer still takes.
    pub(super) fn left(&self, now: &Snapshot) -> Option<Eta> {
        let Some(measured) = now.eta else {
            // At first nothing else is known.
            let left = self.takes.map(|takes_s| (takes_s - now.at_s).max(0.0));
            return (left.likely_s > 0.0).then_some(left);
        };
        let Some(size_bytes) = now.size_bytes else { return Some(measured) };
        // What was there before does not tell how far it is.
        let all = size_bytes.saturating_sub(now.resumed_bytes).max(1);
        let done = now.done_bytes.saturating_sub(now.resumed_bytes);
        let left = self.forecasts().left(self.id, now.at_s, done as f64 / all as f64, &measured);
        Some(left.unwrap_or(measured))
    }

    fn forecasts(&self) -> MutexGuard<'_, Forecasts> {
        self.forecasts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Told {
    /// At so many seconds since its start.
    Begins(f64, Transfer),
    Ends(Ended),
    /// It has ended already.
    Past(Transfer, Ended),
}

impl Keeper {
    /// Starts the thread. It opens the file when a transfer begins, and tells `observer` the forecast.
    pub(super) fn new(path: PathBuf, spec: Arc<JobSpec>, observer: Arc<dyn JobObserver>) -> Keeper {
        let (told, tells) = channel();
        let outlook = Arc::new(OnceLock::new());
        let found = Arc::clone(&outlook);
        let has_ended = Arc::new(Mutex::new(false));
        let is_over = Arc::clone(&has_ended);
        let (ends, written) = channel();
        std::thread::spawn(move || {
            // It is dropped at the end.
            let _ends: Sender<()> = ends;
            if let Err(error) = keep(&path, &spec, &tells, &*observer, &found, &is_over) {
                observer.observe(JobEvent::Note(Note::NoHistory(error)));
            }
        });
        Keeper { told: Some(told), outlook, has_ended, written: Mutex::new(written) }
    }

    /// Returns the forecast, once it is known.
    pub(super) fn outlook(&self) -> Option<&Outlook> {
        self.outlook.get()
    }

    pub(super) fn begin(&self, at_s: f64, transfer: Transfer) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let begun_s = now.as_secs_f64() - at_s;
        self.tell(Told::Begins(at_s, Transfer { begun_s, ..transfer }));
    }

    pub(super) fn end(&self, ended: Ended) {
        *self.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.tell(Told::Ends(ended));
    }

    /// Keeps a transfer that has just ended.
    pub(super) fn past(&self, transfer: Transfer, ended: Ended) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let begun_s = now.as_secs_f64() - ended.took_s;
        self.tell(Told::Past(Transfer { begun_s, ..transfer }, ended));
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
    found: &OnceLock<Outlook>,
    has_ended: &Mutex<bool>,
) -> Result<(), KeepError> {
    let mut open: Option<(History, i64)> = None;
    loop {
        let told = match tells.recv_timeout(LOOK_EVERY) {
            Ok(told) => Some(told),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        match (told, &open) {
            (None, Some((history, _))) => {
                // The next look may succeed.
                if let (Some(outlook), Ok(running)) = (found.get(), history.running()) {
                    outlook.forecasts().see_running(&running);
                }
            }
            (Some(Told::Begins(at_s, transfer)), None) => {
                let history = History::open(path)?;
                let mut forecasts = Forecasts::learn(&history.all()?);
                let forecast = forecasts.forecast(&transfer, None);
                let Forecast { low_s, likely_s, high_s, .. } = forecast;
                // Without earlier transfers it is a guess.
                let range = (forecast.outcomes > 0).then_some(Range { low_s, likely_s, high_s });
                let id = history.begin(&Transfer { forecast: range, ..transfer.clone() })?;
                let has_ended = has_ended.lock().unwrap_or_else(PoisonError::into_inner);
                if range.is_some() && !*has_ended {
                    let takes = Eta { low_s, likely_s, high_s };
                    observer.observe(JobEvent::Transfer(Event::Forecast { at_s, takes }));
                    let later = || later(&mut forecasts, &transfer, &forecast);
                    let deadline = Deadline::of(spec, transfer.bytes, takes, later);
                    if let Some(deadline) = deadline.filter(|deadline| !deadline.is_safe()) {
                        observer.observe(JobEvent::Note(Note::Deadline(deadline)));
                    }
                    forecasts.begin(id, &transfer);
                    let _ = found.set(Outlook { takes, id, forecasts: Mutex::new(forecasts) });
                }
                open = Some((history, id));
            }
            (Some(Told::Ends(ended)), Some((history, id))) => {
                history.end(*id, &ended)?;
                open = None;
            }
            (Some(Told::Past(transfer, ended)), _) => {
                let history = History::open(path)?;
                history.end(history.begin(&transfer)?, &ended)?;
            }
            (None | Some(Told::Ends(_)), None) | (Some(Told::Begins(..)), Some(_)) => {}
        }
    }
}

/// So often a running transfer looks at what runs beside it.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A disk that does not answer holds up the end of the program for no longer.
const WRITE_WAIT: Duration = Duration::from_secs(2);
