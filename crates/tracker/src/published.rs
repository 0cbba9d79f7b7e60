//! What `swath publish` wrote into the folder of a catalogue, for readers of its feeds: torrents,
//! Metalinks, indexes, signatures, and the feeds themselves.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use swath_formats::conditions::{Conditions, Current, Decision};
use swath_formats::feed::{self, ATOM_MEDIA_TYPE, Feed, RSS_MEDIA_TYPE, TORRENT_MEDIA_TYPE};
use swath_formats::{Etag, http_date, metalink};
use swath_model::Range;
use swath_serve::http::{Content, Piece, Response};

/// A file of the folder that was opened.
pub(crate) struct Published {
    file: Arc<File>,
    about: Metadata,
    media_type: &'static str,
}

impl Published {
    /// Returns whether a name, as it stands in an address, is one of a file that is served.
    pub fn is_name(name: &str) -> bool {
        media_type(name).is_some()
    }

    /// Opens a file of the folder. Other files than those of publications are not found.
    ///
    /// # Errors
    /// The system's.
    pub fn open(folder: &Path, name: &str) -> io::Result<Published> {
        let is_plain = !name.contains(['/', '\0']) && !name.starts_with('.');
        let media_type = media_type(name).filter(|_| is_plain).ok_or(io::ErrorKind::NotFound)?;
        // Somebody may have put a pipe or a device there.
        let file = File::options().read(true).custom_flags(NONBLOCK).open(folder.join(name))?;
        let about = file.metadata()?;
        match about.is_file() {
            true => Ok(Published { file: Arc::new(file), about, media_type }),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Returns the answer to a request with these conditions.
    pub fn answer(self, conditions: &Conditions<'_>) -> Response {
        let (about, modified_s) = (&self.about, u64::try_from(self.about.mtime()).ok());
        // Every file is written anew under its name: its number changes, too.
        let tag = format!(
            "\"{:x}-{:x}-{:x}-{:x}\"",
            about.len(),
            about.mtime(),
            about.mtime_nsec(),
            about.ino()
        );
        let etag = Etag::parse(&tag);
        let current = Current { etag: etag.as_ref(), modified_s };
        let response = match conditions.decide(current, true) {
            Decision::Proceed => {
                let range = Range::new(0, about.len());
                let part = Piece::Part { file: self.file, range };
                let body = if range.is_empty() { Vec::new() } else { vec![part] };
                Response::empty(200)
                    .with("content-type", self.media_type)
                    .containing(Content::Pieces(body))
            }
            Decision::NotModified => Response::empty(304),
            Decision::Failed => Response::text(412, "the file is not as the request supposes"),
        };
        // Feeds change: whoever keeps a copy asks whether it is the latest.
        let response = response
            .with("etag", tag)
            .with("cache-control", "no-cache")
            .with("x-content-type-options", "nosniff");
        match modified_s {
            Some(at) => response.with("last-modified", http_date::write(at)),
            None => response,
        }
    }
}

/// Reads the feed of a folder; `None` if it has none that can be read.
pub(crate) fn read_feed(folder: &Path) -> Option<Feed> {
    let file = File::open(folder.join(ATOM)).ok()?;
    let mut bytes = Vec::new();
    file.take(FEED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    feed::read(&bytes).ok()
}

fn media_type(name: &str) -> Option<&'static str> {
    let of_file = |extension: &str| match extension {
        "torrent" => Some(TORRENT_MEDIA_TYPE),
        "meta4" => Some(metalink::MEDIA_TYPE),
        "index" | "minisig" => Some("text/plain; charset=utf-8"),
        _ => None,
    };
    match name {
        RSS => Some(RSS_MEDIA_TYPE),
        ATOM => Some(ATOM_MEDIA_TYPE),
        _ => name.rsplit_once('.').and_then(|(stem, it)| of_file(it).filter(|_| !stem.is_empty())),
    }
}

/// The feeds of a folder.
pub(crate) const RSS: &str = "feed.rss";
pub(crate) const ATOM: &str = "feed.atom";
/// What a feed may have.
const FEED_BYTES_MAX: u64 = 16 << 20;
/// `O_NONBLOCK`.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_publications_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.torrent", "catalogue.json", "notes.txt", ".index", "feed.rss"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        std::fs::create_dir(folder.path().join("b.torrent")).unwrap();
        for name in ["a.torrent", "feed.rss"] {
            assert!(Published::open(folder.path(), name).is_ok(), "{name}");
        }
        let others = [
            "catalogue.json",
            "notes.txt",
            ".index",
            "b.torrent",
            "c.torrent",
            "../x.torrent",
            "a.torrent/",
        ];
        for name in others {
            assert!(Published::open(folder.path(), name).is_err(), "{name}");
        }
    }
}
