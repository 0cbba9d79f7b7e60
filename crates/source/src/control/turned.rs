//! A connection that is turned round: we have dialled, and from then on the other side asks.

use url::Url;

use super::exchange::Exchange;
use super::{Opened, Request, open};
use crate::error::LaneError;
use crate::http::head::shortened;
use crate::http::request::Lines;
use crate::net::{Net, Tunnel};
use crate::source::Trust;

impl Tunnel {
    /// Dials `url` and asks for the connection to be turned into one of `protocol`, on which the other
    /// side asks.
    ///
    /// # Errors
    /// Any [`LaneError`]; an answer other than 101 among them.
    pub async fn upgraded(
        net: &Net,
        url: &Url,
        trust: Trust,
        protocol: &str,
    ) -> Result<Tunnel, LaneError> {
        let more = Lines::default().with("Connection", "upgrade").with("Upgrade", protocol);
        let request = Request { more: &more, ..Request::GET };
        let limit = net.timeout();
        let opened = net.awake().within(limit, open(net, url, trust, &request)).await;
        let Opened { exchange, head, target, .. } =
            opened.ok_or(LaneError::Timeout { after: limit })??;
        if head.status != 101 {
            return Err(target.explain(LaneError::status(
                head.status,
                shortened(&head.reason),
                crate::http::answer::retry_after(&head),
            )));
        }
        let (conn, early) = Exchange::into_parts(exchange);
        Ok(Tunnel::new(conn, early))
    }
}
