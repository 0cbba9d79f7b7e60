//! Reads the bencoding of answers (BEP 3), value by value, without building a tree.

/// The rest of a text in bencoding.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The bytes are not bencoding, or not the kind of value that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where, in bytes from the beginning.
    pub at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Returns the kind of the next value by its first byte; `None` at the end of the bytes.
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Reads `byte`, or fails.
    pub fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        match self.take_if(byte) {
            true => Ok(()),
            false => Err(self.malformed()),
        }
    }

    /// Reads `byte`, if it is the next one.
    pub fn take_if(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Reads an integer. Leading zeros are accepted, as some trackers write them.
    pub fn integer(&mut self) -> Result<i64, Malformed> {
        self.expect(b'i')?;
        self.number(b'e')
    }

    /// Reads a byte string.
    pub fn string(&mut self) -> Result<&'a [u8], Malformed> {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.malformed());
        }
        let begin = self.at;
        let length = usize::try_from(self.number(b':')?).map_err(|_| Malformed { at: begin })?;
        let rest = &self.bytes[self.at..];
        let string = rest.get(..length).ok_or(Malformed { at: begin })?;
        self.at += length;
        Ok(string)
    }

    /// Reads a value of any kind and ignores it.
    pub fn skip(&mut self) -> Result<(), Malformed> {
        let mut depth = 0;
        loop {
            match self.peek() {
                Some(b'i') => _ = self.integer()?,
                Some(b'l' | b'd') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'e') if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                _ => _ = self.string()?,
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    pub fn malformed(&self) -> Malformed {
        Malformed { at: self.at }
    }

    fn number(&mut self, end: u8) -> Result<i64, Malformed> {
        let begin = self.at;
        let rest = &self.bytes[begin..];
        let window = &rest[..rest.len().min(DIGITS_MAX)];
        let length = window.iter().position(|&byte| byte == end);
        let length = length.ok_or(Malformed { at: begin })?;
        let text = core::str::from_utf8(&rest[..length]).ok();
        // `parse` would accept a plus sign.
        let text = text.filter(|text| !text.starts_with('+'));
        let number = text.and_then(|text| text.parse().ok()).ok_or(Malformed { at: begin })?;
        self.at = begin + length + 1;
        Ok(number)
    }
}

/// Longer than any 64-bit number with its sign and its end.
const DIGITS_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_skipped() {
        let mut reader = Reader::new(b"d1:ai-5e1:bl2:xyi007eee4:rest");
        reader.skip().unwrap();
        assert_eq!(reader.string(), Ok(&b"rest"[..]));
        assert_eq!(reader.peek(), None);
        let mut reader = Reader::new(b"d3:keyi42ee");
        reader.expect(b'd').unwrap();
        assert_eq!((reader.string(), reader.integer()), (Ok(&b"key"[..]), Ok(42)));
        assert!(reader.take_if(b'e') && !reader.take_if(b'e'));
    }

    #[test]
    fn malformed_values_are_refused_where_they_begin() {
        for (bytes, at) in [
            (&b""[..], 0),
            (b"5:four", 0),
            (b"99999999999999999999:x", 0),
            (b"-1:x", 0),
            (b"i5", 1),
            (b"i+5e", 1),
            (b"ie", 1),
            (b"i--5e", 1),
            (b"i99999999999999999999e", 1),
            (b"l1:a", 4),
            (b"d", 1),
            (b"e", 0),
            (b"x", 0),
        ] {
            assert_eq!(Reader::new(bytes).skip(), Err(Malformed { at }), "{bytes:?}");
        }
        // Depth costs no stack.
        let deep = [b"l".repeat(1 << 20), b"e".repeat(1 << 20)].concat();
        assert_eq!(Reader::new(&deep).skip(), Ok(()));
    }
}
