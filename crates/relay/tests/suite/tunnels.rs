//! Tunnels (`CONNECT`): what goes through them, where they lead, when they end and what is noted.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use swath_netlab::faulty::Content;
use swath_netlab::reserve_port;
use swath_relay::RelayOptions;

use crate::support::{
    FILE, Relay, connect, each_connection, head_of, honest, options, silent, to_end, told, until,
    whole,
};

#[test]
fn what_goes_through_a_tunnel_comes_as_it_was_sent() {
    let content = Content::random(43, 1_000_003);
    let origin = honest(&content);
    let relay = Relay::start(options());
    let request =
        format!("GET {FILE} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Mine: 1\r\n\r\n");
    let answer = told(relay.tunnel(origin.address()), request.as_bytes()).is(200);
    assert!(answer.body == whole(&content));
    // Nothing is added: neither end knows of the relay.
    assert!(!answer.head.contains("via: ") && !answer.head.contains("server-timing: "));
    let log = origin.log();
    let asked = log.on(FILE).next().unwrap();
    assert_eq!((asked.header("via"), asked.header("x-mine")), (None, Some("1")));
}

#[test]
fn what_is_sent_ahead_of_the_answer_is_for_the_other_end() {
    let echo = each_connection(|tcp| {
        let (mut from, mut to) = (tcp.try_clone().unwrap(), tcp);
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let relay = Relay::start(options());
    let mut tcp = connect(relay.address);
    write!(tcp, "CONNECT {echo} HTTP/1.1\r\nHost: {echo}\r\n\r\nahead").unwrap();
    assert!(head_of(&mut tcp).unwrap().starts_with("HTTP/1.1 200 "));
    tcp.write_all(b" and behind").unwrap();
    tcp.shutdown(Shutdown::Write).unwrap();
    assert_eq!(to_end(&mut tcp), b"ahead and behind");
}

#[test]
fn both_ways_are_in_use_at_once() {
    // Each end sends far more than all buffers hold before it reads anything.
    const BYTES: usize = 32 << 20;
    let talks = |tcp: std::net::TcpStream, byte: u8| {
        let mut out = tcp.try_clone().unwrap();
        let sends = std::thread::spawn(move || {
            out.write_all(&vec![byte; BYTES]).unwrap();
            out.shutdown(Shutdown::Write).unwrap();
        });
        let came = to_end(&mut &tcp);
        sends.join().unwrap();
        came
    };
    let end = each_connection(move |tcp| {
        let came = talks(tcp, b'e');
        assert!(came.len() == BYTES && came.iter().all(|&byte| byte == b'c'));
    });
    let relay = Relay::start(options());
    let came = talks(relay.tunnel(end), b'c');
    assert!(came.len() == BYTES && came.iter().all(|&byte| byte == b'e'), "{}", came.len());
    until("all of it is counted", || {
        relay.metric("swath_relay_tunnelled_bytes_total") == 2 * BYTES as u64
    });
    assert_eq!(relay.metric("swath_relay_tunnels_total"), 1);
}

#[test]
fn a_tunnel_is_noted_with_its_bytes_when_it_has_ended() {
    let content = Content::random(43, 300_000);
    let origin = honest(&content);
    let relay = Relay::start(options());
    let tcp = relay.tunnel(origin.address());
    assert!(relay.noted().is_empty(), "it is under way");
    told(tcp, format!("GET {FILE} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes())
        .is(200);
    until("it is noted", || !relay.noted().is_empty());
    let noted = &relay.noted()[0];
    assert_eq!((&*noted.method, noted.status), ("CONNECT", 200));
    assert_eq!(noted.target, origin.address().to_string());
    assert!(noted.bytes > 300_000, "{noted:?}");
}

#[test]
fn a_tunnel_ends_when_nothing_moves_for_the_relay_s_timeout_and_no_sooner() {
    // It ended after 90 to 180 s of silence, whatever the relay was told. (`Quiet`, in `tunnel`, is
    // tested with a clock of the test's.)
    let timeout = Duration::from_millis(400);
    let hasty = Relay::start(RelayOptions { timeout, ..options() });
    let patient = Relay::start(options());
    let end = silent();
    let mut stays = patient.tunnel(end);
    let began = Instant::now();
    let mut ends = hasty.tunnel(end);
    assert!(to_end(&mut ends).is_empty(), "nothing was said");
    assert!(began.elapsed() >= timeout);
    stays.set_nonblocking(true).unwrap();
    let open = stays.read(&mut [0]).unwrap_err();
    assert_eq!(open.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn where_nobody_listens_no_tunnel_leads() {
    let relay = Relay::start(options());
    let (head, mut tcp) = relay.connect_to(&format!("127.0.0.1:{}", reserve_port()), "");
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(head.contains("error=connection_refused"), "{head}");
    // Its connection ends: what comes next may have been meant for the tunnel.
    let rest = String::from_utf8_lossy(&to_end(&mut tcp)).into_owned();
    assert!(rest.starts_with("relay between: "), "{rest}");
}

#[test]
fn what_is_no_request_for_a_tunnel_opens_none() {
    let origin = honest(&Content::random(43, 1000));
    let relay = Relay::start(options());
    let end = origin.address();
    for (request, status) in [
        (format!("CONNECT {end} HTTP/1.0\r\nHost: a\r\n\r\n"), "403"),
        (format!("CONNECT {end} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"), "403"),
        ("CONNECT 127.0.0.1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "403"),
        (format!("CONNECT me:pw@{end} HTTP/1.1\r\nHost: a\r\n\r\n"), "403"),
        (format!("CONNECT http://{end}/ HTTP/1.1\r\nHost: a\r\n\r\n"), "403"),
    ] {
        let told = String::from_utf8_lossy(&relay.raw(&request)).into_owned();
        assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {told}");
        assert!(!told.contains("pw"), "{told}");
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_tunnel_within_a_tunnel_leads_to_the_next_relay() {
    let content = Content::random(43, 100_003);
    let origin = honest(&content);
    let (near, far) = (Relay::start(options()), Relay::start(options()));
    let mut tcp = near.tunnel(far.address);
    let end = origin.address();
    write!(tcp, "CONNECT {end} HTTP/1.1\r\nHost: {end}\r\n\r\n").unwrap();
    assert!(head_of(&mut tcp).unwrap().starts_with("HTTP/1.1 200 "));
    let answer = told(
        tcp,
        format!("GET {FILE} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes(),
    );
    assert!(answer.is(200).body == whole(&content));
    // The first one knows of the second alone.
    until("both are noted", || near.noted().len() + far.noted().len() == 2);
    assert_eq!(near.noted()[0].target, far.address.to_string());
    assert_eq!(far.noted()[0].target, end.to_string());
}

#[test]
fn when_either_end_is_gone_so_is_the_other_one() {
    let (tells, told) = std::sync::mpsc::channel();
    let tells = std::sync::Mutex::new(tells);
    let end = each_connection(move |mut tcp| {
        let came = to_end(&mut tcp);
        tells.lock().unwrap().send(came).unwrap();
    });
    let relay = Relay::start(options());
    let mut tcp = relay.tunnel(end);
    tcp.write_all(b"last words").unwrap();
    drop(tcp);
    assert_eq!(told.recv().unwrap(), b"last words");
    // And the other way about.
    let end = each_connection(|mut tcp| tcp.write_all(b"gone").unwrap());
    let mut tcp = relay.tunnel(end);
    let mut came = [0; 4];
    tcp.read_exact(&mut came).unwrap();
    assert_eq!((&came, tcp.read(&mut [0]).unwrap_or(0)), (b"gone", 0));
}
