//! Jobs that copy folders and files.

mod between;
mod by_others;
mod error;
mod kind;
mod lines;
mod local;
mod names;
mod retry;
mod send;
mod share;
mod ssh_pair;
mod steer;
mod through;
mod upload;
mod web;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use swath_source::{Download, LaneError, display_name};
use swath_store::tree::TreePlace;
use swath_transfer::observe::{LimitedBy, Observer};
use swath_transfer::sending::Received;
use swath_transfer::{
    Announced, Change, Destination, Filter, FolderKind, GetError, Mirror, PickerKind, PutError,
    PutFrom, PutRequest, Reason, Stop, TreeDiscovery, TreeRequest, Trust, Why,
};
use url::Url;

pub use error::{
    CopyError, CopyOption, LocationError, MissingSource, NotDelegated, OfferError, SendProgress,
    Unfit,
};
pub use kind::{CopyKind, FileDestination, LocalFile, Place, copies, is_here, shown};
pub use local::offered;
pub use names::DisplayNames;
pub use steer::{cancel, list};
pub use web::{WebEntry, entries as web_entries};

use crate::address::Address;
use crate::error::{JobError, SpecError};
use crate::event::{JobEvent, Note};
use crate::get::template::Template;
use crate::kept::{KeptData, KeptRecorder};
use crate::run::{EngineNeeds, Job, JobContext, Jobs, Outcome};
use crate::spec::CopySpec;
use crate::ssh::{self, Purpose, Session};
use between::Servers;
use kind::in_folder;
use local::LocalOffer;
use names::NameReplacer;
use share::SharedTrees;
use ssh_pair::SshPair;
use upload::{Content, NotTreeServer, Upload};

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
struct CopyJob<'a> {
    job: &'a Job<'a>,
    copy: &'a CopySpec,
    session: Option<&'a Session>,
    /// Two other machines.
    pair: Option<&'a SshPair>,
    /// The machines that copy the same.
    shared: Option<Arc<SharedTrees>>,
}

/// What an address without final `/` is.
enum Named {
    /// A folder, or a single file of it.
    Tree { from: Url, to: PathBuf, single: Option<Single> },
    /// A file of a plain server.
    File { to: PathBuf },
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
    context: JobContext<'_>,
    copy: &CopySpec,
) -> Result<Outcome, JobError> {
    copy.check()?;
    copy.kind.check_source().map_err(CopyError::from)?;
    let filter = Filter::new(&copy.include, &copy.exclude).map_err(CopyError::from)?;
    let session = by_ssh(jobs, context, copy).await?;
    let session = session.as_ref();
    let pair = match &copy.kind {
        CopyKind::BetweenBySsh { from, to, is_alone } => {
            Some(SshPair::start(jobs, context, copy, (from, to, *is_alone)).await?)
        }
        _ => None,
    };
    // Relays are useless for local copies and for ssh.
    let by_ssh = session.is_some() || pair.is_some();
    let has_routes = !by_ssh && !matches!(copy.kind, CopyKind::Local { .. });
    let servers = pair.as_ref().map(SshPair::access).unwrap_or_default();
    let own_server = session.map(|it| (it.bearer.clone(), it.fingerprint));
    let needs = EngineNeeds { has_routes, own_server, servers, ..EngineNeeds::default() };
    let job = context.with(jobs.engine(context.spec, needs)?);
    let shared = match copy.cluster.as_ref().filter(|_| !copy.dry_run) {
        Some(cluster) => SharedTrees::join(jobs, &job, cluster).await?,
        None => None,
    };
    let pair = pair.as_ref();
    CopyJob { job: &job, copy, session, pair, shared }.run(filter).await
}

/// Starts the server of a copy by ssh.
async fn by_ssh(
    jobs: &Jobs,
    context: JobContext<'_>,
    copy: &CopySpec,
) -> Result<Option<Session>, JobError> {
    let (remote, purpose) = match &copy.kind {
        CopyKind::FetchBySsh { from, file, .. } => {
            let renamed = file.as_ref().filter(|file| file.is_new_name);
            (from, Purpose::Read { file_name: renamed.map(|file| file.name.as_str()) })
        }
        CopyKind::SendBySsh { to, file, .. } => {
            let file_name = file.as_ref().and_then(|file| ssh::new_name(to, file));
            (to, Purpose::Write { file_name, fetches: false })
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

impl CopyJob<'_> {
    async fn run(&self, filter: Filter) -> Result<Outcome, JobError> {
        let observer = &mut self.job.transfer_observer();
        let url = |address: &Address| address.url().map_err(JobError::from);
        let server = || self.session.map(|it| it.url.clone()).ok_or(SpecError::NoSource);
        match self.copy.kind.clone() {
            CopyKind::Fetch { from, to } => {
                let from = from.iter().map(url).collect::<Result<_, _>>()?;
                self.fetch(from, to, None, filter, observer).await
            }
            CopyKind::FetchNamed { from, to, is_alone } => {
                let from = url(&from)?;
                let named = tokio::select! {
                    biased;
                    () = self.job.control.cancelled() => return Err(JobError::Stopped),
                    named = self.named(&from, &to, is_alone) => named?,
                };
                match named {
                    Named::Tree { from, to, single } => {
                        self.fetch(vec![from], to, single, filter, observer).await
                    }
                    Named::File { to } => self.file(from, to, observer).await,
                }
            }
            CopyKind::FetchBySsh { file: Some(file), .. } if self.is_file_there() => {
                self.copy.check_single()?;
                let single = Some(Single { here: file.name, there: None });
                self.fetch(vec![server()?], file.folder, single, filter, observer).await
            }
            CopyKind::FetchBySsh { to, .. } => {
                self.fetch(vec![server()?], to, None, filter, observer).await
            }
            CopyKind::SendBySsh { from, to, file } => {
                // As the user typed it.
                let shown = format!("{}:{}", to.host, to.path);
                let (to, single) = ssh::sent_to(server()?, &to, file);
                self.send(Upload { from: Content::Here(from), to, single, shown }, filter, observer)
                    .await
            }
            CopyKind::Send { from, to } => {
                let to = url(&to)?;
                let shown = display_name(&to);
                self.send(
                    Upload { from: Content::Here(from), to, single: None, shown },
                    filter,
                    observer,
                )
                .await
            }
            CopyKind::SendFile { from, to } => {
                self.send_file(from, url(&to)?, filter, observer).await
            }
            CopyKind::ThirdParty { from, to, is_alone } => {
                let from = from.iter().map(url).collect::<Result<Vec<_>, _>>()?;
                let (from, to) = (from.as_slice(), &url(&to)?);
                between::copy(
                    self,
                    Servers { from, from_there: from, to, is_alone },
                    filter,
                    observer,
                )
                .await
            }
            CopyKind::BetweenBySsh { .. } => {
                let Some(pair) = self.pair else { return Err(SpecError::NoSource.into()) };
                let names = &pair.names;
                let observer = &mut NameReplacer { observer, names, limit: None };
                let (from, from_there) =
                    (std::slice::from_ref(&pair.from), std::slice::from_ref(&pair.from_there));
                let servers = Servers { from, from_there, to: &pair.to, is_alone: pair.is_alone };
                Box::pin(between::copy(self, servers, filter, observer)).await
            }
            CopyKind::Attach { job, at } => steer::attach(self, &job, &url(&at)?, observer).await,
            CopyKind::Local { from, to, single } => {
                self.local(&from, to, single, filter, observer).await
            }
        }
    }

    fn started(&self, is_single: bool) {
        self.job.observer.observe(JobEvent::CopyStarted { is_single });
    }

    async fn send(
        &self,
        upload: Upload,
        filter: Filter,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, JobError> {
        self.started(upload.single.is_some());
        let sent = Box::pin(upload::send(self, &upload, filter, observer)).await;
        // Only the upload of a single file to a server is foreign.
        sent.unwrap_or_else(|NotTreeServer(_)| Err(SpecError::NoSource.into()))
    }

    /// Finds out what an address without final `/` is: a folder, a file of a swath server, or a file.
    async fn named(&self, from: &Url, to: &Path, is_alone: bool) -> Result<Named, JobError> {
        let (engine, copy) = (&self.job.engine, self.copy);
        let name = kind::name_there(from).map_err(CopyError::from)?;
        let name = PathBuf::from(name);
        let mut folder = from.clone();
        folder.set_path(&format!("{}/", from.path()));
        let is_folder = match engine.folder_kind(&mirror(folder.clone())).await {
            FolderKind::Tree => true,
            FolderKind::Nothing if !copy.kind.is_webdav() => false,
            FolderKind::Page | FolderKind::Refused | FolderKind::Nothing => {
                web::is_folder(engine.net(), from).await
            }
        };
        if is_folder {
            return Ok(Named::Tree { from: folder, to: to.join(name), single: None });
        }
        let path = file_path(to, &name, is_alone);
        if let Some((above, there)) = in_folder(from)
            && engine.is_file(&mirror(above.clone()), &there).await
            && let Some(here) = path.file_name().and_then(|name| name.to_str())
        {
            copy.check_single()?;
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            let to = folder.unwrap_or(Path::new(".")).to_owned();
            let single = Some(Single { here: here.to_owned(), there: Some(there) });
            return Ok(Named::Tree { from: above, to, single });
        }
        let Some(option) = copy.option_of_folders() else {
            return Ok(Named::File { to: path });
        };
        let address = display_name(from);
        let answered = Download::begin(engine.net(), from, Trust::Named, "*/*").await;
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
        self.started(single.is_some());
        let reads = self.job.spec.disk.io.into();
        let (engine, name) = (&self.job.engine, from.display().to_string());
        let offer = LocalOffer::open(engine, from, single.as_deref(), filter.clone(), reads);
        let mut offer = offer.map_err(CopyError::from)?;
        let url = offer.url();
        let names = DisplayNames::new(vec![(url.to_string(), name.clone())]);
        let limit = Some(LimitedBy::Reading { name });
        let destination = place(&to, single.as_deref());
        let single = single.map(|here| Single { here, there: None });
        let request = self.request(vec![url], to, single, filter);
        let mut observer = KeptRecorder::new(observer);
        let copied = tokio::select! {
            copied = self.tree(request, &names, limit, &mut observer) => copied,
            () = offer.serve() => Err(GetError::NoSources),
        };
        self.fetched(copied, destination, observer.kept, names)
    }

    async fn fetch(
        &self,
        from: Vec<Url>,
        to: PathBuf,
        single: Option<Single>,
        filter: Filter,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, JobError> {
        self.started(single.is_some());
        let destination = place(&to, single.as_ref().map(|single| single.here.as_str()));
        let names = self.session.map(|session| session.names.clone()).unwrap_or_default();
        let limit = self.session.and_then(|session| session.limit.clone());
        let may_be_web = self.session.is_none() && single.is_none();
        let request = self.request(from.clone(), to.clone(), single, filter.clone());
        let place = TreePlace { beneath: request.beneath.clone(), ..TreePlace::at(&to) };
        let mut observer = KeptRecorder::new(observer);
        // Also before the files of a page are fetched, one by one.
        let mut copied = match place.check_links() {
            Ok(()) => self.tree(request, &names, limit, &mut observer).await,
            Err(error) => Err(error.into()),
        };
        if may_be_web
            && let Err(error) = &mut copied
            && is_of_other_kind(error)
        {
            match web::copy(self, filter, from, to).await {
                Ok(ended) => return ended,
                Err(why) => {
                    if let GetError::NoTree { reasons } = error
                        && let Some(Reason { why: first, .. }) = reasons.first_mut()
                        && *first != why
                    {
                        let more = format!("and no listing of a web server was found: {why}");
                        *first = Why::And(Box::new(first.clone()), more);
                    }
                }
            }
        }
        self.fetched(copied, destination, observer.kept, names)
    }

    fn fetched(
        &self,
        copied: Result<Received, GetError>,
        destination: String,
        kept: KeptData,
        names: DisplayNames,
    ) -> Result<Outcome, JobError> {
        match copied {
            Ok(received) => Ok(self.copied(received, destination)),
            Err(error) => {
                let error = Box::new(error);
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
        let mut plan = spec.plan.config(lanes_max);
        if self.shared.is_some() {
            // Each machine begins elsewhere.
            (plan.picker, plan.seed) = (PickerKind::RarestFirst, fastrand::u64(..));
        }
        TreeRequest {
            replicas: from.into_iter().map(mirror).collect(),
            destination: to,
            beneath: copy.kind.beneath().filter(|_| single.is_none()),
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
            plan,
            stall_s: spec.network.stall_s(),
            locked_s: 0.0,
            discovery: self.shared.clone().map(|shared| shared as Arc<dyn TreeDiscovery>),
        }
    }

    /// Fetches a tree, or reports what would be fetched.
    async fn tree(
        &self,
        mut request: TreeRequest,
        names: &DisplayNames,
        limit: Option<LimitedBy>,
        observer: &mut dyn Observer,
    ) -> Result<Received, GetError> {
        let (engine, control) = (&self.job.engine, self.job.control);
        if self.copy.dry_run {
            let planned = engine.differences(&request, self.planned()).await?;
            return Ok(Received::planned(&planned));
        }
        let mut renamed = NameReplacer { observer, names, limit };
        loop {
            let stop = Stop::default();
            let copy_job = engine.copy(request.clone(), &mut renamed, &stop);
            match control.until_paused(&stop, copy_job).await {
                Err(GetError::Stopped) if control.goes_on().await => request.resume = true,
                copied => {
                    if let (Some(shared), Ok(tree)) = (&self.shared, &copied) {
                        shared.pass_on(self.job, tree.transfer.fetched_bytes > 0).await;
                    }
                    return copied.map(|tree| Received::of(&tree));
                }
            }
        }
    }

    /// Returns the receiver of planned changes.
    fn planned(&self) -> impl FnMut(Change, &[u8]) + Send + 'static {
        let (observer, deletes) = (Arc::clone(self.job.observer), self.copy.delete);
        move |change: Change, path: &[u8]| {
            let (bytes, is_folder, further_of) = match change {
                Change::Copy { bytes, is_folder, further_of } => {
                    (Some(bytes), is_folder, further_of)
                }
                Change::Surplus | Change::InTheWay if deletes => (None, false, None),
                Change::Surplus | Change::InTheWay => return,
            };
            let path = path.to_owned();
            observer.observe(JobEvent::Planned { bytes, path, is_folder, further_of });
        }
    }

    /// Fetches a single file of a plain server.
    async fn file(
        &self,
        from: Url,
        path: PathBuf,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, JobError> {
        self.started(true);
        let job = self.job;
        let template = Template::of_web(job.spec, self.copy, PathBuf::new());
        let mut request = template.request(Destination::File(path.clone()));
        request.mirrors = vec![mirror(from)];
        request.plan = job.spec.plan.config(u32::MAX);
        let mut observer = KeptRecorder::new(observer);
        match job.control.fetch(&job.engine, request, &mut observer).await {
            Ok(summary) => Ok(Outcome::File(Box::new(summary))),
            Err(error) => {
                let (error, kept) = (Box::new(error), observer.kept);
                let (destination, names) = (path.display().to_string(), DisplayNames::default());
                Err(CopyError::Fetch { destination, error, kept, names }.into())
            }
        }
    }

    /// Sends a single file: as a dataset of one entry to a swath server, else, or if wished, by `PUT`.
    async fn send_file(
        &self,
        from: PathBuf,
        to: Url,
        filter: Filter,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, JobError> {
        self.started(true);
        let mut is_of_others = self.copy.by_put;
        let refusal = match in_folder(&to) {
            _ if self.copy.by_put => None,
            None => None,
            Some((folder, name)) => {
                let (from, single) = (Content::Here(from.clone()), Some(name));
                let upload = Upload { from, to: folder, single, shown: display_name(&to) };
                match Box::pin(upload::send(self, &upload, filter, observer)).await {
                    Ok(sent) => return sent,
                    Err(NotTreeServer(refusal)) => {
                        is_of_others = refusal.as_ref().is_none_or(|it| it.code() != Some(403));
                        refusal
                    }
                }
            }
        };
        let address = display_name(&to);
        // Not a swath server; it may accept `PUT`.
        let Some(option) = self.copy.option_of_trees() else {
            // Servers of others rarely check a digest that goes ahead, and are asked for theirs afterwards.
            let announced = match self.copy.digest {
                Some(digest) => Announced::Known(digest),
                None if is_of_others => Announced::Nothing,
                None => Announced::Computed,
            };
            return self.put(PutFrom::File(from), to, address, announced, observer).await;
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
        from: PutFrom,
        to: Url,
        address: String,
        announced: Announced,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, JobError> {
        let (engine, control) = (&self.job.engine, self.job.control);
        let request = PutRequest { from, to, announced };
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

/// Whether the source may be the folder of another kind of server: one without pages of folders answers with
/// any error. A swath server that is only busy says until when, and is not asked by other means.
fn is_of_other_kind(error: &GetError) -> bool {
    match error {
        GetError::NoTree { .. } => true,
        GetError::Exhausted { reasons, has_some: false } => {
            let errors = reasons.iter().filter_map(|reason| reason.why.lane_error());
            let mut refusals = errors.filter_map(LaneError::refusal);
            refusals.any(|refusal| {
                !matches!(refusal.code, 401 | 407 | 429) && refusal.retry_after.is_none()
            })
        }
        _ => false,
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

/// Returns a mirror that the user named.
pub(crate) fn mirror(url: Url) -> Mirror {
    Mirror { url, priority: 1, trust: Trust::Named, holds: None }
}
