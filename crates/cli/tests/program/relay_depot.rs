//! A relay's depot: what outlives a kill, and what its operator and the stagings are told. (What it lends,
//! reads and fetches is tested in the crate `swath-relay`.)

use std::fs;
use std::time::Duration;

use serde_json::json;
use swath_netlab::faulty::{Behaviour, Content, Scope};

use crate::support::Home;
use crate::support::depot::until;
use crate::support::net::{honest, url};

const SIZE: u64 = 3_000_017;

#[test]
fn what_was_acknowledged_outlives_a_kill_and_its_lease_goes_on() {
    let home = Home::new();
    let content = Content::random(2, SIZE);
    let depot = home.depot("10M", &[]);
    assert!(depot.words.contains("depot        10.0 MB on disk"), "{}", depot.words);
    let lease = depot.allocate(SIZE, 600, "");
    depot.put(&lease, 1_000_000, SIZE, &content.read(1_000_000, 2_500_000)).is(204);
    depot.signal(9);
    depot.wait();
    let depot = home.depot("10M", &[]);
    let status = depot.status(&lease);
    assert_eq!(status["held"], json!([[1_000_000, 2_500_000]]));
    assert!(status["lease_s"].as_f64().unwrap() <= 600.0, "{status}");
    let part = depot.ask("GET", &lease.read, "Range: bytes=1000000-2499999\r\n", b"").is(206);
    assert!(part.body == content.read(1_000_000, 2_500_000));
    depot.put(&lease, 0, SIZE, &content.read(0, 1_000_000)).is(204);
    depot.put(&lease, 2_500_000, SIZE, &content.read(2_500_000, SIZE)).is(204);
    // All of it is what any web server has.
    let ran = home.run(["get", &format!("{}{}", depot.named(), lease.read), "-o", "got"]);
    ran.code_is(0);
    home.holds("got", &content);
}

#[test]
fn a_depot_that_was_promised_more_than_its_disk_has_says_so() {
    // `--depot-size 500T` on a small disk started silently, and told of 500 T.
    let home = Home::new();
    home.depot("500T", &[]).says("--depot-size 500 TB: the disk has only ");
}

#[test]
fn files_that_are_taken_away_from_under_a_depot_are_missed() {
    // What lay there stayed "held" or "whole"; who read it got a 500, and nobody was told why.
    let home = Home::new();
    let content = Content::random(5, SIZE);
    let origin = honest(&content);
    let depot = home.depot("20M", &["--depot-memory", "1M", "--log", "depot.log"]);
    let at = depot.named();
    let address = url(&origin);
    let stage = ["stage", &address, "--at", &at, "--for", "1h", "-o", "staged.meta4"];
    home.run(stage).code_is(0);
    for entry in fs::read_dir(home.path("depot/leases")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let status = home.run(["stage", "status", "staged.meta4"]);
    let out = status.code_is(7).out();
    assert!(out.contains("was removed from its disk") && !out.contains("whole"), "{out}");
    depot.says("depot: files of allocations were removed: their data is lost");
    // The origin waits until the depot has answered.
    let log = || fs::read_to_string(home.path("depot.log")).unwrap();
    let reads = || log().matches("\"GET /depot/").count();
    let before = reads();
    let lasts = Duration::from_secs(600);
    let stall = Behaviour::Stall { after_bytes: 0, lasts, scope: Scope::Server };
    origin.set(Behaviour::rate(1_000_000));
    origin.set(stall.clone());
    let getting = home.swath(["get", "staged.meta4", "-o", "got"]).start();
    until("the depot has answered", || reads() > before);
    origin.unset(&stall);
    getting.wait().code_is(0).says(&["removed from the depot's disk"]);
    home.holds("got", &content);
    origin.clear();
    // The depot goes on, and what is lost is given up.
    home.run(["stage", "release", "staged.meta4"]).code_is(0);
    let again = [&stage[..], &["--overwrite"]].concat();
    home.run(&again).code_is(0).says(&["whole"]);
    fs::remove_dir_all(home.path("depot")).unwrap();
    depot.says("leases: the folder of the depot was removed or replaced");
    home.run(["stage", "status", "staged.meta4"]).code_is(7);
    depot.ask("POST", "/depot?size=10&lease=60", "", b"").is(500);
    home.run(&again).code_is(7).says(&["the depot's disk"]);
    let room = depot.ask("GET", "/depot", "", b"").is(200).json();
    assert_eq!(room["allocations"], 1, "{room}");
    home.run(["stage", "release", "staged.meta4"]).code_is(0);
    depot.allocate(1000, 60, "&medium=memory");
}

#[test]
fn more_memory_than_there_is_is_told_at_the_start() {
    let home = Home::new();
    let relay = home.relay(&["--depot-memory", "900000T"]);
    relay.says("warning: --depot-memory 900 PB: this machine has only ");
}
