//! What a relay carries without reading it (`CONNECT`, RFC 9110, section 9.3.6): by it a client
//! speaks TLS with the origin itself, through one relay or several.
//!
//! The relays that are left of a route are named in one header field, `swath-route`, the next one
//! first: `https://r2.example:8471, https://r3.example`. Each relay takes its own name off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use swath_formats::{ProxyFault, relay as address};
use swath_source::{LaneError, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use url::Url;

use super::pass::Form;
use super::{Relay, faults};
use crate::http::{Body, Head, Next, Response, Stream, Version};

/// Answer a request for a tunnel, and carry it to its end.
pub(super) async fn open(
    relay: &Arc<Relay>,
    stream: &mut Stream,
    input: &mut Vec<u8>,
    head: &Head,
    peer: SocketAddr,
) -> Next {
    let began = Instant::now();
    let opened = match judge(relay, head, peer) {
        Ok(way) => dial(relay, &way, head).await,
        Err(refusal) => Err(refusal),
    };
    let upstream = match opened {
        Ok(upstream) => upstream,
        Err(refusal) => {
            let date = swath_formats::http_date::write(crate::http::now_s());
            let status = refusal.status;
            let mut bytes = refusal.head(&date, false, false);
            if let crate::http::Content::Bytes(text) = &refusal.body {
                bytes.extend_from_slice(text);
            }
            let sent = timeout(relay.timeout, async {
                stream.write_all(&bytes).await?;
                stream.flush().await
            });
            let _ = sent.await;
            relay.note(head, peer, status, 0, began.elapsed());
            return Next::Close;
        }
    };
    relay.metrics.tunnels.fetch_add(1, Ordering::Relaxed);
    let said =
        format!("HTTP/1.1 200 Connection established\r\nvia: 1.1 {}\r\n\r\n", relay.pseudonym);
    let mut tunnel = upstream.into_tunnel();
    let carried = async {
        stream.write_all(said.as_bytes()).await?;
        // What was sent ahead is for the other end.
        tunnel.write_all(&std::mem::take(input)).await?;
        stream.flush().await?;
        tunnel.flush().await?;
        move_both(relay, stream, &mut tunnel).await
    };
    let bytes = carried.await.unwrap_or(0);
    relay.note(head, peer, 200, bytes, began.elapsed());
    Next::Cut
}

/// Where a tunnel leads: whom to ask, and what for.
struct Way {
    next: Url,
    /// The request for the next relay, if it is one.
    request: Option<Vec<u8>>,
}

fn judge(relay: &Relay, head: &Head, peer: SocketAddr) -> Result<Way, Response> {
    relay.admit(head, peer, Form::Proxy)?;
    let denied = |text: &str| Err(relay.refusal(ProxyFault::Denied, None, text));
    if head.version == Version::OneZero || head.body != Body::None {
        return denied("a tunnel is opened by HTTP/1.1 and a request without a body");
    }
    let target = head.raw_target.as_str();
    let Ok(end) = Url::parse(&format!("https://{target}/")) else {
        return denied("a tunnel leads to HOST:PORT");
    };
    if !target.contains(':') || end.path() != "/" || !end.username().is_empty() {
        return denied("a tunnel leads to HOST:PORT");
    }
    let route: Vec<&str> =
        head.fields(ROUTE).flat_map(|value| value.split(',')).map(str::trim).collect();
    let relays: Option<Vec<Url>> = route
        .iter()
        .map(|one| Url::parse(one).ok().filter(|url| matches!(url.scheme(), "http" | "https")))
        .collect();
    let Some(relays) = relays else { return denied("the relays of a route are whole addresses") };
    let Some((next, rest)) = relays.split_first() else {
        relay.judge_way(head, &end)?;
        return Ok(Way { next: end, request: None });
    };
    if rest.len() + 2 > address::HOPS_MAX {
        return denied("the route has too many relays");
    }
    relay.judge_way(head, next)?;
    let mut text = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if !rest.is_empty() {
        let rest: Vec<&str> = route[1..].to_vec();
        text.push_str(&format!("{ROUTE}: {}\r\n", rest.join(", ")));
    }
    let passed: String = head.fields("via").map(|one| format!("{one}, ")).collect();
    text.push_str(&format!("Via: {passed}1.1 {}\r\n\r\n", relay.pseudonym));
    Ok(Way { next: next.clone(), request: Some(text.into_bytes()) })
}

async fn dial(relay: &Arc<Relay>, way: &Way, head: &Head) -> Result<Upstream, Response> {
    let site = match &way.request {
        Some(_) => address::site(&way.next).unwrap_or_default(),
        None => head.raw_target.clone(),
    };
    let failed = |error: &LaneError| {
        let (fault, words) = faults::of(error);
        faults::response(&relay.name, fault, Some(&site), &words)
    };
    let Some(request) = &way.request else {
        return relay.net.dial(&way.next).await.map_err(|error| failed(&error));
    };
    let mut upstream =
        relay.net.upstream(&way.next, false).await.map_err(|error| failed(&error))?;
    upstream.send(request);
    let answered = async {
        std::future::poll_fn(|cx| upstream.poll_send(cx))
            .await
            .map_err(|error| LaneError::Reset { reason: error.to_string() })?;
        // What follows a success is the tunnel, whatever its head says of a body.
        std::future::poll_fn(|cx| upstream.poll_head(cx, true)).await
    };
    let head = match timeout(relay.timeout, answered).await {
        Ok(Ok(Some(head))) => head,
        Ok(Ok(None)) => {
            let text = "it closed the connection without an answer";
            return Err(faults::response(&relay.name, ProxyFault::Terminated, Some(&site), text));
        }
        Ok(Err(error)) => return Err(failed(&error)),
        Err(_) => {
            let error = LaneError::Timeout { after: relay.timeout };
            return Err(failed(&error));
        }
    };
    if head.status / 100 == 2 {
        return Ok(upstream);
    }
    let told = head.fields.iter().find(|(name, _)| name == "proxy-status");
    let text = format!("it opens no tunnel: {} {}", head.status, head.reason);
    let fault = told.and_then(|(_, value)| swath_formats::proxy_status::read(value)?.fault);
    Err(faults::response(&relay.name, fault.unwrap_or(ProxyFault::Denied), Some(&site), &text))
}

/// Both ways at once, until both have ended or nothing moves for too long. Answers how much passed.
async fn move_both(
    relay: &Relay,
    stream: &mut Stream,
    tunnel: &mut swath_source::Tunnel,
) -> std::io::Result<u64> {
    let (mut near_in, mut near_out) = tokio::io::split(stream);
    let (mut far_in, mut far_out) = tokio::io::split(tunnel);
    let moved = std::sync::atomic::AtomicU64::new(0);
    let there = one_way(relay, &mut near_in, &mut far_out, &moved);
    let back = one_way(relay, &mut far_in, &mut near_out, &moved);
    let watch = async {
        let mut seen = 0;
        loop {
            tokio::time::sleep(IDLE).await;
            let now = moved.load(Ordering::Relaxed);
            if std::mem::replace(&mut seen, now) == now {
                return;
            }
        }
    };
    tokio::select! {
        ended = async { tokio::try_join!(there, back) } => { ended?; }
        () = watch => {}
    }
    Ok(moved.load(Ordering::Relaxed))
}

async fn one_way(
    relay: &Relay,
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    moved: &std::sync::atomic::AtomicU64,
) -> std::io::Result<()> {
    let mut pace = crate::http::Pace::new(relay.send_limit.clone());
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let bytes = from.read(&mut buffer).await?;
        if bytes == 0 {
            return to.shutdown().await;
        }
        let mut rest = &buffer[..bytes];
        while !rest.is_empty() {
            let now = pace.allowed(rest.len() as u64).await as usize;
            to.write_all(&rest[..now]).await?;
            pace.spend(now as u64);
            rest = &rest[now..];
        }
        to.flush().await?;
        moved.fetch_add(bytes as u64, Ordering::Relaxed);
        relay.metrics.tunnelled(bytes as u64);
    }
}

/// The relays that are left of a tunnel's route.
const ROUTE: &str = "swath-route";
/// In memory for each direction.
const BUFFER_BYTES: usize = 128 << 10;
/// A tunnel in which nothing moves for so long is closed.
const IDLE: std::time::Duration = std::time::Duration::from_secs(90);
