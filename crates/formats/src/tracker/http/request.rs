//! Queries of announces (BEP 3, 7, 23) and scrapes (BEP 48).

use core::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

use crate::tracker::{Announce, Event, InfoHash, PeerForm, PeerId, SCRAPE_MAX};

/// Why a query is not an announce or a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A required parameter is missing.
    #[error("the request has no {0}")]
    Missing(&'static str),
    /// A parameter has an impossible value.
    #[error("the request has an invalid {0}")]
    Invalid(&'static str),
    /// The scrape names too many torrents.
    #[error("a scrape may name at most {SCRAPE_MAX} torrents")]
    TooMany,
}

/// Reads the query of an announce, without its `?`. Required are `info_hash`, `peer_id` and `port`.
/// Unknown parameters, and numbers that are none, are ignored; so is `ip`, since anybody could claim
/// any address.
///
/// # Errors
/// [`RequestError`], in words for the client.
pub fn announce_query(query: &str) -> Result<Announce, RequestError> {
    let mut all = Parameters::default();
    for (name, value) in parameters(query) {
        all.note(name, value)?;
    }
    let port = all.port.ok_or(RequestError::Missing("port"))?;
    Ok(Announce {
        info_hash: all.info_hash.ok_or(RequestError::Missing("info_hash"))?,
        peer_id: all.peer_id.ok_or(RequestError::Missing("peer_id"))?,
        port,
        uploaded: all.uploaded.unwrap_or(0),
        downloaded: all.downloaded.unwrap_or(0),
        left: all.left,
        event: all.event,
        want: all.want,
        key: all.key,
        form: match (all.is_dictionary, all.lacks_ids) {
            (false, _) => PeerForm::Compact,
            (true, false) => PeerForm::Dictionary,
            (true, true) => PeerForm::DictionaryWithoutIds,
        },
    })
}

/// Reads the query of a scrape: the torrents that it names, or none for all of them.
///
/// # Errors
/// [`RequestError`], in words for the client.
pub fn scrape_query(query: &str) -> Result<Vec<InfoHash>, RequestError> {
    let mut hashes = Vec::new();
    for (_, value) in parameters(query).filter(|(name, _)| *name == "info_hash") {
        if hashes.len() == SCRAPE_MAX {
            return Err(RequestError::TooMany);
        }
        hashes.push(InfoHash(twenty(value).ok_or(RequestError::Invalid("info_hash"))?));
    }
    Ok(hashes)
}

/// Returns the address of an announce at a tracker with this announce address, which may have a query
/// of its own.
pub fn announce_url(tracker: &str, announce: &Announce) -> String {
    let mut url = begun(tracker);
    let coded = |bytes: &[u8]| percent_encode(bytes, CODED).to_string();
    let _ = write!(
        url,
        "info_hash={}&peer_id={}&port={}&uploaded={}&downloaded={}",
        coded(&announce.info_hash.0),
        coded(&announce.peer_id.0),
        announce.port,
        announce.uploaded,
        announce.downloaded
    );
    if let Some(left) = announce.left {
        let _ = write!(url, "&left={left}");
    }
    url.push_str(match announce.form {
        PeerForm::Compact => "&compact=1",
        PeerForm::Dictionary => "&compact=0",
        PeerForm::DictionaryWithoutIds => "&compact=0&no_peer_id=1",
    });
    url.push_str(match announce.event {
        Event::None => "",
        Event::Started => "&event=started",
        Event::Completed => "&event=completed",
        Event::Stopped => "&event=stopped",
    });
    if let Some(want) = announce.want {
        let _ = write!(url, "&numwant={want}");
    }
    if let Some(key) = announce.key {
        let _ = write!(url, "&key={key:08x}");
    }
    url
}

/// Returns the address of a scrape at a tracker with this announce address; `None` if the tracker has
/// no scrape address: that exists only where the last part of the path begins with `announce`
/// (BEP 48).
pub fn scrape_url(tracker: &str, hashes: &[InfoHash]) -> Option<String> {
    let (path, query) = tracker.split_at(tracker.find('?').unwrap_or(tracker.len()));
    let (folder, name) = path.rsplit_once('/')?;
    let rest = name.strip_prefix("announce")?;
    let mut url = begun(&format!("{folder}/scrape{rest}{query}"));
    for (at, hash) in hashes.iter().enumerate() {
        url.push_str(if at > 0 { "&" } else { "" });
        let _ = write!(url, "info_hash={}", percent_encode(&hash.0, CODED));
    }
    Some(url)
}

/// The parameters of an announce that were found so far.
#[derive(Default)]
struct Parameters {
    info_hash: Option<InfoHash>,
    peer_id: Option<PeerId>,
    port: Option<u16>,
    uploaded: Option<u64>,
    downloaded: Option<u64>,
    left: Option<u64>,
    event: Event,
    want: Option<u32>,
    key: Option<u32>,
    is_dictionary: bool,
    lacks_ids: bool,
}

impl Parameters {
    fn note(&mut self, name: &str, value: &str) -> Result<(), RequestError> {
        match name {
            "info_hash" => {
                let hash = twenty(value).ok_or(RequestError::Invalid("info_hash"))?;
                self.info_hash.get_or_insert(InfoHash(hash));
            }
            "peer_id" => {
                let id = twenty(value).ok_or(RequestError::Invalid("peer_id"))?;
                self.peer_id.get_or_insert(PeerId(id));
            }
            "port" => self.port = Some(value.parse().map_err(|_| RequestError::Invalid("port"))?),
            "uploaded" => self.uploaded = value.parse().ok(),
            "downloaded" => self.downloaded = value.parse().ok(),
            "left" => self.left = value.parse().ok(),
            "numwant" => self.want = value.parse().ok(),
            "key" => self.key = u32::from_str_radix(value, 16).ok(),
            "compact" => self.is_dictionary = value == "0",
            "no_peer_id" => self.lacks_ids = value == "1",
            "event" => {
                self.event = match value {
                    "started" => Event::Started,
                    "completed" => Event::Completed,
                    "stopped" => Event::Stopped,
                    // An empty one, and `paused` (BEP 21), which says nothing about pieces.
                    _ => Event::None,
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The names and values of a query, as they are written.
fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Decodes a value of 20 bytes. A plus sign is a space, as programs write it that encode queries in
/// the way of HTML forms.
fn twenty(value: &str) -> Option<[u8; 20]> {
    // Before decoding: a coded plus sign is one.
    let spaced = value.replace('+', " ");
    let mut decoded = percent_decode(spaced.as_bytes());
    let mut bytes = [0; 20];
    for byte in &mut bytes {
        *byte = decoded.next()?;
    }
    decoded.next().is_none().then_some(bytes)
}

/// An address to which parameters can be added.
fn begun(url: &str) -> String {
    let mut url = url.split('#').next().unwrap_or_default().to_owned();
    url.push(if url.contains('?') { '&' } else { '?' });
    url
}

/// All but the unreserved characters.
const CODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "info_hash=%124Vx%9A%BC%DE%F1%23Eg%89%AB%CD%EF%124Vx%9A";
    const ID: &str = "peer_id=-TR3000-abcdefghijkl";

    #[test]
    fn what_clients_send_is_understood() {
        let query = format!(
            "{HASH}&{ID}&port=51413&uploaded=1&downloaded=2&left=0&numwant=80&key=5d7a1e1f&\
             compact=1&supportcrypto=1&event=started&ip=192.0.2.9"
        );
        let read = announce_query(&query).unwrap();
        assert_eq!(read.info_hash.to_string(), "123456789abcdef123456789abcdef123456789a");
        assert_eq!(&read.peer_id.0, b"-TR3000-abcdefghijkl");
        assert_eq!((read.port, read.uploaded, read.downloaded), (51413, 1, 2));
        assert_eq!((read.left, read.event, read.want), (Some(0), Event::Started, Some(80)));
        assert_eq!((read.key, read.form), (Some(0x5d7a_1e1f), PeerForm::Compact));
        let lower = query.replace("%9A%BC%DE%F1", "%9a%bC%de%f1");
        assert_eq!(announce_query(&lower).unwrap(), read);
        let plus = query.replace("-TR3000-abcdefghijkl", "-TR3000-abc+efghi%2Bkl");
        assert_eq!(&announce_query(&plus).unwrap().peer_id.0, b"-TR3000-abc efghi+kl");
    }

    #[test]
    fn what_is_missing_or_odd_has_a_default() {
        let read = |more: &str| announce_query(&format!("{HASH}&{ID}&port=1{more}")).unwrap();
        let plain = read("");
        assert_eq!((plain.left, plain.want, plain.event), (None, None, Event::None));
        assert_eq!(plain.form, PeerForm::Compact);
        for odd in ["&left=-1&numwant=-1", "&event=", "&event=paused", "&key=zz&left=", "&&=&x"] {
            assert_eq!(read(odd), plain, "{odd}");
        }
        assert_eq!(read("&compact=0&no_peer_id=1").form, PeerForm::DictionaryWithoutIds);
        assert_eq!(read("&compact=0&no_peer_id=0").form, PeerForm::Dictionary);
        assert_eq!(read("&port=0").port, 0);
    }

    #[test]
    fn what_cannot_be_answered_is_refused_in_words() {
        for (query, error) in [
            (String::new(), RequestError::Missing("port")),
            ("port=1".to_owned(), RequestError::Missing("info_hash")),
            (format!("{HASH}&port=1"), RequestError::Missing("peer_id")),
            (format!("{HASH}&{ID}&port=65536"), RequestError::Invalid("port")),
            (format!("{HASH}&{ID}&port="), RequestError::Invalid("port")),
            (format!("{HASH}x&{ID}&port=1"), RequestError::Invalid("info_hash")),
            (format!("{HASH}&{}&port=1", &ID[..20]), RequestError::Invalid("peer_id")),
        ] {
            assert_eq!(announce_query(&query), Err(error), "{query}");
        }
        assert_eq!(scrape_query(HASH).unwrap().len(), 1);
        assert_eq!(scrape_query("").unwrap(), []);
        assert_eq!(scrape_query("info_hash=abc"), Err(RequestError::Invalid("info_hash")));
        let many = [HASH; SCRAPE_MAX + 1].join("&");
        assert_eq!(scrape_query(&many), Err(RequestError::TooMany));
    }

    #[test]
    fn scrape_addresses_follow_the_convention() {
        let at = |tracker: &str| scrape_url(tracker, &[InfoHash([b'a'; 20])]);
        let hash = format!("info_hash={}", "a".repeat(20));
        for (tracker, expected) in [
            ("http://t.example/announce", Some("http://t.example/scrape?")),
            ("http://t.example/x/announce.php", Some("http://t.example/x/scrape.php?")),
            ("http://t.example/announce?k=/1", Some("http://t.example/scrape?k=/1&")),
            ("http://t.example/a", None),
            ("http://t.example/announce/k", None),
        ] {
            assert_eq!(at(tracker), expected.map(|it| format!("{it}{hash}")), "{tracker}");
        }
    }

    fn announces() -> impl Strategy<Value = Announce> {
        let event = prop_oneof![
            Just(Event::None),
            Just(Event::Started),
            Just(Event::Completed),
            Just(Event::Stopped)
        ];
        let form = prop_oneof![
            Just(PeerForm::Compact),
            Just(PeerForm::Dictionary),
            Just(PeerForm::DictionaryWithoutIds)
        ];
        (
            any::<([u8; 20], [u8; 20], u16, u64, u64)>(),
            any::<(Option<u64>, Option<u32>)>(),
            event,
            form,
        )
            .prop_map(
                |((hash, id, port, uploaded, downloaded), (left, want), event, form)| Announce {
                    info_hash: InfoHash(hash),
                    peer_id: PeerId(id),
                    port,
                    uploaded,
                    downloaded,
                    left,
                    event,
                    want,
                    key: want,
                    form,
                },
            )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(announce in announces(), has_query in any::<bool>()) {
            let tracker = if has_query { "http://t/announce?k=1" } else { "http://t/announce" };
            let url = announce_url(tracker, &announce);
            let query = url.split_once('?').unwrap().1;
            prop_assert_eq!(announce_query(query), Ok(announce.clone()));
            let url = scrape_url(tracker, &[announce.info_hash; 3]).unwrap();
            let query = url.split_once('?').unwrap().1;
            prop_assert_eq!(scrape_query(query), Ok(vec![announce.info_hash; 3]));
        }

        #[test]
        fn no_query_does_harm(query in "(info_hash|port|left|[=&%+0-9a-f]|\\PC){0,80}") {
            let _ = (announce_query(&query), scrape_query(&query), scrape_url(&query, &[]));
        }
    }
}
