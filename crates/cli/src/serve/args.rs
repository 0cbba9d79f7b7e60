//! The command line of `swath serve`.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};
use swath_serve::{Folder, Network, Reads};
use swath_transfer::{IoMode, Pin};

use super::standing::Given;
use crate::args::pin;

/// `swath serve`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Serve {
    /// Serve one copy for whoever started this: a free port, a token and what else it takes as a line of JSON, the end with standard input
    #[arg(long, conflicts_with_all = ["listen", "token_file", "anonymous", "tls_cert", "plain", "log"])]
    pub ephemeral: bool,
    /// With --ephemeral: a single file is offered under this name, or taken and may replace one
    #[arg(long, value_name = "NAME", requires = "ephemeral", hide = true)]
    pub file_name: Option<String>,
    /// Serve nothing: carry one connection to this port of this machine, by standard input and output
    #[arg(long, value_name = "PORT", hide = true, exclusive = true)]
    pub through: Option<u16>,
    /// Folders: one is at /, several are at /NAME/; NAME=DIR (where nothing of just that name is there) gives one another name
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::DirPath)]
    pub folders: Vec<PathBuf>,
    /// Listen here (repeatable); port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8470", value_parser = address, value_hint = ValueHint::Other)]
    pub listen: Vec<SocketAddr>,
    /// Let in whoever shows a token of this file, one a line ('TOKEN [read|write] [until=DATE]'; otherwise one is made once for these folders, kept and printed)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
    /// Make a new certificate and a new token in place of those that are kept from earlier starts; who knew the old ones needs the new ones
    #[arg(long, conflicts_with_all = ["ephemeral", "plain", "tls_cert"])]
    pub new_identity: bool,
    /// Show what others need as a QR code too: a link with the token in it (on a terminal only)
    #[arg(long, conflicts_with_all = ["ephemeral", "plain"])]
    pub qr: bool,
    /// Take trees from 'swath cp' and files by PUT too: with the token that is printed, or with those of the file that have 'write' behind them
    #[arg(long)]
    pub write: bool,
    /// Let in everybody
    #[arg(long, conflicts_with = "token_file")]
    pub anonymous: bool,
    /// Let in only these networks (comma separated, repeatable): 192.0.2.0/24, 2001:db8::/32, 10.1.2.3
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_hint = ValueHint::Other)]
    pub allow: Vec<Network>,
    /// Certificate and those that vouch for it, PEM (otherwise one is made once and kept, known by its fingerprint)
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
    /// Encrypt, with a certificate of our own that is kept from start to start and known by its fingerprint
    #[arg(long, value_name = "KIND", default_value = "self-signed", conflicts_with_all = ["tls_cert", "plain"])]
    pub tls: Tls,
    /// Do not encrypt: bytes, tokens and all can be read on the way
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    pub plain: bool,
    /// Follow symbolic links that lead to something below their folder
    #[arg(long)]
    pub follow_symlinks: bool,
    /// How the server calls itself on its pages
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub name: Option<String>,
    /// With --plain and --anonymous: a name by which clients on this machine ask for the server, as a proxy before it may (repeatable); localhost, addresses and this machine's own name need not be told
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Hostname)]
    pub host: Vec<String>,
    /// More connections than this wait until others end, or are silent
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Send no more than this a second, to all together, and take no more: 50M, 2MiB
    #[arg(long, value_name = "RATE", value_parser = crate::units::rate_above_zero, value_hint = ValueHint::Other)]
    pub limit_rate: Option<u64>,
    /// How disks are read, and written with --write: 'auto' reads large files of trees past the page cache where it does not hold them
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub io: Io,
    /// Where it runs: 'auto' is near the disk on machines with several memory nodes; 'off'; or processors such as 0-3,8
    #[arg(long, value_name = "PIN", default_value = "auto", value_parser = pin, value_hint = ValueHint::Other)]
    pub pin: Pin,
    /// Note every answer in this file ('-' is standard output)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// In which form
    #[arg(long, value_name = "FORM", default_value = "common", requires = "log")]
    pub log_format: LogFormat,
}

impl Serve {
    /// What can be read again.
    pub fn given(&self) -> Given {
        Given {
            tokens: self.token_file.clone(),
            tokens_option: "--token-file",
            certificate: self.tls_cert.clone().zip(self.tls_key.clone()),
            log: self.log.clone(),
            writes: self.write,
            is_ephemeral: self.ephemeral,
        }
    }

    /// The folders, and what they are to be called.
    pub fn served(&self) -> Vec<Folder> {
        self.folders.iter().map(|path| named(path, self.ephemeral)).collect()
    }
}

/// A folder as it stands on the command line.
fn named(path: &Path, is_path: bool) -> Folder {
    let plain = || Folder::from(path.to_owned());
    // A folder may have such a name itself.
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

/// With what answers are encrypted unless there is a certificate, or --plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tls {
    /// A certificate of our own
    SelfSigned,
}

/// How a server reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// Past the page cache where that is good
    Auto,
    /// Past the page cache wherever that is possible, but for small files
    Direct,
    /// Through the page cache
    Buffered,
}

impl Io {
    /// What it means for files of trees.
    pub fn reads(self) -> Reads {
        match self {
            Io::Auto => Reads::Auto,
            Io::Direct => Reads::Direct,
            Io::Buffered => Reads::Buffered,
        }
    }

    /// What it means for trees that are taken: those are written directly unless one says otherwise.
    pub fn writes(self) -> IoMode {
        match self {
            Io::Auto | Io::Direct => IoMode::Auto,
            Io::Buffered => IoMode::Buffered,
        }
    }
}

/// How answers are noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// As Apache and nginx do, with referer and agent
    Common,
    /// One JSON object a line
    Json,
}

pub fn address(text: &str) -> Result<SocketAddr, String> {
    let parsed = text.parse().ok().or_else(|| {
        // A port alone, and an address alone.
        let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
        port.ok().map(|port| SocketAddr::from(([0; 8], port)))
    });
    parsed.ok_or_else(|| {
        format!("'{text}' is no address to listen at (examples: 8470, 127.0.0.1:8470, [::1]:0)")
    })
}

const EXAMPLES: &str = "\
Examples:
  swath serve /data                         everybody with the printed token may read it
  swath serve /data /scratch --anonymous --plain --listen 127.0.0.1:8000
  swath serve raw=/disk1/data cal=/disk2/data   two folders, at /raw/ and /cal/
  swath serve /data --tls-cert fullchain.pem --tls-key privkey.pem --token-file tokens

Signals:
  HUP         reads tokens, certificate and key again, and opens the log again; open transfers go on
  INT, TERM   what is under way has ten seconds to end; a second one ends it at once

Exit codes:
  0 ended by a signal        5 cannot listen, or the log cannot be written
  1 internal error           6 a folder or the file of tokens cannot be read
  2 wrong command line       130 ended by a second signal
  4 certificate and key cannot be used";
