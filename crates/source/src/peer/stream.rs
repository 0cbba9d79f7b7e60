//! The bytes of a connection between peers: TCP or uTP, perhaps with RC4 on it.
//!
//! Payloads are read straight into the caller's memory, and a little of what follows them into
//! `input`, so that the head of the next block is there when a payload ends. What is to be sent is
//! encrypted when it is queued, as the order of bytes is fixed then.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use swath_formats::peer::encryption::Rc4;
use swath_transport::{Congestion, Transport, kernel};
use tokio_util::io::poll_read_buf;

use super::low_water::LowWater;
use super::queue::SendQueue;

/// A connection's bytes.
pub(super) struct PeerStream {
    transport: Box<dyn Transport>,
    receive: Option<Rc4>,
    send: Option<Rc4>,
    /// Read, decrypted, and not used up to `used`.
    input: Vec<u8>,
    used: usize,
    output: VecDeque<Bytes>,
    output_bytes: usize,
    queue: SendQueue,
    low_water: LowWater,
}

impl PeerStream {
    pub fn new(transport: Box<dyn Transport>) -> PeerStream {
        let queue = SendQueue::new();
        if let Some(tcp) = transport.socket() {
            // Requests are small and must not wait for acknowledgements.
            let _ = tcp.set_nodelay(true);
            Congestion::Auto.choose(tcp);
            kernel::limit_unsent(tcp, queue.kernel_bytes());
        }
        PeerStream {
            transport,
            receive: None,
            send: None,
            input: Vec::new(),
            used: 0,
            output: VecDeque::new(),
            output_bytes: 0,
            queue,
            low_water: LowWater::new(),
        }
    }

    /// Everything from here on is encrypted. What was read already is `first` and the rest of the
    /// input, which is not decrypted yet.
    pub fn encrypt(&mut self, first: Vec<u8>, receive: Option<Rc4>, send: Option<Rc4>) {
        (self.receive, self.send) = (receive, send);
        let mut rest = self.input.split_off(self.used);
        self.receive.iter_mut().for_each(|cipher| cipher.apply(&mut rest));
        self.input = first;
        self.input.append(&mut rest);
        self.used = 0;
    }

    pub fn is_encrypted(&self) -> bool {
        self.receive.is_some()
    }

    pub fn rtt(&self) -> Option<Duration> {
        self.transport.rtt()
    }

    // Input.

    /// Returns what was read and not used.
    pub fn input(&self) -> &[u8] {
        &self.input[self.used..]
    }

    /// Uses the first `bytes` of the input up.
    pub fn consume(&mut self, bytes: usize) {
        self.used = (self.used + bytes).min(self.input.len());
        if self.used == self.input.len() {
            self.input.clear();
            self.used = 0;
        }
    }

    /// Moves input into `room`; returns how much.
    pub fn take_input(&mut self, room: &mut [u8]) -> usize {
        let bytes = room.len().min(self.input().len());
        room[..bytes].copy_from_slice(&self.input()[..bytes]);
        self.consume(bytes);
        bytes
    }

    /// Reads up to `most` bytes into the input; 0 is the end of the connection.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        if self.used > 0 {
            self.input.drain(..self.used);
            self.used = 0;
        }
        let before = self.input.len();
        self.input.reserve(most);
        let transport = Pin::new(&mut *self.transport);
        match poll_read_buf(transport, cx, &mut (&mut self.input).limit(most)) {
            Poll::Ready(bytes) => {
                let bytes = bytes?;
                let new = &mut self.input[before..];
                self.receive.iter_mut().for_each(|cipher| cipher.apply(new));
                Poll::Ready(Ok(bytes))
            }
            Poll::Pending => self.wait_for(None),
        }
    }

    /// Reads into `room`, and what little follows into the input, which must be empty. Returns how
    /// much came into `room`; 0 is the end of the connection. `room` must not be empty.
    pub fn poll_payload(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut tail = [0; TAIL_BYTES];
        let parts = &mut [IoSliceMut::new(room), IoSliceMut::new(&mut tail)];
        let Poll::Ready(bytes) = self.transport.poll_read_vectored(cx, parts)? else {
            return self.wait_for(Some(room.len()));
        };
        let here = bytes.min(room.len());
        self.low_water.came(here);
        if let Some(cipher) = &mut self.receive {
            cipher.apply(&mut room[..here]);
            cipher.apply(&mut tail[..bytes - here]);
        }
        self.input.extend_from_slice(&tail[..bytes - here]);
        Poll::Ready(Ok(here))
    }

    /// Nothing can be read yet. `coming` is how much is left of a payload: then the reader may wait for
    /// several packets. Otherwise any byte wakes it.
    fn wait_for<T>(&mut self, coming: Option<usize>) -> Poll<T> {
        if let Some(mark) = self.low_water.wait_for(coming) {
            // If that much is there already, the kernel wakes us now.
            self.transport.set_low_water(mark);
        }
        Poll::Pending
    }

    /// Nothing has come for a while: every byte wakes the reader again.
    pub fn slow_down(&mut self) {
        if let Some(mark) = self.low_water.slow_down() {
            self.transport.set_low_water(mark);
        }
    }

    /// Waits for more input; 0 is the end of the connection.
    pub async fn read_more(&mut self) -> io::Result<usize> {
        poll_fn(|cx| self.poll_fill(cx, FILL_BYTES)).await
    }

    // Output.

    /// Returns how many bytes are queued and not sent.
    pub fn unsent_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Returns how much payload may be queued.
    pub fn most_payload_bytes(&self) -> usize {
        self.queue.most_bytes()
    }

    /// Queues bytes.
    pub fn push(&mut self, mut bytes: Vec<u8>) {
        self.send.iter_mut().for_each(|cipher| cipher.apply(&mut bytes));
        self.push_sealed(bytes.into());
    }

    /// Queues `parts` of `data`, each behind its head, without copying.
    pub fn push_parts(
        &mut self,
        heads: Vec<Vec<u8>>,
        mut data: Vec<u8>,
        parts: &[std::ops::Range<usize>],
    ) {
        let mut heads = heads;
        if let Some(cipher) = &mut self.send {
            for (head, part) in heads.iter_mut().zip(parts) {
                cipher.apply(head);
                cipher.apply(&mut data[part.clone()]);
            }
        }
        let data = Bytes::from(data);
        for (head, part) in heads.into_iter().zip(parts) {
            self.push_sealed(head.into());
            self.push_sealed(data.slice(part.clone()));
        }
    }

    fn push_sealed(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.output_bytes += bytes.len();
            self.output.push_back(bytes);
        }
    }

    /// Sends what is queued. Ready when something was sent, and when all is.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.output.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = self.output.len().min(SLICES_MAX);
        slices.iter_mut().zip(&self.output).for_each(|(to, bytes)| *to = IoSlice::new(bytes));
        let transport = Pin::new(&mut *self.transport);
        let bytes = ready!(transport.poll_write_vectored(cx, &slices[..count]))?;
        self.sent(bytes);
        Poll::Ready(Ok(bytes))
    }

    fn sent(&mut self, bytes: usize) {
        self.output_bytes -= bytes;
        if let Some(bytes) = self.queue.sent(bytes)
            && let Some(tcp) = self.transport.socket()
        {
            kernel::limit_unsent(tcp, bytes);
        }
        let mut left = bytes;
        while let Some(first) = self.output.front_mut().filter(|_| left > 0) {
            let here = left.min(first.len());
            bytes::Buf::advance(first, here);
            left -= here;
            if first.is_empty() {
                self.output.pop_front();
            }
        }
    }

    /// Sends all that is queued.
    pub async fn send_all(&mut self) -> io::Result<()> {
        while self.output_bytes > 0 {
            poll_fn(|cx| self.poll_send(cx)).await?;
        }
        Ok(())
    }
}

/// Read with the end of a payload: the head of the next one, and some short messages. More would be
/// payload, which then had to be copied.
const TAIL_BYTES: usize = 256;
/// Read at once while no payload is due.
pub(super) const FILL_BYTES: usize = 64 << 10;
/// Heads and blocks of two full batches.
const SLICES_MAX: usize = 64;
