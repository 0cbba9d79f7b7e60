//! Routes of several relays: each passes on to the next, and circles and long routes end.

use swath_netlab::faulty::Content;

use crate::support::{FILE, Relay, honest, lending, options, url, whole};

fn long(mut url: String, relays: &[&Relay]) -> String {
    for relay in relays.iter().rev() {
        url = relay.through(&url);
    }
    url
}

/// What the first relay of an address is asked for.
fn target(address: &str) -> &str {
    &address[address.find("/relay/").unwrap()..]
}

#[test]
fn a_route_of_seven_relays_passes_and_each_adds_its_name_and_its_hop() {
    let content = Content::random(4, 100_003);
    let origin = honest(&content);
    let relays: Vec<Relay> = (0..7).map(|_| Relay::start(options())).collect();
    let address = long(url(&origin), &relays.iter().collect::<Vec<_>>());
    let told = relays[0].ask("GET", target(&address), "", b"").is(200);
    assert!(told.body == whole(&content));
    assert_eq!(told.head.matches("server-timing: hop;").count(), 7, "{}", told.head);
    let via = told.field("via").unwrap();
    assert_eq!(via.matches("1.1 swath-").count(), 7, "{via}");
    let log = origin.log();
    let asked = log.on(FILE).next().unwrap().header("via").unwrap();
    assert_eq!(asked.matches("1.1 swath-").count(), 7, "{asked}");
    // Each has its own name, by which it knows itself again.
    let mut names: Vec<&str> = asked.split(", ").collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 7);
}

#[test]
fn circles_end_at_the_relay_that_is_asked_twice() {
    let origin = honest(&Content::random(4, 1000));
    let (one, two) = (Relay::start(options()), Relay::start(options()));
    let circle = long(url(&origin), &[&one, &two, &one]);
    let told = one.ask("GET", target(&circle), "", b"").is(508).says("the route is a loop");
    assert!(told.field("proxy-status").unwrap().contains("proxy_loop_detected"), "{told:?}");
    one.get(&one.through(&url(&origin)), "").is(508);
    assert!(origin.log().is_empty());
}

#[test]
fn more_than_seven_relays_are_too_many() {
    let origin = honest(&Content::random(4, 1000));
    let one = Relay::start(options());
    let address = long(url(&origin), &[&one; 8]);
    one.ask("GET", target(&address), "", b"").is(400).says("8 relays").says("at most 7");
    assert!(origin.log().is_empty());
}

#[test]
fn what_came_by_others_counts_like_what_is_still_to_come() {
    let origin = honest(&Content::random(4, 1000));
    let (one, two) = (Relay::start(options()), Relay::start(options()));
    let via = |relays: u32| {
        let passed = (0..relays).map(|relay| format!("1.1 swath-{relay:016x}"));
        format!("Via: {}\r\n", passed.collect::<Vec<_>>().join(", "))
    };
    let both = two.through(&url(&origin));
    one.get(&both, &via(6)).is(508).says("more than 7 relays");
    one.get(&url(&origin), &via(7)).is(508).says("more than 7 relays");
    // The same for tunnels, and for what a depot is to fetch.
    let end = origin.address().to_string();
    let (head, _) = one.connect_to(&end, &via(7));
    assert!(head.starts_with("HTTP/1.1 508 "), "{head}");
    let depot = Relay::start(lending(1 << 20));
    let lease = depot.allocate(1000, 600, "");
    depot.fetch(&lease, &url(&origin), 0, 1000, &via(7)).is(508);
    assert!(origin.log().is_empty());
    one.get(&url(&origin), &via(6)).is(200);
    one.get(&both, &via(5)).is(200);
    // Proxies of other kinds are no relays.
    one.get(&url(&origin), &format!("Via: {}1.1 squid\r\n", "1.1 squid, ".repeat(9))).is(200);
}

#[test]
fn the_fault_of_a_relay_behind_another_comes_back_as_its_word() {
    let origin = honest(&Content::random(4, 1000));
    let far = {
        let upstreams = vec!["192.0.2.1".parse().unwrap()];
        Relay::start(swath_relay::RelayOptions { name: "far".to_owned(), upstreams, ..options() })
    };
    let near = Relay::start(options());
    let told = near.get(&far.through(&url(&origin)), "").is(403);
    let status = told.field("proxy-status").unwrap();
    assert!(status.starts_with("far; error=http_request_denied"), "{status}");
    assert!(told.text().starts_with("relay far: "), "{}", told.text());
}

#[test]
fn two_slashes_that_somebody_made_one_are_two_again() {
    let content = Content::random(4, 1000);
    let origin = honest(&content);
    let relay = Relay::start(options());
    let merged = url(&origin).replace("http://", "http:/");
    assert!(relay.get(&merged, "").is(200).body == whole(&content));
}
