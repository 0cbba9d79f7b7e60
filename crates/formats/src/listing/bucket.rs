//! An object store's list of keys.

use url::Url;

use super::Listing;
use super::building::Building;
use super::xml::elements;
use crate::percent;

impl Listing {
    /// Reads an object store's answer to `asked`: keys that begin with `prefix`, all of them files.
    /// `None` if it is not such a list.
    pub fn of_bucket(list: &[u8], asked: &Url, prefix: &str) -> Option<Listing> {
        let mut building = Building::default();
        let (mut key, mut size) = (None, None);
        let (mut is_truncated, mut token, mut marker, mut last) = (false, None, None, None);
        elements(list, "ListBucketResult", |within, name, text| match (within, name) {
            ("Contents", "Key") => key = Some(text.to_owned()),
            ("Contents", "Size") => size = text.trim().parse().ok(),
            ("ListBucketResult", "Contents") => {
                if let Some(key) = key.take() {
                    building.add_key(prefix, &key, size.take());
                    last = Some(key);
                }
            }
            ("ListBucketResult", "IsTruncated") => is_truncated = text.trim() == "true",
            ("ListBucketResult", "NextContinuationToken") => token = Some(text.to_owned()),
            ("ListBucketResult", "NextMarker") => marker = Some(text.to_owned()),
            _ => {}
        })?;
        let mut listing = building.listing;
        listing.marks_folders = true;
        if is_truncated {
            let second =
                asked.query_pairs().any(|(name, value)| name == "list-type" && value == "2");
            let next = match (token, marker.or(last)) {
                (Some(token), _) => Some(("continuation-token", token)),
                (None, Some(last)) if second => Some(("start-after", last)),
                (None, last) => last.map(|last| ("marker", last)),
            };
            listing.is_cut |= next.is_none();
            listing.next = next.map(|(name, value)| with(asked, name, &value));
        }
        Some(listing)
    }
}

impl Building {
    fn add_key(&mut self, prefix: &str, key: &str, size: Option<u64>) {
        // Stores keep empty objects for folders.
        let Some(rest) = key.strip_prefix(prefix).filter(|rest| !rest.ends_with('/')) else {
            return;
        };
        if !rest.is_empty() {
            let encode = |part: &str| percent::encode(part.as_bytes());
            let address = rest.split('/').map(encode).collect::<Vec<_>>().join("/");
            self.named(address, rest.to_owned(), false, size);
        }
    }
}

/// Returns the address with this query parameter set, without others that say where a list
/// continues.
fn with(url: &Url, name: &str, value: &str) -> Url {
    let kept = |(name, _): &(String, String)| {
        !["continuation-token", "start-after", "marker"].contains(&name.as_str())
    };
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().filter(kept).collect();
    let mut url = url.clone();
    url.query_pairs_mut().clear().extend_pairs(pairs).append_pair(name, value);
    url
}
