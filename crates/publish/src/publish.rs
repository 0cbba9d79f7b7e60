//! Makes the files of a publication: torrent, Metalink, index; and adds it to the catalogue.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use swath_formats::metalink::{self, Metalink};
use swath_formats::minisign::{KeyError, SecretKey};
use swath_formats::percent;
use swath_formats::torrent::metainfo::{Builder, Kind, Layout, NameError, NewFile, What};
use swath_formats::torrent::{Magnet, Metainfo, MetainfoError, piece_size};
use swath_model::digest::{Algorithm, Hasher, sha256_tree};
use swath_model::path::{PathError, SafePath, visible};
use swath_model::pieces::Pieces;
use url::Url;

use crate::catalogue::{self, Catalogue, CatalogueError, Version, WrittenFile};
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
    /// The torrent lists longer files as segments of this length, a multiple of the piece length.
    pub segment_bytes: Option<u64>,
    /// Addresses of folders that have the segments as files, with `/` at the end.
    pub segment_mirrors: Vec<Url>,
    /// A remark for users of torrent clients.
    pub comment: Option<String>,
    /// The program that publishes.
    pub created_by: Option<String>,
    /// The time, in seconds since 1970.
    pub published: u64,
    /// The key that signs the index.
    pub key: Option<Arc<SecretKey>>,
    /// The address of the folder with the written files, for the feeds; `None`: as it was.
    pub address: Option<Url>,
    /// Whether an earlier publication of the same name and version, but of other content, is
    /// replaced.
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
    /// NAME-VERSION.index.minisig, the signature of the index; not chosen, but made with a key.
    Signature,
}

impl Output {
    /// All that can be chosen.
    pub const ALL: [Output; 3] = [Output::Torrent, Output::Metalink, Output::Index];

    fn extension(self) -> &'static str {
        match self {
            Output::Torrent => "torrent",
            Output::Metalink => "meta4",
            Output::Index => "index",
            Output::Signature => "index.minisig",
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
    /// Paths cannot be published.
    #[error("{}", listed(paths, *count))]
    Paths {
        /// The first of them.
        paths: Vec<UnusablePath>,
        /// How many they are.
        count: usize,
    },
    /// The dataset cannot be a torrent.
    #[error("no torrent can be made")]
    Torrent(#[from] MetainfoError),
    /// A file could not be hashed.
    #[error(transparent)]
    Hash(#[from] HashError),
    /// The index cannot be signed.
    #[error("cannot sign the index")]
    Sign(#[from] KeyError),
    /// A file of this name exists that is not in the catalogue.
    #[error("{0} exists")]
    Exists(PathBuf),
    /// This version of the dataset was published, with other content.
    #[error("{title} was published with other content")]
    Taken {
        /// The name and the version.
        title: String,
    },
    /// The catalogue of the folder cannot be used.
    #[error("cannot use the catalogue of {folder}")]
    Catalogue {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        #[source]
        error: CatalogueError,
    },
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

/// A path that cannot be published: torrents and Metalinks need names that are text and safe anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusablePath {
    /// The path, as it can be shown.
    pub path: String,
    /// Why not.
    pub why: NameError,
}

impl PublishError {
    fn of_path(path: &SafePath, why: PathError) -> PublishError {
        let paths = vec![UnusablePath { path: path.to_string(), why: why.into() }];
        PublishError::Paths { paths, count: 1 }
    }
}

/// Returns what is said of unusable paths, all in one line.
fn listed(paths: &[UnusablePath], count: usize) -> String {
    let all: Vec<String> =
        paths.iter().map(|UnusablePath { path, why }| format!("{path} ({why})")).collect();
    let all = all.join(", ");
    match count - paths.len().min(count) {
        0 => format!("cannot be published: {all}"),
        more => format!("cannot be published: {all} and {more} more"),
    }
}

impl Publication {
    /// Hashes `content`, writes the files into `folder`, which is made if it is missing, and adds the
    /// version to its catalogue and feeds. Each file gets its name when it is complete. The same
    /// content may be published again, with other mirrors for example.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn make(
        &self,
        content: &Content,
        folder: &Path,
        progress: &Progress,
    ) -> Result<Published, PublishError> {
        let known = self.catalogue(folder)?;
        let before = known.as_ref().and_then(|known| self.piece_bytes_before(known, folder));
        let mut builder = self.builder(content, before)?;
        // Hashing takes long: what is known to be refused is refused before.
        let totals = (content.files.len() as u64, content.bytes());
        self.check_catalogue(&known, folder, |old| (old.count, old.bytes) == totals)?;
        let layout = self.hashed_layout(&builder)?;
        let hashes = hash(content, &places(&layout, &builder), &self.wanted(&builder), progress)?;

        let failed = |path: &Path, error| PublishError::Write { path: path.to_owned(), error };
        fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        let _lock = catalogue::lock(folder).map_err(|error| failed(folder, error))?;
        let known = self.catalogue(folder)?;
        let identity = identity(content, &hashes);
        let old = self.check_catalogue(&known, folder, |old| old.content == identity)?;
        // The same content keeps its time: so its index and the signature of that stay the same.
        let same = old.filter(|old| old.content == identity);
        let published = same.map_or(self.published, |same| same.published);
        builder.creation_date_s = Some(published);

        let mut warnings = Vec::new();
        let torrent = match self.outputs.contains(&Output::Torrent) {
            true => Some(self.torrent(&builder, &hashes, &mut warnings)?),
            false => None,
        };
        let index = Index { published, ..self.index(content, torrent.as_ref(), &hashes) };
        let signature = self.signature(&index)?;
        let index = index.write();
        let mut files = Vec::new();
        for output in self.outputs() {
            let bytes = match output {
                Output::Torrent => torrent.as_ref().map(Metainfo::write).unwrap_or_default(),
                Output::Metalink => metalink::to_string(&self.metalink(&builder, &hashes)?).into(),
                Output::Index => index.clone().into(),
                Output::Signature => signature.clone().into(),
            };
            files.push((output, self.file_name(output), bytes));
        }
        let (kept, surplus) = self.old_files(folder, old, same.is_some(), &files);
        if same.is_some() {
            warnings.extend(self.other_torrent(folder, torrent.as_ref()));
            let signature = self.file_name(Output::Signature);
            if surplus.contains(&signature) && folder.join(&signature).exists() {
                warnings.push(format!(
                    "removed {}: it signed the index as it was before; --sign KEY signs the new one",
                    folder.join(&signature).display()
                ));
            }
        }
        let mut written = Vec::new();
        for (output, name, bytes) in &files {
            let path = folder.join(name);
            catalogue::write(&path, bytes).map_err(|error| failed(&path, error))?;
            written.push((*output, path, bytes.len() as u64));
        }
        let mut known = known.unwrap_or_default();
        if let Some(address) = &self.address {
            known.address = Some(address.to_string());
        }
        let new = files.into_iter().map(|(_, name, bytes)| {
            let bytes = bytes.len() as u64;
            WrittenFile { name, bytes }
        });
        known.insert(Version {
            name: self.name.clone(),
            version: self.version.clone(),
            published,
            content: identity,
            count: totals.0,
            bytes: totals.1,
            files: new.chain(kept).collect(),
        });
        known.write(folder).map_err(|(path, error)| failed(&path, error))?;
        for path in surplus.iter().map(|name| folder.join(name)) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&path, error));
                }
                _ => {}
            }
        }
        let magnet = torrent.as_ref().map(magnet);
        Ok(Published { written, torrent, magnet, warnings })
    }

    /// Divides the files of the version as it was published before, without those that are written
    /// now, into those that still hold and the names of those that do not: all if the content is
    /// another, and the signature of another index.
    fn old_files(
        &self,
        folder: &Path,
        old: Option<&Version>,
        is_same_content: bool,
        new: &[(Output, String, Vec<u8>)],
    ) -> (Vec<WrittenFile>, Vec<String>) {
        let is_written = |name: &str| new.iter().any(|(_, written, _)| written == name);
        let index = new.iter().find(|(output, ..)| *output == Output::Index);
        let is_other_index = index.is_some_and(|(_, name, bytes)| {
            fs::read(folder.join(name)).ok().as_ref() != Some(bytes)
        });
        let signature = self.file_name(Output::Signature);
        let files = old.map(|old| old.files.clone()).unwrap_or_default();
        let (kept, surplus): (Vec<_>, Vec<_>) = files
            .into_iter()
            .filter(|file| !is_written(&file.name))
            .partition(|file| is_same_content && !(is_other_index && file.name == signature));
        let mut surplus: Vec<String> = surplus.into_iter().map(|file| file.name).collect();
        // It may lie there without being in the catalogue.
        if is_other_index && !is_written(&signature) && !surplus.contains(&signature) {
            surplus.push(signature);
        }
        (kept, surplus)
    }

    /// Returns what the publisher should know if the torrent takes the place of another one of the same
    /// content.
    fn other_torrent(&self, folder: &Path, new: Option<&Metainfo>) -> Option<String> {
        let path = folder.join(self.file_name(Output::Torrent));
        let old = Metainfo::read(&fs::read(&path).ok()?).ok()?.info;
        let new = &new?.info;
        let is_other = (old.hash_v1(), old.hash_v2()) != (new.hash_v1(), new.hash_v2());
        let hash = old.hash_v1().map(|hash| hash.to_string());
        let hash = hash.or(old.hash_v2().map(|hash| hash.to_string())).unwrap_or_default();
        is_other.then(|| {
            format!(
                "{} replaces a torrent with another info-hash, {hash}: its peers stay in a swarm of their own",
                path.display()
            )
        })
    }

    /// Leaves the files of the catalogue in `folder` out of `content`, which was listed from `path`:
    /// they may lie below the published folder.
    ///
    /// # Errors
    /// [`PublishError::Catalogue`].
    pub fn leave_out_own_files(
        &self,
        content: &mut Content,
        path: &Path,
        folder: &Path,
    ) -> Result<(), PublishError> {
        let whole = |path: &Path| fs::canonicalize(path).ok();
        let below = whole(folder).zip(whole(path));
        let below =
            below.and_then(|(folder, path)| Some(folder.strip_prefix(path).ok()?.to_owned()));
        let Some(below) = below.filter(|_| !content.is_single()) else { return Ok(()) };
        let known = self.catalogue(folder)?.unwrap_or_default();
        let planned = self.outputs().map(|output| self.file_name(output));
        let names: HashSet<Vec<u8>> = planned
            .chain(known.file_names().map(str::to_owned))
            .flat_map(|name| [format!("{name}{}", catalogue::TEMPORARY), name])
            .map(|name| below.join(name).into_os_string().into_encoded_bytes())
            .collect();
        content.files.retain(|file| !names.contains(&file.path));
        Ok(())
    }

    /// Returns the piece length of the dataset's version that was published last.
    fn piece_bytes_before(&self, known: &Catalogue, folder: &Path) -> Option<u64> {
        let last = known.versions.iter().rev().find(|version| version.name == self.name)?;
        let torrent = Output::Torrent.extension();
        let file = last.files.iter().find(|file| file.name.ends_with(torrent))?;
        let torrent = fs::read(folder.join(&file.name)).ok()?;
        Some(Metainfo::read(&torrent).ok()?.info.piece_bytes())
    }

    fn catalogue(&self, folder: &Path) -> Result<Option<Catalogue>, PublishError> {
        Catalogue::read(folder)
            .map_err(|error| PublishError::Catalogue { folder: folder.to_owned(), error })
    }

    /// Returns this version as it was published before. Refuses if it had other content, or if other
    /// files have the names of the new ones.
    fn check_catalogue<'a>(
        &self,
        known: &'a Option<Catalogue>,
        folder: &Path,
        is_same: impl Fn(&Version) -> bool,
    ) -> Result<Option<&'a Version>, PublishError> {
        let old = known.as_ref().and_then(|it| it.version(&self.name, self.version.as_deref()));
        if self.replace {
            return Ok(old);
        }
        if let Some(old) = old {
            return if is_same(old) {
                Ok(Some(old))
            } else {
                Err(PublishError::Taken { title: self.title() })
            };
        }
        let own = known.is_none().then_some(catalogue::OWN_FILES).into_iter().flatten();
        let names = self.outputs().map(|output| self.file_name(output));
        let mut paths = names.chain(own.map(str::to_owned)).map(|name| folder.join(name));
        match paths.find(|path| path.exists()) {
            Some(path) => Err(PublishError::Exists(path)),
            None => Ok(None),
        }
    }

    /// Returns the name and the version.
    fn title(&self) -> String {
        let version = self.version.as_ref().map(|version| format!(" version {version}"));
        visible(&(self.name.clone() + &version.unwrap_or_default()))
    }

    /// Returns the files to write. The signature follows its index.
    fn outputs(&self) -> impl Iterator<Item = Output> {
        let is_signed = self.key.is_some() && self.outputs.contains(&Output::Index);
        self.outputs.iter().copied().chain(is_signed.then_some(Output::Signature))
    }

    fn signature(&self, index: &Index) -> Result<String, PublishError> {
        let Some(key) = &self.key else { return Ok(String::new()) };
        let file = visible(&self.file_name(Output::Index));
        let mut comment = format!("timestamp:{}\tfile:{file}", index.published);
        let version = self.version.as_ref().map(|version| ("version", version));
        for (what, text) in [("name", &self.name)].into_iter().chain(version) {
            comment += &format!("\t{what}:{}", percent::encode(text.as_bytes()));
        }
        Ok(key.sign(index.write().as_bytes(), &(comment + "\thashed"))?.write())
    }

    fn file_name(&self, output: Output) -> String {
        let version = self.version.as_ref().map(|version| format!("-{version}"));
        format!("{}{}.{}", self.name, version.unwrap_or_default(), output.extension())
    }

    /// Returns the torrent as far as it is known before hashing. `before` is the piece length of the
    /// version before.
    fn builder(&self, content: &Content, before: Option<u64>) -> Result<Builder, PublishError> {
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
        let (mut files, mut unusable, mut count) = (Vec::new(), Vec::new(), 0);
        for file in &content.files {
            let path = str::from_utf8(&file.path).map_err(|_| NameError::NotText);
            let path = path.and_then(|path| SafePath::new(path).map_err(NameError::Path));
            match path {
                Ok(path) => files.push(NewFile::new(path, file.bytes)),
                Err(why) => {
                    count += 1;
                    let path = crate::content::shown(&file.path);
                    unusable.extend((count <= UNUSABLE_MAX).then_some(UnusablePath { path, why }));
                }
            }
        }
        if count > 0 {
            return Err(PublishError::Paths { paths: unusable, count });
        }
        let is_single_file = content.is_single();
        let name = if is_single_file { files[0].path.clone() } else { name };
        let automatic = piece_size::automatic(content.bytes(), files.len() as u64)
            .min(self.segment_bytes.unwrap_or(u64::MAX));
        // Versions share pieces only if these have one length.
        let near = automatic / NEAR_TIMES..=automatic.saturating_mul(NEAR_TIMES);
        let before = before.filter(|before| {
            near.contains(before) && self.segment_bytes.is_none_or(|it| it.is_multiple_of(*before))
        });
        let piece_bytes = self.piece_bytes.or(before).unwrap_or(automatic);
        Ok(Builder {
            is_single_file,
            files,
            trackers: self.trackers.iter().map(|tracker| vec![tracker.clone()]).collect(),
            comment: self.comment.clone(),
            created_by: self.created_by.clone(),
            creation_date_s: Some(self.published),
            is_private: self.is_private,
            segment_bytes: self.segment_bytes,
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
        let longest = builder.files.iter().map(|file| file.length_bytes).max().unwrap_or(0);
        let is_split = self.segment_bytes.is_some_and(|segment_bytes| longest > segment_bytes);
        if self.segment_bytes.is_some() && !is_split {
            let ignored = match self.segment_mirrors.is_empty() {
                true => "",
                false => ", and lists no mirror of segments",
            };
            warnings.push(format!(
                "no file is longer than a segment: the torrent has no segments{ignored}"
            ));
        }
        let mut listed = |mirrors: &[Url], is_single_file| {
            let mut seeds = Vec::new();
            for mirror in mirrors {
                match web_seed(mirror, &builder.name, is_single_file) {
                    Some(seed) => seeds.push(seed),
                    None => warnings.push(format!(
                        "the torrent does not list {mirror}: torrent clients look for a folder '{}' \
                         there (--name gives the dataset the name of the mirror's folder)",
                        builder.name
                    )),
                }
            }
            seeds
        };
        let seeds = listed(&self.mirrors, builder.is_single_file);
        match is_split {
            true => {
                builder.web_seeds = listed(&self.segment_mirrors, false);
                builder.whole_file_mirrors = seeds;
            }
            false => builder.web_seeds = seeds,
        }
        if let [only] = &builder.files[..]
            && self.kind == Kind::V2
            && !builder.is_single_file
            && !only.path.as_str().contains('/')
        {
            warnings.push(format!(
                "clients made of libtorrent (qBittorrent, Deluge) fetch '{}' without the folder '{}': a \
                 hybrid torrent avoids that",
                only.path, builder.name
            ));
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
            let name = name.map_err(|why| PublishError::of_path(&file.path, why))?;
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
    Places {
        piece_bytes: builder.piece_bytes,
        offsets,
        total_bytes: layout.total_bytes,
        segment_bytes: builder.segment_bytes.unwrap_or(u64::MAX),
    }
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
fn web_seed(mirror: &Url, name: &SafePath, is_single_file: bool) -> Option<Url> {
    if is_single_file {
        return Some(mirror.clone());
    }
    let mut names = mirror.path_segments()?.rev().skip_while(|name| name.is_empty());
    let is_there = percent::decode(names.next()?) == name.as_str().as_bytes();
    is_there.then(|| mirror.join("../").ok()).flatten()
}

/// Returns a digest of the paths and bytes of a dataset. Datasets that were hashed differently have
/// different ones, even if they are the same.
fn identity(content: &Content, hashes: &Hashes) -> String {
    let mut hasher = Hasher::new(Algorithm::Blake3);
    let mut kind = "pieces".to_owned();
    for (file, hashed) in content.files.iter().zip(&hashes.files) {
        hasher.update(&(file.path.len() as u64).to_le_bytes());
        hasher.update(&file.path);
        hasher.update(&file.bytes.to_le_bytes());
        if let Some(digest) = hashed.whole.last() {
            kind = digest.algorithm().to_string();
            hasher.update(digest.as_bytes());
        }
        if hashed.whole.is_empty() {
            hashed.v2_pieces.iter().for_each(|piece| hasher.update(piece));
        }
    }
    if kind == "pieces" {
        hasher.update(&hashes.v1_pieces);
    }
    format!("{kind}:{}", hasher.finish().to_hex())
}

/// Bytes of a SHA-1.
const SHA1_BYTES: usize = 20;
/// Most unusable paths in one error; more would not fit on a screen.
const UNUSABLE_MAX: usize = 50;
/// The piece length of the version before is kept if it is at most so many times too short or too long.
const NEAR_TIMES: u64 = 4;
