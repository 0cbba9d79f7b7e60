//! curl as a client of relays: by their addresses, as proxies, through tunnels, of their depots, and three
//! hundred at once.

use serde_json::json;
use swath_netlab::faulty::{Behaviour, Content};

use crate::support::depot::until;
use crate::support::net::{honest, server, url};
use crate::support::relay::Ear;
use crate::support::serve::{Served, other, succeeds};
use crate::support::{Home, peak_bytes};

const SIZE: u64 = 3_000_017;

fn curl(home: &Home, args: &[&str]) -> Option<(i32, String)> {
    let usual = ["--silent", "--show-error", "--max-time", "80"];
    other(&home.work(), "curl", &[&usual[..], args].concat())
}

#[test]
fn curl_gets_what_any_server_has() {
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
        assert!(home.read("part") == content.read(100, 1100), "{name}");
        let told = curl(&home, &["-I", &twice]).unwrap().1;
        assert!(told.contains(" 200 "), "{name}: {told}");
        assert!(told.matches("server-timing: hop;").count() == 2, "{name}: {told}");
    }
}

#[test]
fn curl_follows_redirects_through_the_relay_and_shows_it_its_token() {
    let home = Home::new();
    let content = Content::random(3, 1000);
    let origin = honest(&content);
    home.write("tokens", "secret\n");
    let relay = home.relay(&["--clients", "tokens"]);
    let within = server(&content, Behaviour::redirect(url(&origin)));
    let shown = ["-H", "Authorization: Bearer secret"];
    let args = ["-L", "-o", "followed", &relay.through(&url(&within))];
    let Some(followed) = curl(&home, &[&args[..], &shown].concat()) else { return };
    assert_eq!(followed.0, 0, "{followed:?}");
    home.holds("followed", &content);
    let by_proxy = curl(&home, &["-I", "-x", &relay.url, &url(&origin)]).unwrap().1;
    assert!(by_proxy.contains(" 407 ") && by_proxy.contains("proxy-authenticate: "), "{by_proxy}");
    let with_token = relay.url.replace("http://", "http://x:secret@");
    let by_proxy = curl(&home, &["-I", "-x", &with_token, &url(&origin)]).unwrap().1;
    assert!(by_proxy.contains(" 200 "), "{by_proxy}");
    // What is cut short curl takes for no whole file.
    let origin = server(&content, Behaviour::Truncate { after_bytes: 300 });
    let args = ["-o", "cut", &relay.through(&url(&origin))];
    let (code, said) = curl(&home, &[&args[..], &shown].concat()).unwrap();
    assert!(code == 18 || code == 56, "{code} {said}");
}

#[test]
fn curl_stores_reads_extends_and_releases() {
    let home = Home::new();
    let content = Content::random(1, SIZE);
    let (front, back) = (content.read(0, 1_000_000), content.read(1_000_000, SIZE));
    home.write("front", front);
    home.write("back", back);
    let depot = home.depot("10M", &[]);
    let curl = |args: &[&str]| {
        let usual = ["--silent", "--show-error", "--fail-with-body", "--max-time", "80"];
        succeeds(&home.work(), "curl", &[&usual[..], args].concat())
    };
    let target = depot.at(&format!("depot?size={SIZE}&lease=600"));
    let Some(told) = curl(&["-X", "POST", &target]) else { return };
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["size"], &told["medium"]), (&json!(SIZE), &json!("disk")));
    let at = |name: &str| format!("{}{}", depot.named(), told[name].as_str().unwrap());
    let last = SIZE - 1;
    let range = format!("Content-Range: bytes 1000000-{last}/{SIZE}");
    curl(&["-T", "back", "-H", &range, &at("write")]);
    curl(&["-T", "front", "-H", &format!("Content-Range: bytes 0-999999/{SIZE}"), &at("write")]);
    curl(&["-o", "got", &at("read")]);
    home.holds("got", &content);
    curl(&["-o", "part", "-r", "999990-1000009", &at("read")]);
    assert_eq!(home.read("part"), content.read(999_990, 1_000_010));
    let head = curl(&["-I", &at("read")]).unwrap().to_lowercase();
    assert!(head.contains(&format!("content-length: {SIZE}")), "{head}");
    assert!(head.contains("etag: \"depot-") && !head.contains("swath-held"), "{head}");
    let told = curl(&["-X", "POST", &format!("{}?extend=1200", at("manage"))]).unwrap();
    assert_eq!(told, "{\"lease_s\":1200.0}\n");
    curl(&["-X", "DELETE", &at("manage")]);
    let told = succeeds(&home.work(), "curl", &["-si", &at("read")]).unwrap();
    assert!(told.starts_with("HTTP/1.1 410 "), "{told}");
    // The same where all is encrypted, and the kernel cannot send files by itself.
    let sealed = ["relay", "--upstream", "127.0.0.1", "--clients", "127.0.0.0/8"];
    let sealed = [&sealed[..], &["--listen", "127.0.0.1:0", "--depot-memory", "10M"]].concat();
    let sealed = Served::of(home.swath(&sealed), &["--token-file"]);
    let target = sealed.at(&format!("depot?size={SIZE}&lease=600"));
    let told = curl(&["-k", "-X", "POST", &target]).unwrap();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["medium"], "memory");
    let at = |name: &str| format!("{}{}", sealed.named(), told[name].as_str().unwrap());
    curl(&["-k", "-T", "got", &at("write")]);
    curl(&["-k", "-o", "again", &at("read")]);
    home.holds("again", &content);
}

#[test]
fn a_relay_that_curl_uses_as_a_proxy_sees_nothing_of_an_https_source_but_where_it_is() {
    // What `curl -x` does with any proxy has to be so with a relay.
    const HIDDEN: &str = "salted-harvest-7.h5";
    let home = Home::new();
    let content = Content::random(3, SIZE);
    home.write(&format!("tree/{HIDDEN}"), content.read(0, SIZE));
    let origin = home.serve(&["tree"]);
    let relay = home.relay(&["--log", "relay.log"]);
    let ear = Ear::before(relay.address(), |_| {});
    let shows = format!("Authorization: Bearer {}", origin.token());
    let from = origin.at(HIDDEN);
    let args = ["-f", "-k", "-H", &shows, "-x", &ear.url(), "-o", "got", &from];
    let Some((code, said)) = curl(&home, &args) else { return };
    assert_eq!(code, 0, "{said}");
    home.holds("got", &content);
    // The line is written when the tunnel has ended.
    let log = || String::from_utf8_lossy(&home.read("relay.log")).into_owned();
    until("it is noted", || log().contains("\"CONNECT 127.0.0.1:"));
    for secret in [HIDDEN, origin.token()] {
        assert!(!ear.heard(secret) && !log().contains(secret), "{secret}");
    }
    assert!((0..3).all(|at| !ear.brought(&content.read(at * 1_000_000, at * 1_000_000 + 32))));
}

#[test]
fn three_hundred_clients_stream_encrypted_within_bounded_memory() {
    const CLIENTS: u64 = 300;
    let home = Home::new();
    let content = Content::random(5, 1_000_000);
    let origin = honest(&content);
    let relay = home.tls_relay(&["--clients", "127.0.0.0/8"]);
    let from = format!("{}?[1-{CLIENTS}]", relay.through(&url(&origin)));
    let most = CLIENTS.to_string();
    // Whatever curl draws of its progress stands beside it.
    let told = "\\ntook %{http_code} %{num_connects}\\n";
    let usual = ["-sSk", "--http1.1", "-m", "80", "-o", "got-#1", "-w", told, &from];
    let at_once = ["-Z", "--parallel-immediate", "--parallel-max", &most];
    let Some(told) = succeeds(&home.work(), "curl", &[&at_once[..], &usual].concat()) else {
        return;
    };
    let took: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("took ")).collect();
    assert!(took.iter().all(|line| *line == "200 1"), "{took:?}");
    assert_eq!(took.len() as u64, CLIENTS);
    (1..=CLIENTS).for_each(|number| home.holds(&format!("got-{number}"), &content));
    let peak_mib = peak_bytes(relay.pid()).unwrap() >> 20;
    assert!(peak_mib < 200, "{peak_mib} MiB");
}
