//! The command line of `swath serve`.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};
use swath_model::path::visible;
use swath_serve::{Congestion, Folder, Listening, Network, Reads};
use swath_transfer::{IoMode, Pin};

use super::lifetime::Reloadable;
use super::log::RequestLog;
use crate::args::pin;
use crate::config::Relay;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::identity;

/// `swath serve`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Serve {
    /// Serve a single copy: listen on a free port, print port, token and fingerprint as one line of JSON, and exit when standard input closes
    #[arg(long, conflicts_with_all = ["listen", "token_file", "anonymous", "tls_cert", "plain", "log", "new_identity"])]
    pub ephemeral: bool,
    /// With --ephemeral: serve or receive a single file under this name; it may replace a file
    #[arg(long, value_name = "NAME", requires = "ephemeral", hide = true)]
    pub file_name: Option<String>,
    /// Connect standard input and output to this local port
    #[arg(long, value_name = "PORT", hide = true, exclusive = true)]
    pub through: Option<u16>,
    /// Folders to serve: one at /, several at /NAME/; NAME=DIR chooses the name (unless a file is called 'NAME=DIR')
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::DirPath)]
    pub folders: Vec<PathBuf>,
    /// Listen on this address (repeatable); port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8470", value_parser = address, value_hint = ValueHint::Other)]
    pub listen: Vec<SocketAddr>,
    /// Accept the tokens in this file, one per line: TOKEN [read|write] [until=DATE] [default: a token made for these folders, kept and printed]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
    /// Accept tokens of this issuer, of the WLCG profile or SciTokens, for what their scopes name: its https URL as in its tokens, or a JSON file that names it (repeatable)
    #[arg(long, value_name = "URL|FILE", value_parser = issuer_name, conflicts_with_all = ["anonymous", "ephemeral"], value_hint = ValueHint::FilePath)]
    pub issuer: Vec<IssuerName>,
    /// With --issuer: accept tokens for this audience (repeatable) [default: the server's addresses]; tokens for every server are always accepted
    #[arg(long, value_name = "TEXT", requires = "issuer", value_hint = ValueHint::Other)]
    pub audience: Vec<String>,
    /// Also show the link, with the token in it, as a QR code (only on a terminal)
    #[arg(long, conflicts_with_all = ["ephemeral", "plain"])]
    pub qr: bool,
    /// Also accept uploads from 'swath cp' and by PUT, and let WebDAV clients make, move and remove files and folders: with the printed token, or with 'write' tokens of the token file
    #[arg(long)]
    pub write: bool,
    /// With --write: also copy from other servers when 'swath cp https://a/ds/ https://here/ds/' on another machine asks for it
    #[arg(long, requires = "write")]
    pub third_party: bool,
    /// With --third-party: run at most this many copies at once for each token; others wait
    #[arg(long, value_name = "N", requires = "third_party", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub third_party_jobs: u32,
    /// With --third-party: also copy from servers in these networks (comma separated, repeatable); without it only from public addresses
    #[arg(long, value_name = "CIDR", requires = "third_party", value_delimiter = ',', value_hint = ValueHint::Other)]
    pub third_party_from: Vec<Network>,
    /// With --third-party: also trust the certificate authorities in this file (PEM) for other servers (repeatable)
    #[arg(long, value_name = "FILE", requires = "third_party", value_hint = ValueHint::FilePath)]
    pub third_party_ca: Vec<PathBuf>,
    /// With --third-party: use this relay where it makes a copy faster (repeatable); replaces those of the configuration file
    #[arg(long, value_name = "URL", requires = "third_party", value_parser = crate::config::relay, value_hint = ValueHint::Url)]
    pub third_party_relay: Vec<Relay>,
    /// Allow everybody, without a token
    #[arg(long, conflicts_with = "token_file")]
    pub anonymous: bool,
    /// Allow only these networks (comma separated, repeatable): 192.0.2.0/24, 2001:db8::/32, 10.1.2.3
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_hint = ValueHint::Other)]
    pub allow: Vec<Network>,
    /// Encryption, connections and log
    #[command(flatten)]
    pub server: ServerArgs,
    /// Also seed the torrents in this folder of 'swath publish', whose data is in the served folders, and be their tracker, by HTTP and UDP at the same port; new torrents are added
    #[arg(long, value_name = "OUTDIR", requires = "anonymous", conflicts_with = "ephemeral", value_hint = ValueHint::DirPath)]
    pub swarm: Option<PathBuf>,
    /// With --swarm: listen on this address for peers; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", requires = "swarm", default_value = "[::]:6881", value_parser = address, value_hint = ValueHint::Other)]
    pub listen_peers: SocketAddr,
    /// Follow symbolic links whose targets are below the served folder
    #[arg(long)]
    pub follow_symlinks: bool,
    /// Show this server name on its pages [default: the host name]
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub name: Option<String>,
    /// With --plain and --anonymous: also accept this Host header, for example from a local proxy (repeatable); localhost, addresses and the host name are always accepted
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Hostname)]
    pub host: Vec<String>,
    /// Limit the total rates of sending and of receiving, in bytes per second: 50M, 2MiB
    #[arg(long, value_name = "RATE", value_parser = crate::units::rate_above_zero, value_hint = ValueHint::Other)]
    pub limit_rate: Option<u64>,
    /// Choose how disks are read, and written with --write: 'auto' bypasses the page cache for large files that it does not hold
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub io: Io,
    /// Choose the processors to run on: 'auto' uses those near the disk on NUMA machines; 'off'; or a list such as 0-3,8
    #[arg(long, value_name = "PIN", default_value = "auto", value_parser = pin, value_hint = ValueHint::Other)]
    pub pin: Pin,
}

/// Options of servers and relays.
#[derive(Args, Debug)]
pub struct ServerArgs {
    /// Use this certificate chain (PEM) [default: a self-signed certificate, made once and kept]
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    pub tls_cert: Option<PathBuf>,
    /// Use this private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
    /// Encrypt with a self-signed certificate, kept between starts; clients check its fingerprint
    #[arg(long, value_name = "KIND", default_value = "self-signed", conflicts_with_all = ["tls_cert", "plain"])]
    pub tls: Tls,
    /// Do not encrypt: anyone on the network path can read data and tokens
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    pub plain: bool,
    /// Make a new certificate, and for 'serve' a new token; the kept ones stop working
    #[arg(long, conflicts_with_all = ["plain", "tls_cert"])]
    pub new_identity: bool,
    /// Serve at most this many connections at once; others wait
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Send by this TCP congestion control, such as cubic; 'auto' is bbr where the round trip is 20 ms or longer and the kernel allows it, 'kernel' always the kernel's default
    #[arg(long, value_name = "NAME", default_value_t, value_hint = ValueHint::Other)]
    pub congestion: Congestion,
    /// Log every request to this file ('-' is standard output)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Choose the log format
    #[arg(long, value_name = "FORM", default_value = "common", requires = "log")]
    pub log_format: LogFormat,
}

impl ServerArgs {
    /// Returns where and how the server listens.
    pub fn listening(
        &self,
        at: &[SocketAddr],
        tls: swath_serve::Tls,
    ) -> Result<Listening, Failure> {
        if !self.congestion.is_allowed() {
            let name = visible(&self.congestion.to_string());
            return Err(Failure::new(
                Exit::Usage,
                format!(
                    "--congestion {name}: the kernel does not have it, or does not let this user \
                     choose it (net.ipv4.tcp_allowed_congestion_control)"
                ),
            ));
        }
        Ok(Listening {
            at: at.to_vec(),
            tls,
            max_connections: self.max_connections as usize,
            congestion: self.congestion.clone(),
        })
    }

    /// Returns the certificate and the key of the options.
    pub fn certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.tls_cert.clone().zip(self.tls_key.clone())
    }

    /// Returns the encryption of a server of this kind (`serve`, `relay`).
    pub fn encryption(&self, kind: &str, host: &str) -> Result<swath_serve::Tls, Failure> {
        Ok(match self.certificate() {
            _ if self.plain => swath_serve::Tls::Plain,
            Some((certificates, key)) => swath_serve::Tls::Files { certificates, key },
            None => identity::certificate(kind, host, self.new_identity)?,
        })
    }

    /// Opens the log, if there is one.
    pub fn open_log(&self) -> Result<Option<RequestLog>, Failure> {
        self.log.as_deref().map(|path| RequestLog::open(path, self.log_format)).transpose()
    }
}

impl Serve {
    /// Returns the files that SIGHUP reads again.
    pub fn reloadable(&self) -> Reloadable {
        Reloadable {
            tokens: self.token_file.clone(),
            tokens_option: "--token-file",
            certificate: self.server.certificate(),
            log: self.server.log.clone(),
            writes: self.write,
            is_ephemeral: self.ephemeral,
            watches: false,
            issuers: None,
        }
    }

    /// Returns the folders with their names.
    pub fn served(&self) -> Vec<Folder> {
        self.folders.iter().map(|path| named(path, self.ephemeral)).collect()
    }
}

/// Reads `DIR` or `NAME=DIR`.
fn named(path: &Path, is_path: bool) -> Folder {
    let plain = || Folder::from(path.to_owned());
    // A folder may itself be called `NAME=DIR`.
    if is_path || path.symlink_metadata().is_ok() {
        return plain();
    }
    let text = path.as_os_str().as_bytes();
    let Some(at) = text.iter().position(|&byte| byte == b'=') else { return plain() };
    let (name, rest) = (OsStr::from_bytes(&text[..at]), OsStr::from_bytes(&text[at + 1..]));
    let mut parts = Path::new(name).components();
    let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(only)), None) if only == name);
    if !is_name || rest.is_empty() {
        return plain();
    }
    Folder { path: rest.into(), name: Some(name.to_owned()) }
}

/// The certificate without `--tls-cert` or `--plain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tls {
    /// A self-signed certificate
    SelfSigned,
}

/// How a server reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// Bypass the page cache where that is faster
    Auto,
    /// Bypass the page cache wherever possible, except for small files
    Direct,
    /// Use the page cache
    Buffered,
}

impl Io {
    /// Returns how files of trees are read.
    pub fn reads(self) -> Reads {
        match self {
            Io::Auto => Reads::Auto,
            Io::Direct => Reads::Direct,
            Io::Buffered => Reads::Buffered,
        }
    }

    /// Returns how uploads are written: directly unless `buffered` is chosen.
    pub fn writes(self) -> IoMode {
        match self {
            Io::Auto | Io::Direct => IoMode::Auto,
            Io::Buffered => IoMode::Buffered,
        }
    }
}

/// An issuer, as `--issuer` names it.
#[derive(Clone, Debug)]
pub enum IssuerName {
    /// Its address, as its tokens have it.
    Url(String),
    /// A file that names it.
    File(PathBuf),
}

/// Reads the address of an issuer or the name of a file.
fn issuer_name(text: &str) -> Result<IssuerName, String> {
    match text.contains("://") {
        true => https_address(text).map(|()| IssuerName::Url(text.to_owned())),
        false if text.is_empty() => Err("must be an https URL or a file".to_owned()),
        false => Ok(IssuerName::File(text.into())),
    }
}

/// Whether keys can be looked for at this address.
pub fn https_address(text: &str) -> Result<(), String> {
    let url = url::Url::parse(text).map_err(|error| format!("'{text}': {error}"))?;
    let is_plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    match url.scheme() == "https" && is_plain {
        true => Ok(()),
        false => Err("an issuer has an https URL without query and login".to_owned()),
    }
}

/// Formats of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Combined log format of Apache and nginx
    Common,
    /// One JSON object per line
    Json,
}

/// A network, or a file with networks or tokens.
#[derive(Clone, Debug)]
pub enum NetworkOrFile {
    /// A network.
    Network(Network),
    /// A file.
    File(PathBuf),
}

/// Reads a network or the name of a file.
pub fn network_or_file(text: &str) -> Result<NetworkOrFile, String> {
    if text.is_empty() {
        return Err("must be a network or a file".to_owned());
    }
    // A mistyped network must not be taken for a file.
    let looks_like = text.contains('/')
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || b".:/".contains(&byte));
    match text.parse() {
        Ok(network) => Ok(NetworkOrFile::Network(network)),
        Err(error) if looks_like && !Path::new(text).exists() => Err(error.to_string()),
        Err(_) => Ok(NetworkOrFile::File(text.into())),
    }
}

pub fn address(text: &str) -> Result<SocketAddr, String> {
    let parsed = text.parse().ok().or_else(|| {
        // A port alone, and an address alone.
        let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
        port.ok().map(|port| SocketAddr::from(([0; 8], port)))
    });
    parsed.ok_or_else(|| {
        format!("'{text}' is not an address to listen on (examples: 8470, 127.0.0.1:8470, [::1]:0)")
    })
}

const EXAMPLES: &str = "\
Examples:
  swath serve /data                         readable with the printed token
  swath serve /data /scratch --anonymous --plain --listen 127.0.0.1:8000
  swath serve raw=/disk1/data cal=/disk2/data   two folders, at /raw/ and /cal/
  swath serve /data --anonymous --plain --swarm /data/pub     web seed, tracker and seeder
  swath serve /data --tls-cert fullchain.pem --tls-key privkey.pem --token-file tokens
  swath serve /data --write --issuer https://iam.example/     tokens of an institute's issuer

Signals:
  HUP         reload tokens, issuers, certificate and key, and reopen the log; transfers continue
  INT, TERM   stop; transfers have ten seconds to finish; a second signal stops at once

Exit codes:
  0 stopped by a signal      5 cannot listen, or cannot write the log
  1 internal error           6 cannot read a folder or the token file
  2 wrong command line       130 stopped by a second signal
  4 cannot use the certificate and key";
