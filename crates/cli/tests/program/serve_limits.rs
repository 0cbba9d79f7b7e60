//! `swath serve` and those who mean it harm, or are merely odd.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::serve::{Served, succeeds};
use crate::support::{Home, peak_bytes};

fn served() -> (Home, Served) {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    home.write("secret", "nobody may see this");
    std::os::unix::fs::symlink("../secret", home.path("tree/out")).unwrap();
    std::os::unix::fs::symlink("a.txt", home.path("tree/in")).unwrap();
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    (home, server)
}

fn text(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer).into_owned()
}

#[test]
fn nothing_outside_its_folder_is_served() {
    let (_home, server) = served();
    for path in [
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/a/../../secret",
        "/out",
        "//../secret",
        "/.//../secret",
        "/a.txt%00",
        "/proc/self/environ",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let answer = text(&server.raw(request.as_bytes()));
        assert!(!answer.contains("nobody may see this"), "{path}: {answer}");
        assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
    }
    let answer = server.raw(b"GET /in HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert!(text(&answer).starts_with("HTTP/1.1 404"), "links are not followed unasked");
}

#[test]
fn links_are_followed_as_far_as_the_folder_goes() {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    home.write("secret", "nobody may see this");
    std::os::unix::fs::symlink("../secret", home.path("tree/out")).unwrap();
    std::os::unix::fs::symlink("a.txt", home.path("tree/in")).unwrap();
    let server = home.serve(&["tree", "--anonymous", "--plain", "--follow-symlinks"]);
    let get = |path| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        text(&server.raw(request.as_bytes()))
    };
    assert!(get("/in").ends_with("\r\n\r\nalpha\n"));
    assert!(get("/out").starts_with("HTTP/1.1 404"));
    // The tree has what they lead to, too.
    home.write("tree/folder/deep", "deep\n");
    std::os::unix::fs::symlink("folder", home.path("tree/inside")).unwrap();
    home.run(["cp", &server.url, "copy/", "--quiet"]).code_is(0);
    for (path, text) in [("in", "alpha\n"), ("inside/deep", "deep\n")] {
        assert_eq!(home.read(&format!("copy/{path}")), text.as_bytes());
        assert!(!home.path(format!("copy/{path}")).is_symlink(), "{path}");
    }
    assert!(home.path("copy/out").is_symlink() && !home.path("copy/inside").is_symlink());
}

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let (_home, server) = served();
    let mut requests = String::new();
    for n in 0..20 {
        let range = format!("bytes={}-{}", n % 6, n % 6);
        requests.push_str(&format!("GET /a.txt HTTP/1.1\r\nHost: h\r\nRange: {range}\r\n\r\n"));
    }
    requests.push_str("GET /none HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let answer = text(&server.raw(requests.as_bytes()));
    let bodies: String = answer
        .split("HTTP/1.1 206 ")
        .skip(1)
        .map(|one| one.split_once("\r\n\r\n").unwrap().1.chars().next().unwrap())
        .collect();
    assert_eq!(bodies, "alpha\nalpha\nalpha\nal");
    assert_eq!(answer.matches("HTTP/1.1 404 ").count(), 1, "{answer}");
}

#[test]
fn floods_and_rubbish_are_refused_and_the_server_stands() {
    let (_home, server) = served();
    let many = "X: y\r\n".repeat(5000);
    let long = "a".repeat(100_000);
    for (request, status) in [
        (format!("GET / HTTP/1.1\r\nHost: h\r\n{many}\r\n"), "431"),
        (format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\nHost: h\r\nX: {long}\r\n\r\n"), "431"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc".to_owned(), "405"),
        ("DELETE /a.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned(), "403"),
        ("GET /a.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), "400"),
    ] {
        let answer = text(&server.raw(request.as_bytes()));
        let shown = &request[..request.len().min(60)];
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{shown}: {answer}");
    }
    // Ranges by the thousand cost no more than the file.
    let ranges = (0..2000).map(|_| "0-5").collect::<Vec<_>>().join(",");
    let request = format!(
        "GET /a.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\nRange: bytes={ranges}\r\n\r\n"
    );
    assert!(server.raw(request.as_bytes()).len() < 16_384);
    let answer = server.raw(b"GET /a.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert!(text(&answer).ends_with("alpha\n"));
}

#[test]
fn a_head_that_never_ends_is_given_up() {
    let (_home, server) = served();
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n").unwrap();
    let dripping = tcp.try_clone().unwrap();
    // A field every second: something always comes, and it is never enough.
    std::thread::spawn(move || {
        let mut dripping = dripping;
        while dripping.write_all(b"X: y\r\n").is_ok() {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    let mut answer = [0; 64];
    let bytes = tcp.read(&mut answer).unwrap();
    assert!(text(&answer[..bytes]).starts_with("HTTP/1.1 408 "), "{}", text(&answer[..bytes]));
}

/// A connection on which a test waits longer than the server should, and shorter than for ever.
fn connected(server: &Served) -> TcpStream {
    let tcp = TcpStream::connect(server.address()).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    tcp
}

/// Says nothing after the handshake, by HTTP/2 and by HTTP/1.1, until the server has enough of it.
const SAYS_NOTHING: &str = r"
import socket, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.set_alpn_protocols([sys.argv[2]])
connection = context.wrap_socket(socket.create_connection(('127.0.0.1', int(sys.argv[1]))))
assert connection.selected_alpn_protocol() == sys.argv[2]
connection.settimeout(40)
try:
    while connection.recv(4096):
        pass
except ConnectionError:
    pass
";

#[test]
fn who_says_nothing_is_left() {
    // What has a request's head come in time began with its first byte: without one it was 75 s, and
    // by HTTP/2 as long as the client was there.
    let (home, server) = served();
    let mut silent = connected(&server);
    let encrypted = home.serve(&["tree", "--anonymous"]);
    let port = encrypted.address().port().to_string();
    let (work, port) = (home.work(), port.as_str());
    std::thread::scope(|scope| {
        for version in ["h2", "http/1.1"] {
            let work = work.clone();
            scope.spawn(move || succeeds(&work, "python3", &["-c", SAYS_NOTHING, port, version]));
        }
        assert_eq!(silent.read(&mut [0]).unwrap(), 0, "it was closed");
    });
}

#[test]
fn silent_connections_make_room_and_busy_ones_do_not() {
    // As many as there may be, and nobody else was let in for as long as they liked.
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    home.write("tree/big", vec![7; 8 << 20]);
    let limits = ["--max-connections", "3", "--limit-rate", "2M"];
    for how in [&["--plain"][..], &[]] {
        let server = home.serve(&[&["tree", "--anonymous"], &limits[..], how].concat());
        let (work, big) = (home.work(), server.at("big"));
        let args = ["-sSk", "-m", "40", "-o", "got", "-w", "%{http_code}", &big];
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| succeeds(&work, "curl", &args));
            while !home.exists("got") && !busy.is_finished() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let mut silent: Vec<TcpStream> = (0..6).map(|_| connected(&server)).collect();
            let a = server.at("a.txt");
            let args = ["-sSk", "-m", "30", &a];
            if let Some(answer) = succeeds(&work, "curl", &args) {
                assert_eq!(answer, "alpha\n");
                assert_eq!(silent[0].read(&mut [0]).unwrap(), 0, "it made room");
                let metrics = server.at("metrics");
                let metrics = succeeds(&work, "curl", &["-sSk", "-m", "30", &metrics]).unwrap();
                let waited = "swath_connections_waited_total ";
                let line = metrics.lines().find_map(|line| line.strip_prefix(waited));
                // All but the first three, which found room.
                assert!(line.unwrap().parse::<u32>().unwrap() >= 4, "{metrics}");
                assert_eq!(busy.join().unwrap().as_deref(), Some("200"));
                assert_eq!(home.read("got").len(), 8 << 20);
            }
        });
        std::fs::remove_file(home.path("got")).unwrap();
    }
}

#[test]
fn what_is_under_way_ends_before_the_server_does() {
    let home = Home::new();
    home.write("tree/big", vec![7; 64 << 20]);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    tcp.write_all(b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut first = vec![0; 1 << 20];
    tcp.read_exact(&mut first).unwrap();
    let idle = TcpStream::connect(server.address()).unwrap();
    server.signal(libc::SIGTERM);
    std::thread::sleep(Duration::from_millis(300));
    assert!(TcpStream::connect(server.address()).is_err(), "nobody new is let in");
    let mut rest = Vec::new();
    tcp.read_to_end(&mut rest).unwrap();
    assert!(first.len() + rest.len() > 64 << 20, "all of it came");
    drop((tcp, idle));
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn several_folders_lie_under_their_names_and_answers_are_noted() {
    let home = Home::new();
    home.write("one/a.txt", "alpha\n");
    home.write("two/b.txt", "beta\n");
    let server = home.serve(&[
        "one",
        "two",
        "--anonymous",
        "--plain",
        "--log",
        "log",
        "--log-format",
        "json",
    ]);
    let get = |path| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        text(&server.raw(request.as_bytes()))
    };
    assert!(get("/one/a.txt").ends_with("alpha\n"));
    assert!(get("/two/b.txt").ends_with("beta\n"));
    assert!(get("/a.txt").starts_with("HTTP/1.1 404 "));
    assert!(get("/?format=json").contains("{\"name\":\"one\",\"kind\":\"folder\""));
    let metrics = get("/metrics");
    assert!(metrics.contains("swath_answers_total{class=\"2xx\"} 3"), "{metrics}");
    let log = String::from_utf8(home.read("log")).unwrap();
    assert!(log.lines().next().unwrap().contains("\"target\":\"/one/a.txt\""), "{log}");
    let twice = home.run(["serve", "one", "one", "--anonymous"]);
    twice.code_is(2).says(&["two of the folders are called 'one'"]);
}

/// Asks for a file so many times on each of so many connections that take nothing of it, or as much as
/// fits into the windows of so many bytes that they grant.
const TAKES_NOTHING: &str = r"
import socket, ssl, sys, time
host, port, token = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
connections, streams, window, waits = (int(word) for word in sys.argv[4:8])
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.set_alpn_protocols(['h2'])
def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + payload
def field(name, value):
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value
head = b''.join(field(*pair) for pair in [
    (b':method', b'GET'), (b':scheme', b'https'), (b':path', b'/big.bin'), (b':authority', b'x'),
    (b'authorization', b'Bearer ' + token)])
kept = []
for number in range(connections):
    connection = context.wrap_socket(socket.create_connection((host, port)))
    assert connection.selected_alpn_protocol() == 'h2'
    hello = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0, b'\0\4' + window.to_bytes(4, 'big'))
    if window > 65535:
        hello += frame(8, 0, 0, (window - 65535).to_bytes(4, 'big'))
    connection.sendall(hello)
    for stream in range(streams):
        connection.sendall(frame(1, 5, 2 * stream + 1, head))
    kept.append(connection)
print('asked', flush=True)
time.sleep(waits)
";

#[test]
fn who_takes_nothing_of_many_answers_takes_little_memory() {
    // Each answer had most of a megabyte made ahead: sixteen connections took 1.3 GB.
    let home = Home::new();
    home.write("tree/big.bin", vec![7; 20 << 20]);
    let server = home.serve(&["tree"]);
    let address = server.address();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let args = ["-c", TAKES_NOTHING, host.as_str(), port.as_str(), server.token()];
    for what in [["8", "100", "1", "2"], ["80", "32", "1000000000", "3"]] {
        let Some(_) = succeeds(&home.work(), "python3", &[&args[..], &what].concat()) else {
            return;
        };
        let peak = peak_bytes(server.pid()).unwrap();
        assert!(peak < 250_000_000, "{peak} bytes");
    }
}

/// Streams whose clients took nothing never counted as silent, and kept all seats for two minutes.
#[test]
fn streams_of_which_nothing_is_taken_make_room() {
    let home = Home::new();
    home.write("tree/big.bin", vec![7; 20 << 20]);
    home.write("tree/small", "small");
    let server = home.serve(&["tree", "--max-connections", "2"]);
    let address = server.address();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut held = std::process::Command::new("python3");
    held.args(["-c", TAKES_NOTHING, &host, &port, server.token(), "2", "3", "1", "100"]);
    held.stdout(std::process::Stdio::piped());
    let Ok(mut held) = held.spawn() else {
        println!("skipped: there is no python3");
        return;
    };
    let mut asked = [0; 5];
    std::io::Read::read_exact(held.stdout.as_mut().unwrap(), &mut asked).unwrap();
    let login = format!("Authorization: Bearer {}", server.token());
    let url = server.at("/small");
    let args = ["-sk", "-m", "60", "-H", login.as_str(), url.as_str()];
    let answer = succeeds(&home.work(), "curl", &args);
    let _ = held.kill();
    let _ = held.wait();
    assert!(answer.is_none_or(|answer| answer == "small"));
}
