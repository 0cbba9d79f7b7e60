//! The links of a page.
//!
//! The page is read as a stream of tags. Of each link only its address is kept, and whether its text shows
//! the same name: so a page needs little more memory than its links.

use std::convert::Infallible;

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};
use url::Url;

use super::below::{below, same_server};
use super::building::{Building, ENTRIES_MAX, REFUSED_MAX};
use super::multistatus::is_unescaped;
use super::{Listing, Refusal};
use crate::percent;

impl Listing {
    /// Reads the links of a page at `folder`, whose path ends in `/`: the address where it was found, after
    /// redirects.
    ///
    /// Links up, aside and to itself (which sort the page) are no entries, nor are other views of an entry
    /// (`a.txt?raw`).
    pub fn of_page(page: &[u8], folder: &Url) -> Listing {
        let Links { base, links, is_cut } = Links::of(page);
        let base = base.and_then(|href| folder.join(&href).ok()).unwrap_or_else(|| folder.clone());
        let place = place(folder, &base);
        // Some servers write names into addresses as they are. One name that cannot be escaped shows it.
        let is_verbatim = links.iter().any(|link| link.shows_name && is_unescaped(link.name()));
        let mut building = Building::default();
        building.listing.is_cut = is_cut;
        let (mut queries, mut elsewhere) = (Vec::new(), Vec::new());
        for link in links {
            let is_name = link.shows_name && (is_verbatim || link.href.contains(':'));
            let encoded = is_name.then(|| percent::encode(link.href.as_bytes()));
            let Ok(url) = base.join(encoded.as_deref().unwrap_or(&link.href)) else { continue };
            let rest = below(url.path(), place.path());
            if !same_server(&url, &place) {
                let is_below = rest.is_some_and(|rest| !rest.is_empty());
                if is_below && place.path() != "/" && elsewhere.len() < REFUSED_MAX {
                    let host = url.host_str().unwrap_or_default().to_owned();
                    elsewhere.push(host + url.path());
                }
                continue;
            }
            match rest {
                Some(rest) if rest.trim_matches('/').is_empty() => {}
                Some(rest) if url.query().is_some() && queries.len() < REFUSED_MAX => {
                    let bare = rest.strip_suffix('/').unwrap_or(rest).to_owned();
                    queries.push((bare, url.query().unwrap_or_default().to_owned()));
                }
                Some(_) if url.query().is_some() => building.listing.is_cut = true,
                Some(rest) => {
                    // Some servers double slashes.
                    let rest = rest.trim_start_matches('/');
                    let bare = rest.strip_suffix('/');
                    building.listing.marks_folders |= bare.is_some();
                    building.add(bare.unwrap_or(rest), bare.is_some(), None);
                }
                // Whoever writes the folder above with '/' writes those below with it.
                None => building.listing.marks_folders |= leads_up(&link.href, &url, &place),
            }
        }
        for (bare, query) in queries {
            if !building.has(&bare) {
                building.refuse(&format!("{bare}?{query}"), Refusal::Query);
            }
        }
        if building.listing.is_empty() {
            elsewhere.iter().for_each(|name| building.refuse(name, Refusal::Server));
        }
        building.listing.base = (place != *folder).then_some(place);
        building.listing
    }
}

/// Returns the folder that entries are in: that of the page, or that of its base, if this is neither above nor
/// below it.
fn place(folder: &Url, base: &Url) -> Url {
    let dir = base.join(".").unwrap_or_else(|_| base.clone());
    let is_aside =
        below(dir.path(), folder.path()).is_none() && below(folder.path(), dir.path()).is_none();
    let mut place = folder.clone();
    if is_aside && same_server(&dir, folder) {
        place.set_path(dir.path());
        place.set_query(None);
    }
    place
}

fn leads_up(href: &str, url: &Url, place: &Url) -> bool {
    let is_above = url.path().len() > 1 && below(place.path(), url.path()).is_some();
    href.ends_with("../") || is_above && url.path().ends_with('/')
}

/// The links of a page.
#[derive(Default)]
struct Links {
    /// The first `<base href>`, which alone counts.
    base: Option<String>,
    links: Vec<Link>,
    is_cut: bool,
}

struct Link {
    href: String,
    /// Its text is the last part of its address, as it is written there.
    shows_name: bool,
}

impl Link {
    fn name(&self) -> &str {
        last_part(&self.href)
    }
}

impl Links {
    fn of(page: &[u8]) -> Links {
        let mut reader = Reader::default();
        let mut emitter =
            CallbackEmitter::new(|event: CallbackEvent<'_>, _: Span<()>| -> Option<Infallible> {
                reader.take(event);
                None
            });
        // Links in scripts do not count.
        emitter.naively_switch_states(true);
        Tokenizer::new_with_emitter(page, emitter).for_each(drop);
        reader.end_link();
        reader.links
    }
}

/// Reads tag after tag.
#[derive(Default)]
struct Reader {
    links: Links,
    tag: Tag,
    is_href: bool,
    href: Option<String>,
    /// The link that is open, and its text so far.
    link: Option<String>,
    text: Vec<u8>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Tag {
    A,
    Base,
    #[default]
    Other,
}

impl Reader {
    fn take(&mut self, event: CallbackEvent<'_>) {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.tag = match name {
                    b"a" => Tag::A,
                    b"base" => Tag::Base,
                    _ => Tag::Other,
                };
                (self.href, self.is_href) = (None, false);
            }
            CallbackEvent::AttributeName { name } => {
                self.is_href = self.tag != Tag::Other && self.href.is_none() && name == b"href";
            }
            CallbackEvent::AttributeValue { value } if std::mem::take(&mut self.is_href) => {
                self.href = Some(String::from_utf8_lossy(value).trim().to_owned());
            }
            CallbackEvent::CloseStartTag { .. } => {
                match (std::mem::take(&mut self.tag), self.href.take()) {
                    (Tag::A, Some(href)) => {
                        self.end_link();
                        self.link = Some(href);
                    }
                    (Tag::Base, Some(href)) if href.len() <= HREF_BYTES_MAX => {
                        self.links.base.get_or_insert(href);
                    }
                    _ => {}
                }
            }
            CallbackEvent::String { value } if self.link.is_some() => {
                let room = HREF_BYTES_MAX.saturating_sub(self.text.len());
                self.text.extend_from_slice(&value[..value.len().min(room)]);
            }
            CallbackEvent::EndTag { name: b"a" } => self.end_link(),
            _ => {}
        }
    }

    fn end_link(&mut self) {
        let text = std::mem::take(&mut self.text);
        let Some(href) = self.link.take() else { return };
        if self.links.links.len() >= LINKS_MAX {
            self.links.is_cut = true;
        } else if href.len() <= HREF_BYTES_MAX {
            let is_address = href.contains("://") || href.starts_with(['#', '?']);
            let text = String::from_utf8_lossy(&text);
            let shows_name = !is_address && last_part(text.trim()) == last_part(&href);
            self.links.links.push(Link { href, shows_name });
        } else if !href.starts_with("data:") {
            self.links.is_cut = true;
        }
    }
}

/// Returns the last part of a path, without `/` at its end.
fn last_part(path: &str) -> &str {
    let bare = path.strip_suffix('/').unwrap_or(path);
    bare.rsplit('/').next().unwrap_or(bare)
}

/// Some links are not of entries.
const LINKS_MAX: usize = ENTRIES_MAX + 1000;
/// No server accepts longer addresses.
const HREF_BYTES_MAX: usize = 16 << 10;
