//! How many connections a source pays for: `swath tune`.
//!
//! Samples of a file are fetched with more and more connections, and thrown away. The history keeps what
//! was found, and transfers that this source alone serves begin with it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use swath_plan::Lanes;
use swath_source::display_name;
use swath_state::{Ended, Figures, History, KeepError, Transfer};
use swath_transfer::{GetError, Range, Sample};

use crate::address::Address;
use crate::control::Control;
use crate::environment::Streams;
use crate::error::JobError;
use crate::event::JobObserver;
use crate::get;
use crate::history::joined;
use crate::kept::KeptData;
use crate::run::{CONNECTIONS_PER_HOST, EngineNeeds, JobContext, Jobs};
use crate::spec::{GetFrom, GetSpec, GetTo, JobSpec, Work};

/// What a number of connections brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Connections.
    pub connections: u32,
    /// Bytes per second, once they had come up to speed.
    pub rate_bytes_per_s: f64,
    /// Bytes that were fetched.
    pub bytes: u64,
    /// How long that took, in seconds.
    pub took_s: f64,
}

/// What was found.
#[derive(Debug)]
pub struct Tuned {
    /// The site of the source.
    pub site: String,
    /// One for each number of connections that was tried, in ascending order.
    pub trials: Vec<Trial>,
    /// The one that pays; `None` if trials were too short to tell.
    pub best: Option<Trial>,
    /// Why it was not kept, if it was not.
    pub not_kept: Option<KeepError>,
}

impl Jobs {
    /// Measures how the rate of this source grows with the number of connections. Fetches at most
    /// `budget_bytes` and calls `tell` after each trial. Of `like`, the network options are used.
    ///
    /// # Errors
    /// [`JobError`], if a trial fails.
    pub async fn tune(
        &self,
        source: &Address,
        like: &JobSpec,
        budget_bytes: u64,
        observer: &Arc<dyn JobObserver>,
        control: &Control,
        mut tell: impl FnMut(&Trial),
    ) -> Result<Tuned, JobError> {
        let get = GetSpec::new(GetFrom::Replicas(vec![source.clone()]), GetTo::Folder(".".into()));
        let get = GetSpec { discover: false, ..get };
        let spec = JobSpec { work: Work::Get(get.clone()), ..like.clone() };
        let streams = Streams::default();
        let context = JobContext { spec: &spec, streams: &streams, observer, control };
        let job = context.with(self.engine(&spec, EngineNeeds::of_get(&spec, &get))?);
        let name = source.url().map(|url| display_name(&url)).unwrap_or_default();
        let failed =
            |error| JobError::Transfer { name: name.clone(), error, kept: KeptData::default() };
        let size = get::size::size(&job, &get).await.map_err(|error| match error {
            JobError::Transfer { error, .. } => failed(error),
            other => other,
        })?;
        let Some(request) = size.sample.filter(|_| size.bytes > 0) else {
            return Err(JobError::NothingToMeasure);
        };
        let (mut trials, mut left_bytes) = (Vec::<Trial>::new(), budget_bytes);
        let counts = || (0..).map(|power| 1 << power).take_while(|it| *it <= CONNECTIONS_PER_HOST);
        for (done, connections) in counts().enumerate() {
            let to_come = (counts().count() - done) as u64;
            let bytes = size.bytes.min(left_bytes / to_come);
            let mut part = request.sample_of(Range::of_len(0, bytes));
            part.plan.lanes = Lanes::Fixed(connections);
            let sample = job.sample(part, TRIAL_LASTS).await;
            if control.is_cancelled() {
                return Err(JobError::Stopped);
            }
            let Some(trial) = trial(connections, &sample) else {
                let error = match sample.result {
                    Err(error) if !matches!(error, GetError::Stopped) => error,
                    _ => return Err(JobError::NothingCame { within_s: TRIAL_LASTS.as_secs() }),
                };
                return Err(failed(Box::new(error)));
            };
            tell(&trial);
            left_bytes = left_bytes.saturating_sub(trial.bytes);
            trials.push(trial);
            if has_levelled_off(&trials) {
                break;
            }
        }
        let best = best(&trials);
        let site = joined(std::slice::from_ref(source));
        let not_kept = self.environment.history.as_ref().zip(best).and_then(|(history, best)| {
            History::open(history).and_then(|history| keep(&history, &site, &best)).err()
        });
        Ok(Tuned { site, trials, best, not_kept })
    }
}

/// Returns what a sample showed; `None` if nothing came, or too little.
fn trial(connections: u32, sample: &Sample) -> Option<Trial> {
    if !matches!(sample.result, Ok(_) | Err(GetError::Stopped)) {
        return None;
    }
    let bytes = sample.summary.as_ref()?.fetched_bytes;
    let (took_s, rate_bytes_per_s) = (sample.elapsed.as_secs_f64(), sample.rate_bytes_per_s?);
    Some(Trial { connections, rate_bytes_per_s, bytes, took_s })
}

/// Whether more connections brought nothing, twice.
fn has_levelled_off(trials: &[Trial]) -> bool {
    let gains = trials.windows(2).map(|pair| pair[1].rate_bytes_per_s / pair[0].rate_bytes_per_s);
    gains.rev().take(2).filter(|gain| *gain < GAIN).count() == 2
}

/// Returns the fewest connections that bring nearly the most, if all trials lasted long enough.
fn best(trials: &[Trial]) -> Option<Trial> {
    if trials.iter().any(|trial| trial.took_s < TELLS_S) {
        return None;
    }
    let most = trials.iter().map(|trial| trial.rate_bytes_per_s).fold(0.0, f64::max);
    trials.iter().find(|trial| trial.rate_bytes_per_s >= NEARLY * most).copied()
}

/// Keeps the best trial as a transfer at its rate.
fn keep(history: &History, site: &str, best: &Trial) -> Result<(), KeepError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let took_s = best.bytes as f64 / best.rate_bytes_per_s;
    let transfer = Transfer {
        begun_s: now.as_secs_f64() - took_s,
        kind: TUNED.to_owned(),
        from: site.to_owned(),
        to: swath_state::HERE.to_owned(),
        bytes: best.bytes,
        files: 1,
        ..Transfer::default()
    };
    let figures = Figures {
        lanes: Some(best.connections),
        sources: Some(1),
        routed: Some(0),
        ..Figures::default()
    };
    let ended = Ended { took_s, is_complete: true, bytes: best.bytes, figures };
    let id = history.begin(&transfer)?;
    history.end(id, &ended)
}

/// What the history calls them.
pub(crate) const TUNED: &str = "tune";

/// A trial takes no longer.
const TRIAL_LASTS: Duration = Duration::from_secs(5);

/// What is over sooner tells nothing: connections take a while to come up to speed.
const TELLS_S: f64 = 0.2;

/// Twice as many connections pay if they bring so much more.
const GAIN: f64 = 1.1;

/// Nearly as much as the most.
const NEARLY: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    fn trials(rates: &[f64]) -> Vec<Trial> {
        let each = rates.iter().enumerate().map(|(at, &rate)| Trial {
            connections: 1 << at,
            rate_bytes_per_s: rate,
            bytes: 1,
            took_s: 1.0,
        });
        each.collect()
    }

    #[test]
    fn the_fewest_connections_that_bring_nearly_the_most_are_best() {
        let best = |rates: &[f64]| best(&trials(rates)).map(|trial| trial.connections);
        assert_eq!(best(&[10.0, 20.0, 39.0, 40.0]), Some(4));
        assert_eq!(best(&[10.0, 10.1]), Some(1));
        assert_eq!(best(&[]), None);
        let short = Trial { took_s: 0.01, ..trials(&[1.0])[0] };
        assert_eq!(super::best(&[short]), None);
    }

    #[test]
    fn it_ends_when_more_bring_nothing_twice() {
        let ends = |rates: &[f64]| has_levelled_off(&trials(rates));
        assert!(!ends(&[10.0]) && !ends(&[10.0, 10.0]) && ends(&[10.0, 10.0, 10.0]));
        assert!(!ends(&[10.0, 10.0, 20.0]) && !ends(&[10.0, 20.0, 20.0]));
    }
}
