//! Snapshots of what users read. Where one changes on purpose, copy what the failed test prints.

use std::io::Write;
use std::sync::{Arc, Mutex};

use swath_model::SourceName;
use swath_netlab::events;
use swath_transfer::observe::{
    DigestFrom, Eta, Event, LimitedBy, Observer as _, Phase, Snapshot, SourceSnapshot, SourceState,
    SourceSummary, Summary, Verified,
};

use super::batch::Tally;
use super::frame::{View, frame};
use super::look::Look;
use super::{Json, Plain, Quiet, Terminal, batch_view, stopped_summary, summary, text};

const ASCII: Look = Look { unicode: false, ..Look::PLAIN };

fn look(width: usize) -> Look {
    Look { width, ..Look::PLAIN }
}

/// Compares line by line, so that a difference can be read.
#[track_caller]
fn reads(text: &str, expected: &[&str]) {
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines == expected, "it reads now:\n{text}\n(as lines)\n{lines:#?}");
}

fn source(number: u32, state: SourceState, rate_mb: f64, share: f64) -> SourceSnapshot {
    let hosts = ["mirror-a.example.org", "b.example.net", "très-loin.example", "d.example"];
    SourceSnapshot {
        source: number,
        name: SourceName::direct(format!(
            "{}/pub/release-7/big-file.h5",
            hosts[number as usize % 4]
        )),
        state,
        rate_bytes_per_s: rate_mb * 1e6,
        bytes: (share * 640e6) as u64,
        share,
        rtt_ms: Some(11.0 * f64::from(number + 1)),
        lanes: number + 1,
        requests: 7,
    }
}

fn snapshot() -> Snapshot {
    Snapshot {
        at_s: 3.0,
        phase: Phase::Fetching,
        size_bytes: Some(1_050_000_000),
        files: 1,
        done_bytes: 640_000_000,
        resumed_bytes: 0,
        verified_bytes: 630_000_000,
        rate_bytes_per_s: 412e6,
        eta: Some(Eta { likely_s: 12.0, low_s: 10.0, high_s: 19.0 }),
        sources: vec![
            source(0, SourceState::Running, 182.0, 0.61),
            source(1, SourceState::Slow, 1.5, 0.12),
            source(2, SourceState::Silent, 0.0, 0.27),
            source(3, SourceState::Bad, 0.0, 0.0),
            source(4, SourceState::Probing, 0.0, 0.0),
        ],
    }
}

fn view() -> View {
    let reasons = [(3, "404 Not Found \x1b[31m(twice)".to_owned())].into();
    View {
        path: "/data/big-file.h5".to_owned(),
        sources: 5,
        is_staging: false,
        snapshot: Some(snapshot()),
        reasons,
        shown: Vec::new(),
    }
}

#[test]
fn a_frame_at_100_columns() {
    reads(
        &frame(&mut view(), look(100)).join("\n"),
        &[
            "fetching big-file.h5                           640 MB of 1.05 GB   412 MB/s   3 s, ETA 12 s (10–19)",
            "━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╸────────────────────────────────────  60 %",
            " 1 running mirror-a.example.org/pub/release-7/big-file.h5  ████████████   182 MB/s   61 %    11 ms",
            " 2 slow    b.example.net/pub/release-7/big-file.h5         ██▍           1.50 MB/s   12 %    22 ms",
            " 3 silent  très-loin.example/pub/release-7/big-file.h5     █████▎            0 B/s   27 %    33 ms",
            " 4 bad     d.example/pub/release-7/big-file.h5             404 Not Found �[31m(twice)",
            " 5 probing mirror-a.example.org/pub/release-7/big-file.h5                                    55 ms",
        ],
    );
}

#[test]
fn a_frame_at_80_columns_in_ascii() {
    reads(
        &frame(&mut view(), ASCII).join("\n"),
        &[
            "fetching big-file.h5       640 MB of 1.05 GB   412 MB/s   3 s, ETA 12 s (10-19)",
            "[###########################################----------------------------]  60 %",
            " 1 running mirror-a.example.org/...ile.h5  ########   182 MB/s   61 %    11 ms",
            " 2 slow    b.example.net/.../big-file.h5   ##        1.50 MB/s   12 %    22 ms",
            " 3 silent  tr?s-loin.example/...g-file.h5  ####          0 B/s   27 %    33 ms",
            " 4 bad     d.example/.../big-file.h5       404 Not Found ?[31m(twice)",
            " 5 probing mirror-a.example.org/...ile.h5                                55 ms",
        ],
    );
}

#[test]
fn a_frame_at_60_columns() {
    reads(
        &frame(&mut view(), look(60)).join("\n"),
        &[
            "fetching big-file.h5",
            "640 MB of 1.05 GB  412 MB/s  3 s, ETA 12 s (10–19)",
            "━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━─────────────────────  60 %",
            " 1 running mirror-a.…ample.org  ████████   182 MB/s   61 %",
            " 2 slow    b.example.net/…e.h5  █▋        1.50 MB/s   12 %",
            " 3 silent  très-loin.example    ███▌          0 B/s   27 %",
            " 4 bad     d.example/…-file.h5  404 Not Found �[31m(twice)",
            " 5 probing mirror-a.…ample.org",
        ],
    );
}

#[test]
fn a_frame_at_40_columns() {
    reads(
        &frame(&mut view(), look(40)).join("\n"),
        &[
            "fetching big-file.h5",
            "640 MB of 1.05 GB  412 MB/s",
            "3 s, ETA 12 s (10–19)",
            "━━━━━━━━━━━━━━━━━━━━─────────────  60 %",
            " 1 running mirror-a…ple.org   182 MB/s",
            " 2 slow    b.example.net     1.50 MB/s",
            " 3 silent  très-loi…example      0 B/s",
            " 4 bad     d.example/…le.h5  404 Not F…",
            " 5 probing mirror-a…ple.org",
        ],
    );
}

#[test]
fn no_line_reaches_the_last_column_at_any_width() {
    for width in 1..200 {
        for unicode in [true, false] {
            for colour in [true, false] {
                let look = Look { width, height: 24, colour, unicode, ..Look::PLAIN };
                for line in frame(&mut view(), look) {
                    let columns = text::width_painted(&line);
                    assert!(columns < width.max(40), "{columns} of {width}: {line}");
                }
            }
        }
    }
}

#[test]
fn colour_says_no_more_than_words() {
    let look = Look { colour: true, ..Look::PLAIN };
    let painted = frame(&mut view(), look);
    assert!(painted[2].contains("\x1b[32mrunning\x1b[0m"), "{}", painted[2]);
    assert!(painted[5].contains("\x1b[31mbad    \x1b[0m"), "{}", painted[5]);
}

#[test]
fn before_the_first_figures() {
    let mut view = View { snapshot: None, ..view() };
    reads(&frame(&mut view, look(80)).join("\n"), &["big-file.h5  querying 5 sources"]);
}

#[test]
fn an_unknown_size_has_no_bar_and_no_forecast() {
    let mut view = view();
    if let Some(snapshot) = &mut view.snapshot {
        snapshot.size_bytes = None;
        snapshot.eta = None;
        snapshot.sources.truncate(1);
    }
    reads(
        &frame(&mut view, look(90)).join("\n"),
        &[
            "fetching big-file.h5                                       640 MB   412 MB/s   3 s, ETA –",
            " 1 running mirror-a.example.org/…/big-file.h5        ████████   182 MB/s   61 %    11 ms",
        ],
    );
}

#[test]
fn verifying_counts_what_is_proved() {
    let mut view = view();
    if let Some(snapshot) = &mut view.snapshot {
        snapshot.phase = Phase::Verifying;
        snapshot.rate_bytes_per_s = 0.0;
        snapshot.sources.clear();
    }
    reads(
        &frame(&mut view, look(90)).join("\n"),
        &[
            "verifying big-file.h5                           630 MB of 1.05 GB   3 s, ETA 12 s (10–19)",
            "━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╸─────────────────────────────────  60 %",
        ],
    );
}

#[test]
fn of_many_sources_the_busiest_are_shown_and_do_not_jump() {
    let mut view = view();
    let many = |bump: u32| -> Vec<SourceSnapshot> {
        (0..30)
            .map(|i| {
                let state = if i == 29 { SourceState::Bad } else { SourceState::Running };
                let rate = if i == bump { 1.1 } else { 1.0 } * (10.0 + f64::from(i % 15));
                SourceSnapshot { bytes: 0, ..source(i, state, rate, 0.03) }
            })
            .collect()
    };
    if let Some(snapshot) = &mut view.snapshot {
        snapshot.sources = many(99);
    }
    let first = frame(&mut view, look(80));
    assert_eq!(first.len(), 2 + 12);
    assert_eq!(first.last().map(String::as_str), Some("    and 19 more: 18 running, 1 bad"));
    let shown = view.shown.clone();
    // Source 9 becomes a little faster than one that has a line: nothing moves.
    if let Some(snapshot) = &mut view.snapshot {
        snapshot.sources = many(9);
    }
    frame(&mut view, look(80));
    assert_eq!(view.shown.len(), shown.len());
    assert!(shown.iter().all(|s| view.shown.contains(s)), "{shown:?} {:?}", view.shown);
    // A low terminal shows fewer.
    assert!(frame(&mut view, Look { height: 8, ..look(80) }).len() <= 7);
}

fn end() -> Summary {
    let of = |s: SourceSnapshot, reason: Option<&str>| SourceSummary {
        source: s.source,
        name: s.name,
        state: s.state,
        reason: reason.map(str::to_owned),
        bytes: s.bytes,
        share: s.share,
        rate_bytes_per_s: s.rate_bytes_per_s,
        capacity_bytes_per_s: s.rate_bytes_per_s * 1.1,
        requests: 1_204,
        lanes: s.lanes,
        settled_lanes: s.lanes,
        rtt_ms: s.rtt_ms,
        wasted_bytes: 0,
    };
    Summary {
        sent: false,
        forecast: None,
        path: "/data/big-file.h5".to_owned(),
        size_bytes: 1_050_000_000,
        fetched_bytes: 640_000_000,
        resumed_bytes: 410_000_000,
        kept_bytes: 0,
        kept_files: 0,
        elapsed_s: 2.61,
        rate_bytes_per_s: 245e6,
        wasted_bytes: 3_200_000,
        efficiency: Some(0.93),
        verified: Verified::Digest,
        verified_by: "sha-256".to_owned(),
        digest_from: Some(DigestFrom::User),
        proved: true,
        limited_by: LimitedBy::Sources,
        digest: None,
        sources: vec![
            of(source(0, SourceState::Running, 182.0, 0.61), None),
            of(source(1, SourceState::Idle, 64.0, 0.39), None),
            of(source(3, SourceState::Bad, 0.0, 0.0), Some("404 Not Found")),
        ],
    }
}

#[test]
fn the_summary() {
    reads(
        &summary(&end(), Look { details: true, ..look(100) }),
        &[
            "big-file.h5: 1.05 GB in 2.61 s, 245 MB/s, verified by sha-256 that you gave",
            "410 MB from an earlier run, 640 MB fetched now",
            "    source                                          bytes  share       rate  requests  lanes    RTT",
            "  1 mirror-a.example.org/…/big-file.h5             390 MB   61 %   182 MB/s     1,204      1  11 ms",
            "  2 b.example.net/pub/release-7/big-file.h5        250 MB   39 %  64.0 MB/s     1,204      2  22 ms",
            "  4 d.example/pub/release-7/big-file.h5               0 B    0 %      0 B/s     1,204      4  44 ms",
            "    not used: 404 Not Found",
            "wasted 3.20 MB (0.5 %), efficiency 93 % of the sources' capacity",
            "limited by the sources' links: each delivered as fast as it could",
        ],
    );
}

#[test]
fn the_summary_of_a_stop_in_a_narrow_terminal() {
    reads(
        &stopped_summary(&end(), look(50)).expect("something came"),
        &[
            "big-file.h5: received all 1.05 GB, then stopped after 2.61 s, 245 MB/s",
            "410 MB from an earlier run, 640 MB fetched now",
            "    source                bytes  share       rate",
            "  1 mirror-a.…ample.org  390 MB   61 %   182 MB/s",
            "  2 b.example.net/…e.h5  250 MB   39 %  64.0 MB/s",
            "  4 d.example/…-file.h5     0 B    0 %      0 B/s",
            "limited by the sources' links: each delivered as fast as it could",
        ],
    );
}

/// A writer whose text can be read afterwards.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("unpoisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("unpoisoned").clone()).expect("text")
    }
}

fn events() -> Vec<Event> {
    let mut scenario = events::Scenario::star("/data/a.root", 1_000_000_000, &[60.0, 120.0, 40.0]);
    scenario.links[2].dies_s = Some((1.5, "connection refused".to_owned()));
    let mut events = events::play(&scenario);
    let note = Event::note(1.6, "a block from source 2 was corrupt".to_owned(), true);
    events.insert(events.len() / 2, note);
    events
}

#[test]
fn the_plain_display() {
    let out = Shared::default();
    let mut plain = Plain::with_look(Box::new(out.clone()), look(100));
    events().iter().for_each(|event| plain.observe(event));
    reads(
        &out.text(),
        &[
            "a.root from 3 sources",
            "1.00 GB, verifying by sha-256, 954 pieces of 1 MiB",
            "1 s: 17 %, 176 MB of 1.00 GB, 199 MB/s from 3 of 3 sources, ETA 4 s (4–6)",
            "not using source 3 (mirror3.in2p3.fr/atlas/rucio/data18_13TeV/a.root): connection refused",
            "2 s: 36 %, 363 MB of 1.00 GB, 164 MB/s from 2 of 3 sources, ETA 4 s (3–5)",
            "warning: a block from source 2 was corrupt",
            "3 s: 53 %, 533 MB of 1.00 GB, 159 MB/s from 2 of 3 sources, ETA 3 s (2–4)",
            "4 s: 69 %, 695 MB of 1.00 GB, 161 MB/s from 2 of 3 sources, ETA 2 s (2–3)",
            "5 s: 85 %, 854 MB of 1.00 GB, 161 MB/s from 2 of 3 sources, ETA 1 s",
            "a.root: 1.00 GB in 5.96 s, 168 MB/s, verified by sha-256",
            "    source                                              bytes  share       rate     RTT",
            "  1 mirror1.cern.ch/atlas/rucio/data18_13TeV/a.root    322 MB   32 %  54.8 MB/s  4.0 ms",
            "  2 mirror2.desy.de/atlas/rucio/data18_13TeV/a.root    626 MB   63 %   107 MB/s  137 ms",
            "  3 mirror3.in2p3.fr/atlas/rucio/data18_13TeV/a.root  51.7 MB    5 %  31.3 MB/s   61 ms",
            "    not used: connection refused",
            "limited by the loss of mirror3.in2p3.fr/atlas/rucio/data18_13TeV/a.root on the way",
        ],
    );
}

#[test]
fn quiet_tells_warnings_only() {
    let out = Shared::default();
    let mut quiet = Quiet::new(Box::new(out.clone()));
    events().iter().for_each(|event| quiet.observe(event));
    assert_eq!(out.text(), "warning: a block from source 2 was corrupt\n");
}

#[test]
fn json_is_one_event_a_line() {
    let out = Shared::default();
    let mut json = Json::new(Box::new(out.clone()));
    let events = events();
    events.iter().for_each(|event| json.observe(event));
    let text = out.text();
    assert_eq!(text.lines().count(), events.len());
    for line in text.lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        assert!(value["event"].is_string(), "{line}");
    }
    let of_file =
        serde_json::to_value(super::json::OfFile { file: 7, event: &events[0] }).expect("JSON");
    assert_eq!((of_file["file"].as_u64(), of_file["event"].as_str()), (Some(7), Some("started")));
}

#[test]
fn the_terminal_cleans_up_and_leaves_the_summary() {
    let out = Shared::default();
    let mut terminal = Terminal::new(Box::new(out.clone()), Box::new(|| look(100)));
    let mut log = terminal.log_writer();
    for event in events() {
        terminal.observe(&event);
    }
    write!(log, "half a line").expect("written");
    writeln!(log, " and its end").expect("written");
    drop((terminal, log));
    let text = out.text();
    assert!(text.contains("a block from source 2 was corrupt\n"));
    assert!(text.contains("not using source 3 (mirror3.in2p3.fr/atlas/rucio/data18_13TeV/a.root): connection refused\n"), "{text}");
    let (_, after) = text.rsplit_once("a.root: 1.00 GB in ").expect("the summary");
    assert!(after.ends_with("half a line and its end\n"), "{after}");
    assert!(!after.contains("\x1b[2K") && !after.contains('━'));
}

/// A file that was fetched once more, to compare, said nothing but its phase for as long as that took.
#[test]
fn comparing_and_staging_are_told_as_fetching_is() {
    for (phase, line) in [
        (Phase::Disputing, "1 s: comparing 60 %, 630 MB of 1.05 GB, "),
        (Phase::Staging, "1 s: 60 %, 640 MB of 1.05 GB, "),
    ] {
        let out = Shared::default();
        let mut plain = Plain::new(Box::new(out.clone()));
        plain.observe(&Event::Progress(Snapshot { phase, at_s: 1.2, ..snapshot() }));
        let text = out.text();
        assert!(text.contains(line), "{text}");
        let whom = if phase == Phase::Staging { "depots" } else { "sources" };
        assert!(text.contains(whom), "{text}");
    }
}

/// Sources that answer little by little are idle whenever one looks: "0 of 3 sources" delivered all.
#[test]
fn sources_count_as_delivering_while_bytes_arrive() {
    let out = Shared::default();
    let mut plain = Plain::new(Box::new(out.clone()));
    let mut sources = vec![
        SourceSnapshot { bytes: 5, ..source(0, SourceState::Idle, 0.0, 0.5) },
        SourceSnapshot { bytes: 7, ..source(1, SourceState::Probing, 0.0, 0.3) },
        SourceSnapshot { bytes: 0, ..source(2, SourceState::Idle, 0.0, 0.1) },
    ];
    let mut at = |at_s, sources: &[SourceSnapshot]| {
        let sources = sources.to_vec();
        plain.observe(&Event::Progress(Snapshot { at_s, sources, ..snapshot() }));
    };
    at(1.2, &sources);
    assert!(out.text().contains(" from 2 of 3 sources"), "{}", out.text());
    sources[1].bytes += 1;
    at(20.0, &sources);
    assert!(out.text().contains(" from 1 of 3 sources"), "{}", out.text());
}

/// What scrolled out at the top of a low window, or wrapped in a narrow one, was left behind.
#[test]
fn a_small_window_is_never_overrun() {
    for (width, height) in [(100, 3), (12, 24), (19, 2), (1, 1)] {
        let out = Shared::default();
        let small = Look { width, height, ..Look::PLAIN };
        let mut terminal = Terminal::new(Box::new(out.clone()), Box::new(move || small));
        terminal.observe(&Event::Progress(snapshot()));
        let text = out.text();
        let lines: Vec<&str> = text.lines().collect();
        // The last one is the end of the update, behind the last line break.
        assert!(lines.len() - 1 <= height.saturating_sub(1).max(1), "{width}×{height}: {text:?}");
        for line in &lines {
            assert!(text::width_painted(line) < width.max(2), "{width}×{height}: {line:?}");
        }
    }
}

#[test]
fn a_summary_breaks_between_words() {
    assert_eq!(text::wrapped("one two three\n  four\n", 9), "one two\nthree\n  four\n");
    assert_eq!(text::wrapped("\x1b[1mone\x1b[0m two", 6), "\x1b[1mone\x1b[0m\ntwo\n");
    assert_eq!(text::cut_painted("\x1b[31mabcdef\x1b[0m", 3), "\x1b[31mabc\x1b[0m");
}

#[test]
fn a_source_that_cannot_be_reached_says_why() {
    let mut view = view();
    view.reasons.insert(4, "the connection broke".to_owned());
    let lines = frame(&mut view, look(100));
    assert!(lines[6].contains("probing") && lines[6].contains("the connection broke"), "{lines:?}");
}

fn tally() -> Tally {
    let mut tally =
        Tally { title: "list.txt".to_owned(), count: Some(100_000), ..Tally::default() };
    let mut big = snapshot();
    big.sources.truncate(2);
    for file in 0..1_204_u64 {
        let path = format!("runs/run-{file:05}.h5");
        tally.add(file, &Event::Started { path: path.clone(), sources: Vec::new() });
        tally.add(file, &Event::Finished(Summary { path, ..end() }));
        if file % 100 == 0 {
            tally.tick(file as f64 / 100.0);
        }
    }
    for file in 1_204..1_212 {
        tally.add(
            file,
            &Event::Started { path: format!("runs/run-{file:05}.h5"), sources: Vec::new() },
        );
    }
    tally.add(1_205, &Event::Progress(big));
    let stopped = Event::Failed {
        path: "runs/run-01211.h5".to_owned(),
        at_s: 1.0,
        error: "404 Not Found".to_owned(),
        stopped: false,
        kept_bytes: 0,
        summary: end(),
    };
    tally.add(1_211, &stopped);
    tally.fail("/data/big-file.h5", "404 Not Found");
    tally.tick(12.1);
    tally
}

#[test]
fn a_list_of_files_has_a_few_lines() {
    reads(
        &batch_view::frame(&tally(), look(110)).join("\n"),
        &[
            "fetching list.txt                1,205 of 100,000 files   1 failed   1.27 TB   61.1 GB/s   ETA 17 min (15–19)",
            "━──────────────────────────────────────────────────────────────────────────────────────────────────────   1 %",
            "  run-01205.h5                                           fetching    640 MB of 1.05 GB   412 MB/s   2 sources",
            "    and 6 more active files",
        ],
    );
}

#[test]
fn a_list_of_files_in_a_narrow_terminal() {
    reads(
        &batch_view::frame(&tally(), look(48)).join("\n"),
        &[
            "fetching list.txt",
            "1,205 of 100,000 files  1 failed  1.27 TB",
            "61.1 GB/s  ETA 17 min (15–19)",
            "─────────────────────────────────────────   1 %",
            "  run-01205.h5     640 MB of 1.05 GB   412 MB/s",
            "    and 6 more active files",
        ],
    );
}

#[test]
fn a_list_of_files_in_plain_lines_and_at_its_end() {
    let text = format!(
        "{}\n{}",
        batch_view::plain_line(&tally()),
        batch_view::summary(&tally(), look(80))
    );
    reads(
        &text,
        &[
            "12 s: 1 %, 1,205 of 100,000 files, 1.27 TB, 63.5 GB/s, 1 failed, ETA 17 min (15–19)",
            "list.txt: 1,204 of 100,000 files in 12.1 s, 1.27 TB, 63.7 GB/s",
            "494 GB from an earlier run, 771 GB fetched now",
            "  mirror-a.example.org    470 GB   61 %",
            "  b.example.net           301 GB   39 %",
            "  d.example                  0 B    0 %",
            "1 file failed: /data/big-file.h5",
        ],
    );
}

#[test]
fn what_is_sent_is_not_said_to_be_fetched_and_here_there_is_no_round_trip() {
    let mut sent = end();
    sent.sent = true;
    sent.resumed_bytes = 410_000_000;
    let text = summary(&sent, Look::PLAIN);
    assert!(text.contains("410 MB already sent by an earlier run, "), "{text}");
    assert!(text.contains(" sent now\n") && text.contains("RTT"), "{text}");
    for source in &mut sent.sources {
        source.rtt_ms = Some(0.01);
    }
    assert!(!summary(&sent, Look::PLAIN).contains("RTT"));
}

#[test]
fn a_list_keeps_nothing_of_finished_files() {
    let tally = tally();
    assert_eq!(tally.active.len(), 7);
    assert_eq!(tally.hosts.len(), 3);
}
