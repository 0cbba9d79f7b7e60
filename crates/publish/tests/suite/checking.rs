//! Files on the disk against the torrent and the index of their dataset.

use std::fs;
use std::path::{Path, PathBuf};

use swath_formats::torrent::Metainfo;
use swath_formats::torrent::metainfo::Kind;
use swath_publish::{Checked, Content, Index, Progress, WrongFile, check_index, check_torrent};
use swath_store::tree::Filter;

use crate::common::{PIECE, publication, write_files};

struct Dataset {
    folder: tempfile::TempDir,
    torrent: Metainfo,
    index: Index,
}

impl Dataset {
    /// A dataset `data` of these files, or only the file if there is one.
    fn new(kind: Kind, files: &[(&str, u64)]) -> Dataset {
        let folder = tempfile::tempdir().unwrap();
        let published = write_files(folder.path(), files);
        let content = Content::list(&published, Filter::default()).unwrap();
        let name = published.file_name().unwrap().to_str().unwrap().to_owned();
        let publication = publication(&name, kind);
        let out = folder.path().join("pub");
        publication.make(&content, &out, &Progress::default()).unwrap();
        let written = |extension: &str| fs::read(out.join(format!("{name}.{extension}"))).unwrap();
        let torrent = Metainfo::read(&written("torrent")).unwrap();
        let index = Index::read(str::from_utf8(&written("index")).unwrap()).unwrap();
        Dataset { folder, torrent, index }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("at").join(path)
    }

    fn change(&self, path: &str, at: usize) {
        let mut bytes = fs::read(self.at(path)).unwrap();
        bytes[at] ^= 1;
        fs::write(self.at(path), bytes).unwrap();
    }

    fn torrent(&self, place: &Path) -> Checked {
        check_torrent(place, &self.torrent, &Progress::default()).unwrap()
    }

    fn index(&self, place: &Path) -> Checked {
        check_index(place, &self.index, &Progress::default()).unwrap()
    }
}

const KINDS: [Kind; 3] = [Kind::V1, Kind::V2, Kind::Hybrid];
const FILES: [(&str, u64); 5] =
    [("a/one", 100_000), ("b", 3), ("c", 0), ("d", 200_001), ("e", 32_768)];

#[test]
fn an_intact_dataset_matches_from_either_folder() {
    for kind in KINDS {
        let data = Dataset::new(kind, &FILES);
        for place in ["", "data"] {
            for checked in [data.torrent(&data.at(place)), data.index(&data.at(place))] {
                let right = Checked { files: 5, bytes: 332_772, ..Checked::default() };
                assert_eq!(checked, right, "{kind:?} {place}");
            }
        }
    }
}

#[test]
fn a_single_file_matches_under_any_name() {
    for kind in KINDS {
        let data = Dataset::new(kind, &[("one.bin", 70_000)]);
        fs::copy(data.at("data/one.bin"), data.at("other")).unwrap();
        for place in ["data", "data/one.bin", "other"] {
            for checked in [data.torrent(&data.at(place)), data.index(&data.at(place))] {
                assert_eq!((checked.files, checked.wrong), (1, Vec::new()), "{kind:?} {place}");
            }
        }
        data.change("other", 69_999);
        let found = data.torrent(&data.at("other")).wrong;
        let wrong = WrongFile::Pieces { wrong: 1, of: 3, first: 65_536 };
        assert_eq!(found, [(b"one.bin".to_vec(), wrong)], "{kind:?}");
        let found = data.torrent(&data.at("")).wrong;
        assert_eq!(found, [(b"one.bin".to_vec(), WrongFile::Missing)], "{kind:?}");
    }
}

#[test]
fn wrong_bytes_are_found_in_their_pieces() {
    for kind in KINDS {
        let data = Dataset::new(kind, &FILES);
        data.change("data/d", 150_000);
        data.change("data/d", 200_000);
        let found = data.torrent(&data.at("data"));
        let index = data.index(&data.at("data"));
        assert_eq!(index.wrong, [(b"d".to_vec(), WrongFile::Content)], "{kind:?}");
        let [(path, WrongFile::Pieces { wrong, of, first }), rest @ ..] = &found.wrong[..] else {
            panic!("{kind:?}: {found:?}");
        };
        assert_eq!(path, b"d");
        if kind == Kind::V1 {
            // d begins at byte 100,003: its last piece is the first of e, which may be wrong too.
            assert_eq!((*wrong, *of, *first), (2, 7, 129_373), "{found:?}");
            assert_eq!(rest.len(), 1, "{found:?}");
        } else {
            assert_eq!((*wrong, *of, *first), (2, 7, 4 * PIECE), "{found:?}");
            assert_eq!(rest, []);
        }
    }
}

#[test]
fn missing_and_cut_files_are_told_apart_and_blame_no_others() {
    for kind in KINDS {
        let data = Dataset::new(kind, &FILES);
        fs::remove_file(data.at("data/b")).unwrap();
        fs::remove_file(data.at("data/c")).unwrap();
        fs::write(data.at("data/d"), [0; 200_000]).unwrap();
        fs::write(data.at("data/f"), "more").unwrap();
        let wanted = [
            (b"b".to_vec(), WrongFile::Missing),
            (b"c".to_vec(), WrongFile::Missing),
            (b"d".to_vec(), WrongFile::Length { found: 200_000, expected: 200_001 }),
        ];
        for checked in [data.torrent(&data.at("data")), data.index(&data.at("data"))] {
            assert_eq!(checked.wrong, wanted, "{kind:?}");
            assert_eq!(checked.others, [b"f".to_vec()]);
        }
        let unchecked = data.torrent(&data.at("data")).unchecked_pieces;
        assert_eq!(unchecked, if kind == Kind::V1 { 2 } else { 0 });
    }
}
