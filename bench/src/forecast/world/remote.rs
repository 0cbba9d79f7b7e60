//! A replica at a site. Its link and its disk decide when bytes come. Their values do not matter, so
//! nothing is written into buffers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use swath_source::{Facts, LaneError, ReadAt};
use tokio::time::{Instant, sleep, sleep_until};

use super::link::{Link, Reading};

/// A dataset at a site, for one transfer.
#[derive(Debug)]
pub(super) struct Remote {
    link: Arc<Link>,
    bytes: u64,
    /// Seconds that a byte needs for its part of opening a file; no other byte of the lane comes
    /// meanwhile.
    disk_byte_s: f64,
    rtt: Duration,
    asked_at: Instant,
    /// Its start-up.
    start: Duration,
    /// What a lane could have read and did not, and until when. The lane, or another one, reads on
    /// at the same moment.
    left_over: Mutex<(f64, Instant)>,
}

/// What a replica is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    pub bytes: u64,
    pub files: u64,
    /// What its disk needs to open a file.
    pub file_s: f64,
    pub rtt_s: f64,
    /// What it needs until it is ready: authentication, a catalogue, waking a disk.
    pub start_s: f64,
}

impl Remote {
    /// Returns a replica behind `link` that is asked for now.
    pub fn new(link: &Arc<Link>, traits: Traits) -> Remote {
        let now = Instant::now();
        Remote {
            link: Arc::clone(link),
            bytes: traits.bytes,
            disk_byte_s: traits.file_s * traits.files as f64 / traits.bytes as f64,
            rtt: Duration::from_secs_f64(traits.rtt_s),
            asked_at: now,
            start: Duration::from_secs_f64(traits.start_s),
            left_over: Mutex::new((0.0, now)),
        }
    }

    /// Returns what the window lets through.
    fn window_bytes_per_s(&self) -> f64 {
        WINDOW_BYTES / self.rtt.as_secs_f64()
    }

    /// Returns when a lane looks next what has come: all of them at the same moments, which saves turns
    /// of the executor.
    fn next_turn(&self) -> Instant {
        let now = Instant::now();
        let turns = (now - self.asked_at).as_millis() / TURN.as_millis() + 1;
        self.asked_at + TURN * turns as u32
    }

    /// Returns how many bytes come in the time in which the link would bring so many.
    fn bytes_for(&self, link_bytes: f64, link_bytes_per_s: f64) -> f64 {
        link_bytes / (1.0 + self.disk_byte_s * link_bytes_per_s)
    }
}

impl ReadAt for Remote {
    async fn connect(&self) -> Result<Duration, LaneError> {
        sleep_until(self.asked_at + self.start).await;
        sleep(self.rtt * ROUND_TRIPS).await;
        Ok(self.rtt)
    }

    async fn facts(&self) -> Result<Facts, LaneError> {
        let (size_bytes, etag) = (Some(self.bytes), Some("\"1\"".to_owned()));
        Ok(Facts { size_bytes, etag, ranges: true, ..Facts::default() })
    }

    fn part_bytes(&self) -> u64 {
        u64::MAX
    }

    async fn read_at(&self, offset: u64, space: &mut [u8]) -> Result<usize, LaneError> {
        let most = (self.bytes - offset).min(space.len() as u64) as f64;
        let mut turn = Turn { remote: self, reading: self.link.read(), began: Instant::now() };
        let mut came = turn.take(most);
        while came < 1.0 {
            let rate = turn.reading.rate_bytes_per_s();
            let rate = self.bytes_for(rate, rate).min(self.window_bytes_per_s());
            let filled_at = Instant::now() + Duration::from_secs_f64(most / rate);
            sleep_until(filled_at.min(self.next_turn())).await;
            came = turn.take(most);
        }
        Ok(came as usize)
    }
}

/// Returns how long it takes until the first byte of a replica can come.
pub(super) fn ready_s(start_s: f64, rtt_s: f64) -> f64 {
    start_s + f64::from(ROUND_TRIPS) * rtt_s
}

/// A lane's reading. What it could have read belongs to the replica's next read if it is dropped.
struct Turn<'a> {
    remote: &'a Remote,
    reading: Reading<'a>,
    began: Instant,
}

impl Turn<'_> {
    /// Returns how many bytes have come, at most `most`, and leaves the rest for the next read.
    fn take(&mut self, most: f64) -> f64 {
        let now = Instant::now();
        let passed_s = (now - self.began).as_secs_f64();
        let mut came = 0.0;
        if passed_s > 0.0 {
            let earned = self.reading.earned_bytes();
            came = self.remote.bytes_for(earned, earned / passed_s);
            came = came.min(self.remote.window_bytes_per_s() * passed_s);
            (self.reading, self.began) = (self.remote.link.read(), now);
        }
        let mut left_over = self.remote.left_over.lock().unwrap_or_else(PoisonError::into_inner);
        if left_over.1 == now {
            came += left_over.0;
        }
        let taken = came.min(most).floor();
        *left_over = (came - taken, now);
        taken
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.take(0.0);
    }
}

/// Round trips of a new connection: TCP, TLS and the first request.
const ROUND_TRIPS: u32 = 3;
/// What one connection has under way at most.
const WINDOW_BYTES: f64 = 16e6;
/// How long a lane waits until it looks what has come: a turn of the planner. With two of them, what
/// the planner takes for the rate would be too low by a twentieth.
const TURN: Duration = Duration::from_millis(20);
