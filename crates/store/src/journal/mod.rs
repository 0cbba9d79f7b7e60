//! The journal: what is durable and verified of one file so far.
//!
//! It lies beside the file and is only ever appended to: an opening (magic, version, nonce), then
//! frames of one [`Record`] each. Every frame carries a BLAKE3 tag over the tag before it, its
//! kind, its length and its payload, so a frame is accepted only if all bytes before it are
//! unchanged. A [`Sum`] is the combined effect of the records: [`State`] for a file being fetched;
//! the depot has its own. Invariant: recovery yields the effect of a prefix of the appended
//! records, whatever happened to the bytes after it.
//!
//! The journal never leads the data: a record is appended only after its data was synced.
//! [`crate::Target::commit`] keeps that order.

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
