//! Jobs are paused, go on, are cancelled, and are started again.

use swath_jobs::{
    CannotPause, FileCounts, GetFrom, GetTo, JobError, JobEvent, JobSpec, JobState, Outcome,
};
use swath_netlab::faulty::{Behaviour, Content};
use swath_transfer::GetError;
use swath_transfer::observe::Event;

use crate::support::{LONG, SIZE_BYTES, content, folder, get, is_under_way, jobs, server, until};

/// No whole file comes before its job is paused.
const SLOW: u64 = 300_000;

/// A whole other job, in the time of which a job that runs would have gone on.
async fn meanwhile(content: &Content) {
    let (server, folder) = (server(content), folder());
    jobs().start(JobSpec::get([server.url("/data.bin")], folder.path())).wait().await.unwrap();
}

/// Whether the transfer was stopped.
fn is_stopped(event: &JobEvent) -> bool {
    matches!(
        event,
        JobEvent::Transfer(Event::Failed { stopped: true, .. })
            | JobEvent::File { event: Event::Failed { stopped: true, .. }, .. }
    )
}

fn is_whole(path: &std::path::Path, content: &Content) -> bool {
    std::fs::read(path).is_ok_and(|there| there == content.read(0, SIZE_BYTES))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_file_asks_for_nothing_and_goes_on_from_what_has_come() {
    let content = content(11);
    let (server, folder) = (server(&content), folder());
    server.set(Behaviour::rate(SLOW));
    let mut job = jobs().start(JobSpec::get([server.url("/data.bin")], folder.path()));
    let mut events = job.events();
    until(&mut events, is_under_way).await;
    job.pause().unwrap();
    assert_eq!(job.state(), JobState::Paused);
    until(&mut events, is_stopped).await;
    let requests = server.log().len();
    meanwhile(&content).await;
    assert_eq!(server.log().len(), requests, "it asks for more");
    assert!(server.sent_bytes() < SIZE_BYTES && !folder.path().join("data.bin").exists());
    server.clear();
    job.resume();
    let mut resumed = None;
    until(&mut events, |event| {
        if let JobEvent::Transfer(Event::Opened { resumed_bytes, .. }) = event {
            resumed = Some(*resumed_bytes);
        }
        resumed.is_some()
    })
    .await;
    assert!(resumed > Some(0), "it begins anew");
    assert!(matches!(job.wait().await, Ok(Outcome::File(_))));
    assert!(is_whole(&folder.path().join("data.bin"), &content));
    assert!(events_end(events).await);
}

/// Whether a stream ends once its job has.
async fn events_end(mut events: swath_jobs::Events) -> bool {
    let end = async { while events.next().await.is_some() {} };
    tokio::time::timeout(LONG, end).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_list_begins_no_further_file_and_loses_its_place_nowhere() {
    let content = content(12);
    let (server, folder) = (server(&content), folder());
    server.set(Behaviour::rate(SLOW));
    let url = server.url("/data.bin");
    let list: String = (0..4).map(|n| format!("{url}\n  out={n}\n")).collect();
    let path = folder.path().join("list");
    std::fs::write(&path, list).unwrap();
    let to = folder.path().join("to");
    let spec = get(GetFrom::List(path), GetTo::Folder(to.clone()));
    let spec = crate::support::changed(spec, |get| get.files_at_once = Some(2));
    let mut job = jobs().start(spec);
    let mut events = job.events();
    until(&mut events, is_under_way).await;
    job.pause().unwrap();
    until(&mut events, is_stopped).await;
    // The other one that may have begun has stopped, too, when another job has come and gone.
    meanwhile(&content).await;
    let requests = server.log().len();
    meanwhile(&content).await;
    assert_eq!(server.log().len(), requests, "it asks for more");
    assert!((0..4).all(|n| !to.join(n.to_string()).exists()));
    server.clear();
    job.resume();
    let ended = job.wait().await;
    let Ok(Outcome::Files(files)) = ended else { panic!("{ended:?}") };
    assert_eq!(files, FileCounts { complete: 4, ..FileCounts::default() });
    assert!((0..4).all(|n| is_whole(&to.join(n.to_string()), &content)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_keeps_what_has_come_for_the_same_job() {
    let content = content(13);
    let (server, folder) = (server(&content), folder());
    server.set(Behaviour::rate(SLOW));
    let spec = JobSpec::get([server.url("/data.bin")], folder.path());
    for paused in [false, true] {
        let mut job = jobs().start(spec.clone());
        let mut events = job.events();
        until(&mut events, is_under_way).await;
        if paused {
            job.pause().unwrap();
            until(&mut events, is_stopped).await;
        }
        job.cancel();
        let ended = tokio::time::timeout(LONG, job.wait()).await.expect("it ends");
        let Err(JobError::Transfer { error, kept, .. }) = ended else { panic!("{ended:?}") };
        assert!(matches!(*error, GetError::Stopped) && kept.bytes > 0, "{kept:?}");
    }
    server.clear();
    // What a queue on disk would start after a crash is what was written down.
    let written = serde_json::to_string(&spec).unwrap();
    let ended = jobs().start(serde_json::from_str(&written).unwrap()).wait().await;
    let Ok(Outcome::File(summary)) = ended else { panic!("{ended:?}") };
    assert!(summary.resumed_bytes > 0);
    assert!(is_whole(&folder.path().join("data.bin"), &content));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_to_a_stream_is_not_paused() {
    let content = content(14);
    let server = server(&content);
    let from = GetFrom::Replicas(vec![swath_jobs::Address::new(server.url("/data.bin"))]);
    let job = jobs().start(get(from, GetTo::Stream));
    assert_eq!(job.pause(), Err(CannotPause));
    job.cancel();
}
