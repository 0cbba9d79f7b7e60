//! The map of what was transferred: who delivered which part.

use swath_model::observe::{Event, Outcome};
use swath_report::Content;

use crate::support::{ONE, TWO, data, has, lacks, opened, page, page_of, started, summary, swath};

fn of_parts(parts: &[(u32, u64, u64)], content: Content) -> String {
    let mut events = vec![started(&[ONE, TWO]), opened(1_000_000, 0)];
    events.extend(
        parts.iter().map(|&(source, from, to)| swath(source, from, to, 0.0, Outcome::Done)),
    );
    page_of(content, &events)
}

/// Whose each part is, as the tooltips say it.
fn owners(page: &str) -> Vec<(u64, u64, u64)> {
    let data = data(page);
    let map = data["map"].as_array().unwrap().iter();
    map.map(|piece| {
        let number = |at: usize| piece[at].as_u64().unwrap();
        (number(0), number(1), number(2))
    })
    .collect()
}

#[test]
fn each_part_has_its_source() {
    let page = of_parts(&[(0, 0, 250_000), (1, 250_000, 1_000_000)], Content::File);
    assert_eq!(owners(&page), [(0, 250_000, 0), (250_000, 1_000_000, 1)]);
    has(&page, &["data-size=\"1000000\"", "data-lines=\"4\"", "4 lines of 250 kB"]);
    // Nothing else is missing.
    lacks(&page, &["not fetched in this run", "from an earlier run"]);
}

#[test]
fn what_is_fetched_again_belongs_to_the_last() {
    let page = of_parts(&[(0, 0, 600_000), (1, 400_000, 1_000_000)], Content::File);
    assert_eq!(owners(&page), [(0, 400_000, 0), (400_000, 1_000_000, 1)]);
}

#[test]
fn the_map_is_of_a_file_a_tree_or_a_list() {
    for (content, words) in [
        (Content::File, ["The file, by source", "from the first byte to the last"]),
        (Content::Tree, ["The tree, by source", "from the first file to the last"]),
        (Content::List, ["The list, by source", "from the first file to the last"]),
    ] {
        has(&of_parts(&[(0, 0, 1_000_000)], content), &words);
    }
}

#[test]
fn what_is_missing_was_not_fetched_or_is_of_an_earlier_run() {
    let some =
        [started(&[ONE]), opened(1_000_000, 500_000), swath(0, 0, 500_000, 0.0, Outcome::Done)];
    has(&page(&some), &["not fetched in this run"]);
    let ended = [&some[..], &[Event::Finished(summary())]].concat();
    let page = page(&ended);
    has(&page, &["from an earlier run"]);
    lacks(&page, &["not fetched in this run"]);
}

#[test]
fn one_source_is_shown_by_the_time_of_arrival() {
    let one = of_parts(&[(0, 0, 1_000_000)], Content::File);
    has(&one, &["id=\"by-t\" checked"]);
    let two = of_parts(&[(0, 0, 500_000), (1, 500_000, 1_000_000)], Content::File);
    has(&two, &["id=\"by-s\" checked"]);
}

#[test]
fn a_map_with_many_pieces_has_more_lines() {
    for (pieces, lines) in [(4_u64, 4), (20, 8), (500, 14), (900, 22)] {
        let parts: Vec<(u32, u64, u64)> = (0..pieces)
            .map(|n| ((n % 2) as u32, n * 1_000_000 / pieces, (n + 1) * 1_000_000 / pieces))
            .collect();
        has(&of_parts(&parts, Content::File), &[&*format!("data-lines=\"{lines}\"")]);
    }
}

#[test]
fn without_a_size_there_is_no_map() {
    lacks(&page(&[started(&[ONE])]), &["id=\"t-map\""]);
    // What has arrived is a size.
    has(&page(&[started(&[ONE]), swath(0, 0, 10, 0.0, Outcome::Done)]), &["data-size=\"10\""]);
}
