//! What an unfinished copy left, met elsewhere: copied with a tree, restored, or moved with its folder.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, RwLock};

use swath_model::index::{Entry, Index, Kind};
use swath_store::tree::{PartialError, PartialTree, Preserve, Same, TreePlace};

use crate::common::trees::{Bench, groups, index_of, once_free};

fn open_at(place: &Path, single: Option<&str>, index: Index) -> Result<PartialTree, PartialError> {
    let index = Arc::new(RwLock::new(index));
    once_free(|| {
        let (preserve, halt) = (Preserve::default(), Arc::new(|| false));
        let place = TreePlace { single: single.map(str::to_owned), ..TreePlace::at(place) };
        PartialTree::open_until(&place, index.clone(), preserve, true, &Same::SizeAndTime, halt)
    })
}

/// A copy to this place that is not complete.
fn begin_at(bench: &Bench, place: &Path, single: Option<&str>) {
    let index = index_of(&bench.tree());
    let partial = open_at(place, single, index_of(&bench.tree())).unwrap();
    bench.write(&partial, &index, &groups(&index)[..4]);
    assert!(partial.durable_bytes() > 0);
}

/// As any program copies a folder, with all times.
fn copy(how: &[&str], from: &Path, to: &Path) {
    assert!(Command::new("cp").args(how).arg(from).arg(to).status().unwrap().success());
}

/// All that lies in a folder, with what the files hold.
fn content(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(content(&path));
        }
        all.push((path.clone(), fs::read(&path).unwrap_or_default()));
    }
    all.sort();
    all
}

#[test]
fn what_a_copy_left_elsewhere_is_not_believed_where_its_folder_was_copied_to() {
    // The mark's text was always the same: whoever copied a folder with a partial folder in it copied what the
    // next copy into that place took for its own, with the bytes of somebody else.
    for (place, is_there, single) in
        [("new", false, None), ("there", true, None), ("there", true, Some("large"))]
    {
        for how in [&["-a"][..], &["-al"]] {
            let bench = Bench::new();
            let (evil, victim) = (bench.dir.path().join("evil"), bench.dir.path().join("victim"));
            fs::create_dir(&evil).unwrap();
            if is_there {
                fs::create_dir(evil.join(place)).unwrap();
            }
            begin_at(&bench, &evil.join(place), single);
            copy(how, &evil, &victim);
            let before = content(&victim);
            let open = || open_at(&victim.join(place), single, index_of(&bench.tree()));
            // With links the journal is the very file, and yet the partial folder is another.
            let all = match open().err() {
                Some(PartialError::Elsewhere { all, .. }) => all,
                Some(PartialError::Foreign(partial)) if how == ["-al"] => vec![partial],
                other => panic!("{place} {single:?} {how:?}: {other:?}"),
            };
            assert_eq!(content(&victim), before, "nothing is taken, and nothing goes");
            for path in all {
                fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).unwrap();
            }
            let partial = open().unwrap();
            assert!(partial.present().is_empty());
            // And where it was left the copy goes on.
            assert!(
                open_at(&evil.join(place), single, index_of(&bench.tree()))
                    .is_ok_and(|partial| partial.resumed().total_bytes() > 0)
            );
        }
    }
}

#[test]
fn names_are_not_given_to_what_came_with_a_tree() {
    let bench = Bench::new();
    let index = index_of(&bench.tree());
    let (evil, victim) = (bench.dir.path().join("evil"), bench.dir.path().join("victim"));
    fs::create_dir_all(evil.join("sub")).unwrap();
    begin_at(&bench, &evil.join("sub"), None);
    let name = index.digests().unwrap().dataset;
    let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(evil.join("sub/.swath-stage.swath.moving"), format!("dataset:{hex}\n")).unwrap();
    copy(&["-a"], &evil, &victim);
    let refused = open_at(&victim.join("sub"), None, index).err();
    let Some(PartialError::Elsewhere { all, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(all.len(), 5, "partial, journal, index, moving, mark: {all:?}");
    assert!(!victim.join("sub/large").exists());
}

#[test]
fn a_mark_that_does_not_say_where_it_was_made_is_not_believed() {
    // Those of earlier versions did not.
    let bench = Bench::new();
    begin_at(&bench, &bench.copy(), None);
    let mark = bench.dir.path().join("copy.swath.mark");
    let text = fs::read_to_string(&mark).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let refused = |text: String| {
        fs::write(&mark, text).unwrap();
        matches!(bench.open(index_of(&bench.tree())), Err(PartialError::Elsewhere { .. }))
    };
    assert!(refused(format!("{first}\n")));
    let other: String = rest.chars().map(|c| if c.is_ascii_digit() { '7' } else { c }).collect();
    assert!(refused(format!("{first}\n{other}")));
    assert!(!refused(text));
}

#[test]
fn a_mark_and_words_without_a_stage_are_not_believed_either_and_nothing_is_made() {
    let bench = Bench::new();
    let evil = bench.dir.path().join("evil");
    fs::create_dir(&evil).unwrap();
    begin_at(&bench, &evil.join("copy"), None);
    fs::remove_dir_all(evil.join("copy.swath.part")).unwrap();
    let victim = bench.dir.path().join("victim");
    copy(&["-a"], &evil, &victim);
    let before = content(&victim);
    let refused = open_at(&victim.join("copy"), None, index_of(&bench.tree())).err();
    let Some(PartialError::Elsewhere { all, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(all.len(), 3, "journal, index, mark: {all:?}");
    assert_eq!(content(&victim), before);
    // Where it was made what is told of a partial folder that is gone holds no more.
    assert!(
        open_at(&evil.join("copy"), None, index_of(&bench.tree())).unwrap().resumed().is_empty()
    );
}

#[test]
fn a_copy_goes_on_where_its_folder_has_moved_to() {
    let bench = Bench::new();
    let (before, after) = (bench.dir.path().join("before"), bench.dir.path().join("after"));
    fs::create_dir(&before).unwrap();
    begin_at(&bench, &before.join("copy"), None);
    fs::rename(&before, &after).unwrap();
    let partial = open_at(&after.join("copy"), None, index_of(&bench.tree())).unwrap();
    assert!(partial.resumed().total_bytes() > 0);
}

#[test]
fn an_index_that_lists_what_an_unfinished_copy_left_in_a_folder_is_refused() {
    for name in [".swath-stage.swath", ".swath-stage.swath.part", ".swath-stage.swath.a.swath.mark"]
    {
        let bench = Bench::new();
        let mut index = Index::new();
        for (name, kind) in
            [("sub", Kind::Folder), (name, Kind::File { size_bytes: 0, extents: None })]
        {
            let (name, mtime, xattrs) = (name.as_bytes(), Default::default(), Default::default());
            index.push(&Entry { leaves: 0, name, kind, mode: 0o755, mtime, xattrs }).unwrap();
        }
        index.complete();
        let refused = bench.open(index).err();
        assert!(matches!(refused, Some(PartialError::OwnName { .. })), "{name}: {refused:?}");
        assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 1, "nothing is left");
    }
}
