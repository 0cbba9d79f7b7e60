//! A network namespace that is held by a descriptor and by nothing else.
//!
//! Entering a namespace changes one thread only, so work inside one runs on a short-lived
//! thread ([`Namespace::run`]) or in a child process ([`Namespace::confine`]). When the last
//! descriptor and the last process inside are gone, the kernel removes the namespace and every
//! device in it: there is no leftover to clean up after a crash.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::LabError;
use super::tun::{add_loopback_address, bring_up};

/// One network namespace with its loopback device up.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    handle: OwnedFd,
}

impl Namespace {
    /// Makes a new, empty namespace; `name` is for messages only.
    pub fn new(name: impl Into<String>) -> Result<Self, LabError> {
        let name = name.into();
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return Err(LabError::NeedsRoot);
        }
        let handle = on_new_thread(|| -> Result<OwnedFd, LabError> {
            // SAFETY: unshare affects only the calling thread, which ends with this closure.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(LabError::last_os("make a network namespace"));
            }
            bring_up("lo")?;
            let own = File::open("/proc/thread-self/ns/net")
                .map_err(|e| LabError::system("open the new network namespace", e))?;
            Ok(own.into())
        })?;
        Ok(Self { name, handle })
    }

    /// Returns the name given at creation.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a path through which `nsenter --net=PATH` reaches the namespace while this process lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.handle.as_raw_fd())
    }

    /// Runs `work` on a thread inside the namespace and hands back its result.
    pub fn run<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, LabError> + Send,
    ) -> Result<T, LabError> {
        let handle = self.handle.as_raw_fd();
        on_new_thread(move || {
            enter(handle).map_err(|e| LabError::system("enter a network namespace", e))?;
            work()
        })
    }

    /// Makes `command` start inside the namespace, with no signal blocked.
    ///
    /// The handle must still be open when the command is spawned, which the borrow checker
    /// cannot see: keep the namespace until then.
    pub fn confine(&self, command: &mut Command) {
        let handle = self.handle.as_raw_fd();
        // SAFETY: between fork and exec only async-signal-safe calls are made: setns,
        // sigemptyset and sigprocmask.
        unsafe {
            command.pre_exec(move || {
                enter(handle)?;
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut none);
                libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
                Ok(())
            });
        }
    }

    /// Gives the namespace an address of its own, which it has whatever becomes of its devices.
    pub fn add_address(&self, address: Ipv4Addr) -> Result<(), LabError> {
        self.run(|| add_loopback_address(address))
    }

    /// Makes connections that begin or end here use this congestion control. A kernel refuses
    /// one that its administrator has not allowed for everybody; a route may still ask for it,
    /// and the machine stays as it is: so it is asked for on each of `routes`, which the
    /// namespace must have.
    pub fn set_congestion_control(&self, name: &str, routes: &[OwnRoute]) -> Result<(), LabError> {
        let refused = match self.set_parameter("net.ipv4.tcp_congestion_control", name) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        for route in routes {
            let mut command = Command::new("ip");
            command.args(["route", "replace", &route.to, "dev", &route.device, "scope", "link"]);
            command.args(["src", &route.source.to_string(), "congctl", name]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            self.confine(&mut command);
            if !command.status().is_ok_and(|status| status.success()) {
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Sets the largest buffers of a connection that begins or ends here: what it may have under
    /// way, and what it may receive before somebody reads it. `None` leaves the machine's own.
    pub fn limit_buffers(&self, send: Option<u64>, receive: Option<u64>) -> Result<(), LabError> {
        let limits = [("net.ipv4.tcp_wmem", send), ("net.ipv4.tcp_rmem", receive)];
        for (key, bytes) in limits {
            if let Some(bytes) = bytes {
                self.set_parameter(key, &format!("4096 {} {bytes}", bytes.min(65_536)))?;
            }
        }
        Ok(())
    }

    /// Sets a network parameter of this namespace; `key` as for sysctl, for example
    /// `net.ipv4.tcp_congestion_control`.
    pub fn set_parameter(&self, key: &str, value: &str) -> Result<(), LabError> {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        self.run(|| {
            fs::write(&path, value)
                .map_err(|e| LabError::system(format!("set {key} to '{value}'"), e))
        })
    }
}

/// A route through one device of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRoute {
    /// The addresses it leads to, as `ADDRESS/BITS`.
    pub to: String,
    /// The device.
    pub device: String,
    /// The address that goes out with it.
    pub source: Ipv4Addr,
}

/// Runs `work` on its own thread; a panic there continues here.
fn on_new_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn enter(handle: libc::c_int) -> io::Result<()> {
    // SAFETY: setns takes a descriptor by value and changes only the calling thread.
    if unsafe { libc::setns(handle, libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
