//! Prepares text from a network for display or storage.

use swath_model::path::is_treacherous;

/// Returns `text` without surrounding space, with each control character replaced by a visible
/// sign, cut after `chars_max` characters.
pub(crate) fn shown(text: &str, chars_max: usize) -> String {
    let visible = |c: char| if is_treacherous(c) { char::REPLACEMENT_CHARACTER } else { c };
    let mut shown: String = text.trim().chars().map(visible).take(chars_max + 1).collect();
    if let Some((cut, _)) = shown.char_indices().nth(chars_max) {
        shown.truncate(cut);
        shown.push('…');
    }
    shown
}

/// Returns a header field's value as text: UTF-8 if valid, else ISO-8859-1. Different values stay
/// different: an entity tag may contain any byte from 0x80 on.
pub fn field_text(value: &[u8]) -> String {
    match str::from_utf8(value) {
        Ok(text) => text.to_owned(),
        Err(_) => value.iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// Parses a number of digits only (`parse` also accepts a sign).
pub fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Returns `value` without the surrounding blanks that HTTP allows: only spaces and tabs (RFC 9110,
/// section 5.6.3). Rust's own `trim` also removes Unicode white space, so that swath alone would
/// accept a length followed by a no-break space.
pub fn trim_blanks(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_spaces_and_tabs_are_blanks() {
        assert_eq!(trim_blanks(" \t5\t "), "5");
        for odd in ["5\u{a0}", "\u{85}5", "5\u{2003}", "5\u{c}"] {
            assert_eq!(trim_blanks(odd), odd);
        }
    }

    #[test]
    fn values_that_differ_stay_two() {
        // Tags `v\xe9` and `v\xe8` became equal, and a cache answered with the file as it had been.
        let values: [&[u8]; 4] = [b"v\xe9", b"v\xe8", b"v\xe9\xff", "v\u{fffd}".as_bytes()];
        let texts = values.map(field_text);
        assert_eq!(texts, ["v\u{e9}", "v\u{e8}", "v\u{e9}\u{ff}", "v\u{fffd}"]);
        assert_eq!(field_text("größer".as_bytes()), "größer");
    }

    #[test]
    fn what_cannot_be_shown_leaves_a_mark() {
        assert_eq!(shown(" a\nb\x1b[2J ", 20), "a\u{fffd}b\u{fffd}[2J");
        assert_eq!(shown("abcdef", 3), "abc…");
    }
}
