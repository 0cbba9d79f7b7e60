//! How many lanes a source gets: as many as pay.
//!
//! One lane keeps its window open and is fair to others. On routes with loss or with a window
//! limit more lanes bring more; such a sender shows itself by sending in bursts with pauses
//! between them, or by a whole window under way. Whether more lanes do help is found by trial:
//! double them (or more where they are held up for sure), wait until the new ones have come up to
//! speed, keep them if the source as a whole gained enough, else take them away and wait longer
//! before the next trial. Rates under loss swing by half from one moment to the next, so means
//! over several round trips are compared, and a trial that is neither won nor lost goes on.
//!
//! States: steady → trial → steady, with `goal` lanes wanted in each.

use swath_model::Time;

/// The lane count of one source.
#[derive(Clone, Debug)]
pub(crate) struct Tuner {
    /// Lanes wanted now.
    pub goal: u32,
    /// As long as this is more than that, there are so many lanes, and their windows are narrow.
    starters: u32,
    /// How much they may have under way together, in bytes.
    shared_bytes: f64,
    /// When the first of them was asked for something, and how many have been.
    asked: (Time, u32),
    /// How many lanes there are at first has been decided.
    begun: bool,
    /// So many lanes its server allows, as far as is known, and until when that counts.
    allowed: (u32, Time),
    trial: Option<Trial>,
    next_trial_at: Time,
    pause_s: f64,
    /// When the present look began, the sum of the rates in it, and of how many.
    look: (Time, f64, u32),
    /// Mean rates of the last looks, newest first.
    looks: [f64; LOOKS],
    /// Looks since the number of lanes last changed.
    looked: usize,
    climbing: bool,
    /// What the lanes brought when there came to be so many.
    worth: f64,
    /// The last trial paid.
    won: bool,
    /// When the first bytes came.
    first_at: Time,
    /// Part of the last look that the lanes spent waiting for their senders.
    paused_part: f64,
    paused_before_s: f64,
}

#[derive(Clone, Debug)]
struct Trial {
    from: u32,
    rate_before: f64,
    /// The part of proportional growth that it must bring.
    pays: f64,
    /// Sum of the rates at the looks of its second half, and how many those were.
    rate_sum: f64,
    looks: u32,
    count_from: Time,
    judge_at: Time,
    latest_at: Time,
}

/// What the tuner looks at, once a tick.
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
    /// Until the end of the transfer.
    pub time_left_s: f64,
    /// Whether there is work for every lane: at the end some rest.
    pub has_work: bool,
}

impl Tuner {
    /// So many lanes are wanted before anything is known.
    pub fn new(goal: u32) -> Self {
        Self {
            goal,
            starters: 0,
            shared_bytes: 0.0,
            asked: (Time::ZERO, 0),
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

    /// The first lane is up: a long route is given several at once, because finding out by trial
    /// would take most of a transfer there (each doubling of the window costs a round trip, and
    /// one lane is capped at the sender's window, commonly 4 MiB, per round trip), and because a
    /// loss stops one lane for a round trip or more, and not the others.
    /// Few sources have more each: nobody else fills what they leave.
    /// And up to `most_starters` come up to speed sooner than a few.
    pub fn first_lane(
        &mut self,
        rtt_s: f64,
        lanes_max: u32,
        sources: u32,
        most_starters: u32,
        undelivered_bytes: u64,
    ) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        if undelivered_bytes >= LONG_ROUTE_BYTES {
            self.goal = lanes_at_first(rtt_s, sources).min(lanes_max);
            self.starters = starters(rtt_s, sources, most_starters).min(lanes_max);
            let few_bytes = f64::from(lanes_at_first(rtt_s, 2)) * LANE_WINDOW_BYTES;
            let route_bytes = rtt_s * STARTERS_BYTES_PER_S;
            self.shared_bytes = route_bytes.min(STARTERS_BYTES_MAX).max(few_bytes);
        }
    }

    /// So many lanes there are to be.
    pub fn lanes(&self) -> u32 {
        self.goal.max(self.starters)
    }

    /// Returns how much each of them may have under way, in bytes, if not as much as it likes.
    pub fn window_bytes(&self) -> Option<u64> {
        let share = || (self.shared_bytes / f64::from(self.starters)) as u64;
        (self.starters > self.goal).then(share)
    }

    /// A lane is asked for something for the first time.
    pub fn lane_begins(&mut self, now: Time) {
        let (since, lanes) = self.asked;
        self.asked = (if lanes == 0 { now } else { since }, lanes + 1);
    }

    /// Returns whether a further lane may begin. Those that begin together would send together, too:
    /// in each round trip a burst, for which a short queue has no room. So they begin one after the
    /// other within one round trip.
    pub fn may_begin(&self, now: Time, rtt_s: f64) -> bool {
        let (since, lanes) = self.asked;
        let due = f64::from(self.starters) * now.secs_since(since) / rtt_s.max(1e-3);
        self.starters <= self.goal || lanes == 0 || f64::from(lanes) < 1.0 + due
    }

    /// Returns whether the lanes have as much under way as their windows let them.
    fn fills_windows(&self, rate: f64, rtt_s: f64, lanes_up: u32) -> bool {
        match self.window_bytes() {
            Some(_) => rate * rtt_s > FULL_WINDOWS * self.shared_bytes,
            None => {
                let lanes = f64::from(lanes_up.clamp(1, self.goal.max(1)));
                rate / lanes * rtt_s > WINDOW_BYTES
            }
        }
    }

    /// Judges, tries, or leaves alone.
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
            // The link is another one now: what paid then is to be found out anew.
            self.goal = (self.goal / TIMES_HELD_UP).max(1);
            self.starters = 0;
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

    /// Takes note of the rate and the pauses; a look is a few round trips long.
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

    /// What the source brings as a rule, with the lanes that it has: the median of the last looks.
    fn usual_rate(&self) -> f64 {
        let mut looks = self.looks;
        let looks = &mut looks[..self.looked.clamp(1, LOOKS)];
        looks.sort_by(f64::total_cmp);
        looks[looks.len() / 2]
    }

    /// The server refuses more than `working` lanes. If it `said` so it is not asked for more again, else
    /// in a minute.
    pub fn refused(&mut self, working: u32, said: bool, now: Time) {
        self.reset(now);
        self.goal = self.goal.min(working);
        self.starters = self.starters.min(working);
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

    /// A failure or a silence: whatever was on trial is off.
    pub fn reset(&mut self, now: Time) {
        if let Some(trial) = self.trial.take() {
            self.goal = trial.from;
            (self.looked, self.won) = (0, false);
        }
        self.next_trial_at = now.plus_secs(self.pause_s);
    }
}

/// So many lanes a source has at first, with a round trip of `rtt_s` seconds and so many `sources`
/// in all.
pub(crate) fn lanes_at_first(rtt_s: f64, sources: u32) -> u32 {
    if rtt_s < LONG_ROUTE_S {
        return if sources > 1 { 1 } else { windows(rtt_s) };
    }
    let lanes = (rtt_s / LONG_LANE_S).round() as u32;
    lanes.max(LONG_LANES_ALONE / sources.max(1)).clamp(LONG_LANES_MIN, LONG_LANES_MAX)
}

/// So many lanes' windows hold what 1 Gbit/s has under way on such a route, and half as much in its
/// queue, up to what there is a use for.
fn windows(rtt_s: f64) -> u32 {
    ((rtt_s / ALONE_LANE_S).ceil() as u32).clamp(1, LONG_LANES_ALONE)
}

/// So many of `most` lanes a source begins with on such a route, the others' windows being theirs.
pub(crate) fn starters(rtt_s: f64, sources: u32, most: u32) -> u32 {
    if rtt_s < LONG_ROUTE_S || sources > 1 { 0 } else { most }
}

/// A trial has so many times the lanes where loss or a window holds them up, else twice as many.
const TIMES_HELD_UP: u32 = 4;
/// When a source brings less than this part of what made it have its lanes …
const FALLEN: f64 = 0.33;
/// … for so many looks, it gets fewer.
const FALLEN_LOOKS: usize = 4;
/// Looks that are remembered.
const LOOKS: usize = 5;
/// New lanes must bring at least this part of what the same number of old ones brings …
const PAYS: f64 = 0.5;
/// … and this where loss or a window is known to hold the old ones up: their rate swings so much
/// that more could only be asked for after a longer look.
const PAYS_HELD_UP: f64 = 0.15;
/// A trial is worth its cost only if the transfer goes on for this many times its length, …
const TRIAL_PART: f64 = 4.0;
/// … at least this long where the senders seem to be held up (loss that their congestion control
/// shrugs off looks the same, and then a trial disturbs the lanes there are), …
const TRIAL_LEFT_S: f64 = 6.0;
/// … and this long once lanes have paid there.
const GROWING_LEFT_S: f64 = 2.0;
/// A source is left to come up to speed for this many round trips …
const YOUNG_ROUND_TRIPS: f64 = 15.0;
/// … and at least this long, before anything is tried with it.
const YOUNG_S: f64 = 0.8;
/// Senders that all pause for more than this part of the time are held up by a window or by loss.
const HELD_UP: f64 = 0.5;
/// So much under way on one lane is near the commonest limit of a sender's window, 4 MiB.
const WINDOW_BYTES: f64 = 2.5e6;
/// Without a sign of being held up, lanes are tried only this long after the last trial …
const PLAIN_PAUSE_S: f64 = 10.0;
/// … and only if the transfer goes on for this long: a trial disturbs the lanes there are.
const PLAIN_LEFT_S: f64 = 20.0;
/// Weight of the newest look in the part of time that senders pause.
const SMOOTH: f64 = 0.3;
/// Growth over two round trips that counts as still climbing.
const CLIMB: f64 = 1.08;
/// Pause after the first trial that did not pay; grows with each further one …
const PAUSE_FIRST_S: f64 = 1.0;
/// … up to this, …
const PAUSE_MAX_S: f64 = 60.0;
/// … or to this where it nearly did.
const PAUSE_UNCLEAR_S: f64 = 4.0;
/// From this round trip on a route counts as long.
const LONG_ROUTE_S: f64 = 0.035;
/// One lane for so much of it: senders commonly keep buffers of 4 MiB under way at most on one of
/// them, which hold 2 MB in packets of 1,500 bytes; that comes to 250 Mbit/s then.
const LONG_LANE_S: f64 = 0.065;
/// One that is alone has at least so many: together they come up to speed sooner, and have under way
/// what a route of 1 Gbit/s and 100 ms holds, and its queue too, but hardly more. Several sources
/// share the number.
const LONG_LANES_ALONE: u32 = 6;
/// On shorter routes one that is alone has one for so much.
const ALONE_LANE_S: f64 = 0.016;
/// Lanes that all begin at once would have twice under way what the route holds before the first
/// loss tells their senders, and a short queue drops thousands of packets then. So together they may
/// have what fills 1 Gbit/s, and a tenth of that in its queue …
const STARTERS_BYTES_PER_S: f64 = 133e6;
/// … up to what six lanes may have as a rule …
const STARTERS_BYTES_MAX: f64 = 6.0 * LANE_WINDOW_BYTES;
/// … which the commonest limit of a sender makes this in packets larger than 1,500 bytes.
const LANE_WINDOW_BYTES: f64 = 3.3e6;
/// With this part of it under way they are held up by it: a faster route has its use for more.
const FULL_WINDOWS: f64 = 0.93;
/// At least so many, and …
const LONG_LANES_MIN: u32 = 2;
/// … at most so many: further ones have to earn their place.
const LONG_LANES_MAX: u32 = 8;
/// Below this much left to fetch, a second lane on a long route would hardly be up in time.
const LONG_ROUTE_BYTES: u64 = 8 << 20;
