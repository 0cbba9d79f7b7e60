//! The content of a web server's folder: the links of a page (as nginx, Apache, Caddy, lighttpd,
//! Python and others list folders), the XML in which object stores list a bucket, or a WebDAV server's
//! answer to `PROPFIND`.
//!
//! Only entries below the folder count: not links up, aside, to another server, or with a query
//! (which sort pages).

use std::collections::HashSet;

use html5gum::{DefaultEmitter, Token, Tokenizer};
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;
use swath_model::path::{PathError, SafePath};
use url::Url;

use crate::percent;

/// The content of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Files and folders, without duplicates, in the order of the page.
    pub entries: Vec<Entry>,
    /// Entries with an unusable name: the name for display, and why.
    pub refused: Vec<(String, Refusal)>,
    /// The address of the next part of the list.
    pub next: Option<Url>,
    /// Whether there are more entries than the limit.
    pub is_cut: bool,
}

/// Why an entry's name cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It would be in another folder.
    #[error("it contains an escaped '/'")]
    Slash,
    /// It is not text.
    #[error("its name is not text")]
    NotText,
    /// It could do harm.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// A file or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path below the folder as written in an address, without `/` at its end.
    pub address: String,
    /// Its path below the folder.
    pub path: SafePath,
    /// Whether it has a listing of its own.
    pub is_folder: bool,
    /// Its size, if the list gives it to the byte.
    pub size_bytes: Option<u64>,
}

impl Listing {
    /// Reads the links of a page at `folder`, whose path ends in `/`.
    pub fn of_page(page: &[u8], folder: &Url) -> Listing {
        let mut building = Building::default();
        let mut base = folder.clone();
        let mut emitter = DefaultEmitter::<()>::default();
        // Links in scripts do not count.
        emitter.naively_switch_states(true);
        for Ok(token) in Tokenizer::new_with_emitter(page, emitter) {
            let Token::StartTag(tag) = token else { continue };
            let of = |name: &[u8]| {
                let found = tag.attributes.iter().find(|(own, _)| own.as_slice() == name);
                found.map(|(_, value)| String::from_utf8_lossy(value))
            };
            let Some(href) = of(b"href") else { continue };
            match tag.name.as_slice() {
                b"base" => base = base.join(href.trim()).unwrap_or(base),
                b"a" => {
                    let Ok(url) = base.join(href.trim()) else { continue };
                    if let Some((raw, is_folder)) = below(&url, folder) {
                        building.add(raw, is_folder);
                    }
                }
                _ => {}
            }
        }
        building.listing
    }

    /// Reads an object store's answer to `asked`: keys that begin with `prefix`, all of them files.
    /// `None` if it is not such a list.
    pub fn of_bucket(list: &[u8], asked: &Url, prefix: &str) -> Option<Listing> {
        let mut building = Building::default();
        let (mut key, mut size) = (None, None);
        let (mut is_truncated, mut token, mut marker, mut last) = (false, None, None, None);
        elements(list, "ListBucketResult", |within, name, text| match (within, name) {
            ("Contents", "Key") => key = Some(text.to_owned()),
            ("Contents", "Size") => size = text.trim().parse().ok(),
            ("ListBucketResult", "Contents") => {
                if let Some(key) = key.take() {
                    building.add_key(prefix, &key, size.take());
                    last = Some(key);
                }
            }
            ("ListBucketResult", "IsTruncated") => is_truncated = text.trim() == "true",
            ("ListBucketResult", "NextContinuationToken") => token = Some(text.to_owned()),
            ("ListBucketResult", "NextMarker") => marker = Some(text.to_owned()),
            _ => {}
        })?;
        let mut listing = building.listing;
        if is_truncated {
            let second =
                asked.query_pairs().any(|(name, value)| name == "list-type" && value == "2");
            let next = match (token, marker.or(last)) {
                (Some(token), _) => Some(("continuation-token", token)),
                (None, Some(last)) if second => Some(("start-after", last)),
                (None, last) => last.map(|last| ("marker", last)),
            };
            listing.is_cut |= next.is_none();
            listing.next = next.map(|(name, value)| with(asked, name, &value));
        }
        Some(listing)
    }
}

impl Listing {
    /// Reads a WebDAV server's answer to `PROPFIND` with depth 1 for `folder`, whose path ends in `/`
    /// (RFC 4918, section 14.16). `None` if it is not such an answer.
    pub fn of_multistatus(answer: &[u8], folder: &Url) -> Option<Listing> {
        let mut building = Building::default();
        let (mut href, mut size_bytes, mut is_folder) = (None, None, false);
        elements(answer, "multistatus", |within, name, text| match (within, name) {
            ("response", "href") => href = Some(text.trim().to_owned()),
            ("prop", "getcontentlength") => size_bytes = text.trim().parse().ok(),
            ("resourcetype", "collection") => is_folder = true,
            ("multistatus", "response") => {
                let is_folder = std::mem::take(&mut is_folder);
                let size_bytes = size_bytes.take().filter(|_| !is_folder);
                if let Some(href) = href.take() {
                    building.add_href(&href, folder, is_folder, size_bytes);
                }
            }
            _ => {}
        })?;
        Some(building.listing)
    }
}

/// Reads a WebDAV server's answer to `PROPFIND` with depth 0: whether a folder is there. `None` if it is not
/// such an answer.
pub fn is_folder(answer: &[u8]) -> Option<bool> {
    let mut is_folder = false;
    elements(answer, "multistatus", |within, name, _| {
        is_folder |= (within, name) == ("resourcetype", "collection");
    })?;
    Some(is_folder)
}

/// Reads an XML document with this top element. `take` gets each element at its end: the name of the element
/// around it, its own name (both without namespaces), and the text before its end. `None` if it is not such a
/// document, or is nested deeper than any list.
fn elements(document: &[u8], top: &str, mut take: impl FnMut(&str, &str, &str)) -> Option<()> {
    let mut xml = quick_xml::Reader::from_reader(document);
    xml.config_mut().expand_empty_elements = true;
    let mut buffer = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut text = String::new();
    loop {
        buffer.clear();
        match xml.read_event_into(&mut buffer).ok()? {
            Event::Start(start) => {
                let name = start.local_name().as_ref().to_owned();
                if open.len() >= DEPTH_MAX || open.is_empty() && name != top {
                    return None;
                }
                open.push(name);
                text.clear();
            }
            Event::Text(part) => text.push_str(&part.xml10_content()),
            Event::CData(part) => text.push_str(&part.xml10_content()),
            Event::GeneralRef(reference) => match reference.resolve_char_ref().ok()? {
                Some(char) => text.push(char),
                None => text.push_str(resolve_predefined_entity(&reference)?),
            },
            Event::End(_) => {
                let name = open.pop()?;
                let Some(within) = open.last() else { return Some(()) };
                take(within, &name, &text);
                text.clear();
            }
            Event::DocType(_) | Event::Eof => return None,
            _ => {}
        }
    }
}

/// Returns the address with this query parameter set, without others that say where a list
/// continues.
fn with(url: &Url, name: &str, value: &str) -> Url {
    let kept = |(name, _): &(String, String)| {
        !["continuation-token", "start-after", "marker"].contains(&name.as_str())
    };
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().filter(kept).collect();
    let mut url = url.clone();
    url.query_pairs_mut().clear().extend_pairs(pairs).append_pair(name, value);
    url
}

/// Returns an address's path below a folder as written, without `/` at its end, and whether it had
/// one.
fn below<'u>(url: &'u Url, folder: &Url) -> Option<(&'u str, bool)> {
    let is_there = url.origin() == folder.origin() && url.query().is_none();
    let rest = url.path().strip_prefix(folder.path()).filter(|_| is_there)?;
    let bare = rest.strip_suffix('/');
    Some((bare.unwrap_or(rest), bare.is_some())).filter(|(rest, _)| !rest.is_empty())
}

#[derive(Default)]
struct Building {
    listing: Listing,
    seen: HashSet<String>,
}

impl Building {
    fn add_key(&mut self, prefix: &str, key: &str, size: Option<u64>) {
        // Stores keep empty objects for folders.
        let Some(rest) = key.strip_prefix(prefix).filter(|rest| !rest.ends_with('/')) else {
            return;
        };
        if !rest.is_empty() {
            let encode = |part: &str| percent::encode(part.as_bytes());
            let address = rest.split('/').map(encode).collect::<Vec<_>>().join("/");
            self.named(address, rest.to_owned(), false, size);
        }
    }

    /// Adds an entry of the folder itself. Some servers double slashes.
    fn add_href(&mut self, href: &str, folder: &Url, is_folder: bool, size_bytes: Option<u64>) {
        let Ok(mut url) = folder.join(href) else { return };
        while url.path().contains("//") {
            url.set_path(&url.path().replace("//", "/"));
        }
        if let Some((raw, _)) = below(&url, folder).filter(|(raw, _)| !raw.contains('/')) {
            self.add_sized(raw, is_folder, size_bytes);
        }
    }

    fn add(&mut self, address: &str, is_folder: bool) {
        self.add_sized(address, is_folder, None);
    }

    fn add_sized(&mut self, address: &str, is_folder: bool, size_bytes: Option<u64>) {
        let mut path = Vec::new();
        for part in address.split('/').map(percent::decode) {
            if !path.is_empty() {
                path.push(b'/');
            }
            // Unescaped, an escaped '/' would mean another path than on the server.
            if part.contains(&b'/') {
                self.refuse(address, Refusal::Slash);
                return;
            }
            path.extend(part);
        }
        match String::from_utf8(path) {
            Ok(path) => self.named(address.to_owned(), path, is_folder, size_bytes),
            Err(_) => self.refuse(address, Refusal::NotText),
        }
    }

    fn named(&mut self, address: String, path: String, is_folder: bool, size_bytes: Option<u64>) {
        if !self.seen.insert(path.clone()) {
            return;
        }
        if self.listing.entries.len() >= ENTRIES_MAX {
            self.listing.is_cut = true;
            return;
        }
        match SafePath::new(&path) {
            Ok(path) => self.listing.entries.push(Entry { address, path, is_folder, size_bytes }),
            Err(error) => self.refuse(&address, error.into()),
        }
    }

    fn refuse(&mut self, name: &str, why: Refusal) {
        if self.listing.refused.len() < REFUSED_MAX {
            self.listing.refused.push((name.chars().take(NAME_SHOWN).collect(), why));
        } else {
            self.listing.is_cut = true;
        }
    }
}

/// A page with this many entries has some 20 MB.
const ENTRIES_MAX: usize = 200_000;
const REFUSED_MAX: usize = 1000;
const NAME_SHOWN: usize = 200;
const DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn properties_tell_folders_from_files() {
        let answer = |kind: &str| {
            format!(
                r#"<D:multistatus xmlns:D="DAV:" xmlns:lp1="DAV:"><D:response><D:href>/ds</D:href><D:propstat>
                <D:prop><lp1:resourcetype>{kind}</lp1:resourcetype></D:prop>
                </D:propstat></D:response></D:multistatus>"#
            )
        };
        assert_eq!(is_folder(answer("<D:collection/>").as_bytes()), Some(true));
        assert_eq!(is_folder(answer("").as_bytes()), Some(false));
        assert_eq!(is_folder(b"<html><collection/></html>"), None);
    }

    fn paths(listing: &Listing) -> Vec<String> {
        let shown = |entry: &Entry| {
            format!("{}{}", entry.path.as_str(), if entry.is_folder { "/" } else { "" })
        };
        listing.entries.iter().map(shown).collect()
    }

    #[test]
    fn answers_of_webdav_servers_are_read() {
        let folder = url("https://h/ds/");
        // XRootD 5, with its doubled slash; another one, with whole addresses and other prefixes.
        let xrootd = r#"<?xml version="1.0" encoding="utf-8"?>
<D:multistatus xmlns:D="DAV:" xmlns:ns1="http://apache.org/dav/props/" xmlns:ns0="DAV:">
<D:response><D:href>/ds/</D:href><D:propstat><D:prop><lp1:resourcetype><D:collection/></lp1:resourcetype></D:prop></D:propstat></D:response>
<D:response xmlns:lp1="DAV:"><D:href>/ds//a%20b</D:href><D:propstat><D:prop><lp1:getcontentlength>12</lp1:getcontentlength><lp1:resourcetype/></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
<D:response xmlns:lp1="DAV:"><D:href>/ds//sub</D:href><D:propstat><D:prop><lp1:getcontentlength>4096</lp1:getcontentlength><lp1:resourcetype><D:collection/></lp1:resourcetype></D:prop></D:propstat></D:response>
</D:multistatus>"#;
        let listing = Listing::of_multistatus(xrootd.as_bytes(), &folder).unwrap();
        assert_eq!(paths(&listing), ["a b", "sub/"]);
        assert_eq!(listing.entries[0].size_bytes, Some(12));
        assert_eq!((&*listing.entries[1].address, listing.entries[1].size_bytes), ("sub", None));
        let other = "<multistatus xmlns='DAV:'><response><href>https://h/ds/x&amp;y</href></response>\
                     <response><href>/ds/deep/er</href></response><response><href>/other</href></response>\
                     <response><href>https://o/ds/z</href></response><response><href>/ds/%2e%2e</href></response>\
                     <response><href>/ds/a%2Fb</href></response></multistatus>";
        let listing = Listing::of_multistatus(other.as_bytes(), &folder).unwrap();
        assert_eq!(paths(&listing), ["x&y"]);
        assert_eq!(listing.refused, [("a%2Fb".to_owned(), Refusal::Slash)]);
        for no in ["", "<html/>", "<multistatus>", "<!DOCTYPE x><multistatus/>", "x"] {
            assert_eq!(Listing::of_multistatus(no.as_bytes(), &folder), None, "{no}");
        }
    }

    #[test]
    fn pages_of_common_servers_are_read() {
        let folder = url("http://h/data/");
        for (page, wanted) in [
            // nginx
            (
                "<html>\r\n<head><title>Index of /data/</title></head>\r\n<body>\r\n<h1>Index of /data/</h1><hr><pre><a href=\"../\">../</a>\r\n<a href=\"sub%20dir/\">sub dir/</a>  20-Nov-2026 10:00  -\r\n<a href=\"a%26b.bin\">a&amp;b.bin</a>  20-Nov-2026 10:00  123\r\n</pre><hr></body>",
                vec!["sub dir/", "a&b.bin"],
            ),
            // Apache
            (
                "<tr><th><a href=\"?C=N;O=D\">Name</a></th></tr><tr><td><a href=\"/\">Parent Directory</a></td></tr><tr><td><a href=\"run7.h5\">run7.h5</a></td></tr><a href='x/'>x/</a>",
                vec!["run7.h5", "x/"],
            ),
            // Caddy, and others that begin with a dot
            (
                "<a href=\"./k/\"><span>k</span></a> <a href=\"./k2.bin\">k2.bin</a><script>'<a href=\"no\">'</script><!-- <a href=\"no\"> -->",
                vec!["k/", "k2.bin"],
            ),
            // Whole paths, other servers, mails, fragments, links aside, each once
            (
                "<A HREF=/data/w.bin#top>w</A><a href=/other/f>f</a><a href=http://other/data/f>f</a><a href=mailto:a@b>m</a><a href=#x>x</a><a href=w.bin>again</a><a href=deep/er/f.bin>f</a><a name=n>n</a>",
                vec!["w.bin", "deep/er/f.bin"],
            ),
            ("<base href=\"/data/v2/\"><a href=f>f</a>", vec!["v2/f"]),
            (
                "<a href=\"naïve.txt\">n</a><a href=na%C3%AFve2.txt>n</a>",
                vec!["naïve.txt", "naïve2.txt"],
            ),
            ("", vec![]),
        ] {
            let listing = Listing::of_page(page.as_bytes(), &folder);
            assert_eq!(paths(&listing), wanted, "{page}");
            assert!(listing.refused.is_empty(), "{:?}", listing.refused);
        }
        let listing = Listing::of_page(b"<a href=a%26b.bin>x</a>", &folder);
        assert_eq!(listing.entries[0].address, "a%26b.bin");
    }

    #[test]
    fn names_that_lead_elsewhere_or_deceive_are_refused_and_named() {
        let folder = url("http://h/data/");
        for (page, name) in [
            ("<a href=\"..%2f..%2fetc%2fpasswd\">x</a>", "..%2f..%2fetc%2fpasswd"),
            ("<a href=\"a%00b\">x</a>", "a%00b"),
            ("<a href=\"a%E2%80%AEtxt.exe\">x</a>", "a%E2%80%AEtxt.exe"),
            ("<a href=\"a%0Ab\">x</a>", "a%0Ab"),
            ("<a href=\"a%FFb\">x</a>", "a%FFb"),
            ("<a href=\"a//b\">x</a>", "a//b"),
        ] {
            let listing = Listing::of_page(page.as_bytes(), &folder);
            assert!(listing.entries.is_empty(), "{page}: {:?}", listing.entries);
            assert_eq!(listing.refused[0].0, name, "{page}");
        }
        // What the address itself leads up to is not in the folder.
        for page in ["<a href=\"%2e%2e/x\">x</a>", "<a href=\"../x\">", "<a href=\"a/../../x\">"] {
            let listing = Listing::of_page(page.as_bytes(), &folder);
            assert_eq!(listing, Listing::default(), "{page}");
        }
    }

    #[test]
    fn buckets_are_read_page_by_page() {
        let asked = url("https://s3.example/b?list-type=2&prefix=run7%2F");
        let list = |more: &str| {
            format!(
                "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>run7/</Prefix>{more}\
                 <Contents><Key>run7/</Key><Size>0</Size></Contents>\
                 <Contents><Key>run7/a &amp; b.bin</Key><Size>12</Size></Contents>\
                 <Contents><Key>run7/x/y.bin</Key><Size>3</Size></Contents>\
                 <Contents><Key>run7/x/</Key><Size>0</Size></Contents>\
                 <Contents><Key>run7/../up</Key><Size>3</Size></Contents>\
                 </ListBucketResult>"
            )
        };
        let read = |more: &str, asked: &Url| {
            Listing::of_bucket(list(more).as_bytes(), asked, "run7/").unwrap()
        };
        let listing = read("<IsTruncated>false</IsTruncated>", &asked);
        assert_eq!(paths(&listing), ["a & b.bin", "x/y.bin"]);
        assert_eq!(listing.entries[0].size_bytes, Some(12));
        assert_eq!(listing.entries[0].address, "a%20%26%20b.bin");
        assert_eq!((listing.refused.len(), &listing.next), (1, &None));
        let more = "<IsTruncated>true</IsTruncated>";
        let query =
            |more: &str, asked: &Url| read(more, asked).next.unwrap().query().unwrap().to_owned();
        let by_token = format!("{more}<NextContinuationToken>t/1=</NextContinuationToken>");
        assert_eq!(
            query(&by_token, &asked),
            "list-type=2&prefix=run7%2F&continuation-token=t%2F1%3D"
        );
        assert!(query(more, &asked).contains("start-after=run7%2F..%2Fup"));
        let first = url("https://s3.example/b?prefix=run7/&marker=old");
        assert_eq!(query(more, &first), "prefix=run7%2F&marker=run7%2F..%2Fup");
        for odd in ["", "<html></html>", "<ListBucketResult>", "<!DOCTYPE x><ListBucketResult/>"] {
            let read = Listing::of_bucket(odd.as_bytes(), &asked, "");
            assert!(read.is_none_or(|it| it.entries.is_empty()), "{odd}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_listed_leaves_its_folder(page in ".{0,200}", bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let folder = url("http://h/data/");
            for page in [page.as_bytes(), &bytes, format!("<a href=\"{page}\">").as_bytes()] {
                for entry in Listing::of_page(page, &folder).entries {
                    let url = folder.join(&format!("./{}", entry.address)).unwrap();
                    prop_assert!(url.path().starts_with("/data/"), "{url}");
                    prop_assert!(!entry.path.as_str().split('/').any(|part| part == ".."));
                }
                let _ = Listing::of_bucket(page, &folder, "");
            }
        }
    }
}
