//! Control requests: small documents, heads, probing.

use std::time::Duration;

use crate::support::options;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use swath_model::digest::{Algorithm as DigestAlgorithm, Digest, Hasher};
use swath_netlab::faulty::{
    Algorithm, Behaviour, Certificate, Content, DigestField, Pipelining, Server, self_signed_pem,
};
use swath_source::{
    Class, DepotError, DocumentVersion, LaneError, Net, NetOptions, RelayAccess, Trust,
    fetch_small, fetch_small_if_changed, head, probe,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use url::Url;

fn url(server: &Server, path: &str) -> Url {
    Url::parse(&server.handle().url(path)).unwrap()
}

fn nets() -> [Net; 2] {
    [false, true].map(|fallback_only| Net::new(NetOptions { fallback_only, ..options() }).unwrap())
}

#[tokio::test]
async fn small_documents_arrive_whole_or_not_at_all() {
    let content = Content::random(1, 50_000);
    let server = Server::builder()
        .file_as("/m", "application/metalink4+xml", content.clone())
        .start()
        .unwrap();
    server.handle().put("/from", Content::random(2, 10));
    server.handle().set_on("/from", Behaviour::redirect("/m"));
    for net in nets() {
        let from = url(&server, "/from");
        let document = fetch_small(&net, &from, Trust::Named, "application/metalink4+xml", 50_000)
            .await
            .unwrap();
        assert_eq!(document.bytes, content.read(0, 50_000));
        assert_eq!(document.content_type.as_deref(), Some("application/metalink4+xml"));
        assert_eq!(document.final_url, url(&server, "/m"));
        let error = fetch_small(&net, &from, Trust::Named, "*/*", 49_999).await.unwrap_err();
        assert_eq!(error, LaneError::TooLarge { limit_bytes: 49_999 });
        let error =
            fetch_small(&net, &url(&server, "/none"), Trust::Named, "*/*", 10).await.unwrap_err();
        assert_eq!(error.class(), Class::Missing);
    }
    let log = server.handle().log();
    assert_eq!(log.records[0].header("accept"), Some("application/metalink4+xml"));
    for chunked in [Behaviour::Chunked { chunk_bytes: 777 }, Behaviour::CloseDelimited] {
        server.handle().set_on("/m", chunked);
        let document = fetch_small(&nets()[0], &url(&server, "/m"), Trust::Named, "*/*", 60_000)
            .await
            .unwrap();
        assert_eq!(document.bytes.len(), 50_000);
    }
}

#[tokio::test]
async fn a_document_that_has_not_changed_is_not_sent_again() {
    let server = Server::builder().file("/m", Content::random(1, 50_000)).start().unwrap();
    for (net, seed) in nets().into_iter().zip(2..) {
        let url = url(&server, "/m");
        let fetch = |known: DocumentVersion| {
            let (net, url) = (net.clone(), url.clone());
            async move { fetch_small_if_changed(&net, &url, Trust::Named, "*/*", 50_000, &known).await }
        };
        let (document, version) = fetch(DocumentVersion::default()).await.unwrap().unwrap();
        assert_eq!(document.bytes.len(), 50_000);
        assert!(version.etag.is_some() && version.last_modified.is_some());
        let sent = server.handle().sent_bytes();
        assert_eq!(fetch(version.clone()).await, Ok(None));
        assert_eq!(server.handle().sent_bytes(), sent);
        let content = Content::random(seed, 40_000);
        server.handle().replace("/m", content.clone());
        let (document, other) = fetch(version.clone()).await.unwrap().unwrap();
        assert_eq!(document.bytes, content.read(0, 40_000));
        assert_ne!(other, version);
        // A tag that would be a header of its own is not sent.
        let etag = Some("\"x\"\r\nCookie: a=b".to_owned());
        let (known, log) = (DocumentVersion { etag, last_modified: None }, server.handle());
        assert!(fetch(known).await.unwrap().is_some());
        let log = log.log();
        let last = log.records.last().unwrap();
        assert!(last.header("cookie").is_none() && last.header("if-none-match").is_none());
        server.handle().replace("/m", Content::random(1, 50_000));
    }
    // Nobody asked.
    server.handle().set_on("/m", Behaviour::status(304));
    let known = DocumentVersion::default();
    let net = &nets()[0];
    let url = url(&server, "/m");
    let fetched = fetch_small_if_changed(net, &url, Trust::Named, "*/*", 50_000, &known).await;
    assert_eq!(fetched.unwrap_err().code(), Some(304));
}

/// XRootD 5 loses some of its answers with digests.
#[tokio::test]
async fn a_server_that_does_not_answer_is_asked_once_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/f", listener.local_addr().unwrap())).unwrap();
    let server = tokio::spawn(async move {
        let (_silent, _) = listener.accept().await.unwrap();
        let (mut second, _) = listener.accept().await.unwrap();
        second.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n").await.unwrap();
        // Until the test has ended.
        std::future::pending::<()>().await;
    });
    let facts = head(&nets()[0], &url, Trust::Named).await.unwrap();
    assert_eq!(facts.size_bytes, Some(7));
    server.abort();
}

#[tokio::test]
async fn heads_tell_size_and_digest() {
    let digest = Behaviour::DigestHeader {
        field: DigestField::Digest,
        algorithm: Algorithm::Adler32,
        right: true,
    };
    let server =
        Server::builder().file("/f", Content::random(1, 5000)).behaviour(digest).start().unwrap();
    for net in nets() {
        let facts = head(&net, &url(&server, "/f"), Trust::Named).await.unwrap();
        assert_eq!((facts.size_bytes, facts.ranges, facts.digests.len()), (Some(5000), true, 1));
    }
    let busy = Server::builder().behaviour(Behaviour::busy(503, 3)).start().unwrap();
    let error = head(&nets()[0], &url(&busy, "/f"), Trust::Named).await.unwrap_err();
    assert_eq!(error.class(), Class::Busy(std::time::Duration::from_secs(3)));
}

#[tokio::test]
async fn a_probe_finds_out_what_a_server_really_does() {
    let net = Net::new(NetOptions { insecure: true, ..options() }).unwrap();
    let good = Server::builder().file("/f", Content::random(1, 5000)).start().unwrap();
    let report = probe(&net, &url(&good, "/f"), Trust::Named).await.unwrap();
    assert_eq!((report.facts.size_bytes, report.facts.ranges), (Some(5000), true));
    assert_eq!((report.pipelines, report.keeps_alive), (Some(true), true));
    assert_eq!((report.http.as_slice(), report.tls), (["HTTP/1.1"].as_slice(), None));
    assert!(report.redirects.is_empty());

    let tls = Server::builder()
        .file("/f", Content::random(1, 5000))
        .tls(Certificate::Valid)
        .start()
        .unwrap();
    let report = probe(&net, &url(&tls, "/f"), Trust::Named).await.unwrap();
    assert!(report.tls.unwrap().starts_with("TLS 1.3"));

    let lies = Server::builder()
        .file("/f", Content::random(1, 5000))
        .behaviour(Behaviour::NoRanges)
        .start()
        .unwrap();
    lies.handle().add(Behaviour::header("Accept-Ranges", "bytes"));
    let report = probe(&net, &url(&lies, "/f"), Trust::Named).await.unwrap();
    assert_eq!((report.facts.ranges, report.pipelines), (false, None));

    let breaks = Behaviour::Pipelining(Pipelining::Close);
    let breaks =
        Server::builder().file("/f", Content::random(1, 5000)).behaviour(breaks).start().unwrap();
    let report = probe(&net, &url(&breaks, "/f"), Trust::Named).await.unwrap();
    assert_eq!((report.facts.ranges, report.pipelines), (true, Some(false)));

    let closes = Server::builder()
        .file("/f", Content::random(1, 5000))
        .behaviour(Behaviour::Close)
        .start()
        .unwrap();
    let from = Server::builder()
        .behaviour(Behaviour::redirect(closes.handle().url("/f")))
        .start()
        .unwrap();
    let report = probe(&net, &url(&from, "/x"), Trust::Named).await.unwrap();
    assert_eq!((report.keeps_alive, report.pipelines), (false, None));
    assert_eq!(report.redirects, [closes.handle().url("/f")]);

    let closed = Server::builder().behaviour(Behaviour::status(401)).start().unwrap();
    let error = probe(&net, &url(&closed, "/f"), Trust::Named).await.unwrap_err();
    assert_eq!(error.class(), Class::Unauthenticated);
    let page = Server::builder()
        .file("/f.iso", Content::random(1, 5))
        .behaviour(Behaviour::HtmlPage)
        .start()
        .unwrap();
    assert_eq!(
        probe(&net, &url(&page, "/f.iso"), Trust::Named).await.unwrap_err(),
        LaneError::Html
    );
}

#[tokio::test]
async fn control_requests_end() {
    // A head byte by byte, and interim answers without end, kept a probe for ever.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dripping = format!("http://{}/f", listener.local_addr().unwrap());
    let drips = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        // It is connected and asked; now each second passes at once.
        tokio::time::pause();
        stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").await.unwrap();
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let net = Net::new(options()).unwrap();
    let error = probe(&net, &Url::parse(&dripping).unwrap(), Trust::Named).await.unwrap_err();
    assert!(matches!(error, LaneError::Timeout { .. }), "{error}");
    drips.abort();
    tokio::time::resume();
    let hinting = crate::support::Server::start(|_| {
        crate::support::Reply::keep(b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100))
    })
    .await;
    let net = Net::new(options()).unwrap();
    let error = head(&net, &hinting.url, Trust::Named).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server does not speak proper HTTP: interim answers without end"
    );
}

#[tokio::test]
async fn a_depot_that_stops_in_the_middle_of_its_words_is_not_waited_for() {
    // Once its head was there nothing bounded the rest, and who asked several depots at once heard of
    // none of them.
    let stalls = crate::support::Server::start(|request| {
        // What is waited for is at hand, apart from the rest of the answer.
        tokio::time::pause();
        let status = if request.head.starts_with("DELETE") { 500 } else { 200 };
        crate::support::Reply::keep(format!(
            "HTTP/1.1 {status} Well\r\nContent-Length: 100\r\n\r\n{{"
        ))
    });
    let stalls = stalls.await;
    let net = Net::new(options()).unwrap();
    let (url, lease) = (&stalls.url, Duration::from_secs(9));
    for asked in 0..3 {
        let ended = async {
            match asked {
                0 => net.depot_extend(url, lease).await.map(drop),
                1 => net.depot_release(url).await.map(drop),
                _ => net.depot_allocate(url, 1, lease).await.map(drop),
            }
        };
        // Far more than it takes, where it used to take for ever.
        let ended = tokio::time::timeout(Duration::from_secs(300), ended).await.expect("an end");
        tokio::time::resume();
        assert!(matches!(ended, Err(DepotError::Lane(LaneError::Timeout { .. }))), "{ended:?}");
    }
}

#[tokio::test]
async fn what_a_relay_is_known_by_holds_for_the_library_too() {
    // Behind a proxy that is none of HTTP, where the library connects, such a relay was not trusted.
    let server = Server::builder()
        .file("/f", Content::random(9, 1000))
        .tls(Certificate::SelfSigned)
        .start()
        .unwrap();
    let own = pem_digest(&self_signed_pem().unwrap());
    let ask = async |relay: &str, fingerprint| {
        let access = RelayAccess {
            url: Url::parse(relay).unwrap(),
            token: None,
            fingerprint: Some(fingerprint),
        };
        let relays = vec![access];
        let net = Net::new(NetOptions { fallback_only: true, relays, ..options() }).unwrap();
        head(&net, &url(&server, "/f"), Trust::Named).await
    };
    let here = server.handle().url("/");
    assert_eq!(ask(&here, own).await.unwrap().size_bytes, Some(1000));
    // It is trusted of that relay alone.
    let other = Hasher::digest(DigestAlgorithm::Sha256, b"other");
    for (relay, fingerprint) in [(&*here, other), ("https://r2.example/", own)] {
        let refused = ask(relay, fingerprint).await;
        assert!(matches!(refused, Err(LaneError::Tls { .. })), "{refused:?}");
    }
}

fn pem_digest(pem: &str) -> Digest {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    Hasher::digest(DigestAlgorithm::Sha256, &certificate)
}
