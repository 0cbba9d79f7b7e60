//! Trees as deep as an index takes them: what is done with each entry takes a step or two.

use std::fs;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use swath_model::digest::blake3_tree::group_value;
use swath_model::index::Index;
use swath_store::tree::{
    Change, Content, Files, Filter, Root, Same, Surplus, TreePlace, Unchanged, WalkOptions,
    check_entries, differences, remove, walk,
};

/// How long this thread has worked.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Nested folders; a path of so many names is nearly as long as an index takes.
const DEPTH: usize = 32_000;

/// Below `top`, which is made: in each folder a file of one byte, and two folders, of which the
/// first goes on.
fn plant(top: &Path) {
    fs::create_dir(top).unwrap();
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here: OwnedFd = fs::File::open(top).unwrap().into();
    for _ in 0..DEPTH {
        let file = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let file = openat(here.as_fd(), "a", file, Mode::RUSR | Mode::WUSR).unwrap();
        fs::File::from(file).write_all(b"x").unwrap();
        for name in ["d", "e"] {
            mkdirat(here.as_fd(), name, Mode::RWXU).unwrap();
        }
        here = openat(here.as_fd(), "d", folder, Mode::empty()).unwrap();
    }
}

fn index_of(tree: &Path) -> Index {
    let mut index = Index::new();
    let root = Root::open(tree).unwrap();
    walk(&root, &WalkOptions::default(), |entry| index.push(entry).map(drop)).unwrap();
    index.complete();
    index
}

#[test]
fn a_tree_of_thousands_of_nested_folders_is_walked_checked_compared_and_removed() {
    // A disk may take a millisecond to remove a folder, whoever asks; memory does not.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let tree = dir.path().join("tree");
    plant(&tree);
    let began = thread_time();
    let shared = Arc::new(RwLock::new(index_of(&tree)));
    let index = shared.read().unwrap();
    let counts = index.counts();
    assert_eq!((counts.files, counts.folders), (DEPTH as u64, 2 * DEPTH as u64));
    check_entries(&index, &tree, |wrong, path| panic!("{wrong:?} {}", path.len())).unwrap();
    let kept = Unchanged::at(&index, &tree, &Same::SizeAndTime, true);
    let filter = Filter::default();
    differences(&index, &tree, &filter, &kept, true, |_, path| panic!("{}", path.len())).unwrap();
    // All files are one block.
    let mut content = Content::open(&tree, Arc::clone(&shared)).unwrap();
    assert_eq!(content.candidates().total_bytes(), 1);
    assert_eq!(content.value(0), Some(group_value(0, &[b'x'; DEPTH])));
    // What is opened from below upwards too.
    let root = Root::open(&tree).unwrap();
    let mut files = Files::new(&root);
    for depth in (DEPTH - 3000..DEPTH).rev() {
        files.file(&[&b"d/".repeat(depth), &b"a"[..]].concat()).unwrap();
    }
    // The kernel walks through what is below a folder that goes, as far as somebody has it open.
    drop((content, files));
    // Each folder holds something that takes no part; the paths of all of them would be a gigabyte.
    let without = Filter::new(&[], &["a".to_owned()]).unwrap();
    let mut free = 0;
    let take = |_, path: &[u8]| free += u64::from(path.ends_with(b"e"));
    differences(&Index::new(), &tree, &without, &kept, true, take).unwrap();
    assert_eq!(free, DEPTH as u64);
    let mut surplus = Surplus::default();
    let take = |change, path: &[u8]| {
        assert_eq!(change, Change::Surplus);
        surplus.push(path);
    };
    differences(&Index::new(), &tree, &filter, &kept, true, take).unwrap();
    assert_eq!(remove(&TreePlace::at(&tree), surplus, &|| false).unwrap().gone, 3 * DEPTH as u64);
    assert_eq!(fs::read_dir(&tree).unwrap().count(), 0);
    // Whole paths for each entry would take more than a thousand million steps: minutes of our own
    // time, whatever else the machine has to do.
    let own = thread_time().saturating_sub(began);
    assert!(own < Duration::from_secs(60), "{own:?}");
}
