//! `--checksums`: the digest of a file from a checksum file that its publisher has beside it.

use std::path::Path;
use std::time::Duration;

use crate::failure::Failure;
use swath_formats::checksums::{ChecksumProblem, Checksums};
use swath_formats::metalink;
use swath_model::digest::Digest;
use swath_source::{Class, Trust, fetch_small};
use swath_transfer::Engine;
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use super::inputs::{name_of, shown};
use crate::args::Get;
use crate::exit::Exit;
use crate::net::parse_url;
use crate::progress::Progress;

/// The digests of the one file that the command line names. With `auto` none may be found; where a
/// checksum file is named, or one that is found says something of the file that cannot be used, that
/// is an error.
pub async fn find(get: &Get, engine: &Engine, progress: &Progress) -> Result<Vec<Digest>, Failure> {
    let which = get.checksums.as_deref().unwrap_or_default();
    let urls = get
        .sources
        .iter()
        .filter(|text| text.contains("://"))
        .map(|text| parse_url(text).map_err(Failure::usage))
        .collect::<Result<Vec<Url>, Failure>>()?;
    let of_file = urls.iter().filter(|url| !metalink::is_file_name(url.path()));
    let Some((url, name)) = of_file.clone().find_map(|url| Some((url, name_of(url)?))) else {
        let words = "--checksums is for the URL of a file: a Metalink has digests of its own";
        return Err(Failure::usage(words.to_owned()));
    };
    let name = name.as_str().as_bytes();
    if which == "auto" {
        for url in of_file.take(SERVERS_ASKED) {
            if let Some((list, digests)) = beside(engine, url, name).await? {
                note(progress, &shown(&list), &digests);
                return Ok(digests);
            }
        }
        let words = format!("no checksum file beside {} names it (--checksums auto)", shown(url));
        progress.note(&words, true);
        return Ok(Vec::new());
    }
    let (title, bytes) = match which.contains("://") {
        true => {
            let list = parse_url(which).map_err(Failure::usage)?;
            let fetched = fetch_small(engine.net(), &list, Trust::Named, ANY, LIST_BYTES_MAX).await;
            let fetched = fetched.map_err(|error| {
                Failure::sources(format!(
                    "cannot fetch the checksum file {}: {error}",
                    shown(&list)
                ))
            })?;
            (shown(&list), fetched.bytes)
        }
        false => {
            let read = tokio::fs::read(which).await;
            let unread = |error| Failure::new(Exit::Input, format!("cannot read {which}: {error}"));
            (which.to_owned(), read.map_err(unread)?)
        }
    };
    let digests = read(&title, &bytes, name)?;
    if digests.is_empty() {
        let name = String::from_utf8_lossy(name);
        return Err(Failure::new(Exit::Input, format!("{title} says nothing of {name}")));
    }
    note(progress, &title, &digests);
    Ok(digests)
}

/// The first checksum file beside `url` that names it.
async fn beside(
    engine: &Engine,
    url: &Url,
    name: &[u8],
) -> Result<Option<(Url, Vec<Digest>)>, Failure> {
    let last = url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
    let own = ENDINGS.iter().map(|ending| format!("./{last}{ending}"));
    let all = own.chain(LISTS.iter().map(|list| format!("./{list}")));
    let due = Instant::now() + ALL_WITHIN;
    for list in all.filter_map(|list| url.join(&list).ok()) {
        let asked = fetch_small(engine.net(), &list, Trust::Named, ANY, LIST_BYTES_MAX);
        let document = match timeout_at(due, timeout(ONE_WITHIN, asked)).await {
            Ok(Ok(Ok(document))) => document,
            // Nothing of that name, or nobody there: the file itself will show.
            Ok(Ok(Err(error))) if matches!(error.class(), Class::Missing | Class::Gone) => continue,
            Ok(_) => continue,
            Err(_) => return Ok(None),
        };
        let digests = read(&shown(&list), &document.bytes, name)?;
        if !digests.is_empty() {
            return Ok(Some((list, digests)));
        }
    }
    Ok(None)
}

/// What a checksum file says of the file called `name`.
fn read(title: &str, bytes: &[u8], name: &[u8]) -> Result<Vec<Digest>, Failure> {
    let own = title.rsplit('/').next().unwrap_or(title);
    let checksums = Checksums::parse(bytes, own);
    let is_beside = checksums.entries.len() == 1;
    checksums.of(name, is_beside).map_err(|(line, problem): (u64, ChecksumProblem)| {
        let name = String::from_utf8_lossy(name);
        Failure::new(
            Exit::Input,
            format!("{title}: line {line}: what it says of {name}: {problem}"),
        )
    })
}

fn note(progress: &Progress, title: &str, digests: &[Digest]) {
    let names: Vec<&str> = digests.iter().map(|digest| digest.algorithm().name()).collect();
    progress.note(&format!("the {} comes from {title}", names.join(" and ")), false);
}

/// Whether a path is meant to be a checksum file's name.
pub fn file_of(sums: &Path) -> Option<&str> {
    let name = sums.file_name()?.to_str()?;
    ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)).filter(|name| !name.is_empty())
}

/// Behind a file's own name, the stronger first.
const ENDINGS: [&str; 6] = [".sha256", ".sha256sum", ".sha512", ".sha512sum", ".sha1", ".md5"];
/// What lists of whole folders are called.
const LISTS: [&str; 10] = [
    "SHA256SUMS",
    "SHA256SUMS.txt",
    "sha256sum.txt",
    "sha256sums.txt",
    "SHA512SUMS",
    "CHECKSUM",
    "CHECKSUMS",
    "checksums.txt",
    "SHA1SUMS",
    "MD5SUMS",
];
const ANY: &str = "text/plain, */*;q=0.5";
/// A list of a hundred thousand files.
const LIST_BYTES_MAX: usize = 16 << 20;
/// For one question, and for all of them: nothing else is done meanwhile.
const ONE_WITHIN: Duration = Duration::from_secs(5);
const ALL_WITHIN: Duration = Duration::from_secs(15);
/// Mirrors that are asked for a list.
const SERVERS_ASKED: usize = 3;
