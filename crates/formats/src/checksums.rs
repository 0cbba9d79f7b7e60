//! Checksum files: `SHA256SUMS`, `MD5SUMS`, `file.iso.sha256`.
//!
//! Three forms are read, because they occur mixed: that of GNU coreutils (`HEX  name`, `HEX *name`,
//! names with `\n` and `\\` escaped behind a leading `\`), that of the BSDs (`SHA256 (name) =
//! HEX`), and any white space between a digest and a path. A checksum file for a single file may
//! hold only the digest. An unreadable line is kept with its name as far as known, so that its
//! digest does not count as missing.

use swath_model::digest::{Algorithm, Digest};

/// The content of a checksum file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checksums {
    /// Its lines, in order.
    pub entries: Vec<Entry>,
    /// Whether there are more lines than the limit.
    pub is_cut: bool,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The line, from 1.
    pub line: u64,
    /// The file name as bytes; empty if the line has only a digest.
    pub name: Vec<u8>,
    /// The expected digest.
    pub digest: Result<Digest, ChecksumProblem>,
}

/// Why a line cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumProblem {
    /// The algorithm is unknown.
    #[error("its algorithm is unknown")]
    Algorithm,
    /// There is no digest of the algorithm that the line names.
    #[error("it contains no digest")]
    Digest,
    /// Two lines contradict each other.
    #[error("there is another digest of the same file before it")]
    Twice,
    /// More lines than the limit.
    #[error("the list has more than {ENTRIES_MAX} lines")]
    TooMany,
}

impl Checksums {
    /// Parses a checksum file. Its own `file_name` may tell the algorithm.
    pub fn parse(bytes: &[u8], file_name: &str) -> Checksums {
        let hint = hinted(file_name);
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let mut checksums = Checksums::default();
        for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1..) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some((name, digest)) = read(line, hint) else { continue };
            if checksums.entries.len() == ENTRIES_MAX {
                checksums.is_cut = true;
                break;
            }
            checksums.entries.push(Entry { line: number, name, digest });
        }
        checksums
    }

    /// Returns the digests of the file called `name`: from lines with this very path, or else from
    /// those whose last part it is. A digest without a name counts if this checksum file belongs to
    /// that file alone (`is_beside`). Empty if there are none.
    ///
    /// # Errors
    /// The line and its problem, if there are lines about the file but none can be used.
    pub fn of(&self, name: &[u8], is_beside: bool) -> Result<Vec<Digest>, (u64, ChecksumProblem)> {
        let is_it = |entry: &&Entry| plain(&entry.name) == name;
        let ends_so = |entry: &&Entry| last_part(&entry.name) == last_part(name);
        let mut found: Vec<&Entry> = self.entries.iter().filter(is_it).collect();
        if found.is_empty() {
            found = self.entries.iter().filter(ends_so).collect();
        }
        if found.is_empty() && is_beside {
            found = self.entries.iter().filter(|entry| entry.name.is_empty()).collect();
        }
        let mut digests: Vec<Digest> = Vec::new();
        let mut broken = None;
        for entry in found {
            match entry.digest {
                Ok(digest) => {
                    let of_same = |other: &&Digest| other.algorithm() == digest.algorithm();
                    match digests.iter().find(of_same) {
                        Some(other) if *other != digest => {
                            return Err((entry.line, ChecksumProblem::Twice));
                        }
                        Some(_) => {}
                        None => digests.push(digest),
                    }
                }
                Err(problem) => broken = broken.or(Some((entry.line, problem))),
            }
        }
        match broken {
            // Beside a digest of an unknown algorithm there is usually a known one.
            Some(problem) if digests.is_empty() => Err(problem),
            None if digests.is_empty() && self.is_cut => Err((0, ChecksumProblem::TooMany)),
            _ => Ok(digests),
        }
    }
}

/// Removes the `./` that `find` writes.
fn plain(mut name: &[u8]) -> &[u8] {
    while let Some(rest) = name.strip_prefix(b"./") {
        name = rest;
    }
    name
}

fn last_part(name: &[u8]) -> &[u8] {
    name.rsplit(|byte| *byte == b'/').next().unwrap_or(name)
}

/// Returns the algorithm in a name such as `SHA256SUMS` or `x.b3`; `Err` if unsupported.
fn hinted(file_name: &str) -> Option<Result<Algorithm, ChecksumProblem>> {
    let name = file_name.to_ascii_lowercase();
    let known = [
        ("sha256", Algorithm::Sha256),
        ("sha512", Algorithm::Sha512),
        ("blake3", Algorithm::Blake3),
        ("b3", Algorithm::Blake3),
        ("sha1", Algorithm::Sha1),
        ("md5", Algorithm::Md5),
    ];
    // Their digests are as long as those of supported algorithms.
    let foreign = ["sha224", "sha384", "sha3", "b2sum", "blake2", "sha512256", "sm3", "rmd160"];
    if foreign.iter().any(|foreign| name.contains(foreign)) {
        return Some(Err(ChecksumProblem::Algorithm));
    }
    let fits = |text: &str| match text {
        // Too short to match anywhere in the name.
        "b3" => name.contains("b3sum") || name.ends_with(".b3"),
        _ => name.contains(text),
    };
    known.iter().find(|(text, _)| fits(text)).map(|(_, algorithm)| Ok(*algorithm))
}

type Read = (Vec<u8>, Result<Digest, ChecksumProblem>);

/// Parses a line; `None` if it is not about a file: empty, a comment, part of a signature.
fn read(line: &[u8], hint: Option<Result<Algorithm, ChecksumProblem>>) -> Option<Read> {
    let trimmed = line.trim_ascii();
    if trimmed.is_empty() || matches!(trimmed[0], b'#' | b';') {
        return None;
    }
    // Blanks at the end belong to the name.
    let line = line.trim_ascii_start();
    let (line, is_escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    tagged(line, is_escaped).or_else(|| listed(line, is_escaped, hint))
}

/// Parses `SHA256 (name) = HEX`.
fn tagged(line: &[u8], is_escaped: bool) -> Option<Read> {
    let open = line.iter().position(|byte| *byte == b'(')?;
    let algorithm = str::from_utf8(&line[..open]).ok()?.trim();
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/');
    if algorithm.is_empty() || !algorithm.chars().all(is_word) {
        return None;
    }
    // A name may contain this too, so the last one ends it.
    let close = line.windows(END.len()).rposition(|part| part == END);
    let (close, end) = match close {
        Some(at) => (at, at + END.len()),
        None => {
            let at = line.windows(2).rposition(|part| part == b")=")?;
            (at, at + 2)
        }
    };
    let name = unescaped(line.get(open + 1..close)?, is_escaped);
    let hex = str::from_utf8(&line[end..]).unwrap_or_default().trim();
    let digest = match algorithm.parse::<Algorithm>() {
        Ok(algorithm) => Digest::from_hex(algorithm, hex).map_err(|_| ChecksumProblem::Digest),
        Err(_) => Err(ChecksumProblem::Algorithm),
    };
    Some((name, digest))
}

/// Parses `HEX  name`, `HEX *name`, `HEX name`, `sha256:HEX name`, or `HEX` alone.
fn listed(
    line: &[u8],
    is_escaped: bool,
    hint: Option<Result<Algorithm, ChecksumProblem>>,
) -> Option<Read> {
    let end = line.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    let word = str::from_utf8(word).ok()?;
    let (named, hex) = match word.split_once(':') {
        Some((algorithm, hex)) => (Some(algorithm), hex),
        None => (None, word),
    };
    let is_hex = hex.len() >= HEX_CHARS_MIN && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex {
        return None;
    }
    let algorithm = match named {
        Some(named) => named.parse().map_err(|_| ChecksumProblem::Algorithm),
        None => of_length(hex.len(), hint),
    };
    let digest = algorithm.and_then(|algorithm| {
        Digest::from_hex(algorithm, hex).map_err(|_| ChecksumProblem::Digest)
    });
    // One space and then a space or `*`; the name may itself begin with spaces.
    let name = match rest {
        [b' ', b' ' | b'*', name @ ..] => name,
        rest => rest.trim_ascii_start(),
    };
    let is_blank = name.iter().all(u8::is_ascii_whitespace);
    let name = if is_blank { Vec::new() } else { unescaped(name, is_escaped) };
    Some((name, digest))
}

/// Returns the algorithm of a digest with this many digits.
fn of_length(
    digits: usize,
    hint: Option<Result<Algorithm, ChecksumProblem>>,
) -> Result<Algorithm, ChecksumProblem> {
    let by_length = match digits {
        32 => Some(Algorithm::Md5),
        40 => Some(Algorithm::Sha1),
        64 => Some(Algorithm::Sha256),
        128 => Some(Algorithm::Sha512),
        _ => None,
    };
    match (hint, by_length) {
        (Some(Ok(Algorithm::Blake3)), Some(Algorithm::Sha256)) => Ok(Algorithm::Blake3),
        // The file name of a list with several algorithms has one of them, or none.
        (Some(Ok(_)) | None, Some(by_length)) => Ok(by_length),
        (Some(Err(problem)), _) => Err(problem),
        (_, None) => Err(ChecksumProblem::Algorithm),
    }
}

fn unescaped(name: &[u8], is_escaped: bool) -> Vec<u8> {
    if !is_escaped {
        return name.to_vec();
    }
    let mut bytes = name.iter();
    let mut plain = Vec::with_capacity(name.len());
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => plain.push(b'\n'),
                Some(b'r') => plain.push(b'\r'),
                Some(&other) => plain.push(other),
                None => plain.push(b'\\'),
            },
            byte => plain.push(byte),
        }
    }
    plain
}

/// The text between a name and its digest in the BSD form.
const END: &[u8] = b") = ";
/// Half of an MD5; words of prose are shorter.
const HEX_CHARS_MIN: usize = 16;
/// Far more lines than any release has files.
const ENTRIES_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MD5: &str = "900150983cd24fb0d6963f7d28e17f72";
    const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn one(line: &str) -> Entry {
        let checksums = Checksums::parse(line.as_bytes(), "sums");
        assert_eq!(checksums.entries.len(), 1, "{line}");
        checksums.entries[0].clone()
    }

    #[test]
    fn all_forms_are_read() {
        for (line, name) in [
            (format!("{SHA256}  a b.iso"), "a b.iso"),
            (format!("{SHA256} *a.iso\r\n"), "a.iso"),
            (format!("{SHA256}   spaced"), " spaced"),
            (format!("{SHA256}\tdir/a.iso"), "dir/a.iso"),
            (format!("{SHA256} a.iso"), "a.iso"),
            (format!("\\{SHA256}  a\\nb\\\\c"), "a\nb\\c"),
            (format!("{SHA256}  a\\nb"), "a\\nb"),
            (format!("SHA256 (a (1) = x.iso) = {SHA256}"), "a (1) = x.iso"),
            (format!("SHA2-256(a.iso)= {SHA256}").replace("2-", ""), "a.iso"),
            (format!("\\SHA256 (a\\nb) = {SHA256}"), "a\nb"),
            (format!("sha-256:{}  a", SHA256.to_uppercase()), "a"),
            (format!("{SHA256}\n"), ""),
        ] {
            let entry = one(&line);
            assert_eq!(entry.name, name.as_bytes(), "{line}");
            assert_eq!(entry.digest.unwrap().to_string(), format!("sha-256:{SHA256}"), "{line}");
        }
        assert_eq!(one(&format!("{MD5}  x")).digest.unwrap().algorithm(), Algorithm::Md5);
        let blake = Checksums::parse(format!("{SHA256}  x").as_bytes(), "B3SUMS.b3");
        assert_eq!(blake.entries[0].digest.unwrap().algorithm(), Algorithm::Blake3);
    }

    #[test]
    fn what_is_no_line_of_a_file_is_passed_over() {
        let text = format!(
            "\u{feff}-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n# Fedora: 1 bytes\n; x\n\
             {MD5}  a\n-----BEGIN PGP SIGNATURE-----\niQIzBAEBCAAdFiEE\n-----END PGP SIGNATURE-----\n"
        );
        let checksums = Checksums::parse(text.as_bytes(), "x");
        assert_eq!(checksums.entries.len(), 1, "{checksums:?}");
        assert!(Checksums::parse(b"<html><body>404</body></html>", "x").entries.is_empty());
    }

    #[test]
    fn a_digest_that_is_there_never_counts_as_missing() {
        let text = format!(
            "{MD5}  a\n{SHA256}  ./sub/b\nSHA256 (c) = {MD5}\n{MD5}  d\n{}  d\nBLAKE2b (e) = {SHA256}\n\
             {MD5}1  f\n{MD5}  g\nSKEIN (g) = {MD5}\n",
            MD5.replace('9', "8")
        );
        let checksums = Checksums::parse(text.as_bytes(), "SUMS");
        let of = |name: &str| checksums.of(name.as_bytes(), false);
        assert_eq!((of("a").unwrap().len(), of("sub/b").unwrap().len()), (1, 1));
        assert_eq!((of("b").unwrap().len(), of("x/a").unwrap().len()), (1, 1));
        assert_eq!(of("none"), Ok(Vec::new()));
        assert_eq!(of("c"), Err((3, ChecksumProblem::Digest)));
        assert_eq!(of("d"), Err((5, ChecksumProblem::Twice)));
        assert_eq!(of("e"), Err((6, ChecksumProblem::Algorithm)));
        assert_eq!(of("f"), Err((7, ChecksumProblem::Algorithm)));
        assert_eq!(of("g").unwrap().len(), 1);
        let alone = Checksums::parse(MD5.as_bytes(), "x.md5");
        assert_eq!(
            (alone.of(b"x", false).unwrap().len(), alone.of(b"x", true).unwrap().len()),
            (0, 1)
        );
        // As long as SHA-512, and not SHA-512.
        let other = Checksums::parse(format!("{SHA256}{SHA256}  a").as_bytes(), "B2SUMS.b2sum");
        assert_eq!(other.of(b"a", false), Err((1, ChecksumProblem::Algorithm)));
    }

    proptest! {
        #[test]
        fn what_coreutils_write_is_read(name in "[ -~\\n]{1,20}", tag: bool) {
            let escaped = name.replace('\\', "\\\\").replace('\n', "\\n");
            let mark = if escaped == name { "" } else { "\\" };
            let line = match tag {
                true => format!("{mark}SHA256 ({escaped}) = {SHA256}\n"),
                false => format!("{mark}{SHA256}  {escaped}\n"),
            };
            if !name.trim().is_empty() {
                prop_assert_eq!(&one(&line).name[..], name.as_bytes());
            }
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(prop_oneof![
            Just(b'\n'), Just(b'\\'), Just(b' '), Just(b'('), Just(b')'), Just(b'='), Just(b'a'), any::<u8>()
        ], 0..80)) {
            let checksums = Checksums::parse(&bytes, "x");
            let _ = checksums.of(b"a", true);
        }
    }
}
