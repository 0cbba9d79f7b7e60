//! Certificates by which servers know us: who is shown one, and what those say who are shown none.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use swath_model::Range;
use swath_source::{
    Class, ClientCertificate, HttpSource, LaneError, Net, NetOptions, ServerAccess, TlsFault,
    Trust, fetch_small,
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use url::Url;

use crate::support::driver::{Outcome, download};
use crate::support::{Reply, Request, content, options, partial, serve};

const SIZE: u64 = 100_000;

/// An authority, by whose certificates servers know their users.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    own: CertificateDer<'static>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap().der().clone();
        let folder = tempfile::tempdir().unwrap();
        Authority { issuer: Issuer::new(params, key), own, folder }
    }

    /// Signs a certificate.
    fn signed(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// A certificate of a user, in a file with its key.
    fn user(&self, name: &str) -> ClientCertificate {
        let (own, key) = self.signed(name);
        let path: PathBuf = self.folder.path().join(format!("{name}.pem"));
        std::fs::write(&path, own.pem() + &key.serialize_pem()).unwrap();
        ClientCertificate::in_files(&path, None).unwrap()
    }

    /// Starts a server that asks for a certificate, and refuses whoever has none if it `must` be.
    async fn server(
        &self,
        version: &'static SupportedProtocolVersion,
        must: bool,
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.own.clone()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let verifier = if must { verifier } else { verifier.allow_unauthenticated() };
        let (own, key) = self.signed("127.0.0.1");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![own.der().clone()], key)
            .unwrap();
        config.alpn_protocols.push(b"http/1.1".to_vec());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/file", listener.local_addr().unwrap());
        let shown: Arc<Mutex<Vec<bool>>> = Arc::default();
        let (log, answer) = (Arc::clone(&shown), Arc::new(answer));
        let task = tokio::spawn(async move {
            let mut tasks = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, log) = (acceptor.clone(), Arc::clone(&log));
                let answer = Arc::clone(&answer);
                tasks.spawn(async move {
                    match acceptor.accept(stream).into_fallible().await {
                        Ok(tls) => {
                            let is_shown = tls.get_ref().1.peer_certificates().is_some();
                            log.lock().unwrap().push(is_shown);
                            serve(tls, 0, Arc::default(), answer).await;
                        }
                        Err((_, mut stream)) => {
                            // Closing with a request unread would take the refusal back.
                            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                        }
                    }
                });
            }
        });
        Server { url: Url::parse(&url).unwrap(), shown, task }
    }
}

struct Server {
    url: Url,
    /// Of each encrypted connection, whether a certificate was shown on it.
    shown: Arc<Mutex<Vec<bool>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    fn shown(&self) -> Vec<bool> {
        std::mem::take(&mut self.shown.lock().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn file(request: &Request) -> Reply {
    Reply::keep(partial(request, SIZE))
}

/// The certificates of servers are not what this is about.
fn net(certificate: Option<ClientCertificate>, fallback_only: bool) -> Net {
    Net::new(NetOptions { certificate, fallback_only, insecure: true, ..options() }).unwrap()
}

fn is_whole(outcome: &Outcome) -> bool {
    outcome.is(&content(Range::new(0, SIZE)))
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_is_shown_that_of_the_user() {
    let authority = Authority::new();
    let user = authority.user("me");
    for version in [&version::TLS13, &version::TLS12] {
        let server = authority.server(version, true, file).await;
        for by_library in [false, true] {
            let net = net(Some(user.clone()), by_library);
            let source = HttpSource::new(&net, server.url.clone(), Trust::Named);
            let outcome = download(&source).await;
            assert!(is_whole(&outcome), "{by_library}: {:?}", outcome.errors);
            assert!(server.shown().into_iter().all(|is_shown| is_shown));
        }
    }
}

#[tokio::test]
async fn a_server_that_wants_one_and_gets_none_is_asked_once() {
    let authority = Authority::new();
    for (version, by_library) in [
        (&version::TLS13, false),
        (&version::TLS13, true),
        (&version::TLS12, false),
        (&version::TLS12, true),
    ] {
        let server = authority.server(version, true, file).await;
        let net = net(None, by_library);
        let outcome = download(&HttpSource::new(&net, server.url.clone(), Trust::Named)).await;
        let [error] = &outcome.errors[..] else { panic!("one error: {:?}", outcome.errors) };
        assert!(
            matches!(error, LaneError::Tls { fault: TlsFault::WantsOurs, .. }),
            "{by_library}: {error:?}"
        );
        assert_eq!(error.class(), Class::Unsupported);
        assert!(error.to_string().contains("--cert FILE"), "{error}");
        let small = fetch_small(&net, &server.url, Trust::Named, "*/*", 100).await;
        let error = small.unwrap_err();
        assert!(error.to_string().contains("--cert FILE"), "{by_library}: {error}");
    }
}

#[tokio::test]
async fn a_certificate_that_the_server_does_not_know_is_said_to_be_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.server(&version::TLS13, true, file).await;
    let net = net(Some(other.user("me")), false);
    let outcome = download(&HttpSource::new(&net, server.url.clone(), Trust::Named)).await;
    let [error] = &outcome.errors[..] else { panic!("one error: {:?}", outcome.errors) };
    assert!(matches!(error, LaneError::Tls { fault: TlsFault::WantsOurs, .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("another client certificate") && text.contains("--cert"), "{text}");
}

/// It tells who the user is: nobody learns that whom the user did not name.
#[tokio::test]
async fn nobody_but_the_named_server_is_shown_it() {
    let authority = Authority::new();
    let user = authority.user("me");
    for by_library in [false, true] {
        let mirror = authority.server(&version::TLS13, false, file).await;
        let to = mirror.url.clone();
        let named = authority
            .server(&version::TLS13, false, move |request| match request.path.as_str() {
                "/away" => Reply::keep(format!(
                    "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"
                )),
                _ => file(request),
            })
            .await;
        let net = net(Some(user.clone()), by_library);
        let away = HttpSource::new(&net, named.url.join("/away").unwrap(), Trust::Named);
        assert!(is_whole(&download(&away).await));
        assert!(named.shown().into_iter().all(|is_shown| is_shown));
        let others = HttpSource::new(&net, mirror.url.clone(), Trust::Discovered);
        assert!(is_whole(&download(&others).await));
        let shown = mirror.shown();
        assert!(!shown.is_empty() && shown.into_iter().all(|is_shown| !is_shown), "{by_library}");
    }
}

/// What was given for one server is shown to it, whoever named its address, and to no other.
#[tokio::test]
async fn the_certificate_of_one_server_is_shown_to_it_alone() {
    let authority = Authority::new();
    let one = authority.server(&version::TLS13, true, file).await;
    let other = authority.server(&version::TLS13, false, file).await;
    let site = format!("https://127.0.0.1:{}", one.url.port().unwrap());
    let mut access = ServerAccess::to(site.parse().unwrap());
    access.certificate = Some(authority.user("me"));
    for fallback_only in [false, true] {
        let servers = vec![access.clone()];
        let options = NetOptions { servers, insecure: true, fallback_only, ..options() };
        let net = Net::new(options).unwrap();
        // Only what the user named may be on this machine.
        let outcome = download(&HttpSource::new(&net, other.url.clone(), Trust::Named)).await;
        assert!(is_whole(&outcome), "{:?}", outcome.errors);
        assert!(other.shown().into_iter().all(|is_shown| !is_shown));
        let outcome = download(&HttpSource::new(&net, one.url.clone(), Trust::Discovered)).await;
        assert!(is_whole(&outcome), "{:?}", outcome.errors);
        assert!(one.shown().into_iter().all(|is_shown| is_shown));
    }
}
