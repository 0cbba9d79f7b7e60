//! The outbound side of a connection: the bytes of an answer, with everything that can happen to
//! them on the way.
//!
//! A body leaves in slices. Before each one the rules are read again where they changed, and each
//! rule that counts bytes cuts the slice so that it takes hold at its exact byte. Bytes are
//! counted when a slice is claimed, before it waits for its time, so that two connections never
//! run past one limit.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::answer::{Answer, Body, Framing};
use super::behaviour::{Faults, Scope};
use super::connection::{End, Session, gate, sleep_to};
use super::pace::slice_bytes;
use super::request::Request;
use super::state::{Route, Verdicts, after};

/// What the rules say at one point of a body.
enum Step {
    /// At most so many bytes may leave.
    Send(u64),
    /// Something changed: look again.
    Again,
    /// The body ends here.
    End(End),
}

impl<W: AsyncWrite + Unpin> Session<W> {
    /// Sends the body. `End::Keep` when all of it left.
    pub(super) async fn send_body(
        &mut self,
        answer: &Answer,
        route: Option<&Arc<Route>>,
        request: &Request,
        verdicts: &Verdicts,
        record: u64,
    ) -> io::Result<End> {
        let mut faults = self.shared.faults(&request.path, verdicts);
        let first = match &answer.body {
            Body::File { bytes, .. } => bytes.start,
            Body::Other(_) => 0,
        };
        let (mut sent, length) = (0, answer.body_bytes());
        loop {
            if faults.silent
                || self.shared.stalled_until().is_some()
                || self.changed.has_changed().unwrap_or(false)
            {
                faults = gate(&self.shared, &request.path, verdicts, &mut self.changed).await;
            }
            let most = match self.next_step(&faults, route, sent).await {
                Step::Send(most) => most,
                Step::Again => continue,
                Step::End(end) => return Ok(end),
            };
            if sent == length {
                break;
            }
            let most = most.min(length - sent).min(self.slice_bytes(&faults, answer));
            let step = most as usize;
            self.claim(most, route);
            self.pace(step, &faults, route).await;

            let offset = first + sent;
            if !self.write_slice(answer, &faults, offset, step).await? {
                return Ok(End::Cut);
            }
            sent += most;
            self.shared.record(record, |record| record.sent_bytes = sent);
        }
        if matches!(answer.framing, Framing::Chunked(_)) {
            self.writer.write_all(b"0\r\n\r\n").await?;
        }
        Ok(End::Keep)
    }

    /// Carries out what has come due by the bytes sent so far.
    async fn next_step(&mut self, faults: &Faults, route: Option<&Arc<Route>>, sent: u64) -> Step {
        let mut most = u64::MAX;
        let server_bytes = self.shared.sent_bytes();
        if let Some((rule, limit, back_after)) = faults.die {
            if server_bytes >= limit {
                if self.shared.use_up(rule) {
                    self.shared.die(back_after);
                }
                // The main loop drops this task.
                pending::<()>().await;
            }
            most = most.min(limit - server_bytes);
        }
        if let (Some((rule, limit, content)), Some(route)) = (&faults.change, route) {
            let route_bytes = route.sent_bytes.load(Relaxed);
            if route_bytes >= *limit {
                if self.shared.use_up(*rule) {
                    route.replace(content.clone(), true);
                }
                return Step::Again;
            }
            most = most.min(limit - route_bytes);
        }
        for (rule, limit, lasts, scope) in &faults.stalls {
            let counted = match scope {
                Scope::Connection if self.stalled.contains(rule) => continue,
                Scope::Connection => self.sent_bytes,
                Scope::Server => server_bytes,
            };
            if counted < *limit {
                most = most.min(limit - counted);
                continue;
            }
            match scope {
                Scope::Connection => {
                    self.stalled.push(*rule);
                    sleep_to(after(Instant::now(), *lasts)).await;
                }
                Scope::Server if self.shared.use_up(*rule) => self.shared.stall(*lasts),
                Scope::Server => {}
            }
            return Step::Again;
        }
        if let Some(limit) = faults.truncate_after {
            if sent >= limit {
                return Step::End(End::Cut);
            }
            most = most.min(limit - sent);
        }
        if let Some((limit, reset)) = faults.drop {
            if self.sent_bytes >= limit {
                return Step::End(if reset { End::Reset } else { End::Cut });
            }
            most = most.min(limit - self.sent_bytes);
        }
        Step::Send(most)
    }

    /// Returns the most to send at once under the rates and the framing.
    fn slice_bytes(&self, faults: &Faults, answer: &Answer) -> u64 {
        let rates = [
            faults.server_rate_bytes_per_s,
            faults.route_rate_bytes_per_s,
            faults.connection_rate_bytes_per_s,
        ];
        let slice = rates.into_iter().map(slice_bytes).min().unwrap_or(1);
        match answer.framing {
            Framing::Chunked(chunk_bytes) => slice.min(chunk_bytes) as u64,
            Framing::Length(_) | Framing::UntilClose => slice as u64,
        }
    }

    fn claim(&mut self, bytes: u64, route: Option<&Arc<Route>>) {
        self.sent_bytes += bytes;
        self.shared.sent_bytes.fetch_add(bytes, Relaxed);
        if let Some(route) = route {
            route.sent_bytes.fetch_add(bytes, Relaxed);
        }
    }

    async fn pace(&self, bytes: usize, faults: &Faults, route: Option<&Arc<Route>>) {
        let now = Instant::now();
        let mut at = self.pacer.reserve(now, bytes, faults.connection_rate_bytes_per_s);
        at = at.max(self.shared.pacer.reserve(now, bytes, faults.server_rate_bytes_per_s));
        if let Some(route) = route {
            at = at.max(route.pacer.reserve(now, bytes, faults.route_rate_bytes_per_s));
        }
        sleep_to(at).await;
    }

    /// Makes and writes one slice. False where the file no longer reaches that far.
    async fn write_slice(
        &mut self,
        answer: &Answer,
        faults: &Faults,
        offset: u64,
        bytes: usize,
    ) -> io::Result<bool> {
        let front = match answer.framing {
            Framing::Chunked(_) => format!("{bytes:x}\r\n"),
            Framing::Length(_) | Framing::UntilClose => String::new(),
        };
        self.buffer.resize(front.len() + bytes, 0);
        self.buffer[..front.len()].copy_from_slice(front.as_bytes());
        let data = &mut self.buffer[front.len()..];
        match &answer.body {
            Body::Other(content) => content.fill(offset, data),
            Body::File { version, .. } => {
                let content = version.content();
                if content.size_bytes() < offset + bytes as u64 {
                    return Ok(false);
                }
                content.fill(offset, data);
                corrupt(data, offset, faults);
            }
        }
        if !front.is_empty() {
            self.buffer.extend_from_slice(b"\r\n");
        }
        self.writer.write_all(&self.buffer).await?;
        self.writer.flush().await?;
        Ok(true)
    }
}

/// Flips the lowest bit of each byte that a rule names in `[offset, offset + data.len())`.
fn corrupt(data: &mut [u8], offset: u64, faults: &Faults) {
    let end = offset + data.len() as u64;
    for at in &faults.corrupt_bytes {
        if (offset..end).contains(at) {
            data[(at - offset) as usize] ^= 1;
        }
    }
    if let Some((block_bytes, every)) = faults.corrupt_blocks {
        let mut block = offset.div_ceil(block_bytes);
        while let Some(at) = block.checked_mul(block_bytes).filter(|at| *at < end) {
            if (block + 1).is_multiple_of(every) {
                data[(at - offset) as usize] ^= 1;
            }
            block += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_is_the_same_however_the_body_is_cut() {
        let faults = Faults {
            corrupt_bytes: vec![0, 57, 999],
            corrupt_blocks: Some((100, 3)),
            ..Faults::default()
        };
        let mut whole = vec![0; 1000];
        corrupt(&mut whole, 0, &faults);
        let flipped: Vec<usize> = (0..1000).filter(|at| whole[*at] == 1).collect();
        assert_eq!(flipped, [0, 57, 200, 500, 800, 999]);
        for step in [1, 7, 64, 100, 101] {
            let mut parts = vec![0; 1000];
            for (number, part) in parts.chunks_mut(step).enumerate() {
                corrupt(part, (number * step) as u64, &faults);
            }
            assert_eq!(parts, whole, "cut every {step}");
        }
    }
}
