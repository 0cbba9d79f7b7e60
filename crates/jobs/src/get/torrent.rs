//! Fetches the content of a torrent: reads its metafile and turns it into a request.

use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use swath_formats::torrent::metainfo::{
    ContentPart, File, MEDIA_TYPE, METAFILE_BYTES_MAX, Metainfo,
};
use swath_formats::torrent::{Info, InfoHashV1, InfoHashV2, Magnet, Unused};
use swath_model::path::SafePath;
use swath_model::{Range, RangeSet};
use swath_source::{FilePart, JoinedSource, MemorySource, Net, Source, display_name, fetch_small};
use swath_transfer::observe::DigestFrom;
use swath_transfer::{
    Destination, Discovery, Filter, Mirror, PickerKind, Request, SetFile, Trust, Verdict,
};
use tokio::time::timeout;
use url::Url;

use super::GetJob;
use super::inputs::{Inputs, destination};
use super::swarm::{InSwarm, KnownPeer};
use super::template::Template;
use super::{magnet, one, reuse};
use crate::address::Address;
use crate::copy::mirror;
use crate::error::{JobError, SpecError, TorrentError};
use crate::event::Note;
use crate::run::Outcome;
use crate::spec::{GetTo, TorrentAt};

/// Returns the request for the content of a torrent, which these mirrors have as well.
pub async fn read(
    get_job: &GetJob<'_>,
    at: &TorrentAt,
    mirrors: &[Address],
) -> Result<Inputs, JobError> {
    let mirrors = mirrors.iter().map(Address::source).collect::<Result<Vec<Url>, _>>()?;
    match at {
        TorrentAt::File(path) => {
            let (name, metainfo) = (path.display().to_string(), of_file(path)?);
            inputs(get_job, Described::new(name, metainfo, Trust::Listed), &mirrors).await
        }
        TorrentAt::Magnet(link) => {
            let magnet: Magnet = link.parse().map_err(TorrentError::Magnet)?;
            of_link(get_job, &magnet, Trust::Listed, &mirrors).await
        }
        TorrentAt::Address(address) => {
            of_address(get_job, &address.url()?, Trust::Named, &mirrors).await
        }
    }
}

/// Returns the request for the content of a torrent at an address that this one named.
pub async fn of_address(
    get_job: &GetJob<'_>,
    url: &Url,
    trust: Trust,
    mirrors: &[Url],
) -> Result<Inputs, JobError> {
    inputs(get_job, at_address(get_job, url, trust).await?, mirrors).await
}

/// Returns the request for the content of the torrent of a magnet link that this one named.
pub async fn of_link(
    get_job: &GetJob<'_>,
    link: &Magnet,
    trust: Trust,
    mirrors: &[Url],
) -> Result<Inputs, JobError> {
    inputs(get_job, magnet::described(get_job, link, trust).await?, mirrors).await
}

/// Fetches the metafile at an address that this one named.
pub async fn at_address(
    get_job: &GetJob<'_>,
    url: &Url,
    trust: Trust,
) -> Result<Described, TorrentError> {
    let metainfo = of_server(get_job.job.engine.net(), url, trust).await?;
    Ok(Described::new(display_name(url), metainfo, Trust::Discovered))
}

/// A torrent before its content is fetched.
#[derive(Debug)]
pub struct Described {
    /// The name of its metafile, or its own.
    pub name: String,
    /// Its metafile.
    pub metainfo: Metainfo,
    /// Who named its trackers and web seeds.
    pub trust: Trust,
    /// Peers that are known already.
    pub peers: Vec<KnownPeer>,
    /// The numbers of the files that its link selects; all if empty.
    pub numbers: RangeSet,
    /// What its link or metafile says and nobody uses.
    pub unused: Vec<Unused>,
}

impl Described {
    /// Returns the torrent of a metafile.
    pub fn new(name: String, metainfo: Metainfo, trust: Trust) -> Described {
        let unused = metainfo.unused.clone();
        Described { name, metainfo, trust, peers: Vec::new(), numbers: RangeSet::new(), unused }
    }
}

/// Returns the request for the content of a torrent.
pub async fn inputs(
    get_job: &GetJob<'_>,
    described: Described,
    mirrors: &[Url],
) -> Result<Inputs, JobError> {
    let Described { name, mut metainfo, trust, peers, numbers, unused } = described;
    let selected = select(get_job, &name, &mut metainfo, &numbers)?;
    if !unused.is_empty() {
        get_job.note(Note::TorrentUnused { name: name.clone(), unused });
    }
    match metainfo.info.odd_name_count() as u64 {
        0 => {}
        count => get_job.note(Note::OddNames { name: name.clone(), count }),
    }
    let old = match &get_job.get.old_version {
        Some(old) => Some((of_file(&old.torrent)?, &old.place)),
        None => None,
    };
    let seeds = (metainfo.web_seeds.len() + metainfo.whole_file_mirrors.len()) as u64;
    let files = metainfo.info.files().len() as u64;
    let mirrors_count = seeds + mirrors.len() as u64;
    get_job.note(Note::Torrent { name, files, selected, mirrors: mirrors_count });
    let metainfo = Arc::new(metainfo);
    let (segments, mirrors): (Vec<&Url>, Vec<&Url>) =
        mirrors.iter().partition(|url| metainfo.info.has_segments() && folder_of(url).is_some());
    let mut request = Box::new(request(get_job, &metainfo, &mirrors, trust)?);
    in_segments(&metainfo, &request.destination)?;
    let swarm = match get_job.only_asks {
        true => None,
        false => InSwarm::join(get_job, Arc::clone(&metainfo), trust, &peers).await?,
    };
    let is_empty = metainfo.piece_map().content_bytes() == 0;
    let is_there = place_of(&request.destination).is_some_and(Path::exists);
    let is_lost = swarm.is_none() && !get_job.only_asks;
    if is_lost && mirrors_count == 0 && old.is_none() && !is_empty && !is_there {
        return Err(TorrentError::NoSources.into());
    }
    if is_empty {
        // Nobody has to be asked for nothing.
        request.sources.push(MemorySource::of("empty", []));
    }
    if let Some(swarm) = &swarm {
        request.discovery = Some(Arc::clone(swarm) as Arc<dyn Discovery>);
        request.plan.picker = PickerKind::RarestFirst;
        request.plan.seed = fastrand::u64(..);
    }
    for place in segments.into_iter().filter_map(folder_of) {
        let net = get_job.job.engine.net();
        reuse::reuse(&mut request, net, &metainfo, &metainfo, &place);
    }
    if let Some((old, place)) = old {
        let net = get_job.job.engine.net();
        let bytes = reuse::reuse(&mut request, net, &metainfo, &old, place);
        let of_bytes = metainfo.piece_map().content_bytes();
        get_job.note(Note::Unchanged { bytes, of_bytes });
    }
    if get_job.get.overwrite
        && get_job.get.old_version.is_none()
        && is_there
        && let Some(place) = place_of(&request.destination).map(Path::to_owned)
    {
        let net = get_job.job.engine.net();
        reuse::reuse(&mut request, net, &metainfo, &metainfo, &place);
    }
    Ok(match swarm {
        Some(swarm) => Inputs::Torrent(request, swarm),
        None => Inputs::One(request),
    })
}

/// Reduces the content to the files that the user selects, or else the link (BEP 53); returns how many they
/// are, `None` for all.
fn select(
    get_job: &GetJob<'_>,
    name: &str,
    metainfo: &mut Metainfo,
    numbers: &RangeSet,
) -> Result<Option<u64>, JobError> {
    let patterns = &get_job.get.select;
    let selected = if !patterns.is_empty() {
        let filter = Filter::new(patterns, &[]).map_err(SpecError::Select)?;
        let is_wanted = |file: &File| filter.judge_whole(file.path.as_str(), false) == Verdict::In;
        metainfo.select(is_wanted)
    } else if !numbers.is_empty() {
        metainfo.select_numbers(numbers)
    } else {
        return Ok(None);
    };
    match selected {
        0 => {
            let (name, files) = (name.to_owned(), metainfo.info.files());
            let some = files.iter().take(NAMED_MAX).map(|file| file.path.to_string()).collect();
            Err(TorrentError::NothingSelected { name, files: some, count: files.len() }.into())
        }
        selected => Ok(Some(selected as u64)),
    }
}

/// Fetches the content of a torrent as one of its peers, and seeds it for as long as is wanted.
pub async fn run(
    get_job: &GetJob<'_>,
    request: Request,
    swarm: &InSwarm,
) -> Result<Outcome, JobError> {
    let path = place_of(&request.destination).map(Path::to_owned);
    let has_mirrors = !request.mirrors.is_empty() || !request.sources.is_empty();
    let mut fetching = std::pin::pin!(one::run(get_job, request));
    let mut silences = SILENCES.iter();
    let ended = loop {
        let Some(silence) = silences.next() else { break fetching.await };
        match timeout(*silence, &mut fetching).await {
            Ok(ended) => break ended,
            Err(_) if !has_mirrors && swarm.counts().peers == 0 => get_job.note(swarm.waiting()),
            Err(_) => {}
        }
    };
    let spec = &get_job.get.swarm;
    if let (Ok(_), Some(path)) = (&ended, path)
        && spec.keeps_seeding
    {
        swarm.completed(&path);
        get_job.note(Note::Seeding { ratio: spec.ratio });
        tokio::select! {
            () = swarm.seed(spec.ratio) => {}
            () = get_job.job.control.cancelled() => {}
        }
        get_job.note(Note::Seeded { uploaded_bytes: swarm.counts().uploaded_bytes });
    }
    swarm.leave().await;
    ended
}

/// Reads a metafile on this machine.
pub fn of_file(path: &Path) -> Result<Metainfo, TorrentError> {
    let name = || path.display().to_string();
    let failed = |error| TorrentError::Read { name: name(), error };
    let bytes = path.metadata().map_err(failed)?.len();
    if bytes > METAFILE_BYTES_MAX as u64 {
        return Err(TorrentError::TooLarge { name: name(), bytes });
    }
    let text = std::fs::read(path).map_err(failed)?;
    Metainfo::read(&text).map_err(|error| TorrentError::Parse { name: name(), error })
}

/// Fetches a metafile.
pub async fn of_server(net: &Net, url: &Url, trust: Trust) -> Result<Metainfo, TorrentError> {
    let wishes = format!("{MEDIA_TYPE}, */*;q=0.5");
    let fetched = fetch_small(net, url, trust, &wishes, METAFILE_BYTES_MAX).await;
    let name = || display_name(url);
    let document = fetched.map_err(|error| TorrentError::Fetch { name: name(), error })?;
    Metainfo::read(&document.bytes).map_err(|error| TorrentError::Parse { name: name(), error })
}

/// Returns the request for the content of a torrent. Its web seeds get this trust.
fn request(
    get_job: &GetJob<'_>,
    metainfo: &Metainfo,
    mirrors: &[&Url],
    trust: Trust,
) -> Result<Request, JobError> {
    let info = &metainfo.info;
    let template = Template::of(get_job.job.spec, get_job.get);
    let mut request = template.request(to(get_job, metainfo, &template)?);
    if let Destination::File(_) | Destination::Files { .. } = &request.destination
        && let GetTo::Folder(folder) = &get_job.get.to
    {
        request.beneath = Some(folder.clone());
    }
    request.plan.eager = true;
    request.ask_if_present = true;
    request.digests.clone_from(&get_job.digests);
    request.pieces = metainfo.proof();
    request.told_by = DigestFrom::Torrent;
    request.size_bytes = Some(metainfo.piece_map().content_bytes());
    // Web seeds have what the torrent lists; other mirrors have the files whole.
    let mut whole: Vec<(&Url, Trust)> = mirrors.iter().map(|url| (*url, Trust::Named)).collect();
    whole.extend(metainfo.whole_file_mirrors.iter().map(|url| (url, trust)));
    for seed in metainfo.web_seeds.iter().map(|url| (url, trust)) {
        match info.has_segments() {
            true => request.sources.extend(joined(get_job, metainfo, seed, Has::Listed)),
            false => whole.push(seed),
        }
    }
    // One of several files has its place in the folder there.
    let is_alone =
        info.is_single_file() && !matches!(request.destination, Destination::Files { .. });
    for (seed, trust) in whole {
        match is_alone {
            true => request.mirrors.extend(
                info.whole_file_url(seed, &info.files()[0])
                    .map(|url| Mirror { trust, ..mirror(url) }),
            ),
            false => {
                let source = joined(get_job, metainfo, (seed, trust), Has::Files);
                request.sources.extend(source);
            }
        }
    }
    Ok(request)
}

/// Returns the file or folder that is written, if there is one.
fn place_of(destination: &Destination) -> Option<&Path> {
    match destination {
        Destination::File(path) | Destination::Files { folder: path, .. } => Some(path),
        _ => None,
    }
}

/// Returns the destination of the content.
fn to(
    get_job: &GetJob<'_>,
    metainfo: &Metainfo,
    template: &Template,
) -> Result<Destination, SpecError> {
    let info = &metainfo.info;
    if info.is_single_file() && info.files()[0].symlink.is_none() {
        return destination(get_job, Some(info.name()));
    }
    let folder = match &get_job.get.to {
        GetTo::Folder(_) => template.dir.join(info.name().as_path()),
        GetTo::File(_) | GetTo::Stream => {
            only_selected(metainfo)?;
            return destination(get_job, None);
        }
    };
    let parts = metainfo.content().into_iter();
    let files = parts.map(|part| set_file(info, &part));
    Ok(Destination::Files { folder, files: files.collect() })
}

/// Checks that the content is one file, and nothing that only helps to verify it.
fn only_selected(metainfo: &Metainfo) -> Result<(), SpecError> {
    let info = &metainfo.info;
    let parts = metainfo.content();
    let mut wanted =
        parts.iter().filter(|part| part.is_wanted).map(|part| &info.files()[part.file]);
    match (wanted.next(), wanted.count() as u64) {
        (Some(file), 0) if file.symlink.is_some() => {
            Err(SpecError::LinkToFile { file: file.path.to_string() })
        }
        (Some(file), 0) if parts.len() > 1 => {
            Err(SpecError::SharedPieces { file: file.path.to_string() })
        }
        (Some(_), 0) => Ok(()),
        (_, others) => {
            let (name, count) = (info.name().to_string(), others + 1);
            Err(match metainfo.is_reduced() {
                true => SpecError::SelectedToOne { name, count },
                false => SpecError::SeveralToOne { name, count },
            })
        }
    }
}

/// Returns the folder on this machine that an address names.
fn folder_of(url: &Url) -> Option<PathBuf> {
    let path = url.to_file_path().ok().filter(|_| url.scheme() == "file")?;
    path.is_dir().then_some(path)
}

/// Checks that no file has to be written where a folder with its segments is, as another client leaves it.
fn in_segments(metainfo: &Metainfo, destination: &Destination) -> Result<(), TorrentError> {
    let info = &metainfo.info;
    if !info.has_segments() {
        return Ok(());
    }
    for part in metainfo.content().into_iter().filter(|part| part.is_wanted) {
        let path = match destination {
            Destination::File(path) => path.clone(),
            Destination::Files { folder, .. } => {
                folder.join(info.files()[part.file].path.as_path())
            }
            _ => return Ok(()),
        };
        let segments = info.segments(part.file);
        let is_there = |segment: &&File| path.join(segment.path.file_name()).is_file();
        if segments.len() > 1
            && path.is_dir()
            && let found @ 1.. = segments.iter().filter(is_there).count()
        {
            let folder = match destination {
                Destination::Files { folder, .. } => folder.clone(),
                _ => path.clone(),
            };
            return Err(TorrentError::InSegments { path, found, count: segments.len(), folder });
        }
    }
    Ok(())
}

/// Returns how a part of the content is written: a file, or for the time of the transfer the bytes of one
/// that is not wanted.
fn set_file(info: &Info, part: &ContentPart) -> SetFile {
    let file = &info.files()[part.file];
    let of_torrent = || match (info.hash_v1(), info.hash_v2()) {
        (Some(InfoHashV1(hash)), _) => version(&hash),
        (None, Some(InfoHashV2(hash))) => version(&hash),
        (None, None) => 0,
    };
    if !part.is_wanted {
        let place = file.offset + part.range.start;
        return SetFile {
            path: SafePath::new(&format!(".swath.neighbour.{place}")).expect("a name"),
            size_bytes: part.range.len(),
            is_executable: false,
            link: None,
            is_temporary: true,
            version: of_torrent(),
        };
    }
    SetFile {
        version: file.pieces_root.map_or_else(of_torrent, |root| version(&root)),
        path: file.path.clone(),
        size_bytes: file.length_bytes,
        is_executable: file.is_executable,
        link: file.symlink.as_ref().map(|target| link_text(file.path.as_str(), target.as_str())),
        is_temporary: false,
    }
}

/// Returns the first bytes of a digest.
fn version(digest: &[u8]) -> u64 {
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// Returns a target below the folder of the torrent, as a link at `path` there has to be written.
fn link_text(path: &str, target: &str) -> String {
    let ups = path.matches('/').count();
    format!("{}{target}", "../".repeat(ups))
}

/// What a mirror of a torrent has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    /// The files as users have them.
    Files,
    /// The files that the torrent lists, among them segments.
    Listed,
}

/// Returns a mirror of several files as one source.
fn joined(
    get_job: &GetJob<'_>,
    metainfo: &Metainfo,
    (seed, trust): (&Url, Trust),
    has: Has,
) -> Option<Arc<dyn Source>> {
    let info = &metainfo.info;
    let mut parts = Vec::new();
    for ContentPart { file: number, range, .. } in metainfo.content() {
        let file = &info.files()[number];
        let there = match has {
            Has::Files => slice::from_ref(file),
            Has::Listed => info.segments(number),
        };
        for part in there {
            let place = Range::of_len(part.offset - file.offset, part.length_bytes);
            let Some(both) = place.intersect(range) else { continue };
            let url = match has {
                Has::Files => info.whole_file_url(seed, part)?,
                Has::Listed => info.web_seed_url(seed, part)?,
            };
            let range = Range::of_len(both.start - place.start, both.len());
            parts.push(FilePart { url, file_bytes: part.length_bytes, range });
        }
    }
    Some(JoinedSource::of_parts(get_job.job.engine.net(), seed.clone(), trust, parts))
}

/// Files of a torrent that are named if none of them is selected.
const NAMED_MAX: usize = 5;
/// The waits for peers without a message; most attempts to connect fail within both.
const SILENCES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(30)];
