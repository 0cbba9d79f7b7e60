//! `swath cp`: what its places mean, and copies between two folders here.

use std::fs;

use crate::support::Home;
use crate::support::trees::{assert_same, bytes, plant, wait_for_commits};

#[test]
fn a_folder_without_a_slash_keeps_its_name() {
    let home = Home::new();
    plant(&home);
    home.write("more/run 8/file", "of run 8\n");
    let (one, two) = (
        home.serve(&["tree", "more", "--anonymous", "--plain"]),
        home.serve(&["more", "--anonymous", "--plain"]),
    );
    home.run(["cp", &one.at("tree"), "copy"]).code_is(0);
    assert_same(&home.path("tree"), &home.path("copy/tree"));
    // Several are copied one after another; one that is not there does not hold up the others.
    let places = [&one.at("missing"), &two.at("run%208"), &one.at("tree"), "all"];
    let ran = home.run(["cp"].iter().chain(&places));
    ran.code_is(7).says(&["404"]);
    assert_eq!(home.read("all/run 8/file"), b"of run 8\n");
    assert_same(&home.path("tree"), &home.path("all/tree"));
    home.run(["cp", &one.at("tree"), &two.at("run%208/"), "copy"])
        .code_is(2)
        .says(&["either all sources end in '/' (replicas of one tree) or none does (copied one after another)"]);
}

#[test]
fn what_is_done_anyway_may_be_asked_for() {
    // Hands that know rsync and scp type these.
    let home = Home::new();
    plant(&home);
    let server = home.serve(&["tree", "--anonymous", "--tls", "self-signed"]);
    let options = ["-r", "--resume", "--delete-after", "--compare", "size,mtime", "--insecure"];
    home.run(["cp"].iter().chain(&options).chain(&[&*server.at(""), "copy"])).code_is(0);
    assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn a_single_file_is_fetched_from_any_server() {
    let home = Home::new();
    let content = swath_netlab::faulty::Content::random(1, 3_000_001);
    let web = swath_netlab::faulty::Server::builder()
        .file("/x/file.bin", content.clone())
        .start()
        .unwrap();
    let url = web.url("/x/file.bin");
    home.run(["cp", &url, "new/"]).code_is(0);
    home.run(["cp", &url, "other.bin"]).code_is(0);
    fs::create_dir(home.path("there")).unwrap();
    home.write("there/file.bin", "older\n");
    home.run(["cp", &url, "there"]).code_is(0);
    for path in ["new/file.bin", "other.bin", "there/file.bin"] {
        assert!(home.read(path) == content.read(0, 3_000_001), "{path}");
    }
    home.run(["cp", "-n", &url, "there"]).code_is(2).says(&["not a folder on a swath server"]);
    home.run(["cp", "other.bin", "there"]).code_is(0);
    assert!(home.read("there/other.bin") == content.read(0, 3_000_001));
}

#[test]
fn between_two_folders_here_all_is_as_with_a_server() {
    let home = Home::new();
    plant(&home);
    let ran = home.run(["cp", "tree/", "copy/"]);
    ran.code_is(0).says(&["308 files", "verified by the checksum of every block"]);
    assert!(!ran.stderr.contains("dialled"), "{ran}");
    assert_same(&home.path("tree"), &home.path("copy"));
    home.run(["cp", "tree/", "copy/"]).code_is(0).says(&["308 of the files already up to date)"]);
    home.write("copy/surplus", "x\n");
    fs::remove_file(home.path("copy/page.bin")).unwrap();
    let told = home.run(["cp", "-n", "--delete", "tree/", "copy/"]);
    told.code_is(0);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("page.bin") && told.contains("surplus"), "{told}");
    home.run(["cp", "--delete", "--checksum", "tree/", "copy/"]).code_is(0).says(&["1 removed"]);
    assert_same(&home.path("tree"), &home.path("copy"));
    home.run(["cp", "tree", "copy", "--include", "page.bin"]).code_is(0);
    assert_eq!(home.read("copy/tree/page.bin"), home.read("tree/page.bin"));
    assert!(!home.exists("copy/tree/large.bin"));
    let json = home.run(["cp", "--json", "tree/", "other/"]);
    json.code_is(0);
    assert!(!String::from_utf8_lossy(&json.stdout).contains("dialled"), "{json}");
}

#[test]
fn a_copy_here_that_was_cut_short_goes_on() {
    let home = Home::new();
    home.write("tree/wide.bin", bytes(9, 40 << 20));
    let child = home.swath(["cp", "--limit-rate", "2M", "tree/", "copy/"]).start();
    wait_for_commits(&home, "copy.swath");
    child.signal(libc::SIGKILL);
    child.wait();
    assert!(!home.exists("copy"));
    let ran = home.run(["cp", "--json", "tree/", "copy/"]);
    ran.code_is(0);
    let events = String::from_utf8_lossy(&ran.stdout).into_owned();
    let end: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert!(end["resumed_bytes"].as_u64().unwrap() > 0, "{end}");
    assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn a_copy_into_itself_is_refused() {
    let home = Home::new();
    home.write("tree/sub/file", "x\n");
    home.run(["cp", "tree/", "tree/sub/new/"]).code_is(2).says(&["is inside the source tree"]);
    home.run(["cp", "tree/", "tree/"]).code_is(2);
    home.run(["cp", "--delete", "tree/sub/", "tree/"])
        .code_is(2)
        .says(&["--delete would remove the source"]);
    home.run(["cp", "tree/sub/", "tree/"]).code_is(0);
    assert_eq!(home.read("tree/file"), b"x\n");
}

#[test]
fn one_of_several_that_is_not_there_holds_up_no_other() {
    // From here nothing was copied then; from other machines the rest was.
    let home = Home::new();
    home.write("one/file", "1\n");
    home.write("two", "2\n");
    let several = ["cp", "one", "none", "two", "copy/", "--json"];
    let ran = home.run(several);
    ran.code_is(6).says(&["none: No such file or directory"]);
    let out = ran.out();
    let of = |event: &str| out.matches(&format!("{{\"event\":\"{event}\"")).count();
    assert_eq!((of("finished"), of("failed")), (2, 1), "{ran}");
    assert_eq!(home.names_in("copy"), ["one", "two"]);
    // It is one of several still: into a folder, and not under its name.
    home.run(["cp", "two", "none", "other"]).code_is(6);
    assert_eq!(home.names_in("other"), ["two"]);
    home.run(["cp", "-n", "two", "none", "another"]).code_is(6);
    home.run(["cp", "none", "none", "another"]).code_is(6);
    assert!(!home.exists("another"));
    // Nor does a second one of the same name.
    home.write("three/two", "3\n");
    let ran = home.run(["cp", "two", "three/two", "one", "another"]);
    ran.code_is(6).says(&["three/two: an earlier source is also called 'two'"]);
    assert_eq!(home.names_in("another"), ["one", "two"]);
    assert_eq!(home.read("another/two"), b"2\n");
}
