//! Past transfers as a picture: how fast they were, and how far off their forecasts.
//!
//! Above, the rate of each transfer; below, what was predicted over what it took, where 1 × is right,
//! with the range of each forecast as a line. Both are logarithmic, over the time of the start (UTC).
//! [`svg`] makes one self-contained file that needs no network and no script.

use maud::{Markup, html};
use swath_formats::http_date;
use swath_model::observe::Eta;
use swath_model::units;

use crate::axis::{step, time_marks};
use crate::picture::{self, tenth};

/// A complete transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// When it began, in seconds since 1970.
    pub begun_s: f64,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// Bytes.
    pub bytes: u64,
    /// What was forecast, if anything was.
    pub forecast: Option<Eta>,
    /// From where to where, in words.
    pub name: String,
}

/// Draws transfers, which are in the order of their starts: at most the newest [`DRAWN_MAX`].
/// `heading` says in words whose they are.
pub fn svg(heading: &str, transfers: &[Past]) -> String {
    let is_drawable = |past: &&Past| {
        past.begun_s.is_finite() && past.took_s.is_finite() && past.took_s > 0.0 && past.bytes > 0
    };
    let all: Vec<&Past> = transfers.iter().filter(is_drawable).collect();
    let drawn = &all[all.len().saturating_sub(DRAWN_MAX)..];
    let Some(times) = Times::of(drawn) else {
        return picture::empty(TITLE, "no complete transfers are remembered");
    };
    let rates = Scale::of(drawn.iter().map(|past| rate(past)), 10.0);
    let ratios = Scale { low: RATIO_MAX.recip(), high: RATIO_MAX };
    let newest = if drawn.len() < all.len() { "the newest " } else { "" };
    let count = units::counted(drawn.len() as u64, "complete transfer");
    let inner = html! {
        text.h x=(LEFT) y="34" { (heading) }
        text.s x=(LEFT) y="54" { (newest) (count) }
        (panel(RATES_TOP, "rate", &times, &rate_marks(&rates), &rates))
        @for past in drawn {
            (dot("", times.x(past.begun_s), rates.y(rate(past), RATES_TOP), past))
        }
        (panel(RATIOS_TOP, "predicted over actual time", &times, &ratio_marks(), &ratios))
        @for past in drawn {
            @if let Some(forecast) = past.forecast {
                (predicted(past, forecast, times.x(past.begun_s), &ratios))
            }
        }
        @if drawn.iter().all(|past| past.forecast.is_none()) {
            text.none x=(WIDTH / 2.0) y=(RATIOS_TOP + HEIGHT / 2.0 - 12.0) { "nothing was predicted yet" }
        }
        g.k {
            circle.in cx=(LEFT + 5.0) cy=(LEGEND - 4.0) r="4" {}
            text x=(LEFT + 16.0) y=(LEGEND) { "took as long as the range says" }
            circle.out cx=(LEFT + 235.0) cy=(LEGEND - 4.0) r="4" {}
            text x=(LEFT + 246.0) y=(LEGEND) { "took less or more" }
        }
    };
    picture::page(TITLE, CSS, [WIDTH, LEGEND + 18.0], &inner)
}

fn rate(past: &Past) -> f64 {
    past.bytes as f64 / past.took_s
}

/// The frame of a panel with its marks.
fn panel(top: f64, title: &str, times: &Times, marks: &[(f64, String)], scale: &Scale) -> Markup {
    let bottom = top + HEIGHT;
    html! {
        text.t x=(LEFT) y=(top - 10.0) { (title) }
        @for (value, text) in marks {
            @let y = tenth(scale.y(*value, top));
            path class=(if text == RIGHT_MARK { "g one" } else { "g" })
                d={ "M" (LEFT) " " (y) "H" (WIDTH - RIGHT) } {}
            text.y x=(LEFT - 8.0) y=(y) { (text) }
        }
        @for (at_s, text) in times.marks() {
            @let x = tenth(times.x(at_s));
            path.g d={ "M" (x) " " (top) "V" (bottom) } {}
            text.x x=(x) y=(bottom + 18.0) { (text) }
        }
    }
}

fn dot(class: &str, x: f64, y: f64, past: &Past) -> Markup {
    html! {
        circle class={ "p " (class) } cx=(tenth(x)) cy=(tenth(y)) r="3.5" { title { (words(past)) } }
    }
}

/// The forecast of a transfer: its range as a line, the most likely value as a dot.
fn predicted(past: &Past, forecast: Eta, x: f64, ratios: &Scale) -> Markup {
    let is_inside = (forecast.low_s..=forecast.high_s).contains(&past.took_s);
    let class = if is_inside { "in" } else { "out" };
    let Eta { low_s, likely_s, high_s } =
        forecast.map(|takes_s| ratios.y(takes_s / past.took_s, RATIOS_TOP));
    html! {
        path class={ "r " (class) } d={ "M" (tenth(x)) " " (tenth(low_s)) "V" (tenth(high_s)) } {}
        (dot(class, x, likely_s, past))
    }
}

/// What is said of a transfer under the pointer.
fn words(past: &Past) -> String {
    let begun = date(past.begun_s).unwrap_or_default();
    let (size, took) = (units::bytes(past.bytes), units::duration(past.took_s));
    let mut words = format!("{begun} {}: {size} in {took}", past.name);
    if let Some(Eta { low_s, likely_s, high_s }) = past.forecast {
        let [low, likely, high] = [low_s, likely_s, high_s].map(units::duration);
        words.push_str(&format!(", predicted {likely} ({low} to {high})"));
    }
    words
}

fn date(at_s: f64) -> Option<String> {
    http_date::write_plain(at_s as i64)
}

/// The axis of times: from the first begin to the last.
struct Times {
    begin_s: f64,
    span_s: f64,
}

impl Times {
    fn of(drawn: &[&Past]) -> Option<Times> {
        let (first, last) = (drawn.first()?, drawn.last()?);
        Some(Times { begin_s: first.begun_s, span_s: (last.begun_s - first.begun_s).max(60.0) })
    }

    fn x(&self, at_s: f64) -> f64 {
        let part = ((at_s - self.begin_s) / self.span_s).clamp(0.0, 1.0);
        LEFT + INSET + part * (WIDTH - LEFT - RIGHT - 2.0 * INSET)
    }

    /// Round times, with words.
    fn marks(&self) -> Vec<(f64, String)> {
        let days = self.span_s / DAY_S;
        let step_s = match days < 8.0 {
            true => time_marks(self.span_s, MARKS).get(1).copied().unwrap_or(DAY_S),
            false => step(days, MARKS).max(1.0).round() * DAY_S,
        };
        let first = (self.begin_s / step_s).ceil() as i64;
        let at = (first..).map(|number| number as f64 * step_s);
        let within = at.take_while(|at_s| *at_s <= self.begin_s + self.span_s);
        let words = |at_s: f64| {
            let date = date(at_s)?;
            // "2026-11-22 03:14:15"
            let part = match step_s {
                ..60.0 => date.get(11..),
                ..DAY_S => date.get(5..16),
                _ => date.get(..10),
            };
            part.map(str::to_owned)
        };
        within.take(3 * MARKS).filter_map(|at_s| Some((at_s, words(at_s)?))).collect()
    }
}

/// A logarithmic axis.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// Holds all values, and spans at least this factor.
    fn of(values: impl Iterator<Item = f64>, least: f64) -> Scale {
        let (low, high) = values
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let wider = (least / (high / low)).max(1.2).sqrt();
        Scale { low: low / wider, high: high * wider }
    }

    /// Where a value stands; one beyond the ends stands there.
    fn y(&self, value: f64, top: f64) -> f64 {
        let part = (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln();
        top + HEIGHT * (1.0 - part.clamp(0.0, 1.0))
    }
}

/// Powers of ten, and what lies between them if there are few.
fn rate_marks(scale: &Scale) -> Vec<(f64, String)> {
    let (low, high) = (scale.low.log10().floor() as i32, scale.high.log10().ceil() as i32);
    let between: &[f64] = if high - low > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = (low..=high).take(24);
    let all = powers.flat_map(|power| between.iter().map(move |part| part * 10_f64.powi(power)));
    all.filter(|rate| (scale.low..=scale.high).contains(rate))
        .map(|rate| (rate, crate::axis::rate_label(rate)))
        .collect()
}

fn ratio_marks() -> Vec<(f64, String)> {
    let text = ["⅛ ×", "¼ ×", "½ ×", RIGHT_MARK, "2 ×", "4 ×", "8 ×"];
    text.iter()
        .enumerate()
        .map(|(at, text)| (2_f64.powi(at as i32 - 3), (*text).to_owned()))
        .collect()
}

/// So many transfers are drawn.
pub const DRAWN_MAX: usize = 2_000;

const TITLE: &str = "past transfers";

/// The forecast was right.
const RIGHT_MARK: &str = "1 ×";

const WIDTH: f64 = 900.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 28.0;
/// Dots keep this distance from the sides.
const INSET: f64 = 10.0;
/// Of each panel.
const HEIGHT: f64 = 190.0;
const RATES_TOP: f64 = 96.0;
const RATIOS_TOP: f64 = RATES_TOP + HEIGHT + 66.0;
const LEGEND: f64 = RATIOS_TOP + HEIGHT + 48.0;
/// Times and ratios beyond this factor stand at the edge.
const RATIO_MAX: f64 = 8.0;
/// About so many times have marks.
const MARKS: usize = 6;
const DAY_S: f64 = 86_400.0;

const CSS: &str = "\
.h{font-size:17px;font-weight:650}.s,.k text,.x,.y{fill:var(--soft);font-size:12px}.t{font-weight:600}\
.x{text-anchor:middle}.y{text-anchor:end;dominant-baseline:middle}\
.g{fill:none;stroke:var(--edge);stroke-width:1;opacity:.55}.g.one{stroke:var(--ink);opacity:.7}\
.p{fill:var(--way);opacity:.75}.in{fill:var(--way)}.out{fill:var(--bad)}\
.r{fill:none;stroke-width:1.4;opacity:.4}.r.in{stroke:var(--way)}.r.out{stroke:var(--bad)}";

#[cfg(test)]
mod tests {
    use super::*;

    fn past(at: usize) -> Past {
        let took_s = 10.0 + at as f64;
        let forecast = Eta { low_s: 8.0, likely_s: 12.0, high_s: 20.0 };
        Past {
            begun_s: 1.7e9 + 3_600.0 * at as f64,
            took_s,
            bytes: 1_000_000_000,
            forecast: (at > 0).then_some(forecast),
            name: format!("<{at}> to here"),
        }
    }

    #[test]
    fn each_transfer_and_each_forecast_is_drawn() {
        let all: Vec<Past> = (0..20).map(past).collect();
        let picture = svg("data.example & others", &all);
        assert_eq!(picture.matches("class=\"p \"").count(), 20);
        assert_eq!(picture.matches("class=\"p in\"").count(), 10, "took at most 20 s");
        assert_eq!(picture.matches("class=\"p out\"").count(), 9);
        assert!(picture.contains("data.example &amp; others") && picture.contains("&lt;3&gt;"));
        assert!(picture.contains("20 complete transfers"));
    }

    #[test]
    fn odd_values_are_left_out_and_none_are_said() {
        assert!(svg("all", &[]).contains("no complete transfers"));
        let odd = [f64::NAN, 0.0, -1.0, f64::INFINITY].map(|took_s| Past { took_s, ..past(1) });
        assert!(svg("all", &odd).contains("no complete transfers"));
        let one = svg("all", &[past(0)]);
        assert!(one.contains("nothing was predicted yet") && !one.contains("NaN"));
        let far = [Past { begun_s: -1e15, ..past(0) }, Past { begun_s: 1e15, ..past(1) }];
        let far = svg("all", &far);
        assert!(!far.contains("NaN") && far.len() < 20_000);
        let many: Vec<Past> = (0..DRAWN_MAX + 5).map(past).collect();
        assert!(svg("all", &many).contains("the newest 2000 complete transfers"));
    }

    #[test]
    fn marks_are_round_times() {
        let (first, second) = (past(0), past(100));
        let times = Times::of(&[&first, &second]).unwrap();
        let marks: Vec<String> = times.marks().into_iter().map(|(_, text)| text).collect();
        assert_eq!(marks[..2], ["2023-11-15", "2023-11-16"]);
        assert_eq!(marks.len(), 5);
    }
}
