//! Digests from checksum files.

use std::path::Path;
use std::time::Duration;

use swath_formats::checksums::Checksums;
use swath_formats::metalink;
use swath_model::digest::Digest;
use swath_source::{Net, Trust, display_name, fetch_small};
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use super::GetJob;
use super::inputs::name_of;
use crate::address::Address;
use crate::error::{ChecksumsError, JobError, SpecError};
use crate::event::Note;
use crate::spec::{ChecksumsFrom, GetFrom};

/// Returns the digests of the single file of the job. `Beside` may find none; a named checksum file
/// without the file, and an unusable line, are errors.
pub async fn find(get_job: &GetJob<'_>, from: &ChecksumsFrom) -> Result<Vec<Digest>, JobError> {
    let addresses = match &get_job.get.from {
        GetFrom::Replicas(addresses) => addresses.as_slice(),
        _ => &[],
    };
    let urls = addresses.iter().map(Address::url).collect::<Result<Vec<Url>, _>>()?;
    let of_file = urls.iter().filter(|url| !metalink::is_file_name(url.path()));
    let Some((url, name)) = of_file.clone().find_map(|url| Some((url, name_of(url)?))) else {
        return Err(SpecError::ChecksumsOfMetalink.into());
    };
    let name = name.as_str().as_bytes();
    let net = get_job.job.engine.net();
    let (title, bytes) = match from {
        ChecksumsFrom::Beside => {
            for url in of_file.take(SERVERS_ASKED) {
                if let Some((list, digests)) = beside(net, url, name).await? {
                    note(get_job, display_name(&list), &digests);
                    return Ok(digests);
                }
            }
            get_job.note(Note::NoChecksums(display_name(url)));
            return Ok(Vec::new());
        }
        ChecksumsFrom::Address(address) => {
            let list = address.url()?;
            let name = display_name(&list);
            match fetch_small(net, &list, Trust::Named, ANY, LIST_BYTES_MAX).await {
                Ok(fetched) => (name, fetched.bytes),
                Err(error) => return Err(ChecksumsError::Fetch { name, error }.into()),
            }
        }
        ChecksumsFrom::File(path) => match tokio::fs::read(path).await {
            Ok(bytes) => (path.display().to_string(), bytes),
            Err(error) => return Err(ChecksumsError::Read { path: path.clone(), error }.into()),
        },
    };
    let digests = read(&title, &bytes, name)?;
    if digests.is_empty() {
        let file = String::from_utf8_lossy(name).into_owned();
        return Err(ChecksumsError::Silent { name: title, file }.into());
    }
    note(get_job, title, &digests);
    Ok(digests)
}

/// Returns the first checksum file next to `url` that lists it.
async fn beside(
    net: &Net,
    url: &Url,
    name: &[u8],
) -> Result<Option<(Url, Vec<Digest>)>, ChecksumsError> {
    let last = url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
    let own = ENDINGS.iter().map(|ending| format!("./{last}{ending}"));
    let all = own.chain(LISTS.iter().map(|list| format!("./{list}")));
    let due = Instant::now() + ALL_WITHIN;
    for list in all.filter_map(|list| url.join(&list).ok()) {
        let asked = fetch_small(net, &list, Trust::Named, ANY, LIST_BYTES_MAX);
        let document = match timeout_at(due, timeout(ONE_WITHIN, asked)).await {
            Ok(Ok(Ok(document))) => document,
            // Not found, or the server does not answer, which the transfer will report.
            Ok(_) => continue,
            Err(_) => return Ok(None),
        };
        let digests = read(&display_name(&list), &document.bytes, name)?;
        if !digests.is_empty() {
            return Ok(Some((list, digests)));
        }
    }
    Ok(None)
}

/// Returns the digests of the file called `name` in a checksum file.
fn read(title: &str, bytes: &[u8], name: &[u8]) -> Result<Vec<Digest>, ChecksumsError> {
    let own = title.rsplit('/').next().unwrap_or(title);
    let checksums = Checksums::parse(bytes, own);
    let is_beside = checksums.entries.len() == 1;
    checksums.of(name, is_beside).map_err(|(line, problem)| {
        let file = String::from_utf8_lossy(name).into_owned();
        ChecksumsError::Line { name: title.to_owned(), line, file, problem }
    })
}

fn note(get_job: &GetJob<'_>, name: String, digests: &[Digest]) {
    let algorithms = digests.iter().map(Digest::algorithm).collect();
    get_job.note(Note::Checksums { name, algorithms });
}

/// Returns the name of the file that a checksum file such as `FILE.sha256` is for.
pub fn checked_file(sums: &Path) -> Option<&str> {
    let name = sums.file_name()?.to_str()?;
    ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)).filter(|name| !name.is_empty())
}

/// Suffixes of checksum files, the strongest first.
const ENDINGS: [&str; 6] = [".sha256", ".sha256sum", ".sha512", ".sha512sum", ".sha1", ".md5"];
/// Names of checksum files of folders.
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
/// Enough for a hundred thousand files.
const LIST_BYTES_MAX: usize = 16 << 20;
/// Time limits of one request and of all: the transfer waits for them.
const ONE_WITHIN: Duration = Duration::from_secs(5);
const ALL_WITHIN: Duration = Duration::from_secs(15);
/// Mirrors that are queried for a checksum file.
const SERVERS_ASKED: usize = 3;
