//! A relay between clients and servers of a few lines, each of which misbehaves in its own way.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use swath_serve::{Congestion, Listening, Stop, Tls};
use swath_source::seal;
use swath_store::depot::{Depot, DepotOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::{CacheOptions, RelayServerOptions, bind};

/// A relay for this machine, to what is on it.
fn options(timeout: Duration) -> RelayOptions {
    let own = "127.0.0.0/8";
    RelayOptions {
        hosts: None,
        name: "between".to_owned(),
        upstreams: vec![own.parse().unwrap()],
        clients: Clients::new(vec![own.parse().unwrap()], None),
        net: NetOptions::default(),
        send_limit: None,
        timeout,
        cache: None,
        depot: None,
    }
}

/// Where such a relay listens. It runs as long as the test does.
async fn run(relay: RelayOptions) -> SocketAddr {
    run_with(relay, None).await
}

async fn run_with(relay: RelayOptions, log: Option<Box<dyn Log>>) -> SocketAddr {
    let listening = Listening {
        at: vec![(Ipv4Addr::LOCALHOST, 0).into()],
        tls: Tls::Plain,
        max_connections: 100,
        congestion: Congestion::Auto,
    };
    let options = RelayServerOptions { relay, listening };
    let server = bind(options, log).await.unwrap().server;
    let address = server.addresses()[0];
    tokio::spawn(server.run(std::future::pending::<Stop>(), Duration::ZERO, |_| {}));
    address
}

/// The same, and what it notes down: methods, targets and referers.
async fn run_noting(relay: RelayOptions) -> (SocketAddr, std::sync::mpsc::Receiver<String>) {
    struct Notes(std::sync::Mutex<std::sync::mpsc::Sender<String>>);
    impl Log for Notes {
        fn note(&self, line: &LogLine<'_>) {
            let referer = line.referer.unwrap_or_default();
            let text = format!("{} {} {referer}", line.method, line.target);
            let _ = self.0.lock().unwrap().send(text);
        }
    }
    let (notes, noted) = std::sync::mpsc::channel();
    (run_with(relay, Some(Box::new(Notes(notes.into())))).await, noted)
}

/// The same on the test's own thread.
async fn server_here(answer: impl Fn(&str) -> Option<String> + 'static) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = std::rc::Rc::new(answer);
    tokio::task::spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = std::rc::Rc::clone(&answer);
            tokio::task::spawn_local(async move {
                let mut text = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    text.push(byte);
                    if text.ends_with(b"\r\n\r\n") {
                        let head = String::from_utf8(std::mem::take(&mut text)).unwrap();
                        if let Some(text) = answer(&head) {
                            let _ = stream.write_all(text.as_bytes()).await;
                        }
                    }
                }
            });
        }
    });
    address
}

/// Runs this with a clock that is five hundred times as fast as the world's, and stands still while this
/// thread gets no turn: however busy the machine is, only what never comes is not waited for.
async fn in_fast_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::pause();
    let hurry = async {
        loop {
            // As long as a thread is at work, the clock does not jump by itself.
            let moment = || std::thread::sleep(Duration::from_millis(2));
            tokio::task::spawn_blocking(moment).await.unwrap();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    };
    let test = async {
        tokio::select! {
            ended = test => ended,
            () = hurry => unreachable!(),
        }
    };
    tokio::task::LocalSet::new().run_until(test).await
}

/// A server that has this said on each connection of its own thread, head by head.
fn server(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), answer) = (stream, Arc::clone(&answer)) else { continue };
            std::thread::spawn(move || {
                while let Some(head) = head(&mut stream) {
                    // `None`: nothing is ever said.
                    if let Some(text) = answer(&head) {
                        let _ = stream.write_all(text.as_bytes());
                    }
                }
            });
        }
    });
    address
}

/// The next head; `None` at the end.
fn head(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        text.push(char::from(byte[0]));
    }
    Some(text)
}

/// All that comes back for these requests, the last of which ends the connection.
async fn ask(relay: SocketAddr, requests: String) -> String {
    let asked = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(relay).unwrap();
        stream.write_all(requests.as_bytes()).unwrap();
        let mut came = String::new();
        let _ = stream.read_to_string(&mut came);
        came
    });
    asked.await.unwrap()
}

fn get(server: SocketAddr, more: &str) -> String {
    get_file(server, "f", more)
}

fn get_file(server: SocketAddr, name: &str, more: &str) -> String {
    format!("GET /relay/http://{server}/{name} HTTP/1.1\r\nHost: r\r\n{more}\r\n")
}

/// A listener that takes no connection and refuses none, with those that fill it.
fn deaf() -> (tokio::net::TcpListener, Vec<TcpStream>) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut all = Vec::new();
    while let Ok(one) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        all.push(one);
    }
    (listener, all)
}

#[tokio::test]
async fn a_relay_for_everybody_does_not_begin() {
    for tokens in [None, Some(swath_serve::Access::new(Vec::new(), Vec::new()))] {
        let life = watch::channel(Life::Open).1;
        let opened = Relay::open(
            RelayOptions { clients: Clients::new(Vec::new(), tokens), ..options(LONG) },
            None,
            life,
        );
        assert!(matches!(opened, Err(RelayError::NoClients)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_of_a_connection_that_was_given_up_is_not_for_the_next_request() {
    // Real time: a paused clock does not end an attempt to connect. The second server has as long.
    let relay = run(options(Duration::from_secs(8))).await;
    let well = server(|_| Some("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell".to_owned()));
    let (listener, _waiting) = deaf();
    let deaf = listener.local_addr().unwrap();
    // Both at once: the second one was behind the first when that was given up.
    let came = ask(relay, get(deaf, "") + &get(well, "Connection: close\r\n")).await;
    assert!(came.starts_with("HTTP/1.1 504 "), "{came}");
    assert!(came.contains("HTTP/1.1 200 ") && came.ends_with("well"), "{came}");
}

#[tokio::test]
async fn a_crowd_waits_once_for_a_server_that_tells_nothing_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheOptions { folder: folder.path().to_owned(), size_bytes: 1 << 30 };
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    let test = async {
        // Longer than what is not known just now stays so.
        let relay = run(RelayOptions { cache: Some(cache), ..options(LONG) }).await;
        let silent = server_here(move |head| {
            if head.starts_with("HEAD ") {
                counts.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            Some("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell".to_owned())
        });
        let silent = silent.await;
        let all = (0..4).map(|_| ask(relay, get(silent, "Connection: close\r\n")));
        futures_util::future::join_all(all).await
    };
    for came in in_fast_time(test).await {
        assert!(came.ends_with("well"), "{came}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_follows_a_body_that_ends_with_its_connection() {
    let relay = run(options(LONG)).await;
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwell\r\n0\r\n\r\n";
    let server = server(|_| Some(chunks.to_owned()));
    // Chunks are nothing to a client of HTTP/1.0, and it has asked for two files at once.
    let one = format!("GET /relay/http://{server}/f HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let came = ask(relay, one.repeat(2)).await;
    let (head, body) = came.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("connection: close"), "{came}");
    assert_eq!(body, "well");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_none_is_not_passed_on() {
    let relay = run(options(LONG)).await;
    let server = server(|_| Some("HTTP/1.1 042 Odd\r\nContent-Length: 0\r\n\r\n".to_owned()));
    let came = ask(relay, get(server, "Connection: close\r\n")).await;
    assert!(came.starts_with("HTTP/1.1 502 "), "{came}");
}

#[tokio::test]
async fn who_waits_for_the_relays_own_limit_is_not_silent() {
    // Its turn comes every few minutes, and a minute without any was silence once.
    let body = "x".repeat(2500);
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let came = in_fast_time(async {
        let send_limit = Some(Arc::new(Limiter::new(Some(5))));
        let relay = run(RelayOptions { send_limit, ..options(LONG) }).await;
        let server = server_here(move |_| Some(text.clone())).await;
        ask(relay, get(server, "Connection: close\r\n")).await
    });
    let came = came.await;
    assert!(came.ends_with(&body), "{} bytes came", came.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_a_client_looks_at_takes_no_space_of_the_depot() {
    let memory = DepotOptions { memory_bytes: 1 << 20, ..DepotOptions::default() };
    let depot = Some(Depot::open(memory).unwrap().0);
    let relay = run(RelayOptions { depot, ..options(LONG) }).await;
    let post = |more: &str| {
        let target = "/depot?size=1000&lease=60&medium=memory";
        format!("POST {target} HTTP/1.1\r\nHost: r\r\nConnection: close\r\n{more}\r\n")
    };
    // Browsers send this without asking whether they may, from the address of whoever looks.
    let came = ask(relay, post("Origin: https://evil.example\r\nContent-Length: 0\r\n")).await;
    assert!(came.starts_with("HTTP/1.1 403 "), "{came}");
    assert!(ask(relay, post("")).await.starts_with("HTTP/1.1 201 "));
}

#[test]
fn a_pass_for_a_depots_relay_goes_on_to_depots_alone_and_ones_own_never() {
    let relay = Relay::open(options(LONG), None, watch::channel(Life::Open).1).unwrap();
    let other = HpkeKey::new().unwrap();
    let asked = Pass::Read("/").purpose();
    let own = seal(relay.key.public(), &asked, b"Bearer a", now_s()).unwrap();
    let others = seal(other.public(), &asked, b"Bearer b", now_s()).unwrap();
    let text =
        format!("GET / HTTP/1.1\r\nHost: r\r\nswath-pass: {own}\r\nswath-pass: {others}\r\n\r\n");
    let head = Head::parse_passing(text.as_bytes()).unwrap().unwrap().0;
    let lines = |url: &str| relay.unsealed(&head, &Url::parse(url).unwrap()).ok().unwrap();
    let depot = format!("http://127.0.0.1:1/depot/{}", "a".repeat(64));
    assert_eq!(lines(&depot), [("swath-pass".to_owned(), others)]);
    assert_eq!(lines("http://127.0.0.1:1/f"), []);
    assert_eq!(lines(&format!("http://127.0.0.1:2/relay/{depot}")), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_behind_the_answer_for_a_file_is_not_kept_as_another_one() {
    // Whoever had one file of a server to answer for answered for the next one too, and that was
    // kept, and given to everybody.
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheOptions { folder: folder.path().to_owned(), size_bytes: 1 << 30 };
    let relay = run(RelayOptions { cache: Some(cache), ..options(LONG) }).await;
    let answer = |status: &str, name: &str, body: &str| {
        let told = format!("ETag: \"{name}\"\r\nContent-Length: 4\r\nContent-Range: bytes 0-3/4");
        format!("HTTP/1.1 {status}\r\n{told}\r\n\r\n{body}")
    };
    let (asks, asked) = std::sync::mpsc::channel();
    let (asks, asked) = (std::sync::Mutex::new(asks), std::sync::Mutex::new(asked));
    let server = server(move |head| {
        let name = head.split(['/', ' ']).nth(2).unwrap();
        if name == "good" {
            let _ = asks.lock().unwrap().send(());
        }
        Some(match head.starts_with("HEAD ") {
            true => answer("200 OK", name, ""),
            false if name != "evil" => answer("206 Partial Content", name, name),
            false => {
                // Until what is behind it has been asked for as well, if it is.
                let _ = asked.lock().unwrap().recv_timeout(Duration::from_secs(2));
                let one = answer("206 Partial Content", "evil", "evil");
                one + &answer("206 Partial Content", "good", "FAKE")
            }
        })
    });
    let both = get_file(server, "evil", "") + &get_file(server, "good", "Connection: close\r\n");
    for requests in [both, get_file(server, "good", "Connection: close\r\n")] {
        let came = ask(relay, requests).await;
        assert!(came.ends_with("\r\n\r\ngood") && !came.contains("FAKE"), "{came}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_asked_for_at_once_do_not_wait_for_one_another() {
    // Each would take a round trip to the server of its own.
    const FILES: usize = 4;
    let folder = tempfile::tempdir().unwrap();
    let [_, relay] = both(folder.path()).await;
    let (all, asked) = (std::sync::Barrier::new(FILES), Arc::new(AtomicUsize::new(0)));
    let counts = Arc::clone(&asked);
    let server = server(move |head| {
        let is_head = head.starts_with("HEAD ");
        if !is_head {
            counts.fetch_add(1, Ordering::Relaxed);
            all.wait();
        }
        let (status, body) = if is_head { ("200 OK", "") } else { ("206 Partial Content", "well") };
        let told = "ETag: \"a\"\r\nContent-Length: 4\r\nContent-Range: bytes 0-3/4";
        Some(format!("HTTP/1.1 {status}\r\n{told}\r\n\r\n{body}"))
    });
    let requests = (0..FILES).map(|at| {
        let more = if at + 1 == FILES { "Connection: close\r\n" } else { "" };
        get_file(server, &format!("f{at}"), more)
    });
    let came = ask(relay, requests.collect()).await;
    assert_eq!(came.matches("\r\n\r\nwell").count(), FILES, "{came}");
    assert_eq!(asked.load(Ordering::Relaxed), FILES);
}

/// A relay without a cache, and one with it.
async fn both(folder: &std::path::Path) -> [SocketAddr; 2] {
    let cache = CacheOptions { folder: folder.to_owned(), size_bytes: 1 << 30 };
    [run(options(LONG)).await, run(RelayOptions { cache: Some(cache), ..options(LONG) }).await]
}

#[tokio::test(flavor = "multi_thread")]
async fn who_ends_its_own_side_behind_its_requests_is_answered() {
    // It was cut off, without a byte.
    let folder = tempfile::tempdir().unwrap();
    // How many have ended their side; what was asked before is answered after that.
    let ended = Arc::new((std::sync::Mutex::new(0), std::sync::Condvar::new()));
    let answered_after = Arc::new(AtomicUsize::new(0));
    let (ends, after) = (Arc::clone(&ended), Arc::clone(&answered_after));
    let server = server(move |head| {
        let after = after.load(Ordering::Relaxed);
        let count = ends.0.lock().unwrap();
        drop(ends.1.wait_timeout_while(count, LONG, |count| *count < after).unwrap());
        let head = head.starts_with("HEAD ");
        let told = "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 4\r\n\r\n";
        Some(format!("{told}{}", if head { "" } else { "well" }))
    });
    for relay in both(folder.path()).await {
        for more in ["", "Connection: close\r\n"] {
            let requests = get(server, "") + &get_file(server, "g", more);
            answered_after.fetch_add(1, Ordering::Relaxed);
            let ended = Arc::clone(&ended);
            let asked = tokio::task::spawn_blocking(move || {
                let mut stream = TcpStream::connect(relay).unwrap();
                stream.write_all(requests.as_bytes()).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                *ended.0.lock().unwrap() += 1;
                ended.1.notify_all();
                let mut came = String::new();
                stream.read_to_string(&mut came).map(|_| came)
            });
            let came = asked.await.unwrap().unwrap();
            assert_eq!(came.matches("\r\n\r\nwell").count(), 2, "{more}: {came}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn for_one_who_left_without_a_word_no_more_than_a_little_is_taken() {
    /// What is sent on a connection.
    enum Taken {
        Begin,
        Bytes(u64),
        End,
    }
    let folder = tempfile::tempdir().unwrap();
    for relay in both(folder.path()).await {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        let (left, has_left) = std::sync::mpsc::channel::<()>();
        let (taken, was_taken) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let has_left = Arc::new(std::sync::Mutex::new(has_left));
            for stream in listener.incoming() {
                let (mut stream, has_left) = (stream.unwrap(), Arc::clone(&has_left));
                let taken = taken.clone();
                std::thread::spawn(move || {
                    while let Some(asked) = head(&mut stream) {
                        let range = asked.split("ange: bytes=").nth(1);
                        let (first, last) = match range.map(|it| it.split(['-', '\r'])) {
                            Some(mut ends) => {
                                let mut end = || ends.next().unwrap().parse::<u64>().unwrap();
                                (end(), end())
                            }
                            None => (0, HUGE - 1),
                        };
                        let is_head = asked.starts_with("HEAD ");
                        let status = if range.is_some() { "206 Some" } else { "200 OK" };
                        let told = format!(
                            "HTTP/1.1 {status}\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\n\
                             Content-Range: bytes {first}-{last}/{HUGE}\r\n\
                             Content-Length: {}\r\n\r\n",
                            last + 1 - first
                        );
                        if !is_head {
                            taken.send(Taken::Begin).unwrap();
                            // Once; who asks for more later finds it closed.
                            let _ = has_left.lock().unwrap().recv();
                        }
                        let mut left = if is_head { 0 } else { last + 1 - first };
                        let mut is_taken = stream.write_all(told.as_bytes()).is_ok();
                        while is_taken && left > 0 {
                            let bytes = left.min(1 << 16);
                            is_taken = stream.write_all(&vec![b'x'; bytes as usize]).is_ok();
                            left -= bytes;
                            // Nobody counts any more if it is too much already.
                            let _ = taken.send(Taken::Bytes(bytes));
                        }
                        if !is_head {
                            let _ = taken.send(Taken::End);
                        }
                    }
                });
            }
        });
        let mut stream = TcpStream::connect(relay).unwrap();
        stream.write_all(get(server, "").as_bytes()).unwrap();
        drop(stream);
        drop(left);
        let all = tokio::task::spawn_blocking(move || {
            let (mut all, mut begun, mut ended) = (0, 0, 0);
            while all < 64 << 20 && (begun == 0 || ended < begun) {
                // Whoever waits for more than that takes no more, or is held up, which does no harm.
                let within = if all == 0 { LONG } else { Duration::from_secs(5) };
                match was_taken.recv_timeout(within) {
                    Ok(Taken::Begin) => begun += 1,
                    Ok(Taken::Bytes(bytes)) => all += bytes,
                    Ok(Taken::End) => ended += 1,
                    Err(_) => break,
                }
            }
            all
        });
        let all = all.await.unwrap();
        // What sockets and pipes hold, and what a cache fetches ahead.
        assert!(all > 0 && all < 64 << 20, "{all} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_noted_opens_anything() {
    // Queries of what is refused, passwords and the pages that led here were noted whole.
    let (relay, noted) = run_noting(options(LONG)).await;
    let server = server(|_| Some("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned()));
    let targets = [
        format!("GET /relay/http://{server}/f?X-Sig=SECRET"),
        format!("GET //relay/http://{server}/f?X-Sig=SECRET"),
        format!("GET /Relay/http://{server}/f?X-Sig=SECRET"),
        format!("GET /relay?to=http://{server}/f?X-Sig=SECRET"),
        "GET /metrics?X-Sig=SECRET".to_owned(),
        format!("GET http://user:SECRET@{server}/f"),
        format!("GET /relay/http://user:SECRET@{server}/f"),
        format!("CONNECT user:SECRET@{server}"),
    ];
    for target in targets {
        let referer = format!("Referer: http://{relay}/relay/http://h/x?X-Sig=SECRET");
        let more = format!("Host: r\r\nConnection: close\r\n{referer}");
        ask(relay, format!("{target} HTTP/1.1\r\n{more}\r\n\r\n")).await;
        let noted = noted.recv().unwrap();
        let from = format!(" http://{relay}/relay/http://h/x?");
        assert!(noted.ends_with(&from) && !noted.contains("SECRET"), "{noted}");
    }
}

/// A file that nobody has place for.
const HUGE: u64 = 16 << 30;
#[tokio::test(flavor = "multi_thread")]
async fn who_ends_its_own_side_of_a_tunnel_gets_all_of_the_other_one() {
    // What it had not read yet when the other side had ended was taken from it by a reset.
    const BYTES: usize = 512 << 10;
    let (relay, noted) = run_noting(options(LONG)).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let end = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.read_to_end(&mut Vec::new()).unwrap();
        stream.write_all(&vec![b'x'; BYTES]).unwrap();
    });
    let came = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(relay).unwrap();
        write!(stream, "CONNECT {end} HTTP/1.1\r\nHost: {end}\r\n\r\n").unwrap();
        assert!(head(&mut stream).unwrap().starts_with("HTTP/1.1 200 "));
        stream.write_all(b"hello").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // It has ended before any of it is read.
        assert!(noted.recv().unwrap().starts_with("CONNECT "));
        std::thread::sleep(Duration::from_millis(200));
        let mut came = Vec::new();
        stream.read_to_end(&mut came).map(|_| came.len())
    });
    assert_eq!(came.await.unwrap().unwrap(), BYTES);
}

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(60);

/// A relay that passed a request on could repeat it with what was sealed for the next one.
#[test]
fn what_is_sealed_lets_in_once() {
    let token = swath_serve::Token { secret: "s".to_owned(), ..swath_serve::Token::default() };
    let tokens = swath_serve::Access::new(vec![token], Vec::new());
    let clients = Clients::new(Vec::new(), Some(tokens));
    let life = watch::channel(Life::Open).1;
    let relay = Relay::open(RelayOptions { clients, ..options(LONG) }, None, life).unwrap();
    let url = "http://127.0.0.1:1/f";
    let head = |pass: &str, sealed: &str| {
        let lines = format!("Host: r\r\nswath-pass: {pass}\r\nswath-sealed: {sealed}\r\n");
        let text = format!("GET /relay/{url} HTTP/1.1\r\n{lines}\r\n");
        Head::parse_passing(text.as_bytes()).unwrap().unwrap().0
    };
    let at = |purpose: &str, text: &[u8], seconds: u64| {
        seal(relay.key.public(), purpose, text, seconds).unwrap()
    };
    let purpose = Pass::Read(url).purpose();
    let pass = |seconds| at(&purpose, b"Bearer s", seconds);
    let lines = |seconds| at(url, b"X-Own: mine\r\n", seconds);
    let peer = (Ipv4Addr::LOCALHOST, 1).into();
    let fault = |refused: Response| {
        let told = refused.fields.into_iter().find(|(name, _)| *name == "proxy-status").unwrap();
        swath_formats::proxy_status::read(&told.1).unwrap().fault
    };
    let first = head(&pass(now_s()), &lines(now_s()));
    assert!(relay.admit(&first, peer, Form::Path).is_ok());
    let spent = Some(ProxyFault::Spent);
    assert_eq!(relay.admit(&first, peer, Form::Path).err().map(fault), Some(spent));
    let url = Url::parse(url).unwrap();
    assert_eq!(relay.unsealed(&first, &url).ok().unwrap().len(), 1);
    assert_eq!(relay.unsealed(&first, &url).err().map(fault), Some(spent));
    let old = now_s() - 10 * 60;
    let late = head(&pass(old), &lines(old));
    assert_eq!(relay.admit(&late, peer, Form::Path).err().map(fault), Some(spent));
    assert_eq!(relay.unsealed(&late, &url).err().map(fault), Some(spent));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_leads_to_a_host_and_a_port_alone() {
    // What stood behind a question mark was taken for the path of an address.
    let relay = run(options(LONG)).await;
    let (listener, _waiting) = deaf();
    let port = listener.local_addr().unwrap().port();
    for more in ["?x:22", "#x:22", "/", "/x:22", "\\x:22"] {
        let request = format!("CONNECT 127.0.0.1:{port}{more} HTTP/1.1\r\nHost: r\r\n\r\n");
        let answer = ask(relay, request).await;
        assert!(answer.starts_with("HTTP/1.1 40"), "{more}: {answer}");
    }
}
