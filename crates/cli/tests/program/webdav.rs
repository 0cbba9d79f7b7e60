//! WebDAV by `swath serve`: requests by curl, and the clients that people use: davix, gfal2 and rclone.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::Home;
use crate::support::serve::{Served, other};
use crate::support::trees::bytes;

/// A server of `store` that takes changes.
fn taking(home: &Home, more: &[&str]) -> Served {
    fs::create_dir_all(home.path("store")).unwrap();
    home.serve(&[&["store", "--write"], more].concat())
}

/// A request by curl: its status, and what follows it.
fn ask(home: &Home, server: &Served, request: &str, path: &str, more: &[&str]) -> (u16, String) {
    let (auth, url) = (format!("Authorization: Bearer {}", server.token()), server.at(path));
    let mut args = vec!["-sSk", "-w", "\n%{http_code}", "--path-as-is", "-X", request];
    if !more.iter().any(|field| field.starts_with("Authorization:")) {
        args.extend(["-H", &auth]);
    }
    for field in more {
        match field.split_once('=').filter(|(option, _)| option.starts_with("--")) {
            Some((option, value)) => args.extend([option, value]),
            None if field.starts_with("--") => args.push(field),
            None => args.extend(["-H", field]),
        }
    }
    args.push(&url);
    let (code, text) = other(&home.work(), "curl", &args).expect("curl is there");
    assert_eq!(code, 0, "{text}");
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

/// The addresses in an answer to `PROPFIND`.
fn hrefs(body: &str) -> Vec<&str> {
    let hrefs = body.split("<D:href>").skip(1);
    hrefs.filter_map(|rest| rest.split("</D:href>").next()).collect()
}

#[test]
fn folders_are_listed() {
    let home = Home::new();
    home.write("tree/a & b.txt", "12345");
    home.write("tree/sub/file", "x");
    home.write("tree/health", "a file of a reserved address");
    fs::write(home.path("tree").join(std::ffi::OsStr::from_bytes(b"\xff\x01<")), "odd").unwrap();
    symlink("sub/file", home.path("tree/link")).unwrap();
    fs::create_dir(home.path("tree/.swath-stage.swath.part")).unwrap();
    let server = home.serve(&["tree"]);
    for version in ["--http1.1", "--http2"] {
        let find = |path: &str, depth: &str| {
            ask(&home, &server, "PROPFIND", path, &[version, &format!("Depth: {depth}")])
        };
        let (status, body) = find("", "1");
        assert_eq!(status, 207, "{body}");
        assert_eq!(hrefs(&body), ["/", "/a%20%26%20b.txt", "/sub/", "/%FF%01%3C"]);
        assert!(body.contains("<D:getcontentlength>5</D:getcontentlength>"), "{body}");
        assert_eq!(body.matches("<D:collection/>").count(), 2, "{body}");
        assert_eq!(hrefs(&find("sub", "0").1), ["/sub/"]);
        assert_eq!(hrefs(&find("sub/", "1").1), ["/sub/", "/sub/file"]);
        assert_eq!(hrefs(&find("sub/file", "1").1), ["/sub/file"]);
        for hidden in ["none", "link", "sub/file/", ".swath-stage.swath.part/", "health"] {
            assert_eq!(find(hidden, "0").0, 404, "{hidden}");
        }
        let (status, body) = find("", "infinity");
        assert!(status == 403 && body.contains("propfind-finite-depth"), "{body}");
        assert_eq!(ask(&home, &server, "PROPFIND", "", &[version]).0, 403, "that is the same");
    }
    // The tag is the one that GET has.
    let (_, body) = ask(&home, &server, "PROPFIND", "sub/file", &["Depth: 0"]);
    let etag = body.split("<D:getetag>&quot;").nth(1).unwrap().split('&').next().unwrap();
    let condition = format!("If-None-Match: \"{etag}\"");
    assert_eq!(ask(&home, &server, "GET", "sub/file", &[&condition]).0, 304);
    let wrong = ask(&home, &server, "PROPFIND", "", &["Depth: 1", "Authorization: Bearer no"]);
    assert_eq!(wrong.0, 401);
    let (status, text) = ask(&home, &server, "OPTIONS", "", &["--dump-header=/dev/stdout", "X: y"]);
    assert!(status == 204 && text.contains("dav: 1\r\n"), "{text}");
    assert!(text.contains("allow: GET, HEAD, OPTIONS, PROPFIND\r\n"), "{text}");
    assert_eq!(ask(&home, &server, "PROPPATCH", "sub/file", &[]).0, 405);
}

#[test]
fn properties_are_told_that_are_asked_for() {
    let home = Home::new();
    home.write("tree/file", "12345");
    let server = home.serve(&["tree", "--plain"]);
    let find = |body: &str| {
        let body = format!("--data-binary={body}");
        ask(&home, &server, "PROPFIND", "", &["Depth: 1", &body])
    };
    let (_, body) = find(
        "<propfind xmlns='DAV:'><prop><getcontentlength/><quota-available-bytes/>\
         <x:size xmlns:x='urn:x'/></prop></propfind>",
    );
    assert_eq!(body.matches("<D:quota-available-bytes>").count(), 1, "{body}");
    assert_eq!(body.matches("<size xmlns=\"urn:x\"/>").count(), 2, "{body}");
    assert!(body.contains("404 Not Found") && !body.contains("getetag"), "{body}");
    assert!(find("<propfind xmlns='DAV:'><propname/></propfind>").1.contains("<D:getetag/>"));
    assert_eq!(find("<propfind").0, 400);
    assert_eq!(find("<!DOCTYPE x><propfind xmlns='DAV:'><allprop/></propfind>").0, 400);
    assert_eq!(find(&" <x>".repeat(20_000)).0, 413);
}

#[test]
fn several_folders_and_large_ones_are_listed() {
    let home = Home::new();
    for n in 0..3_000 {
        home.write(&format!("one/{n:04}"), "");
    }
    home.write("two/file", "x");
    let server = home.serve(&["one", "two", "--write", "--plain"]);
    let find = |path: &str| ask(&home, &server, "PROPFIND", path, &["Depth: 1"]).1;
    assert_eq!(hrefs(&find("")), ["/", "/one/", "/two/"]);
    assert_eq!(hrefs(&find("two")), ["/two/", "/two/file"]);
    let body = find("one/");
    assert!(hrefs(&body).len() == 3_001 && body.ends_with("</D:multistatus>\n"));
    for (request, path, more) in [
        ("DELETE", "two/", "X: y"),
        ("MOVE", "two/", "Destination: /three/"),
        ("MOVE", "two/file", "Destination: /three"),
        ("MKCOL", "three/", "X: y"),
        ("DELETE", "", "X: y"),
    ] {
        assert_eq!(ask(&home, &server, request, path, &[more]).0, 403, "{request} {path}");
    }
    assert_eq!(ask(&home, &server, "MKCOL", "two/", &[]).0, 405);
    home.write("two/sub/.swath-stage.swath.part", "");
    let unfinished = ask(&home, &server, "MOVE", "two/sub", &["Destination: /two/moved"]);
    assert_eq!(unfinished.0, 409, "a copy would go on at its new place");
    let twice = ["Destination: /one/file", "Destination: /one/other"];
    assert_eq!(ask(&home, &server, "MOVE", "two/file", &twice).0, 400);
    assert_eq!(ask(&home, &server, "MOVE", "two/file", &["Destination: /one/file"]).0, 201);
    assert_eq!(home.read("one/file"), b"x");
}

#[test]
fn what_is_changed_is_changed_in_one_step() {
    let home = Home::new();
    let server = taking(&home, &[]);
    for version in ["--http1.1", "--http2"] {
        home.write("store/file", "first");
        home.write("store/other", "other");
        home.write("store/full/deep/er/file", "deep");
        let here = |path: &str| format!("Destination: {}", server.at(path));
        for (request, path, field, status) in [
            ("MKCOL", "new", "X: y", 201),
            ("MKCOL", "new/", "X: y", 405),
            ("MKCOL", "file", "X: y", 405),
            ("MKCOL", "none/new", "X: y", 409),
            ("MKCOL", "more", "--data-binary=body", 415),
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
            let (found, text) = ask(&home, &server, request, path, &[version, field]);
            assert_eq!(found, status, "{request} {path} {field}: {text}");
        }
        assert!(home.names_in("store").is_empty(), "{:?}", home.names_in("store"));
    }
}

#[test]
fn a_name_that_is_taken_is_kept_if_the_client_says_so() {
    let home = Home::new();
    let server = taking(&home, &["--plain"]);
    home.write("store/a", "a");
    home.write("store/b", "b");
    for (request, status) in [("MOVE", 412), ("COPY", 412)] {
        let fields = ["Destination: /b", "Overwrite: F"];
        assert_eq!(ask(&home, &server, request, "a", &fields).0, status, "{request}");
    }
    assert_eq!(home.read("store/b"), b"b");
    assert_eq!(ask(&home, &server, "MOVE", "a", &["Destination: /b", "Overwrite: x"]).0, 400);
    assert_eq!(ask(&home, &server, "MOVE", "a", &["Destination: /c", "Overwrite: F"]).0, 201);
    // Pulled from here as from elsewhere; what lists show follows.
    assert_eq!(ask(&home, &server, "COPY", "d", &[&format!("Source: {}", server.at("b"))]).0, 201);
    assert_eq!(home.read("store/d"), b"b");
    let (_, body) = ask(&home, &server, "GET", "?format=json", &[]);
    assert!(!body.contains("\"a\"") && body.contains("\"c\"") && body.contains("\"d\""), "{body}");
    home.run(["cp", &server.url, "copy/", "--token", server.token()]).code_is(0);
    assert_eq!(home.names_in("copy"), ["b", "c", "d"]);
    let told = format!("--upload-file={}", home.path("store/b").display());
    assert_eq!(ask(&home, &server, "PUT", "e", &[&told, "X-OC-Mtime: 1000000000"]).0, 201);
    let modified = home.path("store/e").metadata().unwrap().modified().unwrap();
    let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(since.as_secs(), 1_000_000_000);
}

#[test]
fn nobody_changes_what_they_may_not() {
    let home = Home::new();
    home.write("outside/kept", "kept");
    home.write("store/file", "kept");
    home.write("store/copy/.swath-stage.swath.part/x", "kept");
    symlink("../outside", home.path("store/out")).unwrap();
    home.write("tokens", "a-token-for-writing-only write\na-token-for-reading-only read\n");
    let reading = home.serve(&["store"]);
    let writing = home.serve(&["store", "--write", "--plain"]);
    let requests = [
        ("MKCOL", "new", "X: y"),
        ("DELETE", "file", "X: y"),
        ("MOVE", "file", "Destination: /new"),
        ("COPY", "file", "Destination: /new"),
    ];
    for (request, path, field) in requests {
        let (status, text) = ask(&home, &reading, request, path, &[field]);
        assert!(status == 403 && text.contains("without --write"), "{request}: {text}");
        let none = [field, "Authorization: Bearer none"];
        assert_eq!(ask(&home, &writing, request, path, &none).0, 401, "{request}");
        // A page of another site that somebody looks at who has logged in.
        let site = [field, "Origin: https://evil.example"];
        assert_eq!(ask(&home, &writing, request, path, &site).0, 403, "{request}");
        let site = [field, "Sec-Fetch-Site: cross-site"];
        assert_eq!(ask(&home, &writing, request, path, &site).0, 403, "{request}");
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
        let (found, text) = ask(&home, &writing, request, path, &[field]);
        assert_eq!(found, status, "{request} {path}: {text}");
    }
    // The link itself may go.
    assert_eq!(ask(&home, &writing, "DELETE", "out", &[]).0, 204);
    let two = home.serve(&["store", "--write", "--plain", "--token-file", "tokens"]);
    for (request, path, field) in requests {
        let mut curl = Command::new("curl");
        let token = "Authorization: Bearer a-token-for-reading-only";
        curl.args(["-s", "-X", request, "-H", token, "-H", field]).arg(two.at(path));
        let text = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        assert!(text.contains("reading alone"), "{request}: {text}");
    }
    assert_eq!(home.read("outside/kept"), b"kept");
    assert_eq!(home.read("store/file"), b"kept");
    assert_eq!(home.names_in("store"), ["copy", "file"]);
}

/// Runs a client of others with what it needs in its environment. `None` where it is not installed.
fn client(home: &Home, server: &Served, program: &str, args: &[&str]) -> Option<(i32, String)> {
    let mut command = Command::new(program);
    command.args(args).current_dir(home.work()).stdin(Stdio::null());
    command.env("HOME", home.work()).env_remove("http_proxy").env_remove("https_proxy");
    // Where several Pythons are, the one of the system has the bindings.
    command.env("GFAL_PYTHONBIN", "/usr/bin/python3").env("BEARER_TOKEN", server.token());
    for (name, value) in
        [("TYPE", "webdav"), ("URL", &server.url), ("BEARER_TOKEN", server.token())]
    {
        command.env(format!("RCLONE_CONFIG_S_{name}"), value);
    }
    let Ok(ran) = command.output() else {
        println!("skipped: {program} is not installed");
        return None;
    };
    let text = [ran.stdout, ran.stderr].concat();
    Some((ran.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned()))
}

#[track_caller]
fn succeeds(home: &Home, server: &Served, program: &str, args: &[&str]) -> Option<String> {
    let (code, text) = client(home, server, program, args)?;
    assert_eq!(code, 0, "{program} {args:?}:\n{text}");
    Some(text)
}

#[test]
fn davix_works() {
    let home = Home::new();
    home.write("file", bytes(3, 3_000_001));
    for options in [&["--plain"][..], &[]] {
        let server = taking(&home, options);
        let field = format!("Authorization: Bearer {}", server.token());
        let run = |program: &str, args: &[&str]| {
            let args = [&["-k", "-H", &field], args].concat();
            succeeds(&home, &server, program, &args)
        };
        let at = |path: &str| server.at(path);
        if run("davix-mkdir", &[&at("d")]).is_none() {
            return;
        }
        run("davix-mkdir", &[&at("d/a%20b")]);
        for _ in 0..2 {
            run("davix-put", &["file", &at("d/a%20b/one")]);
        }
        // Version 0.8.4 exits with 255 after a move that succeeded, without any message.
        let moved = ["-k", "-H", &field, &at("d/a%20b/one"), &at("d/two")];
        let (_, text) = client(&home, &server, "davix-mv", &moved).unwrap();
        assert!(text.is_empty() && home.exists("store/d/two"), "{text}");
        run("davix-cp", &["--copy-mode", "push", &at("d/two"), &at("d/three")]);
        run("davix-cp", &["--copy-mode", "pull", &at("d/two"), &at("d/four")]);
        let listed = run("davix-ls", &["-l", &at("d")]).unwrap();
        let names: Vec<_> =
            listed.lines().filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(names.len(), 4, "{listed}");
        assert!(listed.contains("3000001") && names.contains(&"four"), "{listed}");
        run("davix-get", &[&at("d/four"), "got"]);
        assert!(home.read("got") == bytes(3, 3_000_001));
        run("davix-rm", &[&at("d/four")]);
        run("davix-rm", &["-r", "2", &at("d")]);
        assert!(home.names_in("store").is_empty());
    }
}

#[test]
fn gfal_works() {
    let plugins = "/usr/lib/x86_64-linux-gnu/gfal2-plugins";
    let has = |name: &str| Path::new(plugins).join(format!("libgfal_plugin_{name}.so")).exists();
    if cfg!(target_arch = "x86_64") && !(has("http") && has("file")) {
        println!("skipped: gfal2-plugin-http or gfal2-plugin-file is not installed");
        return;
    }
    let home = Home::new();
    home.write("src/file", bytes(3, 3_000_001));
    home.write("src/sub/small", "small\n");
    let local = |path: &str| format!("file://{}", home.path(path).display());
    for (options, scheme) in [(&["--plain"][..], "dav"), (&["--plain"], "http"), (&[], "davs")] {
        let server = taking(&home, options);
        let at = |path: &str| format!("{scheme}://{}/{path}", server.address());
        let run = |program: &str, args: &[&str]| {
            let args = [&["-D", "HTTP PLUGIN:INSECURE=true"], args].concat();
            succeeds(&home, &server, program, &args)
        };
        if run("gfal-mkdir", &["-p", &at("d/e")]).is_none() {
            return;
        }
        for more in [&[][..], &["-f"], &["-f", "-K", "adler32"]] {
            run("gfal-copy", &[more, &[&local("src/file"), &at("d/file")]].concat());
        }
        run("gfal-copy", &["-r", &local("src/sub"), &at("d/sub")]);
        assert_eq!(home.read("store/d/sub/small"), b"small\n");
        let listed = run("gfal-ls", &["-l", &at("d")]).unwrap();
        assert!(listed.contains(" 3000001 ") && listed.lines().count() == 3, "{listed}");
        run("gfal-rename", &[&at("d/file"), &at("d/moved")]);
        run("gfal-copy", &[&at("d/moved"), &at("d/copied")]);
        assert!(run("gfal-stat", &[&at("d/copied")]).unwrap().contains("3000001"));
        let sum = run("gfal-sum", &[&at("d/copied"), "ADLER32"]).unwrap();
        let own = run("gfal-sum", &[&local("src/file"), "ADLER32"]).unwrap();
        assert_eq!(sum.split_whitespace().last(), own.split_whitespace().last());
        run("gfal-copy", &["-f", &at("d/copied"), &local("back")]);
        assert!(home.read("back") == bytes(3, 3_000_001));
        run("gfal-rm", &[&at("d/copied")]);
        run("gfal-rm", &["-r", &at("d")]);
        assert!(home.names_in("store").is_empty());
    }
}

#[test]
fn rclone_works() {
    let home = Home::new();
    home.write("src/file", bytes(3, 3_000_001));
    home.write("src/sub dir/zwei ü#%&.txt", "small\n");
    home.write("src/sub dir/empty", "");
    for (options, vendor) in [(&["--plain"][..], "other"), (&[], "owncloud")] {
        let server = taking(&home, options);
        let vendor = format!("--webdav-vendor={vendor}");
        let config = format!("--config={}", home.path("rclone.conf").display());
        let run = |args: &[&str]| {
            let own = ["--no-check-certificate", "--retries=1", "-q", &vendor, &config];
            succeeds(&home, &server, "rclone", &[args, &own].concat())
        };
        if run(&["sync", "src", "s:up"]).is_none() {
            return;
        }
        assert_eq!(home.read("store/up/sub dir/zwei ü#%&.txt"), b"small\n");
        assert_eq!(run(&["ls", "s:"]).unwrap().lines().count(), 3);
        home.write("src/more", "more");
        fs::remove_file(home.path("src/sub dir/empty")).unwrap();
        run(&["sync", "src", "s:up"]);
        assert_eq!(home.names_in("store/up"), ["file", "more", "sub dir"]);
        assert_eq!(home.names_in("store/up/sub dir"), ["zwei ü#%&.txt"]);
        run(&["sync", "s:up", "down"]);
        assert!(home.read("down/file") == bytes(3, 3_000_001));
        if vendor.ends_with("owncloud") {
            let modified = |path: &str| home.path(path).metadata().unwrap().modified().unwrap();
            let is_kept = modified("src/file").duration_since(modified("down/file"));
            assert!(is_kept.is_ok_and(|off| off.as_secs() == 0));
        }
        // Copied and moved by the server itself.
        run(&["copy", "s:up", "s:copied"]);
        run(&["moveto", "s:copied/more", "s:copied/sub dir/more"]);
        run(&["move", "s:copied", "s:moved"]);
        run(&["check", "--download", "s:up/sub dir", "s:moved/sub dir", "--one-way"]);
        assert!(home.exists("store/moved/sub dir/more"));
        assert!(run(&["about", "s:"]).unwrap().contains("Free:"));
        run(&["deletefile", "s:moved/file"]);
        run(&["delete", "--rmdirs", "s:moved"]);
        run(&["purge", "s:up"]);
        run(&["rmdirs", "--leave-root", "s:"]);
        assert!(home.names_in("store").is_empty(), "{:?}", home.names_in("store"));
        home.write("src/sub dir/empty", "");
        fs::remove_file(home.path("src/more")).unwrap();
        fs::remove_dir_all(home.path("down")).unwrap();
    }
}
