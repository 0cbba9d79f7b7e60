//! Writes the answer to `PROPFIND` (RFC 4918, section 14.16), one resource at a time, so that a
//! folder of any size can be sent while it is read.

use std::fmt::Write as _;

use quick_xml::escape::escape;

use super::{Asked, NAMESPACE, Name};
use crate::http_date;
use crate::percent::encode;

/// What an answer begins with.
pub const START: &str =
    "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";
/// What it ends with.
pub const END: &str = "</D:multistatus>\n";

/// A file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// Its path below the top of the server, without `/` at its ends; may be no text.
    pub path: &'a [u8],
    /// What it is.
    pub kind: ResourceKind<'a>,
    /// The time of its last change, in seconds since 1970.
    pub modified_s: Option<u64>,
}

/// What a resource is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceKind<'a> {
    /// A folder.
    Folder {
        /// The room on its disk, if that is known.
        room: Option<Room>,
    },
    /// A file.
    File {
        /// Its size.
        size_bytes: u64,
        /// Its entity tag, as a header field has it.
        etag: &'a str,
        /// Its media type.
        media_type: &'a str,
    },
}

/// The room on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that can be written.
    pub free_bytes: u64,
    /// Bytes that are taken.
    pub used_bytes: u64,
}

/// Appends a resource with the properties that are asked for.
pub fn write(out: &mut String, asked: &Asked, resource: &Resource<'_>) {
    let slash = if resource.is_folder() && !resource.path.is_empty() { "/" } else { "" };
    let href = encode(resource.path);
    let _ = write!(out, "<D:response><D:href>/{href}{slash}</D:href>");
    let mut found = String::new();
    let mut missing = String::new();
    let mut one = |name: &Name| match known(name).and_then(|it| Some((it, resource.value(it)?))) {
        Some((property, value)) => element(&mut found, property, &value),
        None => {
            let (local, namespace) = (&name.local, escape(&*name.namespace));
            let _ = write!(missing, "<{local} xmlns=\"{namespace}\"/>");
        }
    };
    match asked {
        Asked::Named(names) => names.iter().for_each(one),
        Asked::All(more) => {
            let is_usual = |name: &&Name| known(name).is_some_and(|it| USUAL.contains(&it));
            more.iter().filter(|name| !is_usual(name)).for_each(&mut one);
            for property in USUAL {
                if let Some(value) = resource.value(property) {
                    element(&mut found, property, &value);
                }
            }
        }
        Asked::Names => {
            for property in USUAL {
                if resource.value(property).is_some() {
                    let _ = write!(found, "<D:{}/>", property.name());
                }
            }
        }
    }
    // Without any property there has to be one of them all the same.
    if !found.is_empty() || missing.is_empty() {
        let _ = write!(
            out,
            "<D:propstat><D:prop>{found}</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>"
        );
    }
    if !missing.is_empty() {
        let _ = write!(
            out,
            "<D:propstat><D:prop>{missing}</D:prop>\
             <D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>"
        );
    }
    out.push_str("</D:response>\n");
}

/// The properties that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Property {
    Type,
    Length,
    Modified,
    Etag,
    DisplayName,
    MediaType,
    SupportedLock,
    LockDiscovery,
    QuotaAvailable,
    QuotaUsed,
}

impl Property {
    fn name(self) -> &'static str {
        match self {
            Property::Type => "resourcetype",
            Property::Length => "getcontentlength",
            Property::Modified => "getlastmodified",
            Property::Etag => "getetag",
            Property::DisplayName => "displayname",
            Property::MediaType => "getcontenttype",
            Property::SupportedLock => "supportedlock",
            Property::LockDiscovery => "lockdiscovery",
            Property::QuotaAvailable => "quota-available-bytes",
            Property::QuotaUsed => "quota-used-bytes",
        }
    }
}

fn known(name: &Name) -> Option<Property> {
    let all = USUAL.into_iter().chain([Property::QuotaAvailable, Property::QuotaUsed]);
    let mut all = all.filter(|_| name.namespace == NAMESPACE);
    all.find(|property| property.name() == name.local)
}

impl Resource<'_> {
    fn is_folder(&self) -> bool {
        matches!(self.kind, ResourceKind::Folder { .. })
    }

    /// The content of a property's element; `None` if the resource does not have it.
    fn value(&self, property: Property) -> Option<String> {
        match (property, &self.kind) {
            (Property::Type, ResourceKind::Folder { .. }) => Some("<D:collection/>".to_owned()),
            (Property::Type, ResourceKind::File { .. }) => Some(String::new()),
            (Property::SupportedLock | Property::LockDiscovery, _) => Some(String::new()),
            (Property::DisplayName, _) => {
                let name = self.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
                Some(text(&String::from_utf8_lossy(name)))
            }
            (Property::Modified, _) => self.modified_s.map(http_date::write),
            (Property::Length, ResourceKind::File { size_bytes, .. }) => {
                Some(size_bytes.to_string())
            }
            (Property::Etag, ResourceKind::File { etag, .. }) => Some(text(etag)),
            (Property::MediaType, ResourceKind::File { media_type, .. }) => Some(text(media_type)),
            (Property::QuotaAvailable, ResourceKind::Folder { room: Some(room) }) => {
                Some(room.free_bytes.to_string())
            }
            (Property::QuotaUsed, ResourceKind::Folder { room: Some(room) }) => {
                Some(room.used_bytes.to_string())
            }
            _ => None,
        }
    }
}

fn element(out: &mut String, property: Property, value: &str) {
    let name = property.name();
    let _ = match value {
        "" => write!(out, "<D:{name}/>"),
        value => write!(out, "<D:{name}>{value}</D:{name}>"),
    };
}

/// Escapes text; what XML cannot contain becomes a replacement character.
fn text(text: &str) -> String {
    let allowed = |c: char| match c {
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c if c < ' ' => '\u{fffd}',
        c => c,
    };
    escape(text.chars().map(allowed).collect::<String>()).into_owned()
}

/// The answer to a request for all properties. The free space is sent only on request (RFC 4331, section 3).
const USUAL: [Property; 8] = [
    Property::Type,
    Property::Length,
    Property::Modified,
    Property::Etag,
    Property::DisplayName,
    Property::MediaType,
    Property::SupportedLock,
    Property::LockDiscovery,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn file<'a>(path: &'a [u8]) -> Resource<'a> {
        let kind =
            ResourceKind::File { size_bytes: 7, etag: "\"7-1.0\"", media_type: "text/plain" };
        Resource { path, kind, modified_s: Some(784_111_777) }
    }

    fn written(asked: &Asked, resource: &Resource<'_>) -> String {
        let mut out = String::new();
        write(&mut out, asked, resource);
        out
    }

    #[test]
    fn a_file_and_a_folder_are_written() {
        let all = Asked::All(Vec::new());
        assert_eq!(
            written(&all, &file(b"d/a & b.txt")),
            "<D:response><D:href>/d/a%20%26%20b.txt</D:href><D:propstat><D:prop><D:resourcetype/>\
             <D:getcontentlength>7</D:getcontentlength>\
             <D:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</D:getlastmodified>\
             <D:getetag>&quot;7-1.0&quot;</D:getetag><D:displayname>a &amp; b.txt</D:displayname>\
             <D:getcontenttype>text/plain</D:getcontenttype><D:supportedlock/><D:lockdiscovery/>\
             </D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>\n"
        );
        let folder = |path, room| {
            let kind = ResourceKind::Folder { room };
            Resource { path, kind, modified_s: None }
        };
        let top = written(&all, &folder(b"", None));
        assert!(top.contains("<D:href>/</D:href>") && top.contains("<D:collection/>"), "{top}");
        let below = written(&Asked::Names, &folder(b"a/b", None));
        assert!(below.contains("<D:href>/a/b/</D:href>"), "{below}");
        assert!(below.contains("<D:resourcetype/>") && !below.contains("getcontentlength"));
        let name = |local: &str| Name { namespace: NAMESPACE.to_owned(), local: local.to_owned() };
        let quota = Asked::Named(vec![name("quota-available-bytes"), name("quota-used-bytes")]);
        let room = Room { free_bytes: 5, used_bytes: 6 };
        let told = written(&quota, &folder(b"", Some(room)));
        assert!(told.contains(">5<") && told.contains(">6<") && !told.contains("404"), "{told}");
    }

    #[test]
    fn what_is_not_there_is_told_apart() {
        let unknown = Name { namespace: "urn:\"x\"&".to_owned(), local: "own".to_owned() };
        let length = Name { namespace: NAMESPACE.to_owned(), local: "getcontentlength".to_owned() };
        let told = written(&Asked::Named(vec![unknown.clone(), length]), &file(b"a"));
        assert_eq!(
            told,
            "<D:response><D:href>/a</D:href><D:propstat><D:prop>\
             <D:getcontentlength>7</D:getcontentlength></D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat><D:propstat><D:prop>\
             <own xmlns=\"urn:&quot;x&quot;&amp;\"/></D:prop>\
             <D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>\n"
        );
        assert!(!written(&Asked::Named(vec![unknown]), &file(b"a")).contains("200 OK"));
        assert!(written(&Asked::Named(Vec::new()), &file(b"a")).contains("200 OK"));
    }

    #[test]
    fn any_name_is_written_as_xml() {
        for path in [&b"\xff\x01<&>"[..], b"a\nb", "\u{ffff}ü".as_bytes(), b"]]>"] {
            let told = written(&Asked::All(Vec::new()), &file(path));
            let whole = format!("{START}{told}{END}");
            let mut xml = quick_xml::Reader::from_str(&whole);
            while xml.read_event().unwrap() != quick_xml::events::Event::Eof {}
            let bad = |c: char| c < ' ' && c != '\n' || c == '\u{ffff}';
            assert!(!told.trim_end().contains(bad) && !told.trim_end().contains('\n'), "{told}");
        }
    }
}
