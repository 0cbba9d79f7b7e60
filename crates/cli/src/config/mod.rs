//! The configuration file, with settings for all commands; the command line overrides it.
//!
//! Described in `docs/config.md`. Unknown keys are errors with their line, so that a misspelt key is
//! noticed.

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

pub use error::{ConfigError, ConfigProblem};
pub use host::HostSection;
pub use relay::{Relay, RouteOption, relay, route};
use settings::SettingValue;

use crate::exposed;

/// The settings of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The relays for transfers.
    pub relays: Vec<Relay>,
    /// Options for all transfers.
    pub settings: Vec<SettingValue>,
    /// Settings of single servers, the most specific first.
    pub hosts: Vec<HostSection>,
    /// The route of transfers.
    pub route: Option<RouteOption>,
    /// The file and line of the route; `None` if the command line sets it.
    pub route_at: Option<(PathBuf, usize)>,
}

impl Config {
    /// Reads the file that the environment names, or the default one; without one nothing is set.
    pub fn load() -> Result<Config, ConfigError> {
        let ConfigPath::At { path, is_named } = ConfigPath::of_user() else {
            return Ok(Config::default());
        };
        let text = match text_of(&path) {
            Ok(text) => text,
            Err(error) if !is_named && has_none_at_home(&path, &error) => {
                return Ok(Config::default());
            }
            Err(error) => return Err(ConfigError::Read { path, error }),
        };
        Config::parse(&text, path)
    }

    /// Reads this file.
    pub fn load_from(path: PathBuf) -> Result<Config, ConfigError> {
        match text_of(&path) {
            Ok(text) => Config::parse(&text, path),
            Err(error) => Err(ConfigError::Read { path, error }),
        }
    }

    fn parse(text: &str, path: PathBuf) -> Result<Config, ConfigError> {
        if let Some(why) = exposed::refusal(&path) {
            return Err(ConfigError::Exposed(why));
        }
        read::read(text, &path).map_err(|(line, wrong)| ConfigError::At { path, line, wrong })
    }
}

/// Returns whether a file that cannot be read, and that nobody has named, counts as missing: there is none, or
/// the home is no folder, or belongs to somebody else.
pub fn has_none_at_home(path: &Path, error: &io::Error) -> bool {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => true,
        ErrorKind::PermissionDenied => path.symlink_metadata().is_err(),
        _ => false,
    }
}

/// Reads a regular file of limited size: devices may be endless, and pipes may block.
fn text_of(path: &Path) -> io::Result<String> {
    // Without this flag opening a pipe may block.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    file.take(TEXT_MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > TEXT_MAX_BYTES {
        return Err(io::Error::other("larger than 1 MiB"));
    }
    Ok(text)
}

/// More than anybody writes by hand.
const TEXT_MAX_BYTES: u64 = 1 << 20;

/// The path of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ConfigPath {
    /// This path; it must exist if the user named it.
    At { path: PathBuf, is_named: bool },
    /// None: `SWATH_CONFIG` is empty or `off`, or no variable gives a path.
    Nowhere,
}

impl ConfigPath {
    fn of_user() -> ConfigPath {
        config_path(|name| std::env::var_os(name))
    }
}

/// Returns `$SWATH_CONFIG`, else `$XDG_CONFIG_HOME/swath/config.toml`, else
/// `~/.config/swath/config.toml`.
fn config_path(env: impl Fn(&str) -> Option<OsString>) -> ConfigPath {
    if let Some(named) = env("SWATH_CONFIG") {
        if named.is_empty() || named == "off" {
            return ConfigPath::Nowhere;
        }
        return ConfigPath::At { path: named.into(), is_named: true };
    }
    // The XDG Base Directory Specification has relative paths ignored.
    let folder = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = || folder("HOME").map(|home| home.join(".config"));
    match folder("XDG_CONFIG_HOME").or_else(usual) {
        Some(folder) => ConfigPath::At { path: folder.join("swath/config.toml"), is_named: false },
        None => ConfigPath::Nowhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_that_is_none_has_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        std::fs::write(&home, "").unwrap();
        for path in [home.join(".netrc"), home.join(".config/swath/config.toml")] {
            let error = text_of(&path).unwrap_err();
            assert!(has_none_at_home(&path, &error), "{error}");
        }
        // A folder is there, and cannot be read as a file.
        let error = text_of(folder.path()).unwrap_err();
        assert!(!has_none_at_home(folder.path(), &error), "{error}");
        // Whoever may look at a file that he may not read has one.
        let refused = ErrorKind::PermissionDenied.into();
        assert!(!has_none_at_home(&home, &refused));
    }

    #[test]
    fn the_environment_says_where() {
        let at = |path: &str, is_named| ConfigPath::At { path: path.into(), is_named };
        let (named, xdg, home) = ("SWATH_CONFIG", "XDG_CONFIG_HOME", "HOME");
        for (variables, wanted) in [
            (&[(home, "/h")][..], at("/h/.config/swath/config.toml", false)),
            (&[(xdg, "/x"), (home, "/h")], at("/x/swath/config.toml", false)),
            (&[(xdg, "x"), (home, "/h")], at("/h/.config/swath/config.toml", false)),
            (&[(named, "my.toml"), (home, "/h")], at("my.toml", true)),
            (&[(named, ""), (home, "/h")], ConfigPath::Nowhere),
            (&[(named, "off"), (home, "/h")], ConfigPath::Nowhere),
            (&[], ConfigPath::Nowhere),
        ] {
            let found = config_path(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            });
            assert_eq!(found, wanted, "{variables:?}");
        }
    }
}
