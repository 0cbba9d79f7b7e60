//! Errors of the configuration.

use std::io;
use std::path::PathBuf;

use crate::usage::nearest;

/// Why the configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration in {path}: {error}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Others may change it.
    #[error("{0}")]
    Exposed(String),
    /// An environment variable is invalid.
    #[error("{name}: {wrong}")]
    Variable {
        /// The variable.
        name: String,
        /// The error.
        wrong: String,
    },
    /// One of its lines is invalid.
    #[error("{path}, line {line}: {wrong}", path = .path.display())]
    At {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The error.
        wrong: ConfigProblem,
    },
}

/// Why a line, or an option of the same meaning, is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigProblem {
    /// Invalid TOML.
    #[error("invalid TOML: {0}")]
    Syntax(String),
    /// Unknown key.
    #[error("unknown key '{key}'{place}{}; known keys: {known}", guess(key, .known), known = .known.join(", "))]
    Key {
        /// The key.
        key: String,
        /// Empty, or the section.
        place: &'static str,
        /// The known keys.
        known: Vec<&'static str>,
    },
    /// Wrong type.
    #[error("'{key}' must be {wanted}, not {found}")]
    Type {
        /// The key.
        key: &'static str,
        /// The expected type.
        wanted: &'static str,
        /// The type that was found.
        found: &'static str,
    },
    /// Invalid value.
    #[error("'{key}': {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// The error.
        why: String,
    },
    /// Invalid host pattern.
    #[error(
        "'{0}' is not a host: use HOST, HOST:PORT or *.DOMAIN, optionally after http:// or https://"
    )]
    Host(String),
    /// Duplicate host.
    #[error("duplicate host {0}")]
    HostTwice(String),
    /// Invalid fingerprint of a host.
    #[error("'fingerprint' of this host: {0}")]
    HostFingerprint(String),
    /// A key without the certificate that it is for.
    #[error("'key' of this host needs 'cert', the certificate that it is for")]
    KeyAlone,
    /// Invalid proxy.
    #[error(
        "'proxy' of this host must be an address such as http://proxy.example:3128, or 'direct': {0}"
    )]
    Proxy(String),
    /// Invalid fingerprint of a relay.
    #[error("'fingerprint' of this relay: {0}")]
    Fingerprint(String),
    /// A fingerprint for an unencrypted relay.
    #[error("the relay {0} uses http:// and has no certificate: remove its 'fingerprint'")]
    Unencrypted(String),
    /// A relay without address.
    #[error("this relay has no 'url'")]
    NoUrl,
    /// Invalid address of a relay.
    #[error("'{address}' is not the address of a relay: {fault}")]
    Relay {
        /// The address without secrets.
        address: String,
        /// The error.
        fault: RelayFault,
    },
    /// A relay of the file with another scheme.
    #[error(
        "the configuration file has the relay {site} with {known}://, not {typed}://: its token and fingerprint are only for {known}"
    )]
    Scheme {
        /// The relay.
        site: String,
        /// The scheme of the command line.
        typed: String,
        /// The scheme of the file.
        known: String,
    },
    /// Duplicate relay.
    #[error("duplicate relay {0}")]
    Twice(String),
    /// Invalid route.
    #[error("'{0}' is not a route: use auto, direct, widest, multi, or relays such as r1,r2")]
    Route(String),
    /// A route with a duplicate relay.
    #[error("the route contains '{0}' twice, and relays refuse loops")]
    Again(String),
    /// A route with too many hops.
    #[error("the route has {0} relays, and the maximum is 7 (8 hops)")]
    Long(usize),
    /// A route over an unknown relay.
    #[error("the route contains '{name}', which is not among the relays {known}", known = list(.known))]
    Unknown {
        /// The name.
        name: String,
        /// The sites of all relays.
        known: Vec<String>,
    },
    /// A route that needs relays.
    #[error("the route '{0}' needs relays: add them to 'relays', or use --relay")]
    Needs(&'static str),
    /// A route with an ambiguous name.
    #[error("the route contains '{name}', which may be {known}", known = .known.join(" or "))]
    Ambiguous {
        /// The name.
        name: String,
        /// The sites that the name may mean.
        known: Vec<String>,
    },
}

/// Why an address is not that of a relay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayFault {
    /// Not a URL.
    #[error("not a URL ({0}); an example is https://r1.example:8471")]
    NoUrl(String),
    /// A scheme other than HTTP and HTTPS.
    #[error("relays use http or https, not {0}")]
    Scheme(String),
    /// It has a path.
    #[error("a path ({0}) is not allowed")]
    Path(String),
    /// It has a query or a fragment.
    #[error("nothing is allowed after '{0}'")]
    Behind(char),
}

/// Suggests the key that was probably meant.
fn guess(key: &str, known: &[&'static str]) -> String {
    let meant = key.to_ascii_lowercase().replace('_', "-");
    let begins = || known.iter().copied().find(|known| known.starts_with(&meant));
    let found = nearest(&meant, known.iter().copied()).or_else(begins);
    found.map_or(String::new(), |found| format!(" (did you mean '{found}'?)"))
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "(none)".to_owned() } else { names.join(", ") }
}
