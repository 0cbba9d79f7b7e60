//! Runs a server until a signal ends it.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swath_model::counted;
use swath_serve::{Access, Server, Stop};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, oneshot};

use super::issuers::IssuerKeeper;
use super::log::RequestLog;
use super::reload::Hangups;
use crate::exit::{Exit, fail};

/// The files that SIGHUP reloads.
#[derive(Clone, Debug, Default)]
pub struct Reloadable {
    /// The token file …
    pub tokens: Option<PathBuf>,
    /// … and the name of its option.
    pub tokens_option: &'static str,
    /// The certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The log.
    pub log: Option<PathBuf>,
    /// The server itself reads its other files again when they change.
    pub watches: bool,
    /// One of the tokens should allow writing.
    pub writes: bool,
    /// The issuers whose tokens are accepted.
    pub issuers: Option<Arc<IssuerKeeper>>,
    /// The server ends with the program that started it.
    pub is_ephemeral: bool,
}

/// The signals of a server, received from the start.
pub struct ServerSignals {
    reloadable: Reloadable,
    interrupt: Signal,
    terminate: Signal,
    hangups: Hangups,
}

impl ServerSignals {
    /// Starts to listen to signals.
    ///
    /// # Errors
    /// The error of the system.
    pub fn begin(reloadable: Reloadable) -> io::Result<ServerSignals> {
        Ok(ServerSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangups: Hangups::of(&reloadable)?,
            reloadable,
        })
    }

    /// Serves until a signal or `abandoned`; runs `at_first` while it still serves, and `at_last` after
    /// the last connection.
    pub async fn run(
        self,
        server: Server,
        access: Option<&Access>,
        log: Option<&RequestLog>,
        abandoned: impl Future<Output = ()>,
        at_first: impl Future<Output = ()>,
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
                () = self.hangups.obey(&self.reloadable, access, &renewal, log) => Stop::Orderly,
                () = abandoned => Stop::Abandoned,
            };
            let _ = ends.send(());
            at_first.await;
            stop
        };
        let waits = |connections: u64| {
            let connections = counted(connections, "connection");
            let grace_s = GRACE.as_secs();
            crate::say::err(&format!("stopping: waiting up to {grace_s} s for {connections}"));
        };
        let ended = async {
            server.run(stop, GRACE, waits).await;
            at_last.await;
        };
        let asked_again = async {
            // A second signal stops the server at once.
            let _ = is_ending.await;
            signalled().await;
        };
        tokio::select! {
            () = ended => Exit::Done,
            () = asked_again => {
                let text = "stopped by a second signal: open transfers were cut off";
                fail(Exit::Interrupted, text)
            }
        }
    }
}

/// Time for open transfers to finish.
const GRACE: Duration = Duration::from_secs(10);
