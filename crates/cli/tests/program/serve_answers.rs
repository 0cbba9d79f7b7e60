//! `swath serve`: answers that programs of others took amiss.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::symlink;

use crate::support::Home;
use crate::support::serve::{Served, other};

/// One request, and all that is answered.
fn ask(server: &Served, request: &str) -> String {
    let request = format!("{request}\r\nHost: h\r\nConnection: close\r\n\r\n");
    String::from_utf8_lossy(&server.raw(request.as_bytes())).into_owned()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

/// Links and pipes answer 404, and their names on a page led there: `wget -r` ended with 8.
#[test]
fn a_page_leads_to_nothing_that_is_not_served() {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    home.write("tree/sub/b.txt", "beta\n");
    symlink("a.txt", home.path("tree/link")).unwrap();
    symlink("/etc/<passwd>", home.path("tree/out")).unwrap();
    let pipe = std::ffi::CString::new(home.path("tree/pipe").to_str().unwrap()).unwrap();
    // SAFETY: a plain system call with a path that lives on.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o644) }, 0);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let page = ask(&server, "GET / HTTP/1.1");
    assert!(page.contains("<tr class=\"link\"><td>link -&gt; a.txt</td>"), "{page}");
    assert!(page.contains("<tr class=\"link\"><td>out -&gt; /etc/&lt;passwd&gt;</td>"), "{page}");
    assert!(page.contains("<tr class=\"other\"><td>pipe</td>"), "{page}");
    assert!(page.contains("<a href=\"./a.txt\">") && page.contains("<a href=\"./sub/\">"));
    if let Some((code, said)) =
        other(&home.work(), "wget", &["-q", "-r", "-np", "-nH", "-P", "got", &server.url])
    {
        assert_eq!(code, 0, "{said}");
        assert_eq!(home.read("got/sub/b.txt"), b"beta\n");
    }
    // Where links are followed they lead on, but for those that lead out.
    let server = home.serve(&["tree", "--anonymous", "--plain", "--follow-symlinks"]);
    let page = ask(&server, "GET / HTTP/1.1");
    assert!(page.contains("<a href=\"./link\">link</a>"), "{page}");
    assert!(page.contains("<td>out -&gt; "), "{page}");
}

/// What a browser shows to somebody says what to do; programs get a line of text as ever.
#[test]
fn pages_lead_up_tell_what_copies_them_and_refusals_are_pages_too() {
    let home = Home::new();
    home.write("tree/sub/run10", "a");
    home.write("tree/sub/run9", "b");
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let page = ask(&server, "GET /sub/ HTTP/1.1");
    assert!(page.contains("<a href=\"../\">..</a>"), "{page}");
    assert!(page.contains("swath cp '") && page.contains("/sub/' ./sub/</code>"), "{page}");
    assert!(page.find(">run9<") < page.find(">run10<"), "{page}");
    assert!(!ask(&server, "GET / HTTP/1.1").contains(">..<"), "nothing is above the top");
    let browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8";
    let closed = home.serve(&["tree", "--plain"]);
    for (server, path, status, words) in [
        (&server, "/gone", "404 Not Found", "nothing of this name"),
        (&closed, "/", "401 Unauthorized", "the password is the token"),
    ] {
        let page = ask(server, &format!("GET {path} HTTP/1.1\r\n{browser}"));
        assert!(page.starts_with(&format!("HTTP/1.1 {status}")), "{page}");
        assert!(page.contains("<!DOCTYPE html>") && page.contains(words), "{page}");
        assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
        let plain = ask(server, &format!("GET {path} HTTP/1.1\r\nAccept: */*"));
        assert!(plain.contains("content-type: text/plain"), "{plain}");
    }
}

#[test]
fn sizes_of_folders_are_told_once_somebody_has_copied_them() {
    let home = Home::new();
    for (name, bytes) in [("a/sub/x", 3000), ("a/sub/y", 2000), ("a/z/deep/w", 70_000), ("b", 9)] {
        home.write(&format!("tree/{name}"), vec![7; bytes]);
    }
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let cell = |bytes: &str| format!("<td title=\"when it was last copied\">{bytes}</td>");
    let page = ask(&server, "GET / HTTP/1.1");
    assert!(!page.contains("last copied"), "{page}");
    // A part of it says nothing of the whole.
    home.run(["cp", &server.url, "part/", "--include", "x"]).code_is(0);
    assert!(!ask(&server, "GET / HTTP/1.1").contains("last copied"));
    home.run(["cp", &server.url, "copy/"]).code_is(0);
    assert!(ask(&server, "GET / HTTP/1.1").contains(&cell("75 kB")));
    for _ in 0..2 {
        let page = ask(&server, "GET /a/ HTTP/1.1");
        assert!(page.contains(&cell("5.0 kB")) && page.contains(&cell("70 kB")), "{page}");
    }
}

#[test]
fn several_folders_are_told_with_their_own_times() {
    let home = Home::new();
    home.write("one/a", "a");
    home.write("two/b", "b");
    for folder in ["one", "two"] {
        let times = std::fs::FileTimes::new()
            .set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000));
        std::fs::File::open(home.path(folder)).unwrap().set_times(times).unwrap();
    }
    let server = home.serve(&["one", "two", "--anonymous", "--plain"]);
    let json = ask(&server, "GET /?format=json HTTP/1.1");
    assert_eq!(json.matches("\"mtime\":1000000000.000000000").count(), 2, "{json}");
    let page = ask(&server, "GET / HTTP/1.1");
    assert_eq!(page.matches("<td>2001-09-09 ").count(), 2, "{page}");
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
    // Not through a file, not where copies keep what is theirs, and for others only if they ask.
    send("kept/below/").code_is(5);
    send("x.swath.part/below/").code_is(5);
    assert!(!home.exists("tree/x.swath.part"));
    let auth = format!("Authorization: Bearer {}\r\nContent-Length: 0", server.token());
    assert!(ask(&server, &format!("PUT /none/b HTTP/1.1\r\n{auth}")).starts_with("HTTP/1.1 409 "));
    let wants_one = format!("{auth}\r\nSwath-Folders: make\r\nIf-Match: *");
    let answer = ask(&server, &format!("PUT /none/b HTTP/1.1\r\n{wants_one}"));
    assert!(answer.starts_with("HTTP/1.1 412 "), "{answer}");
    assert!(!home.exists("tree/none"));
}

#[test]
fn a_destination_that_fetches_from_nobody_is_said_with_what_to_do() {
    let home = Home::new();
    let ran = home.run(["cp", "http://127.0.0.1:9/a/", "http://127.0.0.1:9/b/"]);
    ran.code_is(7).says(&["Connection refused"]);
    let by_ssh = home.run(["cp", "host:a/", "http://127.0.0.1:9/b/"]);
    by_ssh.code_is(7).says(&["ssh could not connect"]);
    let places = ["cp", "http://127.0.0.1:9/a/", "http://127.0.0.1:9/c/", "host:b/"];
    home.run(places).code_is(2).says(&["several replicas"]);
}

#[test]
fn where_nothing_changed_there_is_no_line() {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let index = ask(&server, "GET /?swath=index HTTP/1.1");
    let walk = index.lines().find_map(|line| line.strip_prefix("swath-walk: ")).unwrap();
    let changed = ask(&server, &format!("GET /?swath=changed&walk={walk} HTTP/1.1"));
    assert!(changed.starts_with("HTTP/1.1 200 "), "{changed}");
    assert_eq!(body(&changed), "");
    // With several ranges all of it comes, as docs/protocol.md says.
    let request = format!("GET /?swath=sealed&walk={walk} HTTP/1.1\r\nRange: bytes=0-1,4-5");
    assert!(ask(&server, &request).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_tree_sent_onto_a_file_is_in_its_way() {
    let home = Home::new();
    home.write("tree/h", "a file\n");
    let server = home.serve(&["tree", "--write", "--plain"]);
    let auth = format!("Authorization: Bearer {}", server.token());
    for target in ["/h/?swath=receive", "/h?swath=receive&dry=yes", "/h/below/?swath=receive"] {
        let answer = ask(&server, &format!("POST {target} HTTP/1.1\r\n{auth}"));
        assert!(answer.starts_with("HTTP/1.1 409 "), "{target}: {answer}");
    }
    assert_eq!(home.read("tree/h"), b"a file\n");
}

/// A reader of vectors asks for hundreds of ranges, and got all of the file.
#[test]
fn hundreds_of_ranges_come_in_one_answer() {
    let home = Home::new();
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    home.write("tree/data.bin", &bytes);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let asked = |count: usize| {
        let all: Vec<String> = (0..count).map(|n| format!("{}-{}", 10 * n, 10 * n + 3)).collect();
        format!("GET /data.bin HTTP/1.1\r\nRange: bytes={}", all.join(","))
    };
    let answer = ask(&server, &asked(1024));
    assert!(answer.starts_with("HTTP/1.1 206 "), "{answer}");
    assert_eq!(answer.matches("content-range: bytes ").count(), 1024);
    assert!(answer.contains("content-range: bytes 10230-10233/100000\r\n\r\n"));
    // More are none at all, and what is too long for a head is refused before it is read.
    let answer =
        server.raw(format!("{}\r\nHost: h\r\nConnection: close\r\n\r\n", asked(1100)).as_bytes());
    assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(&bytes));
    assert!(ask(&server, &asked(1_000_000)).starts_with("HTTP/1.1 431 "));
}

/// RFC 9110, section 14.2: a range is for GET alone.
#[test]
fn a_head_with_a_range_is_told_of_the_whole() {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    for range in ["0-1", "100-", "0-0,3-3"] {
        let head = ask(&server, &format!("HEAD /a.txt HTTP/1.1\r\nRange: bytes={range}"));
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("content-length: 6\r\n"), "{head}");
    }
}

/// The answer was an alert of TLS, which programs called "improper HTTP".
#[test]
fn plain_http_is_told_of_https_where_that_is_spoken() {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    let server = home.serve(&["tree", "--anonymous"]);
    let answer = ask(&server, "GET /a.txt HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(body(&answer), "this server speaks HTTPS\n");
    assert!(answer.contains("connection: close"), "{answer}");
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
fn what_was_received_is_counted() {
    let home = Home::new();
    home.write("tree/kept", "");
    home.write("sent/data.bin", vec![5; 300_000]);
    let server = home.serve(&["tree", "--write", "--plain"]);
    home.write("token", server.token());
    let auth = format!("Authorization: Bearer {}", server.token());
    let received = || -> f64 {
        let page = ask(&server, &format!("GET /metrics HTTP/1.1\r\n{auth}"));
        let line = page.lines().find_map(|line| line.strip_prefix("swath_received_bytes_total "));
        line.unwrap_or_else(|| panic!("{page}")).trim().parse().unwrap()
    };
    assert!(received() < 1.0);
    home.run(["cp", "sent/", &server.at("new/"), "--bearer-file", "token"]).code_is(0);
    let of_tree = received();
    assert!((300_000.0..400_000.0).contains(&of_tree), "{of_tree}");
    let put = "PUT /by-put HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 300000";
    let put = format!("{put}\r\n{auth}\r\n\r\n").into_bytes();
    let answer = server.raw(&[put, vec![6; 300_000]].concat());
    assert!(answer.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&answer));
    assert!((received() - of_tree - 300_000.0).abs() < 0.5, "{}", received());
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
    tcp.read_to_end(&mut Vec::new()).unwrap();
    drop(tcp);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn what_everybody_may_write_is_refused_with_the_reason() {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    let ran = home.run(["serve", "tree", "--anonymous", "--write"]);
    ran.code_is(2).says(&["would let everybody fill the disk", "omit --anonymous"]);
    // Several networks may stand in one option.
    let server =
        home.serve(&["tree", "--anonymous", "--plain", "--allow", "192.0.2.0/24,127.0.0.1"]);
    assert!(ask(&server, "GET /a.txt HTTP/1.1").starts_with("HTTP/1.1 200 "));
}

/// Whoever could send files could have the server say that it is unwell, and tell its monitor what he
/// liked; a tree that merely had such a file did so too.
#[test]
fn what_the_server_says_of_itself_no_file_says() {
    let home = Home::new();
    home.write("tree/health", "ill\n");
    home.write("tree/metrics", "swath_answers_total 99\n");
    home.write("tree/sub/health", "below\n");
    let server = home.serve(&["tree", "--plain", "--write"]);
    let auth = format!("Authorization: Bearer {}", server.token());
    let ask = |request: &str| ask(&server, request);
    let with = |request: &str| ask(&format!("{request} HTTP/1.1\r\n{auth}"));
    for request in ["GET /health", "GET /health?at=1", "GET //health", "GET /x/../health"] {
        assert_eq!(body(&ask(&format!("{request} HTTP/1.1"))), "well\n", "{request}");
    }
    assert!(ask("HEAD /health HTTP/1.1").starts_with("HTTP/1.1 200 "));
    assert!(ask("GET /metrics HTTP/1.1").starts_with("HTTP/1.1 401 "));
    assert!(with("GET /metrics").contains("\nswath_answers_total{class="));
    for own in ["health", "metrics"] {
        let put = format!("PUT /{own} HTTP/1.1\r\n{auth}\r\nContent-Length: 0");
        let answer = ask(&put);
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("'?file'"), "{answer}");
    }
    // What is the user's own stays his own: in lists, in trees, and at an address.
    assert!(ask("GET /health?file HTTP/1.1").starts_with("HTTP/1.1 401 "));
    assert_eq!(body(&with("GET /health?file")), "ill\n");
    assert_eq!(body(&with("GET /sub/health")), "below\n");
    assert!(with("GET /").contains("<a href=\"./health?file\">health</a>"));
    assert!(with("GET /sub/").contains("<a href=\"./health\">health</a>"));
    assert!(with("GET /?format=json").contains("\"address\":\"metrics?file\""));
    let digest = format!("HEAD /health?file HTTP/1.1\r\n{auth}\r\nWant-Repr-Digest: sha-256=1");
    assert!(ask(&digest).contains("repr-digest: sha-256="));
    assert!(with("HEAD /health?file").contains("link: </health?file&metalink>; "));
    let metalink = with("GET /health?file&metalink");
    assert!(metalink.contains("/health?file</url>"), "{metalink}");
    home.write("token", server.token());
    home.run(["cp", &server.url, "copy/", "--bearer-file", "token"]).code_is(0);
    assert_eq!(home.read("copy/health"), b"ill\n");
    // A single file too, both ways.
    home.write("health", "new\n");
    let run = |args: &[&str]| home.run([args, &["--bearer-file", "token"]].concat());
    run(&["cp", "health", &server.url]).code_is(0);
    assert_eq!(home.read("tree/health"), b"new\n");
    run(&["cp", &server.at("health"), "one"]).code_is(0);
    assert_eq!(home.read("one"), b"new\n");
    run(&["get", &server.at("health?file"), "-o", "two"]).code_is(0);
    assert_eq!(home.read("two"), b"new\n");
}

#[test]
fn folders_may_have_the_names_of_what_the_server_says() {
    let home = Home::new();
    home.write("health/a.txt", "alpha\n");
    home.write("metrics/b.txt", "beta\n");
    let server = home.serve(&["health", "metrics", "--plain", "--anonymous"]);
    let get = |path: &str| ask(&server, &format!("GET {path} HTTP/1.1"));
    assert_eq!(body(&get("/health")), "well\n");
    assert_eq!(body(&get("/health/a.txt")), "alpha\n");
    assert!(get("/health/").contains("<a href=\"./a.txt\">"));
    assert!(get("/metrics").contains("\nswath_answers_total{class="));
    assert!(get("/").contains("<a href=\"./metrics/\">metrics/</a>"));
    home.run(["cp", &server.at("health/"), "copy/"]).code_is(0);
    assert_eq!(home.read("copy/a.txt"), b"alpha\n");
    home.run(["cp", &server.at("health"), "here"]).code_is(0);
    assert_eq!(home.read("here/health/a.txt"), b"alpha\n");
}

/// `curl -L …/folder?format=json` got a page for people.
#[test]
fn what_was_asked_of_a_folder_is_asked_at_its_address_too() {
    let home = Home::new();
    home.write("tree/a b/file", "x");
    let server = home.serve(&["tree", "--plain", "--anonymous"]);
    for (asked, there) in [
        ("/a%20b", "/a%20b/"),
        ("/a%20b?format=json&sort=%73ize", "/a%20b/?format=json&sort=%73ize"),
        ("http://h/a%20b?", "/a%20b/?"),
    ] {
        let answer = ask(&server, &format!("GET {asked} HTTP/1.1"));
        assert!(answer.starts_with("HTTP/1.1 301 "), "{asked}: {answer}");
        assert!(answer.contains(&format!("\r\nlocation: {there}\r\n")), "{asked}: {answer}");
    }
}

/// Only what was named first counted: `application/json;q=0` was answered with JSON.
#[test]
fn a_folder_comes_in_the_form_that_is_liked_best() {
    let home = Home::new();
    home.write("tree/file", "x");
    let server = home.serve(&["tree", "--plain", "--anonymous"]);
    for (accept, kind) in [
        ("*/*", "text/html"),
        ("APPLICATION/JSON", "application/json"),
        ("text/html;q=0.5, application/json", "application/json"),
        ("application/json;q=0, */*", "text/html"),
        ("text/html;q=0.5\r\nAccept: application/json", "application/json"),
    ] {
        let answer = ask(&server, &format!("GET / HTTP/1.1\r\nAccept: {accept}"));
        assert!(answer.contains(&format!("\r\ncontent-type: {kind}")), "{accept}: {answer}");
    }
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
    let get = |path: &str| ask(&server, &format!("GET {path} HTTP/1.1"));
    assert_eq!(body(&get("/data/a.txt")), "alpha\n");
    assert_eq!(body(&get("/cal%20ib/b.txt")), "beta\n");
    assert_eq!(body(&get("/odd=name/c.txt")), "gamma\n");
    assert!(get("/").contains("<a href=\"./cal%20ib/\">cal ib/</a>"));
    home.run(["cp", &server.at("cal%20ib/"), "copy/"]).code_is(0);
    assert_eq!(home.read("copy/b.txt"), b"beta\n");
    // One alone too.
    let server = home.serve(&["one=x/data", "--plain", "--anonymous"]);
    assert_eq!(body(&ask(&server, "GET /one/a.txt HTTP/1.1")), "alpha\n");
    assert!(ask(&server, "GET /a.txt HTTP/1.1").starts_with("HTTP/1.1 404 "));
}
