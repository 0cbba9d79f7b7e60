//! `swath routes probe`: what it finds out of sites that answer, of some that do not, and for whom.

use crate::support::Home;
use crate::support::net::{FILE, building, honest, url};
use crate::support::serve::reserved_address;
use serde_json::Value;
use swath_netlab::faulty::{Behaviour, Content};

const SIZE: u64 = 40_000_003;

fn site(url: &str) -> String {
    url.trim_start_matches("http://").split('/').next().unwrap().to_owned()
}

fn lines(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn edge<'v>(lines: &'v [Value], from: &str, to: &str) -> &'v Value {
    let is = |line: &&Value| line["from"] == from && line["to"] == to;
    lines.iter().find(is).unwrap_or_else(|| panic!("{from} → {to} is missing: {lines:#?}"))
}

/// A server in front of which connections are slow, so that two ways bring more than one.
fn origin() -> swath_netlab::faulty::Server {
    let rule = Behaviour::ConnectionRate { bytes_per_s: 1 << 20 };
    building(&Content::random(7, SIZE)).behaviour(rule).start().unwrap()
}

#[test]
fn what_relays_reach_and_bring_is_known_before_the_first_transfer() {
    let home = Home::new();
    let origin = origin();
    let at = site(&url(&origin));
    let (near, far) = (home.relay(&[]), home.relay(&[]));
    let (r1, r2) = (site(&near.named()), site(&far.named()));
    let (named, also) = (near.named(), far.named());
    let source = url(&origin);
    let relays = ["--relay", &named, "--relay", &also];
    let args =
        [&["routes", "probe", &source, "--json", "--bytes", "12M", "--for", "8s"], &relays[..]];
    let out = home.run(args.concat()).code_is(0).out();
    let told = lines(&out);
    // The distances of all pairs.
    for (from, to) in [(&at, &r1), (&at, &r2), (&r1, &r2), (&r2, &r1)] {
        assert!(edge(&told, from, to)["rtt_s"].as_f64().is_some(), "{from} → {to}: {out}");
    }
    // The rates of what was fetched by: without relays, and by each alone.
    for (from, to) in [(&at, "here"), (&r1, "here"), (&at, &r1), (&r2, "here"), (&at, &r2)] {
        let rate = edge(&told, from, to)["rate_bytes_per_s"].as_f64();
        assert!(rate.is_some_and(|rate| rate > 100_000.0), "{from} → {to}: {out}");
    }
    let source_line = told.iter().find(|line| line["source"] == at.as_str()).unwrap();
    assert_eq!(source_line["size_bytes"], SIZE);
    assert_eq!(source_line["error"], Value::Null);
    // What was spent is what was allowed, and the first answers of a few ways.
    let fetched = source_line["fetched_bytes"].as_u64().unwrap();
    assert!((1_000_000..=12_000_000 + 16 * 65_536).contains(&fetched), "{fetched}");
    // All of it is remembered: the same graph, without asking anybody.
    let shown = home.run(["routes", &source, "--json"]).code_is(0).out();
    let known = lines(&shown);
    assert_eq!(known.len(), told.iter().filter(|line| line.get("grade").is_some()).count());
    assert!(edge(&known, &at, &r1)["rate_bytes_per_s"].as_f64().is_some(), "{shown}");
    // And the transfer that follows does not begin to try: it knows.
    let first_route = |state: &str| {
        let get = [&["get", &source, "-o", "got", "--overwrite"][..], &relays].concat();
        let file = home.home().join(state);
        let swath = home.swath(get).env("SWATH_LOG", "swath_transfer=debug");
        let ran = swath.env("SWATH_STATE", file.to_str().unwrap()).run();
        let is_open = |line: &&str| line.contains("Open {") && line.contains("Route([SiteId(");
        ran.code_is(0).stderr.lines().find(is_open).unwrap_or_default().to_owned()
    };
    let known = first_route(".local/state/swath/state.db");
    assert!(known.contains("on_trial: false"), "{known}");
    let unknown = first_route("empty.db");
    assert!(unknown.contains("on_trial: true"), "{unknown}");
}

#[test]
fn what_is_refused_or_down_is_a_line_with_its_reason() {
    let home = Home::new();
    let origin = honest(&Content::random(8, 3_000_000));
    let source = url(&origin);
    let good = home.relay(&[]);
    // It is there, but not for us; and one that asks nobody whom we name; and one that is down.
    let closed = home.relay(&["--clients", "192.0.2.0/24"]);
    let down = format!("http://{}", reserved_address());
    let names = [good.named(), closed.named(), down.clone()];
    let relays: Vec<&str> = names.iter().flat_map(|name| ["--relay", name]).collect();
    let probe = |more: &[&str]| home.run([&["routes", "probe"][..], more, &relays].concat());
    let out = probe(&[&source, "--for", "3s"]).code_is(0).out();
    let says = |words: &str| assert!(out.contains(words), "{words:?} is missing:\n{out}");
    says("\nnot reached:\n");
    says(&format!("{} → here", site(&closed.named())));
    says("403 Forbidden");
    says(&format!("{} → here", site(&down)));
    says("Connection refused");
    says(&format!("{} → {}", site(&down), site(&good.named())));
    // A file that is fetched at once tells no rates, and is not taken to.
    says("\nfetched:\n");
    says("too fast to measure a rate");
    says("use a larger file to measure more\n");
    // Without a source only distances are measured.
    let out = probe(&[]).code_is(0).out();
    assert!(out.contains("nothing: give a source to measure rates\n"), "{out}");
    let out = probe(&[&source, "--bytes", "0"]).code_is(0).out();
    assert!(out.contains("--bytes is 0"), "{out}");
    assert!(origin.log().on(FILE).any(|it| it.header("via").is_some()));
    // Nothing at all can be used.
    let gone = format!("{down}/data.bin");
    let ran = home.run(["routes", "probe", &gone, "--relay", &down, "--for", "2s"]);
    let out = ran.code_is(7).out();
    assert!(out.contains("Connection refused"), "{out}");
    home.run(["routes", "probe", "--relay", &down]).code_is(7);
    home.run(["routes", "probe", &source]).code_is(2).says(&["there is no relay to query"]);
    home.run(["routes", "probe", "ftp://x/y", "--relay", &down]).code_is(2).says(&["scheme ftp"]);
}

#[test]
fn it_works_where_nothing_is_remembered() {
    let home = Home::new();
    let relay = home.relay(&[]);
    let named = relay.named();
    let swath = home.swath(["routes", "probe", "--relay", &named]).env("SWATH_STATE", "off").run();
    let out = swath.code_is(0).says(&["the results are not saved: SWATH_STATE is off"]).out();
    assert!(out.contains(&format!("{}  here", site(&named))), "{out}");
}
