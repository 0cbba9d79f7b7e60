//! `swath get` once more, after the file is complete: what is there is held against what is known,
//! and nothing is fetched again without `--overwrite`.

use crate::support::Home;
use crate::support::net::{FILE, honest, server, sha256, url};
use swath_netlab::faulty::{Algorithm, Behaviour, Content, DigestField, MetalinkFile, metalink};

const SIZE: u64 = 1_000_003;

/// A finished `get` that was run again ended in exit code 5, also with the right digest or a
/// Metalink that proved the file, while a list counted the same as done.
#[test]
fn a_file_whose_digest_agrees_is_complete_already() {
    let content = Content::random(1, SIZE);
    let source = honest(&content);
    let (address, digest) = (url(&source), sha256(&content));
    let home = Home::new();
    let get = ["get", &address, "--digest", &digest];
    home.run(get).code_is(0);
    source.clear_log();
    home.run(get).code_is(0).says(&["data.bin: already complete, 1.00 MB (its digest matches)"]);
    assert!(source.log().is_empty(), "the digest is proof, nobody was asked");
    let described = metalink(&[MetalinkFile {
        name: "data.bin",
        content: &content,
        urls: std::slice::from_ref(&address),
        digests: &[],
        piece_bytes: Some(100_000),
    }]);
    home.write("one.meta4", described);
    home.run(["get", "one.meta4"]).code_is(0).says(&["its piece digests match"]);
    let ran = home.run(get.into_iter().chain(["--json"]));
    let event: serde_json::Value = serde_json::from_str(ran.code_is(0).out().trim()).unwrap();
    let told = (&event["event"], &event["same"], &event["size_bytes"]);
    assert_eq!(told, (&"present".into(), &"digest".into(), &SIZE.into()));
    home.run(get.into_iter().chain(["--quiet"])).code_is(0).never_says(&["complete"]);

    let mut changed = content.read(0, SIZE);
    changed[777] ^= 1;
    home.write("data.bin", &changed);
    home.run(get).code_is(5).says(&["data.bin is another file: its sha-256 is", "--overwrite"]);
    assert_eq!(home.read("data.bin"), changed, "it was left alone");
    home.run(get.into_iter().chain(["--overwrite"])).code_is(0);
    home.holds("data.bin", &content);
}

#[test]
fn without_a_digest_the_size_and_the_servers_time_must_agree() {
    let content = Content::random(1, SIZE);
    let source = honest(&content);
    let address = url(&source);
    let get = ["get", &address];
    let home = Home::new();
    home.run(get).code_is(0);
    let sent_bytes = source.sent_bytes();
    home.run(get)
        .code_is(0)
        .says(&["already complete", "its size and time match the server's; no known digest"]);
    assert!(source.sent_bytes() - sent_bytes < 10_000, "nothing was fetched");

    // The file at the server changes: to another size, or at another time.
    source.replace(FILE, Content::random(2, SIZE + 1));
    home.run(get).code_is(5).says(&["it has 1000003 bytes, 1000004 are expected", "--overwrite"]);
    home.holds("data.bin", &content);
    home.run(get.into_iter().chain(["--overwrite"])).code_is(0);
    let other = Content::random(3, SIZE + 1);
    source.replace(FILE, other.clone());
    home.run(get).code_is(5).says(&["may be another file: it was changed on"]);
    home.run(get.into_iter().chain(["--overwrite"])).code_is(0);
    home.holds("data.bin", &other);

    // Nothing tells that it is the same where no server does.
    source.add(Behaviour::NoValidators);
    home.run(get).code_is(5).says(&["no server reports its digest, or its size and time"]);
    source.die();
    home.run(get).code_is(5).says(&["no server could be asked"]);
    home.holds("data.bin", &other);
}

/// A digest that the server tells is worth more than size and time, which an edit can keep.
#[test]
fn a_digest_that_the_server_tells_decides() {
    let content = Content::random(1, SIZE);
    let rule = Behaviour::DigestHeader {
        field: DigestField::ReprDigest,
        algorithm: Algorithm::Sha256,
        right: true,
    };
    let source = server(&content, rule);
    let home = Home::new();
    home.run(["get", &url(&source)]).code_is(0);
    home.run(["get", &url(&source)]).code_is(0).says(&["its digest matches the server's"]);
    let mut changed = content.read(0, SIZE);
    changed[5] ^= 1;
    let path = home.path("data.bin");
    let time = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::write(&path, &changed).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    home.run(["get", &url(&source)]).code_is(5).says(&["is another file: its sha-256 is"]);
}
