//! Jobs that copy folders and files.

mod error;
mod kind;
mod local;
mod names;
mod retry;
mod send;
mod upload;
mod web;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use swath_source::{Download, display_name};
use swath_transfer::observe::{Event, LimitedBy, Observer};
use swath_transfer::sending::Received;
use swath_transfer::{
    Change, Filter, FolderKind, GetError, Mirror, PutError, PutRequest, Reason, Request, Stop,
    TreeRequest, Trust, Why,
};
use url::Url;

pub use error::{CopyError, CopyOption, Missing, OfferError, PlaceError, SendProgress, Unfit};
pub use kind::{CopyKind, Landing, OwnFile, copies, is_here, shown};
pub use local::offered;
pub use names::Names;

use crate::address::Address;
use crate::error::{JobError, SpecError};
use crate::event::{JobEvent, Note};
use crate::kept::KeptRecorder;
use crate::run::{Context, Job, Jobs, Needs, Outcome};
use crate::spec::CopySpec;
use crate::ssh::{self, Purpose, Session};
use kind::in_folder;
use local::LocalOffer;
use names::Renamed;
use upload::{Foreign, Outgoing};

/// The result of a copy, or of its plan (`dry_run`).
#[derive(Debug)]
pub struct Copied {
    /// What was copied and what was not.
    pub received: Received,
    /// The destination without secrets.
    pub destination: String,
    /// Whether all data went through ssh.
    pub through_ssh: bool,
}

/// A running copy.
struct Copying<'a> {
    job: &'a Job<'a>,
    copy: &'a CopySpec,
    session: Option<&'a Session>,
}

/// A copy, once the server is known.
enum Task {
    /// A folder, or a single file of it.
    Fetch { from: Vec<Url>, to: PathBuf, single: Option<Single> },
    /// A file of a plain server.
    FetchFile { from: Url, to: PathBuf },
    /// A folder or a file to a swath server.
    Send { from: PathBuf, to: Url, single: Option<String>, shown: Option<String> },
    /// A file to a server.
    SendFile { from: PathBuf, to: Url },
    /// A local copy.
    Local { from: PathBuf, to: PathBuf, single: Option<String> },
}

/// A single file, fetched as a dataset of one entry.
struct Single {
    /// Its local name.
    here: String,
    /// Its remote name, if the server serves a folder.
    there: Option<String>,
}

/// Runs the job.
pub(crate) async fn run(
    jobs: &Jobs,
    context: Context<'_>,
    copy: &CopySpec,
) -> Result<Outcome, JobError> {
    copy.check()?;
    copy.kind.check_source().map_err(CopyError::from)?;
    let filter = Filter::new(&copy.include, &copy.exclude).map_err(CopyError::from)?;
    let session = by_ssh(jobs, context, copy).await?;
    let session = session.as_ref();
    // Relays are useless for local copies and for ssh.
    let has_routes = session.is_none() && !matches!(copy.kind, CopyKind::Local { .. });
    let job = context.with(jobs.engine(context.spec, &Needs::of_copy(session, has_routes))?);
    let copying = Copying { job: &job, copy, session };
    let task = copying.task().await?;
    let is_single = match &task {
        Task::Fetch { single, .. } => single.is_some(),
        Task::Send { single, .. } | Task::Local { single, .. } => single.is_some(),
        Task::FetchFile { .. } | Task::SendFile { .. } => true,
    };
    context.observer.observe(JobEvent::CopyStarted { is_single });
    copying.run(task, filter).await
}

/// Starts the server of a copy by ssh.
async fn by_ssh(
    jobs: &Jobs,
    context: Context<'_>,
    copy: &CopySpec,
) -> Result<Option<Session>, JobError> {
    let (remote, purpose) = match &copy.kind {
        CopyKind::FetchBySsh { from, file, .. } => {
            let renamed = file.as_ref().filter(|file| file.is_new_name);
            (from, Purpose::Read { file_name: renamed.map(|file| file.name.as_str()) })
        }
        CopyKind::SendBySsh { to, file, .. } => {
            let file_name = file.as_ref().and_then(|file| ssh::new_name(to, file));
            (to, Purpose::Write { file_name })
        }
        _ => return Ok(None),
    };
    let options = jobs.ssh_options(&copy.ssh, &context.spec.network);
    let note = |note: Note| context.observer.observe(JobEvent::Note(note));
    tokio::select! {
        biased;
        () = context.control.cancelled() => Err(JobError::Stopped),
        session = ssh::start(&options, remote, purpose, &note) => {
            Ok(Some(session.map_err(CopyError::from)?))
        }
    }
}

impl Copying<'_> {
    /// Returns the copy, now that the server is known.
    async fn task(&self) -> Result<Task, JobError> {
        let at = |session: Option<&Session>| session.map(|session| session.url.clone());
        let named = |address: &Address| address.url().map_err(JobError::from);
        Ok(match (self.copy.kind.clone(), at(self.session)) {
            (CopyKind::Fetch { from, to }, _) => {
                let from = from.iter().map(named).collect::<Result<_, _>>()?;
                Task::Fetch { from, to, single: None }
            }
            (CopyKind::FetchNamed { from, to, is_alone }, _) => {
                let from = named(&from)?;
                tokio::select! {
                    biased;
                    () = self.job.control.cancelled() => return Err(JobError::Stopped),
                    task = self.named(from, &to, is_alone) => task?,
                }
            }
            (CopyKind::FetchBySsh { file: Some(file), .. }, Some(url)) if self.is_file_there() => {
                self.copy.check_single()?;
                let single = Some(Single { here: file.name, there: None });
                Task::Fetch { from: vec![url], to: file.folder, single }
            }
            (CopyKind::FetchBySsh { to, .. }, url) => {
                Task::Fetch { from: url.into_iter().collect(), to, single: None }
            }
            (CopyKind::SendBySsh { from, to, file }, Some(url)) => {
                // As the user typed it.
                let shown = Some(format!("{}:{}", to.host, to.path));
                let (to, single) = ssh::sent_to(url, &to, file);
                Task::Send { from, to, single, shown }
            }
            (CopyKind::SendBySsh { .. }, None) => return Err(SpecError::NoSource.into()),
            (CopyKind::Send { from, to }, _) => {
                Task::Send { from, to: named(&to)?, single: None, shown: None }
            }
            (CopyKind::SendFile { from, to }, _) => Task::SendFile { from, to: named(&to)? },
            (CopyKind::Local { from, to, single }, _) => Task::Local { from, to, single },
        })
    }

    async fn run(&self, task: Task, filter: Filter) -> Result<Outcome, JobError> {
        let observed = Arc::clone(self.job.observer);
        let mut observer = move |event: &Event| observed.observe(JobEvent::Transfer(event.clone()));
        match task {
            Task::Local { from, to, single } => {
                self.local(&from, to, single, filter, &mut observer).await
            }
            Task::FetchFile { from, to } => self.file(from, to, &mut observer).await,
            Task::Fetch { from, to, single } => {
                self.fetch(from, to, single, filter, &mut observer).await
            }
            Task::SendFile { from, to } => self.send_file(from, to, filter, &mut observer).await,
            Task::Send { from, to, single, shown } => {
                let name = single.as_deref().unwrap_or_default();
                let shown = shown.unwrap_or_else(|| display_name(&to) + name);
                let what = Outgoing { from, to, single, shown };
                let sent = upload::send(self, &what, filter, &mut observer).await;
                // Only the upload of a single file is foreign.
                sent.unwrap_or_else(|Foreign(_)| Err(SpecError::NoSource.into()))
            }
        }
    }

    /// Finds out what an address without final `/` is: a folder, a file of a swath server, or a file.
    async fn named(&self, from: Url, to: &Path, is_alone: bool) -> Result<Task, JobError> {
        let (engine, copy) = (&self.job.engine, self.copy);
        let name = kind::name_there(&from).map_err(CopyError::from)?;
        let name = PathBuf::from(name);
        let mut folder = from.clone();
        folder.set_path(&format!("{}/", from.path()));
        let is_folder = match engine.folder_kind(&mirror(folder.clone())).await {
            FolderKind::Tree => true,
            FolderKind::Page => web::is_folder(engine.net(), &from).await,
            FolderKind::Nothing => false,
        };
        if is_folder {
            return Ok(Task::Fetch { from: vec![folder], to: to.join(name), single: None });
        }
        let path = file_path(to, &name, is_alone);
        if let Some((above, there)) = in_folder(&from)
            && engine.is_file(&mirror(above.clone()), &there).await
            && let Some(here) = path.file_name().and_then(|name| name.to_str())
        {
            copy.check_single()?;
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            let to = folder.unwrap_or(Path::new(".")).to_owned();
            let single = Some(Single { here: here.to_owned(), there: Some(there) });
            return Ok(Task::Fetch { from: vec![above], to, single });
        }
        let Some(option) = copy.option_of_folders() else {
            return Ok(Task::FetchFile { from, to: path });
        };
        let address = display_name(&from);
        let answered = Download::begin(engine.net(), &from, Trust::Named, "*/*").await;
        Err(match answered {
            Err(error) => {
                let (destination, error) = (path.display().to_string(), Box::new(error));
                CopyError::Unreachable { destination, address, error }
            }
            Ok(_) => {
                let (unfit, address) = (Unfit::NoFolder, Some(address));
                CopyError::Option { option, unfit, address }
            }
        }
        .into())
    }

    async fn local(
        &self,
        from: &Path,
        to: PathBuf,
        single: Option<String>,
        filter: Filter,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, JobError> {
        let reads = self.job.spec.disk.io.into();
        let (engine, name) = (&self.job.engine, from.display().to_string());
        let offer = LocalOffer::open(engine, from, single.as_deref(), filter.clone(), reads);
        let mut offer = offer.map_err(CopyError::from)?;
        let url = offer.url();
        let names = Names::new(vec![(url.to_string(), name.clone())]);
        let limit = Some(LimitedBy::Reading { name });
        let destination = place(&to, single.as_deref());
        let single = single.map(|here| Single { here, there: None });
        let request = self.request(vec![url], to, single, filter);
        let kept = KeptRecorder::default();
        let copied = tokio::select! {
            copied = self.tree(request, &names, limit, &kept, observer) => copied,
            () = offer.serve() => Err(GetError::NoSources),
        };
        self.fetched(copied, destination, &kept, names)
    }

    async fn fetch(
        &self,
        from: Vec<Url>,
        to: PathBuf,
        single: Option<Single>,
        filter: Filter,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, JobError> {
        let destination = place(&to, single.as_ref().map(|single| single.here.as_str()));
        let names = self.session.map(|session| session.names.clone()).unwrap_or_default();
        let limit = self.session.and_then(|session| session.limit.clone());
        let may_be_web = self.session.is_none() && single.is_none();
        let request = self.request(from.clone(), to.clone(), single, filter.clone());
        let kept = KeptRecorder::default();
        let mut copied = self.tree(request, &names, limit, &kept, observer).await;
        if let Err(GetError::NoTree { reasons }) = &mut copied
            && may_be_web
        {
            match web::copy(self, filter, from, to).await {
                Ok(ended) => return ended,
                Err(why) => {
                    if let Some(Reason { why: first, .. }) = reasons.first_mut()
                        && *first != why
                    {
                        let more = format!("nor of a plain one: {why}");
                        *first = Why::And(Box::new(first.clone()), more);
                    }
                }
            }
        }
        self.fetched(copied, destination, &kept, names)
    }

    fn fetched(
        &self,
        copied: Result<Received, GetError>,
        destination: String,
        kept: &KeptRecorder,
        names: Names,
    ) -> Result<Outcome, JobError> {
        match copied {
            Ok(received) => Ok(self.copied(received, destination)),
            Err(error) => {
                let (error, kept) = (Box::new(error), kept.kept());
                Err(CopyError::Fetch { destination, error, kept, names }.into())
            }
        }
    }

    fn copied(&self, received: Received, destination: String) -> Outcome {
        let through_ssh = self.session.is_some_and(|session| session.goes_through);
        Outcome::Copied(Box::new(Copied { received, destination, through_ssh }))
    }

    fn is_file_there(&self) -> bool {
        self.session.is_some_and(|session| session.is_file)
    }

    fn request(
        &self,
        from: Vec<Url>,
        to: PathBuf,
        single: Option<Single>,
        filter: Filter,
    ) -> TreeRequest {
        let (spec, copy) = (self.job.spec, self.copy);
        let lanes_max = self.session.and_then(|session| session.lanes_max).unwrap_or(u32::MAX);
        let (single, single_there) = single.map(|it| (it.here, it.there)).unzip();
        TreeRequest {
            replicas: from.into_iter().map(mirror).collect(),
            destination: to,
            single,
            single_there: single_there.flatten(),
            filter,
            preserve: copy.preserve.into(),
            resume: copy.resume,
            compare: copy.compare.into(),
            delete: copy.delete,
            allow_empty: copy.allow_empty,
            first_walk: None,
            keep_index: copy.keep_index.clone(),
            plan: spec.plan.config(lanes_max),
            stall_s: spec.network.stall_s(),
            locked_s: 0.0,
        }
    }

    /// Fetches a tree, or reports what would be fetched.
    async fn tree(
        &self,
        mut request: TreeRequest,
        names: &Names,
        limit: Option<LimitedBy>,
        kept: &KeptRecorder,
        observer: &mut dyn Observer,
    ) -> Result<Received, GetError> {
        let (engine, control) = (&self.job.engine, self.job.control);
        if self.copy.dry_run {
            let planned = engine.differences(&request, self.planned()).await?;
            return Ok(Received::planned(&planned));
        }
        let mut keeps = kept.clone();
        let mut both = |event: &Event| {
            keeps.observe(event);
            observer.observe(event);
        };
        let mut renamed = Renamed { observer: &mut both, names, limit };
        loop {
            let stop = Stop::default();
            let copying = engine.copy(request.clone(), &mut renamed, &stop);
            match control.until_paused(&stop, copying).await {
                Err(GetError::Stopped) if control.goes_on().await => request.resume = true,
                copied => return copied.map(|tree| Received::of(&tree)),
            }
        }
    }

    /// Returns the receiver of planned changes.
    fn planned(&self) -> impl FnMut(Change, &[u8]) + Send + 'static {
        let (observer, deletes) = (Arc::clone(self.job.observer), self.copy.delete);
        move |change: Change, path: &[u8]| {
            let (bytes, further_of) = match change {
                Change::Copy { bytes, further_of } => (Some(bytes), further_of),
                Change::Surplus | Change::InTheWay if deletes => (None, None),
                Change::Surplus | Change::InTheWay => return,
            };
            observer.observe(JobEvent::Planned { bytes, path: path.to_owned(), further_of });
        }
    }

    /// Fetches a single file of a plain server.
    async fn file(
        &self,
        from: Url,
        path: PathBuf,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, JobError> {
        let (job, copy) = (self.job, self.copy);
        let mut request = Request::to_file(&path);
        request.mirrors = vec![mirror(from)];
        request.overwrite = copy.compare.overwrite();
        request.refuses_folders = true;
        request.require_digest = copy.require_digest;
        request.resume = copy.resume;
        request.plan = job.spec.plan.config(u32::MAX);
        request.stall_s = job.spec.network.stall_s();
        let kept = KeptRecorder::default();
        let mut keeps = kept.clone();
        let mut both = |event: &Event| {
            keeps.observe(event);
            observer.observe(event);
        };
        match job.control.fetch(&job.engine, request, &mut both).await {
            Ok(summary) => Ok(Outcome::File(Box::new(summary))),
            Err(error) => {
                let (error, kept) = (Box::new(error), kept.kept());
                let (destination, names) = (path.display().to_string(), Names::default());
                Err(CopyError::Fetch { destination, error, kept, names }.into())
            }
        }
    }

    /// Sends a single file: as a dataset of one entry to a swath server, else by `PUT`.
    async fn send_file(
        &self,
        from: PathBuf,
        to: Url,
        filter: Filter,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, JobError> {
        let refusal = match in_folder(&to) {
            None => None,
            Some((folder, name)) => {
                let (from, single) = (from.clone(), Some(name));
                let what = Outgoing { from, to: folder, single, shown: display_name(&to) };
                match upload::send(self, &what, filter, observer).await {
                    Ok(sent) => return sent,
                    Err(Foreign(refusal)) => refusal,
                }
            }
        };
        let address = display_name(&to);
        // Not a swath server; it may accept `PUT`.
        let Some(option) = self.copy.option_of_trees() else {
            return self.put(from, to, address, observer).await;
        };
        // Without write permission `PUT` fails too.
        Err(match refusal.filter(|error| self.copy.dry_run && error.code() == Some(403)) {
            Some(error) => CopyError::Forbidden { address, error: Box::new(error) },
            None => CopyError::Option { option, unfit: Unfit::Put, address: Some(address) },
        }
        .into())
    }

    async fn put(
        &self,
        from: PathBuf,
        to: Url,
        address: String,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, JobError> {
        let (engine, control) = (&self.job.engine, self.job.control);
        let request = PutRequest { file: from, to };
        loop {
            let stop = Stop::default();
            let putting = engine.put(&request, observer, &stop);
            match control.until_paused(&stop, putting).await {
                Ok(summary) => return Ok(Outcome::File(Box::new(summary))),
                // `PUT` cannot resume: it starts over.
                Err(PutError::Stopped) if control.goes_on().await => {}
                Err(error) => {
                    let error = Box::new(error);
                    return Err(CopyError::Put { address, error }.into());
                }
            }
        }
    }
}

/// Returns the path of a folder, or of a single file in it.
fn place(folder: &Path, single: Option<&str>) -> String {
    match single {
        None => folder.display().to_string(),
        Some(name) if folder == Path::new(".") => name.to_owned(),
        Some(name) => folder.join(name).display().to_string(),
    }
}

/// Returns the path of a single file: in the folder `to`, or `to` itself.
fn file_path(to: &Path, name: &Path, is_alone: bool) -> PathBuf {
    let is_folder = to.as_os_str().as_encoded_bytes().ends_with(b"/") || to.is_dir();
    if is_alone && !is_folder { to.to_owned() } else { to.join(name) }
}

fn mirror(url: Url) -> Mirror {
    Mirror { url, priority: 1, trust: Trust::Named, holds: None }
}
