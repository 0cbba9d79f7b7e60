//! Hints on sources, relays and depots that could not be used: one line for each kind of error.
//!
//! Hints are chosen by the type of an error, never by its text.

use swath_formats::ProxyFault;
use swath_formats::plain_http::SpeaksHttps;
use swath_model::SourceName;
use swath_source::{DepotError, LaneError, TlsFault};
use swath_transfer::{Party, Reason, Why};

/// Returns the hints on all reasons of a transfer, except on trust, which callers handle.
pub fn of(reasons: &[Reason]) -> Vec<String> {
    let mut hints: Vec<String> = of_tokens(reasons).into_iter().map(str::to_owned).collect();
    hints.extend(reasons.iter().find_map(|reason| of_https(&reason.of, reason.why.lane_error()?)));
    hints.extend(of_relays(reasons).into_iter().map(str::to_owned));
    hints
}

/// Returns the hints on tokens and trust for an error of a server.
pub fn of_server(error: &LaneError) -> Vec<&'static str> {
    of_token(error).into_iter().chain(of_trust(error)).collect()
}

/// Returns the hint on a missing or wrong token.
fn of_token(error: &LaneError) -> Option<&'static str> {
    (error.last().code() == Some(401)).then_some(TOKEN)
}

/// Returns the hints on tokens for all reasons of a transfer: relays have other tokens than sources.
fn of_tokens(reasons: &[Reason]) -> Vec<&'static str> {
    let wants = |is_of_relays: bool| {
        let mut own = reasons.iter().filter(|it| matches!(it.of, Party::Relay(_)) == is_of_relays);
        own.any(|it| it.why.lane_error().and_then(of_token).is_some())
    };
    let source = wants(false).then_some(TOKEN);
    let relay = wants(true).then_some(TOKEN_OF_RELAY);
    source.into_iter().chain(relay).collect()
}

/// Returns the hint on an untrusted certificate.
pub fn of_trust(error: &LaneError) -> Option<&'static str> {
    let fault = untrusted_here(error)?;
    (fault != TlsFault::OtherFingerprint).then_some(TRUST)
}

/// Returns why this machine, and not a relay, does not trust a certificate.
pub fn untrusted_here(error: &LaneError) -> Option<TlsFault> {
    match error.last() {
        LaneError::Tls { fault, .. } => Some(*fault).filter(|fault| fault.is_untrusted()),
        _ => None,
    }
}

/// Returns the hint on plain HTTP sent to a server or relay that needs HTTPS.
pub fn of_https(of: &Party, error: &LaneError) -> Option<String> {
    let LaneError::SpeaksHttps(who) = error.last() else { return None };
    match (who, of.relays()) {
        (SpeaksHttps::Relay, [relay]) => {
            Some(format!("the address of that relay is https://{relay}"))
        }
        (SpeaksHttps::Relay, relays @ [_, _, ..]) => {
            let relays = relays.join(", ");
            Some(format!("one of these relays needs an https:// address: {relays}"))
        }
        _ => {
            let (Party::Source(SourceName { address, .. }) | Party::Depot(address)) = of else {
                return None;
            };
            let rest = address.strip_prefix("http://")?;
            Some(format!("its address is https://{rest}"))
        }
    }
}

/// Returns the hints on relays that forward nothing.
fn of_relays(reasons: &[Reason]) -> Vec<&'static str> {
    let is_about_relays = |reason: &Reason| !reason.of.relays().is_empty();
    let errors = || reasons.iter().filter_map(|reason| Some((reason, reason.why.lane_error()?)));
    let says = |faults: &[ProxyFault]| {
        errors().any(|(_, error)| {
            matches!(error, LaneError::Relay { fault: Some(fault), .. } if faults.contains(fault))
        })
    };
    // This machine cannot reach or does not trust the relay itself.
    let is_of_relay = |reason: &Reason, host: &String| reason.of.relays().contains(host);
    let is_elsewhere = errors().any(|(reason, error)| match (error, &reason.why) {
        // Its text contains the hint.
        (_, Why::NoRelay { .. }) => false,
        (LaneError::Connect { host, .. }, _) => {
            is_of_relay(reason, host) && (host.ends_with(":80") || host.ends_with(":443"))
        }
        _ => false,
    });
    let is_untrusted = errors().any(|(reason, error)| match error {
        LaneError::Tls { host, fault, .. } => fault.is_untrusted() && is_of_relay(reason, host),
        _ => false,
    });
    let hints = [
        (says(&[ProxyFault::NotAdmitted, ProxyFault::OtherKey]), ADMISSION),
        (says(&[ProxyFault::NotListed]), UPSTREAM),
        (says(&[ProxyFault::Certificate]), TRUST_OF_NEXT),
        (is_elsewhere, PORT),
        (is_untrusted, FINGERPRINT_OF_RELAY),
        (!reasons.is_empty() && reasons.iter().all(is_about_relays), OTHER_ROUTES),
    ];
    hints.into_iter().filter_map(|(applies, hint)| applies.then_some(hint)).collect()
}

/// Whether a depot's relay, and not the source that it fetches from, wants a token.
pub fn depot_wants_token(why: &Why) -> bool {
    match why {
        Why::Depot(DepotError::Refused { status, .. }) => *status == 401,
        why => why.lane_error().and_then(LaneError::code) == Some(401),
    }
}

/// Whether a depot's relay does not trust the source.
pub fn depot_distrusts_source(why: &Why) -> bool {
    let fault = match why {
        Why::Depot(DepotError::Source { fault, .. }) => *fault,
        _ => None,
    };
    fault == Some(ProxyFault::Certificate)
}

const TOKEN: &str = "--token TOKEN sends the token that 'swath serve' prints; --token @FILE (or --bearer-file FILE) reads it from a file";
const TOKEN_OF_RELAY: &str =
    "set token-file for the relay in the configuration, or use --relay https://any:TOKEN@HOST";
/// How a certificate that no authority signed is trusted.
pub const TRUST: &str = "--fingerprint trusts the certificate whose fingerprint 'swath serve' prints; --ca FILE trusts an authority";
const ADMISSION: &str = "its operator must allow the client (--clients: you, or the previous relay) or give you a token (token-file in the configuration)";
const UPSTREAM: &str =
    "its operator must allow the server (--upstream: the source, or the next relay, with the port)";
const TRUST_OF_NEXT: &str = "the relay does not trust the next server: its operator must set --fingerprint or --ca of 'swath relay'";
const PORT: &str =
    "'swath relay' listens on port 8471 by default, and the address of this relay has another port";
const FINGERPRINT_OF_RELAY: &str = "to trust a relay, set fingerprint next to its url in the configuration; 'swath relay' prints it";
const OTHER_ROUTES: &str =
    "only the given route was tried: --route auto tries others, --route direct uses no relay";

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str, relays: &[&str]) -> Party {
        Party::Source(SourceName::routed(address, relays.iter().copied()))
    }

    fn reason(of: Party, error: LaneError) -> Reason {
        Reason { of, why: error.into() }
    }

    fn refused(host: &str) -> LaneError {
        let reason = "Connection refused".to_owned();
        LaneError::Connect { host: host.to_owned(), timed_out: false, reason }
    }

    #[test]
    fn a_relay_whose_port_was_left_out_is_looked_for_at_another_one() {
        let is_hinted =
            |of: Party, error: LaneError| of_relays(&[reason(of, error)]).contains(&PORT);
        let address = "http://data.example/f";
        let by = |relay: &str| source(address, &[relay]);
        assert!(is_hinted(by("r1:443"), refused("r1:443")));
        assert!(is_hinted(Party::Relay("r1:80".to_owned()), refused("r1:80")));
        assert!(!is_hinted(by("r1:8471"), refused("r1:8471")));
        assert!(!is_hinted(source(address, &[]), refused("data.example:80")));
        let words = refused("data.example:80").to_string();
        let told = LaneError::Relay { relay: "r1".to_owned(), fault: None, reason: words };
        assert!(!is_hinted(by("r1:443"), told));
        let why = Why::NoRelay { names_port: false, error: Box::new(refused("r1:443")) };
        assert!(!of_relays(&[Reason { of: by("r1:443"), why }]).contains(&PORT));
    }

    #[test]
    fn who_speaks_https_is_named_so() {
        // The source was advised to be asked by https://, with the relays as a part of its name.
        let hint = |of: &Party, who| of_https(of, &LaneError::SpeaksHttps(who));
        let address = "http://data.example/f";
        let by = |relays: &[&str]| source(address, relays);
        let is = |hint: Option<String>, words: &str| assert_eq!(hint.as_deref(), Some(words));
        let (server, relay) = (SpeaksHttps::Server, SpeaksHttps::Relay);
        is(hint(&by(&[]), server), "its address is https://data.example/f");
        is(hint(&by(&["r1:8471"]), server), "its address is https://data.example/f");
        is(hint(&by(&["r1:8471"]), relay), "the address of that relay is https://r1:8471");
        let alone = Party::Relay("r1:8471".to_owned());
        is(hint(&alone, relay), "the address of that relay is https://r1:8471");
        let one = "one of these relays needs an https:// address: r1:8471, r2:8471";
        is(hint(&by(&["r1:8471", "r2:8471"]), relay), one);
        // A relay's own address as a source, as for a depot.
        let depot = Party::Depot("http://r1:8471/depot/".to_owned());
        is(hint(&depot, relay), "its address is https://r1:8471/depot/");
        assert_eq!(of_https(&by(&[]), &refused("data.example:80")), None);
    }

    #[test]
    fn relays_and_sources_are_opened_by_different_tokens() {
        // Where a relay refused, --bearer-file was advised, which no relay is ever shown.
        let denied = |of: Party| {
            let words = "Unauthorized".to_owned();
            reason(of, LaneError::status(401, words, None))
        };
        let a_source = || denied(source("https://data.example/f", &[]));
        let a_relay = || denied(Party::Relay("r1.example:8471".to_owned()));
        assert_eq!(of_tokens(&[a_source()]), [TOKEN]);
        assert_eq!(of_tokens(&[a_relay()]), [TOKEN_OF_RELAY]);
        assert_eq!(of_tokens(&[a_relay(), a_source()]), [TOKEN, TOKEN_OF_RELAY]);
    }
}
