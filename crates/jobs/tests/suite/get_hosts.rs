//! Hosts that limit their clients, and hosts that are not there: what is learnt of one holds for all
//! files of a run, and its owner's wishes are kept.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use swath_jobs::{FileCounts, JobEvent, Outcome};
use swath_netlab::faulty::Content;
use swath_netlab::reserve_port;

use crate::fetching::{FILE, Place, building};

/// What a host does with one more than it serves.
#[derive(Clone, Copy)]
enum Beyond {
    /// Answers the request with this status.
    Status(u16),
    /// Closes the connection unanswered.
    Close,
}

/// A host that serves so many at a time, each at a megabyte a second.
struct Host {
    at_once: u32,
    beyond: Beyond,
    files: Vec<(String, Content)>,
    served: AtomicU32,
    /// Connections so far, and requests that were answered with the status.
    connections: AtomicU32,
    refused: AtomicU32,
}

impl Host {
    fn start(at_once: u32, beyond: Beyond, files: Vec<(String, Content)>) -> (Arc<Host>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let [served, connections, refused] = [(); 3].map(|()| AtomicU32::new(0));
        let host = Arc::new(Host { at_once, beyond, files, served, connections, refused });
        let serves = Arc::clone(&host);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                serves.connections.fetch_add(1, Ordering::SeqCst);
                let host = Arc::clone(&serves);
                std::thread::spawn(move || host.serve(stream));
            }
        });
        (host, url)
    }

    /// Takes one of the places, if there is one.
    fn enters(&self) -> bool {
        let free = |served| (served < self.at_once).then_some(served + 1);
        self.served.fetch_update(Ordering::SeqCst, Ordering::SeqCst, free).is_ok()
    }

    fn leaves(&self) {
        self.served.fetch_sub(1, Ordering::SeqCst);
    }

    fn serve(&self, mut stream: TcpStream) {
        match self.beyond {
            Beyond::Close if self.enters() => {
                while head_of(&mut stream).and_then(|it| self.answer(&mut stream, &it)).is_some() {}
                self.leaves();
            }
            Beyond::Close => {}
            Beyond::Status(status) => {
                while let Some(head) = head_of(&mut stream) {
                    let sent = if self.enters() {
                        let sent = self.answer(&mut stream, &head);
                        self.leaves();
                        sent
                    } else {
                        self.refused.fetch_add(1, Ordering::SeqCst);
                        let head = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n");
                        stream.write_all(head.as_bytes()).ok()
                    };
                    if sent.is_none() {
                        break;
                    }
                }
            }
        }
    }

    /// Answers a request for a range or for all of a file.
    fn answer(&self, stream: &mut TcpStream, head: &str) -> Option<()> {
        let path = head.split(' ').nth(1)?;
        let (_, content) = self.files.iter().find(|(name, _)| name == path)?;
        let size = content.size_bytes();
        let range = head.split("bytes=").nth(1).and_then(|it| it.split_whitespace().next());
        let (from, end) = match range.and_then(|range| range.split_once('-')) {
            Some((from, to)) => {
                (from.parse().ok()?, to.parse::<u64>().map_or(size, |last| (last + 1).min(size)))
            }
            None => (0, size),
        };
        let of_part = format!("Content-Range: bytes {from}-{}/{size}\r\n", end - 1);
        let (status, of_part) = match range {
            Some(_) => ("206 Partial Content", of_part),
            None => ("200 OK", String::new()),
        };
        let length = end - from;
        let head = format!(
            "HTTP/1.1 {status}\r\n{of_part}Content-Length: {length}\r\nETag: \"a\"\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut at = from;
        while at < end {
            let part = (end - at).min(20_000);
            stream.write_all(&content.read(at, at + part)).ok()?;
            at += part;
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(())
    }
}

fn head_of(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// Each file of a list found out for itself, by a refusal, that its host serves two connections.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_list_wait_for_one_another_where_their_host_serves_two_connections() {
    // A 403 means this only while another connection is seen to be served, which a busy machine may not
    // see in time: `get_odd_servers` and the suite of `transfer` have that case.
    for status in [429, 503] {
        let file = |at: u64| (format!("/f{at}.bin"), Content::random(at, 150_000));
        let files: Vec<_> = (0..12).map(file).collect();
        let (host, url) = Host::start(2, Beyond::Status(status), files.clone());
        let list: String = files.iter().map(|(name, _)| format!("{url}{name}\n")).collect();
        let place = Place::new();
        let ran = place.list(list).run().await;
        let all = FileCounts { complete: 12, ..FileCounts::default() };
        assert!(matches!(ran.ended, Ok(Outcome::Files(files)) if files == all), "{ran:?}");
        files.iter().for_each(|(name, content)| place.holds(&name[1..], content));
        // Eight are tried at once before anything is known; a connection that has just ended may
        // still count.
        let refused = host.refused.load(Ordering::SeqCst);
        assert!(refused <= 24, "{refused} times {status}");
    }
}

/// A server that closed every further connection unanswered had 2,200 of them in three
/// seconds: what the first one brought made up for what befell the others.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_closed_unanswered_are_tried_ever_more_rarely() {
    let content = Content::random(903, 3_000_000);
    let (host, url) = Host::start(1, Beyond::Close, vec![(FILE.to_owned(), content.clone())]);
    let place = Place::new();
    let fetch = place.of_urls([url + FILE]).with(|spec| spec.plan.connections = Some(4));
    fetch.run().await.is_whole();
    place.holds_only("data.bin", &content);
    let connections = host.connections.load(Ordering::SeqCst);
    assert!((2..=200).contains(&connections), "{connections} connections");
}

/// The first files of a list lie on a host that is down: each was tried for ten seconds, and held a
/// job meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_dead_host_hold_up_none_of_another_host() {
    let content = Content::random(902, 300_000);
    let good = building(&content).start().unwrap();
    let port = reserve_port();
    let dead = (0..6).map(|at| format!("http://127.0.0.1:{port}/d{at}.bin\n"));
    let list: String = dead.chain([good.url(FILE)]).collect();
    let place = Place::new();
    let ran = place.list(list).get(|get| get.files_at_once = Some(2)).run().await;
    place.holds("data.bin", &content);
    let at = |is: fn(&JobEvent) -> bool| ran.events.iter().position(is);
    let done = at(|event| matches!(event, JobEvent::FileDone(6)));
    let failed = at(|event| matches!(event, JobEvent::FileFailed { .. }));
    assert!(done.is_some() && failed.is_some() && done < failed, "{done:?} {failed:?}: {ran:?}");
}
