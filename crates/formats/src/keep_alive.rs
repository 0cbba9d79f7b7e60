//! The `Keep-Alive` header: how long, and for how many requests, a server keeps a connection.

use crate::text::trim_blanks;

/// A server's limits for an idle connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// It closes after this many seconds of silence.
    pub timeout_s: Option<u64>,
    /// It answers this many more requests.
    pub max_requests: Option<u64>,
}

/// Parses `timeout=5, max=99`; skips what it cannot parse.
pub fn parse(value: &str) -> KeepAlive {
    let mut keep_alive = KeepAlive::default();
    for parameter in value.split([',', ';']).take(PARAMETERS_MAX) {
        let Some((name, number)) = parameter.split_once('=') else { continue };
        let number = trim_blanks(number).trim_matches('"').parse().ok();
        match trim_blanks(name) {
            name if name.eq_ignore_ascii_case("timeout") => keep_alive.timeout_s = number,
            name if name.eq_ignore_ascii_case("max") => keep_alive.max_requests = number,
            _ => {}
        }
    }
    keep_alive
}

const PARAMETERS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read() {
        for (value, timeout_s, max_requests) in [
            ("timeout=5, max=99", Some(5), Some(99)),
            ("Timeout = 60", Some(60), None),
            ("max=\"3\",timeout=x", None, Some(3)),
            ("", None, None),
            ("300", None, None),
        ] {
            assert_eq!(parse(value), KeepAlive { timeout_s, max_requests }, "{value}");
        }
    }
}
