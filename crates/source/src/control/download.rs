//! A document that is taken in while it comes: the index of a dataset.

use futures_util::future::BoxFuture;
use url::Url;

use super::exchange::Exchange;
use super::{Method, Opened, Request, open, refused};
use crate::error::LaneError;
use crate::http::head::Head;
use crate::net::Net;
use crate::shown::without_credentials;
use crate::source::Trust;

/// A document that is coming.
pub struct Download {
    exchange: Exchange,
    head: Head,
    final_url: Url,
}

impl Download {
    /// Asks for the document at `url`, in one of the media types in `accept`.
    ///
    /// # Errors
    /// Any [`LaneError`]; an answer other than 200 among them.
    pub fn begin<'a>(
        net: &'a Net,
        url: &'a Url,
        trust: Trust,
        accept: &'a str,
    ) -> BoxFuture<'a, Result<Download, LaneError>> {
        Box::pin(async move { Download::ask(net, url, trust, accept, Method::Get).await })
    }

    /// As [`Download::begin`], with POST and this body: what is asked for changes something there.
    ///
    /// # Errors
    /// As [`Download::begin`].
    pub fn begin_by_post<'a>(
        net: &'a Net,
        url: &'a Url,
        trust: Trust,
        accept: &'a str,
        body: &'a [u8],
    ) -> BoxFuture<'a, Result<Download, LaneError>> {
        Box::pin(async move { Download::ask(net, url, trust, accept, Method::Post(body)).await })
    }

    async fn ask(
        net: &Net,
        url: &Url,
        trust: Trust,
        accept: &str,
        method: Method<'_>,
    ) -> Result<Download, LaneError> {
        let request = Request { method, accept, ..Request::GET };
        let limit = net.timeout();
        let opened = net.awake().within(limit, open(net, url, trust, &request)).await;
        let Opened { mut exchange, head, target, .. } =
            opened.ok_or(LaneError::Timeout { after: limit })??;
        if head.status != 200 {
            return Err(refused(&mut exchange, &target, &head).await);
        }
        Ok(Download { exchange, head, final_url: without_credentials(&target.url) })
    }

    /// A header field of the answer, by its lower-case name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    /// Returns where it comes from after redirects, without credentials.
    pub fn final_url(&self) -> &Url {
        &self.final_url
    }

    /// The next bytes of it; none at its end. Nothing is lost if this is given up while it waits.
    ///
    /// # Errors
    /// Any [`LaneError`]; [`LaneError::Truncated`] if it ends early.
    pub fn next<'a>(&'a mut self) -> BoxFuture<'a, Result<Vec<u8>, LaneError>> {
        Box::pin(async move { self.exchange.next_part().await })
    }
}
