//! `swath serve --allow`: who is answered, by the address that it comes from.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::support::Home;
use crate::support::serve::Served;

const FOUR: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SIX: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn home() -> Home {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    home
}

/// Everybody who is allowed may read; listens at `address`.
fn serving(home: &Home, address: &str, allow: &[&str]) -> Served {
    let mut args = vec!["tree", "--anonymous", "--plain"];
    args.extend(allow.iter().flat_map(|network| ["--allow", network]));
    home.serve_at(address, &args)
}

/// The answer to whoever comes by way of `ip`.
fn ask(server: &Served, ip: IpAddr, request: &str) -> String {
    let port = server.url.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
    let mut tcp = TcpStream::connect(SocketAddr::new(ip, port)).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(tcp, "{request}\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    answer
}

fn is_let_in(server: &Served, ip: IpAddr) -> bool {
    let answer = ask(server, ip, "GET /a.txt HTTP/1.1");
    match &answer[..13] {
        "HTTP/1.1 200 " => assert!(answer.ends_with("\r\n\r\nalpha\n"), "{answer}"),
        "HTTP/1.1 403 " => assert!(answer.contains("does not answer your address"), "{answer}"),
        _ => panic!("{answer}"),
    }
    answer.starts_with("HTTP/1.1 200 ")
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
    let home = home();
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
        let server = serving(&home, "127.0.0.1:0", allow);
        assert_eq!(is_let_in(&server, FOUR), expected, "{allow:?}");
    }
}

#[test]
fn the_loopback_address_of_the_newer_kind_is_one_like_others() {
    if !has_six() {
        return;
    }
    let home = home();
    for (allow, expected) in
        [(&[][..], true), (&["::1"], true), (&["::/64"], true), (&["127.0.0.0/8"], false)]
    {
        let server = serving(&home, "[::1]:0", allow);
        assert!(server.url.starts_with("http://[::1]:"), "{}", server.url);
        assert_eq!(is_let_in(&server, SIX), expected, "{allow:?}");
    }
    // The whole way, by the program's own clients.
    let server = serving(&home, "[::1]:0", &["::1"]);
    home.run(["get", &server.at("a.txt"), "-o", "got", "--quiet"]).code_is(0);
    assert_eq!(home.read("got"), b"alpha\n");
    home.run(["cp", &server.url, "copy/", "--quiet"]).code_is(0);
    assert_eq!(home.read("copy/a.txt"), b"alpha\n");
}

#[test]
fn who_comes_by_the_older_kind_to_a_socket_of_both_is_known_by_its_own_address() {
    if !has_six() {
        return;
    }
    let home = home();
    // Such a socket sees 127.0.0.1 as ::ffff:127.0.0.1.
    for (allow, by_four, by_six) in [
        ("127.0.0.1", true, false),
        ("127.0.0.0/8", true, false),
        ("::ffff:127.0.0.1", true, false),
        ("::1", false, true),
        ("192.0.2.0/24", false, false),
    ] {
        let server = serving(&home, "[::]:0", &[allow]);
        assert_eq!(is_let_in(&server, FOUR), by_four, "{allow}");
        assert_eq!(is_let_in(&server, SIX), by_six, "{allow}");
    }
}

#[test]
fn who_is_not_allowed_gets_403_for_everything_but_its_health() {
    let home = home();
    let args = ["tree", "--write", "--plain", "--allow", "192.0.2.0/24"];
    let server = home.serve(&args);
    let auth = format!("Authorization: Bearer {}", server.token());
    for request in [
        "GET / HTTP/1.1",
        "GET /none HTTP/1.1",
        "HEAD /a.txt HTTP/1.1",
        "OPTIONS / HTTP/1.1",
        "GET /metrics HTTP/1.1",
        "GET /?swath=index HTTP/1.1",
        "POST /new/?swath=receive HTTP/1.1",
        "GET /?swath=lane&of=0 HTTP/1.1\r\nUpgrade: swath-lane\r\nConnection: upgrade",
        "PUT /new HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1",
        "DELETE /a.txt HTTP/1.1",
    ] {
        // The right token does not help, and that it is right is not told.
        for request in [request.to_owned(), format!("{request}\r\n{auth}")] {
            let answer = ask(&server, FOUR, &request);
            assert!(answer.starts_with("HTTP/1.1 403 "), "{request}: {answer}");
        }
    }
    assert!(!home.exists("tree/new"));
    assert!(ask(&server, FOUR, "GET /health HTTP/1.1").starts_with("HTTP/1.1 200 "));
    home.write("token", server.token());
    let copied = home.run(["cp", &server.url, "copy/", "--bearer-file", "token"]);
    copied.code_is(7).says(&["403"]);
    home.run(["cp", "tree/", &server.at("new/"), "--bearer-file", "token"])
        .code_is(5)
        .says(&["403"]);
    assert!(!home.exists("copy") && !home.exists("tree/new"));
}

#[test]
fn what_is_no_network_is_refused_before_anybody_is_let_in() {
    let home = home();
    for wrong in ["", "127.0.0.1/33", "::1/129", "localhost", "127.0.0.0/", "10/8"] {
        let served = home.run(["serve", "tree", "--anonymous", "--allow", wrong]);
        served.code_is(2).says(&["is not an address block"]);
    }
}
