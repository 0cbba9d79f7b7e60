//! Trees and files that are sent to one place at once: who was first has it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use crate::gate::Gate;
use crate::support::depot::until;
use crate::support::serve::Served;
use crate::support::trees::{assert_same, bytes};
use crate::support::{Home, Running};

fn taking(home: &Home) -> Served {
    fs::create_dir_all(home.path("store")).unwrap();
    let server = home.serve(&["store", "--write", "--plain"]);
    home.write("token", server.token());
    server
}

fn send(home: &Home, to: &str, more: &[&str]) -> Running {
    home.swath(["cp", "--json", "tree/", to, "--bearer-file", "token"].iter().chain(more)).start()
}

/// An unfinished copy, a part of which is there.
fn cut_short(home: &Home, server: &Served) {
    home.write("tree/wide.bin", bytes(9, 40 << 20));
    let first = send(home, &server.at("new/"), &["--limit-rate", "2M"]);
    home.wait_for_bytes("store/new.swath.part/wide.bin", 2 << 20);
    first.signal(libc::SIGINT);
    first.wait().code_is(130);
}

/// Have the stage as its receiver has it.
fn hold(home: &Home) -> File {
    let stage = File::open(home.path("store/new.swath.part")).unwrap();
    let began = Instant::now();
    // SAFETY: a plain system call with a descriptor of ours.
    while unsafe { libc::flock(stage.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        assert!(began.elapsed() < Duration::from_secs(90), "the first receiver keeps it");
        std::thread::sleep(Duration::from_millis(10));
    }
    stage
}

#[test]
fn who_comes_right_after_another_waits_until_that_one_has_put_all_in_order() {
    // A sender that died and was started again found the receiver of the first one still at work,
    // and was told that another process was writing there.
    let home = Home::new();
    let server = taking(&home);
    cut_short(&home, &server);
    let held = hold(&home);
    let gate = Gate::before(&server, u64::MAX);
    let mut second = send(&home, &gate.on_the_way(&server, &server.at("new/")), &[]);
    // It has begun to receive, and gets no further.
    until("the receiver answers", || gate.back_bytes() > 0);
    assert!(!second.is_over(), "{}", second.wait());
    drop(held);
    let ran = second.wait();
    let out = ran.code_is(0).out();
    let end: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert!(end["resumed_bytes"].as_u64().unwrap() > 1 << 20, "{end}");
    assert_same(&home.path("tree"), &home.path("store/new"));
    assert_eq!(home.names_in("store"), ["new"]);
}

#[test]
fn a_sender_that_is_killed_makes_room_for_the_next_one() {
    let home = Home::new();
    let server = taking(&home);
    home.write("tree/wide.bin", bytes(9, 40 << 20));
    let to = server.at("new/");
    let first = send(&home, &to, &["--limit-rate", "2M"]);
    home.wait_for_bytes("store/new.swath.part/wide.bin", 2 << 20);
    first.signal(libc::SIGKILL);
    first.wait();
    send(&home, &to, &[]).wait().code_is(0);
    assert_same(&home.path("tree"), &home.path("store/new"));
}

#[test]
fn who_waits_hears_that_the_receiver_is_there() {
    let home = Home::new();
    let server = taking(&home);
    cut_short(&home, &server);
    // Nobody dials, and the receiver has nothing to say: neither is taken for its end.
    let held = hold(&home);
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    let auth = server.token();
    write!(
        tcp,
        "POST /new/?swath=receive HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {auth}\r\nContent-Length: 0\r\n\r\n"
    )
    .unwrap();
    let (mut pulses, mut has_begun) = (0, false);
    for line in BufReader::new(tcp).lines() {
        let line = line.expect("a line comes now and then");
        has_begun |= line.starts_with("{\"receiving\":");
        // A chunk of one byte is an empty line and nothing else.
        pulses += usize::from(has_begun && line == "1");
        if pulses == 2 {
            break;
        }
    }
    drop(held);
    assert_eq!(pulses, 2);
}

#[test]
fn nobody_writes_into_what_a_copy_has_not_finished() {
    let home = Home::new();
    let server = taking(&home);
    home.write("tree/wide.bin", bytes(9, 20 << 20));
    home.write("file", "not of that tree");
    fs::create_dir_all(home.path("store/there")).unwrap();
    let gates = ["new/", "there/"].map(|to| (Gate::before(&server, 5 << 20), server.at(to)));
    let [sending, within] =
        gates.each_ref().map(|(gate, to)| send(&home, &gate.on_the_way(&server, to), &[]));
    home.wait_for_bytes("store/new.swath.part/wide.bin", 1 << 20);
    home.wait_for_bytes("store/there/.swath-stage.swath.part/wide.bin", 1 << 20);
    for path in [
        "new.swath.part/wide.bin",
        "new.swath.part/other",
        "new.swath.PART/other",
        "new.swath",
        "new.swath.index",
        "new.swath.mark",
        "there/.swath-stage.swath.part/wide.bin",
        "there/.swath-stage.swath.part/other",
        "there/.swath-stage.swath",
    ] {
        let put = home.run(["cp", "file", &server.at(path), "--bearer-file", "token"]);
        put.code_is(5).says(&["403", "no file may have this name here"]);
    }
    // A tree neither: what it laid there had the right length, and was taken for what had come.
    home.write("another/wide.bin", bytes(8, 20 << 20));
    for path in ["new.swath.part/", "new.swath.part/d/", "there/.swath-stage.swath.part/"] {
        let args = ["cp", "another/", &server.at(path), "--bearer-file", "token"];
        home.run(args).code_is(5).says(&["there an unfinished copy keeps what it has"]);
    }
    gates.iter().for_each(|(gate, _)| gate.open());
    sending.wait().code_is(0);
    within.wait().code_is(0);
    for name in ["store/new", "store/there"] {
        assert_same(&home.path("tree"), &home.path(name));
    }
}
