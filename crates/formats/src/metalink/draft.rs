//! One file of a Metalink while its elements arrive.

use quick_xml::XmlVersion;
use quick_xml::events::BytesStart;
use swath_model::digest::{Algorithm, Digest, DigestError, UnknownAlgorithm};
use swath_model::path::SafePath;
use swath_model::pieces::Pieces;
use swath_model::{Range, RangeSet};
use url::Url;

use super::guard::Limit;
use super::reader::SHOWN_CHARS;
use super::tags::Tag;
use super::{
    File, Held, Metaurl, Mirror, PRIORITY_WORST, Problem, SkipReason, Skipped, WHAT_PIECES,
};
use crate::mirror_url::mirror_url;
use crate::text::{number, shown};

/// The attributes of one element, by local name.
#[derive(Default)]
pub(super) struct Attributes {
    all: Vec<(String, String)>,
    /// Whether a value is unreadable.
    is_broken: bool,
}

impl Attributes {
    pub(super) fn read(start: &BytesStart) -> Result<Attributes, Problem> {
        let mut all = Vec::new();
        let mut is_broken = false;
        // The library also checks for duplicate names; that is quadratic, but limited.
        for (at, attribute) in start.attributes().enumerate() {
            if at == ATTRIBUTES_MAX {
                return Err(Problem::Limit(Limit::Attributes(ATTRIBUTES_MAX)));
            }
            let malformed = |error: &dyn std::fmt::Display| {
                Problem::Xml(shown(&error.to_string(), SHOWN_CHARS))
            };
            let attribute = attribute.map_err(|error| malformed(&error))?;
            // Skip prefixes: namespaces (except the default one) and extensions have one.
            if attribute.key.prefix().is_some() || attribute.key.as_namespace_binding().is_some() {
                continue;
            }
            // A value with an unknown entity or an invalid character counts as missing.
            let Ok(value) = attribute.normalized_value(XmlVersion::Implicit1_0) else {
                is_broken = true;
                continue;
            };
            all.push((attribute.key.local_name().as_ref().to_owned(), value.into_owned()));
        }
        Ok(Attributes { all, is_broken })
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn shown(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| shown(value, SHOWN_CHARS)).filter(|value| !value.is_empty())
    }

    /// Returns the priority: Metalink 4 counts down to 1, Metalink 3 up to 100.
    fn priority(&self) -> u32 {
        let number = |name| self.get(name).and_then(|value| value.trim().parse::<u32>().ok());
        match (number("priority"), number("preference")) {
            (Some(priority), _) => priority.clamp(1, PRIORITY_WORST),
            (None, Some(preference)) => 101 - preference.min(100),
            (None, None) => PRIORITY_WORST,
        }
    }
}

/// A file whose end tag has not arrived yet.
pub(super) struct Draft {
    file: File,
    pieces: Option<PiecesDraft>,
    addresses: usize,
}

/// Piece digests whose end tag has not arrived yet.
struct PiecesDraft {
    algorithm: Result<Algorithm, UnknownAlgorithm>,
    length_bytes: Option<u64>,
    packed: Vec<u8>,
    count: u64,
    /// The first problem with them.
    problem: Option<SkipReason>,
}

impl Draft {
    pub(super) fn new(file: File) -> Draft {
        Draft { file, pieces: None, addresses: 0 }
    }

    /// Returns the file's name.
    pub(super) fn name(&self) -> &str {
        self.file.name.as_str()
    }

    pub(super) fn pieces_start(&mut self, attributes: &Attributes) {
        self.pieces = Some(PiecesDraft {
            algorithm: attributes.get("type").unwrap_or_default().parse(),
            length_bytes: attributes.get("length").and_then(|text| text.trim().parse().ok()),
            packed: Vec::new(),
            count: 0,
            problem: None,
        });
    }

    /// Handles the end of one of the file's elements.
    pub(super) fn end(
        &mut self,
        tag: Tag,
        attributes: &Attributes,
        text: &str,
        line: u64,
        base: Option<&Url>,
    ) -> Result<(), Problem> {
        let outcome = match tag {
            Tag::Size => self.size(text),
            Tag::Identity => {
                self.file.identity = Some(shown(text, SHOWN_CHARS)).filter(|text| !text.is_empty());
                Ok(())
            }
            Tag::Hash => self.digest(attributes, text)?,
            Tag::PieceHash => {
                self.piece(attributes, text)?;
                Ok(())
            }
            Tag::Pieces => return self.pieces_end(line),
            Tag::Url | Tag::Metaurl => {
                self.count_address()?;
                self.address(tag, attributes, text, base)
            }
            Tag::Held => {
                self.count_address()?;
                self.held(attributes, text, base)
            }
            _ => Ok(()),
        };
        match outcome {
            Ok(()) => Ok(()),
            Err(reason) => self.skip(text, line, reason),
        }
    }

    /// Handles the end of the file itself.
    pub(super) fn finish(mut self, line: u64) -> File {
        if let (Some(pieces), Some(size_bytes)) = (&self.file.pieces, self.file.size_bytes)
            && let Err(error) = pieces.check(size_bytes)
        {
            self.file.pieces = None;
            let what = WHAT_PIECES.into();
            self.file.skipped.push(Skipped { what, line, reason: error.into() });
        }
        if let Some(size_bytes) = self.file.size_bytes {
            let before = self.file.held.len();
            self.file
                .held
                .retain(|held| held.ranges.last().is_some_and(|last| last.end <= size_bytes));
            for _ in self.file.held.len()..before {
                let reason = SkipReason::Held;
                self.file.skipped.push(Skipped { what: "held".into(), line, reason });
            }
        }
        self.file.held.sort_by_key(|held| held.priority);
        // Stable: addresses of equal priority keep their order. The same address may occur twice,
        // as HTTPS and as WebDAV; the better one is kept.
        self.file.mirrors.sort_by_key(|mirror| mirror.priority);
        let mut seen = std::collections::HashSet::new();
        let is_first: Vec<bool> =
            self.file.mirrors.iter().map(|mirror| seen.insert(mirror.url.as_str())).collect();
        let mut is_first = is_first.into_iter();
        self.file.mirrors.retain(|_| is_first.next().unwrap_or(true));
        self.file.metaurls.sort_by_key(|metaurl| metaurl.priority);
        // There may be a hundred thousand files, each with spare room for four items in every list.
        self.file.mirrors.shrink_to_fit();
        self.file.digests.shrink_to_fit();
        self.file.skipped.shrink_to_fit();
        self.file
    }

    fn size(&mut self, text: &str) -> Result<(), SkipReason> {
        self.file.size_bytes = Some(text.parse().map_err(|_| SkipReason::Size)?);
        Ok(())
    }

    /// Adds a digest. The outer result is for limits, the inner one for skips.
    fn digest(
        &mut self,
        attributes: &Attributes,
        text: &str,
    ) -> Result<Result<(), SkipReason>, Problem> {
        if self.file.digests.len() >= DIGESTS_MAX {
            return Err(Problem::Limit(Limit::Digests(DIGESTS_MAX)));
        }
        Ok(read_digest(attributes, text).map_err(SkipReason::from).and_then(|digest| {
            let algorithm = digest.algorithm();
            match self.file.digests.iter().find(|other| other.algorithm() == algorithm) {
                Some(other) if *other == digest => Ok(()),
                Some(_) => Err(SkipReason::DigestTwice(algorithm)),
                None => {
                    self.file.digests.push(digest);
                    Ok(())
                }
            }
        }))
    }

    fn piece(&mut self, attributes: &Attributes, text: &str) -> Result<(), Problem> {
        let Some(pieces) = &mut self.pieces else { return Ok(()) };
        if pieces.packed.len() > PIECE_BYTES_MAX {
            return Err(Problem::Limit(Limit::PieceBytes(PIECE_BYTES_MAX)));
        }
        let number = pieces.count;
        pieces.count += 1;
        let Ok(algorithm) = pieces.algorithm else { return Ok(()) };
        // Metalink 3 numbers them, from 0.
        let in_order = attributes
            .get("piece")
            .is_none_or(|piece| piece.trim().parse::<u64>().is_ok_and(|piece| piece == number));
        let problem = match Digest::from_hex(algorithm, text) {
            _ if !in_order => SkipReason::PieceOrder,
            Err(error) => error.into(),
            Ok(digest) => {
                pieces.packed.extend_from_slice(digest.as_bytes());
                return Ok(());
            }
        };
        pieces.problem.get_or_insert(problem);
        Ok(())
    }

    fn pieces_end(&mut self, line: u64) -> Result<(), Problem> {
        let Some(draft) = self.pieces.take() else { return Ok(()) };
        match draft.finish() {
            Ok(pieces) => match &self.file.pieces {
                Some(other) if other.algorithm() >= pieces.algorithm() => {
                    self.skip(pieces.algorithm().name(), line, SkipReason::PiecesWeaker)
                }
                _ => {
                    self.file.pieces = Some(pieces);
                    Ok(())
                }
            },
            Err(reason) => self.skip(WHAT_PIECES, line, reason),
        }
    }

    fn address(
        &mut self,
        tag: Tag,
        attributes: &Attributes,
        text: &str,
        base: Option<&Url>,
    ) -> Result<(), SkipReason> {
        let url = mirror_url(text, base)?;
        let priority = attributes.priority();
        // Metalink 3 lists torrents among the addresses.
        let is_torrent = attributes.get("type").is_some_and(|kind| kind == "bittorrent");
        if tag == Tag::Metaurl || is_torrent {
            let media_type = match attributes.shown("mediatype") {
                _ if is_torrent => "torrent".to_owned(),
                named => named.unwrap_or_default(),
            };
            let name = attributes.get("name").map(SafePath::new).transpose()?;
            self.file.metaurls.push(Metaurl { url, media_type, priority, name });
            return Ok(());
        }
        let location = attributes.shown("location");
        let (location, name) = match location.as_deref().map(str::as_bytes) {
            Some([a, b]) if a.is_ascii_alphabetic() && b.is_ascii_alphabetic() => {
                (Some([a.to_ascii_lowercase(), b.to_ascii_lowercase()]), None)
            }
            // Rucio puts the name of its storage element here.
            _ => (None, location.map(String::into_boxed_str)),
        };
        self.file.mirrors.push(Mirror { url, priority, location, name });
        Ok(())
    }

    fn held(
        &mut self,
        attributes: &Attributes,
        text: &str,
        base: Option<&Url>,
    ) -> Result<(), SkipReason> {
        let url = mirror_url(text, base)?;
        let ranges = attributes.get("ranges").and_then(read_ranges).ok_or(SkipReason::Held)?;
        self.file.held.push(Held { url, ranges, priority: attributes.priority() });
        Ok(())
    }

    fn count_address(&mut self) -> Result<(), Problem> {
        self.addresses += 1;
        if self.addresses > ADDRESSES_MAX {
            return Err(Problem::Limit(Limit::Addresses(ADDRESSES_MAX)));
        }
        Ok(())
    }

    fn skip(&mut self, what: &str, line: u64, reason: SkipReason) -> Result<(), Problem> {
        if self.file.skipped.len() >= ADDRESSES_MAX {
            return Err(Problem::Limit(Limit::Addresses(ADDRESSES_MAX)));
        }
        let what = shown(what, SHOWN_CHARS).into();
        self.file.skipped.push(Skipped { what, line, reason });
        Ok(())
    }
}

impl PiecesDraft {
    fn finish(mut self) -> Result<Pieces, SkipReason> {
        let algorithm = self.algorithm.map_err(DigestError::from)?;
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let length_bytes = self.length_bytes.ok_or(SkipReason::PieceLength)?;
        self.packed.shrink_to_fit();
        Ok(Pieces::new(algorithm, length_bytes, self.packed)?)
    }
}

/// Parses `FIRST-LAST,FIRST-LAST`, both included, at least one.
fn read_ranges(text: &str) -> Option<RangeSet> {
    let mut ranges = RangeSet::new();
    for (at, range) in text.split(',').enumerate() {
        let (first, last) = range.split_once('-')?;
        let (first, end) = (number(first.trim())?, number(last.trim())?.checked_add(1)?);
        if first >= end || at >= RANGES_MAX {
            return None;
        }
        ranges.insert(Range::new(first, end));
    }
    Some(ranges)
}

fn read_digest(attributes: &Attributes, text: &str) -> Result<Digest, DigestError> {
    let name = match attributes.get("type") {
        // An unreadable algorithm must not be reported as an unknown one.
        None if attributes.is_broken => return Digest::from_hex(Algorithm::Md5, ""),
        name => name.unwrap_or_default(),
    };
    Digest::from_hex(name.parse()?, text)
}

/// Metalink's elements have at most five attributes, Rucio's addresses four.
const ATTRIBUTES_MAX: usize = 64;
/// There are fewer digest algorithms than this.
const DIGESTS_MAX: usize = 64;
/// Far more than the replicas in any catalogue.
const ADDRESSES_MAX: usize = 10_000;
/// Ranges of one address: usually few, or some thousand if many sources took turns.
const RANGES_MAX: usize = 100_000;
/// Enough for SHA-256 of 2 Mi pieces.
const PIECE_BYTES_MAX: usize = 64 << 20;
