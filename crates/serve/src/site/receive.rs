//! Requests of clients that send trees.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;
use swath_formats::scope::Act;
use swath_store::tree::{Grant, Root, leads_into_a_copy, may_be_received};

use super::Site;
use super::file::{not_found, refusal};
use super::folders::Resolved;
use super::rights::Rights;
use crate::http::{Head, Response, Target};
use crate::receive::Destination;

/// Somebody wants to send a tree into the folder of the request's path.
pub(super) async fn begin(site: &Site, head: &Head, rights: Rights) -> Response {
    let Some(receive) = site.receive.clone() else {
        return Response::text(403, "this server takes nothing (it was started without --write)");
    };
    if let Err(refusal) = check_writing(site, &head.target, &rights).await {
        return refusal;
    }
    let place = match placed(site, &head.target, &rights).await {
        Ok(place) => place,
        Err(refusal) => return refusal,
    };
    let mut random = [0; 16];
    (site.random)(&mut random);
    let id = format!("{:032x}", u128::from_be_bytes(random));
    let wishes = head.target.query.clone();
    let received_bytes = Arc::clone(&site.metrics.received_bytes);
    site.orders.begin(&*receive, id, place, wishes, received_bytes)
}

/// Refuses a tree to somebody who may not send it there. A tree replaces what it finds: whoever may only
/// make what is new can send it to where nothing is.
pub(super) async fn check_writing(
    site: &Site,
    target: &Target,
    rights: &Rights,
) -> Result<(), Response> {
    let path = match target.parameter("single") {
        Some(name) if target.path.is_empty() => name.as_bytes().to_vec(),
        Some(name) => [&target.path, name.as_bytes()].join(&b'/'),
        None => target.path.clone(),
    };
    if rights.may_modify(&path) {
        return Ok(());
    }
    if !rights.may_create(&path) {
        return Err(rights.refusal(Act::Create));
    }
    let (root, path) = match site.folders.resolve(&path, rights) {
        Some(Resolved::Below { root, path }) => (root, path.to_vec()),
        _ => return Err(not_found()),
    };
    match tokio::task::spawn_blocking(move || is_free(&root, &path)).await {
        Ok(true) => Ok(()),
        _ => Err(rights.refusal(Act::Modify)),
    }
}

/// Whether nothing is there but, perhaps, an empty folder.
fn is_free(root: &Root, path: &[u8]) -> bool {
    match root.below(path) {
        Ok(folder) => {
            std::fs::read_dir(folder.proc_path()).is_ok_and(|mut all| all.next().is_none())
        }
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Where a tree goes that somebody who may write wants to have here.
pub(super) async fn placed(
    site: &Site,
    target: &Target,
    rights: &Rights,
) -> Result<Destination, Response> {
    if let Some(name) = target.parameter("single")
        && (name.contains('/') || !may_be_received(name.as_bytes()))
    {
        return Err(Response::text(403, "no file may have this name here"));
    }
    let place = Place::of(site, &target.path, rights)?;
    let is_dry = target.parameter("dry") == Some("yes");
    let opened = tokio::task::spawn_blocking(move || place.open(is_dry)).await;
    let failed = || Err(Response::text(500, "the folder could not be opened"));
    opened.map_or_else(|_| failed(), |opened| opened.map_err(|error| refused(&error)))
}

/// A path below one of the folders.
pub(super) struct Place {
    root: Root,
    path: Vec<u8>,
    shown: String,
    /// What may be done there and below.
    grant: Grant,
}

impl Place {
    /// Finds the place that a path, without slashes at its ends, means to somebody with these rights.
    pub fn of(site: &Site, asked: &[u8], rights: &Rights) -> Result<Place, Response> {
        let (root, path) = match site.folders.resolve(asked, rights) {
            Some(Resolved::Below { root, path }) => (root, path.to_vec()),
            Some(Resolved::Top) => return Err(Response::text(400, "name one of the folders")),
            None => return Err(not_found()),
        };
        if leads_into_a_copy(&path) {
            return Err(Response::text(409, "there an unfinished copy keeps what it has"));
        }
        let grant = rights.grant_for_order(&site.access, asked);
        Ok(Place { root, path, shown: String::from_utf8_lossy(asked).into_owned(), grant })
    }

    /// Opens it; waits for the disk.
    pub fn open(self, is_dry: bool) -> io::Result<Destination> {
        let (folder, path) = destination(&self.root, &self.path, is_dry)?;
        Ok(Destination { folder, path, shown: self.shown, grant: self.grant })
    }
}

/// A connection for a tree that is being sent.
pub(super) fn lane(site: &Site, head: &Head, rights: &Rights) -> Response {
    let is_turn = head.field("upgrade").is_some_and(|to| to.eq_ignore_ascii_case(PROTOCOL));
    if !rights.may_write_somewhere() || !is_turn {
        return Response::text(400, "this is for those who send a tree");
    }
    let lane = head.target.parameter("of").and_then(|id| site.orders.lane(id));
    match lane {
        Some(takes_over) => Response::switching(PROTOCOL, takes_over),
        None => Response::text(410, "nothing of this name is being sent"),
    }
}

/// Why there is no such place, to somebody who may write.
pub(super) fn refused(error: &io::Error) -> Response {
    match Errno::from_io_error(error) {
        Some(Errno::NOTDIR | Errno::LOOP) => {
            Response::text(409, "something else than a folder is in the way there")
        }
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            Response::text(403, "no folder may be made there")
        }
        Some(Errno::NOSPC | Errno::DQUOT) => {
            Response::text(507, "there is no room for another folder")
        }
        Some(Errno::NAMETOOLONG) => Response::text(400, "a name of the path is too long"),
        _ => refusal(error),
    }
}

/// Where a tree goes, by a way that leads nowhere else, whatever is renamed meanwhile: through an
/// open folder, which has to stay open. Folders on the way there that are missing are made, unless
/// nothing is to be changed.
fn destination(root: &Root, path: &[u8], is_dry: bool) -> io::Result<(Root, PathBuf)> {
    if let Ok(folder) = root.below(path) {
        let place = folder.proc_path();
        return Ok((folder, place));
    }
    let (above, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b""[..], path),
    };
    let folder = match is_dry {
        true => match root.below(above) {
            // In what is not there yet there is nothing to be compared.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((root.clone(), root.proc_path().join(NOWHERE)));
            }
            folder => folder?,
        },
        false => root.made(above)?,
    };
    if folder.is_there(name) {
        return Err(Errno::NOTDIR.into());
    }
    let name = std::os::unix::ffi::OsStrExt::from_bytes(name);
    let place = folder.proc_path().join::<&std::ffi::OsStr>(name);
    Ok((folder, place))
}

/// A name that no folder here has: those that begin so are kept for copies.
const NOWHERE: &str = ".swath-stage.swath.nowhere";
/// What connections are turned into.
const PROTOCOL: &str = "swath-lane";
