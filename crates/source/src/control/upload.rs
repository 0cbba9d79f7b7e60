//! A file that is sent by `PUT` (RFC 9110, section 9.3.4).
//!
//! Whoever will refuse it is given the time to say so before it is sent (`Expect: 100-continue`),
//! and is heard at any time while it is.

use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_formats::digest_header;
use swath_model::digest::Digest;
use url::Url;

use super::exchange::{Exchange, Opening};
use super::refused;
use crate::cookies::Cookies;
use crate::error::LaneError;
use crate::net::Net;
use crate::redirect::{self, Visit};
use crate::source::Trust;
use crate::target::Target;

/// A file that is on its way to a server.
pub struct Upload {
    exchange: Exchange,
    target: Target,
    length_bytes: u64,
    /// The server has answered before all of it was sent.
    is_answered: bool,
}

/// What a server says of a file that it has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// There was nothing of this name before.
    pub is_new: bool,
    /// The digest that was sent with it was checked there, as far as is known of this server.
    pub is_checked: bool,
}

impl Upload {
    /// Asks the server to take a file of `length_bytes` bytes, with this digest if it is known, at `url`. Redirects
    /// are followed, with the credentials of `url` alone.
    ///
    /// # Errors
    /// Any [`LaneError`]; a refusal among them.
    pub fn begin<'a>(
        net: &'a Net,
        url: &'a Url,
        length_bytes: u64,
        digest: Option<&'a Digest>,
    ) -> BoxFuture<'a, Result<Upload, LaneError>> {
        Box::pin(async move {
            net.note_named(url);
            let (mut visited, mut cookies) = (Vec::new(), Cookies::default());
            let mut at = url.clone();
            // Nothing is to be waited for where nothing will be sent.
            let mut expects = length_bytes > 0;
            loop {
                let target = Target::new(net, url, &at, Trust::Named).showing(&cookies);
                let renewals = net.token_renewals();
                let conn = net.connect(&target, false, false).await?;
                let mut exchange = Exchange::new(conn, net, net.timeout());
                exchange.send(&request(&target, length_bytes, digest, expects)?).await?;
                let answer = match expects {
                    true => exchange.leave(LEAVE_WITHIN.min(net.timeout())).await?,
                    false => None,
                };
                let Some(Opening { head, .. }) = answer else {
                    return Ok(Upload { exchange, target, length_bytes, is_answered: false });
                };
                // Its token was renewed meanwhile.
                if matches!(head.status, 401 | 403) && net.has_renewed_tokens(renewals) {
                    continue;
                }
                let location = match head.status {
                    301 | 302 | 307 | 308 => head.field("location"),
                    _ => None,
                };
                match location {
                    Some(location) => {
                        cookies.take(&at, &head);
                        let from = Visit { url: at, cookies: target.cookies };
                        at = redirect::follow(from, location, &mut visited, &cookies)?;
                    }
                    // It knows no expectations (RFC 9110, section 10.1.1).
                    None if head.status == 417 && expects => expects = false,
                    None if head.status < 300 => return Err(LaneError::protocol(EARLY)),
                    None => return Err(refused(&mut exchange, &target, &head).await),
                }
            }
        })
    }

    /// Sends the next part; `false` if the server has said by now what becomes of it, so that
    /// nothing more need be sent.
    ///
    /// # Errors
    /// Any [`LaneError`].
    pub fn send<'a>(&'a mut self, part: &'a [u8]) -> BoxFuture<'a, Result<bool, LaneError>> {
        Box::pin(async move {
            if !self.is_answered {
                self.is_answered = !self.exchange.send_or_hear(part).await?;
            }
            Ok(!self.is_answered)
        })
    }

    /// All of it was sent, or need not be: what the server says.
    ///
    /// # Errors
    /// Any [`LaneError`]; a refusal among them.
    pub fn finish(mut self) -> BoxFuture<'static, Result<Stored, LaneError>> {
        Box::pin(async move {
            // All of it has to be on a disk there first.
            let patience = Duration::from_secs(self.length_bytes / DURABLE_BYTES_PER_S);
            let Opening { head, .. } = self.exchange.opening_after(patience).await?;
            match head.status {
                200 | 201 | 204 if !self.is_answered => {
                    let server = head.field("server").unwrap_or_default();
                    Ok(Stored {
                        is_new: head.status == 201,
                        is_checked: server.trim_start().starts_with("swath/"),
                    })
                }
                200..300 => Err(LaneError::protocol(EARLY)),
                _ => Err(refused(&mut self.exchange, &self.target, &head).await),
            }
        })
    }
}

fn request(
    target: &Target,
    length_bytes: u64,
    digest: Option<&Digest>,
    expects: bool,
) -> Result<Vec<u8>, LaneError> {
    let digest = digest.map(|digest| digest_header::write(std::slice::from_ref(digest)));
    target
        .begin("PUT", Some("*/*"))
        .with("Content-Type", "application/octet-stream")
        .with("Content-Length", &length_bytes.to_string())
        .with("Swath-Folders", "make")
        .with_any("Repr-Digest", digest.as_deref())
        .with_any("Expect", expects.then_some("100-continue"))
        .end()
}

const EARLY: &str = "it says that it has the file before all of it was sent";
/// A server that says nothing for so long does not know how to wait. The same time as curl's.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);
/// A server's disk is at least so fast.
const DURABLE_BYTES_PER_S: u64 = 8 << 20;
