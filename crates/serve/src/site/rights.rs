//! What somebody may do, path by path: the only place that decides it.
//!
//! The folders are reached by way of these rights ([`Folders::resolve`](super::folders::Folders::resolve)),
//! and the store asks them again at each change below a folder, whatever was checked when a request came.
//!
//! A token of this server opens all of it, for reading or for writing too. A token of an issuer opens what
//! its scopes name. Paths are those of requests ([`Target::path`](crate::http::Target::path)): decoded,
//! without `..`, and without slashes at their ends.

use std::sync::Arc;
use std::time::SystemTime;

use swath_formats::scope::{Act, Dialect, Scopes};
use swath_store::tree::{Decide, Deed, Grant};

use super::Access;
use super::built_in::BuiltIn;
use crate::http::{Head, Method, Response};
use crate::tokens::Token;

/// What somebody may do, and who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// By whose token.
    pub who: Who,
    opens: Opens,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Opens {
    /// All of the server.
    Everything { may_write: bool },
    /// What these name.
    Scopes(Arc<Scopes>),
}

impl Rights {
    /// Returns the right to read everything, or to write everything too.
    pub(super) fn to_everything(may_write: bool, who: Who) -> Rights {
        Rights { who, opens: Opens::Everything { may_write } }
    }

    /// Returns the rights of a token with these scopes.
    pub(super) fn of_scopes(scopes: Arc<Scopes>, who: Who) -> Rights {
        Rights { who, opens: Opens::Scopes(scopes) }
    }

    /// Whether what is at `path` and below it may be read.
    pub fn may_read(&self, path: &[u8]) -> bool {
        self.may(Act::Read, path)
    }

    /// Whether somebody may see that something is at `path`, its size and its digest. Whoever sends a file
    /// has to see what has become of it, and which folders on the way are there.
    pub fn may_look(&self, path: &[u8]) -> bool {
        self.may_read(path) || self.may_make_folder(path)
    }

    /// Whether something that is not there yet may be made at `path`. Who may modify may do that too.
    pub fn may_create(&self, path: &[u8]) -> bool {
        self.may(Act::Create, path)
    }

    /// Whether a folder may be made at `path`: also one on the way to what may be created.
    pub fn may_make_folder(&self, path: &[u8]) -> bool {
        match &self.opens {
            Opens::Everything { may_write } => *may_write,
            Opens::Scopes(scopes) => scopes.permit_folder(path),
        }
    }

    /// Whether what is at `path` and below it may be changed, replaced, moved and removed.
    pub fn may_modify(&self, path: &[u8]) -> bool {
        self.may(Act::Modify, path)
    }

    /// Whether somebody may write anything anywhere.
    pub fn may_write_somewhere(&self) -> bool {
        match &self.opens {
            Opens::Everything { may_write } => *may_write,
            Opens::Scopes(scopes) => scopes.permit_somewhere(Act::Create),
        }
    }

    /// Returns them as the store asks them, for the whole of the server.
    pub(super) fn grant(&self) -> Grant {
        match self.opens {
            Opens::Everything { may_write: true } => Grant::everything(),
            _ => Grant::of(Arc::new(self.clone()), Vec::new()),
        }
    }

    /// Returns them as the store asks them for an order, which takes longer than its request, for what is
    /// at `path` and below it: they end with the token.
    pub(super) fn grant_for_order(&self, access: &Access, path: &[u8]) -> Grant {
        let standing = Standing { rights: self.clone(), access: access.clone() };
        Grant::of(Arc::new(standing), path.to_vec())
    }

    /// Returns them as text, to be kept with an order.
    pub fn to_text(&self) -> String {
        match &self.opens {
            Opens::Everything { may_write: true } => WRITES_EVERYTHING.to_owned(),
            Opens::Everything { may_write: false } => READS_EVERYTHING.to_owned(),
            Opens::Scopes(scopes) => format!("{OF_SCOPES}{scopes}"),
        }
    }

    /// Reads the rights of somebody as they were kept.
    pub fn of_text(text: &str, who: Who) -> Option<Rights> {
        let opens = match text {
            WRITES_EVERYTHING => Opens::Everything { may_write: true },
            READS_EVERYTHING => Opens::Everything { may_write: false },
            scopes => {
                let scopes = Scopes::read(scopes.strip_prefix(OF_SCOPES)?, Dialect::Wlcg, b"");
                Opens::Scopes(Arc::new(scopes))
            }
        };
        Some(Rights { who, opens })
    }

    /// Returns the rights of somebody whose order was kept without them: those of a token of this server
    /// that permits writing. The scopes of an issuer's token were not kept then.
    pub fn of_earlier_order(who: Who) -> Option<Rights> {
        (!who.is_subject()).then(|| Rights::to_everything(true, who))
    }

    fn may(&self, act: Act, path: &[u8]) -> bool {
        match &self.opens {
            Opens::Everything { may_write } => *may_write || act == Act::Read,
            Opens::Scopes(scopes) => scopes.permit(act, path),
        }
    }

    /// Returns the answer to somebody who may not do this (RFC 6750, section 3.1).
    pub(super) fn refusal(&self, act: Act) -> Response {
        let text = match (&self.opens, act) {
            (Opens::Everything { .. }, _) => {
                return Response::text(403, "this token opens reading alone");
            }
            (_, Act::Read) => "the scopes of this token do not permit reading here",
            (_, Act::Create) => "the scopes of this token do not permit writing here",
            (_, Act::Modify) => "the scopes of this token do not permit replacing what is here",
        };
        let challenge = format!(
            "Bearer realm=\"swath\", error=\"insufficient_scope\", error_description=\"{text}\""
        );
        Response::text(403, text).with("www-authenticate", challenge)
    }

    /// Refuses a request to read this path without the right to read it. Rights to write are checked where
    /// something is written.
    pub(super) fn check_reading(&self, head: &Head, path: &[u8]) -> Result<(), Response> {
        let is_permitted = match (&head.method, head.target.parameter("swath")) {
            // About its own jobs, and connections of its own uploads.
            (_, Some("third-party" | "job" | "jobs" | "lane")) => true,
            // Figures about all that is served.
            (&(Method::GET | Method::HEAD), None) if BuiltIn::of(head).is_some() => {
                self.may_read(b"")
            }
            (&Method::HEAD, None) if !head.target.is_folder => self.may_look(path),
            (&(Method::GET | Method::HEAD), _) => self.may_read(path),
            // What is in a folder, or with this depth what is at the path alone.
            (method, _) if method.as_str() == "PROPFIND" => match head.field("depth") {
                Some("0") => self.may_look(path),
                _ => self.may_read(path),
            },
            _ => true,
        };
        if is_permitted { Ok(()) } else { Err(self.refusal(Act::Read)) }
    }
}

impl Decide for Rights {
    fn permits(&self, deed: Deed, path: &[u8]) -> bool {
        match deed {
            Deed::Read => self.may_read(path),
            Deed::Create => self.may_create(path),
            Deed::MakeFolder => self.may_make_folder(path),
            Deed::Modify => self.may_modify(path),
        }
    }

    fn permits_all_reading(&self) -> bool {
        matches!(self.opens, Opens::Everything { .. })
    }
}

/// Rights for as long as somebody has them.
struct Standing {
    rights: Rights,
    access: Access,
}

impl Decide for Standing {
    fn permits(&self, deed: Deed, path: &[u8]) -> bool {
        let still =
            deed == Deed::Read || self.access.may_still_write(self.rights.who, SystemTime::now());
        still && self.rights.permits(deed, path)
    }

    fn permits_all_reading(&self) -> bool {
        self.rights.permits_all_reading()
    }
}

/// Reads `text` as kept rights: what they mean stays when they are kept again.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_kept_rights(text: &str) {
    let read = |text: &str| Rights::of_text(text, Who::default());
    if let Some(rights) = read(text) {
        let kept = rights.to_text();
        assert_eq!(read(&kept).map(|again| again.to_text()), Some(kept));
    }
}

/// Tells those apart who show different tokens, today and after a restart: by the token, or by issuer and
/// subject. Neither can be found from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Who {
    id: [u8; 16],
    /// Known by issuer and subject.
    is_subject: bool,
}

impl Who {
    pub(crate) fn of(token: &Token) -> Who {
        Who::derived("swath serve, name of a token", token.secret.as_bytes(), false)
    }

    pub(crate) fn of_subject(issuer: &str, subject: &str) -> Who {
        // No issuer has this character in its address.
        let name = format!("{issuer}\n{subject}");
        Who::derived("swath serve, name of a subject of an issuer", name.as_bytes(), true)
    }

    fn derived(context: &str, name: &[u8], is_subject: bool) -> Who {
        let digest = blake3::derive_key(context, name);
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Who { id, is_subject }
    }

    /// Whether it is known by issuer and subject.
    pub(super) fn is_subject(self) -> bool {
        self.is_subject
    }
}

impl std::str::FromStr for Who {
    type Err = ();

    /// Reads what it is shown as.
    fn from_str(text: &str) -> Result<Who, ()> {
        let (text, is_subject) = match text.strip_prefix(SUBJECT) {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let mut id = [0; 16];
        if text.len() != 32 || !text.is_ascii() {
            return Err(());
        }
        for (byte, at) in id.iter_mut().zip((0..32).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| ())?;
        }
        Ok(Who { id, is_subject })
    }
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_subject { SUBJECT } else { "" })?;
        self.id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Rights as text.
const WRITES_EVERYTHING: &str = "write";
const READS_EVERYTHING: &str = "read";
/// Before scopes.
const OF_SCOPES: &str = "scopes ";
/// Before the name of somebody who is known by issuer and subject.
const SUBJECT: &str = "subject-";

#[cfg(test)]
mod tests {
    use super::*;

    fn scoped(text: &str) -> Rights {
        Rights::of_scopes(Arc::new(Scopes::read(text, Dialect::Wlcg, b"")), Who::default())
    }

    #[test]
    fn who_somebody_is_survives_being_written_down() {
        let token = Token { secret: "s".to_owned(), ..Token::default() };
        let (token, subject) = (Who::of(&token), Who::of_subject("https://i/", "ada"));
        for who in [token, subject] {
            assert_eq!(who.to_string().parse(), Ok(who));
        }
        assert_eq!(subject, Who::of_subject("https://i/", "ada"));
        assert_ne!(subject, Who::of_subject("https://i/", "grace"));
        assert_ne!(subject, Who::of_subject("https://j/", "ada"));
        assert!("subject-".parse::<Who>().is_err() && "x".repeat(32).parse::<Who>().is_err());
    }

    #[test]
    fn rights_survive_being_written_down() {
        let who = Who::of_subject("https://i/", "ada");
        let scopes = Scopes::read("storage.modify:/a%20b storage.read:/", Dialect::Wlcg, b"x");
        for rights in [
            Rights::to_everything(true, who),
            Rights::to_everything(false, who),
            Rights::of_scopes(Arc::new(scopes), who),
        ] {
            assert_eq!(Rights::of_text(&rights.to_text(), who), Some(rights));
        }
        for text in ["", "all", "writes", "scope storage.modify:/"] {
            assert_eq!(Rights::of_text(text, who), None, "{text}");
        }
        assert_eq!(Rights::of_earlier_order(who), None);
    }

    #[test]
    fn the_rights_of_an_order_end_with_its_token() {
        let token = Token { secret: "s".to_owned(), may_write: true, expires: None };
        let access = Access::new(vec![token.clone()], Vec::new());
        let rights = Rights::to_everything(true, Who::of(&token));
        let grant = rights.grant_for_order(&access, b"b");
        assert!(grant.permits(Deed::Modify, b"x"));
        access.set_tokens(Vec::new());
        assert!(!grant.permits(Deed::Modify, b"x") && !grant.permits(Deed::Create, b""));
    }

    #[test]
    fn requests_read_only_what_the_scopes_name() {
        let reads = |rights: &Rights, request: &str| {
            let text = format!("{request} HTTP/1.1\r\nHost: h\r\n\r\n");
            let head = Head::parse(text.as_bytes()).unwrap().unwrap().0;
            rights.check_reading(&head, &head.target.path).map_err(|refusal| refusal.status).is_ok()
        };
        let rights = scoped("storage.read:/a");
        for (request, expected) in [
            ("GET /a", true),
            ("GET /a/b?swath=index", true),
            ("GET /b/../a/x", true),
            ("GET /a/../b", false),
            ("GET /ab", false),
            ("GET /", false),
            ("HEAD /b", false),
            ("GET /b?swath=index", false),
            ("GET /?swath=data&walk=1", false),
            ("GET /metrics", false),
            ("GET /?swath=jobs", true),
            ("OPTIONS /b", true),
            ("PROPFIND /a", true),
            ("PROPFIND /b", false),
        ] {
            assert_eq!(reads(&rights, request), expected, "{request}");
        }
        let creates = scoped("storage.create:/a");
        assert!(reads(&creates, "HEAD /a/x") && !reads(&creates, "GET /a/x"));
        assert!(!reads(&creates, "HEAD /a/") && !reads(&creates, "HEAD /a?swath=index"));
        // A file of this name is not the figures of the server.
        assert!(!reads(&scoped("storage.read:/metrics"), "GET /metrics"));
        assert!(reads(&scoped("storage.read:/metrics"), "GET /metrics?file"));
        assert!(reads(&scoped("storage.read:/"), "GET /metrics"));
    }

    #[test]
    fn the_tokens_of_the_server_open_all_of_it() {
        let reads = Rights::to_everything(false, Who::default());
        assert!(reads.may_read(b"a") && reads.may_look(b"") && !reads.may_write_somewhere());
        assert!(!reads.may_create(b"a") && !reads.may_modify(b"a") && !reads.may_make_folder(b"a"));
        let writes = Rights::to_everything(true, Who::default());
        assert!(writes.may_create(b"a") && writes.may_modify(b"") && writes.may_make_folder(b""));
    }
}
