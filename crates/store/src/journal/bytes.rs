//! Encoding and decoding of record payloads.
//!
//! Integers are little-endian; a text or byte string is a `u32` length and its bytes. Reading
//! checks every bound: `None` for bytes that end early or mean nothing.

use swath_model::Range;

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_option_u64(out: &mut Vec<u8>, value: Option<u64>) {
    out.push(u8::from(value.is_some()));
    put_u64(out, value.unwrap_or(0));
}

pub(crate) fn put_range(out: &mut Vec<u8>, range: Range) {
    put_u64(out, range.start);
    put_u64(out, range.end);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_option_text(out: &mut Vec<u8>, text: Option<&str>) {
    out.push(u8::from(text.is_some()));
    if let Some(text) = text {
        put_bytes(out, text.as_bytes());
    }
}

pub(crate) fn put_texts(out: &mut Vec<u8>, texts: &[String]) {
    put_u32(out, texts.len() as u32);
    for text in texts {
        put_bytes(out, text.as_bytes());
    }
}

/// The rest of a payload.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn option_u64(&mut self) -> Option<Option<u64>> {
        match (self.u8()?, self.u64()?) {
            (0, 0) => Some(None),
            (1, value) => Some(Some(value)),
            _ => None,
        }
    }

    pub(crate) fn range(&mut self) -> Option<Range> {
        let (start, end) = (self.u64()?, self.u64()?);
        (start <= end).then(|| Range::new(start, end))
    }

    pub(crate) fn counted(&mut self) -> Option<&'a [u8]> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    pub(crate) fn option_text(&mut self) -> Option<Option<String>> {
        match self.u8()? {
            0 => Some(None),
            1 => Some(Some(self.text()?)),
            _ => None,
        }
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.counted()?.to_vec()).ok()
    }
}
