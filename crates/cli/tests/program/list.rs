//! `swath ls` and `swath du` of servers.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use crate::support::Home;

#[test]
fn a_file_is_shown_as_a_file() {
    // It was asked for as a folder, and said to be not there.
    let home = Home::new();
    home.write("tree/sub/a b%.txt", "alpha\n");
    fs::write(home.path("tree/sub").join(OsStr::from_bytes(b"no\xFFtext")), "bytes\n").unwrap();
    std::os::unix::fs::symlink("a b%.txt", home.path("tree/sub/link")).unwrap();
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let out = |args: &[&str]| home.run(args).code_is(0).out();
    let file = server.at("sub/a%20b%25.txt");
    assert_eq!(out(&["ls", &file]), "a b%.txt\n");
    assert_eq!(out(&["ls", "-R", &file]), "a b%.txt\n");
    let long = out(&["ls", "-l", &file]);
    assert!(long.starts_with("0644  6 B  20") && long.ends_with("  a b%.txt\n"), "{long}");
    assert_eq!(out(&["du", &file]), "      6 B  a b%.txt\n      6 B  in 1 file and 0 folders\n");
    assert!(out(&["ls", "-l", &server.at("sub/link")]).ends_with("  link -> a b%.txt\n"));
    let json = out(&["ls", "--json", &server.at("sub/no%FFtext")]);
    let line: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&line["size"], &line["address"]), (&6.into(), &"no%FFtext".into()));
    // A folder is one with or without a slash at its end.
    assert_eq!(out(&["ls", &server.at("sub")]), out(&["ls", &server.at("sub/")]));
    for none in ["sub/none", "none/at/all", "none/", "sub/a%20b%25.txt/"] {
        for command in ["ls", "du"] {
            home.run([command, &server.at(none)]).code_is(7).says(&["404"]);
        }
    }
}

#[test]
fn names_that_are_no_text_are_told_to_the_byte() {
    let home = Home::new();
    fs::create_dir_all(home.path("tree").join(OsStr::from_bytes(b"fo\xFE"))).unwrap();
    for path in [&b"fo\xFE/no\xFFtext"[..], b"fo\xFE/text", b"a\xFFb", b"text"] {
        fs::write(home.path("tree").join(OsStr::from_bytes(path)), "x").unwrap();
    }
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let told = |args: &[&str]| -> Vec<(String, Option<String>)> {
        let out = home.run(["ls", "--json", &server.url].iter().chain(args)).code_is(0).out();
        let line = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| line[name].as_str().map(str::to_owned);
            (text("name").unwrap(), text("address"))
        };
        out.lines().map(line).collect()
    };
    let pair = |name: &str, address: &str| {
        (name.to_owned(), (!address.is_empty()).then(|| address.to_owned()))
    };
    let (odd, folder) = (pair("a\u{fffd}b", "a%FFb"), pair("fo\u{fffd}", "fo%FE"));
    assert_eq!(told(&[]), [folder.clone(), odd.clone(), pair("text", "")]);
    let below = [
        pair("fo\u{fffd}/no\u{fffd}text", "fo%FE/no%FFtext"),
        pair("fo\u{fffd}/text", "fo%FE/text"),
    ];
    assert_eq!(told(&["-R"]), [&[odd, folder][..], &below, &[pair("text", "")]].concat());
    // What is told leads there.
    let text = home.run(["ls", "--json", &server.at("fo%FE/no%FFtext")]).code_is(0).out();
    assert!(text.contains("\"no%FFtext\""), "{text}");
}

#[test]
fn further_names_of_a_file_are_shown_as_what_they_are() {
    // All of them were shown as "0000", without a size.
    let home = Home::new();
    home.write("tree/a/first", "alpha\n");
    fs::hard_link(home.path("tree/a/first"), home.path("tree/other")).unwrap();
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let out = |args: &[&str]| home.run(args).code_is(0).out();
    let long = out(&["ls", "-lR", &server.url]);
    let last = long.lines().last().unwrap();
    assert!(last.starts_with("0644  6 B  20"), "{long}");
    assert!(last.ends_with("  other (another name of a/first)"), "{long}");
    let json = out(&["ls", "-R", "--json", &server.url]);
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [_, first, other] = &lines[..] else { panic!("{json}") };
    for of_both in ["size", "mode", "mtime", "kind"] {
        assert!(first[of_both] == other[of_both] && !first[of_both].is_null(), "{json}");
    }
    assert_eq!((&first["same_as"], &other["same_as"]), (&().into(), &"a/first".into()));
    // To the last digit.
    use std::os::unix::fs::MetadataExt as _;
    let found = home.path("tree/a/first").metadata().unwrap();
    let mtime = format!("\"mtime\":{}.{:09}", found.mtime(), found.mtime_nsec());
    assert!(json.matches(&mtime).count() >= 2, "{mtime}: {json}");
}
