//! The summary of a transfer.

use swath_transfer::observe::{SameBy, SourceState, SourceSummary, Summary, Verified};

use super::frame::{name_of, rtt};
use super::look::{Look, Tone};
use super::{text, units};

/// Most sources in the table.
const ROWS_MAX: usize = 40;

/// Returns the summary of a finished transfer; it ends with a line break.
pub fn summary(end: &Summary, look: Look) -> String {
    let name = name_of(&end.path, look);
    if end.kept_files > 0 && end.fetched_bytes.saturating_add(end.resumed_bytes) == 0 {
        let what = text::safe(&look.plain_words(&end.verified_by), look);
        return format!("{}: nothing to copy: {what}\n", look.tone(Tone::Bold, &name));
    }
    let mut head = format!("{}: {}", look.tone(Tone::Bold, &name), units::bytes(end.size_bytes));
    head.push_str(&format!(" in {}", units::duration(end.elapsed_s)));
    if end.fetched_bytes > 0 {
        head.push_str(&format!(", {}", look.tone(Tone::Bold, &units::rate(end.rate_bytes_per_s))));
    }
    if !end.verified_by.is_empty() {
        let by = text::safe(&look.plain_words(&end.proof()), look);
        let (tone, words) = match end.verified {
            Verified::None => (Tone::Warn, format!("NOT VERIFIED: {by}")),
            Verified::Partly => (Tone::Warn, format!("verified by {by}")),
            _ => (Tone::Good, format!("verified by {by}")),
        };
        head.push_str(&format!(", {}", look.tone(tone, &words)));
    }
    with_details(head, end, true, look)
}

/// Returns the line for a file that was already complete.
pub fn already(path: &str, size_bytes: u64, same: SameBy, look: Look) -> String {
    let why = match same {
        SameBy::Digest => "its digest matches",
        SameBy::Pieces => "its piece digests match",
        SameBy::ServersDigest => "its digest matches the server's",
        SameBy::SizeAndTime => "its size and time match the server's; no known digest",
        SameBy::Name => "only the name was compared; no known digest",
    };
    let (name, bytes) = (name_of(path, look), units::bytes(size_bytes));
    format!("{name}: already complete, {bytes} ({why})")
}

/// Returns the summary of an incomplete transfer, if it received anything; the error is printed
/// elsewhere.
pub fn stopped_summary(end: &Summary, look: Look) -> Option<String> {
    let name = name_of(&end.path, look);
    let here = [end.resumed_bytes, end.kept_bytes];
    let here = here.into_iter().fold(end.fetched_bytes, u64::saturating_add);
    if end.fetched_bytes == 0 {
        return None;
    }
    let size = units::bytes(end.size_bytes);
    let stopped = match here >= end.size_bytes && end.size_bytes > 0 {
        true => format!("received all {size}, then stopped"),
        false => format!("stopped at {} of {size}", units::bytes(here)),
    };
    let head = format!(
        "{}: {} after {}, {}",
        look.tone(Tone::Bold, &name),
        look.tone(Tone::Warn, &stopped),
        units::duration(end.elapsed_s),
        units::rate(end.rate_bytes_per_s),
    );
    // The error that follows has the reasons of the sources.
    Some(with_details(head, end, false, look))
}

fn with_details(head: String, end: &Summary, remarks: bool, look: Look) -> String {
    let mut out = format!("{head}\n");
    let (resumed, done) = match end.sent {
        true => ("already sent by an earlier run", "sent"),
        false => ("from an earlier run", "fetched"),
    };
    let here = [(end.kept_bytes, "in files that already existed"), (end.resumed_bytes, resumed)];
    let here = here.iter().filter(|(bytes, _)| *bytes > 0);
    let mut parts: Vec<String> =
        here.map(|(bytes, words)| format!("{} {words}", units::bytes(*bytes))).collect();
    if !parts.is_empty() {
        parts.push(format!("{} {done} now", units::bytes(end.fetched_bytes)));
        out.push_str(&format!("{}\n", parts.join(", ")));
    }
    out.push_str(&table(&end.sources, remarks, look));
    if let Some(takes) = end.shown_forecast() {
        let took = units::duration(end.elapsed_s);
        out.push_str(&format!("predicted {takes}, took {took}\n"));
    }
    if look.details {
        let wasted = format!("wasted {}{}", units::bytes(end.wasted_bytes), wasted_part(end));
        let efficiency = end
            .efficiency
            .map(|part| format!(", efficiency {} of the sources' capacity", units::percent(part)));
        out.push_str(&format!("{wasted}{}\n", efficiency.unwrap_or_default()));
    }
    let by = end.limited_by.words();
    if !by.is_empty() {
        out.push_str(&format!("limited by {}\n", text::safe(&look.plain_words(&by), look)));
    }
    out
}

fn wasted_part(end: &Summary) -> String {
    // Nothing was received.
    if end.wasted_bytes == 0 || end.fetched_bytes == 0 {
        return String::new();
    }
    let part =
        end.wasted_bytes as f64 / (end.fetched_bytes + end.wasted_bytes).max(1) as f64 * 100.0;
    if part < 0.05 { " (<0.1 %)".to_owned() } else { format!(" ({part:.1} %)") }
}

/// Returns a line for each source, with the columns that fit.
fn table(sources: &[SourceSummary], remarks: bool, look: Look) -> String {
    if sources.is_empty() {
        return String::new();
    }
    let mut shown: Vec<&SourceSummary> = sources.iter().collect();
    if shown.len() > ROWS_MAX {
        shown.sort_by_key(|s| (std::cmp::Reverse(s.bytes), s.source));
        shown.truncate(ROWS_MAX - 1);
        shown.sort_by_key(|s| s.source);
    }
    let all = columns(&shown, look);
    let head: Vec<String> = all.iter().map(|(head, _)| (*head).to_owned()).collect();
    let figures = |source: &SourceSummary| all.iter().map(|(_, figure)| figure(source)).collect();
    let rows: Vec<Vec<String>> = shown.iter().map(|source| figures(source)).collect();
    // Narrow terminals lose the last columns; "rate" stays.
    let usable = look.width.saturating_sub(1);
    let widths: Vec<usize> = (0..head.len())
        .map(|i| {
            rows.iter().map(|r| text::width(&r[i])).max().unwrap_or(0).max(text::width(&head[i]))
        })
        .collect();
    let longest = shown.iter().map(|s| text::width_of_name(&s.name)).max().unwrap_or(0).max(6);
    let mut columns = head.len();
    let fixed = |columns: usize| 4 + widths[..columns].iter().map(|w| w + 2).sum::<usize>();
    while columns > 3 && fixed(columns) + longest.min(20) > usable {
        columns -= 1;
    }
    let name_max = usable.saturating_sub(fixed(columns)).clamp(8, longest.max(8));
    let line = |number: &str, name: &str, cells: &[String]| {
        let mut line = format!("{} {}", text::right(number, 3), text::left(name, name_max, look));
        for (cell, width) in cells.iter().zip(&widths).take(columns) {
            line.push_str(&format!("  {}", text::right(cell, *width)));
        }
        line
    };
    let mut out = format!("{}\n", look.tone(Tone::Dim, line("", "source", &head).trim_end()));
    for (source, cells) in shown.iter().zip(&rows) {
        let name = text::cut_name(&source.name, name_max, look);
        out.push_str(line(&(u64::from(source.source) + 1).to_string(), &name, cells).trim_end());
        out.push('\n');
        if let Some((word, tone)) = remark(source).filter(|_| remarks) {
            let why = source
                .reason
                .as_deref()
                .map_or(String::new(), |r| format!(": {}", text::safe(r, look)));
            out.push_str(&format!("    {}\n", look.tone(tone, &format!("{word}{why}"))));
        }
    }
    if sources.len() > shown.len() {
        out.push_str(&format!(
            "    and {} more\n",
            units::count((sources.len() - shown.len()) as u64)
        ));
    }
    out
}

type Column = (&'static str, fn(&SourceSummary) -> String);

/// Returns the columns: some only with details, and round trips only over a network.
fn columns(sources: &[&SourceSummary], look: Look) -> Vec<Column> {
    let is_far = sources.iter().any(|it| it.rtt_ms.is_some_and(|ms| ms >= OF_A_NETWORK_MS));
    let all: [(Column, bool); 6] = [
        (("bytes", |it| units::bytes(it.bytes)), false),
        (("share", |it| units::percent(it.share)), false),
        (("rate", |it| units::rate(it.rate_bytes_per_s)), false),
        (("requests", |it| units::count(it.requests)), true),
        (("lanes", |it| it.lanes.to_string()), true),
        (("RTT", |it| it.rtt_ms.map_or("-".to_owned(), rtt)), false),
    ];
    let shown = all.into_iter().filter(|(_, is_detail)| look.details || !is_detail);
    let shown = shown.map(|(column, _)| column);
    shown.filter(|(name, _)| is_far || *name != "RTT").collect()
}

/// Shorter round trips are within this machine.
const OF_A_NETWORK_MS: f64 = 0.02;

/// Returns the remark on a source, if there is one.
fn remark(source: &SourceSummary) -> Option<(&'static str, Tone)> {
    match source.state {
        SourceState::Bad => Some(("not used", Tone::Bad)),
        SourceState::Silent => Some(("silent at the end", Tone::Warn)),
        SourceState::Slow => Some(("slow at the end", Tone::Warn)),
        // Its connection was lost and not restored.
        SourceState::Probing if source.bytes > 0 && source.reason.is_some() => {
            Some(("connection lost", Tone::Warn))
        }
        // A source that answered was not needed, which the table shows.
        SourceState::Probing if source.bytes == 0 && source.rtt_ms.is_none() => {
            Some(("had not answered yet", Tone::Dim))
        }
        _ => None,
    }
}
