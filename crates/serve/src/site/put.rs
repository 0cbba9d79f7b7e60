//! Uploads of one file by `PUT` (RFC 9110, section 9.3.4).
//!
//! The file gets its name when all of it has arrived and every digest that was sent with it
//! matches. Until then nothing is visible, and a file of that name stays as it is.

use std::fs::Metadata;
use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use rustix::io::Errno;
use swath_formats::conditions::{Conditions, Current, Decision};
use swath_formats::scope::Act;
use swath_formats::{digest_header, number};
use swath_model::digest::{Digest, Hasher};
use swath_store::tree::{Incoming, Root};

use super::Site;
use super::file::{etag, modified_s, not_found};
use super::folders::Resolved;
use super::rights::Rights;
use crate::http::{Head, Make, Response, Version};

/// Takes the file that is the request's body.
pub(super) async fn put(site: &Site, head: &Head, rights: Rights, body: &mut dyn Make) -> Response {
    if site.receive.is_none() {
        return Response::text(403, "this server takes nothing (it was started without --write)");
    }
    if !rights.may_create(&head.target.path) {
        return rights.refusal(Act::Create);
    }
    let (root, path) = match site.folders.resolve(&head.target.path, &rights) {
        Some(Resolved::Below { root, path }) if !path.is_empty() => (root, path.to_vec()),
        Some(_) => return Response::text(409, "a folder has this name"),
        None => return not_found(),
    };
    let wishes = match Wishes::of(head, body.length(), rights) {
        Ok(wishes) => wishes,
        Err(refusal) => return refusal,
    };
    let begun = blocking(move || begin(&root, &path, wishes)).await;
    let mut taken = match begun {
        Ok(taken) => taken,
        Err(refusal) => return refusal,
    };
    loop {
        let part = match body.next().await {
            Ok(part) if part.is_empty() => break,
            Ok(part) => part,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Response::text(408, "the file took too long to arrive");
            }
            Err(error) => return Response::text(400, format!("the file did not come: {error}")),
        };
        site.metrics.received_bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
        let written = blocking(move || {
            taken.write(&part)?;
            Ok(taken)
        });
        taken = match written.await {
            Ok(taken) => taken,
            Err(refusal) => return refusal,
        };
    }
    let turns = std::sync::Arc::clone(&site.putting);
    blocking(move || taken.finish(&turns)).await.unwrap_or_else(|refusal| refusal)
}

/// What is asked of a file beside its bytes.
struct Wishes {
    if_match: Option<String>,
    if_none_match: Option<String>,
    if_unmodified_since: Option<String>,
    digests: Vec<Digest>,
    length: Option<u64>,
    /// Folders above it that are missing are to be made.
    makes_folders: bool,
    /// What answers whoever may make new files only, and would replace one.
    replaces_nothing: Option<Rights>,
    /// Time of its last change in seconds since 1970, as ownCloud's clients tell it.
    modified_s: Option<u64>,
}

impl Wishes {
    fn of(head: &Head, length: Option<u64>, rights: Rights) -> Result<Wishes, Response> {
        if head.target.is_folder {
            return Err(Response::text(409, "a file needs a name; this is that of a folder"));
        }
        let field = |name: &str| head.field(name);
        if field("content-range").is_some() {
            return Err(Response::text(400, "a file is taken whole, not in parts"));
        }
        if field("content-encoding").is_some_and(|coding| !coding.eq_ignore_ascii_case("identity"))
        {
            return Err(Response::text(415, "a file is taken as it is, without a content coding"));
        }
        if field("expect").is_some_and(|it| !it.eq_ignore_ascii_case("100-continue")) {
            return Err(Response::text(417, "only 100-continue can be expected here"));
        }
        let tells_length = field("content-length").is_some() || head.version == Version::HTTP_2;
        if length == Some(0) && !tells_length {
            return Err(Response::text(411, "how long is it?"));
        }
        let mut digests = Vec::new();
        for name in DIGESTS {
            let Some(value) = field(name) else { continue };
            let read = digest_header::read(name, value).map(|(_, digests)| digests);
            match read {
                Some(read) if !read.is_empty() => digests.extend(read),
                // Whoever sends one wants it to be checked.
                _ => {
                    return Err(Response::text(
                        400,
                        format!("{name}: no digest that is known here"),
                    ));
                }
            }
        }
        let owned = |name: &str| field(name).map(str::to_owned);
        Ok(Wishes {
            if_match: owned("if-match"),
            if_none_match: owned("if-none-match"),
            if_unmodified_since: owned("if-unmodified-since"),
            digests,
            length,
            makes_folders: field("swath-folders").is_some_and(|it| it.trim() == "make"),
            replaces_nothing: (!rights.may_modify(&head.target.path)).then_some(rights),
            modified_s: field("x-oc-mtime").and_then(number),
        })
    }

    /// Whether what is there is as the request supposes.
    fn allow(&self, present: Option<&Metadata>) -> Result<(), Response> {
        if present.is_some_and(|meta| !meta.is_file()) {
            return Err(Response::text(409, "something that is no file has this name"));
        }
        let conditions = Conditions {
            if_match: self.if_match.as_deref(),
            if_none_match: self.if_none_match.as_deref(),
            if_unmodified_since: self.if_unmodified_since.as_deref(),
            ..Conditions::default()
        };
        let tag = present.map(etag);
        let current = Current { etag: tag.as_ref(), modified_s: present.and_then(modified_s) };
        match (conditions.decide(current, false), &self.replaces_nothing) {
            (Decision::Proceed, Some(rights)) if present.is_some() => {
                Err(rights.refusal(Act::Modify))
            }
            (Decision::Proceed, _) => Ok(()),
            _ => Err(Response::text(412, "what is there is not as the request supposes")),
        }
    }

    /// Nothing may be there: that is for the system to see to, whoever else writes.
    fn only_new(&self) -> bool {
        self.replaces_nothing.is_some()
            || self.if_none_match.as_deref().is_some_and(|tags| tags.trim() == "*")
    }
}

/// A file of which some has come.
struct Taken {
    incoming: Incoming,
    hashers: Vec<Hasher>,
    wishes: Wishes,
    /// What is still to be reserved.
    late_bytes: u64,
    came_bytes: u64,
}

fn begin(root: &Root, path: &[u8], wishes: Wishes) -> Result<Taken, Response> {
    let incoming = match root.receive(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && wishes.makes_folders => {
            let above = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            // What is sent on a condition may be nothing that is to be there.
            wishes.allow(None)?;
            root.made(&path[..above]).and_then(|_| root.receive(path))
        }
        received => received,
    };
    let incoming = incoming.map_err(|error| refusal(&error))?;
    wishes.allow(incoming.present().map_err(|error| refusal(&error))?.as_ref())?;
    let length = wishes.length.unwrap_or(0);
    let late_bytes = if length > RESERVED_AT_ONCE { length } else { 0 };
    let has_room = match late_bytes {
        0 => incoming.reserve(length),
        bytes => incoming.fits(bytes),
    };
    has_room.map_err(|error| refusal(&error))?;
    let mut hashers: Vec<Hasher> = Vec::new();
    for digest in &wishes.digests {
        if hashers.iter().all(|hasher| hasher.algorithm() != digest.algorithm()) {
            hashers.push(Hasher::new(digest.algorithm()));
        }
    }
    Ok(Taken { incoming, hashers, wishes, late_bytes, came_bytes: 0 })
}

impl Taken {
    fn write(&mut self, part: &[u8]) -> Result<(), Response> {
        let late_bytes = std::mem::take(&mut self.late_bytes);
        self.incoming.reserve(late_bytes).map_err(|error| refusal(&error))?;
        self.incoming.file().write_all(part).map_err(|error| refusal(&error))?;
        self.hashers.iter_mut().for_each(|hasher| hasher.update(part));
        let before = self.came_bytes;
        self.came_bytes += part.len() as u64;
        if self.wishes.length.is_none() && before / LOOK_EVERY != self.came_bytes / LOOK_EVERY {
            self.incoming.leaves_room().map_err(|error| refusal(&error))?;
        }
        Ok(())
    }

    fn finish(self, turns: &Mutex<()>) -> Result<Response, Response> {
        if self.wishes.length.is_some_and(|length| length != self.came_bytes) {
            return Err(Response::text(400, "the file is not as long as was said"));
        }
        let computed: Vec<Digest> = self.hashers.iter().map(Hasher::finish).collect();
        if let Some(wrong) = self.wishes.digests.iter().find(|told| !computed.contains(told)) {
            let text = format!("what came has another {}", wrong.algorithm().name());
            return Err(Response::text(412, text));
        }
        // Of two who saw the same file, one finds the other's.
        let _turn = turns.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let present = self.incoming.present().map_err(|error| refusal(&error))?;
        self.wishes.allow(present.as_ref())?;
        let only_new = self.wishes.only_new();
        let status = if present.is_some() { 204 } else { 201 };
        let mut response = Response::empty(status);
        let modified = self.wishes.modified_s.map(Duration::from_secs);
        if let Some(modified) = modified.and_then(|since| UNIX_EPOCH.checked_add(since)) {
            self.incoming.file().set_modified(modified).map_err(|error| refusal(&error))?;
            response = response.with("x-oc-mtime", "accepted");
        }
        match self.incoming.finish(only_new) {
            Ok(meta) => Ok(response.with("etag", etag(&meta).as_str())),
            Err(error) if only_new && error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Response::text(412, "what is there is not as the request supposes"))
            }
            Err(error) => Err(refusal(&error)),
        }
    }
}

/// Of a file of unknown length it is looked so often whether there is room for more.
const LOOK_EVERY: u64 = 1 << 20;

/// Does something that waits for the disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Response> + Send + 'static,
) -> Result<T, Response> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Response::text(500, "the file could not be taken")))
}

/// What an error of the file system means to whoever sends.
pub(super) fn refusal(error: &io::Error) -> Response {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Response::text(507, "there is no room for it here")
        }
        io::ErrorKind::FileTooLarge => Response::text(413, "a file cannot be so large here"),
        io::ErrorKind::NotFound => {
            Response::text(409, "the folder in which it is to lie is not there")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            Response::text(409, "what is on the way there is no folder")
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            Response::text(403, "no file may have this name here")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Response::text(403, "this may not be written")
        }
        _ => match Errno::from_io_error(error) {
            // A link on the way, or one that leads out.
            Some(Errno::LOOP | Errno::XDEV) => Response::text(403, "links are not followed there"),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                Response::text(503, "too much is under way here just now").with("retry-after", "5")
            }
            _ => Response::text(500, "the disk cannot take this"),
        },
    }
}

/// Room for larger files is reserved only when their first bytes have come. In memory it takes a second for a
/// few gigabytes, and XRootD 5 sends nothing if `100 Continue` comes later than that.
const RESERVED_AT_ONCE: u64 = 256 << 20;
/// Header fields with digests of the whole file, as all that a `PUT` brings is one.
const DIGESTS: [&str; 5] =
    ["repr-digest", "content-digest", "digest", "content-md5", "oc-checksum"];
