//! The text of the display of a list: pure functions of its [`Tally`].

use swath_transfer::observe::{Eta, Snapshot};

use super::batch::{Active, Tally, files_of};
use super::frame::{bar_line, name_of, phase_word, plural, title};
use super::look::{Look, Tone};
use super::{text, units};

/// Most active files with their own line.
const FILES_MAX: usize = 6;

/// Returns the lines of a frame.
pub(super) fn frame(tally: &Tally, look: Look) -> Vec<String> {
    let dash = look.either("–", "-");
    let mut figures = vec![
        progress(tally),
        units::bytes(tally.done_now()),
        units::rate(tally.bytes.rate_over(2.0)),
    ];
    if tally.failed > 0 {
        figures.insert(1, format!("{} failed", units::count(tally.failed)));
    }
    let eta = forecast(tally);
    figures.push(eta.map_or(format!("ETA {dash}"), |e| {
        format!("ETA {}", units::eta(e.likely_s, e.low_s, e.high_s, dash))
    }));
    let mut lines = title("fetching", &text::safe(&tally.title, look), &figures, look);
    if let Some(count) = tally.count {
        lines.push(bar_line(tally.ended(), count, look));
    }
    // Users wait for the largest files.
    let mut active: Vec<(u64, &Active, &Snapshot)> =
        tally.active.iter().filter_map(|(n, a)| Some((*n, a, a.snapshot.as_ref()?))).collect();
    let room = look.height.saturating_sub(lines.len() + 3).clamp(1, FILES_MAX);
    if active.len() > room {
        active.sort_by_key(|(n, _, s)| (std::cmp::Reverse(s.size_bytes), *n));
        active.truncate(room);
        active.sort_by_key(|(n, ..)| *n);
    }
    for (_, file, snapshot) in &active {
        lines.push(file_line(&file.path, snapshot, look));
    }
    let all = tally.active.len();
    if all > active.len() {
        let n = all - active.len();
        let more = format!(
            "    and {} more active {}",
            units::count(n as u64),
            plural(n, "file", "files")
        );
        lines.push(look.tone(Tone::Dim, &text::cut_end(&more, look.width.saturating_sub(1), look)));
    }
    lines
}

/// `  run-0042.h5   fetching   120 MB of 1.05 GB   98.0 MB/s   6 sources`.
fn file_line(path: &str, snapshot: &Snapshot, look: Look) -> String {
    let usable = look.width.saturating_sub(1);
    let amount = match snapshot.size_bytes {
        Some(size) => format!("{} of {}", units::bytes(snapshot.done_bytes), units::bytes(size)),
        None => units::bytes(snapshot.done_bytes),
    };
    let mut parts =
        vec![text::right(&amount, 18), text::right(&units::rate(snapshot.rate_bytes_per_s), 9)];
    if usable >= 70 {
        let running = snapshot.sources.iter().filter(|s| s.rate_bytes_per_s > 0.0).count();
        parts.insert(0, text::left(phase_word(snapshot.phase), 9, look));
        parts.push(text::right(&format!("{running} {}", plural(running, "source", "sources")), 10));
    }
    let figures = parts.join("  ");
    let room = usable.saturating_sub(text::width(&figures) + 4).max(1);
    let name = text::cut_middle(&name_of(path, look), room, look);
    text::cut_end(&format!("  {}  {figures}", text::left(&name, room, look)), usable, look)
}

/// Returns a line of the plain display.
pub(super) fn plain_line(tally: &Tally) -> String {
    let part = tally
        .count
        .map_or(String::new(), |count| format!("{}, ", units::percent_done(tally.ended(), count)));
    let mut line = format!(
        "{:.0} s: {part}{}, {}, {}",
        tally.at_s,
        progress(tally),
        units::bytes(tally.done_now()),
        units::rate(tally.bytes.rate_over(8.0)),
    );
    if tally.failed > 0 {
        line.push_str(&format!(", {} failed", units::count(tally.failed)));
    }
    if let Some(eta) = forecast(tally) {
        line.push_str(&format!(", ETA {}", units::eta(eta.likely_s, eta.low_s, eta.high_s, "–")));
    }
    line
}

/// Returns `1,205 of 100,000 files`, or `1,205 files` if the total is unknown.
fn progress(tally: &Tally) -> String {
    match tally.count {
        Some(count) => format!("{} of {}", units::count(tally.ended()), files_of(count)),
        None => files_of(tally.ended()),
    }
}

fn forecast(tally: &Tally) -> Option<Eta> {
    tally.files.eta(tally.count?.saturating_sub(tally.ended()) as f64)
}

/// Describes unverified files.
pub(super) fn unverified(tally: &Tally) -> Option<String> {
    match tally.unverified {
        0 => None,
        1 => Some("1 file is NOT VERIFIED: no known digest".to_owned()),
        count => Some(format!("{} are NOT VERIFIED: no known digests", files_of(count))),
    }
}

/// Returns the summary of the list; it ends with a line break.
pub(super) fn summary(tally: &Tally, look: Look) -> String {
    let title = text::safe(&tally.title, look);
    let mut out = format!(
        "{}: {} in {}, {}, {}\n",
        look.tone(Tone::Bold, &title),
        match tally.count {
            Some(count) => format!("{} of {}", units::count(tally.complete), files_of(count)),
            None => files_of(tally.complete),
        },
        units::duration(tally.at_s),
        units::bytes(tally.fetched_bytes + tally.resumed_bytes),
        look.tone(Tone::Bold, &units::rate(tally.fetched_bytes as f64 / tally.at_s.max(1e-3))),
    );
    if tally.resumed_bytes > 0 {
        out.push_str(&format!(
            "{} from an earlier run, {} fetched now\n",
            units::bytes(tally.resumed_bytes),
            units::bytes(tally.fetched_bytes)
        ));
    }
    let mut hosts: Vec<_> = tally.hosts.iter().collect();
    hosts.sort_by_key(|(host, (bytes, _))| (std::cmp::Reverse(*bytes), (*host).clone()));
    let total: u64 = hosts.iter().map(|(_, (bytes, _))| *bytes).sum();
    let shown = &hosts[..hosts.len().min(12)];
    let columns = shown
        .iter()
        .map(|(host, _)| text::width(&host.to_string()))
        .max()
        .unwrap_or(0)
        .min(look.width.saturating_sub(40).max(12));
    for (host, (bytes, requests)) in shown {
        let host = text::cut_middle(&text::safe(&host.to_string(), look), columns, look);
        let share = units::percent(*bytes as f64 / total.max(1) as f64);
        out.push_str(&format!(
            "  {}  {}  {}",
            text::left(&host, columns, look),
            text::right(&units::bytes(*bytes), 8),
            text::right(&share, 5),
        ));
        if look.details {
            let requests = units::count(*requests);
            out.push_str(&format!("  {} requests", text::right(&requests, 7)));
        }
        out.push('\n');
    }
    if hosts.len() > shown.len() {
        out.push_str(&format!("  and {} more hosts\n", hosts.len() - shown.len()));
    }
    if look.details {
        out.push_str(&format!("wasted {}\n", units::bytes(tally.wasted_bytes)));
    }
    if let Some(words) = unverified(tally) {
        out.push_str(&format!("{}\n", look.tone(Tone::Warn, &words)));
    }
    if tally.present > 0 {
        let (count, compared) = (units::count(tally.present), units::count(tally.compared));
        let with = match tally.compared {
            0 => String::new(),
            all if all == tally.present => ", with the expected digests".to_owned(),
            _ => format!(", {compared} of them with the expected digests"),
        };
        let hint = if tally.by_name > 0 { " (--overwrite replaces them)" } else { "" };
        out.push_str(&format!("{count} already existed and were not fetched{with}{hint}\n"));
    }
    if tally.stopped > 0 {
        out.push_str(&format!("{} stopped: the same command resumes\n", files_of(tally.stopped)));
    }
    if tally.failed > 0 {
        // The errors were printed before.
        let names: Vec<&str> = tally.failures.iter().map(|(path, _)| path.as_str()).collect();
        let more = tally.failed.saturating_sub(names.len() as u64);
        let more =
            if more > 0 { format!(" and {} more", units::count(more)) } else { String::new() };
        let failed = format!("{} failed: {}{more}", files_of(tally.failed), names.join(", "));
        out.push_str(&format!("{}\n", look.tone(Tone::Bad, &text::safe(&failed, look))));
    }
    out
}
