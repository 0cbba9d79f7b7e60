//! A WebDAV server's answers to `PROPFIND` (RFC 4918, section 14.16).

use url::Url;

use super::below::below;
use super::building::{Building, ENTRIES_MAX};
use super::xml::elements;
use super::{Listing, Refusal};
use crate::percent;

impl Listing {
    /// Reads a WebDAV server's answer to `PROPFIND` with depth 1 for `folder`. `None` if it is not such an
    /// answer.
    ///
    /// The paths of the answer count, not the servers in it: behind a proxy these are often wrong. Some
    /// servers write names as they are, without escapes (XRootD, nginx with its module of others). If one
    /// address in the answer cannot be an escaped one, none of them is.
    pub fn of_multistatus(answer: &[u8], folder: &Url) -> Option<Listing> {
        let mut found = Vec::new();
        let mut is_cut = false;
        let (mut href, mut size_bytes, mut is_folder) = (None, None, false);
        elements(answer, "multistatus", |within, name, text| match (within, name) {
            ("response", "href") => href = Some(path_of(text.trim()).to_owned()),
            ("prop", "getcontentlength") => size_bytes = text.trim().parse().ok(),
            ("resourcetype", "collection") => is_folder = true,
            ("multistatus", "response") => {
                let is_folder = std::mem::take(&mut is_folder);
                let size_bytes = size_bytes.take().filter(|_| !is_folder);
                match href.take() {
                    Some(href) if found.len() <= ENTRIES_MAX => {
                        found.push((href, is_folder, size_bytes));
                    }
                    Some(_) => is_cut = true,
                    None => {}
                }
            }
            _ => {}
        })?;
        let is_verbatim = found.iter().any(|(href, ..)| is_unescaped(href));
        let mut building = Building::default();
        for (href, is_folder, size_bytes) in found {
            let encoded = is_verbatim.then(|| percent::encode(href.as_bytes()));
            let path = encoded.as_deref().unwrap_or(&href);
            building.add_href(path, &href, folder, is_folder, size_bytes);
        }
        building.listing.marks_folders = true;
        building.listing.is_cut |= is_cut;
        Some(building.listing)
    }
}

impl Building {
    /// Adds an entry of the folder itself, whatever depth the server looked at.
    fn add_href(
        &mut self,
        path: &str,
        shown: &str,
        folder: &Url,
        is_folder: bool,
        size_bytes: Option<u64>,
    ) {
        let Ok(url) = folder.join(path) else { return self.refuse(shown, Refusal::Address) };
        let Some(rest) = below(url.path(), folder.path()) else {
            // A folder above it says nothing of its content.
            if below(folder.path(), url.path()).is_none() {
                self.refuse(shown, Refusal::Elsewhere);
            }
            return;
        };
        let mut parts = rest.split('/').filter(|part| !part.is_empty());
        if let Some(first) = parts.next() {
            match parts.next() {
                None => self.add(first, is_folder, size_bytes),
                Some(_) => self.add(first, true, None),
            }
        }
    }
}

/// Reads a WebDAV server's answer to `PROPFIND` with depth 0: whether a folder is there. `None` if it is not
/// such an answer.
pub fn is_folder(answer: &[u8]) -> Option<bool> {
    let mut is_folder = false;
    elements(answer, "multistatus", |within, name, _| {
        is_folder |= (within, name) == ("resourcetype", "collection");
    })?;
    Some(is_folder)
}

/// Returns the path of an address, with at most one `/` at its beginning.
fn path_of(href: &str) -> &str {
    let path = match href.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => href,
    };
    let slashes = path.len() - path.trim_start_matches('/').len();
    &path[slashes.saturating_sub(1)..]
}

/// Returns whether the path of an address has characters that must be escaped in one (RFC 3986, section 3.3).
pub(super) fn is_unescaped(path: &str) -> bool {
    let bytes = path.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    bytes.iter().enumerate().any(|(at, byte)| match byte {
        b' ' | b'?' | b'#' | b'<' | b'>' | b'"' => true,
        b'%' => !is_hex(at + 1) || !is_hex(at + 2),
        _ => false,
    })
}
