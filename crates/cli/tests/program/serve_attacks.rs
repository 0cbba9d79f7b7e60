//! Limits of the system that `swath serve` and its clients run into: of open files, and of file sizes.
//! (Clients that hold on to seats, memory and threads: the suite of the crate `serve`.)

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::serve::Served;

/// Leaves as soon as something of an answer is there, and returns that.
fn asked_and_left(server: &Served, request: &str) -> String {
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    tcp.set_read_timeout(Some(HANG_LIMIT)).unwrap();
    tcp.write_all(request.as_bytes()).unwrap();
    let mut part = [0; 4096];
    let bytes = tcp.read(&mut part).unwrap();
    String::from_utf8_lossy(&part[..bytes]).into_owned()
}

fn descriptors(server: &Served) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

/// Each client that asked for an index and left kept a folder open for an hour. At the limit of
/// descriptors every request was refused, and nothing cleaned up.
#[test]
fn clients_that_leave_after_asking_for_indexes_keep_no_folders_open() {
    let home = Home::new();
    for folder in 0..120 {
        home.write(&format!("tree/{folder}/a"), "a");
    }
    let args = ["tree", "--anonymous", "--plain"];
    let mut swath = home.swath(["serve", "--listen", "127.0.0.1:0"].iter().chain(&args));
    // SAFETY: a plain system call between fork and exec.
    unsafe {
        swath.command().pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 256, rlim_max: 256 };
            match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let server = Served::of(swath, &args);
    let before = descriptors(&server);
    for round in 0..3 {
        for folder in 0..120 {
            let request = format!("GET /{folder}/?swath=index HTTP/1.1\r\nHost: h\r\n\r\n");
            // One client has a few walks at a time, and those of before end in a moment.
            let began = Instant::now();
            loop {
                let answer = asked_and_left(&server, &request);
                if answer.starts_with("HTTP/1.1 200") {
                    break;
                }
                let is_late = began.elapsed() > HANG_LIMIT;
                assert!(!is_late, "round {round}, {folder}: {answer:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    // Connections end a moment after their answers.
    let began = Instant::now();
    while descriptors(&server) > before + 40 {
        assert!(began.elapsed() < HANG_LIMIT, "{} open", descriptors(&server));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Fewer connections than were asked for, because of the limit of open files, were so without a word.
#[test]
fn fewer_connections_than_asked_for_are_said_to_be() {
    let home = Home::new();
    home.write("tree/a", "a");
    let args = ["tree", "--anonymous", "--plain", "--max-connections", "4000"];
    let mut swath = home.swath(["serve", "--listen", "127.0.0.1:0"].iter().chain(&args));
    // SAFETY: a plain system call between fork and exec.
    unsafe {
        swath.command().pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
            match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let server = Served::of(swath, &args);
    server.says("serving 420 connections at once instead of 4000: the limit of open files is 1024");
}

/// The signal ended the program without a word.
#[test]
fn a_limit_of_file_sizes_is_an_error_and_no_death() {
    let home = Home::new();
    home.write("data/a", vec![7; 3 << 20]);
    let served = home.serve(&["data", "--anonymous", "--plain"]);
    let mut swath = home.swath(["get", &served.at("a"), "-o", "got"]);
    // SAFETY: a plain system call between fork and exec.
    unsafe {
        swath.command().pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
            Ok(())
        });
    }
    swath.run().code_is(5);
    assert!(!home.exists("got"));
}

/// What has not happened by then never will.
const HANG_LIMIT: Duration = Duration::from_secs(90);
