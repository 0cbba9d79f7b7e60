//! Runs the user's command in the middle of a laboratory and takes it down afterwards.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use swath_netlab::mesh::Mesh;
use swath_netlab::star::{Lab, ServerKind, WebServer};
use swath_netlab::wan::{Namespace, Schedule};

use crate::control::Control;
use crate::options::{self, EXIT_NOT_STARTED, Links, Star, Wan};
use crate::room::Room;

/// `netlab star`: the exit code is that of the command.
pub fn star(options: &Star) -> Result<u8, String> {
    let (lab, signals) = build(&options.links)?;
    let mut servers = Vec::new();
    for namespace in lab.servers() {
        let server = WebServer::start(options.server.into(), namespace, &options.serve)
            .map_err(|e| e.to_string())?;
        servers.push(server);
    }
    let urls: Vec<String> = (0..servers.len())
        .map(|link| format!("http://{}/{}", lab.server_address(link), options.file))
        .collect();
    let mut environment = vec![("URLS".to_owned(), urls.join(" "))];
    for (position, url) in urls.iter().enumerate() {
        environment.push((format!("URL{}", position + 1), url.clone()));
    }
    let session = Session {
        room: &lab,
        namespace: lab.client(),
        schedule: options.links.schedule()?,
        stats: options.links.stats,
    };
    session.run(&signals, &options.command, environment)
}

/// `netlab wan`: the exit code is that of the command.
pub fn wan(options: &Wan) -> Result<u8, String> {
    let (lab, signals) = build(&options.links)?;
    let mut environment = Vec::new();
    for (position, namespace) in lab.servers().iter().enumerate() {
        let address = lab.server_address(position).to_string();
        environment.push((format!("SERVER{}", position + 1), address));
        environment.push((format!("NETNS{}", position + 1), namespace.path()));
    }
    let session = Session {
        room: &lab,
        namespace: lab.client(),
        schedule: options.links.schedule()?,
        stats: options.links.stats,
    };
    session.run(&signals, &options.command, environment)
}

/// `netlab mesh`: the exit code is that of the command.
pub fn mesh(options: &options::Mesh) -> Result<u8, String> {
    let map = options.map()?;
    if options.print_map {
        print!("{map}");
        return Ok(0);
    }
    let signals = Signals::block();
    let mesh = Mesh::start(options.spec(&map)).map_err(|e| e.to_string())?;
    let mut environment = mesh.environment();
    let mut servers = Vec::new();
    if let Some(folder) = &options.serve {
        let namespace = mesh.site(map.source);
        let server = WebServer::start(ServerKind::Nginx, namespace, folder);
        servers.push(server.map_err(|e| e.to_string())?);
        let url = format!("http://{}/{}", mesh.address(map.source), options.file);
        environment.push(("URL".to_owned(), url));
    }
    let session = Session {
        room: &mesh,
        namespace: mesh.site(map.here),
        schedule: options.schedule(mesh.spec())?,
        stats: options.stats,
    };
    session.run(&signals, &options.command, environment)
}

fn build(links: &Links) -> Result<(Lab, Signals), String> {
    // Before any thread exists, so that all of them inherit the mask.
    let signals = Signals::block();
    let lab = Lab::star(&links.spec()).map_err(|e| e.to_string())?;
    Ok((lab, signals))
}

/// A laboratory in which a command runs.
struct Session<'a> {
    room: &'a dyn Room,
    /// Where the command runs.
    namespace: &'a Namespace,
    /// What changes while it runs.
    schedule: Schedule,
    /// Whether to print what the links carried.
    stats: bool,
}

impl Session<'_> {
    fn run(
        &self,
        signals: &Signals,
        command: &[OsString],
        environment: Vec<(String, String)>,
    ) -> Result<u8, String> {
        let control = Control::open()?;
        let (program, arguments) = command.split_first().ok_or("no command given")?;
        let mut command = Command::new(program);
        command.args(arguments).envs(environment).env(Control::VARIABLE, control.path());
        self.namespace.confine(&mut command);
        // SAFETY: prctl is async-signal-safe and concerns the child alone.
        unsafe {
            command.pre_exec(|| {
                // Without its laboratory the command would measure nothing.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong);
                Ok(())
            });
        }
        let code = std::thread::scope(|scope| {
            let listener = scope.spawn(|| control.serve(self.room));
            let code = match command.spawn() {
                Ok(mut child) => {
                    self.room.play(&self.schedule);
                    signals.see_through(&mut child)
                }
                Err(e) => Err(format!("cannot run {}: {e}", program.to_string_lossy())),
            };
            control.close();
            let _ = listener.join();
            code
        });
        if self.stats {
            print_counters(self.room);
        }
        code
    }
}

fn print_counters(room: &dyn Room) {
    let counters = room.counters();
    let names = counters.iter().flat_map(|(names, _)| names);
    let width = names.map(|name| name.chars().count()).max().unwrap_or(0).max("link".len());
    eprintln!("{:<width$}      packets           bytes     lost  dropped", "link");
    for ([down, up], counters) in &counters {
        for (name, pipe) in [(down, counters.down), (up, counters.up)] {
            eprintln!(
                "{name:<width$}  {:>11} {:>15} {:>8} {:>8}",
                pipe.packets, pipe.bytes, pipe.lost, pipe.dropped
            );
        }
    }
    eprintln!("emulator: {:.2} s of processor time", room.engine_cpu_time().as_secs_f64());
}

/// Signals that end the program are taken here, so that the laboratory is always taken down.
struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    fn block() -> Self {
        // SAFETY: sigset_t is plain data that sigemptyset initialises; the mask is the calling
        // thread's own and inherited by threads made later.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Self { set }
        }
    }

    /// Waits for the child, passing on signals; kills it when it ignores them for too long.
    fn see_through(&self, child: &mut Child) -> Result<u8, String> {
        let process = libc::pid_t::try_from(child.id()).map_err(|e| e.to_string())?;
        let mut kill_at: Option<Instant> = None;
        loop {
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                let code = status.code().or(status.signal().map(|signal| 128 + signal));
                return Ok(code.and_then(|c| u8::try_from(c).ok()).unwrap_or(EXIT_NOT_STARTED));
            }
            if let Some((signal, from_terminal)) = self.next(POLL) {
                // A terminal signals the command by itself.
                if signal != libc::SIGCHLD && !from_terminal {
                    // SAFETY: the child has not been waited for, so its id is still its own.
                    unsafe { libc::kill(process, signal) };
                }
                if signal != libc::SIGCHLD {
                    kill_at.get_or_insert(Instant::now() + PATIENCE);
                }
            }
            if kill_at.is_some_and(|at| Instant::now() > at) {
                // SAFETY: as above.
                unsafe { libc::kill(process, libc::SIGKILL) };
            }
        }
    }

    /// Returns the next signal, and whether the kernel (a terminal) sent it.
    fn next(&self, limit: Duration) -> Option<(libc::c_int, bool)> {
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(limit.subsec_nanos() as i32),
        };
        // SAFETY: all three pointers are to live values; siginfo_t is plain data.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let signal = libc::sigtimedwait(&self.set, &mut info, &limit);
            (signal > 0).then_some((signal, info.si_code == libc::SI_KERNEL))
        }
    }
}

/// SIGCHLD ends the wait at once; this only bounds a lost one.
const POLL: Duration = Duration::from_millis(500);

/// Between a request to stop and a kill.
const PATIENCE: Duration = Duration::from_secs(10);
