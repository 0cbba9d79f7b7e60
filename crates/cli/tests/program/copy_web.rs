//! `swath cp` of folders that plain web servers list: a page for each folder, or a bucket.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use swath_netlab::faulty::{Behaviour, Content, Server};

use crate::support::Home;
use crate::support::nginx::{Nginx, listening};

/// A tree as web servers may have it, with names that addresses have to escape.
fn tree() -> Vec<(&'static str, Content)> {
    ["a.bin", "sub/b & c.bin", "sub/deep/100%.bin", "sub dir/#1?.bin", "naïve.txt"]
        .into_iter()
        .zip(1..)
        .map(|(name, seed)| (name, Content::random(seed, 40_000 + seed)))
        .collect()
}

fn nginx(tree: &[(&str, Content)]) -> Option<Nginx> {
    let files: Vec<(&str, &Content)> =
        tree.iter().map(|(name, content)| (*name, content)).collect();
    Nginx::start(&files, &["autoindex on;", "autoindex on;"])
}

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

/// A page may link to anything; nothing of it may land outside, and one bad name spoils only itself.
#[test]
fn names_of_hostile_pages_stay_below_the_destination() {
    let page = "<a href=\"good.bin\">g</a><a href=\"..%2F..%2Fup.bin\">u</a>\
                <a href=\"%2e%2e/up.bin\">u</a><a href=\"http://127.0.0.1:9/o.bin\">o</a>\
                <a href=\"a%0Ab.bin\">n</a><a href=\"gone.bin\">x</a><a href=\"loop/\">l</a>\
                <a href=\"good.bin/in.bin\">f</a>";
    let content = Content::random(7, 50_000);
    let server = Server::builder()
        .file_as("/data/", "text/html", Content::bytes(page.as_bytes().to_vec()))
        .file_as("/data/loop/", "text/html", Content::bytes(b"<a href=\"../\">up</a>".to_vec()))
        .file("/data/good.bin", content.clone())
        .file("/data/good.bin/in.bin", content.clone())
        .start()
        .unwrap();
    let home = Home::new();
    std::os::unix::fs::symlink(home.home(), home.path("planted")).unwrap();
    let ran = home.run(["cp", &server.url("/data/"), "copy/"]);
    ran.code_is(8).says(&["..%2F..%2Fup.bin", "a%0Ab.bin", "gone.bin", "404"]);
    home.holds("copy/good.bin", &content);
    assert_eq!(home.names_in("copy"), ["good.bin"]);
    assert_eq!(home.names(), ["copy", "planted"]);
}

#[test]
fn what_an_object_store_lists_is_copied_part_by_part() {
    let contents: Vec<Content> = (0..4).map(|seed| Content::random(seed, 30_000)).collect();
    let part = |keys: &[&str], more: &str| {
        let keys: String = keys
            .iter()
            .map(|key| format!("<Contents><Key>{key}</Key><Size>30000</Size></Contents>"))
            .collect();
        let text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{keys}{more}</ListBucketResult>"
        );
        Content::bytes(text.into_bytes())
    };
    let more = "<IsTruncated>true</IsTruncated><NextContinuationToken>two</NextContinuationToken>";
    let first = "/b?list-type=2&prefix=run7%2F";
    let server = Server::builder()
        .file_as(first, "application/xml", part(&["run7/a.bin", "run7/x/b.bin"], more))
        .file_as(
            &format!("{first}&continuation-token=two"),
            "application/xml",
            part(&["run7/c.bin"], ""),
        )
        .file("/b/run7/a.bin", contents[0].clone())
        .file("/b/run7/x/b.bin", contents[1].clone())
        .file("/b/run7/c.bin", contents[2].clone())
        .behaviour_on("/b/run7/", Behaviour::status(403))
        .start()
        .unwrap();
    let home = Home::new();
    home.run(["cp", &server.url("/b/run7/"), "copy/"]).code_is(0).says(&["3 of 3 files"]);
    home.holds("copy/a.bin", &contents[0]);
    home.holds("copy/x/b.bin", &contents[1]);
    home.holds("copy/c.bin", &contents[2]);
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
