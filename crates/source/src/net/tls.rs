//! TLS: the system's authorities and the user's, session resumption, HTTP/1.1 by ALPN.

use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use tokio_rustls::TlsConnector;

use super::options::{NetError, NetOptions};

/// The connector of our own lanes.
pub(super) fn connector(options: &NetOptions) -> Result<TlsConnector, NetError> {
    let mut config = config(options)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A configuration without ALPN.
pub(super) fn config(options: &NetOptions) -> Result<ClientConfig, NetError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| NetError::Tls(error.to_string()))?;
    let mut config = if options.insecure {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnything { provider }))
            .with_no_client_auth()
    } else {
        builder.with_root_certificates(roots(options)?).with_no_client_auth()
    };
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(config)
}

/// Sessions remembered; one server uses a few.
const SESSIONS: usize = 1024;

fn roots(options: &NetOptions) -> Result<RootCertStore, NetError> {
    let mut roots = RootCertStore::empty();
    // Single broken certificates of the system do not matter; without any, connecting fails with
    // a message of its own.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for path in &options.ca_files {
        let unreadable = |reason: String| NetError::Certificates { path: path.clone(), reason };
        let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
        let mut found = 0;
        for certificate in CertificateDer::pem_reader_iter(BufReader::new(file)) {
            let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
            roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
            found += 1;
        }
        if found == 0 {
            return Err(unreadable("no certificate in it".to_owned()));
        }
    }
    Ok(roots)
}

/// For `--insecure`: encrypts, but does not ask with whom.
#[derive(Debug)]
struct AcceptAnything {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AcceptAnything {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
