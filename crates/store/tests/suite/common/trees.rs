//! What the tests of trees share: a tree, its virtual file, and a partial folder for its copy.
#![allow(dead_code)]

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use swath_model::Range;
use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::index::{Index, Kind};
use swath_store::tree::{PartialError, PartialTree, Preserve, Root, Same, WalkOptions, walk};

pub fn index_of(tree: &Path) -> Index {
    let root = Root::open(tree).unwrap();
    let mut index = Index::new();
    walk(&root, &WalkOptions::default(), |entry| index.push(entry).map(drop)).unwrap();
    index.complete();
    index
}

/// Bytes of the virtual file, read from the files themselves.
pub fn virtual_bytes(tree: &Path, index: &Index, range: Range) -> Vec<u8> {
    let mut out = vec![0; range.len() as usize];
    let mut cursor = index.cursor_at(range.start);
    while let Some(item) = cursor.next() {
        if item.start >= range.end {
            break;
        }
        let path = tree.join(std::str::from_utf8(item.path).unwrap());
        for part in item.parts(range) {
            let at = (part.start - range.start) as usize;
            let file = fs::File::open(&path).unwrap();
            file.read_exact_at(&mut out[at..at + part.bytes as usize], part.offset).unwrap();
        }
    }
    out
}

pub fn groups(index: &Index) -> Vec<Range> {
    let size = index.size_bytes();
    (0..size.div_ceil(GROUP_BYTES))
        .map(|n| Range::new(n * GROUP_BYTES, ((n + 1) * GROUP_BYTES).min(size)))
        .collect()
}

/// What opening brings, where a lock that is held may be free in a moment.
///
/// Another test of this process may start a program: until that has begun it holds every file that
/// was open here, and so the lock of a partial folder that is dropped meanwhile.
pub fn once_free(
    open: impl Fn() -> Result<PartialTree, PartialError>,
) -> Result<PartialTree, PartialError> {
    let since = Instant::now();
    loop {
        match open() {
            Err(PartialError::Locked(_)) if since.elapsed() < Duration::from_secs(90) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

/// A tree, and a place beside it for its copy.
pub struct Bench {
    pub dir: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Bench {
        let bench = Bench { dir: tempfile::tempdir().unwrap() };
        let tree = bench.tree();
        fs::create_dir_all(tree.join("one/two")).unwrap();
        for n in 0..60usize {
            let folder = if n % 3 == 0 { "one" } else { "one/two" };
            fs::write(tree.join(format!("{folder}/{n}")), vec![n as u8; n * 997]).unwrap();
        }
        fs::write(
            tree.join("large"),
            (0..3_000_001u32).map(|n| (n >> 7) as u8).collect::<Vec<_>>(),
        )
        .unwrap();
        fs::write(tree.join("one/empty"), "").unwrap();
        symlink("large", tree.join("link")).unwrap();
        fs::hard_link(tree.join("large"), tree.join("one/large too")).unwrap();
        let sparse = fs::File::create(tree.join("sparse")).unwrap();
        sparse.set_len(5 << 20).unwrap();
        sparse.write_all_at(b"in the middle", 2 << 20).unwrap();
        fs::set_permissions(tree.join("one/3"), fs::Permissions::from_mode(0o440)).unwrap();
        bench
    }

    pub fn tree(&self) -> std::path::PathBuf {
        self.dir.path().join("tree")
    }

    pub fn copy(&self) -> std::path::PathBuf {
        self.dir.path().join("copy")
    }

    pub fn open(&self, index: Index) -> Result<PartialTree, PartialError> {
        let index = Arc::new(RwLock::new(index));
        once_free(|| self.open_now(&index))
    }

    /// The same, where nobody waits for who else has it open.
    pub fn open_now(&self, index: &Arc<RwLock<Index>>) -> Result<PartialTree, PartialError> {
        let preserve = Preserve { links: true, ..Preserve::default() };
        PartialTree::open(&self.copy(), index.clone(), preserve, true, &Same::SizeAndTime)
    }

    /// Write and commit these groups but those that were taken over; answers how many that were.
    pub fn write(&self, partial: &PartialTree, index: &Index, groups: &[Range]) -> usize {
        let mut written = 0;
        for &group in groups {
            if partial.present().covers(group) {
                continue;
            }
            assert_eq!(partial.present().bytes_within(group), 0, "whole groups or nothing");
            partial.write(group.start, &virtual_bytes(&self.tree(), index, group)).unwrap();
            partial.commit(&[group]).unwrap();
            written += 1;
        }
        written
    }

    /// Write all that is missing, and give it its names.
    pub fn complete(&self, partial: PartialTree, index: &Index) {
        self.write(&partial, index, &groups(index));
        partial.finish(&[]).unwrap();
        drop(partial);
        self.assert_same();
    }

    pub fn assert_same(&self) {
        let (ours, theirs) = (index_of(&self.tree()), index_of(&self.copy()));
        assert_eq!(ours.digests().map(|it| it.layout), theirs.digests().map(|it| it.layout));
        assert_eq!(ours.digests(), theirs.digests(), "modes and times");
        let mut cursor = ours.cursor();
        while let Some(item) = cursor.next() {
            if matches!(item.entry.kind, Kind::File { .. }) {
                let name = std::str::from_utf8(item.path).unwrap();
                let (one, other) = (self.tree().join(name), self.copy().join(name));
                assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{name}");
            }
        }
        let left: Vec<_> = fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(!self.copy().join(".swath-stage.swath.part").exists());
    }
}
