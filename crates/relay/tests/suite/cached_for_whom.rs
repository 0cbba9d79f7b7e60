//! What a relay keeps for nobody: answers that are for one client alone, or that may differ from client to
//! client.

use swath_netlab::faulty::{Behaviour, Content, Server};
use swath_relay::RelayOptions;
use swath_source::seal;

use crate::support::{FILE, Relay, caching, honest, server, tokens, until, url, whole};

const MIB: u64 = 1 << 20;

fn sent(origin: &Server) -> u64 {
    origin.log().sent_bytes(FILE)
}

/// It has sent so many, and has noted them, which may be a moment after they came.
#[track_caller]
fn has_sent(origin: &Server, bytes: u64) {
    until(&format!("it has sent {bytes}, not {}", sent(origin)), || sent(origin) == bytes);
}

fn kept_nothing(relay: &Relay) {
    for name in ["swath_relay_cache_files", "swath_relay_cache_fetched_bytes_total"] {
        assert_eq!(relay.metric(name), 0, "{name}");
    }
}

#[test]
fn what_a_server_says_may_not_be_kept_passes_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(5, MIB);
    let relay = Relay::start(caching(folder.path()));
    for (name, value) in [
        ("Cache-Control", "no-store"),
        ("Cache-Control", "private, max-age=9"),
        ("Vary", "Cookie"),
        ("Set-Cookie", "a=b"),
        ("Content-Encoding", "x-own"),
    ] {
        let origin = server(&content, Behaviour::header(name, value));
        for round in 1..=2 {
            assert!(relay.get(&url(&origin), "").is(200).body == whole(&content));
            has_sent(&origin, round * content.size_bytes());
        }
    }
    kept_nothing(&relay);
}

#[test]
fn what_opens_the_origin_opens_nothing_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(5, MIB);
    let origin = honest(&content);
    let relay = Relay::start(caching(folder.path()));
    for (round, shown) in (1..).zip(["Authorization: Basic eDp5", "X-Api-Key: 7", "Cookie: a=b"]) {
        let told = relay.proxied(&url(&origin), &format!("{shown}\r\n")).is(200);
        assert!(told.body == whole(&content));
        has_sent(&origin, round * content.size_bytes());
    }
    let key = relay.ask("GET", "/relay", "", b"").json()["key"].as_str().unwrap().to_owned();
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let lines = b"Authorization: Bearer secret-token\r\n";
    let sealed = seal(&key, &url(&origin), lines, now_s.as_secs()).unwrap();
    relay.get(&url(&origin), &format!("swath-sealed: {sealed}\r\n")).is(200);
    has_sent(&origin, 4 * content.size_bytes());
    kept_nothing(&relay);
}

#[test]
fn what_opens_the_relay_is_no_matter_to_what_it_keeps() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(5, MIB);
    let origin = honest(&content);
    let clients = tokens(&["one", "two"]);
    let relay = Relay::start(RelayOptions { clients, ..caching(folder.path()) });
    for secret in ["one", "two", "one"] {
        let shown = format!("Authorization: Bearer {secret}\r\n");
        assert!(relay.get(&url(&origin), &shown).is(200).body == whole(&content));
    }
    has_sent(&origin, content.size_bytes());
    // And whoever may not use the relay is shown nothing of it.
    relay.get(&url(&origin), "").is(401);
    relay.get(&url(&origin), "Authorization: Bearer three\r\n").is(401);
}

#[test]
fn servers_without_ranges_versions_or_heads_are_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(5, MIB);
    let relay = Relay::start(caching(folder.path()));
    for odd in [
        Behaviour::NoRanges,
        Behaviour::Chunked { chunk_bytes: 5000 },
        Behaviour::NoValidators,
        Behaviour::Etag("W/\"weak\"".to_owned()),
        Behaviour::RefuseMethod("HEAD".to_owned()),
    ] {
        let origin = server(&content, odd.clone());
        for _ in 0..2 {
            assert!(relay.get(&url(&origin), "").is(200).body == whole(&content), "{odd:?}");
        }
        let part = relay.get(&url(&origin), "Range: bytes=500000-600000\r\n");
        match part.status {
            206 => assert!(part.body == content.read(500_000, 600_001), "{odd:?}"),
            _ => assert!(part.is(200).body == whole(&content), "{odd:?}"),
        }
    }
}

#[test]
fn clients_who_want_nothing_kept_have_their_way() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(5, MIB);
    let origin = honest(&content);
    let relay = Relay::start(caching(folder.path()));
    for _ in 0..2 {
        relay.get(&url(&origin), "Cache-Control: no-store\r\n").is(200);
    }
    has_sent(&origin, 2 * content.size_bytes());
    let ranges = "Range: bytes=0-9,20-29\r\n";
    relay.get(&url(&origin), ranges);
    kept_nothing(&relay);
}

#[test]
fn what_comes_by_another_relay_with_a_pass_is_kept_for_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(5, MIB);
    let origin = honest(&content);
    let far = Relay::start(crate::support::options());
    let near = Relay::start(caching(folder.path()));
    let over = far.through(&url(&origin));
    // It opens nothing here, and would not be needed; but that nobody between can know.
    near.get(&over, "swath-pass: a.b\r\n").is(200);
    kept_nothing(&near);
    near.get(&over, "").is(200);
    assert_eq!(near.metric("swath_relay_cache_files"), 1);
}
