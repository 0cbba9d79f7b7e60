//! `swath cp --preserve xattr`: extended attributes, in every direction.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use crate::net_events::fit;
use crate::support::Home;
use crate::support::trees::{assert_same, bytes, plant};
use crate::support::xattrs::{all, remove, set};

const ALL: [&str; 3] = ["cp", "--preserve", "mode,times,xattr"];

/// What of a tree has which extended attributes, one line an entry that has some.
fn seen(tree: &Path) -> Vec<String> {
    let mut seen = Vec::new();
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                folders.push(path.clone());
            }
            let mut line = path.strip_prefix(tree).unwrap().display().to_string();
            for (name, value) in all(&path) {
                let start = value[..value.len().min(20)].escape_ascii();
                line += &format!("  {name} {start} {}", value.len());
            }
            if line.contains("  ") {
                seen.push(line);
            }
        }
    }
    seen.sort();
    seen
}

#[track_caller]
fn assert_same_xattrs(one: &Path, other: &Path) {
    let (ours, theirs) = (seen(one), seen(other));
    let differs = ours.iter().zip(&theirs).find(|(our, their)| our != their);
    assert_eq!(differs, None);
    assert_eq!(ours.len(), theirs.len());
}

/// A tree with something of everything, of which some has extended attributes; `false`, with a
/// message, where the file system takes none.
fn planted(home: &Home) -> bool {
    plant(home);
    fs::hard_link(home.path("tree/page.bin"), home.path("tree/page once more.bin")).unwrap();
    let tree = home.path("tree");
    if !set(&tree.join("large.bin"), "user.origin", b"telescope 7") {
        println!("skipped: this file system takes no extended attributes");
        return false;
    }
    for n in 0..300 {
        let path = tree.join(format!("many/{}/{n}.dat", n % 7));
        assert!(set(&path, "user.origin", b"telescope 7"));
        if n % 10 == 0 {
            assert!(set(&path, "user.number", n.to_string().as_bytes()));
        }
    }
    for (name, value) in
        [("user.z", &b""[..]), ("user.a", b"\0\xff\n"), ("user.name, \u{e9}", b"x")]
    {
        for path in ["page.bin", "empty", "sparse", "many", "many/3", "nothing in it"] {
            assert!(set(&tree.join(path), name, value), "{path}");
        }
    }
    assert!(set(&tree.join("many/1/1.dat"), "user.long", &[b'v'; 2000]));
    true
}

#[test]
fn they_are_fetched_if_wanted_and_set_right_again_without_the_content() {
    let home = Home::new();
    if !planted(&home) {
        return;
    }
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    home.run(["cp", &server.url, "plain"]).code_is(0);
    assert_same(&home.path("tree"), &home.path("plain"));
    assert_eq!(seen(&home.path("plain")), Vec::<String>::new());
    let args = [ALL[0], ALL[1], ALL[2], &server.url, "copy"];
    home.run(args).code_is(0);
    assert_same(&home.path("tree"), &home.path("copy"));
    let wanted = seen(&home.path("tree"));
    assert!(wanted.len() > 300, "{wanted:?}");
    assert_same_xattrs(&home.path("copy"), &home.path("tree"));
    // Again: nothing moves.
    let inode = |name: &str| home.path("copy").join(name).metadata().unwrap().ino();
    let before = inode("large.bin");
    home.run(args).code_is(0).says(&["308 of the files already up to date)"]);
    assert_same_xattrs(&home.path("copy"), &home.path("tree"));
    // Other values, one more, one less, and one that only the copy has; on files and folders.
    let tree = |name: &str| home.path("tree").join(name);
    assert!(set(&tree("large.bin"), "user.origin", b"telescope 8"));
    assert!(set(&tree("many/2/2.dat"), "user.more", b"1"));
    // Here a file of two names, and each of them a file of its own there.
    assert!(set(&tree("page.bin"), "user.a", b"of both names"));
    assert!(remove(&tree("many/3"), "user.z") && remove(&tree("empty"), "user.a"));
    assert!(set(&home.path("copy/a name, with #?%.dat"), "user.mine", b"1"));
    // One that nobody may write to.
    fs::set_permissions(tree("many/4/4.dat"), fs::Permissions::from_mode(0o444)).unwrap();
    assert!(set(&tree("many/4/4.dat"), "user.closed", b"1"));
    let wanted = seen(&home.path("tree"));
    assert_ne!(seen(&home.path("copy")), wanted);
    home.run(args).code_is(0).says(&["308 of the files already up to date)"]);
    assert_same_xattrs(&home.path("copy"), &home.path("tree"));
    assert_eq!(inode("large.bin"), before);
    assert_same(&home.path("tree"), &home.path("copy"));
    // Who does not ask leaves alone what stays there.
    home.run(["cp", &server.url, "copy"]).code_is(0);
    assert_same_xattrs(&home.path("copy"), &home.path("tree"));
    // A part of the tree; several names stay names of one file.
    let part = ["cp", "--preserve", "links,xattr", "--include", "many/3", "--include", "page*"];
    home.run(part.iter().copied().chain([server.url.as_str(), "part"])).code_is(0);
    let of_part = |line: &String| line.starts_with("many") || line.starts_with("page");
    let of_part = |line: &String| of_part(line) && (!line.contains('/') || line.contains("many/3"));
    let of_part: Vec<String> = wanted.into_iter().filter(of_part).collect();
    assert_eq!(seen(&home.path("part")), of_part);
    let ino = |name: &str| home.path("part").join(name).metadata().unwrap().ino();
    assert_eq!(ino("page.bin"), ino("page once more.bin"));
}

#[test]
fn they_are_sent_and_copied_here() {
    let home = Home::new();
    if !planted(&home) {
        return;
    }
    let wanted = seen(&home.path("tree"));
    // No right of ours becomes one of the copy.
    for (name, value) in [("trusted.right", &b"1"[..]), ("security.right", b"1")] {
        if !set(&home.path("tree/large.bin"), name, value) {
            println!("skipped: {name}, which we may not set");
        }
    }
    fs::create_dir(home.path("store")).unwrap();
    let server = home.serve(&["store", "--write", "--plain"]);
    home.write("token", server.token());
    let (to, token) = (server.at("new/"), ["--bearer-file", "token"]);
    let sending = [&ALL[..], &["tree/", &to], &token].concat();
    home.run(&sending).code_is(0);
    assert_same(&home.path("tree"), &home.path("store/new"));
    assert_eq!(seen(&home.path("store/new")), wanted);
    home.run(&sending).code_is(0).says(&["308 of the files already up to date)"]);
    assert!(set(&home.path("tree/empty"), "user.a", b"2"));
    home.run(&sending).code_is(0).says(&["308 of the files already up to date)"]);
    let with = |copy: &str| all(&home.path(copy).join("empty"));
    assert_eq!(with("store/new"), with("tree"));
    home.run([&ALL[..], &["tree/", "here/"]].concat()).code_is(0);
    assert_same(&home.path("tree"), &home.path("here"));
    assert_eq!(seen(&home.path("here")), seen(&home.path("store/new")));
}

#[test]
fn what_a_file_system_has_no_room_for_is_named() {
    let home = Home::new();
    home.write("tree/before", bytes(1, 3000));
    let Ok(large) = tempfile::Builder::new().prefix("swath-test-").tempdir_in("/dev/shm") else {
        println!("skipped: /dev/shm is not there");
        return;
    };
    fs::write(large.path().join("large"), bytes(2, 3000)).unwrap();
    fs::write(large.path().join("small"), bytes(3, 3000)).unwrap();
    let value = vec![b'v'; 60_000];
    let takes = |path: &Path| set(path, "user.large", &value) && set(path, "user.small", b"1");
    if !takes(&large.path().join("large")) || !takes(&large.path().join("small")) {
        println!("skipped: /dev/shm takes no large extended attributes");
        return;
    }
    assert!(remove(&large.path().join("small"), "user.large"));
    if takes(&home.path("tree/before")) {
        println!("skipped: the file system of the tests takes large extended attributes too");
        return;
    }
    let server = home.serve(&[large.path().to_str().unwrap(), "--anonymous", "--plain"]);
    let args = [ALL[0], ALL[1], ALL[2], "--delete", &server.url, "copy"];
    // A second time too: they are missing still.
    for _ in 0..2 {
        let ran = home.run(args);
        ran.code_is(8).says(&[
            "extended attributes not copied: large: the file system has no room for them",
            "copy: 1 entry without the original extended attributes",
        ]);
        ran.never_says(&["not there", "small:", "nothing was removed"]);
        assert_same(large.path(), &home.path("copy"));
        let small = [("user.small".to_owned(), b"1".to_vec())];
        assert_eq!(all(&home.path("copy/large")), small);
        assert_eq!(all(&home.path("copy/small")), small);
    }
    assert!(remove(&large.path().join("large"), "user.large"));
    home.run(args).code_is(0);
}

#[test]
fn nobody_needs_to_be_root() {
    let Some(home) = Home::of_nobody() else { return };
    for name in ["closed/file", "closed/read only", "hidden", "hidden and empty", "bare"] {
        home.write(&format!("tree/{name}"), if name.ends_with("empty") { "" } else { "x\n" });
    }
    let tree = |name: &str| home.path("tree").join(name);
    let mut taken = ["closed", "closed/file", "closed/read only", "hidden", "hidden and empty"]
        .iter()
        .map(|name| set(&tree(name), "user.name", name.as_bytes()));
    if !taken.all(|taken| taken) {
        println!("skipped: this file system takes no extended attributes");
        return;
    }
    home.hand_over();
    let chmod = |name: &str, mode| {
        fs::set_permissions(tree(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    chmod("closed/read only", 0o444);
    chmod("closed", 0o555);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let args = [ALL[0], ALL[1], ALL[2], &server.url, "copy"];
    home.run(args).code_is(0);
    assert_same_xattrs(&home.path("copy"), &home.path("tree"));
    assert_same(&home.path("tree"), &home.path("copy"));
    for name in ["closed", "closed/read only"] {
        assert!(set(&tree(name), "user.name", b"other"));
    }
    home.run(args).code_is(0).says(&["5 of the files already up to date)"]);
    assert_same_xattrs(&home.path("copy"), &home.path("tree"));
    assert_same(&home.path("tree"), &home.path("copy"));
    // Of what may not be read nobody knows them; that there are none is to be seen all the same.
    home.write("tree/bare and empty", "");
    home.hand_over();
    chmod("hidden and empty", 0o200);
    chmod("bare and empty", 0o200);
    chmod("hidden", 0);
    let ran = home.run([ALL[0], ALL[1], ALL[2], &server.url, "new"]);
    ran.code_is(8).says(&[
        "not copied: hidden: it may not be read there",
        "extended attributes not copied: hidden and empty: they cannot be read there",
    ]);
    ran.never_says(&["bare and empty", "extended attributes not copied: hidden: "]);
    let ran = home.run([ALL[0], ALL[1], ALL[2], &server.url, "json", "--json"]);
    let events = fit(ran.code_is(8));
    assert!(events.contains(&"without_xattrs".to_owned()), "{ran}");
    for folder in ["tree/closed", "copy/closed", "new/closed"] {
        fs::set_permissions(home.path(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn an_index_that_was_kept_knows_them() {
    let home = Home::new();
    if !planted(&home) {
        return;
    }
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    home.run([&ALL[..], &["--keep-index", "kept", &server.url, "copy"]].concat()).code_is(0);
    let verify = ["verify", "copy", "--index", "kept"];
    home.run([&verify[..], &["--strict"]].concat()).code_is(0);
    assert!(set(&home.path("copy/empty"), "user.a", b"spoilt"));
    assert!(remove(&home.path("copy/many"), "user.z"));
    home.run(verify).code_is(0).says(&["2 modes, times or attributes differ"]);
    home.run([&verify[..], &["--strict"]].concat()).code_is(4).says(&[
        "empty: different extended attributes",
        "many: different extended attributes",
        "2 entries do not match the index",
    ]);
}

#[test]
fn a_copy_that_was_killed_has_them_too() {
    let home = Home::new();
    if !planted(&home) {
        return;
    }
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let args = [ALL[0], ALL[1], ALL[2], &server.url];
    for round in 0..6u64 {
        let copy = format!("copy{round}");
        let mut child = home.swath(args.into_iter().chain([copy.as_str()])).start();
        // At any instant.
        std::thread::sleep(Duration::from_millis(20 + 25 * round));
        if !child.is_over() {
            child.signal(9);
        }
        drop(child);
        // What it left may have other ones by now.
        assert!(set(&home.path("tree/large.bin"), "user.round", round.to_string().as_bytes()));
        home.run(args.into_iter().chain([copy.as_str()])).code_is(0);
        assert_same_xattrs(&home.path(&copy), &home.path("tree"));
        assert_same(&home.path("tree"), &home.path(&copy));
    }
}

#[test]
fn links_have_none_to_take_over_and_single_files_have() {
    let home = Home::new();
    home.write("tree/file", "x\n");
    symlink("file", home.path("tree/link")).unwrap();
    fs::create_dir(home.path("store")).unwrap();
    let server = home.serve(&["store", "--write", "--plain"]);
    home.write("token", server.token());
    home.run([&ALL[..], &["tree/", "copy"]].concat()).code_is(0);
    assert_same(&home.path("tree"), &home.path("copy"));
    let file = ["tree/file", &server.url, "--bearer-file", "token"];
    let has_one = set(&home.path("tree/file"), "user.run", b"7");
    home.run([&ALL[..], &file].concat()).code_is(0);
    assert_eq!(all(&home.path("store/file")).len(), usize::from(has_one));
}

#[test]
fn a_server_that_knows_nothing_of_them_is_not_taken_for_one_that_has_none() {
    // As a server answers that passes over what it does not know.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/tree/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                while client.read(&mut head).is_ok_and(|bytes| bytes > 0) {
                    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.swath.index\r\n\
                                  swath-walk: 1\r\ncontent-length: 9\r\n\r\nswathidx\x01";
                    if client.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let home = Home::new();
    let ran = home.run([&ALL[..], &[url.as_str(), "copy"]].concat());
    ran.code_is(7).says(&["this server does not support extended attributes"]);
}
