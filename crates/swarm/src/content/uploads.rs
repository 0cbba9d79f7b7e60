//! What peers ask for, read from the files of a torrent.

use std::io;
use std::sync::Arc;

use swath_model::Range;
use swath_source::Pending;
use swath_source::peer::Uploads;
use tokio::sync::mpsc;

use super::{ContentError, TorrentFiles};

/// Reads for peers. Files that cannot be read any more are reported.
pub struct FileUploads {
    files: Arc<TorrentFiles>,
    lost: mpsc::Sender<Lost>,
}

/// A file that cannot be read any more.
#[derive(Debug)]
pub struct Lost {
    /// Its bytes in the piece space.
    pub range: Range,
    /// Why.
    pub error: ContentError,
}

impl FileUploads {
    /// Reads `files`; what cannot be read is told to `lost`, once or several times.
    pub fn new(files: Arc<TorrentFiles>, lost: mpsc::Sender<Lost>) -> FileUploads {
        FileUploads { files, lost }
    }
}

impl Uploads for FileUploads {
    fn read<'a>(&'a self, range: Range, into: &'a mut Vec<u8>) -> Pending<'a, io::Result<()>> {
        Box::pin(async move {
            let (files, mut bytes) = (Arc::clone(&self.files), std::mem::take(into));
            let reading = tokio::task::spawn_blocking(move || {
                let read = files.read_or_say_whose(range, &mut bytes);
                (bytes, read)
            });
            let (bytes, read) = reading.await?;
            *into = bytes;
            read.map_err(|(range, error)| {
                let shown = io::Error::other(error.to_string());
                // If it is not heard now, the next request tells it again.
                let _ = self.lost.try_send(Lost { range, error });
                shown
            })
        })
    }
}
