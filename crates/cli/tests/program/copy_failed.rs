//! What programs are told of a copy that failed: `failed` is the last event, and true.

use std::fs;

use crate::support::trees::bytes;
use crate::support::{Home, Ran};
use serde_json::Value;

/// The last event.
fn failed(ran: &Ran) -> Value {
    let out = ran.out();
    let last = serde_json::from_str(out.lines().last().unwrap_or_default());
    let last: Value = last.unwrap_or_else(|error| panic!("{error}:\n{ran}"));
    assert_eq!(last["event"], "failed", "{ran}");
    assert!(last["error"].is_string() && last["path"].is_string(), "{ran}");
    last
}

fn resumed(ran: &Ran) -> u64 {
    let out = ran.out();
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "finished", "{ran}");
    last["resumed_bytes"].as_u64().unwrap()
}

fn home() -> Home {
    let home = Home::new();
    home.write("tree/wide.bin", bytes(9, 24 << 20));
    home.write("tree/a.bin", bytes(7, 1 << 20));
    home
}

#[test]
fn a_command_that_is_refused_at_once_has_failed_too() {
    // There was no event at all, and a source that was not there was a wrong command line (2) with '/'
    // at its end, and a source that cannot be read (6) without.
    let home = Home::new();
    home.write("tree/file", "x\n");
    let server = "http://user:secret@127.0.0.1:1/to/";
    for (args, code, path) in [
        (&["none/", "copy/"][..], 6, "copy/"),
        (&["none", "copy/"], 6, "copy/"),
        (&["none/", server], 6, "http://127.0.0.1:1/to/"),
        (&["none", server], 6, "http://127.0.0.1:1/to/"),
        (&["none/", "box:to/"], 6, "box:to/"),
        (&["tree/", "tree/sub/"], 2, "tree/sub/"),
        (&["tree/", "copy/", "--include", ""], 2, "copy/"),
        (&["tree/", "copy/", "--report", "none/page.html"], 5, "copy/"),
    ] {
        let ran = home.run(["cp", "--json"].iter().chain(args));
        let end = failed(ran.code_is(code));
        assert_eq!(end["path"], path, "{ran}");
        // Nobody has looked what an earlier run left there.
        assert!(end.get("kept_bytes").is_none(), "{ran}");
        assert_eq!(ran.out().lines().count(), 1, "{ran}");
    }
    assert_eq!(home.names(), ["tree"]);
}

#[test]
fn what_is_not_all_there_is_not_proved() {
    // The summary said `"proved":true` of 0 bytes, and `path` stood in it alone.
    let home = home();
    let server = home.serve(&["tree", "--plain", "--anonymous"]);
    for from in ["tree/", &server.url] {
        let copy = ["cp", from, "copy", "--json"];
        let copying = home.swath(copy.iter().chain(&["--limit-rate", "1M"])).start();
        home.wait_for_bytes("copy.swath.part/wide.bin", 1 << 20);
        copying.signal(libc::SIGINT);
        let ran = copying.wait();
        let end = failed(ran.code_is(130));
        assert_eq!((&end["path"], &end["summary"]["proved"]), (&"copy".into(), &false.into()));
        let ran = home.run(copy);
        assert_eq!(end["kept_bytes"], resumed(ran.code_is(0)), "{ran}");
        fs::remove_dir_all(home.path("copy")).unwrap();
    }
}

#[test]
fn what_a_receiver_keeps_is_told_if_it_has_said() {
    // Of whatever broke off, `"kept_bytes":0` was said, and the next run went on from 13 MB.
    let home = home();
    fs::create_dir(home.path("store")).unwrap();
    home.write("token", "secret");
    home.write("tokens", "secret write\n");
    let serve = ["store", "--write", "--plain", "--token-file", "tokens"];
    let server = home.serve_lasting(&serve);
    let (address, to) = (server.address().to_string(), server.at("new/"));
    let mut server = Some(server);
    let send = |more: &[&str]| {
        let args = ["cp", "tree/", &to, "--json", "--bearer-file", "token"];
        home.swath(args.iter().chain(more)).start()
    };
    for is_server_gone in [false, true] {
        let timeout = if is_server_gone { "5s" } else { "60s" };
        let sending = send(&["--limit-rate", "1M", "--timeout", timeout]);
        home.wait_for_bytes("store/new.swath.part/wide.bin", 1 << 20);
        match is_server_gone {
            false => sending.signal(libc::SIGINT),
            true => drop(server.take()),
        }
        let ran = sending.wait();
        let end = failed(ran.code_is(if is_server_gone { 3 } else { 130 }));
        assert!(end.get("kept_bytes").is_none(), "{ran}");
        assert_eq!(end["path"], to.as_str(), "{ran}");
        server.get_or_insert_with(|| home.serve_at(&address, &serve));
        assert!(resumed(send(&[]).wait().code_is(0)) > 0);
        fs::remove_dir_all(home.path("store/new")).unwrap();
    }
    // Here the receiver has the last word.
    let sending = send(&["--limit-rate", "4M"]);
    home.wait_for_bytes("store/new.swath.part/wide.bin", 1 << 20);
    home.write("other/none", "");
    for name in ["wide.bin", "a.bin"] {
        fs::hard_link(home.path("tree").join(name), home.path("other").join(name)).unwrap();
    }
    fs::remove_dir_all(home.path("tree")).unwrap();
    let ran = sending.wait();
    let kept = failed(ran.code_is(3))["kept_bytes"].as_u64();
    fs::rename(home.path("other"), home.path("tree")).unwrap();
    let ran = send(&[]).wait();
    assert_eq!(kept, Some(resumed(ran.code_is(0))), "{ran}");
}
