//! The library's clients, made when first needed.
//!
//! One for what the user named, one for what the network named (its names are filtered as ours are), one
//! for each proxy, and one for each set of certificates that is for some servers alone.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::servers::OwnTls;
use super::{Net, Shared, tls};
use crate::error::LaneError;
use crate::http::head::{HEAD_LIMIT_BYTES, HEADER_LIMIT};
use crate::source::Trust;
use crate::target::Origin;

/// What a client is made for: all requests of one kind share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    /// Its names are filtered as those that the network has named.
    is_filtered: bool,
    proxy: Option<Url>,
    own: Option<OwnTls>,
}

/// There are no more than what the user has said of servers tells apart.
#[derive(Default)]
pub(super) struct Clients(Mutex<HashMap<Kind, reqwest::Client>>);

impl Net {
    /// Returns the client for requests to a host of this trust, perhaps through a proxy.
    pub(super) fn client(
        &self,
        origin: &Origin,
        trust: Trust,
    ) -> Result<reqwest::Client, LaneError> {
        let options = &self.shared.options;
        let own = self.own_tls(origin);
        // Whom the user has named is trusted, whoever names what is asked of it.
        let is_named = own.as_ref().is_some_and(|own| own.is_exact);
        let proxy = options.proxy(origin).cloned();
        let is_filtered = proxy.is_none() && !is_named && trust == Trust::Discovered;
        let kind = Kind { is_filtered, proxy, own };
        let mut clients = self.shared.clients.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&kind) {
            return Ok(client.clone());
        }
        let client = self.build(&kind).map_err(LaneError::protocol)?;
        clients.insert(kind, client.clone());
        Ok(client)
    }

    /// Returns whether the server at `url` chooses HTTP/2 when it may.
    pub(crate) async fn speaks_http2(&self, url: &url::Url, trust: Trust) -> bool {
        let Some(origin) = Origin::of(url) else { return false };
        let Ok(client) = self.client(&origin, trust) else { return false };
        let head = client
            .head(crate::shown::without_credentials(url))
            .timeout(self.timeout())
            .send()
            .await;
        head.is_ok_and(|response| response.version() == reqwest::Version::HTTP_2)
    }

    fn build(&self, kind: &Kind) -> Result<reqwest::Client, String> {
        let options = &self.shared.options;
        let config = tls::config(options, kind.own.as_ref());
        let mut config = config.map_err(|error| error.to_string())?;
        config.alpn_protocols.extend([b"h2".to_vec(), b"http/1.1".to_vec()]);
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(config)
            // Redirects are judged by us, one by one.
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .http1_max_headers(HEADER_LIMIT)
            .http2_max_header_list_size(HEAD_LIMIT_BYTES as u32)
            .connect_timeout(options.timeout.min(super::connect::CONNECT_WITHIN))
            .read_timeout(options.timeout)
            .no_proxy();
        if let Some(url) = &kind.proxy {
            let proxy = reqwest::Proxy::all(url.clone()).map_err(|error| error.to_string())?;
            builder = builder.proxy(proxy);
        } else {
            let trust = if kind.is_filtered { Trust::Discovered } else { Trust::Named };
            let net = Arc::downgrade(&self.shared);
            builder = builder.dns_resolver(Arc::new(Resolver { net, trust }));
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
            let net = Net { shared, headers: Arc::default(), from: None };
            let found = net.shared.names.resolve(name.as_str(), 0).await?;
            let host = Host::Domain(name.as_str().to_owned());
            let permitted = net.permitted(&host, found, None, trust)?;
            let addresses: Addrs =
                Box::new(permitted.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
