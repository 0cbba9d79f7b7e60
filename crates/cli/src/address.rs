//! Names as they stand in addresses (RFC 3986, section 2.1).

/// Of a name, or of a path with `/` between names.
pub fn encoded(path: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let one = |&byte: &u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    path.iter().map(one).collect()
}

/// The bytes that are meant. What is no code stands for itself.
pub fn decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code =
            after.get(..2).filter(|code| first == b'%' && code.iter().all(u8::is_ascii_hexdigit));
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encoded(&all)), all);
        assert_eq!(encoded(b"a b/\xFF%.~"), "a%20b/%FF%25.~");
        for odd in ["%", "%4", "%zz", "100%", "%+1", "%\u{e9}"] {
            assert_eq!(decoded(odd), odd.as_bytes(), "{odd}");
        }
    }
}
