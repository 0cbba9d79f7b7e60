//! Who may use a relay: networks, tokens, pages of other sites, and relays that would be for everybody.

use std::time::{Duration, SystemTime};

use swath_netlab::faulty::Content;
use swath_relay::{Clients, RelayError, RelayOptions, RelayServerOptions, bind};
use swath_serve::{Access, Congestion, Listening, Tls, Token};

use crate::support::{
    Relay, access, honest, lending, networks, options, token, tokens, until, url,
};

fn bearer(secret: &str) -> String {
    format!("Authorization: Bearer {secret}\r\n")
}

#[test]
fn a_token_that_is_listed_and_not_over_opens_a_relay() {
    let origin = honest(&Content::random(5, 1000));
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800);
    let old = Token { expires: Some(old), ..token("old") };
    let clients = Clients::new(Vec::new(), Some(Access::new(vec![token("secret"), old], vec![])));
    let relay = Relay::start(RelayOptions { clients, ..options() });
    let none = relay.get(&url(&origin), "").is(401);
    assert!(none.field("www-authenticate").is_some(), "{none:?}");
    none.says("and was shown no token");
    relay.head(&url(&origin), &bearer("secret")).is(200);
    for wrong in ["old", "wrong", "secre", "secrets"] {
        relay.head(&url(&origin), &bearer(wrong)).is(401).says("not who shows this token");
    }
    // As browsers send it: the password of any user.
    relay.head(&url(&origin), "Authorization: Basic bWU6c2VjcmV0\r\n").is(200);
    relay.head(&url(&origin), "Authorization: Basic c2VjcmV0Om1l\r\n").is(401);
    assert!(!origin.log().has_credentials(), "none of that was for the origin");
}

#[test]
fn clients_of_proxies_are_asked_in_the_words_of_proxies() {
    let origin = honest(&Content::random(5, 1000));
    let relay = Relay::start(RelayOptions { clients: tokens(&["secret"]), ..options() });
    let told = relay.proxied(&url(&origin), "").is(407);
    assert!(told.field("proxy-authenticate").is_some(), "{told:?}");
    assert_eq!(told.field("www-authenticate"), None);
    relay.proxied(&url(&origin), "Proxy-Authorization: Basic eDpzZWNyZXQ=\r\n").is(200);
    // In this form what is in `Authorization` is for the origin.
    relay.proxied(&url(&origin), &bearer("secret")).is(407);
    let (head, _) = relay.connect_to(&origin.address().to_string(), "");
    assert!(head.starts_with("HTTP/1.1 407 "), "{head}");
    let shown = "Proxy-Authorization: Bearer secret\r\n";
    let (head, _) = relay.connect_to(&origin.address().to_string(), shown);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(!origin.log().has_credentials());
}

#[test]
fn networks_open_a_relay_and_other_networks_do_not() {
    let origin = honest(&Content::random(5, 1000));
    let elsewhere = Relay::start(RelayOptions { clients: networks("192.0.2.0/24"), ..options() });
    elsewhere.get(&url(&origin), "").is(403).says("it lets others in");
    elsewhere.proxied(&url(&origin), "").is(403);
    // A token is nothing where none is asked for.
    elsewhere.get(&url(&origin), &bearer("any")).is(403);
    assert!(origin.log().is_empty());
    Relay::start(RelayOptions { clients: networks("127.0.0.1/32"), ..options() })
        .get(&url(&origin), "")
        .is(200);
}

#[test]
fn of_networks_and_tokens_either_is_enough() {
    let origin = honest(&Content::random(5, 1000));
    let of = |network: &str| {
        let clients = Clients::new(vec![network.parse().unwrap()], Some(access(&["secret"])));
        Relay::start(RelayOptions { clients, ..options() })
    };
    let near = of("127.0.0.0/8");
    near.get(&url(&origin), "").is(200);
    // Whoever comes from there need not show the right one.
    near.get(&url(&origin), &bearer("wrong")).is(200);
    let far = of("192.0.2.0/24");
    far.get(&url(&origin), "").is(401);
    far.get(&url(&origin), &bearer("secret")).is(200);
}

#[test]
fn what_a_relay_tells_of_itself_is_for_its_clients_and_its_health_for_everybody() {
    let clients = tokens(&["secret"]);
    let relay = Relay::start(RelayOptions { clients, ..lending(1 << 20) });
    for path in ["/", "/relay", "/metrics", "/depot", "/other"] {
        let told = relay.ask("GET", path, "", b"").is(401);
        assert!(!told.text().contains("swath_relay_bytes"), "{told:?}");
    }
    relay.ask("POST", "/depot?size=10&lease=60", "", b"").is(401);
    relay.ask("GET", "/metrics", &bearer("secret"), b"").is(200).says("swath_relay_bytes_total 0");
    assert_eq!(relay.ask("GET", "/health", "", b"").is(200).text(), "well\n");
    relay.ask("HEAD", "/health", "", b"").is(200);
    relay.ask("POST", "/health", "", b"").is(401);
}

#[test]
fn tokens_that_are_taken_away_open_nothing_from_the_next_request_on() {
    // An emptied list left all tokens good that had been in it.
    let access = access(&["first"]);
    let clients = Clients::new(Vec::new(), Some(access.clone()));
    let relay = Relay::start(RelayOptions { clients, ..options() });
    let shows = |secret: &str| relay.ask("GET", "/relay", &bearer(secret), b"").status;
    assert_eq!((shows("first"), shows("second")), (200, 401));
    access.set_tokens(vec![token("second")]);
    assert_eq!((shows("first"), shows("second")), (401, 200));
    access.set_tokens(Vec::new());
    assert_eq!((shows("first"), shows("second")), (401, 401));
    relay.ask("GET", "/relay", "", b"").is(401);
}

#[test]
fn a_page_that_leads_its_own_name_here_asks_for_nothing() {
    let origin = honest(&Content::random(5, 1000));
    let hosts = Some(vec!["between".to_owned(), "here.example".to_owned()]);
    let relay = Relay::start(RelayOptions { hosts, clients: tokens(&["secret"]), ..options() });
    let open = Relay::start(RelayOptions { hosts: Some(vec!["here.example".into()]), ..options() });
    let ask = |relay: &Relay, host: &str, more: &str| {
        let target = format!("/relay/{}", url(&origin));
        let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}");
        String::from_utf8_lossy(&relay.raw(&format!("{head}\r\n"))).into_owned()
    };
    for own in ["127.0.0.1:8470", "localhost", "r", "here.example:1", "HERE.example."] {
        let told = ask(&open, own, "");
        assert!(told.starts_with("HTTP/1.1 200 "), "{own}: {told}");
    }
    for strange in ["evil.example", "evil.example:8470", "here.example.evil.example"] {
        let told = ask(&open, strange, "");
        assert!(told.starts_with("HTTP/1.1 403 ") && told.contains("a page of another"), "{told}");
        // Whoever shows a token is no page of another site.
        let told = ask(&relay, strange, &bearer("secret"));
        assert!(told.starts_with("HTTP/1.1 200 "), "{strange}: {told}");
    }
}

#[tokio::test]
async fn no_relay_begins_that_is_for_everybody_or_for_nothing() {
    let begin = async |relay: RelayOptions| {
        let at = vec!["127.0.0.1:0".parse().unwrap()];
        let congestion = Congestion::Auto;
        let listening = Listening { at, tls: Tls::Plain, max_connections: 9, congestion };
        bind(RelayServerOptions { relay, listening }, None).await.map(drop)
    };
    for tokens in [None, Some(Access::new(Vec::new(), Vec::new()))] {
        let clients = Clients::new(Vec::new(), tokens);
        let error = begin(RelayOptions { clients, ..options() }).await.unwrap_err();
        assert!(matches!(error, RelayError::NoClients), "{error}");
    }
    let error = begin(RelayOptions { upstreams: Vec::new(), ..options() }).await.unwrap_err();
    assert!(matches!(error, RelayError::NoUpstreams), "{error}");
    begin(options()).await.unwrap();
}

#[test]
fn a_refused_client_costs_the_origin_no_connection() {
    let origin = honest(&Content::random(5, 1000));
    let relay = Relay::start(RelayOptions { clients: tokens(&["secret"]), ..options() });
    let from = url(&origin);
    relay.get(&from, "").is(401);
    relay.head(&from, &bearer("wrong")).is(401);
    relay.proxied(&from, "").is(407);
    relay.ask("GET", "/metrics", &bearer("secret"), b"").is(200);
    until("all are noted", || relay.noted().len() == 4);
    let noted = relay.noted();
    assert_eq!(origin.connections(), 0);
    assert_eq!(noted.iter().map(|it| it.status).collect::<Vec<_>>(), [401, 401, 407, 200]);
}
