//! Moves bytes between two sockets inside the kernel (splice(2)).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A pipe between two sockets. What is in it is bounded by what the kernel gives it.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
    capacity: usize,
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        // One that is refused leaves the pipe as it is.
        let _ = fcntl_setpipe_size(&write, CAPACITY_BYTES);
        let capacity = fcntl_getpipe_size(&write).unwrap_or(PAGE_BYTES).max(PAGE_BYTES);
        Ok(Pipe { read, write, held: 0, capacity })
    }

    /// What is in it.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Whether it can take nothing more.
    pub fn is_full(&self) -> bool {
        self.held >= self.capacity
    }

    /// Takes up to `most` bytes in from `tcp`; 0 is its end.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        tcp: &TcpStream,
        most: u64,
    ) -> Poll<io::Result<usize>> {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(self.capacity - self.held);
        loop {
            match tcp.poll_read_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(ready) => ready?,
            }
            match move_pages(tcp, &self.write, most, SpliceFlags::empty()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Pages that are not full fill a pipe too: perhaps it is the pipe that has no room.
                    // Then what is in it has to leave first, and whoever waits for that wakes us.
                    if self.held > 0 {
                        return Poll::Pending;
                    }
                    let _ = tcp.try_io(Interest::READABLE, || Err::<(), _>(blocked()));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(bytes) => {
                    self.held += bytes;
                    return Poll::Ready(Ok(bytes));
                }
            }
        }
    }

    /// Lets up to `most` bytes out to `tcp`. With `more` to come soon, packets are filled.
    pub fn poll_drain(
        &mut self,
        cx: &mut Context<'_>,
        tcp: &TcpStream,
        most: usize,
        more: bool,
    ) -> Poll<io::Result<usize>> {
        let flags = if more { SpliceFlags::MORE } else { SpliceFlags::empty() };
        loop {
            match tcp.poll_write_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(ready) => ready?,
            }
            match move_pages(&self.read, tcp, most.min(self.held), flags) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = tcp.try_io(Interest::WRITABLE, || Err::<(), _>(blocked()));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(bytes) => {
                    self.held -= bytes;
                    return Poll::Ready(Ok(bytes));
                }
            }
        }
    }
}

fn blocked() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}

fn move_pages(
    from: impl AsFd,
    to: impl AsFd,
    most: usize,
    flags: SpliceFlags,
) -> io::Result<usize> {
    let flags = flags | SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    Ok(splice(from, None, to, None, most, flags)?)
}

/// Pipes that are not in use just now: making one costs three calls.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    idle: Mutex<Vec<Pipe>>,
}

impl Pipes {
    /// One that is empty.
    pub fn take(&self) -> io::Result<Pipe> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(Pipe::new, Ok)
    }

    /// It is not needed any more; kept if nothing is left in it.
    pub fn put(&self, pipe: Pipe) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if pipe.held == 0 && idle.len() < IDLE_MAX {
            idle.push(pipe);
        }
    }
}

/// As much as one may ask for without privileges (`fs.pipe-max-size`); the kernel may give less.
const CAPACITY_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;
const IDLE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn bytes_arrive_as_they_were_sent() {
        let (mut first, from) = pair().await;
        let (to, mut last) = pair().await;
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let expected = sent.clone();
        let sender = tokio::spawn(async move {
            // In odd pieces, so that pages are not full.
            for piece in sent.chunks(1_777) {
                first.write_all(piece).await.unwrap();
            }
        });
        let receiver = tokio::spawn(async move {
            let mut came = Vec::new();
            last.read_to_end(&mut came).await.unwrap();
            came
        });
        let pipes = Pipes::default();
        let mut pipe = pipes.take().unwrap();
        let mut ended = false;
        poll_fn(|cx| {
            loop {
                let mut moved = false;
                if !ended
                    && !pipe.is_full()
                    && let Poll::Ready(bytes) = pipe.poll_fill(cx, &from, u64::MAX)
                {
                    moved = true;
                    ended = bytes.unwrap() == 0;
                }
                if pipe.held() > 0 {
                    moved |=
                        pipe.poll_drain(cx, &to, usize::MAX, !ended).map(Result::unwrap).is_ready();
                }
                if ended && pipe.held() == 0 {
                    return Poll::Ready(());
                }
                if !moved {
                    return Poll::Pending;
                }
            }
        })
        .await;
        pipes.put(pipe);
        drop(to);
        sender.await.unwrap();
        assert!(receiver.await.unwrap() == expected);
    }
}
