//! The file that is transferred, and the check that it arrived.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use sha2::Digest;
use swath_model::digest::{Algorithm, Hasher};

/// Makes a file of incompressible bytes, the same for the same size, unless it exists already.
pub fn make_file(folder: &Path, size_bytes: u64) -> io::Result<PathBuf> {
    let path = folder.join(format!("data-{size_bytes}"));
    if path.metadata().is_ok_and(|known| known.len() == size_bytes) {
        return Ok(path);
    }
    let mut random = fastrand::Rng::with_seed(size_bytes);
    let mut file = BufWriter::with_capacity(CHUNK_BYTES, File::create(&path)?);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left_bytes = size_bytes;
    while left_bytes > 0 {
        random.fill(&mut chunk);
        let now_bytes = left_bytes.min(CHUNK_BYTES as u64);
        file.write_all(&chunk[..now_bytes as usize])?;
        left_bytes -= now_bytes;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(path)
}

/// Whether two files hold the same bytes. Reads both in small pieces: what is measured next must
/// not inherit a large memory of ours.
pub fn same_content(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        let count = one.read(&mut left)?;
        if count == 0 {
            return Ok(true);
        }
        other.read_exact(&mut right[..count])?;
        if left[..count] != right[..count] {
            return Ok(false);
        }
    }
}

/// BLAKE3 and SHA-256 of a file, in hexadecimal.
pub fn digests(path: &Path) -> io::Result<(String, String)> {
    let mut file = File::open(path)?;
    let (mut blake3, mut sha256) = (blake3::Hasher::new(), sha2::Sha256::new());
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            let sha256 = sha256.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            return Ok((blake3.finalize().to_hex().to_string(), sha256));
        }
        blake3.update(&chunk[..count]);
        sha256.update(&chunk[..count]);
    }
}

/// SHA-256 of a file by the hasher that swath uses, in hexadecimal.
pub fn sha256_by_swath(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Hasher::new(Algorithm::Sha256);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hasher.finish().to_hex()),
            count => hasher.update(&chunk[..count]),
        }
    }
}

const CHUNK_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_once_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let path = make_file(folder.path(), 2_500_000).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 2_500_000);
        let copy = folder.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        assert!(same_content(&path, &copy).unwrap());
        let mut bytes = std::fs::read(&copy).unwrap();
        bytes[2_400_000] ^= 1;
        std::fs::write(&copy, &bytes).unwrap();
        assert!(!same_content(&path, &copy).unwrap());
        std::fs::write(&copy, &bytes[1..]).unwrap();
        assert!(!same_content(&path, &copy).unwrap());
    }
}
