//! Certificates of the laboratory: one authority per process, and leaves that are right, for
//! another name, or expired.

use std::io;
use std::sync::{Arc, OnceLock};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Which certificate a TLS server shows. All but the last are signed by the authority of
/// [`ca_pem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Certificate {
    /// Right for `localhost`, `127.0.0.1` and `::1`.
    Valid,
    /// For `wrong.example`.
    WrongName,
    /// Right names, expired in 2020.
    Expired,
    /// For `localhost` alone, signed by itself and called an authority, as `openssl req -x509`
    /// makes it; see [`self_signed_pem`].
    SelfSigned,
}

/// Returns the PEM of this process's authority, for a client's `--ca`.
///
/// # Errors
/// When no key can be made.
pub fn ca_pem() -> io::Result<String> {
    Ok(authority()?.pem.clone())
}

/// Returns the PEM of [`Certificate::SelfSigned`], for a client's `--ca`.
///
/// # Errors
/// When no key can be made.
pub fn self_signed_pem() -> io::Result<String> {
    Ok(self_signed()?.0.pem())
}

/// Returns an acceptor that shows this certificate.
pub(super) fn acceptor(certificate: Certificate) -> io::Result<TlsAcceptor> {
    let (leaf, key) = match certificate {
        Certificate::SelfSigned => self_signed()?,
        _ => &signed(certificate)?,
    };
    let chain: Vec<CertificateDer<'static>> = vec![leaf.der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(io::Error::other)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn params(names: &[&str]) -> io::Result<CertificateParams> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
    params.distinguished_name.push(DnType::CommonName, "netlab server");
    Ok(params)
}

const OWN_NAMES: &[&str] = &["localhost", "127.0.0.1", "::1"];

/// Returns a certificate by the authority.
fn signed(certificate: Certificate) -> io::Result<(rcgen::Certificate, KeyPair)> {
    let authority = authority()?;
    let wrong = certificate == Certificate::WrongName;
    let mut params = params(if wrong { &["wrong.example"] } else { OWN_NAMES })?;
    params.use_authority_key_identifier_extension = true;
    params.key_usages.push(KeyUsagePurpose::DigitalSignature);
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    if certificate == Certificate::Expired {
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
    }
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let leaf = params.signed_by(&key, &authority.issuer).map_err(io::Error::other)?;
    Ok((leaf, key))
}

/// Returns the self-signed certificate of this process.
fn self_signed() -> io::Result<&'static (rcgen::Certificate, KeyPair)> {
    static OWN: OnceLock<(rcgen::Certificate, KeyPair)> = OnceLock::new();
    if let Some(known) = OWN.get() {
        return Ok(known);
    }
    let mut params = params(&["localhost"])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let certificate = params.self_signed(&key).map_err(io::Error::other)?;
    Ok(OWN.get_or_init(|| (certificate, key)))
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority() -> io::Result<&'static Authority> {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    if let Some(known) = AUTHORITY.get() {
        return Ok(known);
    }
    let made = make_authority().map_err(io::Error::other)?;
    // Two threads may both have made one; all use the first.
    Ok(AUTHORITY.get_or_init(|| made))
}

fn make_authority() -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::default())?;
    params.distinguished_name.push(DnType::CommonName, "netlab authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages.push(KeyUsagePurpose::KeyCertSign);
    params.key_usages.push(KeyUsagePurpose::CrlSign);
    let key = KeyPair::generate()?;
    let pem = params.self_signed(&key)?.pem();
    Ok(Authority { issuer: Issuer::new(params, key), pem })
}
