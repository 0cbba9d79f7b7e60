//! `swath sync` once more: what is there as it should be is left as it is, links and further names of
//! files among it, and what is not is put right.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::Home;
use crate::support::trees::{assert_same, bytes, plant};
use crate::support::ways::Way;

/// Everything that can be seen of a tree, with inodes, numbers of names and, but for folders, the
/// times of changes of any kind.
fn all_of(tree: &Path) -> String {
    let mut find = Command::new("find");
    find.arg(tree);
    find.args(["(", "-type", "d", "-printf", "%P\\t%i\\t%m\\t%T@\\n", ")", "-o"]);
    find.args(["-printf", "%P\\t%i\\t%n\\t%m\\t%s\\t%T@\\t%C@\\t%l\\n"]);
    let found = find.output().unwrap();
    assert!(found.status.success());
    let mut lines: Vec<_> =
        String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines.join("\n")
}

/// A tree with files of several names, large and small ones, and with links.
fn plant_linked(home: &Home) {
    plant(home);
    let tree = |name: &str| home.path("tree").join(name);
    fs::hard_link(tree("large.bin"), tree("many/also large.bin")).unwrap();
    fs::hard_link(tree("many/5/5.dat"), tree("a first name")).unwrap();
    fs::hard_link(tree("many/5/5.dat"), tree("z")).unwrap();
    fs::hard_link(tree("empty"), tree("many/empty")).unwrap();
    symlink("nowhere at all", tree("many/5/link")).unwrap();
}

fn inode(home: &Home, path: &str) -> u64 {
    home.path(path).symlink_metadata().unwrap().ino()
}

const LINKS: &[&str] = &["--preserve", "mode,times,links"];

#[test]
fn what_has_several_names_and_links_are_left_alone_too() {
    // They were fetched and made anew by every run.
    for (way, home) in Way::all() {
        plant_linked(&home);
        for options in [LINKS, &[]] {
            assert!(way.fetched_bytes(&home, options) > 0);
            assert_same(&home.path("tree"), &home.path("copy"));
            let before = all_of(&home.path("copy"));
            for more in [&[][..], &["--checksum"], &["--delete"]] {
                let options = [options, more].concat();
                assert_eq!(way.plan(&home, &options), [""; 0]);
                assert_eq!(way.fetched_bytes(&home, &options), 0);
                assert_eq!(all_of(&home.path("copy")), before, "{}: {options:?}", way.name);
            }
            fs::remove_dir_all(home.path("copy")).unwrap();
        }
    }
}

#[test]
fn a_link_with_another_target_is_put_right() {
    for (way, home) in Way::all() {
        plant_linked(&home);
        way.sync(&home, &[]).code_is(0);
        fs::remove_file(home.path("tree/link")).unwrap();
        symlink("elsewhere", home.path("tree/link")).unwrap();
        fs::remove_file(home.path("copy/many/out")).unwrap();
        symlink("changed", home.path("copy/many/out")).unwrap();
        // A file where a link is to be.
        fs::remove_file(home.path("copy/many/5/link")).unwrap();
        home.write("copy/many/5/link", "a file\n");
        assert_eq!(way.plan(&home, &[]), ["copy link", "copy many/5/link", "copy many/out"]);
        assert_eq!(way.fetched_bytes(&home, &[]), 0);
        assert_same(&home.path("tree"), &home.path("copy"));
        // The target is the same, the time is not: it gets the tree's.
        let before = inode(&home, "copy/link");
        let mut touch = Command::new("touch");
        touch.args(["-h", "-d", "2001-01-01", "copy/link"]).current_dir(home.work());
        assert!(touch.status().unwrap().success());
        assert_eq!(way.plan(&home, &[]), [""; 0]);
        way.sync(&home, &[]).code_is(0);
        assert_same(&home.path("tree"), &home.path("copy"));
        assert_eq!(inode(&home, "copy/link"), before);
    }
}

#[test]
fn names_that_came_apart_or_together_at_either_side_are_put_right() {
    for (way, home) in Way::all() {
        plant_linked(&home);
        way.sync(&home, LINKS).code_is(0);
        let apart = |tree: &str, name: &str| {
            let cp = ["-p", "--no-dereference", name, "apart"];
            let at = home.path(tree);
            assert!(Command::new("cp").args(cp).current_dir(&at).status().unwrap().success());
            fs::rename(at.join("apart"), at.join(name)).unwrap();
        };
        // Here they came apart: nothing has to come.
        apart("copy", "many/also large.bin");
        apart("copy", "z");
        assert_eq!(way.plan(&home, LINKS), ["copy large.bin", "copy z"]);
        assert_eq!(way.fetched_bytes(&home, LINKS), 0);
        assert_eq!(inode(&home, "copy/large.bin"), inode(&home, "copy/many/also large.bin"));
        for name in ["many/5/5.dat", "z"] {
            assert_eq!(inode(&home, "copy/a first name"), inode(&home, &format!("copy/{name}")));
        }
        // There they came apart, with the same size and time.
        apart("tree", "z");
        assert_eq!(way.plan(&home, LINKS), ["copy z"]);
        way.sync(&home, LINKS).code_is(0);
        assert_eq!(fs::metadata(home.path("copy/a first name")).unwrap().nlink(), 2);
        assert_eq!(fs::metadata(home.path("copy/z")).unwrap().nlink(), 1);
        // One of them has another file's name here, and one is not there any more.
        fs::remove_file(home.path("copy/many/5/5.dat")).unwrap();
        fs::hard_link(home.path("copy/z"), home.path("copy/many/5/5.dat")).unwrap();
        fs::remove_file(home.path("copy/many/also large.bin")).unwrap();
        way.sync(&home, LINKS).code_is(0);
        assert_same(&home.path("tree"), &home.path("copy"));
        assert_eq!(inode(&home, "copy/a first name"), inode(&home, "copy/many/5/5.dat"));
        assert_eq!(inode(&home, "copy/large.bin"), inode(&home, "copy/many/also large.bin"));
        assert_ne!(inode(&home, "copy/a first name"), inode(&home, "copy/z"));
        // The file is another one.
        home.write("tree/a first name", "written through all its names\n");
        way.sync(&home, LINKS).code_is(0);
        assert_same(&home.path("tree"), &home.path("copy"));
        assert_eq!(inode(&home, "copy/a first name"), inode(&home, "copy/many/5/5.dat"));
        let before = all_of(&home.path("copy"));
        assert_eq!(way.fetched_bytes(&home, LINKS), 0);
        assert_eq!(all_of(&home.path("copy")), before);
    }
}

#[test]
fn copies_of_what_has_several_names_are_compared_each_for_itself() {
    for (way, home) in Way::all() {
        plant_linked(&home);
        way.sync(&home, &[]).code_is(0);
        let large = home.path("copy/many/also large.bin");
        assert_ne!(inode(&home, "copy/large.bin"), inode(&home, "copy/many/also large.bin"));
        // Another time, and another mode.
        let before = inode(&home, "copy/large.bin");
        let file = fs::File::options().write(true).open(&large).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1000)).unwrap();
        fs::set_permissions(home.path("copy/z"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(way.plan(&home, &[]), ["copy large.bin"]);
        assert_eq!(way.fetched_bytes(&home, &[]), 0);
        assert_same(&home.path("tree"), &home.path("copy"));
        assert_eq!(inode(&home, "copy/large.bin"), before);
        // The same size and time, and other bytes.
        let time = fs::metadata(&large).unwrap().modified().unwrap();
        let mut wrong = bytes(1, 5_000_003);
        wrong[4_000_000] ^= 1;
        fs::write(&large, wrong).unwrap();
        fs::File::options().write(true).open(&large).unwrap().set_modified(time).unwrap();
        assert_eq!(way.fetched_bytes(&home, &["--checksum"]), 0);
        assert_same(&home.path("tree"), &home.path("copy"));
        assert_eq!(inode(&home, "copy/large.bin"), before);
    }
}
