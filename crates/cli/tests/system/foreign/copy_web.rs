//! `swath cp` of folders that plain web servers list: nginx, lighttpd, Apache httpd and Python's.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use swath_netlab::faulty::Content;

use crate::support::Home;
use crate::support::nginx::{Nginx, listening};

#[test]
fn what_a_server_lists_is_copied_as_far_as_its_links_go_down() {
    let tree = tree();
    let Some(nginx) = nginx(&tree) else { return };
    let home = Home::new();
    let (one, other) = (nginx.url(0, ""), nginx.url(1, ""));
    home.run(["cp", "-n", &one, "copy/"]).code_is(0).says(&["5 entries to copy"]);
    assert!(!home.exists("copy"));
    home.run(["cp", &one, &other, "copy/"]).code_is(0).says(&["5 of 5 files", "NOT VERIFIED"]);
    for (name, content) in &tree {
        home.holds(&format!("copy/{name}"), content);
    }
    // Again, only what differs is fetched: by size and time.
    let changed = home.path("copy/a.bin");
    std::fs::write(&changed, b"other").unwrap();
    home.run(["cp", "-n", &one, "copy/"]).code_is(0).says(&["1 entry to copy"]);
    home.run(["cp", &one, "copy/"]).code_is(0).says(&["4 already existed and were not fetched"]);
    home.holds("copy/a.bin", &tree[0].1);
    let touched = std::fs::File::options().write(true).open(&changed).unwrap();
    touched.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    home.run(["cp", &one, "copy/"]).code_is(0).says(&["4 already existed and were not fetched"]);
    home.run(["cp", &one, "copy/"]).code_is(0).says(&["5 already existed and were not fetched"]);
}

#[test]
fn a_folder_without_a_slash_and_a_part_of_a_folder_are_copied_too() {
    let tree = tree();
    let Some(nginx) = nginx(&tree) else { return };
    let home = Home::new();
    home.run(["cp", &nginx.url(0, "sub"), "named/"]).code_is(0);
    home.holds("named/sub/deep/100%.bin", &tree[2].1);
    let args = ["cp", &nginx.url(0, ""), "part/", "--include", "*.bin", "--exclude", "deep"];
    home.run(args).code_is(0).says(&["3 of 3 files"]);
    assert_eq!(home.names_in("part"), ["a.bin", "sub", "sub dir"]);
    home.run(["cp", &nginx.url(0, "a.bin"), "."]).code_is(0);
    home.holds("a.bin", &tree[0].1);
    for option in ["--delete", "--checksum"] {
        let ran = home.run(["cp", &nginx.url(0, ""), "no/", option]);
        ran.code_is(2).says(&[option, "a plain web server"]);
    }
    home.run(["cp", &nginx.url(0, "nothing/"), "no/"]).code_is(7).says(&["404"]);
    home.run(["cp", &nginx.url(0, ""), "no/", "--require-digest"]).code_is(4);
    assert!(!home.path("no/a.bin").exists());
}

/// Other servers list folders in other ways.
#[test]
fn pages_of_other_servers_are_read() {
    let tree = tree();
    let home = Home::new();
    for (name, content) in &tree {
        home.write(&format!("www/{name}"), content.read(0, content.size_bytes()));
    }
    for (at, start) in [python, lighttpd, apache].into_iter().enumerate() {
        let www = home.path("www");
        let Some((mut child, port)) = listening(|port| start(&www, port)) else { continue };
        let address = format!("127.0.0.1:{port}");
        let to = format!("copy{at}");
        let ran = home.run(["cp", &format!("http://{address}/"), &format!("{to}/")]);
        let _ = child.kill();
        let _ = child.wait();
        ran.code_is(0);
        for (name, content) in &tree {
            home.holds(&format!("{to}/{name}"), content);
        }
    }
}

fn spawned(program: &str, args: &[&str]) -> Option<Child> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().ok();
    if child.is_none() {
        println!("skipped: {program} is not installed");
    }
    child
}

fn python(www: &Path, port: u16) -> Option<Child> {
    let (port, www) = (port.to_string(), www.display().to_string());
    let args = ["-m", "http.server", &port, "--bind", "127.0.0.1", "--directory", &www];
    spawned("python3", &args)
}

fn lighttpd(www: &Path, port: u16) -> Option<Child> {
    let config = www.with_extension("lighttpd");
    let text = format!(
        "server.document-root=\"{}\"\nserver.bind=\"127.0.0.1\"\nserver.port={port}\ndir-listing.activate=\"enable\"\n",
        www.display()
    );
    std::fs::write(&config, text).unwrap();
    spawned("/usr/sbin/lighttpd", &["-D", "-f", &config.display().to_string()])
}

fn apache(www: &Path, port: u16) -> Option<Child> {
    let modules = "/usr/lib/apache2/modules";
    let config = www.with_extension("apache");
    let folder = www.parent().unwrap().display();
    let loads: String = ["mpm_event", "authz_core", "autoindex", "dir", "mime"]
        .map(|name| format!("LoadModule {name}_module {modules}/mod_{name}.so\n"))
        .concat();
    let text = format!(
        "ServerRoot {folder}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {folder}/apache.pid\n\
         ErrorLog {folder}/apache.log\n{loads}TypesConfig /dev/null\nDocumentRoot {www}\n\
         <Directory {www}>\nOptions Indexes\nRequire all granted\nIndexOptions FancyIndexing HTMLTable\n</Directory>\n",
        www = www.display()
    );
    // Served by another user where we are root, who has to reach the folder.
    let _ = Command::new("chmod").args(["-R", "a+rX"]).arg(www.parent()?.parent()?).status();
    std::fs::write(&config, text).unwrap();
    spawned("/usr/sbin/apache2", &["-X", "-f", &config.display().to_string()])
}

fn nginx(tree: &[(&str, Content)]) -> Option<Nginx> {
    let files: Vec<(&str, &Content)> =
        tree.iter().map(|(name, content)| (*name, content)).collect();
    Nginx::start(&files, &["autoindex on;", "autoindex on;"])
}

/// A tree as web servers may have it, with names that addresses have to escape.
fn tree() -> Vec<(&'static str, Content)> {
    ["a.bin", "sub/b & c.bin", "sub/deep/100%.bin", "sub dir/#1?.bin", "naïve.txt"]
        .into_iter()
        .zip(1..)
        .map(|(name, seed)| (name, Content::random(seed, 40_000 + seed)))
        .collect()
}
