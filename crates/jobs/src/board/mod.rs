//! Jobs that a server runs for others.
//!
//! A job belongs to whoever ordered it. It runs whether anybody looks or not, and is begun again after a
//! restart of the server; only its owner sees it, follows it, changes its order and cancels it. At most so
//! many run at a time, and so many of one owner; the others wait. The board knows neither what a job does nor
//! what its order and its lines mean.

mod record;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swath_state::{KeepError, KeptJob, KeptJobs, KeptState};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

pub use record::{Keep, Pace, Record, RecordReader};

use crate::control::Control;

/// The jobs of a server; clones are the same.
#[derive(Clone)]
pub struct Board {
    shared: Arc<Shared>,
}

/// How many jobs run at a time; the others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardLimits {
    /// Of all owners together.
    pub running: usize,
    /// Of one owner.
    pub running_of_one: usize,
    /// Jobs of all owners that run or wait; more are refused.
    pub open: usize,
    /// Jobs of one owner that run or wait; more are refused.
    pub open_of_one: usize,
}

/// A job that is ordered.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Its name, which the owner chooses, so that an order that is sent again is not a second job.
    pub id: String,
    /// Who orders it.
    pub owner: String,
    /// Where its data goes, as the owner names it.
    pub place: String,
    /// Where its data comes from, for the owner to read; nothing secret.
    pub from: String,
    /// What is to be done, for when the server is started again.
    pub order: String,
    /// Nobody needs to know of it once it has ended.
    pub is_forgotten: bool,
    /// Lines for its record that only whoever reads it understands.
    pub lines: BoardLines,
}

/// Lines that the board adds to the record of a job.
#[derive(Clone, Debug)]
pub struct BoardLines {
    /// It has to wait.
    pub waits: String,
    /// The last one, if it was cancelled before it began.
    pub cancelled: String,
    /// The last one, if its work panicked.
    pub broke: String,
}

/// What a running job has of the board.
#[derive(Clone)]
pub struct JobSeat {
    /// What happens is recorded here.
    pub record: Record,
    /// The owner, or the end of the server, cancels it.
    pub control: Control,
    job: Arc<OpenJob>,
    order: watch::Receiver<Arc<str>>,
    shared: Arc<Shared>,
}

impl JobSeat {
    /// Returns what is to be done now.
    pub fn order(&mut self) -> Arc<str> {
        Arc::clone(&self.order.borrow_and_update())
    }

    /// Waits until something else is to be done.
    pub async fn order_changed(&mut self) {
        // `job` holds the sender, so this does not fail.
        let _ = self.order.changed().await;
    }

    /// Gives its turn to others until something else is to be done. Returns whether that came, rather than
    /// the job being cancelled.
    pub async fn rest(&mut self) -> bool {
        self.job.goes_to(Stage::Resting);
        let control = self.control.clone();
        let is_changed = tokio::select! {
            biased;
            () = control.cancelled() => false,
            () = self.order_changed() => true,
        };
        self.job.goes_to(Stage::Waiting);
        is_changed
    }

    /// Waits for a turn again after it rested. Returns whether it has one, rather than being cancelled.
    pub async fn take_turn(&mut self) -> bool {
        let turn = self.shared.turn_of(&self.job).await;
        let has_turn = turn.is_some();
        if let Some(turn) = turn {
            self.job.goes_to(Stage::Running(turn));
        }
        has_turn
    }
}

/// The end of a job.
#[derive(Debug)]
pub struct JobEnd {
    /// How it ended.
    pub state: KeptState,
    /// The last line of its record.
    pub line: String,
}

/// A job in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedJob {
    /// The job; without what was ordered.
    pub kept: KeptJob,
    /// What it does; `None` if it has ended, or is cancelled.
    pub activity: Option<Activity>,
    /// The newest [passing](Keep::Passing) line of its record, while it is open.
    pub progress: Option<Arc<str>>,
}

/// What an open job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It waits for its turn.
    Waiting,
    /// It runs.
    Running,
    /// It [rests](JobSeat::rest) until its owner changes the order.
    Resting,
}

/// A turn to work. Dropping it ends it.
#[derive(Debug)]
pub struct Turn {
    _permits: [OwnedSemaphorePermit; 2],
}

/// Why a job is not begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BoardError {
    /// A name that no job can have.
    #[error("a job's name has 1 to {NAME_BYTES_MAX} letters, digits and '-'")]
    Name,
    /// Too many jobs of this owner are open.
    #[error("{0} jobs of this user run or wait already")]
    TooMany(usize),
    /// Too many jobs are open.
    #[error("{0} jobs run or wait already")]
    TooManyOfAll(usize),
    /// The server is about to end.
    #[error("the server is about to end")]
    Ending,
    /// It cannot be kept, or its name is taken.
    #[error(transparent)]
    Keep(#[from] KeepError),
}

/// The work of a job.
pub type Work = Pin<Box<dyn Future<Output = JobEnd> + Send>>;

struct Shared {
    kept: KeptJobs,
    limits: BoardLimits,
    open: Mutex<BTreeMap<String, Arc<OpenJob>>>,
    turns: Arc<Semaphore>,
    turns_of: Mutex<HashMap<String, Arc<Semaphore>>>,
    is_ending: AtomicBool,
}

struct OpenJob {
    owner: String,
    place: String,
    order: watch::Sender<Arc<str>>,
    /// The line of its record that says that it waits.
    waits: String,
    is_forgotten: bool,
    record: Record,
    control: Control,
    stage: Mutex<Stage>,
    is_cancelled: AtomicBool,
}

/// How far an open job is.
enum Stage {
    Waiting,
    Running(Turn),
    Resting,
}

impl OpenJob {
    /// Ends a turn that it has.
    fn goes_to(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    fn activity(&self) -> Activity {
        match &*self.stage.lock().unwrap_or_else(PoisonError::into_inner) {
            Stage::Waiting => Activity::Waiting,
            Stage::Running(Turn { .. }) => Activity::Running,
            Stage::Resting => Activity::Resting,
        }
    }
}

impl Board {
    /// Opens the file of kept jobs, or makes it.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn open(path: &Path, limits: BoardLimits) -> Result<Board, KeepError> {
        Ok(Board::of(KeptJobs::open(path)?, limits))
    }

    /// Returns a board whose jobs are forgotten when the program ends.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn unkept(limits: BoardLimits) -> Result<Board, KeepError> {
        Ok(Board::of(KeptJobs::in_memory()?, limits))
    }

    fn of(kept: KeptJobs, limits: BoardLimits) -> Board {
        let shared = Shared {
            kept,
            limits,
            open: Mutex::default(),
            turns: Arc::new(Semaphore::new(limits.running)),
            turns_of: Mutex::default(),
            is_ending: AtomicBool::new(false),
        };
        Board { shared: Arc::new(shared) }
    }

    /// Begins a job, and returns a reader of its record. If the owner has a job of this name already,
    /// `work` is not used, and the reader is that of the job. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BoardError`].
    pub fn begin(
        &self,
        new: NewJob,
        work: impl FnOnce(JobSeat) -> Work + Send + 'static,
    ) -> Result<RecordReader, BoardError> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !(1..=NAME_BYTES_MAX).contains(&new.id.len()) || !new.id.bytes().all(is_name) {
            return Err(BoardError::Name);
        }
        if let Some(reader) = self.reader(&new.owner, &new.id)? {
            return Ok(reader);
        }
        if self.shared.is_ending.load(Ordering::SeqCst) {
            return Err(BoardError::Ending);
        }
        let mut open = self.shared.open();
        let own = open.values().filter(|job| job.owner == new.owner).count();
        if own >= self.shared.limits.open_of_one {
            return Err(BoardError::TooMany(own));
        }
        if open.len() >= self.shared.limits.open {
            return Err(BoardError::TooManyOfAll(open.len()));
        }
        self.shared.kept.add(&new.id, &new.owner, [&new.place, &new.from], &new.order)?;
        Ok(self.run(&mut open, new, work))
    }

    /// Returns the owner's open jobs whose data goes to this place: their names and orders.
    pub fn open_at(&self, owner: &str, place: &str) -> Vec<(String, Arc<str>)> {
        let open = self.shared.open();
        let at = open.iter().filter(|(_, job)| job.owner == owner && job.place == place);
        at.map(|(id, job)| (id.clone(), Arc::clone(&job.order.borrow()))).collect()
    }

    /// Whether there is an open job of this name, whosever it is.
    pub fn is_open(&self, id: &str) -> bool {
        self.shared.open().contains_key(id)
    }

    /// Changes the order of an open job, whose work learns of it.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn change(&self, id: &str, order: &str) -> Result<(), KeepError> {
        let Some(job) = self.shared.open().get(id).cloned() else { return Ok(()) };
        self.shared.kept.change(id, order)?;
        job.order.send_replace(order.into());
        Ok(())
    }

    /// Waits for a turn to work for this owner without a job: for what ends with its client.
    pub async fn turn(&self, owner: &str) -> Option<Turn> {
        self.shared.take_turn(owner).await
    }

    /// Returns the jobs of an earlier run of the server that have not ended. Each must be
    /// [resumed](Board::resume) or [ended](Board::end).
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn unfinished(&self) -> Result<Vec<KeptJob>, KeepError> {
        let mut all = self.shared.kept.all()?;
        all.retain(|job| job.state == KeptState::Open);
        Ok(all)
    }

    /// Begins an unfinished job again.
    pub fn resume(
        &self,
        job: &KeptJob,
        lines: BoardLines,
        work: impl FnOnce(JobSeat) -> Work + Send + 'static,
    ) {
        let KeptJob { id, owner, place, from, order, .. } = job.clone();
        let new = NewJob { id, owner, place, from, order, is_forgotten: false, lines };
        self.run(&mut self.shared.open(), new, work);
    }

    /// Ends a job that cannot be begun again.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn end(&self, id: &str, end: &JobEnd) -> Result<(), KeepError> {
        self.shared.kept.end(id, end.state, &end.line)
    }

    /// Returns a reader of a job's record, which is its last line if it has ended; `None` if the owner
    /// has no such job.
    ///
    /// # Errors
    /// [`KeepError`], [`KeepError::Taken`] if it is another's.
    pub fn reader(&self, owner: &str, id: &str) -> Result<Option<RecordReader>, KeepError> {
        if let Some(job) = self.shared.open().get(id) {
            return match job.owner == owner {
                true => Ok(Some(job.record.reader())),
                false => Err(KeepError::Taken),
            };
        }
        let Some(job) = self.shared.kept.job(id)? else { return Ok(None) };
        if job.owner != owner {
            return Err(KeepError::Taken);
        }
        let record = Record::default();
        record.end(job.result.unwrap_or_default());
        Ok(Some(record.reader()))
    }

    /// Cancels a job; what it has received is kept for another one. Returns whether the owner has such a
    /// job, and it had not ended.
    pub fn cancel(&self, owner: &str, id: &str) -> bool {
        let open = self.shared.open();
        let Some(job) = open.get(id).filter(|job| job.owner == owner) else { return false };
        job.is_cancelled.store(true, Ordering::SeqCst);
        job.control.cancel();
        true
    }

    /// Returns the owner's jobs, in the order in which they were ordered.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn list(&self, owner: &str) -> Result<Vec<ListedJob>, KeepError> {
        let mut all = self.shared.kept.all()?;
        all.retain(|job| job.owner == owner);
        let open = self.shared.open();
        let listed = all.into_iter().map(|kept| {
            let job = open.get(&kept.id).filter(|_| kept.state == KeptState::Open);
            // Its work may take a moment to end.
            let is_cancelled = job.is_some_and(|job| job.is_cancelled.load(Ordering::SeqCst));
            let state = if is_cancelled { KeptState::Cancelled } else { kept.state };
            ListedJob {
                kept: KeptJob { order: String::new(), state, ..kept },
                activity: job.filter(|_| !is_cancelled).map(|job| job.activity()),
                progress: job.and_then(|job| job.record.passing()),
            }
        });
        Ok(listed.collect())
    }

    /// Stops all jobs, which stay unfinished for the next run of the server, and waits for `patience` at
    /// most.
    pub async fn stop(&self, patience: Duration) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        self.shared.open().values().for_each(|job| job.control.cancel());
        let all = async {
            while !self.shared.open().is_empty() {
                sleep(LOOK_EVERY).await;
            }
        };
        let _ = timeout(patience, all).await;
    }

    fn run(
        &self,
        open: &mut BTreeMap<String, Arc<OpenJob>>,
        new: NewJob,
        work: impl FnOnce(JobSeat) -> Work + Send + 'static,
    ) -> RecordReader {
        let NewJob { id, owner, place, order, is_forgotten, lines, .. } = new;
        let job = Arc::new(OpenJob {
            owner,
            place,
            order: watch::Sender::new(order.into()),
            waits: lines.waits.clone(),
            is_forgotten,
            record: Record::default(),
            control: Control::default(),
            stage: Mutex::new(Stage::Waiting),
            is_cancelled: AtomicBool::new(false),
        });
        let reader = job.record.reader();
        open.insert(id.clone(), Arc::clone(&job));
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let end = Shared::turn(&shared, &job, work).await;
            // A panic must not keep the turn.
            job.goes_to(Stage::Resting);
            shared.ended(&id, &job, end, lines).await;
        });
        reader
    }
}

impl Shared {
    /// Runs a job in its turn; `None` if it was cancelled before that, or if it panicked.
    async fn turn(
        shared: &Arc<Shared>,
        job: &Arc<OpenJob>,
        work: impl FnOnce(JobSeat) -> Work + Send,
    ) -> Option<JobEnd> {
        let turn = shared.turn_of(job).await?;
        job.goes_to(Stage::Running(turn));
        let seat = JobSeat {
            record: job.record.clone(),
            control: job.control.clone(),
            job: Arc::clone(job),
            order: job.order.subscribe(),
            shared: Arc::clone(shared),
        };
        tokio::spawn(work(seat)).await.ok()
    }

    /// Waits for the turn of a job, and records it if that takes a while; `None` if the job is cancelled.
    async fn turn_of(&self, job: &OpenJob) -> Option<Turn> {
        let of_owner = self.turns_of(&job.owner);
        if of_owner.available_permits() == 0 || self.turns.available_permits() == 0 {
            job.record.add(Keep::Last, job.waits.as_str());
        }
        tokio::select! {
            biased;
            () = job.control.cancelled() => None,
            turn = self.take_turn(&job.owner) => turn,
        }
    }

    /// Waits for a turn; `None` never, as long as nobody closes the semaphores.
    async fn take_turn(&self, owner: &str) -> Option<Turn> {
        let of_owner = self.turns_of(owner).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        Some(Turn { _permits: [of_owner, of_all] })
    }

    fn turns_of(&self, owner: &str) -> Arc<Semaphore> {
        let mut all = self.turns_of.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = || Arc::new(Semaphore::new(self.limits.running_of_one));
        Arc::clone(all.entry(owner.to_owned()).or_insert_with(of_one))
    }

    async fn ended(&self, id: &str, job: &OpenJob, end: Option<JobEnd>, lines: BoardLines) {
        let is_cancelled = job.is_cancelled.load(Ordering::SeqCst);
        let was_stopped = self.is_ending.load(Ordering::SeqCst)
            && !is_cancelled
            && end.as_ref().is_none_or(|end| end.state != KeptState::Done);
        let (state, line) = match end {
            Some(JobEnd { state: KeptState::Failed, line }) if is_cancelled => {
                (KeptState::Cancelled, line)
            }
            Some(JobEnd { state, line }) => (state, line),
            None if is_cancelled || was_stopped => (KeptState::Cancelled, lines.cancelled),
            None => (KeptState::Failed, lines.broke),
        };
        // A full disk may get room again. A job whose end is not kept would be begun again.
        let keep = || match job.is_forgotten {
            true => self.kept.forget(id),
            false => self.kept.end(id, state, &line),
        };
        while !was_stopped && let Err(error) = keep() {
            tracing::warn!(%error, id, "the end of a job cannot be kept yet");
            if self.is_ending.load(Ordering::SeqCst) {
                break;
            }
            sleep(KEEP_AGAIN).await;
        }
        self.open().remove(id);
        // Whoever reads must find it ended, unless it goes on with the next run of the server.
        match was_stopped {
            true => job.record.close(),
            false => job.record.end(line),
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, Arc<OpenJob>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Board({} open, {:?})", self.shared.open().len(), self.shared.limits)
    }
}

const NAME_BYTES_MAX: usize = 64;
/// After a failure to keep the end of a job.
const KEEP_AGAIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn board(path: &Path) -> Board {
        let limits = BoardLimits { running: 3, running_of_one: 1, open: 6, open_of_one: 4 };
        Board::open(&path.join("jobs.db"), limits).unwrap()
    }

    fn lines() -> BoardLines {
        let text = |text: &str| text.to_owned();
        BoardLines { waits: text("waits"), cancelled: text("cancelled"), broke: text("broke") }
    }

    fn new(id: &str, owner: &str) -> NewJob {
        let text = |text: &str| text.to_owned();
        NewJob {
            id: text(id),
            owner: text(owner),
            place: text("/"),
            from: text("https://a.example/"),
            order: format!("order of {id}"),
            is_forgotten: false,
            lines: lines(),
        }
    }

    /// Records that it runs, and works until it is cancelled.
    fn long(seat: JobSeat) -> Work {
        Box::pin(async move {
            seat.record.add(Keep::Last, "runs");
            seat.control.cancelled().await;
            JobEnd { state: KeptState::Failed, line: "stopped".to_owned() }
        })
    }

    fn short(_: JobSeat) -> Work {
        Box::pin(async { JobEnd { state: KeptState::Done, line: "done".to_owned() } })
    }

    async fn rest(mut reader: RecordReader) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await {
            lines.push(line.to_string());
        }
        lines
    }

    #[tokio::test]
    async fn jobs_of_one_owner_wait_for_each_other_and_are_seen_by_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let board = board(folder.path());
        let mut first = board.begin(new("a", "ada"), long).unwrap();
        assert_eq!(first.next().await.as_deref(), Some("runs"));
        let mut second = board.begin(new("b", "ada"), short).unwrap();
        assert_eq!(second.next().await.as_deref(), Some("waits"));
        assert_eq!(rest(board.begin(new("c", "bob"), short).unwrap()).await, ["done"]);
        // Sent again, it is the same job.
        assert_eq!(
            board.begin(new("a", "ada"), short).unwrap().next().await.as_deref(),
            Some("runs")
        );
        assert!(matches!(
            board.begin(new("a", "bob"), short),
            Err(BoardError::Keep(KeepError::Taken))
        ));
        assert!(matches!(board.reader("bob", "a"), Err(KeepError::Taken)));
        assert!(!board.cancel("bob", "a") && board.reader("bob", "x").unwrap().is_none());
        let listed = board.list("ada").unwrap();
        let states: Vec<_> = listed.iter().map(|it| (&*it.kept.id, it.activity)).collect();
        let (runs, waits) = (Some(Activity::Running), Some(Activity::Waiting));
        assert_eq!(states, [("a", runs), ("b", waits)]);
        assert!(board.cancel("ada", "a"));
        assert_eq!(rest(first).await, ["stopped"]);
        assert_eq!(rest(second).await, ["done"]);
        let states: Vec<_> = board.list("ada").unwrap().iter().map(|it| it.kept.state).collect();
        assert_eq!(states, [KeptState::Cancelled, KeptState::Done]);
        // The end is read later, too.
        assert_eq!(rest(board.reader("ada", "b").unwrap().unwrap()).await, ["done"]);
    }

    #[tokio::test]
    async fn a_stopped_server_leaves_its_jobs_for_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let first = board(folder.path());
        let mut running = first.begin(new("a", "ada"), long).unwrap();
        running.next().await.unwrap();
        first.begin(new("b", "ada"), short).unwrap();
        rest(first.begin(new("c", "bob"), short).unwrap()).await;
        first.stop(Duration::from_secs(90)).await;
        assert!(matches!(first.begin(new("d", "ada"), short), Err(BoardError::Ending)));
        assert!(rest(running).await.is_empty(), "it has not ended");
        drop(first);
        let second = board(folder.path());
        let unfinished = second.unfinished().unwrap();
        let ids: Vec<_> = unfinished.iter().map(|job| (&*job.id, &*job.order)).collect();
        assert_eq!(ids, [("a", "order of a"), ("b", "order of b")]);
        second.resume(&unfinished[0], lines(), short);
        let end = JobEnd { state: KeptState::Failed, line: "no such folder".to_owned() };
        second.end("b", &end).unwrap();
        assert_eq!(rest(second.reader("ada", "a").unwrap().unwrap()).await, ["done"]);
        assert_eq!(rest(second.reader("ada", "b").unwrap().unwrap()).await, ["no such folder"]);
        assert!(second.unfinished().unwrap().is_empty());
    }

    /// It was "running" until its work had ended.
    #[tokio::test]
    async fn a_cancelled_job_is_cancelled_at_once() {
        let stubborn = |seat: JobSeat| -> Work {
            Box::pin(async move {
                for done in ["half", "all"] {
                    seat.record.add(Keep::Passing, done);
                }
                seat.record.add(Keep::Last, "runs");
                std::future::pending().await
            })
        };
        let folder = tempfile::tempdir().unwrap();
        let board = board(folder.path());
        let mut reader = board.begin(new("a", "ada"), stubborn).unwrap();
        while reader.next().await.as_deref() != Some("runs") {}
        let listed = || board.list("ada").unwrap().remove(0);
        let before = listed();
        assert_eq!(
            (before.kept.state, before.activity),
            (KeptState::Open, Some(Activity::Running))
        );
        assert_eq!(before.progress.as_deref(), Some("all"));
        assert_eq!(before.kept.from, "https://a.example/");
        assert!(board.cancel("ada", "a"));
        assert_eq!((listed().kept.state, listed().activity), (KeptState::Cancelled, None));
    }

    #[tokio::test]
    async fn a_job_that_rests_lets_others_run_until_its_order_changes() {
        let rests = |mut seat: JobSeat| -> Work {
            Box::pin(async move {
                let order = seat.order();
                seat.record.add(Keep::Last, order);
                let has_turn = seat.rest().await && seat.take_turn().await;
                let line = format!("{has_turn}: {}", seat.order());
                JobEnd { state: KeptState::Done, line }
            })
        };
        let folder = tempfile::tempdir().unwrap();
        let board = board(folder.path());
        let mut first = board.begin(new("a", "ada"), rests).unwrap();
        assert_eq!(first.next().await.as_deref(), Some("order of a"));
        // One at a time of this owner.
        assert_eq!(
            rest(board.begin(new("b", "ada"), short).unwrap()).await.last().unwrap(),
            "done"
        );
        assert_eq!(board.list("ada").unwrap()[0].activity, Some(Activity::Resting));
        assert_eq!(board.open_at("ada", "/"), [("a".to_owned(), "order of a".into())]);
        assert!(board.open_at("bob", "/").is_empty() && board.open_at("ada", "/x").is_empty());
        board.change("a", "another order").unwrap();
        assert_eq!(rest(first).await, ["true: another order"]);
        board.change("a", "too late").unwrap();
        let third = board.begin(new("c", "ada"), rests).unwrap();
        while board.list("ada").unwrap()[2].activity != Some(Activity::Resting) {
            sleep(LOOK_EVERY).await;
        }
        assert!(board.cancel("ada", "c"));
        assert_eq!(rest(third).await, ["order of c", "false: order of c"]);
        // Of some nobody knows afterwards.
        let passing = NewJob { is_forgotten: true, ..new("e", "ada") };
        assert_eq!(rest(board.begin(passing, short).unwrap()).await, ["done"]);
        assert!(board.reader("ada", "e").unwrap().is_none());
        // A changed order is the one that is begun again.
        let fourth = board.begin(new("d", "ada"), long).unwrap();
        board.change("d", "changed").unwrap();
        board.stop(Duration::from_secs(90)).await;
        rest(fourth).await;
        assert_eq!(board.unfinished().unwrap()[0].order, "changed");
    }

    #[tokio::test]
    async fn names_and_numbers_of_jobs_are_limited() {
        let folder = tempfile::tempdir().unwrap();
        let board = board(folder.path());
        for name in ["", "a b", "../a", "ü", &"a".repeat(NAME_BYTES_MAX + 1)] {
            assert!(
                matches!(board.begin(new(name, "ada"), short), Err(BoardError::Name)),
                "{name}"
            );
        }
        for number in 0..4 {
            board.begin(new(&number.to_string(), "ada"), long).unwrap();
        }
        assert!(matches!(board.begin(new("5", "ada"), long), Err(BoardError::TooMany(4))));
        board.begin(new("5", "bob"), long).unwrap();
        board.begin(new("6", "bob"), long).unwrap();
        assert!(matches!(board.begin(new("7", "cy"), long), Err(BoardError::TooManyOfAll(6))));
        // One that waits is cancelled at once.
        let waiting = board.reader("ada", "3").unwrap().unwrap();
        assert!(board.cancel("ada", "3"));
        assert_eq!(rest(waiting).await, ["waits", "cancelled"]);
    }

    #[tokio::test]
    async fn a_job_that_panics_ends() {
        let folder = tempfile::tempdir().unwrap();
        let board = board(folder.path());
        let panics = |_| -> Work { Box::pin(async { panic!("on purpose") }) };
        assert_eq!(rest(board.begin(new("a", "ada"), panics).unwrap()).await, ["broke"]);
        assert_eq!(board.list("ada").unwrap()[0].kept.state, KeptState::Failed);
        assert_eq!(rest(board.begin(new("b", "ada"), short).unwrap()).await, ["done"]);
    }
}
