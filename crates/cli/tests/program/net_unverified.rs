//! `swath get` where no digest is known: mirrors are held against each other, and whoever gets a
//! file that nothing proves is told so.

use crate::support::net::{honest, server, sha256, slow, url};
use crate::support::{Home, Ran};
use swath_netlab::faulty::{Algorithm, Behaviour, Content, DigestField};

const SIZE: u64 = 4_000_037;

fn last(ran: &Ran) -> serde_json::Value {
    serde_json::from_str(ran.out().lines().last().unwrap()).unwrap()
}

/// Of two mirrors with the same size and time one held other bytes: a mixture of both got the
/// file's name, and the exit code was 0.
#[test]
fn two_mirrors_that_differ_end_without_a_file() {
    let (one, other) = (Content::random(1, SIZE), Content::random(2, SIZE));
    let (a, b) = (slow(&one, 4_000_000), slow(&other, 4_000_000));
    let home = Home::new();
    let ran = home.run(["get", &url(&a), &url(&b)]);
    ran.code_is(4).says(&[
        &url(&a),
        &url(&b),
        "hold different bytes from byte",
        "nothing shows which is right",
        "nothing is kept: give --digest, or fetch from only one of them",
    ]);
    home.lacks("data.bin");
    // Nothing of the mixture counts later, be it with one of them alone or with the digest.
    home.run(["get", &url(&a)]).code_is(0);
    home.holds_only("data.bin", &one);
    std::fs::remove_file(home.path("data.bin")).unwrap();
    home.run(["get", &url(&a), &url(&b), "--digest", &sha256(&one)]).code_is(0);
    home.holds_only("data.bin", &one);
}

/// With `-q` nothing was said of a file that nothing had proved.
#[test]
fn what_nothing_proves_is_said_to_be_so() {
    let content = Content::random(1, SIZE);
    let (a, b) = (slow(&content, 4_000_000), slow(&content, 4_000_000));
    let home = Home::new();
    let get = ["get", &url(&a), &url(&b), "--overwrite"];
    home.run(get)
        .code_is(0)
        .says(&["NOT VERIFIED: no digest of it is known", "were compared and are equal"]);
    let ran = home.run(get.into_iter().chain(["-q"]));
    ran.code_is(0).says(&["warning: data.bin is NOT VERIFIED"]);
    assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
    let ran = home.run(get.into_iter().chain(["--json"]));
    let end = last(ran.code_is(0));
    assert_eq!(end["verified"], "none");
    // What is compared is fetched twice, and is little.
    assert!(end["wasted_bytes"].as_u64().unwrap() <= 1 << 20, "{end}");
    assert!(ran.out().contains(r#""event":"unverified""#), "{ran}");
    home.write("list.txt", format!("{}\n  out=x\n", url(&a)));
    let ran = home.run(["get", "-i", "list.txt", "-q"]);
    ran.code_is(0).says(&["warning: 1 file is NOT VERIFIED"]);
    let digest = sha256(&content);
    let ran = home.run(get.into_iter().chain(["-q", "--digest", &digest]));
    ran.code_is(0).never_says(&["warning"]);
}

#[test]
fn a_digest_can_be_required() {
    let content = Content::random(1, SIZE);
    let source = honest(&content);
    let home = Home::new();
    let get = ["get", &url(&source)];
    let required = get.into_iter().chain(["--require-digest"]);
    home.run(required.clone())
        .code_is(4)
        .says(&["no digest of it is known, but --require-digest needs one", "give --digest"]);
    assert_eq!(home.names(), Vec::<String>::new());
    let path = home.write("swath.toml", "require-digest = true\n");
    home.swath(get).env("SWATH_CONFIG", &path).run().code_is(4);
    home.lacks("data.bin");
    let digest = sha256(&content);
    home.swath(get.into_iter().chain(["--digest", &digest]))
        .env("SWATH_CONFIG", &path)
        .run()
        .code_is(0);
    // A digest that the server tells will do, one that nobody tells of a file that is there will not.
    let rule = Behaviour::DigestHeader {
        field: DigestField::ReprDigest,
        algorithm: Algorithm::Sha256,
        right: true,
    };
    let telling = server(&content, rule);
    home.run(["get", &url(&telling), "--overwrite", "--require-digest"]).code_is(0);
    home.run(required).code_is(4).says(&["no digest of it is known"]);
}
