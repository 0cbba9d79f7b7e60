//! A tracker on the HTTP server of somebody else: it answers announces, scrapes and `/stats.json` there,
//! and UDP on the same port numbers. It has no pages of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use swath_serve::exposition::Page;
use swath_serve::http::{Head, Response};
use swath_serve::{Life, Mount};
use tokio::sync::watch;

use crate::core::Limits;
use crate::page::figures;
use crate::route::{self, Route};
use crate::server::{Background, Notes, TrackerError, core, udp};
use crate::tracker::Tracker;
use crate::watch::ListFiles;

/// A tracker whose HTTP server is yet to begin.
pub struct Mounted {
    tracker: Arc<Tracker>,
    lists: ListFiles,
    end: watch::Sender<Life>,
}

impl Mounted {
    /// A tracker of this name, for those whom the lists allow.
    ///
    /// # Errors
    /// [`TrackerError::List`].
    pub fn new(name: String, lists: ListFiles, limits: Limits) -> Result<Mounted, TrackerError> {
        let (end, life) = watch::channel(Life::Open);
        let core = core(&lists, limits)?;
        let tracker = Tracker::new(core, name, Vec::new(), None, None, life);
        Ok(Mounted { tracker: Arc::new(tracker), lists, end })
    }

    /// Returns what answers on the HTTP server.
    pub fn mount(&self) -> Arc<dyn Mount> {
        Arc::clone(&self.tracker) as Arc<dyn Mount>
    }

    /// Answers by UDP at the addresses of the HTTP server, and keeps the peers in the file `state`. Must
    /// be called within a tokio runtime.
    ///
    /// # Errors
    /// [`TrackerError::Udp`], [`TrackerError::Keep`].
    pub fn begin(
        self,
        addresses: &[SocketAddr],
        state: Option<PathBuf>,
        notes: Notes,
    ) -> Result<Background, TrackerError> {
        let sockets = udp(addresses)?;
        let mut begun = Background::begin(self.tracker, sockets, self.lists, state, notes)?;
        begun.end = Some(self.end);
        Ok(begun)
    }
}

impl Mount for Tracker {
    fn answer(&self, head: &Head, peer: SocketAddr) -> Option<Response> {
        let route = Route::of(&head.raw_target);
        let is_ours =
            matches!(route.page, route::Page::Announce | route::Page::Scrape | route::Page::Stats);
        (is_ours && route.passkey.is_none()).then(|| self.respond(head, peer))
    }

    fn metrics(&self, page: &mut Page) {
        figures(self, page);
    }
}
