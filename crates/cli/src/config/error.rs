//! What can be wrong with the configuration, in words.

use std::io;
use std::path::PathBuf;

/// Why the configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not there, or not to be read.
    #[error("cannot read the configuration in {path}: {error}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// What a variable of the environment says in its place.
    #[error("{name}: {wrong}")]
    Variable {
        /// Which.
        name: String,
        /// What is wrong with it.
        wrong: String,
    },
    /// What one of its lines says.
    #[error("{path}, line {line}: {wrong}", path = .path.display())]
    At {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        wrong: Wrong,
    },
}

/// What is wrong with a line, or with an option of the same meaning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Not TOML.
    #[error("it is no TOML: {0}")]
    Syntax(String),
    /// Nothing is called that.
    #[error("there is no '{key}'{place}; there are {known}", known = .known.join(", "))]
    Key {
        /// What it says.
        key: String,
        /// Nothing, or where it stands.
        place: &'static str,
        /// What it may say.
        known: Vec<&'static str>,
    },
    /// Of another type.
    #[error("'{key}' has to be {wanted}, and is {found}")]
    Type {
        /// Whose value.
        key: &'static str,
        /// What it may be.
        wanted: &'static str,
        /// What it is, as TOML calls it.
        found: &'static str,
    },
    /// Of the right type, and yet not to be used.
    #[error("'{key}': {why}")]
    Value {
        /// Whose value.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// What names no servers.
    #[error(
        "'{0}' names no host: it is HOST, HOST:PORT or *.DOMAIN, perhaps with http:// or https:// before it"
    )]
    Host(String),
    /// The same servers again.
    #[error("the host {0} is there twice")]
    HostTwice(String),
    /// What cannot be the fingerprint of a certificate.
    #[error("the 'fingerprint' of this host: {0}")]
    HostFingerprint(String),
    /// What cannot be a proxy.
    #[error(
        "the 'proxy' of this host is an address such as http://proxy.example:3128, or 'direct': {0}"
    )]
    Proxy(String),
    /// What cannot be the fingerprint of a certificate.
    #[error("the 'fingerprint' of this relay: {0}")]
    Fingerprint(String),
    /// A fingerprint of what shows no certificate.
    #[error(
        "the relay {0} has no certificate, since its address begins with http://: it cannot have a 'fingerprint'"
    )]
    Unencrypted(String),
    /// A table without what it is about.
    #[error("this relay has no 'url'")]
    NoUrl,
    /// What cannot be a relay's address.
    #[error("'{address}' cannot be a relay's address: {fault}")]
    Relay {
        /// Without what may be secret in it.
        address: String,
        /// Why not.
        fault: RelayFault,
    },
    /// A relay that the file has by another scheme.
    #[error(
        "the configuration file has the relay {site} by {known}://, not by {typed}://: its token and its certificate are for that alone"
    )]
    Scheme {
        /// Which.
        site: String,
        /// How it was named.
        typed: String,
        /// How the file has it.
        known: String,
    },
    /// The same relay again.
    #[error("the relay {0} is there twice")]
    Twice(String),
    /// No route.
    #[error("'{0}' is no route: it is auto, direct, widest, multi, or relays such as r1,r2")]
    Route(String),
    /// A route over the same relay again.
    #[error(
        "the route leads over '{0}' twice, and a relay passes on nothing that it has passed on before"
    )]
    Again(String),
    /// A route over more hops than there may be.
    #[error("a route has {0} relays, and 7 are the most (8 hops)")]
    Long(usize),
    /// A route over a relay that nobody named.
    #[error("the route leads over '{name}', which is none of the relays {known}", known = list(.known))]
    Unknown {
        /// As it was written.
        name: String,
        /// The sites of the relays there are.
        known: Vec<String>,
    },
    /// A wish that nothing could fulfil.
    #[error("the route '{0}' needs relays: 'relays' here names them, or --relay")]
    Needs(&'static str),
    /// A route over one of two relays, and it is not clear which.
    #[error("the route leads over '{name}', which may be {known}", known = .known.join(" or "))]
    Ambiguous {
        /// As it was written.
        name: String,
        /// The sites that it may be.
        known: Vec<String>,
    },
}

/// Why an address cannot be a relay's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayFault {
    /// No URL.
    #[error("it is no URL ({0}); it looks like https://r1.example:8471")]
    NoUrl(String),
    /// Neither HTTP nor HTTPS.
    #[error("relays speak http and https, not {0}")]
    Scheme(String),
    /// With a path.
    #[error("it has a path ({0}), and relays have none")]
    Path(String),
    /// With a query or a fragment.
    #[error("it has something behind a '{0}', and relays have nothing there")]
    Behind(char),
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "(there are none)".to_owned() } else { names.join(", ") }
}
