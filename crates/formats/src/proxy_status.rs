//! `Proxy-Status` (RFC 9209): what happened between a relay and the server that it asked. By it the
//! errors of relays can be told from those of origins.

/// What went wrong, by the names of RFC 9209, section 2.3, as far as it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFault {
    /// The name is not known.
    DnsError,
    /// What is asked for may not be asked here.
    Denied,
    /// The request is none that could be answered.
    Request,
    /// The address is one that the relay does not contact.
    IpProhibited,
    /// Nobody takes the connection.
    Refused,
    /// The connection ended before the answer did.
    Terminated,
    /// No answer to the attempt to connect.
    ConnectTimeout,
    /// The server said nothing for too long.
    ReadTimeout,
    /// Too many connections are open.
    Limit,
    /// Encryption could not be agreed upon.
    Tls,
    /// The certificate is not trusted.
    Certificate,
    /// What came is no HTTP.
    Protocol,
    /// The request has come by here already.
    Loop,
    /// The relay itself.
    Internal,
    /// What was sealed for the relay is for another key than the one that it has, as after a restart
    /// (of swath alone: others take it for an unknown fault).
    OtherKey,
    /// What was sealed for the relay was used before, or is too old (of swath alone, as well).
    Spent,
    /// What is asked for may not be asked here: the relay serves others, and not who asks.
    NotAdmitted,
    /// What is asked for may not be asked here: the server is none of those that the relay asks.
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
    // Told apart from each other by a parameter of swath's own.
    (ProxyFault::NotAdmitted, "http_request_denied"),
    (ProxyFault::NotListed, "http_request_denied"),
];

/// What the parameter `swath-denied` says.
const DENIED: &[(ProxyFault, &str)] =
    &[(ProxyFault::NotAdmitted, "not_admitted"), (ProxyFault::NotListed, "not_listed")];

impl ProxyFault {
    /// As it is written.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(fault, _)| *fault == self).map_or("", |(_, name)| name)
    }

    /// What an answer of this status means where a relay does not say it in other words: a definite
    /// no, or not just now. `None`: nothing definite.
    pub fn of_status(status: u16) -> Option<Self> {
        match status {
            408 | 425 => None,
            429 | 503 => Some(Self::Limit),
            400..=499 => Some(Self::Denied),
            _ => None,
        }
    }

    /// Whether the relay would say the same again.
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

    /// The status of an answer that says so.
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

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyStatus {
    /// How the relay calls itself.
    pub proxy: String,
    /// What went wrong, if it is known here.
    pub fault: Option<ProxyFault>,
    /// The relay's words for it, with the name of the server that they are about.
    pub details: Option<String>,
}

/// The entry of the relay `name` whose way to `next_hop` came to nothing.
pub fn write(name: &str, fault: ProxyFault, next_hop: Option<&str>, details: &str) -> String {
    let hop = next_hop.map_or_else(String::new, |hop| format!("; next-hop={}", quoted(hop)));
    let details =
        if details.is_empty() { String::new() } else { format!("; details={}", quoted(details)) };
    let denied = DENIED.iter().find(|(denied, _)| *denied == fault);
    let denied = denied.map_or_else(String::new, |(_, how)| format!("; swath-denied={how}"));
    format!("{}; error={}{denied}{hop}{details}", own(name), fault.name())
}

/// The entry of the relay `name` which answers itself, and with which nothing is wrong.
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

/// As a string of RFC 8941: printable ASCII, quotes and backslashes replaced.
fn quoted(text: &str) -> String {
    let clean = text.chars().map(|it| match it {
        '"' | '\\' => '\'',
        ' '..='~' => it,
        _ => '?',
    });
    format!("\"{}\"", clean.take(DETAILS_MAX).collect::<String>())
}

/// Who says that something went wrong, and what: the last entry with an error in `value`, which is
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
        // Words about the next server do not always say whose they are.
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

/// The parts between `separator`s that stand in no quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |character| {
        is_quoted ^= character == '"';
        character == separator && !is_quoted
    })
}

const ENTRIES_MAX: usize = 16;
const NAME_MAX: usize = 100;
/// Of words that explain.
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
