//! WebDAV: what `PROPFIND` lists, and what `MKCOL`, `MOVE`, `COPY` and `DELETE` change.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::support::{Answer, Served, TOKEN, Tree, auth};

/// One request with [`TOKEN`].
#[track_caller]
fn ask(server: &Served, request: &str, path: &str, fields: &[&str]) -> Answer {
    let fields: String = fields.iter().map(|field| format!("\r\n{field}")).collect();
    server.ask(&format!("{request} /{path} HTTP/1.1\r\n{}{fields}", auth()))
}

/// `PROPFIND` with this body.
#[track_caller]
fn find(server: &Served, path: &str, depth: &str, body: &str) -> Answer {
    let head = format!("PROPFIND /{path} HTTP/1.1\r\n{}\r\nDepth: {depth}", auth());
    server.ask_with(&format!("{head}\r\nContent-Length: {}", body.len()), body.as_bytes())
}

/// The addresses in an answer to `PROPFIND`.
fn hrefs(answer: &Answer) -> Vec<String> {
    let body = answer.text();
    let hrefs = body.split("<D:href>").skip(1);
    hrefs.filter_map(|rest| Some(rest.split("</D:href>").next()?.to_owned())).collect()
}

#[test]
fn folders_are_listed() {
    let tree = Tree::of(&[
        ("tree/a & b.txt", "12345"),
        ("tree/sub/file", "x"),
        ("tree/health", "a file of a reserved address"),
    ]);
    let odd = tree.path("tree").join(OsStr::from_bytes(b"\xff\x01<"));
    std::fs::write(odd, "odd").unwrap();
    tree.link("sub/file", "tree/link");
    tree.folder("tree/.swath-stage.swath.part");
    let server = tree.plan(&["tree"]).tokens(&[TOKEN]).start();
    let whole = find(&server, "", "1", "");
    assert_eq!(hrefs(whole.is(207)), ["/", "/a%20%26%20b.txt", "/sub/", "/%FF%01%3C"]);
    whole.has(&["<D:getcontentlength>5</D:getcontentlength>"]);
    assert_eq!(whole.text().matches("<D:collection/>").count(), 2, "{whole}");
    assert_eq!(hrefs(&find(&server, "sub", "0", "")), ["/sub/"]);
    assert_eq!(hrefs(&find(&server, "sub/", "1", "")), ["/sub/", "/sub/file"]);
    assert_eq!(hrefs(&find(&server, "sub/file", "1", "")), ["/sub/file"]);
    for hidden in ["none", "link", "sub/file/", ".swath-stage.swath.part/", "health"] {
        find(&server, hidden, "0", "").is(404);
    }
    find(&server, "", "infinity", "").is(403).has(&["propfind-finite-depth"]);
    // Without a depth it is the same (RFC 4918, section 9.1).
    ask(&server, "PROPFIND", "", &[]).is(403);
    server.ask("PROPFIND / HTTP/1.1\r\nDepth: 1\r\nAuthorization: Bearer no").is(401);
}

#[test]
fn the_tag_in_a_list_is_the_one_that_get_has() {
    let tree = Tree::of(&[("tree/sub/file", "x")]);
    let server = tree.plan(&["tree"]).tokens(&[TOKEN]).start();
    let body = find(&server, "sub/file", "0", "").text();
    let etag = body.split("<D:getetag>&quot;").nth(1).unwrap().split('&').next().unwrap();
    ask(&server, "GET", "sub/file", &[&format!("If-None-Match: \"{etag}\"")]).is(304);
}

#[test]
fn a_server_says_what_it_can_do() {
    let tree = Tree::of(&[("tree/file", "x")]);
    let reads = "GET, HEAD, OPTIONS, PROPFIND";
    let writes = "GET, HEAD, OPTIONS, PROPFIND, PUT, MKCOL, DELETE, MOVE, COPY";
    for (plan, allowed) in
        [(tree.plan(&["tree"]).tokens(&[TOKEN]), reads), (tree.plan(&["tree"]).writes(), writes)]
    {
        let server = plan.start();
        let options = ask(&server, "OPTIONS", "", &[]);
        assert_eq!(options.is(204).field("dav").as_deref(), Some("1"));
        assert_eq!(options.field("allow").as_deref(), Some(allowed));
        for method in ["PROPPATCH", "LOCK", "TRACE", "PATCH"] {
            let refused = ask(&server, method, "file", &[]);
            assert_eq!(refused.is(405).field("allow").as_deref(), Some(allowed), "{method}");
        }
    }
}

#[test]
fn properties_are_told_that_are_asked_for() {
    let tree = Tree::of(&[("tree/file", "12345")]);
    let server = tree.plan(&["tree"]).tokens(&[TOKEN]).start();
    let find = |body: &str| find(&server, "", "1", body);
    let some = find(
        "<propfind xmlns='DAV:'><prop><getcontentlength/><quota-available-bytes/>\
         <x:size xmlns:x='urn:x'/></prop></propfind>",
    );
    let text = some.text();
    assert_eq!(text.matches("<D:quota-available-bytes>").count(), 1, "{text}");
    assert_eq!(text.matches("<size xmlns=\"urn:x\"/>").count(), 2, "{text}");
    some.has(&["404 Not Found"]).has_not(&["getetag"]);
    find("<propfind xmlns='DAV:'><propname/></propfind>").has(&["<D:getetag/>"]);
    find("<propfind").is(400);
    find("<!DOCTYPE x><propfind xmlns='DAV:'><allprop/></propfind>").is(400);
    find(&" <x>".repeat(20_000)).is(413);
}

#[test]
fn several_folders_and_large_ones_are_listed() {
    let tree = Tree::of(&[("two/file", "x")]);
    for n in 0..1_000 {
        tree.write(&format!("one/{n:04}"), "");
    }
    let server = tree.plan(&["one", "two"]).writes().start();
    assert_eq!(hrefs(&find(&server, "", "1", "")), ["/", "/one/", "/two/"]);
    assert_eq!(hrefs(&find(&server, "two", "1", "")), ["/two/", "/two/file"]);
    let large = find(&server, "one/", "1", "");
    assert!(hrefs(&large).len() == 1_001 && large.text().ends_with("</D:multistatus>\n"));
}

#[test]
fn what_is_served_as_a_folder_of_its_own_stays() {
    let tree = Tree::of(&[("one/a", ""), ("two/file", "x")]);
    let server = tree.plan(&["one", "two"]).writes().start();
    for (request, path, more) in [
        ("DELETE", "two/", "X: y"),
        ("MOVE", "two/", "Destination: /three/"),
        ("MOVE", "two/file", "Destination: /three"),
        ("MKCOL", "three/", "X: y"),
        ("DELETE", "", "X: y"),
    ] {
        ask(&server, request, path, &[more]).is(403);
    }
    ask(&server, "MKCOL", "two/", &[]).is(405);
    tree.write("two/sub/.swath-stage.swath.part", "");
    // A copy would go on at its new place.
    ask(&server, "MOVE", "two/sub", &["Destination: /two/moved"]).is(409);
    let twice = ["Destination: /one/file", "Destination: /one/other"];
    ask(&server, "MOVE", "two/file", &twice).is(400);
    ask(&server, "MOVE", "two/file", &["Destination: /one/file"]).is(201);
    assert_eq!(tree.read("one/file"), b"x");
}

#[test]
fn what_is_changed_is_changed_in_one_step() {
    let tree =
        Tree::of(&[("store/file", "first"), ("store/other", "other"), ("store/full/er/x", "deep")]);
    let server = tree.plan(&["store"]).writes().start();
    let here = |path: &str| format!("Destination: http://h/{path}");
    for (request, path, field, status) in [
        ("MKCOL", "new", "X: y", 201),
        ("MKCOL", "new/", "X: y", 405),
        ("MKCOL", "file", "X: y", 405),
        ("MKCOL", "none/new", "X: y", 409),
        ("MOVE", "file", &here("new/moved"), 201),
        ("MOVE", "file", &here("new/moved"), 404),
        ("MOVE", "new/moved", &here("other"), 204),
        ("MOVE", "other", "Destination: /new/again", 201),
        ("COPY", "new/again", &here("copied"), 201),
        ("COPY", "copied", &here("new/again"), 200),
        ("COPY", "copied", "Destination: /none/copied", 409),
        ("COPY", "full", "Destination: /copy", 403),
        ("MOVE", "copied", "Destination: https://other.example/x", 502),
        ("MOVE", "copied", "X: y", 400),
        ("MOVE", "copied", "Destination: /copied", 403),
        ("MOVE", "copied", "Destination: /none/x", 409),
        ("MOVE", "copied", "Destination: /full", 409),
        ("MOVE", "copied", "Destination: /../x", 400),
        ("MOVE", "copied", "Destination: /health", 403),
        ("MOVE", "copied", "Destination: /x.swath.part", 403),
        ("MOVE", "full", "Destination: /copied", 409),
        ("MOVE", "full", "Destination: /new", 409),
        ("MOVE", "full", "Destination: /full/in", 403),
        ("MOVE", "full/", "Destination: /moved/", 201),
        ("DELETE", "copied", "If-Match: \"other\"", 412),
        ("DELETE", "copied", "If: (<opaquelocktoken:1>)", 412),
        ("DELETE", "copied/", "X: y", 404),
        ("DELETE", "moved", "Depth: 0", 400),
        ("DELETE", "copied", "X: y", 204),
        ("DELETE", "copied", "X: y", 404),
        ("DELETE", "moved/", "X: y", 204),
        ("DELETE", "new", "Depth: infinity", 204),
        ("DELETE", "", "X: y", 403),
    ] {
        let found = ask(&server, request, path, &[field]);
        assert_eq!(found.status(), status, "{request} {path} {field}: {found}");
    }
    let body = format!("MKCOL /more HTTP/1.1\r\n{}\r\nContent-Length: 4", auth());
    server.ask_with(&body, b"body").is(415);
    assert!(tree.names_in("store").is_empty(), "{:?}", tree.names_in("store"));
}

#[test]
fn a_name_that_is_taken_is_kept_if_the_client_says_so() {
    let tree = Tree::of(&[("store/a", "a"), ("store/b", "b")]);
    let server = tree.plan(&["store"]).writes().start();
    for request in ["MOVE", "COPY"] {
        ask(&server, request, "a", &["Destination: /b", "Overwrite: F"]).is(412);
    }
    assert_eq!(tree.read("store/b"), b"b");
    ask(&server, "MOVE", "a", &["Destination: /b", "Overwrite: x"]).is(400);
    ask(&server, "MOVE", "a", &["Destination: /c", "Overwrite: F"]).is(201);
    // Pulled from here as from elsewhere; what lists show follows.
    ask(&server, "COPY", "d", &["Source: http://h/b"]).is(201);
    assert_eq!(tree.read("store/d"), b"b");
    let list = ask(&server, "GET", "?format=json", &[]);
    list.has(&["\"c\"", "\"d\""]).has_not(&["\"a\""]);
    let walk = ask(&server, "GET", "?swath=index", &[]).field("swath-walk").unwrap();
    assert_eq!(ask(&server, "GET", &format!("?swath=data&walk={walk}"), &[]).text(), "bab");
}

#[test]
fn nobody_changes_what_they_may_not() {
    let tree = Tree::of(&[
        ("outside/kept", "kept"),
        ("store/file", "kept"),
        ("store/copy/.swath-stage.swath.part/x", "kept"),
    ]);
    tree.link("../outside", "store/out");
    let reading = tree.plan(&["store"]).tokens(&[&format!("{TOKEN} write")]).start();
    let writing = tree.plan(&["store"]).writes().tokens(&["reads"]).start();
    for (request, path, field) in [
        ("MKCOL", "new", "X: y"),
        ("DELETE", "file", "X: y"),
        ("MOVE", "file", "Destination: /new"),
        ("COPY", "file", "Destination: /new"),
    ] {
        ask(&reading, request, path, &[field]).is(403).has(&["without --write"]);
        let with = |token: &str| {
            let shown = format!("Authorization: Bearer {token}\r\n{field}");
            writing.ask(&format!("{request} /{path} HTTP/1.1\r\n{shown}"))
        };
        with("none").is(401);
        with("reads").is(403).has(&["reading alone"]);
        // A page of another site that somebody looks at who has logged in.
        for site in ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site"] {
            ask(&writing, request, path, &[field, site]).is(403);
        }
    }
    for (request, path, field, status) in [
        ("DELETE", "out/kept", "X: y", 403),
        ("MKCOL", "out/new", "X: y", 403),
        ("MOVE", "file", "Destination: /out/file", 403),
        ("MOVE", "out/kept", "Destination: /kept", 403),
        ("COPY", "out/kept", "Destination: /kept", 403),
        ("DELETE", "copy", "X: y", 409),
        ("DELETE", "copy/.swath-stage.swath.part", "X: y", 404),
        ("MKCOL", "copy/.swath-stage.swath.part/new", "X: y", 403),
        ("DELETE", "../outside/kept", "X: y", 400),
    ] {
        ask(&writing, request, path, &[field]).is(status);
    }
    // The link itself may go.
    ask(&writing, "DELETE", "out", &[]).is(204);
    assert_eq!(tree.read("outside/kept"), b"kept");
    assert_eq!(tree.read("store/file"), b"kept");
    assert_eq!(tree.names_in("store"), ["copy", "file"]);
}
