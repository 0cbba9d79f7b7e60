//! Files under construction.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use swath_model::Range;
use swath_model::index::Mtime;

use super::data::Data;
use super::{PartialTree, Preserve, Wanted, lock};
use crate::tree::folder_cursor::{FolderCursor, split};
use crate::tree::root::times;

/// Files of which some bytes are there and others are not.
#[derive(Default)]
pub(super) struct Files {
    all: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    files: HashMap<u64, Building>,
    /// Descriptors of those that are open.
    open: usize,
    clock: u64,
}

struct Building {
    /// What is still to be written of it.
    left_bytes: u64,
    /// Closed while too many others are open.
    file: Option<Arc<Data>>,
    used: u64,
}

impl Files {
    /// Writes the parts of one file that lie in `bytes`, which are those of the virtual file from
    /// `start` on.
    pub fn write(
        &self,
        tree: &PartialTree,
        wanted: &Wanted,
        start: u64,
        bytes: &[u8],
        folders: &mut FolderCursor,
    ) -> io::Result<()> {
        if wanted.is_whole() {
            let (file, has_mode) = create_whole(tree, wanted, folders)?;
            put(tree, &file, wanted, start, bytes)?;
            return complete(file.plain(), wanted, tree.preserve, has_mode);
        }
        let file = self.open(tree, wanted, folders)?;
        put(tree, &file, wanted, start, bytes)?;
        let written: u64 = wanted.parts.iter().map(|part| part.bytes).sum();
        if self.written(wanted.number, written) {
            complete(file.plain(), wanted, tree.preserve, false)?;
        }
        Ok(())
    }

    fn open(
        &self,
        tree: &PartialTree,
        wanted: &Wanted,
        folders: &mut FolderCursor,
    ) -> io::Result<Arc<Data>> {
        {
            let mut table = lock(&self.all);
            table.clock += 1;
            let clock = table.clock;
            if let Some(building) = table.files.get_mut(&wanted.number)
                && let Some(file) = &building.file
            {
                building.used = clock;
                return Ok(Arc::clone(file));
            }
        }
        // Two threads may come here at once; both open the same file.
        let file = Arc::new(create(tree, wanted, folders)?);
        let mut table = lock(&self.all);
        let clock = table.clock;
        let resumed_bytes = tree.resumed.bytes_within(wanted.range);
        let building = table.files.entry(wanted.number).or_insert_with(|| Building {
            left_bytes: wanted.range.len() - resumed_bytes,
            file: None,
            used: clock,
        });
        let before = building.file.replace(Arc::clone(&file));
        table.open -= before.map_or(0, |before| before.descriptors());
        table.open += file.descriptors();
        table.close_some();
        Ok(file)
    }

    /// So many bytes of it were written; whether that was all.
    fn written(&self, number: u64, bytes: u64) -> bool {
        let mut table = lock(&self.all);
        let Some(building) = table.files.get_mut(&number) else { return false };
        building.left_bytes = building.left_bytes.saturating_sub(bytes);
        if building.left_bytes > 0 {
            return false;
        }
        let open = building.file.as_ref().map_or(0, |file| file.descriptors());
        table.files.remove(&number);
        table.open -= open;
        true
    }
}

impl Table {
    /// Closes those that were not used for the longest time, if too many are open.
    fn close_some(&mut self) {
        if self.open <= OPEN_MAX {
            return;
        }
        let mut open: Vec<(u64, u64)> = self
            .files
            .iter()
            .filter(|(_, building)| building.file.is_some())
            .map(|(&number, building)| (building.used, number))
            .collect();
        open.sort_unstable();
        for (_, number) in open {
            if self.open <= OPEN_MAX / 2 {
                return;
            }
            let building = self.files.get_mut(&number);
            if let Some(file) = building.and_then(|building| building.file.take()) {
                self.open -= file.descriptors();
            }
        }
    }
}

/// Opens a file of the partial folder of which a part comes, making it and its folders if need be.
fn create(tree: &PartialTree, wanted: &Wanted, folders: &mut FolderCursor) -> io::Result<Data> {
    let (folder, name) = split(&wanted.path);
    let folder = folders.folder(folder)?;
    let file = make_file(folder, name, false)?;
    file.set_len(wanted.size_bytes)?;
    Ok(Data::new(file, folder, name, wanted, &tree.directly))
}

/// Makes a file of which all comes at once; whether it has its mode already, which saves a call for
/// each of many small files.
fn create_whole(
    tree: &PartialTree,
    wanted: &Wanted,
    folders: &mut FolderCursor,
) -> io::Result<(Data, bool)> {
    let (folder, name) = split(&wanted.path);
    let folder = folders.folder(folder)?;
    let mode = mode_here(wanted.mode, tree.preserve, FileType::RegularFile);
    // A default list of rights would have its word in it, and some servers want to be allowed each
    // write.
    let is_plain = mode & umask() == 0 && mode & 0o600 == 0o600 && !tree.has_default_rights;
    let flags = FILE | OFlags::CREATE | OFlags::EXCL;
    let new = is_plain.then(|| rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(mode)));
    let (file, has_mode) = match new {
        Some(Ok(file)) => (File::from(file), true),
        // An earlier run has left something.
        None | Some(Err(Errno::EXIST)) => (make_file(folder, name, true)?, false),
        Some(Err(error)) => return Err(error.into()),
    };
    if wanted.is_sparse {
        file.set_len(wanted.size_bytes)?;
    }
    Ok((Data::new(file, folder, name, wanted, &tree.directly), has_mode))
}

/// Makes a file, or opens the one that an earlier run left.
pub(super) fn make_file(folder: impl AsFd, name: &[u8], truncate: bool) -> io::Result<File> {
    let mut flags = FILE | OFlags::CREATE;
    if truncate {
        flags |= OFlags::TRUNC;
    }
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::openat(&folder, name, flags, mode) {
        // An earlier run had finished with it already.
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(&folder, name, mode, AtFlags::empty())?;
            Ok(File::from(rustix::fs::openat(&folder, name, flags, mode)?))
        }
        other => Ok(File::from(other?)),
    }
}

fn put(
    tree: &PartialTree,
    file: &Data,
    wanted: &Wanted,
    start: u64,
    bytes: &[u8],
) -> io::Result<()> {
    for part in &wanted.parts {
        let here = Range::of_len(part.start - start, part.bytes);
        let bytes = bytes.get(here.start as usize..here.end as usize).unwrap_or_default();
        file.write(bytes, part.offset, &tree.directly)?;
    }
    Ok(())
}

fn complete(file: &File, wanted: &Wanted, preserve: Preserve, has_mode: bool) -> io::Result<()> {
    if !has_mode {
        set_mode(file, wanted.mode, preserve, FileType::RegularFile)?;
    }
    set_times(file, wanted.mtime, preserve)
}

/// What others may do with it: as at its source, or as this user's files usually are.
pub(super) fn set_mode(
    file: impl AsFd,
    mode: u32,
    preserve: Preserve,
    kind: FileType,
) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode_here(mode, preserve, kind)))?)
}

pub(super) fn mode_here(mode: u32, preserve: Preserve, kind: FileType) -> u32 {
    // Set-user-ID and the like are never taken over: who owns the copy is somebody else.
    if preserve.mode { taken_over(mode, kind) } else { usual_mode(kind) }
}

/// Whether what is made in a folder gets rights from there (or nobody knows).
pub(super) fn has_default_rights(folder: impl AsFd) -> bool {
    let found = rustix::fs::fgetxattr(folder, c"system.posix_acl_default", &mut [0_u8; 0]);
    !matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// How files are opened for being written.
const FILE: OFlags = OFlags::WRONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Which bits of a mode are. In a folder that everybody may write to, the sticky bit keeps each one's
/// files from the others.
pub(super) fn taken_over(mode: u32, kind: FileType) -> u32 {
    mode & if kind == FileType::Directory { 0o1777 } else { 0o777 }
}

/// What this user's files and folders usually get.
pub(super) fn usual_mode(kind: FileType) -> u32 {
    let most = if kind == FileType::Directory { 0o777 } else { 0o666 };
    most & !umask()
}

pub(super) fn set_times(file: impl AsFd, mtime: Mtime, preserve: Preserve) -> io::Result<()> {
    if !preserve.times {
        return Ok(());
    }
    Ok(rustix::fs::futimens(file, &times(mtime))?)
}

/// The process's own, read without changing it.
fn umask() -> u32 {
    static UMASK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
    })
}

/// So many files are open at once; others are opened again when more of them comes.
const OPEN_MAX: usize = 512;
