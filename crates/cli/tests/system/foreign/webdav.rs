//! WebDAV by `swath serve`, with the clients that people use: davix, gfal2 and rclone.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::bytes;

/// A server of `store` that takes changes.
fn taking(home: &Home, more: &[&str]) -> Served {
    fs::create_dir_all(home.path("store")).unwrap();
    home.serve(&[&["store", "--write"], more].concat())
}

/// Runs a client of others with what it needs in its environment. `None` where it is not installed.
fn client(home: &Home, server: &Served, program: &str, args: &[&str]) -> Option<(i32, String)> {
    let mut command = Command::new(program);
    command.args(args).current_dir(home.work()).stdin(Stdio::null());
    command.env("HOME", home.work()).env_remove("http_proxy").env_remove("https_proxy");
    // Where several Pythons are, the one of the system has the bindings.
    command.env("GFAL_PYTHONBIN", "/usr/bin/python3").env("BEARER_TOKEN", server.token());
    for (name, value) in
        [("TYPE", "webdav"), ("URL", &server.url), ("BEARER_TOKEN", server.token())]
    {
        command.env(format!("RCLONE_CONFIG_S_{name}"), value);
    }
    let Ok(ran) = command.output() else {
        println!("skipped: {program} is not installed");
        return None;
    };
    let text = [ran.stdout, ran.stderr].concat();
    Some((ran.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned()))
}

#[track_caller]
fn succeeds(home: &Home, server: &Served, program: &str, args: &[&str]) -> Option<String> {
    let (code, text) = client(home, server, program, args)?;
    assert_eq!(code, 0, "{program} {args:?}:\n{text}");
    Some(text)
}

#[test]
fn davix_works() {
    let home = Home::new();
    home.write("file", bytes(3, 3_000_001));
    for options in [&["--plain"][..], &[]] {
        let server = taking(&home, options);
        let field = format!("Authorization: Bearer {}", server.token());
        let run = |program: &str, args: &[&str]| {
            let args = [&["-k", "-H", &field], args].concat();
            succeeds(&home, &server, program, &args)
        };
        let at = |path: &str| server.at(path);
        if run("davix-mkdir", &[&at("d")]).is_none() {
            return;
        }
        run("davix-mkdir", &[&at("d/a%20b")]);
        for _ in 0..2 {
            run("davix-put", &["file", &at("d/a%20b/one")]);
        }
        // Version 0.8.4 exits with 255 after a move that succeeded, without any message.
        let moved = ["-k", "-H", &field, &at("d/a%20b/one"), &at("d/two")];
        let (_, text) = client(&home, &server, "davix-mv", &moved).unwrap();
        assert!(text.is_empty() && home.exists("store/d/two"), "{text}");
        run("davix-cp", &["--copy-mode", "push", &at("d/two"), &at("d/three")]);
        run("davix-cp", &["--copy-mode", "pull", &at("d/two"), &at("d/four")]);
        let listed = run("davix-ls", &["-l", &at("d")]).unwrap();
        let names: Vec<_> =
            listed.lines().filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(names.len(), 4, "{listed}");
        assert!(listed.contains("3000001") && names.contains(&"four"), "{listed}");
        run("davix-get", &[&at("d/four"), "got"]);
        assert!(home.read("got") == bytes(3, 3_000_001));
        run("davix-rm", &[&at("d/four")]);
        run("davix-rm", &["-r", "2", &at("d")]);
        assert!(home.names_in("store").is_empty());
    }
}

#[test]
fn gfal_works() {
    let plugins = "/usr/lib/x86_64-linux-gnu/gfal2-plugins";
    let has = |name: &str| Path::new(plugins).join(format!("libgfal_plugin_{name}.so")).exists();
    if cfg!(target_arch = "x86_64") && !(has("http") && has("file")) {
        println!("skipped: gfal2-plugin-http or gfal2-plugin-file is not installed");
        return;
    }
    let home = Home::new();
    home.write("src/file", bytes(3, 3_000_001));
    home.write("src/sub/small", "small\n");
    let local = |path: &str| format!("file://{}", home.path(path).display());
    for (options, scheme) in [(&["--plain"][..], "dav"), (&["--plain"], "http"), (&[], "davs")] {
        let server = taking(&home, options);
        let at = |path: &str| format!("{scheme}://{}/{path}", server.address());
        let run = |program: &str, args: &[&str]| {
            let args = [&["-D", "HTTP PLUGIN:INSECURE=true"], args].concat();
            succeeds(&home, &server, program, &args)
        };
        if run("gfal-mkdir", &["-p", &at("d/e")]).is_none() {
            return;
        }
        for more in [&[][..], &["-f"], &["-f", "-K", "adler32"]] {
            run("gfal-copy", &[more, &[&local("src/file"), &at("d/file")]].concat());
        }
        run("gfal-copy", &["-r", &local("src/sub"), &at("d/sub")]);
        assert_eq!(home.read("store/d/sub/small"), b"small\n");
        let listed = run("gfal-ls", &["-l", &at("d")]).unwrap();
        assert!(listed.contains(" 3000001 ") && listed.lines().count() == 3, "{listed}");
        run("gfal-rename", &[&at("d/file"), &at("d/moved")]);
        run("gfal-copy", &[&at("d/moved"), &at("d/copied")]);
        assert!(run("gfal-stat", &[&at("d/copied")]).unwrap().contains("3000001"));
        let sum = run("gfal-sum", &[&at("d/copied"), "ADLER32"]).unwrap();
        let own = run("gfal-sum", &[&local("src/file"), "ADLER32"]).unwrap();
        assert_eq!(sum.split_whitespace().last(), own.split_whitespace().last());
        run("gfal-copy", &["-f", &at("d/copied"), &local("back")]);
        assert!(home.read("back") == bytes(3, 3_000_001));
        run("gfal-rm", &[&at("d/copied")]);
        run("gfal-rm", &["-r", &at("d")]);
        assert!(home.names_in("store").is_empty());
    }
}

#[test]
fn rclone_works() {
    let home = Home::new();
    home.write("src/file", bytes(3, 3_000_001));
    home.write("src/sub dir/zwei ü#%&.txt", "small\n");
    home.write("src/sub dir/empty", "");
    for (options, vendor) in [(&["--plain"][..], "other"), (&[], "owncloud")] {
        let server = taking(&home, options);
        let vendor = format!("--webdav-vendor={vendor}");
        let config = format!("--config={}", home.path("rclone.conf").display());
        let run = |args: &[&str]| {
            let own = ["--no-check-certificate", "--retries=1", "-q", &vendor, &config];
            succeeds(&home, &server, "rclone", &[args, &own].concat())
        };
        if run(&["sync", "src", "s:up"]).is_none() {
            return;
        }
        assert_eq!(home.read("store/up/sub dir/zwei ü#%&.txt"), b"small\n");
        assert_eq!(run(&["ls", "s:"]).unwrap().lines().count(), 3);
        home.write("src/more", "more");
        fs::remove_file(home.path("src/sub dir/empty")).unwrap();
        run(&["sync", "src", "s:up"]);
        assert_eq!(home.names_in("store/up"), ["file", "more", "sub dir"]);
        assert_eq!(home.names_in("store/up/sub dir"), ["zwei ü#%&.txt"]);
        run(&["sync", "s:up", "down"]);
        assert!(home.read("down/file") == bytes(3, 3_000_001));
        if vendor.ends_with("owncloud") {
            let modified = |path: &str| home.path(path).metadata().unwrap().modified().unwrap();
            let is_kept = modified("src/file").duration_since(modified("down/file"));
            assert!(is_kept.is_ok_and(|off| off.as_secs() == 0));
        }
        // Copied and moved by the server itself.
        run(&["copy", "s:up", "s:copied"]);
        run(&["moveto", "s:copied/more", "s:copied/sub dir/more"]);
        run(&["move", "s:copied", "s:moved"]);
        run(&["check", "--download", "s:up/sub dir", "s:moved/sub dir", "--one-way"]);
        assert!(home.exists("store/moved/sub dir/more"));
        assert!(run(&["about", "s:"]).unwrap().contains("Free:"));
        run(&["deletefile", "s:moved/file"]);
        run(&["delete", "--rmdirs", "s:moved"]);
        run(&["purge", "s:up"]);
        run(&["rmdirs", "--leave-root", "s:"]);
        assert!(home.names_in("store").is_empty(), "{:?}", home.names_in("store"));
        home.write("src/sub dir/empty", "");
        fs::remove_file(home.path("src/more")).unwrap();
        fs::remove_dir_all(home.path("down")).unwrap();
    }
}
