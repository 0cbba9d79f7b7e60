//! Making text from a network fit to be shown or stored.

/// `text` without surrounding space, each control character replaced by one that shows that
/// something was there, cut after `chars_max` characters.
pub(crate) fn shown(text: &str, chars_max: usize) -> String {
    let visible = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let mut shown: String = text.trim().chars().map(visible).take(chars_max + 1).collect();
    if let Some((cut, _)) = shown.char_indices().nth(chars_max) {
        shown.truncate(cut);
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_shown_leaves_a_mark() {
        assert_eq!(shown(" a\nb\x1b[2J ", 20), "a\u{fffd}b\u{fffd}[2J");
        assert_eq!(shown("abcdef", 3), "abc…");
    }
}
