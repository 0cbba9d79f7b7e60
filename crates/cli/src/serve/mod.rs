//! `swath serve`: folders for everybody who may have them.

pub mod args;
mod ephemeral;
mod log;
mod receive;
mod reload;
pub mod through;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use swath_model::{Limiter, counted};
use swath_serve::{
    Access, Log, Receive, ServeError, Server, ServerOptions, SiteError, SiteOptions, Stop, Tls,
    Token, new_token, read_tokens,
};
use swath_transfer::{Engine, EngineOptions, NetOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, oneshot};

use crate::exit::{Exit, chain, fail, warn};
use crate::say;
use args::Serve;

/// Run the command: until a signal ends it.
pub async fn run(mut args: Serve) -> Exit {
    let for_one = match ephemeral::prepare(&mut args) {
        Ok(for_one) => for_one,
        Err(message) => return fail(Exit::Input, &message),
    };
    let (interrupt, terminate) =
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
            _ => return fail(Exit::Internal, "cannot be told of signals"),
        };
    let hangups = match reload::Hangups::of(&args) {
        Ok(hangups) => hangups,
        Err(_) => return fail(Exit::Internal, "cannot be told of signals"),
    };
    if args.anonymous && args.write {
        return fail(
            Exit::Usage,
            "--anonymous --write: everybody could then fill the disk and replace what is there; \
             without --anonymous whoever shows the token may write",
        );
    }
    let tokens = match (&args.token_file, args.anonymous) {
        (Some(path), _) => match read_tokens(path) {
            Ok(tokens) => tokens,
            Err(error) => {
                let message = format!("cannot take tokens from {}: {error}", path.display());
                return fail(Exit::Input, &message);
            }
        },
        (None, true) => Vec::new(),
        (None, false) => {
            vec![Token { secret: new_token(), may_write: args.write, expires: None }]
        }
    };
    let made_token = tokens.first().filter(|_| args.token_file.is_none());
    let made_token = made_token.map(|token| token.secret.clone());
    if args.write && !tokens.iter().any(|token| token.may_write) {
        let path = args.token_file.clone().unwrap_or_default();
        let message = format!(
            "--write: no token in {} opens writing ('TOKEN write' on a line of its own does)",
            path.display()
        );
        return fail(Exit::Input, &message);
    }
    let (receive, receive_limit) = match receiver(&args) {
        Ok(taking) => taking,
        Err((exit, message)) => return fail(exit, &message),
    };
    let host = hostname();
    let log = args.log.as_deref().map(|path| log::Lines::open(path, args.log_format));
    let log = match log.transpose() {
        Ok(log) => log,
        Err(error) => return fail(Exit::Target, &error),
    };
    let access = Access::new(tokens, args.allow.clone());
    let options = ServerOptions {
        site: SiteOptions {
            folders: args.served(),
            access: access.clone(),
            follow_links: args.follow_symlinks,
            only: for_one.as_ref().and_then(|served| served.only.clone()),
            name: args.name.clone().unwrap_or_else(|| host.clone()),
            reads: args.io.reads(),
            idle_index_bytes: IDLE_INDEX_BYTES,
            receive: receive.clone().map(|receive| receive as Arc<dyn Receive>),
            receive_limit,
            send_limit: args.limit_rate.map(|rate| Arc::new(Limiter::new(Some(rate)))),
        },
        listen: args.listen.clone(),
        tls: tls(&args, &host),
        max_connections: args.max_connections as usize,
    };
    raise_descriptors();
    let noting = log.clone().map(|log| Box::new(log) as Box<dyn Log>);
    let server = match Server::bind(options, noting).await {
        Ok(server) => server,
        Err(error) => return fail(exit_of(&error), &words_of(&error)),
    };
    let told = match &for_one {
        Some(served) => ephemeral::hello(&server, served, made_token.as_deref()),
        None => words(&args, &server, &host, made_token.as_deref()),
    };
    let told = say::out(told.as_bytes(), Exit::Done);
    if told != Exit::Done {
        return told;
    }
    if args.plain && !args.anonymous {
        warn("without encryption the token can be read by everybody on the way");
    }
    let renewal = server.renewal();
    let signals = Mutex::new((interrupt, terminate));
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
            () = hangups.obey(&args, &access, &renewal, log.as_ref()) => Stop::Orderly,
            () = ephemeral::abandoned(), if args.ephemeral => Stop::Abandoned,
        };
        let _ = ends.send(());
        stop
    };
    let waits = |connections: u64| {
        let connections = counted(connections, "connection");
        let grace_s = GRACE.as_secs();
        crate::say::err(&format!("ending: waiting for {connections}, {grace_s} s at most"));
    };
    let ended = async {
        server.run(stop, GRACE, waits).await;
        if let Some(receive) = receive {
            // Nobody sends any more.
            let _ = tokio::time::timeout(ORDER_WITHIN, receive.idle()).await;
        }
    };
    let asked_again = async {
        // Whoever asks twice does not want to wait.
        let _ = is_ending.await;
        signalled().await;
    };
    tokio::select! {
        () = ended => Exit::Done,
        () = asked_again => fail(Exit::Interrupted, "ended by a second signal: what was under way is cut off"),
    }
}

/// The exit code of a server that cannot begin.
fn exit_of(error: &ServeError) -> Exit {
    match error {
        ServeError::Site(SiteError::Twice { .. }) | ServeError::Nowhere => Exit::Usage,
        ServeError::Site(_) => Exit::Input,
        ServeError::Tls(_) => Exit::Mismatch,
        ServeError::Listen { .. } => Exit::Target,
        _ => Exit::Internal,
    }
}

/// What is told of it.
fn words_of(error: &ServeError) -> String {
    let hint = match error {
        ServeError::Site(SiteError::Twice { .. }) => "\n  NAME=DIR serves one under another name",
        _ => "",
    };
    chain(error) + hint
}

/// What takes trees, and the limit of all that comes.
type Taking = (Option<Arc<receive::Receiver>>, Option<Arc<Limiter>>);

/// Takes trees, if that is wanted.
fn receiver(args: &Serve) -> Result<Taking, (Exit, String)> {
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
    let engine = Engine::start(options).map_err(|error| (Exit::Input, chain(&error)))?;
    let limit = Arc::clone(engine.net().limiter());
    Ok((Some(Arc::new(receive::Receiver::new(engine))), Some(limit)))
}

fn tls(args: &Serve, host: &str) -> Tls {
    match (&args.tls_cert, &args.tls_key) {
        _ if args.plain => Tls::Plain,
        (Some(certificates), Some(key)) => {
            Tls::Files { certificates: certificates.clone(), key: key.clone() }
        }
        _ => {
            let mut names = vec!["localhost".to_owned(), host.to_owned()];
            names.extend(own_addresses().iter().map(IpAddr::to_string));
            names.dedup();
            Tls::SelfSigned(names)
        }
    }
}

/// What a user reads when the server stands.
fn words(args: &Serve, server: &Server, host: &str, token: Option<&str>) -> String {
    let folders: Vec<String> = args.folders.iter().map(|path| path.display().to_string()).collect();
    let how = if args.write { "read and write" } else { "read-only" };
    let mut text = format!("serving {} ({how})\n", folders.join(", "));
    let urls = urls(&server.addresses(), server.identity().is_some(), host);
    for url in &urls {
        text.push_str(&format!("  {url}\n"));
    }
    if let Some(identity) = server.identity() {
        let fingerprint = identity.fingerprint();
        text.push_str(&format!("fingerprint  sha-256:{}\n", fingerprint.to_hex()));
    }
    match token {
        Some(token) => text.push_str(&format!("token        {token}\n")),
        None if args.anonymous => text.push_str("token        none is asked for\n"),
        None => {}
    }
    text
}

/// Addresses that others can use.
fn urls(listening: &[SocketAddr], is_tls: bool, host: &str) -> Vec<String> {
    let scheme = if is_tls { "https" } else { "http" };
    let mut urls = Vec::new();
    for address in listening {
        let port = address.port();
        if !address.ip().is_unspecified() {
            urls.push(format!("{scheme}://{address}/"));
            continue;
        }
        urls.push(format!("{scheme}://{host}:{port}/"));
        let others = own_addresses().into_iter().filter(|ip| !ip.is_loopback());
        // Of a wildcard of the older kind only addresses of that kind.
        let others = others.filter(|ip| address.is_ipv6() || ip.is_ipv4());
        urls.extend(others.map(|ip| format!("{scheme}://{}/", SocketAddr::new(ip, port))));
    }
    urls
}

/// The addresses of this machine that others may know it by, and its loopback ones.
fn own_addresses() -> Vec<IpAddr> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let is_link_local = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0) == 0xfe80,
    };
    let mut addresses: Vec<IpAddr> =
        all.iter().map(if_addrs::Interface::ip).filter(|ip| !is_link_local(ip)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    let is_fit = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    if is_fit { name.to_owned() } else { "localhost".to_owned() }
}

/// Each connection and each open file takes a descriptor; the usual limit is for programs that
/// still use `select`.
fn raise_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with a structure of our own.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// A sender is waited for so long.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(30);
/// What is under way when the end comes may take this long.
const GRACE: Duration = Duration::from_secs(10);
/// After that, what was received gets so long to be put in order.
const ORDER_WITHIN: Duration = Duration::from_secs(5);
/// Indexes that nobody uses just now: some millions of entries.
const IDLE_INDEX_BYTES: usize = 128 << 20;
