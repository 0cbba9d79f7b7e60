//! `kill -9` at random instants of copies with something of everything: with extended attributes, with
//! folders that nobody may write into, in both directions.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::process::Command;
use std::time::Duration;

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::{assert_same, bytes, plant};
use crate::support::xattrs::{ALL, assert_same_xattrs, planted, set};

#[test]
fn a_kill_at_any_instant_costs_little() {
    let home = Home::new();
    plant(&home);
    home.write("tree/wide.bin", bytes(9, 24 << 20));
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let args = ["cp", "--quiet", "--limit-rate", "20M", &server.url, "copy"];
    let mut killed = 0;
    for round in 0..40 {
        let mut child = home.swath(args).command().spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100 + 37 * (round % 23)));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
        assert!(!home.exists("copy"), "no name before the end");
    }
    home.run(args).code_is(0);
    assert!(killed > 2, "{killed}");
    assert_same(&home.path("tree"), &home.path("copy"));
    assert_eq!(home.names(), ["copy", "tree"]);
}

/// A server of `store` that takes trees, and its token in the file `token`.
fn taking(home: &Home) -> Served {
    fs::create_dir_all(home.path("store")).unwrap();
    let server = home.serve_lasting(&["store", "--write", "--plain"]);
    home.write("token", server.token());
    server
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
fn a_copy_that_was_killed_has_them_too() {
    let home = Home::new();
    if !planted(&home) {
        return;
    }
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let args = [ALL[0], ALL[1], ALL[2], &server.url];
    for round in 0..6u64 {
        let copy = format!("copy{round}");
        let mut child = home.swath(args.into_iter().chain([copy.as_str()])).start();
        // At any instant.
        std::thread::sleep(Duration::from_millis(20 + 25 * round));
        if !child.is_over() {
            child.signal(9);
        }
        drop(child);
        // What it left may have other ones by now.
        assert!(set(&home.path("tree/large.bin"), "user.round", round.to_string().as_bytes()));
        home.run(args.into_iter().chain([copy.as_str()])).code_is(0);
        assert_same_xattrs(&home.path(&copy), &home.path("tree"));
        assert_same(&home.path("tree"), &home.path(&copy));
    }
}

fn chmod(home: &Home, path: &str, mode: u32) {
    fs::set_permissions(home.path(path), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn folders_that_nobody_may_write_into_are_brought_up_to_date() {
    let Some(home) = Home::of_nobody() else { return };
    plant(&home);
    for n in 0..400 {
        home.write(&format!("tree/closed/{}/{n}", n % 20), bytes(n, 3000));
    }
    home.hand_over();
    let close = |mode| {
        for n in 0..20 {
            chmod(&home, &format!("tree/closed/{n}"), mode);
        }
        chmod(&home, "tree/closed", mode);
    };
    close(0o555);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    home.run(["cp", &server.url, "copy"]).code_is(0);
    assert_same(&home.path("tree"), &home.path("copy"));
    for round in 0..6u64 {
        close(0o755);
        for n in 0..400 {
            let file = home.path(format!("tree/closed/{}/{n}", n % 20));
            let file = fs::File::options().write(true).open(file).unwrap();
            file.write_all_at(&bytes(n * 7 + round as u32, 3000), 0).unwrap();
        }
        home.write(&format!("tree/closed/3/new {round}"), "new\n");
        home.hand_over();
        close(0o555);
        let mut child = home.swath(["cp", "-q", &server.url, "copy"]).start();
        // At any instant, the moves among them.
        std::thread::sleep(Duration::from_millis(60 + 45 * round));
        if !child.is_over() {
            child.signal(9);
        }
        drop(child);
        home.run(["cp", &server.url, "copy"]).code_is(0);
        assert_same(&home.path("tree"), &home.path("copy"));
    }
    // So that whoever runs this may remove it.
    Command::new("chmod").args(["-R", "u+rwX"]).arg(home.work()).status().unwrap();
}
