//! Who may use a relay.

use std::net::SocketAddr;
use std::time::SystemTime;

use swath_formats::Network;

use swath_serve::Access;
use swath_serve::http::Response;

/// Whoever comes from one of some networks, and whoever shows one of some tokens. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    networks: Vec<Network>,
    tokens: Option<Access>,
}

impl Clients {
    /// From these networks, and with these tokens.
    pub fn new(networks: Vec<Network>, tokens: Option<Access>) -> Clients {
        Clients { networks, tokens }
    }

    /// Whether nobody may.
    pub fn are_none(&self) -> bool {
        self.networks.is_empty() && self.tokens.is_none()
    }

    /// Whether everybody may: tokens of which there are none are shown by anybody.
    pub fn are_all(&self) -> bool {
        self.tokens.as_ref().is_some_and(Access::asks_for_nothing)
    }

    /// What opens it beside addresses.
    pub fn tokens(&self) -> Option<&Access> {
        self.tokens.as_ref()
    }

    /// Whether somebody may, who shows this in place of credentials.
    pub(super) fn check(
        &self,
        shown: Option<&str>,
        peer: SocketAddr,
        now: SystemTime,
    ) -> Result<(), Response> {
        let address = peer.ip().to_canonical();
        if self.networks.iter().any(|network| network.contains(address)) {
            return Ok(());
        }
        match &self.tokens {
            Some(tokens) => tokens.check_shown(shown, peer, now).map(drop),
            None => Err(Response::text(403, "this relay does not answer your address")),
        }
    }
}
