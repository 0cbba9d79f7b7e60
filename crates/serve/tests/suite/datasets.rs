//! Folders as datasets: their index, ranges of their bytes, and what changed since.

use std::io::Read as _;
use std::os::unix::fs::FileExt as _;

use swath_serve::{Filter, Only, Reads, Single};

use crate::support::{Answer, Served, Tree, auth, bytes, head_of};

/// The index of a folder, and the name of its walk.
#[track_caller]
fn index(server: &Served, folder: &str, query: &str) -> (Answer, String) {
    let answer = server.get(&format!("/{folder}?swath=index{query}"));
    let walk = answer.is(200).field("swath-walk").unwrap();
    (answer, walk)
}

fn range(server: &Served, target: &str, range: &str) -> Answer {
    server.ask(&format!("GET {target} HTTP/1.1\r\nRange: bytes={range}"))
}

#[test]
fn an_index_names_its_walk_and_comes_again() {
    let tree = Tree::of(&[("tree/a.txt", "alpha\n"), ("tree/sub/b", "beta\n")]);
    let server = tree.serve(&["tree"]);
    let (first, walk) = index(&server, "", "");
    assert_eq!(first.field("content-type").as_deref(), Some("application/vnd.swath.index"));
    assert!(!first.body().is_empty());
    let again = server.get(&format!("/?swath=index&walk={walk}"));
    assert!(again.is(200).body() == first.body());
    assert_eq!(again.field("swath-walk"), Some(walk));
    // Each that is asked for anew is a walk of its own.
    let (_, other) = index(&server, "", "");
    assert_ne!(again.field("swath-walk"), Some(other));
}

#[test]
fn data_come_by_any_range() {
    let all = bytes(7, (2 << 20) + 999);
    let tree = Tree::new();
    tree.write("tree/file", &all);
    for reads in [Reads::Direct, Reads::Buffered, Reads::Auto] {
        let server = tree.plan(&["tree"]).with(|site| site.reads = reads).start();
        let (_, walk) = index(&server, "", "");
        let target = format!("/?swath=data&walk={walk}");
        assert!(server.get(&target).body() == all, "{reads:?}");
        for (first, last) in [
            (0, all.len() - 1),
            (1, 1),
            (4095, 4096),
            (511, (1 << 20) + 513),
            ((1 << 20) - 1, 1 << 20),
            (2 << 20, all.len() - 1),
            (all.len() - 1, all.len() - 1),
            (262_143, 2_000_001),
        ] {
            let part = range(&server, &target, &format!("{first}-{last}"));
            assert!(part.is(206).body() == all[first..=last], "{reads:?} {first}-{last}");
        }
        range(&server, &target, &format!("{}-", all.len())).is(416);
    }
}

/// All files of a folder are one, in the order of its index.
#[test]
fn the_bytes_of_all_files_are_one_behind_the_other() {
    let tree = Tree::of(&[("tree/a", "first "), ("tree/b/c", "second "), ("tree/d", "third ")]);
    tree.write("tree/empty", "");
    let server = tree.serve(&["tree"]);
    let (_, walk) = index(&server, "", "");
    let target = format!("/?swath=data&walk={walk}");
    let all = server.get(&target).text();
    let mut words: Vec<&str> = all.split_whitespace().collect();
    words.sort_unstable();
    assert_eq!(words, ["first", "second", "third"]);
    let across = range(&server, &target, "3-9");
    assert_eq!(across.is(206).text(), all[3..=9]);
}

#[test]
fn where_nothing_changed_there_is_no_line() {
    let tree = Tree::of(&[("tree/a.txt", "alpha\n")]);
    let server = tree.serve(&["tree"]);
    let (_, walk) = index(&server, "", "");
    let changed = server.get(&format!("/?swath=changed&walk={walk}"));
    assert_eq!(changed.is(200).text(), "");
    // With several ranges all of it comes, as docs/protocol.md says.
    range(&server, &format!("/?swath=sealed&walk={walk}"), "0-1,4-5").is(200);
}

#[test]
fn what_changes_while_it_is_read_is_told() {
    // More than two sockets hold: the answer is under way when the file changes.
    let old = bytes(8, 24 << 20);
    let tree = Tree::new();
    tree.write("tree/file", &old);
    let server = tree.plan(&["tree"]).with(|site| site.reads = Reads::Direct).start();
    let (_, walk) = index(&server, "", "");
    let request = format!("GET /?swath=data&walk={walk} HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut tcp = server.hold(&request);
    let mut got = vec![0; 1 << 20];
    tcp.read_exact(&mut got).unwrap();
    let file = std::fs::File::options().write(true).open(tree.path("tree/file")).unwrap();
    file.write_all_at(b"new", old.len() as u64 - 100).unwrap();
    let _ = tcp.read_to_end(&mut got);
    let begin = got.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = &got[begin..];
    assert!(body.len() < old.len(), "the answer ends early");
    assert!(body == &old[..body.len()], "what came by then is as it was");
    let changed = server.get(&format!("/?swath=changed&walk={walk}"));
    assert_eq!(changed.text().trim_end(), "0 changed");
}

#[test]
fn a_walk_that_is_not_known_is_said_to_be() {
    let tree = Tree::of(&[("tree/a/x", "x"), ("tree/b/x", "x")]);
    let server = tree.serve(&["tree"]);
    let (_, walk) = index(&server, "a/", "");
    for what in ["sealed", "data", "changed", "seals", "index"] {
        server.get(&format!("/?swath={what}&walk={}", "0".repeat(32))).is(410);
        // That of one folder opens no other one.
        server.get(&format!("/b/?swath={what}&walk={walk}")).is(410);
    }
    for what in ["sealed", "data", "changed", "seals"] {
        server.get(&format!("/?swath={what}")).is(400).has(&["'walk=' is missing"]);
    }
    server.get("/?swath=miracles").is(400);
    server.get("/none/?swath=index").is(404);
}

#[test]
fn a_part_of_a_folder_is_a_dataset_too() {
    let tree = Tree::of(&[("tree/a.txt", "text"), ("tree/b.bin", "binary")]);
    let server = tree.serve(&["tree"]);
    let data = |query: &str| {
        let (index, walk) = index(&server, "", query);
        assert_eq!(index.field("swath-filtered").as_deref(), Some("yes"), "{query}");
        server.get(&format!("/?swath=data&walk={walk}")).text()
    };
    assert_eq!(data("&include=*.txt"), "text");
    assert_eq!(data("&exclude=*.txt"), "binary");
    assert_eq!(data("&file=b.bin&as=another"), "binary");
    for wrong in ["&file=none", "&file="] {
        let status = server.get(&format!("/?swath=index{wrong}")).status();
        assert!(matches!(status, 400 | 404), "{wrong}: {status}");
    }
    for wrong in ["&file=..%2fsecret", "&file=a.txt&as=..", "&file=a.txt&as=a%2fb"] {
        server.get(&format!("/?swath=index{wrong}")).is(400);
    }
}

#[test]
fn what_alone_is_offered_is_all_that_can_be_asked_for() {
    let tree = Tree::of(&[("tree/a.txt", "text"), ("tree/b.bin", "binary")]);
    let part = Filter::new(&["*.txt".to_owned()], &[]).unwrap();
    let file = Single { path: b"a.txt".to_vec(), name: b"other".to_vec() };
    for only in [Only::Part(Box::new(part)), Only::File(file)] {
        let server = tree.plan(&["tree"]).with(|site| site.only = Some(only)).start();
        // Whatever else the client asks for.
        for query in ["", "&include=*.bin", "&file=b.bin"] {
            let (_, walk) = index(&server, "", query);
            assert_eq!(server.get(&format!("/?swath=data&walk={walk}")).text(), "text", "{query}");
        }
        for path in ["/", "/a.txt", "/b.bin", "/?format=json"] {
            server.get(path).is(404);
        }
        server.get("/health").is(200);
    }
}

#[test]
fn a_tree_sent_onto_a_file_is_in_its_way() {
    let tree = Tree::of(&[("tree/h", "a file\n")]);
    let server = tree.plan(&["tree"]).writes().start();
    for target in ["/h/?swath=receive", "/h?swath=receive&dry=yes", "/h/below/?swath=receive"] {
        server.ask(&format!("POST {target} HTTP/1.1\r\n{}", auth())).is(409);
    }
    assert_eq!(tree.read("tree/h"), b"a file\n");
}

#[test]
fn group_hashes_come_for_the_groups_that_are_asked_for() {
    let tree = Tree::new();
    tree.write("tree/file", bytes(3, 3 << 20));
    let server = tree.serve(&["tree"]);
    let (_, walk) = index(&server, "", "");
    let of = |groups: &str| server.get(&format!("/?swath=seals&walk={walk}&groups={groups}"));
    let some = of("0-1");
    let all = of("0-3");
    assert!(!some.is(200).body().is_empty());
    assert!(all.is(200).body().starts_with(&some.body()));
    for wrong in ["", "x", "3-1"] {
        of(wrong).is(400);
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_leaves_its_walk() {
    let tree = Tree::new();
    tree.write("tree/file", bytes(3, 24 << 20));
    let server = tree.serve(&["tree"]);
    let (_, walk) = index(&server, "", "");
    let target = format!("/?swath=sealed&walk={walk}");
    for _ in 0..3 {
        let mut tcp = server.hold(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert!(head_of(&mut tcp).starts_with("HTTP/1.1 200 "));
    }
    range(&server, &target, "0-9").is(206);
}
