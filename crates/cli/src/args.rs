//! The command line: one definition for parsing, help, man pages and completions.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::failure::Failure;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, ArgGroup, Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use swath_jobs::is_token;
use swath_model::digest::{Algorithm, Digest, DigestError};
use swath_source::{NetError, Secret, ServerAccess, UnknownServers, check_header};
use swath_transfer::{BadCpus, IoMode, Lanes, Pin, PolicyKind};

use crate::config::command::Configure;
use crate::cp::args::Cp;
use crate::list::args::{Du, Ls};
use crate::relay::args::Relay;
use crate::relays::Relays;
use crate::routes::args::Routes;
use crate::serve::args::Serve;
use crate::stage::args::Stage;
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
    /// Copy folders: from all replicas at once, to a server, by ssh, or here; only what differs
    #[command(visible_alias = "sync")]
    Cp(Box<Cp>),
    /// Offer folders to others
    Serve(Box<Serve>),
    /// Pass on what servers have, for those who may and from where it may
    Relay(Box<Relay>),
    /// Bring a file to the depots of relays, near those who will need it
    Stage(Box<Stage>),
    /// List a folder of a swath server, or where ssh leads to
    Ls(Box<Ls>),
    /// Tell how large a folder of a swath server is, or one where ssh leads to
    Du(Box<Du>),
    /// Tell what each replica offers
    Probe(Probe),
    /// Show the network as it is remembered, and which route is the widest
    Routes(Box<Routes>),
    /// Check a file against digests, or a copied folder against its index
    Verify(Verify),
    /// Show, or check, what holds for all transfers: the configuration file and SWATH_ variables
    #[command(disable_help_subcommand = true, subcommand_value_name = "COMMAND")]
    Config {
        /// What to do
        #[command(subcommand)]
        command: Configure,
    },
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the man page of swath, or of one of its commands
    Man {
        /// Which command
        #[arg(value_name = "COMMAND", value_parser = PossibleValuesParser::new(COMMANDS))]
        command: Option<String>,
        /// Write all pages into this folder instead
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "command")]
        dir: Option<PathBuf>,
    },
}

/// `swath get`
#[derive(Args, Debug)]
#[command(after_long_help = GET_EXAMPLES)]
pub struct Get {
    /// Replicas of one file; or one Metalink (a .meta4 file or its URL)
    #[arg(value_name = "URL", required_unless_present = "input", conflicts_with = "input")]
    pub sources: Vec<String>,
    /// Fetch every file of a list: one a line, its mirrors separated by tabs ('-' reads standard input)
    #[arg(short, long, value_name = "LIST", value_hint = ValueHint::FilePath)]
    pub input: Option<PathBuf>,
    /// Write to this file; '-' writes in order to standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Write to standard output even if that is a terminal and the file is not text ('-o -')
    #[arg(long, hide = true)]
    pub force_terminal: bool,
    /// Write into this folder
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Names that users of curl, wget and aria2 type
    #[command(flatten)]
    pub usual: crate::usual::OfGet,
    /// What the file must come to: ALGORITHM:HEX, with sha-256, sha-512, sha-1, md5, adler32, crc32c or blake3
    #[arg(long, value_name = "DIGEST", conflicts_with = "input", value_hint = ValueHint::Other)]
    pub digest: Vec<Digest>,
    /// Take the digest from a checksum file such as SHA256SUMS or FILE.sha256: its URL, its path, or 'auto' to look for one beside the file
    #[arg(long, value_name = "auto|URL|FILE", conflicts_with = "input", value_hint = ValueHint::AnyPath)]
    pub checksums: Option<String>,
    /// Refuse files of which no digest is known: from --digest, a Metalink, a list or a server
    #[arg(long)]
    pub require_digest: bool,
    /// Files of a list that are fetched at the same time [default: 16, with 8 connections to one host]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// Replace files that are there already
    #[arg(long)]
    pub overwrite: bool,
    /// Start again instead of going on from what an earlier run left
    #[arg(long)]
    pub no_resume: bool,
    /// Go on from what an earlier run left, as is done anyway
    #[arg(long, hide = true, overrides_with = "no_resume")]
    pub resume: bool,
    /// How the transfer is planned
    #[command(flatten)]
    pub plan: Plan,
    /// The network
    #[command(flatten)]
    pub net: Net,
    /// The ways that data may take
    #[command(flatten)]
    pub routes: Relays,
    /// Leave blocks of zeros out of the file as holes, so that it may be larger than the space on the disk
    #[arg(long, help_heading = "Disk")]
    pub sparse: bool,
    /// Take no more than this per second, over all sources
    #[arg(long, value_name = "RATE", value_parser = units::rate_above_zero, value_hint = ValueHint::Other, help_heading = "Network")]
    pub limit_rate: Option<u64>,
    /// Take only the sources given, none that they name
    #[arg(long, help_heading = "Network")]
    pub no_discover: bool,
    /// How the disk is written
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = io_mode(), help_heading = "Disk")]
    pub io: IoMode,
    /// Memory for buffers
    #[arg(long, value_name = "SIZE", default_value = "96M", value_parser = units::size_above_zero, value_hint = ValueHint::Other, help_heading = "Disk")]
    pub memory: u64,
    /// Where it runs: 'auto' is near the disk on machines with several memory nodes; 'off'; or processors such as 0-3,8
    #[arg(long, value_name = "PIN", default_value = "auto", value_parser = pin, value_hint = ValueHint::Other, help_heading = "Disk")]
    pub pin: Pin,
    /// Print one JSON event a line on standard output
    #[arg(long, conflicts_with = "quiet", help_heading = "Output")]
    pub json: bool,
    /// Show more of how the transfer was made: requests, connections, what came in vain; twice (-vv): what happens inside, as it happens
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "quiet", help_heading = "Output")]
    pub verbose: u8,
    /// Print warnings and errors only
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Leave a page with charts of the transfer
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub report: Option<PathBuf>,
}

/// Planning.
#[derive(Args, Debug)]
#[command(next_help_heading = "Planning")]
pub struct Plan {
    /// swath, or one of the published ones to compare with
    #[arg(long, value_name = "POLICY", default_value = "swath", value_parser = policy())]
    pub policy: PolicyKind,
    /// Connections per source: 'auto' adds as many as pay, or a number
    #[arg(short = 'x', long = "connections", alias = "lanes", value_name = "N", default_value = "auto", value_parser = lanes, value_hint = ValueHint::Other)]
    pub lanes: Lanes,
    /// Most sources used at once; further ones are spares
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_sources: u16,
    /// First chunk of each source (mdtp)
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = units::size_above_zero, value_hint = ValueHint::Other)]
    pub initial_chunk: u64,
    /// Chunk of the fastest source (mdtp)
    #[arg(long, value_name = "SIZE", default_value = "40M", value_parser = units::size_above_zero, value_hint = ValueHint::Other)]
    pub large_chunk: u64,
    /// Chunk size (fixed)
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
        }
    }
}

/// The network.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Network")]
pub struct Net {
    /// Send this header to the sources named by you ('Name: value'; repeatable), in place of swath's own of that name
    #[arg(short = 'H', long, value_name = "HEADER", value_parser = HeaderParser, value_hint = ValueHint::Other)]
    pub header: Vec<(String, String)>,
    /// Read a bearer token from this file (otherwise found as WLCG prescribes: BEARER_TOKEN, BEARER_TOKEN_FILE, …)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub bearer_file: Option<PathBuf>,
    /// Show this bearer token to the sources named by you, as 'swath serve' prints it; '@FILE' reads it from a file, where other users of this machine do not see it
    #[arg(long, value_name = "TOKEN|@FILE", allow_hyphen_values = true, conflicts_with = "bearer_file", value_parser = TokenParser, value_hint = ValueHint::Other)]
    pub token: Option<TokenFrom>,
    /// Trust the certificate authorities in this file (PEM) too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ca: Vec<PathBuf>,
    /// Trust the server's certificate with this fingerprint (sha-256:HEX, as 'swath serve' prints it)
    #[arg(long, value_name = "FINGERPRINT", value_parser = fingerprint, value_hint = ValueHint::Other)]
    pub fingerprint: Vec<Digest>,
    /// Accept any certificate
    #[arg(long)]
    pub insecure: bool,
    /// Give up when no byte of the file arrives from any source for this long; waiting for the disk, the output or --limit-rate does not count
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::time, value_hint = ValueHint::Other)]
    pub timeout: Duration,
    /// What opens single servers, as links name it
    #[arg(skip)]
    pub servers: Vec<ServerAccess>,
    /// Servers whose certificates nobody vouches for
    #[arg(skip)]
    pub unknown: UnknownServers,
}

/// Where a token given on the command line is.
#[derive(Clone, Debug)]
pub enum TokenFrom {
    /// It stands there itself.
    Word(Secret),
    /// In this file.
    File(PathBuf),
}

/// The way to places such as host:path.
#[derive(Args, Debug, Clone)]
pub struct Ssh {
    /// How ssh is called for places such as host:path (SWATH_SSH too says that)
    #[arg(long = "ssh", value_name = "COMMAND", default_value = "ssh", value_hint = ValueHint::CommandString)]
    pub command: String,
    /// Put this very program on the other side of ssh if it is not there
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
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// `swath verify`
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("wanted").required(true).multiple(true).args(["digest", "metalink", "index", "check"])))]
#[command(
    override_usage = "swath verify [OPTIONS] <--digest <DIGEST>|--metalink <FILE>|--index <FILE|URL>> <FILE>\n       swath verify [OPTIONS] --check <SUMS> [FILE]"
)]
pub struct Verify {
    /// The file to check, or with --index the folder
    #[arg(value_name = "FILE", required_unless_present = "check", value_hint = ValueHint::AnyPath)]
    pub file: Option<PathBuf>,
    /// Check the files that a checksum file lists (SHA256SUMS, MD5SUMS, FILE.sha256), or the one that is named
    #[arg(short, long, value_name = "SUMS", conflicts_with_all = ["digest", "metalink", "index"], value_hint = ValueHint::FilePath)]
    pub check: Option<PathBuf>,
    /// What it must come to: ALGORITHM:HEX (repeatable)
    #[arg(long, value_name = "DIGEST", value_hint = ValueHint::Other)]
    pub digest: Vec<Digest>,
    /// Check against the sizes, digests and pieces in this Metalink
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub metalink: Option<PathBuf>,
    /// Check a copied tree: against what 'swath cp --keep-index' kept, or against a server's folder as it is now
    #[arg(long, value_name = "FILE|URL", conflicts_with_all = ["digest", "metalink"], value_hint = ValueHint::AnyPath)]
    pub index: Option<String>,
    /// With --index URL: check only what matches, as 'swath cp --include'
    #[arg(long, value_name = "GLOB", requires = "index", value_hint = ValueHint::Other)]
    pub include: Vec<String>,
    /// With --index URL: what matches takes no part, as 'swath cp --exclude'
    #[arg(long, value_name = "GLOB", requires = "index", value_hint = ValueHint::Other)]
    pub exclude: Vec<String>,
    /// With --index: other modes and times are wrong too, and all files of a wrong block are named
    #[arg(long, requires = "index")]
    pub strict: bool,
    /// Print nothing but what is wrong
    #[arg(short, long)]
    pub quiet: bool,
    /// The network
    #[command(flatten)]
    pub net: Net,
}

impl Verify {
    /// What is to be checked.
    pub fn file(&self) -> &std::path::Path {
        self.file.as_deref().unwrap_or(std::path::Path::new("."))
    }
}

/// Two values of one algorithm cannot both be right: whoever gives them should hear of it before
/// anything is read.
pub fn one_value_each(digests: &[Digest]) -> Result<(), Failure> {
    for (at, digest) in digests.iter().enumerate() {
        let rival = |other: &&Digest| other.algorithm() == digest.algorithm() && *other != digest;
        if let Some(other) = digests[..at].iter().find(rival) {
            let text = format!("--digest contradicts itself: {other} and {digest}");
            return Err(Failure::usage(text));
        }
    }
    Ok(())
}

pub fn io_mode() -> impl TypedValueParser<Value = IoMode> {
    PossibleValuesParser::new(["auto", "uring", "threads", "buffered"])
        .try_map(|text| text.parse::<IoMode>())
}

pub fn pin(text: &str) -> Result<Pin, String> {
    text.parse().map_err(|error: BadCpus| error.to_string())
}

pub fn fingerprint(text: &str) -> Result<Digest, String> {
    let digest: Digest = text.parse().map_err(|error: DigestError| error.to_string())?;
    if digest.algorithm() != Algorithm::Sha256 {
        return Err("it must be written sha-256:HEX".to_owned());
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

/// Reads a header without ever showing it: it may hold a secret.
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
            .ok_or_else(|| refused("a header is written 'Name: value'".to_owned()))?;
        let (name, value) = (name.trim(), value.trim());
        check_header(name, value).map_err(|error| match error {
            // The name too may be a part of a secret that was typed wrong.
            NetError::Header { .. } => {
                refused("its name or its value holds characters that cannot be sent".to_owned())
            }
            other => refused(other.to_string()),
        })?;
        Ok((name.to_owned(), value.to_owned()))
    }
}

/// Reads a token without ever showing it.
#[derive(Clone)]
struct TokenParser;

impl TypedValueParser for TokenParser {
    type Value = TokenFrom;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        if let Some(path) = value.as_encoded_bytes().strip_prefix(b"@") {
            return Ok(TokenFrom::File(OsStr::from_bytes(path).into()));
        }
        let word = value.to_str().filter(|text| is_token(text));
        word.map(|text| TokenFrom::Word(Secret::new(text))).ok_or_else(|| {
            let kind = clap::error::ErrorKind::ValueValidation;
            let text = "invalid value for '--token <TOKEN|@FILE>': a token is one word of visible characters\n";
            clap::Error::raw(kind, text).with_cmd(command)
        })
    }
}

/// What was built, and what it can do.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\n\nbuilt:      ",
    env!("SWATH_BUILD"),
    "\nprotocols:  HTTP/1.1 and HTTP/2 (WebDAV: dav, davs), TLS 1.2 and 1.3 (rustls, aws-lc-rs), ssh",
    "\nproxies:    http, https, socks4, socks4a, socks5, socks5h",
    "\ndigests:    sha-256, sha-512, sha-1, md5, adler32, crc32c, blake3",
    "\ndisk:       io_uring, threads, buffered"
);

/// Most lanes that `auto` goes up to, per source: what a server's owner may take for decent.
const AUTO_LANES_MAX: u32 = 16;

/// Commands that have a man page of their own, and another name of one.
const COMMANDS: [&str; 22] = [
    "get",
    "cp",
    "sync",
    "serve",
    "relay",
    "stage",
    "stage-status",
    "stage-extend",
    "stage-release",
    "ls",
    "du",
    "probe",
    "routes",
    "routes-probe",
    "routes-forget",
    "verify",
    "config",
    "config-show",
    "config-check",
    "config-path",
    "completions",
    "man",
];

/// Below the help of `swath get`, and in its man page.
pub const GET_EXAMPLES: &str = "\
Examples:
  swath get https://one.example/data.h5 https://two.example/data.h5
  swath get data.meta4 -d /scratch
  swath get -i list.txt -d /scratch
  swath get https://one.example/data.tar --digest sha-256:9f86… -o - | tar x

Exit codes:
  0 complete and verified       5 the target cannot be written
  1 internal error              6 an input cannot be read
  2 wrong command line          7 no source could be used
  3 incomplete, goes on later   8 some files of a list failed
  4 digest mismatch           130 interrupted, goes on later";
