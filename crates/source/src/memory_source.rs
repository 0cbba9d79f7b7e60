//! A replica in this program's memory: for tests, and for whoever has the bytes already.

use std::sync::Arc;

use url::Url;

use crate::error::LaneError;
use crate::facts::Facts;
use crate::local_source::{LocalSource, ReadAt};

/// Bytes in memory, as a replica.
pub type MemorySource = LocalSource<Memory>;

/// Bytes in memory.
#[derive(Debug)]
pub struct Memory(Arc<[u8]>);

impl MemorySource {
    /// The replica `content`, whose address is `memory:NAME`.
    ///
    /// # Panics
    /// If `name` cannot stand in an address.
    pub fn of(name: &str, content: impl Into<Arc<[u8]>>) -> Arc<MemorySource> {
        let url = Url::parse(&format!("memory:{name}")).expect("a name that fits into an address");
        LocalSource::new(url, Arc::new(Memory(content.into())))
    }
}

impl ReadAt for Memory {
    async fn facts(&self) -> Result<Facts, LaneError> {
        Ok(Facts { size_bytes: Some(self.0.len() as u64), ranges: true, ..Facts::default() })
    }

    async fn read_at(&self, offset: u64, space: &mut [u8]) -> Result<usize, LaneError> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let bytes = rest.len().min(space.len());
        space[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(bytes)
    }
}
