//! What users are told of what would prove a file and cannot, and of the memory that proving takes; what
//! proves files is tested in the suite of `jobs`.

use crate::support::Home;
use crate::support::net::{honest, url};
use swath_netlab::faulty::{Algorithm, Content, MetalinkFile, Server, metalink};

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
fn pieces_that_do_not_fit_prove_nothing_and_that_is_said() {
    let content = Content::random(3, SIZE);
    let source = honest(&content);
    let last = Content::bytes(content.read(SIZE / PIECE * PIECE, SIZE));
    let last = last.digest_hex(Algorithm::Sha256);
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
    // The user and the Metalink cannot both be right: nothing needs to be fetched to know that.
    let (before, hex) = (source.sent_bytes(), content.digest_hex(Algorithm::Sha256));
    home.write("../x.meta4", described(&content, &[&source], &[Algorithm::Sha256], PIECE));
    let other = "1".repeat(64);
    home.run(["get", "../x.meta4", "--digest", &format!("sha-256:{other}"), "-o", "y"])
        .code_is(6)
        .says(&["two digests contradict each other", &hex, &other]);
    assert_eq!(source.sent_bytes(), before);
}
