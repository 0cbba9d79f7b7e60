//! `swath relay`: runs a relay for allowed clients and upstream servers.

pub mod args;
mod folders;

use std::sync::Arc;

use crate::failure::Failure;
use swath_model::Limiter;
use swath_relay::{Bound, Clients, RelayError, RelayOptions, RelayServerOptions};
use swath_serve::{Access, Log, Server, read_tokens};
use swath_store::depot::{Depot, DepotOptions, Note, OpenError, memory_limit_bytes};
use swath_transfer::NetOptions;

use crate::exit::{Exit, chain, warn};
use crate::exposed;
use crate::progress::units;
use crate::say;
use crate::serve::lifetime::ServerSignals;
use crate::serve::{failure, machine, warnings};
use args::Relay;

/// Runs the command until a signal ends it.
pub async fn run(args: Relay) -> Result<Exit, Failure> {
    warnings::to_standard_error();
    let token_file = args.token_file()?;
    args.check()?;
    let signals = ServerSignals::begin(args.reloadable(token_file.clone()))
        .map_err(|_| Failure::new(Exit::Internal, "cannot receive signals"))?;
    let access = match &token_file {
        None => None,
        Some(path) => {
            exposed::check_tokens(path)?;
            let tokens = read_tokens(path).map_err(|error| {
                let path = path.display();
                Failure::input(format!("--clients: cannot read tokens from {path}: {error}"))
            })?;
            Some(Access::new(tokens, Vec::new()))
        }
    };
    let depot = args.depot().map(open).transpose();
    let depot =
        depot.map_err(|error| Failure::new(Exit::Target, format!("--depot: {}", chain(&error))))?;
    let watched = (depot.clone(), args.cache.clone());
    let host = machine::hostname();
    let log = args.server.open_log()?;
    let name = args.name.clone().unwrap_or_else(|| host.clone());
    let tls = args.server.encryption("relay", &host)?;
    let options = RelayServerOptions {
        relay: RelayOptions {
            name: name.clone(),
            hosts: args.server.plain.then(|| vec![name.clone(), host.clone()]),
            upstreams: args.upstream.clone(),
            clients: Clients::new(args.networks(), access.clone()),
            net: NetOptions {
                ca_files: args.ca.clone(),
                fingerprints: args.fingerprint.clone(),
                timeout: args.timeout,
                ..NetOptions::default()
            },
            send_limit: args.max_rate.map(|rate| Arc::new(Limiter::new(Some(rate)))),
            timeout: args.timeout,
            cache: args.cache(),
            depot,
        },
        listening: args.server.listening(&args.listen, tls)?,
    };
    let noting = log.clone().map(|log| Box::new(log) as Box<dyn Log>);
    let Bound { server, narrowed_cache_bytes } = match swath_relay::bind(options, noting).await {
        Ok(bound) => bound,
        Err(RelayError::Serve(error)) => return Err(failure(&error)),
        Err(error) => return Err(Failure::new(Exit::Input, chain(&error))),
    };
    machine::tell_of_fewer_connections(&server, args.server.max_connections);
    folders::watch(watched.0, watched.1);
    if let Some(most_bytes) = narrowed_cache_bytes {
        warn(&format!(
            "--cache-size {}: the disk has room for only {}",
            units::bytes(args.cache_size),
            units::bytes(most_bytes)
        ));
    }
    // A service without standard output has no reader.
    let printed = match say::is_closed() {
        true => Exit::Done,
        false => say::out(words(&args, &server, &host, &name).as_bytes(), Exit::Done),
    };
    if printed != Exit::Done {
        return Ok(printed);
    }
    for network in args.networks() {
        let who = match network {
            _ if network.is_everything() => "anybody",
            _ if network.is_wide() => "a large part of the internet",
            _ => continue,
        };
        warn(&format!("--clients {network}: {who} may use this relay"));
    }
    if args.server.plain && token_file.is_some() {
        warn("without encryption anyone on the network path can read the tokens");
    }
    let (access, log, never) = (access.as_ref(), log.as_ref(), std::future::pending());
    let nothing = || std::future::ready(());
    Ok(signals.run(server, access, log, never, nothing(), nothing()).await)
}

/// Opens the depot, and warns of damage.
fn open(options: DepotOptions) -> Result<Depot, OpenError> {
    let (depot, found) = Depot::open(options)?;
    let (room, size_bytes) = (depot.usage(), depot.options().size_bytes);
    if room.disk_free_bytes < size_bytes.saturating_sub(room.disk_taken_bytes) {
        warn(&format!(
            "--depot-size {}: the disk has only {} free",
            units::bytes(size_bytes),
            units::bytes(room.disk_free_bytes)
        ));
    }
    let memory_bytes = depot.options().memory_bytes;
    if let Some(has_bytes) = memory_limit_bytes().filter(|has_bytes| memory_bytes > *has_bytes) {
        warn(&format!(
            "--depot-memory {}: this machine has only {}; the system may kill the relay when clients \
             use that much",
            units::bytes(memory_bytes),
            units::bytes(has_bytes)
        ));
    }
    for note in found.notes {
        match note {
            Note::Cut { id, dropped_bytes } => warn(&format!(
                "depot: ignoring the last {dropped_bytes} bytes of the journal of allocation {id}: \
                 they are damaged"
            )),
            Note::SetAside { id, path } => warn(&format!(
                "depot: allocation {id} is damaged; its data in {} takes space until you remove it",
                path.display()
            )),
            Note::Ahead { by, ended } => warn(&format!(
                "depot: this machine's clock is {} ahead of the last write to the depot, so {ended} \
                 {} expired: if the clock is wrong, correct it within ten minutes, before their data \
                 is removed",
                units::duration(by.as_secs_f64()),
                if ended == 1 { "lease has" } else { "leases have" }
            )),
            _ => {}
        }
    }
    Ok(depot)
}

/// Returns the text that the relay prints when it is ready.
fn words(args: &Relay, server: &Server, host: &str, name: &str) -> String {
    let mut text = format!("relay {name}, for {}\n", count(args));
    let room = [("on disk", args.depot_size), ("in memory", args.depot_memory)];
    let room = room.into_iter().filter_map(|(place, size)| Some((place, size?)));
    let room: Vec<String> =
        room.map(|(place, size)| format!("{} {place}", units::bytes(size))).collect();
    if !room.is_empty() {
        text.push_str(&format!("depot        {}\n", room.join(", ")));
    }
    for url in machine::urls(&server.addresses(), server.identity().is_some(), host) {
        text.push_str(&format!("  {url}\n"));
    }
    if let Some(identity) = server.identity() {
        let fingerprint = identity.fingerprint();
        text.push_str(&format!("fingerprint  sha-256:{}\n", fingerprint.to_hex()));
    }
    text
}

/// Describes the allowed clients.
fn count(args: &Relay) -> String {
    let networks = args.networks().len();
    let networks = match networks {
        0 => None,
        1 => Some("one network".to_owned()),
        _ => Some(format!("{networks} networks")),
    };
    let has_tokens = args.token_file().is_ok_and(|file| file.is_some());
    let tokens = has_tokens.then(|| "clients with a token".to_owned());
    networks.into_iter().chain(tokens).collect::<Vec<_>>().join(" and ")
}
