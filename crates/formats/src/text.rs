//! Making text from a network fit to be shown or stored.

/// `text` without control characters and surrounding space, cut after `chars_max` characters.
pub(crate) fn shown(text: &str, chars_max: usize) -> String {
    let mut shown: String =
        text.trim().chars().filter(|c| !c.is_control()).take(chars_max + 1).collect();
    if let Some((cut, _)) = shown.char_indices().nth(chars_max) {
        shown.truncate(cut);
        shown.push('…');
    }
    shown
}
