//! The cache (`--cache`): files that passed through, for all clients that request them, each byte
//! fetched once.
//!
//! `connection` answers on one client's connection, through `send`. For each request `prepare`
//! finds the current version of the file (`addresses` asks its server once for all clients, `facts`
//! reads what the answer says about caching) and opens a `reader` on what the store has of it. The
//! connection's `fetcher`s fetch what is missing, by requests of `ask`, as long as somebody wants
//! it (`version`). Answers that may not be cached are forwarded as without a cache.
//!
//! Always holds: nothing is cached that was requested with credentials, or with fields to which a
//! server might answer differently; one answer never mixes two versions.

mod addresses;
mod ask;
mod connection;
mod facts;
mod fetcher;
mod figures;
mod prepare;
mod reader;
mod send;
mod version;

use std::net::SocketAddr;
use std::path::PathBuf;

use swath_formats::relay::relays;
use swath_store::cache::{Cache, CacheOpenError, Recovered};
use url::Url;

use super::headers::{self, Form};
use super::{Relay, form};
use addresses::Addresses;
pub(super) use connection::forward;
pub(super) use fetcher::Jobs;
use figures::Figures;
use swath_serve::http::{Body, Head, Method};
use version::Version;

/// Where a relay keeps what passes, and how much of it.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// A folder that is the cache's alone.
    pub folder: PathBuf,
    /// It keeps no more than this.
    pub size_bytes: u64,
}

/// What a relay keeps.
pub(super) struct Cached {
    store: Cache,
    addresses: Addresses,
    figures: Figures,
}

impl Cached {
    /// Opens it, with what earlier runs have left.
    pub fn open(options: &CacheOptions) -> Result<Cached, CacheOpenError> {
        let (store, kept) = Cache::open(&options.folder, options.size_bytes)?;
        let Recovered { files, bytes, removed } = kept;
        tracing::info!(files, bytes, removed, "the cache is open");
        Ok(Cached { store, addresses: Addresses::default(), figures: Figures::default() })
    }

    /// What it keeps at most, if its disk has less than it was given.
    pub fn narrowed(&self) -> Option<u64> {
        let most_bytes = self.store.most_bytes();
        (most_bytes < self.store.usage().size_bytes).then_some(most_bytes)
    }

    /// As `/metrics` shows it.
    pub fn tell(&self, page: &mut swath_serve::exposition::Page) {
        self.figures.tell(page, self.store.usage());
    }

    /// Nothing of this version is of use any more.
    fn forget(&self, version: &Version) {
        let url = version.url.as_str();
        let is_it = |(validator, _): &(String, u64)| validator == version.etag.as_str();
        // Another one may have taken its place already.
        if self.store.known(url).as_ref().is_some_and(is_it) {
            self.store.forget(url);
        }
    }
}

impl Relay {
    /// What is asked for, where the cache can answer that.
    pub(super) fn kept(&self, head: &Head, peer: SocketAddr) -> Option<Url> {
        let cached = self.cached.as_ref()?;
        let form = form(head)?;
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        if !is_read || head.body != Body::None || !is_understood(head, form) {
            return None;
        }
        let (url, form) = self.judge(head, peer).ok()?;
        // What opens one of the relays behind us, or that of a depot, may open more than others may see.
        let is_behind = relays(&url) > 0 || swath_formats::depot::is_path(url.path());
        let is_opened = head.field(headers::PASSES).is_some() && is_behind;
        let is_known = form == Form::Path || head.field("authorization").is_none();
        (is_known && !is_opened && !cached.addresses.is_apart(&url)).then_some(url)
    }
}

/// Whether a request says nothing but what the cache understands, or what does not matter to what
/// is answered. What opens the origin is not among it.
fn is_understood(head: &Head, form: Form) -> bool {
    let is_head = head.method == Method::HEAD;
    head.all().all(|(name, value)| match name {
        "authorization" => form == Form::Path,
        "range" => !value.contains(','),
        "cache-control" => !["no-store", "only-if-cached"].iter().any(|it| value.contains(it)),
        // A server finds a digest out where it is asked for it.
        "want-digest" | "want-repr-digest" => !is_head,
        "host"
        | "user-agent"
        | "accept"
        | "accept-language"
        | "accept-encoding"
        | "connection"
        | "keep-alive"
        | "proxy-connection"
        | "proxy-authorization"
        | "te"
        | "via"
        | "pragma"
        | "if-match"
        | "if-none-match"
        | "if-range"
        | "if-modified-since"
        | "if-unmodified-since"
        | "referer"
        | "dnt"
        | "priority" => true,
        name => name == headers::PASSES || name.starts_with("sec-fetch-"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_answered_differently_is_not_for_the_cache() {
        let understood = |field: &str, form| {
            let text = format!("GET /relay/http://a/f HTTP/1.1\r\nHost: r\r\n{field}\r\n\r\n");
            let (head, _) = Head::parse_passing(text.as_bytes()).unwrap().unwrap();
            is_understood(&head, form)
        };
        for field in ["Accept: */*", "Range: bytes=0-9", "If-Match: \"a\"", "User-Agent: curl"] {
            assert!(understood(field, Form::Path) && understood(field, Form::Proxy), "{field}");
        }
        for field in [
            "swath-sealed: x",
            "Cookie: a=b",
            "X-Api-Key: 1",
            "Range: bytes=0-9,20-29",
            "Cache-Control: no-store",
        ] {
            assert!(!understood(field, Form::Path), "{field}");
        }
        // In one form it is for the relay, in the other one for the origin.
        assert!(understood("Authorization: Bearer x", Form::Path));
        assert!(!understood("Authorization: Bearer x", Form::Proxy));
    }
}
