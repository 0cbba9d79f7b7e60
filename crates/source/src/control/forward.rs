//! Requests of somebody else, passed on to a server of the user.
//!
//! Whoever asks sees the part of that server that the user named, and nothing else of it: other paths,
//! methods and requests are refused. The user's credentials are added here, and are not shown to whoever
//! asks. Answers pass as they come.

use std::io;
use std::pin::pin;
use std::time::Instant;

use futures_util::future::BoxFuture;
use swath_formats::percent;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use url::Url;

use crate::error::LaneError;
use crate::net::{Net, Tunnel};
use crate::source::Trust;
use crate::target::Target;

/// The part of a server that others may read through this process.
#[derive(Clone, Debug)]
pub struct Forward {
    net: Net,
    /// The folder; its path ends in `/`.
    folder: Url,
    /// Only this file of it.
    file: Option<ForwardedFile>,
}

/// A single file, which is read as a dataset of one entry.
#[derive(Clone, Debug)]
pub struct ForwardedFile {
    /// Its name in the folder.
    pub name: String,
    /// The name that whoever asks sees.
    pub shown_as: String,
}

/// What was asked for is not passed on.
struct Unforwarded;

impl Forward {
    /// Passes on requests for what is below `folder`, or for one file of it.
    pub fn new(net: Net, folder: Url, file: Option<ForwardedFile>) -> Forward {
        Forward { net, folder, file }
    }

    /// Passes on the requests that come on `asking`, until either side ends its connection. The server is
    /// connected first.
    ///
    /// # Errors
    /// Any [`LaneError`] if the server cannot be connected.
    pub fn connect<'a>(&'a self) -> BoxFuture<'a, Result<Forwarding, LaneError>> {
        Box::pin(async move {
            self.net.note_named(&self.folder);
            let target = Target::new(&self.net, &self.folder, &self.folder, Trust::Named);
            let conn = self.net.connect(&target, true, false).await?;
            if conn.is_by_library() {
                return Err(LaneError::protocol("through another machine it must speak HTTP/1.1"));
            }
            Ok(Forwarding { forward: self.clone(), server: Tunnel::new(conn, Vec::new()) })
        })
    }

    /// Returns the request for the server.
    fn request(&self, head: &httparse::Request<'_, '_>) -> Result<Vec<u8>, Unforwarded> {
        let method = head.method.filter(|method| matches!(*method, "GET" | "HEAD"));
        let url = self.url(head.path.unwrap_or_default())?;
        let target = Target::new(&self.net, &self.folder, &url, Trust::Named);
        let mut lines = target.begin(method.ok_or(Unforwarded)?, None);
        for field in head.headers.iter() {
            let is_passed = PASSED_FIELDS.iter().any(|name| field.name.eq_ignore_ascii_case(name));
            if is_passed {
                let value = std::str::from_utf8(field.value).map_err(|_| Unforwarded)?;
                lines.add(field.name, value);
            } else if has_body(field) {
                return Err(Unforwarded);
            }
        }
        lines.end().map_err(|_| Unforwarded)
    }

    /// Returns the address at the server of what is asked for here.
    fn url(&self, asked: &str) -> Result<Url, Unforwarded> {
        let (path, query) = match asked.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (asked, None),
        };
        let below = path.strip_prefix('/').ok_or(Unforwarded)?;
        let mut url = self.folder.clone();
        // This also resolves `..`, encoded or not.
        url.set_path(&format!("{}{below}", self.folder.path()));
        let decoded = percent::decode(url.path());
        let leaves = decoded.split(|&byte| byte == b'/').any(|part| part == b"..");
        if leaves || !url.path().starts_with(self.folder.path()) {
            return Err(Unforwarded);
        }
        url.set_query(query);
        let mut asks =
            query.is_some().then(|| url.query_pairs().filter(|(name, _)| name == "swath"));
        let mut next = || asks.as_mut().and_then(Iterator::next);
        // A second one could be the one that counts.
        let is_dataset = matches!((next(), next()), (Some((_, asks)), None) if DATASET_REQUESTS.contains(&&*asks));
        match &self.file {
            None if is_dataset || query.is_none() => {}
            Some(file) if is_dataset && below.is_empty() => {
                let is_new = !url.query_pairs().any(|(name, _)| name == "walk");
                if is_new {
                    let mut pairs = url.query_pairs_mut();
                    pairs.append_pair("file", &file.name).append_pair("as", &file.shown_as);
                }
            }
            _ => return Err(Unforwarded),
        }
        Ok(url)
    }
}

/// Whether a body follows a request with this field.
fn has_body(field: &httparse::Header<'_>) -> bool {
    let is = |name: &str| field.name.eq_ignore_ascii_case(name);
    is("transfer-encoding") || is("upgrade") || is("content-length") && field.value != b"0"
}

/// A connection to the server, ready for requests.
pub struct Forwarding {
    forward: Forward,
    server: Tunnel,
}

impl Forwarding {
    /// Passes on requests from `asking`, and the answers, until one of them ends.
    pub async fn pass(self, asking: impl AsyncRead + AsyncWrite) {
        let Forwarding { forward, server } = self;
        let (mut from_server, mut to_server) = tokio::io::split(server);
        let (mut requests, mut answers) = tokio::io::split(asking);
        let ended = {
            let asked = pin!(forward.pass_requests(&mut requests, &mut to_server));
            let answered = pin!(forward.pass_answers(&mut from_server, &mut answers));
            tokio::select! {
                ended = asked => ended,
                ended = answered => ended,
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection through this machine ended");
        }
        let _ = answers.shutdown().await;
    }
}

impl Forward {
    async fn pass_requests(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let mut come = Vec::new();
        loop {
            let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
            let mut head = httparse::Request::new(&mut fields);
            let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
            match head.parse(&come).map_err(|error| bad(&error.to_string()))? {
                httparse::Status::Complete(bytes) => {
                    let request = self.request(&head);
                    let request = request.map_err(|Unforwarded| bad("not passed on"))?;
                    to.write_all(&request).await?;
                    come.drain(..bytes);
                }
                httparse::Status::Partial if come.len() > HEAD_BYTES_MAX => {
                    return Err(bad("a request is too long"));
                }
                httparse::Status::Partial => {
                    to.flush().await?;
                    if from.read_buf(&mut come).await? == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn pass_answers(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let mut part = vec![0; PART_BYTES];
        loop {
            let come = from.read(&mut part).await?;
            if come == 0 {
                return to.flush().await;
            }
            let mut rest = &part[..come];
            while !rest.is_empty() {
                let mut now = rest.len();
                if let Some(mut share) = self.net.limiter().reserve(Instant::now()) {
                    if let Some(due) = share.due(Instant::now()) {
                        tokio::time::sleep_until(due.into()).await;
                    }
                    now = now.min(usize::try_from(share.left_bytes()).unwrap_or(usize::MAX));
                    share.spend(now as u64);
                }
                to.write_all(&rest[..now]).await?;
                rest = &rest[now..];
            }
            to.flush().await?;
        }
    }
}

/// What may be asked of a dataset. Other requests could concern what the user has on this server otherwise.
const DATASET_REQUESTS: [&str; 5] = ["index", "sealed", "data", "seals", "changed"];
/// Fields that say what is wanted; others could speak for the user.
const PASSED_FIELDS: [&str; 8] = [
    "accept",
    "accept-encoding",
    "connection",
    "if-match",
    "if-range",
    "range",
    "want-digest",
    "want-repr-digest",
];
/// More than clients send.
const FIELDS_MAX: usize = 64;
/// More than any head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Enough to keep both sides busy at many Gbit/s.
const PART_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::NetOptions;

    fn forward(file: Option<&str>) -> Forward {
        let net = Net::new(NetOptions::default()).unwrap();
        let folder = Url::parse("https://a.example:8470/ds%20x/").unwrap();
        let file = file.map(|name| ForwardedFile { name: name.to_owned(), shown_as: "s".into() });
        Forward::new(net, folder, file)
    }

    fn asked(forward: &Forward, path: &str) -> Option<String> {
        forward.url(path).ok().map(|url| url[url::Position::BeforePath..].to_owned())
    }

    #[tokio::test]
    async fn only_what_is_below_the_folder_is_passed_on() {
        let folder = forward(None);
        let passed = |path: &str| asked(&folder, path);
        assert_eq!(passed("/a/b").as_deref(), Some("/ds%20x/a/b"));
        assert_eq!(passed("/?swath=index&xattr=yes").unwrap(), "/ds%20x/?swath=index&xattr=yes");
        assert_eq!(passed("/?swath=sealed&walk=3").unwrap(), "/ds%20x/?swath=sealed&walk=3");
        for outside in [
            "a",
            "",
            "http://other.example/",
            "/../other",
            "/a/../../other",
            "/%2e%2e/other",
            "/a/%2E%2e/%2e%2e/other",
            "/..%2fother",
            "/..\\other",
            "/?swath=jobs",
            "/?swath=third-party",
            "/?x=y",
            "/?swath=job&job=1&swath=index",
            "/?swath=index&swath=jobs",
        ] {
            assert_eq!(passed(outside), None, "{outside}");
        }
        let file = forward(Some("f&g"));
        let passed = |path: &str| asked(&file, path);
        assert_eq!(passed("/?swath=index").unwrap(), "/ds%20x/?swath=index&file=f%26g&as=s");
        assert_eq!(passed("/?swath=index&walk=1").unwrap(), "/ds%20x/?swath=index&walk=1");
        for other in ["/", "/f&g", "/other", "/sub/?swath=index", "/?swath=jobs"] {
            assert_eq!(passed(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn requests_show_the_users_credentials_and_no_field_of_whoever_asks() {
        let folder = forward(None);
        let passed = |text: &str| {
            let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
            let mut head = httparse::Request::new(&mut fields);
            assert!(head.parse(text.as_bytes()).unwrap().is_complete());
            folder.request(&head).ok().map(|request| String::from_utf8(request).unwrap())
        };
        let request = passed(
            "GET /f HTTP/1.1\r\nHost: here\r\nRange: bytes=0-9\r\nAuthorization: Bearer x\r\n\
             Cookie: c\r\nOrigin: o\r\n\r\n",
        );
        let request = request.unwrap();
        assert!(request.starts_with("GET /ds%20x/f HTTP/1.1\r\nHost: a.example:8470\r\n"));
        assert!(request.contains("Range: bytes=0-9\r\n") && request.ends_with("\r\n\r\n"));
        for absent in ["Bearer", "Cookie", "Origin", "Host: here"] {
            assert!(!request.contains(absent), "{absent}");
        }
        for refused in [
            "PUT /f HTTP/1.1\r\nContent-Length: 1\r\n\r\n",
            "DELETE /f HTTP/1.1\r\n\r\n",
            "GET /f HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
            "GET /f HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET /f HTTP/1.1\r\nUpgrade: swath-lane\r\n\r\n",
        ] {
            assert_eq!(passed(refused), None, "{refused}");
        }
    }
}
