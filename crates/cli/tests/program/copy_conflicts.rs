//! `swath cp` where the destination has something of another kind than the tree: it is said before
//! anything is copied, and `--delete` replaces it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::support::Home;
use crate::support::trees::{assert_same, bytes, seen};
use crate::support::ways::Way;

/// A tree, and a destination that has folders for its files and files for its folders.
fn plant(home: &Home) {
    home.write("tree/file", bytes(1, 3_000_000));
    home.write("tree/folder/deep/within", "within\n");
    home.write("tree/folder/other", "other\n");
    home.write("tree/none", "there is nothing of this name\n");
    home.write("tree/way/file", "x\n");
    symlink("file", home.path("tree/link")).unwrap();
    fs::hard_link(home.path("tree/file"), home.path("tree/name")).unwrap();
    home.write("copy/file/with/content", "content\n");
    home.write("copy/file/more", "more\n");
    home.write("copy/folder", "a file\n");
    home.write("copy/own", "nothing of this name is in the tree\n");
    fs::create_dir(home.path("outside")).unwrap();
    home.write("outside/file", "outside\n");
    symlink("../outside", home.path("copy/way")).unwrap();
    fs::create_dir(home.path("copy/link")).unwrap();
    fs::create_dir(home.path("copy/name")).unwrap();
    // A folder into which its owner may not write.
    fs::set_permissions(home.path("copy/file/with"), fs::Permissions::from_mode(0o555)).unwrap();
}

#[test]
fn all_that_is_in_the_way_is_named_before_anything_is_copied() {
    for (way, home) in Way::all() {
        plant(&home);
        let before = seen(&home.path("copy"));
        let mut said = Vec::new();
        for options in [&[][..], &["-n"], &["--compare", "none"]] {
            let ran = way.sync(&home, options);
            ran.code_is(5).says(&[
                "copy",
                " has entries of another kind than the source: file (a folder there, a file in the source), folder (a file there, a folder in the source), link (a folder there, a link in the source), name (a folder there, a file in the source), way (a link there, a folder in the source); nothing was copied, and --delete would replace",
            ]);
            assert!(ran.stdout.is_empty(), "{ran}");
            assert_eq!(seen(&home.path("copy")), before, "{}: {options:?}", way.name);
            let line = ran.stderr.lines().find(|line| line.starts_with("error: "));
            said.push(line.unwrap_or_else(|| panic!("{ran}")).to_owned());
        }
        assert!(said.iter().all(|line| *line == said[0]), "{said:?}");
    }
}

#[test]
fn what_is_left_out_is_not_replaced_either() {
    for (way, home) in Way::all() {
        home.write("tree/file", "x\n");
        home.write("tree/other", "y\n");
        home.write("copy/file/deep/kept.log", "kept\n");
        home.write("copy/other/goes", "goes\n");
        for options in [&["--delete"][..], &["--delete", "-n"]] {
            let ran = way.sync(&home, &[options, &["--exclude", "*.log"]].concat());
            ran.code_is(5)
                .says(&["file (a folder there, a file in the source); nothing was copied"]);
            ran.says(&["--exclude"]).never_says(&["other ("]);
            assert_eq!(home.read("copy/file/deep/kept.log"), b"kept\n");
            assert_eq!(home.read("copy/other/goes"), b"goes\n");
        }
        // A folder that is left out by its kind.
        let ran = way.sync(&home, &["--delete", "--exclude", "file/"]);
        ran.code_is(5).says(&["file (a folder there, a file in the source)"]);
        fs::remove_dir_all(home.path("copy/file")).unwrap();
        way.sync(&home, &["--delete", "--exclude", "*.log"]).code_is(0);
        assert_same(&home.path("tree"), &home.path("copy"));
    }
}

#[test]
fn pipes_and_sockets_are_in_the_way_as_folders_are() {
    // A pipe on which somebody waited was replaced by a file, without a word and without --delete.
    for (way, home) in Way::all() {
        home.write("tree/file", "x\n");
        home.write("tree/folder/file", "y\n");
        home.write("tree/other", "z\n");
        symlink("file", home.path("tree/link")).unwrap();
        fs::create_dir(home.path("copy")).unwrap();
        for name in ["file", "folder", "link"] {
            let made =
                std::process::Command::new("mkfifo").arg(home.path("copy").join(name)).status();
            assert!(made.unwrap().success());
        }
        let _socket = std::os::unix::net::UnixListener::bind(home.path("copy/other")).unwrap();
        let before = seen(&home.path("copy"));
        for options in [&[][..], &["-n"], &["--compare", "none"]] {
            way.sync(&home, options).code_is(5).says(&[
                "file (a pipe there, a file in the source), folder (a pipe there, a folder in the source), \
                 link (a pipe there, a link in the source), other (a socket there, a file in the source); \
                 nothing was copied, and --delete would replace",
            ]);
        }
        assert_eq!(seen(&home.path("copy")), before);
        way.sync(&home, &["--delete"]).code_is(0);
        assert_same(&home.path("tree"), &home.path("copy"));
        // A single file neither.
        fs::remove_file(home.path("copy/file")).unwrap();
        fs::remove_file(home.path("copy/other")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(home.path("copy/other")).status();
        assert!(made.unwrap().success());
        let ran = home.run(["cp", "tree/other", "copy/"]);
        ran.code_is(5).says(&["other (a pipe there, a file in the source)"]);
    }
}
