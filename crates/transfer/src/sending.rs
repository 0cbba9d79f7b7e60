//! The messages between sender and receiver of a tree, as `docs/protocol.md` defines them: the
//! wishes in the sender's request, and the lines of the receiver's answer.
//!
//! Nothing here uses the network; both sides share these types.

use serde::{Deserialize, Serialize};
use swath_model::index::Absence;
use swath_store::FileKind;
use swath_store::tree::{Conflict, Filter, FilterError, Preserve, XattrLoss};

use crate::observe::{Event, Summary};
use crate::tree::{Compare, Planned, Spared, TreeSummary, Unremoved};

/// A sender's wishes, sent as parameters of its request.
#[derive(Clone, Debug, PartialEq)]
pub struct Wishes {
    /// Metadata to copy besides bytes.
    pub preserve: Preserve,
    /// How unchanged files are recognized.
    pub compare: Compare,
    /// Resume from the data of an earlier run.
    pub resume: bool,
    /// Remove entries that are not in the tree from the destination.
    pub delete: bool,
    /// Do so even if there is no file in the tree.
    pub allow_empty: bool,
    /// The walk with which the copy began, if another receiver began it: its entries stay.
    pub first_walk: Option<String>,
    /// Change nothing, only report what would change.
    pub dry: bool,
    /// The longest silence, in seconds; the receiver's default if `None`. Limited to reasonable
    /// values.
    pub patience_s: Option<f64>,
    /// Patterns of entries to include, as [`Filter::new`] takes them.
    pub include: Vec<String>,
    /// Patterns of entries to exclude.
    pub exclude: Vec<String>,
    /// The name of the file, if the tree is a single file.
    pub single: Option<String>,
}

impl Wishes {
    /// Reads wishes from a request's parameters. Ignores unknown parameters, and all but the first
    /// of a repeated one.
    pub fn of(parameters: &[(String, String)]) -> Wishes {
        let all = |name: &str| -> Vec<String> {
            let of_name = parameters.iter().filter(|(known, _)| known == name);
            of_name.map(|(_, value)| value.clone()).collect()
        };
        let first = |name: &str| {
            let found = parameters.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        let kept = first("preserve").unwrap_or("mode,times");
        let keeps = |what: &str| kept.split(',').any(|kept| kept == what);
        Wishes {
            preserve: Preserve {
                mode: keeps("mode"),
                times: keeps("times"),
                links: keeps("links"),
                xattrs: keeps("xattr"),
            },
            compare: match first("compare") {
                Some("no") => Compare::Nothing,
                Some("checksum") => Compare::Content,
                _ => Compare::SizeAndTime,
            },
            resume: first("resume") != Some("no"),
            delete: first("delete") == Some("yes"),
            allow_empty: first("empty") == Some("yes"),
            first_walk: first("first").map(str::to_owned),
            dry: first("dry") == Some("yes"),
            patience_s: first("timeout").and_then(patience_of),
            include: all("include"),
            exclude: all("exclude"),
            single: first("single").map(str::to_owned),
        }
    }

    /// Returns the wishes as a query string.
    pub fn query(&self) -> String {
        let kept = self.preserve;
        let kept = [
            (kept.mode, "mode"),
            (kept.times, "times"),
            (kept.links, "links"),
            (kept.xattrs, "xattr"),
        ];
        let kept: Vec<&str> =
            kept.iter().filter(|(keeps, _)| *keeps).map(|(_, name)| *name).collect();
        // Commas need no encoding in a query; the rest are plain words.
        let mut query = format!("preserve={}", kept.join(","));
        query.push_str(match self.compare {
            Compare::SizeAndTime => "",
            Compare::Content => "&compare=checksum",
            Compare::Nothing => "&compare=no",
        });
        for (is_so, text) in [
            (!self.resume, "&resume=no"),
            (self.delete, "&delete=yes"),
            (self.allow_empty, "&empty=yes"),
            (self.dry, "&dry=yes"),
        ] {
            query.push_str(if is_so { text } else { "" });
        }
        if let Some(patience_s) = self.patience_s {
            query.push_str(&format!("&timeout={patience_s}"));
        }
        let named = |name: &'static str| move |value: &String| (name, value.clone());
        let include = self.include.iter().map(named("include"));
        let patterns = include.chain(self.exclude.iter().map(named("exclude")));
        let patterns = patterns.chain(self.single.iter().map(named("single")));
        let patterns = patterns.chain(self.first_walk.iter().map(named("first")));
        let mut query = url::form_urlencoded::Serializer::for_suffix(query, 0);
        query.extend_pairs(patterns).finish()
    }

    /// Returns the filter of the entries.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn filter(&self) -> Result<Filter, FilterError> {
        Filter::new(&self.include, &self.exclude)
    }
}

/// Parses the longest silence, and limits it.
fn patience_of(text: &str) -> Option<f64> {
    let patience_s: f64 = text.parse().ok()?;
    (patience_s > 0.0).then(|| patience_s.clamp(PATIENCE_MIN_S, PATIENCE_MAX_S))
}

/// One line of a receiver's answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// The receiver has begun, under this name.
    Receiving(String),
    /// The receiver wants this many further connections.
    Dial(u32),
    /// Something happened.
    Event(Box<Event>),
    /// In a dry run, an entry that would be copied (with its bytes) or removed; and, for a hard
    /// link, its file. The path of a folder that would be made ends in `/`.
    Change(
        Option<u64>,
        String,
        #[serde(default, skip_serializing_if = "Option::is_none")] Option<String>,
    ),
    /// The copy is done, as far as possible.
    Received(Box<Received>),
    /// The copy ended early.
    Failed(Failed),
}

/// The result of receiving a tree.
#[derive(Debug, Serialize, Deserialize)]
pub struct Received {
    /// The figures.
    pub transfer: Summary,
    /// Files, folders, links, hard links.
    pub counts: [u64; 4],
    /// Entries removed from the destination.
    pub removed: u64,
    /// Entries that stay, although they are not in the tree.
    #[serde(default)]
    pub spared: Option<Spared>,
    /// Entries that could not be removed.
    #[serde(default)]
    pub unremoved: Unremoved,
    /// Files that existed already and are unchanged.
    pub kept_files: u64,
    /// Paths of files that changed twice while they were read.
    pub changed: Vec<String>,
    /// Entries that could not be read, and why.
    pub absent: Vec<(String, String)>,
    /// Whether the copy is complete, except special files.
    pub is_whole: bool,
    /// Entries without the extended attributes of the tree. Missing from receivers without support
    /// for them.
    #[serde(default)]
    pub xattrs: Option<XattrLosses>,
}

/// Entries whose extended attributes could not be copied.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct XattrLosses {
    /// Their number.
    pub count: u64,
    /// The first of them, and why.
    pub first: Vec<(String, String)>,
}

/// Why a copy ended early.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failed {
    /// The exit code for it.
    pub exit: u8,
    /// The error in words.
    pub error: String,
    /// Bytes kept for the next run, if the receiver knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_bytes: Option<u64>,
    /// Whether a later request may succeed.
    #[serde(default)]
    pub passes: Passes,
    /// Entries of another kind at the destination, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_the_way: Option<InTheWay>,
}

/// Entries of the destination with another kind than in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InTheWay {
    /// Whether there is a folder in place of something else.
    pub is_folder: bool,
    /// Whether one is excluded, or holds excluded entries: `--delete` does not replace it.
    pub is_sheltered: bool,
}

impl InTheWay {
    /// Sums up these conflicts.
    pub fn of(conflicts: &[Conflict]) -> InTheWay {
        InTheWay {
            is_folder: conflicts.iter().any(|it| it.there == FileKind::Folder),
            is_sheltered: conflicts.iter().any(|it| it.is_sheltered),
        }
    }
}

/// Whether the reason of a receiver's end may be over at the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Passes {
    /// Probably not.
    #[default]
    No,
    /// Nothing came from the sender for a while.
    Silence,
    /// Another process is writing there, perhaps the receiver before this one.
    Held,
}

impl Failed {
    /// Makes a failure from before the kept data was looked at.
    pub fn at_once(exit: u8, error: String) -> Failed {
        Failed { exit, error, kept_bytes: None, passes: Passes::No, in_the_way: None }
    }
}

impl Line {
    /// Parses a line, without its end.
    ///
    /// # Errors
    /// The error in words.
    pub fn parse(line: &[u8]) -> Result<Line, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }

    /// Returns the line as JSON, without its end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns an entry that would be copied as a line.
    pub fn copy(bytes: u64, path: &[u8], is_folder: bool, further_of: Option<&[u8]>) -> Line {
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let slash = if is_folder { "/" } else { "" };
        Line::Change(Some(bytes), text(path) + slash, further_of.map(text))
    }

    /// Returns an event as a line.
    pub fn event(event: &Event) -> String {
        Line::Event(Box::new(event.clone())).to_json()
    }
}

impl Received {
    /// Makes the result of a dry run.
    pub fn planned(planned: &Planned) -> Received {
        let counts = planned.counts;
        let transfer = Summary { size_bytes: counts.file_bytes, ..Summary::default() };
        Received {
            transfer,
            counts: [counts.files, counts.folders, counts.links, counts.hard_links],
            removed: 0,
            spared: planned.spared,
            unremoved: planned.unremoved.clone(),
            kept_files: 0,
            changed: Vec::new(),
            absent: reasons(&planned.absent),
            is_whole: planned.is_whole(),
            xattrs: Some(XattrLosses::default()),
        }
    }

    /// Makes the message of a result.
    pub fn of(tree: &TreeSummary) -> Received {
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        Received {
            transfer: tree.transfer.clone(),
            counts: [tree.files, tree.counts.folders, tree.counts.links, tree.counts.hard_links],
            removed: tree.removed,
            spared: tree.spared,
            unremoved: tree.unremoved.clone(),
            kept_files: tree.kept_files,
            changed: tree.changed.iter().map(|path| text(path)).collect(),
            absent: reasons(&tree.absent),
            is_whole: tree.is_whole(),
            xattrs: Some(XattrLosses {
                count: tree.xattr_losses,
                first: tree
                    .without_xattrs
                    .iter()
                    .map(|(path, loss)| (text(path), lost(*loss).to_owned()))
                    .collect(),
            }),
        }
    }
}

fn reasons(absent: &[(Vec<u8>, Absence)]) -> Vec<(String, String)> {
    let reason = |(path, absence): &(Vec<u8>, Absence)| {
        (String::from_utf8_lossy(path).into_owned(), why(*absence).to_owned())
    };
    absent.iter().map(reason).collect()
}

fn lost(loss: XattrLoss) -> &'static str {
    match loss {
        XattrLoss::Unknown => "they cannot be read there",
        XattrLoss::Unsupported => "the file system does not support them",
        XattrLoss::NoRoom => "the file system has no room for them",
        XattrLoss::Forbidden => "they may not be set",
        XattrLoss::Refused => "the system refuses them",
    }
}

fn why(absence: Absence) -> &'static str {
    match absence {
        Absence::Forbidden => "it may not be read there",
        Absence::Vanished => "it disappeared meanwhile",
        Absence::Special => "it is no file, folder or link",
        Absence::Unreadable => "it cannot be read there",
        Absence::Elsewhere => "it is on another file system",
    }
}

/// Splits parts of a stream into lines. Each byte is looked at once, however long a line is.
#[derive(Debug, Default)]
pub struct LineReader {
    bytes: Vec<u8>,
    /// Start of the next line.
    start: usize,
    /// End of the bytes already searched for its end.
    looked_to: usize,
}

impl LineReader {
    /// Takes in the next part.
    pub fn take_in(&mut self, part: &[u8]) {
        self.bytes.drain(..self.start);
        self.looked_to -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(part);
    }

    /// Returns the next whole line, without its end.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        let found = self.bytes[self.looked_to..].iter().position(|&byte| byte == b'\n');
        let Some(end) = found.map(|at| self.looked_to + at) else {
            self.looked_to = self.bytes.len();
            return None;
        };
        let line = self.bytes[self.start..end].to_vec();
        (self.start, self.looked_to) = (end + 1, end + 1);
        Some(line)
    }

    /// Returns whether the next line is longer than any valid line.
    pub fn is_too_long(&self) -> bool {
        self.pending_bytes() > LINE_BYTES_MAX
    }

    fn pending_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }
}

/// Shortest accepted limit of silence: networks have shorter ones.
const PATIENCE_MIN_S: f64 = 1.0;
/// Longest accepted limit: the sender may be gone for good.
const PATIENCE_MAX_S: f64 = 3600.0;
/// Longest line: a summary.
const LINE_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_understood_as_they_were_meant() {
        let patterns = ["*.h5", "/a b/", "%&=+#?ä,", ""].map(str::to_owned).to_vec();
        let usual = Wishes::of(&[]);
        assert_eq!((usual.preserve, usual.compare), (Preserve::default(), Compare::SizeAndTime));
        assert!(usual.resume && !usual.delete && !usual.dry);
        for number in 0..128u32 {
            let bit = |at: u32| number >> at & 1 == 1;
            let wishes = Wishes {
                preserve: Preserve { mode: bit(0), times: bit(1), links: bit(2), xattrs: bit(6) },
                compare: [Compare::Nothing, Compare::SizeAndTime, Compare::Content]
                    [number as usize % 3],
                resume: bit(3),
                delete: bit(4),
                allow_empty: bit(1),
                first_walk: bit(2).then(|| "0f".repeat(16)),
                dry: bit(5),
                patience_s: bit(6).then_some(2.5),
                include: patterns[..number as usize % 5].to_vec(),
                exclude: patterns[number as usize % 4..].to_vec(),
                single: (number % 3 > 0).then(|| patterns[number as usize % 3].clone()),
            };
            let url = url::Url::parse(&format!("http://h/?swath=receive&{}", wishes.query()));
            let pairs: Vec<(String, String)> = url.unwrap().query_pairs().into_owned().collect();
            assert_eq!(Wishes::of(&pairs), wishes, "{}", wishes.query());
        }
    }

    #[test]
    fn patience_has_bounds() {
        let of = |text: &str| Wishes::of(&[("timeout".to_owned(), text.to_owned())]).patience_s;
        assert_eq!((of("90"), of("0.1"), of("1e9")), (Some(90.0), Some(1.0), Some(3600.0)));
        for text in ["", "0", "-1", "NaN", "ever"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn lines_are_the_same_in_whatever_parts_they_come() {
        let text = b"one\n\nthree, which is longer\n{}\nno end yet";
        for size in 1..text.len() {
            let mut lines = LineReader::default();
            let mut all = Vec::new();
            for part in text.chunks(size) {
                lines.take_in(part);
                while let Some(line) = lines.next_line() {
                    all.push(String::from_utf8(line).unwrap());
                }
            }
            assert_eq!(all, ["one", "", "three, which is longer", "{}"]);
            assert_eq!(lines.pending_bytes(), "no end yet".len());
        }
    }

    #[test]
    fn a_long_line_in_small_parts_costs_no_more_than_its_length() {
        let mut lines = LineReader::default();
        for _ in 0..LINE_BYTES_MAX / 64 {
            lines.take_in(&[b'x'; 64]);
            assert!(lines.next_line().is_none());
        }
        assert!(!lines.is_too_long());
        lines.take_in(b"x");
        assert!(lines.is_too_long());
        // To look at all of it for each part would be two thousand billion bytes. Time of the processor,
        // which others do not use up.
        let mut took = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock exists on every Linux, and `took` lives across the call.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut took) };
        assert!(took.tv_sec < 30, "{} s", took.tv_sec);
    }

    #[test]
    fn lines_that_say_something_else_are_refused_in_words() {
        assert!(matches!(Line::parse(br#"{"dial":3}"#), Ok(Line::Dial(3))));
        assert!(matches!(
            Line::parse(br#"{"change":[null,"a"]}"#),
            Ok(Line::Change(None, _, None))
        ));
        let further = Line::Change(Some(3), "b".to_owned(), Some("a".to_owned())).to_json();
        assert_eq!(further, r#"{"change":[3,"b","a"]}"#);
        let whole = Line::Change(Some(3), "b".to_owned(), None).to_json();
        assert_eq!(whole, r#"{"change":[3,"b"]}"#);
        for line in ["", "{}", "3", r#"{"dial":-1}"#, r#"{"dial":4294967296}"#, r#"{"other":1}"#] {
            assert!(!Line::parse(line.as_bytes()).unwrap_err().is_empty(), "{line}");
        }
    }
}
