//! What is meant by a command line that is not understood: names that other programs have for the same.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Adds what was probably meant, in place of the library's guess by spelling, which may name an option
/// that does something else.
pub fn explain(mut error: clap::Error) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let given = text(ContextKind::InvalidSubcommand);
            let tip = given.as_deref().and_then(of_command);
            // What opens an address is for no screen.
            let shown = given.map(|name| crate::net::shown_text(&name));
            if let Some(shown) = shown {
                error.insert(ContextKind::InvalidSubcommand, ContextValue::String(shown));
            }
            (tip, ContextKind::SuggestedSubcommand)
        }
        ErrorKind::UnknownArgument => {
            let given = text(ContextKind::InvalidArg);
            // The library offers hidden options too.
            let guess = text(ContextKind::SuggestedArg);
            if guess.is_some_and(|guess| HIDDEN.contains(&guess.as_str())) {
                error.remove(ContextKind::SuggestedArg);
            }
            (given.and_then(|name| of_option(&name)), ContextKind::SuggestedArg)
        }
        _ => return error,
    };
    if let (Some(tip), guess) = tip {
        error.remove(guess);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn of_command(name: &str) -> Option<String> {
    let meant = match name {
        "download" | "fetch" | "wget" | "curl" | "aria2c" | "pull" => "get",
        "copy" | "rsync" | "scp" | "mirror" | "upload" | "put" | "push" | "send" => "cp",
        "server" | "share" | "host" | "daemon" => "serve",
        "proxy" => "relay",
        "list" | "dir" => "ls",
        "size" => "du",
        "check" | "checksum" | "hash" => "verify",
        "info" | "head" | "stat" => "probe",
        address if address.contains("://") => {
            return Some(format!(
                "an address belongs behind a command: 'swath get {}' fetches a file, 'swath cp' a folder",
                crate::net::shown_text(address)
            ));
        }
        // The library finds names that look alike; two letters that changed places it does not.
        name => COMMANDS.into_iter().find(|command| is_swapped(name, command))?,
    };
    Some(format!("did you mean 'swath {meant}'?"))
}

/// Whether both are the same but for two neighbouring letters that changed places.
fn is_swapped(name: &str, command: &str) -> bool {
    let (name, command) = (name.as_bytes(), command.as_bytes());
    let Some(at) = name.iter().zip(command).position(|(a, b)| a != b) else { return false };
    name.len() == command.len()
        && name.get(at + 1) == command.get(at)
        && name.get(at) == command.get(at + 1)
        && name[at + 1..].iter().skip(1).eq(command[at + 1..].iter().skip(1))
}

/// What is typed most.
const COMMANDS: [&str; 9] = ["get", "cp", "ls", "du", "serve", "relay", "probe", "verify", "stage"];

fn of_option(name: &str) -> Option<String> {
    let name = name.split('=').next().unwrap_or_default();
    let meant = match name {
        "--checksum" | "--hash" | "--sha256" | "--md5" => {
            "--digest ALGORITHM:HEX says what a file must come to (get, verify)"
        }
        "--max-connection-per-server" | "--max-connections" => {
            "--connections N (-x N) is the number of connections to each source"
        }
        "--max-download-limit" | "--bwlimit" | "--rate" | "--max-rate" => {
            "--limit-rate RATE limits what is taken per second"
        }
        "--input-file" => "--input LIST (-i LIST) reads a list",
        "--directory-prefix" | "--output-dir" => "--dir DIR (-d DIR) writes into a folder",
        "--output-document" => "--output FILE (-o FILE) names the file",
        "--silent" => "--quiet (-q) prints warnings and errors only",
        "--cacert" | "--ca-certificate" => "--ca FILE trusts the authorities in a file",
        "--no-check-certificate" => "--insecure accepts any certificate",
        "--user" | "-u" => {
            "a login belongs into the address (https://USER:PASSWORD@HOST/) or into ~/.netrc"
        }
        "--proxy" => {
            "proxies are set in the environment (https_proxy, http_proxy, no_proxy) or for single hosts in the configuration file"
        }
        "--force" | "-f" => "--overwrite replaces files that are there",
        "--max-time" | "--connect-timeout" => "--timeout TIME says how long silence is waited out",
        _ => return None,
    };
    Some(meant.to_owned())
}

/// Options that help does not list, because they say what is done anyway.
const HIDDEN: &[&str] = &[
    "--resume",
    "--recursive",
    "--remote-name",
    "--continue-at",
    "--continue",
    "--split",
    "--location",
    "--progress",
    "--compress",
    "--archive",
    "--through",
    "--file-name",
    "--force-terminal",
];
