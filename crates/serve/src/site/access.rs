//! Decides who may read and write.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::SystemTime;

use base64::Engine as _;
use swath_formats::Network;

use crate::http::{Head, Response};
use crate::tokens::Token;

/// Who may have what is served. Clones are the same: what is changed by one holds for all.
#[derive(Clone, Default)]
pub struct Access {
    /// Whoever shows one of these may read; empty if nothing need be shown.
    tokens: Arc<RwLock<Vec<Token>>>,
    /// Only from these networks; empty if from everywhere.
    networks: Vec<Network>,
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// It may write too, where the server takes anything.
    pub may_write: bool,
}

impl Access {
    /// Whoever shows one of `tokens` (anybody if there are none), from one of `networks` (from
    /// everywhere if there are none).
    pub fn new(tokens: Vec<Token>, networks: Vec<Network>) -> Access {
        Access { tokens: Arc::new(RwLock::new(tokens)), networks }
    }

    /// From the next request on these tokens count, and no others. Without any nobody gets in:
    /// what asked for tokens goes on asking.
    pub fn set_tokens(&self, tokens: Vec<Token>) {
        let nobody = Token { expires: Some(SystemTime::UNIX_EPOCH), ..Token::default() };
        let tokens = if tokens.is_empty() { vec![nobody] } else { tokens };
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    /// Whether nothing need be shown.
    pub fn asks_for_nothing(&self) -> bool {
        self.tokens().is_empty()
    }

    fn tokens(&self) -> RwLockReadGuard<'_, Vec<Token>> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a request that comes `now` pass or answers it.
    pub(crate) fn check(
        &self,
        head: &Head,
        peer: SocketAddr,
        now: SystemTime,
    ) -> Result<Rights, Response> {
        self.check_shown(head.field("authorization"), peer, now)
    }

    /// The same with what is shown, as `Authorization` has it.
    pub fn check_shown(
        &self,
        credentials: Option<&str>,
        peer: SocketAddr,
        now: SystemTime,
    ) -> Result<Rights, Response> {
        let address = peer.ip().to_canonical();
        if !self.networks.is_empty() && !self.networks.iter().any(|net| net.contains(address)) {
            return Err(Response::text(403, "this server does not answer your address"));
        }
        let tokens = self.tokens();
        if tokens.is_empty() {
            return Ok(Rights { may_write: false });
        }
        let Some(shown) = credentials.and_then(shown) else {
            return Err(refused("a token is needed here (Authorization: Bearer …)", false));
        };
        match find(&tokens, &shown) {
            None => Err(refused("this token is not known here", true)),
            Some(token) if token.is_over(now) => Err(refused("this token has expired", true)),
            Some(token) => Ok(Rights { may_write: token.may_write }),
        }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Access({} tokens, {:?})", self.tokens().len(), self.networks)
    }
}

/// The token that is shown. All are compared, each by its digest, so that the time taken tells
/// nothing.
fn find<'a>(tokens: &'a [Token], shown: &[u8]) -> Option<&'a Token> {
    let shown = blake3::hash(shown);
    tokens.iter().fold(None, |found, token| {
        let is_it = blake3::hash(token.secret.as_bytes()) == shown;
        if is_it { Some(token) } else { found }
    })
}

/// Where a token was shown, the challenge says what is wrong with it (RFC 6750, section 3): who
/// asks for ranges ahead does not read the text.
fn refused(text: &str, is_shown: bool) -> Response {
    let error = match is_shown {
        true => format!(", error=\"invalid_token\", error_description=\"{text}\""),
        false => String::new(),
    };
    // Browsers ask for a name and a password; the password is the token.
    let challenge = format!("Bearer realm=\"swath\"{error}, Basic realm=\"swath\"");
    Response::text(401, text).with("www-authenticate", challenge)
}

/// The token in an `Authorization` header: a bearer's, or the password of any user.
fn shown(value: &str) -> Option<Vec<u8>> {
    let (scheme, rest) = value.trim().split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(rest).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &str) -> Head {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        Head::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn status(access: &Access, fields: &str, peer: &str) -> u16 {
        let peer = peer.parse().unwrap();
        let now = SystemTime::UNIX_EPOCH;
        access.check(&request(fields), peer, now).map_or_else(|refusal| refusal.status, |_| 200)
    }

    #[test]
    fn tokens_open_and_nothing_else_does() {
        let token =
            |secret: &str, may_write| Token { secret: secret.to_owned(), may_write, expires: None };
        let tokens = vec![token("first", false), token("s3cret", true)];
        let access = Access::new(tokens, Vec::new());
        for (shown, may_write) in [("first", false), ("s3cret", true)] {
            let head = request(&format!("Authorization: Bearer {shown}\r\n"));
            let peer = "192.0.2.1:1".parse().unwrap();
            let rights = access.check(&head, peer, SystemTime::UNIX_EPOCH).ok();
            assert_eq!(rights, Some(Rights { may_write }));
        }
        let basic = base64::engine::general_purpose::STANDARD.encode("anybody:s3cret");
        for (fields, expected) in [
            (String::new(), 401),
            ("Authorization: Bearer s3cret\r\n".to_owned(), 200),
            ("Authorization: bearer  first\r\n".to_owned(), 200),
            ("Authorization: Bearer s3cre\r\n".to_owned(), 401),
            ("Authorization: Bearer \r\n".to_owned(), 401),
            ("Authorization: Bearer\r\n".to_owned(), 401),
            (format!("Authorization: Basic {basic}\r\n"), 200),
            ("Authorization: Basic s3cret\r\n".to_owned(), 401),
            ("Authorization: Digest s3cret\r\n".to_owned(), 401),
        ] {
            assert_eq!(status(&access, &fields, "192.0.2.1:1"), expected, "{fields}");
        }
        assert!(!format!("{access:?}").contains("s3cret"));
        assert_eq!(status(&Access::default(), "", "192.0.2.1:1"), 200);
    }

    #[test]
    fn networks_let_in_their_own() {
        let networks = ["192.0.2.0/24", "2001:db8::/32", "10.1.2.3"];
        let networks = networks.map(|text| text.parse().unwrap()).to_vec();
        let access = Access::new(Vec::new(), networks);
        for (peer, expected) in [
            ("192.0.2.255:1", 200),
            ("192.0.3.0:1", 403),
            ("10.1.2.3:9", 200),
            ("10.1.2.4:9", 403),
            ("[2001:db8:ffff::1]:1", 200),
            ("[2001:db9::1]:1", 403),
            ("[::ffff:192.0.2.7]:1", 200),
        ] {
            assert_eq!(status(&access, "", peer), expected, "{peer}");
        }
    }
}
