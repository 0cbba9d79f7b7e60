//! Turns the sources of a specification into requests: addresses and Metalinks here and in `metalink`,
//! lists in `list`.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use swath_formats::{depot, metalink, percent};
use swath_model::path::SafePath;
use swath_source::display_name;
use swath_transfer::{Destination, Lanes, Mirror, Request};
use tokio::sync::mpsc;
use url::Url;

use super::many::{FileList, ListEntry};
use super::metalink::{any_metalink_of, from_metalink};
use super::swarm::InSwarm;
use super::template::Template;
use super::{GetJob, feed, list, server_name, torrent};
use crate::address::Address;
use crate::copy::mirror;
use crate::error::{JobError, MetalinkError, NoName, SpecError};
use crate::spec::{GetFrom, GetTo};

/// The files to fetch.
pub enum Inputs {
    /// One file.
    One(Box<Request>),
    /// The content of a torrent, which peers have as well.
    Torrent(Box<Request>, Arc<InSwarm>),
    /// Several.
    List(FileList),
}

/// Reads the files of a list in its own thread, since a pipe or a terminal may block. The program does
/// not wait for the thread at its end.
pub fn read_ahead(
    list: impl Iterator<Item = ListEntry> + Send + 'static,
) -> mpsc::Receiver<ListEntry> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    std::thread::spawn(move || {
        for entry in list {
            if sender.blocking_send(entry).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Reads the sources of the specification.
pub async fn read(get_job: &GetJob<'_>) -> Result<Inputs, JobError> {
    let get = get_job.get;
    let template = || Template::of(get_job.job.spec, get);
    let is_list = matches!(get.from, GetFrom::List(_) | GetFrom::ListStream);
    if is_list && !matches!(get.to, GetTo::Folder(_)) {
        return Err(SpecError::ListToOne.into());
    }
    if !get.select.is_empty() && !matches!(get.from, GetFrom::Torrent { .. } | GetFrom::Feed { .. })
    {
        return Err(SpecError::SelectWithoutTorrent.into());
    }
    match &get.from {
        GetFrom::List(path) => {
            list::open_file(template(), get.server_names, path).await.map(Inputs::List)
        }
        GetFrom::ListStream => {
            let open = get_job.job.streams.list.as_ref().ok_or(SpecError::NoStream)?;
            let title = "standard input".to_owned();
            Ok(Inputs::List(list::read(template(), get.server_names, title, None, open())))
        }
        GetFrom::Metalink(path) => read_file(get_job, path),
        GetFrom::Torrent { torrent, mirrors } => torrent::read(get_job, torrent, mirrors).await,
        GetFrom::Feed { feed, dataset } => feed::read(get_job, feed, dataset.as_deref()).await,
        GetFrom::Replicas(addresses) => of_addresses(get_job, addresses).await,
    }
}

async fn of_addresses(get_job: &GetJob<'_>, addresses: &[Address]) -> Result<Inputs, JobError> {
    let urls = addresses.iter().map(Address::source).collect::<Result<Vec<Url>, _>>()?;
    let first = urls.first().ok_or(SpecError::NoSource)?;
    let metalinks = urls.iter().filter(|url| metalink::is_file_name(url.path())).count();
    if metalinks == urls.len() {
        return any_metalink_of(get_job, &urls).await;
    }
    if let Some(url) = urls.iter().find(|url| metalink::is_file_name(url.path())) {
        return Err(SpecError::MetalinkAmongReplicas(display_name(url)).into());
    }
    let mirrors: Vec<Mirror> = urls.iter().cloned().map(mirror).collect();
    let is_in_folder = matches!(get_job.get.to, GetTo::Folder(_));
    if is_in_folder
        && get_job.get.server_names.asks(urls.iter())
        && let Some(name) = server_name::of_mirrors(get_job.job.engine.net(), &mirrors).await
    {
        let _ = get_job.given_name.set(name);
    }
    let name = get_job.given_name.get().cloned().or_else(|| urls.iter().find_map(name_of));
    if name.is_none() && is_in_folder {
        return Err(no_name(first).into());
    }
    let mut request = request(get_job, destination(get_job, name.as_ref())?);
    request.mirrors = mirrors;
    request.digests.clone_from(&get_job.digests);
    request.metalinks = get_job.get.discover;
    Ok(Inputs::One(Box::new(request)))
}

/// Reads a local Metalink.
fn read_file(get_job: &GetJob<'_>, path: &Path) -> Result<Inputs, JobError> {
    let name = path.display().to_string();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return Err(MetalinkError::Read { name, error }.into()),
    };
    from_metalink(get_job, &name, BufReader::new(file), None)
}

fn request(get_job: &GetJob<'_>, destination: Destination) -> Request {
    let spec = get_job.job.spec;
    let mut request = Template::of(spec, get_job.get).request(destination);
    if let Some(in_all) = spec.plan.connections_in_all {
        let sources = match &get_job.get.from {
            GetFrom::Replicas(addresses) => addresses.len(),
            _ => 1,
        };
        let each = in_all.div_ceil(u32::try_from(sources).unwrap_or(u32::MAX).max(1));
        request.plan.lanes = match request.plan.lanes {
            Lanes::Auto { .. } => Lanes::Fixed(each),
            Lanes::Fixed(count) => Lanes::Fixed(count.min(each)),
        };
    }
    request.plan.eager = true;
    request.ask_if_present = true;
    if let (Some(name), GetTo::Folder(folder)) = (get_job.given_name.get(), &get_job.get.to) {
        server_name::apply(&mut request, folder, name);
    }
    request
}

/// Returns a request for the same addresses without Metalinks.
pub fn request_again(get_job: &GetJob<'_>, mirrors: Vec<Mirror>) -> Result<Request, SpecError> {
    let mut request = request(get_job, destination_again(get_job, &mirrors)?);
    request.mirrors = mirrors;
    request.digests.clone_from(&get_job.digests);
    Ok(request)
}

/// Returns the destination of the file with these addresses.
pub fn destination_again(
    get_job: &GetJob<'_>,
    mirrors: &[Mirror],
) -> Result<Destination, SpecError> {
    let by_address = || mirrors.iter().find_map(|mirror| name_of(&mirror.url));
    let name = get_job.given_name.get().cloned().or_else(by_address);
    destination(get_job, name.as_ref())
}

/// Returns the destination of a single file.
pub fn destination(
    get_job: &GetJob<'_>,
    name: Option<&SafePath>,
) -> Result<Destination, SpecError> {
    Ok(match &get_job.get.to {
        GetTo::Stream => {
            let open = get_job.job.streams.output.as_ref().ok_or(SpecError::NoStream)?;
            Destination::Writer(open())
        }
        GetTo::File(path) => Destination::File(path.clone()),
        GetTo::Folder(folder) => {
            let name = name.map_or_else(PathBuf::new, |name| name.as_path().to_owned());
            Destination::File(folder.join(name))
        }
    })
}

/// Returns the last part of a URL's path as a file name; of an address in a depot, which is secret, only
/// a short prefix.
pub fn name_of(url: &Url) -> Option<SafePath> {
    if let Some(brief) = depot::brief(url.path()) {
        return SafePath::new(&format!("depot-{brief}")).ok();
    }
    let last = url.path_segments()?.next_back()?;
    let decoded = percent::decode_text(last);
    SafePath::new(&decoded).ok().filter(|name| !name.as_str().contains('/'))
}

/// Returns why a URL has no file name.
fn no_name(url: &Url) -> SpecError {
    let last = url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
    let why = match SafePath::new(&percent::decode_text(last)) {
        _ if last.is_empty() => None,
        Ok(_) => Some(NoName::Slash),
        Err(error) => Some(NoName::Refused(error)),
    };
    SpecError::NoName { name: display_name(url), why }
}

/// Files of a list that are read ahead.
pub const READ_AHEAD: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_last_part_of_the_path_and_are_safe() {
        let name =
            |text: &str| name_of(&Url::parse(text).unwrap()).map(|name| name.as_str().to_owned());
        assert_eq!(name("http://a/b/c.h5?x=1#y").as_deref(), Some("c.h5"));
        assert_eq!(name("http://a/b/run%201.h5").as_deref(), Some("run 1.h5"));
        assert_eq!(name("http://a/b/"), None);
        assert_eq!(name("http://a"), None);
        assert_eq!(name("http://a/..%2f..%2fetc%2fpasswd"), None);
        assert_eq!(name("http://a/%2e%2e"), None);
        assert_eq!(name("http://a/x%00y"), None);
        // The secret address was used as the name of the file, and shown in every message.
        let secret = "0123456789abcdef".repeat(4);
        for path in ["depot/", "relay/http://r2/depot/", "%64epot/", "depot%2F"] {
            let named = name(&format!("http://a/{path}{secret}?etag=%22x%22"));
            assert_eq!(named.as_deref(), Some("depot-01234567"), "{path}");
        }
        assert_eq!(
            name("http://a/depot/0123456789abcdef.h5").as_deref(),
            Some("0123456789abcdef.h5")
        );
    }
}
