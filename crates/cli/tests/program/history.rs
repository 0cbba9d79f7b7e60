//! The history of transfers: what is remembered, forecast, imported and forgotten.

use serde_json::Value;
use swath_netlab::faulty::{Behaviour, Content};

use crate::net_events::fit;
use crate::support::net::{server, url};
use crate::support::trees::bytes;
use crate::support::{Home, Ran, until};
use crate::third_party_servers::{args, at};

/// The transfers that the history has.
fn history(home: &Home) -> Vec<Value> {
    let ran = home.run(["history", "--json"]);
    let lines = ran.code_is(0).out();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The first event of this name.
fn event(ran: &Ran, name: &str) -> Option<Value> {
    let lines = ran.out();
    let mut events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.find(|event| event["event"] == name)
}

#[test]
fn the_second_transfer_is_forecast_by_the_first() {
    let content = Content::random(7, 3_000_000);
    let slow = server(&content, Behaviour::rate(2_000_000));
    let home = Home::new();
    for (name, has_forecast) in [("first", false), ("second", true)] {
        let ran = home.run(["get", "--json", &url(&slow), "-o", name]);
        fit(ran.code_is(0));
        let finished = event(&ran, "finished").unwrap();
        assert_eq!(event(&ran, "forecast").is_some(), has_forecast, "{ran}");
        assert_eq!(finished["forecast"].is_object(), has_forecast, "{ran}");
    }
    let all = history(&home);
    assert_eq!(all.len(), 2);
    let site = slow.address().to_string();
    for transfer in &all {
        assert_eq!(
            (&transfer["from"], &transfer["to"]),
            (&Value::from(site.clone()), &"here".into())
        );
        assert_eq!((&transfer["complete"], &transfer["bytes"]), (&true.into(), &3_000_000.into()));
        assert!(transfer["duration"].as_f64().unwrap() > 1.0, "{transfer}");
    }
    // How far off it is depends on how busy this machine is; its order does not.
    let [low, likely, high] = ["predicted_low_s", "predicted_s", "predicted_high_s"]
        .map(|name| all[1][name].as_f64().unwrap());
    assert!(0.0 < low && low < likely && likely < high, "{low} {likely} {high}");
    assert!(all[0]["predicted_s"].is_null());
    home.run(["history"]).code_is(0).shows(&[&site, "3.00 MB", "1 forecast: "]);
    home.run(["history", "--svg", "all.svg"]).code_is(0);
    let picture = String::from_utf8(home.read("all.svg")).unwrap();
    assert_eq!(
        picture.matches("class=\"p in\"").count() + picture.matches("class=\"p out\"").count(),
        1
    );
    home.run(["history", "--svg", "none/all.svg"])
        .code_is(5)
        .shows(&["cannot write the picture to none/all.svg"]);
    home.run(["history", "other.example"]).code_is(0).shows(&["no transfers are remembered"]);
    home.run(["history", "forget", &site]).code_is(0).shows(&["2 transfers forgotten"]);
    assert_eq!(history(&home).len(), 0);
}

#[test]
fn a_list_is_one_transfer_once_it_has_ended() {
    let content = Content::random(7, 2_000_000);
    let slow = server(&content, Behaviour::rate(1_000_000));
    let home = Home::new();
    home.write("list", format!("{0}\n  out=a\n{0}\n  out=b\n", url(&slow)));
    let ran = home.run(["get", "-i", "list", "-j", "1", "--deadline", "2s"]);
    ran.code_is(0).says(&["the deadline of 2.00 s was missed"]);
    let all = history(&home);
    let [list] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((&list["files"], &list["bytes"]), (&2.into(), &4_000_000.into()), "{list}");
    assert_eq!(list["from"], slow.address().to_string());
    assert!(list["duration"].as_f64().unwrap() > 2.0, "{list}");
    // What is there already is no transfer.
    home.run(["get", "-i", "list"]).code_is(0);
    assert_eq!(history(&home).len(), 1);
}

#[test]
fn what_fails_and_what_is_off_is_not_learned_from() {
    let content = Content::random(7, 3_000_000);
    let cut = server(&content, Behaviour::rate(2_000_000));
    let home = Home::new();
    let off = home.swath(["get", &url(&cut), "-o", "off"]).env("SWATH_STATE", "off").run();
    off.code_is(0);
    home.run(["history"]).code_is(0).shows(&["no transfers are remembered"]);
    // What ends neither before it is seen nor before it is killed.
    let endless = server(&Content::random(8, 60_000_000), Behaviour::rate(300_000));
    let is_running = || history(&home).iter().any(|transfer| transfer["duration"].is_null());
    let running = home.swath(["get", &url(&endless), "-o", "killed"]).start();
    until("a transfer runs", is_running);
    running.signal(libc::SIGKILL);
    running.wait();
    // The next one finds that it does not run any more.
    home.run(["get", &url(&cut), "-o", "whole"]).code_is(0);
    let all = history(&home);
    assert_eq!((all.len(), &all[0]["beside"]), (1, &0.into()), "{all:?}");
    // What is stopped is shown, but not passed on as a duration.
    let stopped = home.swath(["get", &url(&endless), "-o", "stopped"]).start();
    until("a transfer runs", is_running);
    stopped.signal(libc::SIGINT);
    stopped.wait();
    let all = history(&home);
    assert_eq!((all.len(), &all[1]["complete"]), (2, &false.into()), "{all:?}");
    assert_eq!(home.run(["history", "--csv"]).code_is(0).out().lines().count(), 2);
}

#[test]
fn logs_of_transfer_services_are_imported() {
    let home = Home::new();
    let tasks = r#"{"DATA_TYPE": "task_list", "DATA": [
        {"status": "SUCCEEDED", "request_time": "2025-03-01T10:00:00+00:00",
         "completion_time": "2025-03-01T10:02:30+00:00", "bytes_transferred": 5000000,
         "files_transferred": 6, "source_endpoint_display_name": "Lab A",
         "destination_endpoint_display_name": "Lab B"},
        {"status": "FAILED", "request_time": "2025-03-01T11:00:00+00:00", "bytes_transferred": 7}]}"#;
    home.write("GLOBUS.json", tasks);
    let ran = home.run(["history", "import", "GLOBUS.json"]);
    ran.code_is(0).shows(&["1 transfer imported", "1 record left out", "record 2: not complete"]);
    let all = history(&home);
    assert_eq!((&all[0]["from"], &all[0]["duration"]), (&"Lab_A".into(), &150.0.into()));
    home.write("cut.json", &tasks[..tasks.len() - 9]);
    home.run(["history", "forget"]).code_is(0);
    home.run(["history", "import", "cut.json"]).code_is(6).shows(&["is not JSON"]);
    assert_eq!(history(&home).len(), 0);
}

#[test]
fn a_log_is_imported_and_read_again() {
    let home = Home::new();
    home.write(
        "log.csv",
        "from,start,bytes,duration\na.example,1000000000,5000000,2.5\nb.example,1000000100,7,0\n\
         c.example,1000000200,9,1e3\nd.example,4000000000,9,1\n",
    );
    let ran = home.run(["history", "import", "log.csv"]);
    ran.code_is(0).shows(&[
        "log.csv: 2 transfers imported",
        "1 left out: in the future",
        "1 line left out",
        "line 3: took no time",
    ]);
    let again = home.run(["history", "import", "log.csv"]);
    again.code_is(0).shows(&["0 transfers imported, 2 known already"]);
    let csv = home.run(["history", "--csv"]);
    home.write("again.csv", csv.code_is(0).out());
    for (format, lines) in [("--json", 1), ("--csv", 2)] {
        let last = home.run(["history", "--last", "1", format]).code_is(0).out();
        assert_eq!(last.lines().count(), lines, "{last}");
        assert!(last.contains("c.example") && !last.contains("a.example"), "{last}");
    }
    let again = home.run(["history", "import", "again.csv"]);
    again.code_is(0).shows(&["0 transfers imported, 2 known already"]);
    home.write(
        "iso.csv",
        "from,start,end,bytes\nz.example,2026-11-01T10:00:00Z,2026-11-01 10:00:05,9\n",
    );
    home.run(["history", "import", "iso.csv"]).code_is(0).shows(&["1 transfer imported"]);
    let iso = home.run(["history", "z.example", "--json"]).code_is(0).out();
    assert!(
        iso.contains("\"start\":1793527200.0,\"duration\":5.0") && iso.contains("\"to\":\"here\""),
        "{iso}"
    );
    // Nothing of it is of use.
    home.write("odd.csv", "start,bytes,duration\nyesterday,1,1\n");
    home.run(["history", "import", "odd.csv"]).code_is(6).shows(&["0 transfers imported"]);
    for (name, text, words) in [
        ("empty.csv", "", "no column for the start"),
        ("columns.csv", "when,bytes,duration\n1,2,3\n", "no column for the start"),
        ("twice.csv", "start,bytes,size,duration\n1,2,2,3\n", "'bytes' and 'size' mean the same"),
        ("rubbish.gz", "no gzip", "cannot be read"),
    ] {
        home.write(name, text);
        home.run(["history", "import", name]).code_is(6).shows(&[name, words]);
    }
    home.run(["history", "import", "missing.csv"]).code_is(6).shows(&["missing.csv"]);
    assert_eq!(history(&home).len(), 3);
    home.run(["history", "forget"]).code_is(0).shows(&["3 transfers forgotten"]);
    home.run(["history", "forget"]).code_is(0).shows(&["nothing is remembered"]);
}

#[test]
fn what_was_exported_is_known_to_the_last_digit() {
    let home = Home::new();
    let line = |at: u32| {
        let start = 1e9 + f64::from(at) * 1234.567 + f64::from(at) / 7.0;
        format!("a.example,{start},{},{}\n", 1000 * at, f64::from(at) / 3.0)
    };
    let lines: String = (1..=100).map(line).collect();
    home.write("log.csv", format!("from,start,bytes,duration\n{lines}"));
    home.run(["history", "import", "log.csv"]).code_is(0).shows(&["100 transfers imported"]);
    for format in ["json", "csv"] {
        home.write("again", home.run(["history", &format!("--{format}")]).code_is(0).out());
        let again = home.run(["history", "import", "again"]);
        again.code_is(0).shows(&["0 transfers imported, 100 known already"]);
    }
}

#[test]
fn another_programs_file_is_left_alone() {
    let home = Home::new();
    home.write("here.db", "not a database, but long enough to be looked at; ".repeat(100));
    let state = home.path("state.db");
    std::fs::copy(home.path("here.db"), home.path("history.db")).unwrap();
    let before = home.read("history.db");
    let shown = home.swath(["history"]).env("SWATH_STATE", &state).run();
    shown.code_is(6).shows(&["history.db"]);
    let content = Content::random(7, 300_000);
    let slow = server(&content, Behaviour::rate(1_000_000));
    let ran = home.swath(["get", &url(&slow), "-o", "whole"]).env("SWATH_STATE", &state).run();
    ran.code_is(0).shows(&["no history of transfers, and no forecast"]);
    assert_eq!(home.read("history.db"), before);
}

#[test]
fn transfers_begin_with_the_connections_that_paid() {
    // A rate that this machine can keep eight times over, however busy it is.
    let content = Content::random(7, 30_000_000);
    let narrow = server(&content, Behaviour::ConnectionRate { bytes_per_s: 2_000_000 });
    let home = Home::new();
    home.run(["tune"]).code_is(0).shows(&["nothing is known yet"]);
    let tuned = home.run(["tune", &url(&narrow), "--budget", "24M"]);
    tuned.code_is(0).shows(&["connections        rate  measured", "for a week"]);
    let site = narrow.address().to_string();
    let known = home.run(["tune", "--json"]);
    let known: Value = serde_json::from_str(known.code_is(0).out().trim()).unwrap();
    let connections = known["connections"].as_u64().unwrap();
    // Each connection has its own limit, so many pay, however busy this machine is.
    assert!(known["site"] == site.as_str() && (2..=8).contains(&connections), "{known}");
    home.run(["tune"]).code_is(0).shows(&[&site, &format!("{connections} connections")]);
    let ran = home.run(["get", "--json", &url(&narrow), "-o", "file"]);
    fit(ran.code_is(0));
    let finished = event(&ran, "finished").unwrap();
    assert!(finished["sources"][0]["lanes"].as_u64().unwrap() >= connections, "{finished}");
    let none = home.run(["tune", &format!("http://{site}/none"), "--budget", "1M"]);
    none.code_is(7).shows(&["404"]);
}

#[test]
fn a_copy_between_servers_is_remembered_by_both_who_order_and_who_fetch() {
    let [home, there] = [Home::new(), Home::new()];
    home.write("a/ds/x.h5", bytes(1, 6_000_000));
    there.write("b/other", "");
    // What takes no time teaches nothing.
    let a = home.serve(&["a", "--limit-rate", "2M"]);
    let fetches = ["b", "--write", "--third-party", "--third-party-from", "127.0.0.0/8"];
    let b = there.serve(&fetches);
    home.run(args(&[&a, &b], &[at(&a, "ds/"), at(&b, "copy/")])).code_is(0);
    let places = |home: &Home| {
        let all = history(home);
        assert_eq!(all.len(), 1, "{all:?}");
        [&all[0]["from"], &all[0]["to"]].map(|place| place.as_str().unwrap().to_owned())
    };
    let [from, to] = [&a, &b].map(|server| server.address().to_string());
    assert_eq!(places(&home), [from.clone(), to]);
    assert_eq!(places(&there), [from, "here".to_owned()]);
}
