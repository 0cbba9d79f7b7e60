//! What servers want to see of us before they deliver.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, version};

use swath_jobs::{CertificateFiles, JobError, JobEvent, Outcome, SecretError, SecretRef};
use swath_netlab::faulty::{Behaviour, Content, Server};
use swath_transfer::GetError;

use crate::fetching::{Place, building};

/// A server wanted a client certificate and said so after the handshake, as TLS 1.3 has it: it was
/// asked again for all of the time-out. Nothing changes by another try.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_wanted_of_us_is_said_at_once() {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let own = params.self_signed(&key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(own.der().clone()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![own.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/file", listener.local_addr().unwrap());
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let refused = acceptor.accept(stream).into_fallible().await;
                // Closing with a request unread would take the refusal back.
                if let Err((_, mut stream)) = refused {
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                }
            });
        }
    });
    let place = Place::new();
    let authority = place.write_beside("ca.pem", own.pem());
    let fetch = place.of_urls([url]).with(|spec| spec.network.ca_files.push(authority));
    let ran = fetch.run().await;
    ran.is_unusable().tells(&["it wants a client certificate", "--cert FILE"]);
    // Asking again cannot help: a server that is asked until the time-out would be a stall.
    assert!(matches!(ran.error(), GetError::Exhausted { .. }), "{ran:?}");
}

/// Tokens live for an hour, lists take days: agents renew the token in its file meanwhile, and swath showed
/// the old one for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_renewed_in_its_file_is_shown_from_then_on() {
    let (content, place) = (Content::random(1, 100_000), Place::new());
    let wants = |token: &str| Behaviour::RequireAuthorization(format!("Bearer {token}"));
    let server = Server::builder()
        .file("/one.h5", content.clone())
        .file("/two.h5", content.clone())
        .behaviour(wants("first"))
        .start()
        .unwrap();
    let token = place.write_beside("token", "first\n");
    let list = format!("{}\n{}\n", server.url("/one.h5"), server.url("/two.h5"));
    let (handle, path) = (server.handle(), token.clone());
    let fetch = place
        .list(list)
        .get(|get| get.files_at_once = Some(1))
        .with(|spec| spec.network.token = Some(SecretRef::File(token)))
        .at(
            |event| matches!(event, JobEvent::FileDone(0)),
            move |_| {
                std::fs::write(&path, "second\n").unwrap();
                handle.set(wants("second"));
            },
        );
    let ran = fetch.run().await;
    assert!(matches!(&ran.ended, Ok(Outcome::Files(files)) if files.complete == 2), "{ran:?}");
    place.holds("two.h5", &content);
}

/// Nobody is connected to before that.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_cannot_be_used_is_named_at_once() {
    let place = Place::new();
    let server = building(&Content::random(1, 1000)).start().unwrap();
    let certificate = place.write_beside("me.pem", "no certificate");
    let files = CertificateFiles { certificate, key: None };
    let fetch = place.of(&[&server]).with(|spec| spec.network.certificate = Some(files));
    let ended = fetch.run().await.ended;
    let Err(JobError::Secret(error @ SecretError::Certificate(_))) = ended else {
        panic!("{ended:?}");
    };
    assert!(error.to_string().contains("me.pem"), "{error}");
    assert_eq!(server.connections(), 0);
}
