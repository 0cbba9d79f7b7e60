//! Metafiles of other programs, hostile ones, and round trips.

use std::sync::Arc;

use proptest::prelude::*;
use swath_model::digest::sha256_tree::{self, MerkleHash, Sha256Tree};
use swath_model::digest::{Algorithm, Hasher};
use swath_model::path::SafePath;
use url::Url;

use super::*;
use crate::torrent::bencode::{self, Writer};

const HASHES: &str = include_str!("../../../testdata/torrents/hashes.txt");

macro_rules! samples {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_bytes!(concat!("../../../testdata/torrents/", $name, ".torrent")))),*]
    };
}

const SAMPLES: [(&str, &[u8]); 15] = samples![
    "libtorrent-hybrid-files",
    "libtorrent-hybrid-folder",
    "libtorrent-hybrid-links",
    "libtorrent-hybrid-no-tail",
    "libtorrent-hybrid-single",
    "libtorrent-hybrid-small",
    "libtorrent-v1-files",
    "libtorrent-v1-single",
    "libtorrent-v2-files",
    "libtorrent-v2-folder",
    "libtorrent-v2-single",
    "mktorrent-files",
    "mktorrent-single",
    "transmission-files",
    "transmission-single",
];

fn sample(name: &str) -> Metainfo {
    let (_, bytes) = SAMPLES.iter().find(|(found, _)| *found == name).unwrap();
    Metainfo::read(bytes).unwrap()
}

/// The bytes of a file of this length; see the README of the samples.
pub(super) fn content(length: u64) -> Vec<u8> {
    (0..length).map(|k| (k * 31 + (k >> 8) * 13 + length) as u8).collect()
}

pub(super) fn path(text: &str) -> SafePath {
    SafePath::new(text).unwrap()
}

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

/// Fills in all hashes, from the content of the files.
pub(super) fn hashed(mut builder: Builder) -> Builder {
    let layout = builder.layout().unwrap();
    let mut bytes = Vec::new();
    for entry in &layout.entries {
        assert_eq!(entry.offset, bytes.len() as u64);
        match entry.what {
            What::File(_) => bytes.extend(content(entry.length_bytes)),
            What::Padding => bytes.resize(bytes.len() + entry.length_bytes as usize, 0),
        }
    }
    assert_eq!(layout.total_bytes, bytes.len() as u64);
    let pieces = bytes.chunks(builder.piece_bytes as usize);
    assert_eq!(layout.pieces, pieces.len() as u64);
    let digests = pieces.map(|piece| Hasher::digest(Algorithm::Sha1, piece));
    builder.pieces_v1 = digests.flat_map(|digest| digest.as_bytes().to_vec()).collect();
    if builder.kind.has_v2() {
        for file in &mut builder.files {
            let hashes = |bytes: &[u8]| {
                let mut tree = Sha256Tree::new(builder.piece_bytes);
                tree.update(bytes);
                tree.finish()
            };
            let bytes = content(file.length_bytes);
            file.hashes = hashes(&bytes);
            if let Some(segment_bytes) = builder.segment_bytes.filter(|it| *it < file.length_bytes)
            {
                let segments = bytes.chunks(segment_bytes as usize).flat_map(hashes);
                file.hashes.as_mut().unwrap().piece_layer = segments
                    .flat_map(|it| match it.piece_layer.is_empty() {
                        true => vec![it.root],
                        false => it.piece_layer,
                    })
                    .collect();
            }
        }
    }
    builder
}

/// The same torrent, made here from the same files.
fn remade(of: &Info) -> Builder {
    let mut builder = Builder::new(of.kind(), of.name().clone(), of.piece_bytes());
    builder.is_single_file = of.is_single_file();
    builder.is_private = of.is_private();
    let files = of.files().iter().map(|file| NewFile {
        is_executable: file.is_executable,
        symlink: file.symlink.clone(),
        ..NewFile::new(file.path.clone(), file.length_bytes)
    });
    // Whatever order the files come in, that of v2 is fixed.
    builder.files = if of.kind().has_v2() { files.rev().collect() } else { files.collect() };
    hashed(builder)
}

#[test]
fn others_get_the_same_info_hashes() {
    assert_eq!(HASHES.lines().count(), SAMPLES.len());
    for line in HASHES.lines() {
        let [name, v1, v2] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let info = sample(name).info;
        let hex = |hash: Option<String>| hash.unwrap_or_else(|| "-".to_owned());
        assert_eq!(hex(info.hash_v1().map(|hash| hash.to_string())), v1, "{name}");
        assert_eq!(hex(info.hash_v2().map(|hash| hash.to_string())), v2, "{name}");
    }
}

#[test]
fn torrents_made_here_are_those_of_libtorrent_byte_for_byte() {
    for (name, _) in SAMPLES.iter().filter(|(name, _)| name.starts_with("libtorrent")) {
        let theirs = sample(name);
        let ours = remade(&theirs.info).build().unwrap();
        if *name == "libtorrent-hybrid-no-tail" {
            // The form of libtorrent up to 2.0.3, which is read but not written.
            assert_eq!(ours.info, sample("libtorrent-hybrid-files").info);
            assert_ne!(ours.info.raw(), theirs.info.raw());
            continue;
        }
        let show = |info: &Info| info.raw().escape_ascii().to_string();
        if *name == "libtorrent-v2-folder" {
            // A tree of one file is a single file, whose name counts; libtorrent reads it so too.
            assert_eq!(theirs.info.name().as_str(), "only.bin");
            assert_eq!(
                show(&ours.info),
                show(&theirs.info).replace("4:name6:folder", "4:name8:only.bin")
            );
            continue;
        }
        assert_eq!(show(&ours.info), show(&theirs.info), "{name}");
        assert_eq!(ours.piece_layers, theirs.piece_layers, "{name}");
    }
}

#[test]
fn the_files_of_all_programs_are_read() {
    for (name, bytes) in SAMPLES {
        let metainfo = Metainfo::read(bytes).unwrap();
        let info = &metainfo.info;
        assert_eq!(Metainfo::read(&metainfo.write()), Ok(metainfo.clone()), "{name}");
        let mut all = vec![0; info.total_bytes() as usize];
        let mut names: Vec<_> = info.files().iter().map(|file| file.path.to_string()).collect();
        names.sort();
        if name.ends_with("files") || name.ends_with("no-tail") {
            let mut expected = vec!["a-b", "a.bin", "empty", "sub/a2", "sub/b.bin"];
            expected.extend(["sub/copy.bin", "sub/deep/x", "z.bin"]);
            // transmission-create leaves empty files out.
            expected.retain(|path| *path != "empty" || !name.starts_with("transmission"));
            assert_eq!(names, expected, "{name}");
            assert!(!info.is_single_file() && info.name().as_str() == "set");
        }
        for file in info.files() {
            let bytes = content(file.length_bytes);
            let begin = file.offset as usize;
            all[begin..begin + bytes.len()].copy_from_slice(&bytes);
        }
        for range in info.padding() {
            assert!(all[range.start as usize..range.end as usize].iter().all(|byte| *byte == 0));
            assert!(info.kind().has_v2());
        }
        // Every piece of the real content has the hashes that the programs computed.
        for piece in 0..info.piece_count() {
            let range = info.piece_range(piece).unwrap();
            let bytes = &all[range.start as usize..range.end as usize];
            if let Some(pieces) = info.pieces_v1() {
                let digest = Hasher::digest(Algorithm::Sha1, bytes);
                assert_eq!(pieces.digest(piece), Some(digest), "{name}: piece {piece}");
            }
            if info.kind().has_v2() {
                let v2 = metainfo.piece_v2(piece).unwrap();
                let bytes = &bytes[..v2.range.len() as usize];
                assert!(
                    v2.range.start == range.start && v2.is_verified_by(bytes),
                    "{name}: {piece}"
                );
                let mut changed = bytes.to_vec();
                changed[0] ^= 1;
                assert!(!v2.is_verified_by(&changed) && !v2.is_verified_by(&bytes[1..]));
            }
        }
        assert_eq!(info.piece_range(info.piece_count()), None);
        assert_eq!(metainfo.piece_v2(info.piece_count()), None);
        assert_eq!(metainfo.piece_v2(u64::MAX), None);
        assert!(metainfo.has_piece_layers());
    }
}

#[test]
fn what_stands_around_the_info_dictionary_is_read() {
    let transmission = sample("transmission-files");
    let tiers: Vec<Vec<&str>> =
        transmission.trackers.iter().map(|tier| tier.iter().map(Url::as_str).collect()).collect();
    let tracker = "http://tracker.example:6969/announce";
    assert_eq!(tiers, [[tracker], ["udp://tracker.example:6969/announce"]]);
    assert_eq!(transmission.comment.as_deref(), Some("A comment"));
    assert!(transmission.created_by.unwrap().starts_with("Transmission/3.00"));
    assert!(transmission.creation_date_s.unwrap() > 1_700_000_000);
    assert!(transmission.info.is_private() && !sample("transmission-single").info.is_private());

    let mktorrent = sample("mktorrent-files");
    let sizes: Vec<usize> = mktorrent.trackers.iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 1]);
    let seeds: Vec<&str> = mktorrent.web_seeds.iter().map(Url::as_str).collect();
    assert_eq!(seeds, ["https://mirror.example/data/", "http://other.example/"]);
    let file = mktorrent.info.files().iter().find(|file| file.path.as_str() == "sub/a2").unwrap();
    let address = mktorrent.info.web_seed_url(&mktorrent.web_seeds[0], file).unwrap();
    assert_eq!(address.as_str(), "https://mirror.example/data/set/sub/a2");

    let single = sample("mktorrent-single");
    assert!(single.info.is_single_file() && single.info.is_private());
    let file = &single.info.files()[0];
    let seed = &single.web_seeds[0];
    assert_eq!(single.info.web_seed_url(seed, file).as_ref(), Some(seed));
    let folder = single.info.web_seed_url(&url("http://x.example/d/"), file).unwrap();
    assert_eq!(folder.as_str(), "http://x.example/d/single.bin");

    let links = sample("libtorrent-hybrid-links").info;
    assert_eq!(links.files()[1].symlink, Some(path("data.bin")));
}

#[test]
fn all_fields_survive() {
    let mut builder = Builder::new(Kind::Hybrid, path("Größe 7"), 1 << 14);
    builder.files = vec![NewFile::new(path("b/c"), 40_000), NewFile::new(path("b!"), 1)];
    builder.trackers = vec![
        vec![url("http://a.example/x"), url("udp://b.example:1")],
        vec![url("https://c.example/")],
    ];
    builder.web_seeds = vec![url("https://m.example/")];
    builder.comment = Some("c".to_owned());
    builder.created_by = Some("swath".to_owned());
    builder.creation_date_s = Some(7);
    builder.is_private = true;
    builder.source = Some("S".to_owned());
    builder.update_url = Some(url("https://u.example/feed"));
    builder.similar = vec![InfoHash::V1(InfoHashV1([1; 20])), InfoHash::V2(InfoHashV2([2; 32]))];
    builder.collections = vec!["one".to_owned(), "two".to_owned()];
    let mut built = hashed(builder.clone()).build().unwrap();
    assert_eq!(built, hashed(builder.clone()).build().unwrap());
    assert_eq!(built.trackers, builder.trackers);
    assert_eq!(built.similar, builder.similar);
    assert_eq!(built.collections, builder.collections);
    assert_eq!(built.info.source(), Some("S"));
    assert_eq!(built.info.update_url(), builder.update_url.as_ref());
    // Hints outside of the info dictionary come on top.
    built.collections.push("three".to_owned());
    built.similar.push(InfoHash::V1(InfoHashV1([3; 20])));
    let written = built.write();
    assert!(bencode::read(&written).unwrap().is_canonical());
    assert_eq!(Metainfo::read(&written), Ok(built.clone()));
    // The names are sorted as those of folders: `b/c` stands before `b!`.
    let names: Vec<&str> = built.info.files().iter().map(|file| file.path.as_str()).collect();
    assert_eq!(names, ["b/c", "b!"]);

    // From a peer comes the info dictionary alone, then the layers.
    let mut alone = Metainfo::of(Info::read(built.info.raw()).unwrap());
    assert!(!alone.has_piece_layers() && alone.piece_v2(0).is_none());
    assert_eq!(alone.piece_v2(3).unwrap().file, 1);
    let layer = built.piece_layer(&built.info.files()[0]).unwrap();
    let wrong: Arc<[MerkleHash]> = Arc::from([[1; 32]; 3]);
    for (file, layer, why) in [
        (0, &wrong, "does not match the root"),
        (0, &Arc::from(&layer[1..]), "has the wrong length"),
        (1, layer, "has the wrong length"),
    ] {
        let error = alone.add_piece_layer(file, layer.clone()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    alone.add_piece_layer(0, layer.clone()).unwrap();
    assert!(alone.has_piece_layers() && alone.piece_v2(2).is_some());
}

/// The metafile of a v1 torrent with these bencoded `files`, and pieces for `total_bytes`.
fn v1(files: &str, total_bytes: u64) -> Vec<u8> {
    let mut out = Writer::new();
    out.dict().text("info").dict();
    out.text("files").raw(files.as_bytes()).text("name").text("n");
    out.text("piece length").int(16_384).text("pieces");
    out.bytes(&vec![7; total_bytes.div_ceil(16_384) as usize * 20]);
    out.end().end();
    out.finish()
}

pub(super) fn v1_file(names: &[&str], length: &str) -> String {
    let names: String = names.iter().map(|name| format!("{}:{name}", name.len())).collect();
    format!("d6:lengthi{length}e4:pathl{names}ee")
}

#[test]
fn hostile_files_of_v1_are_refused() {
    let long = "x".repeat(256);
    let one = |names: &[&str]| v1(&format!("l{}e", v1_file(names, "5")), 5);
    let list = |files: &[String], total| v1(&format!("l{}e", files.concat()), total);
    let two = |a: &[&str], b: &[&str]| list(&[v1_file(a, "5"), v1_file(b, "5")], 10);
    for (bytes, why) in [
        (one(&[".."]), "files[0].path: it contains '.' or '..'"),
        (one(&["a", ".."]), "files[0].path: it contains '.' or '..'"),
        (one(&["."]), "files[0].path: it contains '.' or '..'"),
        (one(&["a", ""]), "files[0].path: it has an empty component"),
        (one(&["", "etc"]), "files[0].path: it is absolute"),
        (one(&[]), "files[0].path: it is empty"),
        (one(&["../x"]), "files[0].path: a name must not contain '/'"),
        (one(&["a\0b"]), "U+0000"),
        (one(&["a\u{202e}b"]), "U+202E"),
        (one(&[&long]), "files[0].path: it has 256 bytes"),
        (one(&["a"; 200]), "more than 128 components"),
        (two(&["a", "b"], &["a", "b"]), "files: \"a/b\" occurs twice"),
        (two(&["a"], &["a", "b"]), "files: \"a\" is a file and a folder"),
        (two(&["a", "b"], &["a"]), "files: \"a\" is a file and a folder"),
        (list(&[v1_file(&["a"], "-1")], 0), "files[0].length: -1 is not allowed"),
        (list(&[v1_file(&["a"], "9223372036854775807")], 0), "files[0].length: all files together"),
        (
            list(&[v1_file(&["a"], "1152921504606846976"), v1_file(&["b"], "1")], 0),
            "files[1].length: all",
        ),
        (list(&[v1_file(&["a"], "1152921504606846976")], 0), "70368744177664 pieces are too many"),
        (list(&[v1_file(&["a"], "16385")], 16_384), "need 2 hashes, there are 1"),
        (list(&[v1_file(&["a"], "5")], 16_385), "need 1 hashes, there are 2"),
        (v1("le", 0), "there are no files"),
        (v1("i5e", 0), "files: it is not a list"),
        (v1("l1:ae", 0), "files[0]: it is not a dictionary"),
        (v1("ld4:pathl1:aeee", 0), "files[0].length: it is missing"),
        (v1("ld6:lengthi5eee", 5), "files[0].path: it is missing"),
        (v1("ld6:lengthi5e4:path1:aee", 5), "files[0].path: it is not a list"),
        (v1("ld6:length1:54:pathl1:aeee", 5), "files[0].length: it is not a number"),
        (v1("ld6:lengthi5e6:lengthi6e4:pathl1:aeee", 5), "files[0].length: it stands there twice"),
        (
            v1("ld4:attr1:l4:pathl1:ae12:symlink pathl2:..eee", 0),
            "files[0].symlink path: it contains",
        ),
        (
            v1("ld4:attr1:l6:lengthi5e4:pathl1:ae12:symlink pathl1:beee", 5),
            "files[0].length: 5 is not",
        ),
        (v1("ld4:attr1:p6:lengthi5e4:pathl1:aeee", 5), "there are no files"),
    ] {
        let error = Metainfo::read(&bytes).unwrap_err().to_string();
        assert!(error.contains(why), "{error:?} is not {why:?}");
    }
    // What only looks odd is not.
    for names in [&["a\\..\\b"][..], &["..."], &["C:"], &[".pad", "5"], &["a", "b"]] {
        assert!(Metainfo::read(&one(names)).is_ok(), "{names:?}");
    }
    assert!(Metainfo::read(&two(&["a", "b"], &["a", "c"])).is_ok());
    assert!(Metainfo::read(&two(&["a"], &["a!"])).is_ok());
    // An older program's own encoding does not matter beside UTF-8.
    let mut old = v1("ld6:lengthi5e4:pathl1:Xe10:path.utf-8l1:aeee", 5);
    let at = old.iter().position(|byte| *byte == b'X').unwrap();
    old[at] = 0xff;
    assert_eq!(Metainfo::read(&old).unwrap().info.files()[0].path.as_str(), "a");
}

/// A metafile whose info dictionary has these fields, in this order.
fn with_info(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Writer::new();
    out.dict().text("info").dict();
    for (key, value) in fields {
        out.text(key).raw(value);
    }
    out.end().text("piece layers").dict().end().end();
    out.finish()
}

#[test]
fn contradictions_are_refused() {
    let tree = b"d1:ad0:d6:lengthi5e11:pieces root32:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaeee";
    let pieces = b"20:aaaaaaaaaaaaaaaaaaaa";
    let files = b"ld6:lengthi5e4:pathl1:aeee";
    let (name, length, version): (_, &[u8], &[u8]) = (("name", &b"1:a"[..]), b"i16384e", b"i2e");
    let single: [(&str, &[u8]); 4] =
        [("length", b"i5e"), name, ("piece length", length), ("pieces", pieces)];
    assert!(Metainfo::read(&with_info(&single)).is_ok());
    let v2: [(&str, &[u8]); 4] =
        [("file tree", tree), ("meta version", version), name, ("piece length", length)];
    assert!(Metainfo::read(&with_info(&v2)).is_ok());
    let without = |all: &[(&'static str, &'static [u8])], key: &str| {
        with_info(&all.iter().filter(|(found, _)| *found != key).copied().collect::<Vec<_>>())
    };
    let changed = |all: &[(&'static str, &'static [u8])], key: &str, value: &'static [u8]| {
        with_info(
            &all.iter().map(|(k, v)| (*k, if *k == key { value } else { *v })).collect::<Vec<_>>(),
        )
    };
    let added = |all: &[(&'static str, &'static [u8])], key: &'static str, value: &'static [u8]| {
        let mut all = all.to_vec();
        all.push((key, value));
        all.sort();
        with_info(&all)
    };
    for (bytes, why) in [
        (b"de".to_vec(), "info: it is missing"),
        (b"le".to_vec(), "torrent file: it is not a dictionary"),
        (b"d4:infoi5ee".to_vec(), "info: it is not a dictionary"),
        (b"<html>".to_vec(), "this is no torrent file: byte 0"),
        (without(&single, "length"), "files: it is missing"),
        (without(&single, "name"), "name: it is missing"),
        (without(&single, "piece length"), "piece length: it is missing"),
        (without(&single, "pieces"), "pieces: it is missing"),
        (added(&single, "files", files), "files: it must not stand beside length"),
        (added(&single, "file tree", tree), "meta version: it is missing"),
        (changed(&single, "name", b"2:.."), "name: it contains"),
        (changed(&single, "name", b"3:a/b"), "name: a name must not contain '/'"),
        (changed(&single, "name", b"0:"), "name: it is empty"),
        (changed(&single, "piece length", b"i0e"), "piece length: 0 is not between"),
        (changed(&single, "piece length", b"i-5e"), "piece length: -5 is not between"),
        (changed(&single, "piece length", b"i1073741825e"), "is not between"),
        (changed(&single, "pieces", b"3:abc"), "pieces: it is not a string of hashes"),
        (changed(&single, "length", b"i-5e"), "info.length: -5 is not allowed"),
        (added(&single, "name", b"1:b"), "info.name: it stands there twice"),
        (without(&v2, "file tree"), "file tree: it is missing"),
        (changed(&v2, "meta version", b"i3e"), "version 3 is unknown"),
        (changed(&v2, "meta version", b"i1e"), "version 1 is unknown"),
        (changed(&v2, "piece length", b"i8192e"), "8192 is not a power of two"),
        (changed(&v2, "piece length", b"i16385e"), "16385 is not a power of two"),
        (changed(&v2, "piece length", b"i016384e"), "must be canonical"),
        (added(&v2, "pieces", pieces), "files: it is missing"),
        (added(&v2, "length", b"i5e"), "pieces: it is missing"),
    ] {
        let error = Metainfo::read(&bytes).unwrap_err().to_string();
        assert!(error.contains(why), "{error:?} is not {why:?}");
    }
    // Unsorted keys are common in v1; the info-hash is that of the bytes as they came.
    let mut unsorted = single;
    unsorted.reverse();
    let info = Metainfo::read(&with_info(&unsorted)).unwrap().info;
    assert_eq!(info.hash_v1(), Some(InfoHashV1::of(&info.raw()[..])));
    assert!(info.raw().starts_with(b"d6:pieces"));
}

#[test]
fn hostile_trees_of_v2_are_refused() {
    let read = |tree: &[u8]| {
        let fields: [(&str, &[u8]); 4] = [
            ("file tree", tree),
            ("meta version", b"i2e"),
            ("name", b"1:n"),
            ("piece length", b"i16384e"),
        ];
        Metainfo::read(&with_info(&fields)).map(|metainfo| metainfo.info)
    };
    let root = "11:pieces root32:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let file = format!("d0:d6:lengthi5e{root}ee");
    let deep = |depth: usize| format!("{}{file}{}", "d1:a".repeat(depth), "e".repeat(depth));
    for (tree, why) in [
        ("de".to_owned(), "there are no files"),
        ("le".to_owned(), "file tree: it is not a dictionary"),
        ("d1:ai5ee".to_owned(), "file tree/a: it is not a dictionary"),
        (format!("d2:..{file}e"), "file tree/..: it contains"),
        (format!("d1:ad2:..{file}ee"), "file tree/a/..: it contains"),
        (format!("d3:a/b{file}e"), "a name must not contain '/'"),
        (format!("d1:\u{1}{file}e"), "U+0001"),
        (file.clone(), "a file or a folder alone"),
        (
            format!("d1:ad0:d6:lengthi5e{root}e1:b{file}ee"),
            "file tree/a: it is not a file or a folder alone",
        ),
        ("d1:ad0:i5eee".to_owned(), "file tree/a: it is not a dictionary"),
        ("d1:ad0:deee".to_owned(), "file tree/a.length: it is missing"),
        ("d1:ad0:d6:lengthi5eeee".to_owned(), "file tree/a.pieces root: it is missing"),
        ("d1:ad0:d6:lengthi5e11:pieces root3:abceee".to_owned(), "not a string of 32 bytes"),
        (format!("d1:ad0:d6:lengthi-5e{root}eee"), "file tree/a.length: -5 is not allowed"),
        (format!("d1:ad0:d4:attr1:p6:lengthi5e{root}eee"), "file tree/a.attr"),
        (format!("d1:b{file}1:a{file}e"), "must be canonical"),
        (format!("d1:a{file}1:a{file}e"), "must be canonical"),
        (format!("d1:ad0:d6:lengthi9223372036854775807e{root}eee"), "are too large"),
        (format!("d1:ad0:d6:lengthi1099511627776e{root}eee"), "67108864 pieces are too many"),
        (format!("d1:ad0:d6:lengthi16385e{root}eee"), "piece layers: that of \"a\" is missing"),
        (deep(120), "nested more than 100 deep"),
    ] {
        let error = read(tree.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{error:?} is not {why:?}");
    }
    assert!(read(deep(90).as_bytes()).is_ok());
    // A root of zeros for an empty file, of early versions of libtorrent.
    let zeros = "0".repeat(32);
    let empty = format!("d1:ad0:d6:lengthi0e11:pieces root32:{zeros}eee");
    assert_eq!(read(empty.as_bytes()).unwrap().files()[0].pieces_root, None);
}

#[test]
fn parts_of_a_hybrid_that_differ_are_refused() {
    let good = sample("libtorrent-hybrid-files").write();
    let text = good.iter().map(|byte| char::from(*byte)).collect::<String>();
    let change = |from: &str, to: &str| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        assert_eq!(from.len(), to.len());
        let changed = text.replace(from, to).chars().map(|c| c as u8).collect::<Vec<u8>>();
        Metainfo::read(&changed).unwrap_err().to_string()
    };
    for (from, to, why) in [
        (
            "4:pathl3:a-b",
            "4:pathl3:a-a",
            "file tree/a-b: the v1 and the v2 part differ in the names",
        ),
        (
            "lengthi5e4:path",
            "lengthi6e4:path",
            "file tree/a-b: the v1 and the v2 part differ in its length",
        ),
        (
            "lengthi32763e4",
            "lengthi32762e4",
            "file tree/a.bin: the v1 and the v2 part differ in the padding",
        ),
        ("lengthi25536e4", "lengthi25537e4", "the padding behind the last file"),
        ("d4:attr1:p6:lengthi25536e", "d4:attr1:q6:lengthi25536e", "the number of files"),
    ] {
        let error = change(from, to);
        assert!(error.contains(why), "{error:?} is not {why:?}");
    }
}

#[test]
fn wrong_piece_layers_are_refused() {
    let mut metainfo = sample("libtorrent-v2-files");
    let layers = metainfo.piece_layers.clone();
    let root = *layers.keys().next().unwrap();
    let path = metainfo.info.files().iter().find(|file| file.pieces_root == Some(root)).unwrap();
    let begins = format!("piece layers: that of {:?} ", path.path.as_str());
    let mut swapped = layers[&root].to_vec();
    swapped.swap(0, 1);
    for (layer, why) in [
        (None, "is missing"),
        (Some(swapped), "does not match the root"),
        (Some(vec![[0; 32]; 7]), "has the wrong length"),
    ] {
        metainfo.piece_layers = layers.clone();
        match layer {
            None => drop(metainfo.piece_layers.remove(&root)),
            Some(layer) => drop(metainfo.piece_layers.insert(root, layer.into())),
        }
        let error = Metainfo::read(&metainfo.write()).unwrap_err().to_string();
        assert_eq!(error, format!("{begins}{why}"));
    }
}

#[test]
fn a_huge_metafile_of_garbage_is_refused_fast() {
    // Each would cost seconds or gigabytes in a reader that believes it.
    let head = b"d4:infod5:filesl";
    let many = |unit: &[u8], bytes: usize| [&head[..], &unit.repeat(bytes / unit.len())].concat();
    let size = METAFILE_BYTES_MAX;
    for (what, bytes) in [
        ("too large", vec![b'd'; size + 1]),
        ("zeros", vec![0; size]),
        ("dictionaries", vec![b'd'; size]),
        ("open lists", many(b"l", size - 16)),
        ("empty lists", many(b"le", size - 16)),
        ("empty strings", many(b"0:", size - 16)),
        ("numbers", many(b"i1e", size - 16)),
    ] {
        assert!(Metainfo::read(&bytes).is_err(), "{what}");
    }
    // The same, complete.
    for unit in [&b"le"[..], b"0:", b"de"] {
        let files = format!("l{}e", str::from_utf8(unit).unwrap().repeat(2_000_000));
        assert!(Metainfo::read(&v1(&files, 0)).is_err());
        let path = format!("ld6:lengthi5e4:path{files}ee");
        assert!(Metainfo::read(&v1(&path, 5)).is_err());
    }
    // Short names below a long folder would need many times the memory of the metafile.
    let folder = |name: &str| format!("255:{}", name.repeat(255));
    let mut tree = format!("d{}d{}d{}d", folder("a"), folder("b"), folder("c"));
    for number in 0..40_000 {
        tree += &format!("5:{number:05}d0:d6:lengthi0eee");
    }
    tree += "eeee";
    let fields: [(&str, &[u8]); 4] = [
        ("file tree", tree.as_bytes()),
        ("meta version", b"i2e"),
        ("name", b"1:n"),
        ("piece length", b"i16384e"),
    ];
    let error = Metainfo::read(&with_info(&fields)).unwrap_err().to_string();
    assert!(error.contains("the paths are too long altogether"), "{error}");
}

#[test]
fn only_so_many_trackers_are_kept() {
    let mut metainfo = sample("libtorrent-v1-single");
    let tracker = |number: u32| url(&format!("http://t{number}.example/"));
    metainfo.trackers = vec![(0..1500).map(tracker).collect(), vec![tracker(7)]];
    let read = Metainfo::read(&metainfo.write()).unwrap();
    assert_eq!(read.trackers.iter().map(Vec::len).sum::<usize>(), 1000);
    // A single tracker may stand in `announce` alone, and useless addresses do no harm.
    let mut out = Writer::new();
    out.dict().text("announce").text(" http://a.example/x ");
    out.text("announce-list").list().list().text("nonsense").end().int(5).end();
    out.text("comment").int(5).text("creation date").text("today");
    out.text("info").raw(metainfo.info.raw());
    out.text("url-list")
        .list()
        .text("ftp://x.example/")
        .text("http://w.example/")
        .text("http://w.example/")
        .end();
    out.end();
    let read = Metainfo::read(&out.finish()).unwrap();
    assert_eq!(read.trackers, [[url("http://a.example/x")]]);
    assert_eq!(read.web_seeds, [url("http://w.example/")]);
    assert_eq!((read.comment, read.creation_date_s), (None, None));
}

#[test]
fn files_are_laid_out_as_libtorrent_does() {
    let files = [("z", 10), ("a/b", 20_000), ("e", 0), ("a-", 16_384)].map(|(p, n)| (path(p), n));
    let layout = |kind| {
        let given = files.iter().map(|(path, length_bytes)| (path, *length_bytes));
        let layout = Layout::new(kind, 16_384, given).unwrap();
        let entries = layout.entries.iter().map(|entry| match entry.what {
            What::File(file) => format!("{}@{}", files[file].0, entry.offset),
            What::Padding => format!("+{}", entry.length_bytes),
        });
        (entries.collect::<Vec<_>>().join(" "), layout.total_bytes, layout.pieces)
    };
    assert_eq!(layout(Kind::V1), ("z@0 a/b@10 e@20010 a-@20010".to_owned(), 36_394, 3));
    let hybrid = "a/b@0 +12768 a-@32768 e@49152 z@49152 +16374";
    assert_eq!(layout(Kind::Hybrid), (hybrid.to_owned(), 65_536, 4));
    assert_eq!(layout(Kind::V2), ("a/b@0 +12768 a-@32768 e@49152 z@49152".to_owned(), 49_162, 4));
    let same = Layout::new(Kind::V1, 1, [(&files[0].0, 1); 2]);
    assert!(matches!(same, Err(MetainfoError::Duplicate { .. })));
    assert_eq!(Layout::new(Kind::V1, 1, []), Err(MetainfoError::NoFiles));
    for (kind, piece_bytes) in
        [(Kind::V1, 0), (Kind::V2, 8192), (Kind::Hybrid, 3 << 14), (Kind::V1, u64::MAX)]
    {
        let files = files.iter().map(|(path, length_bytes)| (path, *length_bytes));
        let error = Layout::new(kind, piece_bytes, files).unwrap_err();
        assert!(matches!(error, MetainfoError::PieceLength { .. }));
    }
}

#[test]
fn a_builder_refuses_what_does_not_fit() {
    let mut builder = Builder::new(Kind::Hybrid, path("n"), 1 << 14);
    assert_eq!(builder.build(), Err(MetainfoError::NoFiles));
    builder.files = vec![NewFile::new(path("a"), 20_000)];
    let good = hashed(builder.clone());
    assert!(good.build().is_ok());
    let mut bad = good.clone();
    bad.is_single_file = true;
    assert!(bad.build().is_err());
    let mut bad = good.clone();
    bad.pieces_v1.truncate(20);
    assert!(matches!(bad.build(), Err(MetainfoError::PieceCount { expected: 2, found: 1, .. })));
    let mut bad = good.clone();
    bad.files[0].hashes = None;
    assert!(matches!(bad.build(), Err(MetainfoError::Missing { .. })));
    let mut bad = good;
    bad.files[0].hashes.as_mut().unwrap().piece_layer[0][0] ^= 1;
    assert!(matches!(bad.build(), Err(MetainfoError::PieceLayer { .. })));
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::V1), Just(Kind::V2), Just(Kind::Hybrid)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_built_is_read(
        kind in kinds(),
        piece_log in 14..17u32,
        files in prop::collection::btree_map("[a-c!-]{1,2}(/[a-c!-]{1,2}){0,2}", prop_oneof![
            Just(0u64), 1..100u64, Just(16_384u64), Just(32_768u64), 1..90_000u64,
        ], 1..8),
        executable: bool,
    ) {
        let mut builder = Builder::new(kind, path("name"), 1 << piece_log);
        builder.files = files.iter().map(|(name, length)| NewFile::new(path(name), *length)).collect();
        builder.files[0].is_executable = executable;
        let collides = files.keys().any(|a| files.keys().any(|b| b.starts_with(&format!("{a}/"))));
        if collides {
            let error = builder.build().unwrap_err();
            prop_assert!(error.to_string().ends_with("is a file and a folder"));
            return Ok(());
        }
        let builder = hashed(builder);
        let built = builder.build().unwrap();
        let written = built.write();
        prop_assert!(bencode::read(&written).unwrap().is_canonical());
        prop_assert_eq!(Metainfo::read(&written), Ok(built.clone()));
        // The layout that the creator hashed by is what readers see, padding included.
        let layout = builder.layout().unwrap();
        prop_assert_eq!(built.info.total_bytes(), layout.total_bytes);
        prop_assert_eq!(built.info.piece_count(), layout.pieces);
        let (mut places, mut padding) = (Vec::new(), Vec::new());
        for entry in layout.entries {
            match entry.what {
                What::File(file) => places.push((builder.files[file].path.clone(), entry.offset)),
                What::Padding => padding.push(Range::of_len(entry.offset, entry.length_bytes)),
            }
        }
        let is_single = built.info.is_single_file();
        let read: Vec<_> = built.info.files().iter().map(|file| (file.path.clone(), file.offset)).collect();
        prop_assert_eq!(read, places);
        prop_assert_eq!(built.info.padding().collect::<Vec<_>>(), padding);
        prop_assert_eq!(is_single, kind == Kind::V2 && files.len() == 1 && !builder.files[0].path.as_str().contains('/'));
        if kind.has_v2() {
            for file in built.info.files() {
                prop_assert_eq!(file.pieces_root, sha256_tree::file_root(&content(file.length_bytes)));
            }
        }
    }

    /// Whatever happens to a metafile, it is refused or still describes something sound.
    #[test]
    fn changed_metafiles_do_no_harm(
        which in 0..SAMPLES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = SAMPLES[which].1.to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(metainfo) = Metainfo::read(&bytes) {
            let written = Metainfo { unused: Vec::new(), ..metainfo.clone() };
            prop_assert_eq!(Metainfo::read(&metainfo.write()), Ok(written));
            let mut end = 0;
            for file in metainfo.info.files() {
                prop_assert!(file.offset >= end);
                end = file.offset + file.length_bytes;
            }
            prop_assert!(end <= metainfo.info.total_bytes());
        }
    }
}

/// A torrent of files with these paths, each of one name or more, and of 4 bytes each.
fn of_paths(paths: &[&[&[u8]]], name: &[u8]) -> Vec<u8> {
    let mut out = Writer::new();
    out.dict().text("info").dict().text("files").list();
    for path in paths {
        out.dict().text("length").int(4).text("path").list();
        path.iter().for_each(|name| _ = out.bytes(name));
        out.end().end();
    }
    let pieces = (4 * paths.len()).div_ceil(16_384) * 20;
    out.end().text("name").bytes(name).text("piece length").int(16_384);
    out.text("pieces").bytes(&vec![0; pieces]).end().end();
    out.finish()
}

#[test]
fn names_that_are_not_utf_8_are_kept_in_codes() {
    // Strict readers refused these, and every other client fetches them.
    let paths: [&[&[u8]]; 3] =
        [&[b"Stra\xdfe 7.dat"], &[b"r\xe9sum\xe9", b"a"], &["straße".as_bytes()]];
    let info = Metainfo::read(&of_paths(&paths, b"Me\xdf")).unwrap().info;
    let found: Vec<&str> = info.files().iter().map(|file| file.path.as_str()).collect();
    assert_eq!(found, ["Stra%DFe 7.dat", "r%E9sum%E9/a", "straße"]);
    assert_eq!((info.name().as_str(), info.odd_name_count()), ("Me%DF", 3));
    // Web seeds have the names as they were.
    let address = |file| info.web_seed_url(&url("http://m.example/"), &info.files()[file]).unwrap();
    assert_eq!(address(0).as_str(), "http://m.example/Me%DF/Stra%DFe%207.dat");
    assert_eq!(address(1).as_str(), "http://m.example/Me%DF/r%E9sum%E9/a");
    assert_eq!(address(2).as_str(), "http://m.example/Me%DF/stra%C3%9Fe");
    // Codes do not hide what is dangerous, and two files never get one name.
    for path in [&b".."[..], b"a\xdf/..", b"\xdf\0"] {
        let refused = Metainfo::read(&of_paths(&[&[path], &[b"b"]], b"x"));
        assert!(matches!(refused, Err(MetainfoError::Name { .. })), "{refused:?}");
    }
    let refused = Metainfo::read(&of_paths(&[&[b"a\xdf"], &[b"a%DF"]], b"x"));
    assert!(matches!(refused, Err(MetainfoError::Duplicate { .. })), "{refused:?}");
}

#[test]
fn padding_of_other_programs_is_known_by_its_name() {
    let paths: [&[&[u8]]; 5] = [
        &[b"a"],
        &[b"_____padding_file_0_\xc8\xe7\xb9\xfb____"],
        &[b"b"],
        &[b"sub", b"_____padding_file_1_"],
        &[b"notes"],
    ];
    let mut metainfo = Metainfo::read(&of_paths(&paths, b"x")).unwrap();
    let files = |metainfo: &Metainfo| -> Vec<(String, u64, u32)> {
        let files = metainfo.info.files().iter();
        files.map(|file| (file.path.to_string(), file.offset, file.number)).collect()
    };
    let all = [("a", 0, 0), ("b", 8, 2), ("notes", 16, 4)];
    assert_eq!(
        files(&metainfo),
        all.map(|(path, offset, number)| (path.to_owned(), offset, number))
    );
    // Links count padding too (BEP 53).
    let numbers = [Range::of_len(1, 2), Range::of_len(9, 5)].into_iter().collect();
    assert_eq!(metainfo.select_numbers(&numbers), 1);
    let wanted: Vec<usize> =
        metainfo.content().iter().filter(|part| part.is_wanted).map(|part| part.file).collect();
    assert_eq!(wanted, [1]);
    assert_eq!(metainfo.select_numbers(&[Range::of_len(1, 1)].into_iter().collect()), 0);
}

#[test]
fn what_nobody_uses_of_a_metafile_is_noted() {
    let mut out = Writer::new();
    out.dict().text("announce").text("wss://t.example/key");
    out.text("httpseeds").list().text("http://a.example/seed").end();
    out.text("info").bytes(b"");
    let mut text = out.finish();
    let info = of_paths(&[&[b"a"], &[b"b"]], b"x");
    // The dictionary of the other metafile, behind its key.
    text.truncate(text.len() - 2);
    text.extend(&info[b"d4:info".len()..info.len() - 1]);
    text.extend(b"5:nodesll1:ai1eee8:url-listl0:17:ftp://m.example/d18:http://m.example/dee");
    let metainfo = Metainfo::read(&text).unwrap();
    let unused: Vec<String> = metainfo.unused.iter().map(ToString::to_string).collect();
    assert_eq!(
        unused,
        ["announce=wss://t.example", "url-list=ftp://m.example", "httpseeds", "nodes"]
    );
    assert_eq!(metainfo.web_seeds, [url("http://m.example/d")]);
}
