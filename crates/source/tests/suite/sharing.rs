//! What lanes share: idle connections, the rate limit, proxies, the pool.

use std::sync::Arc;
use std::time::Duration;

use crate::support::driver::download;
use crate::support::{Bench, Reply, Server, Story, options, partial};
use swath_model::{Pool, Range};
use swath_source::{HttpSource, LaneError, Net, NetOptions, Proxies, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use url::Url;

const SIZE: u64 = 100_000;

#[tokio::test]
async fn many_small_files_share_connections() {
    let server = Server::start(|request| Reply::keep(partial(request, 1000))).await;
    let net = Net::new(options()).unwrap();
    let pool = Pool::new(4, 4096);
    for number in 0..50 {
        let url = server.url.join(&format!("/{number}")).unwrap();
        let mut bench = Bench::on(HttpSource::new(&net, url, Trust::Named), pool.clone());
        bench.fetch(0, 0, 4096);
        let mut story = bench.settled(1).await;
        assert!(story.delivered(0, Range::new(0, 1000)));
        bench.lane.close();
        bench.until(&mut story, |_| false).await;
    }
    assert_eq!(server.seen().iter().map(|request| request.connection).max(), Some(0));
    assert_eq!(net.idle_connections(), 1);
}

#[tokio::test]
async fn an_idle_connection_that_died_is_replaced_silently() {
    // Each connection serves one request and then closes without saying so.
    let server =
        Server::start(|request| Reply { bytes: partial(request, 1000), close: true }).await;
    let net = Net::new(options()).unwrap();
    for _ in 0..5 {
        let mut bench =
            Bench::on(HttpSource::new(&net, server.url.clone(), Trust::Named), Pool::new(4, 4096));
        bench.fetch(0, 0, 4096);
        let mut story = bench.settled(1).await;
        assert!(story.delivered(0, Range::new(0, 1000)) && story.failed.is_empty());
        bench.lane.close();
        bench.until(&mut story, |_| false).await;
        assert_eq!(story.closed, Some((None, vec![])));
    }
}

#[tokio::test]
async fn the_limit_holds_for_all_lanes_together() {
    let server = Server::start(|request| Reply::keep(partial(request, 10_000_000))).await;
    let net = Net::new(options()).unwrap();
    let source = HttpSource::new(&net, server.url.clone(), Trust::Named);
    let mut benches: Vec<Bench> =
        (0..3).map(|_| Bench::on(Arc::clone(&source), Pool::new(8, 64 * 1024))).collect();
    // All are connected, so that from now on nobody but the limit makes anybody wait.
    for bench in &mut benches {
        bench.fetch(0, 0, 1000);
        assert_eq!(bench.settled(1).await.done.len(), 1);
    }
    tokio::time::pause();
    net.set_limit(Some(1_000_000));
    let begin = Instant::now();
    for (bench, start) in benches.iter().zip([0, 1_000_000, 2_000_000]) {
        bench.fetch(1, start, start + 200_000);
    }
    let ends = async |bench: &mut Bench| {
        assert_eq!(bench.settled(1).await.done.len(), 1);
        begin.elapsed()
    };
    let [a, b, c] = &mut benches[..] else { unreachable!() };
    let each: [_; 3] = tokio::join!(ends(a), ends(b), ends(c)).into();
    // Never early, but for the burst and what comes along with heads.
    assert!(each.iter().max().unwrap().as_secs_f64() > 0.45, "{each:?}");
    assert!(each.iter().min().unwrap().as_secs_f64() > 0.3, "lanes share evenly: {each:?}");
    net.set_limit(None);
    benches[0].fetch(2, 0, 5_000_000);
    benches[0].settled(1).await;
}

#[tokio::test]
async fn a_stuck_lane_does_not_keep_the_last_buffer() {
    // The first connection sends a little of its body and stops.
    let server = Server::start(|request| {
        let mut bytes = partial(request, SIZE);
        if request.connection == 0 {
            bytes.truncate(5000);
        }
        Reply::keep(bytes)
    })
    .await;
    let net = Net::new(options()).unwrap();
    let source = HttpSource::new(&net, server.url.clone(), Trust::Named);
    let pool = Pool::new(1, 64 * 1024);
    let mut stuck = Bench::on(Arc::clone(&source), pool.clone());
    stuck.fetch(0, 0, 60_000);
    let mut stuck_story = Story::default();
    stuck.until(&mut stuck_story, |story| !story.facts.is_empty()).await;
    let mut other = Bench::on(source, pool);
    other.fetch(1, 0, SIZE);
    let story = tokio::select! {
        story = other.settled(1) => story,
        () = stuck.until(&mut stuck_story, |_| false) => panic!("{stuck_story:?}"),
    };
    assert!(story.delivered(1, Range::new(0, SIZE)));
}

/// A forward proxy: CONNECT and absolute addresses, everything to one fixed server.
async fn proxy(
    to: std::net::SocketAddr,
    refuse: bool,
) -> (Url, Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://user:pw@{}", listener.local_addr().unwrap())).unwrap();
    let heads = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match client.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let text = String::from_utf8_lossy(&head).into_owned();
                log.lock().unwrap().push(text.clone());
                let mut server = TcpStream::connect(to).await.unwrap();
                if refuse {
                    let _ = client
                        .write_all(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
                        .await;
                    return;
                }
                if text.starts_with("CONNECT") {
                    let _ = client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await;
                } else {
                    let _ = server.write_all(&head).await;
                }
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (url, heads)
}

fn through(url: &Url) -> Proxies {
    let url = url.to_string();
    Proxies::from_env(move |name| (name == "all_proxy").then(|| url.clone())).unwrap()
}

#[tokio::test]
async fn plain_requests_go_to_the_proxy() {
    let server = Server::start(|request| Reply::keep(partial(request, SIZE))).await;
    let (url, heads) = proxy(server.url.socket_addrs(|| None).unwrap()[0], false).await;
    for fallback_only in [false, true] {
        let net =
            Net::new(NetOptions { proxies: through(&url), fallback_only, ..options() }).unwrap();
        let target = Url::parse("http://far.example/file.bin?q=1").unwrap();
        let source = HttpSource::new(&net, target, Trust::Named);
        let outcome = download(&source).await;
        assert!(outcome.done, "{:?}", outcome.errors);
        let head = heads.lock().unwrap().last().unwrap().to_ascii_lowercase();
        assert!(head.starts_with("get http://far.example/file.bin?q=1 http/1.1\r\n"), "{head}");
        assert!(head.contains("proxy-authorization: basic dxnlcjpwdw=="), "{head}");
    }
}

#[tokio::test]
async fn secure_requests_go_through_the_proxy() {
    use swath_netlab::faulty::{Certificate, Content, Server};
    let content = Content::random(1, SIZE);
    let server =
        Server::builder().file("/f", content.clone()).tls(Certificate::Valid).start().unwrap();
    let (url, heads) = proxy(server.handle().address(), false).await;
    for fallback_only in [false, true] {
        let net = NetOptions { proxies: through(&url), insecure: true, fallback_only, ..options() };
        let net = Net::new(net).unwrap();
        let target = Url::parse("https://far.example/f").unwrap();
        let outcome = download(&HttpSource::new(&net, target, Trust::Named)).await;
        assert!(outcome.is(&content.read(0, SIZE)), "{:?}", outcome.errors);
        let head = heads.lock().unwrap().last().unwrap().clone();
        assert!(head.starts_with("CONNECT far.example:443 HTTP/1.1\r\n"), "{head}");
    }
    let (url, _) = proxy(server.handle().address(), true).await;
    let net = Net::new(NetOptions { proxies: through(&url), ..options() }).unwrap();
    let target = Url::parse("https://far.example/f").unwrap();
    let outcome = download(&HttpSource::new(&net, target, Trust::Named)).await;
    assert!(matches!(outcome.errors[0], LaneError::Proxy { .. }), "{:?}", outcome.errors);
}

#[tokio::test]
async fn a_proxy_is_no_way_into_our_own_network() {
    // The proxy would do the connecting, but an address that a server names is an address.
    let server = Server::start(|request| Reply::keep(partial(request, SIZE))).await;
    let (url, heads) = proxy(server.url.socket_addrs(|| None).unwrap()[0], false).await;
    for fallback_only in [false, true] {
        for address in ["http://10.0.0.1/f", "https://[fd00::1]/f", "http://localhost/f"] {
            let net = Net::new(NetOptions { proxies: through(&url), fallback_only, ..options() })
                .unwrap();
            let target = Url::parse(address).unwrap();
            let found = HttpSource::new(&net, target, Trust::Discovered);
            let outcome = download(&found).await;
            assert!(
                matches!(outcome.errors[..], [LaneError::RefusedAddress { .. }]),
                "{address}: {:?}",
                outcome.errors
            );
        }
    }
    assert_eq!(heads.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn who_comes_while_a_connection_is_being_opened_takes_that_one() {
    let server = Server::start(|request| Reply::keep(partial(request, 1000))).await;
    let net = Net::new(options()).unwrap();
    net.prepare(&server.url, Trust::Named, |rtt| {
        assert!(rtt < Duration::from_secs(60));
        1
    });
    let source = HttpSource::new(&net, server.url.clone(), Trust::Named);
    let mut bench = Bench::on(source, Pool::new(4, 4096));
    bench.fetch(0, 0, 1000);
    assert!(bench.settled(1).await.delivered(0, Range::new(0, 1000)));
    assert_eq!(server.seen().iter().map(|request| request.connection).max(), Some(0));
    assert_eq!(net.idle_connections(), 0, "there is no second one");
}

#[tokio::test]
async fn as_many_connections_are_opened_ahead_as_the_route_deserves() {
    let server = Server::start(|request| Reply::keep(partial(request, 1000))).await;
    let net = Net::new(options()).unwrap();
    net.prepare(&server.url, Trust::Named, |_| 4);
    let begin = Instant::now();
    while net.idle_connections() < 4 {
        assert!(begin.elapsed() < Duration::from_secs(90), "{net:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // One that nobody answers at keeps nobody from finding that out.
    let dead = swath_netlab::reserve_port();
    let url = Url::parse(&format!("http://127.0.0.1:{dead}/")).unwrap();
    net.prepare(&url, Trust::Named, |_| 4);
    let error = swath_source::head(&net, &url, Trust::Named).await.unwrap_err();
    assert!(matches!(error, LaneError::Connect { .. }), "{error}");
}
