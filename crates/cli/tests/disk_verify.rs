//! `swath verify`: right and wrong files, digests and Metalinks.

mod support;

use support::Home;
use swath_netlab::faulty::{Algorithm, Content, MetalinkFile, metalink};

const SIZE: u64 = (3 << 20) + 17;
const ALL: [Algorithm; 7] = [
    Algorithm::Sha256,
    Algorithm::Sha512,
    Algorithm::Sha1,
    Algorithm::Md5,
    Algorithm::Adler32,
    Algorithm::Crc32c,
    Algorithm::Blake3,
];

fn with(content: &Content) -> Home {
    let home = Home::new();
    home.write("data.bin", content.read(0, content.size_bytes()));
    home
}

fn document(content: &Content, pieces: bool) -> String {
    metalink(&[MetalinkFile {
        name: "data.bin",
        content,
        urls: &["http://127.0.0.1:1/data.bin".to_owned()],
        digests: &[Algorithm::Sha256],
        piece_bytes: pieces.then_some(1 << 20),
    }])
}

#[test]
fn every_digest_is_known_and_all_that_are_given_are_checked() {
    let content = Content::random(1, SIZE);
    let home = with(&content);
    let mut args = vec!["verify".to_owned(), "data.bin".to_owned()];
    for algorithm in ALL {
        args.extend([
            "--digest".to_owned(),
            format!("{}:{}", algorithm.name(), content.digest_hex(algorithm)),
        ]);
    }
    let ran = home.run(&args);
    ran.code_is(0);
    for algorithm in ALL {
        assert!(ran.out().contains(&format!("{} is right", algorithm.name())), "{ran}");
    }
    // One wrong one among them is enough.
    args.extend(["--digest".to_owned(), format!("md5:{}", "0".repeat(32))]);
    home.run(&args).code_is(4).says(&["data.bin: md5 is", "wanted 00000000"]);
}

#[test]
fn a_changed_byte_is_found_and_placed() {
    let content = Content::random(2, SIZE);
    let home = with(&content);
    home.write("data.meta4", document(&content, true));
    home.run(["verify", "data.bin", "--metalink", "data.meta4"]).code_is(0);
    let mut bytes = content.read(0, SIZE);
    bytes[(2 << 20) + 5] ^= 1;
    home.write("data.bin", &bytes);
    home.run(["verify", "data.bin", "--metalink", "data.meta4"]).code_is(4).says(&[
        "sha-256 is",
        "1 of 4 pieces are wrong",
        "at byte 2097152",
    ]);
    home.run(["verify", "data.bin", "--metalink", "data.meta4", "--quiet"]).code_is(4);
}

#[test]
fn a_file_of_another_size_is_told_by_its_size() {
    let content = Content::random(3, SIZE);
    let home = with(&content);
    home.write("data.meta4", document(&content, false));
    home.write("data.bin", content.read(0, SIZE - 1));
    home.run(["verify", "data.bin", "--metalink", "data.meta4"])
        .code_is(4)
        .says(&["3145744 bytes", "3145745 are expected"]);
}

#[test]
fn what_cannot_be_read_is_no_mismatch() {
    let home = with(&Content::random(4, 10));
    let digest = format!("md5:{}", "0".repeat(32));
    home.run(["verify", "missing", "--digest", &digest])
        .code_is(6)
        .says(&["cannot read missing", "No such file"]);
    home.run(["verify", "data.bin", "--metalink", "missing.meta4"])
        .code_is(6)
        .says(&["missing.meta4"]);
    home.write("broken.meta4", "<metalink");
    home.run(["verify", "data.bin", "--metalink", "broken.meta4"])
        .code_is(6)
        .says(&["broken.meta4"]);
    home.run(["verify", "data.bin"]).code_is(2).says(&["--digest"]);
    home.run(["verify", "data.bin", "--digest", "md5:12"]).code_is(2).says(&["md5"]);
    home.run(["verify", ".", "--digest", &digest]).code_is(6).says(&["directory"]);
}
