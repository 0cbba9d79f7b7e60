//! What `swath publish` writes and signs, beside what libtorrent and minisign make.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::Home;
use crate::support::trees::bytes;

/// Three files whose lengths are no multiples of pieces, one of them empty, and a key.
fn with_dataset() -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path("run7/detector")).unwrap();
    home.write("run7/detector/a.h5", bytes(1, 300_001));
    home.write("run7/b.txt", bytes(2, 70_000));
    home.write("run7/empty", "");
    home.run(["keys", "new", "-o", "lab.key"]).code_is(0);
    home
}

fn publish(home: &Home, more: &[&str]) {
    let args = ["publish", "run7", "--version", "2", "-o", "pub", "--piece", "64KiB"];
    home.run(args.iter().chain(more)).code_is(0);
}

/// The info-hashes of a torrent of `path` as libtorrent makes it; `None`, with a message, without it.
fn by_libtorrent(path: &Path, piece_bytes: u32, flags: &str) -> Option<[String; 2]> {
    let script = format!(
        "import libtorrent as lt, os, sys\n\
         files = lt.file_storage()\n\
         above = os.path.dirname(sys.argv[1])\n\
         below = [os.path.join(d, n) for d, _, names in os.walk(sys.argv[1]) for n in names]\n\
         for path in sorted(below, key=lambda p: p.split('/')) or [sys.argv[1]]:\n\
         \x20 files.add_file(os.path.relpath(path, above), os.path.getsize(path))\n\
         made = lt.create_torrent(files, {piece_bytes}, {flags})\n\
         lt.set_piece_hashes(made, above)\n\
         hashes = lt.torrent_info(made.generate()).info_hashes()\n\
         print(hashes.v1, hashes.v2)\n"
    );
    let ran = Command::new("/usr/bin/python3").args(["-c", &script]).arg(path).output();
    match ran.ok().filter(|ran| ran.status.success()) {
        Some(ran) => {
            let text = String::from_utf8(ran.stdout).unwrap();
            let mut words = text.split_whitespace().map(str::to_owned);
            Some([words.next().unwrap(), words.next().unwrap()])
        }
        None => {
            println!("skipped: /usr/bin/python3 has no libtorrent");
            None
        }
    }
}

#[test]
fn info_hashes_are_those_that_libtorrent_finds() {
    let home = with_dataset();
    for (kind, flags) in
        [("hybrid", "0"), ("v1", "lt.create_torrent.v1_only"), ("v2", "lt.create_torrent.v2_only")]
    {
        for path in ["run7", "run7/detector/a.h5"] {
            let Some([v1, v2]) = by_libtorrent(&home.path(path), 32_768, flags) else { return };
            let only =
                ["--only", "torrent", "--torrent", kind, "--piece", "32KiB", "--json", "--replace"];
            let ran = home.run(["publish", path, "-o", "pub"].iter().chain(&only));
            ran.code_is(0);
            let event: serde_json::Value = serde_json::from_str(&ran.out()).unwrap();
            let none = |hash: &str| hash.bytes().all(|digit| digit == b'0');
            let is = |found: &serde_json::Value, hash: &str| match found.as_str() {
                Some(found) => found == hash,
                None => none(hash),
            };
            assert!(is(&event["infohash_v1"], &v1), "{kind} {path}: {event} {v1}");
            assert!(is(&event["infohash_v2"], &v2), "{kind} {path}: {event} {v2}");
        }
    }
}

/// Runs minisign; `None`, with a message, without it.
fn minisign(home: &Home, args: &[&str]) -> Option<(bool, String)> {
    match Command::new("minisign").args(args).current_dir(home.work()).output() {
        Ok(ran) => Some((ran.status.success(), String::from_utf8_lossy(&ran.stdout).into_owned())),
        Err(error) => {
            println!("skipped: minisign cannot be run here: {error}");
            None
        }
    }
}

#[test]
fn minisign_verifies_what_swath_signs() {
    let home = with_dataset();
    publish(&home, &["--sign", "lab.key"]);
    let index = "pub/run7-2.index";
    let Some((is_right, out)) = minisign(&home, &["-V", "-p", "lab.pub", "-m", index]) else {
        return;
    };
    assert!(is_right && out.contains("name:run7\tversion:2"), "{out}");
    // It signs with the key of swath, too.
    home.write("x.index", home.read(index));
    let (is_signed, _) = minisign(&home, &["-S", "-s", "lab.key", "-m", "x.index"]).unwrap();
    assert!(is_signed);
    home.run(["verify", "run7", "--trust", "lab.pub", "--index", "x.index"]).code_is(0);
    home.write(index, [home.read(index), b"\n".to_vec()].concat());
    let (is_right, _) = minisign(&home, &["-V", "-p", "lab.pub", "-m", index]).unwrap();
    assert!(!is_right);
}

#[test]
fn swath_signs_and_verifies_with_keys_of_minisign() {
    let home = with_dataset();
    let Some((is_made, out)) = minisign(&home, &["-G", "-W", "-p", "m.pub", "-s", "m.key"]) else {
        return;
    };
    assert!(is_made, "{out}");
    publish(&home, &["--sign", "m.key"]);
    let index = "pub/run7-2.index";
    let (is_right, out) = minisign(&home, &["-V", "-p", "m.pub", "-m", index]).unwrap();
    assert!(is_right, "{out}");
    let verify = ["verify", "run7", "--trust", "m.pub", "--index", index];
    home.run(verify).code_is(0);
    // Of the message itself, as old versions of minisign sign it.
    for more in [&["-l"][..], &[]] {
        let args = [&["-S", "-s", "m.key", "-m", index][..], more].concat();
        assert!(minisign(&home, &args).unwrap().0);
        home.run(verify).code_is(0);
    }
}
