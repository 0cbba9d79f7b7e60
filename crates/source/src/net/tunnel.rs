//! CONNECT: a way through an HTTP proxy for TLS (RFC 9110, section 9.3.6).

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;

use super::credentials::from_url;
use crate::error::LaneError;
use crate::http::head::{Head, explained};
use crate::target::Origin;

/// Have the proxy at the other end of `tcp` connect us with `origin`.
pub(super) async fn open(
    tcp: &mut TcpStream,
    proxy: &Url,
    origin: &Origin,
) -> Result<(), LaneError> {
    let name = format!(
        "{}:{}",
        proxy.host_str().unwrap_or(""),
        proxy.port_or_known_default().unwrap_or(0)
    );
    let refused = |reason: String| LaneError::Proxy { proxy: name.clone(), reason, code: None };
    let mut request = format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n");
    if let Some(authorization) = from_url(proxy) {
        request.push_str(&format!("Proxy-Authorization: {}\r\n", authorization.expose()));
    }
    request.push_str("\r\n");
    tcp.write_all(request.as_bytes()).await.map_err(|error| refused(error.to_string()))?;
    // Behind the proxy's answer the server says nothing before we do, so nothing is read too far.
    let mut input = Vec::with_capacity(1024);
    loop {
        match Head::parse(&input) {
            Ok(Some((head, _))) if (200..300).contains(&head.status) => return Ok(()),
            Ok(Some((head, _))) if head.status >= 200 => {
                return Err(LaneError::Proxy {
                    reason: format!("it answered {} {}", head.status, explained(&head, b"")),
                    code: Some(head.status),
                    proxy: name,
                });
            }
            Ok(Some((_, interim))) => {
                input.drain(..interim);
                continue;
            }
            Ok(None) => {}
            Err(error) => return Err(refused(error.to_string())),
        }
        match tcp.read_buf(&mut input).await {
            Ok(0) => return Err(refused("it closed the connection".to_owned())),
            Ok(_) => {}
            Err(error) => return Err(refused(error.to_string())),
        }
    }
}
