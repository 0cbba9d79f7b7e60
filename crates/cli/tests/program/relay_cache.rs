//! `--cache`: what transfers have of a relay that keeps what passes, what it tells its operator, and the
//! memory that a thousand clients take. (What it keeps and for whom is tested in the crate
//! `swath-relay`.)

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use swath_netlab::faulty::{Behaviour, Content, Scope};

use crate::support::depot::until;
use crate::support::net::{FILE, honest, server, url};
use crate::support::relay::{Ear, head_of};
use crate::support::serve::Served;
use crate::support::{Home, peak_bytes};

const MIB: u64 = 1 << 20;

fn caching(home: &Home, more: &[&str]) -> Served {
    home.relay(&[&["--cache", "kept"], more].concat())
}

#[test]
fn four_transfers_make_one_copy() {
    let home = Home::new();
    let content = Content::random(1, 12 * MIB + 17);
    // It waits in the middle until all have begun.
    let lasts = Duration::from_secs(600);
    let stall = Behaviour::Stall { after_bytes: 3 * MIB, lasts, scope: Scope::Server };
    let origin = server(&content, stall);
    let relay = caching(&home, &[]);
    let transfers: Vec<_> = (0..4)
        .map(|at| {
            let name = format!("got{at}");
            let ear = Ear::before(relay.address(), |_| {});
            let args = ["get", &url(&origin), "-o", &name, "--route", &ear.url()];
            let running = home.swath(args).start();
            (name, ear, running)
        })
        .collect();
    for (name, ear, _) in &transfers {
        until(&format!("{name} is asked for"), || ear.heard("GET /relay/http://"));
    }
    origin.clear();
    for (name, _, running) in transfers {
        running.wait().code_is(0);
        home.holds(&name, &content);
    }
    // swath asks the origin itself too, for a few bytes: by way of the relay it is one copy.
    let by_relay: u64 = origin
        .log()
        .on(FILE)
        .filter(|one| one.header("via").is_some())
        .map(|one| one.delivered().map_or(0, |range| range.end - range.start))
        .sum();
    assert!(by_relay as f64 <= content.size_bytes() as f64 * 1.02, "{by_relay}");
}

#[test]
fn a_thousand_clients_are_one_within_bounded_memory() {
    let home = Home::new();
    let content = Content::random(10, 4 * MIB);
    let origin = honest(&content);
    let relay = caching(&home, &[]);
    let to = relay.through(&url(&origin));
    let target = &to[relay.named().len()..];
    let mut all: Vec<TcpStream> =
        (0..1000).map(|_| TcpStream::connect(relay.address()).unwrap()).collect();
    for (at, tcp) in all.iter_mut().enumerate() {
        let start = at * 4000;
        let range = format!("bytes={start}-{}", start + 3999);
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nRange: {range}\r\n\r\n");
        tcp.write_all(request.as_bytes()).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    }
    for (at, tcp) in (0u64..).zip(&mut all) {
        let head = head_of(tcp).unwrap();
        assert!(head.starts_with("HTTP/1.1 206 "), "{at}: {head}");
        let mut came = vec![0; 4000];
        tcp.read_exact(&mut came).unwrap();
        assert!(came == content.read(at * 4000, at * 4000 + 4000), "{at}");
    }
    // What was on its way when the last who waited for it left may come twice.
    let sent = origin.log().sent_bytes(FILE);
    assert!(sent <= content.size_bytes() * 11 / 10, "{sent}");
    let peak_mib = peak_bytes(relay.pid()).unwrap() >> 20;
    assert!(peak_mib < 300, "{peak_mib} MiB");
}

#[test]
fn damaged_files_are_told_of() {
    let home = Home::new();
    let content = Content::random(11, 4 * MIB);
    let origin = honest(&content);
    let get = |relay: &Served| {
        let to = relay.through(&url(&origin));
        let told = relay.ask("GET", &to[relay.named().len()..], "", b"").is(200);
        assert!(told.body == content.read(0, content.size_bytes()));
    };
    let relay = caching(&home, &[]);
    get(&relay);
    relay.signal(15);
    relay.wait();
    let names = home.names_in("kept/files");
    assert_eq!(names.len(), 1);
    let path = home.path("kept/files").join(&names[0]);
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(b"not what came", 2 * MIB + 12_345).unwrap();
    let relay = caching(&home, &[]);
    get(&relay);
    // What is wrong with a disk was told to nobody. What may open something is not part of it.
    relay.says("warning: cached bytes are damaged url=http://127.0.0.1:");
    // A folder that another relay has open is refused, and so is one that cannot be.
    let args = ["relay", "--plain", "--upstream", "127.0.0.1", "--clients", "127.0.0.0/8"];
    let more = ["--listen", "127.0.0.1:0", "--cache", "kept"];
    let ran = home.run([&args[..], &more].concat());
    ran.code_is(6).says(&["in use by another process"]);
}

#[test]
fn a_relay_that_is_killed_has_what_it_kept() {
    let home = Home::new();
    let content = Content::random(2, 3 * MIB + 5);
    let origin = honest(&content);
    let get = |relay: &Served| {
        let to = relay.through(&url(&origin));
        let told = relay.ask("GET", &to[relay.named().len()..], "", b"").is(200);
        assert!(told.body == content.read(0, content.size_bytes()));
    };
    let relay = caching(&home, &[]);
    get(&relay);
    relay.signal(9);
    relay.wait();
    get(&caching(&home, &[]));
    until("the server has sent it once", || origin.log().sent_bytes(FILE) == content.size_bytes());
}

#[test]
fn a_cache_that_was_promised_more_than_its_disk_has_says_so() {
    // It began without a word, and filled the disk.
    let home = Home::new();
    let relay = home.relay(&["--cache", "cache", "--cache-size", "900000T"]);
    relay.says("warning: --cache-size ");
    relay.says("the disk has room for only ");
}

#[test]
fn a_cache_without_its_folder_says_so() {
    let home = Home::new();
    let origin = honest(&Content::random(6, 3_000_017));
    let relay = home.relay(&["--cache", "kept"]);
    fs::remove_dir_all(home.path("kept")).unwrap();
    relay.says("files: the folder of the cache was removed or replaced");
    home.run(["get", &relay.through(&url(&origin)), "-o", "got"]).code_is(0);
}
