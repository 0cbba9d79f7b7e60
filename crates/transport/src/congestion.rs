//! Congestion control: how fast a connection sends.
//!
//! The kernel chooses one for all connections, mostly CUBIC. That takes each lost packet for congestion
//! and gets back to its rate the more slowly the longer the route is: with a round trip of 100 ms, one
//! packet lost in ten thousand holds it at some 20 Mbit/s (RFC 9438). BBR measures rate and round trip instead. On
//! short routes CUBIC is as fast, and fairer to others.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};

use crate::kernel;

/// How congestion control is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// BBR on long routes where the kernel has it and lets us; otherwise the kernel's own choice.
    #[default]
    Auto,
    /// The kernel's own choice.
    Kernel,
    /// This one, as the kernel calls it: `cubic`.
    Named(String),
}

impl Congestion {
    /// Returns whether the kernel has the named one and allows this user to choose it.
    pub fn is_allowed(&self) -> bool {
        let Congestion::Named(name) = self else { return true };
        let sockets = [TcpSocket::new_v4(), TcpSocket::new_v6()];
        sockets.iter().flatten().any(|socket| kernel::set_congestion_control(socket, name))
    }

    /// Chooses for a new connection. What the kernel refuses changes nothing.
    pub fn choose(&self, tcp: &TcpStream) {
        let name = match self {
            Congestion::Auto if is_long(kernel::rtt(tcp)) => BBR,
            Congestion::Auto | Congestion::Kernel => return,
            Congestion::Named(name) => name,
        };
        kernel::set_congestion_control(tcp, name);
    }
}

/// Whether a route is long, by its round trip.
fn is_long(rtt: Option<Duration>) -> bool {
    rtt.is_some_and(|rtt| rtt >= LONG_RTT)
}

impl FromStr for Congestion {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Self, Infallible> {
        Ok(match name {
            "auto" => Congestion::Auto,
            "kernel" => Congestion::Kernel,
            name => Congestion::Named(name.to_owned()),
        })
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Congestion::Auto => "auto",
            Congestion::Kernel => "kernel",
            Congestion::Named(name) => name,
        })
    }
}

/// Routes are long from here on.
const LONG_RTT: Duration = Duration::from_millis(20);

const BBR: &str = "bbr";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_takes_what_it_has() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let own = kernel::congestion_control(&tcp).unwrap();
        for unchanged in ["auto", "kernel", "no-such-thing", "a-name-that-is-far-too-long"] {
            unchanged.parse::<Congestion>().unwrap().choose(&tcp);
            assert_eq!(kernel::congestion_control(&tcp).unwrap(), own, "{unchanged}");
        }
        let is_allowed = |name: &str| name.parse::<Congestion>().unwrap().is_allowed();
        assert!(is_allowed("auto") && is_allowed("reno") && !is_allowed("no-such-thing"));
        // Every kernel has it, and lets everybody use it.
        "reno".parse::<Congestion>().unwrap().choose(&tcp);
        assert_eq!(kernel::congestion_control(&tcp).unwrap(), "reno");
    }

    #[test]
    fn long_routes_are_told_from_short_ones() {
        let is_long = |ms| is_long(Some(Duration::from_millis(ms)));
        assert!(!is_long(1) && !is_long(19) && is_long(20) && is_long(300));
        assert!(!super::is_long(None));
    }
}
