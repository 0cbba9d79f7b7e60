//! What a source says about the file.

use std::time::Duration;

use swath_formats::digest_header::{self, Covers};
use swath_formats::{Link, link, metalink};
use swath_model::digest::Digest;
use url::Url;

use crate::error::LaneError;
use crate::http::head::Head;
use crate::source::without_credentials;

/// What an answer's head tells about the whole file.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Facts {
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// The entity tag as written, weak ones with their `W/`.
    pub etag: Option<String>,
    /// When it changed last, as written.
    pub last_modified: Option<String>,
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
}

impl Facts {
    /// What is needed to notice a change; the size and the ranges are left to the caller.
    pub(crate) fn brief(head: &Head, url: &Url) -> Facts {
        let text = |name: &str| head.field(name).map(str::to_owned);
        Facts {
            size_bytes: None,
            etag: text("etag"),
            last_modified: text("last-modified"),
            digests: Vec::new(),
            links: Vec::new(),
            content_type: text("content-type"),
            ranges: false,
            final_url: Some(without_credentials(url)),
            server: text("server"),
            retry_after: None,
        }
    }

    /// With all the rest that the head tells.
    pub(crate) fn complete(mut self, head: &Head) -> Facts {
        let whole_message = head.status == 200 && head.field("content-encoding").is_none();
        for (name, value) in head.all() {
            if let Some((covers, digests)) = digest_header::read(name, value)
                && (covers == Covers::Representation || whole_message)
            {
                self.digests.extend(digests);
            }
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

    /// Whether this is a Metalink although the address does not look like one.
    pub(crate) fn is_metalink_instead(&self) -> bool {
        let path = self.final_url.as_ref().map_or("", |url| url.path());
        self.content_type.as_deref().is_some_and(metalink::is_media_type)
            && !metalink::is_file_name(path)
    }

    /// Whether it is a web page, by its media type, of the size of nothing in particular.
    pub fn is_web_page(&self) -> bool {
        let content_type = self.content_type.as_deref().unwrap_or("").trim_start();
        let content_type = content_type.to_ascii_lowercase();
        content_type.starts_with("text/html") || content_type.starts_with("application/xhtml")
    }

    /// Whether something of this name may well be a web page.
    pub fn names_web_page(name: &str) -> bool {
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        ["", "html", "htm", "xhtml", "php", "asp", "jsp"]
            .contains(&&*extension.to_ascii_lowercase())
    }

    /// Whether the body can be the file as it is: not an error page, not transformed.
    pub(crate) fn check(&self, head: &Head, expected_bytes: Option<u64>) -> Result<(), LaneError> {
        let fits = expected_bytes.is_some() && expected_bytes == self.size_bytes;
        let name =
            self.final_url.as_ref().map_or("", |url| url.path().rsplit('/').next().unwrap_or(""));
        let extension =
            name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
        let wants_page = Self::names_web_page(name);
        if self.is_web_page() && !self.ranges && !fits && (!wants_page || expected_bytes.is_some())
        {
            return Err(LaneError::Html);
        }
        for coding in
            head.fields("content-encoding").flat_map(|value| value.split(',')).map(str::trim)
        {
            let own = match coding.to_ascii_lowercase().as_str() {
                "identity" | "" => true,
                // Some servers describe a compressed file that way although they send it as it is.
                "gzip" | "x-gzip" => ["gz", "tgz"].contains(&&*extension),
                "bzip2" | "x-bzip2" => ["bz2", "tbz2"].contains(&&*extension),
                "xz" | "x-xz" => ["xz", "txz"].contains(&&*extension),
                "zstd" => extension == "zst",
                "br" => extension == "br",
                _ => false,
            };
            if !own && !fits {
                return Err(LaneError::Encoded { encoding: crate::http::head::shortened(coding) });
            }
        }
        Ok(())
    }
}

/// More links than this in one answer are of no use.
const LINKS_LIMIT: usize = 256;
