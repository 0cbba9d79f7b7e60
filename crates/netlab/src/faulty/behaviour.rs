//! What can be wrong with a server, as data.
//!
//! A [`Behaviour`] is one fault or one habit. A [`Rule`] is a behaviour with the requests it
//! applies to ([`When`]); plain behaviours convert into rules that always apply. Rules sit on
//! the server or on one path and are read in order, the server's before the path's; where two
//! set the same thing, the later one wins, except that corruptions, headers and refused methods
//! add up. A server without rules is a correct, ordinary file server.

use std::time::Duration;

use super::content::{Algorithm, Content};

/// One fault or habit of a server.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Body bytes leave at most this fast, shared by all connections of the server (or of the
    /// path that the rule sits on).
    Rate {
        /// Bytes per second; 0 is no limit.
        bytes_per_s: u64,
    },
    /// Body bytes leave at most this fast on each connection.
    ConnectionRate {
        /// Bytes per second; 0 is no limit.
        bytes_per_s: u64,
    },
    /// The answer starts this long after its request arrived. Requests that wait in a pipeline
    /// wait at the same time, as they would across a long route.
    FirstByteDelay(Duration),
    /// Sends nothing for a while, once, when this many body bytes have left.
    Stall {
        /// Body bytes before the pause.
        after_bytes: u64,
        /// How long the pause lasts.
        lasts: Duration,
        /// Whose bytes are counted, and who pauses.
        scope: Scope,
    },
    /// Sends nothing more, on any connection and in the middle of bodies too, but keeps every
    /// connection and accepts new ones. Ends when the rule is taken away.
    Silent {
        /// Counted from when the rule was set.
        after: Duration,
    },
    /// The head leaves byte by byte.
    SlowHead {
        /// The wait before each byte.
        byte_every: Duration,
    },

    /// Closes the connection (with FIN) after this many bytes of each body.
    Truncate {
        /// Body bytes that still arrive.
        after_bytes: u64,
    },
    /// `Content-Length` is wrong by this much, and the body is as it should be.
    LengthLie {
        /// Added to the true length.
        by: i64,
    },
    /// One byte of the file arrives with its lowest bit flipped. Rules of this kind add up.
    CorruptByte {
        /// The offset in the file.
        at: u64,
    },
    /// The first byte of every n-th block arrives with its lowest bit flipped.
    CorruptBlocks {
        /// The size of a block.
        block_bytes: u64,
        /// Every how many blocks; block `every - 1` is the first bad one.
        every: u64,
    },
    /// The file is overwritten in place, with a new validator, once this many body bytes of the
    /// path have left: a body on its way continues with the new bytes.
    ChangeAfter {
        /// Body bytes of the path before the change.
        bytes: u64,
        /// What the file becomes.
        content: Content,
    },
    /// The connection ends after this many body bytes on it.
    Drop {
        /// Body bytes of the connection; 0 drops after the head.
        after_bytes: u64,
        /// With a TCP reset instead of FIN.
        reset: bool,
    },
    /// The connection ends where an answer should begin.
    Unanswered {
        /// With a TCP reset instead of FIN.
        reset: bool,
    },
    /// The whole server goes away: listener and connections closed, new connections refused.
    Die {
        /// When.
        at: Death,
        /// It listens on the same port again after this long.
        back_after: Option<Duration>,
    },

    /// Answers with a redirect.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// The `Location`, absolute or relative.
        to: String,
    },
    /// Redirects each path to itself with another query, without end.
    RedirectLoop {
        /// 301, 302, 303, 307 or 308.
        status: u16,
    },
    /// Ignores `Range`: always 200 with the whole file, and no `Accept-Ranges`.
    NoRanges,
    /// A wrong `Content-Range`, or wrong bytes under a right one.
    ContentRange(RangeLie),
    /// `Transfer-Encoding: chunked` and no `Content-Length`.
    Chunked {
        /// The size of a chunk.
        chunk_bytes: usize,
    },
    /// No `Content-Length`: the end of the connection is the end of the body.
    CloseDelimited,
    /// Answers with this status and a short page.
    Status {
        /// Any status; 416 carries `Content-Range: bytes */size`.
        code: u16,
        /// The value of `Retry-After`, in seconds.
        retry_after_s: Option<u64>,
    },
    /// 401 unless the `Authorization` header has exactly this value.
    RequireAuthorization(String),
    /// 405 to this method, as servers that know no `HEAD` do. Rules of this kind add up.
    RefuseMethod(String),
    /// An HTML error page with status 200, to any request.
    HtmlPage,
    /// `Content-Encoding: gzip` although nobody asked; ranges are ignored meanwhile. Files up
    /// to 64 MiB really become a gzip stream, larger ones only carry the label.
    Gzip,
    /// `Connection: close` after each answer.
    Close,
    /// Announces and keeps Apache's limits of a kept connection.
    KeepAlive {
        /// The connection closes after this many requests.
        max_requests: u64,
        /// The connection closes when idle this long.
        timeout: Duration,
    },
    /// What goes wrong when a request arrives before the answer to the one ahead has left.
    Pipelining(Pipelining),
    /// One more header. Rules of this kind add up.
    Header {
        /// The name.
        name: String,
        /// The value.
        value: String,
    },
    /// A digest of the whole file in a header. Computed when first needed: for a huge file call
    /// [`Content::digest`] beforehand.
    DigestHeader {
        /// Which header.
        field: DigestField,
        /// Which digest.
        algorithm: Algorithm,
        /// False for a digest that is wrong in its first byte.
        right: bool,
    },
    /// This entity tag (quotes and `W/` included) in place of the one made from the content.
    Etag(String),
    /// Validators that are new in each answer.
    PerAnswer(Fresh),
    /// This `Last-Modified`, as it is.
    Modified(String),
    /// Neither `ETag` nor `Last-Modified`.
    NoValidators,
    /// Headers of this many bytes in all are added to the answer.
    GiantHead {
        /// Bytes of junk.
        bytes: usize,
    },
    /// Parts come with the status 200.
    PartsWith200,
    /// This line among the header lines, as it is. Lines of this kind add up.
    HeaderLine(String),
    /// Every line of a head ends with a lone line feed.
    LoneLineFeeds,
    /// This text in place of the status line.
    GarbageStatus(String),
    /// Answers as HTTP/1.0, and closes after each.
    Http10,
    /// `100 Continue` and `103 Early Hints` before each answer, though not asked for.
    Junk100,
    /// Requests that accept `application/metalink4+xml` get this document instead of the file.
    Metalink(String),
    /// `PROPFIND` gets this document with the status 207, whatever other methods get.
    Properties(String),
}

impl Behaviour {
    /// Returns a status without `Retry-After`.
    pub fn status(code: u16) -> Self {
        Behaviour::Status { code, retry_after_s: None }
    }

    /// Returns a busy server (429 or 503) that says when to come back.
    pub fn busy(code: u16, retry_after_s: u64) -> Self {
        Behaviour::Status { code, retry_after_s: Some(retry_after_s) }
    }

    /// Returns a rate shared by all connections.
    pub fn rate(bytes_per_s: u64) -> Self {
        Behaviour::Rate { bytes_per_s }
    }

    /// One more header.
    pub fn header(name: impl Into<String>, value: impl Into<String>) -> Self {
        Behaviour::Header { name: name.into(), value: value.into() }
    }

    /// Returns a redirect with status 302.
    pub fn redirect(to: impl Into<String>) -> Self {
        Behaviour::Redirect { status: 302, to: to.into() }
    }

    /// The server dies for good after this many body bytes.
    pub fn die_after(bytes: u64) -> Self {
        Behaviour::Die { at: Death::Bytes(bytes), back_after: None }
    }

    /// This behaviour on some requests only.
    pub fn when(self, when: When) -> Rule {
        Rule { behaviour: self, when }
    }

    /// This behaviour on the first `count` requests only.
    pub fn first(self, count: u64) -> Rule {
        self.when(When::First(count))
    }

    /// This behaviour on every request after the first `count`.
    pub fn after(self, count: u64) -> Rule {
        self.when(When::After(count))
    }
}

/// A behaviour and the requests that it applies to.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What.
    pub behaviour: Behaviour,
    /// On which requests.
    pub when: When,
}

impl From<Behaviour> for Rule {
    fn from(behaviour: Behaviour) -> Self {
        Rule { behaviour, when: When::Always }
    }
}

/// Requests that a rule applies to. Requests are counted per rule, from when it was set, among
/// those that reach its server or path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Every request.
    Always,
    /// The first so many.
    First(u64),
    /// Those after the first so many.
    After(u64),
    /// The n-th, the 2n-th and so on.
    EveryNth(u64),
    /// Those with this method.
    Method(String),
    /// Those with a `Range` header.
    Ranged,
    /// Those on the connection with this number; the server's first is 0.
    Connection(u64),
}

/// Whose bytes a stall counts, and who pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each connection by itself.
    Connection,
    /// The whole server.
    Server,
}

/// When a server dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// When it has sent this many body bytes, counted from its start.
    Bytes(u64),
    /// This long after the rule was set.
    Time(Duration),
}

/// How `Content-Range` is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeLie {
    /// The header names a range moved by this much; the bytes are the ones asked for.
    Header(i64),
    /// Header and bytes are those of a range moved by this much.
    Both(i64),
    /// The header is right; the bytes are those of a range moved by this much.
    Bytes(i64),
    /// The total is wrong by this much.
    Total(i64),
    /// The total is `*`, which RFC 9110 allows.
    UnknownTotal,
    /// 206 without the header.
    Missing,
    /// A header that is no range.
    Garbage,
    /// The total is the end of the range, as if the file ended with it.
    OwnEnd,
    /// Always the first so many bytes, whatever is asked for, and said so.
    AlwaysFirst(u64),
}

/// Which validators are new in each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fresh {
    /// The entity tag, as behind balancers that make their own.
    Etag,
    /// The time, without a tag: a file that is made for each answer.
    Modified,
    /// Both.
    Both,
}

/// How a server fails a pipelining client. Each is a habit of real servers and proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipelining {
    /// Forgets what arrived while it was answering.
    Lose,
    /// Closes after the answer, with what else arrived unread.
    Close,
    /// Resets after the answer.
    Reset,
}

/// A header that carries a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestField {
    /// RFC 3230, as XRootD and dCache speak it.
    Digest,
    /// RFC 9530, of the whole representation.
    ReprDigest,
    /// `Content-MD5`, whatever the algorithm is said to be.
    ContentMd5,
    /// ownCloud's `OC-Checksum`.
    OcChecksum,
}

/// Every rule of one request, folded. What the rest of the server reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub server_rate_bytes_per_s: u64,
    pub route_rate_bytes_per_s: u64,
    pub connection_rate_bytes_per_s: u64,
    pub first_byte_delay: Duration,
    /// Rule number, bytes, duration, scope.
    pub stalls: Vec<(u64, u64, Duration, Scope)>,
    pub silent: bool,
    pub slow_head: Option<Duration>,
    pub truncate_after: Option<u64>,
    pub length_lie: i64,
    pub corrupt_bytes: Vec<u64>,
    pub corrupt_blocks: Option<(u64, u64)>,
    /// Rule number, bytes, content.
    pub change: Option<(u64, u64, Content)>,
    pub drop: Option<(u64, bool)>,
    pub unanswered: Option<bool>,
    /// Rule number, bytes, pause.
    pub die: Option<(u64, u64, Option<Duration>)>,
    pub redirect: Option<(u16, String)>,
    pub redirect_loop: Option<u16>,
    pub no_ranges: bool,
    pub range_lie: Option<RangeLie>,
    pub chunk_bytes: Option<usize>,
    pub close_delimited: bool,
    pub status: Option<(u16, Option<u64>)>,
    pub authorization: Option<String>,
    pub refused_methods: Vec<String>,
    pub html_page: bool,
    pub gzip: bool,
    pub close: bool,
    pub keep_alive: Option<(u64, Duration)>,
    pub pipelining: Option<Pipelining>,
    pub headers: Vec<(String, String)>,
    pub digests: Vec<(DigestField, Algorithm, bool)>,
    pub etag: Option<String>,
    pub fresh: Option<Fresh>,
    pub modified: Option<String>,
    pub no_validators: bool,
    pub parts_with_200: bool,
    pub header_lines: Vec<String>,
    pub lone_line_feeds: bool,
    pub giant_head_bytes: usize,
    pub garbage_status: Option<String>,
    pub http10: bool,
    pub junk_100: bool,
    pub metalink: Option<String>,
    pub properties: Option<String>,
}

impl Faults {
    /// Adds one rule. `age` is the time since it was set.
    pub(super) fn add(&mut self, number: u64, on_route: bool, age: Duration, what: &Behaviour) {
        match what.clone() {
            Behaviour::Rate { bytes_per_s } if on_route => {
                self.route_rate_bytes_per_s = bytes_per_s
            }
            Behaviour::Rate { bytes_per_s } => self.server_rate_bytes_per_s = bytes_per_s,
            Behaviour::ConnectionRate { bytes_per_s } => {
                self.connection_rate_bytes_per_s = bytes_per_s;
            }
            Behaviour::FirstByteDelay(delay) => self.first_byte_delay = delay,
            Behaviour::Stall { after_bytes, lasts, scope } => {
                self.stalls.push((number, after_bytes, lasts, scope));
            }
            Behaviour::Silent { after } => self.silent |= age >= after,
            Behaviour::SlowHead { byte_every } => self.slow_head = Some(byte_every),
            Behaviour::Truncate { after_bytes } => self.truncate_after = Some(after_bytes),
            Behaviour::LengthLie { by } => self.length_lie = by,
            Behaviour::CorruptByte { at } => self.corrupt_bytes.push(at),
            Behaviour::CorruptBlocks { block_bytes, every } => {
                self.corrupt_blocks = Some((block_bytes.max(1), every.max(1)));
            }
            Behaviour::ChangeAfter { bytes, content } => {
                self.change = Some((number, bytes, content));
            }
            Behaviour::Drop { after_bytes, reset } => self.drop = Some((after_bytes, reset)),
            Behaviour::Unanswered { reset } => self.unanswered = Some(reset),
            Behaviour::Die { at: Death::Bytes(bytes), back_after } => {
                self.die = Some((number, bytes, back_after));
            }
            // The server's main loop watches the clock.
            Behaviour::Die { at: Death::Time(_), .. } => {}
            Behaviour::Redirect { status, to } => self.redirect = Some((status, to)),
            Behaviour::RedirectLoop { status } => self.redirect_loop = Some(status),
            Behaviour::NoRanges => self.no_ranges = true,
            Behaviour::ContentRange(lie) => self.range_lie = Some(lie),
            Behaviour::Chunked { chunk_bytes } => self.chunk_bytes = Some(chunk_bytes.max(1)),
            Behaviour::CloseDelimited => self.close_delimited = true,
            Behaviour::Status { code, retry_after_s } => self.status = Some((code, retry_after_s)),
            Behaviour::RequireAuthorization(value) => self.authorization = Some(value),
            Behaviour::RefuseMethod(method) => self.refused_methods.push(method),
            Behaviour::HtmlPage => self.html_page = true,
            Behaviour::Gzip => self.gzip = true,
            Behaviour::Close => self.close = true,
            Behaviour::KeepAlive { max_requests, timeout } => {
                self.keep_alive = Some((max_requests, timeout));
            }
            Behaviour::Pipelining(how) => self.pipelining = Some(how),
            Behaviour::Header { name, value } => self.headers.push((name, value)),
            Behaviour::DigestHeader { field, algorithm, right } => {
                self.digests.push((field, algorithm, right));
            }
            Behaviour::Etag(tag) => self.etag = Some(tag),
            Behaviour::PerAnswer(fresh) => self.fresh = Some(fresh),
            Behaviour::Modified(time) => self.modified = Some(time),
            Behaviour::PartsWith200 => self.parts_with_200 = true,
            Behaviour::HeaderLine(line) => self.header_lines.push(line),
            Behaviour::LoneLineFeeds => self.lone_line_feeds = true,
            Behaviour::NoValidators => self.no_validators = true,
            Behaviour::GiantHead { bytes } => self.giant_head_bytes = bytes,
            Behaviour::GarbageStatus(line) => self.garbage_status = Some(line),
            Behaviour::Http10 => self.http10 = true,
            Behaviour::Junk100 => self.junk_100 = true,
            Behaviour::Metalink(document) => self.metalink = Some(document),
            Behaviour::Properties(document) => self.properties = Some(document),
        }
    }
}
