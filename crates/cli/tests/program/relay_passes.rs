//! What relays pass on: for any client, from any server, and nothing else.

use std::fs;

use swath_netlab::faulty::{Behaviour, Content};

use crate::support::net::{FILE, honest, server, sha256, url};
use crate::support::relay::Ear;
use crate::support::serve::{Served, other, succeeds};
use crate::support::{Home, Ran};

const SIZE: u64 = 3_000_017;

fn curl(home: &Home, args: &[&str]) -> Option<(i32, String)> {
    let usual = ["--silent", "--show-error", "--max-time", "60"];
    other(&home.work(), "curl", &[&usual[..], args].concat())
}

/// The status and the head of the answer to a request.
fn head(home: &Home, url: &str) -> Option<String> {
    curl(home, &["-i", "-o", "-", url]).map(|(_, text)| text)
}

fn finished(ran: &Ran) -> serde_json::Value {
    let out = ran.out();
    let line = out.lines().rfind(|line| line.contains("\"finished\"")).unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}:\n{ran}"))
}

/// Bytes that came by each source, by its name.
fn by_source(ran: &Ran) -> Vec<(String, u64)> {
    let finished = finished(ran);
    let sources = finished["sources"].as_array().unwrap();
    let of = |source: &serde_json::Value| {
        let relays = source["relays"].as_array().into_iter().flatten();
        let relays: Vec<&str> = relays.filter_map(serde_json::Value::as_str).collect();
        let by =
            if relays.is_empty() { String::new() } else { format!(" by {}", relays.join(", ")) };
        (source["name"].as_str().unwrap().to_owned() + &by, source["bytes"].as_u64().unwrap())
    };
    sources.iter().map(of).collect()
}

#[test]
fn any_client_gets_what_any_server_has() {
    let home = Home::new();
    let content = Content::random(1, SIZE);
    let (near, far) = (home.relay(&[]), home.relay(&[]));
    let origins = [
        ("plain", honest(&content)),
        ("chunks", server(&content, Behaviour::Chunked { chunk_bytes: 1000 })),
        ("up to the end", server(&content, Behaviour::CloseDelimited)),
        ("HTTP/1.0", server(&content, Behaviour::Http10)),
        ("one answer each", server(&content, Behaviour::Close)),
    ];
    for (name, origin) in &origins {
        let once = near.through(&url(origin));
        let twice = near.through(&far.through(&url(origin)));
        let proxied = ["-x", near.url.as_str(), &url(origin)].map(str::to_owned).to_vec();
        let tunnelled = ["-p", "-x", near.url.as_str(), &url(origin)].map(str::to_owned).to_vec();
        for args in [vec![once.clone()], vec![twice.clone()], proxied, tunnelled] {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let Some((code, said)) = curl(&home, &[&args[..], &["-o", "got"]].concat()) else {
                return;
            };
            assert_eq!(code, 0, "{name} {args:?}: {said}");
            home.holds("got", &content);
        }
        let (code, said) = curl(&home, &["-r", "100-1099", "-o", "part", &twice]).unwrap();
        assert_eq!(code, 0, "{name}: {said}");
        assert!(fs::read(home.path("part")).unwrap() == content.read(100, 1100), "{name}");
        let told = curl(&home, &["-I", &twice]).unwrap().1;
        assert!(told.contains(" 200 "), "{name}: {told}");
        assert!(told.matches("server-timing: hop;").count() == 2, "{name}: {told}");
    }
    // Whoever asks ahead is answered in order.
    let target = once_target(&near, &url(&origins[0].1));
    let request = |range: &str, last: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: a\r\nRange: bytes={range}\r\n{last}\r\n")
    };
    let all =
        request("0-9", "") + &request("10-29", "") + &request("30-59", "Connection: close\r\n");
    let answer = near.raw(all.as_bytes());
    let mut rest = answer.as_slice();
    for (at, bytes) in [(0, 10), (10, 20), (30, 30)] {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert!(rest.starts_with(b"HTTP/1.1 206 "), "{}", String::from_utf8_lossy(&rest[..end]));
        assert_eq!(rest[end..end + bytes], content.read(at, at + bytes as u64));
        rest = &rest[end + bytes..];
    }
    assert!(rest.is_empty());
}

fn once_target(relay: &Served, url: &str) -> String {
    let whole = relay.through(url);
    whole[relay.named().len()..].to_owned()
}

#[test]
fn swath_takes_the_route_that_is_named() {
    let home = Home::new();
    let content = Content::random(2, SIZE);
    let origin = honest(&content);
    let (near, far) = (home.relay(&["--log", "near.log"]), home.relay(&["--log", "far.log"]));
    let route = format!("{},{}", near.named(), far.named());
    let ran = home.run(["get", &url(&origin), "-o", "got", "--json", "--route", &route]);
    ran.code_is(0);
    home.holds("got", &content);
    let sources = by_source(&ran);
    assert_eq!(sources[0].1, 0, "{sources:?}");
    assert_eq!(sources[1].1, SIZE, "{sources:?}");
    assert!(sources[1].0.contains(" by 127.0.0.1:"), "{sources:?}");
    let passed = |log: &str| fs::read_to_string(home.path(log)).unwrap().matches(" 206 ").count();
    // A line is written when its answer has left, which may be after we have all of it; how many there
    // are differs where a connection with requests ahead was given up.
    let began = std::time::Instant::now();
    while passed("near.log") == 0 || passed("far.log") == 0 {
        assert!(began.elapsed().as_secs() < 10, "both relays passed something on");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // But for the questions what the source itself says of it, and of some blocks of it.
    let log = origin.log();
    let asks = |bytes: std::ops::Range<u64>| bytes.end - bytes.start <= 2048;
    let mut bytes = log.on(FILE).filter(|it| !it.delivered().is_none_or(asks));
    let via = bytes.all(|it| it.header("via").is_some_and(|it| it.contains(", ")));
    assert!(via, "all came by way of both");
    // The same without anybody reading it.
    let to = ["get", &url(&origin), "-o", "carried", "--json", "--end-to-end", "--route", &route];
    let ran = home.run(to);
    ran.code_is(0);
    home.holds("carried", &content);
    assert_eq!(by_source(&ran)[1].1, SIZE);
    assert!(fs::read_to_string(home.path("far.log")).unwrap().contains("CONNECT "));
}

#[test]
fn trees_come_by_relays_too() {
    let home = Home::new();
    home.write("tree/a/one", "one");
    home.write("tree/b/wide", crate::support::trees::bytes(5, 2 << 20));
    fs::create_dir(home.path("tree/empty")).unwrap();
    let origin = home.serve(&["tree", "--anonymous", "--plain"]);
    let (near, far) = (home.relay(&[]), home.relay(&[]));
    let route = format!("{},{}", near.named(), far.named());
    let ran = home.run(["cp", &origin.url, "copy", "--json", "--route", &route]);
    ran.code_is(0);
    crate::support::trees::assert_same(&home.path("tree"), &home.path("copy"));
    let sources = by_source(&ran);
    assert!(sources[0].1 == 0 && sources[1].1 > 2 << 20, "{sources:?}");
}

#[test]
fn what_is_not_listed_is_not_asked() {
    let home = Home::new();
    let content = Content::random(3, 1000);
    let origin = honest(&content);
    let narrow = home.relay(&["--upstream", "192.0.2.1:80", "--name", "narrow"]);
    let port = origin.port();
    // Named as 127.0.0.1 in `relay`, and 127.0.0.2 is another.
    let other_name = format!("http://127.0.0.2:{port}{FILE}");
    let Some(told) = head(&home, &narrow.through(&other_name)) else { return };
    assert!(told.starts_with("HTTP/1.1 403 ") && told.contains("not among those"), "{told}");
    assert!(told.contains("proxy-status: narrow; error=http_request_denied"), "{told}");
    for odd in ["ftp://127.0.0.1/x", "127.0.0.1/x", "http://user:pw@127.0.0.1/x", "http://"] {
        let told = head(&home, &narrow.through(odd)).unwrap();
        assert!(told.starts_with("HTTP/1.1 400 "), "{odd}: {told}");
        assert!(!told.contains("pw@"), "{odd}: {told}");
    }
    let tunnel = curl(&home, &["-p", "-x", &narrow.url, &other_name]).unwrap();
    assert!(tunnel.0 != 0 && tunnel.1.contains("403"), "{tunnel:?}");
    let post = curl(&home, &["-i", "-d", "x", &narrow.through(&url(&origin))]).unwrap().1;
    assert!(post.contains(" 403 ") || post.contains(" 405 "), "{post}");
    // Where a redirect leads is judged like everything else.
    let away = server(&content, Behaviour::redirect(other_name));
    let to = narrow.through(&url(&away));
    let told = curl(&home, &["-i", "-L", &to]).unwrap().1;
    assert!(told.contains(" 302 ") && told.contains(" 403 "), "{told}");
    let within = server(&content, Behaviour::redirect(url(&origin)));
    let followed = curl(&home, &["-L", "-o", "followed", &narrow.through(&url(&within))]).unwrap();
    assert_eq!(followed.0, 0, "{followed:?}");
    home.holds("followed", &content);
    // And swath says why it comes to nothing.
    let ran = home.run(["get", "http://127.0.0.2:1/x", "-o", "x", "--route", &narrow.named()]);
    ran.code_is(7).says(&["not among those that this relay asks"]);
}

#[test]
fn circles_and_long_routes_end() {
    let home = Home::new();
    let origin = honest(&Content::random(4, 1000));
    let (one, two) = (home.relay(&[]), home.relay(&[]));
    let circle = one.through(&two.through(&one.through(&url(&origin))));
    let Some(told) = head(&home, &circle) else { return };
    assert!(told.starts_with("HTTP/1.1 508 ") && told.contains("loop"), "{told}");
    let mut long = url(&origin);
    for _ in 0..8 {
        long = one.through(&long);
    }
    let told = head(&home, &long).unwrap();
    assert!(told.contains("8 relays") && told.contains("at most 7"), "{told}");
    // What came by others before counts like what is still to come.
    let via = |relays: u32| {
        let passed = (0..relays).map(|relay| format!("1.1 swath-{relay:016x}"));
        format!("Via: {}", passed.collect::<Vec<_>>().join(", "))
    };
    let ask = |relays, address: &str| {
        let args = ["-I", "-H", &via(relays), address];
        curl(&home, &args).unwrap().1.to_lowercase()
    };
    let told = ask(6, &one.through(&two.through(&url(&origin))));
    assert!(told.contains("http/1.1 508 ") && told.contains("more than 7 relays"), "{told}");
    let told = ask(7, &one.through(&url(&origin)));
    assert!(told.contains("http/1.1 508 ") && told.contains("more than 7 relays"), "{told}");
    assert!(origin.log().is_empty());
    let told = ask(6, &one.through(&url(&origin)));
    assert!(told.contains("http/1.1 200 "), "{told}");
}

#[test]
fn a_route_of_eight_hops_passes() {
    let home = Home::new();
    let content = Content::random(24, 3_000_017);
    let origin = honest(&content);
    let relays: Vec<_> = (0..7).map(|_| home.relay(&[])).collect();
    let route = relays.iter().map(|relay| relay.named()).collect::<Vec<_>>().join(",");
    let ran = home.run([
        "get",
        &url(&origin),
        "-o",
        "got",
        "--digest",
        &sha256(&content),
        "--route",
        &route,
    ]);
    ran.code_is(0);
    home.holds("got", &content);
    let long = format!("{route},http://127.0.0.1:1");
    let ran = home.run(["get", &url(&origin), "-o", "more", "--route", &long]);
    ran.code_is(2).says(&["the route has 8 relays, and the maximum is 7 (8 hops)"]);
}

#[test]
fn a_relay_is_for_its_clients_alone() {
    let home = Home::new();
    let origin = honest(&Content::random(5, 1000));
    home.write("tokens", "secret\nold until=2020-01-01\n");
    let relay = home.relay(&["--clients", "tokens"]);
    let to = relay.through(&url(&origin));
    let Some(told) = head(&home, &to) else { return };
    assert!(told.starts_with("HTTP/1.1 401 ") && told.contains("www-authenticate: "), "{told}");
    for (shown, status) in [("secret", " 200 "), ("old", " 401 "), ("wrong", " 401 ")] {
        let shown = format!("Authorization: Bearer {shown}");
        let told = curl(&home, &["-I", "-H", &shown, &to]).unwrap().1;
        assert!(told.contains(status), "{shown}: {told}");
    }
    let by_proxy = curl(&home, &["-I", "-x", &relay.url, &url(&origin)]).unwrap().1;
    assert!(by_proxy.contains(" 407 ") && by_proxy.contains("proxy-authenticate: "), "{by_proxy}");
    let with_token = relay.url.replace("http://", "http://x:secret@");
    let by_proxy = curl(&home, &["-I", "-x", &with_token, &url(&origin)]).unwrap().1;
    assert!(by_proxy.contains(" 200 "), "{by_proxy}");
    assert!(!origin.log().has_credentials(), "none of that was for the origin");
    let page = curl(&home, &[&relay.at("metrics")]).unwrap().1;
    assert!(!page.contains("swath_relay_bytes"), "{page}");
    succeeds(&home.work(), "curl", &["-sSf", &relay.at("health")]);
    let elsewhere = home.relay(&["--clients", "192.0.2.0/24"]);
    let told = head(&home, &elsewhere.through(&url(&origin))).unwrap();
    assert!(told.starts_with("HTTP/1.1 403 "), "{told}");
}

#[test]
fn secrets_are_seen_by_the_last_hop_alone() {
    let home = Home::new();
    let content = Content::random(6, SIZE);
    home.write("served/data.bin", content.read(0, SIZE));
    home.write("origin-tokens", "for-the-origin\n");
    home.write("token", "for-the-origin");
    home.write("relay-tokens", "for-the-relay\n");
    let origin = home.serve(&["served", "--plain", "--token-file", "origin-tokens"]);
    let far = home.relay(&["--clients", "relay-tokens", "--log", "far.log"]);
    let ear = Ear::before(far.address(), |_| {});
    let near = home.relay(&["--log", "near.log"]);
    let with_token = ear.url().replace("http://", "http://x:for-the-relay@");
    let route = format!("{},{}", near.named(), ear.url());
    let from = origin.at("data.bin");
    let get = |to: &str, more: &[&str]| {
        let usual = ["get", &from, "-o", to, "--bearer-file", "token"];
        let routes = ["--relay", &near.named(), "--relay", &with_token, "--route", &route];
        home.run([&usual[..], &routes, more].concat())
    };
    get("got", &["--header", "X-Own: my-own-header"]).code_is(0);
    home.holds("got", &content);
    for secret in ["for-the-origin", "my-own-header", "Zm9yLXRoZS1vcmlnaW4"] {
        assert!(!ear.heard(secret), "{secret} went in the clear from one relay to the next");
    }
    assert!(ear.heard("swath-sealed: ") && ear.heard("swath-pass: "));
    // Without its token the second relay lets nobody in, whoever comes before.
    let route = format!("{},{}", near.named(), ear.url());
    let ran = home.run(["get", &from, "-o", "no", "--bearer-file", "token", "--route", &route]);
    ran.code_is(7);
    let logs = ["near.log", "far.log"].map(|log| fs::read_to_string(home.path(log)).unwrap());
    for log in logs {
        assert!(!log.contains("for-the-") && log.contains(" 206 "), "{log}");
    }
}

#[test]
fn a_token_for_a_relay_behind_another_is_there_when_the_first_request_is() {
    // By a route that was given the first request left before that relay had told its key: its token
    // could not be sealed and was left out, and the relay let nobody in.
    let home = Home::new();
    let content = Content::random(8, SIZE);
    let origin = honest(&content);
    home.write("relay-tokens", "for-the-relay\n");
    let (near, far) = (home.relay(&[]), home.relay(&["--clients", "relay-tokens"]));
    let with_token = far.url.replace("http://", "http://x:for-the-relay@");
    let route = format!("{},{}", near.url, far.url);
    let relays = ["--relay", &near.url, "--relay", &with_token, "--route", &route];
    let ran = home.run([&["get", &url(&origin), "-o", "got"][..], &relays].concat());
    ran.code_is(0);
    home.holds("got", &content);
}

#[test]
fn a_relay_that_changes_what_it_passes_on_is_found_out_and_left() {
    let home = Home::new();
    let content = Content::random(7, SIZE);
    let origin = honest(&content);
    let relay = home.relay(&[]);
    let ear = Ear::before(relay.address(), |bytes| {
        // Heads are left alone.
        if bytes.len() > 20_000
            && let Some(byte) = bytes.last_mut()
        {
            *byte ^= 1;
        }
    });
    let digest = sha256(&content);
    let args = ["get", &url(&origin), "-o", "got", "--digest", &digest, "--route", &ear.url()];
    let ran = home.run(args);
    // What is wrong is asked of the origin itself, which nobody else had been until then.
    ran.code_is(0).says(&["it delivered corrupt data", " by 127.0.0.1:"]);
    home.holds("got", &content);
}

#[test]
fn a_relay_that_forges_seals_too_is_found_out_by_the_source_itself() {
    // A block and its group hash come the same way: a relay could change both, and all would fit.
    let home = Home::new();
    home.write("tree/file", crate::support::trees::bytes(8, 100_000));
    let origin = home.serve(&["tree", "--anonymous", "--plain"]);
    let forger = crate::support::relay::Forger::start();
    let ran = home.run(["cp", &origin.url, "copy", "--route", &forger.url]);
    assert!(forger.forged() > 0, "{ran}");
    ran.says(&["that differ from the source", " by 127.0.0.1:"]);
    // Where no other way is allowed nothing is left to come.
    assert!(!home.exists("copy"), "{ran}");
    ran.code_is(7);
    home.run(["cp", &origin.url, "copy"]).code_is(0);
    crate::support::trees::assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn a_dead_relay_takes_no_part_of_a_route_that_does_without_it() {
    // A way that waited for the key of its own relay was given up when another one was lost.
    let home = Home::new();
    let content = Content::random(11, SIZE);
    home.write("served/data.bin", content.read(0, SIZE));
    home.write("tokens", "for-the-origin\n");
    home.write("token", "for-the-origin");
    let origin = home.serve(&["served", "--plain", "--token-file", "tokens"]);
    let alive = home.relay(&[]);
    let named = alive.named();
    let from = origin.at("data.bin");
    let usual = ["get", &from, "-o", "got", "--bearer-file", "token"];
    let routes = ["--relay", "http://127.0.0.1:9", "--relay", &named, "--route", &named];
    home.run([&usual[..], &routes].concat()).code_is(0);
    home.holds("got", &content);
}

#[test]
fn whatever_a_relay_says_itself_is_marked_as_its_own() {
    // A head that was too long, and what a relay tells of itself, could be taken for an answer of
    // the server behind it.
    let home = Home::new();
    let relay = home.relay(&["--name", "r1"]);
    let ask = |line: &str, field: &str| {
        let request = format!("{line} HTTP/1.1\r\nHost: r\r\nConnection: close\r\n{field}\r\n");
        String::from_utf8_lossy(&relay.raw(request.as_bytes())).into_owned()
    };
    for path in ["/health", "/relay", "/metrics", "/"] {
        let told = ask(&format!("GET {path}"), "");
        assert!(
            told.starts_with("HTTP/1.1 200 ") && told.contains("\r\nproxy-status: r1\r\n"),
            "{told}"
        );
    }
    let long = format!("X: {}\r\n", "x".repeat(100_000));
    for (line, field, status) in
        [("GET /other", "", 404), ("PUT /x", "", 405), ("GET /health", &*long, 431)]
    {
        let told = ask(line, field);
        assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{told}");
        let mark = "\r\nproxy-status: r1; error=http_request_error; details=\"";
        assert!(told.contains(mark), "{told}");
    }
}

#[test]
fn a_way_is_shown_with_the_relay_nearest_to_us() {
    // Of four relays behind an address the last two were left.
    let home = Home::new();
    let content = Content::random(14, SIZE);
    let origin = honest(&content);
    let relays: Vec<Served> = (0..4).map(|_| home.relay(&[])).collect();
    let route: Vec<String> = relays.iter().map(Served::named).collect();
    let ran = home.run(["get", &url(&origin), "-o", "got", "--route", &route.join(",")]);
    let said = ran.code_is(0).all();
    let line = said.lines().find(|line| line.trim_start().starts_with("2 ")).unwrap();
    let [first, last] = [0, 3].map(|at| relays[at].address().to_string());
    assert!(line.contains(&format!(" by {first}, ")) && line.contains(&last), "{said}");
}
