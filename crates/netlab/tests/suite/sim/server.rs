//! What a simulated source does with connections and requests, and how that changes with time.

use std::time::Duration;

use swath_model::Range;

use super::link::LinkSpec;

/// One source: its link and its manners.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    /// The path to it.
    pub link: LinkSpec,
    /// When the planner is told of it, in seconds.
    pub known_at_s: f64,
    /// Whether it honours ranges; otherwise every answer is the whole file.
    pub ranges: bool,
    /// Whether it says that it takes requests ahead of answers.
    pub pipelines: bool,
    /// It says so, but resets the connection when it meets a second request.
    pub breaks_pipelining: bool,
    /// Answers per connection, after which it closes.
    pub requests_max: Option<u32>,
    /// Connections at once; further ones are refused.
    pub connections_max: Option<u32>,
    /// Time from a request's arrival to the first byte of its answer, in seconds.
    pub think_s: f64,
    /// Mean number of connection resets per connection and second.
    pub resets_per_s: f64,
    /// What is done to new connections and requests at the start.
    pub mood: Mood,
}

/// How a server treats new connections and requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Everything works.
    Well,
    /// Connections are refused.
    Refuses,
    /// Connections and packets vanish.
    Unreachable,
    /// 503 with a wish for patience.
    Busy(Duration),
    /// 404.
    Missing,
    /// Connections are accepted and closed at once without an answer.
    Closes,
}

/// Something that changes at a source.
#[derive(Clone, Debug)]
pub enum Change {
    /// Its link has another rate, payload bytes per second.
    Rate(f64),
    /// Its link carries nothing, or again.
    Silent(bool),
    /// All its connections are reset.
    Reset,
    /// It treats new connections and requests differently.
    Mood(Mood),
    /// The client learns that these bytes of it are bad: it is not to be asked for them again,
    /// and what was delivered of them is thrown away.
    Corrupt(Range),
    /// The client finds out that it lies.
    Bad,
}
