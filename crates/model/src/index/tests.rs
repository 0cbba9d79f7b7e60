//! The index against a naive one that keeps everything.

use super::*;
use crate::Range;
use proptest::prelude::*;

/// An entry with its whole path.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    path: Vec<u8>,
    kind: Kind,
    mode: u32,
    mtime: Mtime,
    xattrs: Xattrs<'static>,
}

/// What a reader sees, in full.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    number: u64,
    line: Line,
    range: Range,
}

/// A tree as a walk would find it: in order, folders before what lies in them.
fn lines(paths: &[Vec<Vec<u8>>], seed: u64) -> Vec<Line> {
    let mut rng = fastrand_like(seed);
    let mut all: std::collections::BTreeMap<Vec<Vec<u8>>, bool> = Default::default();
    for path in paths {
        for end in 1..path.len() {
            all.insert(path[..end].to_vec(), true);
        }
        all.entry(path.clone()).or_insert(false);
    }
    let mut files = Vec::new();
    let mut lines = Vec::new();
    for (number, (path, is_folder)) in all.into_iter().enumerate() {
        let kind = match rng(12) {
            _ if is_folder => Kind::Folder,
            0 => Kind::Folder,
            1 => Kind::Symlink(b"../else\xffwhere".to_vec()),
            2 if !files.is_empty() => Kind::HardLink(files[rng(files.len() as u64) as usize]),
            3 => Kind::Absent(Absence::Special),
            4 => Kind::File { size_bytes: 0, extents: None },
            5 => Kind::File { size_bytes: (1 << 20) + rng(9000), extents: None },
            6 => Kind::File { size_bytes: 9000, extents: Some(Vec::new()) },
            7 => {
                let extents = vec![
                    Extent { offset: rng(3), bytes: 1 + rng(100) },
                    Extent { offset: 200 + rng(3), bytes: 1 + rng(100) },
                ];
                Kind::File { size_bytes: 500, extents: Some(extents) }
            }
            8 => {
                let size_bytes = 1 + rng(5000);
                let all = Extent { offset: 0, bytes: size_bytes };
                Kind::File { size_bytes, extents: Some(vec![all]) }
            }
            _ => Kind::File { size_bytes: rng(5000), extents: None },
        };
        if matches!(kind, Kind::File { .. }) {
            files.push(number as u64);
        }
        let bare = matches!(kind, Kind::HardLink(_) | Kind::Absent(_));
        let xattrs = match kind {
            Kind::File { .. } | Kind::Folder => some_xattrs(&mut rng),
            _ => Xattrs::None,
        };
        let mtime = Mtime {
            seconds: rng(4_000_000_000) as i64 - 1_000_000_000,
            nanoseconds: rng(1_000_000_000) as u32,
        };
        lines.push(Line {
            path: path.join(&b'/'),
            kind,
            mode: if bare { 0 } else { [0o644, 0o755, 0o7777, 0][rng(4) as usize] },
            mtime: if bare { Mtime::default() } else { mtime },
            xattrs,
        });
    }
    lines
}

/// None most often, else some of few sets, or one that is large.
fn some_xattrs(rng: &mut impl FnMut(u64) -> u64) -> Xattrs<'static> {
    match rng(8) {
        0 => Xattrs::Unknown,
        1 => Xattrs::of(vec![(b"large".to_vec(), vec![b'v'; 3000 + rng(3) as usize])]),
        2 | 3 => {
            let count = 1 + rng(3);
            let name = |number: u64| format!("name-\u{ff}-{number}").into_bytes();
            Xattrs::of((0..count).rev().map(|it| (name(it), vec![it as u8; it as usize])).collect())
        }
        _ => Xattrs::None,
    }
}

/// Numbers below a limit, the same for the same seed.
fn fastrand_like(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

fn depth(path: &[u8]) -> usize {
    path.split(|&byte| byte == b'/').count()
}

fn write(lines: &[Line]) -> (Index, Vec<Seen>) {
    let mut index = Index::new();
    let mut seen = Vec::new();
    // Depth of the folder in which the next entry would stand.
    let mut open = 0;
    for (number, line) in lines.iter().enumerate() {
        let folder = depth(&line.path) - 1;
        let name = line.path.rsplit(|&byte| byte == b'/').next().unwrap();
        let entry = Entry {
            leaves: open - folder,
            name,
            kind: line.kind.clone(),
            mode: line.mode,
            mtime: line.mtime,
            xattrs: line.xattrs.clone(),
        };
        let start = index.push(&entry).unwrap();
        let range = Range::new(start, index.size_bytes());
        seen.push(Seen { number: number as u64, line: line.clone(), range });
        open = folder + usize::from(line.kind == Kind::Folder);
    }
    (index, seen)
}

fn read(mut cursor: Cursor<'_>) -> Vec<Seen> {
    let mut seen = Vec::new();
    while let Some(item) = cursor.next() {
        let line = Line {
            path: item.path.to_vec(),
            kind: item.entry.kind.clone(),
            mode: item.entry.mode,
            mtime: item.entry.mtime,
            xattrs: item.entry.xattrs.clone().into_owned(),
        };
        seen.push(Seen { number: item.number, line, range: item.range() });
    }
    seen
}

fn wire(index: &Index) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let more = index.wire_from(bytes.len() as u64);
        if more.is_empty() {
            assert_eq!(bytes.len() as u64, index.wire_bytes());
            return bytes;
        }
        bytes.extend_from_slice(more);
    }
}

fn received(bytes: &[u8], mut part: impl FnMut() -> usize) -> Result<Index, IndexError> {
    let mut index = Index::new();
    let mut reader = Reader::new(1 << 30);
    let mut rest = bytes;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(part().clamp(1, rest.len()));
        reader.feed(&mut index, now)?;
        rest = later;
    }
    reader.finish(&mut index)?;
    Ok(index)
}

fn paths() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let name = prop_oneof![
        "[a-c]{1,2}".prop_map(String::into_bytes),
        "[a-z!.-]{3,9}".prop_map(String::into_bytes),
        Just(vec![0xff, 0xfe, b' ']),
        Just(vec![b'x'; NAME_BYTES_MAX]),
    ];
    prop::collection::vec(prop::collection::vec(name, 1..6), 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(paths in paths(), seed: u64, from in 0..500u64) {
        let lines = lines(&paths, seed);
        let (mut index, seen) = write(&lines);
        // While it grows …
        prop_assert_eq!(&read(index.cursor()), &seen);
        let digests = index.complete();
        prop_assert_eq!(index.push(&Entry {
            leaves: 0, name: b"z", kind: Kind::Folder, mode: 0, mtime: Mtime::default(),
            xattrs: Xattrs::None,
        }), Err(IndexError::Complete));
        // … from any entry on …
        let behind = &seen[(from as usize).min(seen.len())..];
        prop_assert_eq!(&read(index.cursor_from(from))[..], behind);
        // … and on the other side.
        let mut rng = fastrand_like(seed ^ 1);
        let copy = received(&wire(&index), || rng(5000) as usize).unwrap();
        prop_assert_eq!(copy.digests(), Some(digests));
        prop_assert_eq!(copy.counts(), index.counts());
        prop_assert_eq!(wire(&copy), wire(&index));
        prop_assert_eq!(&read(copy.cursor()), &seen);
    }

    #[test]
    fn every_byte_belongs_to_one_place(paths in paths(), seed: u64, at in 0.0..1.0f64, bytes in 0..3_000_000u64) {
        let (index, seen) = write(&lines(&paths, seed));
        let mut end = 0;
        for seen in &seen {
            let bytes = seen.range.len();
            prop_assert!(seen.range.start >= end && seen.range.start - end < 4096);
            prop_assert_eq!(seen.range.start > end, bytes >= 1 << 20 && !end.is_multiple_of(4096));
            prop_assert!(bytes < 1 << 20 || seen.range.start.is_multiple_of(4096));
            end = seen.range.end;
        }
        prop_assert_eq!(index.size_bytes(), end);
        let start = (at * end as f64) as u64;
        let range = Range::of_len(start, bytes);
        // Every part as a naive reader finds it, extent by extent.
        let mut naive = Vec::new();
        for seen in &seen {
            let Kind::File { size_bytes, extents } = &seen.line.kind else { continue };
            let whole = vec![Extent { offset: 0, bytes: *size_bytes }];
            let mut here = seen.range.start;
            for extent in extents.as_ref().unwrap_or(&whole) {
                let first = range.start.max(here);
                let last = range.end.min(here + extent.bytes);
                if first < last {
                    naive.push((seen.number, Part {
                        start: first, offset: extent.offset + first - here, bytes: last - first,
                    }));
                }
                here += extent.bytes;
            }
            prop_assert_eq!(here, seen.range.end);
        }
        let mut found = Vec::new();
        let mut cursor = index.cursor_at(range.start);
        let mut looked_at = 0;
        while let Some(item) = cursor.next() {
            if item.start >= range.end {
                break;
            }
            prop_assert!(looked_at > 0 || item.end > range.start, "it begins too early");
            looked_at += 1;
            found.extend(item.parts(range).map(|part| (item.number, part)));
        }
        prop_assert_eq!(found, naive);
    }

    #[test]
    fn no_bytes_can_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = received(&bytes, || 7);
        let mut framed = MAGIC.to_vec();
        framed.push(FORMAT_VERSION);
        framed.extend_from_slice(&bytes);
        if let Ok(index) = received(&framed, || 3) {
            prop_assert_eq!(wire(&index), framed);
        }
    }

    #[test]
    fn damage_is_noticed(paths in paths(), seed: u64, at in 0.0..1.0f64, bit in 0..8u32) {
        let (mut index, _) = write(&lines(&paths, seed));
        index.complete();
        let mut bytes = wire(&index);
        let spot = ((bytes.len() - 1) as f64 * at) as usize;
        bytes[spot] ^= 1 << bit;
        prop_assert!(received(&bytes, || 1000).is_err());
        bytes[spot] ^= 1 << bit;
        let cut = received(&bytes[..spot], || 1000).unwrap_err();
        prop_assert!(matches!(cut, IndexError::CutOff { .. }), "{cut:?}");
        bytes.push(0);
        prop_assert_eq!(received(&bytes, || 1000).unwrap_err(), IndexError::Trailing);
    }
}

fn entry(leaves: usize, name: &'static str, kind: Kind) -> Entry<'static> {
    let (mtime, xattrs) = (Mtime::default(), Xattrs::None);
    Entry { leaves, name: name.as_bytes(), kind, mode: 0o600, mtime, xattrs }
}

fn file(leaves: usize, name: &'static str) -> Entry<'static> {
    entry(leaves, name, Kind::File { size_bytes: 1, extents: None })
}

#[test]
fn what_breaks_a_rule_is_refused_and_changes_nothing() {
    let extents = |parts: &[(u64, u64)]| {
        let extents = parts.iter().map(|&(offset, bytes)| Extent { offset, bytes }).collect();
        entry(0, "s", Kind::File { size_bytes: 10, extents: Some(extents) })
    };
    let bare = |kind| Entry { mode: 0, ..entry(0, "s", kind) };
    let sized = |size_bytes, extents| entry(0, "g", Kind::File { size_bytes, extents });
    let mut index = Index::new();
    index.push(&entry(0, "d", Kind::Folder)).unwrap();
    index.push(&file(0, "f")).unwrap();
    for (wrong, says) in [
        (file(0, "f"), "out of order"),
        (file(0, "e"), "out of order"),
        (file(1, "d"), "out of order"),
        (file(1, "c"), "out of order"),
        (file(2, "x"), "leaves more folders"),
        (file(usize::MAX, "x"), "leaves more folders"),
        (file(0, ""), "no possible length"),
        (file(0, "."), "no name"),
        (file(0, ".."), "no name"),
        (file(0, "g/h"), "no name"),
        (file(0, "g\0"), "no name"),
        (Entry { mode: 0o10000, ..file(0, "g") }, "mode"),
        (Entry { mtime: Mtime { seconds: 0, nanoseconds: 1_000_000_000 }, ..file(0, "g") }, "time"),
        (entry(0, "g", Kind::Symlink(Vec::new())), "link to nothing"),
        (entry(0, "g", Kind::Symlink(b"a\0".to_vec())), "link to nothing"),
        (entry(0, "g", Kind::HardLink(1)), "mode"),
        (bare(Kind::HardLink(2)), "no earlier one"),
        (bare(Kind::HardLink(3)), "no earlier one"),
        (bare(Kind::HardLink(0)), "what is no file"),
        (extents(&[(0, 11)]), "extents"),
        (extents(&[(0, 5), (5, 5)]), "extents"),
        (extents(&[(0, 0)]), "extents"),
        (extents(&[(0, 2), (2, 2)]), "extents"),
        (extents(&[(4, 2), (0, 2)]), "extents"),
        (extents(&[(8, 3)]), "extents"),
        (extents(&[(8, u64::MAX)]), "larger than can be"),
        (sized(0, Some(vec![Extent { offset: 0, bytes: 0 }])), "extents"),
        (sized(u64::MAX, None), "a size that no file can have"),
        (sized(1 << 63, None), "a size that no file can have"),
        (sized((1 << 63) - 1, None), "larger than can be"),
        // Of what is nothing but a hole the virtual file has no bytes.
        (sized(1 << 63, Some(Vec::new())), "a size that no file can have"),
    ] {
        let before = wire(&index);
        let told = index.push(&wrong).unwrap_err().to_string();
        assert!(told.contains(says) && told.starts_with("entry 2 "), "{wrong:?}: {told}");
        assert_eq!((wire(&index), index.entries()), (before, 2));
    }
    index.push(&file(1, "e")).unwrap();
    index.push(&bare(Kind::HardLink(1))).unwrap();
    assert_eq!(read(index.cursor()).last().unwrap().line.path, b"s");
}

#[test]
fn small_holes_make_no_other_layout() {
    let of = |extents: Option<Vec<(u64, u64)>>| {
        let mut index = Index::new();
        let extents = extents.map(|extents| {
            extents.into_iter().map(|(offset, bytes)| Extent { offset, bytes }).collect()
        });
        index.push(&entry(0, "f", Kind::File { size_bytes: 10, extents })).unwrap();
        (index.complete(), index.cursor().next().unwrap().entry.kind.clone())
    };
    let (dense, small) = (of(None), of(Some(vec![(0, 10)])));
    let (large, void) = (of(Some(vec![(0, 4)])), of(Some(Vec::new())));
    assert_eq!(dense.0.layout, small.0.layout);
    assert_ne!(dense.0.dataset, small.0.dataset);
    assert!(dense.1.is_laid_out_as(&small.1) && small.1.is_sparse() && !dense.1.is_sparse());
    for other in [large, void] {
        assert_ne!(other.0.layout, small.0.layout);
        assert!(!other.1.is_laid_out_as(&small.1) && other.1.is_laid_out_as(&other.1));
    }
}

#[test]
fn a_further_name_is_one_of_a_regular_file() {
    // A server could name a folder, a link or another further name in place of a file: an empty file
    // appeared at the receiver, or nothing that could be linked.
    let mut index = Index::new();
    let bare = |name, kind| Entry { mode: 0, ..entry(0, name, kind) };
    index.push(&file(0, "a")).unwrap();
    index.push(&entry(0, "b", Kind::Symlink(b"a".to_vec()))).unwrap();
    index.push(&bare("c", Kind::Absent(Absence::Forbidden))).unwrap();
    index.push(&bare("d", Kind::HardLink(0))).unwrap();
    index.push(&entry(0, "e", Kind::Folder)).unwrap();
    let good = wire(&index);
    for (of, says) in [
        (0, None),
        (1, Some("what is no file")),
        (2, Some("what is no file")),
        (3, Some("what is no file")),
        (4, Some("what is no file")),
        (5, Some("no earlier one")),
    ] {
        let mut index = Index::new();
        let mut reader = Reader::new(1 << 20);
        reader.feed(&mut index, &good).unwrap();
        // As it travels: kind, folders to leave, the name "f", entries back.
        let record = [4, 0, 1, b'f', 5 - of];
        let read = reader.feed(&mut index, &record).map_err(|error| error.to_string());
        let pushed = index_of(&good).push(&bare("f", Kind::HardLink(of.into())));
        let pushed = pushed.map_err(|error| error.to_string());
        match says {
            None => assert!(read.is_ok() && pushed.is_ok(), "{of}: {read:?} {pushed:?}"),
            Some(says) => {
                for told in [read.unwrap_err(), pushed.unwrap_err()] {
                    let whole = format!("entry 5 of the index is another name of {says}");
                    assert_eq!(told, whole, "{of}");
                }
            }
        }
    }
}

/// An index that is not complete, from its bytes.
fn index_of(bytes: &[u8]) -> Index {
    let mut index = Index::new();
    Reader::new(1 << 20).feed(&mut index, bytes).unwrap();
    index
}

#[test]
fn a_million_entries_take_little_memory() {
    let mut index = Index::new();
    for folder in 0..1000 {
        let name = format!("folder-{folder:04}");
        let kind = Kind::Folder;
        let mtime = Mtime { seconds: 1_700_000_000, nanoseconds: 123_456_789 };
        let leaves = usize::from(folder > 0);
        let bytes = name.as_bytes();
        let entry = entry(leaves, "", kind);
        index.push(&Entry { name: bytes, mode: 0o755, mtime, ..entry }).unwrap();
        for number in 0..1000 {
            let name = format!("sample-{folder:04}-{number:06}.dat");
            let seconds = 1_700_000_000 + number * 37 % 100_000;
            let mtime = Mtime { seconds, nanoseconds: (number as u32) * 977_531 };
            let kind = Kind::File { size_bytes: 11_000 + number as u64, extents: None };
            let file = Entry { kind, mode: 0o644, mtime, ..file(0, "") };
            index.push(&Entry { name: name.as_bytes(), ..file }).unwrap();
        }
    }
    let counts = index.counts();
    assert_eq!((counts.files, counts.folders), (1_000_000, 1000));
    let memory = index.memory_bytes();
    assert!(memory < 45 << 20, "{memory} bytes");
    let mut cursor = index.cursor_at(index.size_bytes() / 2);
    let item = cursor.next().unwrap();
    assert_eq!(item.path, b"folder-0500/sample-0500-000000.dat");
}

#[test]
fn many_entries_far_down_take_little_memory() {
    let mut index = Index::new();
    for _ in 0..250 {
        let name = "d".repeat(200);
        let folder = Entry { name: name.as_bytes(), ..entry(0, "d", Kind::Folder) };
        index.push(&folder).unwrap();
    }
    for number in 0..200_000 {
        let name = format!("{number:06}");
        index.push(&Entry { name: name.as_bytes(), ..file(0, "f") }).unwrap();
    }
    // A place to read from every 128 entries would have a path of 50,000 bytes each time.
    let memory = index.memory_bytes();
    assert!(memory < 3 * index.wire_bytes() as usize + (1 << 20), "{memory} bytes");
    for number in [0, 249, 250, 100_000, 200_249] {
        assert_eq!(index.cursor_from(number).next().unwrap().number, number);
    }
    assert!(index.cursor_from(200_250).next().is_none());
    assert_eq!(index.cursor_at(150_000).next().unwrap().number, 150_250);
}
