//! `swath cp https://a/ https://b/`: the destination fetches, and this machine steers.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use crate::gate::Gate;
use crate::support::serve::reserved_address;
use crate::support::trees::bytes;
use crate::support::{Home, Ran, Running};
use crate::third_party_servers::{
    FILES, args, at, destination, fingerprint, states, until, with_dataset,
};

/// Less than the dataset, and more than its lanes have under way: where a gate on the way to the source closes.
const GATED_BYTES: u64 = 2_500_000;

/// A command whose standard error is the file of this name.
fn noting(home: &Home, args: &[String], name: &str) -> Running {
    let mut swath = home.swath(args);
    swath.command().stderr(fs::File::create(home.path(name)).unwrap());
    swath.start()
}

fn notes(home: &Home, name: &str) -> String {
    String::from_utf8(home.read(name)).unwrap()
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
    let b = destination(&home, "127.0.0.1:0", &[]);
    let gate = Gate::before(&a, GATED_BYTES);
    let from = gate.on_the_way(&a, &at(&a, "ds/"));
    let steering = home.swath(args(&[&a, &b], &[from, at(&b, "copy/")])).start();
    home.wait_for_bytes("b/copy.swath.part/x.h5", 300_000);
    steering.signal(9);
    steering.wait();
    assert!(!home.exists("b/copy/x.h5"));
    gate.open();
    until("the copy ends", || home.exists("b/copy/x.h5"));
    home.has_dataset("b/copy");
}

#[test]
fn a_copy_that_is_interrupted_is_cancelled_there_and_resumes() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let b = destination(&home, "127.0.0.1:0", &[]);
    let gate = Gate::before(&a, GATED_BYTES);
    let from = gate.on_the_way(&a, &at(&a, "ds/"));
    let command = args(&[&a, &b], &[from, at(&b, "copy/")]);
    let steering = home.swath(&command).start();
    home.wait_for_bytes("b/copy.swath.part/x.h5", 300_000);
    steering.signal(2);
    steering.wait().code_is(130).says(&["stopped"]);
    until("it is cancelled", || states(&home, &b)[0].1 == "cancelled");
    gate.open();
    assert!(!home.exists("b/copy/x.h5"), "it has gone on");
    home.run(&command).code_is(0).says(&["from an earlier run"]);
    home.has_dataset("b/copy");
}

#[test]
fn a_destination_that_is_killed_and_started_again_goes_on() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let free = reserved_address();
    let b = destination(&home, &free, &[]);
    let gate = Gate::before(&a, GATED_BYTES);
    let from = gate.on_the_way(&a, &at(&a, "ds/"));
    let mut steering = home.swath(args(&[&a, &b], &[from, at(&b, "copy/")])).start();
    home.wait_for_bytes("b/copy.swath.part/x.h5", 300_000);
    assert!(!steering.is_over());
    b.signal(9);
    b.wait();
    let _again = destination(&home, &free, &[]);
    gate.open();
    steering.wait().code_is(0).says(&["retrying"]);
    home.has_dataset("b/copy");
}

#[test]
fn a_copy_goes_on_alone_and_is_found_followed_and_cancelled() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let b = destination(&home, "127.0.0.1:0", &["--third-party-jobs", "1"]);
    let gate = Gate::before(&a, GATED_BYTES);
    let trust = ["--fingerprint".to_owned(), fingerprint(&b)];
    let at_b = |job: &str| format!("{}@{}", job.split_once('@').unwrap().0, at(&b, ""));
    let begin = |to: &str| {
        let from = gate.on_the_way(&a, &at(&a, "ds/"));
        let command = args(&[&a, &b], &[from, at(&b, to)]);
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
    assert!(listed.contains("/one  from https://") && listed.contains("/ds/"), "{listed}");
    assert_eq!(state(&second, &listed), "waiting", "one at a time");
    home.run(["cancel", &at_b(&second), &trust[0], &trust[1]]).code_is(0).says(&["cancelled"]);
    let attach = ["attach", &at_b(&first), &trust[0], &trust[1]].map(str::to_owned);
    let seen = fs::File::create(home.path("seen")).unwrap();
    let mut looking = home.swath(&attach).arg("--json");
    looking.command().stdout(seen);
    let mut looking = looking.start();
    until("something of it is seen", || !home.read("seen").is_empty());
    assert!(!looking.is_over());
    // Whoever looks ends nothing.
    looking.signal(2);
    looking.wait().code_is(130);
    assert_eq!(state(&first, &jobs()), "running");
    gate.open();
    let followed = home.run(&attach);
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

/// Without that it would wait for ever.
#[test]
fn rights_to_read_are_renewed_while_the_client_is_there() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let log = home.path("b.log");
    let b = destination(&home, "127.0.0.1:0", &["--log", log.to_str().unwrap()]);
    let gate = Gate::before(&a, GATED_BYTES);
    let from = gate.on_the_way(&a, &at(&a, "ds/"));
    let command = args(&[&a, &b], &[from, at(&b, "copy/")]);
    let copying = home.swath(&command).arg("--grant-for").arg("2s").start();
    // Once it is ordered, and again for each of the rights that end meanwhile.
    let orders = || notes(&home, "b.log").matches("\"POST /copy/").count();
    until("its rights have ended three times", || orders() > 3);
    gate.open();
    copying.wait().code_is(0).says(&["verified by the checksum of every block"]);
    home.has_dataset("b/copy");
}

#[test]
fn a_copy_whose_rights_have_ended_waits_until_its_command_is_repeated() {
    let home = with_dataset("a");
    // More than what is asked for in the first second.
    home.write("a/ds/large", bytes(5, 30_000_000));
    let a = home.serve(&["a"]);
    let free = reserved_address();
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
    let attach = ["attach", &job_at, "--fingerprint", &fingerprint(&b)].map(str::to_owned);
    let mut looking = noting(&home, &attach, "looking");
    until("it waits too", || notes(&home, "looking").contains("waiting for a token"));
    assert!(!looking.is_over());
    home.run(&command).code_is(0).says(&[&job, "carries out this copy already"]);
    home.has_dataset("b/copy");
    assert!(home.read("b/copy/large") == bytes(5, 30_000_000));
    looking.wait().code_is(0);
    assert!(notes(&home, "looking").contains("repeat the command"));
}

/// The repeated command failed: "another process is copying" to the same folder.
#[test]
fn a_command_that_is_repeated_after_its_death_follows_the_same_copy() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let b = destination(&home, "127.0.0.1:0", &[]);
    let gate = Gate::before(&a, GATED_BYTES);
    let from = gate.on_the_way(&a, &at(&a, "ds/"));
    let command = args(&[&a, &b], &[from, at(&b, "copy/")]);
    let first = home.swath(&command).start();
    home.wait_for_bytes("b/copy.swath.part/x.h5", 300_000);
    first.signal(9);
    first.wait();
    let again = noting(&home, &command, "again");
    until("it follows", || notes(&home, "again").contains("carries out this copy already"));
    gate.open();
    again.wait().code_is(0);
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
    let b = destination(&home, "127.0.0.1:0", &["--plain"]);
    let token = format!("Authorization: Bearer {}\r\n", b.token());
    let gate = Gate::before(&a, GATED_BYTES);
    // The answer's head and lines, up to the first that tells of the copy.
    let order = |job: &str, path: &str, sources: &str| {
        let mut tcp = TcpStream::connect(b.address()).unwrap();
        let length = sources.len();
        let head = format!("POST /{path}?swath=fetch&job={job} HTTP/1.1\r\nHost: a\r\n{token}");
        let rest = format!("Content-Length: {length}\r\nConnection: close\r\n\r\n{sources}");
        tcp.write_all((head + &rest).as_bytes()).unwrap();
        let mut told = String::new();
        for line in BufReader::new(tcp).lines() {
            told += &line.unwrap();
            if told.contains("opened") {
                break;
            }
        }
        told
    };
    let source = gate.on_the_way(&a, &format!("{}ds/", a.url));
    let of = |more: &str| format!(r#"{{"sources":[{{"url":"{source}"{more}}}]}}"#);
    // It would lift the limit of the server.
    let unlimited = of("").replace("}]}", "}],\"limit_bytes_per_s\":0}");
    let text = order("j1", "copy/", &unlimited);
    assert!(text.contains("more than zero") && text.starts_with("HTTP/1.1 400"), "{text}");
    let text = order("j1", "copy/", &of(r#","fingerprints":["zz"]"#));
    assert!(text.contains("'zz' is not the SHA-256") && text.starts_with("HTTP/1.1 400"), "{text}");
    // It would end its line, and begin another request.
    for token in ["x\\r\\n\\r\\nDELETE /ds/ HTTP/1.1", "two words", "n\\u0000l", "\\u00e9"] {
        let text = order("j1", "copy/", &of(&format!(r#","token":"{token}""#)));
        assert!(text.contains("one word of plain") && text.starts_with("HTTP/1.1 400"), "{text}");
    }
    let print = fingerprint(&a).replace("sha-256:", "");
    let good = of(&format!(r#","fingerprints":["{print}"]"#));
    let lines = order("j1", "copy/", &good);
    assert!(lines.contains("opened"), "it runs on when nobody listens any more: {lines}");
    // The name is that of another copy.
    let text = order("j1", "other/", &good);
    assert!(text.contains("another job") && text.starts_with("HTTP/1.1 409"), "{text}");
    let listed = b.ask("GET", "/?swath=jobs", &token, b"").is(200).json();
    let jobs: Vec<(&Value, &Value)> =
        listed["jobs"].as_array().unwrap().iter().map(|job| (&job["job"], &job["state"])).collect();
    assert_eq!(jobs, [(&"j1".into(), &"running".into())]);
}

/// A kept copy went on in whatever the server served next, and removed what was there.
#[test]
fn a_kept_copy_goes_on_only_in_the_folder_where_it_began() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let free = reserved_address();
    let b = destination(&home, &free, &[]);
    let gate = Gate::before(&a, GATED_BYTES);
    let from = gate.on_the_way(&a, &at(&a, "ds/"));
    let command = args(&[&a, &b], &[from, at(&b, "")]);
    home.run(command.iter().map(String::as_str).chain(["--delete", "--detach"])).code_is(0);
    until("some data is there", || home.disk_bytes("b") > 300_000);
    b.signal(9);
    b.wait();
    home.write("other/own", "mine");
    let from = ["--write", "--third-party", "--third-party-from", "127.0.0.0/8"];
    let other = home.serve(&[&["other"][..], &from].concat());
    gate.open();
    // It knows of the copy, and does not carry it out.
    let known = states(&home, &other);
    assert!(known.iter().all(|(_, state)| state != "running" && state != "done"), "{known:?}");
    assert_eq!(home.names_in("other"), ["own"]);
    // Two servers of the same folders would be in each other's way.
    let _again = destination(&home, &free, &[]);
    let second = home.run(["serve", "b", "--write", "--third-party", "--listen", "127.0.0.1:0"]);
    second.code_is(6).says(&["another server keeps its jobs in"]);
    until("the copy ends", || home.exists("b/x.h5"));
    home.has_dataset("b");
    assert_eq!(home.names_in("other"), ["own"]);
    drop(other);
}

#[test]
fn a_copy_ends_with_the_token_that_ordered_it() {
    let home = with_dataset("a");
    let a = home.serve(&["a"]);
    let tokens = "a-token-that-is-long-enough write\nanother-token-that-is-long write\n";
    home.write("tokens", tokens);
    let b = destination(&home, "127.0.0.1:0", &["--token-file", "tokens"]);
    let gate = Gate::before(&a, GATED_BYTES);
    let from = gate.on_the_way(&a, &at(&a, "ds/"));
    let to = b.url.replace("://", "://x:a-token-that-is-long-enough@") + "copy/";
    // All servers of a user have one certificate.
    let command = args(&[&a], &[from, to]);
    let mut steering = home.swath(command).start();
    home.wait_for_bytes("b/copy.swath.part/x.h5", 300_000);
    assert!(!steering.is_over());
    home.write("tokens", "another-token-that-is-long write\n");
    b.signal(1);
    steering.wait().code_is(5).says(&["does not permit writing any more"]);
    assert!(!home.exists("b/copy/x.h5"));
}
