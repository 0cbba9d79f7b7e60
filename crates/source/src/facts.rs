//! What a source says about the file.

use std::time::Duration;

use swath_formats::digest_header::{self, Covers};
use swath_formats::{Link, http_date, link, metalink, trim_blanks};
use swath_model::digest::Digest;
use url::Url;

use crate::error::LaneError;
use crate::http::head::Head;
use crate::shown::without_credentials;
use crate::source::Expected;

/// What an answer's head tells about the whole file.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Facts {
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// The entity tag as written, weak ones with their `W/`.
    pub etag: Option<String>,
    /// When it changed last, in the one notation of HTTP where that can be read.
    pub last_modified: Option<String>,
    /// That time is the answer's own: it was made, or written, just now.
    pub is_made_now: bool,
    /// Digests of the whole file (`Repr-Digest`, `Digest`, `Content-MD5`, `OC-Checksum`).
    pub digests: Vec<Digest>,
    /// Other places that know the file (`Link`); targets are absolute and without credentials.
    pub links: Vec<Link>,
    /// Media type as written.
    pub content_type: Option<String>,
    /// Whether ranges are honoured; where not, everything is one stream from the start.
    pub ranges: bool,
    /// Where the file really is, after redirects.
    pub final_url: Option<Url>,
    /// The server's own name.
    pub server: Option<String>,
    /// How long the server asks to be left alone.
    pub retry_after: Option<Duration>,
    /// What is odd about the answer and was borne.
    pub oddities: Vec<Oddity>,
}

/// What is wrong with an answer and does no harm, once it is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Oddity {
    /// `Content-Encoding` names something that is no coding of content.
    #[error(
        "it labels the file with Content-Encoding: {0}, which is no compression; the bytes are taken as they are"
    )]
    NoCoding(String),
    /// A line of the head is no header field.
    #[error("it sends a malformed header line, which is passed over: {0}")]
    Line(String),
    /// The bytes sent are not the stored ones that its digests are of.
    #[error(
        "it changes the stored file while it sends it, so the digest that it tells of the stored one is not used"
    )]
    Transformed,
}

impl Facts {
    /// What is needed to notice a change; the size and the ranges are left to the caller.
    pub(crate) fn brief(head: &Head, url: &Url) -> Facts {
        let text = |name: &str| head.field(name).map(str::to_owned);
        Facts {
            size_bytes: None,
            etag: text("etag"),
            last_modified: head.field("last-modified").map(http_date::normalized),
            is_made_now: is_made_now(head),
            digests: Vec::new(),
            links: Vec::new(),
            content_type: text("content-type"),
            ranges: false,
            final_url: Some(without_credentials(url)),
            server: text("server"),
            retry_after: None,
            oddities: Vec::new(),
        }
    }

    /// With all the rest that the head tells.
    pub(crate) fn complete(mut self, head: &Head) -> Facts {
        let is_encoded = codings(head).any(|coding| Coding::of(coding) == Coding::Content);
        let whole_message = head.status == 200 && !is_encoded;
        for coding in codings(head).filter(|&coding| Coding::of(coding) == Coding::Nothing) {
            self.oddities.push(Oddity::NoCoding(crate::http::head::shortened(coding)));
        }
        self.oddities.extend(head.odd_line().map(|line| Oddity::Line(line.to_owned())));
        for (name, value) in head.all() {
            if let Some((covers, digests)) = digest_header::read(name, value)
                && (covers == Covers::Representation || whole_message)
            {
                self.digests.extend(digests);
            }
        }
        if is_transformed(head) && !self.digests.is_empty() {
            self.digests.clear();
            self.oddities.push(Oddity::Transformed);
        }
        self.digests.sort();
        self.digests.dedup();
        let base = self.final_url.clone();
        for mut link in head.fields("link").flat_map(link::parse).take(LINKS_LIMIT) {
            let resolved = base
                .as_ref()
                .map_or_else(|| Url::parse(&link.target), |base| base.join(&link.target));
            if let Ok(url) = resolved {
                link.target = without_credentials(&url).into();
                self.links.push(link);
            }
        }
        self.retry_after = crate::http::answer::retry_after(head);
        self
    }

    /// Returns whether this is a Metalink although the address does not look like one.
    pub(crate) fn is_metalink_instead(&self) -> bool {
        let path = self.final_url.as_ref().map_or("", |url| url.path());
        self.content_type.as_deref().is_some_and(metalink::is_media_type)
            && !metalink::is_file_name(path)
    }

    /// Returns whether it is a web page, by its media type, of the size of nothing in particular.
    pub fn is_web_page(&self) -> bool {
        let content_type = self.content_type.as_deref().unwrap_or("").trim_start();
        let content_type = content_type.to_ascii_lowercase();
        content_type.starts_with("text/html") || content_type.starts_with("application/xhtml")
    }

    /// Returns whether something of this name may well be a web page.
    pub fn names_web_page(name: &str) -> bool {
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        ["", "html", "htm", "xhtml", "php", "asp", "jsp"]
            .contains(&&*extension.to_ascii_lowercase())
    }

    /// Whether the body can be the file as it is: not an error page, not transformed.
    pub(crate) fn check(&self, head: &Head, expected: &Expected) -> Result<(), LaneError> {
        let is_sized = expected.size_bytes.is_some();
        let fits = is_sized && expected.size_bytes == self.size_bytes;
        let name =
            self.final_url.as_ref().map_or("", |url| url.path().rsplit('/').next().unwrap_or(""));
        let extension =
            name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
        let wants_page = Self::names_web_page(name);
        if self.is_web_page() && !self.ranges && !fits && (!wants_page || is_sized) {
            return Err(LaneError::Html);
        }
        // Ranges are those of what is stored, and a digest tells whether that is what is wanted.
        let proves = expected.proved && self.ranges;
        for coding in codings(head).filter(|&coding| Coding::of(coding) == Coding::Content) {
            let own = match coding.to_ascii_lowercase().as_str() {
                // Some servers describe a compressed file that way although they send it as it is.
                "gzip" | "x-gzip" => ["gz", "tgz"].contains(&&*extension),
                "bzip2" | "x-bzip2" => ["bz2", "tbz2"].contains(&&*extension),
                "xz" | "x-xz" => ["xz", "txz"].contains(&&*extension),
                "zstd" => ["zst", "tzst"].contains(&&*extension),
                "br" => extension == "br",
                _ => false,
            };
            if !own && !fits && !proves {
                return Err(LaneError::Encoded { encoding: crate::http::head::shortened(coding) });
            }
        }
        Ok(())
    }
}

/// What a token of `Content-Encoding` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// The bytes as they are, said properly.
    Identity,
    /// The bytes as they are, by intent: `none`, a character set, a coding of the transfer.
    Nothing,
    /// A coding of content.
    Content,
}

impl Coding {
    fn of(token: &str) -> Coding {
        let token = token.to_ascii_lowercase();
        match token.as_str() {
            "" | "identity" => Coding::Identity,
            token if NO_CODINGS.contains(&token) => Coding::Nothing,
            token if NO_CODINGS_BEGIN.iter().any(|begin| token.starts_with(begin)) => {
                Coding::Nothing
            }
            // What is not known may be a coding.
            _ => Coding::Content,
        }
    }
}

/// Returns the tokens of `Content-Encoding`.
fn codings(head: &Head) -> impl Iterator<Item = &str> {
    let values = head.fields("content-encoding").flat_map(|value| value.split(','));
    values.map(|token| trim_blanks(token).trim_matches('"'))
}

/// Whether `Last-Modified` is the time of the answer.
fn is_made_now(head: &Head) -> bool {
    let time = |name| head.field(name).and_then(http_date::parse);
    let times = time("last-modified").zip(time("date"));
    times.is_some_and(|(modified_s, date_s)| modified_s.abs_diff(date_s) <= 1)
}

/// Whether the bytes are not those that are stored, so that digests of the stored ones do not count:
/// an object store unpacks what it holds packed, or something on the way has changed it (RFC 9110,
/// sections 15.3.4 and 7.7).
fn is_transformed(head: &Head) -> bool {
    let differs = |stored: &str, sent: &str| match head.field(stored) {
        None => false,
        Some(stored) => {
            let sent = head.field(sent).map(trim_blanks).unwrap_or_default();
            let plain = |value: &str| value.is_empty() || Coding::of(value) != Coding::Content;
            let stored = trim_blanks(stored);
            !(stored.eq_ignore_ascii_case(sent) || plain(stored) && plain(sent))
        }
    };
    let says_so = |value: &str| trim_blanks(value).starts_with("214");
    head.status == 203
        || head.fields("warning").flat_map(|value| value.split(',')).any(says_so)
        || differs("x-goog-stored-content-encoding", "content-encoding")
}

/// What servers write for "not encoded": in `Content-Encoding` it means nothing.
const NO_CODINGS: [&str; 22] = [
    "none",
    "null",
    "nil",
    "no",
    "false",
    "off",
    "raw",
    "plain",
    "text",
    "default",
    "unknown",
    "undefined",
    "binary",
    "bytes",
    "octet-stream",
    "chunked",
    "aws-chunked",
    "base",
    "unicode",
    "ascii",
    "ansi",
    "latin1",
];
/// Character sets, media types and transfer encodings of mail, which are no codings of content
/// either. `base64` is not among them: such bytes really are encoded.
const NO_CODINGS_BEGIN: [&str; 14] = [
    "utf",
    "us-ascii",
    "iso-",
    "iso8859",
    "windows-",
    "cp1",
    "koi8",
    "gb2312",
    "gbk",
    "shift",
    "euc-",
    "7bit",
    "8bit",
    "application/octet",
];
/// More links than this in one answer are of no use.
const LINKS_LIMIT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &str) -> Head {
        let text = format!("HTTP/1.1 206 OK\r\n{}\r\n\r\n", fields.replace('\n', "\r\n"));
        Head::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn facts(fields: &str, path: &str) -> (Facts, Head) {
        let head = head(fields);
        let url = Url::parse(&format!("http://a/{path}")).unwrap();
        let facts = Facts { ranges: true, ..Facts::brief(&head, &url) };
        (facts.complete(&head), head)
    }

    /// Seen in the field: WeTransfer (`none`), NocoDB (`utf-8`), gateways before S3 (`aws-chunked`).
    #[test]
    fn what_names_no_coding_changes_nothing_and_is_said() {
        for token in ["none", "None", "binary", "utf-8", "UTF8", "aws-chunked", "8bit", "\"none\""]
        {
            let (facts, head) = facts(&format!("Content-Encoding: {token}"), "f.bin");
            assert_eq!(facts.check(&head, &Expected::default()), Ok(()), "{token}");
            assert!(matches!(facts.oddities[..], [Oddity::NoCoding(_)]), "{token}");
        }
        for token in ["gzip", "br", "aws-chunked,gzip", "base64", "something-new"] {
            let (facts, head) = facts(&format!("Content-Encoding: {token}"), "f.bin");
            let refused = |expected: &Expected| facts.check(&head, expected).is_err();
            assert!(refused(&Expected::default()), "{token}");
            // What is stored packed comes packed, and the digest is of that.
            assert!(!refused(&Expected { proved: true, ..Expected::default() }), "{token}");
        }
        let (facts, _) = facts("Content-Encoding: identity", "f.bin");
        assert!(facts.oddities.is_empty());
    }

    /// Google's object store unpacks what is stored packed for whoever does not ask for gzip, and
    /// sends the digests of the packed file with it.
    #[test]
    fn digests_of_what_is_stored_do_not_prove_what_is_sent() {
        let told = "X-Goog-Hash: crc32c=n03x6A==";
        let counts = |more: &str| !facts(&format!("{told}{more}"), "f").0.digests.is_empty();
        assert!(counts(""));
        assert!(counts("\nX-Goog-Stored-Content-Encoding: identity"));
        assert!(counts("\nX-Goog-Stored-Content-Encoding: gzip\nContent-Encoding: gzip"));
        assert!(!counts("\nX-Goog-Stored-Content-Encoding: gzip"));
        assert!(!counts("\nWarning: 214 UploadServer gunzipped"));
    }

    #[test]
    fn times_are_compared_as_times() {
        let of = |time: &str| facts(&format!("Last-Modified: {time}"), "f").0.last_modified;
        assert_eq!(of("Tue, 01 Jul 2025 10:00:00 GMT"), of("Tuesday, 01-Jul-25 10:00:00 GMT"));
        let made = |date: &str| {
            facts(&format!("Last-Modified: Tue, 01 Jul 2025 10:00:00 GMT\nDate: {date}"), "f").0
        };
        assert!(made("Tue, 01 Jul 2025 10:00:01 GMT").is_made_now);
        assert!(!made("Tue, 01 Jul 2025 10:00:02 GMT").is_made_now);
    }
}
