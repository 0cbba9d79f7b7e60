//! The byte stream of a connection, and sendfile(2).

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use swath_model::Range;
use swath_transport::Transport;
use tokio::io::{AsyncRead as _, Interest, ReadBuf};
use tokio::net::TcpStream;

/// An accepted connection.
pub type Stream = Box<dyn Transport>;

/// Reads what has come of requests behind `input`; whether there may be more of them. A client that
/// has ended its own direction may wait for answers all the same.
///
/// # Errors
/// Of reading: nobody is there.
pub fn poll_input(
    stream: &mut Stream,
    cx: &mut Context<'_>,
    input: &mut Vec<u8>,
) -> Poll<io::Result<bool>> {
    let mut space = [0; INPUT_BYTES];
    let mut space = ReadBuf::new(&mut space);
    ready!(Pin::new(stream).poll_read(cx, &mut space))?;
    input.extend_from_slice(space.filled());
    Poll::Ready(Ok(!space.filled().is_empty()))
}

/// Sends some of a part of a file without copying it, as soon as the socket takes any; answers how
/// many bytes that were. None only where the file ends.
pub async fn send_file(tcp: &TcpStream, file: &impl AsFd, range: Range) -> io::Result<u64> {
    let most = range.len().min(SENDFILE_BYTES_MAX) as usize;
    tcp.async_io(Interest::WRITABLE, || {
        let mut offset = range.start;
        Ok(rustix::fs::sendfile(tcp, file, Some(&mut offset), most)? as u64)
    })
    .await
}

/// One call sends no more than this. Over loopback 1 MiB costs a quarter more processor time than
/// this, and 64 KiB half more: the receiver is woken too late or too often.
const SENDFILE_BYTES_MAX: u64 = 192 << 10;
/// Read at a time where requests are expected.
const INPUT_BYTES: usize = 8 << 10;
