//! The files of a dataset, as they are when it is published.

use std::convert::Infallible;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use swath_model::index::{Kind, Mtime};
use swath_model::path::visible;
use swath_store::tree::{Files, Filter, Root, Single, WalkError, WalkOptions, walk};

/// A file of the dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentFile {
    /// Its path below the dataset's folder; the name of the file if the dataset is one file.
    pub path: Vec<u8>,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was last changed: a file that changes while it is hashed is refused.
    pub mtime: Mtime,
}

/// The files of a dataset in the order of a torrent: depth first, by the bytes of their names.
#[derive(Clone, Debug)]
pub struct Content {
    root: Root,
    /// The dataset's only file, if it is not a folder.
    single: Option<Single>,
    /// The files. Links that lead to files or folders of the dataset are followed.
    pub files: Vec<ContentFile>,
    /// Paths of further links, devices and unreadable entries, which cannot be published.
    pub left_out: Vec<Vec<u8>>,
}

impl Content {
    /// Lists the files of the folder `path`, or takes `path` as the only file. Names of unfinished
    /// copies are skipped.
    ///
    /// # Errors
    /// The system's error if `path` cannot be listed.
    pub fn list(path: &Path, filter: Filter) -> io::Result<Content> {
        let is_file = std::fs::metadata(path)?.is_file();
        let (folder, single) = match path.file_name().filter(|_| is_file) {
            Some(name) => {
                let folder = path.parent().filter(|folder| *folder != Path::new(""));
                let name = name.as_bytes().to_vec();
                (folder.unwrap_or(Path::new(".")), Some(Single { path: name.clone(), name }))
            }
            None => (path, None),
        };
        let root = Root::open(folder)?;
        let mut content =
            Content { root, single: single.clone(), files: Vec::new(), left_out: Vec::new() };
        let options = WalkOptions {
            follow_links: true,
            hard_links: false,
            filter,
            single,
            ..WalkOptions::default()
        };
        let mut folders: Vec<Vec<u8>> = Vec::new();
        let walked = walk(&content.root.clone(), &options, |entry| {
            folders.truncate(folders.len().saturating_sub(entry.leaves));
            let mut path = folders.join(&b'/');
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.name);
            match entry.kind {
                Kind::File { size_bytes: bytes, .. } => {
                    content.files.push(ContentFile { path, bytes, mtime: entry.mtime });
                }
                Kind::Folder => folders.push(entry.name.to_vec()),
                Kind::Symlink(_) | Kind::HardLink(_) | Kind::Absent(_) => {
                    content.left_out.push(path);
                }
            }
            Ok::<(), Infallible>(())
        });
        match walked {
            Ok(unnameable) => content.left_out.extend(unnameable.first),
            Err(WalkError::Root(error)) => return Err(error),
            Err(error) => return Err(io::Error::other(error)),
        }
        Ok(content)
    }

    /// Returns whether the dataset is a single file and not a folder.
    pub fn is_single(&self) -> bool {
        self.single.is_some()
    }

    /// Returns the length of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns what opens its files, best in their order.
    pub(crate) fn opener(&self) -> Files {
        match &self.single {
            Some(single) => Files::single(&self.root, single),
            None => Files::through_links(&self.root),
        }
    }
}

/// Returns a path for messages.
pub(crate) fn shown(path: &[u8]) -> String {
    visible(&String::from_utf8_lossy(path))
}
