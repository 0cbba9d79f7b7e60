//! The command line of `netlab`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use swath_netlab::faulty::cli::ServeArgs;
use swath_netlab::map::MapSpec;
use swath_netlab::mesh::MeshSpec;
use swath_netlab::star::{LinkSpec, ServerKind, StarSpec};
use swath_netlab::wan::{Change, Queue, Schedule};

/// Runs commands inside an emulated network of namespaces, as root; serves files wrongly and puts
/// servers far away, as anybody.
#[derive(Debug, Parser)]
#[command(name = "netlab", version, max_term_width = 100)]
pub struct Program {
    #[command(subcommand)]
    pub task: Task,
}

#[derive(Debug, Subcommand)]
pub enum Task {
    /// A star of web servers around COMMAND, which finds their URLs in URLS and URL1, URL2, …
    Star(Star),
    /// The same links without web servers: SERVER1, SERVER2, … are the addresses, NETNS1, … the
    /// namespaces for `nsenter --net="$NETNS1"`.
    Wan(Wan),
    /// The sites of a map and the links between them, each site in a namespace of its own; COMMAND
    /// runs at the receiving one. SITE_NAME is the address of each, NETNS_NAME its namespace for
    /// `nsenter --net="$NETNS_NAME"`.
    Mesh(Mesh),
    /// From inside COMMAND: changes links now, for example `netlab set 6 rate=18 loss=0.5`, or
    /// `netlab set all silent`.
    Set(Set),
    /// A faulty web server on the loopback interface, its URL on the first line. Needs no root.
    Serve(Box<ServeArgs>),
    /// A port on the loopback interface behind which a server of this machine lies far away, the
    /// port's address on the first line. Needs no root.
    Afar(Afar),
}

#[derive(Debug, Args)]
pub struct Afar {
    /// The link to it: RATE/DELAY in Mbit/s and one-way milliseconds.
    #[arg(long, default_value = "1000/50")]
    pub link: LinkSpec,
    /// Stop when standard input ends.
    #[arg(long)]
    pub until_eof: bool,
    /// The server, for example 127.0.0.1:8470.
    pub server: SocketAddr,
}

#[derive(Debug, Args)]
pub struct Star {
    #[command(flatten)]
    pub links: Links,
    /// The folder that every server serves.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub serve: PathBuf,
    /// The file under DIR that the URLs name; without it they name the folder.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub file: String,
    /// Which web server.
    #[arg(long, value_enum, default_value_t = Server::Nginx)]
    pub server: Server,
    /// What runs in the middle.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Wan {
    #[command(flatten)]
    pub links: Links,
    /// What runs in the middle.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Links {
    /// One link per server: RATE/DELAY in Mbit/s and one-way milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "20/60,40/50,60/40,80/30,120/20,180/10")]
    pub links: Vec<LinkSpec>,
    /// Queue of every direction, in milliseconds at the link's rate.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub queue_ms: u64,
    /// Random loss on every link, for example 0.5%.
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = percentage)]
    pub loss: f64,
    /// Decides which packets are lost and how rates jump.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Congestion control of the servers, for example cubic.
    #[arg(long, value_name = "NAME")]
    pub cc: Option<String>,
    /// Largest send buffer of a server's connection.
    #[arg(long, value_name = "BYTES")]
    pub send_buffer: Option<u64>,
    /// Changes while COMMAND runs: cut, silent (the fastest link, after 2 s), jump (a random
    /// link to 10, 30, 60, 90 or 150 Mbit/s every 0.5 s), or a file of lines
    /// `AT_MS LINK CHANGE`.
    #[arg(long, value_name = "NAME|FILE")]
    pub script: Option<String>,
    /// Prints what each link carried at the end.
    #[arg(long)]
    pub stats: bool,
}

#[derive(Debug, Args)]
pub struct Mesh {
    /// seven-sites, long-lossy, three-sites, three-sources, or a file of lines as `--print-map` prints them.
    #[arg(long, value_name = "NAME|FILE", default_value = "seven-sites")]
    pub map: String,
    /// Congestion control of every site, for example cubic.
    #[arg(long, value_name = "NAME")]
    pub cc: Option<String>,
    /// Most that a connection has under way, for example 256K.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub window: Option<u64>,
    /// Queue of every direction, in milliseconds at the link's rate.
    #[arg(long, value_name = "MS")]
    pub queue_ms: Option<u64>,
    /// Random loss on every link in place of the map's, for example 0.5%.
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    pub loss: Option<f64>,
    /// Carries segments of one connection together, which costs less processor time: for links
    /// of a Gbit/s and more.
    #[arg(long)]
    pub offload: bool,
    /// Decides which packets are lost.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A folder that nginx serves at the source, as http://ADDRESS/: URL in the environment.
    #[arg(long, value_name = "DIR")]
    pub serve: Option<PathBuf>,
    /// The file under DIR that URL names; without it URL names the folder.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub file: String,
    /// Changes while COMMAND runs: a file of lines `AT_MS LINK CHANGE`, with links as for
    /// `netlab set`.
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Prints what each link carried at the end.
    #[arg(long)]
    pub stats: bool,
    /// Prints the map, and ends.
    #[arg(long)]
    pub print_map: bool,
    /// What runs at the receiving site.
    #[arg(last = true, required_unless_present = "print_map")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Set {
    /// A link of a star, from 1; of a mesh by its sites, as `a-b`, `a:b` for the direction from a
    /// to b alone, or `a` for all links of a; or `all`.
    pub link: String,
    /// rate=MBIT_PER_S, delay=MS, loss=PERCENT, queue=MS, silent or alive.
    #[arg(required = true)]
    pub changes: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Server {
    /// nginx, one process.
    Nginx,
    /// Apache httpd.
    Apache,
}

impl From<Server> for ServerKind {
    fn from(server: Server) -> Self {
        match server {
            Server::Nginx => ServerKind::Nginx,
            Server::Apache => ServerKind::Apache,
        }
    }
}

impl Links {
    pub fn spec(&self) -> StarSpec {
        StarSpec {
            queue: Queue::Time(Duration::from_millis(self.queue_ms)),
            loss: self.loss,
            seed: self.seed,
            congestion_control: self.cc.clone(),
            send_buffer_bytes: self.send_buffer,
            ..StarSpec::new(self.links.clone())
        }
    }

    pub fn schedule(&self) -> Result<Schedule, String> {
        let rates = self.spec().rates_bits_per_s();
        match self.script.as_deref() {
            None => Ok(Schedule::none()),
            Some("cut") => Ok(Schedule::cut(&rates, SCRIPT_EVENT)),
            Some("silent") => Ok(Schedule::silent(&rates, SCRIPT_EVENT)),
            Some("jump") => Ok(Schedule::jump(rates.len(), JUMP_EVERY, JUMP_LENGTH, self.seed)),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|e| format!("cannot read the script {path}: {e}"))?;
                Schedule::parse(&text).map_err(|e| format!("{path}: {e}"))
            }
        }
    }
}

impl Mesh {
    pub fn map(&self) -> Result<MapSpec, String> {
        if let Some(map) = MapSpec::named(&self.map) {
            return Ok(map);
        }
        let text = std::fs::read_to_string(&self.map)
            .map_err(|e| format!("cannot read the map {}: {e}", self.map))?;
        text.parse().map_err(|e| format!("{}: {e}", self.map))
    }

    pub fn spec(&self, map: &MapSpec) -> MeshSpec {
        let mut spec = MeshSpec::of(map);
        spec.seed = self.seed;
        spec.has_offload = self.offload;
        if let Some(queue_ms) = self.queue_ms {
            spec.set_queue(Queue::Time(Duration::from_millis(queue_ms)));
        }
        if let Some(loss) = self.loss {
            spec.set_loss(loss);
        }
        if let Some(name) = &self.cc {
            spec.set_congestion_control(name);
        }
        if let Some(window_bytes) = self.window {
            spec.limit_windows(window_bytes);
        }
        spec
    }

    pub fn schedule(&self, spec: &MeshSpec) -> Result<Schedule, String> {
        let Some(path) = &self.script else { return Ok(Schedule::none()) };
        let name = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|e| format!("cannot read the script {name}: {e}"))?;
        let schedule = Schedule::parse_with(&text, |word| spec.targets(word));
        schedule.map_err(|e| format!("{name}: {e}"))
    }
}

/// Reads `256K`, `4M` or plain bytes.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size, for example 256K");
    let (digits, shift) = match text.trim_end_matches('B').trim_end_matches('i') {
        t if t.ends_with(['k', 'K']) => (&t[..t.len() - 1], 10),
        t if t.ends_with(['m', 'M']) => (&t[..t.len() - 1], 20),
        t => (t, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// Reads `0.5%` or `0.5`, both per cent.
fn percentage(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a percentage from 0 to 100");
    let number: f64 = text.trim_end_matches('%').parse().map_err(|_| wrong())?;
    if (0.0..=100.0).contains(&number) { Ok(number / 100.0) } else { Err(wrong()) }
}

/// Checks the changes of `set` before they travel.
pub fn check_changes(changes: &[String]) -> Result<(), String> {
    match changes.iter().find(|change| Change::parse(change).is_none()) {
        Some(bad) => {
            Err(format!("'{bad}' is not a change (rate=, delay=, loss=, queue=, silent, alive)"))
        }
        None => Ok(()),
    }
}

/// Nothing was measured; as `env` and `timeout` use it.
pub const EXIT_NOT_STARTED: u8 = 125;

const SCRIPT_EVENT: Duration = Duration::from_secs(2);
const JUMP_EVERY: Duration = Duration::from_millis(500);

/// Jumps go on for longer than anybody measures.
const JUMP_LENGTH: Duration = Duration::from_secs(3600);
