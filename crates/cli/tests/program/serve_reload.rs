//! `swath serve` and SIGHUP: tokens and certificates change while it runs.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;

use base64::Engine as _;
use swath_model::digest::{Algorithm, Hasher};
use swath_serve::Identity;

use crate::support::serve::Served;
use crate::support::trees::{assert_same, bytes};
use crate::support::{Home, Ran, Running};

fn finished(ran: &Ran) -> serde_json::Value {
    let out = ran.out();
    let line = out.lines().rfind(|line| line.contains("\"finished\"")).unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}:\n{ran}"))
}

/// A copy of which a part is there, at so many bytes a second.
fn under_way(home: &Home, server: &Served, token: &str, rate: &str) -> Running {
    let args = ["cp", &server.url, "copy/", "--bearer-file", token, "--limit-rate", rate];
    let running = home.swath(args).start();
    home.wait_for_bytes("copy.swath.part/wide.bin", 2 << 20);
    running
}

#[test]
fn a_token_that_ends_in_the_middle_ends_the_copy_and_a_new_one_goes_on() {
    // It was read once, at the start: who was to be shut out stayed in until the server was stopped,
    // and with it everybody's transfers.
    for (without, words) in [
        ("other\nnew write\n", "this token is not known here"),
        ("one until=2020-01-01T00:00:00Z\nother\nnew\n", "this token has expired"),
    ] {
        let home = Home::new();
        home.write("tree/wide.bin", bytes(4, 40 << 20));
        home.write("tokens", "one\nother\n");
        for name in ["one", "other", "new"] {
            home.write(name, name);
        }
        let server = home.serve(&["tree", "--plain", "--token-file", "tokens"]);
        // It would take most of a minute: whatever holds this test up, it is still under way.
        let copy = under_way(&home, &server, "one", "1M");
        home.write("tokens", without);
        server.signal(libc::SIGHUP);
        server.says("reloaded: tokens, ");
        let ended = copy.wait();
        ended.code_is(3).says(&[words, "--bearer-file", "the same command resumes"]);
        assert!(!home.exists("copy"));
        let with = |token| home.run(["cp", &server.url, "copy/", "--json", "--bearer-file", token]);
        with("one").code_is(7).says(&[words, "--bearer-file"]);
        let ran = with("new");
        ran.code_is(0);
        assert!(finished(&ran)["resumed_bytes"].as_u64().unwrap() > 1 << 20, "{ran}");
        assert_same(&home.path("tree"), &home.path("copy"));
    }
}

#[test]
fn who_is_not_concerned_notices_nothing_and_bad_files_change_nothing() {
    let home = Home::new();
    home.write("tree/wide.bin", bytes(4, 12 << 20));
    home.write("tokens", "one\n");
    home.write("one", "one");
    home.write("two", "two");
    let server = home.serve(&["tree", "--plain", "--token-file", "tokens"]);
    let copy = under_way(&home, &server, "one", "3M");
    let ls = |token| home.run(["ls", &server.url, "--bearer-file", token]);
    home.write("tokens", "one\ntwo\n");
    server.signal(libc::SIGHUP);
    server.says("reloaded: tokens, 2 tokens\n");
    ls("two").code_is(0);
    home.write("tokens", "one two three\n");
    server.signal(libc::SIGHUP);
    server.says("warning: keeping the old tokens: ");
    std::fs::remove_file(home.path("tokens")).unwrap();
    server.signal(libc::SIGHUP);
    server.says("No such file");
    ls("one").code_is(0);
    ls("two").code_is(0);
    home.write("tokens", "one");
    server.signal(libc::SIGHUP);
    server.says("reloaded: tokens, 1 token\n");
    ls("two").code_is(7).says(&["401", "this token is not known here"]);
    copy.wait().code_is(0);
    assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn who_takes_the_last_token_out_lets_nobody_in() {
    // A file without any left all old ones good: who revoked everything revoked nothing.
    let home = Home::new();
    home.write("tree/small.bin", bytes(4, 1000));
    home.write("tokens", "one\n");
    home.write("one", "one");
    let server = home.serve(&["tree", "--plain", "--token-file", "tokens"]);
    let ls = || home.run(["ls", &server.url, "--bearer-file", "one"]);
    for empty in ["", "# nobody\n"] {
        ls().code_is(0);
        home.write("tokens", empty);
        server.signal(libc::SIGHUP);
        server.says("warning: all tokens are revoked: tokens is empty\n");
        ls().code_is(7).says(&["401", "this token is not known here"]);
        home.run(["ls", &server.url]).code_is(7).says(&["401", "a token is needed here"]);
        home.write("tokens", "one");
        server.signal(libc::SIGHUP);
        server.says("reloaded: tokens, 1 token\n");
    }
}

#[test]
fn a_sender_whose_token_ends_goes_on_with_a_new_one() {
    let home = Home::new();
    home.write("tree/wide.bin", bytes(4, 40 << 20));
    home.write("tokens", "one write\n");
    home.write("one", "one");
    home.write("two", "two");
    std::fs::create_dir(home.path("store")).unwrap();
    let server = home.serve(&["store", "--write", "--plain", "--token-file", "tokens"]);
    let to = server.at("copy/");
    let send = |token: &'static str, more: &'static [&'static str]| {
        let args = ["cp", "tree/", &to, "--json", "--bearer-file", token];
        home.swath(args.iter().chain(more)).start()
    };
    // It would take most of a minute.
    let sending = send("one", &["--limit-rate", "1M"]);
    home.wait_for_bytes("store/copy.swath.part/wide.bin", 2 << 20);
    home.write("tokens", "two\n");
    server.signal(libc::SIGHUP);
    server.says("warning: none of the tokens allows writing");
    // What has begun is brought to its end, and nothing new begins.
    send("one", &[]).wait().code_is(7).says(&["401", "this token is not known here"]);
    send("two", &[]).wait().code_is(5).says(&["403", "this token opens reading alone"]);
    sending.signal(libc::SIGINT);
    sending.wait().code_is(130);
    home.write("tokens", "two write\n");
    server.signal(libc::SIGHUP);
    server.says("reloaded");
    let ran = send("two", &[]).wait();
    ran.code_is(0);
    assert!(finished(&ran)["resumed_bytes"].as_u64().unwrap() > 1 << 20, "{ran}");
    assert_same(&home.path("tree"), &home.path("store/copy"));
}

/// Makes a certificate and its key, in one file; returns the fingerprint.
fn certificate(home: &Home, name: &str) -> String {
    let made = Identity::make_pem(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    home.write(name, &made);
    // That is the digest of what is written in the first of its two parts.
    let base64: String = made.lines().skip(1).take_while(|line| !line.starts_with('-')).collect();
    let der = base64::engine::general_purpose::STANDARD.decode(base64).unwrap();
    let digest = Hasher::digest(Algorithm::Sha256, &der);
    let hex: String = digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha-256:{hex}")
}

#[test]
fn a_new_certificate_is_shown_to_whoever_comes_and_open_transfers_go_on() {
    let home = Home::new();
    home.write("tree/wide.bin", bytes(4, 12 << 20));
    let (old, new) = (certificate(&home, "old.pem"), certificate(&home, "new.pem"));
    let put = |cert: &str, key: &str| {
        std::fs::copy(home.path(cert), home.path("cert.pem")).unwrap();
        std::fs::copy(home.path(key), home.path("key.pem")).unwrap();
    };
    put("old.pem", "old.pem");
    let files = ["--tls-cert", "cert.pem", "--tls-key", "key.pem", "--anonymous"];
    let server = home.serve(&[&["tree"][..], &files].concat());
    // It was printed of those alone that swath had made.
    assert!(server.words.contains(&format!("\nfingerprint  {old}\n")), "{}", server.words);
    let ls = |print: &str| home.run(["ls", &server.url, "--fingerprint", print]);
    let args = ["cp", &server.url, "copy/", "--limit-rate", "3M", "--connections", "1"];
    let copy = home.swath(args.iter().chain(&["--fingerprint", &old])).start();
    home.wait_for_bytes("copy.swath.part/wide.bin", 2 << 20);
    // One file was replaced and not yet the other: they do not belong together.
    put("new.pem", "old.pem");
    server.signal(libc::SIGHUP);
    server.says("warning: keeping the old certificate: ");
    ls(&old).code_is(0);
    put("new.pem", "new.pem");
    server.signal(libc::SIGHUP);
    server.says(&format!("reloaded: cert.pem, fingerprint {new}\n"));
    ls(&new).code_is(0);
    ls(&old).code_is(7);
    copy.wait().code_is(0);
    assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn a_log_that_was_renamed_is_begun_anew() {
    // Nothing but a restart did so: what was noted went on into the file of yesterday.
    let home = Home::new();
    home.write("tree/file", "x");
    home.write("tokens", "one\n");
    home.write("one", "one");
    let args = ["tree", "--plain", "--token-file", "tokens", "--log", "log"];
    let server = home.serve(&args);
    let ask = |name: &str| {
        let request = format!("GET /{name} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        server.raw(request.as_bytes());
    };
    ask("first");
    std::fs::rename(home.path("log"), home.path("log.1")).unwrap();
    ask("second");
    server.signal(libc::SIGHUP);
    server.says("reopened: log\n");
    server.says("reloaded: tokens");
    ask("third");
    let has = |name: &str| String::from_utf8(home.read(name)).unwrap();
    assert!(has("log.1").contains("/first") && has("log.1").contains("/second"));
    assert!(has("log").contains("/third") && !has("log").contains("/second"));
    // Where it cannot be, it goes on.
    std::fs::rename(home.path("log"), home.path("log.2")).unwrap();
    std::fs::create_dir(home.path("log")).unwrap();
    server.signal(libc::SIGHUP);
    server.says("warning: continuing with the old log: cannot write to log: Is a directory");
    ask("fourth");
    assert!(has("log.2").contains("/fourth"));
}

#[test]
fn what_is_missing_in_the_log_is_told_once() {
    // Nobody heard of it.
    let home = Home::new();
    home.write("tree/file", "x");
    home.write("tokens", "one\n");
    std::os::unix::fs::symlink("/dev/full", home.path("log")).unwrap();
    let server = home.serve(&["tree", "--plain", "--token-file", "tokens", "--log", "log"]);
    let ask = || {
        let answer = server.raw(b"GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with(b"HTTP/1.1 401 "));
    };
    (0..3).for_each(|_| ask());
    server.says("warning: cannot write the log log: No space left on ");
    std::fs::remove_file(home.path("log")).unwrap();
    server.signal(libc::SIGHUP);
    // Nothing else was said of it in between.
    server.says("device (os error 28)\nreopened: log\n");
    ask();
    server.says("reloaded: tokens, 1 token\nwriting the log log again: 3 answers not logged\n");
}

#[test]
fn a_service_with_nothing_to_read_again_stays() {
    // It ended, and systemd took that for a good end: after `systemctl reload` there was no server.
    let home = Home::new();
    home.write("tree/file", "x");
    let args = ["--plain", "--anonymous"];
    let mut swath = home.swath(["serve", "--listen", "127.0.0.1:0", "tree"].iter().chain(&args));
    let leave_terminal = || {
        // SAFETY: a plain system call.
        match unsafe { libc::setsid() } < 0 {
            true => Err(std::io::Error::last_os_error()),
            false => Ok(()),
        }
    };
    // SAFETY: nothing but a system call between the fork and the program.
    unsafe { swath.command().pre_exec(leave_terminal) };
    let server = Served::of(swath, &args);
    for _ in 0..2 {
        server.signal(libc::SIGHUP);
        server.says(
            "SIGHUP: nothing to reload: neither --token-file nor --tls-cert nor --log is set",
        );
    }
    home.run(["ls", &server.url]).code_is(0);
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn the_unit_for_systemd_shows_no_token_and_outlives_a_reload() {
    // It had no file of tokens: the one that was made at each start went to the journal.
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/swath-serve.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let of = |name: &str| {
        let mut values = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        values.next().unwrap_or_else(|| panic!("{name} is missing"))
    };
    let (credential, path) = of("LoadCredential").split_once(':').unwrap();
    assert_eq!(of("AssertPathExists"), path, "what is missing is said by name");
    let home = Home::new();
    home.write("tree/file", "x");
    let line = of("ExecStart").replace("$FOLDERS", "tree").replace("%d/", "credentials/");
    let args: Vec<&str> = line.split(' ').skip(2).collect();
    let credential = format!("credentials/{credential}");
    assert!(args.ends_with(&["--token-file", &credential]), "{line}");
    home.run(["serve"].iter().chain(&args)).code_is(6).says(&["cannot read tokens from"]);
    home.write(&credential, "secret-of-the-file\n");
    let server = home.serve(&args);
    assert!(!server.words.contains("token"), "{}", server.words);
    assert!(!server.words.contains("secret-of-the-file"), "{}", server.words);
    server.signal(libc::SIGHUP);
    server.says("reloaded: ");
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn in_a_terminal_with_nothing_to_read_again_it_ends_as_ever() {
    let home = Home::new();
    home.write("tree/file", "x");
    let (server, _terminal) = in_terminal(&home, false, &["--plain", "--anonymous"]);
    server.signal(libc::SIGHUP);
    assert_eq!(server.wait(), None, "the signal ended it");
    let (server, terminal) = in_terminal(&home, false, &["--plain", "--anonymous"]);
    drop(terminal);
    assert_eq!(server.wait(), None, "its terminal did");
}

/// Start the server in a terminal of its own; while the other end of that is kept it is there.
fn in_terminal(home: &Home, is_ignoring: bool, args: &[&str]) -> (Served, File) {
    let open = |path: &str| {
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_NOCTTY).open(path).unwrap()
    };
    let ours = open("/dev/ptmx");
    let (mut number, unlocked): (libc::c_int, libc::c_int) = (0, 0);
    // SAFETY: one is read and the other written, and both are numbers.
    let made = unsafe {
        libc::ioctl(ours.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked)
            | libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTN, &raw mut number)
    };
    assert_eq!(made, 0);
    let theirs = open(&format!("/dev/pts/{number}"));
    let mut swath = home.swath(["serve", "--listen", "127.0.0.1:0", "tree"].iter().chain(args));
    let terminal = theirs.as_raw_fd();
    let enter = move || {
        // SAFETY: plain system calls.
        unsafe {
            if is_ignoring {
                libc::signal(libc::SIGHUP, libc::SIG_IGN);
            }
            match libc::setsid() < 0 || libc::ioctl(terminal, libc::TIOCSCTTY, 0) < 0 {
                true => Err(std::io::Error::last_os_error()),
                false => Ok(()),
            }
        }
    };
    // SAFETY: nothing but system calls between the fork and the program.
    unsafe { swath.command().pre_exec(enter) };
    (Served::of(swath, args), ours)
}

#[test]
fn it_ends_with_its_terminal_and_not_because_of_a_signal() {
    let home = Home::new();
    home.write("tree/file", "x");
    home.write("tokens", "one\n");
    let args = ["--plain", "--token-file", "tokens"];
    let (server, terminal) = in_terminal(&home, false, &args);
    server.signal(libc::SIGHUP);
    server.says("reloaded: tokens, 1 token\n");
    drop(terminal);
    assert_eq!(server.wait(), Some(0));
    // As by nohup: it is to stay.
    let (server, terminal) = in_terminal(&home, true, &args);
    drop(terminal);
    server.says("reloaded: tokens, 1 token\n");
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait(), Some(0));
}
