//! Lets peers in that connect to us, by TCP.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use swath_source::peer::{PeerError, Transport, accept};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::addresses::canonical;
use super::running::Order;
use super::shared::{Arrived, Lookup, Shared};

/// Binds an address. Where there is no IPv6, all addresses are those of IPv4.
pub(super) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error)
            if address.ip().is_unspecified()
                && address.is_ipv6()
                && error.kind() != io::ErrorKind::AddrInUse =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await.map_err(|_| error)
        }
        bound => bound,
    }
}

/// Accepts connections until it is dropped.
pub(super) async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let half_open = Arc::new(Semaphore::new(HALF_OPEN_MAX));
    loop {
        let Ok((tcp, address)) = listener.accept().await else {
            // There are no descriptors left, for instance.
            tokio::time::sleep(AFTER_FAILURE).await;
            continue;
        };
        let address = canonical(address);
        // Whoever is not let in is closed without a word.
        if !shared.lets_in(address.ip()) {
            continue;
        }
        let Some(place) = shared.half_open.take(address.ip(), HALF_OPEN_EACH_MAX) else { continue };
        let Ok(permit) = Arc::clone(&half_open).try_acquire_owned() else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _held = (place, permit);
            if let Err(error) = let_in(&shared, Box::new(tcp), address).await {
                let why = format!("many handshakes led nowhere, the last one so: {error}");
                shared.strike(address.ip(), 1, why);
            }
        });
    }
}

/// Lets a peer in, if there is room.
///
/// # Errors
/// [`PeerError`] if its handshake leads nowhere as it would not with an honest peer.
pub(super) async fn let_in(
    shared: &Shared,
    transport: Box<dyn Transport>,
    address: SocketAddr,
) -> Result<(), PeerError> {
    let Some(place) = shared.established.take(address.ip(), ESTABLISHED_EACH_MAX) else {
        return Ok(());
    };
    let lookup = Lookup { shared, found: Mutex::default() };
    match accept(&lookup, transport, address, shared.encryption).await {
        Ok(peer) => {
            let found = lookup.found.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some((orders, shown)) = found else {
                peer.close();
                return Ok(());
            };
            let arrived = Arrived { peer, shown, place: Some(place) };
            if let Err(unsent) = orders.send(Order::Arrived(Box::new(arrived)))
                && let Order::Arrived(arrived) = unsent.0
            {
                arrived.peer.close();
            }
        }
        // These happen to honest peers, even often.
        Err(PeerError::Duplicate | PeerError::Closed | PeerError::Broken(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Connections that are making their handshake, in all …
const HALF_OPEN_MAX: usize = 256;
/// … and of one address: a flood from there leaves room for others.
const HALF_OPEN_EACH_MAX: usize = 32;
/// Several peers of an institute may share an address, each with several connections.
const ESTABLISHED_EACH_MAX: usize = 128;
/// Descriptors come free when connections end.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
