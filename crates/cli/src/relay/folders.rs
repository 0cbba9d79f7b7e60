//! Watches the folders of a relay, and warns once if one is removed.
//!
//! Open files survive then, but nothing new can be stored.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use swath_store::depot::Depot;

use crate::exit::warn;

/// A watched folder, and the warning when it is removed or replaced.
struct Folder {
    path: PathBuf,
    /// Kept open, so that no other folder gets its inode number.
    opened: File,
    words: &'static str,
}

/// Watches these folders and the files of the depot until the relay ends.
pub fn watch(depot: Option<Depot>, cache: Option<PathBuf>) {
    let of_depot = depot.as_ref().and_then(|depot| depot.options().folder.clone());
    let watched = [
        (of_depot.map(|folder| folder.join("leases")), DEPOT_GONE),
        (cache.map(|folder| folder.join("files")), CACHE_GONE),
    ];
    let open = |(path, words): (Option<PathBuf>, _)| {
        let path = path?;
        Some(Folder { opened: File::open(&path).ok()?, path, words })
    };
    let mut folders: Vec<Folder> = watched.into_iter().filter_map(open).collect();
    if folders.is_empty() {
        return;
    }
    // In its own thread: a folder that hangs (NFS) must not block the relay.
    let look = move || {
        let mut depot = depot;
        loop {
            std::thread::sleep(LOOK_EVERY);
            folders.retain(|folder| {
                let is_there = folder.is_there();
                if !is_there {
                    warn(&format!("{}: {}", folder.path.display(), folder.words));
                }
                is_there
            });
            if depot.as_ref().is_some_and(|depot| depot.lost() > 0) {
                warn(ALLOCATIONS_GONE);
                depot = None;
            }
        }
    };
    if let Err(why) = std::thread::Builder::new().name("folders".into()).spawn(look) {
        warn(&format!("cannot watch the relay's folders: {why}"));
    }
}

impl Folder {
    fn is_there(&self) -> bool {
        let number = |found: Metadata| (found.dev(), found.ino());
        let (Ok(opened), Ok(there)) = (self.opened.metadata(), self.path.metadata()) else {
            return false;
        };
        number(opened) == number(there)
    }
}

const DEPOT_GONE: &str = "the folder of the depot was removed or replaced: its data is lost, and \
                          nothing is stored until the relay is restarted";
const CACHE_GONE: &str = "the folder of the cache was removed or replaced: nothing is cached until \
                          the relay is restarted";
const ALLOCATIONS_GONE: &str = "depot: files of allocations were removed: their data is lost";
/// Frequent enough for a warning, and cheap.
const LOOK_EVERY: Duration = Duration::from_secs(2);
