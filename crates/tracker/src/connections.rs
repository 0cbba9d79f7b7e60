//! Connection ids of the UDP protocol (BEP 15), without a table: an id is a keyed hash of the
//! client's address and the time. So a flood of requests from forged addresses costs no memory.

use std::net::IpAddr;

use swath_formats::tracker::udp::ConnectionId;
use swath_model::Time;

/// Issues connection ids and checks them.
#[derive(Debug)]
pub struct Connections {
    key: [u8; 32],
}

impl Connections {
    /// With this secret key.
    pub fn new(key: [u8; 32]) -> Connections {
        Connections { key }
    }

    /// Returns the id of a client at this time.
    pub fn issue(&self, client: IpAddr, now: Time) -> ConnectionId {
        self.of(client, window(now))
    }

    /// Whether the client got this id in the present or the previous window.
    pub fn is_valid(&self, id: ConnectionId, client: IpAddr, now: Time) -> bool {
        let window = window(now);
        id == self.of(client, window) || id == self.of(client, window.wrapping_sub(1))
    }

    fn of(&self, client: IpAddr, window: u64) -> ConnectionId {
        let mut input = [0; 24];
        match client.to_canonical() {
            IpAddr::V4(ip) => input[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => input[..16].copy_from_slice(&ip.octets()),
        }
        input[16..].copy_from_slice(&window.to_le_bytes());
        let hash = blake3::keyed_hash(&self.key, &input);
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        ConnectionId(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }
}

fn window(now: Time) -> u64 {
    now.as_nanos() / WINDOW_NS
}

/// An id is valid for one to two windows: BEP 15 asks for two minutes.
const WINDOW_NS: u64 = 120_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_good_for_its_client_and_two_minutes() {
        let connections = Connections::new([7; 32]);
        let client: IpAddr = "192.0.2.1".parse().unwrap();
        let at = |s: u64| Time::from_millis(s * 1000);
        for issued_s in [0, 60, 119, 120, 1000] {
            let id = connections.issue(client, at(issued_s));
            assert!(connections.is_valid(id, client, at(issued_s + 120)), "{issued_s}");
            assert!(connections.is_valid(id, "::ffff:192.0.2.1".parse().unwrap(), at(issued_s)));
            assert!(!connections.is_valid(id, client, at(issued_s + 240)), "{issued_s}");
            assert!(!connections.is_valid(id, "192.0.2.2".parse().unwrap(), at(issued_s)));
            assert!(!Connections::new([8; 32]).is_valid(id, client, at(issued_s)));
            assert!(!connections.is_valid(ConnectionId(id.0 ^ 1), client, at(issued_s)));
        }
    }
}
