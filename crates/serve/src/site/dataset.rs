//! Folders as datasets: their index, and ranges of their virtual file.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use swath_formats::range_header::{self, Ranges};
use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::{Range, counted};
use swath_store::tree::{Filter, FilterError, Single, WalkOptions};

use super::file::{not_found, refusal};
use super::folders::Resolved;
use super::rights::Rights;
use super::{Only, Site};
use crate::client::Client;
use crate::dataset::{Form, GROUP_HASH_BYTES, Parts, Sealed, Walk, WalkId};
use crate::http::{Content, Head, Made, Make, Method, Response};

/// Answers a request for a folder as a dataset.
pub(super) async fn answer(
    site: &Site,
    head: &Head,
    rights: &Rights,
    client: Client,
    what: &str,
) -> Response {
    match what {
        "index" if head.target.parameter("walk").is_some() => index_again(site, head),
        "index" => index(site, head, rights, client).await,
        "sealed" | "data" | "changed" | "seals" => {
            let Some(id) = walk_of(head) else { return which_walk() };
            match site.walks.find(id, &head.target.path) {
                Some(walk) if what == "changed" => {
                    // A line for each, and no other: none is an empty body.
                    Response::empty(200)
                        .with("content-type", "text/plain; charset=utf-8")
                        .with("cache-control", "no-store")
                        .containing(Content::Bytes(walk.changed().into_bytes()))
                }
                Some(walk) if what == "seals" => seals(head, walk).await,
                Some(walk) => bytes(site, head, walk, what == "sealed").await,
                None => forgotten(),
            }
        }
        _ => Response::text(400, "'swath=' takes index, sealed, data, seals or changed"),
    }
}

/// Returns the path of what a request reads: of one file of the folder, if it is about that file alone.
pub(super) fn read_path(site: &Site, head: &Head) -> Vec<u8> {
    let folder = &head.target.path;
    let parameter = |name| head.target.parameter(name);
    let file = match (parameter("swath"), walk_of(head), parameter("file")) {
        (Some("index"), None, Some(name)) if parameter("walk").is_none() => {
            Some(name.as_bytes().to_vec())
        }
        (Some(_), Some(walk), _) => site.walks.file_of(walk, folder),
        _ => None,
    };
    match file {
        Some(name) if folder.is_empty() => name,
        Some(name) => [folder, &name[..]].join(&b'/'),
        None => folder.clone(),
    }
}

fn walk_of(head: &Head) -> Option<WalkId> {
    head.target.parameter("walk").and_then(|id| id.parse().ok())
}

fn which_walk() -> Response {
    Response::text(400, "'walk=' is missing: the walk that the index was sent with")
}

fn forgotten() -> Response {
    Response::text(410, "this walk is no longer known: request the index again")
}

/// The index of a walk that is known.
fn index_again(site: &Site, head: &Head) -> Response {
    let Some(id) = walk_of(head) else { return which_walk() };
    let Some(walk) = site.walks.find(id, &head.target.path) else { return forgotten() };
    index_of(id).containing(Content::Made(Box::new(IndexBytes { walk, at: 0, is_missed: false })))
}

fn index_of(id: WalkId) -> Response {
    Response::empty(200)
        .with("content-type", "application/vnd.swath.index")
        .with("cache-control", "no-store")
        .with("swath-walk", id.to_string())
}

async fn index(site: &Site, head: &Head, rights: &Rights, client: Client) -> Response {
    site.walks.make_room();
    let (root, path) = match site.folders.resolve(&head.target.path, rights) {
        Some(Resolved::Below { root, path }) => (root, path.to_vec()),
        Some(Resolved::Top) => {
            return Response::text(
                400,
                "there is no index of all folders together: name one folder",
            );
        }
        None => return not_found(),
    };
    let usual = WalkOptions { follow_links: site.follow_links, ..WalkOptions::default() };
    let file = head.target.parameter("file").map(|file| {
        let name = head.target.parameter("as").unwrap_or(file);
        Single { path: file.as_bytes().to_vec(), name: name.as_bytes().to_vec() }
    });
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/');
    if file.as_ref().is_some_and(|file| !is_name(&file.path) || !is_name(&file.name)) {
        return Response::text(400, "'file=' and 'as=' take names of files");
    }
    let wanted = file.clone().filter(|_| site.only.is_none());
    let options = match (&site.only, filter_of(head)) {
        // What we do not want to give away others cannot ask for.
        (Some(Only::Part(own)), _) => WalkOptions { filter: (**own).clone(), ..usual },
        (Some(Only::File(single)), _) => WalkOptions { single: Some(single.clone()), ..usual },
        (None, Ok(_)) if file.is_some() => WalkOptions { single: file, ..usual },
        (None, Ok(filter)) => WalkOptions { filter, ..usual },
        (None, Err(error)) => return Response::text(400, error.to_string()),
    };
    let is_filtered = options.single.is_some() || !options.filter.is_all();
    let xattrs = head.target.parameter("xattr") == Some("yes");
    // The folder that a single file lies in is no part of what is offered.
    let is_folder = options.single.is_none();
    let open = move || {
        let file = wanted.as_ref().map_or(&b""[..], |file| &file.path);
        if root.leads_into_unfinished(&[&path, file].join(&b'/'), false) {
            return Ok(None);
        }
        let root = root.below(&path)?;
        if root.is_removed() {
            return Err(io::Error::other("the folder has been removed since it was served"));
        }
        let is_there = match wanted {
            Some(file) => root.has_file(&file.path)?,
            None => true,
        };
        let top = is_folder.then(|| root.top().ok()).flatten();
        Ok(is_there.then_some((root, top)))
    };
    let (root, top) = match tokio::task::spawn_blocking(open).await {
        Ok(Ok(Some(opened))) => opened,
        Ok(Ok(None)) => return not_found(),
        Ok(Err(error)) if error.kind() == io::ErrorKind::Other => {
            return Response::text(404, error.to_string());
        }
        Ok(Err(error)) => return refusal(&error),
        Err(_) => return Response::text(500, "the folder could not be opened"),
    };
    let mut random = [0; 16];
    (site.random)(&mut random);
    let id = WalkId::new(random);
    let place = (head.target.path.clone(), root);
    match site.walks.begin(id, client, place, WalkOptions { xattrs, ..options }) {
        Ok(walk) => {
            site.metrics.walks.fetch_add(1, Ordering::Relaxed);
            if !is_filtered {
                site.sizes.walks(&head.target.path, &walk);
            }
            let answer = index_of(id);
            let answer = match top {
                Some(top) => answer.with("swath-top", top.to_string()),
                None => answer,
            };
            let answer = if is_filtered { answer.with("swath-filtered", "yes") } else { answer };
            let answer = if xattrs { answer.with("swath-xattr", "yes") } else { answer };
            answer.containing(Content::Made(Box::new(IndexBytes { walk, at: 0, is_missed: true })))
        }
        Err(_) => {
            Response::text(503, "too much is under way here just now").with("retry-after", "5")
        }
    }
}

/// What is to take part.
fn filter_of(head: &Head) -> Result<Filter, FilterError> {
    let all = |name: &str| -> Vec<String> {
        let of_name = head.target.query.iter().filter(|(other, _)| other == name);
        of_name.map(|(_, value)| value.clone()).collect()
    };
    Filter::new(&all("include"), &all("exclude"))
}

/// An index, as it grows.
struct IndexBytes {
    walk: Arc<Walk>,
    at: u64,
    /// The walk is made for this answer, and not all of its index has been sent yet.
    is_missed: bool,
}

impl Make for IndexBytes {
    fn length(&self) -> Option<u64> {
        None
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(async {
            let bytes =
                self.walk.wire(self.at, INDEX_PART_BYTES).await.map_err(io::Error::other)?;
            self.at += bytes.len() as u64;
            self.is_missed &= !bytes.is_empty();
            Ok(bytes)
        })
    }
}

impl Drop for IndexBytes {
    fn drop(&mut self) {
        if self.is_missed {
            self.walk.give_up();
        }
    }
}

/// Ranges of the virtual file, or of the sealed one.
async fn bytes(site: &Site, head: &Head, walk: Arc<Walk>, is_sealed: bool) -> Response {
    let asked = head.field("range").filter(|_| head.method == Method::GET);
    // Without an end nothing is known of where it is while the walk goes on, so that is waited for.
    let known_to = asked.and_then(last_byte).unwrap_or(u64::MAX);
    let group = known_to / (GROUP_BYTES + if is_sealed { GROUP_HASH_BYTES } else { 0 });
    let enough = group.saturating_add(1).saturating_mul(GROUP_BYTES);
    let (size_bytes, is_complete) = match walk.known(enough).await {
        Ok(known) => known,
        Err(error) => return Response::text(410, format!("the walk ended early: {error}")),
    };
    let length = if is_sealed { Sealed::length(size_bytes) } else { size_bytes };
    let describe = |response: Response| {
        response
            .with("content-type", "application/octet-stream")
            .with("accept-ranges", "bytes")
            .with("cache-control", "no-store")
    };
    let ranges = asked.map_or(Ranges::Whole, |value| range_header::parse(value, length));
    let form = if is_sealed { Form::Sealed { size_bytes } } else { Form::Data };
    let made = |range| {
        let whole = Arc::clone(&site.memory.whole_parts);
        Content::Made(Box::new(Parts::new(Arc::clone(&walk), form, range, whole)))
    };
    let whole = if is_complete { length.to_string() } else { "*".to_owned() };
    match ranges {
        Ranges::Parts(parts) if parts.len() == 1 => {
            let part = parts[0];
            let value = format!("bytes {}-{}/{whole}", part.start, part.end - 1);
            describe(Response::empty(206)).with("content-range", value).containing(made(part))
        }
        Ranges::Unsatisfiable => {
            Response::text(416, format!("there is nothing behind {}", counted(length, "byte")))
                .with("content-range", format!("bytes */{length}"))
        }
        // Several ranges at once are allowed to be ignored.
        Ranges::Whole | Ranges::Parts(_) => {
            describe(Response::empty(200)).containing(made(Range::new(0, length)))
        }
    }
}

/// The group hashes of some groups, without the groups.
async fn seals(head: &Head, walk: Arc<Walk>) -> Response {
    let size_bytes = match walk.known(u64::MAX).await.map(|(size_bytes, _)| size_bytes) {
        Ok(size_bytes) => size_bytes,
        Err(error) => return Response::text(410, format!("the walk ended early: {error}")),
    };
    let groups = size_bytes.div_ceil(GROUP_BYTES);
    let asked = head.target.parameter("groups").and_then(|text| groups_of(text, groups));
    let Some(asked) = asked else {
        let text = format!("'groups=' takes FIRST-LAST,… ascending, below {groups}");
        return Response::text(400, text);
    };
    let length = asked.iter().map(|range| range.len()).sum::<u64>() * GROUP_HASH_BYTES;
    let sealed = Some(Box::new(Sealed::new(walk, size_bytes)));
    let rest = asked.into();
    Response::empty(200)
        .with("content-type", "application/octet-stream")
        .with("cache-control", "no-store")
        .containing(Content::Made(Box::new(GroupHashes { rest, length, sealed })))
}

/// Ranges of groups, both ends included, as a request names them.
fn groups_of(text: &str, groups: u64) -> Option<Vec<Range>> {
    let mut all: Vec<Range> = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-')?;
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        let is_behind = all.last().is_none_or(|before| before.end <= first);
        if first > last || last >= groups || !is_behind {
            return None;
        }
        all.push(Range::new(first, last + 1));
    }
    Some(all)
}

/// Reads groups and tells their group hashes.
struct GroupHashes {
    rest: VecDeque<Range>,
    length: u64,
    sealed: Option<Box<Sealed>>,
}

impl Make for GroupHashes {
    fn length(&self) -> Option<u64> {
        Some(self.length)
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(async {
            let Some(first) = self.rest.front_mut() else { return Ok(Vec::new()) };
            let part = Range::new(first.start, first.end.min(first.start + SEALS_AT_ONCE));
            first.start = part.end;
            if first.is_empty() {
                self.rest.pop_front();
            }
            let Some(mut sealed) = self.sealed.take() else { return Ok(Vec::new()) };
            let read = move || {
                sealed.begin(part.end);
                let group_hashes: Vec<u8> =
                    (part.start..part.end).flat_map(|group| sealed.group_hash(group)).collect();
                sealed.rest();
                (sealed, group_hashes)
            };
            let read = tokio::task::spawn_blocking(read).await;
            let (sealed, group_hashes) = read.map_err(io::Error::other)?;
            self.sealed = Some(sealed);
            Ok(group_hashes)
        })
    }
}

/// The last byte that a single range names.
fn last_byte(value: &str) -> Option<u64> {
    let (_, set) = value.split_once('=')?;
    let (first, last) = set.split_once('-')?;
    first.trim().parse::<u64>().ok()?;
    last.trim().parse().ok()
}

/// Groups whose group hashes are told in one go: whoever waits for them hears of them in time, also where
/// the disk is slow.
const SEALS_AT_ONCE: u64 = 16;
/// Of an index, sent in one go.
const INDEX_PART_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_named_in_order_and_within_the_file() {
        let all = groups_of("0-0,1-3,7-9", 10).unwrap();
        assert_eq!(all, [Range::new(0, 1), Range::new(1, 4), Range::new(7, 10)]);
        for bad in ["", "1", "3-2", "0-10", "5-6,0-1", "0-3,3-4", "a-b", "0-1,", "-1-2"] {
            assert_eq!(groups_of(bad, 10), None, "{bad}");
        }
    }
}
