//! Lists, and Metalinks of several files: names, mirrors and checksums of each, and mistakes, which cost
//! no other file.

use std::os::unix::fs::symlink;

use swath_jobs::{FileCounts, JobError, Outcome};
use swath_netlab::faulty::{Algorithm, Behaviour, Content, MetalinkFile, Server, metalink};

use crate::fetching::{FILE, Place, Ran, building};
use crate::support::sha256;

fn honest(content: &Content) -> Server {
    building(content).start().unwrap()
}

fn hex(content: &Content) -> String {
    content.digest_hex(Algorithm::Sha256)
}

/// How many files came and failed.
#[track_caller]
fn counts(ran: &Ran) -> (u64, u64) {
    match &ran.ended {
        Ok(Outcome::Files(FileCounts { complete, failed, .. }))
        | Err(JobError::Files(FileCounts { complete, failed, .. })) => (*complete, *failed),
        ended => panic!("{ended:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_with_mirrors_names_and_checksums() {
    let (a, b, c) = (Content::random(1, 700_001), Content::random(2, 5), Content::random(3, 0));
    let files = Server::builder().file("/a", a.clone()).file("/b", b.clone());
    let one = files.file("/c.bin", c.clone()).start().unwrap();
    let two = Server::builder().file("/a", a.clone()).start().unwrap();
    let list = format!(
        "# a comment\n{}\t{}\n  out=x/a.bin\n  checksum=sha-256={}\n\n{}\n  dir=sub\n{}\n",
        one.url("/a"),
        two.url("/a"),
        hex(&a),
        one.url("/b"),
        one.url("/c.bin"),
    );
    let place = Place::new();
    assert_eq!(counts(&place.list(list).run().await), (3, 0));
    place.holds("x/a.bin", &a);
    // `dir=` is a folder of its own, below that of the list.
    place.holds("sub/b", &b);
    place.holds("c.bin", &c);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_with_mistakes_fetches_the_rest() {
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
    let place = Place::new();
    let ran = place.list(list).run().await;
    assert_eq!(counts(&ran), (1, 4));
    place.holds("a", &a);
    place.lacks("wrong");
    place.lacks("../up");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_a_list_go_with_their_file_alone() {
    let content = Content::random(1, 1000);
    let (one, two) = (honest(&content), honest(&content));
    let list = format!(
        "{}\n  out=one\n  header=X-Key: first\n  header=X-Also: yes\n{}\n  out=two\n",
        one.url(FILE),
        two.url(FILE)
    );
    assert_eq!(counts(&Place::new().list(list).run().await), (2, 0));
    let all = |server: &Server, name: &str, value: Option<&str>| {
        server.log().records.iter().all(|record| record.header(name) == value)
    };
    assert!(all(&one, "x-key", Some("first")) && all(&one, "x-also", Some("yes")));
    assert!(all(&two, "x-key", None) && all(&two, "x-also", None));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_files_of_one_metalink() {
    let contents = [0, 1, 300_001, 2_000_003].map(|size| Content::random(size, size));
    let path = |at: usize| format!("/{at}");
    let with =
        |it: swath_netlab::faulty::Builder, at: usize| it.file(&path(at), contents[at].clone());
    let all = (0..4).fold(Server::builder(), with).start().unwrap();
    let names: Vec<String> = (0..4).map(|at| format!("set/part {at}.bin")).collect();
    let urls: Vec<[String; 1]> = (0..4).map(|at| [all.url(&path(at))]).collect();
    let file = |at: usize| MetalinkFile {
        name: &names[at],
        content: &contents[at],
        urls: &urls[at],
        digests: &[Algorithm::Sha256],
        piece_bytes: None,
    };
    let text = metalink(&[file(0), file(1), file(2), file(3)]);
    let place = Place::new();
    assert_eq!(counts(&place.metalink(&text).run().await), (4, 0));
    names.iter().zip(&contents).for_each(|(name, content)| place.holds(name, content));
    // One that cannot be had: the others come.
    all.set_on("/2", Behaviour::status(404));
    let other = Place::new();
    let ran = other.metalink(&text).run().await;
    assert_eq!(counts(&ran), (3, 1));
    other.holds(&names[3], &contents[3]);
    other.lacks(&names[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_never_leave_the_folder() {
    let content = Content::random(2, 1000);
    let source = honest(&content);
    for name in
        ["../evil", "/evil", "a/../../evil", "x\u{1}y", "..", "", "a/./b", "\u{202e}gpj.exe"]
    {
        let place = Place::new();
        let text = metalink(&[MetalinkFile {
            name,
            content: &content,
            urls: &[source.url(FILE)],
            digests: &[Algorithm::Sha256],
            piece_bytes: None,
        }]);
        // Whatever comes of it, it is below the folder.
        let _ = place.metalink(text.replace('\u{1}', "&#1;")).run().await;
        let above = std::fs::read_dir(place.path("..")).unwrap();
        let mut above: Vec<_> = above.map(|entry| entry.unwrap().file_name()).collect();
        above.sort();
        assert_eq!(above, ["in", "x.meta4"], "{name:?}");
        assert!(!std::path::Path::new("/evil").exists());
    }
}

/// A name ended in a dot, as many species do: all files of the Metalink were refused. Such names are
/// legal here; where one is a danger it costs no other file.
#[tokio::test(flavor = "multi_thread")]
async fn one_name_of_a_metalink_costs_no_other_file() {
    let content = Content::random(2, 50_000);
    let source = honest(&content);
    let (url, sum) = (source.url(FILE), hex(&content));
    let entry = |name: &str| {
        format!(
            "<file name=\"{name}\"><size>50000</size><hash type=\"sha-256\">{sum}</hash><url>{url}</url></file>"
        )
    };
    let long = "n".repeat(255);
    for (name, is_taken) in [
        ("Salmonella spp./reads.fq", true),
        (long.as_str(), true),
        ("notes ", true),
        ("a\\b", true),
        ("../evil", false),
        ("/etc/evil", false),
    ] {
        let place = Place::new();
        let text = format!(
            "<?xml version=\"1.0\"?><metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{}{}{}</metalink>",
            entry("first.bin"),
            entry(name),
            entry("last.bin")
        );
        let ran = place.metalink(text).run().await;
        assert_eq!(counts(&ran), if is_taken { (3, 0) } else { (2, 1) });
        place.holds("first.bin", &content);
        place.holds("last.bin", &content);
        if is_taken {
            place.holds(name, &content);
        }
    }
}

/// Windows tools write UTF-16, older catalogues ISO-8859-1.
#[tokio::test(flavor = "multi_thread")]
async fn metalinks_in_other_encodings_are_read() {
    let content = Content::random(3, 50_000);
    let source = honest(&content);
    let text = |encoding: &str| {
        format!(
            "<?xml version=\"1.0\" encoding=\"{encoding}\"?>\n<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\
             <file name=\"Größe.bin\"><url>{}</url></file></metalink>",
            source.url(FILE)
        )
    };
    let latin: Vec<u8> =
        text("ISO-8859-1").chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    let wide: Vec<u8> =
        format!("\u{feff}{}", text("UTF-16")).encode_utf16().flat_map(u16::to_le_bytes).collect();
    for bytes in [latin, wide] {
        let place = Place::new();
        place.metalink(bytes).run().await.is_whole();
        place.holds("Größe.bin", &content);
    }
}

/// A list from aria2 had a line in Latin-1 between an address and its checksum: the file was fetched
/// and named without the checksum.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_no_text_does_not_cost_the_checksum_below_it() {
    let content = Content::random(1, 100_000);
    let source = honest(&content);
    let (wrong, right) = ("0".repeat(64), hex(&content));
    assert_eq!(sha256(&content), format!("sha-256:{right}"));
    for (line, is_passed_over) in [
        (b"# caf\xe9".as_slice(), true),
        (b"  # caf\xe9".as_slice(), true),
        (b"  referer=http://x/caf\xe9".as_slice(), true),
        (b"  out=caf\xe9.bin".as_slice(), false),
    ] {
        for (sum, is_right) in [(&wrong, false), (&right, true)] {
            let place = Place::new();
            let (above, below) = (source.url(FILE), format!("\n  checksum=sha-256={sum}\n"));
            let list = [above.as_bytes(), b"\n", line, below.as_bytes()].concat();
            let ran = place.list(list).run().await;
            let comes = is_passed_over && is_right;
            assert_eq!(ran.ended.is_ok(), comes, "{ran:?}");
            assert_eq!(place.path("data.bin").exists(), comes, "{ran:?}");
        }
    }
}

/// A Metalink's `sub/f` was written through a link `sub` that lay in the folder, to where the link led.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_metalinks_and_lists_follow_no_link_below_the_folder() {
    let content = Content::random(3, 300_001);
    let server = honest(&content);
    let urls = [server.url(FILE)];
    let file = |name| MetalinkFile {
        name,
        content: &content,
        urls: &urls,
        digests: &[Algorithm::Sha256],
        piece_bytes: None,
    };
    let place = Place::new();
    let outside = place.path("../outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::create_dir(place.path("real")).unwrap();
    symlink("../outside", place.path("sub")).unwrap();
    symlink("../../outside", place.path("real/sub")).unwrap();
    for is_replaced in [false, true] {
        let fetches = [
            place.metalink(metalink(&[file("sub/f")])).run_as(is_replaced).await,
            place.metalink(metalink(&[file("real/sub/new/f")])).run_as(is_replaced).await,
            place.metalink(metalink(&[file("sub/f"), file("other/f")])).run_as(is_replaced).await,
            place.list(format!("{}\n  out=sub/f\n", urls[0])).run_as(is_replaced).await,
            place.list(format!("{}\n  out=f\n  dir=sub\n", urls[0])).run_as(is_replaced).await,
        ];
        for ran in fetches {
            assert!(ran.ended.is_err(), "{ran:?}");
            ran.tells(&["sub is a symbolic link: links below ", "are not followed"]);
            assert!(outside.read_dir().unwrap().next().is_none());
        }
    }
    place.holds("other/f", &content);
    // A file that somebody put behind the link is not taken for the one that is wanted.
    std::fs::write(outside.join("f"), content.read(0, content.size_bytes())).unwrap();
    let ran = place.metalink(metalink(&[file("sub/f")])).run().await;
    ran.tells(&["sub is a symbolic link"]).error();
}
