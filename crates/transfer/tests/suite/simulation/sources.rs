//! Sources in memory that are slow, lie, stall, break and vanish, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use swath_source::{Facts, LaneError, LocalSource, ReadAt, Source};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use url::Url;

/// What a source is like.
#[derive(Clone, Debug)]
pub struct Traits {
    pub name: String,
    pub rate_bytes_per_s: f64,
    pub rtt: Duration,
    /// Bytes at these offsets come wrong, always.
    pub wrong_at: Vec<u64>,
    /// When it is not as usual, in seconds of its life.
    pub spells: Vec<Spell>,
    /// It tells no size that is right.
    pub size_off_by: u64,
}

/// A time in which something is wrong.
#[derive(Clone, Debug)]
pub struct Spell {
    pub from_s: f64,
    pub to_s: f64,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing comes, and nobody says why.
    Stalls,
    /// It takes no connection, and those that it has break.
    Down,
    /// It answers that it has too much to do.
    Busy,
}

/// A source of these traits that has `content`.
pub fn source(traits: Traits, content: Arc<[u8]>) -> Arc<dyn Source> {
    let url = Url::parse(&format!("simulated:{}", traits.name)).unwrap();
    let began = Instant::now();
    LocalSource::new(url, Arc::new(Simulated { traits, content, began, link: Mutex::new(()) }))
}

#[derive(Debug)]
struct Simulated {
    traits: Traits,
    content: Arc<[u8]>,
    began: Instant,
    /// Held while a part is on the way: its lanes share one link in turn. A read that is
    /// given up frees it at once.
    link: Mutex<()>,
}

impl Simulated {
    /// Waits until no spell keeps it from answering.
    async fn answers(&self) -> Result<(), LaneError> {
        loop {
            let now_s = self.began.elapsed().as_secs_f64();
            let now = |spell: &&Spell| (spell.from_s..spell.to_s).contains(&now_s);
            let Some(spell) = self.traits.spells.iter().find(now) else { return Ok(()) };
            match spell.kind {
                Kind::Stalls => sleep(Duration::from_secs_f64(spell.to_s - now_s)).await,
                Kind::Down => return Err(LaneError::Reset { reason: "it is down".to_owned() }),
                Kind::Busy => {
                    let retry_after = Some(Duration::from_secs(1));
                    return Err(LaneError::status(503, "Too Much To Do", retry_after));
                }
            }
        }
    }
}

impl ReadAt for Simulated {
    async fn connect(&self) -> Result<Duration, LaneError> {
        sleep(self.traits.rtt).await;
        self.answers().await?;
        Ok(self.traits.rtt)
    }

    async fn facts(&self) -> Result<Facts, LaneError> {
        sleep(self.traits.rtt).await;
        self.answers().await?;
        let size_bytes = self.content.len() as u64 + self.traits.size_off_by;
        Ok(Facts { size_bytes: Some(size_bytes), ranges: true, ..Facts::default() })
    }

    async fn read_at(&self, offset: u64, space: &mut [u8]) -> Result<usize, LaneError> {
        let at = usize::try_from(offset).unwrap();
        let part = ((self.traits.rate_bytes_per_s * PART_S) as usize).clamp(512, 32 << 10);
        let bytes = space.len().min(part).min(self.content.len().saturating_sub(at));
        let takes = Duration::from_secs_f64(bytes as f64 / self.traits.rate_bytes_per_s);
        let link = self.link.lock().await;
        sleep(takes).await;
        drop(link);
        self.answers().await?;
        space[..bytes].copy_from_slice(&self.content[at..at + bytes]);
        for &wrong in &self.traits.wrong_at {
            if let Some(byte) =
                wrong.checked_sub(offset).and_then(|it| space[..bytes].get_mut(it as usize))
            {
                *byte ^= 0x5a;
            }
        }
        Ok(bytes)
    }
}

/// How long a part is on the way, in seconds.
const PART_S: f64 = 0.02;
