//! A replica in this program's memory: for tests, and for whoever has the bytes already.

use std::sync::Arc;

use swath_model::{Range, RangeSet};
use tokio::sync::watch;
use url::Url;

use crate::error::LaneError;
use crate::facts::Facts;
use crate::local_source::{LocalSource, ReadAt};

/// Bytes in memory, as a replica.
pub type MemorySource = LocalSource<Memory>;

/// Bytes in memory.
#[derive(Debug)]
pub struct Memory {
    content: Arc<[u8]>,
    /// What may be read of it; all, without this.
    holdings: Option<watch::Receiver<RangeSet>>,
}

impl MemorySource {
    /// Returns the replica `content`, whose address is `memory:NAME`.
    ///
    /// # Panics
    /// If `name` cannot stand in an address.
    pub fn of(name: &str, content: impl Into<Arc<[u8]>>) -> Arc<MemorySource> {
        source(name, content.into(), None)
    }

    /// The same replica as one that holds what the answered sender says, nothing at first; it has left
    /// when the sender is dropped.
    ///
    /// # Panics
    /// If `name` cannot stand in an address.
    pub fn growing(
        name: &str,
        content: impl Into<Arc<[u8]>>,
    ) -> (Arc<MemorySource>, watch::Sender<RangeSet>) {
        let (sender, holdings) = watch::channel(RangeSet::new());
        (source(name, content.into(), Some(holdings)), sender)
    }
}

fn source(
    name: &str,
    content: Arc<[u8]>,
    holdings: Option<watch::Receiver<RangeSet>>,
) -> Arc<MemorySource> {
    let url = Url::parse(&format!("memory:{name}")).expect("a name that fits into an address");
    LocalSource::new(url, Arc::new(Memory { content, holdings }))
}

impl ReadAt for Memory {
    fn holdings(&self) -> Option<watch::Receiver<RangeSet>> {
        self.holdings.clone()
    }

    async fn facts(&self) -> Result<Facts, LaneError> {
        let size_bytes = Some(self.content.len() as u64);
        Ok(Facts { size_bytes, ranges: true, ..Facts::default() })
    }

    async fn read_at(&self, offset: u64, space: &mut [u8]) -> Result<usize, LaneError> {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.content.get(at..).unwrap_or_default();
        let range = Range::of_len(offset, rest.len().min(space.len()) as u64);
        if let Some(holdings) = &self.holdings {
            let lacking = holdings.borrow().gaps_within(range);
            if !lacking.is_empty() {
                return Err(LaneError::NotHeld { range, lacking });
            }
        }
        let bytes = range.len() as usize;
        space[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(bytes)
    }
}
