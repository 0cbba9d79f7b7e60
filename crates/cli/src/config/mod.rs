//! The configuration file: what a user says once for all commands. What the command line says wins.
//!
//! Described in `docs/config.md`. A file with anything in it that is not understood is refused, with
//! the line: a misspelt key would otherwise be a wish that nobody hears.

pub mod command;
mod error;
mod host;
mod read;
mod relay;
pub mod settings;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

pub use error::{ConfigError, Wrong};
pub use host::HostSection;
pub use relay::{Relay, RouteWish, relay, route};
use settings::Set;

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The relays that transfers may run through.
    pub relays: Vec<Relay>,
    /// Options for all transfers.
    pub settings: Vec<Set>,
    /// What it says of single servers, the most important first.
    pub hosts: Vec<HostSection>,
    /// How a transfer's route is chosen.
    pub route: Option<RouteWish>,
    /// The file that says so, and its line; `None` where the command line says it.
    pub route_at: Option<(PathBuf, usize)>,
}

impl Config {
    /// Read the file that the environment names, or the usual one; without one nothing is said.
    pub fn load() -> Result<Config, ConfigError> {
        let Place::At { path, is_named } = Place::of_user() else {
            return Ok(Config::default());
        };
        let text = match text_of(&path) {
            Ok(text) => text,
            Err(error) if !is_named && error.kind() == ErrorKind::NotFound => {
                return Ok(Config::default());
            }
            Err(error) => return Err(ConfigError::Read { path, error }),
        };
        Config::parse(&text, path)
    }

    /// Read this very file.
    pub fn load_from(path: PathBuf) -> Result<Config, ConfigError> {
        match text_of(&path) {
            Ok(text) => Config::parse(&text, path),
            Err(error) => Err(ConfigError::Read { path, error }),
        }
    }

    fn parse(text: &str, path: PathBuf) -> Result<Config, ConfigError> {
        read::read(text, &path).map_err(|(line, wrong)| ConfigError::At { path, line, wrong })
    }
}

/// What a file holds, if it is a file, and one that somebody may have written: devices have no end,
/// and pipes wait for somebody.
fn text_of(path: &Path) -> io::Result<String> {
    // Without this flag opening a pipe would wait already.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    file.take(TEXT_MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > TEXT_MAX_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(text)
}

/// Nobody writes more by hand.
const TEXT_MAX_BYTES: u64 = 1 << 20;

/// Where the file is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Here; where the user named it, it has to be there.
    At { path: PathBuf, is_named: bool },
    /// Nowhere: `SWATH_CONFIG` is empty or `off`, or nobody says where.
    Nowhere,
}

impl Place {
    fn of_user() -> Place {
        place(|name| std::env::var_os(name))
    }
}

/// `$SWATH_CONFIG`, else `$XDG_CONFIG_HOME/swath/config.toml`, else `~/.config/swath/config.toml`.
fn place(env: impl Fn(&str) -> Option<OsString>) -> Place {
    if let Some(named) = env("SWATH_CONFIG") {
        if named.is_empty() || named == "off" {
            return Place::Nowhere;
        }
        return Place::At { path: named.into(), is_named: true };
    }
    // The XDG Base Directory Specification has relative paths ignored.
    let folder = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = || folder("HOME").map(|home| home.join(".config"));
    match folder("XDG_CONFIG_HOME").or_else(usual) {
        Some(folder) => Place::At { path: folder.join("swath/config.toml"), is_named: false },
        None => Place::Nowhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_where() {
        let at = |path: &str, is_named| Place::At { path: path.into(), is_named };
        let (named, xdg, home) = ("SWATH_CONFIG", "XDG_CONFIG_HOME", "HOME");
        for (variables, wanted) in [
            (&[(home, "/h")][..], at("/h/.config/swath/config.toml", false)),
            (&[(xdg, "/x"), (home, "/h")], at("/x/swath/config.toml", false)),
            (&[(xdg, "x"), (home, "/h")], at("/h/.config/swath/config.toml", false)),
            (&[(named, "my.toml"), (home, "/h")], at("my.toml", true)),
            (&[(named, ""), (home, "/h")], Place::Nowhere),
            (&[(named, "off"), (home, "/h")], Place::Nowhere),
            (&[], Place::Nowhere),
        ] {
            let found = place(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            });
            assert_eq!(found, wanted, "{variables:?}");
        }
    }
}
