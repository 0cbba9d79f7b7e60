//! Whether a transfer ends in time, and what would help.

use swath_plan::forecast::{Forecast, chance};
use swath_state::Transfer;
use swath_transfer::observe::Eta;

use super::{Forecasts, is_set_by_limit};
use crate::copy::CopyKind;
use crate::spec::{GetFrom, JobSpec, Work};

/// A deadline, and whether it will be met.
#[derive(Clone, Debug, PartialEq)]
pub struct Deadline {
    /// In so many seconds from the start.
    pub within_s: f64,
    /// How long the transfer takes.
    pub takes: Eta,
    /// The part of such cases in which it is met, 0 to 1.
    pub chance: f64,
    /// What would help, if it may be missed.
    pub help: Vec<Help>,
}

/// What makes a transfer faster.
#[derive(Clone, Debug, PartialEq)]
pub enum Help {
    /// A higher limit of the rate, or none.
    NoLimit,
    /// More replicas to fetch from.
    MoreSources,
    /// A relay on the way.
    Relay,
    /// To begin later.
    Later {
        /// In seconds since 1970.
        at_s: f64,
        /// How long it would take then.
        takes_s: f64,
    },
}

impl Deadline {
    /// Whether it will be met quite surely: in nine of ten cases.
    pub fn is_safe(&self) -> bool {
        self.chance >= QUITE_SURE
    }

    /// Returns the deadline of a job that moves so many bytes, if it has one.
    pub(crate) fn of(
        spec: &JobSpec,
        bytes: u64,
        takes: Eta,
        later: impl FnOnce() -> Option<Help>,
    ) -> Option<Deadline> {
        let within_s = spec.deadline_s? as f64;
        let chance = chance(within_s, [takes.low_s, takes.likely_s, takes.high_s]);
        if chance >= QUITE_SURE {
            return Some(Deadline { within_s, takes, chance, help: Vec::new() });
        }
        let mut help = Vec::new();
        // A limit that allows no more is all that matters.
        let is_held_back = spec.network.limit_bytes_per_s.is_some_and(|limit| {
            let least_s = bytes as f64 / limit.max(1) as f64;
            least_s > within_s || is_set_by_limit(takes.low_s, takes.likely_s)
        });
        if is_held_back {
            return Some(Deadline { within_s, takes, chance, help: vec![Help::NoLimit] });
        }
        let (takes_more, takes_relays) = can_have(&spec.work);
        if takes_more {
            help.push(Help::MoreSources);
        }
        if takes_relays && spec.routes.relays.is_empty() {
            help.push(Help::Relay);
        }
        let is_in_time = |help: &Help| match help {
            Help::Later { takes_s, .. } => *takes_s <= within_s,
            _ => true,
        };
        help.extend(later().filter(is_in_time));
        Some(Deadline { within_s, takes, chance, help })
    }
}

/// Whether a job has one source but could have more, and whether relays could carry it.
fn can_have(work: &Work) -> (bool, bool) {
    match work {
        Work::Get(get) => {
            let is_one = matches!(&get.from, GetFrom::Replicas(all) if all.len() == 1);
            (is_one, true)
        }
        Work::Copy(copy) => match &copy.kind {
            CopyKind::Fetch { from, .. } => (from.len() == 1, true),
            CopyKind::ThirdParty { from, .. } => (from.len() == 1, false),
            CopyKind::FetchNamed { .. } => (true, true),
            _ => (false, false),
        },
    }
}

/// Returns the hour of the next day in which a transfer takes least, if that is much less than now.
pub(crate) fn later(
    forecasts: &mut Forecasts,
    transfer: &Transfer,
    now: &Forecast,
) -> Option<Help> {
    let hours = (1..24).map(|hour| {
        let at_s = transfer.begun_s + f64::from(hour) * 3600.0;
        let then = Transfer { begun_s: at_s, ..transfer.clone() };
        (at_s, forecasts.forecast(&then, None).likely_s)
    });
    let (at_s, takes_s) = hours.min_by(|a, b| a.1.total_cmp(&b.1))?;
    (takes_s < MUCH_LESS * now.likely_s).then_some(Help::Later { at_s, takes_s })
}

/// A deadline that is met in so many cases needs no word.
const QUITE_SURE: f64 = 0.9;

/// Another hour is worth it if a transfer takes less than this part of the time then.
const MUCH_LESS: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(minutes: [f64; 3]) -> Eta {
        let [low_s, likely_s, high_s] = minutes.map(|minutes| minutes * 60.0);
        Eta { low_s, likely_s, high_s }
    }

    #[test]
    fn a_deadline_that_may_be_missed_is_told_with_what_helps() {
        let mut spec = JobSpec::get(["https://a.example/f"], "/tmp");
        let takes = takes([41.0, 46.0, 55.0]);
        assert_eq!(Deadline::of(&spec, 1000, takes, || None), None, "none is set");
        spec.deadline_s = Some(3600);
        let safe = Deadline::of(&spec, 1000, takes, || None).unwrap();
        assert!(safe.is_safe() && safe.help.is_empty(), "{safe:?}");
        spec.deadline_s = Some(50 * 60);
        let deadline = Deadline::of(&spec, 1000, takes, || None).unwrap();
        assert!(!deadline.is_safe());
        assert!((0.6..0.8).contains(&deadline.chance), "{}", deadline.chance);
        assert_eq!(deadline.help, [Help::MoreSources, Help::Relay]);
        spec.network.limit_bytes_per_s = Some(1_000_000);
        let held_back = self::takes([60.0, 60.0, 60.0]);
        let deadline = Deadline::of(&spec, 1000, held_back, || None).unwrap();
        assert!(deadline.chance < 0.01, "{}", deadline.chance);
        assert_eq!(deadline.help, [Help::NoLimit]);
        // What is forecast does not show it, but the limit allows no more: 4 GB take 67 minutes.
        let deadline = Deadline::of(&spec, 4_000_000_000, takes, || None).unwrap();
        assert_eq!(deadline.help, [Help::NoLimit]);
    }
}
