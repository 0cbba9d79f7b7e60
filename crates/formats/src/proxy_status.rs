//! `Proxy-Status` (RFC 9209): what happened between a relay and the server it asked. It tells the
//! errors of relays from those of origins.

/// A fault, named as in RFC 9209, section 2.3, if that has a name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFault {
    /// The host name is unknown.
    DnsError,
    /// The relay does not allow this request.
    Denied,
    /// The request cannot be answered.
    Request,
    /// The relay does not contact this address.
    IpProhibited,
    /// The connection was refused.
    Refused,
    /// The connection ended before the answer did.
    Terminated,
    /// The attempt to connect got no answer.
    ConnectTimeout,
    /// The server was silent for too long.
    ReadTimeout,
    /// Too many connections are open.
    Limit,
    /// The TLS handshake failed.
    Tls,
    /// The certificate is not trusted.
    Certificate,
    /// The answer is not HTTP.
    Protocol,
    /// The request has passed this relay before.
    Loop,
    /// The relay itself failed.
    Internal,
    /// Sealed data is for another key than the relay's present one, as after a restart (swath's
    /// own; others see an unknown fault).
    OtherKey,
    /// Sealed data was used before, or is too old (swath's own, as well).
    Spent,
    /// The relay serves others, but not this client.
    NotAdmitted,
    /// The relay does not contact this server.
    NotListed,
}

const NAMES: &[(ProxyFault, &str)] = &[
    (ProxyFault::DnsError, "dns_error"),
    (ProxyFault::Denied, "http_request_denied"),
    (ProxyFault::Request, "http_request_error"),
    (ProxyFault::IpProhibited, "destination_ip_prohibited"),
    (ProxyFault::Refused, "connection_refused"),
    (ProxyFault::Terminated, "connection_terminated"),
    (ProxyFault::ConnectTimeout, "connection_timeout"),
    (ProxyFault::ReadTimeout, "connection_read_timeout"),
    (ProxyFault::Limit, "connection_limit_reached"),
    (ProxyFault::Tls, "tls_protocol_error"),
    (ProxyFault::Certificate, "tls_certificate_error"),
    (ProxyFault::Protocol, "http_protocol_error"),
    (ProxyFault::Loop, "proxy_loop_detected"),
    (ProxyFault::Internal, "proxy_internal_error"),
    (ProxyFault::OtherKey, "swath_other_key"),
    (ProxyFault::Spent, "swath_spent"),
    // A parameter of swath's own tells these apart.
    (ProxyFault::NotAdmitted, "http_request_denied"),
    (ProxyFault::NotListed, "http_request_denied"),
];

/// Values of the parameter `swath-denied`.
const DENIED: &[(ProxyFault, &str)] =
    &[(ProxyFault::NotAdmitted, "not_admitted"), (ProxyFault::NotListed, "not_listed")];

impl ProxyFault {
    /// Returns its written form.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(fault, _)| *fault == self).map_or("", |(_, name)| name)
    }

    /// Returns what an answer of this status means without other words from the relay: a definite
    /// no, or not now. `None`: nothing definite.
    pub fn of_status(status: u16) -> Option<Self> {
        match status {
            408 | 425 => None,
            429 | 503 => Some(Self::Limit),
            400..=499 => Some(Self::Denied),
            _ => None,
        }
    }

    /// Returns whether the relay would answer the same again.
    pub fn is_final(self) -> bool {
        matches!(
            self,
            Self::Denied
                | Self::NotAdmitted
                | Self::NotListed
                | Self::Request
                | Self::IpProhibited
                | Self::Loop
                | Self::OtherKey
                | Self::Certificate
                | Self::Tls
        )
    }

    /// Returns the status of an answer with this fault.
    pub fn status(self) -> u16 {
        match self {
            Self::Denied
            | Self::NotAdmitted
            | Self::NotListed
            | Self::IpProhibited
            | Self::OtherKey
            | Self::Spent => 403,
            Self::Request => 400,
            Self::Limit => 503,
            Self::ConnectTimeout | Self::ReadTimeout => 504,
            Self::Loop => 508,
            Self::Internal => 500,
            _ => 502,
        }
    }
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyStatus {
    /// The relay's name for itself.
    pub proxy: String,
    /// The fault, if known.
    pub fault: Option<ProxyFault>,
    /// The relay's words for it, with the name of the server concerned.
    pub details: Option<String>,
}

/// Writes the entry of relay `name`, which failed to reach `next_hop`.
pub fn write(name: &str, fault: ProxyFault, next_hop: Option<&str>, details: &str) -> String {
    let hop = next_hop.map_or_else(String::new, |hop| format!("; next-hop={}", quoted(hop)));
    let details =
        if details.is_empty() { String::new() } else { format!("; details={}", quoted(details)) };
    let denied = DENIED.iter().find(|(denied, _)| *denied == fault);
    let denied = denied.map_or_else(String::new, |(_, how)| format!("; swath-denied={how}"));
    format!("{}; error={}{denied}{hop}{details}", own(name), fault.name())
}

/// Writes the entry of relay `name`, which answers itself without a fault.
pub fn own(name: &str) -> String {
    let token: String = name
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() || "-._:".contains(it) { it } else { '-' })
        .collect();
    // A token begins with a letter (RFC 8941, section 3.3.4).
    match token.starts_with(|it: char| it.is_ascii_alphabetic()) {
        true => token,
        false => format!("relay-{token}"),
    }
}

/// Formats a string of RFC 8941: printable ASCII, with quotes and backslashes replaced.
fn quoted(text: &str) -> String {
    let clean = text.chars().map(|it| match it {
        '"' | '\\' => '\'',
        ' '..='~' => it,
        _ => '?',
    });
    format!("\"{}\"", clean.take(DETAILS_MAX).collect::<String>())
}

/// Reads which relay reports a fault, and which: the last entry with an error in `value`, which is
/// that of the relay nearest to us.
pub fn read(value: &str) -> Option<ProxyStatus> {
    let entries: Vec<&str> = split(value, ',').take(ENTRIES_MAX).collect();
    entries.into_iter().rev().find_map(|entry| {
        let mut members = split(entry, ';').map(str::trim);
        let proxy: String = members.next()?.chars().take(NAME_MAX).collect();
        let (mut error, mut denied, mut details, mut next_hop) = (None, None, None, None);
        for member in members {
            match member.split_once('=') {
                Some(("error", value)) => error = Some(value),
                Some(("swath-denied", value)) => denied = Some(value),
                Some(("details", value)) => {
                    let text = value.trim_matches('"');
                    details = Some(text.chars().take(DETAILS_MAX).collect::<String>());
                }
                Some(("next-hop", value)) => {
                    let text = value.trim_matches('"');
                    next_hop = Some(text.chars().take(NAME_MAX).collect::<String>());
                }
                _ => {}
            }
        }
        // Words about the next server do not always name it.
        if let (Some(about), Some(hop)) = (&mut details, next_hop.filter(|hop| !hop.is_empty()))
            && about.starts_with("it ")
        {
            *about = format!("{hop}: {about}");
        }
        let named = |names: &[(ProxyFault, &str)], wanted: Option<&str>| {
            names.iter().find(|(_, name)| Some(*name) == wanted).map(|(fault, _)| *fault)
        };
        let fault = match named(NAMES, error) {
            Some(ProxyFault::Denied) => named(DENIED, denied).or(Some(ProxyFault::Denied)),
            fault => fault,
        };
        error.map(|_| ProxyStatus { proxy, fault, details })
    })
}

/// Returns the parts between `separator`s outside of quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |character| {
        is_quoted ^= character == '"';
        character == separator && !is_quoted
    })
}

const ENTRIES_MAX: usize = 16;
const NAME_MAX: usize = 100;
/// Longest explanation kept.
const DETAILS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(proxy: &str, fault: Option<ProxyFault>, details: Option<&str>) -> Option<ProxyStatus> {
        Some(ProxyStatus { proxy: proxy.to_owned(), fault, details: details.map(str::to_owned) })
    }

    #[test]
    fn whom_it_is_about_is_told() {
        // "It is not among those …" was all that was said, of a route over several.
        let details = |hop, words| {
            let text = write("r1", ProxyFault::Denied, hop, words);
            read(&text).and_then(|told| told.details).unwrap()
        };
        assert_eq!(details(Some("data:80"), "it is not listed"), "data:80: it is not listed");
        assert_eq!(details(None, "it lets others in"), "it lets others in");
        assert_eq!(details(Some("data:80"), "no answer"), "no answer");
    }

    #[test]
    fn what_is_written_is_read() {
        for &(fault, _) in NAMES {
            let text = write("r1.example:8471", fault, Some("data:443"), "\"no\"; a, b\u{e9}\n");
            assert_eq!(
                read(&text),
                told("r1.example:8471", Some(fault), Some("'no'; a, b??")),
                "{text}"
            );
        }
        assert_eq!(write("7", ProxyFault::Loop, None, ""), "relay-7; error=proxy_loop_detected");
        let two = "r2; error=connection_refused; next-hop=\"a\", r1; received-status=502";
        assert_eq!(read(two), told("r2", Some(ProxyFault::Refused), None));
        assert_eq!(read("r1; error=new_kind"), told("r1", None, None));
        assert_eq!(read("r1"), None);
        assert_eq!(read(""), None);
    }
}
