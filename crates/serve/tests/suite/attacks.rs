//! Clients that mean harm, or are merely odd: ways out of the folder, floods, pages of other sites.

use crate::support::{Answer, Notes, Tree, all_of, auth, head_of};

fn tree() -> Tree {
    let tree = Tree::of(&[("tree/a.txt", "alpha\n"), ("secret", "nobody may see this")]);
    tree.link("../secret", "tree/out");
    tree.link("a.txt", "tree/in");
    tree
}

#[test]
fn nothing_outside_its_folder_is_served() {
    let tree = tree();
    let server = tree.serve(&["tree"]);
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
        "/a.txt/",
        "/a.txt/../../secret",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status() / 100, 4, "{path}: {answer}");
        answer.has_not(&["nobody may see this"]);
    }
    // Links are not followed unasked.
    server.get("/in").is(404);
}

#[test]
fn links_are_followed_as_far_as_the_folder_goes() {
    let tree = tree();
    tree.write("tree/folder/deep", "deep\n");
    tree.link("folder", "tree/inside");
    tree.link("..", "tree/up");
    tree.link("/etc", "tree/elsewhere");
    let server = tree.plan(&["tree"]).follows_links().start();
    assert_eq!(server.get("/in").text(), "alpha\n");
    assert_eq!(server.get("/inside/deep").text(), "deep\n");
    for path in ["/out", "/up/secret", "/up/tree/a.txt", "/elsewhere/passwd"] {
        server.get(path).is(404);
    }
}

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let tree = tree();
    let server = tree.serve(&["tree"]);
    let mut requests = String::new();
    for n in 0..20 {
        let range = format!("bytes={}-{}", n % 6, n % 6);
        requests.push_str(&format!("GET /a.txt HTTP/1.1\r\nHost: h\r\nRange: {range}\r\n\r\n"));
    }
    requests.push_str("GET /none HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8_lossy(&server.raw(requests.as_bytes())).into_owned();
    let bodies: String = answer
        .split("HTTP/1.1 206 ")
        .skip(1)
        .map(|one| one.split_once("\r\n\r\n").unwrap().1.chars().next().unwrap())
        .collect();
    assert_eq!(bodies, "alpha\nalpha\nalpha\nal");
    assert_eq!(answer.matches("HTTP/1.1 404 ").count(), 1, "{answer}");
}

/// Sends bytes as they are; returns the status, which has to be there before the connection ends.
#[track_caller]
fn status(tree: &Tree, requests: &[(&str, u16)]) {
    let server = tree.plan(&["tree"]).writes().start();
    for (request, expected) in requests {
        let answer = Answer(server.raw(request.replace("{auth}", &auth()).as_bytes()));
        let shown = &request[..request.len().min(60)];
        assert_eq!(answer.status(), *expected, "{shown:?}: {answer}");
    }
    server.ask(&format!("GET /a.txt HTTP/1.1\r\n{}", auth())).is(200).has(&["alpha\n"]);
}

#[test]
fn floods_are_refused_and_the_server_stands() {
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "X: y\r\n".repeat(5000));
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(100_000));
    let value = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "a".repeat(100_000));
    status(&tree(), &[(&many, 431), (&long, 431), (&value, 431)]);
}

#[test]
fn rubbish_is_refused_and_the_server_stands() {
    let close = "Connection: close\r\n\r\n";
    status(
        &tree(),
        &[
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}", 400),
            ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 400),
            ("GET a.txt HTTP/1.1\r\nHost: h\r\n\r\n", 400),
            ("GET /a%2 HTTP/1.1\r\nHost: h\r\n\r\n", 400),
            (
                &format!(
                    "POST / HTTP/1.1\r\nHost: h\r\n{{auth}}\r\nContent-Length: 3\r\n{close}abc"
                ),
                405,
            ),
            (&format!("BREW / HTTP/1.1\r\nHost: h\r\n{{auth}}\r\n{close}"), 405),
        ],
    );
}

/// Who reads the end of a body elsewhere than its server does takes the rest for another request.
#[test]
fn a_body_has_one_length_or_none() {
    let head = "PUT /b HTTP/1.1\r\nHost: h\r\n{auth}\r\n";
    let requests: Vec<(String, u16)> = [
        ("Content-Length: 1\r\nTransfer-Encoding: chunked", 400),
        ("Content-Length: 1\r\nContent-Length: 2", 400),
        ("Content-Length: -1", 400),
        ("Content-Length: +1", 400),
        ("Content-Length: 1x", 400),
        ("Content-Length: \u{a0}1", 400),
        ("Transfer-Encoding: chunked, gzip", 501),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 501),
    ]
    .iter()
    .map(|(framing, status)| (format!("{head}{framing}\r\n\r\nx"), *status))
    .collect();
    let tree = tree();
    let requests: Vec<(&str, u16)> =
        requests.iter().map(|(text, status)| (text.as_str(), *status)).collect();
    status(&tree, &requests);
    assert!(!tree.exists("tree/b"));
}

#[test]
fn ranges_by_the_thousand_cost_no_more_than_the_file() {
    let tree = tree();
    let server = tree.serve(&["tree"]);
    let ranges = vec!["0-5"; 2000].join(",");
    let answer = server.ask(&format!("GET /a.txt HTTP/1.1\r\nRange: bytes={ranges}"));
    assert!(answer.0.len() < 16_384, "{} bytes", answer.0.len());
}

#[test]
fn lines_end_with_both_characters_and_values_with_what_http_calls_blank() {
    status(
        &tree(),
        &[
            ("GET /a.txt HTTP/1.1\nHost: h\r\n\r\n", 400),
            ("GET /a.txt HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", 400),
            ("GET /a.txt HTTP/1.1\r\nHost: h\r\n\n", 400),
            ("GET /a.txt HTTP/1.1\r\nHost: h\r\nX : y\r\n\r\n", 400),
            ("GET /a.txt HTTP/1.1\r\nHost: h\r\n folded: y\r\n\r\n", 400),
        ],
    );
}

/// A page of another site had the browser of whoever was logged in write files.
#[test]
fn pages_of_other_sites_write_nothing() {
    let tree = tree();
    let server = tree.plan(&["tree"]).writes().start();
    let put = |more: &str| {
        let head = format!("PUT /b HTTP/1.1\r\n{}\r\nContent-Length: 1{more}", auth());
        server.ask_with(&head, b"x").status()
    };
    for page in [
        "\r\nOrigin: http://evil.example",
        "\r\nOrigin: null",
        "\r\nSec-Fetch-Site: cross-site",
        "\r\nOrigin: http://h\r\nSec-Fetch-Site: same-site",
    ] {
        assert_eq!(put(page), 403, "{page}");
    }
    assert!(!tree.exists("tree/b"));
    for own in ["", "\r\nOrigin: http://h", "\r\nSec-Fetch-Site: same-origin"] {
        assert_eq!(put(own) / 100, 2, "{own}");
    }
}

/// A page that somebody had uploaded ran its scripts as the server's own, with everybody's logins.
#[test]
fn files_are_no_part_of_the_site() {
    let tree = Tree::of(&[("tree/a.html", "<script>x</script>")]);
    let answer = tree.serve(&["tree"]).get("/a.html");
    assert_eq!(answer.field("x-content-type-options").as_deref(), Some("nosniff"));
    let policy = answer.field("content-security-policy");
    assert_eq!(policy.as_deref(), Some("sandbox allow-scripts"));
}

/// A page of any site can have its own name lead to this machine, and then read what is open here.
#[test]
fn pages_that_lead_their_names_to_this_machine_read_nothing() {
    let tree = Tree::of(&[("tree/a", "secret")]);
    let hosts = || Some(vec!["data.example".to_owned(), "here".to_owned()]);
    let get = |server: &crate::support::Served, host: &str, more: &str| {
        let request = format!("GET /a HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n");
        Answer(server.raw(request.as_bytes()))
    };
    let open = tree.plan(&["tree"]).with(|site| site.hosts = hosts()).start();
    for strange in ["evil.example", "evil.example:8470", "127.0.0.1.evil.example"] {
        get(&open, strange, "").is(421).has_not(&["secret"]);
    }
    for own in ["127.0.0.1", "localhost:8470", "here", "data.example", "[::1]:1"] {
        assert_eq!(get(&open, own, "").text(), "secret", "{own}");
    }
    // Whoever knows a token may ask by any name.
    let closed = tree.plan(&["tree"]).tokens(&["word"]).with(|site| site.hosts = hosts()).start();
    let shown = "Authorization: Bearer word\r\n";
    assert_eq!(get(&closed, "evil.example", shown).text(), "secret");
}

#[test]
fn the_log_holds_no_login_no_token_and_no_query_of_a_page() {
    let (tree, notes) = (tree(), Notes::default());
    let server = tree.plan(&["tree"]).noting(&notes).start();
    server.get("http://me:hidden@h/a.txt").is(200);
    server.ask("GET /a.txt HTTP/1.1\r\nReferer: http://page.example/p?key=hidden").is(200);
    server.get("/a.txt?authz=Bearer%20hidden&ACCESS_TOKEN=hidden&x=y").is(200);
    let notes = notes.wait_for(3);
    assert!(notes[1].contains("page.example") && notes[2].contains("x=y"), "{notes:?}");
    assert!(!notes.join("\n").contains("hidden"), "{notes:?}");
}

#[test]
fn answers_are_noted_with_their_sizes() {
    let (tree, notes) = (tree(), Notes::default());
    let server = tree.plan(&["tree"]).noting(&notes).start();
    server.ask("GET /a.txt HTTP/1.1\r\nUser-Agent: curl/8").is(200);
    server.ask("GET /a.txt HTTP/1.1\r\nRange: bytes=1-2").is(206);
    server.ask("HEAD /a.txt HTTP/1.1").is(200);
    Answer(server.raw(b"GET /none HTTP/1.0\r\n\r\n")).is(404);
    let notes = notes.wait_for(4);
    assert_eq!(notes[0], "GET /a.txt HTTP/1.1 200 6 None Some(\"curl/8\")");
    assert_eq!(notes[1], "GET /a.txt HTTP/1.1 206 2 None None");
    assert_eq!(notes[2], "HEAD /a.txt HTTP/1.1 200 0 None None");
    assert!(notes[3].starts_with("GET /none HTTP/1.0 404 "), "{notes:?}");
}

/// Whoever announced a body and sent none was answered after 15 s, without a token too.
#[test]
fn who_may_not_send_is_told_so_before_the_body_comes() {
    let tree = tree();
    let server = tree.plan(&["tree"]).tokens(&["secret"]).start();
    let request = "PUT /b HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n";
    // The body never comes: a server that waited for it would answer 408.
    let answer = Answer(all_of(&mut server.hold(request)));
    assert_eq!(answer.is(401).field("connection").as_deref(), Some("close"));
}

#[test]
fn what_a_client_calls_a_field_it_cannot_add_to_an_answer() {
    let tree = Tree::of(&[("tree/a b/file", "x")]);
    let server = tree.serve(&["tree"]);
    // The query comes back in the address to which a folder is moved.
    let answer = server.get("/a%20b?x=%0d%0aset-cookie:%20evil");
    assert_eq!(answer.is(301).field("set-cookie"), None, "{answer}");
    answer.has_not(&["\r\nset-cookie"]);
}

#[test]
fn a_connection_is_kept_as_its_client_wants() {
    let tree = tree();
    let server = tree.serve(&["tree"]);
    for (request, expected) in [
        ("GET /a.txt HTTP/1.1\r\nHost: h\r\n", "keep-alive"),
        ("GET /a.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n", "close"),
        ("GET /a.txt HTTP/1.0\r\n", "close"),
        ("GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n", "keep-alive"),
    ] {
        let mut tcp = server.hold(&format!("{request}\r\n"));
        let head = head_of(&mut tcp);
        assert!(head.contains(&format!("\r\nconnection: {expected}\r\n")), "{request}: {head}");
    }
}

/// Digests of two large files that clients asked for and left kept all others waiting for theirs,
/// until those files had been read to their ends.
#[test]
fn digests_that_nobody_waits_for_hold_up_nobody() {
    let tree = Tree::of(&[("tree/small", "small")]);
    for large in ["one", "two", "three"] {
        // Hours of work, and nothing on the disk.
        tree.hollow(&format!("tree/{large}"), 4 << 40);
    }
    tree.write("tree/middle", vec![1; 20 << 20]);
    let server = tree.serve(&["tree"]);
    let head = |path: &str| {
        format!("HEAD /{path} HTTP/1.1\r\nHost: h\r\nWant-Repr-Digest: sha-256=1\r\n\r\n")
    };
    let held = ["one", "two", "three"].map(|large| server.hold(&head(large)));
    // A small digest waits for no turn.
    let answer = head_of(&mut server.hold(&head("small")));
    assert!(answer.contains("repr-digest: sha-256="), "{answer:?}");
    drop(held);
    let answer = head_of(&mut server.hold(&head("middle")));
    assert!(answer.contains("repr-digest: sha-256="), "{answer:?}");
}
