//! Reads the virtual file of a tree while the tree is received, and afterwards.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use swath_model::Range;
use swath_model::index::{Index, Kind, Part};

use super::folder_cursor::Files;
use super::root::Root;

/// Reads the virtual file of a tree that is being received, wherever its files lie by now: in the partial
/// folder, or at their final places. Whoever asks knows which bytes are there. All methods block.
pub struct TreeReader {
    /// The partial folder. It may have become the destination.
    partial: Root,
    destination: PathBuf,
    index: Arc<RwLock<Index>>,
}

/// A file with bytes to read.
struct Wanted {
    path: Vec<u8>,
    parts: Vec<Part>,
}

impl TreeReader {
    pub(super) fn new(
        partial: Root,
        destination: PathBuf,
        index: Arc<RwLock<Index>>,
    ) -> TreeReader {
        TreeReader { partial, destination, index }
    }

    /// Reads these bytes of the virtual file. What lies between files is zeros.
    ///
    /// # Errors
    /// A file is not there, or is too short.
    pub fn read(&self, range: Range) -> io::Result<Vec<u8>> {
        let length = usize::try_from(range.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut bytes = vec![0; length];
        let mut partial = Files::new(&self.partial);
        let mut settled = None;
        for wanted in self.wanted(range) {
            let file = match partial.file(&wanted.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.settled(&mut settled)?.file(&wanted.path)
                }
                opened => opened,
            }?;
            read_parts(&file, &wanted.parts, range.start, &mut bytes)?;
        }
        Ok(bytes)
    }

    fn settled<'a>(&self, files: &'a mut Option<Files>) -> io::Result<&'a mut Files> {
        match files {
            Some(files) => Ok(files),
            None => Ok(files.insert(Files::new(&Root::open(&self.destination)?))),
        }
    }

    fn wanted(&self, range: Range) -> Vec<Wanted> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let mut cursor = index.cursor_at(range.start);
        let mut all = Vec::new();
        while let Some(item) = cursor.next().filter(|item| item.start < range.end) {
            let parts: Vec<Part> = item.parts(range).collect();
            if matches!(item.entry.kind, Kind::File { .. }) && !parts.is_empty() {
                all.push(Wanted { path: item.path.to_vec(), parts });
            }
        }
        all
    }
}

/// Reads parts of a file to their places in bytes that begin at `start` of the virtual file.
fn read_parts(file: &File, parts: &[Part], start: u64, bytes: &mut [u8]) -> io::Result<()> {
    for part in parts {
        let at = (part.start - start) as usize;
        file.read_exact_at(&mut bytes[at..at + part.bytes as usize], part.offset)?;
    }
    Ok(())
}
