//! A part of a tree, by patterns.

use std::fs;

use swath_jobs::CopySpec;

use crate::trees::{assert_same, bytes, files, write};
use crate::ways::Way;

/// A tree of data, caches and notes.
fn plant(way: &Way) {
    for (path, length) in [
        ("a.h5", 700_000),
        ("cache/b.h5", 50_000),
        ("notes.txt", 100),
        ("run1/c.h5", 2_000_000),
        ("run1/cache/d.h5", 40_000),
        ("run1/notes.txt", 200),
        ("run2/notes.txt", 300),
    ] {
        write(way.path("tree").join(path), bytes(length as u64, length));
    }
}

fn take(copy: &mut CopySpec, include: &[&str], exclude: &[&str]) {
    let owned = |patterns: &[&str]| patterns.iter().map(|&it| it.to_owned()).collect();
    (copy.include, copy.exclude) = (owned(include), owned(exclude));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_takes_part_is_copied() {
    for way in Way::all().await {
        plant(&way);
        let fetched = way.fetched_bytes(|copy| take(copy, &["*.h5"], &["cache/"])).await;
        assert_eq!(files(&way.path("copy")), ["a.h5", "run1/c.h5"]);
        assert!(
            !way.path("copy/run2").exists(),
            "a folder of which nothing takes part is not made"
        );
        assert!((2_700_000..2_702_000).contains(&fetched), "not a byte of others: {fetched}");
        // With other patterns only the rest comes.
        let fetched = way.fetched_bytes(|copy| take(copy, &[], &["/cache"])).await;
        assert!(fetched < 700_000, "{fetched}");
        way.whole(|_| {}).await;
        assert_same(&way.path("tree"), &way.path("copy"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_excluded_is_not_removed() {
    for way in Way::all().await {
        plant(&way);
        for path in ["own.log", "old/deep/own.log", "old/surplus", "gone/surplus"] {
            write(way.path("copy").join(path), "x\n");
        }
        let options = |copy: &mut CopySpec| {
            take(copy, &[], &["*.log", "cache"]);
            copy.delete = true;
        };
        let planned = way.plan(options).await;
        let removed: Vec<&str> =
            planned.iter().filter_map(|line| line.strip_prefix("remove ")).collect();
        assert_eq!(removed, ["gone", "gone/surplus", "old/surplus"]);
        assert!(!planned.iter().any(|line| line.contains("cache")), "{planned:?}");
        assert_eq!(way.whole(options).await.removed, 3);
        let there = |path: &str| way.path("copy").join(path).exists();
        assert!(there("own.log") && there("old/deep/own.log"));
        assert!(!there("old/surplus") && !there("gone"));
        assert!(!there("cache") && there("run1/notes.txt"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn surplus_goes_where_only_a_part_is_copied() {
    for way in Way::all().await {
        plant(&way);
        write(way.path("copy/keep/own.h5"), "stays\n");
        write(way.path("copy/old.txt"), "goes\n");
        let fetched = way.fetched_bytes(|copy| {
            take(copy, &[], &["*.h5"]);
            copy.delete = true;
        });
        assert!(fetched.await < 5000);
        let expected = ["keep/own.h5", "notes.txt", "run1/notes.txt", "run2/notes.txt"];
        assert_eq!(files(&way.path("copy")), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_that_nothing_matches_copy_nothing() {
    for way in Way::all().await {
        plant(&way);
        let received = way.whole(|copy| take(copy, &["*.none"], &[])).await;
        assert_eq!((received.counts[0], received.transfer.fetched_bytes), (0, 0));
        assert!(fs::read_dir(way.path("copy")).map_or(true, |mut all| all.next().is_none()));
    }
}
