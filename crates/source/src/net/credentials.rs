//! Who we are: tokens, passwords, and to whom they may be shown.
//!
//! The rule that decides who gets any is in [`super::Net::credentials_for`]: the origin that the
//! user named and nobody else.

use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use swath_formats::percent::decode_text;
use url::{Host, Url};

use super::options::{NetOptions, RelayAccess};
use super::token::{Token, TokenError, is_token};
use crate::target::Origin;

/// Something that must not be seen: `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret, white space around it stripped.
    pub fn new(text: &str) -> Secret {
        Secret(text.trim().to_owned())
    }

    /// Returns the secret itself, for sending.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A bearer token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// The token.
    pub token: Token,
    /// Given for this very run, rather than found lying around: then it is sent without TLS too.
    pub explicit: bool,
}

/// What the search for a bearer token came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BearerSearch {
    /// The first that can be used.
    pub bearer: Option<Bearer>,
    /// What was there before it and cannot be used, each as a sentence without the token.
    pub unusable: Vec<String>,
}

/// The bearer token in the order of the WLCG discovery: `BEARER_TOKEN`, the file named by
/// `BEARER_TOKEN_FILE`, `$XDG_RUNTIME_DIR/bt_u$UID`, `/tmp/bt_u$UID`; white space is stripped,
/// what is empty counts as missing. `env` looks up the environment.
pub fn discover_bearer(env: impl Fn(&str) -> Option<String>, uid: u32) -> BearerSearch {
    let mut search = BearerSearch::default();
    if let Some(text) = env("BEARER_TOKEN") {
        let token = Secret::new(&text);
        if is_token(&token.0) {
            search.bearer = Some(Bearer { token: token.into(), explicit: false });
        } else if !token.0.is_empty() {
            let what = "BEARER_TOKEN holds no token: it must be one word of visible characters";
            search.unusable.push(what.to_owned());
        }
    }
    let named = env("BEARER_TOKEN_FILE").filter(|path| !path.is_empty());
    let run = env("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let places = [
        named.map(|path| (PathBuf::from(path), true)),
        run.map(|folder| (Path::new(&folder).join(format!("bt_u{uid}")), false)),
        Some((PathBuf::from(format!("/tmp/bt_u{uid}")), false)),
    ];
    for (path, must_exist) in places.into_iter().flatten() {
        if search.bearer.is_some() {
            break;
        }
        match Token::in_file(&path) {
            Ok(token) => search.bearer = Some(Bearer { token, explicit: false }),
            Err(TokenError::Empty(_)) => {}
            Err(TokenError::Read { error, .. })
                if error.kind() == ErrorKind::NotFound && !must_exist => {}
            Err(error) => search.unusable.push(error.to_string()),
        }
    }
    search
}

/// What goes into the requests to one origin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    pub headers: Vec<(String, String)>,
    /// The value of `Authorization`.
    pub authorization: Option<Authorization>,
    /// There is a token, but it is not sent without TLS.
    pub needs_tls: bool,
}

impl Credentials {
    /// Returns whether anything tells who we are.
    pub fn are_some(&self) -> bool {
        self.authorization.is_some() || has(&self.headers, "authorization")
    }
}

/// What tells a server who we are.
#[derive(Clone, Debug)]
pub(crate) enum Authorization {
    /// The whole value: a user and a password.
    Basic(Secret),
    Bearer(Token),
}

impl Authorization {
    /// Returns the whole value as it is now.
    pub fn value(&self) -> Secret {
        match self {
            Authorization::Basic(value) => value.clone(),
            Authorization::Bearer(token) => Secret(format!("Bearer {}", token.now().0)),
        }
    }

    /// Returns the token in it: a bearer's, or the password of any user.
    pub fn token(&self) -> Option<Secret> {
        match self {
            Authorization::Bearer(token) => Some(token.now()),
            Authorization::Basic(value) => {
                let (_, encoded) = value.0.split_once(' ')?;
                let decoded = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
                let decoded = String::from_utf8(decoded).ok()?;
                decoded.split_once(':').map(|(_, password)| Secret::new(password))
            }
        }
    }
}

/// Returns whether one of the user's own headers has this name.
pub(crate) fn has(headers: &[(String, String)], name: &str) -> bool {
    headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name))
}

/// Returns the credentials for `origin`, which is entitled to them. A password in the URL comes before a
/// token, a token before netrc; a header of the user's own beats all.
pub(super) fn of(options: &NetOptions, url: &Url, origin: &Origin) -> Credentials {
    let headers = options.headers.clone();
    if has(&headers, "authorization") {
        return Credentials { headers, ..Credentials::default() };
    }
    let is_given = options.bearer.as_ref().is_some_and(|bearer| bearer.explicit);
    let authorization = from_url(url)
        .map(Authorization::Basic)
        .or_else(|| options.own_token(origin, true).map(bearer_of))
        .or_else(|| bearer(options, origin).filter(|_| is_given))
        .or_else(|| options.own_token(origin, false).map(bearer_of))
        .or_else(|| bearer(options, origin))
        .or_else(|| netrc(options, origin));
    let needs_tls = authorization.is_none() && options.bearer.is_some();
    Credentials { headers, authorization, needs_tls }
}

/// Returns the token that was given for the server at `origin` alone, if there is one.
pub(super) fn own_only(options: &NetOptions, origin: &Origin) -> Credentials {
    let token = options.own_token(origin, true).or_else(|| options.own_token(origin, false));
    let authorization = token.map(bearer_of);
    Credentials { authorization, ..Credentials::default() }
}

/// What opens the relay at `origin`, if it is one of the user's: its token, a password in its address,
/// or netrc.
pub(super) fn of_relay(options: &NetOptions, origin: &Origin) -> Credentials {
    let is_it = |relay: &&RelayAccess| Origin::of(&relay.url).as_ref() == Some(origin);
    let Some(own) = options.relays.iter().find(is_it) else {
        // Whoever wrote a Metalink could have named it: a login by a host's name would go to any of its
        // ports, in the clear.
        return Credentials::default();
    };
    let token = own.token.as_ref();
    let by_url = || from_url(&own.url).map(Authorization::Basic);
    let authorization = token.map(bearer_of).or_else(by_url).or_else(|| netrc(options, origin));
    Credentials { authorization, ..Credentials::default() }
}

/// Basic credentials from the user and password in `url`.
pub(super) fn from_url(url: &Url) -> Option<Secret> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    Some(basic(&decode_text(url.username()), &decode_text(url.password().unwrap_or(""))))
}

fn bearer_of(token: &Token) -> Authorization {
    Authorization::Bearer(token.clone())
}

fn bearer(options: &NetOptions, origin: &Origin) -> Option<Authorization> {
    let bearer = options.bearer.as_ref()?;
    let protected = origin.tls || is_loopback(&origin.host) || bearer.explicit;
    protected.then(|| bearer_of(&bearer.token))
}

fn netrc(options: &NetOptions, origin: &Origin) -> Option<Authorization> {
    let found = options.netrc.as_ref()?.find(&origin.host.to_string())?;
    Some(Authorization::Basic(basic(&found.login, &found.password)))
}

pub(super) fn is_loopback(host: &Host<String>) -> bool {
    match host {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => IpAddr::V4(*address).is_loopback(),
        Host::Ipv6(address) => IpAddr::V6(*address).is_loopback(),
    }
}

fn basic(user: &str, password: &str) -> Secret {
    let both = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    Secret(format!("Basic {both}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorization(options: &NetOptions, url: &str) -> Option<String> {
        let url = Url::parse(url).unwrap();
        let origin = Origin::of(&url).unwrap();
        of(options, &url, &origin).authorization.map(|it| it.value().0)
    }

    #[test]
    fn a_found_token_needs_tls_and_a_given_one_does_not() {
        let with = |explicit| NetOptions {
            bearer: Some(Bearer { token: Secret::new("tok").into(), explicit }),
            ..NetOptions::default()
        };
        let token = Some("Bearer tok".to_owned());
        assert_eq!(authorization(&with(false), "http://example.org/"), None);
        assert_eq!(authorization(&with(true), "http://example.org/"), token);
        for url in
            ["https://example.org/", "http://127.0.0.1/", "http://localhost:99/", "http://[::1]/"]
        {
            assert_eq!(authorization(&with(false), url), token, "{url}");
        }
        assert_eq!(
            authorization(&with(true), "https://a:b%3Ac@example.org/").as_deref(),
            Some("Basic YTpiOmM=")
        );
        let own = NetOptions {
            headers: vec![("authorization".to_owned(), "Mine".to_owned())],
            ..with(true)
        };
        assert_eq!(
            authorization(&own, "https://example.org/"),
            None,
            "the user's own header goes instead"
        );
    }
}
