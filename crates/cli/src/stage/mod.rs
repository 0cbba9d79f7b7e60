//! `swath stage`: a file is brought to the depots of relays, near those who will need it; and what
//! becomes of it there.
//!
//! Two files tell of it. The Metalink names where each range lies: whoever has it may read. The keys
//! beside it extend and give up: they are for whoever staged it.

pub mod args;

mod files;
mod make;
mod manage;
mod source;

use swath_source::{Net, NetOptions, RelayAccess};
use url::Url;

use crate::config::{Config, Relay};
use crate::exit::{Exit, chain, fail};
use args::{Stage, Then};

type Failed = (Exit, String);

/// Run the command.
pub async fn run(stage: Stage) -> Exit {
    let done = match stage.command {
        Some(Then::Status(staged)) => manage::status(staged).await,
        Some(Then::Extend(extend)) => manage::extend(extend).await,
        Some(Then::Release(staged)) => manage::release(staged).await,
        None => make::run(stage).await,
    };
    done.unwrap_or_else(|(exit, message)| fail(exit, &message))
}

/// The network, with what opens these relays: a user and a password in their address, or the token of
/// the configuration file.
fn net(args: &crate::args::Net, relays: &[Url]) -> Result<Net, Failed> {
    let input = |error: String| (Exit::Input, error);
    let config = Config::load().map_err(|error| input(error.to_string()))?;
    let options = crate::net::options(args).map_err(input)?;
    let mut known: Vec<RelayAccess> = Vec::new();
    for url in relays {
        let site = Relay { url: url.clone(), token_file: None, fingerprint: None }.site();
        let own = config.relays.iter().find(|relay| relay.site() == site);
        let token = own.and_then(|relay| relay.token_file.as_deref()).map(crate::net::token);
        let token = token.transpose().map_err(input)?;
        let is_open = url.password().is_some() || !url.username().is_empty();
        let url = own.filter(|_| !is_open).map_or(url, |relay| &relay.url).clone();
        let fingerprint = own.and_then(|relay| relay.fingerprint);
        known.push(RelayAccess { url, token, fingerprint });
    }
    let options = NetOptions { relays: known, metalinks: false, ..options };
    Net::new(options).map_err(|error| input(chain(&error)))
}
