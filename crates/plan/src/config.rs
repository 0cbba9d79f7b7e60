//! What a user may set, and the defaults.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{policy, tuner};

/// Settings of a planner. All sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides the size of each swath.
    pub policy: PolicyKind,
    /// Decides which range is requested next.
    pub picker: PickerKind,
    /// Lanes per source.
    pub lanes: Lanes,
    /// Lanes that a source which is alone begins with, if that is known from earlier transfers.
    pub first_lanes: Option<u32>,
    /// Most sources used at once; the others are spares for those that fail.
    pub max_sources: usize,
    /// Swaths begin and end at multiples of this, except at the end of the file, and if a slow
    /// lane's work is cut finer.
    pub grid_bytes: u64,
    /// Sources deliver whole units of this size, counted from the file's beginning (the last one
    /// may be shorter), so nothing is cut finer. `grid_bytes` must be a multiple of it.
    pub unit_bytes: u64,
    /// Most bytes that may be fetched twice to shorten the end: this part of the size …
    pub waste_fraction: f64,
    /// … and never more than this.
    pub waste_limit_bytes: u64,
    /// For an ordered consumer: most bytes requested ahead of what it has taken.
    pub window_bytes: Option<u64>,
    /// Whether every source is contacted at once. Otherwise the next one is contacted only if the
    /// file turns out to be large or the first one does not answer (for lists of many small files).
    pub eager: bool,
    /// First request for `mdtp` (the paper's `C`), and the first request of every policy while the
    /// size is unknown.
    pub initial_chunk_bytes: u64,
    /// The paper's `L`: the chunk of the fastest source of a round.
    pub large_chunk_bytes: u64,
    /// Chunk of the `fixed` policy.
    pub chunk_bytes: u64,
    /// A source is given up after failing repeatedly for this many seconds.
    pub give_up_s: f64,
    /// Seed of the back-off's jitter and of random pickers.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            policy: PolicyKind::Swath,
            picker: PickerKind::Sequential,
            lanes: Lanes::Auto { max: 16 },
            first_lanes: None,
            max_sources: 64,
            grid_bytes: 64 << 10,
            unit_bytes: 1,
            waste_fraction: 0.02,
            waste_limit_bytes: 64 << 20,
            window_bytes: None,
            eager: true,
            initial_chunk_bytes: 4_000_000,
            large_chunk_bytes: 40_000_000,
            chunk_bytes: 16_000_000,
            give_up_s: 60.0,
            seed: 0,
        }
    }
}

/// How many lanes a source gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// One at first, two to eight on a long route, and more if they measurably pay, up to `max`.
    Auto {
        /// The limit.
        max: u32,
    },
    /// Always this many.
    Fixed(u32),
}

/// The policies, by the names that users type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// swath's own.
    Swath,
    /// Algorithm 1 of MDTP (arXiv 2505.09597), as published.
    Mdtp,
    /// Equal chunks with the end game of Rodriguez and Biersack (2002).
    Fixed,
    /// One source, one stream; the next source only when that one fails.
    Single,
}

/// The order in which ranges are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickerKind {
    /// From front to back.
    Sequential,
    /// What the fewest sources have, a random one among equals. For swarms, whose members need
    /// something to give each other, and may leave with what nobody else has.
    RarestFirst,
    /// In random order.
    Random,
}

/// A policy name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy '{0}' (known: swath, mdtp, fixed, single)")]
pub struct UnknownPolicy(pub String);

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        match name {
            "swath" => Ok(Self::Swath),
            "mdtp" => Ok(Self::Mdtp),
            "fixed" => Ok(Self::Fixed),
            "single" => Ok(Self::Single),
            other => Err(UnknownPolicy(other.to_owned())),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Swath => "swath",
            Self::Mdtp => "mdtp",
            Self::Fixed => "fixed",
            Self::Single => "single",
        })
    }
}

impl Config {
    /// Returns how many lanes a source of a large file gets at first, with this round trip and
    /// `sources` sources in all. A caller may connect them before it can plan.
    pub fn lanes_at_first(&self, rtt: Duration, sources: u32) -> u32 {
        match self.lanes {
            Lanes::Auto { max } if policy::of(self).capabilities().tunes_lanes => {
                let known = self.first_lanes.filter(|_| sources == 1);
                known.unwrap_or_else(|| tuner::lanes_at_first(rtt.as_secs_f64(), sources)).min(max)
            }
            Lanes::Auto { .. } => 1,
            Lanes::Fixed(lanes) => lanes,
        }
    }

    /// Returns how many bytes of a file of `size_bytes` may be fetched twice. A small file may be
    /// fetched twice as a whole: a part of it would not be worth a request.
    pub fn waste_budget_bytes(&self, size_bytes: u64) -> u64 {
        let part_bytes = (size_bytes as f64 * self.waste_fraction) as u64;
        part_bytes.max(size_bytes.min(WASTE_FLOOR_BYTES)).min(self.waste_limit_bytes)
    }
}

/// Bytes that may always be fetched twice.
const WASTE_FLOOR_BYTES: u64 = 1 << 20;
