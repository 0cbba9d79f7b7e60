//! The one pass over a dataset against hashing it piece by piece, and files that change meanwhile.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use sha1::{Digest as _, Sha1};
use swath_model::digest::{Algorithm, Hasher, sha256_tree};
use swath_publish::{Content, HashError, Hashes, Places, Progress, Wanted, hash};
use swath_store::tree::Filter;

const WHOLE: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Blake3];

/// Fills a folder with files of lengths around those where something changes.
fn fill(folder: &Path, piece_bytes: u64) {
    let mut random = fastrand::Rng::with_seed(piece_bytes);
    fs::create_dir_all(folder.join("b/deep")).unwrap();
    let lengths = [
        0,
        1,
        16_383,
        16_384,
        16_385,
        piece_bytes - 1,
        piece_bytes,
        piece_bytes + 1,
        3 * piece_bytes + 5,
        (5 << 20) + 7,
    ];
    for (number, &length) in lengths.iter().enumerate() {
        let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        let below = if number % 3 == 0 { "b/deep" } else { "" };
        fs::write(folder.join(below).join(format!("{number}.bin")), bytes).unwrap();
    }
}

/// Lays the files out; each begins at a piece if `aligned`.
fn places(content: &Content, piece_bytes: u64, aligned: bool) -> Places {
    let mut total_bytes = 0u64;
    let mut offsets = Vec::new();
    for file in &content.files {
        if aligned && file.bytes > 0 {
            total_bytes = total_bytes.next_multiple_of(piece_bytes);
        }
        offsets.push(total_bytes);
        total_bytes += file.bytes;
    }
    Places { piece_bytes, offsets, total_bytes, segment_bytes: u64::MAX }
}

fn check(folder: &Path, content: &Content, places: &Places, hashes: &Hashes) {
    let mut virtual_file = vec![0; places.total_bytes as usize];
    for ((file, &at), hashed) in content.files.iter().zip(&places.offsets).zip(&hashes.files) {
        let path = folder.join(str::from_utf8(&file.path).unwrap());
        let bytes = fs::read(path).unwrap();
        virtual_file[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        for (algorithm, digest) in WHOLE.iter().zip(&hashed.whole) {
            assert_eq!(*digest, Hasher::digest(*algorithm, &bytes), "{:?}", file.path);
        }
        assert_eq!(hashed.whole.len(), WHOLE.len());
        if let Some(end) = hashed.end {
            let last = bytes.chunks(places.piece_bytes as usize).last().unwrap();
            assert_eq!(end, <[u8; 20]>::from(Sha1::digest(last)), "{:?}", file.path);
        }
        // Only v2 torrents have trees; the length of their pieces is a power of two.
        if !hashed.v2_pieces.is_empty() || hashes.v1_pieces.is_empty() {
            let expected: Vec<[u8; 32]> = match file.bytes <= places.piece_bytes {
                true => sha256_tree::file_root(&bytes).into_iter().collect(),
                false => {
                    let pieces = bytes.chunks(places.piece_bytes as usize);
                    pieces.map(|piece| sha256_tree::piece_root(piece, places.piece_bytes)).collect()
                }
            };
            assert_eq!(hashed.v2_pieces, expected, "{:?}", file.path);
        }
    }
    if !hashes.v1_pieces.is_empty() {
        let pieces = virtual_file.chunks(places.piece_bytes as usize);
        assert_eq!(hashes.v1_pieces, pieces.map(Sha1::digest).collect::<Vec<_>>().concat());
    }
}

#[test]
fn every_digest_is_right_for_every_length_of_pieces() {
    // Torrents of v1 may have pieces of any length.
    for piece_bytes in [16 << 10, 30_001, 64 << 10, 1 << 20, 8 << 20] {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path(), piece_bytes);
        let content = Content::list(folder.path(), Filter::default()).unwrap();
        assert_eq!(content.files.len(), 10);
        for (v1, v2) in [(true, false), (false, true), (true, true)] {
            if v2 && piece_bytes == 30_001 {
                continue;
            }
            let places = places(&content, piece_bytes, v2);
            let wanted = Wanted { v1, v2, ends: v1 && v2, whole: WHOLE.to_vec() };
            let progress = Progress::default();
            let hashes = hash(&content, &places, &wanted, &progress).unwrap();
            check(folder.path(), &content, &places, &hashes);
            assert_eq!(hashes.v1_pieces.is_empty(), !v1);
            let ends = hashes.files.iter().filter(|file| file.end.is_some()).count();
            assert_eq!(ends, if v1 && v2 { 9 } else { 0 });
            assert_eq!(progress.into_inner(), content.bytes());
            // Without whole files the bytes of a unit are not kept.
            let lean = Wanted { whole: Vec::new(), ..wanted };
            let lean = hash(&content, &places, &lean, &Progress::default()).unwrap();
            assert_eq!(lean.v1_pieces, hashes.v1_pieces);
            for (lean, full) in lean.files.iter().zip(&hashes.files) {
                assert_eq!((&lean.v2_pieces, lean.end), (&full.v2_pieces, full.end));
            }
        }
    }
}

#[test]
fn a_single_file_is_a_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.bin");
    fs::write(&path, vec![7; 100_000]).unwrap();
    let content = Content::list(&path, Filter::default()).unwrap();
    assert!(content.is_single() && content.files.len() == 1);
    let places = places(&content, 32 << 10, false);
    let wanted = Wanted { v1: true, v2: true, ends: false, whole: WHOLE.to_vec() };
    let hashes = hash(&content, &places, &wanted, &Progress::default()).unwrap();
    check(folder.path(), &content, &places, &hashes);
}

#[test]
fn links_within_are_followed_and_others_are_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "content").unwrap();
    std::os::unix::fs::symlink("a", folder.path().join("b")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", folder.path().join("c")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path().join("d")).unwrap();
    let content = Content::list(folder.path(), Filter::default()).unwrap();
    let paths: Vec<&[u8]> = content.files.iter().map(|file| &*file.path).collect();
    assert_eq!(paths, [b"a", b"b"]);
    assert_eq!(content.left_out, [b"c", b"d"]);
}

/// Truncated, grown, touched, removed: the digests would be of a file that never was.
#[test]
fn a_file_that_changes_is_refused() {
    type Change = fn(&Path);
    let changes: [(Change, &str); 4] = [
        (
            |path| File::options().write(true).open(path).unwrap().set_len(99_999).unwrap(),
            "changed",
        ),
        (
            |path| File::options().write(true).open(path).unwrap().set_len(100_001).unwrap(),
            "changed",
        ),
        (
            |path| {
                let file = File::options().write(true).open(path).unwrap();
                file.set_modified(SystemTime::now() + Duration::from_secs(9)).unwrap();
            },
            "changed",
        ),
        (|path| fs::remove_file(path).unwrap(), "cannot read"),
    ];
    for (change, word) in changes {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), vec![1; 100_000]).unwrap();
        fs::write(folder.path().join("b"), vec![2; 100_000]).unwrap();
        let content = Content::list(folder.path(), Filter::default()).unwrap();
        change(&folder.path().join("b"));
        let places = places(&content, 16 << 10, false);
        let wanted = Wanted { v1: true, ..Wanted::default() };
        let error = hash(&content, &places, &wanted, &Progress::default()).unwrap_err();
        let path = match &error {
            HashError::Changed(path) => path,
            HashError::Read { path, .. } => path,
        };
        assert!(path == "b" && error.to_string().contains(word), "{error}");
    }
}
