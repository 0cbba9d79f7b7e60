//! `swath cp https://a/ https://b/`: the destination fetches, and this machine steers.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use swath_netlab::mesh::{Mesh, MeshLink, MeshSpec, SiteSpec};
use swath_netlab::wan::{LabError, Shape};

use crate::support::serve::{Served, stays};
use crate::support::trees::bytes;
use crate::support::{Home, Ran};

const FILES: [(&str, u32, usize); 4] =
    [("x.h5", 1, 3_000_001), ("sub/y", 2, 70_000), ("sub/deep/z", 3, 9), ("empty", 4, 0)];

fn with_dataset(folder: &str) -> Home {
    let home = Home::new();
    for (path, seed, length) in FILES {
        home.write(&format!("{folder}/ds/{path}"), bytes(seed, length));
    }
    fs::create_dir(home.path("b")).unwrap();
    home
}

/// An address with the token of a server, whose certificate `--fingerprint` knows.
pub fn at(server: &Served, path: &str) -> String {
    let (scheme, rest) = server.url.split_once("://").unwrap();
    format!("{scheme}://x:{}@{rest}{path}", server.token())
}

pub fn fingerprint(server: &Served) -> String {
    let line = server.words.lines().find(|line| line.starts_with("fingerprint")).unwrap();
    line.split_whitespace().last().unwrap().to_owned()
}

/// A server that fetches from servers on this machine.
fn destination(home: &Home, address: &str, more: &[&str]) -> Served {
    let args = ["b", "--write", "--third-party", "--third-party-from", "127.0.0.0/8"];
    home.serve_at(address, &[&args[..], more].concat())
}

pub fn args(servers: &[&Served], places: &[String]) -> Vec<String> {
    let mut args = vec!["cp".to_owned()];
    args.extend_from_slice(places);
    for server in servers {
        args.extend(["--fingerprint".to_owned(), fingerprint(server)]);
    }
    args
}

impl Home {
    fn has_dataset(&self, folder: &str) {
        for (path, seed, length) in FILES {
            assert!(self.read(&format!("{folder}/{path}")) == bytes(seed, length), "{path}");
        }
    }

    fn jobs(&self) -> Vec<u8> {
        let folder = self.path("../home/.local/state/swath/third-party");
        let all = fs::read_dir(folder).unwrap().map(|it| fs::read(it.unwrap().path()).unwrap());
        all.flatten().collect()
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn trees_and_files_go_from_server_to_server() {
    let home = with_dataset("a");
    let log = home.path("a.log");
    let a = home.serve(&["a", "--log", log.to_str().unwrap()]);
    let b = destination(&home, "127.0.0.1:0", &[]);
    let cp = |from: &str, to: &str| home.run(args(&[&a, &b], &[at(&a, from), at(&b, to)]));
    let copied = cp("ds/", "copy/");
    copied.code_is(0).says(&["4 files", "verified by the checksum of every block"]);
    home.has_dataset("b/copy");
    // Its figures are about that server, which has it all.
    cp("ds/", "copy/").code_is(0).says(&["4 files are the same"]);
    cp("ds", "named/").code_is(0);
    home.has_dataset("b/named/ds");
    cp("ds/x.h5", "new-name").code_is(0);
    cp("ds/x.h5", "named/").code_is(0);
    for path in ["b/new-name", "b/named/x.h5"] {
        assert!(home.read(path) == bytes(1, 3_000_001), "{path}");
    }
    home.write("a/ds/x.h5", bytes(9, 3_000_001));
    // Also a file is verified block by block, by the right to read that file alone.
    let replaced = cp("ds/x.h5", "new-name");
    replaced.code_is(0).says(&["verified by the checksum of every block"]);
    assert!(home.read("b/new-name") == bytes(9, 3_000_001), "a file that is there is replaced");
    // The client's own token has not left this machine but for its server.
    let token = a.token().as_bytes().to_vec();
    let has = |text: &[u8]| text.windows(token.len()).any(|part| part == token);
    assert!(!has(&home.jobs()) && !has(&fs::read(log).unwrap()));
}

#[test]
fn one_tree_comes_from_several_replicas() {
    let home = with_dataset("a1");
    for (path, seed, length) in FILES {
        home.write(&format!("a2/ds/{path}"), bytes(seed, length));
        let time = home.path(format!("a1/ds/{path}")).metadata().unwrap().modified().unwrap();
        let copy =
            fs::File::options().write(true).open(home.path(format!("a2/ds/{path}"))).unwrap();
        copy.set_modified(time).unwrap();
    }
    let (one, two) = (home.serve(&["a1"]), home.serve(&["a2"]));
    let b = destination(&home, "127.0.0.1:0", &["--limit-rate", "3M"]);
    let places = [at(&one, "ds/"), at(&two, "ds/"), at(&b, "copy/")];
    let copied = home.run(args(&[&one, &two, &b], &places));
    copied.code_is(0);
    for server in [&one, &two] {
        copied.says(&[&format!("{}ds/", server.url.split_once("://").unwrap().1)]);
    }
    home.has_dataset("b/copy");
}

#[test]
fn what_is_not_allowed_is_refused_with_its_reason() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let b = home.serve(&["b", "--write", "--third-party"]);
    let cp = |from: String, to: String| -> Ran { home.run(args(&[&a, &b], &[from, to])) };
    // This machine is not public.
    let command = args(&[&a, &b], &[at(&a, "ds/"), at(&b, "copy/"), "--dry-run".to_owned()]);
    home.run(command).code_is(7).says(&["refused to contact 127.0.0.1", "--third-party-from"]);
    // A fetches nothing, and lets nobody write.
    let refused = cp(at(&b, ""), at(&a, "x/"));
    refused.code_is(5).says(&["it was started without --third-party", "--write"]);
    let unknown = at(&b, "x/").replace(b.token(), "another-token-that-is-long");
    cp(at(&a, "ds/"), unknown).code_is(5).says(&["this token is not known here"]);
    home.write("short", "short write\n");
    let short = home.serve(&["a", "--token-file", "short"]);
    let from = short.url.replace("://", "://x:short@") + "ds/";
    let detached = |from: String| {
        let command = args(&[&a, &b], &[from, at(&b, "copy/")]);
        home.run(command.iter().map(String::as_str).chain(["--detach"]))
    };
    detached(from).code_is(2).says(&["the token is too short to be delegated", "a longer token"]);
    let plain = home.serve(&["a", "--plain"]);
    detached(at(&plain, "ds/")).code_is(2).says(&["not sent without encryption"]);
    assert_eq!(home.names_in("b"), Vec::<String>::new());
    home.run(["serve", "b", "--third-party"]).code_is(2).says(&["--write"]);
}

/// The job belongs to the destination.
#[test]
fn a_steering_machine_that_dies_does_not_end_the_copy() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let b = destination(&home, "127.0.0.1:0", &["--limit-rate", "1M"]);
    let steering = args(&[&a, &b], &[at(&a, "ds/"), at(&b, "copy/")]);
    let steering = home.swath(steering).start();
    until("the copy begins", || {
        home.exists("b/copy.swath-partial") || !home.names_in("b").is_empty()
    });
    steering.signal(9);
    steering.wait();
    assert!(!home.exists("b/copy/x.h5"), "the copy was killed too late for this test");
    until("the copy ends", || home.exists("b/copy/x.h5"));
    home.has_dataset("b/copy");
}

#[test]
fn a_copy_that_is_interrupted_is_cancelled_there_and_resumes() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let b = destination(&home, "127.0.0.1:0", &["--limit-rate", "1M"]);
    let command = args(&[&a, &b], &[at(&a, "ds/"), at(&b, "copy/")]);
    let steering = home.swath(&command).start();
    until("some data is there", || home.disk_bytes("b") > 500_000);
    steering.signal(2);
    steering.wait().code_is(130).says(&["stopped"]);
    std::thread::sleep(Duration::from_secs(4));
    assert!(!home.exists("b/copy/x.h5"), "it has gone on");
    home.run(&command).code_is(0).says(&["from an earlier run"]);
    home.has_dataset("b/copy");
}

#[test]
fn a_destination_that_is_killed_and_started_again_goes_on() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let free = stays("127.0.0.1:0");
    let b = destination(&home, &free, &["--limit-rate", "1M"]);
    let mut steering = home.swath(args(&[&a, &b], &[at(&a, "ds/"), at(&b, "copy/")])).start();
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(!steering.is_over());
    b.signal(9);
    b.wait();
    let _again = destination(&home, &free, &[]);
    steering.wait().code_is(0).says(&["retrying"]);
    home.has_dataset("b/copy");
}

#[test]
fn a_copy_goes_on_alone_and_is_found_followed_and_cancelled() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let b = destination(&home, "127.0.0.1:0", &["--limit-rate", "1M", "--third-party-jobs", "1"]);
    let trust = ["--fingerprint".to_owned(), fingerprint(&b)];
    let at_b = |job: &str| format!("{}@{}", job.split_once('@').unwrap().0, at(&b, ""));
    let begin = |to: &str| {
        let command = args(&[&a, &b], &[at(&a, "ds/"), at(&b, to)]);
        let begun = home.run(command.iter().map(String::as_str).chain(["--detach"]));
        begun.code_is(0).out().trim().to_owned()
    };
    let (first, second) = (begin("one/"), begin("two/"));
    assert!(first.ends_with(&format!("@{}one/", b.url)), "{first}");
    let jobs = || {
        let listed = home.run(["jobs", &at(&b, ""), &trust[0], &trust[1]]);
        listed.code_is(0).out().to_owned()
    };
    let listed = jobs();
    let state = |job: &str, listed: &str| {
        let id = job.split_once('@').unwrap().0;
        let line = listed.lines().find(|line| line.starts_with(id)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(state(&first, &listed), "running");
    assert_eq!(state(&second, &listed), "waiting", "one at a time");
    home.run(["cancel", &at_b(&second), &trust[0], &trust[1]]).code_is(0).says(&["cancelled"]);
    let mut looking = home.swath(["attach", &at_b(&first), &trust[0], &trust[1]]).start();
    std::thread::sleep(Duration::from_millis(500));
    assert!(!looking.is_over());
    // Whoever looks ends nothing.
    looking.signal(2);
    looking.wait().code_is(130);
    let followed = home.run(["attach", &at_b(&first), &trust[0], &trust[1]]);
    followed.code_is(0).says(&["verified by the checksum of every block"]);
    home.has_dataset("b/one");
    // How it ended can be read later, too.
    home.run(["attach", &at_b(&first), &trust[0], &trust[1]]).code_is(0).says(&["4 files"]);
    let listed = jobs();
    let states = (state(&first, &listed), state(&second, &listed));
    assert_eq!(states, ("done".to_owned(), "cancelled".to_owned()));
    assert!(!home.exists("b/two/x.h5"));
    home.run(["cancel", &at_b(&first), &trust[0], &trust[1]]).code_is(5).says(&["no such job"]);
    home.run(["attach", "none"]).code_is(2).says(&["not of the form JOB@URL", "swath jobs"]);
}

/// The first word of each job that a server lists, and its state.
fn states(home: &Home, b: &Served) -> Vec<(String, String)> {
    let listed = home.run(["jobs", &at(b, ""), "--fingerprint", &fingerprint(b)]);
    let words = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    };
    listed.code_is(0).out().lines().map(words).collect()
}

/// Without that it would wait for ever.
#[test]
fn rights_to_read_are_renewed_while_the_client_is_there() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let b = destination(&home, "127.0.0.1:0", &["--limit-rate", "300k"]);
    let began = Instant::now();
    let command = args(&[&a, &b], &[at(&a, "ds/"), at(&b, "copy/")]);
    let copied = home.run(command.iter().map(String::as_str).chain(["--grant-for", "2s"]));
    copied.code_is(0).says(&["verified by the checksum of every block"]);
    assert!(began.elapsed() > Duration::from_secs(6), "too fast for this test");
    home.has_dataset("b/copy");
}

#[test]
fn a_copy_whose_rights_have_ended_waits_until_its_command_is_repeated() {
    let home = with_dataset("a");
    // More than what is asked for in the first second.
    home.write("a/ds/large", bytes(5, 30_000_000));
    let a = home.serve(&["a"]);
    let free = stays("127.0.0.1:0");
    let rate = ["--limit-rate", "300k", "--third-party-jobs", "1"];
    let b = destination(&home, &free, &rate);
    let command = args(&[&a, &b], &[at(&a, "ds/"), at(&b, "copy/")]);
    let alone = ["--grant-for", "1s", "--detach"];
    let job = home.run(command.iter().map(String::as_str).chain(alone));
    let job = job.code_is(0).out().split('@').next().unwrap().to_owned();
    let waits = [(job.clone(), "no-token".to_owned())];
    until("its right ends", || {
        let states = states(&home, &b);
        assert!(states[0].1 != "done" && states[0].1 != "failed", "{states:?}");
        states == waits
    });
    assert!(!home.exists("b/copy/x.h5"));
    // Others have their turn.
    let other = args(&[&a, &b], &[at(&a, "ds/sub/"), at(&b, "sub/")]);
    home.run(&other).code_is(0);
    b.signal(9);
    b.wait();
    let b = destination(&home, &free, &[]);
    until("it waits again", || states(&home, &b).contains(&waits[0]));
    let job_at = format!("{job}@{}", at(&b, ""));
    let mut looking = home.swath(["attach", &job_at, "--fingerprint", &fingerprint(&b)]).start();
    std::thread::sleep(Duration::from_millis(500));
    assert!(!looking.is_over());
    home.run(&command).code_is(0).says(&[&job, "carries out this copy already"]);
    home.has_dataset("b/copy");
    assert!(home.read("b/copy/large") == bytes(5, 30_000_000));
    looking.wait().code_is(0).says(&["waiting for a token", "repeat the command"]);
}

/// The repeated command failed: "another process is copying" to the same folder.
#[test]
fn a_command_that_is_repeated_after_its_death_follows_the_same_copy() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let b = destination(&home, "127.0.0.1:0", &["--limit-rate", "1M"]);
    let command = args(&[&a, &b], &[at(&a, "ds/"), at(&b, "copy/")]);
    let first = home.swath(&command).start();
    until("some data is there", || home.disk_bytes("b") > 300_000);
    first.signal(9);
    first.wait();
    home.run(&command).code_is(0).says(&["carries out this copy already"]);
    home.has_dataset("b/copy");
    assert_eq!(states(&home, &b).len(), 1);
    // One that has ended is another copy.
    home.run(&command).code_is(0).says(&["4 files are the same"]);
    // A copy of something else to the same place is not the same.
    let other = args(&[&a, &b], &[at(&a, "ds/sub/"), at(&b, "copy/")]);
    home.run(&other).code_is(0);
    assert!(home.read("b/copy/y") == bytes(2, 70_000));
}

#[test]
fn a_copy_that_is_let_alone_and_fails_at_once_says_so() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let b = destination(&home, "127.0.0.1:0", &[]);
    let cp = |from: &str, more: &str| {
        let command = args(&[&a, &b], &[at(&a, from), at(&b, "copy/")]);
        home.run(command.iter().map(String::as_str).chain([more]))
    };
    cp("none/", "--detach").code_is(7).says(&["404"]);
    assert_eq!(states(&home, &b).len(), 1);
    // A dry run is no copy that anybody would look for.
    cp("ds/", "--dry-run").code_is(0);
    assert_eq!(states(&home, &b).len(), 1);
}

#[test]
fn orders_that_cannot_be_meant_are_refused() {
    let home = with_dataset("a");
    let a = home.serve(&["a", "--anonymous"]);
    let b = destination(&home, "127.0.0.1:0", &["--limit-rate", "300k"]);
    let order = |job: &str, path: &str, sources: &str| {
        let mut curl = Command::new("curl");
        let token = format!("Authorization: Bearer {}", b.token());
        let url = format!("{}{path}?swath=fetch&job={job}", b.url);
        curl.args(["-sk", "-m", "2", "-H", &token, "-d", sources, "-w", "%{http_code}", &url]);
        let ran = curl.output().expect("curl runs");
        String::from_utf8(ran.stdout).unwrap()
    };
    let source = format!("{}ds/", a.url);
    let of = |more: &str| format!(r#"{{"sources":[{{"url":"{source}"{more}}}]}}"#);
    // It would lift the limit of the server.
    let unlimited = of("").replace("}]}", "}],\"limit_bytes_per_s\":0}");
    let text = order("j1", "copy/", &unlimited);
    assert!(text.contains("more than zero") && text.ends_with("400"), "{text}");
    let text = order("j1", "copy/", &of(r#","fingerprints":["zz"]"#));
    assert!(text.contains("'zz' is not the SHA-256") && text.ends_with("400"), "{text}");
    let print = fingerprint(&a).replace("sha-256:", "");
    let good = of(&format!(r#","fingerprints":["{print}"]"#));
    let lines = order("j1", "copy/", &good);
    assert!(lines.contains("opened"), "it runs on when curl gives up: {lines}");
    // The name is that of another copy.
    let text = order("j1", "other/", &good);
    assert!(text.contains("another job") && text.ends_with("409"), "{text}");
    assert_eq!(states(&home, &b), [("j1".to_owned(), "running".to_owned())]);
}

/// Two sites with a slow link between them, and a relay with fast links to both. `None` without root.
fn sites() -> Option<Mesh> {
    let shape = |mbit: u64| Shape::new(mbit * 1_000_000, Duration::from_millis(2));
    let link = |near, far, mbit| MeshLink { near, far, down: shape(mbit), up: shape(mbit) };
    let spec = MeshSpec {
        sites: ["a", "b", "relay", "here"].map(SiteSpec::new).to_vec(),
        links: vec![link(A, B, 4), link(A, RELAY, 200), link(RELAY, B, 200), link(HERE, B, 10)],
        seed: 1,
        has_offload: true,
    };
    match Mesh::start(spec) {
        Ok(mesh) => Some(mesh),
        Err(LabError::NeedsRoot) => {
            println!("skipped: needs root");
            None
        }
        Err(error) if !Path::new("/dev/net/tun").exists() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn relays_of_the_destination_shorten_its_way() {
    let home = Home::new();
    home.write("a/ds/large", bytes(1, 12_000_000));
    fs::create_dir(home.path("b")).unwrap();
    let Some(mesh) = sites() else { return };
    let at_site = |site: usize, args: &[&str]| {
        let mut swath = home.swath(args);
        mesh.site(site).confine(swath.command());
        swath
    };
    let listen = |site: usize| format!("{}:8470", mesh.address(site));
    let serve = |site: usize, args: &[&str]| {
        let listen = listen(site);
        let all = [&["serve", "--listen", &listen][..], args].concat();
        Served::of(at_site(site, &all), args)
    };
    let all = "10.79.0.0/24";
    let a = serve(A, &["a"]);
    let (near, known) = (listen(RELAY), fingerprint(&a));
    let usual = ["relay", "--plain", "--clients", all, "--upstream", all];
    let relay = [&usual[..], &["--listen", &near, "--fingerprint", &known]].concat();
    let relay = Served::of(at_site(RELAY, &relay), &["--token-file"]);
    let more = ["--third-party-from", all, "--third-party-relay", &relay.named()];
    let b = serve(B, &[&["b", "--write", "--third-party"][..], &more].concat());
    let command = args(&[&a, &b], &[at(&a, "ds/"), at(&b, "copy/")]);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let copied = at_site(HERE, &command).run();
    // The direct way alone would take 24 seconds.
    copied.code_is(0).says(&[&format!("by {}", mesh.address(RELAY)), "verified by the checksum"]);
    copied.never_says(&["through this machine"]);
    assert!(home.read("b/copy/large") == bytes(1, 12_000_000));
}

const A: usize = 0;
const B: usize = 1;
const RELAY: usize = 2;
const HERE: usize = 3;

/// A kept copy went on in whatever the server served next, and removed what was there.
#[test]
fn a_kept_copy_goes_on_only_in_the_folder_where_it_began() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let free = stays("127.0.0.1:0");
    let b = destination(&home, &free, &["--limit-rate", "1M"]);
    let command = args(&[&a, &b], &[at(&a, "ds/"), at(&b, "")]);
    home.run(command.iter().map(String::as_str).chain(["--delete", "--detach"])).code_is(0);
    std::thread::sleep(Duration::from_millis(700));
    b.signal(9);
    b.wait();
    home.write("other/own", "mine");
    let from = ["--write", "--third-party", "--third-party-from", "127.0.0.0/8"];
    let other = home.serve(&[&["other"][..], &from].concat());
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(home.names_in("other"), ["own"]);
    // Two servers of the same folders would be in each other's way.
    let _again = destination(&home, &free, &[]);
    let second = home.run(["serve", "b", "--write", "--third-party", "--listen", "127.0.0.1:0"]);
    second.code_is(6).says(&["another server keeps its jobs in"]);
    until("the copy ends", || home.exists("b/x.h5"));
    home.has_dataset("b");
    drop(other);
}

#[test]
fn a_copy_ends_with_the_token_that_ordered_it() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let tokens = "a-token-that-is-long-enough write\nanother-token-that-is-long write\n";
    home.write("tokens", tokens);
    let b = destination(&home, "127.0.0.1:0", &["--limit-rate", "300k", "--token-file", "tokens"]);
    let to = b.url.replace("://", "://x:a-token-that-is-long-enough@") + "copy/";
    // All servers of a user have one certificate.
    let command = args(&[&a], &[at(&a, "ds/"), to]);
    let mut steering = home.swath(command).start();
    std::thread::sleep(Duration::from_millis(1_000));
    assert!(!steering.is_over());
    home.write("tokens", "another-token-that-is-long write\n");
    b.signal(1);
    steering.wait().code_is(5).says(&["does not permit writing any more"]);
    assert!(!home.exists("b/copy/x.h5"));
}
