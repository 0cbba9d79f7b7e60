//! The head of a page: what was transferred, how it ended, and the main figures.

use swath_model::observe::{Eta, Event, LimitedBy, SameBy, Summary};
use swath_report::{Content, Recorder, Recording, render};

use crate::support::{
    ONE, TWO, data, failed, has, lacks, opened, page, recording, started, summary, swath,
};
use swath_model::observe::Outcome;

/// The page of a transfer that ended so.
fn ended(change: impl FnOnce(&mut Summary)) -> String {
    let mut end = summary();
    change(&mut end);
    page(&[started(&[ONE, TWO]), opened(1_000_000, 0), Event::Finished(end)])
}

#[test]
fn a_complete_transfer_says_by_what_it_was_verified() {
    has(&ended(|_| ()), &["class=\"verdict ok\"", "Complete, verified by sha-256<"]);
    let unknown = ended(|end| end.verified_by.clear());
    has(&unknown, &["<span>Complete</span>"]);
}

#[test]
fn a_transfer_that_stopped_says_why() {
    let page = page(&[started(&[ONE]), failed("the disk is full <\u{1b}>")]);
    has(&page, &["class=\"verdict failed\"", "Not complete: the disk is full &lt;"]);
    lacks(&page, &["\u{1b}", "verdict ok"]);
}

#[test]
fn a_file_that_was_there_took_nothing() {
    let path = "/data/run7.h5".to_owned();
    let present = Event::Present { path, at_s: 0.2, size_bytes: 5_000_000, same: SameBy::Digest };
    let page = page(&[started(&[ONE]), present]);
    has(&page, &["Already complete; nothing was fetched", "<dt>size</dt><dd>5.00<span> MB</span>"]);
    lacks(&page, &["sharebar"]);
}

#[test]
fn the_name_is_the_last_part_of_the_path() {
    for (path, name) in [
        ("/data/run7.h5", "<h1>run7.h5</h1><p class=\"path\">/data/run7.h5</p>"),
        ("run7.h5", "<h1>run7.h5</h1>"),
        ("folder/", "<h1>folder</h1><p class=\"path\">folder/</p>"),
        ("-", "<h1>standard output</h1>"),
        ("", "<h1>transfer</h1>"),
    ] {
        let mut recording = recording(&[started(&[ONE])]);
        recording.heading.path = path.to_owned();
        recording.heading.begun = None;
        has(&render(&recording), &[name]);
    }
}

#[test]
fn a_page_without_a_clock_or_a_command_has_neither() {
    let page = render(&Recording::default());
    has(&page, &["Not finished when this page was written"]);
    lacks(&page, &["Started on", "<code>"]);
}

#[test]
fn the_main_figures_are_those_of_the_summary() {
    let page = ended(|end| {
        end.efficiency = Some(0.5);
        end.wasted_bytes = 250_000;
    });
    has(
        &page,
        &[
            "<dt>size</dt><dd>1.00<span> MB</span></dd>",
            "<dt>time</dt><dd>10.0<span> s</span></dd>",
            "<dt>mean rate</dt><dd>100<span> kB/s</span></dd>",
            "<dt>efficiency</dt><dd>50<span> %</span></dd>",
            "<dt>wasted</dt><dd>250<span> kB</span></dd><small>20 % of what arrived</small>",
            "<dt>sources</dt><dd>2<",
            "<dt>requests</dt><dd>6<",
        ],
    );
    lacks(&ended(|_| ()), &["efficiency", "of what arrived"]);
}

#[test]
fn sources_that_delivered_nothing_are_counted_apart() {
    let page = ended(|end| end.sources[1].bytes = 0);
    has(&page, &["<dt>sources</dt><dd>2<span> </span></dd><small>1 of them delivered</small>"]);
}

#[test]
fn one_request_is_not_several() {
    let page = ended(|end| {
        end.sources.truncate(1);
        end.sources[0].requests = 1;
    });
    has(&page, &["<dt>request</dt><dd>1<"]);
}

#[test]
fn bytes_of_an_earlier_run_are_told() {
    let page = page(&[started(&[ONE]), opened(3_000_000, 2_000_000)]);
    has(&page, &["2.00 MB of it from an earlier run"]);
}

#[test]
fn what_limited_it_is_a_sentence() {
    let page = ended(|end| end.limited_by = LimitedBy::Disk { part: 0.9 });
    has(&page, &["<span>What limited it</span>The disk: it was saturated 90 % of the time.</p>"]);
    lacks(&ended(|_| ()), &["What limited it"]);
}

#[test]
fn a_forecast_is_shown_for_transfers_of_some_length() {
    let takes = Eta { likely_s: 12.0, low_s: 9.0, high_s: 20.0 };
    has(&ended(|end| end.forecast = Some(takes)), &["predicted 12.0 s (9.00 s to 20.0 s)"]);
    let short = |end: &mut Summary| {
        end.elapsed_s = 1.0;
        end.forecast = Some(takes.map(|s| s / 12.0));
    };
    lacks(&ended(short), &["predicted"]);
}

#[test]
fn the_script_s_data_cannot_end_its_element() {
    let hostile = "http://x/</script><script>alert(1)</script>";
    let page = page(&[started(&[hostile]), swath(0, 0, 10, 0.0, Outcome::Done)]);
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(data(&page)["src"][0], "x/</script><script>alert(1)</script>");
}

#[test]
fn clones_of_a_recorder_share_what_they_record() {
    let (mut one, other) = (Recorder::new(), Recorder::default());
    let clone = one.clone();
    swath_model::observe::Observer::observe(&mut one, &started(&[ONE]));
    assert_eq!(clone.recording().heading.path, "/data/run7.h5");
    assert_eq!(other.recording().heading.path, "");
    assert_eq!(clone.recording().heading.content, Content::File);
    assert!(clone.recording().heading.begun.is_some());
}

#[test]
fn every_kind_of_ending_leaves_a_page_whose_elements_are_closed() {
    let present =
        Event::Present { path: "f".to_owned(), at_s: 0.0, size_bytes: 0, same: SameBy::Name };
    for end in [Event::Finished(summary()), failed("gone"), present] {
        let page = page(&[started(&[ONE, TWO]), swath(0, 0, 100, 0.0, Outcome::Done), end]);
        for tag in ["section", "div", "svg", "table", "tr", "ul", "li", "details", "span"] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        lacks(&page, &["NaN", "inf "]);
    }
}
