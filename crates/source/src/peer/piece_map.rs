//! Where the content of a torrent, all files end to end, lies in its pieces.

use swath_formats::torrent::Info;
use swath_model::Range;

/// The files that are not empty: where each begins in the content and in the piece space.
#[derive(Clone, Debug)]
pub struct PieceMap {
    files: std::sync::Arc<[(u64, Range)]>,
    content_bytes: u64,
}

impl PieceMap {
    /// Returns the map of a torrent.
    pub fn of(info: &Info) -> PieceMap {
        let mut content_bytes = 0;
        let mut files = Vec::new();
        for file in info.files().iter().filter(|file| file.length_bytes > 0) {
            files.push((content_bytes, Range::of_len(file.offset, file.length_bytes)));
            content_bytes += file.length_bytes;
        }
        PieceMap { files: files.into(), content_bytes }
    }

    /// Returns the length of the content.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Returns the parts of a range of the content, and where they lie in the piece space.
    pub fn wire_parts(&self, content: Range) -> impl Iterator<Item = (Range, Range)> + '_ {
        let from = self.files.partition_point(|(at, wire)| at + wire.len() <= content.start);
        self.files[from..].iter().map_while(move |(at, wire)| {
            let part = Range::of_len(*at, wire.len()).intersect(content)?;
            Some((part, Range::of_len(wire.start + (part.start - at), part.len())))
        })
    }

    /// Returns the content in a range of the piece space.
    pub fn content_of(&self, wire: Range) -> impl Iterator<Item = Range> + '_ {
        let from = self.files.partition_point(|(_, file)| file.end <= wire.start);
        self.files[from..].iter().map_while(move |(at, file)| {
            let part = file.intersect(wire)?;
            Some(Range::of_len(at + (part.start - file.start), part.len()))
        })
    }
}
