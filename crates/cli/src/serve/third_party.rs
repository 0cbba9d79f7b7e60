//! `swath serve --write --third-party`: copies that others order, in which this server fetches.
//!
//! Each is a job of the board, run as `swath cp` would run it here. The lines for whoever watches are
//! those of an upload.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use swath_formats::percent;
use swath_jobs::board::{
    Board, BoardError, BoardLimits, BoardLines, JobEnd, JobSeat, Keep, ListedJob, NewJob, Pace,
    RecordReader, Work as BoardWork,
};
use swath_jobs::copy::{CopyError, CopyKind};
use swath_jobs::{
    Address, Compare, Control, CopySpec, Environment, GetFrom, GetSpec, GetTo, Header, JobError,
    JobEvent, JobObserver, JobSpec, Jobs, Outcome, Preserve, Routes, SecretRef, Streams, Work,
};
use swath_model::digest::{Digest, Hasher};
use swath_serve::{
    Access, CopyOrder, CopyWay, Copying, Destination, FetchOrder, JobLines, Refused, ThirdParty,
    Unfinished, Who,
};
use swath_source::{ClientCertificate, HostPattern, NetOptions, Reach, Secret, ServerAccess};
use swath_state::{KeepError, KeptState};
use swath_transfer::observe::{Event, Summary};
use swath_transfer::sending::{Failed, InTheWay, Line, Passes, Received, Wishes, XattrLosses};
use swath_transfer::third_party::{
    ServerJob, ServerJobState, ServerJobs, SourceAccess, Sources, Terms,
};
use swath_transfer::{GetError, LaneError, PartialError, Reason};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use url::Url;

use super::listed::ListedFiles;
use super::machine;
use super::told::ToldNames;
use crate::exit::{self, chain, warn};
use crate::failure::Failure;
use crate::{identity, notes};

/// What such copies may do.
#[derive(Clone, Debug)]
pub struct FetchRules {
    /// Copies at a time for one user.
    pub running_of_one: usize,
    /// What may be contacted beside public addresses: networks, and the relays.
    pub reach: Vec<Reach>,
    /// The relays of this server, and what they need.
    pub routes: Routes,
    /// What the copies share.
    pub environment: Environment,
    /// Files with further certificate authorities.
    pub ca_files: Vec<PathBuf>,
    /// The limit of each copy.
    pub limit_bytes_per_s: Option<u64>,
    /// How the disk is written.
    pub io: swath_transfer::IoMode,
}

/// Fetches from other servers.
pub struct Fetcher {
    board: Board,
    certificate: ClientCertificate,
    access: Access,
    rules: FetchRules,
    runtime: Handle,
    /// Orders of an earlier run, until they are begun again.
    unfinished: Mutex<Vec<swath_state::KeptJob>>,
}

fn limits(rules: &FetchRules) -> BoardLimits {
    BoardLimits {
        running: RUNNING_MAX,
        running_of_one: rules.running_of_one,
        open_of_one: OPEN_OF_ONE_MAX,
    }
}

/// An order as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct KeptOrder {
    wishes: Vec<(String, String)>,
    sources: Sources,
}

impl Fetcher {
    /// Opens the certificate, and the kept jobs of a server of these folders: a job goes on only where it
    /// began. Must be called within a tokio runtime.
    pub fn open(
        rules: FetchRules,
        access: Access,
        folders: &[PathBuf],
        host: &str,
    ) -> Result<Fetcher, Failure> {
        let Some(folder) = identity::state_folder() else {
            return Err(Failure::input(
                "--third-party keeps its jobs in the state folder, and there is none (see SWATH_STATE)",
            ));
        };
        let swath_serve::Tls::Files { certificates: pem, .. } =
            identity::certificate("third-party", host, false)?
        else {
            return Err(Failure::input("--third-party: the state folder cannot be written"));
        };
        let unusable = |error: String| Failure::input(format!("{}: {error}", pem.display()));
        let text = std::fs::read_to_string(&pem).map_err(|error| unusable(error.to_string()))?;
        let certificate =
            ClientCertificate::of_pem(&text).map_err(|error| unusable(error.to_string()))?;
        let name = format!("jobs-{}.db", identity::name_of(folders, b"third-party"));
        let path = folder.join("third-party").join(name);
        let kept = |error: KeepError| Failure::input(format!("--third-party: {}", chain(&error)));
        let board = Board::open(&path, limits(&rules)).map_err(kept)?;
        let unfinished = Mutex::new(board.unfinished().map_err(kept)?);
        let runtime = Handle::current();
        Ok(Fetcher { board, certificate, access, rules, runtime, unfinished })
    }

    /// Makes a certificate, and keeps no jobs: for a server that ends with the copy that it was started for.
    /// Must be called within a tokio runtime.
    pub fn for_one_copy(rules: FetchRules, access: Access, host: &str) -> Result<Fetcher, Failure> {
        let failed = |error: &dyn std::error::Error| Failure::input(chain(error));
        let swath_serve::Tls::SelfSigned(names) = machine::self_signed(host) else {
            return Err(Failure::input("not a self-signed certificate"));
        };
        let pem = swath_serve::Identity::make_pem(names).map_err(|error| failed(&error))?;
        let certificate = ClientCertificate::of_pem(&pem).map_err(|error| failed(&error))?;
        let board = Board::unkept(limits(&rules)).map_err(|error| failed(&error))?;
        let (unfinished, runtime) = (Mutex::default(), Handle::current());
        Ok(Fetcher { board, certificate, access, rules, runtime, unfinished })
    }

    /// Stops all jobs; they go on when the server is started again.
    pub async fn stop(&self) {
        self.board.stop(STOP_WITHIN).await;
    }

    /// Returns the work of an order.
    fn work(
        &self,
        owner: Who,
        order: KeptOrder,
        destination: Destination,
    ) -> Result<impl FnOnce(JobSeat) -> BoardWork + Send + 'static, String> {
        let wishes = Wishes::of(&order.wishes);
        let urls = checked(&order.sources)?;
        let limits = [self.rules.limit_bytes_per_s, order.sources.limit_bytes_per_s];
        let limit = limits.into_iter().flatten().min();
        let spec = spec(&self.rules, limit, &order.sources, &wishes, &urls, &destination);
        let environment =
            Environment { net: self.net(&order.sources, &urls), ..self.rules.environment.clone() };
        let jobs = Jobs::new(environment);
        let access = self.access.clone();
        Ok(move |seat: JobSeat| -> BoardWork {
            Box::pin(async move {
                let may_write = || access.may_still_write(owner, SystemTime::now());
                let running = run(jobs, spec, seat.clone(), destination);
                let mut running = std::pin::pin!(running);
                let mut looking = tokio::time::interval(LOOK_EVERY);
                let mut is_allowed = true;
                loop {
                    tokio::select! {
                        biased;
                        _ = looking.tick(), if is_allowed => {
                            is_allowed = may_write();
                            if !is_allowed {
                                seat.control.cancel();
                            }
                        }
                        end = &mut running => return match is_allowed || end.state == KeptState::Done {
                            true => end,
                            false => failed_with(NO_RIGHT),
                        },
                    }
                }
            })
        })
    }

    fn net(&self, sources: &Sources, urls: &[Url]) -> NetOptions {
        let mut servers = Vec::new();
        for (source, url) in sources.sources.iter().zip(urls) {
            let Some(pattern) = HostPattern::of(url) else { continue };
            let access =
                || ServerAccess { is_for_this_run: true, ..ServerAccess::to(pattern.clone()) };
            let token = source.token.as_deref().map(Secret::new);
            servers.push(ServerAccess { token, ..access() });
            let trusted = source
                .fingerprints
                .iter()
                .filter_map(|digits| format!("sha-256:{digits}").parse().ok());
            servers.extend(
                trusted.map(|digest| ServerAccess { fingerprint: Some(digest), ..access() }),
            );
        }
        NetOptions {
            certificate: Some(self.certificate.clone()),
            ca_files: self.rules.ca_files.clone(),
            reach: Some(self.rules.reach.clone()),
            servers,
            ..NetOptions::default()
        }
    }

    fn new_job(id: String, owner: Who, place: &str, order: &KeptOrder) -> Result<NewJob, Refused> {
        let order = serde_json::to_string(order);
        let order = order.map_err(|error| Refused::Order(error.to_string()))?;
        Ok(NewJob { id, owner: owner.to_string(), place: place.to_owned(), order, lines: lines() })
    }

    fn follow(&self, reader: RecordReader) -> JobLines {
        let mut reader = reader.with_pace(PACE);
        let (sender, lines) = mpsc::channel(LINES_AHEAD);
        self.runtime.spawn(async move {
            while let Some(line) = reader.next().await {
                if sender.send(line).await.is_err() {
                    return;
                }
            }
        });
        lines
    }
}

impl ThirdParty for Fetcher {
    fn terms(&self) -> String {
        let terms = Terms { certificate: self.certificate.fingerprint().to_hex() };
        serde_json::to_string(&terms).unwrap_or_default()
    }

    fn order(&self, order: FetchOrder) -> Result<JobLines, Refused> {
        let FetchOrder { owner, id, destination, path, wishes, sources } = order;
        let sources = serde_json::from_slice(&sources);
        let sources = sources.map_err(|error| Refused::Order(format!("the sources: {error}")))?;
        // What only this request means.
        let is_wish = |(name, _): &(String, String)| name != "swath" && name != "job";
        let wishes = wishes.into_iter().filter(is_wish).collect();
        let order = KeptOrder { wishes, sources };
        let place = format!("/{}", percent::encode(&path));
        let new = Fetcher::new_job(id, owner, &place, &order)?;
        let work = self.work(owner, order, destination).map_err(Refused::Order)?;
        let _runtime = self.runtime.enter();
        let reader = self.board.begin(new, work).map_err(|error| match error {
            BoardError::Name => Refused::Order(error.to_string()),
            BoardError::Keep(KeepError::Taken) => Refused::Taken,
            BoardError::Keep(error) => Refused::Failed(chain(&error)),
            error => Refused::Busy(error.to_string()),
        })?;
        Ok(self.follow(reader))
    }

    fn copy(&self, order: CopyOrder) -> Result<Copying, Refused> {
        let CopyOrder { owner, way, remote, headers, overwrites, digests } = order;
        let url =
            swath_jobs::parse_url(&remote).map_err(|error| Refused::Order(error.to_string()))?;
        let has_secret = headers.iter().any(|(name, _)| name == "authorization")
            || !url.username().is_empty()
            || url.password().is_some();
        if has_secret && url.scheme() != "https" {
            return Err(Refused::Order("a token is not sent without encryption".to_owned()));
        }
        for (name, value) in &headers {
            let checked = swath_source::check_header(name, value);
            checked.map_err(|error| Refused::Order(error.to_string()))?;
        }
        let copy = OneFile { way, url, headers, overwrites, digests };
        let (jobs, spec) = copy.job(&self.rules, self.net(&Sources::default(), &[]));
        let (sender, bytes) = watch::channel(0);
        let (ended, end) = oneshot::channel();
        let control = Control::default();
        let cancels = Box::new(CancelOnDrop(control.clone()));
        let (board, owner) = (self.board.clone(), owner.to_string());
        self.runtime.spawn(async move {
            let turn = tokio::select! {
                turn = board.turn(&owner) => turn,
                () = control.cancelled() => None,
            };
            let result = match turn {
                Some(_) => copy.run(&jobs, &spec, &control, sender).await,
                None => Err("stopped".to_owned()),
            };
            // Nobody may be there any more.
            let _ = ended.send(result);
        });
        Ok(Copying { bytes, end, cancels })
    }

    fn lines(&self, owner: Who, id: &str) -> Result<JobLines, Refused> {
        match self.board.reader(&owner.to_string(), id) {
            Ok(Some(reader)) => Ok(self.follow(reader)),
            Ok(None) | Err(KeepError::Taken) => Err(Refused::NoJob),
            Err(error) => Err(Refused::Failed(chain(&error))),
        }
    }

    fn cancel(&self, owner: Who, id: &str) -> Result<(), Refused> {
        match self.board.cancel(&owner.to_string(), id) {
            true => Ok(()),
            false => Err(Refused::NoJob),
        }
    }

    fn list(&self, owner: Who) -> Result<String, Refused> {
        let all = self.board.list(&owner.to_string());
        let all = all.map_err(|error| Refused::Failed(chain(&error)))?;
        let listed = all.into_iter().map(|ListedJob { kept, is_running }| ServerJob {
            job: kept.id,
            to: percent::decode_text(&kept.place),
            state: match (kept.state, is_running) {
                (KeptState::Open, true) => ServerJobState::Running,
                (KeptState::Open, false) => ServerJobState::Waiting,
                (KeptState::Done, _) => ServerJobState::Done,
                (KeptState::Failed, _) => ServerJobState::Failed,
                (KeptState::Cancelled, _) => ServerJobState::Cancelled,
            },
            ordered_s: kept.ordered_s,
            ended_s: kept.ended_s,
        });
        let jobs = ServerJobs { jobs: listed.collect() };
        Ok(serde_json::to_string(&jobs).unwrap_or_default())
    }

    fn unfinished(&self) -> Vec<Unfinished> {
        let unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |job: &swath_state::KeptJob| Unfinished {
            id: job.id.clone(),
            path: percent::decode(job.place.trim_matches('/')),
        };
        unfinished.iter().map(of).collect()
    }

    fn resume(&self, id: &str, destination: Option<Destination>) {
        let job = {
            let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(at) = unfinished.iter().position(|job| job.id == id) else { return };
            unfinished.remove(at)
        };
        let order =
            serde_json::from_str::<KeptOrder>(&job.order).map_err(|error| error.to_string());
        let no_place = || "its destination cannot be opened any more".to_owned();
        let destination = destination.ok_or_else(no_place);
        let owner = job.owner.parse::<Who>().map_err(|()| "its owner is not known".to_owned());
        let work = order.and_then(|order| self.work(owner?, order, destination?));
        match work {
            Ok(work) => {
                let _runtime = self.runtime.enter();
                self.board.resume(&job, lines(), work);
            }
            Err(why) => {
                let end = failed_with(&why);
                if let Err(error) = self.board.end(id, &end) {
                    warn(&format!("--third-party: {}", chain(&error)));
                }
            }
        }
    }
}

/// Cancels a copy when nobody waits for it any more.
struct CancelOnDrop(Control);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A copy of one file from or to another server.
struct OneFile {
    way: CopyWay,
    url: Url,
    headers: Vec<(String, String)>,
    overwrites: bool,
    digests: Vec<Digest>,
}

impl OneFile {
    /// Returns it as a job of this machine.
    fn job(&self, rules: &FetchRules, net: NetOptions) -> (Jobs, JobSpec) {
        let mut secrets = BTreeMap::new();
        let mut headers = Vec::new();
        let condition = ("if-none-match".to_owned(), "*".to_owned());
        let is_push = matches!(self.way, CopyWay::Push { .. });
        let condition = Some(&condition).filter(|_| is_push && !self.overwrites);
        for (at, (name, value)) in self.headers.iter().chain(condition).enumerate() {
            let secret = format!("header {at}");
            secrets.insert(secret.clone(), Secret::new(value));
            headers.push(Header { name: name.clone(), value: SecretRef::Name(secret) });
        }
        let address = Address::new(self.url.as_str());
        let work = match &self.way {
            CopyWay::Pull { folder, name } => {
                let to = GetTo::File(folder.path.join(name));
                let digests = self.digests.clone();
                let get = GetSpec::new(GetFrom::Replicas(vec![address]), to);
                let (overwrite, resume, discover) = (self.overwrites, false, false);
                Work::Get(GetSpec { digests, overwrite, resume, discover, ..get })
            }
            CopyWay::Push { file } => {
                let from = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
                let digest = self.digests.iter().max().copied();
                let kind = CopyKind::SendFile { from, to: address };
                Work::Copy(CopySpec { digest, ..CopySpec::new(kind) })
            }
        };
        let mut spec = JobSpec::new(work);
        spec.network.headers = headers;
        spec.network.limit_bytes_per_s = rules.limit_bytes_per_s;
        spec.disk.io = rules.io;
        (Jobs::new(Environment { net, secrets, ..Environment::default() }), spec)
    }

    /// Runs it, and tells how many bytes there are.
    async fn run(
        self,
        jobs: &Jobs,
        spec: &JobSpec,
        control: &Control,
        bytes: watch::Sender<u64>,
    ) -> Result<(), String> {
        let names = match &self.way {
            CopyWay::Pull { folder, .. } => ToldNames::new(folder.names()),
            CopyWay::Push { file } => {
                let own = format!("/proc/self/fd/{}", file.as_raw_fd());
                ToldNames::new(vec![(own, "the file".to_owned())])
            }
        };
        if let CopyWay::Push { file } = &self.way {
            self.check(file).await?;
        }
        let told: Arc<dyn JobObserver> = Arc::new(move |event: JobEvent| match event {
            JobEvent::Transfer(Event::Progress(now)) => _ = bytes.send_replace(now.done_bytes),
            JobEvent::Transfer(Event::Finished(summary)) => {
                bytes.send_replace(summary.size_bytes);
            }
            _ => {}
        });
        let error = match jobs.run(spec, &Streams::default(), &told, control).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if let CopyWay::Pull { folder, name } = &self.way {
            // Nobody resumes such a copy.
            let path = folder.path.join(name);
            let _ = tokio::task::spawn_blocking(move || swath_store::discard_left(&path)).await;
        }
        Err(names.text(&words(error)))
    }

    /// Checks that the file here has the digests that it must have.
    async fn check(&self, file: &File) -> Result<(), String> {
        if self.digests.is_empty() {
            return Ok(());
        }
        let failed = |error: io::Error| format!("the file cannot be read: {error}");
        let (file, digests) = (file.try_clone().map_err(failed)?, self.digests.clone());
        let checking = tokio::task::spawn_blocking(move || {
            let mut hashers: Vec<Hasher> =
                digests.iter().map(|digest| Hasher::new(digest.algorithm())).collect();
            let (mut part, mut at) = (vec![0; PART_BYTES], 0);
            loop {
                match file.read_at(&mut part, at)? {
                    0 => break,
                    bytes => {
                        hashers.iter_mut().for_each(|hasher| hasher.update(&part[..bytes]));
                        at += bytes as u64;
                    }
                }
            }
            let own = hashers.iter().map(Hasher::finish);
            let wrong = own.zip(&digests).find(|(own, wanted)| own != *wanted);
            Ok(wrong.map(|(own, _)| own.algorithm().name()))
        });
        match checking.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(None) => Ok(()),
            Ok(Some(algorithm)) => Err(format!("the file here has another {algorithm}")),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Returns the error of a copy of one file in words.
fn words(error: JobError) -> String {
    match error {
        JobError::Transfer { error, .. } if !error.reasons().is_empty() => error.with_reasons(),
        JobError::Transfer { error, .. } => exit::words(&error),
        JobError::Copy(error) => match *error {
            CopyError::Put { error, .. } => chain(&*error),
            CopyError::Broken { why, .. } => why.to_string(),
            CopyError::Receiver { failed, .. } => failed.error,
            error => crate::cp::failure(error).what,
        },
        JobError::Stopped => "stopped".to_owned(),
        error => Failure::from(error).what,
    }
}

/// Checks the addresses of an order.
fn checked(sources: &Sources) -> Result<Vec<Url>, String> {
    let all = sources.sources.iter().map(|SourceAccess { url, token, .. }| {
        let parsed = swath_jobs::parse_url(url).map_err(|error| error.to_string())?;
        match token.is_some() && parsed.scheme() != "https" {
            true => Err("a token is not sent without encryption".to_owned()),
            false => Ok(parsed),
        }
    });
    let all: Vec<Url> = all.collect::<Result<_, _>>()?;
    let folders = all.iter().filter(|url| url.path().ends_with('/')).count();
    match (all.len(), folders) {
        (0, _) => Err("an order needs a source".to_owned()),
        (1, 0) => Ok(all),
        (count, folders) if count == folders => Ok(all),
        _ => {
            Err("several sources must be replicas of one folder, whose addresses end in '/'"
                .to_owned())
        }
    }
}

/// Returns the order as a job of this machine.
fn spec(
    rules: &FetchRules,
    limit_bytes_per_s: Option<u64>,
    sources: &Sources,
    wishes: &Wishes,
    urls: &[Url],
    destination: &Destination,
) -> JobSpec {
    let from: Vec<Address> = urls.iter().map(|url| Address::new(url.as_str())).collect();
    let to = destination.path.clone();
    let kind = match urls {
        [url] if !url.path().ends_with('/') => {
            let (to, is_alone) = match &wishes.single {
                Some(name) => (to.join(name), true),
                // What is not there yet is a folder, too.
                None => (PathBuf::from(format!("{}/", to.display())), false),
            };
            CopyKind::FetchNamed { from: from[0].clone(), to, is_alone }
        }
        _ => CopyKind::Fetch { from, to },
    };
    let swath_transfer::Preserve { mode, times, links, xattrs } = wishes.preserve;
    let copy = CopySpec {
        include: wishes.include.clone(),
        exclude: wishes.exclude.clone(),
        compare: match wishes.compare {
            swath_transfer::Compare::SizeAndTime => Compare::SizeAndTime,
            swath_transfer::Compare::Content => Compare::Content,
            swath_transfer::Compare::Nothing => Compare::Nothing,
        },
        preserve: Preserve { mode, times, links, xattrs },
        delete: wishes.delete,
        allow_empty: wishes.allow_empty,
        resume: wishes.resume,
        require_digest: sources.require_digest,
        dry_run: wishes.dry,
        ..CopySpec::new(kind)
    };
    let mut spec = JobSpec::new(Work::Copy(copy));
    if let Some(patience_s) = wishes.patience_s {
        spec.network.timeout_ms = (patience_s * 1e3) as u64;
    }
    spec.network.limit_bytes_per_s = limit_bytes_per_s;
    spec.disk.io = rules.io;
    spec.routes = rules.routes.clone();
    spec
}

/// Runs a copy, and records what happens as lines.
async fn run(jobs: Jobs, spec: JobSpec, seat: JobSeat, destination: Destination) -> JobEnd {
    let names = ToldNames::new(destination.names());
    let observer = Arc::new(Recorder {
        seat: seat.clone(),
        names: names.clone(),
        began: Instant::now(),
        has_kept: AtomicBool::new(false),
        listed: ListedFiles::default(),
    });
    let told: Arc<dyn JobObserver> = Arc::clone(&observer) as Arc<dyn JobObserver>;
    let ended = jobs.run(&spec, &Streams::default(), &told, &seat.control).await;
    let (state, line) = match ended {
        Ok(outcome) => match received(outcome, &observer) {
            Some(received) => (KeptState::Done, Line::Received(Box::new(received))),
            None => {
                let why = "the source is no folder of a swath server, and no file".to_owned();
                (KeptState::Failed, Line::Failed(Failed::at_once(3, why)))
            }
        },
        Err(error) => (KeptState::Failed, Line::Failed(failed(error, &names))),
    };
    drop(destination);
    JobEnd { state, line: names.line(&line.to_json()) }
}

/// Records the events of a job.
struct Recorder {
    seat: JobSeat,
    names: ToldNames,
    began: Instant,
    has_kept: AtomicBool,
    /// The files of a web folder.
    listed: ListedFiles,
}

impl JobObserver for Recorder {
    fn observe(&self, event: JobEvent) {
        let (keep, line) = match event {
            // The last line reports the end.
            JobEvent::Transfer(Event::Finished(_) | Event::Failed { .. }) => {
                self.has_kept.store(true, Ordering::Relaxed);
                return;
            }
            JobEvent::Transfer(event) => (kept_as(&event), Line::event(&event)),
            JobEvent::Note(note) => {
                let (text, is_warning) = notes::words(&note);
                let at_s = self.began.elapsed().as_secs_f64();
                (Keep::Last, Line::event(&Event::note(at_s, text, is_warning)))
            }
            JobEvent::File { event, .. } => {
                self.listed.note(&event);
                return;
            }
            JobEvent::FileFailed { name, error, .. } => {
                let text = format!("{name}: {}", crate::failure::of_file(&error).1);
                let at_s = self.began.elapsed().as_secs_f64();
                (Keep::Last, Line::event(&Event::note(at_s, text, true)))
            }
            JobEvent::Planned { bytes, path, further_of } => {
                let text = |path: Vec<u8>| String::from_utf8_lossy(&path).into_owned();
                let change = Line::Change(bytes, text(path), further_of.map(text));
                (Keep::Last, change.to_json())
            }
            _ => return,
        };
        self.seat.record.add(keep, self.names.line(&line));
    }
}

/// Of what changes all the time, whoever comes late sees the present state. Of progress and of single
/// swaths, whoever watches gets what a slow link can bear.
fn kept_as(event: &Event) -> Keep {
    match event {
        Event::Progress(_) => Keep::Passing,
        Event::Swath(_) => Keep::Detail,
        Event::Source { source, .. } => Keep::Newest(*source as u64),
        _ => Keep::Last,
    }
}

/// Returns the result of a copy as its last line has it.
fn received(outcome: Outcome, recorder: &Recorder) -> Option<Received> {
    match outcome {
        Outcome::Copied(copied) => Some(copied.received),
        Outcome::File(summary) => Some(of_file(*summary)),
        // What a web server lists.
        Outcome::Files(files) => {
            let summary = recorder.listed.summary(recorder.began.elapsed().as_secs_f64());
            Some(Received { counts: [files.complete, 0, 0, 0], ..of_file(summary) })
        }
        _ => None,
    }
}

fn of_file(transfer: Summary) -> Received {
    Received {
        transfer,
        counts: [1, 0, 0, 0],
        removed: 0,
        spared: None,
        unremoved: Default::default(),
        kept_files: 0,
        changed: Vec::new(),
        absent: Vec::new(),
        is_whole: true,
        xattrs: Some(XattrLosses::default()),
    }
}

/// Returns the error of a copy as its last line has it.
fn failed(error: JobError, names: &ToldNames) -> Failed {
    let plain = |exit: u8, error: &str| Failed::at_once(exit, names.text(error));
    match error {
        JobError::Copy(error) => match *error {
            CopyError::Fetch { error, kept, .. } => {
                let exit = exit::of(&error, kept.received_bytes) as u8;
                let (words, in_the_way) = match &*error {
                    error if !error.reasons().is_empty() => (error.with_reasons(), None),
                    // Whoever ordered it adds the advice.
                    GetError::Tree(PartialError::InTheWay { destination, conflicts }) => {
                        let destination = destination.display().to_string();
                        let words = exit::in_the_way(&destination, conflicts);
                        (words, Some(InTheWay::of(conflicts)))
                    }
                    GetError::Stopped => ("cancelled".to_owned(), None),
                    error @ GetError::Tree(PartialError::Locked(_)) => {
                        let advice = "'swath jobs' lists your copies on the server, and 'swath attach' shows one";
                        (format!("{}; {advice}", exit::words(error)), None)
                    }
                    error => (exit::words(error), None),
                };
                let is_refused = |reason: &Reason| {
                    matches!(reason.why.lane_error(), Some(LaneError::RefusedAddress { .. }))
                };
                let advice = match error.reasons().iter().any(is_refused) {
                    true => "; the owner of the destination permits that with --third-party-from",
                    false => "",
                };
                let error = names.text(&(words + advice));
                let kept_bytes = kept.known_bytes();
                Failed { exit, error, kept_bytes, passes: Passes::No, in_the_way }
            }
            error => {
                let failure = crate::cp::failure(error);
                plain(failure.exit as u8, &failure.what)
            }
        },
        JobError::Stopped => plain(exit::Exit::Interrupted as u8, "cancelled"),
        JobError::Files(files) if files.is_stopped => {
            plain(exit::Exit::Interrupted as u8, "cancelled")
        }
        JobError::Files(files) => {
            let text = format!("{} of the listed files were not copied", files.failed);
            plain(exit::Exit::Some as u8, &text)
        }
        error => {
            let failure = Failure::from(error);
            plain(failure.exit as u8, &failure.what)
        }
    }
}

fn lines() -> BoardLines {
    let text = "waiting: other copies of this user run on the server".to_owned();
    let last = |exit, words: &str| Line::Failed(Failed::at_once(exit, words.to_owned())).to_json();
    BoardLines {
        waits: Line::event(&Event::note(0.0, text, false)),
        cancelled: last(exit::Exit::Interrupted as u8, "cancelled"),
        broke: last(exit::Exit::Internal as u8, "the server made a mistake"),
    }
}

/// The end of a job that must not go on.
fn failed_with(why: &str) -> JobEnd {
    let line = Line::Failed(Failed::at_once(exit::Exit::Target as u8, why.to_owned())).to_json();
    JobEnd { state: KeptState::Failed, line }
}

const NO_RIGHT: &str = "the token that ordered it does not permit writing any more";
/// Whether the owner of a copy may still write is looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Copies of all users at a time: each has buffers of 96 MB at most.
const RUNNING_MAX: usize = 16;
/// Copies of one user that run or wait: each keeps its order and a record in memory.
const OPEN_OF_ONE_MAX: usize = 1_000;
/// Read at a time.
const PART_BYTES: usize = 1 << 20;
/// Lines on the way to somebody who watches.
const LINES_AHEAD: usize = 64;
/// What comes all the time may take 60 kB a minute of a watcher's link, and 16 kB at first: then all of a
/// minute stays below 100 kB. A line costs its packet, the record of TLS in it, and an acknowledgement.
const PACE: Pace = Pace { bytes_per_s: 500.0, at_once_bytes: 8_000.0, line_bytes: 140.0 };
/// Data that has arrived is written within this time.
const STOP_WITHIN: Duration = Duration::from_secs(5);
