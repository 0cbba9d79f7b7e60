//! `swath keys`, `swath publish --sign`, `swath verify --trust` and `--torrent` together.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use crate::support::trees::bytes;
use crate::support::{Home, Ran};

fn with_dataset() -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path("run7/detector")).unwrap();
    home.write("run7/detector/a.h5", bytes(1, 300_001));
    home.write("run7/b.txt", bytes(2, 70_000));
    home.run(["keys", "new", "-o", "lab.key"]).code_is(0);
    home
}

fn publish(home: &Home, more: &[&str]) -> Ran {
    let args = ["publish", "run7", "--version", "2", "-o", "pub", "--piece", "64KiB"];
    home.run(args.iter().chain(more))
}

#[test]
fn keys_are_made_once_for_their_owner_and_never_shown() {
    let home = Home::new();
    let ran = home.run(["keys", "new", "-o", "lab.key"]);
    ran.code_is(0);
    assert_eq!(home.path("lab.key").metadata().unwrap().mode() & 0o777, 0o600);
    let (secret, public) = (home.read("lab.key"), home.read("lab.pub"));
    let text = String::from_utf8(public.clone()).unwrap();
    let line = text.lines().nth(1).unwrap();
    for file in ["lab.key", "lab.pub"] {
        let shown = home.run(["keys", "show", file]).code_is(0).out();
        assert!(shown.contains(&format!("--trust {line}\n")), "{shown}");
        let secret = String::from_utf8(secret.clone()).unwrap();
        assert!(!shown.contains(secret.lines().nth(1).unwrap()), "{shown}");
    }
    // A key that was replaced would be lost.
    home.run(["keys", "new", "-o", "lab.key"]).code_is(5).says(&["lab.key exists", "-o FILE"]);
    fs::remove_file(home.path("lab.key")).unwrap();
    home.run(["keys", "new", "-o", "lab.key"]).code_is(5).says(&["lab.pub exists"]);
    assert_eq!(home.read("lab.pub"), public);
    home.run(["keys", "new", "-o", "lab.pub"]).code_is(2).says(&["extension .pub"]);
    home.write("other", "none");
    home.run(["keys", "show", "other"]).code_is(6).says(&["no minisign key"]);
}

#[test]
fn a_signed_publication_is_verified_wherever_it_is() {
    let home = with_dataset();
    publish(&home, &["--sign", "lab.key"]).code_is(0);
    let signature = String::from_utf8(home.read("pub/run7-2.index.minisig")).unwrap();
    assert!(
        signature.contains("\tfile:run7-2.index\tname:run7\tversion:2\thashed\n"),
        "{signature}"
    );
    let verify = ["verify", "run7", "--trust", "lab.pub"];
    let with = |more: &[&str]| home.run(verify.iter().chain(more));
    let index = ["--index", "pub/run7-2.index"];
    let out = with(&index).code_is(0).out();
    for words in ["signed by the key ", "version:2", "run7: everything matches the index: 2 files"]
    {
        assert!(out.contains(words), "{out}");
    }
    // Without --index the index is found beside the folder.
    with(&[]).code_is(6).says(&["no signed index of 'run7'", "--index FILE"]);
    for name in ["run7-2.index", "run7-2.index.minisig"] {
        fs::copy(home.path(format!("pub/{name}")), home.path(name)).unwrap();
    }
    with(&[]).code_is(0);
    home.run(["verify", ".", "--trust", "lab.pub", "--index", "run7-2.index"]).code_is(0);
    // Also without a key, if the index is one of a publication.
    home.run(["verify", "run7", "--index", "run7-2.index", "-q"]).code_is(0);
    for name in ["run7-3.index", "run7-3.index.minisig"] {
        fs::copy(home.path(name.replace('3', "2")), home.path(name)).unwrap();
    }
    with(&[]).code_is(2).says(&["several indexes are signed"]);

    home.write("run7/b.txt", bytes(3, 70_000));
    let ran = with(&index);
    ran.code_is(4).says(&["b.txt: different content", "1 of 2 files does not match the index"]);
    fs::remove_file(home.path("run7/b.txt")).unwrap();
    with(&index).code_is(4).says(&["b.txt: missing"]);
}

#[test]
fn a_signature_that_does_not_match_proves_nothing() {
    let home = with_dataset();
    publish(&home, &["--sign", "lab.key"]).code_is(0);
    let verify =
        |key: &str| home.run(["verify", "run7", "--trust", key, "--index", "pub/run7-2.index"]);
    home.run(["keys", "new", "-o", "other.key"]).code_is(0);
    verify("other.pub").code_is(4).says(&["made by the key", "not by"]);
    verify("lab.key").code_is(6).says(&["secret key, not a public one"]);
    verify("nowhere").code_is(6).says(&["cannot read nowhere", "RWQ"]);
    let (index, signature) = (home.read("pub/run7-2.index"), home.read("pub/run7-2.index.minisig"));
    home.write("pub/run7-2.index", String::from_utf8_lossy(&index).replace("run7\n", "run8\n"));
    verify("lab.pub").code_is(4).says(&["the signed content was changed"]);
    home.write("pub/run7-2.index", &index);
    let text = String::from_utf8_lossy(&signature).replace("version:2", "version:3");
    home.write("pub/run7-2.index.minisig", text);
    verify("lab.pub").code_is(4).says(&["trusted comment was changed"]);
    home.write("pub/run7-2.index.minisig", "none");
    verify("lab.pub").code_is(6).says(&["no minisign signature"]);
    // A new index without a signature must not keep the old one.
    home.write("run7/b.txt", bytes(4, 70_000));
    publish(&home, &["--replace"]).code_is(0);
    assert!(!home.exists("pub/run7-2.index.minisig"));
    verify("lab.pub").code_is(6).says(&["cannot read pub/run7-2.index.minisig"]);
}

#[test]
fn keys_that_others_can_read_sign_nothing() {
    let home = with_dataset();
    fs::set_permissions(home.path("lab.key"), Permissions::from_mode(0o640)).unwrap();
    let ran = publish(&home, &["--sign", "lab.key"]);
    ran.code_is(6).says(&["other users can read or change it (mode 0640)", "chmod 600"]);
    publish(&home, &["--sign", "lab.pub"]).code_is(6).says(&["public key, not a secret one"]);
    let ran = publish(&home, &["--sign", "lab.pub", "--only", "torrent"]);
    ran.says(&["error: "]);
    assert!(!home.exists("pub"));
}

#[test]
fn files_of_a_torrent_are_checked_piece_by_piece() {
    let home = with_dataset();
    for kind in ["v1", "v2", "hybrid"] {
        publish(&home, &["--torrent", kind, "--replace"]).code_is(0);
        let verify = |place: &str| home.run(["verify", place, "--torrent", "pub/run7-2.torrent"]);
        for place in ["run7", "."] {
            let out = verify(place).code_is(0).out();
            assert!(out.contains("everything matches the torrent: 2 files, 370 kB"), "{out}");
        }
        let right = home.read("run7/detector/a.h5");
        let mut wrong = right.clone();
        wrong[200_000] ^= 1;
        home.write("run7/detector/a.h5", wrong);
        let ran = verify("run7");
        ran.code_is(4).says(&["detector/a.h5: 1 of ", " pieces wrong, the first at byte 1"]);
        ran.says(&["1 of 2 files does not match the torrent"]);
        home.write("run7/detector/a.h5", &right[..300_000]);
        verify("run7").code_is(4).says(&["300,000 bytes instead of 300,001"]);
        fs::remove_file(home.path("run7/detector/a.h5")).unwrap();
        verify(".").code_is(4).says(&["detector/a.h5: missing"]);
        home.write("run7/detector/a.h5", right);
    }
    let verify = |torrent: &str| home.run(["verify", "run7", "--torrent", torrent]);
    verify("run7/b.txt").code_is(6).says(&["cannot use run7/b.txt"]);
    verify("nowhere").code_is(6).says(&["cannot read nowhere"]);
    home.run(["verify", "nowhere", "--torrent", "pub/run7-2.torrent"]).code_is(6);
    home.run(["verify", "run7", "--torrent", "pub/run7-2.torrent", "--trust", "lab.pub"])
        .code_is(2);
}
