//! The end of a server: a copy that is under way when it is told to end, and a second signal. (What else is
//! answered at the end is tested in the suite of the crate `serve`.)

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use swath_model::Limiter;
use swath_serve::{
    Access, Congestion, Listening, Reads, Server, ServerOptions, SiteOptions, Stop, Tls,
};
use tokio::sync::oneshot;

use crate::support::Home;
use crate::support::trees::{assert_same, bytes};

/// A tree that takes many answers.
fn tree(home: &Home) {
    home.write("tree/wide.bin", bytes(4, 24 << 20));
    for number in 0..100 {
        home.write(&format!("tree/small/{number}"), bytes(number, 40_000));
    }
}

/// A server of `tree` within this process: its rate can be changed, and it may take longer than ten
/// seconds to end.
fn options(home: &Home, tls: Tls, limit: &Arc<Limiter>) -> ServerOptions {
    ServerOptions {
        site: SiteOptions {
            folders: vec![home.path("tree").into()],
            access: Access::default(),
            follow_links: false,
            only: None,
            name: "here".to_owned(),
            hosts: None,
            reads: Reads::default(),
            idle_index_bytes: 1 << 20,
            mount: None,
            receive: None,
            third_party: None,
            send_limit: Some(Arc::clone(limit)),
            receive_limit: None,
        },
        listening: Listening {
            at: vec!["127.0.0.1:0".parse().unwrap()],
            tls,
            max_connections: 256,
            congestion: Congestion::Kernel,
        },
    }
}

#[test]
fn a_tree_that_is_being_fetched_comes_whole_before_the_server_ends() {
    // Answers ended, and no request was taken behind them: a curl and an upload were finished, and a
    // copy of a tree was cut off, within milliseconds and often without a word.
    let names = || vec!["127.0.0.1".to_owned()];
    for (tls, scheme) in [(Tls::Plain, "http"), (Tls::SelfSigned(names()), "https")] {
        let home = Home::new();
        tree(&home);
        // All of it would take most of a minute.
        let limit = Arc::new(Limiter::new(Some(600_000)));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let server = runtime.block_on(Server::bind(options(&home, tls, &limit), None)).unwrap();
        let url = format!("{scheme}://{}/", server.addresses()[0]);
        let (stop, stops) = oneshot::channel();
        let (waits, waiting) = std::sync::mpsc::channel();
        let stops = async { stops.await.unwrap_or(Stop::Abandoned) };
        let waits = move |connections| waits.send(connections).unwrap();
        let served = runtime.spawn(server.run(stops, Duration::from_secs(90), waits));
        let args = ["cp", &url, "copy/", "--insecure"];
        let copy = home.swath(&args[..if scheme == "https" { 4 } else { 3 }]).start();
        home.wait_for_bytes("copy.swath.part/wide.bin", 1 << 20);
        stop.send(Stop::Orderly).unwrap();
        assert!(waiting.recv().unwrap() > 0, "it says for how many it waits");
        limit.set(None);
        copy.wait().code_is(0);
        runtime.block_on(served).unwrap();
        assert_same(&home.path("tree"), &home.path("copy"));
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    // It was heard by nobody: who typed Ctrl-C twice waited for ten seconds.
    let home = Home::new();
    tree(&home);
    let server = home.serve(&["tree", "--plain", "--anonymous", "--limit-rate", "2M"]);
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.write_all(b"GET /wide.bin HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    slow.read_exact(&mut [0; 1000]).unwrap();
    server.signal(libc::SIGINT);
    server.says("stopping: waiting up to 10 s for 1 connection");
    server.signal(libc::SIGTERM);
    server.says("stopped by a second signal: open transfers were cut off");
    assert_eq!(server.wait(), Some(130));
}
