//! Secrets of a job: a specification refers to them and never holds them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use swath_source::{NetError, TokenError};

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretRef {
    /// In this file, without surrounding white space. A token is read again when the file changes.
    File(PathBuf),
    /// In the [`Environment`](crate::Environment), under this name.
    Name(String),
}

/// Why a secret is unavailable. Messages do not contain it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// It is not in its file.
    #[error(transparent)]
    File(#[from] TokenError),
    /// A client certificate or its key cannot be used.
    #[error(transparent)]
    Certificate(#[from] NetError),
    /// Unknown name.
    #[error("unknown secret {0}")]
    Unknown(String),
}
