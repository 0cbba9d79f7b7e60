//! The library's clients, made when first needed.
//!
//! Three of them: for what the user named, for what the network named (its names are filtered as
//! ours are), and for what goes through a proxy. Relays that have a certificate which is trusted of
//! them alone have clients of their own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Host;

use super::{Net, NetOptions, Shared, tls};
use crate::error::LaneError;
use crate::source::Trust;
use crate::target::Origin;

#[derive(Default)]
pub(super) struct Clients {
    named: OnceLock<reqwest::Client>,
    discovered: OnceLock<reqwest::Client>,
    proxied: OnceLock<reqwest::Client>,
    /// Those of single relays, which may be proxied. There are no more than the user has named.
    pinned: Mutex<HashMap<(Origin, bool), reqwest::Client>>,
}

impl Net {
    /// The client for requests to a host of this trust, perhaps through the proxy.
    pub(super) fn client(
        &self,
        origin: &Origin,
        trust: Trust,
        proxied: bool,
    ) -> Result<reqwest::Client, LaneError> {
        let clients = &self.shared.clients;
        if let Some(options) = self.shared.options.pinned_to(origin) {
            let key = (origin.clone(), proxied);
            let mut pinned = clients.pinned.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(client) = pinned.get(&key) {
                return Ok(client.clone());
            }
            // A relay is named by the user, whoever names what is asked of it.
            let client = self.build(&options, Trust::Named, proxied);
            let client = client.map_err(LaneError::protocol)?;
            pinned.insert(key, client.clone());
            return Ok(client);
        }
        let slot = match (proxied, trust) {
            (true, _) => &clients.proxied,
            (false, Trust::Named | Trust::Listed) => &clients.named,
            (false, Trust::Discovered) => &clients.discovered,
        };
        if let Some(client) = slot.get() {
            return Ok(client.clone());
        }
        let client = self.build(&self.shared.options, trust, proxied);
        let client = client.map_err(LaneError::protocol)?;
        Ok(slot.get_or_init(|| client).clone())
    }

    /// Whether the server at `url` chooses HTTP/2 when it may.
    pub(crate) async fn speaks_http2(&self, url: &url::Url, trust: Trust) -> bool {
        let Some(origin) = Origin::of(url) else { return false };
        let proxied = self.shared.options.proxies.find(&origin).is_some();
        let Ok(client) = self.client(&origin, trust, proxied) else { return false };
        let head = client
            .head(crate::source::without_credentials(url))
            .timeout(self.timeout())
            .send()
            .await;
        head.is_ok_and(|response| response.version() == reqwest::Version::HTTP_2)
    }

    fn build(
        &self,
        options: &NetOptions,
        trust: Trust,
        proxied: bool,
    ) -> Result<reqwest::Client, String> {
        let mut config = tls::config(options).map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(config)
            // Redirects are judged by us, one by one.
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .connect_timeout(options.timeout.min(super::connect::CONNECT_WITHIN))
            .read_timeout(options.timeout)
            .no_proxy();
        if proxied {
            for (url, is_http) in options.proxies.all() {
                let proxy =
                    if is_http { reqwest::Proxy::http(url) } else { reqwest::Proxy::https(url) };
                builder = builder.proxy(proxy.map_err(|error| error.to_string())?);
            }
        } else {
            builder = builder
                .dns_resolver(Arc::new(Resolver { net: Arc::downgrade(&self.shared), trust }));
        }
        builder.build().map_err(|error| error.to_string())
    }
}

/// Our names and rules for the library. Weak, since the client lives in what it refers to.
struct Resolver {
    net: Weak<Shared>,
    trust: Trust,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (net, trust) = (self.net.upgrade(), self.trust);
        Box::pin(async move {
            let shared = net.ok_or("the network is gone")?;
            let net = Net { shared, headers: Arc::default() };
            let found = net.shared.names.resolve(name.as_str(), 0).await?;
            let host = Host::Domain(name.as_str().to_owned());
            let permitted = net.permitted(&host, found, None, trust)?;
            let addresses: Addrs =
                Box::new(permitted.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
