//! Opening connections: names, address families side by side (RFC 8305), proxies, TLS.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use swath_transport::{Congestion, encrypted, kernel};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use super::conn::{Conn, Via};
use super::credentials::from_url;
use super::happy::first_to_answer;
use super::library::Library;
use super::options::NetError;
use super::permitted::Permitted;
use super::{Net, tls, tunnel};
use crate::error::{LaneError, TlsFault};
use crate::source::Trust;
use crate::target::{Origin, Target};

/// An open TCP connection: the stream, its other end, its round-trip time.
type Connected = (TcpStream, SocketAddr, Duration);

impl Net {
    /// A connection to `target` within the time-out: an idle one if `reuse` and there is one, else
    /// a new one; by way of the library if `fallback`, or if nothing else will do.
    pub(crate) async fn connect(
        &self,
        target: &Target,
        reuse: bool,
        fallback: bool,
    ) -> Result<Conn, LaneError> {
        let Some(origin) = &target.origin else {
            return Err(LaneError::Scheme { scheme: target.url.scheme().to_owned() });
        };
        if target.via.is_empty() {
            // Whoever waits for it does not have to hold all of it.
            return Box::pin(self.connect_to(origin, target.trust, reuse, fallback)).await;
        }
        if reuse && let Some(conn) = self.take_idle(origin, &target.via) {
            return Ok(conn);
        }
        Box::pin(self.connect_carried(origin, &target.via)).await
    }

    /// As [`Net::connect`], to an origin.
    pub(crate) async fn connect_to(
        &self,
        origin: &Origin,
        trust: Trust,
        reuse: bool,
        fallback: bool,
    ) -> Result<Conn, LaneError> {
        if reuse {
            loop {
                if let Some(conn) = self.take_idle(origin, &Via::from([])) {
                    return Ok(conn);
                }
                // One may be on its way.
                if !self.shared.ahead.wait(origin).await {
                    break;
                }
            }
        }
        let dialled = self.shared.dialling.find(&origin.host);
        let fallback = fallback || self.shared.options.fallback_only;
        let limit = self.timeout().min(CONNECT_WITHIN);
        let connected = async {
            match dialled {
                Some(waiting) => waiting.connect(origin).await,
                None => self.connect_new(origin, trust, fallback, None).await,
            }
        };
        match self.awake().within(limit, connected).await {
            Some(result) => result,
            None => Err(LaneError::Connect {
                host: origin.to_string(),
                timed_out: true,
                reason: format!("no answer within {} s", limit.as_secs_f64()),
            }),
        }
    }

    /// Returns a new connection. Its round-trip time is `told` as soon as it is known, which is before
    /// encryption is agreed upon.
    pub(super) async fn connect_new(
        &self,
        origin: &Origin,
        trust: Trust,
        fallback: bool,
        told: Option<oneshot::Sender<Duration>>,
    ) -> Result<Conn, LaneError> {
        let proxy = self.shared.options.proxy(origin);
        if proxy.is_some() {
            self.permitted_by_name(origin, trust)?;
        }
        let (tcp, peer, rtt) = match proxy {
            Some(proxy) => self.connect_proxy(proxy).await?,
            None => self.connect_tcp(origin, trust).await?,
        };
        self.shared.options.remotes.add(peer);
        if let Some(told) = told {
            let _ = told.send(rtt);
        }
        // Under a limit of ours a window is what may come in one burst.
        if !self.shared.limiter.is_on() {
            kernel::open_wide(&tcp);
        }
        // This connection has shown the round-trip time; the library makes its own.
        let by_library = || {
            let library = Library::new(self.client(origin, trust)?, origin);
            Ok(Conn::by_library(library, origin.clone(), peer, rtt))
        };
        if fallback || proxy.is_some_and(|proxy| proxy.scheme() != "http") {
            return by_library();
        }
        // Requests are small and must not wait for acknowledgements.
        let _ = tcp.set_nodelay(true);
        // For what is uploaded.
        Congestion::Auto.choose(&tcp);
        if !origin.tls {
            return Ok(Conn::new(Box::new(tcp), origin.clone(), peer, rtt));
        }
        let (connector, name) = (self.tls(origin)?, named_in_tls(origin)?);
        let connected = match proxy {
            Some(proxy) => {
                let conn = Conn::new(Box::new(tcp), origin.clone(), peer, rtt);
                let tunnel = tunnel::open(conn, proxy, origin).await?;
                encrypted(tunnel, &connector, name).await
            }
            None => encrypted(tcp, &connector, name).await,
        };
        match connected {
            Ok(tls) => Ok(Conn::new(tls, origin.clone(), peer, rtt)),
            Err(error) if speaks_other_http(&error) => by_library(),
            Err(error) => Err(handshake_failed(origin, &error)),
        }
    }

    /// Returns what judges the certificate of `origin`.
    pub(super) fn tls(&self, origin: &Origin) -> Result<TlsConnector, LaneError> {
        let failed = |error: NetError| LaneError::Tls {
            host: origin.to_string(),
            fault: TlsFault::Handshake,
            reason: error.to_string(),
        };
        self.shared.tls.of(&self.shared.options, self.own_tls(origin)).map_err(failed)
    }

    async fn connect_tcp(&self, origin: &Origin, trust: Trust) -> Result<Connected, LaneError> {
        let addresses = self.addresses(origin, trust).await?;
        let name = origin.host.to_string();
        match first_to_answer(&addresses, self.from).await {
            Ok(connected) => {
                if addresses.len() > 1 {
                    self.shared.names.prefer(&name, connected.1.ip());
                }
                Ok(connected)
            }
            Err(error) => {
                self.shared.names.forget(&name);
                let timed_out = error.kind() == std::io::ErrorKind::TimedOut;
                let (host, reason) = (origin.to_string(), error.to_string());
                Err(LaneError::Connect { host, timed_out, reason })
            }
        }
    }

    /// Returns a new connection to a peer of a swarm, without a proxy, and its round trip.
    pub(crate) async fn connect_peer(
        &self,
        peer: Permitted,
    ) -> Result<(TcpStream, Duration), LaneError> {
        let address = peer.address();
        let limit = self.timeout().min(PEER_CONNECT_WITHIN);
        let failed =
            |timed_out, reason| LaneError::Connect { host: address.to_string(), timed_out, reason };
        match self.awake().within(limit, first_to_answer(&[peer], self.from)).await {
            Some(Ok((tcp, _, rtt))) => {
                if !self.shared.limiter.is_on() {
                    kernel::open_wide(&tcp);
                }
                Ok((tcp, rtt))
            }
            Some(Err(error)) => {
                Err(failed(error.kind() == std::io::ErrorKind::TimedOut, error.to_string()))
            }
            None => Err(failed(true, format!("no answer within {} s", limit.as_secs_f64()))),
        }
    }

    async fn connect_proxy(&self, proxy: &Url) -> Result<Connected, LaneError> {
        let name = proxy.host_str().unwrap_or("");
        let port = proxy.port_or_known_default().unwrap_or(DEFAULT_PROXY_PORT);
        let refused = |reason: String| LaneError::Proxy {
            proxy: format!("{name}:{port}"),
            reason,
            code: None,
        };
        let addresses = match proxy.host() {
            Some(Host::Ipv4(address)) => vec![IpAddr::V4(address)],
            Some(Host::Ipv6(address)) => vec![IpAddr::V6(address)],
            _ => self
                .shared
                .names
                .resolve(name, port)
                .await
                .map_err(|error| refused(plain_words(&error)))?,
        };
        let addresses: Vec<Permitted> =
            addresses.into_iter().map(|ip| Permitted::of_user(SocketAddr::new(ip, port))).collect();
        let connected = first_to_answer(&addresses, self.from).await;
        connected.map_err(|error| refused(error.to_string()))
    }

    /// Returns what every request to a proxy for plain `origin` says besides.
    pub(crate) fn proxy_authorization(&self, origin: &Origin) -> Option<super::Secret> {
        self.shared.options.proxy(origin).and_then(from_url)
    }

    /// `error` as that of the proxy that said it, where requests to `origin` are sent to one.
    pub(crate) fn blame_proxy(&self, origin: Option<&Origin>, error: LaneError) -> LaneError {
        let Some(refusal) = error.refusal().filter(|refusal| refusal.code == 407) else {
            return error;
        };
        let proxy = origin.and_then(|origin| self.shared.options.proxy(origin));
        let Some(proxy) = proxy.and_then(|proxy| {
            Some(format!("{}:{}", proxy.host_str()?, proxy.port_or_known_default()?))
        }) else {
            return error;
        };
        LaneError::Proxy {
            proxy,
            reason: format!("it answered 407 {}", refusal.said),
            code: Some(407),
        }
    }

    /// Returns whether requests to `origin` are sent to a proxy rather than through one.
    pub(crate) fn asks_proxy(&self, origin: &Origin) -> bool {
        let proxy = self.shared.options.proxy(origin);
        !origin.tls
            && !self.shared.options.fallback_only
            && proxy.is_some_and(|proxy| proxy.scheme() == "http")
    }
}

/// Whoever has not taken a connection after this long does not want it.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(30);

/// Many addresses of peers are those of machines that have left, and there are others to try.
const PEER_CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// As curl has it.
const DEFAULT_PROXY_PORT: u16 = 1080;

/// Returns the name that the certificate of `origin` is to be for.
pub(super) fn named_in_tls(origin: &Origin) -> Result<ServerName<'static>, LaneError> {
    Ok(match &origin.host {
        Host::Domain(name) => {
            ServerName::try_from(name.trim_end_matches('.').to_owned()).map_err(|_| {
                LaneError::Tls {
                    host: origin.to_string(),
                    fault: TlsFault::Handshake,
                    reason: "not a proper host name".to_owned(),
                }
            })?
        }
        Host::Ipv4(address) => ServerName::from(IpAddr::V4(*address)),
        Host::Ipv6(address) => ServerName::from(IpAddr::V6(*address)),
    })
}

/// Returns why no encryption was agreed upon with `origin`. That the connection broke or was closed meanwhile,
/// as it is where either side was asleep or ended, says nothing of how it would go the next time.
pub(super) fn handshake_failed(origin: &Origin, error: &std::io::Error) -> LaneError {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut};
    let reason = match error.kind() {
        _ if tls::is_behind(error) => return tls_failed(origin, error),
        std::io::ErrorKind::UnexpectedEof => {
            "it closed the connection before encryption was agreed upon".to_owned()
        }
        BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut => plain_words(error),
        _ => return tls_failed(origin, error),
    };
    LaneError::Connect { host: origin.to_string(), timed_out: false, reason }
}

/// Returns why an open connection with `origin` broke.
pub(crate) fn broke(origin: &Origin, error: &std::io::Error) -> LaneError {
    match tls::wants_ours(error) {
        true => tls_failed(origin, error),
        false => LaneError::reset(error),
    }
}

/// No encryption with `origin`, as rustls said in `error` or somewhere within.
pub(super) fn tls_failed(origin: &Origin, error: &(dyn std::error::Error + 'static)) -> LaneError {
    let (host, fault, reason) = (origin.to_string(), tls::fault(error), tls::words(error));
    LaneError::Tls { host, fault, reason }
}

/// Returns whether the server refused because it speaks no HTTP/1.1.
fn speaks_other_http(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)))
}

/// Returns the resolver's error without its technical prefix.
pub(super) fn plain_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.rsplit(": ").next().unwrap_or(&text).to_owned()
}
