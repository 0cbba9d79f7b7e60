//! `swath get -i` and Metalinks of several files: where lists come from, what is there already,
//! who counts as failed, and what programs are told of it.

use std::io::Write as _;

use crate::support::net::{honest, server, slow, url};
use crate::support::{Home, Ran, until};
use swath_netlab::faulty::{Algorithm, Behaviour, Content, MetalinkFile, Server, metalink};

fn events(ran: &Ran, name: &str) -> Vec<serde_json::Value> {
    ran.out()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .filter(|event: &serde_json::Value| event["event"] == name)
        .collect()
}

fn three() -> (Vec<Content>, Server) {
    let contents: Vec<Content> = (1..4).map(|seed| Content::random(seed, 100_000 + seed)).collect();
    let mut builder = Server::builder();
    for (at, content) in contents.iter().enumerate() {
        builder = builder.file(&format!("/{at}"), content.clone());
    }
    (contents, builder.start().unwrap())
}

/// Such a list was read twice, the first time only to count it, and was empty the second time.
#[test]
fn a_list_from_a_pipe_is_fetched() {
    let (contents, source) = three();
    let list: String = (0..3).map(|at| format!("{}\n", source.url(&format!("/{at}")))).collect();
    let home = Home::new();
    home.swath(["get", "-i", "/dev/stdin", "-d", "one"])
        .input(list.as_str())
        .run()
        .code_is(0)
        .says(&["/dev/stdin: fetching files as they are found", "/dev/stdin: 3 of 3 files in"]);
    home.swath(["get", "-i", "-", "-d", "two"])
        .input(list.as_str())
        .run()
        .code_is(0)
        .says(&["standard input: 3 of 3 files in"])
        .never_says(&["0 files"]);
    let fifo = home.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let running = home.swath(["get", "-i", "fifo", "-d", "three"]).start();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&fifo)
        .unwrap()
        .write_all(list.as_bytes())
        .unwrap();
    running.wait().code_is(0);
    for folder in ["one", "two", "three"] {
        for (at, content) in contents.iter().enumerate() {
            home.holds(&format!("{folder}/{at}"), content);
        }
    }
}

#[test]
fn the_end_is_not_held_up_by_a_list_that_does_not_come() {
    let home = Home::new();
    let fifo = home.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let silent =
        server(&Content::random(1, 10), Behaviour::Silent { after: std::time::Duration::ZERO });
    let held = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    for args in [
        vec!["get".to_owned(), "-i".to_owned(), "fifo".to_owned()],
        vec!["get".to_owned(), silent.url("/x.meta4")],
    ] {
        let mut swath = home.swath(&args).env("SWATH_LOG", "swath=debug");
        swath.command().stderr(std::process::Stdio::piped());
        let running = swath.start();
        // The handler is there when its signal is caught in the process's status.
        let caught = || {
            let status =
                std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (libc_sigint() - 1)) != 0
        };
        until("the signal is caught", caught);
        running.signal(libc_sigint());
        running.wait().code_is(130).says(&["stopped"]);
    }
    drop(held);
}

fn libc_sigint() -> i32 {
    libc::SIGINT
}

/// What had its name used to count as done, whatever it held.
#[test]
fn what_is_there_is_held_against_what_is_known() {
    let (contents, source) = three();
    let names = ["a", "b", "c"];
    let urls: Vec<[String; 1]> = (0..3).map(|at| [source.url(&format!("/{at}"))]).collect();
    let files: Vec<MetalinkFile<'_>> = (0..3)
        .map(|at| MetalinkFile {
            name: names[at],
            content: &contents[at],
            urls: &urls[at],
            digests: &[Algorithm::Sha256],
            piece_bytes: None,
        })
        .collect();
    let home = Home::new();
    home.write("m.meta4", metalink(&files));
    home.write("out/a", "wrong\n");
    let mut changed = contents[1].read(0, contents[1].size_bytes());
    changed[777] ^= 1;
    home.write("out/b", &changed);
    let get = ["get", "m.meta4", "-d", "out"];
    home.run(get)
        .code_is(8)
        .says(&[
            "1 of 3 files",
            "2 files failed: ",
            "out/a is another file: it has 6 bytes, 100001 are expected",
            "out/b is another file: its sha-256 is",
        ])
        .never_says(&["out/a: out/a"]);
    home.holds("out/c", &contents[2]);
    assert_eq!(home.read("out/a"), b"wrong\n", "it was left alone");
    home.run(get.into_iter().chain(["--overwrite"])).code_is(0);
    home.run(get)
        .code_is(0)
        .says(&["3 already existed and were not fetched, with the expected digests"]);
    let ran = home.run(get.into_iter().chain(["--json"]));
    ran.code_is(0);
    assert_eq!(events(&ran, "present").len(), 3);
    assert_eq!(events(&ran, "present")[0]["same"], "digest");
    // A list knows a digest where it says one.
    home.write("out/a", "wrong\n");
    let list = format!(
        "{}\n  out=a\n  checksum=sha-256={}\n",
        urls[0][0],
        contents[0].digest_hex(Algorithm::Sha256)
    );
    home.write("list.txt", list);
    home.run(["get", "-i", "list.txt", "-d", "out"]).code_is(5).says(&["is another file"]);
}

#[test]
fn of_two_files_of_one_name_the_second_is_refused() {
    let (contents, source) = three();
    let list = format!(
        "{}\n  out=x\n{}\n  out=x\n{}\n  out=x/y\n",
        source.url("/0"),
        source.url("/1"),
        source.url("/2")
    );
    let home = Home::new();
    home.write("../list.txt", list);
    home.run(["get", "-i", "../list.txt"])
        .code_is(8)
        .says(&[
            "1 of 3 files",
            "2 files failed: ",
            "x: an earlier file of this list has the same name",
            "x/y: its folder has the name of another file",
        ])
        .never_says(&["another swath"]);
    home.holds_only("x", &contents[0]);
}

/// Each failure was counted and told twice, and lines that make no sense were no event at all.
#[test]
fn programs_hear_of_every_file_once() {
    let (_, source) = three();
    let list = format!(
        "{}\nnot a url\n{}\n  out=../up\n{}\n{}\tftp://b.example/2\n  out=z\n  split=5\n",
        source.url("/0"),
        source.url("/1"),
        source.url("/gone"),
        source.url("/2"),
    );
    let home = Home::new();
    home.write("list.txt", list);
    std::fs::create_dir_all(home.path("out/0")).unwrap();
    let ran = home.run(["get", "-i", "list.txt", "-d", "out", "--json"]);
    ran.code_is(8);
    let failed = events(&ran, "failed");
    assert_eq!(failed.len(), 4, "{ran}");
    let mut numbers: Vec<u64> =
        failed.iter().map(|event| event["file"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3], "{ran}");
    assert!(failed.iter().all(|event| event["error"].is_string() && event["kept_bytes"] == 0));
    let end = &events(&ran, "list_finished")[0];
    assert_eq!(
        (&end["files"], &end["complete"], &end["failed"]),
        (&5.into(), &1.into(), &4.into())
    );
    let notes: Vec<String> =
        events(&ran, "note").iter().map(|note| note["text"].as_str().unwrap().to_owned()).collect();
    assert!(
        notes.iter().any(|note| note.contains(
            "the list: ignoring the unknown option 'split' (first for the file of line "
        )),
        "{notes:?}"
    );
    assert!(
        notes.iter().any(|note| note.contains("ignoring the mirror ftp://b.example/2")),
        "{notes:?}"
    );
}

#[test]
fn what_was_stopped_has_not_failed() {
    let content = Content::random(1, 40_000_000);
    let source = slow(&content, 2_000_000);
    let home = Home::new();
    home.write("../list.txt", format!("{}\n", url(&source)));
    let running = home.swath(["get", "-i", "../list.txt"]).start();
    until("some has come", || source.sent_bytes() >= 500_000);
    running.signal(libc::SIGINT);
    running
        .wait()
        .code_is(130)
        .says(&["0 of 1 file in", "1 file stopped: the same command resumes"])
        .never_says(&["failed"]);
}

#[test]
fn headers_of_a_list_go_with_their_file_alone() {
    let content = Content::random(1, 1000);
    let (one, two) = (honest(&content), honest(&content));
    let list = format!(
        "{}\n  out=one\n  header=X-Key: first\n  header=X-Also: yes\n{}\n  out=two\n",
        url(&one),
        url(&two)
    );
    let home = Home::new();
    home.write("../list.txt", list);
    home.run(["get", "-i", "../list.txt", "--header", "X-Key: all"]).code_is(0);
    let all = |server: &Server, name: &str, value: Option<&str>| {
        server.log().records.iter().all(|record| record.header(name) == value)
    };
    assert!(all(&one, "x-key", Some("first")) && all(&one, "x-also", Some("yes")));
    assert!(all(&two, "x-key", Some("all")) && all(&two, "x-also", None));
}

#[test]
fn a_list_has_a_report_too() {
    let (_, source) = three();
    let home = Home::new();
    home.write("list.txt", format!("{}\n{}\n", source.url("/0"), source.url("/gone")));
    home.run(["get", "-i", "list.txt", "-d", "out", "--report", "r.html"])
        .code_is(8)
        .says(&["report: r.html"]);
    let page = String::from_utf8(home.read("r.html")).unwrap();
    assert!(page.contains("list.txt") && page.contains("1 of 2 files failed"), "{page}");
}
