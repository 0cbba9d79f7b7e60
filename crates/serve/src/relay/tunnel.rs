//! What a relay carries without reading it (`CONNECT`, RFC 9110, section 9.3.6): by it a client
//! speaks TLS with the origin itself, or with the next relay, which it asks in the tunnel for one that
//! leads on. Whom it speaks with there, and what it shows, this relay does not know.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use swath_formats::ProxyFault;
use swath_source::Upstream;
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
        Ok(end) => dial(relay, &end, head).await,
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

/// Where a tunnel leads.
fn judge(relay: &Relay, head: &Head, peer: SocketAddr) -> Result<Url, Response> {
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
    relay.judge_way(head, &end)?;
    Ok(end)
}

async fn dial(relay: &Relay, end: &Url, head: &Head) -> Result<Upstream, Response> {
    relay.net.dial(end).await.map_err(|error| {
        let (fault, words) = faults::of(&error);
        faults::response(&relay.name, fault, Some(&head.raw_target), &words)
    })
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

/// In memory for each direction.
const BUFFER_BYTES: usize = 128 << 10;
/// A tunnel in which nothing moves for so long is closed.
const IDLE: std::time::Duration = std::time::Duration::from_secs(90);
