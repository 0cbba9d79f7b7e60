//! The control socket: `netlab set` inside a running laboratory talks to the one outside.
//!
//! One datagram holds one order, `LINK CHANGE…`. The socket is in a folder that only root can
//! enter, and its path travels in the environment.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use swath_netlab::star::{Lab, scratch_folder};
use swath_netlab::wan::Change;
use tempfile::TempDir;

use crate::options::{Set, check_changes};

/// The listening side.
pub struct Control {
    socket: UnixDatagram,
    path: PathBuf,
    closed: AtomicBool,
    _folder: TempDir,
}

impl Control {
    /// Names the socket in the environment of the command.
    pub const VARIABLE: &str = "NETLAB_CONTROL";

    pub fn open() -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("cannot open the control socket: {e}");
        let folder = scratch_folder().map_err(failed)?;
        let path = folder.path().join("control");
        let socket = UnixDatagram::bind(&path).map_err(failed)?;
        socket.set_read_timeout(Some(LOOK_UP)).map_err(failed)?;
        Ok(Self { socket, path, closed: AtomicBool::new(false), _folder: folder })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Carries out orders until [`close`](Self::close).
    pub fn serve(&self, lab: &Lab) {
        let mut order = [0; 4096];
        while !self.closed.load(Ordering::Relaxed) {
            let Ok(length) = self.socket.recv(&mut order) else { continue };
            if let Ok(text) = std::str::from_utf8(&order[..length]) {
                carry_out(lab, text);
            }
        }
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

/// `netlab set`.
pub fn send(set: &Set) -> Result<(), String> {
    let path = std::env::var_os(Control::VARIABLE).ok_or_else(|| {
        format!("{} is not set: run this inside `netlab star`", Control::VARIABLE)
    })?;
    if set.link != "all" && !set.link.parse().is_ok_and(|link: usize| link > 0) {
        return Err(format!("'{}' is not a link: use 1, 2, … or all", set.link));
    }
    check_changes(&set.changes)?;
    let order = format!("{} {}", set.link, set.changes.join(" "));
    let failed = |e| format!("cannot reach the laboratory: {e}");
    let socket = UnixDatagram::unbound().map_err(failed)?;
    socket.send_to(order.as_bytes(), path).map_err(failed)?;
    Ok(())
}

fn carry_out(lab: &Lab, order: &str) {
    let mut words = order.split_whitespace();
    let links = match words.next() {
        Some("all") => 0..lab.servers().len(),
        Some(word) => match word.parse::<usize>() {
            Ok(link) if link > 0 => link - 1..link,
            _ => return,
        },
        None => return,
    };
    for change in words.filter_map(Change::parse) {
        for link in links.clone() {
            lab.change(link, change);
        }
    }
}

/// How long the end of the laboratory may wait for this thread.
const LOOK_UP: Duration = Duration::from_millis(100);
