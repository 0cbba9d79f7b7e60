//! The same copy once more: what is there as it should be is left as it is, links and further names of
//! files among it, and what is not is put right.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use swath_jobs::{Compare, CopySpec};

use crate::trees::{FILES, age, all_of, assert_same, bytes, chmod, inode, plant, spoil, write};
use crate::ways::Way;

/// A tree with files of several names, large and small ones, and with links.
fn plant_linked(tree: &Path) {
    plant(tree);
    fs::hard_link(tree.join("large.bin"), tree.join("many/also large.bin")).unwrap();
    fs::hard_link(tree.join("many/5/5.dat"), tree.join("a first name")).unwrap();
    fs::hard_link(tree.join("many/5/5.dat"), tree.join("z")).unwrap();
    fs::hard_link(tree.join("empty"), tree.join("many/empty")).unwrap();
    symlink("nowhere at all", tree.join("many/5/link")).unwrap();
}

fn links(copy: &mut CopySpec) {
    copy.preserve.links = true;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_several_names_and_links_are_left_alone_too() {
    // They were fetched and made anew by every run.
    for way in Way::all().await {
        plant_linked(&way.path("tree"));
        for keeps_links in [true, false] {
            let options = |copy: &mut CopySpec| copy.preserve.links = keeps_links;
            assert!(way.fetched_bytes(options).await > 0);
            assert_same(&way.path("tree"), &way.path("copy"));
            let before = all_of(&way.path("copy"));
            for (compare, delete) in [
                (Compare::SizeAndTime, false),
                (Compare::Content, false),
                (Compare::SizeAndTime, true),
            ] {
                let options = |copy: &mut CopySpec| {
                    options(copy);
                    (copy.compare, copy.delete) = (compare, delete);
                };
                assert_eq!(way.plan(options).await, [""; 0]);
                assert_eq!(way.fetched_bytes(options).await, 0);
                assert_eq!(all_of(&way.path("copy")), before, "{}: {compare:?}", way.name);
            }
            fs::remove_dir_all(way.path("copy")).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_with_another_target_is_put_right() {
    for way in Way::all().await {
        plant_linked(&way.path("tree"));
        way.whole(|_| {}).await;
        fs::remove_file(way.path("tree/link")).unwrap();
        symlink("elsewhere", way.path("tree/link")).unwrap();
        fs::remove_file(way.path("copy/many/out")).unwrap();
        symlink("changed", way.path("copy/many/out")).unwrap();
        // A file where a link is to be.
        fs::remove_file(way.path("copy/many/5/link")).unwrap();
        write(way.path("copy/many/5/link"), "a file\n");
        let planned = way.plan(|_| {}).await;
        assert_eq!(planned, ["copy link", "copy many/5/link", "copy many/out"]);
        assert_eq!(way.fetched_bytes(|_| {}).await, 0);
        assert_same(&way.path("tree"), &way.path("copy"));
        // The target is the same, the time is not: it gets the tree's.
        let before = inode(way.path("copy/link"));
        let long_ago = rustix::fs::Timespec { tv_sec: 978_307_200, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: long_ago, last_modification: long_ago };
        let not_followed = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let link = way.path("copy/link");
        rustix::fs::utimensat(rustix::fs::CWD, &link, &times, not_followed).unwrap();
        assert_eq!(way.plan(|_| {}).await, [""; 0]);
        way.whole(|_| {}).await;
        assert_same(&way.path("tree"), &way.path("copy"));
        assert_eq!(inode(way.path("copy/link")), before);
    }
}

/// A file of its own under this name, with the same content, mode and time.
fn come_apart(file: &Path) {
    let found = fs::metadata(file).unwrap();
    let apart = file.with_extension("apart");
    fs::copy(file, &apart).unwrap();
    fs::File::open(&apart).unwrap().set_modified(found.modified().unwrap()).unwrap();
    fs::rename(apart, file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_came_apart_or_together_at_either_side_are_put_right() {
    for way in Way::all().await {
        plant_linked(&way.path("tree"));
        way.whole(links).await;
        let copy = |name: &str| way.path("copy").join(name);
        // Here they came apart: nothing has to come.
        come_apart(&copy("many/also large.bin"));
        come_apart(&copy("z"));
        assert_eq!(way.plan(links).await, ["copy many/also large.bin", "copy z"]);
        assert_eq!(way.fetched_bytes(links).await, 0);
        assert_eq!(inode(copy("large.bin")), inode(copy("many/also large.bin")));
        for name in ["many/5/5.dat", "z"] {
            assert_eq!(inode(copy("a first name")), inode(copy(name)));
        }
        // There they came apart, with the same size and time.
        come_apart(&way.path("tree/z"));
        assert_eq!(way.plan(links).await, ["copy z"]);
        way.whole(links).await;
        assert_eq!(fs::metadata(copy("a first name")).unwrap().nlink(), 2);
        assert_eq!(fs::metadata(copy("z")).unwrap().nlink(), 1);
        // One of them has another file's name here, and one is not there any more.
        fs::remove_file(copy("many/5/5.dat")).unwrap();
        fs::hard_link(copy("z"), copy("many/5/5.dat")).unwrap();
        fs::remove_file(copy("many/also large.bin")).unwrap();
        way.whole(links).await;
        assert_same(&way.path("tree"), &way.path("copy"));
        assert_eq!(inode(copy("a first name")), inode(copy("many/5/5.dat")));
        assert_eq!(inode(copy("large.bin")), inode(copy("many/also large.bin")));
        assert_ne!(inode(copy("a first name")), inode(copy("z")));
        // The file is another one.
        write(way.path("tree/a first name"), "written through all its names\n");
        way.whole(links).await;
        assert_same(&way.path("tree"), &way.path("copy"));
        assert_eq!(inode(copy("a first name")), inode(copy("many/5/5.dat")));
        let before = all_of(&way.path("copy"));
        assert_eq!(way.fetched_bytes(links).await, 0);
        assert_eq!(all_of(&way.path("copy")), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_what_has_several_names_are_compared_each_for_itself() {
    for way in Way::all().await {
        plant_linked(&way.path("tree"));
        way.whole(|_| {}).await;
        let large = way.path("copy/many/also large.bin");
        let before = inode(way.path("copy/large.bin"));
        assert_ne!(before, inode(&large));
        // Another time, and another mode.
        age(&large, 1000);
        chmod(way.path("copy/z"), 0o600);
        assert_eq!(way.plan(|_| {}).await, ["copy many/also large.bin"]);
        assert_eq!(way.fetched_bytes(|_| {}).await, 0);
        assert_same(&way.path("tree"), &way.path("copy"));
        assert_eq!(inode(way.path("copy/large.bin")), before);
        // The same size and time, and other bytes.
        spoil(&large, 4_000_000);
        assert_eq!(way.fetched_bytes(|copy| copy.compare = Compare::Content).await, 0);
        assert_same(&way.path("tree"), &way.path("copy"));
        assert_eq!(inode(way.path("copy/large.bin")), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_copy_takes_only_what_differs() {
    for way in Way::all().await {
        plant(&way.path("tree"));
        way.whole(|_| {}).await;
        assert_same(&way.path("tree"), &way.path("copy"));
        let again = way.whole(|_| {}).await;
        assert_eq!((again.kept_files, again.transfer.fetched_bytes), (FILES, 0));
        write(way.path("tree/many/3/3.dat"), "changed\n");
        write(way.path("tree/many/3/new"), "new\n");
        chmod(way.path("tree/large.bin"), 0o640);
        let fetched = way.fetched_bytes(|_| {}).await;
        assert!((1..2 << 20).contains(&fetched), "{fetched}");
        assert_same(&way.path("tree"), &way.path("copy"));
        // The same size and another time.
        write(way.path("copy/page.bin"), bytes(3, 1 << 20));
        way.whole(|_| {}).await;
        assert_same(&way.path("tree"), &way.path("copy"));
        let all = way.whole(|copy| copy.compare = Compare::Nothing).await;
        assert_eq!(all.kept_files, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_else_lies_in_the_destination_stays() {
    for way in Way::all().await {
        plant(&way.path("tree"));
        write(way.path("copy/own"), "stays\n");
        write(way.path("copy/large.bin"), "an older version\n");
        write(way.path("copy/many/3/own"), "stays too\n");
        way.whole(|_| {}).await;
        for (own, content) in [("copy/own", "stays\n"), ("copy/many/3/own", "stays too\n")] {
            assert_eq!(fs::read_to_string(way.path(own)).unwrap(), content);
            fs::remove_file(way.path(own)).unwrap();
        }
        age(way.path("copy/many/3"), 1_000_000_000);
        assert_same(&way.path("tree"), &way.path("copy"));
    }
}
