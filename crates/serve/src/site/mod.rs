//! What a server offers: files, folders and datasets, and who may have them.

mod access;
mod built_in;
mod copy;
mod dataset;
mod digests;
mod file;
mod folders;
mod listing;
mod lists;
mod metalink;
mod metrics;
mod mount;
mod page;
mod plain_http;
mod put;
mod receive;
mod rights;
mod sizes;
mod third_party;
mod webdav;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use swath_model::Limiter;
use swath_model::digest::Digest;
use swath_store::tree::{Filter, Root, Single};
use swath_store::{PastCache, Reads};
use tokio::sync::watch;

use crate::client::Client;
use crate::dataset::{Walks, WholeParts};
use crate::http::{
    Answer, Head, Make, Method, Names, Response, Slot, Stream, Version, serve, serve_http2,
};
use crate::receive::{Orders, Receive};
use crate::server::{Later, Life, Service, Traffic};
use crate::third_party::ThirdParty;
use crate::tls::Identity;

pub use access::Access;
use built_in::BuiltIn;
use digests::{Digests, Effort};
pub use folders::Folder;
use folders::{Folders, Resolved};
use lists::{Lists, Turn};
use metrics::Metrics;
pub use mount::Mount;
pub use page::page;
pub use plain_http::PlainHttp;
#[cfg(feature = "fuzzing")]
pub(crate) use rights::fuzz_kept_rights;
pub use rights::{Rights, Who};
use sizes::Sizes;

/// What to serve and how.
#[derive(Clone)]
pub struct SiteOptions {
    /// The folders: one is the root itself, several lie in it under their names, and so do those that
    /// were given one.
    pub folders: Vec<Folder>,
    /// Who may have them.
    pub access: Access,
    /// Links that lead to something below their folder are followed.
    pub follow_links: bool,
    /// Nothing but this is offered, as the dataset at the root, whatever is asked for.
    pub only: Option<Only>,
    /// How the server calls itself where people read it.
    pub name: String,
    /// Names by which it is asked for from this machine, where it neither encrypts nor asks for a token;
    /// addresses and `localhost` are always right. `None`: any name, where no page can reach it.
    pub hosts: Option<Vec<String>>,
    /// How files of datasets are read.
    pub reads: Reads,
    /// Most memory for indexes that nobody uses just now, in bytes.
    pub idle_index_bytes: usize,
    /// Answers some addresses before the site does.
    pub mount: Option<Arc<dyn Mount>>,
    /// Takes trees from those who may write; nothing is taken without.
    pub receive: Option<Arc<dyn Receive>>,
    /// Fetches from other servers for those who may write; nothing is fetched without.
    pub third_party: Option<Arc<dyn ThirdParty>>,
    /// Limits all answers together.
    pub send_limit: Option<Arc<Limiter>>,
    /// Limits what others send, all together.
    pub receive_limit: Option<Arc<Limiter>>,
}

/// What alone is offered.
#[derive(Clone, Debug)]
pub enum Only {
    /// What of the folder takes part.
    Part(Box<Filter>),
    /// A file in it, as a dataset of one entry.
    File(Single),
}

impl std::fmt::Debug for SiteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let receives = self.receive.is_some();
        write!(f, "SiteOptions({:?}, {:?}, receives: {receives})", self.folders, self.access)
    }
}

/// Why a site cannot be offered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// A folder cannot be opened.
    #[error("cannot serve {}", path.display())]
    Folder {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Two folders would have the same name.
    #[error("two of the folders are called '{name}'")]
    Twice {
        /// The name.
        name: String,
    },
}

/// What is offered; answers requests.
pub(crate) struct Site {
    folders: Folders,
    access: Access,
    follow_links: bool,
    only: Option<Only>,
    name: String,
    /// `http` or `https`.
    scheme: &'static str,
    hosts: Option<Names>,
    /// See [`Site::fingerprint`].
    fingerprint: Mutex<Option<Digest>>,
    pub(crate) walks: Walks,
    memory: AnswerMemory,
    mount: Option<Arc<dyn Mount>>,
    receive: Option<Arc<dyn Receive>>,
    third_party: Option<Arc<dyn ThirdParty>>,
    orders: Arc<Orders>,
    send_limit: Option<Arc<Limiter>>,
    receive_limit: Option<Arc<Limiter>>,
    /// One file at a time takes its name.
    putting: Arc<Mutex<()>>,
    digests: Arc<Digests>,
    sizes: Sizes,
    random: fn(&mut [u8]),
    pub(crate) metrics: Metrics,
    log: Option<Box<dyn Log>>,
    life: watch::Receiver<Life>,
}

/// What answers have in memory while they are sent, all together.
#[derive(Default)]
struct AnswerMemory {
    whole_parts: Arc<WholeParts>,
    lists: Lists,
}

/// Where answers are noted down.
pub trait Log: Send + Sync {
    /// One was answered.
    fn note(&self, line: &LogLine<'_>);
}

/// One answered request.
#[derive(Clone, Copy, Debug)]
pub struct LogLine<'a> {
    /// Who asked.
    pub peer: SocketAddr,
    /// `GET`, `HEAD`, …
    pub method: &'a str,
    /// What was asked for, as it was written.
    pub target: &'a str,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2.0`.
    pub version: &'a str,
    /// What was answered.
    pub status: u16,
    /// Bytes of body sent.
    pub bytes: u64,
    /// From the request to the last byte of the answer.
    pub took: Duration,
    /// `Referer` and `User-Agent`, if they were sent.
    pub referer: Option<&'a str>,
    /// What the client calls itself.
    pub agent: Option<&'a str>,
}

impl<'a> LogLine<'a> {
    /// For a request that came by a connection of ours.
    pub fn of(
        head: &'a Head,
        peer: SocketAddr,
        status: u16,
        bytes: u64,
        took: Duration,
    ) -> LogLine<'a> {
        LogLine {
            peer,
            method: head.method.as_str(),
            target: &head.raw_target,
            version: match head.version {
                Version::HTTP_10 => "HTTP/1.0",
                Version::HTTP_11 => "HTTP/1.1",
                _ => "HTTP/2.0",
            },
            status,
            bytes,
            took,
            referer: head.field("referer"),
            agent: head.field("user-agent"),
        }
    }

    /// Without logins in addresses, and without the queries of pages that led here.
    pub(crate) fn redacted(&self, log: &dyn Log) {
        let target = match self.target.contains("://") {
            true => swath_formats::relay::shown(self.target),
            false => self.target.to_owned(),
        };
        let target = without_tokens(&target);
        let referer = self.referer.map(swath_formats::relay::shown);
        log.note(&LogLine { target: &target, referer: referer.as_deref(), ..*self });
    }
}

/// Returns a target without the tokens that grid tools and browsers put into queries.
fn without_tokens(target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    let shown = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if TOKEN_PARAMETERS.iter().any(|own| own.eq_ignore_ascii_case(name)) => {
            format!("{name}=…")
        }
        _ => pair.to_owned(),
    });
    format!("{path}?{}", shown.collect::<Vec<_>>().join("&"))
}

impl Site {
    pub fn open(
        options: SiteOptions,
        log: Option<Box<dyn Log>>,
        scheme: &'static str,
        random: fn(&mut [u8]),
        life: watch::Receiver<Life>,
    ) -> Result<Site, SiteError> {
        Ok(Site {
            folders: Folders::open(&options.folders)?,
            access: options.access,
            follow_links: options.follow_links,
            only: options.only,
            name: options.name,
            scheme,
            hosts: options.hosts.map(Names::new),
            fingerprint: Mutex::default(),
            walks: Walks::new(
                options.idle_index_bytes,
                crate::descriptors::limit(),
                PastCache::new(options.reads),
            ),
            memory: AnswerMemory::default(),
            mount: options.mount,
            receive: options.receive,
            third_party: options.third_party,
            orders: Arc::default(),
            send_limit: options.send_limit,
            receive_limit: options.receive_limit,
            putting: Arc::default(),
            digests: Arc::default(),
            sizes: Sizes::default(),
            random,
            metrics: Metrics::default(),
            log,
            life,
        })
    }

    /// What clients know the certificate by, where no authority vouches for it.
    fn fingerprint(&self) -> Option<Digest> {
        *self.fingerprint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when no tree is under way any more.
    pub async fn finished(&self) {
        let mut seen = None;
        loop {
            // Between two requests for a tree there is a moment in which nobody asks for it, but
            // seldom one in which nobody who could is connected.
            let are_here = self.metrics.traffic.now.load(Ordering::Relaxed) > 0;
            let within = if are_here { ASKS_WITHIN } else { COMES_WITHIN };
            if self.walks.are_used(Duration::ZERO) || !self.orders.are_done() {
                seen = Some(Instant::now());
            }
            let was_just_seen = seen.is_some_and(|at| at.elapsed() < within);
            if !was_just_seen && !self.walks.are_used(within) {
                return;
            }
            tokio::time::sleep(FINISHED_EVERY).await;
        }
    }

    async fn decide(&self, head: &Head, peer: SocketAddr, body: &mut dyn Make) -> Response {
        if *self.life.borrow() == Life::Finishing && !belongs_to_a_tree(head) {
            return Response::text(503, "this server is about to end").with("retry-after", "5");
        }
        let own = BuiltIn::of(head);
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        if own == Some(BuiltIn::Health) && is_read {
            return Response::text(200, "well");
        }
        if let Some(mount) = self.mount.as_ref().filter(|_| is_read && !BuiltIn::names_a_file(head))
            && let Some(response) = mount.answer(head, peer)
        {
            return response;
        }
        self.access.ready(head).await;
        let reads = dataset::read_path(self, head);
        let rights = match self.access.check(head, &reads, peer, SystemTime::now()) {
            Ok(rights) => rights,
            Err(refusal) => return refusal,
        };
        if let Err(refusal) = rights.check_reading(head, &reads) {
            return refusal;
        }
        // A page of another site can show no token, and no certificate for its name.
        let is_open = self.scheme == "http" && self.access.asks_for_nothing();
        if is_open && self.hosts.as_ref().is_some_and(|it| it.are_strange(head, peer)) {
            return Response::text(421, STRANGE);
        }
        let is_copied = head.method.as_str() == "COPY";
        let verb = webdav::Verb::of(head, self.scheme);
        let is_changed = is_copied || verb.is_some_and(webdav::Verb::changes);
        let is_written = is_changed || matches!(head.method, Method::POST | Method::PUT);
        if is_written && is_of_another_page(head) {
            return Response::text(403, "pages of other sites may not write here");
        }
        if let Some(asked) = third_party::Asked::of(head) {
            return third_party::respond(self, asked, head, rights, body).await;
        }
        if let Some(verb) = verb {
            return webdav::respond(self, verb, head, rights, peer.into(), body).await;
        }
        match head.method {
            Method::POST if head.target.parameter("swath") == Some("receive") => {
                return receive::begin(self, head, rights).await;
            }
            Method::PUT if own.is_some() => {
                let text = "here the server answers itself: a file of this name is at '?file'";
                return Response::text(403, text);
            }
            Method::PUT => return put::put(self, head, rights, body).await,
            _ if is_copied => return copy::copy(self, head, rights).await,
            Method::GET | Method::HEAD => {}
            Method::OPTIONS => {
                return Response::empty(204).with("allow", self.allowed()).with("dav", "1");
            }
            _ => {
                let allowed = self.allowed();
                let text = format!("this method is not supported here ({allowed} are)");
                return Response::text(405, text).with("allow", allowed);
            }
        }
        if self.only.is_some() && !head.target.path.is_empty() {
            return file::not_found();
        }
        if own == Some(BuiltIn::Metrics) {
            return self.metrics.page(|page| {
                if let Some(mount) = &self.mount {
                    mount.metrics(page);
                }
            });
        }
        if let Some(what) = head.target.parameter("swath") {
            if what == "lane" {
                return receive::lane(self, head, &rights);
            }
            return dataset::answer(self, head, &rights, peer.into(), what).await;
        }
        if self.only.is_some() {
            return file::not_found();
        }
        match self.folders.resolve(&head.target.path, &rights) {
            Some(Resolved::Top) => listing::top(self, head, peer.into()).await,
            Some(Resolved::Below { root, path }) => {
                self.file_or_folder(head, peer.into(), root, path.to_vec()).await
            }
            None => file::not_found(),
        }
    }

    /// What can be done here.
    fn allowed(&self) -> &'static str {
        match self.receive.is_some() {
            true => "GET, HEAD, OPTIONS, PROPFIND, PUT, MKCOL, DELETE, MOVE, COPY",
            false => "GET, HEAD, OPTIONS, PROPFIND",
        }
    }

    async fn file_or_folder(
        &self,
        head: &Head,
        client: Client,
        root: Root,
        path: Vec<u8>,
    ) -> Response {
        let request = file::Request::of(head, self);
        let turn = match head.target.is_folder {
            true => match self.memory.lists.turn(client).await {
                Ok(turn) => Some(turn),
                Err(crowded) => return crowded.response(),
            },
            false => None,
        };
        let at_once = self.on_a_thread(&request, Effort::Little, turn, &root, &path).await;
        if let Some(response) = at_once {
            return response;
        }
        // A digest that takes long. Its turn is waited for here, where that costs no thread, and
        // not for longer than the client waits.
        let (effort, _waits) = match self.digests.turn(client).await {
            Some((turn, waits)) => (Effort::Any(turn), Some(waits)),
            None => (Effort::None, None),
        };
        let response = self.on_a_thread(&request, effort, None, &root, &path).await;
        response.unwrap_or_else(|| Response::text(500, FAILED))
    }

    async fn on_a_thread(
        &self,
        request: &Arc<file::Request>,
        effort: Effort,
        turn: Option<Turn>,
        root: &Root,
        path: &[u8],
    ) -> Option<Response> {
        let follow_links = self.follow_links;
        let (request, root, path) = (Arc::clone(request), root.clone(), path.to_vec());
        let answer = move || match root.leads_into_unfinished(&path, follow_links) {
            true => Some(file::not_found()),
            false => request.answer(&root, &path, &effort, turn),
        };
        let answered = tokio::task::spawn_blocking(answer);
        answered.await.unwrap_or_else(|_| Some(Response::text(500, FAILED)))
    }
}

impl Service for Site {
    fn traffic(&self) -> &Traffic {
        &self.metrics.traffic
    }

    fn speaks_http2(&self) -> bool {
        // XRootD 5 ends the streams of its third-party copies before it has sent anything.
        self.third_party.is_none()
    }

    fn finished(&self) -> Later<'_> {
        Box::pin(Site::finished(self))
    }

    fn shown_as(&self, identity: Option<&Identity>) {
        let print = identity.and_then(Identity::fingerprint_alone);
        *self.fingerprint.lock().unwrap_or_else(PoisonError::into_inner) = print;
    }

    fn tidy(&self) {
        self.walks.make_room();
    }

    fn serve_connection<'a>(
        self: Arc<Self>,
        stream: Stream,
        peer: SocketAddr,
        slot: &'a Slot,
    ) -> Later<'a> {
        let alpn = stream.encryption().and_then(|encryption| encryption.alpn);
        if alpn.as_deref() == Some(b"h2") {
            Box::pin(serve_http2(stream, peer, self, slot))
        } else {
            Box::pin(serve(stream, peer, self, slot))
        }
    }

    fn serve_plain_http<'a>(
        self: Arc<Self>,
        stream: Stream,
        peer: SocketAddr,
        slot: &'a Slot,
    ) -> Later<'a> {
        Box::pin(serve(stream, peer, Arc::new(PlainHttp::server()), slot))
    }
}

impl Answer for Site {
    type PerConnection = ();

    async fn answer(&self, head: &Head, peer: SocketAddr, body: &mut dyn Make) -> Response {
        let response = self.decide(head, peer, body).await;
        page::refusal(response, head, &self.name).with("server", SERVER)
    }

    fn note(&self, head: &Head, peer: SocketAddr, status: u16, bytes: u64, took: Duration) {
        self.metrics.count(status, bytes, took);
        if let Some(log) = &self.log {
            LogLine::of(head, peer, status, bytes, took).redacted(&**log);
        }
    }

    fn is_about_health(&self, head: &Head) -> bool {
        matches!(head.method, Method::GET | Method::HEAD)
            && BuiltIn::of(head) == Some(BuiltIn::Health)
    }

    fn send_limit(&self) -> Option<&Arc<Limiter>> {
        self.send_limit.as_ref()
    }

    fn receive_limit(&self) -> Option<&Arc<Limiter>> {
        self.receive_limit.as_ref()
    }

    fn may_go_on(&self, head: &Head) -> bool {
        belongs_to_a_tree(head) || head.target.parameter("swath") == Some("index")
    }

    fn is_ending(&self, may_go_on: bool) -> bool {
        *self.life.borrow() >= last(may_go_on)
    }

    async fn ending(&self, may_go_on: bool) {
        let mut life = self.life.clone();
        // Without a sender nobody is left to wait for.
        let _ = life.wait_for(|&life| life >= last(may_go_on)).await;
    }
}

/// Whether a browser asks on behalf of a page of another site: it shows the login of whoever looks at
/// that page, who knows nothing of it.
fn is_of_another_page(head: &Head) -> bool {
    if let Some(site) = head.field("sec-fetch-site") {
        return !matches!(site, "same-origin" | "none");
    }
    let host = head.field("host").unwrap_or_default();
    let own = |origin: &str| origin.split_once("://").is_some_and(|(_, site)| site == host);
    head.field("origin").is_some_and(|origin| !own(origin))
}

/// Whether it is for a tree whose index was sent, or that somebody is sending.
fn belongs_to_a_tree(head: &Head) -> bool {
    let parameter = |name| head.target.parameter(name);
    let what = parameter("swath");
    what.is_some() && (parameter("walk").is_some() || what == Some("lane"))
}

const STRANGE: &str = "from this machine this server is asked for as localhost, or by its address: \
                       a page of another site could lead its own name here ('swath serve --host NAME' \
                       permits one)";
const FAILED: &str = "the answer could not be made";
/// Parameters in which XRootD and OAuth (RFC 6750, section 2.3) take tokens.
const TOKEN_PARAMETERS: [&str; 3] = ["authz", "access_token", "token"];

/// When connections end, those with trees and others.
fn last(may_go_on: bool) -> Life {
    if may_go_on { Life::Ending } else { Life::Finishing }
}

/// Whoever copies a tree asks for more of it within this time …
const ASKS_WITHIN: Duration = Duration::from_secs(2);
/// … or connects again within this one.
const COMES_WITHIN: Duration = Duration::from_millis(50);
/// Whether trees are under way is looked at so often at the end.
const FINISHED_EVERY: Duration = Duration::from_millis(20);

pub(crate) const SERVER: &str = concat!("swath/", env!("CARGO_PKG_VERSION"));
