//! A crowd of clients: many idle connections, and many that fetch a file at the same time.
//!
//! It runs as a program of its own, so that its memory is not taken for anybody else's. All
//! clients are tasks of one thread with one buffer; what arrives is thrown away.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, LocalSet};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::results::Spread;

/// Who comes, and what they want.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// `HOST:PORT`.
    pub address: String,
    /// Connections that ask for `small` once, stay, and ask again at the end.
    pub idle: usize,
    /// Connections that ask for `large` once, all at the same time.
    pub active: usize,
    /// Path of a small file.
    pub small: String,
    /// Path of a large one.
    pub large: String,
    /// Size of the large one.
    pub large_bytes: u64,
}

/// How the active ones fared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fared {
    /// From the common start to the end of the last one.
    pub elapsed_s: f64,
    /// The middle one's bytes per second.
    pub median_bytes_per_s: f64,
    /// The slowest one's.
    pub slowest_bytes_per_s: f64,
}

/// Lets the crowd loose. With `ca` it speaks TLS and trusts the certificates in that file (PEM).
///
/// # Errors
/// When one of them, also an idle one at the end, does not get all that it asked for.
pub fn visit(crowd: &Crowd, ca: Option<&Path>) -> io::Result<Fared> {
    let tls = ca.map(connector).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let limit = tokio::time::timeout(LIMIT, visit_all(crowd, tls));
        limit.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    })
}

async fn visit_all(crowd: &Crowd, tls: Option<TlsConnector>) -> io::Result<Fared> {
    let buffer = Rc::new(RefCell::new(vec![0; BUFFER_BYTES]));
    let mut idle = Vec::with_capacity(crowd.idle);
    for number in 0..crowd.idle {
        let mut client = Client::connect(&crowd.address, tls.as_ref(), &buffer).await?;
        client.fetch(&crowd.small, None).await.map_err(|e| named("idle", number, e))?;
        idle.push(client);
    }
    // One more than the clients: the clock.
    let start = Rc::new(Barrier::new(crowd.active + 1));
    let mut active: Vec<JoinHandle<io::Result<Instant>>> = Vec::with_capacity(crowd.active);
    for _ in 0..crowd.active {
        let mut client = Client::connect(&crowd.address, tls.as_ref(), &buffer).await?;
        let (start, path, bytes) = (start.clone(), crowd.large.clone(), crowd.large_bytes);
        active.push(tokio::task::spawn_local(async move {
            start.wait().await;
            client.fetch(&path, Some(bytes)).await?;
            Ok(Instant::now())
        }));
    }
    start.wait().await;
    let begin = Instant::now();
    let mut seconds = Vec::with_capacity(crowd.active);
    for (number, task) in active.into_iter().enumerate() {
        let end = task.await.map_err(io::Error::other)?.map_err(|e| named("active", number, e))?;
        seconds.push((end - begin).as_secs_f64());
    }
    for (number, client) in idle.iter_mut().enumerate() {
        client.fetch(&crowd.small, None).await.map_err(|e| named("idle", number, e))?;
    }
    fared(&seconds, crowd.large_bytes).ok_or_else(|| io::Error::other("nobody was active"))
}

/// From the seconds that each took for as many bytes.
fn fared(seconds: &[f64], bytes: u64) -> Option<Fared> {
    let rates = Spread::of(seconds.iter().map(|seconds| bytes as f64 / seconds))?;
    Some(Fared {
        elapsed_s: Spread::of(seconds.iter().copied())?.max,
        median_bytes_per_s: rates.median,
        slowest_bytes_per_s: rates.min,
    })
}

fn named(kind: &str, number: usize, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{kind} client {number}: {error}"))
}

/// One connection.
struct Client {
    stream: Box<dyn Stream>,
    /// One for all: what is in it is of no interest after the read.
    buffer: Rc<RefCell<Vec<u8>>>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

impl Client {
    async fn connect(
        address: &str,
        tls: Option<&TlsConnector>,
        buffer: &Rc<RefCell<Vec<u8>>>,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
                Box::new(tls.connect(name, stream).await?)
            }
        };
        Ok(Self { stream, buffer: buffer.clone() })
    }

    /// Asks for a file and throws it away; `bytes` is how long it must be, where that is known.
    async fn fetch(&mut self, path: &str, bytes: Option<u64>) -> io::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.flush().await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= HEAD_BYTES {
                return Err(io::Error::other("an endless head"));
            }
            head.push(self.stream.read_u8().await?);
        }
        let length_bytes = body_bytes(&head)?;
        if bytes.is_some_and(|bytes| bytes != length_bytes) {
            return Err(io::Error::other(format!("{length_bytes} bytes in the answer")));
        }
        let mut left_bytes = length_bytes;
        while left_bytes > 0 {
            let count = self.read_some(left_bytes).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left_bytes -= count as u64;
        }
        Ok(())
    }

    /// Into the common buffer, which nobody holds while waiting.
    async fn read_some(&mut self, most_bytes: u64) -> io::Result<usize> {
        std::future::poll_fn(|context| {
            let mut buffer = self.buffer.borrow_mut();
            let most =
                usize::try_from(most_bytes).map_or(BUFFER_BYTES, |most| most.min(BUFFER_BYTES));
            let mut part = tokio::io::ReadBuf::new(&mut buffer[..most]);
            let read = std::pin::Pin::new(&mut self.stream).poll_read(context, &mut part);
            read.map_ok(|()| part.filled().len())
        })
        .await
    }
}

/// The length of the body behind the head of a good answer.
fn body_bytes(head: &[u8]) -> io::Result<u64> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines();
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200") {
        return Err(io::Error::other(status.to_owned()));
    }
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, value)| value.trim().parse().ok());
    length.ok_or_else(|| io::Error::other("an answer of unknown length"))
}

fn connector(ca: &Path) -> io::Result<TlsConnector> {
    let mut trusted = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(io::Error::other)? {
        trusted.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let configuration =
        ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(trusted)
            .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(configuration)))
}

const BUFFER_BYTES: usize = 256 << 10;
/// A head of a file's answer is far smaller.
const HEAD_BYTES: usize = 16 << 10;
/// A crowd that takes longer has said what it has to say.
const LIMIT: Duration = Duration::from_secs(240);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    #[test]
    fn only_good_answers_of_known_length_count() {
        let length = |head: &str| body_bytes(head.as_bytes());
        assert_eq!(length("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n").unwrap(), 7);
        assert!(length("HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\n").is_err());
        assert!(length("HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn the_slowest_is_compared_with_the_middle() {
        let fared = fared(&[1.0, 2.0, 4.0], 8).unwrap();
        assert_eq!(
            fared,
            Fared { elapsed_s: 4.0, median_bytes_per_s: 4.0, slowest_bytes_per_s: 2.0 }
        );
    }

    /// A server of "x" at every path, that cuts the large one short if told to.
    fn serve(connections: usize, is_short: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(connections) {
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let mut request = Vec::new();
                    let mut byte = [0];
                    while stream.read(&mut byte).unwrap_or(0) == 1 {
                        request.push(byte[0]);
                        if !request.ends_with(b"\r\n\r\n") {
                            continue;
                        }
                        let is_large = request.starts_with(b"GET /large ");
                        let body = if is_large { "x".repeat(500_000) } else { "x".to_owned() };
                        let head =
                            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                        let sent = if is_large && is_short { body.len() / 2 } else { body.len() };
                        let mut send = |part: &[u8]| stream.write_all(part).is_ok();
                        let is_sent = send(head.as_bytes()) && send(&body.as_bytes()[..sent]);
                        if !is_sent || sent < body.len() {
                            return;
                        }
                        request.clear();
                    }
                });
            }
        });
        address
    }

    fn crowd(address: String) -> Crowd {
        Crowd {
            address,
            idle: 5,
            active: 3,
            small: "/small".to_owned(),
            large: "/large".to_owned(),
            large_bytes: 500_000,
        }
    }

    #[test]
    fn a_crowd_gets_what_it_asks_for_or_says_who_did_not() {
        let fared = visit(&crowd(serve(8, false)), None).unwrap();
        assert!(fared.elapsed_s > 0.0 && fared.slowest_bytes_per_s <= fared.median_bytes_per_s);
        let error = visit(&crowd(serve(8, true)), None).unwrap_err();
        assert!(error.to_string().starts_with("active client "), "{error}");
        let longer = Crowd { large_bytes: 500_001, ..crowd(serve(8, false)) };
        assert!(visit(&longer, None).unwrap_err().to_string().contains("500000 bytes"));
    }
}
