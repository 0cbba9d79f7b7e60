//! Digests: their names, their values, and hashers that survive a restart.
//!
//! `Algorithm` names a function, `Digest` is one value of it, `Hasher` computes it front to
//! back and can be saved in the middle, `Blake3Tree` computes BLAKE3 from groups that arrive in
//! any order, and `Sha256Tree` the roots of BitTorrent v2. Hashers for transfers can be saved:
//! nothing that was hashed before a crash is hashed again after it. Reading files and comparing
//! sources is left to others.

mod algorithm;
mod blake3_stream;
pub mod blake3_tree;
mod combine;
mod hasher;
mod sha1;
pub mod sha256_tree;
mod sha_pair;
mod value;

pub use self::sha1::Sha1;
pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use blake3_tree::Blake3Tree;
pub use combine::{adler32_combine, crc32c_combine};
pub use hasher::{Hasher, LoadError};
pub use sha256_tree::Sha256Tree;
pub use value::{Digest, DigestError};
