//! Values shared by all parts of swath: ranges and range sets, identifiers, time, pool buffers, the
//! dataset index, digests and hash trees.
//!
//! This crate opens no file and no socket, starts no thread and reads no clock; time and randomness
//! arrive as arguments.

pub mod digest;
pub mod id;
pub mod index;
pub mod limiter;
pub mod observe;
pub mod path;
pub mod piece_map;
pub mod pieces;
pub mod pool;
pub mod range;
pub mod range_map;
pub mod range_set;
pub mod requests;
pub mod source_name;
pub mod time;
pub mod units;
pub mod validators;

pub use digest::Digest;
pub use id::{LaneId, SourceId, SwathId};
pub use limiter::{Limiter, Share};
pub use piece_map::PieceMap;
pub use pool::{Buffer, Pool};
pub use range::Range;
pub use range_map::RangeMap;
pub use range_set::{Cursor, RangeSet};
pub use requests::Requests;
pub use source_name::SourceName;
pub use time::Time;
pub use units::counted;
pub use validators::{Likeness, Validators};
