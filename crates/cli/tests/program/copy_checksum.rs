//! `swath cp --checksum`: what is there already is compared by content, in both directions.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use crate::support::Home;
use crate::support::trees::{assert_same, bytes, plant};
use crate::support::ways::Way;

fn copy_without_times(home: &Home, to: &str) {
    let status = Command::new("cp").args(["-r", "tree", to]).current_dir(home.work()).status();
    assert!(status.unwrap().success());
}

/// Other bytes, with the same size and time.
fn spoil(path: &Path, at: u64) {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(b"spoilt", at).unwrap();
    file.set_modified(time).unwrap();
}

fn fetched_bytes(ran: &crate::support::Ran) -> u64 {
    let events = String::from_utf8_lossy(&ran.stdout).into_owned();
    let end: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    end["fetched_bytes"].as_u64().unwrap()
}

#[test]
fn files_of_another_time_and_the_same_content_are_not_copied() {
    let home = Home::new();
    plant(&home);
    copy_without_times(&home, "copy");
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let planned = home.run(["cp", "-n", "--checksum", "--delete", &server.url, "copy"]);
    planned.code_is(0);
    let ran = home.run(["cp", "--json", "--checksum", &server.url, "copy"]);
    ran.code_is(0);
    assert_eq!(fetched_bytes(&ran), 0, "{ran}");
    assert_eq!(String::from_utf8_lossy(&planned.stdout), "");
    assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn files_of_the_same_time_and_other_content_are_copied() {
    let home = Home::new();
    plant(&home);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    home.run(["cp", &server.url, "copy"]).code_is(0);
    spoil(&home.path("copy/large.bin"), 3_000_000);
    spoil(&home.path("copy/many/3/3.dat"), 1000);
    // Where the tree has a hole.
    spoil(&home.path("copy/sparse"), 2 << 20);
    home.run(["cp", &server.url, "copy"])
        .code_is(0)
        .says(&["308 of the files already up to date)"]);
    let told = home.run(["cp", "-n", "--compare", "checksum", &server.url, "copy"]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    for path in ["large.bin", "many/3/3.dat", "sparse"] {
        assert!(told.lines().any(|line| line.ends_with(&format!("  {path}"))), "{path}: {told}");
    }
    let ran = home.run(["cp", "--json", "--checksum", &server.url, "copy"]);
    ran.code_is(0);
    // With what shares a block with them.
    assert!((5_000_003..9_000_000).contains(&fetched_bytes(&ran)), "{ran}");
    assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn a_file_that_is_one_hole_is_compared_too() {
    // No block is of it, so each run made it anew.
    let home = Home::new();
    fs::create_dir(home.path("tree")).unwrap();
    fs::File::create(home.path("tree/hole")).unwrap().set_len(10_000_001).unwrap();
    let run = |more: &[&str]| {
        let ran = home.run(["cp", "tree/", "copy", "--checksum"].iter().chain(more));
        ran.code_is(0);
        String::from_utf8_lossy(&ran.stdout).into_owned() + &ran.stderr
    };
    run(&[]);
    assert!(run(&["-n"]).contains("nothing to do"));
    let told = run(&[]);
    assert!(!told.contains("made"), "{told}");
    spoil(&home.path("copy/hole"), 5_000_000);
    assert!(run(&["-n"]).contains("  hole"));
    run(&[]);
    assert!(fs::read(home.path("copy/hole")).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn a_large_file_stays_whatever_becomes_of_its_neighbours() {
    // It was fetched as a whole for the block that it shares with a file of five bytes.
    for (way, home) in Way::all() {
        home.write("tree/a", "small");
        home.write("tree/b", bytes(1, 6_000_000));
        home.write("tree/c", bytes(2, 700_000));
        home.write("tree/d", bytes(3, 5_000_000));
        way.sync(&home, &[]).code_is(0);
        spoil(&home.path("copy/a"), 0);
        fs::remove_file(home.path("copy/c")).unwrap();
        let inodes = || ["b", "d"].map(|name| inode(&home.path("copy").join(name)));
        let before = inodes();
        assert_eq!(way.plan(&home, &["--checksum"]), ["copy a", "copy c"]);
        let fetched = way.fetched_bytes(&home, &["--checksum"]);
        assert!(fetched < 1_800_000, "{fetched}");
        assert_eq!(inodes(), before);
        assert_same(&home.path("tree"), &home.path("copy"));
        // Where its own end is another one it does not stay.
        spoil(&home.path("copy/b"), 5_999_990);
        assert_eq!(way.plan(&home, &["--checksum"]), ["copy b"]);
        way.sync(&home, &["--checksum"]).code_is(0);
        assert_same(&home.path("tree"), &home.path("copy"));
    }
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn a_receiver_compares_what_it_has() {
    let home = Home::new();
    plant(&home);
    fs::create_dir(home.path("store")).unwrap();
    copy_without_times(&home, "store/new");
    let server = home.serve(&["store", "--write", "--plain"]);
    home.write("token", server.token());
    let to = server.at("new/");
    let args = ["cp", "--json", "--checksum", "tree/", &to, "--bearer-file", "token"];
    let ran = home.run(args);
    ran.code_is(0);
    assert_eq!(fetched_bytes(&ran), 0, "{ran}");
    assert_same(&home.path("tree"), &home.path("store/new"));
    let before = SystemTime::UNIX_EPOCH;
    spoil(&home.path("store/new/page.bin"), 5000);
    fs::File::open(home.path("store/new/many/2/2.dat")).unwrap().set_modified(before).unwrap();
    let ran = home.run(args);
    ran.code_is(0);
    assert!((1_000_000..2_500_000).contains(&fetched_bytes(&ran)), "{ran}");
    assert_same(&home.path("tree"), &home.path("store/new"));
}
