//! Files from servers with faults and habits: alone, and beside honest ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use swath_jobs::{JobError, JobEvent, SpecError};
use swath_netlab::faulty::{Behaviour, Content, Pipelining, RangeLie, Rule, Scope, Server, When};
use swath_netlab::reserve_port;
use swath_transfer::GetError;
use swath_transfer::observe::{Event, SourceState, Verified};

use crate::fetching::{FILE, Place, Ran, building, held, is_out, odd, release, sent, stuck};
use crate::support::sha256;

/// Not a multiple of anything.
const SIZE: u64 = 5_000_011;

fn content() -> Content {
    Content::random(1, SIZE)
}

/// The odd server alone must deliver the file.
async fn alone(rule: impl Into<Rule>) {
    let (content, place) = (content(), Place::new());
    let server = odd(&content, [rule]);
    let ran = place.of(&[&server]).digest(&sha256(&content)).run().await;
    assert_eq!(ran.summary().verified, Verified::Digest);
    place.holds_only("data.bin", &content);
}

/// Beside an honest server the odd one must do no harm. The honest one delivers nothing before the odd
/// one has answered, or has been found out.
async fn beside(rule: impl Into<Rule>) -> Ran {
    let (content, place) = (content(), Place::new());
    let (server, good) = (odd(&content, [rule]), held(&content));
    good.add(Behaviour::rate(8_000_000));
    let has_answered = Arc::new(AtomicBool::new(false));
    let (answered, odd_one, good_one) = (Arc::clone(&has_answered), server.handle(), good.handle());
    let watches = std::thread::spawn(move || {
        while !answered.load(Ordering::Relaxed)
            && !odd_one.log().records.iter().any(|record| record.ended.is_some())
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        release(&good_one);
    });
    let answered = Arc::clone(&has_answered);
    let found_out = move |_: &_| answered.store(true, Ordering::Relaxed);
    let ran = place.of(&[&server, &good]).at(is_out(0), found_out).run().await;
    has_answered.store(true, Ordering::Relaxed);
    watches.join().unwrap();
    ran.is_whole();
    place.holds_only("data.bin", &content);
    assert!(!server.log().is_empty(), "the odd one was asked");
    ran
}

/// The same with an odd server that cannot be used at all; it is found out before the honest one delivers
/// anything.
async fn beside_unusable(rule: impl Into<Rule>) -> Ran {
    let (content, place) = (content(), Place::new());
    let (server, good) = (odd(&content, [rule]), held(&content));
    let ran = place.of(&[&server, &good]).releases(&good, is_out(0)).run().await;
    ran.is_whole();
    place.holds_only("data.bin", &content);
    ran.tells(&[&format!("not using source 1 ({})", server.url(FILE))]);
    ran
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_of_all_kinds() {
    for size in [0, 1, 2, 511, 512, 4095, 4096, 4097, 65_537, 1_048_575, 3_333_333] {
        let (content, place) = (Content::random(size, size), Place::new());
        let (one, two) = (building(&content).start().unwrap(), building(&content).start().unwrap());
        place.of(&[&one, &two]).run().await.is_whole();
        place.holds_only("data.bin", &content);
        let ran = place.of(&[&one, &two]).into_stream().digest(&sha256(&content)).run().await;
        assert!(ran.is_whole().output == content.read(0, size), "{size} bytes in order");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_ranges_a_server_is_one_stream() {
    alone(Behaviour::NoRanges).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_ranges_among_others() {
    beside(Behaviour::NoRanges).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_or_tiny_file_without_ranges() {
    for size in [0, 1] {
        let (content, place) = (Content::random(5, size), Place::new());
        place.of(&[&odd(&content, [Behaviour::NoRanges])]).run().await.is_whole();
        place.holds_only("data.bin", &content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_after_each_answer() {
    alone(Behaviour::Close).await;
    beside(Behaviour::Close).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_0() {
    alone(Behaviour::Http10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunked_without_a_length() {
    alone(Behaviour::Chunked { chunk_bytes: 10_007 }).await;
    beside(Behaviour::Chunked { chunk_bytes: 10_007 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunked_whole_file_of_unknown_size() {
    let (content, place) = (content(), Place::new());
    let server = odd(&content, [Behaviour::Chunked { chunk_bytes: 5000 }, Behaviour::NoRanges]);
    place.of(&[&server]).digest(&sha256(&content)).run().await.is_whole();
    place.holds_only("data.bin", &content);
    let ran = place.of(&[&server]).into_stream().run().await;
    assert!(ran.is_whole().output == content.read(0, SIZE));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_connection_is_the_end_of_the_file() {
    let (content, place) = (content(), Place::new());
    let server = odd(&content, [Behaviour::CloseDelimited, Behaviour::NoRanges]);
    place.of(&[&server]).digest(&sha256(&content)).run().await.is_whole();
    place.holds_only("data.bin", &content);
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_within_the_file_refused_as_behind_its_end() {
    // It counted as an answer, and the next range was asked for at once: ten thousand a second.
    let (content, place) = (content(), Place::new());
    let size = Behaviour::header("Content-Range", format!("bytes */{SIZE}"));
    let server = odd(&content, [Behaviour::status(416), size]);
    let ran = place.of(&[&server]).run().await;
    ran.is_unusable().tells(&["it refuses what begins at byte 0"]);
    assert!(server.log().len() < 20, "{} requests", server.log().len());
    let right = held(&content);
    let ran = place.of(&[&server, &right]).releases(&right, is_out(0)).run().await;
    ran.is_whole().tells(&[&server.url(FILE), "it refuses what begins at byte"]);
    place.holds_only("data.bin", &content);
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_refused_with_416() {
    beside(Behaviour::status(416).when(When::Ranged)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_servers_are_given_the_time_they_ask_for() {
    for code in [429, 503] {
        alone(Behaviour::busy(code, 1).first(2)).await;
        beside(Behaviour::busy(code, 1).first(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn passing_errors_pass() {
    alone(Behaviour::status(500).first(2)).await;
    alone(Behaviour::status(502).when(When::EveryNth(3))).await;
    beside(Behaviour::status(502).when(When::EveryNth(2))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelining_broken_in_every_way() {
    for way in [Pipelining::Lose, Pipelining::Close, Pipelining::Reset] {
        alone(Behaviour::Pipelining(way)).await;
        beside(Behaviour::Pipelining(way)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_answers() {
    alone(Behaviour::Truncate { after_bytes: 700_000 }).await;
    beside(Behaviour::Truncate { after_bytes: 100_000 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_drop() {
    alone(Behaviour::Drop { after_bytes: 900_000, reset: true }).await;
    beside(Behaviour::Drop { after_bytes: 300_000, reset: false }).await;
    alone(Behaviour::Unanswered { reset: true }.first(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_that_lies() {
    beside(Behaviour::LengthLie { by: 1000 }).await;
    beside(Behaviour::LengthLie { by: -1000 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_range_that_lies() {
    for lie in [
        RangeLie::Header(1),
        RangeLie::Both(1),
        RangeLie::Total(5),
        RangeLie::UnknownTotal,
        RangeLie::Missing,
        RangeLie::Garbage,
    ] {
        beside(Behaviour::ContentRange(lie)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gzip_although_nobody_asked() {
    beside_unusable(Behaviour::Gzip).await.tells(&["gzip"]);
    let place = Place::new();
    let server = odd(&content(), [Behaviour::Gzip]);
    place.of(&[&server]).run().await.is_unusable().tells(&["gzip", &server.url(FILE)]);
    place.lacks("data.bin");
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_are_odd() {
    alone(Behaviour::Junk100).await;
    alone(Behaviour::SlowHead { byte_every: Duration::from_millis(1) }).await;
    beside(Behaviour::GiantHead { bytes: 4 << 20 }).await;
    let ran = beside(Behaviour::GarbageStatus("NOPE 200 \u{1b}[31mred".to_owned())).await;
    ran.never_tells(&["\u{1b}"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_html_page_with_status_200() {
    beside_unusable(Behaviour::HtmlPage).await.tells(&["web page"]);
    let place = Place::new();
    let page = odd(&content(), [Behaviour::HtmlPage]);
    place.of(&[&page]).run().await.is_unusable().tells(&["web page", &page.url(FILE)]);
    // A login page, for example: its address tells nothing, the name that is wanted does.
    let login = place.of_urls([page.url("/download?id=7")]).named(&place, "data.h5");
    login.run().await.is_unusable().tells(&["web page"]);
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_by_some() {
    for code in [401, 403, 404, 410] {
        beside_unusable(Behaviour::status(code)).await.tells(&[&code.to_string()]);
    }
}

/// A name that the resolver refuses without asking anybody.
fn unknown_host() -> String {
    format!("{}.invalid", "x".repeat(64))
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_are_not_there_are_told_with_their_reasons() {
    let place = Place::new();
    let host = unknown_host();
    let urls =
        [format!("http://{host}/data.bin"), format!("http://127.0.0.1:{}/f", reserve_port())];
    let ran = place.of_urls(urls.clone()).timeout_s(10).run().await;
    ran.is_unusable().tells(&[
        &format!("{}: the name {host} cannot be resolved", urls[0]),
        &format!("{}: cannot connect", urls[1]),
    ]);
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_cannot_be_resolved_does_no_harm() {
    let (content, place) = (content(), Place::new());
    let good = building(&content).start().unwrap();
    let unknown = format!("http://{}/data.bin", unknown_host());
    place.of_urls([unknown, good.url(FILE)]).run().await.is_whole();
    place.holds_only("data.bin", &content);
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_from_the_start_is_given_up() {
    let place = Place::new();
    let silent = held(&content());
    // The time-out may begin at any moment, as nothing ever comes.
    let ran = place.of(&[&silent]).timeout_s(2).run().await;
    ran.is_unusable().tells(&[&silent.url(FILE)]);
    assert!(matches!(ran.error(), GetError::Stalled { stall_s, .. } if *stall_s == 2.0), "{ran:?}");
    assert!(place.names().is_empty(), "{:?}", place.names());
}

/// The rest is nowhere else, so that the transfer ends only if the silent one is asked again.
#[tokio::test(flavor = "multi_thread")]
async fn silent_among_others_and_back_again() {
    let (content, place) = (Content::random(3, 8_000_000), Place::new());
    let silent = odd(&content, [Behaviour::rate(8_000_000)]);
    let good = stuck(&content, 1_000_000);
    let (one, other) = (silent.handle(), silent.handle());
    let is_silent = |event: &JobEvent| {
        matches!(
            event,
            JobEvent::Transfer(Event::Source { source: 0, state: SourceState::Silent, .. })
        )
    };
    let falls_silent = std::thread::spawn(move || {
        assert!(one.wait_until(crate::support::LONG, |one| one.sent_bytes() > 500_000));
        one.set(Behaviour::Silent { after: Duration::ZERO });
    });
    let fetch = place.of(&[&silent, &good]).at(is_silent, move |_| other.clear());
    fetch.run().await.is_whole();
    falls_silent.join().unwrap();
    place.holds_only("data.bin", &content);
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv6() {
    let (content, place) = (content(), Place::new());
    let Ok(six) = building(&content).ipv6().start() else {
        println!("skipped: this machine has no IPv6");
        return;
    };
    place.of(&[&six]).run().await.is_whole();
    place.holds_only("data.bin", &content);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_with_escapes_and_a_query() {
    let (content, place) = (content(), Place::new());
    let server = Server::builder()
        .file("/a/run%201.bin", content.clone())
        .file("/", content.clone())
        .start()
        .unwrap();
    place.of_urls([server.url("/a/run%201.bin?x=1")]).run().await.is_whole();
    place.holds_only("run 1.bin", &content);
    let ended = place.of_urls([server.url("/")]).run().await.ended;
    assert!(matches!(ended, Err(JobError::Spec(SpecError::NoName { .. }))), "{ended:?}");
}

/// What came is kept and told, though the rest never comes.
#[tokio::test(flavor = "multi_thread")]
async fn refused_in_the_middle_alone_keeps_what_came() {
    let (content, place) = (content(), Place::new());
    let cut = Behaviour::Drop { after_bytes: 2_000_000, reset: false };
    let server = odd(&content, [cut.into(), Behaviour::status(404).after(1)]);
    let ran = place.of(&[&server]).with(|spec| spec.plan.connections = Some(1)).run().await;
    ran.is_incomplete().tells(&["404", &server.url(FILE)]);
    let kept = ran.kept().bytes;
    assert!((1..=2_000_000).contains(&kept), "{kept}");
    place.lacks("data.bin");
    server.clear();
    assert_eq!(place.of(&[&server]).run().await.summary().resumed_bytes, kept);
    place.holds_only("data.bin", &content);
}

/// All had come from the other mirror; as the silent one did not answer what a few blocks of it are
/// there, the transfer ended with "nothing arrived from any source".
#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_that_is_not_answered_fails_nothing() {
    let (content, place) = (Content::random(2, 3_000_017), Place::new());
    let lasts = Duration::from_secs(3600);
    let hung =
        odd(&content, [Behaviour::Stall { after_bytes: 400_000, lasts, scope: Scope::Server }]);
    let good = held(&content);
    // The silent one has its part in it.
    let (from, to) = (hung.handle(), good.handle());
    let releases = std::thread::spawn(move || {
        assert!(from.wait_until(crate::support::LONG, |from| from.sent_bytes() >= 400_000));
        release(&to);
    });
    // Longer than any pause of this machine, during which nothing arrives either.
    place.of(&[&hung, &good]).timeout_s(8).run().await.is_whole();
    releases.join().unwrap();
    place.holds("data.bin", &content);
    assert!(sent(&hung) > 0);
}
