//! `swath stage` where something goes wrong: sources that restart, depots that go or lie, files that
//! cannot be written.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use swath_netlab::faulty::{Behaviour, Content, Scope};

use crate::support::depot::until;
use crate::support::net::{FILE, honest, server, sha256, slow, url};
use crate::support::serve::{Served, reserved_address};
use crate::support::{Home, Swath};

const SIZE: u64 = 9_000_017;

/// Depots, each with a folder of its own.
fn depots<const N: usize>(home: &Home) -> [Served; N] {
    std::array::from_fn(|at| {
        let folder = format!("depot{at}");
        home.relay_at(&reserved_address(), &["--depot", &folder, "--depot-size", "20M"])
    })
}

fn staging(home: &Home, source: &str, depots: &[Served], more: &[&str]) -> Swath {
    let at = depots.iter().flat_map(|depot| ["--at".to_owned(), depot.named()]);
    let usual = ["stage", source, "--for", "1h", "-o", "staged.meta4"].map(str::to_owned);
    let more = more.iter().map(|&arg| arg.to_owned());
    home.swath(usual.into_iter().chain(at).chain(more))
}

fn room(depot: &Served, figure: &str) -> u64 {
    let room = depot.ask("GET", "/depot", "", b"").is(200).json();
    let found = room.get(figure).or_else(|| room["disk"].get(figure));
    found.and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{figure}: {room}"))
}

fn begin(depots: &[Served]) {
    until("it begins", || depots.iter().all(|depot| room(depot, "taken_bytes") > 0));
}

#[test]
fn a_source_that_restarts_costs_nobody_what_is_staged() {
    // A depot's lanes failed together, six times in all, and that was the end of all it had.
    let home = Home::new();
    let content = Content::random(21, SIZE);
    let origin = slow(&content, 300_000);
    let depots: [Served; 1] = depots(&home);
    let mut running =
        staging(&home, &url(&origin), &depots, &["--digest", &sha256(&content)]).start();
    begin(&depots);
    origin.die();
    origin.clear_log();
    let busy = Behaviour::status(503);
    origin.set(busy.clone());
    origin.revive();
    until("it is asked in vain as often as it took", || {
        let log = origin.log();
        running.is_over() || log.records.iter().filter(|it| it.status == 503).count() >= 6
    });
    origin.unset(&busy);
    origin.set(Behaviour::rate(0));
    running.wait().code_is(0).says(&["in one depot", "whole"]);
    origin.die();
    home.run(["get", "staged.meta4", "-o", "got"]).code_is(0);
    home.holds("got", &content);
}

#[test]
fn a_replica_that_hangs_is_left_for_another_one() {
    // It was asked for the same again and again, and the depot was lost over its own unfinished writing.
    let home = Home::new();
    let content = Content::random(22, SIZE);
    let lasts = Duration::from_secs(600);
    let hangs = Behaviour::Stall { after_bytes: 3_000_000, lasts, scope: Scope::Server };
    let (hung, other) = (server(&content, hangs), honest(&content));
    let depots: [Served; 1] = depots(&home);
    let ran = staging(&home, &url(&hung), &depots, &[&url(&other)]).run();
    ran.code_is(0).says(&["in one depot", "whole"]);
    assert!(other.log().sent_bytes(FILE) < SIZE, "what the first one sent was not asked for again");
    hung.die();
    other.die();
    home.run(["get", "staged.meta4", "-o", "got"]).code_is(0);
    home.holds("got", &content);
}

#[test]
fn what_cannot_be_given_up_at_the_end_can_be_later() {
    // "what was leased is given up again" was said, and nobody had its keys.
    let home = Home::new();
    let content = Content::random(22, SIZE);
    let origin = slow(&content, 300_000);
    let [near, far] = depots(&home);
    let both = [near, far];
    home.write("staged.meta4.left.keys", "of an earlier time");
    let running = staging(&home, &url(&origin), &both, &[]).start();
    begin(&both);
    let [near, far] = both;
    let address = far.address().to_string();
    drop(far);
    running.signal(libc::SIGINT);
    let ran = running.wait();
    let named = format!("http://{address}/ did not release its lease: ");
    ran.code_is(130).says(&[
        &named,
        "it expires in",
        "run 'swath stage release staged.meta4.left2",
    ]);
    assert_eq!(room(&near, "allocations"), 0);
    assert_eq!(home.read("staged.meta4.left.keys"), b"of an earlier time");
    let names = home.names();
    let left: Vec<&String> = names.iter().filter(|name| name.contains("meta4")).collect();
    assert_eq!(left, ["staged.meta4.left.keys", "staged.meta4.left2.keys"]);
    let back = home.relay_at(&address, &["--depot", "depot1", "--depot-size", "20M"]);
    assert_eq!(room(&back, "allocations"), 1);
    home.run(["stage", "release", "staged.meta4.left2"]).code_is(0);
    assert_eq!(room(&back, "allocations"), 0);
    assert!(!home.exists("staged.meta4.left2.keys"));
}

#[test]
fn where_the_files_cannot_be_written_those_of_an_earlier_time_stay() {
    // The keys of what was staged before were removed, and nobody could give it up any more.
    let home = Home::new();
    let content = Content::random(23, SIZE);
    let depots: [Served; 1] = depots(&home);
    staging(&home, &url(&honest(&content)), &depots, &[]).run().code_is(0);
    let held = || ["staged.meta4", "staged.meta4.keys"].map(|name| home.read(name));
    let before = held();
    for draft in ["staged.meta4", "staged.meta4.keys"] {
        let origin = slow(&content, 300_000);
        let running = staging(&home, &url(&origin), &depots, &["--overwrite"]).start();
        until("it begins", || room(&depots[0], "allocations") == 2);
        // As one does who tidies up.
        fs::remove_file(home.path(format!("{draft}.swath.new"))).unwrap();
        origin.clear();
        let ran = running.wait();
        ran.code_is(5).says(&["cannot write staged.meta4: ", "nothing was staged"]);
        assert_eq!(held(), before, "without {draft}");
        assert_eq!(room(&depots[0], "allocations"), 1);
        let names = home.names();
        let ours = names.iter().filter(|name| name.contains("meta4"));
        assert_eq!(ours.count(), 2, "{names:?}");
    }
    home.run(["stage", "release", "staged.meta4"]).code_is(0);
    assert_eq!(room(&depots[0], "allocations"), 0);
    fs::remove_file(home.path("staged.meta4")).unwrap();
    fs::create_dir(home.path("staged.meta4")).unwrap();
    let ran = staging(&home, "http://127.0.0.1:9/f", &depots, &["--overwrite"]).run();
    ran.code_is(5).says(&["staged.meta4 is a folder"]);
}

#[test]
fn what_is_staged_again_gives_up_what_was_there_before() {
    // Its keys were replaced, and depots kept what nobody could give up any more.
    let home = Home::new();
    let content = Content::random(24, SIZE);
    let origin = honest(&content);
    let [near, far] = depots(&home);
    let both = [near, far];
    for more in [&[][..], &["--overwrite"], &["--overwrite", "--replicas", "2"]] {
        staging(&home, &url(&origin), &both, more).run().code_is(0).never_says(&["warning"]);
    }
    let allocations = both.each_ref().map(|depot| room(depot, "allocations"));
    assert_eq!(allocations, [1, 1]);
    // One that cannot be told so is told of, and its keys are kept.
    let [near, far] = both;
    let address = far.address().to_string();
    drop(far);
    let near = [near];
    let ran = staging(&home, &url(&origin), &near, &["--overwrite", "--quiet"]).run();
    let named = format!("warning: http://{address}/ did not release the earlier lease: ");
    ran.code_is(0).says(&[&named, "run 'swath stage release staged.meta4.left' later"]);
    assert_eq!(room(&near[0], "allocations"), 1);
    let back = home.relay_at(&address, &["--depot", "depot1", "--depot-size", "20M"]);
    assert_eq!(room(&back, "allocations"), 1);
    home.run(["stage", "release", "staged.meta4.left"]).code_is(0);
    assert_eq!(room(&back, "allocations"), 0);
    home.run(["stage", "release", "staged.meta4"]).code_is(0);
    assert_eq!(room(&near[0], "allocations"), 0);
}

#[test]
fn whoever_is_killed_leaves_the_keys_of_what_is_leased() {
    // They were in memory alone: nobody could give up what ran on for two days.
    let home = Home::new();
    let content = Content::random(27, SIZE);
    let [near, far] = depots(&home);
    let both = [near, far];
    let origin = slow(&content, 300_000);
    let running = staging(&home, &url(&origin), &both, &[]).start();
    begin(&both);
    until("the keys are kept", || home.exists("staged.meta4.left.keys"));
    running.signal(libc::SIGKILL);
    let _ = running.wait();
    let leased = || both.each_ref().map(|depot| room(depot, "allocations"));
    assert_eq!(leased(), [1, 1]);
    home.run(["stage", "release", "staged.meta4.left"]).code_is(0);
    assert_eq!(leased(), [0, 0]);
    // And those of what was staged before, while that is being given up.
    let origin = honest(&content);
    staging(&home, &url(&origin), &both, &["--replicas", "2"]).run().code_is(0);
    assert!(!home.exists("staged.meta4.left.keys"));
    let before = home.read("staged.meta4.keys");
    let [near, far] = both;
    let address = far.address().to_string();
    drop(far);
    // It takes connections, and says nothing.
    let mute = TcpListener::bind(&address).unwrap();
    let near = [near];
    let running = staging(&home, &url(&origin), &near, &["--overwrite"]).start();
    let keys = home.path("staged.meta4.keys");
    until("the files are replaced", || fs::read(&keys).is_ok_and(|now| now != before));
    running.signal(libc::SIGKILL);
    let _ = running.wait();
    drop(mute);
    // What another test is just starting holds it too, until it is a program of its own.
    until("the address is free", || TcpListener::bind(&address).is_ok());
    let far = home.relay_at(&address, &["--depot", "depot1", "--depot-size", "20M"]);
    assert_eq!(room(&far, "allocations"), 1);
    let names = home.names();
    let left = names.iter().filter(|name| name.contains(".left"));
    for name in left {
        home.run(["stage", "release", name.strip_suffix(".keys").unwrap()]);
    }
    assert_eq!(room(&far, "allocations"), 0, "{names:?}");
}

#[test]
fn a_depot_that_tells_of_more_than_was_asked_for_stalls() {
    // That was news each time, and it went on for ever.
    let home = Home::new();
    let origin = honest(&Content::random(24, SIZE));
    let depot = liar(SIZE, |to| {
        while to.write_all(format!("{{\"came\":{}}}\n", u64::MAX).as_bytes()).is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let args = ["--at", &depot, "--timeout", "2s"];
    let ran = staging(&home, &url(&origin), &[], &args).run();
    ran.code_is(7).says(&["no depot has fetched anything for 2 s"]);
}

#[test]
fn depots_that_bring_next_to_nothing_hold_nobody_up() {
    // What one had begun nobody else was given, and what it told without end was kept: gigabytes.
    let home = Home::new();
    let [good] = depots(&home);
    let named = good.named();
    let [drips, floods, lies]: [fn(&mut TcpStream); 3] = [
        |to| {
            let words = (1..).map(|came| format!("{{\"came\":{came}}}\n"));
            words.take_while(|word| to.write_all(word.as_bytes()).is_ok()).for_each(|_| {
                std::thread::sleep(Duration::from_millis(200));
            });
        },
        |to| {
            let words = "{\"came\":1}\n".repeat(5000);
            while to.write_all(words.as_bytes()).is_ok() {}
        },
        |to| {
            let _ = to.write_all(b"{\"done\":true}\n");
        },
    ];
    // What is a single cell goes to the first depot alone.
    for (size_bytes, tell) in [(SIZE, drips), (SIZE, floods), (SIZE, lies), (40_000, drips)] {
        let content = Content::random(28, size_bytes);
        let origin = slow(&content, 3_000_000);
        let useless = depot_with(size_bytes, "[]", tell);
        let source = url(&origin);
        let mut at = vec!["--at", &useless];
        at.splice(if size_bytes < SIZE { 2..2 } else { 0..0 }, ["--at", &named]);
        let usual = ["stage", &source, "--for", "1h", "-o", "staged.meta4", "--overwrite"];
        let (ran, peak) = home.swath(usual.into_iter().chain(at)).start().watch();
        ran.code_is(0).says(&["in one depot"]);
        assert!(peak < 200 << 20, "{peak} bytes");
        origin.die();
        home.run(["get", "staged.meta4", "-o", "got", "--overwrite"]).code_is(0);
        home.holds("got", &content);
    }
}

#[test]
fn a_depot_that_holds_more_than_the_file_is_not_believed() {
    let home = Home::new();
    let origin = honest(&Content::random(25, SIZE));
    let depot = liar(2 * SIZE, |to| {
        let _ = to.write_all(b"{\"done\":true}\n");
    });
    let ran = staging(&home, &url(&origin), &[], &["--at", &depot]).run();
    let said = format!("{} bytes, {SIZE} were expected", 2 * SIZE);
    ran.code_is(7).says(&["could not be stored", &said]);
}

/// A depot that holds all of `size_bytes`, and tells of what it fetches by `tell`: its address.
fn liar(size_bytes: u64, tell: fn(&mut TcpStream)) -> String {
    depot_with(size_bytes, &format!("[[0,{size_bytes}]]"), tell)
}

/// A depot that tells of having `held` of `size_bytes`, and of what it fetches by `tell`: its address.
fn depot_with(size_bytes: u64, held: &str, tell: fn(&mut TcpStream)) -> String {
    let held = held.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut near, _)) = listener.accept() {
            let held = held.clone();
            std::thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") {
                    if near.read_exact(&mut byte).is_err() {
                        return;
                    }
                    head.push(byte[0]);
                }
                let head = String::from_utf8(head).unwrap();
                let at = format!("/depot/{}", "0123456789abcdef".repeat(4));
                let body = if head.starts_with("POST /depot/") {
                    String::new()
                } else if head.starts_with("POST /depot?") {
                    format!(r#"{{"read":"{at}","write":"{at}","manage":"{at}","lease_s":60}}"#)
                } else if head.starts_with("GET /relay?") {
                    r#"{"relay":"swath","name":"liar","hops":{}}"#.to_owned()
                } else {
                    format!(r#"{{"size":{size_bytes},"held":{held},"lease_s":60}}"#)
                };
                let start = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}");
                let _ = near.write_all(start.as_bytes());
                if body.is_empty() {
                    tell(&mut near);
                }
            });
        }
    });
    url
}

#[test]
fn keys_stay_where_no_depot_says_that_its_lease_has_ended() {
    // Whatever else answered 404 was believed, such as the relay started again without its depot: "its
    // lease had ended", and the only keys were thrown away.
    let home = Home::new();
    let content = Content::random(26, SIZE);
    let origin = honest(&content);
    let [near, far] = depots(&home);
    let both = [near, far];
    staging(&home, &url(&origin), &both, &[]).run().code_is(0);
    let keys = home.read("staged.meta4.keys");
    let [near, far] = both;
    let address = far.address().to_string();
    drop(far);
    let bare = home.relay_at(&address, &[]);
    let status = home.run(["stage", "status", "staged.meta4"]);
    assert!(!status.code_is(8).out().contains("lease has ended"), "{status}");
    assert!(status.out().contains("it answered 404: this relay has no depot"), "{status}");
    home.run(["stage", "release", "staged.meta4"]).code_is(8);
    assert_eq!(home.read("staged.meta4.keys"), keys);
    let ran = staging(&home, &url(&origin), &[near], &["--overwrite"]).run();
    ran.code_is(0).says(&["did not release the earlier lease", "staged.meta4.left"]);
    drop(bare);
    // A server that answers anything with a page, and one that knows no such thing.
    for answer in ["200 OK", "410 Gone"] {
        let mut listener = None;
        // What another test is just starting holds it too, until it is a program of its own.
        until("the address is free", || {
            listener = TcpListener::bind(&address).ok();
            listener.is_some()
        });
        let listener = listener.unwrap();
        let answers = std::thread::spawn(move || {
            let (mut near, _) = listener.accept().unwrap();
            let _ = near.read(&mut [0; 4096]).unwrap();
            let page = format!("HTTP/1.1 {answer}\r\nContent-Length: 2\r\n\r\nHi");
            near.write_all(page.as_bytes()).unwrap();
        });
        let ran = home.run(["stage", "release", "staged.meta4.left"]);
        assert!(!ran.code_is(7).out().contains("its lease had expired"), "{ran}");
        answers.join().unwrap();
    }
    let back = home.relay_at(&address, &["--depot", "depot1", "--depot-size", "20M"]);
    assert_eq!(room(&back, "allocations"), 1);
    let left = home.read("staged.meta4.left.keys");
    home.run(["stage", "release", "staged.meta4.left"]).code_is(0);
    assert_eq!(room(&back, "allocations"), 0);
    // A depot that has forgotten it says so as well.
    home.write("staged.meta4.left.keys", left);
    fs::remove_dir_all(home.path("depot1")).unwrap();
    drop(back);
    let _anew = home.relay_at(&address, &["--depot", "depot1", "--depot-size", "20M"]);
    let ran = home.run(["stage", "release", "staged.meta4.left"]);
    assert!(ran.code_is(0).out().contains("its lease had expired"), "{ran}");
    assert!(!home.exists("staged.meta4.left.keys"));
}
