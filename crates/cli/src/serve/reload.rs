//! SIGHUP: what the server was given in files is read again, and its log is opened again.
//!
//! A terminal that closes sends the same signal. So a server that was begun in one ends when it is
//! gone, and there one that has nothing to read again ends as every program does; all others are
//! services (or run under `nohup`), and go on.

use std::fs::File;
use std::future::pending;
use std::io;

use swath_serve::{Access, Renewal, Tls, TokensError, read_tokens};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::log::{Lines, is_file};
use super::standing::Given;
use crate::exit::{chain, warn};
use crate::say;
use crate::signals::is_hangup_ignored;

/// SIGHUP, as it comes.
pub struct Hangups {
    /// None where the signal means what it means to every program.
    signals: Option<Signal>,
    ends_with_terminal: bool,
}

impl Hangups {
    /// From now on it is heard, if it means anything here.
    pub fn of(given: &Given) -> io::Result<Hangups> {
        let has_files = has_files(given);
        let ends_with_terminal = has_terminal() && !is_hangup_ignored();
        // A service manager takes SIGHUP for a good end and a reload for what sends it: a service
        // must not be gone after one.
        let is_heard = has_files || (!ends_with_terminal && !given.is_ephemeral);
        let signals = is_heard.then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Hangups { signals, ends_with_terminal })
    }

    /// Read again what changes; resolves when the terminal is gone.
    pub async fn obey(
        mut self,
        given: &Given,
        access: Option<&Access>,
        renewal: &Renewal,
        log: Option<&Lines>,
    ) {
        let Some(signals) = &mut self.signals else { return pending().await };
        while signals.recv().await.is_some() {
            if self.ends_with_terminal && !has_terminal() {
                return;
            }
            if let Some(log) = log.filter(|_| has_log(given)) {
                log.open_again();
            }
            read_again(given, access, renewal);
        }
    }
}

/// Whether the signal means anything.
fn has_files(given: &Given) -> bool {
    given.tokens.is_some() || given.certificate.is_some() || has_log(given)
}

/// Whether there is a log that can be opened again.
fn has_log(given: &Given) -> bool {
    given.log.as_deref().is_some_and(is_file)
}

/// Each of the two is taken or stays, whatever becomes of the other.
fn read_again(given: &Given, access: Option<&Access>, renewal: &Renewal) {
    if !has_files(given) {
        let option = given.tokens_option;
        say::err(&format!(
            "SIGHUP: there is nothing to read again, neither {option} nor --tls-cert nor --log"
        ));
    }
    if let (Some(path), Some(access)) = (&given.tokens, access) {
        match read_tokens(path) {
            Ok(tokens) => {
                let count = tokens.len();
                let writes = tokens.iter().any(|token| token.may_write);
                access.set_tokens(tokens);
                let tokens = if count == 1 { "token" } else { "tokens" };
                say::err(&format!("read again: {}, {count} {tokens}", path.display()));
                if given.writes && !writes {
                    warn("none of them opens writing");
                }
            }
            // Whoever takes the last one out wants nobody in by it.
            Err(TokensError::Empty) => {
                access.set_tokens(Vec::new());
                let path = path.display();
                warn(&format!("all tokens are revoked: {path} was read again, and has none"));
            }
            Err(error) => {
                let path = path.display();
                warn(&format!(
                    "the tokens stay as they were: cannot take any from {path}: {error}"
                ));
            }
        }
    }
    if let Some((certificates, key)) = &given.certificate {
        let files = Tls::Files { certificates: certificates.clone(), key: key.clone() };
        match renewal.renew(&files) {
            Ok(identity) => {
                let shown = identity.map(|identity| identity.fingerprint().to_hex());
                let shown = shown.unwrap_or_default();
                let path = certificates.display();
                say::err(&format!("read again: {path}, fingerprint sha-256:{shown}"));
            }
            Err(error) => {
                let error = chain(&error);
                warn(&format!("the certificate stays as it was: {error}"));
            }
        }
    }
}

/// Whether a terminal is there whose end would be ours.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}
