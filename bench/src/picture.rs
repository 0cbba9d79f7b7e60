//! A study as an SVG picture: grouped horizontal bars of time over the bound.
//!
//! One group for each scenario, one bar for each tool, the bound as a line at 1. A thin line
//! across the end of a bar spans the fastest and the slowest run. A bar that would leave the
//! picture is cut, with its value beside it. The picture is self-contained and has no script.

use std::fmt::Write;

use crate::results::{ScenarioResult, Study, ToolResult};

/// Draws the study.
pub fn draw(study: &Study) -> String {
    let scale_end = scale_end(study);
    let x = |ratio: f64| LEFT + ratio.min(scale_end) / scale_end * PLOT_WIDTH;
    let bars: usize = study.scenarios.iter().map(|scenario| scenario.tools.len()).sum();
    let groups = study.scenarios.len() as f64;
    let height = TOP + groups * (GROUP_HEAD + GROUP_GAP) + bars as f64 * ROW + BOTTOM;

    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' \
         viewBox='0 0 {WIDTH} {height}' font-family='{FONT}'>\n\
         <title>{name}: time over the bound</title>\n\
         <rect width='{WIDTH}' height='{height}' fill='{PAPER}'/>\n\
         <text x='24' y='38' font-size='20' font-weight='600' fill='{INK}'>\
         Time over the bound</text>\n\
         <text x='24' y='60' font-size='13' fill='{FAINT}'>\
         Medians; shorter is better. The thin line spans the \
         fastest and the slowest run.</text>\n\
         <text x='24' y='79' font-size='13' fill='{FAINT}'>1× is the bound: {bound_is}.</text>",
        name = escape(&study.name),
        bound_is = escape(study.scenarios.first().map_or("", |first| &first.bound_is)),
    );
    let bottom = height - BOTTOM + 4.0;
    let steps = (scale_end * 2.0).round() as u32;
    for step in 0..=steps {
        let ratio = f64::from(step) / 2.0;
        let at = x(ratio);
        let _ = writeln!(
            svg,
            "<line x1='{at:.1}' y1='{y}' x2='{at:.1}' y2='{bottom:.1}' stroke='#e7e6e1'/>\
             <text x='{at:.1}' y='{label:.1}' font-size='12' text-anchor='middle' \
             fill='{FAINT}'>{ratio}×</text>",
            y = TOP - 8.0,
            label = bottom + 17.0,
        );
    }
    let mut y = TOP;
    for scenario in &study.scenarios {
        let _ = writeln!(
            svg,
            "<text x='24' y='{:.1}' font-size='14' font-weight='600' fill='{INK}' \
             paint-order='stroke' stroke='{PAPER}' stroke-width='6'>{}\
             <tspan font-weight='400' fill='{FAINT}' dx='8'>{} · bound {:.2} s</tspan></text>",
            y + 17.0,
            escape(&scenario.name),
            escape(&scenario.title),
            scenario.bound_s
        );
        y += GROUP_HEAD;
        let first = y;
        for tool in &scenario.tools {
            draw_bar(&mut svg, scenario, tool, y, scale_end, &x);
            y += ROW;
        }
        let _ = writeln!(
            svg,
            "<line x1='{at:.1}' y1='{:.1}' x2='{at:.1}' y2='{:.1}' stroke='{INK}' \
             stroke-width='1.2' stroke-dasharray='4 3'/>",
            first - 4.0,
            y - ROW + BAR + 4.0,
            at = x(1.0)
        );
        y += GROUP_GAP;
    }
    draw_foot(&mut svg, study, height);
    svg
}

/// Says on which machine the study was made, and ends a picture of this height.
pub(crate) fn draw_foot(svg: &mut String, study: &Study, height: f64) {
    let _ = writeln!(
        svg,
        "<text x='24' y='{foot:.1}' font-size='11' fill='{FAINT}'>{machine}</text>\n</svg>",
        foot = height - 14.0,
        machine = escape(&study.machine.line()),
    );
}

fn draw_bar(
    svg: &mut String,
    scenario: &ScenarioResult,
    tool: &ToolResult,
    y: f64,
    scale_end: f64,
    x: &impl Fn(f64) -> f64,
) {
    let middle = y + BAR / 2.0 + 4.0;
    let is_ours = is_ours(&tool.name);
    let _ = write!(
        svg,
        "<text x='{:.1}' y='{middle:.1}' font-size='12.5' text-anchor='end' font-weight='{}' \
         fill='{INK}'>{}</text>",
        LEFT - 10.0,
        if is_ours { 600 } else { 400 },
        escape(&tool.name)
    );
    let Some(elapsed_s) = tool.elapsed_s() else {
        let reason = tool.runs.iter().find_map(|run| run.failure.as_deref()).unwrap_or("no run");
        let _ = writeln!(
            svg,
            "<text x='{:.1}' y='{middle:.1}' font-size='12' fill='#a33'>{}</text>",
            LEFT + 6.0,
            escape(&shortened(reason))
        );
        return;
    };
    let [ratio, min, max] =
        [elapsed_s.median, elapsed_s.min, elapsed_s.max].map(|time_s| time_s / scenario.bound_s);
    let end = x(ratio);
    let _ = write!(
        svg,
        "<rect x='{LEFT}' y='{y:.1}' width='{:.1}' height='{BAR}' rx='2' fill='{}'/>",
        (end - LEFT).max(1.0),
        colour(&tool.name)
    );
    if ratio > scale_end {
        // Two slanted strokes: the bar goes on.
        let cut = end - 14.0;
        let _ = write!(
            svg,
            "<path d='M{:.1} {:.1} l6 {h:.1} M{:.1} {:.1} l6 {h:.1}' stroke='{PAPER}' \
             stroke-width='2.4'/>",
            cut - 5.0,
            y - 1.0,
            cut,
            y - 1.0,
            h = BAR + 2.0
        );
    } else if max > min {
        let line = y + BAR / 2.0;
        let _ = write!(
            svg,
            "<path d='M{a:.1} {line:.1} H{b:.1} M{a:.1} {t:.1} v6 M{b:.1} {t:.1} v6' \
             stroke='{INK}' stroke-opacity='0.65' fill='none'/>",
            a = x(min),
            b = x(max),
            t = line - 3.0
        );
    }
    let label = x(max.max(ratio)) + 8.0;
    let failures = match tool.failures() {
        0 => String::new(),
        count => format!(", {count} of {} failed", tool.runs.len()),
    };
    let _ = writeln!(
        svg,
        "<text x='{label:.1}' y='{middle:.1}' font-size='12.5' font-weight='{}' \
         fill='{INK}'>{ratio:.2}×<tspan fill='{FAINT}' font-weight='400' dx='6'>{:.1} s{failures}\
         </tspan></text>",
        if is_ours { 600 } else { 400 },
        elapsed_s.median
    );
}

/// Wide enough for most, and for nobody's sake wider than [`WIDEST_RATIO`].
fn scale_end(study: &Study) -> f64 {
    let ratios = study.scenarios.iter().flat_map(|scenario| {
        let tools = scenario.tools.iter().filter_map(ToolResult::elapsed_s);
        tools.map(|elapsed_s| elapsed_s.max / scenario.bound_s)
    });
    let widest = ratios.fold(1.5, f64::max);
    ((widest * 2.0).ceil() / 2.0).min(WIDEST_RATIO)
}

/// Ours in a strong colour, our other policies in its pale relatives, peers in others.
fn colour(tool: &str) -> &'static str {
    match tool {
        "mdtp" | "fixed" | "single" | "swath-lane1" => "#9cc7c0",
        "oracle" | "dd" => "#8a8f98",
        "curl" => "#c9b48a",
        _ if is_ours(tool) => "#1f6f6b",
        _ => "#e0a458",
    }
}

fn is_ours(tool: &str) -> bool {
    tool.starts_with("swath") && tool != "swath-lane1"
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(90).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&apos;")
}

const WIDTH: f64 = 900.0;
const LEFT: f64 = 130.0;
/// What is left of the width is for the values beside the bars.
const PLOT_WIDTH: f64 = 610.0;
const TOP: f64 = 108.0;
const BOTTOM: f64 = 60.0;
const GROUP_HEAD: f64 = 28.0;
const GROUP_GAP: f64 = 16.0;
const ROW: f64 = 22.0;
const BAR: f64 = 15.0;
const WIDEST_RATIO: f64 = 3.0;
pub(crate) const FONT: &str = "Inter, Helvetica Neue, Helvetica, Arial, sans-serif";
pub(crate) const PAPER: &str = "#fcfcfa";
pub(crate) const INK: &str = "#23262b";
pub(crate) const FAINT: &str = "#6d727b";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::results::Run;

    #[test]
    fn every_tool_is_in_the_picture_whatever_it_did() {
        let run = |elapsed_s, failure: Option<&str>| Run {
            elapsed_s,
            cpu_s: 0.0,
            peak_memory_bytes: 0,
            is_stopped: false,
            wire_bytes: 0,
            sync_s: 0.0,
            figures: Vec::new(),
            failure: failure.map(str::to_owned),
        };
        let tool = |name: &str, runs| ToolResult { name: name.into(), command: "".into(), runs };
        let scenario = ScenarioResult {
            name: "static".into(),
            title: "a < b & c".into(),
            size_bytes: 1,
            bound_s: 2.0,
            bound_is: "the links".into(),
            tools: vec![
                tool("swath", vec![run(2.5, None)]),
                tool("slow", vec![run(20.0, None)]),
                tool("mixed", vec![run(3.0, None), run(1.0, Some("exit code 1"))]),
                tool("broken", vec![run(1.0, Some("exit code 3"))]),
            ],
            skipped: Vec::new(),
            goals: Vec::new(),
        };
        let study = Study {
            name: "study".into(),
            machine: Machine::here(),
            command: "".into(),
            versions: Vec::new(),
            scenarios: vec![scenario],
        };
        let svg = draw(&study);
        for shown in ["a &lt; b &amp; c", "1.25×", "10.00×", "1 of 2 failed", "exit code 3"] {
            assert!(svg.contains(shown), "{shown} is missing");
        }
        // The bar of the slow one is cut where the scale ends.
        assert!(svg.contains(&format!("width='{PLOT_WIDTH:.1}'")));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}
