//! Where relays lead, and where they do not: redirects, sources that nobody on the way may read, and ways
//! that break each answer.

use std::fs;
use std::io::Read as _;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use swath_netlab::faulty::{Behaviour, Certificate, Content, Log, Server, ca_pem};

use crate::support::Home;
use crate::support::depot::until;
use crate::support::net::{FILE, building, honest, server, sha256, url};
use crate::support::relay::{Ear, Two};
use crate::support::serve::{FINGERPRINT, Served};

const SIZE: u64 = 3_000_017;

/// What no relay on the way is to know: it is within the address.
const HIDDEN: &str = "salted-harvest-7.h5";

/// Whether whoever is behind this ear knows of the file's name, its bytes and what opens its source: all
/// of that, or nothing. Its log never does, nor of any request but those for the relay itself.
fn knows(ear: &Ear, log: &str, token: &str, content: &Content) -> bool {
    let bytes = (0..3).map(|at| at * (SIZE / 3)).any(|at| ear.brought(&content.read(at, at + 32)));
    let words = [HIDDEN, token].map(|words| ear.heard(words));
    assert_eq!(words, [bytes; 2]);
    for line in log.lines().filter(|line| !line.contains("\"GET /relay? ")) {
        assert!(line.contains("\"CONNECT 127.0.0.1:"), "{log}");
    }
    assert!(
        log.contains("CONNECT ") && ![HIDDEN, token].iter().any(|it| log.contains(it)),
        "{log}"
    );
    bytes
}

#[test]
fn relays_that_only_carry_see_nothing_of_an_https_source_but_where_it_is() {
    // The promise of `--end-to-end`, with all that there is to hide; the third one shows that ears hear.
    let content = Content::random(2, SIZE);
    for (is_far_tls, is_origin_tls) in [(true, true), (false, true), (false, false)] {
        let mut two = Two::new(is_far_tls);
        two.home.write(&format!("tree/{HIDDEN}"), content.read(0, SIZE));
        let plain: &[&str] = if is_origin_tls { &[] } else { &["--plain"] };
        let origin = two.home.serve(&[&["tree"], plain].concat());
        let token = origin.token();
        two.home.write("shown", token);
        two.more.extend(["--bearer-file", "shown"].map(str::to_owned));
        if is_origin_tls {
            two.more.extend(["--fingerprint".to_owned(), print(&origin)]);
        }
        let ran = two.get(&origin.at(HIDDEN), "config.toml");
        ran.code_is(0).never_says(&["could have changed", token]);
        two.home.holds("got", &content);
        let log = |name| String::from_utf8_lossy(&two.home.read(name)).into_owned();
        let logs = ["near.log", "far.log"].map(|name| {
            until("the tunnel is noted", || log(name).contains("CONNECT "));
            log(name)
        });
        for (ear, log) in [&two.near, &two.far].into_iter().zip(&logs) {
            assert_eq!(knows(ear, log, token, &content), !is_origin_tls, "{is_far_tls}: {log}");
        }
        assert!(two.near.heard("CONNECT ") && two.near.brought(b"HTTP/1.1 200 "));
    }
}

#[test]
fn what_relays_only_carried_of_an_https_source_is_not_said_to_have_been_in_their_hands() {
    // The source tells no digest, and the words of the end are about who could have changed it: carried
    // in TLS nobody could, passed on each relay could.
    let home = Home::new();
    let content = Content::random(8, SIZE);
    let origin = building(&content).tls(Certificate::Valid).start().unwrap();
    let ca = home.write("../ca.pem", ca_pem().unwrap()).display().to_string();
    let (near, far) = (home.relay(&["--ca", &ca]), home.relay(&["--ca", &ca]));
    let route = format!("{},{}", near.named(), far.named());
    let get = |to: &str, more: &[&str]| {
        let usual = ["get", &url(&origin), "-o", to, "--ca", &ca, "--route", &route];
        let ran = home.run([&usual[..], more].concat());
        ran.code_is(0);
        home.holds(to, &content);
        ran
    };
    get("carried", &["--end-to-end"]).never_says(&["could have changed", "hides nothing"]);
    get("passed", &[]).says(&["NOT VERIFIED: no digest", "relays could have changed"]);
}

#[test]
fn a_relay_of_a_tunnel_hears_nothing_of_what_is_behind_the_next_one() {
    // The tunnel hid it, and the question how far it is named it: `GET /relay?to=https://SOURCE`.
    let content = Content::random(7, SIZE);
    let mut two = Two::new(true);
    two.home.write(&format!("tree/{HIDDEN}"), content.read(0, SIZE));
    let origin = two.home.serve(&["tree", "--anonymous"]);
    two.more.extend(["--fingerprint".to_owned(), print(&origin)]);
    two.get(&origin.at(HIDDEN), "config.toml").code_is(0);
    two.home.holds("got", &content);
    // It is asked for the next one, and that one's address is all that it needs.
    assert!(two.near.heard(&two.far.url().replace("http://", "CONNECT ")));
    let site = origin.address().to_string();
    assert!(!two.near.heard(&site), "the first relay hears that it goes on to {site}");
}

fn print(served: &Served) -> String {
    let print = served.words.lines().find_map(|line| line.strip_prefix(FINGERPRINT));
    print.unwrap().trim().to_owned()
}

/// A server of the same that no relay here may ask, since it is at 127.0.0.2, and where that is.
/// `None`, with a message, where there is no such address.
fn unlisted(content: &Content) -> Option<(Server, String)> {
    let origin = honest(content);
    let Ok(listener) = TcpListener::bind("127.0.0.2:0") else {
        println!("skipped: this machine has no 127.0.0.2");
        return None;
    };
    let at = format!("http://{}{FILE}", listener.local_addr().unwrap());
    between(listener, origin.address(), u64::MAX);
    Some((origin, at))
}

/// Passes connections on to `to`, and ends each when so many bytes have come back; answers how many
/// it has ended so.
fn between(listener: TcpListener, to: SocketAddr, most_bytes: u64) -> Arc<AtomicU32> {
    let cuts = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&cuts);
    std::thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            let Ok(far) = TcpStream::connect(to) else { continue };
            let (mut near_too, mut far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut near_too, &mut far_too);
                let _ = far_too.shutdown(Shutdown::Write);
            });
            let counts = Arc::clone(&counts);
            std::thread::spawn(move || {
                let passed = std::io::copy(&mut (&far).take(most_bytes), &mut &near);
                if passed.is_ok_and(|bytes| bytes == most_bytes) {
                    counts.fetch_add(1, Ordering::Relaxed);
                }
                for side in [near, far] {
                    let _ = side.shutdown(Shutdown::Both);
                }
            });
        }
    });
    cuts
}

#[test]
fn a_redirect_is_followed_by_a_route_to_whom_its_relay_asks_and_to_nobody_else() {
    let home = Home::new();
    let content = Content::random(4, SIZE);
    let origin = honest(&content);
    let Some((away, at)) = unlisted(&content) else { return };
    let relay = home.relay(&[]);
    let get = |from: &str| home.run(["get", from, "-o", "got", "--route", &relay.named()]);
    let within = server(&content, Behaviour::redirect(url(&origin)));
    get(&url(&within)).code_is(0).says(&[" by "]);
    home.holds_only("got", &content);
    let by_relay = |log: &Log| log.records.iter().filter(|it| it.header("via").is_some()).count();
    assert!(by_relay(&origin.log()) > 0);
    fs::remove_file(home.path("got")).unwrap();
    let astray = server(&content, Behaviour::redirect(at));
    let ran = get(&url(&astray));
    ran.code_is(7).says(&["it is not among those that this relay asks (--upstream)"]);
    home.lacks("got");
    assert_eq!(by_relay(&away.log()), 0);
    // One that ends nowhere.
    let circle = server(&content, Behaviour::RedirectLoop { status: 302 });
    get(&url(&circle)).code_is(7).says(&["the redirects never end"]);
    home.lacks("got");
}

#[test]
fn a_relay_of_whose_answers_each_is_cut_ruins_nothing_that_the_source_sends_itself() {
    // What came before the cut counts, the rest is asked for anew, and the other way never ends for it.
    let home = Home::new();
    let content = Content::random(6, 24_000_000);
    // It lasts until the relay is in use.
    let origin = server(&content, Behaviour::rate(200_000));
    let relay = home.relay(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let cuts = between(listener, relay.address(), 200_000);
    let digest = sha256(&content);
    let args = ["get", &url(&origin), "-o", "got", "--digest", &digest];
    let getting =
        home.swath([&args[..], &["--route", "multi", "--relay", &proxy]].concat()).start();
    until("the relay is in use", || cuts.load(Ordering::Relaxed) > 0);
    origin.set(Behaviour::rate(12_000_000));
    getting.wait().code_is(0);
    home.holds_only("got", &content);
}
