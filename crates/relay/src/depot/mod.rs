//! A relay's depot by HTTP: what `swath_store::depot` can do, for the clients of the relay.
//!
//! ```text
//! GET    /depot                                    room, the longest lease
//! POST   /depot?size=BYTES&lease=SECONDS           201 and three capabilities, as paths
//!        [&medium=disk|memory][&reserve=no]        reserve=no: space is taken as bytes are stored
//! PUT    /depot/WRITE     Content-Range            2xx once it is durable
//! POST   /depot/WRITE?from=URL&range=A-B           the depot fetches it: lines of JSON
//! GET    /depot/READ[?etag=][&modified=]  Range    what is stored, by what its version is called
//! GET    /depot/ANY?status                         size, ranges held, lease
//! POST   /depot/MANAGE?extend=SECONDS              DELETE /depot/MANAGE
//! ```
//!
//! `ask` understands requests, `read`, `store` and `fetch` do what takes long. Times are durations,
//! never dates: clocks of two sites may be minutes apart. What blocks runs on threads for that.

mod fetch;
mod operation;
mod read;
mod store;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use serde_json::{Value, json};
use swath_model::RangeSet;
use swath_store::depot::{
    AllocateError, Allocation, Capability, Depot, ManageError, Medium, Right, Space, Status,
};
use tokio::sync::{Notify, watch};

use super::Relay;
use swath_serve::Client;

use crate::leases::Leases;
use operation::Operation;
pub(super) use operation::is_for_depot;
use swath_serve::Life;
use swath_serve::exposition::Page;
use swath_serve::http::{Content, Head, Make, Method, Response};

#[cfg(feature = "fuzzing")]
pub(crate) use operation::fuzz;

/// A depot that others use.
pub(super) struct DepotService {
    depot: Depot,
    /// Some lease may end sooner than the one that was waited for.
    sooner: Arc<Notify>,
    leases: Arc<Leases>,
    figures: Figures,
}

/// Counters; all grow only.
#[derive(Debug, Default)]
struct Figures {
    /// That others stored.
    stored_bytes: AtomicU64,
    /// That were fetched for them.
    fetched_bytes: AtomicU64,
    read_bytes: AtomicU64,
}

impl DepotService {
    /// Opens it. Must be called within a tokio runtime: what has ended is taken away by a task until
    /// the server ends.
    pub fn open(depot: Depot, life: watch::Receiver<Life>) -> Arc<DepotService> {
        let sooner = Arc::new(Notify::new());
        tokio::spawn(sweep(depot.clone(), Arc::clone(&sooner), life));
        Arc::new(DepotService {
            depot,
            sooner,
            leases: Arc::default(),
            figures: Figures::default(),
        })
    }

    /// Does something with the depot, on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Depot) -> T + Send + 'static,
    ) -> Result<T, Response> {
        let depot = self.depot.clone();
        blocking(move || work(&depot)).await
    }

    /// What an allocation is like that still has its files, if the capability is for that.
    async fn find(&self, capability: &Capability, wanted: Right) -> Result<Status, Response> {
        let status = self.find_any(capability, wanted).await?;
        if status.is_lost { Err(lost()) } else { Ok(status) }
    }

    /// The same of any.
    async fn find_any(&self, capability: &Capability, wanted: Right) -> Result<Status, Response> {
        let one = capability.clone();
        match self.blocking(move |depot| depot.status(&one)).await? {
            Some(status) if status.right == wanted => Ok(status),
            Some(status) => {
                let (has, wanted) = (word(status.right), word(wanted));
                let text = format!("this capability opens {has}, not {wanted}");
                Err(Response::text(403, text))
            }
            None => Err(self.nothing(capability)),
        }
    }

    /// No live allocation has this capability.
    fn nothing(&self, capability: &Capability) -> Response {
        if self.depot.has_ended(capability) {
            return over();
        }
        ended(Response::text(404, "no allocation has this address"))
    }

    async fn usage(&self) -> Result<Response, Response> {
        let usage = self.blocking(Depot::usage).await?;
        let options = self.depot.options();
        let of = |free: u64, taken: u64| json!({"free_bytes": free, "taken_bytes": taken});
        Ok(told(
            200,
            &json!({
                "disk": of(usage.disk_free_bytes, usage.disk_taken_bytes),
                "memory": of(usage.memory_free_bytes, usage.memory_taken_bytes),
                "allocations": usage.allocations,
                "allocations_max": options.leases_max,
                "lease_max_s": options.length_max.as_secs(),
            }),
        ))
    }

    async fn allocate(
        &self,
        client: Client,
        size_bytes: u64,
        length: Duration,
        medium: Option<Medium>,
        space: Space,
    ) -> Result<Response, Response> {
        let has_disk = self.depot.options().folder.is_some();
        let usual = if has_disk { Medium::Disk } else { Medium::Memory };
        let medium = medium.unwrap_or(usual);
        let make = move |depot: &Depot| depot.allocate_with(size_bytes, length, medium, space);
        let leases = Arc::clone(&self.leases);
        if !self.blocking(move |depot| leases.may_grow(client, depot)).await? {
            let text = "half of all allocations are this client's, and it is given no more";
            return Err(Response::text(507, text));
        }
        let made = self.blocking(make).await?;
        let Allocation { read, write, manage, left, .. } = made.map_err(|error| refused(&error))?;
        self.leases.add(client, manage.clone());
        self.sooner.notify_one();
        Ok(told(
            201,
            &json!({
                "read": format!("/depot/{read}"),
                "write": format!("/depot/{write}"),
                "manage": format!("/depot/{manage}"),
                "size": size_bytes,
                "reserved": space == Space::Reserved,
                "lease_s": seconds(left),
                "medium": name_of(medium),
            }),
        ))
    }

    async fn status(&self, any: &Capability) -> Result<Response, Response> {
        let one = any.clone();
        let found = self.blocking(move |depot| depot.status(&one)).await?;
        let status = found.ok_or_else(|| self.nothing(any))?;
        if status.is_lost {
            return Err(lost());
        }
        Ok(told(
            200,
            &json!({
                "id": status.id.to_string(),
                "opens": word(status.right),
                "size": status.size_bytes,
                "held": ranges(&status.held),
                "held_bytes": status.held.total_bytes(),
                "taken_bytes": status.taken_bytes,
                "damaged": ranges(&status.damaged),
                "lease_s": seconds(status.left),
                "medium": name_of(status.medium),
            }),
        ))
    }

    async fn extend(&self, manage: Capability, length: Duration) -> Result<Response, Response> {
        self.find(&manage, Right::Manage).await?;
        let one = manage.clone();
        let extended = self.blocking(move |depot| depot.extend(&one, length)).await?;
        let left = extended.map_err(|error| self.unmanaged(&manage, &error))?;
        Ok(told(200, &json!({"lease_s": seconds(left)})))
    }

    async fn release(&self, manage: Capability) -> Result<Response, Response> {
        let one = manage.clone();
        let released = self.blocking(move |depot| depot.release(&one)).await?;
        if matches!(released, Err(ManageError::NoLease)) {
            // It may open something else.
            self.find_any(&manage, Right::Manage).await?;
        }
        released.map_err(|error| self.unmanaged(&manage, &error))?;
        Ok(ended(Response::empty(204)))
    }

    fn unmanaged(&self, manage: &Capability, error: &ManageError) -> Response {
        match error {
            ManageError::NoLease => self.nothing(manage),
            ManageError::TooLong { .. } => Response::text(400, error.to_string()),
            _ => broken(error),
        }
    }

    /// Adds what there is to tell to a page of figures.
    pub async fn tell(&self, page: &mut Page) {
        let figures = [
            ("stored", "Bytes that others stored in the depot.", &self.figures.stored_bytes),
            ("fetched", "Bytes that the depot fetched.", &self.figures.fetched_bytes),
            ("read", "Bytes that were read from the depot.", &self.figures.read_bytes),
        ];
        for (name, help, counter) in figures {
            page.counter(&format!("swath_depot_{name}_bytes_total"), help, counter);
        }
        let Ok(usage) = self.blocking(Depot::usage).await else { return };
        let both = |disk: u64, memory: u64| {
            let of = |medium, bytes| (format!("{{medium=\"{medium}\"}}"), bytes as f64);
            [of("disk", disk), of("memory", memory)]
        };
        let taken = both(usage.disk_taken_bytes, usage.memory_taken_bytes);
        page.family("swath_depot_taken_bytes", "gauge", "Bytes that are leased.", &taken);
        let free = both(usage.disk_free_bytes, usage.memory_free_bytes);
        page.family("swath_depot_free_bytes", "gauge", "Bytes that may be leased.", &free);
        let help = "Allocations whose leases run.";
        page.one("swath_depot_allocations", "gauge", help, usage.allocations as f64);
    }
}

impl Relay {
    /// Answers what is asked of the depot.
    pub(super) async fn answer_for_depot(
        &self,
        head: &Head,
        client: Client,
        body: &mut dyn Make,
    ) -> Response {
        let Some(door) = &self.door else {
            return Response::text(404, "this relay has no depot (it was started without --depot)");
        };
        // Whoever may use the relay by their address alone may look at pages, and these have browsers
        // ask: which tell so, as no other client does.
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        if !is_read && head.field("origin").is_some() {
            return Response::text(403, "a depot does nothing on behalf of web pages");
        }
        let asked = match Operation::read(head) {
            Ok(asked) => asked,
            Err(error) => return error.response(),
        };
        let done = match asked {
            Operation::Usage => door.usage().await,
            Operation::Allocate { size_bytes, length, medium, space } => {
                door.allocate(client, size_bytes, length, medium, space).await
            }
            Operation::Store { write, range, size_bytes } => {
                door.store(&write, range, size_bytes, body).await
            }
            Operation::Fetch { write, from, range } => {
                self.fetch(door, head, write, from, range).await
            }
            Operation::Read { read, version } => door.read(&read, version, head).await,
            Operation::Status { any } => door.status(&any).await,
            Operation::Extend { manage, length } => door.extend(manage, length).await,
            Operation::Release { manage } => door.release(manage).await,
        };
        done.unwrap_or_else(|refusal| refusal)
    }
}

/// Takes away what has ended, when it has.
async fn sweep(depot: Depot, sooner: Arc<Notify>, mut life: watch::Receiver<Life>) {
    loop {
        let swept = depot.clone();
        let next = blocking(move || swept.sweep()).await.ok().flatten();
        let wait = next.map_or(SWEEP_EVERY, |next| next.min(SWEEP_EVERY));
        tokio::select! {
            () = tokio::time::sleep(wait.max(SWEEP_PAUSE)) => {}
            () = sooner.notified() => {}
            // With the server; its sender is gone then, too.
            _ = life.wait_for(|&life| life == Life::Ending) => return,
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Response> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Response::text(500, "the depot could not do this"))
}

/// An answer for programs.
fn told(status: u16, value: &Value) -> Response {
    Response::empty(status)
        .with("content-type", "application/json")
        .with("cache-control", "no-store")
        .containing(Content::Bytes(format!("{value}\n").into_bytes()))
}

/// The lease has ended.
fn over() -> Response {
    ended(Response::text(410, "the lease has ended, or was given up"))
}

/// No lease runs: a depot's own word. Any server may answer 404, and so does this relay when it is
/// started again without its depot, which still holds everything then.
fn ended(response: Response) -> Response {
    response.with("swath-lease", "0")
}

/// Somebody has taken the files away: that is no lease's end, and the client is to say so.
fn lost() -> Response {
    Response::text(410, "what was stored here was removed from the depot's disk")
        .with("swath-lost", "1")
}

/// The depot's disk does not do what it should.
fn broken(error: &dyn std::error::Error) -> Response {
    let cause = error.source().map_or_else(String::new, |source| format!(": {source}"));
    tracing::warn!("{error}{cause}");
    Response::text(500, "the depot's disk cannot do this")
}

fn refused(error: &AllocateError) -> Response {
    match error {
        AllocateError::Empty | AllocateError::TooLong { .. } => {
            Response::text(400, error.to_string())
        }
        AllocateError::NoRoom { .. }
        | AllocateError::TooMany { .. }
        | AllocateError::DiskFull { .. } => Response::text(507, error.to_string()),
        error => broken(error),
    }
}

/// Half-open, as everywhere in swath but in header fields.
fn ranges(set: &RangeSet) -> Vec<[u64; 2]> {
    set.iter().map(|range| [range.start, range.end]).collect()
}

/// To the millisecond.
fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1e3
}

fn name_of(medium: Medium) -> &'static str {
    match medium {
        Medium::Disk => "disk",
        Medium::Memory => "memory",
    }
}

fn word(right: Right) -> &'static str {
    match right {
        Right::Read => "reading",
        Right::Write => "storing",
        Right::Manage => "managing",
    }
}

/// Whatever is missed otherwise is found within this time.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Many leases that end one soon after the other are taken away together.
const SWEEP_PAUSE: Duration = Duration::from_millis(100);
