//! What becomes of the folders that a relay uses while it uses them.
//!
//! Somebody may take one away under it. Open files live on then, but nothing new can be kept, and
//! nobody would be told why: it is said once, where the relay's own words stand.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use swath_store::depot::Depot;

use crate::exit::warn;

/// A folder as it was when the relay began, and what is said when it is that no more.
struct Folder {
    path: PathBuf,
    /// Open, so that no other folder gets its number.
    opened: File,
    words: &'static str,
}

/// Watch these folders, and the files of the depot's allocations, until the relay ends.
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
    // A thread of its own: a look into a folder that hangs (NFS) must not hold up the relay.
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
        warn(&format!("the relay's folders are not watched: {why}"));
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

const DEPOT_GONE: &str = "this folder was removed or replaced while the depot uses it; what was \
                          stored there is lost, and nothing is stored there until the relay is started again";
const CACHE_GONE: &str = "this folder was removed or replaced while the cache uses it; everything \
                          passes without being kept until the relay is started again";
const ALLOCATIONS_GONE: &str = "depot: files of allocations were removed from its folder; what was \
                                stored in them is lost, and whoever asks for it is told so";
/// Nobody waits for it; it costs next to nothing.
const LOOK_EVERY: Duration = Duration::from_secs(2);
