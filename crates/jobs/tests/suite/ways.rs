//! The directions in which a tree can be copied, each by a job in this process and a real server: what
//! holds in one of them has to hold in all.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use swath_jobs::copy::{CopyError, copies};
use swath_jobs::{
    Control, CopySpec, JobError, JobEvent, JobObserver, JobSpec, Outcome, Streams, Work,
};
use swath_model::Limiter;
use swath_serve::{Access, Congestion, Listening, ServerOptions, SiteOptions, Tls, Token};
use swath_transfer::observe::Event;
use swath_transfer::sending::Received;
use tempfile::TempDir;

use crate::receiver::Receiver;
use crate::support::{folder, jobs};

/// A server of a folder; it ends with the test's runtime.
pub struct Served {
    pub address: SocketAddr,
    /// What limits all that it sends and all that it receives.
    limiters: [Arc<Limiter>; 2],
}

impl Served {
    /// Everybody may read what lies there.
    pub async fn reading(at: &Path) -> Served {
        Served::start(at, Access::default(), None).await
    }

    /// Whoever has the [`TOKEN`] may read and write.
    pub async fn taking(at: &Path) -> Served {
        let secret = TOKEN.to_owned();
        let token = Token { secret, may_write: true, ..Token::default() };
        Served::start(at, Access::new(vec![token], Vec::new()), Some(Receiver::new())).await
    }

    async fn start(at: &Path, access: Access, receiver: Option<Receiver>) -> Served {
        let sends = Arc::new(Limiter::new(None));
        let receives = receiver.as_ref().map_or_else(|| Arc::clone(&sends), Receiver::limiter);
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
            receive_limit: receiver.as_ref().map(Receiver::limiter),
            receive: receiver.map(|receiver| Arc::new(receiver) as _),
            third_party: None,
            send_limit: Some(Arc::clone(&sends)),
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
        Served { address, limiters: [sends, receives] }
    }

    /// The address of something there.
    pub fn at(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// The same, with the [`TOKEN`].
    pub fn opened(&self, path: &str) -> String {
        format!("http://any:{TOKEN}@{}/{path}", self.address)
    }

    /// So much a second gets through from now on; `None`: all.
    pub fn limit(&self, bytes_per_s: Option<u64>) {
        self.limiters.iter().for_each(|limiter| limiter.set(bytes_per_s));
    }
}

/// A job that copies this; the last of the places is the destination.
pub fn copy_of(places: &[&str], change: impl FnOnce(&mut CopySpec)) -> JobSpec {
    let places: Vec<String> = places.iter().map(|&place| place.to_owned()).collect();
    let mut copy = CopySpec::new(copies(&places).unwrap().remove(0).unwrap());
    change(&mut copy);
    JobSpec::new(Work::Copy(copy))
}

/// Runs a job that copies.
pub async fn copied(spec: JobSpec) -> Result<Received, Box<CopyError>> {
    outcome(jobs().start(spec).wait().await)
}

fn outcome(ended: Result<Outcome, JobError>) -> Result<Received, Box<CopyError>> {
    match ended {
        Ok(Outcome::Copied(copied)) => Ok(copied.received),
        Err(JobError::Copy(error)) => Err(error),
        ended => panic!("{ended:?}"),
    }
}

/// Runs a job; its events are given to `tell`, in the job's own task.
pub async fn observed(
    spec: &JobSpec,
    tell: impl Fn(JobEvent) + Send + Sync + 'static,
) -> Result<Received, Box<CopyError>> {
    let observer: Arc<dyn JobObserver> = Arc::new(tell);
    outcome(jobs().run(spec, &Streams::default(), &observer, &Control::default()).await)
}

/// Runs the job, and does this once when so much of its data is there.
pub async fn meanwhile(
    spec: &JobSpec,
    at_bytes: u64,
    act: impl FnOnce() + Send + 'static,
) -> Result<Received, Box<CopyError>> {
    let act = Arc::new(Mutex::new(Some(act)));
    let due = Arc::clone(&act);
    let ended = observed(spec, move |event| {
        if let JobEvent::Transfer(Event::Progress(now)) = event
            && now.done_bytes >= at_bytes
            && let Some(act) = due.lock().unwrap().take()
        {
            act();
        }
    });
    let ended = ended.await;
    assert!(act.lock().unwrap().is_none(), "it ended before {at_bytes} bytes were seen: {ended:?}");
    ended
}

/// What a dry run tells: what would be done and the path.
pub async fn planned(spec: &JobSpec) -> Result<Vec<String>, Box<CopyError>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&lines);
    let ended = observed(spec, move |event| {
        if let JobEvent::Planned { bytes, path, .. } = event {
            let what = if bytes.is_some() { "copy" } else { "remove" };
            keeps.lock().unwrap().push(format!("{what} {}", String::from_utf8_lossy(&path)));
        }
    });
    ended.await?;
    Ok(std::mem::take(&mut *lines.lock().unwrap()))
}

/// From `tree` into `copy`, in one direction.
pub struct Way {
    pub name: &'static str,
    home: TempDir,
    server: Option<Served>,
    from: String,
    to: String,
}

impl Way {
    /// Every direction, each at home in a folder of its own.
    pub async fn all() -> Vec<Way> {
        let mut all = Vec::new();
        for name in ["from a server", "to a server", "here"] {
            let home = folder();
            fs::create_dir(home.path().join("tree")).unwrap();
            let here = |path: &str| home.path().join(path).display().to_string();
            let (server, from, to) = match name {
                "from a server" => {
                    let server = Served::reading(&home.path().join("tree")).await;
                    let from = server.at("");
                    (Some(server), from, here("copy"))
                }
                "to a server" => {
                    let server = Served::taking(home.path()).await;
                    let to = server.opened("copy/");
                    (Some(server), here("tree/"), to)
                }
                _ => (None, here("tree/"), here("copy")),
            };
            all.push(Way { name, home, server, from, to });
        }
        all
    }

    /// A path in its folder: `tree/…` or `copy/…`.
    pub fn path(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    pub fn spec(&self, change: impl FnOnce(&mut CopySpec)) -> JobSpec {
        println!("{}", self.name);
        copy_of(&[&self.from, &self.to], change)
    }

    pub async fn copied(
        &self,
        change: impl FnOnce(&mut CopySpec),
    ) -> Result<Received, Box<CopyError>> {
        copied(self.spec(change)).await
    }

    /// Copies all of it.
    pub async fn whole(&self, change: impl FnOnce(&mut CopySpec)) -> Received {
        let received = self.copied(change).await.unwrap_or_else(|error| panic!("{error}"));
        assert!(received.is_whole, "{received:?}");
        received
    }

    /// The bytes that came when all of it was copied.
    pub async fn fetched_bytes(&self, change: impl FnOnce(&mut CopySpec)) -> u64 {
        self.whole(change).await.transfer.fetched_bytes
    }

    /// What a dry run tells.
    pub async fn plan(&self, change: impl FnOnce(&mut CopySpec)) -> Vec<String> {
        let dry = self.spec(|copy| {
            change(copy);
            copy.dry_run = true;
        });
        planned(&dry).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Copies all of it, and does this when so much is there; it comes slowly enough before.
    pub async fn meanwhile(
        &self,
        at_bytes: u64,
        bytes_per_s: u64,
        act: impl FnOnce() + Send + 'static,
    ) -> Result<Received, Box<CopyError>> {
        let mut spec = self.spec(|_| {});
        let Some(server) = &self.server else {
            spec.network.limit_bytes_per_s = Some(bytes_per_s);
            return meanwhile(&spec, at_bytes, act).await;
        };
        server.limit(Some(bytes_per_s));
        let limiters = server.limiters.clone();
        let act = move || {
            act();
            limiters.iter().for_each(|limiter| limiter.set(None));
        };
        meanwhile(&spec, at_bytes, act).await
    }
}

/// What opens servers that take trees.
pub const TOKEN: &str = "a-secret-of-the-test-0123456789abcdef";
