//! The picture itself.

use std::fmt::Write as _;

use maud::{Markup, html};
use swath_model::units;

use super::lines::{self, Curve, Frame};
use super::{Drawing, Kind, Line, labels, layers, order};
use crate::picture::{self, tenth};

/// Makes a file of its own of the drawing. Without sites it says that there are none.
pub fn svg(drawing: &Drawing) -> String {
    if drawing.sites.is_empty() {
        return picture::empty(TITLE, "nothing is known yet");
    }
    let Layout { frames, curves, width, height } = Layout::of(drawing);
    let mut numbers: Vec<usize> = (0..drawing.edges.len()).collect();
    // What stands out lies on top, and the wide on top of the narrow.
    numbers.sort_by(|a, b| {
        let rank = |edge: usize| drawing.stands_out(&drawing.edges[edge]);
        rank(*a).cmp(&rank(*b)).then(curves[*a].width.total_cmp(&curves[*b].width))
    });
    let inner = html! {
        @for &edge in &numbers { (edge_svg(drawing, &drawing.edges[edge], &curves[edge])) }
        @for (site, frame) in frames.iter().enumerate() { (site_svg(drawing, site, frame)) }
        (figures(drawing, &numbers, &curves, &frames))
        (legend(height, drawing))
    };
    picture::page(TITLE, CSS, [width.max(LEGEND_WIDTH), height + 40.0], &inner)
}

/// Where everything stands.
pub(super) struct Layout {
    pub(super) frames: Vec<Frame>,
    pub(super) curves: Vec<Curve>,
    /// Of all, with margins.
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Layout {
    pub(super) fn of(drawing: &Drawing) -> Layout {
        let widest = drawing.edges.iter().map(Line::rate).fold(0.0, f64::max);
        let widths: Vec<f64> =
            drawing.edges.iter().map(|line| lines::width(line.rate(), widest)).collect();
        let from_right = layers::columns(drawing);
        let last = from_right.iter().copied().max().unwrap_or(0);
        let column: Vec<usize> = from_right.iter().map(|it| last - it).collect();
        let heights = heights(drawing, &column, &widths);
        let placed = order::place(drawing, &column, &heights);

        // Columns as wide as their widest name, with room for figures between them.
        let name_width =
            |site: usize| text_width(&shown(&drawing.sites[site].name), 13.0, BOLD) + 34.0;
        let mut spans = Vec::new();
        let mut x = MARGIN;
        for at in 0..=last {
            let sites = (0..drawing.sites.len()).filter(|site| column[*site] == at);
            let width = sites.map(name_width).fold(BEND_SPAN, f64::max);
            spans.push((x, x + width));
            x += width + gap(drawing);
        }
        let width = spans.last().map_or(0.0, |span| span.1) + MARGIN;
        let frames: Vec<Frame> = (0..drawing.sites.len())
            .map(|site| {
                let (left, right) = spans[column[site]];
                let (own, height) = (name_width(site), heights[site]);
                let middle = placed.of(order::Slot::Site(site), column[site]) + MARGIN;
                let x = match column[site] {
                    0 => left,
                    at if at == last => right - own,
                    _ => (left + right - own) / 2.0,
                };
                Frame { x, y: middle - height / 2.0, width: own, height }
            })
            .collect();
        let placed = order::Placed {
            columns: placed
                .columns
                .into_iter()
                .map(|slots| slots.into_iter().map(|(slot, y)| (slot, y + MARGIN)).collect())
                .collect(),
            ..placed
        };
        let curves = lines::curves(drawing, &column, &frames, &spans, &placed, &widths);
        Layout { frames, curves, width, height: placed.height + MARGIN * 2.0 }
    }
}

/// As high as what meets its sides needs.
fn heights(drawing: &Drawing, column: &[usize], widths: &[f64]) -> Vec<f64> {
    let mut left = vec![0.0; drawing.sites.len()];
    let mut right = left.clone();
    for (edge, line) in drawing.edges.iter().enumerate() {
        let (begin, end) = lines::sides(column[line.from], column[line.to]);
        for (site, side) in [(line.from, begin), (line.to, end)] {
            let sum = if side == lines::Side::Left { &mut left } else { &mut right };
            sum[site] += widths[edge] + lines::PORT_GAP;
        }
    }
    left.into_iter()
        .zip(right)
        .map(|(left, right)| f64::max(left, right).max(22.0) + 14.0)
        .collect()
}

fn edge_svg(drawing: &Drawing, line: &Line, curve: &Curve) -> Markup {
    let age = match line.rate_bytes_per_s {
        None => " blank",
        Some(_) if line.age_s > OLD_S => " old",
        Some(_) if line.age_s > STALE_S => " stale",
        Some(_) => "",
    };
    let mut path = String::new();
    for (at, [a, b, c, d]) in curve.pieces.iter().enumerate() {
        if at == 0 {
            let _ = write!(path, "M{:.1} {:.1}", a.0, a.1);
        }
        let _ = write!(path, "C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}", b.0, b.1, c.0, c.1, d.0, d.1);
    }
    let (length, half) = lines::arrow(curve.width);
    let back = if curve.leftwards { length } else { -length };
    let (x, y) = curve.tip;
    let arrow = format!("M{x:.1} {y:.1}l{back:.1} {:.1}v{:.1}z", -half, 2.0 * half);
    html! {
        g class={ (class("e", drawing, line)) (age) } {
            title { (title(drawing, line)) }
            path.l stroke-width=(tenth(curve.width)) d=(path) {}
            path.a d=(arrow) {}
        }
    }
}

/// The class of an edge and of its figure: routes stand out, and so does what limits them.
fn class(class: &str, drawing: &Drawing, line: &Line) -> String {
    let route = match drawing.stands_out(line) {
        true if line.limits => " way limit",
        true => " way",
        false => "",
    };
    format!("{class}{route}")
}

fn site_svg(drawing: &Drawing, site: usize, frame: &Frame) -> Markup {
    let (class, dot) = drawing.sites[site].kind.look();
    let on = if drawing.routes.iter().any(|route| route.contains(&site)) { " on" } else { "" };
    let name = &drawing.sites[site].name;
    let middle = tenth(frame.y + frame.height / 2.0 + 4.5);
    html! {
        g class={ "s " (class) (on) } {
            title { (name) }
            rect x=(tenth(frame.x)) y=(tenth(frame.y)) width=(tenth(frame.width))
                height=(tenth(frame.height)) rx="9" {}
            text.d x=(tenth(frame.x + 10.0)) y=(middle) { (dot) }
            text x=(tenth(frame.x + 24.0)) y=(middle) { (shown(name)) }
        }
    }
}

impl Kind {
    /// The class and the sign of a site.
    fn look(self) -> (&'static str, &'static str) {
        match self {
            Kind::Here => ("here", "◆"),
            Kind::Relay => ("relay", "●"),
            Kind::Source => ("source", "■"),
        }
    }
}

/// The figures of the edges, those of the routes first, then those of the widest.
fn figures(drawing: &Drawing, numbers: &[usize], curves: &[Curve], frames: &[Frame]) -> Markup {
    let is_roomy = drawing.edges.len() <= FEW;
    let text = |line: &Line| match line.rtt_s {
        Some(rtt_s) if is_roomy => format!("{} · {}", figure(line), round_trip(rtt_s)),
        _ => figure(line),
    };
    let order =
        numbers.iter().rev().filter(|edge| drawing.edges[**edge].rate_bytes_per_s.is_some());
    let wanted: Vec<(usize, f64)> = order
        .take(FIGURES_MAX)
        .map(|edge| (*edge, text_width(&text(&drawing.edges[*edge]), 11.5, BOLD) + 8.0))
        .collect();
    html! {
        @for (edge, (x, y), width) in labels::place(&wanted, curves, frames) {
            @let line = &drawing.edges[edge];
            g class=(class("f", drawing, line)) {
                rect x=(tenth(x - width / 2.0)) y=(tenth(y - 7.5)) width=(tenth(width)) height="15"
                    rx="4" {}
                text x=(tenth(x)) y=(tenth(y + 4.0)) { (text(line)) }
            }
        }
    }
}

fn title(drawing: &Drawing, line: &Line) -> String {
    let (from, to) = (&drawing.sites[line.from].name, &drawing.sites[line.to].name);
    let measured = match line.rate_bytes_per_s {
        None => "never measured".to_owned(),
        Some(_) => {
            format!("{} Mbit/s, measured {} ago", figure(line), units::duration(line.age_s))
        }
    };
    let round_trip =
        line.rtt_s.map_or(String::new(), |it| format!(", round trip {}", round_trip(it)));
    let limits = if line.limits { "; it limits the route" } else { "" };
    format!("{from} → {to}: {measured}{round_trip}{limits}")
}

/// Megabits per second with three digits.
fn figure(line: &Line) -> String {
    let mbit = line.rate() * 8.0 / 1e6;
    let sign = if line.at_least { "≥ " } else { "" };
    match mbit {
        mbit if mbit >= 99.95 => format!("{sign}{mbit:.0}"),
        mbit if mbit >= 9.995 => format!("{sign}{mbit:.1}"),
        mbit => format!("{sign}{mbit:.2}"),
    }
}

fn round_trip(rtt_s: f64) -> String {
    let ms = rtt_s * 1e3;
    if ms < 9.95 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

/// A name without the port that says nothing, and not too long.
fn shown(name: &str) -> String {
    let bare = name.strip_suffix(":443").or_else(|| name.strip_suffix(":80")).unwrap_or(name);
    let count = bare.chars().count();
    if count <= NAME_MAX {
        return bare.to_owned();
    }
    let (head, tail) = (NAME_MAX / 2, NAME_MAX - NAME_MAX / 2 - 1);
    let begin: String = bare.chars().take(head).collect();
    let end: String = bare.chars().skip(count - tail).collect();
    format!("{begin}…{end}")
}

/// About how wide a text is, in fonts that are wide ones.
fn text_width(text: &str, size: f64, weight: f64) -> f64 {
    text.chars().count() as f64 * size * weight
}

/// Between columns: more where figures carry round trips too.
fn gap(drawing: &Drawing) -> f64 {
    if drawing.edges.len() <= FEW { 150.0 } else { 120.0 }
}

fn legend(top: f64, drawing: &Drawing) -> Markup {
    let y = top + 14.0;
    let has_routes = !drawing.routes.is_empty();
    let has_blank = drawing.edges.iter().any(|edge| edge.rate_bytes_per_s.is_none());
    let lines = [
        ("e way", "route", 5.0, has_routes),
        ("e way limit", "its limit", 5.0, has_routes),
        ("e", "edge (Mbit/s)", 5.0, true),
        ("e stale", "over an hour old", 5.0, true),
        ("e old", "over a day old", 5.0, true),
        ("e blank", "never measured", 1.2, has_blank),
    ];
    let mut x = MARGIN;
    let mut after = |text: &str, more: f64| {
        let at = x;
        x += text_width(text, 12.0, PLAIN) + more;
        at
    };
    html! {
        g.k {
            @for (kind, text) in
                [(Kind::Source, "source"), (Kind::Relay, "relay"), (Kind::Here, "here")] {
                @let (class, dot) = kind.look();
                @let x = after(text, 32.0);
                text class={ "d " (class) } x=(tenth(x)) y=(tenth(y)) { (dot) }
                text x=(tenth(x + 13.0)) y=(tenth(y)) { (text) }
            }
            @for (class, text, width, _) in lines.into_iter().filter(|(.., is_drawn)| *is_drawn) {
                @let x = after(text, 50.0);
                g class=(class) {
                    path.l stroke-width=(width) d={ "M" (tenth(x)) " " (tenth(y - 4.0)) "h26" } {}
                }
                text x=(tenth(x + 32.0)) y=(tenth(y)) { (text) }
            }
        }
    }
}

const CSS: &str = "\
.e .l{fill:none;stroke:var(--line);stroke-linecap:butt;opacity:.62}.e .a{fill:var(--line);opacity:.9}\
.e.way .l{stroke:var(--way);opacity:.95}.e.way .a{fill:var(--way);opacity:1}\
.e.stale .l{opacity:.34}.e.stale .a{opacity:.5}.e.old .l{opacity:.17}.e.old .a{opacity:.3}\
.e.way.stale .l{opacity:.6}.e.way.old .l{opacity:.4}.e.blank .l{stroke-dasharray:3 4;opacity:.45}\
.e:hover .l,.e:hover .a{opacity:1;stroke:var(--ink)}\
.s rect{fill:var(--box);stroke:var(--edge);stroke-width:1.2}.s.on rect{stroke:var(--way);stroke-width:1.8}\
.s text{font-weight:600}.d{font-size:10px}.s.source .d,.k .source{fill:var(--src)}.s.relay .d,.k .relay{fill:var(--rel)}\
.s.here rect{fill:var(--ink);stroke:var(--ink)}.s.here text{fill:var(--page)}\
.e.way.limit .l{stroke:var(--bad)}.e.way.limit .a{fill:var(--bad)}\
.f{pointer-events:none}.f rect{fill:var(--page);opacity:.9}.f text{font-size:11.5px;text-anchor:middle;fill:var(--soft);font-variant-numeric:tabular-nums}\
.f.way text{fill:var(--way);font-weight:700}.f.limit text{fill:var(--bad)}.k text{font-size:12px;fill:var(--soft)}";

const TITLE: &str = "routes";
const MARGIN: f64 = 28.0;
/// A column with nothing but bends.
const BEND_SPAN: f64 = 40.0;
const LEGEND_WIDTH: f64 = 900.0;
/// Letters of bold and of plain text, as shares of their height.
const BOLD: f64 = 0.68;
const PLAIN: f64 = 0.6;
/// So few edges can have their round trips beside their rates.
const FEW: usize = 14;
/// More figures are no help.
const FIGURES_MAX: usize = 80;
const NAME_MAX: usize = 28;
/// Seconds after which an edge is pale, and very pale.
const STALE_S: f64 = 3_600.0;
const OLD_S: f64 = 86_400.0;
