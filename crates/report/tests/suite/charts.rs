//! The timeline: rates over time, and the swaths of each source.

use swath_model::observe::{Event, Outcome, SourceState, SwathRecord};

use crate::support::{
    ONE, TWO, data, has, lacks, opened, page, progress, started, state, summary, swath,
};

fn two(events: &[Event]) -> String {
    page(&[&[started(&[ONE, TWO]), opened(1_000_000, 0)], events].concat())
}

#[test]
fn rates_are_stacked_and_have_a_peak_and_a_mean() {
    let samples = [(1.0, 100e3, 0.0), (2.0, 200e3, 300e3), (3.0, 100e3, 100e3)];
    let mut events: Vec<Event> =
        samples.iter().map(|&(at_s, one, two)| progress(at_s, &[one, two])).collect();
    events.push(Event::Finished(summary()));
    let page = two(&events);
    has(&page, &["500 kB/s at its peak", "100 kB/s on average"]);
    let rates = data(&page)["rates"].clone();
    let sums: Vec<i64> = rates
        .as_array()
        .unwrap()
        .iter()
        .map(|sample| sample[1].as_array().unwrap().iter().map(|it| it.as_i64().unwrap()).sum())
        .collect();
    assert!(sums.contains(&500), "kilobytes a second: {rates}");
}

#[test]
fn each_swath_is_a_bar_with_its_wait() {
    let page = two(&[
        swath(0, 0, 400_000, 0.0, Outcome::Done),
        swath(1, 400_000, 1_000_000, 1.0, Outcome::Done),
    ]);
    // Two seconds in all: the first is asked at once, waits 0.1 s, and ends in the middle.
    has(
        &page,
        &[
            "class=\"wait\" d=\"M0 1h500v22h-500z\"",
            "class=\"body\" d=\"M500 1h4500v22h-4500z\"",
            "class=\"wait\" d=\"M5000 1h500v22h-500z\"",
            "class=\"body\" d=\"M5500 1h4500v22h-4500z\"",
        ],
    );
    let bars = data(&page)["bars"].clone();
    assert_eq!(bars[0], serde_json::json!([0, 0, 0, 1000, 10_000, 0, 400_000, 0, 1]));
    assert_eq!(bars.as_array().unwrap().len(), 2);
}

#[test]
fn only_ways_to_end_that_occur_are_explained() {
    let all = [
        (Outcome::Trimmed, "class=\"key trim\""),
        (Outcome::Lost, "class=\"key lost\""),
        (Outcome::Failed, "class=\"key fail\""),
    ];
    for (outcome, words) in all {
        let page = two(&[swath(0, 0, 400_000, 0.0, outcome)]);
        for (other, others) in all {
            assert_eq!(page.contains(others), words == others, "{outcome:?} {other:?}");
        }
    }
}

#[test]
fn a_swath_without_a_byte_is_only_a_wait() {
    let record = SwathRecord {
        source: 0,
        lane: 0,
        start: 0,
        end: 0,
        asked_end: 100,
        asked_at_s: 1.0,
        first_byte_at_s: None,
        ended_at_s: 2.0,
        outcome: Outcome::Lost,
    };
    let page = two(&[Event::Swath(record)]);
    has(&page, &["class=\"wait\" d=\"M5000 1h5000v22h-5000z\"", "class=\"body\" d=\"\""]);
    assert_eq!(data(&page)["bars"][0][3], -1, "no first byte");
}

#[test]
fn lanes_of_a_source_stand_below_each_other() {
    let lane = |lane| {
        let Event::Swath(record) = swath(0, 0, 100, 0.0, Outcome::Done) else { panic!() };
        Event::Swath(SwathRecord { lane, ..record })
    };
    let one = two(&[lane(0)]);
    let three = two(&[lane(0), lane(1), lane(2)]);
    has(&one, &["data-lane=\"24\""]);
    has(&three, &["data-lane=\"16\"", "style=\"height:48px\""]);
}

#[test]
fn silence_is_a_tint_behind_the_swaths_until_it_ends() {
    let page = two(&[
        state(0.0, 0, SourceState::Running, None),
        state(2.0, 0, SourceState::Silent, None),
        state(6.0, 0, SourceState::Running, Some("it delivers again")),
        swath(0, 0, 100, 7.0, Outcome::Done),
    ]);
    // From the second to the sixth of eight seconds.
    has(&page, &["<rect class=\"still\" x=\"2500\" y=\"0\" width=\"5000\""]);
    lacks(&page, &["<rect class=\"gone\""]);
}

#[test]
fn the_time_axis_ends_with_the_last_event() {
    let page = two(&[swath(0, 0, 100, 59.0, Outcome::Done)]);
    assert_eq!(data(&page)["end"], 600_000);
    has(&page, &["<div class=\"plot axis\""]);
}

#[test]
fn sources_that_delivered_little_have_no_row_where_there_are_many() {
    let names: Vec<String> = (0..100).map(|n| format!("http://m{n}.example/f")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut events = vec![started(&names)];
    for (n, _) in names.iter().enumerate() {
        let start = n as u64 * 1000;
        events.push(swath(n as u32, start, start + 1000 - n as u64, 0.0, Outcome::Done));
    }
    let page = page(&events);
    has(&page, &["more sources, which delivered less, are in the table below"]);
    // All are in the table and in the data.
    has(&page, &["m99.example"]);
    assert_eq!(data(&page)["src"].as_array().unwrap().len(), 100);
}
