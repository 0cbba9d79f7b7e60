//! The recording of a list of files: hosts are its sources, and its files stand end to end.

use swath_model::SourceName;
use swath_model::observe::{
    DigestFrom, Event, Outcome, SameBy, SourceState, SourceSummary, Summary,
};
use swath_report::{Content, ListRecorder, host_of, render, warning_of_relays};

use crate::support::{data, has, lacks, opened, swath};

/// Records that a file of this many bytes came from a host, whole.
fn fetch(list: &ListRecorder, file: u64, host: &str, bytes: u64) {
    let mut observer = list.observer(file);
    let address = format!("http://{host}/{file}.h5");
    let sources = vec![address.clone()];
    observer.observe(&Event::Started { path: format!("{file}.h5"), sources });
    observer.observe(&opened(bytes, 0));
    observer.observe(&swath(0, 0, bytes, 0.0, Outcome::Done));
    let source =
        SourceSummary { name: SourceName::direct(address), bytes, ..SourceSummary::default() };
    observer.observe(&Event::Finished(Summary {
        size_bytes: bytes,
        fetched_bytes: bytes,
        proved: true,
        verified_by: "sha-256".to_owned(),
        digest_from: Some(DigestFrom::User),
        sources: vec![source],
        ..Summary::default()
    }));
}

#[test]
fn files_stand_one_behind_the_other() {
    let list = ListRecorder::new("list.txt");
    fetch(&list, 0, "a.example", 1000);
    fetch(&list, 1, "b.example", 500);
    fetch(&list, 2, "a.example", 200);
    let recording = list.recording();
    assert_eq!(recording.heading.content, Content::List);
    assert_eq!(recording.heading.files, Some(3));
    let page = render(&recording);
    let data = data(&page);
    assert_eq!(data["src"], serde_json::json!(["a.example", "b.example"]));
    let map: Vec<[u64; 3]> = data["map"]
        .as_array()
        .unwrap()
        .iter()
        .map(|piece| [0, 1, 2].map(|at| piece[at].as_u64().unwrap()))
        .collect();
    assert_eq!(map, [[0, 1000, 0], [1000, 1500, 1], [1500, 1700, 0]]);
    has(
        &page,
        &[
            "<h1>list.txt</h1>",
            "<dt>files</dt><dd>3<",
            "Complete, verified by digests that you gave",
        ],
    );
}

#[test]
fn a_list_says_whose_digests_proved_how_many_files() {
    let list = ListRecorder::new("list.txt");
    fetch(&list, 0, "a.example", 1000);
    let mut observer = list.observer(1);
    observer.observe(&Event::Started { path: "f".to_owned(), sources: Vec::new() });
    let digest_from = Some(DigestFrom::Server);
    observer.observe(&Event::Finished(Summary { proved: true, digest_from, ..Summary::default() }));
    let words = "Complete, verified by digests that you gave (1), digests from their servers (1)";
    has(&render(&list.recording()), &[words]);
}

#[test]
fn one_file_that_nothing_proved_leaves_the_list_unproved() {
    let list = ListRecorder::new("list.txt");
    fetch(&list, 0, "a.example", 1000);
    let mut observer = list.observer(1);
    observer.observe(&Event::Started { path: "f".to_owned(), sources: Vec::new() });
    observer.observe(&Event::Finished(Summary::default()));
    // It said "the digests that each file's mirrors report".
    let words = "Complete, but not verified: no digest of 1 of 2 files is known";
    has(&render(&list.recording()), &[words]);
    // Nor does a file prove anything that was there already, if only its name was compared.
    let (path, same) = ("g".to_owned(), SameBy::Name);
    list.observer(2).observe(&Event::Present { path, at_s: 0.0, size_bytes: 9, same });
    has(&render(&list.recording()), &["no digest of 2 of 3 files is known"]);
}

#[test]
fn failed_and_stopped_files_are_counted_apart() {
    let end = |list: &ListRecorder, file, stopped| {
        let mut observer = list.observer(file);
        observer.observe(&Event::Started { path: "f".to_owned(), sources: Vec::new() });
        observer.observe(&Event::Failed {
            path: "f".to_owned(),
            at_s: 1.0,
            error: "404".to_owned(),
            stopped,
            kept_bytes: 0,
            summary: Summary::default(),
        });
    };
    let list = ListRecorder::new("list.txt");
    fetch(&list, 0, "a.example", 1000);
    end(&list, 1, true);
    let page = render(&list.recording());
    has(&page, &["Not complete: 1 of 2 files were stopped"]);
    lacks(&page, &["f: 404"]);
    end(&list, 2, false);
    list.failed("later.h5", "no such host");
    let page = render(&list.recording());
    has(&page, &["Not complete: 2 of 4 files failed", "f: 404", "later.h5: no such host"]);
}

#[test]
fn files_that_were_there_count_and_those_that_run_keep_it_open() {
    let list = ListRecorder::new("list.txt");
    let path = "f".to_owned();
    list.observer(0).observe(&Event::Present {
        path,
        at_s: 0.0,
        size_bytes: 9,
        same: SameBy::Name,
    });
    assert_eq!(list.recording().heading.files, Some(1));
    has(&render(&list.recording()), &["<dt>files</dt><dd>1<"]);
    list.observer(1).observe(&Event::Started { path: "g".to_owned(), sources: Vec::new() });
    has(&render(&list.recording()), &["Not finished when this page was written"]);
    // It was a Metalink: what it names is another file of the list.
    let url = "http://a.example/g.meta4".to_owned();
    list.observer(1).observe(&Event::Metalink { at_s: 0.0, url });
    lacks(&render(&list.recording()), &["Not finished"]);
}

#[test]
fn a_host_that_is_not_used_is_an_event_of_its_file() {
    let list = ListRecorder::new("list.txt");
    let mut observer = list.observer(0);
    let address = "http://a.example/f".to_owned();
    observer.observe(&Event::Started { path: "f".to_owned(), sources: vec![address.clone()] });
    observer.observe(&Event::Source {
        at_s: 0.0,
        source: 0,
        name: SourceName::direct(address),
        state: SourceState::Bad,
        reason: Some("refused".to_owned()),
    });
    has(&render(&list.recording()), &["f: a.example is not used: refused"]);
}

#[test]
fn what_relays_could_have_changed_is_warned_of_once() {
    assert_eq!(
        warning_of_relays(1, 1_000_000),
        "NOT VERIFIED: no digest of 1 file came without relays, which could have changed the 1.00 MB \
         that they delivered; to verify them, put digests in the list, or use --end-to-end (https:// \
         sources) or --route direct"
    );
    assert!(warning_of_relays(2, 0).contains("no digest of 2 files came"));
}

#[test]
fn hosts_and_routes_are_sources_and_paths_are_not() {
    let by = |address: &str| SourceName::routed(address, ["r.example:80"]);
    assert_eq!(host_of(&by("http://a.example/x/y")), by("a.example"));
    assert_eq!(host_of(&by("http://a.example/x")), host_of(&by("http://a.example/y")));
    let direct = SourceName::direct("http://a.example/x");
    assert_ne!(host_of(&direct), host_of(&by("http://a.example/x")));
}
