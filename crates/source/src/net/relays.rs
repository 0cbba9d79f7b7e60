//! What is known of the user's relays: their keys, and what opens them where we do not speak with them
//! ourselves.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use swath_formats::relay;
use url::Url;

use super::Net;
use super::credentials::{self, Credentials};
use crate::sealing::{PASS, seal};
use crate::source::{Carriage, Trust};
use crate::target::Origin;

/// The keys of relays, by host and port.
#[derive(Debug, Default)]
pub(super) struct RelayKeys {
    keys: Mutex<HashMap<String, RelayKey>>,
}

/// A relay's key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RelayKey {
    public: String,
    /// It came over an encrypted connection with the relay itself, or from this machine.
    is_its_own: bool,
}

/// Whether secrets can be sealed for a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealable {
    /// They can.
    Yes,
    /// Its key has not been told yet.
    NotYet,
    /// Its key came in the clear: it may be anybody's.
    Never,
}

impl Net {
    /// A relay has told its key.
    pub(crate) fn note_relay_key(&self, url: &Url, public: &str) {
        let Some(site) = relay::site(url) else { return };
        let is_here = Origin::of(url).is_some_and(|it| credentials::is_loopback(&it.host));
        let key =
            RelayKey { public: public.to_owned(), is_its_own: url.scheme() == "https" || is_here };
        let keys = &self.shared.relay_keys.keys;
        let mut keys = keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() < KEYS_MAX || keys.contains_key(&site) {
            keys.insert(site, key);
        }
    }

    fn relay_key(&self, url: &Url) -> Option<RelayKey> {
        let keys = &self.shared.relay_keys.keys;
        keys.lock().unwrap_or_else(PoisonError::into_inner).get(&relay::site(url)?).cloned()
    }

    /// Whether what opens a source can be sealed for the relay at `url`.
    pub fn can_seal_for(&self, url: &Url) -> Sealable {
        match self.relay_key(url) {
            Some(key) if key.is_its_own => Sealable::Yes,
            Some(_) => Sealable::Never,
            None => Sealable::NotYet,
        }
    }

    /// Whether a relay of a route, the nearest first, is opened by a token that cannot be sealed for it
    /// yet, since it has not told its key. The first one is shown its token itself, and so is any
    /// with which we speak TLS in a tunnel.
    pub fn awaits_keys(&self, relays: &[Url], carriage: Carriage) -> bool {
        let is_shown = |relay: &Url| carriage == Carriage::Carried && relay.scheme() == "https";
        relays.iter().skip(1).filter(|relay| !is_shown(relay)).any(|relay| {
            let has_token = Origin::of(relay)
                .is_some_and(|origin| self.credentials_for_relay(&origin).authorization.is_some());
            has_token && self.relay_key(relay).is_none()
        })
    }

    /// What opens a relay, for its eyes alone; nothing if there is no such thing, or no key of its own
    /// to seal it with.
    pub(super) fn sealed_pass(&self, url: &Url) -> Option<String> {
        let opens = self.credentials_for_relay(&Origin::of(url)?).authorization?;
        let key = self.relay_key(url).filter(|key| key.is_its_own)?;
        seal(&key.public, PASS, opens.expose().as_bytes()).ok()
    }

    /// Header lines that show each relay of a route what is meant for it alone: tokens for those behind
    /// the first, and for the last one what opens the origin. Nothing where keys are missing.
    pub(crate) fn sealed_lines(&self, relays: &[Url], end: &Url, own: Credentials) -> String {
        let mut lines = String::new();
        for sealed in relays.iter().skip(1).filter_map(|relay| self.sealed_pass(relay)) {
            lines.push_str(&format!("swath-pass: {sealed}\r\n"));
        }
        let mut text = String::new();
        for (name, value) in &own.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(authorization) = &own.authorization {
            text.push_str(&format!("Authorization: {}\r\n", authorization.expose()));
        }
        if let Some(last) = relays.last().filter(|_| !text.is_empty())
            && let Some(key) = self.relay_key(last).filter(|key| key.is_its_own)
            && let Ok(sealed) = seal(&key.public, end.as_str(), text.as_bytes())
        {
            lines.push_str(&format!("swath-sealed: {sealed}\r\n"));
        }
        lines
    }

    /// Whether requests to `url` show anything that others are not to see.
    pub fn has_secrets_for(&self, url: &Url, trust: Trust) -> bool {
        let own = self.credentials_for(url, url, trust);
        own.authorization.is_some() || !own.headers.is_empty()
    }
}

/// Nobody has more relays.
const KEYS_MAX: usize = 1024;
