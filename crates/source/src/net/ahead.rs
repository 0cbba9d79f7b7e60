//! Connections that are opened before anybody asks for them: on a long route the first request of
//! every lane goes out at once then, instead of two or three round trips later.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use url::Url;

use super::Net;
use super::connect::CONNECT_WITHIN;
use crate::source::Trust;
use crate::target::{Origin, Target};

/// Which connections are on their way to the idle ones.
#[derive(Default)]
pub(super) struct Ahead {
    by_origin: Mutex<HashMap<Origin, Expected>>,
    changed: Notify,
}

#[derive(Default)]
struct Expected {
    /// So many are being opened.
    opening: u32,
    /// So many of them somebody waits for.
    awaited: u32,
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, HashMap<Origin, Expected>> {
        self.by_origin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has become of a connection that is being opened; false at once if there
    /// is none for us.
    pub async fn wait(&self, origin: &Origin) -> bool {
        let changed = self.changed.notified();
        match self.lock().get_mut(origin) {
            Some(expected) if expected.opening > expected.awaited => expected.awaited += 1,
            _ => return false,
        }
        let _awaiting = Counted { ahead: self, origin, what: What::Awaited };
        changed.await;
        true
    }
}

/// Takes one off when dropped, whatever happened meanwhile.
struct Counted<'a> {
    ahead: &'a Ahead,
    origin: &'a Origin,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Opening,
    Awaited,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut all = self.ahead.lock();
        if let Some(expected) = all.get_mut(self.origin) {
            let count = match self.what {
                What::Opening => &mut expected.opening,
                What::Awaited => &mut expected.awaited,
            };
            *count = count.saturating_sub(1);
            if expected.opening == 0 && expected.awaited == 0 {
                all.remove(self.origin);
            }
        }
        drop(all);
        if self.what == What::Opening {
            self.ahead.changed.notify_waiters();
        }
    }
}

impl Net {
    /// Opens connections to where `url` leads; lanes take them as they would idle ones. First one,
    /// and once its round-trip time is known as many in all as `wanted` says. One that cannot be
    /// opened is no error here: whoever needs it finds out.
    pub fn prepare(
        &self,
        url: &Url,
        trust: Trust,
        wanted: impl FnOnce(Duration) -> u32 + Send + 'static,
    ) {
        if trust == Trust::Named {
            self.note_named(url);
        }
        let target = Target::new(self, url, url, trust);
        let Some(origin) = target.origin.clone() else { return };
        if self.shared.dialling.find(&origin.host).is_some() {
            return;
        }
        let (told, rtt) = oneshot::channel();
        self.open_ahead(&origin, trust, Some(told));
        let net = self.clone();
        tokio::spawn(async move {
            if let Ok(rtt) = rtt.await {
                for _ in 1..wanted(rtt).min(AHEAD_MAX) {
                    net.open_ahead(&origin, trust, None);
                }
            }
        });
    }

    fn open_ahead(&self, origin: &Origin, trust: Trust, told: Option<oneshot::Sender<Duration>>) {
        self.shared.ahead.lock().entry(origin.clone()).or_default().opening += 1;
        let (net, origin) = (self.clone(), origin.clone());
        tokio::spawn(async move {
            let ahead = &net.shared.ahead;
            let _opening = Counted { ahead, origin: &origin, what: What::Opening };
            let limit = net.timeout().min(CONNECT_WITHIN);
            let opened = timeout(limit, net.connect_new(&origin, trust, false, told)).await;
            if let Ok(Ok(conn)) = opened
                && !conn.is_by_library()
            {
                net.keep_idle(conn);
            }
        });
    }
}

/// More are never opened ahead of their use.
const AHEAD_MAX: u32 = 20;
