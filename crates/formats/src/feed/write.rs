//! Writes feeds.

use std::fmt::Write as _;

use quick_xml::escape::escape;

use super::{Entry, Feed, NAMESPACE_ATOM, NAMESPACE_OWN};
use crate::http_date;

/// Returns the feed as RSS 2.0. RSS allows one enclosure an item; further files follow in swath's
/// namespace.
pub fn rss(feed: &Feed) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(out, "<rss version=\"2.0\" xmlns:swath=\"{NAMESPACE_OWN}\">\n<channel>");
    element(&mut out, "title", &feed.title);
    element(&mut out, "link", &feed.link);
    element(&mut out, "description", &format!("Datasets of {}", feed.title));
    for entry in &feed.entries {
        out.push_str("<item>\n");
        element(&mut out, "title", &entry.title);
        let _ = writeln!(out, "<guid isPermaLink=\"false\">{}</guid>", escape(&*entry.id));
        if let Some(published) = entry.published {
            element(&mut out, "pubDate", &http_date::write(published));
        }
        element(&mut out, "category", &entry.dataset);
        own(&mut out, entry);
        for (number, file) in entry.files.iter().enumerate() {
            let name = if number == 0 { "enclosure" } else { "swath:enclosure" };
            let (href, kind) = (escape(&*file.href), escape(&*file.media_type));
            let length = file.bytes.unwrap_or(0);
            let _ = writeln!(out, "<{name} url=\"{href}\" length=\"{length}\" type=\"{kind}\"/>");
        }
        out.push_str("</item>\n");
    }
    out.push_str("</channel>\n</rss>\n");
    out
}

/// Returns the feed as Atom.
pub fn atom(feed: &Feed) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(out, "<feed xmlns=\"{NAMESPACE_ATOM}\" xmlns:swath=\"{NAMESPACE_OWN}\">");
    element(&mut out, "title", &feed.title);
    let id = feed.entries.last().map_or(&feed.title, |first| &first.id);
    element(&mut out, "id", &format!("urn:x-swath:feed:{}", crate::percent::encode(id.as_bytes())));
    let newest = feed.entries.iter().filter_map(|entry| entry.published).max().unwrap_or(0);
    element(&mut out, "updated", &rfc3339(newest));
    let _ = writeln!(out, "<author><name>{}</name></author>", escape(&*feed.title));
    if !feed.link.is_empty() {
        let _ = writeln!(out, "<link href=\"{}\"/>", escape(&*feed.link));
    }
    for entry in &feed.entries {
        out.push_str("<entry>\n");
        element(&mut out, "title", &entry.title);
        element(&mut out, "id", &entry.id);
        element(&mut out, "updated", &rfc3339(entry.published.unwrap_or(0)));
        let _ = writeln!(out, "<category term=\"{}\"/>", escape(&*entry.dataset));
        own(&mut out, entry);
        for file in &entry.files {
            let (href, kind) = (escape(&*file.href), escape(&*file.media_type));
            let _ = write!(out, "<link rel=\"enclosure\" href=\"{href}\" type=\"{kind}\"");
            if let Some(bytes) = file.bytes {
                let _ = write!(out, " length=\"{bytes}\"");
            }
            out.push_str("/>\n");
        }
        out.push_str("</entry>\n");
    }
    out.push_str("</feed>\n");
    out
}

fn element(out: &mut String, name: &str, text: &str) {
    let _ = writeln!(out, "<{name}>{}</{name}>", escape(text));
}

fn own(out: &mut String, entry: &Entry) {
    element(out, "swath:dataset", &entry.dataset);
    if let Some(version) = &entry.version {
        element(out, "swath:version", version);
    }
}

/// Returns a time as `2026-11-26T12:00:00Z` (RFC 3339).
fn rfc3339(seconds: u64) -> String {
    let plain = i64::try_from(seconds).ok().and_then(http_date::write_plain);
    plain.map_or_else(|| "1970-01-01T00:00:00Z".to_owned(), |time| time.replace(' ', "T") + "Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::read;
    use crate::feed::{Enclosure, TORRENT_MEDIA_TYPE};
    use proptest::prelude::*;

    fn example() -> Feed {
        let file = |href: &str, media_type: &str| Enclosure {
            href: href.to_owned(),
            media_type: media_type.to_owned(),
            bytes: Some(77),
        };
        let entry = |version: &str, published| Entry {
            id: format!("urn:btmh:{version}"),
            title: format!("run <7> & more {version}"),
            dataset: "run <7>".to_owned(),
            version: Some(version.to_owned()),
            published: Some(published),
            files: vec![
                file("https://a.example/run7-2.torrent?a=1&b=2", TORRENT_MEDIA_TYPE),
                file("run7-2.meta4", crate::metalink::MEDIA_TYPE),
            ],
        };
        Feed {
            title: "A \"lab\"".to_owned(),
            link: "https://a.example/".to_owned(),
            entries: vec![entry("2", 1_764_158_400), entry("1", 951_782_399)],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let feed = example();
        assert_eq!(read(rss(&feed).as_bytes()).unwrap(), feed);
        assert_eq!(read(atom(&feed).as_bytes()).unwrap(), feed);
    }

    proptest! {
        #[test]
        fn times_of_both_forms_are_read_back(seconds in 86_400u64..4_000_000_000) {
            prop_assert_eq!(http_date::parse(&rfc3339(seconds)), Some(seconds));
        }
    }
}
