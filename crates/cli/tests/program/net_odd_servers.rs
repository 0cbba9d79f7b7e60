//! `swath probe` and `swath cp` against servers that people met and that other programs get along with;
//! how files come from them is tested in the suite of `jobs`.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use swath_netlab::faulty::{Behaviour, Content, When};

use crate::support::Home;
use crate::support::net::{server, url};

/// Longer than the first request, and not a multiple of anything.
const SIZE: u64 = 9_000_011;

fn content() -> Content {
    Content::random(3, SIZE)
}

/// `swath probe` tells what can be had of such a server.
#[test]
fn a_probe_does_not_depend_on_ranges_either() {
    let home = Home::new();
    for code in [400, 403, 416, 501] {
        let server = server(&content(), Behaviour::status(code).when(When::Ranged));
        let ran = home.run(["probe", &url(&server)]);
        ran.code_is(0);
        assert!(ran.out().contains("9.00 MB"), "{ran}");
    }
    let closed = server(&content(), Behaviour::status(404));
    home.run(["probe", &url(&closed)]).code_is(7);
}

/// How many requests came, and what was kept of them.
type Taken = (usize, Vec<u8>);

/// A server that answers what is sent to it with one of these heads after the other, the last for all
/// that follows; what is answered with 201 is kept.
fn taking(answers: &'static [&'static str]) -> (String, Arc<Mutex<Taken>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/dir/", listener.local_addr().unwrap());
    let taken = Arc::new(Mutex::new((0, Vec::new())));
    let seen = Arc::clone(&taken);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = take(stream, answers, &seen);
        }
    });
    (url, taken)
}

fn take(mut stream: TcpStream, answers: &[&str], seen: &Mutex<Taken>) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? > 0 {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    if !head.starts_with("PUT ") {
        return stream
            .write_all(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let answer = {
        let mut seen = seen.lock().unwrap();
        seen.0 += 1;
        answers[(seen.0 - 1).min(answers.len() - 1)]
    };
    if answer.starts_with("201") {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        stream.read_exact(&mut body)?;
        seen.lock().unwrap().1 = body;
    }
    write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

/// Gateways before object stores say "slow down" once in a while, and mean it: nothing is wrong with
/// what was sent.
#[test]
fn an_upload_waits_for_a_gateway_that_is_busy() {
    let home = Home::new();
    let bytes = crate::support::trees::bytes(7, 300_001);
    home.write("run.h5", &bytes);
    for (answers, tries) in [
        (&["503 Slow Down", "201 Created"][..], 2),
        (&["502 Bad Gateway", "429 Too Many Requests\r\nRetry-After: 1", "201 Created"], 3),
    ] {
        let (url, taken) = taking(answers);
        home.run(["cp", "run.h5", &url]).code_is(0);
        let taken = taken.lock().unwrap();
        assert_eq!(taken.0, tries, "{answers:?}");
        assert_eq!(taken.1, bytes);
    }
    // What is meant for good is taken so, and patience has an end.
    for (answers, tries) in [(&["413 Too Large"][..], 1..2), (&["503 Slow Down"], 2..16)] {
        let (url, taken) = taking(answers);
        // Long enough for a second try even if this machine pauses.
        let ran = home.run(["cp", "run.h5", &url, "--timeout", "10"]);
        ran.code_is(5).says(&[answers[0], "nothing was written"]);
        let taken = taken.lock().unwrap().0;
        assert!(tries.contains(&taken), "{answers:?}: {taken} tries");
    }
}
