//! A running relay: admits clients, judges requests, and answers those for the relay itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use swath_formats::{ProxyFault, proxy_status, relay as address};
use swath_model::Limiter;
use swath_serve::http::{
    Answer, Body, Content, Head, Make, Method, Names, Next, Response, Slot, Stream, now_s, serve,
};
use swath_serve::{Later, Life, Log, LogLine, PlainHttp, Service, Traffic};
use swath_source::{HpkeError, HpkeKey, Net, NetError, NetOptions, Opened, Pass};
use tokio::sync::watch;
use url::Url;

use crate::allow::Allowed;
use crate::cached::{self, Cached};
use crate::clients::Clients;
use crate::forward::{self, ClientState};
use crate::headers::{self, Form};
use crate::metrics::Metrics;
use crate::{RelayError, RelayOptions, about, depot, faults, pipe, tunnel};

/// A relay that stands.
pub(crate) struct Relay {
    pub(crate) name: String,
    pub(crate) hosts: Option<Names>,
    /// How others know it in `Via`: nobody else is called so.
    pub(crate) pseudonym: String,
    pub(crate) allowed: Allowed,
    pub(crate) clients: Clients,
    pub(crate) net: Net,
    pub(crate) send_limit: Option<Arc<Limiter>>,
    pub(crate) timeout: Duration,
    pub(crate) cached: Option<Cached>,
    pub(crate) pipes: pipe::Pipes,
    pub(crate) distances: about::Distances,
    pub(crate) metrics: Metrics,
    pub(crate) log: Option<Box<dyn Log>>,
    pub(crate) life: watch::Receiver<Life>,
    /// Stands for what was never asked.
    pub(crate) nowhere: Url,
    /// Opens what is meant for this relay alone.
    pub(crate) key: HpkeKey,
    pub(crate) door: Option<Arc<depot::DepotService>>,
}

impl Relay {
    pub fn open(
        options: RelayOptions,
        log: Option<Box<dyn Log>>,
        life: watch::Receiver<Life>,
    ) -> Result<Relay, RelayError> {
        if options.upstreams.is_empty() {
            return Err(RelayError::NoUpstreams);
        }
        if options.clients.are_none() || options.clients.are_all() {
            return Err(RelayError::NoClients);
        }
        let allowed = Allowed::new(options.upstreams);
        let reach = Some(allowed.reach());
        let net = Net::new(NetOptions { reach, metalinks: false, ..options.net })?;
        let mut random = [0; 8];
        swath_serve::random(&mut random);
        let nowhere = Url::parse("http://nowhere.invalid/")
            .map_err(|error| NetError::Tls(error.to_string()))?;
        let door = options.depot.map(|depot| depot::DepotService::open(depot, life.clone()));
        Ok(Relay {
            name: options.name,
            hosts: options.hosts.map(Names::new),
            pseudonym: format!("{PSEUDONYM}{:016x}", u64::from_le_bytes(random)),
            allowed,
            clients: options.clients,
            net,
            send_limit: options.send_limit,
            timeout: options.timeout,
            cached: options.cache.as_ref().map(Cached::open).transpose()?,
            pipes: pipe::Pipes::default(),
            distances: about::Distances::default(),
            metrics: Metrics::default(),
            log,
            life,
            nowhere,
            key: HpkeKey::new()?,
            door,
        })
    }

    /// How many bytes the cache can keep, where its disk has less than it was told to keep.
    pub fn narrowed_cache_bytes(&self) -> Option<u64> {
        self.cached.as_ref()?.narrowed()
    }

    pub(crate) fn is_ending(&self) -> bool {
        *self.life.borrow() != Life::Open
    }

    /// Whether a request is to be passed on, or to be refused in place of that.
    pub(crate) fn is_passage(&self, head: &Head) -> bool {
        form(head).is_some()
    }

    /// What is to be asked for on behalf of a request.
    pub(crate) fn judge(&self, head: &Head, peer: SocketAddr) -> Result<(Url, Form), Response> {
        let form = form(head).unwrap_or(Form::Path);
        self.admit(head, peer, form)?;
        let denied = |text: &str| Err(self.refusal(ProxyFault::Denied, None, text));
        if head.body != Body::None {
            return denied("requests with a body are not forwarded");
        }
        if !headers::is_passed(&head.method) {
            let text = format!("{} is not forwarded (GET and HEAD are)", head.method.as_str());
            let refusal = self.refusal(ProxyFault::Denied, None, &text);
            return Err(Response { status: 405, ..refusal }.with("allow", "GET, HEAD"));
        }
        let url = match form {
            Form::Path => address::upstream(&head.raw_target),
            Form::Proxy => {
                let target = format!("{}{}", address::PREFIX, head.raw_target);
                address::upstream(&target)
            }
        };
        let url = match url {
            Some(Ok(url)) => url,
            Some(Err(error)) => {
                let refusal = self.refusal(ProxyFault::Denied, None, &error.to_string());
                return Err(Response { status: 400, ..refusal });
            }
            None => return denied("the address behind /relay/ is missing"),
        };
        self.judge_way(head, &url)?;
        Ok((url, form))
    }

    /// Header lines for the origin of `url`, as they were sealed for this relay. Where that is a depot,
    /// they begin with what is sealed for the depot's relay; what is for this one goes no further.
    pub(crate) fn unsealed(
        &self,
        head: &Head,
        url: &Url,
    ) -> Result<Vec<(String, String)>, Response> {
        if address::relays(url) > 0 {
            return Ok(Vec::new());
        }
        let mut lines = Vec::new();
        if swath_formats::depot::is_path(url.path()) {
            let passes = head.fields(headers::PASSES).take(address::RELAYS_MAX);
            let others = passes.filter(|sealed| self.open_pass(head, sealed).is_err());
            lines.extend(others.map(|sealed| (headers::PASSES.to_owned(), sealed.to_owned())));
        }
        let Some(sealed) = head.field(headers::SEALED) else { return Ok(lines) };
        let site = address::site(url).unwrap_or_default();
        let refused = |fault, text: &str| self.refusal(fault, Some(&site), text);
        let now_s = now_s();
        let opened = self.key.open(sealed, url.as_str(), Some(now_s));
        let opened = opened.and_then(|it| self.key.spend(&it, now_s).map(|()| it));
        let text = opened.map_err(|error| refused(fault_of(error), &error.to_string()))?.text;
        let none = "what was sealed for this relay are no header lines";
        lines.extend(headers::lines(&text).ok_or_else(|| refused(ProxyFault::Denied, none))?);
        Ok(lines)
    }

    /// Whether `url` may be asked on behalf of a request that came by way of others.
    pub(crate) fn judge_way(&self, head: &Head, url: &Url) -> Result<(), Response> {
        let site = address::site(url).unwrap_or_default();
        if !self.allowed.names(url) {
            let text = "it is not among those that this relay asks (--upstream)";
            return Err(self.refusal(ProxyFault::NotListed, Some(&site), text));
        }
        let passed = || head.fields("via").flat_map(|value| value.split(','));
        if passed().any(|one| one.trim().ends_with(self.pseudonym.as_str())) {
            let text = "the route is a loop";
            return Err(self.refusal(ProxyFault::Loop, Some(&site), text));
        }
        let relays = passed().filter(|one| one.contains(PSEUDONYM)).count() + 1;
        if relays + address::relays(url) > address::RELAYS_MAX {
            let text = format!("the route has more than {} relays", address::RELAYS_MAX);
            return Err(self.refusal(ProxyFault::Loop, Some(&site), &text));
        }
        Ok(())
    }

    /// What was sealed for this relay and for just this request.
    pub(crate) fn open_pass(&self, head: &Head, sealed: &str) -> Result<Opened, HpkeError> {
        let target = head.raw_target.as_str();
        let upstream = match form(head) {
            None => None,
            Some(Form::Path) => address::upstream(target),
            Some(Form::Proxy) => address::upstream(&format!("{}{target}", address::PREFIX)),
        };
        let purpose = match (head.method.as_str(), upstream) {
            ("CONNECT", _) => Pass::Tunnel(target).purpose(),
            ("GET" | "HEAD", Some(Ok(url))) => Pass::Read(url.as_str()).purpose(),
            ("GET" | "HEAD", None) => Pass::Read(target).purpose(),
            _ => return Err(HpkeError::Closed),
        };
        // A depot shows what opens another one for as long as it fetches from there: that is for one
        // allocation, whose address nobody can guess.
        let now_s = (!depot::is_for_depot(head)).then(now_s);
        self.key.open(sealed, &purpose, now_s)
    }

    /// Whether somebody may use this relay.
    pub(crate) fn admit(&self, head: &Head, peer: SocketAddr, form: Form) -> Result<(), Response> {
        let field = if form == Form::Path { "authorization" } else { "proxy-authorization" };
        let now = SystemTime::now();
        let refusal = match self.clients.check(head.field(field), peer, now) {
            // A page of another site can show no token, and asks for nothing but addresses within ours.
            Ok(()) if form == Form::Path && head.field(field).is_none() => {
                let strange = self.hosts.as_ref().filter(|it| it.are_strange(head, peer));
                return match strange {
                    None => Ok(()),
                    Some(_) => Err(self.refusal(ProxyFault::Denied, None, STRANGE)),
                };
            }
            Ok(()) => return Ok(()),
            Err(refusal) => refusal,
        };
        // Who comes by way of other relays shows it to this one alone.
        let mut is_shown = head.field(field).is_some();
        let mut is_closed = false;
        let mut spent = None;
        for sealed in head.fields(headers::PASSES).take(address::RELAYS_MAX) {
            let opened = match self.open_pass(head, sealed) {
                Ok(opened) => opened,
                Err(error) => {
                    is_closed |= error == HpkeError::Closed;
                    spent = spent.or(Some(error).filter(|it| *it == HpkeError::TooOld));
                    continue;
                }
            };
            is_shown = true;
            let shown = std::str::from_utf8(&opened.text).ok();
            if shown.is_some_and(|shown| self.clients.check(Some(shown), peer, now).is_ok()) {
                if depot::is_for_depot(head) {
                    return Ok(());
                }
                match self.key.spend(&opened, now_s()) {
                    Ok(()) => return Ok(()),
                    Err(error) => spent = Some(error),
                }
            }
        }
        let spent = spent.map(|error| (fault_of(error), error.to_string()));
        let told = spent.as_ref().map(|(fault, words)| (*fault, words.as_str()));
        let (fault, words) = match self.clients.tokens() {
            Some(_) if let Some(told) = told => told,
            None => (ProxyFault::NotAdmitted, "it lets others in"),
            Some(_) if is_shown => {
                (ProxyFault::NotAdmitted, "it lets others in, not who shows this token")
            }
            // It may be for a relay behind this one, or for this one before it was started again.
            Some(_) if is_closed => {
                (ProxyFault::OtherKey, "it lets others in, and was shown no token that it can open")
            }
            Some(_) => (ProxyFault::NotAdmitted, "it lets others in, and was shown no token"),
        };
        let status = proxy_status::write(&self.name, fault, None, words);
        let refusal = refusal.with("proxy-status", status);
        Err(match form {
            Form::Path => refusal,
            // To clients of proxies the same is said in other words (RFC 9110, section 15.5.8).
            Form::Proxy if refusal.status == 401 => {
                let fields = refusal.fields.into_iter().map(|(name, value)| match name {
                    "www-authenticate" => ("proxy-authenticate", value),
                    name => (name, value),
                });
                Response { status: 407, fields: fields.collect(), ..refusal }
            }
            Form::Proxy => refusal,
        })
    }

    pub(crate) fn refusal(&self, fault: ProxyFault, site: Option<&str>, text: &str) -> Response {
        faults::response(&self.name, fault, site, text)
    }

    pub(crate) fn note(
        &self,
        head: &Head,
        peer: SocketAddr,
        status: u16,
        bytes: u64,
        took: Duration,
    ) {
        self.metrics.answers.count(status, took);
        if let Some(log) = &self.log {
            // Queries of addresses open things, as signed ones do; of a depot's address the name does.
            let shown = |address| swath_formats::depot::redacted(&address::shown(address));
            let target = shown(&head.raw_target);
            let line = LogLine::of(head, peer, status, bytes, took);
            let referer = line.referer.map(shown);
            log.note(&LogLine { target: &target, referer: referer.as_deref(), ..line });
        }
    }
}

/// How a request asks for something to be passed on, if it does.
pub(crate) fn form(head: &Head) -> Option<Form> {
    let target = head.raw_target.as_str();
    if target.starts_with(address::PREFIX) && address::upstream(target).is_some() {
        return Some(Form::Path);
    }
    let is_whole = target.contains("://") && !target.starts_with('/');
    (is_whole || head.method == Method::CONNECT).then_some(Form::Proxy)
}

/// How it is told that something sealed was of no use.
fn fault_of(error: HpkeError) -> ProxyFault {
    match error {
        HpkeError::Key | HpkeError::Closed => ProxyFault::OtherKey,
        HpkeError::TooOld | HpkeError::Used | HpkeError::Full => ProxyFault::Spent,
    }
}

impl Service for Relay {
    fn traffic(&self) -> &Traffic {
        &self.metrics.traffic
    }

    /// Both ends, and a pipe between them.
    fn descriptors_per_connection(&self) -> usize {
        4
    }

    fn serve_connection<'a>(
        self: Arc<Self>,
        stream: Stream,
        peer: SocketAddr,
        slot: &'a Slot,
    ) -> Later<'a> {
        Box::pin(serve(stream, peer, self, slot))
    }

    fn serve_plain_http<'a>(
        self: Arc<Self>,
        stream: Stream,
        peer: SocketAddr,
        slot: &'a Slot,
    ) -> Later<'a> {
        Box::pin(serve(stream, peer, Arc::new(PlainHttp::relay()), slot))
    }
}

impl Answer for Relay {
    type PerConnection = ClientState;
    const TAKES_ANY_TARGET: bool = true;

    fn is_about_health(&self, head: &Head) -> bool {
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        is_read && head.target.path == b"health"
    }

    async fn answer(&self, head: &Head, peer: SocketAddr, body: &mut dyn Make) -> Response {
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        let path = head.target.path.as_slice();
        if self.is_about_health(head) {
            return self.marked(Response::text(200, "well"));
        }
        if let Err(refusal) = self.admit(head, peer, Form::Path) {
            return refusal;
        }
        if depot::is_for_depot(head) {
            return self.answer_for_depot(head, peer.into(), body).await;
        }
        let response = match path {
            _ if !is_read => {
                Response::text(405, "GET and HEAD are possible here").with("allow", "GET, HEAD")
            }
            b"metrics" => {
                let mut page = self.metrics.page(self.cached.as_ref());
                if let Some(door) = &self.door {
                    door.tell(&mut page).await;
                }
                page.response()
            }
            b"relay" => self.about(head).await,
            b"" => Response::text(
                200,
                format!(
                    "{} is a relay: {}https://HOST/PATH behind this address is passed on",
                    self.name,
                    address::PREFIX
                ),
            ),
            _ => Response::text(404, "this is a relay: /relay/https://HOST/PATH is passed on"),
        };
        self.marked(response)
    }

    /// Nobody is to take it for that of a server behind this relay. (A depot is where its bytes come
    /// from: its answers are no relay's.)
    fn marked(&self, response: Response) -> Response {
        if response.fields.iter().any(|(name, _)| *name == "proxy-status") {
            return response;
        }
        let words = match &response.body {
            Content::Bytes(bytes) => String::from_utf8_lossy(bytes).trim_end().to_owned(),
            _ => String::new(),
        };
        let entry = match response.status {
            // What may pass is no definite no.
            ..400 | 408 => proxy_status::own(&self.name),
            400..500 => proxy_status::write(&self.name, ProxyFault::Request, None, &words),
            _ => proxy_status::write(&self.name, ProxyFault::Internal, None, &words),
        };
        response.with("proxy-status", entry)
    }

    fn note(&self, head: &Head, peer: SocketAddr, status: u16, bytes: u64, took: Duration) {
        Relay::note(self, head, peer, status, bytes, took);
    }

    fn send_limit(&self) -> Option<&Arc<Limiter>> {
        self.send_limit.as_ref()
    }

    fn is_ending(&self, _: bool) -> bool {
        Relay::is_ending(self)
    }

    async fn ending(&self, _: bool) {
        let mut life = self.life.clone();
        let _ = life.wait_for(|&life| life != Life::Open).await;
    }

    fn forwards(&self, head: &Head) -> bool {
        self.is_passage(head)
    }

    async fn forward(
        self: &Arc<Self>,
        stream: &mut Stream,
        input: &mut Vec<u8>,
        held: &mut ClientState,
        head: Head,
        peer: SocketAddr,
    ) -> Next {
        if head.method == Method::CONNECT {
            return tunnel::open(self, stream, input, &head, peer).await;
        }
        let head = match self.kept(&head, peer) {
            None => head,
            Some(url) => {
                match cached::forward(self, stream, input, held, (head, url), peer).await {
                    Ok(next) => return next,
                    Err(head) => head,
                }
            }
        };
        forward::forward(self, stream, input, held, head, peer).await
    }
}

/// With what the names of relays of this kind begin in `Via`.
pub(crate) const PSEUDONYM: &str = "swath-";

const STRANGE: &str = "from this machine it is asked for as localhost, by its address or by the name of \
                       this machine: a page of another site could lead its own name here";

#[cfg(test)]
mod tests;
