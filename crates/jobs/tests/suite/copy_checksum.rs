//! What is there already is compared by content.

use std::fs;

use swath_jobs::{Compare, CopySpec};

use crate::trees::{FILES, age, assert_same, bytes, inode, plant, spoil, write};
use crate::ways::Way;

fn by_content(copy: &mut CopySpec) {
    copy.compare = Compare::Content;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_another_time_and_the_same_content_are_not_copied() {
    for way in Way::all().await {
        plant(&way.path("tree"));
        way.whole(|_| {}).await;
        let all = crate::trees::files(&way.path("copy"));
        for name in all.iter().filter(|name| name.ends_with(".dat")) {
            age(way.path("copy").join(name), 1000);
        }
        let planned = |copy: &mut CopySpec| {
            by_content(copy);
            copy.delete = true;
        };
        assert_eq!(way.plan(planned).await, [""; 0]);
        assert_eq!(way.fetched_bytes(by_content).await, 0);
        assert_same(&way.path("tree"), &way.path("copy"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_same_time_and_other_content_are_copied() {
    for way in Way::all().await {
        plant(&way.path("tree"));
        way.whole(|_| {}).await;
        spoil(way.path("copy/large.bin"), 3_000_000);
        spoil(way.path("copy/many/3/3.dat"), 1000);
        // Where the tree has a hole.
        spoil(way.path("copy/sparse"), 2 << 20);
        assert_eq!(way.whole(|_| {}).await.kept_files, FILES);
        let planned = way.plan(by_content).await;
        for name in ["large.bin", "many/3/3.dat", "sparse"] {
            assert!(planned.contains(&format!("copy {name}")), "{planned:?}");
        }
        // With what shares a block with them.
        let fetched = way.fetched_bytes(by_content).await;
        assert!((5_000_003..9_000_000).contains(&fetched), "{fetched}");
        assert_same(&way.path("tree"), &way.path("copy"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_one_hole_is_compared_too() {
    // No block is of it, so each run made it anew.
    for way in Way::all().await {
        fs::File::create(way.path("tree/hole")).unwrap().set_len(10_000_001).unwrap();
        way.whole(by_content).await;
        assert_eq!(way.plan(by_content).await, [""; 0]);
        let before = inode(way.path("copy/hole"));
        assert_eq!(way.whole(by_content).await.kept_files, 1);
        assert_eq!(inode(way.path("copy/hole")), before);
        spoil(way.path("copy/hole"), 5_000_000);
        assert_eq!(way.plan(by_content).await, ["copy hole"]);
        way.whole(by_content).await;
        assert!(fs::read(way.path("copy/hole")).unwrap().iter().all(|&byte| byte == 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_stays_whatever_becomes_of_its_neighbours() {
    // It was fetched as a whole for the block that it shares with a file of five bytes.
    for way in Way::all().await {
        write(way.path("tree/a"), "small");
        write(way.path("tree/b"), bytes(1, 6_000_000));
        write(way.path("tree/c"), bytes(2, 700_000));
        write(way.path("tree/d"), bytes(3, 5_000_000));
        way.whole(|_| {}).await;
        spoil(way.path("copy/a"), 0);
        fs::remove_file(way.path("copy/c")).unwrap();
        let inodes = || ["copy/b", "copy/d"].map(|name| inode(way.path(name)));
        let before = inodes();
        assert_eq!(way.plan(by_content).await, ["copy a", "copy c"]);
        let fetched = way.fetched_bytes(by_content).await;
        assert!(fetched < 1_800_000, "{fetched}");
        assert_eq!(inodes(), before);
        assert_same(&way.path("tree"), &way.path("copy"));
        // Where its own end is another one it does not stay.
        spoil(way.path("copy/b"), 5_999_990);
        assert_eq!(way.plan(by_content).await, ["copy b"]);
        way.whole(by_content).await;
        assert_same(&way.path("tree"), &way.path("copy"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_changed_file_brings_its_own_blocks_and_no_more() {
    for way in Way::all().await {
        plant(&way.path("tree"));
        way.whole(|_| {}).await;
        spoil(way.path("copy/page.bin"), 5000);
        age(way.path("copy/many/2/2.dat"), 0);
        let fetched = way.fetched_bytes(by_content).await;
        assert!((1_000_000..2_500_000).contains(&fetched), "{fetched}");
        assert_same(&way.path("tree"), &way.path("copy"));
    }
}
