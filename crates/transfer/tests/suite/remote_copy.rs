//! Copies by servers of others: what they answer to COPY is understood, and never believed. The cases are
//! those of public bug reports of XRootD, dCache and davix.

use std::sync::{Arc, Mutex};

use swath_model::digest::{Algorithm, Hasher};
use swath_source::CopyWay;
use swath_transfer::observe::{Summary, Verified};
use swath_transfer::{Engine, EngineOptions, RemoteCopyError, RemoteCopyRequest, Stop, Url};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const CONTENT: &[u8] = b"what the source has";

/// What a server has, with the digests that it tells of it.
type There = Option<(&'static [u8], &'static [Algorithm])>;

/// A server that answers heads and COPY as it is told, and then closes.
#[derive(Clone, Default)]
struct Script {
    /// Under `/to`.
    there: There,
    /// Answers to COPY, one after the other; the last one again and again.
    copies: Vec<&'static str>,
}

fn head_of(content: &[u8], algorithms: &[Algorithm]) -> String {
    let digests = algorithms.iter().map(|&algorithm| {
        let digest = Hasher::digest(algorithm, content);
        match algorithm {
            Algorithm::Adler32 => format!("Digest: adler32={}\r\n", digest.to_hex()),
            _ => format!("Repr-Digest: {}\r\n", swath_formats::digest_header::write(&[digest])),
        }
    });
    let digests: String = digests.collect();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{digests}\r\n", content.len())
}

impl Script {
    /// Serves; returns the address and the requests that come.
    async fn serve(self) -> (Url, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut copies = 0;
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap() > 0
                {
                }
                let head = String::from_utf8(head).unwrap();
                let answer = match head.split(' ').take(2).collect::<Vec<_>>()[..] {
                    ["HEAD", "/from"] => head_of(CONTENT, &[Algorithm::Adler32, Algorithm::Sha256]),
                    ["HEAD", "/to"] => match self.there {
                        Some((content, algorithms)) => head_of(content, algorithms),
                        None => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
                    },
                    ["COPY", _] => {
                        copies += 1;
                        self.copies[(copies - 1).min(self.copies.len() - 1)].to_owned()
                    }
                    _ => "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n".to_owned(),
                };
                log.lock().unwrap().push(head);
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        (url, asked)
    }
}

/// Copies `/from` to this path of such a server; returns the end, and the requests that came.
async fn copied_to(
    to: &str,
    keeps_same: bool,
    copies: &[&'static str],
    there: There,
) -> (Result<Summary, RemoteCopyError>, Vec<String>) {
    let (url, asked) = Script { there, copies: copies.to_vec() }.serve().await;
    let engine = Engine::start(EngineOptions::default()).unwrap();
    let (from, to) = (url.join("from").unwrap(), url.join(to).unwrap());
    let (way, requires_digest) = (CopyWay::Pull, false);
    let request = RemoteCopyRequest { way, from, to, keeps_same, requires_digest, token: None };
    let ended = engine.remote_copy(&request, &mut |_: &_| {}, &Stop::default()).await;
    let asked = asked.lock().unwrap().clone();
    (ended, asked)
}

async fn copied(
    copies: &[&'static str],
    there: There,
) -> (Result<Summary, RemoteCopyError>, Vec<String>) {
    copied_to("to", false, copies, there).await
}

const RIGHT: There = Some((CONTENT, &[Algorithm::Adler32]));
const SHORT: There = Some((b"", &[]));
const OTHER: There = Some((b"what nobody shall get", &[Algorithm::Adler32]));
const MARKED: &str = "HTTP/1.1 202 Accepted\r\n\r\nPerf Marker\nStripe Index: 0\n\
                      Stripe Bytes Transferred: 19\nTotal Stripe Count: 1\nEnd\nsuccess: Created\n";

#[tokio::test]
async fn a_copy_has_succeeded_if_the_destination_tells_the_same() {
    for answer in [
        MARKED,
        // XRootD: bare numbers, and 201; dCache: no marker for a short file.
        "HTTP/1.1 201 Created\r\n\r\n7\n19\nsuccess: Created\n",
        "HTTP/1.1 202 Accepted\r\n\r\nsuccess: Created",
        // The answer is empty, or breaks off.
        "HTTP/1.1 202 Accepted\r\n\r\n",
        "HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\nPerf Marker\n",
    ] {
        let (ended, asked) = copied(&[answer], RIGHT).await;
        let summary = ended.unwrap_or_else(|error| panic!("{answer}: {error}"));
        assert_eq!((summary.verified, summary.size_bytes), (Verified::Digest, 19), "{answer}");
        let copy = asked.iter().find(|head| head.starts_with("COPY /to")).unwrap();
        for field in ["Source: http://", "Overwrite: T", "sha-256=", "Credential: none"] {
            assert!(copy.contains(field), "{copy}");
        }
    }
    // It tells no digest that the source tells too.
    let nothing = Some((CONTENT, [].as_slice()));
    assert_eq!(copied(&[MARKED], nothing).await.0.unwrap().verified, Verified::None);
}

#[tokio::test]
async fn what_a_server_claims_is_not_believed() {
    use RemoteCopyError as Error;
    type Expected = fn(&RemoteCopyError) -> bool;
    let cases: [(&str, There, Expected); 9] = [
        // A failure behind a success (XRootD).
        (
            "HTTP/1.1 201 Created\r\n\r\n5\nfailure: no route\n",
            SHORT,
            |error| matches!(error, Error::Failed { why, has_some: true } if why == "no route"),
        ),
        ("HTTP/1.1 202 Accepted\r\n\r\nfailure:\n", None, |error| {
            matches!(error, Error::Failed { has_some: false, .. })
        }),
        // An end without an outcome, and nothing there; or an empty file, which XRootD leaves.
        ("HTTP/1.1 202 Accepted\r\n\r\n", None, |error| matches!(error, Error::Unknown(_))),
        ("HTTP/1.1 202 Accepted\r\n\r\n19\n", SHORT, |error| matches!(error, Error::Unknown(_))),
        // A lie.
        (MARKED, SHORT, |error| matches!(error, Error::Differs(_))),
        (MARKED, None, |error| matches!(error, Error::Differs(_))),
        (MARKED, OTHER, |error| matches!(error, Error::Differs(_))),
        (
            "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n",
            None,
            |error| matches!(error, Error::Refused(refused) if refused.code() == Some(405)),
        ),
        ("SSH-2.0-OpenSSH_9\r\n", None, |error| matches!(error, Error::Refused(_))),
    ];
    for (answer, there, is_expected) in cases {
        let (ended, _) = copied(&[answer], there).await;
        let error = ended.err().unwrap_or_else(|| panic!("{answer}"));
        assert!(is_expected(&error), "{answer}: {error:?}");
    }
}

#[tokio::test]
async fn what_is_the_same_stays() {
    for (there, copies) in [(RIGHT, 0), (OTHER, 1), (SHORT, 1), (None, 1)] {
        let (ended, asked) = copied_to("to", true, &[MARKED], there).await;
        assert_eq!(ended.is_ok(), copies == 0, "the script does not copy: {there:?}");
        let asked = asked.iter().filter(|head| head.starts_with("COPY ")).count();
        assert_eq!(asked, copies, "{there:?}");
    }
}

#[tokio::test]
async fn redirects_are_followed_and_missing_folders_are_made() {
    let redirect = "HTTP/1.1 307 Elsewhere\r\nLocation: /door/to\r\nContent-Length: 0\r\n\r\n";
    let (ended, asked) = copied(&[redirect, MARKED], RIGHT).await;
    ended.unwrap();
    assert!(asked.iter().any(|head| head.starts_with("COPY /door/to ")), "{asked:?}");
    let conflict = "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n";
    let (_, asked) = copied_to("new/folder/to", false, &[conflict, MARKED], None).await;
    let made = asked.iter().position(|head| head.starts_with("MKCOL /new/folder/ ")).unwrap();
    let copies = asked.iter().filter(|head| head.starts_with("COPY ")).count();
    assert_eq!(copies, 2, "{asked:?}");
    assert!(asked[made + 1..].iter().any(|head| head.starts_with("COPY ")), "{asked:?}");
}
