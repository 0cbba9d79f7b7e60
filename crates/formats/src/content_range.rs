//! The `Content-Range` header (RFC 9110, section 14.4).

use swath_model::range::Range;

use crate::text::{number, shown, trim_blanks};

/// The bytes in a response, and the size of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The bytes; `None` in a 416, which has none.
    pub range: Option<Range>,
    /// The size of the whole; `None` if the server does not know it.
    pub size_bytes: Option<u64>,
}

/// Parses `bytes 0-99/200`, `bytes 0-99/*` or `bytes */200`.
///
/// # Errors
/// [`ContentRangeError`]; without the range, the response cannot be placed.
pub fn parse(value: &str) -> Result<ContentRange, ContentRangeError> {
    let malformed = || ContentRangeError::Malformed { value: shown(value, SHOWN_CHARS) };
    let value = trim_blanks(value);
    let (unit, rest) = value.split_at_checked("bytes".len()).ok_or_else(malformed)?;
    // Some servers write `bytes=` or `bytes:` for `bytes `.
    let rest = rest.trim_start_matches([' ', '\t', '=', ':']);
    if !unit.eq_ignore_ascii_case("bytes") {
        return Err(malformed());
    }
    let (range, size) = rest.split_once('/').ok_or_else(malformed)?;
    let size_bytes = match trim_blanks(size) {
        "*" => None,
        size => Some(number(size).ok_or_else(malformed)?),
    };
    if trim_blanks(range) == "*" {
        // An unknown range of an unknown size is useless.
        size_bytes.ok_or_else(malformed)?;
        return Ok(ContentRange { range: None, size_bytes });
    }
    let (first, last) = range.split_once('-').ok_or_else(malformed)?;
    let first = number(trim_blanks(first)).ok_or_else(malformed)?;
    let last = number(trim_blanks(last)).ok_or_else(malformed)?;
    let impossible = || ContentRangeError::Impossible { value: shown(value, SHOWN_CHARS) };
    let end = last.checked_add(1).ok_or_else(impossible)?;
    if first > last || size_bytes.is_some_and(|size_bytes| end > size_bytes) {
        return Err(impossible());
    }
    Ok(ContentRange { range: Some(Range::new(first, end)), size_bytes })
}

/// Why a `Content-Range` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentRangeError {
    /// Not of the form `bytes FIRST-LAST/SIZE`.
    #[error("Content-Range {value:?} is not of the form 'bytes FIRST-LAST/SIZE'")]
    Malformed {
        /// The value, shortened.
        value: String,
    },
    /// The range is reversed, or reaches past the size.
    #[error("Content-Range {value:?} contradicts itself")]
    Impossible {
        /// The value, shortened.
        value: String,
    },
}

const SHOWN_CHARS: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_three_forms_are_read() {
        for (value, range, size_bytes) in [
            ("bytes 0-99/200", Some(Range::new(0, 100)), Some(200)),
            ("bytes 5-5/*", Some(Range::new(5, 6)), None),
            ("bytes */200", None, Some(200)),
            ("bytes */0", None, Some(0)),
            ("BYTES=0-0/1", Some(Range::new(0, 1)), Some(1)),
            (" bytes  0 - 1 / 2 ", Some(Range::new(0, 2)), Some(2)),
        ] {
            assert_eq!(parse(value), Ok(ContentRange { range, size_bytes }), "{value}");
        }
    }

    #[test]
    fn lies_and_nonsense_are_refused() {
        for value in ["bytes 9-5/20", "bytes 0-20/20", "bytes 0-18446744073709551615/*"] {
            assert!(parse(value).unwrap_err().to_string().contains("contradicts"), "{value}");
        }
        for value in [
            "",
            "bytes",
            "bytes 1-2",
            "bytes -2/3",
            "bytes 1-/3",
            "bytes +1-2/3",
            "items 0-1/2",
            "bytes 0-1/",
            "bytes */*",
            "bytes 0-99999999999999999999/1",
            "byte\u{e9} 0-1/2",
        ] {
            assert!(parse(value).unwrap_err().to_string().contains("form"), "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(first: u64, len in 1..u64::MAX, more: u64) {
            let range = Range::of_len(first, len);
            prop_assume!(range.end > range.start);
            let size = range.end.saturating_add(more);
            let value = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            prop_assert_eq!(parse(&value), Ok(ContentRange { range: Some(range), size_bytes: Some(size) }));
        }

        #[test]
        fn nothing_panics(value in "(bytes)?[ 0-9*/é=-]{0,30}") {
            let _ = parse(&value);
        }
    }
}
