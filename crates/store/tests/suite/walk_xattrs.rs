//! The walk with extended attributes, on real files.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::XattrFlags;
use swath_model::index::{Index, Xattrs};
use swath_store::tree::{Filter, Root, WalkOptions, walk};

fn walked(folder: &Path, options: &WalkOptions) -> BTreeMap<String, Xattrs<'static>> {
    let mut index = Index::new();
    let root = Root::open(folder).unwrap();
    walk(&root, options, |entry| {
        index.push(entry).unwrap();
        Ok::<_, Infallible>(())
    })
    .unwrap();
    let mut all = BTreeMap::new();
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        let path = String::from_utf8(item.path.to_vec()).unwrap();
        all.insert(path, item.entry.xattrs.into_owned());
    }
    all
}

fn with(threads: usize) -> WalkOptions {
    WalkOptions { threads, xattrs: true, ..WalkOptions::default() }
}

/// Give one to a file; `false`, with a message, where there are none.
fn give(path: &Path, name: &str, value: &[u8]) -> bool {
    let given = rustix::fs::setxattr(path, format!("user.{name}"), value, XattrFlags::empty());
    if given.is_err() {
        println!("skipped: this file system takes no such extended attributes");
    }
    given.is_ok()
}

fn one(name: &str, value: &[u8]) -> Xattrs<'static> {
    Xattrs::of(vec![(name.into(), value.to_vec())])
}

#[test]
fn they_are_told_if_that_is_wanted() {
    let home = tempfile::tempdir().unwrap();
    let tree = home.path();
    fs::create_dir_all(tree.join("folder/deeper")).unwrap();
    for name in ["a", "b", "folder/deeper/c", "folder/d"] {
        fs::write(tree.join(name), name).unwrap();
    }
    fs::hard_link(tree.join("a"), tree.join("z")).unwrap();
    symlink("a", tree.join("link")).unwrap();
    symlink("folder", tree.join("way")).unwrap();
    if !give(&tree.join("a"), "x", b"1") {
        return;
    }
    assert!(give(&tree.join("folder"), "x", b"2") && give(&tree.join("folder/d"), "x", b"3"));
    assert!(give(tree, "x", b"of the root, which is no entry"));
    for threads in [0, 1, 4] {
        let all = walked(tree, &with(threads));
        let some: Vec<_> = all.iter().filter(|(_, xattrs)| **xattrs != Xattrs::None).collect();
        let told = [("a", b"1"), ("folder", b"2"), ("folder/d", b"3")]
            .map(|(path, value)| (path.to_owned(), one("x", value)));
        assert!(some.into_iter().eq(told.iter().map(|(path, xattrs)| (path, xattrs))), "{all:?}");
        assert_eq!(all["z"], Xattrs::None, "another name of a file has what the file has");
        // By links to them, files and folders have their own.
        let all =
            walked(tree, &WalkOptions { follow_links: true, hard_links: false, ..with(threads) });
        assert_eq!((&all["link"], &all["z"]), (&one("x", b"1"), &one("x", b"1")));
        assert_eq!((&all["way"], &all["way/d"]), (&one("x", b"2"), &one("x", b"3")));
        // A folder that leads to what takes part has them too.
        let filter = Filter::new(&["deeper/c".to_owned(), "**/c".to_owned()], &[]).unwrap();
        let all = walked(tree, &WalkOptions { filter, ..with(threads) });
        assert_eq!(all["folder"], one("x", b"2"), "{all:?}");
        assert!(!all.contains_key("a"));
        let none = walked(tree, &WalkOptions { threads, ..WalkOptions::default() });
        assert!(none.values().all(|xattrs| *xattrs == Xattrs::None));
    }
}

#[test]
fn large_ones_are_all_told_though_they_do_not_all_wait_in_memory() {
    let Ok(home) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: /dev/shm is not there");
        return;
    };
    let value = |n: usize| [&n.to_le_bytes()[..], &vec![b'v'; 60_000]].concat();
    for n in 0..500 {
        let path = home.path().join(format!("{n:04}"));
        fs::write(&path, "").unwrap();
        if !give(&path, "large", &value(n)) {
            return;
        }
    }
    for threads in [0, 4] {
        let all = walked(home.path(), &with(threads));
        assert_eq!(all.len(), 500);
        for (n, xattrs) in all.values().enumerate() {
            assert!(*xattrs == one("large", &value(n)), "{n}");
        }
    }
}
