//! The history of a user's transfers, written while they happen, and forecasts from it.
//!
//! - `watch`: what the events of a transfer say of it, pure;
//! - `list`: the same of a list of files;
//! - `keeper`: a thread that reads and writes the history, so that nothing waits for the disk;
//! - `deadline`: whether a transfer ends in time;
//! - `forecasts`: what is learned from the history;
//! - `import`: logs of other programs;
//! - `sites`: between which places a job transfers.

mod begin;
mod deadline;
mod forecasts;
mod import;
mod keeper;
mod list;
mod sites;
mod watch;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use keeper::{Keeper, Outlook};
use list::{EndedList, ListWatch};
use swath_state::Transfer;
use swath_transfer::observe::{Eta, Event, Phase};
use watch::{Sight, Watch};

pub(crate) use begin::first_lanes;
pub use begin::{SiteBegin, begins, is_tuned};
pub(crate) use deadline::later;
pub use deadline::{Deadline, Help};
pub use forecasts::Forecasts;
pub(crate) use forecasts::is_set_by_limit;
pub use import::{ImportError, ImportedLog, import_log, open_log};
pub(crate) use sites::{Sites, joined};

use crate::event::{JobEvent, JobObserver, Note};
use crate::spec::JobSpec;

/// Passes on the events of a job, keeps its transfer in the history, and adds a forecast.
pub(crate) struct Historian {
    observer: Arc<dyn JobObserver>,
    sites: Sites,
    spec: Arc<JobSpec>,
    /// Whether the deadline was judged already, or there is none.
    has_judged: AtomicBool,
    watch: Mutex<Watch>,
    /// The list that has begun, if any.
    list: Mutex<Option<ListWatch>>,
    /// `None` without a history.
    keeper: Option<Keeper>,
}

impl Historian {
    /// Returns an observer for a job whose history is in this file, if there is one.
    pub(crate) fn new(
        history: Option<PathBuf>,
        spec: &JobSpec,
        observer: Arc<dyn JobObserver>,
    ) -> Historian {
        let spec = Arc::new(spec.clone());
        let keeper =
            history.map(|path| Keeper::new(path, Arc::clone(&spec), Arc::clone(&observer)));
        let (sites, watch) = (Sites::of(&spec), Mutex::new(Watch::default()));
        let has_judged = AtomicBool::new(spec.deadline_s.is_none());
        let list = Mutex::default();
        Historian { observer, sites, spec, has_judged, watch, list, keeper }
    }
}

impl JobObserver for Historian {
    fn observe(&self, mut event: JobEvent) {
        if let JobEvent::Transfer(event) = &event {
            let sight = self.watch.lock().unwrap_or_else(PoisonError::into_inner).see(event);
            match sight {
                Some(Sight::Begins { at_s, sources, bytes, files }) => {
                    let transfer = self.transfer(self.sites.from(&sources), bytes, files);
                    if let Some(keeper) = &self.keeper {
                        keeper.begin(at_s, transfer);
                    }
                }
                Some(Sight::Ends(ended)) => {
                    if let Some(keeper) = &self.keeper {
                        keeper.end(ended);
                    }
                }
                None => {}
            }
        }
        let took_s = match &event {
            JobEvent::Transfer(Event::Finished(summary)) => Some(summary.elapsed_s),
            _ => self.ended_list(&event).and_then(|list| self.keep_list(list)),
        };
        if let (Some(outlook), JobEvent::Transfer(event)) = (self.outlook(), &mut event) {
            add_forecast(outlook, event);
        }
        let note = self.late(&event).map(Note::Deadline).or_else(|| self.missed(took_s?));
        self.observer.observe(event);
        if let Some(note) = note {
            self.observer.observe(JobEvent::Note(note));
        }
    }
}

impl Historian {
    fn transfer(&self, from: String, bytes: u64, files: u64) -> Transfer {
        Transfer {
            kind: self.sites.kind.to_owned(),
            from,
            to: self.sites.to.clone(),
            bytes,
            files,
            limit_bytes_per_s: self.spec.network.limit_bytes_per_s,
            ..Transfer::default()
        }
    }

    /// Returns the list of files, if it ends with this event.
    fn ended_list(&self, event: &JobEvent) -> Option<EndedList> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if let JobEvent::ListStarted { .. } = event {
            *list = Some(ListWatch::new());
        }
        list.as_mut()?.see(event)
    }

    fn outlook(&self) -> Option<&Outlook> {
        self.keeper.as_ref()?.outlook()
    }

    /// Adds a list to the history if any of it was transferred. Returns how long a complete one took.
    fn keep_list(&self, list: EndedList) -> Option<f64> {
        let EndedList { sites, files, ended } = list;
        let took_s = ended.is_complete.then_some(ended.took_s);
        if let Some(keeper) = self.keeper.as_ref().filter(|_| ended.bytes > 0) {
            let from = self.sites.list_from(sites);
            keeper.past(self.transfer(from, ended.bytes, files), ended);
        }
        took_s
    }

    /// Returns whether a transfer has missed its deadline.
    fn missed(&self, took_s: f64) -> Option<Note> {
        let within_s = self.spec.deadline_s? as f64;
        (took_s > within_s).then_some(Note::DeadlineMissed { within_s, took_s })
    }

    /// Judges the deadline of a transfer without forecast by what is measured after a while.
    fn late(&self, event: &JobEvent) -> Option<Deadline> {
        let JobEvent::Transfer(Event::Progress(now)) = event else { return None };
        let within_s = self.spec.deadline_s? as f64;
        if now.at_s < MEASURED_S.min(0.5 * within_s) || self.has_judged.load(Ordering::Relaxed) {
            return None;
        }
        let Eta { low_s, likely_s, high_s } = now.eta?;
        self.has_judged.store(true, Ordering::Relaxed);
        if self.outlook().is_some() {
            return None;
        }
        let whole = |left_s: f64| now.at_s + left_s;
        let takes = Eta { low_s: whole(low_s), likely_s: whole(likely_s), high_s: whole(high_s) };
        let bytes = now.size_bytes.unwrap_or(0).saturating_sub(now.resumed_bytes);
        Deadline::of(&self.spec, bytes, takes, || None).filter(|deadline| !deadline.is_safe())
    }
}

/// The deadline is judged so many seconds after the start, or in half of its time, if nothing was
/// forecast.
const MEASURED_S: f64 = 5.0;

/// Adds what was forecast to what says how long the transfer takes.
fn add_forecast(outlook: &Outlook, event: &mut Event) {
    match event {
        // How long one that was stopped would have taken is not known.
        Event::Finished(summary) => summary.forecast = Some(outlook.takes),
        Event::Progress(now) if now.phase == Phase::Fetching => now.eta = outlook.left(now),
        _ => {}
    }
}
