//! The last steps of a copy, in which things get their names: told to end, killed, in somebody's way.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, RwLock};

use swath_store::tree::{Filter, PartialError, PartialTree, Preserve, Same, TreePlace};

use crate::common::trees::{Bench, groups, index_of, once_free};

/// Folders of a group give their group to what is made in them.
#[test]
fn folders_keep_what_they_inherit_unless_modes_are_copied() {
    for (copies_modes, is_there) in [(false, false), (false, true), (true, true)] {
        let bench = Bench::new();
        let above = bench.copy().parent().unwrap().join("group");
        let to = above.join("copy");
        fs::create_dir(&above).unwrap();
        fs::set_permissions(&above, fs::Permissions::from_mode(0o2775)).unwrap();
        if is_there {
            fs::create_dir(&to).unwrap();
        }
        let index = index_of(&bench.tree());
        let preserve = Preserve { mode: copies_modes, ..Preserve::default() };
        let shared = Arc::new(RwLock::new(index_of(&bench.tree())));
        let partial = PartialTree::open(&to, shared, preserve, true, &Same::Nothing).unwrap();
        bench.write(&partial, &index, &groups(&index));
        partial.finish(&[]).unwrap();
        let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o2000;
        let folders = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().path());
        let folders: Vec<_> = folders.filter(|path| path.is_dir() && !path.is_symlink()).collect();
        assert!(!folders.is_empty() && mode(&to) == 0o2000);
        for folder in folders {
            assert_eq!(mode(&folder) == 0o2000, !copies_modes, "{}", folder.display());
        }
    }
}

#[test]
fn the_last_steps_end_when_they_are_told_to() {
    let bench = Bench::new();
    let index = index_of(&bench.tree());
    let steps = Arc::new(std::sync::atomic::AtomicU64::new(0));
    for last in [3, 40, 90, 150, u64::MAX] {
        let open = || {
            let counted = Arc::clone(&steps);
            counted.store(0, std::sync::atomic::Ordering::Relaxed);
            let halt = move || counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= last;
            let preserve = Preserve { links: true, ..Preserve::default() };
            let (shared, halt) = (Arc::new(RwLock::new(index_of(&bench.tree()))), Arc::new(halt));
            let same = Same::SizeAndTime;
            PartialTree::open_until(
                &TreePlace::at(&bench.copy()),
                shared,
                preserve,
                true,
                &same,
                halt,
            )
        };
        let partial = once_free(open).unwrap();
        bench.write(&partial, &index, &groups(&index));
        let ended = partial.finish(&[]);
        assert_eq!(
            matches!(ended, Err(PartialError::Stopped)),
            last < u64::MAX,
            "{last}: {ended:?}"
        );
        assert_eq!(bench.copy().exists(), last == u64::MAX);
    }
    bench.assert_same();
}

#[test]
fn what_is_replaced_goes_with_the_names_at_whatever_step_it_ends() {
    let mut moving = 0;
    for last in (0..).step_by(29) {
        let bench = Bench::new();
        let index = index_of(&bench.tree());
        let at = |name: &str| bench.copy().join(name);
        fs::create_dir_all(at("sparse/with")).unwrap();
        fs::write(at("sparse/with/content"), "content").unwrap();
        fs::write(at("one"), "a file where a folder is to be").unwrap();
        let steps = std::sync::atomic::AtomicU64::new(0);
        let halt = move || steps.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= last;
        let preserve = Preserve { links: true, ..Preserve::default() };
        let (shared, halt) = (Arc::new(RwLock::new(index_of(&bench.tree()))), Arc::new(halt));
        let same = Same::SizeAndTime;
        let Ok(mut partial) = PartialTree::open_until(
            &TreePlace::at(&bench.copy()),
            shared,
            preserve,
            true,
            &same,
            halt,
        ) else {
            continue;
        };
        partial.replace(Filter::default());
        bench.write(&partial, &index, &groups(&index));
        let ended = partial.finish(&[]);
        drop(partial);
        if let Ok(finished) = &ended {
            assert_eq!(finished.replaced, 2);
            bench.assert_same();
            break;
        }
        assert!(matches!(ended, Err(PartialError::Stopped)), "{last}: {ended:?}");
        let is_moving = at(".swath-stage.swath.moving").exists();
        moving += u64::from(is_moving);
        if !is_moving {
            assert_eq!(fs::read(at("sparse/with/content")).unwrap(), b"content");
            assert!(at("one").is_file());
        }
        // Whoever comes next has not said so again: what is there still stays.
        let is_free = !at("sparse").is_dir() && !at("one").is_file();
        let mut partial = bench.open(index_of(&bench.tree())).unwrap();
        assert_eq!(partial.check_conflicts().is_ok(), is_free, "{last}");
        assert!(is_free || at("sparse/with/content").exists() || at("one").is_file());
        partial.replace(Filter::default());
        bench.complete(partial, &index);
    }
    assert!(moving > 1, "{moving}");
}

/// Ends while names are being given, in a destination that was there before: as soon as `one` has its
/// name.
fn end_while_moving(bench: &Bench) {
    let index = index_of(&bench.tree());
    let preserve = Preserve { links: true, ..Preserve::default() };
    let shared = Arc::new(RwLock::new(index_of(&bench.tree())));
    let one = bench.copy().join("one");
    let halt = Arc::new(move || one.exists());
    let same = Same::SizeAndTime;
    let partial = PartialTree::open_until(
        &TreePlace::at(&bench.copy()),
        shared,
        preserve,
        false,
        &same,
        halt,
    );
    let partial = partial.unwrap();
    bench.write(&partial, &index, &groups(&index));
    let ended = partial.finish(&[]);
    assert!(matches!(ended, Err(PartialError::Stopped)), "{ended:?}");
    assert!(bench.copy().join("one").exists());
}

#[test]
fn what_is_removed_while_names_are_given_is_fetched_again() {
    // The next run ended with "cannot give its name", and every one after it.
    let bench = Bench::new();
    fs::create_dir_all(bench.copy()).unwrap();
    end_while_moving(&bench);
    fs::remove_dir_all(bench.copy().join("one")).unwrap();
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    assert_eq!(partial.completed_earlier(), Some(0));
    bench.complete(partial, &index_of(&bench.tree()));
}

#[test]
fn what_comes_in_the_way_while_names_are_given_stays() {
    // A run that was allowed to replace was killed, and whatever its user then put at one of its names
    // went with the next run, which had not been allowed to.
    let bench = Bench::new();
    fs::create_dir_all(bench.copy()).unwrap();
    end_while_moving(&bench);
    let late = bench.copy().join("sparse");
    assert!(late.symlink_metadata().is_err(), "it has its name already");
    fs::create_dir(&late).unwrap();
    fs::write(late.join("thesis"), "years of work").unwrap();
    let mut partial = bench.open(index_of(&bench.tree())).unwrap();
    assert!(matches!(partial.check_conflicts(), Err(PartialError::InTheWay { .. })));
    assert_eq!(fs::read(late.join("thesis")).unwrap(), b"years of work");
    partial.replace(Filter::default());
    bench.complete(partial, &index_of(&bench.tree()));
}

#[test]
fn a_kept_file_that_goes_before_the_end_is_told() {
    // The run ended with "cannot give its name", and every one after it.
    let bench = Bench::new();
    let index = index_of(&bench.tree());
    bench.complete(bench.open(index_of(&bench.tree())).unwrap(), &index);
    let kept = bench.copy().join("large");
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    assert!(partial.unchanged_files() > 0 && partial.completed_earlier().is_none());
    fs::remove_file(&kept).unwrap();
    let finished = partial.finish(&[]).unwrap();
    assert_eq!(finished.lacking.len(), 1);
    drop(partial);
    bench.complete(bench.open(index_of(&bench.tree())).unwrap(), &index);
}

#[test]
fn folders_of_large_trees_get_their_attributes_wherever_the_work_is_cut() {
    // A few threads share the entries; a folder that reaches into several parts is done last.
    let bench = Bench::new();
    let mut rng = fastrand::Rng::with_seed(11);
    let mut folders = vec![bench.tree()];
    for number in 0..16_000 {
        let folder = &folders[rng.usize(folders.len() / 2..folders.len())];
        match rng.usize(..4) {
            0 => {
                let inner = folder.join(format!("d{number}"));
                fs::create_dir(&inner).unwrap();
                folders.push(inner);
            }
            _ => drop(fs::File::create(folder.join(format!("f{number}"))).unwrap()),
        }
    }
    for (number, folder) in folders.iter().enumerate().skip(1).rev() {
        let time =
            std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 + number as u64);
        fs::File::open(folder).unwrap().set_modified(time).unwrap();
        let mode = *rng.choice(&[0o700, 0o755, 0o775, 0o500]).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    }
    let index = index_of(&bench.tree());
    assert!(index.entries() > 16_000);
    let partial = bench.open(index_of(&bench.tree())).unwrap();
    bench.complete(partial, &index);
    // Or not everybody could remove it.
    let mut open = std::process::Command::new("chmod");
    assert!(open.args(["-R", "u+w"]).arg(bench.dir.path()).status().unwrap().success());
}
