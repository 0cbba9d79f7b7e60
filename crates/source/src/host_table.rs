//! What the run has learnt of hosts, for all of its files: how many connections they serve, whether
//! they can be reached, how they keep connections, how they take a request for a range.
//!
//! A lane asks here before it connects ([`HostTable::admit`]), and waits while its host has as many
//! connections as it allows, has asked for patience, or was not reached and is tried by another lane.
//! A host that could not be reached for long costs no further file anything but now and then a try.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::error::LaneError;
use crate::http_source::HttpSource;
use crate::quirks::{HostQuirks, Quirks, TIMES_TO_BELIEVE};
use crate::target::Origin;

/// The hosts of a run.
#[derive(Debug, Default)]
pub(crate) struct HostTable {
    known: Mutex<HashMap<Origin, Host>>,
    /// Somebody who waits may have a reason to go on.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Host {
    /// It has honoured a range.
    honoured: bool,
    /// Files that came only when no range was asked for.
    refused: u32,
    /// Connections, those of them that have good answers, and the most that ever had them at once.
    open: u32,
    serving: u32,
    served_most: u32,
    /// So many connections it serves; it has refused further ones.
    allowed: Option<u32>,
    /// When it last refused one while it served none.
    refused_at: Option<Instant>,
    /// It has asked for patience until then.
    quiet_until: Option<Instant>,
    /// A connection has come about.
    was_up: bool,
    /// It is not reached just now.
    down: Option<Down>,
    host_quirks: HostQuirks,
}

/// A host that could not be reached, and since then has not been.
#[derive(Clone, Debug)]
struct Down {
    since: Instant,
    tries: u32,
    next_at: Instant,
    /// One connection tries; the others wait for what comes of it.
    is_tried: bool,
    error: LaneError,
}

/// A connection to a host, while it lives.
#[derive(Debug)]
pub(crate) struct Presence {
    hosts: Arc<HostTable>,
    origin: Origin,
    serves: bool,
    /// It tries whether the host is there again.
    tries: bool,
}

/// What becomes of somebody who asks for a connection.
enum Admitted {
    In(Presence),
    /// Ask again then, or when something has changed.
    Wait(Option<Instant>),
    Never(LaneError),
}

impl HostTable {
    /// One more connection to this host, as soon as it may be: of `most` at once, and of no more than it
    /// serves.
    ///
    /// # Errors
    /// [`LaneError::Down`] if the host has not been reached for long.
    pub async fn admit(
        self: &Arc<HostTable>,
        origin: &Origin,
        most: Option<u32>,
    ) -> Result<Presence, LaneError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.try_admit(origin, most, Instant::now()) {
                Admitted::In(presence) => return Ok(presence),
                Admitted::Never(error) => return Err(error),
                Admitted::Wait(None) => changed.await,
                Admitted::Wait(Some(at)) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(at) => {}
                },
            }
        }
    }

    fn try_admit(
        self: &Arc<HostTable>,
        origin: &Origin,
        most: Option<u32>,
        now: Instant,
    ) -> Admitted {
        let mut tries = false;
        {
            let mut known = self.lock();
            let there = entry(&mut known, origin);
            let most = most.unwrap_or(u32::MAX).min(there.allowed.unwrap_or(u32::MAX)).max(1);
            if there.open >= most {
                return Admitted::Wait(None);
            }
            if let Some(until) = there.quiet_until.filter(|&until| until > now) {
                return Admitted::Wait(Some(until));
            }
            let was_up = there.was_up;
            if let Some(down) = &mut there.down {
                let is_due = !down.is_tried && down.next_at <= now;
                if !is_due && down.is_for_long(was_up, now) {
                    return Admitted::Never(LaneError::Down {
                        for_s: now.saturating_duration_since(down.since).as_secs(),
                        error: Box::new(down.error.clone()),
                    });
                }
                if !is_due {
                    return Admitted::Wait((!down.is_tried).then_some(down.next_at));
                }
                down.is_tried = true;
                tries = true;
            }
            there.open += 1;
        }
        Admitted::In(Presence {
            hosts: Arc::clone(self),
            origin: origin.clone(),
            serves: false,
            tries,
        })
    }

    /// Returns whether this host was not reached when it was last tried.
    pub fn is_down(&self, origin: &Origin) -> bool {
        self.lock().get(origin).is_some_and(|there| there.down.is_some())
    }

    /// Returns how many connections it serves, where it has refused further ones.
    pub fn allowed(&self, origin: &Origin) -> Option<u32> {
        self.lock().get(origin).and_then(|there| there.allowed)
    }

    /// A file was answered for, by a range (`ranges`) or not; it was asked for as a whole after a range
    /// had been refused.
    pub fn note(&self, origin: &Origin, ranges: bool, asked_whole: bool) {
        self.change(origin, |there| {
            there.honoured |= ranges;
            there.refused = match (ranges, asked_whole) {
                (true, _) => 0,
                (false, true) => there.refused.saturating_add(1),
                (false, false) => there.refused,
            };
        });
    }

    /// How often a refusal of the host is to be borne because it may mean one connection too many: it
    /// has more of ours than it ever served.
    pub fn bears_refusals(&self, origin: &Origin) -> u32 {
        let known = self.lock();
        let Some(there) = known.get(origin) else { return 0 };
        match there.served_most {
            0 if there.open > 1 => UNSERVED_BORNE,
            most if there.open > most.max(1) => CROWDED_BORNE,
            _ => 0,
        }
    }

    /// Returns whether requests for ranges are in vain there, as far as known.
    pub fn refuses_ranges(&self, origin: &Origin) -> bool {
        let known = self.lock();
        known.get(origin).is_some_and(|it| !it.honoured && it.refused >= TIMES_TO_BELIEVE)
    }

    /// Returns whether it has honoured a range.
    pub fn honours_ranges(&self, origin: &Origin) -> bool {
        self.lock().get(origin).is_some_and(|there| there.honoured)
    }

    /// How it keeps connections.
    pub fn host_quirks(&self, origin: &Origin) -> HostQuirks {
        self.lock().get(origin).map(|there| there.host_quirks).unwrap_or_default()
    }

    /// Notes what a connection shows of that.
    pub fn note_host_quirks<T>(
        &self,
        origin: &Origin,
        what: impl FnOnce(&mut HostQuirks) -> T,
    ) -> T {
        what(&mut entry(&mut self.lock(), origin).host_quirks)
    }

    fn change(&self, origin: &Origin, how: impl FnOnce(&mut Host)) {
        how(entry(&mut self.lock(), origin));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Origin, Host>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpSource {
    /// How the server was seen to behave.
    pub fn quirks(&self) -> Quirks {
        let ranges = self.note(|file_quirks| file_quirks.ranges);
        let target = self.target();
        let host_quirks =
            target.origin.as_ref().map(|origin| self.net().hosts().host_quirks(origin));
        host_quirks.unwrap_or_default().quirks(ranges)
    }

    /// Notes what a connection shows of how its host keeps connections.
    pub(crate) fn note_host_quirks(&self, what: impl FnOnce(&mut HostQuirks)) {
        if let Some(origin) = self.target().origin.as_ref() {
            self.net().hosts().note_host_quirks(origin, what);
        }
    }

    /// Returns whether its host has honoured a range, of whatever file.
    pub(crate) fn honours_ranges(&self) -> bool {
        let target = self.target();
        target.origin.as_ref().is_some_and(|origin| self.net().hosts().honours_ranges(origin))
    }

    /// Returns how many connections its host is to have from us at most. Those of relays, and of servers of
    /// datasets, which say for themselves how many they bear, are not limited.
    pub(crate) fn connections_max(&self) -> Option<u32> {
        let is_foreign = self.sealed().is_none() && !self.is_relayed();
        let target = self.target();
        self.net().connections_to(target.origin.as_ref()?).filter(|_| is_foreign)
    }

    /// Returns how many connections its host serves, where it has refused further ones.
    pub fn connections_allowed(&self) -> Option<u32> {
        self.net().hosts().allowed(self.target().origin.as_ref()?)
    }
}

fn entry<'a>(known: &'a mut HashMap<Origin, Host>, origin: &Origin) -> &'a mut Host {
    if known.len() >= HOSTS_MAX && !known.contains_key(origin) {
        known.retain(|_, there| there.open > 0);
    }
    known.entry(origin.clone()).or_default()
}

impl Host {
    /// One of the connections that are open is refused.
    fn serves_no_more(&mut self) {
        let others = self.open.saturating_sub(1).max(self.served_most).max(1);
        self.allowed = Some(self.allowed.unwrap_or(u32::MAX).min(others));
        self.refused_at = Some(Instant::now());
    }
}

impl Down {
    /// Returns whether it is not worth waiting for.
    fn is_for_long(&self, was_up: bool, now: Instant) -> bool {
        let limit = if was_up { GONE_AFTER } else { NEVER_UP_AFTER };
        self.tries >= TRIES_MIN && now.saturating_duration_since(self.since) >= limit
    }
}

impl Presence {
    /// The connection has come about.
    pub fn reached(&mut self) {
        self.tries = false;
        self.hosts.change(&self.origin, |there| {
            there.was_up = true;
            there.down = None;
        });
        self.hosts.changed.notify_waiters();
    }

    /// It has not.
    pub fn unreached(&mut self, error: &LaneError) {
        self.tries = false;
        let now = Instant::now();
        self.hosts.change(&self.origin, |there| {
            let was_up = there.was_up;
            let down = there.down.get_or_insert_with(|| Down {
                since: now,
                tries: 0,
                next_at: now,
                is_tried: false,
                error: error.clone(),
            });
            down.tries += 1;
            down.is_tried = false;
            down.error = error.clone();
            down.next_at = now
                + match down.is_for_long(was_up, now) {
                    true => RETRY_LONG,
                    false => (RETRY_FIRST * (1 << down.tries.min(8))).min(RETRY_MAX),
                };
        });
        self.hosts.changed.notify_waiters();
    }

    /// The host has given a good answer on it.
    pub fn serves(&mut self) {
        if !std::mem::replace(&mut self.serves, true) {
            self.hosts.change(&self.origin, |there| {
                there.serving += 1;
                there.served_most = there.served_most.max(there.serving);
                // Those that were refused a moment ago were refused beside this one.
                if there.refused_at.is_some_and(|at| at.elapsed() < AT_ONCE) {
                    there.allowed.get_or_insert(1);
                }
                there.allowed = there.allowed.map(|it| it.max(there.served_most));
            });
        }
    }

    /// The host has refused one connection more than it serves.
    pub fn is_one_too_many(&mut self) {
        self.hosts.change(&self.origin, Host::serves_no_more);
    }

    /// The host is too busy to answer on it, for so long if it has said so. Where it serves others of
    /// ours, it serves no more than those.
    pub fn is_put_off(&mut self, wait: Option<Duration>) {
        let serves = u32::from(self.serves);
        self.hosts.change(&self.origin, |there| {
            if there.serving > serves {
                there.serves_no_more();
            } else {
                there.refused_at = Some(Instant::now());
            }
            if let Some(wait) = wait.filter(|_| there.serving <= serves) {
                let until = Instant::now() + wait.min(PATIENCE_MAX);
                there.quiet_until = there.quiet_until.max(Some(until));
            }
        });
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.hosts.change(&self.origin, |there| {
            there.open = there.open.saturating_sub(1);
            there.serving = there.serving.saturating_sub(u32::from(self.serves));
            if let Some(down) = there.down.as_mut().filter(|_| self.tries) {
                down.is_tried = false;
            }
        });
        self.hosts.changed.notify_waiters();
    }
}

/// Connections are opened side by side: what befalls them within this time befalls them at once.
const AT_ONCE: Duration = Duration::from_secs(2);
/// Where nothing was served yet, all of a host may be closed to us.
const UNSERVED_BORNE: u32 = 2;
/// A file is asked for so often again while its host serves others: for a minute and a half in all.
const CROWDED_BORNE: u32 = 8;
/// Hosts that are remembered; beyond that only those in use are.
const HOSTS_MAX: usize = 4096;
/// A host that has never been reached is given up after this time, …
const NEVER_UP_AFTER: Duration = Duration::from_secs(10);
/// … one that has been after this, …
const GONE_AFTER: Duration = Duration::from_secs(60);
/// … and after so many tries.
const TRIES_MIN: u32 = 2;
/// The first further try comes after twice this …
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// … later ones this far apart, …
const RETRY_MAX: Duration = Duration::from_millis(1500);
/// … and this far once it is given up.
const RETRY_LONG: Duration = Duration::from_secs(30);
/// No host has all of a run's files wait longer.
const PATIENCE_MAX: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str) -> Origin {
        Origin::of(&url::Url::parse(url).unwrap()).unwrap()
    }

    fn refusal() -> LaneError {
        LaneError::Connect {
            host: "a:80".to_owned(),
            timed_out: false,
            reason: "refused".to_owned(),
        }
    }

    async fn enters(
        hosts: &Arc<HostTable>,
        origin: &Origin,
        most: Option<u32>,
    ) -> Option<Presence> {
        let admitted = tokio::time::timeout(Duration::from_millis(1), hosts.admit(origin, most));
        admitted.await.ok()?.ok()
    }

    #[test]
    fn a_host_that_refused_the_ranges_of_two_files_is_asked_for_none() {
        let hosts = HostTable::default();
        let (one, other) = (origin("http://a/"), origin("http://b/"));
        hosts.note(&one, false, true);
        assert!(!hosts.refuses_ranges(&one), "one file proves nothing");
        hosts.note(&one, false, true);
        assert!(hosts.refuses_ranges(&one) && !hosts.refuses_ranges(&other));
        hosts.note(&one, true, false);
        assert!(!hosts.refuses_ranges(&one) && hosts.honours_ranges(&one));
        (0..9).for_each(|_| hosts.note(&other, false, false));
        assert!(!hosts.refuses_ranges(&other), "it ignores them, and says 200");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_borne_where_more_connections_are_open_than_were_ever_served() {
        let hosts = Arc::new(HostTable::default());
        let origin = origin("http://a/");
        let mut one = hosts.admit(&origin, None).await.unwrap();
        assert_eq!(hosts.bears_refusals(&origin), 0, "whoever has one of ours means it");
        let mut two = hosts.admit(&origin, None).await.unwrap();
        assert_eq!(hosts.bears_refusals(&origin), UNSERVED_BORNE);
        one.serves();
        one.serves();
        two.serves();
        assert_eq!(hosts.bears_refusals(&origin), 0, "it serves two");
        let three = hosts.admit(&origin, None).await.unwrap();
        assert_eq!(hosts.bears_refusals(&origin), CROWDED_BORNE);
        drop((one, two));
        assert_eq!(hosts.bears_refusals(&origin), 0, "the last one is not one too many");
        drop(three);
    }

    /// A list of files on a host that serves two connections: each file found that out for itself, by
    /// a refusal.
    #[tokio::test(start_paused = true)]
    async fn further_connections_wait_where_one_was_refused_beside_others() {
        let hosts = Arc::new(HostTable::default());
        let origin = origin("http://a/");
        let mut open = Vec::new();
        for _ in 0..4 {
            open.push(hosts.admit(&origin, None).await.unwrap());
        }
        open[0].serves();
        open[1].serves();
        for _ in 0..2 {
            open.last_mut().unwrap().is_put_off(Some(Duration::from_secs(5)));
            open.pop();
        }
        assert_eq!(hosts.allowed(&origin), Some(2));
        assert!(enters(&hosts, &origin, None).await.is_none(), "it has its two");
        open.pop();
        assert!(enters(&hosts, &origin, None).await.is_some(), "one of them has ended");
        assert!(enters(&hosts, &origin, Some(1)).await.is_none(), "we ourselves want no more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_asked_for_patience_is_left_alone_by_all() {
        let hosts = Arc::new(HostTable::default());
        let origin = origin("http://a/");
        let mut only = hosts.admit(&origin, None).await.unwrap();
        only.is_put_off(Some(Duration::from_secs(5)));
        drop(only);
        assert_eq!(hosts.allowed(&origin), None, "nobody was served beside it");
        let began = Instant::now();
        hosts.admit(&origin, None).await.unwrap();
        assert!(began.elapsed() >= Duration::from_secs(5));
    }

    /// Each of a list's files on a dead host was tried for ten seconds, and held a job meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_dead_host_is_tried_by_one_at_a_time_and_given_up_for_all() {
        let hosts = Arc::new(HostTable::default());
        let origin = origin("http://a/");
        let mut tries = 0;
        let began = Instant::now();
        let error = loop {
            match hosts.admit(&origin, None).await {
                Ok(mut presence) => {
                    if tries > 0 {
                        assert!(enters(&hosts, &origin, None).await.is_none(), "one tries");
                    }
                    tries += 1;
                    presence.unreached(&refusal());
                    assert!(hosts.is_down(&origin));
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(error, LaneError::Down { .. }), "{error}");
        assert!((8..20).contains(&tries), "{tries}");
        let took = began.elapsed();
        assert!((NEVER_UP_AFTER..NEVER_UP_AFTER + RETRY_MAX * 2).contains(&took), "{took:?}");
        assert!(hosts.admit(&origin, None).await.is_err(), "the next file is told at once");
        tokio::time::sleep(RETRY_LONG).await;
        let mut again = hosts.admit(&origin, None).await.unwrap();
        again.reached();
        assert!(!hosts.is_down(&origin));
        assert!(enters(&hosts, &origin, None).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_tried_and_left_leaves_the_try_to_others() {
        let hosts = Arc::new(HostTable::default());
        let origin = origin("http://a/");
        hosts.admit(&origin, None).await.unwrap().unreached(&refusal());
        tokio::time::sleep(RETRY_MAX).await;
        drop(hosts.admit(&origin, None).await.unwrap());
        assert!(enters(&hosts, &origin, None).await.is_some());
    }
}
