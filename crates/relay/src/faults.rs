//! The relay's own errors, marked so that they cannot be taken for those of the upstream server.

use swath_formats::{ProxyFault, proxy_status};
use swath_source::{LaneError, TlsFault};

use swath_serve::http::Response;

/// An answer of the relay `name` itself.
pub(super) fn response(name: &str, fault: ProxyFault, site: Option<&str>, words: &str) -> Response {
    let about = site.map_or_else(String::new, |site| format!("{site}: "));
    Response::text(fault.status(), format!("relay {name}: {about}{words}"))
        .with("proxy-status", proxy_status::write(name, fault, site, words))
}

/// What an error on the way to the next server means to whoever asked.
pub(super) fn of(error: &LaneError) -> (ProxyFault, String) {
    let fault = match error {
        LaneError::Dns { .. } => ProxyFault::DnsError,
        LaneError::Connect { timed_out: true, .. } => ProxyFault::ConnectTimeout,
        LaneError::Connect { .. } => ProxyFault::Refused,
        LaneError::Tls { fault, .. } if fault.is_untrusted() || *fault == TlsFault::WantsOurs => {
            ProxyFault::Certificate
        }
        LaneError::Tls { .. } => ProxyFault::Tls,
        LaneError::RefusedAddress { .. } => {
            // Which address that is, is nobody's business outside.
            let words = "it leads to an address that is not public, and that is not listed here \
                         (--upstream CIDR lists it)";
            return (ProxyFault::IpProhibited, words.to_owned());
        }
        LaneError::Reset { .. } | LaneError::Truncated { .. } => ProxyFault::Terminated,
        LaneError::Timeout { .. } => ProxyFault::ReadTimeout,
        LaneError::Protocol { .. } | LaneError::NotHttp { .. } => ProxyFault::Protocol,
        _ => ProxyFault::Internal,
    };
    (fault, error.to_string())
}
