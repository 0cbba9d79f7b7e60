//! Finds the torrents of the command line, and their data.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use swath_formats::Network;
use swath_formats::torrent::metainfo::METAFILE_BYTES_MAX;
use swath_formats::torrent::{InfoHashV1, InfoHashV2, Metainfo};
use swath_swarm::{OpenFiles, TorrentFiles};
use swath_tracker::read_networks;

use crate::exit::chain;
use crate::failure::Failure;
use crate::serve::args::NetworkOrFile;

/// A torrent and its data.
pub struct Found {
    /// The torrent.
    pub metainfo: Arc<Metainfo>,
    /// Its files.
    pub files: Arc<TorrentFiles>,
    /// Its metafile.
    path: PathBuf,
}

/// Finds torrents, each of them once, and their data.
pub struct Finder {
    /// Folders with data; without any, it lies beside the torrents.
    data: Vec<PathBuf>,
    open: Arc<OpenFiles>,
    known: HashSet<(Option<InfoHashV1>, Option<InfoHashV2>)>,
}

impl Finder {
    /// One that looks for data in these folders.
    pub fn new(data: Vec<PathBuf>) -> Finder {
        Finder { data, open: Arc::new(OpenFiles::new(OPEN_MAX)), known: HashSet::new() }
    }

    /// Reads the torrents at these paths that it has not found before. A folder stands for all torrents
    /// in it.
    pub fn find(&mut self, paths: &[PathBuf]) -> Result<Vec<Found>, Failure> {
        let mut all = Vec::new();
        for path in paths {
            for path in metafiles(path)? {
                let metainfo = read(&path)?;
                let hashes = (metainfo.info.hash_v1(), metainfo.info.hash_v2());
                if !self.known.contains(&hashes) {
                    all.push(self.with_data(Arc::new(metainfo), path)?);
                    self.known.insert(hashes);
                }
            }
        }
        Ok(all)
    }

    /// Looks again for the data of a torrent.
    pub fn again(&self, found: &Found) -> Result<Found, Failure> {
        self.with_data(Arc::clone(&found.metainfo), found.path.clone())
    }

    fn with_data(&self, metainfo: Arc<Metainfo>, path: PathBuf) -> Result<Found, Failure> {
        let data = self.data_of(&metainfo, &path);
        let files = TorrentFiles::find(&metainfo.info, data, Arc::clone(&self.open));
        let files = files.map_err(|error| {
            Failure::input(format!("cannot read {}: {}", data.display(), chain(&error)))
                .hint("--data DIR names the folder with the data")
        })?;
        Ok(Found { metainfo, files: Arc::new(files), path })
    }

    /// Returns where the data of a torrent is, or should be.
    fn data_of<'a>(&'a self, metainfo: &Metainfo, path: &'a Path) -> &'a Path {
        let name = metainfo.info.name().as_path();
        let has_it = |folder: &&PathBuf| folder.join(name).exists();
        let named = self.data.iter().find(has_it).or(self.data.first());
        let own = path.parent().filter(|folder| *folder != Path::new(""));
        named.map(PathBuf::as_path).or(own).unwrap_or(Path::new("."))
    }
}

/// Returns a metafile, or all of a folder.
pub fn metafiles(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable =
        |error: io::Error| Failure::input(format!("cannot read {}: {error}", path.display()));
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "torrent") {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(Failure::input(format!("{} has no .torrent file", path.display())));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Metainfo, Failure> {
    let failed = |what: String| Failure::input(format!("cannot read {}: {what}", path.display()));
    let bytes = limited(path, METAFILE_BYTES_MAX).map_err(|error| failed(error.to_string()))?;
    let metainfo = Metainfo::read(&bytes).map_err(|error| failed(chain(&error)))?;
    match metainfo.has_piece_layers() {
        true => Ok(metainfo),
        false => Err(failed("it lacks piece layers".to_owned())),
    }
}

fn limited(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(max as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > max {
        true => Err(io::Error::other(format!("longer than {max} bytes"))),
        false => Ok(bytes),
    }
}

/// Returns the networks of `--allow`.
pub fn networks(allowed: &[NetworkOrFile]) -> Result<Vec<Network>, Failure> {
    let mut networks = Vec::new();
    for allowed in allowed {
        let path = match allowed {
            NetworkOrFile::Network(network) => {
                networks.push(*network);
                continue;
            }
            NetworkOrFile::File(path) => path,
        };
        let failed = |what: String| {
            Failure::input(format!("cannot read networks from {}: {what}", path.display()))
        };
        let bytes = limited(path, LIST_BYTES_MAX).map_err(|error| failed(error.to_string()))?;
        let read = read_networks(&String::from_utf8_lossy(&bytes));
        let read = read.map_err(|error| failed(error.to_string()))?;
        // An empty list would let everybody in.
        if read.is_empty() {
            return Err(failed("it has no network".to_owned()));
        }
        networks.extend(read);
    }
    Ok(networks)
}

/// Files of all torrents that are open at a time.
const OPEN_MAX: usize = 256;
/// A list of all institutes of the world is shorter.
const LIST_BYTES_MAX: usize = 1 << 20;
