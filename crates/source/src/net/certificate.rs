//! A certificate by which servers know this program.

use std::fmt;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_transport::CERTIFICATES_FOR;

use super::options::NetError;

/// A certificate and its key, shown to servers that ask for one. Clones share the key.
#[derive(Clone)]
pub struct ClientCertificate {
    certificate: CertificateDer<'static>,
    key: Arc<PrivateKeyDer<'static>>,
}

impl ClientCertificate {
    /// Reads both from one text (PEM).
    ///
    /// # Errors
    /// [`NetError::Tls`]. The message contains no part of the key.
    pub fn of_pem(pem: &str) -> Result<ClientCertificate, NetError> {
        let missing = |what: &str| NetError::Tls(format!("no usable {what} is in the PEM text"));
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes());
        Ok(ClientCertificate {
            certificate: certificate.map_err(|_| missing("certificate"))?,
            key: Arc::new(key.map_err(|_| missing("key"))?),
        })
    }

    /// Returns the SHA-256 of the certificate.
    pub fn fingerprint(&self) -> Digest {
        Hasher::digest(Algorithm::Sha256, &self.certificate)
    }

    /// Returns what shows it to servers of swath, and to no others.
    pub(super) fn resolver(
        &self,
        provider: &CryptoProvider,
    ) -> Result<Arc<dyn ResolvesClientCert>, NetError> {
        let certificates = vec![self.certificate.clone()];
        let shown = CertifiedKey::from_der(certificates, self.key.clone_key(), provider);
        let shown = shown.map_err(|error| NetError::Tls(error.to_string()))?;
        Ok(Arc::new(OnlyToSwath(Arc::new(shown))))
    }
}

#[derive(Debug)]
struct OnlyToSwath(Arc<CertifiedKey>);

impl ResolvesClientCert for OnlyToSwath {
    fn resolve(
        &self,
        authorities: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        authorities.contains(&CERTIFICATES_FOR).then(|| Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientCertificate({})", self.fingerprint().to_hex())
    }
}
