//! Folders as pages and as JSON: what they list, what they link to, and how refusals look.

use std::ffi::CString;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::{Answer, Served, Tree};

/// Links and pipes answer 404, and their names on a page led there: `wget -r` ended with 8.
#[test]
fn a_page_leads_to_nothing_that_is_not_served() {
    let tree = Tree::of(&[("tree/a.txt", "alpha\n"), ("tree/sub/b.txt", "beta\n")]);
    tree.link("a.txt", "tree/link");
    tree.link("/etc/<passwd>", "tree/out");
    let pipe = CString::new(tree.path("tree/pipe").to_str().unwrap()).unwrap();
    let pipe_mode = rustix::fs::Mode::from_raw_mode(0o644);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, pipe, kind, pipe_mode, 0).unwrap();
    let server = tree.serve(&["tree"]);
    server.get("/").is(200).has(&[
        "<tr class=\"link\"><td>link -&gt; a.txt</td>",
        "<tr class=\"link\"><td>out -&gt; /etc/&lt;passwd&gt;</td>",
        "<tr class=\"other\"><td>pipe</td>",
        "<a href=\"./a.txt\">",
        "<a href=\"./sub/\">",
    ]);
    for hidden in ["/link", "/out", "/pipe"] {
        server.get(hidden).is(404);
    }
    // Where links are followed they lead on, but for those that lead out.
    let server = tree.plan(&["tree"]).follows_links().start();
    server.get("/").has(&["<a href=\"./link\">link</a>", "<td>out -&gt; "]);
}

/// What a browser shows to somebody says what to do; programs get a line of text as ever.
#[test]
fn pages_lead_up_tell_what_copies_them_and_refusals_are_pages_too() {
    let tree = Tree::of(&[("tree/sub/run10", "a"), ("tree/sub/run9", "b")]);
    let server = tree.serve(&["tree"]);
    let page = server.get("/sub/");
    page.has(&["<a href=\"../\">..</a>", "swath cp '", "/sub/' ./sub/</code>"]);
    assert!(page.text().find(">run9<") < page.text().find(">run10<"), "{page}");
    server.get("/").has_not(&[">..<"]);
    let browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8";
    let closed = tree.plan(&["tree"]).tokens(&["secret"]).start();
    for (server, path, status, words) in [
        (&server, "/gone", 404, "nothing of this name"),
        (&closed, "/", 401, "the password is the token"),
    ] {
        let page = server.ask(&format!("GET {path} HTTP/1.1\r\n{browser}"));
        page.is(status).has(&["<!DOCTYPE html>", words]);
        page.has(&["content-security-policy: default-src 'none'"]);
        let plain = server.ask(&format!("GET {path} HTTP/1.1\r\nAccept: */*"));
        plain.is(status).has(&["content-type: text/plain"]).has_not(&["<!DOCTYPE"]);
    }
}

#[test]
fn sizes_of_folders_are_told_once_somebody_has_copied_them() {
    let tree = Tree::new();
    for (name, bytes) in [("a/sub/x", 3000), ("a/sub/y", 2000), ("a/z/deep/w", 70_000), ("b", 9)] {
        tree.write(&format!("tree/{name}"), vec![7; bytes]);
    }
    let server = tree.serve(&["tree"]);
    let cell = |bytes: &str| format!("<td title=\"when it was last copied\">{bytes}</td>");
    server.get("/").has_not(&["last copied"]);
    // A part of it says nothing of the whole.
    server.get("/?swath=index&include=x").is(200);
    server.get("/").has_not(&["last copied"]);
    server.get("/?swath=index").is(200);
    server.get("/").has(&[&cell("75 kB")]);
    for _ in 0..2 {
        server.get("/a/").has(&[&cell("5.0 kB"), &cell("70 kB")]);
    }
}

#[test]
fn several_folders_are_told_with_their_own_times() {
    let tree = Tree::of(&[("one/a", "a"), ("two/b", "b")]);
    for folder in ["one", "two"] {
        set_modified(&tree, folder, 1_000_000_000);
    }
    let server = tree.serve(&["one", "two"]);
    let json = server.get("/?format=json").text();
    assert_eq!(json.matches("\"mtime\":1000000000.000000000").count(), 2, "{json}");
    let page = server.get("/").text();
    assert_eq!(page.matches("<td>2001-09-09 ").count(), 2, "{page}");
}

/// `curl -L …/folder?format=json` got a page for people.
#[test]
fn what_was_asked_of_a_folder_is_asked_at_its_address_too() {
    let tree = Tree::of(&[("tree/a b/file", "x")]);
    let server = tree.serve(&["tree"]);
    for (asked, there) in [
        ("/a%20b", "/a%20b/"),
        ("/a%20b?format=json&sort=%73ize", "/a%20b/?format=json&sort=%73ize"),
        ("http://h/a%20b?", "/a%20b/?"),
    ] {
        let answer = server.get(asked);
        assert_eq!(answer.is(301).field("location").as_deref(), Some(there), "{asked}");
    }
}

/// Only what was named first counted: `application/json;q=0` was answered with JSON.
#[test]
fn a_folder_comes_in_the_form_that_is_liked_best() {
    let tree = Tree::of(&[("tree/file", "x")]);
    let server = tree.serve(&["tree"]);
    for (accept, kind) in [
        ("*/*", "text/html"),
        ("APPLICATION/JSON", "application/json"),
        ("text/html;q=0.5, application/json", "application/json"),
        ("application/json;q=0, */*", "text/html"),
        ("text/html;q=0.5\r\nAccept: application/json", "application/json"),
    ] {
        let answer = server.ask(&format!("GET / HTTP/1.1\r\nAccept: {accept}"));
        assert!(answer.field("content-type").unwrap().starts_with(kind), "{accept}: {answer}");
    }
}

#[test]
fn folders_may_have_the_names_of_what_the_server_says() {
    let tree = Tree::of(&[("health/a.txt", "alpha\n"), ("metrics/b.txt", "beta\n")]);
    let server = tree.serve(&["health", "metrics"]);
    assert_eq!(server.get("/health").text(), "well\n");
    assert_eq!(server.get("/health/a.txt").text(), "alpha\n");
    server.get("/health/").has(&["<a href=\"./a.txt\">"]);
    server.get("/metrics").has(&["\nswath_answers_total{class="]);
    server.get("/").has(&["<a href=\"./metrics/\">metrics/</a>"]);
}

#[test]
fn folders_are_served_under_the_names_that_they_are_given() {
    // Two of the same name could not be served together.
    let tree = Tree::of(&[
        ("x/data/a.txt", "alpha\n"),
        ("y/data/b.txt", "beta\n"),
        ("odd/c.txt", "gamma\n"),
    ]);
    let server = tree.serve(&["x/data", "cal ib=y/data", "odd=odd"]);
    assert_eq!(server.get("/data/a.txt").text(), "alpha\n");
    assert_eq!(server.get("/cal%20ib/b.txt").text(), "beta\n");
    assert_eq!(server.get("/odd/c.txt").text(), "gamma\n");
    server.get("/").has(&["<a href=\"./cal%20ib/\">cal ib/</a>"]);
    // One alone too.
    let server = tree.serve(&["one=x/data"]);
    assert_eq!(server.get("/one/a.txt").text(), "alpha\n");
    server.get("/a.txt").is(404);
    server.get("/").has(&["<a href=\"./one/\">one/</a>"]);
}

#[test]
fn several_folders_lie_under_their_names() {
    let tree = Tree::of(&[("one/a.txt", "alpha\n"), ("two/b.txt", "beta\n")]);
    let server = tree.serve(&["one", "two"]);
    assert_eq!(server.get("/one/a.txt").text(), "alpha\n");
    assert_eq!(server.get("/two/b.txt").text(), "beta\n");
    server.get("/a.txt").is(404);
    // There is no dataset of all of them together.
    server.get("/?swath=index").is(400).has(&["name one folder"]);
    server.get("/?format=json").has(&["{\"name\":\"one\",\"kind\":\"folder\""]);
}

/// The names in the order of a list.
fn names(answer: &Answer) -> Vec<String> {
    let list: Vec<serde_json::Value> = serde_json::from_slice(&answer.body()).unwrap();
    list.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

fn set_modified(tree: &Tree, name: &str, time_s: u64) {
    let times = std::fs::FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(time_s));
    std::fs::File::open(tree.path(name)).unwrap().set_times(times).unwrap();
}

fn three() -> (Tree, Served) {
    let tree = Tree::of(&[("tree/a", "aaa"), ("tree/b", "b"), ("tree/c", "cc")]);
    for (name, time_s) in [("a", 2_000_000_000), ("b", 1_500_000_000), ("c", 1_000_000_000)] {
        set_modified(&tree, &format!("tree/{name}"), time_s);
    }
    let server = tree.serve(&["tree"]);
    (tree, server)
}

#[test]
fn lists_are_sorted_as_they_are_asked_for() {
    let (_tree, server) = three();
    for (query, expected) in [
        ("", ["a", "b", "c"]),
        ("&sort=name&order=desc", ["c", "b", "a"]),
        ("&sort=size", ["b", "c", "a"]),
        ("&sort=size&order=desc", ["a", "c", "b"]),
        ("&sort=time", ["c", "b", "a"]),
        ("&sort=time&order=desc", ["a", "b", "c"]),
        // What is not known is not in the way.
        ("&sort=colour&order=sideways", ["a", "b", "c"]),
    ] {
        assert_eq!(names(&server.get(&format!("/?format=json{query}"))), expected, "{query}");
    }
}

#[test]
fn a_list_tells_size_and_time_of_each_file() {
    let (tree, server) = three();
    let list: serde_json::Value =
        serde_json::from_slice(&server.get("/?format=json").body()).unwrap();
    assert_eq!(list[0]["size"], 3);
    assert_eq!(list[0]["kind"], "file");
    assert_eq!(list[2]["mtime"], 1_000_000_000.0);
    // A list that was sent holds nothing back: the next one is new.
    tree.write("tree/d", "");
    assert_eq!(names(&server.get("/?format=json")), ["a", "b", "c", "d"]);
}

#[test]
fn names_on_a_page_are_text_and_nothing_else() {
    let tree = Tree::of(&[("tree/<script>alert(1)<", "x"), ("tree/\"quoted\" & 'so'", "y")]);
    let server = tree.serve(&["tree"]);
    let page = server.get("/");
    page.has(&["&lt;script&gt;alert(1)&lt;"]).has_not(&["<script>"]);
    page.has(&["content-security-policy: default-src 'none'"]);
    // Each link leads to its file.
    let text = page.text();
    let links = text.split("href=\"./").skip(1).map(|rest| rest.split('"').next().unwrap());
    let mut bodies: Vec<String> =
        links.map(|link| server.get(&format!("/{link}")).text()).collect();
    bodies.sort();
    assert_eq!(bodies, ["x", "y"]);
    assert_eq!(names(&server.get("/?format=json")).len(), 2);
}

#[test]
fn unfinished_copies_are_in_no_list_and_at_no_address() {
    let tree = Tree::of(&[
        ("tree/a", "a"),
        ("tree/b.swath.part/.swath-stage.swath.part", "x"),
        ("tree/b.swath.part/secret", "x"),
    ]);
    let server = tree.serve(&["tree"]);
    for path in ["/b.swath.part/.swath-stage.swath.part", "/b.swath.part/.swath-stage.swath.part/"]
    {
        server.get(path).is(404);
    }
    let list = server.get("/?format=json").text();
    assert!(!list.contains(".swath-stage"), "{list}");
}
