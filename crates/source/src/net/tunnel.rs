//! CONNECT: a way through an HTTP proxy for TLS (RFC 9110, section 9.3.6).

use std::future::poll_fn;

use url::Url;

use super::conn::{Conn, Tunnel};
use super::credentials::{Secret, from_url};
use super::http1::Http1Conn;
use crate::error::LaneError;
use crate::http::head::explained;
use crate::http::request::Lines;
use crate::target::Origin;

/// Has the proxy at the other end of `conn` connect us with `origin`.
pub(super) async fn open(conn: Conn, proxy: &Url, origin: &Origin) -> Result<Tunnel, LaneError> {
    let name = format!(
        "{}:{}",
        proxy.host_str().unwrap_or(""),
        proxy.port_or_known_default().unwrap_or(0)
    );
    let refused = |reason: String| LaneError::Proxy { proxy: name.clone(), reason, code: None };
    let mut http = Http1Conn::new(conn);
    let (end, authorization) = (origin.to_string(), from_url(proxy));
    let authorization = authorization.as_ref().map(Secret::expose);
    let request = Lines::request("CONNECT", &end, &end);
    let request = request.with_any("Proxy-Authorization", authorization);
    http.output().extend_from_slice(&request.end()?);
    poll_fn(|cx| http.poll_send(cx)).await.map_err(|error| refused(error.to_string()))?;
    // What follows a success is the tunnel, whatever its head says of a body.
    let head = poll_fn(|cx| http.poll_head(cx, true)).await;
    match head.map_err(|error| refused(error.to_string()))? {
        None => Err(refused("it closed the connection".to_owned())),
        Some(head) if (200..300).contains(&head.status) => {
            let (conn, early) = http.into_parts();
            Ok(Tunnel::new(conn, early))
        }
        Some(head) => {
            let reason = format!("it answered {} {}", head.status, explained(&head, b""));
            Err(LaneError::Proxy { reason, code: Some(head.status), proxy: name })
        }
    }
}
