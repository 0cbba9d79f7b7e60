//! The one line on the terminal that shows how it goes.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Instant;

use swath_model::{counted, units};
use swath_swarm::Counts;

/// The line; nothing where standard error is no terminal.
pub struct Line {
    is_quiet: bool,
    is_shown: bool,
    /// When it was last shown, and the bytes sent up to then.
    last: Option<(Instant, u64)>,
}

impl Line {
    pub fn new(is_quiet: bool) -> Line {
        Line { is_quiet, is_shown: !is_quiet && io::stderr().is_terminal(), last: None }
    }

    /// One that is never shown; other lines are.
    pub fn hidden() -> Line {
        Line { is_quiet: false, is_shown: false, last: None }
    }

    /// Returns whether only warnings are printed.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Shows the counts of all torrents, each with the length of its content.
    pub fn show(&mut self, torrents: impl Iterator<Item = (Counts, u64)>) {
        if !self.is_shown {
            return;
        }
        let (mut all, mut content_bytes) = (Counts::default(), 0);
        for (counts, bytes) in torrents {
            all.peers += counts.peers;
            all.served += counts.served;
            all.uploaded_bytes += counts.uploaded_bytes;
            content_bytes += bytes;
        }
        let now = Instant::now();
        let rate = self.last.map_or(0.0, |(then, bytes)| {
            let seconds = now.duration_since(then).as_secs_f64().max(1e-3);
            all.uploaded_bytes.saturating_sub(bytes) as f64 / seconds
        });
        self.last = Some((now, all.uploaded_bytes));
        // The terminal may be gone; the work goes on.
        let _ = write!(io::stderr(), "\r\x1b[K{}", words(all, content_bytes, rate));
    }

    /// Makes room for another line.
    pub fn clear(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn words(counts: Counts, content_bytes: u64, bytes_per_s: f64) -> String {
    format!(
        "{}, {} served, {}, sent {}, ratio {}",
        counted(counts.peers as u64, "peer"),
        counts.served,
        units::rate(bytes_per_s),
        units::bytes(counts.uploaded_bytes),
        ratio(counts, content_bytes),
    )
}

/// Returns how many copies of the content were sent.
pub fn ratio(counts: Counts, content_bytes: u64) -> String {
    format!("{:.2}", counts.uploaded_bytes as f64 / content_bytes.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_short() {
        let counts = Counts { peers: 3, served: 2, uploaded_bytes: 1_500_000, ..Counts::default() };
        let shown = words(counts, 1_000_000, 250_000.0);
        assert_eq!(shown, "3 peers, 2 served, 250 kB/s, sent 1.50 MB, ratio 1.50");
    }
}
