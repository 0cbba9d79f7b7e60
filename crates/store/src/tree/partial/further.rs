//! Further names of files (hard links).

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Mode, OFlags, linkat, openat, unlinkat};
use rustix::io::Errno;
use swath_model::index::{Index, Item, Kind};

use super::building::make_file;
use super::{PartialError, PartialTree, Unchanged};
use crate::sys;
use crate::tree::folder_cursor::{Enter, FolderCursor, split};
use crate::tree::root::Root;

impl PartialTree {
    /// Makes further names of files that lie in the partial folder or stay at the destination.
    pub(super) fn link(&self, without: &[u64]) -> Result<(), PartialError> {
        let index = self.index();
        if index.counts().hard_links == 0 {
            return Ok(());
        }
        let mut from = FolderCursor::new(&self.root, Enter::Open);
        let mut there = match self.unchanged.files {
            0 => None,
            _ => {
                let root = Root::open(&self.paths.destination);
                let root = root.map_err(|source| self.failed("open", b"", source))?;
                Some(FolderCursor::new(&root, Enter::Look))
            }
        };
        let mut to = FolderCursor::new(&self.root, Enter::Make);
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            self.go_on()?;
            let Kind::HardLink(number) = item.entry.kind else { continue };
            if without.binary_search(&item.number).is_ok() || self.unchanged.has(item.number) {
                continue;
            }
            let mut of = index.cursor_from(number);
            let Some(first) = of.next() else { continue };
            let from = match &mut there {
                Some(there) if self.unchanged.has(number) => there,
                _ => &mut from,
            };
            let linked = self.link_one(&first, (item.number, item.path), from, &mut to);
            // A large file takes its time.
            self.go_on()?;
            linked.map_err(|source| self.failed("make the link", item.path, source))?;
        }
        Ok(())
    }

    fn link_one(
        &self,
        first: &Item<'_>,
        (number, other): (u64, &[u8]),
        from: &mut FolderCursor,
        to: &mut FolderCursor,
    ) -> io::Result<()> {
        let ((from_path, from_name), (to_path, to_name)) = (split(first.path), split(other));
        let (from, to) = (from.folder(from_path)?, to.folder(to_path)?);
        match unlinkat(to, to_name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        if self.preserve.links {
            match linkat(from, from_name, to, to_name, AtFlags::empty()) {
                // Some kinds of files and some file systems do not support it.
                Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => {}
                other => return Ok(other?),
            }
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let source = File::from(open_for_reading(from, from_name, flags)?);
        self.copy(source, first, number, to, to_name)
    }

    /// Makes a copy of a file, with its attributes and its holes.
    fn copy(
        &self,
        mut source: File,
        of: &Item<'_>,
        number: u64,
        to: BorrowedFd<'_>,
        name: &[u8],
    ) -> io::Result<()> {
        let found = source.metadata()?;
        let mut file = make_file(to, name, true)?;
        file.set_len(found.len())?;
        for part in of.parts(of.range()) {
            let end = part.offset + part.bytes;
            let mut at = part.offset;
            while at < end {
                if (self.halt)() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                // An extent of the index may contain smaller holes.
                if sys::is_hole(&source, at, end) {
                    break;
                }
                at = sys::first_data(&source, at).unwrap_or(at);
                let hole = sys::first_hole(&source, at).filter(|&hole| hole > at);
                let bytes = hole.unwrap_or(end).min(end).min(at + PART_BYTES) - at;
                source.seek(SeekFrom::Start(at))?;
                file.seek(SeekFrom::Start(at))?;
                match io::copy(&mut (&mut source).take(bytes), &mut file)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    copied => at += copied,
                }
            }
        }
        self.put_xattrs(number, &file, &of.entry.xattrs);
        file.set_permissions(found.permissions())?;
        file.set_modified(found.modified()?)
    }
}

/// Returns the bytes written but not fetched: copies of files with further names.
pub(super) fn copied_bytes(index: &Index, unchanged: &Unchanged, links: bool) -> u64 {
    if links || index.counts().hard_links == 0 {
        return 0;
    }
    let copies = copies(index, unchanged);
    let mut bytes = 0u64;
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        if let Some(&count) = copies.get(&item.number) {
            bytes = bytes.saturating_add(item.range().len().saturating_mul(count));
        }
    }
    bytes
}

/// Returns how many further names to make, for each file that has any.
fn copies(index: &Index, unchanged: &Unchanged) -> HashMap<u64, u64> {
    let mut copies = HashMap::new();
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        if let Kind::HardLink(of) = item.entry.kind
            && !unchanged.has(item.number)
        {
            *copies.entry(of).or_insert(0) += 1;
        }
    }
    copies
}

/// Opens a file of ours whose mode may forbid even us to read it.
pub(super) fn open_for_reading(
    folder: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
) -> io::Result<rustix::fd::OwnedFd> {
    match openat(folder, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {}
        other => return Ok(other?),
    }
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = found.st_mode & 0o7777;
    crate::tree::root::set_mode(folder, name, mode | 0o400)?;
    let file = openat(folder, name, flags, Mode::empty());
    crate::tree::root::set_mode(folder, name, mode)?;
    Ok(file?)
}

/// Bytes copied between two checks whether to stop.
const PART_BYTES: u64 = 64 << 20;
