//! The name that a server gives a file: `Content-Disposition` (RFC 6266), with names in other scripts
//! (`filename*`, RFC 8187).

use swath_model::path::SafePath;

use crate::percent;
use crate::text::trim_blanks;

/// Returns the file name in a field's value: of `filename*` if it can be read, else of `filename`. Only its
/// last component counts, with `/` and `\` between them.
///
/// `None` if there is none, or none that is safe: a name is never empty or hidden (`.profile`), contains no
/// control characters, and is no longer than file systems accept.
pub fn file_name(value: &str) -> Option<SafePath> {
    let (mut plain, mut extended) = (None, None);
    let mut rest = value;
    // The first word says what to do with the file.
    while let Some((name, value, behind)) = next_parameter(rest) {
        rest = behind;
        match name.to_ascii_lowercase().as_str() {
            "filename" if plain.is_none() => plain = Some(value),
            "filename*" if extended.is_none() => extended = decoded(&value),
            _ => {}
        }
    }
    [extended, plain].into_iter().flatten().find_map(|name| safe(&name))
}

/// Returns the last component of `name`, if it is safe.
fn safe(name: &str) -> Option<SafePath> {
    let last = name.rsplit(['/', '\\']).next()?.trim();
    SafePath::new(last).ok().filter(|_| !last.starts_with('.'))
}

/// Returns the next parameter behind a `;`: its name, its value without quotes, and what follows.
fn next_parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = &text[text.find(';')? + 1..];
    let (before, rest) = text.split_at(text.find(['=', ';']).unwrap_or(text.len()));
    let Some(rest) = rest.strip_prefix('=') else {
        // Without a value.
        return Some((trim_blanks(before), String::new(), rest));
    };
    let name = trim_blanks(before);
    let rest = rest.trim_start_matches([' ', '\t']);
    let Some(quoted) = rest.strip_prefix('"') else {
        let (value, rest) = rest.split_at(rest.find(';').unwrap_or(rest.len()));
        return Some((name, trim_blanks(value).to_owned(), rest));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match (c, chars.peek()) {
            ('"', _) => return Some((name, value, &quoted[at + 1..])),
            // Other backslashes were meant as such: by servers that know only Windows.
            ('\\', Some((_, escaped @ ('"' | '\\')))) => {
                value.push(*escaped);
                chars.next();
            }
            _ => value.push(c),
        }
    }
    // The quote does not end.
    Some((name, value, ""))
}

/// Decodes `UTF-8''a%20b` (RFC 8187, section 3.2.1); of other character sets only ISO-8859-1 was ever allowed.
fn decoded(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_language, encoded) = rest.split_once('\'')?;
    let bytes = percent::decode(encoded);
    match charset.to_ascii_lowercase().as_str() {
        "utf-8" => String::from_utf8(bytes).ok(),
        "iso-8859-1" => Some(bytes.into_iter().map(char::from).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(value: &str) -> Option<String> {
        file_name(value).map(|name| name.as_str().to_owned())
    }

    #[test]
    fn names_are_read_as_rfc_6266_has_them() {
        for (value, expected) in [
            ("attachment; filename=data.h5", "data.h5"),
            ("attachment; filename=\"run 7.h5\"; size=5", "run 7.h5"),
            ("inline;FileName = \"a;b=c.h5\"", "a;b=c.h5"),
            ("attachment; filename=\"a\\\"b.h5\"", "a\"b.h5"),
            ("attachment; filename=\"EURO.h5\"; filename*=utf-8''%e2%82%ac.h5", "€.h5"),
            ("attachment; filename*=UTF-8'en'a%20b.h5; filename=x", "a b.h5"),
            ("attachment; filename*=ISO-8859-1''%e9.h5", "é.h5"),
            ("attachment; filename=größe.h5", "größe.h5"),
            // Which cannot be read: the other one counts.
            ("attachment; filename=x.h5; filename*=UTF-8''%ff.h5", "x.h5"),
            ("attachment; filename=x.h5; filename*=koi8-r''y", "x.h5"),
            ("attachment; filename=x.h5; filename*=y.h5", "x.h5"),
            ("attachment; filename=x.h5; filename*=UTF-8''..%2f..", "x.h5"),
            ("attachment; filename=\"open.h5", "open.h5"),
            ("attachment; filename=one.h5; filename=two.h5", "one.h5"),
            ("; filename=x.h5", "x.h5"),
            ("attachment; filename=\"100%25.h5\"", "100%25.h5"),
        ] {
            assert_eq!(name(value).as_deref(), Some(expected), "{value}");
        }
    }

    #[test]
    fn only_the_last_component_counts_and_it_is_safe() {
        for (value, expected) in [
            ("attachment; filename=\"/etc/passwd\"", Some("passwd")),
            ("attachment; filename=\"..\\..\\evil.exe\"", Some("evil.exe")),
            ("attachment; filename*=UTF-8''..%2F..%2Fetc%2Fx", Some("x")),
            ("attachment; filename=\" data.h5 \"", Some("data.h5")),
            ("attachment; filename=\"..\"", None),
            ("attachment; filename=\"a/\"", None),
            ("attachment; filename=\".bashrc\"", None),
            ("attachment; filename*=UTF-8''%2ebashrc", None),
            ("attachment; filename=\"\"", None),
            ("attachment; filename=", None),
            ("attachment; filename", None),
            ("attachment; filename*=UTF-8''a%0ab", None),
            ("attachment; filename*=UTF-8''a%00b", None),
            ("attachment; filename*=UTF-8''x%e2%80%aetxt.exe", None),
            ("attachment", None),
            ("filename=x.h5", None),
            ("", None),
        ] {
            assert_eq!(name(value).as_deref(), expected, "{value}");
        }
        assert_eq!(name(&format!("attachment; filename={}", "x".repeat(256))), None);
    }
}
