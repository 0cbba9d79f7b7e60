//! The messages of a copy between two servers that a third machine steers, as `docs/protocol.md` defines
//! them: what the client learns and orders. The answer are the lines of [`sending`](crate::sending).

use serde::{Deserialize, Serialize};

/// What a client must know before it orders a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// SHA-256 of the certificate that the fetching server shows to sources, in hexadecimal digits.
    pub certificate: String,
}

/// The copies of one user on a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerJobs {
    /// In the order in which they were ordered.
    pub jobs: Vec<ServerJob>,
}

/// A copy that a server carries out, or has carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerJob {
    /// Its name.
    pub job: String,
    /// The path of its destination.
    pub to: String,
    /// Its sources, as a user may see them. Empty if they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<String>,
    /// How far it is.
    pub state: ServerJobState,
    /// When it was ordered, in seconds since 1970.
    pub ordered_s: u64,
    /// When it ended.
    pub ended_s: Option<u64>,
    /// Bytes at the destination, as far as known; of a job that ended early those that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_bytes: Option<u64>,
    /// Bytes in all, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ServerJob {
    /// Returns how much of it is done, 0 to 1.
    pub fn part(&self) -> Option<f64> {
        let (done, size) = (self.done_bytes?, self.size_bytes.filter(|&size| size > 0)?);
        Some((done as f64 / size as f64).min(1.0))
    }
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerJobState {
    /// Other copies come first.
    Waiting,
    /// It runs.
    Running,
    /// The rights to read its sources have ended.
    NoToken,
    /// It has ended well.
    Done,
    /// It has failed.
    Failed,
    /// Its owner has cancelled it.
    Cancelled,
}

/// The sources of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Replicas of one folder, whose addresses end in `/`; or the address of one folder or file, which is
    /// copied under its own name, without final `/`.
    pub sources: Vec<SourceAccess>,
    /// Most bytes per second for the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes_per_s: Option<u64>,
    /// Refuse single files of web servers without a known digest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_digest: bool,
}

/// A source, and what the fetching server needs for it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceAccess {
    /// Its address.
    pub url: String,
    /// A token for it: a delegation, never the client's own token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// SHA-256 of certificates that the client trusts of it, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fingerprints: Vec<String>,
}

impl std::fmt::Debug for SourceAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without what may be secret.
        let address = self.url.split(['?', '#']).next().unwrap_or_default();
        write!(f, "SourceAccess({}, token: {})", without_login(address), self.token.is_some())
    }
}

fn without_login(address: &str) -> String {
    match address.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            format!("{scheme}://{host}/{path}")
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let url = "https://ada:s3cret@a.example:1/ds/?sig=s3cret".to_owned();
        let source =
            SourceAccess { url, token: Some("s3cret".to_owned()), fingerprints: Vec::new() };
        let shown = format!("{source:?}");
        assert_eq!(shown, "SourceAccess(https://a.example:1/ds/, token: true)");
    }
}
