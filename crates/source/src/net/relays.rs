//! What is known of the user's relays: their keys, and what opens them where we do not speak with them
//! ourselves.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use swath_formats::relay;
use tokio::task::JoinSet;
use url::Url;

use super::Net;
use super::credentials::{self, Credentials, Secret};
use crate::hpke::{Pass, seal};
use crate::http::request::Lines;
use crate::source::{RelayMode, Trust};
use crate::target::Origin;

/// The keys of relays, by host and port.
#[derive(Debug, Default)]
pub(super) struct RelayKeys {
    /// `None`: it was asked, and has told none.
    keys: Mutex<HashMap<String, Option<RelayKey>>>,
}

/// A relay's key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RelayKey {
    public: String,
    /// How far its clock is ahead of ours, in seconds.
    ahead_s: i64,
    /// It came over an encrypted connection with the relay itself, or from this machine.
    is_its_own: bool,
}

/// The keys that some relays had at one time; `None`: it had told none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(Vec<(Url, Option<RelayKey>)>);

/// What is encrypted for relays.
#[derive(Default)]
pub(crate) struct Encrypted {
    /// Whole header lines.
    pub lines: Lines,
    /// The keys of those whom it is for.
    pub keys: Keys,
}

/// Whether secrets can be encrypted for a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanEncrypt {
    /// They can.
    Yes,
    /// Its key has not been told yet.
    NotYet,
    /// Its key came in the clear: it may be anybody's.
    Never,
}

impl Net {
    /// A relay has told its key, at `told_at_s` seconds since 1970 by its clock, if it has told that.
    pub(crate) fn note_relay_key(&self, url: &Url, public: &str, told_at_s: Option<u64>) {
        let is_here = Origin::of(url).is_some_and(|it| credentials::is_loopback(&it.host));
        let is_its_own = url.scheme() == "https" || is_here;
        let ahead_s = told_at_s.map_or(0, |it| it as i64 - now_s() as i64);
        let public = public.to_owned();
        self.note_key(url, Some(RelayKey { public, ahead_s, is_its_own }));
    }

    /// A relay was asked for its key, and has told none.
    pub(crate) fn note_no_relay_key(&self, url: &Url) {
        if self.relay_key(url).is_none() {
            self.note_key(url, None);
        }
    }

    fn note_key(&self, url: &Url, key: Option<RelayKey>) {
        let Some(site) = relay::site(url) else { return };
        let keys = &self.shared.relay_keys.keys;
        let mut keys = keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() < KEYS_MAX || keys.contains_key(&site) {
            keys.insert(site, key);
        }
    }

    fn relay_key(&self, url: &Url) -> Option<RelayKey> {
        let keys = &self.shared.relay_keys.keys;
        keys.lock().unwrap_or_else(PoisonError::into_inner).get(&relay::site(url)?).cloned()?
    }

    /// Whether a relay may yet tell its key: it has not been asked.
    fn awaits_key(&self, url: &Url) -> bool {
        let keys = &self.shared.relay_keys.keys;
        let keys = keys.lock().unwrap_or_else(PoisonError::into_inner);
        relay::site(url).is_some_and(|site| !keys.contains_key(&site))
    }

    /// Whether what opens a source can be encrypted for the relay at `url`.
    pub fn can_encrypt_for(&self, url: &Url) -> CanEncrypt {
        match self.relay_key(url) {
            Some(key) if key.is_its_own => CanEncrypt::Yes,
            Some(_) => CanEncrypt::Never,
            None => CanEncrypt::NotYet,
        }
    }

    /// Returns whether a relay of a route to `end`, the nearest first, is opened by a token that cannot be
    /// encrypted for it yet, since it has not told its key. The first one is shown its token itself, and
    /// so is any with which we speak TLS in a tunnel. Where the end is in a depot, it is its relay that
    /// must be opened, too.
    pub fn awaits_keys(&self, relays: &[Url], end: &Url, relay_mode: RelayMode) -> bool {
        let is_shown = |relay: &Url| relay_mode == RelayMode::Tunnel && relay.scheme() == "https";
        let behind = relays.iter().skip(1).filter(|relay| !is_shown(relay));
        let is_asked_by_others = relay_mode == RelayMode::Forward && !relays.is_empty();
        let depot = Some(end).filter(|end| is_asked_by_others && self.is_in_own_depot(end));
        behind.chain(depot).any(|relay| self.opens(relay).is_some() && self.awaits_key(relay))
    }

    /// Returns what opens the relay at `url`.
    fn opens(&self, url: &Url) -> Option<Secret> {
        Some(self.credentials_for_relay(&Origin::of(url)?).authorization?.value())
    }

    /// What opens a relay, for its eyes and for this alone; nothing if there is no such thing, or no
    /// key of its own to encrypt it with.
    pub(super) fn encrypted_pass(&self, url: &Url, pass: Pass<'_>) -> Option<String> {
        let opens = self.opens(url)?;
        let key = self.relay_key(url).filter(|key| key.is_its_own)?;
        key.seal(&pass.purpose(), opens.expose().as_bytes())
    }

    /// What shows each relay of a route what is meant for it alone: tokens for those behind the first,
    /// and for the last one what opens the origin of `end`, an address of the source that was given as
    /// `given`. A depot is opened by its own relay's token, which none of the others may see. Nothing
    /// where keys are missing.
    pub(crate) fn encrypted_for(
        &self,
        relays: &[Url],
        given: &Url,
        end: &Url,
        trust: Trust,
    ) -> Encrypted {
        // The last relay may be the depot's own.
        let is_of_last = relays.last().is_some_and(|last| last.origin() == end.origin());
        let is_in_depot = self.is_in_own_depot(end) && !is_of_last;
        let depot = Some(end).filter(|end| is_in_depot && given.origin() == end.origin());
        let opened = || relays.iter().skip(1).chain(depot);
        let keys = self.keys_of(opened().chain(relays.last()));
        let mut lines = Lines::default();
        // From the last relay on: each is asked for the address through those behind it.
        let mut asked = end.clone();
        let mut passes = Vec::new();
        for (at, relay) in relays.iter().enumerate().rev() {
            if at > 0 {
                passes.extend(self.encrypted_pass(relay, Pass::Read(asked.as_str())));
            }
            asked = relay::through(relay, &asked);
        }
        passes.reverse();
        passes
            .extend(depot.and_then(|depot| self.encrypted_pass(depot, Pass::Read(&target(depot)))));
        for encrypted in passes {
            lines.add("swath-pass", &encrypted);
        }
        let own = match is_in_depot {
            true => Credentials::default(),
            false => self.credentials_for(given, end, trust),
        };
        let mut sealed = Lines::default();
        for (name, value) in &own.headers {
            sealed.add(name, value);
        }
        if let Some(authorization) = &own.authorization {
            sealed.add("Authorization", authorization.value().expose());
        }
        if let Some(last) = relays.last().filter(|_| !sealed.is_empty())
            && let Some(key) = self.relay_key(last).filter(|key| key.is_its_own)
        {
            match sealed.text() {
                Ok(text) => {
                    let sealed = key.seal(end.as_str(), text.as_bytes());
                    sealed.into_iter().for_each(|sealed| lines.add("swath-sealed", &sealed));
                }
                // The request that it is for cannot be sent.
                Err(_) => lines = lines.and(&sealed),
            }
        }
        Encrypted { lines, keys }
    }

    /// Returns the keys of these relays, as far as they are known now.
    pub(super) fn keys_of<'a>(&self, relays: impl Iterator<Item = &'a Url>) -> Keys {
        Keys(relays.map(|url| (url.clone(), self.relay_key(url))).collect())
    }

    /// Whether one of these relays has another key by now, as after a restart: if none is known to have
    /// one, all of them are asked. So is one that was asked in vain before: it may have been away.
    pub(crate) async fn have_changed(&self, keys: &Keys) -> bool {
        if self.know_others(keys) {
            return true;
        }
        let mut asked = JoinSet::new();
        for (url, _) in &keys.0 {
            let (net, url) = (self.clone(), url.clone());
            asked.spawn(async move { net.about_relay(&url, &[]).await.map(drop) });
        }
        // Who does not answer has no other key that we know.
        while asked.join_next().await.is_some() {}
        self.know_others(keys)
    }

    /// Returns whether one of these relays is known to have another key by now.
    pub(crate) fn know_others(&self, keys: &Keys) -> bool {
        let public = |key: &Option<RelayKey>| key.as_ref().map(|key| key.public.clone());
        keys.0.iter().any(|(url, key)| public(&self.relay_key(url)) != public(key))
    }

    /// Returns whether requests to `url` by way of relays show the last of these anything that others are not to
    /// see.
    pub fn has_secrets_for(&self, url: &Url, trust: Trust) -> bool {
        let own = self.credentials_for(url, url, trust);
        !self.is_in_own_depot(url) && (own.authorization.is_some() || !own.headers.is_empty())
    }
}

impl RelayKey {
    /// Seals something with it, now.
    fn seal(&self, purpose: &str, text: &[u8]) -> Option<String> {
        let now_s = now_s().saturating_add_signed(self.ahead_s);
        seal(&self.public, purpose, text, now_s).ok()
    }
}

/// Returns seconds since 1970.
fn now_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// Returns what the request line names of `url`, where its own server is asked.
fn target(url: &Url) -> String {
    url[url::Position::BeforePath..url::Position::AfterQuery].to_owned()
}

/// Nobody has more relays.
const KEYS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpke::HpkeKey;
    use crate::net::{NetOptions, RelayAccess};

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn what_opens_the_relay_of_a_depot_is_encrypted_for_it_and_nobody_else() {
        let [near, last, home] = ["https://r1/", "https://r2/", "https://r3/"].map(url);
        let access = |relay: &Url| RelayAccess {
            url: relay.clone(),
            token: Some(Secret::new(&format!("for-{relay}")).into()),
            fingerprint: None,
        };
        let relays = [&near, &last, &home].map(access).to_vec();
        let headers = vec![("X-Own".to_owned(), "mine".to_owned())];
        let net = Net::new(NetOptions { relays, headers, ..NetOptions::default() }).unwrap();
        let depot = home.join(&format!("/depot/{}", "a".repeat(64))).unwrap();
        let route = [near.clone(), last.clone()];
        assert!(net.awaits_keys(&route[..1], &depot, RelayMode::Forward));
        assert!(!net.awaits_keys(&[], &depot, RelayMode::Forward));
        assert!(!net.awaits_keys(&route[..1], &depot, RelayMode::Tunnel));
        let keys = [&near, &last, &home].map(|relay| {
            let key = HpkeKey::new().unwrap();
            net.note_relay_key(relay, key.public(), None);
            key
        });
        assert!(!net.awaits_keys(&route, &depot, RelayMode::Forward));
        let sealed = net.encrypted_for(&route, &depot, &depot, Trust::Named);
        let lines: Vec<&str> = sealed.lines.text().unwrap().split_terminator("\r\n").collect();
        let passes: Vec<&str> =
            lines.iter().filter_map(|line| line.strip_prefix("swath-pass: ")).collect();
        assert_eq!((lines.len(), passes.len()), (2, 2), "{lines:?}");
        // Each for what its relay is asked: the last one for the depot's address, the depot's own
        // relay for the path there.
        let asked = [depot.as_str(), depot.path()].map(|asked| Pass::Read(asked).purpose());
        for (key, opened) in keys.iter().zip([None, Some((0, "r2")), Some((1, "r3"))]) {
            for (at, pass) in passes.iter().enumerate() {
                let text = opened.filter(|(own, _)| *own == at);
                let text = text.map(|(_, relay)| format!("Bearer for-https://{relay}/"));
                assert_eq!(
                    key.open(pass, &asked[at], Some(now_s())).ok().map(|it| it.text),
                    text.map(String::into_bytes),
                    "{at}"
                );
            }
        }
        // And for nothing else.
        let [of_last, of_home] = passes[..] else { panic!("two: {passes:?}") };
        for (key, pass) in [(&keys[1], of_last), (&keys[2], of_home)] {
            for other in [
                Pass::Read("https://other.example/"),
                Pass::Read("/depot?size=1"),
                Pass::Tunnel("r3:443"),
            ] {
                assert!(key.open(pass, &other.purpose(), Some(now_s())).is_err(), "{other:?}");
            }
        }
        // In the middle of a route it is the address through those behind.
        let route = [near.clone(), home.clone(), last.clone()];
        let source = url("https://data.example/f?a=b");
        let lines = net.encrypted_for(&route, &source, &source, Trust::Named).lines;
        let passes: Vec<&str> = lines
            .text()
            .unwrap()
            .lines()
            .filter_map(|line| line.strip_prefix("swath-pass: "))
            .collect();
        let asked = "https://r2/relay/https://data.example/f?a=b";
        assert!(keys[2].open(passes[0], &Pass::Read(asked).purpose(), Some(now_s())).is_ok());
        assert!(
            keys[1].open(passes[1], &Pass::Read(source.as_str()).purpose(), Some(now_s())).is_ok()
        );
        assert!(!net.has_secrets_for(&depot, Trust::Named));
        // A relay that is to ask its own depot is shown it as what opens any other source.
        let sealed =
            net.encrypted_for(std::slice::from_ref(&home), &depot, &depot, Trust::Named).lines;
        let sealed = sealed.text().unwrap().strip_prefix("swath-sealed: ").unwrap().trim_end();
        let opened = keys[2].open(sealed, depot.as_str(), Some(now_s())).unwrap().text;
        assert_eq!(opened, b"Authorization: Bearer for-https://r3/\r\n");
        // What is no depot's of ours is a source like any other, which knows no pass.
        let other = url("https://data.example/depot/a");
        let sealed = net.encrypted_for(&route, &other, &other, Trust::Named);
        let sealed = sealed
            .lines
            .text()
            .unwrap()
            .lines()
            .find_map(|line| line.strip_prefix("swath-sealed: "));
        assert_eq!(
            keys[1].open(sealed.unwrap(), other.as_str(), Some(now_s())).unwrap().text,
            b"X-Own: mine\r\n"
        );
    }

    #[tokio::test]
    async fn other_keys_are_noticed_once_they_are_told() {
        let relay = url("http://127.0.0.1:9/");
        let net = Net::new(NetOptions::default()).unwrap();
        net.note_relay_key(&relay, "old", None);
        let keys = net.keys_of([&relay].into_iter());
        // Nobody is there to be asked, which changes nothing.
        assert!(!net.have_changed(&keys).await);
        net.note_relay_key(&relay, "new", None);
        assert!(net.have_changed(&keys).await && !net.have_changed(&Keys::default()).await);
        let silent = url("http://127.0.0.1:10/");
        assert!(net.awaits_key(&silent));
        net.note_no_relay_key(&silent);
        net.note_no_relay_key(&relay);
        assert!(!net.awaits_key(&silent) && net.relay_key(&relay).is_some());
        // One that told none when it was asked may yet.
        let keys = net.keys_of([&silent].into_iter());
        assert!(!net.have_changed(&keys).await);
        net.note_relay_key(&silent, "first", None);
        assert!(net.have_changed(&keys).await);
    }
}
