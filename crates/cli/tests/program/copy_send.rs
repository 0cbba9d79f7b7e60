//! `swath cp` to a server: whole trees in the other direction.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::{assert_same, bytes, plant};

/// A server of `store` that takes trees, and its token in the file `token`.
fn taking(home: &Home) -> Served {
    fs::create_dir_all(home.path("store")).unwrap();
    let server = home.serve(&["store", "--write", "--plain"]);
    home.write("token", server.token());
    server
}

#[test]
fn a_tree_is_sent_as_it_is() {
    let home = Home::new();
    plant(&home);
    let server = taking(&home);
    let sent = home.run(["cp", "tree/", &server.at("new/"), "--bearer-file", "token"]);
    sent.code_is(0).says(&["308 files", "verified by the checksum of every block"]);
    assert_same(&home.path("tree"), &home.path("store/new"));
    // Without '/' at its end it is the folder itself.
    home.run(["cp", "tree", &server.url, "--bearer-file", "token", "--quiet"]).code_is(0);
    assert_same(&home.path("tree"), &home.path("store/tree"));
    // Into what is there.
    home.write("more/deep/added", "added\n");
    home.run(["cp", "more/", &server.at("new/"), "--bearer-file", "token"]).code_is(0);
    assert_eq!(home.read("store/new/deep/added"), b"added\n");
    assert_eq!(home.read("store/new/large.bin"), bytes(1, 5_000_003));
}

#[test]
fn over_tls_it_is_the_same() {
    let home = Home::new();
    plant(&home);
    fs::create_dir(home.path("store")).unwrap();
    let server = home.serve(&["store", "--write"]);
    home.write("token", server.token());
    let line = server.words.lines().find(|line| line.starts_with("fingerprint ")).unwrap();
    let print = line.split_whitespace().last().unwrap();
    let to = server.at("new/");
    let args = ["cp", "tree/", &to, "--bearer-file", "token", "--fingerprint", print];
    home.run(args).code_is(0);
    assert_same(&home.path("tree"), &home.path("store/new"));
}

#[test]
fn only_who_may_write_does() {
    let home = Home::new();
    home.write("tree/file", "x\n");
    fs::create_dir(home.path("store")).unwrap();
    home.write("tokens", "reader\nwriter write\n");
    home.write("reader", "reader");
    home.write("writer", "writer");
    let server = home.serve(&["store", "--write", "--plain", "--token-file", "tokens"]);
    let to = server.at("new/");
    home.run(["cp", "tree/", &to]).code_is(7).says(&["401"]);
    home.run(["cp", "tree/", &to, "--bearer-file", "reader"])
        .code_is(5)
        .says(&["403", "this token opens reading alone"]);
    assert!(!home.exists("store/new"));
    home.run(["cp", "tree/", &to, "--bearer-file", "writer"]).code_is(0);
    assert_eq!(home.read("store/new/file"), b"x\n");
    let reading = home.serve(&["store", "--plain"]);
    home.write("token", reading.token());
    let refused = home.run(["cp", "tree/", &reading.at("other/"), "--bearer-file", "token"]);
    refused.code_is(5).says(&["403", "started without --write"]);
    home.write("readers", "reader\n");
    home.run(["serve", "store", "--write", "--token-file", "readers"]).code_is(6).says(&["write"]);
}

#[test]
fn no_way_leads_out_of_what_is_served() {
    let home = Home::new();
    home.write("tree/file", "x\n");
    fs::create_dir(home.path("outside")).unwrap();
    let server = taking(&home);
    symlink("../outside", home.path("store/link")).unwrap();
    symlink(home.path("outside"), home.path("store/absolute")).unwrap();
    home.write("store/file", "in the way\n");
    for to in ["link/", "absolute/", "link/below/", "absolute/below/", "file/", "file/below/"] {
        let sent = home.run(["cp", "tree/", &server.at(to), "--bearer-file", "token"]);
        assert_ne!(sent.code(), 0, "{to}");
    }
    // A link that arrives with a tree is no way out for the next one.
    symlink("../../outside", home.path("tree/way")).unwrap();
    home.run(["cp", "tree/", &server.at("new/"), "--bearer-file", "token"]).code_is(0);
    home.write("second/way/file", "y\n");
    let sent = home.run(["cp", "second/", &server.at("new/"), "--bearer-file", "token"]);
    assert_ne!(sent.code(), 0);
    assert_eq!(fs::read_dir(home.path("outside")).unwrap().count(), 0);
}

#[test]
fn after_a_kill_of_either_side_the_same_command_goes_on() {
    let home = Home::new();
    plant(&home);
    home.write("tree/wide.bin", bytes(9, 150 << 20));
    let mut server = taking(&home);
    let address = server.address().to_string();
    let mut token = "token".to_owned();
    let mut killed = 0;
    for round in 0..8u64 {
        let to = server.at("new/");
        let args = ["cp", "--quiet", "tree/", &to, "--bearer-file", &token];
        let mut child = home.swath(args).command().spawn().unwrap();
        std::thread::sleep(Duration::from_millis(150 + 130 * (round % 5)));
        if child.try_wait().unwrap().is_some_and(|status| status.success()) {
            break;
        }
        killed += 1;
        if round % 2 == 0 {
            child.kill().unwrap();
        } else {
            server.signal(9);
            drop(server);
            server = home.serve_at(&address, &["store", "--write", "--plain"]);
            token = format!("token-{round}");
            home.write(&token, server.token());
        }
        let _ = child.wait();
        // No name before the end: it has one if all was there when the kill came.
        if home.exists("store/new") {
            assert_same(&home.path("tree"), &home.path("store/new"));
            break;
        }
    }
    let to = server.at("new/");
    let last = home.run(["cp", "tree/", &to, "--bearer-file", &token]);
    last.code_is(0);
    assert!(killed > 0);
    assert_same(&home.path("tree"), &home.path("store/new"));
    assert_eq!(fs::read_dir(home.path("store")).unwrap().count(), 1);
}

#[test]
fn what_would_be_sent_and_what_goes() {
    let home = Home::new();
    plant(&home);
    let server = taking(&home);
    let to = server.at("new/");
    let cp = |more: &[&str]| {
        let args = [&["cp"], more, &["tree/", &to, "--bearer-file", "token"]].concat();
        home.run(args)
    };
    let told = cp(&["-n"]);
    told.code_is(0);
    assert!(String::from_utf8_lossy(&told.stdout).contains("  large.bin\n"), "{told}");
    assert!(!home.exists("store/new"));
    cp(&[]).code_is(0);
    home.write("store/new/surplus/file", "x\n");
    let told = cp(&["-n", "--delete"]);
    let lines = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    cp(&["--delete"]).code_is(0).says(&["308 of the files already up to date)", "2 removed"]);
    assert_same(&home.path("tree"), &home.path("store/new"));
}

#[test]
fn folders_above_the_destination_are_made_there_as_they_are_here() {
    // A server refused with 404 what is done without a word where the destination is here.
    let home = Home::new();
    plant(&home);
    home.write("token", "secret");
    home.write("tokens", "secret write\nreader\n");
    home.write("reader", "reader");
    fs::create_dir(home.path("store")).unwrap();
    let server = home.serve(&["store", "--write", "--plain", "--token-file", "tokens"]);
    let to = server.at("a/b%20c/d/");
    let args = |token: &'static str| ["cp", "tree/", &to, "--bearer-file", token];
    // Neither a plan nor somebody who may only read changes anything.
    let plan = home.run(args("token").iter().chain(&["-n", "--delete"]));
    plan.code_is(0);
    assert!(plan.out().lines().count() > 300 && !plan.out().contains("remove"), "{plan}");
    home.run(args("reader")).code_is(5).says(&["403"]);
    assert_eq!(home.names_in("store"), [""; 0]);
    home.run(args("token")).code_is(0);
    assert_same(&home.path("tree"), &home.path("store/a/b c/d"));
    home.run(args("token")).code_is(0).says(&["308 of the files already up to date)"]);
    assert_eq!(home.names_in("store/a/b c"), ["d"]);
    // Without '/' at its end the folder itself, and the same from a server and here.
    home.run(["cp", "tree", &server.at("x/y"), "--bearer-file", "token"]).code_is(0);
    assert_same(&home.path("tree"), &home.path("store/x/y/tree"));
    home.run(["cp", &server.at("x/y/tree/"), "here/e/f/", "--bearer-file", "token"]).code_is(0);
    home.run(["cp", "here/e/f/", "here/g/h/"]).code_is(0);
    assert_same(&home.path("tree"), &home.path("here/g/h"));
    // What is in the way is said.
    let refused =
        home.run(["cp", "tree/", &server.at("x/y/tree/empty/z/"), "--bearer-file", "token"]);
    refused.code_is(5).says(&["409", "something else than a folder is in the way"]);
}
