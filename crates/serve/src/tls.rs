//! The server's certificate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
};
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
    /// With the certificate of a group: whoever connects must be of the same group.
    Group(GroupKey),
}

/// What those who have a secret in common prove to one another: a key made of the secret, and a
/// certificate that is the same everywhere. Both ends of a connection have to show it, and to prove that
/// they have the key, for this connection alone.
#[derive(Clone, PartialEq, Eq)]
pub struct GroupKey([u8; 32]);

impl GroupKey {
    /// Takes 32 bytes that only members can know, and that are used for nothing else.
    pub fn new(seed: [u8; 32]) -> GroupKey {
        GroupKey(seed)
    }

    /// Returns the certificate and its key (PEM, in one text).
    ///
    /// # Errors
    /// [`TlsError::Make`].
    pub fn pem(&self) -> Result<String, TlsError> {
        let made = |error: rcgen::Error| TlsError::Make(error.to_string());
        let (certificate, key) = self.made().map_err(made)?;
        Ok(certificate.pem() + &key.serialize_pem())
    }

    fn made(&self) -> Result<(rcgen::Certificate, rcgen::KeyPair), rcgen::Error> {
        // RFC 8410, section 7: an Ed25519 key is any 32 bytes, and its signatures have no random part.
        let der = [&ED25519_PKCS8[..], &self.0].concat();
        let der = PrivatePkcs8KeyDer::from(der);
        let key = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ED25519)?;
        let mut params = rcgen::CertificateParams::default();
        params.serial_number = Some(rcgen::SerialNumber::from(vec![1]));
        Ok((params.self_signed(&key)?, key))
    }
}

impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupKey(…)")
    }
}

/// What comes before the bytes of an Ed25519 key in PKCS #8.
const ED25519_PKCS8: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

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
    /// Whoever connects must show the same.
    is_of_group: bool,
}

impl Tls {
    pub(crate) fn identity(&self) -> Result<Option<Identity>, TlsError> {
        match self {
            Tls::Plain => Ok(None),
            Tls::SelfSigned(names) => Identity::made_for(names.clone()).map(Some),
            Tls::Files { certificates, key } => Identity::read(certificates, key).map(Some),
            Tls::Group(group) => Identity::of_group(group).map(Some),
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
        let certificates = vec![made.cert.der().clone()];
        Ok(Identity { certificates, key: key.into(), is_of_group: false })
    }

    fn of_group(group: &GroupKey) -> Result<Identity, TlsError> {
        let (certificate, key) = group.made().map_err(|error| TlsError::Make(error.to_string()))?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let certificates = vec![certificate.der().clone()];
        Ok(Identity { certificates, key: key.into(), is_of_group: true })
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
        Ok(Identity { certificates: all, key, is_of_group: false })
    }

    /// SHA-256 of the server's own certificate.
    pub fn fingerprint(&self) -> Digest {
        Hasher::digest(Algorithm::Sha256, &self.certificates[0])
    }

    /// Returns the fingerprint if no other certificate vouches for it: clients need it to trust the server.
    pub(crate) fn fingerprint_alone(&self) -> Option<Digest> {
        (self.certificates.len() == 1).then(|| self.fingerprint())
    }

    pub(crate) fn config(&self, speaks: Speaks) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unusable)?
            .with_client_cert_verifier(match speaks {
                _ if self.is_of_group => {
                    Arc::new(Proves::new(provider, Some(self.certificates[0].clone())))
                }
                Speaks::KnownClients => Arc::new(Proves::new(provider, None)),
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

/// Lets a client show a certificate: what counts is that it has the key. Rights are bound to certificates,
/// and no authority need vouch for one.
#[derive(Debug)]
struct Proves {
    provider: Arc<CryptoProvider>,
    asks_for: [DistinguishedName; 1],
    /// Every client has to show this one.
    only: Option<CertificateDer<'static>>,
}

impl Proves {
    fn new(provider: Arc<CryptoProvider>, only: Option<CertificateDer<'static>>) -> Proves {
        // Without the two bytes that begin the sequence.
        let asks_for = [DistinguishedName::in_sequence(&CERTIFICATES_FOR[2..])];
        Proves { provider, asks_for, only }
    }
}

impl ClientCertVerifier for Proves {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.asks_for
    }

    fn client_auth_mandatory(&self) -> bool {
        self.only.is_some()
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match &self.only {
            Some(only) if only != shown => Err(rustls::Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            )),
            _ => Ok(ClientCertVerified::assertion()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_of_a_group_is_the_same_everywhere() {
        let made = |seed| Identity::of_group(&GroupKey::new(seed)).unwrap().fingerprint();
        assert_eq!(made([1; 32]), made([1; 32]));
        assert_ne!(made([1; 32]), made([2; 32]));
        // Machines with other versions of this program make it, too.
        let known = "sha-256:bfca978c9284f5f3b4649529387e4b21cc1db96a5b54f7739aae03664273b3d0";
        assert_eq!(made([7; 32]).to_string(), known);
        assert_eq!(format!("{:?}", GroupKey::new([7; 32])), "GroupKey(…)");
    }
}
