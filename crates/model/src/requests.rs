//! How connections differ in when the next request may leave.

/// How a connection takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// The next one may leave when the answer before it has ended.
    OneByOne,
    /// The next one may leave while answers are still to come.
    Pipelined,
    /// The same, for blocks of a few KiB, as BitTorrent peers take them: no rate limit can lie on one
    /// answer alone.
    Blocks,
}

impl Requests {
    /// Returns [`Requests::Pipelined`] or [`Requests::OneByOne`].
    pub fn pipelined_if(pipelines: bool) -> Requests {
        if pipelines { Requests::Pipelined } else { Requests::OneByOne }
    }
}
