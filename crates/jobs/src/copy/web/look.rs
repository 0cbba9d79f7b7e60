//! Reads what a folder holds: from its page, from a WebDAV server's answer, or from an object store's list.
//!
//! What a list may need of the memory is bounded. Large pages are read one at a time.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use swath_formats::listing::{Listing, same_path};
use swath_formats::percent;
use swath_source::{Depth, Document, LaneError, Net, Trust, fetch_small, properties};
use swath_transfer::Why;
use tokio::sync::{Mutex, OwnedMutexGuard};
use url::Url;

use crate::error::EntryError;

/// How a folder is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListingKind {
    /// One page for each folder.
    Pages,
    /// One answer to `PROPFIND` for each folder.
    Dav,
    /// An object store's listing of all keys with a prefix, in several parts.
    Bucket { prefix: String },
}

/// Where a folder is: an address that ends in `/`, without query.
#[derive(Clone, Debug)]
pub struct Place {
    pub url: Url,
    /// Who named it.
    pub trust: Trust,
}

impl Place {
    /// Returns the place that the user named.
    pub fn named(url: &Url) -> Place {
        Place { url: url.clone(), trust: Trust::Named }
    }

    /// Returns the place of an address below it, as written in a listing.
    pub fn at(&self, address: &str) -> Place {
        Place { url: below(&self.url, address), trust: self.trust }
    }

    /// Returns where an answer to this place came from. By the same path, in other letters or from another
    /// server, this place is asked for the entries too: a redirect leads there again.
    fn led_to(&self, found: &Url) -> Place {
        if same_path(found.path(), self.url.path()) {
            return self.clone();
        }
        let is_same = found.origin() == self.url.origin();
        let trust = if is_same { self.trust } else { Trust::Discovered };
        Place { url: found.clone(), trust }
    }
}

/// Returns the address of an entry of a folder, as written in its listing.
pub fn below(folder: &Url, address: &str) -> Url {
    let mut url = folder.clone();
    url.set_path(&format!("{}{address}", folder.path()));
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// What a folder holds.
pub struct Found {
    pub kind: ListingKind,
    /// Where its entries are.
    pub place: Place,
    pub listing: Listing,
    /// While a large listing is in the memory, no other one is read.
    pub alone: Option<OwnedMutexGuard<()>>,
}

/// Reads folders.
#[derive(Clone)]
pub struct Lister {
    pub net: Net,
    alone: Arc<Mutex<()>>,
}

/// A document, and the right to keep it if it is large.
type Kept = (Document, Option<OwnedMutexGuard<()>>);

impl Lister {
    pub fn new(net: Net) -> Lister {
        Lister { net, alone: Arc::default() }
    }

    /// Reads the first folder; finds out how it is listed. The error says why it cannot be.
    pub async fn first(&self, folder: &Url, is_dav: bool) -> Result<Found, Why> {
        let place = Place::named(folder);
        if is_dav && let Ok(Some(found)) = self.dav(&place).await {
            return Ok(found);
        }
        let mut unusable = None;
        let failed: Why = match self.fetch(&place).await {
            Ok((document, alone)) => {
                if let Some(listing) = Listing::of_bucket(&document.bytes, folder, "") {
                    let kind = ListingKind::Bucket { prefix: String::new() };
                    return Ok(Found { kind, place, listing, alone });
                }
                match page(&document, &place, alone) {
                    Some(found) if !found.listing.entries.is_empty() => return Ok(found),
                    found => unusable = found.filter(|found| !found.listing.is_empty()),
                }
                "its page has no links to entries below it".into()
            }
            // A server without pages may list by other means, whatever it says of pages.
            Err(error) if error.code().is_some() => error.into(),
            Err(error) => return Err(error.into()),
        };
        for (asked, prefix) in buckets(folder) {
            if let Ok((document, alone)) = self.fetch(&Place::named(&asked)).await
                && let Some(listing) = Listing::of_bucket(&document.bytes, &asked, &prefix)
                && !listing.entries.is_empty()
            {
                let kind = ListingKind::Bucket { prefix };
                return Ok(Found { kind, place, listing, alone });
            }
        }
        match self.dav(&place).await {
            Ok(Some(found)) => Ok(found),
            _ => unusable.ok_or(failed),
        }
    }

    /// Reads a further folder, first as the one above it was read.
    pub async fn next(&self, place: &Place, kind: &ListingKind) -> Result<Found, EntryError> {
        let failed = match kind {
            ListingKind::Dav => return self.dav(place).await?.ok_or(EntryError::NoListing),
            _ => match self.fetch(place).await {
                Ok((document, alone)) => match page(&document, place, alone) {
                    Some(found) => return Ok(found),
                    None => EntryError::NoListing,
                },
                Err(error) if error.code().is_some() => error.into(),
                Err(error) => return Err(error.into()),
            },
        };
        match self.dav(place).await {
            Ok(Some(found)) => Ok(found),
            _ => Err(failed),
        }
    }

    /// Reads a further part of an object store's listing.
    pub async fn part(&self, next: &Url, prefix: &str) -> Result<Listing, EntryError> {
        let (document, _alone) = self.fetch(&Place::named(next)).await?;
        Listing::of_bucket(&document.bytes, next, prefix).ok_or(EntryError::NoNextPart)
    }

    async fn dav(&self, place: &Place) -> Result<Option<Found>, LaneError> {
        let ask = |limit_bytes| {
            properties(&self.net, &place.url, place.trust, Depth::Children, limit_bytes)
        };
        let (answer, alone) = self.bounded(ask).await?;
        let at = folder_at(&answer.final_url, &place.url);
        let listing = Listing::of_multistatus(&answer.bytes, &at);
        Ok(listing.map(|listing| Found {
            kind: ListingKind::Dav,
            place: place.led_to(&at),
            listing,
            alone,
        }))
    }

    async fn fetch(&self, place: &Place) -> Result<Kept, LaneError> {
        self.bounded(|limit_bytes| {
            fetch_small(&self.net, &place.url, place.trust, KINDS, limit_bytes)
        })
        .await
    }

    /// Asks for a page; again for a large one, when no other is in the memory.
    async fn bounded<'a>(
        &self,
        ask: impl Fn(usize) -> BoxFuture<'a, Result<Document, LaneError>>,
    ) -> Result<Kept, LaneError> {
        match ask(PAGE_BYTES_USUAL).await {
            Err(LaneError::TooLarge { .. }) => {
                let alone = Arc::clone(&self.alone).lock_owned().await;
                Ok((ask(PAGE_BYTES_MAX).await?, Some(alone)))
            }
            answer => Ok((answer?, None)),
        }
    }
}

/// Reads a page; `None` if it is none.
fn page(document: &Document, asked: &Place, alone: Option<OwnedMutexGuard<()>>) -> Option<Found> {
    let kind = document.content_type.as_deref().unwrap_or_default();
    if !kind.starts_with("text/html") && !kind.starts_with("application/xhtml") {
        return None;
    }
    let at = folder_at(&document.final_url, &asked.url);
    let mut listing = Listing::of_page(&document.bytes, &at);
    let place = asked.led_to(listing.base.as_ref().unwrap_or(&at));
    listing.base = None;
    Some(Found { kind: ListingKind::Pages, place, listing, alone })
}

/// Returns the folder of an address where an answer came from.
fn folder_at(found: &Url, asked: &Url) -> Url {
    let mut folder = found.clone();
    let path = found.path();
    let path = match path.rfind('/') {
        _ if same_path(path, asked.path()) && !path.ends_with('/') => format!("{path}/"),
        Some(end) => path[..=end].to_owned(),
        None => "/".to_owned(),
    };
    folder.set_path(&path);
    folder.set_query(None);
    folder.set_fragment(None);
    folder
}

/// Returns the possible listings of an object store for a folder, with the prefix of its keys: at the top
/// of the host, or of the bucket that is first in the path.
fn buckets(folder: &Url) -> Vec<(Url, String)> {
    let decoded = |path: &str| String::from_utf8(percent::decode(path)).ok();
    let ask = |bucket: &str, prefix: String| {
        let mut url = folder.clone();
        url.set_path(bucket);
        url.query_pairs_mut().clear().append_pair("list-type", "2").append_pair("prefix", &prefix);
        (url, prefix)
    };
    let path = folder.path().trim_start_matches('/');
    let whole = decoded(path).map(|prefix| ask("/", prefix));
    let first = path.split_once('/').filter(|(_, rest)| !rest.is_empty());
    let within = first.and_then(|(bucket, rest)| Some(ask(&format!("/{bucket}"), decoded(rest)?)));
    whole.into_iter().chain(within).collect()
}

const KINDS: &str = "text/html, application/xml;q=0.9, */*;q=0.1";
/// Four pages at the same time need little memory.
const PAGE_BYTES_USUAL: usize = 8 << 20;
/// Enough for a page of 400,000 files with a table row of 200 bytes for each.
const PAGE_BYTES_MAX: usize = 96 << 20;
