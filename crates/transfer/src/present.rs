//! Decides whether a file that exists before the transfer begins is the wanted one.
//!
//! | known | the file is complete if |
//! | --- | --- |
//! | digests, or digests of its pieces | they match; no server is contacted |
//! | nothing, but a server sends a digest | it matches |
//! | nothing else | its size, and its time to the second, are the server's: a complete file gets the server's time |
//!
//! Several servers are asked at the same time, and at least as many must agree as disagree. This
//! module changes nothing and fetches only facts about the file.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use swath_formats::{http_date, metalink};
use swath_model::Range;
use swath_model::digest::Digest;
use swath_source::{Facts, LaneError, Opening};
use swath_store::tree::{PartialTree, SetFile, SetReader, existing};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::check::{self, Wanted};
use crate::engine::{Engine, Stop};
use crate::error::GetError;
use crate::observe::{Event, Observer, SameBy, Summary};
use crate::request::{Mirror, Request};

/// Compares the file at `path` with what is known of the wanted one, and returns the end of the
/// transfer if it is the same.
///
/// # Errors
/// [`GetError::Present`] if it is another file, or nothing shows whether it is this one.
pub(crate) async fn complete(
    engine: &Engine,
    request: &mut Request,
    path: &Path,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<Summary, GetError> {
    let began = Instant::now();
    let wanted = Wanted::of(request);
    let refused = |unlike| GetError::Present { path: path.to_owned(), unlike };
    let there = path.metadata().map_err(|error| refused(Unlike::Unreadable(error.to_string())))?;
    let same = if wanted.proves() {
        let by = if wanted.digests.is_empty() { SameBy::Pieces } else { SameBy::Digest };
        fits(path, wanted, open_file(path), observer, began, stop).await?;
        by
    } else if let Some(expected) = request.size_bytes.filter(|&size| size != there.len()) {
        return Err(refused(Unlike::Size { bytes: there.len(), expected }));
    } else if !request.ask_if_present {
        SameBy::Name
    } else {
        let mirrors = request.mirrors.clone();
        let told = tokio::select! {
            biased;
            () = stop.wait() => return Err(GetError::Stopped),
            told = ask_all(engine, &mirrors, request.stall_s) => told,
        };
        if let Some(url) = metalink_among(request, &told) {
            let (at_s, shown) = (began.elapsed().as_secs_f64(), swath_source::display_name(&url));
            observer.observe(&Event::Metalink { at_s, url: shown });
            return Err(GetError::Metalink { url });
        }
        let digests: Vec<Digest> = told
            .iter()
            .flatten()
            .find(|it| !it.digests.is_empty())
            .map_or(Vec::new(), |facts| facts.digests.clone());
        if digests.is_empty() {
            by_size_and_time(&there, &told).map_err(refused)?;
            SameBy::SizeAndTime
        } else {
            let wanted = Wanted { digests, ..Wanted::default() };
            fits(path, wanted, open_file(path), observer, began, stop).await?;
            SameBy::ServersDigest
        }
    };
    if request.require_digest && matches!(same, SameBy::SizeAndTime | SameBy::Name) {
        return Err(GetError::NoDigest);
    }
    Ok(present(request.destination_name(), there.len(), same, observer, began))
}

/// Compares files that are there with those of a set. Returns the end of the transfer if they are the
/// same, and `None` if no file is in the way of any, or if those that `replaces` allows to replace cannot
/// be compared.
///
/// # Errors
/// [`GetError::Present`] if some are there, and not all of them are the wanted ones.
pub(crate) async fn complete_set(
    mut wanted: Wanted,
    folder: &Path,
    files: &Arc<[SetFile]>,
    replaces: bool,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<Option<Summary>, GetError> {
    let began = Instant::now();
    // The files there are those of an earlier run that was interrupted while it gave names.
    if PartialTree::is_moving(folder) {
        return Ok(None);
    }
    let there = existing(folder, files);
    let Some(first) = there.first() else { return Ok(None) };
    let refused = |path: &Path, unlike| Err(GetError::Present { path: path.to_owned(), unlike });
    let named = || files.iter().filter(|file| !file.is_temporary);
    let is_link = |file: &&SetFile| {
        let path = folder.join(file.path.as_path());
        file.link.is_none() && path.symlink_metadata().is_ok_and(|it| it.is_symlink())
    };
    if let Some(file) = named().find(is_link) {
        return refused(&folder.join(file.path.as_path()), Unlike::Link);
    }
    let missing = named().count() - there.len();
    if missing > 0 {
        return refused(first, Unlike::Incomplete { missing });
    }
    let other = there.iter().zip(named()).find_map(|(path, file)| {
        let bytes = path.metadata().ok().filter(|it| it.is_file())?.len();
        let expected = file.size_bytes;
        (file.link.is_none() && bytes != expected).then_some((path, bytes, expected))
    });
    if let Some((path, bytes, expected)) = other {
        return refused(path, Unlike::Size { bytes, expected });
    }
    if !wanted.proves() {
        return refused(folder, Unlike::Untold);
    }
    let (mut size_bytes, mut named_bytes) = (0, 0);
    for file in files.iter() {
        let range = Range::of_len(size_bytes, file.size_bytes);
        size_bytes = range.end;
        if !file.is_temporary {
            named_bytes += file.size_bytes;
        } else {
            wanted.absent.insert(range);
        }
    }
    let is_partly = !wanted.absent.is_empty();
    if is_partly && replaces {
        // What cannot be compared may be wrong.
        return Ok(None);
    }
    let (below, of) = (folder.to_owned(), Arc::clone(files));
    let open = move || Ok((size_bytes, SetReader::open(&below, &of)?));
    fits(folder, wanted, open, observer, began, stop).await?;
    if is_partly {
        let text = "pieces that also hold bytes of other files were not compared; --overwrite fetches these files again";
        observer.observe(&Event::note(began.elapsed().as_secs_f64(), text.to_owned(), true));
    }
    Ok(Some(present(folder.display().to_string(), named_bytes, SameBy::Pieces, observer, began)))
}

/// Tells that everything is there.
fn present(
    path: String,
    size_bytes: u64,
    same: SameBy,
    observer: &mut dyn Observer,
    began: Instant,
) -> Summary {
    let elapsed_s = began.elapsed().as_secs_f64();
    observer.observe(&Event::Present { path: path.clone(), at_s: elapsed_s, size_bytes, same });
    Summary { size_bytes, kept_bytes: size_bytes, elapsed_s, ..Summary::of_nothing(path) }
}

fn open_file(path: &Path) -> impl FnOnce() -> io::Result<(u64, File)> + Send + use<> {
    let path = path.to_owned();
    move || {
        let file = check::open(&path)?;
        Ok((file.metadata()?.len(), file))
    }
}

/// Why a file that has the final name does not count as the wanted one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unlike {
    /// Its size differs.
    #[error("is another file: it has {}", check::other_size(*bytes, *expected))]
    Size {
        /// Its size in bytes.
        bytes: u64,
        /// The size of the wanted file.
        expected: u64,
    },
    /// A digest, or the digest of a piece, differs; the text says which.
    #[error("is another file: {0}")]
    Content(String),
    /// Its size equals that of the server's file, but its time differs.
    #[error(
        "may be another file: it was changed on {}, the server's on {}, and no digest is known", 
        http_date::write(*seconds), http_date::write(*expected)
    )]
    Time {
        /// Its time of modification, in seconds since 1970.
        seconds: u64,
        /// The time of the server's file.
        expected: u64,
    },
    /// Servers answered, but without anything to compare.
    #[error("may be another file: no server reports its digest, or its size and time")]
    Untold,
    /// No server answered; the text is the first error.
    #[error("may be another file: no server could be asked ({0})")]
    Unasked(String),
    /// It is a symbolic link, which is never replaced by a file.
    #[error("is a symbolic link, which is never replaced by a file")]
    Link,
    /// Other files of the set are not there.
    #[error("exists already, but {missing} other files do not")]
    Incomplete {
        /// How many.
        missing: usize,
    },
    /// The file cannot be read.
    #[error("exists and cannot be compared: {0}")]
    Unreadable(String),
}

/// Verifies the content that `open` returns, with its size, on a thread of its own.
async fn fits<R: Read>(
    path: &Path,
    wanted: Wanted,
    open: impl FnOnce() -> io::Result<(u64, R)> + Send + 'static,
    observer: &mut dyn Observer,
    began: Instant,
    stop: &Stop,
) -> Result<(), GetError> {
    let for_thread = stop.clone();
    let mut looking = tokio::task::spawn_blocking(move || {
        let (size_bytes, content) = open()?;
        wanted.contradiction(size_bytes, content, &|| for_thread.is_set())
    });
    let looked = match timeout(SILENCE_MAX, &mut looking).await {
        Ok(looked) => looked,
        Err(_) => {
            let text = format!("{} exists already: comparing its digest", path.display());
            observer.observe(&Event::note(began.elapsed().as_secs_f64(), text, false));
            looking.await
        }
    };
    let refused = |unlike| Err(GetError::Present { path: path.to_owned(), unlike });
    match looked.map_err(io::Error::other).and_then(|looked| looked) {
        Ok(None) => Ok(()),
        Ok(Some(contradiction)) => refused(Unlike::Content(contradiction)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(GetError::Stopped),
        Err(error) => refused(Unlike::Unreadable(error.to_string())),
    }
}

/// Asks the servers about the file and returns their answers. Does not wait long for slow servers
/// once another has answered.
async fn ask_all(
    engine: &Engine,
    mirrors: &[Mirror],
    stall_s: f64,
) -> Vec<Result<Facts, LaneError>> {
    let limit = Duration::from_secs_f64(stall_s.clamp(0.1, LONGEST_S));
    let mut asked = JoinSet::new();
    let whole = mirrors.iter().filter(|mirror| mirror.holds.is_none());
    for mirror in whole.take(ASKED_MAX) {
        let (engine, mirror) = (engine.clone(), mirror.clone());
        asked.spawn(async move {
            let late = LaneError::Timeout { after: limit };
            timeout(limit, ask(&engine, &mirror)).await.unwrap_or(Err(late))
        });
    }
    let mut told = Vec::new();
    let mut until = Instant::now() + limit;
    loop {
        tokio::select! {
            biased;
            answer = asked.join_next() => match answer {
                Some(Ok(answer)) => {
                    if answer.is_ok() {
                        until = until.min(Instant::now() + OTHERS_WITHIN);
                    }
                    told.push(answer);
                }
                Some(Err(_)) => {}
                None => return told,
            },
            () = sleep_until(until) => return told,
        }
    }
}

/// Asks a server about the file, by HEAD, or for the first byte if that fails.
async fn ask(engine: &Engine, mirror: &Mirror) -> Result<Facts, LaneError> {
    let (net, url, trust) = (&engine.net, &mirror.url, mirror.trust);
    let source = swath_source::open(Opening { net, url, trust, sealed: None })?;
    match source.describe().await {
        Ok(facts) => Ok(facts),
        Err(error) => {
            let part = source.fetch_part(Range::of_len(0, 1)).await;
            part.map(|(facts, _)| facts).map_err(|_| error)
        }
    }
}

/// Returns the address of a Metalink in place of the file or beside it, if the caller wants it.
fn metalink_among(request: &Request, told: &[Result<Facts, LaneError>]) -> Option<url::Url> {
    let facts = told.iter().flatten().filter(|_| request.metalinks);
    facts.into_iter().find_map(|facts| {
        let is_it = facts.content_type.as_deref().is_some_and(metalink::is_media_type);
        let own = facts.final_url.clone();
        // An address with the usual name of a Metalink asks for the Metalink itself.
        let own = own.filter(|url| is_it && !metalink::is_file_name(url.path()));
        own.or_else(|| {
            let link = facts.links.iter().find(|link| link.is_metalink())?;
            url::Url::parse(&link.target).ok()
        })
    })
}

/// Returns `Ok` if at least as many servers agree on size and time as disagree.
fn by_size_and_time(there: &Metadata, told: &[Result<Facts, LaneError>]) -> Result<(), Unlike> {
    let bytes = there.len();
    let since = there.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let seconds = since.map_or(0, |since| since.as_secs());
    let mut agree = 0;
    let mut unlike = Vec::new();
    for facts in told.iter().flatten() {
        let time = facts.last_modified.as_deref().and_then(http_date::parse);
        match (facts.size_bytes, time) {
            (Some(expected), _) if expected != bytes => {
                unlike.push(Unlike::Size { bytes, expected });
            }
            (Some(_), Some(expected)) if expected == seconds => agree += 1,
            (Some(_), Some(expected)) => unlike.push(Unlike::Time { seconds, expected }),
            _ => {}
        }
    }
    if agree > 0 && agree >= unlike.len() {
        return Ok(());
    }
    Err(match (unlike.into_iter().next(), told.iter().find_map(|it| it.as_ref().err())) {
        (Some(unlike), _) => unlike,
        (None, Some(error)) if told.iter().all(Result::is_err) => {
            Unlike::Unasked(error.to_string())
        }
        (None, _) if told.is_empty() => Unlike::Unasked("no answer came in time".to_owned()),
        (None, _) => Unlike::Untold,
    })
}

/// Longest comparison of a file without a note.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// Most servers asked about an existing file: enough to outvote one that is wrong.
const ASKED_MAX: usize = 8;
/// Longest wait for any server, whatever the stall limit of the transfer.
const LONGEST_S: f64 = 30.0;
/// Longest wait for the others, once one has answered.
const OTHERS_WITHIN: Duration = Duration::from_secs(3);
