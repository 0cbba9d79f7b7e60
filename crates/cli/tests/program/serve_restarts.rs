//! Trees and files that are sent to a server that is killed, and perhaps started again.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use swath_serve::Identity;

use crate::support::serve::{Served, reserved_address};
use crate::support::trees::{assert_same, bytes};
use crate::support::{Home, Ran, Running};

/// Where a server takes trees from whoever shows what the file `token` holds.
fn home() -> Home {
    let home = Home::new();
    fs::create_dir(home.path("store")).unwrap();
    home.write("token", "secret");
    home.write("tokens", "secret write\n");
    home.write("tree/wide.bin", bytes(9, WIDE_BYTES));
    home.write("tree/small", "small\n");
    home
}

const PLAIN: [&str; 5] = ["store", "--write", "--plain", "--token-file", "tokens"];

/// A server that takes so little that a tree is under way for as long as it stands, whatever holds a test
/// up; the one that follows it takes the rest at once.
fn slow(home: &Home) -> Served {
    slow_at(home, &reserved_address())
}

fn slow_at(home: &Home, address: &str) -> Served {
    home.serve_at(address, &[&PLAIN[..], &["--limit-rate", "1500K"]].concat())
}

fn send(home: &Home, server: &Served, more: &[&str]) -> Running {
    let to = server.at("new/");
    home.swath(["cp", "tree/", &to, "--bearer-file", "token"].iter().chain(more)).start()
}

/// A part of it is there, and a later run could make use of it, whatever becomes of the server: what has
/// come is written down once a second, and so much takes two.
fn wait_for_some(home: &Home) {
    home.wait_for_bytes("store/new.swath.part/wide.bin", 3 << 20);
}

/// What the program says on standard error, while it runs.
fn saying(home: &Home, server: &Served, more: &[&str]) -> Running {
    let to = server.at("new/");
    let args = ["cp", "tree/", &to, "--bearer-file", "token"];
    let mut swath = home.swath(args.iter().chain(more));
    swath.command().stderr(File::create(home.path("said")).unwrap());
    swath.start()
}

#[track_caller]
fn wait_for_words(home: &Home, words: &str) {
    let began = Instant::now();
    let said = || String::from_utf8(home.read("said")).unwrap();
    while !said().contains(words) {
        assert!(began.elapsed() < HANG_LIMIT, "{words:?} is missing: {}", said());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn finished(ran: &Ran) -> serde_json::Value {
    let out = ran.out();
    let line = out.lines().rfind(|line| line.contains("\"finished\"")).unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}:\n{ran}"))
}

fn count(ran: &Ran, words: &str) -> usize {
    ran.stderr.lines().filter(|line| line.contains(words)).count()
}

#[test]
fn a_server_that_is_killed_and_started_again_is_sent_the_rest() {
    // It ended with 3 at once, "the answer ended after 2772 bytes, before its end", where a download
    // went on as soon as the server was there again.
    let home = home();
    let pem = Identity::make_pem(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    home.write("both.pem", pem);
    let files = ["--token-file", "tokens", "--tls-cert", "both.pem", "--tls-key", "both.pem"];
    let args = [&["store", "--write"][..], &files].concat();
    let slow = [&args[..], &["--limit-rate", "1500K"]].concat();
    let mut server = home.serve_lasting(&slow);
    let address = server.address().to_string();
    let sending = send(&home, &server, &["--ca", "both.pem"]);
    for (already_bytes, next) in [(2 << 20, &slow), (4 << 20, &args)] {
        home.wait_for_bytes("store/new.swath.part/wide.bin", already_bytes);
        drop(server);
        assert!(!home.exists("store/new"));
        server = home.serve_at(&address, next);
    }
    let ran = sending.wait();
    ran.code_is(0).says(&["2 files"]).never_says(&["earlier run", "already up to date"]);
    assert_eq!(count(&ran, "retrying for up to"), 2, "{ran}");
    assert_eq!(count(&ran, "reconnected after"), 2, "{ran}");
    assert_same(&home.path("tree"), &home.path("store/new"));
    assert_eq!(home.names_in("store"), ["new"]);
}

#[test]
fn a_copy_of_several_receivers_is_told_as_one() {
    let home = home();
    let server = slow(&home);
    let address = server.address().to_string();
    // What an earlier run has left is told as that, and what this one brings is not.
    let first = send(&home, &server, &[]);
    wait_for_some(&home);
    first.signal(libc::SIGINT);
    first.wait().code_is(130);
    let sending = send(&home, &server, &["--json"]);
    home.wait_for_bytes("store/new.swath.part/wide.bin", 6 << 20);
    drop(server);
    let _server = home.serve_at(&address, &PLAIN);
    let ran = sending.wait();
    ran.code_is(0);
    let events: Vec<serde_json::Value> =
        ran.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).collect::<Vec<_>>();
    let (opened, end) = (of("opened"), finished(&ran));
    assert_eq!((of("started").len(), opened.len(), of("finished").len()), (1, 1, 1));
    let resumed = opened[0]["resumed_bytes"].as_u64().unwrap();
    assert!(resumed > 1 << 20, "{end}");
    assert_eq!(end["resumed_bytes"], resumed, "{end}");
    let fetched = end["fetched_bytes"].as_u64().unwrap();
    assert_eq!(fetched + resumed, end["size_bytes"].as_u64().unwrap(), "{end}");
    assert_eq!(end["sources"][0]["bytes"], fetched, "{end}");
    // Time goes on.
    let mut last_s = 0.0;
    for event in of("progress") {
        let at_s = event["at_s"].as_f64().unwrap();
        assert!(at_s >= last_s, "{event} after {last_s}");
        last_s = at_s;
    }
    assert!(end["elapsed_s"].as_f64().unwrap() >= last_s, "{end}");
    assert_same(&home.path("tree"), &home.path("store/new"));
}

#[test]
fn what_was_to_begin_anew_does_so_once() {
    let home = home();
    let server = home.serve_lasting(&[&PLAIN[..], &["--limit-rate", "5M"]].concat());
    let address = server.address().to_string();
    let sending = send(&home, &server, &["--json", "--no-resume"]);
    // If all has come before the server is killed, there is nothing to begin anew.
    home.wait_for_bytes("store/new.swath.part/wide.bin", 16 << 20);
    drop(server);
    let _server = home.serve_at(&address, &PLAIN);
    let ran = sending.wait();
    ran.code_is(0);
    let sum: u64 = ran
        .out()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["event"] == "swath")
        .map(|event| event["end"].as_u64().unwrap() - event["start"].as_u64().unwrap())
        .sum();
    assert!(sum < WIDE_BYTES as u64 * 3 / 2, "{sum} bytes were sent: {ran}");
    assert_same(&home.path("tree"), &home.path("store/new"));
}

#[test]
fn a_server_that_stays_away_ends_it_after_the_time_that_was_given() {
    let home = home();
    let server = slow(&home);
    let address = server.address().to_string();
    let sending = send(&home, &server, &["--timeout", "3s"]);
    wait_for_some(&home);
    drop(server);
    let ran = sending.wait();
    let goes_on = "the received data is kept: the same command resumes from there";
    ran.code_is(3).says(&["retrying for up to", "refused", goes_on]);
    // Once, and not at each try; a server that was merely slow has been there again.
    assert_eq!(count(&ran, "retrying for up to"), count(&ran, "reconnected after") + 1, "{ran}");
    let server = home.serve_at(&address, &PLAIN);
    let ran = send(&home, &server, &["--json"]).wait();
    assert!(finished(ran.code_is(0))["resumed_bytes"].as_u64().unwrap() > 0, "{ran}");
    assert_same(&home.path("tree"), &home.path("store/new"));
}

#[test]
fn whoever_is_let_in_no_more_or_stops_waits_for_nobody() {
    let home = home();
    // Whoever waited would wait for longer than this test.
    let server = slow(&home);
    let address = server.address().to_string();
    let args = ["--timeout", "3600s"];
    let sending = send(&home, &server, &args);
    wait_for_some(&home);
    drop(server);
    home.write("tokens", "other write\n");
    let server = home.serve_at(&address, &PLAIN);
    let ran = sending.wait();
    ran.code_is(3).says(&["401", "this token is not known here", "--bearer-file"]);
    drop(server);
    home.write("tokens", "secret write\n");
    let server = slow_at(&home, &address);
    let sending = saying(&home, &server, &args);
    home.wait_for_bytes("store/new.swath.part/wide.bin", 5 << 20);
    drop(server);
    wait_for_words(&home, "retrying for up to");
    sending.signal(libc::SIGINT);
    sending.wait().code_is(130);
    wait_for_words(&home, "stopped; the received data is kept");
}

#[test]
fn what_was_kept_or_sent_is_not_nothing() {
    // Killed early, or where all that was there by then was there before, it ended with 7: "nothing
    // came".
    let home = home();
    let server = home.serve_lasting(&PLAIN);
    let address = server.address().to_string();
    send(&home, &server, &[]).wait().code_is(0);
    home.write("tree/more.bin", bytes(3, 2 << 20));
    let args = ["--limit-rate", "1000", "--timeout", "3s"];
    let sending = send(&home, &server, &args);
    let began = Instant::now();
    while !home.exists("store/new/.swath-stage.swath.part") {
        assert!(began.elapsed() < HANG_LIMIT);
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(server);
    sending.wait().code_is(3).says(&["the same command resumes"]);
    // Where nobody takes anything nothing is asked again.
    let ran = {
        let server = home.serve_at(&address, &["store", "--plain", "--token-file", "tokens"]);
        send(&home, &server, &[]).wait()
    };
    ran.code_is(5).never_says(&["retrying"]);
}

#[test]
fn a_source_that_goes_away_after_bytes_came_is_not_nothing() {
    // With its folder the index of the second look was gone, and it ended with 7: "nothing came".
    let home = home();
    let copy = home.swath(["cp", "tree/", "copy/", "--limit-rate", "3M"]).start();
    home.wait_for_bytes("copy.swath.part/wide.bin", 1 << 20);
    copy.signal(libc::SIGSTOP);
    fs::remove_dir_all(home.path("tree")).unwrap();
    copy.signal(libc::SIGCONT);
    let ran = copy.wait();
    ran.code_is(3).says(&["stopped at", "the same command resumes from there"]);
    assert!(!home.exists("copy"));
}

#[test]
fn a_receiver_waits_as_long_as_its_sender_wants_to() {
    // It waited for 60 s whatever --timeout the sender had: where that was more the copy ended though
    // the network was back long since, and where it was less the place was held for nobody.
    let home = home();
    let server = home.serve(&PLAIN);
    let asleep = send(&home, &server, &["--limit-rate", "2M", "--timeout", "4s"]);
    home.wait_for_bytes("store/new.swath.part/wide.bin", 2 << 20);
    asleep.signal(libc::SIGSTOP);
    send(&home, &server, &[]).wait().code_is(0).never_says(&["another process"]);
    asleep.signal(libc::SIGCONT);
    asleep.wait().code_is(0);
    assert_same(&home.path("tree"), &home.path("store/new"));
}

#[test]
fn a_sender_that_was_asleep_goes_on() {
    // The time of its question was over when it woke up: "no answer within 60 s", and 3, though the
    // server had been well all the time.
    let home = home();
    let server = home.serve(&PLAIN);
    let sending = send(&home, &server, &["--limit-rate", "4M", "--timeout", "3s"]);
    for already_bytes in [2 << 20, 6 << 20] {
        home.wait_for_bytes("store/new.swath.part/wide.bin", already_bytes);
        sending.signal(libc::SIGSTOP);
        // At least so long; the longer it is, the surer is the server that nobody is there.
        std::thread::sleep(Duration::from_secs(4));
        sending.signal(libc::SIGCONT);
    }
    let ran = sending.wait();
    ran.code_is(0);
    match ran.stderr.contains("retrying for up to") {
        true => _ = ran.says(&["reconnected after"]),
        false => println!("the server was held up for as long, and noticed nothing"),
    }
    assert_same(&home.path("tree"), &home.path("store/new"));
}

const WIDE_BYTES: usize = 24 << 20;
/// What has not happened by then never will.
const HANG_LIMIT: Duration = Duration::from_secs(90);
