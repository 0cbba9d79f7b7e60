//! Feeds that announce versions of datasets: RSS 2.0 with enclosures (BEP 36) and Atom (RFC 4287),
//! written and read.
//!
//! The versions of one dataset share a category, which is its name. swath's own feeds add elements of
//! their own namespace, which others skip; feeds of others are read as far as they name torrents or
//! Metalinks. Addresses may be relative: they count from the feed's own address.

mod read;
mod write;

pub use read::{FeedError, is_media_type, read};
pub use write::{atom, rss};

/// A feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feed {
    /// Its title.
    pub title: String,
    /// The address of the page or folder that it is about; empty if unknown.
    pub link: String,
    /// What is announced, in the order of the feed: the newest first.
    pub entries: Vec<Entry>,
}

/// The announcement of one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// What identifies it.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The name of the dataset; empty if the feed has none.
    pub dataset: String,
    /// The version, if the feed is swath's.
    pub version: Option<String>,
    /// When it was published, in seconds since 1970.
    pub published: Option<u64>,
    /// Its files: torrent, Metalink, index.
    pub files: Vec<Enclosure>,
}

/// A file of an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enclosure {
    /// Its address, perhaps relative to the feed's.
    pub href: String,
    /// Its media type, in lower case; empty if unknown.
    pub media_type: String,
    /// Its length in bytes, if known.
    pub bytes: Option<u64>,
}

/// The media type of torrents.
pub const TORRENT_MEDIA_TYPE: &str = "application/x-bittorrent";
/// The media type of the index of a publication.
pub const INDEX_MEDIA_TYPE: &str = "text/x-swath-index";
/// The media type of signatures.
pub const SIGNATURE_MEDIA_TYPE: &str = "text/x-minisign";
/// The media type of RSS.
pub const RSS_MEDIA_TYPE: &str = "application/rss+xml";
/// The media type of Atom.
pub const ATOM_MEDIA_TYPE: &str = "application/atom+xml";
/// The namespace of swath's additions, which others skip.
pub const NAMESPACE_OWN: &str = "urn:x-swath:feed";
const NAMESPACE_ATOM: &str = "http://www.w3.org/2005/Atom";
