//! `swath seed`: serves the data of torrents to their swarms.

pub mod args;
pub mod line;
pub mod torrents;
mod verify;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use swath_formats::Network;
use swath_formats::peer::Bitfield;
use swath_formats::torrent::Metainfo;
use swath_formats::tracker::InfoHash;
use swath_model::path::visible;
use swath_model::{Limiter, counted, units};
use swath_source::peer::EncryptionPolicy;
use swath_source::{HostPattern, Net, NetOptions, Proxies, ServerAccess, Trust};
use swath_swarm::{
    Counts, FileUploads, Lost, Participation, Swarm, SwarmEvent, Swarms, SwarmsError,
    SwarmsOptions, TrackerList,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::exit::{Exit, chain, fail, warn};
use crate::failure::Failure;
use crate::say;
use args::Seed;
use line::Line;
use torrents::{Finder, Found};

/// Runs the command until a signal ends it.
pub async fn run(mut args: Seed) -> Result<Exit, Failure> {
    args.servers = crate::net::hosts()?;
    let mut signals = Signals::begin()?;
    let (is_quiet, paths) = (args.quiet, args.torrents.clone());
    let allow = torrents::networks(&args.allow)?;
    let mut seeder = Seeder::bind(args, allow, None).await?;
    let found = seeder.find(&paths)?;
    let mut seeding = Seeding::default();
    if !seeder.begin(&mut seeding, found, signals.next()).await? {
        return Ok(Exit::Done);
    }
    if seeding.torrents.is_empty() {
        let text = "nothing to seed: no piece of the data is right";
        let hint = "--data DIR names the folder with the data";
        return Err(Failure::new(Exit::Mismatch, text).hint(hint));
    }
    if !is_quiet {
        let printed = say::out(seeding.words(seeder.address()).as_bytes(), Exit::Done);
        if printed != Exit::Done {
            return Ok(printed);
        }
    }
    seeder.serve(&mut seeding, Line::new(is_quiet), signals.next()).await;
    let summary = tokio::select! {
        summary = seeding.end() => summary,
        () = signals.next() => {
            let text = "stopped by a second signal: the trackers were not told";
            return Ok(fail(Exit::Interrupted, text));
        }
    };
    Ok(match is_quiet {
        true => Exit::Done,
        false => say::out(summary.as_bytes(), Exit::Done),
    })
}

/// What seeds, for this command and for `swath serve --swarm`.
pub struct Seeder {
    args: Seed,
    peers: Vec<SocketAddr>,
    swarms: Swarms,
    hears: mpsc::Receiver<SwarmEvent>,
    finder: Finder,
    incomplete: Vec<Incomplete>,
}

/// A torrent some of whose data were missing or wrong.
struct Incomplete {
    found: Found,
    /// The data as they were when they were verified, and when they were last looked at.
    verified: u64,
    seen: u64,
}

impl Seeder {
    /// Listens for peers of these networks; `limiter` is shared with other uploads.
    pub async fn bind(
        args: Seed,
        allow: Vec<Network>,
        limiter: Option<Arc<Limiter>>,
    ) -> Result<Seeder, Failure> {
        let peers = resolved(&args.peer).await?;
        let (events, hears) = mpsc::channel(EVENTS_MAX);
        let options = SwarmsOptions { upload_limiter: limiter, ..options(&args, allow)? };
        let swarms = Swarms::bind(options, events).await.map_err(failure)?;
        let finder = Finder::new(args.data.clone());
        Ok(Seeder { args, peers, swarms, hears, finder, incomplete: Vec::new() })
    }

    /// Returns where peers can connect to us.
    pub fn address(&self) -> SocketAddr {
        self.swarms.address()
    }

    /// Returns the torrents at these paths that it has not found before.
    pub fn find(&mut self, paths: &[PathBuf]) -> Result<Vec<Found>, Failure> {
        self.finder.find(paths)
    }

    /// Returns the torrents whose data were incomplete and have changed since, but not since the last
    /// look: nobody writes to them any more.
    pub fn changed(&mut self) -> Vec<Found> {
        let mut changed = Vec::new();
        for mut incomplete in std::mem::take(&mut self.incomplete) {
            // A folder that is gone may come back.
            let again = self.finder.again(&incomplete.found).ok();
            let now = again.as_ref().map_or(0, |found| found.files.stamp());
            let last = std::mem::replace(&mut incomplete.seen, now);
            match again {
                Some(found) if now == last && now != incomplete.verified => changed.push(found),
                _ => self.incomplete.push(incomplete),
            }
        }
        changed
    }

    /// Verifies the data of torrents, and seeds those that have some; `false` if it was stopped. One that
    /// is seeded already begins again.
    pub async fn begin(
        &mut self,
        seeding: &mut Seeding,
        found: Vec<Found>,
        stop: impl Future<Output = ()>,
    ) -> Result<bool, Failure> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let args = &self.args;
        let stamps: Vec<u64> = found.iter().map(|found| found.files.stamp()).collect();
        let verifying = async {
            let mut have = Vec::new();
            for found in &found {
                have.push(verify::verified(found, !args.no_verify, args.quiet, &is_stopped).await);
            }
            have
        };
        let have = tokio::select! {
            have = verifying => have,
            () = stop => {
                is_stopped.store(true, Ordering::Relaxed);
                return Ok(false);
            }
        };
        for ((found, have), stamp) in found.into_iter().zip(have).zip(stamps) {
            let sent_bytes = seeding.leave(&found.metainfo).await;
            let is_full = have.is_full();
            if !have.is_empty() {
                seeding.begin(&self.swarms, &found, have, args, &self.peers, sent_bytes)?;
            }
            if !is_full {
                self.incomplete.push(Incomplete { found, verified: stamp, seen: stamp });
            }
        }
        Ok(true)
    }

    /// Serves peers and shows how it goes, until `stop`, whose result it returns.
    pub async fn serve<T>(
        &mut self,
        seeding: &mut Seeding,
        line: Line,
        stop: impl Future<Output = T>,
    ) -> T {
        seeding.serve(&mut self.hears, stop, line).await
    }
}

fn options(args: &Seed, allow: Vec<Network>) -> Result<SwarmsOptions, Failure> {
    let env = |name: &str| std::env::var(name).ok();
    let certificate = args.own.files().map(|files| files.read()).transpose()?;
    let of_tracker = |url| {
        let certificate = certificate.clone();
        Some(ServerAccess { certificate, ..ServerAccess::to(HostPattern::of(url)?) })
    };
    let named = args.tracker.iter().filter_map(of_tracker);
    let net = NetOptions {
        proxies: Proxies::from_env(env).map_err(|error| Failure::input(error.to_string()))?,
        ca_files: args.ca.clone(),
        servers: named.chain(args.servers.iter().cloned()).collect(),
        ..NetOptions::default()
    };
    let net = Net::new(net).map_err(|error| Failure::input(chain(&error)))?;
    Ok(SwarmsOptions {
        net,
        listen: args.listen,
        listens_for_utp: args.utp,
        encryption: match args.require_encryption {
            true => EncryptionPolicy::Require,
            false => EncryptionPolicy::PlainFirst,
        },
        allow,
        upload_bytes_per_s: args.max_upload,
        upload_limiter: None,
        peers_max: args.max_peers as usize,
    })
}

/// Returns the addresses of `--peer`.
async fn resolved(peers: &[String]) -> Result<Vec<SocketAddr>, Failure> {
    let mut all = Vec::new();
    for peer in peers {
        let found = tokio::net::lookup_host(peer).await.map_err(|error| {
            Failure::usage(format!("--peer {peer}: {error}")).hint("a peer is HOST:PORT")
        })?;
        all.extend(found);
    }
    Ok(all)
}

fn failure(error: SwarmsError) -> Failure {
    match &error {
        SwarmsError::Listen { .. } => Failure::new(Exit::Target, chain(&error))
            .hint("--listen ADDRESS chooses another address or port"),
        _ => Failure::input(chain(&error)),
    }
}

/// All torrents while they are seeded.
#[derive(Default)]
pub struct Seeding {
    torrents: Vec<Seeded>,
    begun: Option<Instant>,
    /// Peers that were connected, by torrent and address.
    peers: HashSet<(Arc<str>, std::net::IpAddr)>,
    /// What the user knows of the trackers of each torrent: whether they answer for an info-hash.
    trackers: HashMap<(Arc<str>, String, InfoHash), bool>,
}

struct Seeded {
    name: String,
    metainfo: Arc<Metainfo>,
    /// What was sent before it began again.
    earlier_bytes: u64,
    content_bytes: u64,
    swarm: Swarm,
    lost: mpsc::Receiver<Lost>,
    /// Paths of lost files that the user was already warned about.
    told: HashSet<String>,
}

impl Seeding {
    fn begin(
        &mut self,
        swarms: &Swarms,
        found: &Found,
        have: Bitfield,
        args: &Seed,
        peers: &[SocketAddr],
        earlier_bytes: u64,
    ) -> Result<(), Failure> {
        let info = &found.metainfo.info;
        let name = visible(info.name().as_str());
        if info.is_private() && !peers.is_empty() {
            warn(&format!("{name} is private: --peer is ignored, its trackers name the peers"));
        }
        // The metafile is one on this machine.
        let list = |tiers| TrackerList { tiers, trust: Trust::Listed };
        let own = Some(found.metainfo.trackers.clone()).filter(|tiers| !tiers.is_empty());
        let (own, named) = (own.map(list), args.tracker.iter().cloned().map(TrackerList::of_user));
        let trackers: Vec<_> = own.into_iter().chain(named).collect();
        if trackers.is_empty() && peers.is_empty() {
            warn(&format!("{name} has no tracker: only peers that know this address will find it"));
        }
        let (lost, hears) = mpsc::channel(16);
        let participation = Participation {
            metainfo: Arc::clone(&found.metainfo),
            have,
            uploads: Some(Arc::new(FileUploads::new(Arc::clone(&found.files), lost))),
            trackers,
            peers: peers.iter().map(|peer| (*peer, Trust::Named)).collect(),
            super_seeds: !args.no_super_seed,
        };
        let swarm = swarms.join(participation).map_err(failure)?;
        let content_bytes = info.files().iter().map(|file| file.length_bytes).sum();
        let (told, metainfo) = (HashSet::new(), Arc::clone(&found.metainfo));
        self.torrents.push(Seeded {
            name,
            metainfo,
            earlier_bytes,
            content_bytes,
            swarm,
            lost: hears,
            told,
        });
        self.begun.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Stops seeding a torrent; returns what was sent of it.
    async fn leave(&mut self, metainfo: &Metainfo) -> u64 {
        let hashes = |of: &Metainfo| (of.info.hash_v1(), of.info.hash_v2());
        let at = self.torrents.iter().position(|it| hashes(&it.metainfo) == hashes(metainfo));
        let Some(left) = at.map(|at| self.torrents.remove(at)) else { return 0 };
        left.earlier_bytes + left.swarm.stop().await.uploaded_bytes
    }

    /// Returns the text that is printed when everything is offered.
    fn words(&self, address: SocketAddr) -> String {
        let mut text = String::new();
        for torrent in &self.torrents {
            let bytes = units::bytes(torrent.content_bytes);
            text += &format!("seeding {} ({bytes})\n", torrent.name);
        }
        text + &format!("listening on {address}\n")
    }

    /// Shows how it goes, until `stop`.
    async fn serve<T>(
        &mut self,
        hears: &mut mpsc::Receiver<SwarmEvent>,
        stop: impl Future<Output = T>,
        mut line: Line,
    ) -> T {
        let mut stop = std::pin::pin!(stop);
        let mut tick = tokio::time::interval(SHOW_EVERY);
        let stopped = loop {
            tokio::select! {
                stopped = &mut stop => break stopped,
                Some(event) = hears.recv() => self.tell(event, &mut line),
                _ = tick.tick() => {
                    self.tell_lost(&mut line);
                    line.show(self.torrents.iter().map(|it| (it.swarm.counts(), it.content_bytes)));
                }
            }
        };
        line.clear();
        stopped
    }

    fn tell(&mut self, event: SwarmEvent, line: &mut Line) {
        match event {
            SwarmEvent::Announced { torrent, announced } => {
                let tracker = announced.tracker;
                let answers = announced.outcome.is_ok();
                let was_named = self.trackers.iter().any(|((of, other, _), answered)| {
                    *answered && *of == torrent && *other == tracker
                });
                let key = (Arc::clone(&torrent), tracker.clone(), announced.info_hash);
                let is_news = match answers {
                    true => !was_named,
                    false => self.trackers.get(&key) != Some(&false),
                };
                self.trackers.insert(key, answers);
                match announced.outcome {
                    Ok(answer) => {
                        if is_news && !line.is_quiet() {
                            line.clear();
                            say::err(&format!("{torrent}: announced to {tracker}"));
                        }
                        if let Some(warning) = answer.warning {
                            line.clear();
                            warn(&format!("{torrent}: {tracker} says: {warning}"));
                        }
                    }
                    Err(error) if is_news => {
                        line.clear();
                        warn(&format!("{torrent}: {tracker}: {error}; trying again"));
                    }
                    Err(_) => {}
                }
            }
            SwarmEvent::Joined { torrent, address, .. } if self.peers.len() < PEERS_COUNTED_MAX => {
                self.peers.insert((torrent, address.ip()));
            }
            SwarmEvent::Banned { address, why } => {
                line.clear();
                warn(&format!("no peer at {address} is let in for an hour: {why}"));
            }
            SwarmEvent::WithoutUtp { address, error } => {
                line.clear();
                warn(&format!("no peers are let in by uTP: cannot open UDP {address}: {error}"));
            }
            _ => {}
        }
    }

    /// Takes back and names the files that cannot be read any more.
    fn tell_lost(&mut self, line: &mut Line) {
        for torrent in &mut self.torrents {
            while let Ok(Lost { range, error }) = torrent.lost.try_recv() {
                torrent.swarm.lost(range);
                let what = chain(&error);
                if torrent.told.insert(what.clone()) {
                    line.clear();
                    warn(&format!("{}: {what}: not offered any more", torrent.name));
                }
            }
        }
    }

    /// Leaves all swarms at once; returns what was done.
    pub async fn end(self) -> String {
        let peers = self.peers.len() as u64;
        let elapsed = self.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        let ending: Vec<_> = self
            .torrents
            .into_iter()
            .map(|it| (it.name, it.content_bytes, it.earlier_bytes, tokio::spawn(it.swarm.stop())))
            .collect();
        let mut text = String::new();
        let (mut all, mut count) = (0, 0);
        for (name, content_bytes, earlier_bytes, stopped) in ending {
            // A panic was reported.
            let mut counts: Counts = stopped.await.unwrap_or_default();
            counts.uploaded_bytes += earlier_bytes;
            let (sent, ratio) = (counts.uploaded_bytes, line::ratio(counts, content_bytes));
            text += &format!("{name}: sent {}, ratio {ratio}\n", units::bytes(sent));
            all += sent;
            count += 1;
        }
        let took = units::duration(elapsed.as_secs_f64());
        let addresses = if peers == 1 { "address" } else { "addresses" };
        let (sent, torrents) = (units::bytes(all), counted(count, "torrent"));
        text + &format!("sent {sent} of {torrents} to {peers} {addresses} in {took}\n")
    }
}

/// Ctrl-C and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn begin() -> Result<Signals, Failure> {
        let failed = |_| Failure::new(Exit::Internal, "cannot receive signals");
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Events that wait; others are lost.
const EVENTS_MAX: usize = 1_000;
/// How often the line changes.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// The count of peers in the summary ends here.
const PEERS_COUNTED_MAX: usize = 100_000;
