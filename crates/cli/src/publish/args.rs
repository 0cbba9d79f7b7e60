//! The command line of `swath publish`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use url::Url;

use crate::units;

/// `swath publish`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
#[command(group(ArgGroup::new("trackers").multiple(true).args(["tracker", "served_at"])))]
pub struct Publish {
    /// File or folder to publish
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub path: PathBuf,
    /// Name of the dataset, and of the folder that clients make [default: the name of PATH]
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub name: Option<String>,
    /// Version of the dataset; names the files that are written
    #[arg(long, value_name = "V", value_hint = ValueHint::Other)]
    pub version: Option<String>,
    /// Address at which PATH can be fetched by HTTP (repeatable); of a folder, with '/' at the end
    #[arg(long, value_name = "URL", value_parser = mirror, value_hint = ValueHint::Url)]
    pub mirror: Vec<Url>,
    /// Address of a tracker (repeatable): http://HOST:PORT/announce or udp://HOST:PORT
    #[arg(long, value_name = "URL", value_parser = tracker, value_hint = ValueHint::Url)]
    pub tracker: Vec<Url>,
    /// Address at which 'swath serve --swarm' has the folder that holds PATH: adds it as mirror and tracker, and for the feeds if OUTDIR is below that folder
    #[arg(long, value_name = "URL", value_parser = folder_url, value_hint = ValueHint::Url)]
    pub served_at: Option<Url>,
    /// Mark the torrent as private: clients find peers only through its trackers
    #[arg(long, requires = "trackers")]
    pub private: bool,
    /// Write only these files (repeatable) [default: all]
    #[arg(long, value_name = "WHICH")]
    pub only: Vec<Which>,
    /// Torrent version: v1 for old clients, v2, or hybrid for both
    #[arg(long, value_name = "KIND", default_value = "hybrid")]
    pub torrent: TorrentKind,
    /// Length of the torrent's pieces: a power of two from 16KiB to 256MiB, or 'auto'
    #[arg(long, value_name = "auto|SIZE", default_value = "auto", value_parser = piece)]
    pub piece: Piece,
    /// List longer files as segments of this length in the torrent: a power of two from 1MiB; 'swath get' joins them
    #[arg(long, value_name = "SIZE", value_parser = segment, value_hint = ValueHint::Other)]
    pub segment: Option<u64>,
    /// Address of a folder that has the segments as files, for torrent clients (repeatable); with '/' at the end
    #[arg(long, value_name = "URL", value_parser = segment_folder, requires = "segment", value_hint = ValueHint::Url)]
    pub segment_mirror: Vec<Url>,
    /// Comment shown by torrent clients
    #[arg(long, value_name = "TEXT", value_hint = ValueHint::Other)]
    pub comment: Option<String>,
    /// Publish only files that match (repeatable), as 'swath cp --include'
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    pub include: Vec<String>,
    /// Leave out files that match (repeatable), as 'swath cp --exclude'
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    pub exclude: Vec<String>,
    /// Sign the index with this secret key of 'swath keys new' or 'minisign -G -W'
    #[arg(long, value_name = "KEY", value_hint = ValueHint::FilePath)]
    pub sign: Option<PathBuf>,
    /// Folder for the files that are written
    #[arg(short, long, value_name = "OUTDIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub output: PathBuf,
    /// Address at which OUTDIR can be fetched, for the links of its feeds; kept for the next time
    #[arg(long, value_name = "URL", value_parser = folder_url, value_hint = ValueHint::Url)]
    pub feed_url: Option<Url>,
    /// Replace an earlier publication with the same name and version, but other content
    #[arg(long, alias = "force")]
    pub replace: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the result as one line of JSON
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
}

/// A file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// NAME-V.torrent
    Torrent,
    /// NAME-V.meta4: mirrors, digests and pieces
    Metalink,
    /// NAME-V.index: the digest of every file
    Index,
}

/// A torrent version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TorrentKind {
    /// SHA-1 of pieces; every client reads it
    V1,
    /// A SHA-256 tree for each file
    V2,
    /// Both
    Hybrid,
}

/// The length of pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Chosen by the size of the dataset.
    Auto,
    /// This many bytes.
    Bytes(u64),
}

fn piece(text: &str) -> Result<Piece, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Piece::Auto);
    }
    let bytes = units::size(text)?;
    match bytes.is_power_of_two() && (PIECE_LEAST_BYTES..=PIECE_MOST_BYTES).contains(&bytes) {
        true => Ok(Piece::Bytes(bytes)),
        false => Err("a power of two from 16KiB to 256MiB is expected".to_owned()),
    }
}

fn segment(text: &str) -> Result<u64, String> {
    let bytes = units::size(text)?;
    match bytes.is_power_of_two() && bytes >= SEGMENT_LEAST_BYTES {
        true => Ok(bytes),
        false => Err("a power of two from 1MiB is expected, such as 1GiB".to_owned()),
    }
}

fn mirror(text: &str) -> Result<Url, String> {
    let url = swath_formats::mirror_url(text, None).map_err(|error| error.to_string())?;
    match url.username().is_empty() && url.password().is_none() {
        true => Ok(url),
        false => {
            Err("the published files would show its user name and password: leave them out".into())
        }
    }
}

fn folder_url(text: &str) -> Result<Url, String> {
    let mut url = mirror(text)?;
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

/// The addresses of segments are formed from it, which would lose a query.
fn segment_folder(text: &str) -> Result<Url, String> {
    let url = folder_url(text)?;
    match url.query().is_none() && url.fragment().is_none() {
        true => Ok(url),
        false => Err("the address of a folder is expected, without '?' and '#'".to_owned()),
    }
}

fn tracker(text: &str) -> Result<Url, String> {
    let url = swath_formats::torrent::tracker_url(text);
    url.ok_or_else(|| "http://HOST:PORT/announce or udp://HOST:PORT is expected".to_owned())
}

/// Pieces of torrents have at least the length of a block (BEP 52).
const PIECE_LEAST_BYTES: u64 = 16 << 10;
/// A torrent lists each segment with its name.
const SEGMENT_LEAST_BYTES: u64 = 1 << 20;
/// Longer ones serve nobody: a client passes a piece on only when it has all of it.
const PIECE_MOST_BYTES: u64 = 256 << 20;

const EXAMPLES: &str = "\
Examples:
  Write run7-2.torrent, run7-2.meta4 and run7-2.index for a folder that two web servers have:
    swath publish run7/ --version 2 --mirror https://a.example/run7/ --mirror https://b.example/data/run7/ \\
        --tracker http://tracker.example:6969/announce -o pub
  The same, with a signature of the index (run7-2.index.minisig):
    swath keys new -o institute.key
    swath publish run7/ --version 2 --sign institute.key -o pub
  For a folder that this machine serves and seeds itself:
    swath publish /data/run7 --version 2 --served-at http://a.example:8470/ -o /data/pub
    swath serve /data --anonymous --plain --swarm /data/pub
  A torrent of one file, for clients of any age:
    swath publish survey.h5 --only torrent --torrent v1
  A torrent that other clients fetch in files of 1 GiB, and swath as one file:
    swath publish survey.h5 --segment 1GiB";
