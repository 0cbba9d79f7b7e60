//! Any bytes as a body in chunks: the same, in whatever cuts they come, to a client and to a server.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::chunks::{ChunkError, Chunks};

fuzz_target!(|bytes: &[u8]| {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    for chunks in [Chunks::lenient(), Chunks::strict()] {
        let all = in_parts(chunks.clone(), bytes, bytes.len().max(1), usize::MAX);
        let parts = in_parts(chunks, bytes, usize::from(step).max(1), 7);
        assert_eq!(all.is_ok(), parts.is_ok());
        if let (Ok(all), Ok(parts)) = (all, parts) {
            assert_eq!(all, parts);
        }
    }
});

/// The body and what followed it.
fn in_parts(
    mut chunks: Chunks,
    bytes: &[u8],
    step: usize,
    most: usize,
) -> Result<(Vec<u8>, Vec<u8>), ChunkError> {
    let (mut input, mut body) = (Vec::new(), Vec::new());
    for part in bytes.chunks(step) {
        input.extend_from_slice(part);
        loop {
            let mut out = Vec::new();
            chunks.read(&mut input, &mut out, most)?;
            assert!(out.len() <= most);
            if out.is_empty() {
                break;
            }
            body.append(&mut out);
        }
    }
    Ok((body, input))
}
