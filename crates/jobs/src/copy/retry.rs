//! A receiver that went away is asked again, and goes on from what it has. All that was asked is
//! told as one copy.

use std::time::Duration;

use swath_source::{Class, LaneError};
use swath_transfer::observe::{Event, Observer};
use swath_transfer::sending::{Failed, Passes, Received};
use swath_transfer::{Stop, Why};
use tokio::time::{Instant, sleep};

use swath_model::units;

/// What is known of a copy over all that was asked.
pub struct Retries<'a> {
    observer: &'a mut dyn Observer,
    /// What its user calls where it goes.
    shown: &'a str,
    /// The longest silence; none if nothing is to be asked again.
    patience: Option<Duration>,
    /// When a receiver began, the first one …
    first_began: Option<Instant>,
    /// … and this one.
    began: Instant,
    /// When the last sign of life came.
    alive_at: Instant,
    /// When the way broke, until it goes on.
    broke_at: Option<Instant>,
    /// Questions without an answer since then.
    unanswered: u32,
    /// Receivers that began, one after the other, and brought nothing new.
    fruitless: u32,
    /// What had come before this copy, as the first receiver told it …
    resumed_bytes: Option<u64>,
    /// … and what is there now.
    done_bytes: u64,
    has_something: bool,
}

impl<'a> Retries<'a> {
    /// Nothing has been asked so far.
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
            resumed_bytes: None,
            done_bytes: 0,
            has_something: false,
        }
    }

    /// Whether a receiver began before.
    pub fn has_begun(&self) -> bool {
        self.first_began.is_some()
    }

    /// Whether what lies there unfinished is of this copy.
    pub fn is_ours(&self) -> bool {
        self.resumed_bytes.is_some()
    }

    /// Whether the way broke, and nothing went on since.
    pub fn is_waiting(&self) -> bool {
        self.broke_at.is_some()
    }

    /// Whether a receiver's last word is no more than that the way broke.
    pub fn is_break(&self, failed: &Failed) -> bool {
        match failed.passes {
            _ if self.patience.is_none() => false,
            Passes::No => false,
            // A receiver to whom nothing came at all will not hear more the next time.
            Passes::Silence => self.fruitless == 0,
            // The one before it has not ended yet.
            Passes::Held => self.is_waiting(),
        }
    }

    /// Whether there is anything for a later run to go on from.
    pub fn has_something(&self) -> bool {
        self.has_something
    }

    /// Until when an answer is waited for; as long as usual for the first one.
    pub fn until(&self) -> Option<Instant> {
        let patience = self.patience.filter(|_| self.has_begun())?;
        let least = if self.unanswered > 1 { LAST_ANSWER } else { FIRST_ANSWER.min(patience) };
        Some((self.alive_at + patience).max(Instant::now() + least))
    }

    /// A receiver has begun.
    pub fn begins(&mut self) {
        self.began = Instant::now();
        self.first_began.get_or_insert(self.began);
        self.fruitless += 1;
        self.unanswered = 0;
        self.hears();
    }

    /// It has said something.
    pub fn hears(&mut self) {
        self.alive_at = Instant::now();
    }

    /// Tell what it said, as of the one copy.
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
            Event::Started { .. } => self.first_began == Some(self.began),
            _ => true,
        };
        if is_first {
            later(&mut event, self.before_s());
            self.observer.observe(&event);
        }
    }

    /// All is there: what came before the last receiver is no earlier run's.
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
        // What the links could have done meanwhile nobody has measured.
        transfer.efficiency = None;
        if let Some(sender) = transfer.sources.first_mut() {
            sender.bytes += before;
        }
    }

    /// The way broke, or is still broken: wait until it may be asked again. `false` if that is of no
    /// use, or for too long.
    pub async fn waits(&mut self, why: &Break, stop: &Stop) -> bool {
        let Some(patience) = self.patience.filter(|_| self.has_begun()) else { return false };
        let mut left = patience.saturating_sub(self.alive_at.elapsed());
        // Whoever was asleep, or stopped, hears of a break when its time is over: one question is
        // asked all the same.
        if self.broke_at.is_none() {
            left = left.max(FIRST_ANSWER.min(patience));
        }
        if left.is_zero() || self.fruitless > FRUITLESS_MAX {
            return false;
        }
        if self.broke_at.is_none() {
            self.broke_at = Some(Instant::now());
            let wait = units::duration(left.as_secs_f64());
            self.warn(format!("{}: {}; it is asked again, for up to {wait}", self.shown, why.why));
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
            self.warn(format!("{}: it is there again after {after}, and goes on", self.shown));
        }
    }

    fn warn(&mut self, text: String) {
        let at_s = self.first_began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        self.observer.observe(&Event::note(at_s, text, true));
    }

    /// From the first receiver's beginning to this one's.
    fn before_s(&self) -> f64 {
        self.first_began.map_or(0.0, |first| self.began.duration_since(first).as_secs_f64())
    }
}

/// How the way to a receiver broke.
pub struct Break {
    /// Why.
    pub why: Why,
    /// It asks for so much time.
    pause: Duration,
}

impl Break {
    /// It broke for this reason.
    pub fn new(why: impl Into<Why>) -> Break {
        Break { why: why.into(), pause: Duration::ZERO }
    }

    /// What this error is, if a receiver that is started again would make it, or one on a way that is
    /// broken.
    pub fn of(error: &LaneError) -> Option<Break> {
        let pause = match (error.code(), error.class()) {
            (Some(429 | 503), Class::Busy(wait)) => wait,
            (Some(408 | 425 | 502 | 504) | None, Class::Transient) => Duration::ZERO,
            _ => return None,
        };
        Some(Break { why: error.clone().into(), pause })
    }
}

/// Move an event to a later time.
fn later(event: &mut Event, by_s: f64) {
    match event {
        Event::Source { at_s, .. }
        | Event::Note { at_s, .. }
        | Event::Metalink { at_s, .. }
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

/// Before the first question; a server that is restarted is there again as soon as that …
const PAUSE: Duration = Duration::from_millis(250);
/// … and the next pauses are longer, up to two seconds.
const DOUBLED_MAX: u32 = 3;
/// The first question after a break has so long for its answer at least …
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// … and the last one is answered within this time, or not at all.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// A receiver that ends again and again before anything new is there is not waited for.
const FRUITLESS_MAX: u32 = 10;
