//! Issuers whose tokens open this server: their keys, and the tokens that were found to be good.
//!
//! The keys come from outside: whoever runs the server fetches them ([`Issuers::asked`],
//! [`Issuers::set_keys`]) or gives them once. Here is decided when keys are asked for ahead of time.
//! A token that was found to be good is remembered until it expires or any key changes, so that not each
//! of a thousand requests for ranges costs a signature.

mod keys;
mod token;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

use swath_formats::scope::{Scopes, normal_path};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::site::Who;
pub use keys::{KeySet, KeysError};
use token::Parts;
pub use token::TokenRefusal;

/// An issuer that is trusted.
#[derive(Clone, Debug)]
pub struct TrustedIssuer {
    /// Its address, exactly as its tokens have it.
    pub issuer: String,
    /// The path of this server at which the paths of its tokens' scopes begin.
    pub base_path: String,
    /// Its keys, if they are given once and for all; otherwise they are fetched.
    pub keys: Option<KeySet>,
}

/// All trusted issuers. Clones are the same: what is changed by one holds for all.
#[derive(Clone)]
pub struct Issuers(Arc<Shared>);

struct Shared {
    trusted: RwLock<Vec<Issuer>>,
    /// Names by which tokens mean this server.
    audiences: RwLock<Vec<String>>,
    /// Good tokens, by their digests.
    verified: Mutex<HashMap<[u8; 32], Verified>>,
    /// Changes when a fetch of keys has ended.
    fetched: watch::Sender<u64>,
}

struct Issuer {
    name: String,
    base: Vec<u8>,
    keys: Option<KeySet>,
    are_fixed: bool,
    fetching: Fetching,
    asked: Arc<Notify>,
}

/// Whether keys are being fetched: waiting → under way (asked for, or begun by whoever fetches) → waiting.
#[derive(Clone, Copy, Debug, Default)]
struct Fetching {
    is_under_way: bool,
    /// When they were last asked for ahead of time.
    asked: Option<Instant>,
}

#[derive(Clone)]
struct Verified {
    scopes: Arc<Scopes>,
    who: Who,
    expires: SystemTime,
}

impl Issuers {
    /// Trusts these; their tokens name this server by one of `audiences`, or by the name that their
    /// profile has for every server.
    pub fn new(trusted: Vec<TrustedIssuer>, audiences: Vec<String>) -> Issuers {
        let shared = Shared {
            trusted: RwLock::default(),
            audiences: RwLock::new(audiences),
            verified: Mutex::default(),
            fetched: watch::Sender::new(0),
        };
        let issuers = Issuers(Arc::new(shared));
        issuers.set_trusted(trusted);
        issuers
    }

    /// Returns the addresses of the issuers.
    pub fn names(&self) -> Vec<String> {
        self.trusted().iter().map(|issuer| issuer.name.clone()).collect()
    }

    /// From the next request on trusts these and no others. Keys that were fetched are kept.
    pub fn set_trusted(&self, trusted: Vec<TrustedIssuer>) {
        let mut all = self.0.trusted.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *all);
        all.extend(trusted.into_iter().map(|new| {
            let old = before.iter().find(|old| old.name == new.issuer && !old.are_fixed);
            Issuer {
                base: normal_path(&new.base_path).unwrap_or_default(),
                are_fixed: new.keys.is_some(),
                keys: new.keys.or_else(|| old.and_then(|old| old.keys.clone())),
                fetching: old.map(|old| old.fetching).unwrap_or_default(),
                asked: old.map(|old| Arc::clone(&old.asked)).unwrap_or_default(),
                name: new.issuer,
            }
        }));
        drop(all);
        self.forget_verified();
    }

    /// From the next request on tokens mean this server by these names.
    pub fn set_audiences(&self, audiences: Vec<String>) {
        *self.0.audiences.write().unwrap_or_else(PoisonError::into_inner) = audiences;
        self.forget_verified();
    }

    /// Takes the keys of an issuer that were fetched; without any its tokens open nothing.
    pub fn set_keys(&self, issuer: &str, keys: Option<KeySet>) {
        self.change(issuer, |issuer| issuer.keys = keys);
        self.forget_verified();
    }

    /// Resolves when the keys of an issuer are needed ahead of time.
    pub async fn asked(&self, issuer: &str) {
        let asked = self.change(issuer, |issuer| Arc::clone(&issuer.asked));
        match asked {
            Some(asked) => asked.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Tells that the keys of an issuer are being fetched, until what is returned is dropped.
    pub fn fetching(&self, issuer: &str) -> FetchingKeys {
        self.change(issuer, |issuer| issuer.fetching.is_under_way = true);
        FetchingKeys { issuers: self.clone(), issuer: issuer.to_owned() }
    }

    /// Waits until the key that a token names has come, if it may be on its way; not for long.
    pub(crate) async fn ready(&self, token: &str) {
        if self.remembered(token).is_some() {
            return;
        }
        let Ok(parts) = Parts::read(token) else { return };
        let mut fetched = self.0.fetched.subscribe();
        let come = async {
            while self.is_on_its_way(&parts.claims.iss, parts.key_id.as_deref(), Instant::now()) {
                if fetched.changed().await.is_err() {
                    return;
                }
            }
        };
        // The answer then says what is missing.
        let _ = tokio::time::timeout(WAIT_FOR_KEYS, come).await;
    }

    /// Whether a key that is not here may come soon. Asks for it, but not all the time: anybody can name
    /// a key that there is not.
    fn is_on_its_way(&self, issuer: &str, key_id: Option<&str>, now: Instant) -> bool {
        let is_on_its_way = self.change(issuer, |issuer| {
            if issuer.are_fixed || issuer.keys.as_ref().is_some_and(|keys| keys.has(key_id)) {
                return false;
            }
            let fetching = &mut issuer.fetching;
            let may_ask = fetching.asked.is_none_or(|last| now >= last + ASK_EVERY);
            if !fetching.is_under_way && may_ask {
                *fetching = Fetching { is_under_way: true, asked: Some(now) };
                issuer.asked.notify_one();
            }
            fetching.is_under_way
        });
        is_on_its_way.unwrap_or(false)
    }

    /// Returns what a token permits, and to whom.
    pub(crate) fn verify(
        &self,
        token: &str,
        now: SystemTime,
    ) -> Result<(Arc<Scopes>, Who), TokenRefusal> {
        if let Some(known) = self.remembered(token) {
            return match known.expires > now {
                true => Ok((known.scopes, known.who)),
                false => Err(TokenRefusal::Expired),
            };
        }
        let parts = Parts::read(token)?;
        let trusted = self.trusted();
        let issuer = trusted.iter().find(|issuer| issuer.name == parts.claims.iss);
        let issuer = issuer.ok_or(TokenRefusal::Issuer)?;
        let keys = issuer.keys.as_ref().ok_or(TokenRefusal::NoKeys)?;
        let key_id = parts.key_id.as_deref();
        if !keys.has(key_id) {
            return Err(TokenRefusal::Key);
        }
        if !keys.have_signed(key_id, parts.algorithm, parts.message, parts.signature) {
            return Err(TokenRefusal::Signature);
        }
        let audiences = self.0.audiences.read().unwrap_or_else(PoisonError::into_inner);
        let (scopes, expires) = parts.claims.permit(&audiences, &issuer.base, now)?;
        // Who has no name is the same only with the same token.
        let subject = parts.claims.sub.as_deref().unwrap_or(token);
        let verified = Verified {
            scopes: Arc::new(scopes),
            who: Who::of_subject(&parts.claims.iss, subject),
            expires,
        };
        // While the issuers are still held: a key that is taken away meanwhile takes this with it.
        self.remember(token, verified.clone(), now);
        Ok((verified.scopes, verified.who))
    }

    fn remembered(&self, token: &str) -> Option<Verified> {
        self.verified().get(blake3::hash(token.as_bytes()).as_bytes()).cloned()
    }

    fn remember(&self, token: &str, good: Verified, now: SystemTime) {
        let mut verified = self.verified();
        if verified.len() >= VERIFIED_MAX {
            verified.retain(|_, known| known.expires > now);
        }
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(*blake3::hash(token.as_bytes()).as_bytes(), good);
    }

    fn forget_verified(&self) {
        self.verified().clear();
    }

    fn verified(&self) -> MutexGuard<'_, HashMap<[u8; 32], Verified>> {
        self.0.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trusted(&self) -> RwLockReadGuard<'_, Vec<Issuer>> {
        self.0.trusted.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with an issuer, if it is trusted.
    fn change<T>(&self, issuer: &str, with: impl FnOnce(&mut Issuer) -> T) -> Option<T> {
        let mut trusted = self.0.trusted.write().unwrap_or_else(PoisonError::into_inner);
        trusted.iter_mut().find(|it| it.name == issuer).map(with)
    }
}

impl std::fmt::Debug for Issuers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.trusted().iter().map(|issuer| &issuer.name)).finish()
    }
}

/// A fetch of keys. Dropping it wakes the requests that wait for the keys.
pub struct FetchingKeys {
    issuers: Issuers,
    issuer: String,
}

impl Drop for FetchingKeys {
    fn drop(&mut self) {
        self.issuers.change(&self.issuer, |issuer| issuer.fetching.is_under_way = false);
        self.issuers.0.fetched.send_modify(|times| *times += 1);
    }
}

/// Takes anything for a token, and for keys.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(text: &str) {
    let keys = KeySet::read(text.as_bytes()).ok();
    let issuer = TrustedIssuer { issuer: "i".to_owned(), base_path: "/b".to_owned(), keys };
    let issuers = Issuers::new(vec![issuer], Vec::new());
    let _ = issuers.verify(text, SystemTime::UNIX_EPOCH);
    let claims = serde_json::from_str::<token::Claims>(text);
    if let Ok((scopes, _)) = claims
        .map_err(drop)
        .and_then(|it| it.permit(&[], b"b", SystemTime::UNIX_EPOCH).map_err(drop))
    {
        assert!(!scopes.permit(swath_formats::scope::Act::Read, b"a"), "it leads out of its base");
    }
}

/// A request waits so long for keys; clients are patient for longer.
const WAIT_FOR_KEYS: Duration = Duration::from_secs(5);
/// Keys are asked for ahead of time no more often, whatever tokens name.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// Good tokens that are remembered: a few hundred bytes each.
const VERIFIED_MAX: usize = 4096;

#[cfg(test)]
mod tests;
