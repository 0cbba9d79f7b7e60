//! What a receiver tells a sender, one line of JSON each.

use serde::{Deserialize, Serialize};
use swath_transfer::observe::{Event, Summary};
use swath_transfer::{Absence, Counts, TreeSummary};

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
    /// Only asked for: what would be copied (its bytes) or removed.
    Change(Option<u64>, String),
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
    /// Of the files those that were there already.
    pub kept_files: u64,
    /// Paths of files that changed twice while they were read.
    pub changed: Vec<String>,
    /// What could not be read, and why.
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
    /// Nothing was done.
    pub fn planned(counts: Counts) -> Received {
        let transfer = Summary {
            path: String::new(),
            size_bytes: counts.file_bytes,
            fetched_bytes: 0,
            resumed_bytes: 0,
            elapsed_s: 0.0,
            rate_bytes_per_s: 0.0,
            wasted_bytes: 0,
            efficiency: None,
            verified_by: String::new(),
            proved: false,
            limited_by: String::new(),
            digest: None,
            sources: Vec::new(),
        };
        Received {
            transfer,
            counts: [counts.files, counts.folders, counts.links, counts.hard_links],
            removed: 0,
            kept_files: 0,
            changed: Vec::new(),
            absent: Vec::new(),
            is_whole: true,
        }
    }

    /// As others are told.
    pub fn of(tree: &TreeSummary) -> Received {
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        Received {
            transfer: tree.transfer.clone(),
            counts: [tree.files, tree.counts.folders, tree.counts.links, tree.counts.hard_links],
            removed: tree.removed,
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
        Absence::Vanished => "it went away meanwhile",
        Absence::Special => "it is no file, folder or link",
        Absence::Unreadable => "it cannot be read there",
        Absence::Elsewhere => "it is on another file system",
    }
}
