//! What a request asks for, by its address. With passkeys, one stands before the name:
//! `/PASSKEY/announce`.

use crate::published::Published;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<'a> {
    pub page: Page,
    /// Its path ends with `/`, or is empty.
    pub is_folder: bool,
    pub passkey: Option<&'a str>,
    /// The name of a published file, as it stands in the address.
    pub file: &'a str,
    /// Without its `?`; empty if there is none.
    pub query: &'a str,
}

/// What a tracker answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Announce,
    Scrape,
    Top,
    Stats,
    Metrics,
    Health,
    /// A file of the catalogue's folder.
    Published,
    Unknown,
}

impl<'a> Route<'a> {
    /// Reads the target of a request, which may have scheme and host.
    pub fn of(target: &'a str) -> Route<'a> {
        let target = target.split('#').next().unwrap_or_default();
        let path = match target.split_once("://") {
            Some((scheme, rest)) if !scheme.contains('/') => {
                &rest[rest.find(['/', '?']).unwrap_or(rest.len())..]
            }
            _ => target,
        };
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let (name, passkey) = match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => ("", None),
            (Some(name), None, _) => match Page::of(name) {
                Page::Unknown => ("", Some(name)),
                _ => (name, None),
            },
            (Some(passkey), Some(name), None) => (name, Some(passkey)),
            (Some(passkey), Some(_), Some(_)) => ("-", Some(passkey)),
        };
        let page = Page::of(name);
        let file = if page == Page::Published { name } else { "" };
        let is_folder = path.is_empty() || path.ends_with('/');
        Route { page, is_folder, passkey, file, query }
    }

    /// Returns the address without the passkey, for logs. What may be a mistyped passkey is hidden
    /// too.
    pub fn shown(&self) -> String {
        let begin = if self.passkey.is_some() { "/-/" } else { "/" };
        let page = if self.page == Page::Published { self.file } else { self.page.name() };
        let query = if self.query.is_empty() { "" } else { "?" };
        format!("{begin}{page}{query}{}", self.query)
    }
}

impl Page {
    const NAMED: [Page; 5] =
        [Page::Announce, Page::Scrape, Page::Stats, Page::Metrics, Page::Health];

    fn of(name: &str) -> Page {
        match Page::NAMED.into_iter().find(|page| page.name() == name) {
            Some(page) => page,
            None if name.is_empty() => Page::Top,
            // No passkey has a full stop.
            None if Published::is_name(name) => Page::Published,
            None => Page::Unknown,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Page::Announce => "announce",
            Page::Scrape => "scrape",
            Page::Top => "",
            Page::Stats => "stats.json",
            Page::Metrics => "metrics",
            Page::Health => "health",
            Page::Published | Page::Unknown => "-",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood_and_shown_without_passkeys() {
        for (target, page, passkey, shown) in [
            ("/announce?port=1", Page::Announce, None, "/announce?port=1"),
            ("/k/announce?port=1", Page::Announce, Some("k"), "/-/announce?port=1"),
            ("//k//scrape", Page::Scrape, Some("k"), "/-/scrape"),
            ("http://t.example:80/k/announce", Page::Announce, Some("k"), "/-/announce"),
            ("http://t.example", Page::Top, None, "/"),
            ("http://t.example?x", Page::Top, None, "/?x"),
            ("/", Page::Top, None, "/"),
            ("/k/", Page::Top, Some("k"), "/-/"),
            ("/stats.json", Page::Stats, None, "/stats.json"),
            ("/k/metrics", Page::Metrics, Some("k"), "/-/metrics"),
            ("/health#x", Page::Health, None, "/health"),
            ("/k/announc", Page::Unknown, Some("k"), "/-/-"),
            ("/k/announce/x", Page::Unknown, Some("k"), "/-/-"),
            ("/run%207-2.torrent?x", Page::Published, None, "/run%207-2.torrent?x"),
            ("/k/feed.rss", Page::Published, Some("k"), "/-/feed.rss"),
            ("/k/catalogue.json", Page::Unknown, Some("k"), "/-/-"),
            ("/key.with.stops", Page::Top, Some("key.with.stops"), "/-/"),
            ("", Page::Top, None, "/"),
            ("*", Page::Top, Some("*"), "/-/"),
        ] {
            let route = Route::of(target);
            assert_eq!((route.page, route.passkey), (page, passkey), "{target}");
            assert_eq!(route.shown(), shown, "{target}");
        }
        assert_eq!(Route::of("/announce?a=/b?c").query, "a=/b?c");
    }
}
