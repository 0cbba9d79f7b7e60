//! What to do where a source or the relay of a depot does not let us in, or is not trusted.

use swath_formats::relay::site;
use swath_source::display_name;
use swath_transfer::{Party, Reason};
use url::Url;

use crate::config::{Config, Relay};
use crate::hints;

/// What to do about sources that cannot be used, a line for each kind of reason.
pub fn of_sources(reasons: &[Reason]) -> Vec<String> {
    let errors = reasons.iter().filter_map(|reason| reason.why.lane_error());
    let mut found: Vec<String> = errors.flat_map(hints::of_server).map(str::to_owned).collect();
    found.dedup();
    found
}

/// What to do about depots that cannot be used.
pub fn of_depots(reasons: &[Reason], at: &[Relay]) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_new = |hint: String| {
        if !found.contains(&hint) {
            found.push(hint);
        }
    };
    for Reason { of, why } in reasons {
        let is_meant = |relay: &&Relay| *of == Party::Depot(display_name(&relay.url));
        let relay = at.iter().find(is_meant);
        if let Some(relay) = relay.filter(|_| hints::depot_wants_token(why)) {
            is_new(token(&relay.url, at));
        }
        if let Some(hint) = why.lane_error().and_then(|error| hints::of_https(of, error)) {
            is_new(hint);
        }
        if hints::depot_distrusts_source(why) {
            is_new(TRUST_OF_RELAY.to_owned());
        }
        // Also where a fingerprint was given: that may be the source's.
        if why.lane_error().and_then(hints::untrusted_here).is_some() {
            is_new(TRUST_OF_US.to_owned());
        }
    }
    found
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
        "{named} {wants}: --at {scheme}://any:TOKEN@{named} {shows}, or 'token-file' in the \
         configuration file"
    )
}

/// Where the relay does not trust a source's certificate …
const TRUST_OF_RELAY: &str = "it is that relay which does not trust it: whoever runs it names the source's certificate (--fingerprint or --ca of 'swath relay')";
/// … and where we do not trust the relay's.
pub const TRUST_OF_US: &str = "a relay is known by the fingerprint that 'swath relay' prints: --fingerprint names it here, and fingerprint in the configuration, beside its url";
