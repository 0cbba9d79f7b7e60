//! The end of a server: what is under way comes to its end, and nothing new is begun.

use std::io::Read as _;
use std::net::TcpStream;

use swath_serve::{SiteError, Stop, Tls, TlsError};

use crate::support::{Served, Tree, all_of, bytes, eventually, head_of};

/// A folder with a file that is larger than what two sockets hold, and some small ones.
fn tree() -> Tree {
    let tree = Tree::new();
    tree.write("tree/wide.bin", bytes(4, 24 << 20));
    for number in 0..20 {
        tree.write(&format!("tree/small/{number}"), bytes(number, 40_000));
    }
    tree
}

/// Waits until nobody new is let in.
#[track_caller]
fn lets_nobody_in(server: &Served) {
    eventually("nobody new is let in", || TcpStream::connect(server.address).is_err());
}

#[test]
fn what_is_under_way_ends_before_the_server_does() {
    let tree = tree();
    let mut server = tree.serve(&["tree"]);
    let mut tcp = server.hold("GET /wide.bin HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut first = vec![0; 1 << 20];
    tcp.read_exact(&mut first).unwrap();
    let idle = server.connect();
    server.stop();
    lets_nobody_in(&server);
    let rest = all_of(&mut tcp);
    assert!(first.len() + rest.len() > 24 << 20, "all of it came");
    assert!(rest.ends_with(&bytes(4, 24 << 20)[(24 << 20) - 100..]));
    drop((tcp, idle));
    server.ended();
}

#[test]
fn it_says_how_many_connections_it_waits_for() {
    let tree = tree();
    let mut server = tree.serve(&["tree"]);
    let mut tcp = server.hold("GET /wide.bin HTTP/1.1\r\nHost: h\r\n\r\n");
    tcp.read_exact(&mut [0; 1000]).unwrap();
    assert_eq!(server.waits_for(), None);
    server.stop();
    eventually("it says so", || server.waits_for().is_some());
    assert_eq!(server.waits_for(), Some(1));
    all_of(&mut tcp);
    drop(tcp);
    server.ended();
}

#[test]
fn a_tree_under_way_is_answered_on_new_connections_and_nothing_else_is_begun() {
    let tree = tree();
    let mut server = tree.serve(&["tree"]);
    let walk = server.get("/?swath=index").field("swath-walk").unwrap();
    let slow = server.hold(&format!("GET /?swath=sealed&walk={walk} HTTP/1.1\r\nHost: h\r\n\r\n"));
    head_of(&mut slow.try_clone().unwrap());
    server.stop();
    // It waits for the tree: before that, answers may still be those of every day.
    eventually("it waits", || server.waits_for().is_some());
    server.get(&format!("/?swath=seals&walk={walk}&groups=0-3")).is(200);
    for other in ["/small/1", "/?swath=index", "/", "/health", "/metrics"] {
        let answer = server.get(other);
        assert_eq!(answer.is(503).field("connection").as_deref(), Some("close"), "{other}");
        assert!(answer.field("retry-after").is_some(), "{other}");
    }
    // Who wanted it has gone, and nobody waits any longer.
    drop(slow);
    server.ended();
}

#[test]
fn a_server_that_nobody_asks_for_anything_ends_at_once() {
    let tree = tree();
    let mut server = tree.serve(&["tree"]);
    server.get("/small/1").is(200);
    let mut idle = server.connect();
    server.stop();
    assert!(all_of(&mut idle).is_empty(), "it was closed without a word");
    drop(idle);
    server.ended();
}

#[test]
fn why_a_server_does_not_begin_is_told() {
    let tree = Tree::of(&[("tree/file", "x"), ("other/tree/file", "x"), ("file", "x")]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let why = |folders: &[&str], change: &dyn Fn(&mut swath_serve::Listening)| {
        let mut options = tree.plan(folders).options;
        change(&mut options.listening);
        let bound = runtime.block_on(swath_serve::Server::bind(options, None));
        bound.err().map(|error| (error.to_string(), error)).expect("it does not begin")
    };
    let (text, error) = why(&["tree", "other/tree"], &|_| {});
    assert_eq!(text, "two of the folders are called 'tree'");
    assert!(matches!(error, swath_serve::ServeError::Site(SiteError::Twice { .. })));
    let (text, _) = why(&["x=tree", "x=other/tree"], &|_| {});
    assert_eq!(text, "two of the folders are called 'x'");
    for none in ["none", "file"] {
        let (text, error) = why(&[none], &|_| {});
        assert_eq!(text, format!("cannot serve {}", tree.path(none).display()));
        assert!(matches!(error, swath_serve::ServeError::Site(SiteError::Folder { .. })));
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (text, _) = why(&["tree"], &|listening| listening.at = vec![address]);
    assert_eq!(text, format!("cannot listen at {address}"));
    let (text, _) = why(&["tree"], &|listening| listening.at.clear());
    assert_eq!(text, "no address to listen at was given");
    let (text, error) = why(&["tree"], &|listening| {
        let file = tree.path("file");
        listening.tls = Tls::Files { certificates: file.clone(), key: file };
    });
    assert!(text.ends_with("there is no certificate in it"), "{text}");
    assert!(matches!(error, swath_serve::ServeError::Tls(TlsError::File { .. })));
}

#[test]
fn one_server_listens_at_several_addresses() {
    let tree = tree();
    let mut plan = tree.plan(&["tree"]);
    plan.options.listening.at =
        ["127.0.0.1:0", "127.0.0.2:0"].map(|at| at.parse().unwrap()).to_vec();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let server = plan.bind().await;
        let addresses = server.addresses();
        assert_eq!(addresses.len(), 2);
        let stop = std::future::pending::<Stop>();
        tokio::spawn(server.run(stop, crate::support::HANG_LIMIT, |_| {}));
        for address in addresses {
            let mut tcp = tokio::net::TcpStream::connect(address).await.unwrap();
            tcp.write_all(b"GET /health HTTP/1.0\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            tcp.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with("well\n"), "{answer}");
        }
    });
}
