//! Any bytes as the index of a dataset, in any cuts: what is taken can be written down again and
//! is the same then, no two entries share a byte of the virtual file, further names are those of
//! files, and extended attributes are told in one way only.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_model::index::{Index, Kind, Reader, Xattrs};

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let mut index = Index::new();
    let mut reader = Reader::new(1 << 20);
    for part in bytes.chunks(usize::from(cut).max(1)) {
        if reader.feed(&mut index, part).is_err() {
            break;
        }
    }
    let mut again = Index::new();
    let mut end = 0;
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        assert!(item.start >= end && item.end >= item.start);
        end = item.end.max(end);
        assert!(!item.path.split(|&byte| byte == b'/').any(|name| name == b".." || name.is_empty()));
        if let Kind::HardLink(of) = item.entry.kind {
            let first = index.cursor_from(of).next().map(|first| first.entry.kind);
            assert!(of < item.number && matches!(first, Some(Kind::File { .. })));
        }
        if let Xattrs::Set(set) = &item.entry.xattrs {
            let all = set.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            assert_eq!(Xattrs::of(all), item.entry.xattrs);
        }
        again.push(&item.entry).expect("what was taken can be written");
    }
    assert_eq!(again.wire_from(0), &index.wire_from(0)[..again.wire_from(0).len()]);
    if reader.finish(&mut index).is_ok() {
        again.complete();
        assert_eq!(again.digests(), index.digests());
    }
});
