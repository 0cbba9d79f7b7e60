//! What opens relays goes to those that the user named, and nowhere else.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use swath_netlab::faulty::Content;

use crate::support::Home;
use crate::support::net::{honest, url};
use crate::support::relay::head_of;

const SIZE: u64 = 100_000;

/// A server that has nothing, and keeps the heads of what it was asked.
struct Nothing {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Nothing {
    fn start() -> Nothing {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let keeps = Arc::clone(&heads);
        std::thread::spawn(move || {
            while let Ok((mut near, _)) = listener.accept() {
                let Some(head) = head_of(&mut near) else { continue };
                keeps.lock().unwrap().push(head);
                let answer =
                    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = near.write_all(answer.as_bytes());
            }
        });
        Nothing { url, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

#[test]
fn a_token_for_an_encrypted_relay_is_not_shown_in_the_clear() {
    // `--relay http://…` took the token of the https:// relay at that port, and its fingerprint was
    // dropped without a word.
    let home = Home::new();
    let origin = honest(&Content::random(81, SIZE));
    let relay = Nothing::start();
    let encrypted = relay.url.replace("http://", "https://");
    home.write("token", "for-the-encrypted-one");
    let config = format!("relays = [{{ url = \"{encrypted}\", token-file = \"token\" }}]");
    home.write("config.toml", config);
    let source = url(&origin);
    let said = format!("has the relay {} with https://, not http://", &relay.url[7..]);
    let get = ["get", &source, "-o", "got"];
    let stage = ["stage", &source, "--for", "1h", "-o", "staged.meta4"];
    for args in [
        [&get[..], &["--relay", &relay.url]].concat(),
        [&get[..], &["--route", &relay.url]].concat(),
        [&stage[..], &["--at", &relay.url]].concat(),
    ] {
        let ran = home.swath(&args).env("SWATH_CONFIG", "config.toml").run();
        ran.code_is(2).says(&[&said]);
    }
    assert_eq!(relay.heads(), Vec::<String>::new());
}

#[test]
fn what_a_metalink_names_is_shown_no_login() {
    // Every address in it that looks like a depot's made its server a relay of the user's, which was
    // shown the login for its host, on any port and in the clear.
    let home = Home::new();
    home.write("../home/.netrc", "machine 127.0.0.1 login me password netrc-secret\n");
    let foreign = Nothing::start();
    let depot = format!("{}/depot/{}", foreign.url, "a".repeat(64));
    let text = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>10</size><url>{depot}</url></file></metalink>"
    );
    home.write("foreign.meta4", text);
    let keys = format!(
        "{{\"file\":\"f\",\"size_bytes\":10,\"depots\":[{{\"relay\":\"{}/\",\"manage\":\"{depot}\",\"read\":\"{depot}\"}}]}}",
        foreign.url
    );
    let status = ["stage", "status", "foreign.meta4"];
    home.run(status).code_is(7);
    home.write("foreign.meta4.keys", keys);
    home.run(["stage", "extend", "foreign.meta4", "--for", "1h"]).code_is(7);
    let heads = foreign.heads();
    assert!(heads.len() == 2 && heads[1].starts_with("POST "), "{heads:?}");
    assert!(heads.iter().all(|head| !head.to_lowercase().contains("authorization")), "{heads:?}");
    // Named by the user, it is one of theirs.
    home.run([&status[..], &["--at", &foreign.url]].concat()).code_is(7);
    home.write("config.toml", format!("relays = [\"{}\"]", foreign.url));
    home.swath(status).env("SWATH_CONFIG", "config.toml").run().code_is(7);
    let heads = foreign.heads();
    let is_shown = |head: &String| head.contains("\r\nAuthorization: Basic ");
    assert!(heads.len() == 4 && heads[2..].iter().all(is_shown), "{heads:?}");
}

#[test]
fn a_token_that_is_typed_comes_before_that_of_the_file() {
    let home = Home::new();
    let content = Content::random(82, SIZE);
    let origin = honest(&content);
    home.write("tokens", "sesame-of-today\n");
    home.write("old", "sesame-of-yesterday\n");
    let relay = home.relay(&["--clients", "tokens", "--depot", "depot", "--depot-size", "20M"]);
    let opened = relay.named().replace("http://", "http://any:sesame-of-today@");
    // One that cannot be read does not matter either.
    for token_file in ["old", "absent"] {
        let named = relay.named();
        let config = format!("relays = [{{ url = \"{named}\", token-file = \"{token_file}\" }}]");
        home.write("config.toml", config);
        let run = |args: &[&str]| home.swath(args).env("SWATH_CONFIG", "config.toml").run();
        let source = url(&origin);
        let stage = ["stage", &source, "--for", "1h", "-o", "staged.meta4", "--overwrite"];
        run(&[&stage[..], &["--at", &opened]].concat()).code_is(0).never_says(&["warning"]);
        run(&["stage", "status", "staged.meta4", "--at", &opened]).code_is(0);
        let get = ["get", &source, "-o", "got", "--overwrite"];
        for way in
            [["--relay", &opened, "--route", &relay.named()].as_slice(), &["--route", &opened]]
        {
            run(&[&get[..], way].concat()).code_is(0);
            home.holds("got", &content);
        }
    }
}

#[test]
fn a_depot_fetches_from_that_of_a_relay_of_the_file() {
    // Only the relays of --at were known, and that of the source was shown no token.
    let home = Home::new();
    let content = Content::random(83, SIZE);
    let origin = honest(&content);
    home.write("token", "sesame-open\n");
    let near = home.relay(&["--clients", "token", "--depot", "depot0", "--depot-size", "20M"]);
    let far = home.relay(&["--depot", "depot1", "--depot-size", "20M"]);
    let config = format!("relays = [{{ url = \"{}\", token-file = \"token\" }}]", near.named());
    home.write("config.toml", config);
    let stage = |source: &str, at: &str, output: &str| {
        let args = ["stage", source, "--at", at, "--for", "1h", "-o", output];
        home.swath(args).env("SWATH_CONFIG", "config.toml").run()
    };
    stage(&url(&origin), &near.named(), "first.meta4").code_is(0);
    let keys: serde_json::Value = serde_json::from_slice(&home.read("first.meta4.keys")).unwrap();
    let read = keys["depots"][0]["read"].as_str().unwrap();
    origin.die();
    stage(read, &far.named(), "second.meta4").code_is(0).says(&["whole"]);
    home.run(["get", "second.meta4", "-o", "got"]).code_is(0);
    home.holds("got", &content);
}

#[test]
fn copies_here_use_no_relay() {
    // A route that is named in the configuration made every copy here fail: the relay was to ask for a
    // server that is nowhere. With the others it was asked about that server.
    let home = Home::new();
    let relay = Nothing::start();
    home.write("tree/one", "of one\n");
    home.write("tree/below/two", "of two\n");
    for (at, route) in [relay.url.as_str(), "auto", "multi", "widest"].into_iter().enumerate() {
        let config = format!("relays = [\"{}\"]\nroute = \"{route}\"", relay.url);
        home.write("config.toml", config);
        let copies = |from: &str, to: &str, is_typed: bool| {
            let typed: &[&str] = if is_typed { &["--route", route] } else { &[] };
            let swath = home.swath([&["cp", from, to][..], typed].concat());
            let ran = swath.env("SWATH_CONFIG", "config.toml").run();
            ran.code_is(0).never_says(&["relay", "warning"]);
        };
        copies("tree/", &format!("all{at}"), false);
        copies("tree/one", &format!("one{at}"), true);
        assert_eq!(home.read(&format!("all{at}/below/two")), b"of two\n");
        assert_eq!(home.read(&format!("one{at}")), b"of one\n");
    }
    assert_eq!(relay.heads(), Vec::<String>::new());
}

#[test]
fn what_is_sent_to_a_server_goes_by_no_relay_and_that_is_told() {
    // Nothing listened where the route was to lead, and not a word was said of that.
    let home = Home::new();
    let relay = Nothing::start();
    home.write("tree/one", "of one\n");
    std::fs::create_dir(home.path("store")).unwrap();
    let server = home.serve(&["store", "--write", "--plain"]);
    home.write("token", server.token());
    let to = server.at("new/");
    let words = "warning: --relay and --route are ignored when the destination is a server";
    let send = |args: &[&str]| {
        let cp = ["cp", "tree/", &to, "--bearer-file", "token"];
        let ran = home.run([&cp[..], args].concat());
        ran.code_is(0);
        ran
    };
    for args in [&["--relay", &relay.url][..], &["--route", &relay.url]] {
        let ran = send(args);
        assert_eq!(ran.stderr.matches(words).count(), 1, "{ran}");
    }
    send(&["--relay", &relay.url, "--route", "direct"]).never_says(&[words]);
    // What holds for every transfer is not named for this one.
    home.write("config.toml", format!("relays = [\"{}\"]\nroute = \"multi\"", relay.url));
    let args = ["cp", "tree/", &to, "--bearer-file", "token"];
    let ran = home.swath(args).env("SWATH_CONFIG", "config.toml").run();
    ran.code_is(0).never_says(&[words]);
    assert_eq!(relay.heads(), Vec::<String>::new());
}

/// Stands before a relay, and breaks off the first question that it is asked about itself.
fn deaf_at_first(relay: SocketAddr) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let was_asked = Arc::new(AtomicBool::new(false));
    std::thread::spawn(move || {
        while let Ok((mut near, _)) = listener.accept() {
            let was_asked = Arc::clone(&was_asked);
            std::thread::spawn(move || {
                let Some(head) = head_of(&mut near) else { return };
                if head.starts_with("GET /relay?") && !was_asked.swap(true, Ordering::Relaxed) {
                    return;
                }
                let mut far = TcpStream::connect(relay).unwrap();
                far.write_all(head.as_bytes()).unwrap();
                let (mut near_too, mut far_too) =
                    (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut far_too, &mut near_too);
                    let _ = near_too.shutdown(Shutdown::Both);
                });
                let _ = std::io::copy(&mut near, &mut far);
                let _ = far.shutdown(Shutdown::Both);
            });
        }
    });
    url
}

#[test]
fn a_relay_that_told_no_key_when_it_was_asked_is_asked_again() {
    // It counted as one that has none for ever, and what opens its depot was shown to it no more.
    let home = Home::new();
    let content = Content::random(84, SIZE);
    let origin = honest(&content);
    home.write("token", "sesame-open\n");
    let near = home.relay(&["--clients", "token", "--depot", "depot0", "--depot-size", "20M"]);
    let far = home.relay(&["--depot", "depot1", "--depot-size", "20M"]);
    let opened = near.named().replace("http://", "http://any:sesame-open@");
    let args = ["stage", &url(&origin), "--at", &opened, "--for", "1h", "-o", "first.meta4"];
    home.run(args).code_is(0);
    let keys: serde_json::Value = serde_json::from_slice(&home.read("first.meta4.keys")).unwrap();
    let deaf = deaf_at_first(near.address());
    let read = keys["depots"][0]["read"].as_str().unwrap().replace(&near.named(), &deaf);
    let config = format!("relays = [{{ url = \"{deaf}\", token-file = \"token\" }}]");
    home.write("config.toml", config);
    let args = ["stage", &read, "--at", &far.named(), "--for", "1h"];
    let ran = home.swath(args).env("SWATH_CONFIG", "config.toml").run();
    // Its name was the whole of what opens it, and so was that of the Metalink.
    let secret = read.rsplit('/').next().unwrap();
    ran.code_is(0).says(&[&format!("depot-{}: ", &secret[..8])]).never_says(&[&secret[..16]]);
    assert!(home.exists(&format!("depot-{}.meta4", &secret[..8])), "{:?}", home.names());
}
