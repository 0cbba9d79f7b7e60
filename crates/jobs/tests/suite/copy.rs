//! Folders and files are copied from, to and within machines.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use swath_jobs::copy::{CopyError, CopyKind, CopyOption, Unfit, copies};
use swath_jobs::ssh::SshFault;
use swath_jobs::{
    Control, CopySpec, JobError, JobEvent, JobObserver, JobSpec, Jobs, Outcome, Streams, Work,
};
use swath_model::Limiter;
use swath_netlab::faulty::{Content, Server};
use swath_serve::{Access, Congestion, Listening, ServerOptions, SiteOptions, Tls};
use swath_transfer::PutError;
use swath_transfer::observe::Event;

use crate::support::{content, folder, is_under_way, jobs, until};

/// The only copy that these places mean.
fn spec(from: &str, to: &Path) -> JobSpec {
    copy_of([from.to_owned(), to.display().to_string()])
}

fn copy_of(places: [String; 2]) -> JobSpec {
    let kind = copies(&places).unwrap().remove(0).unwrap();
    JobSpec::new(Work::Copy(CopySpec::new(kind)))
}

fn change(mut spec: JobSpec, change: impl FnOnce(&mut CopySpec)) -> JobSpec {
    let Work::Copy(copy) = &mut spec.work else { panic!("another kind of job") };
    change(copy);
    spec
}

/// A folder with a few files in it.
fn tree(at: &Path, bytes: u64) {
    fs::create_dir_all(at.join("deep/er")).unwrap();
    fs::write(at.join("small"), "small").unwrap();
    fs::write(at.join("deep/er/large"), content(21).read(0, bytes)).unwrap();
}

fn is_same(one: &Path, other: &Path) -> bool {
    ["small", "deep/er/large"]
        .iter()
        .all(|name| fs::read(one.join(name)).unwrap() == fs::read(other.join(name)).unwrap())
}

/// A server of this folder; it ends with the test's runtime.
async fn serve(at: &Path, access: Access, rate: Option<u64>) -> SocketAddr {
    let site = SiteOptions {
        folders: vec![at.to_owned().into()],
        access,
        follow_links: false,
        only: None,
        name: "test".to_owned(),
        hosts: None,
        reads: swath_transfer::IoMode::Buffered.into(),
        idle_index_bytes: 1 << 20,
        mount: None,
        receive: None,
        third_party: None,
        send_limit: rate.map(|rate| Arc::new(Limiter::new(Some(rate)))),
        receive_limit: None,
    };
    let listening = Listening {
        at: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        tls: Tls::Plain,
        max_connections: 64,
        congestion: Congestion::Auto,
    };
    let options = ServerOptions { site, listening };
    let server = swath_serve::Server::bind(options, None).await.unwrap();
    let address = server.addresses()[0];
    tokio::spawn(server.run(std::future::pending(), Duration::ZERO, |_| {}));
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_copied_within_this_machine_and_only_what_differs() {
    let home = folder();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    tree(&from, 1_000_000);
    let spec = spec(&format!("{}/", from.display()), &to);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&seen);
    let observer: Arc<dyn JobObserver> = Arc::new(move |event: JobEvent| {
        if let JobEvent::Planned { bytes, path, .. } = event {
            keeps.lock().unwrap().push((String::from_utf8(path).unwrap(), bytes));
        }
    });
    let dry = change(spec.clone(), |copy| copy.dry_run = true);
    jobs().run(&dry, &Streams::default(), &observer, &Control::default()).await.unwrap();
    let planned = std::mem::take(&mut *seen.lock().unwrap());
    assert!(planned.contains(&("deep/er/large".to_owned(), Some(1_000_000))), "{planned:?}");
    assert!(!to.exists());
    let Ok(Outcome::Copied(copied)) = jobs().start(spec.clone()).wait().await else {
        panic!("it fails")
    };
    assert!(copied.received.is_whole && !copied.through_ssh && is_same(&from, &to));
    let Ok(Outcome::Copied(copied)) = jobs().start(spec).wait().await else { panic!("it fails") };
    assert_eq!(copied.received.kept_files, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_folder_goes_on_from_what_has_come() {
    let home = folder();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    tree(&from, 5_000_000);
    let address = serve(&from, Access::default(), Some(1_500_000)).await;
    let mut job = jobs().start(spec(&format!("http://{address}/"), &to));
    let mut events = job.events();
    until(&mut events, |event| {
        matches!(event, JobEvent::Transfer(Event::Progress(now)) if now.done_bytes > 1_000_000)
    })
    .await;
    job.pause().unwrap();
    until(&mut events, |event| {
        matches!(event, JobEvent::Transfer(Event::Failed { stopped: true, .. }))
    })
    .await;
    assert!(!to.join("deep/er/large").exists());
    job.resume();
    let mut resumed = 0;
    until(&mut events, |event| {
        if let JobEvent::Transfer(Event::Opened { resumed_bytes, .. }) = event {
            resumed = *resumed_bytes;
        }
        is_under_way(event)
    })
    .await;
    assert!(resumed > 0, "it begins anew");
    let Ok(Outcome::Copied(copied)) = job.wait().await else { panic!("it fails") };
    assert!(copied.received.is_whole && is_same(&from, &to));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_an_address_is_found_to_be_a_folder_or_a_file() {
    let home = folder();
    tree(&home.path().join("from"), 100_000);
    let address = serve(home.path(), Access::default(), None).await;
    let to = home.path().join("to");
    fs::create_dir(&to).unwrap();
    for (place, there) in [("from", "from/deep/er/large"), ("from/small", "small")] {
        let ended = jobs().start(spec(&format!("http://{address}/{place}"), &to)).wait().await;
        assert!(matches!(ended, Ok(Outcome::Copied(_))), "{place}: {ended:?}");
        assert!(to.join(there).is_file(), "{place}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_of_a_plain_web_server_is_fetched_by_its_pages() {
    let page = Content::bytes("<a href=\"a.bin\">a</a> <a href=\"b.bin\">b</a>");
    let server = Server::builder()
        .file_as("/run/", "text/html", page)
        .file("/run/a.bin", content(22))
        .file("/run/b.bin", content(23))
        .start()
        .unwrap();
    let home = folder();
    let spec = spec(&server.url("/run/"), home.path());
    let ended = jobs().start(spec.clone()).wait().await;
    let Ok(Outcome::Files(files)) = ended else { panic!("{ended:?}") };
    assert_eq!((files.complete, home.path().join("b.bin").is_file()), (2, true));
    // Such a server cannot tell what is not there any more.
    let ended = jobs().start(change(spec, |copy| copy.delete = true)).wait().await;
    let Err(JobError::Copy(error)) = ended else { panic!("{ended:?}") };
    let CopyError::Option { option, unfit, .. } = *error else { panic!("{error}") };
    assert_eq!((option, unfit), (CopyOption::Delete, Unfit::WebFolder));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_files_says_so() {
    let home = folder();
    let file = home.path().join("own.bin");
    fs::write(&file, content(24).read(0, 5_000)).unwrap();
    let address = serve(home.path(), Access::default(), None).await;
    let spec = copy_of([file.display().to_string(), format!("http://{address}/")]);
    assert!(matches!(&spec.work, Work::Copy(CopySpec { kind: CopyKind::SendFile { .. }, .. })));
    let ended = jobs().start(spec.clone()).wait().await;
    let Err(JobError::Copy(error)) = ended else { panic!("{ended:?}") };
    let CopyError::Put { error, .. } = *error else { panic!("{error}") };
    let PutError::Server(error) = *error else { panic!("{error}") };
    assert_eq!(error.code(), Some(403));
    // What would be done, the refusal tells.
    let ended = jobs().start(change(spec, |copy| copy.dry_run = true)).wait().await;
    let Err(JobError::Copy(error)) = ended else { panic!("{ended:?}") };
    assert!(matches!(*error, CopyError::Forbidden { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ssh_comes_to_has_a_type() {
    let home = folder();
    let ended = |command: &str| {
        let command = vec![command.to_owned()];
        let spec = change(spec("far:data/", home.path()), |copy| copy.ssh.command = command);
        async {
            let Err(JobError::Copy(error)) = Jobs::default().start(spec).wait().await else {
                panic!("it comes to something")
            };
            let CopyError::Ssh(error) = *error else { panic!("{error}") };
            assert_eq!(error.host, "far");
            error.fault
        }
    };
    let fault = ended("/no/such/ssh").await;
    assert!(matches!(fault, SshFault::Start(_)), "{fault}");
    // Runs there is here, where nothing is called swath.
    let ssh = home.path().join("ssh");
    let script = "#!/bin/sh\nexport PATH=/usr/bin:/bin HOME=/nowhere\n\
                  for line; do :; done\ncase $1 in -G) exit 1;; esac\nexec sh -c \"$line\"\n";
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let fault = ended(&ssh.display().to_string()).await;
    assert!(matches!(fault, SshFault::Missing), "{fault}");
    fs::write(&ssh, "#!/bin/sh\nexit 255\n").unwrap();
    let fault = ended(&ssh.display().to_string()).await;
    assert!(matches!(fault, SshFault::NoConnection), "{fault}");
}

#[test]
fn a_copy_of_every_kind_survives_a_queue_on_disk() {
    let home = folder();
    tree(&home.path().join("from"), 1_000);
    let own = |name: &str| home.path().join("from").join(name).display().to_string();
    for [from, to] in [
        ["https://one.example/run/".to_owned(), own("to")],
        ["https://one.example/run".to_owned(), own("to")],
        [own(""), "https://one.example/run/".to_owned()],
        [own("small"), "https://one.example/run/".to_owned()],
        ["far:data/run".to_owned(), own("to")],
        [own("small"), "me@far:data/".to_owned()],
        [own("small"), home.path().join("to").display().to_string()],
    ] {
        let spec = copy_of([from, to]);
        let written = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<JobSpec>(&written).unwrap(), spec, "{written}");
    }
}
