//! `swath cp` by ssh where a login shell, or what sshd runs in its place, does not do what it should:
//! a real sshd on the loopback interface runs scripts in its place.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::ssh::{RUN, Shelled, own_folder, shelled, succeeds, wait_for_none};
use crate::support::trees::{assert_same, bytes, plant};

/// Copies the tree from there, with what this command is given besides.
fn cp(home: &Home, far: &Shelled, host: &str, more: &[&str]) -> crate::support::Swath {
    let there = format!("{host}:{}/", home.path("tree").display());
    let args = [&["cp", "--ssh", &far.machine.ssh], more, &[&there, "copy"]].concat();
    home.swath(args).env("PATH", "/usr/bin:/bin")
}

#[test]
fn what_a_login_shell_prints_is_skipped() {
    // A profile with `echo Welcome` made every copy fail: "swath serve does not start".
    let home = Home::new();
    let Some(far) = shelled(&home, &own_folder(), "") else { return };
    plant(&home);
    for noise in [
        "echo Welcome",
        "printf 'me@far $ '",
        "printf '\\033[1mbold\\n{\"swath\": no\\n> '",
        "head -c 400000 /dev/zero | tr '\\0' x",
    ] {
        far.becomes(&format!("{noise}\n{RUN}"));
        for more in [&[][..], &["--bootstrap"]] {
            cp(&home, &far, "box", more).run().code_is(0).never_says(&["Welcome", "xxx", "bold"]);
            assert_same(&home.path("tree"), &home.path("copy"));
            fs::remove_dir_all(home.path("copy")).unwrap();
        }
    }
}

#[test]
fn and_where_each_connection_goes_through_ssh() {
    let home = Home::new();
    let Some(far) = shelled(&home, &own_folder(), "AllowTcpForwarding no\n") else { return };
    if !succeeds(Command::new("sh").args(["-c", "command -v nc"])) {
        println!("skipped: there is no nc");
        return;
    }
    plant(&home);
    far.becomes(&format!("printf 'Welcome\\n$ '\n{RUN}"));
    cp(&home, &far, "behind", &[]).run().code_is(0).says(&["forbids forwarding"]);
    assert_same(&home.path("tree"), &home.path("copy"));
    wait_for_none(&home);
}

#[test]
fn a_shell_that_prints_for_ever_is_not_read_for_ever() {
    // `yes` in the place of the shell: 5.5 GB of memory after 20 s, and no end.
    let home = Home::new();
    let Some(far) = shelled(&home, &own_folder(), "") else { return };
    plant(&home);
    for noise in ["exec yes", "exec cat /dev/zero", "exec yes ''"] {
        far.becomes(noise);
        for more in [&[][..], &["--bootstrap"]] {
            let ran = cp(&home, &far, "box", more).run();
            ran.code_is(7).says(&["box: its shell printed more than 1.05 MB", "echo ok"]);
            assert!(ran.stderr.len() < 1000, "{ran}");
        }
    }
    wait_for_none(&home);
}

#[test]
fn an_account_that_runs_no_commands_is_called_that() {
    let home = Home::new();
    let Some(far) = shelled(&home, &own_folder(), "") else { return };
    plant(&home);
    far.becomes("echo 'This account is currently not available.'; exit 1");
    for more in [&[][..], &["--bootstrap"]] {
        cp(&home, &far, "box", more)
            .run()
            .code_is(7)
            .says(&[
                "box: its shell does not run commands (exit code 1); its output: This account is currently not available.",
                "nologin",
            ])
            .never_says(&["another kind", "does not start"]);
    }
    // Some show what they refuse, with words of ours in it.
    far.becomes("echo \"not allowed: $SSH_ORIGINAL_COMMAND\"; exit 1");
    for more in [&[][..], &["--bootstrap"]] {
        let ran = cp(&home, &far, "box", more).run();
        ran.code_is(7).says(&["its shell does not run commands (exit code", "not allowed: "]);
    }
    // What is another machine is still called that.
    far.becomes("echo swath-begins; echo swath-is on Plan9 mips");
    let ran = cp(&home, &far, "box", &["--bootstrap"]).run();
    ran.code_is(7).says(&["a different machine type (Plan9 mips): install swath there by hand"]);
}

#[test]
fn silence_after_the_login_has_an_end() {
    // It waited for ever, as for somebody who types a password.
    let home = Home::new();
    let Some(far) = shelled(&home, &own_folder(), "") else { return };
    plant(&home);
    let serves_nothing = format!("echo swath-begins\n{SILENT}");
    let prompts = format!("printf 'Accept the terms? '\n{SILENT}");
    for (shell, says) in [
        (
            SILENT,
            &[
                "ssh logged in, but the shell did not run the command within",
                "ssh logged in, but the shell did not run the command within 8 s",
                "ForceCommand",
            ][..],
        ),
        (
            prompts.as_str(),
            &[
                "ssh logged in, but the shell did not run the command within 8 s; its output: Accept the terms?",
            ],
        ),
        (serves_nothing.as_str(), &[" did not answer within 8 s"]),
    ] {
        far.becomes(shell);
        for more in [&["--timeout", "8"][..], &["--timeout", "8", "--bootstrap"]] {
            cp(&home, &far, "box", more).run().code_is(7).says(says);
        }
    }
    // Drop by drop it is no answer either.
    far.becomes("while sleep 0.1; do echo .; done");
    cp(&home, &far, "box", &["--timeout", "8"])
        .run()
        .code_is(7)
        .says(&["ssh logged in, but the shell did not run the command within 8 s"]);
    // Neither does it wait for ever for a server that takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let ssh = format!("{} -p {port}", far.machine.ssh);
    let there = format!("box:{}/", home.path("tree").display());
    let ran = home.swath(["cp", "--timeout", "8", "--ssh", &ssh, &there, "copy"]);
    ran.env("PATH", "/usr/bin:/bin").run().code_is(7).says(&["ssh could not connect"]);
    far.becomes(SILENT);
    let ls = home.swath(["ls", "--timeout", "8", "--ssh", &far.machine.ssh, &there]);
    ls.env("PATH", "/usr/bin:/bin")
        .run()
        .code_is(7)
        .says(&["ssh logged in, but the shell did not run the command within 8 s"]);
}

#[test]
fn who_shares_a_connection_is_in_already() {
    let home = Home::new();
    let Some(mut far) = shelled(&home, &own_folder(), "") else { return };
    plant(&home);
    let socket = home.home().join("s");
    far.machine.ssh += &format!(" -o ControlPath={}", socket.display());
    let words: Vec<&str> = far.machine.ssh.split(' ').collect();
    let mut master = Command::new(words[0]).args(&words[1..]).args(["-MN", "box"]).spawn().unwrap();
    let began = Instant::now();
    while !socket.exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "no connection to share");
        std::thread::sleep(Duration::from_millis(20));
    }
    cp(&home, &far, "box", &[]).run().code_is(0);
    far.becomes(SILENT);
    let ran = cp(&home, &far, "box", &["--timeout", "2"]).run();
    master.kill().unwrap();
    master.wait().unwrap();
    ran.code_is(7).says(&["ssh logged in, but the shell did not run the command within 2 s"]);
}

#[test]
fn the_users_own_command_for_logins_still_runs() {
    let home = Home::new();
    let Some(mut far) = shelled(&home, &own_folder(), "") else { return };
    plant(&home);
    let config = home.home().join("ssh_config");
    let made = home.path("made").display().to_string();
    let all = fs::read_to_string(&config).unwrap();
    let own = format!("PermitLocalCommand yes\nLocalCommand echo hello; touch {made}-%n\n");
    fs::write(&config, own + &all).unwrap();
    cp(&home, &far, "box", &[]).run().code_is(0);
    assert!(home.exists("made-box"), "{:?}", home.names());
    // Something that takes ssh's place need not know its options.
    let other = home.home().join("other");
    let script = "case $* in *' -o '*|*' -G '*|'-G '*) echo 'bad option' >&2; exit 2;; esac";
    let run = "while [ $1 != localhost ]; do shift; done; shift\nexec sh -c \"$*\"";
    fs::write(&other, format!("{script}\n{run}\n")).unwrap();
    far.machine.ssh = format!("sh {}", other.display());
    let path = format!("{}:/usr/bin:/bin", own_folder());
    let ran = cp(&home, &far, "localhost", &["--checksum"]).env("PATH", path).run();
    ran.code_is(0).never_says(&["bad option"]);
}

#[test]
fn nothing_stays_there_after_a_kill() {
    let home = Home::new();
    let Some(far) = shelled(&home, &own_folder(), "") else { return };
    home.write("tree/wide.bin", bytes(3, 40 << 20));
    let copy = cp(&home, &far, "box", &["--limit-rate", "4M"]).start();
    home.wait_for_bytes("copy.swath.part/wide.bin", 1 << 20);
    copy.signal(libc::SIGKILL);
    copy.wait().code_is(137);
    wait_for_none(&home);
}

#[test]
fn half_of_the_program_does_not_become_the_program_there() {
    // Killed while it was put there, what had come by then was taken for the program ever after.
    let home = Home::new();
    let tools = home.home().join("tools");
    let Some(far) = shelled(&home, &tools.display().to_string(), "") else { return };
    plant(&home);
    let put = home.home().join("far/.cache/swath");
    let names = || {
        let names = fs::read_dir(&put).into_iter().flatten();
        names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    // It writes a part, and the rest nowhere.
    let (cat, goes_on) = (tools.join("cat"), home.home().join("goes-on"));
    fs::create_dir(&tools).unwrap();
    let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", goes_on.display());
    fs::write(&cat, format!("#!/bin/sh\nhead -c 1000\n{wait}\nexec /bin/cat >/dev/null\n"))
        .unwrap();
    fs::set_permissions(&cat, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = cp(&home, &far, "box", &["--bootstrap"]).start();
    let began = Instant::now();
    while names().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is put there");
        std::thread::sleep(Duration::from_millis(10));
    }
    copy.signal(libc::SIGKILL);
    fs::write(&goes_on, "").unwrap();
    copy.wait().code_is(137);
    while !names().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", names());
        std::thread::sleep(Duration::from_millis(10));
    }
    // Where something takes its bytes away, it is said that it is not there.
    let ran = cp(&home, &far, "box", &["--bootstrap"]).run();
    ran.code_is(7).says(&["cannot copy this program: box: "]);
    fs::remove_file(&cat).unwrap();
    cp(&home, &far, "box", &["--bootstrap"]).run().code_is(0).says(&["copied this program to"]);
    assert_same(&home.path("tree"), &home.path("copy"));
    assert_eq!(names().len(), 1, "{:?}", names());
}

/// What answers nothing, and ends with the connection.
const SILENT: &str = "exec cat >/dev/null";
