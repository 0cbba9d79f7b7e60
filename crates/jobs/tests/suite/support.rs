//! Servers and jobs as the tests want them.

use std::time::Duration;

use swath_jobs::{Events, GetFrom, GetSpec, GetTo, JobEvent, JobSpec, Jobs, StreamItem, Work};
use swath_netlab::faulty::{Algorithm, Content, Server};
use swath_transfer::observe::Event;
use tempfile::TempDir;
use tokio::time::timeout;

/// Nothing here takes so long, even on a loaded machine.
pub const LONG: Duration = Duration::from_secs(90);

pub fn content(seed: u64) -> Content {
    Content::random(seed, SIZE_BYTES)
}

/// A server with one file.
pub fn server(content: &Content) -> Server {
    Server::builder().file("/data.bin", content.clone()).start().unwrap()
}

pub fn sha256(content: &Content) -> String {
    format!("sha-256:{}", content.digest_hex(Algorithm::Sha256))
}

pub fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub fn jobs() -> Jobs {
    Jobs::default()
}

/// The same job with changed wishes.
pub fn changed(mut spec: JobSpec, change: impl FnOnce(&mut GetSpec)) -> JobSpec {
    let Work::Get(get) = &mut spec.work else { panic!("another kind of job") };
    change(get);
    spec
}

pub fn get(from: GetFrom, to: GetTo) -> JobSpec {
    JobSpec::new(Work::Get(GetSpec::new(from, to)))
}

/// Reads events until one is as wanted.
pub async fn until(events: &mut Events, mut wanted: impl FnMut(&JobEvent) -> bool) {
    let found = async {
        loop {
            match events.next().await {
                Some(StreamItem::Event(event)) if wanted(&event) => return,
                Some(_) => {}
                None => panic!("the job ended without that event"),
            }
        }
    };
    timeout(LONG, found).await.expect("the event comes");
}

/// Whether some of the file is there.
pub fn is_under_way(event: &JobEvent) -> bool {
    match event {
        JobEvent::Transfer(Event::Progress(now))
        | JobEvent::File { event: Event::Progress(now), .. } => now.done_bytes > 0,
        _ => false,
    }
}

/// Bytes of each file.
pub const SIZE_BYTES: u64 = 6_000_000;
