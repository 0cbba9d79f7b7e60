//! Lives cut short at random instants, and a clock that jumps: `kill -9` whenever it may be. What was
//! vouched for is not fetched again.
//!
//! `SWATH_KILLS=1000` asks for that many kills in place of a few.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use swath_netlab::faulty::Content;

use crate::disk_pair::{MIB, PROOFS, Pair, Proof, RATE, SIZE, event, number, until};
use crate::support::Home;
use crate::support::random::Random;

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
