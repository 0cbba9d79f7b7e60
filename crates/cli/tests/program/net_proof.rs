//! `swath get` and what proves a file: digests, pieces, those that are wrong themselves; and the
//! memory that proving takes.

use crate::support::Home;
use crate::support::net::{building, honest, server, slow, url};
use swath_netlab::faulty::{Algorithm, Behaviour, Content, MetalinkFile, Server, metalink};

const SIZE: u64 = 3_000_017;
const PIECE: u64 = 262_144;

/// A Metalink of the content with SHA-256 pieces and these digests of the whole.
fn described(content: &Content, servers: &[&Server], digests: &[Algorithm], piece: u64) -> String {
    let urls: Vec<String> = servers.iter().map(|server| url(server)).collect();
    metalink(&[MetalinkFile {
        name: "data.bin",
        content,
        urls: &urls,
        digests,
        piece_bytes: Some(piece),
    }])
}

/// The digest of the content's piece from `start` on.
fn piece_hex(content: &Content, start: u64, length: u64) -> String {
    let end = (start + length).min(content.size_bytes());
    Content::bytes(content.read(start, end)).digest_hex(Algorithm::Sha256)
}

#[test]
fn memory_has_bounds() {
    let source = honest(&Content::random(1, 1000));
    let home = Home::new();
    for size in ["1", "1M", "100000G", "9000000T"] {
        home.run(["get", &url(&source), "--memory", size])
            .code_is(2)
            .says(&["--memory", "at least 4.19 MB is needed", "has "])
            .never_says(&["panicked"]);
    }
    assert_eq!(source.sent_bytes(), 0, "nobody was asked");
    home.run(["get", &url(&source), "--memory", "5M"]).code_is(0);
}

#[test]
fn right_pieces_do_not_hide_a_wrong_digest_of_the_whole() {
    // What a user gives, and what the Metalink says itself: strong pieces made both be ignored.
    let content = Content::random(1, SIZE);
    let source = honest(&content);
    let home = Home::new();
    home.write("../x.meta4", described(&content, &[&source], &[], PIECE));
    let wrong = format!("sha-256:{}", "0".repeat(64));
    home.run(["get", "../x.meta4", "--digest", &wrong])
        .code_is(4)
        .says(&[&wrong, "each piece is right by its own digest"]);
    home.lacks("data.bin");
    let right = format!("md5:{}", content.digest_hex(Algorithm::Md5));
    home.run(["get", "../x.meta4", "--digest", &right])
        .code_is(0)
        .says(&["12 pieces by sha-256, the whole by md5"]);
    home.holds_only("data.bin", &content);
    let other = Home::new();
    let text = described(&content, &[&source], &[Algorithm::Sha256], PIECE);
    let hex = content.digest_hex(Algorithm::Sha256);
    other.write("../x.meta4", text.replace(&hex, &"1".repeat(64)));
    other.run(["get", "../x.meta4"]).code_is(4).says(&["contradict each other"]);
    other.lacks("data.bin");
    let ran = other.run(["get", "../x.meta4", "-o", "-"]);
    ran.code_is(4).says(&["contradict each other"]);
    // The user and the Metalink cannot both be right: nothing needs to be fetched to know that.
    let before = source.sent_bytes();
    other
        .run(["get", "../x.meta4", "--digest", &format!("sha-256:{hex}"), "-o", "y"])
        .code_is(6)
        .says(&["two digests contradict each other", &hex, &"1".repeat(64)]);
    assert_eq!(source.sent_bytes(), before);
}

#[test]
fn each_digest_that_is_given_is_checked() {
    let content = Content::random(2, SIZE);
    let source = honest(&content);
    let right =
        |algorithm: Algorithm| format!("{}:{}", algorithm.name(), content.digest_hex(algorithm));
    let (sha256, md5) = (right(Algorithm::Sha256), right(Algorithm::Md5));
    let wrong = format!("md5:{}", "0".repeat(32));
    let home = Home::new();
    for output in ["x", "-"] {
        home.run(["get", &url(&source), "--digest", &sha256, "--digest", &wrong, "-o", output])
            .code_is(4)
            .says(&[&wrong, &md5]);
        home.lacks("x");
    }
    home.run(["get", &url(&source), "--digest", &md5, "--digest", &sha256])
        .code_is(0)
        .says(&["sha-256 and md5"]);
    home.holds("data.bin", &content);
}

#[test]
fn pieces_that_do_not_fit_prove_nothing_and_that_is_said() {
    let content = Content::random(3, SIZE);
    let source = honest(&content);
    let last = piece_hex(&content, SIZE / PIECE * PIECE, PIECE);
    let short = |text: String| text.replace(&format!("      <hash>{last}</hash>\n"), "");
    let sizeless = |text: String| text.replace(&format!("    <size>{SIZE}</size>\n"), "");
    let home = Home::new();
    let bare = described(&content, &[&source], &[], PIECE);
    let zero = bare.replace(&format!("length=\"{PIECE}\""), "length=\"0\"");
    for (text, code, words) in [
        (short(bare.clone()), 6, "need 12 piece digests, there are 11"),
        (zero, 6, "the piece length is 0"),
        (sizeless(short(bare.clone())), 7, "does not fit the piece digests"),
    ] {
        home.write("../x.meta4", text);
        home.run(["get", "../x.meta4", "-q"]).code_is(code).says(&[words]);
        home.lacks("data.bin");
    }
    // A digest of the whole proves it all the same.
    let both = described(&content, &[&source], &[Algorithm::Sha256], PIECE);
    for text in [short(both.clone()), sizeless(short(both))] {
        home.write("../x.meta4", text);
        home.run(["get", "../x.meta4", "-q", "--overwrite"])
            .code_is(0)
            .says(&["need 12 piece digests, there are 11"]);
        home.holds_only("data.bin", &content);
    }
}

#[test]
fn a_stream_that_ends_with_a_right_piece_too_early_is_not_the_file() {
    let content = Content::random(8, SIZE);
    let begun = Content::bytes(content.read(0, 2 * PIECE));
    let source = building(&begun)
        .behaviour(Behaviour::NoRanges)
        .behaviour(Behaviour::CloseDelimited)
        .start()
        .unwrap();
    let home = Home::new();
    let text = described(&content, &[&source], &[], PIECE);
    home.write("../x.meta4", text.replace(&format!("    <size>{SIZE}</size>\n"), ""));
    for output in ["x", "-"] {
        home.run(["get", "../x.meta4", "-o", output])
            .code_is(4)
            .says(&["does not fit the piece digests", "need 2 piece digests, there are 12"]);
        home.lacks("x");
    }
}

#[test]
fn a_piece_digest_that_is_wrong_itself_accuses_nobody() {
    let content = Content::random(4, SIZE);
    let (one, two) = (slow(&content, 9_000_000), slow(&content, 9_000_000));
    let hex = piece_hex(&content, PIECE, PIECE);
    for (servers, words) in [
        (&[&one, &two][..], "all sources agree with one another"),
        (&[&one][..], "no second source to compare with"),
    ] {
        for output in ["x", "-"] {
            let home = Home::new();
            let text = described(&content, servers, &[], PIECE);
            home.write("../x.meta4", text.replace(&hex, &"2".repeat(64)));
            home.run(["get", "../x.meta4", "-o", output])
                .code_is(4)
                .says(&[&hex, "bytes 262144–524288", words])
                .never_says(&["corrupt data"]);
            home.lacks("x");
        }
    }
}

#[test]
fn two_stale_mirrors_do_not_outvote_a_right_piece_digest() {
    let (new, old) = (Content::random(5, SIZE), Content::random(6, SIZE));
    let stale = [slow(&old, 9_000_000), slow(&old, 9_000_000)];
    let right = building(&new)
        .behaviour(Behaviour::rate(3_000_000))
        .behaviour(Behaviour::FirstByteDelay(std::time::Duration::from_millis(300)))
        .start()
        .unwrap();
    let home = Home::new();
    home.write("../x.meta4", described(&new, &[&stale[0], &stale[1], &right], &[], PIECE));
    home.run(["get", "../x.meta4"]).code_is(0).never_says(&[&format!("{} delivered", url(&right))]);
    home.holds_only("data.bin", &new);
}

#[test]
fn pieces_of_any_size_come_out_of_a_pipe() {
    // A piece was hashed from its start for every block of it, and one that was larger than the
    // memory for buffers never came out at all.
    let content = Content::random(7, 30_000_001);
    let source = honest(&content);
    for (piece, words) in [(4 << 20, ""), (20 << 20, "each is written before it is proved")] {
        let home = Home::new();
        home.write("x.meta4", described(&content, &[&source], &[], piece));
        let ran = home.run(["get", "x.meta4", "-o", "-", "--memory", "10M"]);
        ran.code_is(0).says(&[words]);
        assert!(ran.stdout == content.read(0, 30_000_001), "pieces of {piece}");
    }
    let liar = server(&content, Behaviour::CorruptByte { at: 15_000_000 });
    let home = Home::new();
    home.write("x.meta4", described(&content, &[&liar], &[], 20 << 20));
    let ran = home.run(["get", "x.meta4", "-o", "-", "--memory", "10M"]);
    ran.code_is(4).says(&["bytes 0–20971520 are wrong, and their beginning is written already"]);
    assert!(ran.stdout.len() < 20 << 20, "it ends before that piece does");
}
