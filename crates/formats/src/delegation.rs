//! A right to read that the owner of a token gives to another server, for one job.
//!
//! The owner makes it from the token, without asking anybody; the server that the token opens can tell
//! that, and sees who may use it. It opens reading below one path, until a time, and only for whoever
//! proves to have a key: the certificate shown in TLS (as RFC 8705 binds access tokens). The token
//! itself cannot be computed from it, and it ends with the token.
//!
//! As text, `swath-1.RIGHT.MAC`, both in base64url: the right is a form such as
//! `path=%2Fds%2F&until=1795…&key=…&job=…`, the MAC is its HMAC-SHA256 with a key derived from the token.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use url::form_urlencoded;

/// A right to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegation {
    /// The decoded path of a file or a folder on the server, which begins with `/`. A folder means
    /// everything below it.
    pub path: Vec<u8>,
    /// The end of the right, in seconds since 1970.
    pub until_s: u64,
    /// SHA-256 of the certificate (DER) of whoever may use it.
    pub key: [u8; 32],
    /// The job for which it was given, for logs: letters, digits and `-`.
    pub job: String,
}

/// A delegation as it was shown, perhaps a forged one.
#[derive(Debug)]
pub struct Shown {
    right: String,
    mac: Vec<u8>,
    delegation: Delegation,
}

/// A token is too short to be delegated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the token is too short to be delegated: from {TOKEN_BYTES_MIN} characters on nobody can guess it"
)]
pub struct ShortToken;

impl Delegation {
    /// Returns the text that gives this right, made from the owner's token.
    ///
    /// # Errors
    /// [`ShortToken`]: whoever gets the delegation could find the token by trying.
    pub fn text(&self, token: &str) -> Result<String, ShortToken> {
        if token.len() < TOKEN_BYTES_MIN {
            return Err(ShortToken);
        }
        let path: String = form_urlencoded::byte_serialize(&self.path).collect();
        let key = URL_SAFE_NO_PAD.encode(self.key);
        let right = format!("path={path}&until={}&key={key}&job={}", self.until_s, self.job);
        let mac = hmac::sign(&signing_key(token), right.as_bytes());
        let (right, mac) = (URL_SAFE_NO_PAD.encode(right), URL_SAFE_NO_PAD.encode(mac));
        Ok(format!("{PREFIX}{right}.{mac}"))
    }

    /// Returns whether a decoded path of a request, without its first `/`, is within the right.
    pub fn covers(&self, path: &[u8]) -> bool {
        let own = self.path.strip_prefix(b"/").unwrap_or(&self.path);
        match own.strip_suffix(b"/").unwrap_or(own) {
            b"" => true,
            above => path
                .strip_prefix(above)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")),
        }
    }
}

impl Shown {
    /// Reads what was shown as a token; `None` if it is no delegation.
    pub fn read(text: &str) -> Option<Shown> {
        let (right, mac) = text.strip_prefix(PREFIX)?.split_once('.')?;
        let right = String::from_utf8(URL_SAFE_NO_PAD.decode(right).ok()?).ok()?;
        let mac = URL_SAFE_NO_PAD.decode(mac).ok()?;
        let (mut path, mut until_s, mut key, mut job) = (None, None, None, None);
        for part in right.split('&') {
            let (name, value) = part.split_once('=')?;
            let is_first = match name {
                "path" => path.replace(decoded(value)?).is_none(),
                "until" => until_s.replace(crate::number(value)?).is_none(),
                "key" => {
                    key.replace(URL_SAFE_NO_PAD.decode(value).ok()?.try_into().ok()?).is_none()
                }
                "job" => job.replace(value.to_owned()).is_none(),
                // It may restrict the right.
                _ => false,
            };
            if !is_first {
                return None;
            }
        }
        let (path, until_s, key, job) = (path?, until_s?, key?, job?);
        let delegation = Delegation { path, until_s, key, job };
        Some(Shown { right, mac, delegation })
    }

    /// Returns the end of the right as the text says it, which may be forged.
    pub fn until_s(&self) -> u64 {
        self.delegation.until_s
    }

    /// Returns the right, if it was made from this token.
    pub fn by(&self, token: &str) -> Option<&Delegation> {
        let is_long = token.len() >= TOKEN_BYTES_MIN;
        let verified = hmac::verify(&signing_key(token), self.right.as_bytes(), &self.mac);
        (is_long && verified.is_ok()).then_some(&self.delegation)
    }
}

fn signing_key(token: &str) -> hmac::Key {
    // Never the token itself: what it signs here must mean nothing elsewhere.
    let own = hmac::Key::new(hmac::HMAC_SHA256, CONTEXT);
    hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&own, token.as_bytes()).as_ref())
}

fn decoded(value: &str) -> Option<Vec<u8>> {
    let value = value.replace('+', " ");
    let decoded = crate::percent::decode(&value);
    decoded.starts_with(b"/").then_some(decoded)
}

const PREFIX: &str = "swath-1.";
const CONTEXT: &[u8] = b"swath delegation 1";
/// Shorter tokens may be words. (Those that swath makes have 32 characters.)
pub const TOKEN_BYTES_MIN: usize = 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &str = "abcdefghijklmnopqrstuvwxyz";

    fn delegation(path: &str) -> Delegation {
        Delegation {
            path: path.into(),
            until_s: 1_800_000_000,
            key: [7; 32],
            job: "j-1".to_owned(),
        }
    }

    #[test]
    fn what_a_token_gave_is_read_again_and_by_no_other() {
        let given = delegation("/a b/ü+%/");
        let text = given.text(TOKEN).unwrap();
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
        let shown = Shown::read(&text).unwrap();
        assert_eq!(shown.by(TOKEN), Some(&given));
        assert_eq!(shown.by("abcdefghijklmnopqrstuvwxyy"), None);
        // Another right with the same MAC.
        let other = delegation("/").text(TOKEN).unwrap();
        let (right, mac) = (other.rsplit_once('.').unwrap().0, text.rsplit_once('.').unwrap().1);
        assert_eq!(Shown::read(&format!("{right}.{mac}")).unwrap().by(TOKEN), None);
    }

    #[test]
    fn short_tokens_are_not_delegated() {
        let short = &TOKEN[..TOKEN_BYTES_MIN - 1];
        assert_eq!(delegation("/").text(short), Err(ShortToken));
        assert!(delegation("/").text(&TOKEN[..TOKEN_BYTES_MIN]).is_ok());
    }

    #[test]
    fn a_right_ends_at_its_path() {
        let covers = |own: &str, path: &str| delegation(own).covers(path.as_bytes());
        for (own, path) in
            [("/", ""), ("/", "a"), ("/ds/", "ds"), ("/ds/", "ds/a/b"), ("/ds", "ds")]
        {
            assert!(covers(own, path), "{own} {path}");
        }
        for (own, path) in
            [("/ds/", ""), ("/ds/", "dsx"), ("/ds/", "d"), ("/a/b", "a"), ("/ds", "x/ds")]
        {
            assert!(!covers(own, path), "{own} {path}");
        }
    }

    #[test]
    fn other_texts_are_no_delegations() {
        let right = |text: &str| format!("{PREFIX}{}.AAAA", URL_SAFE_NO_PAD.encode(text));
        let key = URL_SAFE_NO_PAD.encode([7; 32]);
        assert!(Shown::read(&right(&format!("path=%2F&until=1&key={key}&job=j"))).is_some());
        for text in [
            TOKEN.to_owned(),
            PREFIX.to_owned(),
            right(""),
            right(&format!("path=%2F&until=1&key={key}")),
            right(&format!("path=a&until=1&key={key}&job=j")),
            right(&format!("path=%2F&until=-1&key={key}&job=j")),
            right("path=%2F&until=1&key=AAAA&job=j"),
            right(&format!("path=%2F&path=%2Fa&until=1&key={key}&job=j")),
            right(&format!("path=%2F&until=1&key={key}&job=j&only=x")),
        ] {
            assert!(Shown::read(&text).is_none(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_can_do_harm(text in "\\PC*", right in "\\PC*") {
            let _ = Shown::read(&text);
            let _ = Shown::read(&format!("{PREFIX}{}.AAAA", URL_SAFE_NO_PAD.encode(right)));
        }
    }
}
