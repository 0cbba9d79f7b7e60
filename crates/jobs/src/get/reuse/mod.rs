//! Reuses an old version of a dataset on this machine while a new one is fetched.
//!
//! Pieces that both versions have are read from the old files, and all other sources are asked only for
//! the rest. Old pieces are verified before they are used, and by the verifier like all others. If an old
//! file has gone or was changed, the other sources deliver its part too.

mod old_files;
mod unchanged;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use swath_formats::torrent::Metainfo;
use swath_model::Range;
use swath_source::{LocalSource, Narrowed, Net, Opening, Source};
use swath_swarm::{OpenFiles, TorrentFiles};
use swath_transfer::{Discovery, Request, VerifiedContent};
use tokio::sync::mpsc;
use url::Url;

use old_files::OldFiles;
use unchanged::unchanged;

/// Adds the unchanged pieces of an old version to the request for a new one. The files of the old one
/// are at `place`. Returns how many bytes of the new version it has.
pub fn reuse(
    request: &mut Request,
    net: &Net,
    new: &Metainfo,
    old: &Metainfo,
    place: &Path,
) -> u64 {
    let parts = unchanged(old, new);
    let bytes = parts.iter().map(|part| part.new.len()).sum();
    let Some(url) = url_of(place).filter(|_| bytes > 0) else { return 0 };
    let info = &old.info;
    // The files are looked for in the folder with the torrent's name first.
    let is_named = place.file_name() == Some(info.name().as_path().as_os_str());
    let data = place.parent().filter(|_| is_named && !info.is_single_file()).unwrap_or(place);
    let open = Arc::new(OpenFiles::new(OPEN_FILES_MAX));
    let Ok(files) = TorrentFiles::find(info, data, open) else { return 0 };
    let files = files.of_any_length();
    let size_bytes = new.piece_map().content_bytes();
    let Some(pieces) = new.proof() else { return 0 };
    let old = Arc::new(OldFiles::new(files, old.piece_map(), parts, pieces, size_bytes));
    for mirror in std::mem::take(&mut request.mirrors) {
        let opened = swath_source::open(Opening {
            net,
            url: &mirror.url,
            trust: mirror.trust,
            sealed: None,
        });
        match opened {
            Ok(source) => request.sources.push(source),
            // The transfer says why it cannot be used.
            Err(_) => request.mirrors.push(mirror),
        }
    }
    let others = std::mem::take(&mut request.sources).into_iter();
    request.sources = others.map(|source| Narrowed::to(source, old.lacking())).collect();
    request.sources.push(LocalSource::new(url.clone(), Arc::clone(&old)));
    let inner = request.discovery.take();
    request.discovery = Some(Arc::new(BesideOld { inner, old, url }));
    bytes
}

fn url_of(place: &Path) -> Option<Url> {
    Url::from_file_path(std::path::absolute(place).ok()?).ok()
}

/// Passes on the sources that are found, for what the old version lacks; hears when the old version
/// is wrong.
struct BesideOld {
    inner: Option<Arc<dyn Discovery>>,
    old: Arc<OldFiles>,
    url: Url,
}

impl fmt::Debug for BesideOld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BesideOld({}, {:?})", self.url, self.inner)
    }
}

impl Discovery for BesideOld {
    fn sources(&self) -> mpsc::Receiver<Arc<dyn Source>> {
        let (sender, sources) = mpsc::channel(SOURCES_AHEAD);
        let Some(mut found) = self.inner.as_ref().map(|inner| inner.sources()) else {
            return sources;
        };
        let old = Arc::clone(&self.old);
        tokio::spawn(async move {
            while let Some(source) = found.recv().await {
                if sender.send(Narrowed::to(source, old.lacking())).await.is_err() {
                    return;
                }
            }
        });
        sources
    }

    fn begun(&self, content: Arc<dyn VerifiedContent>) {
        if let Some(inner) = &self.inner {
            inner.begun(content);
        }
    }

    fn verified(&self, range: Range) {
        if let Some(inner) = &self.inner {
            inner.verified(range);
        }
    }

    fn convicted(&self, source: &dyn Source, range: Range, why: &str) {
        if source.url() == &self.url {
            self.old.leave();
        }
        if let Some(inner) = &self.inner {
            inner.convicted(source, range, why);
        }
    }
}

/// Files of the old version that are open at a time.
const OPEN_FILES_MAX: usize = 128;
/// Sources that wait to be entered.
const SOURCES_AHEAD: usize = 16;

#[cfg(test)]
mod tests {
    use swath_formats::torrent::metainfo::{Builder, Kind, NewFile, What};
    use swath_model::digest::{Algorithm, Hasher, Sha256Tree};
    use swath_model::path::SafePath;
    use swath_source::ReadAt as _;

    use super::*;

    /// Paths and contents.
    pub type Files = Vec<(String, Vec<u8>)>;

    /// Returns the torrent of these files, in the folder `set`.
    pub fn torrent(kind: Kind, piece_bytes: u64, files: &Files) -> Metainfo {
        let mut builder = Builder::new(kind, SafePath::new("set").unwrap(), piece_bytes);
        let file = |(path, content): &(String, Vec<u8>)| {
            let mut tree = Sha256Tree::new(piece_bytes);
            tree.update(content);
            let hashes = tree.finish().filter(|_| kind.has_v2());
            NewFile { hashes, ..NewFile::new(SafePath::new(path).unwrap(), content.len() as u64) }
        };
        builder.files = files.iter().map(file).collect();
        let mut space = Vec::new();
        for entry in builder.layout().unwrap().entries {
            match entry.what {
                What::File(number) => space.extend_from_slice(&files[number].1),
                What::Padding => space.resize(space.len() + entry.length_bytes as usize, 0),
            }
        }
        if kind.has_v1() {
            let pieces = space.chunks(piece_bytes as usize);
            builder.pieces_v1 = pieces
                .flat_map(|piece| Hasher::digest(Algorithm::Sha1, piece).as_bytes().to_vec())
                .collect();
        }
        builder.build().unwrap()
    }

    /// An old version on the disk, as a source of a new one with its first piece changed.
    fn old_files(folder: &Path) -> (OldFiles, Vec<u8>) {
        let files: Files = vec![("a".to_owned(), vec![1; 40_000]), ("b".to_owned(), vec![2; 9])];
        std::fs::create_dir(folder.join("set")).unwrap();
        for (path, content) in &files {
            std::fs::write(folder.join("set").join(path), content).unwrap();
        }
        let mut new = files.clone();
        new[0].1[5] ^= 1;
        let old = torrent(Kind::V2, 16 << 10, &files);
        let of_new = torrent(Kind::V2, 16 << 10, &new);
        let parts = unchanged(&old, &of_new);
        let open = Arc::new(OpenFiles::new(2));
        let found = TorrentFiles::find(&old.info, &folder.join("set"), open).unwrap();
        let content: Vec<u8> = new.into_iter().flat_map(|(_, bytes)| bytes).collect();
        let (map, size_bytes) = (old.info.piece_map(), content.len() as u64);
        (OldFiles::new(found, map, parts, of_new.proof().unwrap(), size_bytes), content)
    }

    #[tokio::test]
    async fn unchanged_bytes_are_read_at_their_new_place_and_others_are_not_held() {
        let folder = tempfile::tempdir().unwrap();
        let (old, content) = old_files(folder.path());
        let held = old.holdings().unwrap();
        assert_eq!(held.borrow().iter().collect::<Vec<_>>(), [Range::new(16 << 10, 40_009)]);
        assert!(old.read_at(0, &mut [0; 10]).await.is_err());
        let mut space = [0; 20];
        for (at, expected) in [(20_000, 20), (39_990, 10), (40_000, 9)] {
            let read = old.read_at(at as u64, &mut space).await.unwrap();
            assert_eq!(space[..read], content[at..at + read]);
            assert_eq!(read, expected, "up to the end of the piece");
        }
        // A changed byte in another piece.
        let path = folder.path().join("set/a");
        let mut wrong = std::fs::read(&path).unwrap();
        wrong[33_000] ^= 1;
        std::fs::write(&path, wrong).unwrap();
        assert!(old.read_at(33_000, &mut space).await.is_err());
        assert!(old.lacking().borrow().covers(Range::new(32 << 10, 40_000)));
    }

    #[tokio::test]
    async fn what_an_old_file_has_no_more_is_asked_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let (old, _) = old_files(folder.path());
        let (held, lacking) = (old.holdings().unwrap(), old.lacking());
        assert!(!lacking.borrow().contains(16 << 10));
        // A link is not followed, even if it leads to the right bytes.
        std::fs::rename(folder.path().join("set/a"), folder.path().join("a")).unwrap();
        std::os::unix::fs::symlink("../a", folder.path().join("set/a")).unwrap();
        assert!(old.read_at(16 << 10, &mut [0; 10]).await.is_err());
        assert!(lacking.borrow().covers(Range::new(0, 40_000)));
        assert_eq!(held.borrow().iter().collect::<Vec<_>>(), [Range::new(40_000, 40_009)]);
        let mut space = [0; 9];
        assert_eq!((old.read_at(40_000, &mut space).await.unwrap(), space), (9, [2; 9]));
        old.leave();
        assert!(held.borrow().is_empty() && lacking.borrow().contains(40_001));
        assert!(old.read_at(40_000, &mut space).await.is_err());
    }

    #[tokio::test]
    async fn holdings_of_peers_are_cut_to_what_the_old_version_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let (old, content) = old_files(folder.path());
        let old = Arc::new(old);
        let (peer, holds) = swath_source::MemorySource::growing("peer", content);
        let source = Narrowed::to(peer, old.lacking());
        let mut holdings = source.holdings().unwrap();
        assert!(holdings.borrow().is_empty());
        holds.send_replace([Range::new(0, 20_000)].into_iter().collect());
        holdings.changed().await.unwrap();
        assert_eq!(
            holdings.borrow_and_update().iter().collect::<Vec<_>>(),
            [Range::new(0, 16 << 10)]
        );
        old.leave();
        holdings.changed().await.unwrap();
        assert_eq!(
            holdings.borrow_and_update().iter().collect::<Vec<_>>(),
            [Range::new(0, 20_000)]
        );
        // It leaves.
        drop(holds);
        assert!(holdings.changed().await.is_err());
    }
}
