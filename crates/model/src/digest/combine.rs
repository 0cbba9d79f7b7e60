//! Joins the checksums of two adjacent ranges without reading them again.
//!
//! Adler-32 and CRC-32C are linear, so ranges may be summed as they arrive, in any order, and
//! joined later. Grid storage usually knows only a file's Adler-32, so this is how to check such a
//! file without another pass over it.

/// Returns the Adler-32 of A followed by B, from the sums of each and B's length in bytes.
pub fn adler32_combine(a: u32, b: u32, b_bytes: u64) -> u32 {
    let (a_low, a_high) = (u64::from(a & 0xffff), u64::from(a >> 16));
    let (b_low, b_high) = (u64::from(b & 0xffff), u64::from(b >> 16));
    // Each of B's partial sums began at 1, but should have begun at A's low half.
    let shift = (a_low % ADLER_BASE + ADLER_BASE - 1) % ADLER_BASE;
    let low = (shift + b_low) % ADLER_BASE;
    let high = (a_high + b_high + (b_bytes % ADLER_BASE) * shift) % ADLER_BASE;
    (high as u32) << 16 | low as u32
}

/// Returns the CRC-32C of A followed by B, from the sums of each and B's length in bytes.
pub fn crc32c_combine(a: u32, b: u32, b_bytes: u64) -> u32 {
    match usize::try_from(b_bytes) {
        Ok(b_bytes) => crc32c::crc32c_combine(a, b, b_bytes),
        // A 32-bit machine: appending 2^31 zeros is slow, but the result is right.
        Err(_) => {
            let half = b_bytes / 2;
            let zeros = crc32c_combine(a, 0, half);
            crc32c_combine(zeros, 0, b_bytes - half) ^ b
        }
    }
}

/// The largest prime below 2^16 (RFC 1950).
const ADLER_BASE: u64 = 65_521;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn adler32(bytes: &[u8]) -> u32 {
        let (mut low, mut high) = (1, 0);
        for byte in bytes {
            low = (low + u32::from(*byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        high << 16 | low
    }

    proptest! {
        #[test]
        fn joined_equals_whole(bytes in prop::collection::vec(any::<u8>(), 0..5000), cut: usize) {
            let cut = if bytes.is_empty() { 0 } else { cut % bytes.len() };
            let (a, b) = bytes.split_at(cut);
            let b_bytes = b.len() as u64;
            prop_assert_eq!(adler32_combine(adler32(a), adler32(b), b_bytes), adler32(&bytes));
            let (crc_a, crc_b) = (crc32c::crc32c(a), crc32c::crc32c(b));
            prop_assert_eq!(crc32c_combine(crc_a, crc_b, b_bytes), crc32c::crc32c(&bytes));
        }
    }
}
