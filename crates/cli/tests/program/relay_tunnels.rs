//! `--end-to-end`: what relays carry without reading it, and what each of them hears meanwhile. An ear
//! in front of a relay hears all that this relay ever hears of us.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::depot::until;
use crate::support::net::{honest, url};
use crate::support::relay::{FIRST, SECOND, Two};
use crate::support::serve::Served;
use swath_netlab::faulty::Content;

const SIZE: u64 = 3_000_017;

#[test]
fn each_relay_of_a_tunnel_is_shown_its_own_token_and_hears_of_no_other() {
    // The second relay answered 407: the first one asked it for a tunnel in its own name.
    let content = Content::random(41, SIZE);
    let origin = honest(&content);
    let from = url(&origin);
    for is_far_tls in [true, false] {
        let two = Two::new(is_far_tls);
        two.get(&from, "config.toml").code_is(0);
        two.home.holds("got", &content);
        // The ears hear: in the clear where the relay speaks no TLS.
        assert!(two.near.heard(FIRST) && two.near.heard("CONNECT "));
        assert!(
            two.far.heard("CONNECT ") != is_far_tls && two.far.heard("swath-pass: ") != is_far_tls
        );
        assert!(
            !two.near.heard(SECOND),
            "the first relay hears the second one's token ({is_far_tls})"
        );
        assert!(
            !two.far.heard(FIRST),
            "the second relay hears the first one's token ({is_far_tls})"
        );
        assert!(!two.far.heard("Proxy-Authorization"), "it went where the first relay reads along");
        // Nor does the first one hear where the way goes on, if the second speaks TLS.
        let end = from.trim_start_matches("http://").split('/').next().unwrap().to_owned();
        assert_eq!(two.near.heard(&format!("CONNECT {end} ")), !is_far_tls);
        for log in ["near.log", "far.log"] {
            let log = fs::read_to_string(two.home.path(log)).unwrap();
            assert!(log.contains("CONNECT ") && !log.contains("opens-the-"), "{log}");
        }
    }
}

#[test]
fn a_relay_of_a_tunnel_that_lacks_its_token_is_named() {
    let content = Content::random(42, SIZE);
    let origin = honest(&content);
    let two = Two::new(true);
    let whole = fs::read_to_string(two.home.path("config.toml")).unwrap();
    let (head, _) = whole
        .split_once(&format!(", token-file = \"{}\"", two.home.path(SECOND).display()))
        .unwrap();
    two.home.write("half.toml", format!("{head} }},\n]\n"));
    let far = two.far.url().replace("http://", "");
    two.get(&url(&origin), "half.toml").code_is(7).says(&[&far, "it lets others in"]);
    assert!(!two.near.heard(SECOND));
}

#[test]
fn what_passed_through_a_tunnel_is_noted_also_by_a_relay_that_encrypts() {
    // Ends of encrypted connections are often errors, and then it noted 0 bytes.
    let home = Home::new();
    let content = Content::random(43, SIZE);
    let origin = honest(&content);
    let relay = home.tls_relay(&["--clients", "127.0.0.0/8", "--log", "relay.log"]);
    let print = relay.words.lines().find_map(|line| line.strip_prefix("fingerprint ")).unwrap();
    let route = ["--end-to-end", "--route", &relay.named(), "--fingerprint", print.trim()];
    home.run([&["get", &url(&origin), "-o", "got"], &route[..]].concat()).code_is(0);
    home.holds("got", &content);
    let noted = || {
        let log = fs::read_to_string(home.path("relay.log")).unwrap();
        let lines = log.lines().filter(|line| line.contains("CONNECT "));
        let bytes = lines.map(|line| {
            let (_, after) = line.split_once("\" 200 ").unwrap();
            after.split(' ').next().unwrap().parse::<u64>().unwrap_or(0)
        });
        bytes.sum::<u64>()
    };
    until("all that passed is noted", || noted() > SIZE);
}

/// An end of tunnels that says a word every now and then, or nothing at all, and keeps them open.
fn far_end(word: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut near, _)) = listener.accept() {
            std::thread::spawn(move || {
                while near.write_all(word).is_ok() {
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
        }
    });
    address
}

fn tunnel(relay: &Served, to: SocketAddr) -> TcpStream {
    let mut tcp = TcpStream::connect(relay.address()).unwrap();
    // Far longer than it takes, and shorter than what once was fixed.
    tcp.set_read_timeout(Some(Duration::from_secs(45))).unwrap();
    write!(tcp, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        tcp.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    tcp
}

#[test]
fn a_tunnel_ends_when_nothing_moves_for_the_relays_timeout_and_no_sooner() {
    // It ended after 90 to 180 s of silence, whatever the relay was told.
    let home = Home::new();
    let (hasty, patient) = (home.relay(&["--timeout", "2s"]), home.relay(&["--timeout", "60s"]));
    let (silent, talks) = (far_end(b""), far_end(b"."));
    let began = Instant::now();
    let mut ends = tunnel(&hasty, silent);
    let mut stays = tunnel(&patient, silent);
    let mut hears = tunnel(&hasty, talks);
    match ends.read(&mut [0]) {
        Ok(bytes) => assert_eq!(bytes, 0, "nothing was said"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    assert!(began.elapsed() >= Duration::from_secs(2));
    stays.set_nonblocking(true).unwrap();
    let open = stays.read(&mut [0]).unwrap_err();
    assert_eq!(open.kind(), std::io::ErrorKind::WouldBlock);
    // One side that talks is enough: words of more than two seconds.
    hears.read_exact(&mut [0; 30]).unwrap();
}
