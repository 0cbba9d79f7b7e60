//! `swath serve` and the program's own clients: what they make of its answers. (The answers themselves are
//! tested in the suite of the crate `serve`.)

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::Home;
use crate::support::trees::bytes;
use swath_netlab::reserve_port;

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

/// Without its query it was the address of the file.
#[test]
fn probe_tells_the_address_of_the_metalink() {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let metalink = server.at("a.txt?metalink");
    for more in [&[][..], &["--json"]] {
        let told = home.run([&["probe", &server.at("a.txt")], more].concat()).code_is(0).out();
        assert!(told.contains(&metalink), "{told}");
    }
}

#[test]
fn an_end_says_what_it_waits_for() {
    let home = Home::new();
    home.write("tree/big", vec![7; 64 << 20]);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    tcp.write_all(b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    tcp.read_exact(&mut [0; 1000]).unwrap();
    server.signal(libc::SIGTERM);
    server.says("stopping: waiting up to 10 s for 1 connection");
    // However long that takes: it may be cut off after these ten seconds.
    let _ = tcp.read_to_end(&mut Vec::new());
    drop(tcp);
    assert_eq!(server.wait(), Some(0));
}

/// As for trees; a folder that was not there made a 409 of it.
#[test]
fn a_file_is_sent_into_a_folder_that_is_not_there_yet() {
    let home = Home::new();
    home.write("tree/kept", "");
    home.write("a.txt", "alpha\n");
    let server = home.serve(&["tree", "--write", "--plain"]);
    home.write("token", server.token());
    let send = |to: &str| home.run(["cp", "a.txt", &server.at(to), "--bearer-file", "token"]);
    send("new/deep/").code_is(0);
    assert_eq!(home.read("tree/new/deep/a.txt"), b"alpha\n");
    send("another/b.txt").code_is(0);
    assert_eq!(home.read("tree/another/b.txt"), b"alpha\n");
    // Not through a file, and not where copies keep what is theirs.
    send("kept/below/").code_is(5);
    send("x.swath.part/below/").code_is(5);
    assert!(!home.exists("tree/x.swath.part"));
}

#[test]
fn a_destination_that_fetches_from_nobody_is_said_with_what_to_do() {
    // Nobody listens at a port that is only reserved.
    let home = Home::new();
    let nobody = format!("http://127.0.0.1:{}/", reserve_port());
    let [a, b, c] = ["a/", "b/", "c/"].map(|path| format!("{nobody}{path}"));
    home.run(["cp", &a, &b]).code_is(7).says(&["Connection refused"]);
    home.run(["cp", &a, &c, "host:b/"]).code_is(2).says(&["several replicas"]);
}

/// The answer was an alert of TLS, which programs called "improper HTTP".
#[test]
fn plain_http_is_told_of_https_where_that_is_spoken() {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    let server = home.serve(&["tree", "--anonymous"]);
    let plain = server.url.replace("https://", "http://");
    for (from, hint) in [("", ""), ("a.txt", "a.txt")] {
        let ran = home.run(["cp", &format!("{plain}{from}"), "copy"]);
        ran.code_is(7)
            .says(&["this server speaks HTTPS", &format!("  its address is {}{hint}", server.url)]);
    }
    let ran = home.run(["cp", "tree/", &format!("{plain}new/")]);
    ran.code_is(7).says(&["this server speaks HTTPS", "  its address is https://127.0.0.1:"]);
    // Whoever speaks TLS is served as ever.
    home.run(["cp", &server.url, "copy/", "--insecure"]).code_is(0);
}

#[test]
fn a_tree_that_was_received_is_counted() {
    let home = Home::new();
    home.write("tree/kept", "");
    home.write("sent/data.bin", vec![5; 300_000]);
    let server = home.serve(&["tree", "--write", "--plain"]);
    home.write("token", server.token());
    let auth = format!("Authorization: Bearer {}", server.token());
    home.run(["cp", "sent/", &server.at("new/"), "--bearer-file", "token"]).code_is(0);
    let page = server.answer_to(&format!("GET /metrics HTTP/1.1\r\n{auth}"));
    let line = page.lines().find_map(|line| line.strip_prefix("swath_received_bytes_total "));
    let received = line.unwrap_or_else(|| panic!("{page}")).trim().parse::<f64>().unwrap();
    assert!((300_000.0..400_000.0).contains(&received), "{received}");
}

#[test]
fn what_everybody_may_write_is_refused_with_the_reason() {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    let ran = home.run(["serve", "tree", "--anonymous", "--write"]);
    ran.code_is(2).says(&["would let everybody fill the disk", "omit --anonymous"]);
}

/// `/health` and `/metrics` are answers of the server; files of these names are the user's own.
#[test]
fn files_with_the_names_of_what_the_server_says_are_copied_as_others() {
    let home = Home::new();
    home.write("tree/health", "ill\n");
    home.write("tree/metrics", "swath_answers_total 99\n");
    let server = home.serve(&["tree", "--plain", "--write"]);
    home.write("token", server.token());
    let run = |args: &[&str]| home.run([args, &["--bearer-file", "token"]].concat());
    run(&["cp", &server.url, "copy/"]).code_is(0);
    assert_eq!(home.read("copy/health"), b"ill\n");
    // A single file too, both ways.
    home.write("health", "new\n");
    run(&["cp", "health", &server.url]).code_is(0);
    assert_eq!(home.read("tree/health"), b"new\n");
    run(&["cp", &server.at("health"), "one"]).code_is(0);
    assert_eq!(home.read("one"), b"new\n");
    run(&["get", &server.at("health?file"), "-o", "two"]).code_is(0);
    assert_eq!(home.read("two"), b"new\n");
}

#[test]
fn folders_with_the_names_of_what_the_server_says_are_copied_as_others() {
    let home = Home::new();
    home.write("health/a.txt", "alpha\n");
    home.write("metrics/b.txt", "beta\n");
    let server = home.serve(&["health", "metrics", "--plain", "--anonymous"]);
    home.run(["cp", &server.at("health/"), "copy/"]).code_is(0);
    assert_eq!(home.read("copy/a.txt"), b"alpha\n");
    home.run(["cp", &server.at("health"), "here"]).code_is(0);
    assert_eq!(home.read("here/health/a.txt"), b"alpha\n");
}

#[test]
fn folders_are_served_under_the_names_that_they_are_given() {
    // Two of the same name could not be served together.
    let home = Home::new();
    home.write("x/data/a.txt", "alpha\n");
    home.write("y/data/b.txt", "beta\n");
    home.write("odd=name/c.txt", "gamma\n");
    let twice = home.run(["serve", "x/data", "y/data", "--anonymous"]);
    twice.code_is(2).says(&["two of the folders are called 'data'", "NAME=DIR"]);
    home.run(["serve", "x=x/data", "x=y/data"])
        .code_is(2)
        .says(&["two of the folders are called 'x'"]);
    home.run(["serve", "x=x/none"]).code_is(6).says(&["cannot serve x/none"]);
    home.run(["serve", "x/none=x/data"]).code_is(6).says(&["cannot serve x/none=x/data"]);
    let folders = ["x/data", "cal ib=y/data", "odd=name"];
    let server = home.serve(&[&folders[..], &["--plain", "--anonymous"]].concat());
    assert_eq!(body(&server.answer_to("GET /odd=name/c.txt HTTP/1.1")), "gamma\n");
    home.run(["cp", &server.at("cal%20ib/"), "copy/"]).code_is(0);
    assert_eq!(home.read("copy/b.txt"), b"beta\n");
}

#[test]
fn links_that_are_followed_are_files_and_folders_of_a_copy() {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    home.write("tree/folder/deep", "deep\n");
    home.write("secret", "nobody may see this");
    std::os::unix::fs::symlink("../secret", home.path("tree/out")).unwrap();
    std::os::unix::fs::symlink("a.txt", home.path("tree/in")).unwrap();
    std::os::unix::fs::symlink("folder", home.path("tree/inside")).unwrap();
    let server = home.serve(&["tree", "--anonymous", "--plain", "--follow-symlinks"]);
    home.run(["cp", &server.url, "copy/", "--quiet"]).code_is(0);
    for (path, text) in [("in", "alpha\n"), ("inside/deep", "deep\n")] {
        assert_eq!(home.read(&format!("copy/{path}")), text.as_bytes());
        assert!(!home.path(format!("copy/{path}")).is_symlink(), "{path}");
    }
    assert!(home.path("copy/out").is_symlink() && !home.path("copy/inside").is_symlink());
}

#[test]
fn answers_are_noted_in_a_log() {
    let home = Home::new();
    home.write("one/a.txt", "alpha\n");
    let log = ["--log", "log", "--log-format", "json"];
    let server = home.serve(&[&["one", "--anonymous", "--plain"], &log[..]].concat());
    assert!(server.answer_to("GET http://me:hidden@h/a.txt HTTP/1.1").ends_with("alpha\n"));
    // The next one is answered when the first is noted.
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    tcp.write_all(b"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    tcp.write_all(b"GET /none HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    tcp.read_to_end(&mut Vec::new()).unwrap();
    home.wait_for_bytes("log", 1);
    let log = String::from_utf8(home.read("log")).unwrap();
    assert!(log.contains("\"target\":\"") && log.contains("/a.txt\""), "{log}");
    assert!(!log.contains("hidden"), "{log}");
}

#[test]
fn a_file_is_fetched_over_several_lanes_and_its_digest_checked() {
    let home = Home::new();
    home.write("tree/big.bin", bytes(1, 3 << 20));
    home.write("tree/large.bin", vec![7; 9 << 20]);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let url = server.at("big.bin");
    home.run(["get", &url, "--connections", "4", "-o", "got"]).code_is(0).says(&["sha-256"]);
    assert_eq!(home.read("got"), bytes(1, 3 << 20));
    let probed = home.run(["probe", &url]);
    probed.code_is(0);
    assert!(probed.out().contains("ranges"), "{probed}");
    // The server computes that of a larger one for whoever asks for it: the first client asks, too.
    home.run(["get", &server.at("large.bin"), "-o", "first", "--require-digest"])
        .code_is(0)
        .says(&["verified by sha-256 from its server"]);
    server.answer_to("HEAD /large.bin HTTP/1.1\r\nWant-Repr-Digest: sha-512=1");
    home.run(["get", &server.at("large.bin"), "-o", "large"]).code_is(0).says(&["sha-"]);
}

/// A page of any site can have its own name lead to this machine, and then read what is open here.
#[test]
fn pages_that_lead_their_names_to_this_machine_read_nothing() {
    let home = Home::new();
    home.write("tree/a", "secret");
    let server = home.serve(&["tree", "--plain", "--anonymous", "--host", "data.example"]);
    let get = |host: &str| {
        let request = format!("GET /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        String::from_utf8_lossy(&server.raw(request.as_bytes())).into_owned()
    };
    for strange in ["evil.example", "evil.example:8470", "127.0.0.1.evil.example"] {
        let answer = get(strange);
        assert!(answer.starts_with("HTTP/1.1 421 ") && !answer.contains("secret"), "{answer}");
    }
    for own in ["127.0.0.1", "localhost:8470", "store", "data.example"] {
        assert!(get(own).ends_with("secret"), "{own}");
    }
}
