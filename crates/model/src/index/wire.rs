//! The encoding of an entry, and its rules.
//!
//! Each entry has only one encoding, and reading refuses every other one: that makes the index
//! canonical. Numbers are LEB128 varints of the least length. A record:
//!
//! ```text
//! head      1 byte: bits 0–2 the kind, bit 3 a mode follows, bit 4 extents follow, bit 5
//!           extended attributes follow
//! leaves    varint: folders to leave
//! name      varint length, bytes
//! mode      varint, only if it differs from that of the last entry of the kind
//! mtime     zigzag varint: seconds after the last entry that has one; varint nanoseconds
//! the kind  file: varint size, and extents: varint count, then (varint gap, varint length) each
//!           folder: nothing   link: varint length, target   hard link: varint entries back
//!           absent: 1 byte reason
//! xattrs    varint, only if there are any: 0 unknown, else the number of a set, from 1 in the
//!           order of first use; a new set follows here: varint count, and for each
//!           varint length, name without "user.", varint length, value
//! ```
//!
//! Hard links and absent entries have neither mode nor mtime.

use super::entry::{Absence, Entry, Extent, Kind, Mtime};
use super::error::IndexError;
use super::xattrs::{StoredXattrs, Xattrs};

/// First bytes of an index.
pub const MAGIC: &[u8; 8] = b"swathidx";
/// Version of the format that this program writes and reads.
pub const FORMAT_VERSION: u8 = 1;
/// Longest name of an entry: the limit of Linux.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path of an entry, in bytes. Longer than any system call accepts: trees are walked folder
/// by folder.
pub const PATH_BYTES_MAX: usize = 1 << 16;
/// Longest record: a file of [`EXTENTS_MAX`] extents with the most extended attributes.
pub const RECORD_BYTES_MAX: usize = 4 << 20;
/// Most extents of a file. A file with more is listed as if it had no holes.
pub const EXTENTS_MAX: usize = 200_000;

/// Longest target of a symbolic link: the limit of Linux.
const TARGET_BYTES_MAX: usize = 4095;
const MODE_MAX: u32 = 0o7777;

const END: u8 = 0;
const FILE: u8 = 1;
const FOLDER: u8 = 2;
const SYMLINK: u8 = 3;
const HARD_LINK: u8 = 4;
const ABSENT: u8 = 5;
const KIND_BITS: u8 = 0b111;
const HAS_MODE: u8 = 1 << 3;
const HAS_EXTENTS: u8 = 1 << 4;
const HAS_XATTRS: u8 = 1 << 5;

/// Size from which a file begins at a multiple of [`ALIGN_BYTES`] in the virtual file. (Smaller
/// ones are written through the page cache, where it does not matter.)
pub(super) const ALIGNED_FROM_BYTES: u64 = 1 << 20;
/// One page.
pub(super) const ALIGN_BYTES: u64 = 4096;

/// The context in which the next record is read or written: the state left by earlier entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Context {
    /// The path of the last entry, with `/` between components; empty at the beginning.
    pub path: Vec<u8>,
    /// Whether the last entry is a folder. The root is one.
    pub in_folder: bool,
    /// The last mode of each kind that has one.
    modes: [u32; 3],
    mtime_s: i64,
    /// Number of the next entry.
    pub number: u64,
    /// Number of sets of extended attributes so far.
    sets: u64,
    /// End of the last bytes so far.
    pub end: u64,
}

impl Context {
    pub fn new() -> Context {
        let modes = [0o644, 0o755, 0o777];
        let (mtime_s, number, sets, end) = (0, 0, 0, 0);
        Context { path: Vec::new(), in_folder: true, modes, mtime_s, number, sets, end }
    }

    /// Returns where in the path the folder ends that contains an entry with this many leaves;
    /// `None` if there are not so many folders.
    fn folder_end(&self, leaves: usize) -> Option<usize> {
        let up = leaves.checked_add(usize::from(!self.in_folder))?;
        let mut end = self.path.len();
        for _ in 0..up {
            if end == 0 {
                return None;
            }
            end = self.path[..end].iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        }
        Some(end)
    }

    /// Checks the place of an entry and moves there. Returns where its virtual bytes begin.
    fn enter(&mut self, entry: &Entry<'_>, is_file: IsFile<'_>) -> Result<u64, &'static str> {
        check_name(entry.name)?;
        let folder_end =
            self.folder_end(entry.leaves).ok_or("leaves more folders than there are")?;
        // The component after the folder, if any, is the previous sibling.
        let after = &self.path[folder_end..];
        let after = after.strip_prefix(b"/").unwrap_or(after);
        let sibling = after.split(|&byte| byte == b'/').next().unwrap_or_default();
        if entry.name <= sibling {
            return Err("is out of order");
        }
        let bytes = check_kind(entry, self.number, is_file)?;
        if entry.xattrs != Xattrs::None && !matches!(entry.kind, Kind::File { .. } | Kind::Folder) {
            return Err("has extended attributes that it cannot have");
        }
        let aligned = match entry.kind {
            Kind::File { .. } if bytes >= ALIGNED_FROM_BYTES => {
                self.end.checked_next_multiple_of(ALIGN_BYTES)
            }
            _ => Some(self.end),
        };
        let start = aligned.ok_or(TOO_LARGE)?;
        let end = start.checked_add(bytes).filter(|&end| end <= VIRTUAL_BYTES_MAX);
        let end = end.ok_or(TOO_LARGE)?;
        if folder_end + 1 + entry.name.len() > PATH_BYTES_MAX {
            return Err("has a longer path than can be");
        }
        self.path.truncate(folder_end);
        if folder_end > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(entry.name);
        self.end = end;
        self.in_folder = entry.kind == Kind::Folder;
        self.number += 1;
        Ok(start)
    }

    fn mode_of(&mut self, kind: u8) -> Option<&mut u32> {
        self.modes.get_mut(usize::from(kind).checked_sub(usize::from(FILE))?)
    }
}

/// Returns whether the entry of an earlier number is a regular file.
pub(super) type IsFile<'a> = &'a dyn Fn(u64) -> bool;

const TOO_LARGE: &str = "makes the dataset larger than can be";
/// File offsets are signed in the kernel.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Offsets in the virtual file fit into the kernel's signed ones.
const VIRTUAL_BYTES_MAX: u64 = i64::MAX as u64 - (1 << 40);

fn check_name(name: &[u8]) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err("has a name of no possible length");
    }
    if name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err("has a name that is no name");
    }
    Ok(())
}

/// Returns the bytes that an entry has in the virtual file, if it is valid.
fn check_kind(entry: &Entry<'_>, number: u64, is_file: IsFile<'_>) -> Result<u64, &'static str> {
    let bare = matches!(entry.kind, Kind::HardLink(_) | Kind::Absent(_));
    if entry.mode > MODE_MAX || (bare && entry.mode != 0) {
        return Err("has a mode that is none");
    }
    if entry.mtime.nanoseconds >= 1_000_000_000 || (bare && entry.mtime != Mtime::default()) {
        return Err("has a time that is none");
    }
    match &entry.kind {
        Kind::File { size_bytes, .. } if *size_bytes > FILE_BYTES_MAX => {
            Err("has a size that no file can have")
        }
        Kind::File { size_bytes, extents: None } => Ok(*size_bytes),
        Kind::File { extents: Some(extents), .. } if extents.len() > EXTENTS_MAX => {
            Err("has more extents than can be")
        }
        Kind::File { size_bytes, extents: Some(extents) } => {
            let (mut end, mut bytes) = (0u64, 0);
            for (at, extent) in extents.iter().enumerate() {
                if extent.bytes == 0 || extent.offset < end || (at > 0 && extent.offset == end) {
                    return Err("has extents that are none");
                }
                end = extent.offset.checked_add(extent.bytes).ok_or(TOO_LARGE)?;
                bytes += extent.bytes;
            }
            // A single extent of the whole file stands for holes too small to report.
            let is_all = bytes == *size_bytes && (bytes == 0 || extents.len() > 1);
            if end > *size_bytes || is_all {
                return Err("has extents that are none");
            }
            Ok(bytes)
        }
        Kind::Symlink(target)
            if target.is_empty() || target.len() > TARGET_BYTES_MAX || target.contains(&0) =>
        {
            Err("is a link to nothing that can be")
        }
        Kind::HardLink(of) if *of >= number => Err("is another name of no earlier one"),
        Kind::HardLink(of) if !is_file(*of) => Err("is another name of what is no file"),
        _ => Ok(0),
    }
}

/// Appends an entry, with its extended attributes as in `told`; returns where its bytes begin in
/// the virtual file.
pub(super) fn write(
    entry: &Entry<'_>,
    told: StoredXattrs<'_>,
    context: &mut Context,
    is_file: IsFile<'_>,
    out: &mut Vec<u8>,
) -> Result<u64, &'static str> {
    let (kind, number) = (kind_code(&entry.kind), context.number);
    let start = context.enter(entry, is_file)?;
    let has_extents = matches!(entry.kind, Kind::File { extents: Some(_), .. });
    let mut head = kind | if has_extents { HAS_EXTENTS } else { 0 };
    let new_mode = context.mode_of(kind).filter(|known| **known != entry.mode).map(|known| {
        *known = entry.mode;
        entry.mode
    });
    head |= if new_mode.is_some() { HAS_MODE } else { 0 };
    head |= if told == StoredXattrs::None { 0 } else { HAS_XATTRS };
    out.push(head);
    put(out, entry.leaves as u64);
    put_bytes(out, entry.name);
    if let Some(mode) = new_mode {
        put(out, u64::from(mode));
    }
    if kind <= SYMLINK {
        put(out, zigzag(entry.mtime.seconds.wrapping_sub(context.mtime_s)));
        put(out, u64::from(entry.mtime.nanoseconds));
        context.mtime_s = entry.mtime.seconds;
    }
    let extents = match &entry.kind {
        Kind::File { extents, .. } => extents.as_deref(),
        _ => None,
    };
    write_kind(&entry.kind, extents, number, out);
    match told {
        StoredXattrs::None => {}
        StoredXattrs::Unknown => put(out, 0),
        StoredXattrs::Earlier(set) => put(out, set + 1),
        StoredXattrs::New(bytes) => {
            context.sets += 1;
            put(out, context.sets);
            out.extend_from_slice(bytes);
        }
    }
    Ok(start)
}

/// Appends an entry's part of the layout: all but modes, times, extended attributes, and whether
/// there are small holes.
pub(super) fn write_layout(entry: &Entry<'_>, number: u64, out: &mut Vec<u8>) {
    out.push(kind_code(&entry.kind));
    put(out, entry.leaves as u64);
    put_bytes(out, entry.name);
    write_kind(&entry.kind, entry.kind.told_extents(), number, out);
}

fn write_kind(kind: &Kind, extents: Option<&[Extent]>, number: u64, out: &mut Vec<u8>) {
    match kind {
        Kind::File { size_bytes, .. } => {
            put(out, *size_bytes);
            if let Some(extents) = extents {
                put(out, extents.len() as u64);
                let mut end = 0;
                for extent in extents {
                    put(out, extent.offset - end);
                    put(out, extent.bytes);
                    end = extent.offset + extent.bytes;
                }
            }
        }
        Kind::Folder => {}
        Kind::Symlink(target) => put_bytes(out, target),
        Kind::HardLink(of) => put(out, number - of),
        Kind::Absent(absence) => out.push(absence.code()),
    }
}

/// Appends the end of an index.
pub(super) fn write_end(entries: u64, size_bytes: u64, digest: &[u8; 32], out: &mut Vec<u8>) {
    out.push(END);
    put(out, entries);
    put(out, size_bytes);
    out.extend_from_slice(digest);
}

/// The content of an index's end: entries, bytes, digest. `None` if more bytes are needed.
pub(super) type EndSays = Option<(u64, u64, [u8; 32])>;

/// Reads the end of an index; `Err` if more bytes follow it.
pub(super) fn read_end(bytes: &[u8]) -> Result<EndSays, IndexError> {
    let mut rest = Bytes { rest: bytes };
    let mut read = || -> Result<_, Broken> {
        rest.byte()?;
        let (entries, size_bytes) = (rest.number()?, rest.number()?);
        let (digest, after) = rest.rest.split_first_chunk::<32>().ok_or(Broken::CutOff)?;
        Ok((entries, size_bytes, *digest, after.len()))
    };
    match read() {
        Ok((entries, size_bytes, digest, 0)) => Ok(Some((entries, size_bytes, digest))),
        Ok(_) => Err(IndexError::Trailing),
        Err(Broken::CutOff) => Ok(None),
        Err(Broken::Rule(_)) => Err(IndexError::Damaged { what: "end" }),
    }
}

fn kind_code(kind: &Kind) -> u8 {
    match kind {
        Kind::File { .. } => FILE,
        Kind::Folder => FOLDER,
        Kind::Symlink(_) => SYMLINK,
        Kind::HardLink(_) => HARD_LINK,
        Kind::Absent(_) => ABSENT,
    }
}

/// What some bytes begin with.
pub(super) enum Read<'a> {
    /// A record of `length` bytes, whose own bytes begin at `start` in the virtual file. `told`
    /// refers to the entry's extended attributes; the entry itself has none.
    Entry { entry: Entry<'a>, start: u64, length: usize, told: StoredXattrs<'a> },
    /// The mark of the end.
    End,
    /// More bytes are needed to tell.
    CutOff,
}

/// Reads the record at the beginning of `bytes`.
pub(super) fn read<'a>(
    bytes: &'a [u8],
    context: &mut Context,
    is_file: IsFile<'_>,
) -> Result<Read<'a>, &'static str> {
    let mut rest = Bytes { rest: bytes };
    match read_entry(&mut rest, context) {
        Ok(None) => Ok(Read::End),
        Ok(Some((entry, told))) => {
            let length = bytes.len() - rest.rest.len();
            if let Some(known) = context.mode_of(kind_code(&entry.kind)) {
                *known = entry.mode;
            }
            if kind_code(&entry.kind) <= SYMLINK {
                context.mtime_s = entry.mtime.seconds;
            }
            let start = context.enter(&entry, is_file)?;
            context.sets += u64::from(matches!(told, StoredXattrs::New(_)));
            Ok(Read::Entry { entry, start, length, told })
        }
        Err(Broken::CutOff) if bytes.len() > RECORD_BYTES_MAX => Err("is longer than can be"),
        Err(Broken::CutOff) => Ok(Read::CutOff),
        Err(Broken::Rule(what)) => Err(what),
    }
}

fn read_entry<'a>(
    bytes: &mut Bytes<'a>,
    context: &mut Context,
) -> Result<Option<(Entry<'a>, StoredXattrs<'a>)>, Broken> {
    let head = bytes.byte()?;
    if head == END {
        return Ok(None);
    }
    let kind = head & KIND_BITS;
    let allowed = match kind {
        FILE => HAS_MODE | HAS_EXTENTS | HAS_XATTRS,
        FOLDER => HAS_MODE | HAS_XATTRS,
        SYMLINK => HAS_MODE,
        HARD_LINK | ABSENT => 0,
        _ => return Err(Broken::Rule("is of no kind")),
    };
    if head & !KIND_BITS & !allowed != 0 {
        return Err(Broken::Rule("has a head that is none"));
    }
    let leaves = usize::try_from(bytes.number()?).map_err(|_| Broken::Rule(TOO_MANY))?;
    let name = bytes.counted(NAME_BYTES_MAX)?;
    let known_mode = context.mode_of(kind).map_or(0, |known| *known);
    let mode = if head & HAS_MODE != 0 {
        let mode = u32::try_from(bytes.number()?).unwrap_or(u32::MAX);
        if mode == known_mode {
            return Err(Broken::Rule("says its mode again"));
        }
        mode
    } else {
        known_mode
    };
    let mtime = if kind <= SYMLINK {
        let seconds = context.mtime_s.wrapping_add(unzigzag(bytes.number()?));
        let nanoseconds = u32::try_from(bytes.number()?).unwrap_or(u32::MAX);
        Mtime { seconds, nanoseconds }
    } else {
        Mtime::default()
    };
    let kind = match kind {
        FILE => Kind::File {
            size_bytes: bytes.number()?,
            extents: (head & HAS_EXTENTS != 0).then(|| bytes.extents()).transpose()?,
        },
        FOLDER => Kind::Folder,
        SYMLINK => Kind::Symlink(bytes.counted(TARGET_BYTES_MAX)?.to_vec()),
        HARD_LINK => {
            let back = bytes.number()?;
            let of = context.number.checked_sub(back).ok_or(Broken::Rule("goes back too far"))?;
            Kind::HardLink(of)
        }
        _ => {
            let absence = Absence::of_code(bytes.byte()?);
            Kind::Absent(absence.ok_or(Broken::Rule("is absent for no reason"))?)
        }
    };
    let told = match head & HAS_XATTRS {
        0 => StoredXattrs::None,
        _ => match bytes.number()? {
            0 => StoredXattrs::Unknown,
            set if set <= context.sets => StoredXattrs::Earlier(set - 1),
            set if set == context.sets + 1 => StoredXattrs::New(bytes.xattrs()?),
            _ => return Err(Broken::Rule("has extended attributes that nobody told")),
        },
    };
    Ok(Some((Entry { leaves, name, kind, mode, mtime, xattrs: Xattrs::None }, told)))
}

const TOO_MANY: &str = "has a number that is too large";

/// Why bytes are not a valid record.
pub(super) enum Broken {
    CutOff,
    Rule(&'static str),
}

/// Reads bytes from the front.
pub(super) struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub fn of(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes { rest: bytes }
    }

    /// Returns the bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn byte(&mut self) -> Result<u8, Broken> {
        let (&first, rest) = self.rest.split_first().ok_or(Broken::CutOff)?;
        self.rest = rest;
        Ok(first)
    }

    pub fn number(&mut self) -> Result<u64, Broken> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(Broken::Rule(TOO_MANY));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(Broken::Rule("has a number that is longer than it need be"));
                }
                return Ok(value);
            }
        }
        Err(Broken::Rule(TOO_MANY))
    }

    pub fn counted(&mut self, most: usize) -> Result<&'a [u8], Broken> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if length > most {
            return Err(Broken::Rule("has something in it that is too long"));
        }
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Broken::CutOff)?;
        self.rest = rest;
        Ok(taken)
    }

    fn extents(&mut self) -> Result<Vec<Extent>, Broken> {
        let count = self.number()?;
        if count > EXTENTS_MAX as u64 {
            return Err(Broken::Rule("has more extents than can be"));
        }
        // Do not reserve memory for data that has not arrived.
        let mut extents = Vec::new();
        let mut end = 0u64;
        for _ in 0..count {
            let (gap, bytes) = (self.number()?, self.number()?);
            let offset = end.checked_add(gap).ok_or(Broken::Rule(TOO_LARGE))?;
            end = offset.checked_add(bytes).ok_or(Broken::Rule(TOO_LARGE))?;
            extents.push(Extent { offset, bytes });
        }
        Ok(extents)
    }
}

pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
