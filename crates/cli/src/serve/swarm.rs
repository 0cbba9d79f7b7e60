//! `swath serve --swarm`: the server is a web seed anyway; this also seeds the torrents of a folder to
//! their swarms, and is their tracker.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swath_model::Limiter;
use swath_serve::{Network, Server};
use swath_tracker::{Background, Limits, ListFiles, Mounted, Note, TorrentList};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::args::{NetworkOrFile, Serve};
use super::machine;
use crate::args::OwnCertificate;
use crate::exit::{Exit, chain, warn};
use crate::failure::Failure;
use crate::say;
use crate::seed::args::Seed;
use crate::seed::line::Line;
use crate::seed::{Seeder, Seeding, torrents};
use crate::track::{self, args::usual_state};

/// Returns the tracker for the torrents of `--swarm`.
pub fn tracker(args: &Serve, host: &str) -> Result<Option<Mounted>, Failure> {
    let Some(folder) = &args.swarm else { return Ok(None) };
    let lists = ListFiles {
        torrents: Some(TorrentList::Catalogue(folder.clone())),
        networks: with_own(&args.allow),
        ..ListFiles::default()
    };
    let name = args.name.clone().unwrap_or_else(|| host.to_owned());
    let tracker = Mounted::new(name, lists, Limits::default());
    tracker.map(Some).map_err(|error| track::cannot_start(&error))
}

/// Returns the networks that may use the tracker: our own seeder may, too.
fn with_own(allow: &[Network]) -> Vec<Network> {
    let own = machine::own_addresses().into_iter().filter(|_| !allow.is_empty());
    let own = own.filter_map(|ip| ip.to_string().parse().ok());
    allow.iter().copied().chain(own).collect()
}

/// The tracker and the seeder of a server.
pub struct InSwarm {
    tracker: Background,
    peers: SocketAddr,
    stop: CancellationToken,
    /// `None` once it has ended.
    seeding: Option<JoinHandle<()>>,
}

impl InSwarm {
    /// Listens by UDP and for peers, and seeds in the background; `limiter` limits all that is sent.
    pub async fn begin(
        tracker: Mounted,
        args: &Serve,
        server: &Server,
        limiter: Option<Arc<Limiter>>,
    ) -> Result<InSwarm, Failure> {
        let addresses = server.addresses();
        let state = usual_state(addresses.first().map_or(0, SocketAddr::port));
        let (told, lists) = watch::channel(());
        let notes = move |note| {
            if matches!(note, Note::ListsRead { .. } | Note::ListsKept { .. }) {
                told.send_replace(());
            }
            track::tell(note);
        };
        let tracker = tracker.begin(&addresses, state, Arc::new(notes));
        let tracker = tracker.map_err(|error| track::cannot_start(&error))?;
        let folder = args.swarm.clone().unwrap_or_default();
        let seeder = Seeder::bind(seed(args, &addresses), args.allow.clone(), limiter).await;
        let seeder = seeder.map_err(|failure| match failure.exit {
            Exit::Target => Failure::new(Exit::Target, failure.what)
                .hint("--listen-peers ADDRESS chooses another address or port"),
            _ => failure,
        })?;
        let (peers, stop) = (seeder.address(), CancellationToken::new());
        let seeding = Some(tokio::spawn(keep_seeding(seeder, folder, lists, stop.clone())));
        Ok(InSwarm { tracker, peers, stop, seeding })
    }

    /// Describes it to the user, for a server with these addresses.
    pub fn words(&self, urls: &[String]) -> String {
        let mut text = String::new();
        if let Some((_, rest)) = urls.first().and_then(|url| url.split_once("://")) {
            let url = &urls[0];
            text += &format!("tracker      {url}announce\ntracker      udp://{rest}announce\n");
        }
        text + &format!("peers        {}\n", self.peers)
    }

    /// Leaves the swarms and tells the trackers. One of them is this server, so it must still answer.
    pub async fn leave(&mut self) {
        self.stop.cancel();
        if let Some(seeding) = &mut self.seeding {
            // A panic was reported.
            let _ = seeding.await;
            self.seeding = None;
        }
    }

    /// Saves the peers of the tracker.
    pub async fn end(mut self) {
        self.leave().await;
        if let Err(error) = self.tracker.finish().await {
            warn(&chain(&error));
        }
    }
}

/// Returns how `swath seed` would seed what this server serves.
fn seed(args: &Serve, addresses: &[SocketAddr]) -> Seed {
    Seed {
        torrents: args.swarm.iter().cloned().collect(),
        data: args.served().into_iter().map(|folder| folder.path).collect(),
        listen: args.listen_peers,
        max_upload: args.limit_rate,
        allow: args.allow.iter().copied().map(NetworkOrFile::Network).collect(),
        tracker: own_trackers(addresses),
        peer: Vec::new(),
        max_peers: 200,
        require_encryption: false,
        utp: false,
        no_super_seed: false,
        no_verify: false,
        ca: Vec::new(),
        own: OwnCertificate::default(),
        quiet: false,
        servers: Vec::new(),
    }
}

/// Returns the addresses of our own tracker. The names in torrents may lead to the loopback interface
/// here, and the tracker would tell others to look for us there.
fn own_trackers(addresses: &[SocketAddr]) -> Vec<Url> {
    let urls = machine::urls(addresses, false, "localhost");
    let numeric = urls.iter().filter(|url| !url.contains("//localhost"));
    let numeric = numeric.map(|url| url.replace("http://", "udp://"));
    numeric.filter_map(|url| Url::parse(&url).ok()).collect()
}

/// Seeds the torrents of the folder until it is stopped. It looks for new ones when the tracker has read
/// its `lists` again: a torrent that is announced earlier is refused. Data that were missing are looked
/// for again.
async fn keep_seeding(
    mut seeder: Seeder,
    folder: PathBuf,
    mut lists: watch::Receiver<()>,
    stop: CancellationToken,
) {
    let mut seeding = Seeding::default();
    let mut is_new = true;
    while !stop.is_cancelled() {
        lists.mark_unchanged();
        let paths = is_new.then(|| torrents::metafiles(&folder).unwrap_or_default());
        // What is wrong with one torrent does not keep the others from being seeded.
        let new = paths.into_iter().flatten().map(|path| seeder.find(&[path])).collect::<Vec<_>>();
        let changed = seeder.changed().into_iter().map(|found| Ok(vec![found]));
        for found in new.into_iter().chain(changed) {
            let begun = match found {
                Ok(found) => seeder.begin(&mut seeding, found, stop.cancelled()).await,
                Err(failure) => Err(failure),
            };
            if let Err(failure) = begun {
                warn(&failure.to_string());
            }
        }
        let until = async {
            tokio::select! {
                () = stop.cancelled() => false,
                Ok(()) = lists.changed() => true,
                () = sleep(LOOK_EVERY) => false,
            }
        };
        is_new = seeder.serve(&mut seeding, Line::hidden(), until).await;
    }
    say::err_lines(&seeding.end().await);
}

/// Data that were copied meanwhile are found after twice this time.
const LOOK_EVERY: Duration = Duration::from_secs(10);
