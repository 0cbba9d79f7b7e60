//! `swath get` with Metalinks: given, found, hostile; and lists.

use crate::support::Home;
use crate::support::net::{FILE, honest, server, url};
use swath_netlab::faulty::{Algorithm, Behaviour, Content, MetalinkFile, Server, metalink};

const SIZE: u64 = 3_000_017;

fn described(name: &str, content: &Content, urls: &[String]) -> String {
    metalink(&[MetalinkFile {
        name,
        content,
        urls,
        digests: &[Algorithm::Sha256],
        piece_bytes: Some(262_144),
    }])
}

#[test]
fn a_metalink_from_a_file_and_from_an_address() {
    let content = Content::random(1, SIZE);
    let (one, two) = (honest(&content), honest(&content));
    let text = described("run/data.h5", &content, &[url(&one), url(&two)]);
    let home = Home::new();
    home.write("../x.meta4", &text);
    home.run(["get", "../x.meta4", "-d", "out"]).code_is(0).says(&["pieces by sha-256"]);
    home.holds("out/run/data.h5", &content);
    let catalogue = Server::builder().file("/x.meta4", Content::bytes(text)).start().unwrap();
    home.run(["get", &catalogue.url("/x.meta4"), "-o", "other.h5"]).code_is(0);
    home.holds("other.h5", &content);
}

#[test]
fn a_metalink_that_cannot_be_had_or_read() {
    let home = Home::new();
    let bad =
        Server::builder().file("/x.meta4", Content::bytes("this is no XML <")).start().unwrap();
    home.run(["get", &bad.url("/x.meta4")]).code_is(6).says(&[&bad.url("/x.meta4")]);
    home.run(["get", &bad.url("/y.meta4")]).code_is(7).says(&["404", &bad.url("/y.meta4")]);
    home.run(["get", "missing.meta4"])
        .code_is(6)
        .says(&["missing.meta4 is neither a URL nor a file"]);
    home.write("empty.meta4", "");
    home.run(["get", "empty.meta4"]).code_is(6).says(&["empty.meta4"]);
    assert_eq!(home.names(), ["empty.meta4"]);
}

#[test]
fn several_files_of_one_metalink() {
    let contents: Vec<Content> =
        [0, 1, 300_001, 2_000_003].iter().map(|&size| Content::random(size, size)).collect();
    let mut builder = Server::builder();
    for (at, content) in contents.iter().enumerate() {
        builder = builder.file(&format!("/{at}"), content.clone());
    }
    let all = builder.start().unwrap();
    let names: Vec<String> = (0..4).map(|at| format!("set/part {at}.bin")).collect();
    let urls: Vec<[String; 1]> = (0..4).map(|at| [all.url(&format!("/{at}"))]).collect();
    let files: Vec<MetalinkFile<'_>> = (0..4)
        .map(|at| MetalinkFile {
            name: &names[at],
            content: &contents[at],
            urls: &urls[at],
            digests: &[Algorithm::Sha256],
            piece_bytes: None,
        })
        .collect();
    let text = metalink(&files);
    let home = Home::new();
    home.write("../x.meta4", &text);
    home.run(["get", "../x.meta4"]).code_is(0);
    for (name, content) in names.iter().zip(&contents) {
        home.holds(name, content);
    }
    home.run(["get", "../x.meta4", "-o", "one"])
        .code_is(2)
        .says(&[" lists 4 files: use -d DIR instead of -o"]);
    // One that cannot be had: the others come, and the exit code says so.
    all.set_on("/2", Behaviour::status(404));
    let other = Home::new();
    other.write("../x.meta4", &text);
    other.run(["get", "../x.meta4"]).code_is(8).says(&["part 2.bin", "404"]);
    other.holds(&names[3], &contents[3]);
    other.lacks(&names[2]);
}

#[test]
fn hostile_names_never_leave_the_folder() {
    let content = Content::random(2, 1000);
    let source = honest(&content);
    for name in [
        "../evil",
        "/tmp/swath-evil",
        "a/../../evil",
        "x\u{1}y",
        "..",
        "",
        "a/./b",
        "c:\\evil",
        "\u{202e}gpj.exe",
    ] {
        let home = Home::new();
        let text = described(name, &content, &[url(&source)]).replace('\u{1}', "&#1;");
        home.write("in/x.meta4", &text);
        let ran = home.run(["get", "in/x.meta4", "-d", "out"]);
        if ran.code() != 0 {
            ran.code_is(6).says(&["in/x.meta4"]).never_says(&["\u{1}"]);
        }
        let outside: Vec<String> =
            home.names().into_iter().filter(|name| name != "in" && name != "out").collect();
        assert!(outside.is_empty(), "{name:?} led to {outside:?}");
        assert!(!std::path::Path::new("/tmp/swath-evil").exists());
        assert!(!home.path("../evil").exists() && !home.path("../../evil").exists());
    }
}

#[test]
fn xml_bombs_are_refused_quickly() {
    let home = Home::new();
    let bomb = "<?xml version=\"1.0\"?><!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]>\
        <metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"&b;\"/></metalink>";
    let deep =
        format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{}", "<a>".repeat(500_000));
    let outside = "<?xml version=\"1.0\"?><!DOCTYPE x [<!ENTITY e SYSTEM \"file:///etc/passwd\">]>\
        <metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"x\"><url>&e;</url></file></metalink>";
    for text in [bomb, &deep, outside] {
        home.write("x.meta4", text);
        let ran = home.run(["get", "x.meta4"]);
        ran.code_is(6).says(&["x.meta4"]).never_says(&["root:"]);
        assert!(ran.stderr.len() < 2000, "{ran}");
    }
    assert_eq!(home.names(), ["x.meta4"]);
}

#[test]
fn mirrors_and_metalinks_that_servers_name_are_told_of() {
    let content = Content::random(3, 600_001);
    let other = honest(&content);
    let link = format!("<{}>; rel=duplicate; pri=1; geo=ch", url(&other));
    let beside = "</d.meta4>; rel=describedby; type=\"application/metalink4+xml\"";
    let home = Home::new();
    let first = server(&content, Behaviour::header("Link", link));
    home.run(["get", &url(&first), "--header", "X-Key: hush-hush"])
        .code_is(0)
        .says(&["names 1 more mirror"])
        .never_says(&["hush"]);
    home.holds_only("data.bin", &content);
    let first = Server::builder()
        .file(FILE, content.clone())
        .behaviour_on(FILE, Behaviour::header("Link", beside))
        .start()
        .unwrap();
    // A description that is gone does no harm.
    home.run(["get", &url(&first), "-o", "two"]).code_is(0).says(&["continuing without it"]);
    first.put("/d.meta4", Content::bytes(described("x", &content, &[url(&other)])));
    // On a busy machine it may come too late, and the file does not wait for it.
    let mut runs = (0..5).map(|_| home.run(["get", &url(&first), "-o", "three", "--overwrite"]));
    let ran = runs.find(|ran| !ran.stderr.contains("did not arrive within"));
    ran.expect("it is late each time").code_is(0).says(&["pieces by sha-256"]);
    home.holds("three", &content);
    let negotiated = honest(&content);
    let urls = [url(&other), url(&negotiated)];
    negotiated.set(Behaviour::Metalink(described("data.bin", &content, &urls)));
    home.run(["get", &url(&negotiated), "-o", "four"])
        .code_is(0)
        .says(&["pieces by sha-256", "is a Metalink: 1 file, 2 mirrors"])
        // It is no failure, and was shown as one before the success.
        .never_says(&["stopped", "limited by nothing"]);
    let ran = home.run(["get", &url(&negotiated), "-o", "five", "--json"]);
    ran.code_is(0);
    let out = ran.out();
    assert!(out.contains("\"event\":\"metalink\""), "{ran}");
    // A swath may well have failed: one that is cut off at the end has.
    assert!(!out.contains("\"event\":\"failed\""), "{ran}");
    home.holds("five", &content);
}

#[test]
fn several_addresses_of_one_metalink_are_alternatives() {
    let content = Content::random(4, SIZE);
    let source = honest(&content);
    let text = described("data.bin", &content, &[url(&source)]);
    let good = Server::builder().file("/x.meta4", Content::bytes(text.clone())).start().unwrap();
    let gone = Server::builder().start().unwrap();
    let home = Home::new();
    home.run(["get", &gone.url("/x.meta4"), &good.url("/x.meta4")]).code_is(0);
    home.holds_only("data.bin", &content);
    home.run(["get", &gone.url("/x.meta4"), &gone.url("/y.meta4")]).code_is(7).says(&["y.meta4"]);
    home.run(["get", &good.url("/x.meta4"), &url(&source)])
        .code_is(2)
        .says(&["is a Metalink: give it as the only source"]);
    home.write("x.meta4", &text);
    home.write("y.meta4", &text);
    for other in ["y.meta4", &url(&source)] {
        home.run(["get", "x.meta4", other])
            .code_is(2)
            .says(&["x.meta4 is a Metalink: give it as the only source"]);
    }
}

#[test]
fn a_list_with_mistakes_fetches_the_rest() {
    let a = Content::random(1, 700_001);
    let one = Server::builder().file("/a", a.clone()).start().unwrap();
    let list = format!(
        "{}\n  out=../up\nnot a url\n{}\n{}\n  out=wrong\n  checksum=sha-256={}\n{}\n",
        one.url("/a"),
        one.url("/gone"),
        one.url("/a"),
        "0".repeat(64),
        one.url("/a")
    );
    let home = Home::new();
    home.write("in/list.txt", &list);
    let ran = home.run(["get", "-i", "in/list.txt", "-d", "out"]);
    ran.code_is(8).says(&["404", "gone", "wrong"]);
    home.holds("out/a", &a);
    home.lacks("up");
    home.lacks("out/wrong");
    home.run(["get", "-i", "missing.txt"]).code_is(6).says(&["missing.txt"]);
    assert!(server(&a, Behaviour::Close).is_alive());
}
