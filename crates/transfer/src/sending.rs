//! What the two sides of a tree that is sent say to each other, as `docs/protocol.md` has it: the
//! wishes that a sender adds to its request, and the lines that the receiver answers with.
//!
//! Nothing here talks; both sides have it from here, so that they mean the same.

use serde::{Deserialize, Serialize};
use swath_model::index::Absence;
use swath_store::FileKind;
use swath_store::tree::{Conflict, Filter, FilterError, Preserve, XattrLoss};

use crate::observe::{Event, Summary};
use crate::tree::{Compare, Planned, Spared, TreeSummary, Unremoved};

/// What a sender wishes; told as parameters of its request.
#[derive(Clone, Debug, PartialEq)]
pub struct Wishes {
    /// What is taken over besides bytes.
    pub preserve: Preserve,
    /// What of the destination stays as it is.
    pub compare: Compare,
    /// Go on from what an earlier run left.
    pub resume: bool,
    /// Remove from the destination what is not in the tree.
    pub delete: bool,
    /// Do so also if there is no file in the tree.
    pub allow_empty: bool,
    /// The walk with which the copy began, if another receiver has begun it: what it has listed stays.
    pub first_walk: Option<String>,
    /// Change nothing, only tell what would be changed.
    pub dry: bool,
    /// The longest silence, in seconds; as the receiver likes it if there is none. What nobody would
    /// wait for is not believed.
    pub patience_s: Option<f64>,
    /// Patterns of what takes part, as [`Filter::new`] takes them …
    pub include: Vec<String>,
    /// … and of what does not.
    pub exclude: Vec<String>,
    /// The tree is a single file of this name.
    pub single: Option<String>,
}

impl Wishes {
    /// Read them from a request's parameters. What is not known here is passed over, and of what is
    /// told twice the first counts.
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

    /// As parameters of a request, ready for its query.
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
        // Commas stand for themselves in a query; the rest are plain words.
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

    /// What takes part.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn filter(&self) -> Result<Filter, FilterError> {
        Filter::new(&self.include, &self.exclude)
    }
}

/// The longest silence that a receiver is asked to bear, within bounds.
fn patience_of(text: &str) -> Option<f64> {
    let patience_s: f64 = text.parse().ok()?;
    (patience_s > 0.0).then(|| patience_s.clamp(PATIENCE_MIN_S, PATIENCE_MAX_S))
}

/// One line of a receiver.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// It has begun, under this name.
    Receiving(String),
    /// So many further connections are wanted.
    Dial(u32),
    /// Something happened.
    Event(Box<Event>),
    /// Only asked for: what would be copied (its bytes) or removed; and, if it is a further name of
    /// a file, that file.
    Change(
        Option<u64>,
        String,
        #[serde(default, skip_serializing_if = "Option::is_none")] Option<String>,
    ),
    /// All is there that could be.
    Received(Box<Received>),
    /// It ended early.
    Failed(Failed),
}

/// What became of a tree.
#[derive(Debug, Serialize, Deserialize)]
pub struct Received {
    /// The figures.
    pub transfer: Summary,
    /// Files, folders, links, hard links.
    pub counts: [u64; 4],
    /// What was removed from the destination.
    pub removed: u64,
    /// What was not, although it is not in the tree.
    #[serde(default)]
    pub spared: Option<Spared>,
    /// What could not be removed.
    #[serde(default)]
    pub unremoved: Unremoved,
    /// Of the files those that were there already.
    pub kept_files: u64,
    /// Paths of files that changed twice while they were read.
    pub changed: Vec<String>,
    /// What could not be read, and why.
    pub absent: Vec<(String, String)>,
    /// All is there but for what is no file, folder or link.
    pub is_whole: bool,
    /// What has not the extended attributes that it has in the tree. A receiver that knows nothing of
    /// them does not tell.
    #[serde(default)]
    pub xattrs: Option<XattrLosses>,
}

/// Entries whose extended attributes could not be taken over.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct XattrLosses {
    /// How many.
    pub count: u64,
    /// The first of them, and why.
    pub first: Vec<(String, String)>,
}

/// Why it ended early.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failed {
    /// The exit code that this makes.
    pub exit: u8,
    /// A sentence.
    pub error: String,
    /// Bytes that are kept for the next run, if the receiver knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_bytes: Option<u64>,
    /// For now only: another question may find it otherwise.
    #[serde(default)]
    pub passes: Passes,
    /// Something of another kind is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_the_way: Option<InTheWay>,
}

/// Something at the destination is of another kind than in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InTheWay {
    /// There is a folder where none is meant.
    pub is_folder: bool,
    /// It takes no part in the copy, or holds such: `--delete` does not replace it.
    pub is_sheltered: bool,
}

impl InTheWay {
    /// What these conflicts come to.
    pub fn of(conflicts: &[Conflict]) -> InTheWay {
        InTheWay {
            is_folder: conflicts.iter().any(|it| it.there == FileKind::Folder),
            is_sheltered: conflicts.iter().any(|it| it.is_sheltered),
        }
    }
}

/// Whether what a receiver ended for may have passed when it is asked again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Passes {
    /// Nobody knows of a reason why it should.
    #[default]
    No,
    /// Nothing came from the sender for a while.
    Silence,
    /// Somebody else is writing there: the receiver before this one, perhaps.
    Held,
}

impl Failed {
    /// Before anybody looked at what is kept.
    pub fn at_once(exit: u8, error: String) -> Failed {
        Failed { exit, error, kept_bytes: None, passes: Passes::No, in_the_way: None }
    }
}

impl Line {
    /// Understand one, without its end.
    ///
    /// # Errors
    /// A sentence on what is wrong with it.
    pub fn parse(line: &[u8]) -> Result<Line, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }

    /// As it travels, without its end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// An event as a line.
    pub fn event(event: &Event) -> String {
        Line::Event(Box::new(event.clone())).to_json()
    }
}

impl Received {
    /// Nothing was done.
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

    /// As others are told.
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
        XattrLoss::Unsupported => "the file system takes none",
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

/// Takes lines out of what comes in parts. Each byte is looked at once, however long a line is.
#[derive(Debug, Default)]
pub struct LineReader {
    bytes: Vec<u8>,
    /// Where the first line that has not been handed over begins …
    start: usize,
    /// … and where nobody has looked for its end yet.
    looked_to: usize,
}

impl LineReader {
    /// The next part.
    pub fn take_in(&mut self, part: &[u8]) {
        self.bytes.drain(..self.start);
        self.looked_to -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(part);
    }

    /// The next whole line, without its end.
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

    /// Whether what has come of the next line is more than any line has.
    pub fn is_too_long(&self) -> bool {
        self.pending_bytes() > LINE_BYTES_MAX
    }

    fn pending_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }
}

/// Shorter silences than this are in the nature of networks …
const PATIENCE_MIN_S: f64 = 1.0;
/// … and for no longer than this a receiver is kept busy by somebody who may be gone for good.
const PATIENCE_MAX_S: f64 = 3600.0;
/// A line is a summary at most.
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
        let began = std::time::Instant::now();
        for _ in 0..LINE_BYTES_MAX / 64 {
            lines.take_in(&[b'x'; 64]);
            assert!(lines.next_line().is_none());
        }
        assert!(!lines.is_too_long());
        lines.take_in(b"x");
        assert!(lines.is_too_long());
        // To look at all of it for each part would be two thousand billion bytes.
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
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
