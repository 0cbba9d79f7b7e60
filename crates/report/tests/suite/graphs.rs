//! Pictures of routes: what edges and sites say.

use swath_report::graph::{Drawing, Kind, Line, Site, svg};

fn site(name: &str, kind: Kind) -> Site {
    Site { name: name.to_owned(), kind }
}

fn line(from: usize, to: usize, rate_bytes_per_s: Option<f64>) -> Line {
    Line { from, to, rate_bytes_per_s, at_least: false, age_s: 60.0, rtt_s: None, limits: false }
}

/// A source, a relay and us: a route by the relay, and an edge past it.
fn drawing() -> Drawing {
    Drawing {
        sites: vec![
            site("here", Kind::Here),
            site("relay.example:8471", Kind::Relay),
            site("data.example:443", Kind::Source),
        ],
        edges: vec![line(2, 1, Some(25e6)), line(1, 0, Some(12.5e6)), line(2, 0, None)],
        routes: vec![vec![2, 1, 0]],
        target: 0,
    }
}

#[test]
fn edges_of_routes_stand_out_and_the_narrowest_limits() {
    let mut drawing = drawing();
    drawing.edges[1].limits = true;
    let picture = svg(&drawing);
    assert_eq!(picture.matches("<g class=\"e way\">").count(), 2, "with the one of the legend");
    assert!(picture.contains("; it limits the route</title>"), "{picture}");
    assert!(picture.contains("never measured"), "{picture}");
}

#[test]
fn rates_are_in_megabits_with_three_digits() {
    for (rate, figure) in
        [(125e3, "1.00"), (1.5625e6, "12.5"), (15.625e6, "125"), (1.25e9, "10000")]
    {
        let mut drawing = drawing();
        drawing.edges[0].rate_bytes_per_s = Some(rate);
        let wanted = format!("relay.example:8471: {figure} Mbit/s, measured 1 min 00 s ago");
        let picture = svg(&drawing);
        assert!(picture.contains(&wanted), "{wanted}: {picture}");
    }
    let mut drawing = drawing();
    drawing.edges[0].at_least = true;
    assert!(svg(&drawing).contains("≥ 200 Mbit/s"));
}

#[test]
fn old_measurements_are_pale() {
    for (age_s, class) in [(3_599.0, "e way"), (3_601.0, "e way stale"), (86_401.0, "e way old")] {
        let mut drawing = drawing();
        drawing.edges.iter_mut().for_each(|edge| edge.age_s = age_s);
        let picture = svg(&drawing);
        assert!(picture.contains(&format!("<g class=\"{class}\"><title>")), "{age_s}: {picture}");
    }
}

#[test]
fn names_lose_the_usual_port_and_their_middle() {
    let mut drawing = drawing();
    drawing.sites[1].name = format!("{}.example:8471", "very-".repeat(20));
    let picture = svg(&drawing);
    assert!(picture.contains(">data.example</text>"), "{picture}");
    assert!(picture.contains("…"), "{picture}");
    // The whole name is under the pointer.
    assert!(picture.contains(&format!("<title>{}.example:8471</title>", "very-".repeat(20))));
}

#[test]
fn round_trips_stand_beside_rates_where_there_is_room() {
    let mut drawing = drawing();
    drawing.edges[0].rtt_s = Some(0.0051);
    drawing.edges[1].rtt_s = Some(0.123);
    let picture = svg(&drawing);
    assert!(picture.contains("200 · 5.1 ms") && picture.contains("100 · 123 ms"), "{picture}");
    // With many edges, only the pointer tells them.
    for _ in 0..20 {
        drawing.edges.push(line(2, 0, Some(1e6)));
    }
    let picture = svg(&drawing);
    assert!(!picture.contains("200 · 5.1 ms") && picture.contains("round trip 5.1 ms"));
}

#[test]
fn odd_rates_are_no_rates() {
    for rate in [f64::NAN, f64::INFINITY, -5.0] {
        let mut drawing = drawing();
        drawing.edges[0].rate_bytes_per_s = Some(rate);
        let picture = svg(&drawing);
        assert!(!picture.contains("NaN") && !picture.contains("inf "), "{rate}: {picture}");
    }
}
