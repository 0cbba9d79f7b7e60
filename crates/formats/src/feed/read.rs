//! Reads feeds of both kinds.

use quick_xml::NsReader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::ResolveResult;
use url::Url;

use super::{
    ATOM_MEDIA_TYPE, Enclosure, Entry, Feed, NAMESPACE_ATOM, NAMESPACE_OWN, RSS_MEDIA_TYPE,
};
use crate::http_date;

/// Why a document cannot be read as a feed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// It is neither RSS nor Atom.
    #[error("it is no RSS or Atom feed")]
    NotFeed,
    /// The XML is broken at this byte.
    #[error("its XML is broken near byte {at}: {what}")]
    Xml {
        /// Where.
        at: u64,
        /// What the parser says.
        what: String,
    },
    /// It ends in the middle.
    #[error("it ends in the middle")]
    Truncated,
    /// It has a document type, which feeds do not need and which can be used for attacks.
    #[error("it has a document type, which is refused")]
    DocumentType,
    /// A limit.
    #[error("it has more than {0}")]
    TooLarge(&'static str),
}

/// Reads a feed. Entries without files count: they may be of interest to people.
///
/// # Errors
/// [`FeedError`].
pub fn read(document: &[u8]) -> Result<Feed, FeedError> {
    if document.len() > DOCUMENT_BYTES_MAX {
        return Err(FeedError::TooLarge("16 MiB"));
    }
    let document = String::from_utf8_lossy(document);
    let mut xml = NsReader::from_str(&document);
    xml.config_mut().expand_empty_elements = true;
    // Signed addresses are often written without escaping their '&'.
    xml.config_mut().allow_dangling_amp = true;
    let mut state = State::default();
    loop {
        let at = xml.buffer_position();
        let event = xml.read_resolved_event();
        match event.map_err(|error| FeedError::Xml { at, what: error.to_string() })? {
            (namespace, Event::Start(start)) => {
                let vocabulary = Vocabulary::of(&namespace, start.name().prefix().is_some());
                state.start(vocabulary, &start)?;
            }
            (_, Event::End(_)) => state.end()?,
            (_, Event::Text(text)) => {
                state.text.push_str(&text.xml10_content());
            }
            (_, Event::CData(text)) => {
                state.text.push_str(&text.xml10_content());
            }
            (_, Event::GeneralRef(reference)) => match reference.resolve_char_ref() {
                Ok(Some(character)) => state.text.push(character),
                _ => match resolve_predefined_entity(&reference) {
                    Some(text) => state.text.push_str(text),
                    None => state.text.push_str(&format!("&{};", &*reference)),
                },
            },
            (_, Event::DocType(_)) => return Err(FeedError::DocumentType),
            (_, Event::Eof) if !state.is_feed => return Err(FeedError::NotFeed),
            (_, Event::Eof) if !state.open.is_empty() => return Err(FeedError::Truncated),
            (_, Event::Eof) => return Ok(state.feed),
            _ => {}
        }
    }
}

/// Whose element it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vocabulary {
    /// Of RSS or Atom.
    Feed,
    /// Of swath.
    Own,
    /// Of the Dublin Core, which RSS 1.0 has its dates from.
    DublinCore,
    /// Of anything else, such as `media:title`: it says nothing of what is announced.
    Other,
}

impl Vocabulary {
    fn of(namespace: &ResolveResult<'_>, has_prefix: bool) -> Vocabulary {
        match namespace {
            ResolveResult::Bound(name) if name.0 == NAMESPACE_OWN => Vocabulary::Own,
            ResolveResult::Bound(name) if name.0 == DUBLIN_CORE => Vocabulary::DublinCore,
            ResolveResult::Bound(name) if FEED_NAMESPACES.contains(&name.0) => Vocabulary::Feed,
            // RSS has no namespace, or one that its writer thought of.
            _ if !has_prefix => Vocabulary::Feed,
            _ => Vocabulary::Other,
        }
    }
}

/// An element that is open.
struct Open {
    vocabulary: Vocabulary,
    name: String,
    /// What addresses in it count from (`xml:base`); empty: the feed's own address.
    base: String,
}

#[derive(Default)]
struct State {
    feed: Feed,
    /// The entry that is being read.
    entry: Option<Entry>,
    /// The elements around the place.
    open: Vec<Open>,
    /// The text of the innermost element.
    text: String,
    is_feed: bool,
}

impl State {
    fn start(&mut self, vocabulary: Vocabulary, start: &BytesStart<'_>) -> Result<(), FeedError> {
        let name = start.local_name().as_ref().to_owned();
        if self.open.is_empty() {
            if !matches!(&*name, "rss" | "feed" | "RDF") {
                return Err(FeedError::NotFeed);
            }
            self.is_feed = true;
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(FeedError::TooLarge("32 elements inside each other"));
        }
        let attribute = |key: &str| {
            let found = start.try_get_attribute(key).ok().flatten()?;
            let value = found.value;
            Some(quick_xml::escape::unescape(&value).unwrap_or(value.clone()).into_owned())
        };
        let base = self.open.last().map_or("", |around| &around.base);
        let base = joined(base, &attribute("xml:base").unwrap_or_default());
        let at = |href: String| joined(&base, href.trim());
        let is_known = matches!(vocabulary, Vocabulary::Feed | Vocabulary::Own);
        let known = if is_known { &*name } else { "" };
        match (known, &mut self.entry) {
            ("item" | "entry", None) => self.entry = Some(Entry::default()),
            ("enclosure", Some(entry)) => {
                if let Some(href) = attribute("url") {
                    entry.files.push(enclosure(at(href), attribute("type"), attribute("length")));
                }
            }
            ("link", Some(entry)) if attribute("rel").as_deref() == Some("enclosure") => {
                if let Some(href) = attribute("href") {
                    entry.files.push(enclosure(at(href), attribute("type"), attribute("length")));
                }
            }
            ("link", None) => {
                if let Some(href) = attribute("href").filter(|_| attribute("rel").is_none()) {
                    self.feed.link = href;
                }
            }
            ("category", Some(entry)) => {
                if let Some(term) = attribute("term").filter(|_| entry.dataset.is_empty()) {
                    entry.dataset = term;
                }
            }
            _ => {}
        }
        if self.entry.as_ref().is_some_and(|entry| entry.files.len() > FILES_MAX) {
            return Err(FeedError::TooLarge("64 files in one entry"));
        }
        self.open.push(Open { vocabulary, name, base });
        self.text.clear();
        Ok(())
    }

    fn end(&mut self) -> Result<(), FeedError> {
        let text = std::mem::take(&mut self.text).trim().to_owned();
        let Some(Open { vocabulary, name, base }) = self.open.pop() else { return Ok(()) };
        let is_own = vocabulary == Vocabulary::Own;
        let known = match (vocabulary, &*name) {
            (Vocabulary::Feed | Vocabulary::Own, name) => name,
            (Vocabulary::DublinCore, "date") => "pubDate",
            _ => return Ok(()),
        };
        match (known, &mut self.entry) {
            ("item" | "entry", Some(_)) => {
                if self.feed.entries.len() >= ENTRIES_MAX {
                    return Err(FeedError::TooLarge("100,000 entries"));
                }
                self.feed.entries.extend(self.entry.take());
            }
            ("dataset", Some(entry)) if is_own => entry.dataset = text,
            ("version", Some(entry)) if is_own => entry.version = Some(text),
            ("title", Some(entry)) => entry.title = text,
            ("guid" | "id", Some(entry)) => entry.id = text,
            ("pubDate" | "updated" | "published", Some(entry)) => {
                entry.published = http_date::parse(&text).or(entry.published);
            }
            ("category", Some(entry)) if entry.dataset.is_empty() => entry.dataset = text,
            // An item of RSS that only links to its torrent.
            ("link", Some(entry)) if is_torrent(&text) => {
                entry.files.push(enclosure(joined(&base, &text), None, None));
            }
            ("title", None) if self.open.len() <= 2 => self.feed.title = text,
            ("link", None) if !text.is_empty() && self.open.len() <= 2 => self.feed.link = text,
            _ => {}
        }
        Ok(())
    }
}

fn enclosure(href: String, media_type: Option<String>, length: Option<String>) -> Enclosure {
    let media_type = media_type.unwrap_or_default().trim().to_ascii_lowercase();
    // RSS demands a length, so many feeds write 0.
    let bytes = length.and_then(|length| length.trim().parse().ok()).filter(|&bytes| bytes > 0);
    Enclosure { href: href.trim().to_owned(), media_type, bytes }
}

/// Returns an address in an element whose addresses count from `base`, which may itself count from the
/// feed's address.
fn joined(base: &str, href: &str) -> String {
    if base.is_empty() || Url::parse(href).is_ok() {
        return href.to_owned();
    }
    match Url::parse(base) {
        Ok(base) => base.join(href).map_or_else(|_| href.to_owned(), |url| url.to_string()),
        Err(_) if href.starts_with('/') => href.to_owned(),
        Err(_) => format!("{}{href}", &base[..base.rfind('/').map_or(0, |at| at + 1)]),
    }
}

fn is_torrent(href: &str) -> bool {
    let path = href.split(['?', '#']).next().unwrap_or_default();
    path.to_ascii_lowercase().ends_with(".torrent")
        || href.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("magnet:"))
}

/// Returns whether a `Content-Type` value stands for a feed.
pub fn is_media_type(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    [RSS_MEDIA_TYPE, ATOM_MEDIA_TYPE].iter().any(|known| essence.eq_ignore_ascii_case(known))
}

const DUBLIN_CORE: &str = "http://purl.org/dc/elements/1.1/";
/// Atom, and RSS 0.9 and 1.0, which are RDF.
const FEED_NAMESPACES: [&str; 4] = [
    NAMESPACE_ATOM,
    "http://purl.org/rss/1.0/",
    "http://my.netscape.com/rdf/simple/0.9/",
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
];
/// Feeds are read at once: ten thousand versions take less.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
const ENTRIES_MAX: usize = 100_000;
const FILES_MAX: usize = 64;
const DEPTH_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeds_of_others_are_read() {
        // As trackers write them: no enclosure, an unescaped address, a date of RFC 822.
        let text = "<?xml version='1.0'?><rss version='2.0'><channel><title>T</title>\
            <link>http://t.example/</link><item><title>a &amp; b</title>\
            <link>http://t.example/get?id=1&x=2#a.torrent</link></item>\
            <item><title>c</title><link>http://t.example/c.torrent</link>\
            <pubDate>Thu, 26 Nov 2026 12:00:00 +0200</pubDate></item>\
            <item><title>m</title><link><![CDATA[magnet:?xt=urn:btih:00]]></link></item></channel></rss>";
        let feed = read(text.as_bytes()).unwrap();
        assert_eq!((&*feed.title, &*feed.link), ("T", "http://t.example/"));
        assert_eq!(feed.entries.len(), 3);
        assert_eq!(feed.entries[0].title, "a & b");
        assert!(feed.entries[0].files.is_empty(), "its path is no torrent's");
        assert_eq!(feed.entries[1].files[0].href, "http://t.example/c.torrent");
        assert_eq!(feed.entries[1].published, Some(1_795_687_200));
        assert_eq!(feed.entries[2].files[0].href, "magnet:?xt=urn:btih:00");
    }

    #[test]
    fn words_of_others_say_nothing_and_bases_count() {
        let text = "<feed xmlns='http://www.w3.org/2005/Atom' xmlns:media='urn:m' xmlns:dc='http://purl.org/dc/elements/1.1/'\
            xml:base='http://d.example/sets/'><entry xml:base='run7/'><media:group><media:title>picture</media:title>\
            </media:group><title>run7</title><media:title>other</media:title><media:link rel='enclosure' href='p.torrent'/>\
            <dc:date>2026-11-26T10:00:00Z</dc:date><link rel='enclosure' href='1.torrent'/>\
            <link rel='enclosure' href='/2.torrent'/><link rel='enclosure' href='magnet:?xt=urn:btih:00'/></entry></feed>";
        let feed = read(text.as_bytes()).unwrap();
        let entry = &feed.entries[0];
        assert_eq!((&*entry.title, entry.published), ("run7", Some(1_795_687_200)));
        let files: Vec<&str> = entry.files.iter().map(|file| &*file.href).collect();
        let there = "http://d.example/sets/run7/1.torrent";
        assert_eq!(files, [there, "http://d.example/2.torrent", "magnet:?xt=urn:btih:00"]);
        // Bases that count from the feed's own address, and a namespace that nobody else has.
        let text = "<rss xmlns='http://backend.userland.com/rss2'><channel xml:base='a/x'><item xml:base='b/'>\
            <title>t</title><enclosure url='c.torrent'/><enclosure url='/d.torrent'/></item></channel></rss>";
        let feed = read(text.as_bytes()).unwrap();
        let files: Vec<&str> = feed.entries[0].files.iter().map(|file| &*file.href).collect();
        assert_eq!((&*feed.entries[0].title, files), ("t", vec!["a/b/c.torrent", "/d.torrent"]));
    }

    #[test]
    fn what_is_no_feed_is_refused() {
        assert_eq!(read(b""), Err(FeedError::NotFeed));
        assert_eq!(read(b"<html><body/></html>"), Err(FeedError::NotFeed));
        assert_eq!(read(b"<rss><channel><item>"), Err(FeedError::Truncated));
        assert_eq!(read(b"<!DOCTYPE x []><rss/>"), Err(FeedError::DocumentType));
        let deep = "<rss>".repeat(100);
        assert!(matches!(read(deep.as_bytes()), Err(FeedError::TooLarge(_))));
        let many = format!("<rss><channel>{}", "<item></item>".repeat(ENTRIES_MAX + 1));
        assert!(matches!(read(many.as_bytes()), Err(FeedError::TooLarge(_))));
        assert!(matches!(read(&vec![b' '; DOCUMENT_BYTES_MAX + 1]), Err(FeedError::TooLarge(_))));
        assert!(matches!(read(b"<rss><a></b></rss>"), Err(FeedError::Xml { .. })));
    }
}
