//! The mark beside a partial folder: it says that a copy made that folder, and which folder it is.
//!
//! A copy of a folder includes the remains of unfinished copies in it, with their marks. So a mark
//! identifies the partial folder, and itself, by facts that no copy shares: the inode number and,
//! if the file system has it, the birth time. A mark that does not match itself was written
//! elsewhere, and nothing beside it is trusted.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags, statx};

/// What the mark beside a partial folder says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marked {
    /// There is no mark, or it is a user's own file.
    No,
    /// It was written elsewhere and came here with other files.
    Elsewhere,
    /// It was written here, for another folder.
    Another,
    /// It was written for this folder.
    This,
}

/// Writes the mark of this partial folder.
pub(super) fn write(mut mark: &File, folder: impl AsFd) -> io::Result<()> {
    let text = [TEXT, of(folder, mark)?.as_bytes()].concat();
    mark.write_all(&text)?;
    mark.sync_all()
}

/// Reads what a mark says about this partial folder.
pub(super) fn read(mark: &File, folder: impl AsFd) -> Marked {
    let mut text = Vec::new();
    let Ok(expected) = of(folder, mark) else { return Marked::No };
    if mark.take(BYTES_MAX).read_to_end(&mut text).is_err() {
        return Marked::No;
    }
    let Some(text) = text.strip_prefix(TEXT) else { return Marked::No };
    let line =
        |text: &[u8], at: usize| text.split(|&byte| byte == b'\n').nth(at).map(<[u8]>::to_vec);
    if text == expected.as_bytes() {
        Marked::This
    } else if line(text, 1) == line(expected.as_bytes(), 1) {
        Marked::Another
    } else {
        Marked::Elsewhere
    }
}

/// Returns whether a file is a mark, for any folder.
pub(in crate::tree) fn is_mark(file: &File) -> bool {
    let mut text = Vec::new();
    file.take(TEXT.len() as u64).read_to_end(&mut text).is_ok() && text == TEXT
}

/// Returns the part of a mark that identifies folder and mark.
fn of(folder: impl AsFd, mark: &File) -> io::Result<String> {
    Ok(format!("folder {}\nmark {}\n", place(folder)?, place(mark)?))
}

/// Returns an identity that a copy elsewhere does not share.
fn place(of: impl AsFd) -> io::Result<String> {
    let found = statx(of, c"", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::BTIME)?;
    let inode = found.stx_ino;
    if found.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return Ok(inode.to_string());
    }
    let made = found.stx_btime;
    Ok(format!("{inode} made {}.{:09}", made.tv_sec, made.tv_nsec))
}

/// First line of a mark.
const TEXT: &[u8] = b"the folder beside this file was made by swath cp\n";
/// Most bytes of a mark.
const BYTES_MAX: u64 = 512;
