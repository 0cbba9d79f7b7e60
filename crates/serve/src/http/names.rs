//! Protects a server on this machine from DNS rebinding.
//!
//! A page of any site may let its own name resolve to 127.0.0.1 and then read what is open to
//! everybody on this machine. A browser sends that name in `Host`. Addresses, names of one part
//! such as `localhost`, and the server's own names cannot belong to such a page.

use std::net::SocketAddr;

use url::Host;

use super::Head;

/// Names that a server goes by, beside addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<String>);

impl Names {
    /// These names; case does not count.
    pub fn new(names: Vec<String>) -> Names {
        Names(names)
    }

    /// Whether somebody on this machine asks by a name that is not the server's.
    pub fn are_strange(&self, head: &Head, peer: SocketAddr) -> bool {
        if !peer.ip().to_canonical().is_loopback() {
            return false;
        }
        let host = head.field("host").unwrap_or_default();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let Ok(Host::Domain(name)) = Host::parse(name) else { return false };
        let name = name.trim_end_matches('.');
        // Nobody else can have a name of one part lead anywhere.
        let is_local = !name.contains('.') || name.ends_with(".localhost");
        !is_local && !self.0.iter().any(|own| own.trim_end_matches('.').eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_lead_their_names_here_are_seen_through() {
        let names = Names::new(vec!["Own.example".to_owned()]);
        let is_strange = |host: &str, peer: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let head = Head::parse(text.as_bytes()).unwrap().unwrap().0;
            names.are_strange(&head, format!("{peer}:9").parse().unwrap())
        };
        for own in [
            "localhost:8470",
            "LOCALHOST",
            "x.localhost",
            "127.0.0.1:8470",
            "[::1]:8470",
            "[::1]",
            "own.example",
            "store:8470",
            "OWN.example.:80",
        ] {
            assert!(!is_strange(own, "127.0.0.1"), "{own}");
        }
        for page in
            ["evil.example", "evil.example:8470", "own.example.evil", "127.0.0.1.evil.example"]
        {
            assert!(is_strange(page, "127.0.0.1") && is_strange(page, "[::1]"), "{page}");
            assert!(is_strange(page, "[::ffff:127.0.0.1]"), "{page}");
            assert!(!is_strange(page, "192.0.2.1"), "others come by whatever name leads here");
        }
    }
}
