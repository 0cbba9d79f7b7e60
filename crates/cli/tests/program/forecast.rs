//! `swath forecast`: how long a command would take, before anything moves.

use std::path::Path;

use serde_json::Value;
use swath_netlab::faulty::{Behaviour, Content};

use crate::support::Home;
use crate::support::net::{server, url};

/// The forecast as programs read it.
#[track_caller]
fn forecast(home: &Home, words: &[&str]) -> Value {
    let mut args = vec!["forecast"];
    args.extend(words);
    args.push("--json");
    let ran = home.run(args);
    serde_json::from_str(ran.code_is(0).out().trim()).unwrap_or_else(|_| panic!("{ran}"))
}

#[test]
fn without_a_history_a_sample_is_measured_and_nothing_is_written() {
    let content = Content::random(7, 300_000_000);
    let slow = server(&content, Behaviour::rate(2_000_000));
    let home = Home::new();
    let told = forecast(&home, &["get", &url(&slow), "-d", "to"]);
    assert_eq!(
        (&told["bytes"], &told["files"], &told["past_transfers"]),
        (&300_000_000.into(), &1.into(), &0.into())
    );
    assert_eq!((&told["from"], &told["to"]), (&slow.address().to_string().into(), &"here".into()));
    // It would take 150 s at least. A busy machine may measure less than it can do.
    let likely_s = told["predicted_s"].as_f64().unwrap();
    assert!(likely_s > 100.0, "{told}");
    let sampled = told["sampled_bytes"].as_u64().unwrap();
    assert!(0 < sampled && sampled < 150_000_000, "{told}");
    assert!(!home.path("to").exists());
    home.run(["history"]).code_is(0).shows(&["no transfers are remembered"]);
}

#[test]
fn past_transfers_are_believed_and_no_sample_is_fetched() {
    let content = Content::random(7, 2_000_000);
    let slow = server(&content, Behaviour::rate(2_000_000));
    let home = Home::new();
    home.run(["get", &url(&slow), "-o", "first"]).code_is(0);
    let told = forecast(&home, &["get", &url(&slow), "-o", "second"]);
    assert_eq!((&told["past_transfers"], &told["sampled_bytes"]), (&1.into(), &Value::Null));
    assert!(told["predicted_s"].as_f64().unwrap() > 0.5, "{told}");
    let ran = home.run(["forecast", "get", &url(&slow), "-o", "second", "--deadline", "1s"]);
    ran.code_is(0).shows(&[
        "2.00 MB in 1 file, from 127.0.0.1:",
        "from 1 past transfer between these places",
        "the deadline of 1.00 s ",
        "more replicas; a relay on the way (--relay)",
    ]);
    // What is there already needs no transfer.
    home.run(["forecast", "get", &url(&slow), "-o", "first"])
        .code_is(0)
        .shows(&["nothing to transfer"]);
}

#[test]
fn a_limit_of_the_rate_holds_and_is_not_learned_from() {
    let content = Content::random(7, 1_000_000);
    let fast = server(&content, Behaviour::rate(1_000_000_000));
    let home = Home::new();
    home.run(["get", &url(&fast), "-o", "held", "--limit-rate", "1M"]).code_is(0);
    let told = forecast(&home, &["get", &url(&fast), "-o", "other"]);
    assert_eq!(told["past_transfers"], 0, "{told}");
    let told = forecast(&home, &["get", &url(&fast), "-o", "other", "--limit-rate", "10k"]);
    assert!(told["predicted_low_s"].as_f64().unwrap() > 96.9, "{told}");
    let fast_url = url(&fast);
    let limited = ["--limit-rate", "10k", "--deadline", "1m"];
    let mut args = vec!["forecast", "get", &fast_url, "-o", "x"];
    args.extend(limited);
    let ran = home.run(args);
    ran.code_is(0).shows(&["it would help: a higher --limit-rate\n"]);
}

#[test]
fn copies_are_planned_and_lists_are_asked_for() {
    let home = Home::new();
    for name in ["a", "b", "c"] {
        home.write(&format!("tree/{name}"), "0123456789");
    }
    let told = forecast(&home, &["cp", "tree/", "copy/"]);
    assert_eq!((&told["bytes"], &told["files"]), (&30.into(), &3.into()));
    // Folders are no files.
    home.write("deep/er/a", "0123456789");
    let told = forecast(&home, &["cp", "deep/", "copy/"]);
    assert_eq!((&told["bytes"], &told["files"]), (&10.into(), &1.into()));
    let told = forecast(&home, &["cp", "tree/a", "copy/"]);
    assert_eq!((&told["bytes"], &told["files"]), (&10.into(), &1.into()));
    assert!(!home.path("copy").exists());
    let content = Content::random(7, 1000);
    let (good, gone) = (
        server(&content, Behaviour::rate(1_000_000_000)),
        server(&content, Behaviour::status(404)),
    );
    home.write("list", format!("{}\n out=a\n{}\n out=b\n", url(&good), url(&gone)));
    let told = forecast(&home, &["get", "-i", "list"]);
    assert_eq!(
        (&told["bytes"], &told["files"], &told["files_of_unknown_size"]),
        (&1000.into(), &1.into(), &1.into())
    );
    // What is there is not fetched again, and of the other one nothing is known.
    home.run(["get", "-i", "list"]).code_is(8);
    let ran = home.run(["forecast", "get", "-i", "list"]);
    ran.code_is(7).says(&["b: the server answered 404", "no server tells the size of 1 file"]);
    home.write("list", format!("{}\n out=a\n", url(&good)));
    home.run(["forecast", "get", "-i", "list"]).code_is(0).shows(&["nothing to transfer"]);
}

#[test]
fn what_cannot_be_asked_for_fails_as_the_command_would() {
    let content = Content::random(7, 1000);
    let gone = server(&content, Behaviour::status(404));
    let home = Home::new();
    let ran = home.run(["forecast", "get", &url(&gone), "-o", "x"]);
    ran.shows(&["404"]);
    assert_eq!(ran.code(), home.run(["get", &url(&gone), "-o", "x"]).code());
    for (time, words) in [("25:00", "'25:00' is not a time"), ("2020-01-01T00:00", "is past")] {
        home.run(["forecast", "get", &url(&gone), "--at", time]).code_is(2).says(&[words]);
    }
    home.run(["forecast", "cp", "nothing/", "to/"]).code_is(6);
}

#[test]
fn the_reason_is_shown_while_no_sample_comes() {
    let content = Content::random(7, 1000);
    let home = Home::new();
    for command in [&["tune"][..], &["forecast", "get"]] {
        let broken = server(&content, Behaviour::status(500).first(2));
        let url = url(&broken);
        let args = command.iter().copied().chain([url.as_str()]);
        home.run(args).code_is(0).says(&["500 Internal Server Error; trying again"]);
    }
}

#[test]
fn the_time_of_the_start_is_that_of_the_users_zone() {
    if !Path::new("/usr/share/zoneinfo/Europe/Berlin").exists() {
        return println!("skipped: this system has no time zones");
    }
    let content = Content::random(7, 1000);
    let good = server(&content, Behaviour::rate(1_000_000_000));
    let home = Home::new();
    let at = |more: &[&str]| {
        let url = url(&good);
        let args = ["forecast", "get", &url, "--at", "2099-06-01T22:00"];
        home.swath(args.iter().chain(more)).env("TZ", "Europe/Berlin").run()
    };
    at(&[]).code_is(0).shows(&["if it begins at 2099-06-01 22:00 (CEST): between "]);
    let told: Value = serde_json::from_str(at(&["--json"]).code_is(0).out().trim()).unwrap();
    assert_eq!(told["start"], 4_084_027_200.0, "{told}");
}
