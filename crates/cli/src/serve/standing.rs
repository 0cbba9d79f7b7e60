//! A server from its first signal to its last connection.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use swath_model::counted;
use swath_serve::{Access, Server, Stop};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, oneshot};

use super::log::Lines;
use super::reload::Hangups;
use crate::exit::{Exit, fail};

/// What a server was given in files, which can be read again.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Tokens …
    pub tokens: Option<PathBuf>,
    /// … and how the option is called by which they would be named.
    pub tokens_option: &'static str,
    /// A certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Where answers are noted.
    pub log: Option<PathBuf>,
    /// One of the tokens should open writing.
    pub writes: bool,
    /// It ends with whoever started it.
    pub is_ephemeral: bool,
}

/// Hears signals from the beginning on.
pub struct Standing {
    given: Given,
    interrupt: Signal,
    terminate: Signal,
    hangups: Hangups,
}

impl Standing {
    /// From now on signals are heard.
    ///
    /// # Errors
    /// What the system says.
    pub fn begin(given: Given) -> io::Result<Standing> {
        Ok(Standing {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangups: Hangups::of(&given)?,
            given,
        })
    }

    /// Serve until a signal ends it, or `abandoned` resolves; `at_last` comes when nobody is connected
    /// any more.
    pub async fn run(
        self,
        server: Server,
        access: Option<&Access>,
        log: Option<&Lines>,
        abandoned: impl Future<Output = ()>,
        at_last: impl Future<Output = ()>,
    ) -> Exit {
        let renewal = server.renewal();
        let signals = Mutex::new((self.interrupt, self.terminate));
        let signalled = async || {
            let mut signals = signals.lock().await;
            let (interrupt, terminate) = &mut *signals;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        let (ends, is_ending) = oneshot::channel();
        let stop = async {
            let stop = tokio::select! {
                () = signalled() => Stop::Orderly,
                () = self.hangups.obey(&self.given, access, &renewal, log) => Stop::Orderly,
                () = abandoned => Stop::Abandoned,
            };
            let _ = ends.send(());
            stop
        };
        let waits = |connections: u64| {
            let connections = counted(connections, "connection");
            let grace_s = GRACE.as_secs();
            crate::say::err(&format!("ending: waiting for {connections}, {grace_s} s at most"));
        };
        let ended = async {
            server.run(stop, GRACE, waits).await;
            at_last.await;
        };
        let asked_again = async {
            // Whoever asks twice does not want to wait.
            let _ = is_ending.await;
            signalled().await;
        };
        tokio::select! {
            () = ended => Exit::Done,
            () = asked_again => {
                let text = "ended by a second signal: what was under way is cut off";
                fail(Exit::Interrupted, text)
            }
        }
    }
}

/// What is under way when the end comes may take this long.
const GRACE: Duration = Duration::from_secs(10);
