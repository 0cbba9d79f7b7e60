//! FileCounts, Metalinks and lists are fetched, and what goes wrong has a type.

use std::io::Cursor;
use std::sync::{Arc, Mutex};

use swath_jobs::{
    Address, Control, EntryError, Environment, FileCounts, FileError, GetFrom, GetTo, Header,
    JobError, JobEvent, JobObserver, JobSpec, Jobs, MetalinkError, NameConflict, Note, Outcome,
    SecretError, SecretRef, SpecError, Streams,
};
use swath_netlab::faulty::{Behaviour, Server};
use swath_source::Secret;
use swath_transfer::GetError;
use swath_transfer::observe::Verified;

use crate::support::{changed, content, folder, get, jobs, server, sha256};

fn replicas(address: &str) -> GetFrom {
    GetFrom::Replicas(vec![Address::new(address)])
}

async fn run(spec: JobSpec) -> Result<Outcome, JobError> {
    jobs().start(spec).wait().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_fetched_from_its_replicas_and_proved() {
    let content = content(1);
    let (one, two, folder) = (server(&content), server(&content), folder());
    let spec = JobSpec::get([one.url("/data.bin"), two.url("/data.bin")], folder.path());
    let spec = changed(spec, |get| get.digests.push(sha256(&content).parse().unwrap()));
    let Ok(Outcome::File(summary)) = run(spec).await else { panic!("it fails") };
    assert_eq!((summary.verified, summary.size_bytes), (Verified::Digest, content.size_bytes()));
    let there = std::fs::read(folder.path().join("data.bin")).unwrap();
    assert!(there == content.read(0, content.size_bytes()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metalink_of_one_file_is_asked_for_again_where_its_server_is_busy() {
    let content = content(2);
    let (data, folder) = (server(&content), folder());
    let metalink = format!(
        r#"<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="b.bin"><size>{}</size>
           <hash type="sha-256">{}</hash><url>{}</url></file></metalink>"#,
        content.size_bytes(),
        &sha256(&content)["sha-256:".len()..],
        data.url("/data.bin"),
    );
    let metalink = swath_netlab::faulty::Content::bytes(metalink);
    let site = Server::builder()
        .file_as("/b.meta4", "application/metalink4+xml", metalink)
        .behaviour(Behaviour::status(503).first(1))
        .start()
        .unwrap();
    let mut job = jobs().start(JobSpec::get([site.url("/b.meta4")], folder.path()));
    let mut events = job.events();
    crate::support::until(&mut events, |event| {
        matches!(event, JobEvent::Note(Note::Metalink { files: 1, mirrors: 1, .. }))
    })
    .await;
    let Ok(Outcome::File(summary)) = job.wait().await else { panic!("it fails") };
    assert_eq!(summary.verified, Verified::Digest);
    assert!(folder.path().join("b.bin").is_file());
    assert_eq!(site.log().on("/b.meta4").count(), 2, "the answer was 503 once");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_list_each_file_that_fails_is_told_with_its_reason() {
    let content = content(3);
    let (server, folder) = (server(&content), folder());
    let url = server.url("/data.bin");
    let list = format!("{url}\n  out=a\n{url}\n  out=b\n{url}\n  out=a\n{}\n", server.url("/no"));
    let path = folder.path().join("list.txt");
    std::fs::write(&path, list).unwrap();
    let spec = get(GetFrom::List(path), GetTo::Folder(folder.path().join("to")));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (keeps, streams) = (Arc::clone(&seen), Streams::default());
    let observer: Arc<dyn JobObserver> = Arc::new(move |event: JobEvent| {
        if let JobEvent::FileFailed { file, error, .. } = event {
            keeps.lock().unwrap().push((file, error));
        }
    });
    let ended = jobs().run(&spec, &streams, &observer, &Control::default()).await;
    let Err(JobError::Files(files)) = ended else { panic!("{ended:?}") };
    assert_eq!(files, FileCounts { complete: 2, failed: 2, is_stopped: false });
    assert!(folder.path().join("to/a").is_file() && folder.path().join("to/b").is_file());
    let mut failed = std::mem::take(&mut *seen.lock().unwrap());
    failed.sort_by_key(|(file, _)| *file);
    let [(2, FileError::Entry(EntryError::Name(NameConflict::Same))), (3, of_last)] = &failed[..]
    else {
        panic!("{failed:?}")
    };
    let FileError::Transfer { error, .. } = of_last else { panic!("{of_last:?}") };
    assert!(matches!(**error, GetError::Exhausted { has_some: false, .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_comes_by_a_stream_that_is_handed_over() {
    let content = content(4);
    let (server, folder) = (server(&content), folder());
    let list = format!("{}\n", server.url("/data.bin"));
    let spec = get(GetFrom::ListStream, GetTo::Folder(folder.path().to_owned()));
    let ended = run(spec.clone()).await;
    assert!(matches!(ended, Err(JobError::Spec(SpecError::NoStream))), "{ended:?}");
    let list = Arc::new(move || Box::new(Cursor::new(list.clone())) as _);
    let streams = Streams { list: Some(list), output: None };
    let observer: Arc<dyn JobObserver> = Arc::new(|_: JobEvent| {});
    let ended = jobs().run(&spec, &streams, &observer, &Control::default()).await;
    assert!(matches!(ended, Ok(Outcome::Files(FileCounts { complete: 1, .. }))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_has_a_type() {
    let content = content(5);
    let (server, folder) = (server(&content), folder());
    let to = || GetTo::Folder(folder.path().to_owned());
    let nothing = GetFrom::Replicas(Vec::new());
    let ended = run(get(nothing, to())).await;
    assert!(matches!(ended, Err(JobError::Spec(SpecError::NoSource))), "{ended:?}");
    let ended = run(get(replicas("gopher://secret@host/f?secret"), to())).await;
    let Err(JobError::Address(error)) = ended else { panic!("{ended:?}") };
    assert!(!error.to_string().contains("secret"), "{error}");
    let ended = run(get(replicas(&server.url("/no.meta4")), to())).await;
    let Err(JobError::Metalink(MetalinkError::Fetch { error, .. })) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(error.code(), Some(404));
    let report = folder.path().join("data.bin.swath");
    let spec = get(replicas(&server.url("/data.bin")), to());
    let ended = run(changed(spec, |get| get.reserved.push(report.clone()))).await;
    let Err(JobError::Spec(SpecError::Reserved { path, .. })) = ended else { panic!("{ended:?}") };
    assert_eq!((path, folder.path().join("data.bin").exists()), (report, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_sent_and_shown_nowhere() {
    let content = content(6);
    let (server, folder) = (server(&content), folder());
    let mut spec = JobSpec::get([server.url("/data.bin?sig=hidden")], folder.path());
    let value = SecretRef::Name("key".to_owned());
    spec.network.headers.push(Header { name: "X-Key".to_owned(), value });
    let ended = run(spec.clone()).await;
    let Err(JobError::Secret(SecretError::Unknown(name))) = ended else { panic!("{ended:?}") };
    assert_eq!(name, "key");
    let mut environment = Environment::default();
    environment.secrets.insert("key".to_owned(), Secret::new("hidden"));
    let shown = format!("{spec:?} {environment:?}");
    assert!(!shown.contains("hidden"), "{shown}");
    Jobs::new(environment).start(spec).wait().await.unwrap();
    let log = server.log();
    assert!(log.on("/data.bin").count() > 0);
    assert!(log.on("/data.bin").all(|record| record.header("x-key") == Some("hidden")));
}
