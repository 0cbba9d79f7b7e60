//! How many descriptors the system lets this process have.

use rustix::process::{Resource, getrlimit};

/// Returns the limit that holds now (`RLIMIT_NOFILE`).
pub fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}
