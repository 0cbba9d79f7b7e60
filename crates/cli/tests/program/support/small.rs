//! Disks with little room.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A small file system of its own, gone when dropped.
pub struct Small(PathBuf);

impl Small {
    /// `None`, with a message, where mounting is not allowed.
    pub fn mount(at: &Path, bytes: u64) -> Option<Small> {
        fs::create_dir_all(at).unwrap();
        let size = format!("size={bytes}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(at)
            .stderr(Stdio::null())
            .status();
        // SAFETY: no preconditions.
        let is_root = unsafe { libc::geteuid() == 0 };
        if is_root && mounted.is_ok_and(|status| status.success()) {
            return Some(Small(at.to_owned()));
        }
        eprintln!("skipped: only root can mount a small disk");
        None
    }

    /// Nothing is written to it any more.
    pub fn read_only(&self) {
        let done = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
