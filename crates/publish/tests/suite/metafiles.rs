//! The written torrent against the bytes of the dataset.

use std::fs;

use sha1::{Digest as _, Sha1};
use swath_formats::torrent::Metainfo;
use swath_formats::torrent::metainfo::Kind;
use swath_publish::{Content, Progress};
use swath_store::tree::Filter;

use crate::common::{publication, write_files};

/// Names that compare differently as whole paths and folder by folder: a torrent whose order is not
/// that of the hashing has the right digests in the wrong places.
#[test]
fn every_piece_of_the_torrent_is_that_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let paths = ["a/b", "a-b/c", "a.txt", "a!", "a/b.d/e", "a/b-", "empty", "z/a", "z.a"];
    for (number, path) in paths.iter().enumerate() {
        let path = data.join(path);
        let length = if path.ends_with("empty") { 0 } else { 20_000 * (number + 1) };
        let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + number) as u8).collect();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    for kind in [Kind::V1, Kind::V2, Kind::Hybrid] {
        let content = Content::list(&data, Filter::default()).unwrap();
        assert_eq!(content.files.len(), paths.len());
        let publication = publication("data", kind);
        let out = folder.path().join("pub");
        publication.make(&content, &out, &Progress::default()).unwrap();
        let torrent = Metainfo::read(&fs::read(out.join("data.torrent")).unwrap()).unwrap();
        let info = &torrent.info;
        let mut virtual_file = vec![0; info.total_bytes() as usize];
        for file in info.files() {
            let bytes = fs::read(data.join(file.path.as_path())).unwrap();
            assert_eq!(bytes.len() as u64, file.length_bytes);
            virtual_file[file.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        for (number, piece) in virtual_file.chunks(32 << 10).enumerate() {
            if let Some(pieces) = info.pieces_v1() {
                let digest = pieces.digest(number as u64).unwrap();
                assert_eq!(digest.as_bytes(), &Sha1::digest(piece)[..], "{kind:?} {number}");
            }
            if kind.has_v2() {
                let piece = torrent.piece_v2(number as u64).unwrap();
                let range = piece.range.start as usize..piece.range.end as usize;
                assert!(piece.is_verified_by(&virtual_file[range]), "{kind:?} {number}");
            }
        }
    }
}

/// Versions share pieces only if these have one length; a dataset that grew a little got longer pieces.
#[test]
fn a_new_version_has_pieces_of_the_length_of_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut publication = publication("run7", Kind::Hybrid);
    let mut publish = |version: &str, bytes: u64, wanted: Option<u64>| {
        let data = write_files(folder.path(), &[("a", bytes)]);
        (publication.version, publication.piece_bytes) = (Some(version.to_owned()), wanted);
        let content = Content::list(&data, Filter::default()).unwrap();
        let made = publication.make(&content, &folder.path().join("pub"), &Progress::default());
        made.unwrap().torrent.unwrap().info.piece_bytes()
    };
    assert_eq!(publish("1", 8 << 20, None), 32 << 10);
    assert_eq!(publish("2", (8 << 20) + 4_096, None), 32 << 10);
    assert_eq!(publish("3", 5 << 20, Some(16 << 10)), 16 << 10);
    assert_eq!(publish("4", 8 << 20, None), 16 << 10);
    // It is much larger now.
    assert_eq!(publish("5", 40 << 20, None), 256 << 10);
}
