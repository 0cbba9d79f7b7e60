//! Follows a feed: fetches new versions of its datasets as they are announced, and swaps them in.
//!
//! A version is fetched beside the installed one, whose unchanged pieces it reuses. When every piece is
//! verified, it takes the name of the dataset in one step, and the old version is removed. A program
//! that is killed at any moment leaves the old version or the new one under the name, and the next one
//! goes on. Programs that have files of the old version open keep them.

mod error;
mod state;
mod swap;
mod trust;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_formats::minisign::PublicKey;
use swath_formats::percent;
use swath_formats::torrent::Info;
use swath_model::path::visible;
use swath_source::{DocumentVersion, display_name};
use swath_transfer::Engine;
use url::Url;

pub use error::FollowError;

use crate::address::Address;
use crate::control::Control;
use crate::environment::Streams;
use crate::error::{FeedError, JobError};
use crate::event::{JobEvent, JobObserver, Note};
use crate::get;
use crate::get::feed::{self, Metafile, Newest};
use crate::get::order;
use crate::get::torrent::Described;
use crate::options::{Disk, Network, Plan, Routes};
use crate::run::{EngineNeeds, JobContext, Jobs};
use crate::spec::{GetFrom, GetSpec, GetTo, JobSpec, OldVersion, SwarmSpec, TorrentAt, Work};
use state::{FeedState, Installed, Removing, State, Store, Swapping, is_file_name};

/// What to follow, and how.
#[derive(Clone, Debug)]
pub struct FollowSpec {
    /// The feed.
    pub feed: Address,
    /// The folder for the datasets.
    pub dir: PathBuf,
    /// The names of the datasets; none: all that the feed announces.
    pub datasets: Vec<String>,
    /// The key that signs the versions. It is remembered for the feed.
    pub key: Option<PublicKey>,
    /// Whether a version may be installed that is older than one that was installed before.
    pub allows_older: bool,
    /// The network.
    pub network: Network,
    /// Relays and routes.
    pub routes: Routes,
    /// The disk and memory.
    pub disk: Disk,
    /// Planning.
    pub plan: Plan,
    /// How transfers take part in swarms.
    pub swarm: SwarmSpec,
}

/// Follows a feed.
pub struct Follower {
    spec: FollowSpec,
    url: Url,
    engine: Engine,
    store: Store,
    state: State,
    key: Option<PublicKey>,
    /// Looks in a row that failed.
    failures: u32,
    /// What was said already.
    told: HashSet<String>,
}

/// The result of a look at the feed.
#[derive(Debug, Default)]
pub struct Look {
    /// The datasets with a new version.
    pub installed: Vec<String>,
    /// The datasets whose new version was not installed, and why.
    pub failed: Vec<(String, FollowError)>,
}

/// Makes the observer of one transfer.
pub type Observers<'a> = &'a (dyn Fn() -> Arc<dyn JobObserver> + Send + Sync);

impl Jobs {
    /// Opens the state of a folder, which nobody else may follow into meanwhile, and finishes what an
    /// earlier run began. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`FollowError`].
    pub fn follow(&self, spec: FollowSpec) -> Result<Follower, FollowError> {
        let url = spec.feed.url().map_err(JobError::from)?;
        let engine = self.engine(
            &spec.job(GetSpec::new(GetFrom::Replicas(Vec::new()), GetTo::Stream)),
            EngineNeeds {
                connections_per_host: spec.plan.connections,
                has_routes: true,
                ..EngineNeeds::default()
            },
        )?;
        let (store, mut state) = Store::open(&spec.dir)?;
        let feed = state.feeds.entry(url.to_string()).or_default();
        let pinned = feed.key.as_deref().and_then(|text| PublicKey::read(text).ok());
        let key = match (pinned, &spec.key) {
            (Some(pinned), Some(given)) if pinned != *given => {
                let (pinned, given) = (pinned.id.to_string(), given.id.to_string());
                return Err(FollowError::OtherKey { pinned, given });
            }
            (None, Some(given)) => {
                // What was installed without it is looked at again.
                *feed = FeedState { key: Some(given.to_string()), ..FeedState::default() };
                Some(given.clone())
            }
            (pinned, _) => pinned,
        };
        store.save(&state)?;
        let told = HashSet::new();
        let mut follower = Follower { spec, url, engine, store, state, key, failures: 0, told };
        follower.finish_swap()?;
        Ok(follower)
    }
}

impl Follower {
    /// Looks at the feed once, and installs what is new. Transfers send their events to an observer of
    /// `observers` each.
    ///
    /// # Errors
    /// [`FollowError`] if the feed cannot be used. Errors of single datasets are in the [`Look`].
    pub fn look<'a>(
        &'a mut self,
        observers: Observers<'a>,
        control: &'a Control,
    ) -> BoxFuture<'a, Result<Look, FollowError>> {
        Box::pin(async move {
            self.remove_old(observers)?;
            let looked = tokio::select! {
                biased;
                () = control.cancelled() => return Err(JobError::Stopped.into()),
                looked = self.newest() => looked,
            };
            let Some((all, feed)) = looked.inspect_err(|_| self.failures += 1)? else {
                self.failures = 0;
                return Ok(Look::default());
            };
            let mut look = Look::default();
            for newest in all {
                let dataset = newest.announced.dataset.clone();
                match self.install(newest, observers, control).await {
                    Ok(true) => look.installed.push(dataset),
                    Ok(false) => {}
                    Err(FollowError::Job(JobError::Stopped)) => {
                        return Err(JobError::Stopped.into());
                    }
                    Err(error) => look.failed.push((visible(&dataset), error)),
                }
            }
            if look.failed.is_empty() {
                self.failures = 0;
                self.state.feeds.insert(self.url.to_string(), feed);
                self.store.save(&self.state)?;
            } else {
                self.failures += 1;
            }
            Ok(look)
        })
    }

    /// Returns how long to wait for the next look: about `every`, and longer after failures.
    pub fn pause(&self, every: Duration) -> Duration {
        pause(every, self.failures, fastrand::f64())
    }

    /// Returns whether this was not said before.
    pub fn is_news(&mut self, text: &str) -> bool {
        if self.told.len() >= TOLD_MAX {
            self.told.clear();
        }
        self.told.insert(text.to_owned())
    }

    /// Returns the newest versions of the wanted datasets, and what to remember of the feed; `None` if
    /// it has not changed since all was up to date.
    async fn newest(&self) -> Result<Option<(Vec<Newest>, FeedState)>, FollowError> {
        let known = self.state.feeds.get(self.url.as_str()).cloned().unwrap_or_default();
        let own = |(name, it): (&String, &Installed)| {
            it.feed != self.url.as_str() || self.place(name).symlink_metadata().is_ok()
        };
        let is_there = self.state.datasets.iter().all(own);
        let is_same = is_there && known.datasets == self.spec.datasets;
        let document = if is_same { known.document() } else { DocumentVersion::default() };
        let fetched = feed::fetch_if_changed(self.engine.net(), &self.url, &document).await;
        let Some((feed, base, document)) = fetched.map_err(JobError::from)? else {
            return Ok(None);
        };
        let mut all = feed::newest_of_each(&feed, &base, order::now_s());
        let name = || display_name(&self.url);
        if all.is_empty() {
            return Err(JobError::from(FeedError::Nothing(name())).into());
        }
        for wanted in &self.spec.datasets {
            if !all.iter().any(|it| it.announced.dataset == *wanted) {
                let datasets = all.iter().map(|it| visible(&it.announced.dataset)).collect();
                let unknown = FeedError::Unknown { name: name(), wanted: wanted.clone(), datasets };
                return Err(JobError::from(unknown).into());
            }
        }
        let wanted = &self.spec.datasets;
        all.retain(|it| wanted.is_empty() || wanted.contains(&it.announced.dataset));
        let feed = FeedState {
            etag: document.etag,
            last_modified: document.last_modified,
            datasets: wanted.clone(),
            ..known
        };
        Ok(Some((all, feed)))
    }

    /// Installs a version, unless it is there. Returns whether it did.
    async fn install(
        &mut self,
        newest: Newest,
        observers: Observers<'_>,
        control: &Control,
    ) -> Result<bool, FollowError> {
        let announced = &newest.announced;
        let (dataset, version) = (announced.dataset.clone(), announced.version.clone());
        if !is_file_name(&dataset) {
            return Err(FollowError::Name);
        }
        let torrent = match &announced.metafile {
            Metafile::Torrent(url) => url.to_string(),
            Metafile::Magnet(link) => link.to_string(),
            Metafile::Metalink(_) => return Err(FollowError::NoTorrent(visible(&version))),
        };
        let (place, installed) = (self.place(&dataset), self.state.datasets.get(&dataset).cloned());
        let is_there = place.symlink_metadata().is_ok();
        let accepted = match installed {
            Some(old) if old.feed != self.url.as_str() => return Err(FollowError::OtherFeed),
            None if is_there => return Err(FollowError::InTheWay(place)),
            accepted => accepted,
        };
        let old = accepted.clone().filter(|_| is_there);
        let mut new = Installed {
            feed: self.url.to_string(),
            version: version.clone(),
            published: newest.published,
            signed: None,
            torrent,
            info_hash: String::new(),
        };
        if let Some(old) = &old {
            new.info_hash.clone_from(&old.info_hash);
            new.signed = old.signed;
            if *old == new && (self.key.is_none() || old.signed.is_some()) {
                return Ok(false);
            }
            // With a key, only what is signed counts.
            if self.key.is_none() && self.is_older(old, &new, &newest.times) {
                self.say_backwards(&dataset, old, &new, observers);
                return Ok(false);
            }
        }
        let observer = observers();
        // Servers may block.
        let preparing = async {
            let net = self.engine.net();
            let index = match &self.key {
                Some(key) => Some(trust::signed_index(net, key, &newest).await?),
                None => None,
            };
            let get = self.get(Path::new(""));
            let spec = self.spec.job(get.clone());
            let streams = Streams::default();
            let context =
                JobContext { spec: &spec, streams: &streams, observer: &observer, control };
            let job = context.with(self.engine.clone());
            let described = get::described(&job, &get, &announced.metafile).await?;
            let described = described.ok_or_else(|| FollowError::NoTorrent(visible(&version)))?;
            if let Some(index) = &index {
                trust::is_torrent_of(index, &described.metainfo.info, &version)?;
            }
            Ok::<_, FollowError>((index, described))
        };
        let (index, described) = tokio::select! {
            biased;
            () = control.cancelled() => return Err(JobError::Stopped.into()),
            prepared = preparing => prepared?,
        };
        new.info_hash = info_hash(&described.metainfo.info);
        if let Some(index) = &index {
            new.signed = Some(index.published);
            // A server can show an old version with its signature: what was accepted once counts, also
            // when its folder is gone.
            if let Some(accepted) = &accepted
                && self.is_older(accepted, &new, &newest.times)
            {
                if !is_there {
                    let accepted = visible(&accepted.version);
                    return Err(FollowError::Older { version: visible(&version), accepted });
                }
                self.say_backwards(&dataset, accepted, &new, observers);
                return Ok(false);
            }
        }
        if let Some(old) = &old
            && old.info_hash == new.info_hash
        {
            // The same content under another version or address.
            self.state.datasets.insert(dataset, new);
            self.store.save(&self.state)?;
            return Ok(false);
        }
        let note = |note| observer.observe(JobEvent::Note(note));
        note(Note::Announced { dataset: dataset.clone(), version: visible(&version) });
        let stage = self.stage(&dataset, &new)?;
        let folder = self.store.make_stage(&stage)?;
        self.store.keep_torrent(&new.info_hash, &described.metainfo.write())?;
        let old_version = old.as_ref().map(|old| self.store.torrent(&old.info_hash));
        let old_version = old_version
            .filter(|torrent| get::torrent::of_file(torrent).is_ok())
            .map(|torrent| OldVersion { torrent, place: place.clone() });
        let content = described.metainfo.info.name().as_str().to_owned();
        self.fetch(&new, &folder, described, old_version, &observer, control).await?;
        let fetched = folder.join(&content);
        if let Some(index) = index {
            let (fetched, version) = (fetched.clone(), visible(&version));
            let checking =
                tokio::task::spawn_blocking(move || trust::check(&fetched, &index, &version));
            let checked = checking.await.unwrap_or(Err(FollowError::Job(JobError::Stopped)));
            if let Err(error) = checked {
                if matches!(error, FollowError::Mismatch { .. }) {
                    // It would be wrong again.
                    let _ = self.store.remove_stage(&stage);
                }
                return Err(error);
            }
        }
        let inode = swap::inode_of(&fetched).ok().flatten().unwrap_or_default();
        let swapping = Swapping { dataset: dataset.clone(), installed: new, stage, content, inode };
        self.state.swapping = Some(swapping);
        self.store.save(&self.state)?;
        if !self.finish_swap()? {
            let error = std::io::ErrorKind::NotFound.into();
            return Err(FollowError::Swap { path: fetched, error });
        }
        note(Note::Installed { dataset, version: visible(&version), place });
        self.remove_old(observers)?;
        Ok(true)
    }

    /// Returns whether a version is older than the accepted one, and may not be installed: by what is signed
    /// if there is a key, else by the times that the feed tells, those that it tells now before those of then.
    fn is_older(
        &self,
        accepted: &Installed,
        new: &Installed,
        times: &HashMap<String, u64>,
    ) -> bool {
        let is_older = match self.key {
            Some(_) => accepted.signed.zip(new.signed).is_some_and(|(old, new)| new < old),
            None => {
                let then = || order::plausible(accepted.published, order::now_s());
                let old = times.get(&accepted.version).copied().or_else(then);
                old.zip(new.published).is_some_and(|(old, new)| new < old)
            }
        };
        is_older && !self.spec.allows_older
    }

    /// Says once that an older version than the installed one is announced as the newest.
    fn say_backwards(
        &mut self,
        dataset: &str,
        old: &Installed,
        new: &Installed,
        observers: Observers<'_>,
    ) {
        if self.is_news(&format!("{dataset} {} {:?}", new.version, new.published)) {
            observers().observe(JobEvent::Note(Note::FeedBackwards {
                dataset: dataset.to_owned(),
                version: visible(&new.version),
                installed: visible(&old.version),
            }));
        }
    }

    /// Returns the name of the folder for a version. Those of versions that nobody waits for any more
    /// are removed.
    fn stage(&mut self, dataset: &str, new: &Installed) -> Result<String, FollowError> {
        let version = percent::encode(new.version.as_bytes()).replace('/', "%2F");
        let stage: String = format!("{dataset}-{version}").chars().take(STAGE_CHARS_MAX).collect();
        // The same version may be published again, with other content.
        let stage = stage + &stage_ending(&new.info_hash);
        let before = self.state.unfinished.insert(dataset.to_owned(), stage.clone());
        if before.as_ref() != Some(&stage) {
            self.store.save(&self.state)?;
            if let Some(before) = before {
                self.store.remove_stage(&before)?;
            }
        }
        Ok(stage)
    }

    async fn fetch(
        &self,
        new: &Installed,
        folder: &Path,
        described: Described,
        old_version: Option<OldVersion>,
        observer: &Arc<dyn JobObserver>,
        control: &Control,
    ) -> Result<(), FollowError> {
        let torrent = TorrentAt::File(self.store.torrent(&new.info_hash));
        let mut get = self.get(folder);
        get.from = GetFrom::Torrent { torrent, mirrors: Vec::new() };
        get.old_version = old_version;
        let spec = self.spec.job(get.clone());
        let streams = Streams::default();
        let context = JobContext { spec: &spec, streams: &streams, observer, control };
        let job = context.with(self.engine.clone());
        get::run_torrent(&job, &get, described).await?;
        match control.is_cancelled() {
            true => Err(JobError::Stopped.into()),
            false => Ok(()),
        }
    }

    /// Returns what is said of every fetch into a folder.
    fn get(&self, folder: &Path) -> GetSpec {
        let nothing = GetFrom::Replicas(Vec::new());
        let mut get = GetSpec::new(nothing, GetTo::Folder(folder.to_owned()));
        get.swarm = self.spec.swarm.clone();
        get
    }

    /// Goes on with a swap, perhaps one of an earlier run. Returns whether a new version has its name.
    fn finish_swap(&mut self) -> Result<bool, FollowError> {
        let Some(swapping) = self.state.swapping.clone() else { return Ok(false) };
        let Swapping { dataset, installed, stage, content, inode } = swapping;
        let (folder, place) = (self.store.stage(&stage)?, self.place(&dataset));
        let has_name = swap::swap(&folder, &content, inode, &place)
            .map_err(|error| FollowError::Swap { path: place, error })?;
        self.state.swapping = None;
        if has_name {
            let old = self.state.datasets.insert(dataset.clone(), installed);
            let info_hash = old.map(|old| old.info_hash);
            self.state.unfinished.remove(&dataset);
            self.state.removing.push(Removing { dataset, stage, info_hash });
        }
        self.store.save(&self.state)?;
        Ok(has_name)
    }

    /// Removes the old versions that were replaced. Files of others in them are kept.
    fn remove_old(&mut self, observers: Observers<'_>) -> Result<(), FollowError> {
        for Removing { dataset, stage, info_hash } in std::mem::take(&mut self.state.removing) {
            let folder = self.store.stage(&stage)?;
            let torrent = info_hash.as_ref().map(|info_hash| self.store.torrent(info_hash));
            let metainfo = torrent.as_ref().and_then(|path| get::torrent::of_file(path).ok());
            let files = metainfo.iter().flat_map(|it| it.info.files());
            let files = files.map(|file| file.path.as_str().as_bytes().to_vec()).collect();
            let is_single = metainfo.as_ref().is_some_and(|it| it.info.is_single_file());
            let left = swap::remove(&folder, &files, is_single)
                .map_err(|error| FollowError::State { path: folder.clone(), error })?;
            if left > 0 {
                observers().observe(JobEvent::Note(Note::OldFilesKept {
                    dataset,
                    files: left,
                    place: folder,
                }));
            }
        }
        self.store.save(&self.state)?;
        let hashes = self.state.datasets.values().map(|it| &it.info_hash);
        let hashes: HashSet<&String> = hashes.collect();
        let is_used = |info_hash: &str| {
            let ending = stage_ending(info_hash);
            hashes.contains(&info_hash.to_owned())
                || self.state.unfinished.values().any(|stage| stage.ends_with(&ending))
        };
        self.store.forget_torrents(is_used);
        Ok(())
    }

    fn place(&self, dataset: &str) -> PathBuf {
        self.spec.dir.join(dataset)
    }
}

impl FollowSpec {
    fn job(&self, get: GetSpec) -> JobSpec {
        JobSpec {
            work: Work::Get(get),
            network: self.network.clone(),
            routes: self.routes.clone(),
            disk: self.disk.clone(),
            plan: self.plan.clone(),
            deadline_s: None,
        }
    }
}

fn info_hash(info: &Info) -> String {
    let v2 = info.hash_v2().map(|hash| hash.to_string());
    v2.or_else(|| info.hash_v1().map(|hash| hash.to_string())).unwrap_or_default()
}

/// Returns how the names of folders for this torrent end.
fn stage_ending(info_hash: &str) -> String {
    format!("-{}", info_hash.get(..8).unwrap_or(info_hash))
}

/// Returns the time between two looks; `random` is between 0 and 1. Many follow one feed: they do not
/// come together.
fn pause(every: Duration, failures: u32, random: f64) -> Duration {
    let doubled = every.saturating_mul(1 << failures.min(DOUBLINGS_MAX));
    doubled.min(PAUSE_MAX.max(every)).mul_f64(1.0 + (random - 0.5) * JITTER)
}

/// A server that fails for long is asked 16 times less often, but once a day.
const DOUBLINGS_MAX: u32 = 4;
const PAUSE_MAX: Duration = Duration::from_secs(86_400);
/// The pause varies by a tenth in either direction.
const JITTER: f64 = 0.2;
/// File systems allow 255 bytes.
const STAGE_CHARS_MAX: usize = 200;
/// A feed that announces something else each time must not fill the memory.
const TOLD_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_vary_and_grow_after_failures() {
        let every = Duration::from_secs(100);
        assert_eq!(pause(every, 0, 0.5), every);
        assert_eq!(pause(every, 0, 0.0), Duration::from_secs(90));
        assert_eq!(pause(every, 2, 1.0), Duration::from_secs(440));
        assert_eq!(pause(every, 1000, 0.5), Duration::from_secs(1600));
        let day = Duration::from_secs(86_400);
        assert_eq!(pause(day, 3, 0.5), day);
        assert_eq!(pause(7 * day, 3, 0.5), 7 * day);
    }
}
