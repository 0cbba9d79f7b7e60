//! Whom a relay asks: what is listed, by whatever name it is asked for, and nobody else.

use proptest::prelude::*;
use swath_netlab::faulty::{Behaviour, Content};
use swath_netlab::reserve_port;
use swath_relay::{RelayOptions, Upstream, UpstreamError};

use crate::support::{FILE, Relay, honest, options, redirecting, server, url, whole};

fn asking(upstreams: &[&str]) -> Relay {
    let upstreams = upstreams.iter().map(|it| it.parse().unwrap()).collect();
    Relay::start(RelayOptions { name: "narrow".to_owned(), upstreams, ..options() })
}

#[test]
fn what_is_not_listed_is_not_asked() {
    let origin = honest(&Content::random(3, 1000));
    let narrow = asking(&["127.0.0.1", "192.0.2.1:80"]);
    // 127.0.0.1 is listed, and 127.0.0.2 is another.
    let other = origin.url_as("127.0.0.2", FILE);
    let told = narrow.get(&other, "").is(403).says("not among those");
    assert!(
        told.field("proxy-status")
            .is_some_and(|it| it.starts_with("narrow; error=http_request_denied")),
        "{told:?}"
    );
    narrow.proxied(&other, "").is(403);
    let (head, _) = narrow.connect_to(&format!("127.0.0.2:{}", origin.port()), "");
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    narrow.get("http://192.0.2.1:81/f", "").is(403);
    assert_eq!(origin.connections(), 0);
}

#[test]
fn what_is_no_address_is_refused_without_a_word_of_its_password() {
    let narrow = asking(&["127.0.0.1"]);
    for odd in
        ["ftp://127.0.0.1/x", "127.0.0.1/x", "http://user:pw@127.0.0.1/x", "http://", "http:///f"]
    {
        let told = narrow.get(odd, "").is(400);
        assert!(!told.text().contains("pw") && !told.head.contains("pw"), "{odd}: {told:?}");
    }
    let noted = format!("{:?}", narrow.noted());
    assert!(!noted.contains("pw@"), "{noted}");
    // Nothing at all behind it is a question about the relay itself.
    assert_eq!(narrow.ask("GET", "/relay/", "", b"").is(200).json()["name"], "narrow");
}

#[test]
fn a_port_that_is_listed_opens_no_other_one() {
    let content = Content::random(3, 1000);
    let (one, two) = (honest(&content), honest(&content));
    let relay = asking(&[&one.address().to_string()]);
    assert!(relay.get(&url(&one), "").is(200).body == whole(&content));
    relay.get(&url(&two), "").is(403);
    let (head, _) = relay.connect_to(&two.address().to_string(), "");
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert!(two.log().is_empty());
}

#[test]
fn an_address_is_the_same_however_it_is_written() {
    let content = Content::random(3, 1000);
    let origin = honest(&content);
    let (listed, other) = (asking(&["127.0.0.0/8"]), asking(&["192.0.2.0/24", "localhost"]));
    for host in ["127.0.0.1", "2130706433", "0x7f000001", "127.1"] {
        let from = format!("http://{host}:{}{FILE}", origin.port());
        assert!(listed.get(&from, "").is(200).body == whole(&content), "{host}");
        other.get(&from, "").is(403);
    }
}

#[test]
fn localhost_is_a_name_that_may_lead_to_this_machine_if_it_is_listed() {
    let content = Content::random(3, 1000);
    let origin = honest(&content);
    let named = origin.url_as("localhost", FILE);
    assert!(asking(&["localhost"]).get(&named, "").is(200).body == whole(&content));
    // By the network alone the name is not listed.
    asking(&["127.0.0.0/8"]).get(&named, "").is(403);
    let other_port = asking(&[&format!("localhost:{}", reserve_port())]);
    other_port.get(&named, "").is(403);
}

#[test]
fn a_redirect_leads_through_the_relay_again_and_is_judged_there() {
    let content = Content::random(3, 1000);
    let origin = honest(&content);
    let relay = asking(&["127.0.0.1"]);
    let follow = |from: &str| {
        let told = relay.get(from, "").is(302);
        let to = told.field("location").unwrap().to_owned();
        assert!(to.starts_with("/relay/http://127.0.0."), "{to}");
        relay.ask("GET", &to, "", b"")
    };
    let within = redirecting(&content, &url(&origin));
    assert!(follow(&url(&within)).is(200).body == whole(&content));
    let away = redirecting(&content, &origin.url_as("127.0.0.2", FILE));
    follow(&url(&away)).is(403).says("not among those");
    // Relative ones lead to the server that was asked.
    origin.put("/elsewhere", content.clone());
    let beside = server(&content, Behaviour::redirect("/elsewhere").first(1));
    beside.put("/elsewhere", content.clone());
    assert!(follow(&url(&beside)).is(200).body == whole(&content));
    // Clients of proxies ask the proxy again by themselves.
    let told = relay.proxied(&url(&within), "").is(302);
    assert_eq!(told.field("location"), Some(url(&origin).as_str()));
}

#[test]
fn who_is_not_there_is_told_with_the_reason() {
    let relay = asking(&["127.0.0.1"]);
    let gone = format!("http://127.0.0.1:{}/f", reserve_port());
    let told = relay.get(&gone, "").is(502);
    let status = told.field("proxy-status").unwrap();
    assert!(status.contains("error=connection_refused"), "{status}");
    // It is the relay's own word, and names the server.
    assert!(told.text().starts_with("relay narrow: 127.0.0.1:"), "{}", told.text());
    relay.head(&gone, "").is(502);
    relay.get(&gone.replace("http://", "https://"), "").is(502);
}

#[test]
fn nobody_can_list_everything_in_a_few_words() {
    for text in ["*", "*.", "0.0.0.0/0", "::/0", "[::/0]:443", "::ffff:0:0/96"] {
        let error = text.parse::<Upstream>().unwrap_err();
        assert_eq!(error, UpstreamError::Everything(text.to_owned()));
        assert!(error.to_string().contains("forwards only what is listed"), "{error}");
    }
    for text in ["", " ", "http://host", "a b", "host:port", "host:70000", "host:", "a/b", "a.*"] {
        let error = text.parse::<Upstream>().unwrap_err();
        assert_eq!(error, UpstreamError::Unreadable(text.to_owned()), "{text}");
    }
}

proptest! {
    #[test]
    fn blocks_of_addresses_are_listed_down_from_eight_bits_on(
        address: [u8; 4], bits in 0..=32u32, port: Option<u16>,
    ) {
        let [a, b, c, d] = address;
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        let text = format!("{a}.{b}.{c}.{d}/{bits}{port}");
        match text.parse::<Upstream>() {
            Ok(_) => prop_assert!(bits >= 8, "{text}"),
            Err(UpstreamError::Everything(_)) => prop_assert_eq!(bits, 0),
            Err(UpstreamError::Wide(_)) => prop_assert!((1..8).contains(&bits), "{}", text),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn whatever_is_written_is_understood_or_refused(text in "\\PC{0,40}") {
        match text.parse::<Upstream>() {
            Ok(one) => prop_assert_eq!(text.parse::<Upstream>(), Ok(one)),
            Err(error) => prop_assert!(error.to_string().contains(&text)),
        }
    }
}
