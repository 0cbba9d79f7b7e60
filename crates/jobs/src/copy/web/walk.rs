//! The walk through a web folder and the folders below it.
//!
//! It always ends: links in circles are left out, and what it remembers has limits (`bounds.rs`). Links count
//! from where a page was found. Entries that are listed and not copied are reported.

use std::iter::successors;
use std::sync::Arc;

use swath_formats::listing::{self, Listing, same_server};
use swath_model::path::SafePath;
use swath_source::{Facts, display_name, head_without_digests};
use swath_transfer::{Destination, Filter, Request, Verdict};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use url::Url;

use super::bounds::{Bounds, Fingerprint, Seen, Waiting};
use super::look::{Found, Lister, ListingKind, Place, below};
use crate::copy::mirror;
use crate::error::{EntryError, WalkLimit};
use crate::event::{JobEvent, JobObserver, Note};
use crate::get::many::ListEntry;
use crate::get::template::Template;

/// Lists what is in a folder and below it.
pub struct Walk {
    pub lister: Lister,
    pub filter: Filter,
    /// The folder; it is listed where the first replica has it.
    pub replicas: Vec<Url>,
    pub template: Template,
    pub observer: Arc<dyn JobObserver>,
    pub sender: mpsc::Sender<ListEntry>,
    pub bounds: Bounds,
}

/// A folder that was read.
struct Page {
    kind: ListingKind,
    /// Where its entries are.
    place: Place,
    /// Its address below the other replicas.
    address: String,
    path: String,
    fingerprint: Fingerprint,
    above: Option<Arc<Page>>,
}

impl Page {
    /// Returns an address or a path below that of this folder.
    fn join(above: &str, name: &str) -> String {
        match above {
            "" => name.to_owned(),
            above => format!("{above}/{name}"),
        }
    }
}

/// A folder that has not been read.
struct Folder {
    above: Arc<Page>,
    address: Box<str>,
    name: Box<str>,
}

impl Folder {
    fn path(&self) -> String {
        Page::join(&self.above.path, &self.name)
    }
}

/// What the walk knows so far.
struct Known {
    waiting: Waiting<Folder>,
    seen: Seen,
    /// The server's pages mark folders with a final `/`.
    marks_folders: bool,
}

/// Why a walk ends early.
enum Ended {
    /// The receiver of files is gone.
    ReceiverGone,
    /// At a limit.
    Limit(WalkLimit),
}

impl From<WalkLimit> for Ended {
    fn from(limit: WalkLimit) -> Ended {
        Ended::Limit(limit)
    }
}

impl Walk {
    /// Walks on from what the first folder holds.
    pub async fn run(self, found: Found) {
        let ended = match found.kind.clone() {
            ListingKind::Pages | ListingKind::Dav => self.pages(found).await,
            ListingKind::Bucket { prefix } => self.bucket(&prefix, found).await,
        };
        if let Err(Ended::Limit(limit)) = ended {
            let _ = self.failed("the rest of the folder", limit).await;
        }
    }

    async fn bucket(&self, prefix: &str, found: Found) -> Result<(), Ended> {
        let (mut known, page) = self.begin(&found);
        let mut listing = found.listing;
        let mut parts = 0;
        loop {
            let next = listing.next.take();
            self.files(&mut known, &page, listing).await?;
            let Some(next) = next else { return Ok(()) };
            parts += 1;
            if parts > self.bounds.folders {
                return Err(WalkLimit::Parts { max: self.bounds.folders }.into());
            }
            let more = match known.seen.insert_path(next.as_str()) {
                true => self.lister.part(&next, prefix).await,
                false => Err(EntryError::Circle),
            };
            match more {
                Ok(more) => listing = more,
                Err(error) => return self.failed("the rest of the listing", error).await,
            }
        }
    }

    async fn pages(&self, found: Found) -> Result<(), Ended> {
        let (mut known, page) = self.begin(&found);
        known.seen.insert_url(&found.place.url);
        let Found { listing, alone, .. } = found;
        self.files(&mut known, &page, listing).await?;
        drop(alone);
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < PAGES_AT_ONCE
                && let Some(folder) = known.waiting.pop()
            {
                let lister = self.lister.clone();
                asked.spawn(async move {
                    let place = folder.above.place.at(&format!("{}/", folder.address));
                    let found = lister.next(&place, &folder.above.kind).await;
                    (folder, place, found)
                });
            }
            let Some(answer) = asked.join_next().await else { return Ok(()) };
            let Ok((folder, place, found)) = answer else { continue };
            match found {
                Ok(found) => self.enter(&mut known, folder, &place, found).await?,
                Err(error) => self.failed(&folder.path(), error).await?,
            }
        }
    }

    fn begin(&self, found: &Found) -> (Known, Arc<Page>) {
        let (seen, marks_folders) = (Seen::default(), false);
        let known = Known { waiting: Waiting::new(self.bounds), seen, marks_folders };
        let page = Page {
            kind: found.kind.clone(),
            place: found.place.clone(),
            address: String::new(),
            path: String::new(),
            fingerprint: Fingerprint::of(&found.listing),
            above: None,
        };
        (known, Arc::new(page))
    }

    /// Takes what a folder holds, which was asked for at `asked`.
    async fn enter(
        &self,
        known: &mut Known,
        folder: Folder,
        asked: &Place,
        found: Found,
    ) -> Result<(), Ended> {
        let path = folder.path();
        let Found { kind, place, listing, alone } = found;
        if place.url != asked.url {
            if !same_server(&place.url, &asked.url) {
                let to = display_name(&place.url);
                return self.failed(&path, EntryError::OtherServer { to }).await;
            }
            if !listing.is_empty() && !known.seen.insert_url(&place.url) {
                self.left_out(path, display_name(&place.url));
                return Ok(());
            }
        }
        let page = Arc::new(Page {
            kind,
            place,
            address: Page::join(&folder.above.address, &folder.address),
            path,
            fingerprint: Fingerprint::of(&listing),
            above: Some(folder.above),
        });
        match self.is_circle(&page, &listing).await {
            Ok(None) => {}
            Ok(Some(above)) => {
                self.left_out(page.path.clone(), display_name(&above.place.url));
                return Ok(());
            }
            Err(error) => return self.failed(&page.path, error).await,
        }
        self.files(known, &page, listing).await?;
        drop(alone);
        Ok(())
    }

    /// Finds the folder above this one that it is: by a link of the server's file system, say.
    async fn is_circle<'p>(
        &self,
        page: &'p Page,
        listing: &Listing,
    ) -> Result<Option<&'p Page>, EntryError> {
        let all_above = successors(page.above.as_deref(), |page| page.above.as_deref());
        let mut same = all_above.filter(|it| it.fingerprint == page.fingerprint);
        let Some(first) = same.next().filter(|_| !listing.entries.is_empty()) else {
            return Ok(None);
        };
        if self.has_same_files(page, first, listing).await {
            return Ok(Some(first));
        }
        // Arrays of several dimensions look like that, too (Zarr), but no dataset is so deep.
        match 1 + same.count() {
            REPEATS_MAX.. => Err(EntryError::Repeats { levels: REPEATS_MAX }),
            _ => Ok(None),
        }
    }

    /// Whether the first and the last file of a listing are the same at two places.
    async fn has_same_files(&self, one: &Page, other: &Page, listing: &Listing) -> bool {
        let mut files = listing.entries.iter().filter(|entry| !entry.is_folder);
        let Some(first) = files.next() else { return false };
        for file in [first].into_iter().chain(files.next_back()) {
            let (one, other) = (one.place.at(&file.address), other.place.at(&file.address));
            let (Some(one), Some(other)) = (self.facts(&one).await, self.facts(&other).await)
            else {
                return false;
            };
            let is_same = match (&one.etag, &other.etag) {
                (Some(one), Some(other)) => one == other,
                _ => one.last_modified == other.last_modified,
            };
            if !is_same || one.size_bytes != other.size_bytes {
                return false;
            }
        }
        true
    }

    async fn facts(&self, place: &Place) -> Option<Facts> {
        head_without_digests(&self.lister.net, &place.url, place.trust).await.ok()
    }

    /// Sends the files of a listing, and lets its folders wait.
    async fn files(
        &self,
        known: &mut Known,
        page: &Arc<Page>,
        mut listing: Listing,
    ) -> Result<(), Ended> {
        known.marks_folders |= listing.marks_folders;
        if page.kind == ListingKind::Pages && !known.marks_folders {
            self.mark_folders(page, &mut listing).await;
        }
        let mut folders: Vec<(Box<str>, Box<str>)> = Vec::new();
        for listing::Entry { address, path: name, is_folder, size_bytes } in listing.entries {
            known.waiting.count_entry()?;
            let path = Page::join(&page.path, name.as_str());
            let safe = match SafePath::new(&path) {
                Ok(safe) => safe,
                Err(error) => {
                    self.failed(&path, error).await?;
                    continue;
                }
            };
            match self.filter.judge_whole(&path, is_folder) {
                Verdict::Out => {}
                _ if is_folder => {
                    if known.seen.insert_path(&path) {
                        known.seen.insert_url(&page.place.at(&address).url);
                        folders.push((address.into_boxed_str(), Box::from(name.as_str())));
                    }
                }
                _ => {
                    let request = self.request(page, &address, &safe, size_bytes);
                    self.send(ListEntry::of(request)).await?;
                }
            }
        }
        for (name, why) in listing.refused {
            known.waiting.count_entry()?;
            self.failed(&Page::join(&page.path, &name), why).await?;
        }
        if listing.is_cut {
            let name = if page.path.is_empty() { "the folder" } else { &page.path };
            self.failed(name, EntryError::TooMany).await?;
        }
        // The first one is read first.
        for (address, name) in folders.into_iter().rev() {
            let bytes = address.len() + name.len();
            let folder = Folder { above: Arc::clone(page), address, name };
            known.waiting.push(folder, bytes)?;
        }
        Ok(())
    }

    /// Finds the folders of a page that does not mark them: the server redirects to their names with a final
    /// `/`.
    async fn mark_folders(&self, page: &Page, listing: &mut Listing) {
        let is_wanted = |entry: &listing::Entry| {
            let path = Page::join(&page.path, entry.path.as_str());
            [false, true].iter().any(|kind| self.filter.judge_whole(&path, *kind) != Verdict::Out)
        };
        for entries in listing.entries.chunks_mut(PROBES_AT_ONCE) {
            let mut asked = JoinSet::new();
            for (number, entry) in entries.iter().enumerate().filter(|(_, it)| is_wanted(it)) {
                let (net, place) = (self.lister.net.clone(), page.place.at(&entry.address));
                asked.spawn(async move {
                    let facts = head_without_digests(&net, &place.url, place.trust).await;
                    let found = facts.ok().and_then(|facts| facts.final_url);
                    let path = format!("{}/", place.url.path());
                    (number, found.is_some_and(|found| found.path() == path))
                });
            }
            for (number, is_folder) in asked.join_all().await {
                entries[number].is_folder |= is_folder;
            }
        }
    }

    fn request(
        &self,
        page: &Page,
        address: &str,
        path: &SafePath,
        size_bytes: Option<u64>,
    ) -> Request {
        let dir = &self.template.dir;
        let file = Destination::File(dir.join(path.as_path()));
        let Place { url, trust } = page.place.at(address);
        let mut mirrors = vec![mirror(url)];
        mirrors[0].trust = trust;
        let address = Page::join(&page.address, address);
        mirrors.extend(self.replicas[1..].iter().map(|replica| mirror(below(replica, &address))));
        Request { beneath: Some(dir.clone()), mirrors, size_bytes, ..self.template.request(file) }
    }

    fn left_out(&self, folder: String, same_as: String) {
        self.observer.observe(JobEvent::Note(Note::SameFolder { folder, same_as }));
    }

    async fn failed(&self, name: &str, why: impl Into<EntryError>) -> Result<(), Ended> {
        self.send(ListEntry::refused(name, why)).await
    }

    async fn send(&self, entry: ListEntry) -> Result<(), Ended> {
        self.sender.send(entry).await.map_err(|_| Ended::ReceiverGone)
    }
}

/// Pages that are fetched at the same time.
const PAGES_AT_ONCE: usize = 4;
/// Entries that are looked at at the same time.
const PROBES_AT_ONCE: usize = 8;
/// More folders with the same names inside one another are a circle.
const REPEATS_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use swath_netlab::faulty::{Content, Server};
    use swath_source::{Net, NetOptions};

    use super::*;
    use crate::spec::{CopySpec, JobSpec, Work};

    /// A server whose pages lead to ever more folders took all of the memory.
    #[tokio::test]
    async fn a_walk_ends_at_a_limit_and_says_so() {
        let page = |text: &str| Content::bytes(text.as_bytes().to_vec());
        let mut builder = Server::builder();
        for path in ["/", "/a/", "/b/", "/a/a/", "/a/b/", "/b/a/", "/b/b/"] {
            let links =
                format!("<a href='a/'>a</a><a href='b/'>b</a><a href='{}.bin'>f</a>", path.len());
            builder = builder.file_as(path, "text/html", page(&links));
        }
        let server = builder.start().unwrap();
        for (folders, entries, limit) in
            [(5, 100, WalkLimit::Folders { max: 5 }), (100, 7, WalkLimit::Entries { max: 7 })]
        {
            let replicas = vec![Url::parse(&server.url("/")).unwrap()];
            let lister = Lister::new(Net::new(NetOptions::default()).unwrap());
            let found = lister.first(&replicas[0], false).await.ok().unwrap();
            let places = ["http://h/".to_owned(), "x/".to_owned()];
            let copy = CopySpec::new(crate::copy::copies(&places).unwrap().remove(0).unwrap());
            let spec = JobSpec::new(Work::Copy(copy.clone()));
            let (sender, mut entries_sent) = mpsc::channel(100);
            let walk = Walk {
                lister,
                filter: Filter::new(&[], &[]).unwrap(),
                replicas,
                template: Template::of_web(&spec, &copy, PathBuf::from("x")),
                observer: Arc::new(|_: JobEvent| {}),
                sender,
                bounds: Bounds { folders, entries, ..Bounds::default() },
            };
            walk.run(found).await;
            let mut refused = Vec::new();
            while let Some(entry) = entries_sent.recv().await {
                refused.extend(entry.request.err());
            }
            let [refused] = &refused[..] else { panic!("one entry names the limit") };
            assert_eq!(refused.name, "the rest of the folder");
            assert!(
                matches!(refused.error, EntryError::Limit(at) if at == limit),
                "{:?}",
                refused.error
            );
        }
    }
}
