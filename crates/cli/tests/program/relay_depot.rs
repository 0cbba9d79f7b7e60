//! A relay's depot, as clients of HTTP use it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use swath_netlab::faulty::{Behaviour, Content, Scope};

use crate::support::Home;
use crate::support::depot::until;
use crate::support::net::{FILE, honest, server, slow, url};
use crate::support::serve::{Served, succeeds};

const SIZE: u64 = 3_000_017;

#[test]
fn curl_stores_reads_extends_and_releases() {
    let home = Home::new();
    let content = Content::random(1, SIZE);
    let (front, back) = (content.read(0, 1_000_000), content.read(1_000_000, SIZE));
    home.write("front", front);
    home.write("back", back);
    let depot = home.depot("10M", &[]);
    assert!(depot.words.contains("depot        10.0 MB on disk"), "{}", depot.words);
    let curl = |args: &[&str]| {
        let usual = ["--silent", "--show-error", "--fail-with-body", "--max-time", "60"];
        succeeds(&home.work(), "curl", &[&usual[..], args].concat())
    };
    let target = depot.at(&format!("depot?size={SIZE}&lease=600"));
    let Some(told) = curl(&["-X", "POST", &target]) else { return };
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["size"], &told["medium"]), (&json!(SIZE), &json!("disk")));
    let at = |name: &str| format!("{}{}", depot.named(), told[name].as_str().unwrap());
    let last = SIZE - 1;
    let range = format!("Content-Range: bytes 1000000-{last}/{SIZE}");
    curl(&["-T", "back", "-H", &range, &at("write")]);
    curl(&["-T", "front", "-H", &format!("Content-Range: bytes 0-999999/{SIZE}"), &at("write")]);
    curl(&["-o", "got", &at("read")]);
    home.holds("got", &content);
    curl(&["-o", "part", "-r", "999990-1000009", &at("read")]);
    assert_eq!(home.read("part"), content.read(999_990, 1_000_010));
    let head = curl(&["-I", &at("read")]).unwrap().to_lowercase();
    assert!(head.contains(&format!("content-length: {SIZE}")), "{head}");
    assert!(head.contains("etag: \"depot-") && !head.contains("swath-held"), "{head}");
    let told = curl(&["-X", "POST", &format!("{}?extend=1200", at("manage"))]).unwrap();
    assert_eq!(told, "{\"lease_s\":1200.0}\n");
    curl(&["-X", "DELETE", &at("manage")]);
    let told = succeeds(&home.work(), "curl", &["-si", &at("read")]).unwrap();
    assert!(told.starts_with("HTTP/1.1 410 "), "{told}");
    // The same where all is encrypted, and the kernel cannot send files by itself.
    let sealed = ["relay", "--upstream", "127.0.0.1", "--clients", "127.0.0.0/8"];
    let sealed = [&sealed[..], &["--listen", "127.0.0.1:0", "--depot-memory", "10M"]].concat();
    let sealed = Served::of(home.swath(&sealed), &["--token-file"]);
    let target = sealed.at(&format!("depot?size={SIZE}&lease=600"));
    let told = curl(&["-k", "-X", "POST", &target]).unwrap();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["medium"], "memory");
    let at = |name: &str| format!("{}{}", sealed.named(), told[name].as_str().unwrap());
    curl(&["-k", "-T", "got", &at("write")]);
    curl(&["-k", "-o", "again", &at("read")]);
    home.holds("again", &content);
}

#[test]
fn what_was_acknowledged_outlives_a_kill_and_its_lease_goes_on() {
    let home = Home::new();
    let content = Content::random(2, SIZE);
    let depot = home.depot("10M", &[]);
    let lease = depot.allocate(SIZE, 600, "");
    depot.put(&lease, 1_000_000, SIZE, &content.read(1_000_000, 2_500_000)).is(204);
    depot.signal(9);
    drop(depot);
    let depot = home.depot("10M", &[]);
    let status = depot.status(&lease);
    assert_eq!(status["held"], json!([[1_000_000, 2_500_000]]));
    assert!(status["lease_s"].as_f64().unwrap() <= 600.0, "{status}");
    let part = depot.ask("GET", &lease.read, "Range: bytes=1000000-2499999\r\n", b"").is(206);
    assert!(part.body == content.read(1_000_000, 2_500_000));
    depot.put(&lease, 0, SIZE, &content.read(0, 1_000_000)).is(204);
    depot.put(&lease, 2_500_000, SIZE, &content.read(2_500_000, SIZE)).is(204);
    // All of it is what any web server has.
    let ran = home.run(["get", &format!("{}{}", depot.named(), lease.read), "-o", "got"]);
    ran.code_is(0);
    home.holds("got", &content);
}

#[test]
fn no_more_is_promised_than_there_is() {
    let home = Home::new();
    let depot = home.depot("1M", &["--depot-memory", "100k", "--max-lease", "1h"]);
    let one = depot.allocate(600_000, 3600, "");
    let told = depot.ask("POST", "/depot?size=600000&lease=60", "", b"").is(507);
    assert!(told.text().contains("bytes are free"), "{}", told.text());
    let two = depot.allocate(90_000, 3600, "&medium=memory");
    depot.ask("POST", "/depot?size=90000&lease=60&medium=memory", "", b"").is(507);
    depot.ask("POST", "/depot?size=10&lease=3601", "", b"").is(400);
    depot.ask("POST", "/depot?size=0&lease=60", "", b"").is(400);
    depot.ask("POST", "/depot?size=10&lease=60&lease=60", "", b"").is(400);
    depot.ask("POST", &format!("{}?extend=3601", one.manage), "", b"").is(400);
    depot.put(&two, 0, 90_000, &[7; 90_000]).is(204);
    let room = depot.ask("GET", "/depot", "", b"").is(200).json();
    assert_eq!(room["allocations"], 2);
    assert_eq!(room["lease_max_s"], 3600);
    let free = room["disk"]["free_bytes"].as_u64().unwrap();
    assert!((390_000..400_001).contains(&free), "{room}");
    depot.ask("DELETE", &one.manage, "", b"").is(204);
    depot.allocate(free + 500_000, 60, "");
    // A relay without a depot says so.
    let bare = home.relay(&[]);
    assert!(bare.ask("GET", "/depot", "", b"").is(404).text().contains("--depot"));
}

#[test]
fn each_capability_opens_one_thing() {
    let home = Home::new();
    let depot = home.depot("10M", &[]);
    let lease = depot.allocate(1000, 600, "");
    for (method, target) in [
        ("PUT", lease.read.clone()),
        ("PUT", lease.manage.clone()),
        ("GET", lease.write.clone()),
        ("GET", lease.manage.clone()),
        ("DELETE", lease.read.clone()),
        ("DELETE", lease.write.clone()),
        ("POST", format!("{}?extend=900", lease.write)),
        ("POST", format!("{}?from=http://127.0.0.1:9/&range=0-1", lease.read)),
    ] {
        let told = depot.ask(method, &target, "", b"").is(403);
        assert!(told.text().contains("this capability opens"), "{}", told.text());
    }
    let nobody = format!("/depot/{}", "0".repeat(64));
    let told = depot.ask("GET", &nobody, "", b"").is(404);
    assert!(told.head.contains("swath-lease: 0\r\n"), "{told:?}");
    let told = depot.ask("GET", "/depot/short", "", b"").is(404);
    assert!(!told.head.contains("swath-lease"), "{told:?}");
    for any in [&lease.read, &lease.write, &lease.manage] {
        depot.ask("GET", &format!("{any}?status"), "", b"").is(200);
    }
    // And nothing at all for those who may not use the relay.
    let other = home.relay(&["--depot-memory", "1M", "--clients", "192.0.2.0/24"]);
    other.ask("GET", "/depot", "", b"").is(403);
    other.ask("POST", "/depot?size=10&lease=60", "", b"").is(403);
}

#[test]
fn what_is_not_held_is_named_and_what_is_held_stays() {
    let home = Home::new();
    let depot = home.depot("10M", &[]);
    let lease = depot.allocate(1000, 600, "");
    depot.put(&lease, 100, 1000, &[1; 100]).is(204);
    depot.put(&lease, 300, 1000, &[2; 100]).is(204);
    for range in ["0-10", "100-200", "250-260", "0-"] {
        let told = depot.ask("GET", &lease.read, &format!("Range: bytes={range}\r\n"), b"").is(416);
        assert!(told.head.contains("swath-held: 100-199, 300-399\r\n"), "{}", told.head);
        assert!(told.head.contains("content-range: bytes */1000"), "{}", told.head);
    }
    depot.ask("GET", &lease.read, "", b"").is(416);
    depot.ask("GET", &lease.read, "Range: bytes=1000-\r\n", b"").is(416);
    let told = depot.ask("GET", &lease.read, "Range: bytes=150-199\r\n", b"").is(206);
    assert_eq!(told.body, [1; 50]);
    let etag = told.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let same = format!("Range: bytes=150-199\r\nIf-None-Match: {etag}\r\n");
    depot.ask("GET", &lease.read, &same, b"").is(304);
    depot.ask("GET", &lease.read, "Range: bytes=150-199\r\nIf-Match: \"x\"\r\n", b"").is(412);
    // The same bytes are taken again, others are not; what adjoins is.
    depot.put(&lease, 150, 1000, &[1; 20]).is(204);
    depot.put(&lease, 150, 1000, &[9; 20]).is(409);
    depot.put(&lease, 200, 1000, &[3; 100]).is(204);
    depot.put(&lease, 990, 999, &[3; 9]).is(409);
    depot.ask("PUT", &lease.write, "Content-Range: bytes 990-1009/*\r\n", &[3; 20]).is(413);
    depot.ask("PUT", &lease.write, "Content-Range: bytes 0-9/1000\r\n", &[3; 20]).is(400);
    depot.ask("PUT", &lease.write, "Content-Range: bytes */1000\r\n", &[3; 20]).is(400);
    assert_eq!(depot.status(&lease)["held"], json!([[100, 400]]));
    // Who goes away in the middle finds what came.
    let mut tcp = TcpStream::connect(depot.address()).unwrap();
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: a\r\nContent-Range: bytes 400-999/1000\r\nContent-Length: 600\r\n\r\n",
        lease.write
    );
    tcp.write_all(&[head.as_bytes(), &[4; 100]].concat()).unwrap();
    drop(tcp);
    until("what came is kept", || depot.status(&lease)["held"] == json!([[100, 500]]));
    depot.put(&lease, 500, 1000, &[5; 500]).is(204);
}

#[test]
fn a_depot_fetches_from_servers_through_relays_and_from_depots() {
    let home = Home::new();
    let content = Content::random(3, SIZE);
    let origin = honest(&content);
    let relay = home.relay(&["--log", "relay.log"]);
    let (one, two) = (home.depot("10M", &[]), home.relay(&["--depot-memory", "10M"]));
    let lease = one.allocate(SIZE, 600, "");
    let told = one.fetch(&lease, &url(&origin), 0, 2_000_000, "").is(200);
    assert_eq!(told.last(), json!({"done": true, "stored": 2_000_000}));
    let told = one.fetch(&lease, &relay.through(&url(&origin)), 2_000_000, SIZE, "").is(200);
    assert_eq!(told.last()["done"], true);
    assert!(one.ask("GET", &lease.read, "", b"").is(200).body == content.read(0, SIZE));
    // Another depot copies it, and nobody asks the origin for that.
    let asked = origin.log().on(FILE).count();
    let copy = two.allocate(SIZE, 600, "");
    let from = format!("{}{}", one.named(), lease.read);
    two.fetch(&copy, &from, 0, 1_000_000, "").is(200);
    two.fetch(&copy, &relay.through(&from), 500_000, SIZE, "").is(200);
    assert!(two.ask("GET", &copy.read, "", b"").is(200).body == content.read(0, SIZE));
    assert_eq!(origin.log().on(FILE).count(), asked);
    // What is stored already is not asked for again.
    let told = two.fetch(&copy, "http://127.0.0.1:9/", 0, SIZE, "").is(200);
    assert_eq!(told.text().lines().count(), 1, "{}", told.text());
    // No log holds a capability.
    let log = fs::read_to_string(home.path("relay.log")).unwrap();
    let digits = lease.read.strip_prefix("/depot/").unwrap();
    assert!(log.contains(&format!("/depot/{}...", &digits[..8])), "{log}");
    assert!(!log.contains(digits), "{log}");
}

#[test]
fn a_depot_says_why_it_could_not_fetch() {
    let home = Home::new();
    let content = Content::random(4, SIZE);
    let origin = honest(&content);
    let depot = home.depot("20M", &["--log", "depot.log", "--timeout", "2s"]);
    let lease = depot.allocate(SIZE, 600, "");
    let refused = |from: &str, fields: &str, status: u16, words: &str| {
        let told = depot.fetch(&lease, from, 0, SIZE, fields).is(status);
        assert!(told.text().contains(words), "{}", told.text());
    };
    let port = origin.port();
    refused(&format!("http://127.0.0.2:{port}{FILE}"), "", 403, "not among those");
    refused("http://localhost:9/", "", 403, "not among those");
    refused("http://127.0.0.1:9/", "", 502, "127.0.0.1:9");
    refused(&origin.url("/nothing"), "", 502, "404");
    refused(&url(&origin), "If-Match: \"another\"\r\n", 409, "changed");
    let short = honest(&Content::random(4, 1000));
    refused(&url(&short), "", 409, "1000 bytes there");
    refused("ftp://127.0.0.1/", "", 400, "from=");
    depot.fetch(&lease, &url(&origin), 5, SIZE + 1, "").is(413);
    // What came before the server died is kept, and only the rest is asked for then.
    let dying = server(&content, Behaviour::die_after(1_000_000));
    let told = depot.fetch(&lease, &url(&dying), 0, SIZE, "").is(200).last();
    assert!(told["error"].is_string() && told["status"] == 502, "{told}");
    let held = depot.status(&lease)["held"][0][1].as_u64().unwrap();
    assert!((1..=1_000_000).contains(&held), "{held}");
    depot.fetch(&lease, &url(&origin), 0, SIZE, "").is(200);
    let first = origin.log().on(FILE).all(|it| {
        it.header("range")
            .is_some_and(|it| !it.starts_with("bytes=0-") || it.contains(&format!("-{}", SIZE - 1)))
    });
    assert!(first);
    assert!(depot.ask("GET", &lease.read, "", b"").is(200).body == content.read(0, SIZE));
    let log = fs::read_to_string(home.path("depot.log")).unwrap();
    assert!(!log.contains(&lease.write[..40]) && !log.contains("from="), "{log}");
}

#[test]
fn what_came_before_a_server_fell_silent_is_durable_and_free_for_others() {
    let home = Home::new();
    let content = Content::random(5, SIZE);
    let lasts = Duration::from_secs(600);
    let stall = Behaviour::Stall { after_bytes: 1_000_000, lasts, scope: Scope::Server };
    let (hung, honest) = (server(&content, stall), honest(&content));
    let depot = home.depot("20M", &[]);
    let lease = depot.allocate(SIZE, 600, "");
    let mut tcp = TcpStream::connect(depot.address()).unwrap();
    let target = format!("{}?from={}&range=0-{}", lease.write, url(&hung), SIZE - 1);
    write!(tcp, "POST {target} HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
    until("what came is held", || depot.status(&lease)["held"][0][1] == 1_000_000);
    // What is durable is claimed by nobody, so that others bring the rest.
    depot.fetch(&lease, &url(&honest), 0, SIZE, "").is(200);
    assert!(depot.ask("GET", &lease.read, "", b"").is(200).body == content.read(0, SIZE));
}

#[test]
fn a_lease_that_ends_ends_what_is_read_and_gives_its_space_back() {
    let home = Home::new();
    let size = 40_000_000;
    let depot = home.depot("50M", &["--depot-memory", "1M"]);
    let lease = depot.allocate(size, 600, "");
    let (small, least) = (depot.allocate(1000, 1, ""), depot.allocate(1000, 1, "&medium=memory"));
    depot.put(&lease, 0, size, &vec![7; size as usize]).is(204);
    // More than all the buffers on the way hold.
    let mut tcp = TcpStream::connect(depot.address()).unwrap();
    let head = format!("GET {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", lease.read);
    tcp.write_all(head.as_bytes()).unwrap();
    let mut got = vec![0; 1000];
    tcp.read_exact(&mut got).unwrap();
    depot.ask("DELETE", &lease.manage, "", b"").is(204);
    for ending in [&small, &least] {
        until("it ends", || {
            let told = depot.ask("GET", &format!("{}?status", ending.read), "", b"");
            assert!(told.status == 200 || told.status == 410, "{told:?}");
            told.status == 410
        });
    }
    // The other end may be a reset.
    let _ = tcp.read_to_end(&mut got);
    assert!((1000..size as usize).contains(&got.len()), "{}", got.len());
    let body = got.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(got[body..].iter().all(|&byte| byte == 7), "missing, not wrong");
    for (method, target) in [("GET", &lease.read), ("PUT", &lease.write), ("DELETE", &small.manage)]
    {
        let told = depot.ask(method, target, "", b"").is(410);
        assert!(told.head.contains("swath-lease: 0\r\n"), "{told:?}");
    }
    let taken = |page: &str| {
        let line = page.lines().find(|line| line.starts_with("swath_depot_allocations "));
        line.and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
    };
    let page = depot.ask("GET", "/metrics", "", b"").text();
    assert_eq!(taken(&page).as_deref(), Some("0"), "{page}");
    assert!(page.contains("swath_depot_stored_bytes_total 40000000\n"), "{page}");
    until("its file is gone", || fs::read_dir(home.path("depot/leases")).unwrap().count() == 0);
    depot.allocate(49_000_000, 60, "");
}

#[test]
fn a_depot_promises_no_more_than_its_disk_has() {
    // `--depot-size 500T` on a small disk started silently, told of 500 T, and refused what that disk
    // has no room for as if others had filled it.
    let home = Home::new();
    let depot = home.depot("500T", &[]);
    depot.says("--depot-size 500 TB: the disk has only ");
    let free = |depot: &Served| {
        let room = depot.ask("GET", "/depot", "", b"").is(200).json();
        room["disk"]["free_bytes"].as_u64().unwrap()
    };
    assert!(free(&depot) < 500_000_000_000_000, "no test runs on such a disk");
    let told = depot.ask("POST", "/depot?size=400000000000000&lease=60", "", b"").is(507);
    let text = told.text();
    assert!(text.contains("disk has only ") && text.contains(" bytes free"), "{text}");
    drop(depot);
    let depot = home.depot("1M", &[]);
    assert_eq!(free(&depot), 1_000_000);
}

#[test]
fn files_that_are_taken_away_from_under_a_depot_are_missed() {
    // What lay there stayed "held" or "whole"; who read it got a 500, and nobody was told why.
    let home = Home::new();
    let content = Content::random(5, SIZE);
    // So slow that the depot has answered before all has come from there.
    let origin = slow(&content, 3_000_000);
    let depot = home.depot("20M", &["--depot-memory", "1M"]);
    let at = depot.named();
    let address = url(&origin);
    let stage = ["stage", &address, "--at", &at, "--for", "1h", "-o", "staged.meta4"];
    home.run(stage).code_is(0);
    let lease = depot.allocate(SIZE, 600, "");
    depot.put(&lease, 0, SIZE, &content.read(0, SIZE)).is(204);
    for entry in fs::read_dir(home.path("depot/leases")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let status = home.run(["stage", "status", "staged.meta4"]);
    let out = status.code_is(7).out();
    assert!(out.contains("was removed from its disk") && !out.contains("whole"), "{out}");
    let status = format!("{}?status", lease.read);
    for target in [&lease.read, &status] {
        let told = depot.ask("GET", target, "", b"").is(410);
        assert!(told.head.contains("swath-lost: ") && told.text().contains("removed"), "{told:?}");
    }
    depot.put(&lease, 0, SIZE, b"more").is(410);
    depot.says("depot: files of allocations were removed: their data is lost");
    home.run(["get", "staged.meta4", "-o", "got"])
        .code_is(0)
        .says(&["removed from the depot's disk"]);
    home.holds("got", &content);
    // The depot goes on, and what is lost is given up.
    home.run(["stage", "release", "staged.meta4"]).code_is(0);
    depot.ask("DELETE", &lease.manage, "", b"").is(204);
    let again = [&stage[..], &["--overwrite"]].concat();
    home.run(&again).code_is(0).says(&["whole"]);
    fs::remove_dir_all(home.path("depot")).unwrap();
    depot.says("leases: the folder of the depot was removed or replaced");
    home.run(["stage", "status", "staged.meta4"]).code_is(7);
    depot.ask("POST", "/depot?size=10&lease=60", "", b"").is(500);
    home.run(&again).code_is(7).says(&["the depot's disk"]);
    let room = depot.ask("GET", "/depot", "", b"").is(200).json();
    assert_eq!(room["allocations"], 1, "{room}");
    home.run(["stage", "release", "staged.meta4"]).code_is(0);
    depot.allocate(1000, 60, "&medium=memory");
}

#[test]
fn a_cache_without_its_folder_says_so() {
    let home = Home::new();
    let origin = honest(&Content::random(6, SIZE));
    let relay = home.relay(&["--cache", "kept"]);
    fs::remove_dir_all(home.path("kept")).unwrap();
    relay.says("files: the folder of the cache was removed or replaced");
    home.run(["get", &relay.through(&url(&origin)), "-o", "got"]).code_is(0);
}

#[test]
fn more_memory_than_there_is_is_told_at_the_start() {
    let home = Home::new();
    let relay = home.relay(&["--depot-memory", "900000T"]);
    relay.says("warning: --depot-memory 900 PB: this machine has only ");
}
