//! Data to publish, and the usual options.

use std::fs;
use std::path::{Path, PathBuf};

use swath_formats::torrent::metainfo::Kind;
use swath_publish::{Output, Publication};

/// Writes these files of these lengths below `folder/at/data`. Returns what is to be published: the folder
/// `data`, or the file if there is only one.
pub fn write_files(folder: &Path, files: &[(&str, u64)]) -> PathBuf {
    let data = folder.join("at/data");
    for (number, (path, length)) in (0..).zip(files) {
        let path = data.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes: Vec<u8> = (0..*length).map(|at| (at * 7 + at / 251 + number) as u8).collect();
        fs::write(path, bytes).unwrap();
    }
    if let [(name, _)] = files { data.join(name) } else { data }
}

pub const PIECE: u64 = 32 << 10;

/// Everything is written, without version, mirrors and trackers.
pub fn publication(name: &str, kind: Kind) -> Publication {
    Publication {
        name: name.to_owned(),
        version: None,
        mirrors: Vec::new(),
        trackers: Vec::new(),
        is_private: false,
        outputs: Output::ALL.to_vec(),
        kind,
        piece_bytes: Some(PIECE),
        segment_bytes: None,
        segment_mirrors: Vec::new(),
        comment: None,
        created_by: None,
        key: None,
        address: None,
        published: 1_764_158_400,
        replace: true,
    }
}
