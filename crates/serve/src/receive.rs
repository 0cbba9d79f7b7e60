//! Receives trees that others send.
//!
//! The sender requests it (`POST /path/?swath=receive`) and reads the answer, lines of JSON, to its
//! end. It opens as many connections as these lines ask for, and acts as the server on them: this
//! side requests the index and ranges, as if it fetched a tree. So both directions have one
//! protocol, one planner and one way of resuming.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use swath_store::tree::{Grant, PlaceGrant, Root};
use swath_transport::Incoming;
use tokio::sync::mpsc::{
    Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel,
};

use crate::http::{Content, Made, Make, Response, TakesOver};

/// Receives trees; given by whoever runs the server.
pub trait Receive: Send + Sync {
    /// Somebody who may write wants to send a tree. Returns at once; what becomes of it is told by
    /// the order's lines.
    fn begin(&self, order: Order);
}

/// A tree that somebody wants to send.
pub struct Order {
    /// Names it; letters and digits.
    pub id: String,
    /// Where it goes.
    pub destination: Destination,
    /// What the sender wishes: names and values of the request's query.
    pub wishes: Vec<(String, String)>,
    /// Lines for the sender, without line ends. The order is over when they are dropped.
    pub lines: Lines,
    /// Connections that the sender has opened, on which it answers.
    pub lanes: Receiver<Incoming>,
    /// What comes of it is added here.
    pub received_bytes: Arc<AtomicU64>,
}

/// Where a tree goes.
pub struct Destination {
    /// Keeps the way there open.
    pub(crate) folder: Root,
    /// The folder that is to hold what lies in the sender's, by way of `/proc/self/fd`: it or the
    /// one above it is there, and no link is on the way. Good as long as this value lives.
    pub path: PathBuf,
    /// As its sender named it.
    pub shown: String,
    /// What may be done there and below.
    pub(crate) grant: Grant,
}

impl Destination {
    /// What whoever asked for it may change, by paths of this machine: below [`Destination::path`], and
    /// for as long as their token lasts. Nothing is to be changed there without it.
    pub fn grant(&self) -> PlaceGrant {
        PlaceGrant::at(self.path.clone(), self.grant.clone())
    }

    /// Our own names for it, and what its sender calls each.
    pub fn names(&self) -> Vec<(String, String)> {
        let shown = format!("/{}", self.shown);
        let below = format!("{}/", shown.trim_end_matches('/'));
        let own = [
            self.path.to_string_lossy().into_owned(),
            self.folder.proc_path().display().to_string(),
        ];
        own.into_iter()
            .flat_map(|own| [(format!("{own}/"), below.clone()), (own, shown.clone())])
            .collect()
    }
}

/// Takes lines for a sender.
#[derive(Clone)]
pub struct Lines(UnboundedSender<String>);

impl Lines {
    /// Sends one; `false` if the sender has gone.
    pub fn send(&self, line: String) -> bool {
        self.0.send(line).is_ok()
    }

    /// Waits until the sender has gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Orders under way.
#[derive(Default)]
pub(crate) struct Orders {
    open: Mutex<HashMap<String, Sender<Incoming>>>,
}

impl Orders {
    /// Begins to receive; the answer are the lines.
    pub fn begin(
        self: &Arc<Self>,
        receive: &dyn Receive,
        id: String,
        destination: Destination,
        wishes: Vec<(String, String)>,
        received_bytes: Arc<AtomicU64>,
    ) -> Response {
        // At most a line for each entry of the tree, and events for as long as a connection may take
        // nothing before it is closed.
        let (lines, told) = unbounded_channel();
        let (lane, lanes) = channel(LANES_WAITING_MAX);
        self.lock().insert(id.clone(), lane);
        let body = OrderLines { told, orders: Arc::clone(self), id: id.clone() };
        let lines = Lines(lines);
        receive.begin(Order { id, destination, wishes, lines, lanes, received_bytes });
        Response::empty(200)
            .with("content-type", "application/x-ndjson")
            .with("cache-control", "no-store")
            .containing(Content::Made(Box::new(body)))
    }

    /// Whether there are none.
    pub fn are_done(&self) -> bool {
        self.lock().is_empty()
    }

    /// A connection for the order of this name; `None` if there is none.
    pub fn lane(&self, id: &str) -> Option<TakesOver> {
        let lane = self.lock().get(id)?.clone();
        Some(Box::new(move |stream, peer| {
            // If the order is over by now, or far more have come than it asked for, the connection is
            // closed.
            let _ = lane.try_send((stream, peer));
        }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Sender<Incoming>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lines of an order, as they come.
struct OrderLines {
    told: UnboundedReceiver<String>,
    orders: Arc<Orders>,
    id: String,
}

impl Make for OrderLines {
    fn length(&self) -> Option<u64> {
        None
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(async {
            let Some(first) = self.told.recv().await else { return Ok(Vec::new()) };
            let mut bytes = first.into_bytes();
            bytes.push(b'\n');
            while bytes.len() < PART_BYTES
                && let Ok(line) = self.told.try_recv()
            {
                bytes.extend_from_slice(line.as_bytes());
                bytes.push(b'\n');
            }
            Ok::<_, io::Error>(bytes)
        })
    }
}

impl Drop for OrderLines {
    fn drop(&mut self) {
        self.orders.lock().remove(&self.id);
    }
}

/// Connections of an order that nobody has taken yet; the receiver asks for far fewer at a time.
const LANES_WAITING_MAX: usize = 256;
/// Lines that wait are sent together up to this size.
const PART_BYTES: usize = 16 << 10;
