//! `swath cp FILE PLACE` where both are here.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, SystemTime};

use crate::support::trees::{bytes, wait_for_commits};
use crate::support::{Home, Ran};

fn age(home: &Home, name: &str) {
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::options().append(true).open(home.path(name)).unwrap().set_modified(old).unwrap();
}

#[track_caller]
fn assert_copied(home: &Home, name: &str, copy: &str) {
    assert!(home.read(name) == home.read(copy), "{copy}");
    let of = |name: &str| home.path(name).metadata().unwrap();
    assert_eq!(of(name).modified().unwrap(), of(copy).modified().unwrap(), "{copy}");
    assert_eq!(of(name).permissions(), of(copy).permissions(), "{copy}");
    assert!(!home.path(copy).is_symlink(), "{copy}");
}

#[test]
fn into_a_folder_or_under_a_name() {
    // A single file was refused: "single files are only sent to addresses of servers".
    let home = Home::new();
    fs::create_dir(home.path("folder")).unwrap();
    let cp = |args: &[&str]| home.run(["cp"].iter().chain(args));
    for size in [0, 1, 300_000, 5_000_003] {
        home.write("a [1]*.bin", bytes(7, size));
        fs::set_permissions(home.path("a [1]*.bin"), fs::Permissions::from_mode(0o640)).unwrap();
        age(&home, "a [1]*.bin");
        for (to, copy) in [
            ("folder", "folder/a [1]*.bin"),
            ("folder/", "folder/a [1]*.bin"),
            ("new/er/", "new/er/a [1]*.bin"),
            ("folder/b.bin", "folder/b.bin"),
            ("b.bin", "b.bin"),
        ] {
            let ran = cp(&["a [1]*.bin", to, "--compare", "none"]);
            ran.code_is(0).says(&[" from a [1]*.bin\n", "1 file\n"]);
            ran.never_says(&["server of", "1 source"]);
            assert_copied(&home, "a [1]*.bin", copy);
        }
    }
    // What is told is of the file, and not of what goes with it on the way.
    home.write("four", "four");
    let ran = cp(&["four", "folder", "--json"]);
    let end: serde_json::Value = serde_json::from_str(ran.out().lines().last().unwrap()).unwrap();
    for name in ["size_bytes", "fetched_bytes"] {
        assert_eq!(end[name], 4, "{end}");
    }
    assert_eq!(end["sources"][0]["bytes"], 4, "{end}");
    fs::remove_file(home.path("folder/four")).unwrap();
    fs::remove_file(home.path("four")).unwrap();
    // The same again is seen to be there.
    cp(&["a [1]*.bin", "b.bin"]).code_is(0).says(&["1 file (already up to date)"]);
    cp(&["a [1]*.bin", "b.bin", "--checksum"]).code_is(0).says(&["(already up to date)"]);
    assert_eq!(home.names(), ["a [1]*.bin", "b.bin", "folder", "new"]);
    assert_eq!(home.names_in("folder"), ["a [1]*.bin", "b.bin"]);
    // As with cp: what a link leads to, and several into a folder.
    symlink("a [1]*.bin", home.path("link")).unwrap();
    home.write("second", "second\n");
    cp(&["link", "second", "folder"]).code_is(0);
    assert_copied(&home, "a [1]*.bin", "folder/link");
    assert_copied(&home, "second", "folder/second");
    // Its attributes come with it if they are wanted.
    if crate::support::xattrs::set(&home.path("second"), "user.run", b"7") {
        cp(&["second", "third", "--preserve", "mode,times,xattr"]).code_is(0);
        assert_eq!(
            crate::support::xattrs::all(&home.path("third")),
            [("user.run".to_owned(), b"7".to_vec())]
        );
    }
    // Sparse files stay that.
    let sparse = fs::File::create(home.path("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    cp(&["sparse", "copied"]).code_is(0);
    assert_copied(&home, "sparse", "copied");
    use std::os::unix::fs::MetadataExt as _;
    assert!(home.path("copied").metadata().unwrap().blocks() < 1000);
}

#[test]
fn what_makes_no_sense_is_said_and_nothing_is_done() {
    let home = Home::new();
    home.write("a", "first\n");
    home.write("folder/a/in the way", "");
    symlink("a", home.path("link")).unwrap();
    let cp = |args: &[&str]| -> Ran { home.run(["cp"].iter().chain(args)) };
    cp(&["a", "a"]).code_is(2).says(&["is both source and destination"]);
    cp(&["a", "."]).code_is(2).says(&["is both source and destination"]);
    cp(&["a", "folder"]).code_is(5).says(&["a folder there, a file in the source"]);
    cp(&["a", "a/b"]).code_is(5);
    cp(&["a", "b", "--delete"]).code_is(2).says(&["are for folders"]);
    cp(&["a", "b", "--exclude", "c"]).code_is(2).says(&["are for folders"]);
    cp(&["a", "b.swath-stage", "--dry-run"]).code_is(0);
    let would = cp(&["a", "b", "--dry-run"]);
    assert!(would.code_is(0).out().contains("copy          6 B  b\n"), "{would}");
    assert_eq!(home.names(), ["a", "folder", "link"]);
}

#[test]
fn what_a_tree_has_left_in_the_folder_is_left_alone() {
    // A single file has a stage of its own: the one of a tree, cut short at its last gigabyte, must
    // not begin anew because somebody puts a note beside it; nor do two files wait for each other.
    let home = Home::new();
    home.write("tree/wide.bin", bytes(9, 40 << 20));
    home.write("note", "note\n");
    fs::create_dir(home.path("to")).unwrap();
    let cp = |from: &str, more: &[&str]| {
        home.swath(["cp", "--json", from, "to/"].iter().chain(more)).start()
    };
    let tree = cp("tree/", &["--limit-rate", "2M"]);
    home.wait_for_bytes("to/.swath-stage.swath.part/wide.bin", 3 << 19);
    cp("note", &[]).wait().code_is(0);
    tree.signal(libc::SIGINT);
    tree.wait().code_is(130);
    home.write("note", "another note\n");
    cp("note", &[]).wait().code_is(0);
    assert_eq!(home.read("to/note"), b"another note\n");
    let ran = cp("tree/", &[]).wait();
    let out = ran.code_is(0).out();
    let end: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert!(end["resumed_bytes"].as_u64().unwrap() > 0, "{end}");
    assert_eq!(home.names_in("to"), ["note", "wide.bin"]);
}

#[test]
fn it_goes_on_after_a_kill_and_has_its_name_at_the_end() {
    let home = Home::new();
    home.write("wide.bin", bytes(9, 40 << 20));
    home.write("copy.bin", "as it was\n");
    let cp = |more: &[&str]| {
        home.swath(["cp", "--json", "wide.bin", "copy.bin"].iter().chain(more)).start()
    };
    let first = cp(&["--limit-rate", "2M"]);
    wait_for_commits(&home, ".swath-stage.swath.copy.bin.swath");
    first.signal(libc::SIGKILL);
    first.wait();
    assert_eq!(home.read("copy.bin"), b"as it was\n");
    let ran = cp(&[]).wait();
    let out = ran.code_is(0).out();
    let end: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert!(end["resumed_bytes"].as_u64().unwrap() > 0, "{end}");
    assert!(end["path"].as_str().unwrap().ends_with("copy.bin"), "{end}");
    assert_copied(&home, "wide.bin", "copy.bin");
    assert_eq!(home.names(), ["copy.bin", "wide.bin"]);
}

#[test]
fn it_is_checked_later_by_the_index_that_was_kept() {
    let home = Home::new();
    home.write("a.bin", bytes(3, 3_000_001));
    home.write("tree/b/c.bin", bytes(4, 3_000_001));
    // Copies here keep an index too, of files and of folders, also of what was there already.
    for (from, to) in [("a.bin", "to/"), ("tree/", "to/"), ("tree/", "to/")] {
        let args = ["cp", from, to, "--keep-index", "kept"];
        home.run(args).code_is(0);
        home.run(["verify", "to/", "--index", "kept"]).code_is(0);
    }
    home.write("to/b/c.bin", bytes(5, 3_000_001));
    home.run(["verify", "to/", "--index", "kept"]).code_is(4).says(&["c.bin"]);
}
