//! What all connections of one server share: paths, rules, counters, the log, and whether the
//! server lives. Every change bumps a version that connections watch, so that a new rule takes
//! hold in the middle of a body.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::behaviour::{Behaviour, Death, Faults, Rule, When};
use super::content::Content;
use super::log::Record;
use super::pace::Pacer;
use super::request::Request;

/// One path and what it serves now.
#[derive(Debug)]
pub(super) struct Route {
    pub path: String,
    pub content_type: String,
    pub pacer: Pacer,
    pub sent_bytes: AtomicU64,
    version: Mutex<Arc<Version>>,
}

/// One state of a file. Requests keep the version that they began with.
#[derive(Debug)]
pub(super) struct Version {
    pub tag: String,
    pub modified_unix_s: u64,
    content: Mutex<Content>,
}

impl Version {
    fn new(content: Content, modified_unix_s: u64) -> Arc<Self> {
        Arc::new(Version { tag: content.tag(), modified_unix_s, content: Mutex::new(content) })
    }

    /// Returns the bytes, which an overwrite in place may have changed since the request began.
    pub(super) fn content(&self) -> Content {
        lock(&self.content).clone()
    }
}

impl Route {
    pub(super) fn new(path: String, content_type: String, content: Content) -> Arc<Self> {
        Arc::new(Route {
            path,
            content_type,
            pacer: Pacer::default(),
            sent_bytes: AtomicU64::new(0),
            version: Mutex::new(Version::new(content, FIRST_MODIFIED_UNIX_S)),
        })
    }

    pub(super) fn version(&self) -> Arc<Version> {
        lock(&self.version).clone()
    }

    /// The file becomes another one. In place, bodies on their way continue with the new bytes.
    pub(super) fn replace(&self, content: Content, in_place: bool) {
        let mut version = lock(&self.version);
        if in_place {
            *lock(&version.content) = content.clone();
        }
        *version = Version::new(content, version.modified_unix_s + 3600);
    }
}

/// Everything that the connections of one server share.
pub(super) struct Shared {
    pub started: Instant,
    pub pacer: Pacer,
    pub sent_bytes: AtomicU64,
    pub connections: AtomicU64,
    pub open_connections: AtomicU64,
    pub changed: watch::Sender<u64>,
    log: Mutex<Records>,
    inner: Mutex<Inner>,
    settled: Condvar,
}

#[derive(Default)]
struct Records {
    /// How many were cleared away; open answers still name theirs by number.
    cleared: u64,
    kept: Vec<Record>,
}

#[derive(Default)]
struct Inner {
    routes: BTreeMap<String, Arc<Route>>,
    rules: Vec<ActiveRule>,
    next_rule: u64,
    stalled_until: Option<Instant>,
    wants_life: bool,
    listens: bool,
    back_at: Option<Instant>,
}

struct ActiveRule {
    number: u64,
    /// The path, or `None` for the whole server.
    path: Option<String>,
    rule: Rule,
    since: Instant,
    seen: u64,
    /// A silence that has come due and been made known.
    begun: bool,
}

/// Which rules one request fell under. Rules set later are judged when first met.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdicts(Vec<(u64, bool)>);

impl Shared {
    pub(super) fn new(routes: Vec<Arc<Route>>) -> Arc<Self> {
        let routes = routes.into_iter().map(|route| (route.path.clone(), route)).collect();
        Arc::new(Shared {
            started: Instant::now(),
            pacer: Pacer::default(),
            sent_bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            open_connections: AtomicU64::new(0),
            changed: watch::channel(0).0,
            log: Mutex::default(),
            inner: Mutex::new(Inner { routes, wants_life: true, ..Inner::default() }),
            settled: Condvar::new(),
        })
    }

    pub(super) fn route(&self, path: &str) -> Option<Arc<Route>> {
        lock(&self.inner).routes.get(path).cloned()
    }

    pub(super) fn put_route(&self, route: Arc<Route>) {
        lock(&self.inner).routes.insert(route.path.clone(), route);
        self.bump();
    }

    /// Adds a rule; with `replaces`, in place of those of its kind in the same scope.
    pub(super) fn add_rule(&self, path: Option<&str>, rule: Rule, replaces: bool) {
        let mut inner = lock(&self.inner);
        if replaces {
            let kind = std::mem::discriminant(&rule.behaviour);
            inner.rules.retain(|known| {
                known.path.as_deref() != path
                    || std::mem::discriminant(&known.rule.behaviour) != kind
            });
        }
        let number = inner.next_rule;
        inner.next_rule += 1;
        let (path, since) = (path.map(str::to_owned), Instant::now());
        inner.rules.push(ActiveRule { number, path, rule, since, seen: 0, begun: false });
        drop(inner);
        self.bump();
    }

    /// Takes away the rules of a scope that `drop_rule` picks.
    pub(super) fn remove_rules(&self, path: Option<&str>, drop_rule: impl Fn(&Behaviour) -> bool) {
        let mut inner = lock(&self.inner);
        inner
            .rules
            .retain(|known| known.path.as_deref() != path || !drop_rule(&known.rule.behaviour));
        if path.is_none() {
            inner.stalled_until = None;
        }
        drop(inner);
        self.bump();
    }

    /// Takes away a rule that has done its work. False where another connection was first.
    pub(super) fn use_up(&self, number: u64) -> bool {
        let mut inner = lock(&self.inner);
        let before = inner.rules.len();
        inner.rules.retain(|known| known.number != number);
        let used = inner.rules.len() < before;
        drop(inner);
        if used {
            self.bump();
        }
        used
    }

    /// Counts a request and decides which rules it falls under.
    pub(super) fn judge(&self, connection: u64, request: &Request) -> Verdicts {
        let mut inner = lock(&self.inner);
        let mut verdicts = Vec::with_capacity(inner.rules.len());
        for known in &mut inner.rules {
            if known.path.as_deref().is_some_and(|path| path != request.path) {
                continue;
            }
            let seen = known.seen;
            known.seen += 1;
            let applies = match &known.rule.when {
                When::Always => true,
                When::First(count) => seen < *count,
                When::After(count) => seen >= *count,
                When::EveryNth(n) => (seen + 1).is_multiple_of(*n),
                When::Method(method) => *method == request.method,
                When::Ranged => request.header("range").is_some(),
                When::Connection(number) => *number == connection,
            };
            verdicts.push((known.number, applies));
        }
        Verdicts(verdicts)
    }

    /// Returns the rules of a request, folded as they stand now.
    pub(super) fn faults(&self, path: &str, verdicts: &Verdicts) -> Faults {
        let inner = lock(&self.inner);
        let now = Instant::now();
        let mut faults = Faults::default();
        for on_route in [false, true] {
            for known in &inner.rules {
                if known.path.is_some() != on_route
                    || known.path.as_deref().is_some_and(|own| own != path)
                {
                    continue;
                }
                let verdict = verdicts.0.iter().find(|(number, _)| *number == known.number);
                let applies = match verdict {
                    Some((_, applies)) => *applies,
                    // Set while the request was under way.
                    None => known.rule.when == When::Always,
                };
                if applies {
                    let age = now.saturating_duration_since(known.since);
                    faults.add(known.number, on_route, age, &known.rule.behaviour);
                }
            }
        }
        faults
    }

    /// Until when the whole server pauses.
    pub(super) fn stalled_until(&self) -> Option<Instant> {
        lock(&self.inner).stalled_until.filter(|until| *until > Instant::now())
    }

    pub(super) fn stall(&self, lasts: Duration) {
        lock(&self.inner).stalled_until = Some(after(Instant::now(), lasts));
        self.bump();
    }

    /// Dies now; comes back by itself when asked to.
    pub(super) fn die(&self, back_after: Option<Duration>) {
        let mut inner = lock(&self.inner);
        inner.wants_life = false;
        inner.back_at = back_after.map(|pause| after(Instant::now(), pause));
        drop(inner);
        self.bump();
    }

    pub(super) fn revive(&self) {
        let mut inner = lock(&self.inner);
        inner.wants_life = true;
        inner.back_at = None;
        drop(inner);
        self.bump();
    }

    /// Carries out what has come due by the clock. Answers whether the server should listen, and
    /// when to look again.
    pub(super) fn tick(&self, now: Instant) -> (bool, Option<Instant>) {
        let mut inner = lock(&self.inner);
        let mut due = Vec::new();
        let mut next: Option<Instant> = None;
        let mut silenced = false;
        for known in &mut inner.rules {
            let (at, death) = match &known.rule.behaviour {
                Behaviour::Die { at: Death::Time(wait), back_after } => {
                    (after(known.since, *wait), Some(*back_after))
                }
                Behaviour::Silent { after: wait } => (after(known.since, *wait), None),
                _ => continue,
            };
            if at > now {
                next = Some(next.map_or(at, |known| known.min(at)));
            } else if let Some(back_after) = death {
                due.push((known.number, back_after));
            } else if !known.begun {
                known.begun = true;
                silenced = true;
            }
        }
        for (number, back_after) in due {
            inner.rules.retain(|known| known.number != number);
            inner.wants_life = false;
            inner.back_at = back_after.map(|pause| after(now, pause));
        }
        match inner.back_at {
            Some(at) if at <= now => {
                inner.wants_life = true;
                inner.back_at = None;
            }
            Some(at) => next = Some(next.map_or(at, |known| known.min(at))),
            None => {}
        }
        let wants_life = inner.wants_life;
        drop(inner);
        if silenced {
            self.bump();
        }
        (wants_life, next)
    }

    /// The main loop says whether it listens.
    pub(super) fn set_listens(&self, listens: bool) {
        lock(&self.inner).listens = listens;
        self.settled.notify_all();
    }

    pub(super) fn listens(&self) -> bool {
        lock(&self.inner).listens
    }

    /// Blocks until the main loop has done as asked, or a minute has passed.
    pub(super) fn wait_listens(&self, wanted: bool) -> bool {
        let inner = lock(&self.inner);
        let wait = self
            .settled
            .wait_timeout_while(inner, Duration::from_secs(60), |inner| inner.listens != wanted);
        wait.is_ok_and(|(inner, _)| inner.listens == wanted)
    }

    /// Begins a record and answers its number.
    pub(super) fn open_record(&self, connection: u64, request: &Request) -> u64 {
        let mut log = lock(&self.log);
        let number = log.cleared + log.kept.len() as u64;
        log.kept.push(Record {
            number,
            connection,
            method: request.method.clone(),
            path: request.path.clone(),
            target: request.target.clone(),
            headers: request.headers.clone(),
            range: None,
            status: 0,
            sent_bytes: 0,
            started: request.arrived.saturating_duration_since(self.started),
            ended: None,
            complete: false,
        });
        number
    }

    pub(super) fn record(&self, number: u64, change: impl FnOnce(&mut Record)) {
        let mut log = lock(&self.log);
        let place = number.checked_sub(log.cleared).map(|place| place as usize);
        if let Some(record) = place.and_then(|place| log.kept.get_mut(place)) {
            change(record);
        }
    }

    pub(super) fn log(&self) -> Vec<Record> {
        lock(&self.log).kept.clone()
    }

    pub(super) fn clear_log(&self) {
        let mut log = lock(&self.log);
        log.cleared += log.kept.len() as u64;
        log.kept.clear();
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    fn bump(&self) {
        self.changed.send_modify(|version| *version += 1);
    }
}

/// A poisoned lock only means that a test has failed already.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An instant that far ahead; `Duration::MAX` means about a year.
pub(super) fn after(from: Instant, wait: Duration) -> Instant {
    from + wait.min(Duration::from_secs(365 * 24 * 3600))
}

/// 1 January 2024: every file's age until it is replaced, so that replicas agree on it.
const FIRST_MODIFIED_UNIX_S: u64 = 1_704_067_200;
