//! `swath stage`: files in the depots of relays, and what is fetched from there.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};

use serde_json::Value;
use swath_netlab::faulty::{Behaviour, Content, Server};

use crate::support::depot::until;
use crate::support::net::{honest, server, sha256, slow, url};
use crate::support::relay::Ear;
use crate::support::serve::{Served, reserved_address};
use crate::support::{Home, Ran};

const SIZE: u64 = 9_000_017;

/// Depots, each with a folder of its own.
fn depots(home: &Home, sizes: &[&str]) -> Vec<Served> {
    let depot = |(at, size): (usize, &&str)| {
        let folder = format!("depot{at}");
        home.relay_at(&reserved_address(), &["--depot", &folder, "--depot-size", size])
    };
    sizes.iter().enumerate().map(depot).collect()
}

/// `swath stage` with these arguments more.
fn stage(home: &Home, source: &str, depots: &[Served], more: &[&str]) -> Ran {
    staging(home, source, depots, more).run()
}

fn staging(home: &Home, source: &str, depots: &[Served], more: &[&str]) -> crate::support::Swath {
    let at = depots.iter().flat_map(|depot| ["--at".to_owned(), depot.named()]);
    let usual = ["stage", source, "--for", "1h", "-o", "staged.meta4"].map(str::to_owned);
    let more = more.iter().map(|&arg| arg.to_owned());
    home.swath(usual.into_iter().chain(at).chain(more))
}

/// How much of a depot is taken.
fn taken_bytes(depot: &Served) -> u64 {
    let room = depot.ask("GET", "/depot", "", b"").is(200).json();
    room["disk"]["taken_bytes"].as_u64().unwrap()
}

fn keys(home: &Home) -> Vec<Value> {
    let keys: Value = serde_json::from_slice(&home.read("staged.meta4.keys")).unwrap();
    keys["depots"].as_array().unwrap().clone()
}

/// The capabilities of the keys, as they stand in addresses.
fn capabilities(home: &Home) -> Vec<String> {
    let last = |url: &Value| url.as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    keys(home).iter().flat_map(|key| [last(&key["manage"]), last(&key["read"])]).collect()
}

/// How many bytes of the file each depot holds, in the order of the keys.
fn held(home: &Home) -> Vec<u64> {
    let ran = home.run(["stage", "status", "staged.meta4", "--json"]);
    let out = ran.code_is(0).out();
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| line["held_bytes"].as_u64().unwrap()).collect()
}

#[test]
fn one_depot_takes_all_of_it_and_it_is_fetched_there() {
    let home = Home::new();
    let content = Content::random(1, SIZE);
    let origin = honest(&content);
    let depots = depots(&home, &["20M"]);
    let ran = stage(&home, &url(&origin), &depots, &["--digest", &sha256(&content)]);
    ran.code_is(0).says(&["data.bin: 9.00 MB in one depot", "whole", "swath get staged.meta4"]);
    for name in ["staged.meta4", "staged.meta4.keys"] {
        let mode = fs::metadata(home.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let text = String::from_utf8(home.read("staged.meta4")).unwrap();
    assert!(text.contains("<url priority=\"1\">") && !text.contains("<held"), "{text}");
    assert_eq!(origin.log().sent_bytes("/data.bin") / SIZE, 1, "it went over the long way once");
    origin.die();
    home.run(["get", "staged.meta4", "-o", "got"]).code_is(0).says(&["verified by sha-256"]);
    home.holds("got", &content);
    // Nothing is written over without being asked to.
    stage(&home, &url(&origin), &depots, &[]).code_is(5).says(&["exists", "--overwrite"]);
}

#[test]
fn what_a_disk_has_spoilt_comes_from_the_other_depot() {
    // Each had all but a block of it, and both were left for that block: nobody had the file.
    let home = Home::new();
    let content = Content::random(3, SIZE);
    let origin = honest(&content);
    let depots = depots(&home, &["20M", "20M"]);
    let more = ["--replicas", "2", "--digest", &sha256(&content)];
    stage(&home, &url(&origin), &depots, &more).code_is(0);
    origin.die();
    for (depot, first) in [("depot0", 0), ("depot1", 1)] {
        let leases = fs::read_dir(home.path(format!("{depot}/leases"))).unwrap();
        let is_data = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "data");
        let data = leases.map(|it| it.unwrap().path()).find(is_data).unwrap();
        let file = fs::File::options().read(true).write(true).open(data).unwrap();
        // Every other block.
        for at in (first << 18..SIZE).step_by(2 << 18) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }
    }
    // When that is found out, and when it is known.
    for _ in 0..2 {
        let ran = home.run(["get", "staged.meta4", "-o", "got", "--overwrite"]);
        ran.code_is(0).says(&["verified by sha-256", "does not hold"]);
        home.holds("got", &content);
        assert!(ran.stderr.matches("does not hold").count() <= 2, "{ran}");
    }
    let ran = home.run(["stage", "status", "staged.meta4"]).code_is(0).out();
    assert!(ran.contains(" damaged"), "{ran}");
}

#[test]
fn what_lies_in_parts_comes_from_depots_alone_when_the_origin_is_gone() {
    let home = Home::new();
    let content = Content::random(2, SIZE);
    let origin = slow(&content, 9_000_000);
    let depots = depots(&home, &["20M", "20M", "20M"]);
    let ran = stage(&home, &url(&origin), &depots, &["--digest", &sha256(&content)]);
    ran.code_is(0).says(&["to 3 depots", "in 3 depots", "partial"]).never_says(&["source"]);
    let text = String::from_utf8(home.read("staged.meta4")).unwrap();
    assert_eq!(text.matches("<held ").count(), 3, "{text}");
    assert_eq!(text.matches("<url ").count(), 1, "{text}");
    // Nobody has taken space for all of the file.
    let held = held(&home);
    assert!(held.iter().sum::<u64>() >= SIZE && held.iter().all(|&held| held < SIZE), "{held:?}");
    for (depot, held) in depots.iter().zip(&held) {
        // What was cut off between two syncs takes its blocks as well.
        let taken = taken_bytes(depot);
        assert!(*held <= taken && taken < SIZE, "{taken} for {held}");
    }
    origin.die();
    let secrets = capabilities(&home);
    let get = ["get", "staged.meta4", "-o", "got", "--report", "report.html"];
    let got = home.swath(get).env("SWATH_LOG", "trace").run();
    got.code_is(0).says(&["verified by sha-256", "/depot/"]);
    home.holds("got", &content);
    let json = home.run(["get", "staged.meta4", "-o", "again", "--json"]);
    json.code_is(0);
    let report = String::from_utf8(home.read("report.html")).unwrap();
    for secret in &secrets {
        got.never_says(&[secret, &secret[..16]]);
        json.never_says(&[secret, &secret[..16]]);
        ran.never_says(&[secret, &secret[..16]]);
        assert!(!report.contains(&secret[..16]));
    }
    // Whoever reads may not do more.
    let of = |what: &str| -> Vec<String> {
        keys(&home).iter().map(|key| key[what].as_str().unwrap().to_owned()).collect()
    };
    assert!(of("read").iter().all(|read| text.contains(read)));
    assert!(of("manage").iter().all(|manage| !text.contains(manage)));
}

#[test]
fn what_nothing_but_its_version_tells_apart_is_the_same_in_depots() {
    let home = Home::new();
    let content = Content::random(3, SIZE);
    let origin = slow(&content, 9_000_000);
    let depots = depots(&home, &["20M", "20M"]);
    stage(&home, &url(&origin), &depots, &[]).code_is(0);
    let text = String::from_utf8(home.read("staged.meta4")).unwrap();
    assert!(text.contains("?etag=%22"), "{text}");
    home.run(["get", "staged.meta4", "-o", "got"])
        .code_is(0)
        .never_says(&["not using", "left out"]);
    home.holds("got", &content);
    origin.die();
    home.run(["get", "staged.meta4", "-o", "again"]).code_is(0);
    home.holds("again", &content);
}

#[test]
fn depots_that_gave_all_they_hold_are_not_to_blame_for_what_is_missing() {
    let home = Home::new();
    let content = Content::random(14, SIZE);
    let origin = slow(&content, 9_000_000);
    let mut depots = depots(&home, &["20M", "20M"]);
    stage(&home, &url(&origin), &depots, &["--digest", &sha256(&content)]).code_is(0);
    origin.die();
    drop(depots.remove(0));
    let ran = home.run(["get", "staged.meta4", "-o", "got", "--timeout", "10s"]);
    ran.code_is(3)
        .says(&["all that it holds has come", "cannot connect"])
        .never_says(&["no answer"]);
}

#[test]
fn with_two_replicas_any_depot_may_die() {
    let home = Home::new();
    let content = Content::random(4, SIZE);
    let origin = honest(&content);
    let mut depots = depots(&home, &["20M", "20M", "20M"]);
    let more = ["--replicas", "2", "--digest", &sha256(&content)];
    stage(&home, &url(&origin), &depots, &more).code_is(0);
    assert!(held(&home).iter().sum::<u64>() >= 2 * SIZE, "{:?}", held(&home));
    origin.die();
    for at in 0..3 {
        let gone = depots.remove(0);
        gone.signal(libc::SIGSTOP);
        let name = format!("got{at}");
        let ran = home.run(["get", "staged.meta4", "-o", &name, "--timeout", "30s"]);
        ran.code_is(0);
        home.holds(&name, &content);
        gone.signal(libc::SIGCONT);
        depots.push(gone);
    }
    let few = stage(&home, &url(&origin), &depots[..1], &["--replicas", "2", "--overwrite"]);
    few.code_is(2).says(&["needs as many depots, and --at names"]);
}

#[test]
fn the_part_of_a_depot_that_dies_goes_to_the_others() {
    let home = Home::new();
    let content = Content::random(5, SIZE);
    let origin = slow(&content, 300_000);
    let mut depots = depots(&home, &["20M", "20M", "20M"]);
    let running = staging(&home, &url(&origin), &depots, &["--digest", &sha256(&content)]).start();
    until("it begins", || depots.iter().all(|depot| taken_bytes(depot) > 0));
    let dead = depots.remove(1);
    let address = dead.address().to_string();
    drop(dead);
    origin.set(Behaviour::rate(9_000_000));
    let ran = running.wait();
    ran.code_is(0).says(&["in 2 depots", "not using depot"]);
    origin.die();
    home.run(["get", "staged.meta4", "-o", "got"]).code_is(0);
    home.holds("got", &content);
    // Once it is back, what it had by then is given up like the rest: its key was thrown away.
    home.run(["stage", "status", "staged.meta4"]).code_is(8);
    let back = home.relay_at(&address, &["--depot", "depot1", "--depot-size", "20M"]);
    assert!(back.ask("GET", "/depot", "", b"").is(200).json()["allocations"] == 1);
    home.run(["stage", "release", "staged.meta4"]).code_is(0);
    assert!(back.ask("GET", "/depot", "", b"").is(200).json()["allocations"] == 0);
}

#[test]
fn the_part_of_a_depot_that_loses_its_folder_goes_to_the_others() {
    // It counted as held, and whoever fetched it got nothing of it.
    let home = Home::new();
    let content = Content::random(18, SIZE);
    let origin = slow(&content, 300_000);
    let depots = depots(&home, &["20M", "20M"]);
    let running = staging(&home, &url(&origin), &depots, &["--digest", &sha256(&content)]).start();
    until("it begins", || depots.iter().all(|depot| taken_bytes(depot) > 0));
    fs::remove_dir_all(home.path("depot1")).unwrap();
    origin.set(Behaviour::rate(9_000_000));
    running.wait().code_is(0).says(&["in one depot", "holds nothing: "]);
    depots[1].says("the folder of the depot was removed or replaced: its data is lost, and nothing is stored until the relay is restarted");
    origin.die();
    home.run(["get", "staged.meta4", "-o", "got"]).code_is(0);
    home.holds("got", &content);
}

#[test]
fn a_depot_takes_what_it_has_room_for() {
    let home = Home::new();
    let content = Content::random(6, SIZE);
    let origin = slow(&content, 9_000_000);
    let both = depots(&home, &["2M", "20M"]);
    let ran = stage(&home, &url(&origin), &both, &["--digest", &sha256(&content)]);
    ran.code_is(0).says(&["it has no room"]);
    let small = taken_bytes(&both[0]);
    assert!(small <= 2_000_000, "{small}");
    origin.die();
    home.run(["get", "staged.meta4", "-o", "got"]).code_is(0);
    home.holds("got", &content);
}

#[test]
fn a_second_copy_without_a_place_is_told_as_that() {
    let home = Home::new();
    let content = Content::random(16, SIZE);
    let both = depots(&home, &["20M", "10M"]);
    let replicas = ["--replicas", "2"];
    let origin = slow(&content, 300_000);
    let running = staging(&home, &url(&origin), &both, &replicas).start();
    until("it begins", || both.iter().all(|depot| taken_bytes(depot) > 0));
    // Somebody else takes what was free when it was asked for.
    let free =
        || both[1].ask("GET", "/depot", "", b"").is(200).json()["disk"]["free_bytes"].as_u64();
    until("it is taken", || {
        let most = free().unwrap() / 2;
        both[1].ask("POST", &format!("/depot?size={most}&lease=600"), "", b"").status == 201
    });
    origin.set(Behaviour::rate(0));
    running.wait().code_is(7).says(&[
        "could not be stored",
        "it has no room",
        "further copies of its data must be in other depots",
    ]);
}

#[test]
fn a_lease_that_ended_before_is_told_as_that() {
    let home = Home::new();
    let origin = honest(&Content::random(17, 1000));
    let depots = depots(&home, &["20M"]);
    stage(&home, &url(&origin), &depots, &[]).code_is(0);
    let keys = home.read("staged.meta4.keys");
    let release = ["stage", "release", "staged.meta4"];
    assert!(home.run(release).code_is(0).out().contains("released"));
    home.write("staged.meta4.keys", keys);
    let ran = home.run(release);
    let out = ran.code_is(0).out();
    assert!(out.contains("its lease had expired") && !out.contains("released"), "{out}");
}

#[test]
fn where_there_is_no_place_nothing_is_left() {
    let home = Home::new();
    let content = Content::random(7, SIZE);
    let origin = honest(&content);
    let all = depots(&home, &["2M", "3M", "20M"]);
    let ran = stage(&home, &url(&origin), &all[..2], &[]);
    // All of it that found room came over the long way, and was given up again.
    ran.code_is(7).says(&["the depots have room for only 5.00 MB of 9.00 MB; nothing was fetched"]);
    ran.says(&["it has 2.00 MB free", "it has 3.00 MB free"]);
    let ran = stage(&home, &url(&origin), &all, &["--replicas", "2"]);
    ran.code_is(7).says(&["the depots have room for only 14.0 MB of 18.0 MB"]);
    assert_eq!(origin.log().sent_bytes("/data.bin") / 1000, 0, "but for what says what it is");
    assert!(all.iter().all(|depot| taken_bytes(depot) == 0));
    assert!(!home.exists("staged.meta4") && !home.exists("staged.meta4.keys"));
    // Neither a relay without a depot nor nobody is one.
    let bare = [home.relay(&[])];
    let ran = stage(&home, &url(&origin), &bare, &[]);
    ran.code_is(7).says(&["1 depot is needed and 0 can be used", "has no depot"]);
    let gone = honest(&content);
    let address = url(&gone);
    drop(gone);
    stage(&home, &address, &all, &[]).code_is(7).says(&["no source can be used"]);
    assert!(all.iter().all(|depot| taken_bytes(depot) == 0));
}

#[test]
fn whoever_interrupts_it_leaves_nothing_behind() {
    let home = Home::new();
    let content = Content::random(8, SIZE);
    let origin = slow(&content, 300_000);
    let depots = depots(&home, &["20M", "20M"]);
    let running = staging(&home, &url(&origin), &depots, &[]).start();
    until("it begins", || depots.iter().all(|depot| taken_bytes(depot) > 0));
    running.signal(libc::SIGINT);
    running.wait().code_is(130).says(&["stopped; the leases were released"]);
    assert!(depots.iter().all(|depot| taken_bytes(depot) == 0));
    let left: Vec<String> = home.names().into_iter().filter(|it| it.contains("meta4")).collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_depot_that_never_answers_keeps_nobody_who_wants_to_end() {
    // It took 28 s: until each try to reach the depot had been given up.
    let home = Home::new();
    let origin = honest(&Content::random(8, SIZE));
    let depots = depots(&home, &["20M"]);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("http://{}", silent.local_addr().unwrap());
    let running = staging(&home, &url(&origin), &depots, &["--at", &at]).start();
    let _asked = silent.accept().unwrap();
    running.signal(libc::SIGINT);
    running.wait().code_is(130).says(&["stopped; the leases were released"]);
    // No try was made after that.
    silent.set_nonblocking(true).unwrap();
    let tried = silent.accept().map_err(|error| error.kind());
    assert_eq!(tried.unwrap_err(), std::io::ErrorKind::WouldBlock);
    let room = depots[0].ask("GET", "/depot", "", b"").is(200).json();
    assert_eq!(room["allocations"], 0, "{room}");
}

#[test]
fn a_lease_that_ends_while_it_is_read_is_told_and_others_go_on() {
    let home = Home::new();
    let content = Content::random(9, SIZE);
    let origin = slow(&content, 3_000_000);
    let depots = depots(&home, &["20M", "20M"]);
    stage(&home, &url(&origin), &depots, &["--digest", &sha256(&content)]).code_is(0);
    let get = ["get", "staged.meta4", "-o", "got", "--limit-rate", "1M"];
    let running = home.swath(get).start();
    home.wait_for_bytes("got.swath.part", 1_000_000);
    home.run(["stage", "release", "staged.meta4"]).code_is(0);
    running.wait().code_is(0).says(&["the depot's lease has ended"]);
    home.holds("got", &content);
}

#[test]
fn wrong_bytes_of_a_depot_are_blamed_on_it() {
    let home = Home::new();
    let content = Content::random(10, SIZE);
    let origin = slow(&content, 9_000_000);
    let depots = depots(&home, &["20M", "20M"]);
    let more = ["--replicas", "2", "--digest", &sha256(&content)];
    stage(&home, &url(&origin), &depots, &more).code_is(0);
    origin.die();
    // Large answers lose a bit on the way.
    let ear = Ear::before(depots[0].address(), |bytes| {
        if let Some(byte) = bytes.get_mut(60_000) {
            *byte ^= 1;
        }
    });
    let text = String::from_utf8(home.read("staged.meta4")).unwrap();
    home.write("bad.meta4", text.replace(&depots[0].named(), &ear.url()));
    let ran = home.run(["get", "bad.meta4", "-o", "got"]);
    let blamed = format!("{}/depot/", ear.url().trim_start_matches("http://"));
    ran.code_is(0).says(&["delivered corrupt data", &blamed]);
    home.holds("got", &content);
}

#[test]
fn leases_are_told_extended_and_given_up() {
    let home = Home::new();
    let content = Content::random(11, SIZE);
    let origin = slow(&content, 9_000_000);
    let mut depots = depots(&home, &["20M", "20M"]);
    stage(&home, &url(&origin), &depots, &[]).code_is(0);
    let told = home.run(["stage", "status", "staged.meta4"]);
    assert!(
        told.code_is(0).out().contains("1 h 00 min") || told.out().contains("59 min"),
        "{told}"
    );
    let ran = home.run(["stage", "extend", "staged.meta4", "--for", "5h", "--json"]);
    for line in ran.code_is(0).out().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["lease_s"], &line["ok"]), (&18_000.0.into(), &true.into()), "{line}");
    }
    // Who has no keys sees how it is, and changes nothing.
    fs::rename(home.path("staged.meta4.keys"), home.path("kept")).unwrap();
    let told = home.run(["stage", "status", "staged.meta4"]);
    let out = told.code_is(0).out();
    assert!(out.contains("5 h 00 min") || out.contains("4 h 59 min"), "{out}");
    let ran = home.run(["stage", "release", "staged.meta4"]);
    ran.code_is(6).says(&["staged.meta4.keys is missing"]);
    fs::rename(home.path("kept"), home.path("staged.meta4.keys")).unwrap();
    // One that does not answer hides no other.
    drop(depots.remove(0));
    let ran = home.run(["stage", "status", "staged.meta4"]);
    let out = ran.code_is(8).out();
    assert!(out.contains("partial") && out.contains("cannot connect"), "{out}");
    home.run(["stage", "extend", "staged.meta4", "--for", "2h"]).code_is(8);
    home.run(["stage", "release", "staged.meta4"]).code_is(8);
    assert_eq!(taken_bytes(&depots[0]), 0);
    assert!(home.exists("staged.meta4.keys"), "one is still to be given up");
    drop(depots);
    home.run(["stage", "status", "staged.meta4"]).code_is(7);
    home.run(["stage", "status", "nothing.meta4"]).code_is(6);
}

#[test]
fn what_opens_the_source_goes_to_the_depot_alone() {
    let home = Home::new();
    let content = Content::random(12, SIZE);
    home.write("data/run7.h5", content.read(0, SIZE));
    home.write("token", "sesame-open");
    home.write("tokens", "sesame-open\n");
    let origin = home.serve(&["data", "--plain", "--token-file", "tokens"]);
    let depot = home.relay(&["--depot", "depot0", "--depot-size", "20M", "--log", "relay.log"]);
    let ear = Ear::before(depot.address(), |_| {});
    let at = ["--at", &ear.url(), "--for", "1h", "-o", "staged.meta4"];
    let stage = ["stage", &origin.at("run7.h5"), "--bearer-file", "token"];
    home.run([&stage[..2], &at].concat()).code_is(7).says(&["no source can be used"]);
    home.run([&stage[..], &at].concat()).code_is(0).says(&["run7.h5", "whole"]);
    assert!(ear.heard("swath-sealed: ") && !ear.heard("sesame-open"));
    let text = String::from_utf8(home.read("staged.meta4")).unwrap();
    assert!(!text.contains("sesame"));
    let log = String::from_utf8(home.read("relay.log")).unwrap();
    assert!(log.contains("/depot/") && !log.contains("sesame"), "{log}");
    assert!(capabilities(&home).iter().all(|secret| !log.contains(&secret[..16])), "{log}");
    drop(origin);
    home.run(["get", "staged.meta4", "-o", "got"]).code_is(0);
    home.holds("got", &content);
}

#[test]
fn what_opens_a_depots_relay_is_written_nowhere() {
    // `--at http://u:TOKEN@R` wrote the token into the Metalink, which is handed on, and nobody could
    // look at the lease or give it up.
    let home = Home::new();
    let content = Content::random(15, SIZE);
    let origin = honest(&content);
    home.write("tokens", "sesame-open\n");
    let depot = home.relay(&["--clients", "tokens", "--depot", "depot0", "--depot-size", "20M"]);
    let opened = depot.named().replace("http://", "http://any:sesame-open@");
    let args = ["stage", &url(&origin), "--at", &opened, "--for", "1h", "-o", "staged.meta4"];
    home.run(args).code_is(0).says(&["whole"]).never_says(&["sesame"]);
    for name in ["staged.meta4", "staged.meta4.keys"] {
        let text = String::from_utf8(home.read(name)).unwrap();
        assert!(text.contains("/depot/") && !text.contains("sesame"), "{text}");
    }
    let hint = format!("--at http://any:TOKEN@{}", depot.address());
    let wrong = depot.named().replace("http://", "http://any:another-one@");
    for (at, said) in [(depot.named(), "needs a token: "), (wrong, "refused the token")] {
        let ran = home.run(["stage", &url(&origin), "--at", &at, "--for", "1h", "-o", "x.meta4"]);
        ran.code_is(7).says(&["answered 401", said, &hint, "token-file"]);
    }
    for command in [&["status"][..], &["extend", "--for", "2h"], &["release"]] {
        let bare = [&["stage"], command, &["staged.meta4"]].concat();
        let ran = home.run(&bare);
        ran.code_is(7).says(&[&hint, "token-file"]);
        assert!(ran.out().contains("needed here (Authorization: Bearer …)\n"), "{ran}");
    }
    let with = |command: &[&str]| {
        home.run([&["stage"], command, &["staged.meta4", "--at", &opened]].concat())
    };
    with(&["status"]).code_is(0);
    with(&["extend", "--for", "2h"]).code_is(0);
    let other = ["stage", "status", "staged.meta4", "--at", "http://127.0.0.1:9"];
    home.run(other).code_is(2).says(&["--at: http://127.0.0.1:9"]);
    origin.die();
    home.run(["get", "staged.meta4", "-o", "got", "--relay", &opened]).code_is(0);
    home.holds("got", &content);
    with(&["release"]).code_is(0);
    assert!(!home.exists("staged.meta4.keys"));
    // What the configuration file says of the relay does as well.
    home.write("token", "sesame-open");
    let config = format!("relays = [{{ url = \"{}\", token-file = \"token\" }}]", depot.named());
    home.write("config.toml", config);
    let again = honest(&content);
    let (again, named) = (url(&again), depot.named());
    let args = ["stage", &again, "--at", &named, "--for", "1h", "-o", "staged.meta4"];
    let configured = |args: &[&str]| home.swath(args).env("SWATH_CONFIG", "config.toml").run();
    configured(&[&args[..], &["--overwrite"]].concat()).code_is(0);
    configured(&["stage", "release", "staged.meta4"]).code_is(0);
}

#[test]
fn several_mirrors_a_metalink_and_relays_on_the_way() {
    let home = Home::new();
    let content = Content::random(13, SIZE);
    let (one, other) = (slow(&content, 5_000_000), honest(&content));
    let wrong: Server = server(&Content::random(14, SIZE + 1), Behaviour::rate(9_000_000));
    let depots = depots(&home, &["20M", "20M"]);
    let at = depots.iter().flat_map(|depot| ["--at".to_owned(), depot.named()]);
    let urls = [url(&one), url(&other), url(&wrong)];
    let usual = ["stage", "--for", "1h", "-o", "staged.meta4"].map(str::to_owned);
    let ran = home.run(usual.into_iter().chain(urls).chain(at));
    ran.code_is(0).says(&["is not used: its file has"]);
    let text = String::from_utf8(home.read("staged.meta4")).unwrap();
    assert_eq!(text.matches("<url ").count(), 2, "the origins that agree: {text}");
    // What was staged by partial depots can be staged again, from its origins.
    fs::rename(home.path("staged.meta4"), home.path("first.meta4")).unwrap();
    fs::remove_file(home.path("staged.meta4.keys")).unwrap();
    stage(&home, "first.meta4", &depots, &[]).code_is(0);
    one.die();
    other.die();
    let relay = home.relay(&[]);
    let route = ["--relay", &relay.named(), "--route", &relay.named()];
    home.run([&["get", "staged.meta4", "-o", "got"], &route[..]].concat()).code_is(0);
    home.holds("got", &content);
}

#[test]
fn slips_are_told_before_anything_is_leased() {
    let home = Home::new();
    let depots = depots(&home, &["20M"]);
    let at = depots[0].named();
    for (args, said) in [
        (&["http://127.0.0.1:9/f", "--at", "nonsense", "--for", "1h"][..], "no http://"),
        (&["http://127.0.0.1:9/f", "--at", &at, "--at", &at, "--for", "1h"], "twice"),
        (&["http://127.0.0.1:9/f", "--at", &at], "--for"),
        (&["http://127.0.0.1:9/f", "--for", "1h"], "--at"),
        (&["http://127.0.0.1:9/", "--at", &at, "--for", "1h"], "does not name a file"),
    ] {
        home.run([&["stage"], args].concat()).code_is(2).says(&[said]);
    }
    let args = ["stage", "nothing.meta4", "--at", &at, "--for", "1h"];
    home.run(args).code_is(6).says(&["is neither a URL nor a file"]);
    let origin = honest(&Content::bytes(Vec::new()));
    stage(&home, &url(&origin), &depots, &[]).code_is(6).says(&["the file is empty"]);
    let origin = honest(&Content::random(1, 1000));
    let stream = ["stage", &url(&origin), "--at", &at, "--for", "1h", "-o", "-"];
    home.run(stream).code_is(2).says(&[
        "-o needs a file name for the Metalink and its keys (use ./- for a file called -)",
    ]);
    let long = ["stage", &url(&origin), "--at", &at, "--for", "400d"];
    home.run(long).code_is(7).says(&["it answered 400: a lease is at most 7 d\n"]);
    assert_eq!(taken_bytes(&depots[0]), 0);
}
