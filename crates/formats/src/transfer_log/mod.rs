//! Logs of transfers that other programs keep: what was transferred, when, and how long it took.
//!
//! - `table`: CSV whose first line names the columns;
//! - `cell`: texts of others in CSV that spreadsheets open;
//! - `json`: the tasks of Globus, the files of FTS, and swath's own history.
//!
//! What cannot be used is reported with its place, and the next one is read. Memory does not grow with
//! the log.

mod cell;
mod json;
mod table;

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::rc::Rc;

use url::Url;

use crate::relay::site;

pub use cell::csv_cell;
pub use json::{is_json, read_json};
pub use table::{COLUMNS, FACTS, Meaning, TransferLog};

/// A transfer of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedTransfer {
    /// When it began, in seconds since 1970.
    pub start_s: f64,
    /// How long it took, in seconds; positive.
    pub took_s: f64,
    /// Its bytes.
    pub bytes: u64,
    /// Its files; 1 if the log does not say.
    pub files: u64,
    /// Where the bytes came from; empty if the log does not say.
    pub from: String,
    /// Where they went; empty if the log does not say.
    pub to: String,
    /// Which kind of transfer; empty if the log does not say.
    pub kind: String,
    /// The rate in bytes per second that it was allowed, if it was limited on purpose.
    pub limit_bytes_per_s: Option<u64>,
    /// The numbers of other columns, in their order; NaN where there is none.
    pub facts: [f32; FACTS],
}

/// A line of a log that cannot be used, or a log that cannot.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct LogError {
    /// Where it is.
    pub place: LogPlace,
    /// Why.
    pub problem: LogProblem,
}

/// A place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// A line of a table, from 1.
    Line(u64),
    /// A record in JSON, from 1.
    Record(u64),
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogPlace::Line(line) => write!(f, "line {line}"),
            LogPlace::Record(record) => write!(f, "record {record}"),
        }
    }
}

/// Why a line or a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogProblem {
    /// It cannot be read; nothing after it is.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// It is too long; nothing after it is read.
    #[error("longer than {PIECE_BYTES_MAX} bytes")]
    TooLong,
    /// It is not JSON; nothing after it is read.
    #[error("is not JSON: {0}")]
    NotJson(serde_json::Error),
    /// A record does not say this.
    #[error("does not say {0}")]
    Lacks(&'static str),
    /// It is not complete.
    #[error("not complete: {0:?}")]
    NotComplete(String),
    /// It is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// The first line names no such column.
    #[error("no column for {what}; one of these is needed: {}", .names.join(", "))]
    Missing {
        /// What is missing.
        what: &'static str,
        /// The names that columns for it have.
        names: Vec<&'static str>,
    },
    /// The first line names two columns that mean the same.
    #[error("columns '{first}' and '{second}' mean the same")]
    Twice {
        /// The name of the first.
        first: String,
        /// The name of the second.
        second: String,
    },
    /// More or fewer fields than columns.
    #[error("{fields} fields, but {columns} columns")]
    Fields {
        /// How many it has.
        fields: usize,
        /// How many it should have.
        columns: usize,
    },
    /// A field is no number.
    #[error("{column}: {text:?} is not a number")]
    NotANumber {
        /// The name of the column.
        column: String,
        /// The field, shortened.
        text: String,
    },
    /// A time in another unit, or none.
    #[error("{column}: {text:?} is no time between 1970 and 2100, or in another unit")]
    NotATime {
        /// The name of the column.
        column: String,
        /// The field, shortened.
        text: String,
    },
    /// A number of bytes or files that cannot be.
    #[error("{column}: {text:?} is no possible number")]
    Impossible {
        /// The name of the column.
        column: String,
        /// The field, shortened.
        text: String,
    },
    /// It took no time, or less.
    #[error("took no time")]
    NoTime,
    /// It took longer than transfers do: mostly its unit is another one.
    #[error("took more than a year")]
    TooSlow,
    /// It deleted files.
    #[error("a deletion, no transfer")]
    Deletion,
}

impl LogProblem {
    /// Whether nothing after it is read.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Read(_)
                | Self::TooLong
                | Self::NotJson(_)
                | Self::Missing { .. }
                | Self::Twice { .. }
        )
    }
}

/// Fails when more is read than is left of a line or a record, so that one without an end cannot fill
/// memory.
struct Metered<R> {
    input: R,
    left: Left,
}

/// How much may be read before the next one begins.
#[derive(Clone)]
struct Left(Rc<Cell<u64>>);

impl Left {
    fn renew(&self) {
        self.0.set(PIECE_BYTES_MAX);
    }
}

impl<R: Read> Metered<R> {
    fn new(input: R) -> (Self, Left) {
        let left = Left(Rc::new(Cell::new(PIECE_BYTES_MAX)));
        (Metered { input, left: left.clone() }, left)
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Left(left) = &self.left;
        if left.get() == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let bytes = self.input.read(buffer)?;
        left.set(left.get().saturating_sub(bytes as u64));
        Ok(bytes)
    }
}

/// Returns the name of a place: of an address only host and port, without user, path and query. Words
/// with colons are several sites, as in swath's own history. In all other names blanks become underscores.
fn place_name(text: &str) -> String {
    let words = || text.split_whitespace();
    match words().count() > 1 && !words().all(|word| word.contains(':')) {
        true => one_place(&words().collect::<Vec<_>>().join("_")),
        false => words().map(one_place).collect::<Vec<_>>().join(" "),
    }
}

/// Returns a time as ISO 8601 writes it, in seconds since 1970; without a zone it is UTC.
fn iso_s(text: &str) -> Option<f64> {
    let zoned = text.parse::<jiff::Timestamp>();
    let told = zoned.or_else(|_| {
        let local = text.parse::<jiff::civil::DateTime>()?;
        jiff::tz::TimeZone::UTC.to_timestamp(local)
    });
    told.ok().map(|time| time.as_microsecond() as f64 / 1e6)
}

fn one_place(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    if let Some(site) =
        Url::parse(text).ok().filter(|_| !scheme.is_empty()).and_then(|url| site(&url))
    {
        return site;
    }
    // A path of this machine; user@host:/path, as ssh has it; or an address that is none.
    let host = match scheme {
        "" if text.starts_with(['/', '.', '~']) => HERE,
        "" => rest.split(":/").next().unwrap_or_default(),
        _ => rest.split(['/', '?', '#']).next().unwrap_or_default(),
    };
    let host = host.rsplit('@').next().unwrap_or_default();
    name(host)
}

/// Returns a name as it is kept: of bounded length, without characters that change how others are shown.
fn name(text: &str) -> String {
    let is_shown = |char: &char| !char.is_control() && !TURNS.contains(char);
    text.chars().filter(is_shown).take(NAME_CHARS_MAX).collect()
}

/// This machine, as swath's history has it.
const HERE: &str = "here";

/// Characters that change the direction of writing.
const TURNS: [char; 12] = [
    '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}',
    '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
];

/// Checks a duration in seconds.
fn duration(took_s: f64) -> Result<f64, LogProblem> {
    match took_s {
        ..=0.0 => Err(LogProblem::NoTime),
        YEAR_S.. => Err(LogProblem::TooSlow),
        took_s => Ok(took_s),
    }
}

/// Longest line or record.
const PIECE_BYTES_MAX: u64 = 64 << 10;

const YEAR_S: f64 = 366.0 * 86_400.0;

/// Longer names of places are cut.
const NAME_CHARS_MAX: usize = 256;

/// The year 2100.
const TIME_MAX_S: f64 = 4_102_444_800.0;

/// More bytes or files than exist.
const COUNT_MAX: f64 = 1e18;

/// Most characters of a field in a message.
const SHOWN_CHARS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_no_users_paths_or_secrets() {
        for (text, name) in [
            ("https://u:pw@a.example/p?sig=1", "a.example:443"),
            ("gsiftp://g.example:2811/p/secret", "g.example:2811"),
            ("s3://bucket/key", "bucket"),
            ("ada@h.example:/home/ada", "h.example"),
            ("file:///home/ada/x", ""),
            ("odd://a b@c/secret", "c"),
            ("Lab A", "Lab_A"),
            ("Lab\u{1b}[31m\nA \u{202e}B", "Lab[31m_A_B"),
            ("a.example:443 b.example:80", "a.example:443 b.example:80"),
            ("/home/ada/x", "here"),
            ("./x", "here"),
            ("a.example:443", "a.example:443"),
        ] {
            assert_eq!(place_name(text), name, "{text}");
        }
    }
}
