//! The index of a dataset: its entries laid end to end as one virtual file.
//!
//! Entries stand in one order that depends on nothing but their names: depth first, within a
//! folder by the bytes of the name, a folder before what lies in it. So the same tree has the
//! same index wherever it lies, byte for byte, and the digest of the index names the dataset.
//! Only files have bytes; of a sparse file only what is not a hole. Large files begin at a
//! multiple of a page, so that they can be written straight from a lane's buffer.
//!
//! An [`Index`] is kept as it travels (`wire`): a few dozen bytes an entry, decoded again when
//! somebody looks. It grows at its end while a walk or a stream goes on, and what is there can be
//! used meanwhile. `docs/protocol.md` describes the bytes for other implementations.

mod cursor;
mod entry;
mod error;
mod growing;
mod lack;
mod top;
mod wire;
mod xattrs;

#[cfg(test)]
mod tests;

pub use cursor::{Cursor, Item, Part};
pub use entry::{Absence, Entry, Extent, Kind, Mtime};
pub use error::IndexError;
pub use growing::{Counts, Digests, Index, Reader};
pub use lack::Lack;
pub use top::{NoTop, Top};
pub use wire::{
    EXTENTS_MAX, FORMAT_VERSION, MAGIC, NAME_BYTES_MAX, PATH_BYTES_MAX, RECORD_BYTES_MAX,
};
pub use xattrs::{XATTR_PREFIX, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX, XattrSet, Xattrs};
