//! What a transfer over routes makes of a memory that it cannot use, and two that share one. (What
//! `swath routes` says of such a file is in `routes.rs`, and all that can be wrong with it in the tests of
//! the crate `swath-state`.)

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::Value;
use swath_netlab::faulty::{Behaviour, Content, Scope, Server};
use swath_state::{By, EdgeReading, Grade, Measured, State};

use crate::support::depot::until;
use crate::support::net::{server, sha256, url};
use crate::support::serve::Served;
use crate::support::{Home, Ran, Swath};

/// So much that routes are tried, learnt and noted, on connections that are narrow.
const SIZE: u64 = 24 << 20;
/// So much that a transfer does not end while a test looks at it.
const ENDLESS: u64 = 4 << 30;
const EACH_BYTES_PER_S: u64 = 1 << 20;

/// A file at an origin that a relay reaches as well.
struct Far {
    home: Home,
    content: Content,
    origin: Server,
    relay: Served,
}

impl Far {
    fn new(seed: u64, home: Home) -> Far {
        Far::of_bytes(seed, home, SIZE)
    }

    fn of_bytes(seed: u64, home: Home, bytes: u64) -> Far {
        let content = Content::random(seed, bytes);
        let origin = server(&content, Behaviour::ConnectionRate { bytes_per_s: EACH_BYTES_PER_S });
        let relay = home.relay(&[]);
        Far { home, content, origin, relay }
    }

    /// A transfer with this memory.
    fn get(&self, name: &str, memory: &Path) -> Swath {
        self.get_from(&self.origin, name, memory)
    }

    fn get_from(&self, origin: &Server, name: &str, memory: &Path) -> Swath {
        let from = url(origin);
        let over = ["--relay", &self.relay.named(), "--route", "multi"];
        let get = self.home.swath([&["get", &from, "-o", name][..], &over].concat());
        let get = get.env("SWATH_STATE", memory);
        match self.content.size_bytes() {
            ENDLESS => get,
            _ => get.arg("--digest").arg(sha256(&self.content)),
        }
    }

    /// It has to end as if nothing were wrong, and to tell once of what is.
    fn goes_on(&self, memory: &Path, words: &[&str]) -> Ran {
        let ran = self.get("got", memory).run();
        ran.code_is(0).says(&["verified by sha-256"]);
        self.home.holds("got", &self.content);
        let file = memory.display().to_string();
        let told: Vec<&str> = ran.stderr.lines().filter(|it| it.contains(&file)).collect();
        assert_eq!(told.len(), 1, "{ran}");
        assert!(told[0].starts_with("warning: "), "{ran}");
        words.iter().for_each(|word| assert!(told[0].contains(word), "{word:?}: {ran}"));
        let records = self.origin.log().records;
        assert!(records.iter().any(|it| it.header("via").is_some()), "the relay was tried: {ran}");
        fs::remove_file(self.home.path("got")).unwrap();
        ran
    }

    /// What is remembered there, as programs see it.
    fn remembered(&self, memory: &Path) -> Vec<Value> {
        let ran = self.home.swath(["routes", "--json"]).env("SWATH_STATE", memory).run();
        let out = ran.code_is(0).out();
        assert_eq!(ran.stderr, "", "{ran}");
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn knows(edges: &[Value], from: &Server) -> bool {
    let from = from.address().to_string();
    edges.iter().any(|it| it["from"] == from && it["to"] == "here" && !it["age_s"].is_null())
}

/// A file as transfers leave it, of several pages.
fn filled(path: &Path) -> Vec<u8> {
    let (state, warning) = State::open(path);
    assert_eq!(warning, None);
    let reading = |number: u32| EdgeReading {
        from: format!("site{number}.of-a-long-name.example:443"),
        to: "relay.example:8471".to_owned(),
        measured: Some(Measured {
            rate_bytes_per_s: 1e6,
            grade: Grade::Exact,
            age_s: 7300.0,
            by: By::Relay("relay.example:8471".to_owned()),
        }),
        rtt_s: None,
        is_used: false,
    };
    state.note((0..200).map(reading).collect());
    assert!(state.flush(Duration::from_secs(90)));
    drop(state);
    fs::read(path).unwrap()
}

#[test]
fn a_memory_that_another_program_holds_costs_a_transfer_nothing() {
    let far = Far::new(1, Home::new());
    let memory = far.home.path("state.db");
    filled(&memory);
    let holder = Connection::open(&memory).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let ran = far.goes_on(&memory, &[]);
    // On a busy machine that may be all that is known by then.
    let is_slow = ran.stderr.contains("state.db does not open in time");
    let told = "state.db is locked by another process; what is learnt waits until it is free\n";
    assert!(is_slow || ran.stderr.contains(told), "{ran}");
    drop(holder);
    // It is neither damaged nor set aside for that, and the next one remembers.
    far.get("got", &memory).run().code_is(0).never_says(&["state.db"]);
    assert!(knows(&far.remembered(&memory), &far.origin));
    let edges = far.remembered(&memory);
    let before = edges.iter().filter(|it| it["from"].as_str().unwrap().starts_with("site"));
    assert_eq!(before.count(), 200);
}

#[test]
fn a_memory_that_is_taken_away_in_the_middle_is_told_of() {
    // What is wrong with the file was told when a transfer began, and at no other time: what it learnt
    // from then on was lost without a word.
    let far = Far::new(2, Home::new());
    let memory = far.home.path("state.db");
    filled(&memory);
    // The rest comes when the memory is held.
    let (after_bytes, lasts) = (SIZE / 8, Duration::from_secs(600));
    let stall = Behaviour::Stall { after_bytes, lasts, scope: Scope::Server };
    far.origin.set(stall.clone());
    let running = far.get("got", &memory).start();
    until("some of it came", || far.origin.sent_bytes() >= after_bytes);
    let holder = Connection::open(&memory).unwrap();
    holder.busy_timeout(Duration::from_secs(90)).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    far.origin.unset(&stall);
    let ran = running.wait();
    ran.code_is(0);
    far.home.holds("got", &far.content);
    let told = "state.db is locked by another process";
    assert_eq!(ran.stderr.matches(told).count(), 1, "{ran}");
}

#[test]
fn a_damaged_memory_is_set_aside_and_the_transfer_begins_another() {
    let far = Far::new(3, Home::new());
    let whole = filled(&far.home.path("whole.db"));
    let mut random = vec![0; 20_000];
    Content::random(99, 20_000).fill(0, &mut random);
    for (name, bytes) in [("random", random), ("cut", whole[..whole.len() / 2].to_vec())] {
        let folder = far.home.path(name);
        let memory = far.home.write(&format!("{name}/state.db"), &bytes);
        let words =
            ["was damaged, so a new one was begun; the damaged one is", "state.db.damaged-20"];
        let ran = far.goes_on(&memory, &words);
        // Under the name that was told.
        let line = ran.stderr.lines().find(|line| line.contains("damaged one is")).unwrap();
        let aside = PathBuf::from(line.split("damaged one is ").nth(1).unwrap());
        assert_eq!(aside.parent(), Some(&*folder));
        assert_eq!(fs::read(&aside).unwrap(), bytes, "{name}");
        // And what SQLite had beside it, if anything.
        let mut names = far.home.names_in(name);
        names.retain(|name| !name.starts_with(aside.file_name().unwrap().to_str().unwrap()));
        assert_eq!(names, ["history.db", "state.db"]);
        assert!(knows(&far.remembered(&memory), &far.origin), "the new one is used");
    }
}

#[test]
fn a_memory_of_a_newer_version_stays_as_it_is_while_files_are_fetched() {
    let far = Far::new(4, Home::new());
    let memory = far.home.path("kept/state.db");
    fs::create_dir(far.home.path("kept")).unwrap();
    filled(&memory);
    let newer = Connection::open(&memory).unwrap();
    newer.execute_batch("PRAGMA user_version = 7; ALTER TABLE edges RENAME TO lanes").unwrap();
    drop(newer);
    let before = (fs::read(&memory).unwrap(), memory.metadata().unwrap().modified().unwrap());
    let words =
        ["is of a newer swath (version 7 of its tables, this one knows 1)", "left as it is"];
    far.goes_on(&memory, &words);
    let after = (fs::read(&memory).unwrap(), memory.metadata().unwrap().modified().unwrap());
    assert!(before == after, "it was changed");
    assert_eq!(far.home.names_in("kept"), ["history.db", "state.db"]);
}

#[test]
fn a_memory_that_may_not_be_written_is_used_or_done_without() {
    let Some(home) = Home::of_nobody() else { return };
    let far = Far::new(5, home);
    let modes = |mode: u32| {
        for folder in ["full", "empty"] {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(far.home.path(folder), mode).unwrap();
        }
    };
    for folder in ["full", "empty"] {
        fs::create_dir(far.home.path(folder)).unwrap();
    }
    let full = far.home.path("full/state.db");
    let before = filled(&full);
    far.home.hand_over();
    modes(0o555);
    for memory in [&full, &far.home.path("empty/state.db")] {
        far.goes_on(memory, &["cannot be written (", "so nothing new is remembered"]);
    }
    // The folder may be, and nobody may make its folder.
    let beneath = far.home.path("empty/new/state.db");
    far.goes_on(&beneath, &["cannot be written ("]);
    assert_eq!(far.home.names_in("full"), ["state.db"]);
    assert!(far.home.names_in("empty").is_empty());
    assert!(fs::read(&full).unwrap() == before, "it was changed");
    modes(0o755);
}

#[test]
fn transfers_at_the_same_time_share_a_memory_while_they_run() {
    let one = Far::of_bytes(6, Home::new(), 160 << 20);
    let narrow = Behaviour::ConnectionRate { bytes_per_s: 256 << 10 };
    one.origin.set(narrow.clone());
    let other = server(&one.content, narrow);
    let memory = one.home.path("state.db");
    // Both begin with nothing, at the same moment, and neither may find the other's file damaged.
    let second = one.get_from(&other, "second", &memory);
    let mut running = [one.get("first", &memory), second].map(Swath::start);
    until("a third one sees what both have learnt", || {
        let edges = one.remembered(&memory);
        knows(&edges, &one.origin) && knows(&edges, &other)
    });
    // They are slow until then.
    assert!(running.iter_mut().all(|it| !it.is_over()), "while both run");
    one.origin.clear();
    other.clear();
    for running in running {
        running.wait().code_is(0).never_says(&["state.db"]);
    }
    for name in ["first", "second"] {
        one.home.holds(name, &one.content);
    }
    let edges = one.remembered(&memory);
    assert!(knows(&edges, &one.origin) && knows(&edges, &other), "{edges:?}");
    let aside: Vec<String> =
        one.home.names().into_iter().filter(|it| it.contains("damaged")).collect();
    assert_eq!(aside, Vec::<String>::new());
}

#[test]
fn what_one_transfer_has_learnt_is_known_to_another_that_begins_meanwhile() {
    let far = Far::of_bytes(7, Home::new(), ENDLESS);
    let memory = far.home.path("state.db");
    let mut first = far.get("first", &memory).start();
    let relay = far.relay.address().to_string();
    // Both of its hops: of one alone the other could be anything.
    let hops: [fn(&Value, &str) -> bool; 2] = [
        |edge, relay| edge["from"] == relay && edge["to"] == "here",
        |edge, relay| edge["to"] == relay,
    ];
    until("the route is known", || {
        let edges = far.remembered(&memory);
        // Of a first moment in which next to nothing came nobody would expect much.
        let half = EACH_BYTES_PER_S as f64 / 2.0;
        let is_measured = |it: &&Value| {
            !it["age_s"].is_null() && it["rate_bytes_per_s"].as_f64().is_some_and(|it| it >= half)
        };
        hops.iter().all(|is_it| edges.iter().filter(is_measured).any(|it| is_it(it, &relay)))
    });
    let second = far.get("second", &memory);
    let mut second = second.env("SWATH_LOG", "swath_transfer::executor=debug");
    let log = far.home.path("second.log");
    second.command().stderr(fs::File::create(&log).unwrap());
    let second = second.start();
    let is_by_relay = |line: &&str| line.contains("routed") && line.contains("Route([SiteId(");
    let opens = || {
        let text = fs::read_to_string(&log).unwrap();
        text.lines().find(is_by_relay).map(str::to_owned)
    };
    until("it opens a route", || opens().is_some());
    assert!(!first.is_over(), "both run");
    // Whoever knows nothing of the relay tries it out first.
    assert!(opens().unwrap().contains("on_trial: false"), "{:?}", opens());
    second.signal(libc::SIGINT);
    second.wait().code_is(130);
    first.signal(libc::SIGINT);
    first.wait().code_is(130);
}
