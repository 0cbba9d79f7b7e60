//! `swath cp` by ssh, with a real sshd on the loopback interface.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use crate::support::Home;
use crate::support::ssh::{machine, machine_with, own_folder, succeeds, wait_for_none};
use crate::support::trees::{assert_same, bytes, plant, top};
use crate::support::xattrs;

#[test]
fn both_ways_with_nothing_running_there() {
    let home = Home::new();
    let Some(machine) = machine(&home, &own_folder()) else { return };
    plant(&home);
    let far = home.path("far");
    fs::create_dir(&far).unwrap();
    let cp = |from: &str, to: &str| {
        home.swath(["cp", from, to])
            .env("SWATH_SSH", &machine.ssh)
            .env("PATH", "/usr/bin:/bin")
            .run()
    };
    let there = format!("box:{}/new/", far.display());
    fs::set_permissions(home.path("tree"), fs::Permissions::from_mode(0o710)).unwrap();
    cp("tree/", &there).code_is(0).says(&["308 files"]);
    assert_same(&home.path("tree"), &home.path("far/new"));
    cp(&there, "back").code_is(0);
    assert_same(&home.path("tree"), &home.path("back"));
    for copy in ["far/new", "back"] {
        assert_eq!(top(&home.path(copy)), top(&home.path("tree")), "{copy}");
    }
    // The folder itself, into one that is there.
    cp("tree", &format!("box:{}/", far.display())).code_is(0);
    assert_same(&home.path("tree"), &home.path("far/tree"));
    cp(&format!("box:{}/far/tree", home.work().display()), "here").code_is(0);
    assert_same(&home.path("tree"), &home.path("here/tree"));
    // Folders above it are made, as they are here.
    cp("tree/", &format!("box:{}/a/b c/d/", far.display())).code_is(0);
    assert_same(&home.path("tree"), &home.path("far/a/b c/d"));
    cp("tree/", &format!("box:{}/new/empty/x/", far.display()))
        .code_is(7)
        .says(&["is not a folder"]);
    // Extended attributes go both ways too.
    if xattrs::set(&home.path("tree/large.bin"), "user.run", b"7") {
        let with = |from: &str, to: &str| {
            home.swath(["cp", "--preserve", "mode,times,xattr", "--ssh", &machine.ssh, from, to])
                .env("PATH", "/usr/bin:/bin")
                .run()
        };
        with("tree/", &there).code_is(0).says(&["308 of the files already up to date)"]);
        with(&there, "again").code_is(0);
        let all = xattrs::all(&home.path("again/large.bin"));
        assert_eq!(all, [("user.run".to_owned(), b"7".to_vec())]);
    }
    // Nothing stays behind there.
    wait_for_none(&home);
}

#[test]
fn single_files_go_both_ways() {
    let home = Home::new();
    let Some(machine) = machine(&home, &own_folder()) else { return };
    home.write("it's one.bin", bytes(1, 3_000_001));
    home.write("two", "");
    fs::set_permissions(home.path("it's one.bin"), fs::Permissions::from_mode(0o741)).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    for name in ["it's one.bin", "two"] {
        fs::File::options().append(true).open(home.path(name)).unwrap().set_modified(old).unwrap();
    }
    std::os::unix::fs::symlink("it's one.bin", home.path("link")).unwrap();
    fs::create_dir_all(home.path("far/is there")).unwrap();
    let far = home.path("far").display().to_string();
    let cp = |args: &[&str]| {
        let ran = home.swath(["cp"].iter().chain(args)).env("SWATH_SSH", &machine.ssh);
        ran.env("PATH", "/usr/bin:/bin").run()
    };
    let same = |name: &str, copy: &str| {
        let (name, copy) = (home.path(name), home.path(copy));
        assert!(fs::read(&name).unwrap() == fs::read(&copy).unwrap(), "{copy:?}");
        let (name, copy) = (name.metadata().unwrap(), copy.symlink_metadata().unwrap());
        assert!(copy.is_file(), "{copy:?}");
        assert_eq!(name.modified().unwrap(), copy.modified().unwrap());
        assert_eq!(name.permissions(), copy.permissions());
    };
    // Into a folder that is there, by its name alone too, or that is not; or under a name.
    for (to, lands) in [
        ("is there", "is there/it's one.bin"),
        ("is there/", "is there/it's one.bin"),
        ("new/", "new/it's one.bin"),
        ("other", "other"),
        ("is there/other", "is there/other"),
        ("link", "link"),
    ] {
        let there = format!("box:{far}/{to}");
        let place = home.path("far").join(lands);
        if place.symlink_metadata().is_ok_and(|found| found.is_file()) {
            // From the time before.
            fs::remove_file(place).unwrap();
        }
        cp(&["it's one.bin", &there]).code_is(0).says(&[
            " from it's one.bin\n",
            ": 3.00 MB in ",
            "1 file",
        ]);
        same("it's one.bin", &format!("far/{lands}"));
        // It is seen that it is there.
        let again = cp(&["it's one.bin", &format!("box:{far}/{to}")]);
        again.code_is(0).says(&["nothing to copy: 1 file is the same by size and time"]);
    }
    // What has the name is replaced.
    home.write("it's one.bin", bytes(2, 700_001));
    cp(&["it's one.bin", &format!("box:{far}/other")]).code_is(0);
    same("it's one.bin", "far/other");
    cp(&["it's one.bin", "two", "link", &format!("box:{far}/several")]).code_is(0);
    for (name, lands) in [("it's one.bin", "it's one.bin"), ("two", "two"), ("link", "link")] {
        same(name, &format!("far/several/{lands}"));
    }
    // And back.
    fs::create_dir(home.path("here")).unwrap();
    for (to, lands) in [
        ("here", "here/it's one.bin"),
        ("new/", "new/it's one.bin"),
        ("here/other", "here/other"),
        ("other", "other"),
    ] {
        cp(&[&format!("box:{far}/several/it's one.bin"), to]).code_is(0);
        same("it's one.bin", lands);
    }
    let (one, two) = (format!("box:{far}/several/link"), format!("box:{far}/several/two"));
    cp(&[&one, &two, "both"]).code_is(0);
    same("it's one.bin", "both/link");
    same("two", "both/two");
    assert_eq!(home.names_in("both"), ["link", "two"]);
    assert_eq!(home.names_in("far"), ["is there", "link", "new", "other", "several"]);
    assert_eq!(home.names_in("far/is there"), ["it's one.bin", "other"]);
    // What is for folders is refused, also where only the other side knows that it is a file.
    cp(&[&one, "here", "--delete"]).code_is(2).says(&["are for folders"]);
    cp(&[&one, "here", "--dry-run"]).code_is(0);
    cp(&[&format!("box:{far}/none"), "here"]).code_is(7).says(&["No such file"]);
    cp(&["two", &format!("box:{far}/none/of/it")]).code_is(0);
    same("two", "far/none/of/it");
    cp(&["two", &format!("box:{far}/other/it")]).code_is(7).says(&["other is not a folder"]);
    assert_eq!(home.names_in("here"), ["it's one.bin", "other"]);
}

#[test]
fn a_single_file_that_was_cut_short_goes_on_by_ssh() {
    let home = Home::new();
    let Some(machine) = machine(&home, &own_folder()) else { return };
    home.write("wide.bin", bytes(9, 40 << 20));
    fs::create_dir(home.path("far")).unwrap();
    let far = home.path("far").display().to_string();
    let cp = |from: &str, to: &str, more: &[&str]| {
        let ran = home.swath(["cp", "--json", from, to].iter().chain(more));
        ran.env("SWATH_SSH", &machine.ssh).env("PATH", "/usr/bin:/bin").start()
    };
    let there = format!("box:{far}/copy.bin");
    for (from, to, part) in [
        ("wide.bin", there.as_str(), "far/.swath-stage.swath.copy.bin.swath.part/copy.bin"),
        (there.as_str(), "back.bin", ".swath-stage.swath.back.bin.swath.part/back.bin"),
    ] {
        let first = cp(from, to, &["--limit-rate", "10M"]);
        home.wait_for_bytes(part, 8 << 20);
        first.signal(libc::SIGINT);
        first.wait().code_is(130);
        let ran = cp(from, to, &[]).wait();
        ran.code_is(0);
        let out = ran.out();
        let end: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        assert!(end["resumed_bytes"].as_u64().unwrap() > 1 << 20, "{end}");
    }
    assert!(home.read("back.bin") == home.read("wide.bin"));
    assert_eq!(home.names(), ["back.bin", "far", "wide.bin"]);
    assert_eq!(home.names_in("far"), ["copy.bin"]);
}

#[test]
fn ls_and_du_look_there_too() {
    let home = Home::new();
    let Some(machine) = machine(&home, &own_folder()) else { return };
    home.write("far/sub/one.bin", bytes(1, 1234));
    home.write("far/two", "two\n");
    let far = home.path("far").display().to_string();
    let look = |args: &[&str]| {
        let ran = home.swath(args).env("SWATH_SSH", &machine.ssh).env("PATH", "/usr/bin:/bin");
        ran.run()
    };
    for place in [format!("box:{far}/"), format!("box:{far}")] {
        let ran = look(&["ls", &place]);
        assert_eq!(ran.code_is(0).out(), "sub/\ntwo\n");
        assert_eq!(look(&["ls", "-R", &place]).code_is(0).out(), "sub/\nsub/one.bin\ntwo\n");
    }
    let file = format!("box:{far}/sub/one.bin");
    assert_eq!(look(&["ls", &file]).code_is(0).out(), "one.bin\n");
    let long = look(&["ls", "-l", &file]).code_is(0).out();
    assert!(long.contains("1.23 kB") && long.ends_with("  one.bin\n"), "{long}");
    let sum = look(&["du", &file]).code_is(0).out();
    assert!(sum.ends_with("1.23 kB  in 1 file and 0 folders\n"), "{sum}");
    look(&["ls", &format!("box:{far}/none")]).code_is(7).says(&["No such file"]);
    look(&["ls", "far/"]).code_is(2).says(&["is a local path: give a URL (https://host/path/) or host:path for ssh, or use the system's 'ls' and 'du'", "host:path"]);
    look(&["du", "far"]).code_is(2).says(&["is a local path: give a URL (https://host/path/) or host:path for ssh, or use the system's 'ls' and 'du'"]);
}

#[test]
fn where_only_ssh_leads_it_goes_through_ssh_and_says_so() {
    let home = Home::new();
    let Some(machine) = machine(&home, &own_folder()) else { return };
    if !succeeds(Command::new("sh").args(["-c", "command -v nc"])) {
        println!("skipped: there is no nc");
        return;
    }
    plant(&home);
    let there = format!("behind:{}/", home.path("tree").display());
    let ran = home
        .swath(["cp", "--ssh", &machine.ssh, &there, "copy"])
        .env("PATH", "/usr/bin:/bin")
        .run();
    ran.code_is(0).says(&[
        "cannot be reached from here",
        "through one ssh connection, which is slower",
        "rate through ssh: ",
        "B/s",
        "behind:",
    ]);
    // The port of ours that ssh has opened means nothing to anybody.
    ran.never_says(&["127.0.0.1:"]);
    assert_same(&home.path("tree"), &home.path("copy"));
    let back = format!("behind:{}/", home.path("back").display());
    let ran = home
        .swath(["cp", "--ssh", &machine.ssh, "--report", "report.html", "tree/", &back])
        .env("PATH", "/usr/bin:/bin")
        .run();
    ran.code_is(0).says(&["rate through ssh: "]).never_says(&["127.0.0.1:"]);
    assert_same(&home.path("tree"), &home.path("back"));
    let report = String::from_utf8(home.read("report.html")).unwrap();
    assert!(!report.contains("127.0.0.1:"), "the report knows the host too");
}

#[test]
fn where_sshd_forbids_forwarding_it_goes_through_ssh_itself() {
    // ssh listened, closed each connection again, and nothing worked: "Connection reset by peer".
    let home = Home::new();
    let forbids = "AllowTcpForwarding no\n";
    let Some(machine) = machine_with(&home, &own_folder(), forbids) else { return };
    if !succeeds(Command::new("sh").args(["-c", "command -v nc"])) {
        println!("skipped: there is no nc");
        return;
    }
    plant(&home);
    home.write("wide/wide.bin", bytes(3, 40 << 20));
    let ssh = |args: &[&str]| {
        home.swath(args).env("SWATH_SSH", &machine.ssh).env("PATH", "/usr/bin:/bin").run()
    };
    for tree in ["tree", "wide"] {
        let there = format!("behind:{}/", home.path(tree).display());
        let here = format!("{tree}-copy");
        ssh(&["cp", &there, &here])
            .code_is(0)
            .says(&[
                "cannot be reached from here, and its sshd forbids forwarding",
                "through one ssh connection, which is slower",
                "rate through ssh: ",
            ])
            .never_says(&["127.0.0.1:"]);
        assert_same(&home.path(tree), &home.path(&here));
        let back = format!("behind:{}/", home.path(format!("{tree}-back")).display());
        ssh(&["cp", &format!("{tree}/"), &back]).code_is(0).says(&["forbids forwarding"]);
        assert_same(&home.path(tree), &home.path(format!("{tree}-back")));
    }
    // However many connections are wanted.
    let there = format!("behind:{}/", home.path("wide").display());
    ssh(&["cp", "--connections", "16", &there, "many"]).code_is(0);
    assert_same(&home.path("wide"), &home.path("many"));
    let listed = ssh(&["ls", &there]).code_is(0).out();
    assert_eq!(listed, "wide.bin\n");
    // Nothing of it stays, on either side.
    wait_for_none(&home);
    let left = fs::read_dir(home.home().parent().unwrap()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("ssh")), "{left:?}");
}

#[test]
fn with_no_way_at_all_it_says_what_is_to_be_done() {
    let home = Home::new();
    // A swath from before the third way: it does not know the option.
    let old = home.home().join("old");
    fs::create_dir(&old).unwrap();
    let script = "#!/bin/sh\ncase $* in *--through*) echo no such option >&2; exit 2;; esac\n";
    fs::write(old.join("swath"), format!("{script}exec {}/swath \"$@\"\n", own_folder())).unwrap();
    fs::set_permissions(old.join("swath"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = old.display().to_string();
    let Some(machine) = machine_with(&home, &path, "AllowTcpForwarding no\n") else { return };
    plant(&home);
    let there = format!("behind:{}/", home.path("tree").display());
    let ran = home.swath(["cp", "--ssh", &machine.ssh, &there, "copy"]);
    ran.env("PATH", "/usr/bin:/bin").run().code_is(7).says(&[
        "sshd forbids forwarding, and the connection through ssh failed",
        "no such option",
        "Open the port, or allow forwarding (AllowTcpForwarding)",
    ]);
}

/// What people have for sessions of their own (a multiplexer that is entered at once, a terminal, ports
/// that are forwarded) ended each copy: ssh refused, said nothing, or had another one's port.
#[test]
fn what_the_ssh_configuration_has_for_other_sessions_does_no_harm() {
    let home = Home::new();
    let Some(machine) = machine(&home, &own_folder()) else { return };
    plant(&home);
    let config = home.home().join("ssh_config");
    let own = fs::read_to_string(&config).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let forward = format!("LocalForward {} localhost:9", taken.local_addr().unwrap());
    for (at, more) in [
        "RemoteCommand tmux new -A\nRequestTTY yes",
        "StdinNull yes",
        "SessionType none",
        "SessionType subsystem\nRemoteCommand sftp",
        "ForkAfterAuthentication yes",
        &format!("{forward}\nExitOnForwardFailure yes"),
    ]
    .iter()
    .enumerate()
    {
        fs::write(&config, format!("Host *\n{more}\n{own}")).unwrap();
        if !succeeds(Command::new("ssh").arg("-F").arg(&config).args(["-G", "box"])) {
            println!("skipped: this ssh does not know {more}");
            continue;
        }
        for host in ["box", "behind"] {
            let copy = format!("copy{at}{host}");
            let there = format!("{host}:{}/", home.path(&copy).display());
            let cp = |from: &str, to: &str| {
                home.swath(["cp", "-q", "--ssh", &machine.ssh, from, to])
                    .env("PATH", "/usr/bin:/bin")
                    .run()
            };
            cp("tree/", &there).code_is(0);
            cp(&there, &format!("back{at}{host}")).code_is(0);
            assert_same(&home.path("tree"), &home.path(format!("back{at}{host}")));
        }
    }
    wait_for_none(&home);
}

/// A copy told of `https://127.0.0.1:39845/` where its user had typed `host:path`.
#[test]
fn the_place_is_called_as_its_user_called_it() {
    let home = Home::new();
    let Some(machine) = machine(&home, &own_folder()) else { return };
    plant(&home);
    let there = format!("box:{}/", home.path("tree").display());
    let swath = |args: &[&str]| {
        let args = [&[args[0], "--ssh", &machine.ssh], &args[1..]].concat();
        home.swath(args).env("PATH", "/usr/bin:/bin").run()
    };
    for args in [
        &["cp", &there, "copy"][..],
        &["cp", "--json", &there, "again"],
        &["cp", "--dry-run", &there, "dry"],
        &["cp", "tree/", &format!("box:{}/", home.path("sent").display())],
        &["cp", "--report", "report.html", &there, "reported"],
        &["ls", &there],
        &["du", &there],
    ] {
        swath(args).code_is(0).never_says(&["127.0.0.1"]);
    }
    assert!(!String::from_utf8_lossy(&home.read("report.html")).contains("127.0.0.1"));
    let missing = format!("box:{}/none/", home.work().display());
    for args in [&["ls", &missing][..], &["du", &missing], &["cp", &missing, "none"]] {
        assert_ne!(swath(args).never_says(&["127.0.0.1"]).code(), 0);
    }
}

#[test]
fn what_is_wrong_on_the_other_side_is_said() {
    let home = Home::new();
    let Some(machine) = machine(&home, "/nowhere") else { return };
    plant(&home);
    let cp = |more: &[&str], from: &str| {
        let args = [&["cp", "--ssh", &machine.ssh], more, &[from, "copy"]].concat();
        // A program with debugging information is large.
        let limit = Duration::from_secs(300);
        home.swath(args).env("PATH", "/usr/bin:/bin").limit(limit).run()
    };
    let there = format!("box:{}/", home.path("tree").display());
    cp(&[], &there).code_is(7).says(&[
        "swath is not installed",
        "--bootstrap",
        "scp '/",
        "/swath' box:bin/ ",
    ]);
    cp(&["--bootstrap"], &there).code_is(0).says(&["box: copied this program to ~/.cache/"]);
    cp(&["--bootstrap"], &there).code_is(0).never_says(&["copied this program to"]);
    // From then on it is there, also for those who do not ask for it to be put there.
    let ran = cp(&[], &there);
    ran.code_is(0).never_says(&["swath is not installed"]);
    // The shell there complained each time of a swath that is not in its PATH.
    ran.never_says(&["not found"]);
    assert_eq!(cp(&["-q"], &there).code_is(0).all(), "");
    assert_same(&home.path("tree"), &home.path("copy"));
    let put = fs::read_dir(home.home().join("far/.cache/swath")).unwrap().count();
    assert_eq!(put, 1);
    cp(&["--bootstrap"], "box:/none/of/it/").code_is(7).says(&["failed with exit code"]);
    cp(&[], "nobody-here.localhost:/x/").code_is(7).says(&["could not connect"]);
    // Another machine under the same name is none to talk to.
    let known = home.home().join("known");
    let other = fs::read_to_string(home.home().join("user.pub")).unwrap();
    let port = fs::read_to_string(home.home().join("sshd_config")).unwrap();
    let port = port.lines().find_map(|line| line.strip_prefix("Port ")).unwrap().to_owned();
    fs::write(&known, format!("[127.0.0.1]:{port} {other}")).unwrap();
    cp(&[], &there).code_is(7).says(&["could not connect", "IDENTIFICATION HAS CHANGED"]);
}
