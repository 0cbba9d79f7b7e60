//! `swath get --share`: the machines of a cluster fetch a file together.

use std::time::{Duration, Instant};

use swath_netlab::faulty::{Algorithm, Behaviour, Content, Scope, Server};

use crate::support::clients::has_peers;
use crate::support::serve::Served;
use crate::support::{Home, Ran, Running};

const SIZE: u64 = 8 << 20;
const SECRET: &str = "of-the-test-cluster";
/// Bytes a second on each connection to an origin from which next to nothing is to come.
const HELD: u64 = 500;

/// A cluster in a folder of its own, with a tracker and an origin.
struct Cluster {
    home: Home,
    tracker: Served,
    origin: Server,
    content: Content,
}

impl Cluster {
    /// Each connection to the origin brings so much a second.
    fn start(bytes_per_s: u64) -> Cluster {
        let content = Content::random(7, SIZE);
        let origin = Server::builder().file("/f.h5", content.clone());
        let origin = origin.behaviour(Behaviour::ConnectionRate { bytes_per_s }).start().unwrap();
        let home = Home::new();
        home.write("token", SECRET);
        let tracker = home.track(&[]);
        Cluster { home, tracker, origin, content }
    }

    /// From now on, each connection to the origin brings so much a second.
    fn origin_brings(&self, bytes_per_s: u64) {
        self.origin.set(Behaviour::ConnectionRate { bytes_per_s });
    }

    fn url(&self) -> String {
        self.origin.url("/f.h5")
    }

    /// The arguments of a machine that fetches `url` into the folder with its name.
    fn args<'a>(&'a self, url: &'a str, name: &'a str, token: &'a str) -> Vec<&'a str> {
        let args = ["get", url, "-d", name, "--share", "--cluster-token", token];
        let place = ["--tracker", &self.tracker.url, "--listen", "127.0.0.1:0"];
        [&args[..], &place].concat()
    }

    fn machine_from(&self, url: &str, name: &str, token: &str, more: &[&str]) -> Running {
        let args = [&self.args(url, name, token)[..], more].concat();
        self.home.swath(args).limit(Duration::from_secs(180)).start()
    }

    fn machine(&self, name: &str, more: &[&str]) -> Running {
        self.machine_from(&self.url(), name, "@token", more)
    }

    fn digest(&self) -> String {
        format!("sha-256:{}", self.content.digest_hex(Algorithm::Sha256))
    }

    #[track_caller]
    fn has(&self, name: &str) {
        let there = self.home.read(&format!("{name}/f.h5"));
        assert!(there == self.content.read(0, SIZE), "{name}");
    }

    /// Copies that the origin has sent.
    fn copies(&self) -> f64 {
        self.origin.sent_bytes() as f64 / SIZE as f64
    }
}

/// Whether it took anything from other machines.
fn shared(ran: &Ran) -> bool {
    ran.stderr.contains("/share")
}

#[test]
fn machines_fetch_one_copy_together() {
    // The origin delivers once all have found each other.
    let cluster = Cluster::start(HELD);
    let names = ["one", "two", "three", "four"];
    let running: Vec<Running> = names.iter().map(|name| cluster.machine(name, &["-v"])).collect();
    has_peers(&cluster.tracker, 4);
    cluster.origin_brings(256 << 10);
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

/// What it claimed would never be fetched.
#[test]
fn a_machine_that_dies_holds_up_nobody() {
    let cluster = Cluster::start(HELD);
    let dies = cluster.machine("dies", &[]);
    let others = ["one", "two"].map(|name| cluster.machine(name, &[]));
    has_peers(&cluster.tracker, 3);
    cluster.origin_brings(200 << 10);
    cluster.home.wait_for_bytes("dies/f.h5.swath.part", 1);
    dies.signal(libc::SIGKILL);
    for (running, name) in others.into_iter().zip(["one", "two"]) {
        running.wait().code_is(0);
        cluster.has(name);
    }
    // What it had is taken up again.
    cluster.machine("dies", &[]).wait().code_is(0);
    cluster.has("dies");
}

#[test]
fn strangers_get_nothing() {
    let cluster = Cluster::start(4 << 20);
    let mut with_token = cluster.machine("one", &["--keep-seeding"]);
    let began = Instant::now();
    while !cluster.home.exists("one/f.h5") {
        assert!(!with_token.is_over() && began.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(20));
    }
    let before = cluster.copies();
    let stranger = cluster.machine_from(&cluster.url(), "two", "another-token", &["-v"]).wait();
    stranger.code_is(0);
    assert!(!shared(&stranger), "{stranger}");
    assert!(cluster.copies() - before > 0.99);
    // One with the token takes all of it from the first, which it finds before the origin delivers.
    cluster.origin_brings(HELD);
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
fn a_machine_with_other_bytes_is_named_and_left() {
    let cluster = Cluster::start(HELD);
    let mut bytes = cluster.content.read(0, SIZE);
    bytes.iter_mut().step_by(100_000).for_each(|byte| *byte ^= 1);
    // It delivers a part, so that nothing shows yet that the liar's bytes are wrong.
    let stall = Behaviour::Stall {
        after_bytes: 3 << 20,
        lasts: Duration::from_secs(3600),
        scope: Scope::Server,
    };
    let other = Server::builder().file("/f.h5", Content::bytes(bytes)).behaviour(stall);
    let other = other.start().unwrap();
    let digest = cluster.digest();
    let with_digest = ["--digest", &digest];
    let liar = cluster.machine_from(&other.url("/f.h5"), "liar", "@token", &with_digest);
    cluster.home.wait_for_bytes("liar/f.h5.swath.part", 1 << 20);
    let honest = cluster.machine("one", &with_digest);
    // So much comes from no other machine.
    cluster.home.wait_for_bytes("one/f.h5.swath.part", 512 << 10);
    cluster.origin.clear();
    let honest = honest.wait();
    honest.code_is(0).says(&["verified by sha-256"]);
    // By its bytes, or by what it vouches for before any of them came.
    let said = honest.all();
    let ways = ["that other sources contradict", "it delivered or vouched for other bytes"];
    assert!(ways.iter().any(|way| said.contains(way)), "{said}");
    cluster.has("one");
    other.clear();
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
    let cluster = Cluster::start(8 << 20);
    let alone = cluster.machine("one", &[]).wait();
    alone.code_is(0).says(&["no other machine took part: all need the same token"]);
    let again = cluster.machine("one", &[]).wait();
    again.code_is(0).says(&["everything was here already, and no other machine asked for it"]);
    again.never_says(&["took part"]);
}

#[test]
fn a_file_that_cannot_be_shared_is_fetched_all_the_same() {
    let cluster = Cluster::start(4 << 20);
    // Nothing is behind the list, and the port is taken.
    let url = cluster.url();
    let args = ["get", &url, "-d", "one", "--share", "--cluster-token", "@token"];
    let taken = format!("127.0.0.1:{}", cluster.origin.port());
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
    let cluster = Cluster::start(HELD);
    cluster.home.write("one/f.h5", cluster.content.read(0, SIZE));
    let digest = cluster.digest();
    let mut first = cluster.machine("one", &["--digest", &digest, "--keep-seeding"]);
    has_peers(&cluster.tracker, 1);
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
    let cluster = Cluster::start(256 << 10);
    let content = cluster.content.read(0, SIZE);
    let hash = |bytes: &[u8]| {
        swath_model::digest::Hasher::digest(swath_model::digest::Algorithm::Sha256, bytes).to_hex()
    };
    let pieces: String =
        content.chunks(1 << 20).map(|piece| format!("<hash>{}</hash>", hash(piece))).collect();
    let url = cluster.url();
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
    let cluster = Cluster::start(16 << 20);
    cluster.home.write("slow/f.h5", cluster.content.read(0, SIZE));
    let digest = cluster.digest();
    let more = ["--digest", &digest, "--keep-seeding", "--max-upload", "2k"];
    let slow = cluster.machine("slow", &more);
    has_peers(&cluster.tracker, 1);
    // At its rate alone it would take more than an hour.
    cluster.machine("two", &["-v", "--digest", &digest]).wait().code_is(0);
    cluster.has("two");
    drop(slow);
}

/// Long, because other work may keep the machine busy.
const LIMIT: Duration = Duration::from_secs(90);
