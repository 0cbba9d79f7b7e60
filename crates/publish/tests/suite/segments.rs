//! Torrents that list long files as segments: their hashes, and files on the disk against them.

use std::fs;
use std::path::{Path, PathBuf};

use swath_formats::torrent::Metainfo;
use swath_formats::torrent::metainfo::Kind;
use swath_model::digest::{Algorithm, Hasher};
use swath_publish::{Checked, Content, Progress, Publication, WrongFile, check_torrent};
use swath_store::tree::Filter;

use crate::common::{PIECE, publication, write_files};

const SEGMENT: u64 = 4 * PIECE;
const KINDS: [Kind; 3] = [Kind::V1, Kind::V2, Kind::Hybrid];
/// The ends of files lie before, at and behind the ends of pieces and segments.
const FILES: [(&str, u64); 6] = [
    ("a/short", SEGMENT),
    ("b", 2 * SEGMENT + 5),
    ("c", 0),
    ("d", 2 * SEGMENT + PIECE),
    ("e", SEGMENT + PIECE + 20_000),
    ("f", 3 * SEGMENT),
];

struct Dataset {
    folder: tempfile::TempDir,
    torrent: Metainfo,
    /// The Metalink, which lists files whole.
    metalink: String,
}

impl Dataset {
    /// A dataset `data` of these files, or only the file if there is one.
    fn new(kind: Kind, files: &[(&str, u64)], segment_bytes: Option<u64>) -> Dataset {
        let folder = tempfile::tempdir().unwrap();
        let published = write_files(folder.path(), files);
        let content = Content::list(&published, Filter::default()).unwrap();
        let name = published.file_name().unwrap().to_str().unwrap().to_owned();
        let publication = Publication { segment_bytes, ..publication(&name, kind) };
        let out = folder.path().join("pub");
        publication.make(&content, &out, &Progress::default()).unwrap();
        let torrent = fs::read(out.join(format!("{name}.torrent"))).unwrap();
        let metalink = fs::read_to_string(out.join(format!("{name}.meta4"))).unwrap();
        Dataset { folder, torrent: Metainfo::read(&torrent).unwrap(), metalink }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("at").join(path)
    }

    /// Puts the segments of a file in the folder of its name, in its place.
    fn split(&self, path: &str) {
        let bytes = fs::read(self.at(path)).unwrap();
        fs::remove_file(self.at(path)).unwrap();
        fs::create_dir(self.at(path)).unwrap();
        for (number, segment) in bytes.chunks(SEGMENT as usize).enumerate() {
            let name = Path::new(path).file_name().unwrap().to_str().unwrap();
            fs::write(self.at(path).join(format!("{name}.{number:03}")), segment).unwrap();
        }
    }

    fn change(&self, path: &str, at: usize) {
        let mut bytes = fs::read(self.at(path)).unwrap();
        bytes[at] ^= 1;
        fs::write(self.at(path), bytes).unwrap();
    }

    fn check(&self, place: &str) -> Checked {
        check_torrent(&self.at(place), &self.torrent, &Progress::default()).unwrap()
    }
}

#[test]
fn every_piece_is_that_of_the_whole_file() {
    for (kind, files) in
        KINDS.into_iter().flat_map(|kind| [(kind, &FILES[..]), (kind, &FILES[1..2])])
    {
        let data = Dataset::new(kind, files, Some(SEGMENT));
        let info = &data.torrent.info;
        assert_eq!(info.is_single_file(), files.len() == 1);
        let found: Vec<_> =
            info.files().iter().map(|file| (file.path.as_str(), file.length_bytes)).collect();
        assert_eq!(found, files, "{kind:?}");
        let mut space = vec![0; info.total_bytes() as usize];
        for file in info.files() {
            let bytes = fs::read(data.at("data").join(file.path.as_path())).unwrap();
            space[file.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        for (number, piece) in (0..).zip(space.chunks(PIECE as usize)) {
            if let Some(pieces) = info.pieces_v1() {
                let digest = Hasher::digest(Algorithm::Sha1, piece);
                assert_eq!(pieces.digest(number), Some(digest), "{kind:?} {number}");
            }
            if kind.has_v2() {
                let piece = data.torrent.piece_v2(number).unwrap();
                let range = piece.range.start as usize..piece.range.end as usize;
                assert!(piece.is_verified_by(&space[range]), "{kind:?} {number}");
            }
        }
        // Other mirrors have the files whole.
        assert_eq!(data.metalink, Dataset::new(kind, files, None).metalink, "{kind:?}");
    }
}

#[test]
fn a_dataset_matches_with_files_whole_or_in_segments() {
    for kind in KINDS {
        let data = Dataset::new(kind, &FILES, Some(SEGMENT));
        let bytes = FILES.iter().map(|file| file.1).sum();
        for split in ["", "b", "d", "e", "f"] {
            if !split.is_empty() {
                data.split(&format!("data/{split}"));
            }
            for place in ["", "data"] {
                let right = Checked { files: 6, bytes, ..Checked::default() };
                assert_eq!(data.check(place), right, "{kind:?} {split} {place}");
            }
        }
        data.change("data/e/e.001", PIECE as usize + 3);
        fs::remove_file(data.at("data/f/f.000")).unwrap();
        let Checked { wrong, wrong_files, files, .. } = data.check("data");
        let missing = (b"f/f.000".to_vec(), WrongFile::Missing);
        if kind == Kind::V1 {
            // The changed piece goes on in the next segment, which is missing, so it cannot be checked.
            assert_eq!((wrong, wrong_files, files), (vec![missing], 1, 6), "{kind:?}");
            continue;
        }
        let pieces = WrongFile::Pieces { wrong: 1, of: 2, first: PIECE };
        assert_eq!(wrong, [(b"e/e.001".to_vec(), pieces), missing], "{kind:?}");
        assert_eq!((wrong_files, files), (2, 6), "{kind:?}");
    }
}

#[test]
fn a_single_file_matches_whole_or_in_segments() {
    for kind in KINDS {
        let data = Dataset::new(kind, &FILES[1..2], Some(SEGMENT));
        fs::copy(data.at("data/b"), data.at("other")).unwrap();
        for place in ["data", "data/b", "other"] {
            let checked = data.check(place);
            assert_eq!((checked.files, checked.wrong), (1, Vec::new()), "{kind:?} {place}");
        }
        data.change("other", 2 * SEGMENT as usize + 4);
        let wrong = WrongFile::Pieces { wrong: 1, of: 9, first: 2 * SEGMENT };
        assert_eq!(data.check("other").wrong, [(b"b".to_vec(), wrong)], "{kind:?}");
        assert_eq!(data.check("").wrong, [(b"b".to_vec(), WrongFile::Missing)], "{kind:?}");
        data.split("data/b");
        for place in ["data", "data/b"] {
            let checked = data.check(place);
            assert_eq!((checked.files, checked.wrong), (1, Vec::new()), "{kind:?} {place}");
        }
        fs::remove_file(data.at("data/b/b.000")).unwrap();
        let wrong = data.check("data").wrong;
        assert_eq!(wrong, [(b"b.000".to_vec(), WrongFile::Missing)], "{kind:?}");
    }
}
