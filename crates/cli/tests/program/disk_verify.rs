//! `swath verify`: right and wrong files, digests and Metalinks.

use crate::support::Home;
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

#[test]
fn a_file_alone_is_told_by_its_digests() {
    let content = Content::random(1, SIZE);
    let home = with(&content);
    let told = home.run(["verify", "data.bin"]).code_is(0).out();
    let wanted = [("sha-256", Algorithm::Sha256), ("blake3", Algorithm::Blake3)];
    let wanted = wanted
        .map(|(name, algorithm)| format!("{name}:{}  data.bin\n", content.digest_hex(algorithm)));
    assert_eq!(told, wanted.concat());
    // As other programs print them.
    for algorithm in [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha512] {
        let hex = content.digest_hex(algorithm);
        home.run(["verify", "data.bin", "--digest", &hex]).code_is(0);
    }
    home.run(["verify", "data.bin", "--digest", &"0".repeat(64)]).code_is(4);
    home.run(["verify", "data.bin", "--digest", "12345678"]).code_is(2).says(&["':' is missing"]);
    home.run(["verify", "none"]).code_is(6);
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
        assert!(ran.out().contains(&format!("{} matches", algorithm.name())), "{ran}");
    }
    // Two of one kind cannot both be right, which is said before the file is read.
    let zero = format!("md5:{}", "0".repeat(32));
    args.extend(["--digest".to_owned(), zero.clone()]);
    home.run(&args).code_is(2).says(&["--digest: md5:", &zero]);
    home.run([
        "get",
        "http://127.0.0.1:1/x",
        "--digest",
        &zero,
        "--digest",
        &zero.replace('0', "1"),
    ])
    .code_is(2)
    .says(&["--digest: md5:"]);
    // One wrong one among them is enough.
    args.truncate(args.len() - 2);
    for arg in args.iter_mut().filter(|arg| arg.starts_with("md5:")) {
        arg.clone_from(&zero);
    }
    home.run(&args).code_is(4).says(&["data.bin: md5 is", "expected 00000000"]);
}

/// A reader that has had enough once ended it with a panic and code 101.
#[test]
fn a_closed_pipe_or_a_full_device_is_no_panic() {
    let content = Content::random(5, 1000);
    let home = with(&content);
    let right = format!("sha-256:{}", content.digest_hex(Algorithm::Sha256));
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let verify = ["verify", "data.bin", "--digest", &right];
    let mut swath = home.swath(verify);
    swath.command().stdout(closed());
    swath.run().code_is(0).never_says(&["panicked"]);
    let mut swath = home.swath(verify);
    swath.command().stdout(full());
    swath.run().code_is(5).says(&["cannot write to standard output: No space left"]);
    for args in [&["completions", "bash"][..], &["man"], &["man", "get"]] {
        let mut swath = home.swath(args);
        swath.command().stdout(closed());
        swath.run().code_is(0).never_says(&["panicked"]);
    }
    // Nor may a complaint panic for want of somewhere to go.
    for args in [
        &["verify", "data.bin", "--digest", "md5:00000000000000000000000000000000"][..],
        &["verify", "missing", "--digest", &right],
        &["get", "http://127.0.0.1:1/x", "--json", "--timeout", "1s"],
        &["get", "http://127.0.0.1:1/x", "--timeout", "1s"],
        &["probe", "http://127.0.0.1:1/x"],
    ] {
        for full_device in [true, false] {
            let mut swath = home.swath(args);
            match full_device {
                true => swath.command().stdout(full()).stderr(full()),
                false => swath.command().stdout(closed()).stderr(closed()),
            };
            let code = swath.run().code();
            assert!(matches!(code, 4..=7), "{args:?} ends with {code}");
        }
    }
}

#[test]
fn of_several_files_in_a_metalink_the_one_of_the_same_path_is_meant() {
    let (a, b) = (Content::random(6, 1000), Content::random(7, 1000));
    let urls = ["http://127.0.0.1:1/data".to_owned()];
    let file = |name, content| MetalinkFile {
        name,
        content,
        urls: &urls,
        digests: &[Algorithm::Sha256],
        piece_bytes: None,
    };
    let home = Home::new();
    home.write("m.meta4", metalink(&[file("a/data", &a), file("b/data", &b)]));
    home.write("a/data", a.read(0, 1000));
    home.write("b/data", b.read(0, 1000));
    home.write("data", b.read(0, 1000));
    home.run(["verify", "b/data", "--metalink", "m.meta4"]).code_is(0);
    home.run(["verify", "a/data", "--metalink", "m.meta4"]).code_is(0);
    let mut inside = home.swath(["verify", "data", "--metalink", "../m.meta4"]);
    inside.command().current_dir(home.path("b"));
    inside.run().code_is(0);
    home.run(["verify", "data", "--metalink", "m.meta4"])
        .code_is(6)
        .says(&["several files of this name", "'a/data' and 'b/data'"]);
    home.run(["verify", "m.meta4", "--metalink", "m.meta4"])
        .code_is(6)
        .says(&["does not list m.meta4"]);
}

#[test]
fn what_need_not_end_is_refused() {
    let home = Home::new();
    let digest = format!("md5:{}", "0".repeat(32));
    let fifo = home.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for path in ["fifo", "/dev/zero"] {
        home.run(["verify", path, "--digest", &digest])
            .code_is(6)
            .says(&[path, "it is no regular file"]);
    }
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
        ": 1 of 4 pieces does not match, at byte ",
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
    home.run(["verify", "data.bin", "--digest", "md5:12"]).code_is(2).says(&["md5"]);
    home.run(["verify", ".", "--digest", &digest]).code_is(6).says(&["directory"]);
}
