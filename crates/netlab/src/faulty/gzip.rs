//! A valid gzip stream (RFC 1952) of stored blocks: what a client must decode, or notice that it
//! did not, without a compressor.

/// Wraps bytes in a gzip stream.
pub(super) fn gzip_stored(bytes: &[u8]) -> Vec<u8> {
    let blocks = bytes.len().div_ceil(MAX_STORED_BYTES).max(1);
    let mut stream = Vec::with_capacity(bytes.len() + blocks * 5 + 18);
    stream.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
    for block in 0..blocks {
        let start = block * MAX_STORED_BYTES;
        let part = &bytes[start..bytes.len().min(start + MAX_STORED_BYTES)];
        let length = part.len() as u16;
        stream.push(u8::from(block + 1 == blocks));
        stream.extend_from_slice(&length.to_le_bytes());
        stream.extend_from_slice(&(!length).to_le_bytes());
        stream.extend_from_slice(part);
    }
    stream.extend_from_slice(&crc32(bytes).to_le_bytes());
    stream.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    stream
}

/// Returns the CRC of gzip and Ethernet.
fn crc32(bytes: &[u8]) -> u32 {
    let mut table = [0u32; 256];
    for (value, entry) in table.iter_mut().enumerate() {
        *entry = (0..8).fold(value as u32, |crc, _| {
            if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 }
        });
    }
    !bytes
        .iter()
        .fold(!0, |crc, byte| (crc >> 8) ^ table[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

/// The length field of a stored block has 16 bits.
const MAX_STORED_BYTES: usize = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_published_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn lengths_add_up() {
        for length in [0, 1, 65_535, 65_536, 200_000] {
            let blocks = length.max(1usize).div_ceil(65_535);
            assert_eq!(gzip_stored(&vec![7; length]).len(), length + blocks * 5 + 18);
        }
    }
}
