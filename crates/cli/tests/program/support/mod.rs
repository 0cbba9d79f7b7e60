//! The real binary in a clean environment: a home and a working folder of its own, no proxies, no
//! tokens, a time limit. What tests of the program share; each uses what it needs of it.
#![allow(dead_code, missing_docs)]

pub mod clients;
pub mod depot;
pub mod libtorrent;
pub mod net;
pub mod nginx;
pub mod pty;
pub mod random;
pub mod relay;
pub mod seed;
pub mod serve;
pub mod small;
pub mod ssh;
pub mod torrent;
pub mod trees;
pub mod ways;
pub mod xattrs;
pub mod xrootd;

use std::ffi::OsStr;
use std::io::{Read, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Where the program is at home: a folder that is gone when dropped.
pub struct Home {
    dir: TempDir,
    /// Who runs the program, if not we.
    user: Option<u32>,
}

impl Home {
    pub fn new() -> Home {
        let dir = tempfile::Builder::new().prefix("swath-test-").tempdir().unwrap();
        let home = Home { dir, user: None };
        std::fs::create_dir(home.dir.path().join("home")).unwrap();
        std::fs::create_dir(home.dir.path().join("work")).unwrap();
        home
    }

    /// One whose program is run by somebody whom the system refuses things: by us, or by nobody
    /// where we are root. `None`, with a message, where that cannot be.
    pub fn of_nobody() -> Option<Home> {
        use std::os::unix::process::CommandExt as _;
        let mut home = Home::new();
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } == 0 {
            home.user = Some(NOBODY);
            let mut version = Command::new(env!("CARGO_BIN_EXE_swath"));
            let ran = version.arg("--version").uid(NOBODY).gid(NOBODY).output();
            if !ran.is_ok_and(|ran| ran.status.success()) {
                println!("skipped: nobody but root may run the program where it lies");
                return None;
            }
        }
        home.hand_over();
        Some(home)
    }

    /// All that is there belongs to whoever runs the program.
    pub fn hand_over(&self) {
        if let Some(user) = self.user {
            let mut chown = Command::new("chown");
            chown.arg("-hR").arg(format!("{user}:{user}")).arg(self.dir.path());
            assert!(chown.status().unwrap().success());
        }
    }

    /// `$HOME`.
    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// The working folder.
    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// A path in the working folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.work().join(name)
    }

    /// Write a file into the working folder.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name))
            .unwrap_or_else(|error| panic!("{name}: {error}; there is {:?}", self.names()))
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    /// Wait until so many bytes of a file have been written.
    pub fn wait_for_bytes(&self, name: &str, bytes: u64) {
        let written =
            || std::fs::File::open(self.path(name)).map_or(0, |file| written_bytes(&file));
        until(&format!("{bytes} bytes of {name} are there"), || written() >= bytes);
    }

    /// Names in the working folder, sorted.
    pub fn names(&self) -> Vec<String> {
        self.names_in("")
    }

    /// Names in a folder of it, sorted.
    pub fn names_in(&self, folder: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Bytes on the disk that everything below a folder of it takes.
    pub fn disk_bytes(&self, folder: &str) -> u64 {
        let count = Command::new("du").args(["-s", "-B1"]).arg(self.path(folder)).output().unwrap();
        let text = String::from_utf8(count.stdout).unwrap();
        text.split_whitespace().next().map_or(0, |bytes| bytes.parse().unwrap())
    }

    /// The program with these arguments, not yet started.
    pub fn swath<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Swath {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swath"));
        command
            .args(args)
            .env_clear()
            .env("HOME", self.home())
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .env("LC_ALL", "C.UTF-8")
            .current_dir(self.work())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        heed_hangups();
        Swath { command, input: None, limit: LIMIT }
    }

    /// Run to the end with these arguments.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        self.swath(args).run()
    }
}

/// Waits until something holds; fails where it does not for longer than a busy machine needs.
#[track_caller]
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LIMIT, "it never comes to that: {what}");
        std::thread::sleep(POLL);
    }
}

/// Lets programs that are started heed SIGHUP although the tests run under nohup, which ignores it:
/// `exec` resets a handled signal, but not an ignored one. (A `pre_exec` would do that too, but then
/// each start is a fork of the large test process, which cost a quarter of the time of all tests.)
fn heed_hangups() {
    extern "C" fn nothing(_: libc::c_int) {}
    static ONCE: std::sync::Once = std::sync::Once::new();
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: the handler does nothing.
    ONCE.call_once(|| unsafe {
        if libc::signal(libc::SIGHUP, handler as libc::sighandler_t) != libc::SIG_IGN {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
        }
    });
}

/// Runs `tried`, which depends on timing: again if it fails while the machine was too busy, because
/// then the pauses are the machine's. Fails if it fails on a machine with time to spare; on one that
/// is always busy, prints that the test was skipped.
pub fn on_time(tried: impl Fn() -> Result<(), String>) {
    let mut last = String::new();
    for _ in 0..5 {
        let (began, waited_before_us) = (Instant::now(), waited_us());
        let ended = tried();
        let waited_s = (waited_us() - waited_before_us) as f64 / 1e6;
        let waited_part = waited_s / began.elapsed().as_secs_f64();
        match ended {
            Ok(()) => return,
            Err(why) if waited_part < BUSY => panic!("{why}"),
            Err(why) => {
                last = format!("tasks waited {:.0} % of the time: {why}", 100.0 * waited_part)
            }
        }
    }
    println!("skipped: this machine is always busy: {last}");
}

/// Returns for how long at least one task of the machine has waited for a processor, in microseconds;
/// 0 if the kernel does not count it.
fn waited_us() -> u64 {
    let pressure = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let total = pressure.lines().next().and_then(|some| some.split("total=").nth(1));
    total.and_then(|total| total.trim().parse().ok()).unwrap_or(0)
}

/// A machine is too busy for timing if tasks waited for this part of the time.
const BUSY: f64 = 0.4;

/// What of a file has been written: space that is only reserved for it does not count.
fn written_bytes(file: &std::fs::File) -> u64 {
    let (mut at, mut bytes) = (0, 0);
    let seek = |from: i64, to| {
        // SAFETY: the descriptor is open as long as `file` is.
        u64::try_from(unsafe { libc::lseek(file.as_raw_fd(), from, to) }).ok()
    };
    while let Some(data) = seek(at, libc::SEEK_DATA) {
        let Some(hole) = seek(data as i64, libc::SEEK_HOLE) else { break };
        bytes += hole - data;
        at = hole as i64;
    }
    bytes
}

/// The program before it starts.
pub struct Swath {
    command: Command,
    input: Option<Vec<u8>>,
    limit: Duration,
}

impl Swath {
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Bytes for its standard input.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self.command.stdin(Stdio::piped());
        self
    }

    /// At most this long; the test fails otherwise.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// In a mount namespace of its own, where names lead where this file says. `None`, with a message,
    /// where that cannot be. The program has the process's id: each of those before it becomes the next.
    pub fn with_hosts(mut self, hosts: &Path) -> Option<Self> {
        const SCRIPT: &str = "mount --bind \"$HOSTS\" /etc/hosts && exec \"$0\" \"$@\"";
        let wrapped = |user: &[&str]| {
            let mut unshare = Command::new("unshare");
            unshare.args(user).args(["--mount", "sh", "-c", SCRIPT]).env("HOSTS", hosts);
            unshare
        };
        // Root needs no other rights, and may lack these; others may have them of their own.
        let users: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];
        let may = |user: &&[&str]| {
            let tried = wrapped(user).arg("true").output();
            tried.is_ok_and(|tried| tried.status.success())
        };
        let Some(user) = users.into_iter().find(may) else {
            println!("skipped: nobody may mount a file in a namespace of our own here");
            return None;
        };
        let mut command = wrapped(user);
        command.arg(self.command.get_program()).args(self.command.get_args()).env_clear();
        let given = self.command.get_envs();
        command.envs(given.filter_map(|(name, value)| Some((name, value?)))).env("HOSTS", hosts);
        if let Some(folder) = self.command.get_current_dir() {
            command.current_dir(folder);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command = command;
        Some(self)
    }

    /// For what this type does not offer.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Run to the end.
    pub fn run(self) -> Ran {
        self.start().wait()
    }

    /// Start it; its output is read as it comes.
    pub fn start(mut self) -> Running {
        let child = self.command.spawn().expect("the program starts");
        self.joined(child)
    }

    /// The program as it runs, which was started by hand; what is left of its output is read.
    pub fn joined(mut self, mut child: Child) -> Running {
        if let (Some(bytes), Some(mut stdin)) = (self.input.take(), child.stdin.take()) {
            std::thread::spawn(move || {
                let _ = stdin.write_all(&bytes);
            });
        }
        let stdout = child.stdout.take().map(reader);
        let stderr = child.stderr.take().map(reader);
        let words = format!("{:?}", self.command);
        Running { child, stdout, stderr, began: Instant::now(), limit: self.limit, words }
    }
}

fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

/// The most memory that a process has had so far, in bytes; `None` once it is gone.
pub fn peak_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? << 10)
}

/// The program while it runs. Killed when dropped.
pub struct Running {
    child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    began: Instant,
    limit: Duration,
    words: String,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Send a signal (`libc::SIGINT`, …).
    pub fn signal(&self, signal: i32) {
        let status =
            Command::new("kill").arg(format!("-{signal}")).arg(self.pid().to_string()).status();
        assert!(status.is_ok_and(|status| status.success()), "the signal was sent");
    }

    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Wait for its end, and watch its memory: the most that it had, in bytes.
    pub fn watch(mut self) -> (Ran, u64) {
        let mut peak_bytes = 0;
        while !self.is_over() && self.began.elapsed() < self.limit {
            peak_bytes = self::peak_bytes(self.pid()).unwrap_or(peak_bytes);
            std::thread::sleep(Duration::from_millis(20));
        }
        (self.wait(), peak_bytes)
    }

    /// Wait for its end, but not longer than its limit.
    pub fn wait(mut self) -> Ran {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.began.elapsed() > self.limit {
                let _ = self.child.kill();
                let ran = self.ran(ExitStatus::default());
                panic!("it did not end within {:?}:\n{ran}", self.limit);
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.ran(status)
    }

    fn ran(&mut self, status: ExitStatus) -> Ran {
        let collect = |reader: Option<JoinHandle<Vec<u8>>>| {
            reader.map(|reader| reader.join().unwrap()).unwrap_or_default()
        };
        let stdout = collect(self.stdout.take());
        let stderr = String::from_utf8_lossy(&collect(self.stderr.take())).into_owned();
        Ran {
            status,
            stdout,
            stderr,
            elapsed: self.began.elapsed(),
            words: std::mem::take(&mut self.words),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How it ended.
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub elapsed: Duration,
    words: String,
}

impl Ran {
    /// The exit code; a signal's number plus 128 if one ended it.
    pub fn code(&self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Everything it printed.
    pub fn all(&self) -> String {
        format!("{}{}", self.out(), self.stderr)
    }

    /// The exit code must be this one.
    #[track_caller]
    pub fn code_is(&self, code: i32) -> &Ran {
        assert_eq!(self.code(), code, "\n{self}");
        self
    }

    /// Standard error must hold all of these.
    #[track_caller]
    pub fn says(&self, words: &[&str]) -> &Ran {
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing:\n{self}");
        }
        self
    }

    /// Everything printed, on either stream, has all of this.
    #[track_caller]
    pub fn shows(&self, words: &[&str]) -> &Ran {
        let text = self.all();
        for word in words {
            assert!(text.contains(word), "{word:?} is missing:\n{self}");
        }
        self
    }

    /// Nothing printed may hold any of these.
    #[track_caller]
    pub fn never_says(&self, words: &[&str]) -> &Ran {
        for word in words {
            assert!(!self.all().contains(word), "{word:?} must not be there:\n{self}");
        }
        self
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}\nended with {} after {:?}\n--- stdout\n",
            self.words,
            self.code(),
            self.elapsed
        )?;
        let out = self.out();
        match out.char_indices().nth(4000) {
            Some((cut, _)) => writeln!(f, "{}… ({} bytes)", &out[..cut], self.stdout.len())?,
            None => f.write_str(&out)?,
        }
        write!(f, "--- stderr\n{}", self.stderr)
    }
}

/// Whom nothing belongs.
const NOBODY: u32 = 65534;
/// Short beside any step of a test.
const POLL: Duration = Duration::from_millis(5);
/// Long, because other work may keep the machine busy.
const LIMIT: Duration = Duration::from_secs(90);
