//! Full disks, devices and read-only file systems, in a process and with mounts of its own; and what two
//! users do in one folder. Skipped where nothing can be mounted, and without root.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::*;
use swath_model::{Pool, Range};
use swath_store::{Disk, DiskOptions, IoMode, OpenError, WriteError};

/// Where anybody may put files, nobody's journal counts but one's own. Needs root, to be two.
#[tokio::test]
async fn side_files_of_others_in_a_shared_folder_are_not_believed() {
    let folder = folder();
    let path = folder.path().join("file");
    begun(&path).await;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(resumed(&path).await.0.len(), 1);
    for side in ["file.swath", "file.swath.part"] {
        let side = folder.path().join(side);
        if std::os::unix::fs::chown(&side, Some(65_534), None).is_err() {
            eprintln!("skipped: only root may give files away");
            return;
        }
        assert!(matches!(open_error(&path, 1 << 20).await, OpenError::InTheWay(_)));
        std::os::unix::fs::chown(&side, Some(0), None).unwrap();
    }
    assert_eq!(resumed(&path).await.0.len(), 1);
}

/// Runs `test` of this binary in a process of its own with mounts of its own, after `shell`
/// prepared the folder named by `SWATH_PLACE`; says so where that is not allowed.
fn in_a_place(shell: &str, place: &Path, test: &str, unshare: &[&str]) {
    let prepared = format!("{shell} || exit 77; exec \"$0\" --ignored --exact {test} --nocapture");
    let exe = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(unshare)
        .args(["--mount", "sh", "-c", &prepared])
        .arg(exe)
        .env("SWATH_PLACE", place)
        .output();
    let Ok(output) = output else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || text.contains("unshare:") {
        eprintln!("{test} skipped: no such mounts here: {text}");
    } else {
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}

const AS_ROOT_OF_OUR_OWN: &[&str] = &["--user", "--map-root-user"];

fn place() -> PathBuf {
    std::env::var_os("SWATH_PLACE").expect("run by its parent test").into()
}

#[test]
fn a_disk_that_fills_up_keeps_what_was_committed() {
    let folder = folder();
    in_a_place(
        "mount -t tmpfs -o size=1m tmpfs \"$SWATH_PLACE\"",
        folder.path(),
        "mounts::child_on_a_full_disk",
        AS_ROOT_OF_OUR_OWN,
    );
}

#[tokio::test]
#[ignore = "run by a_disk_that_fills_up_keeps_what_was_committed"]
async fn child_on_a_full_disk() {
    let path = place().join("file");
    match open_error(&path, 2 << 20).await {
        OpenError::NoSpace { needed_bytes, available_bytes, .. } => {
            assert_eq!(needed_bytes, 2 << 20);
            assert!(available_bytes <= 1 << 20);
        }
        other => panic!("{other:?}"),
    }
    let (disk, pool) = disk(IoMode::Auto);
    let (target, _) = open(&disk, &path, 900_000).await;
    assert!(!target.is_direct(), "there is no direct I/O in memory");
    drop(target);
    fill_up_and_go_on(&disk, &pool, false).await;
    fs::remove_file(path).unwrap();
    let options = DiskOptions { journal_from_bytes: 0, ..DiskOptions::default() };
    let disk = Disk::start_with(&pool, IoMode::Auto, options).unwrap();
    fill_up_and_go_on(&disk, &pool, true).await;
}

/// A file system of 16 MiB in a file, for direct I/O: needs to be root and a loop device.
#[test]
fn a_device_that_fills_up_keeps_what_was_committed() {
    let folder = folder();
    let image = folder.path().join("image");
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    fs::create_dir(folder.path().join("place")).unwrap();
    let shell = "mkfs.ext4 -q -m 0 \"$SWATH_PLACE/../image\" && mount -o loop \"$SWATH_PLACE/../image\" \"$SWATH_PLACE\"";
    in_a_place(shell, &folder.path().join("place"), "mounts::child_on_a_full_device", &[]);
}

#[tokio::test]
#[ignore = "run by a_device_that_fills_up_keeps_what_was_committed"]
async fn child_on_a_full_device() {
    for mode in [IoMode::Auto, IoMode::Threads, IoMode::Buffered] {
        let pool = Pool::new(16, BUFFER_BYTES);
        // With its space reserved, nobody could take it away.
        for early in [false, true] {
            let journal_from_bytes = if early { 0 } else { u64::MAX };
            let options =
                DiskOptions { reserve: false, journal_from_bytes, ..DiskOptions::default() };
            let disk = Disk::start_with(&pool, mode, options).unwrap();
            fill_up_and_go_on(&disk, &pool, early).await;
            fs::remove_file(place().join("file")).unwrap();
        }
    }
}

/// Syncing frees what a file system had set aside for the worst case, so once is not enough.
fn take_all_space(path: &Path) {
    let mut others = fs::File::create(path).unwrap();
    let mut more = true;
    while std::mem::take(&mut more) {
        while others.write(&[1; 4096]).is_ok() {
            more = true;
        }
        others.sync_all().unwrap();
    }
}

/// While a file is being written, another one takes all the space; where the journal is there
/// early, before anything was committed.
async fn fill_up_and_go_on(disk: &Disk, pool: &Pool, early: bool) {
    let path = place().join("file");
    let (target, _) = open(disk, &path, 900_000).await;
    fill(&target, pool, Range::new(0, 262_144)).await;
    let commit = async || target.commit(vec![durable(Range::new(0, 262_144))]).await.unwrap();
    if !early {
        commit().await;
    }
    take_all_space(&place().join("others"));
    if early {
        commit().await;
    }
    let mut at = 262_144;
    let error = loop {
        let mut buffer = pool.take().await;
        buffer.push(&content(Range::of_len(at, 65_536)));
        match target.write(at, buffer).await {
            Ok(_) => at += 65_536,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, WriteError::NoSpace { .. }), "{error:?}");
    drop(target);
    fs::remove_file(place().join("others")).unwrap();
    let (target, resumed) = open(disk, &path, 900_000).await;
    assert_eq!(resumed.durable.iter().collect::<Vec<_>>(), [(Range::new(0, 262_144), 0)]);
    check(&target, pool, Range::new(0, 262_144)).await;
    fill(&target, pool, Range::new(262_144, 900_000)).await;
    target.finish(None).await.unwrap();
}

#[test]
fn a_read_only_file_system_is_refused() {
    let folder = folder();
    fs::create_dir(folder.path().join("there")).unwrap();
    let shell = "mount -t tmpfs tmpfs \"$SWATH_PLACE\" && mkdir \"$SWATH_PLACE/there\" && mount -o remount,ro tmpfs \"$SWATH_PLACE\"";
    in_a_place(
        shell,
        folder.path(),
        "mounts::child_on_a_read_only_file_system",
        AS_ROOT_OF_OUR_OWN,
    );
}

#[tokio::test]
#[ignore = "run by a_read_only_file_system_is_refused"]
async fn child_on_a_read_only_file_system() {
    for name in ["file", "there/file", "not/there/file"] {
        let error = open_error(&place().join(name), 10).await;
        assert!(matches!(error, OpenError::FolderNotWritable { .. }), "{name}: {error:?}");
    }
}
