//! The Metalink of a file: its name, size, known digests and address. Clients that speak Metalink
//! find it by `Link: rel=describedby`.

use std::fs::File;

use swath_formats::metalink::{self, Metalink, Mirror};
use swath_formats::mirror_url;
use swath_model::digest::Algorithm;
use swath_model::path::SafePath;

use super::built_in::address_of_file;
use super::digests::{Digests, Effort, Found};
use super::file::{not_found, refusal};
use crate::http::{Content, Response};

/// Value of the `Link` field of the file at `address`.
pub(super) fn link(address: &[u8]) -> String {
    let (there, kind) = (address_of_file(address), metalink::MEDIA_TYPE);
    let mark = if there.contains('?') { '&' } else { '?' };
    format!("</{there}{mark}metalink>; rel=describedby; type=\"{kind}\"")
}

/// The Metalink of `file`, which is at `address` of the server that calls itself `base`
/// (`https://host:port`). Blocks on the disk.
pub(super) fn describe(file: &File, address: &[u8], base: &str, digests: &Digests) -> Response {
    let meta = match file.metadata() {
        Ok(meta) if meta.is_file() => meta,
        Ok(_) => return not_found(),
        Err(error) => return refusal(&error),
    };
    let name = address.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let name = std::str::from_utf8(name).ok().and_then(|name| SafePath::new(name).ok());
    let url = mirror_url(&format!("{base}/{}", address_of_file(address)), None);
    let (Some(name), Ok(url)) = (name, url) else {
        return Response::text(400, "a Metalink cannot name this file or this server");
    };
    let mut described = metalink::File::new(name);
    described.size_bytes = Some(meta.len());
    // All that are known, and one that is quick to find out.
    for algorithm in Algorithm::ALL {
        let effort = if algorithm == Algorithm::Sha256 { Effort::Little } else { Effort::None };
        match digests.find(file, &meta, &[algorithm], &effort) {
            Ok(Found::Digest(digest)) => described.digests.push(digest),
            Ok(Found::Nothing | Found::TakesMore) => {}
            Err(error) => return refusal(&error),
        }
    }
    described.mirrors.push(Mirror::new(url));
    let mut whole = Metalink::default();
    whole.header.generator = Some(super::SERVER.to_owned());
    whole.files.push(described);
    Response::empty(200)
        .with("content-type", metalink::MEDIA_TYPE)
        .with("cache-control", "no-cache")
        .containing(Content::Bytes(metalink::to_string(&whole).into_bytes()))
}
