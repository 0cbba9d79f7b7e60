//! What is measured: the network, the data, who takes part and what has to be reached.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use swath_netlab::map::MapSpec;

use super::Tool;
use crate::data::make_file;
use crate::results::Goal;
use crate::tree_data::{Shape, make_tree};

/// How much is copied; what is not named is the row's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// Bytes of large files.
    pub bytes: Option<u64>,
    /// Number of files of the tree.
    pub files: Option<u64>,
}

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// One file.
    File(u64),
    /// Files of equal size, and the bytes of all of them.
    Folder(u64, u64),
    /// A tree of small files.
    Tree(Shape),
}

impl Data {
    /// Bytes of all files.
    pub fn bytes(self) -> u64 {
        match self {
            Data::File(bytes) => bytes,
            Data::Folder(files, bytes) => bytes / files * files,
            Data::Tree(shape) => shape.bytes(),
        }
    }

    /// Makes it in an empty folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn make(self, folder: &Path) -> io::Result<()> {
        match self {
            Data::File(bytes) => fs::rename(make_file(folder, bytes)?, folder.join(FILE)),
            Data::Folder(files, bytes) => (0..files).try_for_each(|number| {
                // Other content for each: its seed is the size.
                let made = make_file(folder, bytes / files + number)?;
                fs::File::options().write(true).open(&made)?.set_len(bytes / files)?;
                fs::rename(made, folder.join(format!("file-{number}.dat")))
            }),
            Data::Tree(shape) => make_tree(folder, shape),
        }
    }
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Row {
    /// What `--row` calls it.
    pub name: &'static str,
    /// In words.
    pub title: String,
    /// What is copied.
    pub data: Data,
    /// The sites, among them B, the destination. `None` is one machine without links.
    pub map: Option<MapSpec>,
    /// Who takes part, by turns.
    pub tools: Vec<Tool>,
    /// Whether files lie in memory and not on a disk.
    pub is_in_memory: bool,
    /// What has to be reached.
    pub goals: Vec<Goal>,
}

impl Row {
    /// Returns the least time that the links to the destination allow, with headers of packets; none
    /// without links.
    pub fn bound_s(&self) -> f64 {
        let Some(map) = &self.map else { return 0.0 };
        let into = map.edges.iter().filter(|edge| map.sites[edge.to] == DESTINATION);
        let mbit: f64 = into.filter(|edge| edge.from != map.here).map(|edge| edge.mbit).sum();
        self.data.bytes() as f64 * FRAMING * 8.0 / (mbit * 1e6)
    }

    /// Returns when a tool has said what it has to say.
    pub fn limit(&self) -> Duration {
        LIMIT_MOST.min(Duration::from_secs_f64(self.bound_s() * LIMIT_OVER_BOUND) + LIMIT_AT_LEAST)
    }

    /// Returns the positions of the sources.
    pub fn sources(&self) -> Vec<usize> {
        let Some(map) = &self.map else { return vec![0] };
        (0..map.sites.len()).filter(|&at| at != map.here && map.sites[at] != DESTINATION).collect()
    }
}

/// Returns all rows.
pub fn rows(sizes: Sizes) -> Vec<Row> {
    let bytes = sizes.bytes.unwrap_or(LARGE_BYTES);
    let files = sizes.files.unwrap_or(TREE_FILES);
    let tree_bytes = TREE_BYTES * files / TREE_FILES;
    let near = |by_b: &str| {
        vec![Goal::at_most(SWATH, by_b, 1.03), Goal::at_most(SWATH, "client kB/min", 100.0)]
    };
    let links = "1 Gbit/s and 95 ms apart, ordered from 10 Mbit/s and 40 ms away";
    let large = Row {
        name: "large",
        title: format!("one file of {:.1} GB, servers {links}", bytes as f64 / 1e9),
        data: Data::File(bytes),
        map: Some(MapSpec::three_sites()),
        tools: Tool::ALL.to_vec(),
        is_in_memory: false,
        goals: [near("× by B"), vec![Goal::at_least(SWATH, "GridFTP/swath", 1.0)]].concat(),
    };
    let folder = Row {
        name: "folder",
        title: format!("{FOLDER_FILES} files, {:.1} GB, the same links", bytes as f64 / 1e9),
        data: Data::Folder(FOLDER_FILES, bytes),
        ..large.clone()
    };
    let small = Row {
        name: "files",
        title: format!("{files} files, {:.0} MB, the same links", tree_bytes as f64 / 1e6),
        data: Data::Tree(Shape::Natural { files, bytes: tree_bytes }),
        is_in_memory: true,
        goals: vec![
            Goal::at_most(SWATH, "round trips beyond", 8.0),
            Goal::at_most(SWATH, "client kB/min", 100.0),
            Goal::at_least(SWATH, "GridFTP/swath", 20.0),
        ],
        ..large.clone()
    };
    let sources_bytes = sizes.bytes.unwrap_or(SOURCES_BYTES);
    let sources = Row {
        name: "sources",
        title: format!(
            "one file of {:.1} GB from three servers, 100, 200 and 400 Mbit/s, 95 ms",
            sources_bytes as f64 / 1e9
        ),
        data: Data::File(sources_bytes),
        map: Some(MapSpec::three_sources()),
        tools: vec![Tool::SwathByB, Tool::Swath],
        goals: vec![
            Goal::at_most(SWATH, "× bound", 1.15),
            Goal::at_most(SWATH, "client kB/min", 100.0),
        ],
        ..large.clone()
    };
    let copy_bytes = sizes.bytes.unwrap_or(COPY_BYTES);
    let copy = Row {
        name: "copy",
        title: format!("COPY of {:.1} GB between servers on loopback", copy_bytes as f64 / 1e9),
        data: Data::File(copy_bytes),
        map: None,
        tools: Tool::COPIES.to_vec(),
        is_in_memory: true,
        goals: [
            Tool::SwathPulls,
            Tool::XrootdPushesToSwath,
            Tool::SwathPushes,
            Tool::XrootdPullsFromSwath,
        ]
        .map(|tool| Goal::at_least(tool.name(), "rate/XRootD", 1.0))
        .to_vec(),
    };
    vec![large, folder, small, sources, copy]
}

/// The file of [`Data::File`].
pub const FILE: &str = "data.dat";
/// The site that shall have the data.
pub const DESTINATION: &str = "B";
/// Of 1,500 bytes on the wire 1,448 are payload.
const FRAMING: f64 = 1500.0 / 1448.0;
const SWATH: &str = Tool::Swath.name();
const LARGE_BYTES: u64 = 10_000_000_000;
const FOLDER_FILES: u64 = 10;
/// The tree of `bench/trees`: about the source of a large program.
const TREE_FILES: u64 = 50_000;
const TREE_BYTES: u64 = 554_000_000;
/// A minute at 700 Mbit/s is long enough to see what starts and ends cost.
const SOURCES_BYTES: u64 = 5_000_000_000;
const COPY_BYTES: u64 = 4 << 30;
/// A tool that is this many times slower than it could be has said what it has to say.
const LIMIT_OVER_BOUND: f64 = 30.0;
const LIMIT_AT_LEAST: Duration = Duration::from_secs(120);
const LIMIT_MOST: Duration = Duration::from_secs(900);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_links_into_the_destination() {
        let all = rows(Sizes { bytes: Some(1_448_000_000), files: Some(5000) });
        let bound = |name: &str| all.iter().find(|row| row.name == name).unwrap().bound_s();
        assert!((bound("large") - 12.0).abs() < 1e-6);
        assert!((bound("folder") - 12.0).abs() < 1e-6);
        assert!((bound("sources") - 12.0 / 0.7).abs() < 1e-6);
        assert_eq!(bound("copy"), 0.0);
        assert!((bound("files") - 0.459).abs() < 1e-3);
    }

    #[test]
    fn data_is_made_as_told() {
        let folder = tempfile::tempdir().unwrap();
        Data::Folder(10, 1_000_003).make(folder.path()).unwrap();
        let read =
            |number: u32| fs::read(folder.path().join(format!("file-{number}.dat"))).unwrap();
        assert_eq!(read(0).len(), 100_000);
        assert_eq!(read(9).len(), 100_000);
        assert_ne!(read(0), read(9));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 10);
        assert_eq!(Data::Folder(10, 1_000_003).bytes(), 1_000_000);
    }
}
