//! `swath cp FILE URL`: a single file to a server, as a tree of one to ours and by `PUT` to others.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime};

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::bytes;

/// A server of `store` that takes files, and its token in the file `token`.
fn taking(home: &Home, more: &[&str]) -> Served {
    fs::create_dir_all(home.path("store/folder")).unwrap();
    let server = home.serve(&[&["store", "--write"], more].concat());
    home.write("token", server.token());
    server
}

#[test]
fn a_file_is_sent_into_a_folder_or_under_a_name() {
    let home = Home::new();
    let server = taking(&home, &["--plain"]);
    let send = |to: &str| home.run(["cp", "file.bin", &server.at(to), "--bearer-file", "token"]);
    for size in [0, 1, 5_000_003] {
        home.write("file.bin", bytes(9, size));
        let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000 + size as u64, 123_456_789);
        let file = fs::File::options().write(true).open(home.path("file.bin")).unwrap();
        file.set_modified(old).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
        send("").code_is(0).says(&["\n1 file\n"]);
        // It is seen to be there.
        send("").code_is(0).says(&["1 file (already up to date)"]);
        send("folder/").code_is(0);
        send("folder/other").code_is(0);
        send("new/er/").code_is(0);
        // What is there is replaced.
        send("an%20other").code_is(0);
        for name in ["file.bin", "folder/file.bin", "folder/other", "new/er/file.bin", "an other"] {
            let copy = home.path(format!("store/{name}"));
            assert!(fs::read(&copy).unwrap() == bytes(9, size), "{name}");
            let metadata = copy.metadata().unwrap();
            assert_eq!(metadata.modified().unwrap(), old, "{name}");
            assert_eq!(metadata.permissions().mode() & 0o777, 0o640, "{name}");
        }
    }
    assert_eq!(home.names_in("store"), ["an other", "file.bin", "folder", "new"]);
    // What would be done is told, and not done.
    let url = server.at("third");
    let ran = home.run(["cp", "-n", "file.bin", &url, "--bearer-file", "token"]);
    ran.code_is(0).says(&["1 entry to copy, 5.00 MB"]);
    assert_eq!(ran.out(), "copy      5.00 MB  third\n");
    assert!(!home.path("store/third").exists());
}

#[test]
fn what_has_no_bytes_of_its_own_to_copy_is_told_by_its_kind() {
    // Files of /proc came as empty ones, "verified by the checksum of every block".
    let home = Home::new();
    let server = taking(&home, &["--plain"]);
    fs::create_dir(home.path("to")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(home.path("pipe")).status();
    assert!(made.unwrap().success());
    for (from, words) in [
        (
            "/proc/version",
            "this file system does not report file sizes: use 'cat' to read its files",
        ),
        ("/proc/self/", "this file system does not report file sizes: use 'cat' to read its files"),
        ("/dev/zero", "is a pipe, a socket or a device"),
        ("pipe", "is a pipe, a socket or a device"),
    ] {
        for to in ["to/", &server.at("")] {
            home.run(["cp", from, to, "--bearer-file", "token"]).code_is(6).says(&[words]);
        }
    }
    assert_eq!(home.names_in("to"), [""; 0]);
    assert_eq!(home.names_in("store"), ["folder"]);
    // A name that swath keeps for itself is refused for that reason.
    home.write("mine", "");
    let told = home.run(["cp", "mine", &server.at("x.swath"), "--bearer-file", "token"]);
    told.code_is(5).says(&["no file may have this name here"]).never_says(&["credentials"]);
}

#[test]
fn over_tls_with_what_else_goes_with_it() {
    let home = Home::new();
    home.write("file.bin", bytes(1, 3_000_001));
    home.write("second", "second\n");
    home.write("tree/deep/leaf", "leaf\n");
    let server = taking(&home, &[]);
    let line = server.words.lines().find(|line| line.starts_with("fingerprint ")).unwrap();
    let print = line.split_whitespace().last().unwrap();
    let to = server.at("folder/");
    let send = |more: &[&str]| {
        home.run(["cp", "file.bin", "second", "tree", &to].into_iter().chain(more.iter().copied()))
    };
    let told = send(&["--bearer-file", "token", "--fingerprint", print, "--json"]);
    told.code_is(0);
    let finished = told.out().lines().filter(|line| line.contains("\"finished\"")).count();
    assert_eq!(finished, 3, "{told}");
    assert!(home.read("store/folder/file.bin") == bytes(1, 3_000_001));
    assert_eq!(home.read("store/folder/second"), b"second\n");
    assert_eq!(home.read("store/folder/tree/deep/leaf"), b"leaf\n");
    send(&["--bearer-file", "token"]).code_is(7).says(&["certificate"]);
}

#[test]
fn refusals_are_told_in_plain_words() {
    let home = Home::new();
    fs::create_dir_all(home.path("one/folder")).unwrap();
    fs::create_dir(home.path("two")).unwrap();
    home.write("one/there", "as it was");
    home.write("file.bin", "new");
    home.write("tokens", "reader\nwriter write\n");
    for (name, text) in [("reader", "reader"), ("writer", "writer"), ("wrong", "wrong")] {
        home.write(name, text);
    }
    let server = home.serve(&["one", "two", "--write", "--plain", "--token-file", "tokens"]);
    for (to, token, code, words) in [
        ("one/", "reader", 5, &["403", "this token opens reading alone"][..]),
        ("three/", "writer", 5, &["404", "; no such folder"]),
        ("one/there/none/", "writer", 5, &["409", "what is on the way there is no folder"]),
    ] {
        let ran = home.run(["cp", "file.bin", &server.at(to), "--bearer-file", token]);
        ran.code_is(code).says(words).says(&["nothing was written"]);
    }
    let ran = home.run(["cp", "file.bin", &server.at("one/"), "--bearer-file", "wrong"]);
    ran.code_is(7).says(&["401", "--token TOKEN sends the token that 'swath serve' prints; --token @FILE (or --bearer-file FILE) reads it from a file"]);
    // Whoever is not known need not read the file first.
    ran.never_says(&["sha-256"]);
    let ran = home.run(["cp", "file.bin", &server.at("one/folder"), "--bearer-file", "writer"]);
    ran.code_is(5).says(&["folder (a folder there, a file in the source)", "nothing was copied"]);
    ran.says(&[&format!("to copy into that folder: {}\n", server.at("one/folder/"))]);
    ran.never_says(&["--delete"]);
    assert_eq!(home.read("one/there"), b"as it was");
    assert_eq!(fs::read_dir(home.path("one")).unwrap().count(), 2);
    let url = server.at("one/");
    for (args, code, words) in [
        (&["cp", "file.bin", &url, "--exclude", "x"][..], 2, "are for folders"),
        (&["cp", "file.bin", &url, "--delete"], 2, "are for folders"),
        (
            &["cp", "file.bin", &url, "--keep-index", "kept"],
            2,
            "--keep-index is for fetching, and this machine sends ('swath verify --index URL' checks a copy)",
        ),
        (&["cp", "file.bin", "elsewhere/", "--delete"], 2, "are for folders"),
        (&["cp", "file.bin", "host:there", "--include", "x"], 2, "are for folders"),
    ] {
        home.run(args.iter().copied()).code_is(code).says(&[words]);
    }
    let reading = home.serve(&["one", "--plain"]);
    home.write("token", reading.token());
    home.run(["cp", "file.bin", &reading.url, "--bearer-file", "token"])
        .code_is(5)
        .says(&["403", "started without --write"]);
}

/// A server of one connection after another, each answered by `answer`, that has the request's head.
fn odd(mut answer: impl FnMut(&mut TcpStream, &str, usize) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    // It ends with the test's process, and nobody comes to it before.
    std::thread::spawn(move || {
        let mut number = 0;
        for tcp in listener.incoming() {
            let Ok(mut tcp) = tcp else { return };
            let _ = tcp.set_read_timeout(Some(Duration::from_secs(90)));
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && matches!(tcp.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            if head.starts_with(b"POST") {
                // Whether it takes trees, which it does not.
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

#[test]
fn who_refuses_in_the_middle_is_heard() {
    let home = Home::new();
    // More than any socket holds.
    home.write("file.bin", vec![7; 64 << 20]);
    home.write("small.bin", bytes(3, SIZE));
    let full = odd(|tcp, _, _| {
        let _ = tcp.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
        take(tcp, 1_000_000);
        let text = "HTTP/1.1 507 Insufficient Storage\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nno room\n";
        let _ = tcp.write_all(text.as_bytes());
        // It is not read any further, and not closed either.
        std::mem::forget(tcp.try_clone().unwrap());
    });
    let ran = home.run(["cp", "file.bin", &full]);
    ran.code_is(5).says(&["507", "no room", "nothing was written"]);
    let supposing = odd(|tcp, _, _| {
        let text = "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n";
        let _ = tcp.write_all(text.as_bytes());
    });
    home.run(["cp", "small.bin", &supposing])
        .code_is(5)
        .says(&["412", "the existing file, or what arrived, is not as expected"]);
    let gone = odd(|tcp, _, _| {
        let _ = tcp.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
        take(tcp, 100_000);
    });
    home.run(["cp", "file.bin", &gone]).code_is(7).says(&["nothing was written"]);
    let liar = odd(|tcp, _, _| {
        let _ = tcp.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    });
    home.run(["cp", "small.bin", &liar]).code_is(7).says(&["before all of it was sent"]);
}

#[test]
fn the_limit_holds_and_what_is_stopped_goes_on() {
    let home = Home::new();
    let server = taking(&home, &["--plain"]);
    home.write("store/file.bin", "as it was");
    home.write("file.bin", bytes(1, 1_200_000));
    let url = server.at("");
    let limited = |rate: &'static str| {
        let args = ["cp", "file.bin", &url, "--bearer-file", "token", "--limit-rate", rate];
        home.swath(args).start()
    };
    let began = Instant::now();
    limited("1M").wait().code_is(0);
    assert!(began.elapsed() >= Duration::from_millis(1100), "{:?}", began.elapsed());
    assert!(home.read("store/file.bin") == bytes(1, 1_200_000));
    // Longer than what is read ahead.
    home.write("file.bin", bytes(2, 12_000_000));
    let stopped = limited("1M");
    home.wait_for_bytes("store/.swath-stage.swath.file.bin.swath.part/file.bin", 1 << 20);
    stopped.signal(libc::SIGINT);
    stopped.wait().code_is(130).says(&["the same command resumes from there"]);
    assert!(home.read("store/file.bin") == bytes(1, 1_200_000));
    let went_on = limited("4M").wait();
    went_on.code_is(0).says(&["already sent by an earlier run", "sent now"]);
    assert!(home.read("store/file.bin") == bytes(2, 12_000_000));
    assert_eq!(home.names_in("store"), ["file.bin", "folder"]);
}

#[test]
fn by_put_what_is_stopped_or_changed_is_not_there() {
    let home = Home::new();
    // More than any socket holds, so that it is still being read.
    home.write("file.bin", vec![7; 64 << 20]);
    // The rest of it is read when the other end is dropped.
    let begin = || {
        let ((begins, has_begun), (goes_on, may)) = (channel::<()>(), channel::<()>());
        let slow = odd(move |tcp, _, _| {
            let _ = tcp.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
            take(tcp, 1_000_000);
            let _ = begins.send(());
            let _ = may.recv();
            let _ = tcp.read_to_end(&mut Vec::new());
        });
        let sending = home.swath(["cp", "file.bin", &slow]).start();
        has_begun.recv_timeout(Duration::from_secs(90)).expect("it begins");
        (sending, goes_on)
    };
    let (stopped, goes_on) = begin();
    stopped.signal(libc::SIGINT);
    stopped.wait().code_is(130).says(&["nothing was written"]);
    drop(goes_on);
    let (changed, goes_on) = begin();
    let mut file = fs::File::options().append(true).open(home.path("file.bin")).unwrap();
    file.write_all(b"more").unwrap();
    drop(goes_on);
    changed.wait().code_is(8).says(&["changed while it was sent"]);
    for (option, words) in [
        ("--dry-run", "the server cannot report what it has: omit --dry-run"),
        ("--preserve=xattr", "attributes"),
    ] {
        home.run(["cp", "file.bin", &odd(|_, _, _| ()), option]).code_is(2).says(&[words]);
    }
}
