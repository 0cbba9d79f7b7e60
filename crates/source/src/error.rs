//! What can go wrong on a lane, in words that a user understands, and what that means for the
//! source.
//!
//! The planner decides by [`Class`] alone; the words are for people. No message ever holds a
//! credential or the query of a URL.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use swath_formats::ProxyFault;
use swath_formats::peer::{HandshakeError, PeerFault};
use swath_formats::plain_http::{self, SpeaksHttps};
use swath_model::{Range, counted};

/// Why an answer was bad or a lane ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// The host name has no address.
    #[error("the name {host} cannot be resolved: {reason}")]
    Dns {
        /// The name asked for.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// No address of the host took the connection.
    #[error("cannot connect to {host}: {reason}")]
    Connect {
        /// Host and port.
        host: String,
        /// Nothing came back, so that nobody knows whether anybody is there.
        timed_out: bool,
        /// What the system said about the last address tried.
        reason: String,
    },
    /// The host has not been reached for so long that it is not waited for any more.
    #[error("{error}; it has not been reached for {for_s} s")]
    Down {
        /// What the last try came to.
        error: Box<LaneError>,
        /// For how many seconds.
        for_s: u64,
    },
    /// The TLS handshake failed (certificate, protocol, name).
    #[error("no secure connection to {host}: {reason}")]
    Tls {
        /// Host and port.
        host: String,
        /// What kind of failure it is.
        fault: TlsFault,
        /// What rustls said.
        reason: String,
    },
    /// Plain HTTP was spoken where TLS is.
    #[error("the server answered {} {}", plain_http::STATUS, .0.phrase())]
    SpeaksHttps(SpeaksHttps),
    /// A proxy refused to connect us.
    #[error("no way through the proxy {proxy}: {reason}")]
    Proxy {
        /// Host and port of the proxy.
        proxy: String,
        /// What it answered.
        reason: String,
        /// The status of its answer, if it answered.
        code: Option<u16>,
    },
    /// The server refused: its answer carries no data.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// A relay on the way could not pass the request on, or would not.
    #[error("the relay {relay} passes nothing on: {reason}")]
    Relay {
        /// How it calls itself.
        relay: String,
        /// What went wrong, if that is understood.
        fault: Option<ProxyFault>,
        /// Its words for it.
        reason: String,
    },
    /// More redirects than sensible, or one that leads back to where it began.
    #[error("the redirects never end (last: {last})")]
    RedirectLoop {
        /// The last address, without credentials and query.
        last: String,
    },
    /// A redirect from https to http, which would give up the protection asked for.
    #[error(
        "refused a redirect from https to unprotected http ({to}); to fetch it from there, name that address itself"
    )]
    RedirectInsecure {
        /// Where it led, without credentials and query.
        to: String,
    },
    /// A redirect that cannot be followed.
    #[error("cannot follow the redirect: {reason}")]
    RedirectInvalid {
        /// Why.
        reason: String,
    },
    /// A field of the request cannot be sent: it would end its line and begin another one.
    #[error("nothing is asked: {name} holds a line break or another control character")]
    UnsafeField {
        /// The name of the field. Its value may be secret.
        name: String,
    },
    /// The answer is not HTTP as agreed.
    #[error("the server does not speak proper HTTP: {reason}")]
    Protocol {
        /// What was wrong.
        reason: String,
    },
    /// The first answer of a server is not HTTP at all.
    #[error("the server does not speak proper HTTP: {reason}")]
    NotHttp {
        /// What was wrong.
        reason: String,
    },
    /// The answer covers another range than the one asked for.
    #[error("the server sent another range than asked for: {reason}")]
    WrongRange {
        /// Asked and answered.
        reason: String,
    },
    /// The range lies behind the end of the file.
    #[error("the range begins at or behind the end of the file ({})", counted(*size_bytes, "byte"))]
    BeyondEnd {
        /// The size that the server tells.
        size_bytes: u64,
    },
    /// The server has only some of the file, and not this.
    #[error("it does not have bytes {range} of the file (any more)")]
    NotHeld {
        /// What was asked for.
        range: Range,
        /// What it does not have of the whole file, as far as it has told.
        lacking: Vec<Range>,
    },
    /// What lay in a depot is gone with its lease.
    #[error("the depot's lease has ended")]
    LeaseEnded,
    /// Somebody has taken away what lay in a depot.
    #[error("what was stored there was removed from the depot's disk")]
    DepotLost,
    /// The file has another size than the one expected.
    #[error("the file there has {}, {expected} {} expected", counted(*actual, "byte"), if *expected == 1 { "was" } else { "were" })]
    SizeMismatch {
        /// Bytes expected.
        expected: u64,
        /// Bytes that this source claims.
        actual: u64,
    },
    /// The file changed at the source while it was read.
    #[error("the file changed at the source (was {was}, is {is})")]
    Changed {
        /// Validator seen first or expected.
        was: String,
        /// Validator of this answer.
        is: String,
    },
    /// No two answers of the source are of one version.
    #[error("each answer is another version of the file (one is {was}, another {is})")]
    Unsteady {
        /// Validator of one answer.
        was: String,
        /// Validator of another one.
        is: String,
    },
    /// A web page came where data was expected.
    #[error("the server sent a web page (text/html) instead of the file")]
    Html,
    /// One file of several that are read as one cannot be had.
    #[error("{file}: {error}")]
    InFile {
        /// Its address, without credentials and query.
        file: String,
        /// Its bytes in the whole.
        range: Range,
        /// What is wrong with it.
        error: Box<LaneError>,
    },
    /// The body ended early.
    #[error("the answer ended {}", ended_after(*.got, *.wanted))]
    Truncated {
        /// Body bytes that came.
        got: u64,
        /// Body bytes announced; as many as came where their number was not told.
        wanted: u64,
    },
    /// The body is compressed or otherwise transformed although we asked for it as it is.
    #[error("the server insists on sending the file encoded as {encoding}")]
    Encoded {
        /// The coding named by the server.
        encoding: String,
    },
    /// Each answer holds next to nothing of the range asked for.
    #[error("the server gives only {} of what is asked for at a time", counted(*bytes, "byte"))]
    Meagre {
        /// What the last answer held.
        bytes: u64,
    },
    /// Nothing came for as long as we are willing to wait.
    #[error("no answer within {} s", .after.as_secs_f64())]
    Timeout {
        /// How long we waited.
        after: Duration,
    },
    /// An address that is not public, and that may not be contacted.
    #[error("refused to contact {address}, which is not a public address: {}", match is_by_rule {
        true => "the owner of this machine does not permit it",
        false => "not you but another machine named it; to permit it, give an address of its network yourself",
    })]
    RefusedAddress {
        /// The address.
        address: IpAddr,
        /// Whether this machine has a list of what may be contacted for others. Otherwise something from the
        /// network named it, and the user named nothing there.
        is_by_rule: bool,
    },
    /// A document that should be small is not.
    #[error("the document is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The most that was accepted.
        limit_bytes: u64,
    },
    /// A scheme that no lane speaks.
    #[error("the scheme {scheme} is not supported")]
    Scheme {
        /// The scheme of the URL.
        scheme: String,
    },
    /// An address that only the user may name.
    #[error("{scheme}: addresses are of this machine, and used only where you name them yourself")]
    NotForOthers {
        /// The scheme of the URL.
        scheme: String,
    },
    /// A file of this machine cannot be read.
    #[error("it cannot be read: {reason}")]
    Unreadable {
        /// The kind of error.
        kind: std::io::ErrorKind,
        /// What the system said.
        reason: String,
    },
    /// A peer broke the BitTorrent protocol.
    #[error("{0}")]
    PeerFault(Box<PeerFault>),
    /// What answered is no peer of the torrent.
    #[error("{0}")]
    NoPeer(HandshakeError),
    /// A peer serves others for now.
    #[error("the peer serves others for now")]
    Choked,
    /// A peer refused a request.
    #[error("the peer refused to send bytes {range}")]
    Rejected {
        /// What was asked for.
        range: Range,
    },
    /// The connection broke.
    #[error("the connection broke: {reason}")]
    Reset {
        /// What the system said.
        reason: String,
    },
}

/// A refusal by a server, of whatever protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it means for the source.
    pub class: Class,
    /// The number of the answer in the server's protocol: for people, and for those who speak it.
    pub code: u16,
    /// The server's own words for it.
    pub said: Said,
    /// How long the server asked us to stay away.
    pub retry_after: Option<Duration>,
    /// What else is known of it.
    pub context: RefusalContext,
}

/// What is known of a refusal besides what the server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalContext {
    /// Nothing.
    None,
    /// The server served other connections of ours meanwhile: it refused one more, it seems.
    OneTooMany,
    /// It depends on credentials.
    Credentials {
        /// What the request showed.
        presented: Presented,
        /// Who answered, if a redirect led there; without credentials and query.
        redirected_to: Option<String>,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { code, said, .. } = self;
        match &self.context {
            RefusalContext::None => write!(f, "the server answered {code} {said}"),
            RefusalContext::OneTooMany => {
                write!(f, "the server answered {code} {said} while it served other connections")
            }
            RefusalContext::Credentials { presented, redirected_to } => {
                match redirected_to {
                    None => write!(f, "the server answered {code} {said}")?,
                    Some(to) => write!(f, "the redirect's target {to} answered {code} {said}")?,
                }
                // They were taken, and the server has said why all the same it does not do it.
                let has_cause = self.class == Class::Forbidden && said.why.is_some();
                match has_cause && *presented == Presented::Sent {
                    true => Ok(()),
                    false => write!(f, "; {presented}"),
                }
            }
        }
    }
}

/// What a server says with a status that carries no data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// What its status line says.
    pub phrase: String,
    /// What it says besides, to people.
    pub why: Option<String>,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            None => f.write_str(&self.phrase),
            Some(why) if self.phrase.is_empty() => f.write_str(why),
            Some(why) => write!(f, "{}: {why}", self.phrase),
        }
    }
}

/// The words of a status line alone.
impl From<String> for Said {
    fn from(phrase: String) -> Said {
        Said { phrase, why: None }
    }
}

/// The words of a status line alone.
impl From<&str> for Said {
    fn from(phrase: &str) -> Said {
        phrase.to_owned().into()
    }
}

/// Why encryption was not agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// No authority known here has signed the certificate.
    UnknownAuthority,
    /// The certificate is not the one whose fingerprint was given.
    OtherFingerprint,
    /// The certificate is not trusted for another reason: its dates, its name, its signature.
    Untrusted,
    /// The server wants a certificate of ours.
    WantsOurs,
    /// Anything else about the handshake.
    Handshake,
}

impl TlsFault {
    /// Returns whether the server's certificate is not trusted.
    pub fn is_untrusted(self) -> bool {
        matches!(self, Self::UnknownAuthority | Self::OtherFingerprint | Self::Untrusted)
    }
}

/// Which credentials a request showed that was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presented {
    /// There are none for this address.
    None,
    /// Those of the user.
    Sent,
    /// There are some, for what the user names: something else named this address.
    Unnamed,
    /// There are some, but for the address that the user named and not for this one.
    OtherHost,
    /// A token was found lying around; such a one is not sent without TLS.
    NeedsTls,
}

impl fmt::Display for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no credentials were sent, as there are none for it",
            Self::Sent => "the credentials sent are not good enough",
            Self::Unnamed => {
                "your credentials were not sent, as they are for addresses that you name yourself"
            }
            Self::OtherHost => "your credentials were not sent, as they are for another host",
            Self::NeedsTls => {
                "the bearer token was not sent: without https it has to be given by --bearer-file"
            }
        })
    }
}

/// What an error means for the source that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// May well work the next time.
    Transient,
    /// The server asks for patience of this length.
    Busy(Duration),
    /// It wants credentials, or others.
    Unauthenticated,
    /// It does not let us in, whatever credentials there are.
    Forbidden,
    /// The file is not there.
    Missing,
    /// The file was there, and is not any more.
    Gone,
    /// What the source says does not fit what was asked or agreed; not to be mixed with others.
    Lying,
    /// Cannot be had from this source by us.
    Unsupported,
}

/// Where an answer ended before its time.
fn ended_after(got: u64, wanted: u64) -> String {
    match wanted > got {
        true => format!("after {got} of {}", counted(wanted, "byte")),
        false => format!("after {}, before its end", counted(got, "byte")),
    }
}

impl LaneError {
    /// An answer by which an HTTP server refuses, with this status (RFC 9110, section 15).
    pub fn status(code: u16, said: impl Into<Said>, retry_after: Option<Duration>) -> LaneError {
        LaneError::Refused(Box::new(Refusal {
            class: class_of_status(code, retry_after),
            code,
            said: said.into(),
            retry_after,
            context: RefusalContext::None,
        }))
    }

    /// Returns the refusal, if it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::InFile { error, .. } => error.refusal(),
            _ => None,
        }
    }

    /// The number of the answer by which a server refused.
    pub fn code(&self) -> Option<u16> {
        match self.last() {
            Self::SpeaksHttps(_) => Some(plain_http::STATUS),
            error => error.refusal().map(|refusal| refusal.code),
        }
    }

    /// Returns whether a server or a relay refuses, and others' credentials may change that.
    pub(crate) fn may_mean_credentials(&self) -> bool {
        let relay_does = |fault| matches!(fault, ProxyFault::Denied | ProxyFault::NotAdmitted);
        match self.last() {
            Self::Relay { fault: Some(fault), .. } => relay_does(*fault),
            error => matches!(error.code(), Some(401 | 403)),
        }
    }

    /// Returns whether a server has answered that it has no such thing, not for us, or not by that method.
    pub fn is_no_such_thing(&self) -> bool {
        matches!(self.code(), Some(400 | 403 | 404 | 405 | 410))
    }

    /// Returns whether somebody was reached, and answered.
    pub fn is_answer(&self) -> bool {
        !matches!(self, Self::Dns { .. } | Self::Connect { .. } | Self::Timeout { .. })
    }

    /// Returns whether the request itself was refused, so that it would be refused again.
    pub fn is_refusal(&self) -> bool {
        match self.last() {
            Self::Relay { fault: Some(fault), .. } => fault.is_final(),
            Self::SpeaksHttps(_) => true,
            Self::Refused(refusal) => {
                (400..=499).contains(&refusal.code) && refusal.context != RefusalContext::OneTooMany
            }
            _ => false,
        }
    }

    /// Returns whether a relay that was reached says that nobody behind it was.
    pub fn is_behind_relay(&self) -> bool {
        use ProxyFault::{ConnectTimeout, DnsError, Refused};
        matches!(self.last(), Self::Relay { fault: Some(ConnectTimeout | DnsError | Refused), .. })
    }

    /// Returns the error itself: the last one of a host that is not waited for any more, or that of one
    /// file of several.
    pub fn last(&self) -> &LaneError {
        match self {
            Self::Down { error, .. } | Self::InFile { error, .. } => error.last(),
            error => error,
        }
    }

    /// Returns what this error means for its source.
    pub fn class(&self) -> Class {
        match self {
            Self::Dns { .. }
            | Self::Connect { .. }
            | Self::Proxy { code: None, .. }
            | Self::Protocol { .. }
            | Self::Truncated { .. }
            | Self::Timeout { .. }
            | Self::Reset { .. } => Class::Transient,
            Self::Refused(refusal) => refusal.class,
            Self::InFile { error, .. } => error.class(),
            // The way behind it may be mended; what it refuses, it refuses again.
            Self::Proxy { code: Some(code), .. } => class_of_status(*code, None),
            Self::Relay { fault: Some(ProxyFault::Limit), .. } => Class::Busy(DEFAULT_PATIENCE),
            Self::Relay { fault: Some(fault), .. } if fault.is_final() => Class::Unsupported,
            Self::Relay { .. } => Class::Transient,
            Self::WrongRange { .. }
            | Self::SizeMismatch { .. }
            | Self::BeyondEnd { .. }
            | Self::Changed { .. }
            | Self::Unsteady { .. }
            | Self::PeerFault(_)
            | Self::Html => Class::Lying,
            Self::Choked | Self::Rejected { .. } => Class::Busy(DEFAULT_PATIENCE),
            Self::NoPeer(HandshakeError::OtherTorrent(_)) => Class::Missing,
            Self::NotHeld { .. } | Self::LeaseEnded | Self::DepotLost => Class::Gone,
            Self::Unreadable { kind: std::io::ErrorKind::NotFound, .. } => Class::Missing,
            Self::Unreadable { .. } | Self::NotForOthers { .. } => Class::Unsupported,
            Self::Tls { .. }
            | Self::SpeaksHttps(_)
            | Self::NotHttp { .. }
            | Self::NoPeer(_)
            | Self::RedirectLoop { .. }
            | Self::RedirectInsecure { .. }
            | Self::RedirectInvalid { .. }
            | Self::Encoded { .. }
            | Self::Meagre { .. }
            | Self::RefusedAddress { .. }
            | Self::TooLarge { .. }
            | Self::Down { .. }
            | Self::UnsafeField { .. }
            | Self::Scheme { .. } => Class::Unsupported,
        }
    }

    pub(crate) fn protocol(reason: impl Into<String>) -> Self {
        Self::Protocol { reason: reason.into() }
    }

    pub(crate) fn reset(error: &std::io::Error) -> Self {
        Self::Reset { reason: error.to_string() }
    }
}

/// What a status without data says (RFC 9110, section 15; RFC 6585).
fn class_of_status(code: u16, retry_after: Option<Duration>) -> Class {
    match code {
        // 511 comes from a network that wants a login before it lets anything pass.
        401 | 407 | 511 => Class::Unauthenticated,
        403 => Class::Forbidden,
        404 => Class::Missing,
        410 => Class::Gone,
        // 202: what was asked for is being fetched, from a tape perhaps.
        202 | 429 | 503 => Class::Busy(retry_after.unwrap_or(DEFAULT_PATIENCE)),
        501 | 505 | 506 | 508 | 510 => Class::Unsupported,
        408 | 423 | 425 | 500..=599 => Class::Transient,
        _ => Class::Unsupported,
    }
}

/// Patience where a busy server names none: long enough to matter to the server, short enough
/// that a transfer of some minutes comes back to it.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(2);
