//! `swath cp` where not everything may be read or written, by somebody whom the system refuses it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::net_events::fit;
use crate::support::Home;
use crate::support::depot::until;
use crate::support::trees::{assert_same, bytes, top};

fn chmod(home: &Home, path: &str, mode: u32) {
    fs::set_permissions(home.path(path), fs::Permissions::from_mode(mode)).unwrap();
}

/// A tree in which one file, between others that share its blocks, may not be read.
fn with_a_secret(home: &Home) {
    home.write("tree/before", bytes(1, 900_001));
    home.write("tree/secret", bytes(2, 100_000));
    home.write("tree/then", bytes(3, 900_003));
    home.write("tree/wide.bin", bytes(4, 3 << 20));
    fs::hard_link(home.path("tree/secret"), home.path("tree/secret too")).unwrap();
    chmod(home, "tree/then", 0o640);
    home.hand_over();
    chmod(home, "tree/secret", 0);
}

/// All is there but the secret; then it may be read, and comes too.
fn assert_all_but_the_secret(home: &Home, copy: &str) {
    for name in ["secret", "secret too"] {
        assert!(!home.exists(&format!("{copy}/{name}")), "{name}");
    }
    fs::create_dir(home.path("kept")).unwrap();
    for name in ["secret", "secret too"] {
        fs::rename(home.path(format!("tree/{name}")), home.path(format!("kept/{name}"))).unwrap();
    }
    assert_same(&home.path("tree"), &home.path(copy));
    for name in ["secret", "secret too"] {
        fs::rename(home.path(format!("kept/{name}")), home.path(format!("tree/{name}"))).unwrap();
    }
    fs::remove_dir(home.path("kept")).unwrap();
}

#[test]
fn what_may_not_be_read_is_told_as_that() {
    let Some(home) = Home::of_nobody() else { return };
    with_a_secret(&home);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let ran = home.run(["cp", &server.url, "copy"]);
    ran.code_is(8).says(&[
        "not copied: secret: it may not be read there",
        "not copied: secret too: it may not be read there",
        "2 entries not copied",
    ]);
    ran.never_says(&["changed"]);
    assert_all_but_the_secret(&home, "copy");
    let text = server.ask("GET", "/metrics", "", b"").text();
    let walks = text.lines().find(|line| line.contains("walks") && !line.starts_with('#'));
    assert!(walks.is_none_or(|walks| walks.ends_with(" 1")), "one look is enough: {text}");
    // Programs hear of each: of an incomplete copy they were told that all of it was proved.
    let ran = home.run(["cp", &server.url, "copy too", "--json"]);
    fit(&ran);
    let events: Vec<serde_json::Value> =
        ran.code_is(8).out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| -> Vec<&serde_json::Value> {
        events.iter().filter(|event| event["event"] == kind).collect()
    };
    assert_eq!(of("finished")[0]["proved"], false, "{ran}");
    let paths: Vec<&serde_json::Value> = of("not_copied").iter().map(|it| &it["path"]).collect();
    assert_eq!(paths, ["secret", "secret too"]);
    assert_eq!(of("not_copied")[0]["reason"], "it may not be read there");
    chmod(&home, "tree/secret", 0o644);
    home.run(["cp", &server.url, "copy"]).code_is(0);
    assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn a_sender_is_told_what_of_its_own_it_may_not_read() {
    let Some(home) = Home::of_nobody() else { return };
    with_a_secret(&home);
    fs::create_dir(home.path("store")).unwrap();
    home.hand_over();
    let server = home.serve(&["store", "--write", "--plain"]);
    home.write("token", server.token());
    let to = server.at("new/");
    let args = ["cp", "tree/", &to, "--bearer-file", "token"];
    let ran = home.run(args);
    ran.code_is(8).says(&["not copied: secret: it may not be read there"]);
    ran.never_says(&["changed"]);
    assert_all_but_the_secret(&home, "store/new");
    chmod(&home, "tree/secret", 0o644);
    home.run(args).code_is(0);
    assert_same(&home.path("tree"), &home.path("store/new"));
}

#[test]
fn what_no_replica_may_read_does_not_spoil_its_neighbours() {
    // The same bytes from two replicas counted twice: neighbours were taken for complete before they
    // were, and had times and modes of their making.
    let Some(home) = Home::of_nobody() else { return };
    with_a_secret(&home);
    let one = home.serve(&["tree", "--anonymous", "--plain"]);
    let two = home.serve(&["tree", "--anonymous", "--plain"]);
    for round in 0..8 {
        let copy = format!("copy{round}");
        let ran = home.run(["cp", &one.url, &two.url, &copy]);
        ran.code_is(8).says(&["not copied: secret: it may not be read there"]);
        assert_all_but_the_secret(&home, &copy);
    }
}

#[test]
fn blocks_that_no_replica_has_do_not_hold_up_those_beside_them() {
    // A block that came with others was judged by all of them together: it was refused from both, and
    // nobody was left to bring it.
    let Some(home) = Home::of_nobody() else { return };
    for n in 0..60 {
        home.write(&format!("tree/{n:02} open"), bytes(n, 500_000));
        home.write(&format!("tree/{n:02} secret"), bytes(n, 50_000));
    }
    home.hand_over();
    for n in 0..60 {
        chmod(&home, &format!("tree/{n:02} secret"), 0);
    }
    let one = home.serve(&["tree", "--anonymous", "--plain"]);
    let two = home.serve(&["tree", "--anonymous", "--plain"]);
    let ran = home.run(["cp", "--timeout", "30", &one.url, &two.url, "copy"]);
    ran.code_is(8).says(&["60 entries not copied"]);
    for n in 0..60 {
        let copied = home.read(&format!("copy/{n:02} open"));
        assert!(copied == home.read(&format!("tree/{n:02} open")), "{n}");
    }
}

/// The tree with its secret, and a copy of it in which that may be read.
fn with_another(home: &Home) {
    with_a_secret(home);
    chmod(home, "tree/secret", 0o644);
    let mut cp = Command::new("cp");
    assert!(cp.args(["-a", "tree", "other"]).current_dir(home.work()).status().unwrap().success());
    chmod(home, "tree/secret", 0);
}

fn assert_all_is_there(home: &Home, copy: &str) {
    for name in ["before", "secret", "secret too", "then", "wide.bin"] {
        let copied = home.read(&format!("{copy}/{name}"));
        assert!(home.read(&format!("other/{name}")) == copied, "{name}");
    }
}

/// A way to a server on which requests for an index wait until they may pass. Ends with the test.
struct Late {
    url: String,
    may_pass: Arc<AtomicBool>,
}

impl Late {
    fn before(url: &str) -> Late {
        let to = url.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = listener.local_addr().unwrap();
        let late = Late { url: url.replace(&to, &from.to_string()), may_pass: Arc::default() };
        let may_pass = Arc::clone(&late.may_pass);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(&to).unwrap();
                let (mut requests, mut answers) = (client.try_clone().unwrap(), client);
                let (mut there, mut back) = (server.try_clone().unwrap(), server);
                let may_pass = Arc::clone(&may_pass);
                std::thread::spawn(move || {
                    let mut part = [0; 4096];
                    while let Ok(bytes @ 1..) = requests.read(&mut part) {
                        let is_of_index = part[..bytes].windows(11).any(|it| it == b"swath=index");
                        while is_of_index && !may_pass.load(Ordering::Relaxed) {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        if there.write_all(&part[..bytes]).is_err() {
                            break;
                        }
                    }
                    let _ = there.shutdown(Shutdown::Write);
                });
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut back, &mut answers);
                    let _ = answers.shutdown(Shutdown::Both);
                });
            }
        });
        late
    }

    /// Copies from this server and by this way, whose index comes when the program says that it waits.
    fn awaited(&self, home: &Home, keeps: &str, url: &str, copy: &str) -> i32 {
        let mut swath = home.swath(["cp", "--preserve", keeps, url, &self.url, copy]);
        swath.command().stderr(fs::File::create(home.path("said")).unwrap());
        let copying = swath.start();
        let said = || String::from_utf8(home.read("said")).unwrap();
        until("it waits", || said().contains("waiting for the other replicas"));
        self.may_pass.store(true, Ordering::Relaxed);
        copying.wait().code()
    }
}

#[test]
fn what_one_replica_may_not_read_comes_from_another() {
    let Some(home) = Home::of_nobody() else { return };
    with_another(&home);
    let one = home.serve(&["tree", "--anonymous", "--plain"]);
    let two = home.serve(&["other", "--anonymous", "--plain"]);
    for round in 0..8 {
        let copy = format!("copy{round}");
        home.run(["cp", "--preserve", "times,links", &one.url, &two.url, &copy]).code_is(0);
        assert_all_is_there(&home, &copy);
    }
}

#[test]
fn a_replica_that_answers_late_is_waited_for_if_something_is_missing() {
    // The first one had brought all that it may read before the second one's index was there, and the
    // copy ended without what the second one has.
    let Some(home) = Home::of_nobody() else { return };
    with_another(&home);
    let one = home.serve(&["tree", "--anonymous", "--plain"]);
    let two = home.serve(&["other", "--anonymous", "--plain"]);
    let late = Late::before(&two.url);
    assert_eq!(late.awaited(&home, "times,links", &one.url, "copy"), 0);
    assert_all_is_there(&home, "copy");
    // Where nothing is missing nobody waits.
    chmod(&home, "tree/secret", 0o644);
    let late = Late::before(&two.url);
    let ran = home.run(["cp", "--preserve", "times,links", &one.url, &late.url, "whole"]);
    ran.code_is(0).never_says(&["waiting"]);
    assert_all_is_there(&home, "whole");
}

#[test]
fn a_replica_that_does_not_answer_is_not_waited_for_for_ever() {
    let Some(home) = Home::of_nobody() else { return };
    with_a_secret(&home);
    let one = home.serve(&["tree", "--anonymous", "--plain"]);
    let two = home.serve(&["tree", "--anonymous", "--plain"]);
    let late = Late::before(&two.url);
    let ran = home.run(["cp", "--timeout", "8", &one.url, &late.url, "copy"]);
    ran.code_is(8).says(&["not copied: secret: it may not be read there"]);
    assert_all_but_the_secret(&home, "copy");
    // And one that comes, and may not read it either, changes nothing.
    assert_eq!(late.awaited(&home, "mode,times,links", &one.url, "second"), 8);
    let said = String::from_utf8(home.read("said")).unwrap();
    assert!(said.contains("2 entries not copied"), "{said}");
    assert_all_but_the_secret(&home, "second");
}

#[test]
fn du_and_ls_tell_what_could_not_be_looked_at() {
    let Some(home) = Home::of_nobody() else { return };
    home.write("tree/closed/file", "x\n");
    home.write("tree/open/closed/file", "x\n");
    home.write("tree/open/file", bytes(1, 2_000_000));
    let old = std::time::SystemTime::UNIX_EPOCH - Duration::from_secs(1_000_000_000);
    fs::File::open(home.path("tree/open/file")).unwrap().set_modified(old).unwrap();
    home.hand_over();
    chmod(&home, "tree/closed", 0);
    chmod(&home, "tree/open/closed", 0);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let du = home.run(["du", &server.url]);
    du.code_is(8).says(&["2 entries could not be read and are not counted"]);
    assert!(du.out().starts_with("        -  closed\n  2.00 MB  open/\n"), "{du}");
    let ls = home.run(["ls", "-l", "-R", &server.url]);
    ls.code_is(0);
    let rows = ls.out();
    let row = |name: &str| rows.lines().find(|row| row.ends_with(name)).unwrap().to_owned();
    assert!(row("  open/file").contains("  1938-04-24 22:13:20  "), "{rows}");
    assert!(row("  closed").starts_with("-  ") && !rows.contains("1970"), "{rows}");
    chmod(&home, "tree/closed", 0o755);
    chmod(&home, "tree/open/closed", 0o755);
}

#[test]
fn nothing_is_removed_before_all_is_there() {
    let Some(home) = Home::of_nobody() else { return };
    with_a_secret(&home);
    home.write("copy/surplus/deep", "x");
    home.write("store/sent/surplus/deep", "x");
    home.hand_over();
    chmod(&home, "tree/secret", 0);
    let reading = home.serve(&["tree", "--anonymous", "--plain"]);
    let writing = home.serve(&["store", "--write", "--plain"]);
    home.write("token", writing.token());
    home.hand_over();
    chmod(&home, "tree/secret", 0);
    let to = writing.at("sent/");
    for (args, copy) in [
        (&["cp", "--delete", &reading.url, "copy"][..], "copy"),
        (&["cp", "--delete", "tree/", &to, "--bearer-file", "token"], "store/sent"),
        (&["cp", "--delete", "tree/", "here"], "here"),
    ] {
        home.write(&format!("{copy}/surplus/deep"), "x");
        home.hand_over();
        chmod(&home, "tree/secret", 0);
        let ran = home.run(args.iter().copied());
        ran.code_is(8)
            .says(&["nothing was removed: --delete needs a complete copy", "2 entries not copied"]);
        ran.never_says(&[" removed\n"]);
        assert_eq!(home.read(&format!("{copy}/surplus/deep")), b"x");
        // A plan says so too, as far as the walk could see.
        home.write("tree/closed/below", "x");
        home.hand_over();
        chmod(&home, "tree/closed", 0);
        let planned = home.run(args.iter().copied().chain(["--dry-run"]));
        planned.code_is(8).says(&[
            "not copied: closed: it may not be read there",
            "nothing would be removed: --delete needs a complete copy",
            "1 entry cannot be copied",
        ]);
        assert!(!planned.out().contains("remove"), "{planned}");
        chmod(&home, "tree/closed", 0o700);
        fs::remove_dir_all(home.path("tree/closed")).unwrap();
        chmod(&home, "tree/secret", 0o600);
        let planned = home.run(args.iter().copied().chain(["--dry-run"]));
        let lines = planned.code_is(0).out();
        for line in ["copy       100 kB  secret\n", "remove             surplus\n"] {
            assert!(lines.contains(line), "{line}{planned}");
        }
        home.run(args.iter().copied()).code_is(0).says(&[", 2 removed\n"]);
        assert!(!home.exists(&format!("{copy}/surplus")));
        chmod(&home, "tree/secret", 0);
    }
}

#[test]
fn rights_that_a_folder_gives_to_what_is_made_in_it_do_not_change_modes() {
    // Whoever makes a file with its mode at once gets what both allow.
    let home = Home::new();
    home.write("tree/script", "#!/bin/sh\n");
    chmod(&home, "tree/script", 0o755);
    fs::create_dir(home.path("to")).unwrap();
    let entry = |kind: u16, rights: u16| {
        [&kind.to_le_bytes()[..], &rights.to_le_bytes(), &u32::MAX.to_le_bytes()].concat()
    };
    // acl(5): the owner and the group may do all, others nothing.
    let list = [2u32.to_le_bytes().to_vec(), entry(1, 7), entry(4, 7), entry(0x20, 0)].concat();
    if !crate::support::xattrs::set(&home.path("to"), "system.posix_acl_default", &list) {
        println!("skipped: the folder for temporary files takes no lists of rights");
        return;
    }
    for to in ["to/", "to/new/"] {
        home.run(["cp", "tree/", to]).code_is(0);
        let mode = home.path(to).join("script").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "{to}");
    }
}

/// A tree whose own folder others may not look into, and which is old.
fn with_a_private_top(home: &Home) -> (u32, i64, i64) {
    home.write("tree/file", bytes(1, 3_000_001));
    home.write("tree/below/file", "x\n");
    chmod(home, "tree", 0o3710);
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::open(home.path("tree")).unwrap().set_modified(old).unwrap();
    // All that a source may say but for who others are while one of its files is run.
    (0o1710, 1_000_000_000, 123_456_789)
}

#[test]
fn a_copy_that_goes_on_later_gives_its_folder_mode_and_time_too() {
    let home = Home::new();
    with_a_private_top(&home);
    home.write("tree/more", bytes(2, 12 << 20));
    chmod(&home, "tree", 0o755);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let child = home.swath(["cp", "--limit-rate", "1500k", &server.url, "copy"]).start();
    until("some of it is there", || home.exists("copy.swath.part/file"));
    assert_eq!(top(&home.path("copy.swath.part")).0, 0o700, "nobody else looks into it before");
    until("it has a journal", || home.exists("copy.swath"));
    child.signal(9);
    drop(child);
    assert!(!home.exists("copy"));
    home.run(["cp", &server.url, "copy"]).code_is(0);
    assert_eq!(top(&home.path("copy")), top(&home.path("tree")));
    assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn a_folder_that_its_owner_may_not_write_into_is_copied_into_again() {
    // The next copy makes its stage in it, and this one looks through it when it removes.
    let Some(home) = Home::of_nobody() else { return };
    home.write("tree/file", "x\n");
    home.hand_over();
    chmod(&home, "tree", 0o550);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    for round in 0..2 {
        home.run(["cp", "--delete", &server.url, "copy"]).code_is(0);
        assert_eq!(top(&home.path("copy")).0, 0o750, "{round}");
        chmod(&home, "tree", 0o750);
        home.write("tree/new", "y\n");
        home.hand_over();
        chmod(&home, "tree", 0o550);
    }
    assert_eq!(home.read("copy/new"), b"y\n");
    chmod(&home, "tree", 0o750);
}
