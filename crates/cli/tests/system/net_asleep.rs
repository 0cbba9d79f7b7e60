//! Whoever fetches is stopped for longer than `--timeout`, as a laptop is that is closed in the middle
//! of a transfer, and goes on when it wakes up. The sleep takes real time, so this is no hermetic test.

use std::fs;
use std::time::Duration;

use crate::support::trees::{assert_same, bytes};
use crate::support::{Home, Ran};

/// Fetch something into what `grows`, and be asleep twice meanwhile; the server `ends` each time, and
/// another one stands in its place.
fn fetched(args: &dyn Fn(&str) -> Vec<String>, grows: &str, is_encrypted: bool, ends: bool) -> Ran {
    let home = Home::new();
    home.write("tree/wide.bin", bytes(9, 60 << 20));
    home.write("tree/small", "small\n");
    let how = if is_encrypted { &["--tls", "self-signed"][..] } else { &["--plain"] };
    let serve = [&["tree", "--anonymous", "--limit-rate", "20M"][..], how].concat();
    let mut server = home.serve_lasting(&serve);
    let (address, url) = (server.address().to_string(), server.url.clone());
    let more = ["--insecure", "--timeout", "2s"].map(str::to_owned);
    let fetching = home.swath(args(&url).iter().chain(&more)).start();
    for already_bytes in [8 << 20, 32 << 20] {
        home.wait_for_bytes(grows, already_bytes);
        fetching.signal(libc::SIGSTOP);
        if ends {
            drop(server);
            server = home.serve_at(&address, &serve);
        }
        std::thread::sleep(Duration::from_secs(5));
        fetching.signal(libc::SIGCONT);
    }
    let ran = fetching.wait();
    ran.code_is(0);
    match home.exists("copy") {
        true => assert_same(&home.path("tree"), &home.path("copy")),
        false => assert_eq!(home.read("wide.bin"), fs::read(home.path("tree/wide.bin")).unwrap()),
    }
    ran
}

#[test]
fn a_tree_comes_although_its_receiver_was_asleep() {
    // It ended with 3 on waking up: "nothing arrived from any source for 2 s", since the silence had
    // been longer than --timeout, and the connections were gone.
    let copy = |url: &str| ["cp", url, "copy"].map(str::to_owned).to_vec();
    for (is_encrypted, ends) in [(false, true), (true, true), (true, false)] {
        let ran = fetched(&copy, "copy.swath.part/wide.bin", is_encrypted, ends);
        ran.never_says(&["nothing arrived"]);
    }
}

#[test]
fn so_does_a_file() {
    let get = |url: &str| ["get", &format!("{url}wide.bin")].map(str::to_owned).to_vec();
    for is_encrypted in [false, true] {
        fetched(&get, "wide.bin.swath.part", is_encrypted, true).never_says(&["nothing arrived"]);
    }
}
