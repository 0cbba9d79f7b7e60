//! The network as the command line and the environment want it: tokens, `.netrc`, proxies.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use swath_formats::mirror_url::{MirrorUrlError, mirror_url};
use swath_formats::netrc::Netrc;
use swath_source::{
    Bearer, NetOptions, Proxies, Secret, ServerAccess, discover_bearer, without_zone,
};

use url::Url;

use crate::args::{Net, TokenFrom, is_token};
use crate::config::{Config, HostSection};
use crate::exit::warn;
use crate::trust;

/// Options for everything that goes over the network.
pub fn options(net: &Net) -> Result<NetOptions, Failure> {
    let env = |name: &str| std::env::var(name).ok();
    let given = match &net.token {
        Some(TokenFrom::Word(word)) => Some(word.clone()),
        Some(TokenFrom::File(path)) => Some(token(path)?),
        None => net.bearer_file.as_deref().map(token).transpose()?,
    };
    let bearer = match given {
        Some(token) => Some(Bearer { token, explicit: true }),
        None => {
            // SAFETY: getuid has no preconditions and cannot fail.
            let uid = unsafe { libc::getuid() };
            let search = discover_bearer(env, uid);
            search.unusable.iter().for_each(|what| warn(what));
            search.bearer
        }
    };
    Ok(NetOptions {
        headers: net.header.clone(),
        bearer,
        netrc: netrc()?,
        proxies: Proxies::from_env(env).map_err(|error| Failure::input(error.to_string()))?,
        ca_files: net.ca.clone(),
        fingerprints: net.fingerprint.clone(),
        insecure: net.insecure,
        timeout: net.timeout,
        servers: servers(net)?,
        unknown: net.unknown.clone(),
        ..NetOptions::default()
    })
}

/// What is said of single servers: by links, in the configuration file, and by whom the user trusts.
fn servers(net: &Net) -> Result<Vec<ServerAccess>, Failure> {
    let config = Config::load().map_err(|error| Failure::input(error.to_string()))?;
    let own = config.hosts.iter().map(HostSection::access).collect::<Result<Vec<_>, _>>()?;
    Ok(net.servers.iter().cloned().chain(own).chain(trust::known()).collect())
}

/// The token in a file.
pub fn token(path: &Path) -> Result<Secret, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::input(format!("cannot read the token in {}: {error}", path.display()))
    })?;
    let token = text.trim();
    if !is_token(token) {
        let why = "it must be one word of visible characters";
        return Err(Failure::input(format!("{} holds no token: {why}", path.display())));
    }
    Ok(Secret::new(token))
}

/// A replica's address as typed; the error is a sentence.
pub fn parse_url(text: &str) -> Result<Url, String> {
    let without = without_zone(text).map_err(|error| format!("{}: {error}", shown_text(text)))?;
    mirror_url(without.as_deref().unwrap_or(text), None).map_err(|error| match error {
        MirrorUrlError::Scheme { scheme } => format!(
            "{}: the scheme {scheme} is not supported here (http, https, dav and davs are)",
            shown_text(text)
        ),
        MirrorUrlError::Parse(error) => format!("'{}' is not a URL: {error}", shown_text(text)),
        other => format!("'{}' is not a URL: {other}", shown_text(text)),
    })
}

/// What cannot be read as a URL, without what may be secret in it: user, password and query.
pub fn shown_text(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match text.split_once("://") {
        Some((scheme, rest)) => {
            let bare = rest.rsplit_once('@').map_or(rest, |(_, bare)| bare);
            format!("{scheme}://{bare}")
        }
        None => text.rsplit_once('@').map_or(text, |(_, bare)| bare).to_owned(),
    }
}

/// What `$NETRC` or `~/.netrc` holds, if there is one.
fn netrc() -> Result<Option<Netrc>, Failure> {
    let named = std::env::var_os("NETRC").filter(|path| !path.is_empty()).map(PathBuf::from);
    let usual = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".netrc"));
    let is_named = named.is_some();
    let Some(path) = named.or_else(usual) else { return Ok(None) };
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if !is_named && error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let what = format!("the logins in {} cannot be read: {error}", path.display());
            if is_named {
                return Err(Failure::input(what));
            }
            warn(&what);
            return Ok(None);
        }
    };
    let netrc = Netrc::parse(&text);
    for problem in netrc.problems() {
        warn(&format!("the logins in {}: {problem}", path.display()));
    }
    Ok(Some(netrc))
}
