//! `swath cp --share`: the machines of a cluster copy a dataset together.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::serve::{Served, reserved_address};
use crate::support::trees::{assert_same, bytes};
use crate::support::{Home, Ran, Running};

/// A cluster in a folder of its own, with a tracker, and an origin with a dataset of many files.
struct Cluster {
    home: Home,
    tracker: Served,
    origin: Served,
    size_bytes: u64,
}

impl Cluster {
    /// The origin sends so much a second.
    fn start(rate: &str) -> Cluster {
        let home = Home::new();
        home.write("token", "of-the-test-cluster");
        let mut size_bytes = 0;
        let mut file = |name: &str, seed: usize, count: usize| {
            home.write(name, bytes(seed as u32, count));
            size_bytes += count as u64;
        };
        (0..500).for_each(|at| file(&format!("data/small/{}/{at}", at % 7), at, 40 * at));
        file("data/one.h5", 501, 3 << 20);
        file("data/two.h5", 502, (2 << 20) + 77);
        let tracker = home.track(&[]);
        let origin = home.serve(&["data", "--plain", "--anonymous", "--limit-rate", rate]);
        Cluster { home, tracker, origin, size_bytes }
    }

    fn machine(&self, name: &str, more: &[&str]) -> Running {
        self.machine_from(&self.origin, name, more)
    }

    /// Another origin of the same dataset, which sends so much a second.
    fn other_origin(&self, rate: &str) -> Served {
        self.home.serve(&["data", "--plain", "--anonymous", "--limit-rate", rate])
    }

    fn machine_from(&self, origin: &Served, name: &str, more: &[&str]) -> Running {
        let to = format!("{name}/");
        let args = ["cp", &origin.url, &to, "--share", "--cluster-token", "@token"];
        let place = ["--tracker", &self.tracker.url, "--listen", "127.0.0.1:0"];
        let args = args.iter().chain(&place).chain(more);
        self.home.swath(args).limit(Duration::from_secs(180)).start()
    }

    #[track_caller]
    fn has(&self, name: &str) {
        assert_same(&self.home.path("data"), &self.home.path(name));
    }

    /// Copies that an origin has sent.
    fn copies(&self, origin: &Served) -> f64 {
        let metrics = origin.raw(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let metrics = String::from_utf8_lossy(&metrics).into_owned();
        let line = metrics.lines().find(|line| line.starts_with("swath_body_bytes_total"));
        let sent: f64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        sent / self.size_bytes as f64
    }

    /// Waits until a machine has written so much of its copy.
    fn wait_for_bytes(&self, name: &str, bytes: u64) {
        let began = Instant::now();
        while written(&self.home.path(format!("{name}.swath.part"))) < bytes {
            assert!(began.elapsed() < LIMIT, "{name} does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the tree of a machine has its name.
    fn wait_for(&self, name: &str, running: &mut Running) {
        let began = Instant::now();
        while !self.home.exists(&format!("{name}/two.h5")) {
            assert!(!running.is_over() && began.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether it took anything from other machines.
fn shared(ran: &Ran) -> bool {
    ran.stderr.contains("/share")
}

#[test]
fn machines_copy_a_dataset_together() {
    let cluster = Cluster::start("1500k");
    let names = ["one", "two", "three", "four"];
    let more = ["-v", "--keep-seeding"];
    let mut running: Vec<Running> = names.iter().map(|name| cluster.machine(name, &more)).collect();
    for (running, name) in running.iter_mut().zip(names) {
        cluster.wait_for(name, running);
    }
    let copies = cluster.copies(&cluster.origin);
    assert!(copies < 3.0, "the origin sent {copies} copies to 4 machines");
    let mut sharing = 0;
    for (running, name) in running.into_iter().zip(names) {
        running.signal(libc::SIGINT);
        let ran = running.wait();
        ran.code_is(0).says(&["sharing with other machines", "verified by the checksum of every"]);
        ran.never_says(&["of-the-test-cluster", "key="]);
        sharing += u32::from(shared(&ran));
        cluster.has(name);
    }
    // One may have had everything before the others began.
    assert!(sharing >= 3, "{sharing} of 4 machines took something from others");
}

#[test]
fn a_late_machine_takes_a_dataset_from_one_that_has_it() {
    let cluster = Cluster::start("20m");
    let mut first = cluster.machine("one", &["--keep-seeding"]);
    cluster.wait_for("one", &mut first);
    // Before they find each other, its origin sends next to nothing.
    let origin = cluster.other_origin("100k");
    let second = cluster.machine_from(&origin, "two", &["-v"]).wait();
    second.code_is(0);
    assert!(shared(&second), "{second}");
    cluster.has("two");
    let copies = cluster.copies(&origin);
    assert!(copies < 0.5, "{copies}\n{second}");
    first.signal(libc::SIGINT);
    first.wait().code_is(0).says(&["seeding; Ctrl-C ends it", "sent "]);
}

#[test]
fn a_machine_that_dies_holds_up_no_dataset() {
    let cluster = Cluster::start("2m");
    let dies = cluster.machine("dies", &[]);
    let others = ["one", "two"].map(|name| cluster.machine(name, &[]));
    cluster.wait_for_bytes("dies", 1);
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
fn a_machine_with_wrong_bytes_of_a_dataset_is_named_and_left() {
    let cluster = Cluster::start("20m");
    let mut liar = cluster.machine("liar", &["--keep-seeding"]);
    cluster.wait_for("liar", &mut liar);
    // Wherever it is asked, something is wrong.
    for name in ["liar/one.h5", "liar/two.h5"] {
        let mut wrong = cluster.home.read(name);
        wrong.iter_mut().step_by(100_000).for_each(|byte| *byte ^= 1);
        fs::write(cluster.home.path(name), wrong).unwrap();
    }
    // They find each other long before its origin has sent everything.
    let origin = cluster.other_origin("1m");
    let honest = cluster.machine_from(&origin, "one", &["-v"]).wait();
    honest.code_is(0).says(&["it delivered corrupt data", "is not used any more"]);
    cluster.has("one");
    drop(liar);
}

#[test]
fn a_dataset_that_changes_meanwhile_arrives_in_its_new_state() {
    let cluster = Cluster::start("1m");
    let running = ["one", "two"].map(|name| cluster.machine(name, &[]));
    cluster.wait_for_bytes("one", 1);
    let mut newer = cluster.home.read("data/two.h5");
    newer.iter_mut().step_by(1000).for_each(|byte| *byte ^= 1);
    fs::write(cluster.home.path("data/two.h5"), newer).unwrap();
    for (running, name) in running.into_iter().zip(["one", "two"]) {
        running.wait().code_is(0);
        cluster.has(name);
    }
}

#[test]
fn what_cannot_be_shared_is_explained() {
    let home = Home::new();
    home.write("data/a", "a");
    home.write("token", "word");
    let share = ["--share", "--cluster-token", "@token"];
    let local = ["cp", "data/", "copy/"].iter().chain(&share);
    home.run(local.clone()).code_is(2).says(&["--share needs a way to find the other machines"]);
    let local = local.chain(&["--peers", "a"]);
    home.run(local).code_is(2).says(&["--share is for fetching", "swath get --share"]);
    let two = ["cp", "http://127.0.0.1:1/a", "http://127.0.0.1:1/b", "copy/"];
    let two = two.iter().chain(&share).chain(&["--peers", "a"]);
    home.run(two).code_is(2).says(&["--share needs a single source"]);
}

/// Returns how many bytes of files have been written in a folder, if it is there.
fn written(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => written(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(of).sum()
}

/// Proofs of blocks were asked for again for over a minute.
#[test]
fn a_dataset_whose_server_dies_ends_soon_and_is_kept() {
    let cluster = Cluster::start("1m");
    let names = ["one", "two"];
    let running = names.map(|name| cluster.machine(name, &["--timeout", "4"]));
    names.iter().for_each(|name| cluster.wait_for_bytes(name, 2 << 20));
    cluster.origin.signal(libc::SIGKILL);
    let died = Instant::now();
    for running in running {
        running.wait().code_is(3).says(&["the same command resumes"]);
    }
    // Loaded machines are slow, but the pauses between questions alone took 68 s.
    assert!(died.elapsed() < Duration::from_secs(60), "{:?}", died.elapsed());
}

/// It heard itself, and a mistyped token went unnoticed.
#[test]
fn a_machine_on_its_own_list_learns_that_it_is_alone() {
    let cluster = Cluster::start("50m");
    let url = &cluster.origin.url;
    let args = ["cp", url, "one/", "--share", "--cluster-token", "@token"];
    let own = reserved_address();
    let place = ["--peers", &own, "--listen", &own];
    let ran = cluster.home.swath(args.iter().chain(&place)).start().wait();
    ran.code_is(0).says(&["no other machine took part: all need the same token"]);
    cluster.has("one");
    // It needs nobody when it has everything.
    let ran = cluster.home.swath(args.iter().chain(&place)).start().wait();
    ran.code_is(0).never_says(&["no other machine took part"]);
}

/// Long, because other work may keep the machine busy.
const LIMIT: Duration = Duration::from_secs(90);
