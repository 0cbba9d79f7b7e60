//! `swath serve --write --third-party`: copies that others order, in which this server fetches.
//!
//! Each is a job of the board, run as `swath cp` would run it here (`run.rs`). The lines for whoever watches
//! are those of an upload. Single files by `COPY` end with their client (`one_file.rs`).

mod one_file;
mod order;
mod run;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use swath_formats::percent;
use swath_jobs::board::{
    Activity, Board, BoardError, BoardLimits, JobSeat, ListedJob, NewJob, Pace, RecordReader,
    Work as BoardWork,
};
use swath_jobs::{Control, Environment, Routes};
use swath_serve::{
    Access, CopyOrder, Copying, Destination, FetchOrder, JobLines, OrderedJob, Refused, ThirdParty,
    Unfinished, Who,
};
use swath_source::{ClientCertificate, NetOptions, Reach, ServerAccess, display_name};
use swath_state::{KeepError, KeptState};
use swath_transfer::observe::Event;
use swath_transfer::sending::Line;
use swath_transfer::third_party::{ServerJob, ServerJobState, ServerJobs, Terms};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use super::{listed, machine, told};
use crate::exit::{chain, warn};
use crate::failure::Failure;
use crate::identity;
use one_file::OneFile;
use order::KeptOrder;
use run::FetchJob;

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

impl FetchRules {
    /// How other servers are reached, and shown this certificate; `servers` open some of them.
    fn net(&self, certificate: &ClientCertificate, servers: Vec<ServerAccess>) -> NetOptions {
        NetOptions {
            certificate: Some(certificate.clone()),
            ca_files: self.ca_files.clone(),
            reach: Some(self.reach.clone()),
            servers,
            ..NetOptions::default()
        }
    }
}

/// Fetches from other servers.
pub struct Fetcher {
    board: Board,
    certificate: ClientCertificate,
    access: Access,
    rules: FetchRules,
    runtime: Handle,
    /// Orders come one after the other: the same order, sent twice, is one job.
    ordering: Mutex<()>,
    /// Orders of an earlier run, until they are begun again.
    unfinished: Mutex<Vec<swath_state::KeptJob>>,
}

fn limits(rules: &FetchRules) -> BoardLimits {
    BoardLimits {
        running: RUNNING_MAX,
        running_of_one: rules.running_of_one,
        open: OPEN_MAX.min(swath_serve::descriptor_limit() / OPEN_PART),
        open_of_one: OPEN_OF_ONE_MAX,
    }
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
        Ok(Fetcher {
            board,
            certificate,
            access,
            rules,
            runtime,
            ordering: Mutex::default(),
            unfinished,
        })
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
        Ok(Fetcher {
            board,
            certificate,
            access,
            rules,
            runtime,
            ordering: Mutex::default(),
            unfinished,
        })
    }

    /// Stops all jobs; they go on when the server is started again.
    pub async fn stop(&self) {
        self.board.stop(STOP_WITHIN).await;
    }

    /// Returns the work of an order.
    fn work(
        &self,
        owner: Who,
        destination: Destination,
    ) -> impl FnOnce(JobSeat) -> BoardWork + Send + 'static {
        let (certificate, access) = (self.certificate.clone(), self.access.clone());
        let job = FetchJob { rules: self.rules.clone(), certificate, access, owner, destination };
        |seat: JobSeat| -> BoardWork { Box::pin(job.run(seat)) }
    }

    /// Finds the owner's open job that is the same copy, and lets it read the sources for longer if this order
    /// does. Returns its name.
    fn joined(&self, new: &NewJob, order: &KeptOrder) -> Result<Option<String>, KeepError> {
        let open = self.board.open_at(&new.owner, &new.place).into_iter();
        let mut open = open.filter_map(|(id, text)| Some((id, KeptOrder::of_text(&text).ok()?)));
        let Some((id, before)) = open.find(|(_, before)| before.is_same(order)) else {
            return Ok(None);
        };
        if before.is_renewed_by(order) {
            self.board.change(&id, &new.order)?;
        }
        Ok(Some(id))
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

    fn order(&self, order: FetchOrder) -> Result<OrderedJob, Refused> {
        let FetchOrder { rights, id, destination, path, wishes, sources } = order;
        let owner = rights.who;
        let sources = serde_json::from_slice(&sources);
        let sources = sources.map_err(|error| Refused::Order(format!("the sources: {error}")))?;
        // What only this request means.
        let is_wish = |(name, _): &(String, String)| name != "swath" && name != "job";
        let wishes = wishes.into_iter().filter(is_wish).collect();
        let order = KeptOrder { wishes, sources, rights: Some(rights.to_text()) };
        let from: Vec<String> =
            order.urls().map_err(Refused::Order)?.iter().map(display_name).collect();
        let text = serde_json::to_string(&order);
        let text = text.map_err(|error| Refused::Order(error.to_string()))?;
        let new = NewJob {
            id,
            owner: owner.to_string(),
            place: format!("/{}", percent::encode(&path)),
            from: from.join(" "),
            order: text,
            is_forgotten: order.is_dry(),
            lines: run::lines(),
        };
        let _ordering = self.ordering.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = |error: KeepError| match error {
            KeepError::Taken => Refused::Taken,
            error => Refused::Failed(chain(&error)),
        };
        let joined = self.joined(&new, &order).map_err(kept)?;
        if joined.is_none() && self.board.is_open(&new.id) {
            return Err(Refused::Taken);
        }
        let new = NewJob { id: joined.unwrap_or(new.id), ..new };
        let id = new.id.clone();
        let _runtime = self.runtime.enter();
        let begun = self.board.begin(new, self.work(owner, destination));
        let reader = begun.map_err(|error| match error {
            BoardError::Name => Refused::Order(error.to_string()),
            BoardError::Keep(error) => kept(error),
            error => Refused::Busy(error.to_string()),
        })?;
        Ok(OrderedJob { id, lines: self.follow(reader) })
    }

    fn copy(&self, order: CopyOrder) -> Result<Copying, Refused> {
        let owner = order.owner.to_string();
        let copy = OneFile::of(order)?;
        let net = self.rules.net(&self.certificate, Vec::new());
        let remotes = net.remotes.clone();
        let (jobs, spec) = copy.job(&self.rules, net);
        let (sender, bytes) = watch::channel(0);
        let (ended, end) = oneshot::channel();
        let control = Control::default();
        let cancels = Box::new(CancelOnDrop(control.clone()));
        let board = self.board.clone();
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
        Ok(Copying { bytes, remotes: Box::new(move || remotes.all()), end, cancels })
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
        let jobs = ServerJobs { jobs: all.into_iter().map(listed_job).collect() };
        Ok(serde_json::to_string(&jobs).unwrap_or_default())
    }

    fn unfinished(&self) -> Vec<Unfinished> {
        let unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |job: &swath_state::KeptJob| {
            let owner = job.owner.parse::<Who>().ok();
            let rights = owner.zip(KeptOrder::of_text(&job.order).ok());
            Unfinished {
                id: job.id.clone(),
                path: percent::decode(job.place.trim_matches('/')),
                rights: rights.and_then(|(owner, order)| order.rights_of(owner)),
            }
        };
        unfinished.iter().map(of).collect()
    }

    fn resume(&self, id: &str, destination: Option<Destination>) {
        let job = {
            let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(at) = unfinished.iter().position(|job| job.id == id) else { return };
            unfinished.remove(at)
        };
        let destination = destination.ok_or(
            "its destination cannot be opened any more, or the rights of its owner were not kept: order it again",
        );
        let owner = job.owner.parse::<Who>().map_err(|()| "its owner is not known");
        match owner.and_then(|owner| Ok((owner, destination?))) {
            Ok((owner, destination)) => {
                let _runtime = self.runtime.enter();
                self.board.resume(&job, run::lines(), self.work(owner, destination));
            }
            Err(why) => {
                let end = run::failed_with(why);
                if let Err(error) = self.board.end(id, &end) {
                    warn(&format!("--third-party: {}", chain(&error)));
                }
            }
        }
    }
}

/// Returns a job as its owner may see it.
fn listed_job(ListedJob { kept, activity, progress }: ListedJob) -> ServerJob {
    let line = kept.result.as_deref().or(progress.as_deref());
    let (done_bytes, size_bytes, error) = match line.map(|line| Line::parse(line.as_bytes())) {
        Some(Ok(Line::Received(end))) => {
            let bytes = Some(end.transfer.size_bytes);
            (bytes, bytes, None)
        }
        Some(Ok(Line::Failed(failed))) => (failed.kept_bytes, None, Some(failed.error)),
        Some(Ok(Line::Event(event))) => match *event {
            Event::Progress(now) => (Some(now.done_bytes), now.size_bytes, None),
            _ => (None, None, None),
        },
        _ => (None, None, None),
    };
    ServerJob {
        job: kept.id,
        to: percent::decode_text(&kept.place),
        from: kept.from.split_whitespace().map(str::to_owned).collect(),
        state: match (kept.state, activity) {
            (KeptState::Open, Some(Activity::Running)) => ServerJobState::Running,
            (KeptState::Open, Some(Activity::Resting)) => ServerJobState::NoToken,
            (KeptState::Open, _) => ServerJobState::Waiting,
            (KeptState::Done, _) => ServerJobState::Done,
            (KeptState::Failed, _) => ServerJobState::Failed,
            (KeptState::Cancelled, _) => ServerJobState::Cancelled,
        },
        ordered_s: kept.ordered_s,
        ended_s: kept.ended_s,
        done_bytes,
        size_bytes,
        error: error.filter(|_| kept.state == KeptState::Failed),
    }
}

/// Cancels a copy when nobody waits for it any more.
struct CancelOnDrop(Control);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Copies of all users at a time: each has buffers of 96 MB at most.
const RUNNING_MAX: usize = 16;
/// Copies of one user that run or wait: each keeps its order and a record in memory.
const OPEN_OF_ONE_MAX: usize = 1_000;
/// Jobs of all users that run or wait, …
const OPEN_MAX: usize = 10_000;
/// … and no more than this part of the descriptors: each has two of its own, of its folder.
const OPEN_PART: usize = 8;
/// Lines on the way to somebody who watches.
const LINES_AHEAD: usize = 64;
/// What comes all the time may take 60 kB a minute of a watcher's link, and 16 kB at first: then all of a
/// minute stays below 100 kB. A line costs its packet, the record of TLS in it, and an acknowledgement.
const PACE: Pace = Pace { bytes_per_s: 500.0, at_once_bytes: 8_000.0, line_bytes: 140.0 };
/// Data that has arrived is written within this time.
const STOP_WITHIN: Duration = Duration::from_secs(5);
