//! What to do where a source or the relay of a depot does not let us in, or is not trusted.

use swath_formats::relay::site;
use swath_source::display_name;
use url::Url;

use crate::config::{Config, Relay};
use crate::exit;

/// What to do about sources that cannot be used, a line for each kind of reason.
pub fn of_sources(reasons: &[(String, String)]) -> Vec<String> {
    let first = |hint: fn(&str) -> Option<&'static str>| {
        reasons.iter().find_map(|(_, reason)| hint(reason)).map(str::to_owned)
    };
    [first(exit::hint_of_token), first(exit::hint_of_trust)].into_iter().flatten().collect()
}

/// What to do about depots that cannot be used: each has the name that its address is shown by.
pub fn of_depots(reasons: &[(String, String)], at: &[Relay]) -> Vec<String> {
    let mut hints = Vec::new();
    let mut is_new = |hint: String| {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    };
    for (name, reason) in reasons {
        let relay = at.iter().find(|relay| display_name(&relay.url) == *name);
        if let Some(relay) = relay.filter(|_| wants_token(reason)) {
            is_new(token(&relay.url, at));
        }
        if let Some(hint) = exit::hint_of_https(name, reason) {
            is_new(hint);
        }
        // Also where a fingerprint was given: that may be the source's.
        match exit::is_untrusted_here(reason) {
            true if reason.starts_with(SAID_BY_IT) => is_new(TRUST_OF_RELAY.to_owned()),
            true => is_new(TRUST_OF_US.to_owned()),
            false => {}
        }
    }
    hints
}

/// What gives this relay, which answered 401, a token.
pub fn token(relay: &Url, typed: &[Relay]) -> String {
    let named = site(relay).unwrap_or_default();
    let scheme = relay.scheme();
    let file = Config::load().map(|config| config.relays).unwrap_or_default();
    let mut known = typed.iter().chain(&file).filter(|known| known.site() == named);
    let was_shown = known.any(|known| known.has_login() || known.token_file.is_some());
    let wants =
        if was_shown { "does not take the token that it was shown" } else { "asks for a token" };
    let shows = if was_shown { "shows another" } else { "shows one" };
    format!(
        "  {named} {wants}: --at {scheme}://any:TOKEN@{named} {shows}, or 'token-file' in the \
         configuration file"
    )
}

/// Whether a relay, and not the source that its depot fetches from, wants a token.
fn wants_token(reason: &str) -> bool {
    reason.contains(" answered 401") && !reason.starts_with(SAID_BY_IT)
}

/// How what a depot says of the source begins.
const SAID_BY_IT: &str = "it cannot fetch: ";
/// Where the relay does not trust a source's certificate …
const TRUST_OF_RELAY: &str = "  it is that relay which does not trust it: whoever runs it names the source's certificate (--fingerprint or --ca of 'swath relay')";
/// … and where we do not trust the relay's.
pub const TRUST_OF_US: &str = "  a relay is known by the fingerprint that 'swath relay' prints: --fingerprint names it here, and fingerprint in the configuration, beside its url";
