//! Peer ids (BEP 20): 20 bytes that name a peer, and by convention its program.

use std::fmt;

/// The id of a peer. Shown as the name of its program, with control characters escaped.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerId(pub [u8; 20]);

impl PeerId {
    /// Returns an id of this program, made of 12 random bytes.
    pub fn new(random: [u8; 12]) -> PeerId {
        let mut id = [0; 20];
        id[..8].copy_from_slice(OUR_PREFIX);
        id[8..].copy_from_slice(&random);
        PeerId(id)
    }

    /// Returns the program's name and version, such as `qBittorrent 4.5.2`, from an id in the style
    /// of Azureus, aria2 or Mainline; otherwise the id's printable beginning.
    pub fn client(&self) -> String {
        self.azureus().or_else(|| self.with_dashes()).unwrap_or_else(|| {
            let end = self.0.iter().position(|byte| !byte.is_ascii_graphic()).unwrap_or(20);
            match end {
                0 => self.0[..8].escape_ascii().to_string(),
                _ => self.0[..end].escape_ascii().to_string(),
            }
        })
    }

    /// `-qB4520-` and 12 more bytes: two letters, four digits of the version.
    fn azureus(&self) -> Option<String> {
        let [b'-', a, b, version @ .., b'-'] = &self.0[..8] else { return None };
        if !version.iter().all(u8::is_ascii_alphanumeric) {
            return None;
        }
        let numbers: Vec<_> =
            version.iter().filter_map(|digit| char::from(*digit).to_digit(36)).collect();
        let shown = if numbers.last() == Some(&0) { &numbers[..3] } else { &numbers };
        Some(named(&[*a, *b], shown.iter().map(u32::to_string)))
    }

    /// `A2-1-36-0-…` (aria2) and `M7-10-5-…` (Mainline): numbers between dashes.
    fn with_dashes(&self) -> Option<String> {
        let (code, rest) = match &self.0[..] {
            [b'M', rest @ ..] => (&b"M"[..], rest),
            [_, _, b'-', rest @ ..] => (&self.0[..2], rest),
            [b'-', _, _, b'-', rest @ ..] => (&self.0[1..3], rest),
            _ => return None,
        };
        let is_number =
            |part: &&[u8]| (1..=3).contains(&part.len()) && part.iter().all(u8::is_ascii_digit);
        let mut parts: Vec<_> = rest.split(|byte| *byte == b'-').collect();
        // Random bytes follow the last dash.
        parts.pop();
        let numbers: Vec<_> = parts.into_iter().take_while(is_number).take(3).collect();
        (numbers.len() >= 2)
            .then(|| named(code, numbers.iter().map(|it| it.escape_ascii().to_string())))
    }
}

/// Returns the program of a code, and its version.
fn named(code: &[u8], version: impl Iterator<Item = String>) -> String {
    let name = CLIENTS.iter().find(|client| client.0.as_bytes() == code);
    let name = name.map_or_else(|| code.escape_ascii().to_string(), |client| client.1.to_owned());
    format!("{name} {}", version.collect::<Vec<_>>().join("."))
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.client())
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerId({})", self.0.escape_ascii())
    }
}

/// swath 0.1.0.
const OUR_PREFIX: &[u8; 8] = b"-SW0100-";

/// Programs that are common in swarms of institutes.
const CLIENTS: [(&str, &str); 20] = [
    ("SW", "swath"),
    ("TR", "Transmission"),
    ("LT", "libtorrent"),
    ("lt", "rTorrent"),
    ("qB", "qBittorrent"),
    ("A2", "aria2"),
    ("DE", "Deluge"),
    ("GT", "anacrolix/torrent"),
    ("rQ", "rqbit"),
    ("AZ", "Vuze"),
    ("BI", "BiglyBT"),
    ("UT", "µTorrent"),
    ("UM", "µTorrent for Mac"),
    ("BT", "BitTorrent"),
    ("KT", "KTorrent"),
    ("WW", "WebTorrent"),
    ("WD", "WebTorrent Desktop"),
    ("TX", "Tixati"),
    ("FL", "Flud"),
    ("M", "Mainline"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_names() {
        for (id, name) in [
            (b"-TR3000-abcdefghijkl", "Transmission 3.0.0"),
            (b"-LT2110-\0\0\0\0\0\0\0\0\0\0\0\0", "libtorrent 2.1.1"),
            (b"-qB4520-~~~~~~~~~~~~", "qBittorrent 4.5.2"),
            (b"-LT20B0-abcdefghijkl", "libtorrent 2.0.11"),
            (b"-XY1234-abcdefghijkl", "XY 1.2.3.4"),
            (b"-\x1b]1234-abcdefghijkl", "\\x1b] 1.2.3.4"),
            (b"A2-1-36-0-\0\0\0\0\0\0\0\0\0\0", "aria2 1.36.0"),
            (b"-A2-1-36-0-abcdefghi", "aria2 1.36.0"),
            (b"M7-10-5--abcdefghijk", "Mainline 7.10.5"),
            (b"exbc\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "exbc"),
            (&[0; 20], "\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00"),
            (b"-----\n--------------", "-----"),
        ] {
            let shown = PeerId(*id).to_string();
            assert!(!shown.chars().any(char::is_control));
            assert_eq!(shown, name);
        }
        let ours = PeerId::new([0x0a; 12]);
        assert_eq!(ours.client(), "swath 0.1.0");
        assert_eq!(format!("{ours:?}"), format!("PeerId(-SW0100-{})", "\\n".repeat(12)));
    }
}
