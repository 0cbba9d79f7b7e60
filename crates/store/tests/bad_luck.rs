//! What can be wrong with a target's place: each case has its own error, and nothing that belongs
//! to somebody else is touched.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;
use swath_model::{Pool, Range};
use swath_store::{
    Disk, DiskOptions, FinishError, IoMode, OpenError, Target, TargetSpec, WriteError,
};

async fn open_error(path: &Path, size_bytes: u64) -> OpenError {
    let (disk, _pool) = disk(IoMode::Auto);
    Target::open(&disk, spec(path, size_bytes)).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn a_taken_name_is_not_replaced_unless_asked_for() {
    let folder = folder();
    let path = folder.path().join("file");
    fs::write(&path, "precious").unwrap();
    assert!(matches!(open_error(&path, 10).await, OpenError::Exists(_)));
    assert_eq!(names(folder.path()), ["file"]);

    let (disk, pool) = disk(IoMode::Auto);
    let spec = TargetSpec { overwrite: true, ..spec(&path, 10) };
    let (target, _) = Target::open(&disk, spec).await.unwrap();
    fill(&target, &pool, Range::new(0, 10)).await;
    assert_eq!(fs::read(&path).unwrap(), b"precious", "until it is finished");
    target.finish(None).await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), content(Range::new(0, 10)));
}

#[tokio::test]
async fn a_name_taken_meanwhile_is_not_replaced_and_nothing_is_lost() {
    let folder = folder();
    let path = folder.path().join("file");
    let (disk, pool) = disk(IoMode::Auto);
    let (target, _) = open(&disk, &path, 10).await;
    fill(&target, &pool, Range::new(0, 10)).await;
    target.commit(vec![durable(Range::new(0, 10))]).await.unwrap();
    fs::write(&path, "precious").unwrap();
    assert!(matches!(target.finish(None).await, Err(FinishError::Exists(_))));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    fs::remove_file(&path).unwrap();
    target.finish(None).await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), content(Range::new(0, 10)));
    assert_eq!(names(folder.path()), ["file"]);
    assert!(matches!(target.finish(None).await, Err(FinishError::Closed(_))));
}

#[tokio::test]
async fn one_target_is_written_by_one_at_a_time() {
    let folder = folder();
    let path = folder.path().join("file");
    let (disk, pool) = disk(IoMode::Auto);
    let (target, _) = open(&disk, &path, 10).await;
    assert!(matches!(open_error(&path, 10).await, OpenError::Locked(_)));
    fill(&target, &pool, Range::new(0, 10)).await;
    target.finish(None).await.unwrap();
    // The finished one keeps its lock until it is dropped, but not of the name.
    assert!(matches!(open_error(&path, 10).await, OpenError::Exists(_)));
    let again = TargetSpec { overwrite: true, ..spec(&path, 10) };
    Target::open(&disk, again).await.unwrap();
}

#[tokio::test]
async fn a_link_at_the_target_is_replaced_and_not_followed() {
    let folder = folder();
    let (elsewhere, path) = (folder.path().join("elsewhere"), folder.path().join("file"));
    fs::write(&elsewhere, "precious").unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert!(matches!(open_error(&path, 10).await, OpenError::Exists(_)));
    let (disk, pool) = disk(IoMode::Auto);
    let (target, _) =
        Target::open(&disk, TargetSpec { overwrite: true, ..spec(&path, 10) }).await.unwrap();
    fill(&target, &pool, Range::new(0, 10)).await;
    target.finish(None).await.unwrap();
    assert!(path.symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let in_the_way = async |name: &str| {
        let error = open_error(&at(name), 10).await;
        assert!(matches!(&error, OpenError::InTheWay(_)), "{name}: {error:?}");
    };
    fs::write(at("elsewhere"), "precious").unwrap();
    symlink(at("elsewhere"), at("a.swath.part")).unwrap();
    in_the_way("a").await;
    symlink(at("elsewhere"), at("b.swath")).unwrap();
    in_the_way("b").await;
    fs::create_dir(at("c.swath.part")).unwrap();
    in_the_way("c").await;
    fs::create_dir(at("d.swath")).unwrap();
    in_the_way("d").await;
    fs::write(at("e.swath"), "a file whose name ends like ours").unwrap();
    in_the_way("e").await;
    assert!(Command::new("mkfifo").arg(at("f.swath.part")).status().unwrap().success());
    in_the_way("f").await;
    assert_eq!(fs::read(at("elsewhere")).unwrap(), b"precious");
    assert!(at("e.swath").exists());
    let before = [
        "a.swath.part",
        "b.swath",
        "c.swath.part",
        "d.swath",
        "e.swath",
        "elsewhere",
        "f.swath.part",
    ];
    assert_eq!(names(folder.path()), before);
}

#[tokio::test]
async fn impossible_names_are_told_apart() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("file"), "").unwrap();
    assert!(matches!(open_error(&at("folder"), 1).await, OpenError::IsFolder(_)));
    assert!(matches!(open_error(&at("no/.."), 1).await, OpenError::NoName(_)));
    assert!(matches!(open_error(Path::new(""), 1).await, OpenError::NoName(_)));
    assert!(matches!(open_error(&at("zero\0byte"), 1).await, OpenError::NoName(_)));
    assert!(matches!(open_error(&at("file/below"), 1).await, OpenError::FolderNotWritable { .. }));
    assert!(matches!(open_error(&at(&"x".repeat(256)), 1).await, OpenError::NameTooLong(_)));
    assert_eq!(names(folder.path()), ["file", "folder"]);
}

#[tokio::test]
async fn a_name_of_full_length_still_gets_its_side_files() {
    let folder = folder();
    let path = folder.path().join("y".repeat(255));
    let (disk, pool) = disk(IoMode::Auto);
    for round in 0..2 {
        let (target, resumed) = open(&disk, &path, 20).await;
        assert_eq!(resumed.durable.count(), round);
        fill(&target, &pool, Range::new(0, 20)).await;
        target.commit(vec![durable(Range::new(0, 20))]).await.unwrap();
        if round == 1 {
            target.finish(None).await.unwrap();
        }
    }
    assert_eq!(names(folder.path()), ["y".repeat(255)]);
}

#[tokio::test]
async fn a_file_that_does_not_fit_is_refused_before_it_begins() {
    let folder = folder();
    match open_error(&folder.path().join("file"), 1 << 60).await {
        OpenError::NoSpace { needed_bytes, available_bytes, .. } => {
            assert_eq!(needed_bytes, 1 << 60);
            assert!(available_bytes > 0);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(names(folder.path()), [""; 0]);
}

/// Begin a file of 1 MiB, commit half of it and stop.
async fn begun(path: &Path) {
    let (disk, pool) = disk(IoMode::Auto);
    let (target, _) = open(&disk, path, 1 << 20).await;
    fill(&target, &pool, Range::new(0, 1 << 19)).await;
    target.commit(vec![durable(Range::new(0, 1 << 18))]).await.unwrap();
    target.commit(vec![durable(Range::new(1 << 18, 1 << 19))]).await.unwrap();
}

async fn resumed(path: &Path) -> (Vec<Range>, Option<String>) {
    let (disk, pool) = disk(IoMode::Auto);
    let (target, resumed) = open(&disk, path, 1 << 20).await;
    let durable: Vec<Range> = resumed.durable.iter().map(|(range, _)| range).collect();
    for &range in &durable {
        check(&target, &pool, range).await;
    }
    (durable, resumed.note)
}

#[tokio::test]
async fn a_shortened_missing_or_hollow_part_file_is_noticed() {
    let folder = folder();
    let path = folder.path().join("file");
    let part = folder.path().join("file.swath.part");
    let part_file = || fs::OpenOptions::new().write(true).open(&part).unwrap();
    begun(&path).await;
    part_file().set_len(100_000).unwrap();
    let note = "the part file lacks 424288 bytes that the journal vouches for: kept 100000 bytes";
    assert_eq!(resumed(&path).await, (vec![Range::new(0, 100_000)], Some(note.into())));
    // Remembered, although the part file has its length again.
    assert_eq!(resumed(&path).await, (vec![Range::new(0, 100_000)], None));

    begun(&path).await;
    part_file().set_len(1 << 17).unwrap();
    part_file().set_len(1 << 20).unwrap();
    assert_eq!(resumed(&path).await.0, [Range::new(0, 1 << 17)]);

    fs::remove_file(&part).unwrap();
    let (durable, note) = resumed(&path).await;
    assert!(durable.is_empty() && note.unwrap().ends_with("kept 0 bytes"));
}

#[tokio::test]
async fn a_damaged_journal_is_believed_up_to_the_damage() {
    let folder = folder();
    let path = folder.path().join("file");
    let journal = folder.path().join("file.swath");
    begun(&path).await;
    let whole = fs::read(&journal).unwrap();

    fs::write(&journal, &whole[..whole.len() - 1]).unwrap();
    let (durable, note) = resumed(&path).await;
    assert_eq!(durable, [Range::new(0, 1 << 18)]);
    assert!(note.unwrap().ends_with("kept 262144 bytes of the file"));
    assert_eq!(
        resumed(&path).await,
        (vec![Range::new(0, 1 << 18)], None),
        "the torn end was cut off"
    );

    // Going on after the damage works as ever.
    begun(&path).await;
    assert_eq!(resumed(&path).await, (vec![Range::new(0, 1 << 19)], None));

    let mut foreign = whole.clone();
    foreign[3] ^= 1;
    fs::write(&journal, &foreign).unwrap();
    let (durable, note) = resumed(&path).await;
    assert!(durable.is_empty());
    assert_eq!(note.as_deref(), Some("starting again: the journal is damaged from its beginning"));
    assert!(!journal.exists());
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
        assert!(output.status.success(), "{text}");
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
        "child_on_a_full_disk",
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
    fill_up_and_go_on(&disk, &pool).await;
}

/// A file system of 16 MiB in a file, for direct I/O: needs to be root and a loop device.
#[test]
fn a_device_that_fills_up_keeps_what_was_committed() {
    let folder = folder();
    let image = folder.path().join("image");
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    fs::create_dir(folder.path().join("place")).unwrap();
    let shell = "mkfs.ext4 -q -m 0 \"$SWATH_PLACE/../image\" && mount -o loop \"$SWATH_PLACE/../image\" \"$SWATH_PLACE\"";
    in_a_place(shell, &folder.path().join("place"), "child_on_a_full_device", &[]);
}

#[tokio::test]
#[ignore = "run by a_device_that_fills_up_keeps_what_was_committed"]
async fn child_on_a_full_device() {
    for mode in [IoMode::Auto, IoMode::Threads, IoMode::Buffered] {
        let pool = Pool::new(16, BUFFER_BYTES);
        // With its space reserved, nobody could take it away.
        let options = DiskOptions { reserve: false, ..DiskOptions::default() };
        let disk = Disk::start_with(&pool, mode, options).unwrap();
        fill_up_and_go_on(&disk, &pool).await;
        fs::remove_file(place().join("file")).unwrap();
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

/// While a file is being written, another one takes all the space.
async fn fill_up_and_go_on(disk: &Disk, pool: &Pool) {
    let path = place().join("file");
    let (target, _) = open(disk, &path, 900_000).await;
    fill(&target, pool, Range::new(0, 262_144)).await;
    target.commit(vec![durable(Range::new(0, 262_144))]).await.unwrap();
    take_all_space(&place().join("others"));
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
    in_a_place(shell, folder.path(), "child_on_a_read_only_file_system", AS_ROOT_OF_OUR_OWN);
}

#[tokio::test]
#[ignore = "run by a_read_only_file_system_is_refused"]
async fn child_on_a_read_only_file_system() {
    for name in ["file", "there/file", "not/there/file"] {
        let error = open_error(&place().join(name), 10).await;
        assert!(matches!(error, OpenError::FolderNotWritable { .. }), "{name}: {error:?}");
    }
}

#[tokio::test]
async fn a_folder_without_permission_is_refused() {
    let folder = folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let allowed_all_the_same = fs::write(folder.path().join("probe"), "").is_ok();
    if !allowed_all_the_same {
        let error = open_error(&folder.path().join("file"), 10).await;
        assert!(matches!(error, OpenError::FolderNotWritable { .. }), "{error:?}");
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
}
