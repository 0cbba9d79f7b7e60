//! `swath verify DIR --index FILE|URL`: a copied tree is held against its index.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;

use crate::support::Home;
use crate::support::trees::{bytes, plant};

/// Other bytes, with the same size and time.
fn spoil(path: &Path, at: u64) {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(b"spoilt", at).unwrap();
    file.set_modified(time).unwrap();
}

#[test]
fn what_was_copied_is_right_and_what_is_spoilt_is_named() {
    let home = Home::new();
    plant(&home);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    home.run(["cp", &server.url, "copy", "--keep-index", "kept"]).code_is(0);
    assert_eq!(home.names(), ["copy", "kept", "tree"]);
    let url = server.url.clone();
    let verify = ["verify", "copy", "--strict", "--index"];
    for index in ["kept", &url] {
        let ran = home.run(verify.iter().chain(&[index]));
        ran.code_is(0);
        let told = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(told.contains(": everything matches the index: 308 files"), "{told}");
    }
    spoil(&home.path("copy/large.bin"), 2_000_000);
    spoil(&home.path("copy/many/3/3.dat"), 1000);
    fs::remove_file(home.path("copy/page.bin")).unwrap();
    fs::remove_file(home.path("copy/link")).unwrap();
    std::os::unix::fs::symlink("elsewhere", home.path("copy/link")).unwrap();
    for index in ["kept", &url] {
        let ran = home.run(["verify", "copy", "--index", index]);
        ran.code_is(4)
            .says(&["other files share wrong blocks and may be wrong too", "--strict lists them"]);
        assert!(!ran.stderr.contains("3.dat"), "{ran}");
        let ran = home.run(["verify", "copy", "--index", index, "--strict"]);
        ran.code_is(4).says(&[
            "large.bin: different content",
            "many/3/3.dat: possibly different content",
            "page.bin: missing",
            "link: different link target",
            "not match the index",
        ]);
        // What shares no block with any of them is not accused.
        assert!(!ran.stderr.contains("many/1/"), "{ran}");
    }
    // Without the source.
    drop(server);
    home.run(["verify", "copy", "--index", "kept"]).code_is(4);
    home.run(["verify", "tree", "--index", "kept"]).code_is(0);
}

#[test]
fn modes_and_times_count_only_if_that_is_wanted() {
    let home = Home::new();
    home.write("tree/a", "a\n");
    home.write("tree/b", "b\n");
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    home.run(["cp", &server.url, "copy", "--keep-index", "kept"]).code_is(0);
    fs::set_permissions(home.path("copy/a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::File::open(home.path("copy/b"))
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    home.run(["verify", "copy", "--index", "kept"])
        .code_is(0)
        .says(&["2 modes, times or attributes differ"]);
    home.run(["verify", "copy", "--index", "kept", "--strict"])
        .code_is(4)
        .says(&["a: different mode", "b: different modification time"]);
}

#[test]
fn the_index_is_kept_of_what_was_there_before_too() {
    let home = Home::new();
    plant(&home);
    home.write("tree/wide.bin", bytes(9, 24 << 20));
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let args = ["cp", "--quiet", &server.url, "copy"];
    let kept = ["--keep-index", "kept"];
    // All of it would take a minute.
    let slowly = ["--limit-rate", "500k"];
    let child = home.swath(args.iter().chain(&kept).chain(&slowly)).start();
    home.wait_for_bytes("copy.swath.part/large.bin", 1 << 18);
    child.signal(libc::SIGKILL);
    child.wait().code_is(128 + libc::SIGKILL);
    assert!(!home.exists("kept"));
    home.run(args.iter().chain(&kept)).code_is(0);
    home.run(["verify", "copy", "--index", "kept", "--strict"]).code_is(0);
    // Nothing is copied, and all values come from the source.
    home.run(["cp", &server.url, "copy", "--keep-index", "again"]).code_is(0);
    assert_eq!(home.read("again"), home.read("kept"));
    assert_eq!(home.names(), ["again", "copy", "kept", "tree"]);
}

#[test]
fn a_part_of_a_tree_is_checked_as_one() {
    let home = Home::new();
    plant(&home);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let part = ["--exclude", "/many", "--exclude", "*.bin"];
    home.run(["cp", &server.url, "copy", "--keep-index", "kept"].iter().chain(&part)).code_is(0);
    home.run(["verify", "copy", "--index", "kept", "--strict"]).code_is(0);
    home.run(["verify", "copy", "--index", &server.url].iter().chain(&part)).code_is(0);
    home.run(["verify", "copy", "--index", &server.url]).code_is(4).says(&["large.bin: missing"]);
    let refused = home.run(["verify", "copy", "--index", "kept"].iter().chain(&part));
    refused.code_is(2).says(&[
        "--include and --exclude are for --index URL: a kept index lists only what was copied",
    ]);
}

#[test]
fn what_is_no_index_is_refused() {
    let home = Home::new();
    home.write("tree/a", "a\n");
    home.write("notes", "mine\n");
    home.run(["verify", "tree", "--index", "notes"]).code_is(6).says(&["no kept index"]);
    home.run(["verify", "tree", "--index", "missing"]).code_is(6);
    home.run(["verify", "missing", "--index", "notes"]).code_is(6).says(&["not a folder"]);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    home.run(["cp", &server.url, "copy", "--keep-index", "notes"])
        .code_is(5)
        .says(&["something is there that is no kept index"]);
    assert_eq!(home.read("notes"), b"mine\n");
}

#[test]
fn of_small_files_that_share_a_block_the_one_that_was_changed_is_named() {
    // All of them were named alike, a hundred lines, and none said which one it was.
    let home = Home::new();
    for number in 0..50 {
        home.write(&format!("tree/{number:02}"), bytes(number, 700));
    }
    home.run(["cp", "tree/", "copy", "--keep-index", "kept"]).code_is(0);
    let verify = |more: &[&str]| {
        let ran = home.run(["verify", "copy", "--index", "kept"].iter().chain(more));
        ran.code_is(4);
        ran.stderr.clone()
    };
    // With its time: nobody can say which it is.
    spoil(&home.path("copy/07"), 100);
    let told = verify(&[]);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("50 files share wrong blocks and may be wrong too"), "{told}");
    assert_eq!(verify(&["--strict"]).matches("possibly different content").count(), 50);
    home.write("copy/07", bytes(3, 700));
    fs::remove_file(home.path("copy/08")).unwrap();
    let told = verify(&[]);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("08: missing"), "{told}");
    assert!(lines[1].starts_with("07: probably different content"), "{told}");
    assert!(
        lines[2].starts_with("48 other files share wrong blocks and may be wrong too"),
        "{told}"
    );
    assert!(told.contains("2 entries do not match the index"), "{told}");
}
