//! Makes the files of a publication: torrent, Metalink, index.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use swath_formats::metalink::{self, Metalink};
use swath_formats::percent;
use swath_formats::torrent::metainfo::{Builder, Kind, Layout, NewFile, What};
use swath_formats::torrent::{Magnet, Metainfo, MetainfoError, piece_size};
use swath_model::digest::{Algorithm, sha256_tree};
use swath_model::path::{PathError, SafePath, visible};
use swath_model::pieces::Pieces;
use url::Url;

use crate::content::Content;
use crate::hash::{FileHashes, HashError, Hashes, Places, Progress, Wanted, hash};
use crate::index::{Index, IndexFile};

/// What to publish, and how.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The name of the dataset. A folder has this name at its receivers.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
    /// Addresses of the file, or of the folder (with `/` at the end).
    pub mirrors: Vec<Url>,
    /// Addresses of trackers.
    pub trackers: Vec<Url>,
    /// Whether peers come only from these trackers (BEP 27).
    pub is_private: bool,
    /// Which files to write.
    pub outputs: Vec<Output>,
    /// For which versions of the protocol the torrent is.
    pub kind: Kind,
    /// Bytes of a piece; `None`: chosen by the size of the dataset.
    pub piece_bytes: Option<u64>,
    /// A remark for users of torrent clients.
    pub comment: Option<String>,
    /// The program that publishes.
    pub created_by: Option<String>,
    /// The time, in seconds since 1970.
    pub published: u64,
    /// Whether files of an earlier publication are replaced.
    pub replace: bool,
}

/// A file of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// NAME-VERSION.torrent.
    Torrent,
    /// NAME-VERSION.meta4.
    Metalink,
    /// NAME-VERSION.index.
    Index,
}

impl Output {
    /// All of them.
    pub const ALL: [Output; 3] = [Output::Torrent, Output::Metalink, Output::Index];

    fn extension(self) -> &'static str {
        match self {
            Output::Torrent => "torrent",
            Output::Metalink => "meta4",
            Output::Index => "index",
        }
    }
}

/// What was published.
#[derive(Debug)]
pub struct Published {
    /// The written files with their lengths.
    pub written: Vec<(Output, PathBuf, u64)>,
    /// The torrent, if one was made.
    pub torrent: Option<Metainfo>,
    /// Its magnet link.
    pub magnet: Option<Magnet>,
    /// What the publisher should know.
    pub warnings: Vec<String>,
}

/// Why nothing was published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// There are no files.
    #[error("there are no files to publish")]
    Empty,
    /// The name of the dataset cannot be the name of a file.
    #[error("'{name}' cannot name a dataset: {why}")]
    Name {
        /// The name.
        name: String,
        /// Why not.
        why: PathError,
    },
    /// A path cannot be published.
    #[error("{path} cannot be published: {why}")]
    Path {
        /// The path.
        path: String,
        /// Why not.
        why: PathError,
    },
    /// A path is not text, which torrents and Metalinks need.
    #[error("{0} cannot be published: its name is not UTF-8")]
    NotText(String),
    /// The dataset cannot be a torrent.
    #[error("no torrent can be made")]
    Torrent(#[from] MetainfoError),
    /// A file could not be hashed.
    #[error(transparent)]
    Hash(#[from] HashError),
    /// A file of this name and version exists.
    #[error("{0} exists")]
    Exists(PathBuf),
    /// A file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}

impl Publication {
    /// Hashes `content` and writes the files into `folder`, which is made if it is missing. Each file
    /// gets its name when it is complete.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn make(
        &self,
        content: &Content,
        folder: &Path,
        progress: &Progress,
    ) -> Result<Published, PublishError> {
        let builder = self.builder(content)?;
        let paths: Vec<_> = self
            .outputs
            .iter()
            .map(|&output| (output, folder.join(self.file_name(output))))
            .collect();
        let taken = paths.iter().find(|(_, path)| !self.replace && path.exists());
        if let Some((_, path)) = taken {
            return Err(PublishError::Exists(path.clone()));
        }
        let layout = self.hashed_layout(&builder)?;
        let hashes = hash(content, &places(&layout, &builder), &self.wanted(&builder), progress)?;

        let mut warnings = Vec::new();
        let makes_torrent = self.outputs.contains(&Output::Torrent);
        let torrent = match makes_torrent {
            true => Some(self.torrent(&builder, &hashes, &mut warnings)?),
            false => None,
        };
        fs::create_dir_all(folder)
            .map_err(|error| PublishError::Write { path: folder.to_owned(), error })?;
        let mut written = Vec::new();
        for (output, path) in paths {
            let bytes = match output {
                Output::Torrent => torrent.as_ref().map(Metainfo::write).unwrap_or_default(),
                Output::Metalink => metalink::to_string(&self.metalink(&builder, &hashes)?).into(),
                Output::Index => self.index(content, torrent.as_ref(), &hashes).write().into(),
            };
            write(&path, &bytes)
                .map_err(|error| PublishError::Write { path: path.clone(), error })?;
            written.push((output, path, bytes.len() as u64));
        }
        let magnet = torrent.as_ref().map(magnet);
        Ok(Published { written, torrent, magnet, warnings })
    }

    fn file_name(&self, output: Output) -> String {
        let version = self.version.as_ref().map(|version| format!("-{version}"));
        format!("{}{}.{}", self.name, version.unwrap_or_default(), output.extension())
    }

    /// Returns the torrent as far as it is known before hashing.
    fn builder(&self, content: &Content) -> Result<Builder, PublishError> {
        if content.files.is_empty() {
            return Err(PublishError::Empty);
        }
        let stem = self.file_name(Output::Torrent);
        let safe = |name: &str| match SafePath::new(name) {
            Ok(path) if path.parent().is_none() => Ok(path),
            Ok(_) => Err(PathError::Absolute),
            Err(why) => Err(why),
        };
        let named = |why| PublishError::Name { name: visible(&stem), why };
        safe(&stem).map_err(named)?;
        let name = safe(&self.name).map_err(named)?;
        let files = content.files.iter().map(|file| {
            let path = str::from_utf8(&file.path)
                .map_err(|_| PublishError::NotText(crate::content::shown(&file.path)))?;
            match SafePath::new(path) {
                Ok(path) => Ok(NewFile::new(path, file.bytes)),
                Err(why) => Err(PublishError::Path { path: visible(path), why }),
            }
        });
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let is_single_file = content.is_single();
        let name = if is_single_file { files[0].path.clone() } else { name };
        let automatic = piece_size::automatic(content.bytes(), files.len() as u64);
        let piece_bytes = self.piece_bytes.unwrap_or(automatic);
        Ok(Builder {
            is_single_file,
            files,
            trackers: self.trackers.iter().map(|tracker| vec![tracker.clone()]).collect(),
            comment: self.comment.clone(),
            created_by: self.created_by.clone(),
            creation_date_s: Some(self.published),
            is_private: self.is_private,
            ..Builder::new(self.kind, name, piece_bytes)
        })
    }

    /// Returns how the files are laid out for hashing. For the pieces of a Metalink each file begins
    /// at a piece, as in a hybrid torrent, even if the torrent has no such pieces.
    fn hashed_layout(&self, builder: &Builder) -> Result<Layout, MetainfoError> {
        let kind = match self.kind {
            Kind::V2 if self.outputs.contains(&Output::Metalink) => Kind::Hybrid,
            kind => kind,
        };
        Builder { kind, ..builder.clone() }.layout()
    }

    fn wanted(&self, builder: &Builder) -> Wanted {
        let makes = |output| self.outputs.contains(&output);
        let whole = [(Output::Metalink, Algorithm::Sha256), (Output::Index, Algorithm::Blake3)];
        Wanted {
            v1: makes(Output::Torrent) && self.kind.has_v1()
                || makes(Output::Metalink) && self.has_file_pieces(builder),
            v2: makes(Output::Torrent) && self.kind.has_v2(),
            ends: makes(Output::Metalink) && self.has_file_pieces(builder),
            whole: whole
                .into_iter()
                .filter(|&(output, _)| makes(output))
                .map(|(_, it)| it)
                .collect(),
        }
    }

    /// Returns whether the pieces of the virtual file are pieces of files.
    fn has_file_pieces(&self, builder: &Builder) -> bool {
        self.kind.has_v2() || builder.is_single_file
    }

    fn torrent(
        &self,
        builder: &Builder,
        hashes: &Hashes,
        warnings: &mut Vec<String>,
    ) -> Result<Metainfo, PublishError> {
        let mut builder = builder.clone();
        builder.pieces_v1 = hashes.v1_pieces.clone();
        for (file, hashes) in builder.files.iter_mut().zip(&hashes.files) {
            file.hashes = match &hashes.v2_pieces[..] {
                [] => None,
                [root] => Some(sha256_tree::FileHashes { root: *root, piece_layer: Vec::new() }),
                layer => Some(sha256_tree::FileHashes {
                    root: sha256_tree::root_of_layer(layer, builder.piece_bytes),
                    piece_layer: layer.to_vec(),
                }),
            };
        }
        for mirror in &self.mirrors {
            match web_seed(mirror, &builder) {
                Some(seed) => builder.web_seeds.push(seed),
                None => warnings.push(format!(
                    "the torrent does not list {mirror}: torrent clients look for a folder '{}' there \
                     (--name gives the dataset the name of the mirror's folder)",
                    builder.name
                )),
            }
        }
        Ok(builder.build()?)
    }

    fn metalink(&self, builder: &Builder, hashes: &Hashes) -> Result<Metalink, PublishError> {
        let mut pieces = hashes.v1_pieces.as_slice();
        let has_pieces = self.has_file_pieces(builder);
        let files = builder.files.iter().zip(&hashes.files).map(|(file, hashed)| {
            let name = match builder.is_single_file {
                true => Ok(file.path.clone()),
                false => SafePath::new(&format!("{}/{}", builder.name, file.path)),
            };
            let name =
                name.map_err(|why| PublishError::Path { path: file.path.to_string(), why })?;
            let count = file.length_bytes.div_ceil(builder.piece_bytes) as usize;
            let own = pieces.split_off(..if has_pieces { count * SHA1_BYTES } else { 0 });
            let mirrors = self.mirrors.iter().filter_map(|mirror| {
                let address = match mirror.path().ends_with('/') {
                    true => mirror.join(&percent::encode(file.path.as_str().as_bytes())).ok()?,
                    false => mirror.clone(),
                };
                Some(metalink::Mirror::new(address))
            });
            Ok(metalink::File {
                size_bytes: Some(file.length_bytes),
                digests: hashed.whole.first().into_iter().copied().collect(),
                pieces: own.filter(|_| count > 1).and_then(|own| {
                    let pieces = own_pieces(own, hashed);
                    Pieces::new(Algorithm::Sha1, builder.piece_bytes, pieces).ok()
                }),
                mirrors: mirrors.collect(),
                ..metalink::File::new(name)
            })
        });
        let files = files.collect::<Result<_, PublishError>>()?;
        let header = metalink::Header { generator: self.created_by.clone(), origin: None };
        Ok(Metalink { header, files, refused: Vec::new() })
    }

    fn index(&self, content: &Content, torrent: Option<&Metainfo>, hashes: &Hashes) -> Index {
        let files = content.files.iter().zip(&hashes.files).filter_map(|(file, hashed)| {
            let digest = *hashed.whole.last()?;
            Some(IndexFile { path: file.path.clone(), bytes: file.bytes, digest })
        });
        let info = torrent.map(|torrent| &torrent.info);
        Index {
            name: self.name.clone(),
            version: self.version.clone(),
            published: self.published,
            btih: info.and_then(|info| info.hash_v1()).map(|hash| hash.to_string()),
            btmh: info.and_then(|info| info.hash_v2()).map(|hash| hash.to_string()),
            files: files.collect(),
        }
    }
}

fn magnet(torrent: &Metainfo) -> Magnet {
    let info = &torrent.info;
    Magnet {
        hash_v1: info.hash_v1(),
        hash_v2: info.hash_v2(),
        name: Some(info.name().to_string()),
        trackers: torrent.trackers.iter().flatten().cloned().collect(),
        web_seeds: torrent.web_seeds.clone(),
        ..Magnet::default()
    }
}

fn places(layout: &Layout, builder: &Builder) -> Places {
    let mut offsets = vec![0; builder.files.len()];
    for entry in &layout.entries {
        if let What::File(number) = entry.what {
            offsets[number] = entry.offset;
        }
    }
    Places { piece_bytes: builder.piece_bytes, offsets, total_bytes: layout.total_bytes }
}

/// Returns the pieces of a file: as those of the virtual file, but the last one without padding.
fn own_pieces(virtual_pieces: &[u8], hashed: &FileHashes) -> Vec<u8> {
    let mut pieces = virtual_pieces.to_vec();
    if let (Some(end), Some(at)) = (&hashed.end, pieces.len().checked_sub(SHA1_BYTES)) {
        pieces[at..].copy_from_slice(end);
    }
    pieces
}

/// Returns the address from which torrent clients find the files (BEP 19): they append the name of
/// the dataset and the path. `None` if that leads elsewhere.
fn web_seed(mirror: &Url, builder: &Builder) -> Option<Url> {
    if builder.is_single_file {
        return Some(mirror.clone());
    }
    let mut names = mirror.path_segments()?.rev().skip_while(|name| name.is_empty());
    let is_there = percent::decode(names.next()?) == builder.name.as_str().as_bytes();
    is_there.then(|| mirror.join("../").ok()).flatten()
}

/// Writes a file under a temporary name, then gives it its own.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut file = File::create(&temporary)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let named = written.and_then(|()| fs::rename(&temporary, path));
    if named.is_err() {
        // The error to report is the first one.
        let _ = fs::remove_file(&temporary);
    }
    named
}

/// Bytes of a SHA-1.
const SHA1_BYTES: usize = 20;
