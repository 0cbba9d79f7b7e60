//! Clients that make `swath serve` hold on to what others need: seats, threads, descriptors.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::serve::Served;

/// Sends a request on a connection of its own, which stays open as long as it is held.
fn ask(server: &Served, request: &str) -> TcpStream {
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    tcp.write_all(request.as_bytes()).unwrap();
    tcp
}

/// Returns what the server answers until it closes, or until the head of an answer without a body.
fn answered(mut tcp: TcpStream, within: Duration) -> String {
    tcp.set_read_timeout(Some(within)).unwrap();
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        match tcp.read(&mut part) {
            Ok(bytes @ 1..) => answer.extend_from_slice(&part[..bytes]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
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
            let close = "Connection: close";
            let request =
                format!("GET /{folder}/?swath=index HTTP/1.1\r\nHost: h\r\n{close}\r\n\r\n");
            // One client has a few walks at a time, and those of before end in a moment.
            let began = Instant::now();
            loop {
                let answer = answered(ask(&server, &request), Duration::from_secs(20));
                if answer.starts_with("HTTP/1.1 200") {
                    break;
                }
                let is_late = began.elapsed() > Duration::from_secs(20);
                assert!(!is_late, "round {round}, {folder}: {answer:?}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    // Connections end a moment after their answers.
    let began = Instant::now();
    while descriptors(&server) > before + 40 {
        assert!(began.elapsed() < Duration::from_secs(20), "{} open", descriptors(&server));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Digests of two large files that clients asked for and left kept all others waiting for theirs,
/// until those files had been read to their ends.
#[test]
fn digests_that_nobody_waits_for_hold_up_nobody() {
    let home = Home::new();
    home.write("tree/small", "small");
    for large in ["one", "two", "three"] {
        // Minutes of work, and nothing on the disk.
        let file = std::fs::File::create(home.path(format!("tree/{large}"))).unwrap();
        file.set_len(400 << 30).unwrap();
    }
    std::fs::write(home.path("tree/middle"), vec![1; 20 << 20]).unwrap();
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let head = |path: &str| {
        format!("HEAD /{path} HTTP/1.1\r\nHost: h\r\nWant-Repr-Digest: sha-256=1\r\n\r\n")
    };
    let held: Vec<TcpStream> =
        ["one", "two", "three"].iter().map(|large| ask(&server, &head(large))).collect();
    // A small digest waits for no turn.
    let answer = answered(ask(&server, &head("small")), Duration::from_secs(20));
    assert!(answer.contains("repr-digest: sha-256="), "{answer:?}");
    drop(held);
    let answer = answered(ask(&server, &head("middle")), Duration::from_secs(40));
    assert!(answer.contains("repr-digest: sha-256="), "{answer:?}");
}

/// Whoever announced a body and sent none was answered after 15 s, without a token too.
#[test]
fn who_may_not_send_is_told_so_before_the_body_comes() {
    let home = Home::new();
    home.write("tree/a", "a");
    let server = home.serve(&["tree", "--plain"]);
    let request = "PUT /b HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n";
    let began = Instant::now();
    let answer = answered(ask(&server, request), Duration::from_secs(12));
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer:?}");
    assert!(answer.to_lowercase().contains("connection: close"), "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// Clients that took nothing of their answers kept all seats for two minutes.
#[test]
fn clients_that_take_nothing_make_room() {
    let home = Home::new();
    let file = std::fs::File::create({
        home.write("tree/small", "small");
        home.path("tree/large")
    });
    file.unwrap().set_len(1 << 30).unwrap();
    let server = home.serve(&["tree", "--anonymous", "--plain", "--max-connections", "2"]);
    let get = |path: &str| format!("GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let _held = [ask(&server, &get("large")), ask(&server, &get("large"))];
    // Longer than nothing moves before that counts as silence, shorter than two minutes.
    let answer = answered(ask(&server, &get("small")), Duration::from_secs(60));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
}

/// Where all seats were taken by clients that were at it, whoever asked whether the server is well
/// waited for the first of them to end.
#[test]
fn whether_it_is_well_is_answered_while_all_seats_are_taken() {
    let home = Home::new();
    let file = std::fs::File::create({
        home.write("tree/small", "small");
        home.path("tree/large")
    });
    file.unwrap().set_len(1 << 30).unwrap();
    let server = home.serve(&["tree", "--anonymous", "--plain", "--max-connections", "2"]);
    let get = |path: &str| format!("GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut busy = ask(&server, &get("large"));
            let stop = &stop;
            scope.spawn(move || {
                let mut part = vec![0; 64 << 10];
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    busy.read_exact(&mut part).unwrap();
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let waiting: Vec<TcpStream> = (0..5).map(|_| ask(&server, &get("small"))).collect();
        for _ in 0..3 {
            let answer = answered(ask(&server, &get("health")), Duration::from_secs(20));
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
            assert!(answer.contains("connection: close"), "{answer:?}");
        }
        for tcp in &waiting {
            tcp.set_nonblocking(true).unwrap();
            assert!(tcp.peek(&mut [0]).is_err(), "nobody has made room yet");
            tcp.set_nonblocking(false).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for tcp in waiting {
            let answer = answered(tcp, Duration::from_secs(60));
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
        }
    });
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

/// A page of another site had the browser of whoever was logged in write files.
#[test]
fn pages_of_other_sites_write_nothing() {
    let home = Home::new();
    home.write("tree/a", "a");
    home.write("tokens", "secret write\n");
    let server = home.serve(&["tree", "--plain", "--write", "--token-file", "tokens"]);
    let put = |more: &str| {
        let login = "Authorization: Bearer secret";
        let length = "Content-Length: 1";
        let head = format!("PUT /b HTTP/1.1\r\nHost: h:1\r\n{login}\r\n{length}\r\n{more}\r\nx");
        answered(ask(&server, &head), Duration::from_secs(20))
    };
    for page in [
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Origin: http://h:1\r\nSec-Fetch-Site: same-site\r\n",
    ] {
        let answer = put(page);
        assert!(answer.starts_with("HTTP/1.1 403"), "{page}: {answer}");
    }
    assert!(!home.exists("tree/b"));
    for own in ["", "Origin: http://h:1\r\n", "Sec-Fetch-Site: same-origin\r\n"] {
        let answer = put(own);
        assert!(answer.starts_with("HTTP/1.1 20"), "{own}: {answer}");
    }
}

/// A page that somebody had uploaded ran its scripts as the server's own, with everybody's logins.
#[test]
fn files_are_no_part_of_the_site() {
    let home = Home::new();
    home.write("tree/a.html", "<script>x</script>");
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let request = "GET /a.html HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let answer = answered(ask(&server, request), Duration::from_secs(20));
    assert!(answer.contains("x-content-type-options: nosniff\r\n"), "{answer}");
    assert!(answer.contains("content-security-policy: sandbox allow-scripts\r\n"), "{answer}");
}

#[test]
fn lines_end_with_both_characters_and_values_with_what_http_calls_blank() {
    let home = Home::new();
    home.write("tree/a", "a");
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    for request in [
        "GET /a HTTP/1.1\nHost: h\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: h\nX: y\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: h\r\n\n",
        "PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: \u{a0}1\r\n\r\nx",
    ] {
        let answer = answered(ask(&server, request), Duration::from_secs(20));
        assert!(answer.starts_with("HTTP/1.1 400"), "{request:?}: {answer}");
    }
}

#[test]
fn the_log_holds_no_login_and_no_query_of_a_page() {
    let home = Home::new();
    home.write("tree/a", "a");
    let server = home.serve(&["tree", "--anonymous", "--plain", "--log", "log"]);
    let request = "GET http://me:hidden@h/a HTTP/1.1\r\nHost: h\r\n\
                   Referer: http://page.example/p?key=hidden\r\nConnection: close\r\n\r\n";
    answered(ask(&server, request), Duration::from_secs(20));
    let began = Instant::now();
    let log = || String::from_utf8(home.read("log")).unwrap();
    while log().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(log().contains("page.example") && !log().contains("hidden"), "{}", log());
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

/// A page of any site can have its own name lead to this machine, and then read what is open here.
#[test]
fn pages_that_lead_their_names_to_this_machine_read_nothing() {
    let home = Home::new();
    home.write("tree/a", "secret");
    let served = |more: &[&str]| {
        let args: Vec<&str> = ["tree", "--plain"].iter().chain(more).copied().collect();
        let all = ["serve", "--listen", "127.0.0.1:0"];
        Served::of(home.swath(all.iter().chain(&args)), &args)
    };
    let get = |server: &Served, host: &str, more: &str| {
        let request = format!("GET /a HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n");
        let mut answer = String::new();
        let _ = ask(server, &request).read_to_string(&mut answer);
        answer
    };
    let open = served(&["--anonymous", "--host", "data.example"]);
    for strange in ["evil.example", "evil.example:8470", "127.0.0.1.evil.example"] {
        let answer = get(&open, strange, "");
        assert!(answer.starts_with("HTTP/1.1 421 ") && !answer.contains("secret"), "{answer}");
    }
    for own in ["127.0.0.1", "localhost:8470", "store", "data.example"] {
        assert!(get(&open, own, "").ends_with("secret"), "{own}");
    }
    home.write("tokens", "word\n");
    let closed = served(&["--token-file", "tokens"]);
    let shown = "Authorization: Bearer word\r\n";
    assert!(get(&closed, "data.example", shown).ends_with("secret"), "whoever knows it may ask");
}
