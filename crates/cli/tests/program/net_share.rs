//! `swath get --share`: the machines of a cluster fetch a file together.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use swath_netlab::faulty::Content;

use crate::support::nginx::Nginx;
use crate::support::serve::Served;
use crate::support::{Home, Ran, Running};
use swath_netlab::free_port;

const SIZE: u64 = 8 << 20;
const SECRET: &str = "of-the-test-cluster";

/// A cluster in a folder of its own, with a tracker and an origin.
struct Cluster {
    home: Home,
    tracker: Served,
    origin: Nginx,
    content: Content,
}

impl Cluster {
    /// `None` without nginx. Each connection to the origin brings so much a second.
    fn start(rate: &str) -> Option<Cluster> {
        let content = Content::random(7, SIZE);
        let origin = Nginx::start(&[("f.h5", &content)], &[&format!("limit_rate {rate};")])?;
        let home = Home::new();
        home.write("token", SECRET);
        let tracker = home.track(&[]);
        Some(Cluster { home, tracker, origin, content })
    }

    /// A machine that fetches `url` into the folder with its name.
    fn machine_from(&self, url: &str, name: &str, token: &str, more: &[&str]) -> Running {
        let args = ["get", url, "-d", name, "--share", "--cluster-token", token];
        let place = ["--tracker", &self.tracker.url, "--listen", "127.0.0.1:0"];
        let args = args.iter().chain(&place).chain(more);
        self.home.swath(args).limit(Duration::from_secs(90)).start()
    }

    fn machine(&self, name: &str, more: &[&str]) -> Running {
        self.machine_from(&self.origin.url(0, "f.h5"), name, "@token", more)
    }

    fn digest(&self) -> String {
        let wanted = swath_model::digest::Hasher::digest(
            swath_model::digest::Algorithm::Sha256,
            &self.content.read(0, SIZE),
        );
        wanted.to_string()
    }

    #[track_caller]
    fn has(&self, name: &str) {
        let there = self.home.read(&format!("{name}/f.h5"));
        assert!(there == self.content.read(0, SIZE), "{name}");
    }

    /// Copies that the origin has sent.
    fn copies(&self) -> f64 {
        let sent: u64 = self.origin.noted().iter().map(|noted| noted.sent_bytes).sum();
        sent as f64 / SIZE as f64
    }
}

/// Whether it took anything from other machines.
fn shared(ran: &Ran) -> bool {
    ran.stderr.contains("/share")
}

#[test]
fn machines_fetch_one_copy_together() {
    let Some(cluster) = Cluster::start("128k") else { return };
    let names = ["one", "two", "three", "four"];
    let running: Vec<Running> = names.iter().map(|name| cluster.machine(name, &["-v"])).collect();
    for (running, name) in running.into_iter().zip(names) {
        let ran = running.wait();
        ran.code_is(0).says(&["sharing with other machines", "vouch for them"]);
        // Neither the token nor a key is shown.
        ran.never_says(&[SECRET, "key="]);
        assert!(shared(&ran), "{name} took nothing from others:\n{ran}");
        cluster.has(name);
    }
    let copies = cluster.copies();
    // Without sharing it would be four; machines that hear of each other late have begun alone.
    assert!(copies < 3.0, "the origin sent {copies} copies to 4 machines");
}

#[test]
fn a_machine_that_dies_holds_up_nobody() {
    let Some(cluster) = Cluster::start("200k") else { return };
    let dies = cluster.machine("dies", &[]);
    let others = ["one", "two"].map(|name| cluster.machine(name, &[]));
    cluster.home.wait_for_bytes("dies/f.h5.swath.part", 1);
    std::thread::sleep(Duration::from_millis(300));
    dies.signal(libc::SIGKILL);
    let began = Instant::now();
    for (running, name) in others.into_iter().zip(["one", "two"]) {
        running.wait().code_is(0);
        cluster.has(name);
    }
    assert!(began.elapsed() < Duration::from_secs(60));
    // What it had is taken up again.
    cluster.machine("dies", &[]).wait().code_is(0);
    cluster.has("dies");
}

#[test]
fn strangers_get_nothing() {
    let Some(cluster) = Cluster::start("4m") else { return };
    let mut with_token = cluster.machine("one", &["--keep-seeding"]);
    let began = Instant::now();
    while !cluster.home.exists("one/f.h5") {
        assert!(!with_token.is_over() && began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    let before = cluster.copies();
    let url = cluster.origin.url(0, "f.h5");
    let stranger = cluster.machine_from(&url, "two", "another-token", &["-v"]).wait();
    stranger.code_is(0);
    assert!(!shared(&stranger), "{stranger}");
    assert!(cluster.copies() - before > 0.99);
    // One with the token takes all of it from the first.
    let before = cluster.copies();
    let friend = cluster.machine("three", &["-v"]).wait();
    friend.code_is(0);
    assert!(shared(&friend), "{friend}");
    assert!(cluster.copies() - before < 0.5, "{friend}");
    with_token.signal(libc::SIGINT);
    let ran = with_token.wait();
    // Without the key nothing is said of what is there.
    let at = ran.stderr.split("sharing with other machines, at ").nth(1).unwrap();
    assert!(at.starts_with("127.0.0.1:"), "{ran}");
    ran.code_is(0).says(&["seeding; Ctrl-C ends it", "sent "]);
}

#[test]
fn without_the_key_a_machine_says_nothing() {
    let Some(cluster) = Cluster::start("32k") else { return };
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let url = cluster.origin.url(0, "f.h5");
    let args = ["get", &url, "-d", "one", "--share", "--cluster-token", "@token"];
    let more = ["--peers", "127.0.0.1:1", "--listen", &listen];
    let running = cluster.home.swath(args.iter().chain(&more)).start();
    cluster.home.wait_for_bytes("one/f.h5.swath.part", 1);
    let zeros = "0".repeat(64);
    for target in [
        "/".to_owned(),
        "/share".to_owned(),
        "/share/log?from=0&node=1&port=1".to_owned(),
        format!("/share?content={zeros}&key={zeros}"),
        format!("/share/log?content={zeros}&key={zeros}&from=0&node=1&port=1"),
        "/share?content=&key=&&&=%zz".to_owned(),
    ] {
        let mut stream = TcpStream::connect(&listen).unwrap();
        let head = format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 404 "), "{target}: {answer}");
        assert!(answer.ends_with("there is nothing here\n"), "{target}: {answer}");
    }
    drop(running);
}

#[test]
fn a_machine_with_other_bytes_is_named_and_left() {
    let Some(cluster) = Cluster::start("200k") else { return };
    let mut bytes = cluster.content.read(0, SIZE);
    bytes.iter_mut().step_by(100_000).for_each(|byte| *byte ^= 1);
    let wrong = Content::bytes(bytes);
    let Some(other) = Nginx::start(&[("f.h5", &wrong)], &["limit_rate 1m;"]) else { return };
    let digest = cluster.digest();
    let liar =
        cluster.machine_from(&other.url(0, "f.h5"), "liar", "@token", &["--digest", &digest]);
    let honest = cluster.machine("one", &["--digest", &digest]).wait();
    honest.code_is(0).says(&["verified by sha-256"]);
    // By its bytes, or by what it vouches for before any of them came.
    let said = honest.all();
    let ways = ["that other sources contradict", "it delivered or vouched for other bytes"];
    assert!(ways.iter().any(|way| said.contains(way)), "{said}");
    cluster.has("one");
    let ran = liar.wait();
    // With a machine that has the right bytes it may yet come to them.
    if ran.code() == 0 {
        cluster.has("liar");
    }
}

#[test]
fn mistakes_are_explained() {
    let home = Home::new();
    let url = "http://127.0.0.1:1/f";
    let share = ["get", url, "--share"];
    home.run(share).code_is(2).says(&["--cluster-token"]);
    let with_token = ["--cluster-token", SECRET];
    let ran = home.run(share.iter().chain(&with_token));
    ran.code_is(2).says(&["--share needs a way to find the other machines", "--peers HOST"]);
    ran.never_says(&[SECRET]);
    home.write("f.torrent", "");
    let torrent = ["get", "f.torrent", "--share", "--peers", "a"];
    home.run(torrent.iter().chain(&with_token)).code_is(2).says(&["without a torrent"]);
    let two_words = ["get", url, "--share", "--peers", "a", "--cluster-token", "two words"];
    let ran = home.run(two_words);
    ran.code_is(2).says(&["'--cluster-token <TOKEN|@FILE>': a token must be one word"]);
    ran.never_says(&["two words"]);
    let missing = ["get", url, "--share", "--peers", "a", "--cluster-token", "@missing"];
    home.run(missing).says(&["cannot read the token in missing"]);
}

/// A machine that had the whole file was warned that no other machine took part.
#[test]
fn a_machine_that_has_everything_needs_nobody() {
    let Some(cluster) = Cluster::start("8m") else { return };
    let alone = cluster.machine("one", &[]).wait();
    alone.code_is(0).says(&["no other machine took part: all need the same token"]);
    let again = cluster.machine("one", &[]).wait();
    again.code_is(0).says(&["everything was here already, and no other machine asked for it"]);
    again.never_says(&["took part"]);
}

#[test]
fn a_file_that_cannot_be_shared_is_fetched_all_the_same() {
    let Some(cluster) = Cluster::start("4m") else { return };
    // Nothing is behind the list, and the port is taken.
    let url = cluster.origin.url(0, "f.h5");
    let args = ["get", &url, "-d", "one", "--share", "--cluster-token", "@token"];
    let taken = format!("127.0.0.1:{}", cluster.origin.port(0));
    let more = ["--peers", "127.0.0.1:1", "--listen", &taken];
    let ran = cluster.home.run(args.iter().chain(&more));
    ran.code_is(0)
        .says(&["fetching without other machines: cannot listen at", "passes nothing on"]);
    cluster.has("one");
    let args = ["get", &url, "-o", "-", "--share", "--cluster-token", "@token"];
    let more = ["--peers", "127.0.0.1:1", "--listen", "127.0.0.1:0"];
    let ran = cluster.home.run(args.iter().chain(&more));
    ran.code_is(0).says(&["fetching without other machines: it is not written to a file"]);
    assert!(ran.stdout == cluster.content.read(0, SIZE));
}

#[test]
fn a_file_that_is_there_already_is_passed_on() {
    let Some(cluster) = Cluster::start("64k") else { return };
    cluster.home.write("one/f.h5", cluster.content.read(0, SIZE));
    let digest = cluster.digest();
    let mut first = cluster.machine("one", &["--digest", &digest, "--keep-seeding"]);
    let ran = cluster.machine("two", &["-v", "--digest", &digest]).wait();
    ran.code_is(0);
    cluster.has("two");
    assert!(shared(&ran), "{ran}");
    assert!(!first.is_over());
    first.signal(libc::SIGINT);
    first.wait().code_is(0).says(&["already complete", "sharing with other machines"]);
    assert!(cluster.copies() < 0.6, "{}", cluster.copies());
}

#[test]
fn pieces_of_a_metalink_are_whole_in_what_machines_claim() {
    let Some(cluster) = Cluster::start("256k") else { return };
    let content = cluster.content.read(0, SIZE);
    let hash = |bytes: &[u8]| {
        swath_model::digest::Hasher::digest(swath_model::digest::Algorithm::Sha256, bytes).to_hex()
    };
    let pieces: String =
        content.chunks(1 << 20).map(|piece| format!("<hash>{}</hash>", hash(piece))).collect();
    let url = cluster.origin.url(0, "f.h5");
    let metalink = format!(
        "<?xml version=\"1.0\"?><metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f.h5\">\
         <size>{SIZE}</size><pieces length=\"1048576\" type=\"sha-256\">{pieces}</pieces>\
         <url>{url}</url></file></metalink>"
    );
    cluster.home.write("f.meta4", metalink);
    let running = ["one", "two"].map(|name| cluster.machine_from("f.meta4", name, "@token", &[]));
    for (running, name) in running.into_iter().zip(["one", "two"]) {
        running.wait().code_is(0).says(&["verified by 8 pieces by sha-256"]);
        cluster.has(name);
    }
}

#[test]
fn a_machine_that_delivers_slowly_holds_up_nobody() {
    let Some(cluster) = Cluster::start("16m") else { return };
    cluster.home.write("slow/f.h5", cluster.content.read(0, SIZE));
    let digest = cluster.digest();
    let more = ["--digest", &digest, "--keep-seeding", "--max-upload", "20k"];
    let slow = cluster.machine("slow", &more);
    // At its rate alone it would take seven minutes.
    cluster.machine("two", &["-v", "--digest", &digest]).wait().code_is(0);
    cluster.has("two");
    drop(slow);
}
