//! The list of events and their marks: who fell silent, who came back, what was warned of.

use swath_model::observe::{Event, Outcome, SourceState};

use crate::support::{ONE, TWO, has, lacks, page, started, state, swath};

fn with(events: &[Event]) -> String {
    let end = swath(0, 0, 100, 20.0, Outcome::Done);
    page(&[&[started(&[ONE, TWO])], events, &[end]].concat())
}

#[test]
fn changes_that_concern_a_reader_are_events() {
    let page = with(&[
        state(1.0, 1, SourceState::Slow, None),
        state(5.0, 1, SourceState::Silent, Some("nothing arrived for 3 round trips")),
        state(9.0, 1, SourceState::Running, Some("it delivers again")),
        state(15.0, 1, SourceState::Bad, Some("connection refused")),
    ]);
    has(
        &page,
        &[
            "source 2 (two.example) is slow",
            "is silent: nothing arrived for 3 round trips",
            "delivers: it delivers again",
            "is not used: connection refused",
            "<time>15.00 s</time>",
            "source back",
            "source slow",
        ],
    );
}

#[test]
fn the_usual_course_of_a_source_is_no_event() {
    let page = with(&[
        state(0.0, 0, SourceState::Probing, None),
        state(1.0, 0, SourceState::Running, None),
        state(9.0, 0, SourceState::Idle, None),
    ]);
    lacks(&page, &["<ol class=\"events\"", "is queried", "class=\"mark "]);
}

#[test]
fn a_source_that_is_retried_has_a_reason() {
    let page = with(&[state(3.0, 0, SourceState::Probing, Some("reset by peer"))]);
    has(&page, &["lost its connection and is retried: reset by peer", "source retried"]);
}

#[test]
fn notes_and_warnings_differ() {
    let page = with(&[
        Event::note(2.0, "the file is <large>".to_owned(), false),
        Event::note(9.0, "the digest differs".to_owned(), true),
    ]);
    has(&page, &["the file is &lt;large&gt;", "the digest differs", "mark note", "mark warn"]);
    lacks(&page, &["<large>"]);
}

#[test]
fn events_at_the_same_time_are_one_mark_with_their_number() {
    let at = |s| Event::note(s, format!("at {s}"), false);
    let page = with(&[at(5.0), at(5.1), at(5.2), at(12.0)]);
    has(&page, &["data-n=\"3\"", "data-n=\"1\"", "several at once"]);
    // Each is in the list.
    for words in ["at 5<", "at 5.1<", "at 5.2<", "at 12<"] {
        has(&page, &[words]);
    }
}

#[test]
fn of_very_many_events_the_rest_is_counted() {
    let many: Vec<Event> = (0..3000).map(|n| Event::note(1.0, format!("n{n}"), false)).collect();
    let page = with(&many);
    has(&page, &["and 2,600 more"]);
}

#[test]
fn times_that_are_none_do_no_harm() {
    let page = with(&[
        Event::note(f64::NAN, "odd".to_owned(), true),
        state(f64::INFINITY, 0, SourceState::Slow, None),
        state(-3.0, 7_000_000, SourceState::Bad, Some("far")),
    ]);
    has(&page, &["odd", "</html>"]);
    lacks(&page, &["NaN"]);
}
