//! What an unfinished copy has left, in the way of others: copied with a tree to elsewhere, served,
//! listed, at a destination that is made like another tree.

use std::fs;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::{assert_same, bytes, wait_for_commits};

/// A file whose time is the same wherever it lies.
fn write(home: &Home, name: &str, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(home.write(name, bytes)).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1_600_000_000)).unwrap();
}

/// Run a copy until its journal vouches for some of it, and kill it: it can put nothing in order then.
fn kill_midway(home: &Home, args: &[&str], stage: &str) {
    let journal = stage.strip_suffix(".part").unwrap();
    let copy = home.swath(args.iter().chain(&["--limit-rate", "2M"])).start();
    wait_for_commits(home, journal);
    copy.signal(libc::SIGKILL);
    copy.wait();
}

fn cp_a(home: &Home, from: &str, to: &str) {
    let copied = Command::new("cp").arg("-a").arg(home.path(from)).arg(home.path(to)).status();
    assert!(copied.unwrap().success());
}

#[test]
fn what_was_left_in_a_tree_of_others_does_not_get_into_mine() {
    // Names, sizes and times of both files are the same, and the journal that came with the tree
    // vouched for the bytes: the copy went on from them, said that all had been verified, and ended
    // with 0 and the other tree's bytes under the name.
    let home = Home::new();
    write(&home, "poison/data.bin", &bytes(1, 40 << 20));
    write(&home, "trusted/data.bin", &bytes(2, 40 << 20));
    fs::create_dir_all(home.path("evil/sub")).unwrap();
    let stages = [
        ("poison/", "evil/sub/", "sub/.swath-stage.swath.part"),
        ("poison/", "evil/new/", "new.swath.part"),
        ("poison/data.bin", "evil/", ".swath-stage.swath.data.bin.swath.part"),
    ];
    for (from, to, stage) in stages {
        kill_midway(&home, &["cp", from, to], &format!("evil/{stage}"));
    }
    cp_a(&home, "evil", "victim");
    for (from, to, stage) in stages {
        let (from, to) = (from.replace("poison", "trusted"), to.replace("evil", "victim"));
        let refused = home.run(["cp", &from, &to]);
        let stage = format!("victim/{stage}");
        let mark = stage.replace(".swath.part", ".swath.mark");
        let tells = format!("{mark} belongs to an unfinished copy into another place");
        refused.code_is(5).says(&[&tells, &stage, "to continue, remove"]);
        assert!(home.exists(&format!("{stage}/data.bin")), "what is not its own stays");
        for end in ["", ".part", ".mark", ".index"] {
            let path = home.path(stage.replace(".swath.part", &format!(".swath{end}")));
            fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).unwrap();
        }
        let copied = home.run(["cp", &from, &to]);
        copied.code_is(0).never_says(&["earlier run"]);
    }
    for copy in ["victim/sub/data.bin", "victim/new/data.bin", "victim/data.bin"] {
        assert!(home.read(copy) == home.read("trusted/data.bin"), "{copy}");
    }
    // Where they were left they are gone on with, also after their folder was moved.
    fs::rename(home.path("evil"), home.path("moved")).unwrap();
    for (from, to, _) in stages {
        let copied = home.run(["cp", from, &to.replace("evil", "moved"), "--json"]);
        let out = copied.code_is(0).out();
        let end: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        assert!(end["resumed_bytes"].as_u64().unwrap() > 0, "{to}: {end}");
    }
    assert_same(&home.path("poison"), &home.path("moved/sub"));
}

/// A server in whose folder are two trees and a file that somebody has begun to send, and files of
/// its user's own; `token` is written down.
fn half_sent(home: &Home) -> Served {
    write(home, "tree/wide.bin", &bytes(3, 40 << 20));
    fs::create_dir_all(home.path("store/sub")).unwrap();
    for own in ["sub/own", "run.swath", "run.swath.part", "a.swath.mark", "a.swath.index"] {
        home.write(&format!("store/{own}"), "its user's own");
    }
    let server = home.serve(&["store", "--write", "--plain"]);
    home.write("token", server.token());
    for (from, to, stage) in [
        ("tree/", "new/", "new.swath.part"),
        ("tree/", "sub/", "sub/.swath-stage.swath.part"),
        ("tree/wide.bin", "sub/", "sub/.swath-stage.swath.wide.bin.swath.part"),
    ] {
        let to = server.at(to);
        let args = ["cp", from, &to, "--bearer-file", "token"];
        kill_midway(home, &args, &format!("store/{stage}"));
    }
    server
}

#[test]
fn half_a_tree_that_somebody_sends_is_not_served_and_not_copied() {
    let home = Home::new();
    let server = half_sent(&home);
    let own = ["a.swath.index", "a.swath.mark", "run.swath", "run.swath.part", "sub"];
    home.run(["cp", &server.url, "dl", "--bearer-file", "token"]).code_is(0);
    assert_eq!(home.names_in("dl"), own);
    assert_eq!(home.names_in("dl/sub"), ["own"]);
    // Nor when the folder is copied without a server.
    home.run(["cp", "store/", "here"]).code_is(0);
    assert_eq!(home.names_in("here"), own);
    assert_eq!(home.names_in("here/sub"), ["own"]);
    let get = |path: &str| {
        let (host, token) = (server.address(), server.token());
        let head = format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}");
        let answer = server.raw(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes());
        String::from_utf8_lossy(&answer).into_owned()
    };
    for shape in ["", "?format=json"] {
        let (top, sub) = (get(shape), get(&format!("sub/{shape}")));
        assert!(top.contains("run.swath.part") && sub.contains("own"), "{top}{sub}");
        assert!(!top.contains("new.swath") && !sub.contains(".swath-stage"), "{top}{sub}");
    }
    for path in own.iter().filter(|name| **name != "sub") {
        assert!(get(path).starts_with("HTTP/1.1 200"), "{path}");
    }
    for path in [
        "new.swath",
        "new.swath.mark",
        "new.swath.part",
        "new.swath.part/",
        "new.swath.part/wide.bin",
        "new.swath.part/wide.bin?metalink",
        "new.swath.part/?swath=index",
        "new.swath.part/?swath=index&file=wide.bin",
        "?swath=index&file=new.swath",
        "sub/.swath-stage.swath.part/wide.bin",
        "sub/?swath=index&file=.swath-stage.swath",
    ] {
        assert!(get(path).starts_with("HTTP/1.1 404"), "{path}");
    }
}

#[test]
fn who_removes_what_is_surplus_leaves_what_others_are_sending() {
    let home = Home::new();
    let server = half_sent(&home);
    home.write("e/only", "this");
    let ran = home.run(["cp", "e/", &server.url, "--delete", "--bearer-file", "token"]);
    ran.code_is(0).says(&["5 removed"]);
    assert!(!home.exists("store/run.swath") && !home.exists("store/sub/own"));
    // Those who were sending go on.
    for (from, to) in [("tree/", "new/"), ("tree/", "sub/"), ("tree/wide.bin", "sub/")] {
        let args = ["cp", from, &server.at(to), "--json", "--bearer-file", "token"];
        let out = home.run(args).code_is(0).out();
        let end: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        let went_on = end["resumed_bytes"].as_u64().unwrap() + end["kept_bytes"].as_u64().unwrap();
        assert!(went_on > 0, "{to}: {end}");
    }
    assert_eq!(home.names_in("store"), ["new", "only", "sub"]);
    assert_same(&home.path("tree"), &home.path("store/new"));
}
