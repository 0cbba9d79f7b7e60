//! Ordered output, machine-readable output, reports, policies, and `swath probe`.

use std::io::Read as _;
use std::time::Duration;

use crate::support::net::{building, honest, server, sha256, slow, url};
use crate::support::{Home, until};
use swath_netlab::faulty::{Algorithm, Behaviour, Content, DigestField, Scope, Server};

const SIZE: u64 = 6_000_011;

#[test]
fn in_order_into_a_pipe() {
    let content = Content::random(1, SIZE);
    let sources = [honest(&content), honest(&content)];
    let home = Home::new();
    let mut args = ["get", "-o", "-"].map(str::to_owned).to_vec();
    args.extend(sources.iter().map(url));
    args.extend(["--digest".to_owned(), sha256(&content)]);
    let ran = home.run(&args);
    ran.code_is(0).says(&["verified by sha-256"]);
    assert!(ran.stdout == content.read(0, SIZE), "in order");
    assert!(home.names().is_empty());
    *args.last_mut().unwrap() = format!("sha-256:{}", "1".repeat(64));
    home.run(&args)
        .code_is(4)
        .says(&["the digest does not match", "the output is wrong or incomplete: do not use it"]);
}

#[test]
fn a_consumer_that_closes_early_ends_it() {
    // Nobody waits for the end of so much: it ends because its reader has gone.
    let content = Content::random(1, 1 << 50);
    let source = honest(&content);
    let home = Home::new();
    let mut swath = home.swath(["get", &url(&source), "-o", "-"]);
    let mut child = swath.command().spawn().unwrap();
    let mut first = vec![0; 1000];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(first, content.read(0, 1000));
    let ran = swath.joined(child).wait();
    assert_ne!(ran.code(), 0);
    ran.says(&["standard output was closed before the end"]).never_says(&["panicked"]);
}

#[test]
fn every_policy_and_number_of_lanes_delivers() {
    let content = Content::random(1, SIZE);
    let sources = [slow(&content, 9_000_000), slow(&content, 18_000_000)];
    for more in [
        &["--policy", "swath"][..],
        &["--policy", "mdtp", "--initial-chunk", "200k", "--large-chunk", "1M"],
        &["--policy", "fixed", "--chunk", "500k"],
        &["--policy", "single"],
        &["--connections", "4"],
        &["--max-sources", "1"],
        &["--io", "threads"],
        &["--io", "buffered"],
    ] {
        let home = Home::new();
        let mut args = vec!["get".to_owned(), url(&sources[0]), url(&sources[1])];
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        home.run(&args).code_is(0);
        home.holds_only("data.bin", &content);
    }
}

#[test]
fn json_is_one_event_a_line_with_stable_fields() {
    let content = Content::random(1, SIZE);
    // The file takes a while from when the other one has said that it has none.
    let silent = Behaviour::Silent { after: Duration::ZERO };
    let one = building(&content)
        .behaviour(silent.clone())
        .behaviour(Behaviour::rate(4_000_000))
        .start()
        .unwrap();
    let gone = server(&content, Behaviour::status(404));
    let home = Home::new();
    let args = ["get", "--json", &url(&one), &url(&gone), "--digest", &sha256(&content)];
    let running = home.swath(args).start();
    let has_answered = || gone.log().records.iter().any(|record| record.ended.is_some());
    until("the other one has answered", has_answered);
    one.unset(&silent);
    let ran = running.wait();
    ran.code_is(0);
    let events: Vec<serde_json::Value> = ran
        .out()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let named =
        |name: &str| events.iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    let started = named("started");
    assert_eq!(started.len(), 1);
    assert_eq!(started[0]["path"], "data.bin");
    assert_eq!(started[0]["sources"][0], url(&one));
    assert_eq!(named("opened")[0]["size_bytes"], SIZE);
    assert!(
        named("source")
            .iter()
            .any(|event| event["state"] == "bad"
                && event["reason"].as_str().unwrap().contains("404"))
    );
    for field in [
        "source",
        "lane",
        "start",
        "end",
        "asked_end",
        "asked_at_s",
        "first_byte_at_s",
        "ended_at_s",
        "outcome",
    ] {
        assert!(named("swath").iter().all(|event| event.get(field).is_some()), "{field}");
    }
    for field in [
        "at_s",
        "phase",
        "size_bytes",
        "done_bytes",
        "resumed_bytes",
        "verified_bytes",
        "rate_bytes_per_s",
        "eta",
        "sources",
    ] {
        assert!(named("progress").iter().all(|event| event.get(field).is_some()), "{field}");
    }
    let last = events.last().unwrap();
    assert_eq!(last["event"], "finished");
    assert_eq!(last["fetched_bytes"], SIZE);
    assert_eq!(last["digest"], sha256(&content));
    assert_eq!(last["sources"].as_array().unwrap().len(), 2);
    let ran = home.run(["get", "--json", &url(&gone), "-o", "x"]);
    ran.code_is(7);
    let out = ran.out();
    let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "failed");
    assert_eq!(last["kept_bytes"], 0);
    assert!(last["error"].as_str().unwrap().contains("404"));
}

#[test]
fn a_report_is_one_page_that_needs_nothing_else() {
    let content = Content::random(1, SIZE);
    let source = honest(&content);
    let home = Home::new();
    home.run(["get", &url(&source), "--report", "../report.html"])
        .code_is(0)
        .says(&["report: ../report.html"]);
    let page = std::fs::read_to_string(home.path("../report.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") || page.starts_with("<!doctype html>"));
    for outside in ["src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("data.bin"));
    home.run(["get", &url(&source), "-o", "x", "--report", "/no/such/folder/report.html"])
        .code_is(5)
        .says(&["cannot write the report"]);
    home.lacks("x");
    assert_eq!(home.names(), ["data.bin"], "it was found out before anything was fetched");
}

/// What was over before the first look at its sources left them `probing`, which reads as lost.
#[test]
fn whoever_delivered_in_a_moment_is_not_lost() {
    let content = Content::random(1, 100_000);
    let source = honest(&content);
    let home = Home::new();
    let ran = home.run(["get", &url(&source), "--json"]);
    let last: serde_json::Value = serde_json::from_str(ran.out().lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "finished");
    assert_ne!(last["sources"][0]["state"], "probing");
    home.run(["get", &url(&source), "-o", "two"])
        .code_is(0)
        .says(&["NOT VERIFIED: no digest of it is known"])
        .never_says(&["connection lost", "could not be used"]);
}

#[test]
fn a_failure_that_fetched_nothing_is_told_shortly() {
    let gone = server(&Content::random(1, 1000), Behaviour::status(404));
    let home = Home::new();
    let ran = home.run(["get", &url(&gone)]);
    ran.code_is(7).says(&["404"]).never_says(&["stopped at", "wasted", "limited by"]);
    assert!(ran.stderr.lines().count() <= 5, "{ran}");
}

/// The second run said that nothing had come, and that no source was any good (7).
#[test]
fn a_mirror_that_stays_lost_does_not_hide_what_is_kept() {
    let content = Content::random(1, SIZE);
    let lasts = Duration::from_secs(3600);
    let stall = Behaviour::Stall { after_bytes: 2_000_000, lasts, scope: Scope::Server };
    let source = server(&content, stall);
    let home = Home::new();
    let running = home.swath(["get", &url(&source)]).start();
    home.wait_for_bytes("data.bin.swath.part", 1_000_000);
    running.signal(libc::SIGINT);
    running.wait().code_is(130).says(&[" in data.bin.swath.part: "]);
    source.set(Behaviour::status(404));
    home.run(["get", &url(&source)])
        .code_is(3)
        .says(&[" in data.bin.swath.part: the same command resumes from there"]);
}

/// Numbers that differ from run to run, put aside.
fn steady(text: &str, servers: &[(&Server, &str)]) -> String {
    let mut text = text.to_owned();
    for (server, name) in servers {
        text = text.replace(&server.address().to_string(), name);
    }
    let mut lines = Vec::new();
    for line in text.lines() {
        match line.trim_start().starts_with("round trip") {
            true => lines.push("  round trip   …, first byte after …".to_owned()),
            false => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

#[test]
fn probe_tells_people_what_each_replica_offers() {
    let content = Content::random(1, 1_234_567);
    let rich = building(&content)
        .behaviour(Behaviour::header("Server", "rich/1.0"))
        .behaviour(Behaviour::DigestHeader {
            field: DigestField::ReprDigest,
            algorithm: Algorithm::Sha256,
            right: true,
        })
        .behaviour(Behaviour::header(
            "Link",
            "<http://third.example/data.bin?sig=1>; rel=duplicate; geo=ch",
        ))
        .start()
        .unwrap();
    let poor = building(&content)
        .behaviour(Behaviour::NoRanges)
        .behaviour(Behaviour::Close)
        .behaviour(Behaviour::header("Server", "poor"))
        .start()
        .unwrap();
    let odd = building(&Content::random(2, 77))
        .behaviour(Behaviour::header("Server", "odd"))
        .start()
        .unwrap();
    let gone = server(&content, Behaviour::status(404));
    let home = Home::new();
    let ran = home.run(["probe", &url(&rich), &url(&poor), &url(&odd), &url(&gone)]);
    ran.code_is(0);
    let text =
        steady(&ran.out(), &[(&rich, "rich"), (&poor, "poor"), (&odd, "odd"), (&gone, "gone")]);
    let digest = content.digest_hex(Algorithm::Sha256);
    for line in [
        "http://rich/data.bin",
        "  size         1.23 MB (1,234,567 bytes)",
        "  ranges       supported",
        &format!("  digests      sha-256:{digest}"),
        "  round trip   …, first byte after …",
        "  protocol     HTTP/1.1, keeps connections open, pipelines",
        "  security     none (plain http)",
        "  server       rich/1.0 at rich",
        "  mirrors      http://third.example/data.bin (ch)",
        "http://poor/data.bin",
        "  ranges       not supported: only one stream from the start",
        "  protocol     HTTP/1.1, closes connections after each answer",
        "http://odd/data.bin",
        "  size         77 B",
        "http://gone/data.bin",
        "2 of 3 replicas agree (1.23 MB, sha-256), 1 disagrees; 1 is unusable:",
        "  http://odd/data.bin  its file has 77 bytes, the others' 1234567",
    ] {
        assert!(text.lines().any(|known| known == line), "{line:?} is missing:\n{text}");
    }
    assert!(text.contains("  unusable     the server answered 404"), "{text}");
    let ran = home.run(["probe", &url(&odd), &url(&rich)]);
    assert!(
        ran.out().contains("No two of 2 replicas agree; against the first one (77 B)"),
        "{ran}"
    );
    let empty = honest(&Content::random(3, 0));
    let ran = home.run(["probe", &url(&empty)]);
    assert!(!ran.out().contains("not supported: only one stream from the start"), "{ran}");
    let ran = home.run(["probe", &url(&gone)]);
    ran.code_is(7);
    assert!(ran.out().ends_with("The replica is unusable.\n"), "{ran}");
    // A login page answers everything with 200.
    let page = server(&content, Behaviour::HtmlPage);
    let ran = home.run(["probe", &url(&page), &url(&rich)]);
    ran.code_is(0);
    assert!(ran.out().contains("  unusable     the server sent a web page"), "{ran}");
    assert!(ran.out().contains("1 replica is usable (1.23 MB, sha-256); 1 is unusable."), "{ran}");
}

#[test]
fn probe_tells_programs_the_same() {
    let content = Content::random(1, 1_234_567);
    let (one, two) = (honest(&content), honest(&content));
    let gone = server(&content, Behaviour::status(404));
    let home = Home::new();
    let ran = home.run(["probe", "--json", &url(&one), &url(&two), &url(&gone)]);
    ran.code_is(0);
    let lines: Vec<serde_json::Value> =
        ran.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0]["url"], url(&one));
    assert_eq!(lines[0]["size_bytes"], 1_234_567);
    assert_eq!(lines[0]["ranges"], true);
    assert_eq!(lines[0]["pipelines"], true);
    assert_eq!(lines[2]["usable"], false);
    assert!(lines[2]["error"].as_str().unwrap().contains("404"));
    assert_eq!(lines[3]["agree"], true);
    assert_eq!((&lines[3]["usable"], &lines[3]["unusable"]), (&2.into(), &1.into()));
}
