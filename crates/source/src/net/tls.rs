//! TLS: the system's authorities and the user's, session resumption, HTTP/1.1 by ALPN.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::TlsFault;
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme,
};
use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_transport::CLIENT_CERTIFICATE;
use tokio_rustls::TlsConnector;

use super::certificate::ClientCertificate;
use super::options::{NetError, NetOptions, UnknownServer, UnknownServers};
use super::servers::OwnTls;

/// The connectors of our own lanes: one for everybody, and one for each set of certificates that is for some
/// servers alone.
pub(super) struct Connectors {
    usual: TlsConnector,
    own: Mutex<HashMap<OwnTls, TlsConnector>>,
}

impl Connectors {
    pub fn new(options: &NetOptions) -> Result<Connectors, NetError> {
        // Found out before anything is asked for, and not when a server turns up.
        for path in options.servers.iter().flat_map(|access| &access.ca_files) {
            authorities(path)?;
        }
        Ok(Connectors { usual: connector(options, None)?, own: Mutex::default() })
    }

    /// Returns the one for servers that have this of their own.
    pub fn of(&self, options: &NetOptions, own: Option<OwnTls>) -> Result<TlsConnector, NetError> {
        let Some(own) = own else { return Ok(self.usual.clone()) };
        let mut known = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connector) = known.get(&own) {
            return Ok(connector.clone());
        }
        let made = connector(options, Some(&own))?;
        known.insert(own, made.clone());
        Ok(made)
    }
}

fn connector(options: &NetOptions, own: Option<&OwnTls>) -> Result<TlsConnector, NetError> {
    let mut config = config(options, own)?;
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Returns a configuration without the ALPN of HTTP, for servers that have this of their own.
pub(super) fn config(options: &NetOptions, own: Option<&OwnTls>) -> Result<ClientConfig, NetError> {
    let with_own = own.map(|own| own.added_to(options));
    let options = with_own.as_ref().unwrap_or(options);
    // The user's is shown to those that it is for, and to nobody else.
    let for_all = options.certificate.as_ref().filter(|it| it.is_for_swath());
    let certificate = own.and_then(OwnTls::certificate).or(for_all);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| NetError::Tls(error.to_string()))?;
    let builder = if options.insecure && options.fingerprints.is_empty() {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnything { provider }))
    } else {
        let (roots, own) = match options.fingerprints_alone {
            true => (RootCertStore::empty(), Vec::new()),
            false => roots(options)?,
        };
        let inner = (!roots.is_empty())
            .then(|| {
                let roots = Arc::new(roots);
                WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()
            })
            .transpose()
            .map_err(|error| NetError::Tls(error.to_string()))?;
        let fingerprints = options.fingerprints.clone();
        let unknown = options.unknown.clone();
        let verifier = Arc::new(OrTheVeryOne { inner, own, fingerprints, unknown, provider });
        builder.dangerous().with_custom_certificate_verifier(verifier)
    };
    let mut config = match certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => builder.with_client_cert_resolver(certificate.resolver()),
    };
    if certificate.is_some_and(ClientCertificate::is_for_swath) {
        config.alpn_protocols.push(CLIENT_CERTIFICATE.to_vec());
    }
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(config)
}

/// Sessions remembered; one server uses a few.
const SESSIONS: usize = 1024;

/// Returns all authorities, and the certificates that the user gave.
fn roots(options: &NetOptions) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), NetError> {
    let mut roots = RootCertStore::empty();
    let mut own = Vec::new();
    // Single broken certificates of the system do not matter; without any, connecting fails with
    // a message of its own.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for path in &options.ca_files {
        for certificate in authorities(path)? {
            own.push(certificate.clone());
            let added = roots.add(certificate);
            added.map_err(|error| NetError::Certificates {
                path: path.clone(),
                reason: error.to_string(),
            })?;
        }
    }
    Ok((roots, own))
}

/// Returns the certificates in a file, at least one.
fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, NetError> {
    let unreadable = |reason| NetError::Certificates { path: path.to_owned(), reason };
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let found =
        CertificateDer::pem_reader_iter(BufReader::new(file)).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| unreadable(error.to_string()))?;
    if found.is_empty() { Err(unreadable("no certificate in it".to_owned())) } else { Ok(found) }
}

/// A certificate whose fingerprint the user gave is trusted whatever it says of itself. A self-signed
/// one that the user gave is trusted as the server's own: such ones often call themselves
/// authorities, which webpki takes for a mistake. It looks at the dates before that; the name is
/// checked here.
#[derive(Debug)]
struct OrTheVeryOne {
    /// None where no authority at all is known.
    inner: Option<Arc<WebPkiServerVerifier>>,
    own: Vec<CertificateDer<'static>>,
    /// SHA-256 of certificates.
    fingerprints: Vec<Digest>,
    unknown: UnknownServers,
    provider: Arc<CryptoProvider>,
}

/// Its certificate is none of those whose fingerprints were given.
#[derive(Debug, thiserror::Error)]
#[error(
    "its fingerprint is {0}, not the one given: it is another server, or has another certificate now"
)]
struct AnotherFingerprint(Digest);

fn another_fingerprint(digest: Digest) -> Error {
    let other = OtherError(Arc::new(AnotherFingerprint(digest)));
    Error::InvalidCertificate(CertificateError::Other(other))
}

impl ServerCertVerifier for OrTheVeryOne {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let fingerprint = || Hasher::digest(Algorithm::Sha256, end_entity);
        if !self.fingerprints.is_empty() && self.fingerprints.contains(&fingerprint()) {
            return Ok(ServerCertVerified::assertion());
        }
        let note = || {
            let host = server_name.to_str().into_owned();
            self.unknown.add(UnknownServer { host, fingerprint: fingerprint() });
        };
        let Some(inner) = &self.inner else {
            note();
            if !self.fingerprints.is_empty() {
                return Err(another_fingerprint(fingerprint()));
            }
            return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        };
        let verdict =
            inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        if matches!(&verdict, Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))) {
            note();
        }
        match &verdict {
            // Whoever gave a fingerprint wants to hear of another one: it may be somebody else's.
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
                if !self.fingerprints.is_empty() =>
            {
                Err(another_fingerprint(fingerprint()))
            }
            Err(Error::InvalidCertificate(CertificateError::Other(other)))
                if is_of_webpki(other, webpki::Error::CaUsedAsEndEntity)
                    && self.own.iter().any(|own| own == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            _ => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns what kind of failure there is in the handshake that ended with `error`, or within it.
pub(super) fn fault(error: &(dyn std::error::Error + 'static)) -> TlsFault {
    let Some(error) = behind(error) else { return TlsFault::Handshake };
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => TlsFault::UnknownAuthority,
        Error::InvalidCertificate(CertificateError::Other(other))
            if other.0.is::<AnotherFingerprint>() =>
        {
            TlsFault::OtherFingerprint
        }
        Error::InvalidCertificate(_) => TlsFault::Untrusted,
        Error::AlertReceived(alert) if is_of_certificate(*alert) => TlsFault::WantsOurs,
        _ => TlsFault::Handshake,
    }
}

/// Returns why there is no secure connection, for people. `error` is what the handshake ended with, or
/// anything that has that somewhere within.
pub(super) fn words(error: &(dyn std::error::Error + 'static)) -> String {
    behind(error).map_or_else(|| error.to_string(), words_of)
}

/// Returns whether the server ended the connection for want of a certificate of ours, or because of ours. By
/// TLS 1.3 it does so only after the handshake, in place of an answer.
pub(super) fn wants_ours(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(behind(error), Some(Error::AlertReceived(alert)) if is_of_certificate(*alert))
}

/// Returns the alerts by which a server judges a client's certificate (RFC 8446, section 6.2).
fn is_of_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            // The signature of ours, or of its authority, is wrong.
            | Alert::DecryptError
    )
}

/// Returns whether rustls is behind the error.
pub(super) fn is_behind(error: &(dyn std::error::Error + 'static)) -> bool {
    behind(error).is_some()
}

fn behind<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<Error>() {
            return Some(error);
        }
        // An I/O error names as its source what is behind the error within it, and not that.
        next = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// Returns whether webpki says this, for which rustls has no word of its own.
fn is_of_webpki(other: &OtherError, wanted: webpki::Error) -> bool {
    other.0.downcast_ref::<webpki::Error>() == Some(&wanted)
}

fn words_of(error: &Error) -> String {
    use CertificateError as Bad;
    let certificate = match error {
        Error::InvalidCertificate(certificate) => certificate,
        Error::InvalidMessage(_) => return "it does not speak TLS there".to_owned(),
        Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            return "it refused the handshake: it knows no way of encryption that is safe today, \
                    or wants a client certificate (--cert FILE)"
                .to_owned();
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            return "it speaks only versions of TLS that are not safe any more".to_owned();
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            return WANTS_OURS.to_owned();
        }
        Error::AlertReceived(alert) if is_of_certificate(*alert) => return refuses_ours(*alert),
        other => return other.to_string(),
    };
    let days = |from: UnixTime, to: UnixTime| to.as_secs().saturating_sub(from.as_secs()) / 86_400;
    let why = match certificate {
        Bad::UnknownIssuer => "no authority known here has signed it".to_owned(),
        Bad::BadSignature => {
            "a signature on the way to an authority known here is wrong, or of a kind too weak \
             today"
                .to_owned()
        }
        Bad::Expired => "it has expired".to_owned(),
        Bad::ExpiredContext { time, not_after } => match days(*not_after, *time) {
            0 => "it has expired today".to_owned(),
            1 => "it has expired a day ago".to_owned(),
            days => format!("it has expired {days} days ago"),
        },
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            "it is not valid yet, by the clock of this machine".to_owned()
        }
        Bad::NotValidForName => "it is for another name".to_owned(),
        Bad::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "it is for no name at all".to_owned()
        }
        Bad::NotValidForNameContext { presented, .. } => {
            let names: Vec<&str> =
                presented.iter().take(NAMES_SHOWN).map(|name| bare_name(name)).collect();
            let more = presented.len() - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("it is for {}{more}", names.join(", "))
        }
        Bad::Revoked => "it was revoked".to_owned(),
        Bad::Other(other) if is_of_webpki(other, webpki::Error::CaUsedAsEndEntity) => {
            "it is that of an authority, not of a server".to_owned()
        }
        Bad::Other(other) if is_of_webpki(other, webpki::Error::UnsupportedCertVersion) => {
            "it is of a version of X.509 that is not used any more".to_owned()
        }
        // Within it is the reason by itself.
        Bad::Other(other) => other.to_string(),
        other => other.to_string(),
    };
    format!("{UNTRUSTED}: {why}")
}

/// Returns what rustls writes as `DnsName("a.example")`.
fn bare_name(name: &str) -> &str {
    let within = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    within.unwrap_or(name).trim_matches('"')
}

/// Returns why the server does not accept the certificate that it was shown, if it was shown any: some
/// servers answer the same to none.
fn refuses_ours(alert: AlertDescription) -> String {
    let why = match alert {
        AlertDescription::UnknownCA => "it does not know the authority that signed it",
        AlertDescription::CertificateExpired => "it has expired",
        AlertDescription::CertificateRevoked => "it was revoked",
        AlertDescription::UnsupportedCertificate => "it is of a kind that the server does not know",
        AlertDescription::AccessDenied => "it gives no right there",
        _ => "it was not accepted, or none was shown",
    };
    format!("it wants another client certificate than it was shown: {why} (--cert FILE shows one)")
}

/// What no further try changes.
const WANTS_OURS: &str =
    "it wants a client certificate; --cert FILE and --key FILE show it a certificate of ours";
/// How every complaint about a certificate begins.
const UNTRUSTED: &str = "its certificate is not trusted";
/// Most names of a certificate that a complaint lists.
const NAMES_SHOWN: usize = 4;

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

    // Whose signature it is was not asked, so whether it is right tells nothing; and keys and
    // certificates of old kinds could not be checked at all.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
