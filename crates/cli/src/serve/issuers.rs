//! `swath serve --issuer`: reads what the options name, and keeps the keys of the issuers fresh.
//!
//! Whether a token is good is decided in `swath-serve`; here its keys are fetched: found by OpenID
//! discovery, once an hour, and at once when a token names a key that is not known. While an issuer does not
//! answer, its last keys count for a day.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use swath_serve::{Issuers, KeySet, TrustedIssuer};
use swath_source::{Document, Net, NetOptions, Trust, display_name, fetch_small};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use url::Url;

use super::args::IssuerName;
use crate::exit::{chain, warn};
use crate::failure::Failure;
use crate::say;

/// The issuers of a server, and what keeps their keys fresh.
pub struct IssuerKeeper {
    named: Vec<IssuerName>,
    issuers: Issuers,
    net: Net,
    /// One for each issuer whose keys are fetched.
    fetching: Mutex<JoinSet<()>>,
}

/// A file of `--issuer`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerFile {
    issuer: String,
    base_path: Option<String>,
    jwks_uri: Option<String>,
    keys: Option<Box<RawValue>>,
}

/// An issuer from the command line.
struct Named {
    trusted: TrustedIssuer,
    /// Where its keys are, if that was said.
    jwks_uri: Option<Url>,
}

impl IssuerKeeper {
    /// Reads what `--issuer` names; `None` if it names nothing. Tokens mean this server by `audiences`.
    pub fn open(
        named: &[IssuerName],
        audiences: &[String],
    ) -> Result<Option<Arc<IssuerKeeper>>, Failure> {
        if named.is_empty() {
            return Ok(None);
        }
        let read = read_all(named).map_err(Failure::input)?;
        let trusted = read.into_iter().map(|issuer| issuer.trusted).collect();
        let issuers = Issuers::new(trusted, audiences.to_vec());
        let net = Net::new(NetOptions { timeout: FETCH_WITHIN, ..NetOptions::default() });
        let net = net.map_err(|error| Failure::input(format!("--issuer: {}", chain(&error))))?;
        let fetching = Mutex::default();
        Ok(Some(Arc::new(IssuerKeeper { named: named.to_vec(), issuers, net, fetching })))
    }

    /// Returns the issuers, as the server takes them.
    pub fn issuers(&self) -> &Issuers {
        &self.issuers
    }

    /// Reads the files again, and begins to fetch all keys that are to be fetched. Must be called within a
    /// tokio runtime.
    pub fn begin(&self) -> Result<(), String> {
        let read = read_all(&self.named)?;
        let mut tasks = JoinSet::new();
        let fetched = read.iter().filter(|issuer| issuer.trusted.keys.is_none());
        let fetched: Vec<_> = fetched
            .map(|issuer| (issuer.trusted.issuer.clone(), issuer.jwks_uri.clone()))
            .collect();
        self.issuers.set_trusted(read.into_iter().map(|issuer| issuer.trusted).collect());
        for (issuer, jwks_uri) in fetched {
            tasks.spawn(keep(self.net.clone(), self.issuers.clone(), issuer, jwks_uri));
        }
        // Those before end here.
        *self.fetching.lock().unwrap_or_else(PoisonError::into_inner) = tasks;
        Ok(())
    }

    /// The same at SIGHUP. Nothing changes if a file cannot be read.
    pub fn reload(&self) {
        match self.begin() {
            Ok(()) => say::err("reloaded: the issuers"),
            Err(error) => warn(&format!("keeping the old issuers: {error}")),
        }
    }
}

impl std::fmt::Debug for IssuerKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IssuerKeeper({:?})", self.issuers)
    }
}

fn read_all(named: &[IssuerName]) -> Result<Vec<Named>, String> {
    let mut all: Vec<Named> = Vec::new();
    for name in named {
        let issuer = match name {
            IssuerName::Url(issuer) => {
                let (base_path, keys) = ("/".to_owned(), None);
                let trusted = TrustedIssuer { issuer: issuer.clone(), base_path, keys };
                Named { trusted, jwks_uri: None }
            }
            IssuerName::File(path) => read_file(path)?,
        };
        let name = &issuer.trusted.issuer;
        if all.iter().any(|other| other.trusted.issuer == *name) {
            return Err(format!("--issuer names {name} twice"));
        }
        all.push(issuer);
    }
    Ok(all)
}

fn read_file(path: &PathBuf) -> Result<Named, String> {
    let unusable = |error: String| format!("cannot read the issuer in {}: {error}", path.display());
    let text = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let file: IssuerFile =
        serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
    let base_path = file.base_path.unwrap_or_else(|| "/".to_owned());
    if swath_formats::scope::normal_path(&base_path).is_none() {
        return Err(unusable(format!("'{base_path}' is no path that begins with '/'")));
    }
    let jwks_uri = file.jwks_uri.map(|text| keys_address(&text)).transpose().map_err(unusable)?;
    let keys = match file.keys {
        None => None,
        Some(keys) => {
            let set = format!("{{\"keys\":{}}}", keys.get());
            Some(KeySet::read(set.as_bytes()).map_err(|error| unusable(error.to_string()))?)
        }
    };
    if keys.is_none() {
        super::args::https_address(&file.issuer).map_err(unusable)?;
    }
    let trusted = TrustedIssuer { issuer: file.issuer, base_path, keys };
    Ok(Named { trusted, jwks_uri })
}

/// Reads the address of keys.
fn keys_address(text: &str) -> Result<Url, String> {
    match Url::parse(text) {
        Ok(url) if url.scheme() == "https" => Ok(url),
        Ok(_) => Err("keys are fetched by https only".to_owned()),
        Err(error) => Err(format!("the address of its keys: {error}")),
    }
}

/// Keeps the keys of an issuer fresh, for ever.
async fn keep(net: Net, issuers: Issuers, issuer: String, jwks_uri: Option<Url>) {
    let mut came = Instant::now();
    let mut is_failing = false;
    loop {
        let fetching = issuers.fetching(&issuer);
        match fetch(&net, &issuer, jwks_uri.as_ref()).await {
            Ok(keys) => {
                issuers.set_keys(&issuer, Some(keys));
                came = Instant::now();
                if is_failing {
                    say::err(&format!("fetched the keys of {issuer} again"));
                }
                is_failing = false;
            }
            Err(error) => {
                // Once, and not every minute.
                if !is_failing {
                    warn(&format!("cannot fetch the keys of {issuer}: {error}; trying again"));
                }
                is_failing = true;
                if came.elapsed() > KEPT_FOR {
                    issuers.set_keys(&issuer, None);
                }
            }
        }
        drop(fetching);
        let next = if is_failing { AGAIN_AFTER } else { FRESH_FOR };
        tokio::select! {
            () = sleep(next) => {}
            () = issuers.asked(&issuer) => {}
        }
    }
}

async fn fetch(net: &Net, issuer: &str, jwks_uri: Option<&Url>) -> Result<KeySet, String> {
    let url = match jwks_uri {
        Some(url) => url.clone(),
        None => discover(net, issuer).await?,
    };
    let document = get(net, &url, "application/jwk-set+json, application/json").await?;
    KeySet::read(&document.bytes).map_err(|error| format!("{}: {error}", display_name(&url)))
}

/// Finds out where the keys of an issuer are (OpenID Connect Discovery 1.0, section 4; RFC 8414, section 3).
async fn discover(net: &Net, issuer: &str) -> Result<Url, String> {
    #[derive(Deserialize)]
    struct About {
        issuer: String,
        jwks_uri: String,
    }
    let mut first_error = None;
    for url in descriptions(issuer) {
        let about = get(net, &url, "application/json").await.and_then(|document| {
            let about: Result<About, _> = serde_json::from_slice(&document.bytes);
            about.map_err(|error| format!("{}: {error}", display_name(&url)))
        });
        match about {
            Ok(about) if about.issuer != issuer => {
                let shown = swath_model::path::visible(&about.issuer);
                return Err(format!("this issuer calls itself '{shown}': name it so"));
            }
            Ok(about) => return keys_address(&about.jwks_uri),
            Err(error) => _ = first_error.get_or_insert(error),
        }
    }
    Err(first_error.unwrap_or_else(|| "its address cannot be used".to_owned()))
}

/// Where an issuer may describe itself.
fn descriptions(issuer: &str) -> Vec<Url> {
    let whole = issuer.trim_end_matches('/');
    let openid = Url::parse(&format!("{whole}/.well-known/openid-configuration")).ok();
    let oauth = Url::parse(whole).ok().map(|mut url| {
        let path = format!("/.well-known/oauth-authorization-server{}", url.path());
        url.set_path(path.trim_end_matches('/'));
        url
    });
    openid.into_iter().chain(oauth).collect()
}

async fn get(net: &Net, url: &Url, accept: &str) -> Result<Document, String> {
    let fetched = fetch_small(net, url, Trust::Named, accept, DOCUMENT_BYTES_MAX).await;
    let document = fetched.map_err(|error| format!("{}: {}", display_name(url), chain(&error)))?;
    match document.final_url.scheme() {
        "https" => Ok(document),
        _ => Err(format!("{} leads to an address without encryption", display_name(url))),
    }
}

/// Keys are fetched again so often. The WLCG's profile recommends one to six hours.
const FRESH_FOR: Duration = Duration::from_secs(3600);
/// The same after a failure.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// The last keys count for so long while their issuer does not answer: the longest time that the WLCG's
/// profile allows.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// An issuer that does not answer within this time is tried again later.
const FETCH_WITHIN: Duration = Duration::from_secs(10);
/// A longer description, or set of keys, is none.
const DOCUMENT_BYTES_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_describes_itself_in_one_of_two_places() {
        let urls = |issuer| descriptions(issuer).iter().map(Url::to_string).collect::<Vec<_>>();
        let [openid, oauth] = ["openid-configuration", "oauth-authorization-server"];
        for issuer in ["https://iam.example", "https://iam.example/"] {
            let expected =
                [openid, oauth].map(|it| format!("https://iam.example/.well-known/{it}"));
            assert_eq!(urls(issuer), expected);
        }
        let expected = [
            format!("https://iam.example/vo/.well-known/{openid}"),
            format!("https://iam.example/.well-known/{oauth}/vo"),
        ];
        assert_eq!(urls("https://iam.example/vo/"), expected);
    }

    #[test]
    fn files_of_issuers_are_read_or_say_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("issuer.json");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_file(&path)
        };
        let named = read(r#"{"issuer":"https://i/","base_path":"/cms"}"#).ok().unwrap();
        assert_eq!(
            (named.trusted.issuer.as_str(), named.trusted.base_path.as_str()),
            ("https://i/", "/cms")
        );
        assert!(named.trusted.keys.is_none() && named.jwks_uri.is_none());
        assert!(read(r#"{"issuer":"https://i/","jwks_uri":"https://k/"}"#).is_ok());
        for wrong in [
            "",
            "{}",
            r#"{"issuer":"http://i/"}"#,
            r#"{"issuer":"https://i/","basepath":"/cms"}"#,
            r#"{"issuer":"https://i/","base_path":"cms"}"#,
            r#"{"issuer":"https://i/","base_path":"/../cms"}"#,
            r#"{"issuer":"https://i/","jwks_uri":"http://k/"}"#,
            r#"{"issuer":"https://i/","keys":[]}"#,
        ] {
            assert!(read(wrong).is_err_and(|error| error.contains("issuer.json")), "{wrong}");
        }
    }
}
