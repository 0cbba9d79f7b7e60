//! A relay that keeps what passes: each byte crosses the way to its server once, whoever asks.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use swath_netlab::faulty::{Behaviour, Content, Handle, Server};

use crate::support::net::{FILE, honest, server, slow, url};
use crate::support::serve::{Served, other};
use crate::support::{Home, peak_bytes};

const MIB: u64 = 1 << 20;

fn caching(home: &Home, more: &[&str]) -> Served {
    home.relay(&[&["--cache", "kept"], more].concat())
}

fn curl(home: &Home, args: &[&str]) -> Option<(i32, String)> {
    other(&home.work(), "curl", &[&["-sS", "--max-time", "80"], args].concat())
}

/// The head of the answer to a GET of a range.
fn head_of(home: &Home, url: &str, range: &str, more: &[&str]) -> String {
    let args = ["-D", "-", "-o", "/dev/null", "-r", range, url];
    curl(home, &[&args[..], more].concat()).unwrap().1
}

fn has_curl(home: &Home) -> bool {
    curl(home, &["--version"]).is_some()
}

/// A figure of `/metrics`.
fn figure(home: &Home, relay: &Served, name: &str) -> f64 {
    let page = curl(home, &[&relay.at("metrics")]).unwrap().1;
    let line = page.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{name}: {page}")).rsplit(' ').next().unwrap().parse().unwrap()
}

/// How many bytes of the file its server sent, all requests together.
fn sent(origin: &Server) -> u64 {
    origin.log().sent_bytes(FILE)
}

fn starts_curl(home: &Home, url: &str, to: &str, more: &[&str]) -> Child {
    let mut command = Command::new("curl");
    command.args(["-sSf", "--max-time", "80", "-o", to, url]).args(more);
    command.current_dir(home.work()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn ten_clients_make_one_copy() {
    let home = Home::new();
    if !has_curl(&home) {
        return;
    }
    let content = Content::random(1, 24 * MIB + 17);
    let origin = slow(&content, 12 * MIB);
    let relay = caching(&home, &[]);
    let curls: Vec<(String, Child)> = (0..5)
        .map(|at| {
            let name = format!("curl{at}");
            let child = starts_curl(&home, &relay.through(&url(&origin)), &name, &[]);
            (name, child)
        })
        .collect();
    let swaths: Vec<_> = (0..5)
        .map(|at| {
            let name = format!("swath{at}");
            let args = ["get", &url(&origin), "-o", &name, "--route", &relay.named()];
            (name.clone(), home.swath(args).start())
        })
        .collect();
    for (name, mut child) in curls {
        assert!(child.wait().unwrap().success(), "{name}");
        home.holds(&name, &content);
    }
    for (name, running) in swaths {
        running.wait().code_is(0);
        home.holds(&name, &content);
    }
    // swath asks the origin itself too, for a few bytes: by way of the relay it is one copy.
    let copies = figure(&home, &relay, "swath_relay_cache_fetched_bytes_total");
    assert!(copies <= content.size_bytes() as f64 * 1.02, "{copies}");
    let by_relay: u64 = origin
        .log()
        .on(FILE)
        .filter(|one| one.header("via").is_some())
        .map(|one| one.delivered().map_or(0, |range| range.end - range.start))
        .sum();
    assert!(by_relay as f64 <= content.size_bytes() as f64 * 1.02, "{by_relay}");
}

#[test]
fn what_was_fetched_once_is_told_and_kept_over_a_restart() {
    let home = Home::new();
    if !has_curl(&home) {
        return;
    }
    let content = Content::random(2, 3 * MIB + 5);
    let origin = honest(&content);
    let relay = caching(&home, &[]);
    let to = relay.through(&url(&origin));
    let first = head_of(&home, &to, "0-", &[]);
    assert!(first.starts_with("HTTP/1.1 206 ") && first.contains("cache;desc=miss"), "{first}");
    assert!(first.contains("server-timing: hop;desc="), "{first}");
    let second = head_of(&home, &to, "100-200", &[]);
    for word in ["cache;desc=hit", "\nage: ", "\nvia: 1.1 swath-", "content-range: bytes 100-200/"]
    {
        assert!(second.contains(word), "{word}: {second}");
    }
    assert!(!second.contains("hop;"), "nobody was asked: {second}");
    let etag = second.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().trim();
    let once = sent(&origin);
    assert_eq!(once, content.size_bytes());
    // Conditions, heads and what lies behind the end are answered from what is known.
    for (more, status) in [
        (format!("If-None-Match: {etag}"), "304"),
        ("If-Match: \"other\"".to_owned(), "412"),
        (format!("If-Range: {etag}"), "206"),
        ("If-Range: \"other\"".to_owned(), "200"),
    ] {
        let told = head_of(&home, &to, "7-9", &["-H", &more]);
        assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{more}: {told}");
    }
    let told = head_of(&home, &to, "99999999-", &[]);
    assert!(told.starts_with("HTTP/1.1 416 ") && told.contains("bytes */3145733"), "{told}");
    let told = curl(&home, &["-I", &to]).unwrap().1;
    assert!(told.contains("content-length: 3145733\r\n") && told.contains("cache;"), "{told}");
    // Whoever asks ahead is answered in order, also for what nobody had asked for.
    let target = &to[relay.named().len()..];
    let mut all = String::new();
    let ranges = [(5u64, 9u64), (2_000_000, 2_000_999), (300, 300)];
    for (at, (first, last)) in ranges.iter().enumerate() {
        let end = if at == 2 { "Connection: close\r\n" } else { "" };
        all += &format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nRange: bytes={first}-{last}\r\n{end}\r\n"
        );
    }
    let answer = relay.raw(all.as_bytes());
    let mut rest = answer.as_slice();
    for (first, last) in ranges {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let bytes = (last - first + 1) as usize;
        assert!(rest[end..end + bytes] == content.read(first, last + 1), "{first}");
        rest = &rest[end + bytes..];
    }
    assert!(rest.is_empty());
    assert_eq!(sent(&origin), once);
    relay.signal(9);
    drop(relay);
    let relay = caching(&home, &[]);
    curl(&home, &["-o", "again", &relay.through(&url(&origin))]).unwrap();
    home.holds("again", &content);
    assert_eq!(sent(&origin), once, "a restart loses nothing");
    assert_eq!(figure(&home, &relay, "swath_relay_cache_files"), 1.0);
    relay.signal(15);
    drop(relay);
    // The same where bytes have to be encrypted on their way out.
    let args = ["relay", "--upstream", "127.0.0.1", "--clients", "127.0.0.0/8", "--cache", "kept"];
    let swath = home.swath([&args[..], &["--listen", "127.0.0.1:0"]].concat());
    let relay = Served::of(swath, &["--token-file"]);
    assert!(relay.url.starts_with("https://"), "{}", relay.url);
    let (code, said) = curl(&home, &["-k", "-o", "tls", &relay.through(&url(&origin))]).unwrap();
    assert_eq!(code, 0, "{said}");
    home.holds("tls", &content);
    assert_eq!(sent(&origin), once);
}

#[test]
fn a_file_that_changes_is_never_mixed() {
    let home = Home::new();
    if !has_curl(&home) {
        return;
    }
    let (old, new) = (Content::random(3, 40 * MIB), Content::random(4, 40 * MIB));
    let origin = slow(&old, 10 * MIB);
    let relay = caching(&home, &[]);
    let to = relay.through(&url(&origin));
    let mut child = starts_curl(&home, &to, "cut", &[]);
    home.wait_for_bytes("cut", 2 * MIB);
    origin.replace(FILE, new.clone());
    assert!(!child.wait().unwrap().success(), "it is cut, not mixed");
    let got = home.read("cut");
    assert!(got.len() < 40 << 20 && old.read(0, got.len() as u64) == got, "{}", got.len());
    origin.clear();
    // What is known is at most two seconds old.
    std::thread::sleep(Duration::from_millis(2100));
    let (code, said) = curl(&home, &["-o", "new", &to]).unwrap();
    assert_eq!(code, 0, "{said}");
    home.holds("new", &new);
    // And a client that may not wait asks for news.
    origin.replace(FILE, old.clone());
    let told = head_of(&home, &to, "0-9", &["-H", "Cache-Control: no-cache"]);
    let before = told.lines().find(|line| line.starts_with("etag: ")).unwrap().to_owned();
    curl(&home, &["-o", "old", "-H", "Cache-Control: no-cache", &to]).unwrap();
    home.holds("old", &old);
    assert!(curl(&home, &["-I", &to]).unwrap().1.contains(&before));
}

#[test]
fn what_may_not_be_kept_passes_every_time() {
    let home = Home::new();
    if !has_curl(&home) {
        return;
    }
    let content = Content::random(5, MIB);
    let relay = caching(&home, &[]);
    for (name, value) in
        [("Cache-Control", "no-store"), ("Cache-Control", "private, max-age=9"), ("Vary", "Cookie")]
    {
        let origin = server(&content, Behaviour::header(name, value));
        for round in 1..=2 {
            let (code, said) = curl(&home, &["-o", "got", &relay.through(&url(&origin))]).unwrap();
            assert_eq!(code, 0, "{name}: {value}: {said}");
            home.holds("got", &content);
            assert_eq!(sent(&origin), round * content.size_bytes(), "{name}: {value}");
        }
    }
    // What opens the origin opens nothing for others.
    let origin = honest(&content);
    let from = url(&origin);
    for shown in ["Authorization: Basic eDp5", "X-Api-Key: 7"] {
        let args = ["-x", relay.url.as_str(), "-H", shown, "-o", "got", &from];
        for _ in 0..2 {
            assert_eq!(curl(&home, &args).unwrap().0, 0);
        }
    }
    assert_eq!(sent(&origin), 4 * content.size_bytes());
    home.write("token", "secret-token");
    let args = ["get", &from, "-o", "sealed", "--bearer-file", "token", "--route", &relay.named()];
    home.run(args).code_is(0);
    home.holds("sealed", &content);
    assert_eq!(figure(&home, &relay, "swath_relay_cache_files"), 0.0);
    assert_eq!(figure(&home, &relay, "swath_relay_cache_fetched_bytes_total"), 0.0);
    // A server without ranges is passed on, and one that cannot be asked for its head.
    for odd in [Behaviour::NoRanges, Behaviour::Chunked { chunk_bytes: 5000 }] {
        let origin = server(&content, odd);
        let args = ["-r", "500000-600000", "-o", "odd", &relay.through(&url(&origin))];
        let (code, said) = curl(&home, &args).unwrap();
        assert!(code == 0 || code == 33, "{code}: {said}");
    }
}

#[test]
fn a_full_cache_costs_nobody_anything() {
    let home = Home::new();
    if !has_curl(&home) {
        return;
    }
    let content = Content::random(6, 12 * MIB);
    let origin = honest(&content);
    let relay = caching(&home, &["--cache-size", "3MiB"]);
    for _ in 0..2 {
        let (code, said) = curl(&home, &["-o", "got", &relay.through(&url(&origin))]).unwrap();
        assert_eq!(code, 0, "{said}");
        home.holds("got", &content);
    }
    assert!(sent(&origin) < 2 * content.size_bytes(), "some of it was kept");
    let kept = figure(&home, &relay, "swath_relay_cache_bytes");
    assert!(kept > MIB as f64 && kept <= 3.0 * MIB as f64, "{kept}");
    // Others take its place.
    let small = Content::random(7, 2 * MIB);
    let other = honest(&small);
    for _ in 0..2 {
        curl(&home, &["-o", "small", &relay.through(&url(&other))]).unwrap();
        home.holds("small", &small);
    }
    assert_eq!(sent(&other), small.size_bytes());
    assert!(figure(&home, &relay, "swath_relay_cache_bytes") <= 3.0 * MIB as f64);
}

#[test]
fn who_leaves_stops_nobody_and_nobody_is_fetched_for() {
    let home = Home::new();
    if !has_curl(&home) {
        return;
    }
    let content = Content::random(8, 30 * MIB);
    let origin = slow(&content, 10 * MIB);
    let relay = caching(&home, &[]);
    let to = relay.through(&url(&origin));
    // The one for whom it is fetched goes away.
    let mut first = starts_curl(&home, &to, "left", &[]);
    home.wait_for_bytes("left", MIB);
    let mut second = starts_curl(&home, &to, "stays", &[]);
    home.wait_for_bytes("stays", 2 * MIB);
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(second.wait().unwrap().success());
    home.holds("stays", &content);
    assert!(sent(&origin) as f64 <= 1.02 * content.size_bytes() as f64, "{}", sent(&origin));
    // With the last one the fetching ends.
    let content = Content::random(9, 400 * MIB);
    let origin = slow(&content, 20 * MIB);
    let to = relay.through(&url(&origin));
    let mut only = starts_curl(&home, &to, "only", &[]);
    home.wait_for_bytes("only", 2 * MIB);
    only.kill().unwrap();
    only.wait().unwrap();
    let is_left = |it: &Handle| it.open_connections() == 0;
    assert!(origin.handle().wait_until(Duration::from_secs(20), is_left), "it is still asked");
    // Nor is more fetched than is taken, but for what lies just ahead.
    let mut tcp = TcpStream::connect(relay.address()).unwrap();
    let target = &to[relay.named().len()..];
    tcp.write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
    tcp.read_exact(&mut vec![0; 1 << 20]).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let fetched = figure(&home, &relay, "swath_relay_cache_bytes");
    assert!(fetched < 80.0 * MIB as f64, "{fetched}");
}

#[test]
fn a_thousand_clients_are_one() {
    let home = Home::new();
    let content = Content::random(10, 4 * MIB);
    let origin = honest(&content);
    let relay = caching(&home, &[]);
    let to = relay.through(&url(&origin));
    let target = &to[relay.named().len()..];
    let mut all: Vec<TcpStream> =
        (0..1000).map(|_| TcpStream::connect(relay.address()).unwrap()).collect();
    for (at, tcp) in all.iter_mut().enumerate() {
        let start = at * 4000;
        let range = format!("bytes={start}-{}", start + 3999);
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nRange: {range}\r\n\r\n");
        tcp.write_all(request.as_bytes()).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    }
    for (at, tcp) in all.iter_mut().enumerate() {
        let mut answer = Vec::new();
        let mut part = [0; 8192];
        let end = loop {
            let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end.filter(|end| answer.len() >= end + 4 + 4000) {
                break end + 4;
            }
            match tcp.read(&mut part) {
                Ok(bytes @ 1..) => answer.extend_from_slice(&part[..bytes]),
                other => panic!("{at}: {other:?}: {}", String::from_utf8_lossy(&answer)),
            }
        };
        let start = at as u64 * 4000;
        assert!(answer[end..] == content.read(start, start + 4000), "{at}");
    }
    // What was on its way when the last who waited for it left may come twice.
    assert!(sent(&origin) <= content.size_bytes() * 11 / 10, "{}", sent(&origin));
    let asked = origin.log().count("HEAD");
    assert!(asked < 60, "a thousand questions are a few: {asked}");
    let peak_mib = peak_bytes(relay.pid()).unwrap() >> 20;
    assert!(peak_mib < 300, "{peak_mib} MiB");
}

#[test]
fn damaged_files_are_fetched_again() {
    let home = Home::new();
    if !has_curl(&home) {
        return;
    }
    let content = Content::random(11, 4 * MIB);
    let origin = honest(&content);
    let relay = caching(&home, &[]);
    curl(&home, &["-o", "got", &relay.through(&url(&origin))]).unwrap();
    relay.signal(15);
    drop(relay);
    let names = home.names_in("kept/files");
    assert_eq!(names.len(), 1);
    let path = home.path("kept/files").join(&names[0]);
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(b"not what came", 2 * MIB + 12_345).unwrap();
    let relay = caching(&home, &[]);
    curl(&home, &["-o", "again", &relay.through(&url(&origin))]).unwrap();
    home.holds("again", &content);
    // What is wrong with a disk was told to nobody. What may open something is not part of it.
    relay.says("warning: cached bytes are damaged url=http://127.0.0.1:");
    let again = sent(&origin) - content.size_bytes();
    assert!(again > 0 && again <= MIB, "one group, not all: {again}");
    // A folder that another relay has open is refused, and so is one that cannot be.
    let args = ["relay", "--plain", "--upstream", "127.0.0.1", "--clients", "127.0.0.0/8"];
    let more = ["--listen", "127.0.0.1:0", "--cache", "kept"];
    let ran = home.run([&args[..], &more].concat());
    ran.code_is(6).says(&["in use by another process"]);
}

#[test]
fn a_cache_that_was_promised_more_than_its_disk_has_says_so() {
    // It began without a word, and filled the disk.
    let home = Home::new();
    let relay = home.relay(&["--cache", "cache", "--cache-size", "900000T"]);
    relay.says("warning: --cache-size ");
    relay.says("the disk has room for only ");
}
