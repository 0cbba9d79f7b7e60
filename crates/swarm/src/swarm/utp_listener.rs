//! Lets peers in that connect to us by uTP.
//!
//! The address of a datagram proves nothing, so it is held against nobody that a handshake led nowhere,
//! and such handshakes take no room from those by TCP.

use std::net::SocketAddr;
use std::sync::Arc;

use swath_source::peer::{Utp, UtpAdmission};
use tokio::sync::Semaphore;

use super::event::SwarmEvent;
use super::listener::let_in;
use super::places::Places;
use super::shared::Shared;

/// A UDP port with peers that are making their handshake.
pub(super) struct UtpListener {
    utp: Utp,
    half_open: Places,
}

/// Opens the UDP port with the number of the TCP port, if it is free and no proxy forbids it.
pub(super) async fn bind(shared: &Arc<Shared>, address: SocketAddr) -> Option<UtpListener> {
    let half_open = Places::default();
    // The port outlives us for a moment, which must not keep our connections.
    let (counted, judging) = (half_open.clone(), Arc::downgrade(shared));
    let lets_in = move |ip| judging.upgrade().is_some_and(|shared| shared.lets_in(ip));
    let admits = move |ip| match lets_in(ip) && counted.has_room(ip, HALF_OPEN_EACH_MAX) {
        true => UtpAdmission::Yes,
        false => UtpAdmission::Ignored,
    };
    match shared.net.utp(address, admits).await {
        Ok(utp) => utp.map(|utp| UtpListener { utp, half_open }),
        Err(error) => {
            shared.tell(SwarmEvent::WithoutUtp { address, error: Arc::new(error) });
            None
        }
    }
}

/// Opens a UDP port only for connections to others: that with the number of the TCP port, if it is free. Peers
/// that try uTP there first are refused, so that they need not wait for an answer before they try TCP.
pub(super) async fn bind_refusing(shared: &Arc<Shared>, address: SocketAddr) -> Option<Utp> {
    let judging = Arc::downgrade(shared);
    let lets_in = move |ip| judging.upgrade().is_some_and(|shared| shared.lets_in(ip));
    let admits = move |ip| match lets_in(ip) {
        true => UtpAdmission::Refused,
        false => UtpAdmission::Ignored,
    };
    if let Ok(utp) = shared.net.utp(address, admits).await {
        return utp;
    }
    let any = SocketAddr::new(address.ip(), 0);
    shared.net.utp(any, |_| UtpAdmission::Ignored).await.ok().flatten()
}

impl UtpListener {
    /// Returns what makes connections to others.
    pub fn utp(&self) -> &Utp {
        &self.utp
    }

    /// Accepts connections until it is dropped.
    pub async fn listen(self, shared: Arc<Shared>) {
        let places = Arc::new(Semaphore::new(HALF_OPEN_MAX));
        // It is never closed.
        while let Ok(permit) = Arc::clone(&places).acquire_owned().await {
            let Ok((transport, address)) = self.utp.accept().await else { return };
            let Some(place) = self.half_open.take(address.ip(), HALF_OPEN_EACH_MAX) else {
                continue;
            };
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let _held = (place, permit);
                if let Err(error) = let_in(&shared, transport, address).await {
                    tracing::debug!(%address, %error, "a handshake by uTP led nowhere");
                }
            });
        }
    }
}

/// Connections that are making their handshake, in all: half of all that there can be. Who does not
/// even answer is gone after a second …
const HALF_OPEN_MAX: usize = 64;
/// … and of one address.
const HALF_OPEN_EACH_MAX: usize = 16;
