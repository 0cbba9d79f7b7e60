//! The content of a web server's folder: the links of a page (as nginx, Apache, Caddy, lighttpd,
//! Python and others list folders), the XML in which object stores list a bucket, or a WebDAV server's
//! answer to `PROPFIND`.
//!
//! Only entries below the folder count. Addresses are compared as RFC 3986, section 6.2.2 has it
//! ([`below()`]). Entries below the folder that cannot be copied are in [`Listing::refused`]. The
//! memory that a list needs is bounded, whatever it holds.

mod below;
mod bucket;
mod building;
mod multistatus;
mod page;
#[cfg(test)]
mod tests;
mod xml;

use swath_model::path::{PathError, SafePath};
use url::Url;

pub use below::{below, same_path, same_server};
pub use building::ENTRIES_MAX;
pub use multistatus::is_folder;

/// The content of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Files and folders, without duplicates, in the order of the page.
    pub entries: Vec<Entry>,
    /// Entries that cannot be taken: the name for display, and why.
    pub refused: Vec<(String, Refusal)>,
    /// The folder that the entries are in, if a page names another one than its own (`<base href>`).
    pub base: Option<Url>,
    /// Whether the list shows which entries are folders. If not, those marked as files may be folders.
    pub marks_folders: bool,
    /// The address of the next part of the list.
    pub next: Option<Url>,
    /// Whether there are more entries than the limit.
    pub is_cut: bool,
}

impl Listing {
    /// Returns whether the list shows nothing in the folder.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.refused.is_empty()
    }
}

/// Why an entry cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It would be in another folder.
    #[error("it contains an escaped '/'")]
    Slash,
    /// It is not text.
    #[error("its name is not text")]
    NotText,
    /// Its address has a query.
    #[error("its address has a query ('?'), so it has no name of its own")]
    Query,
    /// Another server has it.
    #[error("its address is on another server: copy that address itself")]
    Server,
    /// It is not in the folder that was asked for.
    #[error("the server lists it, but its address is not in the folder")]
    Elsewhere,
    /// Its address is not one.
    #[error("its address is invalid")]
    Address,
    /// It could do harm.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// A file or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path below the folder as written in an address, without `/` at its end.
    pub address: String,
    /// Its path below the folder.
    pub path: SafePath,
    /// Whether it has a listing of its own.
    pub is_folder: bool,
    /// Its size, if the list gives it to the byte.
    pub size_bytes: Option<u64>,
}
