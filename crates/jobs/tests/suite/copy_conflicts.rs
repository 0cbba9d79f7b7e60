//! The destination has something of another kind than the tree: nothing is copied, unless `delete` is
//! set, which replaces it.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use swath_jobs::copy::CopyError;
use swath_jobs::{Compare, CopySpec};
use swath_transfer::{GetError, PartialError};

use crate::trees::{assert_same, bytes, chmod, names, seen, write};
use crate::ways::Way;

/// A tree, and a destination that has folders for its files and files for its folders.
fn plant(way: &Way) {
    write(way.path("tree/file"), bytes(1, 3_000_000));
    write(way.path("tree/folder/deep/within"), "within\n");
    write(way.path("tree/folder/other"), "other\n");
    write(way.path("tree/none"), "there is nothing of this name\n");
    write(way.path("tree/way/file"), "x\n");
    symlink("file", way.path("tree/link")).unwrap();
    fs::hard_link(way.path("tree/file"), way.path("tree/name")).unwrap();
    write(way.path("copy/file/with/content"), "content\n");
    write(way.path("copy/file/more"), "more\n");
    write(way.path("copy/folder"), "a file\n");
    write(way.path("copy/own"), "nothing of this name is in the tree\n");
    write(way.path("outside/file"), "outside\n");
    symlink("../outside", way.path("copy/way")).unwrap();
    fs::create_dir(way.path("copy/link")).unwrap();
    fs::create_dir(way.path("copy/name")).unwrap();
    // A folder into which its owner may not write.
    chmod(way.path("copy/file/with"), 0o555);
}

/// The paths that are in the way, where this machine knows them; the number of those that a receiver
/// tells of is not known.
fn in_the_way(error: &CopyError) -> Option<Vec<String>> {
    match error {
        CopyError::Receiver { failed, .. } => {
            assert!(failed.in_the_way.is_some(), "{error}");
            None
        }
        CopyError::Fetch { error, .. } => {
            let GetError::Tree(PartialError::InTheWay { conflicts, .. }) = &**error else {
                panic!("{error}")
            };
            let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
            Some(conflicts.iter().map(|it| text(&it.path)).collect())
        }
        error => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_in_the_way_is_known_before_anything_is_copied() {
    for way in Way::all().await {
        plant(&way);
        let before = seen(&way.path("copy"));
        for (compare, dry_run) in
            [(Compare::SizeAndTime, false), (Compare::SizeAndTime, true), (Compare::Nothing, false)]
        {
            let options = |copy: &mut CopySpec| (copy.compare, copy.dry_run) = (compare, dry_run);
            let error = way.copied(options).await.unwrap_err();
            if let Some(all) = in_the_way(&error) {
                assert_eq!(all, ["file", "folder", "link", "name", "way"]);
            }
            assert_eq!(seen(&way.path("copy")), before, "{}: {compare:?}", way.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_replaces_it_in_the_last_step() {
    for way in Way::all().await {
        plant(&way);
        let before = seen(&way.path("copy"));
        let plan = way.plan(|copy| copy.delete = true).await;
        assert_eq!(
            plan,
            [
                "remove file",
                "copy file",
                "remove file/more",
                "remove file/with",
                "remove file/with/content",
                "remove folder",
                "copy folder",
                "copy folder/deep",
                "copy folder/deep/within",
                "copy folder/other",
                "remove link",
                "copy link",
                "remove name",
                "copy name",
                "copy none",
                "remove own",
                "remove way",
                "copy way",
                "copy way/file",
            ],
            "{}",
            way.name
        );
        assert_eq!(seen(&way.path("copy")), before);
        way.whole(|copy| (copy.delete, copy.preserve.links) = (true, true)).await;
        assert_same(&way.path("tree"), &way.path("copy"));
        let outside = fs::read(way.path("outside/file")).unwrap();
        assert_eq!(outside, b"outside\n", "no link is followed");
        let left = names(&way.path("copy"));
        assert!(!left.iter().any(|name| name.starts_with(".swath")), "{left:?}");
        assert_eq!(way.plan(|copy| copy.delete = true).await, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_out_is_not_replaced_either() {
    for way in Way::all().await {
        write(way.path("tree/file"), "x\n");
        write(way.path("tree/other"), "y\n");
        write(way.path("copy/file/deep/kept.log"), "kept\n");
        write(way.path("copy/other/goes"), "goes\n");
        let but = |copy: &mut CopySpec, pattern: &str| {
            copy.delete = true;
            copy.exclude.push(pattern.to_owned());
        };
        for (pattern, dry_run) in [("*.log", false), ("*.log", true), ("file/", false)] {
            let error = way.copied(|copy| {
                but(copy, pattern);
                copy.dry_run = dry_run;
            });
            let error = error.await.unwrap_err();
            if let Some(all) = in_the_way(&error) {
                assert_eq!(all, ["file"], "{pattern}");
            }
            assert_eq!(fs::read(way.path("copy/file/deep/kept.log")).unwrap(), b"kept\n");
            assert_eq!(fs::read(way.path("copy/other/goes")).unwrap(), b"goes\n");
        }
        fs::remove_dir_all(way.path("copy/file")).unwrap();
        way.whole(|copy| but(copy, "*.log")).await;
        assert_same(&way.path("tree"), &way.path("copy"));
    }
}

fn mkfifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn pipes_and_sockets_are_in_the_way_as_folders_are() {
    // A pipe on which somebody waited was replaced by a file, without a word and without `delete`.
    for way in Way::all().await {
        write(way.path("tree/file"), "x\n");
        write(way.path("tree/folder/file"), "y\n");
        write(way.path("tree/other"), "z\n");
        symlink("file", way.path("tree/link")).unwrap();
        fs::create_dir(way.path("copy")).unwrap();
        ["file", "folder", "link"].iter().for_each(|name| mkfifo(&way.path("copy").join(name)));
        let _socket = UnixListener::bind(way.path("copy/other")).unwrap();
        let before = seen(&way.path("copy"));
        for compare in [Compare::SizeAndTime, Compare::Nothing] {
            let error = way.copied(|copy| copy.compare = compare).await.unwrap_err();
            if let Some(all) = in_the_way(&error) {
                assert_eq!(all, ["file", "folder", "link", "other"]);
            }
        }
        assert_eq!(seen(&way.path("copy")), before);
        way.whole(|copy| copy.delete = true).await;
        assert_same(&way.path("tree"), &way.path("copy"));
    }
}
