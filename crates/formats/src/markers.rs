//! Reads the answer to a third-party copy: performance markers, and a last line with the outcome.
//!
//! Servers differ. Some send a bare number of bytes instead of a marker (XRootD), some no marker for a
//! short file (dCache), some an empty answer, and the status of the answer says nothing of the outcome.

use std::collections::BTreeMap;

/// Reads an answer, as it comes.
#[derive(Clone, Debug, Default)]
pub struct Markers {
    /// The line that is coming.
    line: Vec<u8>,
    /// The rest of this line is passed over.
    is_too_long: bool,
    stripe: u64,
    /// The bytes of each stripe.
    bytes: BTreeMap<u64, u64>,
    outcome: Option<Outcome>,
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The file was copied.
    Success,
    /// It was not, in the words of the server.
    Failure(String),
}

impl Markers {
    /// Takes the next bytes of the answer.
    pub fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                _ if self.line.len() < LINE_BYTES_MAX => self.line.push(byte),
                _ => self.is_too_long = true,
            }
        }
    }

    /// Takes the end of the answer: its last line may have no line end.
    pub fn end(&mut self) {
        self.end_line();
    }

    /// Returns the bytes copied so far, as the server counts them.
    pub fn copied_bytes(&self) -> u64 {
        self.bytes.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Returns the outcome, if its line has come. Later lines are ignored.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        if self.outcome.is_none() && !line.is_empty() {
            let is_cut = std::mem::take(&mut self.is_too_long);
            self.outcome = outcome(line);
            if self.outcome.is_none() && !is_cut {
                self.understand(line);
            }
        }
        self.is_too_long = false;
    }

    fn understand(&mut self, line: &str) {
        if let Ok(bytes) = line.parse() {
            self.note(0, bytes);
            return;
        }
        let Some((name, value)) = line.split_once(':') else { return };
        let Ok(value) = value.trim().parse() else { return };
        match name.trim() {
            name if name.eq_ignore_ascii_case("stripe index") => self.stripe = value,
            name if name.eq_ignore_ascii_case("stripe bytes transferred") => {
                self.note(self.stripe, value);
            }
            _ => {}
        }
    }

    fn note(&mut self, stripe: u64, bytes: u64) {
        if self.bytes.len() < STRIPES_MAX || self.bytes.contains_key(&stripe) {
            self.bytes.insert(stripe, bytes);
        }
    }
}

fn outcome(line: &str) -> Option<Outcome> {
    let begins =
        |word: &str| line.get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word));
    if begins("success") {
        return Some(Outcome::Success);
    }
    let words = ["failure", "aborted", "error"].into_iter().find(|word| begins(word))?;
    let why = line[words.len()..].trim_start_matches(':').trim();
    let why: String = why.chars().filter(|c| !c.is_control()).take(WHY_CHARS_MAX).collect();
    Some(Outcome::Failure(why))
}

/// Longer lines are cut.
const LINE_BYTES_MAX: usize = 4 << 10;
/// More than a message needs.
const WHY_CHARS_MAX: usize = 500;
/// More than any server uses.
const STRIPES_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Markers {
        // In all pieces that can matter.
        let mut whole = Markers::default();
        whole.take(text.as_bytes());
        whole.end();
        let mut by_byte = Markers::default();
        text.as_bytes().iter().for_each(|byte| by_byte.take(&[*byte]));
        by_byte.end();
        assert_eq!(whole.copied_bytes(), by_byte.copied_bytes());
        assert_eq!(whole.outcome(), by_byte.outcome());
        whole
    }

    #[test]
    fn markers_tell_how_far_it_is() {
        let marker = |stripe, bytes| {
            format!(
                "Perf Marker\n\tTimestamp: 1537788010\n\tStripe Index: {stripe}\n\t\
                 Stripe Bytes Transferred: {bytes}\n\tTotal Stripe Count: 2\n\
                 RemoteConnections: tcp:192.0.2.1:443\nEnd\n"
            )
        };
        let text = marker(0, 5) + &marker(1, 7) + &marker(0, 50);
        let markers = read(&text);
        assert_eq!((markers.copied_bytes(), markers.outcome()), (57, None));
        let ended = read(&(text + "success: Created\nfailure: later\n"));
        assert_eq!((ended.copied_bytes(), ended.outcome()), (57, Some(&Outcome::Success)));
    }

    #[test]
    fn what_servers_send_instead_is_understood() {
        assert_eq!(read("100\n200\n").copied_bytes(), 200);
        assert_eq!(read("").outcome(), None);
        assert_eq!(read("success").outcome(), Some(&Outcome::Success));
        let failed = |why: &str| Some(Outcome::Failure(why.to_owned()));
        for (text, why) in [
            ("failure: 403 Forbidden\r\n", "403 Forbidden"),
            ("Failure:\n", ""),
            ("ERROR: x\u{1b}[31m\n", "x[31m"),
            ("aborted\n", ""),
        ] {
            assert_eq!(read(text).outcome().cloned(), failed(why), "{text}");
        }
        let long = format!("failure: {}\n", "x".repeat(100_000));
        let Some(Outcome::Failure(why)) = read(&long).outcome().cloned() else { panic!() };
        assert_eq!(why.len(), WHY_CHARS_MAX);
        // A number that was cut is none.
        assert_eq!(read(&"1".repeat(100_000)).copied_bytes(), 0);
        let many: String = (0..10_000)
            .map(|n| format!("Stripe Index: {n}\nStripe Bytes Transferred: 1\n"))
            .collect();
        assert_eq!(read(&many).copied_bytes(), STRIPES_MAX as u64);
        assert_eq!(
            read("Stripe Bytes Transferred: -5\nStripe Index: x\n\u{0}\n").copied_bytes(),
            0
        );
    }
}
