//! Folders of web and WebDAV servers and of object stores, as far as `swath cp` can copy them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use swath_jobs::copy::{CopyKind, web_entries};
use swath_jobs::{Control, CopySpec, JobEvent, JobObserver, JobSpec, Jobs, Streams, Work};

use super::Line;
use super::remote::RemoteFolder;
use crate::args::Net;
use crate::failure::Failure;

/// Returns the entries of one folder; `None` if it cannot be listed.
pub async fn one_folder(remote: &RemoteFolder) -> Option<Vec<Line>> {
    let is_dav = remote.address.as_ref()?.is_webdav();
    let found = web_entries(remote.engine.net(), &remote.folder.url, is_dav).await.ok()?;
    let line = |(name, entry): (String, swath_jobs::copy::WebEntry)| match entry.is_folder {
        true => Line::of(name, "folder", None),
        false => Line::of(name, "file", entry.size_bytes),
    };
    Some(found.into_iter().map(line).collect()).filter(|lines: &Vec<Line>| !lines.is_empty())
}

/// Returns all files below the folder with their sizes, as a copy would find them; `None` if it cannot be
/// listed.
pub async fn all_files(remote: &RemoteFolder, net: &Net) -> Result<Option<Vec<Line>>, Failure> {
    let Some(from) = &remote.address else { return Ok(None) };
    let (environment, network) = crate::net::environment(net)?;
    // Nothing is there, so that a copy would fetch all of it.
    let nowhere = std::env::temp_dir().join(format!("swath-list-{}", std::process::id()));
    let kind = CopyKind::Fetch { from: vec![from.clone()], to: nowhere };
    let copy = CopySpec { dry_run: true, ..CopySpec::new(kind) };
    let spec = JobSpec { network, ..JobSpec::new(Work::Copy(copy)) };
    let found: Arc<Mutex<BTreeMap<Vec<u8>, u64>>> = Arc::default();
    let finds = Arc::clone(&found);
    let observer: Arc<dyn JobObserver> = Arc::new(move |event: JobEvent| match event {
        JobEvent::Planned { bytes: Some(bytes), path, .. } => {
            finds.lock().unwrap_or_else(PoisonError::into_inner).insert(path, bytes);
        }
        JobEvent::FileFailed { name, error, .. } => {
            crate::exit::warn(&format!("{name}: {}", crate::failure::of_file(&error).1));
        }
        _ => {}
    });
    let jobs = Jobs::new(environment);
    if jobs.run(&spec, &Streams::default(), &observer, &Control::default()).await.is_err() {
        return Ok(None);
    }
    let found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    let line = |(path, bytes): (Vec<u8>, u64)| {
        Line::of(String::from_utf8_lossy(&path).into_owned(), "file", Some(bytes))
    };
    Ok(Some(found.into_iter().map(line).collect()))
}
