//! `swath cp` of folders that plain web servers list: a page for each folder, or a bucket.

use std::time::{Duration, SystemTime};

use swath_netlab::faulty::{Behaviour, Content, Server};

use crate::support::Home;

/// Names that addresses have to escape, each with its address.
const TREE: [(&str, &str); 5] = [
    ("a.bin", "/a.bin"),
    ("sub/b & c.bin", "/sub/b%20%26%20c.bin"),
    ("sub/deep/100%.bin", "/sub/deep/100%25.bin"),
    ("sub dir/#1?.bin", "/sub%20dir/%231%3F.bin"),
    ("naïve.txt", "/na%C3%AFve.txt"),
];

fn content(number: u64) -> Content {
    Content::random(number + 1, 40_001 + number)
}

/// A server with a page for each folder of the tree.
fn listing() -> Server {
    let page = |links: &[&str]| {
        let link = |to: &&str| format!("<a href=\"{to}\">{to}</a>\n");
        let links: String = links.iter().map(link).collect();
        Content::bytes(
            format!("<html><pre><a href=\"../\">..</a>\n{links}</pre></html>").into_bytes(),
        )
    };
    let mut server = Server::builder()
        .file_as("/", "text/html", page(&["a.bin", "sub/", "sub%20dir/", "na%C3%AFve.txt"]))
        .file_as("/sub/", "text/html", page(&["b%20%26%20c.bin", "deep/"]))
        .file_as("/sub/deep/", "text/html", page(&["100%25.bin"]))
        .file_as("/sub%20dir/", "text/html", page(&["%231%3F.bin"]))
        .file("/sub", Content::bytes(Vec::new()))
        .behaviour_on("/sub", Behaviour::redirect("/sub/"));
    for (number, (_, address)) in (0..).zip(TREE) {
        server = server.file(address, content(number));
    }
    server.start().unwrap()
}

#[test]
fn what_a_server_lists_is_copied_as_far_as_its_links_go_down() {
    let servers = [listing(), listing()];
    let home = Home::new();
    let [one, other] = servers.each_ref().map(|server| server.url("/"));
    // What can be copied can be listed.
    let listed = home.run(["ls", &one]).code_is(0).out();
    assert_eq!(listed, "a.bin\nnaïve.txt\nsub/\nsub dir/\n");
    let listed = home.run(["ls", "-R", &one]).code_is(0).out();
    assert_eq!(listed.lines().count(), 5, "{listed}");
    let summed = home.run(["du", "--json", &one]).code_is(0).out();
    let last: serde_json::Value = serde_json::from_str(summed.lines().last().unwrap()).unwrap();
    let sums = (&last["files"], &last["folders"], &last["size"]);
    assert_eq!(sums, (&5.into(), &3.into(), &200_015.into()), "{summed}");
    home.run(["cp", "-n", &one, "copy/"]).code_is(0).says(&["5 entries to copy"]);
    assert!(!home.exists("copy"));
    home.run(["cp", &one, &other, "copy/"]).code_is(0).says(&["5 of 5 files", "NOT VERIFIED"]);
    for (number, (name, _)) in (0..).zip(TREE) {
        home.holds(&format!("copy/{name}"), &content(number));
    }
    // Again, only what differs is fetched: by size and time.
    let changed = home.path("copy/a.bin");
    std::fs::write(&changed, b"other").unwrap();
    home.run(["cp", "-n", &one, "copy/"]).code_is(0).says(&["1 entry to copy"]);
    home.run(["cp", &one, "copy/"]).code_is(0).says(&["4 already existed and were not fetched"]);
    home.holds("copy/a.bin", &content(0));
    let touched = std::fs::File::options().write(true).open(&changed).unwrap();
    touched.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    home.run(["cp", &one, "copy/"]).code_is(0).says(&["4 already existed and were not fetched"]);
    home.run(["cp", &one, "copy/"]).code_is(0).says(&["5 already existed and were not fetched"]);
}

#[test]
fn a_folder_without_a_slash_and_a_part_of_a_folder_are_copied_too() {
    let server = listing();
    let home = Home::new();
    home.run(["cp", &server.url("/sub"), "named/"]).code_is(0);
    home.holds("named/sub/deep/100%.bin", &content(2));
    let args = ["cp", &server.url("/"), "part/", "--include", "*.bin", "--exclude", "deep"];
    home.run(args).code_is(0).says(&["3 of 3 files"]);
    assert_eq!(home.names_in("part"), ["a.bin", "sub", "sub dir"]);
    home.run(["cp", &server.url("/a.bin"), "."]).code_is(0);
    home.holds("a.bin", &content(0));
    for option in ["--delete", "--checksum"] {
        let ran = home.run(["cp", &server.url("/"), "no/", option]);
        ran.code_is(2).says(&[option, "a plain web server"]);
    }
    home.run(["cp", &server.url("/nothing/"), "no/"]).code_is(7).says(&["404"]);
    home.run(["cp", &server.url("/"), "no/", "--require-digest"]).code_is(4);
    assert!(!home.path("no/a.bin").exists());
}
