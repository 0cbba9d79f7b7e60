//! The control socket: `netlab set` inside a running laboratory talks to the one outside.
//!
//! One datagram holds one order, `LINK CHANGE…`, and brings an answer: nothing, or what is wrong
//! with it. The sockets are in folders that only root can enter; the path of the laboratory's
//! travels in the environment.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use swath_netlab::star::scratch_folder;
use swath_netlab::wan::Change;
use tempfile::TempDir;

use crate::options::{Set, check_changes};
use crate::room::Room;

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
    pub fn serve(&self, room: &dyn Room) {
        let mut order = [0; 4096];
        while !self.closed.load(Ordering::Relaxed) {
            let Ok((length, from)) = self.socket.recv_from(&mut order) else { continue };
            let wrong = match std::str::from_utf8(&order[..length]) {
                Ok(text) => carry_out(room, text).err().unwrap_or_default(),
                Err(_) => "not text".to_owned(),
            };
            if let Some(path) = from.as_pathname() {
                // Who has gone away meanwhile does not wait for it.
                let _ = self.socket.send_to(wrong.as_bytes(), path);
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
        format!("{} is not set: run this inside `netlab star`, `wan` or `mesh`", Control::VARIABLE)
    })?;
    check_changes(&set.changes)?;
    let order = format!("{} {}", set.link, set.changes.join(" "));
    let failed = |e| format!("cannot reach the laboratory: {e}");
    let folder = scratch_folder().map_err(failed)?;
    let socket = UnixDatagram::bind(folder.path().join("answer")).map_err(failed)?;
    socket.set_read_timeout(Some(ANSWER_LIMIT)).map_err(failed)?;
    socket.send_to(order.as_bytes(), path).map_err(failed)?;
    let mut answer = [0; 4096];
    let length = socket.recv(&mut answer).map_err(failed)?;
    match String::from_utf8_lossy(&answer[..length]) {
        nothing if nothing.is_empty() => Ok(()),
        wrong => Err(wrong.into_owned()),
    }
}

fn carry_out(room: &dyn Room, order: &str) -> Result<(), String> {
    let mut words = order.split_whitespace();
    let word = words.next().unwrap_or_default();
    let targets = room.targets(word).ok_or_else(|| format!("there is no link '{word}'"))?;
    for change in words.filter_map(Change::parse) {
        for &target in &targets {
            room.change(target, change);
        }
    }
    Ok(())
}

/// How long the end of the laboratory may wait for this thread.
const LOOK_UP: Duration = Duration::from_millis(100);

/// The laboratory answers at once; one that is being taken down does not.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
