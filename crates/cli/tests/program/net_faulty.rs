//! `swath get` against servers with faults and habits: alone, and beside honest ones.

use std::time::Duration;

use crate::support::Home;
use crate::support::net::{FILE, building, honest, server, sha256, slow, url};
use swath_netlab::faulty::{Behaviour, Content, Pipelining, RangeLie, Server, When};

/// Not a multiple of anything.
const SIZE: u64 = 5_000_011;

fn content() -> Content {
    Content::random(1, SIZE)
}

/// The odd server alone must deliver the file.
#[track_caller]
fn alone(rule: impl Into<swath_netlab::faulty::Rule>) {
    let content = content();
    let home = Home::new();
    let odd = server(&content, rule);
    home.run(["get", &url(&odd), "--digest", &sha256(&content)])
        .code_is(0)
        .says(&["verified by sha-256"]);
    home.holds_only("data.bin", &content);
}

/// Beside an honest but slow server the odd one must do no harm.
#[track_caller]
fn beside(rule: impl Into<swath_netlab::faulty::Rule>) -> crate::support::Ran {
    let content = content();
    let home = Home::new();
    let odd = server(&content, rule);
    let good = slow(&content, 4_000_000);
    let ran = home.run(["get", &url(&odd), &url(&good)]);
    ran.code_is(0);
    home.holds_only("data.bin", &content);
    ran
}

#[test]
fn sizes_of_all_kinds() {
    for size in [0, 1, 2, 511, 512, 4095, 4096, 4097, 65_537, 1_048_575, 3_333_333] {
        let content = Content::random(size, size);
        let home = Home::new();
        let (one, two) = (honest(&content), honest(&content));
        home.run(["get", &url(&one), &url(&two)]).code_is(0);
        home.holds_only("data.bin", &content);
        let ran =
            home.run(["get", &url(&one), &url(&two), "-o", "-", "--digest", &sha256(&content)]);
        ran.code_is(0);
        assert_eq!(ran.stdout, content.read(0, size), "{size} bytes in order");
    }
}

#[test]
fn without_ranges_a_server_is_one_stream() {
    alone(Behaviour::NoRanges);
}

#[test]
fn without_ranges_among_others() {
    beside(Behaviour::NoRanges);
}

#[test]
fn an_empty_or_tiny_file_without_ranges() {
    for size in [0, 1] {
        let content = Content::random(5, size);
        let home = Home::new();
        home.run(["get", &url(&server(&content, Behaviour::NoRanges))]).code_is(0);
        home.holds_only("data.bin", &content);
    }
}

#[test]
fn closing_after_each_answer() {
    alone(Behaviour::Close);
    beside(Behaviour::Close);
}

#[test]
fn http_1_0() {
    alone(Behaviour::Http10);
}

#[test]
fn chunked_without_a_length() {
    alone(Behaviour::Chunked { chunk_bytes: 10_007 });
    beside(Behaviour::Chunked { chunk_bytes: 10_007 });
}

#[test]
fn chunked_whole_file_of_unknown_size() {
    let content = content();
    let home = Home::new();
    let odd = building(&content)
        .behaviour(Behaviour::Chunked { chunk_bytes: 5000 })
        .behaviour(Behaviour::NoRanges)
        .start()
        .unwrap();
    home.run(["get", &url(&odd), "--digest", &sha256(&content)]).code_is(0);
    home.holds_only("data.bin", &content);
    let ran = home.run(["get", &url(&odd), "-o", "-"]);
    ran.code_is(0);
    assert_eq!(ran.stdout, content.read(0, SIZE));
}

#[test]
fn the_end_of_the_connection_is_the_end_of_the_file() {
    let content = content();
    let home = Home::new();
    let odd = building(&content)
        .behaviour(Behaviour::CloseDelimited)
        .behaviour(Behaviour::NoRanges)
        .start()
        .unwrap();
    home.run(["get", &url(&odd), "--digest", &sha256(&content)]).code_is(0);
    home.holds_only("data.bin", &content);
}

#[test]
fn ranges_within_the_file_refused_as_behind_its_end() {
    // It counted as an answer, and the next range was asked for at once: ten thousand a second.
    let content = content();
    let home = Home::new();
    let odd = building(&content)
        .behaviour(Behaviour::status(416))
        .behaviour(Behaviour::header("Content-Range", format!("bytes */{}", content.size_bytes())))
        .start()
        .unwrap();
    home.run(["get", &url(&odd)]).code_is(7).says(&["it refuses what begins at byte 0"]);
    assert!(odd.log().records.len() < 20, "{} requests", odd.log().records.len());
    let right = honest(&content);
    let ran = home.run(["get", &url(&odd), &url(&right)]);
    ran.code_is(0).says(&[&url(&odd), "it refuses what begins at byte"]);
    home.holds_only("data.bin", &content);
}

#[test]
fn ranges_refused_with_416() {
    let ran = beside(Behaviour::status(416).when(When::Ranged));
    ran.says(&["127.0.0.1"]);
}

#[test]
fn busy_servers_are_given_the_time_they_ask_for() {
    for code in [429, 503] {
        alone(Behaviour::busy(code, 1).first(2));
        beside(Behaviour::busy(code, 1).first(2));
    }
}

#[test]
fn a_server_that_stays_busy_is_told() {
    let content = content();
    let home = Home::new();
    let busy = server(&content, Behaviour::busy(503, 1));
    let ran = home.run(["get", &url(&busy), "--timeout", "4s"]);
    ran.code_is(7).says(&["503", &url(&busy)]);
    assert!(home.names().is_empty(), "{:?}", home.names());
}

#[test]
fn passing_errors_pass() {
    alone(Behaviour::status(500).first(2));
    alone(Behaviour::status(502).when(When::EveryNth(3)));
    beside(Behaviour::status(502).when(When::EveryNth(2)));
}

#[test]
fn pipelining_broken_in_every_way() {
    for way in [Pipelining::Lose, Pipelining::Close, Pipelining::Reset] {
        alone(Behaviour::Pipelining(way));
        beside(Behaviour::Pipelining(way));
    }
}

#[test]
fn truncated_answers() {
    alone(Behaviour::Truncate { after_bytes: 700_000 });
    beside(Behaviour::Truncate { after_bytes: 100_000 });
}

#[test]
fn connections_that_drop() {
    alone(Behaviour::Drop { after_bytes: 900_000, reset: true });
    beside(Behaviour::Drop { after_bytes: 300_000, reset: false });
    alone(Behaviour::Unanswered { reset: true }.first(2));
}

#[test]
fn a_length_that_lies() {
    beside(Behaviour::LengthLie { by: 1000 });
    beside(Behaviour::LengthLie { by: -1000 });
}

#[test]
fn content_range_that_lies() {
    for lie in [
        RangeLie::Header(1),
        RangeLie::Both(1),
        RangeLie::Total(5),
        RangeLie::UnknownTotal,
        RangeLie::Missing,
        RangeLie::Garbage,
    ] {
        beside(Behaviour::ContentRange(lie));
    }
}

#[test]
fn gzip_although_nobody_asked() {
    let ran = beside(Behaviour::Gzip);
    ran.says(&["gzip"]);
    let content = content();
    let home = Home::new();
    let odd = server(&content, Behaviour::Gzip);
    home.run(["get", &url(&odd)]).code_is(7).says(&["gzip", &url(&odd)]);
    home.lacks("data.bin");
}

#[test]
fn heads_that_are_odd() {
    alone(Behaviour::Junk100);
    alone(Behaviour::SlowHead { byte_every: Duration::from_millis(1) });
    beside(Behaviour::GiantHead { bytes: 4 << 20 });
    beside(Behaviour::GarbageStatus("NOPE 200 \u{1b}[31mred".to_owned())).never_says(&["\u{1b}"]);
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
fn an_html_page_with_status_200() {
    let ran = beside(Behaviour::HtmlPage);
    ran.says(&["web page", "127.0.0.1"]);
    let home = Home::new();
    let page = server(&content(), Behaviour::HtmlPage);
    home.run(["get", &url(&page)]).code_is(7).says(&["web page", &url(&page)]);
    // A login page, for example: its address tells nothing, the name that is wanted does.
    let login = url(&page).replace("data.bin", "download?id=7");
    home.run(["get", &login, "-o", "data.h5"]).code_is(7).says(&["web page"]);
    assert!(home.names().is_empty(), "{:?}", home.names());
}

#[test]
fn refused_by_some() {
    for code in [401, 403, 404, 410] {
        let ran = beside(Behaviour::status(code));
        ran.says(&["not using source", &code.to_string()]);
    }
}

#[test]
fn refused_by_all_names_each_and_its_answer() {
    let home = Home::new();
    let gone = server(&content(), Behaviour::status(404));
    let forbidden = server(&content(), Behaviour::status(403));
    let dead = honest(&content());
    dead.die();
    let unknown = "http://no-such-host.invalid/data.bin";
    let ran =
        home.run(["get", "--timeout", "2s", &url(&gone), &url(&forbidden), &url(&dead), unknown]);
    ran.code_is(7).says(&[
        &format!("{}: the server answered 404", url(&gone)),
        &format!("{}: the server answered 403", url(&forbidden)),
        &format!("{}: cannot connect", url(&dead)),
        "no-such-host.invalid/data.bin: the name no-such-host.invalid cannot be resolved",
    ]);
    assert!(home.names().is_empty(), "{:?}", home.names());
}

#[test]
fn a_host_that_cannot_be_resolved_does_no_harm() {
    let home = Home::new();
    let content = content();
    let good = slow(&content, 4_000_000);
    let ran = home.run(["get", "http://no-such-host.invalid/data.bin", &url(&good)]);
    ran.code_is(0);
    home.holds_only("data.bin", &content);
}

#[test]
fn silent_from_the_start_is_given_up() {
    let home = Home::new();
    let silent = server(&content(), Behaviour::Silent { after: Duration::ZERO });
    let ran = home.run(["get", &url(&silent), "--timeout", "2s"]);
    ran.code_is(7).says(&[&url(&silent)]);
    assert!(ran.elapsed < Duration::from_secs(40), "{ran}");
    assert!(home.names().is_empty(), "{:?}", home.names());
}

#[test]
fn silent_in_the_middle_alone_keeps_what_came() {
    let content = content();
    let home = Home::new();
    let odd = building(&content)
        .behaviour(Behaviour::rate(2_000_000))
        .behaviour(Behaviour::Silent { after: Duration::from_millis(1200) })
        .start()
        .unwrap();
    let ran = home.run(["get", &url(&odd), "--timeout", "2s"]);
    ran.code_is(3).says(&[
        &url(&odd),
        " in data.bin.swath.part: ",
        "the same command resumes from there",
    ]);
    home.lacks("data.bin");
}

#[test]
fn silent_among_others_and_back_again() {
    let content = Content::random(3, 8_000_000);
    let home = Home::new();
    let odd = building(&content)
        .behaviour(Behaviour::rate(3_000_000))
        .behaviour(Behaviour::Silent { after: Duration::from_millis(500) })
        .start()
        .unwrap();
    let good = slow(&content, 1_000_000);
    let running = home.swath(["get", &url(&odd), &url(&good)]).start();
    std::thread::sleep(Duration::from_millis(2500));
    odd.clear();
    let ran = running.wait();
    ran.code_is(0);
    home.holds_only("data.bin", &content);
}

#[test]
fn ipv6() {
    let content = content();
    let home = Home::new();
    let Ok(six) = building(&content).ipv6().start() else {
        eprintln!("skipped: this machine has no IPv6");
        return;
    };
    home.run(["get", &url(&six)]).code_is(0);
    home.holds_only("data.bin", &content);
}

#[test]
fn a_name_with_escapes_and_a_query() {
    let content = content();
    let home = Home::new();
    let odd = Server::builder().file("/a/run%201.bin", content.clone()).start().unwrap();
    home.run(["get", &format!("{}?x=1", odd.url("/a/run%201.bin"))]).code_is(0);
    home.holds_only("run 1.bin", &content);
    let bare = Server::builder().file("/", content.clone()).start().unwrap();
    home.run(["get", &bare.url("/")]).code_is(2).says(&["-o FILE"]);
    assert_eq!(FILE, "/data.bin");
}
