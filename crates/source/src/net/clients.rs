//! The library's clients, made when first needed.
//!
//! Three of them: for what the user named, for what the network named (its names are filtered as
//! ours are), and for what goes through a proxy.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::{Net, Shared, tls};
use crate::error::LaneError;
use crate::source::Trust;

#[derive(Default)]
pub(super) struct Clients {
    named: OnceLock<reqwest::Client>,
    discovered: OnceLock<reqwest::Client>,
    proxied: OnceLock<reqwest::Client>,
}

impl Net {
    /// The client for requests to hosts of this trust, perhaps through the proxy.
    pub(super) fn client(&self, trust: Trust, proxied: bool) -> Result<reqwest::Client, LaneError> {
        let clients = &self.shared.clients;
        let slot = match (proxied, trust) {
            (true, _) => &clients.proxied,
            (false, Trust::Named | Trust::Listed) => &clients.named,
            (false, Trust::Discovered) => &clients.discovered,
        };
        if let Some(client) = slot.get() {
            return Ok(client.clone());
        }
        let client = self.build(trust, proxied).map_err(LaneError::protocol)?;
        Ok(slot.get_or_init(|| client).clone())
    }

    /// Whether the server at `url` chooses HTTP/2 when it may.
    pub(crate) async fn speaks_http2(&self, url: &url::Url, trust: Trust) -> bool {
        let proxied = crate::target::Origin::of(url)
            .is_some_and(|origin| self.shared.options.proxies.find(&origin).is_some());
        let Ok(client) = self.client(trust, proxied) else { return false };
        let head = client
            .head(crate::source::without_credentials(url))
            .timeout(self.timeout())
            .send()
            .await;
        head.is_ok_and(|response| response.version() == reqwest::Version::HTTP_2)
    }

    fn build(&self, trust: Trust, proxied: bool) -> Result<reqwest::Client, String> {
        let options = &self.shared.options;
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
            let permitted = net.permitted(found, None, trust)?;
            let addresses: Addrs =
                Box::new(permitted.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
