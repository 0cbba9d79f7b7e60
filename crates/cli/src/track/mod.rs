//! `swath track`: runs a BitTorrent tracker.

pub mod args;

use std::sync::Arc;

use swath_model::counted;
use swath_serve::{Log, Server, Tls};
use swath_tracker::{Bound, Lists, Note, TrackerError, TrackerOptions};

use crate::exit::{Exit, chain, warn};
use crate::failure::Failure;
use crate::say;
use crate::serve::lifetime::ServerSignals;
use crate::serve::log::RequestLog;
use crate::serve::{failure, machine, warnings};
use args::Track;

/// Runs the command until a signal ends it.
pub async fn run(args: Track) -> Result<Exit, Failure> {
    warnings::to_standard_error();
    let signals = ServerSignals::begin(args.reloadable())
        .map_err(|_| Failure::new(Exit::Internal, "cannot receive signals"))?;
    let host = machine::hostname();
    let log =
        args.log.as_deref().map(|path| RequestLog::open(path, args.log_format)).transpose()?;
    let options = TrackerOptions {
        name: args.name.clone().unwrap_or_else(|| host.clone()),
        listen: args.listen.clone(),
        tls: match args.certificate() {
            Some((certificates, key)) => Tls::Files { certificates, key },
            None => Tls::Plain,
        },
        max_connections: args.max_connections as usize,
        limits: args.limits(),
        lists: args.lists(),
        proxies: args.trusted_proxy.clone(),
        state: args.state(),
    };
    let name = options.name.clone();
    let noting = log.clone().map(|log| Box::new(log) as Box<dyn Log>);
    let bound = swath_tracker::bind(options, noting, Arc::new(tell)).await;
    let Bound { server, background } = bound.map_err(|error| cannot_start(&error))?;
    machine::tell_of_fewer_connections(&server, args.max_connections);
    // A service without standard output has no reader.
    let printed = match say::is_closed() {
        true => Exit::Done,
        false => say::out(words(&server, &host, &name).as_bytes(), Exit::Done),
    };
    if printed != Exit::Done {
        return Ok(printed);
    }
    if args.is_open() {
        warn(
            "anybody may use this tracker for any torrent: --whitelist, --catalogue, --allow or --passkeys limit \
             that",
        );
    }
    let at_last = async {
        if let Err(error) = background.finish().await {
            warn(&chain(&error));
        }
    };
    let (never, nothing) = (std::future::pending(), std::future::ready(()));
    Ok(signals.run(server, None, log.as_ref(), never, nothing, at_last).await)
}

/// Returns the text that the tracker prints when it is ready.
fn words(server: &Server, host: &str, name: &str) -> String {
    let mut text = format!("tracker {name}\n");
    for url in machine::urls(&server.addresses(), server.identity().is_some(), host) {
        let (_, rest) = url.split_once("://").unwrap_or(("", &url));
        text.push_str(&format!("  {url}announce\n  udp://{rest}announce\n"));
    }
    text
}

/// Prints what happens while the tracker runs.
pub fn tell(note: Note) {
    match note {
        Note::Restored { peers } => {
            say::err(&format!("restored {} of the last run", counted(peers as u64, "peer")));
        }
        Note::Damaged { path, aside } => warn(&format!(
            "the saved peers in {} are damaged: starting without them (kept as {})",
            path.display(),
            aside.display()
        )),
        Note::Unsaved { path, error } => {
            warn(&format!("cannot save the peers to {}: {error}; trying again", path.display()));
        }
        Note::SavedAgain { path } => {
            say::err(&format!("saving the peers to {} again", path.display()));
        }
        Note::ListsRead { lists } => say::err(&format!("reloaded: {}", sizes(&lists))),
        Note::ListsKept { error } => warn(&format!("keeping the old lists: {}", chain(&error))),
        _ => {}
    }
}

/// Describes the lists that are in use.
fn sizes(lists: &Lists) -> String {
    let of = |count: usize, what: &str| counted(count as u64, what);
    let torrents = lists.torrents.as_ref().map(|it| of(it.len(), "torrent"));
    let networks = Some(lists.networks.len()).filter(|count| *count > 0);
    let networks = networks.map(|count| of(count, "network"));
    let passkeys = lists.passkeys.as_ref().map(|it| of(it.len(), "passkey"));
    [torrents, networks, passkeys].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

pub fn cannot_start(error: &TrackerError) -> Failure {
    match error {
        TrackerError::Serve(error) => failure(error),
        TrackerError::List(_) => Failure::input(chain(error)),
        TrackerError::Keep(_) => {
            Failure::new(Exit::Target, chain(error)).hint("--state FILE chooses another file")
        }
        _ => Failure::new(Exit::Target, chain(error)),
    }
}
