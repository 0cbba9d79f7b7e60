//! One connection: requests in, answers out, one behind the other, until either side ends it.
//!
//! A connection is one task; when the server dies or stops, the task is dropped and its socket
//! with it, so nothing outlives the server.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until};
use tokio_rustls::TlsAcceptor;

use super::answer::{Answer, Body};
use super::behaviour::{Faults, Pipelining};
use super::pace::Pacer;
use super::request::{Incoming, NoRequest, QUEUE_READS, Request, pump};
use super::state::{Shared, Verdicts};

/// Serves one connection to its end.
pub(super) async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    number: u64,
) {
    let _open = Open::count(&shared);
    let _ = stream.set_nodelay(true);
    let socket = Socket(stream.as_raw_fd());
    let mut changed = shared.changed.subscribe();
    match tls {
        None => converse(shared, stream, socket, number).await,
        Some(acceptor) => {
            // A silent server does not shake hands either.
            gate(&shared, "", &Verdicts::default(), &mut changed).await;
            if let Ok(stream) = acceptor.accept(stream).await {
                converse(shared, stream, socket, number).await;
            }
        }
    }
}

async fn converse<S>(shared: Arc<Shared>, stream: S, socket: Socket, number: u64)
where
    S: AsyncRead + AsyncWrite,
{
    let (reader, writer) = tokio::io::split(stream);
    let (queue, arrivals) = mpsc::channel(QUEUE_READS);
    let session = Session {
        changed: shared.changed.subscribe(),
        shared,
        number,
        writer,
        incoming: Incoming::new(arrivals),
        socket,
        requests: 0,
        sent_bytes: 0,
        stalled: Vec::new(),
        pacer: Pacer::default(),
        buffer: Vec::new(),
    };
    let reader = std::pin::pin!(reader);
    tokio::select! {
        () = session.run() => {}
        () = pump(reader, queue) => {}
    }
}

/// Counts a connection for as long as its task lives, however it ends.
struct Open(Arc<Shared>);

impl Open {
    fn count(shared: &Arc<Shared>) -> Open {
        shared.open_connections.fetch_add(1, Relaxed);
        Open(shared.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open_connections.fetch_sub(1, Relaxed);
    }
}

/// The state of one connection.
pub(super) struct Session<W> {
    pub shared: Arc<Shared>,
    pub changed: watch::Receiver<u64>,
    pub number: u64,
    pub writer: W,
    pub incoming: Incoming,
    pub socket: Socket,
    pub requests: u64,
    /// Body bytes of this connection.
    pub sent_bytes: u64,
    /// Stall rules that this connection has been through.
    pub stalled: Vec<u64>,
    pub pacer: Pacer,
    pub buffer: Vec<u8>,
}

/// How an answer ended, and what becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The next request may come.
    Keep,
    /// Closed in good order.
    Close,
    /// FIN in the middle.
    Cut,
    /// RST.
    Reset,
}

impl<W: AsyncWrite + Unpin> Session<W> {
    async fn run(mut self) {
        let end = loop {
            let standing = self.shared.faults("", &Verdicts::default());
            let idle = standing.keep_alive.map_or(IDLE, |(_, timeout)| timeout);
            match self.incoming.next(idle).await {
                Ok(request) => match self.respond(&request).await {
                    Ok(End::Keep) => {}
                    Ok(end) => break end,
                    // The client went away.
                    Err(_) => return,
                },
                Err(NoRequest::Bad) => {
                    let _ = self.writer.write_all(BAD_REQUEST).await;
                    break End::Close;
                }
                Err(NoRequest::Closed | NoRequest::Idle) => break End::Close,
            }
        };
        match end {
            End::Reset => self.socket.reset_on_close(),
            End::Cut => {
                // The descriptor, not the stream: TLS must not say farewell.
                self.socket.shut_down();
                self.incoming.drain(LINGER).await;
            }
            End::Keep | End::Close => {
                let _ = self.writer.shutdown().await;
                self.incoming.drain(LINGER).await;
            }
        }
    }

    async fn respond(&mut self, request: &Request) -> io::Result<End> {
        self.requests += 1;
        let record = self.shared.open_record(self.number, request);
        let verdicts = self.shared.judge(self.number, request);
        let outcome = self.respond_recorded(request, &verdicts, record).await;
        let now = self.shared.started.elapsed();
        self.shared.record(record, |record| {
            record.ended = Some(now);
            record.complete = matches!(outcome, Ok(End::Keep | End::Close));
        });
        outcome
    }

    async fn respond_recorded(
        &mut self,
        request: &Request,
        verdicts: &Verdicts,
        record: u64,
    ) -> io::Result<End> {
        let shared = self.shared.clone();
        let delay = shared.faults(&request.path, verdicts).first_byte_delay;
        sleep_until((request.arrived + delay).into()).await;
        let faults = gate(&shared, &request.path, verdicts, &mut self.changed).await;
        if let Some(reset) = faults.unanswered {
            return Ok(if reset { End::Reset } else { End::Cut });
        }

        let with_query = request.query.as_ref().map(|query| format!("{}?{query}", request.path));
        let route = with_query
            .and_then(|whole| shared.route(&whole))
            .or_else(|| shared.route(&request.path));
        let answer = Answer::to(request, route.as_ref(), &faults, self.requests);
        shared.record(record, |record| {
            record.status = answer.status;
            if let Body::File { range, .. } = &answer.body
                && request.method == "GET"
            {
                record.range = Some(range.clone());
            }
        });
        if faults.junk_100 {
            self.writer.write_all(JUNK_100).await?;
        }
        self.send_head(&answer.head(&faults), &faults).await?;
        if request.method != "HEAD" {
            let sent = self.send_body(&answer, route.as_ref(), request, verdicts, record).await?;
            if sent != End::Keep {
                return Ok(sent);
            }
        }
        self.writer.flush().await?;
        if answer.close {
            return Ok(End::Close);
        }
        Ok(match faults.pipelining {
            Some(how) if self.incoming.has_more() => match how {
                Pipelining::Lose => {
                    self.incoming.forget();
                    End::Keep
                }
                Pipelining::Close => End::Close,
                Pipelining::Reset => End::Reset,
            },
            _ => End::Keep,
        })
    }

    async fn send_head(&mut self, head: &[u8], faults: &Faults) -> io::Result<()> {
        let Some(byte_every) = faults.slow_head else {
            return self.writer.write_all(head).await;
        };
        for byte in head {
            sleep(byte_every).await;
            self.writer.write_all(&[*byte]).await?;
            self.writer.flush().await?;
        }
        Ok(())
    }
}

/// Waits while the server is silent or stalled, and answers with the rules as they are then.
pub(super) async fn gate(
    shared: &Shared,
    path: &str,
    verdicts: &Verdicts,
    changed: &mut watch::Receiver<u64>,
) -> Faults {
    loop {
        changed.mark_unchanged();
        let faults = shared.faults(path, verdicts);
        if faults.silent {
            // The sender lives in `shared`, so this cannot fail.
            let _ = changed.changed().await;
        } else if let Some(until) = shared.stalled_until() {
            tokio::select! {
                () = sleep_until(until.into()) => {}
                _ = changed.changed() => {}
            }
        } else {
            return faults;
        }
    }
}

/// The descriptor of a connection's socket, which stays open as long as its session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Socket(RawFd);

impl Socket {
    /// Makes the coming close a reset.
    fn reset_on_close(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        // SAFETY: the descriptor belongs to the stream whose halves the calling session owns, and
        // the option value is a live `linger` of the size given.
        unsafe {
            libc::setsockopt(
                self.0,
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                size_of::<libc::linger>() as libc::socklen_t,
            );
        }
    }

    /// Sends FIN under whatever protocol runs on the socket.
    fn shut_down(self) {
        // SAFETY: as above; `shutdown` touches no memory.
        unsafe {
            libc::shutdown(self.0, libc::SHUT_WR);
        }
    }
}

/// How long a connection may be idle where no rule says otherwise: longer than any test.
const IDLE: Duration = Duration::from_secs(3600);
/// How long a closed connection is still read, so that no reset overtakes the last bytes: longer than a
/// busy machine keeps a client from closing it.
const LINGER: Duration = Duration::from_secs(60);
const BAD_REQUEST: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const JUNK_100: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n\
    HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n";

/// For deadlines that wait on nothing else.
pub(super) async fn sleep_to(at: Instant) {
    if at > Instant::now() {
        sleep_until(at.into()).await;
    }
}
