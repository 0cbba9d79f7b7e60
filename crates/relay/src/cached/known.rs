//! What is known of the addresses that were asked for lately. A server is asked about a file once
//! for all who come within the time in which its answer may be believed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex as Turns;
use tokio::time::timeout;
use url::Url;

use super::ask;
use super::facts::Facts;
use super::version::Version;
use crate::Relay;

/// All of them.
#[derive(Default)]
pub(super) struct Known {
    all: Mutex<HashMap<String, Arc<Place>>>,
}

/// One address.
pub(super) struct Place {
    pub url: Url,
    standing: Mutex<Standing>,
    /// Whoever asks the server about it.
    asking: Turns<()>,
}

/// States of an address: new -> kept, kept -> new when the file changes, either -> apart for a
/// while when it turns out that nothing of it may be kept.
#[derive(Default)]
enum Standing {
    #[default]
    New,
    Kept(Present),
    /// Passed on without the cache until then.
    Apart(Instant),
}

/// The present version of a file.
#[derive(Clone)]
pub(super) struct Present {
    pub facts: Arc<Facts>,
    pub version: Arc<Version>,
}

impl Known {
    /// What is known of an address; `None` where so many are in use that nothing can be learnt of
    /// another one.
    pub fn place(&self, url: &Url) -> Option<Arc<Place>> {
        let mut all = self.lock();
        if let Some(place) = all.get(url.as_str()) {
            return Some(Arc::clone(place));
        }
        if all.len() >= PLACES_MAX {
            let now = Instant::now();
            all.retain(|_, place| Arc::strong_count(place) > 1 || place.is_of_use(now));
            if all.len() >= PLACES_MAX {
                // It is all to be learnt again, at the price of a question each.
                all.retain(|_, place| Arc::strong_count(place) > 1);
            }
            if all.len() >= PLACES_MAX {
                return None;
            }
        }
        let place = Arc::new(Place {
            url: url.clone(),
            standing: Mutex::default(),
            asking: Turns::default(),
        });
        all.insert(url.as_str().to_owned(), Arc::clone(&place));
        Some(place)
    }

    /// Whether an address is known as one of which nothing is kept.
    pub fn is_apart(&self, url: &Url) -> bool {
        let place = self.lock().get(url.as_str()).map(Arc::clone);
        place.is_some_and(|place| place.is_apart())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Place>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The present version; `None` if it is not to be kept. `must_ask` where nothing that was known
    /// before is to be believed; `via` are those whom the request came by.
    pub async fn present(
        self: &Arc<Self>,
        relay: &Arc<Relay>,
        via: &Arc<str>,
        must_ask: bool,
    ) -> Option<Present> {
        let came = Instant::now();
        let known = |now| match &*self.standing() {
            Standing::Kept(present) if present.facts.asked >= came => Some(Some(present.clone())),
            Standing::Kept(present) if !must_ask && present.facts.is_fresh(now) => {
                Some(Some(present.clone()))
            }
            Standing::Apart(until) if *until > now => Some(None),
            _ => None,
        };
        if let Some(known) = known(came) {
            if known.as_ref().is_some_and(|present| present.facts.is_ageing(came)) {
                self.ask_aside(relay, via);
            }
            return known;
        }
        let _turn = self.asking.lock().await;
        // Somebody may have asked for us too.
        match known(Instant::now()) {
            Some(known) => known,
            None => self.ask(relay, via).await,
        }
    }

    /// Ask again before what is known is too old, while nobody waits for it.
    fn ask_aside(self: &Arc<Self>, relay: &Arc<Relay>, via: &Arc<str>) {
        let (place, relay, via) = (Arc::clone(self), Arc::clone(relay), Arc::clone(via));
        if self.asking.try_lock().is_err() {
            return;
        }
        tokio::spawn(async move {
            if let Ok(_turn) = place.asking.try_lock() {
                place.ask(&relay, &via).await;
            }
        });
    }

    async fn ask(&self, relay: &Arc<Relay>, via: &str) -> Option<Present> {
        let asked = Instant::now();
        let within = ASK_WITHIN.min(relay.timeout);
        let answer = timeout(within, ask::about(relay, &self.url, via)).await.ok().flatten();
        let facts = answer.as_ref().and_then(|answer| Facts::of(answer, asked));
        let mut standing = self.standing();
        let before = match std::mem::take(&mut *standing) {
            Standing::Kept(present) => Some(present),
            _ => None,
        };
        let Some(facts) = facts else {
            // Where nothing is there just now the next one finds out by itself.
            let is_passing = |status| matches!(status, 404 | 408 | 410 | 429 | 500..=599);
            let is_lasting = answer.is_some_and(|answer| !is_passing(answer.status));
            let apart = if is_lasting { APART } else { APART_PASSING };
            // From now on, for a server that does not answer was asked long ago: those who waited for
            // their turn would each wait for it anew.
            *standing = Standing::Apart(Instant::now() + apart);
            return None;
        };
        let same = before
            .filter(|before| !before.version.is_over() && before.facts.is_same_file(&facts))
            .map(|before| before.version);
        let version = same.unwrap_or_else(|| {
            Arc::new(Version::new(&self.url, facts.etag.clone(), facts.size_bytes))
        });
        let present = Present { facts: Arc::new(facts), version };
        *standing = Standing::Kept(present.clone());
        Some(present)
    }

    /// Bytes of `version` came, that had been asked for at `asked`: it is still the present one.
    pub fn confirm(&self, version: &Arc<Version>, asked: Instant) {
        if let Standing::Kept(present) = &mut *self.standing()
            && Arc::ptr_eq(&present.version, version)
            && present.facts.asked < asked
        {
            let facts = (*present.facts).clone();
            present.facts = Arc::new(Facts { asked, age: Duration::ZERO, ..facts });
        }
    }

    /// `version` is not the present one any more.
    pub fn changed(&self, version: &Arc<Version>) {
        version.end();
        let mut standing = self.standing();
        if matches!(&*standing, Standing::Kept(now) if Arc::ptr_eq(&now.version, version)) {
            *standing = Standing::New;
        }
    }

    /// Nothing of it can be kept, for a while.
    pub fn set_apart(&self, version: &Arc<Version>) {
        version.end();
        *self.standing() = Standing::Apart(Instant::now() + APART);
    }

    fn is_apart(&self) -> bool {
        matches!(&*self.standing(), Standing::Apart(until) if *until > Instant::now())
    }

    fn is_of_use(&self, now: Instant) -> bool {
        match &*self.standing() {
            Standing::New => false,
            Standing::Kept(present) => present.facts.is_fresh(now),
            Standing::Apart(until) => *until > now,
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So many addresses are known at a time: some megabytes at most.
const PLACES_MAX: usize = 4096;
/// Whoever waits for a server that does not say anything of a file gets it without the cache.
const ASK_WITHIN: Duration = Duration::from_secs(10);
/// What may not be kept seldom becomes what may.
const APART: Duration = Duration::from_secs(60);
/// What is not there, or a server that cannot answer, may be there the next time.
const APART_PASSING: Duration = Duration::from_secs(2);
