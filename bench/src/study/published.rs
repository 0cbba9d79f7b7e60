//! What the papers published, for tools that cannot be had here as well as for those that can.

use super::predict::Case;

/// A published value: what was copied, by whom, and what it took.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// What was copied.
    pub what: &'static str,
    /// Tool and result, in the words of the table.
    pub values: &'static [(&'static str, &'static str)],
}

/// The comparative study: what it says of the times of all tools. (It shows them as bars.)
pub const STUDY: [&str; 3] = [
    "One large file (DS1): all four tools within 1.25 × the time of the best one.",
    "Many small files (DS6): FDT took about 1.9 times as long as the best tool; XDD has no means for \
     small files.",
    "GridFTP was always above 90 % of the speed of the best tool. bbcp was 3 to 8 times slower, or did \
     not end.",
];

/// The mdtmFTP paper: client and server on a loop of 100 Gbit/s and 95 ms.
pub const MDTM: [Published; 3] = [
    Published {
        what: "1 file of 100 GB",
        values: &[("mdtmFTP", "74 s"), ("FDT", "80 s"), ("GridFTP", "91 s")],
    },
    Published {
        what: "a folder of 30 files of 10 GB",
        values: &[("mdtmFTP", "192 s"), ("FDT", "217 s"), ("GridFTP", "320 s")],
    },
    Published {
        what: "the source of Linux, about 50,000 files, 554 MB",
        values: &[
            ("mdtmFTP", "11 s"),
            ("GridFTP", "1006 s"),
            ("bbcp", "6274 s"),
            ("FDT", "crashed"),
        ],
    },
];

/// The same between two servers, ordered by a third site.
pub const MDTM_THIRD_PARTY: [Published; 3] = [
    Published { what: "1 file of 100 GB", values: &[("mdtmFTP", "35 s"), ("GridFTP", "107 s")] },
    Published {
        what: "a folder of 30 files of 10 GB",
        values: &[("mdtmFTP", "96 s"), ("the others", "could not")],
    },
    Published {
        what: "the source of Linux, about 50,000 files, 554 MB",
        values: &[("mdtmFTP", "10 s"), ("the others", "could not")],
    },
];

/// The Radioastron paper: Mbit/s over a link.
pub const RADIOASTRON: [Published; 2] = [
    Published {
        what: "published: dedicated link",
        values: &[("ftp", "882"), ("http", "884"), ("gridftp", "420"), ("UDT", "490")],
    },
    Published {
        what: "published: public link",
        values: &[
            ("ftp", "865"),
            ("http", "868"),
            ("gridftp", "427"),
            ("UDT", "464"),
            ("bittorrent", "263"),
        ],
    },
];

/// Training errors of the study's regressions.
#[derive(Clone, Copy, Debug)]
pub struct Predictable {
    /// Of which cells.
    pub case: Case,
    /// Whose times.
    pub tool: &'static str,
    /// Linear, polynomial, nearest neighbours; in percent.
    pub training: [f64; 3],
}

const fn predictable(case: Case, tool: &'static str, training: [f64; 3]) -> Predictable {
    Predictable { case, tool, training }
}

/// The predictability table of the study (its Table IV).
pub const PREDICTED: [Predictable; 8] = [
    predictable(Case::Near, "GridFTP", [4.0, 0.08, 21.0]),
    predictable(Case::Near, "FDT", [30.0, 27.0, 36.0]),
    predictable(Case::Near, "mdtmFTP", [13.0, 8.0, 16.0]),
    predictable(Case::Large, "GridFTP", [19.0, 16.0, 142.0]),
    predictable(Case::Large, "FDT", [60.0, 0.0, 113.0]),
    predictable(Case::Large, "XDD", [72.0, 13.0, 149.0]),
    predictable(Case::All, "GridFTP", [56.0, 14.0, 100.0]),
    predictable(Case::All, "FDT", [128.0, 88.0, 131.0]),
];

/// The features of the tools in the axes of the study's Table I, as far as the papers say; swath
/// has a column of its own.
pub const FEATURES: &str = "\
| | GridFTP | FDT | mdtmFTP | XDD | swath |
| --- | --- | --- | --- | --- | --- |
| direct I/O | yes | – | yes | – | yes, for large files, reading and writing (`--io`) |
| parallel file systems: threads, striping | – | – | threads for each device, pinned near it | – | many requests at a time (io_uring, or several threads); a file from several servers at once |
| network: several threads | – | – | yes | – | yes |
| network: several connections | yes | yes | yes | yes | yes; swath decides how many |
| many small files | concurrency and pipelining | streaming through a pool of buffers | one large virtual file | none | the files of a tree as one stream of blocks |
| architecture | client and server; third party | client and server | client and server; third party | client and server | client and server; third party; several sources; relays; swarms |
";
