//! Names that a file system takes for one: `Data` and `data` where it ignores case, the composed and the
//! decomposed form of `é`, a long name and its short one.
//!
//! Which names these are differs between file systems, and even between folders. So names are compared
//! twice: first by [`key`], which tells fewer names apart than file systems do, and then, only where two
//! keys are equal, by making both names in an empty folder there.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_normalizer::uts46::Uts46MapperBorrowed;
use rustix::fs::{
    AtFlags, IFlags, Mode, OFlags, StatxFlags, ioctl_getflags, mkdirat, openat, statx, unlinkat,
};
use rustix::io::Errno;
use swath_model::index::{Index, Kind};

use super::folder_cursor::{Enter, FolderCursor, split};
use super::root::{Links, Root};

/// Returns what is left of a name where letter case, Unicode form, width, invisible characters, and dots and
/// spaces at its end do not count.
pub fn key(name: &[u8]) -> Vec<u8> {
    let mut key = match str::from_utf8(name) {
        Ok(text) if !text.is_ascii() => {
            let mapper = Uts46MapperBorrowed::new();
            let is_seen = |c: &char| !matches!(c, '\u{200c}' | '\u{200d}');
            let mapped: String = mapper.map_normalize(text.chars().filter(is_seen)).collect();
            mapped.replace('ß', "ss").replace('ς', "σ").into_bytes()
        }
        // Also a name that is no text.
        _ => name.to_ascii_lowercase(),
    };
    let end = key.iter().rposition(|byte| !b". ".contains(byte)).map_or(0, |last| last + 1);
    key.truncate(end);
    key
}

/// Returns whether the file system at `path` takes other forms of its last name for the same: in other
/// letter case, or in another Unicode form. `false` if that cannot be tried. Blocks.
pub fn is_taken_for_others(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let (Some(name), Some(above)) = (name, path.ancestors().skip(1).find(|it| it.is_dir())) else {
        return false;
    };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize(name);
    let others = [&name.to_lowercase(), &name.to_uppercase(), &*decomposed];
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let is_one = |other: &str| {
        let folder = openat(rustix::fs::CWD, above, flags, Mode::empty())?;
        are_one(folder.as_fd(), name.as_bytes(), other.as_bytes())
    };
    others.into_iter().any(|other| other != name && is_one(other).unwrap_or(false))
}

/// Returns whether these two names are one in new folders of this folder.
pub(crate) fn are_one(folder: BorrowedFd<'_>, one: &[u8], other: &[u8]) -> io::Result<bool> {
    let trial = Trial::new(folder)?;
    let make = |name: &[u8]| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        openat(&trial.folder, name, flags, Mode::RUSR | Mode::WUSR)
    };
    let made = make(one).map(drop);
    let again = made.and_then(|()| make(other).map(drop));
    for name in [other, one] {
        let _ = unlinkat(&trial.folder, name, AtFlags::empty());
    }
    match again {
        Err(Errno::EXIST) => Ok(true),
        // A name that the file system refuses is an error when its file is made.
        _ => Ok(false),
    }
}

/// An empty folder to try names in. It is removed when dropped.
struct Trial<'a> {
    above: BorrowedFd<'a>,
    name: String,
    folder: OwnedFd,
}

impl Trial<'_> {
    fn new(above: BorrowedFd<'_>) -> io::Result<Trial<'_>> {
        let name = format!("{TRIAL}-{:016x}", RandomState::new().hash_one(()));
        mkdirat(above, name.as_str(), Mode::RWXU)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(above, name.as_str(), flags, Mode::empty()) {
            Ok(folder) => Ok(Trial { above, name, folder }),
            Err(error) => {
                let _ = unlinkat(above, name.as_str(), AtFlags::REMOVEDIR);
                Err(error.into())
            }
        }
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        let _ = unlinkat(self.above, self.name.as_str(), AtFlags::REMOVEDIR);
    }
}

/// Two paths of a tree that a file system takes for one.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The names of a tree, compared in the order of its index, as far as that is known.
#[derive(Debug, Default)]
pub(crate) struct Names {
    hasher: RandomState,
    /// The number of the next entry.
    next: u64,
    /// The open folders, innermost last; the first is the tree's own.
    folders: Vec<Seen>,
}

/// The names seen in a folder.
#[derive(Debug, Default)]
struct Seen {
    /// The numbers of the entries by the hashes of their keys.
    numbers: HashMap<u64, u64>,
    /// Entries whose names look like the short names that a file system makes for long ones.
    short: Vec<u64>,
}

impl Names {
    /// Returns whether the entries before this number have been compared.
    pub fn are_compared(&self, end: u64) -> bool {
        self.next >= end
    }

    /// Compares the names of the entries before this number with those before them. Returns the pairs that
    /// are one in a folder: of many, the first.
    pub fn compare(&mut self, index: &Index, end: u64, place: &mut Place<'_>) -> Vec<Pair> {
        let mut pairs = Vec::new();
        if self.folders.is_empty() {
            self.folders.push(Seen::default());
        }
        let path_of = |number| index.cursor_from(number).next().map(|item| item.path.to_vec());
        let mut cursor = index.cursor_from(self.next);
        while let Some(item) = cursor.next().filter(|item| item.number < end) {
            self.next = item.number + 1;
            let open = self.folders.len().saturating_sub(item.entry.leaves).max(1);
            self.folders.truncate(open);
            let Some(seen) = self.folders.last_mut() else { continue };
            let name = item.entry.name;
            let before = seen.numbers.insert(self.hasher.hash_one(key(name)), item.number);
            let mut others: Vec<u64> = before.into_iter().collect();
            if is_short(name) {
                seen.short.push(item.number);
                if place.has_short_names() {
                    others.extend(seen.numbers.values().filter(|&&other| other != item.number));
                }
            } else if !seen.short.is_empty() && place.has_short_names() {
                others.extend(&seen.short);
            }
            for other in others.into_iter().filter_map(path_of) {
                if pairs.len() < PAIRS_MAX && place.takes_for_one(&other, item.path) {
                    pairs.push((other, item.path.to_vec()));
                }
            }
            if item.entry.kind == Kind::Folder {
                self.folders.push(Seen::default());
            }
        }
        pairs
    }
}

/// Where the names of a tree are to be made.
pub(crate) struct Place<'a> {
    /// A folder for trials.
    folder: BorrowedFd<'a>,
    /// The destination, if it exists: folders in it may have rules of their own.
    destination: Option<&'a Root>,
    ignores_case: Option<bool>,
    has_short_names: Option<bool>,
}

impl<'a> Place<'a> {
    pub fn new(folder: BorrowedFd<'a>, destination: Option<&'a Root>) -> Place<'a> {
        Place { folder, destination, ignores_case: None, has_short_names: None }
    }

    fn are_one(&self, one: &[u8], other: &[u8]) -> bool {
        are_one(self.folder, one, other).unwrap_or(false)
    }

    fn has_short_names(&mut self) -> bool {
        let found = self.has_short_names;
        found.unwrap_or_else(|| {
            *self.has_short_names.insert(self.are_one(b"swath trial.long name", b"SWATHT~1.LON"))
        })
    }

    /// Returns whether two paths in one folder are one.
    fn takes_for_one(&mut self, one: &[u8], other: &[u8]) -> bool {
        let (above, name) = split(other);
        let (_, before) = split(one);
        let differ_in_case = name.eq_ignore_ascii_case(before);
        // Folders of other systems may lie in the destination, each with a mark of its own.
        let has_same_key = differ_in_case || key(name) == key(before);
        let is_marked = |root: &Root| {
            let folder = root.folder(above, Links::Refuse)?;
            Ok::<bool, Errno>(ioctl_getflags(folder)?.contains(CASEFOLD))
        };
        if has_same_key && self.destination.is_some_and(|root| is_marked(root).unwrap_or(false)) {
            return true;
        }
        match (differ_in_case, has_same_key) {
            (true, _) => self
                .ignores_case
                .unwrap_or_else(|| *self.ignores_case.insert(self.are_one(before, name))),
            (false, true) => self.are_one(before, name),
            // Which number a short name gets depends on what was there before.
            (false, false) => match (first_short(before), first_short(name)) {
                (Some(short), None) => self.are_one(name, &short),
                (None, Some(short)) => self.are_one(before, &short),
                _ => false,
            },
        }
    }
}

/// Finds entries of an index under the other spellings that they have at a destination.
pub(super) struct Spellings<'a> {
    index: &'a Index,
    folders: Option<FolderCursor>,
    hasher: RandomState,
    /// The numbers of the entries by the hashes of the keys of their paths, once needed.
    numbers: Option<HashMap<u64, u64>>,
}

/// What tells files apart where a file system that ignores case does not tell their inodes.
type Look = (u16, u64, i64, u32);

impl<'a> Spellings<'a> {
    pub fn new(index: &'a Index, destination: Option<&Root>) -> Spellings<'a> {
        let root = destination.filter(|_| index.entries() > 0);
        let folders = root.map(|root| FolderCursor::new(root, Enter::Look));
        Spellings { index, folders, hasher: RandomState::new(), numbers: None }
    }

    /// Returns whether this path of the destination, which is not in the index, is an entry of it in another
    /// spelling. Ask in the order of an index.
    pub fn has(&mut self, path: &[u8]) -> bool {
        let (above, name) = split(path);
        let Some(there) = self.look(above, name) else { return false };
        match in_other_case(name) {
            Some(other) if self.look(above, &other) != Some(there) => return false,
            // It has one form only.
            None if name.is_ascii() => return false,
            _ => {}
        }
        let hash = |path: &[u8]| {
            let keys: Vec<_> = path.split(|&byte| byte == b'/').map(key).collect();
            self.hasher.hash_one(keys)
        };
        let numbers = self.numbers.get_or_insert_with(|| {
            let (mut numbers, mut cursor) = (HashMap::new(), self.index.cursor());
            while let Some(item) = cursor.next() {
                numbers.insert(hash(item.path), item.number);
            }
            numbers
        });
        let Some(&number) = numbers.get(&hash(path)) else { return false };
        let Some(item) = self.index.cursor_from(number).next().map(|item| item.path.to_vec())
        else {
            return false;
        };
        let (above, name) = split(&item);
        self.look(above, name) == Some(there)
    }

    fn look(&mut self, above: &[u8], name: &[u8]) -> Option<Look> {
        let folder = self.folders.as_mut()?.to(above).ok()??;
        let found = statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS).ok()?;
        let mtime = found.stx_mtime;
        Some((found.stx_mode, found.stx_size, mtime.tv_sec, mtime.tv_nsec))
    }
}

/// Returns a name with the other case of each letter, if it has any.
fn in_other_case(name: &[u8]) -> Option<Vec<u8>> {
    let other: String = str::from_utf8(name)
        .ok()?
        .chars()
        .map(|c| match c.is_uppercase() {
            true => c.to_lowercase().to_string(),
            false => c.to_uppercase().to_string(),
        })
        .collect();
    (other.as_bytes() != name).then(|| other.into_bytes())
}

/// Returns whether a name may be a short one that a file system makes for a long one, such as `LONGNA~1.TXT`.
fn is_short(name: &[u8]) -> bool {
    first_short(name).is_some()
}

/// Returns the first short name of this form.
fn first_short(name: &[u8]) -> Option<Vec<u8>> {
    let dot = name.iter().position(|&byte| byte == b'.').unwrap_or(name.len());
    let (base, ending) = name.split_at(dot);
    let tilde = base.iter().rposition(|&byte| byte == b'~')?;
    let (start, number) = (base.get(..tilde)?, base.get(tilde + 1..)?);
    let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    let fits = (1..=8).contains(&base.len()) && !start.is_empty() && ending.len() <= 4;
    (fits && is_number).then(|| [start, b"~1", ending].concat())
}

/// Marks a folder that ignores case (`FS_CASEFOLD_FL` of `linux/fs.h`; ext4, F2FS).
const CASEFOLD: IFlags = IFlags::from_bits_retain(0x4000_0000);
/// How the names of folders for trials begin; copies leave such names out.
const TRIAL: &str = ".swath-stage.swath.names";
/// The most pairs that an error lists.
const PAIRS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use swath_model::index::{Entry, Mtime, Xattrs};

    use super::*;

    #[test]
    fn keys_are_equal_wherever_a_file_system_could_take_names_for_one() {
        for (one, other) in [
            ("Data", "dATA"),
            ("\u{e9}", "E\u{301}"),
            ("Stra\u{df}e", "STRASSE"),
            ("\u{3a3}\u{3a3}", "\u{3c3}\u{3c2}"),
            ("\u{1e9e}", "ss"),
            ("\u{212b}", "a\u{30a}"),
            ("a\u{200d}b", "AB"),
            ("name", "Name. ."),
            ("\u{ff21}", "a"),
        ] {
            assert_eq!(key(one.as_bytes()), key(other.as_bytes()), "{one} {other}");
        }
        assert_eq!(key(b"\xff\xfeA"), key(b"\xff\xfea"));
        let names = ["a", "b", "a b", "ab", "\u{e9}", "e", "\u{e8}", ".a", "a.b", "...", "#", "?"];
        for (at, one) in names.iter().enumerate() {
            for other in &names[at + 1..] {
                assert_ne!(key(one.as_bytes()), key(other.as_bytes()), "{one} {other}");
            }
        }
    }

    #[test]
    fn short_names_are_told_from_others() {
        for name in ["LONGNA~1.TXT", "a~1", "LO12AB~1", "MICROS~12.H", "x~3."] {
            assert!(is_short(name.as_bytes()) == (name != "MICROS~12.H"), "{name}");
        }
        for name in ["~1", "a~", "a~b", "notes.txt~", "averylong~1", "a~1.html", "a", ""] {
            assert!(!is_short(name.as_bytes()), "{name}");
        }
        assert_eq!(first_short(b"LONGNA~7.TXT").unwrap(), b"LONGNA~1.TXT");
    }

    #[test]
    fn names_are_compared_in_their_own_folders_as_the_index_grows() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut index = Index::new();
        let mut add = |leaves, name: &str, kind| {
            let mtime = Mtime { seconds: 0, nanoseconds: 0 };
            let xattrs = Xattrs::default();
            index
                .push(&Entry { leaves, name: name.as_bytes(), mode: 0o644, mtime, kind, xattrs })
                .unwrap();
        };
        let file = || Kind::File { size_bytes: 1, extents: Default::default() };
        add(0, "Sub", Kind::Folder);
        add(0, "A", file());
        add(0, "a", file());
        add(0, "deep", Kind::Folder);
        add(0, "a", file());
        add(2, "sub", Kind::Folder);
        add(0, "b", file());
        let compare = |ends: &[u64], ignores_case| {
            let (mut names, mut pairs) = (Names::default(), Vec::new());
            let mut place = Place::new(root.fd().as_fd(), None);
            place.ignores_case = ignores_case;
            for &end in ends {
                pairs.push(names.compare(&index, end, &mut place));
            }
            pairs
        };
        let pair = |one: &str, other: &str| (one.as_bytes().to_vec(), other.as_bytes().to_vec());
        let (inner, outer) = (pair("Sub/A", "Sub/a"), pair("Sub", "sub"));
        assert_eq!(compare(&[7], Some(true)), [vec![inner.clone(), outer.clone()]]);
        let by_parts = [vec![], vec![inner], vec![], vec![outer], vec![]];
        assert_eq!(compare(&[2, 4, 5, 6, 7], Some(true)), by_parts);
        // What this file system says is what it does.
        let is_one = are_one(root.fd().as_fd(), b"x", b"X").unwrap();
        assert_eq!(compare(&[7], None)[0].is_empty(), !is_one);
        std::fs::write(dir.path().join("x"), "").unwrap();
        assert_eq!(dir.path().join("X").exists(), is_one);
        assert_eq!(is_taken_for_others(&dir.path().join("none/y")), is_one);
        std::fs::remove_file(dir.path().join("x")).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
