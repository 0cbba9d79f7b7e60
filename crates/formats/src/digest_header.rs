//! Digests in HTTP headers, in all common forms.
//!
//! RFC 9530 `Repr-Digest` and `Content-Digest`; RFC 3230 `Digest`, used by XRootD and dCache
//! (Adler-32 in hexadecimal, others in base64, and some the other way round); `Content-MD5`;
//! ownCloud's `OC-Checksum`; `X-Goog-Hash`. Unreadable digests are skipped: a server may send
//! algorithms that swath does not know.

use swath_model::digest::{Algorithm, Digest};

use crate::text::trim_blanks;

/// Value of the request header `Want-Repr-Digest` (RFC 9530): 10 is most wanted.
pub const WANT_REPR_DIGEST: &str =
    "sha-256=10, blake3=9, sha-512=8, sha=5, md5=4, crc32c=2, adler=1, adler32=1";
/// The same for whoever gets the parts of a file in no order: of these, only BLAKE3 can be computed so.
pub const WANT_BLAKE3_FIRST: &str =
    "blake3=10, sha-256=9, sha-512=8, sha=5, md5=4, crc32c=2, adler=1, adler32=1";
/// Value of the request header `Want-Digest` (RFC 3230). Some servers use the first that they know,
/// others the weights, so both agree here.
pub const WANT_DIGEST: &str =
    "sha-256;q=1, sha-512;q=0.9, sha;q=0.7, md5;q=0.6, crc32c;q=0.4, adler32;q=0.3";

/// The bytes that the digests of a header cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// The whole file, even if the response carries only a part of it.
    Representation,
    /// The bytes of this one response: the whole file only in a 200 without content coding.
    Message,
}

/// Reads the header `name` if it carries digests.
pub fn read(name: &str, value: &str) -> Option<(Covers, Vec<Digest>)> {
    let is = |other| name.eq_ignore_ascii_case(other);
    if is("repr-digest") || is("digest") || is("x-goog-hash") {
        Some((Covers::Representation, parse(value)))
    } else if is("content-digest") {
        Some((Covers::Message, parse(value)))
    } else if is("content-md5") {
        Some((Covers::Message, lenient(Algorithm::Md5, value).into_iter().collect()))
    } else if is("oc-checksum") {
        Some((Covers::Representation, parse_oc(value)))
    } else {
        None
    }
}

/// Parses a comma-separated list of `algorithm=value`, with values in the form of RFC 9530
/// (`:base64:`) or RFC 3230 (base64 or hexadecimal).
pub fn parse(value: &str) -> Vec<Digest> {
    // Neither base64 nor hexadecimal digits contain commas.
    let members = value.split(',').take(MEMBERS_MAX);
    members
        .filter_map(|member| {
            let (name, rest) = member.split_once('=')?;
            let text = rest.split(';').next().unwrap_or(rest);
            lenient(name.parse().ok()?, text)
        })
        .collect()
}

/// Parses `ALGORITHM:HEX`, several separated by spaces.
fn parse_oc(value: &str) -> Vec<Digest> {
    let members = value.split([' ', ',']).take(MEMBERS_MAX);
    members
        .filter_map(|member| {
            let (name, text) = member.split_once([':', '='])?;
            lenient(name.parse().ok()?, text)
        })
        .collect()
}

/// Parses a value in either notation. Lengths tell them apart, except that four bytes of base64
/// without padding may look like six digits, which nobody sends.
fn lenient(algorithm: Algorithm, text: &str) -> Option<Digest> {
    let text = trim_blanks(text).trim_matches('"');
    let text = text.strip_prefix(':').unwrap_or(text);
    let text = text.strip_suffix(':').unwrap_or(text);
    let hex = Digest::from_hex(algorithm, text);
    hex.or_else(|_| Digest::from_base64(algorithm, text)).ok()
}

/// Parses `Want-Repr-Digest` (RFC 9530): the known algorithms, the most wanted first.
pub fn wanted(value: &str) -> Vec<Algorithm> {
    sorted(value.split(',').take(MEMBERS_MAX).map(|member| {
        let (name, weight) = member.split_once('=').unwrap_or((member, ""));
        let weight = weight.split(';').next().unwrap_or(weight).trim();
        (name.trim().parse().ok(), weight.parse().unwrap_or(1.0))
    }))
}

/// Parses `Want-Digest` (RFC 3230) in the same way.
pub fn wanted_of_old(value: &str) -> Vec<Algorithm> {
    sorted(value.split(',').take(MEMBERS_MAX).map(|member| {
        let mut parts = member.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=")).map(str::trim);
        (name.parse().ok(), weight.and_then(|weight| weight.parse().ok()).unwrap_or(1.0))
    }))
}

fn sorted(wishes: impl Iterator<Item = (Option<Algorithm>, f64)>) -> Vec<Algorithm> {
    let mut known: Vec<(Algorithm, f64)> = wishes
        .filter(|&(_, weight)| weight > 0.0)
        .filter_map(|(algorithm, weight)| Some((algorithm?, weight)))
        .collect();
    known.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut all: Vec<Algorithm> = Vec::new();
    for (algorithm, _) in known {
        if !all.contains(&algorithm) {
            all.push(algorithm);
        }
    }
    all
}

/// Returns the value of `Repr-Digest` (RFC 9530).
pub fn write(digests: &[Digest]) -> String {
    let members = digests.iter().map(|digest| {
        let name = match digest.algorithm() {
            Algorithm::Sha1 => "sha".to_owned(),
            Algorithm::Adler32 => "adler".to_owned(),
            other => other.to_string(),
        };
        format!("{name}=:{}:", digest.to_base64())
    });
    members.collect::<Vec<_>>().join(", ")
}

/// Returns the value of `Digest` (RFC 3230) in the form of grid programs: Adler-32 in hexadecimal,
/// all others in base64. Skips algorithms without a name there.
pub fn write_old(digests: &[Digest]) -> String {
    let members = digests.iter().filter_map(|digest| {
        let name = match digest.algorithm() {
            Algorithm::Adler32 => return Some(format!("adler32={}", digest.to_hex())),
            Algorithm::Crc32c => "crc32c",
            Algorithm::Md5 => "md5",
            Algorithm::Sha1 => "sha",
            Algorithm::Sha256 => "sha-256",
            Algorithm::Sha512 => "sha-512",
            Algorithm::Blake3 => return None,
        };
        Some(format!("{name}={}", digest.to_base64()))
    });
    members.collect::<Vec<_>>().join(",")
}

/// Limits the cost of a long header; there are fewer algorithms.
const MEMBERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use swath_model::digest::Hasher;

    fn seen(name: &str, value: &str) -> String {
        let (_, digests) = read(name, value).unwrap();
        digests.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn rfc_9530_is_read() {
        let value = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:;x=1, unixsum=:AAA=:,\
                     md5=:XUFAKrxLKna5cZ2REBfFkg==:";
        assert_eq!(
            seen("Repr-Digest", value),
            "sha-256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824 \
             md5:5d41402abc4b2a76b9719d911017c592"
        );
        assert_eq!(read("content-digest", value).unwrap().0, Covers::Message);
        assert_eq!(read("repr-digest", value).unwrap().0, Covers::Representation);
    }

    #[test]
    fn rfc_3230_is_read_as_grid_servers_send_it() {
        for (value, expected) in [
            ("adler32=8d62e01a", "adler32:8d62e01a"),
            ("ADLER32=62E01A", "adler32:0062e01a"),
            (
                "adler32=8d62e01a,md5=XUFAKrxLKna5cZ2REBfFkg==",
                "adler32:8d62e01a md5:5d41402abc4b2a76b9719d911017c592",
            ),
            ("md5=5d41402abc4b2a76b9719d911017c592", "md5:5d41402abc4b2a76b9719d911017c592"),
            ("SHA=qvTGHdzF6KLavt4PO0gs2a6pQ00=", "sha-1:aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"),
            (
                "SHA-256=2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824, UNIXsum=30637",
                "sha-256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
            ),
            ("sha-256=short, =, adler32", ""),
        ] {
            assert_eq!(seen("Digest", value), expected);
        }
    }

    #[test]
    fn other_headers_are_read() {
        assert_eq!(
            seen("Content-MD5", "XUFAKrxLKna5cZ2REBfFkg=="),
            "md5:5d41402abc4b2a76b9719d911017c592"
        );
        assert_eq!(
            seen("OC-Checksum", "ADLER32:8d62e01a MD5:5d41402abc4b2a76b9719d911017c592"),
            "adler32:8d62e01a md5:5d41402abc4b2a76b9719d911017c592"
        );
        assert_eq!(
            seen("x-goog-hash", "crc32c=n03x6A==,md5=Ojk9c3dhfxgoKVVHYwFbHQ=="),
            "crc32c:9f4df1e8 md5:3a393d7377617f182829554763015b1d"
        );
        assert!(read("Content-Length", "1").is_none());
    }

    /// What is asked for can be understood when it is answered.
    #[test]
    fn wishes_name_known_algorithms() {
        let wishes = [WANT_REPR_DIGEST, WANT_BLAKE3_FIRST, WANT_DIGEST];
        for wish in wishes.iter().flat_map(|wishes| wishes.split(", ")) {
            let name = wish.split(['=', ';']).next().unwrap();
            assert!(name.parse::<Algorithm>().is_ok(), "{name}");
        }
    }

    #[test]
    fn wishes_are_read_by_their_weight() {
        use Algorithm::{Adler32, Blake3, Md5, Sha256, Sha512};
        assert_eq!(wanted(WANT_REPR_DIGEST)[..3], [Sha256, Blake3, Sha512]);
        assert_eq!(wanted("md5=1, sha-256=0, unixsum=9, adler=5;x"), [Adler32, Md5]);
        assert_eq!(wanted_of_old(WANT_DIGEST)[..2], [Sha256, Sha512]);
        assert_eq!(wanted_of_old("adler32"), [Adler32]);
        assert_eq!(wanted_of_old("MD5;q=0.3, sha-256;q=1, sha-512;q=0"), [Sha256, Md5]);
        assert_eq!(wanted_of_old(",;q=,=:nan, md5;q=nan"), []);
    }

    #[test]
    fn digests_are_written_for_either_header() {
        let digests = Algorithm::ALL.map(|algorithm| Hasher::digest(algorithm, b"hello"));
        assert_eq!(parse(&write(&digests)), digests);
        let old = write_old(&digests);
        assert!(old.contains("adler32=062c0215,"), "{old}");
        assert!(old.contains("md5=XUFAKrxLKna5cZ2REBfFkg=="), "{old}");
        let read = parse(&old);
        assert!(digests.iter().all(|it| it.algorithm() == Algorithm::Blake3 || read.contains(it)));
    }

    proptest! {
        #[test]
        fn every_notation_is_read(bytes: Vec<u8>, which in 0..7usize) {
            let digest = Hasher::digest(Algorithm::ALL[which], &bytes);
            let (name, hex, base64) = (digest.algorithm(), digest.to_hex(), digest.to_base64());
            for value in [
                format!("{name}=:{base64}:"), format!("x=y, {name}={base64}"),
                format!("{name}={hex},"), format!("{name}=\"{hex}\""),
            ] {
                prop_assert_eq!(parse(&value), vec![digest], "{}", value);
            }
        }

        #[test]
        fn nothing_panics(value in "(md5|sha-256|adler32)?[=:,; \"a-fé]{0,40}") {
            for name in ["digest", "oc-checksum", "content-md5"] {
                let _ = (read(name, &value), wanted(&value), wanted_of_old(&value));
            }
        }
    }
}
