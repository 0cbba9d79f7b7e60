//! Where a copy goes: below what a server serves and nowhere else, folders on the way, and the mode and
//! the time of the folder itself.

use std::fs;
use std::os::unix::fs::symlink;

use swath_jobs::CopySpec;

use crate::support::folder;
use crate::trees::{FILES, age, assert_same, bytes, chmod, names, plant, top, write};
use crate::ways::{Served, copied, copy_of, planned};

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_sent_as_it_is_and_into_what_is_there() {
    let home = folder();
    let at = |path: &str| home.path().join(path);
    let here = |path: &str| at(path).display().to_string();
    plant(&at("tree"));
    fs::create_dir(at("store")).unwrap();
    let server = Served::taking(&at("store")).await;
    let sent = copied(copy_of(&[&here("tree/"), &server.opened("new/")], |_| {})).await.unwrap();
    assert!(sent.is_whole && sent.counts[0] == FILES, "{sent:?}");
    assert_same(&at("tree"), &at("store/new"));
    // Without '/' at its end it is the folder itself.
    copied(copy_of(&[&here("tree"), &server.opened("")], |_| {})).await.unwrap();
    assert_same(&at("tree"), &at("store/tree"));
    write(at("more/deep/added"), "added\n");
    copied(copy_of(&[&here("more/"), &server.opened("new/")], |_| {})).await.unwrap();
    assert_eq!(fs::read(at("store/new/deep/added")).unwrap(), b"added\n");
    assert!(fs::read(at("store/new/large.bin")).unwrap() == bytes(1, 5_000_003));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_way_leads_out_of_what_is_served() {
    let home = folder();
    let at = |path: &str| home.path().join(path);
    let here = |path: &str| at(path).display().to_string();
    write(at("tree/file"), "x\n");
    fs::create_dir(at("outside")).unwrap();
    fs::create_dir(at("store")).unwrap();
    let server = Served::taking(&at("store")).await;
    symlink("../outside", at("store/link")).unwrap();
    symlink(at("outside"), at("store/absolute")).unwrap();
    write(at("store/file"), "in the way\n");
    for to in ["link/", "absolute/", "link/below/", "absolute/below/", "file/", "file/below/"] {
        let sent = copied(copy_of(&[&here("tree/"), &server.opened(to)], |_| {})).await;
        assert!(sent.is_err(), "{to}");
    }
    // A link that arrives with a tree is no way out for the next one.
    symlink("../../outside", at("tree/way")).unwrap();
    copied(copy_of(&[&here("tree/"), &server.opened("new/")], |_| {})).await.unwrap();
    write(at("second/way/file"), "y\n");
    let sent = copied(copy_of(&[&here("second/"), &server.opened("new/")], |_| {})).await;
    assert!(sent.is_err());
    assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_above_the_destination_are_made_there_as_they_are_here() {
    // A server refused with 404 what is done without a word where the destination is here.
    let home = folder();
    let at = |path: &str| home.path().join(path);
    let here = |path: &str| at(path).display().to_string();
    plant(&at("tree"));
    fs::create_dir(at("store")).unwrap();
    let server = Served::taking(&at("store")).await;
    let deep = server.opened("a/b%20c/d/");
    // A plan changes nothing.
    let plan = copy_of(&[&here("tree/"), &deep], |copy| (copy.dry_run, copy.delete) = (true, true));
    let plan = planned(&plan).await.unwrap();
    assert!(plan.len() > 100 && plan.iter().all(|line| line.starts_with("copy ")), "{plan:?}");
    // Nor does somebody who may only read.
    let unopened = server.at("a/b%20c/d/");
    assert!(copied(copy_of(&[&here("tree/"), &unopened], |_| {})).await.is_err());
    assert_eq!(names(&at("store")), [""; 0]);
    let send = || copied(copy_of(&[&here("tree/"), &deep], |_| {}));
    send().await.unwrap();
    assert_same(&at("tree"), &at("store/a/b c/d"));
    assert_eq!(send().await.unwrap().kept_files, FILES);
    assert_eq!(names(&at("store/a/b c")), ["d"]);
    // The same from a server and here.
    for [from, to] in
        [[server.opened("a/b%20c/d/"), here("here/e/f/")], [here("here/e/f/"), here("here/g/h/")]]
    {
        copied(copy_of(&[&from, &to], |_| {})).await.unwrap();
    }
    assert_same(&at("tree"), &at("here/g/h"));
    let below_a_file = server.opened("a/b%20c/d/empty/z/");
    assert!(copied(copy_of(&[&here("tree/"), &below_a_file], |_| {})).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_folder_stays_private_when_it_is_copied() {
    // The folder itself is no entry of an index: all that lay in it had its own mode and time, and the
    // folder was open to everybody.
    let home = folder();
    let at = |path: &str| home.path().join(path);
    let here = |path: &str| at(path).display().to_string();
    write(at("tree/file"), bytes(1, 3_000_001));
    write(at("tree/below/file"), "x\n");
    chmod(at("tree"), 0o3710);
    age(at("tree"), 1_000_000_000);
    // All that a source may say but for who others are while one of its files is run.
    let private = (0o1710, 1_000_000_000, 123_456_789);
    fs::create_dir(at("store")).unwrap();
    let usual = top(&at("store")).0;
    let reading = Served::reading(&at("tree")).await;
    let writing = Served::taking(&at("store")).await;
    let of_tree = || here("tree/");
    for (from, to, there) in [
        (of_tree(), here("here"), "here"),
        (here("tree"), here("into/"), "into/tree"),
        (reading.at(""), here("from"), "from"),
        (of_tree(), writing.opened("sent/"), "store/sent"),
        (of_tree(), writing.opened("a/b/sent/"), "store/a/b/sent"),
    ] {
        copied(copy_of(&[&from, &to], |_| {})).await.unwrap();
        assert_eq!(top(&at(there)), private, "{there}");
        // What was there before is its owner's affair.
        chmod(at(there), 0o750);
        fs::write(at(there).join("below/file"), "changed\n").unwrap();
        let own = top(&at(there));
        copied(copy_of(&[&from, &to], |_| {})).await.unwrap();
        assert_eq!(at(there).join("below/file").metadata().unwrap().len(), 2);
        assert_eq!(top(&at(there)), own, "{there}");
    }
    let part = |copy: &mut CopySpec| copy.include.push("below".to_owned());
    copied(copy_of(&[&reading.at(""), &here("part")], part)).await.unwrap();
    assert_eq!(top(&at("part")), private);
    // Of the folder that a single file lies in nothing is told.
    for (from, to) in [(here("tree/file"), "single here"), (reading.at("file"), "single from")] {
        let to_folder = here(&format!("{to}/"));
        copied(copy_of(&[&from, &to_folder], |_| {})).await.unwrap();
        assert_eq!(top(&at(to)).0, usual, "{to}");
    }
    // Folders on the way are nobody's.
    assert_eq!(top(&at("into")).0, usual);
    assert_eq!(top(&at("store/a/b")).0, usual);
    for (has_mode, has_time) in [(false, true), (true, false), (false, false)] {
        for (from, way) in [(of_tree(), "here"), (reading.at(""), "from")] {
            let to = format!("{has_mode} {has_time} {way}");
            let keep = |copy: &mut CopySpec| {
                (copy.preserve.mode, copy.preserve.times) = (has_mode, has_time);
            };
            copied(copy_of(&[&from, &here(&to)], keep)).await.unwrap();
            let (mode, seconds, nanoseconds) = top(&at(&to));
            assert_eq!(mode, if has_mode { private.0 } else { usual }, "{to}");
            assert_eq!((seconds, nanoseconds) == (private.1, private.2), has_time, "{to}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_go_as_they_are_whatever_is_in_them() {
    // An address drops tabs and line ends, so "a<TAB>b" replaced "ab", which was another file.
    let home = folder();
    let at = |path: &str| home.path().join(path);
    let here = |path: &str| at(path).display().to_string();
    fs::create_dir_all(at("store/folder")).unwrap();
    let server = Served::taking(&at("store")).await;
    let odd = ["a\tb", "new\nline", "100%41 ä?#", "\u{1b}[31m"];
    write(at("store/ab"), "as it was");
    for name in odd {
        write(at("from").join(name), name);
        write(at("folders").join(name).join("file"), name);
        let (file, tree) = (here(&format!("from/{name}")), here(&format!("folders/{name}")));
        copied(copy_of(&[&file, &server.opened("")], |_| {})).await.unwrap();
        copied(copy_of(&[&tree, &server.opened("folder/")], |_| {})).await.unwrap();
        assert_eq!(fs::read(at("store").join(name)).unwrap(), name.as_bytes());
        let below = at("store/folder").join(name).join("file");
        assert_eq!(fs::read(below).unwrap(), name.as_bytes());
    }
    assert_eq!(fs::read(at("store/ab")).unwrap(), b"as it was");
    assert_eq!(names(&at("store")).len(), 2 + odd.len());
    // And back, one by one: an address can have any character.
    let coded = |name: &str| name.bytes().map(|it| format!("%{it:02x}")).collect::<String>();
    let longest = "n".repeat(255);
    fs::create_dir(at("back")).unwrap();
    for name in odd.into_iter().chain(["back\\slash", &longest]) {
        write(at("store").join(name), name);
        let url = server.opened(&coded(name));
        for (to, there) in [("back/", name), ("back/called so", "called so")] {
            copied(copy_of(&[&url, &here(to)], |_| {})).await.unwrap();
            assert_eq!(fs::read(at("back").join(there)).unwrap(), name.as_bytes());
        }
    }
}
