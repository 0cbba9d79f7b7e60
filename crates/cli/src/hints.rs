//! What a user can do where a source, a relay or a depot is not used: a line for each kind of reason.
//!
//! Every hint is chosen by the type of what went wrong, never by its words.

use swath_formats::ProxyFault;
use swath_formats::plain_http::SpeaksHttps;
use swath_model::SourceName;
use swath_source::{DepotError, LaneError, TlsFault};
use swath_transfer::{Party, Reason, Why};

/// About all reasons of a transfer, but for trust: of that callers have more to say.
pub fn of(reasons: &[Reason]) -> Vec<String> {
    let mut hints: Vec<String> = of_tokens(reasons).into_iter().map(str::to_owned).collect();
    hints.extend(reasons.iter().find_map(|reason| of_https(&reason.of, reason.why.lane_error()?)));
    hints.extend(of_relays(reasons).into_iter().map(str::to_owned));
    hints
}

/// About one error of a server's, or of a source's: what gives a token, and what trust.
pub fn of_server(error: &LaneError) -> Vec<&'static str> {
    of_token(error).into_iter().chain(of_trust(error)).collect()
}

/// What to do where a server wants another token than the one it was shown.
fn of_token(error: &LaneError) -> Option<&'static str> {
    (error.last().code() == Some(401)).then_some(TOKEN)
}

/// The same for all reasons of a transfer, by whom they are about: relays are shown other tokens than
/// sources.
fn of_tokens(reasons: &[Reason]) -> Vec<&'static str> {
    let wants = |is_of_relays: bool| {
        let mut own = reasons.iter().filter(|it| matches!(it.of, Party::Relay(_)) == is_of_relays);
        own.any(|it| it.why.lane_error().and_then(of_token).is_some())
    };
    let source = wants(false).then_some(TOKEN);
    let relay = wants(true).then_some(TOKEN_OF_RELAY);
    source.into_iter().chain(relay).collect()
}

/// What to do where nothing is known that a server's certificate could be trusted by.
pub fn of_trust(error: &LaneError) -> Option<&'static str> {
    let fault = untrusted_here(error)?;
    (fault != TlsFault::OtherFingerprint).then_some(TRUST)
}

/// How it is us who do not trust a certificate, and not a relay on the way.
pub fn untrusted_here(error: &LaneError) -> Option<TlsFault> {
    match error.last() {
        LaneError::Tls { fault, .. } => Some(*fault).filter(|fault| fault.is_untrusted()),
        _ => None,
    }
}

/// What to do where a server that speaks HTTPS, or a relay, was spoken to in plain HTTP.
pub fn of_https(of: &Party, error: &LaneError) -> Option<String> {
    let LaneError::SpeaksHttps(who) = error.last() else { return None };
    match (who, of.relays()) {
        (SpeaksHttps::Relay, [relay]) => Some(format!("that relay is named by https://{relay}")),
        (SpeaksHttps::Relay, relays @ [_, _, ..]) => {
            let relays = relays.join(", ");
            Some(format!("of these relays one is named by https://HOST: {relays}"))
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

/// What to do where relays pass nothing on: about the first reason of that kind, and, where nothing but
/// a route that was named has been tried, that there are others.
fn of_relays(reasons: &[Reason]) -> Vec<&'static str> {
    let is_about_relays = |reason: &Reason| !reason.of.relays().is_empty();
    let errors = || reasons.iter().filter_map(|reason| Some((reason, reason.why.lane_error()?)));
    let says = |faults: &[ProxyFault]| {
        errors().any(|(_, error)| {
            matches!(error, LaneError::Relay { fault: Some(fault), .. } if faults.contains(fault))
        })
    };
    // Where we do not reach, or do not trust, a relay itself.
    let is_of_relay = |reason: &Reason, host: &String| reason.of.relays().contains(host);
    let is_elsewhere = errors().any(|(reason, error)| match (error, &reason.why) {
        // That says it already.
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

/// What gives a server a token …
const TOKEN: &str = "--token TOKEN gives the token that 'swath serve' prints, --token @FILE (or --bearer-file FILE) one from a file";
/// … and what gives a relay one.
const TOKEN_OF_RELAY: &str =
    "token-file in the configuration opens a relay, and so does --relay https://any:TOKEN@HOST";
const TRUST: &str =
    "--fingerprint trusts the certificate that 'swath serve' prints, --ca FILE an authority";
const ADMISSION: &str = "whoever runs it names who asks it (--clients: you, or the relay before it), or has given you a token (token-file in the configuration)";
const UPSTREAM: &str =
    "whoever runs it names whom it asks (--upstream): the source, or the next relay, with the port";
const TRUST_OF_NEXT: &str = "it is that relay which does not trust it: whoever runs it names the next one's certificate (--fingerprint or --ca of 'swath relay')";
const PORT: &str = "'swath relay' listens on port 8471 unless told otherwise, and the address of this relay does not lead there";
const FINGERPRINT_OF_RELAY: &str = "a relay is known by the fingerprint that 'swath relay' prints: fingerprint in the configuration, beside its url";
const OTHER_ROUTES: &str = "nothing but the route that was named was tried: --route auto takes others, --route direct none";

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
        is(hint(&by(&["r1:8471"]), relay), "that relay is named by https://r1:8471");
        let alone = Party::Relay("r1:8471".to_owned());
        is(hint(&alone, relay), "that relay is named by https://r1:8471");
        let one = "of these relays one is named by https://HOST: r1:8471, r2:8471";
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
