//! Pictures of random graphs: whatever the graph, everything is in its place and nothing is lost.

use super::draw::Layout;
use super::{Drawing, Kind, Line, Site, layers, svg};

/// A graph of sources, relays and us, with a route of several hops that stands out.
fn random(seed: u64) -> Drawing {
    let mut random = fastrand::Rng::with_seed(seed);
    let (sources, relays) = (random.usize(1..6), random.usize(0..24));
    let name = |kind: &str, n: usize, random: &mut fastrand::Rng| {
        format!("{kind}{n}{}.example:{}", "x".repeat(random.usize(0..30)), random.u16(..))
    };
    let site = |kind, name| Site { name, kind };
    let mut sites = vec![site(Kind::Here, "here".to_owned())];
    for n in 0..relays {
        sites.push(site(Kind::Relay, name("relay", n, &mut random)));
    }
    for n in 0..sources {
        sites.push(site(Kind::Source, name("source", n, &mut random)));
    }
    let count = sites.len();
    let line = |from, to, random: &mut fastrand::Rng| Line {
        from,
        to,
        rate_bytes_per_s: (random.u8(0..8) > 0).then(|| random.f64() * 1e9),
        at_least: random.bool(),
        age_s: random.f64() * 200_000.0,
        rtt_s: random.bool().then(|| random.f64()),
        limits: false,
    };
    let mut edges: Vec<Line> = Vec::new();
    for _ in 0..random.usize(1..count * 4) {
        let (from, to) = (random.usize(1..count), random.usize(0..=relays));
        if from != to && !edges.iter().any(|edge| (edge.from, edge.to) == (from, to)) {
            edges.push(line(from, to, &mut random));
        }
    }
    let mut route: Vec<usize> = (1..=relays).collect();
    random.shuffle(&mut route);
    route.truncate(random.usize(0..7));
    route.insert(0, count - 1);
    route.push(0);
    for pair in route.windows(2) {
        if !edges.iter().any(|edge| [edge.from, edge.to] == *pair) {
            edges.push(line(pair[0], pair[1], &mut random));
        }
    }
    Drawing { sites, edges, routes: vec![route], target: 0 }
}

#[test]
fn sites_stand_clear_of_each_other_and_routes_lead_to_the_right() {
    for seed in 0..300 {
        let drawing = random(seed);
        let layout = Layout::of(&drawing);
        let frames = &layout.frames;
        assert_eq!(layout.curves.len(), drawing.edges.len());
        for (n, a) in frames.iter().enumerate() {
            assert!(a.x >= 0.0 && a.x + a.width <= layout.width + 0.01, "seed {seed}: {a:?}");
            assert!(a.y >= 0.0 && a.y + a.height <= layout.height + 0.01, "seed {seed}: {a:?}");
            for b in &frames[..n] {
                let apart = a.x + a.width < b.x
                    || b.x + b.width < a.x
                    || a.y + a.height < b.y
                    || b.y + b.height < a.y;
                assert!(apart, "seed {seed}: {a:?} {b:?}");
            }
        }
        for pair in drawing.routes[0].windows(2) {
            let (from, to) = (frames[pair[0]], frames[pair[1]]);
            assert!(from.x + from.width < to.x, "seed {seed}: {from:?} {to:?}");
        }
        // Each edge begins and ends at its sites.
        for (line, curve) in drawing.edges.iter().zip(&layout.curves) {
            let frame = frames[line.to];
            let (x, y) = curve.tip;
            let side = if curve.leftwards { frame.x + frame.width } else { frame.x };
            assert!((x - side).abs() < 2.0, "seed {seed}");
            assert!((frame.y..=frame.y + frame.height).contains(&y), "seed {seed}");
        }
    }
}

#[test]
fn every_site_and_every_edge_is_in_the_picture() {
    for seed in 0..100 {
        let drawing = random(seed);
        let text = svg(&drawing);
        assert!(!text.contains("NaN") && !text.contains("inf"), "seed {seed}");
        assert_eq!(text.matches("<g class=\"s ").count(), drawing.sites.len(), "seed {seed}");
        // With a tip each; those of the legend have none.
        assert_eq!(text.matches("class=\"a\"").count(), drawing.edges.len(), "seed {seed}");
        assert_eq!(text.matches("<g").count(), text.matches("</g>").count(), "seed {seed}");
    }
    assert!(svg(&Drawing::default()).contains("nothing is known yet"));
}

#[test]
fn columns_are_the_hops_of_the_widest_routes() {
    let site = |name: &str, kind| Site { name: name.to_owned(), kind };
    let line = |from, to, rate: f64| Line {
        from,
        to,
        rate_bytes_per_s: Some(rate),
        at_least: false,
        age_s: 0.0,
        rtt_s: None,
        limits: false,
    };
    let drawing = Drawing {
        sites: vec![
            site("here", Kind::Here),
            site("near", Kind::Relay),
            site("far", Kind::Relay),
            site("source", Kind::Source),
            site("alone", Kind::Relay),
        ],
        // The far relay's own edge to us is narrower than the one by way of the near one.
        edges: vec![
            line(1, 0, 9.0),
            line(2, 1, 8.0),
            line(2, 0, 1.0),
            line(3, 2, 5.0),
            line(1, 4, 1.0),
        ],
        routes: vec![],
        target: 0,
    };
    assert_eq!(layers::columns(&drawing), [0, 1, 2, 3, 1]);
}

#[test]
fn what_a_name_holds_stays_text() {
    let mut drawing = random(1);
    drawing.sites[1..].iter_mut().for_each(|site| site.name = "<script>\u{202e}&".to_owned());
    let text = svg(&drawing);
    assert!(text.contains("&lt;script&gt;\u{fffd}&amp;") && !text.contains("<script"));
}
