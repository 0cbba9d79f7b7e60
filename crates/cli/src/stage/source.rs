//! The file to stage: the addresses of its replicas, or its Metalink.

use std::fs;
use std::path::Path;

use crate::failure::Failure;
use swath_formats::metalink;
use swath_model::digest::Digest;
use swath_model::path::SafePath;
use swath_model::pieces::Pieces;
use swath_source::{Net, fetch_small};
use swath_transfer::{Mirror, Trust};
use url::Url;

use super::args::Stage;
use crate::exit::{Exit, chain};
use crate::net::{parse_url, shown_text};
use swath_jobs::name_of;
use swath_source::display_name as shown;

/// One file.
pub struct Source {
    /// Its name.
    pub name: SafePath,
    pub mirrors: Vec<Mirror>,
    pub size_bytes: Option<u64>,
    pub digests: Vec<Digest>,
    pub pieces: Option<Pieces>,
}

/// Reads the sources of the command line.
pub async fn read(stage: &Stage, net: &Net) -> Result<Source, Failure> {
    let mut source = match stage.sources.as_slice() {
        [text] if !text.contains("://") => of_file(text)?,
        texts => {
            let urls = texts.iter().map(|text| parse_url(text));
            let urls = urls.collect::<Result<Vec<Url>, _>>()?;
            match urls.as_slice() {
                [url] if metalink::is_file_name(url.path()) => of_metalink_at(net, url).await?,
                _ => of_urls(stage, urls)?,
            }
        }
    };
    source.digests.extend(stage.digest.iter().copied());
    Ok(source)
}

fn of_urls(stage: &Stage, urls: Vec<Url>) -> Result<Source, Failure> {
    let stem = || {
        let stem = stage.output.as_ref()?.file_stem()?.to_str()?;
        SafePath::new(stem).ok()
    };
    let name = urls.iter().find_map(name_of).or_else(stem).ok_or_else(|| {
        let words = "does not name a file; choose a name with -o NAME.meta4";
        Failure::usage(format!("{} {words}", shown(&urls[0])))
    })?;
    let mirror = |url| Mirror { url, priority: 1, trust: Trust::Named, holds: None };
    let mirrors = urls.into_iter().map(mirror).collect();
    Ok(Source { name, mirrors, size_bytes: None, digests: Vec::new(), pieces: None })
}

fn of_file(text: &str) -> Result<Source, Failure> {
    let shown = shown_text(text);
    if !Path::new(text).is_file() {
        return Err(Failure::new(Exit::Input, format!("{shown} is neither a URL nor a file")));
    }
    let bytes = fs::read(text)
        .map_err(|error| Failure::new(Exit::Input, format!("cannot read {shown}: {error}")))?;
    of_metalink(&shown, &bytes, None, Trust::Listed)
}

async fn of_metalink_at(net: &Net, url: &Url) -> Result<Source, Failure> {
    let name = shown(url);
    let accept = "application/metalink4+xml, application/metalink+xml;q=0.9, */*;q=0.5";
    let document = fetch_small(net, url, Trust::Named, accept, METALINK_BYTES_MAX).await;
    let document = document
        .map_err(|error| Failure::sources(format!("cannot fetch the Metalink {name}: {error}")))?;
    of_metalink(&name, &document.bytes, Some(document.final_url), Trust::Discovered)
}

fn of_metalink(
    name: &str,
    bytes: &[u8],
    base: Option<Url>,
    trust: Trust,
) -> Result<Source, Failure> {
    let input = |message: String| Failure::new(Exit::Input, format!("{name}: {message}"));
    let options = metalink::Options { base, ..metalink::Options::default() };
    let read = metalink::parse_with(bytes, options).map_err(|error| input(chain(&error)))?;
    if let Some(refused) = read.refused.first() {
        return Err(input(format!("line {}: {:?}: {}", refused.line, refused.name, refused.why)));
    }
    let [file] = read.files.as_slice() else {
        let count = read.files.len();
        return Err(input(format!("it lists {count} files, and only one can be staged at a time")));
    };
    if file.mirrors.is_empty() {
        return Err(input("no mirror has the whole file".to_owned()));
    }
    let mirrors = file.mirrors.iter().map(|mirror| Mirror {
        url: mirror.url.clone(),
        priority: mirror.priority,
        trust,
        holds: None,
    });
    let mut mirrors: Vec<Mirror> = mirrors.collect();
    mirrors.sort_by_key(|mirror| mirror.priority);
    Ok(Source {
        name: file.name.clone(),
        mirrors,
        size_bytes: file.size_bytes,
        digests: file.digests.clone(),
        pieces: file.pieces.clone(),
    })
}

const METALINK_BYTES_MAX: usize = 64_000_000;
