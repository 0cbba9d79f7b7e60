//! Lives cut short: `kill -9` at random instants, Ctrl-C, SIGTERM, damaged journals. What was
//! vouched for is neither fetched nor hashed again, whoever goes on and from wherever.
//!
//! `SWATH_KILLS=1000` asks for that many kills in place of a few.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::random::Random;
use crate::support::{Home, Ran};
use swath_model::Range;
use swath_netlab::faulty::{Algorithm, Behaviour, Content, MetalinkFile, Server, metalink};

const MIB: u64 = 1 << 20;
/// Not a multiple of anything.
const SIZE: u64 = 20 * MIB + 4711;
/// Of each of two servers.
const RATE: u64 = 4_000_000;

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What proves the file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Proof {
    Nothing,
    Sha256,
    Blake3,
    Pieces,
}

const PROOFS: [Proof; 4] = [Proof::Nothing, Proof::Sha256, Proof::Blake3, Proof::Pieces];

/// Two replicas.
struct Pair([Server; 2]);

impl Pair {
    fn start(content: &Content, rate: u64) -> Pair {
        Pair([(), ()].map(|()| {
            Server::builder()
                .file("/data.bin", content.clone())
                .behaviour(Behaviour::rate(rate))
                .start()
                .unwrap()
        }))
    }

    fn sent_bytes(&self) -> u64 {
        self.0.iter().map(|server| server.sent_bytes()).sum()
    }

    /// What both were asked for of the file.
    fn asked(&self) -> Vec<Range> {
        let asked = |server: &Server| {
            let ranges = server.log().records.into_iter().filter_map(|record| record.range);
            ranges.map(|range| Range::new(range.start, range.end)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(asked).collect()
    }

    /// The same command with these mirrors.
    fn args(&self, home: &Home, content: &Content, proof: Proof) -> Vec<String> {
        let urls = self.0.each_ref().map(|server| server.url("/data.bin"));
        let mut args =
            vec!["get".to_owned(), "--json".to_owned(), "-o".to_owned(), "data.bin".to_owned()];
        match proof {
            Proof::Nothing => args.extend(urls),
            Proof::Sha256 | Proof::Blake3 => {
                let algorithm =
                    if proof == Proof::Sha256 { Algorithm::Sha256 } else { Algorithm::Blake3 };
                args.extend([
                    "--digest".to_owned(),
                    format!("{}:{}", algorithm.name(), content.digest_hex(algorithm)),
                ]);
                args.extend(urls);
            }
            Proof::Pieces => {
                let document = metalink(&[MetalinkFile {
                    name: "data.bin",
                    content,
                    urls: &urls,
                    digests: &[Algorithm::Sha256],
                    piece_bytes: Some(MIB),
                }]);
                args.push(home.write("data.meta4", document).display().to_string());
            }
        }
        args
    }
}

/// The last event of this kind.
fn event(ran: &Ran, kind: &str) -> serde_json::Value {
    ran.out()
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .rfind(|event| event["event"] == kind)
        .unwrap_or_else(|| panic!("no event {kind}:\n{ran}"))
}

fn number(event: &serde_json::Value, name: &str) -> u64 {
    event[name].as_u64().unwrap_or_else(|| panic!("{name} in {event}"))
}

/// What one kill cost.
struct Cost {
    /// Sent before the kill and not vouched for by the journal.
    lost_bytes: u64,
}

/// Start, kill after `wait`, go on with other mirrors.
fn kill_once(content: &Content, proof: Proof, wait: Duration) -> Cost {
    let home = Home::new();
    let first = Pair::start(content, RATE);
    let running = home.swath(first.args(&home, content, proof)).start();
    std::thread::sleep(wait);
    let before_bytes = first.sent_bytes();
    running.signal(libc::SIGKILL);
    let killed = running.wait();
    if killed.code() == 0 {
        // It was through before the signal came.
        return Cost { lost_bytes: 0 };
    }
    assert_eq!(killed.code(), 128 + libc::SIGKILL, "{killed}");
    if home.exists("data.bin") {
        // Killed between the final name and the end of the program.
        assert!(
            home.read("data.bin") == content.read(0, SIZE),
            "the final name is only for the whole file"
        );
        return Cost { lost_bytes: 0 };
    }
    drop(first);
    let left = swath_store::look(&home.path("data.bin"), None, false).unwrap();
    let durable = left.map(|left| left.durable).unwrap_or_default();

    let second = Pair::start(content, 20_000_000);
    let ran = home.run(second.args(&home, content, proof));
    ran.code_is(0);
    assert!(
        home.read("data.bin") == content.read(0, SIZE),
        "{proof:?}, {wait:?}: the file is right"
    );
    let mut names = home.names();
    names.retain(|name| name != "data.meta4");
    assert_eq!(names, ["data.bin"], "nothing is left beside it");
    let finished = event(&ran, "finished");
    let (resumed, fetched) =
        (number(&finished, "resumed_bytes"), number(&finished, "fetched_bytes"));
    assert_eq!(resumed + fetched, SIZE, "{finished}");
    assert_eq!(resumed, durable.total_bytes(), "{finished}");
    let mut compared_bytes = 0;
    for asked in second.asked() {
        // Where nothing proves the file, small blocks of what was left, and of what the mirrors bring,
        // are compared: a fiftieth of it at most.
        if matches!(proof, Proof::Nothing) && asked.len() <= 16 << 10 {
            compared_bytes += asked.len();
            assert!(compared_bytes <= SIZE / 50, "{asked:?}");
            continue;
        }
        let again = durable.bytes_within(asked);
        assert_eq!(again, 0, "{proof:?}, {wait:?}: {asked:?} was asked for, part of it was here");
    }
    Cost { lost_bytes: before_bytes.saturating_sub(resumed) }
}

#[test]
fn after_a_kill_at_any_instant_the_same_command_with_other_mirrors_ends_right() {
    let kills: u64 =
        std::env::var("SWATH_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(32);
    let seed = std::env::var("SWATH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    println!("seed {seed}, {kills} kills");
    let content = Content::random(seed, SIZE);
    let next = AtomicU64::new(0);
    let lost = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= kills {
                        break;
                    }
                    let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(number));
                    let wait = Duration::from_millis(random.below(3000));
                    let cost = kill_once(&content, PROOFS[number as usize % 4], wait);
                    lost.lock().unwrap().push(cost.lost_bytes);
                }
            });
        }
    });
    let mut lost = lost.into_inner().unwrap();
    lost.sort_unstable();
    let (median, worst) = (lost[lost.len() / 2], lost[lost.len() - 1]);
    println!(
        "lost by a kill: median {median}, at most {worst} bytes at {} bytes a second",
        2 * RATE
    );
    // A commit every second, and as much again for a machine that has other things to do.
    assert!(worst <= 2 * RATE * 3 + 4 * MIB, "a kill cost {worst} bytes");
}

/// If anything that the journal vouches for were hashed again, this would find the change.
#[test]
fn what_was_hashed_before_a_kill_is_not_hashed_again() {
    let content = Content::random(77, SIZE);
    for proof in [Proof::Sha256, Proof::Blake3, Proof::Pieces] {
        let home = Home::new();
        let first = Pair::start(&content, RATE);
        let running = home.swath(first.args(&home, &content, proof)).start();
        // Two commits at least.
        until("half of it was sent", || first.sent_bytes() > SIZE * 7 / 8);
        running.signal(libc::SIGKILL);
        assert_ne!(running.wait().code(), 0);
        let part = fs::File::options()
            .read(true)
            .write(true)
            .open(home.path("data.bin.swath.part"))
            .unwrap();
        let mut byte = [0];
        part.read_exact_at(&mut byte, 100).unwrap();
        assert_eq!(byte[..], content.read(100, 101)[..]);
        part.write_all_at(&[!byte[0]], 100).unwrap();
        drop(part);
        let second = Pair::start(&content, 0);
        home.run(second.args(&home, &content, proof)).code_is(0);
        let mut wanted = content.read(0, SIZE);
        wanted[100] = !byte[0];
        assert!(home.read("data.bin") == wanted, "{proof:?}");
    }
}

/// Stop by a signal half-way; returns how it ended, how long that took, and where.
fn interrupted(signal: i32, proof: Proof) -> (Home, Content, Ran, Duration) {
    let home = Home::new();
    let content = Content::random(30, SIZE);
    let pair = Pair::start(&content, RATE);
    let mut args = pair.args(&home, &content, proof);
    args.retain(|arg| arg != "--json");
    let running = home.swath(args).start();
    // On a busy machine much of it lies in the kernel's buffers yet.
    until("a part was sent", || pair.sent_bytes() > SIZE / 3 * 2);
    let began = Instant::now();
    running.signal(signal);
    let ran = running.wait();
    (home, content, ran, began.elapsed())
}

#[test]
fn ctrl_c_and_sigterm_end_within_a_second_and_say_how_to_go_on() {
    for (signal, proof) in [
        (libc::SIGINT, Proof::Sha256),
        (libc::SIGTERM, Proof::Blake3),
        (libc::SIGINT, Proof::Pieces),
        (libc::SIGTERM, Proof::Nothing),
        // The terminal is closed, or the connection to it.
        (libc::SIGHUP, Proof::Sha256),
    ] {
        let (home, content, ran, took) = interrupted(signal, proof);
        println!("signal {signal}, {proof:?}: ended after {took:?}");
        ran.code_is(130).says(&[
            "stopped",
            " in data.bin.swath.part: ",
            "the same command resumes from there",
        ]);
        // A second is the promise; this machine may be busy with other tests.
        assert!(took < Duration::from_secs(3), "{took:?}\n{ran}");
        assert!(
            !home.exists("data.bin")
                && home.exists("data.bin.swath")
                && home.exists("data.bin.swath.part")
        );
        let pair = Pair::start(&content, 0);
        let ran = home.run(pair.args(&home, &content, proof));
        ran.code_is(0);
        assert!(number(&event(&ran, "finished"), "resumed_bytes") > SIZE / 8, "{ran}");
        assert!(home.read("data.bin") == content.read(0, SIZE));
    }
}

#[test]
fn ctrl_c_before_anything_came_leaves_nothing() {
    let home = Home::new();
    let content = Content::random(31, SIZE);
    let server = Server::builder()
        .file("/data.bin", content)
        .behaviour(Behaviour::Silent { after: Duration::ZERO })
        .start()
        .unwrap();
    let running = home.swath(["get", &server.url("/data.bin")]).start();
    until("it has asked", || server.connections() > 0);
    let began = Instant::now();
    running.signal(libc::SIGINT);
    let ran = running.wait();
    assert!(began.elapsed() < Duration::from_secs(3));
    ran.code_is(130).says(&["stopped"]).never_says(&["kept "]);
    assert_eq!(home.names(), [""; 0]);
}

/// Leave a part file and a journal, damage them, go on.
fn damaged(damage: impl Fn(&Home), more: &[&str]) -> (Home, Ran) {
    let (home, content, _, _) = interrupted(libc::SIGINT, Proof::Sha256);
    damage(&home);
    let pair = Pair::start(&content, 0);
    let mut args = pair.args(&home, &content, Proof::Sha256);
    args.extend(more.iter().map(|&arg| arg.to_owned()));
    let ran = home.run(args);
    ran.code_is(0);
    assert!(home.read("data.bin") == content.read(0, SIZE), "{ran}");
    assert_eq!(home.names(), ["data.bin"]);
    (home, ran)
}

/// Everything that was said in notes.
fn notes(ran: &Ran) -> String {
    ran.out().lines().filter(|line| line.contains("\"note\"")).collect()
}

fn resumed(ran: &Ran) -> u64 {
    number(&event(ran, "finished"), "resumed_bytes")
}

#[test]
fn a_truncated_journal_is_believed_as_far_as_it_goes() {
    let (_home, ran) = damaged(
        |home| {
            let journal =
                fs::File::options().write(true).open(home.path("data.bin.swath")).unwrap();
            let size = journal.metadata().unwrap().len();
            journal.set_len(size - 7).unwrap();
        },
        &[],
    );
    assert!(notes(&ran).contains("of the journal are damaged"), "{ran}");
}

#[test]
fn a_journal_damaged_from_its_beginning_starts_again() {
    let (_home, ran) = damaged(|home| drop(home.write("data.bin.swath", [0x5a; 4000])), &[]);
    assert!(notes(&ran).contains("starting again"), "{ran}");
    assert_eq!(resumed(&ran), 0);
}

#[test]
fn a_journal_of_another_file_starts_again() {
    let (home, _, _, _) = interrupted(libc::SIGINT, Proof::Sha256);
    let other = Content::random(99, SIZE);
    let pair = Pair::start(&other, 0);
    let ran = home.run(pair.args(&home, &other, Proof::Sha256));
    ran.code_is(0);
    assert!(notes(&ran).contains("another content"), "{ran}");
    assert!(home.read("data.bin") == other.read(0, SIZE));
}

#[test]
fn a_missing_or_shorter_part_file_costs_only_what_it_lacks() {
    let (_home, ran) =
        damaged(|home| fs::remove_file(home.path("data.bin.swath.part")).unwrap(), &[]);
    assert_eq!(resumed(&ran), 0, "{ran}");
    let (_home, ran) = damaged(
        |home| {
            fs::File::options()
                .write(true)
                .open(home.path("data.bin.swath.part"))
                .unwrap()
                .set_len(MIB)
                .unwrap()
        },
        &[],
    );
    assert!(resumed(&ran) <= MIB, "{ran}");
    assert!(notes(&ran).contains("the part file lacks"), "{ran}");
}

#[test]
fn no_resume_starts_again() {
    let (_home, ran) = damaged(|_| {}, &["--no-resume"]);
    assert_eq!(resumed(&ran), 0, "{ran}");
}

#[test]
fn a_journal_without_permission_is_an_error_that_names_it() {
    let (home, content, _, _) = interrupted(libc::SIGINT, Proof::Nothing);
    fs::remove_file(home.path("data.bin.swath")).unwrap();
    fs::create_dir(home.path("data.bin.swath")).unwrap();
    let pair = Pair::start(&content, 0);
    home.run(pair.args(&home, &content, Proof::Nothing))
        .code_is(5)
        .says(&["data.bin.swath", "in the way"]);
    assert!(home.exists("data.bin.swath.part"), "nothing was thrown away");
}

/// Needs libfaketime, which shifts the clock of one program alone.
#[test]
fn a_clock_that_jumps_back_and_forth_changes_nothing() {
    let candidates = [
        std::env::var("LIBFAKETIME").unwrap_or_default(),
        "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1".to_owned(),
        "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1".to_owned(),
    ];
    let Some(library) = candidates.iter().find(|path| fs::metadata(path).is_ok()) else {
        eprintln!("skipped: libfaketime is not installed");
        return;
    };
    let home = Home::new();
    let content = Content::random(40, SIZE);
    let pair = Pair::start(&content, RATE);
    let clock = home.home().join("clock");
    fs::write(&clock, "+0\n").unwrap();
    let running = home
        .swath(pair.args(&home, &content, Proof::Blake3))
        .env("LD_PRELOAD", library)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_TIMESTAMP_FILE", &clock)
        .start();
    until("a quarter was sent", || pair.sent_bytes() > SIZE / 4);
    fs::write(&clock, "-3650d\n").unwrap();
    until("half of it was sent", || pair.sent_bytes() > SIZE / 2);
    fs::write(&clock, "+9000d\n").unwrap();
    let ran = running.wait();
    ran.code_is(0);
    assert!(home.read("data.bin") == content.read(0, SIZE));
    let elapsed = event(&ran, "finished")["elapsed_s"].as_f64().unwrap();
    assert!(elapsed > 1.0 && elapsed < 60.0, "{elapsed} s by its own account");
}
