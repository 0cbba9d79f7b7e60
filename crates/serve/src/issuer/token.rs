//! A token of an issuer (JWT, RFC 7519): taking it apart, and what its claims are worth.
//!
//! Everything here is pure: the time and the names of this server are parameters. No claim is
//! used before the signature has been checked.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use swath_formats::scope::{Dialect, Scopes};

/// A token that has been taken apart.
pub(super) struct Parts<'a> {
    /// With what it is said to be signed.
    pub algorithm: Algorithm,
    /// The name of the key.
    pub key_id: Option<String>,
    /// What it says.
    pub claims: Claims,
    /// What is signed.
    pub message: &'a str,
    /// The signature, as it was written.
    pub signature: &'a str,
}

/// What a token says of itself.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    pub iss: String,
    pub sub: Option<String>,
    aud: Option<OneOrMore>,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
    scope: Option<OneOrMore>,
    #[serde(rename = "wlcg.ver")]
    wlcg_version: Option<String>,
    ver: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn all(&self) -> &[String] {
        match self {
            OneOrMore::One(one) => std::slice::from_ref(one),
            OneOrMore::More(more) => more,
        }
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<serde_json::Value>,
}

/// Why a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenRefusal {
    /// It is none of an issuer.
    #[error("this token is not known here")]
    Form,
    /// A part of it is not understood.
    #[error("this token is not a complete JWT of the WLCG or SciTokens profile")]
    Claims,
    /// It is signed in a way that proves nothing, or that is not known here.
    #[error("this token is signed with an algorithm that is not accepted here")]
    Algorithm,
    /// Nobody here trusts its issuer.
    #[error("the issuer of this token is not trusted here")]
    Issuer,
    /// The keys of its issuer could not be fetched.
    #[error("the keys of this token's issuer cannot be fetched at the moment")]
    NoKeys,
    /// Its issuer has no such key.
    #[error("this token is signed with a key that its issuer does not publish")]
    Key,
    /// It was not signed with that key, or was changed.
    #[error("the signature of this token is wrong")]
    Signature,
    /// It is for other servers.
    #[error("this token was issued for another server (its audience is not this one)")]
    Audience,
    /// Its time is over.
    #[error("this token has expired")]
    Expired,
    /// Its time has not come.
    #[error("this token is not valid yet")]
    NotYet,
}

impl<'a> Parts<'a> {
    /// Takes a token apart, without believing any of it.
    pub fn read(token: &'a str) -> Result<Parts<'a>, TokenRefusal> {
        if !looks_like_jwt(token) {
            return Err(TokenRefusal::Form);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(TokenRefusal::Form)?;
        let (header, claims) = message.split_once('.').ok_or(TokenRefusal::Form)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenRefusal::Form);
        let header: Header =
            serde_json::from_slice(&decode(header)?).map_err(|_| TokenRefusal::Form)?;
        let algorithm = header.alg.parse().map_err(|_| TokenRefusal::Algorithm)?;
        let is_secret = matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512);
        // What `crit` lists must be understood, and nothing is (RFC 7515, section 4.1.11).
        if is_secret || header.crit.is_some() {
            return Err(TokenRefusal::Algorithm);
        }
        let claims = serde_json::from_slice(&decode(claims)?).map_err(|_| TokenRefusal::Claims)?;
        Ok(Parts { algorithm, key_id: header.kid, claims, message, signature })
    }
}

impl Claims {
    /// Returns what they permit at a server that has these names, and until when. The paths of the scopes
    /// begin at `base`.
    pub fn permit(
        &self,
        audiences: &[String],
        base: &[u8],
        now: SystemTime,
    ) -> Result<(Scopes, SystemTime), TokenRefusal> {
        let dialect = match (self.wlcg_version.as_deref(), self.ver.as_deref()) {
            (Some(version), _) if version.starts_with("1.") => Dialect::Wlcg,
            // SciTokens' text and its library write it differently.
            (None, Some("scitoken:2.0" | "scitokens:2.0")) => Dialect::SciTokens,
            _ => return Err(TokenRefusal::Claims),
        };
        let expires = self.exp.and_then(time).ok_or(TokenRefusal::Claims)?;
        if expires <= now {
            return Err(TokenRefusal::Expired);
        }
        for begins in [self.nbf, self.iat].into_iter().flatten() {
            if time(begins).ok_or(TokenRefusal::Claims)? > now + LEEWAY {
                return Err(TokenRefusal::NotYet);
            }
        }
        let (any, needs_audience) = match dialect {
            Dialect::Wlcg => ("https://wlcg.cern.ch/jwt/v1/any", true),
            Dialect::SciTokens => ("ANY", false),
        };
        let is_for_us = |audience: &String| {
            let same = |own: &String| own.trim_end_matches('/') == audience.trim_end_matches('/');
            audience == any || audiences.iter().any(same)
        };
        match &self.aud {
            Some(named) if !named.all().iter().any(is_for_us) => {
                return Err(TokenRefusal::Audience);
            }
            None if needs_audience => return Err(TokenRefusal::Audience),
            _ => {}
        }
        let scopes = self.scope.as_ref().map(|scopes| scopes.all().join(" ")).unwrap_or_default();
        Ok((Scopes::read(&scopes, dialect, base), expires))
    }
}

/// Whether it has the form of a JWT: three parts, of the characters of base64url.
pub(super) fn looks_like_jwt(token: &str) -> bool {
    let is_fit = |part: &str| {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !part.is_empty() && part.bytes().all(is_fit)
    };
    token.len() <= TOKEN_BYTES_MAX
        && token.bytes().filter(|&byte| byte == b'.').count() == 2
        // `none` has an empty signature: it is one, and is refused for its algorithm.
        && token.splitn(3, '.').enumerate().all(|(at, part)| is_fit(part) || (at == 2 && part.is_empty()))
}

/// Seconds since 1970 as a time, if it is one that clocks have.
fn time(seconds: f64) -> Option<SystemTime> {
    let is_fit = (0.0..SECONDS_MAX).contains(&seconds);
    is_fit.then(|| SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds))
}

/// The head of a request has no more.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Clocks differ by less.
const LEEWAY: Duration = Duration::from_secs(60);
/// The year 9999.
const SECONDS_MAX: f64 = 253_402_300_800.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use swath_formats::scope::Act;

    use super::*;

    const NOW_S: u64 = 1_000_000;

    fn permit(claims: &str) -> Result<Scopes, TokenRefusal> {
        let claims: Claims = serde_json::from_str(claims).map_err(|_| TokenRefusal::Claims)?;
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_S);
        let audiences = ["https://b.example:8470".to_owned()];
        claims.permit(&audiences, b"", now).map(|(scopes, _)| scopes)
    }

    #[test]
    fn only_whole_claims_for_this_server_and_this_time_permit_anything() {
        let any = r#""aud":"https://wlcg.cern.ch/jwt/v1/any""#;
        let wlcg = r#""iss":"i","wlcg.ver":"1.0","scope":"storage.read:/a""#;
        let scitoken = r#""iss":"i","ver":"scitoken:2.0","scope":"read:/a""#;
        for (claims, expected) in [
            (format!(r#"{{{wlcg},{any},"exp":1000001}}"#), Ok(true)),
            (format!(r#"{{{wlcg},{any},"exp":1000000}}"#), Err(TokenRefusal::Expired)),
            (format!(r#"{{{wlcg},{any}}}"#), Err(TokenRefusal::Claims)),
            (format!(r#"{{{wlcg},{any},"exp":"1000001"}}"#), Err(TokenRefusal::Claims)),
            (format!(r#"{{{wlcg},{any},"exp":-1}}"#), Err(TokenRefusal::Claims)),
            (format!(r#"{{{wlcg},{any},"exp":1e300}}"#), Err(TokenRefusal::Claims)),
            (format!(r#"{{{wlcg},{any},"exp":1000001.5,"nbf":1000060}}"#), Ok(true)),
            (format!(r#"{{{wlcg},{any},"exp":2000000,"nbf":1000061}}"#), Err(TokenRefusal::NotYet)),
            (format!(r#"{{{wlcg},{any},"exp":2000000,"iat":1000061}}"#), Err(TokenRefusal::NotYet)),
            (format!(r#"{{{wlcg},"exp":2000000}}"#), Err(TokenRefusal::Audience)),
            (format!(r#"{{{wlcg},"aud":"ANY","exp":2000000}}"#), Err(TokenRefusal::Audience)),
            (format!(r#"{{{wlcg},"aud":[],"exp":2000000}}"#), Err(TokenRefusal::Audience)),
            (
                format!(r#"{{{wlcg},"aud":["x","https://b.example:8470/"],"exp":2000000}}"#),
                Ok(true),
            ),
            (
                format!(r#"{{{wlcg},"aud":"https://b.example","exp":2000000}}"#),
                Err(TokenRefusal::Audience),
            ),
            (format!(r#"{{{scitoken},"exp":2000000}}"#), Ok(true)),
            (format!(r#"{{{scitoken},"aud":"ANY","exp":2000000}}"#), Ok(true)),
            (format!(r#"{{{scitoken},"aud":"other","exp":2000000}}"#), Err(TokenRefusal::Audience)),
            (format!(r#"{{"iss":"i","exp":2000000,{any}}}"#), Err(TokenRefusal::Claims)),
            (
                format!(r#"{{"iss":"i","wlcg.ver":"2.0",{any},"exp":2000000}}"#),
                Err(TokenRefusal::Claims),
            ),
            (format!(r#"{{"iss":"i","wlcg.ver":"1.0",{any},"exp":2000000}}"#), Ok(false)),
            (
                format!(
                    r#"{{"iss":"i","wlcg.ver":"1.1",{any},"exp":2000000,"scope":["x","storage.read:/a"]}}"#
                ),
                Ok(true),
            ),
            (r#"{"wlcg.ver":"1.0","exp":2000000}"#.to_owned(), Err(TokenRefusal::Claims)),
            (format!(r#"{{{wlcg},{any},"exp":1,"exp":2000000}}"#), Err(TokenRefusal::Claims)),
        ] {
            let permitted = permit(&claims).map(|scopes| scopes.permit(Act::Read, b"a/b"));
            assert_eq!(permitted, expected, "{claims}");
        }
    }

    fn refusal(header: &str) -> Option<TokenRefusal> {
        let token = format!("{}.{}.AAAA", URL_SAFE_NO_PAD.encode(header), "eyJpc3MiOiJpIn0");
        Parts::read(&token).err()
    }

    #[test]
    fn algorithms_that_prove_nothing_are_refused() {
        assert_eq!(refusal(r#"{"alg":"RS256","kid":"1","typ":"JWT"}"#), None);
        for alg in ["none", "None", "HS256", "HS384", "HS512", "RS1", ""] {
            let header = format!(r#"{{"alg":"{alg}"}}"#);
            assert_eq!(refusal(&header), Some(TokenRefusal::Algorithm), "{alg}");
        }
        let critical = r#"{"alg":"RS256","crit":["b64"],"b64":false}"#;
        assert_eq!(refusal(critical), Some(TokenRefusal::Algorithm));
        assert_eq!(refusal("{}"), Some(TokenRefusal::Form));
        let none = format!("{}.eyJpc3MiOiJpIn0.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#));
        assert_eq!(Parts::read(&none).err(), Some(TokenRefusal::Algorithm));
        let long = format!("{}.e30.AAAA", "A".repeat(TOKEN_BYTES_MAX));
        assert_eq!(Parts::read(&long).err(), Some(TokenRefusal::Form));
    }

    proptest! {
        #[test]
        fn garbage_is_refused_quietly(text in ".{0,60}", json in ".{0,40}") {
            prop_assert!(Parts::read(&text).is_err());
            let _ = Parts::read(&format!("{}.{0}.AA", URL_SAFE_NO_PAD.encode(&json)));
            let _ = permit(&json);
        }
    }
}
