//! `PROPFIND`: what a file or folder is, and what is in a folder.
//!
//! A folder's entries are looked at while the answer is sent; only their names are in memory. Links
//! that are not followed, pipes and devices are left out, because a `GET` of them is answered with
//! 404 and clients fetch all that they see.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use swath_formats::webdav::{
    Asked, BODY_BYTES_MAX, END, PropfindError, Resource, ResourceKind, Room, START, read, write,
};
use swath_model::index::Kind;
use swath_store::tree::{Listed, Root};

use super::super::built_in::{BuiltIn, address_of_file};
use super::super::file::{etag_of, media_type, not_found, refusal};
use super::super::folders::Resolved;
use super::super::lists::Taking;
use super::super::rights::Rights;
use super::super::{FAILED, Site};
use crate::client::Client;
use crate::http::{Content, Head, Made, Make, Response};

/// Answers `PROPFIND`.
pub(super) async fn propfind(
    site: &Site,
    head: &Head,
    rights: &Rights,
    client: Client,
    body: &mut dyn Make,
) -> Response {
    let is_deep = match head.field("depth") {
        Some("0") => false,
        Some("1") => true,
        // No field means the same as "infinity".
        _ => {
            return Response::empty(403)
                .with("content-type", MEDIA_TYPE)
                .containing(Content::Bytes(FINITE_DEPTH.into()));
        }
    };
    let asked = match asked(body).await {
        Ok(asked) => asked,
        Err(refusal) => return refusal,
    };
    if site.only.is_some() {
        return not_found();
    }
    let is_own = BuiltIn::of(head).is_some();
    let target = &head.target;
    let (is_folder, follow_links) = (target.is_folder, site.follow_links);
    let rows = match site.folders.resolve(&target.path, rights) {
        None => return not_found(),
        Some(Resolved::Top) => {
            let entries: Vec<Listed> =
                if is_deep { site.folders.listed().collect() } else { Vec::new() };
            let own =
                Listed { name: Vec::new(), kind: Kind::Folder, mode: 0, mtime: Default::default() };
            Ok(Rows::new(asked, Vec::new(), own, None, Box::new(entries.into_iter())))
        }
        Some(Resolved::Below { root, path }) => {
            let (path, address) = (path.to_vec(), target.path.clone());
            let turn = match site.memory.lists.turn(client).await {
                Ok(turn) => turn,
                Err(crowded) => return crowded.response(),
            };
            let found = tokio::task::spawn_blocking(move || {
                if root.leads_into_unfinished(&path, follow_links) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let own = root.entry(&path, follow_links)?;
                let is_right = match own.kind {
                    Kind::Folder => true,
                    Kind::File { .. } => !is_folder && !is_own,
                    _ => false,
                };
                if !is_right {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let room = room(&root, &asked, &own);
                if !is_deep || own.kind != Kind::Folder {
                    return Ok(Rows::new(asked, address, own, room, Box::new(std::iter::empty())));
                }
                let entries = root.entries(&path, follow_links)?;
                let memory = turn.take(entries.memory_bytes());
                let memory = memory.map_err(|_| io::Error::from(Errno::NOMEM))?;
                let mut rows = Rows::new(asked, address, own, room, Box::new(entries));
                rows.memory = Some(memory);
                Ok(rows)
            });
            found.await.unwrap_or_else(|error| Err(io::Error::other(error)))
        }
    };
    match rows {
        Ok(rows) => Response::empty(207)
            .with("content-type", MEDIA_TYPE)
            .with("cache-control", "no-cache")
            .with("dav", "1")
            .containing(Content::Made(Box::new(Answer { rows: Some(rows) }))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => not_found(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Response::text(403, "this may not be read")
        }
        Err(error) => refusal(&error),
    }
}

async fn asked(body: &mut dyn Make) -> Result<Asked, Response> {
    let too_long = || Response::text(413, "the body is too long");
    let mut bytes = Vec::new();
    loop {
        match body.next().await {
            Ok(part) if part.is_empty() => break,
            Ok(part) => bytes.extend(part),
            Err(_) => return Err(Response::text(400, "the body did not arrive")),
        }
        if bytes.len() > BODY_BYTES_MAX {
            return Err(too_long());
        }
    }
    read(&bytes).map_err(|error| match error {
        PropfindError::TooLarge(_) => too_long(),
        error => Response::text(400, format!("the body cannot be read: {error}")),
    })
}

/// The room on the disk, which only those learn who ask for it.
fn room(root: &Root, asked: &Asked, own: &Listed) -> Option<Room> {
    let (Asked::Named(names) | Asked::All(names)) = asked else { return None };
    let is_asked = names.iter().any(|name| name.local.starts_with("quota-"));
    if !is_asked || own.kind != Kind::Folder {
        return None;
    }
    let (free_bytes, all_bytes) = root.room_bytes().ok()?;
    Some(Room { free_bytes, used_bytes: all_bytes.saturating_sub(free_bytes) })
}

type Entries = Box<dyn Iterator<Item = Listed> + Send>;

/// What is still to be told.
struct Rows {
    asked: Arc<Asked>,
    /// The address of the resource, without `/` at its ends.
    address: Vec<u8>,
    /// The resource itself, until it was told.
    own: Option<(Listed, Option<Room>)>,
    entries: Entries,
    is_over: bool,
    /// What the names of the entries take.
    memory: Option<Taking>,
}

impl Rows {
    fn new(
        asked: Asked,
        address: Vec<u8>,
        own: Listed,
        room: Option<Room>,
        entries: Entries,
    ) -> Rows {
        let (asked, own) = (Arc::new(asked), Some((own, room)));
        Rows { asked, address, own, entries, is_over: false, memory: None }
    }

    /// Makes the next bytes; none at the end. Blocks on the disk.
    fn part(&mut self) -> String {
        let mut text = String::new();
        if let Some((own, room)) = self.own.take() {
            text.push_str(START);
            tell(&mut text, &self.asked, &self.address, &own, room);
        }
        while !self.is_over && text.len() < PART_BYTES {
            let Some(entry) = self.entries.next() else {
                text.push_str(END);
                self.is_over = true;
                break;
            };
            let slash = &b"/"[..usize::from(!self.address.is_empty())];
            let path = [&self.address, slash, &entry.name].concat();
            let is_file = matches!(entry.kind, Kind::File { .. });
            // The address of such a file has a query, which clients take for a part of its name.
            if !(is_file && address_of_file(&path).contains('?')) {
                tell(&mut text, &self.asked, &path, &entry, None);
            }
        }
        text
    }
}

fn tell(out: &mut String, asked: &Asked, path: &[u8], entry: &Listed, room: Option<Room>) {
    let modified_s = u64::try_from(entry.mtime.seconds).ok();
    let etag;
    let kind = match entry.kind {
        Kind::Folder => ResourceKind::Folder { room },
        Kind::File { size_bytes, .. } => {
            etag = etag_of(size_bytes, entry.mtime);
            ResourceKind::File { size_bytes, etag: etag.as_str(), media_type: media_type(path) }
        }
        _ => return,
    };
    write(out, asked, &Resource { path, kind, modified_s });
}

/// The rows as a body.
struct Answer {
    /// Empty while they are being made, and after somebody did not wait for that.
    rows: Option<Rows>,
}

impl Make for Answer {
    fn length(&self) -> Option<u64> {
        None
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(async {
            let mut rows = self.rows.take().ok_or_else(|| io::Error::other(FAILED))?;
            let made = tokio::task::spawn_blocking(move || {
                let part = rows.part();
                (rows, part)
            });
            let (rows, part) = made.await.map_err(io::Error::other)?;
            self.rows = Some(rows);
            Ok(part.into_bytes())
        })
    }
}

/// Made in one go.
const PART_BYTES: usize = 64 << 10;
const MEDIA_TYPE: &str = "application/xml; charset=utf-8";
/// RFC 4918, section 9.1.1.
const FINITE_DEPTH: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
     <D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n";
