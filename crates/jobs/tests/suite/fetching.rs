//! Fetches into a folder of their own: how they ended, and what they told meanwhile. Servers that must
//! not finish too early are held until something has happened, so that no test depends on who is fast.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use swath_jobs::{
    Address, Control, Environment, GetFrom, GetSpec, GetTo, JobError, JobEvent, JobObserver,
    JobSpec, Jobs, KeptData, Outcome, Streams, Work,
};
use swath_netlab::faulty::{Behaviour, Builder, Content, Handle, Rule, Server};
use swath_transfer::GetError;
use swath_transfer::observe::{Event, SourceState, Summary};
use tempfile::TempDir;
use tokio::io::AsyncWrite;
use tokio::time::timeout;

use crate::support::LONG;

/// The path at which servers have their file.
pub const FILE: &str = "/data.bin";

/// A server of `content` with these rules.
pub fn odd<R: Into<Rule>>(content: &Content, rules: impl IntoIterator<Item = R>) -> Server {
    let builder = building(content);
    rules.into_iter().fold(builder, |it, rule| it.behaviour(rule)).start().unwrap()
}

pub fn building(content: &Content) -> Builder {
    Server::builder().file(FILE, content.clone())
}

/// A server that delivers nothing until [`release`].
pub fn held(content: &Content) -> Server {
    odd(content, [Behaviour::Silent { after: Duration::ZERO }])
}

/// Lets a held server deliver.
pub fn release(server: &Handle) {
    server.unset(&Behaviour::Silent { after: Duration::ZERO });
}

/// A server that has sent so many bytes when it falls silent for good, so that its fetch has a middle.
pub fn stuck(content: &Content, after_bytes: u64) -> Server {
    let scope = swath_netlab::faulty::Scope::Server;
    let lasts = Duration::from_secs(3600);
    odd(content, [Behaviour::Stall { after_bytes, lasts, scope }])
}

/// The same of each connection.
pub fn stuck_each(after_bytes: u64) -> Behaviour {
    let scope = swath_netlab::faulty::Scope::Connection;
    Behaviour::Stall { after_bytes, lasts: Duration::from_secs(3600), scope }
}

/// Ends all that a server is sending; it has no file any more.
pub fn lose(server: &Handle) {
    let server = server.clone();
    // It waits for the server's own thread.
    std::thread::spawn(move || {
        server.die();
        server.clear();
        server.set(Behaviour::status(404));
        server.revive();
    });
}

/// A fetch over one connection, so that requests have an order.
pub fn over_one(fetch: Fetch) -> Fetch {
    fetch.with(|spec| spec.plan.connections = Some(1))
}

/// Body bytes that have been sent of the file.
pub fn sent(server: &Handle) -> u64 {
    server.log().sent_bytes(FILE)
}

/// A folder that files are fetched into.
pub struct Place {
    folder: TempDir,
}

impl Place {
    pub fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("in")).unwrap();
        Place { folder }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("in").join(name)
    }

    /// Writes a file beside the folder.
    pub fn write_beside(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// The names in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The file must hold exactly this.
    #[track_caller]
    pub fn holds(&self, name: &str, content: &Content) {
        let bytes = std::fs::read(self.path(name));
        let bytes = bytes.unwrap_or_else(|error| panic!("{name}: {error}: {:?}", self.names()));
        assert_eq!(bytes.len() as u64, content.size_bytes(), "size of {name}");
        assert!(bytes == content.read(0, content.size_bytes()), "{name} differs");
    }

    /// The same, and nothing else lies beside it.
    #[track_caller]
    pub fn holds_only(&self, name: &str, content: &Content) {
        assert_eq!(self.names(), [name]);
        self.holds(name, content);
    }

    /// There must be no file of this name; what is kept for later has another one.
    #[track_caller]
    pub fn lacks(&self, name: &str) {
        assert!(!self.path(name).exists(), "{name} must not be there: {:?}", self.names());
    }

    /// A fetch of the file of these servers.
    pub fn of(&self, servers: &[&Server]) -> Fetch {
        self.of_urls(servers.iter().map(|server| server.url(FILE)))
    }

    pub fn of_urls(&self, urls: impl IntoIterator<Item = String>) -> Fetch {
        self.from(GetFrom::Replicas(urls.into_iter().map(Address::new).collect()))
    }

    pub fn from(&self, from: GetFrom) -> Fetch {
        let to = GetTo::Folder(self.path(""));
        let spec = JobSpec::new(Work::Get(GetSpec::new(from, to)));
        Fetch { spec, environment: Environment::default(), watch: None }
    }

    /// A fetch of what this Metalink lists.
    pub fn metalink(&self, text: impl AsRef<[u8]>) -> Fetch {
        self.from(GetFrom::Metalink(self.write_beside("x.meta4", text)))
    }

    /// A fetch of what this list names.
    pub fn list(&self, text: impl AsRef<[u8]>) -> Fetch {
        self.from(GetFrom::List(self.write_beside("list", text)))
    }
}

type When = Box<dyn Fn(&JobEvent) -> bool + Send + Sync>;
type Then = Box<dyn Fn(&Control) + Send + Sync>;

/// A fetch before it runs.
#[must_use]
pub struct Fetch {
    pub spec: JobSpec,
    pub environment: Environment,
    watch: Option<(When, Then)>,
}

impl Fetch {
    pub fn get(mut self, change: impl FnOnce(&mut GetSpec)) -> Fetch {
        let Work::Get(get) = &mut self.spec.work else { panic!("another kind of job") };
        change(get);
        self
    }

    pub fn with(mut self, change: impl FnOnce(&mut JobSpec)) -> Fetch {
        change(&mut self.spec);
        self
    }

    pub fn digest(self, digest: &str) -> Fetch {
        self.get(|get| get.digests.push(digest.parse().unwrap()))
    }

    pub fn overwrite(self) -> Fetch {
        self.get(|get| get.overwrite = true)
    }

    pub fn timeout_s(self, seconds: u64) -> Fetch {
        self.with(|spec| spec.network.timeout_ms = seconds * 1000)
    }

    /// To this name in the folder.
    pub fn named(self, place: &Place, name: &str) -> Fetch {
        let path = place.path(name);
        self.get(|get| get.to = GetTo::File(path))
    }

    /// In order, into a stream.
    pub fn into_stream(self) -> Fetch {
        self.get(|get| get.to = GetTo::Stream)
    }

    /// Calls `then` at the first event that is as wanted.
    pub fn at(
        mut self,
        when: impl Fn(&JobEvent) -> bool + Send + Sync + 'static,
        then: impl Fn(&Control) + Send + Sync + 'static,
    ) -> Fetch {
        self.watch = Some((Box::new(when), Box::new(then)));
        self
    }

    /// Releases the server once the event has come.
    pub fn releases(
        self,
        server: &Server,
        when: impl Fn(&JobEvent) -> bool + Send + Sync + 'static,
    ) -> Fetch {
        let server = server.handle();
        self.at(when, move |_| release(&server))
    }

    /// Cancels it once so many bytes are there.
    pub fn stopped_after(self, bytes: u64) -> Fetch {
        self.at(move |event| done_bytes(event) >= bytes, Control::cancel)
    }

    /// Runs it, and replaces what is there if that is wanted.
    pub async fn run_as(self, is_replaced: bool) -> Ran {
        if is_replaced { self.overwrite() } else { self }.run().await
    }

    pub async fn run(self) -> Ran {
        let events = Arc::default();
        let Ok(ran) = timeout(LONG, self.run_telling(&events)).await else {
            panic!("it does not end: {:#?}", events.lock().unwrap());
        };
        ran
    }

    async fn run_telling(self, events: &Arc<Mutex<Vec<JobEvent>>>) -> Ran {
        let Fetch { spec, environment, watch } = self;
        let output = Output::default();
        let (keeps, control) = (Arc::clone(events), Control::default());
        let (controls, has_come) = (control.clone(), AtomicBool::new(false));
        let observer: Arc<dyn JobObserver> = Arc::new(move |event: JobEvent| {
            if let Some((when, then)) = &watch
                && !has_come.load(Ordering::Relaxed)
                && when(&event)
                && !has_come.swap(true, Ordering::Relaxed)
            {
                then(&controls);
            }
            keeps.lock().unwrap().push(event);
        });
        let out = output.clone();
        let output_too = move || Box::new(out.clone()) as Box<dyn AsyncWrite + Send + Unpin>;
        let streams = Streams { list: None, output: Some(Arc::new(output_too)) };
        let ended = Jobs::new(environment).run(&spec, &streams, &observer, &control).await;
        drop(observer);
        let events = std::mem::take(&mut *events.lock().unwrap());
        let output = std::mem::take(&mut *output.0.lock().unwrap());
        Ran { ended, events, output }
    }
}

/// Bytes that are there, by this event.
pub fn done_bytes(event: &JobEvent) -> u64 {
    match event {
        JobEvent::Transfer(Event::Progress(now))
        | JobEvent::File { event: Event::Progress(now), .. } => now.done_bytes,
        _ => 0,
    }
}

/// Whether this event says that the source with this number is out.
pub fn is_out(number: u32) -> impl Fn(&JobEvent) -> bool + Send + Sync + 'static {
    move |event| {
        let bad = SourceState::Bad;
        matches!(event, JobEvent::Transfer(Event::Source { source, state, .. })
            if *source == number && *state == bad)
    }
}

/// A stream that keeps what is written to it.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl AsyncWrite for Output {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// How a fetch ended.
#[derive(Debug)]
pub struct Ran {
    pub ended: Result<Outcome, JobError>,
    pub events: Vec<JobEvent>,
    pub output: Vec<u8>,
}

impl Ran {
    /// The summary of the file; it must have come.
    #[track_caller]
    pub fn summary(&self) -> &Summary {
        match &self.ended {
            Ok(Outcome::File(summary)) => summary,
            ended => panic!("{ended:?}:\n{}", self.told()),
        }
    }

    /// The file must have come; returns this for more questions.
    #[track_caller]
    pub fn is_whole(&self) -> &Ran {
        self.summary();
        self
    }

    /// The error of the transfer; it must have failed.
    #[track_caller]
    pub fn error(&self) -> &GetError {
        match &self.ended {
            Err(JobError::Transfer { error, .. }) => error,
            ended => panic!("{ended:?}:\n{}", self.told()),
        }
    }

    /// What is kept for the next run.
    #[track_caller]
    pub fn kept(&self) -> KeptData {
        match &self.ended {
            Err(JobError::Transfer { kept, .. }) => *kept,
            ended => panic!("{ended:?}:\n{}", self.told()),
        }
    }

    /// No source could be used, and nothing has come.
    #[track_caller]
    pub fn is_unusable(&self) -> &Ran {
        assert!(self.is_starved() && self.kept().received_bytes == 0, "{:?}", self.ended);
        self
    }

    /// Some has come and is kept, and no source delivers the rest.
    #[track_caller]
    pub fn is_incomplete(&self) -> &Ran {
        assert!(self.is_starved() && self.kept().received_bytes > 0, "{:?}", self.ended);
        self
    }

    fn is_starved(&self) -> bool {
        matches!(self.error(), GetError::Exhausted { .. } | GetError::Stalled { .. })
    }

    /// The bytes are proved to be wrong, or contradict one another.
    #[track_caller]
    pub fn is_wrong(&self) -> &Ran {
        let error = self.error();
        assert!(
            matches!(
                error,
                GetError::Digest { .. } | GetError::Pieces(_) | GetError::Disagreement { .. }
            ),
            "{error:?}"
        );
        self
    }

    /// All that people are told: notes, sources that are not used, what verified it, the error.
    pub fn told(&self) -> String {
        let mut lines = Vec::new();
        for event in &self.events {
            match event {
                JobEvent::Transfer(event) | JobEvent::File { event, .. } => match event {
                    Event::Note { text, warning, .. } => {
                        lines.push(format!("{}{text}", if *warning { "warning: " } else { "" }));
                    }
                    Event::Source { source, name, state: SourceState::Bad, reason, .. } => {
                        let why = reason.as_deref().unwrap_or_default();
                        lines.push(format!("not using source {} ({name}): {why}", source + 1));
                    }
                    _ => {}
                },
                JobEvent::Note(note) => lines.push(format!("{note:?}")),
                JobEvent::FileFailed { error, .. } => lines.push(error.to_string()),
                _ => {}
            }
        }
        match &self.ended {
            Ok(Outcome::File(summary)) => {
                lines.push(format!("verified by {}", summary.verified_by))
            }
            Err(JobError::Transfer { error, .. }) => lines.push(error.with_reasons()),
            Err(error) => lines.push(error.to_string()),
            Ok(_) => {}
        }
        lines.join("\n")
    }

    /// All of these words must be among them.
    #[track_caller]
    pub fn tells(&self, words: &[&str]) -> &Ran {
        let told = self.told();
        for word in words {
            assert!(told.contains(word), "{word:?} is missing:\n{told}");
        }
        self
    }

    /// None of these words may be among them.
    #[track_caller]
    pub fn never_tells(&self, words: &[&str]) -> &Ran {
        let told = self.told();
        for word in words {
            assert!(!told.contains(word), "{word:?} must not be there:\n{told}");
        }
        self
    }
}
