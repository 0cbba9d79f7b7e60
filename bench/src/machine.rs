//! What the measurements were made on, and when.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The machine and the moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// UTC, as in RFC 3339.
    pub date: String,
    /// Model name of the processor.
    pub processor: String,
    /// Processors that this program may use.
    pub processors: usize,
    /// Main memory.
    pub memory_bytes: u64,
    /// Kernel and its release.
    pub kernel: String,
    /// Load of the last minute when the study began; other work disturbs a measurement.
    pub load: f64,
}

impl Machine {
    /// Describes this machine now; what the system does not tell is "unknown" or zero.
    pub fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let processor = field(&read("/proc/cpuinfo"), "model name");
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
        let release = read("/proc/sys/kernel/osrelease");
        let load = read("/proc/loadavg").split_whitespace().next().and_then(|l| l.parse().ok());
        Self {
            date: utc(SystemTime::now()),
            processor: processor.unwrap_or_else(|| "unknown".to_owned()),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory_kib.unwrap_or(0) * 1024,
            kernel: format!("Linux {}", release.trim()),
            load: load.unwrap_or(0.0),
        }
    }

    /// One line for tables and pictures.
    pub fn line(&self) -> String {
        let memory_gib = self.memory_bytes as f64 / f64::from(1 << 30);
        format!(
            "{} · {} × {} · {memory_gib:.0} GiB · {} · load {:.1} at the start",
            self.date, self.processors, self.processor, self.kernel, self.load
        )
    }
}

/// What took part in a study, with versions.
pub fn versions(swath: &Path) -> Vec<(String, String)> {
    let programs = [
        ("swath", Some(swath.to_owned()).filter(|path| path.is_file()), "--version"),
        ("aria2", find_program("aria2c"), "--version"),
        ("curl", find_program("curl"), "--version"),
        ("nginx", find_program("nginx"), "-v"),
        ("rsync", find_program("rsync"), "--version"),
    ];
    programs.into_iter().map(|(name, path, argument)| version(name, path, argument)).collect()
}

/// Returns the name of a program with what it says of its version when called with `argument`.
pub fn version(name: &str, path: Option<PathBuf>, argument: &str) -> (String, String) {
    let version = path.map_or("not installed".to_owned(), |path| version_of(&path, argument));
    (name.to_owned(), version)
}

/// A program built together with this one.
pub fn beside_us(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.with_file_name(name)
}

/// The first line that a program prints about its version.
fn version_of(program: &Path, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let Ok(output) = output else { return "unknown".to_owned() };
    let said = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&said);
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

/// A program in the search path (or the path itself when it has a slash).
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into()).filter(|path: &PathBuf| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into()]);
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Returns busy and all time of the processors so far, in ticks.
pub fn busy_ticks() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> =
        line.split_whitespace().skip(1).take(8).filter_map(|it| it.parse().ok()).collect();
    let all: f64 = ticks.iter().sum();
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    (all - idle, all)
}

/// Returns the bytes that a folder's file system has free, and not more than free memory where it lies
/// in memory.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: statfs is plain data, filled by a call with a path that ends with zero.
    let (result, about) = unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        (libc::statfs(path.as_ptr(), &mut about), about)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let free_bytes = about.f_bavail * about.f_bsize as u64;
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let available_kib =
        available.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok());
    Ok(match available_kib {
        Some(kib) if about.f_type == libc::TMPFS_MAGIC => free_bytes.min(kib * 1024),
        _ => free_bytes,
    })
}

/// Calls `end` on a thread of its own when SIGINT or SIGTERM comes. To be called before other threads
/// start: they inherit that these signals wait for that thread.
pub fn on_termination(end: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // SAFETY: the set is plain data; only the calling thread's mask changes.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigaddset(&mut set, libc::SIGTERM);
        if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        set
    };
    std::thread::Builder::new().spawn(move || {
        let mut signal = 0;
        // SAFETY: both pointers are to live values.
        if unsafe { libc::sigwait(&set, &mut signal) } == 0 {
            end();
        }
    })?;
    Ok(())
}

/// Date and time of the Gregorian calendar, by counting days from a first of March.
fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let days = since / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (since / 3600 % 24, since / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |s| utc(UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0), "1970-01-01T00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59Z");
        assert_eq!(at(1_735_689_600), "2025-01-01T00:00Z");
    }
}
