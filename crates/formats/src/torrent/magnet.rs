//! Magnet links (BEP 9, 53): a torrent by its info-hashes alone.
//!
//! Reading is lenient, because links are copied by hand and through web pages: order, unknown keys,
//! numbered keys (`tr.1`) and `&amp;` do no harm, and what cannot be used is left out and noted. Only the info-hashes must be right.

use std::fmt;
use std::str::FromStr;

use swath_model::{Range, RangeSet};
use url::Url;

use super::unused::{Unused, unused};
use super::{InfoHashError, InfoHashV1, InfoHashV2, tracker_url};
use crate::mirror_url::mirror_url;
use crate::peer_address::PeerAddress;
use crate::percent;

/// A magnet link. It has at least one info-hash; with both, they are those of one hybrid torrent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Magnet {
    /// The v1 info-hash (`xt=urn:btih:`).
    pub hash_v1: Option<InfoHashV1>,
    /// The v2 info-hash (`xt=urn:btmh:`).
    pub hash_v2: Option<InfoHashV2>,
    /// A name to show until the torrent's own is known, as written (`dn`).
    pub name: Option<String>,
    /// The length of all files (`xl`).
    pub length_bytes: Option<u64>,
    /// Trackers, all in one tier (`tr`).
    pub trackers: Vec<Url>,
    /// Addresses of the metafile (`xs`).
    pub metafiles: Vec<Url>,
    /// Mirrors of the files (`ws`, and `as` of older links).
    pub web_seeds: Vec<Url>,
    /// Peers to ask first (`x.pe`).
    pub peers: Vec<PeerAddress>,
    /// The numbers of the files to fetch, from 0; all if empty (`so`, BEP 53).
    pub select: RangeSet,
    /// What the link says besides, and what of it cannot be used.
    pub unused: Vec<Unused>,
}

impl Magnet {
    /// Returns whether a text looks like a magnet link.
    pub fn is_magnet(text: &str) -> bool {
        text.trim_start().get(..SCHEME.len()).is_some_and(|it| it.eq_ignore_ascii_case(SCHEME))
    }

    /// Takes one parameter of the link.
    fn take(&mut self, key: &str, value: &str) -> Result<(), MagnetError> {
        let text = percent::decode_text(value);
        let web = |text: &str| mirror_url(text, None).ok();
        let is_used = match key {
            "xt" => self.take_topic(&text)?,
            "dn" => {
                // Names often come from forms, which write a space as '+'.
                let name = percent::decode_text(&value.replace('+', " "));
                self.name = self.name.take().or(Some(name)).filter(|name| !name.is_empty());
                true
            }
            "xl" => {
                self.length_bytes = self.length_bytes.or(crate::number(value));
                self.length_bytes.is_some()
            }
            "so" => take_numbers(&mut self.select, &text),
            "tr" => push(&mut self.trackers, tracker_url(&text)),
            "xs" => push(&mut self.metafiles, web(&text)),
            "ws" | "as" => push(&mut self.web_seeds, web(&text)),
            "x.pe" => push(&mut self.peers, text.parse().ok()),
            _ => false,
        };
        if !is_used && !key.is_empty() && !text.is_empty() {
            unused(&mut self.unused, key, &text);
        }
        Ok(())
    }

    /// Takes an info-hash; returns whether it is one. Links may name files of other networks besides.
    fn take_topic(&mut self, topic: &str) -> Result<bool, MagnetError> {
        if let Some(hash) = without_prefix(topic, "urn:btih:") {
            set(&mut self.hash_v1, hash.parse().map_err(MagnetError::Hash)?)?;
        } else if let Some(hash) = without_prefix(topic, "urn:btmh:") {
            // The multihash of SHA-256 begins with its number and its length.
            let hash = hash.strip_prefix("1220").ok_or(MagnetError::Multihash)?;
            set(&mut self.hash_v2, hash.parse().map_err(MagnetError::Hash)?)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

impl FromStr for Magnet {
    type Err = MagnetError;

    fn from_str(text: &str) -> Result<Magnet, MagnetError> {
        let text = text.trim();
        if text.len() > LINK_BYTES_MAX {
            return Err(MagnetError::TooLong { bytes: text.len() });
        }
        let parameters = without_prefix(text, SCHEME).ok_or(MagnetError::NotMagnet)?;
        let mut magnet = Magnet::default();
        for parameter in parameters.trim_start_matches('?').split('&') {
            // What is left of `&amp;` of a web page.
            let parameter = parameter.strip_prefix("amp;").unwrap_or(parameter);
            if let Some((key, value)) = parameter.split_once('=') {
                let key = key.to_ascii_lowercase();
                let key = match key.rsplit_once('.') {
                    Some((key, number)) if crate::number(number).is_some() => key,
                    _ => &key,
                };
                magnet.take(key, value)?;
            }
        }
        if magnet.hash_v1.is_none() && magnet.hash_v2.is_none() {
            return Err(MagnetError::NoHash);
        }
        Ok(magnet)
    }
}

impl fmt::Display for Magnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        let mut separator = '?';
        let mut write = |key: &str, value: &dyn fmt::Display| {
            write!(f, "{separator}{key}={value}")?;
            separator = '&';
            Ok(())
        };
        if let Some(hash) = self.hash_v1 {
            write("xt", &format_args!("urn:btih:{hash}"))?;
        }
        if let Some(hash) = self.hash_v2 {
            write("xt", &format_args!("urn:btmh:1220{hash}"))?;
        }
        if let Some(name) = &self.name {
            write("dn", &percent::encode(name.as_bytes()))?;
        }
        if let Some(length_bytes) = self.length_bytes {
            write("xl", &length_bytes)?;
        }
        for url in &self.trackers {
            write("tr", &encoded_whole(url))?;
        }
        for url in &self.metafiles {
            write("xs", &encoded_whole(url))?;
        }
        for url in &self.web_seeds {
            write("ws", &encoded_whole(url))?;
        }
        for peer in &self.peers {
            write("x.pe", peer)?;
        }
        if !self.select.is_empty() {
            let ranges = self.select.iter().map(|range| match range.len() {
                1 => range.start.to_string(),
                _ => format!("{}-{}", range.start, range.end - 1),
            });
            write("so", &ranges.collect::<Vec<_>>().join(","))?;
        }
        Ok(())
    }
}

/// Why a magnet link cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MagnetError {
    /// It is no magnet link.
    #[error("a magnet link begins with magnet:?")]
    NotMagnet,
    /// It is longer than any real one.
    #[error("it has {bytes} bytes where {LINK_BYTES_MAX} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It names no torrent; maybe a file of another network.
    #[error("it has no info-hash (xt=urn:btih:… or xt=urn:btmh:…)")]
    NoHash,
    /// An unreadable info-hash.
    #[error("its info-hash is not readable: {0}")]
    Hash(InfoHashError),
    /// A v2 info-hash of another function than SHA-256.
    #[error("its v2 info-hash is not a SHA-256 (urn:btmh:1220…)")]
    Multihash,
    /// Two different info-hashes of one version.
    #[error("it names two different torrents")]
    TwoTorrents,
}

fn set<T: PartialEq>(slot: &mut Option<T>, value: T) -> Result<(), MagnetError> {
    if slot.as_ref().is_some_and(|before| *before != value) {
        return Err(MagnetError::TwoTorrents);
    }
    *slot = Some(value);
    Ok(())
}

/// Adds an item unless it is there already or there are too many; returns whether it is there now.
fn push<T: PartialEq>(list: &mut Vec<T>, item: Option<T>) -> bool {
    let Some(item) = item else { return false };
    let is_there = list.contains(&item);
    if !is_there && list.len() < ITEMS_MAX {
        list.push(item);
        return true;
    }
    is_there
}

/// Adds the numbers of `0,2,4,6-8`; what is none is left out. Returns whether all are numbers.
fn take_numbers(numbers: &mut RangeSet, text: &str) -> bool {
    let mut are_all = true;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Some(first), Some(last)) = (crate::number(first), crate::number(last))
            && first <= last
            && last <= u64::from(u32::MAX)
        {
            numbers.insert(Range::new(first, last + 1));
        } else {
            are_all = false;
        }
    }
    are_all
}

fn without_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (begin, rest) = text.split_at_checked(prefix.len())?;
    begin.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Encodes an address, its `/` too: some readers end a value there.
fn encoded_whole(url: &Url) -> String {
    percent::encode(url.as_str().as_bytes()).replace('/', "%2F")
}

const SCHEME: &str = "magnet:";
/// Real ones have a few thousand, most of it trackers.
const LINK_BYTES_MAX: usize = 64 * 1024;
/// More trackers, web seeds or peers are never asked in time.
const ITEMS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V1: &str = "c9e15763f722f23e98a29decdfae341b98d53056";

    #[test]
    fn the_examples_of_the_beps_are_read() {
        let link = format!(
            "magnet:?xt=urn:btih:{V1}&dn=a%20b+c&tr=udp%3A%2F%2Ft.example%3A6969&x.pe=10.0.0.1:6881\
             &x.pe=[2001:db8::1]:6882&so=0,2,4,6-8&xl=1000&ws=https%3A%2F%2Fm.example%2Fd%2F"
        );
        let magnet: Magnet = link.parse().unwrap();
        assert_eq!(magnet.hash_v1.unwrap().to_string(), V1);
        assert_eq!(magnet.hash_v2, None);
        assert_eq!(magnet.name.as_deref(), Some("a b c"));
        assert_eq!(magnet.trackers[0].as_str(), "udp://t.example:6969");
        assert_eq!(magnet.web_seeds[0].as_str(), "https://m.example/d/");
        assert_eq!(magnet.length_bytes, Some(1000));
        let peers: Vec<_> = magnet.peers.iter().map(|peer| (&*peer.host, peer.port)).collect();
        assert_eq!(peers, [("10.0.0.1", 6881), ("2001:db8::1", 6882)]);
        let select: Vec<_> = magnet.select.iter().map(|range| (range.start, range.end)).collect();
        assert_eq!(select, [(0, 1), (2, 3), (4, 5), (6, 9)]);
        assert!(Magnet::is_magnet(&link) && !Magnet::is_magnet("magne"));
    }

    #[test]
    fn a_hybrid_has_both_hashes() {
        let v2 = "ab".repeat(32);
        let link =
            format!("MAGNET:?xt=urn:btmh:1220{v2}&xt=urn:btih:ZHQVOY7XELZD5GFCTXWN7LRUDOMNKMCW");
        let magnet: Magnet = link.parse().unwrap();
        assert_eq!(magnet.hash_v1, Some(V1.parse().unwrap()));
        assert_eq!(magnet.hash_v2.unwrap().to_string(), v2);
        assert_eq!(magnet.to_string(), format!("magnet:?xt=urn:btih:{V1}&xt=urn:btmh:1220{v2}"));
    }

    #[test]
    fn sloppy_links_are_read() {
        for link in [
            format!("  magnet:?dn=x&amp;xt.1=urn:btih:{V1}&amp;tr.1=http://t.example/a&foo&=&x\n"),
            format!(
                "magnet:tr=http://t.example/a&xt=urn%3Abtih%3A{V1}&tr=:&tr=data:,x&ws=ftp://x/"
            ),
            format!(
                "magnet:?xt=urn:btih:{V1}&xt=urn:btih:{V1}&xt=urn:sha1:XYZ&tr=http://t.example/a"
            ),
            format!(
                "magnet:?xt=urn:btih:{V1}&tr=http://t.example/a&x.pe=x&x.pe=a:0&x.pe=[1]:1&so=2-1,-,x"
            ),
        ] {
            let magnet: Magnet = link.parse().unwrap();
            assert_eq!(magnet.hash_v1, Some(V1.parse().unwrap()), "{link}");
            assert_eq!(magnet.trackers.len(), 1, "{link}");
            assert!(
                magnet.web_seeds.is_empty() && magnet.peers.is_empty() && magnet.select.is_empty()
            );
        }
    }

    #[test]
    fn what_is_not_used_is_noted() {
        let link = format!(
            "magnet:?xt=urn:btih:{V1}&xt=urn:sha1:XYZ&tr=wss://t.example/key&kt=sea+ice&so=1,x&x.pe=a:0\
             &xs=https%3A%2F%2Fm.example%2Fx.torrent&xs=dchub://h.example/&as=http://m.example/f&dn=&foo&=&mt="
        );
        let magnet: Magnet = link.parse().unwrap();
        let unused: Vec<String> = magnet.unused.iter().map(ToString::to_string).collect();
        let all = ["xt=urn:sha1:XYZ", "tr=wss://t.example", "kt=sea+ice", "so=1,x", "x.pe=a:0"];
        assert_eq!(unused, [&all[..], &["xs=dchub://h.example"]].concat());
        let text = |urls: &[Url]| urls.iter().map(|url| url.to_string()).collect::<Vec<_>>();
        assert_eq!(text(&magnet.metafiles), ["https://m.example/x.torrent"]);
        assert_eq!(text(&magnet.web_seeds), ["http://m.example/f"]);
    }

    #[test]
    fn links_without_a_clear_torrent_are_refused() {
        let other = V1.replace('c', "d");
        for (link, why) in [
            ("http://x/".to_owned(), "begins with magnet"),
            ("magnet:?dn=x".to_owned(), "no info-hash"),
            ("magnet:?xt=urn:btih:abc".to_owned(), "not 3"),
            (format!("magnet:?xt=urn:btih:{V1}&xt=urn:btih:{other}"), "two different"),
            (format!("magnet:?xt=urn:btmh:1114{V1}"), "not a SHA-256"),
            (format!("magnet:?xt=urn:btih:{V1}&dn={}", "x".repeat(70_000)), "70064 bytes"),
        ] {
            let error = link.parse::<Magnet>().unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
        let many = format!(
            "magnet:?xt=urn:btih:{V1}{}",
            (0..900).map(|i| format!("&tr=http://{i}.example/")).collect::<String>()
        );
        assert_eq!(many.parse::<Magnet>().unwrap().trackers.len(), ITEMS_MAX);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            v1: Option<[u8; 20]>, v2: Option<[u8; 32]>,
            name in prop::option::of("\\PC{1,20}"),
            length_bytes: Option<u64>,
            hosts in prop::collection::btree_set("[a-z]{1,5}", 0..4),
            select in prop::collection::vec((0..50u64, 1..5u64), 0..4),
        ) {
            prop_assume!(v1.is_some() || v2.is_some());
            let url = |host: &String| Url::parse(&format!("https://{host}.example/a?b=c&d=%20")).unwrap();
            let magnet = Magnet {
                hash_v1: v1.map(InfoHashV1),
                hash_v2: v2.map(InfoHashV2),
                name,
                length_bytes,
                trackers: hosts.iter().map(url).collect(),
                metafiles: hosts.iter().map(url).collect(),
                web_seeds: hosts.iter().map(url).collect(),
                unused: Vec::new(),
                peers: hosts.iter().map(|host| PeerAddress { host: host.clone(), port: 1 }).collect(),
                select: select.iter().map(|(start, len)| Range::of_len(*start, *len)).collect(),
            };
            prop_assert_eq!(magnet.to_string().parse(), Ok(magnet));
        }

        #[test]
        fn nothing_panics(text in "magnet:\\?(xt|dn|so|x.pe|tr)=[\\PC&=]{0,60}") {
            let _ = text.parse::<Magnet>();
        }
    }
}
