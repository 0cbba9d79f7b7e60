//! A depot that fetches for its clients: from servers, through relays, from other depots, and why not.

use std::io::Write as _;

use serde_json::json;
use swath_netlab::faulty::{Behaviour, Content, Scope};
use swath_netlab::reserve_port;

use crate::support::{
    FILE, LONG, Relay, connect, honest, lending, options, redirecting, server, until, url,
};

const SIZE: u64 = 300_017;

#[test]
fn a_depot_fetches_from_servers_through_relays_and_from_depots() {
    let content = Content::random(3, SIZE);
    let origin = honest(&content);
    let relay = Relay::start(options());
    let (one, two) = (Relay::start(lending(10 << 20)), Relay::start(lending(10 << 20)));
    let lease = one.allocate(SIZE, 600, "");
    let told = one.fetch(&lease, &url(&origin), 0, 200_000, "").is(200);
    assert_eq!(told.last(), json!({"done": true, "stored": 200_000}));
    let told = one.fetch(&lease, &relay.through(&url(&origin)), 200_000, SIZE, "").is(200);
    assert_eq!(told.last()["done"], true);
    assert!(one.ask("GET", &lease.read, "", b"").is(200).body == content.read(0, SIZE));
    // Another depot copies it, and nobody asks the origin for that.
    let asked = origin.log().on(FILE).count();
    let copy = two.allocate(SIZE, 600, "");
    let from = format!("{}{}", one.named(), lease.read);
    two.fetch(&copy, &from, 0, 100_000, "").is(200);
    two.fetch(&copy, &relay.through(&from), 50_000, SIZE, "").is(200);
    assert!(two.ask("GET", &copy.read, "", b"").is(200).body == content.read(0, SIZE));
    assert_eq!(origin.log().on(FILE).count(), asked);
    assert!(two.metric("swath_depot_fetched_bytes_total") >= SIZE);
    // No log holds a capability.
    let digits = lease.read.strip_prefix("/depot/").unwrap();
    let noted = format!("{:?}{:?}", relay.noted(), one.noted());
    assert!(noted.contains(&format!("/depot/{}...", &digits[..8])), "{noted}");
    assert!(!noted.contains(digits) && !noted.contains("from="), "{noted}");
}

#[test]
fn what_is_stored_already_is_not_asked_for_again() {
    let content = Content::random(3, SIZE);
    let origin = honest(&content);
    let depot = Relay::start(lending(10 << 20));
    let lease = depot.allocate(SIZE, 600, "");
    depot.put(&lease, 0, SIZE, &content.read(0, 100_000)).is(204);
    depot.put(&lease, 200_000, SIZE, &content.read(200_000, SIZE)).is(204);
    depot.fetch(&lease, &url(&origin), 0, SIZE, "").is(200);
    let log = origin.log();
    let asked: Vec<_> = log.on(FILE).map(|it| it.range_header().unwrap()).collect();
    assert_eq!(asked, ["bytes=100000-199999"]);
    assert!(depot.ask("GET", &lease.read, "", b"").is(200).body == content.read(0, SIZE));
    // Where nothing is left to come nobody is asked at all.
    let nobody = format!("http://127.0.0.1:{}/", reserve_port());
    let told = depot.fetch(&lease, &nobody, 0, SIZE, "").is(200);
    assert_eq!(told.text().lines().count(), 1, "{}", told.text());
    assert_eq!(told.last(), json!({"done": true, "stored": SIZE}));
}

#[test]
fn a_depot_says_why_it_could_not_fetch() {
    let content = Content::random(4, SIZE);
    let origin = honest(&content);
    let depot = Relay::start(lending(20 << 20));
    let lease = depot.allocate(SIZE, 600, "");
    let refused = |from: &str, fields: &str, status: u16, words: &str| {
        let told = depot.fetch(&lease, from, 0, SIZE, fields).is(status);
        assert!(told.text().contains(words), "{}", told.text());
    };
    refused(&origin.url_as("127.0.0.2", FILE), "", 403, "not among those");
    refused("http://localhost:9/", "", 403, "not among those");
    let gone = format!("127.0.0.1:{}", reserve_port());
    refused(&format!("http://{gone}/"), "", 502, &gone);
    refused(&origin.url("/nothing"), "", 502, "404");
    refused(&url(&origin), "If-Match: \"another\"\r\n", 409, "changed");
    let short = honest(&Content::random(4, 1000));
    refused(&url(&short), "", 409, "1000 bytes there");
    let longer = honest(&Content::random(4, SIZE + 1));
    refused(&url(&longer), "", 409, "300018 bytes there");
    refused("ftp://127.0.0.1/", "", 400, "from=");
    refused("http://me:pw@127.0.0.1/", "", 400, "from=");
    depot.fetch(&lease, &url(&origin), 5, SIZE + 1, "").is(413);
    for (rule, words) in [
        (Behaviour::Unanswered { reset: false }, "127.0.0.1:"),
        (Behaviour::Gzip, "it sends no ranges"),
        (Behaviour::GarbageStatus("SSH-2.0".to_owned()), "127.0.0.1:"),
        (Behaviour::status(503), "503"),
    ] {
        refused(&url(&server(&content, rule)), "", 502, words);
    }
    assert_eq!(depot.status(&lease)["held"], json!([]));
}

#[test]
fn a_server_without_ranges_is_good_for_what_begins_at_the_start() {
    let content = Content::random(4, SIZE);
    let origin = server(&content, Behaviour::NoRanges);
    let depot = Relay::start(lending(20 << 20));
    let lease = depot.allocate(SIZE, 600, "");
    depot.fetch(&lease, &url(&origin), 1000, SIZE, "").is(502).says("it sends no ranges");
    depot.fetch(&lease, &url(&origin), 0, 1000, "").is(200);
    assert_eq!(depot.status(&lease)["held"], json!([[0, 1000]]));
    let told = depot.ask("GET", &lease.read, "Range: bytes=0-999\r\n", b"").is(206);
    assert!(told.body == content.read(0, 1000));
}

#[test]
fn what_came_before_a_server_died_is_kept_and_the_rest_is_asked_for_then() {
    let content = Content::random(4, 3_000_017);
    let size = content.size_bytes();
    let origin = honest(&content);
    let depot = Relay::start(lending(20 << 20));
    let lease = depot.allocate(size, 600, "");
    let dying = server(&content, Behaviour::die_after(1_000_000));
    let told = depot.fetch(&lease, &url(&dying), 0, size, "").is(200).last();
    assert!(told["error"].is_string() && told["status"] == 502, "{told}");
    let held = depot.status(&lease)["held"][0][1].as_u64().unwrap();
    assert!((1..=1_000_000).contains(&held), "{held}");
    depot.fetch(&lease, &url(&origin), 0, size, "").is(200);
    let log = origin.log();
    let asked: Vec<_> = log.on(FILE).map(|it| it.range_header().unwrap().to_owned()).collect();
    assert_eq!(asked, [format!("bytes={held}-{}", size - 1)]);
    assert!(depot.ask("GET", &lease.read, "", b"").is(200).body == content.read(0, size));
}

#[test]
fn what_came_before_a_server_fell_silent_is_durable_and_free_for_others() {
    const CAME: u64 = 1_000_000;
    let content = Content::random(5, 3_000_017);
    let size = content.size_bytes();
    let stall = Behaviour::Stall { after_bytes: CAME, lasts: LONG, scope: Scope::Server };
    let (hung, honest) = (server(&content, stall), honest(&content));
    let depot = Relay::start(lending(20 << 20));
    let lease = depot.allocate(size, 600, "");
    let mut tcp = connect(depot.address);
    let target = format!("{}?from={}&range=0-{}", lease.write, url(&hung), size - 1);
    write!(tcp, "POST {target} HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
    until("what came is held", || depot.status(&lease)["held"][0][1] == CAME);
    // What is durable is claimed by nobody, so that others bring the rest.
    depot.fetch(&lease, &url(&honest), 0, size, "").is(200);
    assert!(depot.ask("GET", &lease.read, "", b"").is(200).body == content.read(0, size));
}

#[test]
fn redirects_are_followed_to_whom_the_relay_asks_and_to_nobody_else() {
    // It follows them itself, so that each has to be judged as what it was asked for.
    let content = Content::random(5, SIZE);
    let origin = honest(&content);
    let depot = Relay::start(lending(20 << 20));
    let lease = depot.allocate(SIZE, 600, "");
    let within = redirecting(&content, &url(&origin));
    let told = depot.fetch(&lease, &url(&within), 0, SIZE, "").is(200).last();
    assert_eq!(told["done"], true, "{told}");
    assert!(depot.ask("GET", &lease.read, "", b"").is(200).body == content.read(0, SIZE));
    let asked = origin.log().len();
    let lease = depot.allocate(SIZE, 600, "");
    let refused = |from: &str, status: u16, words: &str| {
        let told = depot.fetch(&lease, from, 0, SIZE, "").is(status).text();
        assert!(told.contains(words), "{told}");
        assert_eq!(depot.status(&lease)["held"], json!([]), "{told}");
    };
    let not_listed = "it is not among those that this relay asks (--upstream)";
    let astray = redirecting(&content, &origin.url_as("127.0.0.2", FILE));
    refused(&url(&astray), 403, not_listed);
    // Also where a listed one leads on to it.
    refused(&url(&redirecting(&content, &url(&astray))), 403, not_listed);
    assert_eq!(origin.log().len(), asked);
    // Where it leads is no address of the web.
    refused(&url(&redirecting(&content, "ftp://127.0.0.1/f")), 502, "redirects to nowhere");
    // One that leads to itself, and two that lead to each other.
    let own = server(&content, Behaviour::RedirectLoop { status: 302 });
    refused(&url(&own), 502, "it redirects too often");
    let one = honest(&content);
    let two = redirecting(&content, &url(&one));
    one.set(Behaviour::redirect(url(&two)));
    refused(&url(&one), 502, "it redirects too often");
    assert!((2..20).contains(&(one.log().len() + two.log().len())), "{:?}", one.log());
}

#[test]
fn a_version_that_was_asked_for_is_the_only_one_that_is_stored() {
    let (old, new) = (Content::random(5, SIZE), Content::random(6, SIZE));
    let origin = honest(&old);
    let depot = Relay::start(lending(20 << 20));
    let lease = depot.allocate(SIZE, 600, "");
    let told = depot.head(&url(&origin), "").is(200);
    let condition = format!("If-Match: {}\r\n", told.field("etag").unwrap());
    depot.fetch(&lease, &url(&origin), 0, 100_000, &condition).is(200);
    origin.replace(FILE, new);
    depot.fetch(&lease, &url(&origin), 100_000, SIZE, &condition).is(409).says("changed");
    assert_eq!(depot.status(&lease)["held"], json!([[0, 100_000]]));
}

#[test]
fn a_fetch_is_for_as_long_as_somebody_reads_of_it() {
    let content = Content::random(5, 60 << 20);
    let size = content.size_bytes();
    let stall = Behaviour::Stall { after_bytes: 1 << 20, lasts: LONG, scope: Scope::Server };
    let origin = server(&content, stall);
    let depot = Relay::start(lending(64 << 20));
    let lease = depot.allocate(size, 600, "");
    let mut tcp = connect(depot.address);
    let target = format!("{}?from={}&range=0-{}", lease.write, url(&origin), size - 1);
    write!(tcp, "POST {target} HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
    until("it has begun", || origin.sent_bytes() == 1 << 20);
    drop(tcp);
    until("it is given up", || relay_noted(&depot, "POST", 200));
    // The server would send the rest now, if anybody were there.
    origin.clear();
    let is_left = |it: &swath_netlab::faulty::Handle| it.open_connections() == 0;
    assert!(origin.handle().wait_until(crate::support::HANG, is_left), "it is still asked");
    // What had come stays.
    until("it is kept", || depot.status(&lease)["held_bytes"] == json!(1 << 20));
}

fn relay_noted(relay: &Relay, method: &str, status: u16) -> bool {
    relay.noted().iter().any(|it| it.method == method && it.status == status)
}
