//! Ports for servers of tests and benchmarks that stand again at the same address later.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a port of the loopback interface that is free now, and that this process gives nobody else.
///
/// The system chooses ports for connections and for listeners at port 0 from a higher range (32,768 and
/// above on Linux), so that nothing takes the port by chance while its server restarts.
///
/// # Panics
///
/// If none of the ports is free.
pub fn free_port() -> u16 {
    // Processes that run side by side begin at different ports.
    let first = (std::process::id() as u16).wrapping_mul(PER_PROCESS) % COUNT;
    (0..COUNT)
        .map(|_| FIRST + (first + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT)
        .find(|&port| is_free(port))
        .expect("one of the ports is free")
}

fn is_free(port: u16) -> bool {
    let address = ("127.0.0.1", port);
    TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
}

static NEXT: AtomicU16 = AtomicU16::new(0);
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;
/// Ports that a process may take before it meets those of the next one.
const PER_PROCESS: u16 = 997;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_and_none_that_the_system_gives() {
        let mut ports: Vec<u16> = (0..500).map(|_| free_port()).collect();
        assert!(ports.iter().all(|port| (FIRST..FIRST + COUNT).contains(port)));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 500);
    }

    #[test]
    fn ports_in_use_are_passed_over() {
        let port = free_port();
        let _listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert!(!is_free(port));
    }
}
