//! Connections to an origin that relays carry without reading them. We ask the first relay for a
//! tunnel to the second, in that tunnel the second one for a tunnel to the third, and so on, and speak
//! TLS with each of them that does: so each hears what is meant for it alone, its token above all, and
//! those before it hear neither that nor where it goes on.
//!
//! With a relay behind the first that speaks no TLS, the one before it reads along. What opens such a
//! one is encrypted for it (`swath-pass`), or not shown.

use std::future::poll_fn;
use std::time::{Duration, Instant};
use swath_formats::plain_http::SpeaksHttps;
use swath_model::path::is_treacherous;

use swath_formats::{ProxyFault, proxy_status, relay};
use url::Url;

use super::Net;
use super::conn::{Conn, Tunnel, Via};
use super::connect::{CONNECT_WITHIN, handshake_failed, named_in_tls};
use crate::error::LaneError;
use crate::hpke::Pass;
use crate::http::head::shortened;
use crate::http::request::Lines;
use crate::source::Trust;
use crate::target::Origin;
use crate::upstream::Upstream;
use swath_transport::encrypted;

impl Net {
    /// Returns a new connection to `origin` by way of relays, the nearest first. Its round trip is that to the
    /// origin.
    pub(super) async fn connect_carried(
        &self,
        origin: &Origin,
        via: &Via,
    ) -> Result<Conn, LaneError> {
        let limit = self.timeout().min(CONNECT_WITHIN);
        let connecting = async {
            let behind = via.iter().skip(1).filter(|relay| relay.scheme() == "http");
            let keys = self.keys_of(behind);
            let connected = self.carried(origin, via).await;
            let is_closed = matches!(
                connected,
                Err(LaneError::Relay { fault: Some(ProxyFault::OtherKey), .. })
            );
            if is_closed && self.have_changed(&keys).await {
                return self.carried(origin, via).await;
            }
            connected
        };
        let connected = self.awake().within(limit, connecting).await;
        connected.unwrap_or_else(|| {
            Err(LaneError::Connect {
                host: origin.to_string(),
                timed_out: true,
                reason: format!("no answer within {} s", limit.as_secs_f64()),
            })
        })
    }

    async fn carried(&self, origin: &Origin, via: &Via) -> Result<Conn, LaneError> {
        let no_origin = |url: &Url| LaneError::Scheme { scheme: url.scheme().to_owned() };
        let (first, rest) =
            via.split_first().ok_or_else(|| LaneError::Scheme { scheme: "none".to_owned() })?;
        let own = Origin::of(first).ok_or_else(|| no_origin(first))?;
        let mut conn = Box::pin(self.connect_to(&own, Trust::Named, true, false)).await?;
        let near = conn.rtt;
        for (at, relay) in via.iter().enumerate() {
            let end = match rest.get(at) {
                Some(next) => &Origin::of(next).ok_or_else(|| no_origin(next))?,
                None => origin,
            };
            // The way to the first one is nobody's but ours; what is sent in a tunnel, the relay that
            // carries it could read.
            let is_private = at == 0 || relay.scheme() == "https";
            let tunnel = self.tunnel(conn, relay, end, is_private).await?;
            conn = self.in_tunnel(tunnel, end, via, near).await?;
        }
        Ok(conn)
    }

    /// Returns what is spoken in a tunnel with its other end.
    async fn in_tunnel(
        &self,
        tunnel: Tunnel,
        end: &Origin,
        via: &Via,
        near: Duration,
    ) -> Result<Conn, LaneError> {
        let peer = tunnel.peer();
        if !end.tls {
            return Ok(Conn::new(Box::new(tunnel), end.clone(), peer, near).carried_by(via));
        }
        let name = named_in_tls(end)?;
        let began = Instant::now();
        match encrypted(tunnel, &self.tls(end)?, name).await {
            Ok(tls) => {
                // One round trip to the other end, and its work for it.
                let rtt = began.elapsed().max(near);
                Ok(Conn::new(tls, end.clone(), peer, rtt).carried_by(via))
            }
            Err(error) => Err(handshake_failed(end, &error)),
        }
    }

    /// Asks the relay at the other end of `conn` for a tunnel to `end`.
    async fn tunnel(
        &self,
        conn: Conn,
        url: &Url,
        end: &Origin,
        is_private: bool,
    ) -> Result<Tunnel, LaneError> {
        let mut upstream = Upstream::new(self.clone(), conn);
        let end_name = end.to_string();
        let mut request = Lines::request("CONNECT", &end_name, &end_name);
        if is_private {
            let own = Origin::of(url).map(|own| self.credentials_for_relay(&own));
            if let Some(authorization) = own.and_then(|own| own.authorization) {
                request.add("Proxy-Authorization", authorization.value().expose());
            }
        } else if let Some(encrypted) = self.encrypted_pass(url, Pass::Tunnel(&end_name)) {
            request.add("swath-pass", &encrypted);
        }
        upstream.send(&request.end()?);
        poll_fn(|cx| upstream.poll_send(cx)).await.map_err(|error| LaneError::reset(&error))?;
        // What follows a success is the tunnel, whatever its head says of a body.
        let head = poll_fn(|cx| upstream.poll_head(cx, true)).await?;
        let name = relay::site(url).unwrap_or_default();
        let refused =
            |fault, reason: String| LaneError::Relay { relay: name.clone(), fault, reason };
        let Some(head) = head else {
            return Err(refused(None, "it closed the connection".to_owned()));
        };
        if head.status / 100 == 2 {
            return Ok(upstream.into_tunnel());
        }
        if let Some(who) = SpeaksHttps::read(head.status, &head.reason) {
            return Err(LaneError::SpeaksHttps(who));
        }
        let told = head.fields.iter().find(|(name, _)| name == "proxy-status");
        match told.and_then(|(_, value)| proxy_status::read(value)) {
            Some(told) => {
                let details = told.details.unwrap_or_default();
                let reason: String = details.chars().filter(|it| !is_treacherous(*it)).collect();
                Err(refused(told.fault.or(ProxyFault::of_status(head.status)), reason))
            }
            None => {
                let reason = format!("it answered {} {}", head.status, shortened(&head.reason));
                Err(refused(ProxyFault::of_status(head.status), reason))
            }
        }
    }
}
