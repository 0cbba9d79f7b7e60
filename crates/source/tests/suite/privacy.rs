//! Who gets credentials, and who may lead us where.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::driver::download;
use crate::support::{Bench, Reply, Server, Story, options, partial};
use swath_formats::ProxyFault;
use swath_model::{Pool, Range};
use swath_source::{
    Bearer, HpkeKey, HttpSource, LaneError, Net, NetOptions, RelayMode, Secret, Source, Trust,
    discover_bearer, fetch_small,
};
use url::Url;

const SIZE: u64 = 100_000;

fn net_with_everything() -> Net {
    let netrc = swath_formats::Netrc::parse(b"machine 127.0.0.1 login net password rc");
    Net::new(NetOptions {
        headers: vec![("X-Secret".to_owned(), "mine".to_owned())],
        netrc: Some(netrc),
        ..options()
    })
    .unwrap()
}

async fn plain_server() -> Server {
    Server::start(|request| Reply::keep(partial(request, SIZE))).await
}

#[tokio::test]
async fn the_named_origin_gets_credentials_and_a_discovered_one_none() {
    let net = net_with_everything();
    let named = plain_server().await;
    let mirror = plain_server().await;
    let mut url = named.url.clone();
    url.set_username("me").unwrap();
    url.set_password(Some("p%20w")).unwrap();
    assert!(download(&HttpSource::new(&net, url, Trust::Named)).await.done);
    assert!(download(&HttpSource::new(&net, mirror.url.clone(), Trust::Discovered)).await.done);
    for request in named.seen() {
        assert_eq!(request.field("authorization"), Some("Basic bWU6cCB3"), "me:p w");
        assert_eq!(request.field("x-secret"), Some("mine"));
        assert!(!request.head.contains('@') && !request.path.contains("me"));
    }
    for request in mirror.seen() {
        assert_eq!((request.field("authorization"), request.field("x-secret")), (None, None));
    }
    // Another path on a named origin is as good as named, netrc included.
    let same = named.url.join("/other").unwrap();
    assert!(download(&HttpSource::new(&net, same, Trust::Discovered)).await.done);
    assert_eq!(
        named.seen().last().unwrap().field("authorization"),
        Some("Basic bmV0OnJj"),
        "net:rc"
    );
}

#[tokio::test]
async fn a_relay_is_no_source_of_the_users() {
    // A relay that was asked for anything counted as a source that the user had named. With a `Link` to
    // itself in what it passed on it had the token for the source.
    let net = net_with_everything();
    let named = plain_server().await;
    let relay = plain_server().await;
    let source = HttpSource::new(&net, named.url.clone(), Trust::Named);
    let relays = [relay.url.clone()];
    for relay_mode in [RelayMode::Forward, RelayMode::Tunnel] {
        let _ = source.by_way_of(&relays, relay_mode, Duration::ZERO);
    }
    assert!(net.round_trip(&relay.url).await.is_ok());
    // It is none that could tell anything.
    assert!(net.about_relay(&relay.url, &[]).await.is_err());
    assert!(net.depot_allocate(&relay.url, 1, Duration::from_secs(1)).await.is_err());
    assert!(net.depot_release(&relay.url).await.is_err());
    for trust in [Trust::Discovered, Trust::Listed] {
        let mirror = relay.url.join("/mirror").unwrap();
        assert!(download(&HttpSource::new(&net, mirror, trust)).await.done);
        let asked = relay.seen().pop().unwrap();
        assert_eq!(asked.path, "/mirror");
        assert_eq!((asked.field("authorization"), asked.field("x-secret")), (None, None));
    }
}

#[tokio::test]
async fn what_a_relay_cannot_open_is_sealed_anew_once() {
    // After a restart it has another key. One that says so for ever is not asked for ever.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Relay {
        StartedAgain,
        OpensNothing,
        NamesOthers,
    }
    for kind in [Relay::StartedAgain, Relay::OpensNothing, Relay::NamesOthers] {
        let key = Mutex::new(Arc::new(HpkeKey::new().unwrap()));
        let is_first = AtomicBool::new(true);
        let relay = Server::start(move |request| {
            let renew = || *key.lock().unwrap() = Arc::new(HpkeKey::new().unwrap());
            if !request.path.starts_with("/relay/") {
                if kind == Relay::NamesOthers {
                    renew();
                }
                let public = key.lock().unwrap().public().to_owned();
                let about = format!("{{\"relay\":\"swath\",\"key\":\"{public}\"}}");
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", about.len());
                return Reply::keep(head + &about);
            }
            if kind == Relay::StartedAgain && is_first.swap(false, Ordering::Relaxed) {
                renew();
            }
            let sealed = request.field("swath-sealed").unwrap();
            let opened = key.lock().unwrap().open(sealed, "http://data.example/f", None);
            match opened.ok().filter(|_| kind == Relay::StartedAgain) {
                Some(text) => {
                    assert_eq!(text.text, b"X-Secret: mine\r\n");
                    Reply::keep(partial(request, SIZE))
                }
                None => Reply::keep(
                    "HTTP/1.1 403 No\r\nProxy-Status: r; error=swath_other_key\r\n\
                     Content-Length: 0\r\n\r\n",
                ),
            }
        });
        let relay = relay.await;
        let headers = vec![("X-Secret".to_owned(), "mine".to_owned())];
        let net = Net::new(NetOptions { headers, ..options() }).unwrap();
        net.about_relay(&relay.url, &[]).await.unwrap();
        let url = Url::parse("http://data.example/f").unwrap();
        let direct = HttpSource::new(&net, url, Trust::Named);
        let relays = [relay.url.clone()];
        let way = direct.by_way_of(&relays, RelayMode::Forward, Duration::ZERO);
        let mut bench = Bench::on(way, Pool::new(4, 4096));
        bench.fetch(0, 0, 100);
        let mut story = Story::default();
        bench.until(&mut story, |it| !it.done.is_empty() || !it.failed.is_empty()).await;
        let asked = relay.seen();
        let asked = asked.iter().filter(|request| request.path.starts_with("/relay/")).count();
        let closed = story.closed.as_ref().map(|(error, _)| error);
        let other_key = Some(ProxyFault::OtherKey);
        match kind {
            Relay::StartedAgain => assert!(story.delivered(0, Range::new(0, 100)), "{story:?}"),
            Relay::OpensNothing => assert!(
                matches!(closed, Some(Some(LaneError::Relay { fault, .. })) if *fault == other_key)
            ),
            Relay::NamesOthers => assert!(
                matches!(&story.failed[..], [(_, LaneError::Relay { fault, .. })] if *fault == other_key)
            ),
        }
        let expected = if kind == Relay::OpensNothing { 1 } else { 2 };
        assert_eq!(asked, expected, "{kind:?}: {story:?}");
    }
}

#[tokio::test]
async fn a_redirect_to_another_host_drops_credentials() {
    let net = net_with_everything();
    let elsewhere = plain_server().await;
    let to = elsewhere.url.clone();
    let named = Server::start(move |_| {
        Reply::keep(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"))
    })
    .await;
    assert!(download(&HttpSource::new(&net, named.url.clone(), Trust::Named)).await.done);
    assert!(named.seen()[0].field("authorization").is_some());
    assert!(!elsewhere.seen().is_empty());
    for request in elsewhere.seen() {
        assert_eq!((request.field("authorization"), request.field("x-secret")), (None, None));
    }
    let small = fetch_small(&net, &named.url, Trust::Named, "*/*", 1 << 20).await;
    assert!(small.is_err(), "a server of ranges refuses the whole: {small:?}");
    assert!(elsewhere.seen().iter().all(|request| request.field("authorization").is_none()));
}

#[tokio::test]
async fn a_found_token_is_not_sent_in_the_clear() {
    let server = plain_server().await;
    let token = |explicit| Some(Bearer { token: Secret::new("tok").into(), explicit });
    // Loopback counts as protected; a name that only looks like another host does not matter here.
    for explicit in [false, true] {
        let net = Net::new(NetOptions { bearer: token(explicit), ..options() }).unwrap();
        assert!(download(&HttpSource::new(&net, server.url.clone(), Trust::Named)).await.done);
        assert_eq!(server.seen().last().unwrap().field("authorization"), Some("Bearer tok"));
    }
    assert!(!format!("{:?}", token(true)).contains("tok\""));
}

#[tokio::test]
async fn https_is_never_left_for_http() {
    use swath_netlab::faulty::{Behaviour, Certificate, Content, Server};
    let server = Server::builder()
        .file("/f", Content::random(1, 1000))
        .tls(Certificate::Valid)
        .behaviour(Behaviour::redirect("http://127.0.0.1:1/f"))
        .start()
        .unwrap();
    let net = Net::new(NetOptions { insecure: true, ..options() }).unwrap();
    let url = Url::parse(&server.handle().url("/f")).unwrap();
    let outcome = download(&HttpSource::new(&net, url, Trust::Named)).await;
    assert!(
        matches!(outcome.errors[..], [LaneError::RedirectInsecure { .. }]),
        "{:?}",
        outcome.errors
    );
}

#[tokio::test]
async fn the_network_cannot_lead_us_into_our_own() {
    let inside = plain_server().await;
    for fallback_only in [false, true] {
        // Nothing here was named by the user.
        let net = Net::new(NetOptions { fallback_only, ..options() }).unwrap();
        let before = inside.seen().len();
        let mut by_name = inside.url.clone();
        by_name.set_host(Some("localhost")).unwrap();
        for url in [inside.url.clone(), by_name] {
            let source = HttpSource::new(&net, url, Trust::Discovered);
            let mut bench = Bench::on(source, Pool::new(4, 4096));
            bench.fetch(0, 0, 100);
            let mut story = Story::default();
            bench.until(&mut story, |_| false).await;
            assert!(
                matches!(story.closed, Some((Some(LaneError::RefusedAddress { .. }), _))),
                "{:?}",
                story.closed
            );
        }
        assert_eq!(inside.seen().len(), before);
        // Once the user's own source is on loopback the others may be too.
        let _named =
            HttpSource::new(&net, Url::parse("http://127.0.0.1:1/").unwrap(), Trust::Named);
        assert!(download(&HttpSource::new(&net, inside.url.clone(), Trust::Discovered)).await.done);
    }
}

#[test]
fn tokens_are_found_in_the_agreed_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, " from-file \n").unwrap();
    std::fs::write(folder.path().join("bt_u123456"), "from-run-dir\n").unwrap();
    let path = file.to_string_lossy().into_owned();
    let run = folder.path().to_string_lossy().into_owned();
    let find = |pairs: &[(&str, &str)]| {
        let lookup = |name: &str| {
            pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        };
        let search = discover_bearer(lookup, 123_456);
        let complaints = search.unusable.join("; ");
        (search.bearer.map(|bearer| bearer.token.now().expose().to_owned()), complaints)
    };
    let token = |text: &str| (Some(text.to_owned()), String::new());
    let all = [
        ("BEARER_TOKEN", " direct "),
        ("BEARER_TOKEN_FILE", path.as_str()),
        ("XDG_RUNTIME_DIR", run.as_str()),
    ];
    assert_eq!(find(&all), token("direct"));
    assert_eq!(find(&all[1..]), token("from-file"));
    assert_eq!(find(&all[2..]), token("from-run-dir"));
    assert_eq!(find(&[]), (None, String::new()));
    assert_eq!(find(&[("BEARER_TOKEN", "  "), all[1]]), token("from-file"), "empty is none");
    // What cannot be used is passed by, but not in silence.
    let (found, complaints) = find(&[("BEARER_TOKEN", "two words"), all[2]]);
    assert_eq!(found.as_deref(), Some("from-run-dir"));
    assert!(complaints.starts_with("BEARER_TOKEN holds no token"), "{complaints}");
    assert!(!complaints.contains("two words"), "{complaints}");
    let (found, complaints) = find(&[("BEARER_TOKEN_FILE", "/nowhere/token")]);
    assert_eq!(found, None);
    assert!(complaints.starts_with("cannot read the token in /nowhere/token: "), "{complaints}");
}

#[test]
fn headers_that_would_smuggle_are_refused() {
    let headers = vec![("X".to_owned(), "a\r\nHost: b".to_owned())];
    assert!(Net::new(NetOptions { headers, ..options() }).is_err());
    for own in ["Host", "range", "Content-Length", "Transfer-Encoding", "connection"] {
        let headers = vec![(own.to_owned(), "x".to_owned())];
        assert!(Net::new(NetOptions { headers, ..options() }).is_err(), "{own}");
    }
}

#[test]
fn nothing_shown_holds_credentials() {
    let net = Net::new(options()).unwrap();
    let url = Url::parse("https://me:secret@host/path?token=secret#secret").unwrap();
    let source = HttpSource::new(&net, url, Trust::Named);
    assert_eq!(source.name().to_string(), "https://host/path");
    assert!(!format!("{source:?}").contains("token"), "{source:?}");
}
