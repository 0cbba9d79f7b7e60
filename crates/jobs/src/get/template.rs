//! What all requests of a job share.

use std::path::PathBuf;

use swath_formats::metalink;
use swath_transfer::observe::DigestFrom;
use swath_transfer::{Destination, Mirror, Overwrite, PlanConfig, Request, Trust};

use super::many::Refused;
use crate::error::EntryError;
use crate::run::CONNECTIONS_PER_HOST;
use crate::spec::{CopySpec, GetSpec, GetTo, JobSpec};

/// What all requests of a job share.
#[derive(Clone)]
pub struct Template {
    /// The destination folder.
    pub dir: PathBuf,
    overwrite: Overwrite,
    resume: bool,
    sparse: bool,
    require_digest: bool,
    discover: bool,
    ask_if_present: bool,
    refuses_folders: bool,
    plan: PlanConfig,
    stall_s: f64,
}

impl Template {
    /// Returns the template of a specification.
    pub fn of(spec: &JobSpec, get: &GetSpec) -> Template {
        // Automatic lanes stay within the connections per host.
        let lanes_max = spec.plan.connections.map_or(CONNECTIONS_PER_HOST, |_| u32::MAX);
        Template {
            dir: match &get.to {
                GetTo::Folder(folder) => folder.clone(),
                GetTo::File(_) | GetTo::Stream => PathBuf::new(),
            },
            overwrite: if get.overwrite { Overwrite::Always } else { Overwrite::Never },
            resume: get.resume,
            sparse: get.sparse,
            require_digest: get.require_digest,
            discover: get.discover,
            // A list that runs again does not query servers about existing files.
            ask_if_present: false,
            refuses_folders: false,
            plan: PlanConfig { eager: false, ..spec.plan.config(lanes_max) },
            stall_s: spec.network.stall_s(),
        }
    }

    /// Returns the template of files of plain web servers, copied below `dir`.
    pub fn of_web(spec: &JobSpec, copy: &CopySpec, dir: PathBuf) -> Template {
        Template {
            dir,
            overwrite: copy.compare.overwrite(),
            resume: copy.resume,
            sparse: false,
            require_digest: copy.require_digest,
            discover: true,
            ask_if_present: true,
            refuses_folders: true,
            plan: PlanConfig { eager: false, ..spec.plan.config(u32::MAX) },
            stall_s: spec.network.stall_s(),
        }
    }

    /// Returns a request without mirrors.
    pub fn request(&self, destination: Destination) -> Request {
        let mut request = Request::to_file("");
        request.destination = destination;
        request.overwrite = self.overwrite;
        request.ask_if_present = self.ask_if_present;
        request.refuses_folders = self.refuses_folders;
        request.require_digest = self.require_digest;
        request.resume = self.resume;
        request.sparse = self.sparse;
        request.discover = self.discover;
        request.plan = self.plan.clone();
        request.stall_s = self.stall_s;
        request
    }

    /// Returns the request for a file of a Metalink.
    pub fn metalink_file(&self, file: metalink::File, trust: Trust) -> Result<Request, Refused> {
        if let Some(error) = unusable(&file) {
            return Err(Refused { name: file.name.as_str().to_owned(), error });
        }
        let mut request = self.request(Destination::File(self.dir.join(file.name.as_path())));
        request.beneath = Some(self.dir.clone());
        request.mirrors = file
            .mirrors
            .into_iter()
            .map(|it| Mirror { url: it.url, priority: it.priority, trust, holds: None })
            .collect();
        request.mirrors.extend(file.held.into_iter().map(|it| Mirror {
            url: it.url,
            priority: it.priority,
            trust,
            holds: Some(it.ranges),
        }));
        request.told_digests = file.digests;
        request.told_by = DigestFrom::Metalink;
        request.pieces = file.pieces;
        request.size_bytes = file.size_bytes;
        Ok(request)
    }
}

/// Returns why a file of a Metalink cannot be fetched.
fn unusable(file: &metalink::File) -> Option<EntryError> {
    if file.mirrors.is_empty() && file.held.is_empty() {
        let first = file.skipped.first().map(|skipped| skipped.reason.clone());
        return Some(EntryError::NoMirror(first));
    }
    if let Some(why) = file.unusable_pieces().filter(|_| file.digests.is_empty()) {
        return Some(EntryError::Pieces(why.clone()));
    }
    if let Some(why) = file.unusable_digest().filter(|_| file.pieces.is_none()) {
        return Some(EntryError::Digest(why.clone()));
    }
    let is_unproved = file.digests.is_empty() && file.pieces.is_none();
    (file.has_unusable_size() && is_unproved).then_some(EntryError::Size)
}
