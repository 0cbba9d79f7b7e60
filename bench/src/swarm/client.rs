//! The programs that take part: how each one seeds and how each one fetches.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::find_program;

/// What has the file at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `swath seed`.
    Swath,
    /// libtorrent, by Python.
    Libtorrent,
    /// aria2c.
    Aria2,
    /// transmission-cli.
    Transmission,
    /// `swath serve`, by HTTP.
    SwathServe,
    /// nginx; the run starts it.
    Nginx,
}

/// What fetches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// `swath get` of the torrent.
    Swath,
    /// `swath get` of a URL.
    SwathByHttp,
    /// libtorrent, by Python.
    Libtorrent,
    /// aria2c.
    Aria2,
    /// transmission-cli.
    Transmission,
    /// curl, one connection.
    Curl,
}

/// Where a program runs and what it works on.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The `swath` program.
    pub swath: &'a Path,
    /// The torrent.
    pub torrent: &'a Path,
    /// The folder that has the data, or shall have it.
    pub folder: &'a Path,
    /// An empty folder for whatever the program keeps.
    pub own: &'a Path,
    /// The port for peers.
    pub port: u16,
    /// The data's name.
    pub name: &'a str,
    /// Where the origin is.
    pub origin: Ipv4Addr,
}

impl Origin {
    /// Returns the program's command line; `None` for what the run starts itself.
    pub fn command(self, place: &Place) -> io::Result<Option<Command>> {
        let port = place.port.to_string();
        Ok(Some(match self {
            Origin::Swath => {
                let mut command = Command::new(place.swath);
                command.arg("seed").arg(place.torrent).arg("--data").arg(place.folder);
                command.args(["--listen", &format!("0.0.0.0:{port}")]);
                command
            }
            Origin::Libtorrent => libtorrent(place)?,
            Origin::Aria2 => {
                let mut command = aria2(place)?;
                command.arg("--check-integrity=true");
                command
            }
            Origin::Transmission => {
                let mut command = transmission(place)?;
                command.arg("--verify");
                command
            }
            Origin::SwathServe => {
                let mut command = Command::new(place.swath);
                command.args(["serve", "--anonymous", "--plain", "--listen", "0.0.0.0:80"]);
                command.arg(place.folder);
                command
            }
            Origin::Nginx => return Ok(None),
        }))
    }

    /// Whether it seeds the torrent.
    pub fn is_peer(self) -> bool {
        !matches!(self, Origin::SwathServe | Origin::Nginx)
    }

    /// Whether it is installed.
    pub fn is_installed(self) -> bool {
        match self {
            Origin::Swath | Origin::SwathServe => true,
            Origin::Libtorrent => has_libtorrent(),
            Origin::Aria2 => find_program("aria2c").is_some(),
            Origin::Transmission => find_program("transmission-cli").is_some(),
            Origin::Nginx => find_program("nginx").is_some(),
        }
    }
}

impl Client {
    /// Returns the program's command line.
    pub fn command(self, place: &Place) -> io::Result<Command> {
        let url = format!("http://{}/{}", place.origin, place.name);
        Ok(match self {
            Client::Swath => {
                let mut command = Command::new(place.swath);
                command.arg("get").arg(place.torrent).arg("-d").arg(place.folder);
                command.args(["--keep-seeding", "--listen", &format!("0.0.0.0:{}", place.port)]);
                command
            }
            Client::SwathByHttp => {
                let mut command = Command::new(place.swath);
                command.arg("get").arg(url).arg("-d").arg(place.folder);
                command
            }
            Client::Libtorrent => libtorrent(place)?,
            Client::Aria2 => aria2(place)?,
            Client::Transmission => transmission(place)?,
            Client::Curl => {
                let mut command = Command::new("curl");
                command.args(["-sSf", "-o"]).arg(place.folder.join(place.name)).arg(url);
                command
            }
        })
    }

    /// Returns the file whose existence says that everything has arrived; `None` if the end of the
    /// program does.
    pub fn sign(self, place: &Place) -> Option<PathBuf> {
        match self {
            // It gives a file its name when every piece is verified.
            Client::Swath | Client::SwathByHttp => Some(place.folder.join(place.name)),
            Client::Libtorrent | Client::Aria2 | Client::Transmission => {
                Some(place.folder.join(DONE))
            }
            Client::Curl => None,
        }
    }

    /// Whether it is installed.
    pub fn is_installed(self) -> bool {
        match self {
            Client::Swath | Client::SwathByHttp => true,
            Client::Libtorrent => has_libtorrent(),
            Client::Aria2 => find_program("aria2c").is_some(),
            Client::Transmission => find_program("transmission-cli").is_some(),
            Client::Curl => find_program("curl").is_some(),
        }
    }
}

/// Returns the command line that makes the torrent `NAME-VERSION.torrent`: what swath publishes for
/// itself, version 1 of the protocol for the programs that know no other.
pub fn torrent(
    swath: &Path,
    data: &Path,
    is_v1: bool,
    tracker: &str,
    mirrors: &[String],
    output: &Path,
) -> Command {
    let mut command = Command::new(swath);
    command.arg("publish").arg(data).args(["--version", "1", "--only", "torrent", "--quiet"]);
    command.args(["--torrent", if is_v1 { "v1" } else { "hybrid" }, "--tracker", tracker]);
    mirrors.iter().for_each(|mirror| {
        command.args(["--mirror", mirror]);
    });
    command.arg("-o").arg(output);
    command
}

fn libtorrent(place: &Place) -> io::Result<Command> {
    let script = place.own.join("peer.py");
    fs::write(&script, include_str!("libtorrent_peer.py"))?;
    let mut command = Command::new("python3");
    command.arg(script).arg(place.torrent).arg(place.folder).arg(place.port.to_string());
    Ok(command)
}

fn aria2(place: &Place) -> io::Result<Command> {
    let hook = hook(place)?;
    let mut command = Command::new("aria2c");
    command.args(["--no-conf", "--enable-dht=false", "--bt-enable-lpd=false", "--disable-ipv6"]);
    command.args(["--seed-ratio=0.0", "--file-allocation=none", "--summary-interval=0"]);
    command.arg(format!("--listen-port={}", place.port)).arg("-d").arg(place.folder);
    command.arg(with("--on-bt-download-complete=", &hook)).arg(place.torrent);
    Ok(command)
}

fn transmission(place: &Place) -> io::Result<Command> {
    let hook = hook(place)?;
    fs::write(
        place.own.join("settings.json"),
        "{\"dht-enabled\": false, \"lpd-enabled\": false, \"ratio-limit-enabled\": false}\n",
    )?;
    let mut command = Command::new("transmission-cli");
    command.args(["--no-portmap", "--no-downlimit", "--no-uplimit", "--port"]);
    command.arg(place.port.to_string()).arg("--config-dir").arg(place.own);
    command.arg("--download-dir").arg(place.folder).arg("--finish").arg(hook);
    command.arg(place.torrent);
    Ok(command)
}

/// Makes a program that says that everything has arrived.
fn hook(place: &Place) -> io::Result<PathBuf> {
    let path = place.own.join("hook");
    let done = place.folder.join(DONE);
    fs::write(&path, format!("#!/bin/sh\n: > '{}'\n", done.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

fn with(option: &str, path: &Path) -> std::ffi::OsString {
    let mut text = std::ffi::OsString::from(option);
    text.push(path.as_os_str());
    text
}

fn has_libtorrent() -> bool {
    let mut command = Command::new("python3");
    command.args([OsStr::new("-c"), OsStr::new("import libtorrent")]);
    command.output().is_ok_and(|output| output.status.success())
}

const DONE: &str = "done";
