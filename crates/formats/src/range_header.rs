//! The `Range` header (RFC 9110, section 14.2), as a server reads it.

use swath_model::range::Range;

/// The meaning of a `Range` header for a file of some size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// No valid range: answer with the whole file.
    Whole,
    /// These ranges, in the order of the request. None is empty, all lie in the file, and no two
    /// overlap or touch.
    Parts(Vec<Range>),
    /// No requested byte lies in the file: 416.
    Unsatisfiable,
}

/// Parses `bytes=0-99`, `bytes=100-`, `bytes=-50`, or several of them, for a file of `size_bytes`.
///
/// A malformed header, one of another unit, or one with more than [`PARTS_MAX`] parts counts as no
/// range, as the RFC allows. Parts that overlap or touch are joined.
pub fn parse(value: &str, size_bytes: u64) -> Ranges {
    let Some(asked) = specs(value) else { return Ranges::Whole };
    let mut parts: Vec<Range> = Vec::new();
    for spec in asked {
        let Some(range) = spec.within(size_bytes) else { continue };
        // A joined part takes the place of the first one.
        match parts.iter_mut().find(|part| range.start <= part.end && part.start <= range.end) {
            Some(part) => {
                *part = Range::new(part.start.min(range.start), part.end.max(range.end));
            }
            None => parts.push(range),
        }
    }
    join(&mut parts);
    if parts.is_empty() { Ranges::Unsatisfiable } else { Ranges::Parts(parts) }
}

/// Joins parts that came to touch when others grew.
fn join(parts: &mut Vec<Range>) {
    let mut at = 0;
    while at < parts.len() {
        let one = parts[at];
        let other = (at + 1..parts.len())
            .find(|&other| parts[other].start <= one.end && one.start <= parts[other].end);
        match other {
            Some(other) => {
                let other = parts.remove(other);
                parts[at] = Range::new(one.start.min(other.start), one.end.max(other.end));
            }
            None => at += 1,
        }
    }
}

#[derive(Clone, Copy)]
enum Spec {
    /// From the first to the last byte, both included; without a last, to the end.
    From(u64, Option<u64>),
    /// This many bytes at the end.
    Last(u64),
}

impl Spec {
    fn within(self, size_bytes: u64) -> Option<Range> {
        let range = match self {
            Spec::From(first, last) => {
                let end = last.map_or(size_bytes, |last| last.saturating_add(1).min(size_bytes));
                Range::new(first.min(end), end)
            }
            Spec::Last(bytes) => Range::new(size_bytes - bytes.min(size_bytes), size_bytes),
        };
        (!range.is_empty()).then_some(range)
    }
}

fn specs(value: &str) -> Option<Vec<Spec>> {
    let (unit, set) = value.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let mut specs = Vec::new();
    // A list may have empty elements (RFC 9110, section 5.6.1).
    for spec in set.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
        if specs.len() == PARTS_MAX {
            return None;
        }
        let (first, last) = spec.split_once('-')?;
        let (first, last) = (first.trim(), last.trim());
        specs.push(match (first, last) {
            ("", last) => Spec::Last(number(last)?),
            (first, "") => Spec::From(number(first)?, None),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first {
                    return None;
                }
                Spec::From(first, Some(last))
            }
        });
    }
    (!specs.is_empty()).then_some(specs)
}

/// Parses digits only; a number that does not fit means "past any end".
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Most parts of a request, as many as vector reads need at once (XRootD accepts 1024). Further
/// parts cost too much: each is compared with all others, and has its own text in the answer.
pub const PARTS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(value: &str, size_bytes: u64) -> Vec<(u64, u64)> {
        match parse(value, size_bytes) {
            Ranges::Parts(parts) => parts.iter().map(|part| (part.start, part.end)).collect(),
            other => panic!("{value}: {other:?}"),
        }
    }

    /// The examples of RFC 9110, section 14.1.2, and what stands around them.
    #[test]
    fn the_forms_of_the_rfc_are_read() {
        assert_eq!(parts("bytes=0-499", 10_000), [(0, 500)]);
        assert_eq!(parts("bytes=500-999", 10_000), [(500, 1000)]);
        assert_eq!(parts("bytes=-500", 10_000), [(9500, 10_000)]);
        assert_eq!(parts("bytes=9500-", 10_000), [(9500, 10_000)]);
        assert_eq!(parts("Bytes = 0-0 , -1", 10_000), [(0, 1), (9999, 10_000)]);
        assert_eq!(parts("bytes=500-600,601-999", 10_000), [(500, 1000)]);
        assert_eq!(parts("bytes=500-700,601-999", 10_000), [(500, 1000)]);
        assert_eq!(parts("bytes=,700-799,,0-9,", 10_000), [(700, 800), (0, 10)]);
        assert_eq!(parts("bytes=0-9,20-29,5-24,99999-", 100), [(0, 30)]);
        assert_eq!(parts("bytes=0-99999999999999999999999999", 10), [(0, 10)]);
        assert_eq!(parts("bytes=-99", 10), [(0, 10)]);
    }

    #[test]
    fn what_is_no_range_is_ignored_and_what_lies_outside_is_refused() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=1",
            "bytes=--1",
            "bytes=1-2-3",
            "lines=0-9",
            "bytes=+1-2",
            "bytes=0-9,x",
            "bytes=-",
            "0-9",
        ] {
            assert_eq!(parse(value, 100), Ranges::Whole, "{value:?}");
        }
        let many: Vec<String> =
            (0..=PARTS_MAX).map(|at| format!("{}-{}", 3 * at, 3 * at)).collect();
        assert_eq!(parse(&format!("bytes={}", many.join(",")), 9000), Ranges::Whole);
        assert_eq!(parts(&format!("bytes={}", many[1..].join(",")), 9000).len(), PARTS_MAX);
        for value in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=200-,300-400"] {
            assert_eq!(parse(value, 100), Ranges::Unsatisfiable, "{value:?}");
        }
        assert_eq!(parse("bytes=0-", 0), Ranges::Unsatisfiable);
        assert_eq!(parse("bytes=-1", 0), Ranges::Unsatisfiable);
    }

    proptest! {
        #[test]
        fn parts_are_what_was_asked_for(
            asked in prop::collection::vec((0..60u64, 0..20u64, 0..4u8), 1..12), size in 0..50u64,
        ) {
            let mut wanted = vec![false; 80];
            let specs: Vec<String> = asked
                .iter()
                .map(|&(first, more, form)| {
                    let (from, to) = match form {
                        0 => (first, u64::MAX),
                        1 => (size.saturating_sub(more), u64::MAX),
                        _ => (first, first + more + 1),
                    };
                    for (at, byte) in wanted.iter_mut().enumerate() {
                        *byte |= (from..to).contains(&(at as u64)) && (at as u64) < size;
                    }
                    match form {
                        0 => format!("{first}-"),
                        1 => format!("-{more}"),
                        _ => format!("{first}-{}", first + more),
                    }
                })
                .collect();
            let mut found = vec![false; 80];
            match parse(&format!("bytes={}", specs.join(",")), size) {
                Ranges::Whole => prop_assert!(false, "it is well-formed"),
                Ranges::Unsatisfiable => {}
                Ranges::Parts(parts) => {
                    for (at, part) in parts.iter().enumerate() {
                        prop_assert!(!part.is_empty() && part.end <= size);
                        for other in &parts[..at] {
                            prop_assert!(part.end < other.start || other.end < part.start);
                        }
                        found[part.start as usize..part.end as usize].fill(true);
                    }
                }
            }
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn no_text_can_do_harm(text in "\\PC*", size: u64) {
            parse(&text, size);
            parse(&format!("bytes={text}"), size);
        }
    }
}
