//! `swath stage`: a file is brought to the depots of relays, near those who will need it; and what
//! becomes of it there.
//!
//! Two files tell of it. The Metalink names where each range lies: whoever has it may read. The keys
//! beside it extend and give up: they are for whoever staged it.

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
use args::{Stage, Then};

/// Run the command.
pub async fn run(stage: Stage) -> Exit {
    let done = match stage.command {
        Some(Then::Status(staged)) => manage::status(staged).await,
        Some(Then::Extend(extend)) => manage::extend(extend).await,
        Some(Then::Release(staged)) => manage::release(staged).await,
        None => make::run(stage).await,
    };
    done.unwrap_or_else(|failure| failure.tell())
}

/// The network, with what opens the relays that were typed, and those of the configuration file. No
/// others are opened, whatever a Metalink names.
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
