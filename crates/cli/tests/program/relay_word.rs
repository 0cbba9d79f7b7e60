//! What relays say of a file, where nothing that came another way proves it.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use crate::support::depot::until;
use crate::support::net::{building, honest, sha256, url};
use crate::support::relay::Ear;
use crate::support::serve::Served;
use crate::support::{Home, Ran, Swath};
use swath_netlab::faulty::{Algorithm, Behaviour, Content, DigestField, Scope, Server};

const SIZE: u64 = 3_000_017;

const DIGEST: Behaviour = Behaviour::DigestHeader {
    field: DigestField::ReprDigest,
    algorithm: Algorithm::Sha256,
    right: true,
};

/// A server that tells the digest of what it has.
fn telling(content: &Content) -> Server {
    building(content).behaviour(DIGEST).start().unwrap()
}

/// A relay that fetches another file of the same size in place of the one that it is asked for, and
/// tells that one's digest.
struct Liar {
    ear: Ear,
    _relay: Served,
    _other: Server,
}

impl Liar {
    fn about(home: &Home, content: &Content, origin: &Server) -> Liar {
        let other = telling(content);
        let relay = home.relay(&[]);
        let ear = Ear::leading_astray(relay.address(), &site(&url(origin)), &site(&url(&other)));
        Liar { ear, _relay: relay, _other: other }
    }
}

fn site(url: &str) -> String {
    url.split('/').nth(2).unwrap().to_owned()
}

fn summary(ran: &crate::support::Ran) -> serde_json::Value {
    let out = ran.out();
    let line = out.lines().rfind(|line| line.contains("\"finished\"")).unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}:\n{ran}"))
}

#[test]
fn without_a_digest_the_end_says_that_relays_could_have_changed_it() {
    let home = Home::new();
    let content = Content::random(71, SIZE);
    let origin = honest(&content);
    let relay = home.relay(&[]);
    for more in [&[][..], &["--end-to-end"]] {
        let args = ["get", &url(&origin), "-o", "got", "--overwrite", "--route", &relay.named()];
        let ran = home.run([&args[..], more].concat());
        ran.code_is(0);
        let words =
            "NOT VERIFIED: no digest of it is known, and relays could have changed the 3.00 MB";
        assert!(ran.all().contains(words), "{ran}");
        let ran = home.run([&args[..], more, &["--json", "--report", "report.html"]].concat());
        assert_eq!(summary(ran.code_is(0))["proved"], false);
        let report = String::from_utf8(home.read("report.html")).unwrap();
        assert!(
            report.contains("not verified: no digest of it is known, and relays could have"),
            "{more:?}"
        );
    }
    // A digest that came another way proves it.
    let digest = sha256(&content);
    let args =
        ["get", &url(&origin), "-o", "proved", "--digest", &digest, "--route", &relay.named()];
    assert!(home.run(args).code_is(0).all().contains("verified by sha-256"));
}

#[test]
fn a_digest_counts_when_the_source_itself_tells_it() {
    let home = Home::new();
    let content = Content::random(72, SIZE);
    let origin = telling(&content);
    let relay = home.relay(&[]);
    let args = ["get", &url(&origin), "-o", "got", "--json", "--route", &relay.named()];
    let told = summary(home.run(args).code_is(0));
    assert_eq!((&told["proved"], &told["digest_from"]), (&true.into(), &"server".into()));
    assert_eq!(asked_directly(&origin), ["HEAD"]);
}

/// What came without a relay: one question, for the head alone.
fn asked_directly(origin: &Server) -> Vec<String> {
    let log = origin.log();
    let direct = log.on("/data.bin").filter(|it| it.header("via").is_none());
    direct.map(|it| it.method.clone()).collect()
}

#[test]
fn a_relay_that_passes_on_another_file_with_its_digest_is_found_out_by_the_source() {
    // All of it fitted together: nobody but the source could know.
    let home = Home::new();
    let (content, other) = (Content::random(73, SIZE), Content::random(74, SIZE));
    let origin = telling(&content);
    let liar = Liar::about(&home, &other, &origin);
    let args = ["get", &url(&origin), "-o", "got", "--route", &liar.ear.url()];
    let ran = home.run(args);
    ran.code_is(0).says(&["relays delivered other bytes than the source has"]);
    home.holds("got", &content);
}

#[test]
fn a_digest_that_a_relay_withholds_is_asked_of_the_source() {
    let home = Home::new();
    let content = Content::random(77, SIZE);
    let origin = telling(&content);
    let relay = home.relay(&[]);
    let ear = Ear::before(relay.address(), |bytes| {
        let name = b"repr-digest:";
        for at in 0..(bytes.len() + 1).saturating_sub(name.len()) {
            if bytes[at..at + name.len()].eq_ignore_ascii_case(name) {
                bytes[at] = b'x';
            }
        }
    });
    let args = ["get", &url(&origin), "-o", "got", "--json", "--route", &ear.url()];
    let told = summary(home.run(args).code_is(0));
    assert_eq!((&told["proved"], &told["verified_by"]), (&true.into(), &"sha-256".into()));
    assert_eq!(asked_directly(&origin), ["HEAD"]);
    home.holds("got", &content);
}

#[test]
fn what_nobody_can_be_asked_about_is_not_said_to_be_proved() {
    let home = Home::new();
    let (content, other) = (Content::random(75, SIZE), Content::random(76, SIZE));
    let origin = telling(&content);
    let liar = Liar::about(&home, &other, &origin);
    let from = url(&origin);
    drop(origin);
    let ran = home.run(["get", &from, "-o", "got", "--route", &liar.ear.url()]);
    ran.code_is(0);
    let words = "NOT VERIFIED: its sha-256 and 3.00 MB of its data came by relays";
    assert!(ran.all().contains(words), "{ran}");
}

#[test]
fn what_relays_could_have_changed_is_a_warning_in_every_mode() {
    // A relay that flipped bits gave wrong files with exit code 0, and under --quiet, or in a list,
    // without a word.
    let home = Home::new();
    let content = Content::random(78, SIZE);
    let origin = honest(&content);
    let relay = home.relay(&[]);
    let (from, by) = (url(&origin), relay.named());
    let list = format!("{from}\n\tout=a\n{from}\n\tout=b\n");
    home.write("list", list);
    let all: [&[&str]; 8] = [
        &["get", &from, "-o", "got", "--quiet"],
        &["get", &from, "-o", "got"],
        &["get", &from, "-o", "-"],
        &["get", &from, "-o", "-", "--quiet"],
        &["get", "-i", "list"],
        &["get", "-i", "list", "--quiet"],
        &["cp", &from, "copy"],
        &["cp", &from, "copy", "--quiet"],
    ];
    let warnings = |args: &[&str], more: &[&str]| {
        let overwrite: &[&str] = if args[0] == "get" { &["--overwrite"] } else { &[] };
        let _ = std::fs::remove_file(home.path("copy"));
        let ran = home.run([args, overwrite, more].concat());
        ran.code_is(0);
        // Of a list it is told once, whatever the number of its files.
        let (words, digest) = match args.contains(&"list") {
            true => (OF_LIST, "digests in the list"),
            false => (WARNING, "--digest"),
        };
        let is_one = |line: &&str| line.starts_with("warning: ") && line.contains(words);
        let told: Vec<&str> = ran.stderr.lines().filter(is_one).collect();
        let says_what_to_do = |word: &&str| told.iter().all(|line| line.contains(word));
        assert!([digest, "--end-to-end", "--route direct"].iter().all(says_what_to_do), "{ran}");
        told.len()
    };
    for args in all {
        assert_eq!(warnings(args, &["--route", &by]), 1, "{args:?}");
        assert_eq!(warnings(args, &["--relay", &by, "--route", "direct"]), 0, "{args:?}");
    }
    let digest = sha256(&content);
    assert_eq!(warnings(all[0], &["--route", &by, "--digest", &digest]), 0);
    let out = home.run(["get", &from, "-o", "json", "--json", "--route", &by]).out();
    let is_event = |line: &str| line.contains("\"warning\":true") && line.contains(WARNING);
    assert!(out.lines().any(is_event), "{out}");
    // To programs it is told of each file.
    let list = ["get", "-i", "list", "--overwrite", "--json", "--route", &by];
    let out = home.run(list).code_is(0).out();
    assert_eq!(out.lines().filter(|line| is_event(line)).count(), 2, "{out}");
}

#[test]
fn a_list_says_which_bytes_came_which_way() {
    // All of it was said to have come from its origin, directly.
    let home = Home::new();
    let content = Content::random(80, SIZE);
    let origin = honest(&content);
    let relay = home.relay(&[]);
    let from = url(&origin);
    home.write("list", format!("{from}\n\tout=a\n{from}\n\tout=b\n"));
    let way = format!("{} by {}", site(&from), site(&relay.url));
    let get = ["get", "-i", "list", "--overwrite", "--route", &relay.named()];
    let ran = home.run(get);
    ran.code_is(0);
    let row = ran.stderr.lines().find(|line| line.trim_start().starts_with(&way));
    assert!(row.is_some_and(|row| row.contains("6.00 MB") && row.contains("100 %")), "{ran}");
    let ran = home.run([&get[..], &["--json", "--report", "report.html"]].concat());
    let out = ran.code_is(0).out();
    let end = out.lines().rfind(|line| line.contains("\"list_finished\"")).unwrap_or_default();
    let end: serde_json::Value = serde_json::from_str(end).unwrap();
    let sources = end["sources"].as_array().unwrap();
    assert_eq!(sources[0]["name"], site(&from), "{end}");
    assert_eq!(sources[0]["relays"], serde_json::json!([site(&relay.url)]), "{end}");
    assert_eq!(sources[0]["bytes"], 2 * SIZE, "{end}");
    let report = String::from_utf8(home.read("report.html")).unwrap();
    assert!(report.contains(&way), "{report}");
}

/// What a relay with bad memory, or bad intentions, makes of what it passes on: heads are not touched.
fn spoil(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().step_by(256).filter(|byte| !byte.is_ascii()) {
        *byte ^= 1;
    }
}

/// The same, and the file's tag reads otherwise.
fn spoil_and_rename(bytes: &mut [u8]) {
    spoil(bytes);
    let head = &bytes[..bytes.len().min(1000)].to_ascii_lowercase();
    if let Some(at) = head.windows(7).position(|it| it == b"etag: \"") {
        bytes[at + 7] ^= 1;
    }
}

#[test]
fn a_relay_that_gives_the_file_another_tag_is_found_out_too() {
    // What the source said was taken for another version, and nothing was compared any more.
    let home = Home::new();
    let content = Content::random(81, 12 << 20);
    let origin = building(&content).start().unwrap();
    let relay = home.relay(&[]);
    let ear = Ear::before(relay.address(), spoil_and_rename);
    let args = ["get", &url(&origin), "-o", "got", "--relay", &ear.url(), "--route", "multi"];
    slow_until_by_relay(home.swath(args), &origin).code_is(0);
    home.holds("got", &content);
}

#[test]
fn a_relay_that_changes_what_it_passes_on_is_found_out_by_samples() {
    // The source tells no digest: the file was wrong, and a warning said that it might be.
    let home = Home::new();
    let content = Content::random(79, 12 << 20);
    let origin = building(&content).start().unwrap();
    let relay = home.relay(&[]);
    let ear = Ear::before(relay.address(), spoil);
    let from = url(&origin);
    let found = "delivered other bytes than its source has, at byte ";
    for more in [&["--route", &ear.url()][..], &["--relay", &ear.url(), "--route", "multi"]] {
        let get = home.swath([&["get", &from, "-o", "got", "--overwrite"], more].concat());
        slow_until_by_relay(get, &origin).code_is(0).says(&[found, "are fetched again"]);
        home.holds("got", &content);
    }
    // What is written to a stream cannot be taken back.
    let ran = home.run(["get", &from, "-o", "-", "--route", &ear.url()]);
    ran.code_is(3).says(&[found]);
    // Of an honest one some is compared as well.
    let ran = home.run(["get", &from, "-o", "good", "--route", &relay.named()]);
    ran.code_is(0).says(&["at random places were compared with the source and are right"]);
    home.holds("good", &content);
}

/// Runs a transfer whose connections are narrow, so that a relay is worth trying, and wider when one
/// has brought something, or is left already.
fn slow_until_by_relay(get: Swath, origin: &Server) -> Ran {
    let by_relay = || {
        let records = origin.log().records;
        let passed = records.iter().filter(|it| it.header("via").is_some());
        passed.map(|it| it.sent_bytes).sum::<u64>()
    };
    let (before, sent_before) = (by_relay(), origin.sent_bytes());
    origin.set(Behaviour::ConnectionRate { bytes_per_s: 128 << 10 });
    let getting = get.start();
    until("the relay is in use", || {
        by_relay() > before + (384 << 10) || origin.sent_bytes() > sent_before + (3 << 20)
    });
    origin.set(Behaviour::ConnectionRate { bytes_per_s: 2 << 20 });
    let ran = getting.wait();
    origin.clear();
    ran
}

/// Begins a transfer and ends it when the origin has sent so many bytes: it sends no more then.
fn begin(home: &Home, origin: &Server, route: &str, bytes: u64) {
    let after_bytes = origin.sent_bytes() + bytes;
    let lasts = Duration::from_secs(600);
    origin.set(Behaviour::Stall { after_bytes, lasts, scope: Scope::Server });
    let getting = home.swath(["get", &url(origin), "-o", "got", "--route", route]).start();
    until("some of it came", || origin.sent_bytes() >= after_bytes);
    getting.signal(libc::SIGINT);
    getting.wait().code_is(130);
    origin.clear();
}

#[test]
fn what_a_relay_changed_in_an_earlier_run_is_found_out_too() {
    // Whoever went on without it was told nothing of relays, and had a wrong file.
    let home = Home::new();
    let content = Content::random(80, 24 << 20);
    let origin = building(&content).start().unwrap();
    let relay = home.relay(&[]);
    begin(&home, &origin, &relay.named(), 12 << 20);
    // As if the relay had done it, too seldom for the few samples that a named route allows.
    let part = File::options().read(true).write(true).open(home.path("got.swath.part")).unwrap();
    for at in (0..24 << 20).step_by(30_000) {
        let mut byte = [0];
        part.read_exact_at(&mut byte, at).unwrap();
        part.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
    let ran = home.run(["get", &url(&origin), "-o", "got"]);
    ran.code_is(0).says(&["in an earlier run, other bytes than its source has", "fetched again"]);
    home.holds("got", &content);
    // Of an honest one it is told that it could have.
    fs::remove_file(home.path("got")).unwrap();
    begin(&home, &origin, &relay.named(), 12 << 20);
    let ran = home.run(["get", &url(&origin), "-o", "got", "--quiet"]);
    ran.code_is(0).says(&["relays could have changed the", "compared with the source"]);
    home.holds("got", &content);
}

#[test]
fn what_came_by_the_same_relay_on_another_way_is_fetched_again_too() {
    // Of what came by a relay and another one nothing was held against the first: it was kept.
    let home = Home::new();
    let content = Content::random(81, 24 << 20);
    let origin = building(&content).start().unwrap();
    let (one, two) = (home.relay(&[]), home.relay(&[]));
    let begin = |route: &str| begin(&home, &origin, route, 8 << 20);
    let right = content.read(0, 24 << 20);
    let is_there = || {
        let part = home.read("got.swath.part");
        let blocks = part.chunks(4096).zip(right.chunks(4096));
        blocks.map(|(ours, theirs)| ours == theirs).collect::<Vec<bool>>()
    };
    begin(&one.named());
    let first = is_there();
    begin(&format!("{},{}", one.named(), two.named()));
    let part = File::options().read(true).write(true).open(home.path("got.swath.part")).unwrap();
    let spoil = |block: usize| {
        let (at, mut byte) = (block as u64 * 4096, [0]);
        part.read_exact_at(&mut byte, at).unwrap();
        part.write_all_at(&[byte[0] ^ 1], at).unwrap();
    };
    // One byte of what the first one alone brought, which no sample is likely to find, and much of the rest.
    spoil(first.iter().position(|&is_there| is_there).unwrap());
    let second: Vec<bool> = is_there();
    let later = (0..second.len()).filter(|&at| second[at] && !first.get(at).is_some_and(|it| *it));
    later.step_by(3).for_each(spoil);
    let ran = home.run(["get", &url(&origin), "-o", "got", "--route", "direct"]);
    ran.code_is(0).says(&["in an earlier run, other bytes than its source has", "fetched again"]);
    home.holds("got", &content);
}

#[test]
fn a_relay_that_loses_its_place_is_left() {
    // A byte that was left out moved what followed in that answer, and the next one began with "TTP/1.1".
    let home = Home::new();
    let content = Content::random(81, 12 << 20);
    let origin = building(&content).start().unwrap();
    let relay = home.relay(&[]);
    let leaky = leaky(relay.address(), 128 << 10);
    let args = ["get", &url(&origin), "-o", "got", "--relay", &leaky, "--route", "multi"];
    let ran = slow_until_by_relay(home.swath(args), &origin);
    ran.code_is(0).says(&["it is dropped, and the"]);
    home.holds("got", &content);
}

#[test]
fn a_byte_lost_in_the_last_answer_is_noticed() {
    // Nothing came behind it that had moved: the last byte was asked for elsewhere, and the rest counted.
    let home = Home::new();
    let content = Content::random(82, 300_000);
    let origin = building(&content).start().unwrap();
    let relay = home.relay(&[]);
    for at in [100_000, 250_000, 290_000] {
        let leaky = leaky(relay.address(), at);
        let ran = home.run(["get", &url(&origin), "-o", "got", "--overwrite", "--route", &leaky]);
        ran.code_is(0).says(&["delivered other bytes than its source has", "fetched again"]);
        home.holds("got", &content);
    }
}

/// In front of a relay: of each connection one byte is lost, behind so many.
fn leaky(relay: SocketAddr, behind_bytes: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut tcp in listener.incoming().flatten() {
            let Ok(mut on) = TcpStream::connect(relay) else { return };
            let (mut back, mut asked) = (tcp.try_clone().unwrap(), on.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut tcp, &mut asked));
            std::thread::spawn(move || {
                let (mut part, mut passed, mut is_lost) = ([0; 16 << 10], 0, false);
                while let Ok(bytes) = on.read(&mut part) {
                    let skipped = usize::from(!is_lost && passed > behind_bytes);
                    is_lost |= skipped > 0;
                    passed += bytes;
                    if bytes == 0 || back.write_all(&part[skipped..bytes]).is_err() {
                        break;
                    }
                }
                let _ = back.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    url
}

#[test]
fn the_question_for_the_digest_is_no_news() {
    // "data.bin is a Metalink: 1 file, 1 mirror" was said of a plain file, and its beginning twice.
    let home = Home::new();
    home.write("shared/data.bin", vec![7; 3_000_017]);
    let served = home.serve(&["shared", "--anonymous", "--plain"]);
    let relay = home.relay(&[]);
    let from = format!("{}data.bin", served.url);
    for more in [&[][..], &["--route", &relay.named()]] {
        let ran = home.run([&["get", &from, "-o", "got", "--overwrite"], more].concat());
        ran.code_is(0).says(&["verified by sha-256"]).never_says(&["Metalink"]);
        assert_eq!(ran.stderr.matches("got from ").count(), 1, "{ran}");
        assert_eq!(ran.stderr.matches("verifying by").count(), 1, "{ran}");
    }
}

const OF_LIST: &str =
    "no digest of 2 files came without relays, which could have changed the 6.00 MB";
const WARNING: &str = "no digest of it is known, and relays could have changed the 3.00 MB";
