//! What can be wrong with a target's place: each case has its own error, and nothing that belongs
//! to somebody else is touched.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::common::*;
use swath_model::{Pool, Range, Validators};
use swath_store::{
    Disk, DiskOptions, FileKind, FinishError, HashState, Identity, IoMode, OpenError, Record,
    Target, TargetSpec, look,
};

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

/// `--overwrite` used to replace whatever had the name: a device node, a pipe that somebody read
/// from, a link to the file that was meant.
#[tokio::test]
async fn only_files_are_ever_replaced() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("elsewhere"), "precious").unwrap();
    symlink(at("elsewhere"), at("link")).unwrap();
    symlink(at("nowhere"), at("dangling")).unwrap();
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    let (disk, _) = disk(IoMode::Auto);
    let mut places = vec![
        (at("link"), FileKind::Link),
        (at("dangling"), FileKind::Link),
        (at("pipe"), FileKind::Pipe),
        (at("socket"), FileKind::Socket),
    ];
    // Never a device that others use; only root may make one of its own.
    let own = Command::new("mknod").arg(at("device")).args(["c", "1", "3"]).output();
    if own.is_ok_and(|own| own.status.success()) {
        places.push((at("device"), FileKind::Device));
    }
    for (path, what) in places {
        for overwrite in [false, true] {
            let spec = TargetSpec { overwrite, ..spec(&path, 10) };
            let error = Target::open(&disk, spec).await.unwrap_err();
            assert!(matches!(&error, OpenError::NotAFile { kind, .. } if *kind == what), "{error}");
            assert!(matches!(look(&path, None, overwrite), Err(OpenError::NotAFile { .. })));
        }
        assert!(!path.symlink_metadata().unwrap().is_file());
    }
    assert_eq!(fs::read(at("elsewhere")).unwrap(), b"precious");
}

#[tokio::test]
async fn what_becomes_a_link_meanwhile_is_not_replaced() {
    let folder = folder();
    let path = folder.path().join("file");
    fs::write(&path, "old").unwrap();
    let (disk, pool) = disk(IoMode::Auto);
    let spec = TargetSpec { overwrite: true, ..spec(&path, 10) };
    let (target, _) = Target::open(&disk, spec).await.unwrap();
    fill(&target, &pool, Range::new(0, 10)).await;
    fs::remove_file(&path).unwrap();
    symlink("elsewhere", &path).unwrap();
    assert!(matches!(target.finish(None).await, Err(FinishError::Exists(_))));
    assert!(path.symlink_metadata().unwrap().is_symlink());
}

#[tokio::test]
async fn what_replaces_a_private_file_is_private_from_the_beginning() {
    let folder = folder();
    let path = folder.path().join("file");
    let (disk, pool) = disk(IoMode::Auto);
    for mode in [0o600, 0o640, 0o440, 0o755] {
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let spec = TargetSpec { overwrite: true, ..spec(&path, 10) };
        let (target, _) = Target::open(&disk, spec).await.unwrap();
        let now = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(now(target.part_path()), mode | 0o600);
        fill(&target, &pool, Range::new(0, 10)).await;
        target.finish(None).await.unwrap();
        assert_eq!(now(&path), mode);
        fs::remove_file(&path).unwrap();
    }
}

/// A list with entries `x.swath` and `x.swath.part` beside `x` had them eaten as journal and part
/// file of `x`; and whoever writes lists could plant a journal that vouches for anything.
#[tokio::test]
async fn names_of_side_files_are_refused() {
    let folder = folder();
    for name in ["x.swath", "x.swath.part", "x.swath.new", "X.SWATH"] {
        let path = folder.path().join(name);
        assert!(matches!(open_error(&path, 10).await, OpenError::Reserved(_)), "{name}");
        assert!(matches!(look(&path, None, true), Err(OpenError::Reserved(_))), "{name}");
    }
    assert_eq!(names(folder.path()), [""; 0]);
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

/// An edit of the part file between two runs went unnoticed into the finished file.
#[tokio::test]
async fn a_part_file_that_was_changed_since_is_hashed_again_or_given_up() {
    let hash = HashState { algorithm: "sha-256".into(), front: 4096, state: vec![1] };
    for digest_known in [true, false] {
        let folder = folder();
        let path = folder.path().join("file");
        let version = Validators { etag: Some("\"1\"".into()), last_modified: None };
        let identity = match digest_known {
            true => proving(),
            false => Identity { versions: vec![("u".into(), version)], ..Identity::default() },
        };
        let spec = TargetSpec { identity, ..spec(&path, 1 << 20) };
        let (disk, pool) = disk(IoMode::Auto);
        let again = async || Target::open(&disk, spec.clone()).await.unwrap();
        let (target, _) = again().await;
        fill(&target, &pool, Range::new(0, 1 << 19)).await;
        let verified = Record::Verified { range: Range::new(0, 1 << 18) };
        let records =
            vec![durable(Range::new(0, 1 << 19)), verified, Record::HashState(hash.clone())];
        target.commit(records).await.unwrap();
        drop(target);
        let (target, resumed) = again().await;
        assert_eq!(resumed.hash_states.len(), 1);
        assert_eq!((resumed.verified.total_bytes(), resumed.note), (1 << 18, None));
        drop(target);
        let part = fs::File::options().write(true).open(folder.path().join("file.swath.part"));
        part.unwrap().set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
        let (_, resumed) = again().await;
        assert!(resumed.verified.is_empty() && resumed.hash_states.is_empty());
        let kept = resumed.durable.iter().map(|(range, _)| range.len()).sum::<u64>();
        let note = resumed.note.unwrap();
        if digest_known {
            assert_eq!(kept, 1 << 19);
            assert!(note.contains("was changed") && note.contains("hashed again"), "{note}");
        } else {
            assert_eq!(kept, 0);
            assert!(note.contains("starting again: the part file was changed"), "{note}");
        }
    }
}

/// A disk that was full before the first commit took the journal's place too, and all was lost.
#[tokio::test]
async fn the_journal_of_a_large_file_is_there_before_its_first_byte() {
    let folder = folder();
    let path = folder.path().join("file");
    let pool = Pool::new(16, BUFFER_BYTES);
    let options = DiskOptions { journal_from_bytes: 1 << 20, ..DiskOptions::default() };
    let disk = Disk::start_with(&pool, IoMode::Auto, options).unwrap();
    let (target, _) = open(&disk, &path, (1 << 20) - 1).await;
    assert_eq!(names(folder.path()), ["file.swath.part"]);
    drop(target);
    let (target, _) = open(&disk, &path, 1 << 20).await;
    assert_eq!(names(folder.path()), ["file.swath", "file.swath.part"]);
    fill(&target, &pool, Range::new(0, 65_536)).await;
    drop(target);
    assert_eq!(names(folder.path()), [""; 0], "nothing was committed, nothing is left");
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
