//! Pictures of past transfers: rates above, forecasts over actual times below.

use swath_model::observe::Eta;
use swath_report::history::{Past, svg};

/// 2026-01-01, in seconds since 1970.
const BEGUN_S: f64 = 1_767_225_600.0;

fn past(hours: f64, took_s: f64, forecast: Option<Eta>) -> Past {
    Past {
        begun_s: BEGUN_S + hours * 3600.0,
        took_s,
        bytes: 1_000_000_000,
        forecast,
        name: "a.example to here".to_owned(),
    }
}

#[test]
fn a_transfer_says_what_it_was_under_the_pointer() {
    let takes = Eta { likely_s: 30.0, low_s: 20.0, high_s: 50.0 };
    let picture = svg("a.example", &[past(0.0, 25.0, Some(takes))]);
    let words = "2026-01-01 00:00:00 a.example to here: 1.00 GB in 25.0 s, predicted 30.0 s (20.0 s to 50.0 s)";
    // Once at its rate, once at its forecast.
    assert_eq!(picture.matches(words).count(), 2, "{picture}");
    assert!(picture.contains("1 complete transfer<"), "{picture}");
}

#[test]
fn a_forecast_is_right_if_the_time_was_in_its_range() {
    let takes = Eta { likely_s: 30.0, low_s: 20.0, high_s: 60.0 };
    for (took_s, is_inside) in [(19.9, false), (20.0, true), (60.0, true), (60.1, false)] {
        let picture = svg("all", &[past(0.0, took_s, Some(takes))]);
        assert_eq!(picture.contains("class=\"p in\""), is_inside, "{took_s} s");
        assert_eq!(picture.contains("class=\"p out\""), !is_inside, "{took_s} s");
    }
}

#[test]
fn newer_transfers_stand_further_right_and_faster_ones_higher() {
    let picture = svg("all", &[past(0.0, 100.0, None), past(1.0, 1.0, None)]);
    let places = |name: &str| -> Vec<f64> {
        let dots = picture.split("class=\"p \"").skip(1);
        dots.map(|dot| {
            let (_, rest) = dot.split_once(&format!("{name}=\"")).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        })
        .collect()
    };
    let (x, y) = (places("cx"), places("cy"));
    assert!(x[0] < x[1] && y[0] > y[1], "{x:?} {y:?}");
}

#[test]
fn a_forecast_far_off_stays_in_the_picture() {
    let wild = Eta { likely_s: 1e9, low_s: 1e-9, high_s: 1e12 };
    let picture = svg("all", &[past(0.0, 10.0, Some(wild))]);
    assert!(picture.contains("class=\"p out\"") || picture.contains("class=\"p in\""));
    assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
}

#[test]
fn headings_are_text_and_pictures_load_nothing() {
    let picture = svg("<script>&\u{202e}", &[past(0.0, 1.0, None)]);
    assert!(picture.contains("&lt;script&gt;&amp;") && !picture.contains('\u{202e}'));
    for loaded in ["<script", "href", "url(http", "@import"] {
        assert!(!picture.contains(loaded), "{loaded}");
    }
}
