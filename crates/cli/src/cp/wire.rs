//! What a receiver tells a sender, one line of JSON each.

use serde::{Deserialize, Serialize};
use swath_transfer::observe::{Event, Summary};
use swath_transfer::{Absence, TreeSummary};

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// It has begun, under this name.
    Receiving(String),
    /// So many further connections are wanted.
    Dial(u32),
    /// Something happened.
    Event(Box<Event>),
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
    /// Of the files those that were there already.
    pub kept_files: u64,
    /// Paths of files that changed twice while they were read.
    pub changed: Vec<String>,
    /// What could not be read at all, and why.
    pub absent: Vec<(String, String)>,
    /// All is there but for what is no file, folder or link.
    pub is_whole: bool,
}

/// Why it ended early.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failed {
    /// The exit code that this makes.
    pub exit: u8,
    /// A sentence.
    pub error: String,
}

impl Line {
    /// As it travels.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// An event as a line.
    pub fn event(event: &Event) -> String {
        Line::Event(Box::new(event.clone())).to_json()
    }
}

impl Received {
    /// As others are told.
    pub fn of(tree: &TreeSummary) -> Received {
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        Received {
            transfer: tree.transfer.clone(),
            counts: [tree.files, tree.counts.folders, tree.counts.links, tree.counts.hard_links],
            kept_files: tree.kept_files,
            changed: tree.changed.iter().map(|path| text(path)).collect(),
            absent: tree
                .absent
                .iter()
                .map(|(path, absence)| (text(path), why(*absence).to_owned()))
                .collect(),
            is_whole: tree.is_whole(),
        }
    }
}

fn why(absence: Absence) -> &'static str {
    match absence {
        Absence::Forbidden => "it may not be read there",
        Absence::Vanished => "it went away during the walk",
        Absence::Special => "it is no file, folder or link",
        Absence::Unreadable => "it cannot be read there",
        Absence::Elsewhere => "it is on another file system",
    }
}
