//! `swath serve`: serves folders to allowed clients.

pub mod args;
mod ephemeral;
mod issuers;
pub mod lifetime;
mod listed;
pub mod log;
pub mod machine;
mod receive;
mod reload;
mod swarm;
mod third_party;
pub mod through;
mod told;
pub mod warnings;
mod words;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::Duration;

use crate::failure::Failure;
use swath_jobs::Environment;
use swath_model::Limiter;
use swath_serve::{
    Access, Log, Network, Receive, ServeError, Server, ServerOptions, SiteError, SiteOptions,
    ThirdParty, Token, new_token, read_tokens,
};
use swath_source::Reach;
use swath_tracker::Mounted;
use swath_transfer::{Engine, EngineError, EngineOptions, NetOptions};
use tokio::sync::Mutex;
use url::{Host, Url};

use crate::exit::{Exit, chain, warn};
use crate::exposed;
use crate::identity;
use crate::relays::{RelayArgs, RouteArgs};
use crate::remember;
use crate::say;
use args::Serve;
use issuers::IssuerKeeper;
use lifetime::{Reloadable, ServerSignals};
use swarm::InSwarm;
use third_party::{FetchRules, Fetcher};

/// Runs the command until a signal ends it.
pub async fn run(mut args: Serve) -> Result<Exit, Failure> {
    warnings::to_standard_error();
    let for_one = ephemeral::prepare(&mut args)?;
    let keeper = IssuerKeeper::open(&args.issuer, &args.audience)?;
    let reloadable = Reloadable { issuers: keeper.clone(), ..args.reloadable() };
    let signals = ServerSignals::begin(reloadable)
        .map_err(|_| Failure::new(Exit::Internal, "cannot receive signals"))?;
    if args.anonymous && args.write {
        return Err(Failure::usage(
            "--anonymous --write would let everybody fill the disk and replace files; omit \
             --anonymous to require a token",
        ));
    }
    if args.qr && !(io::stdout().is_terminal()) {
        let text = "--qr: standard output is not a terminal, and the code contains the token";
        return Err(Failure::new(Exit::Usage, text));
    }
    let mut made_token = None;
    args.token_file.as_deref().map_or(Ok(()), exposed::check_tokens)?;
    let tokens = match (&args.token_file, args.anonymous) {
        (Some(path), _) => read_tokens(path).map_err(|error| {
            Failure::input(format!("cannot read tokens from {}: {error}", path.display()))
        })?,
        (None, true) => Vec::new(),
        // Only those tokens are asked for.
        (None, false) if keeper.is_some() => Vec::new(),
        (None, false) => {
            let token = made(&args)?;
            let secret = token.secret.clone();
            made_token = Some(token);
            vec![Token { secret, may_write: args.write, expires: None }]
        }
    };
    if args.write && keeper.is_none() && !tokens.iter().any(|token| token.may_write) {
        let path = args.token_file.clone().unwrap_or_default();
        return Err(Failure::input(format!(
            "--write: no token in {} allows writing (add a line 'TOKEN write')",
            path.display()
        )));
    }
    let (receive, receive_limit) = receiver(&args)?;
    let host = machine::hostname();
    let log = args.server.open_log()?;
    let access = Access::new(tokens, args.allow.clone());
    let access = match &keeper {
        Some(keeper) => access.with_issuers(keeper.issuers().clone()),
        None => access,
    };
    let fetcher = fetcher(&args, &access, &host)?;
    let tls = match args.ephemeral {
        true => machine::self_signed(&host),
        false => args.server.encryption("serve", &host)?,
    };
    let tracker = swarm::tracker(&args, &host)?;
    let limiter = args.limit_rate.map(|rate| Arc::new(Limiter::new(Some(rate))));
    let options = ServerOptions {
        site: SiteOptions {
            folders: args.served(),
            access: access.clone(),
            follow_links: args.follow_symlinks,
            only: for_one.as_ref().and_then(|served| served.only.clone()),
            name: args.name.clone().unwrap_or_else(|| host.clone()),
            hosts: Some(args.host.iter().cloned().chain([host.clone()]).collect()),
            reads: args.io.reads(),
            idle_index_bytes: IDLE_INDEX_BYTES,
            mount: tracker.as_ref().map(Mounted::mount),
            receive: receive.clone().map(|receive| receive as Arc<dyn Receive>),
            third_party: fetcher.clone().map(|fetcher| fetcher as Arc<dyn ThirdParty>),
            receive_limit,
            send_limit: limiter.clone(),
        },
        listening: args.server.listening(&args.listen, tls)?,
    };
    let noting = log.clone().map(|log| Box::new(log) as Box<dyn Log>);
    let server = Server::bind(options, noting).await.map_err(|error| failure(&error))?;
    if let Some(keeper) = &keeper {
        if args.audience.is_empty() {
            let is_tls = server.identity().is_some();
            keeper.issuers().set_audiences(machine::audiences(&server.addresses(), is_tls, &host));
        }
        keeper.begin().map_err(Failure::input)?;
    }
    let swarm = match tracker {
        Some(tracker) => Some(InSwarm::begin(tracker, &args, &server, limiter).await?),
        None => None,
    };
    if !args.ephemeral {
        machine::tell_of_fewer_connections(&server, args.server.max_connections);
    }
    let printed = match &for_one {
        Some(served) => {
            let token = made_token.as_ref().map(|token| token.secret.as_str());
            ephemeral::hello(&server, served, token)
        }
        None => {
            let issuers = keeper.as_ref().map(|keeper| keeper.issuers().names());
            let issuers = issuers.unwrap_or_default();
            words::of(&args, &server, &host, made_token.as_ref(), &issuers, swarm.as_ref())
        }
    };
    // A service without standard output has no reader.
    let printed = match say::is_closed() && for_one.is_none() {
        true => Exit::Done,
        false => say::out(printed.as_bytes(), Exit::Done),
    };
    if printed != Exit::Done {
        return Ok(printed);
    }
    if args.swarm.is_some() && !args.server.plain && args.server.certificate().is_none() {
        warn(
            "other clients do not trust the self-signed certificate of this web seed and tracker: \
             --plain or --tls-cert helps",
        );
    }
    if args.server.plain && !args.anonymous {
        warn("without encryption anyone on the network path can read the token");
    }
    let abandoned = async {
        match args.ephemeral {
            true => ephemeral::abandoned().await,
            false => std::future::pending().await,
        }
    };
    let swarm = Mutex::new(swarm);
    let leave = async {
        if let Some(fetcher) = fetcher {
            // Whoever watches a copy looks for it at the next server.
            fetcher.stop().await;
        }
        if let Some(swarm) = &mut *swarm.lock().await {
            // Other trackers may take longer.
            let _ = tokio::time::timeout(LEAVE_WITHIN, swarm.leave()).await;
        }
    };
    let put_in_order = async {
        let swarm = swarm.lock().await.take();
        if let Some(swarm) = swarm {
            swarm.end().await;
        }
        if let Some(receive) = receive {
            // All senders are gone.
            let _ = tokio::time::timeout(ORDER_WITHIN, receive.idle()).await;
        }
    };
    Ok(signals.run(server, Some(&access), log.as_ref(), abandoned, leave, put_in_order).await)
}

/// Returns the failure to start a server.
pub fn failure(error: &ServeError) -> Failure {
    let exit = match error {
        ServeError::Site(SiteError::Twice { .. }) | ServeError::Nowhere => Exit::Usage,
        ServeError::Site(_) => Exit::Input,
        ServeError::Tls(_) => Exit::Mismatch,
        ServeError::Listen { .. } => Exit::Target,
        _ => Exit::Internal,
    };
    let hint = match error {
        ServeError::Site(SiteError::Twice { .. }) => {
            Some("use NAME=DIR to serve one under another name")
        }
        _ => None,
    };
    Failure::new(exit, chain(error)).hints(hint)
}

/// The receiver of uploads, and its rate limit.
type Taking = (Option<Arc<receive::Receiver>>, Option<Arc<Limiter>>);

/// Returns the receiver of uploads, with `--write`.
fn receiver(args: &Serve) -> Result<Taking, Failure> {
    if !args.write {
        return Ok((None, None));
    }
    let options = EngineOptions {
        net: NetOptions {
            timeout: RECEIVE_TIMEOUT,
            limit_bytes_per_s: args.limit_rate,
            ..NetOptions::default()
        },
        io: args.io.writes(),
        ..EngineOptions::default()
    };
    let engine = Engine::start(options).map_err(|error| match error {
        EngineError::Thread(error) => crate::threads::failure(&error),
        error => Failure::new(Exit::Input, chain(&error)),
    })?;
    let limit = Arc::clone(engine.net().limiter());
    Ok((Some(Arc::new(receive::Receiver::new(engine))), Some(limit)))
}

/// Returns what fetches from other servers, with `--third-party`.
fn fetcher(args: &Serve, access: &Access, host: &str) -> Result<Option<Arc<Fetcher>>, Failure> {
    if !args.third_party {
        return Ok(None);
    }
    for path in &args.third_party_ca {
        let unusable =
            |error| Failure::input(format!("--third-party-ca {}: {error}", path.display()));
        std::fs::File::open(path).map_err(unusable)?;
    }
    let mut environment = Environment { history: remember::history(), ..Environment::default() };
    let relay = args.third_party_relay.clone();
    // Rights to read sources belong to this server's key, which relays do not have.
    let routes = RouteArgs { which: RelayArgs { relay, route: None }, end_to_end: true };
    let routes = routes.spec(&mut environment)?;
    let within = |network: &Network| Reach { network: *network, port: None, name: None };
    let relays = routes.relays.iter().filter_map(|relay| relay.url.url().ok());
    let reach = args.third_party_from.iter().map(within).chain(relays.flat_map(|it| reach_of(&it)));
    let rules = FetchRules {
        running_of_one: args.third_party_jobs as usize,
        reach: reach.collect(),
        routes,
        environment,
        ca_files: args.third_party_ca.clone(),
        limit_bytes_per_s: args.limit_rate,
        io: args.io.writes(),
    };
    let access = access.clone();
    let folders: Vec<_> = args.served().into_iter().map(|folder| folder.path).collect();
    let fetcher = match args.ephemeral {
        true => Fetcher::for_one_copy(rules, access, host)?,
        false => Fetcher::open(rules, access, &folders, host)?,
    };
    Ok(Some(Arc::new(fetcher)))
}

/// Returns the addresses of a relay, which may be private.
fn reach_of(relay: &Url) -> Vec<Reach> {
    let port = relay.port_or_known_default();
    let networks = match relay.host() {
        Some(Host::Ipv4(address)) => vec![address.to_string()],
        Some(Host::Ipv6(address)) => vec![address.to_string()],
        Some(Host::Domain(_)) => vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()],
        None => Vec::new(),
    };
    let name = match relay.host() {
        Some(Host::Domain(name)) => Some(name.to_lowercase()),
        _ => None,
    };
    let networks = networks.iter().filter_map(|network| network.parse().ok());
    networks.map(|network| Reach { network, port, name: name.clone() }).collect()
}

/// Makes the token of a server without a token file.
fn made(args: &Serve) -> Result<identity::Token, Failure> {
    if args.ephemeral {
        return Ok(identity::Token { secret: new_token(), kept_at: None });
    }
    let folders: Vec<_> = args.served().into_iter().map(|folder| folder.path).collect();
    identity::token(&folders, args.write, args.server.new_identity)
}

/// Silence of a sender after which an upload ends.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for our own tracker, and others that answer at once, to learn that we leave their swarms.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);
/// Time to finish uploads at the end.
const ORDER_WITHIN: Duration = Duration::from_secs(5);
/// Memory for unused indexes: some millions of entries.
const IDLE_INDEX_BYTES: usize = 128 << 20;
