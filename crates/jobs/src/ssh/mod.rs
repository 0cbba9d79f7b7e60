//! Starts a swath server for one copy on a host reached by ssh.
//!
//! It prints its port, a token and its fingerprint through ssh; the data then uses direct TLS
//! connections. If the port is unreachable, it goes through ssh: by its port forwarding, or if sshd
//! forbids that by `through.rs`. The server ends with the ssh connection.

mod bootstrap;
mod error;
mod host;
mod listen;
mod through;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use swath_model::digest::Digest;
use swath_source::{Bearer, Secret};
use swath_transfer::observe::LimitedBy;
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, ChildStdin};
use tokio::time::{sleep, timeout};
use url::Url;

use crate::copy::{DisplayNames, LocalFile};
use crate::event::Note;
use bootstrap::{bootstrap, found};
pub use error::{Command, InvalidHello, SshError, SshFault};
use host::SshHost;
pub use through::READY;
use through::Through;

/// A location on another machine, as `host:path`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remote {
    /// The host argument of ssh, optionally with a user.
    pub host: String,
    /// The path, relative to the home folder.
    pub path: String,
}

/// The first line of a server that was started for one copy.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Its version.
    pub swath: String,
    /// Its port.
    pub port: u16,
    /// The path of the folder in its address.
    pub path: String,
    /// Whether it serves only a file.
    #[serde(default)]
    pub is_file: bool,
    /// Its token.
    pub token: String,
    /// Its fingerprint, `sha-256:…`.
    pub fingerprint: String,
}

/// A server on a remote host, which ends when this is dropped.
pub struct Session {
    /// Its address here.
    pub url: Url,
    /// Its address for other machines.
    pub url_there: Url,
    /// Its token.
    pub bearer: Bearer,
    /// Its fingerprint.
    pub fingerprint: Digest,
    /// Whether it serves only a file.
    pub is_file: bool,
    /// Whether the data goes through ssh.
    pub goes_through: bool,
    /// Internal addresses of this server, and their names for the user.
    pub names: DisplayNames,
    /// The limit to report for this server, if it is not its link.
    pub limit: Option<LimitedBy>,
    /// Most connections for data, if limited.
    pub lanes_max: Option<u32>,
    _server: Child,
    /// The server ends when this is closed.
    _hold: Option<ChildStdin>,
    _lead: Option<SshChannel>,
}

/// Connections through ssh, which end when this is dropped.
enum SshChannel {
    /// ssh's own forwarding.
    Forwarded { _ssh: Child },
    /// A remote command for each connection.
    Through { _through: Through },
}

/// Options of ssh.
#[derive(Clone, Debug)]
pub struct SshOptions {
    /// The command with its arguments before the host; not empty.
    pub command: Vec<String>,
    /// The program to copy to the host if swath is missing.
    pub bootstrap: Option<PathBuf>,
    /// The time limit of silence after the login.
    pub patience: Duration,
    /// A private folder for sockets.
    pub runtime: PathBuf,
}

impl Remote {
    /// Reads `host:path`; `None` for a URL or a path (which may have a colon after a slash).
    pub fn parse(text: &str) -> Option<Remote> {
        // An IPv6 address is in brackets, which ssh does not accept.
        let (user, rest) = match text.split_once('@') {
            Some((user, rest)) if rest.starts_with('[') => (format!("{user}@"), rest),
            _ => (String::new(), text),
        };
        let bracketed = rest.strip_prefix('[').and_then(|rest| rest.split_once("]:"));
        let (host, path) = match bracketed {
            Some((host, path)) => (format!("{user}{host}"), path),
            None => text.split_once(':').map(|(host, path)| (host.to_owned(), path))?,
        };
        let is_host = !host.is_empty() && !host.contains('/') && !host.starts_with('-');
        (is_host && !path.starts_with("//")).then(|| Remote { host, path: path.to_owned() })
    }
}

/// The purpose of a server.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// Reading; a file may get another name.
    Read {
        /// The name.
        file_name: Option<&'a str>,
    },
    /// Writing; a file may get another name, and may replace a file.
    Write {
        /// The name.
        file_name: Option<&'a str>,
        /// Whether the server may fetch from others, wherever they are.
        fetches: bool,
    },
}

/// Starts a server on the remote host.
pub async fn start(
    options: &SshOptions,
    remote: &Remote,
    purpose: Purpose<'_>,
    note: &(dyn Fn(Note) + Sync),
) -> Result<Session, SshError> {
    let host = SshHost::of(options, &remote.host).await;
    let program = match &options.bootstrap {
        Some(own) => bootstrap(&host, own, note).await?,
        // An earlier copy may have installed it.
        None => found(),
    };
    let path = if remote.path.is_empty() { "." } else { &remote.path };
    let (write, file_name) = match purpose {
        Purpose::Read { file_name } => ("", file_name),
        Purpose::Write { file_name, fetches: false } => (" --write", file_name),
        Purpose::Write { file_name, fetches: true } => (FETCHING, file_name),
    };
    let file_name = file_name.map(|name| format!(" --file-name={}", quoted(name)));
    let purpose = format!("{write}{}", file_name.unwrap_or_default());
    let line = format!("exec {program} serve --ephemeral{purpose} -- {}", quoted(path));
    let mut server = host.run(&line).await?;
    let hello = match server.output.listen(hello_in).await {
        Ok(hello) => hello,
        // The shell found no swath.
        Err(unheard) if options.bootstrap.is_none() && server.is_missing(unheard).await => {
            return Err(host.error(SshFault::Missing));
        }
        Err(unheard) => return Err(host.why(&mut server, unheard, Command::Serve).await),
    };
    let bad = |what| host.error(SshFault::InvalidHello(what));
    let fingerprint = hello.fingerprint.parse();
    let fingerprint: Digest = fingerprint.map_err(|_| bad(InvalidHello::Fingerprint))?;
    let bearer = Bearer { token: Secret::new(&hello.token).into(), explicit: true };
    let name = host.name.clone();
    let url_of = |host: &str, port: u16| {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        crate::address::parse_url(&format!("https://{host}:{port}{}", hello.path))
    };
    let bad_address = |error| bad(InvalidHello::Address(error));
    let url_there = url_of(&name, hello.port).map_err(bad_address)?;
    let direct = timeout(DIRECT_WITHIN, TcpStream::connect((name.as_str(), hello.port))).await;
    let (host, port, lead) = match direct {
        Ok(Ok(_)) => (name, hello.port, None),
        _ => {
            let (lead, own) = by_ssh_alone(&host, &program, hello.port, options).await?;
            let (host, port) = (remote.host.clone(), hello.port);
            let forwards = matches!(lead, SshChannel::Forwarded { .. });
            note(Note::OnlyBySsh { host, port, forwards });
            let port = own;
            (Ipv4Addr::LOCALHOST.to_string(), port, Some(lead))
        }
    };
    let url = url_of(&host, port).map_err(bad_address)?;
    let is_file = hello.is_file;
    let goes_through = lead.is_some();
    let limit = goes_through.then(|| LimitedBy::Ssh { host: remote.host.clone() });
    let names = names(&url, remote, goes_through);
    let lanes_max = matches!(lead, Some(SshChannel::Through { .. })).then_some(through::LANES_MAX);
    let (_server, _hold, _lead) = (server.ssh, server.input, lead);
    Ok(Session {
        url,
        url_there,
        bearer,
        fingerprint,
        is_file,
        goes_through,
        names,
        limit,
        lanes_max,
        _server,
        _hold,
        _lead,
    })
}

/// Returns a local port that leads through ssh to the remote `port`.
async fn by_ssh_alone(
    host: &SshHost,
    program: &str,
    port: u16,
    options: &SshOptions,
) -> Result<(SshChannel, u16), SshError> {
    let (ssh, own) = tunnel(host, port).await?;
    if through::carries(own).await {
        return Ok((SshChannel::Forwarded { _ssh: ssh }, own));
    }
    drop(ssh);
    let through = Through::open(host, program, port, &options.runtime).await;
    let through = through.map_err(|error| {
        let error = Box::new(error);
        host.error(SshFault::NoWay { port, error })
    })?;
    let own = through.port;
    Ok((SshChannel::Through { _through: through }, own))
}

/// Returns the names for the addresses of the server: what the user typed, longer names first.
fn names(url: &Url, remote: &Remote, goes_through: bool) -> DisplayNames {
    let Remote { host, path } = remote;
    let (place, ssh) = match goes_through {
        true => (format!("{host}:{path} (by ssh)"), format!("the ssh connection to {host}")),
        false => (format!("{host}:{path}"), host.clone()),
    };
    let own = url[url::Position::BeforeHost..url::Position::AfterPort].to_owned();
    let whole = swath_source::display_name(url);
    DisplayNames::new(vec![
        (whole.clone(), place.clone()),
        (whole.trim_start_matches("https://").to_owned(), place),
        (format!("https://{own}"), ssh.clone()),
        (own, ssh),
    ])
}

/// Returns the destination on the server, and the name of a single file. `url` is that of the named path;
/// it is not the top of the server if that path is not a folder (yet).
pub fn sent_to(url: Url, to: &Remote, file: Option<LocalFile>) -> (Url, Option<String>) {
    let Some(file) = file else { return (url, None) };
    let Some(name) = new_name(to, &file).filter(|_| url.path() != "/").map(str::to_owned) else {
        return (url, Some(file.name));
    };
    let mut above = url;
    if let Ok(mut segments) = above.path_segments_mut() {
        segments.pop_if_empty().pop().push("");
    }
    (above, Some(name))
}

/// Returns the destination name of a file, unless the destination is a folder.
pub fn new_name<'a>(to: &'a Remote, file: &LocalFile) -> Option<&'a str> {
    let means_folder = to.path.is_empty() || to.path.ends_with('/');
    (file.is_alone && !means_folder).then(|| to.path.rsplit('/').next().unwrap_or(&to.path))
}

/// Finds a server's first line in a line of output, perhaps after a prompt.
fn hello_in(line: &str) -> Option<Hello> {
    let mut begins = line.match_indices(HELLO_BEGIN);
    begins.find_map(|(at, _)| {
        let mut values = serde_json::Deserializer::from_str(&line[at..]).into_iter::<Hello>();
        values.next()?.ok()
    })
}

/// Forwards a local port to the remote loopback interface.
async fn tunnel(host: &SshHost, port: u16) -> Result<(Child, u16), SshError> {
    let failed = |why: SshFault| {
        let error = Box::new(host.error(why));
        host.error(SshFault::NoTunnel { port, error })
    };
    let (_holder, own) = reserve_port().map_err(|error| failed(SshFault::OwnPort(error)))?;
    let mut ssh = host.ssh();
    // Forwardings of the user's configuration may fail.
    let fails = if host.forwards { "no" } else { "yes" };
    ssh.args(["-N", "-o", &format!("ExitOnForwardFailure={fails}"), "-L"]);
    ssh.arg(format!("127.0.0.1:{own}:localhost:{port}")).args(["--", &host.host]);
    ssh.stdin(Stdio::null());
    let mut ssh = host.start(ssh)?;
    let began = Instant::now();
    loop {
        if TcpStream::connect((Ipv4Addr::LOCALHOST, own)).await.is_ok() {
            return Ok((ssh, own));
        }
        if let Ok(Some(status)) = ssh.try_wait() {
            return Err(failed(SshFault::SshEnded(status)));
        }
        if began.elapsed() > host.patience.max(TUNNEL_WITHIN) {
            return Err(failed(SshFault::NoPort));
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Reserves a local port for ssh to listen on: nothing else gets it while the returned socket is bound.
fn reserve_port() -> std::io::Result<(TcpSocket, u16)> {
    let holder = TcpSocket::new_v4()?;
    holder.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    // ssh sets the option too, so that it may listen beside a socket that only holds the port. The system
    // looks at it when ssh binds; until then no other socket may have the port.
    holder.set_reuseaddr(true)?;
    let port = holder.local_addr()?.port();
    Ok((holder, port))
}

/// Quotes a path for a shell; a leading `~` or `~name` still means a home folder.
pub fn quoted(path: &str) -> String {
    let whole = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let (first, rest) = match path.split_once('/') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match (first.strip_prefix('~'), rest) {
        (Some(name), None) if name.chars().all(is_name) => first.to_owned(),
        (Some(name), Some(rest)) if name.chars().all(is_name) => format!("{first}/{}", whole(rest)),
        _ => whole(path),
    }
}

/// The options of a server that writes, and fetches from anywhere: its user says from where.
const FETCHING: &str =
    " --write --third-party --third-party-from 0.0.0.0/0 --third-party-from ::/0";
/// The beginning of a server's first line.
const HELLO_BEGIN: &str = "{\"swath\":";
/// A blocked port usually does not answer at all.
const DIRECT_WITHIN: Duration = Duration::from_secs(3);
/// ssh has logged in before, so that a password prompt is short.
const TUNNEL_WITHIN: Duration = Duration::from_secs(60);
/// Polling interval while ssh sets up its tunnel.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_paths_and_addresses() {
        let remote =
            |host: &str, path: &str| Some(Remote { host: host.to_owned(), path: path.to_owned() });
        assert_eq!(Remote::parse("host:/data/"), remote("host", "/data/"));
        assert_eq!(Remote::parse("me@host:"), remote("me@host", ""));
        assert_eq!(Remote::parse("host:a:b"), remote("host", "a:b"));
        assert_eq!(Remote::parse("[::1]:/data/"), remote("::1", "/data/"));
        assert_eq!(Remote::parse("me@[fe80::1%eth0]:a:b"), remote("me@fe80::1%eth0", "a:b"));
        for other in ["data/", "./a:b", "/a:b", "https://host/a", ":a", "-oX:b", "a/b:c"] {
            assert_eq!(Remote::parse(other), None, "{other}");
        }
    }

    #[test]
    fn no_port_of_ours_is_named_where_ssh_leads() {
        let url = Url::parse("https://127.0.0.1:40123/").unwrap();
        let remote = Remote { host: "far".to_owned(), path: "/data".to_owned() };
        let direct =
            names(&url, &remote, false).shown("https://127.0.0.1:40123/ and 127.0.0.1:40123");
        assert_eq!(direct, "far:/data and far");
        let names = names(&url, &remote, true);
        let told = |text: &str| names.shown(text);
        let shown = swath_source::display_name(&url);
        assert_eq!(told(&format!("{shown}: gone")), "far:/data (by ssh): gone");
        assert_eq!(told("127.0.0.1:40123 is silent"), "the ssh connection to far is silent");
        assert_eq!(told("far away"), "far away");
    }

    #[test]
    fn what_a_server_says_is_found_behind_a_prompt() {
        let said = r#"{"swath":"1","port":1,"path":"/","token":"t","fingerprint":"f"}"#;
        for line in [format!("{said}\n"), format!("me@far {{\"swath\": $ {said} $ ")] {
            assert_eq!(hello_in(&line).unwrap().port, 1, "{line}");
        }
        for line in ["", "{\"swath\":", "{\"swath\":1}", "Welcome", &said[1..]] {
            assert!(hello_in(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_shell_reads_one_word() {
        assert_eq!(quoted("/a b/$(x)/it's"), "'/a b/$(x)/it'\\''s'");
        assert_eq!(quoted("~/a b"), "~/'a b'");
        assert_eq!(quoted("~someone/a b"), "~someone/'a b'");
        assert_eq!((quoted("~"), quoted("~a b/c")), ("~".to_owned(), "'~a b/c'".to_owned()));
        assert_eq!(quoted("~"), "~");
    }
}
