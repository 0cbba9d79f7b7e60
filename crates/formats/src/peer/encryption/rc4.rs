//! The stream cipher RC4. Its only use is message stream encryption; it protects no secrets.

use std::fmt;

/// A key stream, from its current place on.
#[derive(Clone)]
pub struct Rc4 {
    state: [u8; 256],
    i: u8,
    j: u8,
}

impl Rc4 {
    /// Returns the key stream of a key, which must not be empty.
    pub(super) fn new(key: &[u8]) -> Rc4 {
        let mut state = std::array::from_fn(|i| i as u8);
        let mut j = 0u8;
        for (i, key) in (0..256).zip(key.iter().cycle()) {
            j = j.wrapping_add(state[i]).wrapping_add(*key);
            state.swap(i, usize::from(j));
        }
        Rc4 { state, i: 0, j: 0 }
    }

    /// Encrypts or decrypts the next bytes of the stream in place.
    pub fn apply(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.i = self.i.wrapping_add(1);
            let a = self.state[usize::from(self.i)];
            self.j = self.j.wrapping_add(a);
            let b = self.state[usize::from(self.j)];
            (self.state[usize::from(self.i)], self.state[usize::from(self.j)]) = (b, a);
            *byte ^= self.state[usize::from(a.wrapping_add(b))];
        }
    }
}

impl fmt::Debug for Rc4 {
    /// Shows nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rc4")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_key_streams() {
        let mut text = *b"Plaintext";
        Rc4::new(b"Key").apply(&mut text);
        assert_eq!(text, [0xbb, 0xf3, 0x16, 0xe8, 0xd9, 0x40, 0xaf, 0x0a, 0xd3]);
        // RFC 6229, key of 40 bits, offsets 0 and 1024.
        let mut stream = [0; 1040];
        Rc4::new(&[1, 2, 3, 4, 5]).apply(&mut stream);
        assert_eq!(stream[..4], [0xb2, 0x39, 0x63, 0x05]);
        let expected: u128 = 0x30ab_bcc7_c20b_0160_9f23_ee2d_5f6b_b7df;
        assert_eq!(stream[1024..], expected.to_be_bytes());
    }

    #[test]
    fn cuts_make_no_difference() {
        let (mut whole, mut parts) = ([7; 600], [7; 600]);
        Rc4::new(b"k").apply(&mut whole);
        let mut cipher = Rc4::new(b"k");
        parts.chunks_mut(7).for_each(|part| cipher.apply(part));
        assert_eq!(whole, parts);
    }
}
