//! The journal: what is durable and verified of one file so far.
//!
//! It lies beside the file and is only ever appended to: an opening (magic, version, nonce), then
//! frames of one [`Record`] each. Every frame carries a BLAKE3 tag over the tag before it, its
//! kind, its length and its payload, so a frame is accepted only if all bytes before it are the
//! ones that were written. What the records are about is a [`Sum`]: [`State`] for a file being
//! fetched, the depot has its own. Always holds: what is recovered is the effect of a prefix of the
//! records that were appended, whatever became of the bytes after it.
//!
//! The journal never leads the data: a record is appended only after the data that it vouches for
//! was synced. That order is kept by [`crate::Target::commit`], not here.

mod bytes;
mod file;
mod frame;
mod record;
mod state;
mod sum;

#[cfg(test)]
mod tests;

pub(crate) use bytes::{Bytes, put_range, put_u64};
pub(crate) use file::{AppendError, JournalEnd, JournalFile};
pub(crate) use frame::{Chain, Recovery, recover};
pub use record::{HashState, Record};
pub(crate) use state::State;
pub(crate) use sum::{Entry, Sum};
