//! The environment of jobs. The library reads no environment variables: the program or daemon that runs
//! jobs passes what applies to all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;

use swath_source::{Bearer, NetOptions, Secret, Token};
use swath_state::State;
use swath_store::tree::PlaceGrant;
use swath_transfer::RelayAccess;
use tokio::io::AsyncWrite;

use crate::error::JobError;
use crate::options::{Network, Routes};
use crate::secret::{SecretError, SecretRef};

/// Settings for all jobs.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The network: proxies, logins, access to single servers, a discovered bearer token. A
    /// specification overrides it.
    pub net: NetOptions,
    /// Secrets that specifications refer to by name.
    pub secrets: BTreeMap<String, Secret>,
    /// The remembered network; without it nothing is remembered.
    pub state: Option<State>,
    /// The file of the history of transfers; without it there is none, and no forecast.
    pub history: Option<PathBuf>,
    /// The swath program, for copying it to remote hosts.
    pub program: PathBuf,
    /// What may be done with files of this machine: less than everything for jobs that others order.
    pub grant: PlaceGrant,
    /// A private folder of this user for sockets; if empty, one below `/tmp`.
    pub runtime: PathBuf,
}

impl Environment {
    /// Returns a secret as it is now.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn secret(&self, which: &SecretRef) -> Result<Secret, SecretError> {
        Ok(self.token(which)?.now())
    }

    /// Returns a token, which may be renewed in its file.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn token(&self, which: &SecretRef) -> Result<Token, SecretError> {
        match which {
            SecretRef::File(path) => Ok(Token::in_file(path)?),
            SecretRef::Name(name) => {
                let unknown = || SecretError::Unknown(name.clone());
                Ok(self.secrets.get(name).cloned().ok_or_else(unknown)?.into())
            }
        }
    }

    /// Returns the network options of a specification.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn net_options(&self, network: &Network) -> Result<NetOptions, SecretError> {
        let mut net = self.net.clone();
        for header in &network.headers {
            let value = self.secret(&header.value)?;
            net.headers.push((header.name.clone(), value.expose().to_owned()));
        }
        if let Some(token) = &network.token {
            net.bearer = Some(Bearer { token: self.token(token)?, explicit: true });
        }
        net.ca_files.extend(network.ca_files.iter().cloned());
        net.fingerprints.extend(network.fingerprints.iter().copied());
        net.insecure |= network.insecure;
        if let Some(files) = &network.certificate {
            net.certificate = Some(files.read()?);
        }
        net.timeout = network.timeout();
        net.limit_bytes_per_s = network.limit_bytes_per_s;
        Ok(net)
    }

    /// Returns the route options of a specification.
    ///
    /// # Errors
    /// [`JobError::Address`] or [`JobError::Secret`].
    pub fn route_options(&self, routes: &Routes) -> Result<swath_transfer::RouteOptions, JobError> {
        let choice = routes.choice();
        let is_direct = routes.relays.is_empty() || choice == swath_transfer::RouteChoice::Direct;
        let relays = routes.relays.iter().map(|relay| {
            let token = relay.token.as_ref().map(|token| self.token(token)).transpose()?;
            let url = relay.url.url()?;
            Ok(RelayAccess { url, token, fingerprint: relay.fingerprint })
        });
        Ok(swath_transfer::RouteOptions {
            // Needed even for direct routes: their tokens give access to their depots.
            relays: relays.collect::<Result<_, JobError>>()?,
            choice,
            relay_mode: routes.relay_mode(),
            state: if is_direct { None } else { self.state.clone() },
        })
    }
}

/// Streams of this process: a list from a pipe, an output that is not a file. A job that uses them
/// cannot be stored in a queue.
#[derive(Clone, Default)]
pub struct Streams {
    /// Opens the list of [`GetFrom::ListStream`](crate::GetFrom::ListStream). It is read in its own
    /// thread, and may block.
    pub list: Option<Arc<dyn Fn() -> Box<dyn BufRead + Send> + Send + Sync>>,
    /// Opens the output of [`GetTo::Stream`](crate::GetTo::Stream).
    pub output: Option<Arc<dyn Fn() -> Box<dyn AsyncWrite + Send + Unpin> + Send + Sync>>,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams")
            .field("list", &self.list.is_some())
            .field("output", &self.output.is_some())
            .finish()
    }
}
