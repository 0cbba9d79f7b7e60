//! What opens relays, depots and sources, where relays come and go between those who know it.

use std::fs;

use swath_netlab::faulty::Content;

use crate::support::Home;
use crate::support::depot::until;
use crate::support::net::{honest, sha256, url};
use crate::support::relay::{Ear, asked_in_vain};
use crate::support::serve::{Served, reserved_address};

const SIZE: u64 = 9_000_017;

#[test]
fn what_opens_a_depots_relay_is_shown_to_no_other_relay() {
    // It was sealed for the relay next to the depot, as what opens a source is, and that one had it.
    let home = Home::new();
    let content = Content::random(1, SIZE);
    let origin = honest(&content);
    home.write("tokens", "sesame-open\n");
    // It may ask the origin, and nobody else.
    let from = url(&origin);
    let upstream = from.split('/').nth(2).unwrap();
    let usual = ["relay", "--plain", "--listen", "127.0.0.1:0", "--upstream", upstream];
    let depot = ["--clients", "tokens", "--depot", "depot0", "--depot-size", "40M"];
    let depot = Served::of(home.swath(usual.iter().chain(&depot)), &["--token-file"]);
    let with_token = |url: &str| url.replace("http://", "http://any:sesame-open@");
    let stage = |source: &str, at: &[&str], to: &str| {
        let at = at.iter().flat_map(|at| ["--at", at]);
        let args = ["stage", source, "--for", "1h", "-o", to];
        home.run(args.into_iter().chain(at)).code_is(0);
    };
    stage(&from, &[&with_token(&depot.named())], "direct.meta4");
    origin.die();
    // The same, with an ear in front.
    let ear = Ear::before(depot.address(), |_| {});
    let text = String::from_utf8(home.read("direct.meta4")).unwrap();
    home.write("staged.meta4", text.replace(&depot.named(), &ear.url()));
    let is_sealed = || {
        let heads = ear.passed_on(" /depot/");
        assert!(!heads.is_empty());
        for head in heads {
            assert!(head.contains("\r\nswath-pass: ") && !head.contains("authorization"), "{head}");
            assert!(!head.contains("swath-sealed"), "{head}");
        }
    };
    let near = home.relay(&["--cache", "cache"]);
    let with = ["--relay", &near.named(), "--relay", &with_token(&ear.url())];
    let get = |more: &[&str]| home.run([&["get", "staged.meta4", "-o", "got"], more].concat());
    get(&[&with[..], &["--route", &near.named()]].concat()).code_is(0);
    home.holds("got", &content);
    is_sealed();
    // From one depot to another.
    let before = ear.passed_on(" /depot/").len();
    let other = home.relay(&["--depot", "depot1", "--depot-size", "20M"]);
    stage("staged.meta4", &[&with_token(&ear.url()), &other.named()], "again.meta4");
    assert!(ear.passed_on(" /depot/").len() > before);
    is_sealed();
    // Without any route the configuration's token is shown to the depot's relay all the same.
    home.write("token", "sesame-open");
    let config = format!("relays = [{{ url = \"{}\", token-file = \"token\" }}]", ear.url());
    home.write("config.toml", config);
    fs::remove_file(home.path("got")).unwrap();
    let args = ["get", "staged.meta4", "-o", "got", "--route", "direct"];
    home.swath(args).env("SWATH_CONFIG", "config.toml").run().code_is(0);
    home.holds("got", &content);
}

/// A slow origin of 24 MiB that wants a token, and tokens of a relay's.
fn guarded(home: &Home, content: &Content) -> Served {
    home.write("data/run7.h5", content.read(0, 24 << 20));
    home.write("token", "for-the-origin");
    home.write("tokens", "for-the-origin\n");
    home.write("relay-tokens", "for-the-relay\n");
    home.serve(&["data", "--plain", "--token-file", "tokens", "--limit-rate", "6M"])
}

#[test]
fn a_password_in_the_address_of_a_source_opens_it_by_way_of_relays() {
    // Relays are asked for the address without it, and it was sealed for none of them: 401.
    let home = Home::new();
    let content = Content::random(4, 1 << 20);
    home.write("data/run7.h5", content.read(0, 1 << 20));
    home.write("tokens", "for-the-origin\n");
    let origin = home.serve(&["data", "--plain", "--token-file", "tokens"]);
    let (near, far) = (home.relay(&[]), home.relay(&[]));
    let ears = [&near, &far].map(|relay| Ear::before(relay.address(), |_| {}));
    let from = origin.at("run7.h5").replace("http://", "http://me:for-the-origin@");
    let both = format!("{},{}", ears[0].url(), ears[1].url());
    for route in [&ears[0].url(), &both] {
        let args = ["get", &from, "-o", "got", "--overwrite", "--route", route, "--json"];
        let ran = home.run(args);
        ran.code_is(0).never_says(&["for-the-origin"]);
        home.holds("got", &content);
        let told = ran.out();
        assert!(told.contains("\"relays\":") && !told.contains("for-the-origin"), "{told}");
    }
    for ear in &ears {
        // "me:for-the-origin", as browsers send it.
        for secret in ["for-the-origin", "bWU6Zm9yLXRoZS1vcmlnaW4"] {
            assert!(!ear.heard(secret), "{secret}");
        }
        assert!(ear.heard("swath-sealed: "));
    }
}

#[test]
fn what_was_sealed_for_a_relay_that_starts_again_is_sealed_anew() {
    // It has another key then. What was sealed for the old one was refused for good, and the only way
    // was over.
    let home = Home::new();
    let content = Content::random(2, 24 << 20);
    let origin = guarded(&home, &content);
    let far = |address: &str| home.relay_at(address, &["--clients", "relay-tokens"]);
    let (near, relay) = (home.relay(&[]), far(&reserved_address()));
    let address = relay.address().to_string();
    let with_token = relay.named().replace("http://", "http://x:for-the-relay@");
    let route = format!("{},{}", near.named(), relay.named());
    let digest = sha256(&content);
    let get = ["get", &origin.at("run7.h5"), "-o", "got", "--digest", &digest];
    let secrets = ["--bearer-file", "token", "--relay", &near.named(), "--relay", &with_token];
    let getting = home.swath([&get[..], &secrets, &["--route", &route]].concat()).start();
    home.wait_for_bytes("got.swath.part", 6 << 20);
    relay.signal(9);
    relay.wait();
    asked_in_vain(&address);
    let _relay = far(&address);
    getting.wait().code_is(0);
    home.holds("got", &content);
}

#[test]
fn a_depot_that_starts_again_is_shown_anew_what_opens_the_source() {
    // It was lost to the staging, and with it all that it held.
    let home = Home::new();
    let content = Content::random(3, 24 << 20);
    let origin = guarded(&home, &content);
    let depot = |address: &str| {
        let folder = ["--depot", "depot", "--depot-size", "40M"];
        home.relay_at(address, &[&["--clients", "relay-tokens"], &folder[..]].concat())
    };
    let relay = depot(&reserved_address());
    let address = relay.address().to_string();
    let at = relay.named().replace("http://", "http://x:for-the-relay@");
    let stage = ["stage", &origin.at("run7.h5"), "--at", &at, "--for", "1h", "-o", "staged.meta4"];
    let staging = home.swath([&stage[..], &["--bearer-file", "token"]].concat()).start();
    let shown = "Authorization: Bearer for-the-relay\r\n";
    let taken = || relay.ask("GET", "/depot", shown, b"").json()["disk"]["taken_bytes"].as_u64();
    until("it begins", || taken().unwrap() > 0);
    relay.signal(9);
    relay.wait();
    asked_in_vain(&address);
    let _relay = depot(&address);
    staging.wait().code_is(0);
}
