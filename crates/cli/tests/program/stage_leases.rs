//! Leases of depots that end by themselves while somebody fetches what lies there. (`stage.rs` has what
//! is given up by a command.)

use serde_json::Value;
use swath_netlab::faulty::{Content, Server};

use crate::support::net::{honest, sha256, url};
use crate::support::serve::Served;
use crate::support::{Home, Ran};

const SIZE: u64 = 9_000_017;
/// So long a lease has to go at least when a transfer begins, which takes longer than that.
const LEFT_S: u64 = 6;

/// A file of which two depots hold all, and its origin.
struct Staged {
    home: Home,
    content: Content,
    origin: Server,
    depots: [Served; 2],
}

impl Staged {
    fn new(seed: u64) -> Staged {
        let home = Home::new();
        let content = Content::random(seed, SIZE);
        let origin = honest(&content);
        let depot = |folder| home.relay(&["--depot", folder, "--depot-size", "20M"]);
        let depots = [depot("depot0"), depot("depot1")];
        let staged = Staged { home, content, origin, depots };
        // Staging takes less, also on a loaded machine; what is left of it counts below.
        staged.stage("10s").code_is(0);
        staged
    }

    /// Have the depots hold the file for so long.
    fn stage(&self, lease: &str) -> Ran {
        let [one, other] = self.depots.each_ref().map(Served::named);
        let digest = sha256(&self.content);
        let source = url(&self.origin);
        let what = ["stage", &source, "--at", &one, "--at", &other, "--replicas", "2"];
        let how = ["--for", lease, "--digest", &digest, "-o", "staged.meta4", "--overwrite"];
        self.home.run([&what[..], &how].concat())
    }

    /// Let the lease of a depot run for so long from now on, by its manage address.
    fn extend(&self, depot: usize, seconds: u64) {
        let keys: Value = serde_json::from_slice(&self.home.read("staged.meta4.keys")).unwrap();
        let named = self.depots[depot].named();
        let manage = keys["depots"].as_array().unwrap().iter().find_map(|key| {
            key["manage"].as_str().unwrap().strip_prefix(&named).map(str::to_owned)
        });
        let target = format!("{}?extend={seconds}", manage.unwrap());
        let told = self.depots[depot].ask("POST", &target, "", b"").is(200).json();
        assert!(told["lease_s"].as_f64().unwrap() <= seconds.max(10) as f64, "{told}");
    }

    /// How long a lease still runs, as the command tells it.
    fn left(&self, depot: usize) -> f64 {
        let ran = self.home.run(["stage", "status", "staged.meta4", "--json"]);
        let out = ran.code_is(0).out();
        let named = self.depots[depot].named();
        let mut lines = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let line = lines.find(|line| line["depot"].as_str().unwrap().starts_with(&named));
        line.unwrap_or_else(|| panic!("{out}"))["lease_s"].as_f64().unwrap()
    }

    /// What takes longer than the lease that has `left_s` to go, however late it begins. `--timeout` is how
    /// long it looks for others once all leases have ended.
    fn get(&self, name: &str, left_s: f64) -> crate::support::Swath {
        let rate = (SIZE as f64 * 0.8 / left_s) as u64;
        let usual = ["get", "staged.meta4", "-o", name, "--json", "--timeout", "8s"];
        self.home.swath(usual).arg("--limit-rate").arg(rate.to_string())
    }

    /// How much of a depot is taken.
    fn taken_bytes(&self, depot: usize) -> u64 {
        let room = self.depots[depot].ask("GET", "/depot", "", b"").is(200).json();
        room["disk"]["taken_bytes"].as_u64().unwrap()
    }
}

/// The last event, and what is told by all.
fn ended(ran: &Ran) -> (Value, String) {
    let out = ran.out();
    let events: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let words = |event: &Value| {
        let told = ["text", "reason", "error"].map(|field| event[field].as_str().unwrap_or(""));
        told.join("\n")
    };
    let told = events.iter().map(words).collect::<Vec<_>>().join("\n") + &ran.stderr;
    (events.last().unwrap().clone(), told)
}

/// The bytes that came from this depot, in a summary.
fn came_from(summary: &Value, depot: &Served) -> u64 {
    let at = depot.address().to_string();
    let sources = summary["sources"].as_array().unwrap().iter();
    let of = sources.filter(|source| source["name"].as_str().unwrap().contains(&at));
    of.map(|source| source["bytes"].as_u64().unwrap()).sum()
}

#[test]
fn a_lease_that_ends_while_it_is_read_leaves_the_rest_to_the_other_depot() {
    // Only leases that somebody gave up had been seen to end under a transfer.
    let staged = Staged::new(1);
    staged.extend(0, 3600);
    staged.extend(1, LEFT_S);
    staged.origin.die();
    let left_s = staged.left(1);
    assert!(staged.left(0) > 3000.0 && left_s < 11.0, "{left_s}");
    let ran = staged.get("got", left_s).run();
    ran.code_is(0);
    staged.home.holds("got", &staged.content);
    let (last, told) = ended(&ran);
    assert_eq!(last["event"], "finished", "{ran}");
    assert!(told.contains("the depot's lease has ended"), "{ran}");
    let [kept, gone] = staged.depots.each_ref().map(|depot| came_from(&last, depot));
    assert!(gone > 0 && kept > SIZE / 10, "{kept} and {gone}: {ran}");
    assert!(kept + gone >= SIZE, "{kept} and {gone}: {ran}");
    // What was leased is free again, where it has ended and nowhere else.
    assert_eq!(staged.taken_bytes(1), 0);
    assert!(staged.taken_bytes(0) >= SIZE);
}

#[test]
fn where_all_leases_end_what_came_is_kept_and_the_same_command_goes_on() {
    let staged = Staged::new(2);
    (0..2).for_each(|depot| staged.extend(depot, LEFT_S));
    staged.origin.die();
    let left_s = staged.left(0).max(staged.left(1));
    let running = ["got", "again"].map(|name| staged.get(name, left_s).start());
    for (name, running) in ["got", "again"].into_iter().zip(running) {
        let ran = running.wait();
        // Some of it came: incomplete, and not "no source could be used".
        ran.code_is(3);
        let (last, told) = ended(&ran);
        assert_eq!(last["event"], "failed", "{ran}");
        assert!(told.contains("the depot's lease has ended"), "{ran}");
        let error = last["error"].as_str().unwrap();
        assert!(error.contains("the depot's lease has ended"), "{ran}");
        let kept = last["kept_bytes"].as_u64().unwrap();
        assert!((1..SIZE).contains(&kept), "{ran}");
        staged.home.lacks(name);
        assert!(staged.home.exists(&format!("{name}.swath.part")), "{:?}", staged.home.names());
    }
    // The origin, which the Metalink names too, has the rest, and is asked for no more than that.
    staged.origin.revive();
    staged.origin.clear_log();
    let goes_on = |name: &str| {
        let ran = staged.home.run(["get", "staged.meta4", "-o", name, "--json"]);
        ran.code_is(0);
        staged.home.holds(name, &staged.content);
        let (last, _) = ended(&ran);
        let resumed = last["resumed_bytes"].as_u64().unwrap();
        assert!(resumed > 0, "{ran}");
        (last, resumed)
    };
    let (_, resumed) = goes_on("got");
    let sent = staged.origin.log().sent_bytes("/data.bin");
    assert!(sent < SIZE - resumed + SIZE / 10, "{sent} sent, {resumed} were there");
    // Or depots have it once more, under other addresses.
    staged.stage("1h").code_is(0);
    staged.origin.die();
    let (last, resumed) = goes_on("again");
    let came: u64 = staged.depots.iter().map(|depot| came_from(&last, depot)).sum();
    assert!(came >= SIZE - resumed && came < SIZE - resumed + SIZE / 10, "{came}: {last}");
}
