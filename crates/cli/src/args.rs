//! The command line: one definition for parsing, help, man pages and completions.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use swath_jobs::{CertificateFiles, ServerNames};
use swath_model::digest::{Algorithm, Digest, DigestError};
use swath_source::{NetError, Secret, ServerAccess, UnknownServers, check_header, is_token};
use swath_transfer::{BadCpus, IoMode, Lanes, Pin, PolicyKind};

use crate::config::command::ConfigCommand;
use crate::cp::args::Cp;
use crate::follow::args::Follow;
use crate::forecast::args::Forecast;
use crate::history::args::History;
use crate::keys::Keys;
use crate::list::args::{Du, Ls};
use crate::publish::args::Publish;
use crate::relay::args::Relay;
use crate::relays::RouteArgs;
use crate::routes::args::Routes;
use crate::seed::args::Seed;
use crate::serve::args::Serve;
use crate::server_jobs::args::{Attach, Cancel, ServerJobs};
use crate::stage::args::Stage;
use crate::study::args::Study;
use crate::track::args::Track;
use crate::tune::args::Tune;
use crate::units;

/// Moves large datasets from many replicas at once, verified and resumable.
#[derive(Debug, Parser)]
#[command(
    name = "swath",
    version,
    long_version = LONG_VERSION,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Fetch a file from all its replicas at once
    Get(Box<Get>),
    /// Keep datasets up to date with a feed that announces their versions
    Follow(Box<Follow>),
    /// Copy folders and files to or from servers, by ssh or locally; copies only what differs
    #[command(visible_alias = "sync")]
    Cp(Box<Cp>),
    /// Follow a copy that a server carries out ('swath cp --detach')
    Attach(Box<Attach>),
    /// Cancel a copy that a server carries out
    Cancel(Box<Cancel>),
    /// List the copies that a server carries out
    Jobs(Box<ServerJobs>),
    /// Serve folders over HTTPS
    Serve(Box<Serve>),
    /// Run a relay for allowed clients and upstream servers
    Relay(Box<Relay>),
    /// Seed torrents: serve their data to BitTorrent peers
    Seed(Box<Seed>),
    /// Run a BitTorrent tracker for chosen torrents, networks or passkeys
    Track(Box<Track>),
    /// Copy a file to the depots of relays, close to its future readers
    Stage(Box<Stage>),
    /// Make the torrent, Metalink and index of a file or folder
    Publish(Box<Publish>),
    /// Make or show the keys that sign publications
    Keys(Keys),
    /// List a folder on a server or on a host reached by ssh
    Ls(Box<Ls>),
    /// Show the size of a folder on a server or on a host reached by ssh
    Du(Box<Du>),
    /// Show what each replica offers
    Probe(Probe),
    /// Show the remembered network and the widest route through it
    Routes(Box<Routes>),
    /// Predict how long a get or cp takes, before anything moves
    Forecast(Forecast),
    /// Find out how many connections to a server pay (normally unnecessary)
    Tune(Box<Tune>),
    /// Show past transfers, how long they took and what was predicted
    History(Box<History>),
    /// Repeat the comparative study of file transfer tools (root, in swath's source)
    Study(Study),
    /// Check a file against digests, or a folder against its index or torrent
    Verify(Verify),
    /// Show or check the configuration file and the SWATH_ variables
    #[command(disable_help_subcommand = true, subcommand_value_name = "COMMAND")]
    Config {
        /// Subcommand
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print the completion script of a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the man page of swath, or of one of its commands
    Man {
        /// Which command
        #[arg(value_name = "COMMAND", value_hint = ValueHint::Other)]
        command: Option<String>,
        /// Write all pages into this folder
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "command")]
        dir: Option<PathBuf>,
    },
}

/// `swath get`
#[derive(Args, Debug)]
#[command(after_long_help = GET_EXAMPLES)]
pub struct Get {
    /// Replicas of one file; or one Metalink or torrent (a .meta4 or .torrent file, its URL, or a magnet link); or a feed (.rss or .atom)
    #[arg(value_name = "URL", required_unless_present = "input", conflicts_with = "input")]
    pub sources: Vec<String>,
    /// Read URL as a feed, and fetch the newest version of this dataset
    #[arg(long, value_name = "DATASET", conflicts_with = "input", value_hint = ValueHint::Other)]
    pub latest: Option<String>,
    /// Fetch every file in a list: one file per line, mirrors separated by tabs ('-' reads standard input)
    #[arg(short, long, value_name = "LIST", value_hint = ValueHint::FilePath)]
    pub input: Option<PathBuf>,
    /// Write to this file; '-' writes to standard output, in order
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Write to standard output even if it is a terminal ('-o -')
    #[arg(long, hide = true)]
    pub force_terminal: bool,
    /// Write into this folder
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Take the name that the server gives the file (Content-Disposition): 'auto' if the address has no file name, such as …/content or get.php?id=5; never over an existing file
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = server_names())]
    pub server_names: ServerNames,
    /// Options of curl, wget and aria2
    #[command(flatten)]
    pub compat: crate::compat::GetCompat,
    /// Check the file against this digest: ALGORITHM:HEX, with sha-256, sha-512, sha-1, md5, adler32, crc32c or blake3; HEX alone is md5, sha-1, sha-256 or sha-512, by its length
    #[arg(long, value_name = "DIGEST", value_parser = digest, conflicts_with = "input", value_hint = ValueHint::Other)]
    pub digest: Vec<Digest>,
    /// Read the digest from a checksum file such as SHA256SUMS or FILE.sha256: its URL or its path; 'auto' looks for one next to the file
    #[arg(long, value_name = "auto|URL|FILE", conflicts_with = "input", value_hint = ValueHint::AnyPath)]
    pub checksums: Option<String>,
    /// Refuse files without a known digest (from --digest, a Metalink, a list or a server)
    #[arg(long)]
    pub require_digest: bool,
    /// Fetch this many files of a list at the same time [default: 16, with 8 connections to one host]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// Replace existing files
    #[arg(long)]
    pub overwrite: bool,
    /// Say so if it may not end within this time, and what would help
    #[arg(long, value_name = "TIME", value_parser = units::deadline, value_hint = ValueHint::Other)]
    pub deadline: Option<Duration>,
    /// Options of every transfer
    #[command(flatten)]
    pub transfer: Transfer,
    /// Write blocks of zeros as holes, so that the file may be larger than the free disk space
    #[arg(long, help_heading = "Disk")]
    pub sparse: bool,
    /// Use only the given sources, not those that servers advertise
    #[arg(long, help_heading = "Network")]
    pub no_discover: bool,
    /// Fetch the file together with the other machines that run the same command, so that its server sends about one copy: they find each other with --tracker, or with --peers HOST,HOST,…
    #[arg(long, help_heading = "Sharing within a cluster", requires = "cluster_token", conflicts_with_all = ["no_peers", "input"])]
    pub share: bool,
    /// Let only machines take part that have the same token: any secret word; '@FILE' reads it from a file, hidden from other users of this machine
    #[arg(long, help_heading = "Sharing within a cluster", value_name = "TOKEN|@FILE", requires = "share", allow_hyphen_values = true, value_parser = TokenParser, value_hint = ValueHint::Other)]
    pub cluster_token: Option<TokenFrom>,
    /// Fetch only files of the torrent that match (repeatable), as 'swath cp --include': '*.h5', detector/
    #[arg(long, value_name = "GLOB", conflicts_with = "input", help_heading = "Torrents", value_hint = ValueHint::Other)]
    pub select: Vec<String>,
    /// The swarm of a torrent
    #[command(flatten)]
    pub swarm: crate::get::SwarmArgs,
}

/// Options of `swath get` and `swath cp`.
#[derive(Args, Debug)]
pub struct Transfer {
    /// Start over instead of resuming an earlier run
    #[arg(long)]
    pub no_resume: bool,
    /// Resume an earlier run (always on)
    #[arg(long, hide = true, overrides_with = "no_resume")]
    pub resume: bool,
    /// How the transfer is planned
    #[command(flatten)]
    pub plan: Plan,
    /// The network
    #[command(flatten)]
    pub net: Net,
    /// Relays and routes
    #[command(flatten)]
    pub routes: RouteArgs,
    /// Limit the total rate, in bytes per second: 50M, 2MiB
    #[arg(long, value_name = "RATE", value_parser = units::rate_above_zero, value_hint = ValueHint::Other, help_heading = "Network")]
    pub limit_rate: Option<u64>,
    /// Choose how files are written, and read when sending: 'buffered' uses the page cache
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = io_mode(), help_heading = "Disk")]
    pub io: IoMode,
    /// Use this much memory for buffers
    #[arg(long, value_name = "SIZE", default_value = "96M", value_parser = units::size_above_zero, value_hint = ValueHint::Other, help_heading = "Disk")]
    pub memory: u64,
    /// Choose the processors to run on: 'auto' uses those near the disk on NUMA machines; 'off'; or a list such as 0-3,8
    #[arg(long, value_name = "PIN", default_value = "auto", value_parser = pin, value_hint = ValueHint::Other, help_heading = "Disk")]
    pub pin: Pin,
    /// Print events as JSON on standard output, one per line
    #[arg(long, conflicts_with = "quiet", help_heading = "Output")]
    pub json: bool,
    /// Show more about the transfer: requests, connections, wasted bytes; twice (-vv) also prints a debug log
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "quiet", help_heading = "Output")]
    pub verbose: u8,
    /// Print only warnings and errors
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Write an HTML page with charts of the transfer
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub report: Option<PathBuf>,
}

impl Transfer {
    /// Whether to resume an earlier run.
    pub fn resumes(&self) -> bool {
        self.resume || !self.no_resume
    }

    /// Whether to print no progress for people.
    pub fn is_quiet(&self) -> bool {
        self.quiet || self.json
    }

    /// Returns the disk options of a job.
    pub fn disk(&self) -> swath_jobs::Disk {
        swath_jobs::Disk { io: self.io, memory_bytes: self.memory }
    }
}

/// Planning.
#[derive(Args, Debug)]
#[command(next_help_heading = "Planning")]
pub struct Plan {
    /// Plan with swath's own policy, or with a published one for comparison
    #[arg(long, value_name = "POLICY", default_value = "swath", value_parser = policy())]
    pub policy: PolicyKind,
    /// Open this many connections per source; 'auto' adds connections while they increase the rate
    #[arg(short = 'x', long = "connections", alias = "lanes", value_name = "N", default_value = "auto", value_parser = lanes, value_hint = ValueHint::Other)]
    pub lanes: Lanes,
    /// Use at most this many sources at once; the others are spares
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_sources: u16,
    /// Set the size of each source's first chunk (mdtp)
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = units::size_above_zero, value_hint = ValueHint::Other)]
    pub initial_chunk: u64,
    /// Set the chunk size of the fastest source (mdtp)
    #[arg(long, value_name = "SIZE", default_value = "40M", value_parser = units::size_above_zero, value_hint = ValueHint::Other)]
    pub large_chunk: u64,
    /// Set the chunk size (fixed)
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = units::size_above_zero, value_hint = ValueHint::Other)]
    pub chunk: u64,
}

impl Plan {
    /// As jobs take it; `in_all` connections to all the sources of a file.
    pub fn spec(&self, in_all: Option<u32>) -> swath_jobs::Plan {
        swath_jobs::Plan {
            policy: self.policy,
            connections: match self.lanes {
                Lanes::Auto { .. } => None,
                Lanes::Fixed(count) => Some(count),
            },
            connections_in_all: in_all,
            max_sources: self.max_sources,
            initial_chunk_bytes: self.initial_chunk,
            large_chunk_bytes: self.large_chunk,
            chunk_bytes: self.chunk,
            first_connections: None,
        }
    }
}

/// The network.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Network")]
pub struct Net {
    /// Send this header to the sources that you name ('Name: value'; repeatable); it replaces swath's own header of that name
    #[arg(short = 'H', long, value_name = "HEADER", value_parser = HeaderParser, value_hint = ValueHint::Other)]
    pub header: Vec<(String, String)>,
    /// Read the bearer token from this file [default: WLCG token discovery: BEARER_TOKEN, BEARER_TOKEN_FILE, …]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub bearer_file: Option<PathBuf>,
    /// Send this bearer token (as 'swath serve' prints it) to the sources that you name; '@FILE' reads it from a file, hidden from other users of this machine
    #[arg(long, value_name = "TOKEN|@FILE", allow_hyphen_values = true, conflicts_with = "bearer_file", value_parser = TokenParser, value_hint = ValueHint::Other)]
    pub token: Option<TokenFrom>,
    /// Also trust the certificate authorities in this file (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ca: Vec<PathBuf>,
    /// Trust the server certificate with this fingerprint (sha-256:HEX, as 'swath serve' prints it)
    #[arg(long, value_name = "FINGERPRINT", value_parser = fingerprint, value_hint = ValueHint::Other)]
    pub fingerprint: Vec<Digest>,
    /// Accept any certificate
    #[arg(long, conflicts_with = "fingerprint")]
    pub insecure: bool,
    /// A certificate of yours
    #[command(flatten)]
    pub own: OwnCertificate,
    /// Give up after this long without a byte from any source; waiting for the disk, the output or --limit-rate does not count
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::time, value_hint = ValueHint::Other)]
    pub timeout: Duration,
    /// Access to single servers, from links
    #[arg(skip)]
    pub servers: Vec<ServerAccess>,
    /// Servers with untrusted certificates
    #[arg(skip)]
    pub unknown: UnknownServers,
}

/// A client certificate.
#[derive(Args, Debug, Clone, Default)]
pub struct OwnCertificate {
    /// Show this client certificate (PEM) to the servers that you name, if they ask for one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub cert: Option<PathBuf>,
    /// Read its private key from this file (PEM) [default: that of the certificate]
    #[arg(long, value_name = "FILE", requires = "cert", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,
}

impl OwnCertificate {
    /// As jobs have it.
    pub fn files(&self) -> Option<CertificateFiles> {
        let certificate = self.cert.clone()?;
        Some(CertificateFiles { certificate, key: self.key.clone() })
    }
}

/// A token on the command line, or the file that holds it.
#[derive(Clone, Debug)]
pub enum TokenFrom {
    /// The token itself.
    Word(Secret),
    /// The file.
    File(PathBuf),
}

/// How ssh is run.
#[derive(Args, Debug, Clone)]
pub struct Ssh {
    /// Run this command for places such as host:path (also set by SWATH_SSH)
    #[arg(long = "ssh", value_name = "COMMAND", default_value = "ssh", value_hint = ValueHint::CommandString)]
    pub command: String,
    /// Copy this program to the remote host if swath is not installed there
    #[arg(long)]
    pub bootstrap: bool,
}

impl Ssh {
    /// As jobs have it.
    pub fn spec(&self) -> swath_jobs::Ssh {
        swath_jobs::Ssh {
            command: self.command.split_whitespace().map(str::to_owned).collect(),
            bootstrap: self.bootstrap,
        }
    }
}

/// `swath probe`
#[derive(Args, Debug)]
pub struct Probe {
    /// Replicas of one file
    #[arg(value_name = "URL", required = true)]
    pub sources: Vec<String>,
    /// The network
    #[command(flatten)]
    pub net: Net,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

/// `swath verify`
#[derive(Args, Debug)]
#[command(
    override_usage = "swath verify <FILE>\n       swath verify [OPTIONS] <--digest <DIGEST>|--metalink <FILE>|--index <FILE|URL>> <FILE>\n       swath verify [OPTIONS] <--torrent <FILE>|--trust <PUBKEY>> <FILE>\n       swath verify [OPTIONS] --check <SUMS> [FILE]"
)]
pub struct Verify {
    /// File to check, or alone to print the digests of; with --index, --torrent or --trust, the folder
    #[arg(value_name = "FILE", required_unless_present = "check", value_hint = ValueHint::AnyPath)]
    pub file: Option<PathBuf>,
    /// Check the files that a checksum file lists (SHA256SUMS, MD5SUMS, FILE.sha256), or only FILE
    #[arg(short, long, value_name = "SUMS", conflicts_with_all = ["digest", "metalink", "index"], value_hint = ValueHint::FilePath)]
    pub check: Option<PathBuf>,
    /// Check against this digest: ALGORITHM:HEX, or HEX alone (repeatable)
    #[arg(long, value_name = "DIGEST", value_parser = digest, value_hint = ValueHint::Other)]
    pub digest: Vec<Digest>,
    /// Check against the size, digests and pieces in this Metalink
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub metalink: Option<PathBuf>,
    /// Check the files of a torrent: below FILE, in FILE/NAME, or FILE itself
    #[arg(long, value_name = "FILE", conflicts_with_all = ["digest", "metalink", "index", "check", "trust"], value_hint = ValueHint::FilePath)]
    pub torrent: Option<PathBuf>,
    /// Check a publication whose index is signed by this public key: a .pub file, or the key itself (RWQ…)
    #[arg(long, value_name = "PUBKEY", conflicts_with_all = ["digest", "metalink", "check"], value_hint = ValueHint::FilePath)]
    pub trust: Option<String>,
    /// Check a copied tree against a file of 'swath cp --keep-index' or 'swath publish', or against a server's folder as it is now
    #[arg(long, value_name = "FILE|URL", conflicts_with_all = ["digest", "metalink"], value_hint = ValueHint::AnyPath)]
    pub index: Option<String>,
    /// With --index URL: check only matching entries, as 'swath cp --include'
    #[arg(long, value_name = "GLOB", requires = "index", value_hint = ValueHint::Other)]
    pub include: Vec<String>,
    /// With --index URL: skip matching entries, as 'swath cp --exclude'
    #[arg(long, value_name = "GLOB", requires = "index", value_hint = ValueHint::Other)]
    pub exclude: Vec<String>,
    /// With --index: also check modes and times, and list every file that shares a wrong block
    #[arg(long, requires = "index")]
    pub strict: bool,
    /// Print only what is wrong
    #[arg(short, long)]
    pub quiet: bool,
    /// The network
    #[command(flatten)]
    pub net: Net,
}

impl Verify {
    /// Returns the path to check.
    pub fn file(&self) -> &std::path::Path {
        self.file.as_deref().unwrap_or(std::path::Path::new("."))
    }
}

pub fn io_mode() -> impl TypedValueParser<Value = IoMode> {
    PossibleValuesParser::new(["auto", "uring", "threads", "buffered"])
        .try_map(|text| text.parse::<IoMode>())
}

fn server_names() -> impl TypedValueParser<Value = ServerNames> {
    PossibleValuesParser::new(["auto", "always", "never"])
        .try_map(|text| text.parse::<ServerNames>())
}

pub fn pin(text: &str) -> Result<Pin, String> {
    text.parse().map_err(|error: BadCpus| error.to_string())
}

/// A digest as users have it: with its algorithm, or as `sha256sum` prints it.
fn digest(text: &str) -> Result<Digest, String> {
    let digest = match (text.contains([':', '=']), text.len()) {
        (false, 32) => Digest::from_hex(Algorithm::Md5, text),
        (false, 40) => Digest::from_hex(Algorithm::Sha1, text),
        (false, 64) => Digest::from_hex(Algorithm::Sha256, text),
        (false, 128) => Digest::from_hex(Algorithm::Sha512, text),
        _ => text.parse(),
    };
    digest.map_err(|error| error.to_string())
}

pub fn fingerprint(text: &str) -> Result<Digest, String> {
    let digest: Digest = text.parse().map_err(|error: DigestError| error.to_string())?;
    if digest.algorithm() != Algorithm::Sha256 {
        return Err("must be sha-256:HEX".to_owned());
    }
    Ok(digest)
}

fn policy() -> impl TypedValueParser<Value = PolicyKind> {
    PossibleValuesParser::new(["swath", "mdtp", "fixed", "single"])
        .try_map(|text| text.parse::<PolicyKind>())
}

pub fn lanes(text: &str) -> Result<Lanes, String> {
    match text {
        "auto" => Ok(Lanes::Auto { max: AUTO_LANES_MAX }),
        _ => match text.parse::<u32>() {
            Ok(count @ 1..=256) => Ok(Lanes::Fixed(count)),
            _ => Err("must be 'auto' or a number from 1 to 256".to_owned()),
        },
    }
}

/// Reads a header without ever showing it: it may contain a secret.
#[derive(Clone)]
struct HeaderParser;

impl TypedValueParser for HeaderParser {
    type Value = (String, String);

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let refused = |why: String| {
            let kind = clap::error::ErrorKind::ValueValidation;
            clap::Error::raw(kind, format!("invalid value for '--header <HEADER>': {why}\n"))
                .with_cmd(command)
        };
        let (name, value) = value
            .to_str()
            .and_then(|text| text.split_once(':'))
            .ok_or_else(|| refused("must be 'Name: value'".to_owned()))?;
        let (name, value) = (name.trim(), value.trim());
        check_header(name, value).map_err(|error| match error {
            // After a typing error even the name may be part of a secret.
            NetError::Header { .. } => {
                refused("its name or its value contains a character that cannot be sent".to_owned())
            }
            other => refused(other.to_string()),
        })?;
        Ok((name.to_owned(), value.to_owned()))
    }
}

/// Reads a token without ever showing it.
#[derive(Clone)]
pub struct TokenParser;

impl TypedValueParser for TokenParser {
    type Value = TokenFrom;

    fn parse_ref(
        &self,
        command: &clap::Command,
        option: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        if let Some(path) = value.as_encoded_bytes().strip_prefix(b"@") {
            return Ok(TokenFrom::File(OsStr::from_bytes(path).into()));
        }
        let word = value.to_str().filter(|text| is_token(text));
        word.map(|text| TokenFrom::Word(Secret::new(text))).ok_or_else(|| {
            let kind = clap::error::ErrorKind::ValueValidation;
            let option = option.map(ToString::to_string).unwrap_or_default();
            let text = format!(
                "invalid value for '{option}': a token must be one word of printable characters\n"
            );
            clap::Error::raw(kind, text).with_cmd(command)
        })
    }
}

/// Build and features.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\n\nbuilt:      ",
    env!("SWATH_BUILD"),
    "\nprotocols:  HTTP/1.1 and HTTP/2 (WebDAV: dav, davs), TLS 1.2 and 1.3 (rustls, aws-lc-rs), ssh",
    "\nproxies:    http, https, socks4, socks4a, socks5, socks5h",
    "\ndigests:    sha-256, sha-512, sha-1, md5, adler32, crc32c, blake3",
    "\ndisk:       io_uring, threads, buffered"
);

/// Most lanes per source with `auto`: what a server's owner may find acceptable.
const AUTO_LANES_MAX: u32 = 16;

/// Shown below the help of `swath get` and in its man page.
pub const GET_EXAMPLES: &str = "\
Examples:
  swath get https://one.example/data.h5 https://two.example/data.h5
  swath get data.meta4 -d /scratch
  swath get run7.torrent -d /scratch
  swath get -i list.txt -d /scratch
  swath get https://one.example/data.tar --digest sha-256:9f86… -o - | tar x

Exit codes:
  0 complete and verified       5 cannot write the output
  1 internal error              6 cannot read an input
  2 wrong command line          7 no usable source
  3 incomplete, can resume      8 some files of a list failed
  4 digest mismatch           130 interrupted, can resume";
