//! What copies that are not complete keep is no content of the folders that it lies in.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use swath_model::index::{Entry, Index, Kind};
use swath_store::tree::{
    Change, Filter, PartialError, PartialTree, Preserve, Root, Same, Surplus, TreePlace, Unchanged,
    WalkOptions, differences, remove, walk,
};

use crate::common::trees::{Bench, groups, index_of};

/// A copy to this place that is not complete.
fn begin(bench: &Bench, place: &Path, single: Option<&str>) {
    let (index, preserve) = (index_of(&bench.tree()), Preserve::default());
    let (shared, halt) = (Arc::new(RwLock::new(index_of(&bench.tree()))), Arc::new(|| false));
    let same = Same::SizeAndTime;
    let partial = PartialTree::open_until(
        &TreePlace { single: single.map(str::to_owned), ..TreePlace::at(place) },
        shared,
        preserve,
        true,
        &same,
        halt,
    )
    .unwrap();
    bench.write(&partial, &index, &groups(&index)[..4]);
}

/// Unfinished copies at the top and below, new and into what is there, of trees and of a file, among
/// files of others whose names could be theirs. Answers the paths of the latter.
fn mixed(bench: &Bench) -> (PathBuf, Vec<&'static str>) {
    let mixed = bench.dir.path().join("mixed");
    fs::create_dir_all(mixed.join("sub/deep")).unwrap();
    for (place, single) in
        [("new", None), ("sub", None), ("sub/x", None), ("sub/deep", Some("large")), ("", None)]
    {
        begin(bench, &mixed.join(place), single);
    }
    let own = [
        ".swath-stage",
        ".swath-stage.swathe",
        "a.swath",
        "b.swath",
        "b.swath.part",
        "c.swath.index",
        "c.swath.mark",
        "c.swath.part",
        "new.part",
        "new.swath.parts",
        "sub/deep/d.swath.mark",
        "sub/new.swath.part",
    ];
    for path in own {
        fs::write(mixed.join(path), "my own").unwrap();
    }
    (mixed, own.to_vec())
}

fn walked(folder: &Path, options: &WalkOptions) -> Vec<String> {
    let mut index = Index::new();
    walk(&Root::open(folder).unwrap(), options, |entry| index.push(entry).map(drop)).unwrap();
    index.complete();
    let (mut paths, mut cursor) = (Vec::new(), index.cursor());
    while let Some(item) = cursor.next() {
        if item.entry.kind != Kind::Folder {
            paths.push(String::from_utf8_lossy(item.path).into_owned());
        }
    }
    paths
}

#[test]
fn a_walk_meets_nothing_of_an_unfinished_copy_and_all_files_of_others() {
    // But for one at the top, half a tree was copied as if it had been meant.
    let bench = Bench::new();
    let (mixed, own) = mixed(&bench);
    for threads in [0, 4] {
        for filter in [Filter::default(), Filter::new(&[], &["nothing".to_owned()]).unwrap()] {
            let options = WalkOptions { threads, filter, ..WalkOptions::default() };
            assert_eq!(walked(&mixed, &options), own);
        }
    }
    // Once a copy is given up, what is left of it is anybody's.
    fs::remove_file(mixed.join("new.swath.mark")).unwrap();
    let names = walked(&mixed, &WalkOptions::default());
    assert!(names.contains(&"new.swath".to_owned()), "{names:?}");
    assert!(names.contains(&"new.swath.part/large".to_owned()), "{names:?}");
}

#[test]
fn a_folder_is_listed_without_it_and_no_path_leads_there() {
    let bench = Bench::new();
    let (mixed, own) = mixed(&bench);
    let root = Root::open(&mixed).unwrap();
    let list = |path: &str| -> Vec<String> {
        let listed = root.list(path.as_bytes(), false).unwrap().into_iter();
        listed.map(|it| String::from_utf8(it.name).unwrap()).collect()
    };
    let mut top: Vec<_> = own.iter().filter(|path| !path.contains('/')).copied().collect();
    top.push("sub");
    assert_eq!(list(""), top);
    assert_eq!(list("sub"), ["deep", "new.swath.part"]);
    assert_eq!(list("sub/deep"), ["d.swath.mark"]);
    for follow_links in [false, true] {
        for path in own.iter().chain(&["", "sub", "sub/deep"]) {
            assert!(!root.leads_into_unfinished(path.as_bytes(), follow_links), "{path}");
        }
        for path in [
            "new.swath",
            "/new.swath",
            "new.swath.mark",
            "new.swath.index",
            "new.swath.moving",
            "new.swath.part",
            "new.swath.part/one/3",
            ".swath-stage.swath.part/large",
            "sub/.swath-stage.swath",
            "sub/x.swath.part/large",
            "sub/deep/.swath-stage.swath.large.swath.part/large",
        ] {
            assert!(root.leads_into_unfinished(path.as_bytes(), follow_links), "{path}");
        }
    }
}

#[test]
fn it_is_not_surplus_and_neither_are_the_folders_that_hold_it() {
    // Whoever had the destination made like their own tree removed what others were sending there.
    let bench = Bench::new();
    let (mixed, own) = mixed(&bench);
    let mut empty = Index::new();
    empty.complete();
    let (mut surplus, mut told) = (Surplus::default(), Vec::new());
    let take = |change, path: &[u8]| {
        assert_eq!(change, Change::Surplus);
        surplus.push(path);
        told.push(String::from_utf8_lossy(path).into_owned());
    };
    differences(&empty, &mixed, &Filter::default(), &Unchanged::default(), false, take).unwrap();
    assert_eq!(told, own);
    assert_eq!(remove(&TreePlace::at(&mixed), surplus, &|| false).unwrap().gone, own.len() as u64);
    for place in ["new.swath.part/large", "sub/x.swath.part/large", "sub/.swath-stage.swath.mark"] {
        assert!(mixed.join(place).exists(), "{place}");
    }
}

#[test]
fn a_folder_that_holds_it_is_not_replaced() {
    let bench = Bench::new();
    fs::create_dir_all(bench.copy().join("taken/in")).unwrap();
    fs::create_dir_all(bench.copy().join("free/in")).unwrap();
    begin(&bench, &bench.copy().join("taken/in/new"), None);
    let mut index = Index::new();
    for name in [&b"free"[..], b"taken"] {
        let kind = Kind::Symlink(b"elsewhere".to_vec());
        let (mtime, xattrs) = (Default::default(), Default::default());
        index.push(&Entry { leaves: 0, name, kind, mode: 0o777, mtime, xattrs }).unwrap();
    }
    index.complete();
    let mut partial = bench.open(index).unwrap();
    partial.replace(Filter::default());
    let refused = partial.check_conflicts().err();
    let Some(PartialError::InTheWay { conflicts, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(conflicts.len(), 1);
    assert_eq!(conflicts[0].path, b"taken");
    assert!(conflicts[0].is_sheltered);
}
