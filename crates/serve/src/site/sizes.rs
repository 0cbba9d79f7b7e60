//! Sizes of folders, as far as walks have found them: no folder is walked for a page.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::dataset::{Progress, Walk};

/// Which walks were made of which addresses, and what was worked out of them. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Sizes(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// The last whole walk of an address.
    walks: HashMap<Vec<u8>, Weak<Walk>>,
    /// What a page was told last, by its address, and by which walk.
    told: HashMap<Vec<u8>, (Weak<Walk>, Arc<Below>)>,
}

/// Bytes of the folders that lie in one, by their names.
pub(super) type Below = HashMap<Vec<u8>, u64>;

impl Sizes {
    /// All of this address is walked.
    pub fn walks(&self, address: &[u8], walk: &Arc<Walk>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.walks.retain(|_, walk| walk.strong_count() > 0);
        if known.walks.len() < ADDRESSES_MAX {
            known.walks.insert(trimmed(address).to_vec(), Arc::downgrade(walk));
        }
    }

    /// What is known of the folders in the one at this address. Reads through the index of a walk.
    pub fn below(&self, address: &[u8]) -> Arc<Below> {
        let address = trimmed(address);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((walk, rest)) = found(&known.walks, address) else { return Arc::default() };
        let is_of = |told: &Weak<Walk>| Weak::ptr_eq(told, &Arc::downgrade(&walk));
        if let Some((_, below)) = known.told.get(address).filter(|(told, _)| is_of(told)) {
            return Arc::clone(below);
        }
        drop(known);
        let below = Arc::new(summed(&walk, &rest));
        known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.told.retain(|_, (walk, _)| walk.strong_count() > 0);
        if known.told.len() >= TOLD_MAX {
            known.told.clear();
        }
        known.told.insert(address.to_vec(), (Arc::downgrade(&walk), Arc::clone(&below)));
        below
    }
}

/// A complete walk of this address or of one above it, and the path from there.
fn found(walks: &HashMap<Vec<u8>, Weak<Walk>>, address: &[u8]) -> Option<(Arc<Walk>, Vec<u8>)> {
    let slashes = (0..address.len()).rev().filter(|&at| address[at] == b'/');
    let above = [address.len()].into_iter().chain(slashes).chain([0]);
    above.into_iter().find_map(|end| {
        let walk = walks.get(&address[..end])?.upgrade()?;
        let rest = trimmed(&address[end..]).to_vec();
        let is_small = walk.read().counts().files <= FILES_MAX;
        (is_small && walk.progress() == Progress::Complete).then_some((walk, rest))
    })
}

fn summed(walk: &Walk, folder: &[u8]) -> Below {
    let mut below = Below::new();
    let index = walk.read();
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        let rest = match folder {
            b"" => Some(item.path),
            folder => item.path.strip_prefix(folder).and_then(|rest| rest.strip_prefix(b"/")),
        };
        let Some(rest) = rest else { continue };
        let Some(slash) = rest.iter().position(|&byte| byte == b'/') else { continue };
        let bytes = item.end - item.start;
        match below.get_mut(&rest[..slash]) {
            Some(sum) => *sum += bytes,
            None => {
                below.insert(rest[..slash].to_vec(), bytes);
            }
        }
    }
    below
}

fn trimmed(address: &[u8]) -> &[u8] {
    let address = address.strip_prefix(b"/").unwrap_or(address);
    address.strip_suffix(b"/").unwrap_or(address)
}

/// Addresses whose walks are remembered.
const ADDRESSES_MAX: usize = 1024;
/// Pages whose sizes are remembered.
const TOLD_MAX: usize = 256;
/// Reading through the index of more would take longer than a page may.
const FILES_MAX: u64 = 1_000_000;
