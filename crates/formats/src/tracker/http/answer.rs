//! Answers to announces (BEP 3, 7, 23, 24) and scrapes (BEP 48), in bencoding.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::peer_address::PeerAddress;
use crate::text::trim_blanks;
use crate::torrent::bencode::{self, BencodeError, Value, Writer};
use crate::tracker::{
    AnnounceAnswer, InfoHash, PEERS_MAX, Peer, PeerForm, PeerId, SCRAPE_MAX, SwarmCounts,
};

/// Why an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The tracker refuses the request, for this reason.
    #[error("the tracker refuses: {0}")]
    Refused(String),
    /// The bytes are not bencoded.
    #[error("the answer is not one of a tracker: {0}")]
    Malformed(#[from] BencodeError),
    /// It is not a dictionary with what answers have.
    #[error("the answer is not one of a tracker: it lacks what answers have")]
    Foreign,
}

/// Returns the answer to an announce. Peers of IPv6 are in `peers6` in the compact form.
pub fn write_announce(answer: &AnnounceAnswer, form: PeerForm) -> Vec<u8> {
    // Keys are sorted.
    let mut out = Writer::new();
    out.dict();
    number(&mut out, "complete", answer.seeders);
    match answer.own_address {
        None => {}
        Some(IpAddr::V4(address)) => _ = out.text("external ip").bytes(&address.octets()),
        Some(IpAddr::V6(address)) => _ = out.text("external ip").bytes(&address.octets()),
    }
    number(&mut out, "incomplete", answer.leechers);
    number(&mut out, "interval", Some(answer.interval_s));
    number(&mut out, "min interval", answer.min_interval_s);
    match form {
        PeerForm::Compact => write_compact(&mut out, &answer.peers),
        PeerForm::Dictionary => write_dictionaries(&mut out, &answer.peers, true),
        PeerForm::DictionaryWithoutIds => write_dictionaries(&mut out, &answer.peers, false),
    }
    if let Some(warning) = &answer.warning {
        out.text("warning message").text(warning);
    }
    out.end();
    out.finish()
}

/// Returns a refusal, in words that clients show to their users.
pub fn write_failure(reason: &str) -> Vec<u8> {
    let mut out = Writer::new();
    out.dict().text("failure reason").text(reason).end();
    out.finish()
}

/// Returns the answer to a scrape. Torrents should be sorted and different.
pub fn write_scrape(torrents: &[(InfoHash, SwarmCounts)]) -> Vec<u8> {
    let mut out = Writer::new();
    out.dict().text("files").dict();
    for (hash, SwarmCounts { seeders, completed, leechers }) in torrents {
        out.bytes(&hash.0).dict();
        number(&mut out, "complete", Some(*seeders));
        number(&mut out, "downloaded", Some(*completed));
        number(&mut out, "incomplete", Some(*leechers));
        out.end();
    }
    out.end().end();
    out.finish()
}

/// Reads the answer to an announce. Peers that cannot be reached (port 0) are left out, as are
/// those beyond [`PEERS_MAX`], names beyond the first few, and fields of another kind. Without `interval` it
/// is half an hour.
///
/// # Errors
/// [`AnswerError`].
pub fn read_announce(bytes: &[u8]) -> Result<AnnounceAnswer, AnswerError> {
    let dictionary = unless_refused(bytes)?;
    let field = |key: &str| dictionary.get(key.as_bytes());
    let (interval_s, lists) =
        (field("interval").and_then(count), [field("peers"), field("peers6")]);
    if interval_s.is_none() && lists == [None, None] {
        return Err(AnswerError::Foreign);
    }
    let (mut peers, mut named) = (Vec::new(), Vec::new());
    let [four, six] = lists.map(|list| list.and_then(Value::bytes).unwrap_or_default());
    read_compact::<6>(four, &mut peers);
    read_dictionaries(lists[0], &mut peers, &mut named);
    read_compact::<18>(six, &mut peers);
    Ok(AnnounceAnswer {
        interval_s: interval_s.unwrap_or(INTERVAL_DEFAULT_S),
        min_interval_s: field("min interval").and_then(count),
        seeders: field("complete").and_then(count),
        leechers: field("incomplete").and_then(count),
        peers,
        named,
        warning: field("warning message").and_then(Value::bytes).map(text),
        own_address: field("external ip").and_then(Value::bytes).and_then(address),
    })
}

/// Reads the answer to a scrape: of at most [`SCRAPE_MAX`] torrents.
///
/// # Errors
/// [`AnswerError`].
pub fn read_scrape(bytes: &[u8]) -> Result<Vec<(InfoHash, SwarmCounts)>, AnswerError> {
    let files = unless_refused(bytes)?.get(b"files").and_then(Value::dict);
    let torrent = |(hash, value): (&[u8], Value<'_>)| {
        let field = |key: &str| value.get(key.as_bytes()).and_then(count).unwrap_or(0);
        let counts = SwarmCounts {
            seeders: field("complete"),
            completed: field("downloaded"),
            leechers: field("incomplete"),
        };
        Some((InfoHash(hash.try_into().ok()?), counts))
    };
    Ok(files.ok_or(AnswerError::Foreign)?.filter_map(torrent).take(SCRAPE_MAX).collect())
}

/// Returns the dictionary of an answer.
fn unless_refused(bytes: &[u8]) -> Result<Value<'_>, AnswerError> {
    let value = bencode::read(bytes)?.value;
    match value.get(b"failure reason").and_then(Value::bytes) {
        Some(reason) => Err(AnswerError::Refused(text(reason))),
        None => Ok(value),
    }
}

/// Reads peers in the compact form, `N` bytes each. A peer that is cut off is left out.
fn read_compact<const N: usize>(bytes: &[u8], peers: &mut Vec<Peer>) {
    for bytes in bytes.chunks_exact(N) {
        let (ip, port) = bytes.split_at(N - 2);
        if let Some(ip) = address(ip) {
            note(peers, SocketAddr::new(ip, u16::from_be_bytes([port[0], port[1]])), None);
        }
    }
}

/// Reads peers of a list of dictionaries, if it is one.
fn read_dictionaries(list: Option<Value<'_>>, peers: &mut Vec<Peer>, named: &mut Vec<PeerAddress>) {
    for peer in list.and_then(Value::list).into_iter().flatten() {
        let host = peer.get(b"ip").and_then(Value::text).map(trim_blanks);
        let port = peer.get(b"port").and_then(Value::int).and_then(|it| u16::try_from(it).ok());
        let (Some(host), Some(port)) = (host, port) else { continue };
        if let Ok(ip) = host.parse() {
            let id = peer.get(b"peer id").and_then(Value::bytes);
            let id = id.and_then(|it| it.try_into().ok()).map(PeerId);
            note(peers, SocketAddr::new(ip, port), id);
        } else if named.len() < NAMED_MAX
            && let Ok(peer) = format!("{host}:{port}").parse()
            && !named.contains(&peer)
        {
            named.push(peer);
        }
    }
}

fn note(peers: &mut Vec<Peer>, address: SocketAddr, id: Option<PeerId>) {
    if address.port() != 0 && peers.len() < PEERS_MAX {
        peers.push(Peer { address, id });
    }
}

/// Reads an address of 4 or 16 bytes.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = || <[u8; 4]>::try_from(bytes).ok().map(|it| Ipv4Addr::from(it).into());
    let six = || <[u8; 16]>::try_from(bytes).ok().map(|it| Ipv6Addr::from(it).into());
    four().or_else(six)
}

/// Reads a count. Trackers that do not know send −1 or numbers beyond all bounds.
fn count(value: Value<'_>) -> Option<u32> {
    value.int().map(|it| it.clamp(0, u32::MAX.into()) as u32)
}

/// Reads a text for people, cut after [`TEXT_MAX`] characters.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * TEXT_MAX)]);
    text.chars().take(TEXT_MAX).collect()
}

/// Writes a key and its number, if there is one.
fn number(out: &mut Writer, key: &str, value: Option<u32>) {
    if let Some(value) = value {
        out.text(key).int(value.into());
    }
}

fn write_compact(out: &mut Writer, peers: &[Peer]) {
    let (mut four, mut six) = (Vec::new(), Vec::new());
    for peer in peers {
        let port = peer.address.port().to_be_bytes();
        match peer.address.ip() {
            IpAddr::V4(ip) => four.extend(ip.octets().into_iter().chain(port)),
            IpAddr::V6(ip) => six.extend(ip.octets().into_iter().chain(port)),
        }
    }
    out.text("peers").bytes(&four);
    if !six.is_empty() {
        out.text("peers6").bytes(&six);
    }
}

fn write_dictionaries(out: &mut Writer, peers: &[Peer], has_ids: bool) {
    out.text("peers").list();
    for peer in peers {
        out.dict().text("ip").text(&peer.address.ip().to_string());
        if let Some(PeerId(id)) = peer.id.filter(|_| has_ids) {
            out.text("peer id").bytes(&id);
        }
        out.text("port").int(peer.address.port().into()).end();
    }
    out.end();
}

/// Peers by name are those of a cluster; many names would make us ask the resolver for others.
const NAMED_MAX: usize = 50;
/// What most trackers say.
const INTERVAL_DEFAULT_S: u32 = 1_800;
/// Trackers write a sentence or two.
const TEXT_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peer(text: &str, id: Option<u8>) -> Peer {
        Peer { address: text.parse().unwrap(), id: id.map(|byte| PeerId([byte; 20])) }
    }

    #[test]
    fn answers_have_sorted_keys() {
        let answer = AnnounceAnswer {
            interval_s: 1800,
            min_interval_s: Some(300),
            seeders: Some(2),
            leechers: Some(1),
            peers: vec![peer("10.0.0.1:258", Some(b'i'))],
            named: Vec::new(),
            warning: Some("hm".to_owned()),
            own_address: Some("1.2.3.4".parse().unwrap()),
        };
        assert_eq!(
            write_announce(&answer, PeerForm::Compact),
            b"d8:completei2e11:external ip4:\x01\x02\x03\x0410:incompletei1e8:intervali1800e\
              12:min intervali300e5:peers6:\x0a\0\0\x01\x01\x0215:warning message2:hme"
        );
        let bare =
            AnnounceAnswer { peers: answer.peers, interval_s: 5, ..AnnounceAnswer::default() };
        assert_eq!(
            write_announce(&bare, PeerForm::Dictionary),
            b"d8:intervali5e5:peersld2:ip8:10.0.0.17:peer id20:iiiiiiiiiiiiiiiiiiii4:porti258eeee"
        );
        assert_eq!(
            write_announce(&bare, PeerForm::DictionaryWithoutIds),
            b"d8:intervali5e5:peersld2:ip8:10.0.0.14:porti258eeee"
        );
    }

    #[test]
    fn answers_in_use_are_understood() {
        // Unsorted keys, unknown ones, a name instead of an address, a peer that is cut off.
        let bytes = b"d8:intervali60e4:oddsld1:xi1eee5:peersld2:ip9:localhost4:porti7eed2:ip3:::1\
                      4:porti7eed2:ip3:a b4:porti7eee6:peers61:xe";
        let read = read_announce(bytes).unwrap();
        assert_eq!((read.interval_s, read.peers), (60, vec![peer("[::1]:7", None)]));
        assert_eq!(read.named, ["localhost:7".parse().unwrap()]);
        let many = format!(
            "d5:peersl{}ee",
            (100..300).map(|it| format!("d2:ip4:n{it}4:porti7ee")).collect::<String>()
        );
        assert_eq!(read_announce(many.as_bytes()).unwrap().named.len(), NAMED_MAX);
        let read =
            read_announce(b"d8:completei-1e5:peers13:\x01\x02\x03\x04\0\0\x05\x06\x07\x08\0\x09xe");
        let read = read.unwrap();
        assert_eq!((read.seeders, read.peers), (Some(0), vec![peer("5.6.7.8:9", None)]));
        assert_eq!(read.interval_s, INTERVAL_DEFAULT_S);
        let many = [b"d5:peers60000:".as_slice(), &[1; 60_000], b"e"].concat();
        assert_eq!(read_announce(&many).unwrap().peers.len(), PEERS_MAX);
    }

    #[test]
    fn refusals_are_told_in_the_trackers_words() {
        let out = write_failure("not here");
        assert_eq!(out, b"d14:failure reason8:not heree");
        let refused = AnswerError::Refused("not here".to_owned());
        assert_eq!(read_announce(&out), Err(refused.clone()));
        assert_eq!(read_scrape(&out), Err(refused));
        let long = [b"d14:failure reason2000:".as_slice(), &[b'x'; 2000], b"e"].concat();
        let Err(AnswerError::Refused(reason)) = read_announce(&long) else { panic!() };
        assert_eq!(reason.len(), TEXT_MAX);
    }

    #[test]
    fn answers_of_others_are_refused() {
        let syntax = |byte| Err(AnswerError::Malformed(BencodeError::Syntax { byte }));
        let truncated = Err(AnswerError::Malformed(BencodeError::Truncated));
        assert_eq!(read_announce(b""), truncated);
        assert_eq!(read_announce(b"d8:intervali60e"), truncated);
        assert_eq!(read_announce(b"<html>"), syntax(0));
        for foreign in [&b"de"[..], b"le", b"i5e", b"d8:interval2:60e"] {
            assert_eq!(read_announce(foreign), Err(AnswerError::Foreign), "{foreign:?}");
        }
        assert_eq!(read_scrape(b"d5:filesi1ee"), Err(AnswerError::Foreign));
        // What is of another kind inside counts as missing.
        assert_eq!(read_scrape(b"d5:filesd3:abcdeee"), Ok(Vec::new()));
        assert_eq!(read_announce(b"d5:peersld2:ipi1eeee").unwrap().peers, []);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            interval_s in any::<u32>(),
            counts in any::<(Option<u32>, Option<u32>, Option<u32>)>(),
            four in prop::collection::vec(any::<([u8; 4], u16, u8)>(), 0..9),
            six in prop::collection::vec(any::<([u8; 16], u16, u8)>(), 0..9),
            warning in prop::option::of("\\PC{0,20}"),
        ) {
            let four = four.iter().map(|(ip, port, id)| (IpAddr::from(*ip), *port, *id));
            let six = six.iter().map(|(ip, port, id)| (IpAddr::from(*ip), *port, *id));
            let peers = four.chain(six).map(|(ip, port, id)| Peer {
                address: SocketAddr::new(ip, port.max(1)),
                id: Some(PeerId([id; 20])),
            });
            let answer = AnnounceAnswer {
                interval_s,
                min_interval_s: counts.0,
                seeders: counts.1,
                leechers: counts.2,
                peers: peers.collect(),
                named: Vec::new(),
                warning,
                own_address: counts.0.map(|it| Ipv4Addr::from(it).into()),
            };
            prop_assert_eq!(&read_announce(&write_announce(&answer, PeerForm::Dictionary)).unwrap(), &answer);
            let mut without = answer;
            without.peers.iter_mut().for_each(|peer| peer.id = None);
            for form in [PeerForm::Compact, PeerForm::DictionaryWithoutIds] {
                prop_assert_eq!(&read_announce(&write_announce(&without, form)).unwrap(), &without);
            }
        }

        #[test]
        fn scrapes_are_read_as_written(counts in prop::collection::vec(any::<([u8; 20], u32, u32, u32)>(), 0..9)) {
            let torrents: Vec<_> = counts
                .into_iter()
                .map(|(hash, seeders, completed, leechers)| {
                    (InfoHash(hash), SwarmCounts { seeders, completed, leechers })
                })
                .collect();
            let out = write_scrape(&torrents);
            prop_assert_eq!(read_scrape(&out).unwrap(), torrents);
        }

        #[test]
        fn no_answer_does_harm(bytes in "(d|l|e|i1e|5:peers|6:peers6|5:files|2:ip|1:x|[0-9:]){0,40}") {
            let _ = (read_announce(bytes.as_bytes()), read_scrape(bytes.as_bytes()));
        }
    }
}
