//! Network options from the command line and the environment: tokens, `.netrc`, proxies.

use std::collections::BTreeMap;
use std::path::PathBuf;

use swath_formats::netrc::Netrc;
use swath_jobs::{Environment, Header, Network, SecretRef};
use swath_source::{NetOptions, Proxies, Secret, ServerAccess, discover_bearer};

use crate::args::{Net, TokenFrom};
use crate::config::{Config, HostSection, has_none_at_home};
use crate::exit::warn;
use crate::exposed;
use crate::failure::Failure;
use crate::{remember, trust};

pub use swath_jobs::{parse_url, shown_text};

/// Returns the network options.
pub fn options(net: &Net) -> Result<NetOptions, Failure> {
    let (environment, network) = environment(net)?;
    Ok(environment.net_options(&network)?)
}

/// Returns the environment of jobs, with the typed secrets, and the network options that refer to them.
pub fn environment(net: &Net) -> Result<(Environment, Network), Failure> {
    let env = |name: &str| std::env::var(name).ok();
    let mut secrets = BTreeMap::new();
    let mut named = |name: String, secret: Secret| {
        secrets.insert(name.clone(), secret);
        SecretRef::Name(name)
    };
    let token = match (&net.token, &net.bearer_file) {
        (Some(TokenFrom::Word(word)), _) => Some(named("token".to_owned(), word.clone())),
        (Some(TokenFrom::File(path)), _) | (None, Some(path)) => {
            exposed::warn_of_secret(path);
            Some(SecretRef::File(path.clone()))
        }
        (None, None) => None,
    };
    let bearer = match token {
        Some(_) => None,
        None => {
            // SAFETY: getuid has no preconditions and cannot fail.
            let uid = unsafe { libc::getuid() };
            let search = discover_bearer(env, uid);
            search.unusable.iter().for_each(|what| warn(what));
            search.bearer
        }
    };
    let headers = net.header.iter().enumerate().map(|(at, (name, value))| Header {
        name: name.clone(),
        value: named(format!("header {at}"), Secret::new(value)),
    });
    let network = Network {
        headers: headers.collect(),
        token,
        ca_files: net.ca.clone(),
        fingerprints: net.fingerprint.clone(),
        insecure: net.insecure,
        certificate: net.own.files(),
        // Shorter timeouts would become zero.
        timeout_ms: u64::try_from(net.timeout.as_millis()).unwrap_or(u64::MAX).max(1),
        limit_bytes_per_s: None,
    };
    let own = NetOptions {
        bearer,
        netrc: netrc()?,
        proxies: Proxies::from_env(env).map_err(|error| Failure::input(error.to_string()))?,
        servers: servers(net)?,
        unknown: net.unknown.clone(),
        ..NetOptions::default()
    };
    Ok((around(Environment { net: own, secrets, ..Environment::default() }), network))
}

/// Adds this program and the folder for sockets.
pub fn around(environment: Environment) -> Environment {
    let program = std::env::current_exe().unwrap_or_default();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).unwrap_or_default();
    Environment { program, runtime, history: remember::history(), ..environment }
}

/// Returns the access to single servers: from links, the configuration file and the trusted servers.
fn servers(net: &Net) -> Result<Vec<ServerAccess>, Failure> {
    Ok(net.servers.iter().cloned().chain(hosts()?).chain(trust::known()).collect())
}

/// Returns the access to single servers that the configuration file has.
pub fn hosts() -> Result<Vec<ServerAccess>, Failure> {
    let config = Config::load().map_err(|error| Failure::input(error.to_string()))?;
    config.hosts.iter().map(HostSection::access).collect()
}

/// Reads `$NETRC` or `~/.netrc`, if there is one.
fn netrc() -> Result<Option<Netrc>, Failure> {
    let named = std::env::var_os("NETRC").filter(|path| !path.is_empty()).map(PathBuf::from);
    let usual = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".netrc"));
    let is_named = named.is_some();
    let Some(path) = named.or_else(usual) else { return Ok(None) };
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if !is_named && has_none_at_home(&path, &error) => return Ok(None),
        Err(error) => {
            let what = format!("cannot read the logins in {}: {error}", path.display());
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
