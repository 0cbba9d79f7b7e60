//! Torrent metafiles: the files of a torrent, their hashes, its trackers and web seeds.
//!
//! v1 (BEP 3), v2 and hybrid torrents (BEP 52) are one type, [`Metainfo`]. Its [`Info`] is what the
//! info-hashes cover; it also arrives alone, from peers (BEP 9). Everything that an `Info` holds was
//! checked: paths stay below their folder and are told apart, lengths and hashes fit each other, and
//! both parts of a hybrid torrent describe the same files. Optional facts outside it that cannot be
//! read are left out.
//!
//! All files lie in one virtual file, which is cut into pieces. Pad files (BEP 47) are not listed:
//! they are the gaps between files, and are zeros.

mod error;
mod layout;
mod odd_names;
mod read;
mod read_files;
mod read_info;
mod segments;
mod selection;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use swath_model::digest::sha256_tree::{self, LEAF_BYTES, MerkleHash};
use swath_model::path::SafePath;
use swath_model::pieces::Pieces;
use swath_model::{PieceMap, Range};
use url::Url;

use odd_names::OddNames;

use super::{InfoHash, InfoHashV1, InfoHashV2, Unused};
use crate::percent;

pub use error::{MetainfoError, NameError, PieceLayerError};
pub use layout::{Entry, Layout, What};
pub use selection::ContentPart;
pub use write::{Builder, NewFile};

/// The media type of metafiles.
pub const MEDIA_TYPE: &str = "application/x-bittorrent";

/// Which version of the protocol a torrent is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SHA-1 of pieces (BEP 3).
    V1,
    /// SHA-256 trees of files (BEP 52).
    V2,
    /// Both, for the peers of both.
    Hybrid,
}

impl Kind {
    /// Returns whether peers of v1 can use it.
    pub fn has_v1(self) -> bool {
        self != Kind::V2
    }

    /// Returns whether peers of v2 can use it.
    pub fn has_v2(self) -> bool {
        self != Kind::V1
    }
}

/// A whole metafile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metainfo {
    /// What the info-hashes cover.
    pub info: Info,
    /// Trackers, in tiers to be tried one after the other (BEP 12).
    pub trackers: Vec<Vec<Url>>,
    /// Mirrors of the listed files (BEP 19), `http` or `https`; see [`Info::web_seed_url`].
    pub web_seeds: Vec<Url>,
    /// Mirrors that have files whole although the torrent lists segments of them; see
    /// [`Info::whole_file_url`]. Other clients do not read them.
    pub whole_file_mirrors: Vec<Url>,
    /// A remark for users, as written: it may contain control characters.
    pub comment: Option<String>,
    /// The program that created it, as written.
    pub created_by: Option<String>,
    /// When it was created, in seconds since 1970.
    pub creation_date_s: Option<u64>,
    /// Torrents that may share files with this one (BEP 38), whether covered by the info-hash or
    /// not.
    pub similar: Vec<InfoHash>,
    /// Collections to which it belongs (BEP 38), as written; other torrents of them may share
    /// files.
    pub collections: Vec<String>,
    /// What the metafile says besides and nobody uses, such as trackers of other kinds.
    pub unused: Vec<Unused>,
    piece_layers: BTreeMap<MerkleHash, Arc<[MerkleHash]>>,
    /// `None` if all files are wanted.
    selection: Option<selection::Selection>,
}

/// The info dictionary: what all peers of a torrent agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    raw: Arc<[u8]>,
    kind: Kind,
    name: SafePath,
    /// Of what the torrent lists.
    is_single_file: bool,
    odd_names: OddNames,
    /// As the torrent lists them.
    files: Vec<File>,
    /// The files after joining, if there are segments.
    joined: Option<segments::Joined>,
    segment_bytes: Option<u64>,
    piece_bytes: u64,
    total_bytes: u64,
    pieces_v1: Option<Pieces>,
    is_private: bool,
    source: Option<String>,
    update_url: Option<Url>,
    similar: Vec<InfoHash>,
    collections: Vec<String>,
    hash_v1: Option<InfoHashV1>,
    hash_v2: Option<InfoHashV2>,
}

/// A file or a link of a torrent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path, below the folder [`Info::name`] unless the torrent is a single file.
    pub path: SafePath,
    /// Its length; 0 for a link.
    pub length_bytes: u64,
    /// Its number among all files that the torrent lists, padding too; that of links (BEP 53).
    pub number: u32,
    /// Its first byte in the virtual file; a multiple of the piece length in v2 and hybrid
    /// torrents, unless it is empty.
    pub offset: u64,
    /// The root of its tree (v2), `None` if it is empty.
    pub pieces_root: Option<MerkleHash>,
    /// Whether it is a program.
    pub is_executable: bool,
    /// Whether it is to be hidden.
    pub is_hidden: bool,
    /// The target of a symbolic link, below the same folder as `path` (BEP 47).
    pub symlink: Option<SafePath>,
}

/// A piece as v2 sees it: it never reaches into another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceV2 {
    /// The number of its file among the listed ones.
    pub file: usize,
    /// Its bytes in the virtual file.
    pub range: Range,
    /// Its hash in the file's tree.
    pub hash: MerkleHash,
    /// The bytes that the hash stands for, with what is filled up.
    subtree_bytes: u64,
}

impl PieceV2 {
    /// Returns whether these are the bytes of the piece.
    pub fn is_verified_by(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.range.len()
            && sha256_tree::piece_root(bytes, self.subtree_bytes) == self.hash
    }
}

impl Metainfo {
    /// Returns the metafile of an info dictionary that came alone, without piece layers.
    pub fn of(info: Info) -> Metainfo {
        Metainfo {
            similar: info.similar.clone(),
            collections: info.collections.clone(),
            info,
            trackers: Vec::new(),
            web_seeds: Vec::new(),
            whole_file_mirrors: Vec::new(),
            comment: None,
            created_by: None,
            creation_date_s: None,
            unused: Vec::new(),
            piece_layers: BTreeMap::new(),
            selection: None,
        }
    }

    /// Returns the piece layer of a file: the hashes of its pieces under its root. `None` while
    /// unknown, and for files that have none: those of a single piece.
    pub fn piece_layer(&self, file: &File) -> Option<&Arc<[MerkleHash]>> {
        self.piece_layers.get(&file.pieces_root?)
    }

    /// Returns whether all piece layers are known that v2 needs.
    pub fn has_piece_layers(&self) -> bool {
        self.info
            .files
            .iter()
            .all(|file| !self.info.needs_piece_layer(file) || self.piece_layer(file).is_some())
    }

    /// Returns the digests that prove the content: the v2 hashes if there are any and all piece layers
    /// are known, else the SHA-1 of v1. `None` if neither is known, and for content without bytes.
    pub fn proof(&self) -> Option<Pieces> {
        let map = Arc::new(self.piece_map());
        if self.info.kind.has_v2() && self.has_piece_layers() {
            let hash = |piece| self.piece_v2(piece).map_or([0; 32], |piece| piece.hash);
            let packed = (0..self.info.piece_count()).flat_map(hash).collect();
            return Pieces::of_trees(map, packed).ok();
        }
        self.info.pieces_v1.clone().map(|pieces| pieces.padded(map))
    }

    /// Adds the piece layer of listed file number `file`, which came from peers.
    ///
    /// # Errors
    /// [`MetainfoError::PieceLayer`] if it is not that of this file.
    pub fn add_piece_layer(
        &mut self,
        file: usize,
        layer: Arc<[MerkleHash]>,
    ) -> Result<(), MetainfoError> {
        let Some(file) = self.info.files.get(file) else { return Ok(()) };
        let root = self.info.check_piece_layer(file, &layer)?;
        if sha256_tree::root_of_layer(&layer, self.info.piece_bytes) != root {
            return Err(layer_error(file, PieceLayerError::Root));
        }
        self.piece_layers.insert(root, layer);
        Ok(())
    }

    /// Returns piece number `piece` with its v2 hash. `None` past the last, in a v1 torrent, and
    /// while the piece layer is unknown.
    pub fn piece_v2(&self, piece: u64) -> Option<PieceV2> {
        let info = &self.info;
        let begin = piece.checked_mul(info.piece_bytes)?;
        // The last file that begins at or before the piece, leaving out the empty ones.
        let behind = info.files.partition_point(|file| file.offset <= begin);
        let file = info.files[..behind].iter().rposition(|file| file.length_bytes > 0)?;
        let of = &info.files[file];
        let end = of.offset + of.length_bytes;
        if begin >= end {
            return None;
        }
        let range = Range::new(begin, end.min(begin + info.piece_bytes));
        let root = of.pieces_root?;
        if !info.needs_piece_layer(of) {
            let subtree_bytes = LEAF_BYTES << sha256_tree::root_height(of.length_bytes);
            return Some(PieceV2 { file, range, hash: root, subtree_bytes });
        }
        let number = (begin - of.offset) / info.piece_bytes;
        let hash = *self.piece_layer(of)?.get(usize::try_from(number).ok()?)?;
        Some(PieceV2 { file, range, hash, subtree_bytes: info.piece_bytes })
    }
}

impl Info {
    /// Returns the dictionary as it stands in the metafile: what info-hashes are computed of, and
    /// what peers send each other (BEP 9).
    pub fn raw(&self) -> &Arc<[u8]> {
        &self.raw
    }

    /// Returns for which versions it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its v1 info-hash, `None` for a v2 torrent.
    pub fn hash_v1(&self) -> Option<InfoHashV1> {
        self.hash_v1
    }

    /// Returns its v2 info-hash, `None` for a v1 torrent.
    pub fn hash_v2(&self) -> Option<InfoHashV2> {
        self.hash_v2
    }

    /// Returns the name of the file, or of the folder for the files; a single path component.
    pub fn name(&self) -> &SafePath {
        &self.name
    }

    /// Returns the length of every piece except the last.
    pub fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// Returns the length of the virtual file, with padding.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Returns the number of pieces.
    pub fn piece_count(&self) -> u64 {
        self.total_bytes.div_ceil(self.piece_bytes)
    }

    /// Returns the bytes of a piece in the virtual file, with padding; `None` past the last.
    pub fn piece_range(&self, piece: u64) -> Option<Range> {
        let begin = piece.checked_mul(self.piece_bytes)?;
        let end = begin.saturating_add(self.piece_bytes).min(self.total_bytes);
        (begin < end).then(|| Range::new(begin, end))
    }

    /// Returns the SHA-1 of all pieces, `None` for a v2 torrent.
    pub fn pieces_v1(&self) -> Option<&Pieces> {
        self.pieces_v1.as_ref()
    }

    /// Returns whether peers come from the trackers only (BEP 27).
    pub fn is_private(&self) -> bool {
        self.is_private
    }

    /// Returns the name by which a tracker gives its torrents info-hashes of their own, as written.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Returns where newer versions are announced (BEP 39).
    pub fn update_url(&self) -> Option<&Url> {
        self.update_url.as_ref()
    }

    /// Returns where the content of all files, which is without padding, lies in the pieces.
    pub fn piece_map(&self) -> PieceMap {
        let files = self.files.iter().map(|file| Range::of_len(file.offset, file.length_bytes));
        // What an `Info` holds was checked.
        PieceMap::new(self.piece_bytes, self.total_bytes, files).expect("files in order")
    }

    /// Returns the padding in the virtual file, in order.
    pub fn padding(&self) -> impl Iterator<Item = Range> {
        let begins = self.files.iter().map(|file| file.offset).chain([self.total_bytes]);
        let ends = self.files.iter().map(|file| file.offset + file.length_bytes);
        let gaps = [0].into_iter().chain(ends).zip(begins);
        gaps.filter(|(end, begin)| end < begin).map(|(end, begin)| Range::new(end, begin))
    }

    /// Returns the address of a listed file at a web seed (BEP 19): for a single file the seed's own
    /// address unless that ends with `/`, else one below it. `None` if that is not an address.
    pub fn web_seed_url(&self, seed: &Url, file: &File) -> Option<Url> {
        self.address(seed, file, self.is_single_file)
    }

    /// Returns the address of one of [`Info::files`] at a mirror that has it whole; it is formed as that
    /// at a web seed.
    pub fn whole_file_url(&self, mirror: &Url, file: &File) -> Option<Url> {
        self.address(mirror, file, self.is_single_file())
    }

    fn address(&self, seed: &Url, file: &File, is_single_file: bool) -> Option<Url> {
        let mut address = seed.to_string();
        if is_single_file && !address.ends_with('/') {
            return Some(seed.clone());
        }
        if !address.ends_with('/') {
            address.push('/');
        }
        address += &percent::encode(&self.odd_names.bytes_of(self.name.as_str()));
        if !is_single_file {
            address.push('/');
            address += &percent::encode(&self.odd_names.bytes_of(file.path.as_str()));
        }
        Url::parse(&address).ok()
    }

    /// Returns how many different names are not UTF-8, and have codes such as `%DF` for some bytes.
    pub fn odd_name_count(&self) -> usize {
        self.odd_names.count()
    }

    /// Returns whether a file has several pieces under its root.
    pub fn needs_piece_layer(&self, file: &File) -> bool {
        self.kind.has_v2() && file.length_bytes > self.piece_bytes
    }

    /// Checks the length of a layer, and returns the root that it must have.
    fn check_piece_layer(
        &self,
        file: &File,
        layer: &[MerkleHash],
    ) -> Result<MerkleHash, MetainfoError> {
        let expected = file.length_bytes.div_ceil(self.piece_bytes);
        let root = file.pieces_root.filter(|_| self.needs_piece_layer(file));
        match root {
            Some(root) if layer.len() as u64 == expected => Ok(root),
            _ => Err(layer_error(file, PieceLayerError::Length)),
        }
    }
}

fn layer_error(file: &File, why: PieceLayerError) -> MetainfoError {
    MetainfoError::PieceLayer { path: file.path.to_string(), why }
}

fn is_piece_length(bytes: u64, is_v2: bool) -> bool {
    let is_allowed = !is_v2 || (bytes.is_power_of_two() && bytes >= LEAF_BYTES);
    is_allowed && (1..=PIECE_BYTES_MAX).contains(&bytes)
}

/// Enough for some 400,000 files in a hybrid torrent, which needs about 250 bytes for each; real
/// metafiles stay below a few MB. Reading needs a small multiple of it.
pub const METAFILE_BYTES_MAX: usize = 100_000_000;
/// A piece is verified as a whole. libtorrent accepts less.
pub const PIECE_BYTES_MAX: u64 = 1 << 30;
/// A peer keeps a bit for each piece of each of its peers: 2 MiB then.
pub const PIECES_MAX: u64 = 1 << 24;
/// An exbibyte: sums of offsets never overflow below it.
pub const TOTAL_BYTES_MAX: u64 = 1 << 60;
