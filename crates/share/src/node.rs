//! A node: this process among those that share, with its server and all that it shares.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swath_formats::range_header::{self, Ranges};
use swath_formats::tracker::PeerId;
use swath_model::{Limiter, Range};
use swath_serve::http::{
    Answer, Content, Head, Made, Make, Method, Piece, Response, Slot, Stream, serve,
};
use swath_serve::{
    Congestion, Later, Life, Listening, PlainHttp, ServeError, Server, Service, Stop, Tls,
    TlsError, Traffic,
};
use swath_source::{ClientCertificate, Net, SealedLength};
use swath_swarm::{Announcer, Announcing, Standing, TrackerList};
use swath_transfer::VerifiedContent;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use url::{Url, form_urlencoded};

use crate::content::{ADDRESSES_MAX, Beginning, Readable, ShareEvent, SharedContent, Version};
use crate::follow::{Known, follow};
use crate::log::NodeId;
use crate::token::{ClusterToken, ContentId, Sameness};
use crate::units::Units;

/// How to take part.
pub struct NodeOptions {
    /// The network to trackers and other nodes; see [`Net::without_credentials`].
    pub net: Net,
    /// Where others can connect; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What all nodes of the cluster have in common.
    pub token: ClusterToken,
    /// Limit of what is sent to others.
    pub upload_bytes_per_s: Option<u64>,
}

/// A node. Dropped, it leaves.
pub struct Node {
    shared: Arc<Shared>,
    address: SocketAddr,
    events: mpsc::Sender<ShareEvent>,
    stop: CancellationToken,
    /// To trackers.
    net: Net,
    /// To other nodes.
    group: Net,
}

/// What to share, and with whom.
#[derive(Debug)]
pub struct Sharing {
    /// What says that others share the same.
    pub sameness: Sameness,
    /// Its size.
    pub size_bytes: u64,
    /// The size of the pieces in which it is verified, if it is.
    pub piece_bytes: Option<u64>,
    /// All of it is in this file already.
    pub whole: Option<PathBuf>,
    /// Its version at the origin.
    pub version: Version,
    /// It is the sealed file of a dataset, which is so long. The origin tells the hash of each group of it.
    pub sealed: Option<Arc<SealedLength>>,
    /// Nodes that the user named.
    pub nodes: Vec<SocketAddr>,
    /// Trackers that know others.
    pub trackers: Vec<Url>,
}

/// Why something cannot be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// It has too many units.
    #[error("files of more than 16 TiB cannot be shared")]
    TooLarge,
    /// Its pieces are larger than units may be.
    #[error("files that are verified in pieces of more than 64 MiB cannot be shared")]
    LargePieces,
    /// There is nothing to share.
    #[error("the file is empty")]
    Empty,
    /// It is shared already.
    #[error("the file is shared by this process already")]
    Twice,
}

/// What connections share.
struct Shared {
    me: NodeId,
    token: ClusterToken,
    contents: Mutex<BTreeMap<ContentId, Arc<SharedContent>>>,
    traffic: Traffic,
    limiter: Arc<Limiter>,
    life: watch::Receiver<Life>,
}

impl Node {
    /// Listens. Events go to `events`.
    ///
    /// # Errors
    /// [`ServeError`] if it cannot listen.
    pub async fn start(
        options: NodeOptions,
        events: mpsc::Sender<ShareEvent>,
    ) -> Result<Node, ServeError> {
        let key = options.token.group();
        let group = ClientCertificate::of_pem(&key.pem()?)
            .and_then(|certificate| options.net.of_group(certificate))
            .map_err(|error| TlsError::Make(error.to_string()))?;
        let mut me = [0; 16];
        swath_serve::random(&mut me);
        let (end, life) = watch::channel(Life::Open);
        let shared = Arc::new(Shared {
            me: NodeId(me),
            token: options.token,
            contents: Mutex::default(),
            traffic: Traffic::default(),
            limiter: Arc::new(Limiter::new(options.upload_bytes_per_s)),
            life,
        });
        let service = Arc::clone(&shared) as Arc<dyn Service>;
        let listen = vec![options.listen];
        let listening = Listening {
            at: listen,
            tls: Tls::Group(key),
            max_connections: CONNECTIONS_MAX,
            congestion: Congestion::Auto,
        };
        let server = Server::of(service, listening, end).await?;
        let address = server.addresses().first().copied().unwrap_or(options.listen);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move {
            let stop = async {
                stopped.await;
                Stop::Orderly
            };
            server.run(stop, GRACE, |_| {}).await;
        });
        Ok(Node { shared, address, events, stop, net: options.net, group })
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to share a content.
    ///
    /// # Errors
    /// [`ShareError`].
    pub fn share(&self, sharing: Sharing) -> Result<Arc<SharedContent>, ShareError> {
        let Sharing { sameness, size_bytes, piece_bytes, whole, version, sealed, nodes, trackers } =
            sharing;
        let units = match piece_bytes {
            Some(bytes) => Units::of_pieces(size_bytes, bytes).ok_or(ShareError::LargePieces)?,
            None => Units::of(size_bytes),
        };
        let count = units.count().ok_or(ShareError::TooLarge)?;
        if count == 0 {
            return Err(ShareError::Empty);
        }
        let id = self.shared.token.content(&sameness, &units);
        let mut contents = self.shared.contents();
        if contents.contains_key(&id) {
            return Err(ShareError::Twice);
        }
        let content = SharedContent::begin(Beginning {
            id,
            version,
            units,
            count,
            me: self.shared.me,
            net: self.group.clone(),
            stop: self.stop.child_token(),
            events: self.events.clone(),
            whole,
            sealed,
        });
        contents.insert(id, Arc::clone(&content));
        drop(contents);
        for node in nodes {
            meet(&content, node, Known::Named, self.address.port());
        }
        if !trackers.is_empty() {
            let net = self.net.clone();
            content.spawn(announce(Arc::clone(&content), net, trackers, self.address.port()));
        }
        Ok(content)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Follows the node at this address, if it is new.
fn meet(content: &Arc<SharedContent>, address: SocketAddr, known: Known, port: u16) {
    if content.is_new(address) {
        content.spawn(follow(Arc::clone(content), address, known, port));
    }
}

/// Announces to trackers, and meets the nodes that they name.
async fn announce(content: Arc<SharedContent>, net: Net, trackers: Vec<Url>, port: u16) {
    let mut id = [0; 20];
    swath_serve::random(&mut id);
    let announcing = Announcing {
        net: net.clone(),
        lists: trackers.into_iter().map(TrackerList::of_user).collect(),
        info_hashes: vec![content.id.info_hash()],
        peer_id: PeerId(id),
        port,
    };
    let left = Some(content.units.size_bytes());
    let standing =
        watch::Sender::new(Standing { left, want: ADDRESSES_MAX as u32, ..Standing::default() });
    let (told, mut answers) = mpsc::channel(4);
    let _announcer = Announcer::start(announcing, standing.subscribe(), told);
    while let Some(announced) = answers.recv().await {
        let peers = announced.outcome.iter().flat_map(|answer| &answer.peers);
        let addresses: Vec<SocketAddr> = peers.map(|peer| peer.address).collect();
        // A tracker must not lead us to machines that only we can reach.
        let may_be = addresses.into_iter().filter(|it| net.may_be_led_to(*it).is_ok());
        may_be.for_each(|address| meet(&content, address, Known::Told, port));
        content.notify(ShareEvent::Announced(announced)).await;
    }
}

impl Shared {
    fn contents(&self) -> MutexGuard<'_, BTreeMap<ContentId, Arc<SharedContent>>> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server side of one connection to a node that has proved to be one.
struct Connection {
    shared: Arc<Shared>,
    /// The address that the other end connected to.
    local: SocketAddr,
}

/// What a request asks for.
struct Question {
    content: Arc<SharedContent>,
    path: String,
    pairs: BTreeMap<String, String>,
    /// The port that was connected to, for the one who asks.
    own_port: u16,
}

impl Connection {
    /// Returns what is asked, if there is anything of this name.
    fn question(&self, head: &Head) -> Option<Question> {
        let (path, query) = head.raw_target.split_once('?')?;
        let pairs: BTreeMap<String, String> =
            form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let id = ContentId::from_str(pairs.get("content")?).ok()?;
        let content = Arc::clone(self.shared.contents().get(&id)?);
        Some(Question { content, path: path.to_owned(), pairs, own_port: self.local.port() })
    }
}

impl Question {
    /// Answers with more of our log, and meets the node that asks.
    async fn log(&self, peer: SocketAddr) -> Option<Response> {
        let number = |name| self.pairs.get(name)?.parse::<u64>().ok();
        let node = u128::from_str_radix(self.pairs.get("node")?, 16).ok()?;
        let node = NodeId(node.to_be_bytes());
        let port = u16::try_from(number("port")?).ok().filter(|&port| port != 0)?;
        let address = SocketAddr::new(peer.ip().to_canonical(), port);
        if node != self.content.me {
            meet(&self.content, address, Known::Told, self.own_port);
        }
        let part = self.content.tell(node, number("from")?).await;
        Some(
            Response::empty(200)
                .with("content-type", "application/octet-stream")
                .with("cache-control", "no-store")
                .containing(Content::Bytes(part.bytes())),
        )
    }

    /// Answers with bytes of the content.
    fn bytes(&self, head: &Head) -> Response {
        let size_bytes = self.content.units.size_bytes();
        let range = match head.field("range").map(|value| range_header::parse(value, size_bytes)) {
            None | Some(Ranges::Whole) => Range::new(0, size_bytes),
            Some(Ranges::Parts(parts)) if parts.len() == 1 => parts[0],
            Some(Ranges::Parts(_)) => return Response::text(416, "one range at a time"),
            Some(Ranges::Unsatisfiable) => {
                return Response::text(416, "the content ends before that")
                    .with("content-range", format!("bytes */{size_bytes}"));
            }
        };
        let body = match self.content.readable(range) {
            None => return Response::text(503, "not here yet").with("retry-after", "1"),
            Some(Readable::File(file)) => Content::Pieces(vec![Piece::Part { file, range }]),
            Some(Readable::Transfer(content)) => {
                let part_bytes = content.part_bytes().max(1);
                Content::Made(Box::new(Passing { content, left: range, part_bytes }))
            }
        };
        let response = match range.len() == size_bytes {
            true => Response::empty(200),
            false => Response::empty(206).with(
                "content-range",
                format!("bytes {}-{}/{size_bytes}", range.start, range.end - 1),
            ),
        };
        let version = &self.content.version;
        let fields = [("etag", &version.etag), ("last-modified", &version.last_modified)];
        let response = fields.into_iter().fold(response, |response, (name, value)| match value {
            Some(value) => response.with(name, value.clone()),
            None => response,
        });
        response
            .with("content-type", "application/octet-stream")
            .with("accept-ranges", "bytes")
            .containing(body)
    }
}

/// Bytes of a transfer that runs, read part by part.
struct Passing {
    content: Arc<dyn VerifiedContent>,
    left: Range,
    /// Read and sent at a time.
    part_bytes: u64,
}

impl Make for Passing {
    fn length(&self) -> Option<u64> {
        Some(self.left.len())
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(async {
            let Range { start, end } = self.left;
            let next = (start / self.part_bytes + 1).saturating_mul(self.part_bytes);
            let part = Range::new(start, next.min(end));
            self.left.start = part.end;
            match part.is_empty() {
                true => Ok(Vec::new()),
                false => self.content.read(part).await,
            }
        })
    }
}

impl Answer for Connection {
    type PerConnection = ();
    const TAKES_ANY_TARGET: bool = true;

    async fn answer(&self, head: &Head, peer: SocketAddr, _: &mut dyn Make) -> Response {
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return Response::text(405, "GET and HEAD are possible here")
                .with("allow", "GET, HEAD");
        }
        let Some(question) = self.question(head) else {
            return Response::text(404, "there is nothing here");
        };
        match &*question.path {
            "/share" => question.bytes(head),
            "/share/log" => match question.log(peer).await {
                Some(response) => response,
                None => Response::text(400, "the question is not one of a node"),
            },
            _ => Response::text(404, "there is nothing here"),
        }
    }

    fn note(&self, head: &Head, _: SocketAddr, status: u16, bytes: u64, _: Duration) {
        if matches!(status, 200 | 206)
            && let Some(question) = self.question(head).filter(|question| question.path == "/share")
        {
            question.content.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn send_limit(&self) -> Option<&Arc<Limiter>> {
        Some(&self.shared.limiter)
    }

    fn is_ending(&self, _: bool) -> bool {
        *self.shared.life.borrow() != Life::Open
    }

    async fn ending(&self, _: bool) {
        let mut life = self.shared.life.clone();
        let _ = life.wait_for(|&life| life != Life::Open).await;
    }
}

impl Service for Shared {
    fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    fn serve_connection<'a>(
        self: Arc<Self>,
        stream: Stream,
        peer: SocketAddr,
        slot: &'a Slot,
    ) -> Later<'a> {
        Box::pin(async move {
            let local = stream.socket().and_then(|socket| socket.local_addr().ok());
            let Some(local) = local else { return };
            let connection = Connection { shared: self, local };
            serve(stream, peer, Arc::new(connection), slot).await;
        })
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

/// A few of each of many nodes.
const CONNECTIONS_MAX: usize = 1024;
/// Answers under way may end within this time.
const GRACE: Duration = Duration::from_secs(2);
