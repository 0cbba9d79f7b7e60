//! io_uring where the kernel may not start workers: nothing is lost, and nobody waits for ever.

use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use swath_model::Range;
use swath_store::IoMode;

/// On machines that limit processes (`ulimit -u`, `pids.max`) the ring itself could be made, but
/// every write that the kernel could not do at once failed, or was asked for again without end.
#[test]
fn where_the_kernel_may_start_no_workers_every_job_is_done() {
    // SAFETY: a plain system call.
    if unsafe { libc::getuid() } != 0 {
        println!("skipped: another user's processes are not counted, so the limit cannot be set");
        return;
    }
    // Not in `/tmp` of a machine that has it in memory: there the kernel needs no workers.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "no_workers::child_that_may_start_nothing", "--nocapture"])
        .env("SWATH_PLACE", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("a write never ended");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    assert!(status.success() && said.contains("1 passed"), "{status}: {said}");
    for line in said.lines().filter(|line| line.contains("skipped: ")) {
        println!("{line}");
    }
}

#[tokio::test]
#[ignore = "run by where_the_kernel_may_start_no_workers_every_job_is_done"]
async fn child_that_may_start_nothing() {
    let folder = PathBuf::from(std::env::var_os("SWATH_PLACE").expect("run by its parent test"));
    let pool = swath_model::Pool::new(16, BUFFER_BYTES);
    let Ok(disk) = swath_store::Disk::start(&pool, IoMode::Uring) else {
        println!("skipped: no io_uring here");
        return;
    };
    let size_bytes = 8 << 20;
    let path = folder.join("file");
    // Into holes: the kernel has to allocate space for each write, which it leaves to workers.
    let sparse = swath_store::TargetSpec { sparse: true, ..spec(&path, size_bytes) };
    let (target, _) = swath_store::Target::open(&disk, sparse).await.unwrap();
    for place in [folder.clone(), folder.join("file.swath.part")] {
        chown(place, Some(STRANGER), Some(STRANGER)).unwrap();
    }
    let none = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: plain system calls; they hold for all threads of this process and for no other one.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &raw const none), 0);
        assert_eq!(libc::setresgid(STRANGER, STRANGER, STRANGER), 0);
        assert_eq!(libc::setresuid(STRANGER, STRANGER, STRANGER), 0);
    }
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "the limit does not hold");

    // Several at a time, so that some wait in the ring while others are turned away.
    let quarter = size_bytes / 4;
    let part = |n: u64| fill(&target, &pool, Range::new(n * quarter, (n + 1) * quarter));
    tokio::join!(part(0), part(1), part(2), part(3));
    check(&target, &pool, Range::new(0, size_bytes)).await;
    target.finish(None).await.unwrap();
    assert!(std::fs::read(&path).unwrap() == content(Range::new(0, size_bytes)));
    assert_eq!(pool.free_slots(), pool.slots(), "every buffer came back");
    if disk.mode_name() == "uring" {
        println!("skipped: this file system needs no workers of the kernel");
    }
}

/// A user with no other process, as far as can be known.
const STRANGER: u32 = 54_321;
