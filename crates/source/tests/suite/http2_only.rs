//! A server that speaks nothing but HTTP/2: the lane notices and goes by way of the library.

use std::sync::Arc;

use crate::support::driver::download;
use crate::support::{content, options};
use bytes::Bytes;
use swath_model::Range;
use swath_source::{HttpSource, Net, NetOptions, Trust, fetch_small};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use url::Url;

const SIZE: u64 = 300_007;

fn acceptor() -> TlsAcceptor {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(acceptor: TlsAcceptor, tcp: TcpStream) {
    let Ok(tls) = acceptor.accept(tcp).await else { return };
    let Ok(mut connection) = h2::server::handshake(tls).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let range = request.headers().get("range").and_then(|value| {
            let (first, last) = value.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
            let end = last.parse().map_or(SIZE, |last: u64| (last + 1).min(SIZE));
            Some(Range::new(first.parse().ok()?, end))
        });
        let response = http::Response::builder();
        let (response, range) = match range {
            Some(range) => {
                let text = format!("bytes {}-{}/{SIZE}", range.start, range.end - 1);
                (response.status(206).header("content-range", text), range)
            }
            None => (response.status(200), Range::new(0, SIZE)),
        };
        let response = response
            .header("content-length", range.len())
            .header("etag", "\"2\"")
            .body(())
            .unwrap();
        let Ok(mut stream) = respond.send_response(response, false) else { return };
        // The whole connection is driven by `accept`, so data is only queued here.
        let _ = stream.send_data(Bytes::from(content(range)), true);
    }
}

#[tokio::test]
async fn a_server_without_http_1_is_reached_by_the_library() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = acceptor();
    let server = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((tcp, _)) = listener.accept().await {
            connections.spawn(serve(acceptor.clone(), tcp));
        }
    });
    let net = Net::new(NetOptions { insecure: true, ..options() }).unwrap();
    let url = Url::parse(&format!("https://127.0.0.1:{port}/f.bin")).unwrap();
    let source = HttpSource::new(&net, url.clone(), Trust::Named);
    let outcome = download(&source).await;
    assert!(outcome.is(&content(Range::new(0, SIZE))), "{:?}", outcome.errors);
    assert!(source.quirks().fallback && outcome.errors.is_empty());
    let document = fetch_small(&net, &url, Trust::Named, "*/*", 1 << 20).await.unwrap();
    assert_eq!(document.bytes.len() as u64, SIZE);
    server.abort();
}
