//! A listing while it is read: checks names, drops duplicates, and keeps within its limits.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use swath_model::path::SafePath;

use super::{Entry, Listing, Refusal};
use crate::percent;

#[derive(Default)]
pub(super) struct Building {
    pub listing: Listing,
    /// Hashes of the paths so far.
    seen: HashSet<u64>,
    name_bytes: usize,
}

impl Building {
    /// Adds the entry at this address below the folder.
    pub fn add(&mut self, address: &str, is_folder: bool, size_bytes: Option<u64>) {
        match decoded(address) {
            Ok(path) => self.named(address.to_owned(), path, is_folder, size_bytes),
            Err(why) => self.refuse(address, why),
        }
    }

    /// Adds an entry with this name.
    pub fn named(
        &mut self,
        address: String,
        path: String,
        is_folder: bool,
        size_bytes: Option<u64>,
    ) {
        if !self.seen.insert(hash(&path)) {
            return;
        }
        self.name_bytes = self.name_bytes.saturating_add(address.len() + path.len());
        if self.listing.entries.len() >= ENTRIES_MAX || self.name_bytes > NAME_BYTES_MAX {
            self.listing.is_cut = true;
            return;
        }
        match SafePath::new(&path) {
            Ok(path) => self.listing.entries.push(Entry { address, path, is_folder, size_bytes }),
            Err(error) => self.refuse(&address, error.into()),
        }
    }

    /// Whether there is an entry at this address.
    pub fn has(&self, address: &str) -> bool {
        decoded(address).is_ok_and(|path| self.seen.contains(&hash(&path)))
    }

    /// Adds an entry that cannot be taken.
    pub fn refuse(&mut self, name: &str, why: Refusal) {
        if self.listing.refused.len() < REFUSED_MAX {
            self.listing.refused.push((name.chars().take(NAME_SHOWN).collect(), why));
        } else {
            self.listing.is_cut = true;
        }
    }
}

/// Returns the path that an address below the folder stands for.
fn decoded(address: &str) -> Result<String, Refusal> {
    let mut path = Vec::new();
    for (number, part) in address.split('/').map(percent::decode).enumerate() {
        if number > 0 {
            path.push(b'/');
        }
        // Unescaped, an escaped '/' would mean another path than on the server.
        if part.contains(&b'/') {
            return Err(Refusal::Slash);
        }
        path.extend(part);
    }
    String::from_utf8(path).map_err(|_| Refusal::NotText)
}

fn hash(path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// Most entries of a listing: with all of them it needs some 100 MB.
pub const ENTRIES_MAX: usize = 500_000;
/// The length of all names and addresses: a base far down makes many of few bytes of a page.
const NAME_BYTES_MAX: usize = 96 << 20;
pub(super) const REFUSED_MAX: usize = 1000;
const NAME_SHOWN: usize = 200;
