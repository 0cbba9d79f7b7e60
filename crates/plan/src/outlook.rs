//! When everything will end, and how fast bytes arrive.

use swath_model::Time;

use crate::config::Config;
use crate::lane::Lane;
use crate::ledger::Ledger;

/// The outlook at the last tick.
#[derive(Default)]
pub(crate) struct Outlook {
    /// When everything would end at the present rates; `None` while unknown.
    end_at: Option<Time>,
    /// Sum of the rates of lanes that bring something, in bytes per second.
    pub rate: f64,
    /// The same, including lanes that are idle now.
    able_rate: f64,
    /// Sources that can be relied on.
    pub usable_sources: usize,
}

impl Outlook {
    /// Computes when everything would end if each lane kept its rate and all ended together: the
    /// `T` for which `Σ rate_i · (T − idle_i)` is what is left to fetch. `idle_i` is the round trip
    /// that an idle lane loses first, plus what a loss may cost it last.
    pub fn look(&mut self, ledger: &Ledger) {
        let (coverage, now) = (&ledger.coverage, ledger.now);
        let mut left_bytes =
            coverage.open.total_bytes() as f64 + coverage.doubtful.total_bytes() as f64;
        let mut lanes: Vec<(f64, f64)> = Vec::with_capacity(ledger.lanes.count());
        let mut untried: Vec<f64> = Vec::new();
        for lane in ledger.lanes.iter() {
            // A lane about to end brings what it keeps, but helps with nothing else.
            if !lane.is_free() {
                continue;
            }
            left_bytes +=
                lane.pipe.wanted_bytes().saturating_sub(lane.pipe.wanted_out_of_order_bytes())
                    as f64;
            let idle = lane.is_idle();
            // A lane that may not be asked for anything missing does not help.
            if idle
                && ledger.source_of(lane).is_none_or(|source| {
                    source.backoff.quiet_until > now || !ledger.is_of_use(source)
                })
            {
                continue;
            }
            match lane.speed.rate.filter(|&rate| rate > 1.0) {
                Some(rate) => {
                    let skip_bytes = if lane.pipe.streams { skip_bytes(lane, ledger) } else { 0 };
                    let idle_s = lane.speed.trip_s() + skip_bytes as f64 / rate;
                    lanes.push((if idle { idle_s } else { 0.0 } + lane.pauses.stop_s, rate));
                }
                None if idle && !lane.pipe.streams => untried.push(lane.speed.trip_s()),
                None => {}
            }
        }
        if lanes.is_empty() {
            self.end_at = None;
            return;
        }
        // An untried lane with nothing left to take counts as an average one. Then lanes that took
        // everything are late and give some of it back.
        if coverage.open.is_empty() && !untried.is_empty() {
            let mean = lanes.iter().map(|&(_, rate)| rate).sum::<f64>() / lanes.len() as f64;
            lanes.extend(untried.into_iter().map(|idle_s| (idle_s, mean)));
        }
        self.able_rate = lanes.iter().map(|&(_, rate)| rate).sum();
        lanes.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Water-filling: lanes join in order of idle time until the rest no longer pays.
        let (mut rate_sum, mut idle_sum) = (0.0, 0.0);
        let mut end_s = f64::INFINITY;
        for (idle_s, rate) in lanes {
            if idle_s >= end_s {
                break;
            }
            rate_sum += rate;
            idle_sum += rate * idle_s;
            end_s = (left_bytes + idle_sum) / rate_sum;
        }
        // A file that still grows may keep all lanes busy for an unknown time.
        let end_s = if coverage.grows { end_s.max(GROWS_S) } else { end_s };
        self.end_at = Some(now.plus_secs(end_s));
    }

    /// Returns the seconds until the end at the present rates, `None` while unknown.
    pub fn time_left_s(&self, now: Time) -> Option<f64> {
        self.end_at.filter(|&at| at < Time::MAX).map(|at| at.secs_since(now))
    }

    /// Returns the seconds until all must end: the file, or an ordered consumer's window.
    pub fn horizon_s(&self, config: &Config, now: Time) -> Option<f64> {
        let left_s = self.time_left_s(now)?;
        match config.window_bytes {
            // Include lanes that rest because the window is full: they rest for work that takes
            // longer than the window.
            Some(window) if self.able_rate > 0.0 => {
                Some(left_s.min(window as f64 / self.able_rate))
            }
            _ => Some(left_s),
        }
    }
}

/// Returns what an idle lane with a whole-file answer must skip before missing bytes come.
fn skip_bytes(lane: &Lane, ledger: &Ledger) -> u64 {
    let (at, undelivered) = (lane.pipe.stream_at(), &ledger.coverage.undelivered);
    match undelivered.first_from(at) {
        Some(ahead) => ahead.start.saturating_sub(at),
        // A new request starts from the beginning.
        None => undelivered.first().map_or(0, |first| first.start),
    }
}

/// A file that may still grow is assumed to take at least this long.
const GROWS_S: f64 = 3.0;
