//! Stores the body of a request.
//!
//! Bytes that arrived before an error are kept where possible: `?status` lists what is held, and
//! the client goes on from there.

use std::io;
use std::sync::atomic::Ordering;

use swath_model::Range;
use swath_store::depot::{Capability, Right, StoreError, Writer};

use super::{DepotService, blocking, broken, over};
use swath_serve::http::{Make, Response};

impl DepotService {
    /// Stores a body at `range`, or as the whole; answered once it is durable.
    pub(super) async fn store(
        &self,
        write: &Capability,
        range: Option<Range>,
        told_bytes: Option<u64>,
        body: &mut dyn Make,
    ) -> Result<Response, Response> {
        let size_bytes = self.find(write, Right::Write).await?.size_bytes;
        let range = fitting(range, told_bytes, size_bytes)?;
        let length = range.len();
        if let Some(comes) = body.length().filter(|&comes| comes != length) {
            let text = format!("the body has {comes} bytes, {length} are told");
            return Err(Response::text(400, text));
        }
        let mut writer = self.writer(write, range.start).await?;
        loop {
            let part = match body.next().await {
                Ok(part) if part.is_empty() => break,
                Ok(part) => part,
                Err(error) => {
                    commit(writer).await?;
                    return Err(match error.kind() {
                        io::ErrorKind::TimedOut => {
                            Response::text(408, "the body took too long to arrive")
                        }
                        _ => Response::text(400, format!("the body did not come: {error}")),
                    });
                }
            };
            if writer.offset() + part.len() as u64 > range.end {
                commit(writer).await?;
                return Err(Response::text(400, "the body is longer than is told"));
            }
            let came = part.len() as u64;
            let (taken, error) = put(writer, part).await?;
            writer = taken;
            if let Some(error) = error {
                commit(writer).await?;
                return Err(unstored(&error));
            }
            self.figures.stored_bytes.fetch_add(came, Ordering::Relaxed);
        }
        let at = writer.offset();
        commit(writer).await?;
        if at < range.end {
            return Err(Response::text(400, "the body is shorter than is told"));
        }
        Ok(Response::empty(204))
    }

    /// Stores from `offset` on.
    pub(super) async fn writer(&self, write: &Capability, offset: u64) -> Result<Writer, Response> {
        let one = write.clone();
        let writer = self.blocking(move |depot| depot.writer(&one, offset)).await?;
        writer.map_err(|error| match error {
            StoreError::NoLease => self.nothing(write),
            error => unstored(&error),
        })
    }
}

/// The range of an allocation that is meant, if it can be.
pub(super) fn fitting(
    range: Option<Range>,
    told_bytes: Option<u64>,
    size_bytes: u64,
) -> Result<Range, Response> {
    if told_bytes.is_some_and(|told| told != size_bytes) {
        let text = format!("the allocation has {size_bytes} bytes, another size is told");
        return Err(Response::text(409, text));
    }
    let range = range.unwrap_or(Range::new(0, size_bytes));
    if range.end > size_bytes {
        let text = format!("bytes {range} lie behind the end of the allocation at {size_bytes}");
        return Err(Response::text(413, text));
    }
    Ok(range)
}

/// Writes bytes; what went wrong, if something did.
pub(super) async fn put(
    mut writer: Writer,
    bytes: Vec<u8>,
) -> Result<(Writer, Option<StoreError>), Response> {
    blocking(move || {
        let error = writer.write(&bytes).err();
        (writer, error)
    })
    .await
}

/// Makes what was written durable.
pub(super) async fn commit(mut writer: Writer) -> Result<Writer, Response> {
    let committed = blocking(move || writer.commit().map(|_| writer)).await?;
    committed.map_err(|error| unstored(&error))
}

/// What it means to whoever stores.
pub(super) fn unstored(error: &StoreError) -> Response {
    match error {
        StoreError::NoLease | StoreError::Ended => over(),
        StoreError::PastEnd { .. } => Response::text(413, error.to_string()),
        StoreError::Differs { .. } => Response::text(409, error.to_string()),
        StoreError::Busy { .. } => Response::text(503, error.to_string()).with("retry-after", "1"),
        StoreError::TooScattered { .. } | StoreError::NoRoom { .. } | StoreError::NoSpace(_) => {
            Response::text(507, error.to_string())
        }
        error => broken(error),
    }
}
