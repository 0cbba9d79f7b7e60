//! Hosts that cannot be connected to: their connections come from there.
//!
//! Whoever sends a tree from behind a firewall dials; from then on it answers on those connections
//! like any server. To lanes such a host is one like others, except that connecting means to wait
//! for the next connection that comes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use swath_transport::{Incoming, Transport, kernel};
use tokio::sync::Mutex as Turns;
use tokio::sync::mpsc::{
    Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel,
};
use url::{Host, Url};

use super::Net;
use super::conn::Conn;
use crate::error::LaneError;
use crate::target::Origin;

/// One host that dials. When it is dropped, nothing more comes from there.
pub struct Dialled {
    net: Net,
    host: String,
    wanted: UnboundedReceiver<()>,
    come: Sender<Incoming>,
}

/// All hosts that dial.
#[derive(Default)]
pub(super) struct Dialling {
    hosts: Mutex<HashMap<String, Arc<Waiting>>>,
}

/// What connecting to such a host waits for.
pub(super) struct Waiting {
    wanted: UnboundedSender<()>,
    come: Turns<Receiver<Incoming>>,
}

impl Dialling {
    pub fn find(&self, host: &Host<String>) -> Option<Arc<Waiting>> {
        let Host::Domain(name) = host else { return None };
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.get(name).cloned()
    }
}

impl Waiting {
    /// Asks for a connection and waits for it.
    pub async fn connect(&self, origin: &Origin) -> Result<Conn, LaneError> {
        let gone = || LaneError::Connect {
            host: "the sender".to_owned(),
            timed_out: false,
            reason: "it has gone".to_owned(),
        };
        self.wanted.send(()).map_err(|_| gone())?;
        let (stream, peer) = self.come.lock().await.recv().await.ok_or_else(gone)?;
        if let Some(tcp) = stream.socket() {
            kernel::open_wide(tcp);
        }
        let rtt = stream.rtt().unwrap_or(RTT_UNKNOWN);
        Ok(Conn::new(stream, origin.clone(), peer, rtt))
    }
}

impl Net {
    /// Expects connections from a host; its name must not be used for another one. The address is
    /// for sources there.
    ///
    /// # Errors
    /// If the name cannot be that of a host.
    pub fn dialled(&self, name: &str) -> Result<(Url, Dialled), url::ParseError> {
        let host = format!("{}.{TOP}", name.to_ascii_lowercase());
        let url = Url::parse(&format!("http://{host}/"))?;
        // One for each lane that connects.
        let (wanted_sender, wanted) = unbounded_channel();
        let (come, come_receiver) = channel(COME_MAX);
        let waiting = Waiting { wanted: wanted_sender, come: Turns::new(come_receiver) };
        let mut hosts = self.shared.dialling.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.insert(host.clone(), Arc::new(waiting));
        drop(hosts);
        Ok((url, Dialled { net: self.clone(), host, wanted, come }))
    }
}

impl Dialled {
    /// Waits until a further connection is wanted; `false` if none will be.
    pub async fn is_wanted(&mut self) -> bool {
        self.wanted.recv().await.is_some()
    }

    /// A connection has come.
    pub fn come(&self) -> IncomingSender {
        IncomingSender(self.come.clone())
    }
}

/// Takes connections in.
#[derive(Clone)]
pub struct IncomingSender(Sender<Incoming>);

impl IncomingSender {
    /// A connection has come.
    pub fn take(&self, stream: Box<dyn Transport>, peer: SocketAddr) {
        // If nobody waits any more, or far more come than were asked for, it is closed.
        let _ = self.0.try_send((stream, peer));
    }
}

impl Drop for Dialled {
    fn drop(&mut self) {
        let mut hosts =
            self.net.shared.dialling.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.remove(&self.host);
    }
}

/// Connections that came and that no lane has taken yet.
const COME_MAX: usize = 256;
/// Reserved for names that do not exist (RFC 6761, section 6.4).
const TOP: &str = "dialled.invalid";
/// Where the kernel does not tell.
const RTT_UNKNOWN: Duration = Duration::from_millis(50);
