//! Telling peers of each other (BEP 11).

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;

use swath_formats::peer::{EXCHANGED_PEERS_MAX, ExchangedPeer, PeerExchange, PeerFlags};

use super::connected::Connected;
use crate::slots::PeerKey;

/// Tells each peer which others have come and gone since it was last told.
pub(super) fn exchange(peers: &mut BTreeMap<PeerKey, Connected>) {
    let reachable: Vec<ExchangedPeer> = peers
        .values()
        .filter_map(|connected| {
            let mut flags = PeerFlags::default();
            if connected.seen.is_full() {
                flags = flags.with(PeerFlags::SEED);
            }
            if !connected.peer.is_incoming() {
                flags = flags.with(PeerFlags::REACHABLE);
            }
            Some(ExchangedPeer { address: connected.listens_at?, flags })
        })
        .collect();
    for connected in peers.values_mut() {
        let told = tell(&reachable, connected.listens_at, &mut connected.told);
        if !told.added.is_empty() || !told.dropped.is_empty() {
            connected.peer.tell_peers(told);
        }
    }
}

/// Returns what a peer with this address of its own has not been told.
fn tell(
    reachable: &[ExchangedPeer],
    own: Option<SocketAddr>,
    told: &mut HashSet<SocketAddr>,
) -> PeerExchange {
    let others = reachable.iter().filter(|peer| Some(peer.address) != own);
    let added = others.filter(|peer| !told.contains(&peer.address)).take(EXCHANGED_PEERS_MAX);
    let added: Vec<ExchangedPeer> = added.copied().collect();
    let is_gone = |address: &&SocketAddr| !reachable.iter().any(|peer| peer.address == **address);
    let dropped = told.iter().filter(is_gone).take(EXCHANGED_PEERS_MAX);
    let dropped: Vec<SocketAddr> = dropped.copied().collect();
    dropped.iter().for_each(|address| _ = told.remove(address));
    told.extend(added.iter().map(|peer| peer.address));
    PeerExchange { added, dropped }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> ExchangedPeer {
        let address = SocketAddr::from(([192, 0, 2, 1], port));
        ExchangedPeer { address, flags: PeerFlags::default() }
    }

    #[test]
    fn changes_are_told_once() {
        let mut told = HashSet::new();
        let own = Some(peer(1).address);
        let ports = |it: PeerExchange| {
            let added: Vec<u16> = it.added.iter().map(|peer| peer.address.port()).collect();
            (added, it.dropped.iter().map(SocketAddr::port).collect::<Vec<_>>())
        };
        assert_eq!(ports(tell(&[peer(1), peer(2)], own, &mut told)), (vec![2], vec![]));
        assert_eq!(ports(tell(&[peer(2), peer(3)], own, &mut told)), (vec![3], vec![]));
        assert_eq!(ports(tell(&[peer(3)], own, &mut told)), (vec![], vec![2]));
        assert_eq!(ports(tell(&[peer(3)], own, &mut told)), (vec![], vec![]));
        let many: Vec<_> = (10..500).map(peer).collect();
        assert_eq!(tell(&many, own, &mut told).added.len(), EXCHANGED_PEERS_MAX);
    }
}
