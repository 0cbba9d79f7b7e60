//! SIGHUP: reloads tokens and certificate, and reopens the log.
//!
//! A closed terminal sends the same signal. So a server that was started in a terminal ends when it is
//! gone, and one without files to reload ends as every program does; all others are services (or run
//! under `nohup`) and continue.

use std::fs::File;
use std::future::pending;
use std::io;

use swath_serve::{Access, Renewal, Tls, TokensError, read_tokens};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::lifetime::Reloadable;
use super::log::{RequestLog, is_file};
use crate::exit::{chain, warn};
use crate::say;
use crate::signals::is_hangup_ignored;

/// The SIGHUP signals of a server.
pub struct Hangups {
    /// `None` if the signal ends the program.
    signals: Option<Signal>,
    ends_with_terminal: bool,
}

impl Hangups {
    /// Listens to the signal, if the server handles it.
    pub fn of(reloadable: &Reloadable) -> io::Result<Hangups> {
        let has_files = has_files(reloadable);
        let ends_with_terminal = has_terminal() && !is_hangup_ignored();
        // Service managers send SIGHUP for a reload: a service must not end by it.
        let is_heard = has_files || (!ends_with_terminal && !reloadable.is_ephemeral);
        let signals = is_heard.then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Hangups { signals, ends_with_terminal })
    }

    /// Reloads at each signal; resolves when the terminal is gone.
    pub async fn obey(
        mut self,
        reloadable: &Reloadable,
        access: Option<&Access>,
        renewal: &Renewal,
        log: Option<&RequestLog>,
    ) {
        let Some(signals) = &mut self.signals else { return pending().await };
        while signals.recv().await.is_some() {
            if self.ends_with_terminal && !has_terminal() {
                return;
            }
            if let Some(log) = log.filter(|_| has_log(reloadable)) {
                log.open_again();
            }
            read_again(reloadable, access, renewal);
        }
    }
}

/// Whether there are files to reload.
fn has_files(reloadable: &Reloadable) -> bool {
    reloadable.tokens.is_some()
        || reloadable.issuers.is_some()
        || reloadable.certificate.is_some()
        || has_log(reloadable)
}

/// Whether there is a log file to reopen.
fn has_log(reloadable: &Reloadable) -> bool {
    reloadable.log.as_deref().is_some_and(is_file)
}

/// Reloads tokens and certificate; each one stays as it was if it cannot be read.
fn read_again(reloadable: &Reloadable, access: Option<&Access>, renewal: &Renewal) {
    if !has_files(reloadable) && !reloadable.watches {
        let option = reloadable.tokens_option;
        say::err(&format!(
            "SIGHUP: nothing to reload: neither {option} nor --tls-cert nor --log is set"
        ));
    }
    if let (Some(path), Some(access)) = (&reloadable.tokens, access) {
        match read_tokens(path) {
            Ok(tokens) => {
                let count = tokens.len();
                let writes = tokens.iter().any(|token| token.may_write);
                access.set_tokens(tokens);
                let tokens = if count == 1 { "token" } else { "tokens" };
                say::err(&format!("reloaded: {}, {count} {tokens}", path.display()));
                if reloadable.writes && !writes && reloadable.issuers.is_none() {
                    warn("none of the tokens allows writing");
                }
            }
            // An empty file means that no token is valid any more.
            Err(TokensError::Empty) => {
                access.set_tokens(Vec::new());
                let path = path.display();
                warn(&format!("all tokens are revoked: {path} is empty"));
            }
            Err(error) => {
                let path = path.display();
                warn(&format!("keeping the old tokens: cannot read {path}: {error}"));
            }
        }
    }
    if let Some(issuers) = &reloadable.issuers {
        issuers.reload();
    }
    if let Some((certificates, key)) = &reloadable.certificate {
        let files = Tls::Files { certificates: certificates.clone(), key: key.clone() };
        match renewal.renew(&files) {
            Ok(identity) => {
                let shown = identity.map(|identity| identity.fingerprint().to_hex());
                let shown = shown.unwrap_or_default();
                let path = certificates.display();
                say::err(&format!("reloaded: {path}, fingerprint sha-256:{shown}"));
            }
            Err(error) => {
                let error = chain(&error);
                warn(&format!("keeping the old certificate: {error}"));
            }
        }
    }
}

/// Whether the program has a terminal.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}
