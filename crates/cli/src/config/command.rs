//! `swath config`: shows and checks the settings.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, Subcommand, ValueHint};

use super::settings::{self, SETTINGS, Setting, SettingValue};
use super::{Config, ConfigError, ConfigPath, HostSection, Relay, RouteOption};
use crate::args::Cli;
use crate::exit::{Exit, fail, warn};
use crate::{net, relays, say};

/// Subcommands of `swath config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the settings for all transfers and where each is set, as a configuration file
    Show,
    /// Check the configuration file, the SWATH_ variables and the files that they name
    Check {
        /// Check this file instead
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Print the path of the configuration file
    Path,
}

/// Runs the command.
pub fn run(command: &ConfigCommand) -> Exit {
    match command {
        ConfigCommand::Show => show(),
        ConfigCommand::Check { file } => check(file.as_deref()),
        ConfigCommand::Path => path(),
    }
}

fn path() -> Exit {
    match ConfigPath::of_user() {
        ConfigPath::At { path, .. } => {
            if !path.exists() {
                say::err("(the file does not exist)");
            }
            say::out(format!("{}\n", path.display()).as_bytes(), Exit::Done)
        }
        ConfigPath::Nowhere => fail(Exit::Input, NOWHERE),
    }
}

const NOWHERE: &str =
    "no configuration file: SWATH_CONFIG is off or empty, or HOME and XDG_CONFIG_HOME are unset";

fn show() -> Exit {
    let (config, set) = match load(None) {
        Ok(loaded) => loaded,
        Err(error) => return fail(Exit::Input, &error.to_string()),
    };
    let mut text = match ConfigPath::of_user() {
        ConfigPath::At { path, .. } if path.exists() => format!("# {}\n", path.display()),
        ConfigPath::At { path, .. } => format!("# {} (does not exist)\n", path.display()),
        ConfigPath::Nowhere => "# no configuration file\n".to_owned(),
    };
    text.push('\n');
    let mut all: Vec<(String, String)> = SETTINGS
        .iter()
        .filter_map(|setting| match set.iter().find(|set| set.setting == setting) {
            Some(set) => Some((written(set), set.by.to_string())),
            None if setting.is_in_file() => Some((unset(setting), "default".to_owned())),
            None => None,
        })
        .collect();
    if !set.iter().any(|set| set.setting.name == "route") {
        all.push(match (&config.route, &config.route_at) {
            (Some(route), at) => {
                let line = at.as_ref().map(|(_, line)| format!("line {line}"));
                (format!("route = {}", quoted(&route_word(route))), line.unwrap_or_default())
            }
            (None, _) => ("# route = \"auto\"".to_owned(), "default".to_owned()),
        });
    }
    let width = all.iter().map(|(line, _)| line.chars().count()).filter(|len| *len < 60).max();
    let width = width.unwrap_or(0);
    for (line, by) in &all {
        let _ = writeln!(text, "{line:width$}  # {by}");
    }
    let by_variable = set.iter().any(|set| set.setting.name == "relay");
    let relays = config.relays.iter().filter(|_| !by_variable).map(relay_section);
    relays.chain(config.hosts.iter().map(host_section)).for_each(|part| text.push_str(&part));
    say::out(text.as_bytes(), Exit::Done)
}

fn check(file: Option<&Path>) -> Exit {
    let (config, set) = match load(file) {
        Ok(loaded) => loaded,
        Err(error) => return fail(Exit::Input, &error.to_string()),
    };
    let mut faults: Vec<String> = relays::fault(&config, &set).into_iter().collect();
    for relay in &config.relays {
        faults.extend(relays::access(relay.clone()).err().map(|why| why.to_string()));
    }
    for host in &config.hosts {
        faults.extend(host.access().err().map(|why| format!("the host {}: {why}", host.name)));
    }
    let of_relays = config.relays.iter().filter_map(|relay| relay.token_file.as_deref());
    let of_hosts = config
        .hosts
        .iter()
        .flat_map(|host| [&host.token_file, host.key.as_ref().map_or(&host.cert, |_| &host.key)]);
    let of_hosts = of_hosts.filter_map(Option::as_deref);
    of_relays.chain(of_hosts).filter(|path| is_read_by_others(path)).for_each(|path| {
        warn(&format!("other users of this machine can read {} (run chmod 600)", path.display()));
    });
    // Certificates are read in the same way as for connections.
    let authorities = set.iter().filter(|set| set.setting.name == "ca").flat_map(|set| &set.values);
    let authorities: Vec<PathBuf> = authorities.map(PathBuf::from).collect();
    let own = config.hosts.iter().flat_map(|host| host.ca.iter().cloned());
    for path in authorities.into_iter().chain(own) {
        let options = swath_source::NetOptions { ca_files: vec![path], ..Default::default() };
        faults.extend(swath_source::Net::new(options).err().map(|error| error.to_string()));
    }
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    for name in settings::strangers(names) {
        warn(&format!("unknown variable {name}"));
    }
    if faults.is_empty() {
        let count =
            |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let title = match (file.map(Path::to_owned), ConfigPath::of_user()) {
            (Some(path), _) => path.display().to_string(),
            (None, ConfigPath::At { path, .. }) if path.exists() => path.display().to_string(),
            _ => "no configuration file".to_owned(),
        };
        let parts = [
            count(set.len() + usize::from(config.route.is_some()), "setting"),
            count(config.relays.len(), "relay"),
            count(config.hosts.len(), "host"),
        ];
        return say::out(format!("{title}: valid ({})\n", parts.join(", ")).as_bytes(), Exit::Done);
    }
    for fault in &faults {
        fail(Exit::Input, fault);
    }
    Exit::Input
}

fn load(file: Option<&Path>) -> Result<(Config, Vec<SettingValue>), ConfigError> {
    let config = match file {
        Some(path) => Config::load_from(path.to_owned())?,
        None => Config::load()?,
    };
    let set = settings::set(&config, settings::variable)?;
    Ok((config, set))
}

fn is_read_by_others(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.mode() & 0o077 != 0)
}

fn written(set: &SettingValue) -> String {
    let name = set.setting.name;
    let one = |value: &String| match set.setting.is_flag() || value.parse::<u64>().is_ok() {
        true => value.clone(),
        false => quoted(value),
    };
    let values: Vec<String> = set.values.iter().map(one).collect();
    // In the file the key is `relays`.
    let name = if name == "relay" { "relays" } else { name };
    match set.setting.takes_several() {
        true => format!("{name} = [{}]", values.join(", ")),
        false => format!("{name} = {}", values.join(", ")),
    }
}

/// Returns the line of an unset setting, with its default.
fn unset(setting: &Setting) -> String {
    let name = setting.name;
    let whole = Cli::command();
    let options = ["get", "cp"].into_iter().filter_map(|command| whole.find_subcommand(command));
    let mut options = options.flat_map(clap::Command::get_arguments);
    let option = options.find(|arg| arg.get_long() == Some(name));
    let default = option.and_then(|option| option.get_default_values().first());
    match default.map(|value| value.to_string_lossy()) {
        _ if setting.is_flag() => format!("# {name} = false"),
        Some(value) if value.parse::<u64>().is_ok() => format!("# {name} = {value}"),
        Some(value) => format!("# {name} = {}", quoted(&value)),
        None => format!("# {name} ="),
    }
}

fn relay_section(relay: &Relay) -> String {
    let mut url = relay.url.clone();
    // Secrets must not be shown.
    let login = if relay.has_login() { "  # with a login" } else { "" };
    let _ = url.set_password(None).and_then(|()| url.set_username(""));
    let mut text =
        format!("\n[[relays]]\nurl = {}{login}\n", quoted(url.as_str().trim_end_matches('/')));
    if let Some(path) = &relay.token_file {
        let _ = writeln!(text, "token-file = {}", quoted(&path.to_string_lossy()));
    }
    if let Some(print) = &relay.fingerprint {
        let _ = writeln!(text, "fingerprint = {}", quoted(&print.to_string()));
    }
    text
}

fn route_word(route: &RouteOption) -> String {
    match route {
        RouteOption::Auto => "auto".to_owned(),
        RouteOption::Direct => "direct".to_owned(),
        RouteOption::Widest => "widest".to_owned(),
        RouteOption::Multi => "multi".to_owned(),
        RouteOption::Over(names) => {
            names.iter().map(|name| net::shown_text(name)).collect::<Vec<_>>().join(",")
        }
    }
}

fn host_section(host: &HostSection) -> String {
    let mut text = format!("\n[hosts.{}]  # line {}\n", quoted(&host.name), host.line);
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key} = {value}");
    };
    if let Some(path) = &host.token_file {
        line("token-file", quoted(&path.to_string_lossy()));
    }
    if let Some(print) = &host.fingerprint {
        line("fingerprint", quoted(&print.to_string()));
    }
    if !host.ca.is_empty() {
        let paths: Vec<String> = host.ca.iter().map(|it| quoted(&it.to_string_lossy())).collect();
        line("ca", format!("[{}]", paths.join(", ")));
    }
    if let Some(path) = &host.cert {
        line("cert", quoted(&path.to_string_lossy()));
    }
    if let Some(path) = &host.key {
        line("key", quoted(&path.to_string_lossy()));
    }
    if let Some(proxy) = &host.proxy {
        line("proxy", quoted(&format!("{proxy:?}")));
    }
    if let Some(count) = host.connections {
        line("connections", count.to_string());
    }
    text
}

/// Quotes a TOML string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if swath_model::path::is_treacherous(c) => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
