//! A tree that is fetched while its server goes away and comes back: who waits is told of both, as
//! those are who send one.

mod support;

use std::fs;
use std::time::Duration;

use support::trees::{assert_same, bytes};
use support::{Home, Ran};

const SERVE: [&str; 3] = ["tree", "--plain", "--anonymous"];

/// Fetch a tree whose server is away for this time in the middle.
fn fetched(away: Duration, more: &[&str]) -> Ran {
    let home = Home::new();
    fs::create_dir(home.path("tree")).unwrap();
    home.write("tree/wide.bin", bytes(9, 60 << 20));
    home.write("tree/small", "small\n");
    let server = home.serve(&SERVE);
    let address = server.address().to_string();
    let args = ["cp", &server.url, "copy", "--limit-rate", "20M"];
    let copying = home.swath(args.iter().chain(more)).start();
    home.wait_for_bytes("copy.swath.part/wide.bin", 10 << 20);
    drop(server);
    std::thread::sleep(away);
    let _server = home.serve_at(&address, &SERVE);
    let ran = copying.wait();
    ran.code_is(0).never_says(&["left out", "410 Gone"]);
    assert_same(&home.path("tree"), &home.path("copy"));
    ran
}

fn count(ran: &Ran, words: &str) -> usize {
    ran.stderr.lines().filter(|line| line.contains(words)).count()
}

#[test]
fn whoever_fetches_is_told_that_a_server_went_and_came_back() {
    // "source 1 is left out: the server answered 410 Gone" was said of the only source there was,
    // which then brought all the rest, and nothing while it was away.
    for away in [Duration::ZERO, Duration::from_secs(4)] {
        let ran = fetched(away, &[]);
        assert_eq!(count(&ran, "; it is asked again, for up to"), 1, "{ran}");
        assert_eq!(count(&ran, "it is there again after"), 1, "{ran}");
    }
}

#[test]
fn programs_hear_of_no_source_that_is_lost() {
    let ran = fetched(Duration::from_secs(2), &["--json"]);
    assert!(!ran.out().contains("\"state\":\"bad\""), "{ran}");
    assert!(ran.out().contains("it is there again after"), "{ran}");
}
