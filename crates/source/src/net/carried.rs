//! Connections to an origin that relays carry without reading them: each relay is asked for a tunnel,
//! the first one by us, the others by one another, in one request.

use std::future::poll_fn;
use std::time::Instant;

use swath_formats::{proxy_status, relay};

use super::Net;
use super::connect::{CONNECT_WITHIN, handshake_failed, server_name};
use super::stream::{Conn, ReadAhead, Via};
use crate::error::LaneError;
use crate::http::head::shortened;
use crate::source::Trust;
use crate::target::Origin;
use crate::upstream::{Tunnel, Upstream};

impl Net {
    /// A new connection to `origin` by way of relays, the nearest first. Its round trip is that to the
    /// origin.
    pub(super) async fn connect_carried(
        &self,
        origin: &Origin,
        via: &Via,
    ) -> Result<Conn, LaneError> {
        let limit = self.timeout().min(CONNECT_WITHIN);
        let connected = self.awake().within(limit, self.carried(origin, via)).await;
        connected.unwrap_or_else(|| {
            Err(LaneError::Connect {
                host: origin.to_string(),
                reason: format!("no answer within {} s", limit.as_secs_f64()),
            })
        })
    }

    async fn carried(&self, origin: &Origin, via: &Via) -> Result<Conn, LaneError> {
        let tunnel = self.tunnel(origin, via).await?;
        let near = tunnel.conn().rtt;
        if !origin.tls {
            return Ok(Conn::tunnel(tunnel, origin.clone(), Via::clone(via), near));
        }
        let tls_error = |reason: String| LaneError::Tls { host: origin.to_string(), reason };
        let name = server_name(&origin.host)
            .ok_or_else(|| tls_error("not a proper host name".to_owned()))?;
        let began = Instant::now();
        match self.shared.tls.connect(name, ReadAhead::new(tunnel)).await {
            Ok(tls) => {
                // One round trip to the origin, and its work for it.
                let rtt = began.elapsed().max(near);
                Ok(Conn::tls_tunnel(tls, origin.clone(), Via::clone(via), rtt))
            }
            Err(error) => Err(handshake_failed(origin, &error)),
        }
    }

    /// Ask the first of the relays for a tunnel to `origin` that leads through all of them.
    async fn tunnel(&self, origin: &Origin, via: &Via) -> Result<Tunnel, LaneError> {
        let nobody = || LaneError::Scheme { scheme: "none".to_owned() };
        let (first, rest) = via.split_first().ok_or_else(nobody)?;
        let own = Origin::of(first)
            .ok_or_else(|| LaneError::Scheme { scheme: first.scheme().to_owned() })?;
        let conn = Box::pin(self.connect_to(&own, Trust::Named, true, false)).await?;
        let mut upstream = Upstream::new(self.clone(), conn);
        let mut request = format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n");
        if !rest.is_empty() {
            let rest: Vec<String> =
                rest.iter().map(|url| url.origin().ascii_serialization()).collect();
            request.push_str(&format!("swath-route: {}\r\n", rest.join(", ")));
        }
        if let Some(authorization) = &self.credentials_for_relay(&own).authorization {
            request.push_str(&format!("Proxy-Authorization: {}\r\n", authorization.expose()));
        }
        request.push_str("\r\n");
        upstream.send(request.as_bytes());
        poll_fn(|cx| upstream.poll_send(cx)).await.map_err(|error| LaneError::reset(&error))?;
        // What follows a success is the tunnel, whatever its head says of a body.
        let head = poll_fn(|cx| upstream.poll_head(cx, true)).await?;
        let name = relay::site(first).unwrap_or_default();
        let refused =
            |fault, reason: String| LaneError::Relay { relay: name.clone(), fault, reason };
        let Some(head) = head else {
            return Err(refused(None, "it closed the connection".to_owned()));
        };
        if head.status / 100 == 2 {
            return Ok(upstream.into_tunnel());
        }
        let told = head.fields.iter().find(|(name, _)| name == "proxy-status");
        match told.and_then(|(_, value)| proxy_status::read(value)) {
            Some(told) => {
                let details = told.details.unwrap_or_default();
                let reason: String = details.chars().filter(|it| !it.is_control()).collect();
                Err(refused(told.fault, reason))
            }
            None => {
                let reason = format!("it answered {} {}", head.status, shortened(&head.reason));
                Err(refused(None, reason))
            }
        }
    }
}
