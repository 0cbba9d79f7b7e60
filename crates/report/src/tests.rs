//! Recordings of whole transfers and the pages made of them.

use swath_model::observe::{
    Eta, Event, Observer as _, Outcome, Phase, Snapshot, SourceSnapshot, SourceState, Summary,
    SwathRecord,
};
use swath_model::{Range, SourceName};
use swath_netlab::events::{Link, Scenario, play};

use super::{Content, Recorder, Recording, render};
use crate::moments::MOMENTS_MAX;
use crate::rates::RATES_MAX;
use crate::recording::Ending;
use crate::swaths::{BARS_MAX, PIECES_MAX};

fn record(events: &[Event]) -> Recording {
    let mut recorder = Recorder::new();
    for event in events {
        recorder.observe(event);
    }
    recorder.recording()
}

fn six() -> Scenario {
    let mut six =
        Scenario::star("/data/a.root", 1_000_000_000, &[20.0, 40.0, 60.0, 80.0, 120.0, 180.0]);
    six.links[4].dies_s = Some((1.2, "connection refused".to_owned()));
    six
}

/// The data that the page's script reads.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("the page has data");
    let (text, _) = rest.split_once("</script>").expect("the data ends");
    serde_json::from_str(text).expect("the data is JSON")
}

#[test]
fn ways_are_called_by_their_relays_and_what_is_in_use_is_told_by_what_changed() {
    let address = "http://ornl.example/f";
    let found = |source, relays: &[&str]| Event::Source {
        at_s: 0.5,
        source,
        name: SourceName::routed(address, relays.iter().copied()),
        state: SourceState::Probing,
        reason: None,
    };
    let page = render(&record(&[
        Event::Started { path: "f".into(), sources: vec![address.to_owned()] },
        found(1, &["denver.example:8471", "atlanta.example:8471"]),
        found(2, &["<b>.example:8471"]),
        Event::Routes { at_s: 1.0, sources: vec![0, 1] },
        Event::Routes { at_s: 2.5, sources: vec![0, 2] },
        Event::note(4.0, "over".into(), false),
    ]));
    for text in [
        "<b>by denver, atlanta</b>",
        "now in use: 2 (by denver, atlanta)<",
        "now in use: 3 (by &lt;b&gt;) · no longer in use: 2 (by denver, atlanta)<",
        "Routes in use</b><small>2 changes",
        // All the time, for 1.5 of 4 s, and to the end.
        "M0 2h2500v4h-2500zM2500 2h3750v4h-3750zM6250 2h3750v4h-3750z",
        "M2500 8h3750v4h-3750z",
        "M6250 14h3750v4h-3750z",
    ] {
        assert!(page.contains(text), "{text}\n{page}");
    }
    assert!(!page.contains("<b>.example"));
    let without = render(&record(&play(&six())));
    assert!(!without.contains("Routes in use"));
}

#[test]
fn a_page_says_what_it_is_of_and_explains_no_more_than_it_shows() {
    let mut recording = record(&play(&six()));
    recording.heading.content = Content::Tree;
    recording.heading.path = ".".to_owned();
    recording.heading.destination = "/data/run7".to_owned();
    recording.heading.command = "swath cp https://h/run7/ . --token …".to_owned();
    let page = render(&recording);
    for text in [
        "<h1>run7</h1><p class=\"path\">/data/run7</p>",
        "<code>swath cp https://h/run7/ . --token …</code>",
        "The tree, by source",
        "from the first file to the last",
        "<i class=\"key gone\"></i>source not used",
        ">×</span>source not used",
    ] {
        assert!(page.contains(text), "{text}");
    }
    for text in ["The file, by", "source silent", "source slow", "key still", "warning<"] {
        assert!(!page.contains(text), "{text}");
    }
}

#[test]
fn the_map_gives_every_byte_to_one_source() {
    let recording = record(&play(&six()));
    let ranges: Vec<Range> = recording.swaths.map.iter().map(|(range, _)| range).collect();
    assert_eq!(ranges.first().map(|r| r.start), Some(0));
    assert_eq!(ranges.iter().map(|r| r.len()).sum::<u64>(), 1_000_000_000);
    assert_eq!(recording.ending, Some(Ending::Finished));
}

#[test]
fn a_copy_that_came_second_takes_nothing_from_the_first() {
    let swath = |source, start, end, outcome| {
        Event::Swath(SwathRecord {
            source,
            lane: 0,
            start,
            end,
            asked_end: end,
            asked_at_s: 0.0,
            first_byte_at_s: Some(0.1),
            ended_at_s: 0.2,
            outcome,
        })
    };
    let recording = record(&[
        swath(0, 0, 50, Outcome::Done),
        swath(1, 0, 80, Outcome::Lost),
        swath(2, 60, 100, Outcome::Done),
        swath(1, 10, 20, Outcome::Done),
    ]);
    let who: Vec<(u64, u64, u32)> =
        recording.swaths.map.iter().map(|(r, d)| (r.start, r.end, d.source)).collect();
    assert_eq!(who, [(0, 10, 0), (10, 20, 1), (20, 50, 0), (50, 60, 1), (60, 100, 2)]);
}

#[test]
fn a_page_holds_everything_and_loads_nothing() {
    let page = render(&record(&play(&six())));
    for text in [
        "a.root",
        "1.00",
        "Complete, verified by sha-256",
        "connection refused",
        "mirror6.",
        "What limited it",
    ] {
        assert!(page.contains(text), "{text}");
    }
    for loaded in [
        "src=\"",
        "@import",
        "<link rel=\"stylesheet",
        "url(http",
        "fetch(",
        "XMLHttp",
        "<iframe",
        "<base",
    ] {
        assert!(!page.contains(loaded), "{loaded}");
    }
    for tag in [
        "section", "div", "svg", "table", "tbody", "tr", "td", "ul", "li", "script", "style",
        "span", "details",
    ] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    let data = data(&page);
    assert_eq!(data["src"].as_array().map(Vec::len), Some(6));
    assert!(!page.contains("NaN") && !page.contains("inf%"));
}

#[test]
fn hostile_names_stay_text() {
    let mut scenario = Scenario::star(
        "/tmp/</title><script>alert(1)</script>\u{202e}.bin",
        50_000_000,
        &[40.0, 25.0],
    );
    scenario.links[0].name =
        "evil.example/\"'><img src=x onerror=alert(2)></script><script>alert(3)</script>"
            .to_owned();
    scenario.links.push(Link {
        rate: 0.0,
        dies_s: Some((0.1, "<svg onload=alert(4)>".to_owned())),
        ..scenario.links[1].clone()
    });
    let page = render(&record(&play(&scenario)));
    for raw in ["<script>alert", "<img", "<svg onload", "\"'>", "\u{202e}"] {
        assert!(!page.contains(raw), "{raw}");
    }
    assert_eq!(page.matches("<script").count(), 2, "the data and the script, nothing else");
    assert_eq!(
        data(&page)["src"][0],
        "evil.example/\"'><img src=x onerror=alert(2)></script><script>alert(3)</script>"
    );
}

#[test]
fn an_empty_or_broken_off_recording_has_a_page() {
    assert!(render(&Recording::default()).contains("Not finished"));
    let mut events = play(&six());
    events.truncate(events.len() / 2);
    let page = render(&record(&events));
    assert!(page.contains("Not finished") && page.contains("not fetched in this run"));
    // A zero-byte file, times and rates that are no numbers.
    let odd = Event::Progress(Snapshot {
        at_s: f64::NAN,
        phase: Phase::Fetching,
        size_bytes: Some(0),
        files: 1,
        done_bytes: 0,
        resumed_bytes: 0,
        verified_bytes: 0,
        rate_bytes_per_s: f64::INFINITY,
        eta: None,
        sources: vec![SourceSnapshot {
            source: u32::MAX,
            name: SourceName::direct("far.example"),
            state: SourceState::Running,
            rate_bytes_per_s: f64::NAN,
            bytes: 0,
            share: f64::NAN,
            rtt_ms: Some(f64::NAN),
            lanes: u32::MAX,
            requests: 0,
        }],
    });
    let odd_swath = Event::Swath(SwathRecord {
        source: u32::MAX,
        lane: u32::MAX,
        start: u64::MAX,
        end: 0,
        asked_end: 7,
        asked_at_s: f64::NEG_INFINITY,
        first_byte_at_s: Some(f64::NAN),
        ended_at_s: -1.0,
        outcome: Outcome::Failed,
    });
    assert!(render(&record(&[odd, odd_swath])).contains("</html>"));
}

#[test]
fn memory_and_page_are_bounded() {
    let mut recorder = Recorder::new();
    for i in 0..60_000_u64 {
        let at_s = i as f64 * 0.002;
        recorder.observe(&Event::Swath(SwathRecord {
            source: (i % 300) as u32,
            lane: (i / 300 % 8) as u32,
            start: (i * 7_919 % 60_000) * 1_000,
            end: (i * 7_919 % 60_000) * 1_000 + 1_000,
            asked_end: 0,
            asked_at_s: at_s,
            first_byte_at_s: Some(at_s + 0.05),
            ended_at_s: at_s + 0.3,
            outcome: if i % 50 == 0 { Outcome::Failed } else { Outcome::Done },
        }));
        if i % 20 == 0 {
            let source = |source| SourceSnapshot {
                source,
                name: SourceName::direct(format!("mirror{source}.example/file")),
                state: SourceState::Running,
                rate_bytes_per_s: 1e6,
                bytes: 0,
                share: 0.0,
                rtt_ms: None,
                lanes: 1,
                requests: 0,
            };
            recorder.observe(&Event::Progress(Snapshot {
                at_s,
                phase: Phase::Fetching,
                size_bytes: Some(60_000_000),
                files: 1,
                done_bytes: 0,
                resumed_bytes: 0,
                verified_bytes: 0,
                rate_bytes_per_s: 3e8,
                eta: None,
                sources: (0..300).map(source).collect(),
            }));
            recorder.observe(&Event::note(at_s, "again".to_owned(), false));
        }
    }
    let recording = recorder.recording();
    assert!(recording.swaths.bars.len() <= BARS_MAX);
    assert!(recording.swaths.map.count() <= PIECES_MAX);
    assert!(recording.rates.samples.len() * 300 <= RATES_MAX + 300);
    assert!(recording.moments.kept.len() <= MOMENTS_MAX && recording.moments.dropped > 0);
    assert_eq!(recording.swaths.count, 60_000);
    let page = render(&recording);
    assert!(page.len() < 8_000_000, "{} bytes", page.len());
}

/// The same events with another summary at their end.
fn ending(mut events: Vec<Event>, change: impl FnOnce(&mut Summary)) -> Recording {
    let Some(Event::Finished(summary)) = events.last_mut() else { panic!("it finishes") };
    change(summary);
    record(&events)
}

#[test]
fn what_nothing_proved_gets_no_tick() {
    let page = render(&ending(play(&six()), |summary| {
        summary.proved = false;
        summary.verified_by = "no digest of it is known; the mirrors agree on the size".to_owned();
    }));
    let words = "Complete, but not verified: no digest of it is known; the mirrors agree";
    assert!(page.contains(words), "{}", &page[..20_000]);
    assert!(!page.contains("class=\"verdict ok\""));
    let page = render(&ending(play(&six()), |summary| {
        summary.proved = false;
        summary.verified_by = "no digest of it is known".to_owned();
    }));
    assert!(page.contains("Complete, but not verified: no digest of it is known"));
}

#[test]
fn a_swath_that_failed_near_its_end_is_drawn_as_delivered_up_to_there() {
    // All of it was hatched as failed, although its bytes were kept.
    let swath = SwathRecord {
        source: 0,
        lane: 0,
        start: 0,
        end: 900,
        asked_end: 1000,
        asked_at_s: 0.0,
        first_byte_at_s: Some(0.0),
        ended_at_s: 1.0,
        outcome: Outcome::Failed,
    };
    let page = render(&record(&[
        Event::Started { path: "a".to_owned(), sources: vec!["http://one.example/a".to_owned()] },
        Event::Swath(swath),
    ]));
    assert!(page.contains("class=\"body\" d=\"M0 1h9000v22"), "nine tenths delivered");
    assert!(page.contains("class=\"weak\" d=\"M9000 1h1000v22"), "one tenth failed");
}

#[test]
fn the_page_tells_when_it_was_by_which_version_and_of_what() {
    let mut recording = record(&play(&six()));
    recording.heading.begun =
        Some(std::time::UNIX_EPOCH + std::time::Duration::from_secs(784_111_777));
    let page = render(&recording);
    let version = format!("Written by swath {}", env!("CARGO_PKG_VERSION"));
    for text in ["Started on Sun, 06 Nov 1994 08:49:37 GMT", &version, "9f86d081884c7d65"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn short_transfers_have_rates_from_their_beginning() {
    // Until the first look at the rates there were none; a transfer over by then had none at all.
    let short: Vec<Event> = play(&Scenario::star("a", 1_000_000, &[40.0, 60.0]))
        .into_iter()
        .filter(|event| !matches!(event, Event::Progress(_)))
        .collect();
    let recording = record(&short);
    assert_eq!(recording.rates.samples.len(), 2);
    assert!(recording.rates.samples[0].rates_bytes_per_s.iter().sum::<f32>() > 1e6);
    let rates = data(&render(&record(&play(&six()))))["rates"].clone();
    assert_eq!(rates[0][0], 0, "{rates}");
}

#[test]
fn a_little_waste_is_not_none() {
    let page = render(&ending(play(&six()), |summary| summary.wasted_bytes = 3_410));
    assert!(page.contains("&lt;0.1 % of what arrived"));
}

#[test]
fn what_was_predicted_stands_beside_what_it_took() {
    let forecast = |takes| ending(play(&six()), |summary| summary.forecast = takes);
    let takes = Eta { likely_s: 2760.0, low_s: 2460.0, high_s: 3300.0 };
    let words = "predicted 46 min 00 s (41 min 00 s to 55 min 00 s)";
    assert!(render(&forecast(Some(takes))).contains(words));
    assert!(!render(&forecast(None)).contains("predicted"));
}
