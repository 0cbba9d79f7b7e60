//! Text from outside made harmless inside HTML and JSON.
//!
//! Names of files and mirrors are hostile: besides markup they may carry control characters and
//! marks that reverse the direction of writing, which would let one name look like another.

/// Text for an element's content or a quoted attribute.
pub(super) fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if is_hidden(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A JSON string, quotes included, that cannot end the script element around it.
pub(super) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '<' | '>' | '&' | '\'' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)))
            }
            c if is_hidden(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Control characters and marks that change the direction of text or take no room.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(
            html("<b a='1'>&\"</b>\u{1b}\u{202e}"),
            "&lt;b a=&#39;1&#39;&gt;&amp;&quot;&lt;/b&gt;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn a_json_string_cannot_close_its_script() {
        let hostile = "</script><!--\"\\\n\u{2028}é";
        let text = json(hostile);
        assert!(!text.contains('<') && !text.contains('>') && !text.contains('\n'), "{text}");
        let back: String = serde_json::from_str(&text).expect("valid JSON");
        assert_eq!(back, hostile.replace('\n', "\u{fffd}"));
    }
}
