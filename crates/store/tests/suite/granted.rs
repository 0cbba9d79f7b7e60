//! What is not permitted is not changed: each change asks, with its path, when it is made.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, RwLock};

use swath_model::Range;
use swath_store::tree::{
    Decide, Deed, Grant, NotPermitted, PartialError, PartialTree, PlaceGrant, Preserve, Root, Same,
    Surplus, TreePlace, remove,
};
use swath_store::{FinishError, OpenError, Target, TargetSpec};

use crate::common::trees::{Bench, groups, index_of, once_free};
use crate::common::{disks, fill, spec};

/// Permits these deeds at and below these paths.
struct Only(&'static [Deed], &'static [&'static str]);

impl Decide for Only {
    fn permits(&self, deed: Deed, path: &[u8]) -> bool {
        self.0.contains(&deed)
            && self
                .1
                .iter()
                .any(|above| Path::new(str::from_utf8(path).unwrap()).starts_with(above))
    }

    fn permits_all_reading(&self) -> bool {
        false
    }
}

const CREATES: &[Deed] = &[Deed::Create, Deed::MakeFolder];
const WRITES: &[Deed] = &[Deed::Create, Deed::MakeFolder, Deed::Modify];

fn grant(deeds: &'static [Deed], paths: &'static [&'static str]) -> Grant {
    Grant::of(Arc::new(Only(deeds, paths)), Vec::new())
}

/// Receives the tree of a bench at its place; `meanwhile` happens before the names are given.
fn receive(bench: &Bench, place: &TreePlace, meanwhile: impl FnOnce()) -> Result<(), PartialError> {
    let index = index_of(&bench.tree());
    let shared = Arc::new(RwLock::new(index_of(&bench.tree())));
    let tree = once_free(|| {
        let (shared, halt) = (Arc::clone(&shared), Arc::new(|| false));
        PartialTree::open_until(place, shared, Preserve::default(), true, &Same::SizeAndTime, halt)
    })?;
    bench.write(&tree, &index, &groups(&index));
    meanwhile();
    let finished = tree.finish(&[]);
    finished.map(drop)
}

fn refused(ended: Result<(), PartialError>) -> Option<Deed> {
    match ended {
        Err(PartialError::Io { source, .. }) => NotPermitted::of(&source),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_may_create_replaces_nothing_that_comes_while_a_tree_arrives() {
    let bench = Bench::new();
    fs::create_dir(bench.copy()).unwrap();
    let place = TreePlace { grant: grant(CREATES, &[""]), ..TreePlace::at(&bench.copy()) };
    let others = bench.copy().join("one/two/31");
    let ended = receive(&bench, &place, || {
        fs::create_dir_all(others.parent().unwrap()).unwrap();
        fs::write(&others, "somebody else's").unwrap();
    });
    assert_eq!(refused(ended), Some(Deed::Modify));
    assert_eq!(fs::read_to_string(&others).unwrap(), "somebody else's");
    // Where nothing comes, all of it arrives.
    let whole = bench.dir.path().join("new");
    let place = TreePlace { grant: grant(CREATES, &[""]), ..TreePlace::at(&whole) };
    receive(&bench, &place, || {}).unwrap();
    assert!(whole.join("one/two/31").is_file() && whole.join("link").is_symlink());
}

#[test]
fn a_tree_changes_nothing_outside_of_what_its_rights_name() {
    let bench = Bench::new();
    fs::create_dir(bench.copy()).unwrap();
    fs::write(bench.copy().join("sparse"), "kept").unwrap();
    let place =
        TreePlace { grant: grant(WRITES, &["large", "link"]), ..TreePlace::at(&bench.copy()) };
    assert!(refused(receive(&bench, &place, || {})).is_some());
    assert_eq!(fs::read_to_string(bench.copy().join("sparse")).unwrap(), "kept");
    assert!(!bench.copy().join("one/two").exists());
    // Nor does a tree that would be a new folder.
    let place =
        TreePlace { grant: grant(WRITES, &["a"]), ..TreePlace::at(&bench.dir.path().join("new")) };
    assert_eq!(refused(receive(&bench, &place, || {})), Some(Deed::MakeFolder));
    assert!(!place.destination.exists());
}

#[test]
fn only_what_may_be_changed_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["mine/x", "theirs/x"] {
        fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        fs::write(dir.path().join(name), "").unwrap();
    }
    let surplus = || {
        let mut surplus = Surplus::default();
        [b"mine/x".as_slice(), b"theirs/x"].iter().for_each(|path| surplus.push(path));
        surplus
    };
    let place = TreePlace { grant: grant(WRITES, &["mine"]), ..TreePlace::at(dir.path()) };
    let single = TreePlace { single: Some("mine".to_owned()), ..TreePlace::at(dir.path()) };
    assert_eq!(remove(&single, surplus(), &|| false).unwrap().gone, 0);
    let removed = remove(&place, surplus(), &|| false).unwrap();
    assert_eq!((removed.gone, removed.stays.count), (1, 1));
    assert!(dir.path().join("theirs/x").exists() && !dir.path().join("mine/x").exists());
}

#[tokio::test]
async fn a_file_that_may_not_be_replaced_stays_when_the_new_one_is_complete() {
    for (disk, pool) in disks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let placed = |grant| PlaceGrant::at(dir.path().to_owned(), grant);
        let of = |grant| TargetSpec { overwrite: true, grant, ..spec(&path, 10) };
        let (target, _) = Target::open(&disk, of(placed(grant(CREATES, &["file"])))).await.unwrap();
        fill(&target, &pool, Range::new(0, 10)).await;
        fs::write(&path, "others").unwrap();
        assert!(matches!(target.finish(None).await, Err(FinishError::Exists(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "others");
        target.discard().await.unwrap();
        let again = Target::open(&disk, of(placed(grant(CREATES, &["file"])))).await;
        assert!(matches!(again, Err(OpenError::Exists(_))));
        for grant in [
            placed(grant(WRITES, &["other"])),
            PlaceGrant::at("/elsewhere".into(), grant(WRITES, &[""])),
        ] {
            let opened = Target::open(&disk, of(grant)).await;
            let Err(OpenError::Io { source, .. }) = opened else { panic!("{opened:?}") };
            assert_eq!(NotPermitted::of(&source), Some(Deed::Create));
        }
    }
}

#[test]
fn each_change_below_a_root_asks_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["mine", "theirs"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("x"), name).unwrap();
    }
    let whole = Root::open(dir.path()).unwrap();
    let (mine, creates) =
        (whole.granted(grant(WRITES, &["mine"])), whole.granted(grant(CREATES, &["mine"])));
    let stop = || false;
    let denied = |ended: io::Result<()>| NotPermitted::of(&ended.unwrap_err()).is_some();
    assert!(denied(mine.make_folder(b"theirs/new")));
    assert!(denied(mine.made(b"theirs/new").map(drop)));
    assert!(denied(mine.receive(b"theirs/x").map(drop)));
    assert!(denied(mine.remove(b"theirs/x", &stop)));
    assert!(denied(mine.rename(b"theirs/x", &mine, b"mine/y", false, &stop).map(drop)));
    assert!(denied(mine.rename(b"mine/x", &mine, b"theirs/x", false, &stop).map(drop)));
    assert!(denied(creates.receive(b"mine/x").unwrap().finish(false).map(drop)));
    assert!(denied(creates.remove(b"mine/x", &stop)));
    assert!(denied(whole.rename(b"theirs/x", &creates, b"mine/x", false, &stop).map(drop)));
    // Below a folder the paths are the same.
    assert!(denied(mine.below(b"theirs").unwrap().remove(b"x", &stop)));
    mine.below(b"mine").unwrap().remove(b"x", &stop).unwrap();
    creates.receive(b"mine/x").unwrap().finish(false).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("theirs/x")).unwrap(), "theirs");
}

#[test]
fn a_link_is_followed_to_what_may_be_read_and_no_further() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["a/sub/x", "b/x"] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "x").unwrap();
    }
    for (link, target) in [
        ("a/in", "sub/x"),
        ("a/round", "../a/./sub/../in"),
        ("a/out", "../b/x"),
        ("a/folder", "../b"),
        ("a/far", "/etc/hostname"),
        ("a/up", "../../../x"),
        ("a/loop", "loop"),
        ("b/back", "../a/sub/x"),
    ] {
        symlink(target, dir.path().join(link)).unwrap();
    }
    let root = Root::open(dir.path()).unwrap().granted(grant(&[Deed::Read], &["a"]));
    for path in ["a/in", "a/round", "a/sub/x", "a/folder/back", "b/x"] {
        // What was asked for by its own path was judged before; here links are.
        assert!(root.file_through_links(path.as_bytes()).is_ok(), "{path}");
    }
    for path in ["a/out", "a/folder/x", "a/folder", "a/far", "a/up", "a/loop", "a/none"] {
        assert!(root.file_through_links(path.as_bytes()).is_err(), "{path}");
        assert!(root.list(path.as_bytes(), true).is_err(), "{path}");
    }
    // In lists they are links, whose target is not looked at.
    let sizes = |root: &Root| {
        let listed = root.list(b"a", true).unwrap();
        listed
            .into_iter()
            .filter(|it| matches!(it.kind, swath_model::index::Kind::File { .. }))
            .count()
    };
    let open = Root::open(dir.path()).unwrap();
    assert_eq!((sizes(&root), sizes(&open)), (2, 3));
}

/// The destination that the user named may be a link; what lies below it never leads elsewhere.
#[test]
fn a_planted_link_below_the_users_folder_is_not_followed() {
    let bench = Bench::new();
    let at = |path: &str| bench.dir.path().join(path);
    fs::create_dir_all(at("real")).unwrap();
    fs::create_dir_all(at("outside")).unwrap();
    symlink("real", at("data")).unwrap();
    symlink("../outside", at("real/t")).unwrap();
    let place = TreePlace { beneath: Some(at("data")), ..TreePlace::at(&at("data/t")) };
    match receive(&bench, &place, || {}) {
        Err(PartialError::LinkOnTheWay { link, boundary }) => {
            assert_eq!((link, boundary), (at("data/t"), at("data")));
        }
        other => panic!("{other:?}"),
    }
    assert!(fs::read_dir(at("outside")).unwrap().next().is_none());
    assert!(remove(&place, Surplus::default(), &|| false).is_err());
    let place = TreePlace { beneath: Some(at("data")), ..TreePlace::at(&at("data/new")) };
    receive(&bench, &place, || {}).unwrap();
    assert!(at("real/new/large").is_file());
    // What the user named themselves is followed.
    receive(&bench, &TreePlace::at(&at("data/t")), || {}).unwrap();
    assert!(at("outside/large").is_file());
}
