//! `Proxy-Status` (RFC 9209): what happened between a relay and the server that it asked. By it the
//! errors of relays can be told from those of origins.

/// What went wrong, by the names of RFC 9209, section 2.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFault {
    /// The name is not known.
    DnsError,
    /// What is asked for may not be asked here.
    Denied,
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
}

const NAMES: &[(ProxyFault, &str)] = &[
    (ProxyFault::DnsError, "dns_error"),
    (ProxyFault::Denied, "http_request_denied"),
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
];

impl ProxyFault {
    /// As it is written.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(fault, _)| *fault == self).map_or("", |(_, name)| name)
    }

    /// The status of an answer that says so.
    pub fn status(self) -> u16 {
        match self {
            Self::Denied | Self::IpProhibited => 403,
            Self::Limit => 503,
            Self::ConnectTimeout | Self::ReadTimeout => 504,
            Self::Loop => 508,
            Self::Internal => 500,
            _ => 502,
        }
    }
}

/// The entry of the relay `name` whose way to `next_hop` came to nothing.
pub fn write(name: &str, fault: ProxyFault, next_hop: Option<&str>) -> String {
    let token: String = name
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() || "-._".contains(it) { it } else { '-' })
        .collect();
    // A token begins with a letter (RFC 8941, section 3.3.4).
    let token = if token.starts_with(|it: char| it.is_ascii_alphabetic()) {
        token
    } else {
        format!("relay-{token}")
    };
    let hop = next_hop.map_or_else(String::new, |hop| {
        let hop: String =
            hop.chars().filter(|it| it.is_ascii_graphic() && !"\"\\".contains(*it)).collect();
        format!("; next-hop=\"{hop}\"")
    });
    format!("{token}; error={}{hop}", fault.name())
}

/// Who says that something went wrong, and what: the last entry with an error in `value`, which is
/// that of the relay nearest to us.
pub fn read(value: &str) -> Option<(String, Option<ProxyFault>)> {
    value.split(',').rev().take(ENTRIES_MAX).find_map(|entry| {
        let mut members = entry.split(';').map(str::trim);
        let name: String = members.next()?.chars().take(NAME_MAX).collect();
        let error = members.find_map(|member| member.strip_prefix("error="))?;
        let fault = NAMES.iter().find(|(_, name)| *name == error).map(|(fault, _)| *fault);
        Some((name, fault))
    })
}

const ENTRIES_MAX: usize = 16;
const NAME_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for &(fault, _) in NAMES {
            let text = write("r1.example:8471", fault, Some("data:443"));
            assert_eq!(read(&text), Some(("r1.example-8471".to_owned(), Some(fault))), "{text}");
        }
        assert_eq!(write("7", ProxyFault::Loop, None), "relay-7; error=proxy_loop_detected");
        let two = "r2; error=connection_refused; next-hop=\"a\", r1; received-status=502";
        assert_eq!(read(two), Some(("r2".to_owned(), Some(ProxyFault::Refused))));
        assert_eq!(read("r1; error=new_kind"), Some(("r1".to_owned(), None)));
        assert_eq!(read("r1"), None);
        assert_eq!(read(""), None);
    }
}
