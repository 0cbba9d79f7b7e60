//! Relays that are full: of bytes (`--max-rate`), of connections (`--max-connections`), of clients.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use swath_netlab::faulty::{Behaviour, Content, Server};

use crate::support::depot::until;
use crate::support::net::{honest, server, sha256, url};
use crate::support::relay::head_of;
use crate::support::serve::{Served, succeeds};
use crate::support::{Home, peak_bytes};

/// What a second may bring where there is a limit.
const RATE_BYTES_PER_S: u64 = 1_000_000;
/// So much may come before the clock counts: what was not used of the last 50 ms, and the last turn
/// (20 ms), all of which may be moved when it begins.
const BURST_S: f64 = 0.072;

/// The least time that the limit leaves for so many bytes.
fn least(size_bytes: u64) -> Duration {
    Duration::from_secs_f64(size_bytes as f64 / RATE_BYTES_PER_S as f64 - BURST_S)
}

/// What to ask a relay for to have what is at `url`.
fn target(relay: &Served, url: &str) -> String {
    relay.through(url)[relay.named().len()..].to_owned()
}

fn connect(relay: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(relay).unwrap();
    // Longer than anything here takes, and shorter than for ever.
    tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    tcp
}

/// The body of the answer to one request for a range; the connection ends with it.
fn ask(tcp: &mut TcpStream, target: &str, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let range = format!("Range: bytes={start}-{}", end - 1);
    let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{range}\r\nConnection: close\r\n\r\n");
    tcp.write_all(head.as_bytes())?;
    let head = head_of(tcp).ok_or_else(|| io::Error::other("no answer"))?;
    assert!(head.starts_with("HTTP/1.1 206 "), "{head}");
    let mut body = Vec::new();
    tcp.read_to_end(&mut body)?;
    Ok(body)
}

/// One figure of those that a relay tells.
fn metric(relay: &Served, name: &str) -> u64 {
    let text = relay.ask("GET", "/metrics", "", b"").is(200).text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
}

#[test]
fn what_is_passed_and_what_is_tunnelled_share_one_limit() {
    // Each client had a limit of its own, or tunnels none, and nobody would have seen it.
    const EACH: u64 = 600_000;
    let home = Home::new();
    let content = Content::random(1, EACH);
    let origin = honest(&content);
    let relay = home.relay(&["--max-rate", "1M"]);
    let address = relay.address();
    let passed = target(&relay, &url(&origin));
    let far = origin.address();
    // They are connected first: what an answer without bytes costs is not looked at here.
    let all = Arc::new(Barrier::new(5));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (all, passed) = (Arc::clone(&all), passed.clone());
            std::thread::spawn(move || {
                let mut tcp = connect(address);
                let is_tunnel = number == 3;
                if is_tunnel {
                    write!(tcp, "CONNECT {far} HTTP/1.1\r\nHost: {far}\r\n\r\n").unwrap();
                    let head = head_of(&mut tcp).unwrap();
                    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
                }
                all.wait();
                let from = if is_tunnel { "/data.bin" } else { &passed };
                let body = ask(&mut tcp, from, 0, EACH).unwrap();
                (Instant::now(), body)
            })
        })
        .collect();
    let began = Instant::now();
    all.wait();
    let mut ends: Vec<Duration> = Vec::new();
    for client in clients {
        let (end, body) = client.join().unwrap();
        assert!(body == content.read(0, EACH), "{} bytes", body.len());
        ends.push(end - began);
    }
    let tunnelled = metric(&relay, "swath_relay_tunnelled_bytes_total");
    assert!(tunnelled >= EACH, "{tunnelled}");
    assert!(metric(&relay, "swath_relay_bytes_total") >= 3 * EACH);
    println!("ends {ends:?}");
    ends.sort_unstable();
    assert!(ends[3] >= least(4 * EACH), "{ends:?}");
    assert!(ends[3] < Duration::from_secs(12), "{ends:?}");
    // One before the others it would have been there after 0.6 s.
    assert!(ends[0] >= least(2 * EACH), "{ends:?}");
}

/// On how many connections an origin was sending at the same moment, at most. It may note the end of
/// an answer a little late.
fn at_once(origin: &Server) -> usize {
    const LATE: Duration = Duration::from_millis(400);
    let records = origin.log().records;
    let under_way = |at: Duration| {
        let open = records
            .iter()
            .filter(|it| it.started <= at && it.ended.is_none_or(|ended| ended > at + LATE));
        let mut numbers: Vec<u64> = open.map(|it| it.connection).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len()
    };
    records.iter().map(|it| under_way(it.started)).max().unwrap_or(0)
}

/// Somebody who has so many bytes from `start` on.
fn streams(
    relay: &Served,
    origin: &Server,
    start: u64,
    bytes: u64,
) -> std::thread::JoinHandle<Vec<u8>> {
    let (address, target) = (relay.address(), target(relay, &url(origin)));
    std::thread::spawn(move || ask(&mut connect(address), &target, start, start + bytes).unwrap())
}

#[test]
fn more_clients_than_there_is_room_for_wait_and_lose_nothing() {
    let home = Home::new();
    let content = Content::random(2, 4_000_000);
    let origin = server(&content, Behaviour::ConnectionRate { bytes_per_s: 400_000 });
    let relay = home.relay(&["--max-connections", "4"]);
    // They end one after the other, half a second apart.
    let bytes = |client: u64| 600_000 + client % 4 * 200_000;
    let mut clients: Vec<_> = (0..4).map(|at| streams(&relay, &origin, at, bytes(at))).collect();
    until("all places are taken", || origin.log().count("GET") == 4);
    clients.extend((4..10).map(|at| streams(&relay, &origin, at, bytes(at))));
    for (at, client) in (0..).zip(clients) {
        let body = client.join().unwrap();
        assert!(body == content.read(at, at + bytes(at)), "{at}: {} bytes", body.len());
    }
    assert_eq!(origin.log().count("GET"), 10);
    assert_eq!(at_once(&origin), 4);
    let waited = metric(&relay, "swath_connections_waited_total");
    assert!((2..=7).contains(&waited), "{waited}");
}

#[test]
fn a_transfer_by_a_full_relay_ends_when_places_become_free() {
    let home = Home::new();
    let content = Content::random(3, 4_000_000);
    let origin = server(&content, Behaviour::ConnectionRate { bytes_per_s: 400_000 });
    let relay = home.relay(&["--max-connections", "4"]);
    let bytes = |client: u64| 800_000 + client * 200_000;
    let clients: Vec<_> = (0..4).map(|at| streams(&relay, &origin, at, bytes(at))).collect();
    until("all places are taken", || origin.log().count("GET") == 4);
    let (digest, named) = (sha256(&content), relay.named());
    let args = ["get", &url(&origin), "-o", "got", "--digest", &digest, "--route", &named];
    let ran = home.run(args);
    ran.code_is(0).says(&["verified by sha-256"]);
    home.holds("got", &content);
    // Whoever was there before has lost nothing by it.
    for (at, client) in (0..).zip(clients) {
        let body = client.join().unwrap();
        assert!(body == content.read(at, at + bytes(at)), "{at}: {} bytes", body.len());
    }
    assert!(at_once(&origin) <= 4, "{}", at_once(&origin));
    assert!(metric(&relay, "swath_connections_waited_total") >= 1);
}

/// All were served, in a sane time, and nobody far behind the others.
fn assert_fair(mut took: Vec<Duration>) {
    took.sort_unstable();
    let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    println!("{} clients: median {median:?}, slowest {slowest:?}", took.len());
    assert!(slowest < Duration::from_secs(60), "{slowest:?}");
    // One after the other the last would be there after twice the time of the one in the middle.
    assert!(slowest < 4 * median + Duration::from_secs(2), "{median:?}, {slowest:?}");
}

#[test]
fn a_thousand_clients_stream_at_once_within_bounded_memory_and_fairly() {
    // A thousand of a kilobyte each were asked one after the other (relay_breaks.rs): no answer of those
    // was longer than what buffers hold.
    const CLIENTS: u64 = 1000;
    const EACH: u64 = 256_000;
    const APART: u64 = 64;
    let home = Home::new();
    let content = Content::random(4, EACH + CLIENTS * APART);
    let origin = honest(&content);
    let relay = home.relay(&[]);
    let (address, target) = (relay.address(), target(&relay, &url(&origin)));
    let (whole, target) = (Arc::new(content.read(0, content.size_bytes())), Arc::new(target));
    let all = Arc::new(Barrier::new(CLIENTS as usize));
    let client = |number: u64| {
        let (all, whole, target) = (Arc::clone(&all), Arc::clone(&whole), Arc::clone(&target));
        let run = move || {
            let mut tcp = connect(address);
            all.wait();
            let (began, start) = (Instant::now(), number * APART);
            let body = ask(&mut tcp, &target, start, start + EACH).unwrap();
            let took = began.elapsed();
            assert!(body == whole[start as usize..(start + EACH) as usize], "{number}");
            took
        };
        std::thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap()
    };
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    assert_fair(clients.into_iter().map(|it| it.join().unwrap()).collect());
    let peak_mib = peak_bytes(relay.pid()).unwrap() >> 20;
    println!("{peak_mib} MiB");
    assert!(peak_mib < 200, "{peak_mib} MiB");
}

#[test]
fn three_hundred_clients_stream_encrypted_within_bounded_memory_and_fairly() {
    const CLIENTS: u64 = 300;
    let home = Home::new();
    let content = Content::random(5, 1_000_000);
    let origin = honest(&content);
    let relay = home.tls_relay(&["--clients", "127.0.0.0/8"]);
    let from = format!("{}?[1-{CLIENTS}]", relay.through(&url(&origin)));
    let most = CLIENTS.to_string();
    // Whatever curl draws of its progress stands beside it.
    let told = "\\ntook %{http_code} %{num_connects} %{time_total}\\n";
    let usual = ["-sSk", "--http1.1", "-m", "80", "-o", "got-#1", "-w", told, &from];
    let at_once = ["-Z", "--parallel-immediate", "--parallel-max", &most];
    let Some(told) = succeeds(&home.work(), "curl", &[&at_once[..], &usual].concat()) else {
        return;
    };
    let mut took = Vec::new();
    for line in told.lines().filter_map(|line| line.strip_prefix("took ")) {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[..2], ["200", "1"], "{line}");
        took.push(Duration::from_secs_f64(words[2].parse().unwrap()));
    }
    assert_eq!(took.len() as u64, CLIENTS);
    (1..=CLIENTS).for_each(|number| home.holds(&format!("got-{number}"), &content));
    assert_fair(took);
    let peak_mib = peak_bytes(relay.pid()).unwrap() >> 20;
    println!("{peak_mib} MiB");
    assert!(peak_mib < 200, "{peak_mib} MiB");
}
