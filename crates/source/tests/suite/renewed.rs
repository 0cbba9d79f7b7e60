//! Tokens that are renewed in their files while something is under way.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use swath_model::{Pool, Range};
use swath_source::{
    Bearer, HttpSource, LaneError, Net, NetOptions, RelayAccess, RelayMode, ServerAccess, Token,
    Trust, fetch_small,
};
use tempfile::TempDir;

use crate::support::driver::download;
use crate::support::{Bench, Reply, Request, Server, content, options, partial};

const SIZE: u64 = 400_000;
const REFUSAL: &str = "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n";

/// A file with a token, which whoever holds it renews as agents do.
#[derive(Clone)]
struct Agent {
    path: PathBuf,
    times: Arc<AtomicUsize>,
}

impl Agent {
    fn new(folder: &TempDir) -> Agent {
        let agent = Agent { path: folder.path().join("token"), times: Arc::default() };
        agent.write(0);
        agent
    }

    fn write(&self, number: usize) {
        let new = self.path.with_extension("new");
        std::fs::write(&new, format!("token-{number}\n")).unwrap();
        std::fs::rename(&new, &self.path).unwrap();
    }

    fn renew(&self) {
        self.write(self.times.load(Ordering::Relaxed) + 1);
        self.times.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a request shows the token of now.
    fn lets_in(&self, request: &Request) -> bool {
        let now = format!("Bearer token-{}", self.times.load(Ordering::Relaxed));
        request.field("authorization") == Some(&now)
    }

    fn token(&self) -> Token {
        Token::in_file(&self.path).unwrap()
    }

    fn net(&self) -> Net {
        let bearer = Some(Bearer { token: self.token(), explicit: true });
        Net::new(NetOptions { bearer, ..options() }).unwrap()
    }
}

/// Serves whoever shows the token of now, which is renewed after every `each` answers: requests that came
/// before that are refused.
async fn server(agent: &Agent, each: usize) -> Server {
    let (agent, served) = (agent.clone(), AtomicUsize::new(0));
    Server::start(move |request| {
        if !agent.lets_in(request) {
            return Reply::keep(REFUSAL);
        }
        if served.fetch_add(1, Ordering::Relaxed) % each == each - 1 {
            agent.renew();
        }
        Reply::keep(match request.range {
            Some(_) => partial(request, SIZE),
            None => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsmall".to_vec(),
        })
    })
    .await
}

#[tokio::test]
async fn requests_show_the_token_that_is_in_the_file_by_then() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::new(&folder);
    let server = server(&agent, 2).await;
    let source = HttpSource::new(&agent.net(), server.url.clone(), Trust::Named);
    let outcome = download(&source).await;
    assert!(outcome.is(&content(Range::new(0, SIZE))), "{:?}", outcome.errors);
    assert!(agent.times.load(Ordering::Relaxed) >= 4);
    // Those that were under way were asked again, on the same connection.
    assert_eq!((outcome.errors.len(), outcome.lanes), (0, 1), "{:?}", outcome.errors);
}

#[tokio::test]
async fn pipelined_requests_that_came_too_late_are_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::new(&folder);
    let server = server(&agent, 3).await;
    let source = HttpSource::new(&agent.net(), server.url.clone(), Trust::Named);
    let mut bench = Bench::on(source, Pool::new(8, 64 * 1024));
    for swath in 0..8 {
        bench.fetch(swath, swath * 1000, (swath + 1) * 1000);
    }
    let story = bench.settled(8).await;
    assert!(story.failed.is_empty(), "{:?}", story.failed);
    for swath in 0..8 {
        assert!(story.delivered(swath, Range::of_len(swath * 1000, 1000)), "{swath}");
    }
}

#[tokio::test]
async fn a_token_that_is_refused_and_not_renewed_fails_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::new(&folder);
    let server = Server::start(|_| Reply::keep(REFUSAL)).await;
    let source = HttpSource::new(&agent.net(), server.url.clone(), Trust::Named);
    let outcome = download(&source).await;
    assert!(!outcome.done);
    assert_eq!(server.seen().len(), 1, "{:?}", outcome.errors);
    // One renewal is worth one more try.
    let renewing = agent.clone();
    let server = Server::start(move |request| {
        if request.field("authorization") == Some("Bearer token-0") {
            renewing.renew();
        }
        Reply::keep(REFUSAL)
    })
    .await;
    let source = HttpSource::new(&agent.net(), server.url.clone(), Trust::Named);
    assert!(!download(&source).await.done);
    assert_eq!(server.seen().len(), 2);
    let small = fetch_small(&agent.net(), &server.url, Trust::Named, "*/*", 100).await;
    assert!(matches!(small, Err(LaneError::Refused(_))), "{small:?}");
}

#[tokio::test]
async fn control_requests_show_it_too() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::new(&folder);
    let server = server(&agent, 1).await;
    let net = agent.net();
    for _ in 0..3 {
        let small = fetch_small(&net, &server.url, Trust::Named, "*/*", 100).await;
        assert_eq!(small.unwrap().bytes, b"small");
    }
    // Renewed while the request is under way.
    let renewing = agent.clone();
    let server = Server::start(move |request| {
        if renewing.lets_in(request) && renewing.times.load(Ordering::Relaxed) > 3 {
            return Reply::keep("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsmall");
        }
        renewing.renew();
        Reply::keep(REFUSAL)
    })
    .await;
    let small = fetch_small(&net, &server.url, Trust::Named, "*/*", 100).await;
    assert_eq!(small.unwrap().bytes, b"small");
}

/// Tokens of single servers and of relays are renewed as well.
#[tokio::test]
async fn the_tokens_of_servers_and_relays_are_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::new(&folder);
    let server = server(&agent, 2).await;
    let mut access =
        ServerAccess::to(format!("127.0.0.1:{}", server.url.port().unwrap()).parse().unwrap());
    access.token = Some(agent.token());
    let net = Net::new(NetOptions { servers: vec![access], ..options() }).unwrap();
    let outcome = download(&HttpSource::new(&net, server.url.clone(), Trust::Named)).await;
    assert!(outcome.is(&content(Range::new(0, SIZE))), "{:?}", outcome.errors);
    let relay = RelayAccess {
        url: server.url.join("/").unwrap(),
        token: Some(agent.token()),
        fingerprint: None,
    };
    let net = Net::new(NetOptions { relays: vec![relay], ..options() }).unwrap();
    let far = HttpSource::new(&net, "http://data.example/f".parse().unwrap(), Trust::Named);
    let relays = std::slice::from_ref(&server.url);
    let passed = far.by_way_of(relays, RelayMode::Forward, Duration::ZERO);
    let outcome = download(&passed).await;
    assert!(outcome.is(&content(Range::new(0, SIZE))), "{:?}", outcome.errors);
}
