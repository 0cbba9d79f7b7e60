//! Reads a range for one client: sends what is cached, waits for what others fetch, and claims what
//! nobody fetches, one window ahead.

use std::io;
use std::sync::Arc;

use swath_model::Range;
use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_store::cache::{Entry, Fetch, Part, Step};

use super::addresses::Address;
use super::fetcher::{Job, Jobs};
use super::version::{Interest, Version};

/// Somebody who reads a range.
pub(super) struct Reader {
    pub version: Arc<Version>,
    pub via: Arc<str>,
    address: Arc<Address>,
    entry: Entry,
    at: u64,
    end: u64,
    /// Up to here it is known who fetches what.
    claimed: u64,
    /// What is not here cannot be kept.
    is_full: bool,
    jobs: Jobs,
    interest: Interest,
    tries: u32,
    how: CacheStatus,
}

/// How bytes came to a client, as `Server-Timing` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CacheStatus {
    /// They were here.
    Hit,
    /// Others were fetching them.
    Follow,
    /// They were fetched for it.
    Miss,
}

impl CacheStatus {
    pub fn name(self) -> &'static str {
        match self {
            CacheStatus::Hit => "hit",
            CacheStatus::Follow => "follow",
            CacheStatus::Miss => "miss",
        }
    }
}

/// What comes next.
pub(super) enum Read {
    /// These bytes.
    Part(Part),
    /// The rest of it does not come by way of the cache.
    Rest(Range),
    /// The rest of it does not come: the file is another one now.
    Cut,
    /// Nothing.
    End,
}

/// What a reader reads, and who fetches what is missing.
pub(super) struct ReaderOptions {
    pub address: Arc<Address>,
    pub version: Arc<Version>,
    pub via: Arc<str>,
    pub jobs: Jobs,
}

impl Reader {
    pub fn new(options: ReaderOptions, entry: Entry, range: Range) -> Reader {
        let ReaderOptions { address, version, via, jobs } = options;
        let interest = Interest::new(&version, aligned(range, version.size_bytes));
        Reader {
            version,
            via,
            address,
            entry,
            at: range.start,
            end: range.end,
            claimed: 0,
            is_full: false,
            jobs,
            interest,
            tries: 0,
            how: CacheStatus::Hit,
        }
    }

    /// Returns how what was claimed so far comes.
    pub fn how(&self) -> CacheStatus {
        self.how
    }

    /// What comes next, as soon as it is here. Whoever stops waiting loses nothing.
    pub async fn next(&mut self) -> io::Result<Read> {
        loop {
            if self.at >= self.end {
                return Ok(Read::End);
            }
            self.claim().await?;
            let rest = Range::new(self.at, self.end);
            let unit = Range::new(self.at, self.end.min(self.at + UNIT_BYTES));
            let entry = self.entry.clone();
            let step = tokio::task::spawn_blocking(move || entry.next(unit));
            match step.await.map_err(io::Error::other)?? {
                Step::Held(part) => {
                    self.at = part.range.end;
                    self.tries = 0;
                    let rest = Range::new(self.at, self.end.max(self.at));
                    self.interest.only(aligned(rest, self.version.size_bytes));
                    return Ok(Read::Part(part));
                }
                _ if self.version.is_over() => return Ok(Read::Cut),
                Step::Pass(_) => return Ok(Read::Rest(rest)),
                // It was asked for often enough.
                _ if self.tries >= TRIES_MAX => return Ok(Read::Rest(rest)),
                Step::Wait(wait) => {
                    wait.changed().await;
                    self.tries += 1;
                }
                Step::Fetch(fetch) => {
                    self.tries += 1;
                    // Whoever was to fetch it did not: it is claimed anew, with what goes with it.
                    (self.claimed, self.is_full) = (0, false);
                    let given_back = tokio::task::spawn_blocking(move || drop(fetch));
                    given_back.await.map_err(io::Error::other)?;
                }
            }
        }
    }

    /// Has what lies in the window fetched, if nobody does.
    async fn claim(&mut self) -> io::Result<()> {
        let whole = aligned(Range::new(self.at, self.end), self.version.size_bytes);
        let from = self.claimed.max(whole.start);
        let to = whole.end.min(whole.start + WINDOW_BYTES);
        let is_soon = from < to && (to == whole.end || to - from >= WINDOW_BYTES / 2);
        if self.is_full || !is_soon || self.version.is_over() {
            return Ok(());
        }
        let entry = self.entry.clone();
        let looked = tokio::task::spawn_blocking(move || look(&entry, Range::new(from, to)));
        let looked = looked.await.map_err(io::Error::other)??;
        self.how = self.how.max(looked.how);
        (self.claimed, self.is_full) = (looked.end, looked.is_full);
        for fetch in looked.fetches {
            let job = Job {
                address: Arc::clone(&self.address),
                version: Arc::clone(&self.version),
                fetch,
                via: Arc::clone(&self.via),
            };
            self.jobs.put(job).await;
        }
        Ok(())
    }
}

struct Looked {
    fetches: Vec<Fetch>,
    end: u64,
    is_full: bool,
    how: CacheStatus,
}

/// Who fetches what of `range`; claims what nobody does.
fn look(entry: &Entry, range: Range) -> io::Result<Looked> {
    let mut looked =
        Looked { fetches: Vec::new(), end: range.start, is_full: false, how: CacheStatus::Hit };
    while looked.end < range.end && !looked.is_full {
        let unit = Range::new(looked.end, range.end.min(looked.end + UNIT_BYTES));
        let how = match entry.next(unit)? {
            Step::Held(part) => {
                looked.end = part.range.end;
                CacheStatus::Hit
            }
            Step::Wait(wait) => {
                looked.end = wait.range().end;
                CacheStatus::Follow
            }
            Step::Fetch(fetch) => {
                looked.end = fetch.range().end;
                looked.fetches.push(fetch);
                CacheStatus::Miss
            }
            Step::Pass(_) => {
                looked.is_full = true;
                CacheStatus::Miss
            }
        };
        looked.how = looked.how.max(how);
    }
    Ok(looked)
}

/// The groups that `range` lies in: only whole ones have group hashes, and outlive the relay.
fn aligned(range: Range, size_bytes: u64) -> Range {
    if range.is_empty() {
        return range;
    }
    let start = range.start - range.start % GROUP_BYTES;
    Range::new(start, range.end.next_multiple_of(GROUP_BYTES).min(size_bytes))
}

/// Asked for in one request; others who want what lies behind it wait for no more than this.
const UNIT_BYTES: u64 = 4 << 20;
/// So much is claimed ahead of a client: enough for a gigabit over 130 ms, and little to wait for
/// where others want the end of it first.
const WINDOW_BYTES: u64 = 16 << 20;
/// Bytes that did not come so often are asked for without the cache.
const TRIES_MAX: u32 = 4;
