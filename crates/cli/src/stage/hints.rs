//! Hints on sources and depots that refuse access or are not trusted.

use swath_formats::relay::site;
use swath_source::display_name;
use swath_transfer::{Party, Reason};
use url::Url;

use crate::config::{Config, Relay};
use crate::hints;

/// Returns the hints on unusable sources, one line for each kind of error.
pub fn of_sources(reasons: &[Reason]) -> Vec<String> {
    let errors = reasons.iter().filter_map(|reason| reason.why.lane_error());
    let mut found: Vec<String> = errors.flat_map(hints::of_server).map(str::to_owned).collect();
    found.dedup();
    found
}

/// Returns the hints on unusable depots.
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
        // Also with --fingerprint, which may be that of the source.
        if why.lane_error().and_then(hints::untrusted_here).is_some() {
            is_new(TRUST_OF_US.to_owned());
        }
    }
    found
}

/// Returns the hint on a relay that answered 401.
pub fn token(relay: &Url, typed: &[Relay]) -> String {
    let named = site(relay).unwrap_or_default();
    let scheme = relay.scheme();
    let file = Config::load().map(|config| config.relays).unwrap_or_default();
    let mut known = typed.iter().chain(&file).filter(|known| known.site() == named);
    let was_shown = known.any(|known| known.has_login() || known.token_file.is_some());
    let wants = if was_shown { "refused the token" } else { "needs a token" };
    format!(
        "{named} {wants}: use --at {scheme}://any:TOKEN@{named}, or 'token-file' in the \
         configuration file"
    )
}

/// For a relay that does not trust the source.
const TRUST_OF_RELAY: &str = "the relay does not trust the source: its operator must set --fingerprint or --ca of 'swath relay'";
/// For a relay that this machine does not trust.
pub const TRUST_OF_US: &str = "to trust a relay, use --fingerprint, or set fingerprint next to its url in the configuration; 'swath relay' prints it";
