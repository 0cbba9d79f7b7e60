//! Walks a tree and yields the entries of an index, in the index's order.
//!
//! A few threads look at folders and their entries some way ahead; the entries come out in order.
//! Memory holds what lies ahead (some dozens of folders, a few thousand entries of a large one),
//! the names of open folders, and the files with several names.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use swath_model::index::{Absence, Entry, Kind, Mtime, NAME_BYTES_MAX, PATH_BYTES_MAX, Xattrs};

use super::filter::{Filter, Verdict};
use super::folder_cursor::{FOLDER, up};
use super::names::Names;
use super::root::{Links, Root, open_below};
use super::single::{self, Single};
use super::stat::{self, FileId, Found};
use super::unfinished::{is_unfinished, may_be_unfinished};
use super::work::{Queue, Ticket};
use super::xattrs;

/// How to walk.
#[derive(Clone, Debug)]
pub struct WalkOptions {
    /// Treats links to something below the root as their targets. (All others stay links.)
    pub follow_links: bool,
    /// Reports further names of a file as such.
    pub hard_links: bool,
    /// Stays on the root's file system.
    pub one_file_system: bool,
    /// Reports extended attributes of files and folders, which requires opening every file.
    pub xattrs: bool,
    /// Selects the entries; the others are neither reported nor entered.
    pub filter: Filter,
    /// Makes this file alone the tree, regardless of the filter.
    pub single: Option<Single>,
    /// Threads that look ahead. None are needed; more than there are processors pay if the disk or
    /// a server is slow.
    pub threads: usize,
}

impl Default for WalkOptions {
    fn default() -> WalkOptions {
        WalkOptions {
            follow_links: false,
            hard_links: true,
            one_file_system: false,
            xattrs: false,
            filter: Filter::default(),
            single: None,
            threads: 4,
        }
    }
}

/// Why a walk ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError<E> {
    /// The root cannot be listed.
    #[error("cannot list the folder")]
    Root(#[source] io::Error),
    /// The receiver of the entries wants no more.
    #[error(transparent)]
    Stopped(E),
}

/// Entries that a walk could not report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unnameable {
    /// Number of entries whose names or paths are too long for an index.
    pub count: u64,
    /// Path of the first one.
    pub first: Option<Vec<u8>>,
}

/// Passes every entry below `root` to `take`, in the order of an index. Unreadable entries are
/// passed as [`Kind::Absent`]; files of unfinished copies are left out.
pub fn walk<E>(
    root: &Root,
    options: &WalkOptions,
    take: impl FnMut(&Entry<'_>) -> Result<(), E>,
) -> Result<Unnameable, WalkError<E>> {
    walk_telling(root, options, take, |_| {})
}

/// Walks like [`walk`] and reports the paths left out, except those below such a folder.
pub(super) fn walk_telling<E>(
    root: &Root,
    options: &WalkOptions,
    mut take: impl FnMut(&Entry<'_>) -> Result<(), E>,
    mut left_out: impl FnMut(&[u8]),
) -> Result<Unnameable, WalkError<E>> {
    if let Some(single) = &options.single {
        return single::walk(root, options, single, take);
    }
    let mut walk = Walk::begin(root, options).map_err(|error| WalkError::Root(error.into()))?;
    while let Some(next) = walk.next() {
        let names = Arc::clone(&next.names);
        let name = names.name(next.at);
        if next.verdict == Verdict::Out {
            left_out(&walk.path_of(walk.path.len(), name));
            continue;
        }
        let path_bytes = walk.path.len() + 1 + name.len();
        if name.len() > NAME_BYTES_MAX || path_bytes > PATH_BYTES_MAX {
            walk.unnameable.count += 1;
            let path = || [walk.path.as_slice(), name].join(&b'/');
            walk.unnameable.first.get_or_insert_with(path);
            continue;
        }
        if next.verdict == Verdict::Leads {
            // It is reported when something below it is.
            if let Some(listed) = next.listed {
                let Found { mode, mtime, id, .. } = next.found;
                let xattrs = listed.xattrs.clone();
                walk.enter(name, listed, id, next.verdict);
                if let Some(frame) = walk.open.last_mut() {
                    frame.held_back = Some((mode, mtime, xattrs));
                }
            }
            continue;
        }
        walk.hand_over_folders(&mut take)?;
        let kind = walk.first_or_further_name(&next.found);
        let is_bare = matches!(kind, Kind::HardLink(_) | Kind::Absent(_));
        let entry = Entry {
            leaves: std::mem::take(&mut walk.leaves),
            name,
            mode: if is_bare { 0 } else { next.found.mode },
            mtime: if is_bare { Mtime::default() } else { next.found.mtime },
            xattrs: match (&next.listed, next.found.xattrs) {
                (Some(folder), _) => folder.xattrs.clone(),
                (None, Some(xattrs)) if matches!(kind, Kind::File { .. }) => *xattrs,
                _ => Xattrs::None,
            },
            kind,
        };
        take(&entry).map_err(WalkError::Stopped)?;
        walk.number += 1;
        if let Some(listed) = next.listed {
            walk.enter(name, listed, next.found.id, next.verdict);
        }
    }
    Ok(walk.unnameable)
}

/// The part of the walk that the threads need.
struct Shared {
    root: Root,
    options: WalkOptions,
    /// Memory of the extended attributes that lie ahead.
    xattr_bytes: AtomicUsize,
}

/// A folder that was read.
struct Listed {
    folder: Arc<OwnedFd>,
    xattrs: Xattrs<'static>,
    names: Arc<Names>,
    /// What its first names refer to.
    first: Vec<Found>,
}

/// A result of the threads.
enum Brought {
    Listed(Result<Listed, Errno>),
    Looked(Vec<Found>),
}

struct Walk {
    shared: Arc<Shared>,
    queue: Queue<Brought>,
    /// Path of the innermost open folder.
    path: Vec<u8>,
    /// The open folders, the innermost last.
    open: Vec<Frame>,
    /// Number of folders being listed ahead.
    ahead: usize,
    /// Whether the last listing had to be waited for.
    is_slow: bool,
    /// The number of the first name of each file with several.
    names: HashMap<FileId, u64>,
    /// Number of the next entry.
    number: u64,
    /// Folders left since the last entry.
    leaves: usize,
    unnameable: Unnameable,
}

/// An open folder.
struct Frame {
    /// `None` for outer folders, as descriptors are few; reopened when needed.
    folder: Option<Arc<OwnedFd>>,
    names: Arc<Names>,
    id: FileId,
    /// Length of its path.
    path_bytes: usize,
    /// Index of the next name.
    at: usize,
    /// What some names from `looked_from` on refer to, until they are reported.
    looked: VecDeque<Found>,
    looked_from: usize,
    /// The names after these, which are being looked at.
    later: VecDeque<(usize, Ticket<Brought>)>,
    later_to: usize,
    /// Folders among the looked-at names that are being listed, by index.
    listing: VecDeque<(usize, Ticket<Brought>)>,
    /// Where listing ahead continues.
    ahead_at: usize,
    /// Whether its content takes part unless excluded.
    is_within: bool,
    /// Mode and the rest of a folder that is reported only if something below it is.
    held_back: Option<(u32, Mtime, Xattrs<'static>)>,
}

struct Next {
    names: Arc<Names>,
    at: usize,
    found: Found,
    verdict: Verdict,
    /// The content, for a folder.
    listed: Option<Listed>,
}

impl Walk {
    fn begin(root: &Root, options: &WalkOptions) -> Result<Walk, Errno> {
        let shared = Arc::new(Shared {
            root: root.clone(),
            options: options.clone(),
            xattr_bytes: AtomicUsize::new(0),
        });
        // Its own descriptor: one shared with the root would share its read position.
        let listed = shared.list(root.folder(b"", Links::Refuse)?, b"")?;
        let id = stat::id(&statx(root.fd(), c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?);
        let mut walk = Walk {
            queue: Queue::new(options.threads),
            shared,
            path: Vec::new(),
            open: Vec::new(),
            ahead: 0,
            is_slow: false,
            names: HashMap::new(),
            number: 0,
            leaves: 0,
            unnameable: Unnameable::default(),
        };
        walk.push(listed, id, Verdict::Leads);
        Ok(walk)
    }

    /// Returns the next entry, in order.
    fn next(&mut self) -> Option<Next> {
        loop {
            let frame = self.open.last_mut()?;
            if frame.at < frame.names.len() {
                break;
            }
            let left = self.open.pop()?;
            self.leaves += usize::from(left.held_back.is_none());
            let frame = self.open.last_mut()?;
            self.path.truncate(frame.path_bytes);
            // Reopening it by its whole path would take long, and again at each level.
            if frame.folder.is_none()
                && let Some(left) = left.folder
            {
                frame.folder = up(&left, frame.id, FOLDER).ok().map(Arc::new);
            }
        }
        self.look_ahead();
        let frame = self.open.last_mut()?;
        let at = frame.at;
        frame.at += 1;
        // The folder vanished before this name was looked at, and its descriptor with it.
        let unseen = || Found::absent(Absence::Vanished);
        let mut found = frame.looked.pop_front().unwrap_or_else(unseen);
        frame.looked_from = frame.at;
        let names = Arc::clone(&frame.names);
        if let Some(xattrs) = &found.xattrs {
            self.shared.xattr_bytes.fetch_sub(xattrs.memory_bytes(), Ordering::Relaxed);
        }
        let is_listing = frame.listing.front().is_some_and(|&(place, _)| place == at);
        let ticket = if is_listing { frame.listing.pop_front() } else { None };
        let mut listed = None;
        let mut verdict = self.judge(self.open.len() - 1, at, &found);
        if found.xattrs_later && verdict != Verdict::Out {
            let (shared, folder) = (Arc::clone(&self.shared), self.folder(self.open.len() - 1));
            let read = |folder: Arc<OwnedFd>| {
                stat::xattrs_of(&shared.root, &*folder, &self.path, names.name(at), &found)
            };
            found.xattrs = Some(Box::new(folder.map_or(Xattrs::Unknown, read)));
        }
        if found.kind == Kind::Folder && verdict != Verdict::Out {
            let began = Instant::now();
            let result = match ticket {
                Some((_, ticket)) => {
                    self.ahead -= 1;
                    ticket.take()
                }
                None => self.list_work(self.open.len() - 1, at, &found).map(|work| work()),
            };
            self.is_slow = began.elapsed() > SLOW;
            match result {
                _ if self.is_elsewhere(&found) => found = Found::absent(Absence::Elsewhere),
                _ if self.is_open(&found) => found = self.as_link(names.name(at)),
                Some(Brought::Listed(Ok(inside))) => listed = Some(inside),
                Some(Brought::Listed(Err(error))) => found = Found::absent(stat::absence(error)),
                _ => found = Found::absent(Absence::Unreadable),
            }
            if listed.is_none() && matches!(found.kind, Kind::Symlink(_)) {
                verdict = self.judge(self.open.len() - 1, at, &found);
            } else if listed.is_none() {
                // Its content is unknown, so the filter cannot decide.
                verdict = Verdict::In;
            }
        }
        Some(Next { names, at, found, verdict, listed })
    }

    /// Returns whether an entry of an open folder takes part.
    fn judge(&mut self, place: usize, at: usize, found: &Found) -> Verdict {
        if may_be_unfinished(self.open[place].names.name(at)) && self.is_unfinished(place, at) {
            return Verdict::Out;
        }
        let filter = &self.shared.options.filter;
        if filter.is_all() {
            return Verdict::In;
        }
        let frame = &self.open[place];
        let path = self.path_of(frame.path_bytes, frame.names.name(at));
        filter.judge(&path, found.kind == Kind::Folder, frame.is_within)
    }

    /// Returns whether an entry of an open folder belongs to an unfinished copy.
    fn is_unfinished(&mut self, place: usize, at: usize) -> bool {
        let Some(folder) = self.folder(place) else { return false };
        let names = &self.open[place].names;
        is_unfinished(folder.as_fd(), names, names.name(at))
    }

    /// Returns the path of a name in an open folder whose own path has `path_bytes` bytes.
    fn path_of(&self, path_bytes: usize, name: &[u8]) -> Vec<u8> {
        let separator: &[u8] = if path_bytes == 0 { b"" } else { b"/" };
        [&self.path[..path_bytes], separator, name].concat()
    }

    /// Reports the open folders that were held back.
    fn hand_over_folders<E>(
        &mut self,
        take: &mut impl FnMut(&Entry<'_>) -> Result<(), E>,
    ) -> Result<(), WalkError<E>> {
        // All folders inside one that was held back are held back, too.
        let held = self.open.iter().rev().take_while(|frame| frame.held_back.is_some()).count();
        let first = self.open.len() - held;
        for frame in &mut self.open[first..] {
            let Some((mode, mtime, xattrs)) = frame.held_back.take() else { continue };
            let path = &self.path[..frame.path_bytes];
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
            let leaves = std::mem::take(&mut self.leaves);
            let entry = Entry { leaves, name, kind: Kind::Folder, mode, mtime, xattrs };
            take(&entry).map_err(WalkError::Stopped)?;
            self.number += 1;
        }
        Ok(())
    }

    fn enter(&mut self, name: &[u8], listed: Listed, id: FileId, verdict: Verdict) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.push(listed, id, verdict);
    }

    fn push(&mut self, listed: Listed, id: FileId, verdict: Verdict) {
        let later_to = listed.first.len();
        self.open.push(Frame {
            folder: Some(listed.folder),
            names: listed.names,
            id,
            path_bytes: self.path.len(),
            at: 0,
            looked: listed.first.into(),
            looked_from: 0,
            later: VecDeque::new(),
            later_to,
            listing: VecDeque::new(),
            ahead_at: 0,
            is_within: verdict == Verdict::In,
            held_back: None,
        });
        if let Some(far) = self.open.len().checked_sub(1 + DESCRIPTORS_MAX) {
            self.open[far].folder = None;
        }
    }

    /// Lets the threads start on what comes next.
    fn look_ahead(&mut self) {
        let top = self.open.len() - 1;
        while self.open[top].later.len() < WINDOWS_AHEAD
            && self.open[top].later_to < self.open[top].names.len()
        {
            let frame = &mut self.open[top];
            frame.later_to = frame.later_to.max(frame.at);
            let from = frame.later_to;
            let Some(work) = self.look_work(top, from) else { break };
            let ticket = self.queue.add(work, 1);
            let frame = &mut self.open[top];
            frame.later_to = (from + WINDOW_NAMES).min(frame.names.len());
            frame.later.push_back((from, ticket));
        }
        let frame = &mut self.open[top];
        if frame.looked.is_empty()
            && let Some((from, ticket)) = frame.later.pop_front()
            && let Some(Brought::Looked(looked)) = ticket.take()
        {
            (frame.looked, frame.looked_from) = (looked.into(), from);
        }
        for place in (top.saturating_sub(FRAMES_AHEAD)..=top).rev() {
            while self.ahead < FOLDERS_AHEAD {
                let frame = &mut self.open[place];
                frame.ahead_at = frame.ahead_at.max(frame.at);
                let at = frame.ahead_at;
                let Some(found) = frame.looked.get(at - frame.looked_from) else { break };
                frame.ahead_at += 1;
                if found.kind == Kind::Folder {
                    let found = found.clone();
                    if self.judge(place, at, &found) == Verdict::Out {
                        continue;
                    }
                    let Some(work) = self.list_work(place, at, &found) else { break };
                    // Listing a cached folder is faster than waking a thread.
                    let waiting_min = if self.is_slow { 1 } else { FOLDERS_AT_ONCE };
                    let ticket = self.queue.add(work, waiting_min);
                    self.open[place].listing.push_back((at, ticket));
                    self.ahead += 1;
                }
            }
        }
    }

    /// Returns the work of looking at the next names of an open folder.
    fn look_work(
        &mut self,
        place: usize,
        from: usize,
    ) -> Option<impl FnOnce() -> Brought + Send + 'static> {
        let folder = self.folder(place)?;
        let frame = &self.open[place];
        let names = Arc::clone(&frame.names);
        let path = self.path[..frame.path_bytes].to_vec();
        let shared = Arc::clone(&self.shared);
        Some(move || Brought::Looked(shared.look(&folder, &path, &names, from)))
    }

    /// Returns the work of listing a folder inside an open one.
    fn list_work(
        &mut self,
        place: usize,
        at: usize,
        found: &Found,
    ) -> Option<impl FnOnce() -> Brought + Send + 'static> {
        let folder = self.folder(place)?;
        let frame = &self.open[place];
        let names = Arc::clone(&frame.names);
        let (parent, through_link) = (self.path[..frame.path_bytes].to_vec(), found.through_link);
        let shared = Arc::clone(&self.shared);
        Some(move || {
            let name = names.name(at);
            let separator: &[u8] = if parent.is_empty() { b"" } else { b"/" };
            let path = [parent.as_slice(), separator, name].concat();
            let opened = match through_link {
                true => shared.root.folder(&path, Links::Follow),
                false => {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                    open_below(folder.as_fd(), name, flags, Links::Refuse)
                }
            };
            Brought::Listed(opened.and_then(|opened| shared.list(opened, &path)))
        })
    }

    /// Returns an open folder's descriptor, reopened if necessary.
    fn folder(&mut self, place: usize) -> Option<Arc<OwnedFd>> {
        let frame = &self.open[place];
        if let Some(folder) = &frame.folder {
            return Some(Arc::clone(folder));
        }
        let links = if self.shared.options.follow_links { Links::Follow } else { Links::Refuse };
        let opened = self.shared.root.folder(&self.path[..frame.path_bytes], links);
        let folder = Arc::new(opened.ok()?);
        self.open[place].folder = Some(Arc::clone(&folder));
        Some(folder)
    }

    /// Returns whether this folder is on another file system and must not be entered.
    fn is_elsewhere(&self, found: &Found) -> bool {
        let root = self.open.first().map(|frame| frame.id.device);
        self.shared.options.one_file_system && root != Some(found.id.device)
    }

    /// Returns whether a link leads to a folder that contains it.
    fn is_open(&self, found: &Found) -> bool {
        found.through_link && self.open.iter().any(|frame| frame.id == found.id)
    }

    /// Returns an entry of the innermost folder as a link.
    fn as_link(&mut self, name: &[u8]) -> Found {
        let options = WalkOptions { follow_links: false, ..self.shared.options.clone() };
        match self.folder(self.open.len() - 1) {
            Some(folder) => stat::look(&self.shared.root, &*folder, &self.path, name, &options),
            None => Found::absent(Absence::Unreadable),
        }
    }

    /// Returns the kind of what was found, or that it is another name of an earlier file.
    fn first_or_further_name(&mut self, found: &Found) -> Kind {
        if !found.has_names || !self.shared.options.hard_links {
            return found.kind.clone();
        }
        match self.names.entry(found.id) {
            std::collections::hash_map::Entry::Occupied(first) => Kind::HardLink(*first.get()),
            std::collections::hash_map::Entry::Vacant(none) => {
                none.insert(self.number);
                found.kind.clone()
            }
        }
    }
}

impl Shared {
    fn list(&self, folder: OwnedFd, path: &[u8]) -> Result<Listed, Errno> {
        let names = Names::read(folder.as_fd())?;
        let first = self.look(&folder, path, &names, 0);
        let xattrs = if self.options.xattrs { xattrs::read(&folder) } else { Xattrs::None };
        Ok(Listed { folder: Arc::new(folder), xattrs, names: Arc::new(names), first })
    }

    /// Looks at some names from `from` on, in their order on the device.
    fn look(&self, folder: &OwnedFd, path: &[u8], names: &Names, from: usize) -> Vec<Found> {
        let to = (from + WINDOW_NAMES).min(names.len());
        let mut order: Vec<usize> = (from..to).collect();
        order.sort_unstable_by_key(|&at| names.inode(at));
        let mut found = vec![Found::absent(Absence::Vanished); to - from];
        for at in order {
            let name = names.name(at);
            let one = &mut found[at - from];
            *one = stat::look(&self.root, folder, path, name, &self.options);
            if self.options.xattrs && matches!(one.kind, Kind::File { .. }) {
                let xattrs = stat::xattrs_of(&self.root, folder, path, name, one);
                one.xattrs_later = !self.keeps(&xattrs);
                let is_kept = xattrs != Xattrs::None && !one.xattrs_later;
                one.xattrs = is_kept.then(|| Box::new(xattrs));
            }
        }
        found
    }

    /// Returns whether these fit in memory until they are reported; otherwise they are read again
    /// then.
    fn keeps(&self, xattrs: &Xattrs<'_>) -> bool {
        let bytes = xattrs.memory_bytes();
        let before = self.xattr_bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_room = bytes == 0 || before + bytes <= XATTR_BYTES_AHEAD;
        if !is_room {
            self.xattr_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_room
    }
}

/// Names of a large folder looked at in one go …
const WINDOW_NAMES: usize = 2048;
/// … and how many such windows are looked at ahead.
const WINDOWS_AHEAD: usize = 4;
/// Most folders listed ahead, over all open ones …
const FOLDERS_AHEAD: usize = 64;
/// … for which no thread is woken before this many wait, …
const FOLDERS_AT_ONCE: usize = 16;
/// … unless a listing took longer than this.
const SLOW: Duration = Duration::from_micros(500);
/// Innermost open folders whose content is listed ahead.
const FRAMES_AHEAD: usize = 8;
/// Most memory for extended attributes that lie ahead.
const XATTR_BYTES_AHEAD: usize = 16 << 20;
/// Most open folders that keep their descriptors.
const DESCRIPTORS_MAX: usize = 200;
