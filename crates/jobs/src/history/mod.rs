//! The history of a user's transfers, written while they happen, and forecasts from it.
//!
//! - `watch`: what the events of a transfer say of it, pure;
//! - `keeper`: a thread that reads and writes the history, so that nothing waits for the disk;
//! - `forecasts`: what is learned from the history;
//! - `import`: logs of other programs;
//! - `sites`: between which places a job transfers.

mod forecasts;
mod import;
mod keeper;
mod sites;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use keeper::Keeper;
use sites::Sites;
use swath_state::Transfer;
use swath_transfer::observe::{Eta, Event, Phase};
use watch::{Sight, Watch};

pub use forecasts::Forecasts;
pub use import::{ImportError, ImportedLog, import_log, open_log};

use crate::event::{JobEvent, JobObserver};
use crate::spec::JobSpec;

/// Passes on the events of a job, keeps its transfer in the history, and adds a forecast.
pub(crate) struct Historian {
    observer: Arc<dyn JobObserver>,
    sites: Sites,
    watch: Mutex<Watch>,
    keeper: Keeper,
}

impl Historian {
    /// Returns an observer for a job whose history is in this file.
    pub(crate) fn new(
        history: PathBuf,
        spec: &JobSpec,
        observer: Arc<dyn JobObserver>,
    ) -> Historian {
        let keeper = Keeper::new(history, Arc::clone(&observer));
        let (sites, watch) = (Sites::of(spec), Mutex::new(Watch::default()));
        Historian { observer, sites, watch, keeper }
    }
}

impl JobObserver for Historian {
    fn observe(&self, mut event: JobEvent) {
        if let JobEvent::Transfer(event) = &event {
            let sight = self.watch.lock().unwrap_or_else(PoisonError::into_inner).see(event);
            match sight {
                Some(Sight::Begins { at_s, sources, bytes, files }) => {
                    let from = self.sites.from(&sources);
                    let (kind, to) = (self.sites.kind.to_owned(), self.sites.to.clone());
                    let transfer = Transfer { kind, from, to, bytes, files, ..Transfer::default() };
                    self.keeper.begin(at_s, transfer);
                }
                Some(Sight::Ends(ended)) => self.keeper.end(ended),
                None => {}
            }
        }
        if let (Some(takes), JobEvent::Transfer(event)) = (self.keeper.forecast(), &mut event) {
            add_forecast(takes, event);
        }
        self.observer.observe(event);
    }
}

/// Adds what was forecast to what says how long the transfer takes.
fn add_forecast(takes: Eta, event: &mut Event) {
    match event {
        Event::Finished(summary) | Event::Failed { summary, .. } => summary.forecast = Some(takes),
        // At first nothing else is known.
        Event::Progress(now) if now.eta.is_none() && now.phase == Phase::Fetching => {
            let left = |takes_s: f64| (takes_s - now.at_s).max(0.0);
            let Eta { low_s, likely_s, high_s } = takes;
            now.eta = (likely_s > now.at_s).then(|| Eta {
                low_s: left(low_s),
                likely_s: left(likely_s),
                high_s: left(high_s),
            });
        }
        _ => {}
    }
}
