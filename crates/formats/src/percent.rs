//! Percent-encoding of names in addresses (RFC 3986, section 2.1).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

/// Encodes a name, or a path with `/` between names, for an address.
pub fn encode(path: &[u8]) -> String {
    percent_encode(path, CODED).to_string()
}

/// Decodes to bytes. Invalid codes stand for themselves.
pub fn decode(text: &str) -> Vec<u8> {
    percent_decode(text.as_bytes()).collect()
}

/// Decodes like [`decode`], to text; invalid UTF-8 is replaced.
pub fn decode_text(text: &str) -> String {
    String::from_utf8_lossy(&decode(text)).into_owned()
}

/// All but the unreserved characters and `/`.
const CODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), all);
        assert_eq!(encode(b"a b/\xFF%.~"), "a%20b/%FF%25.~");
        for odd in ["%", "%4", "%zz", "100%", "%+1", "%\u{e9}"] {
            assert_eq!(decode_text(odd), odd, "{odd}");
        }
        assert_eq!(decode_text("a%20b%zz%4%C3%A4"), "a b%zz%4ä");
    }
}
