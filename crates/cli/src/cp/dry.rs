//! `--dry-run`: prints each planned change and the totals.

use std::sync::{Arc, Mutex, PoisonError};
use swath_model::path::visible;

use serde::Serialize;
use swath_formats::percent;

use crate::exit::Exit;
use crate::progress::units;
use crate::say;

/// Prints planned changes and counts them; clones share the counts.
#[derive(Clone, Debug)]
pub struct DryRun {
    is_json: bool,
    is_quiet: bool,
    sum: Arc<Mutex<Totals>>,
    /// The exit code so far: a failed write ends the plan.
    end: Arc<Mutex<Exit>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    copied: u64,
    bytes: u64,
    removed: u64,
}

/// A line of JSON.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Copy {
        path: &'a str,
        /// The exact path, percent-encoded, if it is not UTF-8.
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        bytes: u64,
        /// The path that this is another hard link to.
        #[serde(skip_serializing_if = "Option::is_none")]
        same_as: Option<&'a str>,
    },
    Remove {
        path: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    /// The last line.
    Planned { copied: u64, bytes: u64, removed: u64 },
}

impl DryRun {
    /// Returns an empty plan.
    pub fn new(is_json: bool, is_quiet: bool) -> DryRun {
        DryRun { is_json, is_quiet, sum: Arc::default(), end: Arc::new(Mutex::new(Exit::Done)) }
    }

    /// Prints that `bytes` would be copied to a path (a further hard link of `further_of`), or with
    /// `None` that the path would be removed.
    pub fn tell(&self, bytes: Option<u64>, path: &[u8], further_of: Option<&[u8]>) {
        {
            let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
            sum.copied += u64::from(bytes.is_some());
            sum.removed += u64::from(bytes.is_none());
            sum.bytes = sum.bytes.saturating_add(bytes.unwrap_or(0));
        }
        let exact = std::str::from_utf8(path).is_err().then(|| percent::encode(path));
        let text = String::from_utf8_lossy(path);
        let further_of = further_of.map(String::from_utf8_lossy);
        let line = match (self.is_json, bytes) {
            (true, Some(bytes)) => {
                let same_as = further_of.as_deref();
                json(&Line::Copy { path: &text, address: exact, bytes, same_as })
            }
            (true, None) => json(&Line::Remove { path: &text, address: exact }),
            (false, Some(bytes)) => {
                let of = further_of.map_or(String::new(), |of| another_name(&of));
                format!("copy    {:>9}  {}{of}\n", units::bytes(bytes), visible(&text))
            }
            (false, None) => format!("remove  {:>9}  {}\n", "", visible(&text)),
        };
        self.out(&line);
    }

    /// Prints a line, unless one could not be written before: half a plan is useless.
    fn out(&self, line: &str) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if *end == Exit::Done {
            *end = say::out(line.as_bytes(), Exit::Done);
        }
    }

    /// Prints the totals. `matches` says whether the filter selects anything.
    pub fn end(&self, matches: bool) -> Exit {
        let sum = *self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        let Totals { copied, bytes, removed } = sum;
        if self.is_json {
            self.out(&json(&Line::Planned { copied, bytes, removed }));
        }
        let end = *self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_json || self.is_quiet {
            return end;
        }
        let mut parts = Vec::new();
        if copied > 0 {
            let word = if copied == 1 { "entry" } else { "entries" };
            parts.push(format!("{} {word} to copy, {}", units::count(copied), units::bytes(bytes)));
        }
        if removed > 0 {
            parts.push(format!("{} to remove", units::count(removed)));
        }
        // Entries may have to be removed even if the filter selects nothing.
        match (parts.is_empty(), matches) {
            (true, true) => say::err("nothing to do"),
            (true, false) => say::err("nothing matches"),
            (false, _) => say::err(&parts.join("; ")),
        }
        end
    }
}

/// Returns the remark on a further hard link of a file.
pub fn another_name(of: &str) -> String {
    format!(" (another name of {})", visible(of))
}

fn json(line: &Line<'_>) -> String {
    serde_json::to_string(line).unwrap_or_default() + "\n"
}
