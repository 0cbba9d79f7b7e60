//! Writes the page of `--report`.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::failure::Failure;
use swath_report::{Recording, render};

use crate::exit::{self, Exit};
use crate::net::shown_text;
use crate::say;

/// Checks that the page can be written, before anything is fetched. An existing page stays until it is
/// replaced.
pub fn check(report: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = report else { return Ok(()) };
    let made = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Ok(found) if found.is_file() => File::options().write(true).open(path).map(drop),
        // Devices and pipes are only checked by writing.
        Ok(_) => Ok(()),
        Err(_) => File::create_new(path).and_then(|_| std::fs::remove_file(path)),
    };
    made.map_err(|error| Failure::new(Exit::Target, unwritable(path, &error)))
}

/// Writes the page, and prints its path unless `is_silent`; `exit` is that of the transfer.
pub fn write(report: Option<&Path>, is_silent: bool, mut recording: Recording, exit: Exit) -> Exit {
    let Some(path) = report else { return exit };
    let args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    recording.heading.command = command_line(args);
    recording.heading.destination = whole(&recording.heading.path);
    match std::fs::write(path, render(&recording)) {
        Ok(()) => {
            if !is_silent {
                say::err(&format!("report: {}", path.display()));
            }
            exit
        }
        Err(error) => exit::fail(exit.max(Exit::Target), &unwritable(path, &error)),
    }
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!("cannot write the report to {}: {error}", path.display())
}

/// Returns an absolute path, or a URL as it is.
fn whole(place: &str) -> String {
    match place {
        "" | "-" => String::new(),
        place if place.contains("://") => place.to_owned(),
        place => std::path::absolute(place)
            .map_or_else(|_| place.to_owned(), |path| path.display().to_string()),
    }
}

/// Returns the command line without secrets.
fn command_line(args: impl Iterator<Item = String>) -> String {
    let mut words = vec!["swath".to_owned()];
    let mut is_secret = false;
    for arg in args.skip(1) {
        let (option, value) = match arg.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value)),
            _ => (arg.as_str(), None),
        };
        let hides = SECRET.contains(&option) || option.starts_with("-H");
        let word = if is_secret {
            hidden(&arg)
        } else if hides && value.is_some() {
            format!("{option}={}", hidden(value.unwrap_or_default()))
        } else if option.starts_with("-H") && option.len() > 2 {
            "-H…".to_owned()
        } else if arg.contains("://") {
            shown_text(&arg)
        } else {
            arg.clone()
        };
        is_secret = hides && value.is_none() && (option.len() == 2 || option.starts_with("--"));
        words.push(quoted(&word));
    }
    words.join(" ")
}

/// Hides a value, but not the name of a file with a secret.
fn hidden(value: &str) -> String {
    if value.starts_with('@') { value.to_owned() } else { "…".to_owned() }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=+,./:@%…".contains(c);
    match word.chars().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Options with secret values.
const SECRET: [&str; 3] = ["--token", "--header", "-H"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_told_without_what_is_secret() {
        let told = |args: &[&str]| command_line(args.iter().map(|arg| (*arg).to_owned()));
        for (args, wanted) in [
            (
                &["/bin/swath", "get", "https://u:secret@h/a b?sig=secret", "-o", "my file"][..],
                "swath get 'https://h/a b' -o 'my file'",
            ),
            (&["swath", "cp", "swath://h/x/#token=secret", "x/"], "swath cp swath://h/x/ x/"),
            (
                &["swath", "get", "--token", "secret", "--token=secret", "x"],
                "swath get --token … --token=… x",
            ),
            (&["swath", "get", "--token", "@f", "--token=@f"], "swath get --token @f --token=@f"),
            (
                &["swath", "get", "-H", "A: secret", "-HA:secret", "--header=A: secret"],
                "swath get -H … -H… --header=…",
            ),
            (&["swath", "cp", "it's", "é/"], "swath cp 'it'\\''s' é/"),
        ] {
            assert_eq!(told(args), wanted);
        }
    }
}
