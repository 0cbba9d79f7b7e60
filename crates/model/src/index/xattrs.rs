//! Extended attributes of an entry, and the table of all that an index holds.
//!
//! Only names that begin with `user.` have a place in an index, and the prefix is not written: so
//! no index can create another kind of attribute, which would be a right or a capability. Trees
//! have few different sets of attributes, so each set is written once and then referred to by
//! number.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::wire::{Broken, Bytes, put, put_bytes};

/// Prefix of every name that an index can hold; it is left out there.
pub const XATTR_PREFIX: &[u8] = b"user.";
/// Longest value: the limit of Linux.
pub const XATTR_VALUE_BYTES_MAX: usize = 1 << 16;
/// Largest encoded set. Most file systems keep a few KiB per file.
pub const XATTRS_BYTES_MAX: usize = 1 << 20;

/// Longest name without its prefix: Linux accepts 255 bytes with it.
const NAME_BYTES_MAX: usize = 255 - XATTR_PREFIX.len();
/// All names of a file, each with its prefix and a NUL: the most that Linux lists.
const LIST_BYTES_MAX: usize = 1 << 16;

/// The extended attributes of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Xattrs<'a> {
    /// It has none, or they were not requested.
    #[default]
    None,
    /// It has some that are unknown: unreadable, or more than an index holds.
    Unknown,
    /// These.
    Set(XattrSet<'a>),
}

/// At least one extended attribute, ordered by name, in the only encoding of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrSet<'a> {
    bytes: Cow<'a, [u8]>,
}

impl Xattrs<'static> {
    /// Returns a set of names (without their prefix) and values. Names come in any order.
    pub fn of(mut all: Vec<(Vec<u8>, Vec<u8>)>) -> Xattrs<'static> {
        if all.is_empty() {
            return Xattrs::None;
        }
        all.sort_unstable();
        let mut bytes = Vec::new();
        put(&mut bytes, all.len() as u64);
        for (name, value) in &all {
            put_bytes(&mut bytes, name);
            put_bytes(&mut bytes, value);
        }
        match Bytes::of(&bytes).xattrs() {
            Ok(_) => Xattrs::Set(XattrSet { bytes: Cow::Owned(bytes) }),
            Err(_) => Xattrs::Unknown,
        }
    }
}

impl Xattrs<'_> {
    /// Returns the same without the borrow.
    pub fn into_owned(self) -> Xattrs<'static> {
        match self {
            Xattrs::None => Xattrs::None,
            Xattrs::Unknown => Xattrs::Unknown,
            Xattrs::Set(set) => Xattrs::Set(XattrSet { bytes: Cow::Owned(set.bytes.into_owned()) }),
        }
    }

    /// Returns the memory that they take beside themselves, in bytes.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Xattrs::Set(set) => set.bytes.len(),
            Xattrs::None | Xattrs::Unknown => 0,
        }
    }
}

impl XattrSet<'_> {
    /// Returns names (without their prefix) and values, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = Bytes::of(&self.bytes);
        let count = rest.number().unwrap_or(0);
        (0..count).map_while(move |_| rest.xattr().ok())
    }

    /// Returns the value of this name, given without its prefix.
    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|&(known, _)| known == name).map(|(_, value)| value)
    }
}

impl<'a> Bytes<'a> {
    fn xattr(&mut self) -> Result<(&'a [u8], &'a [u8]), Broken> {
        Ok((self.counted(NAME_BYTES_MAX)?, self.counted(XATTR_VALUE_BYTES_MAX)?))
    }

    /// Reads an encoded set.
    pub(super) fn xattrs(&mut self) -> Result<&'a [u8], Broken> {
        let begin = self.rest();
        let count = self.number()?;
        if count == 0 {
            return Err(Broken::Rule("tells extended attributes that are none"));
        }
        let (mut list_bytes, mut last): (usize, Option<&[u8]>) = (0, None);
        for _ in 0..count {
            let (name, _) = self.xattr()?;
            if name.is_empty() || name.contains(&0) {
                return Err(Broken::Rule("has an extended attribute whose name is none"));
            }
            if last.is_some_and(|last| name <= last) {
                return Err(Broken::Rule("has extended attributes out of order"));
            }
            last = Some(name);
            list_bytes += XATTR_PREFIX.len() + name.len() + 1;
            let bytes = begin.len() - self.rest().len();
            if list_bytes > LIST_BYTES_MAX || bytes > XATTRS_BYTES_MAX {
                return Err(Broken::Rule("has more extended attributes than can be"));
            }
        }
        Ok(&begin[..begin.len() - self.rest().len()])
    }
}

/// A record's form of its entry's extended attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredXattrs<'a> {
    /// The entry has none.
    None,
    Unknown,
    /// The set of an earlier entry, by number from zero.
    Earlier(u64),
    /// A new set.
    New(&'a [u8]),
}

/// All sets of an index, by where each is written.
#[derive(Debug, Default)]
pub(super) struct Sets {
    locations: Vec<Location>,
    /// The number of the set with each digest.
    numbers: BTreeMap<[u8; KEY_BYTES], u32>,
}

#[derive(Clone, Copy, Debug)]
struct Location {
    chunk: u32,
    at: u32,
    length: u32,
}

impl Sets {
    /// Returns how a record writes these attributes.
    pub fn told<'x>(&self, xattrs: &'x Xattrs<'_>) -> StoredXattrs<'x> {
        match xattrs {
            Xattrs::None => StoredXattrs::None,
            Xattrs::Unknown => StoredXattrs::Unknown,
            Xattrs::Set(set) => match self.find(&set.bytes) {
                Some(number) => StoredXattrs::Earlier(number),
                None => StoredXattrs::New(&set.bytes),
            },
        }
    }

    /// Returns the number of a set, if it was written before.
    pub fn find(&self, bytes: &[u8]) -> Option<u64> {
        if self.locations.is_empty() {
            return None;
        }
        self.numbers.get(&key(bytes)).map(|&number| number.into())
    }

    /// Adds the next set, which ends the record of `record_bytes` bytes at `at` of that chunk.
    pub fn push(&mut self, bytes: &[u8], chunk: usize, at: usize, record_bytes: usize) {
        let at = at + record_bytes - bytes.len();
        let location = Location { chunk: chunk as u32, at: at as u32, length: bytes.len() as u32 };
        self.numbers.insert(key(bytes), self.locations.len() as u32);
        self.locations.push(location);
    }

    /// Returns what a record refers to; `chunk` returns the chunks of its index.
    pub fn resolve<'i>(
        &self,
        told: StoredXattrs<'i>,
        chunk: impl Fn(usize) -> &'i [u8],
    ) -> Xattrs<'i> {
        let set = |bytes| Xattrs::Set(XattrSet { bytes: Cow::Borrowed(bytes) });
        match told {
            StoredXattrs::None => Xattrs::None,
            StoredXattrs::Unknown => Xattrs::Unknown,
            StoredXattrs::New(bytes) => set(bytes),
            StoredXattrs::Earlier(number) => {
                let location = usize::try_from(number).ok().and_then(|at| self.locations.get(at));
                let bytes = location.and_then(|location| {
                    let range = location.at as usize..(location.at + location.length) as usize;
                    chunk(location.chunk as usize).get(range)
                });
                // An index was checked when it was read.
                bytes.map_or(Xattrs::Unknown, set)
            }
        }
    }

    pub fn memory_bytes(&self) -> usize {
        let each = size_of::<([u8; KEY_BYTES], u32)>();
        self.locations.capacity() * size_of::<Location>() + self.numbers.len() * each * 3 / 2
    }
}

fn key(bytes: &[u8]) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(&blake3::hash(bytes).as_bytes()[..KEY_BYTES]);
    key
}

/// Part of a digest that no two sets share, by chance or by intent.
const KEY_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::{Entry, FORMAT_VERSION, Index, Kind, MAGIC, Mtime, Reader};
    use super::*;

    fn set(all: &[(&[u8], &[u8])]) -> Xattrs<'static> {
        Xattrs::of(all.iter().map(|&(name, value)| (name.to_vec(), value.to_vec())).collect())
    }

    fn file<'a>(name: &'a [u8], xattrs: Xattrs<'static>) -> Entry<'a> {
        let kind = Kind::File { size_bytes: 7, extents: None };
        Entry { leaves: 0, name, kind, mode: 0o644, mtime: Mtime::default(), xattrs }
    }

    fn index(files: &[(&[u8], Xattrs<'static>)]) -> Index {
        let mut index = Index::new();
        for (name, xattrs) in files {
            index.push(&file(name, xattrs.clone())).unwrap();
        }
        index
    }

    fn take(records: &[&[u8]]) -> Result<Vec<Xattrs<'static>>, String> {
        let mut index = Index::new();
        let mut reader = Reader::new(1 << 30);
        let mut bytes = MAGIC.to_vec();
        bytes.push(FORMAT_VERSION);
        bytes.extend(records.concat());
        reader.feed(&mut index, &bytes).map_err(|error| error.to_string())?;
        let mut all = Vec::new();
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            all.push(item.entry.xattrs.into_owned());
        }
        Ok(all)
    }

    /// A file of this name and no bytes that tells these extended attributes.
    fn record(name: u8, xattrs: &[u8]) -> Vec<u8> {
        [&[1 | 1 << 5, 0, 1, name, 0, 0, 0][..], xattrs].concat()
    }

    #[test]
    fn they_are_told_once_and_in_order_of_their_names() {
        let some = set(&[(b"z", b""), (b"a", b"1"), (b"a/\xff", b"\0")]);
        let Xattrs::Set(told) = &some else { panic!("{some:?}") };
        let all: Vec<_> = told.iter().collect();
        assert_eq!(all, [(&b"a"[..], &b"1"[..]), (b"a/\xff", b"\0"), (b"z", b"")]);
        assert_eq!((told.value(b"a"), told.value(b"b")), (Some(&b"1"[..]), None));
        let two = index(&[(b"a", some.clone()), (b"b", Xattrs::None), (b"c", some.clone())]);
        let one = index(&[(b"a", some.clone()), (b"b", Xattrs::None), (b"c", Xattrs::None)]);
        // The second time it is a number.
        assert_eq!(two.wire_bytes(), one.wire_bytes() + 1);
        let mut cursor = two.cursor_from(2);
        assert_eq!(cursor.next().unwrap().entry.xattrs, some);
    }

    #[test]
    fn without_them_an_index_is_what_it_was() {
        // As a program wrote it that knew nothing of them.
        let mut index = index(&[(b"a", Xattrs::None), (b"b", Xattrs::None)]);
        let name = blake3::Hash::from_bytes(index.complete().dataset).to_hex();
        assert_eq!(index.wire_from(0)[9..23], [1, 0, 1, b'a', 0, 0, 7, 1, 0, 1, b'b', 0, 0, 7]);
        assert_eq!(name.as_str(), NAME_WITHOUT);
        let name = |xattrs: Xattrs<'static>| self::index(&[(b"a", xattrs)]).complete();
        let all = [Xattrs::None, Xattrs::Unknown, set(&[(b"n", b"1")]), set(&[(b"n", b"2")])];
        for one in &all {
            for other in &all {
                let (ours, theirs) = (name(one.clone()), name(other.clone()));
                assert_eq!(ours.dataset == theirs.dataset, one == other);
                // The same bytes belong to the same files all the same.
                assert_eq!(ours.layout, theirs.layout);
            }
        }
    }

    #[test]
    fn what_is_no_set_is_refused() {
        let good: &[u8] = &[1, 2, 1, b'a', 0, 1, b'b', 1, b'v'];
        let taken = take(&[&record(b'f', good)]).unwrap();
        assert_eq!(taken, [set(&[(b"a", b""), (b"b", b"v")])]);
        assert_eq!(take(&[&record(b'f', &[0])]).unwrap(), [Xattrs::Unknown]);
        for (wrong, says) in [
            (&[1, 0][..], "are none"),
            (&[2, 1, 1, b'a', 0], "nobody told"),
            (&[1, 1, 0, 0], "whose name is none"),
            (&[1, 1, 1, 0, 0], "whose name is none"),
            (&[1, 2, 1, b'a', 0, 1, b'a', 0], "out of order"),
            (&[1, 2, 1, b'b', 0, 1, b'a', 0], "out of order"),
            (&[1, 1, 0xfb, 1], "too long"),
            (&[1, 1, 1, b'a', 0x81, 0x80, 4], "too long"),
            (&[0x81, 0], "longer than it need be"),
        ] {
            let told = take(&[&record(b'f', wrong)]).unwrap_err();
            assert!(told.contains(says), "{wrong:?}: {told}");
        }
        let again = take(&[&record(b'f', good), &record(b'g', &[&[2], &good[1..]].concat())]);
        assert!(again.unwrap_err().contains("again"));
        // A link has none, and neither have further names and what is absent.
        for head in [3, 4, 5] {
            let told = take(&[&[head | 1 << 5, 0, 1, b'x', 0, 0, 1, b't', 0]]).unwrap_err();
            assert!(told.contains("a head that is none"), "{told}");
        }
        let link = Entry { kind: Kind::Symlink(b"t".to_vec()), ..file(b"l", Xattrs::Unknown) };
        let told = Index::new().push(&link).unwrap_err().to_string();
        assert!(told.contains("cannot have"), "{told}");
    }

    #[test]
    fn so_many_that_no_index_takes_them_are_unknown() {
        let value = |bytes| vec![b'v'; bytes];
        let one = |bytes| Xattrs::of(vec![(b"n".to_vec(), value(bytes))]);
        assert!(matches!(one(XATTR_VALUE_BYTES_MAX), Xattrs::Set(_)));
        assert_eq!(one(XATTR_VALUE_BYTES_MAX + 1), Xattrs::Unknown);
        let many = |count: usize, bytes| {
            Xattrs::of((0..count).map(|it| (format!("{it:04}").into(), value(bytes))).collect())
        };
        assert!(matches!(many(15, XATTR_VALUE_BYTES_MAX), Xattrs::Set(_)));
        assert_eq!(many(16, XATTR_VALUE_BYTES_MAX), Xattrs::Unknown);
        assert!(matches!(many(LIST_BYTES_MAX / 10, 0), Xattrs::Set(_)));
        assert_eq!(many(LIST_BYTES_MAX / 10 + 1, 0), Xattrs::Unknown);
        assert_eq!(set(&[(b"", b"")]), Xattrs::Unknown);
        assert_eq!(set(&[]), Xattrs::None);
        let long = [b'n'; NAME_BYTES_MAX + 1];
        assert!(matches!(set(&[(&long[1..], b"")]), Xattrs::Set(_)));
        assert_eq!(set(&[(&long, b"")]), Xattrs::Unknown);
    }

    #[test]
    fn a_million_files_with_few_sets_take_little_memory() {
        let mut index = Index::new();
        let sets: Vec<Xattrs<'static>> = (0..10)
            .map(|number| set(&[(b"mime_type", b"text/plain"), (b"run", &[number; 100])]))
            .collect();
        for number in 0..100_000 {
            let name = format!("{number:06}");
            index.push(&file(name.as_bytes(), sets[number % 10].clone())).unwrap();
        }
        let memory = index.memory_bytes();
        assert!(memory < 16 * 100_000, "{memory} bytes");
        let mut cursor = index.cursor_from(77_777);
        assert_eq!(cursor.next().unwrap().entry.xattrs, sets[7]);
    }

    /// Of the index of two files without extended attributes.
    const NAME_WITHOUT: &str = "35ea206f878ba272e8d679c2dfd1612fd86002e57422bbf16351da3bffb67fcf";
}
