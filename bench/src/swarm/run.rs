//! One run: a fresh network, a tracker, the origin and the mirrors, then all sites at once.
//!
//! The clock runs from the start of the sites' programs until the last of them has everything. What
//! arrived is compared with the original afterwards.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use swath_netlab::access::{Access, AccessSpec};
use swath_netlab::star::{ServerKind, WebServer};
use swath_netlab::wan::{LabError, Namespace};

use super::{Case, Client, Origin, Place, Row, torrent};
use crate::check::empty;
use crate::data::same_content;
use crate::machine::busy_ticks;
use crate::measure::end_with_us;
use crate::serving::Spent;

/// Where a study keeps its files.
#[derive(Clone, Debug)]
pub struct Places {
    /// The `swath` program.
    pub swath: PathBuf,
    /// The folder that has the data and nothing else.
    pub served: PathBuf,
    /// A folder for everything that a run writes.
    pub target: PathBuf,
    /// What every link carried in each second is added to this file.
    pub trace: Option<PathBuf>,
}

/// What one run took.
#[derive(Clone, Debug, Default)]
pub struct SwarmRun {
    /// When each site had everything, in seconds.
    pub done_s: Vec<f64>,
    /// What the origin sent, in bytes on the wire.
    pub origin_bytes: u64,
    /// What the mirrors sent, in bytes on the wire.
    pub mirror_bytes: u64,
    /// Processor time of the emulator, in seconds.
    pub emulator_s: f64,
    /// Part of all processors that was busy.
    pub busy: f64,
    /// What the origin's program took, without its children.
    pub origin: Spent,
    /// What the sites' programs took: their time together, the memory of the largest.
    pub clients: Spent,
    /// Why the run does not count.
    pub failure: Option<String>,
    /// It was stopped at its limit.
    pub is_stopped: bool,
}

impl SwarmRun {
    /// Returns when the last site had everything, in seconds.
    pub fn last_s(&self) -> f64 {
        self.done_s.iter().copied().fold(0.0, f64::max)
    }
}

/// A program that runs. Killed when dropped.
struct Running(Child);

impl Running {
    fn spent(&self) -> Spent {
        Spent::so_far(self.0.id()).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(group) = libc::pid_t::try_from(self.0.id()) {
            // SAFETY: the child has not been waited for, or was alone in its group, which is its own.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ = self.0.wait();
    }
}

/// Runs a case once on `data`, the file in the served folder, for `limit` at most.
///
/// # Errors
/// When the laboratory does not work; a tool that fails is a run with a failure.
pub fn run_once(
    row: &Row,
    case: Case,
    limit: Duration,
    places: &Places,
    data: &Path,
) -> Result<SwarmRun, LabError> {
    empty(&places.target).map_err(system("empty the target folder"))?;
    let net = Net::start(row)?;
    let name = data.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let torrent = make_torrent(row, case, places, data, &net, &name)?;
    let tracker = net.start_tracker(places)?;
    let served = net
        .mirrors
        .iter()
        .map(|site| WebServer::start(ServerKind::Nginx, net.access.site(*site), &places.served));
    let mut servers = served.collect::<Result<Vec<_>, _>>()?;

    let place = |folder: &'static str| -> Result<PathBuf, LabError> {
        let own = places.target.join(folder);
        fs::create_dir(&own).map_err(system("make a folder"))?;
        Ok(own)
    };
    let own = place("origin")?;
    let origin_at = Place {
        swath: &places.swath,
        torrent: &torrent,
        folder: &places.served,
        own: &own,
        port: ORIGIN_PORT,
        name: &name,
        origin: net.access.address(net.origin),
    };
    let mut origin = None;
    let namespace = net.access.site(net.origin);
    match case.origin.command(&origin_at).map_err(system("prepare the origin"))? {
        Some(command) => origin = Some(start(command, namespace, &own)?),
        None => servers.push(WebServer::start(ServerKind::Nginx, namespace, &places.served)?),
    }
    net.wait_for_origin(case.origin)?;

    let mut folders = Vec::new();
    for site in 0..net.sites.len() {
        let own = places.target.join(format!("site{}", site + 1));
        for folder in ["own", "data"] {
            fs::create_dir_all(own.join(folder)).map_err(system("make a folder"))?;
        }
        folders.push((own.join("own"), own.join("data")));
    }
    let before = net.access.counters();
    let cpu_before = net.access.engine_cpu_time();
    let busy_before = busy_ticks();
    let began = Instant::now();
    let mut clients = Vec::new();
    for (site, (own, folder)) in net.sites.iter().zip(&folders) {
        let place = Place { folder, own, port: SITE_PORT, ..origin_at };
        let command = case.client.command(&place).map_err(system("prepare a site"))?;
        clients.push((start(command, net.access.site(*site), own)?, case.client.sign(&place)));
    }
    let mut run = SwarmRun { done_s: vec![0.0; clients.len()], ..SwarmRun::default() };
    let mut trace = Trace::new(places.trace.as_deref(), row, case, &net);
    loop {
        let elapsed = began.elapsed();
        let mut is_over = true;
        for ((running, sign), done_s) in clients.iter_mut().zip(&mut run.done_s) {
            if *done_s > 0.0 {
                continue;
            }
            let ended = running.0.try_wait().ok().flatten();
            let has_all = match &sign {
                Some(sign) => sign.exists(),
                None => ended.is_some_and(|status| status.success()),
            };
            match (has_all, ended) {
                (true, _) => *done_s = elapsed.as_secs_f64(),
                (false, Some(status)) => run.failure = Some(format!("it ended with {status}")),
                (false, None) => is_over = false,
            }
        }
        if elapsed > limit {
            run.failure = Some(format!("took more than {:.0} s", limit.as_secs_f64()));
            run.is_stopped = true;
        }
        trace.look(elapsed, &net);
        if is_over || run.failure.is_some() {
            break;
        }
        std::thread::sleep(POLL);
    }
    run.origin = origin.as_ref().map(Running::spent).unwrap_or_default();
    let spent = clients.iter().map(|(running, _)| running.spent());
    run.clients = spent.fold(Spent::default(), Spent::with);
    let after = net.access.counters();
    let sent = |site: usize| after[site].up.bytes - before[site].up.bytes;
    run.origin_bytes = sent(net.origin);
    run.mirror_bytes = net.mirrors.iter().map(|site| sent(*site)).sum();
    run.emulator_s = (net.access.engine_cpu_time() - cpu_before).as_secs_f64();
    let ticks = busy_ticks();
    run.busy = (ticks.0 - busy_before.0) / (ticks.1 - busy_before.1).max(1.0);
    drop((clients, origin, servers, tracker));
    if run.failure.is_none() {
        let is_wrong = |folder: &Path| !same_content(data, &folder.join(&name)).unwrap_or(false);
        if let Some(site) = folders.iter().position(|(_, folder)| is_wrong(folder)) {
            run.failure = Some(format!("the file of site {} is wrong", site + 1));
        }
    }
    if let Some(why) = &mut run.failure {
        let said = folders.iter().map(|(own, _)| own.join(SAID)).find_map(last_line);
        why.extend(said.map(|said| format!(": {said}")));
    }
    empty(&places.target).map_err(system("empty the target folder"))?;
    Ok(run)
}

/// The network and who is where.
struct Net {
    access: Access,
    tracker: usize,
    origin: usize,
    mirrors: Vec<usize>,
    sites: Vec<usize>,
}

impl Net {
    fn start(row: &Row) -> Result<Net, LabError> {
        let Some(origin) = row.origin else {
            let access = Access::start(&row.sites[..1])?;
            return Ok(Net { access, tracker: 0, origin: 0, mirrors: Vec::new(), sites: vec![0] });
        };
        let tracker = AccessSpec::new(1000, origin.one_way_delay);
        let mut links = vec![tracker, origin];
        links.extend(&row.mirrors);
        links.extend(&row.sites);
        let first_site = 2 + row.mirrors.len();
        Ok(Net {
            tracker: 0,
            origin: 1,
            mirrors: (2..first_site).collect(),
            sites: (first_site..links.len()).collect(),
            access: Access::start(&links)?,
        })
    }

    fn tracker_address(&self) -> SocketAddr {
        SocketAddr::from((self.access.address(self.tracker), TRACKER_PORT))
    }

    fn start_tracker(&self, places: &Places) -> Result<Running, LabError> {
        let own = places.target.join("tracker");
        fs::create_dir(&own).map_err(system("make a folder"))?;
        let mut command = Command::new(&places.swath);
        command.args(["track", "--listen", &format!("0.0.0.0:{TRACKER_PORT}")]);
        let running = start(command, self.access.site(self.tracker), &own)?;
        self.wait("the tracker", self.tracker, || {
            TcpStream::connect(self.tracker_address()).is_ok()
        })?;
        Ok(running)
    }

    /// Waits until the origin can be asked for the file.
    fn wait_for_origin(&self, origin: Origin) -> Result<(), LabError> {
        if origin.is_peer() {
            return self.wait("the origin", self.tracker, || {
                let text = stats(self.tracker_address()).unwrap_or_default();
                seeders(&text) > 0
            });
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
        self.wait("the origin", self.origin, || TcpStream::connect(address).is_ok())
    }

    fn wait(
        &self,
        what: &'static str,
        site: usize,
        is_ready: impl Fn() -> bool + Sync,
    ) -> Result<(), LabError> {
        let began = Instant::now();
        while !self.access.site(site).run(|| Ok(is_ready()))? {
            if began.elapsed() > START_LIMIT {
                let said = "it does not start".to_owned();
                return Err(LabError::ServerFailed { program: what, said });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

fn make_torrent(
    row: &Row,
    case: Case,
    places: &Places,
    data: &Path,
    net: &Net,
    name: &str,
) -> Result<PathBuf, LabError> {
    let is_v1 = case.origin != Origin::Swath || case.client != Client::Swath;
    let tracker = format!("http://{}/announce", net.tracker_address());
    let url = |site: &usize| format!("http://{}/{name}", net.access.address(*site));
    let mirrors: Vec<String> = net.mirrors.iter().map(url).collect();
    let mut command = torrent(&places.swath, data, is_v1, &tracker, &mirrors, &places.target);
    let output = command.output().map_err(system("make a torrent"))?;
    let path = places.target.join(format!("{name}-1.torrent"));
    if !path.is_file() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let said = format!("no torrent for '{}': {said}", row.name);
        return Err(LabError::ServerFailed { program: "swath publish", said });
    }
    Ok(path)
}

/// Starts a program in a namespace, with nothing of ours; what it says goes to `own`.
fn start(mut command: Command, namespace: &Namespace, own: &Path) -> Result<Running, LabError> {
    let log = File::create(own.join(SAID)).map_err(system("make a log"))?;
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", own).env("SWATH_STATE", "off").current_dir(own).process_group(0);
    command.stdin(Stdio::null()).stderr(log.try_clone().map_err(system("make a log"))?).stdout(log);
    end_with_us(&mut command);
    namespace.confine(&mut command);
    Ok(Running(command.spawn().map_err(system("start a program"))?))
}

/// Asks our tracker what it tracks.
fn stats(tracker: SocketAddr) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(tracker)?;
    connection.set_read_timeout(Some(Duration::from_secs(2)))?;
    write!(connection, "GET /stats.json HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    connection.read_to_string(&mut text)?;
    Ok(text)
}

/// Returns how many seeders the tracker knows of all torrents together.
fn seeders(stats: &str) -> u64 {
    let numbers = stats.split("\"seeders\":").skip(1).filter_map(|rest| {
        let rest = rest.trim_start();
        rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse::<u64>().ok()
    });
    numbers.sum()
}

fn last_line(path: PathBuf) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().lines().last()?.to_owned())
}

/// What the links carried in each second.
struct Trace {
    file: Option<File>,
    next: Duration,
    last: Vec<(u64, u64)>,
}

impl Trace {
    fn new(path: Option<&Path>, row: &Row, case: Case, net: &Net) -> Trace {
        let open = |path| File::options().append(true).create(true).open(path).ok();
        let mut file = path.and_then(open);
        if let Some(file) = &mut file {
            let _ = writeln!(
                file,
                "# {}: {}; Mbit/s up and down of origin, mirrors, sites",
                row.name, case.name
            );
        }
        Trace { file, next: Duration::from_secs(1), last: sums(net) }
    }

    fn look(&mut self, elapsed: Duration, net: &Net) {
        let Some(file) = &mut self.file else { return };
        if elapsed < self.next {
            return;
        }
        let now = sums(net);
        let mbit = |bytes: u64| bytes as f64 * 8e-6;
        let each = now.iter().zip(&self.last).skip(net.origin);
        let each: String = each
            .map(|(now, last)| {
                format!(" {:4.0}/{:<4.0}", mbit(now.0 - last.0), mbit(now.1 - last.1))
            })
            .collect();
        let _ = writeln!(file, "{:5.1}{each}", elapsed.as_secs_f64());
        self.last = now;
        self.next += Duration::from_secs(1);
    }
}

fn sums(net: &Net) -> Vec<(u64, u64)> {
    net.access.counters().iter().map(|link| (link.up.bytes, link.down.bytes)).collect()
}

fn system(doing: &str) -> impl FnOnce(std::io::Error) -> LabError {
    let doing = doing.to_owned();
    move |cause| LabError::System { doing, cause }
}

const SAID: &str = "said";
const TRACKER_PORT: u16 = 6969;
const ORIGIN_PORT: u16 = 6881;
/// Another one than the origin's, for rows on one machine.
const SITE_PORT: u16 = 6882;
const POLL: Duration = Duration::from_millis(10);
/// Checking the data takes most of it.
const START_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeders_are_counted() {
        assert_eq!(seeders("{\"torrents\":[{\"seeders\":1,\"leechers\":2},{\"seeders\": 3}]}"), 4);
        assert_eq!(seeders("{}"), 0);
    }

    #[test]
    fn the_last_site_counts() {
        let run = SwarmRun { done_s: vec![2.0, 5.5, 3.0], ..SwarmRun::default() };
        assert_eq!(run.last_s(), 5.5);
    }
}
