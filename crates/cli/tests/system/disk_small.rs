//! Disks with little room, and disks that nobody may write to: needs root, who mounts them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use serde_json::Value;
use swath_netlab::faulty::{Algorithm, Behaviour, Content, Server};

use crate::support::Home;
use crate::support::small::Small;
use crate::support::trees::bytes;
use crate::support::ways::Way;

fn serve(content: &Content) -> Server {
    Server::builder().file("/data.bin", content.clone()).start().unwrap()
}

fn slow(content: &Content, rate: u64) -> Server {
    Server::builder()
        .file("/data.bin", content.clone())
        .behaviour(Behaviour::rate(rate))
        .start()
        .unwrap()
}

fn digest(content: &Content) -> String {
    format!("sha-256:{}", content.digest_hex(Algorithm::Sha256))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const MIB: u64 = 1 << 20;

/// The journal used to be made at the first commit, for which there was no room any more.
#[test]
fn a_disk_that_is_full_at_once_keeps_what_came() {
    let home = Home::new();
    let Some(_small) = Small::mount(&home.path("small"), 8 * MIB) else { return };
    let server = serve(&Content::random(8, 64 * MIB));
    let url = server.url("/data.bin");
    home.run(["get", &url, "-d", "small", "--sparse"])
        .code_is(5)
        .says(&["small/data.bin: the disk is full", " in small/data.bin.swath.part: "]);
    let left = ["data.bin.swath", "data.bin.swath.part"];
    assert!(left.iter().all(|name| home.path("small").join(name).exists()));
}

#[test]
fn a_file_that_does_not_fit_is_refused_before_it_is_fetched() {
    let home = Home::new();
    let Some(_small) = Small::mount(&home.path("small"), 4 * MIB) else { return };
    let server = slow(&Content::random(7, 64 * MIB), 8_000_000);
    home.run(["get", &server.url("/data.bin"), "-d", "small"]).code_is(5).says(&[
        "small/data.bin",
        "more",
        "free",
    ]);
    assert_eq!(home.names(), ["small"]);
    assert_eq!(fs::read_dir(home.path("small")).unwrap().count(), 0, "nothing is left behind");
    assert!(server.sent_bytes() < 16 * MIB, "{} bytes were sent", server.sent_bytes());
}

#[test]
fn a_disk_that_fills_up_on_the_way_keeps_what_came_and_goes_on_later() {
    let home = Home::new();
    let Some(_small) = Small::mount(&home.path("small"), 16 * MIB) else { return };
    let content = Content::random(8, 12 * MIB);
    let server = slow(&content, 3_000_000);
    let url = server.url("/data.bin");
    let args = ["get", &url, "-d", "small", "--digest", &digest(&content)];
    let running = home.swath(args).start();
    let part = home.path("small/data.bin.swath.part");
    until("there is a journal and some data", || {
        home.exists("small/data.bin.swath")
            && part.metadata().is_ok_and(|meta| meta.blocks() * 512 > 5 * MIB)
    });
    // Somebody else takes the rest.
    let hog = home.path("small/hog");
    let _ = fs::write(&hog, vec![1; 16 << 20]);
    running.wait().code_is(5).says(&[
        "small/data.bin: the disk is full",
        " in small/data.bin.swath.part: ",
        "the same command resumes from there",
    ]);
    assert!(!home.exists("small/data.bin"));
    fs::remove_file(hog).unwrap();
    server.set(Behaviour::rate(0));
    server.clear_log();
    let sent = server.sent_bytes();
    home.run(args).code_is(0);
    assert_eq!(home.read("small/data.bin"), content.read(0, 12 * MIB));
    let again = server.sent_bytes() - sent;
    assert!(again < 10 * MIB, "{again} bytes were fetched again");
}

#[test]
fn whoever_sends_hears_too_what_a_disk_that_filled_up_keeps() {
    // Who fetched was told that the same command goes on from there, who sent was not.
    let home = Home::new();
    let Some(_disk) = Small::mount(&home.path("small"), 48 * MIB) else { return };
    let server = home.serve(&["small", "--write", "--plain"]);
    home.write("token", server.token());
    home.write("tree/wide.bin", Content::random(5, 32 * MIB).read(0, 32 * MIB));
    let to = server.at("new/");
    let args = ["cp", "tree/", &to, "--bearer-file", "token"];
    let sending = home.swath(args.iter().chain(&["--limit-rate", "8M"])).start();
    home.wait_for_bytes("small/new.swath.part/wide.bin", 6 * MIB);
    let fill = vec![1; (20 * MIB) as usize];
    fs::write(home.path("small/other"), fill).unwrap();
    let ran = sending.wait();
    ran.code_is(5).says(&["No space left", "the same command resumes from there"]);
    ran.never_says(&["retrying", "asked again"]);
    fs::remove_file(home.path("small/other")).unwrap();
    let ran = home.run(args.iter().chain(&["--json"]));
    let end: serde_json::Value =
        serde_json::from_str(ran.code_is(0).out().lines().last().unwrap()).unwrap();
    assert!(end["resumed_bytes"].as_u64().unwrap() > 4 * MIB, "{ran}");
    assert_eq!(home.read("small/new/wide.bin"), home.read("tree/wide.bin"));
}

#[test]
fn a_plan_for_which_there_is_no_room_ends_as_the_copy_does() {
    // It ended with 0, and the copy itself before the first byte.
    for (way, home) in Way::all() {
        let Some(_small) = Small::mount(&home.path("copy"), 2 << 20) else { return };
        home.write("tree/a", bytes(1, 900_000));
        fs::hard_link(home.path("tree/a"), home.path("tree/b")).unwrap();
        // So much fits.
        way.sync(&home, &["--dry-run"]).code_is(0);
        way.sync(&home, &[]).code_is(0);
        home.write("tree/c", bytes(2, 700_000));
        let words = |options: &[&str]| {
            let ran = way.sync(&home, options);
            ran.code_is(5).says(&[" more, but only "]);
            assert_eq!(ran.out(), "");
            ran.stderr
                .split(" needs ")
                .last()
                .and_then(|it| it.split(',').next())
                .map(str::to_owned)
        };
        // With the small files whose blocks it shares.
        assert_eq!(words(&["--dry-run"]), words(&[]));
        // What had come before that was known is kept, and where something is, a plan promises nothing.
        for left in fs::read_dir(home.path("copy")).unwrap().map(|entry| entry.unwrap()) {
            if left.file_name().to_string_lossy().starts_with(".swath-stage") {
                let path = left.path();
                if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
                    .unwrap();
            }
        }
        let ran = way.sync(&home, &["--dry-run", "--json"]);
        let out = ran.code_is(5).out();
        let failed: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(failed["event"], "failed", "{ran}");
        way.sync(&home, &["--dry-run", "--exclude", "c"]).code_is(0).says(&["nothing to do"]);
        // What is to be made of further names counts too, and what is left alone does not.
        home.write("tree/c", bytes(2, 100_000));
        way.sync(&home, &["--dry-run"]).code_is(0);
        let ran = way.sync(&home, &["--dry-run", "--compare", "none"]);
        ran.code_is(5).says(&["needs 1.90 MB more, but only "]);
    }
}

#[test]
fn a_read_only_disk_is_named_with_the_reason() {
    let home = Home::new();
    let server = serve(&Content::random(6, 1000));
    let folder = home.path("ro");
    let Some(small) = Small::mount(&folder, MIB) else { return };
    small.read_only();
    home.run(["get", &server.url("/data.bin"), "-d", "ro"])
        .code_is(5)
        .says(&["cannot write into ro", "Read-only file system"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}
