//! Decides who may read and write.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use swath_formats::scope::Scopes;
use swath_formats::{Network, delegation};
use swath_model::digest::Digest;

use super::rights::{Rights, Who};
use crate::http::{Head, Method, Response};
use crate::issuer::{Issuers, TokenRefusal};
use crate::tokens::Token;

/// Who may have what is served. Clones are the same: what is changed by one holds for all.
#[derive(Clone, Default)]
pub struct Access {
    /// Whoever shows one of these may read; empty if nothing need be shown.
    tokens: Arc<RwLock<Vec<Token>>>,
    /// And whoever shows one of theirs may do what its scopes say.
    issuers: Option<Issuers>,
    /// Only from these networks; empty if from everywhere.
    networks: Vec<Network>,
}

impl Access {
    /// Whoever shows one of `tokens` (anybody if there are none), from one of `networks` (from
    /// everywhere if there are none).
    pub fn new(tokens: Vec<Token>, networks: Vec<Network>) -> Access {
        Access { tokens: Arc::new(RwLock::new(tokens)), issuers: None, networks }
    }

    /// The same, and whoever shows a token of one of these issuers too. Without a token nobody gets in.
    #[must_use]
    pub fn with_issuers(self, issuers: Issuers) -> Access {
        Access { issuers: Some(issuers), ..self }
    }

    /// From the next request on these tokens count, and no others. Without any nobody gets in:
    /// what asked for tokens goes on asking.
    pub fn set_tokens(&self, tokens: Vec<Token>) {
        let nobody = Token { expires: Some(SystemTime::UNIX_EPOCH), ..Token::default() };
        let tokens = if tokens.is_empty() { vec![nobody] } else { tokens };
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    /// Whether somebody who could write still can. What a token of an issuer has begun goes on without it:
    /// such tokens last for minutes and are checked at the start, as elsewhere in the WLCG.
    pub fn may_still_write(&self, who: Who, now: SystemTime) -> bool {
        if who.is_subject() {
            return self.issuers.is_some();
        }
        let is_it = |token: &Token| token.may_write && !token.is_over(now) && Who::of(token) == who;
        self.tokens().iter().any(is_it)
    }

    /// Whether nothing need be shown.
    pub fn asks_for_nothing(&self) -> bool {
        self.issuers.is_none() && self.tokens().is_empty()
    }

    /// Waits for the keys that a request's token needs, if they may be on their way. Takes seconds at most.
    pub(crate) async fn ready(&self, head: &Head) {
        let Some(issuers) = &self.issuers else { return };
        let text = head.field("authorization").and_then(shown);
        if let Some(token) = text.and_then(|text| String::from_utf8(text).ok()) {
            issuers.ready(&token).await;
        }
    }

    fn tokens(&self) -> RwLockReadGuard<'_, Vec<Token>> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a request that comes `now` pass or answers it.
    pub(crate) fn check(
        &self,
        head: &Head,
        reads: &[u8],
        peer: SocketAddr,
        now: SystemTime,
    ) -> Result<Rights, Response> {
        let credentials = head.field("authorization");
        let text = credentials.and_then(shown).and_then(|shown| String::from_utf8(shown).ok());
        match text.as_deref().and_then(delegation::Shown::read) {
            None => self.check_shown(credentials, peer, now),
            Some(shown) => {
                self.check_address(peer)?;
                self.check_delegation(&shown, head, reads, now)
            }
        }
    }

    /// The same for a right that the owner of a token has given away.
    fn check_delegation(
        &self,
        shown: &delegation::Shown,
        head: &Head,
        reads: &[u8],
        now: SystemTime,
    ) -> Result<Rights, Response> {
        if self.asks_for_nothing() {
            return Ok(Rights::to_everything(false, Who::default()));
        }
        let tokens = self.tokens();
        let by = tokens.iter().find_map(|token| Some((token, shown.by(&token.secret)?)));
        let Some((token, right)) = by else {
            // The secret of such a token is not here: nothing that was made from it can be checked.
            let text = match self.issuers {
                Some(_) => {
                    "the token of this delegation is not known here (a token of an issuer cannot be \
                     delegated)"
                }
                None => "the token of this delegation is not known here",
            };
            return Err(refused(text, true));
        };
        let until = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(right.until_s));
        if token.is_over(now) || until.is_some_and(|until| until <= now) {
            return Err(refused("this delegation has expired", true));
        }
        if head.client_key.as_ref().map(Digest::as_bytes) != Some(&right.key[..]) {
            return Err(refused("this delegation was made for another server", true));
        }
        if !matches!(head.method, Method::GET | Method::HEAD) || !right.covers(reads) {
            return Err(Response::text(403, "this delegation is not for that"));
        }
        let path = right.path.strip_prefix(b"/").unwrap_or(&right.path);
        let path = path.strip_suffix(b"/").unwrap_or(path);
        Ok(Rights::of_scopes(Arc::new(Scopes::to_read(path)), Who::of(token)))
    }

    /// The same with what is shown, as `Authorization` has it.
    pub fn check_shown(
        &self,
        credentials: Option<&str>,
        peer: SocketAddr,
        now: SystemTime,
    ) -> Result<Rights, Response> {
        self.check_address(peer)?;
        if self.asks_for_nothing() {
            return Ok(Rights::to_everything(false, Who::default()));
        }
        let Some(shown) = credentials.and_then(shown) else {
            return Err(refused("a token is needed here (Authorization: Bearer …)", false));
        };
        match find(&self.tokens(), &shown) {
            Some(token) if token.is_over(now) => Err(refused("this token has expired", true)),
            Some(token) => Ok(Rights::to_everything(token.may_write, Who::of(token))),
            None => self.check_issued(&shown, now),
        }
    }

    /// The same for a token that is none of this server's own.
    fn check_issued(&self, shown: &[u8], now: SystemTime) -> Result<Rights, Response> {
        let token = str::from_utf8(shown).map_err(|_| TokenRefusal::Form);
        let issuers = self.issuers.as_ref().ok_or(TokenRefusal::Form);
        match issuers.and_then(|issuers| issuers.verify(token?, now)) {
            Ok((scopes, who)) => Ok(Rights::of_scopes(scopes, who)),
            Err(why @ TokenRefusal::NoKeys) => {
                Err(Response::text(503, why.to_string()).with("retry-after", RETRY_AFTER_S))
            }
            Err(why) => Err(refused(&why.to_string(), true)),
        }
    }
}

impl Access {
    fn check_address(&self, peer: SocketAddr) -> Result<(), Response> {
        let address = peer.ip().to_canonical();
        match self.networks.is_empty() || self.networks.iter().any(|net| net.contains(address)) {
            true => Ok(()),
            false => Err(Response::text(403, "this server does not answer your address")),
        }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tokens = self.tokens().len();
        write!(f, "Access({tokens} tokens, {:?}, {:?})", self.issuers, self.networks)
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

/// Keys are fetched again once a minute while their issuer does not answer.
const RETRY_AFTER_S: &str = "60";

#[cfg(test)]
mod tests {
    use swath_model::digest::{Algorithm, Hasher};

    use super::*;

    fn request(fields: &str) -> Head {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        Head::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn status(access: &Access, fields: &str, peer: &str) -> u16 {
        let peer = peer.parse().unwrap();
        let now = SystemTime::UNIX_EPOCH;
        let head = request(fields);
        access
            .check(&head, &head.target.path, peer, now)
            .map_or_else(|refusal| refusal.status, |_| 200)
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
            let rights = access.check(&head, &head.target.path, peer, SystemTime::UNIX_EPOCH).ok();
            assert_eq!(rights.map(|rights| rights.may_modify(b"x")), Some(may_write));
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
    fn a_delegation_opens_its_path_to_its_holder_for_a_while() {
        let secret = "a token that is long enough";
        let token =
            |secret: &str, expires| Token { secret: secret.to_owned(), may_write: true, expires };
        let at = |time_s| SystemTime::UNIX_EPOCH + Duration::from_secs(time_s);
        let tokens = vec![token("another token that is long", None), token(secret, Some(at(90)))];
        let access = Access::new(tokens, Vec::new());
        let holder = Hasher::digest(Algorithm::Sha256, b"certificate");
        let key = holder.as_bytes().try_into().unwrap();
        let given = |until_s| {
            let right = delegation::Delegation {
                path: b"/ds/".to_vec(),
                until_s,
                key,
                job: "j".to_owned(),
            };
            right.text(secret).unwrap()
        };
        let status = |access: &Access, shown: &str, request: &str, key: Option<&Digest>, now_s| {
            let text =
                format!("{request} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {shown}\r\n\r\n");
            let head = Head::parse(text.as_bytes()).unwrap().unwrap().0;
            let mut head = head;
            head.client_key = key.copied();
            let peer = "192.0.2.1:1".parse().unwrap();
            match access.check(&head, &head.target.path, peer, at(now_s)) {
                Ok(rights) => 200 + u16::from(rights.may_write_somewhere()),
                Err(refusal) => refusal.status,
            }
        };
        let right = given(50);
        let by_holder = |request, now_s| status(&access, &right, request, Some(&holder), now_s);
        assert_eq!(by_holder("GET /ds/a", 49), 200);
        assert_eq!(by_holder("HEAD /ds/?swath=index", 49), 200);
        assert_eq!(by_holder("GET /ds/a", 50), 401, "its time is over");
        assert_eq!(by_holder("PUT /ds/a", 49), 403);
        assert_eq!(by_holder("POST /ds/?swath=receive", 49), 403);
        assert_eq!(by_holder("GET /other", 49), 403);
        assert_eq!(status(&access, &right, "GET /ds/a", None, 49), 401);
        let other = Hasher::digest(Algorithm::Sha256, b"another certificate");
        assert_eq!(status(&access, &right, "GET /ds/a", Some(&other), 49), 401);
        // It ends with the token.
        assert_eq!(status(&access, &given(500), "GET /ds/a", Some(&holder), 91), 401);
        access.set_tokens(vec![token("another token that is long", None)]);
        assert_eq!(by_holder("GET /ds/a", 49), 401);
        // Where nothing need be shown, nobody looks at it.
        let nobody = Access::default();
        assert_eq!(status(&nobody, &right, "GET /ds/a", None, 49), 200);
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
