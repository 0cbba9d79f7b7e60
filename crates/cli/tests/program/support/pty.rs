//! The program on a terminal of its own.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Swath;

/// A program with a terminal for all that it reads and writes. Killed when dropped.
pub struct OnTerminal {
    child: Child,
    terminal: File,
    seen: Arc<Mutex<Vec<u8>>>,
    reads: JoinHandle<()>,
}

impl OnTerminal {
    /// Start it.
    pub fn start(swath: Swath) -> OnTerminal {
        OnTerminal::start_as(swath, "xterm")
    }

    /// Start it on a terminal of this kind.
    pub fn start_as(mut swath: Swath, term: &str) -> OnTerminal {
        let (mut ours, mut theirs) = (-1, -1);
        let size = libc::winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        let null = std::ptr::null_mut();
        // SAFETY: the call writes two descriptors into variables of ours, and reads the size.
        let opened = unsafe {
            libc::openpty(&raw mut ours, &raw mut theirs, null, null.cast(), &raw const size)
        };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: both are new, open, and nobody else's.
        let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        let copy = || Stdio::from(theirs.try_clone().unwrap());
        let command = swath.command();
        command.stdin(copy()).stdout(copy()).stderr(copy()).env("TERM", term);
        let leads = || {
            // SAFETY: plain system calls between the fork and the program.
            unsafe {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
            }
            Ok(())
        };
        // SAFETY: nothing but system calls between the fork and the program.
        unsafe { command.pre_exec(leads) };
        let child = command.spawn().expect("it starts");
        // The command keeps copies of the terminal's end, without which it never ends.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        drop(theirs);
        let terminal = File::from(ours);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut output, sees) = (terminal.try_clone().unwrap(), Arc::clone(&seen));
        let reads = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(bytes @ 1..) = output.read(&mut part) {
                sees.lock().unwrap().extend_from_slice(&part[..bytes]);
            }
        });
        OnTerminal { child, terminal, seen, reads }
    }

    /// All that the terminal has shown, control sequences and all.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).replace("\r\n", "\n")
    }

    /// Wait until these words have been shown.
    pub fn wait_for(&self, words: &str) -> String {
        let begun = Instant::now();
        while !self.text().contains(words) {
            assert!(begun.elapsed() < LIMIT, "no {words:?} in {}", self.text());
            std::thread::sleep(POLL);
        }
        self.text()
    }

    /// Type this.
    pub fn types(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    /// Wait for its end: the exit code, and all that was shown.
    pub fn wait(mut self) -> (i32, String) {
        let begun = Instant::now();
        loop {
            // What is still on its way has come once nobody has the terminal open any more.
            let is_read = self.reads.is_finished();
            if let Some(status) = self.child.try_wait().unwrap().filter(|_| is_read) {
                let code = status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
                return (code, self.text());
            }
            assert!(begun.elapsed() < LIMIT, "it does not end: {}", self.text());
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Short beside any step of a test.
const POLL: Duration = Duration::from_millis(10);
/// Long, because other work may keep the machine busy.
const LIMIT: Duration = Duration::from_secs(90);
