//! Secrets of a job: a specification refers to them and never holds them.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use swath_source::Secret;

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretRef {
    /// In this file, white space around it stripped.
    File(PathBuf),
    /// Among the secrets of the [`Environment`](crate::Environment), under this name.
    Name(String),
}

/// Why a secret cannot be had. No message repeats it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// Its file cannot be read.
    #[error("cannot read the token in {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file does not hold one word.
    #[error("{} holds no token: it must be one word of visible characters", path.display())]
    NotAToken {
        /// The file.
        path: PathBuf,
    },
    /// The environment has no secret of this name.
    #[error("no secret is called {name}")]
    Unknown {
        /// The name.
        name: String,
    },
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
        _ => Err(SecretError::NotAToken { path: path.to_owned() }),
    }
}

/// Whether this can be a token: one word of visible characters.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}
