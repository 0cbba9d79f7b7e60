//! What is measured: datasets, links and who takes part.

use std::time::Duration;

use swath_netlab::star::{LinkSpec, StarSpec};

use super::Tool;
use crate::third_party::{self, Data, Sizes};
use crate::tree_data::Shape;

/// One dataset on one link.
#[derive(Clone, Debug)]
pub struct Cell {
    /// What `--datasets` calls the dataset.
    pub dataset: &'static str,
    /// What `--scenarios` calls the cell.
    pub name: String,
    /// The dataset in words.
    pub title: String,
    /// What is copied.
    pub data: Data,
    /// Round-trip time between the ends.
    pub rtt_ms: f64,
    /// Who moves the data.
    pub way: Way,
    /// Who takes part, by turns.
    pub tools: Vec<Tool>,
}

/// Who moves the data of a cell.
#[derive(Clone, Debug)]
pub enum Way {
    /// A client fetches from a server.
    Fetch,
    /// A third site orders a copy between two servers.
    ThirdParty(third_party::Row),
}

impl Cell {
    /// Returns the link between client and server.
    pub fn star(&self) -> StarSpec {
        StarSpec::new(vec![LinkSpec {
            rate_bits_per_s: RATE_BITS_PER_S,
            one_way_delay: Duration::from_secs_f64(self.rtt_ms / 2e3),
        }])
    }

    /// Returns the least time that the link allows, with headers of packets.
    pub fn bound_s(&self) -> f64 {
        self.data.bytes() as f64 * FRAMING * 8.0 / RATE_BITS_PER_S as f64
    }
}

/// Returns all cells in the order of measurement: `total_bytes` a dataset, DS1 to DS6 at each of
/// `rtts_ms`.
///
/// A smaller total than the published one means fewer files of the published size, and where one
/// file is as large as the total or larger, one file of the total. Of datasets that are the same then,
/// only the first is there.
pub fn cells(total_bytes: u64, rtts_ms: &[f64]) -> Vec<Cell> {
    let mut all = Vec::new();
    let mut known = Vec::new();
    for (dataset, file_bytes) in DATASETS {
        let bytes = file_bytes.min(total_bytes);
        let shape = Shape::Equal { files: (total_bytes / bytes).max(1), bytes };
        if known.contains(&shape) {
            continue;
        }
        known.push(shape);
        all.extend(rtts_ms.iter().map(|&rtt_ms| Cell {
            dataset,
            name: format!("{dataset}-{rtt_ms}ms"),
            title: format!("{} × {}", count(shape.files()), bytes_text(bytes)),
            data: Data::Tree(shape),
            rtt_ms,
            way: Way::Fetch,
            tools: Tool::STUDY.to_vec(),
        }));
    }
    all.extend(mdtm(total_bytes));
    all.extend(RADIOASTRON_RTTS_MS.iter().map(|&rtt_ms| Cell {
        dataset: "radioastron",
        name: format!("radioastron-{rtt_ms}ms"),
        title: format!("1 file of {}", bytes_text(total_bytes)),
        data: Data::Tree(Shape::Equal { files: 1, bytes: total_bytes }),
        rtt_ms,
        way: Way::Fetch,
        tools: Tool::RADIOASTRON.to_vec(),
    }));
    all
}

/// Returns the dataset that stands for another one, because it is the same at this total; mostly
/// itself.
pub fn stands_for(dataset: &str, total_bytes: u64) -> &str {
    let shape = |file_bytes: u64| {
        let bytes = file_bytes.min(total_bytes);
        (total_bytes / bytes, bytes)
    };
    let own = DATASETS.iter().find(|(name, _)| *name == dataset).map(|(_, bytes)| shape(*bytes));
    let first = DATASETS.iter().find(|(_, bytes)| own == Some(shape(*bytes)));
    first.map_or(dataset, |(name, _)| name)
}

/// The tables of the mdtmFTP paper: client and server, and two servers.
fn mdtm(total_bytes: u64) -> Vec<Cell> {
    let folder_bytes = total_bytes / MDTM_FOLDER_FILES;
    let tree_bytes = total_bytes.min(MDTM_TREE_BYTES);
    let tree_files = (MDTM_TREE_FILES * tree_bytes / MDTM_TREE_BYTES).max(1);
    let data = [
        ("large", Data::Tree(Shape::Equal { files: 1, bytes: total_bytes })),
        ("folder", Data::Tree(Shape::Equal { files: MDTM_FOLDER_FILES, bytes: folder_bytes })),
        ("files", Data::Tree(Shape::Natural { files: tree_files, bytes: tree_bytes })),
    ];
    let titles = [
        format!("1 file of {}", bytes_text(total_bytes)),
        format!("a folder of {MDTM_FOLDER_FILES} files of {}", bytes_text(folder_bytes)),
        format!("{} files, {}", count(tree_files), bytes_text(tree_bytes)),
    ];
    let rows = third_party::rows(Sizes { bytes: Some(total_bytes), files: Some(tree_files) });
    let fetched = data.iter().zip(&titles).map(|((name, data), title)| Cell {
        dataset: "mdtm",
        name: format!("mdtm-{name}"),
        title: title.clone(),
        data: *data,
        rtt_ms: MDTM_RTT_MS,
        way: Way::Fetch,
        tools: Tool::STUDY.to_vec(),
    });
    let ordered = data.iter().zip(&titles).filter_map(|((name, data), title)| {
        let mut row = rows.iter().find(|row| row.name == *name)?.clone();
        // The same files as those that a client fetches, but one file has the name that the row knows.
        if *name == "folder" {
            row.data = *data;
        }
        Some(Cell {
            dataset: "mdtm-third-party",
            name: format!("mdtm-third-party-{name}"),
            title: title.clone(),
            data: row.data,
            rtt_ms: MDTM_RTT_MS,
            way: Way::ThirdParty(row),
            tools: Tool::THIRD_PARTY.to_vec(),
        })
    });
    fetched.chain(ordered).collect()
}

/// Returns a number with commas.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a number of bytes with its unit.
pub fn bytes_text(bytes: u64) -> String {
    let (unit, name) = match bytes {
        1_000_000_000.. => (1e9, "GB"),
        1_000_000.. => (1e6, "MB"),
        _ => (1e3, "kB"),
    };
    let value = format!("{:.1}", bytes as f64 / unit);
    format!("{} {name}", value.strip_suffix(".0").unwrap_or(&value))
}

/// Round-trip times of the study: a local network and three distances.
pub const RTTS_MS: [f64; 4] = [0.6, 15.0, 30.0, 60.0];
/// The datasets of the study with the size of their files; each has 10 GB in all there.
pub const DATASETS: [(&str, u64); 6] = [
    ("ds1", 10_000_000_000),
    ("ds2", 1_000_000_000),
    ("ds3", 100_000_000),
    ("ds4", 10_000_000),
    ("ds5", 1_000_000),
    ("ds6", 100_000),
];
/// The Radioastron paper tells of a dedicated link and of a public one, not of how long they were.
const RADIOASTRON_RTTS_MS: [f64; 2] = [0.6, 30.0];
/// Of every link.
pub const RATE_MBIT_PER_S: u64 = 1000;
const RATE_BITS_PER_S: u64 = RATE_MBIT_PER_S * 1_000_000;
/// Of 1,500 bytes on the wire 1,448 are payload.
const FRAMING: f64 = 1500.0 / 1448.0;
/// The loop of the mdtmFTP paper.
const MDTM_RTT_MS: f64 = 95.0;
const MDTM_FOLDER_FILES: u64 = 30;
/// The source of Linux.
const MDTM_TREE_FILES: u64 = 50_000;
const MDTM_TREE_BYTES: u64 = 554_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(total_bytes: u64) -> Vec<String> {
        let all = cells(total_bytes, &[15.0]);
        let own = all.iter().filter(|cell| cell.dataset.starts_with("ds"));
        own.map(|cell| format!("{}: {}", cell.name, cell.title)).collect()
    }

    #[test]
    fn the_published_total_makes_the_published_datasets() {
        assert_eq!(
            titles(10_000_000_000),
            [
                "ds1-15ms: 1 × 10 GB",
                "ds2-15ms: 10 × 1 GB",
                "ds3-15ms: 100 × 100 MB",
                "ds4-15ms: 1,000 × 10 MB",
                "ds5-15ms: 10,000 × 1 MB",
                "ds6-15ms: 100,000 × 100 kB",
            ]
        );
    }

    #[test]
    fn a_smaller_total_means_fewer_files_and_no_dataset_twice() {
        assert_eq!(
            titles(1_000_000_000),
            [
                "ds1-15ms: 1 × 1 GB",
                "ds3-15ms: 10 × 100 MB",
                "ds4-15ms: 100 × 10 MB",
                "ds5-15ms: 1,000 × 1 MB",
                "ds6-15ms: 10,000 × 100 kB",
            ]
        );
        assert_eq!(stands_for("ds2", 1_000_000_000), "ds1");
        assert_eq!(stands_for("ds3", 1_000_000_000), "ds3");
        assert_eq!(stands_for("ds3", 100_000_000), "ds1");
    }

    #[test]
    fn names_of_cells_are_unique() {
        let all = cells(1_000_000_000, &RTTS_MS);
        let mut names: Vec<&str> = all.iter().map(|cell| cell.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn the_bound_is_that_of_the_link() {
        let all = cells(1_448_000_000, &[15.0]);
        assert!((all[0].bound_s() - 12.0).abs() < 1e-9);
    }
}
