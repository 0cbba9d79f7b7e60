//! How many lanes a source gets: as many as pay.
//!
//! One lane keeps its window open and is fair to others. On routes with loss or a window limit more
//! lanes bring more. Such a sender sends in bursts with pauses between them, or has a whole window
//! in flight. A trial shows whether more lanes help: double them (or more if they are surely held
//! up), wait until the new ones are up to speed, and keep them if the source as a whole gained
//! enough. Otherwise close them and wait longer before the next trial. Rates under loss swing by
//! half from one moment to the next, so the tuner compares means over several round trips and
//! extends unclear trials.
//!
//! States: steady → trial → steady, with `goal` lanes wanted in each.

use swath_model::Time;

/// The lane count of one source.
#[derive(Clone, Debug)]
pub(crate) struct Tuner {
    /// Lanes wanted now.
    pub goal: u32,
    /// Whether the first number of lanes has been decided.
    begun: bool,
    /// Lanes that the server allows, as far as known, and until when that counts.
    allowed: (u32, Time),
    trial: Option<Trial>,
    next_trial_at: Time,
    pause_s: f64,
    /// The current look: its start, and the sum and number of its rates.
    look: (Time, f64, u32),
    /// Mean rates of the last looks, newest first.
    looks: [f64; LOOKS],
    /// Looks since the number of lanes last changed.
    looked: usize,
    climbing: bool,
    /// The rate when the number of lanes was last changed.
    worth: f64,
    /// Whether the last trial paid.
    won: bool,
    /// When the first bytes arrived.
    first_at: Time,
    /// Part of the last look that the lanes spent waiting for their senders.
    paused_part: f64,
    paused_before_s: f64,
}

#[derive(Clone, Debug)]
struct Trial {
    from: u32,
    rate_before: f64,
    /// The part of proportional growth that the new lanes must bring.
    pays: f64,
    /// Sum and number of the rates in the trial's second half.
    rate_sum: f64,
    looks: u32,
    count_from: Time,
    judge_at: Time,
    latest_at: Time,
}

/// What is known when the first lane is up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    pub rtt_s: f64,
    pub lanes_max: u32,
    /// Usable sources.
    pub sources: u32,
    /// Lanes that earlier transfers found to pay.
    pub known_lanes: Option<u32>,
    pub undelivered_bytes: u64,
}

/// What the tuner reads at every tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub now: Time,
    /// Sum over the source's lanes, bytes per second.
    pub rate: f64,
    /// Sum of its lanes' pauses so far, in seconds.
    pub paused_s: f64,
    pub rtt_s: f64,
    /// Lanes connected and in use.
    pub lanes_up: u32,
    pub lanes_max: u32,
    /// Seconds until the end of the transfer.
    pub time_left_s: f64,
    /// Whether there is work for every lane; at the end some are idle.
    pub has_work: bool,
}

impl Tuner {
    /// Returns a tuner that wants `goal` lanes until more is known.
    pub fn new(goal: u32) -> Self {
        Self {
            goal,
            begun: false,
            allowed: (u32::MAX, Time::ZERO),
            trial: None,
            next_trial_at: Time::ZERO,
            pause_s: PAUSE_FIRST_S,
            look: (Time::ZERO, 0.0, 0),
            looks: [0.0; LOOKS],
            looked: 0,
            climbing: true,
            worth: 0.0,
            won: false,
            first_at: Time::MAX,
            paused_part: 0.0,
            paused_before_s: 0.0,
        }
    }

    /// Sets the number of lanes when the first one is up: a long route gets several at once. Trials
    /// would take most of a transfer there, because each doubling of the window costs a round trip
    /// and the sender's window (commonly 4 MiB) caps each lane. Also, a loss stops only one lane
    /// for a round trip or more. With few sources each gets more, as no other fills the gap. What
    /// earlier transfers found counts instead.
    pub fn first_lane(&mut self, begin: &Begin) {
        let &Begin { rtt_s, lanes_max, sources, .. } = begin;
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        if begin.undelivered_bytes >= LONG_ROUTE_BYTES {
            let known = begin.known_lanes.filter(|_| sources == 1);
            let lanes = known.unwrap_or_else(|| lanes_at_first(rtt_s, sources));
            self.goal = lanes.clamp(1, lanes_max.max(1));
        }
    }

    /// Returns the number of lanes that pay as far as is known; 0 before the first lane.
    pub fn settled(&self) -> u32 {
        match &self.trial {
            _ if !self.begun => 0,
            Some(trial) => trial.from,
            None => self.goal,
        }
    }

    /// Returns whether the lanes have nearly as much in flight as their windows allow.
    fn fills_windows(&self, rate: f64, rtt_s: f64, lanes_up: u32) -> bool {
        let lanes = f64::from(lanes_up.clamp(1, self.goal.max(1)));
        rate / lanes * rtt_s > WINDOW_BYTES
    }

    /// Judges the current trial, or begins one if it is time.
    pub fn tick(&mut self, reading: Reading) {
        let Reading { now, rate, rtt_s, lanes_up, lanes_max, time_left_s, .. } = reading;
        if rate > 0.0 {
            self.first_at = self.first_at.min(now);
        }
        self.look(&reading);
        // Lanes that fill a link in turn pause while the others send.
        let busy_part = f64::from(lanes_up.max(1)) * (1.0 - self.paused_part);
        let held_up = busy_part < 1.0 - HELD_UP || self.fills_windows(rate, rtt_s, lanes_up);
        if let Some(trial) = &mut self.trial {
            if now >= trial.count_from {
                trial.rate_sum += rate;
                trial.looks += 1;
            }
            let unready = self.climbing || lanes_up < self.goal;
            if now < trial.judge_at || (unready && now < trial.latest_at) {
                return;
            }
            let growth = f64::from(self.goal) / f64::from(trial.from) - 1.0;
            let mean = trial.rate_sum / f64::from(trial.looks.max(1));
            let gained = mean / trial.rate_before.max(1.0) - 1.0;
            if gained >= trial.pays * growth {
                (self.looks[0], self.looked) = (mean, 1);
                (self.worth, self.won) = (mean, true);
                self.pause_s = PAUSE_FIRST_S;
                self.next_trial_at = now;
            } else if gained > 0.0 && held_up && now < trial.latest_at {
                return;
            } else {
                self.goal = trial.from;
                (self.looked, self.won) = (0, false);
                self.next_trial_at = now.plus_secs(self.pause_s);
                self.pause_s = if held_up && gained > 0.5 * trial.pays * growth {
                    (2.0 * self.pause_s).min(PAUSE_UNCLEAR_S)
                } else {
                    (4.0 * self.pause_s).min(PAUSE_MAX_S)
                };
            }
            self.trial = None;
            return;
        }
        let usual_rate = self.usual_rate();
        if !reading.has_work {
            self.looked = 0;
        }
        if self.goal > 1 && self.looked >= FALLEN_LOOKS && usual_rate < FALLEN * self.worth {
            // The link has changed: find out anew what pays.
            self.goal = (self.goal / TIMES_HELD_UP).max(1);
            (self.worth, self.looked) = (usual_rate, 0);
            self.next_trial_at = now.plus_secs(self.pause_s);
            return;
        }
        let settle_s = (8.0 * rtt_s).max(0.4);
        let pause_s = if held_up { 0.0 } else { PLAIN_PAUSE_S };
        let ready_at = self
            .next_trial_at
            .max(self.first_at.plus_secs((YOUNG_ROUND_TRIPS * rtt_s).max(YOUNG_S)))
            .plus_secs(pause_s);
        let left_s = match held_up {
            true if self.won => GROWING_LEFT_S,
            true => TRIAL_LEFT_S,
            false => PLAIN_LEFT_S,
        };
        let worth_s = (TRIAL_PART * settle_s).max(left_s);
        if now < ready_at || time_left_s < worth_s {
            return;
        }
        if self.climbing || lanes_up < self.goal || self.goal >= lanes_max || rate <= 0.0 {
            return;
        }
        self.trial = Some(Trial {
            from: self.goal,
            rate_before: usual_rate,
            pays: if held_up { PAYS_HELD_UP } else { PAYS },
            rate_sum: 0.0,
            looks: 0,
            count_from: now.plus_secs(0.6 * settle_s),
            judge_at: now.plus_secs(settle_s),
            latest_at: now.plus_secs(3.0 * settle_s),
        });
        let times = if held_up { TIMES_HELD_UP } else { 2 };
        self.goal = (times * self.goal).min(lanes_max);
    }

    /// Records the rate and the pauses. A look lasts a few round trips.
    fn look(&mut self, reading: &Reading) {
        let &Reading { now, rate, paused_s, rtt_s, lanes_up, .. } = reading;
        self.look.1 += rate;
        self.look.2 += 1;
        let (since, rate_sum, rates) = self.look;
        let look_s = now.secs_since(since);
        if look_s < (2.0 * rtt_s).max(0.2) {
            return;
        }
        let mean = rate_sum / f64::from(rates);
        self.climbing = mean > CLIMB * self.looks[0];
        self.looks.rotate_right(1);
        self.looks[0] = mean;
        self.looked = (self.looked + 1).min(LOOKS);
        self.look = (now, 0.0, 0);
        let lane_s = look_s * f64::from(lanes_up.max(1));
        let paused_part = (paused_s - self.paused_before_s).max(0.0) / lane_s;
        self.paused_part += SMOOTH * (paused_part - self.paused_part);
        self.paused_before_s = paused_s;
    }

    /// Returns the normal rate with the present lanes: the median of the last looks.
    fn usual_rate(&self) -> f64 {
        let mut looks = self.looks;
        let looks = &mut looks[..self.looked.clamp(1, LOOKS)];
        looks.sort_by(f64::total_cmp);
        looks[looks.len() / 2]
    }

    /// Limits the lanes to `working` after the server refused more: for good if it `said` so,
    /// otherwise for a minute.
    pub fn refused(&mut self, working: u32, said: bool, now: Time) {
        self.reset(now);
        self.goal = self.goal.min(working);
        self.next_trial_at = now.plus_secs(PAUSE_MAX_S);
        let (before, until) = self.allowed;
        let is_settled = until == Time::MAX;
        self.allowed = match said || is_settled {
            true => (if is_settled { before.min(working) } else { working }, Time::MAX),
            false => (working, self.next_trial_at),
        };
    }

    /// Returns how many lanes the server allows, as far as is known.
    pub fn allowed(&self, now: Time) -> u32 {
        let (lanes, until) = self.allowed;
        if now < until { lanes } else { u32::MAX }
    }

    /// Limits the lanes to `most` from now on, without trials.
    pub fn limit(&mut self, most: u32, now: Time) {
        self.reset(now);
        self.goal = self.goal.min(most);
    }

    /// Ends a trial because of a failure or a silence.
    pub fn reset(&mut self, now: Time) {
        if let Some(trial) = self.trial.take() {
            self.goal = trial.from;
            (self.looked, self.won) = (0, false);
        }
        self.next_trial_at = now.plus_secs(self.pause_s);
    }
}

/// Returns how many lanes a source gets at first, with a round trip of `rtt_s` seconds and
/// `sources` sources in all.
pub(crate) fn lanes_at_first(rtt_s: f64, sources: u32) -> u32 {
    if rtt_s < LONG_ROUTE_S {
        return if sources > 1 { 1 } else { windows(rtt_s) };
    }
    let lanes = shared_lanes(rtt_s).max(LONG_LANES_ALONE / sources.max(1));
    lanes.clamp(LONG_LANES_MIN, LONG_LANES_MAX)
}

/// Returns how many lanes one of many sources gets.
pub(crate) fn shared_lanes(rtt_s: f64) -> u32 {
    ((rtt_s / LONG_LANE_S).round() as u32).clamp(1, LONG_LANES_MAX)
}

/// Returns how many lanes' windows hold what 1 Gbit/s has in flight on such a route, and half as
/// much in its queue, up to a useful number.
fn windows(rtt_s: f64) -> u32 {
    ((rtt_s / ALONE_LANE_S).ceil() as u32).clamp(1, LONG_LANES_ALONE)
}

/// Factor on the lanes in a trial if loss or a window holds them up; otherwise they are doubled.
const TIMES_HELD_UP: u32 = 4;
/// If a source brings less than this part of what its lanes once brought …
const FALLEN: f64 = 0.33;
/// … for this many looks, it gets fewer lanes.
const FALLEN_LOOKS: usize = 4;
/// Looks remembered.
const LOOKS: usize = 5;
/// New lanes must bring at least this part of what as many old ones bring …
const PAYS: f64 = 0.5;
/// … or this part if loss or a window holds the old ones up. Their rate swings so much that asking
/// for more would take a longer look.
const PAYS_HELD_UP: f64 = 0.15;
/// A trial is worth its cost only if the transfer goes on for this many times its length, …
const TRIAL_PART: f64 = 4.0;
/// … and at least this long if the senders seem to be held up. (Loss that their congestion control
/// shrugs off looks the same; a trial then disturbs the present lanes.) …
const TRIAL_LEFT_S: f64 = 6.0;
/// … This is enough once more lanes have paid.
const GROWING_LEFT_S: f64 = 2.0;
/// A source gets this many round trips to come up to speed …
const YOUNG_ROUND_TRIPS: f64 = 15.0;
/// … and at least this time, before the first trial.
const YOUNG_S: f64 = 0.8;
/// If all senders pause for more than this part of the time, a window or loss holds them up.
const HELD_UP: f64 = 0.5;
/// Bytes in flight on one lane that are near the commonest sender window, 4 MiB.
const WINDOW_BYTES: f64 = 2.5e6;
/// Without a sign of being held up, a trial waits this long after the last one …
const PLAIN_PAUSE_S: f64 = 10.0;
/// … and the transfer must go on for this long: a trial disturbs the present lanes.
const PLAIN_LEFT_S: f64 = 20.0;
/// Weight of the newest look in the mean part of time that senders pause.
const SMOOTH: f64 = 0.3;
/// Growth from one look to the next that counts as still climbing.
const CLIMB: f64 = 1.08;
/// Pause after the first failed trial; it grows with each further one …
const PAUSE_FIRST_S: f64 = 1.0;
/// … up to this, …
const PAUSE_MAX_S: f64 = 60.0;
/// … or to this after a near success.
const PAUSE_UNCLEAR_S: f64 = 4.0;
/// Round trip from which a route counts as long.
const LONG_ROUTE_S: f64 = 0.035;
/// Round trip per lane on long routes: senders commonly buffer at most 4 MiB per lane, which holds
/// 2 MB in packets of 1,500 bytes; that comes to 250 Mbit/s.
const LONG_LANE_S: f64 = 0.065;
/// Least lanes of a source that is alone: together they come up to speed sooner, and have in flight
/// what a route of 1 Gbit/s and 100 ms and its queue hold, but hardly more. Several sources share
/// this number.
const LONG_LANES_ALONE: u32 = 6;
/// Round trip per lane on shorter routes for a source that is alone.
const ALONE_LANE_S: f64 = 0.016;
/// Least lanes on a long route.
const LONG_LANES_MIN: u32 = 2;
/// Most lanes on a long route at first; more must pay for themselves.
const LONG_LANES_MAX: u32 = 8;
/// With fewer bytes left, a second lane on a long route would hardly be up in time.
const LONG_ROUTE_BYTES: u64 = 8 << 20;
