//! Walks of folders: under way and done.
//!
//! A request for a folder's index starts a walk. Its index is sent while it grows, and kept for
//! requests for the bytes, until it was unused for a while or memory is needed.
//!
//! A walk keeps its folder open. Walks of one folder share a descriptor, and the number of walks is
//! limited, per client and in all, so that descriptors remain for everything else.

use crate::client::Client;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::index::{Index, IndexError, Lack};
use swath_store::PastCache;
use swath_store::memory::memory_limit_bytes;
use swath_store::tree::{Files, Root, Single, WalkError, WalkOptions, walk};
use tokio::sync::Notify;

use super::parts::PARTS_AT_ONCE;

/// The name of a walk; nobody guesses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WalkId(u128);

/// One walk.
pub(crate) struct Walk {
    pub id: WalkId,
    /// Who asked for it.
    client: Client,
    /// The address of its index: whoever may read that may read what it lists.
    path: Vec<u8>,
    root: Root,
    /// Which folder that is: device and inode.
    folder: (u64, u64),
    past_cache: PastCache,
    /// Links were taken for what they lead to.
    follows_links: bool,
    /// It is of one file.
    single: Option<Single>,
    index: RwLock<Index>,
    /// Set when the walk has ended, with what went wrong if anything did.
    ended: RwLock<Option<Result<(), String>>>,
    news: Notify,
    /// Nobody wants it any more.
    unwanted: AtomicBool,
    /// The client left before it had all of the index, and nobody has asked for anything since.
    abandoned: AtomicBool,
    /// Files that are not as the index says, by their numbers.
    changed: Mutex<BTreeMap<u64, Lack>>,
    /// What files that are read in several goes were at the first of them, by their numbers.
    versions: Mutex<HashMap<u64, u64>>,
    used: Mutex<Instant>,
    /// So many parts the last answer read at the same time.
    parts_at_once: AtomicUsize,
    /// What all walks may take, and what this one has of it.
    room: Arc<Room>,
    taken_bytes: AtomicUsize,
}

/// What the indexes of all walks may take together while they grow.
struct Room {
    taken_bytes: AtomicUsize,
    most_bytes: usize,
}

impl Drop for Walk {
    fn drop(&mut self) {
        let taken = self.taken_bytes.load(Ordering::Relaxed);
        self.room.taken_bytes.fetch_sub(taken, Ordering::Relaxed);
    }
}

/// How far a walk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More may come.
    Growing,
    /// All is there.
    Complete,
    /// It ended early.
    Failed(String),
}

/// All walks of a server.
pub(crate) struct Walks {
    known: Mutex<HashMap<WalkId, Arc<Walk>>>,
    /// By which large files are read, all of them together.
    past_cache: PastCache,
    /// Most memory for the indexes of walks that nobody uses just now, in bytes.
    idle_bytes_max: usize,
    /// With more than this in memory no further walk begins, and none goes on.
    in_use_bytes_max: usize,
    room: Arc<Room>,
    /// Most walks that are in use, and most that nobody uses just now.
    count_max: usize,
    /// Which one is kept, if one is to be.
    first: Mutex<First>,
}

/// The first walk that came to its end, or may yet do so.
#[derive(Default)]
enum First {
    /// Nobody wants to know.
    #[default]
    Any,
    /// None so far.
    Wanted,
    /// This one; for as long as it is held here it is known.
    Is(Arc<Walk>),
}

impl WalkId {
    /// From sixteen random bytes.
    pub fn new(random: [u8; 16]) -> WalkId {
        WalkId(u128::from_be_bytes(random))
    }
}

impl std::fmt::Display for WalkId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl std::str::FromStr for WalkId {
    type Err = ();

    fn from_str(text: &str) -> Result<WalkId, ()> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(WalkId).ok_or(())
    }
}

impl Walks {
    /// Keeps indexes of at most `idle_bytes_max` that nobody uses, and as many walks as
    /// `descriptors` allow.
    pub fn new(idle_bytes_max: usize, descriptors: usize, past_cache: PastCache) -> Walks {
        let known = Mutex::new(HashMap::new());
        let memory = memory_limit_bytes().and_then(|it| usize::try_from(it / IN_USE_PART).ok());
        let in_use_bytes_max = memory.unwrap_or(usize::MAX).min(IN_USE_BYTES_MAX);
        let first = Mutex::default();
        let count_max = (descriptors / DESCRIPTORS_PER_WALK).clamp(COUNT_LEAST, COUNT_MOST);
        let room = Room { taken_bytes: AtomicUsize::new(0), most_bytes: in_use_bytes_max };
        let room = Arc::new(room);
        Walks { known, past_cache, idle_bytes_max, in_use_bytes_max, room, count_max, first }
    }

    /// From now on the first walk that comes to its end is kept.
    pub fn keep_first(&self) {
        *lock(&self.first) = First::Wanted;
    }

    /// The first walk that came to its end since it was to be kept.
    pub fn first(&self) -> Option<WalkId> {
        match &*lock(&self.first) {
            First::Is(walk) if walk.progress() == Progress::Complete => Some(walk.id),
            _ => None,
        }
    }

    /// Begins to walk a folder for `client`, on a thread of its own.
    ///
    /// # Errors
    /// `OutOfMemory` where other walks take too much already, those of this client or all of them;
    /// what the system says.
    pub fn begin(
        &self,
        id: WalkId,
        client: Client,
        (path, root): (Vec<u8>, Root),
        options: WalkOptions,
    ) -> std::io::Result<Arc<Walk>> {
        self.make_room();
        let folder = root.identity()?;
        let root = {
            let known = lock(&self.known);
            let in_use = || known.values().filter(|walk| walk.is_in_use());
            let bytes: usize = known.values().map(|walk| walk.read().memory_bytes()).sum();
            let of_client = in_use().filter(|walk| walk.client == client).count();
            let most_of_client = (self.count_max / PART_OF_CLIENT).max(COUNT_LEAST);
            if bytes > self.in_use_bytes_max
                || of_client >= most_of_client
                || in_use().count() >= self.count_max
            {
                return Err(std::io::ErrorKind::OutOfMemory.into());
            }
            // As long as a folder is open, no other one has its number.
            let same = known.values().find(|walk| walk.folder == folder);
            same.map_or(root.clone(), |walk| root.sharing(&walk.root))
        };
        let walk = Arc::new(Walk {
            id,
            client,
            path,
            root,
            folder,
            past_cache: self.past_cache.clone(),
            follows_links: options.follow_links,
            single: options.single.clone(),
            index: RwLock::new(Index::new()),
            ended: RwLock::new(None),
            news: Notify::new(),
            unwanted: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            changed: Mutex::default(),
            versions: Mutex::default(),
            used: Mutex::new(Instant::now()),
            parts_at_once: AtomicUsize::new(PARTS_AT_ONCE),
            room: Arc::clone(&self.room),
            taken_bytes: AtomicUsize::new(0),
        });
        let worker = Arc::clone(&walk);
        std::thread::Builder::new()
            .name("swath-walk".to_owned())
            .spawn(move || worker.run(&options))?;
        lock(&self.known).insert(id, Arc::clone(&walk));
        let mut first = lock(&self.first);
        let is_open = match &*first {
            First::Any => false,
            First::Wanted => true,
            First::Is(walk) => matches!(walk.progress(), Progress::Failed(_)),
        };
        if is_open {
            *first = First::Is(Arc::clone(&walk));
        }
        drop(first);
        Ok(walk)
    }

    /// The walk of this name, if it is still known, and its index was asked for at this path.
    pub fn find(&self, id: WalkId, path: &[u8]) -> Option<Arc<Walk>> {
        let walk = lock(&self.known).get(&id).filter(|walk| walk.path == path).cloned()?;
        *lock(&walk.used) = Instant::now();
        walk.abandoned.store(false, Ordering::Relaxed);
        Some(walk)
    }

    /// Returns the name of the one file that this walk is of, if it is one.
    pub fn file_of(&self, id: WalkId, path: &[u8]) -> Option<Vec<u8>> {
        let known = lock(&self.known);
        let walk = known.get(&id).filter(|walk| walk.path == path)?;
        walk.single.as_ref().map(|single| single.path.clone())
    }

    /// Whether somebody is sent something of a walk just now, or was asking within that time.
    pub fn are_used(&self, within: Duration) -> bool {
        let known = lock(&self.known);
        known.values().any(|walk| walk.is_in_use() || lock(&walk.used).elapsed() < within)
    }

    /// Forgets what nobody has used for long, and the longest unused of what is too much. To be
    /// called before anything is opened for a further walk, and now and then.
    pub fn make_room(&self) {
        let mut known = lock(&self.known);
        let mut idle: Vec<(Duration, WalkId, Client, usize)> = known
            .values()
            .filter(|walk| !walk.is_in_use())
            .map(|walk| {
                (lock(&walk.used).elapsed(), walk.id, walk.client, walk.read().memory_bytes())
            })
            .collect();
        idle.sort_unstable();
        let (mut bytes, mut count) = (0, 0);
        let mut of_client: HashMap<Client, usize> = HashMap::new();
        for (unused, id, client, index_bytes) in idle {
            let is_abandoned =
                known.get(&id).is_some_and(|walk| walk.abandoned.load(Ordering::Relaxed));
            let unused_max = if is_abandoned { ABANDONED_MAX } else { UNUSED_MAX };
            let own = of_client.entry(client).or_default();
            (bytes, count, *own) = (bytes + index_bytes, count + 1, *own + 1);
            let is_too_much = bytes > self.idle_bytes_max
                || count > self.count_max
                || *own > (self.count_max / PART_OF_CLIENT).max(COUNT_LEAST);
            if unused > unused_max || is_too_much {
                known.remove(&id);
            }
        }
    }
}

impl Walk {
    /// Whether an answer, or the thread that walks, holds it.
    fn is_in_use(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
    }

    /// The files of its index, to be read.
    pub fn files(&self) -> Files {
        match &self.single {
            Some(single) => Files::single(&self.root, single),
            None if self.follows_links => Files::through_links(&self.root),
            None => Files::new(&self.root),
        }
    }

    /// For those of them that are large.
    pub fn past_cache(&self) -> &PastCache {
        &self.past_cache
    }

    /// The index as far as it has come. Held only for moments: the walk waits meanwhile.
    pub fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        match &*self.ended.read().unwrap_or_else(PoisonError::into_inner) {
            None => Progress::Growing,
            Some(Ok(())) => Progress::Complete,
            Some(Err(error)) => Progress::Failed(error.clone()),
        }
    }

    /// Bytes of the index from `position` on, as soon as there are any; none at its end.
    pub async fn wire(&self, position: u64, most_bytes: usize) -> Result<Vec<u8>, String> {
        loop {
            // Before looking: what comes in between is not missed.
            let news = self.news.notified();
            let progress = self.progress();
            let bytes = {
                let index = self.read();
                let bytes = index.wire_from(position);
                bytes[..bytes.len().min(most_bytes)].to_vec()
            };
            match progress {
                // What every index begins with says nothing yet; the rest is there in a moment.
                Progress::Growing if position == 0 && bytes.len() < WIRE_MIN_BYTES => news.await,
                _ if !bytes.is_empty() => return Ok(bytes),
                Progress::Complete => return Ok(bytes),
                Progress::Failed(error) => return Err(error),
                Progress::Growing => news.await,
            }
        }
    }

    /// Length of the virtual file: what is known of it as soon as that is `enough`, in whole
    /// groups, or all of it; and whether that is all. (Asked for apart, all could have come between
    /// the two.)
    pub async fn known(&self, enough: u64) -> Result<(u64, bool), String> {
        loop {
            let news = self.news.notified();
            let progress = self.progress();
            let size_bytes = self.read().size_bytes();
            match progress {
                Progress::Complete => return Ok((size_bytes, true)),
                Progress::Failed(error) => return Err(error),
                Progress::Growing if size_bytes >= enough => {
                    return Ok((size_bytes - size_bytes % GROUP_BYTES, false));
                }
                Progress::Growing => news.await,
            }
        }
    }

    /// So many parts of it an answer does well to read at the same time, as far as earlier ones know.
    pub fn parts_at_once(&self) -> usize {
        self.parts_at_once.load(Ordering::Relaxed)
    }

    /// What an answer found to be good.
    pub fn note_parts_at_once(&self, parts: usize) {
        self.parts_at_once.store(parts, Ordering::Relaxed);
    }

    /// Whether the file of this number is what it was when this was asked first: whoever reads it in
    /// several goes gets all of it or nothing, whatever its size and time say.
    pub fn is_same(&self, number: u64, version: u64) -> bool {
        *lock(&self.versions).entry(number).or_insert(version) == version
    }

    /// The file of this number is not as the index says.
    pub fn note_changed(&self, number: u64, lack: Lack) {
        lock(&self.changed).entry(number).or_insert(lack);
    }

    /// The files that were found to be not as the index says, one a line, ascending: number, reason.
    pub fn changed(&self) -> String {
        let changed = lock(&self.changed);
        changed.iter().map(|(number, lack)| format!("{number} {}\n", lack.word())).collect()
    }

    /// The client that asked for it left before it had all of the index.
    pub fn give_up(&self) {
        if self.progress() == Progress::Growing {
            self.unwanted.store(true, Ordering::Relaxed);
        }
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Takes room for more of the index.
    fn take(&self, bytes: usize) -> Result<(), Stop> {
        let before = self.room.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.room.most_bytes {
            return Err(Stop::NoRoom);
        }
        Ok(())
    }

    fn run(&self, options: &WalkOptions) {
        let mut told_bytes = 0;
        let mut told = Instant::now();
        let result = walk(&self.root, options, |entry| {
            if self.unwanted.load(Ordering::Relaxed) {
                return Err(Stop::Unwanted);
            }
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            index.push(entry).map_err(Stop::Index)?;
            let bytes = index.wire_bytes();
            drop(index);
            if bytes - told_bytes >= TELL_BYTES || told.elapsed() >= TELL_EVERY {
                self.take((bytes - told_bytes) as usize)?;
                (told_bytes, told) = (bytes, Instant::now());
                self.news.notify_waiters();
            }
            Ok(())
        });
        let ended = match result {
            Ok(_) => {
                self.index.write().unwrap_or_else(PoisonError::into_inner).complete();
                Ok(())
            }
            Err(WalkError::Stopped(Stop::Index(error))) => Err(error.to_string()),
            Err(WalkError::Stopped(stop @ (Stop::Unwanted | Stop::NoRoom))) => {
                Err(stop.to_string())
            }
            Err(WalkError::Root(error)) => Err(format!("the folder cannot be listed: {error}")),
            Err(error) => Err(error.to_string()),
        };
        *self.ended.write().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        self.news.notify_waiters();
    }
}

#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("nobody wants it")]
    Unwanted,
    #[error("this server has no memory for more of its index while so many are asked for")]
    NoRoom,
    #[error(transparent)]
    Index(IndexError),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The indexes of some ten million files: who asks for more and more of them and reads none is
/// turned away, and so is everybody else until some of them go.
const IN_USE_BYTES_MAX: usize = 1 << 30;
/// … and no more than this part of the memory that the server may have.
const IN_USE_PART: u64 = 3;
/// An index that goes on is not sent before there is this much of it.
const WIRE_MIN_BYTES: usize = 32;
/// Those who wait for an index hear of so much more of it …
const TELL_BYTES: u64 = 16 << 10;
/// … or after this time.
const TELL_EVERY: Duration = Duration::from_millis(5);
/// A walk that nobody has used for so long is forgotten.
const UNUSED_MAX: Duration = Duration::from_secs(3600);
/// One whose client left in the middle of its index is kept for it to come back by, not for longer.
const ABANDONED_MAX: Duration = Duration::from_secs(60);
/// A walk keeps one descriptor; the others are for connections and files.
const DESCRIPTORS_PER_WALK: usize = 8;
/// Fewer walks would be of no use …
const COUNT_LEAST: usize = 4;
/// … and more wait for somebody who never comes.
const COUNT_MOST: usize = 1024;
/// One client may have this part of all walks: many copies, also behind one address, and not all.
const PART_OF_CLIENT: usize = 4;

#[cfg(test)]
mod tests {
    use swath_store::Reads;

    use super::*;

    fn descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    /// How much there was in memory was asked only when a walk began.
    #[test]
    fn walks_that_grow_together_beyond_all_bounds_end() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..3000 {
            std::fs::write(folder.path().join(format!("{number:0100}")), "").unwrap();
        }
        let mut walks = Walks::new(1 << 20, 256, PastCache::new(Reads::Auto));
        let begin = |walks: &Walks, number: u8| {
            let root = Root::open(folder.path()).unwrap();
            let id = WalkId::new([number; 16]);
            walks.begin(id, Client::HERE, (Vec::new(), root), WalkOptions::default()).unwrap()
        };
        let end = |walk: &Walk| loop {
            match walk.progress() {
                Progress::Growing => std::thread::sleep(Duration::from_millis(1)),
                ended => return ended,
            }
        };
        let whole = begin(&walks, 1);
        assert_eq!(end(&whole), Progress::Complete);
        let bytes = walks.room.taken_bytes.load(Ordering::Relaxed);
        assert!(bytes > 50_000, "{bytes}");
        walks.room = Arc::new(Room { taken_bytes: AtomicUsize::new(0), most_bytes: bytes / 2 });
        let cut = begin(&walks, 2);
        assert!(matches!(end(&cut), Progress::Failed(why) if why.contains("no memory")));
        lock(&walks.known).remove(&cut.id);
        while Arc::strong_count(&cut) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(cut);
        assert_eq!(walks.room.taken_bytes.load(Ordering::Relaxed), 0, "it is given back");
    }

    /// Each index that a client asked for and left kept a folder open for an hour: 245 requests
    /// ended a server with 256 descriptors.
    #[test]
    fn indexes_that_are_asked_for_and_left_take_few_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..300 {
            std::fs::create_dir(folder.path().join(number.to_string())).unwrap();
        }
        let walks = Walks::new(1 << 20, 256, PastCache::new(Reads::Auto));
        let before = descriptors();
        let mut begun = Vec::new();
        for number in 0..300u16 {
            let root = Root::open(&folder.path().join(number.to_string())).unwrap();
            let mut id = [0; 16];
            id[..2].copy_from_slice(&number.to_be_bytes());
            let id = WalkId::new(id);
            let walk =
                walks.begin(id, Client::HERE, (Vec::new(), root), WalkOptions::default()).unwrap();
            while walk.progress() == Progress::Growing || Arc::strong_count(&walk) > 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            begun.push(id);
        }
        walks.make_room();
        assert!(lock(&walks.known).len() <= 8, "{}", lock(&walks.known).len());
        // Other tests open some meanwhile.
        assert!(descriptors() < before + 100, "{} after {before}", descriptors());
        assert!(walks.find(begun[299], b"").is_some(), "the last one is kept");
        assert!(walks.find(begun[0], b"").is_none());
        assert!(walks.find(begun[299], b"other").is_none(), "it is of another address");
    }

    #[test]
    fn walks_of_one_folder_share_its_descriptor_and_one_client_does_not_get_all() {
        let folder = tempfile::tempdir().unwrap();
        let walks = Walks::new(1 << 20, 256, PastCache::new(Reads::Auto));
        let begin = |client: Client, number: u8| {
            let root = Root::open(folder.path()).unwrap();
            walks.begin(
                WalkId::new([number; 16]),
                client,
                (Vec::new(), root),
                WalkOptions::default(),
            )
        };
        let held: Vec<_> = (0..8).map(|number| begin(Client::HERE, number).unwrap()).collect();
        assert!(held.iter().all(|walk| walk.root.is_shared_with(&held[0].root)));
        let refused = begin(Client::HERE, 8).err().map(|error| error.kind());
        assert_eq!(refused, Some(std::io::ErrorKind::OutOfMemory));
        assert!(
            begin(std::net::IpAddr::from([10, 0, 0, 1]).into(), 9).is_ok(),
            "others have their part"
        );
    }

    #[test]
    fn walks_that_take_too_much_keep_others_away_until_they_go() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..1000 {
            std::fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        let walks =
            Walks { in_use_bytes_max: 1000, ..Walks::new(0, 1024, PastCache::new(Reads::Auto)) };
        let begin = |number: u8| {
            let root = Root::open(folder.path()).unwrap();
            walks.begin(
                WalkId::new([number; 16]),
                Client::HERE,
                (Vec::new(), root),
                WalkOptions::default(),
            )
        };
        let first = begin(1).unwrap();
        while first.progress() == Progress::Growing {
            std::thread::sleep(Duration::from_millis(1));
        }
        let refused = begin(2).err().map(|error| error.kind());
        assert_eq!(refused, Some(std::io::ErrorKind::OutOfMemory));
        drop(first);
        let began = Instant::now();
        while begin(3).is_err() {
            assert!(began.elapsed() < Duration::from_secs(90), "its thread keeps it");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
