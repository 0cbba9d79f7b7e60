//! What lanes report.

use std::net::SocketAddr;
use std::time::Duration;

use swath_formats::Hop;
use swath_model::{Buffer, LaneId, Requests, SwathId};

use crate::error::LaneError;
use crate::facts::Facts;
use crate::sealed::GroupHash;

/// Something that happened on a lane. The events of one lane arrive in their order.
#[derive(Debug)]
pub struct LaneEvent {
    /// The lane, as numbered by whoever opened it.
    pub lane: LaneId,
    /// What happened.
    pub kind: LaneEventKind,
}

/// What happened on a lane.
#[derive(Debug)]
pub enum LaneEventKind {
    /// The connection stands; comes again when a redirect leads the lane to another server.
    Up {
        /// Round-trip time as the connection's set-up showed it.
        rtt: Duration,
        /// How it takes requests, as far as is known.
        requests: Requests,
        /// `HTTP/1.1`, …
        protocol: &'static str,
        /// Whether the connection was opened for an earlier lane.
        reused: bool,
        /// The other end (the proxy, if there is one), if it is on a network.
        peer: Option<SocketAddr>,
    },
    /// What the source says about the file: before the first chunk of the first answer, and
    /// again when it changes. Where a Metalink comes in place of the file, because one was asked
    /// for too, its facts come first (its media type tells) and the file's own follow.
    Facts(Box<Facts>),
    /// What the relays that an answer came through tell of their hops, the one nearest to the origin
    /// first.
    Hops(Vec<Hop>),
    /// Data of a swath: a full buffer, or what there is at the end of the swath.
    Chunk {
        /// The swath it was asked for.
        swath: SwathId,
        /// Offset in the file of the buffer's first byte; in the plain one, if it is sealed.
        offset: u64,
        /// The data; of a sealed file, whole groups.
        buffer: Buffer,
        /// The group hashes of these groups; none of another file.
        group_hashes: Vec<GroupHash>,
    },
    /// The swath is complete (up to a trimmed end, or the end of the file if that comes first).
    Done {
        /// The swath.
        swath: SwathId,
    },
    /// The answer to this swath is bad; the lane goes on with the others.
    Failed {
        /// The swath. What was delivered of it before is good.
        swath: SwathId,
        /// Why.
        error: LaneError,
    },
    /// The lane has ended; its last event. Data received so far was delivered before.
    Closed {
        /// Why, `None` if the server or the owner closed an orderly connection.
        error: Option<LaneError>,
        /// Swaths that were asked for and are neither done nor failed. An order that crossed
        /// this event is not in the list.
        unfinished: Vec<SwathId>,
    },
}
