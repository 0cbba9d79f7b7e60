//! What relays refuse, and what is said of it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::support::Home;
use crate::support::depot::until;
use crate::support::net::{honest, url};
use crate::support::serve::{FINGERPRINT, Served, reserved_address};
use swath_netlab::faulty::{Behaviour, Content};

const SIZE: u64 = 3_000_017;

/// Somebody who answers every request with the same status, and is no swath; or, after some of them, lets
/// others answer.
struct Gatekeeper {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Gatekeeper {
    fn who_says(status: &'static str) -> Gatekeeper {
        Gatekeeper::who_says_first(status, usize::MAX, None)
    }

    /// After so many requests this relay answers in its place.
    fn who_says_first(status: &'static str, count: usize, then: Option<SocketAddr>) -> Gatekeeper {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&asked);
        std::thread::spawn(move || {
            while let Ok((mut tcp, _)) = listener.accept() {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && matches!(tcp.read(&mut byte), Ok(1)) {
                    head.push(byte[0]);
                }
                let line =
                    String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
                hears.lock().unwrap().push(line);
                if let Some(then) = then.filter(|_| hears.lock().unwrap().len() > count) {
                    std::thread::spawn(move || {
                        let mut far = TcpStream::connect(then).unwrap();
                        far.write_all(&head).unwrap();
                        let (mut back, mut answers) =
                            (tcp.try_clone().unwrap(), far.try_clone().unwrap());
                        std::thread::spawn(move || {
                            let _ = std::io::copy(&mut answers, &mut back);
                            let _ = back.shutdown(Shutdown::Both);
                        });
                        let _ = std::io::copy(&mut tcp, &mut far);
                    });
                    continue;
                }
                let fields = "Content-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = tcp.write_all(format!("HTTP/1.1 {status}\r\n{fields}").as_bytes());
            }
        });
        Gatekeeper { url, asked }
    }

    /// How often it was asked for more than what it is.
    fn asked(&self) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|line| !line.starts_with("GET /relay?")).count()
    }
}

#[test]
fn a_definite_no_is_taken_for_one() {
    // It was asked again for ten seconds, as if it were starting up.
    let home = Home::new();
    let origin = honest(&Content::random(61, SIZE));
    let from = url(&origin);
    for status in ["403 Forbidden", "407 Proxy Authentication Required", "421 Misdirected Request"]
    {
        for end_to_end in [true, false] {
            let keeper = Gatekeeper::who_says(status);
            let more: &[&str] = if end_to_end { &["--end-to-end"] } else { &[] };
            let args = ["get", &from, "-o", "got", "--route", &keeper.url];
            let ran = home.run([&args[..], more].concat());
            ran.code_is(7)
                .says(&[status, "--route auto"])
                .never_says(&["no answer", "trying again"]);
            assert_eq!(keeper.asked(), 1, "{status} {end_to_end}");
        }
    }
    // What may pass is asked again.
    let relay = home.relay(&[]);
    let keeper = Gatekeeper::who_says_first("502 Bad Gateway", 4, Some(relay.address()));
    let args = ["get", &from, "-o", "got", "--end-to-end", "--route", &keeper.url];
    home.run(args).code_is(0).says(&["502 Bad Gateway", "trying again"]);
    assert!(keeper.asked() > 1);
}

#[test]
fn who_refuses_costs_the_others_nothing() {
    let home = Home::new();
    let content = Content::random(62, SIZE);
    let origin = honest(&content);
    let (keeper, good) = (Gatekeeper::who_says("403 Forbidden"), home.relay(&[]));
    for choice in ["auto", "multi", "widest"] {
        let relays = ["--relay", &keeper.url, "--relay", &good.named()];
        let args = ["get", &url(&origin), "-o", choice, "--route", choice];
        home.run([&args[..], &relays].concat()).code_is(0);
        home.holds(choice, &content);
    }
}

#[test]
fn a_named_route_that_fails_is_told_with_the_relay_and_what_helps() {
    // The source itself, which nobody had asked, was said not to answer.
    let home = Home::new();
    let origin = honest(&Content::random(63, SIZE));
    let from = url(&origin);
    let near = home.relay(&[]);
    let closed = home.relay(&["--clients", "192.0.2.0/24"]);
    let narrow = home.relay_to("192.0.2.0/24");
    let two = |far: &str| format!("{},{far}", near.named());
    let (closed, narrow) = (closed.named(), narrow.named());
    for (route, words, hint) in [
        (closed.clone(), "it lets others in", "--clients"),
        (two(&closed), "it lets others in", "--clients"),
        (
            narrow.clone(),
            "it is not among those that this relay asks",
            "its operator must allow the server (--upstream: the source, or the next relay, with the port)",
        ),
        (
            two(&narrow),
            "it is not among those that this relay asks",
            "its operator must allow the server (--upstream: the source, or the next relay, with the port)",
        ),
    ] {
        for end_to_end in [false, true] {
            let more: &[&str] = if end_to_end { &["--end-to-end"] } else { &[] };
            let ran =
                home.run([&["get", &from, "-o", "got", "--route", &route][..], more].concat());
            ran.code_is(7).says(&["passes nothing on", words, hint, "--route auto"]);
            ran.never_says(&["no answer"]);
        }
    }
    // It is the relay that is to be named by https://, not the source.
    let secure = home.tls_relay(&["--clients", "127.0.0.0/8"]);
    let plain = secure.named().replace("https://", "http://");
    let ran = home.run(["get", &from, "-o", "got", "--route", &plain]);
    let hint = format!("  the address of that relay is {}", secure.named());
    ran.code_is(7).says(&["this relay speaks HTTPS", &hint]).never_says(&["its address is"]);
    // What opens the source is not entrusted to the one next to it: nothing was even asked.
    home.write("token", "for-the-origin");
    let gone = format!("http://{}", reserved_address());
    let args = ["get", &from, "-o", "got", "--bearer-file", "token", "--route", &gone];
    let ran = home.run(args);
    let told = format!("the relay {}: ", &gone[7..]);
    ran.code_is(7).says(&[&told, "--route auto"]).never_says(&["no answer"]);
}

#[test]
fn what_end_to_end_cannot_do_is_told() {
    let home = Home::new();
    let content = Content::random(64, SIZE);
    let origin = honest(&content);
    let relay = home.relay(&[]);
    let args = ["get", &url(&origin), "-o", "got", "--end-to-end", "--route", &relay.named()];
    let ran = home.run(args);
    ran.code_is(0).says(&["--end-to-end does not protect 127.0.0.1:", "begins with http://"]);
    home.holds("got", &content);
    let plain = ["get", &url(&origin), "-o", "plain", "--route", &relay.named()];
    home.run(plain).code_is(0).never_says(&["--end-to-end hides"]);
}

#[test]
fn everything_in_parts_is_everything_too() {
    // Two halves were listed, with loopback and all private networks in them.
    let home = Home::new();
    for halves in ["0.0.0.0/1,128.0.0.0/1", "data.example.org,::/1,8000::/1", "0.0.0.0/7:80"] {
        let ran = home.run(["relay", "--upstream", halves, "--clients", "127.0.0.0/8"]);
        ran.code_is(2).says(&["is too wide: ", "in blocks of /8 at most"]);
    }
    home.relay(&["--clients", "0.0.0.0/0"])
        .says("warning: --clients 0.0.0.0/0: anybody may use this relay");
    home.relay(&["--clients", "::/0,127.0.0.0/8"])
        .says("warning: --clients ::/0: anybody may use this relay");
    home.relay(&["--clients", "127.0.0.0/8,0.0.0.0/1"])
        .says("warning: --clients 0.0.0.0/1: a large part of the internet may use this relay");
}

#[test]
fn a_token_that_is_refused_is_told_apart_from_none() {
    // "It lets others in" was all that was said of either.
    let home = Home::new();
    let origin = honest(&Content::random(65, SIZE));
    home.write("clients", "the-right-one\n");
    home.write("wrong", "the-wrong-one\n");
    home.write("right", "the-right-one\n");
    let relay = home.relay(&["--clients", "clients"]);
    let get = |token: &str| {
        let list = match token {
            "" => format!("\"{}\"", relay.named()),
            _ => format!("{{ url = \"{}\", token-file = \"{token}\" }}", relay.named()),
        };
        let config = home.write("my.toml", format!("relays = [{list}]\n"));
        let from = url(&origin);
        let args = ["get", &from, "-o", "got", "--overwrite", "--route", &relay.named()];
        home.swath(args).env("SWATH_CONFIG", config).run()
    };
    get("right").code_is(0);
    let (no_token, wrong) = ("and was shown no token", "not who shows this token");
    get("").code_is(7).says(&[no_token]).never_says(&[wrong, "source 2 "]);
    get("wrong").code_is(7).says(&[wrong]).never_says(&[no_token, "source 2 "]);
}

#[test]
fn a_relay_whose_last_token_was_taken_out_lets_nobody_in_by_one() {
    // An emptied file left all tokens good that had been in it.
    let home = Home::new();
    home.write("tokens", "sesame-open\n");
    let relay = home.relay(&["--clients", "tokens"]);
    let with = || relay.ask("GET", "/relay", "Authorization: Bearer sesame-open\r\n", b"");
    with().is(200);
    home.write("tokens", "# nobody\n");
    relay.signal(libc::SIGHUP);
    relay.says("all tokens are revoked: tokens is empty");
    with().is(401);
    relay.ask("GET", "/relay", "", b"").is(401);
    std::fs::remove_file(home.path("tokens")).unwrap();
    relay.signal(libc::SIGHUP);
    relay.says("keeping the old tokens: cannot read");
}

#[test]
fn who_is_not_there_behind_a_relay_is_given_up() {
    // By a relay it was asked for a minute, where direct had it given up after ten seconds or at once. (For
    // how long it is asked is tested in virtual time: `who_was_never_reached_by_a_relay_is_given_up_as_who_
    // never_was_at_all`.)
    let home = Home::new();
    let origin = honest(&Content::random(67, SIZE));
    let relay = home.relay(&[]);
    let get = |from: &str| home.run(["get", from, "-o", "got", "--route", &relay.named()]);
    let ran = get(&home.relay(&[]).url.replace("http://", "https://"));
    ran.code_is(7).says(&["passes nothing on: no secure connection to 127.0.0.1:"]);
    ran.never_says(&["trying again"]);
    let from = url(&origin);
    origin.die();
    let ran = get(&from);
    ran.code_is(7).says(&["passes nothing on: cannot connect to 127.0.0.1:", "trying again"]);
}

#[test]
fn a_relay_that_is_not_to_ask_a_source_is_told_once() {
    // It answered, so it was not lost, and the router never opened a way by it: all came direct, and
    // not a word was said of the likeliest mistake.
    let home = Home::new();
    let content = Content::random(66, 12_000_017);
    let origin = honest(&content);
    let from = url(&origin).replace("127.0.0.1", "localhost");
    let source = from.split('/').nth(2).unwrap();
    home.write("narrow.log", "");
    let usual = ["relay", "--plain", "--clients", "127.0.0.0/8", "--listen", "127.0.0.1:0"];
    let more = ["--log", "narrow.log", "--upstream", "127.0.0.0/8"];
    let narrow = Served::of(home.swath(usual.iter().chain(&more)), &["--token-file"]);
    let questions = || {
        let log = String::from_utf8(home.read("narrow.log")).unwrap();
        log.matches("\"GET /relay?").count()
    };
    let site = |relay: &Served| relay.named().replace("http://", "");
    let told = |relay: &Served, source: &str, why: &str| {
        format!("the relay {} is not used for {source}: {why}", site(relay))
    };
    let unlisted = "it is not among those that this relay asks (--upstream)";
    // The sources send little until the relay has answered, and some seconds' worth then.
    let until_asked = |args: Vec<&str>| {
        let before = questions();
        origin.set(Behaviour::rate(100_000));
        let getting = home.swath(args).start();
        until("the relay is asked", || questions() > before);
        origin.set(Behaviour::rate(12_000_000));
        getting.wait()
    };
    let get = |from: &str, relays: &[&Served], more: &[&str]| {
        let names: Vec<String> = relays.iter().map(|relay| relay.named()).collect();
        let relays = names.iter().flat_map(|name| ["--relay", name]);
        let args = ["get", from, "-o", "got", "--overwrite"];
        let ran = until_asked(args.into_iter().chain(relays).chain(more.iter().copied()).collect());
        ran.code_is(0);
        home.holds("got", &content);
        ran
    };
    let words = told(&narrow, source, unlisted);
    for route in ["auto", "multi"] {
        let ran = get(&from, &[&narrow], &["--route", route]);
        assert_eq!(ran.stderr.matches(&words).count(), 1, "{ran}");
    }
    let ran = get(&from, &[&narrow], &["--json"]);
    let note = |line: &&str| line.contains("\"event\":\"note\"") && line.contains(&words);
    assert_eq!(ran.out().lines().filter(note).count(), 1, "{ran}");
    get(&from, &[&narrow], &["--quiet"]).never_says(&["is not used"]);
    // Of a list it is told once, too.
    home.write("list", format!("{from}\n  out=one\n{from}?2\n  out=two\n"));
    let ran = until_asked(vec!["get", "-i", "list", "--relay", &narrow.named()]);
    assert_eq!(ran.code_is(0).stderr.matches(&words).count(), 1, "{ran}");
    // One that is to lead to another one, which asks the source, is as it should be.
    let far = home.relay(&["--upstream", "localhost"]);
    let near = home.relay_to(&site(&far));
    let named = [near.named(), far.named()];
    let get_slowly = ["get", &from, "-o", "got", "--overwrite", "--limit-rate", "6M"];
    let both = ["--relay", &named[0], "--relay", &named[1]];
    home.run([&get_slowly[..], &both].concat()).code_is(0).never_says(&["is not used"]);
    // So is one that asks one of two sources.
    let both = [&url(&origin), "--relay", &narrow.named()];
    get(&from, &[], &both).never_says(&["is not used"]);
    // It does not trust the source.
    let secure = home.tls_relay(&["--clients", "127.0.0.0/8"]);
    let print = secure.words.lines().find_map(|line| line.strip_prefix(FINGERPRINT)).unwrap();
    let ran = get(&secure.through(&url(&origin)), &[&narrow], &["--fingerprint", print.trim()]);
    let source = secure.address().to_string();
    ran.says(&[&told(&narrow, &source, "its certificate is not trusted by this relay")]);
}

#[test]
fn options_that_do_nothing_or_get_in_one_anothers_way_are_refused() {
    // --max-lease was taken without a word where nothing is leased; of one folder for both it was said
    // that another process used it.
    let home = Home::new();
    let refuse = |more: &[&str], words: &str| {
        let usual = ["relay", "--upstream", "127.0.0.1", "--clients", "127.0.0.0/8", "--plain"];
        home.run([&usual[..], &["--listen", "127.0.0.1:0"], more].concat())
            .code_is(2)
            .says(&[words]);
    };
    refuse(&["--max-lease", "1h"], "--max-lease needs --depot or --depot-memory");
    std::fs::create_dir(home.path("kept")).unwrap();
    let both = ["--cache", "kept", "--depot", "./kept/", "--depot-size", "20M"];
    refuse(&both, "each needs its own folder");
}
