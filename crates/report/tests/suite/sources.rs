//! The table of sources: their figures, their swaths by how they ended, and what became of them.

use swath_model::SourceName;
use swath_model::observe::{Event, Outcome, SourceState, SourceSummary};

use crate::support::{ONE, TWO, has, lacks, opened, page, part, started, summary, swath};

/// The page of a transfer whose second source ended so.
fn with_second(change: impl FnOnce(&mut SourceSummary)) -> String {
    let mut end = summary();
    change(&mut end.sources[1]);
    page(&[started(&[ONE, TWO]), opened(1_000_000, 0), Event::Finished(end)])
}

#[test]
fn figures_have_units_that_fit() {
    let page = with_second(|two| {
        two.rate_bytes_per_s = 12.5e6;
        two.capacity_bytes_per_s = 2e9;
        two.rtt_ms = Some(0.25);
        two.wasted_bytes = 1_500;
    });
    has(
        &page,
        &[
            "<td data-l=\"bytes\">250 kB</td>",
            "<td data-l=\"mean rate\">12.5 MB/s</td>",
            "<td data-l=\"capacity\">2.00 GB/s</td>",
            "<td data-l=\"round trip\">0.25 ms</td>",
            "<td data-l=\"wasted\">1.50 kB</td>",
            "25 %",
        ],
    );
}

#[test]
fn round_trips_have_few_digits_or_none() {
    for (rtt_ms, words) in
        [(Some(1.26), ">1.3 ms<"), (Some(123.4), ">123 ms<"), (None, "\"round trip\">–<")]
    {
        has(&with_second(|two| two.rtt_ms = rtt_ms), &[words]);
    }
}

#[test]
fn swaths_are_counted_by_how_they_ended() {
    let mut events = vec![started(&[ONE])];
    for (outcome, count) in
        [(Outcome::Done, 4), (Outcome::Trimmed, 3), (Outcome::Lost, 2), (Outcome::Failed, 1)]
    {
        events.extend((0..count).map(|n| swath(0, n * 10, n * 10 + 10, n as f64, outcome)));
    }
    has(
        &page(&events),
        &[
            "<td data-l=\"delivered\">4</td>",
            "<td data-l=\"trimmed\">3</td>",
            "<td data-l=\"lost\">2</td>",
            "<td data-l=\"failed\">1</td>",
        ],
    );
}

#[test]
fn what_became_of_a_source_is_remarked() {
    for (state, bytes, reason, words) in [
        (SourceState::Bad, 5, Some("it lied"), "pill bad\">not used</span> it lied"),
        (SourceState::Silent, 5, None, "pill silent\">silent<"),
        (SourceState::Slow, 5, None, "pill silent\">slow<"),
        (SourceState::Probing, 5, Some("reset"), "pill silent\">lost</span> reset"),
        (SourceState::Idle, 0, None, "pill none\">not used<"),
        (SourceState::Idle, 5, Some("as HTTP/1.0"), "pill none\">note</span> as HTTP/1.0"),
    ] {
        let page = with_second(|two| {
            (two.state, two.bytes) = (state, bytes);
            two.reason = reason.map(str::to_owned);
        });
        has(&page, &[words]);
    }
    lacks(&with_second(|_| ()), &["class=\"remark\""]);
}

#[test]
fn sources_that_are_found_on_the_way_are_in_the_table() {
    let mut end = summary();
    end.sources
        .push(SourceSummary { name: SourceName::direct("peer://10.0.0.7:6881"), ..part(2, 1) });
    let page = page(&[started(&[ONE, TWO]), Event::Finished(end)]);
    has(&page, &["10.0.0.7:6881", "<dt>sources</dt><dd>3<"]);
}

#[test]
fn until_the_end_there_are_no_figures() {
    let page = page(&[started(&[ONE]), swath(0, 0, 10, 0.0, Outcome::Done)]);
    assert_eq!(page.matches("<td class=\"none\">–</td>").count(), 6);
}

#[test]
fn names_of_sources_are_text() {
    let page = page(&[started(&["http://a.example/<b>&\u{202e}"])]);
    has(&page, &["a.example/&lt;b&gt;&amp;"]);
    lacks(&page, &["/<b>", "\u{202e}"]);
}
