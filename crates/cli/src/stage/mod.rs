//! `swath stage`: copies a file to the depots of relays, and manages it there.
//!
//! It writes two files. The Metalink lists where each range is, and lets its readers fetch the file. The
//! keys next to it let the owner extend and release the leases.

pub mod args;

mod files;
mod hints;
mod make;
mod manage;
mod source;

use crate::failure::Failure;
use swath_source::{Net, NetOptions};

use crate::config::{Config, Relay};
use crate::exit::{Exit, chain};
use crate::relays::access;
use args::{Stage, StageCommand};

/// Runs the command.
pub async fn run(stage: Stage) -> Result<Exit, Failure> {
    match stage.command {
        Some(StageCommand::Status(staged)) => manage::status(staged).await,
        Some(StageCommand::Extend(extend)) => manage::extend(extend).await,
        Some(StageCommand::Release(staged)) => manage::release(staged).await,
        None => make::run(stage).await,
    }
}

/// Returns the network with access to the relays of the command line and of the configuration file, and
/// to no others that a Metalink may list.
fn net(args: &crate::args::Net, typed: &[Relay]) -> Result<Net, Failure> {
    let input = |error: String| Failure::new(Exit::Input, error);
    let file = Config::load().map_err(|error| input(error.to_string()))?.relays;
    let options = crate::net::options(args)?;
    let opened = typed.iter().map(|relay| relay.opened_by(&file)).collect::<Result<Vec<_>, _>>();
    let mut known = opened.map_err(|wrong| Failure::usage(wrong.to_string()))?;
    let typed = known.len();
    for relay in file {
        if !known[..typed].iter().any(|own| own.site() == relay.site()) {
            known.push(relay);
        }
    }
    let relays = known.into_iter().map(access).collect::<Result<_, _>>()?;
    let options = NetOptions { relays, metalinks: false, ..options };
    Net::new(options).map_err(|error| input(chain(&error)))
}
