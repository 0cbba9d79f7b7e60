//! Torrents with segments: those made here, malformed ones, and round trips.

use proptest::prelude::*;

use super::*;
use crate::torrent::bencode::Writer;
use crate::torrent::metainfo::tests::{content, hashed, path, v1_file};
use crate::torrent::metainfo::{Kind, Metainfo};

const PIECE: u64 = 16 << 10;
const SEGMENT: u64 = 4 * PIECE;
const KINDS: [Kind; 3] = [Kind::V1, Kind::V2, Kind::Hybrid];

/// A torrent of these files, or of one file `big`.
fn builder(kind: Kind, files: &[(&str, u64)]) -> Builder {
    let is_single_file = matches!(files, [("big", _)]);
    let name = path(if is_single_file { "big" } else { "set" });
    Builder {
        is_single_file,
        segment_bytes: Some(SEGMENT),
        files: files.iter().map(|(name, bytes)| NewFile::new(path(name), *bytes)).collect(),
        ..Builder::new(kind, name, PIECE)
    }
}

fn names(files: &[File]) -> Vec<(&str, u64)> {
    files.iter().map(|file| (file.path.as_str(), file.length_bytes)).collect()
}

/// All hashes are those of the joined files.
#[track_caller]
fn is_proved(torrent: &Metainfo) {
    let info = &torrent.info;
    let mut space = vec![0; info.total_bytes() as usize];
    for file in info.files() {
        let bytes = content(file.length_bytes);
        space[file.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    let (map, proof) = (torrent.piece_map(), torrent.proof().unwrap());
    for piece in 0..info.piece_count() {
        let mut hasher = proof.hasher(piece);
        for (_, range) in map.to_space(map.range_of(piece).unwrap()) {
            hasher.update(&space[range.start as usize..range.end as usize]);
        }
        assert_eq!(Some(hasher.finish()), proof.digest(piece), "{:?} {piece}", info.kind());
    }
}

#[test]
fn a_long_file_is_listed_as_segments_and_is_one_file() {
    for kind in KINDS {
        let torrent = hashed(builder(kind, &[("big", 2 * SEGMENT + 5)])).build().unwrap();
        let info = &torrent.info;
        assert_eq!(names(info.files()), [("big", 2 * SEGMENT + 5)]);
        assert!(info.is_single_file() && info.has_segments());
        assert_eq!((info.name().as_str(), info.segment_bytes()), ("big", Some(SEGMENT)));
        let listed = [("big.000", SEGMENT), ("big.001", SEGMENT), ("big.002", 5)];
        assert_eq!(names(info.listed_files()), listed);
        assert_eq!(info.segments(0), info.listed_files());
        assert_eq!(Metainfo::read(&torrent.write()).as_ref(), Ok(&torrent));
        is_proved(&torrent);
        let seed = url::Url::parse("http://a.example/d/").unwrap();
        let segment = info.web_seed_url(&seed, &info.listed_files()[1]).unwrap();
        assert_eq!(segment.as_str(), "http://a.example/d/big/big.001");
        let whole = info.whole_file_url(&seed, &info.files()[0]).unwrap();
        assert_eq!(whole.as_str(), "http://a.example/d/big");
    }
}

#[test]
fn in_a_folder_only_long_files_are_split() {
    let files = [("a/b", SEGMENT), ("a/c", SEGMENT + 1), ("a/c.txt", 3), ("d", 3 * SEGMENT)];
    for kind in KINDS {
        let mut torrent = hashed(builder(kind, &files)).build().unwrap();
        let listed = [
            ("a/b", SEGMENT),
            ("a/c/c.000", SEGMENT),
            ("a/c/c.001", 1),
            ("a/c.txt", 3),
            ("d/d.000", SEGMENT),
            ("d/d.001", SEGMENT),
            ("d/d.002", SEGMENT),
        ];
        assert_eq!(names(torrent.info.listed_files()), listed);
        assert_eq!(names(torrent.info.files()), files);
        assert!(!torrent.info.is_single_file());
        assert_eq!(names(torrent.info.segments(1)), listed[1..3]);
        is_proved(&torrent);
        assert_eq!(torrent.select(|file| file.path.as_str() == "d"), 1);
        let wanted: Vec<_> = torrent.content().iter().filter(|it| it.is_wanted).copied().collect();
        assert_eq!((wanted.len(), wanted[0].range.len()), (1, 3 * SEGMENT));
        if kind.has_v2() {
            let place = torrent.piece_map().to_space(wanted[0].range).next().unwrap().1;
            assert_eq!(place.start, torrent.info.files()[3].offset);
        }
    }
}

#[test]
fn without_long_files_nothing_changes() {
    for kind in KINDS {
        let split = hashed(builder(kind, &[("a", SEGMENT), ("b", 5)]));
        let plain = Builder { segment_bytes: None, ..split.clone() };
        assert_eq!(split.build().unwrap(), plain.build().unwrap());
    }
}

#[test]
fn a_thousand_segments_sort_like_numbers() {
    let builder =
        Builder { segment_bytes: Some(PIECE), ..builder(Kind::V2, &[("big", 1001 * PIECE)]) };
    let torrent = hashed(builder).build().unwrap();
    let listed = torrent.info.listed_files();
    assert_eq!((listed[0].path.as_str(), listed[1000].path.as_str()), ("big.0000", "big.1000"));
    assert_eq!(names(torrent.info.files()), [("big", 1001 * PIECE)]);
}

#[test]
fn files_that_look_like_segments_are_not_published_beside_some() {
    for kind in KINDS {
        let files = [("big", SEGMENT + 1), ("x/x.000", SEGMENT), ("x/x.001", 9)];
        let error = hashed(builder(kind, &files)).build().unwrap_err();
        assert_eq!(error, MetainfoError::LikeSegments { path: "x".to_owned() });
        hashed(builder(kind, &files[1..])).build().unwrap();
    }
    let long = "x".repeat(252);
    let error = builder(Kind::V1, &[(&long, SEGMENT + 1), ("y", 1)]).layout().unwrap_err();
    assert!(matches!(error, MetainfoError::Name { .. }), "{error}");
}

#[test]
fn segments_have_a_length_of_whole_pieces() {
    for wrong in [0, 1, PIECE - 1, PIECE + 1, u64::MAX] {
        let wrong = Builder { segment_bytes: Some(wrong), ..builder(Kind::V1, &[("big", 5)]) };
        let error = "segment length: it is not a multiple of the piece length";
        assert_eq!(wrong.layout().unwrap_err().to_string(), error);
        assert_eq!(wrong.build().unwrap_err().to_string(), error);
    }
    let many = Builder { segment_bytes: Some(PIECE), ..builder(Kind::V1, &[("big", 1 << 60)]) };
    assert!(matches!(many.layout(), Err(MetainfoError::TooManyPieces { .. })));
}

/// The info dictionary of a v1 torrent `big` with these bencoded entries.
fn read(segment_length: &str, files: &[String], total_bytes: u64) -> Result<Info, MetainfoError> {
    let mut out = Writer::new();
    out.dict().text("files").raw(format!("l{}e", files.concat()).as_bytes());
    out.text("name").text("big").text("piece length").int(PIECE).text("pieces");
    out.bytes(&vec![7; total_bytes.div_ceil(PIECE) as usize * 20]);
    out.text("segment length").raw(segment_length.as_bytes()).end();
    Info::read(&out.finish())
}

#[test]
fn a_wrong_segment_length_is_refused() {
    let files = [v1_file(&["big.000"], "65536"), v1_file(&["big.001"], "1")];
    for wrong in ["i0e", "i-65536e", "i16385e", "i9223372036854775807e", "5:65536", "le"] {
        let error = read(wrong, &files, 65_537).unwrap_err().to_string();
        assert_eq!(error, "segment length: it is not a multiple of the piece length", "{wrong}");
    }
    // Nothing is as long.
    let huge = read("i9223372036854759424e", &files, 65_537).unwrap();
    assert!(!huge.has_segments() && huge.segment_bytes().is_none());
    assert!(read("i65536e", &files, 65_537).unwrap().has_segments());
}

#[test]
fn files_that_are_not_segments_stay_as_they_are() {
    let file = |names: &[&str], bytes: u64| (v1_file(names, &bytes.to_string()), bytes);
    let padding = |bytes: u64| (format!("d4:attr1:p6:lengthi{bytes}e4:pathl1:.1:1ee"), bytes);
    let link = "d4:attr1:l4:pathl7:big.001e12:symlink pathl7:big.000ee".to_owned();
    let first = file(&["big.000"], SEGMENT);
    for (what, files) in [
        ("alone", vec![first.clone()]),
        ("a gap", vec![first.clone(), file(&["big.002"], 5)]),
        ("not from the first", vec![file(&["big.001"], SEGMENT), file(&["big.002"], 5)]),
        ("backwards", vec![file(&["big.001"], SEGMENT), first.clone()]),
        ("few digits", vec![file(&["big.00"], SEGMENT), file(&["big.01"], 5)]),
        ("other digits", vec![first.clone(), file(&["big.0001"], 5)]),
        ("another name", vec![first.clone(), file(&["bag.001"], 5)]),
        ("no name", vec![file(&[".000"], SEGMENT), file(&[".001"], 5)]),
        ("a short one", vec![file(&["big.000"], SEGMENT - 1), file(&["big.001"], 5)]),
        ("a long one", vec![first.clone(), file(&["big.001"], SEGMENT + 1)]),
        ("an empty one", vec![first.clone(), file(&["big.001"], 0)]),
        ("a link", vec![first.clone(), (link, 0)]),
        ("padding between", vec![first.clone(), padding(PIECE), file(&["big.001"], 5)]),
        ("another file", vec![first.clone(), file(&["big.001"], 5), file(&["x"], 5)]),
        ("another folder", vec![file(&["x", "big.000"], SEGMENT), file(&["x", "big.001"], 5)]),
        ("two folders", vec![file(&["x", "x.000"], SEGMENT), file(&["y", "x.001"], 5)]),
    ] {
        let total_bytes = files.iter().map(|it| it.1).sum();
        let files: Vec<String> = files.into_iter().map(|it| it.0).collect();
        let info = read("i65536e", &files, total_bytes).unwrap();
        assert!(!info.has_segments(), "{what}");
        assert_eq!(info.files(), info.listed_files());
    }
    // Which is it, a file or a folder?
    let both = [
        v1_file(&["x", "x.000"], "65536"),
        v1_file(&["x", "x.001"], "65536"),
        v1_file(&["x", "y"], "1"),
    ];
    let error = read("i65536e", &both, 131_073).unwrap_err().to_string();
    assert_eq!(error, "files: \"x\" is a file and a folder");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens to a metafile, it is refused or still describes something sound.
    #[test]
    fn changed_metafiles_do_no_harm(
        kind in prop_oneof![Just(Kind::V1), Just(Kind::V2), Just(Kind::Hybrid)],
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let files = [("a", 2 * SEGMENT), ("b", SEGMENT + 5), ("c/d", 9)];
        let mut bytes = hashed(builder(kind, &files)).build().unwrap().write();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let Ok(torrent) = Metainfo::read(&bytes) else { return Ok(()) };
        prop_assert_eq!(Metainfo::read(&torrent.write()), Ok(torrent.clone()));
        let info = &torrent.info;
        let mut listed = Vec::new();
        for (number, file) in info.files().iter().enumerate() {
            let mut end = file.offset;
            for segment in info.segments(number) {
                prop_assert_eq!(segment.offset, end);
                end += segment.length_bytes;
                listed.push(segment.clone());
            }
            prop_assert_eq!(end, file.offset + file.length_bytes);
        }
        prop_assert_eq!(listed, info.listed_files());
    }

    #[test]
    fn what_is_split_is_joined(
        files in prop::collection::btree_map("[a-c.]{1,2}x(/[a-c]{1,2}y){0,2}", prop_oneof![
            Just(0u64), Just(SEGMENT), Just(2 * SEGMENT), 1..4 * SEGMENT,
        ], 1..6),
        kind in prop_oneof![Just(Kind::V1), Just(Kind::V2), Just(Kind::Hybrid)],
    ) {
        let given: Vec<(&str, u64)> = files.iter().map(|(name, bytes)| (&name[..], *bytes)).collect();
        let builder = builder(kind, &given);
        if builder.layout().is_err() || Layout::new(kind, PIECE, builder.files.iter()
            .map(|file| (&file.path, file.length_bytes))).is_err() {
            return Ok(());
        }
        let builder = hashed(builder);
        let torrent = builder.build().unwrap();
        let mut found = names(torrent.info.files());
        found.sort_unstable();
        prop_assert_eq!(found, given);
        prop_assert_eq!(Metainfo::read(&torrent.write()), Ok(torrent.clone()));
        let layout = builder.layout().unwrap();
        prop_assert_eq!(torrent.info.total_bytes(), layout.total_bytes);
        let places = layout.entries.iter().filter_map(|entry| match entry.what {
            What::File(number) => Some((builder.files[number].path.clone(), entry.offset)),
            What::Padding => None,
        });
        let read = torrent.info.files().iter().map(|file| (file.path.clone(), file.offset));
        prop_assert_eq!(read.collect::<Vec<_>>(), places.collect::<Vec<_>>());
        is_proved(&torrent);
    }
}
