//! What users are told of servers that deliver nothing, or not all; how transfers get along with faulty
//! servers is tested in the suite of `jobs`.

use crate::support::Home;
use crate::support::net::{building, honest, server, sha256, url};
use swath_netlab::faulty::{Algorithm, Behaviour, Content};

/// Not a multiple of anything.
const SIZE: u64 = 5_000_011;

fn content() -> Content {
    Content::random(1, SIZE)
}

#[test]
fn a_server_that_stays_busy_is_told() {
    let content = content();
    let home = Home::new();
    let busy = server(&content, Behaviour::busy(503, 1));
    // Longer than any pause of this machine before the first answer.
    let ran = home.run(["get", &url(&busy), "--timeout", "8s"]);
    ran.code_is(7).says(&["503", &url(&busy)]);
    assert!(home.names().is_empty(), "{:?}", home.names());
}

#[test]
fn a_report_is_not_written_over_its_file() {
    let home = Home::new();
    let server = honest(&content());
    for page in ["out.bin", "./out.bin", "out.bin.swath.part"] {
        home.run(["get", &url(&server), "-o", "out.bin", "--report", page])
            .code_is(2)
            .says(&["choose another name for --report"]);
        assert!(home.names().is_empty(), "{page}: {:?}", home.names());
    }
}

#[test]
fn refused_by_all_names_each_and_its_answer() {
    let home = Home::new();
    let gone = server(&content(), Behaviour::status(404));
    let forbidden = server(&content(), Behaviour::status(403));
    let page = server(&content(), Behaviour::HtmlPage);
    let ran = home.run(["get", &url(&gone), &url(&forbidden), &url(&page)]);
    ran.code_is(7).says(&[
        &format!("{}: the server answered 404", url(&gone)),
        &format!("{}: the server answered 403", url(&forbidden)),
        &format!("{}: the server sent a web page", url(&page)),
    ]);
    assert!(home.names().is_empty(), "{:?}", home.names());
}

#[test]
fn what_came_is_kept_and_goes_on_from_another_mirror() {
    let content = content();
    let home = Home::new();
    let lost = building(&content)
        .behaviour(Behaviour::Drop { after_bytes: 2_000_000, reset: false })
        .behaviour(Behaviour::status(404).after(1))
        .start()
        .unwrap();
    home.run(["get", &url(&lost), "-x", "1"]).code_is(3).says(&[
        &url(&lost),
        " in data.bin.swath.part: ",
        "the same command resumes from there, also with other mirrors",
    ]);
    home.lacks("data.bin");
    home.run(["get", &url(&honest(&content))]).code_is(0).says(&["from an earlier run"]);
    home.holds_only("data.bin", &content);
}

/// A mistyped digest used to cost the whole download.
#[test]
fn a_wrong_digest_costs_nothing_once_it_is_put_right() {
    let content = content();
    let home = Home::new();
    let source = honest(&content);
    let wrong = format!("sha-256:{}", "0".repeat(64));
    home.run(["get", &url(&source), "--digest", &wrong]).code_is(4).says(&[
        "the digest does not match",
        &content.digest_hex(Algorithm::Sha256),
        "kept 5.00 MB in data.bin.swath.part",
        "with the right --digest",
        "--no-resume",
    ]);
    home.lacks("data.bin");
    home.run(["get", &url(&source), "--digest", &sha256(&content)])
        .code_is(0)
        .says(&["from an earlier run", "verified by sha-256"]);
    home.holds_only("data.bin", &content);
}

#[test]
fn changed_at_the_source_while_it_is_read() {
    let (old, new) = (content(), Content::random(66, SIZE));
    let home = Home::new();
    let source = building(&old)
        .behaviour(Behaviour::Truncate { after_bytes: 500_000 })
        .behaviour(Behaviour::ChangeAfter { bytes: 2_000_000, content: new.clone() })
        .start()
        .unwrap();
    let ran = home.run(["get", &url(&source)]);
    assert!(matches!(ran.code(), 3 | 7), "{ran}");
    ran.says(&["changed at the source", &url(&source)]);
    // It was said to go on from there.
    ran.says(&[" in data.bin.swath.part: they are of the old version"]);
    ran.never_says(&["the same command resumes from there"]);
    home.lacks("data.bin");
    // The next run takes the new one, and nothing of the old.
    source.clear();
    home.run(["get", &url(&source)]).code_is(0);
    home.holds_only("data.bin", &new);
}
