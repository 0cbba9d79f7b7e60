//! Checks whether a folder has what an index lists, except the bytes of files.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, StatxFlags, readlinkat, statx};
use swath_model::index::{Index, Item, Kind, Mtime, XattrSet, Xattrs};

use super::folder_cursor::{Enter, Files, FolderCursor, split};
use super::root::{Root, file_in};
use super::xattrs;

/// A difference from the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wrong {
    /// The entry is missing.
    Missing,
    /// The entry has another kind.
    Kind,
    /// The file has another size.
    Size,
    /// The link leads elsewhere.
    Target,
    /// The file has other bytes.
    Content,
    /// Probably other bytes: the file shares a wrong block and was changed since.
    Likely,
    /// Unknown: the entry shares a block with something wrong.
    Doubtful,
    /// The permission bits differ.
    Mode,
    /// The modification time differs.
    Mtime,
    /// Some of the index's extended attributes are missing or differ.
    Xattrs,
}

/// Reports what differs below `folder`, in the order of the index. Skips entries that the index
/// lists as absent or does not list. Compares the bytes of further names with their file's. Blocks.
pub fn check_entries(
    index: &Index,
    folder: &Path,
    mut take: impl FnMut(Wrong, &[u8]),
) -> io::Result<()> {
    let root = Root::open(folder)?;
    let mut way = FolderCursor::new(&root, Enter::Look);
    let mut firsts = Files::new(&root);
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        if matches!(item.entry.kind, Kind::Absent(_)) {
            continue;
        }
        let (above, name) = split(item.path);
        match way.to(above) {
            Ok(Some(folder)) => look(index, &mut firsts, folder, name, &item, &mut take),
            _ => take(Wrong::Missing, item.path),
        }
    }
    Ok(())
}

fn look(
    index: &Index,
    firsts: &mut Files,
    folder: BorrowedFd<'_>,
    name: &[u8],
    item: &Item<'_>,
    take: &mut impl FnMut(Wrong, &[u8]),
) {
    let Ok(found) = statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) else {
        return take(Wrong::Missing, item.path);
    };
    let kind = FileType::from_raw_mode(found.stx_mode.into());
    let (wanted, wrong) = match &item.entry.kind {
        Kind::File { size_bytes, .. } => {
            let is_other = found.stx_size != *size_bytes;
            (FileType::RegularFile, is_other.then_some(Wrong::Size))
        }
        Kind::Folder => (FileType::Directory, None),
        Kind::Symlink(target) => {
            let there = readlinkat(folder, name, Vec::new());
            let is_same = there.is_ok_and(|there| there.as_bytes() == target.as_slice());
            (FileType::Symlink, (!is_same).then_some(Wrong::Target))
        }
        Kind::HardLink(of) => {
            let is_same = kind == FileType::RegularFile && {
                let mut first = index.cursor_from(*of);
                let first = first.next().map(|first| first.path.to_vec());
                let first = first.and_then(|first| firsts.file(&first).ok());
                let other = first.is_some().then(|| file_in(folder, name).ok()).flatten();
                let both = first.zip(other);
                both.is_some_and(|(one, other)| same_bytes(one, other).unwrap_or(false))
            };
            (FileType::RegularFile, (!is_same).then_some(Wrong::Content))
        }
        Kind::Absent(_) => return,
    };
    if kind != wanted {
        return take(Wrong::Kind, item.path);
    }
    if let Some(wrong) = wrong {
        take(wrong, item.path);
    }
    if matches!(item.entry.kind, Kind::HardLink(_)) {
        return;
    }
    // Set-user-ID and the like are never copied, and links have no mode of their own.
    let is_link = wanted == FileType::Symlink;
    let bits = if wanted == FileType::Directory { 0o1777 } else { 0o777 };
    if !is_link && u32::from(found.stx_mode) & bits != item.entry.mode & bits {
        take(Wrong::Mode, item.path);
    }
    let mtime = Mtime { seconds: found.stx_mtime.tv_sec, nanoseconds: found.stx_mtime.tv_nsec };
    if mtime != item.entry.mtime {
        take(Wrong::Mtime, item.path);
    }
    if let Xattrs::Set(wanted) = &item.entry.xattrs
        && !file_in(folder, name).is_ok_and(|file| has(&file, wanted))
    {
        take(Wrong::Xattrs, item.path);
    }
}

/// Returns whether an open file has these extended attributes, perhaps among others.
fn has(file: &File, wanted: &XattrSet<'_>) -> bool {
    match xattrs::read(file) {
        Xattrs::Set(there) => wanted.iter().all(|(name, value)| there.value(name) == Some(value)),
        Xattrs::None | Xattrs::Unknown => false,
    }
}

/// Returns whether two files have the same bytes.
pub(super) fn same_bytes(one: File, other: File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (first, second) = (one.metadata()?, other.metadata()?);
    if (first.dev(), first.ino()) == (second.dev(), second.ino()) {
        return Ok(true);
    }
    if !first.is_file() || !second.is_file() || first.len() != second.len() {
        return Ok(false);
    }
    let read = |file: File| BufReader::with_capacity(READ_BYTES, file).take(first.len());
    let (mut one, mut other) = (read(one), read(other));
    let (mut ours, mut theirs) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
    let mut left = first.len();
    while left > 0 {
        let part = left.min(READ_BYTES as u64) as usize;
        one.read_exact(&mut ours[..part])?;
        other.read_exact(&mut theirs[..part])?;
        if ours[..part] != theirs[..part] {
            return Ok(false);
        }
        left -= part as u64;
    }
    Ok(true)
}

/// Bytes compared at once.
const READ_BYTES: usize = 128 << 10;
