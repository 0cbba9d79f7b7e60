//! The index of a publication: a text that lists every file with its length and its BLAKE3 digest.
//!
//! ```text
//! swath-index 1
//! name run7
//! version 2
//! published 1764158400                        (seconds since 1970)
//! btih 8c1a…                                  (SHA-1 info-hash, if there is one)
//! btmh 51fe…                                  (SHA-256 info-hash, if there is one)
//! file 0b3c… 1073741824 detector/run7.h5      (BLAKE3, bytes, path)
//! ```
//!
//! Names and paths are percent-encoded, files are in the order of the torrent, each line ends with a
//! line feed. A dataset has exactly one such text, so a signature of it is one of the dataset.

use std::fmt::Write as _;

use swath_formats::percent;
use swath_model::digest::{Algorithm, Digest};

/// The index of one version of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The name of the dataset.
    pub name: String,
    /// Its version, if it has one.
    pub version: Option<String>,
    /// When it was published, in seconds since 1970.
    pub published: u64,
    /// The info-hash of version 1 in hexadecimal digits.
    pub btih: Option<String>,
    /// The info-hash of version 2 in hexadecimal digits.
    pub btmh: Option<String>,
    /// The files, in the order of the torrent.
    pub files: Vec<IndexFile>,
}

/// A file of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexFile {
    /// Its path below the dataset's folder.
    pub path: Vec<u8>,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its BLAKE3 digest.
    pub digest: Digest,
}

/// Why a text is no index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// It does not begin like one, or has a later form.
    #[error("it is no index of swath, or one of a newer version")]
    Form,
    /// A line is wrong.
    #[error("line {0} is invalid")]
    Line(usize),
    /// It means an index, but is not written as swath writes it.
    #[error("it is not in its canonical form")]
    NotCanonical,
}

impl Index {
    /// Returns the text.
    pub fn write(&self) -> String {
        let mut out = format!("{FIRST_LINE}\nname {}\n", percent::encode(self.name.as_bytes()));
        let version = self.version.as_ref().map(|version| percent::encode(version.as_bytes()));
        let published = Some(self.published.to_string());
        let rest = [
            ("version", &version),
            ("published", &published),
            ("btih", &self.btih),
            ("btmh", &self.btmh),
        ];
        for (key, value) in rest {
            if let Some(value) = value {
                // Writing to a text does not fail.
                let _ = writeln!(out, "{key} {value}");
            }
        }
        for IndexFile { path, bytes, digest } in &self.files {
            let _ = writeln!(out, "file {} {bytes} {}", digest.to_hex(), percent::encode(path));
        }
        out
    }

    /// Reads the text.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn read(text: &str) -> Result<Index, IndexError> {
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line != FIRST_LINE) {
            return Err(IndexError::Form);
        }
        let (mut name, mut version, mut published) = (None, None, None);
        let (mut btih, mut btmh) = (None, None);
        let mut files = Vec::new();
        for (number, line) in lines {
            let wrong = || IndexError::Line(number + 1);
            let (key, value) = line.split_once(' ').ok_or_else(wrong)?;
            let text = || String::from_utf8(percent::decode(value)).map_err(|_| wrong());
            match key {
                "name" => name = Some(text()?),
                "version" => version = Some(text()?),
                "published" => published = Some(value.parse().map_err(|_| wrong())?),
                "btih" if is_hex(value, 40) => btih = Some(value.to_owned()),
                "btmh" if is_hex(value, 64) => btmh = Some(value.to_owned()),
                "file" => files.push(file(value).ok_or_else(wrong)?),
                _ => return Err(wrong()),
            }
        }
        let (Some(name), Some(published)) = (name, published) else { return Err(IndexError::Form) };
        let index = Index { name, version, published, btih, btmh, files };
        if index.write() == text { Ok(index) } else { Err(IndexError::NotCanonical) }
    }
}

fn file(value: &str) -> Option<IndexFile> {
    let mut words = value.splitn(3, ' ');
    let digest = Digest::from_hex(Algorithm::Blake3, words.next()?).ok()?;
    let bytes = words.next()?.parse().ok()?;
    Some(IndexFile { digest, bytes, path: percent::decode(words.next()?) })
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

const FIRST_LINE: &str = "swath-index 1";

#[cfg(test)]
mod tests {
    use super::*;
    use swath_model::digest::Hasher;

    fn example() -> Index {
        let file = |path: &[u8], content: &[u8]| IndexFile {
            path: path.to_vec(),
            bytes: content.len() as u64,
            digest: Hasher::digest(Algorithm::Blake3, content),
        };
        Index {
            name: "run 7".to_owned(),
            version: Some("2\n".to_owned()),
            published: 1_764_158_400,
            btih: Some("0".repeat(40)),
            btmh: None,
            files: vec![file(b"a\xff/b c", b"one"), file(b"z", b"")],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let index = example();
        assert_eq!(Index::read(&index.write()), Ok(index));
    }

    #[test]
    fn other_texts_are_refused() {
        let text = example().write();
        assert_eq!(Index::read(""), Err(IndexError::Form));
        assert_eq!(Index::read("swath-index 2\n"), Err(IndexError::Form));
        assert_eq!(Index::read("swath-index 1\n"), Err(IndexError::Form));
        assert_eq!(Index::read(&text.replace("name ", "name")), Err(IndexError::Line(2)));
        assert_eq!(Index::read(&text.replace("btih 0", "btih x")), Err(IndexError::Line(5)));
        assert_eq!(Index::read(&text.replace(" 3 a", " -3 a")), Err(IndexError::Line(6)));
        for other in [text.replace('\n', "\r\n"), text.replace(" 3 a", " 03 a"), text.trim().into()]
        {
            assert_eq!(Index::read(&other), Err(IndexError::NotCanonical), "{other}");
        }
    }
}
