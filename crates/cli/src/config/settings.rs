//! Options for all transfers from the configuration file and the environment. Each has the name of its
//! command-line option; in the environment with the prefix `SWATH_`.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::builder::{ArgPredicate, OsStr};
use clap::{CommandFactory as _, FromArgMatches as _};
use toml::de::DeValue;

use super::{Config, ConfigError, relay, route};
use crate::args::{Cli, Command, lanes};
use crate::units;

/// An option for all transfers.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// The long name of the option.
    pub name: &'static str,
    /// The type of its value.
    takes: ValueType,
    /// The setting is ignored if the command line has one of these.
    unless: &'static [&'static str],
    /// Whether the file has it under this name.
    is_in_file: bool,
}

/// Types of settings.
#[derive(Clone, Copy, Debug)]
enum ValueType {
    /// True or false.
    Flag,
    /// A text or a number, with its check.
    Text(fn(&str) -> Result<(), String>),
    /// A file or a folder.
    Path,
    /// Several texts with their check, separated by commas or spaces in the environment.
    Texts(fn(&str) -> Result<(), String>),
    /// Several files, separated by `:` in the environment.
    Paths,
}

impl PartialEq for ValueType {
    fn eq(&self, other: &ValueType) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl Eq for ValueType {}

/// A setting with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingValue {
    /// The setting.
    pub setting: &'static Setting,
    /// Its values.
    pub values: Vec<String>,
    /// Where it was set.
    pub by: SettingOrigin,
}

/// Where a setting was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// In this line of the file.
    Line(usize),
    /// By an environment variable.
    Variable(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::Line(line) => write!(f, "line {line}"),
            SettingOrigin::Variable(name) => write!(f, "{name}"),
        }
    }
}

/// All settings, in the order of listings.
pub static SETTINGS: [Setting; 18] = [
    in_both("limit-rate", ValueType::Text(|text| units::rate_above_zero(text).map(drop))),
    in_both("connections", ValueType::Text(|text| lanes(text).map(drop))),
    in_both("max-sources", ValueType::Text(|text| whole(text, 1..=u16::MAX))),
    in_both("jobs", ValueType::Text(|text| whole(text, 1..=256))),
    Setting { unless: &["output"], ..in_both("dir", ValueType::Path) },
    in_both("server-names", ValueType::Text(server_names)),
    in_both("require-digest", ValueType::Flag),
    Setting { unless: &["input", "digest"], ..in_both("checksums", ValueType::Text(only_auto)) },
    in_both("no-discover", ValueType::Flag),
    in_both("timeout", ValueType::Text(|text| units::time(text).map(drop))),
    in_both("ca", ValueType::Paths),
    in_both("sparse", ValueType::Flag),
    in_both("io", ValueType::Text(io)),
    in_both("memory", ValueType::Text(|text| units::size_above_zero(text).map(drop))),
    in_both("pin", ValueType::Text(|text| crate::args::pin(text).map(drop))),
    in_both("ssh", ValueType::Text(not_empty)),
    Setting {
        is_in_file: false,
        ..in_both(
            "relay",
            ValueType::Texts(|text| relay(text).map(drop).map_err(|e| e.to_string())),
        )
    },
    Setting {
        is_in_file: false,
        ..in_both("route", ValueType::Text(|text| route(text).map(drop).map_err(|e| e.to_string())))
    },
];

const fn in_both(name: &'static str, takes: ValueType) -> Setting {
    Setting { name, takes, unless: &[], is_in_file: true }
}

fn whole(text: &str, within: std::ops::RangeInclusive<u16>) -> Result<(), String> {
    match text.parse() {
        Ok(number) if within.contains(&number) => Ok(()),
        _ => Err(format!("must be a number from {} to {}", within.start(), within.end())),
    }
}

fn only_auto(text: &str) -> Result<(), String> {
    let words = "can only be 'auto' for all transfers";
    if text == "auto" { Ok(()) } else { Err(words.to_owned()) }
}

fn io(text: &str) -> Result<(), String> {
    let known = text.parse::<swath_transfer::IoMode>();
    known.map(drop).map_err(|_| "must be auto, uring, threads or buffered".to_owned())
}

fn server_names(text: &str) -> Result<(), String> {
    let known = text.parse::<swath_jobs::ServerNames>();
    known.map(drop).map_err(|error| error.to_string())
}

fn not_empty(text: &str) -> Result<(), String> {
    if text.trim().is_empty() { Err("must not be empty".to_owned()) } else { Ok(()) }
}

impl Setting {
    /// Returns the setting of a key in the file.
    pub(super) fn in_file(key: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.is_in_file && setting.name == key)
    }

    /// Whether the file has it under its own name.
    pub fn is_in_file(&self) -> bool {
        self.is_in_file
    }

    /// Returns its environment variable.
    pub fn variable(&self) -> String {
        format!("SWATH_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    /// Whether its value is a list.
    pub fn takes_several(&self) -> bool {
        matches!(self.takes, ValueType::Texts(_) | ValueType::Paths)
    }

    /// Whether its value is true or false.
    pub fn is_flag(&self) -> bool {
        matches!(self.takes, ValueType::Flag)
    }

    fn check(&self, text: &str) -> Result<(), String> {
        match self.takes {
            ValueType::Flag => match text {
                "true" | "false" => Ok(()),
                _ => Err("must be true or false".to_owned()),
            },
            ValueType::Text(check) | ValueType::Texts(check) => check(text),
            ValueType::Path | ValueType::Paths => not_empty(text),
        }
    }

    /// Reads a value in the file; relative paths start at `folder`.
    pub(super) fn read(
        &self,
        value: &DeValue<'_>,
        folder: &Path,
    ) -> Result<Vec<String>, ReadError> {
        let one = |value: &DeValue<'_>| {
            let text = match (value, self.takes) {
                (DeValue::Boolean(truth), ValueType::Flag) => truth.to_string(),
                (DeValue::String(text), ValueType::Path | ValueType::Paths) => {
                    at_home(text, folder)
                }
                (DeValue::String(text), ValueType::Text(_) | ValueType::Texts(_)) => {
                    text.to_string()
                }
                (DeValue::Integer(number), ValueType::Text(_)) => number.to_string(),
                (DeValue::Float(number), ValueType::Text(_)) => number.to_string(),
                _ => return Err(ReadError::Type(self.wanted())),
            };
            self.check(&text).map(|()| text).map_err(ReadError::Value)
        };
        match value {
            DeValue::Array(list) if self.takes_several() => {
                list.iter().map(|value| one(value.get_ref())).collect()
            }
            _ => one(value).map(|text| vec![text]),
        }
    }

    fn wanted(&self) -> &'static str {
        match self.takes {
            ValueType::Flag => "true or false",
            ValueType::Text(_) => "a text or a number",
            ValueType::Path => "a text, the path of a folder",
            ValueType::Texts(_) => "a list of texts",
            ValueType::Paths => "a list of texts, paths of files",
        }
    }

    /// Reads the value of an environment variable.
    fn of_variable(&self, text: &str) -> Result<Vec<String>, String> {
        let values: Vec<String> = match self.takes {
            ValueType::Flag => vec![match text.to_ascii_lowercase().as_str() {
                "1" | "true" | "yes" | "on" => "true".to_owned(),
                "0" | "false" | "no" | "off" => "false".to_owned(),
                _ => text.to_owned(),
            }],
            ValueType::Text(_) | ValueType::Path => vec![text.to_owned()],
            ValueType::Paths => {
                text.split(':').filter(|it| !it.is_empty()).map(str::to_owned).collect()
            }
            ValueType::Texts(_) => {
                let parts = text.split([',', ' ', '\t', '\n']);
                parts.filter(|it| !it.is_empty()).map(str::to_owned).collect()
            }
        };
        values.iter().try_for_each(|value| self.check(value))?;
        Ok(values)
    }
}

/// Why a value in the file is invalid.
pub(super) enum ReadError {
    /// The expected type.
    Type(&'static str),
    /// The error.
    Value(String),
}

/// Resolves a path of the file: below `folder`, or with `~/` below the home folder.
pub(super) fn at_home(text: &str, folder: &Path) -> String {
    let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let path = match (text.strip_prefix("~/"), home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => folder.join(text),
    };
    path.to_string_lossy().into_owned()
}

/// Returns what is set; the environment overrides the file. In the order of [`SETTINGS`].
pub fn set(
    config: &Config,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Vec<SettingValue>, ConfigError> {
    let mut all = Vec::new();
    for setting in &SETTINGS {
        let name = setting.variable();
        match env(&name).filter(|value| !value.is_empty()) {
            Some(text) => {
                let wrong = |wrong| ConfigError::Variable { name: name.clone(), wrong };
                let values = setting.of_variable(&text).map_err(wrong)?;
                all.push(SettingValue { setting, values, by: SettingOrigin::Variable(name) });
            }
            None => all.extend(config.settings.iter().find(|it| it.setting == setting).cloned()),
        }
    }
    Ok(all)
}

/// Returns an environment variable.
pub fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Parses the command line again with the settings as defaults. `typed` is the command line alone.
pub fn applied(typed: Cli) -> Result<Cli, Applying> {
    if !takes_settings(&typed.command) {
        return Ok(typed);
    }
    let config = Config::load().map_err(Applying::Config)?;
    let set = set(&config, variable).map_err(Applying::Config)?;
    if set.is_empty() {
        return Ok(typed);
    }
    let mut command = Cli::command();
    for name in COMMANDS {
        command = command.mut_subcommand(name, |command| with(command, &set));
    }
    let matches = command.try_get_matches().map_err(Applying::Usage)?;
    Cli::from_arg_matches(&matches).map_err(Applying::Usage)
}

/// Why the settings cannot be used.
pub enum Applying {
    /// A setting is invalid.
    Config(ConfigError),
    /// A setting does not fit the command line.
    Usage(clap::Error),
}

fn takes_settings(command: &Command) -> bool {
    matches!(
        command,
        Command::Get(_)
            | Command::Follow(_)
            | Command::Cp(_)
            | Command::Ls(_)
            | Command::Du(_)
            | Command::Probe(_)
            | Command::Verify(_)
    )
}

/// The commands with settings.
const COMMANDS: [&str; 7] = ["get", "follow", "cp", "ls", "du", "probe", "verify"];

fn with(mut command: clap::Command, set: &[SettingValue]) -> clap::Command {
    for set in set {
        // An option that must be given has no default.
        let has =
            |arg: &&clap::Arg| arg.get_long() == Some(set.setting.name) && !arg.is_required_set();
        let Some(id) = command.get_arguments().find(has).map(|arg| arg.get_id().clone()) else {
            continue;
        };
        let unless = set.setting.unless;
        let values: Vec<OsStr> = set.values.iter().map(OsStr::from).collect();
        command = command.mut_arg(id, |arg| {
            let arg = unless.iter().fold(arg, |arg, other| {
                arg.default_value_if(*other, ArgPredicate::IsPresent, None)
            });
            arg.default_values(values)
        });
    }
    command
}

/// Returns unknown `SWATH_` variables.
pub fn strangers(names: impl Iterator<Item = String>) -> Vec<String> {
    let is_known = |name: &str| {
        OTHERS.contains(&name) || SETTINGS.iter().any(|setting| setting.variable() == name)
    };
    let mut strangers: Vec<String> =
        names.filter(|name| name.starts_with("SWATH_") && !is_known(name)).collect();
    strangers.sort();
    strangers
}

/// Other variables of swath.
const OTHERS: [&str; 3] = ["SWATH_CONFIG", "SWATH_STATE", "SWATH_LOG"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_an_option_of_a_command_that_takes_settings() {
        let whole = Cli::command();
        for setting in &SETTINGS {
            let options = COMMANDS
                .iter()
                .filter_map(|name| whole.find_subcommand(name))
                .flat_map(|command| command.get_arguments().filter_map(clap::Arg::get_long));
            assert!(options.into_iter().any(|long| long == setting.name), "{}", setting.name);
        }
    }

    #[test]
    fn the_environment_comes_before_the_file_and_nothing_odd_is_taken() {
        let line = SettingValue {
            setting: &SETTINGS[0],
            values: vec!["1M".into()],
            by: SettingOrigin::Line(3),
        };
        let config = Config { settings: vec![line.clone()], ..Config::default() };
        assert_eq!(set(&config, |_| None).unwrap(), std::slice::from_ref(&line));
        assert_eq!(set(&config, |_| Some(String::new())).unwrap(), [line]);
        let own = |name: &str| match name {
            "SWATH_LIMIT_RATE" => Some("2M".to_owned()),
            "SWATH_REQUIRE_DIGEST" => Some("yes".to_owned()),
            "SWATH_CA" => Some("a.pem:b.pem".to_owned()),
            _ => None,
        };
        let all = set(&config, own).unwrap();
        let said: Vec<(&str, String)> =
            all.iter().map(|set| (set.setting.name, set.values.join(" "))).collect();
        let wanted = [("limit-rate", "2M"), ("require-digest", "true"), ("ca", "a.pem b.pem")];
        assert_eq!(said, wanted.map(|(name, value)| (name, value.to_owned())));
        for (name, value) in [
            ("SWATH_LIMIT_RATE", "fast"),
            ("SWATH_CONNECTIONS", "0"),
            ("SWATH_REQUIRE_DIGEST", "maybe"),
            ("SWATH_RELAY", "r1"),
            ("SWATH_ROUTE", "r1,"),
            ("SWATH_JOBS", "257"),
            ("SWATH_IO", "tape"),
        ] {
            let error = set(&config, |asked| (asked == name).then(|| value.to_owned()));
            let text = error.unwrap_err().to_string();
            assert!(text.starts_with(name), "{text}");
        }
    }

    #[test]
    fn variables_that_nobody_reads_are_noticed() {
        let names = ["SWATH_LIMIT_RATE", "SWATH_LIMT_RATE", "SWATH_LOG", "PATH"];
        assert_eq!(strangers(names.into_iter().map(str::to_owned)), ["SWATH_LIMT_RATE"]);
    }
}
