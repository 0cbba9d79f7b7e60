//! Certificates by which servers know this program.

use std::fmt;
use std::fs::File;
use std::hash::Hash;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SignatureScheme};
use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_transport::CERTIFICATES_FOR;

use super::options::NetError;

/// A certificate and its key, shown to servers that ask for one. Clones share the key.
#[derive(Clone)]
pub struct ClientCertificate {
    shown: Arc<CertifiedKey>,
    /// To servers of swath alone, whoever they are; else to those that the user has named.
    is_for_swath: bool,
}

impl ClientCertificate {
    /// Reads both from one text (PEM), for servers of swath and no others.
    ///
    /// # Errors
    /// [`NetError::Tls`]. The message contains no part of the key.
    pub fn of_pem(pem: &str) -> Result<ClientCertificate, NetError> {
        let missing = |what: &str| NetError::Tls(format!("no usable {what} is in the PEM text"));
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes());
        let certificate = certificate.map_err(|_| missing("certificate"))?;
        let shown = certified(vec![certificate], key.map_err(|_| missing("key"))?);
        let shown = shown.map_err(|error| NetError::Tls(error.to_string()))?;
        Ok(ClientCertificate { shown: Arc::new(shown), is_for_swath: true })
    }

    /// Reads them from files (PEM), for any server. Certificates of authorities may follow the first one;
    /// without a file for it the key is in the same one.
    ///
    /// # Errors
    /// [`NetError::ClientCertificate`]. The message contains no part of the key.
    pub fn in_files(path: &Path, key_path: Option<&Path>) -> Result<ClientCertificate, NetError> {
        let unusable = |path: &Path, reason: String| NetError::ClientCertificate {
            path: path.to_owned(),
            reason,
        };
        let pem = text_of(path).map_err(|reason| unusable(path, reason))?;
        let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| unusable(path, format!("not valid PEM: {error}")))?;
        if chain.is_empty() {
            return Err(unusable(path, "no certificate (PEM) is in it".to_owned()));
        }
        let (key_path, key_pem) = match key_path {
            Some(key_path) => (key_path, text_of(key_path).map_err(|it| unusable(key_path, it))?),
            None => (path, pem),
        };
        let key = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|_| {
            let is_locked = key_pem.windows(LOCKED.len()).any(|part| part == LOCKED);
            let reason = match (is_locked, key_path == path) {
                (true, _) => "its key has a passphrase, which swath does not ask for",
                (false, true) => "no private key (PEM) is in it; --key FILE names another file",
                (false, false) => "no private key (PEM) is in it",
            };
            unusable(key_path, reason.to_owned())
        })?;
        let shown = certified(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                unusable(key_path, format!("it is not the key of {}", path.display()))
            }
            Error::InvalidCertificate(error) => unusable(path, error.to_string()),
            error => unusable(key_path, error.to_string()),
        })?;
        Ok(ClientCertificate { shown: Arc::new(shown), is_for_swath: false })
    }

    /// Returns the SHA-256 of the certificate.
    pub fn fingerprint(&self) -> Digest {
        Hasher::digest(Algorithm::Sha256, self.own())
    }

    /// Whether it is for servers of swath alone.
    pub(super) fn is_for_swath(&self) -> bool {
        self.is_for_swath
    }

    /// Returns what shows it.
    pub(super) fn resolver(&self) -> Arc<dyn ResolvesClientCert> {
        Arc::new(Shows(self.clone()))
    }

    fn own(&self) -> &[u8] {
        // There is at least one.
        self.shown.cert.first().map(|own| own.as_ref()).unwrap_or_default()
    }
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, Error> {
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
}

/// Returns what is in a file of limited length, or why it cannot be read.
fn text_of(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(PEM_MAX_BYTES).read_to_end(&mut text));
    read.map(|_| text).map_err(|error| error.to_string())
}

/// What names a key that has a passphrase, in both forms (RFC 7468, section 11, and OpenSSL's older one).
const LOCKED: &[u8] = b"ENCRYPTED";
/// Longer than any chain.
const PEM_MAX_BYTES: u64 = 1 << 20;

#[derive(Debug)]
struct Shows(ClientCertificate);

impl ResolvesClientCert for Shows {
    fn resolve(
        &self,
        authorities: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let is_for_it = !self.0.is_for_swath || authorities.contains(&CERTIFICATES_FOR);
        is_for_it.then(|| Arc::clone(&self.0.shown))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl PartialEq for ClientCertificate {
    fn eq(&self, other: &ClientCertificate) -> bool {
        (self.own(), self.is_for_swath) == (other.own(), other.is_for_swath)
    }
}

impl Eq for ClientCertificate {}

impl Hash for ClientCertificate {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.own().hash(state);
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientCertificate({})", self.fingerprint().to_hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn files_that_cannot_be_used_are_named_without_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["me".to_owned()]).unwrap().self_signed(&key).unwrap();
        let (own_pem, key_pem) = (own.pem(), key.serialize_pem());
        let certificate = write("cert.pem", &own_pem);
        let own_key = write("key.pem", &key_pem);
        let both = write("both.pem", &format!("{key_pem}{own_pem}"));
        for (path, key) in [(&certificate, Some(own_key.as_path())), (&both, None)] {
            let read = ClientCertificate::in_files(path, key).unwrap();
            assert_eq!(read.fingerprint(), Hasher::digest(Algorithm::Sha256, own.der()));
            assert!(!read.is_for_swath());
        }
        assert!(ClientCertificate::of_pem(&format!("{key_pem}{own_pem}")).unwrap().is_for_swath());
        let other = write("other.pem", &KeyPair::generate().unwrap().serialize_pem());
        let locked = write("locked.pem", &key_pem.replace("BEGIN PRI", "BEGIN ENCRYPTED PRI"));
        let none = folder.path().join("none.pem");
        let garbled = own_pem.replacen("MII", "!II", 1);
        let garbled = write("garbled.pem", &garbled);
        let no_certificate =
            write("no.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        for (path, key, named, words) in [
            (&none, None, &none, "No such file"),
            (&certificate, Some(&none), &none, "No such file"),
            (&certificate, None, &certificate, "--key FILE"),
            (&own_key, None, &own_key, "no certificate"),
            (&certificate, Some(&certificate), &certificate, "no private key"),
            (&certificate, Some(&other), &other, "it is not the key of"),
            (&certificate, Some(&locked), &locked, "has a passphrase"),
            (&garbled, Some(&own_key), &garbled, ""),
            (&no_certificate, Some(&own_key), &no_certificate, ""),
        ] {
            let error = ClientCertificate::in_files(path, key.map(|path| path.as_path()));
            let error = error.unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
            assert!(error.contains(&named.display().to_string()), "{error}");
            assert!(!error.contains(&key_pem[40..60]), "{error}");
        }
    }
}
