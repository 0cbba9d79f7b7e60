//! What a relay tells of itself: its pages, its key, its round trips to others, its figures.

use serde_json::json;
use swath_netlab::faulty::Content;
use swath_netlab::reserve_port;
use swath_relay::RelayOptions;

use crate::support::{Relay, honest, options, until, url};

fn named(name: &str) -> Relay {
    Relay::start(RelayOptions { name: name.to_owned(), ..options() })
}

#[test]
fn whatever_a_relay_says_itself_is_marked_as_its_own() {
    // A head that was too long, and what a relay tells of itself, could be taken for an answer of
    // the server behind it.
    let relay = named("r1");
    for path in ["/health", "/relay", "/metrics", "/"] {
        let told = relay.ask("GET", path, "", b"").is(200);
        assert_eq!(told.field("proxy-status"), Some("r1"), "{told:?}");
    }
    let long = format!("X: {}\r\n", "x".repeat(100_000));
    for (method, path, field, status) in
        [("GET", "/other", "", 404), ("PUT", "/x", "", 405), ("GET", "/health", &*long, 431)]
    {
        let told = relay.ask(method, path, field, b"").is(status);
        let mark = told.field("proxy-status").unwrap();
        assert!(mark.starts_with("r1; error=http_request_error; details=\""), "{mark}");
    }
}

#[test]
fn a_relay_tells_its_name_its_key_and_how_long_routes_may_be() {
    let (one, two) = (named("one"), named("two"));
    let told = |relay: &Relay| relay.ask("GET", "/relay", "", b"").is(200).json();
    let first = told(&one);
    assert_eq!((&first["relay"], &first["name"]), (&json!("swath"), &json!("one")));
    assert_eq!((&first["hops_max"], &first["hops"]), (&json!(8), &json!({})));
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
    // Its key is its own, and the same as long as it runs.
    assert_eq!(first["key"], told(&one)["key"]);
    assert_ne!(first["key"], told(&two)["key"]);
    let head = one.ask("HEAD", "/relay", "", b"").is(200);
    assert_eq!(head.field("cache-control"), Some("no-store"));
    assert!(head.body.is_empty());
    one.ask("POST", "/relay", "", b"").is(405);
    assert!(one.ask("GET", "/", "", b"").is(200).text().starts_with("one is a relay: "));
}

#[test]
fn round_trips_are_told_of_whom_it_may_ask_alone() {
    let origin = honest(&Content::random(1, 1000));
    let relay = named("r1");
    let gone = format!("http://127.0.0.1:{}", reserve_port());
    let (there, away) = (url(&origin), "http://127.0.0.2:1/f");
    let target = format!("/relay?to={there},{gone}&to={away},nonsense,{there}");
    let hops = relay.ask("GET", &target, "", b"").is(200).json()["hops"].clone();
    assert!(hops[&there]["rtt_ms"].as_f64().is_some_and(|it| it >= 0.0), "{hops}");
    assert_eq!(hops[&gone], json!({"error": "connection_refused"}));
    assert_eq!(hops[away], json!({"error": "not listed"}));
    assert_eq!(hops["nonsense"], json!({"error": "no address"}));
    assert_eq!(hops.as_object().unwrap().len(), 4, "{hops}");
    assert!(origin.log().is_empty(), "no request is needed for that");
    // The connection is kept for whoever asks next.
    until("it is used", || {
        let before = origin.connections();
        relay.get(&there, "").is(200);
        origin.connections() == before
    });
}

#[test]
fn no_more_servers_are_looked_at_than_a_route_could_need() {
    let relay = named("r1");
    let all: Vec<String> = (0..200).map(|at| format!("http://127.0.0.2:1/{at}")).collect();
    let target = format!("/relay?to={}", all.join(","));
    let hops = relay.ask("GET", &target, "", b"").is(200).json()["hops"].clone();
    assert_eq!(hops.as_object().unwrap().len(), 128);
}

#[test]
fn figures_count_what_passed_and_how_it_was_answered() {
    let content = Content::random(1, 10_000);
    let origin = honest(&content);
    let relay = named("r1");
    for name in ["swath_relay_bytes_total", "swath_relay_tunnels_total"] {
        assert_eq!(relay.metric(name), 0);
    }
    relay.get(&url(&origin), "").is(200);
    relay.get(&url(&origin), "Range: bytes=0-99\r\n").is(206);
    relay.head(&url(&origin), "").is(200);
    relay.get("http://127.0.0.2/f", "").is(403);
    until("all are counted", || relay.metric("swath_relay_bytes_total") == 10_100);
    let page = relay.ask("GET", "/metrics", "", b"").is(200);
    assert!(page.field("content-type").unwrap().starts_with("text/plain"), "{page:?}");
    let page = page.text();
    // Every figure has its help and its type, and no address is told.
    let families = page.matches("# TYPE ").count();
    assert!(families >= 5 && families == page.matches("# HELP ").count(), "{page}");
    assert!(!page.contains("127.0.0"), "{page}");
    assert!(!page.contains("swath_depot_") && !page.contains("swath_relay_cache_"), "{page}");
}
