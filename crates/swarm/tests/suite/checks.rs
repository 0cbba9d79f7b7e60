//! What is offered: pieces whose bytes are right when a torrent is checked, as long as the files stay as
//! they are.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use swath_formats::peer::PieceIndex;
use swath_formats::torrent::Metainfo;
use swath_formats::torrent::metainfo::{Builder, Kind, NewFile};
use swath_model::Range;
use swath_model::digest::{Algorithm, Hasher};
use swath_model::path::SafePath;
use swath_source::peer::Uploads as _;
use swath_swarm::{Checked, ContentError, Fault, FileUploads, OpenFiles, TorrentFiles, check};
use tokio::sync::mpsc;

const PIECE: usize = 16 << 10;

fn path(name: &str) -> SafePath {
    SafePath::new(name).unwrap()
}

fn bytes(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251 + seed) as u8).collect()
}

/// Two files end to end, five pieces, of which the third has bytes of both.
struct Dataset {
    folder: tempfile::TempDir,
    metainfo: Metainfo,
}

impl Dataset {
    fn new() -> Dataset {
        let folder = tempfile::tempdir().unwrap();
        let files = [("a.h5", bytes(1, 40_000)), ("b.txt", bytes(2, 30_000))];
        let all = files.each_ref().map(|(_, bytes)| bytes.clone()).concat();
        let mut builder = Builder::new(Kind::V1, path("run7"), PIECE as u64);
        for (name, bytes) in &files {
            builder.files.push(NewFile::new(path(name), bytes.len() as u64));
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let digests = all.chunks(PIECE).map(|piece| Hasher::digest(Algorithm::Sha1, piece));
        builder.pieces_v1 = digests.flat_map(|digest| digest.as_bytes().to_vec()).collect();
        Dataset { folder, metainfo: builder.build().unwrap() }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn flip(&self, name: &str, at: usize) {
        let mut bytes = fs::read(self.at(name)).unwrap();
        bytes[at] ^= 1;
        fs::write(self.at(name), bytes).unwrap();
    }

    fn files(&self) -> TorrentFiles {
        let open = Arc::new(OpenFiles::new(4));
        TorrentFiles::find(&self.metainfo.info, self.folder.path(), open).unwrap()
    }

    fn check(&self) -> Checked {
        let progress = AtomicU64::new(0);
        let checked = check(&self.metainfo, &self.files(), &progress, &AtomicBool::new(false));
        assert_eq!(progress.into_inner(), 70_000);
        checked
    }
}

fn pieces(checked: &Checked) -> Vec<u32> {
    checked.have.iter().map(|piece| piece.0).collect()
}

/// How many wrong pieces a file has.
#[track_caller]
fn wrong(checked: &Checked, name: &str) -> u64 {
    match checked.faults.get(name) {
        Some(Fault::Pieces(count)) => *count,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn all_of_an_intact_dataset_is_offered() {
    let checked = Dataset::new().check();
    assert!(checked.have.is_full() && checked.faults.is_empty(), "{checked:?}");
}

#[test]
fn a_wrong_piece_is_not_offered_and_its_file_is_named() {
    let dataset = Dataset::new();
    dataset.flip("a.h5", 20_000);
    let checked = dataset.check();
    assert_eq!(pieces(&checked), [0, 2, 3, 4]);
    assert_eq!(wrong(&checked, "a.h5"), 1);
    assert!(!checked.faults.contains_key("b.txt"));
}

#[test]
fn a_wrong_piece_of_two_files_is_that_of_both() {
    let dataset = Dataset::new();
    dataset.flip("b.txt", 0);
    dataset.flip("b.txt", 29_999);
    let checked = dataset.check();
    assert_eq!(pieces(&checked), [0, 1, 3]);
    assert_eq!((wrong(&checked, "a.h5"), wrong(&checked, "b.txt")), (1, 2));
}

#[test]
fn a_missing_file_takes_its_pieces_and_no_others() {
    let dataset = Dataset::new();
    fs::remove_file(dataset.at("b.txt")).unwrap();
    let checked = dataset.check();
    assert_eq!(pieces(&checked), [0, 1]);
    let fault = checked.faults.get("b.txt");
    assert!(matches!(fault, Some(Fault::File(ContentError::Read { .. }))), "{fault:?}");
}

#[test]
fn a_file_of_another_length_is_not_read_unless_each_piece_is_verified() {
    let dataset = Dataset::new();
    let whole = fs::read(dataset.at("a.h5")).unwrap();
    fs::write(dataset.at("a.h5"), &whole[..39_000]).unwrap();
    let checked = dataset.check();
    assert_eq!(pieces(&checked), [3, 4]);
    let Some(Fault::File(ContentError::Length { has_bytes, wanted_bytes, .. })) =
        checked.faults.get("a.h5")
    else {
        panic!("{:?}", checked.faults)
    };
    assert_eq!((*has_bytes, *wanted_bytes), (39_000, 40_000));
    let files = dataset.files().of_any_length();
    let (progress, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let checked = check(&dataset.metainfo, &files, &progress, &stop);
    assert_eq!(pieces(&checked), [0, 1, 3, 4], "its beginning is right");
}

#[test]
fn a_check_that_is_stopped_offers_and_blames_nothing_more() {
    let dataset = Dataset::new();
    let progress = AtomicU64::new(0);
    let checked = check(&dataset.metainfo, &dataset.files(), &progress, &AtomicBool::new(true));
    assert!(pieces(&checked).is_empty() && checked.faults.is_empty());
    assert_eq!(progress.load(Ordering::Relaxed), 0);
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let dataset = Dataset::new();
    let open = Arc::new(OpenFiles::new(4));
    let found = TorrentFiles::find(&dataset.metainfo.info, Path::new("/none/such"), open);
    assert!(matches!(found, Err(ContentError::Folder(_))));
}

#[test]
fn a_stamp_changes_with_any_file() {
    let dataset = Dataset::new();
    let files = dataset.files();
    let before = files.stamp();
    assert_eq!(files.stamp(), before);
    fs::write(dataset.at("b.txt"), "short").unwrap();
    let changed = files.stamp();
    assert_ne!(changed, before);
    fs::remove_file(dataset.at("b.txt")).unwrap();
    assert_ne!(files.stamp(), changed);
}

#[tokio::test]
async fn peers_get_what_was_checked_and_a_file_that_changes_is_reported() {
    let dataset = Dataset::new();
    let files = Arc::new(dataset.files());
    let progress = AtomicU64::new(0);
    let checked = check(&dataset.metainfo, &files, &progress, &AtomicBool::new(false));
    assert!(checked.have.contains(PieceIndex(0)));
    let (lost, mut reports) = mpsc::channel(4);
    let uploads = FileUploads::new(files, lost);
    let mut sent = vec![9];
    uploads.read(Range::new(39_999, 40_001), &mut sent).await.unwrap();
    assert_eq!(sent, [9, bytes(1, 40_000)[39_999], bytes(2, 1)[0]]);
    assert!(reports.try_recv().is_err());
    // Of the same length, with other bytes and another time.
    dataset.flip("a.h5", 5);
    let file = fs::File::options().write(true).open(dataset.at("a.h5")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    uploads.read(Range::new(0, 10), &mut sent).await.unwrap_err();
    assert_eq!(sent.len(), 3, "nothing of it");
    let report = reports.try_recv().expect("a report");
    assert_eq!(report.range, Range::new(0, 40_000));
    assert!(matches!(report.error, ContentError::Changed { path } if path == "a.h5"));
    // The other file is still served.
    uploads.read(Range::new(50_000, 50_010), &mut sent).await.unwrap();
}
