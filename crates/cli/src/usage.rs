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
            let tip = text(ContextKind::InvalidSubcommand).and_then(|name| of_command(&name));
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
        _ => return None,
    };
    Some(format!("did you mean 'swath {meant}'?"))
}

fn of_option(name: &str) -> Option<String> {
    let name = name.split('=').next().unwrap_or_default();
    let meant = match name {
        "--checksum" | "--hash" | "--sha256" | "--md5" => {
            "--digest ALGORITHM:HEX says what a file must come to (get, verify)"
        }
        "--max-connection-per-server" | "--connections" | "--max-connections" => {
            "--lanes N (-x N) is the number of connections to each source"
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
        "--proxy" => "proxies are set in the environment: https_proxy, http_proxy, no_proxy",
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
