//! What users of other programs type, and what surroundings a program has to expect.

use std::os::unix::process::CommandExt as _;

use swath_netlab::faulty::Content;

use super::support::Home;
use super::support::net::{honest, url};
use super::support::pty::OnTerminal;

#[test]
fn options_of_curl_wget_aria2_and_rsync_mean_the_same_here() {
    let (home, content) = (Home::new(), Content::random(7, 300_000));
    let server = honest(&content);
    let from = url(&server);
    for (name, args) in [
        ("curl", &["-O", "-C", "-", "-H", "X-Test: 1"][..]),
        ("wget", &["-c"]),
        ("aria2", &["-x", "4", "-s", "4"]),
        ("progress", &["--progress", "-L"]),
    ] {
        let all = [&["get", from.as_str(), "-d", name], args].concat();
        home.run(all).code_is(0);
    }
    home.run(["get", &from, "-d", "rsync", "-z"]).code_is(0).says(&["-z has no effect: swath does not compress, because for most data compression is slower than the network"]);
    home.write("from/a", b"x");
    home.run(["cp", "-azP", "from/", "to/"]).code_is(0).says(&["-z has no effect: swath does not compress, because for most data compression is slower than the network"]);
    assert_eq!(home.read("to/a"), b"x");
    home.run(["cp", "-n", "from/", "other/"]).code_is(0);
    assert!(!home.exists("other"));
}

#[test]
fn what_was_meant_is_said_and_no_hidden_option_is_offered() {
    let home = Home::new();
    home.write("folder/a", b"x");
    for (args, words) in [
        (&["gte", "http://h/f"][..], "did you mean 'swath get'?"),
        (&["verfy", "f"], "did you mean 'swath verify'?"),
        (&["download", "http://h/f"], "did you mean 'swath get'?"),
        (&["http://u:secret@h/f?key=secret"], "'swath get http://h/f'"),
        (&["get", "--checksum", "sha-256:00", "http://h/f"], "--digest ALGORITHM:HEX"),
        (&["get", "--cacert", "f", "http://h/f"], "--ca FILE"),
        (&["get", "localhost:8000/file"], "did you mean http://localhost:8000/file?"),
        (&["get", "data.example:8470/run7"], "did you mean https://data.example:8470/run7?"),
        (&["get", "http://h/f", "-o", "folder"], " is a folder: use -d folder to write into it"),
    ] {
        let ran = home.run(args);
        ran.says(&[words]).never_says(&["--resume", "secret"]);
        assert!([2, 6].contains(&ran.code()), "{args:?}: {ran}");
    }
}

#[test]
fn sizes_for_people_are_asked_for_by_h() {
    let home = Home::new();
    home.write("data/a", b"x");
    let served = home.serve(&["data", "--anonymous", "--plain"]);
    for (args, words) in [
        (&["du", "-h", &served.url][..], "1 B"),
        (&["ls", "-lh", &served.url], "1 B"),
        (&["ls", "--help"], "Usage: swath ls"),
    ] {
        let ran = home.run(args);
        ran.code_is(0);
        assert!(ran.out().contains(words), "{ran}");
    }
}

/// The runtime opens /dev/null in the place of a closed descriptor: exit 0, and all bytes lost.
#[test]
fn what_belongs_on_a_closed_standard_output_is_an_error() {
    let (home, content) = (Home::new(), Content::random(7, 300_000));
    let server = honest(&content);
    let from = url(&server);
    home.write("data/a", b"x");
    let served = home.serve(&["data", "--anonymous", "--plain"]);
    for args in [
        &["get", &from, "-o", "-", "-q"][..],
        &["get", &from, "--json"],
        &["cp", "data/", "to/", "--json"],
        &["ls", &served.url],
        &["du", &served.url],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["--version"],
    ] {
        let mut swath = home.swath(args);
        let closes = || {
            // SAFETY: a plain system call.
            unsafe { libc::close(libc::STDOUT_FILENO) };
            Ok(())
        };
        // SAFETY: nothing but a system call between the fork and the program.
        unsafe { swath.command().pre_exec(closes) };
        let ran = swath.run();
        ran.code_is(5).says(&["standard output: it is closed"]);
    }
    // What is written elsewhere does not need it.
    let mut swath = home.swath(["get", &from, "-o", "file", "-q"]);
    let closes = || {
        // SAFETY: a plain system call.
        unsafe { libc::close(libc::STDOUT_FILENO) };
        Ok(())
    };
    // SAFETY: nothing but a system call between the fork and the program.
    unsafe { swath.command().pre_exec(closes) };
    swath.run().code_is(0);
    home.holds("file", &content);
}

/// A copy here waited half a minute for itself, and named an address that nobody had given.
#[test]
fn too_few_open_files_are_said_at_once() {
    let home = Home::new();
    home.write("from/a", "a");
    let mut swath = home.swath(["cp", "from/", "to/"]);
    let limited = || {
        let limit = libc::rlimit { rlim_cur: 14, rlim_max: 14 };
        // SAFETY: a plain system call.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        Ok(())
    };
    // SAFETY: nothing but a system call between the fork and the program.
    unsafe { swath.command().pre_exec(limited) };
    swath.run().code_is(1).says(&["32 open files are needed, and 14 are allowed", "ulimit -n"]);
    assert!(!home.exists("to"));
}

/// All was well, and whoever reads the events had none.
#[test]
fn events_that_cannot_be_written_are_an_error() {
    let (home, content) = (Home::new(), Content::random(8, 300_000));
    let server = honest(&content);
    for args in [["get", "-o", "file"], ["cp", "--compare", "none"]] {
        let mut swath = home.swath(args).arg("--json").arg(url(&server));
        if args[0] == "cp" {
            swath = swath.arg("copy");
        }
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        swath.command().stdout(full);
        swath.run().code_is(5).says(&["cannot write events any more"]);
    }
    home.holds("file", &content);
    home.holds("copy", &content);
}

/// `swath --help > FILE` on a full disk ended with 0 and an empty file.
#[test]
fn help_that_cannot_be_written_is_an_error() {
    let home = Home::new();
    for asked in [&["--help"][..], &["--version"], &["get", "--help"]] {
        let mut swath = home.swath(asked);
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        swath.command().stdout(full);
        swath.run().code_is(5).says(&["cannot write to standard output"]);
    }
}

#[test]
fn a_file_is_not_written_to_a_terminal_unless_that_is_wanted() {
    let (home, content) = (Home::new(), Content::random(7, 3000));
    let server = honest(&content);
    let from = url(&server);
    let (code, shown) = OnTerminal::start(home.swath(["get", &from, "-o", "-"])).wait();
    assert!(
        code == 2 && shown.contains("use -o FILE, or a pipe, or --force-terminal"),
        "{code}: {shown}"
    );
    let forced = home.swath(["get", &from, "-o", "-", "-q", "--force-terminal"]);
    assert_eq!(OnTerminal::start(forced).wait().0, 0);
}

/// `TERM=` is set by programs that know of no terminal: it was taken for one with all sequences.
#[test]
fn a_terminal_of_unknown_kind_gets_no_control_sequences() {
    let (home, content) = (Home::new(), Content::random(7, 300_000));
    let server = honest(&content);
    for term in ["", "dumb"] {
        let swath = home.swath(["get", &url(&server), "--overwrite"]);
        let (code, shown) = OnTerminal::start_as(swath, term).wait();
        assert!(code == 0 && !shown.contains('\x1b'), "TERM={term}: {code}: {shown:?}");
    }
}

/// On shared machines threads are limited: the runtime panicked, and with two it never ended.
#[test]
fn too_few_threads_are_one_sentence_and_an_end() {
    // SAFETY: a plain system call.
    if unsafe { libc::getuid() } != 0 {
        println!("skipped: other users than root have processes of which the number is not known");
        return;
    }
    let content = Content::random(7, 300_000);
    let server = honest(&content);
    for limit in [1, 2, 3, 5, 8] {
        let home = Home::new();
        let home_of_nobody = Home::of_nobody();
        let Some(home) = home_of_nobody.or(Some(home)) else { continue };
        let mut swath = home.swath(["get", &url(&server), "-q"]);
        let limits = move || {
            let few = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            // SAFETY: plain system calls; the limit is looked at when the user changes or forks.
            unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const few) };
            Ok(())
        };
        // SAFETY: nothing but a system call between the fork and the program.
        unsafe { swath.command().pre_exec(limits) };
        let ran = swath.run();
        ran.never_says(&["panicked"]);
        assert!([0, 1].contains(&ran.code()), "{limit}: {ran}");
        if ran.code() == 1 {
            ran.says(&["cannot start a thread", "ulimit -u"]);
        }
    }
}
