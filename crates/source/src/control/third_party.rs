//! Third-party copies of single files between servers of others: one of them is asked to fetch the file
//! from the other, or to send it there (WLCG HTTP third-party copy).

use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_formats::digest_header;
use swath_formats::markers::{Markers, Outcome};
use swath_model::digest::Digest;
use tokio::time::Instant;
use url::Url;

use super::exchange::Exchange;
use super::{Method, Opened, Request, ask, open, refused};
use crate::error::LaneError;
use crate::http::request::Lines;
use crate::net::{Net, Secret};
use crate::shown::without_credentials;
use crate::source::Trust;

/// Which of the two servers is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyWay {
    /// The destination, which fetches.
    Pull,
    /// The source, which sends.
    Push,
}

/// A third-party copy of a file.
#[derive(Clone, Debug)]
pub struct CopyRequest<'a> {
    /// Which server is asked.
    pub way: CopyWay,
    /// The source.
    pub from: &'a Url,
    /// The destination.
    pub to: &'a Url,
    /// The token that the asked server shows the other one.
    pub token: Option<&'a Secret>,
    /// Known digests of the file.
    pub digests: &'a [Digest],
}

/// A third-party copy that a server carries out, until this is dropped.
pub struct RemoteCopy {
    exchange: Exchange,
    markers: Markers,
}

/// How a server tells of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyTold {
    /// More is copied.
    More,
    /// The copy has ended.
    Ended(Outcome),
    /// The answer has ended without an outcome.
    Nothing,
}

impl RemoteCopy {
    /// Asks one of the servers to copy a file, which replaces another one.
    ///
    /// # Errors
    /// Any [`LaneError`]; a refusal among them.
    pub fn begin<'a>(
        net: &'a Net,
        request: &'a CopyRequest<'a>,
    ) -> BoxFuture<'a, Result<RemoteCopy, LaneError>> {
        Box::pin(async move {
            let (asked, name, other) = match request.way {
                CopyWay::Pull => (request.to, "Source", request.from),
                CopyWay::Push => (request.from, "Destination", request.to),
            };
            let other = without_credentials(other);
            // Without the second line dCache waits for a certificate of the user.
            let mut more = Lines::default()
                .with(name, other.as_str())
                .with("Credential", "none")
                .with("Overwrite", "T");
            if let Some(token) = request.token {
                more.add("TransferHeaderAuthorization", &format!("Bearer {}", token.expose()));
            }
            if !request.digests.is_empty() {
                more.add("Repr-Digest", &digest_header::write(request.digests));
            }
            let method = Method::Other("COPY");
            let request = Request { method, more: &more, ..Request::GET };
            let opened =
                net.awake().within(BEGINS_WITHIN, open(net, asked, Trust::Named, &request));
            let Opened { mut exchange, head, target, .. } =
                opened.await.ok_or(LaneError::Timeout { after: BEGINS_WITHIN })??;
            if !(200..300).contains(&head.status) {
                return Err(refused(&mut exchange, &target, &head).await);
            }
            Ok(RemoteCopy { exchange, markers: Markers::default() })
        })
    }

    /// Returns the bytes that are copied so far, as the server counts them.
    pub fn copied_bytes(&self) -> u64 {
        self.markers.copied_bytes()
    }

    /// What the server tells next. Nothing is lost if this is given up while it waits.
    ///
    /// # Errors
    /// Any [`LaneError`]; a timeout if the server is silent for two minutes.
    pub fn next<'a>(&'a mut self) -> BoxFuture<'a, Result<CopyTold, LaneError>> {
        Box::pin(async move {
            let until = Instant::now() + SILENCE_MAX;
            let part = loop {
                match self.exchange.next_part().await {
                    Err(LaneError::Timeout { .. }) if Instant::now() < until => {}
                    Err(LaneError::Timeout { .. }) => {
                        return Err(LaneError::Timeout { after: SILENCE_MAX });
                    }
                    // The outcome counts, not how the connection ended after it.
                    Err(error) => {
                        self.markers.end();
                        match self.markers.outcome() {
                            Some(_) => break Vec::new(),
                            None => return Err(error),
                        }
                    }
                    Ok(part) => break part,
                }
            };
            match part.is_empty() {
                true => self.markers.end(),
                false => self.markers.take(&part),
            }
            Ok(match self.markers.outcome() {
                Some(outcome) => CopyTold::Ended(outcome.clone()),
                None if part.is_empty() => CopyTold::Nothing,
                None => CopyTold::More,
            })
        })
    }
}

/// Makes the folder at `url`; `false` if there is something of this name.
///
/// # Errors
/// Any [`LaneError`]; 409 if the folder above it does not exist.
pub fn make_folder<'a>(net: &'a Net, url: &'a Url) -> BoxFuture<'a, Result<bool, LaneError>> {
    Box::pin(async move {
        let method = Method::Other("MKCOL");
        let request = Request { method, ..Request::GET };
        let answered = ask(net, url, Trust::Named, &request).await?;
        if answered.head.status == 405 {
            return Ok(false);
        }
        answered.expect_status(&[200, 201, 204])?;
        Ok(true)
    })
}

/// Some servers answer only when they have connected to the other one.
const BEGINS_WITHIN: Duration = Duration::from_secs(120);
/// Markers are due every 30 seconds at least.
const SILENCE_MAX: Duration = Duration::from_secs(120);
