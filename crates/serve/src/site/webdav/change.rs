//! `MKCOL`, `DELETE`, `MOVE`, and `COPY` of a file within this server.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::{Arc, PoisonError};

use rustix::io::Errno;
use swath_formats::conditions::{Current, Decision};
use swath_formats::scope::Act;
use swath_model::index::Kind;
use swath_store::tree::Root;

use super::super::Site;
use super::super::built_in::BuiltIn;
use super::super::file::{etag, etag_of, not_found};
use super::super::put::{blocking, refusal};
use super::super::rights::Rights;
use super::below;
use crate::file_version::FileVersion;
use crate::http::{Head, Response, Target};
use crate::server::Life;

/// Makes a folder.
pub(super) async fn mkcol(site: &Site, head: &Head, rights: &Rights) -> Result<Response, Response> {
    if BuiltIn::of(head).is_some() {
        return Err(own_address());
    }
    let Some((root, path)) = below(site, &head.target.path, rights) else {
        return Err(match site.folders.resolve(&head.target.path, rights) {
            Some(_) => Response::text(405, "this folder is there already"),
            None => Response::text(403, "no folder may be made here"),
        });
    };
    blocking(move || match root.make_folder(&path) {
        Ok(()) => Ok(Response::empty(201)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Response::text(405, "something of this name is there already"))
        }
        Err(error) => Err(refusal(&error)),
    })
    .await
}

/// Removes a file, or a folder with all that is in it.
pub(super) async fn delete(
    site: &Site,
    head: &Head,
    rights: &Rights,
) -> Result<Response, Response> {
    if head.field("depth").is_some_and(|depth| !depth.eq_ignore_ascii_case("infinity")) {
        return Err(Response::text(400, "a folder is removed with all that is in it"));
    }
    let (root, path) = changeable(site, &head.target, rights)?;
    let stop = stops(site);
    let (head, turns, follows) = (head.clone(), Arc::clone(&site.putting), site.follow_links);
    blocking(move || {
        // Nobody replaces a file between the look at it and its removal. Others do not wait for a
        // folder.
        let turn = turns.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = found(&head, &head.target, &root, &path, follows)?;
        if kind == Kind::Folder {
            drop(turn);
        }
        match root.remove(&path, &stop) {
            Ok(()) => Ok(Response::empty(204)),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                Err(Response::text(409, "something has come into this folder meanwhile"))
            }
            Err(error) => Err(refused(&error)),
        }
    })
    .await
}

/// Gives something another path, or copies a file to it.
pub(super) async fn to(
    site: &Site,
    head: &Head,
    (from, to): (&Target, &Target),
    is_copy: bool,
    rights: &Rights,
) -> Result<Response, Response> {
    let (may_take, act) = match is_copy {
        true => (rights.may_read(&from.path), Act::Read),
        false => (rights.may_modify(&from.path), Act::Modify),
    };
    if !may_take {
        return Err(rights.refusal(act));
    }
    if !rights.may_create(&to.path) {
        return Err(rights.refusal(Act::Create));
    }
    let may_replace = rights.may_modify(&to.path);
    let asks_only_new = match head.field("overwrite") {
        None | Some("T" | "t") => false,
        Some("F" | "f") => true,
        Some(_) => return Err(Response::text(400, "Overwrite is T or F")),
    };
    let only_new = asks_only_new || !may_replace;
    let (root, path) = changeable(site, from, rights)?;
    if BuiltIn::at(to).is_some() {
        return Err(own_address());
    }
    let Some((to_root, to_path)) = below(site, &to.path, rights) else {
        return Err(Response::text(403, "this name cannot be given"));
    };
    let stop = stops(site);
    let follows = site.follow_links;
    let (head, from) = (head.clone(), from.clone());
    let (to_folder, turns) = (to.is_folder, Arc::clone(&site.putting));
    let given = blocking(move || {
        let kind = found(&head, &from, &root, &path, follows)?;
        if to_folder && kind != Kind::Folder {
            return Err(Response::text(409, "the new name is that of a folder"));
        }
        if is_copy {
            if kind == Kind::Folder {
                return Err(Response::text(403, "a folder is not copied here, only files are"));
            }
            let file = root.file(&path).map_err(|error| refused(&error))?;
            let whole = Whole { file, to: &to_root, path: &to_path, only_new };
            return whole.copy(&turns, &stop);
        }
        let _turn = turns.lock().unwrap_or_else(PoisonError::into_inner);
        match root.rename(&path, &to_root, &to_path, only_new, &stop) {
            Ok(is_replaced) => Ok(Response::empty(if is_replaced { 204 } else { 201 })),
            Err(error) if only_new && error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Response::text(412, IS_THERE))
            }
            Err(error) => Err(refused(&error)),
        }
    });
    match given.await {
        Err(there) if there.status == 412 && !may_replace && !asks_only_new => {
            Err(rights.refusal(Act::Modify))
        }
        given => given,
    }
}

/// A file to be copied.
struct Whole<'a> {
    file: File,
    to: &'a Root,
    path: &'a [u8],
    only_new: bool,
}

impl Whole<'_> {
    fn copy(
        &self,
        turns: &std::sync::Mutex<()>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Response, Response> {
        let failed = |error: io::Error| refused(&error);
        let meta = self.file.metadata().map_err(failed)?;
        let version = FileVersion::from(&meta);
        let incoming = self.to.receive(self.path).map_err(|error| refusal(&error))?;
        let is_replaced = |present: Option<std::fs::Metadata>| match present {
            Some(there) if !there.is_file() => {
                Err(Response::text(409, "something that is no file has this name"))
            }
            Some(_) if self.only_new => Err(Response::text(412, IS_THERE)),
            Some(there) if FileVersion::from(&there).id == version.id => {
                Err(Response::text(403, "this is the file itself"))
            }
            present => Ok(present.is_some()),
        };
        is_replaced(incoming.present().map_err(failed)?)?;
        incoming.reserve(meta.len()).map_err(failed)?;
        let mut left_bytes = meta.len();
        while left_bytes > 0 {
            if stop() {
                return Err(refused(&io::ErrorKind::Interrupted.into()));
            }
            // The kernel copies, and shares blocks where the file system can.
            let mut part = (&self.file).take(left_bytes.min(COPIED_BYTES));
            match io::copy(&mut part, &mut incoming.file()).map_err(failed)? {
                0 => break,
                bytes => left_bytes -= bytes,
            }
        }
        let is_same = self.file.metadata().is_ok_and(|now| FileVersion::from(&now) == version);
        if left_bytes > 0 || !is_same {
            return Err(Response::text(409, "the file changes while it is copied"));
        }
        let _turn = turns.lock().unwrap_or_else(PoisonError::into_inner);
        // Clients that take it for a copy between servers read its last line.
        let status = if is_replaced(incoming.present().map_err(failed)?)? { 200 } else { 201 };
        match incoming.finish(self.only_new) {
            Ok(meta) => {
                Ok(Response::text(status, "success: Created").with("etag", etag(&meta).as_str()))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Response::text(412, IS_THERE))
            }
            Err(error) => Err(refusal(&error)),
        }
    }
}

/// The place of what a request wants to change or copy.
fn changeable(site: &Site, target: &Target, rights: &Rights) -> Result<(Root, Vec<u8>), Response> {
    if BuiltIn::at(target).is_some() {
        return Err(own_address());
    }
    match below(site, &target.path, rights) {
        Some(place) => Ok(place),
        None if site.folders.resolve(&target.path, rights).is_some() => {
            Err(Response::text(403, "the served folders themselves stay as they are"))
        }
        None => Err(not_found()),
    }
}

/// The kind of what is there, if it is as the request supposes. A link counts as itself.
fn found(
    head: &Head,
    target: &Target,
    root: &Root,
    path: &[u8],
    follow_links: bool,
) -> Result<Kind, Response> {
    if root.leads_into_unfinished(path, follow_links) {
        return Err(not_found());
    }
    let entry = root.entry(path, false).map_err(|error| refused(&error))?;
    if target.is_folder && entry.kind != Kind::Folder {
        return Err(not_found());
    }
    // Conditions are about what the request is for.
    if let Kind::File { size_bytes, .. } = entry.kind
        && *target == head.target
    {
        let etag = etag_of(size_bytes, entry.mtime);
        let modified_s = u64::try_from(entry.mtime.seconds).ok();
        let decision = head.conditions().decide(Current { etag: Some(&etag), modified_s }, false);
        if decision != Decision::Proceed {
            return Err(Response::text(412, "what is there is not as the request supposes"));
        }
    }
    Ok(entry.kind)
}

/// Tells whether the server is about to end.
fn stops(site: &Site) -> impl Fn() -> bool + Send + use<> {
    let life = site.life.clone();
    move || *life.borrow() == Life::Ending
}

fn own_address() -> Response {
    Response::text(403, "here the server answers itself")
}

/// What an error of the file system means to whoever wants to change something that is there.
fn refused(error: &io::Error) -> Response {
    match error.kind() {
        io::ErrorKind::NotFound => not_found(),
        io::ErrorKind::AlreadyExists => {
            Response::text(409, "something of another kind has this name")
        }
        io::ErrorKind::DirectoryNotEmpty => {
            Response::text(409, "a folder that holds something is not replaced: remove it first")
        }
        io::ErrorKind::ResourceBusy => {
            Response::text(409, "an unfinished copy, or another disk, is in this folder")
        }
        io::ErrorKind::Interrupted => Response::text(503, "this server is about to end"),
        _ => match Errno::from_io_error(error) {
            // The paths are below their folders: this is another file system.
            Some(Errno::XDEV) => Response::text(502, "the destination is on another disk"),
            Some(Errno::INVAL) => Response::text(403, "nothing is moved to itself or into itself"),
            _ => refusal(error),
        },
    }
}

const IS_THERE: &str = "something of this name is there";
/// Copied in one go; then it is looked whether the server ends.
const COPIED_BYTES: u64 = 256 << 20;
