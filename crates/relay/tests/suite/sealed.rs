//! What is sealed for a relay's key: tokens for it that pass others, and header lines for the origin that
//! the relays before it cannot read.

use std::time::{SystemTime, UNIX_EPOCH};

use swath_netlab::faulty::{Behaviour, Content};
use swath_relay::RelayOptions;
use swath_source::{Pass, SEALED_LASTS_S, seal};

use crate::support::{Ear, FILE, Relay, Told, honest, options, server, tokens, url, whole};

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A relay for whoever shows the token, and its key.
fn closed() -> (Relay, String) {
    let relay = Relay::start(RelayOptions { clients: tokens(&["secret"]), ..options() });
    let shown = "Authorization: Bearer secret\r\n";
    let key = relay.ask("GET", "/relay", shown, b"").is(200).json()["key"].clone();
    (relay, key.as_str().unwrap().to_owned())
}

fn key(relay: &Relay) -> String {
    relay.ask("GET", "/relay", "", b"").is(200).json()["key"].as_str().unwrap().to_owned()
}

fn pass(key: &str, purpose: &Pass<'_>, secret: &str) -> String {
    let text = format!("Bearer {secret}");
    format!("swath-pass: {}\r\n", seal(key, &purpose.purpose(), text.as_bytes(), now_s()).unwrap())
}

fn fault(told: &Told) -> &str {
    told.field("proxy-status").unwrap()
}

#[test]
fn a_sealed_token_opens_the_relay_behind_another_and_no_other_reads_it() {
    let content = Content::random(6, 10_000);
    let origin = honest(&content);
    let (far, far_key) = closed();
    let ear = Ear::before(far.address);
    let near = Relay::start(options());
    let from = url(&origin);
    let over = format!("http://{}/relay/{from}", ear.address);
    near.get(&over, "").is(401).says("was shown no token");
    let told = near.get(&over, &pass(&far_key, &Pass::Read(&from), "secret")).is(200);
    assert!(told.body == whole(&content));
    assert!(ear.heard("swath-pass: ") && !ear.heard("secret"));
    assert!(origin.log().on(FILE).all(|it| it.header("swath-pass").is_none()));
    near.get(&over, &pass(&far_key, &Pass::Read(&from), "wrong")).is(401).says("not who shows");
}

#[test]
fn a_sealed_token_is_good_once_and_for_what_it_was_sealed_for() {
    let origin = honest(&Content::random(6, 1000));
    let (relay, key) = closed();
    let from = url(&origin);
    let good = pass(&key, &Pass::Read(&from), "secret");
    relay.get(&from, &good).is(200);
    let again = relay.get(&from, &good).is(401);
    assert!(fault(&again).contains("error="), "{again:?}");
    // For another file, as a tunnel, or for another relay it opens nothing.
    let other = format!("{from}?other");
    relay.get(&other, &pass(&key, &Pass::Read(&from), "secret")).is(401);
    let end = origin.address().to_string();
    relay.get(&from, &pass(&key, &Pass::Tunnel(&end), "secret")).is(401);
    let (_, other_key) = closed();
    relay.get(&from, &pass(&other_key, &Pass::Read(&from), "secret")).is(401);
    let (head, _) = relay.connect_to(&end, &pass(&key, &Pass::Tunnel(&end), "secret"));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(origin.log().len(), 1);
}

#[test]
fn what_was_sealed_too_long_ago_opens_nothing() {
    let origin = honest(&Content::random(6, 1000));
    let (relay, key) = closed();
    let from = url(&origin);
    for at in [now_s() - 2 * SEALED_LASTS_S, now_s() + 2 * SEALED_LASTS_S] {
        let sealed = seal(&key, &Pass::Read(&from).purpose(), b"Bearer secret", at).unwrap();
        relay.get(&from, &format!("swath-pass: {sealed}\r\n")).is(401);
    }
    for nonsense in ["", "x", "a.b", &*format!("{}.{}", "A".repeat(64), "A".repeat(64))] {
        relay.get(&from, &format!("swath-pass: {nonsense}\r\n")).is(401);
    }
    assert!(origin.log().is_empty());
}

#[test]
fn sealed_lines_are_shown_to_the_origin_by_the_last_relay() {
    let content = Content::random(6, 10_000);
    let wanted = "Bearer for-the-origin".to_owned();
    let origin = server(&content, Behaviour::RequireAuthorization(wanted));
    let far = Relay::start(options());
    let ear = Ear::before(far.address);
    let near = Relay::start(options());
    let from = url(&origin);
    let over = format!("http://{}/relay/{from}", ear.address);
    let lines = b"Authorization: Bearer for-the-origin\r\nX-Own: mine\r\n";
    let sealed =
        |key: &str| format!("swath-sealed: {}\r\n", seal(key, &from, lines, now_s()).unwrap());
    let told = near.get(&over, &sealed(&key(&far))).is(200);
    assert!(told.body == whole(&content));
    assert!(ear.heard("swath-sealed: ") && !ear.heard("for-the-origin") && !ear.heard("x-own"));
    let log = origin.log();
    let asked = log.on(FILE).next().unwrap();
    assert_eq!((asked.header("x-own"), asked.header("swath-sealed")), (Some("mine"), None));
    // For another relay it is of no use, and that is told.
    let told = near.get(&over, &sealed(&key(&near)));
    assert!((400..500).contains(&told.status), "{told:?}");
    assert_eq!(origin.log().len(), 1);
}

#[test]
fn sealed_lines_are_good_once_and_change_no_framing() {
    let origin = honest(&Content::random(6, 1000));
    let relay = Relay::start(options());
    let (from, key) = (url(&origin), key(&relay));
    let ask = |lines: &[u8]| {
        let sealed = seal(&key, &from, lines, now_s()).unwrap();
        (
            format!("swath-sealed: {sealed}\r\n"),
            relay.get(&from, &format!("swath-sealed: {sealed}\r\n")),
        )
    };
    let (sealed, told) = ask(b"X-Own: mine\r\n");
    told.is(200);
    let again = relay.get(&from, &sealed);
    assert!((400..500).contains(&again.status), "{again:?}");
    for odd in [
        &b"Host: other\r\n"[..],
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Range: bytes=0-0\r\n",
        b"no line",
        b"a b: c\r\n",
        b"a: \xff\r\n",
    ] {
        let (_, told) = ask(odd);
        told.is(403).says("no header lines");
    }
    assert_eq!(origin.log().len(), 1);
}

#[test]
fn credentials_in_the_clear_are_for_the_relay_and_end_there() {
    let origin = honest(&Content::random(6, 1000));
    let (relay, _) = closed();
    let near = Relay::start(options());
    relay.get(&url(&origin), "Authorization: Bearer secret\r\n").is(200);
    // Nor does a relay show the next one what it was shown.
    near.get(&relay.through(&url(&origin)), "Authorization: Bearer secret\r\n").is(401);
    assert!(!origin.log().has_credentials());
}
