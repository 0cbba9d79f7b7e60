//! Tunnels (`CONNECT`, RFC 9110, section 9.3.6): the client speaks TLS with the origin, or with the
//! next relay, from which it requests a further tunnel. This relay cannot read what passes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
        let mut quiet = Quiet::begin(Instant::now());
        loop {
            tokio::time::sleep(relay.timeout / LOOKS).await;
            let moved_bytes = moved.load(Ordering::Relaxed);
            if quiet.is_over(moved_bytes, Instant::now(), relay.timeout) {
                return;
            }
        }
    };
    tokio::select! {
        ended = async { tokio::try_join!(there, back) } => ended.map(|_| Next::Close),
        () = watch => Ok(Next::Cut),
    }
}

/// Since when nothing has moved either way, as far as somebody looked.
struct Quiet {
    moved_bytes: u64,
    since: Instant,
}

impl Quiet {
    fn begin(now: Instant) -> Quiet {
        Quiet { moved_bytes: 0, since: now }
    }

    /// Whether nothing has moved for `timeout`, where `moved_bytes` in all had moved at `now`.
    fn is_over(&mut self, moved_bytes: u64, now: Instant, timeout: Duration) -> bool {
        if std::mem::replace(&mut self.moved_bytes, moved_bytes) != moved_bytes {
            self.since = now;
        }
        now.duration_since(self.since) >= timeout
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

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// When a tunnel ends by which so much has moved, in all, at each look.
    fn ends_s(looks: impl Iterator<Item = u64>) -> Option<f64> {
        let begin = Instant::now();
        let mut quiet = Quiet::begin(begin);
        let every = TIMEOUT / LOOKS;
        for (at, moved_bytes) in (1..).zip(looks) {
            let now = begin + every * at;
            if quiet.is_over(moved_bytes, now, TIMEOUT) {
                return Some(now.duration_since(begin).as_secs_f64());
            }
        }
        None
    }

    #[test]
    fn silence_ends_a_tunnel_after_the_timeout_and_no_sooner() {
        assert_eq!(ends_s(std::iter::repeat(0)), Some(60.0));
        // What had moved before the silence began counts once.
        let begun = (1..=20).chain(std::iter::repeat(20));
        assert_eq!(ends_s(begun), Some(20.0 * 7.5 + 60.0));
    }

    #[test]
    fn one_byte_now_and_then_keeps_a_tunnel_open() {
        // One side that talks is enough, if less than the timeout passes between its words.
        assert_eq!(ends_s((0..1000).map(|look| look / 7)), None);
        assert_eq!(ends_s((0..1000).map(|look| look / 10)), Some(60.0));
    }

    #[test]
    fn a_look_that_comes_late_ends_nothing_that_has_moved() {
        // The machine slept: what came meanwhile is counted before the time is.
        let begin = Instant::now();
        let mut quiet = Quiet::begin(begin);
        assert!(!quiet.is_over(1, begin + 100 * TIMEOUT, TIMEOUT));
        assert!(quiet.is_over(1, begin + 101 * TIMEOUT, TIMEOUT));
    }
}
