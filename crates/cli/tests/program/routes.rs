//! `swath routes`: what it shows of what is remembered, and what it forgets; the configuration file.

use std::fs;

use crate::support::net::{honest, url};
use crate::support::{Home, Ran};
use serde_json::Value;
use swath_netlab::faulty::Content;
use swath_state::{By, EdgeReading, Grade, HERE, Measured, RelayNote, State};

/// A home that remembers these edges, in Mbit/s.
fn home(edges: &[(&str, &str, f64)]) -> Home {
    let home = Home::new();
    let (state, warning) = State::open(&home.home().join(".local/state/swath/state.db"));
    assert_eq!(warning, None);
    let reading = |(from, to, mbit): &(&str, &str, f64)| EdgeReading {
        from: (*from).to_owned(),
        to: (*to).to_owned(),
        measured: Some(Measured {
            rate_bytes_per_s: mbit * 125_000.0,
            grade: if *mbit > 100.0 { Grade::AtLeast } else { Grade::Exact },
            age_s: 7300.0,
            by: if *to == HERE { By::Us } else { By::Relay((*to).to_owned()) },
        }),
        rtt_s: Some(0.048),
        is_used: *to == HERE,
    };
    state.note(edges.iter().map(reading).collect());
    state.note_relay(RelayNote { url: "https://r1.example".into(), ..RelayNote::default() });
    drop(state);
    home
}

const SMALL: &[(&str, &str, f64)] = &[
    ("data.example:443", HERE, 26.3),
    ("data.example:443", "r1.example:443", 940.0),
    ("r1.example:443", HERE, 59.9),
    ("data.example:443", "r2.example:8471", 30.0),
    ("r2.example:8471", "r1.example:443", 20.0),
];

fn routes(home: &Home, args: &[&str]) -> Ran {
    home.run([&["routes"], args].concat())
}

#[test]
fn the_graph_is_shown_with_its_widest_route() {
    let home = home(SMALL);
    let out = routes(&home, &["https://data.example/run7.h5"]).code_is(0).out();
    for line in [
        "  FROM              TO               Mbit/s  ROUND TRIP  MEASURED  USED      TOLD BY",
        "  data.example:443  here               26.3       48 ms  2 h ago   just now  us",
        "* data.example:443  r1.example:443   >= 940       48 ms  2 h ago   -         r1.example:443",
        "* r1.example:443    here               59.9       48 ms  2 h ago   just now  us",
        "  59.9 Mbit/s  data.example:443 → r1.example:443 → here",
        "               limited by r1.example:443 → here",
        "  86.2 Mbit/s  over 2 routes at once",
        "  r1.example:443  answered just now",
    ] {
        // What was used just now may have been a few seconds ago.
        let is_reported = out.lines().any(|told| told == line)
            || line.contains("just now") && out.contains(line.split("just now").next().unwrap());
        assert!(is_reported, "{line:?} is missing:\n{out}");
    }
    // The same without naming the only source.
    assert_eq!(routes(&home, &[]).code_is(0).out().lines().count(), out.lines().count());
    // Between other sites, over another way, and nowhere.
    let out = routes(&home, &["r2.example", "r1.example"]).code_is(0).out();
    assert!(out.contains("  20.0 Mbit/s  r2.example:8471 → r1.example:443\n"), "{out}");
    let relays = ["--relay", "https://r1.example", "--relay", "https://r2.example:8471"];
    let over = |route: &str| {
        let args = [&["data.example", "--route", route][..], &relays].concat();
        routes(&home, &args).code_is(0).out()
    };
    assert!(over("r1,r2").contains("  20.0 Mbit/s  data.example:443 → r2.example:8471 → r1"));
    assert!(over("r2,r1").contains("  unknown: r1.example:443 → r2.example:8471"));
    assert!(over("direct").contains("  26.3 Mbit/s  data.example:443 → here\n"));
    assert!(over("multi").contains("  86.2 Mbit/s  over 2 routes at once"));
    let out = routes(&home, &["r1.example", "data.example"]).code_is(0).out();
    assert!(out.contains("  no known route from r1.example:443 to data.example:443"), "{out}");
    routes(&home, &["other.example"]).code_is(6).says(&["nothing is known about other.example"]);
    routes(&home, &["here"]).code_is(2).says(&["the route begins and ends at"]);
}

#[test]
fn programs_get_an_object_for_each_edge() {
    let home = home(SMALL);
    let out = routes(&home, &["data.example", "--json"]).code_is(0).out();
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), SMALL.len());
    let find = |from: &str, to: &str| {
        lines.iter().find(|line| line["from"] == from && line["to"] == to).unwrap()
    };
    let told = find("data.example:443", "r1.example:443");
    assert_eq!(told["rate_bytes_per_s"], 117_500_000.0);
    assert_eq!((&told["grade"], &told["told_by"]), (&"at_least".into(), &"r1.example:443".into()));
    assert_eq!((&told["on_route"], &told["limits"]), (&true.into(), &false.into()));
    assert_eq!((&told["used_age_s"], &told["rtt_s"]), (&Value::Null, &0.048.into()));
    let limit = find("r1.example:443", HERE);
    assert_eq!((&limit["limits"], &limit["grade"]), (&true.into(), &"exact".into()));
    assert_eq!(
        (&limit["told_by"], &find("data.example:443", HERE)["on_route"]),
        (&Value::Null, &false.into())
    );
    assert!(limit["age_s"].as_f64().unwrap() >= 7300.0 && limit["used_age_s"].as_f64().is_some());
}

#[test]
fn the_graph_is_drawn() {
    let mut edges = SMALL.to_vec();
    edges.push(("<script>&\"x\":443", HERE, 1.0));
    let home = home(&edges);
    routes(&home, &["data.example", "--svg", "graph.svg"]).code_is(0);
    let svg = String::from_utf8(home.read("graph.svg")).unwrap();
    for words in
        [">data.example</text>", ">59.9 · 48 ms</text>", ">≥ 940 · 48 ms</text>", "&lt;script&gt;"]
    {
        assert!(svg.contains(words), "{words}\n{svg}");
    }
    assert!(!svg.contains("<script"));
    assert_eq!(svg.matches("class=\"e way limit").count(), 2, "the edge and the legend");
    routes(&home, &["--svg", "no/such/folder.svg"]).code_is(5).says(&["cannot write the picture"]);
}

#[test]
fn what_is_forgotten_is_named() {
    let home = home(SMALL);
    let out = routes(&home, &["forget", "r3.example"]).code_is(0).out();
    assert_eq!(out, "nothing is remembered about r3.example\n");
    let out = routes(&home, &["forget", "https://r1.example/"]).code_is(0).out();
    assert_eq!(
        out,
        "forgot data.example:443 → r1.example:443\nforgot r1.example:443 → here\n\
         forgot r2.example:8471 → r1.example:443\nforgot the relay https://r1.example\n\
         3 edges and 1 relay forgotten\n"
    );
    let left = routes(&home, &["--json"]).code_is(0).out();
    assert_eq!(left.lines().count(), 2);
    assert!(
        routes(&home, &["forget"]).code_is(0).out().ends_with("2 edges and 0 relays forgotten\n")
    );
    assert_eq!(routes(&home, &["forget"]).code_is(0).out(), "nothing is remembered\n");
    assert!(routes(&home, &[]).code_is(0).out().starts_with("nothing is remembered yet (/"));
}

#[test]
fn looking_makes_no_file_and_needs_no_home() {
    let home = Home::new();
    assert!(routes(&home, &[]).code_is(0).out().contains(".local/state/swath/state.db"));
    assert_eq!(routes(&home, &["--json"]).code_is(0).out(), "");
    assert_eq!(routes(&home, &["forget"]).code_is(0).out(), "nothing is remembered\n");
    assert_eq!(fs::read_dir(home.home()).unwrap().count(), 0);
    let homeless = home.swath(["routes"]).env_remove("HOME").run();
    assert!(
        homeless
            .code_is(0)
            .out()
            .contains("nothing is remembered: SWATH_STATE, XDG_STATE_HOME and HOME are unset")
    );
    let off = home.swath(["routes"]).env("SWATH_STATE", "off").run();
    assert!(off.code_is(0).out().contains("nothing is remembered: SWATH_STATE is off"));
}

#[test]
fn a_damaged_file_is_named_and_nothing_fails() {
    let home = Home::new();
    let file = home.write("state.db", "no database");
    let ran = home.swath(["routes"]).env("SWATH_STATE", &file).run();
    ran.code_is(0).says(&["warning:", "was damaged", "state.db.damaged-20"]);
    let left = fs::read_dir(home.work()).unwrap().map(|it| it.unwrap().path());
    let aside = left.into_iter().find(|it| it.to_str().unwrap().contains("damaged")).unwrap();
    assert_eq!(fs::read(aside).unwrap(), b"no database");
    let again = home.swath(["routes"]).env("SWATH_STATE", &file).run();
    assert_eq!(again.code_is(0).stderr, "");
}

#[test]
fn the_configuration_names_relays_and_the_command_line_wins() {
    let home = home(SMALL);
    let file = home.home().join(".config/swath/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text =
        "relays = [\n  \"https://r1.example\",\n  { url = \"https://r2.example:8471\" },\n]\n";
    fs::write(&file, text).unwrap();
    let out = routes(&home, &["data.example", "--route", "r1,r2"]).code_is(0).out();
    assert!(out.contains("  20.0 Mbit/s"), "{out}");
    assert!(out.contains("\n  r2.example:8471  never queried\n"), "{out}");
    let relay = ["data.example", "--route", "r1,r2", "--relay", "https://r1.example"];
    routes(&home, &relay).code_is(2).says(&["'r2', which is not among the relays r1.example:443"]);
    // Every command that may take a route reads it.
    fs::write(&file, "relays = [\n  \"r1.example\" ]").unwrap();
    for args in [&["routes"][..], &["get", "http://127.0.0.1:9/x"]] {
        let said = "config.toml, line 2: 'r1.example' is not the address of a relay: not a URL";
        home.run(args).code_is(6).says(&[said]);
    }
    let off = home.swath(["routes"]).env("SWATH_CONFIG", "off").run();
    off.code_is(0);
    let none = home.swath(["routes"]).env("SWATH_CONFIG", "none.toml").run();
    none.code_is(6).says(&["cannot read the configuration in none.toml"]);
}

#[test]
fn what_is_wrong_in_the_file_is_told_of_the_file() {
    // An option was blamed that nobody had given.
    let home = Home::new();
    let config = |text: &str, args: &[&str]| {
        let file = home.write("my.toml", text);
        let get = ["get", "http://127.0.0.1:9/x"];
        home.swath([&get[..], args].concat()).env("SWATH_CONFIG", &file).run()
    };
    for (text, args, words) in [
        ("\nroute = \"sideways\"", &[][..], "my.toml, line 2: the route contains 'sideways'"),
        ("route = \"widest\"", &[], "my.toml, line 1: the route 'widest' needs relays"),
        ("relays = []\nroute = \"multi\"", &[], "my.toml, line 2: the route 'multi' needs relays"),
        (
            "relays = [\"http://r1\"]\nroute = \"r1\"",
            &["--relay", "http://x"],
            "my.toml, line 2: the route contains 'r1', which is not among the relays x:80",
        ),
    ] {
        let ran = config(text, args);
        ran.code_is(6).says(&[words]).never_says(&["--route:"]);
    }
    for word in ["widest", "sideways"] {
        let ran = config("route = \"multi\"", &["--route", word]);
        ran.code_is(2).says(&["--route"]).never_says(&["my.toml"]);
    }
}

#[test]
fn a_configuration_that_has_no_end_is_not_read() {
    // A device was read until the memory was full; at a pipe it was waited for ever.
    let home = Home::new();
    let large = home.write("large.toml", "#".repeat((1 << 20) + 1));
    let most = home.write("most.toml", "#".repeat(1 << 20));
    let fifo = home.path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.is_ok_and(|made| made.success()));
    let ran = |file: &std::path::Path| home.swath(["routes"]).env("SWATH_CONFIG", file).run();
    for (file, words) in [
        ("/dev/zero".as_ref(), "cannot read the configuration in /dev/zero: not a regular file"),
        (&*fifo, "not a regular file"),
        (&home.work(), "not a regular file"),
        (&large, "larger than 1 MiB"),
    ] {
        ran(file).code_is(6).says(&[words]);
    }
    ran(&most).code_is(0);
}

#[test]
fn what_cannot_be_read_is_not_said_to_be_nothing() {
    // "Nothing is remembered yet" was said of a folder, with exit code 0.
    let home = Home::new();
    let folder = home.path("folder.db");
    fs::create_dir(&folder).unwrap();
    let ran = home.swath(["routes"]).env("SWATH_STATE", &folder).run();
    ran.code_is(6).says(&["cannot read "]).never_says(&["cannot be written"]);
    let out = ran.out();
    assert!(out.contains("cannot read the remembered network (/") && !out.contains("yet"), "{out}");
    routes(&home, &[""]).code_is(2).says(&["a site such as host:port is needed"]);
}

#[test]
fn relays_that_answered_are_not_nothing_and_those_that_failed_are_told_at_their_route() {
    let known = home(&[]);
    let out = routes(&known, &[]).code_is(0).out();
    assert!(out.starts_with("no rates and no round trips are known yet\n\nrelays:\n"), "{out}");
    // The widest route led over a relay that was listed below as failed.
    let home = home(SMALL);
    let note = |url: &str, error: &str| {
        let (state, _) = State::open(&home.home().join(".local/state/swath/state.db"));
        let (url, error) = (url.into(), Some(error.to_owned()));
        state.note_relay(RelayNote { url, error, ..RelayNote::default() });
    };
    let words = "currently unusable: r1.example:443 failed: no answer\n";
    assert!(!routes(&home, &[]).code_is(0).out().contains("not now"));
    // Nor was a source to blame that somebody had named as a relay: it failed as such alone.
    note("https://data.example", "the server answered 404 Not Found");
    for route in ["direct", "auto"] {
        let out = routes(&home, &["data.example", "--route", route]).code_is(0).out();
        assert!(!out.contains("not now"), "{out}");
    }
    note("https://r1.example", "no answer");
    let out = routes(&home, &[]).code_is(0).out();
    let at = |what: &str| out.find(what).unwrap_or_else(|| panic!("{what}:\n{out}"));
    assert!(at("  59.9 Mbit/s  data") < at(words) && at(words) < at("relays:"), "{out}");
}

#[test]
fn what_a_limit_of_our_own_brings_is_remembered_as_the_least() {
    // --limit-rate 10M made a fast path one of exactly 10 MB/s for all transfers that followed.
    let home = Home::new();
    let origin = honest(&Content::random(91, 20_000_003));
    let relay = home.relay(&[]);
    let args = ["get", &url(&origin), "-o", "got", "--limit-rate", "10M"];
    home.run([&args[..], &["--relay", &relay.named()]].concat()).code_is(0);
    let out = routes(&home, &["--json"]).code_is(0).out();
    let edges: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let from = url(&origin).split('/').nth(2).unwrap().to_owned();
    let is_direct = |edge: &&Value| edge["from"] == *from && edge["to"] == "here";
    let direct = edges.iter().find(is_direct).unwrap_or_else(|| panic!("{out}"));
    assert_eq!(direct["grade"], "at_least", "{out}");
}
