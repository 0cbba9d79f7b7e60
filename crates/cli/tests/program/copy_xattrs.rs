//! `swath cp --preserve xattr`: extended attributes, in every direction.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::net_events::fit;
use crate::support::Home;
use crate::support::trees::{assert_same, bytes};
use crate::support::xattrs::{ALL, all, assert_same_xattrs, planted, remove, seen, set};

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
    for (name, mode) in [("closed/read only", 0o444), ("closed", 0o555)] {
        // Its owner may not set any without the right to write.
        chmod(name, 0o755);
        assert!(set(&tree(name), "user.name", b"other"));
        chmod(name, mode);
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
