//! Tunnels (`CONNECT`, RFC 9110, section 9.3.6): the client speaks TLS with the origin, or with the
//! next relay, from which it requests a further tunnel. This relay cannot read what passes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use swath_formats::ProxyFault;
use swath_source::Upstream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use url::Url;

use super::headers::Form;
use super::{Relay, faults};
use swath_serve::http::{Body, Head, Next, Response, Stream, Version};

/// Answers a request for a tunnel, and carry it to its end.
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
            let date = swath_formats::http_date::write(swath_serve::http::now_s());
            let status = refusal.status;
            let mut bytes = refusal.head(&date, false, false);
            if let swath_serve::http::Content::Bytes(text) = &refusal.body {
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
    let moved = AtomicU64::new(0);
    let carried = async {
        stream.write_all(said.as_bytes()).await?;
        // What was sent ahead is for the other end.
        tunnel.write_all(&std::mem::take(input)).await?;
        stream.flush().await?;
        tunnel.flush().await?;
        move_both(relay, stream, &mut tunnel, &moved).await
    };
    // How it ended does not matter to what has passed: ends of encrypted streams are often errors.
    let next = carried.await.unwrap_or_else(|error| {
        tracing::debug!(%error, "a tunnel has ended");
        Next::Cut
    });
    relay.note(head, peer, 200, moved.into_inner(), began.elapsed());
    next
}

/// Where a tunnel leads.
fn judge(relay: &Relay, head: &Head, peer: SocketAddr) -> Result<Url, Response> {
    relay.admit(head, peer, Form::Proxy)?;
    let denied = |text: &str| Err(relay.refusal(ProxyFault::Denied, None, text));
    if head.version == Version::HTTP_10 || head.body != Body::None {
        return denied("a tunnel is opened by HTTP/1.1 and a request without a body");
    }
    let target = head.raw_target.as_str();
    let Ok(end) = Url::parse(&format!("https://{target}/")) else {
        return denied("a tunnel leads to HOST:PORT");
    };
    // HOST:PORT and nothing more, which an address could hold.
    let is_more =
        target.contains(['/', '?', '#', '@', '\\']) || target.chars().any(char::is_whitespace);
    if !target.contains(':') || is_more || end.path() != "/" {
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

/// Both ways at once, until both have ended or nothing has moved either way for the relay's timeout.
/// Counts what has passed. If both have ended, what the kernel still holds of it arrives: who ended its
/// own side first may read more slowly than the other one writes.
async fn move_both(
    relay: &Relay,
    stream: &mut Stream,
    tunnel: &mut swath_source::Tunnel,
    moved: &AtomicU64,
) -> std::io::Result<Next> {
    let (mut near_in, mut near_out) = tokio::io::split(stream);
    let (mut far_in, mut far_out) = tokio::io::split(tunnel);
    let there = one_way(relay, &mut near_in, &mut far_out, moved);
    let back = one_way(relay, &mut far_in, &mut near_out, moved);
    let watch = async {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            tokio::time::sleep(relay.timeout / LOOKS).await;
            let now = moved.load(Ordering::Relaxed);
            if std::mem::replace(&mut seen, now) != now {
                since = Instant::now();
            } else if since.elapsed() >= relay.timeout {
                return;
            }
        }
    };
    tokio::select! {
        ended = async { tokio::try_join!(there, back) } => ended.map(|_| Next::Close),
        () = watch => Ok(Next::Cut),
    }
}

async fn one_way(
    relay: &Relay,
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    moved: &AtomicU64,
) -> std::io::Result<()> {
    let mut pace = swath_serve::http::Pace::new(relay.send_limit.clone());
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let bytes = from.read(&mut buffer).await?;
        if bytes == 0 {
            return to.shutdown().await;
        }
        let mut rest = &buffer[..bytes];
        while !rest.is_empty() {
            let now = pace.allowed(rest.len() as u64).await as usize;
            // As it goes, or one who reads slowly would be taken for silent.
            let written = to.write(&rest[..now]).await?;
            if written == 0 && now > 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            pace.spend(written as u64);
            moved.fetch_add(written as u64, Ordering::Relaxed);
            relay.metrics.tunnelled(written as u64);
            rest = &rest[written..];
        }
        to.flush().await?;
    }
}

/// In memory for each direction.
const BUFFER_BYTES: usize = 128 << 10;
/// In the time after which silence ends a tunnel: it lasts at most one look longer.
const LOOKS: u32 = 8;
