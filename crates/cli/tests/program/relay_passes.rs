//! Transfers by relays: what comes by which, whom secrets are shown to, and relays that change what they
//! pass on. (What a relay passes on for any client is tested in the crate `swath-relay`.)

use std::fs;

use swath_netlab::faulty::Content;

use crate::support::depot::until;
use crate::support::net::{FILE, honest, sha256, url};
use crate::support::relay::Ear;
use crate::support::serve::{Served, reserved_address};
use crate::support::{Home, Ran};

const SIZE: u64 = 3_000_017;

fn finished(ran: &Ran) -> serde_json::Value {
    let out = ran.out();
    let line = out.lines().rfind(|line| line.contains("\"finished\"")).unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}:\n{ran}"))
}

/// Bytes that came by each source, by its name.
fn by_source(ran: &Ran) -> Vec<(String, u64)> {
    let finished = finished(ran);
    let sources = finished["sources"].as_array().unwrap();
    let of = |source: &serde_json::Value| {
        let relays = source["relays"].as_array().into_iter().flatten();
        let relays: Vec<&str> = relays.filter_map(serde_json::Value::as_str).collect();
        let by =
            if relays.is_empty() { String::new() } else { format!(" by {}", relays.join(", ")) };
        (source["name"].as_str().unwrap().to_owned() + &by, source["bytes"].as_u64().unwrap())
    };
    sources.iter().map(of).collect()
}

#[test]
fn swath_takes_the_route_that_is_named() {
    let home = Home::new();
    let content = Content::random(2, SIZE);
    let origin = honest(&content);
    let (near, far) = (home.relay(&["--log", "near.log"]), home.relay(&["--log", "far.log"]));
    let route = format!("{},{}", near.named(), far.named());
    let ran = home.run(["get", &url(&origin), "-o", "got", "--json", "--route", &route]);
    ran.code_is(0);
    home.holds("got", &content);
    let sources = by_source(&ran);
    assert_eq!(sources[0].1, 0, "{sources:?}");
    assert_eq!(sources[1].1, SIZE, "{sources:?}");
    assert!(sources[1].0.contains(" by 127.0.0.1:"), "{sources:?}");
    let passed = |log: &str| fs::read_to_string(home.path(log)).unwrap().matches(" 206 ").count();
    // A line is written when its answer has left, which may be after we have all of it; how many there
    // are differs where a connection with requests ahead was given up.
    until("both relays passed something on", || passed("near.log") > 0 && passed("far.log") > 0);
    // But for the questions what the source itself says of it, and of some blocks of it.
    let log = origin.log();
    let asks = |bytes: std::ops::Range<u64>| bytes.end - bytes.start <= 2048;
    let mut bytes = log.on(FILE).filter(|it| !it.delivered().is_none_or(asks));
    let via = bytes.all(|it| it.header("via").is_some_and(|it| it.contains(", ")));
    assert!(via, "all came by way of both");
    // The same without anybody reading it.
    let to = ["get", &url(&origin), "-o", "carried", "--json", "--end-to-end", "--route", &route];
    let ran = home.run(to);
    ran.code_is(0);
    home.holds("carried", &content);
    assert_eq!(by_source(&ran)[1].1, SIZE);
    let far = || fs::read_to_string(home.path("far.log")).unwrap();
    until("the tunnel is noted", || far().contains("CONNECT "));
}

#[test]
fn trees_come_by_relays_too() {
    let home = Home::new();
    home.write("tree/a/one", "one");
    home.write("tree/b/wide", crate::support::trees::bytes(5, 2 << 20));
    fs::create_dir(home.path("tree/empty")).unwrap();
    let origin = home.serve(&["tree", "--anonymous", "--plain"]);
    let (near, far) = (home.relay(&[]), home.relay(&[]));
    let route = format!("{},{}", near.named(), far.named());
    let ran = home.run(["cp", &origin.url, "copy", "--json", "--route", &route]);
    ran.code_is(0);
    crate::support::trees::assert_same(&home.path("tree"), &home.path("copy"));
    let sources = by_source(&ran);
    assert!(sources[0].1 == 0 && sources[1].1 > 2 << 20, "{sources:?}");
}

#[test]
fn secrets_are_seen_by_the_last_hop_alone() {
    let home = Home::new();
    let content = Content::random(6, SIZE);
    home.write("served/data.bin", content.read(0, SIZE));
    home.write("origin-tokens", "for-the-origin\n");
    home.write("token", "for-the-origin");
    home.write("relay-tokens", "for-the-relay\n");
    let origin = home.serve(&["served", "--plain", "--token-file", "origin-tokens"]);
    let far = home.relay(&["--clients", "relay-tokens", "--log", "far.log"]);
    let ear = Ear::before(far.address(), |_| {});
    let near = home.relay(&["--log", "near.log"]);
    let with_token = ear.url().replace("http://", "http://x:for-the-relay@");
    let route = format!("{},{}", near.named(), ear.url());
    let from = origin.at("data.bin");
    let get = |to: &str, more: &[&str]| {
        let usual = ["get", &from, "-o", to, "--bearer-file", "token"];
        let routes = ["--relay", &near.named(), "--relay", &with_token, "--route", &route];
        home.run([&usual[..], &routes, more].concat())
    };
    get("got", &["--header", "X-Own: my-own-header"]).code_is(0);
    home.holds("got", &content);
    for secret in ["for-the-origin", "my-own-header", "Zm9yLXRoZS1vcmlnaW4"] {
        assert!(!ear.heard(secret), "{secret} went in the clear from one relay to the next");
    }
    assert!(ear.heard("swath-sealed: ") && ear.heard("swath-pass: "));
    // Without its token the second relay lets nobody in, whoever comes before.
    let route = format!("{},{}", near.named(), ear.url());
    let ran = home.run(["get", &from, "-o", "no", "--bearer-file", "token", "--route", &route]);
    ran.code_is(7);
    let logs = ["near.log", "far.log"].map(|log| fs::read_to_string(home.path(log)).unwrap());
    for log in logs {
        assert!(!log.contains("for-the-") && log.contains(" 206 "), "{log}");
    }
    // One relay more than a route may have.
    let long = [1, 2, 3, 4, 5, 6, 7, 8].map(|port| format!("http://127.0.0.1:{port}")).join(",");
    let ran = home.run(["get", &from, "-o", "more", "--route", &long]);
    ran.code_is(2).says(&["the route has 8 relays, and the maximum is 7 (8 hops)"]);
}

#[test]
fn a_token_for_a_relay_behind_another_is_there_when_the_first_request_is() {
    // By a route that was given the first request left before that relay had told its key: its token
    // could not be sealed and was left out, and the relay let nobody in.
    let home = Home::new();
    let content = Content::random(8, SIZE);
    let origin = honest(&content);
    home.write("relay-tokens", "for-the-relay\n");
    let (near, far) = (home.relay(&[]), home.relay(&["--clients", "relay-tokens"]));
    let with_token = far.url.replace("http://", "http://x:for-the-relay@");
    let route = format!("{},{}", near.url, far.url);
    let relays = ["--relay", &near.url, "--relay", &with_token, "--route", &route];
    let ran = home.run([&["get", &url(&origin), "-o", "got"][..], &relays].concat());
    ran.code_is(0);
    home.holds("got", &content);
}

#[test]
fn a_relay_that_changes_what_it_passes_on_is_found_out_and_left() {
    let home = Home::new();
    let content = Content::random(7, SIZE);
    let origin = honest(&content);
    let relay = home.relay(&[]);
    let ear = Ear::before(relay.address(), |bytes| {
        // Heads are left alone.
        if bytes.len() > 20_000
            && let Some(byte) = bytes.last_mut()
        {
            *byte ^= 1;
        }
    });
    let digest = sha256(&content);
    let args = ["get", &url(&origin), "-o", "got", "--digest", &digest, "--route", &ear.url()];
    let ran = home.run(args);
    // What is wrong is asked of the origin itself, which nobody else had been until then.
    ran.code_is(0).says(&["it delivered corrupt data", " by 127.0.0.1:"]);
    home.holds("got", &content);
}

#[test]
fn a_relay_that_forges_seals_too_is_found_out_by_the_source_itself() {
    // A block and its group hash come the same way: a relay could change both, and all would fit.
    let home = Home::new();
    home.write("tree/file", crate::support::trees::bytes(8, 100_000));
    let origin = home.serve(&["tree", "--anonymous", "--plain"]);
    let forger = crate::support::relay::Forger::start();
    let ran = home.run(["cp", &origin.url, "copy", "--route", &forger.url]);
    assert!(forger.forged() > 0, "{ran}");
    ran.says(&["that differ from the source", " by 127.0.0.1:"]);
    // Where no other way is allowed nothing is left to come.
    assert!(!home.exists("copy"), "{ran}");
    ran.code_is(7);
    home.run(["cp", &origin.url, "copy"]).code_is(0);
    crate::support::trees::assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn a_dead_relay_takes_no_part_of_a_route_that_does_without_it() {
    // A way that waited for the key of its own relay was given up when another one was lost.
    let home = Home::new();
    let content = Content::random(11, SIZE);
    home.write("served/data.bin", content.read(0, SIZE));
    home.write("tokens", "for-the-origin\n");
    home.write("token", "for-the-origin");
    let origin = home.serve(&["served", "--plain", "--token-file", "tokens"]);
    let alive = home.relay(&[]);
    let named = alive.named();
    let from = origin.at("data.bin");
    let usual = ["get", &from, "-o", "got", "--bearer-file", "token"];
    let dead = format!("http://{}", reserved_address());
    let routes = ["--relay", &dead, "--relay", &named, "--route", &named];
    home.run([&usual[..], &routes].concat()).code_is(0);
    home.holds("got", &content);
}

#[test]
fn a_way_is_shown_with_the_relay_nearest_to_us() {
    // Of four relays behind an address the last two were left.
    let home = Home::new();
    let content = Content::random(14, SIZE);
    let origin = honest(&content);
    let relays: Vec<Served> = (0..4).map(|_| home.relay(&[])).collect();
    let route: Vec<String> = relays.iter().map(Served::named).collect();
    let ran = home.run(["get", &url(&origin), "-o", "got", "--route", &route.join(",")]);
    let said = ran.code_is(0).all();
    let line = said.lines().find(|line| line.trim_start().starts_with("2 ")).unwrap();
    let [first, last] = [0, 3].map(|at| relays[at].address().to_string());
    assert!(line.contains(&format!(" by {first}, ")) && line.contains(&last), "{said}");
}
