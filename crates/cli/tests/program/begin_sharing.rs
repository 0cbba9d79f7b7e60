//! From `swath serve` on one machine to a copy on another, without a failed try.

use std::os::unix::fs::PermissionsExt as _;

use super::support::Home;
use super::support::pty::OnTerminal;
use super::support::serve::{Served, reserved_address};

/// The address, fingerprint and token had to be put together by hand, which took four tries.
#[test]
fn what_serve_prints_on_a_terminal_copies_when_it_is_pasted() {
    let home = Home::new();
    home.write("run 7/a.h5", b"some bytes");
    let serve = home.swath(["serve", "--listen", "127.0.0.1:0", "run 7"]);
    let serve = OnTerminal::start(serve);
    let shown = serve.wait_for("#token=");
    let command = shown.lines().find(|line| line.trim().starts_with("swath cp ")).unwrap();
    let words = command.trim().replace("\"./run 7/\"", "./run_7/");
    let words: Vec<&str> = words.split(' ').skip(1).collect();
    let other = Home::new();
    other.run(&words).code_is(0);
    assert_eq!(other.read("run_7/a.h5"), b"some bytes");

    let link = shown.lines().find(|line| line.contains("swath://")).unwrap();
    let link = link.trim().trim_matches('\'');
    other.run(["cp", link, "./by-link/"]).code_is(0);
    assert_eq!(other.read("by-link/a.h5"), b"some bytes");
    // What serve prints is a folder, and 'get' said that it has no name.
    other.run(["get", link, "-d", "by-get"]).code_is(0).says(&["leads to a folder"]);
    let host = link["swath://".len()..].rsplit_once("/#").unwrap().0.rsplit_once(':').unwrap().0;
    assert_eq!(other.read(&format!("by-get/{host}/a.h5")), b"some bytes");
    let file = link.replacen("/#", "/a.h5#", 1);
    let report = other.path("report.html");
    let report = report.to_str().unwrap();
    let ran = other.run(["get", &file, "--report", report, "--json"]);
    ran.code_is(0);
    let secret = link.split("token=").nth(1).unwrap().split('&').next().unwrap();
    assert!(!secret.is_empty() && !ran.all().contains(secret), "{}", ran.all());
    let kept = String::from_utf8_lossy(&other.read("report.html")).into_owned();
    assert!(!kept.contains(secret), "the report holds the token");
    for command in ["ls", "du"] {
        let ran = other.run([command, link]);
        ran.code_is(0);
        assert!(ran.out().contains("10 B") || ran.out().contains("a.h5"), "{ran}");
    }
}

/// A token in a file of the log of a service can be read by others.
#[test]
fn nothing_to_paste_and_no_code_go_into_a_pipe() {
    let home = Home::new();
    home.write("data/a", b"x");
    let served = home.serve(&["data"]);
    assert!(!served.words.contains("swath cp") && !served.words.contains("swath://"));
    home.run(["serve", "--listen", "127.0.0.1:0", "--qr", "data"])
        .code_is(2)
        .says(&["--qr: standard output is not a terminal, and the code contains the token"]);
}

#[test]
fn a_code_for_cameras_is_shown_on_request() {
    let home = Home::new();
    home.write("data/a", b"x");
    let serve = home.swath(["serve", "--listen", "127.0.0.1:0", "--qr", "data"]);
    let serve = OnTerminal::start(serve);
    let shown = serve.wait_for(" \x1b[0m\n");
    assert!(shown.contains("\x1b[30;107m") && shown.contains('\u{2588}'), "{shown}");
}

/// After each start of the server everybody needed a new fingerprint and a new token.
#[test]
fn certificate_and_token_last_until_new_ones_are_wanted() {
    let home = Home::new();
    home.write("data/a", b"x");
    home.write("more/b", b"y");
    let state = home.path("state");
    let serve = |args: &[&str]| {
        let all = ["serve", "--listen", "127.0.0.1:0"].iter().chain(args);
        let swath = home.swath(all).env("XDG_STATE_HOME", &state);
        let served = Served::of(swath, args);
        let print = served.words.lines().find(|line| line.starts_with("fingerprint ")).unwrap();
        (print.to_owned(), served.token().to_owned())
    };
    let first = serve(&["data"]);
    assert_eq!(serve(&["data"]), first);
    // Another folder is not opened by it, nor is writing.
    let more = serve(&["more"]);
    assert!(more.0 == first.0 && more.1 != first.1);
    assert!(serve(&["data", "--write"]).1 != first.1);
    let new = serve(&["data", "--new-identity"]);
    assert!(new.0 != first.0 && new.1 != first.1);
    assert_eq!(serve(&["data"]), new);

    let kept = std::fs::read_dir(state.join("swath/serve")).unwrap();
    let modes: Vec<u32> =
        kept.map(|file| file.unwrap().metadata().unwrap().permissions().mode() & 0o777).collect();
    assert!(modes.len() >= 4 && modes.iter().all(|mode| *mode == 0o600), "{modes:?}");
    // What others could have read is not used.
    let identity = state.join("swath/serve/identity.pem");
    std::fs::set_permissions(&identity, std::fs::Permissions::from_mode(0o644)).unwrap();
    home.swath(["serve", "--listen", "127.0.0.1:0", "data"])
        .env("XDG_STATE_HOME", &state)
        .run()
        .code_is(6)
        .says(&["other users can read or change it (mode", "--new-identity"]);
}

/// As ssh does it: a question on a terminal, and no question anywhere else.
#[test]
fn a_server_is_trusted_on_first_use_only_by_whoever_says_so() {
    let home = Home::new();
    home.write("data/a", b"some bytes");
    let state = home.path("state");
    let args = ["data", "--anonymous"];
    let serve = |address: &str, more: &[&str]| {
        let all =
            ["serve", "--listen", address].into_iter().chain(args).chain(more.iter().copied());
        let swath = home.swath(all).env("XDG_STATE_HOME", &state);
        Served::of(swath, &args)
    };
    let address = reserved_address();
    let served = serve(&address, &[]);
    let url = served.at("a");
    let user = Home::new();
    let listed = user.home().join(".local/state/swath/known_servers");
    user.run(["get", &url]).code_is(7).never_says(&["Trust this server"]);
    assert!(!listed.exists());

    let mut refuses = OnTerminal::start(user.swath(["get", &url]));
    refuses.wait_for("Trust this server");
    refuses.types("no\n");
    assert_eq!(refuses.wait().0, 7);
    assert!(!listed.exists());

    let mut trusts = OnTerminal::start(user.swath(["get", &url]));
    trusts.wait_for("Trust this server");
    trusts.types("yes\n");
    let (code, shown) = trusts.wait();
    assert_eq!(code, 0, "{shown}");
    assert_eq!(user.read("a"), b"some bytes");
    let lines = std::fs::read_to_string(&listed).unwrap();
    assert!(lines.starts_with(&format!("{address} sha-256:")), "{lines}");
    // From now on without a terminal, too.
    user.run(["get", &url, "-o", "again"]).code_is(0);

    served.signal(libc::SIGTERM);
    served.wait();
    let served = serve(&address, &["--new-identity"]);
    user.run(["get", &url, "-o", "third"]).code_is(7).says(&[
        "HAS CHANGED",
        "HAS CHANGED and is not trusted. Someone may be intercepting the connection, or the server has a new identity (swath serve --new-identity",
        "remove the line of",
    ]);
    assert!(!user.exists("third"));
    drop(served);
}
