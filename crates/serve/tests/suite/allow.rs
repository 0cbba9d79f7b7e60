//! Networks whose clients are answered, by the address that each comes from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::support::{Answer, Served, Tree, all_of, auth};

const FOUR: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SIX: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn tree() -> Tree {
    Tree::of(&[("tree/a.txt", "alpha\n")])
}

/// Whether the server lets in whoever comes by way of `ip`.
#[track_caller]
fn is_let_in(server: &Served, ip: IpAddr) -> bool {
    let mut tcp = server.connect_by(ip);
    let request = b"GET /a.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut tcp, request).unwrap();
    let answer = Answer(all_of(&mut tcp));
    match answer.status() {
        200 => assert_eq!(answer.text(), "alpha\n"),
        _ => _ = answer.is(403).has(&["does not answer your address"]),
    }
    answer.status() == 200
}

/// Says so where it is not the case.
fn has_six() -> bool {
    let has = TcpListener::bind((SIX, 0)).is_ok();
    if !has {
        println!("skipped: this machine has no ::1");
    }
    has
}

#[test]
fn networks_and_single_addresses_let_in_their_own() {
    let tree = tree();
    for (allow, expected) in [
        (&["192.0.2.0/24"][..], false),
        (&["127.0.0.0/8"], true),
        (&["127.0.0.1"], true),
        (&["127.0.0.1/32"], true),
        (&["127.0.0.2"], false),
        (&["127.0.0.2/31"], false),
        (&["192.0.2.0/24", "10.0.0.0/8", "127.0.0.1"], true),
        (&["0.0.0.0/0"], true),
        (&["::1"], false),
        (&["::/0"], false),
        // Addresses of the older kind, written as the newer kind has them.
        (&["::ffff:127.0.0.1"], true),
        (&["::ffff:127.0.0.0/104"], true),
        (&["::ffff:10.0.0.0/104"], false),
    ] {
        let server = tree.plan(&["tree"]).allow(allow).start();
        assert_eq!(is_let_in(&server, FOUR), expected, "{allow:?}");
    }
}

#[test]
fn the_loopback_address_of_the_newer_kind_is_one_like_others() {
    if !has_six() {
        return;
    }
    let tree = tree();
    for (allow, expected) in
        [(&[][..], true), (&["::1"], true), (&["::/64"], true), (&["127.0.0.0/8"], false)]
    {
        let server = tree.plan(&["tree"]).at("[::1]:0").allow(allow).start();
        assert_eq!(is_let_in(&server, SIX), expected, "{allow:?}");
    }
}

#[test]
fn who_comes_by_the_older_kind_to_a_socket_of_both_is_known_by_its_own_address() {
    if !has_six() {
        return;
    }
    let tree = tree();
    // Such a socket sees 127.0.0.1 as ::ffff:127.0.0.1.
    for (allow, by_four, by_six) in [
        ("127.0.0.1", true, false),
        ("127.0.0.0/8", true, false),
        ("::ffff:127.0.0.1", true, false),
        ("::1", false, true),
        ("192.0.2.0/24", false, false),
    ] {
        let server = tree.plan(&["tree"]).at("[::]:0").allow(&[allow]).start();
        assert_eq!(is_let_in(&server, FOUR), by_four, "{allow}");
        assert_eq!(is_let_in(&server, SIX), by_six, "{allow}");
    }
}

#[test]
fn who_is_not_allowed_gets_403_for_everything_but_its_health() {
    let tree = tree();
    let server = tree.plan(&["tree"]).writes().allow(&["192.0.2.0/24"]).start();
    for request in [
        "GET / HTTP/1.1",
        "GET /none HTTP/1.1",
        "HEAD /a.txt HTTP/1.1",
        "OPTIONS / HTTP/1.1",
        "PROPFIND / HTTP/1.1\r\nDepth: 0",
        "GET /metrics HTTP/1.1",
        "GET /?swath=index HTTP/1.1",
        "POST /new/?swath=receive HTTP/1.1",
        "GET /?swath=lane&of=0 HTTP/1.1\r\nUpgrade: swath-lane",
        "PUT /new HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1",
        "DELETE /a.txt HTTP/1.1",
    ] {
        // The right token does not help, and that it is right is not told.
        for request in [request.to_owned(), format!("{request}\r\n{}", auth())] {
            server.ask(&request).is(403);
        }
    }
    assert!(!tree.exists("tree/new") && tree.exists("tree/a.txt"));
    server.get("/health").is(200);
}

#[test]
fn clients_of_several_networks_of_one_machine_are_told_apart() {
    let tree = tree();
    let server = tree.plan(&["tree"]).allow(&["127.0.0.2", "127.0.0.4/30"]).start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (last, expected) in [(1, false), (2, true), (3, false), (4, true), (7, true), (8, false)] {
        let from = SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), 0);
        let answer = runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(from).unwrap();
            let mut tcp = socket.connect(server.address).await.unwrap();
            tcp.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            tcp.read_to_end(&mut answer).await.unwrap();
            Answer(answer)
        });
        assert_eq!(answer.status() == 200, expected, "127.0.0.{last}: {answer}");
    }
}
