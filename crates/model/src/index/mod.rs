//! The index of a dataset: its entries laid end to end as one virtual file.
//!
//! The order of entries depends only on their names: depth first, within a folder by the bytes of
//! the name, a folder before its content. So the same tree has the same index everywhere, byte for
//! byte, and the digest of the index identifies the dataset. Only files have bytes; a sparse file
//! has only its parts that are not holes. Large files begin at a multiple of a page, so that they
//! can be written straight from a lane's buffer.
//!
//! An [`Index`] is kept in its encoded form (`wire`): a few dozen bytes per entry, decoded on each
//! access. It grows at its end during a walk or a stream, and can be used meanwhile.
//! `docs/protocol.md` describes the bytes for other implementations.

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
