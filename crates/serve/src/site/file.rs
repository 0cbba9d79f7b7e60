//! Answers requests for files: ranges, conditions, media types.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::io::Errno;
use swath_formats::conditions::{Current, Decision};
use swath_formats::percent::encode;
use swath_formats::range_header::{self, Ranges};
use swath_formats::{Etag, digest_header};
use swath_model::index::Mtime;
use swath_model::{Range, counted};
use swath_store::tree::Root;

use super::digests::{Digests, Effort, Found};
use super::lists::Turn;
use super::sizes::Sizes;
use super::{Site, listing, metalink};
use crate::http::{Content, Head, Method, Piece, Response, now_s};

/// A request for a file or a folder, with what of the site its answer needs.
pub(super) struct Request {
    head: Head,
    /// `https://host:port`, as the client knows it.
    base: String,
    listing: listing::View,
    server: listing::ServerInfo,
    follow_links: bool,
    digests: Arc<Digests>,
    sizes: Sizes,
}

impl Request {
    pub fn of(head: &Head, site: &Site) -> Arc<Request> {
        Arc::new(Request {
            head: head.clone(),
            base: format!("{}://{}", site.scheme, head.field("host").unwrap_or_default()),
            listing: listing::View::of(head),
            server: listing::ServerInfo::of(site, head),
            follow_links: site.follow_links,
            digests: Arc::clone(&site.digests),
            sizes: site.sizes.clone(),
        })
    }

    /// Answers; `None` where a digest is waited for that takes more than this effort. Blocks on the
    /// disk.
    pub fn answer(
        &self,
        root: &Root,
        path: &[u8],
        effort: &Effort,
        turn: Option<Turn>,
    ) -> Option<Response> {
        let found = if self.follow_links { root.file_through_links(path) } else { root.file(path) };
        let file = match found {
            Ok(file) => file,
            Err(error) => return Some(refusal(&error)),
        };
        let meta = match file.metadata() {
            Ok(meta) => meta,
            Err(error) => return Some(refusal(&error)),
        };
        let target = &self.head.target;
        if meta.is_dir() {
            if !target.is_folder {
                let there = format!("/{}/{}", encode(&target.path), self.head.query());
                let moved = Response::text(301, "a folder's address ends in '/'");
                return Some(moved.with("location", there));
            }
            // It became a folder meanwhile.
            let Some(turn) = turn else { return Some(not_found()) };
            let entries = root.list(path, self.follow_links);
            return Some(match entries {
                Ok(entries) => {
                    self.listing.page(entries, &target.path, &self.server, &self.sizes, &turn)
                }
                Err(error) => refusal(&error),
            });
        }
        if !meta.is_file() || target.is_folder {
            return Some(not_found());
        }
        if target.parameter("metalink").is_some() {
            return Some(metalink::describe(&file, &target.path, &self.base, &self.digests));
        }
        self.answer_file(file, &meta, path, effort)
    }

    fn answer_file(
        &self,
        file: File,
        meta: &Metadata,
        path: &[u8],
        effort: &Effort,
    ) -> Option<Response> {
        let size_bytes = meta.len();
        let etag = etag(meta);
        let modified_s = modified_s(meta);
        let describe = |response: Response| {
            // What somebody has put here is no part of this site: no other type is guessed, and its
            // scripts run apart from the server's pages and without their logins.
            let response = response
                .with("accept-ranges", "bytes")
                .with("etag", etag.as_str())
                .with("x-content-type-options", "nosniff")
                .with("content-security-policy", "sandbox allow-scripts");
            // A Metalink that proves nothing is not worth the round trips.
            let response = match self.digests.tells(meta) {
                true => response.with("link", metalink::link(&self.head.target.path)),
                false => response,
            };
            match modified_s {
                Some(at) => response.with("last-modified", swath_formats::http_date::write(at)),
                None => response,
            }
        };
        let field = |name| self.head.field(name);
        let conditions = self.head.conditions();
        let current = Current { etag: Some(&etag), modified_s };
        match conditions.decide(current, true) {
            Decision::Proceed => {}
            Decision::NotModified => return Some(describe(Response::empty(304))),
            Decision::Failed => {
                let failed = Response::text(412, "the file is not as the request supposes");
                return Some(describe(failed));
            }
        }
        let wanted = [
            field("want-repr-digest").map_or_else(Vec::new, digest_header::wanted),
            field("want-digest").map_or_else(Vec::new, digest_header::wanted_of_old),
        ];
        let is_get = self.head.method == Method::GET;
        let mut digests = [None; 2];
        let mut effort = effort;
        for (digest, wanted) in digests.iter_mut().zip(&wanted) {
            *digest = match self.digests.find(&file, meta, wanted, effort) {
                // One digest is worth reading the file: of the other header only one that is known.
                Ok(Found::Digest(digest)) => {
                    effort = &Effort::None;
                    Some(digest)
                }
                Ok(Found::Nothing) => None,
                // Who asks for the file itself does not want to wait until it has been read once.
                Ok(Found::TakesMore) if !is_get => return None,
                Ok(Found::TakesMore) => None,
                Err(error) => return Some(refusal(&error)),
            };
        }
        let [digest, old_digest] = digests;
        let describe = |response: Response| {
            let mut response = describe(response);
            if let Some(digest) = digest {
                response = response.with("repr-digest", digest_header::write(&[digest]));
            }
            if let Some(digest) = old_digest {
                response = response.with("digest", digest_header::write_old(&[digest]));
            }
            response
        };
        let kind = media_type(path);
        let counts = conditions.range_counts(current, now_s());
        // Of HEAD a range is no part (RFC 9110, section 14.2).
        let ranges = match field("range").filter(|_| counts && is_get) {
            Some(value) => range_header::parse(value, size_bytes),
            None => Ranges::Whole,
        };
        let file = Arc::new(file);
        let part = |range| Piece::Part { file: Arc::clone(&file), range };
        Some(match ranges {
            Ranges::Unsatisfiable => describe(
                Response::text(416, format!("the file has {}", counted(size_bytes, "byte")))
                    .with("content-range", format!("bytes */{size_bytes}")),
            ),
            Ranges::Whole => describe(Response::empty(200).with("content-type", kind))
                .containing(Content::Pieces(vec![part(Range::new(0, size_bytes))])),
            Ranges::Parts(parts) => match parts.as_slice() {
                [one] => describe(
                    Response::empty(206)
                        .with("content-type", kind)
                        .with("content-range", content_range(*one, size_bytes)),
                )
                .containing(Content::Pieces(vec![part(*one)])),
                _ => {
                    let (boundary, pieces) = multipart(&parts, size_bytes, kind, &etag, part);
                    let kind = format!("multipart/byteranges; boundary={boundary}");
                    describe(Response::empty(206).with("content-type", kind))
                        .containing(Content::Pieces(pieces))
                }
            },
        })
    }
}

/// Several parts in one body (RFC 9110, section 14.6).
fn multipart(
    parts: &[Range],
    size_bytes: u64,
    kind: &str,
    etag: &Etag,
    part: impl Fn(Range) -> Piece,
) -> (String, Vec<Piece>) {
    // Nobody who writes the file knows it in advance: it depends on the time of writing.
    let seed = blake3::hash(format!("{}{parts:?}", etag.as_str()).as_bytes());
    let boundary = seed.to_hex()[..32].to_owned();
    let mut pieces = Vec::new();
    for (at, &range) in parts.iter().enumerate() {
        let start = if at == 0 { "" } else { "\r\n" };
        let range_text = content_range(range, size_bytes);
        let text = format!(
            "{start}--{boundary}\r\ncontent-type: {kind}\r\ncontent-range: {range_text}\r\n\r\n"
        );
        pieces.push(Piece::Text(text.into_bytes()));
        pieces.push(part(range));
    }
    pieces.push(Piece::Text(format!("\r\n--{boundary}--\r\n").into_bytes()));
    (boundary, pieces)
}

fn content_range(range: Range, size_bytes: u64) -> String {
    format!("bytes {}-{}/{size_bytes}", range.start, range.end - 1)
}

/// The media type of a file, by its name.
pub(super) fn media_type(path: &[u8]) -> &'static str {
    let guess = mime_guess::from_path(String::from_utf8_lossy(path).as_ref());
    guess.first_raw().unwrap_or("application/octet-stream")
}

/// The tag of a file's version: its size and the time of its last change, to the nanosecond. So
/// copies that keep times have equal tags, on whatever server they lie.
pub(super) fn etag(meta: &Metadata) -> Etag {
    let nanoseconds = u32::try_from(meta.mtime_nsec()).unwrap_or(0);
    etag_of(meta.len(), Mtime { seconds: meta.mtime(), nanoseconds })
}

/// The same of a file that is not open.
pub(super) fn etag_of(size_bytes: u64, mtime: Mtime) -> Etag {
    let text = format!("\"{size_bytes:x}-{:x}.{:x}\"", mtime.seconds, mtime.nanoseconds);
    // It has quotes and no control characters.
    Etag::parse(&text).unwrap_or_else(|| unreachable!("a tag of digits"))
}

/// The time of a file's last change, in seconds since 1970.
pub(super) fn modified_s(meta: &Metadata) -> Option<u64> {
    u64::try_from(meta.mtime()).ok()
}

pub(super) fn not_found() -> Response {
    Response::text(404, "there is nothing of this name here")
}

/// What an error of the file system means to whoever asks.
pub(super) fn refusal(error: &io::Error) -> Response {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => Response::text(403, "this may not be read"),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
            Response::text(503, "too much is under way here just now").with("retry-after", "5")
        }
        Some(Errno::IO | Errno::STALE) => Response::text(500, "the disk cannot read this"),
        // Links that are not followed, names that cannot be, and what is simply not there.
        _ => not_found(),
    }
}
