//! Writes metafiles: canonical, and the same bytes for the same content.
//!
//! What is written was read: [`Builder::build`] passes the info dictionary to the reader, so that no
//! torrent leaves that would be refused here.

use std::collections::HashSet;
use std::sync::Arc;

use swath_model::digest::sha256_tree::FileHashes;
use swath_model::path::SafePath;
use url::Url;

use super::read::check_size;
use super::read_info::not;
use super::{Info, Kind, Layout, Metainfo, MetainfoError, What};
use crate::torrent::InfoHash;
use crate::torrent::bencode::Writer;

/// What a new torrent is made of. See [`Layout`] for the order in which v1 pieces are hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Builder {
    /// For which versions it is.
    pub kind: Kind,
    /// The name of the folder, or of the single file.
    pub name: SafePath,
    /// Whether it is a file without a folder; `files` then has one entry, whose path is `name`.
    pub is_single_file: bool,
    /// The piece length.
    pub piece_bytes: u64,
    /// The files, in any order for v2 and hybrid torrents.
    pub files: Vec<NewFile>,
    /// The SHA-1 of all pieces of the virtual file with its padding, one after the other; not used
    /// for v2.
    pub pieces_v1: Vec<u8>,
    /// Trackers, in tiers.
    pub trackers: Vec<Vec<Url>>,
    /// Mirrors of the listed files (BEP 19).
    pub web_seeds: Vec<Url>,
    /// The length from which on a file is split into segments of it, a multiple of the piece length.
    pub segment_bytes: Option<u64>,
    /// Mirrors that have the files whole, for a torrent that lists segments.
    pub whole_file_mirrors: Vec<Url>,
    /// A remark for users.
    pub comment: Option<String>,
    /// The program that creates it.
    pub created_by: Option<String>,
    /// The time, in seconds since 1970.
    pub creation_date_s: Option<u64>,
    /// Whether peers may come from the trackers only (BEP 27).
    pub is_private: bool,
    /// A name that makes the info-hash that of one tracker.
    pub source: Option<String>,
    /// Where newer versions will be announced (BEP 39).
    pub update_url: Option<Url>,
    /// Torrents that may share files with this one (BEP 38).
    pub similar: Vec<InfoHash>,
    /// Collections to which it belongs (BEP 38).
    pub collections: Vec<String>,
}

/// A file of a new torrent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Its path below the folder.
    pub path: SafePath,
    /// Its length; 0 for a link.
    pub length_bytes: u64,
    /// Its root and piece layer; not used for v1 and for empty files. For a file that is split, the
    /// layer is that of its segments end to end, and the root is not used.
    pub hashes: Option<FileHashes>,
    /// Whether it is a program.
    pub is_executable: bool,
    /// The target of a symbolic link, below the same folder as `path`.
    pub symlink: Option<SafePath>,
}

impl NewFile {
    /// Returns an ordinary file without hashes.
    pub fn new(path: SafePath, length_bytes: u64) -> NewFile {
        NewFile { path, length_bytes, hashes: None, is_executable: false, symlink: None }
    }
}

impl Builder {
    /// Returns a torrent of no files, with nothing that is optional.
    pub fn new(kind: Kind, name: SafePath, piece_bytes: u64) -> Builder {
        Builder {
            kind,
            name,
            is_single_file: false,
            piece_bytes,
            files: Vec::new(),
            pieces_v1: Vec::new(),
            trackers: Vec::new(),
            web_seeds: Vec::new(),
            segment_bytes: None,
            whole_file_mirrors: Vec::new(),
            comment: None,
            created_by: None,
            creation_date_s: None,
            is_private: false,
            source: None,
            update_url: None,
            similar: Vec::new(),
            collections: Vec::new(),
        }
    }

    /// Returns where the files lie.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn layout(&self) -> Result<Layout, MetainfoError> {
        if let Some(segment_bytes) = self.segment_bytes {
            return self.segmented_layout(segment_bytes);
        }
        let files = self.files.iter().map(|file| (&file.path, file.length_bytes));
        Layout::new(self.kind, self.piece_bytes, files)
    }

    /// Returns the torrent; [`Metainfo::write`] writes its metafile.
    ///
    /// # Errors
    /// [`MetainfoError`] if the files, hashes and lengths do not fit each other.
    pub fn build(&self) -> Result<Metainfo, MetainfoError> {
        if self.is_single_file && !matches!(&self.files[..], [only] if only.path == self.name) {
            return Err(not("files", "the single file of this name"));
        }
        let Some(split) = self.split()? else { return self.build_listed(None) };
        let metainfo = split.build_listed(self.segment_bytes)?;
        // Whoever reads the torrent would join files that have names of segments.
        let known: HashSet<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        match metainfo.info.files().iter().find(|file| !known.contains(file.path.as_str())) {
            Some(file) => Err(MetainfoError::LikeSegments { path: file.path.to_string() }),
            None => Ok(metainfo),
        }
    }

    /// Returns the torrent that lists the files as they are, perhaps as segments of this length.
    fn build_listed(&self, segment_bytes: Option<u64>) -> Result<Metainfo, MetainfoError> {
        let files = self.files.iter().map(|file| (&file.path, file.length_bytes));
        let layout = Layout::new(self.kind, self.piece_bytes, files)?;
        let info = Info::read(&self.write_info(&layout, segment_bytes))?;
        let mut metainfo = Metainfo::of(info);
        if self.kind.has_v2() {
            let order = layout.entries.iter().filter_map(|entry| match entry.what {
                What::File(number) => Some(number),
                What::Padding => None,
            });
            // The order of the layout is that in which the files were read.
            for (number, file) in order.enumerate() {
                let layer = self.files[file].hashes.as_ref().map(|hashes| &hashes.piece_layer[..]);
                let of = &metainfo.info.files[number];
                if metainfo.info.needs_piece_layer(of) {
                    metainfo.add_piece_layer(number, Arc::from(layer.unwrap_or_default()))?;
                }
            }
        }
        metainfo.trackers = self.trackers.clone();
        metainfo.web_seeds = self.web_seeds.clone();
        metainfo.whole_file_mirrors = self.whole_file_mirrors.clone();
        metainfo.comment = self.comment.clone();
        metainfo.created_by = self.created_by.clone();
        metainfo.creation_date_s = self.creation_date_s;
        // Piece layers stand outside of the info dictionary, whose size the reader checked.
        check_size(&metainfo.write())?;
        Ok(metainfo)
    }

    /// Writes the info dictionary; the keys stand in ascending order.
    fn write_info(&self, layout: &Layout, segment_bytes: Option<u64>) -> Vec<u8> {
        let mut out = Writer::new();
        let single = self.files.first().filter(|_| self.is_single_file);
        out.dict();
        if self.kind.has_v1() && single.is_some_and(|file| file.is_executable) {
            out.text("attr").text("x");
        }
        write_texts("collections", &self.collections, &mut out);
        if self.kind.has_v2() {
            out.text("file tree");
            self.write_tree(layout, &mut out);
        }
        match single {
            _ if !self.kind.has_v1() => {}
            Some(file) => {
                out.text("length").int(file.length_bytes);
            }
            None => {
                out.text("files");
                self.write_list(layout, &mut out);
            }
        }
        if self.kind.has_v2() {
            out.text("meta version").int(2);
        }
        out.text("name").text(self.name.as_str());
        out.text("piece length").int(self.piece_bytes);
        if self.kind.has_v1() {
            out.text("pieces").bytes(&self.pieces_v1);
        }
        if self.is_private {
            out.text("private").int(1);
        }
        if let Some(segment_bytes) = segment_bytes {
            out.text("segment length").int(segment_bytes);
        }
        if !self.similar.is_empty() {
            out.text("similar").list();
            for hash in &self.similar {
                out.bytes(hash.as_bytes());
            }
            out.end();
        }
        if let Some(source) = &self.source {
            out.text("source").text(source);
        }
        if let Some(url) = &self.update_url {
            out.text("update-url").text(url.as_str());
        }
        out.end();
        out.finish()
    }

    /// Writes the list of v1, with pad files as BEP 47 recommends them.
    fn write_list(&self, layout: &Layout, out: &mut Writer) {
        out.list();
        for entry in &layout.entries {
            out.dict();
            match entry.what {
                What::File(number) => {
                    let file = &self.files[number];
                    file.write_attributes(out);
                    out.text("length").int(file.length_bytes);
                    out.text("path");
                    write_path(&file.path, out);
                    file.write_target(out);
                }
                What::Padding => {
                    out.text("attr").text("p");
                    out.text("length").int(entry.length_bytes);
                    out.text("path")
                        .list()
                        .text(".pad")
                        .text(&entry.length_bytes.to_string())
                        .end();
                }
            }
            out.end();
        }
        out.end();
    }

    /// Writes the tree of v2. The layout has its files in the order of the tree.
    fn write_tree(&self, layout: &Layout, out: &mut Writer) {
        out.dict();
        let mut open: Vec<&str> = Vec::new();
        for entry in &layout.entries {
            let What::File(number) = entry.what else { continue };
            let file = &self.files[number];
            let mut folders: Vec<&str> = file.path.as_str().split('/').collect();
            let name = folders.pop().unwrap_or_default();
            let common = open.iter().zip(&folders).take_while(|(a, b)| a == b).count();
            for _ in common..open.len() {
                out.end();
            }
            for folder in &folders[common..] {
                out.text(folder).dict();
            }
            open = folders;
            out.text(name).dict().text("").dict();
            file.write_attributes(out);
            if file.symlink.is_none() {
                out.text("length").int(file.length_bytes);
            }
            if let (Some(hashes), true) = (&file.hashes, file.length_bytes > 0) {
                out.text("pieces root").bytes(&hashes.root);
            }
            file.write_target(out);
            out.end().end();
        }
        for _ in open {
            out.end();
        }
        out.end();
    }
}

impl NewFile {
    fn write_attributes(&self, out: &mut Writer) {
        match (self.is_executable, self.symlink.is_some()) {
            (false, false) => return,
            (true, false) => out.text("attr").text("x"),
            (false, true) => out.text("attr").text("l"),
            (true, true) => out.text("attr").text("xl"),
        };
    }

    fn write_target(&self, out: &mut Writer) {
        if let Some(target) = &self.symlink {
            out.text("symlink path");
            write_path(target, out);
        }
    }
}

impl Metainfo {
    /// Writes the metafile; [`Metainfo::read`] reads the same from it. A v2 torrent whose piece
    /// layers are not all known is written without them, and would be refused.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.dict();
        let is_single_tracker = matches!(&self.trackers[..], [tier] if tier.len() == 1);
        if let Some(first) = self.trackers.first().and_then(|tier| tier.first()) {
            out.text("announce").text(first.as_str());
        }
        if !self.trackers.is_empty() && !is_single_tracker {
            out.text("announce-list").list();
            for tier in &self.trackers {
                out.list();
                for tracker in tier {
                    out.text(tracker.as_str());
                }
                out.end();
            }
            out.end();
        }
        let own = |name: &&String| !self.info.collections.contains(name);
        let collections: Vec<&String> = self.collections.iter().filter(own).collect();
        write_texts("collections", &collections, &mut out);
        if let Some(comment) = &self.comment {
            out.text("comment").text(comment);
        }
        if let Some(created_by) = &self.created_by {
            out.text("created by").text(created_by);
        }
        if let Some(date_s) = self.creation_date_s {
            out.text("creation date").int(date_s);
        }
        out.text("info").raw(&self.info.raw);
        if self.info.kind.has_v2() {
            out.text("piece layers").dict();
            for (root, layer) in &self.piece_layers {
                out.bytes(root).bytes(layer.as_flattened());
            }
            out.end();
        }
        let own = |hash: &&InfoHash| !self.info.similar.contains(hash);
        let similar: Vec<&InfoHash> = self.similar.iter().filter(own).collect();
        if !similar.is_empty() {
            out.text("similar").list();
            for hash in similar {
                out.bytes(hash.as_bytes());
            }
            out.end();
        }
        match &self.web_seeds[..] {
            [only] => _ = out.text("url-list").text(only.as_str()),
            many => write_texts("url-list", many, &mut out),
        }
        write_texts("whole-file-list", &self.whole_file_mirrors, &mut out);
        out.end();
        out.finish()
    }
}

/// Writes a list of texts if there are any.
fn write_texts(key: &str, texts: &[impl AsRef<str>], out: &mut Writer) {
    if !texts.is_empty() {
        out.text(key).list();
        for text in texts {
            out.text(text.as_ref());
        }
        out.end();
    }
}

fn write_path(path: &SafePath, out: &mut Writer) {
    out.list();
    for name in path.as_str().split('/') {
        out.text(name);
    }
    out.end();
}
