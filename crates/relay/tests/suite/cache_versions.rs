//! Files that change while a relay keeps them: no answer mixes two versions, and nobody is shown an old
//! one for long.

use std::io::{Read as _, Write as _};

use swath_netlab::faulty::{Behaviour, Content, Scope, Server};

use crate::support::{
    FILE, LONG, Relay, caching, connect, head_of, honest, server, to_end, until, url, whole,
};

const MIB: u64 = 1 << 20;

#[test]
fn a_file_that_changes_is_never_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Content::random(3, 20 * MIB), Content::random(4, 20 * MIB));
    // The change comes while some of it is still to be asked for.
    let origin =
        server(&old, Behaviour::Stall { after_bytes: 2 * MIB, lasts: LONG, scope: Scope::Server });
    let relay = Relay::start(caching(folder.path()));
    let mut tcp = connect(relay.address);
    write!(tcp, "GET /relay/{} HTTP/1.1\r\nHost: a\r\n\r\n", url(&origin)).unwrap();
    assert!(head_of(&mut tcp).unwrap().starts_with("HTTP/1.1 200 "));
    let mut got = vec![0; 1 << 20];
    tcp.read_exact(&mut got).unwrap();
    origin.replace(FILE, new.clone());
    origin.clear();
    got.extend(to_end(&mut tcp));
    assert!(got.len() < 20 << 20, "it is cut, not mixed");
    assert!(old.read(0, got.len() as u64) == got, "{}", got.len());
    // What is known is at most two seconds old.
    until("the new one comes", || relay.get(&url(&origin), "").body == whole(&new));
}

#[test]
fn a_client_that_may_not_wait_asks_for_news() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Content::random(3, MIB), Content::random(4, MIB));
    // The server says that it may be believed for an hour.
    let origin = server(&old, Behaviour::header("Cache-Control", "max-age=3600"));
    let relay = Relay::start(caching(folder.path()));
    let from = url(&origin);
    assert!(relay.get(&from, "").is(200).body == whole(&old));
    origin.replace(FILE, new.clone());
    assert!(relay.get(&from, "").is(200).body == whole(&old), "it is fresh for an hour");
    assert!(relay.get(&from, "Cache-Control: no-cache\r\n").is(200).body == whole(&new));
    // What was found out for one counts for all.
    let asked = origin.log().count("HEAD");
    assert!(relay.get(&from, "").is(200).body == whole(&new));
    assert_eq!(origin.log().count("HEAD"), asked);
}

#[test]
fn what_must_be_asked_about_each_time_is() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Content::random(3, MIB), Content::random(4, MIB));
    let origin = server(&old, Behaviour::header("Cache-Control", "no-cache"));
    let relay = Relay::start(caching(folder.path()));
    for round in 1..=3 {
        assert!(relay.get(&url(&origin), "").is(200).body == whole(&old));
        assert_eq!(origin.log().count("HEAD"), round);
    }
    // It is kept all the same.
    until("it has sent it once", || origin.log().sent_bytes(FILE) == MIB);
    origin.replace(FILE, new.clone());
    assert!(relay.get(&url(&origin), "").is(200).body == whole(&new));
}

#[test]
fn a_file_that_is_gone_is_gone_for_clients_who_ask_for_news() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(3, MIB);
    let origin = honest(&content);
    let relay = Relay::start(caching(folder.path()));
    relay.get(&url(&origin), "").is(200);
    origin.set(Behaviour::status(404));
    relay.get(&url(&origin), "Cache-Control: no-cache\r\n").is(404);
    origin.clear();
    until("it is back", || {
        let told = relay.get(&url(&origin), "Cache-Control: no-cache\r\n");
        told.status == 200 && told.body == whole(&content)
    });
}

#[test]
fn two_addresses_of_one_server_are_two_files() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (Content::random(3, MIB), Content::random(4, MIB));
    let origin = Server::builder().file("/one", one.clone()).file("/two", two.clone());
    let origin = origin.start().unwrap();
    let relay = Relay::start(caching(folder.path()));
    for _ in 0..2 {
        assert!(relay.get(&origin.url("/one"), "").is(200).body == whole(&one));
        assert!(relay.get(&origin.url("/two"), "").is(200).body == whole(&two));
    }
    assert_eq!(relay.metric("swath_relay_cache_files"), 2);
    // So are those with different queries: servers may mean something by them.
    assert!(relay.get(&origin.url("/one?x"), "").is(200).body == whole(&one));
    assert_eq!(relay.metric("swath_relay_cache_files"), 3);
}

#[test]
fn a_server_that_dies_in_the_middle_is_gone_on_with_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(3, 4 * MIB);
    let origin = server(&content, Behaviour::Truncate { after_bytes: 3 * MIB }.first(2));
    let relay = Relay::start(caching(folder.path()));
    // The first one may be cut where the server broke off; what came is kept.
    let first = relay.get(&url(&origin), "").is(200);
    assert!(first.body == content.read(0, first.body.len() as u64));
    origin.clear();
    assert!(relay.get(&url(&origin), "").is(200).body == whole(&content));
    let sent = origin.log().sent_bytes(FILE);
    assert!(sent < 2 * 4 * MIB, "what came counts: {sent}");
}
