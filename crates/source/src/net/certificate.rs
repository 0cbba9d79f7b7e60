//! A certificate by which servers know this program.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use swath_model::digest::{Algorithm, Digest, Hasher};

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

    /// Returns the certificate and its key as the TLS library takes them.
    pub(super) fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (vec![self.certificate.clone()], self.key.clone_key())
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientCertificate({})", self.fingerprint().to_hex())
    }
}
