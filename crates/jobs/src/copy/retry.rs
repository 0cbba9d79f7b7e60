//! Reconnects to a receiver that went away, which resumes. All attempts are reported as one copy.

use std::time::Duration;

use swath_source::{Class, LaneError};
use swath_transfer::observe::{Event, Observer};
use swath_transfer::sending::{Failed, Passes, Received};
use swath_transfer::{Stop, Why};
use tokio::time::{Instant, sleep};

use swath_model::units;

/// The state of a copy over all attempts.
pub struct Retries<'a> {
    observer: &'a mut dyn Observer,
    /// The destination for the user.
    shown: &'a str,
    /// The longest silence; `None` if there are no retries.
    patience: Option<Duration>,
    /// The start of the first attempt …
    first_began: Option<Instant>,
    /// … and of this one.
    began: Instant,
    /// The last sign of life.
    alive_at: Instant,
    /// When the connection broke, until it is restored.
    broke_at: Option<Instant>,
    /// Failed attempts since then.
    unanswered: u32,
    /// Consecutive attempts without progress.
    fruitless: u32,
    /// A receiver has told of its start: ever, and on this connection.
    has_started: [bool; 2],
    /// Bytes from before this copy, as the first receiver reported them …
    resumed_bytes: Option<u64>,
    /// … and bytes now.
    done_bytes: u64,
    has_something: bool,
}

impl<'a> Retries<'a> {
    /// Returns the state before the first attempt.
    pub fn new(
        observer: &'a mut dyn Observer,
        shown: &'a str,
        patience: Option<Duration>,
    ) -> Retries<'a> {
        let now = Instant::now();
        Retries {
            observer,
            shown,
            patience,
            first_began: None,
            began: now,
            alive_at: now,
            broke_at: None,
            unanswered: 0,
            fruitless: 0,
            has_started: [false; 2],
            resumed_bytes: None,
            done_bytes: 0,
            has_something: false,
        }
    }

    /// Whether a receiver has begun.
    pub fn has_begun(&self) -> bool {
        self.first_began.is_some()
    }

    /// Whether the partial data belongs to this copy.
    pub fn is_ours(&self) -> bool {
        self.resumed_bytes.is_some()
    }

    /// Whether the connection is broken.
    pub fn is_waiting(&self) -> bool {
        self.broke_at.is_some()
    }

    /// Whether a receiver's error only means that the connection broke.
    pub fn is_break(&self, failed: &Failed) -> bool {
        match failed.passes {
            _ if self.patience.is_none() => false,
            Passes::No => false,
            // A receiver that received nothing will not do better next time.
            Passes::Silence => self.fruitless == 0,
            // The previous receiver has not ended yet.
            Passes::Held => self.is_waiting(),
        }
    }

    /// Whether a later run can resume.
    pub fn has_something(&self) -> bool {
        self.has_something
    }

    /// Returns the time limit of an answer; `None` for the first attempt.
    pub fn until(&self) -> Option<Instant> {
        let patience = self.patience.filter(|_| self.has_begun())?;
        let least = if self.unanswered > 1 { LAST_ANSWER } else { FIRST_ANSWER.min(patience) };
        Some((self.alive_at + patience).max(Instant::now() + least))
    }

    /// Records that a receiver has begun.
    pub fn begins(&mut self) {
        self.began = Instant::now();
        self.first_began.get_or_insert(self.began);
        self.fruitless += 1;
        self.unanswered = 0;
        self.has_started[1] = false;
        self.hears();
    }

    /// Records a sign of life.
    pub fn hears(&mut self) {
        self.alive_at = Instant::now();
    }

    /// Passes on an event as one of the whole copy.
    pub fn tell(&mut self, mut event: Event) {
        self.has_something |= match &event {
            Event::Opened { resumed_bytes, kept_bytes, .. } => *resumed_bytes + *kept_bytes > 0,
            Event::Progress(now) => now.done_bytes > 0,
            Event::Swath(swath) => swath.end > swath.start,
            _ => false,
        };
        if let Event::Progress(now) = &mut event {
            if now.done_bytes > self.done_bytes {
                (self.done_bytes, self.fruitless) = (now.done_bytes, 0);
            }
            let before = self.resumed_bytes.unwrap_or(now.resumed_bytes);
            now.resumed_bytes = now.resumed_bytes.min(before);
        }
        let is_first = match &event {
            Event::Opened { resumed_bytes, .. } => {
                self.goes_on();
                let is_first = self.resumed_bytes.is_none();
                self.resumed_bytes.get_or_insert(*resumed_bytes);
                is_first
            }
            Event::Started { .. } => {
                let [ever, here] = std::mem::replace(&mut self.has_started, [true; 2]);
                if here {
                    // It has begun again by itself.
                    self.began = Instant::now();
                }
                !ever
            }
            _ => true,
        };
        if is_first {
            later(&mut event, self.before_s());
            self.observer.observe(&event);
        }
    }

    /// Adjusts the final result: data of earlier attempts does not count as that of an earlier run.
    pub fn sum(&self, received: &mut Received) {
        let (transfer, before_s) = (&mut received.transfer, self.before_s());
        if before_s == 0.0 {
            return;
        }
        let left = self.resumed_bytes.unwrap_or(transfer.resumed_bytes);
        let before = transfer.resumed_bytes.saturating_sub(left);
        transfer.resumed_bytes -= before;
        transfer.fetched_bytes += before;
        transfer.elapsed_s += before_s;
        transfer.rate_bytes_per_s = transfer.fetched_bytes as f64 / transfer.elapsed_s.max(1e-6);
        // The capacity during the breaks is unknown.
        transfer.efficiency = None;
        if let Some(sender) = transfer.sources.first_mut() {
            sender.bytes += before;
        }
    }

    /// Waits for the next attempt after a break; `false` if retrying is useless or took too long.
    pub async fn waits(&mut self, why: &Interruption, stop: &Stop) -> bool {
        let Some(patience) = self.patience.filter(|_| self.has_begun()) else { return false };
        let mut left = patience.saturating_sub(self.alive_at.elapsed());
        // After a suspend the time may be over when the break is noticed: allow one attempt.
        if self.broke_at.is_none() {
            left = left.max(FIRST_ANSWER.min(patience));
        }
        if left.is_zero() || self.fruitless > FRUITLESS_MAX {
            return false;
        }
        if self.broke_at.is_none() {
            self.broke_at = Some(Instant::now());
            let wait = units::duration(left.as_secs_f64());
            self.warn(format!("{}: {}; retrying for up to {wait}", self.shown, why.why));
        }
        let pause = PAUSE * (1 << self.unanswered.min(DOUBLED_MAX));
        self.unanswered += 1;
        tokio::select! {
            () = sleep(pause.max(why.pause).min(left)) => {}
            () = stop.wait() => {}
        }
        true
    }

    fn goes_on(&mut self) {
        if let Some(broke_at) = self.broke_at.take() {
            let after = units::duration(broke_at.elapsed().as_secs_f64());
            self.warn(format!("{}: reconnected after {after}", self.shown));
        }
    }

    fn warn(&mut self, text: String) {
        let at_s = self.first_began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        self.observer.observe(&Event::note(at_s, text, true));
    }

    /// Returns the seconds between the start of the first attempt and this one.
    fn before_s(&self) -> f64 {
        self.first_began.map_or(0.0, |first| self.began.duration_since(first).as_secs_f64())
    }
}

/// A broken connection to a receiver.
pub struct Interruption {
    /// The error.
    pub why: Why,
    /// The pause that the server asks for.
    pause: Duration,
}

impl Interruption {
    /// Returns a break without a pause.
    pub fn new(why: impl Into<Why>) -> Interruption {
        Interruption { why: why.into(), pause: Duration::ZERO }
    }

    /// Returns the break that an error means, if it comes from a restarted receiver or a broken
    /// connection.
    pub fn of(error: &LaneError) -> Option<Interruption> {
        let pause = match (error.code(), error.class()) {
            (Some(429 | 503), Class::Busy(wait)) => wait,
            (Some(408 | 425 | 502 | 504) | None, Class::Transient) => Duration::ZERO,
            _ => return None,
        };
        Some(Interruption { why: error.clone().into(), pause })
    }
}

/// Moves an event to a later time.
fn later(event: &mut Event, by_s: f64) {
    match event {
        Event::Source { at_s, .. }
        | Event::Note { at_s, .. }
        | Event::Metalink { at_s, .. }
        | Event::Forecast { at_s, .. }
        | Event::Routes { at_s, .. }
        | Event::Present { at_s, .. }
        | Event::Unverified { at_s, .. }
        | Event::Failed { at_s, .. } => *at_s += by_s,
        Event::Progress(now) => now.at_s += by_s,
        Event::Swath(swath) => {
            swath.asked_at_s += by_s;
            swath.ended_at_s += by_s;
            swath.first_byte_at_s = swath.first_byte_at_s.map(|at_s| at_s + by_s);
        }
        Event::Started { .. }
        | Event::Staging { .. }
        | Event::Opened { .. }
        | Event::Finished(_) => {}
    }
}

/// Pause before the first retry, enough for a restarted server.
const PAUSE: Duration = Duration::from_millis(250);
/// Further pauses double, up to two seconds.
const DOUBLED_MAX: u32 = 3;
/// Minimum time limit of the first retry.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// Minimum time limit of the last retry.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// Most consecutive attempts without progress.
const FRUITLESS_MAX: u32 = 10;
