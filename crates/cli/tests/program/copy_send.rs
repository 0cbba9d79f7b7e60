//! `swath cp` to a server: whole trees in the other direction.

use std::fs;

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::{assert_same, plant};

/// A server of `store` that takes trees, and its token in the file `token`.
fn taking(home: &Home) -> Served {
    fs::create_dir_all(home.path("store")).unwrap();
    let server = home.serve_lasting(&["store", "--write", "--plain"]);
    home.write("token", server.token());
    server
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
