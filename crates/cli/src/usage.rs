//! Suggestions for unknown commands and options: names that other programs use.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Replaces the library's suggestion, which goes by spelling and may mean something else.
pub fn explain(mut error: clap::Error) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let given = text(ContextKind::InvalidSubcommand);
            let tip = given.as_deref().and_then(of_command);
            // Secrets in an address must not be shown.
            let shown = given.map(|name| crate::net::shown_text(&name));
            if let Some(shown) = shown {
                error.insert(ContextKind::InvalidSubcommand, ContextValue::String(shown));
            }
            (tip, ContextKind::SuggestedSubcommand)
        }
        ErrorKind::UnknownArgument => {
            let given = text(ContextKind::InvalidArg);
            // The library suggests hidden options too.
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
                "a command is missing: 'swath get {}' fetches a file, 'swath cp' a folder",
                crate::net::shown_text(address)
            ));
        }
        // The library does not find swapped letters.
        name => nearest(name, COMMANDS.into_iter())?,
    };
    Some(format!("did you mean 'swath {meant}'?"))
}

/// Returns the known name that was probably meant: the one with the fewest slips, at most one in four letters.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let with_slips = known.map(|it| (slips(name.as_bytes(), it.as_bytes()), it));
    let (slips, found) = with_slips.min_by_key(|(slips, _)| *slips)?;
    (slips <= found.len().div_ceil(4)).then_some(found)
}

/// Counts the letters to insert, remove, change or swap with their neighbour.
fn slips(one: &[u8], other: &[u8]) -> usize {
    // The last three rows of the table: how far the first letters of both are apart.
    let (mut before, mut above) = (Vec::new(), (0..=other.len()).collect::<Vec<_>>());
    for (at, a) in one.iter().enumerate() {
        let mut row = vec![at + 1];
        for (to, b) in other.iter().enumerate() {
            let changed: usize = above[to] + usize::from(a != b);
            let mut least = changed.min(above[to + 1] + 1).min(row[to] + 1);
            if at > 0 && to > 0 && one[at - 1] == *b && *a == other[to - 1] {
                let swapped: &Vec<usize> = &before;
                least = least.min(swapped[to - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[other.len()]
}

/// The commands to suggest.
const COMMANDS: [&str; 9] = ["get", "cp", "ls", "du", "serve", "relay", "probe", "verify", "stage"];

fn of_option(name: &str) -> Option<String> {
    let name = name.split('=').next().unwrap_or_default();
    let meant = match name {
        "--checksum" | "--hash" | "--sha256" | "--md5" => {
            "use --digest ALGORITHM:HEX (get, verify)"
        }
        "--max-connection-per-server" | "--max-connections" => {
            "use --connections N (-x N) for the connections per source"
        }
        "--max-download-limit" | "--bwlimit" | "--rate" | "--max-rate" => "use --limit-rate RATE",
        "--input-file" => "use --input LIST (-i LIST)",
        "--directory-prefix" | "--output-dir" => "use --dir DIR (-d DIR)",
        "--output-document" => "use --output FILE (-o FILE)",
        "--silent" => "use --quiet (-q)",
        "--cacert" | "--ca-certificate" => "use --ca FILE",
        "--no-check-certificate" => "use --insecure",
        "--user" | "-u" => {
            "put the login into the address (https://USER:PASSWORD@HOST/) or into ~/.netrc"
        }
        "--proxy" => {
            "set proxies in the environment (https_proxy, http_proxy, no_proxy), or for single hosts in the configuration file"
        }
        "--force" | "-f" => "use --overwrite to replace existing files",
        "--max-time" | "--connect-timeout" => "use --timeout TIME",
        _ => return None,
    };
    Some(meant.to_owned())
}

/// Hidden options, which have no effect or are internal.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_seen_and_another_word_is_not() {
        let known = ["relays", "route", "limit-rate", "io", "get", "du"];
        for (typed, meant) in [
            ("relay", Some("relays")),
            ("roote", Some("route")),
            ("limt-rtae", Some("limit-rate")),
            ("gte", Some("get")),
            ("ud", Some("du")),
            ("memory", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known.into_iter()), meant, "{typed}");
        }
    }
}
