//! Lives cut short: `kill -9`, Ctrl-C, SIGTERM, damaged journals. What was vouched for is neither
//! fetched nor hashed again, whoever goes on and from wherever.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use swath_netlab::faulty::{Behaviour, Content, Server};

use crate::disk_pair::{MIB, Pair, Proof, RATE, SIZE, event, number, until};
use crate::support::{Home, Ran};

/// If anything that the journal vouches for were hashed again, this would find the change.
#[test]
fn what_was_hashed_before_a_kill_is_not_hashed_again() {
    let content = Content::random(77, SIZE);
    for proof in [Proof::Sha256, Proof::Blake3, Proof::Pieces] {
        let home = Home::new();
        let first = Pair::start(&content, RATE);
        let running = home.swath(first.args(&home, &content, proof)).start();
        until("most of it was sent", || first.sent_bytes() > SIZE * 3 / 4);
        // What is left takes half a minute, and a commit comes every second.
        first.slow_down(80_000);
        let durable = || {
            let left = swath_store::look(&home.path("data.bin"), None, false).unwrap();
            left.map_or(0, |left| left.durable.total_bytes())
        };
        until("the journal vouches for half of it", || durable() > SIZE / 2);
        let before = durable();
        until("there is one commit more", || durable() > before);
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

/// Stop by a signal half-way, where nothing comes any more; returns how it ended, and where.
fn interrupted(signal: i32, proof: Proof) -> (Home, Content, Ran) {
    let home = Home::new();
    let content = Content::random(30, SIZE);
    let pair = Pair::stalling(&content, SIZE / 3);
    let mut args = pair.args(&home, &content, proof);
    args.retain(|arg| arg != "--json");
    let running = home.swath(args).start();
    home.wait_for_bytes("data.bin.swath.part", SIZE / 3);
    running.signal(signal);
    let ran = running.wait();
    (home, content, ran)
}

#[test]
fn ctrl_c_and_sigterm_end_it_though_nothing_comes_and_say_how_to_go_on() {
    for (signal, proof) in [
        (libc::SIGINT, Proof::Sha256),
        (libc::SIGTERM, Proof::Blake3),
        (libc::SIGINT, Proof::Pieces),
        (libc::SIGTERM, Proof::Nothing),
        // The terminal is closed, or the connection to it.
        (libc::SIGHUP, Proof::Sha256),
    ] {
        println!("signal {signal}, {proof:?}");
        let (home, content, ran) = interrupted(signal, proof);
        ran.code_is(130).says(&[
            "stopped",
            " in data.bin.swath.part: ",
            "the same command resumes from there",
        ]);
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
    running.signal(libc::SIGINT);
    let ran = running.wait();
    ran.code_is(130).says(&["stopped"]).never_says(&["kept "]);
    assert_eq!(home.names(), [""; 0]);
}

/// Leave a part file and a journal, damage them, go on.
fn damaged(damage: impl Fn(&Home), more: &[&str]) -> (Home, Ran) {
    let (home, content, _) = interrupted(libc::SIGINT, Proof::Sha256);
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
    let (home, _, _) = interrupted(libc::SIGINT, Proof::Sha256);
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
    let (home, content, _) = interrupted(libc::SIGINT, Proof::Nothing);
    fs::remove_file(home.path("data.bin.swath")).unwrap();
    fs::create_dir(home.path("data.bin.swath")).unwrap();
    let pair = Pair::start(&content, 0);
    home.run(pair.args(&home, &content, Proof::Nothing))
        .code_is(5)
        .says(&["data.bin.swath", "in the way"]);
    assert!(home.exists("data.bin.swath.part"), "nothing was thrown away");
}
