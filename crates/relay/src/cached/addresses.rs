//! What is known of recently requested addresses. The relay asks a server about a file once for all
//! clients, as long as its answer is fresh.

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
pub(super) struct Addresses {
    all: Mutex<HashMap<String, Arc<Address>>>,
}

/// One address.
pub(super) struct Address {
    pub url: Url,
    state: Mutex<AddressState>,
    /// Whoever asks the server about it.
    asking: Turns<()>,
}

/// States of an address: new -> kept, kept -> new when the file changes, either -> apart for a
/// while when it turns out that nothing of it may be kept.
#[derive(Default)]
enum AddressState {
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

impl Addresses {
    /// What is known of an address; `None` where so many are in use that nothing can be learnt of
    /// another one.
    pub fn address(&self, url: &Url) -> Option<Arc<Address>> {
        let mut all = self.lock();
        if let Some(address) = all.get(url.as_str()) {
            return Some(Arc::clone(address));
        }
        if all.len() >= ADDRESSES_MAX {
            let now = Instant::now();
            all.retain(|_, address| Arc::strong_count(address) > 1 || address.is_of_use(now));
            if all.len() >= ADDRESSES_MAX {
                // It is all to be learnt again, at the price of a question each.
                all.retain(|_, address| Arc::strong_count(address) > 1);
            }
            if all.len() >= ADDRESSES_MAX {
                return None;
            }
        }
        let address = Arc::new(Address {
            url: url.clone(),
            state: Mutex::default(),
            asking: Turns::default(),
        });
        all.insert(url.as_str().to_owned(), Arc::clone(&address));
        Some(address)
    }

    /// Whether an address is known as one of which nothing is kept.
    pub fn is_apart(&self, url: &Url) -> bool {
        let address = self.lock().get(url.as_str()).map(Arc::clone);
        address.is_some_and(|address| address.is_apart())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Address>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Address {
    /// The present version; `None` if it is not to be kept. `must_ask` where nothing that was known
    /// before is to be believed; `via` are those whom the request came by.
    pub async fn present(
        self: &Arc<Self>,
        relay: &Arc<Relay>,
        via: &Arc<str>,
        must_ask: bool,
    ) -> Option<Present> {
        let came = Instant::now();
        let known = |now| match &*self.state() {
            AddressState::Kept(present) if present.facts.asked >= came => {
                Some(Some(present.clone()))
            }
            AddressState::Kept(present) if !must_ask && present.facts.is_fresh(now) => {
                Some(Some(present.clone()))
            }
            AddressState::Apart(until) if *until > now => Some(None),
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

    /// Asks again before what is known is too old, while nobody waits for it.
    fn ask_aside(self: &Arc<Self>, relay: &Arc<Relay>, via: &Arc<str>) {
        let (address, relay, via) = (Arc::clone(self), Arc::clone(relay), Arc::clone(via));
        if self.asking.try_lock().is_err() {
            return;
        }
        tokio::spawn(async move {
            if let Ok(_turn) = address.asking.try_lock() {
                address.ask(&relay, &via).await;
            }
        });
    }

    async fn ask(&self, relay: &Arc<Relay>, via: &str) -> Option<Present> {
        let asked = Instant::now();
        let within = ASK_WITHIN.min(relay.timeout);
        let answer = timeout(within, ask::about(relay, &self.url, via)).await.ok().flatten();
        let facts = answer.as_ref().and_then(|answer| Facts::of(answer, asked));
        let mut state = self.state();
        let before = match std::mem::take(&mut *state) {
            AddressState::Kept(present) => Some(present),
            _ => None,
        };
        let Some(facts) = facts else {
            // Where nothing is there just now the next one finds out by itself.
            let is_passing = |status| matches!(status, 404 | 408 | 410 | 429 | 500..=599);
            let is_lasting = answer.is_some_and(|answer| !is_passing(answer.status));
            let apart = if is_lasting { APART } else { APART_PASSING };
            // From now on, for a server that does not answer was asked long ago: those who waited for
            // their turn would each wait for it anew.
            *state = AddressState::Apart(Instant::now() + apart);
            return None;
        };
        let same = before
            .filter(|before| !before.version.is_over() && before.facts.is_same_file(&facts))
            .map(|before| before.version);
        let version = same.unwrap_or_else(|| {
            Arc::new(Version::new(&self.url, facts.etag.clone(), facts.size_bytes))
        });
        let present = Present { facts: Arc::new(facts), version };
        *state = AddressState::Kept(present.clone());
        Some(present)
    }

    /// Bytes of `version` came, that had been asked for at `asked`: it is still the present one.
    pub fn confirm(&self, version: &Arc<Version>, asked: Instant) {
        if let AddressState::Kept(present) = &mut *self.state()
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
        let mut state = self.state();
        if matches!(&*state, AddressState::Kept(now) if Arc::ptr_eq(&now.version, version)) {
            *state = AddressState::New;
        }
    }

    /// Nothing of it can be kept, for a while.
    pub fn set_apart(&self, version: &Arc<Version>) {
        version.end();
        *self.state() = AddressState::Apart(Instant::now() + APART);
    }

    fn is_apart(&self) -> bool {
        matches!(&*self.state(), AddressState::Apart(until) if *until > Instant::now())
    }

    fn is_of_use(&self, now: Instant) -> bool {
        match &*self.state() {
            AddressState::New => false,
            AddressState::Kept(present) => present.facts.is_fresh(now),
            AddressState::Apart(until) => *until > now,
        }
    }

    fn state(&self) -> MutexGuard<'_, AddressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So many addresses are known at a time: some megabytes at most.
const ADDRESSES_MAX: usize = 4096;
/// Whoever waits for a server that does not say anything of a file gets it without the cache.
const ASK_WITHIN: Duration = Duration::from_secs(10);
/// What may not be kept seldom becomes what may.
const APART: Duration = Duration::from_secs(60);
/// What is not there, or a server that cannot answer, may be there the next time.
const APART_PASSING: Duration = Duration::from_secs(2);
