//! A single file to servers of others, by `PUT`: whatever they know of waiting, and when they refuse in the
//! middle.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use swath_jobs::copy::CopyError;
use swath_jobs::{JobError, JobSpec, Outcome};
use swath_transfer::PutError;

use crate::support::{folder, jobs};
use crate::trees::bytes;
use crate::ways::copy_of;

/// A server of one connection after another, each answered by `answer`, that has the request's head.
fn odd(mut answer: impl FnMut(&mut TcpStream, &str, usize) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    // It ends with the test's process, and nobody comes to it before.
    std::thread::spawn(move || {
        let mut number = 0;
        for mut tcp in listener.incoming().map_while(Result::ok) {
            let _ = tcp.set_read_timeout(Some(Duration::from_secs(90)));
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && matches!(tcp.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            if !head.starts_with(b"PUT") {
                // Whether it takes trees, and what it has there.
                let text = b"HTTP/1.1 405 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                let _ = tcp.write_all(text);
                continue;
            }
            answer(&mut tcp, &String::from_utf8_lossy(&head), number);
            number += 1;
        }
    });
    url
}

/// Take a body of so many bytes.
fn take(tcp: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut body = vec![0; bytes];
    tcp.read_exact(&mut body).unwrap();
    body
}

const SIZE: usize = 3_000_000;
/// More than any socket holds.
const LARGE: usize = 64 << 20;
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

fn is_all(tcp: &mut TcpStream) {
    let status = if take(tcp, SIZE) == bytes(3, SIZE) { "201 Created" } else { "400 Bad" };
    let _ = write!(tcp, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
}

/// A file that is there as long as the folder, and what sends it.
fn sending(content: Vec<u8>) -> (tempfile::TempDir, impl Fn(&str) -> JobSpec) {
    let home = folder();
    let file = home.path().join("file.bin");
    fs::write(&file, content).unwrap();
    let file = file.display().to_string();
    (home, move |to| copy_of(&[&file, to], |_| {}))
}

async fn refused(spec: JobSpec) -> PutError {
    let ended = jobs().start(spec).wait().await;
    let Err(JobError::Copy(error)) = ended else { panic!("{ended:?}") };
    let CopyError::Put { error, .. } = *error else { panic!("{error}") };
    *error
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_others_are_heard_whatever_they_know_of_waiting() {
    let (_home, send) = sending(bytes(3, SIZE));
    // Whoever does not know how to wait is not waited for.
    let silent = odd(|tcp, _, _| is_all(tcp));
    let early = odd(|tcp, _, _| {
        let _ = tcp.write_all(b"HTTP/1.1 102 Processing\r\n\r\n");
        let _ = tcp.write_all(CONTINUE);
        is_all(tcp);
    });
    let strict = odd(|tcp, head, _| match head.contains("Expect: 100-continue") {
        true => drop(tcp.write_all(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")),
        false => is_all(tcp),
    });
    let moved = odd(|tcp, head, number| match number {
        0 => {
            let moved = "HTTP/1.1 307 Over there\r\nLocation: /moved\r\nContent-Length: 0\r\n\r\n";
            let _ = tcp.write_all(moved.as_bytes());
        }
        _ if head.starts_with("PUT /moved HTTP/1.1\r\n") => {
            let _ = tcp.write_all(CONTINUE);
            is_all(tcp);
        }
        _ => {}
    });
    for url in [silent, early, strict, moved] {
        let ended = jobs().start(send(&url)).wait().await;
        let Ok(Outcome::File(summary)) = ended else { panic!("{url}: {ended:?}") };
        assert!(!summary.proved && summary.size_bytes == SIZE as u64, "{summary:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_refuses_in_the_middle_is_heard() {
    let (_home, send) = sending(vec![7; LARGE]);
    let full = odd(|tcp, _, _| {
        let _ = tcp.write_all(CONTINUE);
        take(tcp, 1_000_000);
        let text = "HTTP/1.1 507 Insufficient Storage\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nno room\n";
        let _ = tcp.write_all(text.as_bytes());
        // It is not read any further, and not closed either.
        std::mem::forget(tcp.try_clone().unwrap());
    });
    let PutError::Server(error) = refused(send(&full)).await else { panic!("another error") };
    assert_eq!(error.code(), Some(507));
    let gone = odd(|tcp, _, _| {
        let _ = tcp.write_all(CONTINUE);
        take(tcp, 100_000);
    });
    assert!(matches!(refused(send(&gone)).await, PutError::Server(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_answers_before_the_file_has_come_is_not_believed() {
    let (_home, send) = sending(bytes(3, SIZE));
    let supposing = odd(|tcp, _, _| {
        let text = "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n";
        let _ = tcp.write_all(text.as_bytes());
    });
    let PutError::Server(error) = refused(send(&supposing)).await else { panic!("another error") };
    assert_eq!(error.code(), Some(412));
    let liar = odd(|tcp, _, _| {
        let _ = tcp.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    });
    let words = refused(send(&liar)).await.to_string();
    assert!(words.contains("before all of it was sent"), "{words}");
}

/// A server that takes the beginning of a file, tells that, and takes the rest when it may.
fn held() -> (String, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let ((begins, has_begun), (goes_on, may)) = (mpsc::channel(), mpsc::channel());
    let url = odd(move |tcp, _, _| {
        let _ = tcp.write_all(CONTINUE);
        take(tcp, 1_000_000);
        let _ = begins.send(());
        let _ = may.recv();
        let _ = tcp.read_to_end(&mut Vec::new());
    });
    (url, has_begun, goes_on)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stopped_or_changed_ends_as_that() {
    let (home, send) = sending(vec![7; LARGE]);
    let (url, has_begun, goes_on) = held();
    let job = jobs().start(send(&url));
    tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap();
    job.cancel();
    let ended = job.wait().await;
    assert!(
        matches!(&ended, Err(JobError::Copy(error)) if matches!(**error, CopyError::Put { .. } | CopyError::SendStopped { .. })),
        "{ended:?}"
    );
    drop(goes_on);
    let (url, has_begun, goes_on) = held();
    let job = jobs().start(send(&url));
    tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap();
    let mut file = fs::File::options().append(true).open(home.path().join("file.bin")).unwrap();
    file.write_all(b"more").unwrap();
    drop(goes_on);
    let ended = job.wait().await;
    let Err(JobError::Copy(error)) = ended else { panic!("{ended:?}") };
    assert!(error.to_string().contains("changed while it was sent"), "{error}");
}
