//! `PUT` of single files to `swath serve --write`, as curl sends them.

use std::fs;

use crate::support::Home;
use crate::support::serve::{Served, other};
use crate::support::trees::bytes;

/// A server of `store` that takes files.
fn taking(home: &Home, more: &[&str]) -> Served {
    fs::create_dir_all(home.path("store")).unwrap();
    home.serve(&[&["store", "--write"], more].concat())
}

/// Send the file `file` by curl; answers the status. `None` without curl.
fn curl(home: &Home, server: &Served, path: &str, more: &[&str]) -> Option<String> {
    let (token, url) = (format!("Authorization: Bearer {}", server.token()), server.at(path));
    let mut args = vec!["-sSk", "-o", "/dev/null", "-w", "%{http_code}", "-H", &token];
    args.extend(["-T", "file"]);
    args.extend(more);
    args.push(&url);
    Some(other(&home.path(""), "curl", &args)?.1)
}

#[test]
fn curl_sends_a_file_and_sends_it_again() {
    let home = Home::new();
    for (server, versions) in [
        (taking(&home, &["--plain"]), &["--http1.1"][..]),
        (taking(&home, &[]), &["--http1.1", "--http2"]),
    ] {
        for version in versions {
            for (size, more) in [
                (3_000_001, &[][..]),
                (700_000, &["-H", "Transfer-Encoding: chunked"]),
                (0, &[]),
                (9, &["-H", "Expect: 100-continue"]),
            ] {
                home.write("file", bytes(5, size));
                for expected in ["201", "204"] {
                    let more = [&[*version], more].concat();
                    let Some(status) = curl(&home, &server, "new.bin", &more) else { return };
                    assert_eq!(status, expected, "{more:?}");
                    assert_eq!(home.read("store/new.bin"), bytes(5, size), "{more:?}");
                }
                fs::remove_file(home.path("store/new.bin")).unwrap();
            }
        }
    }
    assert!(home.names_in("store").is_empty());
}

#[test]
fn a_refusal_reaches_who_still_sends() {
    // With HTTP/2 the stream was reset as soon as the answer stood, because nobody read the body:
    // in every second run curl knew only "Stream error in the HTTP/2 framing layer", or had a part
    // of the answer.
    let home = Home::new();
    let server = taking(&home, &[]);
    fs::create_dir(home.path("store/folder")).unwrap();
    home.write("store/there", "x");
    home.write("small", "four");
    home.write("middle", bytes(1, 100_000));
    home.write("big", bytes(2, 30 << 20));
    let (right, url) = (format!("Authorization: Bearer {}", server.token()), &server.url);
    let (wrong, new) = ("Authorization: Bearer bad", "If-None-Match: *");
    let mut refusals = Vec::new();
    for file in ["small", "middle", "big"] {
        refusals.push((file, "401", "new", wrong, "X: y"));
        refusals.push((file, "412", "there", right.as_str(), new));
        refusals.push((file, "409", "folder", right.as_str(), "X: y"));
        refusals.push((file, "400", "new", right.as_str(), "Content-Range: bytes 0-0/1"));
    }
    // More than there is room for, though there is nothing in it.
    let huge = fs::File::create(home.path("huge")).unwrap();
    if huge.set_len(15 << 40).is_ok() {
        refusals.push(("huge", "507", "new", right.as_str(), "X: y"));
    }
    for (file, status, path, token, more) in refusals {
        let to = format!("{url}{path}");
        let args = ["-sSk", "--http2", "--max-time", "30", "-w", "%{http_code}", "-T", file];
        let args = [&args[..], &["-H", token, "-H", more, "-H", "Expect:", &to]].concat();
        for _ in 0..20 {
            let Some((code, said)) = other(&home.path(""), "curl", &args) else { return };
            assert_eq!(code, 0, "{file} {path}: {said}");
            assert!(said.ends_with(&format!("\n{status}")), "{file} {path}: {said}");
        }
    }
    assert_eq!(home.names_in("store"), ["folder", "there"]);
}
