//! When everything will end, and how fast bytes come.

use swath_model::Time;

use crate::config::Config;
use crate::lane::Lane;
use crate::ledger::Ledger;

/// The outlook at the last look.
#[derive(Default)]
pub(crate) struct Forecast {
    /// When everything would end if all went on as now; `None` while unknown.
    end_at: Option<Time>,
    /// Sum of the rates of lanes that bring something, bytes per second.
    pub rate: f64,
    /// The same with lanes that have nothing to do just now.
    able_rate: f64,
    /// Sources that may be counted on.
    pub usable_sources: usize,
}

impl Forecast {
    /// When everything would end if each lane went on at its rate and all ended together: the
    /// `T` for which `Σ rate_i · (T − idle_i)` is what is left to fetch, where `idle_i` is the
    /// round trip that a lane without work loses first, and what a loss may cost it last.
    pub fn look(&mut self, ledger: &Ledger) {
        let (coverage, now) = (&ledger.coverage, ledger.now);
        let mut left_bytes =
            coverage.open.total_bytes() as f64 + coverage.doubtful.total_bytes() as f64;
        let mut lanes: Vec<(f64, f64)> = Vec::with_capacity(ledger.lanes.count());
        let mut untried: Vec<f64> = Vec::new();
        for lane in ledger.lanes.iter() {
            // A lane about to end brings what it keeps, and helps with nothing else.
            if !lane.is_free() {
                continue;
            }
            left_bytes +=
                lane.pipe.wanted_bytes().saturating_sub(lane.pipe.wanted_out_of_order_bytes())
                    as f64;
            let idle = lane.is_idle();
            // Who may not be asked for anything that is missing will not help to the end.
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
        // A lane that nothing is left for, and that was never tried, counts as an average one:
        // whoever has taken everything is late then, and gives some of it back.
        if coverage.open.is_empty() && !untried.is_empty() {
            let mean = lanes.iter().map(|&(_, rate)| rate).sum::<f64>() / lanes.len() as f64;
            lanes.extend(untried.into_iter().map(|idle_s| (idle_s, mean)));
        }
        self.able_rate = lanes.iter().map(|&(_, rate)| rate).sum();
        lanes.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Water-filling: lanes join in the order of their idle time until the rest no longer pays.
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
        // What may yet be told keeps everybody busy for who knows how long.
        let end_s = if coverage.grows { end_s.max(GROWS_S) } else { end_s };
        self.end_at = Some(now.plus_secs(end_s));
    }

    /// Returns seconds until the end if all goes on as now, `None` while that is unknown.
    pub fn time_left_s(&self, now: Time) -> Option<f64> {
        self.end_at.filter(|&at| at < Time::MAX).map(|at| at.secs_since(now))
    }

    /// Where everything must end together: the end of the file, or of an ordered consumer's window.
    pub fn horizon_s(&self, config: &Config, now: Time) -> Option<f64> {
        let left_s = self.time_left_s(now)?;
        match config.window_bytes {
            // Lanes that rest because the window is full count: what takes longer than they need
            // for a window is what they rest for.
            Some(window) if self.able_rate > 0.0 => {
                Some(left_s.min(window as f64 / self.able_rate))
            }
            _ => Some(left_s),
        }
    }
}

/// What must pass on an idle lane with a whole-file answer before anything missing comes.
fn skip_bytes(lane: &Lane, ledger: &Ledger) -> u64 {
    let (at, undelivered) = (lane.pipe.stream_at(), &ledger.coverage.undelivered);
    match undelivered.first_from(at) {
        Some(ahead) => ahead.start.saturating_sub(at),
        // From the beginning then, with a new request.
        None => undelivered.first().map_or(0, |first| first.start),
    }
}

/// A file that may still grow counts as not over for this long at least.
const GROWS_S: f64 = 3.0;
