//! The figure of the study as SVG: bars of time over that of the best tool.
//!
//! One panel for each round-trip time, one group for each dataset, one bar for each tool; a thin line
//! spans the 95 % confidence interval. A bar that would leave the panel is cut, with its value above
//! it. The picture is self-contained and has no script.

use std::fmt::Write as _;

use super::report::{RADIOASTRON, tools_of};
use super::standing::{Standing, at_least, best_s};
use crate::picture::{FAINT, FONT, INK, PAPER, draw_foot, escape};
use crate::results::{ScenarioResult, Study};

/// Draws the study.
pub fn draw(study: &Study) -> String {
    let panels = panels(study);
    let height = TOP + panels.len() as f64 * (PANEL + PANEL_GAP) + BOTTOM;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' \
         viewBox='0 0 {WIDTH} {height}' font-family='{FONT}'>\n\
         <title>Time over that of the best tool</title>\n\
         <rect width='{WIDTH}' height='{height}' fill='{PAPER}'/>\n\
         <text x='24' y='38' font-size='20' font-weight='600' fill='{INK}'>\
         Time over that of the best tool</text>\n\
         <text x='24' y='60' font-size='13' fill='{FAINT}'>Means; shorter is better, 1× is the best \
         tool. The thin line spans the 95 % confidence interval. ≥: stopped.</text>"
    );
    draw_legend(&mut svg, study);
    for (at, panel) in panels.iter().enumerate() {
        draw_panel(&mut svg, panel, TOP + at as f64 * (PANEL + PANEL_GAP));
    }
    draw_foot(&mut svg, study, height);
    svg
}

/// Cells that stand side by side.
struct Panel<'a> {
    title: String,
    /// Each with its name below it.
    cells: Vec<(&'a str, &'a ScenarioResult)>,
}

fn panels(study: &Study) -> Vec<Panel<'_>> {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    // Those of Radioastron are of one file and have tools of their own: a table is enough.
    let shown = study.scenarios.iter().filter(|result| !result.name.starts_with(RADIOASTRON));
    for result in shown {
        let (name, title) = place_of(&result.name);
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.cells.push((name, result)),
            None => panels.push(Panel { title, cells: vec![(name, result)] }),
        }
    }
    panels
}

/// Returns the name below a cell's bars, and the title of its panel.
fn place_of(cell: &str) -> (&str, String) {
    if let Some(name) = cell.strip_prefix("mdtm-third-party-") {
        return (name, "95 ms, between two servers".to_owned());
    }
    if let Some(name) = cell.strip_prefix("mdtm-") {
        return (name, "95 ms".to_owned());
    }
    let (name, rtt) = cell.rsplit_once('-').unwrap_or((cell, ""));
    (name, format!("{} ms", rtt.trim_end_matches("ms")))
}

fn draw_legend(svg: &mut String, study: &Study) {
    let cells = panels(study).into_iter().flat_map(|panel| panel.cells);
    let all: Vec<&ScenarioResult> = cells.map(|(_, result)| result).collect();
    let mut x = 24.0;
    for tool in tools_of(&all).into_iter().filter(|tool| has_a_bar(&all, tool)) {
        let weight = if tool == "swath" { 600 } else { 400 };
        let _ = writeln!(
            svg,
            "<rect x='{x:.1}' y='76' width='12' height='12' rx='2' fill='{}'/>\
             <text x='{:.1}' y='86.5' font-size='12.5' font-weight='{weight}' fill='{INK}'>{}</text>",
            colour(tool),
            x + 18.0,
            escape(tool)
        );
        x += 40.0 + 7.2 * tool.len() as f64;
    }
}

fn has_a_bar(cells: &[&ScenarioResult], tool: &str) -> bool {
    cells.iter().any(|result| Standing::of(result, tool).ratio().is_some())
}

fn draw_panel(svg: &mut String, panel: &Panel<'_>, top: f64) {
    let bottom = top + PANEL;
    let y = |ratio: f64| bottom - ratio.min(SCALE_END) / SCALE_END * (PANEL - HEAD);
    let _ = writeln!(
        svg,
        "<text x='24' y='{:.1}' font-size='14' font-weight='600' fill='{INK}'>{}</text>",
        top + 13.0,
        escape(&panel.title)
    );
    for step in 0..=SCALE_END as u32 {
        let at = y(f64::from(step));
        let (stroke, dash) = if step == 1 { (INK, "4 3") } else { ("#e7e6e1", "none") };
        let _ = writeln!(
            svg,
            "<line x1='{LEFT}' y1='{at:.1}' x2='{:.1}' y2='{at:.1}' stroke='{stroke}' \
             stroke-dasharray='{dash}'/>\
             <text x='{:.1}' y='{:.1}' font-size='11' text-anchor='end' fill='{FAINT}'>{step}×</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0
        );
    }
    let cells: Vec<&ScenarioResult> = panel.cells.iter().map(|(_, result)| *result).collect();
    let tools: Vec<&str> =
        tools_of(&cells).into_iter().filter(|tool| has_a_bar(&cells, tool)).collect();
    let group = (WIDTH - LEFT - RIGHT) / panel.cells.len() as f64;
    let step = ((group - GROUP_GAP) / tools.len().max(1) as f64).min(WIDEST_BAR);
    for (at, (name, result)) in panel.cells.iter().enumerate() {
        let left = LEFT + at as f64 * group + (group - step * tools.len() as f64) / 2.0;
        for (at, tool) in tools.iter().enumerate() {
            draw_bar(svg, result, tool, left + at as f64 * step, step - 2.0, &y);
        }
        let _ = writeln!(
            svg,
            "<text x='{:.1}' y='{:.1}' font-size='12.5' text-anchor='middle' fill='{INK}'>{}\
             <tspan fill='{FAINT}' dx='6' font-size='11'>{}</tspan></text>",
            LEFT + (at as f64 + 0.5) * group,
            bottom + 17.0,
            escape(&name.replace("ds", "DS")),
            escape(&result.title)
        );
    }
}

fn draw_bar(
    svg: &mut String,
    result: &ScenarioResult,
    tool: &str,
    x: f64,
    width: f64,
    y: &impl Fn(f64) -> f64,
) {
    let standing = Standing::of(result, tool);
    let middle = x + width / 2.0;
    let Some(ratio) = standing.ratio() else {
        let sign = if standing == Standing::Absent { "–" } else { "✕" };
        let _ = writeln!(
            svg,
            "<text x='{middle:.1}' y='{:.1}' font-size='11' text-anchor='middle' \
             fill='{FAINT}'>{sign}</text>",
            y(0.0) - 4.0
        );
        return;
    };
    let top = y(ratio);
    let _ = write!(
        svg,
        "<rect x='{x:.1}' y='{top:.1}' width='{width:.1}' height='{:.1}' fill='{}'/>",
        y(0.0) - top,
        colour(tool)
    );
    let mut label = top - 4.0;
    let is_stopped = matches!(standing, Standing::Stopped(_));
    if ratio > SCALE_END || is_stopped {
        // A slanted stroke: the bar goes on.
        let _ = write!(
            svg,
            "<path d='M{x:.1} {:.1} l{width:.1} -5' stroke='{PAPER}' stroke-width='2.4'/>",
            top + 12.0
        );
    } else if let (Standing::Measured(mean, _), Some(best_s)) = (&standing, best_s(result))
        && let Some(half) = mean.half
    {
        let (low, high) = (y((mean.mean - half).max(0.0) / best_s), y((mean.mean + half) / best_s));
        let _ = write!(
            svg,
            "<path d='M{middle:.1} {low:.1} V{high:.1} M{a:.1} {low:.1} h4 M{a:.1} {high:.1} h4' \
             stroke='{INK}' stroke-opacity='0.65' fill='none'/>",
            a = middle - 2.0
        );
        label = high.min(label + 1.0) - 3.0;
    }
    let value = if is_stopped {
        format!("≥{}", at_least(ratio))
    } else if ratio < 9.95 {
        format!("{ratio:.1}")
    } else {
        format!("{ratio:.0}")
    };
    let weight = if tool == "swath" { 600 } else { 400 };
    let _ = writeln!(
        svg,
        "<text x='{middle:.1}' y='{label:.1}' font-size='9.5' text-anchor='middle' \
         font-weight='{weight}' fill='{INK}'>{value}</text>"
    );
}

/// Ours in the strong colour of the other pictures.
fn colour(tool: &str) -> &'static str {
    match tool {
        "swath" => "#1f6f6b",
        "rclone" => "#c2593f",
        "rsync" => "#5b7fb5",
        "tar-ssh" => "#a7aba4",
        "syq" => "#8c6bb1",
        "xrdcp" => "#d98cae",
        "davix" => "#8f4a66",
        "gridftp-p8" => "#9a6a1f",
        _ => "#e0a458",
    }
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 112.0;
const BOTTOM: f64 = 44.0;
const PANEL: f64 = 190.0;
const PANEL_GAP: f64 = 46.0;
/// The title of a panel and the values above its highest bars.
const HEAD: f64 = 34.0;
const GROUP_GAP: f64 = 14.0;
const WIDEST_BAR: f64 = 26.0;
/// Where tools are stopped.
const SCALE_END: f64 = super::rounds::STOP_RATIO;
