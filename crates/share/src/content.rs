//! A content that is shared: its books, and what the transfer that fetches it is told and asked.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use swath_model::digest::Digest;
use swath_model::{Range, RangeSet, Time};
use swath_source::{HttpSource, Narrowed, Net, SealedLength, Source, Trust};
use swath_transfer::{CameFrom, Discovery, Judgement, VerifiedContent, Voucher, block_hash};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::ledger::Ledger;
use crate::log::{Entry, NodeId, Part};
use crate::token::ContentId;
use crate::units::{Unit, Units};

/// What the origin says of its version, which other nodes are told too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The entity tag.
    pub etag: Option<String>,
    /// The time of modification, as HTTP writes it.
    pub last_modified: Option<String>,
}

/// Something that a user should know.
#[derive(Debug)]
pub enum ShareEvent {
    /// A tracker was asked.
    Announced(swath_swarm::Announced),
    /// A node is asked for nothing any more.
    NodeBanned {
        /// Its address.
        address: SocketAddr,
    },
}

/// A content that this machine fetches and passes on.
pub struct SharedContent {
    pub(crate) id: ContentId,
    pub(crate) version: Version,
    pub(crate) units: Units,
    pub(crate) me: NodeId,
    /// For those who prove that they are nodes.
    pub(crate) net: Net,
    pub(crate) stop: CancellationToken,
    /// Of a dataset: the length of its sealed file.
    sealed: Option<Arc<SealedLength>>,
    events: mpsc::Sender<ShareEvent>,
    books: Mutex<Books>,
    /// The length of our log, for those who wait for more of it.
    log_length: watch::Sender<u64>,
    /// What the origin may be asked for.
    from_origin: watch::Sender<RangeSet>,
    /// Something has changed that others, or the planner, should know.
    changed: Notify,
    from: RwLock<ReadFrom>,
    to_hash: mpsc::UnboundedSender<Unit>,
    /// Bytes that were sent to others.
    pub(crate) sent_bytes: AtomicU64,
    began: Instant,
}

struct Books {
    ledger: Ledger,
    verified: RangeSet,
    nodes: BTreeMap<NodeId, Neighbour>,
    /// Whether another node was ever heard.
    was_alone: bool,
    /// Addresses that are asked, or were found to be of no use.
    addresses: HashSet<SocketAddr>,
    /// Those who want to hear of sources.
    listeners: Vec<mpsc::Sender<Arc<dyn Source>>>,
}

/// A node that we hear from.
struct Neighbour {
    address: SocketAddr,
    source: Arc<dyn Source>,
    /// What we may ask it for. Its end tells the planner that the node has left.
    holds: watch::Sender<RangeSet>,
}

/// Where the bytes are that others ask for.
#[derive(Clone)]
enum ReadFrom {
    Nothing,
    Transfer(Arc<dyn VerifiedContent>),
    File(Arc<File>),
}

/// Bytes for another node.
pub(crate) enum Readable {
    Transfer(Arc<dyn VerifiedContent>),
    File(Arc<File>),
}

/// What a content is made of at its beginning.
pub(crate) struct Beginning {
    pub id: ContentId,
    pub version: Version,
    pub units: Units,
    pub count: Unit,
    pub me: NodeId,
    pub net: Net,
    pub stop: CancellationToken,
    pub events: mpsc::Sender<ShareEvent>,
    pub whole: Option<PathBuf>,
    pub sealed: Option<Arc<SealedLength>>,
}

impl SharedContent {
    /// Begins to share. Must be called within a tokio runtime.
    pub(crate) fn begin(beginning: Beginning) -> Arc<SharedContent> {
        let Beginning { id, version, units, count, me, net, stop, events, whole, sealed } =
            beginning;
        let (to_hash, units_to_hash) = mpsc::unbounded_channel();
        let ledger = Ledger::new(units, count, me, fastrand::u64(..));
        let books = Books {
            ledger,
            verified: RangeSet::new(),
            nodes: BTreeMap::new(),
            was_alone: true,
            addresses: HashSet::new(),
            listeners: Vec::new(),
        };
        let content = Arc::new(SharedContent {
            id,
            version,
            units,
            me,
            net,
            stop,
            sealed,
            events,
            books: Mutex::new(books),
            log_length: watch::Sender::new(0),
            from_origin: watch::Sender::new(RangeSet::new()),
            changed: Notify::new(),
            from: RwLock::new(ReadFrom::Nothing),
            to_hash,
            sent_bytes: AtomicU64::new(0),
            began: Instant::now(),
        });
        if let Some(path) = whole {
            content.books().ledger.is_whole();
            content.completed(&path);
            (0..count).for_each(|unit| _ = content.to_hash.send(unit));
        }
        content.turn();
        content.spawn(Arc::clone(&content).keep_turning());
        content.spawn(Arc::clone(&content).hash_all(units_to_hash));
        content
    }

    /// Runs a task until the content is not shared any more.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(task).await });
    }

    /// Returns a mirror of the content, to be asked only for what this node is to fetch from there.
    pub fn origin(&self, mirror: Arc<dyn Source>) -> Arc<dyn Source> {
        Narrowed::to(mirror, self.from_origin.subscribe())
    }

    /// Returns the bytes that were sent to others.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Everything is verified, and at its place.
    pub fn completed(&self, path: &Path) {
        if let Ok(file) = File::open(path) {
            self.read_from(ReadFrom::File(Arc::new(file)));
        }
    }

    /// Returns how many other nodes lack something.
    pub fn others_lack(&self) -> usize {
        self.books().ledger.others_lack().0
    }

    /// Returns whether no other node was ever heard of this content.
    pub fn was_alone(&self) -> bool {
        self.books().was_alone
    }

    /// Waits until another node is heard, or this time has passed.
    pub async fn meets_others(&self, within: Duration) {
        let since = Instant::now();
        while self.was_alone() && since.elapsed() < within {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until no other node lacks anything, or none gets anything any more.
    pub async fn others_are_done(&self) {
        let (mut last, mut since) = ((0, 0), Instant::now());
        loop {
            let now = self.books().ledger.others_lack();
            if now.0 == 0 {
                return;
            }
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > SILENCE_MAX {
                return;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    fn read_from(&self, from: ReadFrom) {
        *self.from.write().unwrap_or_else(PoisonError::into_inner) = from;
    }

    /// Returns where these bytes can be read, if they are verified.
    pub(crate) fn readable(&self, range: Range) -> Option<Readable> {
        if !self.books().ledger.has(range) {
            return None;
        }
        match self.from.read().unwrap_or_else(PoisonError::into_inner).clone() {
            ReadFrom::Nothing => None,
            ReadFrom::Transfer(content) => Some(Readable::Transfer(content)),
            ReadFrom::File(file) => Some(Readable::File(file)),
        }
    }

    /// Returns our log from this entry on, for another node, as soon as there is more of it or some time
    /// has passed.
    pub(crate) async fn tell(&self, to: NodeId, from: u64) -> Part {
        let mut length = self.log_length.subscribe();
        {
            let mut books = self.books();
            // A machine whose own name is on the list reads its own log once.
            books.was_alone &= to == self.me;
            books.ledger.was_read(to, from, self.now());
            // Whoever has read more than there is has read the log of another node.
            if from > books.ledger.log_length() {
                return Part { node: self.me, next: 0, entries: Vec::new() };
            }
        }
        let _ = timeout(TELL_WITHIN, length.wait_for(|&length| length > from)).await;
        // What happens at once is told at once.
        let others = self.books().nodes.len() as u32;
        sleep(GATHER + GATHER_FOR_EACH * others).await;
        let entries = self.books().ledger.log(from, crate::log::ENTRIES_MAX).to_vec();
        Part { node: self.me, next: from + entries.len() as u64, entries }
    }

    /// Returns whether this address is new, and remembers it.
    pub(crate) fn is_new(&self, address: SocketAddr) -> bool {
        let mut books = self.books();
        books.addresses.len() < ADDRESSES_MAX && books.addresses.insert(address)
    }

    /// This address may be tried again when it is heard of.
    pub(crate) fn forget(&self, address: SocketAddr) {
        self.books().addresses.remove(&address);
    }

    /// A node answers at this address. `false` if it is not to be asked: it is us, it is banned, or it
    /// is asked at another address.
    pub(crate) fn meet(&self, node: NodeId, address: SocketAddr) -> bool {
        let mut books = self.books();
        if node == self.me || books.ledger.is_banned(node) || books.nodes.contains_key(&node) {
            return false;
        }
        let Some(url) = self.url(address, "/share", &[]) else { return false };
        let (holds, held) = watch::channel(RangeSet::new());
        let source = match self.sealed.clone() {
            None => HttpSource::new(&self.net, url, Trust::Listed),
            Some(length) => HttpSource::of_sealed(&self.net, url, Trust::Listed, length),
        };
        let source = Narrowed::to(source, held);
        books.listeners.retain(|listener| listener.try_send(Arc::clone(&source)).is_ok());
        books.nodes.insert(node, Neighbour { address, source, holds });
        books.was_alone = false;
        true
    }

    /// A node has said this. `false` if it is banned.
    pub(crate) fn hear(&self, node: NodeId, entries: &[Entry]) -> bool {
        let is_heard = self.books().ledger.hear(node, entries, self.now());
        if !entries.is_empty() {
            self.changed.notify_one();
        }
        is_heard
    }

    /// A node does not answer any more.
    pub(crate) fn leave(&self, node: NodeId) {
        let mut books = self.books();
        books.nodes.remove(&node);
        books.ledger.gone(node);
        self.changed.notify_one();
    }

    /// Returns the address of this content at a node.
    pub(crate) fn url(&self, node: SocketAddr, path: &str, more: &[(&str, String)]) -> Option<Url> {
        let mut url = Url::parse(&format!("https://{node}{path}")).ok()?;
        url.query_pairs_mut().append_pair("content", &self.id.to_string()).extend_pairs(more);
        Some(url)
    }

    pub(crate) async fn notify(&self, event: ShareEvent) {
        let _ = self.events.send(event).await;
    }

    async fn keep_turning(self: Arc<Self>) {
        let turn_every = TURN_EVERY * self.units.count().unwrap_or(0).div_ceil(UNITS_A_TURN).max(1);
        loop {
            let _ = timeout(turn_every, self.changed.notified()).await;
            self.turn();
            // However much is heard, it is looked at only so often.
            sleep(turn_every / 4).await;
        }
    }

    /// Does what is due, and tells the planner what it may ask of whom.
    fn turn(&self) {
        let mut books = self.books();
        let Books { ledger, nodes, .. } = &mut *books;
        ledger.turn(self.now());
        for node in ledger.newly_banned() {
            if let Some(neighbour) = nodes.remove(&node) {
                // A reader that is too slow misses it.
                let event = ShareEvent::NodeBanned { address: neighbour.address };
                let _ = self.events.try_send(event);
            }
        }
        set(&self.from_origin, ledger.of_origin());
        for (&node, neighbour) in nodes {
            set(&neighbour.holds, ledger.of_other(node));
        }
        let length = ledger.log_length();
        self.log_length.send_if_modified(|known| std::mem::replace(known, length) != length);
    }

    /// Hashes units that are verified by something else than our judgement.
    async fn hash_all(self: Arc<Self>, mut units: mpsc::UnboundedReceiver<Unit>) {
        while let Some(unit) = units.recv().await {
            let range = self.units.range(unit);
            let from = self.from.read().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(hash) = hashed(from, unit, self.units).await else { continue };
            let mut books = self.books();
            // Ours are proved.
            books.ledger.judge(unit, hash, CameFrom::Named);
            drop(books);
            self.verified(range);
        }
    }
}

impl Discovery for SharedContent {
    fn sources(&self) -> mpsc::Receiver<Arc<dyn Source>> {
        let (sender, sources) = mpsc::channel(ADDRESSES_MAX);
        let mut books = self.books();
        for neighbour in books.nodes.values() {
            let _ = sender.try_send(Arc::clone(&neighbour.source));
        }
        books.listeners.push(sender);
        sources
    }

    fn named(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        self.origin(source)
    }

    fn begun(&self, content: Arc<dyn VerifiedContent>) {
        let mut books = self.books();
        books.verified = RangeSet::new();
        books.ledger.clear();
        self.read_from(match content.open() {
            Some(file) => ReadFrom::File(Arc::new(file)),
            None => ReadFrom::Transfer(content),
        });
        self.changed.notify_one();
    }

    fn unverified(&self, range: Range) {
        let mut books = self.books();
        let Books { ledger, verified, .. } = &mut *books;
        ledger.has_unverified(verified, range);
        self.changed.notify_one();
    }

    fn verified(&self, range: Range) {
        let mut books = self.books();
        let Books { ledger, verified, .. } = &mut *books;
        verified.insert(range);
        for unit in ledger.verified(verified, range, self.now()) {
            let _ = self.to_hash.send(unit);
        }
        self.changed.notify_one();
    }

    fn convicted(&self, source: &dyn Source, range: Range, _: &str) {
        let mut books = self.books();
        let Books { ledger, nodes, .. } = &mut *books;
        let convicted = nodes.iter().find(|(_, it)| it.source.url() == source.url());
        if let Some((&node, _)) = convicted {
            // Before that, wrong bytes are those that differ from what is vouched for.
            if ledger.is_refuted() {
                ledger.ban_vouchers(range);
            }
            ledger.ban(node);
        }
        self.changed.notify_one();
    }

    fn voucher(self: Arc<Self>) -> Option<Arc<dyn Voucher>> {
        // Of a dataset, the origin tells the hash of each group.
        self.sealed.is_none().then_some(self as Arc<dyn Voucher>)
    }

    fn refuted(&self) {
        self.books().ledger.refuted();
        self.turn();
    }
}

impl Voucher for SharedContent {
    fn block_bytes(&self) -> u64 {
        self.units.unit_bytes()
    }

    fn judge(&self, block: u64, actual: Digest, from: CameFrom) -> Judgement {
        let unit = Unit::try_from(block).unwrap_or(Unit::MAX);
        self.books().ledger.judge(unit, hash_of(&actual), from)
    }
}

impl fmt::Debug for SharedContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedContent({})", self.id)
    }
}

/// Returns the hash of a unit, if it can be read.
async fn hashed(from: ReadFrom, unit: Unit, units: Units) -> Option<[u8; 32]> {
    let range = units.range(unit);
    let bytes = match from {
        ReadFrom::Nothing => return None,
        ReadFrom::Transfer(ref content) => content.read(range).await.ok()?,
        ReadFrom::File(_) => vec![0; range.len() as usize],
    };
    let hashing = move || {
        let mut bytes = bytes;
        if let ReadFrom::File(file) = from {
            file.read_exact_at(&mut bytes, range.start).ok()?;
        }
        Some(block_hash(u64::from(unit), units.unit_bytes(), units.size_bytes(), &bytes))
    };
    tokio::task::spawn_blocking(hashing).await.ok()?
}

fn set(sender: &watch::Sender<RangeSet>, to: RangeSet) {
    sender.send_if_modified(|known| {
        let is_new = *known != to;
        *known = to;
        is_new
    });
}

/// Returns the bytes of a BLAKE3 digest.
fn hash_of(digest: &Digest) -> [u8; 32] {
    digest.as_bytes().try_into().unwrap_or_default()
}

/// Most other nodes of one content.
pub(crate) const ADDRESSES_MAX: usize = 64;
/// A question for more of the log is answered by then.
pub(crate) const TELL_WITHIN: Duration = Duration::from_secs(4);
/// What happens within this time is told together, …
const GATHER: Duration = Duration::from_millis(40);
/// … and it is longer where many ask.
const GATHER_FOR_EACH: Duration = Duration::from_millis(4);
/// The books are looked at so often, and less often if they are long.
const TURN_EVERY: Duration = Duration::from_millis(40);
const UNITS_A_TURN: u32 = 16_384;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Others that get nothing for so long are not waited for.
const SILENCE_MAX: Duration = Duration::from_secs(10);
