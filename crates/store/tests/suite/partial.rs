//! Trees laid down from their virtual files.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use swath_model::Range;
use swath_model::index::{Index, Kind};
use swath_store::tree::{PartialError, PartialTree, Preserve, Same};

use crate::common::trees::{Bench, groups, index_of, virtual_bytes};

#[test]
fn in_any_order_and_with_a_break_the_tree_is_the_same() {
    for seed in 0..6 {
        let bench = Bench::new();
        let index = || index_of(&bench.tree());
        let mut order = groups(&index());
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        let (first, rest) = order.split_at(order.len() / 2);
        let partial = bench.open(index()).unwrap();
        assert!(partial.present().is_empty());
        assert_eq!(bench.write(&partial, &index(), first), first.len());
        // What was written and not committed is no harm.
        partial.write(rest[0].start, &virtual_bytes(&bench.tree(), &index(), rest[0])).unwrap();
        drop(partial);
        assert!(PartialTree::is_left(&bench.copy(), None));
        let partial = bench.open(index()).unwrap();
        assert_eq!(bench.write(&partial, &index(), &order), rest.len(), "seed {seed}");
        partial.finish(&[]).unwrap();
        drop(partial);
        assert!(!PartialTree::is_left(&bench.copy(), None));
        bench.assert_same();
    }
}

#[test]
fn another_version_takes_over_what_is_the_same() {
    let bench = Bench::new();
    let old = index_of(&bench.tree());
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    bench.write(&partial, &old, &groups(&old));
    drop(partial);
    // One file is new, one is longer, one is another at the same length, one is a folder now, and
    // one is not there any more.
    let tree = bench.tree();
    fs::write(tree.join("one/0 new"), "new").unwrap();
    fs::write(tree.join("one/30"), vec![7; 50_000]).unwrap();
    let again = fs::File::create(tree.join("one/two/31")).unwrap();
    again.write_all_at(&vec![9; 31 * 997], 0).unwrap();
    again.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
    fs::remove_file(tree.join("one/two/32")).unwrap();
    fs::create_dir(tree.join("one/two/32")).unwrap();
    fs::write(tree.join("one/two/32/within"), "within").unwrap();
    fs::remove_file(tree.join("one/two/34")).unwrap();
    fs::remove_file(tree.join("link")).unwrap();
    let new = index_of(&tree);
    let partial = bench.open(index_of(&tree)).unwrap();
    let all = groups(&new).len();
    let written = bench.write(&partial, &new, &groups(&new));
    assert!(written > 0 && written < all / 2, "{written} of {all}");
    partial.finish(&[]).unwrap();
    drop(partial);
    bench.assert_same();
}

#[test]
fn only_one_writes_and_only_into_folders() {
    let bench = Bench::new();
    let index = || index_of(&bench.tree());
    let partial = bench.open(index()).unwrap();
    let second = bench.open_now(&Arc::new(RwLock::new(index())));
    assert!(matches!(second, Err(PartialError::Locked(_))));
    drop(partial);
    fs::write(bench.dir.path().join("file"), "x").unwrap();
    let place = bench.dir.path().join("file");
    let preserve = Preserve::default();
    let refused = PartialTree::open(
        &place,
        Arc::new(RwLock::new(index())),
        preserve,
        true,
        &Same::SizeAndTime,
    );
    assert!(matches!(refused, Err(PartialError::NoFolder(_))));
}

#[test]
fn a_link_in_the_stage_leads_nowhere() {
    let bench = Bench::new();
    let index = index_of(&bench.tree());
    let outside = bench.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    let part = bench.dir.path().join("copy.swath.part");
    symlink(&outside, part.join("one")).unwrap();
    let all: Vec<Result<(), PartialError>> = groups(&index)
        .into_iter()
        .map(|group| partial.write(group.start, &virtual_bytes(&bench.tree(), &index, group)))
        .collect();
    assert!(all.iter().any(Result::is_err));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

/// Lay the whole tree down and begin to give names, with something in the way of the last of them;
/// it is taken out of the way afterwards.
fn half_moved(bench: &Bench) {
    let index = index_of(&bench.tree());
    fs::create_dir_all(bench.copy().join("sparse")).unwrap();
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    bench.write(&partial, &index, &groups(&index));
    assert!(partial.check_conflicts().is_err());
    assert!(partial.finish(&[]).is_err());
    assert!(bench.copy().join("large").exists(), "names are given in order");
    fs::remove_dir(bench.copy().join("sparse")).unwrap();
}

#[test]
fn a_move_that_was_cut_short_is_finished_before_anything_else() {
    // What had its name already was taken for what the partial folder still had: a file full of holes took
    // the place of a good one.
    let bench = Bench::new();
    half_moved(&bench);
    fs::write(bench.tree().join("a new one"), vec![1; 5000]).unwrap();
    fs::write(bench.tree().join("one/30"), vec![7; 50_000]).unwrap();
    let index = index_of(&bench.tree());
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    assert!(partial.unchanged_files() > 50, "{}", partial.unchanged_files());
    bench.complete(partial, &index);
}

#[test]
fn further_names_survive_a_move_that_was_cut_short() {
    let bench = Bench::new();
    fs::create_dir_all(bench.copy().join("one")).unwrap();
    fs::write(bench.copy().join("one/large too"), "an older one").unwrap();
    half_moved(&bench);
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    let index = index_of(&bench.tree());
    bench.complete(partial, &index);
}

#[test]
fn what_is_not_right_has_no_further_names() {
    let bench = Bench::new();
    let index = index_of(&bench.tree());
    let mut cursor = index.cursor();
    let mut large = None;
    while let Some(item) = cursor.next() {
        if item.path == b"large" {
            large = Some(item.number);
        }
    }
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    bench.write(&partial, &index, &groups(&index));
    partial.finish(&[large.unwrap()]).unwrap();
    assert!(!bench.copy().join("large").exists() && !bench.copy().join("one/large too").exists());
    assert!(bench.copy().join("one/33").exists());
}

#[test]
fn what_an_unfinished_copy_left_is_no_part_of_a_tree() {
    let bench = Bench::new();
    let left = bench.tree().join(".swath-stage.swath.part");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("large"), "half of it").unwrap();
    let index = index_of(&bench.tree());
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        assert!(!item.path.starts_with(b".swath-stage"));
    }
    // Whoever lists it all the same is refused.
    let mut index = Index::new();
    let entry = swath_model::index::Entry {
        leaves: 0,
        name: b".swath-stage.swath.part",
        kind: Kind::Folder,
        mode: 0o755,
        mtime: Default::default(),
        xattrs: Default::default(),
    };
    index.push(&entry).unwrap();
    index.complete();
    assert!(matches!(bench.open(index), Err(PartialError::OwnName { .. })));
}

/// A tree of so many folders, each in the one before it, with an empty file in each.
fn nested(depth: usize) -> Index {
    let mut index = Index::new();
    let mtime = swath_model::index::Mtime { seconds: 1_000_000_000, nanoseconds: 0 };
    let file = Kind::File { size_bytes: 0, extents: None };
    for _ in 0..depth {
        for (name, kind, mode) in [(b"a", file.clone(), 0o644), (b"d", Kind::Folder, 0o555)] {
            let xattrs = Default::default();
            let entry = swath_model::index::Entry { leaves: 0, name, kind, mode, mtime, xattrs };
            index.push(&entry).unwrap();
        }
    }
    index.complete();
    index
}

#[test]
fn thousands_of_nested_folders_take_as_long_as_others() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    let open = || {
        let index = Arc::new(RwLock::new(nested(20_000)));
        PartialTree::open(&copy, index, Preserve::default(), true, &Same::SizeAndTime).unwrap()
    };
    assert_eq!(open().finish(&[]).unwrap().files, 20_000);
    // Once more, into what is there.
    let partial = open();
    assert_eq!(partial.unchanged_files(), 20_000);
    partial.check_conflicts().unwrap();
    assert_eq!(partial.finish(&[]).unwrap().files, 20_000);
    // Of the processor, which others do not use up.
    let took = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    assert!(took.tv_sec < 60, "{took:?}");
    drop(partial);
    assert_eq!(fs::metadata(copy.join("d/d/d")).unwrap().permissions().mode() & 0o777, 0o555);
    // What the standard library has for this needs a descriptor for each level. Only root removes what
    // lies in folders that may not be written.
    let opened = std::process::Command::new("chmod").args(["-R", "u+w"]).arg(&copy).status();
    assert!(opened.unwrap().success());
    let removed = std::process::Command::new("rm").arg("-rf").arg(dir.path()).status();
    assert!(removed.unwrap().success());
}

#[test]
fn a_folder_of_somebody_elses_with_the_stages_name_is_left_alone() {
    let bench = Bench::new();
    let own = bench.dir.path().join("copy.swath.part");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("thesis"), "years of work").unwrap();
    for _ in 0..2 {
        let refused = bench.open(index_of(&bench.tree())).err();
        assert!(matches!(refused, Some(PartialError::Foreign(_))), "{refused:?}");
    }
    assert_eq!(fs::read(own.join("thesis")).unwrap(), b"years of work");
    assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 2);
    // An empty one does no harm to anybody.
    fs::remove_file(own.join("thesis")).unwrap();
    let index = index_of(&bench.tree());
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    bench.complete(partial, &index);
}

#[test]
fn a_destination_that_appears_meanwhile_takes_the_tree_in() {
    for again in [false, true] {
        let bench = Bench::new();
        let index = index_of(&bench.tree());
        let mut partial = bench.open(index_of(&bench.tree())).unwrap();
        bench.write(&partial, &index, &groups(&index));
        fs::create_dir_all(bench.copy().join("one")).unwrap();
        fs::write(bench.copy().join("one/30"), "somebody else's").unwrap();
        if again {
            drop(partial);
            assert!(PartialTree::is_left(&bench.copy(), None));
            partial = bench.open(index_of(&bench.tree())).unwrap();
            assert_eq!(bench.write(&partial, &index, &groups(&index)), 0, "it goes on");
        }
        partial.finish(&[]).unwrap();
        drop(partial);
        bench.assert_same();
    }
    // What is no folder cannot.
    let bench = Bench::new();
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    bench.write(&partial, &index_of(&bench.tree()), &groups(&index_of(&bench.tree())));
    symlink("nowhere", bench.copy()).unwrap();
    assert!(matches!(partial.finish(&[]), Err(PartialError::NoFolder(_))));
}

#[test]
fn a_place_that_cannot_be_is_told_before_anything_is_made() {
    let bench = Bench::new();
    symlink("nowhere", bench.copy()).unwrap();
    let refused = bench.open(index_of(&bench.tree())).err();
    assert!(matches!(refused, Some(PartialError::DeadLink(_))), "{refused:?}");
    let open = |name: &str| {
        let place = bench.dir.path().join(name);
        let index = Arc::new(RwLock::new(index_of(&bench.tree())));
        PartialTree::open(&place, index, Preserve::default(), true, &Same::SizeAndTime)
    };
    assert!(matches!(open(&"n".repeat(256)), Err(PartialError::Io { doing: "use", .. })));
    fs::write(bench.dir.path().join("file"), "x").unwrap();
    assert!(matches!(open("file/below"), Err(PartialError::Io { doing: "use", .. })));
    fs::remove_file(bench.dir.path().join("file")).unwrap();
    fs::remove_file(bench.copy()).unwrap();
    assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 1, "nothing was made");
    for bytes in 243..=255 {
        let name = "n".repeat(bytes);
        let partial = open(&name).unwrap();
        let index = index_of(&bench.tree());
        bench.write(&partial, &index, &groups(&index));
        partial.finish(&[]).unwrap();
        drop(partial);
        assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 2, "{bytes}");
        fs::remove_dir_all(bench.dir.path().join(&name)).unwrap();
    }
}

#[test]
fn where_nothing_could_be_kept_nothing_is_left() {
    let bench = Bench::new();
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    let index = index_of(&bench.tree());
    let group = groups(&index)[0];
    partial.write(group.start, &virtual_bytes(&bench.tree(), &index, group)).unwrap();
    assert_eq!(partial.durable_bytes(), 0);
    partial.give_up().unwrap();
    drop(partial);
    assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 1);
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    bench.write(&partial, &index, &[group]);
    assert_eq!(partial.durable_bytes(), group.len());
    partial.give_up().unwrap();
    drop(partial);
    assert_eq!(bench.write(&bench.open(index).unwrap(), &index_of(&bench.tree()), &[group]), 0);
}

#[test]
fn copies_of_files_with_several_names_need_room_too() {
    let bench = Bench::new();
    let shared = Arc::new(RwLock::new(index_of(&bench.tree())));
    let room = |links, bytes| {
        let preserve = Preserve { links, ..Preserve::default() };
        let index = Arc::clone(&shared);
        PartialTree::open(&bench.copy(), index, preserve, true, &Same::SizeAndTime)
            .unwrap()
            .check_space(bytes)
    };
    let needed = |refused: Result<(), PartialError>| match refused {
        Err(PartialError::NoRoom { needed_bytes, .. }) => needed_bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!(needed(room(true, 1 << 62)), 1 << 62);
    assert_eq!(needed(room(false, 1 << 62)), (1 << 62) + 3_000_001);
    room(false, 1000).unwrap();
}

#[test]
fn what_somebody_took_out_of_the_stage_is_fetched_again() {
    // The journal alone vouched for it: files were missing then, and the copy was said to be whole.
    let remove: [fn(&Path); 5] = [
        |partial| fs::remove_dir_all(partial).unwrap(),
        |partial| fs::remove_dir_all(partial.join("one")).unwrap(),
        |partial| {
            let file = fs::File::options().write(true).open(partial.join("large")).unwrap();
            file.set_len(1000).unwrap();
        },
        |partial| {
            fs::remove_file(partial.join("one/3")).unwrap();
            fs::write(partial.join("one/3"), "another one").unwrap();
        },
        // Something else in a file that was complete.
        |partial| {
            let file = fs::File::options().write(true).open(partial.join("one/6")).unwrap();
            file.write_all_at(b"something else", 1000).unwrap();
        },
    ];
    for (number, remove) in remove.into_iter().enumerate() {
        let bench = Bench::new();
        let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let six = fs::File::open(bench.tree().join("one/6")).unwrap();
        six.set_modified(long_ago).unwrap();
        let index = index_of(&bench.tree());
        let all = groups(&index);
        let partial = bench.open(index_of(&bench.tree())).unwrap();
        bench.write(&partial, &index, &all[..all.len() - 1]);
        drop(partial);
        remove(&bench.dir.path().join("copy.swath.part"));
        let partial = bench.open(index_of(&bench.tree())).unwrap();
        assert!(bench.write(&partial, &index, &all) > 1, "{number}");
        partial.finish(&[]).unwrap();
        drop(partial);
        bench.assert_same();
    }
}

#[test]
fn files_of_somebody_elses_with_names_that_a_copy_needs_are_left_alone() {
    for suffix in ["", ".index", ".mark", ".moving"] {
        let bench = Bench::new();
        let own = bench.dir.path().join(format!("copy.swath{suffix}"));
        fs::write(&own, "years of work").unwrap();
        for _ in 0..2 {
            let refused = bench.open(index_of(&bench.tree())).err();
            assert!(matches!(refused, Some(PartialError::Foreign(_))), "{suffix}: {refused:?}");
        }
        assert_eq!(fs::read(&own).unwrap(), b"years of work");
        assert_eq!(fs::read_dir(bench.dir.path()).unwrap().count(), 2, "{suffix}");
    }
}

#[test]
fn a_folder_keeps_its_sticky_bit() {
    let bench = Bench::new();
    fs::set_permissions(bench.tree().join("one"), fs::Permissions::from_mode(0o1777)).unwrap();
    let index = index_of(&bench.tree());
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    bench.complete(partial, &index);
}

#[test]
fn what_is_written_can_be_read_before_and_after_it_has_its_names() {
    for is_there in [false, true] {
        let bench = Bench::new();
        if is_there {
            fs::create_dir(bench.copy()).unwrap();
        }
        let index = index_of(&bench.tree());
        let partial = bench.open(index_of(&bench.tree())).unwrap();
        let reader = partial.reader().unwrap();
        let all = groups(&index);
        let is_same = |group: Range| {
            reader.read(group).is_ok_and(|it| it == virtual_bytes(&bench.tree(), &index, group))
        };
        assert!(reader.read(all[0]).is_err(), "nothing is here yet");
        for &group in &all {
            partial.write(group.start, &virtual_bytes(&bench.tree(), &index, group)).unwrap();
            partial.commit(&[group]).unwrap();
            assert!(is_same(group), "{group:?}");
        }
        drop(partial);
        let partial = bench.open(index_of(&bench.tree())).unwrap();
        assert!(all.iter().all(|&group| is_same(group)), "another run goes on there");
        partial.finish(&[]).unwrap();
        drop(partial);
        assert!(all.iter().all(|&group| is_same(group)), "each file has its name");
    }
}

#[test]
fn bytes_that_were_wrong_are_written_again_and_the_file_keeps_its_time() {
    let bench = Bench::new();
    let index = index_of(&bench.tree());
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    let all = groups(&index);
    let write = |group: Range, bytes: &[u8]| partial.write(group.start, bytes).unwrap();
    let right = |group| virtual_bytes(&bench.tree(), &index, group);
    // Half of the wrong ones are found while others are still missing, half when all have come.
    for (at, &group) in all.iter().enumerate() {
        write(group, &vec![1; group.len() as usize]);
        if at % 2 == 0 {
            partial.reopen(group);
            write(group, &right(group));
        }
    }
    for &group in all.iter().skip(1).step_by(2) {
        partial.reopen(group);
        write(group, &right(group));
    }
    partial.finish(&[]).unwrap();
    drop(partial);
    bench.assert_same();
}
