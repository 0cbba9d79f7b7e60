//! Runs one program and measures it: time, processor time, peak memory.
//!
//! The clock runs from just before the program is started until the kernel says that it ended.
//! The kernel's own accounting (`wait4`) gives the rest, for the program and what it waited for.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// What one run took.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// From start to end.
    pub elapsed: Duration,
    /// User and system time.
    pub cpu: Duration,
    /// Largest resident memory.
    pub peak_memory_bytes: u64,
    /// How it ended.
    pub ending: Ending,
}

impl Measured {
    /// Whether it was stopped at its limit.
    pub fn is_stopped(&self) -> bool {
        self.ending == Ending::TimeLimit
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It was killed because it took too long.
    TimeLimit,
}

/// Runs `command` to its end or to `limit`. `started` is called as soon as the program runs.
pub fn measure(
    command: &mut Command,
    limit: Duration,
    started: impl FnOnce(),
) -> io::Result<Measured> {
    // An own group, so that a program can be stopped together with its children.
    command.process_group(0);
    end_with_us(command);
    let begin = Instant::now();
    // Dropping the handle neither waits nor kills: the wait below is the only one.
    let child = command.spawn()?;
    started();
    finish(&child, begin, limit)
}

/// Has a program killed when the thread that starts it ends, however that happens: nobody stays
/// behind when a study is stopped.
pub fn end_with_us(command: &mut Command) {
    // SAFETY: prctl is async-signal-safe and concerns the child alone.
    unsafe {
        command.pre_exec(|| {
            match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}

/// Waits for a child that was started at `begin` in a process group of its own, to its end or
/// for `limit` from now, and tells what it took. Nobody else may wait for it.
pub fn finish(child: &Child, begin: Instant, limit: Duration) -> io::Result<Measured> {
    let process = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let in_time = wait_for_end(process, limit);
    if !matches!(in_time, Ok(true)) {
        // SAFETY: the child has not been waited for, so the group is still its own.
        unsafe { libc::kill(-process, libc::SIGKILL) };
    }
    let mut status = 0;
    // SAFETY: rusage is plain data; both pointers are to live, exclusive values.
    let (result, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(process, &mut status, 0, &mut usage), usage)
    };
    let elapsed = begin.elapsed();
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let ending = if !in_time? {
        Ending::TimeLimit
    } else if libc::WIFEXITED(status) {
        Ending::Code(libc::WEXITSTATUS(status))
    } else {
        Ending::Signal(libc::WTERMSIG(status))
    };
    Ok(Measured {
        elapsed,
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        // The kernel counts in KiB here.
        peak_memory_bytes: usage.ru_maxrss as u64 * 1024,
        ending,
    })
}

/// True when the process ended within the limit.
fn wait_for_end(process: libc::pid_t, limit: Duration) -> io::Result<bool> {
    // SAFETY: pidfd_open takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    let Ok(fd) = i32::try_from(fd) else { return Err(io::Error::other("no such descriptor")) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is fresh and owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live, exclusive entry.
        match unsafe { libc::poll(&mut polled, 1, left_ms) } {
            0 => return Ok(false),
            count if count > 0 => return Ok(true),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn endings_and_times_are_told() {
        let limit = Duration::from_secs(60);
        let measured = measure(&mut shell("sleep 0.2; exit 3"), limit, || ()).unwrap();
        assert_eq!(measured.ending, Ending::Code(3));
        assert!(measured.elapsed >= Duration::from_millis(200));
        assert!(measured.peak_memory_bytes > 0);
        let measured = measure(&mut shell("kill -9 $$"), limit, || ()).unwrap();
        assert_eq!(measured.ending, Ending::Signal(9));
    }

    #[test]
    fn a_run_without_end_is_stopped() {
        let measured = measure(&mut shell("sleep 600"), Duration::from_millis(100), || ()).unwrap();
        assert_eq!(measured.ending, Ending::TimeLimit);
        assert!(measured.elapsed < Duration::from_secs(300));
    }
}
