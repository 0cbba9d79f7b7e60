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

/// Files with some bytes present and others missing.
#[derive(Default)]
pub(super) struct Files {
    all: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    files: HashMap<u64, Building>,
    /// Number of open descriptors.
    open: usize,
    clock: u64,
}

struct Building {
    /// Bytes still to be written.
    left_bytes: u64,
    /// Closed while too many others are open.
    file: Option<Arc<Data>>,
    used: u64,
}

impl Files {
    /// Writes the parts of one file that lie in `bytes`, which start at `start` in the virtual
    /// file.
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

    /// Writes like [`Files::write`], but does not count: the same bytes may come again.
    pub fn overwrite(
        &self,
        tree: &PartialTree,
        wanted: &Wanted,
        start: u64,
        bytes: &[u8],
        folders: &mut FolderCursor,
    ) -> io::Result<()> {
        let file = self.open(tree, wanted, folders)?;
        put(tree, &file, wanted, start, bytes)
    }

    /// Parts of a file were wrong, and will be written again: until then the file is not complete.
    pub fn reopen(&self, wanted: &Wanted) {
        // A file that comes as a whole is made anew.
        if wanted.is_whole() {
            return;
        }
        let mut table = lock(&self.all);
        let clock = table.clock;
        let new = || Building { left_bytes: 0, file: None, used: clock };
        let building = table.files.entry(wanted.number).or_insert_with(new);
        building.left_bytes += wanted.parts.iter().map(|part| part.bytes).sum::<u64>();
    }

    /// Gives a file its attributes and closes it.
    pub fn complete(
        &self,
        tree: &PartialTree,
        wanted: &Wanted,
        folders: &mut FolderCursor,
    ) -> io::Result<()> {
        let file = self.open(tree, wanted, folders)?;
        self.written(wanted.number, u64::MAX);
        complete(file.plain(), wanted, tree.preserve, false)
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

    /// Records `bytes` bytes written to it; returns whether that was all.
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
    /// Closes the least recently used files if too many are open.
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

/// Opens a file of the partial folder that arrives in parts; makes it and its folders if needed.
fn create(tree: &PartialTree, wanted: &Wanted, folders: &mut FolderCursor) -> io::Result<Data> {
    let (folder, name) = split(&wanted.path);
    let folder = folders.folder(folder)?;
    let file = make_file(folder, name, false)?;
    file.set_len(wanted.size_bytes)?;
    Ok(Data::new(file, folder, name, wanted, &tree.directly))
}

/// Makes a file that arrives as a whole. Returns whether it has its mode already, which saves a
/// call for each of many small files.
fn create_whole(
    tree: &PartialTree,
    wanted: &Wanted,
    folders: &mut FolderCursor,
) -> io::Result<(Data, bool)> {
    let (folder, name) = split(&wanted.path);
    let folder = folders.folder(folder)?;
    let mode = mode_here(wanted.mode, tree.preserve, FileType::RegularFile);
    // A default ACL would change the mode, and some servers check permission at each write.
    let is_plain = mode & umask() == 0 && mode & 0o600 == 0o600 && !tree.has_default_rights;
    let flags = FILE | OFlags::CREATE | OFlags::EXCL;
    let new = is_plain.then(|| rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(mode)));
    let (file, has_mode) = match new {
        Some(Ok(file)) => (File::from(file), true),
        // An earlier run left a file.
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
        // An earlier run had completed it.
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

/// Sets the mode: as at its source, or as usual for this user's files.
pub(super) fn set_mode(
    file: impl AsFd,
    mode: u32,
    preserve: Preserve,
    kind: FileType,
) -> io::Result<()> {
    let mut mode = Mode::from_raw_mode(mode_here(mode, preserve, kind));
    if kind == FileType::Directory && !preserve.mode {
        mode |= inherited(&file)?;
    }
    Ok(rustix::fs::fchmod(file, mode)?)
}

/// Returns the bit that gives the files of a folder its group, if the folder has got it from the one above.
pub(super) fn inherited(folder: impl AsFd) -> io::Result<Mode> {
    Ok(Mode::from_raw_mode(rustix::fs::fstat(folder)?.st_mode) & Mode::SGID)
}

pub(super) fn mode_here(mode: u32, preserve: Preserve, kind: FileType) -> u32 {
    // Never copy set-user-ID and the like: the copy has another owner.
    if preserve.mode { taken_over(mode, kind) } else { usual_mode(kind) }
}

/// Returns whether new entries of a folder inherit rights from it; true if unknown.
pub(super) fn has_default_rights(folder: impl AsFd) -> bool {
    let found = rustix::fs::fgetxattr(folder, c"system.posix_acl_default", &mut [0_u8; 0]);
    !matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// Flags to open files for writing.
const FILE: OFlags = OFlags::WRONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Returns the copied bits of a mode. The sticky bit protects each user's files in a folder that
/// everybody may write to.
pub(super) fn taken_over(mode: u32, kind: FileType) -> u32 {
    mode & if kind == FileType::Directory { 0o1777 } else { 0o777 }
}

/// Returns the usual mode of this user's files and folders.
pub(in crate::tree) fn usual_mode(kind: FileType) -> u32 {
    let most = if kind == FileType::Directory { 0o777 } else { 0o666 };
    most & !umask()
}

pub(super) fn set_times(file: impl AsFd, mtime: Mtime, preserve: Preserve) -> io::Result<()> {
    if !preserve.times {
        return Ok(());
    }
    Ok(rustix::fs::futimens(file, &times(mtime))?)
}

/// Returns the process's umask without changing it.
fn umask() -> u32 {
    static UMASK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
    })
}

/// Most open files; others are reopened when more of their bytes arrive.
const OPEN_MAX: usize = 512;
