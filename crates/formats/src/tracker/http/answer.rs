//! Answers to announces (BEP 3, 7, 23, 24) and scrapes (BEP 48), in bencoding.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io::Write as _;

use crate::tracker::bencode::{Malformed, Reader};
use crate::tracker::{
    AnnounceAnswer, InfoHash, PEERS_MAX, Peer, PeerForm, PeerId, SCRAPE_MAX, SwarmCounts,
};

/// Why an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The tracker refuses the request, for this reason.
    #[error("the tracker refuses: {0}")]
    Refused(String),
    /// The bytes are not an answer of a tracker.
    #[error("the answer is not one of a tracker: malformed at byte {0}")]
    Malformed(usize),
}

impl From<Malformed> for AnswerError {
    fn from(malformed: Malformed) -> AnswerError {
        AnswerError::Malformed(malformed.at)
    }
}

/// Appends the answer to an announce. Peers of IPv6 are in `peers6` in the compact form.
pub fn write_announce(out: &mut Vec<u8>, answer: &AnnounceAnswer, form: PeerForm) {
    // Keys are sorted.
    out.push(b'd');
    number(out, "complete", answer.seeders);
    if let Some(address) = answer.own_address {
        put(out, b"external ip");
        match address {
            IpAddr::V4(address) => put(out, &address.octets()),
            IpAddr::V6(address) => put(out, &address.octets()),
        }
    }
    number(out, "incomplete", answer.leechers);
    number(out, "interval", Some(answer.interval_s));
    number(out, "min interval", answer.min_interval_s);
    match form {
        PeerForm::Compact => write_compact(out, &answer.peers),
        PeerForm::Dictionary => write_dictionaries(out, &answer.peers, true),
        PeerForm::DictionaryWithoutIds => write_dictionaries(out, &answer.peers, false),
    }
    if let Some(warning) = &answer.warning {
        put(out, b"warning message");
        put(out, warning.as_bytes());
    }
    out.push(b'e');
}

/// Appends a refusal, in words that clients show to their users.
pub fn write_failure(out: &mut Vec<u8>, reason: &str) {
    out.extend_from_slice(b"d14:failure reason");
    put(out, reason.as_bytes());
    out.push(b'e');
}

/// Appends the answer to a scrape. Torrents should be sorted and different.
pub fn write_scrape(out: &mut Vec<u8>, torrents: &[(InfoHash, SwarmCounts)]) {
    out.extend_from_slice(b"d5:filesd");
    for (hash, counts) in torrents {
        put(out, &hash.0);
        let SwarmCounts { seeders, completed, leechers } = counts;
        let _ = write!(
            out,
            "d8:completei{seeders}e10:downloadedi{completed}e10:incompletei{leechers}ee"
        );
    }
    out.extend_from_slice(b"ee");
}

/// Reads the answer to an announce. Peers that cannot be reached (port 0, names instead of addresses)
/// are left out, as are those beyond [`PEERS_MAX`]. Without `interval` it is half an hour.
///
/// # Errors
/// [`AnswerError`].
pub fn read_announce(bytes: &[u8]) -> Result<AnnounceAnswer, AnswerError> {
    let mut answer = AnnounceAnswer { interval_s: INTERVAL_DEFAULT_S, ..AnnounceAnswer::default() };
    dictionary(&mut Reader::new(bytes), |key, value| {
        match key {
            b"complete" => answer.seeders = Some(count(value)?),
            b"incomplete" => answer.leechers = Some(count(value)?),
            b"interval" => answer.interval_s = count(value)?,
            b"min interval" => answer.min_interval_s = Some(count(value)?),
            b"warning message" => answer.warning = Some(text(value.string()?)),
            b"external ip" => answer.own_address = address(value.string()?),
            b"peers" => read_peers(value, &mut answer.peers)?,
            b"peers6" => read_compact::<18>(value, &mut answer.peers)?,
            _ => return other(key, value),
        }
        Ok(())
    })?;
    Ok(answer)
}

/// Reads the answer to a scrape: of at most [`SCRAPE_MAX`] torrents.
///
/// # Errors
/// [`AnswerError`].
pub fn read_scrape(bytes: &[u8]) -> Result<Vec<(InfoHash, SwarmCounts)>, AnswerError> {
    let mut torrents = Vec::new();
    dictionary(&mut Reader::new(bytes), |key, value| match key {
        b"files" => dictionary(value, |hash, value| {
            let hash = hash.try_into().map_err(|_| value.malformed())?;
            let mut counts = SwarmCounts::default();
            dictionary(value, |key, value| {
                match key {
                    b"complete" => counts.seeders = count(value)?,
                    b"downloaded" => counts.completed = count(value)?,
                    b"incomplete" => counts.leechers = count(value)?,
                    _ => value.skip()?,
                }
                Ok(())
            })?;
            if torrents.len() < SCRAPE_MAX {
                torrents.push((InfoHash(hash), counts));
            }
            Ok(())
        }),
        _ => other(key, value),
    })?;
    Ok(torrents)
}

/// Reads a dictionary. `entry` reads the value of each key.
fn dictionary<'a>(
    reader: &mut Reader<'a>,
    mut entry: impl FnMut(&'a [u8], &mut Reader<'a>) -> Result<(), AnswerError>,
) -> Result<(), AnswerError> {
    reader.expect(b'd')?;
    while !reader.take_if(b'e') {
        let key = reader.string()?;
        entry(key, reader)?;
    }
    Ok(())
}

/// Reads a value of a key that matters only if it is a refusal.
fn other(key: &[u8], value: &mut Reader<'_>) -> Result<(), AnswerError> {
    if key == b"failure reason" {
        return Err(AnswerError::Refused(text(value.string()?)));
    }
    Ok(value.skip()?)
}

/// Reads peers in the compact form or as a list of dictionaries.
fn read_peers(value: &mut Reader<'_>, peers: &mut Vec<Peer>) -> Result<(), AnswerError> {
    if !value.take_if(b'l') {
        return read_compact::<6>(value, peers);
    }
    while !value.take_if(b'e') {
        let (mut id, mut ip, mut port) = (None, None, 0);
        dictionary(value, |key, value| {
            match key {
                b"peer id" => id = value.string()?.try_into().ok().map(PeerId),
                b"ip" => {
                    ip = core::str::from_utf8(value.string()?).ok().and_then(|it| it.parse().ok())
                }
                b"port" => port = u16::try_from(value.integer()?).unwrap_or(0),
                _ => value.skip()?,
            }
            Ok(())
        })?;
        if let Some(ip) = ip {
            note(peers, SocketAddr::new(ip, port), id);
        }
    }
    Ok(())
}

/// Reads peers in the compact form, `N` bytes each. A peer that is cut off is left out.
fn read_compact<const N: usize>(
    value: &mut Reader<'_>,
    peers: &mut Vec<Peer>,
) -> Result<(), AnswerError> {
    for bytes in value.string()?.chunks_exact(N) {
        let (ip, port) = bytes.split_at(N - 2);
        if let Some(ip) = address(ip) {
            note(peers, SocketAddr::new(ip, u16::from_be_bytes([port[0], port[1]])), None);
        }
    }
    Ok(())
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
fn count(value: &mut Reader<'_>) -> Result<u32, AnswerError> {
    Ok(value.integer()?.clamp(0, u32::MAX.into()) as u32)
}

/// Reads a text for people, cut after [`TEXT_MAX`] characters.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * TEXT_MAX)]);
    text.chars().take(TEXT_MAX).collect()
}

/// Appends a byte string.
fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let _ = write!(out, "{}:", bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a key and its number, if there is one.
fn number(out: &mut Vec<u8>, key: &str, value: Option<u32>) {
    if let Some(value) = value {
        put(out, key.as_bytes());
        let _ = write!(out, "i{value}e");
    }
}

fn write_compact(out: &mut Vec<u8>, peers: &[Peer]) {
    let four = peers.iter().filter(|peer| peer.address.is_ipv4()).count();
    let _ = write!(out, "5:peers{}:", four * 6);
    for peer in peers {
        if let IpAddr::V4(ip) = peer.address.ip() {
            out.extend_from_slice(&ip.octets());
            out.extend_from_slice(&peer.address.port().to_be_bytes());
        }
    }
    if four == peers.len() {
        return;
    }
    let _ = write!(out, "6:peers6{}:", (peers.len() - four) * 18);
    for peer in peers {
        if let IpAddr::V6(ip) = peer.address.ip() {
            out.extend_from_slice(&ip.octets());
            out.extend_from_slice(&peer.address.port().to_be_bytes());
        }
    }
}

fn write_dictionaries(out: &mut Vec<u8>, peers: &[Peer], has_ids: bool) {
    out.extend_from_slice(b"5:peersl");
    for peer in peers {
        out.extend_from_slice(b"d2:ip");
        put(out, peer.address.ip().to_string().as_bytes());
        if let Some(PeerId(id)) = peer.id.filter(|_| has_ids) {
            out.extend_from_slice(b"7:peer id");
            put(out, &id);
        }
        let _ = write!(out, "4:porti{}ee", peer.address.port());
    }
    out.push(b'e');
}

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

    fn written(answer: &AnnounceAnswer, form: PeerForm) -> Vec<u8> {
        let mut out = Vec::new();
        write_announce(&mut out, answer, form);
        out
    }

    #[test]
    fn answers_have_sorted_keys() {
        let answer = AnnounceAnswer {
            interval_s: 1800,
            min_interval_s: Some(300),
            seeders: Some(2),
            leechers: Some(1),
            peers: vec![peer("10.0.0.1:258", Some(b'i'))],
            warning: Some("hm".to_owned()),
            own_address: Some("1.2.3.4".parse().unwrap()),
        };
        assert_eq!(
            written(&answer, PeerForm::Compact),
            b"d8:completei2e11:external ip4:\x01\x02\x03\x0410:incompletei1e8:intervali1800e\
              12:min intervali300e5:peers6:\x0a\0\0\x01\x01\x0215:warning message2:hme"
        );
        let bare =
            AnnounceAnswer { peers: answer.peers, interval_s: 5, ..AnnounceAnswer::default() };
        assert_eq!(
            written(&bare, PeerForm::Dictionary),
            b"d8:intervali5e5:peersld2:ip8:10.0.0.17:peer id20:iiiiiiiiiiiiiiiiiiii4:porti258eeee"
        );
        assert_eq!(
            written(&bare, PeerForm::DictionaryWithoutIds),
            b"d8:intervali5e5:peersld2:ip8:10.0.0.14:porti258eeee"
        );
    }

    #[test]
    fn answers_in_use_are_understood() {
        // Unsorted keys, unknown ones, a name instead of an address, a peer that is cut off.
        let bytes = b"d8:intervali60e4:oddsld1:xi1eee5:peersld2:ip9:localhost4:porti1eed2:ip3:::1\
                      4:porti7eee6:peers61:xe";
        let read = read_announce(bytes).unwrap();
        assert_eq!((read.interval_s, read.peers), (60, vec![peer("[::1]:7", None)]));
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
        let mut out = Vec::new();
        write_failure(&mut out, "not here");
        assert_eq!(out, b"d14:failure reason8:not heree");
        let refused = AnswerError::Refused("not here".to_owned());
        assert_eq!(read_announce(&out), Err(refused.clone()));
        assert_eq!(read_scrape(&out), Err(refused));
        let long = [b"d14:failure reason2000:".as_slice(), &[b'x'; 2000], b"e"].concat();
        let Err(AnswerError::Refused(reason)) = read_announce(&long) else { panic!() };
        assert_eq!(reason.len(), TEXT_MAX);
    }

    #[test]
    fn malformed_answers_are_refused_with_their_place() {
        for (bytes, at) in [
            (&b""[..], 0),
            (b"<html>", 0),
            (b"d8:intervali60e", 15),
            (b"d5:peersi1ee", 8),
            (b"d5:peersld2:ipi1eee", 14),
            (b"d8:interval2:60e", 11),
        ] {
            assert_eq!(read_announce(bytes), Err(AnswerError::Malformed(at)), "{bytes:?}");
        }
        assert_eq!(read_scrape(b"d5:filesd3:abcdeee"), Err(AnswerError::Malformed(14)));
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
                warning,
                own_address: counts.0.map(|it| Ipv4Addr::from(it).into()),
            };
            prop_assert_eq!(&read_announce(&written(&answer, PeerForm::Dictionary)).unwrap(), &answer);
            let mut without = answer;
            without.peers.iter_mut().for_each(|peer| peer.id = None);
            for form in [PeerForm::Compact, PeerForm::DictionaryWithoutIds] {
                prop_assert_eq!(&read_announce(&written(&without, form)).unwrap(), &without);
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
            let mut out = Vec::new();
            write_scrape(&mut out, &torrents);
            prop_assert_eq!(read_scrape(&out).unwrap(), torrents);
        }

        #[test]
        fn no_answer_does_harm(bytes in "(d|l|e|i1e|5:peers|6:peers6|5:files|2:ip|1:x|[0-9:]){0,40}") {
            let _ = (read_announce(bytes.as_bytes()), read_scrape(bytes.as_bytes()));
        }
    }
}
