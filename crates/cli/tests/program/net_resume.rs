//! A second run meets other mirrors, other versions, other digests: what an earlier run left is
//! taken over where it is of the same file, and neither mixed into another nor thrown away.

use std::time::Duration;

use crate::support::net::{FILE, building, honest, server, sha256, url};
use crate::support::{Home, Ran};
use swath_netlab::faulty::{Behaviour, Content, MetalinkFile, RangeLie, Server, metalink};

const SIZE: u64 = 8_000_001;

/// Run until the only mirror has died half-way.
fn begun(home: &Home, content: &Content, more: &[&str]) -> Ran {
    let source = dying(content);
    let ran = home.run([&["get", &url(&source), "--timeout", "5s"], more].concat());
    ran.code_is(3).says(&[" in data.bin.swath.part: "]);
    ran
}

fn dying(content: &Content) -> Server {
    building(content)
        .behaviour(Behaviour::rate(6_000_000))
        .behaviour(Behaviour::die_after(5_000_000))
        .start()
        .unwrap()
}

/// A later version of the file, with another time and another tag.
fn newer(content: &Content) -> Server {
    let server = honest(content);
    server.replace(FILE, content.clone());
    server
}

fn sent(server: &Server) -> u64 {
    server.log().sent_bytes(FILE)
}

/// The second run named another mirror, whose file had changed: the first half of the old file
/// and the second half of the new one got the final name, without a word.
#[test]
fn an_old_and_a_new_version_are_not_joined_though_the_mirror_is_another() {
    let (old, new) = (Content::random(6, SIZE), Content::random(66, SIZE));
    let home = Home::new();
    begun(&home, &old, &[]);
    let ran = home.run(["get", &url(&newer(&new))]);
    ran.code_is(0).says(&["warning: starting again", "another content"]);
    home.holds_only("data.bin", &new);
}

#[test]
fn the_same_version_from_another_mirror_goes_on_whatever_its_tags() {
    let content = Content::random(6, SIZE);
    let home = Home::new();
    begun(&home, &content, &[]);
    let other = server(&content, Behaviour::Etag("\"of-its-own\"".into()));
    home.run(["get", &url(&other)]).code_is(0).says(&["from an earlier run"]);
    home.holds_only("data.bin", &content);
    assert!(sent(&other) < 6_000_000, "{} bytes were sent", sent(&other));
}

#[test]
fn what_nothing_proves_to_be_of_the_same_file_is_not_gone_on_with() {
    let content = Content::random(6, SIZE);
    let digest = sha256(&content);
    for digest in [None, Some(&digest)] {
        let home = Home::new();
        begun(&home, &content, &[]);
        let silent = server(&content, Behaviour::NoValidators);
        let mut args = vec!["get".to_owned(), url(&silent)];
        args.extend(digest.iter().flat_map(|digest| ["--digest".to_owned(), digest.to_string()]));
        let ran = home.run(args);
        ran.code_is(0);
        home.holds_only("data.bin", &content);
        match digest {
            None => ran.says(&["starting again", "nothing proves", "a digest would"]),
            Some(_) => ran.says(&["from an earlier run"]),
        };
        assert_eq!(sent(&silent) < 6_000_000, digest.is_some(), "{ran}");
    }
}

/// A re-released dataset: the same name and size, pieces of another length. The pieces that the
/// first Metalink had verified counted as verified for the second.
#[test]
fn what_one_metalink_verified_another_one_verifies_again() {
    let (old, new) = (Content::random(6, SIZE), Content::random(66, SIZE));
    let home = Home::new();
    let document = |content: &Content, server: &Server, piece_bytes| {
        let urls = [url(server)];
        metalink(&[MetalinkFile {
            name: "data.bin",
            content,
            urls: &urls,
            digests: &[],
            piece_bytes: Some(piece_bytes),
        }])
    };
    let first = dying(&old);
    home.write("../old.meta4", document(&old, &first, 262_144));
    home.run(["get", "../old.meta4", "--timeout", "5s"]).code_is(3).says(&["kept "]);
    let second = newer(&new);
    home.write("../new.meta4", document(&new, &second, 524_288));
    home.run(["get", "../new.meta4"]).code_is(0);
    home.holds_only("data.bin", &new);
}

/// Whoever answered first decided: a mirror of another size, or a portal's page, cost all that an
/// earlier run had left, though the digest told that it was of the file wanted.
#[test]
fn a_wrong_mirror_that_answers_first_costs_nothing_of_what_is_left() {
    let content = Content::random(6, SIZE);
    let digest = sha256(&content);
    for digest in [&["--digest", digest.as_str()][..], &[]] {
        for page in [false, true] {
            let home = Home::new();
            begun(&home, &content, digest);
            let wrong = match page {
                true => server(&content, Behaviour::HtmlPage),
                false => honest(&Content::random(7, SIZE + 1_000_000)),
            };
            let right = honest(&content);
            right.add(Behaviour::FirstByteDelay(Duration::from_millis(400)));
            let ran = home.run([&["get", &url(&wrong), &url(&right)], digest].concat());
            ran.code_is(0).says(&["from an earlier run"]).never_says(&["starting again"]);
            home.holds_only("data.bin", &content);
            assert!(sent(&right) < 6_000_000, "{} bytes were sent", sent(&right));
        }
    }
}

#[test]
fn where_only_wrong_mirrors_answer_what_a_digest_vouches_for_is_kept() {
    let content = Content::random(6, SIZE);
    let digest = sha256(&content);
    let home = Home::new();
    begun(&home, &content, &["--digest", &digest]);
    let wrong = honest(&Content::random(7, SIZE + 1_000_000));
    home.run(["get", &url(&wrong), "--digest", &digest]).code_is(3).says(&[
        "an earlier run began another version",
        "--no-resume",
        " in data.bin.swath.part: ",
    ]);
    let right = honest(&content);
    home.run(["get", &url(&right), "--digest", &digest]).code_is(0).says(&["from an earlier run"]);
    home.holds_only("data.bin", &content);
}

#[test]
fn with_no_mirror_up_what_is_kept_is_told_all_the_same() {
    let content = Content::random(6, SIZE);
    let home = Home::new();
    begun(&home, &content, &[]);
    let gone = honest(&content);
    gone.die();
    home.run(["get", &url(&gone), "--timeout", "5s"])
        .code_is(3)
        .says(&[" in data.bin.swath.part: "]);
}

/// A mistyped digest used to cost the whole download.
#[test]
fn a_wrong_digest_costs_nothing_once_it_is_put_right() {
    let content = Content::random(6, SIZE);
    let wrong = format!("sha-256:{}", "0".repeat(64));
    for mirrors in 1..=2 {
        let home = Home::new();
        let servers: Vec<Server> = (0..mirrors).map(|_| honest(&content)).collect();
        let mut args = vec!["get".to_owned()];
        args.extend(servers.iter().map(url));
        args.push("--digest".to_owned());
        let with = |digest: &str| [&args[..], &[digest.to_owned()]].concat();
        for _ in 0..2 {
            home.run(with(&wrong)).code_is(4).says(&[
                "the digest does not match",
                "kept 8.00 MB in data.bin.swath.part",
                "with the right --digest",
                "--no-resume",
            ]);
            home.lacks("data.bin");
        }
        servers.iter().for_each(|server| server.clear_log());
        home.run(with(&sha256(&content))).code_is(0).says(&["from an earlier run"]);
        home.holds_only("data.bin", &content);
        let sent: u64 = servers.iter().map(sent).sum();
        // The first request is made before it is known that nothing is missing.
        assert!(sent < 6_000_000, "{sent} bytes were sent");
    }
}

#[test]
fn what_a_liar_delivered_another_mirror_puts_right_in_the_next_run() {
    let content = Content::random(6, SIZE);
    let digest = sha256(&content);
    let home = Home::new();
    let liar = server(&content, Behaviour::CorruptByte { at: 3_000_000 });
    home.run(["get", &url(&liar), "--digest", &digest]).code_is(4).says(&["kept "]);
    let right = honest(&content);
    home.run(["get", &url(&right), "--digest", &digest])
        .code_is(0)
        .says(&[&format!("{} delivered", url(&liar)), "replaced, and the digest is right"]);
    home.holds_only("data.bin", &content);
}

/// One mirror that claims more bytes than the disk has, or than any file has, and answers first.
#[test]
fn an_absurd_size_leaves_its_teller_out_and_not_the_file() {
    let content = Content::random(6, SIZE);
    let digest = sha256(&content);
    for by in [1 << 60, i64::MAX - SIZE as i64] {
        for digest in [&["--digest", digest.as_str()][..], &[]] {
            let home = Home::new();
            let liar = server(&content, Behaviour::ContentRange(RangeLie::Total(by)));
            let others = [honest(&content), honest(&content)];
            for other in &others {
                other.add(Behaviour::FirstByteDelay(Duration::from_millis(300)));
            }
            let urls = [url(&liar), url(&others[0]), url(&others[1])];
            let mut args = vec!["get"];
            args.extend(urls.iter().map(String::as_str));
            args.extend(digest);
            home.run(args).code_is(0);
            home.holds_only("data.bin", &content);
            // Alone it is told for what it is.
            let ran = home.run(["get", &urls[0], "-o", "alone"]);
            assert!(matches!(ran.code(), 5 | 7), "{ran}");
            assert_eq!(home.names(), ["data.bin"]);
        }
    }
}

#[test]
fn a_stream_of_unknown_length_begins_again_when_it_was_stopped() {
    // It was told to go on from what was kept, and refused to, for ever.
    let content = Content::random(7, 4_000_037);
    let source = building(&content)
        .behaviour(Behaviour::NoRanges)
        .behaviour(Behaviour::Chunked { chunk_bytes: 10_000 })
        .behaviour(Behaviour::rate(4_000_000))
        .start()
        .unwrap();
    let home = Home::new();
    let args = ["get", &url(&source), "--digest", &sha256(&content)];
    let running = home.swath(args).start();
    let part = home.path("data.bin.swath.part");
    let began = std::time::Instant::now();
    while std::fs::metadata(&part).map_or(0, |part| part.len()) < 500_000 {
        assert!(began.elapsed() < Duration::from_secs(30), "nothing was written");
        std::thread::sleep(Duration::from_millis(5));
    }
    running.signal(libc::SIGINT);
    running.wait().code_is(130);
    home.run(args).code_is(0);
    home.holds_only("data.bin", &content);
}
