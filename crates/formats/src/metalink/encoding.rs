//! Converts the encodings of documents to UTF-8 for the XML parser.
//!
//! XML readers must know UTF-8 and UTF-16 (XML 1.0, section 4.3.3); older catalogues also use
//! ISO-8859-1 and its relatives. A byte order mark outweighs the declaration. Invalid bytes become
//! U+FFFD, so only a name or a digest that contains them is refused.

use std::io::{self, BufRead, Read};

/// An input whose bytes are converted to UTF-8.
pub(super) struct Decoded<R> {
    input: R,
    encoding: Option<Encoding>,
    /// Decoded bytes that were not taken yet.
    ready: Vec<u8>,
    taken: usize,
    /// The beginning of a character whose rest has not arrived.
    partial: Vec<u8>,
    /// The encoding, if unknown.
    pub(super) unknown: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Utf16 {
        big: bool,
    },
    /// Each byte is a character; 0x80 to 0x9f as in Windows-1252, like browsers.
    Latin1,
    Latin9,
}

impl<R: BufRead> Decoded<R> {
    pub(super) fn new(input: R) -> Decoded<R> {
        Decoded {
            input,
            encoding: None,
            ready: Vec::new(),
            taken: 0,
            partial: Vec::new(),
            unknown: None,
        }
    }

    /// Reads the beginning and detects the encoding.
    fn begin(&mut self) -> io::Result<Encoding> {
        let mut head = Vec::new();
        // The declaration, if there is one, ends with the first tag.
        while head.len() < HEAD_BYTES_MAX && !head.contains(&b'>') {
            let available = self.input.fill_buf()?;
            if available.is_empty() {
                break;
            }
            let taken = available.len().min(HEAD_BYTES_MAX - head.len());
            head.extend_from_slice(&available[..taken]);
            self.input.consume(taken);
        }
        let (encoding, mark_bytes) = match self.encoding_of(&head) {
            Some(found) => found,
            None => {
                let name = self.unknown.clone().unwrap_or_default();
                return Err(io::Error::other(format!("the encoding {name} is not known")));
            }
        };
        self.encoding = Some(encoding);
        self.decode(encoding, &head[mark_bytes..]);
        Ok(encoding)
    }

    /// Returns the encoding, and the length of its mark in bytes.
    fn encoding_of(&mut self, head: &[u8]) -> Option<(Encoding, usize)> {
        match head {
            [0xef, 0xbb, 0xbf, ..] => return Some((Encoding::Utf8, 3)),
            [0xfe, 0xff, ..] => return Some((Encoding::Utf16 { big: true }, 2)),
            [0xff, 0xfe, ..] => return Some((Encoding::Utf16 { big: false }, 2)),
            // Without a mark the first character is a `<`.
            [0, b'<', ..] => return Some((Encoding::Utf16 { big: true }, 0)),
            [b'<', 0, ..] => return Some((Encoding::Utf16 { big: false }, 0)),
            _ => {}
        }
        let Some(name) = declared(head) else { return Some((Encoding::Utf8, 0)) };
        let encoding = match name.to_ascii_lowercase().as_str() {
            "utf-8" | "utf8" | "us-ascii" | "ascii" => Encoding::Utf8,
            // The declaration was read as single bytes, so this cannot be true.
            "utf-16" | "utf-16le" | "utf-16be" => Encoding::Utf8,
            "iso-8859-1" | "iso_8859-1" | "iso8859-1" | "latin1" | "latin-1" | "windows-1252"
            | "cp1252" => Encoding::Latin1,
            "iso-8859-15" | "iso8859-15" | "latin9" | "latin-9" => Encoding::Latin9,
            _ => {
                self.unknown = Some(name);
                return None;
            }
        };
        Some((encoding, 0))
    }

    fn decode(&mut self, encoding: Encoding, bytes: &[u8]) {
        self.ready.clear();
        self.taken = 0;
        let mut push = |c: char| {
            self.ready.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        };
        match encoding {
            Encoding::Utf8 => {
                self.partial.extend_from_slice(bytes);
                let whole = whole_characters(&self.partial);
                for part in self.partial[..whole].utf8_chunks() {
                    part.valid().chars().for_each(&mut push);
                    if !part.invalid().is_empty() {
                        push(char::REPLACEMENT_CHARACTER);
                    }
                }
                self.partial.drain(..whole);
            }
            Encoding::Latin1 => bytes.iter().for_each(|&byte| push(windows(byte))),
            Encoding::Latin9 => bytes.iter().for_each(|&byte| push(latin9(byte))),
            Encoding::Utf16 { big } => {
                self.partial.extend_from_slice(bytes);
                let unit = |pair: &[u8]| match big {
                    true => u16::from_be_bytes([pair[0], pair[1]]),
                    false => u16::from_le_bytes([pair[0], pair[1]]),
                };
                let mut whole = self.partial.len() / 2 * 2;
                // The second half of a pair may not have arrived.
                if whole >= 2 && (0xd800..0xdc00).contains(&unit(&self.partial[whole - 2..whole])) {
                    whole -= 2;
                }
                let units = self.partial[..whole].chunks_exact(2).map(unit);
                for c in char::decode_utf16(units) {
                    push(c.unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                self.partial.drain(..whole);
            }
        }
    }

    /// Decodes until there is output, or the input ends.
    fn fill(&mut self) -> io::Result<()> {
        let encoding = match self.encoding {
            Some(encoding) => encoding,
            None => self.begin()?,
        };
        while self.taken >= self.ready.len() {
            let available = self.input.fill_buf()?;
            if available.is_empty() {
                // A partial character at the end is invalid.
                if !self.partial.is_empty() {
                    self.partial.clear();
                    self.decode(Encoding::Utf8, REPLACEMENT);
                }
                break;
            }
            let part = available[..available.len().min(PART_BYTES)].to_vec();
            self.input.consume(part.len());
            self.decode(encoding, &part);
        }
        Ok(())
    }
}

impl<R: BufRead> BufRead for Decoded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.fill()?;
        Ok(&self.ready[self.taken.min(self.ready.len())..])
    }

    fn consume(&mut self, bytes: usize) {
        self.taken += bytes;
    }
}

impl<R: BufRead> Read for Decoded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let taken = available.len().min(out.len());
        out[..taken].copy_from_slice(&available[..taken]);
        self.consume(taken);
        Ok(taken)
    }
}

/// Returns how many of these bytes form whole or invalid UTF-8 characters.
fn whole_characters(bytes: &[u8]) -> usize {
    match str::from_utf8(&bytes[bytes.len().saturating_sub(UTF8_BYTES_MAX - 1)..]) {
        Ok(_) => bytes.len(),
        // The last character begins within these bytes; find its start from the end.
        Err(_) => {
            let tail = bytes.len().saturating_sub(UTF8_BYTES_MAX - 1);
            let begins = (tail..bytes.len()).rev().find(|&at| bytes[at] >= 0xc0);
            match begins.map(|at| (at, str::from_utf8(&bytes[at..]))) {
                Some((at, Err(error))) if error.error_len().is_none() => at,
                _ => bytes.len(),
            }
        }
    }
}

/// Returns the name in `<?xml … encoding="NAME"?>`.
fn declared(head: &[u8]) -> Option<String> {
    let head = head.trim_ascii_start().strip_prefix(b"<?xml")?;
    let end = head.iter().position(|byte| *byte == b'>')?;
    let text = String::from_utf8_lossy(&head[..end]).into_owned();
    let (_, rest) = text.split_once("encoding")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    rest[1..].split_once(quote).map(|(name, _)| crate::text::shown(name, NAME_CHARS_MAX))
}

/// Decodes a byte of Windows-1252.
fn windows(byte: u8) -> char {
    match byte {
        0x80..=0x9f => WINDOWS[usize::from(byte - 0x80)],
        _ => char::from(byte),
    }
}

/// Decodes a byte of ISO-8859-15.
fn latin9(byte: u8) -> char {
    match byte {
        0xa4 => '€',
        0xa6 => 'Š',
        0xa8 => 'š',
        0xb4 => 'Ž',
        0xb8 => 'ž',
        0xbc => 'Œ',
        0xbd => 'œ',
        0xbe => 'Ÿ',
        _ => char::from(byte),
    }
}

/// Characters of Windows-1252 in place of control characters; five places are empty.
const WINDOWS: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}',
    '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];
/// Longest character of UTF-8.
const UTF8_BYTES_MAX: usize = 4;
/// U+FFFD.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();
/// Far longer than any declaration.
const HEAD_BYTES_MAX: usize = 1024;
/// Bytes decoded at a time.
const PART_BYTES: usize = 16 << 10;
/// Longest encoding name kept.
const NAME_CHARS_MAX: usize = 40;
