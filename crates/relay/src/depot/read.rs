//! Reads from the depot: ranges, conditions, bodies that the kernel sends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use swath_formats::conditions::{Current, Decision};
use swath_formats::range_header::{self, Ranges};
use swath_formats::{Etag, http_date};
use swath_model::{Range, RangeSet};
use swath_store::depot::{Capability, Part, ReadError, Reader, Right, Status};

use super::operation::Version;
use super::{DepotService, blocking, broken, over, seconds};
use swath_serve::http::{
    Content, Find, Finding, FoundPart, Head, Made, Make, Method, Response, now_s,
};

impl DepotService {
    /// What is stored, by the capability to read.
    pub(super) async fn read(
        self: &Arc<Self>,
        read: &Capability,
        version: Option<Version>,
        head: &Head,
    ) -> Result<Response, Response> {
        let status = self.find(read, Right::Read).await?;
        let size_bytes = status.size_bytes;
        // What is held does not change.
        let version = version.unwrap_or_else(|| Version {
            etag: Etag::parse(&format!("\"depot-{}\"", status.id)),
            modified: None,
        });
        let described = |response: Response| describe(response, &status, &version);
        let conditions = head.conditions();
        let modified_s = version.modified.as_deref().and_then(http_date::parse);
        let current = Current { etag: version.etag.as_ref(), modified_s };
        match conditions.decide(current, true) {
            Decision::Proceed => {}
            Decision::NotModified => return Ok(described(Response::empty(304))),
            Decision::Failed => {
                let text = "what is stored is not what the request supposes";
                return Err(described(Response::text(412, text)));
            }
        }
        let one = read.clone();
        let reader = self.blocking(move |depot| depot.reader(&one)).await?;
        let reader = Arc::new(reader.map_err(|error| self.unread(read, &error))?);
        let whole = Range::new(0, size_bytes);
        if head.method == Method::HEAD {
            let body = Stored { door: Arc::clone(self), reader, rest: whole, first: None };
            return Ok(described(Response::empty(200)).containing(Content::Found(Box::new(body))));
        }
        let counts = conditions.range_counts(current, now_s());
        let ranges = match head.field("range").filter(|_| counts) {
            Some(value) => range_header::parse(value, size_bytes),
            None => Ranges::Whole,
        };
        let unsatisfiable = |text: String| {
            let response = Response::text(416, text);
            Err(described(response).with("content-range", format!("bytes */{size_bytes}")))
        };
        let (range, is_part) = match ranges {
            Ranges::Unsatisfiable => {
                return unsatisfiable(format!("the allocation has {size_bytes} bytes"));
            }
            // Several at once nobody needs here: who asks for them takes the whole too.
            Ranges::Parts(parts) => match parts.as_slice() {
                [one] => (*one, true),
                _ => (whole, false),
            },
            Ranges::Whole => (whole, false),
        };
        if !status.held.covers(range) {
            return unsatisfiable(format!("of bytes {range} not all are stored (swath-held)"));
        }
        let first = {
            let (reader, found_by) = (Arc::clone(&reader), &reader);
            match blocking(move || reader.part(range)).await? {
                Ok(part) => part,
                Err(error @ (ReadError::Damaged { .. } | ReadError::NotHeld { .. })) => {
                    // Less than a moment ago.
                    let status = Status { held: found_by.held(), ..status.clone() };
                    let response =
                        describe(Response::text(416, error.to_string()), &status, &version);
                    let range = format!("bytes */{size_bytes}");
                    return Err(response.with("content-range", range));
                }
                Err(error) => return Err(self.unread(read, &error)),
            }
        };
        let response = match is_part {
            true => Response::empty(206).with(
                "content-range",
                format!("bytes {}-{}/{size_bytes}", range.start, range.end - 1),
            ),
            false => Response::empty(200),
        };
        let body = Stored { door: Arc::clone(self), reader, rest: range, first: Some(first) };
        Ok(described(response)
            .with("content-type", "application/octet-stream")
            .containing(Content::Found(Box::new(body))))
    }

    fn unread(&self, read: &Capability, error: &ReadError) -> Response {
        match error {
            ReadError::NoLease => self.nothing(read),
            ReadError::Ended => over(),
            error => broken(error),
        }
    }
}

fn describe(response: Response, status: &Status, version: &Version) -> Response {
    let mut response = response
        .with("accept-ranges", "bytes")
        .with("cache-control", "no-store")
        .with("swath-lease", seconds(status.left).to_string());
    if let Some(etag) = &version.etag {
        response = response.with("etag", etag.as_str());
    }
    if let Some(modified) = &version.modified {
        response = response.with("last-modified", modified.clone());
    }
    if !status.held.covers(Range::new(0, status.size_bytes)) {
        response = response.with("swath-held", held(&status.held));
    }
    response
}

/// Ranges as header fields have them; if there are more than a few, an ellipsis says so, and
/// `?status` tells all.
fn held(held: &RangeSet) -> String {
    let shown = held.iter().take(HELD_MAX);
    let shown = shown.map(|range| format!("{}-{}", range.start, range.end - 1));
    let more = (held.count() > HELD_MAX).then(|| "...".to_owned());
    shown.chain(more).collect::<Vec<_>>().join(", ")
}

/// Stored bytes while they are sent. If the lease ends meanwhile the body ends early, and with it
/// the connection.
struct Stored {
    door: Arc<DepotService>,
    reader: Arc<Reader>,
    rest: Range,
    /// Was looked up already.
    first: Option<Part>,
}

impl Stored {
    fn sent(&mut self, bytes: u64) {
        self.rest.start += bytes;
        self.door.figures.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Make for Stored {
    fn length(&self) -> Option<u64> {
        Some(self.rest.len())
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(async {
            let (reader, at) = (Arc::clone(&self.reader), self.rest.start);
            let most = self.rest.len().min(COPY_BYTES) as usize;
            if most == 0 {
                return Ok(Vec::new());
            }
            let read = tokio::task::spawn_blocking(move || {
                let mut bytes = vec![0; most];
                let count = reader.read(at, &mut bytes).map_err(io::Error::other)?;
                bytes.truncate(count);
                Ok::<_, io::Error>(bytes)
            });
            let bytes = read.await.map_err(io::Error::other)??;
            self.sent(bytes.len() as u64);
            Ok(bytes)
        })
    }
}

impl Find for Stored {
    fn part(&mut self) -> Finding<'_> {
        Box::pin(async {
            if self.rest.is_empty() {
                return Ok(None);
            }
            let part = match self.first.take() {
                Some(part) => part,
                None => {
                    let (reader, rest) = (Arc::clone(&self.reader), self.rest);
                    let found = tokio::task::spawn_blocking(move || reader.part(rest));
                    found.await.map_err(io::Error::other)?.map_err(io::Error::other)?
                }
            };
            let bytes = part.range.len();
            self.sent(bytes);
            let range = Range::of_len(part.position, bytes);
            Ok(Some(FoundPart { file: Box::new(part), range }))
        })
    }
}

/// A field with more ranges than this is hard to bear for those between.
const HELD_MAX: usize = 64;
/// Read at a time where the kernel cannot send files.
const COPY_BYTES: u64 = 256 << 10;
