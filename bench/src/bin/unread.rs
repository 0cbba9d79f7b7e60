//! `bench/limits unread`: what an open server and an open tracker bear of clients that take no answer.
//!
//! For each kind of answer, connections ask for it and read nothing. Beside them another client, from
//! another address, asks for the same and reads it all. The table shows how long that takes with and without
//! the others, how many of them got an answer, and the most memory that the server had.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use swath_bench::machine::{Machine, beside_us};
use swath_bench::measure::end_with_us;
use tokio::net::TcpSocket;

/// Clients that take no answer.
#[derive(Debug, Parser)]
#[command(name = "unread", max_term_width = 100)]
struct Options {
    /// Connections that read nothing, for each kind of answer.
    #[arg(long, default_value_t = 100, value_name = "N")]
    connections: u32,
    /// Addresses that they come from.
    #[arg(long, default_value_t = 10, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..250))]
    addresses: u32,
    /// Files in the folder that is served, and torrents of the tracker.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    entries: u32,
    /// The swath program; the one built beside this program unless given.
    #[arg(long, env = "SWATH", value_name = "FILE")]
    swath: Option<PathBuf>,
    /// Where files are served from: a folder in memory.
    #[arg(long, default_value = "/dev/shm", value_name = "DIR")]
    scratch: PathBuf,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unread: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is asked for: a name, and the request without its last line.
const OF_SERVER: [(&str, &str); 5] = [
    ("page of a folder", "GET / HTTP/1.1\r\nAccept: text/html\r\n"),
    ("folder as JSON", "GET /?format=json HTTP/1.1\r\n"),
    ("PROPFIND", "PROPFIND / HTTP/1.1\r\nDepth: 1\r\nContent-Length: 0\r\n"),
    ("index of a dataset", "GET /?swath=index HTTP/1.1\r\n"),
    ("file", "GET /large HTTP/1.1\r\n"),
];
const OF_TRACKER: [(&str, &str); 2] = [
    ("stats of a tracker", "GET /stats.json HTTP/1.1\r\n"),
    ("page of a tracker", "GET / HTTP/1.1\r\n"),
];

fn measure(options: &Options) -> io::Result<()> {
    let swath = options.swath.clone().unwrap_or_else(|| beside_us("swath"));
    let scratch = tempfile::Builder::new().prefix("swath-bench-").tempdir_in(&options.scratch)?;
    let folder = scratch.path().join("served");
    fs::create_dir(&folder)?;
    for number in 0..options.entries {
        fs::write(folder.join(format!("measurement-{number:07}.h5")), "")?;
    }
    fs::File::create(folder.join("large"))?.set_len(256 << 20)?;
    println!("{}", Machine::here().line());
    println!(
        "{} connections from {} addresses that read nothing; {} files\n",
        options.connections, options.addresses, options.entries
    );
    println!("| answer | alone | beside them | answered of them | memory before | most memory |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for (name, request) in OF_SERVER {
        let mut command = Command::new(&swath);
        command.arg("serve").arg(&folder).args(["--anonymous", "--plain"]);
        row(options, command, scratch.path(), name, request, &[])?;
    }
    let announces: Vec<String> = (0..options.entries).map(announce).collect();
    for (name, request) in OF_TRACKER {
        let mut command = Command::new(&swath);
        command.arg("track");
        row(options, command, scratch.path(), name, request, &announces)?;
    }
    Ok(())
}

fn row(
    options: &Options,
    command: Command,
    home: &Path,
    name: &str,
    request: &str,
    before: &[String],
) -> io::Result<()> {
    let server = Server::start(command, home)?;
    let honest = [127, 0, 1, 1];
    for path in before {
        server.fetch(honest, &format!("GET {path} HTTP/1.1\r\n"))?;
    }
    // The first answer may be made anew; the second one shows what it costs.
    server.fetch(honest, request)?;
    let alone = server.fetch(honest, request)?.0;
    let memory_before = server.memory("VmRSS:")?;
    let mut silent = Vec::new();
    for number in 0..options.connections {
        let address = [127, 0, 2, 1 + (number % options.addresses) as u8];
        let mut stream = server.connect(address)?;
        stream.write_all(format!("{request}Host: localhost\r\n\r\n").as_bytes())?;
        silent.push(stream);
    }
    // Until the server has read what there is to read.
    std::thread::sleep(Duration::from_secs(5));
    let beside = server.fetch(honest, request);
    let most = server.memory("VmHWM:")?;
    let mut answered = 0;
    for stream in &mut silent {
        let mut start = [0; 12];
        stream.set_read_timeout(Some(Duration::from_millis(100)))?;
        answered += u32::from(stream.read_exact(&mut start).is_ok() && start.ends_with(b"200"));
        answered += u32::from(start.ends_with(b"207"));
    }
    let beside = match beside {
        Ok((took, 200 | 207)) => format!("{:.2} s", took.as_secs_f64()),
        Ok((_, status)) => format!("answer {status}"),
        Err(error) => error.to_string(),
    };
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "| {name} | {:.2} s | {beside} | {answered} | {} MiB | {} MiB |",
        alone.as_secs_f64(),
        mib(memory_before),
        mib(most)
    );
    Ok(())
}

fn announce(number: u32) -> String {
    let hash: String =
        (0..20).map(|at| format!("%{:02x}", (number >> (at % 4 * 8)) as u8)).collect();
    format!(
        "/announce?info_hash={hash}&peer_id=-BN0001-{number:012}&port=6881&uploaded=0&downloaded=0&left=0&compact=1"
    )
}

/// A server that listens. Killed when dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(mut command: Command, home: &Path) -> io::Result<Server> {
        command.args(["--listen", "127.0.0.1:0"]).env("HOME", home).env("SWATH_CONFIG", "off");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        end_with_us(&mut command);
        let mut child = command.spawn()?;
        let said = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut lines = BufReader::new(said).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let at = line.find("http://127.0.0.1:")? + "http://".len();
            let address: String = line[at..]
                .chars()
                .take_while(|c| c.is_ascii_digit() || ".:".contains(*c))
                .collect();
            address.trim_end_matches([':', '.']).parse().ok()
        });
        // What it says later must not hold it up.
        std::thread::spawn(move || lines.for_each(drop));
        let address = address.ok_or_else(|| io::Error::other("the server did not start"))?;
        Ok(Server { child, address })
    }

    fn connect(&self, from: [u8; 4]) -> io::Result<TcpStream> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let stream = runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from((from, 0)))?;
            socket.connect(self.address).await?.into_std()
        })?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    /// Fetches an answer; returns how long that took, and its status.
    fn fetch(&self, from: [u8; 4], request: &str) -> io::Result<(Duration, u16)> {
        let begin = Instant::now();
        let mut stream = self.connect(from)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let request = format!("{request}Host: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut start = [0; 12];
        stream.read_exact(&mut start)?;
        io::copy(&mut stream, &mut io::sink())?;
        let status = std::str::from_utf8(&start[9..]).ok().and_then(|it| it.parse().ok());
        Ok((begin.elapsed(), status.unwrap_or_default()))
    }

    fn memory(&self, what: &str) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(what));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.map(|kib| kib << 10)
            .ok_or_else(|| io::Error::other("/proc shows no memory of the server"))
    }
}
