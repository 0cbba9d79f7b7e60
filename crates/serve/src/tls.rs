//! The server's certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_transport::CERTIFICATES_FOR;

/// Encrypted how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Not at all.
    Plain,
    /// With a certificate made now, good for these names and addresses. Whoever connects knows it
    /// by its fingerprint.
    SelfSigned(Vec<String>),
    /// With a certificate (and those that vouch for it) and its key, both PEM.
    Files {
        /// The certificates, the server's own first.
        certificates: PathBuf,
        /// The key.
        key: PathBuf,
    },
}

/// Why the server cannot show itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is not what it should be.
    #[error("cannot use {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A certificate could not be made for such names.
    #[error("cannot make a certificate: {0}")]
    Make(String),
    /// Certificate and key do not belong together, or are of a kind that is not understood.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(#[source] rustls::Error),
}

/// A certificate and its key.
pub struct Identity {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Tls {
    pub(crate) fn identity(&self) -> Result<Option<Identity>, TlsError> {
        match self {
            Tls::Plain => Ok(None),
            Tls::SelfSigned(names) => Identity::made_for(names.clone()).map(Some),
            Tls::Files { certificates, key } => Identity::read(certificates, key).map(Some),
        }
    }
}

/// Which versions of HTTP are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// All that there are here.
    All,
    /// HTTP/1 alone.
    OneOnly,
    /// HTTP/1 with a client that has a certificate to show.
    KnownClients,
}

impl Identity {
    /// Makes a key and a certificate signed by itself, good for these names and addresses: both as
    /// PEM in one text, which [`Tls::Files`] takes for either.
    ///
    /// # Errors
    /// [`TlsError::Make`].
    pub fn make_pem(names: Vec<String>) -> Result<String, TlsError> {
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| TlsError::Make(error.to_string()))?;
        Ok(made.cert.pem() + &made.signing_key.serialize_pem())
    }

    fn made_for(names: Vec<String>) -> Result<Identity, TlsError> {
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| TlsError::Make(error.to_string()))?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Identity { certificates: vec![made.cert.der().clone()], key: key.into() })
    }

    fn read(certificates: &Path, key: &Path) -> Result<Identity, TlsError> {
        let failed = |path: &Path, reason: String| TlsError::File { path: path.to_owned(), reason };
        let all = CertificateDer::pem_file_iter(certificates)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| failed(certificates, error.to_string()))?;
        if all.is_empty() {
            return Err(failed(certificates, "there is no certificate in it".to_owned()));
        }
        let key =
            PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, error.to_string()))?;
        Ok(Identity { certificates: all, key })
    }

    /// SHA-256 of the server's own certificate.
    pub fn fingerprint(&self) -> Digest {
        Hasher::digest(Algorithm::Sha256, &self.certificates[0])
    }

    pub(crate) fn config(&self, speaks: Speaks) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unusable)?
            .with_client_cert_verifier(match speaks {
                Speaks::KnownClients => Arc::new(AnyKey::new(provider)),
                Speaks::All | Speaks::OneOnly => WebPkiClientVerifier::no_client_auth(),
            })
            .with_single_cert(self.certificates.clone(), self.key.clone_key())
            .map_err(TlsError::Unusable)?;
        config.alpn_protocols = match speaks {
            Speaks::All => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Speaks::OneOnly | Speaks::KnownClients => vec![b"http/1.1".to_vec()],
        };
        Ok(config)
    }
}

/// Lets a client show any certificate: what counts is that it has the key. Rights are bound to
/// certificates, and no authority need vouch for one.
#[derive(Debug)]
struct AnyKey {
    provider: Arc<CryptoProvider>,
    asks_for: [DistinguishedName; 1],
}

impl AnyKey {
    fn new(provider: Arc<CryptoProvider>) -> AnyKey {
        // Without the two bytes that begin the sequence.
        let asks_for = [DistinguishedName::in_sequence(&CERTIFICATES_FOR[2..])];
        AnyKey { provider, asks_for }
    }
}

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.asks_for
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _shown: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Bytes that nobody can guess.
pub fn random(out: &mut [u8]) {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    if provider.secure_random.fill(out).is_err() {
        // Only a system without any randomness fails here; a server must not run on such.
        std::process::abort();
    }
}
