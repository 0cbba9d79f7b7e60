//! Copies between servers of others, and between hosts that ssh leads to.

use std::fs;

use crate::support::Home;
use crate::support::ssh::{machine, own_folder, running};
use crate::support::trees::bytes;
use crate::support::xrootd::Xrootd;
use crate::third_party_servers::{args, at};

fn with_dataset() -> Home {
    let home = Home::new();
    for (path, seed, length) in [("x.h5", 1, 3_000_001), ("sub/y", 2, 70_000), ("empty", 4, 0)] {
        home.write(&format!("a/ds/{path}"), bytes(seed, length));
    }
    fs::create_dir(home.path("b")).unwrap();
    home
}

fn has_dataset(home: &Home, folder: &str) {
    for path in ["x.h5", "sub/y", "empty"] {
        assert!(
            home.read(&format!("{folder}/{path}")) == home.read(&format!("a/ds/{path}")),
            "{path}"
        );
    }
}

const THROUGH: &str = "the data goes through this machine, at most as fast as its links";

#[test]
fn xrootd_copies_from_xrootd() {
    let home = Home::new();
    let (Some(one), Some(two)) = (Xrootd::start(&home, "x"), Xrootd::start(&home, "y")) else {
        return;
    };
    home.write("x/data/ds/x.h5", bytes(1, 3_000_001));
    let cp = |from: &str, to: &str, more: &[&str]| {
        let (from, to) = (format!("{}{from}", one.url), format!("{}{to}", two.url));
        let args = ["cp", &from, &to, "--ca", "ca/ca.pem"];
        home.swath(args.iter().chain(more)).limit(WHEN_XROOTD_HANGS).run()
    };
    let copied = cp("ds/x.h5", "new/y.h5", &[]);
    copied.code_is(0).says(&["adler32, computed by the server"]);
    assert!(home.read("y/data/new/y.h5") == bytes(1, 3_000_001));
    cp("ds/x.h5", "new/", &["--json"]).code_is(0);
    assert!(home.read("y/data/new/x.h5") == bytes(1, 3_000_001));
    let through = cp("ds/x.h5", "through", &["--through-here"]);
    through.code_is(0).says(&["adler32, computed by the server"]);
    assert!(home.read("y/data/through") == bytes(1, 3_000_001));
    let missing = cp("ds/none", "none", &[]);
    missing.code_is(7).says(&["404"]);
    assert!(!home.exists("y/data/none"));
    // Folders go file by file.
    home.write("x/data/ds/sub/deep/y z", bytes(2, 70_000));
    home.write("x/data/ds/empty", "");
    cp("ds/", "tree/", &[]).code_is(0).says(&["3 files"]);
    cp("ds", "trees/", &["--exclude", "*.h5"]).code_is(0);
    for folder in ["y/data/tree", "y/data/trees/ds"] {
        assert!(home.read(&format!("{folder}/sub/deep/y z")) == bytes(2, 70_000), "{folder}");
        assert_eq!(home.exists(&format!("{folder}/x.h5")), folder.ends_with("tree"));
    }
    let davs = |url: &str| url.replace("https://", "davs://");
    let (from, to) = (davs(&one.url) + "ds/x.h5", one.url.replace("https:", "root:") + "/by-root");
    home.run(["cp", &from, &to, "--ca", "ca/ca.pem"]).code_is(0);
    assert!(home.read("x/data/by-root") == bytes(1, 3_000_001));
}

/// One of the two is a server of swath.
#[test]
fn xrootd_and_swath_copy_from_one_another() {
    let home = Home::new();
    let Some(xrootd) = Xrootd::start(&home, "x") else { return };
    home.write("x/data/x.h5", bytes(1, 3_000_001));
    home.write("b/y.h5", bytes(2, 2_000_001));
    let tls = ["--tls-cert", "x/host.pem", "--tls-key", "x/host.key"];
    let from = ["--third-party-from", "127.0.0.0/8", "--third-party-ca", "ca/ca.pem"];
    let b = home.serve(&[&["b", "--write", "--third-party"][..], &from, &tls].concat());
    let here = |path: &str| at(&b, path).replace("127.0.0.1", "localhost");
    let there = |path: &str| format!("{}{path}", xrootd.url);
    let cp = |from: &str, to: &str| {
        home.swath(["cp", from, to, "--ca", "ca/ca.pem"]).limit(WHEN_XROOTD_HANGS).run()
    };
    cp(&there("x.h5"), &here("x.h5")).code_is(0);
    assert!(home.read("b/x.h5") == bytes(1, 3_000_001));
    // XRootD must not have the token, and swath sends the file itself.
    let pushed = cp(&here("y.h5"), &there("y.h5"));
    pushed.code_is(0);
    assert!(!pushed.all().contains(THROUGH), "{}", pushed.all());
    assert!(home.read("x/data/y.h5") == bytes(2, 2_000_001));
}

/// Servers run on both hosts for the time of the copy, and end with it.
#[test]
fn hosts_reached_by_ssh_copy_from_one_another() {
    let home = with_dataset();
    let Some(far) = machine(&home, &own_folder()) else { return };
    let here = |path: &str| home.path(path).display().to_string();
    let cp = |from: &str, to: &str, more: &[&str]| {
        home.run(["cp", from, to, "--ssh", &far.ssh].iter().chain(more).copied())
    };
    let (from, to) = (format!("box:{}/", here("a/ds")), format!("box:{}/", here("b/copy")));
    let copied = cp(&from, &to, &[]);
    copied.code_is(0).says(&["3 files", "verified by the checksum of every block", &from]);
    copied.never_says(&[THROUGH]);
    has_dataset(&home, "b/copy");
    // A folder keeps its name; a file may get one.
    cp(&format!("box:{}", here("a/ds")), &to, &[]).code_is(0);
    has_dataset(&home, "b/copy/ds");
    let file = format!("box:{}", here("a/ds/x.h5"));
    cp(&file, &format!("box:{}", here("b/named")), &[]).code_is(0);
    cp(&file, &format!("box:{}", here("b/copy")), &[]).code_is(0);
    cp(&file, &format!("box:{}/", here("b/new")), &["--through-here"]).code_is(0);
    for path in ["b/named", "b/copy/x.h5", "b/new/x.h5"] {
        assert!(home.read(path) == bytes(1, 3_000_001), "{path}");
    }
    // The destination cannot find the source, which only ssh leads to.
    let behind = cp(&from.replace("box", "behind"), &format!("box:{}/", here("b/two")), &[]);
    behind.code_is(0).says(&[THROUGH]);
    has_dataset(&home, "b/two");
    // One of them is a server.
    let a = home.serve(&["a"]);
    let mut command = args(&[&a], &[at(&a, "ds/"), format!("box:{}/", here("b/three"))]);
    command.extend(["--ssh".to_owned(), far.ssh.clone()]);
    home.run(&command).code_is(0).never_says(&[THROUGH]);
    has_dataset(&home, "b/three");
    home.run(command.iter().map(String::as_str).chain(["--detach"])).code_is(2).says(&["--detach"]);
    assert_eq!(running(&home), Vec::<String>::new(), "everything has ended");
}

/// Some of its own copies do not begin; after two minutes it gives them up, and another way is taken.
const WHEN_XROOTD_HANGS: std::time::Duration = std::time::Duration::from_secs(300);
