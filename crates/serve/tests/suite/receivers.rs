//! Trees that others send: what the receiver gets to know, and connections that become its lanes.

use std::io::{Read as _, Write as _};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use swath_serve::{Order, Receive};

use crate::support::{Answer, Plan, Served, TOKEN, Tree, all_of, auth, eventually, head_of};

/// Hands the orders to the test.
struct Hands(Mutex<Sender<Order>>);

impl Receive for Hands {
    fn begin(&self, order: Order) {
        self.0.lock().unwrap().send(order).unwrap();
    }
}

fn receiving(plan: Plan) -> (Served, Receiver<Order>) {
    let (orders, begun) = channel();
    let line = format!("{TOKEN} write");
    let server = plan.tokens(&[&line, "reads"]).receives(Arc::new(Hands(Mutex::new(orders))));
    (server.start(), begun)
}

fn store() -> (Tree, Served, Receiver<Order>) {
    let tree = Tree::new();
    tree.folder("store");
    let (server, begun) = receiving(tree.plan(&["store"]));
    (tree, server, begun)
}

fn post(target: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: h\r\n{}\r\n\r\n", auth())
}

#[test]
fn lines_of_an_order_come_to_its_sender_until_it_is_over() {
    let (tree, server, begun) = store();
    let mut sender = server.hold(&post("/new/deep/?swath=receive&lanes=4&x=a+b"));
    let order = begun.recv().unwrap();
    assert_eq!(order.destination.shown, "new/deep");
    assert!(order.destination.path.starts_with("/proc/self/fd"));
    let wishes = [("swath", "receive"), ("lanes", "4"), ("x", "a b")];
    assert_eq!(order.wishes, wishes.map(|(name, value)| (name.to_owned(), value.to_owned())));
    // What is above it is made, and it itself is left to the receiver.
    assert!(tree.exists("store/new") && !tree.exists("store/new/deep"));
    assert!(head_of(&mut sender).starts_with("HTTP/1.1 200 "));
    for line in ["{\"one\":1}", "{\"two\":2}"] {
        assert!(order.lines.send(line.to_owned()));
    }
    drop(order);
    let rest = String::from_utf8(all_of_kept(&mut sender)).unwrap();
    assert!(rest.contains("{\"one\":1}\n") && rest.contains("{\"two\":2}\n"), "{rest}");
}

/// Reads to the end of a chunked body on a connection that is kept.
fn all_of_kept(tcp: &mut std::net::TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut part = [0; 4096];
    while !all.ends_with(b"0\r\n\r\n") {
        match tcp.read(&mut part).unwrap() {
            0 => break,
            bytes => all.extend_from_slice(&part[..bytes]),
        }
    }
    all
}

#[test]
fn a_sender_that_leaves_ends_its_order() {
    let (_tree, server, begun) = store();
    let mut sender = server.hold(&post("/new/?swath=receive"));
    let order = begun.recv().unwrap();
    assert!(order.lines.send("{}".to_owned()));
    head_of(&mut sender);
    drop(sender);
    // It is noticed when something is sent, or when the connection is looked at.
    eventually("the sender is gone", || !order.lines.send("{}".to_owned()));
}

#[test]
fn a_connection_becomes_a_lane_of_its_order() {
    let (_tree, server, begun) = store();
    let _sender = server.hold(&post("/new/?swath=receive"));
    let mut order = begun.recv().unwrap();
    let lane = |id: &str, fields: &str| {
        let head = format!("GET /?swath=lane&of={id} HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
        server.hold(&head)
    };
    let auth = auth();
    let turn = format!("{auth}\r\nUpgrade: swath-lane\r\nConnection: upgrade");
    let mut opened = lane(&order.id, &turn);
    let head = head_of(&mut opened);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("\r\nupgrade: swath-lane\r\n"), "{head}");
    // From then on the receiver asks and the sender answers.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_stream, peer) = runtime.block_on(order.lanes.recv()).unwrap();
    assert_eq!(peer, opened.local_addr().unwrap());
    for (id, fields, status) in [
        ("0123", turn.as_str(), 410),
        (order.id.as_str(), auth.as_str(), 400),
        (order.id.as_str(), "Authorization: Bearer reads\r\nUpgrade: swath-lane", 400),
        (order.id.as_str(), "Upgrade: swath-lane", 401),
    ] {
        Answer(all_of(&mut lane(id, &format!("{fields}\r\nConnection: close")))).is(status);
    }
    // Nobody reads what is sent ahead.
    let ahead =
        format!("GET /?swath=lane&of={} HTTP/1.1\r\nHost: h\r\n{turn}\r\n\r\nahead", order.id);
    Answer(server.raw(ahead.as_bytes())).is(400);
}

#[test]
fn an_order_that_is_over_takes_no_lanes() {
    let (_tree, server, begun) = store();
    let mut sender = server.hold(&post("/new/?swath=receive"));
    let order = begun.recv().unwrap();
    let id = order.id.clone();
    drop(order);
    head_of(&mut sender);
    let lane = format!("GET /?swath=lane&of={id} HTTP/1.1\r\n{}\r\nUpgrade: swath-lane", auth());
    eventually("it is forgotten", || server.ask(&lane).status() == 410);
}

#[test]
fn only_who_may_write_begins_and_only_where_it_may() {
    let tree = Tree::of(&[("store/file", "x"), ("outside/kept", "x")]);
    tree.folder("store/folder");
    tree.link("../outside", "store/out");
    let (server, begun) = receiving(tree.plan(&["store"]));
    for (target, token, status) in [
        ("/new/?swath=receive", "nobody", 401),
        ("/new/?swath=receive", "reads", 403),
        ("/file/?swath=receive", TOKEN, 409),
        ("/file/below/?swath=receive", TOKEN, 409),
        ("/out/?swath=receive&single=x%2fy", TOKEN, 403),
        ("/?swath=receive&single=..", TOKEN, 403),
        ("/?swath=receive&single=x.swath.part", TOKEN, 403),
        ("/../new/?swath=receive", TOKEN, 400),
        ("/new/?swath=other", TOKEN, 405),
        ("/new/", TOKEN, 405),
    ] {
        let shown = format!("Authorization: Bearer {token}");
        let answer = server.ask(&format!("POST {target} HTTP/1.1\r\n{shown}"));
        assert_eq!(answer.status(), status, "{target} {token}: {answer}");
    }
    let outside = server.ask(&format!("POST /out/?swath=receive HTTP/1.1\r\n{}", auth()));
    assert!(matches!(outside.status(), 403 | 409), "{outside}");
    assert!(begun.try_recv().is_err(), "none has begun");
    assert_eq!(tree.names_in("outside"), ["kept"]);
    // What is there is where it goes, and nothing is made where nothing is to change.
    for (target, there) in
        [("/folder/?swath=receive", true), ("/no/where/?swath=receive&dry=yes", false)]
    {
        let mut sender = server.hold(&post(target));
        let order = begun.recv().unwrap();
        assert_eq!(order.destination.path.exists(), there, "{target}");
        drop(order);
        assert!(head_of(&mut sender).starts_with("HTTP/1.1 200 "));
    }
    assert!(!tree.exists("store/no"));
}

#[test]
fn a_server_that_takes_nothing_says_so() {
    let tree = Tree::of(&[("tree/a", "a")]);
    let server = tree.plan(&["tree"]).tokens(&[&format!("{TOKEN} write")]).start();
    let refused = server.ask(&format!("POST /new/?swath=receive HTTP/1.1\r\n{}", auth()));
    refused.is(403).has(&["without --write"]);
}

#[test]
fn what_the_receiver_got_is_counted_as_received() {
    let (_tree, server, begun) = store();
    let mut sender = server.hold(&post("/new/?swath=receive"));
    let order = begun.recv().unwrap();
    order.received_bytes.fetch_add(12_345, std::sync::atomic::Ordering::Relaxed);
    drop(order);
    head_of(&mut sender);
    let page = server.ask(&format!("GET /metrics HTTP/1.1\r\n{}", auth()));
    page.has(&["swath_received_bytes_total 12345"]);
    let _ = sender.write_all(b"");
}
