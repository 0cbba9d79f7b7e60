//! Any bytes as a metafile: no panic, and what is accepted is sound and survives being written and
//! read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Component;
use swath_formats::torrent::Metainfo;

fuzz_target!(|bytes: &[u8]| {
    let mut metainfo = match Metainfo::read(bytes) {
        Ok(metainfo) => metainfo,
        Err(error) => return assert!(!error.to_string().contains('\x1b')),
    };
    // What is not used is not written.
    metainfo.unused.clear();
    assert_eq!(Metainfo::read(&metainfo.write()).as_ref(), Ok(&metainfo));
    let info = &metainfo.info;
    let mut end = 0;
    for file in info.listed_files() {
        assert!(file.offset >= end && file.path.as_path().is_relative());
        assert!(file.path.as_path().components().all(|part| matches!(part, Component::Normal(_))));
        end = file.offset + file.length_bytes;
        for seed in &metainfo.web_seeds {
            let _ = info.web_seed_url(seed, file);
        }
    }
    // Files are the listed ones, or segments of them end to end.
    let mut listed = info.listed_files().iter();
    for (number, file) in info.files().iter().enumerate() {
        assert!(file.path.as_path().components().all(|part| matches!(part, Component::Normal(_))));
        let mut end = file.offset;
        for segment in info.segments(number) {
            assert_eq!(listed.next(), Some(segment));
            assert_eq!(segment.offset, end);
            end += segment.length_bytes;
        }
        assert_eq!(end, file.offset + file.length_bytes);
        for mirror in &metainfo.whole_file_mirrors {
            let _ = info.whole_file_url(mirror, file);
        }
    }
    assert_eq!(listed.next(), None);
    assert!(end <= info.total_bytes());
    let in_files: u64 = info.files().iter().map(|file| file.length_bytes).sum();
    let padding: u64 = info.padding().map(|range| range.len()).sum();
    assert_eq!(in_files + padding, info.total_bytes());
    if let Some(pieces) = info.pieces_v1() {
        assert_eq!(pieces.count(), info.piece_count());
    }
    for piece in (0..info.piece_count().min(100)).chain([info.piece_count(), u64::MAX]) {
        let range = info.piece_range(piece);
        assert_eq!(range.is_some(), piece < info.piece_count());
        if info.kind().has_v2() {
            let v2 = metainfo.piece_v2(piece).map(|piece| piece.range);
            assert_eq!(v2.is_some(), range.is_some());
            assert!(v2.is_none_or(|v2| range.is_some_and(|range| range.covers(v2))));
        }
    }
    metainfo.select(|file| file.path.as_str().len() % 2 == 1);
    let content_bytes = metainfo.piece_map().content_bytes();
    let parts = metainfo.content();
    assert_eq!(parts.iter().map(|part| part.range.len()).sum::<u64>(), content_bytes);
    for part in parts {
        assert!(part.range.end <= metainfo.info.files()[part.file].length_bytes);
    }
    if let Some(pieces) = metainfo.proof() {
        assert!(pieces.check(content_bytes).is_ok());
    }
});
