//! `COPY`: third-party copies of single files as the WLCG has them.
//!
//! `COPY /path` with `Source:` fetches a file from another server, with `Destination:` sends one there.
//! The answer is 202 with performance markers, at the beginning and every few seconds, and a last line
//! that begins with `success:` or `failure:`. Closing the connection cancels the copy.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use swath_formats::digest_header;
use swath_formats::scope::Act;
use swath_model::digest::Digest;
use swath_model::path::visible;
use swath_store::tree::may_be_received;
use tokio::time::{Instant, sleep_until};

use super::built_in::BuiltIn;
use super::folders::Resolved;
use super::receive::{Place, refused};
use super::rights::Rights;
use super::{Site, file};
use crate::http::{Content, Head, Made, Make, Response};
use crate::third_party::{CopyOrder, CopyWay, Copying, ThirdParty};

/// Copies a file from or to another server.
pub(super) async fn copy(site: &Site, head: &Head, rights: Rights) -> Response {
    let Some(third_party) = site.third_party.clone() else {
        let text =
            "this server copies nothing to or from others (it was started without --third-party)";
        return Response::text(403, text);
    };
    match order(site, head, rights).await {
        Ok(order) => begin(&third_party, order).await,
        Err(refusal) => refusal,
    }
}

async fn begin(third_party: &Arc<dyn ThirdParty>, order: CopyOrder) -> Response {
    match third_party.copy(order) {
        Ok(copying) => Response::empty(202)
            .with("content-type", "text/perf-marker-stream")
            .with("cache-control", "no-store")
            .containing(Content::Made(Box::new(Markers { copying, due: None, is_over: false }))),
        Err(refused) => refused.response(),
    }
}

async fn order(site: &Site, head: &Head, rights: Rights) -> Result<CopyOrder, Response> {
    if ["source", "destination"].iter().any(|name| head.fields(name).nth(1).is_some()) {
        return Err(Response::text(400, "name one of Source and Destination, once"));
    }
    let remote = |name| head.field(name).map(str::to_owned);
    let (is_pull, remote) = match (remote("source"), remote("destination")) {
        (Some(source), None) => (true, source),
        (None, Some(destination)) => (false, destination),
        _ => return Err(Response::text(400, "name one of Source and Destination")),
    };
    let overwrites = match head.field("overwrite") {
        None | Some("T" | "t") => true,
        Some("F" | "f") => false,
        Some(_) => return Err(Response::text(400, "Overwrite is T or F")),
    };
    if head.target.is_folder {
        return Err(Response::text(409, "a file needs a name; this is that of a folder"));
    }
    if BuiltIn::at(&head.target).is_some() {
        let text = "here the server answers itself: a file of this name is at '?file'";
        return Err(Response::text(403, text));
    }
    let mut digests: Vec<Digest> = Vec::new();
    for name in ["repr-digest", "digest"] {
        let Some(value) = head.field(name) else { continue };
        match digest_header::read(name, value) {
            Some((_, read)) if !read.is_empty() => digests.extend(read),
            _ => return Err(Response::text(400, format!("{name}: no digest that is known here"))),
        }
    }
    let way = match is_pull {
        true => pull(site, head, &rights, overwrites).await?,
        false => push(site, head, &rights).await?,
    };
    // Who may only make new files replaces none that comes meanwhile.
    let overwrites = overwrites && (!is_pull || rights.may_modify(&head.target.path));
    let headers = head.all().filter_map(|(name, value)| {
        let name = name.strip_prefix(PASSED_ON).filter(|name| !name.is_empty())?;
        Some((name.to_owned(), value.to_owned()))
    });
    let mut headers: Vec<(String, String)> = headers.collect();
    // What marks the packets of an experiment (SciTags) goes with those that this server sends.
    if let Some(tag) = head.field("scitag").filter(|_| !is_pull) {
        headers.push(("scitag".to_owned(), tag.to_owned()));
    }
    Ok(CopyOrder { owner: rights.who, way, remote, headers, overwrites, digests })
}

async fn pull(
    site: &Site,
    head: &Head,
    rights: &Rights,
    overwrites: bool,
) -> Result<CopyWay, Response> {
    let path = head.target.path.as_slice();
    if !rights.may_create(path) {
        return Err(rights.refusal(Act::Create));
    }
    let (above, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b""[..], path),
    };
    let no_name = || Response::text(403, "no file may have this name here");
    let name = str::from_utf8(name).map_err(|_| no_name())?.to_owned();
    if name.is_empty() || !may_be_received(name.as_bytes()) {
        return Err(no_name());
    }
    let place = Place::of(site, above, rights)?;
    let opened = tokio::task::spawn_blocking(move || place.open(false)).await;
    let folder = match opened {
        Ok(Ok(folder)) => folder,
        Ok(Err(error)) => return Err(refused(&error)),
        Err(_) => return Err(Response::text(500, super::FAILED)),
    };
    match folder.path.join(&name).symlink_metadata() {
        Ok(there) if !there.is_file() => {
            Err(Response::text(409, "something that is no file has this name"))
        }
        Ok(_) if !overwrites => Err(Response::text(412, "a file of this name is there")),
        Ok(_) if !rights.may_modify(path) => Err(rights.refusal(Act::Modify)),
        _ => Ok(CopyWay::Pull { folder, name }),
    }
}

async fn push(site: &Site, head: &Head, rights: &Rights) -> Result<CopyWay, Response> {
    if !rights.may_read(&head.target.path) {
        return Err(rights.refusal(Act::Read));
    }
    let (root, path) = match site.folders.resolve(&head.target.path, rights) {
        Some(Resolved::Below { root, path }) => (root, path.to_vec()),
        _ => return Err(file::not_found()),
    };
    let follows = site.follow_links;
    let opened = tokio::task::spawn_blocking(move || {
        if root.leads_into_unfinished(&path, follows) {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        if follows { root.file_through_links(&path) } else { root.file(&path) }
    });
    match opened.await {
        Ok(Ok(file)) if file.metadata().is_ok_and(|about| about.is_file()) => {
            Ok(CopyWay::Push { file })
        }
        Ok(Ok(_)) => Err(Response::text(409, "this is no file")),
        Ok(Err(error)) => Err(file::refusal(&error)),
        Err(_) => Err(Response::text(500, super::FAILED)),
    }
}

/// The markers of a copy, as a body.
struct Markers {
    copying: Copying,
    /// When the next one is due; at once without.
    due: Option<Instant>,
    is_over: bool,
}

impl Make for Markers {
    fn length(&self) -> Option<u64> {
        None
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(async {
            if self.is_over {
                return Ok(Vec::new());
            }
            let ended = match self.due {
                None => None,
                Some(due) => tokio::select! {
                    ended = &mut self.copying.end => Some(ended),
                    () = sleep_until(due) => None,
                },
            };
            self.due = Some(Instant::now() + MARKER_EVERY);
            let mut text = self.marker();
            if let Some(ended) = ended {
                self.is_over = true;
                text += &match ended {
                    Ok(Ok(())) => "success: Created\n".to_owned(),
                    // It must be one line.
                    Ok(Err(why)) => format!("failure: {}\n", visible(&why)),
                    Err(_) => "failure: the copy was given up\n".to_owned(),
                };
            }
            Ok(text.into_bytes())
        })
    }
}

impl Markers {
    fn marker(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let bytes = *self.copying.bytes.borrow();
        let remotes: Vec<String> =
            (self.copying.remotes)().iter().map(|remote| format!("tcp:{remote}")).collect();
        let remotes = match remotes.is_empty() {
            true => String::new(),
            false => format!("RemoteConnections: {}\n", remotes.join(",")),
        };
        format!(
            "Perf Marker\nTimestamp: {now}\nStripe Index: 0\nStripe Bytes Transferred: {bytes}\n\
             Total Stripe Count: 1\n{remotes}End\n"
        )
    }
}

/// Fields that begin so are sent to the other server without that.
const PASSED_ON: &str = "transferheader";
/// Clients give up after some minutes of silence, and some draw progress from it.
const MARKER_EVERY: std::time::Duration = std::time::Duration::from_secs(5);
