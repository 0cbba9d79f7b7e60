//! Trees with something of everything, and whether two of them are the same.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use swath_netlab::faulty::Content;

use super::Home;

/// Bytes that are the same for the same number, and not the same anywhere.
pub fn bytes(seed: u32, count: usize) -> Vec<u8> {
    Content::random(u64::from(seed), count as u64).read(0, count as u64)
}

/// A tree with something of everything.
pub fn plant(home: &Home) {
    home.write("tree/large.bin", bytes(1, 5_000_003));
    home.write("tree/page.bin", bytes(2, 1 << 20));
    for n in 0..300u32 {
        let size = (n as usize * 7919) % 40_000;
        home.write(&format!("tree/many/{}/{n}.dat", n % 7), bytes(n, size));
    }
    home.write("tree/empty", "");
    home.write("tree/a name, with #?%.dat", "odd\n");
    let long = "l".repeat(255);
    home.write(&format!("tree/{long}"), "long\n");
    fs::write(home.path("tree").join(OsStr::from_bytes(b"no\xFFtext")), "bytes\n").unwrap();
    let deep = format!("tree/{}", "deep/".repeat(60));
    home.write(&format!("{deep}down"), "down\n");
    fs::create_dir(home.path("tree/nothing in it")).unwrap();
    symlink("large.bin", home.path("tree/link")).unwrap();
    symlink("../../elsewhere", home.path("tree/many/out")).unwrap();
    let sparse = fs::File::create(home.path("tree/sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    sparse.write_all_at(b"within", 1 << 20).unwrap();
    fs::set_permissions(home.path("tree/page.bin"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(home.path("tree/many/3"), fs::Permissions::from_mode(0o750)).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::options()
        .write(true)
        .open(home.path("tree/page.bin"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    fs::File::open(home.path("tree/many/3")).unwrap().set_modified(old).unwrap();
}

/// Everything that can be seen of a tree, one line an entry.
pub fn seen(tree: &Path) -> String {
    let found = Command::new("find")
        .arg(tree)
        .args(["-mindepth", "1", "-printf", "%P\\t%y\\t%m\\t%s\\t%T@\\t%l\\n"])
        .output()
        .unwrap();
    assert!(found.status.success());
    // The size of a folder is its file system's affair.
    let mut lines: Vec<String> = String::from_utf8_lossy(&found.stdout)
        .lines()
        .map(|line| {
            let mut parts: Vec<&str> = line.split('\t').collect();
            if parts[1] == "d" {
                parts[3] = "-";
            }
            parts.join("\t")
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

/// Mode and time of a folder itself, which is no part of what is [`seen`] of a tree.
pub fn top(tree: &Path) -> (u32, i64, i64) {
    let found = fs::metadata(tree).unwrap();
    (found.mode() & 0o7777, found.mtime(), found.mtime_nsec())
}

/// Both trees are the same, to the byte and to the nanosecond.
pub fn assert_same(one: &Path, other: &Path) {
    let (ours, theirs) = (seen(one), seen(other));
    for (our, their) in ours.lines().zip(theirs.lines()) {
        assert_eq!(our, their);
    }
    assert_eq!(ours.lines().count(), theirs.lines().count());
    let diff =
        Command::new("diff").args(["-r", "--no-dereference"]).args([one, other]).output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
}

/// Wait until the journal of a copy has grown twice: it vouches for some of it then.
pub fn wait_for_commits(home: &Home, journal: &str) {
    let began = Instant::now();
    let length = || home.path(journal).metadata().map_or(0, |found| found.len());
    let grows_from = |least: u64| {
        while length() <= least {
            assert!(began.elapsed() < Duration::from_secs(90), "{journal}: {least}");
            std::thread::sleep(Duration::from_millis(5));
        }
        length()
    };
    grows_from(grows_from(0));
}

/// Have a folder belong to root, with all that lies in it; whether that can be.
pub fn gives_away(folder: &Path) -> bool {
    let mut chown = std::process::Command::new("chown");
    let is_root = chown.arg("-hR").arg("0:0").arg(folder).status().is_ok_and(|ran| ran.success());
    // SAFETY: no preconditions.
    is_root && unsafe { libc::geteuid() } == 0
}
