//! Secrets of a job: a specification refers to them and never holds them.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use swath_source::Secret;

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretRef {
    /// In this file, without surrounding white space.
    File(PathBuf),
    /// In the [`Environment`](crate::Environment), under this name.
    Name(String),
}

/// Why a secret is unavailable. Messages do not contain it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// Unreadable file.
    #[error("cannot read the token in {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The file does not contain one word.
    #[error("{} does not contain a token: it must be one word of printable characters", .0.display())]
    NotAToken(PathBuf),
    /// Unknown name.
    #[error("unknown secret {0}")]
    Unknown(String),
}

/// Reads the token in a file.
///
/// # Errors
/// [`SecretError`].
pub fn token_in(path: &std::path::Path) -> Result<Secret, SecretError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| SecretError::Read { path: path.to_owned(), error })?;
    match text.trim() {
        token if is_token(token) => Ok(Secret::new(token)),
        _ => Err(SecretError::NotAToken(path.to_owned())),
    }
}

/// Whether this can be a token: one word of printable characters.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}
