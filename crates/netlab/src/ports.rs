//! Ports for servers of tests and benchmarks that must be told a port, or that stand again at the same
//! one later. A server that binds port 0 and prints its address needs none.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

use tokio::net::TcpSocket;

/// Reserves a port of the loopback interface, for TCP and UDP, until this process ends.
///
/// A bound socket that never listens holds the port. A server that sets `SO_REUSEADDR`, as nearly all do,
/// can listen there, stop, and listen again. No other reservation, in this process or another one, gets
/// the port. Nor does the system give it to a connection or to port 0: it chooses those from a higher
/// range (32,768 and above on Linux). Until a server listens, connections are refused.
///
/// # Panics
///
/// If no port can be reserved.
pub fn reserve_port() -> u16 {
    // Processes that run side by side begin at different ports, to try fewer of them.
    let first = (std::process::id() as u16).wrapping_mul(PER_PROCESS) % COUNT;
    let (port, holder) = (0..COUNT)
        .map(|_| FIRST + (first + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT)
        .find_map(|port| Some((port, hold(port)?)))
        .expect("one of the ports can be reserved");
    held().insert(port, holder);
    port
}

/// Returns whether [`reserve_port`] gave out this port in this process.
pub fn is_reserved(port: u16) -> bool {
    held().contains_key(&port)
}

/// Binds a port that nothing else is bound to, in a way that lets servers in later.
fn hold(port: u16) -> Option<TcpSocket> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let holder = TcpSocket::new_v4().ok()?;
    // Without SO_REUSEADDR this fails if any socket is bound to the port. Linux looks at the option when
    // a later socket is bound, so setting it afterwards lets a server in.
    holder.bind(address).ok()?;
    holder.set_reuseaddr(true).ok()?;
    // Holding a UDP socket too would keep out servers that do not set the option.
    UdpSocket::bind(address).ok()?;
    Some(holder)
}

fn held() -> MutexGuard<'static, HashMap<u16, TcpSocket>> {
    static HELD: LazyLock<Mutex<HashMap<u16, TcpSocket>>> = LazyLock::new(Mutex::default);
    HELD.lock().expect("no holder panics")
}

static NEXT: AtomicU16 = AtomicU16::new(0);
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;
/// Ports that a process may take before it meets those of the next one.
const PER_PROCESS: u16 = 997;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn no_port_is_reserved_twice() {
        let mut ports: Vec<u16> = (0..200).map(|_| reserve_port()).collect();
        assert!(ports.iter().all(|port| (FIRST..FIRST + COUNT).contains(port)));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 200);
    }

    #[test]
    fn servers_come_and_go_at_a_reserved_port_and_nobody_else_reserves_it() {
        let port = reserve_port();
        assert!(is_reserved(port));
        let address = (Ipv4Addr::LOCALHOST, port);
        assert!(TcpStream::connect(address).is_err(), "nobody listens yet");
        for _ in 0..3 {
            // The standard library sets SO_REUSEADDR.
            let server = TcpListener::bind(address).unwrap();
            let _client = TcpStream::connect(address).unwrap();
            let _connection = server.accept().unwrap();
            assert!(hold(port).is_none());
        }
        assert!(hold(port).is_none());
    }

    #[test]
    fn ports_in_use_are_passed_over() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(hold(port).is_none());
        assert!(!is_reserved(port));
    }
}
